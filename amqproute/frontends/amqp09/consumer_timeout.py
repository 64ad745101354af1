# SPDX-License-Identifier: Apache-2.0
"""Deliveries that a client of 0-9 or 0-9-1 leaves unacknowledged for too long.

A consumer that hangs would keep what it has for as long as its connection lives. Its channel is
closed instead, and what it held is delivered to others. The bound is that of the queue, by its
argument ``x-consumer-timeout`` or a policy, else `limits.consumer-timeout`.

The deliveries of a channel are looked at eight times in that time, and at least once in a minute,
so that a bound that has changed is soon in force; nothing is noted when a message is sent. So a
delivery may last an eighth longer than the bound, and never shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.alarm import Alarm

__all__ = ["ConsumerTimeout"]

LOOKS: Final = 8
"""Checks of a delivery before its time is over."""
LONGEST_PAUSE: Final = 60.0
"""Seconds between two looks, at most."""

Context = TypeVar("Context")


def _unbounded(_: object) -> float:
    return 0.0


def _ignored(_: float) -> None:
    pass


class Outstanding(Protocol):
    """What a client has not acknowledged, or answered."""

    def __len__(self) -> int:
        """Return how many there are."""

    def outstanding(self) -> Iterable[tuple[int, object]]:
        """Return a number for each, which is never used again, and its context."""


class ConsumerTimeout:
    """Watches what is unacknowledged on one channel.

    Args:
        clock: the clock for its timer.
        unacknowledged: deliveries of the channel, or what will be delivered.
        seconds_of: returns how long a delivery may be unacknowledged; 0 for ever.
        overdue: called, at most once in a look, with the bound of a delivery whose time is over.
    """

    __slots__ = ("_alarm", "_clock", "_overdue", "_seconds_of", "_since", "_unacknowledged")

    def __init__(
        self,
        clock: IReactorTime,
        unacknowledged: Outstanding,
        seconds_of: Callable[[object], float],
        overdue: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._alarm = Alarm(clock)
        self._unacknowledged = unacknowledged
        self._seconds_of = seconds_of
        self._overdue = overdue
        self._since: dict[int, float] = {}

    def watch(self) -> None:
        """Look at the deliveries from now on: there is one more."""
        if not self._alarm.is_set and self._unacknowledged:
            self._look()

    def stop(self) -> None:
        """End: the channel is over, and nothing of it is held."""
        self._alarm.stop()
        self._since = {}
        self._seconds_of, self._overdue = _unbounded, _ignored

    def _look(self) -> None:
        now, pause = self._clock.seconds(), LONGEST_PAUSE
        since: dict[int, float] = {}
        for tag, context in self._unacknowledged.outstanding():
            since[tag] = begun = self._since.get(tag, now)
            seconds = self._seconds_of(context)
            if seconds <= 0:
                continue
            if now - begun >= seconds:
                self._overdue(seconds)
                return
            pause = min(pause, seconds / LOOKS)
        self._since = since
        if since:
            self._alarm.set(pause, self._look)
