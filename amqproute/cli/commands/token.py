# SPDX-License-Identifier: Apache-2.0
"""``token``: access tokens of the HTTP API."""

from __future__ import annotations

import datetime
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import USAGE, CommandError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import carry_out, entities
from amqproute.cli.commands.operation_command import OperationCommand, operation_command
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["token"]

COLUMNS: Final = ("TOKEN", "PRINCIPAL", "SCOPE", "STATE", "EXPIRES", "PURPOSE", "BY")


@click.group(cls=ProgramGroup)
def token() -> None:
    """Access tokens of the HTTP API of the running daemon.

    A program shows its token in the header `Authorization: Bearer TOKEN`. It may do what the
    token's user may do, within the scope of the token.
    """


@token.command("create")
@click.option(
    "--for",
    "principal",
    metavar="PRINCIPAL",
    default="",
    help="Whose rights it has, as in user:ann. [default: yourself]",
)
@click.option(
    "--scope",
    "scope",
    metavar="WORD",
    multiple=True,
    default=("read",),
    show_default=True,
    help="all, read, or an operation, as in PURGE or MOVE:orders*; several times for several.",
)
@click.option(
    "--expires",
    metavar="TIME",
    default="30d",
    show_default=True,
    help="The time after which it is of no use, as in 12h or 90d.",
)
@click.option("--purpose", metavar="TEXT", default="", help="What it is for.")
@access_options
@json_option
def create(
    principal: str,
    scope: tuple[str, ...],
    expires: str,
    purpose: str,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Create a token, and print it: it cannot be shown again.

    A token of somebody else takes the right manage on /users/PRINCIPAL.
    """
    from amqproute.config.units import parse_seconds  # the configuration's schema, too

    try:
        seconds = int(parse_seconds(expires))
    except ValueError as error:
        raise CommandError(USAGE, "usage.expires", str(error), "as in --expires 90d") from None
    attributes = {
        "for": principal,
        "scope": list(scope),
        "expires-seconds": seconds,
        "purpose": purpose,
    }
    facts = carry_out(access, "CREATE-TOKEN", "token", "", attributes)
    if as_json:
        render.json_text(facts)
        return
    click.echo(facts["token"])
    words = f"{facts['name']}: for {facts['principal']}, {' '.join(facts['scope'])}, until"
    click.echo(f"{words} {_moment(facts['expires-ms'])}", err=True)


@token.command("list")
@access_options
@json_option
def list_tokens(access: AccessOptions, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    rows = entities(access, "token")
    if as_json:
        render.json_text({"tokens": rows})
        return
    render.table(COLUMNS, (_cells(row) for row in rows))


token.add_command(
    operation_command(
        "revoke",
        OperationCommand(
            "REVOKE-TOKEN",
            "token",
            "Revoke the token TOKEN, by its id in the list. It is of no use at once.",
            lambda outcome: f"token {outcome.name} is revoked",
            subject="TOKEN",
        ),
    )
)


def _cells(row: Facts) -> list[str]:
    scope = " ".join(map(str, row["scope"]))
    found = (row["name"], row["principal"], scope, row["state"], _moment(row["expires-ms"]))
    return [str(each) for each in (*found, row["purpose"], row["by"])]


def _moment(ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M UTC")
