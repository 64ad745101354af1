# SPDX-License-Identifier: Apache-2.0
"""Options by which operators select messages, and the output of bulk commands."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import go_through
from amqproute.cli.message_text import Facts

__all__ = [
    "MessageOptions",
    "age",
    "bulk_command",
    "counted",
    "entry_id",
    "message_rows",
    "message_table",
]

Decorator = Callable[[Callable[..., object]], Callable[..., object]]


def entry_id(text: str) -> int:
    """Read the number of a message in the store: the type of a `click` parameter.

    Raises:
        click.BadParameter: it is not a number.
    """
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 63):
        raise click.BadParameter(
            f"{text[:64]!r} is no id of a message: ids are the broker's own numbers, shown by "
            "`amqproute queue messages`; a message-id is given by "
            "--where \"amqp.message_id = '...'\" there"
        )
    return int(text)


MESSAGE_COLUMNS: Final = (
    ("id", "ID"),
    ("to", "TO"),
    ("state", "STATE"),
    ("age-ms", "AGE"),
    ("bytes", "BYTES"),
    ("attempts", "ATTEMPTS"),
    ("message-id", "MESSAGE-ID"),
)


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """A selection of messages, and the options for the connection.

    Attributes:
        access: options for the connection.
        which: the selection, as in a request.
        is_dry: only count the messages.
        as_json: print JSON.
    """

    access: AccessOptions
    which: Mapping[str, object]
    is_dry: bool
    as_json: bool

    def carry_out(self, operation: str, done: str, *, nothing: str = "", **more: object) -> int:
        """Apply an operation to all selected messages, and print the result.

        Args:
            operation: its name.
            done: participle for the output, such as ``deleted``.
            nothing: the usual reason for an empty selection.
            more: further attributes of the request.

        Returns:
            The exit code: 1 if no message was selected, or some were refused or missing.
        """
        numbers = ("messages", "bytes", "refused", "waiting", "held", "freed")
        total: Facts = dict.fromkeys(numbers, 0)
        total |= {"refused-because": "", "missing": []}
        samples: list[Facts] = []
        queues: set[str] = set()
        with render.progress() as progress:
            task = progress.add_task(done, total=None)

            def told(facts: Facts) -> bool:
                for key in numbers:
                    total[key] += int(facts.get(key) or 0)
                total["refused-because"] = facts.get("refused-because") or total["refused-because"]
                total["missing"] += facts.get("missing") or []
                samples.extend(facts.get("samples") or [])
                queues.update(facts.get("queues") or [])
                progress.update(task, completed=total["messages"])
                return True

            dry = {"dry-run": True} if self.is_dry else {}
            go_through(self.access, operation, {**self.which, **more, **dry}, told)
        del samples[5:]
        if self.as_json:
            facts = {**total, "dry-run": self.is_dry, "queues": sorted(queues), "samples": samples}
            render.json_text(facts)
        else:
            self._print(total, samples, done, nothing)
        is_all = total["messages"] and not (total["refused"] or total["missing"])
        return DONE if is_all else NEGATIVE

    def _print(
        self, total: Mapping[str, Any], samples: Sequence[Any], done: str, nothing: str
    ) -> None:
        count = total["messages"]
        words = f"would be {done}" if self.is_dry else done
        click.echo(f"{counted(count)} {words} ({total['bytes']} bytes)")
        if samples and (self.is_dry or count <= len(samples)):
            message_table(samples)
        if total["waiting"]:
            render.warn(
                f"the disk is full: {total['waiting']} of them end when it has room for reports"
            )
        if total["refused"]:
            render.warn(f"not touched: {counted(total['refused'])}, {total['refused-because']}")
        if total["held"]:
            render.warn(f"held, and still so: {counted(total['held'])}; see amqproute holds")
        if total["freed"]:
            render.warn(
                f"held on the way they waited for, and no more: {counted(total['freed'])}; "
                "see amqproute holds"
            )
        if total["missing"]:
            ids = " ".join(map(str, total["missing"]))
            render.warn(
                f"not found: {ids}; gone, in flight, or not what --to and --where say: "
                "see amqproute why ID"
            )
        elif nothing and not (count or total["refused"]):
            render.warn(nothing)


def bulk_command(*own: Decorator) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command of a function whose first argument is a `MessageOptions`.

    Usage without a selection, or with all messages and without confirmation, is an error
    (`CommandError`).

    Args:
        own: further options of the command, and further arguments of the function.
    """

    def decorate(command: Callable[..., int]) -> click.Command:
        @functools.wraps(command)
        def gathered(
            ids: Sequence[int],
            to: str,
            where: str,
            everything: bool,
            yes: bool,
            dry_run: bool,
            access: AccessOptions,
            as_json: bool,
            **more: object,
        ) -> int:
            which = _meant(ids, to, where, everything, yes or dry_run)
            return command(MessageOptions(access, which, dry_run, as_json), **more)

        decorated: Callable[..., int] = gathered
        for option in reversed((*_OPTIONS, *own, access_options, json_option)):
            decorated = option(decorated)
        return click.command()(decorated)

    return decorate


