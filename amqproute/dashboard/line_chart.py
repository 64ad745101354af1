# SPDX-License-Identifier: Apache-2.0
"""Coordinates of line charts: SVG without a library, without a script, and live like any block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log10
from typing import Final

from amqproute.dashboard.display_units import clock_time
from amqproute.dashboard.page_blocks import LineChart, LineSeries

__all__ = ["HEIGHT", "WIDTH", "ceiling", "line_chart"]

WIDTH: Final = 600
HEIGHT: Final = 120
"""Units of the drawing."""


def ceiling(value: float) -> float:
    """Return a round number that is not less than a value, for the upper edge."""
    if value <= 0:
        return 1.0
    step = 10.0 ** (ceil(log10(value)) - 1)
    for factor in (1, 2, 2.5, 5, 10):
        if factor * step >= value:
            return factor * step
    return 10 * step


def line_chart(
    key: str,
    title: str,
    times_ms: Sequence[int],
    lines: Sequence[tuple[str, Sequence[float | None]]],
    shown: Callable[[float | None], str],
) -> LineChart:
    """Make a chart.

    Args:
        key: the key of the block.
        title: above it.
        times_ms: when the values were taken, ascending.
        lines: label and values of each line; None where there is none.
        shown: formats a value.
    """
    known = [value for _, values in lines for value in values if value is not None]
    top = ceiling(max(known, default=0.0))
    begin, end = (times_ms[0], times_ms[-1]) if times_ms else (0, 0)
    span = max(1, end - begin)
    series = []
    for label, values in lines:
        parts: list[list[str]] = [[]]
        for at_ms, value in zip(times_ms, values, strict=True):
            if value is None:
                parts.append([])
                continue
            x = (at_ms - begin) / span * WIDTH
            y = HEIGHT - value / top * HEIGHT
            parts[-1].append(f"{x:.1f},{y:.1f}")
        latest = next((value for value in reversed(values) if value is not None), None)
        series.append(
            LineSeries(label, [" ".join(part) for part in parts if len(part) > 1], shown(latest))
        )
    is_known = len(times_ms) > 1
    return LineChart(
        key,
        title,
        series,
        shown(top),
        clock_time(begin) if is_known else "",
        clock_time(end) if is_known else "",
    )
