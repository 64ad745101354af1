# SPDX-License-Identifier: Apache-2.0
"""Holds, the journal, the log, users, and this broker: certificate, clock, listeners, branches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.dashboard.display_units import address, age, date_time, number, size
from amqproute.dashboard.list_parts import noted_refusal, part_addresses
from amqproute.dashboard.management_source import RowPage
from amqproute.dashboard.page_blocks import (
    ActionButton,
    Block,
    Cell,
    Column,
    Command,
    Facts,
    FilterForm,
    FormField,
    LogLines,
    LogRow,
    Note,
    Page,
    PageState,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, text, texts, whole
from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.journal.record_text import said, when

__all__ = [
    "BrokerPageFacts",
    "JournalFacts",
    "LogLine",
    "UserFacts",
    "broker_page",
    "holds_page",
    "journal_page",
    "log_page",
    "users_page",
]


def holds_page(holds: RowPage, is_first: bool = True) -> Page:
    """Make the page of operators' holds."""
    made = []
    for row in holds.rows:
        name, to = text(row, "name"), text(row, "to")
        ids = texts(row, "ids")
        what = [
            f"to {to}" if to else "",
            f"where {text(row, 'where')}" if text(row, "where") else "",
            f"messages {', '.join(ids[:5])}{' …' if len(ids) > 5 else ''}" if ids else "",
        ]
        made.append(
            TableRow(
                name,
                [
                    Cell(name),
                    Cell(
                        "; ".join(each for each in what if each) or "everything",
                        address("peer", name=to) if to else "",
                    ),
                    Cell(text(row, "reason")),
                    Cell(text(row, "by")),
                    Cell(date_time(whole(row, "since-ms"))),
                    Cell(date_time(whole(row, "until-ms")) if row.get("until-ms") else "released"),
                    Cell("", button=ActionButton("Release", "release", [("name", name)])),
                ],
            )
        )
    columns = [
        Column("hold", "code"),
        Column("what"),
        Column("reason"),
        Column("by"),
        Column("since (UTC)", "number", is_minor=True),
        Column("until (UTC)", "number", is_minor=True),
        Column(""),
    ]
    first, more = part_addresses("holds", is_first, holds.cursor)
    table = Table(
        "holds",
        "Holds",
        columns,
        made,
        empty="Nothing is held.",
        total=holds.total,
        first=first,
        more=more,
    )
    tools = Toolbar("tools", [ActionButton("Hold messages", "hold")])
    blocks = [*noted_refusal(holds), tools, table]
    return Page("Holds", blocks, "holds", subtitle="outgoing messages that wait for an operator")


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """Contents of the page of the journal.

    Attributes:
        row: the row of the journal; None if none is kept.
        records: the last ones; None if they are not for this user.
        refused: why there are none.
        kind: the filter by kind; empty for all.
        node: the filter by node, with ``*``.
        report: address of the pipeline's reports; empty without a warehouse.
    """

    row: Row | None
    records: Sequence[JournalRecord] | None
    refused: str = ""
    kind: str = ""
    node: str = ""
    report: str = ""


_RECORD_STATES: Final[Mapping[str, PageState]] = {
    RecordKind.REJECTED: "bad",
    RecordKind.DEAD_LETTERED: "bad",
    RecordKind.GAP: "bad",
    RecordKind.EXPIRED: "doubtful",
    RecordKind.DEFERRED: "doubtful",
    RecordKind.OPERATOR: "doubtful",
}


