# SPDX-License-Identifier: Apache-2.0
"""Rates of requests, by address and by user: token buckets in bounded number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from amqproute.broker.token_bucket import TokenBucket

__all__ = ["MOST_SOURCES", "RequestRates"]

MOST_SOURCES: Final = 10_000
"""Sources that are remembered; the one that has asked longest ago is forgotten, and begins again
with a full bucket."""


class RequestRates:
    """The rate of each source of requests.

    Args:
        per_second: requests of one source; a second's worth may come at once.
        seconds: the monotonic clock.
    """

    def __init__(self, per_second: float, seconds: Callable[[], float]) -> None:
        self._per_second = per_second
        self._seconds = seconds
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def adopt(self, per_second: float) -> None:
        """Put another rate in force."""
        if per_second != self._per_second:
            self._per_second = per_second
            self._buckets.clear()

    def take(self, source: str) -> float:
        """Count a request; return 0, or the seconds after which the source may ask again."""
        now = self._seconds()
        bucket = self._buckets.get(source)
        if bucket is None:
            if len(self._buckets) >= MOST_SOURCES:
                self._buckets.popitem(last=False)
            bucket = self._buckets[source] = TokenBucket(self._per_second, now)
        else:
            self._buckets.move_to_end(source)
        wait = bucket.wait(now)
        if not wait:
            bucket.take(1, now)
        return wait
