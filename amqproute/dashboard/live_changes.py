# SPDX-License-Identifier: Apache-2.0
"""Changes of a page since a moment ago, as elements to be replaced.

The unit is a row of a table or of a log: rows that are new or different are sent, and the order of
all, by their ids, if rows have come, gone or moved. Blocks without rows are sent whole; if blocks
have come or gone, all blocks together. Forms and toolbars never change under the operator's hands.

Times that go on by themselves (`CountedTime`) are counted by the browser, and make no difference as
long as they are what it counts. So a page keeps what the browser has, with the time when it got it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from amqproute.dashboard.display_units import CountedTime
from amqproute.dashboard.html_renderer import (
    ROWS_IN_TURN,
    HtmlRenderer,
    PageFrame,
    line_ids,
    row_id,
)
from amqproute.dashboard.page_blocks import (
    Block,
    Cell,
    Facts,
    Figure,
    Figures,
    FormPanel,
    LogLines,
    Page,
    Problem,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.turn_scheduler import Pause

__all__ = ["LiveChange", "LivePage"]

TOLERANCE_MS: Final = 1000
"""By which a time may differ from what the browser counts."""
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
        pause: called between slices of a change; None to make each in one go.
    """

    def __init__(
        self,
        renderer: HtmlRenderer,
        frame: PageFrame,
        page: Page | None = None,
        pause: Pause | None = None,
    ) -> None:
        self._pause = pause
        self._renderer = renderer
        self._frame = frame
        self._page = page
        self._sent_ms: dict[str, int] = {}  # when each row and block was sent, by id

    def change(self, page: Page, time: str) -> LiveChange:
        """Return what is new, and take the page as what the browser has from now on."""
        if self._has_other_blocks(page):
            self._begin(page)
            blocks = "\n".join(self._renderer.block(each, self._frame) for each in page.blocks)
            return LiveChange(time, self._alarms(page.alarms), blocks=blocks)
        change, parts = self._plan(page, time)
        for key, make in parts:
            change.elements[key] = make()
        return change

    async def change_in_turns(self, page: Page, time: str) -> LiveChange:
        """Return the same, made in turns of the reactor."""
        if self._pause is None:
            return self.change(page, time)
        if self._has_other_blocks(page):
            self._begin(page)
            made = await self._renderer.blocks_in_turns(page, self._frame, self._pause)
            return LiveChange(time, self._alarms(page.alarms), blocks="\n".join(made.values()))
        change, parts = self._plan(page, time)
        for number, (key, make) in enumerate(parts, 1):
            change.elements[key] = make()
            if number % ROWS_IN_TURN == 0:
                await self._pause()
        return change

    def _has_other_blocks(self, page: Page) -> bool:
        return self._page is None or _keys(self._page) != _keys(page)

    def _begin(self, page: Page) -> None:
        """Take a page whose blocks are all sent as what the browser has from now on."""
        self._page, self._sent_ms = page, _all_at(page)

    def _plan(self, page: Page, time: str) -> tuple[LiveChange, Sequence[_Part]]:
        """Return the change, and what makes the elements that it still lacks."""
        before = self._page
        assert before is not None  # else the page has other blocks
        parts: list[_Part] = []
        change = LiveChange(time)
        if before.alarms != page.alarms:
            change.elements |= self._alarms(page.alarms)
        if not self._sent_ms:
            self._sent_ms = _all_at(before)
        blocks = [
            self._compare(old, new, page.at_ms, change, parts)
            for old, new in zip(before.blocks, page.blocks, strict=True)
        ]
        self._page = replace(page, blocks=blocks)
        return change, parts

    def _is_known(self, key: str, old: _Timed, new: _Timed, now_ms: int) -> bool:
        """Tell whether the browser has a row or block, or will have counted it until now.

        Args:
            key: the id of its element.
            old: as the browser got it.
            new: as it is.
            now_ms: the time of the page.
        """
        if old == new and not _times(new):
            return True
        elapsed = now_ms - self._sent_ms.get(key, now_ms)
        if _bare(old) == _bare(new) and _are_counted(_times(old), _times(new), elapsed):
            return True
        self._sent_ms[key] = now_ms
        return False

    def _alarms(self, problems: Sequence[Problem] | None) -> dict[str, str]:
        return {} if problems is None else {"alarms": self._renderer.alarms(problems)}

    def _compare(
        self, old: Block, new: Block, now_ms: int, change: LiveChange, parts: list[_Part]
    ) -> Block:
        """Add the differences between two states of a block; return what the browser then has."""
        if isinstance(new, _FIXED):
            return new
        if isinstance(old, Table) and isinstance(new, Table):
            if _frame_of(old) == _frame_of(new):
                known = self._compare_tables(old, new, now_ms, change, parts)
                if known is not None:
                    return known
            if old == new:
                return old
            for key in _rows_at(old, now_ms):
                self._sent_ms.pop(key, None)
            self._sent_ms |= _rows_at(new, now_ms)
        elif isinstance(old, LogLines) and isinstance(new, LogLines) and old.title == new.title:
            if old == new or self._compare_lines(old, new, change):
                return new
        elif isinstance(old, Facts | Figures) and isinstance(new, Facts | Figures):
            if self._is_known(f"b-{new.key}", old, new, now_ms):
                return old
        elif old == new:
            return old
        change.elements[f"b-{new.key}"] = self._renderer.block(new, self._frame)
        return new

    def _compare_tables(
        self, old: Table, new: Table, now_ms: int, change: LiveChange, parts: list[_Part]
    ) -> Table | None:
        """Add rows that differ; return None if the tables have to be compared as blocks."""
        before = {row_id(old, row): row for row in old.rows}
        after = {row_id(new, row): row for row in new.rows}
        if not before or not after or len(after) < len(new.rows):
            return None
        rows = []
        for key, row in after.items():
            known = before.get(key)
            if known is not None and self._is_known(key, known, row, now_ms):
                rows.append(known)
                continue
            rows.append(row)
            self._sent_ms[key] = now_ms
            parts.append((key, partial(self._renderer.row, new, row, self._frame)))
        for key in before.keys() - after.keys():
            self._sent_ms.pop(key, None)
        self._compare_order(new, before, after, change)
        if old.total != new.total:
            change.elements[f"h-{new.key}"] = self._renderer.heading(new)
        if (old.first, old.more) != (new.first, new.more):
            change.elements[f"p-{new.key}"] = self._renderer.parts(new)
        return replace(new, rows=rows)

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