def journal_page(facts: JournalFacts) -> Page:
    """Make the page of the audit journal."""
    blocks: list[Block] = []
    row = facts.row
    if row is None:
        blocks.append(
            Note(
                "none",
                facts.refused or "No journal is kept: set journal.enabled to true.",
                "doubtful",
            )
        )
        return Page("Journal", blocks, "journal")
    if text(row, "fault"):
        blocks.append(Note("fault", f"The journal is in trouble: {text(row, 'fault')}", "bad"))
    pairs = [
        ("state", Cell(text(row, "state"), state="bad" if text(row, "fault") else "good")),
        ("directory", Cell(text(row, "directory"))),
        ("records since the start", Cell(number(whole(row, "records")))),
        ("written", Cell(size(whole(row, "bytes")))),
        ("waiting to be written", Cell(number(whole(row, "waiting")))),
        ("lost", Cell(number(whole(row, "lost")), state="bad" if whole(row, "lost") else "")),
        ("files", Cell(number(whole(row, "segments")))),
    ]
    if facts.report:
        pairs.append(("report of the pipeline", Cell("by day", facts.report)))
    else:
        words = "none: management.pipeline is not set"
        pairs.append(("report of the pipeline", Cell(words, address("report"))))
    blocks.append(Facts("facts", "Audit journal", pairs))
    choices = [("", "all"), *((str(each), str(each)) for each in RecordKind)]
    blocks.append(
        Table(
            "filter",
            "Records",
            [],
            [],
            empty="The last records, the newest first.",
            filter=FilterForm(
                address("journal"),
                [
                    FormField("kind", "Kind", facts.kind, "select", choices=choices),
                    FormField("node", "Node, with *", facts.node, "search"),
                ],
            ),
        )
    )
    rows = [
        LogRow(
            when(each.time),
            str(each.kind) + ("" if each.entry is None else f" {each.entry}"),
            said(each),
            _RECORD_STATES.get(each.kind, ""),
        )
        for each in reversed(facts.records or ())
    ]
    empty = facts.refused or "No record matches among the last ones."
    blocks.append(LogLines("records", "", rows, empty))
    return Page("Journal", blocks, "journal", subtitle="what has happened to messages")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of the daemon's log.

    Attributes:
        at_ms: the wall clock.
        level: its name.
        namespace: the namespace of the component.
        text: the line.
    """

    at_ms: int
    level: str
    namespace: str
    text: str


_LEVELS: Final[Mapping[str, PageState]] = {
    "debug": "dim",
    "warn": "doubtful",
    "error": "bad",
    "critical": "bad",
}


def log_page(
    lines: Sequence[LogLine], refused: str = "", level: str = "", contains: str = ""
) -> Page:
    """Make the page of the daemon's log, the newest line first."""
    rows = [
        LogRow(
            date_time(each.at_ms),
            each.level,
            each.text,
            _LEVELS.get(each.level, ""),
            each.namespace,
        )
        for each in reversed(lines)
    ]
    choices = [("", "all"), ("warn", "warnings and worse"), ("error", "errors")]
    search = Table(
        "filter",
        "Lines",
        [],
        [],
        empty="The last lines since the start, the newest first; times are UTC.",
        filter=FilterForm(
            address("log"),
            [
                FormField("level", "Level", level, "select", choices=choices),
                FormField("contains", "Contains", contains, "search"),
            ],
        ),
    )
    blocks: list[Block] = [search, LogLines("lines", "", rows, refused or "No line matches.")]
    return Page("Log", blocks, "log", subtitle="of this daemon, live")


@dataclass(frozen=True, slots=True)
class UserFacts:
    """Contents of the page of users.

    Attributes:
        users: rows: ``name``, ``source``.
        rules: rows of access rules in their order: ``allow`` or ``deny``, ``who``, ``node``.
        contracts: rows.
        sessions: rows of browser sessions.
    """

    users: RowPage
    rules: RowPage
    contracts: RowPage


def users_page(facts: UserFacts) -> Page:
    """Make the page of users, rights and contracts."""
    users = [
        TableRow(
            text(row, "name"),
            [Cell(text(row, "name")), Cell(text(row, "mechanisms") or text(row, "source"))],
        )
        for row in facts.users.rows
    ]
    rules = [
        TableRow(
            str(place),
            [
                Cell(str(place)),
                Cell(text(row, "effect"), state="bad" if text(row, "effect") == "deny" else "good"),
                Cell(", ".join(texts(row, "verbs")) or text(row, "verbs")),
                Cell(text(row, "who")),
                Cell(text(row, "node")),
            ],
        )
        for place, row in enumerate(facts.rules.rows, 1)
    ]
    contracts = [_contract(row) for row in facts.contracts.rows]
    blocks: list[Block] = [
        Table(
            "users",
            "Users with a password",
            [Column("user", "code"), Column("log-in")],
            users,
            empty=facts.users.refused or "No users with a password.",
            total=facts.users.total,
            note="Made and changed by: amqproute user set NAME",
        ),
        Table(
            "rules",
            "Access rules, in their order",
            [
                Column("#", "number"),
                Column("effect"),
                Column("verbs"),
                Column("who", "code"),
                Column("node", "code"),
            ],
            rules,
            empty=facts.rules.refused or "No rules: everything is refused but what is built in.",
        ),
        Table(
            "contracts",
            "Contracts and their use",
            [
                Column("who", "code"),
                Column("state"),
                Column("connections", "number"),
                Column("links", "number", is_minor=True),
                Column("messages", "number", is_minor=True),
                Column("spool", "number"),
                Column("refused"),
            ],
            contracts,
            empty=facts.contracts.refused or "No contracts are set.",
            total=facts.contracts.total,
        ),
    ]
    return Page("Users", blocks, "users", subtitle="users, rights, contracts")


