# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.broker.exchanges.header_match`."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.header_match import (
    HeaderIndex,
    HeaderPattern,
    comparable,
    header_pattern,
)
from amqproute.broker.exchanges.topology_fault import TopologyFault, TopologyFaultKind

NAMES = st.sampled_from(["a", "b", "x-a", "x-b"])
VALUES = st.sampled_from([None, True, 1, 1.0, 2, "1", b"1", (1,), {"k": 1}])
HEADERS = st.dictionaries(NAMES, VALUES, max_size=4)
WORDS = st.sampled_from(["all", "any", "all-with-x", "any-with-x", None])


def naive(arguments: dict[str, object], headers: dict[str, object]) -> bool:
    """Match by the definition."""
    word = str(arguments.get("x-match", "all"))
    results = [
        name in headers
        and (value is None or _family(value) == _family(headers[name]))
        and (value is None or _plain(value) == _plain(headers[name]))
        for name, value in arguments.items()
        if name != "x-match" and ("with-x" in word or not name.startswith("x-"))
    ]
    return any(results) if word.startswith("any") else all(results)


def _family(value: object) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str | bytes):
        return "octets"
    return type(value).__name__


def _plain(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


class Scaled(NamedTuple):
    """A value of two parts."""

    scale: int
    value: int


class PatternTests(SynchronousTestCase):
    """`header_pattern` and `HeaderPattern.matches`."""

    @given(HEADERS, WORDS, HEADERS)
    def test_definition(
        self, wanted: dict[str, object], word: str | None, headers: dict[str, object]
    ) -> None:
        """All kinds of x-match, any values, absent headers."""
        arguments = dict(wanted) if word is None else {**wanted, "x-match": word}
        there = {name: comparable(value) for name, value in headers.items()}
        self.assertEqual(
            header_pattern(arguments).matches(there), naive(arguments, headers), (arguments, there)
        )

    def test_table(self) -> None:
        """The four words, at the edges."""
        rows: list[tuple[dict[str, object], dict[str, object], bool]] = [
            ({}, {}, True), ({}, {"a": 1}, True), ({"x-match": "any"}, {"a": 1}, False),
            ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True), ({"a": 1, "b": 2}, {"a": 1}, False),
            ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
            ({"x-a": 1}, {}, True), ({"x-match": "all-with-x", "x-a": 1}, {}, False),
            ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
            ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
            ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
            ({"a": None}, {"a": "whatever"}, True), ({"a": None}, {}, False),
        ]  # fmt: skip
        for arguments, headers, wanted in rows:
            there = {name: comparable(value) for name, value in headers.items()}
            self.assertEqual(header_pattern(arguments).matches(there), wanted, arguments)

    def test_wrong_word(self) -> None:
        """Another x-match is an invalid argument."""
        for word in ("some", "", 1, None, True):
            fault = self.assertRaises(TopologyFault, header_pattern, {"x-match": word})
            self.assertEqual(fault.kind, TopologyFaultKind.INVALID_ARGUMENT)
            self.assertIn("x-match", fault.text)

    def test_values(self) -> None:
        """Families of values do not mix, and widths do not matter."""
        self.assertEqual(comparable(1), comparable(1.0))
        self.assertNotEqual(comparable(1), comparable(True))
        self.assertEqual(comparable("é"), comparable("é".encode()))
        self.assertNotEqual(comparable("1"), comparable(1))
        self.assertEqual(comparable(float("nan")), comparable(float("nan")))
        self.assertNotEqual(comparable((1, 2)), comparable(Scaled(1, 2)))
        self.assertEqual(comparable({"a": [1], "b": 2}), comparable({"b": 2.0, "a": (1,)}))
        self.assertRaises(TypeError, comparable, object())


class IndexTests(SynchronousTestCase):
    """`HeaderIndex`."""

    @given(st.lists(st.tuples(HEADERS, WORDS), max_size=8), HEADERS, st.data())
    def test_definition(
        self,
        bindings: list[tuple[dict[str, object], str | None]],
        headers: dict[str, object],
        data: st.DataObject,
    ) -> None:
        """It finds what looking at each pattern finds, after some have gone."""
        patterns: dict[int, HeaderPattern] = {}
        index: HeaderIndex[int] = HeaderIndex()
        for at, (wanted, word) in enumerate(bindings):
            patterns[at] = header_pattern(wanted if word is None else {**wanted, "x-match": word})
            index.add(patterns[at], at)
        for at in data.draw(st.sets(st.sampled_from([*patterns] or [-1]))):
            if at in patterns:
                index.remove(patterns.pop(at), at)
        there = {name: comparable(value) for name, value in headers.items()}
        wanted_values = {at for at, pattern in patterns.items() if pattern.matches(there)}
        self.assertEqual(set(index.match(headers)), wanted_values)
        self.assertEqual(index.is_empty, not patterns)

    def test_work(self) -> None:
        """Of 10,000 bindings that share a header, few are looked at."""
        index: HeaderIndex[int] = HeaderIndex()
        for at in range(10_000):
            index.add(header_pattern({"type": "order", "customer": at}), at)
        self.assertEqual(list(index.match({"type": "order", "customer": 7})), [7])
        self.assertLess(index.steps, 5)
