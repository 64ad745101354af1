# SPDX-License-Identifier: Apache-2.0
"""``connection`` and ``link``: connections to the daemon, and the state of their links."""

from __future__ import annotations

from typing import Final

import click

from amqproute.address import ROOT_HOST, in_host
from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.commands.attribute_table import Cell, RowTable, age, aged, cell_of
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.list_command import ListCommand, RowFilter, add_commands
from amqproute.cli.commands.management_request import ask, in_touch, query
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    OperationCommand,
    Outcome,
)
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted

__all__ = ["connection", "link"]


def _within(row: Facts, key: str) -> str | None:
    """Return a name that a client wrote as a name within the broker."""
    name, host = row.get(key), row.get("virtual-host")
    if not isinstance(name, str) or host in (None, ROOT_HOST) or name.startswith("//"):
        return name
    return name if "@" in name else in_host(host, name)


def _in_words(row: Facts) -> Facts:
    if row.get("kind") != "binding":
        return {**row, "address": _within(row, "address")}
    ends = f"{row['source']} -> {row['target']}"
    return {**row, "direction": "binding", "address": ends, "deliveries": row.get("moved")}


def _worded(key: str) -> Cell:
    """Return a column of an attribute of links, and of bindings where they have another."""
    return lambda row: cell_of(key, _in_words(row))


def _expiry(row: Facts) -> str | None:
    seconds = row.get("expires-in")
    if seconds is None:
        return None
    return "not yet" if seconds < 0 else age(int(1000 * seconds))


def _concerns(row: Facts, node: str) -> bool:
    keys = ("node", "address", "source", "target")
    return any(node in (row.get(key), _within(row, key)) for key in keys)


SHOWN_LINKS: Final = RowTable(
    "LINK=name KIND CHANNEL ADDRESS MODE CREDIT> PREFETCH> UNSETTLED> UNCONFIRMED> DELIVERIES>",
    {"ADDRESS": _worded("address"), "DELIVERIES": _worded("deliveries")},
)


@click.group(cls=ProgramGroup)
def connection() -> None:
    """Connections of clients and peers to the running daemon."""


@connection.command("show")
@click.argument("name")
@access_options
@json_option
def show(name: str, access: AccessOptions, as_json: bool) -> None:
    """Show the connection NAME, and its links, or channels and consumers.

    Attributes that begin with client- are statements of the client.
    """

    async def asked(client: Client) -> tuple[Facts, list[Facts]]:
        facts = await ask(client, "READ", "connection", name)
        links = await query(client, "link")
        return facts, [row for row in links if row.get("connection") == name]

    facts, links = in_touch(access, asked)
    if as_json:
        render.json_text({**facts, "link": links})
        return
    columns = {key: aged(key) if key == "age-ms" else key for key in facts}
    render.table(
        ["ATTRIBUTE", "VALUE"], ((key, cell_of(each, facts)) for key, each in columns.items())
    )
    if links:
        click.echo()
        SHOWN_LINKS.print(links)


add_commands(
    connection,
    {
        "ls": ListCommand(
            "connection",
            "connections",
            """List the connections, the oldest first.

            CONTAINER is the client's own name: the container-id of AMQP 1.0, the connection_name or
            else the product of AMQP 0-9-1. SINCE is the age of a connection. CREDIT-IN is the
            number of messages that the other side may still send, over all its links, CREDIT-OUT
            those that it still accepts; UNSETTLED are deliveries without an outcome. IN and OUT
            count all deliveries. With --json every attribute is shown.
            """,
            RowTable(
                "CONNECTION=name WHO=principal VHOST=virtual-host PROTOCOL "
                "CONTAINER TLS SINCE> LINKS> CREDIT-IN> CREDIT-OUT> UNSETTLED> "
                "IN=deliveries-in> OUT=deliveries-out>",
                {"SINCE": aged("age-ms")},
            ),
            has_vhost=True,
            order=lambda row: (row.get("since-ms") or 0, str(row["name"])),
        ),
        "close": OperationCommand(
            "CLOSE-CONNECTION",
            "connection",
            """Close the connection NAME.

            A client of AMQP 1.0 gets `amqp:connection:forced`, one of 0-9-1 gets connection.close
            with 320. Messages that it holds are available again. It may connect again.
            """,
            lambda outcome: f"{outcome.name}: closed",
            has_json=False,
        ),
    },
)


@click.group(cls=ProgramGroup)
def link() -> None:
    """Links of clients and peers, and bindings between nodes, at the running daemon."""


def _detached(outcome: Outcome) -> str:
    count = outcome.facts.get("links")
    if count is None:
        return f"{outcome.name}: deleted"
    return f"{outcome.name}: {counted(count, 'link is', 'links are')} detached"


add_commands(
    link,
    {
        "ls": ListCommand(
            "link",
            "links",
            """List the links: in is from a client to the daemon, out from the daemon to a client.

            Of AMQP 0-9-1 these are channels, and consumers by their tags.

            A consumer that gets nothing may have no CREDIT. One with many UNSETTLED deliveries does
            not settle them. A producer without CREDIT waits for room on a full queue. Bindings are
            shown as `binding` with their source and target. A link with EXPIRES is suspended: its
            client has detached and may resume it within that time; `not yet` means that the time
            has not begun, because its session or connection is still open.
            """,
            RowTable(
                "LINK=name DIRECTION ADDRESS WHO=principal CONNECTION CREDIT> "
                "UNSETTLED> DELIVERIES> EXPIRES>",
                {
                    "DIRECTION": _worded("direction"),
                    "ADDRESS": _worded("address"),
                    "DELIVERIES": _worded("deliveries"),
                    "EXPIRES": _expiry,
                },
            ),
            has_vhost=True,
            only=RowFilter("--node", "NODE", "Only those of this queue or topic.", _concerns),
        ),
        "close": OperationCommand(
            "DELETE",
            "link",
            """Detach the links of clients with the name NAME, or delete the binding NAME.

            A client of AMQP 1.0 gets `amqp:link:detach-forced` and may attach again. A consumer of
            AMQP 0-9-1, whose name is its tag, is cancelled: its client gets basic.cancel if it
            knows that. A channel ends with its connection only: amqproute connection close. Where
            several virtual hosts have links of the name, --vhost or --connection is needed.
            """,
            _detached,
            CommandInputs(vhost="parameter"),
            has_json=False,
        ),
    },
)