_Timed = TableRow | Facts | Figures


def _rows_at(table: Table, now_ms: int) -> dict[str, int]:
    return {row_id(table, row): now_ms for row in table.rows}


def _all_at(page: Page) -> dict[str, int]:
    """Return the time of a page, by the ids of everything in it that may have times."""
    found: dict[str, int] = {}
    for block in page.blocks:
        found[f"b-{block.key}"] = page.at_ms
        if isinstance(block, Table):
            found |= _rows_at(block, page.at_ms)
    return found


def _values(part: _Timed) -> Sequence[Cell | Figure]:
    if isinstance(part, TableRow):
        return part.cells
    if isinstance(part, Facts):
        return [cell for _, cell in part.pairs]
    return part.figures


def _shown(value: Cell | Figure) -> str:
    return value.text if isinstance(value, Cell) else value.value


def _times(part: _Timed) -> list[CountedTime]:
    """Return the times that go on in a row or block."""
    shown = map(_shown, _values(part))
    return [each for each in shown if isinstance(each, CountedTime)]


def _bare(part: _Timed) -> object:
    """Return everything of a row or block but its times."""
    values = [
        value
        if not isinstance(_shown(value), CountedTime)
        else replace(value, text="")
        if isinstance(value, Cell)
        else replace(value, value="")
        for value in _values(part)
    ]
    if isinstance(part, TableRow):
        return part.key, part.state, values
    if isinstance(part, Facts):
        return part.key, part.title, [label for label, _ in part.pairs], values
    return part.key, values


def _are_counted(old: Sequence[CountedTime], new: Sequence[CountedTime], elapsed_ms: int) -> bool:
    """Tell whether times are what the browser counts, so long after it got them."""
    return len(old) == len(new) and all(
        after.step == before.step
        and abs(after.ms - before.ms - after.step * elapsed_ms) <= TOLERANCE_MS
        for before, after in zip(old, new, strict=True)
    )


def _keys(page: Page) -> Sequence[tuple[str, str]]:
    return [(each.template, each.key) for each in page.blocks]


def _frame_of(table: Table) -> object:
    """Return everything of a table but its rows, their number, and links to other parts."""
    return (table.title, table.note, tuple(table.columns), table.filter)
