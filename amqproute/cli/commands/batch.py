# SPDX-License-Identifier: Apache-2.0
"""``batch``: several changes of the running daemon at once, all of them or none."""

from __future__ import annotations

from typing import IO

import click

from amqproute.cli import render
from amqproute.cli.command_error import NEGATIVE, USAGE, ClientError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import carry_out_commands, in_touch
from amqproute.cli.program_commands import ProgramCommand

__all__ = ["batch"]


@click.command(cls=ProgramCommand)
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@access_options
@json_option
def batch(file: IO[str], access: AccessOptions, as_json: bool) -> None:
    """Carry out the commands in FILE, or on standard input: all of them, or none.

    One command on a line; lines that begin with # are skipped. OPTIONS is key=value, with commas
    between them; the keys are those under `nodes` in the configuration.

    \b
        create [or assert] queue|topic NAME [with OPTIONS]
        create [or assert] link NAME SOURCE DESTINATION [with filter="color = 'red'"]
        create [or assert] alias NAME NODE
        create [or assert] route DOMAIN [with via=amqps://HOST:PORT, names=[NAME]]
        create [or assert] exchange NAME with type=topic [, durable=true]
        create [or assert] exchange-binding EXCHANGE with target=QUEUE, key=KEY
        assert|update|delete queue|topic|link NAME [with OPTIONS]
        rename queue|topic|link|alias NAME NEW-NAME
        purge queue NAME
        move|copy messages QUEUE TARGET [with filter="...", limit=NUMBER]
        query TYPE [NAME] [with OPTIONS]
    """
    text = file.read()
    status, words, facts = in_touch(access, lambda client: carry_out_commands(client, text))
    if as_json:
        render.json_text(facts)
    elif facts.get("committed"):
        for row in facts["results"]:
            click.echo(f"{row['index'] + 1}: {row['status']} {row['description']}")
            for each in row["attributes"].get("entities", ()):
                click.echo("   " + "  ".join(f"{key}={value}" for key, value in each.items()))
    if not facts.get("committed"):
        step = "nothing was done; correct the command and send the batch again"
        raise ClientError(USAGE if status == 400 else NEGATIVE, f"management.{status}", words, step)
