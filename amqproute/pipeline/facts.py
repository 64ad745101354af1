# SPDX-License-Identifier: Apache-2.0
"""The facts of a report about a day or a range of days.

`facts` queries the tables for sums, percentiles and the first rows of lists: the same amount for a
thousand messages as for a billion.

A message without an end waits, unless conservation shows otherwise: then it is *lost*, or *not
known* if records of that time are missing; and a message held in memory only is *forgotten* when
its broker starts again (`vanished`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from amqproute.journal.record import RecordKind
from amqproute.pipeline import conservation, coverage, reconcile
from amqproute.pipeline.days import between
from amqproute.pipeline.figures import FOREIGN, OWN, billed, partner, percentile
from amqproute.pipeline.lines import spread
from amqproute.pipeline.parallel_queries import run_queries
from amqproute.pipeline.refusals import REFUSALS
from amqproute.pipeline.traces import is_answer

__all__ = [
    "FAILURES",
    "FATES",
    "FORGOTTEN",
    "GONE",
    "LOST",
    "STAGES",
    "UNKNOWN",
    "WAITING",
    "FactTables",
    "WarehouseFacts",
    "facts",
    "last_hop",
    "vanished",
]

MOST_ROWS: Final = 100
"""Most rows of a list."""
MOST_PARTNERS: Final = 10_000
"""Most rows of the billed volumes: a partner beyond them gets no bill."""
HOURLY_DAYS: Final = 4
"""Longest range in days that is shown by the hour; longer ones are shown by the day."""

WAITING: Final = "waiting"
LOST: Final = "lost"
FORGOTTEN: Final = "forgotten"
UNKNOWN: Final = "not known"
FATES: Final = {
    RecordKind.DELIVERED: "delivered",
    RecordKind.RELAYED: "handed over",
    WAITING: "waiting",
    RecordKind.EXPIRED: "expired",
    RecordKind.DEAD_LETTERED: "dead letters",
    RecordKind.REJECTED: "rejected",
    RecordKind.RETURNED: "returned",
    RecordKind.DELETED: "deleted",
    LOST: "lost",
    FORGOTTEN: "forgotten",
    UNKNOWN: "not known",
}
"""The fates of messages, in the words of the page. *Handed over*: to an organization whose
journal is not in the tables. *Lost*, *forgotten*, *not known*: the message has not ended and does
not wait either, or the next broker, whose journal is in the tables, did not get it; see
`vanished`."""

GONE: Final = (conservation.LOST, reconcile.LOST)
"""Violations that mean a message is nowhere: in no queue of its broker, nor taken by the next."""

FAILURES: Final = (
    RecordKind.EXPIRED,
    RecordKind.DEAD_LETTERED,
    RecordKind.REJECTED,
    RecordKind.RETURNED,
)
STAGES: Final = ("queue_us", "resolve_us", "connect_us", "wire_us", "settle_us")


@dataclass(frozen=True, slots=True)
class FactTables:
    """The tables behind a report; all but `vanished` restricted to its days.

    Attributes:
        runs: `amqproute.pipeline.table_schema.RUNS`.
        hops: `amqproute.pipeline.table_schema.HOPS`.
        messages: `amqproute.pipeline.table_schema.MESSAGES`.
        rejects: `amqproute.pipeline.table_schema.REJECTS`, if there are any.
        violations: `amqproute.pipeline.table_schema.VIOLATIONS`.
        vanished: from the function; of these days and of the later days of their messages.
        around: `runs` of these days and of the days next to them: a gap may span midnight.
        lately: `runs` of these days and of some days before.
        missing: the days without a record.
    """

    runs: DataFrame
    hops: DataFrame
    messages: DataFrame
    rejects: DataFrame | None
    violations: DataFrame
    vanished: DataFrame
    around: DataFrame
    lately: DataFrame
    missing: Sequence[date] = ()


@dataclass(slots=True)
class WarehouseFacts:
    """The facts of a report.

    Attributes:
        first: day.
        last: day.
        missing: days in between without a record.
        domains: organizations with a journal.
        records: number of records read.
        moments: hours or days, in order.
        fates: messages by moment and fate.
        latency: by moment: ``p50`` and ``p99`` of ended messages.
        overall: messages, octets, ``p50``, ``p99``, the least and the most. Octets are of bare
            messages, here and in `partners` (`amqproute.pipeline.figures.billed`). Percentiles are
            at most 0.05 % off, here and elsewhere (`amqproute.pipeline.figures.percentile`).
        routes: durations of the stages between each organization and the next.
        partners: volumes by organization, partner and direction.
        reasons: reasons of deferrals, and their number.
        failures: undeliverable messages, and the reasons.
        duplicates: repetitions that were suppressed.
        oldest: the messages that have waited longest.
        silent: brokers without a record of these days that had some before, and were not stopped:
            ``broker``, ``domain`` and ``last``, the day of the last record.
        gaps: the gaps of the journals, on these days.
        rejected_lines: unreadable lines of journals.
        altered_lines: lines of journals that were altered, or contradict others.
        violations: the first violations of conservation.
        violations_number: number of all of them.
        unaccounted: number of violations within one broker that no gap of a journal explains.
        disagreed: number of those between two.
    """

    first: date
    last: date
    missing: Sequence[date] = ()
    domains: list[str] = field(default_factory=list)
    records: int = 0
    moments: list[str] = field(default_factory=list)
    fates: dict[tuple[str, str], int] = field(default_factory=dict)
    latency: dict[str, Row] = field(default_factory=dict)
    overall: Row | None = None
    routes: Sequence[Row] = ()
    partners: Sequence[Row] = ()
    reasons: Sequence[Row] = ()
    failures: Sequence[Row] = ()
    duplicates: Sequence[Row] = ()
    oldest: Sequence[Row] = ()
    silent: Sequence[Row] = ()
    gaps: Sequence[Row] = ()
    rejected_lines: int = 0
    altered_lines: int = 0
    violations: Sequence[Row] = ()
    violations_number: int = 0
    unaccounted: int = 0
    disagreed: int = 0

    @property
    def is_wrong(self) -> bool:
        """Messages are not accounted for, brokers disagree, or a journal was altered."""
        return self.unaccounted > 0 or self.disagreed > 0 or self.altered_lines > 0

    def number(self, *fates: str) -> int:
        """Return the number of messages with one of these fates."""
        return sum(number for (_, fate), number in self.fates.items() if fate in fates)

    @property
    def unmeasured(self) -> str:
        """A caveat about the octets of partners, in a sentence; mostly empty."""
        number = sum(row.unmeasured for row in self.partners)
        if not number:
            return ""
        return (
            f"For {number:,} messages the journals do not have the size of the bare message: their "
            "octets are those stored, with annotations, or none, and a partner may count others."
        )

    @property
    def is_hourly(self) -> bool:
        """The moments are hours."""
        return (self.last - self.first).days < HOURLY_DAYS


def facts(tables: FactTables, first: date, last: date) -> WarehouseFacts:
    """Query the tables.

    Args:
        tables: the tables of the days from `first` to `last` only.
        first: day.
        last: day.
    """
    said = WarehouseFacts(first, last, tables.missing)
    lists: dict[str, Callable[[], Sequence[Row]]] = {
        "routes": lambda: _routes(tables.hops),
        "partners": lambda: _partners(tables.hops, tables.runs),
        "gaps": lambda: _gaps(tables.around, tables.rejects, first, last),
        "oldest": lambda: _oldest(tables.hops, tables.vanished),
        "failures": lambda: _failures(tables.hops),
        "reasons": lambda: _reasons(tables.runs),
        "duplicates": lambda: _duplicates(tables.runs),
    }

    def fill(name: str) -> None:
        setattr(said, name, lists[name]())

    queries: list[Callable[[], None]] = [
        lambda: _add_messages(said, tables.messages, tables.vanished),
        *(functools.partial(fill, name) for name in lists),
        lambda: _add_brokers(said, tables.lately),
        lambda: _add_violations(said, tables.violations, tables.rejects),
    ]
    run_queries(tables.hops.sparkSession, queries)
    return said


def _add_brokers(said: WarehouseFacts, lately: DataFrame) -> None:
    brokers = _brokers(lately, said.first, said.last)
    said.domains = sorted({row.domain for row in brokers if row.records})
    said.records = sum(row.records for row in brokers)
    said.silent = [row for row in brokers if not row.records and row.kind != RecordKind.STOP]


def _add_violations(said: WarehouseFacts, violations: DataFrame, rejects: DataFrame | None) -> None:
    kind = F.when(F.col("what").isin(*reconcile.DISCREPANCIES), "between").when(
        F.col("what").isin(*REFUSALS), "line"
    )
    certain = F.count_if(~F.col("hidden")).alias("certain")
    wrong = violations.groupBy(kind.alias("kind")).agg(certain, F.count("*").alias("all"))
    rows = wrong.collect()
    numbers = {row["kind"]: row["certain"] for row in rows}
    said.violations_number = sum(row["all"] for row in rows)
    said.unaccounted, said.disagreed = numbers.get(None, 0), numbers.get("between", 0)
    said.altered_lines = numbers.get("line", 0)
    said.rejected_lines = 0 if rejects is None else rejects.count() - said.altered_lines
    order = ("hidden", "at_us", "broker", "entry")
    said.violations = violations.orderBy(*order).limit(MOST_ROWS).collect()


def vanished(hops: DataFrame, violations: DataFrame, starts: DataFrame) -> DataFrame:
    """Return the fates of missing entries.

    They have not ended and are in no queue either, or were handed over to a broker that did not get
    them.

    Args:
        hops: `amqproute.pipeline.table_schema.HOPS`.
        violations: `amqproute.pipeline.table_schema.VIOLATIONS`.
        starts: ``stream`` and ``start_us``, when the broker of a store started last.

    Returns:
        ``stream``, ``entry`` and ``gone``: `LOST`, `UNKNOWN` where missing records may explain it,
        or `FORGOTTEN`.
    """
    lost = violations.where(F.col("what").isin(*GONE)).select(
        "stream", "entry", F.when(F.col("hidden"), UNKNOWN).otherwise(LOST).alias("gone")
    )
    forgotten = hops.join(F.broadcast(starts), "stream").where(conservation.is_forgotten())
    return lost.unionByName(forgotten.select("stream", "entry", F.lit(FORGOTTEN).alias("gone")))


def _add_messages(said: WarehouseFacts, messages: DataFrame, gone: DataFrame) -> None:
    # As text: a timestamp would come to Python in the time zone of this machine.
    form = "yyyy-MM-dd HH:00" if said.is_hourly else "yyyy-MM-dd"
    at = F.date_format(F.timestamp_micros("began_us"), form).alias("at")
    known = messages.where("began_us IS NOT NULL").select(
        at, F.coalesce("fate", F.lit(WAITING)).alias("fate"), "latency_us", "size", "bare_size",
        "hops",
    )  # fmt: skip
    for row in known.groupBy("at", "fate").count().collect():
        said.fates[row.at, row.fate] = row["count"]
    left = known.where(F.col("fate").isin(WAITING, RecordKind.RELAYED))
    left = left.select("at", "fate", last_hop().alias("hop"))
    away = left.select("at", "fate", "hop.stream", "hop.entry").join(gone, ["stream", "entry"])
    for row in away.groupBy("at", "fate", "gone").count().collect():
        said.fates[row.at, row.fate] -= row["count"]
        said.fates[row.at, row.gone] = said.fates.get((row.at, row.gone), 0) + row["count"]
    said.moments = _moments(said)
    arrived = known.where(F.col("fate").isin(RecordKind.DELIVERED, RecordKind.RELAYED))
    for row in arrived.groupBy("at").agg(*_percentiles("latency_us")).collect():
        said.latency[row.at] = row
    said.overall = known.agg(
        F.count("*").alias("messages"),
        *billed(),
        *_percentiles("latency_us"),
        F.min("latency_us").alias("least"),
        F.max("latency_us").alias("most"),
    ).first()


def last_hop(name: str = "hops") -> Column:
    """Return the last hop of a message: the one that waits, if the message does.

    Args:
        name: column with its hops, those of copies and reports at the end.
    """
    way = F.filter(name, lambda hop: hop["parent"].isNull())
    return F.get(way, F.size(way) - 1)


def _moments(said: WarehouseFacts) -> list[str]:
    """Return all hours or days of the range, including those without messages."""
    days = [day.isoformat() for day in between(said.first, said.last)]
    if not said.is_hourly:
        return days
    return [f"{day} {hour:02}:00" for day in days for hour in range(24)]


def _percentiles(name: str) -> list[Column]:
    return [percentile(name, 0.5).alias("p50"), percentile(name, 0.99).alias("p99")]


def _routes(hops: DataFrame) -> Sequence[Row]:
    ended = hops.where(F.col("fate").isin(RecordKind.RELAYED, RecordKind.DELIVERED) & ~is_answer())
    ended = ended.withColumn("to_whom", _partner("peer"))
    stages = [percentile(name, 0.99).alias(name) for name in STAGES]
    return (
        ended.groupBy("domain", "to_whom")
        .agg(
            F.count("*").alias("messages"),
            *_percentiles("(ended_us - began_us)"),
            *stages,
        )
        .orderBy(F.desc("p99"), "domain", "to_whom")
        .limit(MOST_ROWS)
        .collect()
    )


def _partner(name: str) -> Column:
    return F.coalesce(partner(F.col(name)), F.lit(OWN))


def _partners(hops: DataFrame, runs: DataFrame) -> Sequence[Row]:
    """Sum up the messages to and from each partner, for billing.

    Also the deferrals of messages to it, singly or all that waited for it.
    """
    came = hops.where(F.col("sender").startswith(FOREIGN)).select(
        "domain", _partner("sender").alias("partner"), F.lit("from").alias("direction"), "size",
        "bare_size", F.lit(None).cast("long").alias("took"),
    )  # fmt: skip
    went = hops.where(
        (F.col("fate") == RecordKind.RELAYED) & F.col("peer").startswith(FOREIGN)
    ).select(
        "domain",
        _partner("peer").alias("partner"),
        F.lit("to").alias("direction"),
        "size",
        "bare_size",
        (F.col("ended_us") - F.col("began_us")).alias("took"),
    )
    by = ["domain", "partner", "direction"]
    counted = (
        came.unionByName(went)
        .groupBy(*by)
        .agg(F.count("*").alias("messages"), *billed(), percentile("took", 0.99).alias("p99"))
    )
    deferred = spread(runs.where(F.col("kind") == RecordKind.DEFERRED), ("peer", "count"))
    put_off = (
        deferred.where(F.col("peer").startswith(FOREIGN))
        .groupBy("domain", _partner("peer").alias("partner"), F.lit("to").alias("direction"))
        .agg(F.sum(F.coalesce("count", F.lit(1))).alias("deferrals"))
    )
    return (
        counted.join(put_off, by, "full")
        .fillna(0, ["messages", "octets", "unmeasured", "deferrals"])
        .orderBy(F.desc("octets"), "domain", "partner", "direction")
        .limit(MOST_PARTNERS)
        .collect()
    )


def _reasons(runs: DataFrame) -> Sequence[Row]:
    """Sum up the reasons of deferrals and of failed attempts to reach a host."""
    told = spread(
        runs.where(F.col("kind").isin(RecordKind.DEFERRED, RecordKind.ATTEMPT)),
        ("peer", "node", "condition", "code", "words", "count"),
    )
    why = F.coalesce("code", "condition")
    return (
        told.where(why.isNotNull())
        .groupBy("domain", F.coalesce("peer", "node").alias("towards"), "kind", why.alias("why"))
        .agg(
            F.sum(F.coalesce("count", F.lit(1))).alias("times"),
            F.max("words").alias("words"),
            F.max("time").alias("latest"),
        )
        .orderBy(F.desc("times"), "domain", "towards")
        .limit(MOST_ROWS)
        .collect()
    )


def _failures(hops: DataFrame) -> Sequence[Row]:
    return (
        hops.where(F.col("fate").isin(*FAILURES))
        .groupBy("domain", "queue", "fate", F.coalesce("code", "condition").alias("why"))
        .agg(
            F.count("*").alias("messages"),
            F.max("words").alias("words"),
            F.min("message_id").alias("example"),
            F.max("ended_us").alias("latest"),
        )
        .orderBy(F.desc("messages"), "domain", "queue")
        .limit(MOST_ROWS)
        .collect()
    )


def _duplicates(runs: DataFrame) -> Sequence[Row]:
    told = spread(runs.where(F.col("kind") == RecordKind.DUPLICATE), ("sender", "node"))
    return (
        told.groupBy("domain", "sender")
        .agg(F.count("*").alias("times"))
        .orderBy(F.desc("times"), "domain")
        .limit(MOST_ROWS)
        .collect()
    )


def _oldest(hops: DataFrame, gone: DataFrame) -> Sequence[Row]:
    return (
        hops.where(F.col("fate").isNull() & F.col("began_us").isNotNull() & ~is_answer())
        .join(gone, ["stream", "entry"], "left_anti")
        .select("domain", "queue", "message_id", "to", "began_us", "deferrals")
        .orderBy("began_us", "domain", "message_id")
        .limit(20)
        .collect()
    )


def _brokers(runs: DataFrame, first: date, last: date) -> Sequence[Row]:
    """Return the brokers that there are, with the number of their records of these days."""
    is_of_these = F.col("day").between(F.lit(first), F.lit(last))
    # `n` stays within a day: a run is of one instant.
    return (
        runs.groupBy("broker", "domain")
        .agg(
            F.coalesce(F.sum(F.when(is_of_these, F.col("n"))), F.lit(0)).alias("records"),
            F.max("day").alias("last"),
            F.max_by("kind", F.struct("time", "seq")).alias("kind"),
        )
        .orderBy("domain", "broker")
        .limit(MOST_PARTNERS)
        .collect()
    )


def _gaps(runs: DataFrame, rejects: DataFrame | None, first: date, last: date) -> Sequence[Row]:
    since, until = (
        F.unix_micros(F.lit(day).cast("timestamp")) for day in (first, last + timedelta(1))
    )
    holes = coverage.holes(runs, rejects)
    inner = holes.where(~F.col("reason").isin(coverage.BEGINS, coverage.ENDS))
    inner = inner.where((F.col("from_us") < until) & (F.col("until_us") >= since))
    return inner.orderBy("from_us").limit(MOST_ROWS).collect()
