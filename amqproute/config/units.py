# SPDX-License-Identifier: Apache-2.0
"""Durations and sizes as people write them: ``5d``, ``1h30m``, ``250ms``; ``64MiB``, ``10kB``.

A bare number is seconds or bytes. There is no ``K`` or ``M`` alone for a size: it would be 1000 to
one reader and 1024 to the other.

Why not pydantic's types: `ByteSize` takes ``5M`` and ``5mib``, ignores what follows a size
(``64MiB/day``), cuts fractions (``1.5B`` is one byte), takes ``false`` for 0, and writes ``9.8KiB``
for ``10kB``, which is not what it has read. `timedelta` takes ``5d`` and ``P5D``, but neither
``1h30m`` nor ``250ms`` nor ``2w``. Rules around them would be as long as this module.
"""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = [
    "LONGEST_SECONDS",
    "format_bytes",
    "format_seconds",
    "parse_bytes",
    "parse_part",
    "parse_seconds",
]

LONGEST_SECONDS: Final = 100.0 * 365 * 86400
"""A century; a longer duration is a mistake and could overflow timers."""

LARGEST_BYTES: Final = 2**62

_SECONDS: Final = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_BYTES: Final = {
    "TiB": 2**40,
    "GiB": 2**30,
    "MiB": 2**20,
    "KiB": 2**10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
_DURATION: Final = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,9})?(?:ms|[wdhms])){1,6}", re.ASCII)
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[wdhms])")
_SIZE: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,9})?", re.ASCII)


def parse_seconds(value: object) -> float:
    """Parse a duration into seconds.

    Raises:
        ValueError: the value is not a duration, or is longer than a century.
    """
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            seconds = float(text)
        elif _DURATION.fullmatch(text):
            seconds = sum(
                float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text)
            )
        else:
            raise ValueError(
                f"{value!r} is not a duration; write a number with ms, s, m, h, d or w, as in "
                "30s, 1h30m or 5d"
            )
    else:
        seconds = float(_number(value, "a duration", "30s, 1h30m or 5d"))
    if not 0.0 <= seconds <= LONGEST_SECONDS:
        raise ValueError(f"{value!r} is out of range; a duration is between 0s and a century")
    return seconds


def parse_bytes(value: object) -> int:
    """Parse a size into bytes.

    Raises:
        ValueError: the value is not a size, or not a whole number of bytes.
    """
    if isinstance(value, str):
        text = value.strip()
        if _NUMBER.fullmatch(text):
            size = float(text) if "." in text else int(text)
        else:
            match = _SIZE.fullmatch(text)
            if match is None or match[2] not in _BYTES:
                raise ValueError(
                    f"{value!r} is not a size; write a number with B, KiB, MiB, GiB or TiB (or "
                    "kB, MB, GB, TB for powers of 1000), as in 64MiB"
                )
            unit = _BYTES[match[2]]
            size = float(match[1]) * unit if "." in match[1] else int(match[1]) * unit
    else:
        size = _number(value, "a size", "64MiB")
    if not 0 <= size <= LARGEST_BYTES:
        raise ValueError(f"{value!r} is out of range; a size is between 0B and 4194304TiB")
    if size != int(size):
        raise ValueError(f"{value!r} is not a whole number of bytes")
    return int(size)


def parse_part(value: object) -> int | str:
    """Parse a size into bytes; return a percentage such as ``5%`` unchanged.

    Raises:
        ValueError: the value is neither, or is 100 % or more.
    """
    if isinstance(value, str) and value.strip().endswith("%"):
        text = value.strip()[:-1].strip()
        if not _NUMBER.fullmatch(text) or float(text) >= 100:
            raise ValueError(f"{value!r} is not a percentage; write it as in 5%")
        return f"{text}%"
    return parse_bytes(value)


def format_seconds(seconds: float) -> str:
    """Format a duration in the largest unit that divides it; `parse_seconds` reads it back."""
    for unit, factor in _SECONDS.items():
        count = seconds / factor
        # Weeks are read but not written: 2w says less to an operator than 14d.
        if unit != "w" and count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    return "0s" if seconds == 0 else f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def format_bytes(size: int) -> str:
    """Format a size in the largest binary unit that divides it; `parse_bytes` reads it back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def _number(value: object, what: str, example: str) -> int | float:
    # bool is an int to Python; `lifetime: true` is a mistake to everybody else.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not {what}; write it as in {example}")
    return value
