# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.sections`."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import DecodeError
from amqproute.wire.amqp10 import sections, spec
from amqproute.wire.amqp10.codec import decode, encode
from amqproute.wire.amqp10.sections import (
    decode_section,
    encode_annotations,
    encode_header,
    encode_section,
    find_id_and_to,
    find_property,
    find_to,
    locate,
)
from amqproute.wire.amqp10.types import Described, Symbol, UInt, ULong
from tests.support.amqp_values import LEAVES, OCTETS, TEXT, VALUES, composites, same

SYMBOLS = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}
NAMES = {
    0x70: "header",
    0x71: "delivery_annotations",
    0x72: "message_annotations",
    0x73: "properties",
    0x74: "application_properties",
    0x78: "footer",
}
ANNOTATIONS = st.dictionaries(TEXT.map(lambda text: Symbol(ascii(text))), LEAVES, max_size=3)


@st.composite
def messages(draw: Any) -> list[tuple[int, Any]]:
    """A message as its sections: numeric descriptor and value."""
    found: list[tuple[int, Any]] = []
    for section, values in (
        (0x70, composites(spec.Header)),
        (0x71, ANNOTATIONS),
        (0x72, ANNOTATIONS),
        (0x73, composites(spec.Properties)),
        (0x74, st.dictionaries(TEXT, LEAVES, max_size=3)),
    ):
        if draw(st.booleans()):
            found.append((section, draw(values)))
    body = draw(st.sampled_from([0x75, 0x76, 0x77]))
    values = {0x75: OCTETS, 0x76: st.lists(VALUES, max_size=2), 0x77: VALUES}[body]
    for _ in range(1 if body == 0x77 else draw(st.integers(1, 3))):
        found.append((body, draw(values)))
    if draw(st.booleans()):
        found.append((0x78, draw(ANNOTATIONS)))
    return found


def encoded_section(section: int, value: Any, way: int) -> bytes:
    """Encode a section with one of the three forms of its descriptor."""
    if isinstance(value, spec.Composite) and section in (0x70, 0x73):
        inner = encode(value)[3:]
    else:
        inner = encode(value)
    if way == 0:
        return bytes((0x00, 0x53, section)) + inner
    if way == 1:
        return b"\x00\x80" + section.to_bytes(8, "big") + inner
    return b"\x00" + encode(Symbol(SYMBOLS[section])) + inner


SMALL = encode(spec.Properties(to="orders@beta.example")) + encode_section(0x75, b"x")


