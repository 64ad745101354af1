# SPDX-License-Identifier: Apache-2.0
"""Counts of the last hour."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.recent_counts import (
    BUCKETS,
    ELSEWHERE,
    MOST_PLACES,
    RecentCounts,
    RecentEvent,
)

REJECTED = RecentEvent("rejected", "orders")


class RecentTests(SynchronousTestCase):
    """Events older than an hour do not count, and no number of places takes more memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.recent = RecentCounts(self.clock.seconds)

    def test_hour(self) -> None:
        """Counts go when their minute is an hour old."""
        self.recent.add(REJECTED, 2)
        self.clock.advance(1800)
        self.recent.add(REJECTED, 3)
        self.assertEqual(self.recent.totals(), {REJECTED: 5})
        self.clock.advance(1800)
        self.assertEqual(self.recent.totals(), {REJECTED: 3})
        self.clock.advance(3600)
        self.assertEqual(self.recent.totals(), {})

    @given(st.lists(st.tuples(st.floats(0, 900), st.integers(1, 9)), max_size=30))
    def test_sum(self, steps: list[tuple[float, int]]) -> None:
        """By any way through time: what was counted in the minutes of this last hour."""
        clock, kept = Clock(), []
        recent = RecentCounts(clock.seconds)
        for seconds, count in steps:
            clock.advance(seconds)
            recent.add(REJECTED, count)
            kept.append((clock.seconds(), count))
        now = clock.seconds() // 60
        expected = sum(count for at, count in kept if at // 60 > now - BUCKETS)
        self.assertEqual(recent.totals().get(REJECTED, 0), expected)

    def test_bounds(self) -> None:
        """Places and conditions that others choose take no more than a minute's share."""
        for minute in range(70):
            for number in range(2 * MOST_PLACES):
                self.recent.add(RecentEvent("rejected", f"{minute}-{number}", "other", "c" * 5000))
            self.clock.advance(60)
        totals = self.recent.totals()
        self.assertLessEqual(len(totals), BUCKETS * (MOST_PLACES + 1))
        self.assertTrue(all(len(each.condition) <= 128 for each in totals))
        self.assertEqual(totals[RecentEvent("rejected", ELSEWHERE)], 59 * MOST_PLACES)
        self.assertEqual(sum(totals.values()), 59 * 2 * MOST_PLACES)
