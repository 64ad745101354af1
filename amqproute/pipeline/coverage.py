# SPDX-License-Identifier: Apache-2.0
"""Gaps in journals: the times for which nobody can be held to account.

A *hole* is a time of one broker with possibly missing records: the journal had not begun, or is not
read any further; segments are missing; a `gap` record says that there was no room to write; a
journal ended without a stop and another began. Missing records are found by their sequence alone.
Times do not tell: two threads write a journal, so a record may be some tenths of a second older
than the one before it, and clocks are set. A hole reaches from one neighbor to the other, or
further, never less.

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
    is_gap = F.col("kind") == RecordKind.GAP
    # Exchanged once: all windows are of a broker, or of a journal of it.
    told = runs.repartition("broker").select(
        "domain",
        "broker",
        "journal",
        "kind",
        "time",
        "seq",
        (F.col("seq") + F.col("n")).alias("end_seq"),
        F.when(is_gap, F.col("all.count")).alias("lost"),
        F.coalesce(_is_export(), F.lit(False)).alias("is_part"),
        F.coalesce(
            (F.col("kind") == RecordKind.SEGMENT) & (F.col("all.code") == PUT_BACK), F.lit(False)
        ).alias("leaps"),
    )
    whole = Window.partitionBy("broker", "journal")
    by_seq = whole.orderBy("seq")
    earlier = by_seq.rowsBetween(Window.unboundedPreceding, -1)
    marked = told.select(
        "*",
        F.max("end_seq").over(earlier).alias("reached"),
        F.lag("time").over(by_seq).alias("before_us"),
        F.lead("seq").over(by_seq).isNull().alias("is_last"),
        F.first("time").over(by_seq).alias("since"),
        (~F.bool_or("is_part").over(whole)).alias("is_whole"),
    )
    is_first = F.col("reached").isNull()
    between = F.col("seq") - F.col("reached")
    few = marked.where(is_first | F.col("is_last") | (between > 0) | is_gap)
    order = Window.partitionBy("broker").orderBy("since", "journal", "seq")
    # Of the first record of a journal: the last one of the journal before.
    known = few.select(
        "*",
        F.lag("time").over(order).alias("former_us"),
        F.lag("kind").over(order).alias("former_kind"),
        F.lead("seq").over(order).isNull().alias("is_end"),
    )
    at, is_whole = F.col("time"), F.col("is_whole")
    former = F.col("former_us")
    # If sequences were skipped, their difference means nothing.
    missing = F.when(F.col("leaps"), RESTORED).otherwise(MISSING)
    # What was dropped may be older than records that were waiting to be written.
    dropped = F.coalesce(F.least(F.col("before_us"), at - _MINUTE), at)
    found = F.array(
        _hole(is_first & former.isNull(), F.lit(0), at, BEGINS,
              F.when(is_whole, F.col("seq") - 1)),
        _hole(is_first & (F.col("former_kind") != RecordKind.STOP), former, at, RESTORED),
        _hole(is_whole & (between > 0), F.col("before_us"), at, missing,
              F.when(~F.col("leaps"), between)),
        _hole(is_gap, dropped, at, GAP, F.col("lost")),
        _hole(
            F.col("is_end") & (F.col("kind") != RecordKind.STOP), at, F.lit(FOREVER), ENDS,
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
