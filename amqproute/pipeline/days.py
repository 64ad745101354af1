# SPDX-License-Identifier: Apache-2.0
"""Days in UTC, which divide folders and tables: ranges of them, and their text form."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

__all__ = ["between", "spans"]

_ONE = timedelta(days=1)


def between(first: date, last: date) -> list[date]:
    """Return the days of a range, both ends included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def spans(days: Iterable[date]) -> str:
    """Format days as ranges: ``2026-11-18, 2026-11-20 to 2026-11-22``."""
    runs: list[tuple[date, date]] = []
    for day in sorted(set(days)):
        if runs and day == runs[-1][1] + _ONE:
            runs[-1] = (runs[-1][0], day)
        else:
            runs.append((day, day))
    if len(runs) > _MOST:
        words = ", ".join(map(_span, (*runs[: _MOST - 2], runs[-1])))
        return f"{words} and {len(runs) - _MOST + 1} spans between"
    return ", ".join(map(_span, runs))


_MOST = 8
"""Most ranges that are written out."""


def _span(run: tuple[date, date]) -> str:
    first, last = run
    return f"{first}" if first == last else f"{first} to {last}"
