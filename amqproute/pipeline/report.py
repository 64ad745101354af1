# SPDX-License-Identifier: Apache-2.0
"""The page about a day or a range of days, for operators and managers.

`report_page` presents the facts from `amqproute.pipeline.facts` by question: is anything wrong, how
much, how late and where, what did each partner cost, what was deferred, what failed, what still
waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Row

from amqproute.journal.record import RecordKind
from amqproute.pipeline.agreement import broker_name, gap_limit, instant
from amqproute.pipeline.charts import bars, columns, duration, lines, octets
from amqproute.pipeline.coverage import DOWN
from amqproute.pipeline.days import between, spans
from amqproute.pipeline.facts import (
    FAILURES,
    FATES,
    FORGOTTEN,
    LOST,
    STAGES,
    UNKNOWN,
    WAITING,
    WarehouseFacts,
)
from amqproute.pipeline.page import (
    PageCell,
    PageColumn,
    PageMarkup,
    note,
    page,
    section,
    table,
    tag,
    tiles,
)
from amqproute.pipeline.reconcile import DISCREPANCIES
from amqproute.pipeline.refusals import REFUSALS

__all__ = ["BEHIND", "headline", "report_page", "several"]

MOST_BARS: Final = 12
BEHIND: Final = "settle_us"
"""The stage after the end of a hop: it delays no message."""
_STAGES_IN_WORDS: Final = (
    "Queue: waiting for its turn. Resolve, connect: finding and reaching the next broker. Wire: "
    "from the hand-over to the answer. Settle: recording the answer; the message has arrived by "
    "then, and is not delayed."
)


def headline(said: WarehouseFacts) -> list[tuple[str, str, list[str]]]:
    """Return the headline: state, sentence and details of each item."""
    heads: list[tuple[str, str, list[str]]] = []
    certain = [each for each in said.violations if not each.hidden]
    if said.unaccounted:
        words = f"{several(said.unaccounted, 'message is', 'messages are')} not accounted for"
        heads.append(("bad", words, _details(certain, is_between=False)))
    if said.disagreed:
        words = f"Brokers contradict each other about {several(said.disagreed, 'hand-over')}"
        heads.append(("bad", words, _details(certain, is_between=True)))
    if said.altered_lines:
        altered = several(said.altered_lines, "line of a journal was", "lines of journals were")
        words = f"{altered} altered"
        lines = [each for each in certain if each.what in REFUSALS][:5]
        heads.append(("bad", words, [f"{each.what}: {each.node}" for each in lines]))
    messages = said.overall.messages if said.overall else 0
    if not said.is_wrong and not messages:
        what = " of messages" if said.records else ""
        days = spans(between(said.first, said.last))
        heads.append(("doubtful", f"There are no records{what} of {days}: nothing is known", []))
    elif not said.is_wrong:
        heads.append(
            (
                "good",
                "Every message that was accepted is accounted for: delivered, handed over, "
                "returned, expired, deleted, a dead letter, or still in a queue",
                [],
            )
        )
    # A stopped broker has missed nothing.
    if gaps := [gap for gap in said.gaps if gap.reason != DOWN]:
        details = [
            f"{each.reason}: {broker_name(each)}, "
            f"{gap_limit(each.from_us)} to {gap_limit(each.until_us)}"
            for each in gaps[:5]
        ]
        heads.append(("doubtful", "Journals have gaps: events in them are unknown", details))
    if said.silent:
        number = several(len(said.silent), "broker has", "brokers have")
        words = f"{number} no records, unlike in the week before: hand-overs there are unknown"
        details = [f"{broker_name(row)}: none since {row.last}" for row in said.silent[:5]]
        heads.append(("doubtful", words, details))
    if said.missing and (messages or said.records):
        heads.append(("doubtful", f"There are no records of {spans(said.missing)}", []))
    if forgotten := said.number(FORGOTTEN):
        words = several(
            forgotten,
            "non-durable message was lost when its broker started again",
            "non-durable messages were lost when their broker started again",
        )
        heads.append(("doubtful", words, []))
    if said.rejected_lines:
        heads.append(("doubtful", several(said.rejected_lines, "unreadable line"), []))
    least = said.overall.least if said.overall else None
    if least is not None and least < 0:
        words = f"Clocks differ: messages ended up to {duration(-least)} before they began"
        details = [
            "delays over several organizations have this error, those of single hops are correct",
            "for the differences: amqproute pipeline reconcile",
        ]
        heads.append(("doubtful", words, details))
    failed = said.number(*FAILURES)
    if failed:
        words = f"{several(failed, 'message')} could not be delivered: see the reasons below"
        heads.append(("doubtful", words, []))
    return heads


def several(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 line``, ``2,500 lines``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _details(violations: Sequence[Row], *, is_between: bool) -> list[str]:
    """Name the first violations within one broker, or between two."""
    entries = [each for each in violations if each.what not in REFUSALS]
    chosen = [each for each in entries if (each.what in DISCREPANCIES) == is_between]
    return [
        f"{each.what}: {_named(each)} at {broker_name(each)}, {each.node}" for each in chosen[:5]
    ]


def _named(violation: Row) -> str:
    return str(violation.message_id or f"entry {violation.entry}")


def report_page(said: WarehouseFacts) -> str:
    """Make the page."""
    days = said.first.isoformat()
    if said.last != said.first:
        days += f" to {said.last.isoformat()}"
    return page(
        f"Messages, {days}",
        f"All times UTC · {said.records:,} records of the journals of "
        f"{', '.join(said.domains) or 'no organization'}",
        *(note(words, state, details) for state, words, details in headline(said)),
        _tiles(said),
        _volume(said),
        _delay(said),
        _costs(said),
        _trouble(said),
        _proof(said),
    )


def _tiles(said: WarehouseFacts) -> PageMarkup:
    overall = said.overall
    total = overall.messages if overall else 0
    arrived = said.number(RecordKind.DELIVERED, RecordKind.RELAYED)
    share = f"{100 * arrived / total:.4g} %" if total else ""
    return tiles(
        [
            ("Accepted", f"{total:,}", octets(overall.octets) if overall else ""),
            ("Arrived", f"{arrived:,}", share),
            ("Waiting", f"{said.number(WAITING):,}", "still in a queue"),
            ("Lost", f"{said.number(LOST):,}", _doubts(said)),
            ("Failed", f"{said.number(*FAILURES):,}", "expired, refused, dead letters"),
            ("Half within", _took(overall.p50 if overall else None), "from publisher to consumer"),
            ("99 of 100 within", _took(overall.p99 if overall else None), _slowest(said)),
        ]
    )


def _doubts(said: WarehouseFacts) -> str:
    """Return the numbers of other messages without an end that do not wait."""
    numbers = {
        "lost in a restart": said.number(FORGOTTEN),
        "in gaps of journals": said.number(UNKNOWN),
    }
    others = [f"{number:,} {words}" for words, number in numbers.items() if number]
    return "; ".join(others) or "neither ended nor in a queue"


def _took(microseconds: int | None) -> str:
    return "-" if microseconds is None else duration(microseconds)


def _slowest(said: WarehouseFacts) -> str:
    most = said.overall.most if said.overall else None
    return "" if most is None else f"slowest {duration(most)}"


def _labels(said: WarehouseFacts) -> list[str]:
    if said.first == said.last:
        return [at[len("2026-11-22 ") :] for at in said.moments]
    # Short: there is room for a dozen of them.
    return [at[len("2026-") :].replace(":00", "h") for at in said.moments]


def _volume(said: WarehouseFacts) -> PageMarkup:
    present = [fate for fate in FATES if said.number(fate)]
    others = sorted({fate for _, fate in said.fates} - FATES.keys())
    series = {
        FATES.get(fate, fate): [said.fates.get((at, fate), 0) for at in said.moments]
        for fate in (*present, *others)
    }
    unit = "hour" if said.is_hourly else "day"
    return section(
        "Volume",
        "How many messages were accepted, and what became of them?",
        columns(
            f"Messages in each {unit}", "by time of acceptance", _labels(said), series
        ),
    )  # fmt: skip


def _delay(said: WarehouseFacts) -> PageMarkup:
    stages = {
        name.removesuffix("_us"): [row[name] for row in said.routes[:MOST_BARS]]
        for name in STAGES
        if name != BEHIND and any(row[name] for row in said.routes)
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
            "the 99th percentile of each stage by itself, and of the whole hop behind the bar",
            ways[:MOST_BARS], stages, ends=[row.p99 for row in said.routes[:MOST_BARS]],
        ),
        tag("p", _STAGES_IN_WORDS, class_="question"),
        table(
            "Hops",
            [
                PageColumn("From"), PageColumn("To"), PageColumn("Messages", right=True),
                PageColumn("Half within", right=True), PageColumn("99 of 100 within", right=True),
                *(PageColumn(name.removesuffix("_us"), right=True) for name in STAGES),
            ],
            [
                (
                    row.domain, row.to_whom, row.messages, _time(row.p50), _time(row.p99),
                    *(_time(row[name]) for name in STAGES),
                )
                for row in said.routes
            ],
        ),
    )  # fmt: skip


def _of(said: WarehouseFacts, at: str, name: str) -> float | None:
    row = said.latency.get(at)
    value: float | None = row[name] if row is not None else None
    return value


def _time(microseconds: int | None) -> PageCell | None:
    return None if microseconds is None else PageCell(duration(microseconds), microseconds)


def _costs(said: WarehouseFacts) -> PageMarkup:
    shown = said.partners[:MOST_BARS]
    question = "How much did each partner cost: messages, octets, and second attempts?"
    return section(
        "Partners",
        f"{question} {said.unmeasured}".rstrip(),
        bars(
            "Octets", "to and from each partner, of bare messages: both sides count the same",
            [f"{row.domain} {row.direction} {row.partner}" for row in shown],
            {"octets": [row.octets for row in shown]}, octets,
        ),
        table(
            "Partners",
            [
                PageColumn("Organization"), PageColumn(""), PageColumn("Partner"),
                PageColumn("Messages", right=True), PageColumn("Octets", right=True),
                PageColumn("Put off", right=True), PageColumn("99 of 100 within", right=True),
            ],
            [
                (
                    row.domain, row.direction, row.partner, row.messages,
                    row.octets, row.deferrals, _time(row.p99),  # to the octet: it is a bill
                )
                for row in said.partners
            ],
        ),
    )  # fmt: skip


def _trouble(said: WarehouseFacts) -> PageMarkup:
    return section(
        "Deferrals and failures",
        "Why were messages put off, what failed, and what still waits?",
        table(
            "Put off, and failed attempts",
            [
                PageColumn("Organization"),
                PageColumn("Towards"),
                PageColumn("What"),
                PageColumn("Why", code=True),
                PageColumn("Times", right=True),
                PageColumn("In words"),
                PageColumn("Last"),
            ],
            [
                (
                    row.domain,
                    row.towards,
                    row.kind,
                    row.why,
                    row.times,
                    row.words,
                    instant(row.latest),
                )
                for row in said.reasons
            ],
        ),
        table(
            "Failed",
            [
                PageColumn("Organization"),
                PageColumn("Queue"),
                PageColumn("What"),
                PageColumn("Why", code=True),
                PageColumn("Messages", right=True),
                PageColumn("In words"),
                PageColumn("For example", code=True),
                PageColumn("Last"),
            ],
            [
                (
                    row.domain,
                    row.queue,
                    FATES.get(row.fate, row.fate),
                    row.why,
                    row.messages,
                    row.words,
                    row.example,
                    instant(row.latest),
                )
                for row in said.failures
            ],
        ),
        table(
            "Waiting the longest",
            [
                PageColumn("Organization"),
                PageColumn("Queue"),
                PageColumn("Message-id", code=True),
                PageColumn("For"),
                PageColumn("Since"),
                PageColumn("Given back", right=True),
            ],
            [
                (
                    row.domain,
                    row.queue,
                    row.message_id,
                    row.to,
                    instant(row.began_us),
                    row.deferrals,
                )
                for row in said.oldest
            ],
        ),
        table(
            "Suppressed duplicates",
            [PageColumn("Organization"), PageColumn("By"), PageColumn("Times", right=True)],
            [(row.domain, row.sender, row.times) for row in said.duplicates],
        ),
    )


def _proof(said: WarehouseFacts) -> PageMarkup:
    accounts = table(
        "Not accounted for",
        [
            PageColumn("What"),
            PageColumn("Broker"),
            PageColumn("Queue"),
            PageColumn("Message-id", code=True),
            PageColumn("Entry", code=True),
            PageColumn("When"),
            PageColumn("Explained by a gap"),
        ],
        [
            (
                row.what,
                broker_name(row),
                row.node,
                row.message_id,
                None if row.entry is None else f"{row.stream}/{row.entry}",
                instant(row.at_us),
                "perhaps" if row.hidden else None,
            )
            for row in said.violations
        ],
    )
    shown, wrong = len(said.violations), said.violations_number
    more = f" {shown:,} of {wrong:,} are listed; the table violations has all."
    gaps = table(
        "Gaps in the journals",
        [
            PageColumn("Broker"), PageColumn("From"), PageColumn("Until"), PageColumn("Why"),
            PageColumn("Records", right=True),
        ],
        [
            (
                broker_name(row), gap_limit(row.from_us), gap_limit(row.until_us), row.reason,
                row["count"],
            )
            for row in said.gaps
        ],
    )  # fmt: skip
    return section(
        "Accounts",
        "Did every accepted message get somewhere, and do the brokers with journals here agree on "
        "their hand-overs? To compare with another partner's journal: "
        f"amqproute pipeline reconcile.{more if wrong > shown else ''}",
        accounts,
        gaps,
    )
