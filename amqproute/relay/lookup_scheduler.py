# SPDX-License-Identifier: Apache-2.0
"""Whose new domain is looked up next: so many a second over all senders, each in its turn.

A domain that no message has gone to costs look-ups before its first message is taken, whether it
exists or not, and names cost their sender nothing. So they have a pace. Senders take turns, and
within those without a name their addresses do: who names thousands waits for its own, and not the
others for it. A lone one does not wait.
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
"""Look-ups that begin without a pause after a quiet time."""

Begin: TypeAlias = Callable[[], bool]


class LookupScheduler:
    """The lines of those who wait, by sender.

    Args:
        clock: for the pace.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._parties: OrderedDict[str, OrderedDict[str | None, deque[Begin]]] = OrderedDict()
        self._next_at = clock.seconds() - BURST / PER_SECOND
        self._call: IDelayedCall | None = None

    def __len__(self) -> int:
        return sum(len(line) for lines in self._parties.values() for line in lines.values())

    def ask(self, holder: DestinationHolder, begin: Begin) -> None:
        """Have a look-up begin, at once or in its turn.

        Args:
            holder: who asks.
            begin: begins, and returns True; False if it has begun for somebody else already.
        """
        if not self._parties and self._wait() <= 0:
            self._begin(begin)
            return
        lines = self._parties.setdefault(holder.party, OrderedDict())
        lines.setdefault(holder.member, deque()).append(begin)
        self._arm()

    def stop(self) -> None:
        """Begin nothing any more."""
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
        # Before it begins: the answer may be known, and lead to the next one at once.
        self._next_at = max(self._next_at, earliest) + 1 / PER_SECOND
        has_begun = begin()
        if not has_begun:
            self._next_at -= 1 / PER_SECOND
        return has_begun
