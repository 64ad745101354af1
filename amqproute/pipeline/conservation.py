# SPDX-License-Identifier: Apache-2.0
"""Gold: does everything that was accepted have an end, or still lie in a queue?

A journal says what began and what ended, and its ``stock`` records say, apart from that, what the
queues held at a time. So a message that vanished can be told from one that waits. Of an entry it
is a violation that it is

* *lost*: it began a grace before the last stock, has not ended up to a grace behind it, and is not
  in it;
* *unexplained*: it ended, and never began;
* *ended twice*, or *began twice*;
* *came back*: in a stock a grace behind its end.

A stock is taken node by node while messages move, and its last record names no node: without that
record it is not whole, and says only that what it names was there. What stands in memory only is
*forgotten* when its broker starts again, which is what its sender has chosen.

Where a journal has a hole (`amqproute.pipeline.coverage`) that may hide the missing record, the
violation is listed as hidden and proves nothing. Where the journal ends, nothing is judged yet.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqproute.journal.record import ENDS, Kind
from amqproute.pipeline import coverage
from amqproute.pipeline.ingest import spread
from amqproute.pipeline.schema import BALANCE, HOPS, RUNS, VIOLATIONS, conform

__all__ = [
    "BEGAN_TWICE",
    "CAME_BACK",
    "ENDED_TWICE",
    "LOST",
    "UNEXPLAINED",
    "balance",
    "judged",
    "violations",
]

LOST: Final = "lost"
UNEXPLAINED: Final = "unexplained"
ENDED_TWICE: Final = "ended twice"
BEGAN_TWICE: Final = "began twice"
CAME_BACK: Final = "came back"

GRACE_SECONDS: Final = 60.0
"""Between what happens to an entry and the stock that shows it, at most."""

_FOREVER: Final = coverage.FOREVER


def judged(runs: DataFrame, entries: DataFrame, grace_seconds: float = GRACE_SECONDS) -> DataFrame:
    """Say of each entry what is wrong with it.

    Args:
        runs: `RUNS`, from the first day of the entries to the last that there is.
        entries: `HOPS`.
        grace_seconds: see `GRACE_SECONDS`.

    Returns:
        `entries` with ``wrong``, an array of what is wrong, ``stock_us``, the end of the last stock
        of their store, and ``is_forgotten``.
    """
    runs, entries = conform(runs, RUNS), conform(entries, HOPS)
    grace = round(grace_seconds * 1_000_000)
    stock = _stock(runs)
    last = _last_stocks(stock, runs, grace)
    rows = entries.join(F.broadcast(last), "stream", "left").join(
        _seen(stock), ["stream", "entry"], "left"
    )
    waits = F.col("fate").isNull() & F.col("kind").isNotNull()
    forgotten = waits & (~F.col("durable")) & (F.col("start_us") > F.col("began_us"))
    is_forgotten = F.coalesce(forgotten, F.lit(False))
    missing = F.coalesce(F.col("seen_us") < F.col("stock_from_us"), F.lit(True))
    old = F.col("began_us") + grace < F.col("stock_from_us")
    return rows.select(
        *entries.columns,
        "stock_us",
        is_forgotten.alias("is_forgotten"),
        _those(
            (waits & old & missing & ~is_forgotten, LOST),
            (F.col("kind").isNull(), UNEXPLAINED),
            (F.col("endings") > 1, ENDED_TWICE),
            (F.col("beginnings") > 1, BEGAN_TWICE),
            (F.col("seen_us") > F.col("ended_us") + grace, CAME_BACK),
        ).alias("wrong"),
    )


def violations(
    runs: DataFrame, entries: DataFrame, grace_seconds: float = GRACE_SECONDS
) -> DataFrame:
    """List the entries that conservation does not allow.

    Args:
        runs: as for `judged`.
        entries: `HOPS`.
        grace_seconds: see `GRACE_SECONDS`.

    Returns:
        `VIOLATIONS`; those with ``hidden`` may be explained by records that are missing.
    """
    found = judged(runs, entries, grace_seconds).where(F.size("wrong") > 0)
    since = F.when(F.col("what") == UNEXPLAINED, 0).otherwise(F.col("began_us"))
    until = F.when(F.col("what") == LOST, F.col("stock_us")).otherwise(F.col("ended_us"))
    rows = found.withColumn("what", F.explode("wrong")).select(
        "what",
        "broker",
        "stream",
        "entry",
        "message_id",
        "message_id_type",
        F.col("queue").alias("node"),
        F.coalesce("ended_us", "began_us").alias("at_us"),
        "day",
        "domain",
        since.alias("since_us"),
        until.alias("until_us"),
    )
    holes = _holes(runs).alias("hole")
    hides = (
        F.col("what").isin(LOST, UNEXPLAINED)
        & (F.col("broker") == F.col("hole_broker"))
        & (F.col("from_us") <= F.col("until_us"))
        & (F.col("hole_until_us") >= F.col("since_us"))
    )
    hole = F.broadcast(holes)
    hidden = rows.join(hole, hides, "left_semi").withColumn("hidden", F.lit(True))
    plain = rows.join(hole, hides, "left_anti").withColumn("hidden", F.lit(False))
    return conform(hidden.unionByName(plain), VIOLATIONS)


def balance(runs: DataFrame, entries: DataFrame, grace_seconds: float = GRACE_SECONDS) -> DataFrame:
    """Balance what each hour brought to a domain with what has become of it.

    In every row ``accepted`` is the sum of what follows; where ``lost`` is not 0, conservation is
    violated (`violations` says by which entries, and whether missing records explain it).

    Args:
        runs: as for `judged`.
        entries: `HOPS`.
        grace_seconds: see `GRACE_SECONDS`.

    Returns:
        `BALANCE`.
    """
    fate = F.col("fate")
    is_lost = F.array_contains("wrong", LOST)
    waits = fate.isNull() & ~is_lost & ~F.col("is_forgotten")
    rows = judged(runs, entries, grace_seconds).where("kind IS NOT NULL")
    hour = F.date_trunc("hour", F.timestamp_micros("began_us"))
    counted = rows.groupBy(hour.alias("hour"), "day", "domain").agg(
        F.count("*").alias("accepted"),
        *(F.count_if(fate == kind).alias(kind.replace("-", "_")) for kind in sorted(ENDS)),
        F.count_if(waits).alias("queued"),
        F.count_if("is_forgotten").alias("forgotten"),
        F.count_if(is_lost).alias("lost"),
    )
    return conform(counted, BALANCE)


def _those(*cases: tuple[Column, str]) -> Column:
    """Return the words of those that hold; what is not known does not."""
    return F.array_compact(F.array(*(F.when(holds, F.lit(word)) for holds, word in cases)))


# -- stocks ------------------------------------------------------------------------------------


def _stock(runs: DataFrame) -> DataFrame:
    """Return the stock records, numbered by the whole stock that they belong to."""
    told = spread(runs.where(F.col("kind") == Kind.STOCK), ("node", "ranges"))
    before = Window.partitionBy("stream").orderBy("time", "journal", "seq")
    is_last = F.col("node").isNull().cast("int")
    earlier = F.sum(is_last).over(before.rowsBetween(Window.unboundedPreceding, -1))
    return told.select(
        "stream", "time", "node", "ranges", F.coalesce(earlier, F.lit(0)).alias("number")
    )


def _last_stocks(stock: DataFrame, runs: DataFrame, grace: int) -> DataFrame:
    """Return for each store the last whole stock that its journal goes on behind."""
    order = F.struct("time", "seq")
    known = runs.groupBy("stream").agg(
        F.max("time").alias("last_us"),
        F.max_by("kind", order).alias("last_kind"),
        F.max(F.when(F.col("kind") == Kind.START, F.col("time"))).alias("start_us"),
    )
    whole = (
        stock.groupBy("stream", "number")
        .agg(
            F.min("time").alias("from_us"),
            F.max("time").alias("until_us"),
            F.count_if(F.col("node").isNull()).alias("lasts"),
        )
        .where("lasts > 0")
    )
    # After a stop in good order nothing more can come.
    until = F.when(F.col("last_kind") == Kind.STOP, _FOREVER).otherwise(F.col("last_us"))
    usable = whole.join(known, "stream").where(F.col("until_us") + grace <= until)
    latest = usable.groupBy("stream").agg(
        F.max("until_us").alias("stock_us"), F.max_by("from_us", "until_us").alias("stock_from_us")
    )
    return known.select("stream", "start_us").join(latest, "stream", "left")


def _seen(stock: DataFrame) -> DataFrame:
    """Return each entry that was in a stock, and when it was last."""
    named = stock.where("node IS NOT NULL AND ranges <> ''")
    # Queues that stand still say the same again and again.
    ranges = named.select("stream", "time", F.explode(F.split("ranges", " ")).alias("range"))
    latest = ranges.groupBy("stream", "range").agg(F.max("time").alias("time"))
    ends = F.split("range", "-")
    first, last = F.get(ends, F.lit(0)).cast("long"), F.element_at(ends, -1).cast("long")
    entries = latest.select("stream", "time", F.explode(F.sequence(first, last)).alias("entry"))
    return entries.groupBy("stream", "entry").agg(F.max("time").alias("seen_us"))


def _holes(runs: DataFrame) -> DataFrame:
    """Return the times that may hide the record of a beginning or of an end."""
    # A journal that is there from its first record on tells what was in the store before it.
    born = (
        runs.groupBy("broker", "journal")
        .agg(F.min("seq").alias("first"))
        .where("first = 1")
        .select("broker")
        .distinct()
    )
    holes = coverage.holes(runs).where(~F.col("reason").isin(coverage.ENDS, coverage.DOWN))
    begins = holes.where(F.col("reason") == coverage.BEGINS).join(born, "broker", "left_anti")
    inner = holes.where(F.col("reason") != coverage.BEGINS)
    return inner.unionByName(begins.select(*inner.columns)).select(
        F.col("broker").alias("hole_broker"),
        "from_us",
        F.col("until_us").alias("hole_until_us"),
    )
