# SPDX-License-Identifier: Apache-2.0
"""Values of rows of management, by type.

A row is a map of attributes whose values are of any type, and a daemon of another version may leave
some out. A value that is missing, or of another type, reads as None or as empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

__all__ = ["Row", "counts", "flag", "maps", "real", "text", "texts", "whole"]

Row: TypeAlias = Mapping[str, object]


def text(row: Row, key: str, default: str = "") -> str:
    """Return a value as text; the default for None."""
    value = row.get(key)
    return default if value is None else str(value)


def whole(row: Row, key: str) -> int | None:
    """Return an integer."""
    value = row.get(key)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def real(row: Row, key: str) -> float | None:
    """Return a number."""
    value = row.get(key)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, int | float) else None


def flag(row: Row, key: str) -> bool:
    """Return whether a value is true."""
    return row.get(key) is True


def texts(row: Row, key: str) -> Sequence[str]:
    """Return a list of texts."""
    value = row.get(key)
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def counts(row: Row, key: str) -> Sequence[int]:
    """Return a list of numbers."""
    value = row.get(key)
    if not isinstance(value, list | tuple):
        return []
    return [int(each) for each in value if isinstance(each, int)]


def maps(row: Row, key: str) -> Sequence[Row]:
    """Return a list of maps."""
    value = row.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
