# SPDX-License-Identifier: Apache-2.0
"""Gold: latencies, volumes, reasons, and waiting messages.

Latencies are kept as histograms, not as percentiles: counts can be added up over hours, queues and
nights, do not depend on the order of rows, and are aggregated in place. A bucket is 2 % wide, so a
percentile from `percentiles` is at most 1 % off the true one, and counts are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from amqproute.journal.record import RecordKind
from amqproute.pipeline.lines import spread
from amqproute.pipeline.table_schema import (
    HOPS,
    LATENCIES,
    QUEUES,
    REASONS,
    RUNS,
    VOLUMES,
    conform,
)
from amqproute.pipeline.traces import is_answer

__all__ = [
    "FOREIGN",
    "OWN",
    "billed",
    "latencies",
    "partner",
    "percentile",
    "percentiles",
    "queues",
    "reasons",
    "volumes",
]

STAGES: Final = ("queue", "resolve", "connect", "wire", "settle")
_WIDTH: Final = math.log(1.02)

FOREIGN: Final = "peer:"
"""Prefix of another organization's name in ``sender`` and ``peer``."""
OWN: Final = "own clients"
"""The partner of messages from or to a party that is not another organization."""

_TROUBLE: Final = (
    RecordKind.ATTEMPT,
    RecordKind.DEFERRED,
    RecordKind.RELEASED,
    RecordKind.REJECTED,
    RecordKind.DUPLICATE,
    RecordKind.DEAD_LETTERED,
    RecordKind.EXPIRED,
    RecordKind.RETURNED,
)


def latencies(entries: DataFrame) -> DataFrame:
    """Count durations of hops, by stage.

    Args:
        entries: `HOPS`.

    Returns:
        `LATENCIES`, by hour of the end; ``stage`` is one of `STAGES`, or ``hop`` for the whole time
        from the beginning to the end. ``peer`` is the next organization, None for clients.
    """
    ended = conform(entries, HOPS).where("fate IS NOT NULL AND kind IS NOT NULL")
    ended = ended.where(~is_answer())
    whole = (F.col("ended_us") - F.col("began_us")).alias("us")
    spans = [(F.col(f"{stage}_us"), stage) for stage in STAGES] + [(whole, "hop")]
    buckets = F.array(*(F.struct(F.lit(s).alias("stage"), _bucket(us).alias("bucket"))
                        for us, s in spans))  # fmt: skip
    rows = ended.select(
        _hour("ended_us"), "queue", _partner("peer").alias("peer"), F.inline(buckets), "domain"
    ).where("bucket IS NOT NULL")
    counted = rows.groupBy("hour", "queue", "peer", "stage", "bucket", "domain").agg(
        F.count("*").alias("number")
    )
    return conform(counted.withColumn("day", F.col("hour").cast("date")), LATENCIES)


def percentiles(histogram: DataFrame, by: Sequence[str], places: Sequence[float]) -> DataFrame:
    """Compute percentiles from histograms.

    Args:
        histogram: `LATENCIES`, any part of it.
        by: columns to group by, including ``stage``.
        places: the percentiles, 0.0 to 1.0.

    Returns:
        `by`, ``number`` and for each place ``p50_us``, ``p99_us``, ``p999_us``: microseconds, at
        most 1 % off (and half a microsecond).
    """
    counts = histogram.groupBy(*by, "bucket").agg(F.sum("number").alias("number"))
    group = Window.partitionBy(*by)
    running = counts.select(
        "*",
        F.sum("number").over(group.orderBy("bucket")).alias("upto"),
        F.sum("number").over(group).alias("total"),
    )
    found = [
        F.min(F.when(F.col("upto") >= F.ceil(F.col("total") * place), F.col("bucket")))
        for place in places
    ]
    return running.groupBy(*by).agg(
        F.max("total").alias("number"),
        *(_middle(c).alias(_name(p)) for c, p in zip(found, places, strict=True)),
    )


def percentile(us: str, place: float) -> Column:
    """Return a percentile of durations, by the nearest rank: an aggregate.

    Durations of `_EXACT_US` and more are rounded to steps of 0.1 % first, so that there are few
    distinct values, however many rows there are: the result is at most 0.05 % off, and exact below
    that limit.

    Args:
        us: the duration in microseconds, as an expression of SQL; it may be negative.
        place: the percentile, 0.0 to 1.0.
    """
    steps = f"EXP(ROUND(LN(ABS({us})) / {_STEP!r}D) * {_STEP!r}D)"
    rounded = f"CAST(ROUND({steps}) * SIGN({us}) AS BIGINT)"
    value = f"CASE WHEN ABS({us}) < {_EXACT_US} THEN {us} ELSE {rounded} END"
    return F.expr(f"PERCENTILE_DISC({place!r}D) WITHIN GROUP (ORDER BY {value})").cast("long")


