# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.wire.header`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.header import ProtocolHeader, UnknownHeaderError, recognize


class RecognizeTests(SynchronousTestCase):
    def test_each_header_is_recognized(self) -> None:
        """The five headers, as bytes of the standards."""
        for octets, header in (
            (b"AMQP\x00\x01\x00\x00", ProtocolHeader.AMQP_1_0),
            (b"AMQP\x02\x01\x00\x00", ProtocolHeader.AMQP_1_0_TLS),
            (b"AMQP\x03\x01\x00\x00", ProtocolHeader.AMQP_1_0_SASL),
            (b"AMQP\x01\x01\x00\x09", ProtocolHeader.AMQP_0_9),
            (b"AMQP\x00\x00\x09\x01", ProtocolHeader.AMQP_0_9_1),
        ):
            self.assertIs(recognize(octets), header)
            self.assertIs(recognize(octets + b"\x00\x00\x00\x08"), header)
            self.assertIs(recognize(memoryview(octets)), header)

    def test_a_beginning_needs_more(self) -> None:
        """Every proper prefix of a header, the empty one included, is undecided."""
        for header in ProtocolHeader:
            for length in range(8):
                self.assertIsNone(recognize(bytes(header)[:length]))

    def test_a_stranger_is_told_at_once(self) -> None:
        """The first wrong byte is enough."""
        for octets in (b"G", b"\x16\x03\x01", b"AX", b"AMQ\x00", b"HELO"):
            with self.assertRaises(UnknownHeaderError) as caught:
                recognize(octets)
            self.assertEqual(caught.exception.is_tls, octets[0] == 0x16)

    def test_another_version_of_amqp_is_told_with_all_eight(self) -> None:
        """A version not spoken here is refused when its octets are all there."""
        octets = b"AMQP\x01\x01\x08\x00"
        self.assertIsNone(recognize(octets[:7]))
        with self.assertRaises(UnknownHeaderError) as caught:
            recognize(octets)
        self.assertFalse(caught.exception.is_tls)
        self.assertEqual(caught.exception.condition, "amqp:connection:framing-error")

    def test_answers(self) -> None:
        """09-W-03: whoever speaks an AMQP before 1.0 learns of 0-9-1, others of 1.0 with SASL."""
        for octets, answer in (
            (b"AMQP\x01\x01\x08\x00", b"AMQP\x00\x00\x09\x01"),
            (b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x00\x09\x01"),
            (b"AMQP\x00\x00\x09\x02", b"AMQP\x00\x00\x09\x01"),
            (b"AMQP\x00\x01\x01\x00", b"AMQP\x03\x01\x00\x00"),
            (b"GET /", b"AMQP\x03\x01\x00\x00"),
            (b"\x16\x03\x01", b"\x15\x03\x03\x00\x02\x02\x28"),
        ):
            with self.assertRaises(UnknownHeaderError) as caught:
                recognize(octets)
            self.assertEqual(caught.exception.answer, answer)

    @given(st.binary(max_size=12))
    def test_anything_is_decided_or_waits(self, octets: bytes) -> None:
        """No bytes raise anything else."""
        try:
            found = recognize(octets)
        except UnknownHeaderError:
            return
        self.assertTrue(len(octets) < 8 if found is None else octets.startswith(found))
