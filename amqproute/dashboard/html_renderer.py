# SPDX-License-Identifier: Apache-2.0
"""HTML of pages and of their parts, by the templates.

All text is escaped by the template engine. In addition, characters that a browser would act upon
or not show (controls, marks of writing direction, lone surrogates) appear as their codes, and very
long text is cut: a name that a stranger has chosen is shown for what it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from amqproute.dashboard.display_units import BASE
from amqproute.dashboard.page_blocks import Block, Page, Problem, Table, TableRow
from amqproute.printable import printable

__all__ = ["LONGEST_TEXT", "HtmlRenderer", "PageFrame", "row_id", "visible"]

LONGEST_TEXT: Final = 500
"""Most characters of one value on a page."""

NAVIGATION: Final[Sequence[tuple[str, str, str]]] = (
    ("overview", "Overview", ""),
    ("peers", "Organizations", "peers"),
    ("queues", "Queues", "queues"),
    ("holds", "Holds", "holds"),
    ("trace", "Trace", "trace"),
    ("connections", "Connections", "connections"),
    ("exchanges", "Exchanges", "exchanges"),
    ("hosts", "Virtual hosts", "hosts"),
    ("journal", "Journal", "journal"),
    ("log", "Log", "log"),
    ("users", "Users", "users"),
    ("broker", "Broker", "broker"),
)
"""Section, label and page of the entries of the navigation."""


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What surrounds a page.

    Attributes:
        user: who has logged in; empty before the log-in.
        csrf: the token that forms carry.
        broker: the name of the broker.
        here: address of the page, to come back to.
        live: address of its changes; empty without.
        time: of the page, UTC.
    """

    user: str = ""
    csrf: str = ""
    broker: str = ""
    here: str = ""
    live: str = ""
    time: str = ""


def visible(text: str) -> str:
    """Replace invisible characters by their codes; shorten very long text."""
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "…"
    return printable(text)


def row_id(table: Table, row: TableRow) -> str:
    """Return the id of a row's element: a digest, as a name may have any characters."""
    return f"r-{table.key}-{_digest(row.key)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# Any: whatever a template puts out; numbers and text are shown, markup is markup already.
def _finalize(value: Any) -> Any:  # noqa: ANN401
    return value if isinstance(value, Markup) else visible(str(value))


class HtmlRenderer:
    """Renders pages."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("amqproute.dashboard", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_finalize,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(base=BASE, navigation=NAVIGATION, row_id=row_id)

    def __repr__(self) -> str:
        return "<HtmlRenderer>"

    def page(self, page: Page, frame: PageFrame) -> str:
        """Return a whole document."""
        return str(self._template("page.html").render(page=page, frame=frame))

    def log_in(self, problem: str = "", next_page: str = "", user: str = "") -> str:
        """Return the page on which a user logs in.

        Args:
            problem: why the last attempt failed; empty without one.
            next_page: where to go afterwards.
            user: the name given last.
        """
        values = {"problem": problem, "next": next_page, "user": user}
        return str(self._template("login.html").render(values))

    def block(self, block: Block, frame: PageFrame) -> str:
        """Return one block."""
        return self._macro("block", block=block, frame=frame)

    def row(self, table: Table, row: TableRow, frame: PageFrame) -> str:
        """Return one row of a table."""
        return self._macro("row", table=table, row=row, frame=frame)

    def alarms(self, problems: Sequence[Problem]) -> str:
        """Return the mark in the navigation that tells of problems."""
        return self._macro("alarms", problems=problems)

    def _macro(self, name: str, **values: object) -> str:
        macro = getattr(self._blocks(), name)
        return str(macro(**values))

    # Any: a module of macros has no type of its own.
    def _blocks(self) -> Any:  # noqa: ANN401
        return self._environment.get_template("blocks.html").module

    # Any: jinja2's template is typed by its own package.
    def _template(self, name: str) -> Any:  # noqa: ANN401
        return self._environment.get_template(name)
