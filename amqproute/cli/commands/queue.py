# SPDX-License-Identifier: Apache-2.0
"""``queue``: nodes of a daemon: their messages, their creation and deletion at runtime."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any, Final, TypedDict, Unpack

import click
import yaml

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import (
    NODE_NAME,
    AccessOptions,
    access_options,
    chosen_vhost,
    json_option,
    list_vhost_option,
    vhost_option,
)
from amqproute.cli.commands.management_request import carry_out, entities, entity, go_through
from amqproute.cli.commands.message_options import age, message_rows, message_table
from amqproute.cli.commands.operation_command import (
    OperationCommand,
    Outcome,
    operation_command,
)
from amqproute.cli.commands.policy import with_sources
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.plurals import counted

__all__ = ["queue"]

COLUMNS: Final = (
    ("name", "QUEUE"),
    ("kind", "KIND"),
    ("depth", "DEPTH"),
    ("available", "AVAILABLE"),
    ("acquired", "ACQUIRED"),
    ("deferred", "DEFERRED"),
    ("consumers", "CONSUMERS"),
    ("bytes", "BYTES"),
    ("oldest-age-ms", "OLDEST"),
)


@click.group(cls=ProgramGroup)
def queue() -> None:
    """Queues and topics of the running daemon.

    Nodes created here survive restarts and reloads of the configuration. Nodes of the configuration
    are changed there.
    """


@queue.command("ls")
@list_vhost_option
@access_options
@json_option
def ls(vhost: str | None, access: AccessOptions, as_json: bool) -> None:
    """List the queues: nodes, dynamic nodes, and the relay queues to other domains.

    BYTES are those of the messages at hand, large bodies that are files of their own included.
    OLDEST is the age of the oldest one. The queue NAME of a virtual host is shown as //HOST/NAME;
    relay queues are in none. With --json every attribute is shown, the counters since
    the start of the daemon among them.
    """
    rows = entities(access, "queue", vhost)
    if as_json:
        render.json_text({"queues": rows})
        return
    render.table(
        [heading for _, heading in COLUMNS],
        ([_cell(key, row) for key, _ in COLUMNS] for row in rows),
        right="DEPTH AVAILABLE ACQUIRED DEFERRED CONSUMERS BYTES OLDEST",
    )


@queue.command("show")
@click.argument("name", type=NODE_NAME)
@vhost_option
@access_options
@json_option
def show(name: str, access: AccessOptions, as_json: bool) -> None:
    """Show the queue or topic NAME: counters, options, origin.

    Under terms are the values of arguments and policies, each with its source.
    """
    facts = entity(access, "queue", name)
    if as_json:
        render.json_text(facts)
        return
    render.table(["ATTRIBUTE", "VALUE"], _flat(with_sources(facts)))


@queue.command("messages")
@click.argument("name", type=NODE_NAME, required=False)
@vhost_option
@click.option("--to", metavar="DOMAIN", default="", help="Those for a domain, on their way out.")
@click.option("--where", metavar="SQL", default="", help="Those that a selector fits.")
@click.option(
    "--count", default=100, show_default=True, type=click.IntRange(1), help="No more than these."
)
@access_options
@json_option
def messages(
    name: str | None,
    to: str,
    where: str,
    count: int,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """List messages on the queue NAME, or on their way to other domains.

    ID names a message for `amqproute why`, retry, expire, delete and reroute. STATE is waiting,
    deferred (a peer gave it back), held, or in-flight; ATTEMPTS counts how often it was sent.
    """
    if name and to:
        raise CommandError(
            USAGE, "usage.which", "NAME and --to exclude each other", "give one of them"
        )
    if not name and chosen_vhost() is not None:
        raise CommandError(
            USAGE,
            "usage.which",
            "messages on their way to other domains are in no virtual host",
            "give NAME with --vhost, or leave it out",
        )
    which: Facts = {**({"to": to} if to else {}), **({"where": where} if where else {})}
    if not which:
        which = {"all": True}
    rows, more = message_rows(access, which, count, name=name or "")
    if as_json:
        render.json_text({"messages": rows, "more": more})
        return
    message_table(rows)
    if more:
        click.echo(f"there are more than {len(rows)}: --count shows them", err=True)


@queue.command("create")
@click.argument("name", type=NODE_NAME)
@vhost_option
@click.option(
    "--type",
    "kind",
    type=click.Choice(["queue", "topic"]),
    default="queue",
    help="The type of the node. [default: queue]",
)
@click.option(
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    help="An option as under `nodes` in the configuration, as in --option capacity=1000; "
    "repeatable.",
)
@click.option(
    "--or-assert",
    is_flag=True,
    help="Do nothing if there is one with these options already.",
)
@access_options
@json_option
def create(
    name: str,
    kind: str,
    options: tuple[str, ...],
    or_assert: bool,
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Create the queue or topic NAME."""
    given = _options(options)
    more = {"or-assert": True} if or_assert else {}
    facts = carry_out(access, "CREATE", kind, name, given, **more)
    _print(facts, as_json, f"{name}: there is a {facts.get('type', kind)}")


@queue.command("update")
@click.argument("name", type=NODE_NAME)
@vhost_option
@click.option(
    "--option",
    "options",
    metavar="KEY=VALUE",
    multiple=True,
    required=True,
    help="An option to change; with the value null it gets its default again. Repeatable.",
)
@access_options
@json_option
def update(
    name: str,
    options: tuple[str, ...],
    access: AccessOptions,
    as_json: bool,
) -> None:
    """Change options of the queue or topic NAME that was made at runtime."""
    facts = carry_out(access, "UPDATE", "queue", name, _options(options))
    _print(facts, as_json, f"{name}: changed")


