# SPDX-License-Identifier: Apache-2.0
"""Counts of the events of the last hour, by kind and place.

Counts stand in buckets of a minute each; buckets older than an hour are dropped when something is
counted or asked for. A bucket has `MOST_PLACES` different entries; what exceeds that is counted
under `ELSEWHERE`, since places and conditions may be chosen by others.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["BUCKETS", "ELSEWHERE", "MOST_PLACES", "RecentCounts", "RecentEvent"]

BUCKET_SECONDS: Final = 60.0
BUCKETS: Final = 60
MOST_PLACES: Final = 200
"""Different entries that one bucket keeps apart."""
LONGEST: Final = 128
"""Letters of a condition that are kept."""
ELSEWHERE: Final = "*"
"""The place of what is not kept apart."""


class RecentEvent(NamedTuple):
    """A kind of event that is counted.

    Attributes:
        event: ``rejected``, ``dead-lettered`` or ``refused``.
        place: the node, next hop or contract.
        kind: the kind of the event.
        condition: the AMQP condition or reason behind it.
    """

    event: str
    place: str
    kind: str = ""
    condition: str = ""


class RecentCounts:
    """Counts of the last hour.

    Args:
        seconds: a clock that is never set back.

    Attributes:
        since_start: the same without an end, by event and kind alone: these are few.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.since_start: Counter[tuple[str, str]] = Counter()
        self._buckets: deque[tuple[int, Counter[RecentEvent]]] = deque()

    def add(self, happening: RecentEvent, count: int = 1) -> None:
        """Count something that has happened so many times."""
        self.since_start[happening.event, happening.kind] += count
        number = self._drop_old()
        if not self._buckets or self._buckets[-1][0] != number:
            self._buckets.append((number, Counter()))
        bucket = self._buckets[-1][1]
        happening = happening._replace(condition=happening.condition[:LONGEST])
        if happening not in bucket and len(bucket) >= MOST_PLACES:
            happening = RecentEvent(happening.event, ELSEWHERE)
        bucket[happening] += count

    def totals(self) -> dict[RecentEvent, int]:
        """Return what was counted in the last hour."""
        self._drop_old()
        totals: Counter[RecentEvent] = Counter()
        for _, bucket in self._buckets:
            totals.update(bucket)
        return dict(totals)

    def _drop_old(self) -> int:
        number = int(self._seconds() // BUCKET_SECONDS)
        while self._buckets and self._buckets[0][0] <= number - BUCKETS:
            self._buckets.popleft()
        return number
