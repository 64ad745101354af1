# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.amqp10.checked`: it agrees with the decoder, whatever comes."""

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

    def decodes(self, encoded: bytes) -> bool:
        """Tell whether the decoder takes both sections; strings of the second may be no UTF-8."""
        offsets = locate(encoded)
        try:
            decode_section(encoded, offsets.properties_start, offsets.properties_end)
        except DecodeError:
            return False
        start, end = offsets.application_properties_start, offsets.application_properties_end
        try:
            decode_section(encoded, start, end)
        except DecodeError as error:
            return isinstance(error.__context__, UnicodeDecodeError)
        return True

    def compare(self, encoded: bytes) -> None:
        try:
            locate(encoded)
        except DecodeError:
            return
        self.assertEqual(self.passes(encoded), self.decodes(encoded), encoded.hex())

    @given(PROPERTIES, APPLICATION)
    def test_sound(self, properties: bytes, application: bytes) -> None:
        """What is sound passes."""
        self.assertTrue(self.passes(properties + application + DATA))

    @given(st.one_of(ODD, PROPERTIES, APPLICATION), st.data())
    def test_like_the_decoder(self, section: bytes, data: Any) -> None:
        """What the decoder takes passes, and nothing else: octet by octet, too."""
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
        string = b"\xa1\x02\xff\xfe"
        self.assertTrue(self.passes(b"\x00\x53\x74\xc1\x08\x02\xa1\x01k" + string + DATA))
        self.assertFalse(self.passes(b"\x00\x53\x73\xc0\x05\x01" + string + DATA))

    def test_usual(self) -> None:
        """What clients send usually is not decoded; what is unusual is."""
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
