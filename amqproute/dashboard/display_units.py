# SPDX-License-Identifier: Apache-2.0
"""Numbers, sizes and times as the dashboard shows them, and addresses of its pages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import urlencode

__all__ = [
    "BASE",
    "DASH",
    "CountedTime",
    "address",
    "age",
    "clock_time",
    "countdown",
    "date_time",
    "number",
    "rate",
    "size",
]

BASE: Final = "/ui"
"""Path below which all pages are."""

DASH: Final = "\N{EN DASH}"
"""Stands for a value that there is none of."""
_LAST_MS: Final = 253_402_300_800_000


def address(page: str, /, **query: object) -> str:
    """Return the address of a page, with the parameters that are not empty."""
    given = {key: str(value) for key, value in query.items() if value not in (None, "")}
    return f"{BASE}/{page}" + (f"?{urlencode(given)}" if given else "")


def number(value: int | float | None) -> str:
    """Return a count with its thousands apart; a dash for None."""
    return DASH if value is None else f"{value:,.0f}"


def rate(per_second: float | None) -> str:
    """Return a number per second."""
    if per_second is None:
        return DASH
    return f"{per_second:,.1f}/s" if per_second < 100 else f"{per_second:,.0f}/s"


def size(octets: int | float | None) -> str:
    """Return a size in a unit that leaves few digits."""
    if octets is None:
        return DASH
    value = float(octets)
    if value < 1000:
        return f"{value:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            break
    return f"{value:.1f} {unit}"


class CountedTime(str):
    """A span of time as text, which the browser counts on: it need not be sent each second.

    Attributes:
        ms: the span.
        step: 1 for an age; -1 for the time until a moment.
    """

    __slots__ = ("ms", "step")

    ms: float
    step: Literal[1, -1]

    def __new__(cls, text: str, ms: float, step: Literal[1, -1] = 1) -> CountedTime:
        """Make one of its text at present."""
        made = super().__new__(cls, text)
        made.ms, made.step = ms, step
        return made


def age(ms: int | float | None) -> str:
    """Return the time since a moment; a dash for None."""
    return DASH if ms is None else CountedTime(_span(ms), ms)


def _span(ms: int | float) -> str:
    """Return a span of time in its two largest units; static/dashboard.js does so, too."""
    seconds = max(0, int(ms // 1000))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h"


def countdown(then_ms: int | None, now_ms: int) -> str:
    """Return how long it is until a moment; a dash if there is none, or 0."""
    if not then_ms:
        return DASH
    ms = then_ms - now_ms
    return CountedTime(f"in {_span(ms)}", ms, -1) if ms > 0 else "now"


def date_time(ms: int | float | None) -> str:
    """Return a moment, UTC; a dash if there is none, or 0."""
    if not ms:
        return DASH
    if not 0 < ms < _LAST_MS:
        return f"{ms} ms"
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def clock_time(ms: int | float) -> str:
    """Return a time of day, UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}"
