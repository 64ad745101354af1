# SPDX-License-Identifier: Apache-2.0
"""Repeated records: the run that keeps each, and lines that contradict each other.

As a rule whole lines are repeated. If two lines share some of their records, the records of the
longer one are kept, and the rest of the other. Records of one number with different contents are
detected by a hash of their contents.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqproute.journal.record import RUN_FIELDS
from amqproute.pipeline.lines import spread
from amqproute.pipeline.reuse import Reuse

__all__ = ["BEGINNING", "CONTRADICTS", "LINE", "end", "settled", "with_content"]

CONTRADICTS: Final = "contradicts what is there: "
"""Beginning of the reason of a line that contradicts records in the tables."""

_RUN: Final = ["journal", "seq", "n"]
LINE: Final = [*_RUN, "content"]
"""The key that makes two lines the same; see `with_content`."""

BEGINNING: Final = Window.unboundedPreceding
_SHARED: Final = ("kind", "broker", "domain", "stream", "time")


def end() -> Column:
    """The sequence after the last record of a run."""
    return F.col("seq") + F.col("n")


def with_content(runs: DataFrame) -> DataFrame:
    """Add ``content``, a hash of the contents of a line."""
    return runs.withColumn("content", _hash(*_SHARED, "all", "each"))


def _hash(*names: str) -> Column:
    return F.sha2(F.to_json(F.struct(*names)), 256)


def settled(
    new: DataFrame, old: DataFrame, reuse: Reuse | None = None
) -> tuple[DataFrame, DataFrame]:
    """Keep each record in one run.

    A record in the tables stays unchanged; of others the one in the longest run is taken. A run is
    divided if it loses records in its middle.

    Args:
        new: runs with ``path``.
        old: `RUNS` in the tables, including all that share records with `new`.
        reuse: keeps the keys of runs that share records; by default as long as the session.

    Returns:
        The rest of `new`; and its lines that contradict the records kept: ``path``, `LINE` and
        ``reason``.
    """
    old = _near(new, old)
    # All queries below use these, and they are few.
    shared = _shared(new.select(*_RUN).union(old.select(*_RUN)))
    shared = (reuse or Reuse()).computed(shared)
    alone = new.join(shared, _RUN, "left_anti")
    several = with_content(new.join(shared, _RUN))
    # The same in any order of reading, here and on a cluster.
    copies = Window.partitionBy(*LINE).orderBy("path")
    once = several.withColumn("copy", F.row_number().over(copies)).where("copy = 1").drop("copy")
    there = old.join(shared, _RUN).withColumn("content", F.lit(""))
    said = _said(once, is_there=False).unionByName(_said(there, is_there=True))
    best = F.max(F.struct("is_there", *_RUN[::-1], "content", "said"))
    known = said.withColumn("best", best.over(Window.partitionBy("journal", "event")))
    fresh = known.where("NOT is_there")
    is_own = F.lit(True)
    for name in ("is_there", *LINE):
        is_own &= F.col(name) == F.col(f"best.{name}")
    otherwise = fresh.where(F.col("said") != F.col("best.said")).groupBy(*LINE)
    reasons = otherwise.agg(
        F.format_string(
            f"{CONTRADICTS}%d of the records %d to %d",
            F.count("*"), F.min("event"), F.max("event"),
        ).alias("reason")
    )  # fmt: skip
    refused = several.select("path", *LINE).distinct().join(reasons, LINE)
    return alone.unionByName(_cut(once, fresh.where(is_own)).select(*alone.columns)), refused


def _near(new: DataFrame, old: DataFrame) -> DataFrame:
    """Return the old runs of the same journals, between the first and the last of the new."""
    bounds = new.groupBy(F.col("journal").alias("of")).agg(
        F.min("seq").alias("first"), F.max(end()).alias("behind")
    )
    meet = (F.col("journal") == F.col("of")) & (F.col("seq") < F.col("behind"))
    return old.join(F.broadcast(bounds), meet & (end() > F.col("first")), "left_semi")


def _shared(spans: DataFrame) -> DataFrame:
    """Return the runs that share records with others."""
    order = Window.partitionBy("journal").orderBy("seq", "n")
    reached = F.max(end()).over(order.rowsBetween(BEGINNING, -1))
    following = F.lead("seq").over(order)
    both = spans.select("*", (F.col("seq") < reached).alias("a"), (following < end()).alias("b"))
    return both.where("a OR b").select(*_RUN).distinct()


def _said(runs: DataFrame, *, is_there: bool) -> DataFrame:
    """Return a hash of the contents of each record of runs."""
    marked = runs.withColumns({"first": F.col("seq"), "is_there": F.lit(is_there)})
    told = spread(marked, RUN_FIELDS, "first", "n", "content", "is_there")
    said = _hash(*_SHARED, *RUN_FIELDS).alias("said")
    first, event = F.col("first").alias("seq"), F.col("seq").alias("event")
    return told.select("journal", first, "n", "content", "is_there", event, said)


def _cut(lines: DataFrame, own: DataFrame) -> DataFrame:
    """Return the pieces of lines with their own records."""
    # Consecutive records have the same distance from their ranks.
    rank = F.row_number().over(Window.partitionBy(*LINE).orderBy("event"))
    pieces = (
        own.withColumn("piece", F.col("event") - rank)
        .groupBy(*LINE, "piece")
        .agg(F.min("event").alias("from"), F.count("*").cast("int").alias("length"))
    )
    start = (F.col("from") - F.col("seq") + 1).cast("int")
    values = [F.slice(f"each.{name}", start, F.col("length")).alias(name) for name in RUN_FIELDS]
    cut = lines.join(pieces, LINE).withColumn("each", F.struct(*values))
    return cut.withColumns({"seq": F.col("from"), "n": F.col("length")})
