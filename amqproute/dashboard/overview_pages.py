# SPDX-License-Identifier: Apache-2.0
"""The overview: what is wrong, how much there is, how it moves, and how much room is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.dashboard.display_units import (
    DASH,
    address,
    age,
    number,
    rate,
    size,
)
from amqproute.dashboard.line_chart import line_chart
from amqproute.dashboard.page_blocks import (
    ActionButton,
    Block,
    Cell,
    Column,
    Facts,
    Figure,
    Figures,
    Note,
    Page,
    PageState,
    Problem,
    Problems,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, maps, real, text, whole
from amqproute.dashboard.traffic_history import TrafficHistory

__all__ = ["OverviewFacts", "overview_page", "problems_of"]

_STATES: Final[Mapping[str, PageState]] = {"critical": "bad", "warning": "doubtful"}


@dataclass(frozen=True, slots=True)
class OverviewFacts:
    """Contents of the overview.

    Attributes:
        broker: attributes of the broker: ``name``, ``version``, ``domains``, ``up-ms``.
        status: the answer to STATUS; empty if it is not for this user.
        watermarks: rows.
        history: traffic of the last minutes.
        refused: why there is no status; empty if there is.
    """

    broker: Row
    status: Row
    watermarks: Sequence[Row]
    history: TrafficHistory
    refused: str = ""


def problems_of(status: Row) -> Sequence[Problem]:
    """Return the verdicts of STATUS, the gravest first."""
    shown: dict[str, int] = {}
    for each in maps(status, "verdicts"):
        shown[text(each, "code")] = shown.get(text(each, "code"), 0) + 1
    totals = status.get("counts")
    found: list[Problem] = []
    last: dict[str, int] = {}
    for each in maps(status, "verdicts"):
        code, subject = text(each, "code"), text(each, "subject")
        last[code] = len(found)
        found.append(
            Problem(
                _STATES.get(text(each, "severity"), "doubtful"),
                subject,
                text(each, "description"),
                _where(code, subject),
                text(each, "next"),
                code,
            )
        )
    if isinstance(totals, Mapping):
        for code, place in last.items():
            total = totals.get(code)
            more = total - shown[code] if isinstance(total, int) else 0
            if more > 0:
                old = found[place]
                found[place] = Problem(
                    old.state, old.subject, old.words, old.href, old.command, code, more
                )
    return sorted(found, key=lambda each: each.state != "bad")


def _where(code: str, subject: str) -> str:
    """Return the page that tells more about a verdict."""
    part = code.partition(".")[0]
    if part == "peer":
        return address("peer", name=subject)
    if part == "dns":
        return address("peers", contains=subject)
    if part == "node":
        return address("queue", name=subject)
    if part in ("certificate", "clock"):
        return address("broker")
    if part == "contract":
        return address("users")
    return ""


def overview_page(facts: OverviewFacts) -> Page:
    """Make the page."""
    problems = problems_of(facts.status)
    blocks: list[Block] = [
        Note("refused", f"The state of the broker is not for you: {facts.refused}.", "doubtful")
        if facts.refused
        else Problems("problems", problems)
    ]
    blocks += [_figures(facts), *_charts(facts.history), _marks(facts.watermarks)]
    peers = maps(facts.status, "peers")
    if peers:
        blocks.append(_troubled(peers))
    blocks.append(_broker(facts.broker))
    is_draining = any(each.code == "daemon.draining" for each in problems)
    button = (
        ActionButton("End the drain", "drain-end")
        if is_draining
        else ActionButton("Drain: take no new messages", "drain")
    )
    blocks.append(Toolbar("tools", [button]))
    name = text(facts.broker, "name", "this broker")
    return Page("Overview", blocks, "overview", subtitle=name)


def _figures(facts: OverviewFacts) -> Figures:
    history = facts.history
    latest = history.latest
    here = out = oldest = None
    where = ""
    if latest is not None:
        here, out = latest.here, latest.outgoing
        oldest, where = latest.oldest_ms, latest.oldest_queue
    counted = facts.status.get("messages")
    if isinstance(counted, Mapping):
        here = whole(counted, "here") if here is None else here
        out = whole(counted, "to-others") if out is None else out
    href = address("queue", name=where) if where else ""
    return Figures(
        "figures",
        [
            Figure("taken", rate(history.rate("taken")), "messages from clients and peers"),
            Figure("delivered", rate(history.rate("delivered")), "to consumers here"),
            Figure("relayed", rate(history.rate("relayed")), "to other organizations"),
            Figure("waiting here", number(here), "in queues and subscriptions"),
            Figure("waiting for others", number(out), "in relay queues"),
            Figure("oldest waiting", age(oldest), where or "no message waits", href=href),
        ],
    )


def _charts(history: TrafficHistory) -> list[Block]:
    times = history.times_ms
    return [
        line_chart(
            "rates",
            "Messages per second",
            times,
            [
                ("taken", history.rates("taken")),
                ("delivered", history.rates("delivered")),
                ("relayed", history.rates("relayed")),
            ],
            rate,
        ),
        line_chart(
            "depths",
            "Messages waiting",
            times,
            [("here", history.values("here")), ("for others", history.values("outgoing"))],
            number,
        ),
    ]


_MARKS: Final = {
    "disk": "free space on the disk",
    "max-bytes": "size of the store",
    "memory": "messages in memory",
    "store": "the store takes messages",
    "journal": "the journal takes records",
    "damage": "the database is sound",
    "outgoing": "octets on their way out",
    "destinations": "next hops",
    "drain": "drain",
}


def _marks(rows: Sequence[Row]) -> Table:
    made = []
    for row in rows:
        name = text(row, "name")
        is_closed = text(row, "state") != "open"
        shown = number if name == "destinations" else size
        level, limit = real(row, "level"), real(row, "limit")
        made.append(
            TableRow(
                name,
                [
                    Cell(name, detail=_MARKS.get(name, "")),
                    Cell(
                        "closed" if is_closed else "open",
                        state="bad" if is_closed else "good",
                        detail=text(row, "reason"),
                    ),
                    Cell(shown(level)),
                    Cell(shown(limit)),
                    Cell(text(row, "directory")),
                ],
                "bad" if is_closed else "",
            )
        )
    return Table(
        "space",
        "Room",
        [
            Column("mark"),
            Column("state"),
            Column("now", "number"),
            Column("limit", "number"),
            Column("directory", "code", is_minor=True),
        ],
        made,
        empty="No marks are watched.",
        note="A closed mark stops publishers: they get no credit until there is room.",
    )


def _troubled(rows: Sequence[Row]) -> Table:
    made = [
        TableRow(
            text(row, "name"),
            [
                Cell(
                    text(row, "name"),
                    address("peer", name=text(row, "name")),
                    detail=text(row, "held") or text(row, "last-error"),
                ),
                Cell(text(row, "state"), state="bad"),
                Cell(number(whole(row, "waiting"))),
                Cell(number(whole(row, "failures"))),
            ],
        )
        for row in rows[:10]
    ]
    columns = [
        Column("organization", "code"),
        Column("state"),
        Column("waiting", "number"),
        Column("failures", "number", is_minor=True),
    ]
    return Table("troubled", "Links in trouble", columns, made)


def _broker(row: Row) -> Facts:
    pairs = [
        ("container", Cell(text(row, "name"))),
        ("domains", Cell(text(row, "domains"))),
        ("version", Cell(text(row, "version"))),
        ("running for", Cell(age(whole(row, "up-ms")))),
    ]
    return Facts(
        "broker", "This broker", [pair for pair in pairs if pair[1].text not in ("", DASH)]
    )
