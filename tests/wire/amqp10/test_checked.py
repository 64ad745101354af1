# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.checked`: it agrees with the decoder on any input."""

from __future__ import annotations

from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import DecodeError
from amqproute.wire.amqp10 import checked, codec, spec
from amqproute.wire.amqp10.checked import check_sections
from amqproute.wire.amqp10.sections import decode_section, encode_section, locate
from amqproute.wire.amqp10.types import Described, Symbol, UInt, ULong
from tests.support.amqp_values import LEAVES, TEXT, VALUES, composites

DATA = b"\x00\x53\x75\xa0\x01x"
PROPERTIES = composites(spec.Properties).map(codec.encode)
APPLICATION = st.dictionaries(TEXT, LEAVES, max_size=4).map(
    lambda value: encode_section(spec.SECTION_APPLICATION_PROPERTIES, value)
)
ODD = st.builds(
    lambda code, value: codec.encode(Described(ULong(code), value)),
    st.sampled_from((spec.SECTION_PROPERTIES, spec.SECTION_APPLICATION_PROPERTIES)),
    st.one_of(st.lists(VALUES, max_size=15), st.dictionaries(LEAVES, VALUES, max_size=3)),
)


class CheckTests(SynchronousTestCase):
    """Sections that are checked."""

    def passes(self, encoded: bytes) -> bool:
        try:
            check_sections(encoded, locate(encoded))
        except DecodeError:
            return False
        return True

    def compare(self, encoded: bytes) -> None:
        """Values that the decoder takes pass; only octets of strings pass beyond that."""
        try:
            offsets = locate(encoded)
        except DecodeError:
            return
        passes = self.passes(encoded)
        start, end = offsets.application_properties_start, offsets.application_properties_end
        try:
            decode_section(encoded, offsets.properties_start, offsets.properties_end)
        except DecodeError:
            self.assertFalse(passes, encoded.hex())
            return
        try:
            decode_section(encoded, start, end)
        except DecodeError as error:
            if passes:
                self.assertIsInstance(error.__context__, UnicodeDecodeError, encoded.hex())
        else:
            self.assertTrue(passes, encoded.hex())

    @given(PROPERTIES, APPLICATION)
    def test_sound(self, properties: bytes, application: bytes) -> None:
        """Sound sections pass."""
        self.assertTrue(self.passes(properties + application + DATA))

    @given(st.one_of(ODD, PROPERTIES, APPLICATION), st.data())
    def test_like_the_decoder(self, section: bytes, data: Any) -> None:
        """Values that the decoder takes pass, and no others: octet by octet, too."""
        self.compare(section + DATA)
        for _ in range(3):
            at = data.draw(st.integers(3, len(section) - 1))
            octet = data.draw(
                st.sampled_from(
                    (*b"\x00\x40\x44\x45\x52\x56\x73\xa0\xa1\xa3\xc0\xc1\xff", section[at] ^ 1)
                )
            )
            self.compare(section[:at] + bytes((octet,)) + section[at + 1 :] + DATA)

    def test_no_utf8(self) -> None:
        """A string that is no UTF-8 is let through in application-properties, and only there."""
        long = b"\xb1\x00\x00\x01\x2c" + b"\xff" * 300
        for string in (b"\xa1\x02\xff\xfe", long):
            size = len(string) + 3 + 4
            section = b"\x00\x53\x74\xd1" + size.to_bytes(4, "big") + b"\x00\x00\x00\x02"
            self.assertTrue(self.passes(section + b"\xa1\x01k" + string + DATA))
        self.assertFalse(self.passes(b"\x00\x53\x73\xc0\x05\x01\xa1\x02\xff\xfe" + DATA))

    def test_no_utf8_beside_others(self) -> None:
        """The sections beside it have no effect, as RabbitMQ encodes them or others do."""
        bad = b"\xa1\x01k\xa1\x01\xff\xa1\x01l"
        for other in (
            b"\x56\x01",
            b"\xb0\x00\x00\x00\x02ab",
            b"\x74abcd",
            b"\x84abcdefgh",
            b"\x94abcdefghabcdefgh",
            b"\x81abcdefgh",
            b"\x40",
        ):
            items = bad + other
            section = b"\x00\x53\x74\xc1" + bytes((len(items) + 1, 4)) + items
            self.assertTrue(self.passes(section + DATA), other.hex())
        items = bad + b"\x56\x02"
        section = b"\x00\x53\x74\xc1" + bytes((len(items) + 1, 4)) + items
        self.assertFalse(self.passes(section + DATA))

    def test_no_utf8_and_more(self) -> None:
        """Other faults of such a section are found all the same."""
        bad = b"\xa1\x01\xff"
        for items in (
            bad + b"\xa1",
            bad + b"\xa1\x05ab",
            bad + b"\x3f",
            bad + b"\x41" + bad + b"\x41",
            bad + b"\xa3\x01\xff",
            bad + b"\xb1\x00\x00\x00\x05ab",
        ):
            count = 4 if items.count(bad) == 2 else 2
            section = b"\x00\x53\x74\xc1" + bytes((len(items) + 1, count)) + items
            self.assertFalse(self.passes(section + DATA), items.hex())

    def test_usual(self) -> None:
        """Usual sections of clients are not decoded; unusual ones are."""
        usual = codec.encode(
            spec.Properties(
                message_id="id",
                user_id=b"ann",
                to="q",
                correlation_id=ULong(5),
                content_type=Symbol("text/plain"),
                creation_time=2,
                group_sequence=7,
            )
        ) + encode_section(
            spec.SECTION_APPLICATION_PROPERTIES,
            {"a": "x", "ä": "ö", "n": 1, "d": 1.5, "b": True, "u": UInt(300), "y": b"\xff"},
        )
        unusual = encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"x" * 300: "y" * 300})
        for encoded, times in ((usual, 0), (unusual, 1), (b"", 0)):
            with mock.patch.object(checked, "decode_section") as decoding:
                check_sections(encoded + DATA, locate(encoded + DATA))
            self.assertEqual(decoding.call_count, times)
