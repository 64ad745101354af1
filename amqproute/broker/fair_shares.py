# SPDX-License-Identifier: Apache-2.0
"""Fair division of one bound among several parties.

`FairShares` counts what each party holds of one resource and says how much more it may take. The
rule is the dynamic threshold of shared-memory switches: a party may hold as much as would still be
free afterwards. One party alone gets half of the bound, two get a third each, n get 1/(n+1) each,
and as much always stays free for the next one. Nothing has to be known about who will come, and
what is held is never taken away again.

Within a party the same rule divides its share among its members (the connections of one user, of
all anonymous clients), so that one of them cannot use up what belongs to the party.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

__all__ = ["FairShares"]


@dataclass(slots=True)
class _Holding:
    """Holdings of one party: in total, and by member."""

    total: int = 0
    by_member: dict[Hashable, int] = field(default_factory=dict)


class FairShares:
    """Holdings of parties in one resource, in any unit.

    Attributes:
        used: what all parties hold together.
    """

    __slots__ = ("_holdings", "used")

    def __init__(self) -> None:
        self.used = 0
        self._holdings: dict[str, _Holding] = {}

    def __repr__(self) -> str:
        return f"<FairShares {self.used} held by {len(self._holdings)}>"

    def held(self, party: str) -> int:
        """Return what a party holds."""
        holding = self._holdings.get(party)
        return 0 if holding is None else holding.total

    def room(self, limit: int, party: str, member: Hashable = None) -> int:
        """Return how much more a party may take now; not negative.

        Args:
            limit: the bound for all parties.
            party: who asks.
            member: which of the party's members; None: the party is not divided.
        """
        holding = self._holdings.get(party)
        held = 0 if holding is None else holding.total
        share = _half(limit - (self.used - held))
        room = min(share - held, limit - self.used)
        if member is not None:
            own = 0 if holding is None else holding.by_member.get(member, 0)
            room = min(room, _half(share - (held - own)) - own)
        return max(0, room)

    def owner_room(self, limit: int, owner: str) -> int:
        """Return how much more an owner may take now; the operator (empty) all that is free."""
        return self.room(limit, owner) if owner else limit - self.used

    def take(self, amount: int, party: str, member: Hashable = None) -> None:
        """Count in what a party takes, whether there is room for it or not."""
        if not amount:
            return
        holding = self._holdings.get(party)
        if holding is None:
            holding = self._holdings[party] = _Holding()
        self.used += amount
        holding.total += amount
        if member is not None:
            holding.by_member[member] = holding.by_member.get(member, 0) + amount

    def give_back(self, amount: int, party: str, member: Hashable = None) -> None:
        """Count out what a party has taken and does not need any more."""
        if not amount:
            return
        holding = self._holdings[party]
        self.used -= amount
        holding.total -= amount
        if member is not None:
            left = holding.by_member[member] - amount
            if left:
                holding.by_member[member] = left
            else:
                del holding.by_member[member]
        if not holding.total:
            del self._holdings[party]


def _half(amount: int) -> int:
    """Return half of an amount, rounded up: one of one."""
    return (amount + 1) // 2
