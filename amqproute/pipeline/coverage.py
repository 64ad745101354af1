# SPDX-License-Identifier: Apache-2.0
"""Gaps in journals: the times for which nobody can be held to account.

A *hole* is a time of one broker with possibly missing records: the journal had not begun, or is not
read any further; segments are missing; a `gap` record says that there was no room to write; a
journal ended without a stop and another began. Holes are found by minutes, from the sequence alone,
so that they cost one pass with next to no exchange; they are as wide as is safe, never narrower.

In an export for a partner sequences have gaps by design; its segments name the partner. If lines of
one were refused, their contents show nowhere else, so the whole segment is a hole.

A hole at the end is normal: the last segments are not closed, or not fetched yet.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqproute.journal.record import PUT_BACK, RecordKind
from amqproute.pipeline.duplicates import CONTRADICTS

__all__ = [
    "BEGINS",
    "DAMAGED",
    "DOWN",
    "ENDS",
    "FOREVER",
    "GAP",
    "HOLES",
    "MISSING",
    "RESTORED",
    "holes",
]

HOLES: Final = (
    "domain string, broker string, from_us long, until_us long, reason string, count long"
)
"""Schema of the result of `holes`."""

BEGINS: Final = "begins"
"""Before the first available record; `count` is 0 if that is the first of its journal."""
ENDS: Final = "ends"
"""After the last available record."""
MISSING: Final = "missing"
"""Records are missing by their sequence: a segment was removed, or not fetched."""
GAP: Final = "gap"
"""The broker itself recorded that records could not be written."""
RESTORED: Final = "restored"
"""A journal ended without a stop, and another one of the same broker begins; or a journal was
restored from a backup, and its later records are missing, or in copies that were made in time."""
DAMAGED: Final = "damaged"
"""Lines of an export were refused: they are unreadable or altered."""
DOWN: Final = "down"
"""The broker was stopped cleanly, and started again later."""

FOREVER: Final = 1 << 62
_MINUTE: Final = 60_000_000


def holes(runs: DataFrame, rejects: DataFrame | None = None) -> DataFrame:
    """Find the holes of all journals.

    Args:
        runs: bronze, `amqproute.pipeline.table_schema.RUNS`.
        rejects: `amqproute.pipeline.table_schema.REJECTS` of the same days, if there are any.

    Returns:
        `HOLES`: from the last known time before it to the first known time after it, microseconds;
            `count` is the number of missing records, if known.
    """
    found = _silences(runs).unionByName(_stops(runs))
    return found if rejects is None else found.unionByName(_damages(runs, rejects))


def _silences(runs: DataFrame) -> DataFrame:
    leaps = (F.col("kind") == RecordKind.SEGMENT) & (F.col("all.code") == PUT_BACK)
    is_export = _is_export()
    whole = Window.partitionBy("broker", "journal")
    buckets = (
        runs.groupBy("domain", "broker", "journal", (F.col("time") / _MINUTE).cast("long"))
        .agg(
            F.min("time").alias("first_us"),
            F.max("time").alias("last_us"),
            F.min("seq").alias("first_seq"),
            F.max(F.col("seq") + F.col("n")).alias("end_seq"),
            F.sum("n").alias("records"),
            F.max(F.when(F.col("kind") == RecordKind.STOP, F.col("seq") + F.col("n"))).alias(
                "stop_seq"
            ),
            F.max(F.when(F.col("kind") == RecordKind.GAP, F.col("time"))).alias("gap_us"),
            F.sum(F.when(F.col("kind") == RecordKind.GAP, F.col("all.count"))).alias("gap_count"),
            F.bool_or(is_export).alias("is_part"),
            F.coalesce(F.bool_or(leaps), F.lit(False)).alias("leaps"),
        )
        .repartition("broker")  # as both windows need it
        .withColumn("since", F.min("first_us").over(whole))
        .withColumn("is_whole", ~F.bool_or("is_part").over(whole))
        .withColumn("stops", F.coalesce(F.col("stop_seq") == F.col("end_seq"), F.lit(False)))
    )
    order = Window.partitionBy("broker").orderBy("since", "journal", "first_seq")
    before = {name: F.lag(name).over(order) for name in ("last_us", "end_seq", "journal", "stops")}
    known = buckets.select(
        "*",
        *(column.alias(f"before_{name}") for name, column in before.items()),
        F.lead("first_us").over(order).alias("next_us"),
    )
    is_whole = F.col("is_whole")
    same = F.col("before_journal") == F.col("journal")
    since = F.coalesce("before_last_us", "first_us")
    inside = F.col("end_seq") - F.col("first_seq") - F.col("records")
    between = F.col("first_seq") - F.col("before_end_seq")
    # If sequences were skipped, their difference means nothing.
    missing = F.when(F.col("leaps"), RESTORED).otherwise(MISSING)

    def count(difference: Column) -> Column:
        return F.when(~F.col("leaps"), difference)

    found = F.array(
        _hole(F.col("before_last_us").isNull(), F.lit(0), F.col("first_us"), BEGINS,
              F.when(is_whole, F.col("first_seq") - 1)),
        _hole(same & is_whole & (between > 0), since, F.col("first_us"), missing, count(between)),
        _hole(
            ~same & ~F.col("before_stops"), since, F.col("first_us"), RESTORED
        ),
        _hole(is_whole & (inside > 0), since, F.col("last_us"), missing, count(inside)),
        _hole(F.col("gap_us").isNotNull(), since, F.col("gap_us"), GAP, F.col("gap_count")),
        _hole(
            F.col("next_us").isNull() & ~F.col("stops"),
            F.col("last_us"), F.lit(FOREVER), ENDS,
        ),
    )  # fmt: skip
    return known.select(
        "domain", "broker", F.inline(F.filter(found, lambda hole: hole.isNotNull()))
    )


def _hole(
    condition: Column,
    since: Column,
    until: Column,
    reason: str | Column,
    count: Column | None = None,
) -> Column:
    return F.when(
        condition,
        F.struct(
            # A clock may have been set back.
            F.least(since, until).cast("long").alias("from_us"),
            F.greatest(since, until).cast("long").alias("until_us"),
            (F.lit(reason) if isinstance(reason, str) else reason).alias("reason"),
            (F.lit(None) if count is None else count).cast("long").alias("count"),
        ),
    )


def _is_export() -> Column:
    return (F.col("kind") == RecordKind.SEGMENT) & F.col("all.peer").isNotNull()


_SEGMENT: Final = r"([0-9a-f]{16})-([0-9]{19,20})\.jsonl$"


def _damages(runs: DataFrame, rejects: DataFrame) -> DataFrame:
    # Of lines that contradict the tables, a version is present.
    damaged = rejects.where(~F.col("reason").startswith(CONTRADICTS)).select("segment").distinct()
    named = F.regexp_extract("segment", _SEGMENT, 2)
    bad = damaged.select(
        F.col("segment"),
        F.regexp_extract("segment", _SEGMENT, 1).alias("named"),
        named.try_cast("long").alias("number"),
    )
    segments = runs.groupBy("journal", "segment").agg(
        F.min("domain").alias("domain"),
        F.min("broker").alias("broker"),
        F.min("time").alias("first_us"),
        F.max("time").alias("last_us"),
        F.min("seq").alias("first_seq"),
        F.bool_or(_is_export()).alias("is_part"),
    )
    rows = segments.join(bad, "segment", "full_outer").select(
        F.coalesce("journal", "named").alias("journal"),
        "domain", "broker", "first_us", "last_us", "is_part",
        F.col("named").isNotNull().alias("is_bad"),
        F.coalesce("first_seq", "number").alias("first_seq"),
    )  # fmt: skip
    whole = Window.partitionBy("journal")
    order = whole.orderBy("first_seq", F.col("first_us").asc_nulls_first())
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    behind = order.rowsBetween(1, Window.unboundedFollowing)
    found = rows.select(
        "is_bad",
        F.max("domain").over(whole).alias("domain"),
        F.max("broker").over(whole).alias("broker"),
        F.bool_or("is_part").over(whole).alias("is_export"),
        F.coalesce(F.max("last_us").over(before), F.lit(0)).alias("from_us"),
        F.coalesce(F.min("first_us").over(behind), F.lit(FOREVER)).alias("until_us"),
    )
    return found.where("is_bad AND is_export").select(
        "domain",
        "broker",
        "from_us",
        "until_us",
        F.lit(DAMAGED).alias("reason"),
        F.lit(None).cast("long").alias("count"),
    )


def _stops(runs: DataFrame) -> DataFrame:
    order = Window.partitionBy("broker").orderBy("time", "seq")
    return (
        runs.where(F.col("kind").isin(RecordKind.START, RecordKind.STOP))
        .select(
            "domain",
            "broker",
            F.lag("time").over(order).alias("from_us"),
            F.col("time").alias("until_us"),
            F.lit(DOWN).alias("reason"),
            F.lit(None).cast("long").alias("count"),
            "kind",
            F.lag("kind").over(order).alias("before"),
        )
        .where((F.col("kind") == RecordKind.START) & (F.col("before") == RecordKind.STOP))
        .drop("kind", "before")
    )
