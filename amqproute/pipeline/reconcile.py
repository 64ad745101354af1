# SPDX-License-Identifier: Apache-2.0
"""Do two organizations agree on the messages that went from one to the other?

Each side states its hand-overs to the other and its receipts from it (`statement`): entries, times,
message-ids and digests of the bare messages, the contents of an export, and nothing else. The join
is exact: the next broker's record names the store and the entry that a message came from.

A hand-over is *agreed* if both sides know it, once, with the same digest. Otherwise it gets one of
the `VERDICTS`. Nobody is blamed for what a journal cannot show: if the side that lacks a record has
a hole in its journal (`amqproute.pipeline.coverage`) at the time, give or take a grace, the
hand-over is *in flight*, if that journal ends there, or *not covered*.

Clocks differ. The next hop commits a message after its hand-over and before its outcome is known,
so each agreed hand-over bounds the difference from both sides::

    handed over = relayed - settle - wire  <=  received - offset  <=  relayed

All of them together, in both directions, bound it closely. The bounds are taken at a percentile, so
that a few records written late after a crash do not move them.

Why so: agreed hand-overs are only counted, in the pass that finds the others. The remaining rows
are as many as the problems.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from amqproute.journal.record import RecordKind
from amqproute.pipeline import coverage
from amqproute.pipeline.defaults import GRACE_SECONDS
from amqproute.pipeline.reuse import Reuse

__all__ = [
    "AGREED",
    "CHANGED",
    "DISCREPANCIES",
    "IN_FLIGHT",
    "LISTED",
    "LOST",
    "NOT_COVERED",
    "STATEMENT",
    "TWICE",
    "UNKNOWN",
    "VERDICTS",
    "ClockOffset",
    "ReconcileSide",
    "Reconciliation",
    "known_as",
    "reconcile",
    "statement",
]

AGREED: Final = "agreed"
LOST: Final = "lost on the wire"
UNKNOWN: Final = "accepted but unknown"
TWICE: Final = "delivered twice"
CHANGED: Final = "digest differs"
IN_FLIGHT: Final = "in flight"
NOT_COVERED: Final = "not covered"

VERDICTS: Final[Mapping[str, str]] = {
    AGREED: "both sides know it, once, with the same digest",
    LOST: "the sender was told that it was taken, and the receiver has no record of it",
    UNKNOWN: "the receiver took it, and the sender has no record of having handed it over",
    TWICE: "the receiver took it more than once",
    CHANGED: "the message received differs from the one sent",
    IN_FLIGHT: "at the end of a journal: the other half is in segments not available yet",
    NOT_COVERED: "the journal that should have it has a gap at that time",
}
"""The verdicts on hand-overs, and their meaning."""

DISCREPANCIES: Final = (LOST, UNKNOWN, TWICE, CHANGED)
"""Verdicts by which two sides contradict each other."""

STATEMENT: Final = (
    "sender string, receiver string, role string, stream string, entry long, at_us long, "
    "span_us long, message_id string, message_id_type string, digest string"
)
"""The statement of one side on a hand-over: `role` is ``sent`` or ``taken``; `stream` and `entry`
are those at the sender; `at_us` is the time of its relaying or receipt, by its own clock; `span_us`
is how long before that it had been handed over at the earliest."""

LISTED: Final = (
    "sender string, receiver string, stream string, entry long, verdict string, "
    "message_id string, message_id_type string, sent_us long, taken_us long, times long, "
    "sent_digest string, taken_digests array<string>, holes array<string>"
)
"""A hand-over that is not agreed: `times` is how often the receiver took it, `holes` are the
reasons of the holes that hide it."""

_PLACES: Final = 0.99
"""Share of the hand-overs that keep the bounds of the clocks' offset."""


