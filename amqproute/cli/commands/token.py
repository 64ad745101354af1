# SPDX-License-Identifier: Apache-2.0
"""``token``: access tokens of the HTTP API."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from amqproute.cli.commands.attribute_table import RowTable, as_given
from amqproute.cli.commands.list_command import ListCommand, add_commands
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandOption,
    OperationCommand,
    Outcome,
    milliseconds_of,
)
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["token"]


@click.group(cls=ProgramGroup)
def token() -> None:
    """Access tokens of the HTTP API of the running daemon.

    A program shows its token in the header `Authorization: Bearer TOKEN`. It may do what the
    token's user may do, within the scope of the token.
    """


def _end(row: Facts) -> str:
    return datetime.fromtimestamp(row["expires-ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _print_token(outcome: Outcome) -> None:
    facts = outcome.facts
    click.echo(facts["token"])
    words = f"{facts['name']}: for {facts['principal']}, {' '.join(facts['scope'])}"
    click.echo(f"{words}, until {_end(facts)}", err=True)


add_commands(
    token,
    {
        "create": OperationCommand(
            "CREATE-TOKEN",
            "token",
            """Create a token, and print it: it cannot be shown again.

            A token of somebody else takes the right manage on /users/PRINCIPAL.
            """,
            _print_token,
            CommandInputs(
                "",
                options={
                    "for": CommandOption(
                        help="Whose rights it has, as in user:ann. [default: yourself]",
                        metavar="PRINCIPAL",
                    ),
                    "scope": CommandOption(
                        help="all, read, or an operation, as in PURGE or MOVE:orders*; several "
                        "times for several.",
                        metavar="WORD",
                        default=("read",),
                    ),
                    "expires-seconds": CommandOption(
                        "--expires",
                        help="The time after which it is of no use, as in 12h or 90d.",
                        metavar="TIME",
                        default="30d",
                        read=lambda shown, text: milliseconds_of(shown, text) // 1000,
                    ),
                },
            ),
        ),
        "list": ListCommand(
            "token",
            "tokens",
            "List the tokens, without their secrets.",
            RowTable(
                "TOKEN=name PRINCIPAL SCOPE STATE EXPIRES PURPOSE BY",
                {
                    "SCOPE": lambda row: " ".join(map(str, row["scope"])),
                    "EXPIRES": _end,
                    "PURPOSE": as_given("purpose"),
                    "BY": as_given("by"),
                },
            ),
        ),
        "revoke": OperationCommand(
            "REVOKE-TOKEN",
            "token",
            "Revoke the token TOKEN, by its id in the list. It is of no use at once.",
            lambda outcome: f"token {outcome.name} is revoked",
            CommandInputs("TOKEN"),
        ),
    },
)
