# SPDX-License-Identifier: Apache-2.0
"""Records that come more than once: which run has them, and which lines say otherwise.

As a rule whole lines come again. Where two lines have some of their records in common, the records
of the longer one stay, and of the other one the rest. Records of one number that say different
things are told apart by a hash of all they say.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqproute.journal.record import RUN_FIELDS
from amqproute.pipeline.lines import spread

__all__ = ["BEGINNING", "CONTRADICTS", "LINE", "end", "settled", "with_content"]

CONTRADICTS: Final = "contradicts what is there: "
"""How the reason of a line begins that contradicts records which are in the tables."""

_RUN: Final = ["journal", "seq", "n"]
LINE: Final = [*_RUN, "content"]
"""What makes two lines the same; see `with_content`."""

BEGINNING: Final = Window.unboundedPreceding
_SHARED: Final = ("kind", "broker", "domain", "stream", "time")


def end() -> Column:
    """The sequence behind the last record of a run."""
    return F.col("seq") + F.col("n")


def with_content(runs: DataFrame) -> DataFrame:
    """Add ``content``, a hash of what a line says besides its place."""
    return runs.withColumn("content", _hash(*_SHARED, "all", "each"))


def _hash(*names: str) -> Column:
    return F.sha2(F.to_json(F.struct(*names)), 256)


def settled(new: DataFrame, old: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Let each record stand in one run.

    A record that is there already stays as it is; of others the one of the longest run is taken. A
    run is divided where what it loses lies in its middle.

    Args:
        new: runs with ``path``.
        old: `RUNS` that are there already, among them all that have records in common with `new`.

    Returns:
        What is left of `new`; and of its lines those that contradict what is there then: ``path``,
        `LINE` and ``reason``.
    """
    old = _near(new, old)
    shared = _shared(new.select(*_RUN).union(old.select(*_RUN)))
    alone = new.join(shared, _RUN, "left_anti")
    several = with_content(new.join(shared, _RUN))
    # The same whatever is read first, here as on a cluster.
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
    """Return what is there of the same journals, between the first and the last of the new."""
    bounds = new.groupBy(F.col("journal").alias("of")).agg(
        F.min("seq").alias("first"), F.max(end()).alias("behind")
    )
    meet = (F.col("journal") == F.col("of")) & (F.col("seq") < F.col("behind"))
    return old.join(F.broadcast(bounds), meet & (end() > F.col("first")), "left_semi")


def _shared(spans: DataFrame) -> DataFrame:
    """Return those runs that have records in common with others."""
    order = Window.partitionBy("journal").orderBy("seq", "n")
    reached = F.max(end()).over(order.rowsBetween(BEGINNING, -1))
    following = F.lead("seq").over(order)
    both = spans.select("*", (F.col("seq") < reached).alias("a"), (following < end()).alias("b"))
    return both.where("a OR b").select(*_RUN).distinct()


def _said(runs: DataFrame, *, is_there: bool) -> DataFrame:
    """Return for each record of runs what it says, as a hash."""
    marked = runs.withColumns({"first": F.col("seq"), "is_there": F.lit(is_there)})
    told = spread(marked, RUN_FIELDS, "first", "n", "content", "is_there")
    said = _hash(*_SHARED, *RUN_FIELDS).alias("said")
    first, event = F.col("first").alias("seq"), F.col("seq").alias("event")
    return told.select("journal", first, "n", "content", "is_there", event, said)


def _cut(lines: DataFrame, own: DataFrame) -> DataFrame:
    """Return the pieces of lines that have the records that are their own."""
    # Records that follow each other are as far from their ranks, all of them.
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
