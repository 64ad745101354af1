# SPDX-License-Identifier: Apache-2.0
"""``connection`` and ``link``: connections to the daemon, and the state of their links."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import carry_out, entities
from amqproute.cli.commands.message_options import age
from amqproute.cli.message_text import Facts
from amqproute.plurals import counted

__all__ = ["connection", "link"]

CONNECTION_COLUMNS: Final = (
    ("name", "CONNECTION"),
    ("principal", "WHO"),
    ("container", "CONTAINER"),
    ("tls", "TLS"),
    ("age-ms", "SINCE"),
    ("links", "LINKS"),
    ("credit-in", "CREDIT-IN"),
    ("credit-out", "CREDIT-OUT"),
    ("unsettled", "UNSETTLED"),
    ("deliveries-in", "IN"),
    ("deliveries-out", "OUT"),
)
LINK_COLUMNS: Final = (
    ("name", "LINK"),
    ("direction", "DIRECTION"),
    ("address", "ADDRESS"),
    ("principal", "WHO"),
    ("connection", "CONNECTION"),
    ("credit", "CREDIT"),
    ("unsettled", "UNSETTLED"),
    ("deliveries", "DELIVERIES"),
    ("expires-in", "EXPIRES"),
)


@click.group()
def connection() -> None:
    """Connections of clients and peers to the running daemon."""


@connection.command("ls")
@access_options
@json_option
def connections(url: str | None, trust: Path | None, config: Path | None, as_json: bool) -> None:
    """List the connections, the oldest first.

    SINCE is the age of a connection. CREDIT-IN is the number of messages that the other side may
    still send, over all its links, CREDIT-OUT those that it still accepts; UNSETTLED are deliveries
    without an outcome. IN and OUT count all deliveries. With --json every attribute is shown.
    """
    rows = entities(AccessOptions(url, config, trust), "connection")
    rows.sort(key=lambda row: (row.get("since-ms") or 0, str(row["name"])))
    if as_json:
        render.json_text({"connections": rows})
        return
    render.table(
        [heading for _, heading in CONNECTION_COLUMNS],
        ([_cell(key, row) for key, _ in CONNECTION_COLUMNS] for row in rows),
        right="SINCE LINKS CREDIT-IN CREDIT-OUT UNSETTLED IN OUT",
    )


@click.group()
def link() -> None:
    """Links of clients and peers, and bindings between nodes, at the running daemon."""


@link.command("ls")
@click.option("--node", metavar="NODE", help="Only those of this queue or topic.")
@access_options
@json_option
def links(
    node: str | None, url: str | None, trust: Path | None, config: Path | None, as_json: bool
) -> None:
    """List the links: in is from a client to the daemon, out from the daemon to a client.

    A consumer that gets nothing may have no CREDIT. One with many UNSETTLED deliveries does not
    settle them. A producer without CREDIT waits for room on a full queue. Bindings are shown as
    `binding` with their source and target. A link with EXPIRES is suspended: its client has
    detached and may resume it within that time; `not yet` means that the time has not begun,
    because its session or connection is still open.
    """
    rows = entities(AccessOptions(url, config, trust), "link")
    if node is not None:
        wanted = ("node", "address", "source", "target")
        rows = [row for row in rows if any(row.get(key) == node for key in wanted)]
    if as_json:
        render.json_text({"links": rows})
        return
    render.table(
        [heading for _, heading in LINK_COLUMNS],
        ([_cell(key, _with_binding(row)) for key, _ in LINK_COLUMNS] for row in rows),
        right="CREDIT UNSETTLED DELIVERIES EXPIRES",
    )


@link.command("close")
@click.argument("name")
@access_options
def close(name: str, url: str | None, trust: Path | None, config: Path | None) -> None:
    """Detach the links of clients with the name NAME, or delete the binding NAME.

    The client is told `amqp:link:detach-forced` and may attach again.
    """
    facts = carry_out(AccessOptions(url, config, trust), "DELETE", "link", name)
    count = facts.get("links")
    click.echo(
        f"{name}: deleted"
        if count is None
        else f"{name}: {counted(count, 'link is', 'links are')} detached"
    )


def _with_binding(row: Facts) -> Facts:
    if row.get("kind") != "binding":
        return row
    ends = f"{row['source']} -> {row['target']}"
    return {**row, "direction": "binding", "address": ends, "deliveries": row.get("moved")}


def _cell(key: str, row: Facts) -> object:
    value = row.get(key)
    if key == "age-ms" and value is not None:
        return age(value)
    if key == "expires-in" and value is not None:
        return "not yet" if value < 0 else age(int(1000 * value))
    return value if value != "" else None
