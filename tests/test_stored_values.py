# SPDX-License-Identifier: Apache-2.0
"""The octets of values within records of the store, to be readable by other revisions."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import DecodeError
from amqproute.outcomes import ACCEPTED, FAILED, Rejection
from amqproute.stored_values import (
    branch_name,
    decode_outcome,
    decode_table,
    decode_value,
    encode_outcome,
    encode_table,
    encode_value,
    map_octets,
)


class ValueTests(SynchronousTestCase):
    """Octets written by hand."""

    def test_branch_name(self) -> None:
        """A list of int, binary, binary."""
        octets = encode_value(branch_name(1, b"g", b""))
        self.assertEqual(octets.hex(), "c00803" + "5401" + "a00167" + "a000")
        self.assertEqual(decode_value(octets), [1, b"g", b""])

    def test_outcomes(self) -> None:
        """The states of AMQP 1.0; another composite is refused."""
        for outcome, octets in ((ACCEPTED, "00532445"), (FAILED, "005327c0020141")):
            self.assertEqual(encode_outcome(outcome).hex(), octets)
            self.assertEqual(decode_outcome(bytes.fromhex(octets)), outcome)
        self.assertEqual(decode_outcome(encode_outcome(Rejection())), Rejection())
        self.assertRaises(ValueError, decode_outcome, bytes.fromhex("00532b45"))
        self.assertRaises(DecodeError, decode_outcome, b"\x00")

    def test_order_of_a_map(self) -> None:
        """Two maps that hold the same have the same octets."""
        self.assertEqual(map_octets({"a": 1, "b": 2}), map_octets({"b": 2, "a": 1}))
        self.assertNotEqual(map_octets({"a": 1}), map_octets({"a": True}))
        self.assertEqual(map_octets(None), map_octets({}))

    def test_table(self) -> None:
        """A field table without its length: name, tag, value."""
        octets = encode_table({"x": True, "y": "z"})
        self.assertEqual(octets, b"\x01xt\x01\x01yS\x00\x00\x00\x01z")
        self.assertEqual(dict(decode_table(octets)), {"x": True, "y": "z"})
        self.assertRaises(ValueError, decode_table, b"\x09x")
        self.assertRaises(ValueError, encode_table, {"x": object()})
