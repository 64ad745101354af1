# SPDX-License-Identifier: Apache-2.0
"""The decoder of `tests.support.plain_decoder`: vectors of the standard, and Qpid Proton's word."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from proton import Data
from twisted.trial.unittest import SynchronousTestCase

from tests.support.plain_decoder import (
    Described,
    PlainArray,
    PlainError,
    Symbol,
    decode,
    decode_all,
    field,
    frames,
)

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.uuids(),
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


class PlainDecoderTests(SynchronousTestCase):
    """`decode` and what is on it."""

    def test_vectors(self) -> None:
        """Octets written by hand from part 1 §1.6."""
        for octets, value in (
            ("40", None),
            ("41", True),
            ("5600", False),
            ("43", 0),
            ("52ff", 255),
            ("54ff", -1),
            ("600102", 258),
            ("70ffffffff", 2**32 - 1),
            ("8300000000000003e8", 1000),
            ("a003010203", b"\x01\x02\x03"),
            ("a102c3bc", "ü"),
            ("b10000000161", "a"),
            ("a30161", Symbol("a")),
            ("73000000fc", "ü"),
            ("98" + "00" * 15 + "01", UUID(int=1)),
            ("45", []),
            ("c003024041", [None, True]),
            ("c1050254ff5201", {-1: 1}),
            ("e006026000010002", PlainArray(0x60, (1, 2))),
            ("00532445", Described(0x24, [])),
        ):
            found, end = decode(bytes.fromhex(octets))
            self.assertEqual((found, type(found)), (value, type(value)), octets)
            self.assertEqual(end, len(octets) // 2)

    def test_refused(self) -> None:
        """Encodings that the standard forbids are errors, and so are truncated ones."""
        for octets in (
            *("5602", "3f", "a20161", "c003014040", "c1020140", "a10561", "70000000"),
            *("e1020143", "00", "d201" * 4),
        ):
            self.assertRaises(PlainError, decode, bytes.fromhex(octets))
        self.assertRaises(PlainError, frames, bytes.fromhex("0000000702000000"))
        self.assertRaises(PlainError, frames, bytes.fromhex("000000090200000040"))

    def test_nothing_is_filled_in(self) -> None:
        """A field that is null, and one that is left out, are None; defaults are unknown."""
        terminus, _ = decode(bytes.fromhex("005328c00502a1017140"))
        self.assertEqual(terminus, Described(0x28, ["q", None]))
        self.assertEqual([field(terminus, number) for number in range(4)], ["q", None, None, None])

    def test_frames(self) -> None:
        """A header, an empty frame, and a frame with a payload."""
        octets = b"AMQP\x00\x01\x00\x00" + bytes.fromhex("0000000802000003")
        octets += bytes.fromhex("0000000e02000005005317450102")
        closed = Described(0x17, [])
        self.assertEqual(frames(octets), [(3, None, b""), (5, closed, b"\x01\x02")])

    @given(_VALUES)
    @hypothesis_settings(max_examples=200, deadline=None)
    def test_as_proton_writes(self, value: object) -> None:
        """Values encoded by Proton decode to the originals."""
        data = Data()
        data.put_object(value)
        self.assertEqual(decode_all(bytes(data.encode())), [value])
