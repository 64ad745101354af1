# SPDX-License-Identifier: Apache-2.0
"""Changes of a page since a moment ago, as elements to be replaced.

The unit is a row of a table or of a log: rows that are new or different are sent, and the order of
all, by their ids, if rows have come, gone or moved. Blocks without rows are sent whole; if blocks
have come or gone, all blocks together. Forms and toolbars never change under the operator's hands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from amqproute.dashboard.html_renderer import (
    ROWS_IN_TURN,
    HtmlRenderer,
    PageFrame,
    line_ids,
    row_id,
)
from amqproute.dashboard.page_blocks import (
    Block,
    FormPanel,
    LogLines,
    Page,
    Problem,
    Table,
    Toolbar,
)

__all__ = ["LiveChange", "LivePage"]

_FIXED = (FormPanel, Toolbar)
_Part = tuple[str, Callable[[], str]]
"""The id of an element, and what makes it."""


@dataclass(slots=True)
class LiveChange:
    """A change.

    Attributes:
        time: the time of the page, as text.
        elements: HTML by the ids of the elements that it replaces, or of new rows.
        orders: ids of rows in their order, by the ids of blocks whose rows have come, gone or
            moved; a row that is not among them is gone.
        blocks: HTML of all blocks; empty if only elements have changed.
    """

    time: str
    elements: dict[str, str] = field(default_factory=dict)
    orders: dict[str, Sequence[str]] = field(default_factory=dict)
    blocks: str = ""

    def encode(self) -> str:
        """Return the data of the event."""
        facts: dict[str, object] = {"time": self.time, "elements": self.elements}
        if self.orders:
            facts["orders"] = {block: list(ids) for block, ids in self.orders.items()}
        if self.blocks:
            facts["blocks"] = self.blocks
        return json.dumps(facts)


class LivePage:
    """A page as a browser has it.

    Args:
        renderer: makes the HTML.
        frame: the frame of the page.
        page: as the browser got it; None if that is not known: then the first change has all.
    """

    def __init__(self, renderer: HtmlRenderer, frame: PageFrame, page: Page | None = None) -> None:
        self._renderer = renderer
        self._frame = frame
        self._page = page

    def change(self, page: Page, time: str) -> LiveChange:
        """Return what is new, and take the page as what the browser has from now on."""
        change, parts = self._plan(page, time)
        for key, make in parts:
            change.elements[key] = make()
        return change

    async def change_in_turns(self, page: Page, time: str, clock: IReactorTime) -> LiveChange:
        """Return the same, made in turns of the reactor."""
        change, parts = self._plan(page, time)
        for number, (key, make) in enumerate(parts, 1):
            change.elements[key] = make()
            if number % ROWS_IN_TURN == 0:
                await deferLater(clock, 0)
        return change

    def _plan(self, page: Page, time: str) -> tuple[LiveChange, Sequence[_Part]]:
        """Return the change, and what makes the elements that it still lacks."""
        before, self._page = self._page, page
        parts: list[_Part] = []
        if before is None or _keys(before) != _keys(page):
            html = "\n".join(self._renderer.block(each, self._frame) for each in page.blocks)
            return LiveChange(time, self._alarms(page.alarms), blocks=html), ()
        change = LiveChange(time)
        if before.alarms != page.alarms:
            change.elements |= self._alarms(page.alarms)
        for old, new in zip(before.blocks, page.blocks, strict=True):
            if old != new and not isinstance(new, _FIXED):
                self._compare(old, new, change, parts)
        return change, parts

    def _alarms(self, problems: Sequence[Problem] | None) -> dict[str, str]:
        return {} if problems is None else {"alarms": self._renderer.alarms(problems)}

    def _compare(self, old: Block, new: Block, change: LiveChange, parts: list[_Part]) -> None:
        """Add the differences between two states of a block."""
        is_done = False
        if isinstance(old, Table) and isinstance(new, Table) and _frame_of(old) == _frame_of(new):
            is_done = self._compare_tables(old, new, change, parts)
        elif isinstance(old, LogLines) and isinstance(new, LogLines) and old.title == new.title:
            is_done = self._compare_lines(old, new, change)
        if not is_done:
            change.elements[f"b-{new.key}"] = self._renderer.block(new, self._frame)

    def _compare_tables(
        self, old: Table, new: Table, change: LiveChange, parts: list[_Part]
    ) -> bool:
        """Add rows that differ; return False if the tables have to be compared as blocks."""
        before = {row_id(old, row): row for row in old.rows}
        after = {row_id(new, row): row for row in new.rows}
        if not before or not after or len(after) < len(new.rows):
            return False
        for key, row in after.items():
            if row != before.get(key):
                parts.append((key, partial(self._renderer.row, new, row, self._frame)))
        self._compare_order(new, before, after, change)
        if old.total != new.total:
            change.elements[f"h-{new.key}"] = self._renderer.heading(new)
        if (old.first, old.more) != (new.first, new.more):
            change.elements[f"p-{new.key}"] = self._renderer.parts(new)
        return True

    def _compare_lines(self, old: LogLines, new: LogLines, change: LiveChange) -> bool:
        """Add lines that are new; return False if there were none before, or are none now."""
        before = dict(zip(line_ids(old), old.rows, strict=True))
        after = dict(zip(line_ids(new), new.rows, strict=True))
        if not before or not after:
            return False
        for key, line in after.items():
            if key not in before:
                change.elements[key] = self._renderer.line(key, line)
        self._compare_order(new, before, after, change)
        return True

    def _compare_order(
        self,
        block: Block,
        before: Mapping[str, object],
        after: Mapping[str, object],
        change: LiveChange,
    ) -> None:
        if list(before) != list(after):
            change.orders[f"b-{block.key}"] = list(after)


def _keys(page: Page) -> Sequence[tuple[str, str]]:
    return [(each.template, each.key) for each in page.blocks]


def _frame_of(table: Table) -> object:
    """Return everything of a table but its rows, their number, and links to other parts."""
    return (table.title, table.note, tuple(table.columns), table.filter)
