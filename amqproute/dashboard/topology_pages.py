# SPDX-License-Identifier: Apache-2.0
"""Exchanges, bindings and virtual hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amqproute.dashboard.display_units import (
    DASH,
    address,
    number,
)
from amqproute.dashboard.list_parts import filter_by_name_and_host, noted_refusal, part_addresses
from amqproute.dashboard.management_source import RowPage
from amqproute.dashboard.page_blocks import (
    ActionButton,
    Block,
    Cell,
    Column,
    Facts,
    Page,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, flag, text, whole

__all__ = [
    "ExchangeFacts",
    "ExchangeList",
    "HostFacts",
    "exchange_page",
    "exchanges_page",
    "hosts_page",
]


@dataclass(frozen=True, slots=True)
class ExchangeList:
    """What the list of exchanges shows.

    Attributes:
        exchanges: rows.
        bindings: rows of bindings between nodes of AMQP 1.0.
        contains: the filter.
        host: the virtual host; empty for all.
        is_first: whether it is the first part.
    """

    exchanges: RowPage
    bindings: RowPage
    contains: str = ""
    host: str = ""
    is_first: bool = True


def exchanges_page(facts: ExchangeList) -> Page:
    """Make the page of exchanges, and of bindings between nodes."""
    made = []
    for row in facts.exchanges.rows:
        name = text(row, "name")
        traits = [
            label
            for key, label in (
                ("durable", "durable"),
                ("auto-delete", "auto-delete"),
                ("internal", "internal"),
                ("predeclared", "predeclared"),
            )
            if flag(row, key)
        ]
        made.append(
            TableRow(
                name,
                [
                    Cell(name, address("exchange", name=name)),
                    Cell(text(row, "exchange-type")),
                    Cell(text(row, "virtual-host")),
                    Cell(number(whole(row, "bindings"))),
                    Cell(", ".join(traits)),
                    Cell(text(row, "alternate-exchange") or DASH),
                ],
            )
        )
    columns = [
        Column("exchange", "code"),
        Column("type"),
        Column("virtual host", "code"),
        Column("bindings", "number"),
        Column("traits", is_minor=True),
        Column("alternate", "code", is_minor=True),
    ]
    first, more = part_addresses(
        "exchanges",
        facts.is_first,
        facts.exchanges.cursor,
        contains=facts.contains,
        host=facts.host,
    )
    table = Table(
        "exchanges",
        "Exchanges",
        columns,
        made,
        empty="No exchanges.",
        total=facts.exchanges.total,
        first=first,
        more=more,
        filter=filter_by_name_and_host("exchanges", facts.contains, facts.host),
    )
    blocks = [*noted_refusal(facts.exchanges), table, _between_nodes(facts.bindings)]
    return Page("Exchanges", blocks, "exchanges", subtitle="and bindings between nodes")


def _between_nodes(page: RowPage) -> Table:
    made = []
    for row in page.rows:
        reason = text(row, "reason")
        made.append(
            TableRow(
                text(row, "name"),
                [
                    Cell(text(row, "name")),
                    Cell(text(row, "source"), address("queue", name=text(row, "source"))),
                    Cell(text(row, "target")),
                    Cell(text(row, "filter") or text(row, "subject") or "all"),
                    Cell(text(row, "mode")),
                    Cell(number(whole(row, "moved"))),
                    Cell(number(whole(row, "refused")), detail=reason),
                ],
                "doubtful" if reason else "",
            )
        )
    columns = [
        Column("binding", "code"),
        Column("from", "code"),
        Column("to", "code"),
        Column("which"),
        Column("mode", is_minor=True),
        Column("passed", "number"),
        Column("refused", "number", is_minor=True),
    ]
    return Table(
        "bindings",
        "Bindings between nodes",
        columns,
        made,
        empty="No bindings between nodes.",
        total=page.total,
    )


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """What the page of one exchange shows.

    Attributes:
        row: of the exchange.
        bindings: from it.
        into: to it.
    """

    row: Row
    bindings: Sequence[Row]
    into: Sequence[Row]


def exchange_page(facts: ExchangeFacts) -> Page:
    """Make the page of one exchange."""
    row = facts.row
    name = text(row, "name")
    pairs = [
        (label, Cell(_shown(row, key)))
        for key, label in (
            ("exchange-type", "type"),
            ("virtual-host", "virtual host"),
            ("durable", "durable"),
            ("auto-delete", "auto-delete"),
            ("internal", "internal"),
            ("alternate-exchange", "alternate exchange"),
            ("arguments", "arguments"),
            ("policy", "policy"),
            ("operator-policy", "operator policy"),
            ("made-by", "made by"),
        )
    ]
    blocks: list[Block] = []
    if not flag(row, "predeclared"):
        blocks.append(
            Toolbar(
                "tools", [ActionButton("Delete the exchange", "delete-exchange", [("name", name)])]
            )
        )
    blocks.append(Facts("facts", "Exchange", [pair for pair in pairs if pair[1].text]))
    blocks.append(_table("from", "Bindings from it", facts.bindings, "target"))
    blocks.append(_table("into", "Bindings to it", facts.into, "source"))
    return Page(
        name or "(default exchange)",
        blocks,
        "exchanges",
        parent=("Exchanges", address("exchanges")),
    )


def _shown(row: Row, key: str) -> str:
    value = row.get(key)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value in (None, "{}") else str(value)


def _table(key: str, title: str, rows: Sequence[Row], end: str) -> Table:
    made = []
    for place, row in enumerate(rows):
        other = text(row, end)
        is_queue = end == "target" and text(row, "target-type") == "queue"
        href = address("queue" if is_queue else "exchange", name=other)
        arguments = text(row, "arguments")
        made.append(
            TableRow(
                f"{text(row, 'name')} {place}",
                [
                    Cell(other, href),
                    Cell("queue" if is_queue else "exchange"),
                    Cell(text(row, "key")),
                    Cell("" if arguments == "{}" else arguments),
                ],
            )
        )
    columns = [
        Column("to" if end == "target" else "from", "code"),
        Column("kind"),
        Column("key", "code"),
        Column("arguments", "code", is_minor=True),
    ]
    return Table(key, title, columns, made)


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A virtual host.

    Attributes:
        label: its name, ``/`` for the first.
        queues: the number of its queues and topics.
        exchanges: the number of its exchanges.
        connections: the number of its connections.
    """

    label: str
    queues: int | None
    exchanges: int | None
    connections: int | None


def hosts_page(hosts: Sequence[HostFacts]) -> Page:
    """Make the page of virtual hosts."""
    made = [
        TableRow(
            host.label,
            [
                Cell(host.label),
                Cell(number(host.queues), address("queues", host=host.label)),
                Cell(number(host.exchanges), address("exchanges", host=host.label)),
                Cell(number(host.connections), address("connections", host=host.label)),
            ],
        )
        for host in hosts
    ]
    columns = [
        Column("virtual host", "code"),
        Column("queues", "number"),
        Column("exchanges", "number"),
        Column("connections", "number"),
    ]
    table = Table("hosts", "Virtual hosts", columns, made, empty="No virtual hosts.")
    return Page("Virtual hosts", [table], "hosts")
