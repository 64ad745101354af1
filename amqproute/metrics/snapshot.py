# SPDX-License-Identifier: Apache-2.0
"""Values of metrics at one moment, collected in slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from amqproute.bucket_counts import BucketCounts
from amqproute.metrics.families import FAMILIES, MetricKind

__all__ = [
    "SLICE_SECONDS",
    "HistogramValue",
    "MetricsScope",
    "MetricsSnapshot",
    "MetricsSource",
    "take_snapshot",
]

SLICE_SECONDS: Final = 0.003
"""Time for which a scrape occupies the reactor at once, about."""


class HistogramValue(NamedTuple):
    """A histogram at one moment; see `BucketCounts`."""

    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    cumulative: Sequence[int]
    total: float


@dataclass(frozen=True, slots=True)
class MetricsScope:
    """Selection of metrics.

    Attributes:
        is_detailed: name everything, instead of adding up what is not configured.
        families: only these; empty for all.
        nodes: only these nodes and topics; empty for all.
        peers: only these peers; empty for all.
    """

    is_detailed: bool = False
    families: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()

    def wants(self, names: Iterable[str]) -> bool:
        """Tell whether one of these families is wanted."""
        return not self.families or not self.families.isdisjoint(names)


@dataclass(slots=True)
class MetricsSnapshot:
    """Values by family.

    Attributes:
        scope: what is wanted; anything else is left out.
        values: labels and values, by family.
        histograms: likewise.
        seconds: duration of the collection.
        longest_seconds: the longest stop of the reactor meanwhile.
    """

    scope: MetricsScope = MetricsScope()
    values: dict[str, list[tuple[tuple[str, ...], float]]] = field(default_factory=dict)
    histograms: dict[str, list[HistogramValue]] = field(default_factory=dict)
    seconds: float = 0.0
    longest_seconds: float = 0.0

    def column(self, name: str) -> list[tuple[tuple[str, ...], float]] | None:
        """Return the list of values of a family, to be added to; None if it is not wanted."""
        families = self.scope.families
        if families and name not in families:
            return None
        found = self.values.get(name)
        if found is None:
            assert FAMILIES[name].kind is not MetricKind.HISTOGRAM
            found = self.values[name] = []
        return found

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add one value."""
        column = self.column(name)
        if column is not None:
            column.append((labels, value))

    def add_histogram(self, name: str, counts: BucketCounts, *labels: str) -> None:
        """Add a histogram."""
        families = self.scope.families
        if not families or name in families:
            value = HistogramValue(labels, counts.bounds, counts.cumulative(), counts.total)
            self.histograms.setdefault(name, []).append(value)


MetricsSource = Callable[[MetricsSnapshot], Iterator[None]]
"""Adds values to a snapshot; yields between pieces of work of a few dozen microseconds."""


async def take_snapshot(
    scope: MetricsScope,
    sources: Collection[MetricsSource],
    clock: IReactorTime,
    seconds: Callable[[], float],
) -> MetricsSnapshot:
    """Collect from all sources, in slices of `SLICE_SECONDS`.

    Args:
        scope: what is wanted.
        sources: called one after the other.
        clock: the clock for turns of the reactor.
        seconds: a precise clock of elapsed time.
    """
    snapshot = MetricsSnapshot(scope)
    began = slice_began = seconds()
    longest = 0.0
    for source in sources:
        for _ in source(snapshot):
            took = seconds() - slice_began
            if took >= SLICE_SECONDS:
                longest = max(longest, took)
                await deferLater(clock, 0)
                slice_began = seconds()
    ended = seconds()
    snapshot.longest_seconds = max(longest, ended - slice_began)
    snapshot.seconds = ended - began
    snapshot.add("amqproute_scrape_collect_seconds", snapshot.seconds)
    snapshot.add("amqproute_scrape_longest_stop_seconds", snapshot.longest_seconds)
    return snapshot
