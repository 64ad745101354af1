# SPDX-License-Identifier: Apache-2.0
"""Who may begin to connect, and when: no more than so many a second, over all destinations.

After a restart every destination with a backlog wants a connection at once, and each costs a
lookup and a TLS handshake on both sides. Here they stand in line. A lone one never waits; those
that are known to be up (they have just called in, or an operator asks) go to the head of the line.
To begin is a step of its own (`amqproute.turn_scheduler`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.turn_scheduler import TurnScheduler


class ConnectScheduler:
    """The line.

    Args:
        clock: for the time between two.
        per_second: how many begin in a second, at most.
        turns: shares the turns of the reactor out; None for one of its own.
    """

    def __init__(
        self, clock: IReactorTime, per_second: float, turns: TurnScheduler | None = None
    ) -> None:
        self.per_second = per_second
        self._clock = clock
        self._line: OrderedDict[Callable[[], None], None] = OrderedDict()
        self._turns = turns or TurnScheduler(clock)
        self._call: IDelayedCall | None = None
        self._is_put_off = False  # a step that begins the next one
        self._not_before = clock.seconds()

    def __len__(self) -> int:
        return len(self._line)

    def ask(self, begin: Callable[[], None], urgent: bool = False) -> None:
        """Have ``begin`` called in its turn, never within this call.

        Args:
            begin: what begins to connect. Asked for twice it is called once.
            urgent: before all others that wait.
        """
        self._line.setdefault(begin)
        if urgent:
            self._line.move_to_end(begin, last=False)
        self._arm()

    def withdraw(self, begin: Callable[[], None]) -> None:
        """Take it out of the line, if it is there."""
        self._line.pop(begin, None)

    def stop(self) -> None:
        """Call nobody any more."""
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
