# SPDX-License-Identifier: Apache-2.0
"""Output for terminals, with rich, on behalf of `amqproute.cli.render`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["fitting", "progress", "table"]


GAP: Final = 2
"""Blanks between two columns."""


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    spare: Sequence[str] = (),
) -> None:
    """Print rows under headings, on stdout.

    Args:
        headings: the headings of the columns.
        rows: their cells.
        right: headings of the columns that are aligned right.
        spare: headings of the columns that are left out, in this order, where the terminal is too
            narrow for all of them.
    """
    console = Console(highlight=False)
    shape = Table(box=None, pad_edge=False, header_style="bold")
    widths = [
        max(map(cell_len, (heading, *(row[at] for row in rows))))
        for at, heading in enumerate(headings)
    ]
    shown = fitting(headings, widths, spare, console.width)
    for at in shown:
        justify: Any = "right" if headings[at] in right else "left"
        shape.add_column(headings[at], justify=justify, overflow="fold")
    for row in rows:
        shape.add_row(*(Text(row[at]) for at in shown))  # Text: a bracket is no markup here
    console.print(shape)
    left_out = [heading for at, heading in enumerate(headings) if at not in shown]
    if left_out:
        Console(stderr=True, highlight=False).print(
            Text(f"not shown at this width: {', '.join(left_out)}")
        )


def fitting(
    headings: Sequence[str], widths: Sequence[int], spare: Sequence[str], room: int
) -> list[int]:
    """Return the indexes of the columns to show.

    Args:
        headings: the headings of all columns.
        widths: likewise, of the widest cell of each.
        spare: those that may be left out, in this order.
        room: the width of the terminal.
    """
    shown = list(range(len(headings)))
    for heading in spare:
        if sum(widths[at] + GAP for at in shown) - GAP <= room:
            break
        shown.remove(headings.index(heading))
    return shown


def progress() -> Progress:
    """Return a progress display on stderr."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
