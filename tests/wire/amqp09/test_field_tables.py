# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp09.field_tables`, against an independent decoder."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp09 import field_tables
from amqproute.wire.amqp09.amqplain import amqplain_response, parse_amqplain
from amqproute.wire.amqp09.field_tables import (
    DEEPEST,
    MOST_VALUES,
    EpochSeconds,
    FieldTable,
    FieldValueError,
    Float32,
    ForeignValue,
    Int8,
    Int16,
    Int16U,
    Int64,
    Int64L,
    LongString,
    TableDecimal,
    UInt8,
    UInt16,
    UInt32,
)
from tests.support.plain_amqp09 import Pairs, pair_octets, table_pairs

NAMES = st.text(max_size=8)
SCALARS = st.one_of(
    st.tuples(st.just("t"), st.integers(0, 1)),
    st.tuples(st.just("b"), st.integers(-128, 127)),
    st.tuples(st.just("B"), st.integers(0, 255)),
    st.tuples(st.sampled_from("sU"), st.integers(-(1 << 15), (1 << 15) - 1)),
    st.tuples(st.just("u"), st.integers(0, (1 << 16) - 1)),
    st.tuples(st.just("I"), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just("i"), st.integers(0, (1 << 32) - 1)),
    st.tuples(st.sampled_from("lL"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("T"), st.integers(0, (1 << 64) - 1)),
    st.tuples(st.just("f"), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("d"), st.floats(allow_nan=False)),
    st.tuples(st.just("D"), st.tuples(st.integers(0, 255), st.integers(-(1 << 31), 1 << 30))),
    st.tuples(st.just("S"), st.one_of(st.binary(max_size=9), st.text(max_size=9).map(str.encode))),
    st.tuples(st.sampled_from("xcC"), st.binary(max_size=9)),
    st.tuples(st.just("k"), st.binary(min_size=1, max_size=1)),
    st.tuples(st.just("V"), st.none()),
)


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(st.tuples(NAMES, inner), max_size=4, unique_by=lambda pair: pair[0])
    return st.one_of(
        st.tuples(st.just("A"), st.lists(inner, max_size=4)),
        st.tuples(st.just("F"), pairs.map(lambda each: [(n, *v) for n, v in each])),
    )


VALUES = st.recursive(SCALARS, _nest, max_leaves=12)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=6, unique_by=lambda pair: pair[0]).map(
    lambda each: [(name, *value) for name, value in each]
)

FEW = st.lists(
    st.sampled_from(
        [("a", "I", 7), ("é", "S", b"text"), ("", "V", None), ("t", "F", [("x", "A", [("t", 1)])])]
    ),
    max_size=3,
    unique_by=lambda pair: pair[0],
)
"""Tables for tests that are not about tables."""


def rebuilt(value: object) -> object:
    """Return a value of new tables and lists, so that it is encoded from its Python values."""
    if isinstance(value, FieldTable):
        return {name: rebuilt(each) for name, each in value.items()}
    if type(value) is tuple:
        return [rebuilt(each) for each in value]
    return value