@dataclass(frozen=True, slots=True)
class ReconcileSide:
    """One of the two: its domain, its `STATEMENT` and its `amqproute.pipeline.coverage.HOLES`."""

    domain: str
    statement: DataFrame
    holes: DataFrame


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Difference of their clock to ours, microseconds; positive if theirs is ahead.

    Attributes:
        estimate: the most likely offset.
        error: the largest error of the estimate.
        pairs: number of hand-overs used.
    """

    estimate: int = 0
    error: int | None = None
    pairs: int = 0


@dataclass(slots=True)
class Reconciliation:
    """The result.

    Attributes:
        ours: domain of one side.
        theirs: domain of the other side.
        day: its day; None for all days.
        offset: between the clocks.
        counts: hand-overs by sender's domain and verdict.
        listed: one row for each hand-over that is not agreed, `LISTED`.
        holes: missing parts of the two journals, except at their ends.
    """

    ours: str
    theirs: str
    day: date | None
    offset: ClockOffset
    listed: DataFrame
    holes: DataFrame
    counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def count(self, *verdicts: str) -> int:
        """Return the number of hand-overs with these verdicts, in both directions."""
        return sum(number for (_, verdict), number in self.counts.items() if verdict in verdicts)

    @property
    def is_discrepant(self) -> bool:
        """Whether the two contradict each other somewhere."""
        return self.count(*DISCREPANCIES) > 0


def statement(hops: DataFrame, domain: str, partner: str, names: Collection[str] = ()) -> DataFrame:
    """Return an organization's hand-overs to another one, and its receipts from it.

    Args:
        hops: `amqproute.pipeline.table_schema.HOP`, with those of this organization.
        domain: the domain of this organization.
        partner: domain of the other one.
        names: other names for the partner in hand-overs to it: further domains, or the endpoint of
            a route. See `known_as`.

    Returns:
        `STATEMENT`.
    """
    own = hops.where(F.col("domain") == domain)
    span = F.coalesce("wire_us", F.lit(0)) + F.coalesce("settle_us", F.lit(0))
    called = sorted({f"peer:{partner}", *names})
    sent = own.where((F.col("fate") == RecordKind.RELAYED) & F.col("peer").isin(called))
    taken = own.where((F.col("sender") == f"peer:{partner}") & F.col("from_entry").isNotNull())
    named = ("message_id", "message_id_type", "digest")
    return sent.select(
        F.lit(domain).alias("sender"),
        F.lit(partner).alias("receiver"),
        F.lit("sent").alias("role"),
        "stream",
        "entry",
        F.col("ended_us").alias("at_us"),
        F.when(F.col("wire_us").isNotNull(), span).alias("span_us"),
        *named,
    ).unionByName(
        taken.select(
            F.lit(partner).alias("sender"),
            F.lit(domain).alias("receiver"),
            F.lit("taken").alias("role"),
            F.col("from_stream").alias("stream"),
            F.col("from_entry").alias("entry"),
            F.col("began_us").alias("at_us"),
            F.lit(None).cast("long").alias("span_us"),
            *named,
        )
    )


def known_as(hops: DataFrame, theirs: DataFrame) -> list[str]:
    """Find the names that an organization uses for another one in its hand-overs.

    From the hand-overs to each name, a few entries are chosen by hash. The result has the names
    with entries that the other one received.

    Args:
        hops: the hops of the sender, `amqproute.pipeline.table_schema.HOPS`.
        theirs: the same of the receiver.
    """
    entry = F.struct("stream", "entry")
    chosen = [F.min_by(entry, F.xxhash64("stream", "entry", F.lit(i))) for i in range(_SAMPLES)]
    samples = (
        hops.where(F.col("fate") == RecordKind.RELAYED)
        .groupBy("peer")
        .agg(F.array(*chosen).alias("chosen"))
        .select("peer", F.inline("chosen"))
        .select("peer", F.col("stream").alias("from_stream"), F.col("entry").alias("from_entry"))
    )
    taken = theirs.where("from_entry IS NOT NULL").select("from_stream", "from_entry")
    met = taken.join(F.broadcast(samples), ["from_stream", "from_entry"])
    return sorted(row.peer for row in met.select("peer").distinct().collect())


_SAMPLES: Final = 16


def reconcile(
    ours: ReconcileSide,
    theirs: ReconcileSide,
    *,
    day: date | None = None,
    grace_seconds: float = GRACE_SECONDS,
    reuse: Reuse | None = None,
) -> Reconciliation:
    """Compare the statements of two organizations on the messages between them.

    Args:
        ours: one side.
        theirs: the other side.
        day: hand-overs of this UTC day only, by the sender's clock.
        grace_seconds: time around a hole that counts as part of it.
        reuse: keeps the returned tables; by default they are kept as long as the session.
    """
    reuse = reuse or Reuse()
    stated = ours.statement.unionByName(theirs.statement)
    holes = reuse.computed(_holes(ours, theirs))
    seen = Observation()
    compared = _compared(stated, day).observe(seen, *_figures(ours.domain))
    doubtful = compared.where(~F.col("agrees")).persist()
    try:
        number = doubtful.count()
        figures = seen.get
        offset = _offset(figures)
        judged = _judged(doubtful, holes, ours.domain, offset, round(grace_seconds * 1e6))
        listed = reuse.computed(_named(judged, stated, is_small=number <= _SMALL))
    finally:
        doubtful.unpersist()
    counts = {
        (row["sender"], row["verdict"]): row["number"]
        for row in listed.groupBy("sender", "verdict").agg(F.count("*").alias("number")).collect()
    }
    counts[ours.domain, AGREED] = figures["agreed_ours"]
    counts[theirs.domain, AGREED] = figures["agreed_theirs"]
    inner = holes.where(~F.col("reason").isin(coverage.BEGINS, coverage.ENDS))
    return Reconciliation(ours.domain, theirs.domain, day, offset, listed, inner, counts)


_KEY: Final = ("sender", "receiver", "stream", "entry")
_SMALL: Final = 1_000_000
"""Up to this number, rows are broadcast rather than exchanged."""


def _compared(stated: DataFrame, day: date | None) -> DataFrame:
    """Combine the statements of both sides on each hand-over.

    Digests are included as hashes of fixed length, so that rows are aggregated in place and not
    sorted: 96 bits, of a text that is a SHA-256 itself.
    """
    is_sent, is_taken = F.col("role") == "sent", F.col("role") == "taken"
    has_digest = F.col("digest").isNotNull()
    long_hash = F.when(has_digest, F.xxhash64("digest"))
    short_hash = F.when(has_digest, F.hash("digest"))
    grouped = stated.groupBy(*_KEY).agg(
        F.max(F.when(is_sent, F.col("at_us"))).alias("sent_us"),
        F.max(F.when(is_sent, F.col("span_us"))).alias("span_us"),
        F.min(F.when(is_taken, F.col("at_us"))).alias("taken_us"),
        F.count(F.when(is_taken, True)).alias("times"),
        F.max(F.when(is_sent, long_hash)).alias("sent_long"),
        F.max(F.when(is_taken, long_hash)).alias("taken_long"),
        F.max(F.when(is_sent, short_hash)).alias("sent_short"),
        F.max(F.when(is_taken, short_hash)).alias("taken_short"),
    )
    differs = (F.col("sent_long") != F.col("taken_long")) | (
        F.col("sent_short") != F.col("taken_short")
    )
    agrees = (
        F.col("sent_us").isNotNull() & (F.col("times") == 1) & ~F.coalesce(differs, F.lit(False))
    )
    compared = grouped.select(
        *_KEY, "sent_us", "span_us", "taken_us", "times", agrees.alias("agrees")
    )
    if day is None:
        return compared
    at = F.coalesce("sent_us", "taken_us")
    begin = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * _SECOND
    return compared.where((at >= begin) & (at < begin + 86_400 * _SECOND))


def _figures(ours: str) -> list[Column]:
    """Count the agreements, and bound the offset of the clocks; see the module."""
    agrees, is_ours = F.col("agrees"), F.col("sender") == ours
    ahead = F.when(agrees, F.col("taken_us") - F.col("sent_us"))
    span = F.col("span_us")
    lower = F.when(is_ours, ahead).otherwise(-ahead - span)
    upper = F.when(is_ours, ahead + span).otherwise(-ahead)
    middle = (lower + upper) / 2
    return [
        F.count(F.when(agrees & is_ours, True)).alias("agreed_ours"),
        F.count(F.when(agrees & ~is_ours, True)).alias("agreed_theirs"),
        F.percentile_approx(lower, _PLACES).alias("lower"),
        F.percentile_approx(upper, 1 - _PLACES).alias("upper"),
        F.percentile_approx(middle, 0.5).alias("middle"),
    ]


def _offset(figures: Mapping[str, Any]) -> ClockOffset:
    pairs = figures["agreed_ours"] + figures["agreed_theirs"]
    lower, upper = figures["lower"], figures["upper"]
    if lower is None and upper is None:
        return ClockOffset(0, None, pairs)
    if lower is None or upper is None:  # one direction only, and no durations
        return ClockOffset(round(lower if upper is None else upper), None, pairs)
    if lower <= upper:
        return ClockOffset(round((lower + upper) / 2), round((upper - lower) / 2), pairs)
    # A clock was set meanwhile: no single offset matches all.
    middle = round(figures["middle"])
    return ClockOffset(middle, round(max(abs(middle - lower), abs(middle - upper))), pairs)


def _holes(ours: ReconcileSide, theirs: ReconcileSide) -> DataFrame:
    """Return the holes of both; a side without any journal is one."""
    holes = ours.holes.unionByName(theirs.holes)
    spark, domains = holes.sparkSession, F.array(F.lit(ours.domain), F.lit(theirs.domain))
    both = spark.range(1).select(F.explode(domains).alias("domain"))
    silent = both.join(holes.select("domain"), "domain", "left_anti").select(
        "domain",
        F.lit(None).alias("broker"),
        F.lit(0).alias("from_us"),
        F.lit(coverage.FOREVER).alias("until_us"),
        F.lit(coverage.MISSING).alias("reason"),
        F.lit(None).alias("count"),
    )
    return holes.unionByName(silent)


def _judged(
    doubtful: DataFrame, holes: DataFrame, ours: str, offset: ClockOffset, grace_us: int
) -> DataFrame:
    """Give each hand-over that is not agreed its verdict."""
    not_sent, not_taken = F.col("sent_us").isNull(), F.col("times") == 0
    silent = F.when(not_taken, F.col("receiver")).when(not_sent, F.col("sender"))
    known_at = F.coalesce("sent_us", "taken_us")
    about = known_at + F.when(silent == ours, -offset.estimate).otherwise(offset.estimate)
    times = F.collect_list(F.struct("from_us", "until_us", "reason")).alias("of_silent")
    by_domain = holes.groupBy(F.col("domain").alias("silent")).agg(times)
    hides = F.filter(
        "of_silent",
        lambda hole: (about + grace_us >= hole.from_us) & (about - grace_us <= hole.until_us),
    )
    reasons = F.sort_array(F.array_distinct(F.transform(hides, lambda hole: hole.reason)))
    told = (
        doubtful.withColumn("silent", silent)
        .join(F.broadcast(by_domain), "silent", "left")
        .withColumn("holes", F.coalesce(reasons, F.array().cast("array<string>")))
    )
    verdict = (
        F.when(F.col("times") > 1, TWICE)
        .when(~not_sent & ~not_taken, CHANGED)
        .when(F.array_contains("holes", coverage.ENDS), IN_FLIGHT)
        .when(F.size("holes") > 0, NOT_COVERED)
        .when(not_taken, LOST)
        .otherwise(UNKNOWN)
    )
    return told.select(*_KEY, "sent_us", "taken_us", "times", "holes", verdict.alias("verdict"))


def _named(judged: DataFrame, stated: DataFrame, *, is_small: bool) -> DataFrame:
    """Add message-ids and digests, which only these few rows need."""
    few = F.broadcast(judged) if is_small else judged
    digests = F.sort_array(F.collect_set(F.when(F.col("role") == "taken", F.col("digest"))))
    return (
        stated.select(*_KEY, "role", "message_id", "message_id_type", "digest")
        .join(few, list(_KEY))
        .groupBy(*_KEY, "verdict", "sent_us", "taken_us", "times", "holes")
        .agg(
            F.max("message_id").alias("message_id"),
            F.max("message_id_type").alias("message_id_type"),
            F.max(F.when(F.col("role") == "sent", F.col("digest"))).alias("sent_digest"),
            digests.alias("taken_digests"),
        )
        .select(*_COLUMNS)
    )


_COLUMNS: Final = tuple(part.split()[0] for part in LISTED.split(", "))
_SECOND: Final = 1_000_000
