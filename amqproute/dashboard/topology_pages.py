# SPDX-License-Identifier: Apache-2.0
"""Exchanges, bindings and virtual hosts."""

from __future__ import annotations

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
    "BindingList",
    "ExchangeFacts",
    "ExchangeList",
    "bindings_page",
    "exchange_page",
    "exchanges_page",
    "hosts_page",
]


@dataclass(frozen=True, slots=True)
class ExchangeList:
    """Contents of the list of exchanges.

    Attributes:
        exchanges: rows.
        contains: the filter.
        host: the virtual host; empty for all.
        is_first: whether it is the first part.
    """

    exchanges: RowPage
    contains: str = ""
    host: str = ""
    is_first: bool = True


def exchanges_page(facts: ExchangeList) -> Page:
    """Make the page of exchanges."""
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
    return Page("Exchanges", [*noted_refusal(facts.exchanges), table], "exchanges")


@dataclass(frozen=True, slots=True)
class BindingList:
    """What the list of bindings shows.

    Attributes:
        bindings: rows of bindings from exchanges.
        between: rows of bindings between nodes; None on further parts of the list.
        contains: the filter.
        host: the virtual host; empty for all.
        is_first: whether it is the first part.
    """

    bindings: RowPage
    between: RowPage | None
    contains: str = ""
    host: str = ""
    is_first: bool = True


def bindings_page(facts: BindingList) -> Page:
    """Make the page of bindings from exchanges, and between nodes."""
    first, more = part_addresses(
        "bindings",
        facts.is_first,
        facts.bindings.cursor,
        contains=facts.contains,
        host=facts.host,
    )
    made = []
    for place, row in enumerate(facts.bindings.rows):
        source, target = text(row, "source"), text(row, "target")
        is_queue = text(row, "target-type") == "queue"
        arguments = text(row, "arguments")
        made.append(
            TableRow(
                f"{text(row, 'name')} {arguments} {place}",
                [
                    Cell(source or "(default exchange)", address("exchange", name=source)),
                    Cell(target, address("queue" if is_queue else "exchange", name=target)),
                    Cell(text(row, "target-type")),
                    Cell(text(row, "key")),
                    Cell("" if arguments == "{}" else arguments),
                ],
            )
        )
    table = Table(
        "from-exchanges",
        "Bindings from exchanges",
        [
            Column("from", "code"),
            Column("to", "code"),
            Column("kind", is_minor=True),
            Column("key", "code"),
            Column("arguments", "code", is_minor=True),
        ],
        made,
        empty=(
            f"No binding from an exchange has {facts.contains!r} in its name."
            if facts.contains
            else "No bindings from exchanges."
        ),
        total=facts.bindings.total,
        first=first,
        more=more,
        filter=filter_by_name_and_host(
            "bindings", facts.contains, facts.host, "Exchange, target or key contains"
        ),
    )
    blocks: list[Block] = [*noted_refusal(facts.bindings), table]
    if facts.between is not None:
        blocks.append(_between_nodes(facts.between))
    return Page("Bindings", blocks, "bindings", subtitle="from exchanges, and between nodes")


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
    """Contents of the page of one exchange.

    Attributes:
        row: the row of the exchange.
        bindings: from it, the first ones.
        into: to it, the first ones.
    """

    row: Row
    bindings: RowPage
    into: RowPage


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
    blocks.append(_table("from", "Bindings from it", facts.bindings, "target", name))
    blocks.append(_table("into", "Bindings to it", facts.into, "source", name))
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


def _table(key: str, title: str, page: RowPage, end: str, name: str) -> Table:
    made = []
    for place, row in enumerate(page.rows):
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
    more = address("bindings", contains=name) if page.cursor else ""
    return Table(key, title, columns, made, more=more)


def hosts_page(hosts: RowPage) -> Page:
    """Make the page of virtual hosts."""
    made = []
    for row in hosts.rows:
        label = text(row, "name")
        made.append(
            TableRow(
                label,
                [
                    Cell(label),
                    Cell(number(whole(row, "queues")), address("queues", host=label)),
                    Cell(number(whole(row, "exchanges")), address("exchanges", host=label)),
                    Cell(number(whole(row, "connections")), address("connections", host=label)),
                ],
            )
        )
    columns = [
        Column("virtual host", "code"),
        Column("queues", "number"),
        Column("exchanges", "number"),
        Column("connections", "number"),
    ]
    table = Table(
        "hosts", "Virtual hosts", columns, made, empty="No virtual hosts.", total=hosts.total
    )
    return Page("Virtual hosts", [*noted_refusal(hosts), table], "hosts")
