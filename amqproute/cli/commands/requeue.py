# SPDX-License-Identifier: Apache-2.0
"""``requeue``: returns dead letters and refused messages to their addresses."""

from __future__ import annotations

from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE
from amqproute.cli.commands.attribute_table import RowTable, aged
from amqproute.cli.commands.message_options import warn_of_missing
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandOption,
    OperationCommand,
    Outcome,
    milliseconds_of,
    operation_command,
)
from amqproute.plurals import counted

__all__ = ["requeue"]

SAMPLES: Final = RowTable(
    "ID> TO GOES-TO=new-queue REASON=state CONDITION AGE> BYTES> MESSAGE-ID",
    {"AGE": aged("age-ms")},
)


def _print(outcome: Outcome) -> None:
    facts, queue = outcome.facts, outcome.name
    words = "would be requeued" if outcome.is_dry else "requeued"
    click.echo(f"{counted(facts['messages'], 'message')} {words} ({facts['bytes']} bytes)")
    for name, count in sorted(facts["targets"].items()):
        click.echo(render.printable(f"  {count} to {name}"))
    if facts["samples"] and outcome.is_dry:
        SAMPLES.print(facts["samples"])
    if facts["refused-because"]:
        stayed = counted(facts["refused"], "message") if facts["refused"] else "the rest"
        render.warn(f"{stayed} on {queue} not requeued: {facts['refused-because']}")
    if facts["missing"]:
        warn_of_missing(
            f"not on {queue}, or with a consumer", facts["missing"], "see amqproute queue messages"
        )


def _ending(outcome: Outcome) -> int:
    facts = outcome.facts
    failed = facts["refused-because"] or facts["missing"] or not facts["messages"]
    return NEGATIVE if failed else DONE


requeue: Final = operation_command(
    "requeue",
    OperationCommand(
        "REQUEUE",
        "",
        """Return dead letters on QUEUE to their addresses.

        QUEUE is a node that keeps dead letters. Each returns to the queue that it left; a message
        that could not be delivered to another organization, or came back from there, is sent to its
        address again, by the present routes. A message has to match all given options; without any,
        all dead letters are selected.

        Deliveries are counted from 0 again, and a message that had a time to live has none any
        more. A message that its node refuses stays on QUEUE. Exit code 1 if there was nothing to
        requeue, or if any selected message stayed.
        """,
        _print,
        CommandInputs(
            "QUEUE",
            vhost="names",
            options={
                "source": CommandOption(metavar="NODE"),
                "condition": CommandOption(metavar="CONDITION"),
                "older-than-ms": CommandOption(
                    "--older-than",
                    help="Dead for longer, as in --older-than 2h.",
                    metavar="TIME",
                    read=milliseconds_of,
                ),
                "newer-than-ms": CommandOption(
                    "--newer-than",
                    help="Dead for less, as in --newer-than 30m.",
                    metavar="TIME",
                    read=milliseconds_of,
                ),
            },
        ),
        afterwards=_ending,
    ),
)
