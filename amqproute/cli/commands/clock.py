# SPDX-License-Identifier: Apache-2.0
"""``clock``: jumps of the wall clock, and their acceptance."""

from __future__ import annotations

from typing import Final

import click

from amqproute.cli.command_error import DONE, NEGATIVE
from amqproute.cli.commands.list_command import add_commands
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    OperationCommand,
    Outcome,
)
from amqproute.cli.program_commands import ProgramGroup

__all__ = ["clock"]


@click.group(cls=ProgramGroup)
def clock() -> None:
    """The clock by which messages age, and jumps of the wall clock.

    It follows the wall clock, except for jumps by more than a minute while the daemon runs: nothing
    expires because of a jump, and you decide which of the two is right. A jump ahead by a day at
    most that lasts for ten minutes is accepted automatically.
    """


def _in_words(outcome: Outcome) -> str:
    row = outcome.facts
    words = f"{row['state']}: messages age by {row['now']}, the wall clock is {row['wall']}"
    return f"{words}\n{row['reason']}" if row["reason"] else words


def _ending(outcome: Outcome) -> int:
    return NEGATIVE if outcome.facts["jump-ms"] else DONE


_INPUTS: Final = CommandInputs("", fixed={"name": "clock"})

add_commands(
    clock,
    {
        "show": OperationCommand(
            "READ",
            "clock",
            "Show whether the wall clock has jumped; the exit code is 1 if it has.",
            _in_words,
            _INPUTS,
            afterwards=_ending,
        ),
        "accept": OperationCommand(
            "ACCEPT-TIME",
            "clock",
            """Accept the wall clock as it is now, after a jump.

            A jump ahead extends the lifetimes of the present messages. If the wall clock is wrong,
            correct it instead; the jump then has no effect.
            """,
            _in_words,
            _INPUTS,
            afterwards=_ending,
        ),
    },
)
