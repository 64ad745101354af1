# SPDX-License-Identifier: Apache-2.0
"""Values of metrics at one moment, collected in slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, NamedTuple

from amqproute.bucket_counts import BucketCounts
from amqproute.metrics.families import FAMILIES, MetricKind
from amqproute.turn_scheduler import Pause

__all__ = [
    "SLICE_SECONDS",
    "HistogramValue",
    "MetricsScope",
    "MetricsSnapshot",
    "MetricsSource",
    "MetricsTable",
    "Sampled",
    "take_snapshot",
]

Sampled = tuple[tuple[str, ...], float]
"""The values of the labels of a sample, and its own."""

SLICE_SECONDS: Final = 0.001
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


@dataclass(slots=True, eq=False)
class MetricsTable:
    """Values of families that have their labels in common, a row for each entity.

    An entity is two objects, whatever the number of families: a sample of each would be an object
    of its own, which the garbage collector walks over while the reactor waits.

    Attributes:
        labels: the labels of each row.
        rows: the values of each, one for each family.
    """

    labels: list[tuple[str, ...]] = field(default_factory=list)
    rows: list[Sequence[float]] = field(default_factory=list)

    def add(self, labels: tuple[str, ...], row: Sequence[float]) -> None:
        """Add a row."""
        self.labels.append(labels)
        self.rows.append(row)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The samples of one family of a table."""

    table: MetricsTable
    place: int

    def __iter__(self) -> Iterator[Sampled]:
        return zip(self.table.labels, map(itemgetter(self.place), self.table.rows), strict=True)


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
    values: dict[str, list[Sampled] | TableColumn] = field(default_factory=dict)
    histograms: dict[str, list[HistogramValue]] = field(default_factory=dict)
    seconds: float = 0.0
    longest_seconds: float = 0.0

    def column(self, name: str) -> list[Sampled] | None:
        """Return the list of values of a family, to be added to; None if it is not wanted."""
        families = self.scope.families
        if families and name not in families:
            return None
        found = self.values.get(name)
        if found is None:
            assert FAMILIES[name].kind is not MetricKind.HISTOGRAM
            found = self.values[name] = []
        assert isinstance(found, list), name
        return found

    def table(self, names: Sequence[str]) -> MetricsTable:
        """Return a table of families that nothing else adds to; only the wanted ones are shown."""
        table = MetricsTable()
        for place, name in enumerate(names):
            if self.scope.wants((name,)):
                assert FAMILIES[name].kind is not MetricKind.HISTOGRAM
                assert name not in self.values, name
                self.values[name] = TableColumn(table, place)
        return table

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

    def clear(self) -> None:
        """Forget all values, in the thread that calls."""
        self.values.clear()
        self.histograms.clear()


MetricsSource = Callable[[MetricsSnapshot], Iterator[None]]
"""Adds values to a snapshot; yields between pieces of work of a few dozen microseconds."""


async def take_snapshot(
    scope: MetricsScope,
    sources: Collection[MetricsSource],
    pause: Pause,
    seconds: Callable[[], float],
) -> MetricsSnapshot:
    """Collect from all sources, in slices of `SLICE_SECONDS`.

    Args:
        scope: what is wanted.
        sources: called one after the other.
        pause: called between slices.
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
                await pause()
                slice_began = seconds()
    ended = seconds()
    snapshot.longest_seconds = max(longest, ended - slice_began)
    snapshot.seconds = ended - began
    snapshot.add("amqproute_scrape_collect_seconds", snapshot.seconds)
    snapshot.add("amqproute_scrape_longest_stop_seconds", snapshot.longest_seconds)
    return snapshot
