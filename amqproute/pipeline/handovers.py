# SPDX-License-Identifier: Apache-2.0
"""Do the brokers of one warehouse agree on their hand-overs to each other?

`amqproute.pipeline.reconcile` compares two organizations and counts all agreements. Here all
brokers with journals in the tables are compared at once, and only contradictions come out, as
violations: the counterpart between two brokers of `conservation` for one.

=========================  =========================================================================
*lost on the wire*         the sender recorded it as taken, and the receiver has no receipt
*accepted but unknown*     a receipt, and the sender's journal has no hand-over
*delivered twice*          a second receipt of one hand-over
*digest differs*           a receipt with another digest than the hand-over
=========================  =========================================================================

The sender's record names the broker that took the message (``next_broker``), and the receipt names
the store and the entry that it came from, and the broker in its trail. A broker whose journal is
not in the tables is accused of nothing, and proves nothing; an export counts only towards its
partner. Journals of earlier releases do not name the next broker: there the peer's domain stands
for all its brokers.

Nobody is blamed for what a journal cannot show. After its end a hand-over is in flight, and before
its first record nothing is known: neither is listed. Missing records in between may explain it:
then it is listed as ``hidden``. A crash may also explain a receipt unknown to the sender: a message
may be delivered ahead of its commit. The offset of two brokers' clocks is estimated from agreed
hand-overs.

Three kinds of receipts have no record of their own that names the hand-over, and are found
otherwise: a message for a node that keeps copies only (a record without an entry), a suppressed
duplicate (the sender's entry says so), and one that a broker found in its store after a crash (by
its digest).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from amqproute.journal.record import RecordKind
from amqproute.pipeline import coverage
from amqproute.pipeline.defaults import GRACE_SECONDS
from amqproute.pipeline.figures import FOREIGN
from amqproute.pipeline.lines import spread
from amqproute.pipeline.reconcile import CHANGED, LOST, TWICE, UNKNOWN
from amqproute.pipeline.table_schema import HOPS, RUNS, VIOLATIONS, conform
from amqproute.pipeline.warehouse import few

__all__ = ["contradictions"]

_SMALL: Final = 1_000_000
"""Up to this number, rows are broadcast rather than exchanged."""
_SAMPLE: Final = 100_000
"""Approximate number of hand-overs for the comparison of clocks."""

_KEY: Final = ["stream", "entry"]
"""The entry at the sender, the name of a hand-over at both sides."""


@contextmanager
def contradictions(
    entries: DataFrame,
    runs: DataFrame,
    doubtful: DataFrame,
    rejects: DataFrame | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> Iterator[DataFrame]:
    """Find the hand-overs on which two brokers contradict each other.

    Args:
        entries: `HOPS`, of the days in question and of the days around them.
        runs: `RUNS`, of these days and of all later ones.
        doubtful: the entries in doubt, from `amqproute.pipeline.conservation.judged`.
        rejects: `amqproute.pipeline.table_schema.REJECTS` of the same days as `runs`, if there are
            any.
        grace_seconds: time around a hole in a journal that counts as part of it.

    Yields:
        `VIOLATIONS`: for a lost message, the sender's entry; otherwise the receiver's. They can be
            read until the end of the context.
    """
    entries, runs = conform(entries, HOPS), conform(runs, RUNS)
    here = _here(runs)
    names = sorted({row["broker"] for row in here})
    if len(names) < 2:
        yield few(entries.sparkSession, VIOLATIONS)
        return
    grace = round(grace_seconds * 1_000_000)
    stated = _sent(entries, names).unionByName(_taken(entries, runs))
    agreed = Observation()
    compared = _compared(stated).observe(agreed, F.count_if("agrees").alias("number"))
    # Most nights have no such hand-overs, and need none of the details that are exchanged for them.
    disputed = compared.where("NOT agrees").drop("agrees").persist()
    wrong = None
    try:
        number = disputed.count()
        if not number:
            yield few(entries.sparkSession, VIOLATIONS)
            return
        is_small = number <= _SMALL
        wrong = _detailed(stated, F.broadcast(disputed) if is_small else disputed).persist()
        brokers = few(entries.sparkSession, _BROKERS, here)
        offsets = _offsets(entries, max(1, agreed.get["number"] // _SAMPLE))
        holes = _holes(runs, rejects, grace)
        lost = _lost(wrong, brokers, holes, offsets, entries)
        unknown = _unknown(wrong, brokers, holes, offsets, entries, doubtful, is_small)
        yield conform(lost.unionByName(unknown).unionByName(_certain(wrong)), VIOLATIONS)
    finally:
        disputed.unpersist()
        if wrong is not None:
            wrong.unpersist()


# -- who is here -------------------------------------------------------------------------------

_BROKERS: Final = StructType(
    [
        StructField("broker", StringType()),
        StructField("broker_domain", StringType()),
        StructField("its_streams", ArrayType(StringType())),
        StructField("shown_to", ArrayType(StringType())),
    ]
)


def _here(runs: DataFrame) -> list[dict[str, Any]]:
    """Return the brokers with a journal here; ``shown_to`` is set for exports only."""
    peer = F.when(F.col("kind") == RecordKind.SEGMENT, F.col("all.peer"))
    found = runs.groupBy("broker", F.col("domain").alias("broker_domain")).agg(
        F.collect_set("stream").alias("its_streams"), F.collect_set(peer).alias("shown_to")
    )
    return [row.asDict() for row in found.collect()]


def _shows(other: str) -> Column:
    """Return whether a broker's journal covers its messages with a domain."""
    name = F.concat(F.lit(FOREIGN), F.col(other))
    return (F.size("shown_to") == 0) | F.array_contains("shown_to", name)


