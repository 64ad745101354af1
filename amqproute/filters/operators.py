# SPDX-License-Identifier: Apache-2.0
"""Operators of a selector: comparison, arithmetic, LIKE, functions.

Three-valued logic (SQL-92 §8.12): an operand that is null, or of a kind that the operator is not
for, makes the result unknown, which is None. Nothing is converted silently:

* numbers compare with numbers, whatever their types, and exactly;
* text with text, by code points; octets with octets;
* truth values with truth values, for equality only;
* any other pair is unknown, for ``=`` and ``<>`` alike.

Arithmetic on integers is exact and truncates towards zero, as in Java and SQL-92; a result
outside of the range from -2**63 to 2**64 - 1 is unknown, and so is a division by zero. A float
makes a float, a decimal among integers a decimal of 34 digits.
"""

from __future__ import annotations

import decimal
import math
import operator
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeGuard

from amqproute.filters.names import Value
from amqproute.wire.amqp10 import types

LONGEST_TEXT: Final = 65536
"""Characters beyond which LIKE does not look at a text and ``+`` does not join texts: unknown."""

SMALLEST_EXACT: Final = -(2**63)
LARGEST_EXACT: Final = 2**64 - 1

NUMBER: Final = 1
TEXT: Final = 2
OCTETS: Final = 3
TRUTH: Final = 4

KINDS: Final[dict[type, int]] = {
    bool: TRUTH,
    str: TEXT, types.Symbol: TEXT, types.Char: TEXT,
    bytes: OCTETS,
    int: NUMBER, float: NUMBER, Decimal: NUMBER, types.Float: NUMBER, types.Timestamp: NUMBER,
    types.UByte: NUMBER, types.UShort: NUMBER, types.UInt: NUMBER, types.ULong: NUMBER,
    types.Byte: NUMBER, types.Short: NUMBER, types.Int: NUMBER, types.Long: NUMBER,
}  # fmt: skip
"""Kinds of comparable values. None has no kind. A dict, since each value is looked up."""

kind_of = KINDS.get

