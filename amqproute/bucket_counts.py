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
    bisection, and one for a whole run whose ends share a bucket.

    Args:
        bounds: the upper bounds of the buckets, ascending; a further one without a bound follows.
        unit: what is added is in multiples of this, as in 1e-6 for microseconds where bounds are
            seconds.

    Attributes:
        bounds: the bounds, as given.
    """

    __slots__ = ("_counts", "_edges", "_sum", "_unit", "bounds")

    def __init__(self, bounds: Sequence[float], unit: float = 1.0) -> None:
        self.bounds = tuple(bounds)
        self._unit = unit
        self._edges = self.bounds if unit == 1.0 else tuple(round(each / unit) for each in bounds)
        self._sum: float = 0
        self._counts = [0] * (len(self.bounds) + 1)

    def __repr__(self) -> str:
        return f"<BucketCounts {sum(self._counts)} of {self.total:g}>"

    @property
    def total(self) -> float:
        """The sum of the observations, in the unit of the bounds."""
        return self._sum * self._unit

    def add(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._edges, value)] += 1
        self._sum += value

    def add_run(self, first: float, last: float, count: int) -> bool:
        """Count a run of observations in ascending or descending order, if one bucket has all.

        The sum grows as if they were spread evenly between the first and the last.

        Returns:
            False if its ends are in different buckets: nothing is counted then.
        """
        place = bisect_left(self._edges, first)
        if bisect_left(self._edges, last) != place:
            return False
        self._counts[place] += count
        self._sum += (first + last) * count / 2
        return True

    def cumulative(self) -> list[int]:
        """Return for each bound how many observations are not above it, and last how many of all.

        Each number is at least the one before it, whatever another thread adds meanwhile.
        """
        return list(accumulate(tuple(self._counts)))