# -- what both say -----------------------------------------------------------------------------

_DETAILS: Final = (
    "role", *_KEY, "at_us", "since_us", "sure_us", "digest", "own_stream", "own_entry", "broker",
    "domain", "other_broker", "other_name", "message_id", "message_id_type", "node", "day",
)  # fmt: skip

_SPAN: Final = ("since_us", "sure_us")


def _sent(entries: DataFrame, brokers: Sequence[str]) -> DataFrame:
    """Return the hand-overs, except those to brokers that are not here.

    ``since_us`` is the earliest time at which the receiver may have taken it, and ``sure_us`` the
    beginning of the successful attempt.
    """
    may_be_here = F.col("next_broker").isNull() | F.col("next_broker").isin(*brokers)
    relayed = entries.where(
        (F.col("fate") == RecordKind.RELAYED) & F.col("peer").startswith(FOREIGN) & may_be_here
    )
    span = F.coalesce("wire_us", F.lit(0)) + F.coalesce("settle_us", F.lit(0))
    is_first = (F.coalesce("attempt", F.lit(1)) <= 1) & (F.col("duplicates") == 0)
    return relayed.select(
        F.lit("sent").alias("role"),
        "stream",
        "entry",
        F.col("ended_us").alias("at_us"),
        F.when(is_first, F.col("ended_us") - span)
        .otherwise(F.coalesce("began_us", F.col("ended_us") - span))
        .alias("since_us"),
        (F.col("ended_us") - span).alias("sure_us"),
        "digest",
        F.col("stream").alias("own_stream"),
        F.col("entry").alias("own_entry"),
        "broker",
        "domain",
        F.col("next_broker").alias("other_broker"),
        F.substring("peer", len(FOREIGN) + 1, 1 << 20).alias("other_name"),
        "message_id",
        "message_id_type",
        F.col("queue").alias("node"),
        "day",
        (F.col("duplicates") > 0).alias("is_known"),
    )


def _taken(entries: DataFrame, runs: DataFrame) -> DataFrame:
    """Return the receipts: one for each time that a hand-over was taken."""
    stored = entries.where((F.col("kind") == RecordKind.RECEIVED) & F.col("from_entry").isNotNull())
    # A node that keeps copies only: the message has no entry, and the copies are no receipts.
    alone = F.col("all.entry").isNull() & F.col("each.entry").isNull()
    fields = (
        "sender", "node", "digest", "from_stream", "from_entry", "trail", "message_id",
        "message_id_type", "entry",
    )  # fmt: skip
    copied = spread(runs.where((F.col("kind") == RecordKind.RECEIVED) & alone), fields)
    copied = copied.where("from_entry IS NOT NULL").select(
        "*",
        F.col("time").alias("began_us"),
        F.col("node").alias("queue"),
        F.timestamp_micros("time").cast("date").alias("day"),
    )
    columns = (
        "stream", "entry", "broker", "domain", "began_us", "queue", "day", *fields[:1], *fields[2:8]
    )  # fmt: skip
    both = stored.select(*columns).unionByName(copied.select(*columns))
    return both.where("from_stream IS NOT NULL").select(
        F.lit("taken").alias("role"),
        F.col("from_stream").alias("stream"),
        F.col("from_entry").alias("entry"),
        F.col("began_us").alias("at_us"),
        F.col("began_us").alias("since_us"),
        F.col("began_us").alias("sure_us"),
        "digest",
        F.col("stream").alias("own_stream"),
        F.col("entry").alias("own_entry"),
        "broker",
        "domain",
        F.element_at(F.split("trail", " "), -1).alias("other_broker"),
        F.when(
            F.col("sender").startswith(FOREIGN), F.substring("sender", len(FOREIGN) + 1, 1 << 20)
        ).alias("other_name"),
        "message_id",
        "message_id_type",
        F.col("queue").alias("node"),
        "day",
        F.lit(False).alias("is_known"),
    )


