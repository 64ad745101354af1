# SPDX-License-Identifier: Apache-2.0
"""Sources of the two sides of a reconciliation: a journal, an export of one, or tables.

A partner need not show its journal. An export by ``amqproute journal export`` has ids, digests and
times of the messages between the two, in segments like a journal's own, and is read like one.
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
from amqproute.pipeline.refusals import standing
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
"""Days before the day in question whose records are read: messages may wait."""


RECENT_DAYS: Final = 22
"""Days that a night reads to process one day anew, with some late ones."""


class ExchangeSourceError(Exception):
    """A directory is not usable; the text names the problem and the remedy."""


@dataclass(frozen=True, slots=True)
class ExchangeSource:
    """A side before its partner is known.

    Attributes:
        directory: where its records come from.
        domain: the domain of the organization.
        entries: its `amqproute.pipeline.table_schema.HOPS`.
        holes: `amqproute.pipeline.coverage.HOLES` of its journals.
        read: the days with records, as far as they were read.
        known: all available days.
        shown_to: the partner of an export, as in ``peer`` of records; empty for a journal.
        unread: text with the number of unreadable lines, and the reason; empty without one.
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
        """Return whether there are records of a day."""
        return day in self.read

    def reaches_over(self, day: date) -> bool:
        """Return whether there are records before and after a day, so that no record means none."""
        return min(self.read) < day < max(self.read)

    def towards(self, partner: ExchangeSource) -> reconcile.ReconcileSide:
        """Return its statements to a partner.

        Raises:
            ExchangeSourceError: it was exported for another partner, and has nothing about this
                one.
        """
        names = reconcile.known_as(self.entries, partner.entries)
        wanted = {f"peer:{partner.domain}", *names}
        if self.shown_to and not wanted & set(self.shown_to) and not self._has_met(partner):
            whose = ", ".join(name.removeprefix("peer:") for name in self.shown_to)
            raise ExchangeSourceError(
                f"{self.directory}: an export for {whose}; ask {self.domain} for one, made with: "
                f"amqproute journal export DIR --peer {partner.domain}"
            )
        said = reconcile.statement(self.entries, self.domain, partner.domain, names)
        return reconcile.ReconcileSide(self.domain, said, self.holes)

    def _has_met(self, partner: ExchangeSource) -> bool:
        """Return whether it took anything from a partner, whatever the partner's name is there."""
        streams = partner.entries.select(F.col("stream").alias("from_stream")).distinct()
        return not self.entries.join(streams, "from_stream", "left_semi").isEmpty()


def between(
    first: ExchangeSource, second: ExchangeSource
) -> tuple[reconcile.ReconcileSide, reconcile.ReconcileSide]:
    """Compare two sources."""
    return first.towards(second), second.towards(first)


def check_days(sides: Sequence[ExchangeSource], day: date, hand_overs: int) -> None:
    """Refuse a result about a day if a side has no records around it.

    If one side has records of the day and the other only before and after it, the hand-overs of the
    first have no counterpart at the other. Anything else is no comparison.

    Args:
        sides: the two.
        day: the day of the comparison.
        hand_overs: number of hand-overs found.

    Raises:
        ExchangeSourceError: there are no records of the day.
    """
    silent = [side for side in sides if not side.has(day)]
    if not silent or (hand_overs and len(silent) == 1 and silent[0].reaches_over(day)):
        return
    words = [
        f"{side.directory}: no records of {day}, only of {spans(side.known)}" for side in silent
    ]
    raise ExchangeSourceError("; ".join(words))


def open_source(
    spark: SparkSession,
    directory: Path,
    day: date | None,
    scratch: Path,
    domain: str | None = None,
) -> ExchangeSource:
    """Recognize a directory, and read it.

    Args:
        spark: reads it.
        directory: a journal or an export (folders of days with segments), or a warehouse.
        day: only records needed to judge this day.
        scratch: an empty directory for intermediate tables.
        domain: the side, if the directory has several.

    Raises:
        ExchangeSourceError: it is none of these, or has no records of that day.
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
    snapshot = warehouse.snapshot()
    rejects = standing(warehouse, snapshot, _days(day))
    unread = "" if rejects is None else _unread(rejects)
    known = sorted({*_folders(directory), *snapshot.days("runs")})
    if not found:
        what = f"no records of {day}, only of {spans(known)}" if known else "no tables there"
        raise ExchangeSourceError(f"{directory}: {unread or what}")
    chosen = next(iter(found)) if domain is None and len(found) == 1 else domain
    if chosen is None or chosen not in found:
        more = "choose one of them" if domain is None else f"not of {domain}"
        raise ExchangeSourceError(f"{directory}: has records of {', '.join(found)}; {more}")
    own = runs.where(F.col("domain") == chosen)
    made = str(scratch / "hops")
    hops(own).write.parquet(made)
    entries = spark.read.schema(HOPS).parquet(made)
    told = own.where(F.col("kind") == RecordKind.SEGMENT).select("all.peer").distinct().collect()
    shown_to = sorted(row.peer for row in told if row.peer is not None)
    holes = coverage.holes(own, rejects)
    return ExchangeSource(directory, chosen, entries, holes, found[chosen], known, shown_to, unread)


def _unread(rejects: DataFrame) -> str:
    told = rejects.agg(F.count("*").alias("number"), F.mode("reason").alias("reason")).first()
    assert told is not None
    return f"{told.number:,} lines cannot be read: {told.reason}" if told.number else ""


def segments_of(directory: Path, day: date | None = None) -> list[Path]:
    """Return the folders of closed segments of a journal that matter for a day, or all of them.

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
        raise ExchangeSourceError(f"{directory}: no records of {day}, only of {spans(folders)}")
    return chosen


def recent_octets(directories: Iterable[Path]) -> int:
    """Return the approximate octets of a night's work: those of the last segments.

    Args:
        directories: journals; a missing one counts as empty.
    """
    found = [each for directory in directories for each in _folders(directory).items()]
    last = sorted({day for day, _ in found})[-RECENT_DAYS:]
    segments = (path for day, folder in found if day in last for path in folder.glob("*.jsonl"))
    octets = 0
    for path in segments:
        with suppress(FileNotFoundError):  # a daemon may remove them at any moment
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
    """Return the days to read to judge one: those before, and the next."""
    if day is None:
        return None
    return days_between(day - timedelta(days=LOOK_BACK), day + timedelta(days=1))
