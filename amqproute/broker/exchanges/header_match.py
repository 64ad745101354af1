# SPDX-License-Identifier: Apache-2.0
"""The bindings of a headers exchange: `comparable` values, `HeaderPattern`, `HeaderIndex`.

A binding names headers and values, and in ``x-match`` how they are combined:

==============  =====================================================================
all             every one of them is in the message; the value of `x-match` if absent
any             at least one of them is
all-with-x      as ``all``, with names that begin with ``x-``
any-with-x      as ``any``, with names that begin with ``x-``
==============  =====================================================================

Without ``-with-x`` names that begin with ``x-`` are not looked at. ``x-match`` itself never is. A
binding without any name to look at matches everything with ``all``, nothing with ``any``.

Two values are equal if they are of one family and the same: truth values; numbers, whatever their
width, integers and floating-point numbers alike; text and octets, by their octets; tables; arrays;
decimals. A void value in the binding asks for the header, whatever its value.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

MATCH_ARGUMENT: Final = "x-match"
_HIDDEN: Final = "x-"
_ANY_VALUE: Final = ("void",)

Value = TypeVar("Value", bound=Hashable)


def comparable(value: object) -> Hashable:
    """Return a hashable stand-in for the value of a header or an argument.

    Stand-ins are equal exactly if the values are by the rules of this module.

    Args:
        value: None, a truth value, a number, text, octets, a tuple or list, a mapping, or a named
            tuple for a type with several parts, such as a decimal.

    Raises:
        TypeError: the value has a type that headers cannot be matched by.
    """
    if value is None:
        return _ANY_VALUE
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, int | float):
        return ("number", "nan" if value != value else value)
    if isinstance(value, str):
        return ("octets", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return ("octets", bytes(value))
    if isinstance(value, Mapping):
        return ("table", frozenset((name, comparable(each)) for name, each in value.items()))
    if isinstance(value, tuple | list):
        family = "array" if type(value) in (tuple, list) else "parts"
        return (family, *(comparable(each) for each in value))
    raise TypeError(f"no value of a header: {type(value).__name__}")


class HeaderPattern(NamedTuple):
    """The condition of a binding on headers.

    Attributes:
        wanted: name and `comparable` value of each header that is looked at.
        is_any: one of them is enough.
    """

    wanted: tuple[tuple[str, Hashable], ...]
    is_any: bool

    def matches(self, headers: Mapping[str, Hashable]) -> bool:
        """Tell whether headers, with `comparable` values, are what is asked for."""
        found = (
            name in headers and (value == _ANY_VALUE or headers[name] == value)
            for name, value in self.wanted
        )
        return any(found) if self.is_any else all(found)


def header_pattern(arguments: Mapping[str, object]) -> HeaderPattern:
    """Read the arguments of a binding.

    Raises:
        TopologyFault: ``x-match`` is not one of the four words.
    """
    word = arguments.get(MATCH_ARGUMENT, "all")
    if not isinstance(word, str):
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT,
            f"the argument x-match has to be a text, not {type(word).__name__}",
        )
    if word not in ("all", "any", "all-with-x", "any-with-x"):
        raise TopologyFault(
            TopologyFaultKind.INVALID_ARGUMENT,
            f"the argument x-match is {word!r:.40}; it can be all, any, all-with-x or any-with-x",
        )
    with_hidden = word.endswith("-with-x")
    wanted = tuple(
        (name, comparable(value))
        for name, value in arguments.items()
        if name != MATCH_ARGUMENT and (with_hidden or not name.startswith(_HIDDEN))
    )
    return HeaderPattern(wanted, word.startswith("any"))


class HeaderIndex(Generic[Value]):
    """Patterns with values; the values of the patterns that headers match.

    Each pattern with ``any`` is found by each of its pairs, each pattern with ``all`` by one, the
    one that the fewest others have: so most patterns that cannot match are not looked at.

    Attributes:
        steps: patterns looked at by all `match` calls so far: the measure of the work.
    """

    __slots__ = ("_anchors", "_by_pair", "_unconditional", "steps")

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, Hashable], dict[tuple[HeaderPattern, Value], None]] = {}
        self._anchors: dict[tuple[HeaderPattern, Value], tuple[tuple[str, Hashable], ...]] = {}
        self._unconditional: dict[tuple[HeaderPattern, Value], None] = {}
        self.steps = 0

    @property
    def is_empty(self) -> bool:
        """There is no pattern."""
        return not self._anchors

    def add(self, pattern: HeaderPattern, value: Value) -> None:
        """Add a value under a pattern; the same twice is as once."""
        entry = (pattern, value)
        if entry in self._anchors:
            return
        pairs = pattern.wanted
        if pairs and not pattern.is_any:
            pairs = (min(pairs, key=self._crowd),)
        elif not pairs and not pattern.is_any:
            self._unconditional[entry] = None
        self._anchors[entry] = pairs
        for pair in pairs:
            self._by_pair.setdefault(pair, {})[entry] = None

    def remove(self, pattern: HeaderPattern, value: Value) -> None:
        """Remove a value from a pattern.

        Raises:
            KeyError: the binding is not in the index.
        """
        entry = (pattern, value)
        for pair in self._anchors.pop(entry):
            entries = self._by_pair[pair]
            del entries[entry]
            if not entries:
                del self._by_pair[pair]
        self._unconditional.pop(entry, None)

    def match(self, headers: Mapping[str, object]) -> dict[Value, None]:
        """Return the values whose patterns match the headers of a message, each once."""
        there = {name: comparable(value) for name, value in headers.items()}
        found: dict[Value, None] = {value: None for _, value in self._unconditional}
        self.steps += len(found)
        for name, value in there.items():
            self._collect(self._by_pair.get((name, value), ()), there, found)
            if value != _ANY_VALUE:
                self._collect(self._by_pair.get((name, _ANY_VALUE), ()), there, found)
        return found

    def _collect(
        self,
        entries: Iterable[tuple[HeaderPattern, Value]],
        headers: Mapping[str, Hashable],
        found: dict[Value, None],
    ) -> None:
        for pattern, value in entries:
            self.steps += 1
            if value not in found and (pattern.is_any or pattern.matches(headers)):
                found[value] = None

    def _crowd(self, pair: tuple[str, Hashable]) -> int:
        return len(self._by_pair.get(pair, ()))


__all__ = ["MATCH_ARGUMENT", "HeaderIndex", "HeaderPattern", "comparable", "header_pattern"]