_STEP: Final = math.log(1.001)
_EXACT_US: Final = 2000


def volumes(entries: DataFrame) -> DataFrame:
    """Count messages and octets between each domain and its partners, by hour, for billing.

    Args:
        entries: `HOPS`.

    Returns:
        `VOLUMES`; ``direction`` is ``in`` for messages taken by the domain and ``out`` for those
        handed over, each at its own time. Octets are those of `billed`, so both sides count the
        same.
    """
    entries = conform(entries, HOPS)
    came = entries.where(F.col("sender").startswith(FOREIGN) & F.col("kind").isNotNull()).select(
        _hour("began_us"), _partner("sender").alias("partner"), F.lit("in").alias("direction"),
        "size", "bare_size", "domain",
    )  # fmt: skip
    went = entries.where((F.col("fate") == RecordKind.RELAYED) & F.col("peer").startswith(FOREIGN))
    went = went.select(
        _hour("ended_us"), _partner("peer").alias("partner"), F.lit("out").alias("direction"),
        "size", "bare_size", "domain",
    )  # fmt: skip
    counted = (
        came.unionByName(went)
        .groupBy("hour", "partner", "direction", "domain")
        .agg(F.count("*").alias("messages"), *billed())
    )
    return conform(counted.withColumn("day", F.col("hour").cast("date")), VOLUMES)


def billed() -> tuple[Column, Column]:
    """Return the sums ``octets`` and ``unmeasured``, of messages with ``size`` and ``bare_size``.

    Octets are those of the bare message, since the stored size grows from broker to broker. If no
    record has them (journals of earlier releases), it is the stored size, or 0 if that is missing
    too (exports), and the message counts as unmeasured.
    """
    octets = F.coalesce(F.sum(F.coalesce("bare_size", "size")), F.lit(0))
    return octets.alias("octets"), F.count_if(F.col("bare_size").isNull()).alias("unmeasured")


def reasons(runs: DataFrame) -> DataFrame:
    """Count events other than normal deliveries, with their reasons.

    Args:
        runs: `RUNS`.

    Returns:
        `REASONS`, by kind of the record: attempts, deferrals, releases, refusals, suppressed
        duplicates, dead letters, expired and returned messages.
    """
    fields = ("sender", "peer", "node", "condition", "code", "count")
    told = spread(conform(runs, RUNS).where(F.col("kind").isin(*_TROUBLE)), fields)
    rows = told.select(
        _hour("time"), "kind", F.coalesce(_partner("peer"), _partner("sender")).alias("partner"),
        "node", "condition", "code", F.coalesce("count", F.lit(1)).alias("number"), "domain",
    )  # fmt: skip
    keys = ("hour", "kind", "partner", "node", "condition", "code", "domain")
    counted = rows.groupBy(*keys).agg(F.sum("number").alias("number"))
    return conform(counted.withColumn("day", F.col("hour").cast("date")), REASONS)


def queues(entries: DataFrame) -> DataFrame:
    """Count the messages of each queue on each day, and those still waiting.

    Args:
        entries: `HOPS`.

    Returns:
        `QUEUES`; ``octets`` are those stored, ``oldest_us`` is the arrival of the first message
        that still waits.
    """
    waits = F.col("fate").isNull()
    counted = (
        conform(entries, HOPS)
        .where(F.col("kind").isNotNull() & ~is_answer())
        .groupBy("queue", "day", "domain")
        .agg(
            F.count("*").alias("came"),
            F.coalesce(F.sum("size"), F.lit(0)).alias("octets"),
            F.count_if(~waits).alias("left"),
            F.count_if(waits).alias("waiting"),
            F.min(F.when(waits, F.col("began_us"))).alias("oldest_us"),
        )
    )
    return conform(counted, QUEUES)


def _hour(name: str) -> Column:
    return F.date_trunc("hour", F.timestamp_micros(name)).alias("hour")


def partner(column: Column) -> Column:
    """Return the domain of the organization that sent or took; None if it is not another one."""
    return F.when(column.startswith(FOREIGN), F.substring(column, len(FOREIGN) + 1, 1 << 20))


def _partner(name: str) -> Column:
    return partner(F.col(name))


def _bucket(us: Column) -> Column:
    """Number durations so that neighbors are 2 % apart; negative ones count as 0."""
    return F.when(us < 1, 0).otherwise(F.floor(F.log(us) / _WIDTH) + 1).cast("int")


def _middle(bucket: Column) -> Column:
    """The duration in the middle of a bucket, by ratio."""
    return F.when(bucket == 0, 0.0).otherwise(F.exp((bucket - 0.5) * _WIDTH))


def _name(place: float) -> str:
    return "p" + f"{place:.3f}".split(".")[1].rstrip("0").ljust(2, "0") + "_us"
