# SPDX-License-Identifier: Apache-2.0
"""Schedules the look-ups of new domains: a rate over all senders, fairly shared.

A domain to which no message has gone before costs look-ups before its first message is accepted,
whether it exists or not, and names cost their sender nothing. So look-ups have a rate. Senders take
turns, and so do the addresses of senders without a name: a sender of thousands of names delays only
its own look-ups. A single look-up does not wait.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.relay.destination_quota import DestinationHolder

__all__ = ["BURST", "PER_SECOND", "LookupScheduler"]

PER_SECOND: Final = 100.0
BURST: Final = 20
"""Look-ups that start without a pause after an idle time."""

Begin: TypeAlias = Callable[[], bool]


class LookupScheduler:
    """Queues of look-ups, by sender.

    Args:
        clock: the clock for the rate.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._parties: OrderedDict[str, OrderedDict[str | None, deque[Begin]]] = OrderedDict()
        self._next_at = clock.seconds() - BURST / PER_SECOND
        self._call: IDelayedCall | None = None

    def __len__(self) -> int:
        return sum(len(line) for lines in self._parties.values() for line in lines.values())

    def ask(self, holder: DestinationHolder, begin: Begin) -> None:
        """Schedule a look-up, at once or later.

        Args:
            holder: the sender.
            begin: starts it and returns True; False if another sender has already started it.
        """
        if not self._parties and self._wait() <= 0:
            self._begin(begin)
            return
        lines = self._parties.setdefault(holder.party, OrderedDict())
        lines.setdefault(holder.member, deque()).append(begin)
        self._arm()

    def stop(self) -> None:
        """Cancel all look-ups that have not started."""
        self._parties.clear()
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _wait(self) -> float:
        return self._next_at - self._clock.seconds()

    def _arm(self) -> None:
        if self._call is None and self._parties:
            self._call = self._clock.callLater(max(0.0, self._wait()), self._turn)

    def _turn(self) -> None:
        self._call = None
        while self._parties:
            party, lines = next(iter(self._parties.items()))
            member, line = next(iter(lines.items()))
            has_begun = self._begin(line.popleft())
            if not line:
                del lines[member]
            elif has_begun:
                lines.move_to_end(member)
            if not lines:
                del self._parties[party]
            elif has_begun:
                self._parties.move_to_end(party)
            if has_begun:
                break
        self._arm()

    def _begin(self, begin: Begin) -> bool:
        earliest = self._clock.seconds() - BURST / PER_SECOND
        # Set this first: a cached answer may lead to the next look-up at once.
        self._next_at = max(self._next_at, earliest) + 1 / PER_SECOND
        has_begun = begin()
        if not has_begun:
            self._next_at -= 1 / PER_SECOND
        return has_begun
