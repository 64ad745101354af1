# SPDX-License-Identifier: Apache-2.0
"""Charts for the page of a report: stacked columns, lines, and horizontal bars, as inline SVG.

Why so: Python's chart libraries either draw with a megabyte of JavaScript, or fetch it, or need an
array library and fonts, and none leaves the page its own colors. Three simple charts are less code
than adapting one of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from amqproute.pipeline.page import PageMarkup, joined, tag

__all__ = ["bars", "columns", "count", "duration", "lines", "octets"]

WIDTH: Final = 1000
HEIGHT: Final = 240
LEFT: Final = 74
TOP: Final = 12
BOTTOM: Final = 26
_COLORS: Final = 7
_BAR: Final = 26
_LABEL: Final = 320
"""Width for the names of horizontal bars."""

Numbers = Sequence[float | None]


def count(value: float) -> str:
    """Format a number of things."""
    if value < 1e4:
        return f"{value:,.4g}"
    thousands = _rounded(value / 1e3)
    return f"{thousands:g} k" if thousands < 1000 else f"{_rounded(value / 1e6):,g} M"


def octets(value: float) -> str:
    """Format an amount of data."""
    for unit in ("B", "kB", "MB", "GB"):
        if (short := _rounded(value)) < 1000:
            return f"{short:g} {unit}"
        value /= 1000
    return f"{value:,.4g} TB"


def duration(microseconds: float) -> str:
    """Format a time span, with a sign if it is negative because clocks differ."""
    if microseconds < 0:
        return f"\N{MINUS SIGN}{duration(-microseconds)}"
    for unit, size, limit in (
        ("µs", 1, 1000), ("ms", 1e3, 1000), ("s", 1e6, 120), ("min", 60e6, 120), ("h", 3600e6, 48),
    ):  # fmt: skip
        value = _rounded(microseconds / size)
        if value < limit:
            return f"{value:g} {unit}"
    return f"{_rounded(microseconds / 86_400e6):,.10g} d"


def _rounded(value: float) -> float:
    """Round to three digits, before a unit is chosen: 999.9 ms are a second."""
    return float(f"{value:.3g}")


def columns(
    caption: str, remark: str, labels: Sequence[str], series: Mapping[str, Numbers],
    form: Callable[[float], str] = count,
) -> PageMarkup:  # fmt: skip
    """Draw a stack of values for each label, from zero."""
    totals = [sum(values[i] or 0 for values in series.values()) for i in range(len(labels))]
    ticks = _ticks(max(totals, default=0))
    scale = _linear(ticks[-1])
    step = (WIDTH - LEFT) / max(1, len(labels))
    shapes = [_grid(ticks, scale, form), _labels(labels, step)]
    for i, label in enumerate(labels):
        base = 0.0
        for color, (name, values) in enumerate(series.items()):
            value = values[i] or 0
            if value:
                top, bottom = scale(base + value), scale(base)
                title = tag("title", f"{label} {name}: {form(value)}")
                shapes.append(
                    tag(
                        "rect",
                        title,
                        class_=f"f{color % _COLORS}",
                        x=_n(LEFT + i * step + step * 0.08),
                        y=_n(top),
                        width=_n(step * 0.84),
                        height=_n(max(bottom - top, 0.5)),
                    )
                )
            base += value
    return _figure(caption, remark, HEIGHT, shapes, list(series))


def lines(
    caption: str, remark: str, labels: Sequence[str], series: Mapping[str, Numbers],
    form: Callable[[float], str] = duration,
) -> PageMarkup:  # fmt: skip
    """Draw lines on a logarithmic scale; values that are not above zero are left out."""
    known = [value for values in series.values() for value in values if value and value > 0]
    low = math.floor(math.log10(min(known))) if known else 0
    high = max(low + 1, math.ceil(math.log10(max(known)))) if known else 1
    scale = _logarithmic(low, high)
    step = (WIDTH - LEFT) / max(1, len(labels))
    shapes = [
        _grid([10.0**power for power in range(low, high + 1)], scale, form),
        _labels(labels, step),
    ]
    for color, (name, values) in enumerate(series.items()):
        points = [
            (LEFT + (i + 0.5) * step, scale(value), f"{label} {name}: {form(value)}")
            for i, (label, value) in enumerate(zip(labels, values, strict=True))
            if value and value > 0
        ]
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y, _ in points)
        shapes.append(tag("polyline", points=PageMarkup(path), class_=f"s{color % _COLORS}"))
        shapes += [
            tag(
                "circle", tag("title", title), class_=f"f{color % _COLORS}", cx=_n(x), cy=_n(y), r=3
            )
            for x, y, title in points
        ]
    return _figure(caption, remark, HEIGHT, shapes, list(series))


def bars(
    caption: str, remark: str, labels: Sequence[str], series: Mapping[str, Numbers],
    form: Callable[[float], str] = duration, ends: Numbers | None = None,
) -> PageMarkup:  # fmt: skip
    """Draw a horizontal stack for each label, followed by its total or the value in `ends`."""
    totals = [sum(values[i] or 0 for values in series.values()) for i in range(len(labels))]
    said = totals if ends is None else [value or 0 for value in ends]
    most = max([*totals, 1e-9])
    room = WIDTH - _LABEL - 90
    shapes = []
    for i, label in enumerate(labels):
        y = TOP + i * _BAR
        short = label if len(label) <= 46 else label[:45] + "…"
        shapes.append(_text(short, _LABEL - 8, y + 15, "end"))
        x = float(_LABEL)
        for color, (name, values) in enumerate(series.items()):
            value = values[i] or 0
            width = room * value / most
            if width:
                title = tag("title", f"{label}, {name}: {form(value)}")
                shapes.append(
                    tag(
                        "rect",
                        title,
                        class_=f"f{color % _COLORS}",
                        x=_n(x),
                        y=y,
                        width=_n(max(width, 0.5)),
                        height=_BAR - 7,
                    )
                )
            x += width
        shapes.append(_text(form(said[i]), x + 6, y + 15, "start"))
    height = TOP + len(labels) * _BAR + 4
    return _figure(caption, remark, height, shapes, list(series))


def _figure(
    caption: str, remark: str, height: float, shapes: Sequence[PageMarkup], names: Sequence[str]
) -> PageMarkup:
    legend = [
        tag("span", tag("i", class_=f"f{color % _COLORS}"), name)
        for color, name in enumerate(names)
    ]
    return tag(
        "figure",
        tag("figcaption", f"{caption} ", tag("small", remark)),
        tag(
            "svg", joined(shapes), viewBox=f"0 0 {WIDTH} {_n(height)}", role="img",
            aria_label=caption,
        ),
        tag("div", *legend, class_="legend") if len(names) > 1 else None,
    )  # fmt: skip


def _text(text: str, x: float, y: float, anchor: str) -> PageMarkup:
    return tag("text", text, x=_n(x), y=_n(y), text_anchor=anchor)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _grid(
    ticks: Sequence[float], scale: Callable[[float], float], form: Callable[[float], str]
) -> PageMarkup:
    parts = []
    for tick in ticks:
        y = scale(tick)
        parts.append(tag("line", x1=LEFT, x2=WIDTH, y1=_n(y), y2=_n(y), class_="axis"))
        parts.append(_text(form(tick), LEFT - 8, y + 4, "end"))
    return joined(parts)


def _labels(labels: Sequence[str], step: float) -> PageMarkup:
    every = max(1, math.ceil(len(labels) / 12))
    return joined(
        _text(label, LEFT + (i + 0.5) * step, HEIGHT - 8, "middle")
        for i, label in enumerate(labels)
        if i % every == 0
    )


def _ticks(most: float) -> list[float]:
    """Choose round values from zero up to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    raw = most / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def _linear(most: float) -> Callable[[float], float]:
    room = HEIGHT - TOP - BOTTOM
    return lambda value: TOP + room * (1 - value / most)


def _logarithmic(low: int, high: int) -> Callable[[float], float]:
    room = HEIGHT - TOP - BOTTOM
    return lambda value: TOP + room * (high - math.log10(value)) / (high - low)
