# SPDX-License-Identifier: Apache-2.0
"""Declarations of values: parameters of operations, and attributes of entities and answers.

From a declaration come the check of a request, its JSON schema, and its line in the documentation.
Attributes are written in short, as in ``depth number, oldest-age-ms number?``; the question mark
allows null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["ValueDeclaration", "ValueType", "attributes_of", "first_fault", "named_in"]


class ValueType(Enum):
    """The type of a value."""

    TEXT = "text"
    NUMBER = "number"
    FRACTION = "fraction"
    DURATION = "duration"
    """Seconds, or a text with a unit."""

    SIZE = "size"
    """Octets, or a text with a unit."""

    BOOLEAN = "boolean"
    TEXTS = "texts"
    NUMBERS = "numbers"
    MAP = "map"
    MAPS = "maps"
    ANY = "any"


_SCHEMAS: Final[Mapping[ValueType, Mapping[str, object]]] = {
    ValueType.TEXT: {"type": "string"},
    ValueType.NUMBER: {"type": "integer"},
    ValueType.FRACTION: {"type": "number"},
    ValueType.DURATION: {"type": ["number", "string"]},
    ValueType.SIZE: {"type": ["integer", "string"]},
    ValueType.BOOLEAN: {"type": "boolean"},
    ValueType.TEXTS: {"type": "array", "items": {"type": "string"}},
    ValueType.NUMBERS: {"type": "array", "items": {"type": "integer"}},
    ValueType.MAP: {"type": "object"},
    ValueType.MAPS: {"type": "array", "items": {"type": "object"}},
    ValueType.ANY: {},
}
_WORDS: Final = {
    ValueType.TEXT: "a text",
    ValueType.NUMBER: "a number",
    ValueType.FRACTION: "a number",
    ValueType.DURATION: "a number of seconds, or a text as in 30s or 2h",
    ValueType.SIZE: "a number of octets, or a text as in 8MiB",
    ValueType.BOOLEAN: "true or false",
    ValueType.TEXTS: "a list of texts",
    ValueType.NUMBERS: "a list of numbers",
    ValueType.MAP: "a map",
    ValueType.MAPS: "a list of maps",
    ValueType.ANY: "any value",
}


@dataclass(frozen=True, slots=True)
class ValueDeclaration:
    """A value.

    Attributes:
        name: of it.
        type: of it.
        does: description, a noun phrase; empty if the name tells all.
        is_required: whether it has to be given.
        is_nullable: whether null may be given, with the meaning of its absence.
        least: of a number.
        most: of a number.
        longest: characters of a text, entries of a list.
        shortest: characters of a text.
        choices: the choices of a text; any without.
    """

    name: str
    type: ValueType
    does: str = ""
    is_required: bool = False
    is_nullable: bool = False
    least: int | None = None
    most: int | None = None
    longest: int | None = None
    shortest: int = 0
    choices: Sequence[str] = ()

    @property
    def words(self) -> str:
        """The possible values, as text."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.type in (ValueType.NUMBER, ValueType.FRACTION) and self.least is not None:
            return f"a number from {self.least} " + (
                "on" if self.most is None else f"to {self.most}"
            )
        found = _WORDS[self.type]
        if self.type is ValueType.TEXT and self.longest is not None:
            least = f"{self.shortest} to " if self.shortest else "at most "
            return f"{found} of {least}{self.longest} characters"
        if self.longest is not None:
            return f"{found}, at most {self.longest}"
        return found

    def fits(self, value: object) -> bool:
        """Return whether a value is one of these."""
        if value is None:
            return self.is_nullable or self.type is ValueType.ANY
        if not _has_type(value, self.type):
            return False
        if self.choices and value not in self.choices:
            return False
        if isinstance(value, int | float):
            is_low = self.least is not None and value < self.least
            return not is_low and (self.most is None or value <= self.most)
        if isinstance(value, str | list | tuple | dict) and self.longest is not None:
            return self.shortest <= len(value) <= self.longest
        return True

    def schema(self) -> dict[str, object]:
        """Return the JSON schema."""
        found: dict[str, object] = dict(_SCHEMAS[self.type])
        if self.choices:
            found["enum"] = [*self.choices, *([None] if self.is_nullable else [])]
        if self.least is not None:
            found["minimum"] = self.least
        if self.most is not None:
            found["maximum"] = self.most
        if self.longest is not None:
            found["maxLength" if self.type is ValueType.TEXT else "maxItems"] = self.longest
        if self.shortest:
            found["minLength"] = self.shortest
        if self.is_nullable and "type" in found:
            kinds = found["type"]
            found["type"] = [*(kinds if isinstance(kinds, list) else [kinds]), "null"]
        if self.does:
            found["description"] = self.does
        return found


def _has_type(value: object, wanted: ValueType) -> bool:
    if wanted is ValueType.ANY:
        return True
    if wanted is ValueType.TEXT:
        return isinstance(value, str)
    if wanted is ValueType.BOOLEAN:
        return isinstance(value, bool)
    if wanted is ValueType.NUMBER:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted in (ValueType.DURATION, ValueType.SIZE) and isinstance(value, str):
        return True
    if wanted is ValueType.SIZE:
        return isinstance(value, int) and not isinstance(value, bool)
    if wanted in (ValueType.FRACTION, ValueType.DURATION):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if wanted is ValueType.MAP:
        return isinstance(value, Mapping)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    of = {ValueType.TEXTS: ValueType.TEXT, ValueType.NUMBERS: ValueType.NUMBER}
    return all(_has_type(each, of.get(wanted, ValueType.MAP)) for each in value)


def first_fault(
    given: Mapping[str, object], declared: Sequence[ValueDeclaration], *, is_open: bool = False
) -> tuple[str, str] | None:
    """Return the name of the first value that is wrong, and words; None if all are right.

    Args:
        given: values by name.
        declared: those there are.
        is_open: whether there may be others.
    """
    for each in declared:
        if each.name not in given:
            if each.is_required:
                return each.name, f"`{each.name}` is missing: {each.words}"
        elif not each.fits(given[each.name]):
            return each.name, f"`{each.name}` is not {each.words}"
    known = {each.name for each in declared}
    for name in sorted(map(str, given)):
        if name not in known and not is_open:
            there = ", ".join(sorted(known)) or "none"
            return name[:64], f"unknown option {name[:64]!r}; there are {there}"
    return None


def named_in(words: str, names: Sequence[str]) -> str:
    """Return the one of these names that a refusal is about; empty if that is not clear.

    It is the name at the beginning of the words, or else the first in backquotes or quotes.
    """
    first = words.split(" ", 1)[0].strip("`:,")
    if first in names:
        return first
    places = [
        (at, name)
        for name in names
        for mark in ("`", "'")
        if (at := words.find(f"{mark}{name}{mark}")) >= 0
    ]
    return min(places)[1] if places else ""


def attributes_of(text: str) -> tuple[ValueDeclaration, ...]:
    """Return the attributes that a text lists; see the module."""
    found = []
    for part in text.split(","):
        name, kind = part.split()
        is_nullable = kind.endswith("?")
        found.append(
            ValueDeclaration(name, ValueType(kind.removesuffix("?")), is_nullable=is_nullable)
        )
    return tuple(found)
