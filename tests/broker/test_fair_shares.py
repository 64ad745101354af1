# SPDX-License-Identifier: Apache-2.0
"""Shares of a bound: nobody takes all of it, and everybody gets some."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.fair_shares import FairShares


class PartySharesTests(SynchronousTestCase):
    def test_greedy(self) -> None:
        """A party that takes all it may: half, a quarter more, an eighth more."""
        shares = FairShares()
        taken = []
        for party in ("a", "b", "c"):
            taken.append(shares.room(1000, party))
            shares.take(taken[-1], party)
        self.assertEqual(taken, [500, 250, 125])
        self.assertEqual([shares.room(1000, party) for party in "abc"], [0, 0, 0])

    def test_members(self) -> None:
        """A party's share is divided in the same way among its members."""
        shares = FairShares()
        for member, expected in ((1, 250), (2, 125), (3, 63)):
            self.assertEqual(shares.room(1000, "a", member), expected)
            shares.take(expected, "a", member)
        # Half of the share of b, which is half of what a has left.
        self.assertEqual(shares.room(1000, "b", 1), 141)

    def test_one_place(self) -> None:
        """Of one place there is no half: whoever comes first has it."""
        shares = FairShares()
        self.assertEqual(shares.room(1, "a"), 1)
        shares.take(1, "a")
        self.assertEqual((shares.room(1, "a"), shares.room(1, "b")), (0, 0))
        shares.give_back(1, "a")
        self.assertEqual(shares.room(1, "b"), 1)

    def test_more_than_there_is(self) -> None:
        """Forced use is counted, and then there is no room for any party."""
        shares = FairShares()
        shares.take(20, "a")
        self.assertEqual((shares.room(10, "a"), shares.room(10, "b"), shares.used), (0, 0, 20))

    @given(
        st.integers(1, 10_000),
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.floats(-1, 1))),
    )
    def test_bound(self, limit: int, steps: list[tuple[str, int, float]]) -> None:
        """The sum stays within the bound; a newcomer gets as much as the largest part leaves."""
        shares = FairShares()
        held: dict[tuple[str, int], int] = {}
        for party, member, part in steps:
            own = held.get((party, member), 0)
            if part < 0:
                amount = int(own * -part)
                shares.give_back(amount, party, member)
                amount = -amount
            else:
                amount = int(shares.room(limit, party, member) * part)
                shares.take(amount, party, member)
            held[party, member] = own + amount
            self.assertEqual(shares.used, sum(held.values()))
            self.assertLessEqual(shares.used, limit)
            largest = max(
                sum(held.get((each, member), 0) for member in range(4)) for each in "abcd"
            )
            free = limit - shares.used
            if amount > 0:
                own_total = sum(held.get((party, each), 0) for each in range(4))
                self.assertLessEqual(own_total, free + 1)
            self.assertEqual(shares.room(limit, "newcomer"), (free + 1) // 2)
            self.assertLessEqual(largest, (limit + 1) // 2)
        fresh = FairShares()
        for (party, member), own in held.items():
            fresh.take(own, party, member)
        for each in [(party, member) for party in "abcd" for member in range(4)]:
            self.assertEqual(shares.room(limit, *each), fresh.room(limit, *each), each)
