# SPDX-License-Identifier: Apache-2.0
"""What happens with each message of a flood goes into the log now and then, with a count.

The first time is told at once. What follows within `EVERY_SECONDS` is counted, and told with the
next time after that. So whoever looks finds it, and no sender decides how large the log becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["EVERY_SECONDS", "Sparing"]

EVERY_SECONDS: Final = 10.0
"""Between two lines about the same."""
MOST_KEYS: Final = 1000
"""Subjects kept in mind; beyond it all are forgotten, with what was counted."""


class Sparing:
    """Says when a line is due.

    Args:
        seconds: the monotonic clock.
    """

    __slots__ = ("_counted", "_seconds")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._counted: dict[Hashable, tuple[float, int]] = {}

    def due(self, subject: Hashable, count: int = 1) -> int:
        """Count, and return how many there were since the last line; 0 if none is due.

        Args:
            subject: what the line is about, of a kind of which there are few.
            count: how many more.
        """
        now = self._seconds()
        until, counted = self._counted.get(subject, (now, 0))
        counted += count
        if now < until:
            self._counted[subject] = until, counted
            return 0
        if len(self._counted) >= MOST_KEYS:
            self._counted.clear()
        self._counted[subject] = now + EVERY_SECONDS, 0
        return counted