_OPTIONS: Final[Sequence[Decorator]] = (
    click.argument("ids", metavar="[ID]...", nargs=-1, type=entry_id),
    click.option(
        "--to",
        metavar="DOMAIN",
        default="",
        help="Those for a domain, or on one relay queue (as `amqproute peer ls` names it).",
    ),
    click.option(
        "--where",
        metavar="SQL",
        default="",
        help="Those that a selector fits, as in --where \"amqp.subject = 'invoice'\".",
    ),
    click.option("--all", "everything", is_flag=True, help="All messages to all domains."),
    click.option("--yes", is_flag=True, help="With --all: yes, all of them."),
    click.option("--dry-run", is_flag=True, help="Only count, and show five of them."),
)


def _meant(ids: Sequence[int], to: str, where: str, everything: bool, is_sure: bool) -> Facts:
    """Return the selection as in a request.

    Raises:
        CommandError: there is no selection, or all messages without confirmation.
    """
    given: Facts = {}
    if ids:
        given["ids"] = list(ids)
    if to:
        given["to"] = to
    if where:
        given["where"] = where
    if everything and given:
        raise CommandError(
            USAGE, "usage.all", "--all goes with nothing else", "leave it out, or leave it alone"
        )
    if everything and not is_sure:
        raise CommandError(
            USAGE, "usage.all", "--all means every message to every domain", "say so with --yes"
        )
    if everything:
        return {"all": True}
    if not given:
        raise CommandError(
            USAGE,
            "usage.which",
            "nothing says which messages are meant",
            "give ids, --to DOMAIN, --where SQL, or --all --yes; ids are shown by: amqproute "
            "queue messages",
        )
    return given


def counted(count: int) -> str:
    """Format a number of messages."""
    return f"{count} message{'s' if count != 1 else ''}"


def message_table(rows: Sequence[Facts]) -> None:
    """Print messages."""
    columns = list(MESSAGE_COLUMNS)
    if any("new-queue" in row for row in rows):
        columns.insert(2, ("new-queue", "MOVES-TO"))
    if any(row.get("new-id") for row in rows):
        columns.insert(1, ("new-id", "NEW-ID"))
    render.table(
        [heading for _, heading in columns],
        ([_cell(key, row) for key, _ in columns] for row in rows),
        right="ID NEW-ID AGE BYTES ATTEMPTS",
    )


def message_rows(
    access: AccessOptions, which: Mapping[str, object], count: int, *, name: str = ""
) -> tuple[list[Facts], bool]:
    """Return waiting messages in order, and whether there are more."""
    rows: list[Facts] = []
    more = False

    def told(facts: Facts) -> bool:
        nonlocal more
        rows.extend(facts["messages"])
        more = bool(facts.get("cursor")) or len(rows) > count
        return len(rows) < count

    go_through(access, "LIST-MESSAGES", {**which, "count": count}, told, name=name)
    return rows[:count], more


def _cell(key: str, row: Facts) -> object:
    value = row.get(key)
    if key == "age-ms" and value is not None:
        return age(value)
    if key == "state" and row.get("holds"):
        return f"held by {', '.join(row['holds'])}"
    return value


def age(milliseconds: int) -> str:
    """Format a time span in one suitable unit."""
    seconds = milliseconds // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
