# SPDX-License-Identifier: Apache-2.0
"""Histograms as plain integers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.bucket_counts import SECONDS, BucketCounts


class BucketCountsTests(SynchronousTestCase):
    """The bucket of each value."""

    def test_bounds(self) -> None:
        """A value equal to a bound is within it; there is a bucket above the last bound."""
        counts = BucketCounts((1.0, 2.0))
        for value in (0.5, 1.0, 1.5, 2.0, 2.5):
            counts.add(value)
        self.assertEqual(counts.cumulative(), [2, 4, 5])
        self.assertEqual(counts.total, 7.5)

    def test_unit(self) -> None:
        """Microseconds are added and shown in seconds."""
        counts = BucketCounts((0.001, 0.5), 1e-6)
        for value in (1000, 1001, 2_000_000):
            counts.add(value)
        self.assertEqual((counts.bounds, counts.cumulative()), ((0.001, 0.5), [1, 2, 3]))
        self.assertAlmostEqual(counts.total, 2.002001)

    def test_runs(self) -> None:
        """A run within one bucket is counted at once, another one not at all."""
        counts = BucketCounts((1.0, 2.0))
        self.assertTrue(counts.add_run(1.25, 1.75, 4))
        self.assertTrue(counts.add_run(9.0, 5.0, 2))
        self.assertFalse(counts.add_run(0.5, 1.5, 100))
        self.assertEqual((counts.cumulative(), counts.total), ([0, 4, 6], 20.0))

    @given(st.lists(st.floats(0, 100), min_size=1))
    def test_any_values(self, values: list[float]) -> None:
        """Each value is in the first bucket whose bound it does not exceed."""
        counts = BucketCounts(SECONDS)
        for value in values:
            counts.add(value)
        wanted = [sum(value <= bound for value in values) for bound in SECONDS]
        self.assertEqual(counts.cumulative(), [*wanted, len(values)])
        self.assertAlmostEqual(counts.total, sum(values))
