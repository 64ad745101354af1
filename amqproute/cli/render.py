# SPDX-License-Identifier: Apache-2.0
"""Print: tables and colors on a terminal, plain text in a pipe, JSON where asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from amqproute.cli.refusal import Refusal

__all__ = ["compact", "json_line", "json_text", "printable", "progress", "refuse", "table", "warn"]


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, right: str = "") -> None:
    """Print rows under headings.

    In a pipe the columns are divided by tabs, whatever their width, for `cut` and `awk`.

    Args:
        headings: of the columns.
        rows: their cells; None is shown as a hyphen.
        right: headings of the columns to align right, divided by blanks.
    """
    cells = [["-" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        click.echo("\t".join(headings))
        for row in cells:
            click.echo("\t".join(row))
        return
    shape = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        justify: Any = "right" if heading in right.split() else "left"
        shape.add_column(heading, justify=justify, overflow="fold")
    for row in cells:
        shape.add_row(*(Text(cell) for cell in row))  # Text: a bracket is no markup here
    Console(highlight=False).print(shape)


def json_text(value: Any) -> None:
    """Print one JSON value, indented."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def compact(value: Any) -> str:
    """Write one JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)


def json_line(value: Any) -> None:
    """Print one JSON value on one line."""
    click.echo(compact(value))


def printable(text: str) -> str:
    """Escape what could move a terminal's cursor: others wrote much of what is shown."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def refuse(refusal: Refusal) -> None:
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


def progress() -> Progress:
    """Return a progress display on stderr that shows nothing unless stderr is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