def _contract(row: Row) -> TableRow:
    limiter = text(row, "limiter")
    refused = row.get("refused")
    words = (
        ", ".join(f"{key}: {value}" for key, value in refused.items())
        if isinstance(refused, Mapping)
        else ""
    )
    return TableRow(
        text(row, "name"),
        [
            Cell(text(row, "name")),
            Cell(text(row, "state"), state="doubtful" if limiter else "", detail=limiter),
            Cell(_of(row, "connections")),
            Cell(_of(row, "links")),
            Cell(number(whole(row, "messages"))),
            Cell(size(whole(row, "spool"))),
            Cell(words),
        ],
    )


def _of(row: Row, key: str) -> str:
    limit = row.get(f"limit-{key}")
    shown = number(whole(row, key))
    return shown if limit is None else f"{shown} of {limit}"


@dataclass(frozen=True, slots=True)
class BrokerPageFacts:
    """Contents of the page of this broker, as rows.

    Attributes:
        certificate: our own.
        clock: by which messages age.
        listeners: the listeners for AMQP.
        probes: recently refused connections.
        branches: the branches of distributed transactions.
        checks: results of the named health checks: ``name``, ``state``, ``description``, ``cure``.
        settings: of the configuration, that differ from the defaults: ``name``, ``value``,
            ``source``; None if they are not for this user.
        now_ms: the wall clock.
        unchecked: why there are no results; empty if there are.
    """

    certificate: Row | None
    clock: Row | None
    listeners: RowPage
    probes: RowPage
    branches: RowPage
    checks: Sequence[Row] = ()
    settings: Sequence[Row] | None = None
    now_ms: int = 0
    unchecked: str = ""


def broker_page(facts: BrokerPageFacts) -> Page:
    """Make the page of this broker."""
    blocks: list[Block] = []
    for row, words in ((facts.certificate, "certificate"), (facts.clock, "clock")):
        if row is not None and text(row, "reason"):
            commands = [
                Command("amqproute check" if words == "certificate" else "amqproute clock show")
            ]
            blocks.append(Note(words, text(row, "reason"), "bad", commands=commands))
    clock = facts.clock
    if clock is not None and text(clock, "state") == "jumped":
        blocks.append(Toolbar("tools", [ActionButton("Accept the time", "accept-time")]))
    if facts.checks or facts.unchecked:
        blocks.append(_checks(facts.checks, facts.unchecked))
    blocks += [_identity(facts), _listeners(facts.listeners), _refusals(facts.probes)]
    if facts.branches.rows or not facts.branches.refused:
        blocks.append(_branches(facts.branches))
    if facts.settings is not None:
        blocks.append(_settings(facts.settings))
    words = "health, certificate, clock, listeners, transactions, settings"
    return Page("Broker", blocks, "broker", subtitle=words)


_CHECK_STATES: Final[Mapping[str, PageState]] = {
    "failed": "bad",
    "warning": "doubtful",
    "unknown": "doubtful",
    "ok": "good",
}
"""States of checks, the gravest first."""


def _checks(rows: Sequence[Row], refused: str) -> Table:
    ranks = {state: place for place, state in enumerate(_CHECK_STATES)}
    made = []
    for row in sorted(rows, key=lambda each: ranks.get(text(each, "state"), 0)):
        state = text(row, "state")
        asks, cure = text(row, "asks"), text(row, "cure")
        made.append(
            TableRow(
                text(row, "name"),
                [
                    Cell(
                        text(row, "name"), state=_CHECK_STATES.get(state, "doubtful"), detail=state
                    ),
                    Cell(text(row, "description"), detail=f"{asks}?" if state == "ok" else cure),
                ],
                "bad" if state == "failed" else "",
            )
        )
    columns = [Column("check", "code"), Column("finding, and the cure")]
    note = "Each is a resource for load balancers and monitoring, too: /api/v1/health/CHECK"
    return Table("checks", "Health checks", columns, made, empty=refused, note=note)


def _moment(value: str) -> str:
    """Return a time of ISO 8601 in UTC as the other times are shown."""
    for zone in ("+00:00", "Z"):
        if value.endswith(zone):
            return f"{value.removesuffix(zone).replace('T', ' ')} UTC"
    return value


