# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.codec`."""

from __future__ import annotations

import struct
import tracemalloc
from enum import IntEnum
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import DecodeError, LocalProtocolError
from amqproute.wire.amqp10.codec import (
    MAX_DEPTH,
    MAX_PREDICTABLE_KEYS,
    MAX_ZERO_WIDTH_ITEMS,
    decode,
    encode,
    encode_into,
)
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
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    WideMap,
)
from tests.support.amqp_values import VALUES, same

# The smallest encodings, by hand from the table of part 1 §1.6.
SMALLEST: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(0xFE), "50fe"),
    (UShort(0x102), "600102"),
    (UInt(0), "43"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (ULong(0), "44"),
    (ULong(20), "5314"),
    (ULong(2**64 - 1), "80ffffffffffffffff"),
    (Byte(-2), "51fe"),
    (Short(-2), "61fffe"),
    (Int(-128), "5480"),
    (Int(128), "7100000080"),
    (0, "5500"),
    (-1, "55ff"),
    (127, "557f"),
    (128, "810000000000000080"),
    (Float(1.0), "723f800000"),
    (-2.0, "82c000000000000000"),
    (Decimal32(b"\x01\x02\x03\x04"), "7401020304"),
    (Decimal64(bytes(8)), "84" + "00" * 8),
    (Decimal128(bytes(range(16))), "94" + bytes(range(16)).hex()),
    (Char("\u20ac"), "73000020ac"),
    (Timestamp(1311704463521), "830000013167adb8a1"),
    (UUID("00112233-4455-6677-8899-aabbccddeeff"), "9800112233445566778899aabbccddeeff"),
    (b"", "a000"),
    (b"\x01\x02", "a0020102"),
    (b"x" * 256, "b000000100" + "78" * 256),
    ("\u20ac", "a103e282ac"),
    ("x" * 255, "a1ff" + "78" * 255),
    ("x" * 256, "b100000100" + "78" * 256),
    (Symbol("ab"), "a3026162"),
    (Symbol("x" * 256), "b300000100" + "78" * 256),
    ([], "45"),
    ([None, True], "c003024041"),
    (["x" * 255], "d000000105 00000001 a1ff".replace(" ", "") + "78" * 255),
    ({}, "c10100"),
    ({"a": UInt(0)}, "c10502a1016143"),
    (Array(0xA3, [Symbol("a"), Symbol("bc")]), "e00702a3016102 6263".replace(" ", "")),
    (Array(0x70, [UInt(1), UInt(2)]), "e00a02700000000100000002"),
    (Array(0x40, [None, None]), "e0020240"),
    (Array(0xC0, [[True], []]), "e00702c0" + "020141" + "0100"),
    # The example of part 1 §1.2: a URL, described by a symbol.
    (
        Described(Symbol("URL"), "http://example.org/hello-world"),
        "00a30355524ca11e" + b"http://example.org/hello-world".hex(),
    ),
    (Array(0x50, [UByte(1)], [ULong(5)]), "e00601005305 5001".replace(" ", "")),
]

# Other encodings of the standard for a value, which have a smaller one.
WIDER: list[tuple[str, Any]] = [
    ("5600", False),
    ("5601", True),
    ("7000000000", UInt(0)),
    ("5200", UInt(0)),
    ("5300", ULong(0)),
    ("800000000000000014", ULong(20)),
    ("71ffffffff", Int(-1)),
    ("81ffffffffffffffff", -1),
    ("b00000000101", b"\x01"),
    ("b10000000161", "a"),
    ("b30000000161", Symbol("a")),
    ("c00100", []),
    ("d00000000400000000", []),
    ("d0000000050000000140", [None]),
    ("d10000000400000000", {}),
    ("f0000000060000000150ff", Array(0x50, [UByte(255)])),
]

BROKEN = {
    "nothing": "",
    "an undefined code": "01",
    "an undefined code of a known width": "5f00",
    "a boolean of 2": "5602",
    "text that is no UTF-8": "a101ff",
    "an encoded surrogate": "a103eda080",
    "a symbol outside ASCII": "a30180",
    "a surrogate as char": "730000d800",
    "a char past Unicode": "7300110000",
    "a list count without items": "c00101",
    "a list with a spare byte": "c003014040",
    "a list of four billion": "d000000008ffffffff40404040",
    "a list size past the end": "c0ff0140",
    "a list size without its count": "c000",
    "a list32 size without its count": "d0000000030000 0000".replace(" ", ""),
    "a map of odd count": "c1020140",
    "a map with a key twice": "c109 04 a10161 40 a10161 41".replace(" ", ""),
    "a map with keys alike for Python": "c10504 5501 40 41 40".replace(" ", ""),
    "a map with a list as key": "c103024540",
    "an array of four billion nulls": "f000000005ffffffff40",
    "an array of four billion uints": "f000000009ffffffff7000000000",
    "an array without a constructor": "e00100",
    "an array with a spare byte": "e0030140ff",
    "an array of an undefined code": "e0020101",
    "an item past the end of its list": "c00301a10261",
    "a descriptor alone": "005314",
    "descriptors without end": "00" * 200,
    "a string cut short": "a10561",
}