def _compared(stated: DataFrame) -> DataFrame:
    """Combine the statements of both sides on each hand-over.

    Digests are included as a hash of fixed length, so that rows are aggregated in place.
    """
    is_sent, is_taken = F.col("role") == "sent", F.col("role") == "taken"
    digest = F.when(F.col("digest").isNotNull(), F.xxhash64("digest"))
    grouped = stated.groupBy(*_KEY).agg(
        F.count(F.when(is_sent, True)).alias("sent"),
        F.count(F.when(is_taken, True)).alias("times"),
        F.max(F.when(is_sent, digest)).alias("sent_digest"),
        F.min(F.when(is_taken, digest)).alias("least"),
        F.max(F.when(is_taken, digest)).alias("most"),
        F.max("is_known").alias("was_known"),
    )
    same = (F.col("sent_digest") == F.col("least")) & (F.col("sent_digest") == F.col("most"))
    # A message suppressed as a duplicate of another was taken with that one.
    once = (F.col("times") == 1) | ((F.col("times") == 0) & F.col("was_known"))
    agrees = (F.col("sent") > 0) & once & F.coalesce(same, F.lit(True))
    return grouped.select(*_KEY, "sent", "times", "sent_digest", agrees.alias("agrees"))


def _detailed(stated: DataFrame, disputed: DataFrame) -> DataFrame:
    """Return all statements on disputed hand-overs, each receipt with its number."""
    order = Window.partitionBy(*_KEY, "role").orderBy("at_us", "own_stream", "own_entry")
    detailed = stated.select(*_DETAILS).join(disputed, _KEY)
    return detailed.withColumn("number", F.row_number().over(order))


# -- clocks and holes --------------------------------------------------------------------------


def _offsets(entries: DataFrame, share: int) -> DataFrame:
    """Estimate the clock offset of each receiver to each sender, from a share of the agreements."""
    chosen = (F.pmod(F.xxhash64("stream", "entry"), F.lit(share)) == 0) & (
        F.col("fate") == RecordKind.RELAYED
    )
    sent = entries.where(chosen).select(
        *_KEY, F.col("broker").alias("sender_broker"), F.col("ended_us").alias("sent_us")
    )
    taken = entries.where("from_entry IS NOT NULL").select(
        F.col("from_stream").alias("stream"),
        F.col("from_entry").alias("entry"),
        F.col("broker").alias("receiver_broker"),
        F.col("began_us").alias("taken_us"),
    )
    ahead = F.percentile_approx(F.col("taken_us") - F.col("sent_us"), 0.5).alias("ahead_us")
    return sent.join(taken, _KEY).groupBy("sender_broker", "receiver_broker").agg(ahead)


_CRASH: Final = "crash"
_FIRST: Final = "first record"


def _holes(runs: DataFrame, rejects: DataFrame | None, grace: int) -> DataFrame:
    """Return for each broker the holes of its journal, and its crashes.

    The contents of the store before the first record of a journal are as certain as that record.
    """
    shown = coverage.holes(runs, rejects).where(F.col("reason") != coverage.DOWN)
    is_first = (F.col("reason") == coverage.BEGINS) & (F.col("count") == 0)
    reason = F.when(is_first, _FIRST).otherwise(F.col("reason")).alias("reason")
    found = shown.select(F.col("broker").alias("silent"), "from_us", "until_us", reason)
    is_sharp = (F.col("reason") == _FIRST) | (F.col("until_us") >= coverage.FOREVER)
    found = found.unionByName(_crashes(runs)).select(
        "silent",
        (F.col("from_us") - grace).alias("from_us"),
        F.when(is_sharp, F.col("until_us")).otherwise(F.col("until_us") + grace).alias("until_us"),
        "reason",
    )
    each = F.collect_list(F.struct("from_us", "until_us", "reason")).alias("holes")
    return found.groupBy("silent").agg(each)


