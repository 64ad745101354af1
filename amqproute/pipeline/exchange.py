# SPDX-License-Identifier: Apache-2.0
"""Where the two sides of a reconciliation come from: a journal, an export of one, or tables.

A partner need not show its journal. What ``amqproute journal export`` writes has ids, digests and
times of the messages between the two, in segments as a journal's own, and is read like one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from amqproute.pipeline import coverage, reconcile
from amqproute.pipeline.ingest import ingest
from amqproute.pipeline.schema import HOPS
from amqproute.pipeline.tables import Warehouse
from amqproute.pipeline.traces import hops

__all__ = ["Source", "SourceError", "between", "open_source", "segments_of"]

LOOK_BACK: Final = 3
"""Days before the one in question of which records are read: messages wait."""


class SourceError(Exception):
    """A directory is not what it should be; the words say what is wrong and what to do."""


class Source:
    """A side before it is known who the other one is."""

    def __init__(self, domain: str, entries: DataFrame, holes: DataFrame) -> None:
        """Keep what was read.

        Args:
            domain: of the organization.
            entries: its `amqproute.pipeline.schema.HOPS`.
            holes: `amqproute.pipeline.coverage.HOLES`, its own among them.
        """
        self.domain = domain
        self.entries = entries
        self.holes = holes.where(F.col("domain") == domain)

    def towards(self, partner: Source) -> reconcile.Side:
        """Return what it has to say to a partner."""
        names = reconcile.known_as(self.entries, partner.entries)
        said = reconcile.statement(self.entries, self.domain, partner.domain, names)
        return reconcile.Side(self.domain, said, self.holes)


def between(first: Source, second: Source) -> tuple[reconcile.Side, reconcile.Side]:
    """Return what two say to each other."""
    return first.towards(second), second.towards(first)


def open_source(
    spark: SparkSession,
    directory: Path,
    day: date | None,
    scratch: Path,
    domain: str | None = None,
) -> Source:
    """Find out what a directory is, and read it.

    Args:
        spark: what reads it.
        directory: a journal or an export (folders of days with segments), or a warehouse.
        day: only what is needed to judge this day.
        scratch: for tables that are made on the way; empty.
        domain: whose side it is, where it tells of several.

    Raises:
        SourceError: it is none of these, or has nothing of that day.
    """
    if not directory.is_dir():
        raise SourceError(f"{directory}: there is no such directory")
    if (directory / "log").is_dir():
        warehouse = Warehouse(spark, directory)
    else:
        warehouse = Warehouse(spark, scratch / "tables")
        ingest(warehouse, segments_of(directory, day))
    runs = warehouse.read("runs", _days(day))
    found = sorted(row.domain for row in runs.select("domain").distinct().collect())
    chosen = found[0] if domain is None and len(found) == 1 else domain
    if chosen is None or chosen not in found:
        what = f"tells of {', '.join(found)}" if found else "has nothing of that day"
        more = "say whose side is meant" if domain is None else f"not of {domain}"
        raise SourceError(f"{directory}: {what}; {more}")
    own = runs.where(F.col("domain") == chosen)
    made = str(scratch / "hops")
    hops(own).write.parquet(made)
    return Source(chosen, spark.read.schema(HOPS).parquet(made), coverage.holes(own))


def segments_of(directory: Path, day: date | None = None) -> list[Path]:
    """Return the folders of closed segments of a journal that matter for a day, or all.

    Raises:
        SourceError: there are none.
    """
    folders = sorted(each for each in directory.glob("[0-9]*-[0-9]*-[0-9]*") if each.is_dir())
    if not folders:
        what = "no closed segments yet" if (directory / "open").is_dir() else "no journal"
        raise SourceError(f"{directory}: {what} (folders of days, as 2026-11-22)")
    days = _days(day)
    if days is None:
        return folders
    wanted = {each.isoformat() for each in days}
    chosen = [folder for folder in folders if folder.name in wanted]
    if not chosen:
        raise SourceError(
            f"{directory}: nothing of {day}; there is {folders[0].name} to {folders[-1].name}"
        )
    return chosen


def _days(day: date | None) -> Sequence[date] | None:
    """Return the days that are read to judge one: those before, and the next."""
    if day is None:
        return None
    return [day + timedelta(days=n) for n in range(-LOOK_BACK, 2)]
