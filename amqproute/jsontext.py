# SPDX-License-Identifier: Apache-2.0
"""JSON that somebody else may have written: a note of the store, a cursor, a line of a journal.

The standard library reads more than JSON has, and fails in more ways than by `ValueError`: values
that nest deep end in `RecursionError`; ``Infinity``, ``NaN`` and ``1e999`` are read, and fail where
an integer is made of them, with `OverflowError`. Those who expect damage expect neither.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final

__all__ = ["has_more_values", "parse_json"]

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or one that has no end; linear in its octets whatever they are."""


def parse_json(text: str | bytes) -> Any:  # Any: whatever the text says
    """Return what a JSON text says.

    Raises:
        ValueError: it is none, nests too deep to be read, or has a number that is not finite.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("the values nest too deep") from None


def has_more_values(text: bytes, most: int) -> bool:
    """Return whether a JSON text has more values than so many, without parsing it.

    Values beside each other are counted, by their commas; how deep they nest is bounded by
    `parse_json`. A megabyte of the smallest values takes a hundred times as long to parse as one
    string of that size.
    """
    if text.count(b",") < most:
        return False
    # Commas within strings do not count. Beside the values there are as many names, at most.
    plain, strings = _STRING.subn(b"", text, 2 * most + 1)
    return strings > 2 * most or plain.count(b",") >= most


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:40]} is no number")
    return value
