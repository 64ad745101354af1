# SPDX-License-Identifier: Apache-2.0
"""Gold: does every accepted message have an end, or is it still in a queue?

A journal records beginnings and ends, and its ``stock`` records independently list the contents of
queues at a time. So a message that vanished can be distinguished from one that waits. It is a
violation if an entry

* is *lost*: it began a grace before the last stock, has not ended up to a grace after it, and is
  not in it;
* is *unexplained*: it ended, and never began;
* *ended twice*, or *began twice*;
* *came back*: it is in a stock a grace after its end.

A stock is recorded node by node while messages move, and its last record names no node: without
that record it is incomplete, and proves only that the listed entries were present. Messages in
memory only are *forgotten* when their broker starts again, which their sender has chosen.

If a hole in a journal (`amqproute.pipeline.coverage`) may hide the missing record, the violation is
listed as hidden and proves nothing. At the end of a journal nothing is judged yet.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from amqproute.journal.record import END_OF_SEQ, ENDS, RecordKind
from amqproute.pipeline import coverage
from amqproute.pipeline.lines import spread
from amqproute.pipeline.reuse import Reuse
from amqproute.pipeline.table_schema import BALANCE, HOPS, RUNS, VIOLATIONS, conform
from amqproute.pipeline.traces import is_answer
from amqproute.pipeline.warehouse import few

__all__ = [
    "BEGAN_TWICE",
    "CAME_BACK",
    "ENDED_TWICE",
    "LOST",
    "UNEXPLAINED",
    "balance",
    "is_forgotten",
    "judged",
    "violations",
]

LOST: Final = "lost"
UNEXPLAINED: Final = "unexplained"
ENDED_TWICE: Final = "ended twice"
BEGAN_TWICE: Final = "began twice"
CAME_BACK: Final = "came back"

GRACE_SECONDS: Final = 60.0
"""Longest time between an event of an entry and the stock that shows it."""

LONGEST_RANGE: Final = 1 << 26
"""Most entries in a range of a stock, given by its first and last."""

_PART: Final = 1 << 16
"""Number of entries expanded at a time."""
_FOREVER: Final = coverage.FOREVER
_DISORDER: Final = 1_000_000
"""Microseconds by which records of one journal may be out of their order, at most."""


def judged(
    runs: DataFrame,
    entries: DataFrame,
    grace_seconds: float = GRACE_SECONDS,
    reuse: Reuse | None = None,
) -> DataFrame:
    """Judge each entry that has not simply begun and ended.

    These are few, as a rule. They are computed at once; `violations` and `balance` are made from
    them.

    Args:
        runs: `RUNS`, from the first day of the entries to the last available one.
        entries: `HOPS`.
        grace_seconds: see `GRACE_SECONDS`.
        reuse: keeps the result; by default it is kept as long as the session.

    Returns:
        The entries that wait or violate conservation: columns of `HOPS`, then ``wrong``, an array
        of violations, ``stock_us``, the end of the last stock of their store, ``is_forgotten``, and
        ``is_gone``: waiting according to its records, but not in that stock, though it began before
        it.
    """
    runs = conform(runs, RUNS)
    entries = conform(entries, HOPS).select(*_OF_ENTRIES, is_answer().alias("is_answer"))
    grace = round(grace_seconds * 1_000_000)
    stock = spread(runs.where(F.col("kind") == RecordKind.STOCK), ("node", "ranges"))
    seen = _seen(stock).persist()
    try:
        rows = _judged(entries, seen, _last_stocks(runs, grace), grace)
        return (reuse or Reuse()).computed(rows)
    finally:
        seen.unpersist()


_OF_ENTRIES: Final = (
    "stream", "entry", "kind", "broker", "message_id", "message_id_type", "durable", "began_us",
    "fate", "ended_us", "queue", "beginnings", "endings", "day", "domain",
)  # fmt: skip
_SMALL: Final = 1_000_000
"""Up to this number, entries in stocks are broadcast; above it all entries are exchanged."""


def _judged(entries: DataFrame, seen: DataFrame, last: DataFrame, grace: int) -> DataFrame:
    near = F.broadcast(seen) if seen.count() <= _SMALL else seen
    waits = _waits()
    came_back = F.coalesce(F.col("seen_us") > F.col("ended_us") + grace, F.lit(False))
    twice = (F.col("beginnings") > 1) | (F.col("endings") > 1)
    rows = (
        entries.join(near, ["stream", "entry"], "left")
        .where(waits | F.col("kind").isNull() | twice | came_back)
        .join(F.broadcast(last), "stream", "left")
    )
    forgotten = is_forgotten()
    missing = F.coalesce(F.col("seen_us") < F.col("stock_from_us"), F.lit(True))
    begun = F.col("began_us") < F.col("stock_from_us")
    old = F.col("began_us") + grace < F.col("stock_from_us")
    return rows.select(
        *entries.columns,
        "stock_us",
        forgotten.alias("is_forgotten"),
        F.coalesce(waits & begun & missing & ~forgotten, F.lit(False)).alias("is_gone"),
        _those(
            (waits & old & missing & ~forgotten, LOST),
            (F.col("kind").isNull(), UNEXPLAINED),
            (F.col("endings") > 1, ENDED_TWICE),
            (F.col("beginnings") > 1, BEGAN_TWICE),
            (came_back, CAME_BACK),
        ).alias("wrong"),
    )


def _waits() -> Column:
    return F.col("fate").isNull() & F.col("kind").isNotNull()


def is_forgotten() -> Column:
    """Return whether an entry was lost in a restart: ``start_us`` is the last of its store."""
    went = _waits() & ~F.col("durable") & (F.col("start_us") > F.col("began_us"))
    return F.coalesce(went, F.lit(False))


def violations(runs: DataFrame, doubtful: DataFrame, rejects: DataFrame | None = None) -> DataFrame:
    """List the entries that conservation does not allow.

    Args:
        runs: the runs as for `judged`.
        doubtful: the entries in doubt, from `judged`. They are read at once.
        rejects: `amqproute.pipeline.table_schema.REJECTS` of the same days, if there are any.

    Returns:
        `VIOLATIONS`; those with ``hidden`` may be explained by missing records.
    """
    wrong = doubtful.where(F.size("wrong") > 0)
    if wrong.isEmpty():  # then no journal is searched for holes
        return few(runs.sparkSession, VIOLATIONS)
    what = F.col("what")
    since = F.when(what == UNEXPLAINED, 0).otherwise(F.col("began_us"))
    until = F.when(what == LOST, F.col("stock_us")).otherwise(F.col("ended_us"))
    rows = wrong.withColumn("what", F.explode("wrong")).join(
        F.broadcast(_holes(runs, rejects)), "broker", "left"
    )
    hides = F.exists("holes", lambda hole: (hole.from_us <= until) & (hole.until_us >= since))
    hidden = what.isin(LOST, UNEXPLAINED) & F.coalesce(hides, F.lit(False))
    found = rows.select(
        "what",
        "broker",
        "stream",
        "entry",
        "message_id",
        "message_id_type",
        F.col("queue").alias("node"),
        F.coalesce("ended_us", "began_us").alias("at_us"),
        hidden.alias("hidden"),
        "day",
        "domain",
    )
    return conform(found, VIOLATIONS)


def balance(entries: DataFrame, doubtful: DataFrame) -> DataFrame:
    """Balance the messages of each hour of a domain with their fates.

    In every row ``accepted`` is the sum of the columns after it; if ``lost`` is not 0, conservation
    is violated (`violations` has the entries, and whether missing records explain it).

    Args:
        entries: `HOPS`, the same as for `judged`.
        doubtful: the result of `judged`.

    Returns:
        `BALANCE`.
    """
    hour = F.date_trunc("hour", F.timestamp_micros("began_us")).alias("hour")
    key, number = (hour, "day", "domain"), F.lit(1).alias("number")
    fate = F.coalesce("fate", F.lit("queued")).alias("fate")
    begun = entries.where(F.col("kind").isNotNull() & ~is_answer()).select(*key, fate, number)
    # Missing entries do not wait.
    gone = F.when(F.array_contains("wrong", LOST), "lost").when(F.col("is_forgotten"), "forgotten")
    moved = doubtful.where(F.col("kind").isNotNull() & gone.isNotNull() & ~F.col("is_answer"))
    rows = (
        begun.unionByName(moved.select(*key, gone.alias("fate"), number))
        .unionByName(moved.select(*key, F.lit("queued").alias("fate"), (-number).alias("number")))
        .groupBy("hour", "day", "domain")
    )

    def count(kind: str) -> Column:
        counted = F.sum(F.when(F.col("fate") == kind, F.col("number")).otherwise(0))
        return counted.alias(kind.replace("-", "_"))

    fates = [*sorted(ENDS), "queued", "forgotten", "lost"]
    return conform(rows.agg(F.sum("number").alias("accepted"), *map(count, fates)), BALANCE)


def _those(*cases: tuple[Column, str]) -> Column:
    """Return the words of the cases that hold; an unknown one does not."""
    return F.array_compact(F.array(*(F.when(holds, F.lit(word)) for holds, word in cases)))


# -- stocks ------------------------------------------------------------------------------------


def _last_stocks(runs: DataFrame, grace: int) -> DataFrame:
    """Return the last start of each store, and the last complete stock before more records."""
    kind, time = F.col("kind"), F.col("time")
    # Records of a line have one time, so they are one place in a stock, or its end.
    without = F.exists("each.node", lambda node: node.isNull())
    is_end = F.coalesce(without, F.col("all.node").isNull()).alias("is_end")
    known = runs.groupBy("stream").agg(
        F.max("time").alias("last_us"),
        F.max(F.when(kind == RecordKind.STOP, time)).alias("stop_us"),
        F.max(F.when(kind == RecordKind.START, time)).alias("start_us"),
        F.collect_list(F.when(kind == RecordKind.STOCK, F.struct("time", "seq", is_end))).alias(
            "places"
        ),
    )
    # After a clean stop nothing more can come.
    until = F.when(F.col("stop_us") == F.col("last_us"), _FOREVER).otherwise(F.col("last_us"))
    ends = F.filter("places", lambda place: place.is_end)
    usable = F.filter(ends, lambda end: end.time + grace <= F.col("goes_on_us"))
    before = F.array_max(F.filter(ends, lambda end: end < F.col("last")))
    first = F.array_min(
        F.filter(
            "places",
            lambda place: (place <= F.col("last")) & F.coalesce(place > before, F.lit(True)),
        )
    )
    return (
        known.withColumn("goes_on_us", until)
        .withColumn("last", F.array_max(usable))
        .select(
            "stream",
            "start_us",
            F.col("last.time").alias("stock_us"),
            first.time.alias("stock_from_us"),
        )
    )


def _seen(stock: DataFrame) -> DataFrame:
    """Return each entry that was in a stock, and the last time it was."""
    named = stock.where("node IS NOT NULL AND ranges <> ''")
    # Queues without changes repeat the same ranges.
    ranges = named.select("stream", "time", F.explode(F.split("ranges", " ")).alias("range"))
    latest = ranges.groupBy("stream", "range").agg(F.max("time").alias("time"))
    ends = F.split("range", "-")
    spans = latest.select(
        "stream",
        "time",
        F.get(ends, F.lit(0)).try_cast("long").alias("first"),
        F.element_at(ends, -1).try_cast("long").alias("last"),
    )
    # An invalid range, or one longer than a queue can be, would let anybody exhaust memory.
    is_one = F.col("first").between(0, END_OF_SEQ) & F.col("last").between(
        F.col("first"), F.least(F.col("first"), F.lit(END_OF_SEQ)) + (LONGEST_RANGE - 1)
    )
    in_parts = spans.where(is_one).select(
        "stream", "time", "last",
        F.explode(F.sequence("first", "last", F.lit(_PART))).alias("first"),
    )  # fmt: skip
    end = F.least(F.col("last"), F.col("first") + (_PART - 1))
    entries = in_parts.select("stream", "time", F.explode(F.sequence("first", end)).alias("entry"))
    return entries.groupBy("stream", "entry").agg(F.max("time").alias("seen_us"))


def _holes(runs: DataFrame, rejects: DataFrame | None) -> DataFrame:
    """Return for each broker the times that may hide the record of a beginning or an end."""
    # A journal available from its first record on has the contents of the store before it.
    is_whole = (F.col("reason") == coverage.BEGINS) & (F.col("count") == 0)
    hides = ~F.col("reason").isin(coverage.ENDS, coverage.DOWN) & ~F.coalesce(
        is_whole, F.lit(False)
    )
    # What is missing may be a little older or younger than the records around it.
    times = F.collect_list(
        F.struct(
            (F.col("from_us") - _DISORDER).alias("from_us"),
            (F.col("until_us") + _DISORDER).alias("until_us"),
        )
    ).alias("holes")
    return coverage.holes(runs, rejects).where(hides).groupBy("broker").agg(times)