def _crashes(runs: DataFrame) -> DataFrame:
    """Return the times from the last record before a start without a stop to that start."""
    order = Window.partitionBy("journal").orderBy("seq")
    limits = runs.where(F.col("kind").isin(RecordKind.START, RecordKind.STOP)).select(
        "journal", "seq", "kind", F.col("time").alias("until_us"), F.lag("kind").over(order).alias(
            "before"
        ),
    )  # fmt: skip
    starts = limits.where(
        (F.col("kind") == RecordKind.START)
        & F.coalesce(F.col("before") != RecordKind.STOP, F.lit(True))
    ).select("journal", F.col("seq").alias("behind"), "until_us")
    earlier = runs.select("journal", "broker", "seq", "time").join(F.broadcast(starts), "journal")
    return (
        earlier.where(F.col("seq") < F.col("behind"))
        .groupBy(F.col("broker").alias("silent"), "behind", "until_us")
        .agg(F.max("time").alias("from_us"))
        .select("silent", "from_us", "until_us", F.lit(_CRASH).alias("reason"))
    )


def _reasons(rows: DataFrame, holes: DataFrame) -> DataFrame:
    """Add ``reasons``: those of all holes of ``silent`` between ``since_us`` and ``until_us``.

    The beginning or the end of a journal is a reason from ``sure_us`` on: messages tried before
    that, and taken in the end, are in the journal, too.
    """
    is_end = [_FIRST, coverage.BEGINS, coverage.ENDS]

    def hides(hole: Column) -> Column:
        since = F.when(hole.reason.isin(*is_end), F.col("sure_us")).otherwise(F.col("since_us"))
        return (hole.from_us <= F.col("until_us")) & (hole.until_us >= since)

    reasons = F.coalesce(
        F.transform(F.filter("holes", hides), lambda hole: hole.reason),
        F.array().cast("array<string>"),
    )
    joined = rows.join(F.broadcast(holes), "silent", "left")
    return joined.withColumn("reasons", reasons).drop("holes")


# -- verdicts ----------------------------------------------------------------------------------


def _certain(wrong: DataFrame) -> DataFrame:
    """Return receipts that no missing record explains: second ones, and those of other contents."""
    differs = F.col("sent_digest") != F.xxhash64("digest")
    what = F.when(F.col("number") > 1, TWICE).when(F.col("digest").isNotNull() & differs, CHANGED)
    rows = wrong.where(F.col("role") == "taken").withColumn("what", what)
    return _rows(rows.where("what IS NOT NULL").withColumn("hidden", F.lit(False)))


def _lost(
    wrong: DataFrame,
    brokers: DataFrame,
    holes: DataFrame,
    offsets: DataFrame,
    entries: DataFrame,
) -> DataFrame:
    """Return hand-overs without a receipt in a journal that would have it."""
    named = F.coalesce(
        F.col("other_broker") == F.col("silent"),
        (F.col("other_broker").isNull() & (F.col("other_name") == F.col("broker_domain"))),
    )
    receivers = brokers.withColumnRenamed("broker", "silent").drop("its_streams")
    met = (
        wrong.where("role = 'sent' AND times = 0")
        .join(F.broadcast(receivers), named)
        .where(_shows("domain") & (F.col("silent") != F.col("broker")))
        .join(
            F.broadcast(offsets),
            (F.col("sender_broker") == F.col("broker"))
            & (F.col("receiver_broker") == F.col("silent")),
            "left",
        )
    )
    ahead = F.coalesce("ahead_us", F.lit(0))
    met = met.select(
        *_DETAILS[:4],
        (F.col("since_us") + ahead).alias("since_us"),
        (F.col("sure_us") + ahead).alias("sure_us"),
        (F.col("at_us") + ahead).alias("until_us"),
        *_DETAILS[6:],
        "silent",
        "broker_domain",
    )
    met = met.join(_unnamed(entries), ["digest", "broker_domain"], "left_anti")
    # A crash loses no receipt: a taken message is in the store, and the journal records it.
    shown = F.array_except("reasons", F.array(F.lit(_CRASH)))
    several = _reasons(met, holes).withColumn("reasons", shown)
    judged = several.groupBy(*(name for name in _DETAILS if name not in _SPAN)).agg(
        F.flatten(F.collect_list("reasons")).alias("reasons")
    )
    return _rows(
        judged.where(_is_covered()).withColumns({"what": F.lit(LOST), "hidden": _is_hidden()})
    )


