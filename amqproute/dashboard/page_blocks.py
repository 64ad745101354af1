# SPDX-License-Identifier: Apache-2.0
"""The parts of a page, as values without HTML.

Each block has a key that is unique on its page; rows of a table have keys that are unique in it.
The keys become ids of elements, by which live changes find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

__all__ = [
    "ActionButton",
    "AgeBars",
    "Block",
    "Cell",
    "Column",
    "Command",
    "Facts",
    "Figure",
    "Figures",
    "FilterForm",
    "FormField",
    "FormPanel",
    "LineChart",
    "LineSeries",
    "LinkMap",
    "LogLines",
    "LogRow",
    "MapPeer",
    "Note",
    "Page",
    "PageState",
    "Problem",
    "Problems",
    "Table",
    "TableRow",
    "Toolbar",
]

PageState = Literal["", "good", "doubtful", "bad", "dim"]
"""Meaning of a value for the operator. It is never shown by color alone."""


@dataclass(frozen=True, slots=True)
class AgeBars:
    """Numbers of messages by class of age, youngest first.

    Attributes:
        counts: the counts of each class.
        labels: the labels of each class.
    """

    counts: Sequence[int]
    labels: Sequence[str]

    @property
    def total(self) -> int:
        """The number of messages."""
        return sum(self.counts)

    @property
    def text(self) -> str:
        """The same as text."""
        return ", ".join(
            f"{count:,} {label}"
            for count, label in zip(self.counts, self.labels, strict=True)
            if count
        )


@dataclass(frozen=True, slots=True)
class ActionButton:
    """Leads to the confirmation of an action.

    Attributes:
        label: the label of the button.
        action: the name of the action, from `page_actions`.
        values: its parameters.
    """

    label: str
    action: str
    values: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in a table or among facts.

    Attributes:
        text: what is shown.
        href: where it leads; empty for nowhere.
        state: what it means.
        detail: a second line.
        bars: ages, shown as bars before the text.
        button: an action.
    """

    text: str
    href: str = ""
    state: PageState = ""
    detail: str = ""
    bars: AgeBars | None = None
    button: ActionButton | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        heading: above it; empty for a column of buttons.
        kind: how its values are set.
        is_minor: whether a phone leaves it out.
    """

    heading: str
    kind: Literal["text", "number", "code"] = "text"
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row; its key identifies it among the rows of its table."""

    key: str
    cells: Sequence[Cell]
    state: PageState = ""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form.

    Attributes:
        name: the name of the parameter.
        label: before it.
        value: at first.
        kind: the kind of the input.
        hint: an example or an explanation.
        is_required: whether it must be filled in.
        choices: the choices of a selection: value and label.
    """

    name: str
    label: str
    value: str = ""
    kind: Literal["text", "password", "number", "select", "search"] = "text"
    hint: str = ""
    is_required: bool = False
    choices: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class FilterForm:
    """A form that restricts a table; it is a GET of the page itself."""

    path: str
    fields: Sequence[FormField]
    hidden: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        key: the key of the block.
        title: above it.
        columns: the columns.
        rows: the rows of this page of it.
        empty: what is said in place of a table without rows.
        total: the number of all rows; None if that is not known.
        first: address of the first page of the table; empty on that.
        more: address of the next page; empty on the last.
        filter: restricts it.
        note: below the title.
    """

    template: ClassVar[str] = "table"
    key: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[TableRow]
    empty: str = "none"
    total: int | None = None
    first: str = ""
    more: str = ""
    filter: FilterForm | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values."""

    template: ClassVar[str] = "facts"
    key: str
    title: str
    pairs: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that matters.

    Attributes:
        label: what it is.
        value: the value with its unit.
        remark: below it.
        state: what it means.
        href: where it leads.
    """

    label: str
    value: str
    remark: str = ""
    state: PageState = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    """A few figures side by side."""

    template: ClassVar[str] = "figures"
    key: str
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Command:
    """A command for the terminal."""

    text: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong.

    Attributes:
        state: how bad it is.
        subject: what it is about.
        words: the words to be read after the subject.
        href: where to look next; empty for nowhere.
        command: the command for the terminal; empty without one.
        code: the code of the verdict.
        more: how many more of the kind there are.
    """

    state: PageState
    subject: str
    words: str
    href: str = ""
    command: str = ""
    code: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class Problems:
    """Findings, the worst first; an empty list says that all is well."""

    template: ClassVar[str] = "problems"
    key: str
    problems: Sequence[Problem]
    well: str = "All is well."


@dataclass(frozen=True, slots=True)
class Note:
    """A prominent sentence, with details and commands."""

    template: ClassVar[str] = "note"
    key: str
    text: str
    state: PageState = ""
    items: Sequence[str] = ()
    commands: Sequence[Command] = ()


@dataclass(frozen=True, slots=True)
class LineSeries:
    """One line of a chart.

    Attributes:
        label: the label of the line.
        points: coordinates for an SVG polyline, one text for each unbroken part.
        latest: the last value, as text.
    """

    label: str
    points: Sequence[str]
    latest: str


@dataclass(frozen=True, slots=True)
class LineChart:
    """A chart over time, with its coordinates calculated.

    Attributes:
        key: the key of the block.
        title: above it.
        series: the lines.
        top: the value at the upper edge, as text.
        begin: the time at the left edge, as text.
        end: the time at the right edge.
    """

    template: ClassVar[str] = "chart"
    key: str
    title: str
    series: Sequence[LineSeries]
    top: str
    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class MapPeer:
    """An organization on the map.

    Attributes:
        name: its domain, or the key of the next hop.
        href: its page.
        state: the state of the link to it.
        out: the link to it, in a word or two.
        into: the links from it.
        waiting: messages that wait for it, as text.
        x: the left edge of its box.
        y: the upper edge.
        path: the path of the line between the two boxes, for SVG.
    """

    name: str
    href: str
    state: PageState
    out: str
    into: str
    waiting: str
    x: int
    y: int
    path: str


@dataclass(frozen=True, slots=True)
class LinkMap:
    """This organization in the middle, others around it, and the links between them."""

    template: ClassVar[str] = "map"
    key: str
    title: str
    center: str
    peers: Sequence[MapPeer]
    height: int
    center_y: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class LogRow:
    """A line of a log or of a message's life.

    Attributes:
        time: when.
        label: level, or kind of event.
        text: what.
        state: what it means.
        detail: a second line.
    """

    time: str
    label: str
    text: str
    state: PageState = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines in the order of time."""

    template: ClassVar[str] = "log"
    key: str
    title: str
    rows: Sequence[LogRow]
    empty: str = "nothing yet"


