# SPDX-License-Identifier: Apache-2.0
"""Tables of attributes: the columns of lists, and an entity with a line for each attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import compress

from amqproute.cli import render
from amqproute.cli.message_text import Facts

__all__ = ["Cell", "RowTable", "age", "aged", "as_given", "cell_of", "moment", "print_attributes"]

Cell = Callable[[Facts], object]


@dataclass(frozen=True, slots=True)
class RowTable:
    """A table with a line for each row.

    Attributes:
        columns: the headings, divided by blanks, as in ``QUEUE=name STATE DEPTH>``: each with its
            attribute, where that is not the heading in lower case; those with ``>`` are aligned
            right.
        cells: columns without an attribute: functions that return the value of a row.
        spare: headings of the columns that a narrow terminal does without; see `render.table`.
    """

    columns: str
    cells: Mapping[str, Cell] = field(default_factory=dict)
    spare: str = ""

    @property
    def headings(self) -> list[str]:
        """The headings."""
        return [each.partition("=")[0].rstrip(">") for each in self.columns.split()]

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the columns that have one, by their headings."""
        return {
            heading: text.rstrip(">").partition("=")[2] or heading.lower()
            for heading, text in zip(self.headings, self.columns.split(), strict=True)
            if heading not in self.cells
        }

    def print(self, rows: Iterable[Facts]) -> None:
        """Print rows under the headings."""
        columns: dict[str, str | Cell] = {**self.cells, **self.attributes}
        is_right = [each.endswith(">") for each in self.columns.split()]
        render.table(
            self.headings,
            ([cell_of(columns[each], row) for each in self.headings] for row in rows),
            right=" ".join(compress(self.headings, is_right)),
            spare=self.spare,
        )


def cell_of(column: str | Cell, row: Facts) -> object:
    """Return the value of a column in a row; None for an empty text."""
    if not isinstance(column, str):
        return column(row)
    value = row.get(column)
    return None if value == "" else value


def as_given(key: str) -> Cell:
    """Return a column of an attribute that may be an empty text."""
    return lambda row: row.get(key)


def aged(key: str) -> Cell:
    """Return a column of an attribute that is an age in milliseconds."""
    return lambda row: None if row.get(key) is None else age(row[key])


def age(milliseconds: int) -> str:
    """Format a time span in one suitable unit."""
    seconds = milliseconds // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def moment(milliseconds: int | None) -> str | None:
    """Format milliseconds since the epoch as a date and time; None for 0 and None."""
    if not milliseconds:
        return None
    found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


def print_attributes(facts: Facts) -> None:
    """Print the attributes of an entity; those that are maps with a line for each entry."""
    render.table(["ATTRIBUTE", "VALUE"], _lines(_with_sources(facts)))


def _lines(facts: Facts, prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in facts.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{key}.")
        elif key == "oldest-age-ms" and value is not None:
            yield f"{prefix}{key}", age(value)
        else:
            yield f"{prefix}{key}", value


def _with_sources(facts: Facts) -> Facts:
    """Return facts of a queue or exchange with each of its terms as text: value and source."""
    terms = facts.get("terms")
    if not isinstance(terms, dict):
        return facts
    words = {
        key: f"{render.cell(term['value'])} ({' '.join(filter(None, _source(term)))})"
        for key, term in terms.items()
    }
    return {**facts, "terms": words}


def _source(term: Mapping[str, object]) -> tuple[str, str]:
    return str(term["source"]), str(term.get("policy", ""))
