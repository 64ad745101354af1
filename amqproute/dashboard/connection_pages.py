# SPDX-License-Identifier: Apache-2.0
"""Connections, and the links and channels of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amqproute.dashboard.display_units import (
    DASH,
    address,
    age,
    date_time,
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
    FilterForm,
    FormField,
    Page,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, text, whole

__all__ = [
    "ChannelList",
    "ConnectionFacts",
    "ConnectionList",
    "channels_page",
    "connection_page",
    "connections_page",
]


@dataclass(frozen=True, slots=True)
class ConnectionList:
    """Contents of the list of connections.

    Attributes:
        connections: rows.
        suspended: links without a connection.
        contains: the filter.
        host: the virtual host; empty for all.
        is_first: whether it is the first part.
    """

    connections: RowPage
    suspended: Sequence[Row] = ()
    contains: str = ""
    host: str = ""
    is_first: bool = True


def connections_page(facts: ConnectionList) -> Page:
    """Make the page of all connections."""
    made = [
        TableRow(
            f"{text(row, 'name')} {text(row, 'since-ms')}",
            [
                Cell(text(row, "name"), address("connection", name=text(row, "name"))),
                Cell(text(row, "principal"), detail=text(row, "container")),
                Cell(text(row, "protocol"), detail=text(row, "virtual-host")),
                Cell(text(row, "tls") or "none"),
                Cell(number(whole(row, "links"))),
                Cell(number(whole(row, "deliveries-in"))),
                Cell(number(whole(row, "deliveries-out"))),
                Cell(number(whole(row, "unsettled"))),
                Cell(age(whole(row, "age-ms"))),
            ],
        )
        for row in facts.connections.rows
    ]
    columns = [
        Column("connection", "code"),
        Column("who"),
        Column("protocol", is_minor=True),
        Column("TLS", is_minor=True),
        Column("links", "number", is_minor=True),
        Column("in", "number"),
        Column("out", "number"),
        Column("unsettled", "number", is_minor=True),
        Column("age", "number"),
    ]
    first, more = part_addresses(
        "connections",
        facts.is_first,
        facts.connections.cursor,
        contains=facts.contains,
        host=facts.host,
    )
    table = Table(
        "connections",
        "Connections",
        columns,
        made,
        empty="Nobody is connected.",
        total=facts.connections.total,
        first=first,
        more=more,
        filter=filter_by_name_and_host(
            "connections", facts.contains, facts.host, "Address contains"
        ),
    )
    blocks = [*noted_refusal(facts.connections), table]
    if facts.suspended:
        blocks.append(_links(facts.suspended, "Suspended links"))
    return Page("Connections", blocks, "connections", subtitle="clients and peers")


@dataclass(frozen=True, slots=True)
class ChannelList:
    """What the list of channels shows.

    Attributes:
        channels: rows.
        host: the virtual host; empty for all.
        is_first: whether it is the first part.
    """

    channels: RowPage
    host: str = ""
    is_first: bool = True


def channels_page(facts: ChannelList) -> Page:
    """Make the page of all channels of AMQP 0-9 and 0-9-1."""
    made = []
    for row in facts.channels.rows:
        name, connection = text(row, "name"), text(row, "connection")
        made.append(
            TableRow(
                f"{connection} {name}",
                [
                    Cell(connection, address("connection", name=connection)),
                    Cell(name),
                    Cell(text(row, "principal"), detail=text(row, "virtual-host")),
                    Cell(text(row, "mode") or DASH),
                    Cell(number(whole(row, "unsettled"))),
                    Cell(number(whole(row, "unconfirmed"))),
                    Cell(number(whole(row, "credit"))),
                ],
            )
        )
    columns = [
        Column("connection", "code"),
        Column("channel"),
        Column("who", is_minor=True),
        Column("mode", is_minor=True),
        Column("unacknowledged", "number"),
        Column("unconfirmed", "number"),
        Column("credit", "number", is_minor=True),
    ]
    first, more = part_addresses("channels", facts.is_first, facts.channels.cursor, host=facts.host)
    table = Table(
        "channels",
        "Channels",
        columns,
        made,
        empty="No channel is open.",
        first=first,
        more=more,
        filter=FilterForm(
            address("channels"), [FormField("host", "Virtual host", facts.host, "search")]
        ),
    )
    blocks = [*noted_refusal(facts.channels), table]
    return Page("Channels", blocks, "channels", subtitle="of clients of AMQP 0-9 and 0-9-1")


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """Contents of the page of one connection: its row, and those of its links and channels."""

    row: Row
    links: Sequence[Row]


def connection_page(facts: ConnectionFacts) -> Page:
    """Make the page of one connection."""
    row = facts.row
    name = text(row, "name")
    pairs = [
        ("who", Cell(text(row, "principal"))),
        ("container", Cell(text(row, "container"))),
        ("protocol", Cell(text(row, "protocol"))),
        ("virtual host", Cell(text(row, "virtual-host"))),
        ("TLS", Cell(text(row, "tls") or "none")),
        ("since (UTC)", Cell(date_time(whole(row, "since-ms")))),
        ("age", Cell(age(whole(row, "age-ms")))),
        ("credit given", Cell(number(whole(row, "credit-in")))),
        ("credit got", Cell(number(whole(row, "credit-out")))),
        ("unsettled", Cell(number(whole(row, "unsettled")))),
        ("transactions", Cell(number(whole(row, "transactions")))),
        ("messages in", Cell(number(whole(row, "deliveries-in")))),
        ("messages out", Cell(number(whole(row, "deliveries-out")))),
    ]
    blocks: list[Block] = [
        Toolbar(
            "tools", [ActionButton("Close the connection", "close-connection", [("name", name)])]
        ),
        Facts("facts", "Connection", [pair for pair in pairs if pair[1].text not in ("", DASH)]),
        _links(facts.links, "Links and channels"),
    ]
    return Page(name, blocks, "connections", parent=("Connections", address("connections")))


def _links(rows: Sequence[Row], title: str) -> Table:
    made = []
    for place, row in enumerate(rows):
        name, kind, node = text(row, "name"), text(row, "kind"), text(row, "node")
        button = None
        if kind == "link":
            values = [("name", name), ("connection", text(row, "connection"))]
            button = ActionButton("Detach", "detach", values)
        arrow = {"in": "to us", "out": "from us"}.get(text(row, "direction"), "")
        is_queue = bool(node) and not node.startswith(("$", "amqp$"))
        made.append(
            TableRow(
                f"{name} {place}",
                [
                    Cell(name, detail=" ".join(each for each in (kind, arrow) if each)),
                    Cell(
                        node or text(row, "address") or DASH,
                        address("queue", name=node) if is_queue else "",
                    ),
                    Cell(number(whole(row, "credit"))),
                    Cell(number(whole(row, "unsettled"))),
                    Cell(number(whole(row, "deliveries"))),
                    Cell("", button=button),
                ],
            )
        )
    columns = [
        Column("link", "code"),
        Column("node", "code"),
        Column("credit", "number"),
        Column("unsettled", "number", is_minor=True),
        Column("deliveries", "number"),
        Column(""),
    ]
    return Table("links", title, columns, made, empty="No links.")