class LocateTests(SynchronousTestCase):
    def test_vector(self) -> None:
        """A message by hand."""
        message = bytes.fromhex(
            "005370 c00201 41"
            "005372 c10100"
            "005373 c00603 40 40 a10161"
            "005375 a00178 005375 b00000000179"
            "005378 c10100"
        )
        found = locate(message)
        self.assertEqual((found.header_start, found.header_end), (0, 7))
        self.assertEqual((found.delivery_annotations_start, found.delivery_annotations_end), (0, 0))
        self.assertEqual((found.message_annotations_start, found.message_annotations_end), (7, 13))
        self.assertEqual((found.properties_start, found.properties_end), (13, 24))
        self.assertEqual((found.body_start, found.body_end, found.body_code), (24, 39, 0x75))
        self.assertEqual((found.footer_start, found.footer_end), (39, 45))
        self.assertEqual((found.bare_start, found.bare_end), (13, 39))
        self.assertEqual(find_to(message, found), "a")
        self.assertIn("body=24:39", repr(found))

    @given(messages(), st.lists(st.sampled_from([0, 0, 1, 2]), min_size=12, max_size=12))
    def test_every_section_is_found(self, message: list[tuple[int, Any]], ways: list[int]) -> None:
        """Offsets are where the sections were put, whatever the form of the descriptors."""
        encoded = b""
        spans: dict[int, tuple[int, int]] = {}
        for (section, value), way in zip(message, ways, strict=False):
            start = len(encoded)
            encoded += encoded_section(section, value, way)
            first = spans.get(section, (start, 0))[0]
            spans[section] = (first, len(encoded))
        found = locate(encoded)
        for section, name in NAMES.items():
            start, end = getattr(found, f"{name}_start"), getattr(found, f"{name}_end")
            self.assertEqual((start, end), spans.get(section, (0, 0)))
            if section in spans:
                value = dict(message)[section]
                self.assertTrue(same(decode_section(encoded, start, end), value))
            else:
                self.assertIsNone(decode_section(encoded, start, end))
        self.assertEqual((found.body_start, found.body_end), spans[found.body_code])
        before = [end for section, (_, end) in spans.items() if section < 0x73]
        self.assertEqual(found.bare_start, max(before, default=0))
        self.assertEqual(found.bare_end, found.body_end)
        properties = dict(message).get(0x73)
        to = properties.to if properties else None
        self.assertEqual(find_to(encoded, found), to)
        name = find_property(encoded, found, 0)
        self.assertTrue(same(find_id_and_to(encoded, found), (name, to)))

    def test_no_body_is_left_to_the_caller(self) -> None:
        """The sections before and after are found; the bare message is what is between."""
        found = locate(b"")
        self.assertEqual((found.body_code, found.bare_start, found.bare_end), (0, 0, 0))
        header = encode_header(spec.Header(durable=True))
        found = locate(header + encode_annotations(0x78, {"a": 1}))
        self.assertEqual(found.body_code, 0)
        self.assertEqual((found.bare_start, found.bare_end), (len(header), len(header)))

    def test_order_and_multiplicity(self) -> None:
        """The order of the standard; only data and amqp-sequence repeat."""
        encoded = {
            0x70: encode(spec.Header()),
            0x71: encode_section(0x71, {}),
            0x72: encode_section(0x72, {}),
            0x73: encode(spec.Properties()),
            0x74: encode_section(0x74, {}),
            0x75: encode_section(0x75, b""),
            0x76: encode_section(0x76, []),
            0x77: encode_section(0x77, None),
            0x78: encode_section(0x78, {}),
        }
        bodies = (0x75, 0x76, 0x77)
        for first, one in encoded.items():
            for second, other in encoded.items():
                if first == second:
                    right = first in (0x75, 0x76)
                else:
                    right = first < second and not (first in bodies and second in bodies)
                if right:
                    locate(one + other)
                else:
                    self.assertRaises(DecodeError, locate, one + other)

    def test_broken(self) -> None:
        """An unknown section, or one of a wrong type, is refused."""
        for octets in (
            "00",
            "0053",
            "005370",
            "005370c0",
            "005370c005",
            "005375b0ffffffff00",
            "005375b000",
            "40",
            "005379c10100",
            "00536f45",
            "00531445",
            "005270 45",
            "00a30161 45",
            "005370c10100",
            "00537145",
            "005375a10161",
            "00537640",
            "00537701",
            "005377",
            "000053705345",
        ):
            with self.assertRaises(DecodeError, msg=octets):
                locate(bytes.fromhex(octets))

    @given(messages(), st.data())
    def test_damage(self, message: list[tuple[int, Any]], data: Any) -> None:
        """Every byte string is a message or a decode error; so is every section of it."""
        encoded = bytearray(b"".join(encoded_section(*each, 0) for each in message))
        for _ in range(data.draw(st.integers(1, 3))):
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
        octets = bytes(encoded[: data.draw(st.integers(0, len(encoded)))])
        try:
            found = locate(octets)
            to = find_to(octets, found)
            self.assertEqual(find_id_and_to(octets, found)[1], to)
            for name in NAMES.values():
                start, end = getattr(found, f"{name}_start"), getattr(found, f"{name}_end")
                decode_section(octets, start, end)
        except DecodeError:
            pass

    @given(st.binary(max_size=60))
    def test_garbage(self, octets: bytes) -> None:
        """Also without a message to start from."""
        for call in (
            locate,
            lambda data: sections.skip(data, 0),
            lambda data: decode_section(data, 0, 60),
        ):
            try:
                call(octets)
            except DecodeError:
                pass


