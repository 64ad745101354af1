# SPDX-License-Identifier: Apache-2.0
"""Where the two sides of a reconciliation come from: a journal, an export of one, or tables.

A partner need not show its journal. What ``amqproute journal export`` writes has ids, digests and
times of the messages between the two, in segments as a journal's own, and is read like one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqproute.journal.record import RecordKind
from amqproute.pipeline import coverage, reconcile
from amqproute.pipeline.days import between as days_between
from amqproute.pipeline.days import spans
from amqproute.pipeline.ingest import ingest
from amqproute.pipeline.table_schema import HOPS
from amqproute.pipeline.traces import hops
from amqproute.pipeline.warehouse import Warehouse

__all__ = [
    "ExchangeSource",
    "ExchangeSourceError",
    "between",
    "check_days",
    "open_source",
    "recent_octets",
    "segments_of",
]

LOOK_BACK: Final = 3
"""Days before the one in question of which records are read: messages wait."""


RECENT_DAYS: Final = 22
"""Days that a night reads to make one day anew, with some that came late."""


class ExchangeSourceError(Exception):
    """A directory is not what it should be; the words say what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class ExchangeSource:
    """A side before it is known who the other one is.

    Attributes:
        directory: where it was read.
        domain: of the organization.
        entries: its `amqproute.pipeline.table_schema.HOPS`.
        holes: `amqproute.pipeline.coverage.HOLES` of its journals.
        read: the days of which it has records, as far as they were read.
        known: all days that there are.
        shown_to: for whom it was exported, as in ``peer`` of records; nobody for a journal.
        unread: in words, how many lines cannot be read, and why; empty if all can.
    """

    directory: Path
    domain: str
    entries: DataFrame
    holes: DataFrame
    read: Sequence[date] = ()
    known: Sequence[date] = ()
    shown_to: Sequence[str] = ()
    unread: str = ""

    def has(self, day: date) -> bool:
        """Tell whether there are records of a day."""
        return day in self.read

    def reaches_over(self, day: date) -> bool:
        """Tell whether there are records before a day and behind it, so that none means none."""
        return min(self.read) < day < max(self.read)

    def towards(self, partner: ExchangeSource) -> reconcile.ReconcileSide:
        """Return what it has to say to a partner.

        Raises:
            ExchangeSourceError: it was exported for somebody else, and says nothing of this one.
        """
        names = reconcile.known_as(self.entries, partner.entries)
        wanted = {f"peer:{partner.domain}", *names}
        if self.shown_to and not wanted & set(self.shown_to) and not self._has_met(partner):
            whose = ", ".join(name.removeprefix("peer:") for name in self.shown_to)
            raise ExchangeSourceError(
                f"{self.directory}: an export for {whose}; {self.domain} has to make one with: "
                f"amqproute journal export DIR --peer {partner.domain}"
            )
        said = reconcile.statement(self.entries, self.domain, partner.domain, names)
        return reconcile.ReconcileSide(self.domain, said, self.holes)

    def _has_met(self, partner: ExchangeSource) -> bool:
        """Tell whether it took anything of a partner, whatever its name is there."""
        streams = partner.entries.select(F.col("stream").alias("from_stream")).distinct()
        return not self.entries.join(streams, "from_stream", "left_semi").isEmpty()


def between(
    first: ExchangeSource, second: ExchangeSource
) -> tuple[reconcile.ReconcileSide, reconcile.ReconcileSide]:
    """Return what two say to each other."""
    return first.towards(second), second.towards(first)


def check_days(sides: Sequence[ExchangeSource], day: date, hand_overs: int) -> None:
    """Refuse to have said something of a day that a side knows nothing of.

    Where one side has records of the day and the other one only before and behind it, what the
    first has handed over stands against the silence of the other one. All else is no comparison.

    Args:
        sides: the two.
        day: that they were compared of.
        hand_overs: how many were found.

    Raises:
        ExchangeSourceError: there is nothing of the day.
    """
    silent = [side for side in sides if not side.has(day)]
    if not silent or (hand_overs and len(silent) == 1 and silent[0].reaches_over(day)):
        return
    words = [f"{side.directory}: nothing of {day}; there is {spans(side.known)}" for side in silent]
    raise ExchangeSourceError("; ".join(words))