def _renamed(outcome: Outcome) -> str:
    return f"{outcome.name}: is {outcome.asked['new-name']} now"


def _deleted(outcome: Outcome) -> str:
    return f"{outcome.name}: deleted with {counted(outcome.facts.get('messages', 0), 'message')}"


def _warn_of_branches(outcome: Outcome) -> None:
    branches = outcome.facts.get("kept-by") or []
    if branches:
        render.warn(
            f"{len(branches)} prepared branches hold messages or places of it; these go when the "
            "branches are resolved, by their transaction manager, or with:"
        )
        for branch in branches:
            render.warn(f"  amqproute transaction roll-back {shlex.quote(branch)}   (or commit)")


def _purged(outcome: Outcome) -> str:
    count = outcome.facts.get("messages", 0)
    words = "would be deleted" if outcome.asked.get("dry-run") else "are being deleted"
    return f"{outcome.name}: {counted(count, 'message')} {words}"


for _name, _declared in {
    "rename": OperationCommand(
        "RENAME",
        "queue",
        "Rename NAME. Its messages stay, and its links keep working.",
        _renamed,
        vhost="names",
    ),
    "delete": OperationCommand(
        "DELETE",
        "queue",
        "Delete NAME with the messages on it. Its links are detached, its bindings go with it.",
        _deleted,
        vhost="names",
        afterwards=_warn_of_branches,
    ),
    "purge": OperationCommand(
        "PURGE",
        "queue",
        """Delete the messages that wait on the queue NAME; those in consumers' hands stay.

        Large backlogs are deleted in the background.
        """,
        _purged,
        vhost="names",
    ),
}.items():
    queue.add_command(operation_command(_name, _declared))


class _TakeOptions(TypedDict):
    across_hosts: bool
    where: str
    limit: int | None
    dry_run: bool
    access: AccessOptions
    as_json: bool


def _taking(command: Callable[..., object]) -> Callable[..., object]:
    """Add what `move` and `copy` have in common."""
    for add in (
        json_option,
        access_options,
        click.option("--dry-run", is_flag=True, help="Only count them."),
        click.option(
            "--across-hosts",
            is_flag=True,
            help="TARGET may be in another virtual host, //HOST/NAME.",
        ),
        click.option("--limit", type=click.IntRange(1), help="Most messages to process."),
        click.option(
            "--where",
            metavar="SQL",
            default="",
            help="Those that a selector fits, as in --where \"color = 'red'\".",
        ),
        vhost_option,
        click.argument("target", type=NODE_NAME),
        click.argument("name", type=NODE_NAME),
    ):
        command = add(command)
    return command


@queue.command("move")
@_taking
def move(name: str, target: str, **given: Unpack[_TakeOptions]) -> int:
    """Move the messages that wait on the queue NAME to the node TARGET of this daemon.

    Dead letters that are to be tried again, for instance. Those in consumers' hands stay, and so
    do those that TARGET does not take. Exits with 1 if there was nothing to move, or if any stayed.
    """
    return _take("MOVE", "moved", name, target, **given)


@queue.command("copy")
@_taking
def copy(name: str, target: str, **given: Unpack[_TakeOptions]) -> int:
    """Copy the messages that wait on the queue NAME to the node TARGET of this daemon.

    They stay on NAME, too. A node that drops repeated message-ids (duplicate-policy) does so here.
    """
    return _take("COPY", "copied", name, target, **given)


def _take(
    operation: str,
    done: str,
    name: str,
    target: str,
    *,
    across_hosts: bool,
    where: str,
    limit: int | None,
    dry_run: bool,
    access: AccessOptions,
    as_json: bool,
) -> int:
    asked: Facts = {"target": target, **({"across-hosts": True} if across_hosts else {})}
    if where:
        asked["filter"] = where
    if limit is not None:
        asked["limit"] = limit
    if dry_run:
        asked["dry-run"] = True
    total: Facts = {"messages": 0, "refused": 0, "refused-because": ""}

    def told(facts: Facts) -> bool:
        total["messages"] += int(facts["messages"])
        total["refused"] += int(facts["refused"])
        total["refused-because"] = facts["refused-because"] or total["refused-because"]
        if limit is not None:
            asked["limit"] = limit - total["messages"]
        return limit is None or total["messages"] < limit

    go_through(access, operation, asked, told, name=name)
    words = f"would be {done}" if dry_run else done
    _print(
        {**total, "dry-run": dry_run}, as_json, f"{counted(total['messages'], 'message')} {words}"
    )
    if total["refused-because"]:
        render.warn(f"the rest stays on {name}: {total['refused-because']}")
    return NEGATIVE if not total["messages"] or total["refused-because"] else DONE


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
    rows = entities(access, "shape", vhost)
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


def _options(given: Iterable[str]) -> Facts:
    """Read KEY=VALUE as the configuration would read ``KEY: VALUE``."""
    options: Facts = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise CommandError(
                USAGE, "usage.option", f"{text!r} is not KEY=VALUE", "as in --option capacity=1000"
            )
        try:
            options[key] = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError):
            options[key] = value
        if not isinstance(options[key], str | int | float | bool | list | None):
            options[key] = value
    return options


def _print(facts: Facts, as_json: bool, words: str) -> None:
    if as_json:
        render.json_text(facts)
    else:
        click.echo(words)


def _flat(facts: Facts, prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield f"{prefix}{key}", value
        else:
            yield f"{prefix}{key}", _cell(key, facts)


def _cell(key: str, row: Facts) -> object:
    value = row.get(key)
    if key == "oldest-age-ms" and value is not None:
        return age(value)
    return value