COMPARISONS: Final[MappingProxyType[str, Callable[[Any, Any], bool]]] = MappingProxyType(
    {
        "=": operator.eq, "<>": operator.ne,
        "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    }
)  # fmt: skip

EQUALITIES: Final = frozenset(("=", "<>"))


def is_ordered(sign: str, kind: int | None) -> bool:
    """Tell whether a comparison is defined for a kind."""
    return kind is not None and (kind != TRUTH or sign in EQUALITIES)


def compare(sign: str, left: Value, right: Value) -> bool | None:
    """Compare two values; None for unknown."""
    kind = kind_of(type(left))
    if kind != kind_of(type(right)) or not is_ordered(sign, kind):
        return None
    return COMPARISONS[sign](left, right)


# ------------------------------------------------------------------------- arithmetic

_DECIMALS: Final = decimal.Context(
    prec=34, Emin=-6143, Emax=6144,
    traps=[decimal.DivisionByZero, decimal.InvalidOperation, decimal.Overflow],
)  # fmt: skip
"""decimal128's arithmetic (IEEE 754 §3.5)."""


def _quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


_EXACT: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient, "%": _remainder,
}  # fmt: skip
_APPROXIMATE: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": math.fmod,
}  # fmt: skip
_DECIMAL: Final[dict[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": _DECIMALS.add, "-": _DECIMALS.subtract, "*": _DECIMALS.multiply, "/": _DECIMALS.divide,
    "%": _DECIMALS.remainder,
}  # fmt: skip


def calculate(sign: str, left: Value, right: Value) -> Value:
    """Combine two numbers; None for what is no number or has no result."""
    if kind_of(type(left)) != NUMBER or kind_of(type(right)) != NUMBER:
        return None
    assert isinstance(left, int | float | Decimal)
    assert isinstance(right, int | float | Decimal)
    try:
        if isinstance(left, float) or isinstance(right, float):
            return _APPROXIMATE[sign](float(left), float(right))
        if isinstance(left, Decimal) or isinstance(right, Decimal):
            return _DECIMAL[sign](Decimal(left), Decimal(right))
        exact = _EXACT[sign](int(left), int(right))
    except (ArithmeticError, ValueError):
        # Division by zero, overflow; math.fmod says ValueError for an infinite dividend.
        return None
    return exact if SMALLEST_EXACT <= exact <= LARGEST_EXACT else None


def signed(sign: str, value: Value) -> Value:
    """Apply unary plus or minus."""
    if sign == "-" and isinstance(value, float):
        return -value
    return calculate(sign, 0, value)


def joined(left: Value, right: Value) -> Value:
    """Join two texts (filtex §6.4: ``+``); for others, add."""
    if kind_of(type(left)) != TEXT or kind_of(type(right)) != TEXT:
        return calculate("+", left, right)
    assert isinstance(left, str)
    assert isinstance(right, str)
    return None if len(left) + len(right) > LONGEST_TEXT else str(left) + str(right)


# ------------------------------------------------------------------------------- LIKE

_Items: TypeAlias = list[str | None]
"""A piece of a pattern between two ``%``: characters, and None for ``_``."""


def pattern_pieces(pattern: str, escape: str | None) -> list[_Items]:
    """Split a pattern at its ``%``."""
    pieces: list[_Items] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            pieces[-1].append(next(characters))
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return pieces


class Pattern:
    """A LIKE pattern (SQL-92 §8.5), matched in time linear in the text.

    No regular expression: with several ``%`` those backtrack. Here each piece between two ``%``
    is looked for once, leftmost, which is enough; a piece with ``_`` in it is found by running
    all its beginnings at once as the bits of an integer (the shift-and method).

    Args:
        pattern: the text with its wildcards.
        escape: the character that takes a wildcard's meaning away, if there is one.
    """

    __slots__ = ("_first", "_last", "_middle", "_shortest", "matches")

    matches: Callable[[str], bool]

    def __init__(self, pattern: str, escape: str | None) -> None:
        pieces = pattern_pieces(pattern, escape)
        self._shortest = sum(map(len, pieces))
        self._first = pieces[0]
        self._last = pieces[-1]
        self._middle = [_finder(piece) for piece in pieces[1:-1] if piece]
        plain = ["".join(map(str, piece)) if None not in piece else None for piece in pieces]
        self.matches = self._matches
        if len(pieces) == 1:
            self.matches = plain[0].__eq__ if plain[0] is not None else self._matches_whole
        elif len(pieces) == 2 and plain[0] is not None and plain[1] is not None:
            # The everyday patterns: beginning%, %end, beginning%end.
            begin, end, shortest = plain[0], plain[1], self._shortest
            self.matches = lambda text: (
                len(text) >= shortest and text.startswith(begin) and text.endswith(end)
            )

    def _matches_whole(self, text: str) -> bool:
        return len(text) == self._shortest and _stands(self._first, text, 0)

    def _matches(self, text: str) -> bool:
        end = len(text) - len(self._last)
        if len(text) < self._shortest or not _stands(self._first, text, 0):
            return False
        if not _stands(self._last, text, end):
            return False
        pos = len(self._first)
        for find in self._middle:
            pos = find(text, pos, end)
            if pos < 0:
                return False
        return True


def _stands(items: _Items, text: str, at: int) -> bool:
    """Tell whether a piece matches at one place of a text that is long enough."""
    return all(
        item is None or item == character
        for item, character in zip(items, text[at : at + len(items)], strict=True)
    )


def _finder(items: _Items) -> Callable[[str, int, int], int]:
    """Make a function that finds a piece in ``text[start:end]``: the offset after it, or -1."""
    length = len(items)
    if None not in items:
        plain = "".join(map(str, items))

        def find_plain(text: str, start: int, end: int) -> int:
            at = text.find(plain, start, end)
            return at if at < 0 else at + length

        return find_plain
    any_character = 0
    for index, item in enumerate(items):
        if item is None:
            any_character |= 1 << index
    masks: dict[str, int] = {}
    for index, item in enumerate(items):
        if item is not None:
            masks[item] = masks.get(item, any_character) | 1 << index
    complete = 1 << (length - 1)

    def find_wild(text: str, start: int, end: int) -> int:
        begun = 0
        for at in range(start, end):
            begun = (begun << 1 | 1) & masks.get(text[at], any_character)
            if begun & complete:
                return at + 1
        return -1

    return find_wild


# -------------------------------------------------------------------------- functions


def lower(text: Value) -> Value:
    """LOWER (filtex §6.5)."""
    return text.lower() if isinstance(text, str) else None


def upper(text: Value) -> Value:
    """UPPER (filtex §6.5)."""
    return text.upper() if isinstance(text, str) else None


def left(text: Value, count: Value) -> Value:
    """LEFT: the first characters of a text."""
    if not isinstance(text, str) or not _is_count(count):
        return None
    return str(text)[:count]


def right(text: Value, count: Value) -> Value:
    """RIGHT: the last characters of a text."""
    if not isinstance(text, str) or not _is_count(count):
        return None
    return str(text)[max(0, len(text) - count) :]


def substring(text: Value, start: Value, count: Value = LONGEST_TEXT) -> Value:
    """SUBSTRING: from a character on, the first being 1 as in SQL-92 §6.7."""
    if not isinstance(text, str) or not _is_count(start) or not _is_count(count) or start < 1:
        return None
    return str(text)[start - 1 : start - 1 + count]


def _is_count(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def date(text: Value) -> Value:
    """DATE: an ISO 8601 time as milliseconds since the epoch; UTC, unless it names a zone."""
    if not isinstance(text, str):
        return None
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    except (ValueError, OverflowError):
        return None
