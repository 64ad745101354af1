# SPDX-License-Identifier: Apache-2.0
"""HTML of pages and of their parts, by the templates.

All text is escaped by the template engine. In addition, characters that a browser would act upon
or not show (controls, marks of writing direction, lone surrogates) appear as their codes, and very
long text is cut: a name that a stranger has chosen is shown for what it is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from amqproute.dashboard.display_units import BASE, CountedTime
from amqproute.dashboard.page_blocks import (
    AgeBars,
    Block,
    LogLines,
    LogRow,
    Page,
    Problem,
    Table,
    TableRow,
)
from amqproute.printable import printable
from amqproute.turn_scheduler import Pause

__all__ = [
    "LONGEST_TEXT",
    "ROWS_IN_TURN",
    "HtmlRenderer",
    "PageFrame",
    "line_ids",
    "row_id",
    "visible",
]

FIRST_OLD: Final = 4
"""The first class of age whose bar has the color of what is old."""
ROWS_IN_TURN: Final = 4
"""Rows that are made in one step, of about a millisecond."""
LONGEST_TEXT: Final = 500
"""Most characters of one value on a page."""

NAVIGATION: Final[Sequence[tuple[str, str, str]]] = (
    ("overview", "Overview", ""),
    ("peers", "Organizations", "peers"),
    ("queues", "Queues", "queues"),
    ("holds", "Holds", "holds"),
    ("trace", "Trace", "trace"),
    ("connections", "Connections", "connections"),
    ("channels", "Channels", "channels"),
    ("exchanges", "Exchanges", "exchanges"),
    ("bindings", "Bindings", "bindings"),
    ("hosts", "Virtual hosts", "hosts"),
    ("journal", "Journal", "journal"),
    ("report", "Report", "report"),
    ("log", "Log", "log"),
    ("users", "Users", "users"),
    ("broker", "Broker", "broker"),
)
"""Section, label and page of the entries of the navigation."""


@dataclass(frozen=True, slots=True)
class PageFrame:
    """Frame of a page.

    Attributes:
        user: who has logged in; empty before the log-in.
        csrf: the token that forms carry.
        broker: the name of the broker.
        here: address of the page, to come back to.
        live: address of its changes; empty without.
        time: the time of the page, UTC.
        rows: HTML of all rows of a table or log, by the key of its block, where it has been made
            already.
        blocks: likewise, HTML of whole blocks.
    """

    user: str = ""
    csrf: str = ""
    broker: str = ""
    here: str = ""
    live: str = ""
    time: str = ""
    rows: Mapping[str, Markup] = field(default_factory=dict)
    blocks: Mapping[str, Markup] = field(default_factory=dict)


def visible(text: str) -> str:
    """Replace invisible characters by their codes; shorten very long text."""
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "…"
    return printable(text)


def row_id(table: Table, row: TableRow) -> str:
    """Return the id of a row's element: a digest, as a name may have any characters."""
    return f"r-{table.key}-{_digest(row.key)}"


def age_rects(bars: AgeBars) -> Markup:
    """Return the bars of a chart of ages: of numbers only, so that nothing has to be escaped."""
    most = max([*bars.counts, 1])
    made = []
    for place, count in enumerate(bars.counts):
        tall = round(max(20 * count / most, 2), 1) if count else 0.0
        name = "old" if place >= FIRST_OLD else "young"
        made.append(
            f'<rect class="{name}" x="{9 * place}" y="{21 - tall:.1f}" width="7" '
            f'height="{tall:.1f}"></rect>'
        )
    return Markup("\n".join(made))  # noqa: S704 # numbers only


