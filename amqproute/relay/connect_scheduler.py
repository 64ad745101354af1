# SPDX-License-Identifier: Apache-2.0
"""Schedules the start of connection attempts: a rate over all destinations.

After a restart every destination with a backlog wants a connection at once, and each costs a
look-up and a TLS handshake on both sides. Here they queue. A single one never waits; those known to
be up (the peer has just connected to us, or an operator asks) go to the head of the queue. Each
start is a step of its own (`amqproute.turn_scheduler`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.turn_scheduler import TurnScheduler


class ConnectScheduler:
    """The queue of connection attempts.

    Args:
        clock: the clock for the interval between two starts.
        per_second: the maximum number of starts per second.
        turns: schedules steps over the turns of the reactor; None for one of its own.
    """

    def __init__(
        self, clock: IReactorTime, per_second: float, turns: TurnScheduler | None = None
    ) -> None:
        self.per_second = per_second
        self._clock = clock
        self._line: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._turns = turns or TurnScheduler(clock)
        self._call: IDelayedCall | None = None
        self._is_put_off = False  # whether a step is scheduled
        self._not_before = clock.seconds()

    def __len__(self) -> int:
        return len(self._line)

    def ask(self, begin: Callable[[], None], urgent: bool = False) -> None:
        """Schedule a call of ``begin``, never within this call.

        Args:
            begin: starts connecting. Scheduled twice, it is called once.
            urgent: goes ahead of all others.
        """
        self._line.setdefault(begin)
        if urgent:
            self._line.move_to_end(begin, last=False)
        self._arm()

    def withdraw(self, begin: Callable[[], None]) -> None:
        """Remove it from the queue, if present."""
        self._line.pop(begin, None)

    def stop(self) -> None:
        """Cancel all calls."""
        self._line.clear()
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _arm(self) -> None:
        if self._call is None and self._line and not self._is_put_off:
            wait = max(0.0, self._not_before - self._clock.seconds())
            self._call = self._clock.callLater(wait, self._next)

    def _next(self) -> None:
        self._call = None
        self._is_put_off = True
        self._turns.ask("connect", "", self._begin)

    def _begin(self) -> None:
        self._is_put_off = False
        if self._line:
            self._not_before = self._clock.seconds() + 1 / self.per_second
            begin, _ = self._line.popitem(last=False)
            self._arm()
            begin()
