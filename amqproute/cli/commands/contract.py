# SPDX-License-Identifier: Apache-2.0
"""``contract``: contracts of users and peers, and their use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import NEGATIVE, ClientError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import entities
from amqproute.cli.commands.message_options import age
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["contract"]

_HEADINGS: Final = (
    "HOLDER",
    "STATE",
    "AT-BOUND",
    "CONNECTIONS",
    "LINKS",
    "CREDIT",
    "SPOOL",
    "MESSAGES/S",
    "BYTES/S",
    "REFUSED",
)
_USED: Final = ("connections", "links", "credit", "spool")


@click.group(cls=ProgramGroup)
def contract() -> None:
    """Contracts of users and peers: limits, use, and time at a limit.

    Contracts are part of the configuration, under `contracts` and `peers`.
    """


@contract.command("ls")
@access_options
@json_option
def ls(access: AccessOptions, as_json: bool) -> None:
    """List the contracts: use and limits.

    STATE is open, "held back" (it gets less credit at the moment) or unused (no holder has
    connected; patterns such as user:* are always unused). AT-BOUND names the reached bounds with
    their duration. REFUSED counts refusals since the holder's first connection; "-" means no bound.
    """
    rows = entities(access, "contract")
    rows.sort(key=lambda row: (not row["at-bound-seconds"], row["state"] == "unused", row["name"]))
    if as_json:
        render.json_text({"contracts": rows})
        return
    render.table(
        _HEADINGS,
        (
            [
                row["name"],
                row["state"],
                _bounds(row) or None,
                *(_part(row, name) for name in _USED),
                _limit(row, "messages-per-second"),
                _limit(row, "bytes-per-second"),
                sum(row["refused"].values()),
            ]
            for row in rows
        ),
        right="CONNECTIONS LINKS CREDIT SPOOL MESSAGES/S BYTES/S REFUSED",
        spare="BYTES/S MESSAGES/S CREDIT",
    )


@contract.command("show")
@click.argument("holder")
@access_options
@json_option
def show(holder: str, access: AccessOptions, as_json: bool) -> None:
    """Show the contract of HOLDER: each bound, its use, and refusals.

    HOLDER is a name that `amqproute contract ls` shows, as in user:anna or peer:beta.example.
    """
    rows = entities(access, "contract")
    found = next((row for row in rows if row["name"] == holder), None)
    if found is None:
        raise ClientError(
            NEGATIVE,
            "contract.none",
            f"{holder} has no contract, or nobody of that name has connected",
            "see which there are with: amqproute contract ls",
        )
    if as_json:
        render.json_text(found)
        return
    render.table(["ATTRIBUTE", "VALUE"], _shown(found))


def _shown(row: Facts) -> Iterator[tuple[str, object]]:
    for key, value in row.items():
        if key == "at-bound-seconds":
            yield "at-bound", _bounds(row) or None
        elif isinstance(value, dict):
            counts = (f"{count} by {name}" for name, count in sorted(value.items()))
            yield key, ", ".join(counts) or None
        else:
            yield key, value if value != "" else None


def _bounds(row: Facts) -> str:
    """Return the reached bounds, each with its duration."""
    found = sorted(row["at-bound-seconds"].items())
    return ", ".join(f"{name} for {age(1000 * seconds)}" for name, seconds in found)


def _part(row: Facts, name: str) -> str:
    """Return use and limit, as in 3/20."""
    limit = row[f"limit-{name}"]
    return f"{row[name]}/{'-' if limit is None else limit}"


def _limit(row: Facts, name: str) -> str | None:
    limit = row[f"limit-{name}"]
    return None if limit is None else f"{limit:g}"