class SkipTests(SynchronousTestCase):
    @given(VALUES)
    def test_skips_what_decode_reads(self, value: Any) -> None:
        """The same end, found without looking inside; every prefix is an error."""
        encoded = encode(value)
        self.assertEqual(sections.skip(encoded + b"\x40", 0), len(encoded))
        self.assertEqual(decode(encoded)[1], len(encoded))
        for length in range(0, len(encoded), max(1, len(encoded) // 20)):
            self.assertRaises(DecodeError, sections.skip, encoded[:length], 0)

    def test_depth(self) -> None:
        """Descriptors of descriptors end somewhere."""
        self.assertRaises(DecodeError, sections.skip, bytes(5000) + b"\x40", 0)


class FindToTests(SynchronousTestCase):
    def test_the_ways_to_have_no_address(self) -> None:
        """Absent section, short list, null."""
        for message in (
            b"",
            encode(spec.Properties()),
            encode(spec.Properties(message_id="a")),
            encode(spec.Properties(subject="a")),
        ):
            self.assertIsNone(find_to(message, locate(message)))

    def test_wide_encodings(self) -> None:
        """list32 and str32."""
        message = bytes.fromhex("005373 d00000000c00000003 4040 b10000000161".replace(" ", ""))
        self.assertEqual(find_to(message, locate(message)), "a")

    def test_two_at_once(self) -> None:
        """In short and in wide encodings, with a user-id between them and without."""
        for fields, expected in (
            ("c0 00 03 a10169 40 a10161", ("i", "a")),
            ("c0 00 03 a10169 a000 a10161", ("i", "a")),
            ("c0 00 03 80 0000000000000007 40 40", (7, None)),
            ("c0 00 03 a10169 40 b10000000161", ("i", "a")),
            ("d0 0000000b 00000003 a10169 40 a10161", ("i", "a")),
            ("c0 00 01 a10169", ("i", None)),
            ("45", (None, None)),
        ):
            message = bytes.fromhex("005373" + fields.replace(" ", ""))
            if fields.startswith("c0"):
                message = message[:4] + bytes([len(message) - 5]) + message[5:]
            self.assertEqual(find_id_and_to(message, locate(message)), expected)

    def test_ids(self) -> None:
        """Whatever the id is, even one of a type that it may not have."""
        for name in ("40", "44", "5307", "80" + 8 * "07", "98" + 16 * "07", "a00107", "a10169",
                     "b00000000107", "b10000000169", "43", "52a1", "a3022040"):  # fmt: skip
            body = bytes.fromhex(name + "40a1024061")
            message = bytes((0, 0x53, 0x73, 0xC0, len(body) + 1, 3)) + body
            self.assertEqual(find_to(message, locate(message)), "@a", name)

    def test_broken(self) -> None:
        """Another type, bad UTF-8, a string past the section's end."""
        for fields in ("40 40 a30161", "40 40 a101ff", "40 40 a10561", "40 40", "01 40 40"):
            body = bytes.fromhex(fields)
            message = bytes((0, 0x53, 0x73, 0xC0, len(body) + 1, 3)) + body
            padded = message + encode_section(0x75, b"xxxxxxxxx")
            for find in (find_to, find_id_and_to):
                self.assertRaises(DecodeError, find, message, locate(message))
                self.assertRaises(DecodeError, find, padded, locate(padded))


class DecodeSectionTests(SynchronousTestCase):
    def test_values(self) -> None:
        """Each section as Python has it."""
        for section, value in (
            (0x71, {Symbol("a"): 1}),
            (0x72, {ULong(1): 1}),
            (0x74, {"a": 1}),
            (0x75, b"abc"),
            (0x76, [1, "a"]),
            (0x77, {"a": [1]}),
            (0x77, spec.Declare()),
            (0x77, spec.Discharge(txn_id=b"t", fail=True)),
            (0x78, {}),
        ):
            encoded = encode_section(section, value)
            self.assertTrue(same(decode_section(encoded, 0, len(encoded)), value))

    def test_string_keys_of_annotations_go_out_as_symbols(self) -> None:
        """As the standard wants them; application-properties keep strings."""
        encoded = encode_annotations(0x72, {"x-opt-hops": 1})
        self.assertTrue(same(decode_section(encoded, 0, len(encoded)), {Symbol("x-opt-hops"): 1}))
        self.assertEqual(encode_annotations(0x72, {}), b"")

    def test_broken(self) -> None:
        """Wrong types, wrong keys, strange descriptors."""
        for value in (
            Described(ULong(0x71), {"a": 1}),
            Described(ULong(0x74), {Symbol("a"): 1}),
            Described(ULong(0x75), "a"),
            Described(ULong(0x70), {}),
            Described(ULong(0x99), {}),
            Described(UInt(0x75), b""),
            Described([], b""),
            Described(Symbol("amqp:open:list"), ["a"]),
            b"",
        ):
            encoded = encode(value)
            self.assertRaises(DecodeError, decode_section, encoded, 0, len(encoded))
        self.assertRaises(DecodeError, decode_section, SMALL, 0, len(SMALL))
