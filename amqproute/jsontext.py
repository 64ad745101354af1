# SPDX-License-Identifier: Apache-2.0
"""JSON that somebody else may have written: a note of the store, a cursor, a line of a journal.

The standard library reads more than JSON has, and fails in more ways than by `ValueError`: values
that nest deep end in `RecursionError`; ``Infinity``, ``NaN`` and ``1e999`` are read, and fail where
an integer is made of them, with `OverflowError`. Those who expect damage expect neither.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

__all__ = ["parse_json"]


def parse_json(text: str | bytes) -> Any:  # Any: whatever the text says
    """Return what a JSON text says.

    Raises:
        ValueError: it is none, nests too deep to be read, or has a number that is not finite.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("the values nest too deep") from None


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:40]} is no number")
    return value