@dataclass(frozen=True, slots=True)
class Toolbar:
    """Actions on what the page is about."""

    template: ClassVar[str] = "toolbar"
    key: str
    buttons: Sequence[ActionButton]


@dataclass(frozen=True, slots=True)
class FormPanel:
    """A form that is posted.

    Attributes:
        key: the key of the block.
        title: above it.
        path: where it is posted to.
        fields: the fields to be filled in.
        submit: label of the button.
        hidden: further parameters.
        cancel: address of the way back; empty without one.
        is_grave: whether the button warns.
    """

    template: ClassVar[str] = "form"
    key: str
    title: str
    path: str
    fields: Sequence[FormField]
    submit: str
    hidden: Sequence[tuple[str, str]] = ()
    cancel: str = ""
    is_grave: bool = False


Block: TypeAlias = (
    Table | Facts | Figures | Problems | Note | LineChart | LinkMap | LogLines | Toolbar | FormPanel
)


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        title: its heading.
        blocks: the blocks from the top down.
        section: the entry of the navigation that it belongs to.
        subtitle: below the heading.
        parent: the page above it: label and address; None at the top.
        status: the status of the HTTP response.
        is_live: whether it makes sense to follow it.
        alarms: the verdicts about the broker; None if they are not for this user.
        at_ms: when it was made, ms since the epoch.
    """

    title: str
    blocks: Sequence[Block]
    section: str = ""
    subtitle: str = ""
    parent: tuple[str, str] | None = None
    status: int = 200
    is_live: bool = True
    alarms: Sequence[Problem] | None = None
    at_ms: int = 0
