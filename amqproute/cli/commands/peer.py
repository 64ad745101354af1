# SPDX-License-Identifier: Apache-2.0
"""``peer``: brokers of other organizations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.command_error import NEGATIVE, ClientError
from amqproute.cli.commands.attribute_table import Cell, RowTable, age, moment
from amqproute.cli.commands.common_options import (
    AccessOptions,
    access_options,
    config_option,
    json_option,
)
from amqproute.cli.commands.list_command import ListCommand, RowFilter, add_commands
from amqproute.cli.commands.management_request import ask, in_touch, query
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted
from amqproute.values import RELAY_PREFIX

__all__ = ["peer"]

TIMES: Final = ("next-attempt-ms", "last-success-ms", "oldest-arrival-ms")


Rows = list[Facts]


def _from_now(key: str) -> Cell:
    """Return a column of the time between now and a moment."""

    def away(row: Facts) -> str | None:
        return age(abs(int(time.time() * 1000) - row[key])) if row.get(key) else None

    return away


PEERS: Final = RowTable(
    "PEER=name STATE WAITING> IN-FLIGHT> WINDOW> CREDIT> "
    "FAILED=failures> NEXT> LAST-OK> LEVEL HOST LAST-ERROR=last-code "
    "HOLDS",
    {
        "NEXT": _from_now("next-attempt-ms"),
        "LAST-OK": _from_now("last-success-ms"),
        "HOLDS": lambda row: " ".join(row.get("holds") or ()) or None,
    },
    spare="WINDOW CREDIT HOLDS HOST IN-FLIGHT LEVEL LAST-OK",
)


@click.group(cls=ProgramGroup)
def peer() -> None:
    """Brokers of other organizations: their state, and tests of the connection."""


add_commands(
    peer,
    {
        "ls": ListCommand(
            "peer",
            "peers",
            """List the peers with messages or connections.

            STATE is open, idle, connecting, waiting (for the next attempt, in NEXT), refused (there
            is no such domain) or held. FAILED counts failed attempts in a row, CREDIT the messages
            that the peer still accepts, WINDOW the most that we would have in flight. LAST-OK is
            the time since the last connection was made. LEVEL is the proof of the peer's identity.
            A peer is dropped from the list after a minute without messages. A terminal that is too
            narrow for all columns shows those that matter most; a pipe gets all of them. With
            --json every attribute is shown.
            """,
            PEERS,
            order=lambda row: (-row["waiting"], row["name"]),
        )
    },
)


@peer.command("show")
@click.argument("domain")
@access_options
@json_option
def show(domain: str, access: AccessOptions, as_json: bool) -> None:
    """Show the peer DOMAIN: next hop, errors, and connections here.

    DOMAIN is a domain, or a name from `amqproute peer ls`. For a domain behind a gateway the
    gateway is shown, as long as messages wait.
    """
    outbound, inbound, decisions = in_touch(access, lambda client: _known(client, domain))
    if as_json:
        render.json_text(
            {
                "domain": domain,
                "peers": outbound,
                "connections": inbound,
                "decisions": decisions,
            }
        )
        return
    for decision in decisions:
        places = ", ".join(f"{each['host']}:{each['port']}" for each in decision["places"])
        click.echo(
            render.printable(f"last looked up: {decision['code']}{places and f', {places}'}")
        )
    for row in outbound:
        render.table(["ATTRIBUTE", "VALUE"], _shown(row))
    for row in inbound:
        since = age(row.get("age-ms") or 0)
        click.echo(
            render.printable(
                f"connected here from {row['name']} for {since}: container {row['container']}, "
                f"{counted(row['deliveries-in'], 'message')} in"
            )
        )


async def _known(client: Client, domain: str) -> tuple[Rows, Rows, Rows]:
    peers = await query(client, "peer")
    outbound = [row for row in peers if domain in (row["name"], row["domain"])]
    connections = await query(client, "connection")
    inbound = [row for row in connections if row["principal"] == f"peer:{domain}"]
    rows = await query(client, "decision")
    decisions = [
        {key: value for key, value in row.items() if key not in ("name", "type")}
        for row in rows
        if domain in (row["hop"], row["domain"])
    ]
    if not outbound and not inbound and not decisions:
        gateways = await _gateways(client, domain)
        outbound = [row for row in peers if row["name"] in gateways]
        if not outbound:
            raise ClientError(
                NEGATIVE,
                "management.404",
                f"nothing waits for {domain}, and it is not connected",
                f"see whether it can be reached with: amqproute peer test {domain}",
            )
    return outbound, inbound, decisions


async def _gateways(client: Client, domain: str) -> set[str]:
    """Return the relay queues of the gateways for a domain without its own relay queue."""
    try:
        facts = await ask(client, "LIST-MESSAGES", "message", "", {"to": domain})
    except ClientError as error:
        if error.code != "management.404":
            raise
        return set()
    return {row["queue"].removeprefix(RELAY_PREFIX) for row in facts["messages"]}


def _shown(row: Facts) -> list[tuple[str, object]]:
    shown: list[tuple[str, object]] = []
    for key, value in row.items():
        if isinstance(value, list):
            shown += [(key, each) for each in value] or [(key, None)]
        elif key in TIMES:
            shown.append((key, moment(value)))
        else:
            shown.append((key, value if value != "" else None))
    return shown


# -- test ----------------------------------------------------------------------------------------


@peer.command("test")
@click.argument("domain", metavar="DOMAIN|ADDRESS")
@click.option(
    "--size", default=0, type=click.IntRange(0), help="Ask about a message of this size in octets."
)
@config_option
@json_option
def test(domain: str, size: int, config: Path | None, as_json: bool) -> int:
    """Test the path of messages to DOMAIN, and report each step.

    DNS, and then at each host TCP, TLS with the name proved, SASL, open, attach, and a probe that
    is never queued; with an ADDRESS it asks whether a message for that node would be accepted. At
    the partner, `amqproute peer probes` shows the same id, with its observations. Exits with 1 if
    no host works.
    """
    from amqproute.cli.commands import peer_test  # it imports much of the daemon

    return peer_test.go(domain, size, config, as_json)


# -- probes --------------------------------------------------------------------------------------

add_commands(
    peer,
    {
        "probes": ListCommand(
            "probe",
            "probes",
            """List partners' tests of the path to this broker, and refused connections.

            A connection that fails at TLS or SASL has not sent the id of its probe yet: look for
            its address and time, which `amqproute peer test` shows at the other side. The newest
            come first; a restart clears the list.
            """,
            RowTable(
                "AT PROBE STEP CODE FROM=remote WHO WORDS=description",
                {"AT": lambda row: moment(row["at-ms"])},
            ),
            only=RowFilter(
                "--id",
                "PROBE",
                "Only those of one probe.",
                lambda row, probe: bool(row["probe"] == probe),
            ),
        )
    },
)