def _identity(facts: BrokerPageFacts) -> Facts:
    pairs: list[tuple[str, Cell]] = []
    certificate, clock = facts.certificate, facts.clock
    if certificate is not None:
        state = text(certificate, "state")
        pairs += [
            ("certificate", Cell(state, state="bad" if state == "invalid" else "")),
            ("valid from", Cell(_moment(text(certificate, "begins")))),
            ("valid until", Cell(_moment(text(certificate, "ends")))),
            ("closed listeners", Cell(", ".join(texts(certificate, "closed")))),
        ]
    if clock is not None:
        is_jumped = text(clock, "state") == "jumped"
        pairs += [
            ("clock", Cell(text(clock, "state"), state="bad" if is_jumped else "good")),
            ("time used", Cell(_moment(text(clock, "now")))),
            ("wall clock", Cell(_moment(text(clock, "wall")))),
        ]
    return Facts("identity", "Certificate and clock", [each for each in pairs if each[1].text])


def _listeners(page: RowPage) -> Table:
    made = [
        TableRow(
            text(row, "name"),
            [
                Cell(text(row, "name")),
                Cell(number(whole(row, "connections"))),
                Cell(number(whole(row, "max-connections"))),
                Cell(number(whole(row, "mute"))),
                Cell(
                    number(whole(row, "refused")),
                    detail=f"{text(row, 'last-limit')}, {age(whole(row, 'last-limit-age-ms'))} ago"
                    if text(row, "last-limit")
                    else "",
                ),
            ],
        )
        for row in page.rows
    ]
    columns = [
        Column("listener", "code"),
        Column("connections", "number"),
        Column("places", "number", is_minor=True),
        Column("before log-in", "number", is_minor=True),
        Column("refused", "number"),
    ]
    return Table("listeners", "Listeners", columns, made, empty=page.refused or "No listeners.")


def _refusals(page: RowPage) -> Table:
    made = [
        TableRow(
            f"{text(row, 'at-ms')} {text(row, 'remote')} {text(row, 'step')} {place}",
            [
                Cell(date_time(whole(row, "at-ms"))),
                Cell(text(row, "who") or text(row, "remote"), detail=text(row, "remote")),
                Cell(text(row, "step")),
                Cell(text(row, "code"), state="good" if text(row, "code") == "ok" else "bad"),
                Cell(text(row, "description")),
            ],
        )
        for place, row in enumerate(page.rows[:20])
    ]
    columns = [
        Column("time (UTC)", "number", is_minor=True),
        Column("who", "code"),
        Column("step"),
        Column("code"),
        Column("because"),
    ]
    return Table(
        "probes",
        "Recently refused connections, and probes",
        columns,
        made,
        empty=page.refused or "Nobody was refused recently.",
        total=page.total,
    )


def _branches(page: RowPage) -> Table:
    made = []
    for row in page.rows:
        name = text(row, "name")
        named = [("name", name)]
        made.append(
            TableRow(
                name,
                [
                    Cell(text(row, "xid") or name, detail=text(row, "owner")),
                    Cell(text(row, "state"), detail=", ".join(texts(row, "nodes")[:5])),
                    Cell(age(whole(row, "age-ms"))),
                    Cell(number(whole(row, "operations"))),
                    Cell("", button=ActionButton("Commit", "commit-branch", named)),
                    Cell("", button=ActionButton("Roll back", "roll-back-branch", named)),
                ],
            )
        )
    columns = [
        Column("branch", "code"),
        Column("state"),
        Column("age", "number"),
        Column("operations", "number", is_minor=True),
        Column(""),
        Column(""),
    ]
    return Table(
        "branches",
        "Distributed transactions",
        columns,
        made,
        empty=page.refused or "No branch waits.",
    )


def _settings(rows: Sequence[Row]) -> Table:
    made = [
        TableRow(
            text(row, "name"),
            [Cell(text(row, "name")), Cell(text(row, "value")), Cell(text(row, "source"))],
        )
        for row in rows
    ]
    columns = [
        Column("setting", "code"),
        Column("value", "code"),
        Column("from", "code", is_minor=True),
    ]
    return Table(
        "settings",
        "Settings that differ from the defaults",
        columns,
        made,
        empty="All settings have their defaults.",
        total=len(made),
        note="In force now. Before a reload, amqproute check says what is wrong with the file.",
    )