class TableTests(SynchronousTestCase):
    """Read, written, read again."""

    def test_each_tag(self) -> None:
        """The Python value of each tag, and its tag on the way back."""
        rows: list[tuple[str, Any, object, type]] = [
            ("t", 1, True, bool), ("t", 0, False, bool),
            ("b", -7, -7, Int8), ("B", 200, 200, UInt8),
            ("s", -300, -300, Int16), ("U", -300, -300, Int16U), ("u", 60000, 60000, UInt16),
            ("I", -70000, -70000, int), ("i", 4_000_000_000, 4_000_000_000, UInt32),
            ("l", -(1 << 40), -(1 << 40), Int64), ("L", 1 << 40, 1 << 40, Int64L),
            ("f", 1.5, 1.5, Float32), ("d", 0.1, 0.1, float),
            ("D", (2, -314), TableDecimal(2, -314), TableDecimal),
            ("S", b"text", "text", str), ("S", b"\xff", b"\xff", LongString),
            ("x", b"\xff", b"\xff", bytes), ("T", 1 << 63, 1 << 63, EpochSeconds),
            ("F", [("a", "t", 1)], {"a": True}, FieldTable),
            ("A", [("I", 1), ("S", b"x")], (1, "x"), tuple), ("V", None, None, type(None)),
            ("c", b"a", ForeignValue(b"c", b"a"), ForeignValue),
            ("C", b"b", ForeignValue(b"C", b"b"), ForeignValue),
            ("k", b"c", ForeignValue(b"k", b"c"), ForeignValue),
        ]  # fmt: skip
        for tag, plain, value, kind in rows:
            octets = pair_octets([("name", tag, plain)])
            table = FieldTable.from_octets(octets)
            self.assertEqual(table["name"], value, tag)
            self.assertIs(type(table["name"]), kind, tag)
            again = FieldTable({"name": rebuilt(table["name"])})  # type: ignore[dict-item]
            self.assertEqual(again.octets, octets, tag)
        self.assertEqual(TableDecimal(2, -314).number(), Decimal("-3.14"))

    @given(PAIRS)
    def test_any_table(self, pairs: Pairs) -> None:
        """A table read and written again is octet-identical, from its values as well."""
        octets = pair_octets(pairs)
        table = FieldTable.from_octets(octets)
        self.assertEqual(table.octets, octets)
        self.assertEqual(list(table), [name for name, _, _ in pairs])
        again = FieldTable(rebuilt(table))  # type: ignore[arg-type]
        self.assertEqual(again.octets, octets)
        self.assertEqual(again, table)
        self.assertEqual(hash(again), hash(table))

    @given(PAIRS)
    def test_plain(self, pairs: Pairs) -> None:
        """09-W-31: only the tags that every client reads are left, and the values are the same."""
        plain = FieldTable.from_octets(pair_octets(pairs)).plain()
        self.assertLessEqual(self.tags(table_pairs(plain.octets)), set("SIDTFtldxAV"))
        for name, tag, value in pairs:
            if tag in "bBsuUIilLT":
                self.assertEqual(plain[name], value)

    def tags(self, pairs: Any) -> set[str]:
        """Collect the tags of a table or an array."""
        found = set()
        for *_, tag, value in pairs:
            found.add(tag)
            if tag in "FA":
                found |= self.tags(value)
        return found

    def test_python_values(self) -> None:
        """Plain integers are I or l, octets x, lists A, dictionaries F (09-W-31)."""
        table = FieldTable({"a": 1, "b": 1 << 31, "c": b"x", "d": [1.0], "e": {"f": None}})
        tags = [tag for _, tag, _ in table_pairs(table.octets)]
        self.assertEqual(tags, ["I", "l", "x", "A", "F"])

    def test_no_tag(self) -> None:
        """Values that no tag can hold are refused when a table is made."""
        for value in (1 << 63, Int8(200), UInt32(-1), object(), Float32(1e300), "\ud800"):
            with self.assertRaises(FieldValueError):
                FieldTable({"a": value})  # type: ignore[dict-item]
        with self.assertRaises(FieldValueError):
            FieldTable({"n" * 256: None})
        with self.assertRaises(FieldValueError):
            FieldTable({"d": TableDecimal(300, 0)})

    def test_repeated_name(self) -> None:
        """09-W-35: the last value counts; 09-W-36: the octets stay as they were."""
        octets = pair_octets([("a", "I", 1), ("a", "I", 2)])
        table = FieldTable.from_octets(octets)
        self.assertEqual(dict(table), {"a": 2})
        self.assertEqual(table.octets, octets)

    def test_odd_values_stay(self) -> None:
        """A boolean of 7, a NaN with a payload: read, and sent again as they came."""
        octets = pair_octets([("a", "t", 7)]) + b"\x01bf\x7f\xa0\x00\x01"
        table = FieldTable.from_octets(octets)
        self.assertIs(table["a"], True)
        self.assertEqual(FieldTable({"outer": table}).octets[-len(octets) :], octets)

    def test_names(self) -> None:
        """09-W-32: the grammar of names is not enforced."""
        octets = pair_octets(
            [("x-max-length", "I", 1), ("connection.blocked", "t", 1), ("", "V", None)]
        )
        self.assertEqual(
            list(FieldTable.from_octets(octets)), ["x-max-length", "connection.blocked", ""]
        )

    def test_unknown_tag(self) -> None:
        """09-W-33: an unknown tag makes the table unreadable."""
        for tag in range(256):
            if chr(tag) in "tbBsUuIilLfdDSxTFAVcCk":
                continue
            with self.assertRaises(FieldValueError):
                FieldTable.from_octets(b"\x01a" + bytes((tag,)) + bytes(8))

    def test_lengths(self) -> None:
        """09-W-34: whatever is cut off or reaches beyond what is around it is refused."""
        inner = [("I", 1), ("F", [("k", "S", b"text")])]
        octets = pair_octets([("a", "A", inner), ("b", "l", 1), ("c", "D", (1, 1)), ("d", "t", 1)])
        whole = len(FieldTable.from_octets(octets))
        for end in range(len(octets)):
            try:
                self.assertLess(len(FieldTable.from_octets(octets[:end])), whole)
            except FieldValueError:
                pass
        for size in (0x7FFFFFFF, 0xFFFFFFFF, 5):
            with self.assertRaises(FieldValueError):
                FieldTable.from_octets(b"\x01aS" + struct.pack(">I", size) + b"text")
        with self.assertRaises(FieldValueError):
            field_tables.read_table(struct.pack(">I", 9) + bytes(8), 0, 12)

    def test_depth(self) -> None:
        """09-W-34: nested so deep and no deeper; the stack is not used up."""
        octets = pair_octets([("a", "V", None)])
        for depth in range(2, 40):
            octets = b"\x01aF" + struct.pack(">I", len(octets)) + octets
            if depth <= DEEPEST:
                FieldTable.from_octets(octets)
            else:
                with self.assertRaises(FieldValueError):
                    FieldTable.from_octets(octets)
        array = b""
        for _ in range(5000):
            array = b"A" + struct.pack(">I", len(array)) + array
        with self.assertRaises(FieldValueError):
            FieldTable.from_octets(b"\x01a" + array)
        deep: Any = None
        for _ in range(DEEPEST):
            deep = {"a": deep}
        with self.assertRaises(FieldValueError):
            FieldTable({"a": deep})

    def test_number_of_values(self) -> None:
        """A table of more values than are taken is refused, nested ones counted."""
        FieldTable.from_octets(b"\x01aV" * MOST_VALUES)
        with self.assertRaises(FieldValueError):
            FieldTable.from_octets(b"\x01aV" * (MOST_VALUES + 1))
        inner = b"V" * (MOST_VALUES // 2)
        array = b"\x01aA" + struct.pack(">I", len(inner)) + inner
        with self.assertRaises(FieldValueError):
            FieldTable.from_octets(array * 3)

    @given(st.binary(max_size=60))
    def test_arbitrary_octets(self, octets: bytes) -> None:
        """Octets are a table, which stays as it is, or a `FieldValueError`, and nothing else."""
        try:
            table = FieldTable.from_octets(octets)
        except FieldValueError:
            return
        self.assertEqual(table.octets, octets)
        self.assertEqual(len(table), len({name for name, _, _ in table_pairs(octets)}))


class AmqplainTests(SynchronousTestCase):
    """`amqproute.wire.amqp09.amqplain`."""

    def test_response(self) -> None:
        """A table of LOGIN and PASSWORD without its length, as a client writes it."""
        octets = pair_octets([("LOGIN", "S", b"guest"), ("PASSWORD", "S", b"s3cret")])
        self.assertEqual(parse_amqplain(octets), ("guest", "s3cret"))
        self.assertEqual(amqplain_response("guest", "s3cret"), octets)

    def test_bad(self) -> None:
        """Anything else is no response."""
        for pairs in ([("LOGIN", "S", b"guest")], [("LOGIN", "S", b"\xff"), ("PASSWORD", "S", b"")],
                      [("LOGIN", "I", 1), ("PASSWORD", "S", b"")]):  # fmt: skip
            self.assertIsNone(parse_amqplain(pair_octets(pairs)))
        self.assertIsNone(parse_amqplain(b"\0guest\0guest"))
