# SPDX-License-Identifier: Apache-2.0
"""What has changed on a page since a moment ago, as elements to be replaced.

The unit is a row of a table if the table has the same rows as before, else a block; if other blocks
have come or gone, all blocks together. Forms and toolbars never change under the operator's hands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame, row_id
from amqproute.dashboard.page_blocks import (
    Block,
    FormPanel,
    Page,
    Problem,
    Table,
    Toolbar,
)

__all__ = ["LiveChange", "LivePage"]

_FIXED = (FormPanel, Toolbar)


@dataclass(frozen=True, slots=True)
class LiveChange:
    """A change.

    Attributes:
        time: of the page, as text.
        elements: HTML by the ids of the elements that it replaces.
        blocks: HTML of all blocks; empty if only elements have changed.
    """

    time: str
    elements: Mapping[str, str] = field(default_factory=dict)
    blocks: str = ""

    def encode(self) -> str:
        """Return the data of the event."""
        facts = {"time": self.time, "elements": dict(self.elements)}
        if self.blocks:
            facts["blocks"] = self.blocks
        return json.dumps(facts)


class LivePage:
    """A page as a browser has it.

    Args:
        renderer: makes the HTML.
        frame: of the page.
        page: as the browser got it; None if that is not known: then the first change has all.
    """

    def __init__(self, renderer: HtmlRenderer, frame: PageFrame, page: Page | None = None) -> None:
        self._renderer = renderer
        self._frame = frame
        self._page = page

    def change(self, page: Page, time: str) -> LiveChange:
        """Return what is new, and take the page as what the browser has from now on."""
        before, self._page = self._page, page
        if before is None or _keys(before) != _keys(page):
            html = "\n".join(self._renderer.block(each, self._frame) for each in page.blocks)
            return LiveChange(time, self._alarms(page.alarms), html)
        elements: dict[str, str] = {}
        if before.alarms != page.alarms:
            elements |= self._alarms(page.alarms)
        for old, new in zip(before.blocks, page.blocks, strict=True):
            if old != new and not isinstance(new, _FIXED):
                elements |= self._of_block(old, new)
        return LiveChange(time, elements)

    def _alarms(self, problems: Sequence[Problem] | None) -> dict[str, str]:
        return {} if problems is None else {"alarms": self._renderer.alarms(problems)}

    def _of_block(self, old: Block, new: Block) -> dict[str, str]:
        if isinstance(old, Table) and isinstance(new, Table) and _frame_of(old) == _frame_of(new):
            known = {row.key: row for row in old.rows}
            return {
                row_id(new, row): self._renderer.row(new, row, self._frame)
                for row in new.rows
                if row != known[row.key]
            }
        return {f"b-{new.key}": self._renderer.block(new, self._frame)}


def _keys(page: Page) -> Sequence[tuple[str, str]]:
    return [(each.template, each.key) for each in page.blocks]


def _frame_of(table: Table) -> object:
    """Return everything of a table but the values of its rows."""
    return (
        table.title,
        table.note,
        table.total,
        table.first,
        table.more,
        tuple(table.columns),
        [row.key for row in table.rows],
    )
