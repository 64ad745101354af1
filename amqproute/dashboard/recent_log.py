# SPDX-License-Identifier: Apache-2.0
"""The last lines of the daemon's log, in memory, for the page that shows them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from twisted.logger import ILogObserver, LogEvent, LogLevel
from zope.interface import implementer

from amqproute.dashboard.operations_pages import LogLine

__all__ = ["LONGEST_LINE", "MOST_LINES", "RecentLog"]

MOST_LINES: Final = 1000
LONGEST_LINE: Final = 1000
"""Characters of a line that are kept."""

_RANKS: Final = {level.name: rank for rank, level in enumerate(LogLevel.iterconstants())}


@implementer(ILogObserver)
class RecentLog:
    """Keeps the last `MOST_LINES` events as lines.

    Args:
        render: returns the text of an event, with secrets masked.
    """

    def __init__(self, render: Callable[[LogEvent], str]) -> None:
        self._render = render
        self._lines: deque[LogLine] = deque(maxlen=MOST_LINES)

    def __repr__(self) -> str:
        return f"<RecentLog {len(self._lines)} lines>"

    def __call__(self, event: LogEvent) -> None:
        """Keep an event, unless it is for debugging. See `ILogObserver`."""
        level = event.get("log_level")
        if level is LogLevel.debug:
            return
        self._lines.append(
            LogLine(
                int(event.get("log_time", 0.0) * 1000),
                level.name if level is not None else "info",
                str(event.get("log_namespace", "")),
                self._render(event)[:LONGEST_LINE],
            )
        )

    def lines(self, level: str = "", contains: str = "", most: int = 200) -> Sequence[LogLine]:
        """Return the last lines, in the order of time.

        Args:
            level: the least level; empty, or an unknown one, for all.
            contains: what a line has to have in it.
            most: the maximum number.
        """
        least = _RANKS.get(level, 0)
        wanted = contains.casefold()
        found: list[LogLine] = []
        for line in reversed(self._lines):
            if _RANKS.get(line.level, 0) < least:
                continue
            if wanted and wanted not in f"{line.namespace} {line.text}".casefold():
                continue
            found.append(line)
            if len(found) >= most:
                break
        return found[::-1]
