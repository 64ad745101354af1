# SPDX-License-Identifier: Apache-2.0
"""Days of UTC, as folders and tables are divided by: ranges of them, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

__all__ = ["between", "spans"]

_ONE = timedelta(days=1)


def between(first: date, last: date) -> list[date]:
    """Return the days of a range, both ends included."""
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def spans(days: Iterable[date]) -> str:
    """Write which days there are: ``2026-11-18, 2026-11-20 to 2026-11-22``."""
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
"""Spans that are written out."""


def _span(run: tuple[date, date]) -> str:
    first, last = run
    return f"{first}" if first == last else f"{first} to {last}"
