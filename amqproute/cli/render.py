# SPDX-License-Identifier: Apache-2.0
"""Output: tables and colors on a terminal, plain text in a pipe, JSON on request.

Output for terminals is in `amqproute.cli.terminal`, which is imported only where there is one:
scripts call commands many times, and should not wait for it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from types import TracebackType
from typing import Any, Final, Protocol, Self

import click

from amqproute.cli.command_error import CommandError
from amqproute.printable import printable

__all__ = [
    "ProgressLine",
    "cell",
    "compact",
    "json_line",
    "json_text",
    "printable",
    "progress",
    "refuse",
    "table",
    "warn",
]


_DOUBTFUL: Final = re.compile(r"[^ -~\n]")
"""Non-ASCII characters in JSON; those that are not printable are escaped."""


class ProgressLine(Protocol):
    """A progress display, active while it is entered or started; the interface of `rich`."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def start(self) -> None:
        """Start the display."""

    def stop(self) -> None:
        """Remove the display."""

    def add_task(self, description: str, *, total: float | None) -> object:
        """Add a line for a task with a total, and return its id."""

    # Any: a task is a type of rich, which is imported on a terminal only.
    def update(self, task: Any, /, *, description: str = ..., completed: float = ...) -> None:
        """Update the position or the description of a task."""

    def advance(self, task: Any, /) -> None:
        """Advance a task by one."""


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: str = "", spare: str = ""
) -> None:
    """Print rows under headings.

    In a pipe the columns are separated by tabs, for `cut` and `awk`.

    Args:
        headings: the headings of the columns.
        rows: their cells; see `cell`.
        right: headings of the columns to align right, divided by blanks.
        spare: headings of the columns that a terminal too narrow for all does without, likewise,
            in the order in which they are left out.
    """
    cells = [[cell(each) for each in row] for row in rows]
    if sys.stdout.isatty():
        from amqproute.cli import terminal  # for whoever looks at it only, see above

        terminal.table(headings, cells, right.split(), spare.split())
        return
    click.echo("\t".join(headings))
    for row in cells:
        click.echo("\t".join(row))


def cell(value: object) -> str:
    """Format a value: None as a hyphen, others as in the configuration."""
    return printable(_in_words(value))


def _in_words(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return _in_words(value.value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        pairs = ((str(key), _in_words(each)) for key, each in value.items())
        return ", ".join(f"{key}: {each}" for key, each in pairs) or "-"
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_in_words, value)) or "-"
    return str(value)


def json_text(value: object) -> None:
    """Print one JSON value, indented."""
    click.echo(_json(value, indent=2))


def compact(value: object) -> str:
    """Return one JSON value on one line."""
    return _json(value)


def _json(value: object, indent: int | None = None) -> str:
    """Return readable JSON without characters that control a terminal; see `printable`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _DOUBTFUL.sub(_escaped, text)


def _escaped(doubtful: re.Match[str]) -> str:
    each = doubtful[0]
    return each if each.isprintable() else json.dumps(each)[1:-1]


def json_line(value: object) -> None:
    """Print one JSON value on one line."""
    click.echo(compact(value))


def refuse(refusal: CommandError) -> None:
    """Print a refusal on stderr: code and cause, details, next step."""
    click.secho(f"{refusal.code}: ", fg="red", bold=True, nl=False, err=True)
    click.echo(printable(refusal.words), err=True)
    for line in refusal.details:
        click.echo(f"  {printable(line)}", err=True)
    if refusal.next_step:
        click.echo(f"  next: {refusal.next_step}", err=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    click.secho("warning: ", fg="yellow", nl=False, err=True)
    click.echo(printable(text), err=True)


def progress() -> ProgressLine:
    """Return a progress display on stderr that shows nothing unless stderr is a terminal."""
    if not sys.stderr.isatty():
        return _Unseen()
    from amqproute.cli import terminal  # for whoever looks at it only, see above

    return terminal.progress()


class _Unseen:
    """A `ProgressLine` without output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def add_task(self, description: str, *, total: float | None) -> object:
        return None

    def update(self, task: Any, /, *, description: str = "", completed: float = 0) -> None:
        pass

    def advance(self, task: Any, /) -> None:
        pass
