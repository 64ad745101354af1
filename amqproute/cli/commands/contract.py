# SPDX-License-Identifier: Apache-2.0
"""``contract``: contracts of users and peers, and their use."""

from __future__ import annotations

from collections.abc import Iterator

import click

from amqproute.cli import render
from amqproute.cli.commands.attribute_table import Cell, RowTable, age
from amqproute.cli.commands.list_command import ListCommand, add_commands
from amqproute.cli.commands.management_request import KnownRefusal
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    OperationCommand,
)
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["contract"]


@click.group(cls=ProgramGroup)
def contract() -> None:
    """Contracts of users and peers: limits, use, and time at a limit.

    Contracts are part of the configuration, under `contracts` and `peers`.
    """


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


def _part(name: str) -> Cell:
    """Return a column of use and limit, as in 3/20."""

    def part(row: Facts) -> str:
        limit = row[f"limit-{name}"]
        return f"{row[name]}/{'-' if limit is None else limit}"

    return part


def _limit(name: str) -> Cell:
    key = f"limit-{name}"
    return lambda row: None if row[key] is None else f"{row[key]:g}"


add_commands(
    contract,
    {
        "ls": ListCommand(
            "contract",
            "contracts",
            """List the contracts: use and limits.

            STATE is open, "held back" (it gets less credit at the moment) or unused (no holder has
            connected; patterns such as user:* are always unused). AT-BOUND names the reached bounds
            with their duration. REFUSED counts refusals since the holder's first connection; "-"
            means no bound.
            """,
            RowTable(
                "HOLDER=name STATE AT-BOUND CONNECTIONS> LINKS> CREDIT> SPOOL> "
                "MESSAGES/S> BYTES/S> REFUSED>",
                {
                    "AT-BOUND": lambda row: _bounds(row) or None,
                    "CONNECTIONS": _part("connections"),
                    "LINKS": _part("links"),
                    "CREDIT": _part("credit"),
                    "SPOOL": _part("spool"),
                    "MESSAGES/S": _limit("messages-per-second"),
                    "BYTES/S": _limit("bytes-per-second"),
                    "REFUSED": lambda row: sum(row["refused"].values()),
                },
                spare="BYTES/S MESSAGES/S CREDIT",
            ),
            order=lambda row: (not row["at-bound-seconds"], row["state"] == "unused", row["name"]),
        ),
        "show": OperationCommand(
            "READ",
            "contract",
            """Show the contract of HOLDER: each bound, its use, and refusals.

            HOLDER is a name that `amqproute contract ls` shows, as in user:anna or
            peer:beta.example.
            """,
            lambda outcome: render.table(["ATTRIBUTE", "VALUE"], _shown(outcome.facts)),
            CommandInputs("HOLDER"),
            refusals={
                "management.404": KnownRefusal(
                    "contract.none",
                    "{refusal}, or nobody of that name has connected",
                    "see which there are with: amqproute contract ls",
                )
            },
        ),
    },
)
