# SPDX-License-Identifier: Apache-2.0
"""``queue``: nodes of a daemon: their messages, their creation and deletion at runtime."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.attribute_table import RowTable, aged, print_attributes
from amqproute.cli.commands.common_options import (
    AccessOptions,
    access_options,
    chosen_vhost,
    json_option,
    list_vhost_option,
)
from amqproute.cli.commands.list_command import ListCommand, add_commands
from amqproute.cli.commands.management_request import in_touch, query
from amqproute.cli.commands.message_options import message_table
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandOption,
    CommandRequest,
    OperationCommand,
    Outcome,
)
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted

__all__ = ["queue"]


@click.group(cls=ProgramGroup)
def queue() -> None:
    """Queues and topics of the running daemon.

    Nodes created here survive restarts and reloads of the configuration. Nodes of the configuration
    are changed there.
    """


def _check_listing(request: CommandRequest, given: Mapping[str, object]) -> None:
    """Require a queue or a domain, and list everything without further options."""
    if request.name and "to" in request.body:
        raise CommandError(
            USAGE, "usage.which", "NAME and --to exclude each other", "give one of them"
        )
    if not request.name and chosen_vhost() is not None:
        raise CommandError(
            USAGE,
            "usage.which",
            "messages on their way to other domains are in no virtual host",
            "give NAME with --vhost, or leave it out",
        )
    if not request.body.keys() & {"to", "where"}:
        request.body["all"] = True


def _print_messages(outcome: Outcome) -> None:
    rows = outcome.facts["messages"]
    message_table(rows).print(rows)
    if outcome.facts["more"]:
        click.echo(f"there are more than {len(rows)}: --count shows them", err=True)


def _warn_of_branches(outcome: Outcome) -> None:
    branches = outcome.facts.get("kept-by") or []
    if branches:
        render.warn(
            f"{len(branches)} prepared branches hold messages or places of it; these go when the "
            "branches are resolved, by their transaction manager, or with:"
        )
        for branch in branches:
            render.warn(f"  amqproute transaction roll-back {shlex.quote(branch)}   (or commit)")


def _deleted(outcome: Outcome) -> str:
    return f"{outcome.name}: deleted with {counted(outcome.facts.get('messages', 0), 'message')}"


def _purged(outcome: Outcome) -> str:
    count = outcome.facts.get("messages", 0)
    words = "would be deleted" if outcome.is_dry else "are being deleted"
    return f"{outcome.name}: {counted(count, 'message')} {words}"


_NAMES: Final = CommandInputs(vhost="names")
_TYPE: Final = click.option(
    "--type",
    "kind",
    type=click.Choice(["queue", "topic"]),
    default="queue",
    help="The type of the node. [default: queue]",
)


def _taking(operation: str, done: str, help: str) -> OperationCommand:
    def in_words(outcome: Outcome) -> str:
        words = f"would be {done}" if outcome.is_dry else done
        return f"{counted(outcome.facts['messages'], 'message')} {words}"

    return OperationCommand(
        operation,
        "queue",
        help,
        in_words,
        CommandInputs(vhost="names", options={"filter": CommandOption("--where", metavar="SQL")}),
        afterwards=_not_taken,
    )


def _not_taken(outcome: Outcome) -> int:
    reason = outcome.facts["refused-because"]
    if reason:
        render.warn(f"the rest stays on {outcome.name}: {reason}")
    return NEGATIVE if reason or not outcome.facts["messages"] else DONE


add_commands(
    queue,
    {
        "ls": ListCommand(
            "queue",
            "queues",
            """List the queues: nodes, dynamic nodes, and the relay queues to other domains.

            BYTES are those of the messages at hand, large bodies that are files of their own
            included. OLDEST is the age of the oldest one. The queue NAME of a virtual host is shown
            as //HOST/NAME; relay queues are in none. With --json every attribute is shown, the
            counters since the start of the daemon among them.
            """,
            RowTable(
                "QUEUE=name KIND DEPTH> AVAILABLE> ACQUIRED> DEFERRED> CONSUMERS> BYTES> OLDEST>",
                {"OLDEST": aged("oldest-age-ms")},
            ),
            has_vhost=True,
        ),
        "show": OperationCommand(
            "READ",
            "queue",
            """Show the queue or topic NAME: counters, options, origin.

            Under terms are the values of arguments and policies, each with its source.
            """,
            lambda outcome: print_attributes(outcome.facts),
            _NAMES,
        ),
        "messages": OperationCommand(
            "LIST-MESSAGES",
            "",
            """List messages on the queue NAME, or on their way to other domains.

            ID names a message for `amqproute why`, retry, expire, delete and reroute. STATE is
            waiting, deferred (a peer gave it back), held, or in-flight; ATTEMPTS counts how often
            it was sent.
            """,
            _print_messages,
            CommandInputs(
                vhost="names",
                options={
                    "to": CommandOption(
                        help="Those for a domain, on their way out.", metavar="DOMAIN"
                    ),
                    "count": CommandOption(default=100),
                },
                without=("ids", "all", "with-body"),
                prepare=_check_listing,
            ),
        ),
        "create": OperationCommand(
            "CREATE",
            "queue",
            "Create the queue or topic NAME.",
            lambda outcome: f"{outcome.name}: there is a {outcome.facts['type']}",
            CommandInputs(vhost="names", is_free=True, own=(_TYPE,)),
        ),
        "update": OperationCommand(
            "UPDATE",
            "queue",
            "Change options of the queue or topic NAME that was made at runtime.",
            lambda outcome: f"{outcome.name}: changed",
            CommandInputs(vhost="names", is_free=True),
        ),
        "rename": OperationCommand(
            "RENAME",
            "queue",
            "Rename NAME. Its messages stay, and its links keep working.",
            lambda outcome: f"{outcome.name}: is {outcome.request.body['new-name']} now",
            _NAMES,
        ),
        "delete": OperationCommand(
            "DELETE",
            "queue",
            "Delete NAME with the messages on it. Its links are detached, its bindings go with it.",
            _deleted,
            _NAMES,
            afterwards=_warn_of_branches,
        ),
        "purge": OperationCommand(
            "PURGE",
            "queue",
            """Delete the messages that wait on the queue NAME; those in consumers' hands stay.

            Large backlogs are deleted in the background.
            """,
            _purged,
            _NAMES,
        ),
        "move": _taking(
            "MOVE",
            "moved",
            """Move the messages that wait on the queue NAME to the node TARGET of this daemon.

            Dead letters that are to be tried again, for instance. Those in consumers' hands stay,
            and so do those that TARGET does not take. Exits with 1 if there was nothing to move, or
            if any stayed.
            """,
        ),
        "copy": _taking(
            "COPY",
            "copied",
            """Copy the messages that wait on the queue NAME to the node TARGET of this daemon.

            They stay on NAME, too. A node that drops repeated message-ids (duplicate-policy) does
            so here.
            """,
        ),
    },
)


@queue.command("shape")
@click.option("--all", "everything", is_flag=True, help="Show empty queues too.")
@list_vhost_option
@access_options
@json_option
def shape(
    everything: bool,
    vhost: str | None,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Show the ages of waiting messages: a line for each queue, columns for age in minutes.

    A column counts messages up to that many minutes old, and older than the column before it. Many
    in the last columns of one relay queue: that domain has been unreachable for long. ON-DISK
    counts messages in the store only; they are newer than those in memory. IN-FLIGHT are with
    consumers, or on the way to the other domain.
    """
    rows = in_touch(access, lambda client: query(client, "shape", vhost))
    if not everything:
        rows = [row for row in rows if row["total"]]
    rows.sort(key=lambda row: (-row["total"], row["name"]))
    if as_json:
        render.json_text({"shape": rows})
        return
    bounds = rows[0]["ages-minutes"] if rows else []
    ages = [*map(str, bounds), f"{bounds[-1]}+"] if bounds else []
    sums = ["TOTAL", *_sums(rows)] if rows else []
    render.table(
        ["QUEUE", "TOTAL", *ages, "ON-DISK", "IN-FLIGHT"],
        [*([row["name"], *_counts(row)] for row in rows), *([sums] if sums else [])],
        right=" ".join(["TOTAL", *ages, "ON-DISK", "IN-FLIGHT"]),
    )


def _counts(row: Facts) -> list[int]:
    return [row["total"], *row["ages"], row["on-disk"], row["in-flight"]]


def _sums(rows: Iterable[Facts]) -> list[int]:
    return [sum(column) for column in zip(*map(_counts, rows), strict=True)]
