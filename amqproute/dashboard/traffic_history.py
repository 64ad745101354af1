# SPDX-License-Identifier: Apache-2.0
"""Traffic of the last minutes: totals taken at regular times, and the rates between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["MOST_SAMPLES", "SAMPLE_SECONDS", "TrafficHistory", "TrafficSample"]

SAMPLE_SECONDS: Final = 5.0
MOST_SAMPLES: Final = 181
"""A quarter of an hour."""

CounterName = Literal["taken", "delivered", "relayed"]
LevelName = Literal["here", "outgoing"]


@dataclass(frozen=True, slots=True)
class TrafficSample:
    """Totals at one moment.

    Attributes:
        at_ms: the wall clock.
        taken: messages put on queues since the start.
        delivered: messages that left nodes.
        relayed: messages that left relay queues.
        here: messages on nodes.
        outgoing: messages on relay queues.
        oldest_ms: the age of the oldest waiting message; None without one.
        oldest_queue: its queue.
    """

    at_ms: int
    taken: int = 0
    delivered: int = 0
    relayed: int = 0
    here: int = 0
    outgoing: int = 0
    oldest_ms: int | None = None
    oldest_queue: str = ""


class TrafficHistory:
    """The last `MOST_SAMPLES` samples."""

    def __init__(self) -> None:
        self._samples: deque[TrafficSample] = deque(maxlen=MOST_SAMPLES)

    def __repr__(self) -> str:
        return f"<TrafficHistory {len(self._samples)} samples>"

    def add(self, sample: TrafficSample) -> None:
        """Add a sample; the oldest is dropped if there are too many."""
        self._samples.append(sample)

    @property
    def latest(self) -> TrafficSample | None:
        """The newest sample."""
        return self._samples[-1] if self._samples else None

    @property
    def times_ms(self) -> Sequence[int]:
        """The times of the samples."""
        return [each.at_ms for each in self._samples]

    def values(self, name: LevelName) -> Sequence[float | None]:
        """Return a level at each time."""
        return [getattr(each, name) for each in self._samples]

    def rates(self, name: CounterName) -> Sequence[float | None]:
        """Return a rate per second before each time; None where it is not known.

        It is not known for the first sample, after a jump of the clock, and when the total has
        shrunk because a queue was deleted.
        """
        found: list[float | None] = []
        before: TrafficSample | None = None
        for each in self._samples:
            found.append(None if before is None else _rate(before, each, name))
            before = each
        return found

    def rate(self, name: CounterName) -> float | None:
        """Return the present rate per second."""
        if len(self._samples) < 2:
            return None
        return _rate(self._samples[-2], self._samples[-1], name)


def _rate(before: TrafficSample, after: TrafficSample, name: CounterName) -> float | None:
    seconds = (after.at_ms - before.at_ms) / 1000
    more: int = getattr(after, name) - getattr(before, name)
    return more / seconds if 0 < seconds <= 10 * SAMPLE_SECONDS and more >= 0 else None