def open_source(
    spark: SparkSession,
    directory: Path,
    day: date | None,
    scratch: Path,
    domain: str | None = None,
) -> ExchangeSource:
    """Find out what a directory is, and read it.

    Args:
        spark: what reads it.
        directory: a journal or an export (folders of days with segments), or a warehouse.
        day: only what is needed to judge this day.
        scratch: for tables that are made on the way; empty.
        domain: whose side it is, where it tells of several.

    Raises:
        ExchangeSourceError: it is none of these, or has nothing of that day.
    """
    if not directory.is_dir():
        raise ExchangeSourceError(f"{directory}: there is no such directory")
    if (directory / "log").is_dir():
        warehouse = Warehouse(spark, directory)
    else:
        warehouse = Warehouse(spark, scratch / "tables")
        ingest(warehouse, segments_of(directory, day))
    runs = warehouse.read("runs", _days(day))
    found: dict[str, list[date]] = {}
    for row in runs.select("domain", "day").distinct().orderBy("domain", "day").collect():
        found.setdefault(row.domain, []).append(row.day)
    rejects = warehouse.read("rejects", _days(day))
    unread = _unread(rejects)
    known = sorted({*_folders(directory), *warehouse.snapshot().days("runs")})
    if not found:
        what = f"nothing of {day}; there is {spans(known)}" if known else "no tables there"
        raise ExchangeSourceError(f"{directory}: {unread or what}")
    chosen = next(iter(found)) if domain is None and len(found) == 1 else domain
    if chosen is None or chosen not in found:
        more = "say whose side is meant" if domain is None else f"not of {domain}"
        raise ExchangeSourceError(f"{directory}: tells of {', '.join(found)}; {more}")
    own = runs.where(F.col("domain") == chosen)
    made = str(scratch / "hops")
    hops(own).write.parquet(made)
    entries = spark.read.schema(HOPS).parquet(made)
    told = own.where(F.col("kind") == RecordKind.SEGMENT).select("all.peer").distinct().collect()
    shown_to = sorted(row.peer for row in told if row.peer is not None)
    holes = coverage.holes(own, rejects if unread else None)
    return ExchangeSource(directory, chosen, entries, holes, found[chosen], known, shown_to, unread)


def _unread(rejects: DataFrame) -> str:
    told = rejects.agg(F.count("*").alias("number"), F.mode("reason").alias("reason")).first()
    assert told is not None
    return f"{told.number:,} lines cannot be read: {told.reason}" if told.number else ""


def segments_of(directory: Path, day: date | None = None) -> list[Path]:
    """Return the folders of closed segments of a journal that matter for a day, or all.

    Raises:
        ExchangeSourceError: there are none.
    """
    folders = _folders(directory)
    if not folders:
        what = "no closed segments yet" if (directory / "open").is_dir() else "no journal"
        raise ExchangeSourceError(f"{directory}: {what} (folders of days, as 2026-11-22)")
    days = _days(day)
    chosen = [path for each, path in folders.items() if days is None or each in days]
    if not chosen:
        raise ExchangeSourceError(f"{directory}: nothing of {day}; there is {spans(folders)}")
    return chosen


def recent_octets(directories: Iterable[Path]) -> int:
    """Return how many octets a night's work is about, more or less: those of the last segments.

    Args:
        directories: journals; one that is not there has nothing.
    """
    found = [each for directory in directories for each in _folders(directory).items()]
    last = sorted({day for day, _ in found})[-RECENT_DAYS:]
    segments = (path for day, folder in found if day in last for path in folder.glob("*.jsonl"))
    octets = 0
    for path in segments:
        with suppress(FileNotFoundError):  # a daemon removes them at any moment
            octets += path.stat().st_size
    return octets


def _folders(directory: Path) -> dict[date, Path]:
    """Return the folders of days in a directory, in order."""
    found: dict[date, Path] = {}
    for each in sorted(directory.glob("[0-9]*-[0-9]*-[0-9]*")):
        with suppress(ValueError):
            found[date.fromisoformat(each.name)] = each
    return {day: path for day, path in found.items() if path.is_dir()}


def _days(day: date | None) -> Sequence[date] | None:
    """Return the days that are read to judge one: those before, and the next."""
    if day is None:
        return None
    return days_between(day - timedelta(days=LOOK_BACK), day + timedelta(days=1))
