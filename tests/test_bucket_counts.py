# SPDX-License-Identifier: Apache-2.0
"""Histograms as plain integers."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.bucket_counts import SECONDS, BucketCounts


class BucketCountsTests(SynchronousTestCase):
    """What is counted where."""

    def test_bounds(self) -> None:
        """A value equal to a bound is within it; there is a bucket above the last bound."""
        counts = BucketCounts((1.0, 2.0))
        for value in (0.5, 1.0, 1.5, 2.0, 2.5):
            counts.add(value)
        self.assertEqual(counts.cumulative(), [2, 4, 5])
        self.assertEqual(counts.total, 7.5)
        counts.add(1.5, 10)
        self.assertEqual((counts.cumulative(), counts.total), ([2, 14, 15], 22.5))

    @given(st.lists(st.floats(0, 100), min_size=1))
    def test_runs(self, values: list[float]) -> None:
        """A run is counted as if its values had come one by one."""
        together, apart = BucketCounts(SECONDS), BucketCounts(SECONDS)
        together.add_all(values)
        for value in values:
            apart.add(value)
        self.assertEqual(together.cumulative(), apart.cumulative())
        self.assertAlmostEqual(together.total, apart.total)
        below = sum(bisect_left(SECONDS, value) == 0 for value in values)
        self.assertEqual(together.cumulative()[0], below)
