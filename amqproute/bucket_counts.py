# SPDX-License-Identifier: Apache-2.0
"""Histograms as plain integers, for places where each message passes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

__all__ = ["SECONDS", "SIZES", "BucketCounts"]

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Upper bounds of buckets for durations in seconds."""
SIZES: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0)
"""Upper bounds of buckets for numbers of things."""


class BucketCounts:
    """Observations counted by bucket; one thread adds, any thread reads.

    A library's histogram takes a lock and a look-up by label for each observation; this costs a
    bisection, and nothing more for further equal ones.

    Args:
        bounds: the upper bounds of the buckets, ascending; a further one without a bound follows.

    Attributes:
        total: the sum of what was observed.
    """

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.total = 0.0
        self._counts = [0] * (len(self.bounds) + 1)

    def __repr__(self) -> str:
        return f"<BucketCounts {sum(self._counts)} of {self.total:g}>"

    def add(self, value: float, count: int = 1) -> None:
        """Count so many observations of a value."""
        self._counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def add_all(self, values: Sequence[float]) -> None:
        """Count a run of observations; one whose ends share a bucket costs as much as two."""
        bounds, counts = self.bounds, self._counts
        self.total += sum(values)
        place = bisect_left(bounds, min(values))
        if place == len(bounds) or max(values) <= bounds[place]:
            counts[place] += len(values)
            return
        for value in values:
            counts[bisect_left(bounds, value)] += 1

    def cumulative(self) -> list[int]:
        """Return for each bound how many observations are not above it, and last how many of all.

        Each number is at least the one before it, whatever another thread adds meanwhile.
        """
        return list(accumulate(tuple(self._counts)))
