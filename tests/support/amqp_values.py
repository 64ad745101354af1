# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for AMQP 1.0 values and composites, and an exact comparison."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

U8 = st.integers(0, 0xFF)
U16 = st.integers(0, 0xFFFF)
U32 = st.one_of(st.integers(0, 300), st.integers(0, 0xFFFFFFFF))
U64 = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))
S64 = st.one_of(st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1))
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
ASCII = st.text(st.characters(max_codepoint=127), max_size=300)
OCTETS = st.binary(max_size=300)
SYMBOLS = ASCII.map(Symbol)

_KEYS = st.one_of(
    st.none(),
    st.booleans(),
    U8.map(UByte),
    U16.map(UShort),
    U32.map(UInt),
    U64.map(ULong),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    S64,
    S64.map(Timestamp),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.characters(exclude_categories=("Cs",)).map(Char),
    st.uuids(),
    OCTETS,
    TEXT,
    SYMBOLS,
)
LEAVES = st.one_of(
    _KEYS,
    st.floats(allow_nan=True),
    st.floats(width=32, allow_nan=False).map(Float),
)


def _arrays(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    lists = st.lists(values, max_size=3)
    maps = st.dictionaries(_KEYS, values, max_size=2)
    short = st.binary(max_size=20)
    items: dict[int, st.SearchStrategy[Any]] = {
        0x40: st.none(),
        0x41: st.just(True),
        0x42: st.just(False),
        0x56: st.booleans(),
        0x50: U8.map(UByte),
        0x60: U16.map(UShort),
        0x70: U32.map(UInt),
        0x52: U8.map(UInt),
        0x43: st.just(UInt(0)),
        0x80: U64.map(ULong),
        0x53: U8.map(ULong),
        0x44: st.just(ULong(0)),
        0x51: st.integers(-128, 127).map(Byte),
        0x61: st.integers(-(2**15), 2**15 - 1).map(Short),
        0x71: st.integers(-(2**31), 2**31 - 1).map(Int),
        0x54: st.integers(-128, 127).map(Int),
        0x81: S64,
        0x55: st.integers(-128, 127),
        0x72: st.floats(width=32, allow_nan=False).map(Float),
        0x82: st.floats(allow_nan=False),
        0x74: st.binary(min_size=4, max_size=4).map(Decimal32),
        0x84: st.binary(min_size=8, max_size=8).map(Decimal64),
        0x94: st.binary(min_size=16, max_size=16).map(Decimal128),
        0x73: st.characters(exclude_categories=("Cs",)).map(Char),
        0x83: S64.map(Timestamp),
        0x98: st.uuids(),
        0xA0: short,
        0xB0: short,
        0xA1: st.text(st.characters(exclude_categories=("Cs",)), max_size=20),
        0xB1: TEXT,
        0xA3: st.text(st.characters(max_codepoint=127), max_size=20).map(Symbol),
        0xB3: SYMBOLS,
        0x45: st.just([]),
        0xC0: st.lists(U64.map(ULong), max_size=3),
        0xD0: lists,
        0xC1: st.dictionaries(U16.map(UShort), st.booleans(), max_size=3),
        0xD1: maps,
        0xE0: st.lists(U8.map(UByte), max_size=3).map(lambda each: Array(0x50, each)),
        0xF0: lists.map(lambda each: Array(0xD0, [each])),
    }
    return st.sampled_from(sorted(items)).flatmap(
        lambda code: st.builds(
            Array,
            st.just(code),
            st.lists(items[code], max_size=4),
            st.lists(st.one_of(SYMBOLS, U64.map(ULong)), max_size=2),
        )
    )


VALUES = st.recursive(
    LEAVES,
    lambda values: st.one_of(
        st.lists(values, max_size=4),
        st.dictionaries(_KEYS, values, max_size=4),
        st.builds(Described, st.one_of(SYMBOLS, U64.map(ULong), values), values),
        _arrays(values),
    ),
    max_leaves=12,
)
"""Any AMQP value."""


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, with the same types at every depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, Described):
        return same(one.descriptor, other.descriptor) and same(one.value, other.value)
    if isinstance(one, Array):
        return (
            one.code == other.code
            and same(one.items, other.items)
            and same(one.descriptors, other.descriptors)
        )
    if isinstance(one, spec.Composite):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in one.fields)
    return bool(one == other)


# The values of a field, by the name of its type. Composite ones are added below.
_FIELDS = st.dictionaries(SYMBOLS, LEAVES, max_size=3)
_BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "role": st.booleans(),
    "ubyte": U8,
    "ushort": U16,
    "uint": U32,
    "ulong": U64,
    "timestamp": S64,
    "binary": OCTETS,
    "string": TEXT,
    "symbol": SYMBOLS,
    "delivery-tag": st.binary(max_size=32),
    "fields": _FIELDS,
    "annotations": st.dictionaries(st.one_of(SYMBOLS, U64.map(ULong)), LEAVES, max_size=3),
    "filter-set": st.dictionaries(SYMBOLS, st.builds(Described, SYMBOLS, LEAVES), max_size=2),
    "node-properties": st.one_of(
        _FIELDS, st.just({Symbol("lifetime-policy"): spec.DeleteOnClose()})
    ),
    "message-id": st.one_of(U64.map(ULong), st.uuids(), OCTETS, TEXT),
    "sender-settle-mode": st.integers(0, 2),
    "receiver-settle-mode": st.integers(0, 1),
    "terminus-durability": st.integers(0, 2),
    "sasl-code": st.integers(0, 4),
    "terminus-expiry-policy": st.sampled_from(
        [Symbol("link-detach"), Symbol("session-end"), Symbol("connection-close"), Symbol("never")]
    ),
    "*": LEAVES,
}


def composites(cls: type[spec.Composite]) -> st.SearchStrategy[Any]:
    """Any object of a composite type."""
    arguments: dict[str, st.SearchStrategy[Any]] = {}
    for each in cls.fields:
        values = st.deferred(lambda name=each.type.name: _BY_TYPE[name])  # type: ignore[misc]
        if each.multiple:
            values = st.lists(values, max_size=3).map(tuple)
        if not each.mandatory:
            values = st.one_of(st.just(each.default), values)
        arguments[each.name] = values
    return st.builds(cls, **arguments)


def _any_of(*classes: type[spec.Composite]) -> st.SearchStrategy[Any]:
    return st.one_of([composites(cls) for cls in classes])


_OUTCOMES = (spec.Accepted, spec.Rejected, spec.Released, spec.Modified, spec.Declared)
_BY_TYPE["error"] = composites(spec.Error)
_BY_TYPE["source"] = composites(spec.Source)
_BY_TYPE["target"] = _any_of(spec.Target, spec.Coordinator)
_BY_TYPE["outcome"] = _any_of(*_OUTCOMES)
_BY_TYPE["delivery-state"] = _any_of(spec.Received, spec.TransactionalState, *_OUTCOMES)
_BY_TYPE["unsettled"] = st.dictionaries(
    st.binary(max_size=32), st.one_of(st.none(), _BY_TYPE["delivery-state"]), max_size=3
)

PERFORMATIVES = _any_of(
    spec.Open,
    spec.Begin,
    spec.Attach,
    spec.Flow,
    spec.Transfer,
    spec.Disposition,
    spec.Detach,
    spec.End,
    spec.Close,
)
"""Any of the nine performatives."""

ANY_COMPOSITE = _any_of(*spec.BY_CODE.values())
"""Any composite value of the standard."""
