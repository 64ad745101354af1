# SPDX-License-Identifier: Apache-2.0
"""Options by which operators select messages, and the output of bulk commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.attribute_table import RowTable, aged
from amqproute.cli.commands.common_options import Decorator
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandOption,
    CommandRequest,
    OperationCommand,
    Outcome,
    Own,
)
from amqproute.cli.message_text import Facts
from amqproute.plurals import counted

__all__ = ["bulk_command", "message_table", "print_selected", "selected", "warn_of_missing"]

_SELECTION: Final = {
    "to": CommandOption(
        help="Those for a domain, or on one relay queue (as `amqproute peer ls` names it).",
        metavar="DOMAIN",
    )
}
_YES: Final = click.option("--yes", is_flag=True, help="With --all: yes, all of them.")


def selected(
    own: Sequence[Decorator] = (),
    prepare: Own = lambda *_: None,
    without: Collection[str] = (),
) -> CommandInputs:
    """Return the inputs of a command on selected messages.

    Usage without a selection, or with all messages and without confirmation, is an error
    (`CommandError`).

    Args:
        own: further options.
        prepare: as in `CommandInputs`, when there is a selection.
        without: as in `CommandInputs`.
    """

    def check(request: CommandRequest, given: Mapping[str, object]) -> None:
        _check_selection(request.body, bool(given["yes"]))
        prepare(request, given)

    return CommandInputs("", options=_SELECTION, without=without, own=(_YES, *own), prepare=check)


def bulk_command(operation: str, help: str, done: str, nothing: str = "") -> OperationCommand:
    """Return a command on selected messages.

    Args:
        operation: its name.
        help: the help of the command.
        done: participle for the output, such as ``deleted``.
        nothing: the usual reason for an empty selection.
    """
    return OperationCommand(
        operation,
        "",
        help,
        lambda outcome: print_selected(outcome, done, nothing),
        inputs=selected(),
        afterwards=_ending,
    )


def _ending(outcome: Outcome) -> int:
    """Return the exit code: 1 if no message was selected, or some were refused or missing."""
    facts = outcome.facts
    return DONE if facts["messages"] and not (facts["refused"] or facts["missing"]) else NEGATIVE


def print_selected(outcome: Outcome, done: str, nothing: str = "") -> None:
    """Print what was done with selected messages; see `bulk_command`."""
    facts = outcome.facts
    count, samples = facts["messages"], facts["samples"]
    words = f"would be {done}" if outcome.is_dry else done
    click.echo(f"{counted(count, 'message')} {words} ({facts['bytes']} bytes)")
    if samples and (outcome.is_dry or count <= len(samples)):
        message_table(samples).print(samples)
    if facts["waiting"]:
        render.warn(
            f"the disk is full: {facts['waiting']} of them end when it has room for reports"
        )
    if facts["refused"]:
        refused = counted(facts["refused"], "message")
        render.warn(f"not touched: {refused}, {facts['refused-because']}")
    if facts["held"]:
        held = counted(facts["held"], "message")
        render.warn(f"held, and still so: {held}; see amqproute holds")
    if facts["freed"]:
        freed = counted(facts["freed"], "message")
        render.warn(f"held on the way they waited for, and no more: {freed}; see amqproute holds")
    if facts["missing"]:
        gone = "gone, in flight, or not what --to and --where say: see amqproute why ID"
        warn_of_missing("not found", facts["missing"], gone)
    elif nothing and not (count or facts["refused"]):
        render.warn(nothing)


def warn_of_missing(words: str, ids: Sequence[int], advice: str = "") -> None:
    """Warn of messages that an operation has not found."""
    render.warn(f"{words}: {' '.join(map(str, ids))}" + (f"; {advice}" if advice else ""))


def _check_selection(body: Mapping[str, object], is_sure: bool) -> None:
    """Require a selection, and a confirmation for all messages."""
    meant = body.keys() & {"ids", "to", "where", "all"}
    if "all" in meant and len(meant) > 1:
        raise CommandError(
            USAGE, "usage.all", "--all goes with nothing else", "leave it out, or leave it alone"
        )
    if "all" in meant and not (is_sure or body.get("dry-run")):
        raise CommandError(
            USAGE, "usage.all", "--all means every message to every domain", "say so with --yes"
        )
    if not meant:
        raise CommandError(
            USAGE,
            "usage.which",
            "nothing says which messages are meant",
            "give ids, --to DOMAIN, --where SQL, or --all --yes; ids are shown by: amqproute "
            "queue messages",
        )


def message_table(rows: Sequence[Facts]) -> RowTable:
    """Return the table for messages; those that were moved have further columns."""
    ids = "ID> NEW-ID>" if any(row.get("new-id") for row in rows) else "ID>"
    to = "TO MOVES-TO=new-queue" if any("new-queue" in row for row in rows) else "TO"
    return RowTable(
        f"{ids} {to} STATE AGE> BYTES> ATTEMPTS> MESSAGE-ID",
        {"STATE": _state, "AGE": aged("age-ms")},
    )


def _state(row: Facts) -> object:
    return f"held by {', '.join(row['holds'])}" if row.get("holds") else row["state"]