class VectorTests(SynchronousTestCase):
    def test_smallest_encodings(self) -> None:
        """Each value has the bytes of the standard, and they give it back with its type."""
        for value, octets in SMALLEST:
            self.assertEqual(encode(value).hex(), octets, repr(value))
            decoded, after = decode(bytes.fromhex(octets))
            self.assertTrue(same(decoded, value), f"{value!r} became {decoded!r}")
            self.assertEqual(after, len(octets) // 2)

    def test_wider_encodings(self) -> None:
        """A sender need not choose the smallest encoding."""
        for octets, value in WIDER:
            decoded, after = decode(bytes.fromhex(octets))
            self.assertTrue(same(decoded, value), f"{octets} became {decoded!r}")
            self.assertEqual(after, len(octets) // 2)

    def test_broken(self) -> None:
        """Octets that are no value are a decode error."""
        for what, octets in BROKEN.items():
            with self.assertRaises(DecodeError, msg=what):
                decode(bytes.fromhex(octets))

    def test_buffers_and_bounds(self) -> None:
        """Any buffer will do; offset and end are kept."""
        data = bytes.fromhex("40a10161")
        for buffer in (data, bytearray(data), memoryview(data)):
            self.assertEqual(decode(buffer, 1), ("a", 4))
        self.assertRaises(DecodeError, decode, data, 1, 3)
        self.assertRaises(DecodeError, decode, data, 4)

    def test_python_values_without_an_amqp_type_of_their_own(self) -> None:
        """Subclasses and kin are encoded as what they stand for."""

        class Number(IntEnum):
            ONE = 1

        self.assertEqual(encode(conditions.NOT_FOUND), encode(Symbol("amqp:not-found")))
        self.assertEqual(encode(Number.ONE), encode(1))
        self.assertEqual(encode(Long(5)), encode(5))
        self.assertEqual(encode((1, 2)), encode([1, 2]))
        self.assertEqual(encode(bytearray(b"a")), encode(b"a"))
        self.assertEqual(encode(memoryview(b"a")), encode(b"a"))

    def test_what_cannot_be_encoded(self) -> None:
        """A mistake of ours is told as one."""
        for value in (
            object(),
            2**63,
            UByte(256),
            UShort(-1),
            UInt(2**32),
            ULong(2**64),
            Byte(128),
            "\ud800",
            Symbol("\u20ac"),
            Array(0x50, [UByte(256)]),
            Array(0xA0, [b"x" * 256]),
            Array(0x41, [False]),
            Array(0x01, []),
            Array(0xC0, [["x" * 255]]),
            [object()],
        ):
            self.assertRaises(LocalProtocolError, encode, value)

    def test_encode_into_appends(self) -> None:
        """The buffer's contents stay."""
        out = bytearray(b"x")
        encode_into(out, True)
        self.assertEqual(out, b"x\x41")


class LimitTests(SynchronousTestCase):
    def test_depth(self) -> None:
        """Nesting up to the limit decodes, one more does not, whatever nests."""
        value: Any = None
        for _ in range(MAX_DEPTH):
            value = [value]
        self.assertTrue(same(decode(encode(value))[0], value))
        self.assertRaises(DecodeError, decode, encode([value]))
        self.assertRaises(DecodeError, decode, encode({"a": value}))
        self.assertRaises(DecodeError, decode, encode(Described(ULong(1), value)))
        self.assertRaises(DecodeError, decode, encode(Array(0xD0, [value])))

    def test_siblings_are_not_depth(self) -> None:
        """The limit is on nesting, not on how many compound values there are."""
        value = [[Array(0x50, [UByte(1)], [ULong(1), ULong(2)]), {}, Described(ULong(1), [])]] * 99
        self.assertTrue(same(decode(encode(value))[0], value))

    def test_elements_of_no_width(self) -> None:
        """They are bounded in all, not per array."""
        most = Array(0x40, [None] * MAX_ZERO_WIDTH_ITEMS)
        self.assertEqual(decode(encode(most))[0], most)
        self.assertRaises(DecodeError, decode, encode([most, Array(0x45, [[]])]))

    def test_keys_with_a_hash_that_a_stranger_chooses(self) -> None:
        """Few pass, a flood does not; keys whose hash is salted are not counted."""
        modulus = (1 << 61) - 1
        few: Any = {UUID(int=n * modulus): None for n in range(MAX_PREDICTABLE_KEYS)}
        self.assertEqual(decode(encode(few))[0], few)
        few[Described(ULong(1), 1)] = None
        self.assertRaises(DecodeError, decode, encode(few))
        many: Any = {f"key {n}": None for n in range(10 * MAX_PREDICTABLE_KEYS)}
        self.assertEqual(decode(encode(many))[0], many)

    def test_numbers_as_keys_collide_with_nothing(self) -> None:
        """Many numeric keys never meet in a dict: each is entered by a salted text."""
        modulus = (1 << 61) - 1
        for kind in (int, Int, UInt, ULong, Timestamp, Float, float):
            keys = [kind(n) for n in range(10 * MAX_PREDICTABLE_KEYS)]
            if kind in (int, ULong, Timestamp):
                keys += [kind(n * modulus) for n in (1, 2, 3)]
            found, _ = decode(encode(WideMap((key, n) for n, key in enumerate(keys))))
            self.assertIs(type(found), WideMap)
            self.assertEqual(list(found.values()), list(range(len(keys))))
            self.assertTrue(all(same(key, again) for key, again in zip(found, keys, strict=True)))
            self.assertEqual(found[keys[-1]], len(keys) - 1)
            self.assertNotIn("another", found)
            salted = [place for place in found._pairs if type(place) is tuple]
            self.assertEqual(len(salted), len(keys))
            self.assertTrue(all(type(place[0]) is str for place in salted))

    def test_a_wide_map_is_decoded_once(self) -> None:
        """Wide maps within wide maps do not multiply the work, and mixed keys keep their order."""
        value: Any = 0
        for _ in range(MAX_DEPTH):
            keys: list[Any] = [
                *range(MAX_PREDICTABLE_KEYS + 1),
                "text",
                Symbol("symbol"),
                b"octets",
            ]
            value = WideMap((key, value if not n else None) for n, key in enumerate(keys))
        found, _ = decode(encode(value))
        self.assertEqual(found, value)
        self.assertEqual(list(found)[-3:], ["text", Symbol("symbol"), b"octets"])

    def test_a_wide_map_is_checked(self) -> None:
        """Keys that a dict refuses are refused in a wide map, too."""
        keys = range(MAX_PREDICTABLE_KEYS + 1)
        body = b"".join(encode(key) + b"\x40" for key in keys)
        for wrong in (encode(0), encode([]), encode({}), encode(Array(0x50, [UByte(1)]))):
            pairs = body + wrong + b"\x40"
            count = 2 * (len(keys) + 1)
            octets = b"\xd1" + struct.pack(">II", len(pairs) + 4, count) + pairs
            self.assertRaises(DecodeError, decode, octets)
        flood = {UUID(int=n): None for n in range(MAX_PREDICTABLE_KEYS + 1)}
        self.assertRaises(
            DecodeError, decode, encode(WideMap([*((n, None) for n in keys), *flood.items()]))
        )

    def test_hostile_sizes_allocate_nothing(self) -> None:
        """A few bytes that announce gigabytes cost next to no memory."""
        hostile = [
            bytes.fromhex(octets)
            for octets in (
                "d0fffffffffffffffe",
                "d000000008ffffffff40404040",
                "f000000005ffffffff40",
                "f000000005ffffffff45",
                "f000000006ffffffff43ff",
                "b0ffffffff00",
                "d1000000080000fffe40404040",
            )
        ]
        # 1 MiB of arrays, each of as many empty lists as three bytes can announce.
        inner = bytes.fromhex("02ff45")
        hostile.append(
            b"\xf0"
            + (5 + 349000 * 3).to_bytes(4, "big")
            + (349000).to_bytes(4, "big")
            + b"\xe0"
            + inner * 349000
        )
        tracemalloc.start()
        try:
            for data in hostile:
                self.assertRaises(DecodeError, decode, data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self.assertLess(peak, 1 << 20)


class PropertyTests(SynchronousTestCase):
    @given(VALUES)
    def test_round_trip(self, value: Any) -> None:
        """Every value comes back with its types, and its encoding is stable."""
        encoded = encode(value)
        decoded, after = decode(encoded)
        self.assertTrue(same(decoded, value), f"{value!r} became {decoded!r}")
        self.assertEqual(after, len(encoded))
        self.assertEqual(encode(decoded), encoded)

    @given(VALUES)
    def test_every_prefix_is_an_error(self, value: Any) -> None:
        """A value that is cut short is never taken for another."""
        encoded = encode(value)
        step = max(1, len(encoded) // 50)
        for length in {*range(0, len(encoded), step), len(encoded) - 1}:
            self.assertRaises(DecodeError, decode, encoded[:length])
            self.assertRaises(DecodeError, decode, encoded, 0, length)

    @given(st.binary(max_size=200))
    def test_arbitrary_bytes(self, data: bytes) -> None:
        """Garbage is a value or a decode error; a value takes bytes."""
        try:
            value, after = decode(data)
        except DecodeError:
            return
        self.assertTrue(0 < after <= len(data))
        self.assertTrue(same(decode(encode(value))[0], value))

    @given(VALUES, st.data())
    def test_damaged_values(self, value: Any, data: st.DataObject) -> None:
        """A valid encoding with bytes changed is a value or a decode error."""
        damaged = bytearray(encode(value))
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        try:
            decode(bytes(damaged))
        except DecodeError:
            pass
