# SPDX-License-Identifier: Apache-2.0
"""Warnings about prepared branches that nobody resolves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.broker.alarm import Alarm
from amqproute.broker.xa_branch import Branch


class BranchMonitor:
    """A line in the log, again and again, while there are old prepared branches.

    Args:
        clock: the clock of the timer.
        now_ms: the wall clock, ms since the epoch.
        seconds: older ones are told of, and again after that time.
        waiting: the prepared branches.
        log: gets the warnings.
    """

    def __init__(
        self,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        seconds: float,
        waiting: Callable[[], Sequence[Branch]],
        log: Logger,
    ) -> None:
        self._now_ms = now_ms
        self._seconds = seconds
        self._waiting = waiting
        self._log = log
        self._alarm = Alarm(clock)

    def look(self) -> None:
        """Watch, if there is something to be watched."""
        if not self._alarm.is_set and self._waiting():
            self._alarm.set(self._seconds, self._warn)

    def stop(self) -> None:
        """Cancel the timer."""
        self._alarm.stop()

    def _warn(self) -> None:
        before_ms = self._now_ms() - int(self._seconds * 1000)
        old = [each for each in self._waiting() if each.since_ms <= before_ms]
        if old:
            oldest = min(old, key=lambda each: each.since_ms)
            self._log.warn(
                "{count} branches have been prepared for more than {seconds:g} s and keep their "
                "messages; the oldest is {key}: see `amqproute transaction ls`",
                count=len(old),
                seconds=self._seconds,
                key=oldest.key,
            )
        self.look()


__all__ = ["BranchMonitor"]
