# SPDX-License-Identifier: Apache-2.0
"""The report about a day or a range of days: what an operator and a manager want to know.

`facts` asks the tables, and gets sums, percentiles and the first rows of lists: as much for a
thousand messages as for a billion. `report_page` writes them down, in the order of the questions:
is anything wrong, how much, how late and where, what did each partner cost, what was put off, what
failed, what still waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from amqproute.journal.record import Kind
from amqproute.pipeline import coverage
from amqproute.pipeline.agreement import instant
from amqproute.pipeline.charts import bars, columns, duration, lines, octets
from amqproute.pipeline.ingest import spread
from amqproute.pipeline.page import Cell, Column, Markup, note, page, section, table, tag, tiles

__all__ = ["FATES", "WAITING", "Facts", "Tables", "facts", "headline", "report_page"]

MOST_ROWS: Final = 100
"""Rows of a list, at most."""
MOST_BARS: Final = 12
HOURLY_DAYS: Final = 4
"""Ranges of up to so many days are shown by the hour, longer ones by the day."""

WAITING: Final = "waiting"
FATES: Final = {
    Kind.DELIVERED: "delivered",
    Kind.RELAYED: "handed over",
    WAITING: "waiting",
    Kind.EXPIRED: "expired",
    Kind.DEAD_LETTERED: "dead letters",
    Kind.REJECTED: "rejected",
    Kind.RETURNED: "returned",
    Kind.DELETED: "deleted",
}
"""What can become of a message, in the words of the page. *Handed over*: to an organization whose
journal is not among the tables."""

_FAILURES: Final = (Kind.EXPIRED, Kind.DEAD_LETTERED, Kind.REJECTED, Kind.RETURNED)
_STAGES: Final = ("queue_us", "resolve_us", "connect_us", "wire_us", "settle_us")
_BEHIND: Final = "settle_us"
"""The stage behind the end of a hop: it delays no message."""
_STAGES_IN_WORDS: Final = (
    "Queue: waited for its turn. Resolve, connect: to find the next broker, and to reach it. Wire: "
    "from the hand-over to the answer. Settle: to write the answer down; the message is there "
    "already, and not late by that."
)
_OWN: Final = "own clients"


@dataclass(frozen=True, slots=True)
class Tables:
    """What a report is made of, each of the days in question only.

    Attributes:
        runs: `amqproute.pipeline.schema.RUNS`.
        hops: `amqproute.pipeline.schema.HOPS`.
        messages: `amqproute.pipeline.schema.MESSAGES`.
        rejects: `amqproute.pipeline.schema.REJECTS`.
        violations: `amqproute.pipeline.schema.VIOLATIONS`.
    """

    runs: DataFrame
    hops: DataFrame
    messages: DataFrame
    rejects: DataFrame
    violations: DataFrame


@dataclass(slots=True)
class Facts:
    """What a report says.

    Attributes:
        first: day.
        last: day.
        domains: organizations with a journal.
        records: how many records were read.
        moments: hours or days, in order.
        fates: messages by moment and fate.
        latency: by moment: ``p50`` and ``p99`` of those that came to their end.
        overall: messages, octets, ``p50``, ``p99``, the least and the most.
        routes: durations of the stages on each way from one organization to the next.
        partners: volumes by organization, partner and direction.
        reasons: why messages were put off, and how many.
        failures: what could not be delivered, and why.
        duplicates: what was sent again and suppressed.
        oldest: what waits the longest.
        gaps: of the journals.
        rejected_lines: lines of journals that could not be read.
        violations: what conservation does not allow, the first of them.
        unaccounted: how many there are that no gap of a journal explains.
    """

    first: date
    last: date
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
    gaps: Sequence[Row] = ()
    rejected_lines: int = 0
    violations: Sequence[Row] = ()
    unaccounted: int = 0

    def number(self, *fates: str) -> int:
        """Return how many messages came to one of these fates."""
        return sum(number for (_, fate), number in self.fates.items() if fate in fates)


def facts(tables: Tables, first: date, last: date) -> Facts:
    """Ask the tables.

    Args:
        tables: of the days from `first` to `last`, and nothing of others.
        first: day.
        last: day.
    """
    said = Facts(first, last)
    sums = tables.runs.groupBy("domain").agg(F.sum("n").alias("records")).limit(MOST_ROWS)
    for row in sums.orderBy("domain").collect():
        said.domains.append(row.domain)
        said.records += row.records
    _add_messages(said, tables.messages)
    said.routes = _routes(tables.hops)
    said.partners = _partners(tables.hops)
    said.reasons = _reasons(tables.runs)
    said.failures = _failures(tables.hops)
    said.duplicates = _duplicates(tables.runs)
    said.oldest = _oldest(tables.hops)
    said.gaps = _gaps(tables.runs)
    said.rejected_lines = tables.rejects.count()
    said.unaccounted = tables.violations.where(~F.col("hidden")).count()
    order = ("hidden", "at_us", "broker", "entry")
    said.violations = tables.violations.orderBy(*order).limit(MOST_ROWS).collect()
    return said


def _add_messages(said: Facts, messages: DataFrame) -> None:
    # As text: a timestamp would come to Python in the time zone of this machine.
    form = "yyyy-MM-dd HH:00" if _is_hourly(said) else "yyyy-MM-dd"
    at = F.date_format(F.timestamp_micros("began_us"), form).alias("at")
    known = messages.where("began_us IS NOT NULL").select(
        at, F.coalesce("fate", F.lit(WAITING)).alias("fate"), "latency_us", "size"
    )
    for row in known.groupBy("at", "fate").count().collect():
        said.fates[row.at, row.fate] = row["count"]
    said.moments = _moments(said)
    arrived = known.where(F.col("fate").isin(Kind.DELIVERED, Kind.RELAYED))
    for row in arrived.groupBy("at").agg(*_percentiles("latency_us")).collect():
        said.latency[row.at] = row
    said.overall = known.agg(
        F.count("*").alias("messages"),
        F.coalesce(F.sum("size"), F.lit(0)).alias("octets"),
        *_percentiles("latency_us"),
        F.min("latency_us").alias("least"),
        F.max("latency_us").alias("most"),
    ).first()


def _is_hourly(said: Facts) -> bool:
    return (said.last - said.first).days < HOURLY_DAYS


def _moments(said: Facts) -> list[str]:
    """Return all hours or days of the range, those without messages too."""
    days = [
        (said.first + timedelta(n)).isoformat() for n in range((said.last - said.first).days + 1)
    ]
    if not _is_hourly(said):
        return days
    return [f"{day} {hour:02}:00" for day in days for hour in range(24)]


def _percentiles(name: str) -> list[Expression]:
    return [
        F.percentile_approx(name, 0.5).alias("p50"),
        F.percentile_approx(name, 0.99).alias("p99"),
    ]


def _routes(hops: DataFrame) -> Sequence[Row]:
    ended = hops.where(F.col("fate").isin(Kind.RELAYED, Kind.DELIVERED)).withColumn(
        "to_whom", _partner("peer")
    )
    stages = [F.percentile_approx(name, 0.99).alias(name) for name in _STAGES]
    total = F.col("ended_us") - F.col("began_us")
    return (
        ended.groupBy("domain", "to_whom")
        .agg(
            F.count("*").alias("messages"),
            F.percentile_approx(total, 0.5).alias("p50"),
            F.percentile_approx(total, 0.99).alias("p99"),
            *stages,
        )
        .orderBy(F.desc("p99"), "domain", "to_whom")
        .limit(MOST_ROWS)
        .collect()
    )


def _partner(name: str) -> Expression:
    column = F.col(name)
    return F.when(column.startswith("peer:"), F.substring(column, 6, 1 << 20)).otherwise(_OWN)


def _partners(hops: DataFrame) -> Sequence[Row]:
    """Sum up what went to and came from each partner: what is billed."""
    came = hops.where(F.col("sender").startswith("peer:")).select(
        "domain", _partner("sender").alias("partner"), F.lit("from").alias("direction"), "size",
        F.lit(0).alias("deferrals"), F.lit(None).cast("long").alias("took"),
    )  # fmt: skip
    went = hops.where((F.col("fate") == Kind.RELAYED) & F.col("peer").startswith("peer:")).select(
        "domain", _partner("peer").alias("partner"), F.lit("to").alias("direction"), "size",
        "deferrals", (F.col("ended_us") - F.col("began_us")).alias("took"),
    )  # fmt: skip
    return (
        came.unionByName(went)
        .groupBy("domain", "partner", "direction")
        .agg(
            F.count("*").alias("messages"),
            F.coalesce(F.sum("size"), F.lit(0)).alias("octets"),
            F.sum("deferrals").alias("deferrals"),
            F.percentile_approx("took", 0.99).alias("p99"),
        )
        .orderBy(F.desc("octets"), "domain", "partner", "direction")
        .limit(MOST_ROWS)
        .collect()
    )


def _reasons(runs: DataFrame) -> Sequence[Row]:
    """Sum up why messages were put off, and why attempts to reach a host failed."""
    told = spread(
        runs.where(F.col("kind").isin(Kind.DEFERRED, Kind.ATTEMPT)),
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
        hops.where(F.col("fate").isin(*_FAILURES))
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
    told = spread(runs.where(F.col("kind") == Kind.DUPLICATE), ("sender", "node"))
    return (
        told.groupBy("domain", "sender")
        .agg(F.count("*").alias("times"))
        .orderBy(F.desc("times"), "domain")
        .limit(MOST_ROWS)
        .collect()
    )


def _oldest(hops: DataFrame) -> Sequence[Row]:
    return (
        hops.where(F.col("fate").isNull() & F.col("began_us").isNotNull())
        .select("domain", "queue", "message_id", "to", "began_us", "deferrals")
        .orderBy("began_us", "domain", "message_id")
        .limit(20)
        .collect()
    )


def _gaps(runs: DataFrame) -> Sequence[Row]:
    holes = coverage.holes(runs)
    inner = holes.where(~F.col("reason").isin(coverage.BEGINS, coverage.ENDS))
    return inner.orderBy("from_us").limit(MOST_ROWS).collect()


# -- in words ----------------------------------------------------------------------------------


def headline(said: Facts) -> list[tuple[str, str, list[str]]]:
    """Return what is to be seen first: state, sentence and details."""
    heads: list[tuple[str, str, list[str]]] = []
    if said.unaccounted:
        words = f"{said.unaccounted:,} messages are not accounted for"
        first = [each for each in said.violations if not each.hidden][:5]
        details = [f"{each.what}: {_named(each)} at {each.broker}, {each.node}" for each in first]
        heads.append(("bad", words, details))
    else:
        heads.append(
            (
                "good",
                "Every message that was accepted is accounted for: delivered, handed over, "
                "returned, expired, deleted, a dead letter, or still in a queue",
                [],
            )
        )
    if said.gaps:
        heads.append(("doubtful", "Journals have gaps: what happened there is not known", []))
    if said.rejected_lines:
        heads.append(("doubtful", f"{said.rejected_lines:,} lines could not be read", []))
    least = said.overall.least if said.overall else None
    if least is not None and least < 0:
        words = (
            f"Clocks differ: messages came to their end up to {duration(-least)} before they began"
        )
        details = [
            "delays over more than one organization are as wrong, those of single hops are right",
            "by how much they differ: amqproute pipeline reconcile",
        ]
        heads.append(("doubtful", words, details))
    failed = said.number(*_FAILURES)
    if failed:
        heads.append(("doubtful", f"{failed:,} messages could not be delivered: see below", []))
    return heads


def _named(violation: Row) -> str:
    return str(violation.message_id or f"entry {violation.entry}")


def report_page(said: Facts) -> str:
    """Write the page."""
    days = said.first.isoformat()
    if said.last != said.first:
        days += f" to {said.last.isoformat()}"
    return page(
        f"Messages, {days}",
        f"{', '.join(said.domains) or 'no organization'} · {said.records:,} records of their "
        "journals · all times UTC",
        *(note(words, state, details) for state, words, details in headline(said)),
        _tiles(said),
        _volume(said),
        _delay(said),
        _costs(said),
        _trouble(said),
        _proof(said),
    )


def _tiles(said: Facts) -> Markup:
    overall = said.overall
    total = overall.messages if overall else 0
    arrived = said.number(Kind.DELIVERED, Kind.RELAYED)
    share = f"{100 * arrived / total:.4g} %" if total else ""
    return tiles(
        [
            ("Accepted", f"{total:,}", octets(overall.octets) if overall else ""),
            ("Arrived", f"{arrived:,}", share),
            ("Waiting", f"{said.number(WAITING):,}", "still in a queue"),
            ("Failed", f"{said.number(*_FAILURES):,}", "expired, refused, dead letters"),
            ("Half within", _took(overall.p50 if overall else None), "from publisher to consumer"),
            ("99 of 100 within", _took(overall.p99 if overall else None), _slowest(said)),
        ]
    )


def _took(microseconds: int | None) -> str:
    return "-" if microseconds is None else duration(microseconds)


def _slowest(said: Facts) -> str:
    most = said.overall.most if said.overall else None
    return "" if most is None else f"slowest {duration(most)}"


def _labels(said: Facts) -> list[str]:
    skipped = len("2026-11-22 ") if said.first == said.last else len("2026-")
    return [at[skipped:] for at in said.moments]


def _volume(said: Facts) -> Markup:
    present = [fate for fate in FATES if said.number(fate)]
    others = sorted({fate for _, fate in said.fates} - FATES.keys())
    series = {
        FATES.get(fate, fate): [said.fates.get((at, fate), 0) for at in said.moments]
        for fate in (*present, *others)
    }
    unit = "hour" if _is_hourly(said) else "day"
    return section(
        "Volume",
        "How many messages were accepted, and what has become of them?",
        columns(
            f"Messages in each {unit}", "by when they were accepted", _labels(said), series
        ),
    )  # fmt: skip


def _delay(said: Facts) -> Markup:
    stages = {
        name.removesuffix("_us"): [row[name] for row in said.routes[:MOST_BARS]]
        for name in _STAGES
        if name != _BEHIND and any(row[name] for row in said.routes)
    }
    ways = [f"{row.domain} → {row.to_whom}" for row in said.routes]
    return section(
        "Delay",
        "How late are we, and at which stage?",
        lines(
            "From the publisher to the end", "logarithmic", _labels(said),
            {
                "half within": [_of(said, at, "p50") for at in said.moments],
                "99 of 100 within": [_of(said, at, "p99") for at in said.moments],
            },
        ),
        bars(
            "Stages of each hop",
            "99 of 100 are faster: in each stage by itself, and behind the bar in the whole hop",
            ways[:MOST_BARS], stages, ends=[row.p99 for row in said.routes[:MOST_BARS]],
        ),
        tag("p", _STAGES_IN_WORDS, class_="question"),
        table(
            "Hops",
            [
                Column("From"), Column("To"), Column("Messages", right=True),
                Column("Half within", right=True), Column("99 of 100 within", right=True),
                *(Column(name.removesuffix("_us"), right=True) for name in _STAGES),
            ],
            [
                (
                    row.domain, row.to_whom, row.messages, _time(row.p50), _time(row.p99),
                    *(_time(row[name]) for name in _STAGES),
                )
                for row in said.routes
            ],
        ),
    )  # fmt: skip


def _of(said: Facts, at: str, name: str) -> float | None:
    row = said.latency.get(at)
    value: float | None = row[name] if row is not None else None
    return value


def _time(microseconds: int | None) -> Cell | None:
    return None if microseconds is None else Cell(duration(microseconds), microseconds)


def _costs(said: Facts) -> Markup:
    shown = said.partners[:MOST_BARS]
    return section(
        "Partners",
        "What did each partner cost us: messages, octets, and second attempts?",
        bars(
            "Octets", "to and from each partner",
            [f"{row.domain} {row.direction} {row.partner}" for row in shown],
            {"octets": [row.octets for row in shown]}, octets,
        ),
        table(
            "Partners",
            [
                Column("Organization"), Column(""), Column("Partner"),
                Column("Messages", right=True), Column("Octets", right=True),
                Column("Put off", right=True), Column("99 of 100 within", right=True),
            ],
            [
                (
                    row.domain, row.direction, row.partner, row.messages,
                    Cell(octets(row.octets), row.octets), row.deferrals, _time(row.p99),
                )
                for row in said.partners
            ],
        ),
    )  # fmt: skip


def _trouble(said: Facts) -> Markup:
    return section(
        "What did not go smoothly",
        "Why were messages put off, what failed, and what still waits?",
        table(
            "Put off",
            [
                Column("Organization"), Column("Towards"), Column("What"), Column("Why", code=True),
                Column("Times", right=True), Column("In words"), Column("Last"),
            ],
            [
                (row.domain, row.towards, row.kind, row.why, row.times, row.words,
                 instant(row.latest))
                for row in said.reasons
            ],
        ),
        table(
            "Failed",
            [
                Column("Organization"), Column("Queue"), Column("What"), Column("Why", code=True),
                Column("Messages", right=True), Column("In words"),
                Column("For example", code=True), Column("Last"),
            ],
            [
                (row.domain, row.queue, FATES.get(row.fate, row.fate), row.why, row.messages,
                 row.words, row.example, instant(row.latest))
                for row in said.failures
            ],
        ),
        table(
            "Waiting the longest",
            [
                Column("Organization"), Column("Queue"), Column("Message-id", code=True),
                Column("For"), Column("Since"), Column("Put off", right=True),
            ],
            [
                (row.domain, row.queue, row.message_id, row.to, instant(row.began_us),
                 row.deferrals)
                for row in said.oldest
            ],
        ),
        table(
            "Sent again, and suppressed",
            [Column("Organization"), Column("By"), Column("Times", right=True)],
            [(row.domain, row.sender, row.times) for row in said.duplicates],
        ),
    )  # fmt: skip


def _proof(said: Facts) -> Markup:
    accounts = table(
        "Not accounted for",
        [
            Column("What"), Column("Broker"), Column("Queue"), Column("Message-id", code=True),
            Column("Entry", code=True), Column("When"), Column("Explained by a gap"),
        ],
        [
            (
                row.what, row.broker, row.node, row.message_id, f"{row.stream}/{row.entry}",
                instant(row.at_us), "perhaps" if row.hidden else None,
            )
            for row in said.violations
        ],
    )  # fmt: skip
    gaps = table(
        "Gaps in the journals",
        [
            Column("Broker"), Column("From"), Column("Until"), Column("Why"),
            Column("Records", right=True),
        ],
        [
            (row.broker, instant(row.from_us), instant(row.until_us), row.reason, row["count"])
            for row in said.gaps
        ],
    )  # fmt: skip
    return section(
        "Accounts",
        "Did everything that was accepted get somewhere? Whether a partner agrees says: "
        "amqproute pipeline reconcile.",
        accounts,
        gaps,
    )
