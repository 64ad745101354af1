# SPDX-License-Identifier: Apache-2.0
"""What is drawn on a terminal, with rich. `amqproute.cli.render` says when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = ["progress", "table"]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str]) -> None:
    """Print rows under headings, on stdout; those named in `right` are aligned right."""
    shape = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        justify: Any = "right" if heading in right else "left"
        shape.add_column(heading, justify=justify, overflow="fold")
    for row in rows:
        shape.add_row(*(Text(cell) for cell in row))  # Text: a bracket is no markup here
    Console(highlight=False).print(shape)


def progress() -> Progress:
    """Return a display of how far the tasks are that are added to it, on stderr."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