def _unnamed(entries: DataFrame) -> DataFrame:
    """Return digests of entries, from other brokers or the store, whose origin is unknown."""
    found = F.col("kind") == RecordKind.RECOVERY
    came = (F.col("kind") == RecordKind.RECEIVED) & F.col("sender").startswith(FOREIGN)
    unnamed = entries.where(F.col("from_entry").isNull() & (found | came))
    named = unnamed.where("digest IS NOT NULL")
    return named.select("digest", F.col("domain").alias("broker_domain")).distinct()


def _unknown(
    wrong: DataFrame,
    brokers: DataFrame,
    holes: DataFrame,
    offsets: DataFrame,
    entries: DataFrame,
    doubtful: DataFrame,
    is_small: bool,
) -> DataFrame:
    """Return receipts without a hand-over in a journal that would have it."""
    is_of_store = F.array_contains("its_streams", F.col("stream"))
    is_named = F.col("other_broker") == F.col("silent")
    by_name = F.col("other_broker").isNull() & (F.col("other_name") == F.col("broker_domain"))
    senders = brokers.withColumnRenamed("broker", "silent")
    met = (
        wrong.where("role = 'taken' AND sent = 0 AND number = 1")
        .join(F.broadcast(senders), is_of_store | F.coalesce(is_named, F.lit(False)) | by_name)
        .where(_shows("domain") & (F.col("silent") != F.col("broker")))
        .join(
            F.broadcast(offsets),
            (F.col("sender_broker") == F.col("silent"))
            & (F.col("receiver_broker") == F.col("broker")),
            "left",
        )
    )
    keys = met.select(*_KEY).distinct()
    near = F.broadcast(keys) if is_small else keys
    known = entries.join(near, _KEY).select(*_KEY, F.lit(True).alias("is_there"), "fate")
    gone = doubtful.where("is_gone").select(*_KEY, "stock_us").join(near, _KEY)
    ahead = F.coalesce("ahead_us", F.lit(0))
    at = F.col("at_us") - ahead
    rows = met.join(known, _KEY, "left").join(gone, _KEY, "left")
    # Messages still waiting at the sender are in doubt: they will be offered again.
    rows = rows.where("is_there IS NULL OR fate IS NOT NULL OR stock_us IS NOT NULL")
    rows = rows.select(
        *(name for name in _DETAILS if name not in _SPAN),
        at.alias("since_us"),
        at.alias("sure_us"),
        F.greatest(at, F.coalesce("stock_us", at)).alias("until_us"),
        "silent",
        F.col("is_there").isNull().alias("is_absent"),
        F.col("fate").isNotNull().alias("ended_otherwise"),
    )
    crashed = F.col("is_absent") & F.array_contains("reasons", _CRASH)
    otherwise = F.array_except("reasons", F.array(F.lit(_CRASH)))
    several = (
        _reasons(rows, holes)
        .withColumn("reasons", F.when(crashed, F.col("reasons")).otherwise(otherwise))
        .groupBy(*(name for name in _DETAILS if name not in _SPAN), "ended_otherwise")
        .agg(F.flatten(F.collect_list("reasons")).alias("reasons"))
    )
    return _rows(
        several.where(_is_covered() | F.col("ended_otherwise")).withColumns(
            {"what": F.lit(UNKNOWN), "hidden": ~F.col("ended_otherwise") & _is_hidden()}
        )
    )


def _is_covered() -> Column:
    """Neither after the end of a journal nor before its first record."""
    outside = F.array(F.lit(_FIRST), F.lit(coverage.BEGINS), F.lit(coverage.ENDS))
    return ~F.arrays_overlap("reasons", outside)


def _is_hidden() -> Column:
    return F.size("reasons") > 0


def _rows(found: DataFrame) -> DataFrame:
    return found.select(
        "what",
        "broker",
        F.col("own_stream").alias("stream"),
        F.col("own_entry").alias("entry"),
        "message_id",
        "message_id_type",
        "node",
        "at_us",
        "hidden",
        "day",
        "domain",
    )
