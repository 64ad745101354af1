# SPDX-License-Identifier: Apache-2.0
"""Pages that have just been shown, so that what follows them live is only what has changed."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from amqproute.dashboard.page_blocks import Page

__all__ = ["MOST_SHOWN", "ShownPages"]

MOST_SHOWN: Final = 50
"""Pages that are remembered; a browser that comes later gets its page whole."""


class ShownPages:
    """The last pages shown, until their browsers ask for changes."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, tuple[str, Page]] = OrderedDict()
        self._number = 0

    def __repr__(self) -> str:
        return f"<ShownPages {len(self._pages)}>"

    def keep(self, of: str, page: Page) -> str:
        """Remember a page, and return the number by which it is asked for.

        Args:
            of: whose page at which address it is.
            page: the page.
        """
        self._number += 1
        self._pages[str(self._number)] = of, page
        if len(self._pages) > MOST_SHOWN:
            self._pages.popitem(last=False)
        return str(self._number)

    def take(self, of: str, number: str) -> Page | None:
        """Return a page once; None if it is another one's, or forgotten."""
        found = self._pages.get(number)
        if found is None or found[0] != of:
            return None
        del self._pages[number]
        return found[1]