def line_ids(block: LogLines) -> Sequence[str]:
    """Return the ids of the lines' elements: digests, numbered from the last one if they repeat.

    So a line keeps its id when newer ones come, whichever end they come to.
    """
    seen: Counter[str] = Counter()
    found = []
    for line in reversed(block.rows):
        digest = _digest(repr(line))
        seen[digest] += 1
        found.append(f"l-{block.key}-{digest}-{seen[digest]}")
    return found[::-1]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _counted(time: CountedTime) -> Markup:
    """Return a span of time as an element that the script of the page counts on."""
    way = "up" if time.step > 0 else "down"
    seconds = max(0, int(time.ms // 1000))
    element = '<time class="counted {}" datetime="PT{}S">{}</time>'
    return Markup(element).format(way, seconds, str(time))  # noqa: S704 # it escapes them


# Any: whatever a template puts out; numbers and text are shown, markup is markup already.
def _finalize(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, CountedTime):
        return _counted(value)
    return value if isinstance(value, Markup) else visible(str(value))


@cache
def _templates() -> Mapping[str, Template]:
    """Return all templates by name, compiled: that takes longer than a turn of the reactor may."""
    environment = Environment(
        loader=PackageLoader("amqproute.dashboard", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(
        base=BASE, navigation=NAVIGATION, row_id=row_id, line_ids=line_ids, age_rects=age_rects
    )
    return {name: environment.get_template(name) for name in environment.list_templates()}


class HtmlRenderer:
    """Renders pages. The first one of a process compiles the templates."""

    def __init__(self) -> None:
        self._templates = _templates()

    def __repr__(self) -> str:
        return "<HtmlRenderer>"

    def page(self, page: Page, frame: PageFrame) -> str:
        """Return a whole document."""
        return str(self._templates["page.html"].render(page=page, frame=frame))

    async def page_in_turns(self, page: Page, frame: PageFrame, pause: Pause) -> str:
        """Return a whole document, its rows and blocks made in turns of the reactor."""
        blocks = await self.blocks_in_turns(page, frame, pause)
        return self.page(page, replace(frame, blocks=blocks))

    async def blocks_in_turns(
        self, page: Page, frame: PageFrame, pause: Pause
    ) -> dict[str, Markup]:
        """Return the blocks of a page by their keys, made in turns of the reactor."""
        rows: dict[str, Markup] = {}
        blocks: dict[str, Markup] = {}
        for block in page.blocks:
            html = []
            for part in self._parts_of(block, frame):
                html.append(part)
                if len(html) % ROWS_IN_TURN == 0:
                    await pause()
            if html:
                rows[block.key] = Markup("\n".join(html))  # noqa: S704 # by the templates
            made = self.block(block, replace(frame, rows=rows))
            blocks[block.key] = Markup(made)  # noqa: S704 # by the templates
            await pause()
        return blocks

    def _parts_of(self, block: Block, frame: PageFrame) -> Iterator[str]:
        """Iterate over the rows of a table or log; there are none in another block."""
        if isinstance(block, Table):
            for row in block.rows:
                yield self.row(block, row, frame)
        elif isinstance(block, LogLines):
            for key, line in zip(line_ids(block), block.rows, strict=True):
                yield self.line(key, line)

    def log_in(self, problem: str = "", next_page: str = "", user: str = "") -> str:
        """Return the page on which a user logs in.

        Args:
            problem: why the last attempt failed; empty without one.
            next_page: where to go afterwards.
            user: the name given last.
        """
        values = {"problem": problem, "next": next_page, "user": user}
        return str(self._templates["login.html"].render(values))

    def problem(self, title: str, words: str) -> str:
        """Return a page that says why a request was refused.

        Args:
            title: the phrase of the status.
            words: the reason, and the remedy.
        """
        return str(self._templates["problem.html"].render(title=title, words=words))

    def block(self, block: Block, frame: PageFrame) -> str:
        """Return one block."""
        return self._macro("block", block=block, frame=frame)

    def row(self, table: Table, row: TableRow, frame: PageFrame) -> str:
        """Return one row of a table."""
        return self._macro("row", table=table, row=row, frame=frame)

    def heading(self, table: Table) -> str:
        """Return the heading of a table, with the number of its rows."""
        return self._macro("heading", block=table)

    def parts(self, table: Table) -> str:
        """Return the links to other parts of a table."""
        return self._macro("parts", block=table)

    def line(self, key: str, line: LogRow) -> str:
        """Return one line of a log, with its id."""
        return self._macro("log_line", key=key, line=line)

    def alarms(self, problems: Sequence[Problem]) -> str:
        """Return the mark in the navigation that tells of problems."""
        return self._macro("alarms", problems=problems)

    def _macro(self, name: str, **values: object) -> str:
        macro = getattr(self._templates["blocks.html"].module, name)
        return str(macro(**values))
