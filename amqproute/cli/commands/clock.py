# SPDX-License-Identifier: Apache-2.0
"""``clock``: jumps of the wall clock, and their acceptance."""

from __future__ import annotations

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import carry_out, entities
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["clock"]


@click.group(cls=ProgramGroup)
def clock() -> None:
    """The clock by which messages age, and jumps of the wall clock.

    It follows the wall clock, except for jumps by more than a minute while the daemon runs: nothing
    expires because of a jump, and you decide which of the two is right. A jump ahead by a day at
    most that lasts for ten minutes is accepted automatically.
    """


@clock.command("show")
@access_options
@json_option
def show(access: AccessOptions, as_json: bool) -> int:
    """Show whether the wall clock has jumped; the exit code is 1 if it has."""
    (row,) = entities(access, "clock")
    return _show(row, as_json)


@clock.command("accept")
@access_options
@json_option
def accept(access: AccessOptions, as_json: bool) -> int:
    """Accept the wall clock as it is now, after a jump.

    A jump ahead extends the lifetimes of the present messages. If the wall clock is wrong, correct
    it instead; the jump then has no effect.
    """
    return _show(carry_out(access, "ACCEPT-TIME", "clock", "clock"), as_json)


def _show(row: Facts, as_json: bool) -> int:
    if as_json:
        render.json_text(row)
    else:
        click.echo(f"{row['state']}: messages age by {row['now']}, the wall clock is {row['wall']}")
        if row["reason"]:
            click.echo(row["reason"])
    return NEGATIVE if row["jump-ms"] else DONE
