# SPDX-License-Identifier: Apache-2.0
"""The rows of a page that are messages, with their delivery counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.entry_list import is_readable, unreadable
from amqproute.message import Message, ends_with_data
from amqproute.store.model import StoredEntry
from amqproute.wire.amqp10 import sections, spec
from tests.support.fakes import message

HEADS = (
    message(b"", count=3).encoded.partition(b"\x00\x53\x75")[0],
    message(b"").encoded.partition(b"\x00\x53\x75")[0],
    b"",
)
BODIES = (
    *(sections.encode_section(spec.SECTION_DATA, b"x" * size) for size in (0, 1, 255, 256, 5000)),
    sections.encode_section(spec.SECTION_DATA, b"x") * 2,
    sections.encode_section(spec.SECTION_DATA, b"x")
    + sections.encode_section(spec.SECTION_FOOTER, {}),
    sections.encode_section(spec.SECTION_AMQP_VALUE, "text"),
    b"\x00\x53\x75\xa0\x05four",
    b"\x00\x53\x75\xb0\x00\x00\x00\x01xy",
    b"\x00\x53\x75\xb0\x00\x00\x00\x01x",
    b"\x00\x53\x75",
    b"\xff",
    b"",
)


def row(encoded: bytes, count: int = 0) -> StoredEntry:
    """Return a row of the store."""
    return StoredEntry(1, encoded, 0, 0, count, 0)


class UnreadableTests(SynchronousTestCase):
    @given(st.lists(st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES), st.integers(0, 5))))
    def test_as_one_by_one(self, drawn: list[tuple[bytes, bytes, int]]) -> None:
        """A run of messages is judged as each of them is alone."""
        rows = [row(head + body, count) for head, body, count in drawn]
        alone = [is_readable(each) for each in rows]
        counts = [
            max(each.delivery_count, Message(each.encoded).delivery_count) if is_good else None
            for each, is_good in zip(rows, alone, strict=True)
        ]
        bad = {id(each) for each in unreadable(rows)}
        self.assertEqual([id(each) not in bad for each in rows], alone)
        found = [None if id(each) in bad else each.delivery_count for each in rows]
        self.assertEqual(found, counts)

    def test_ends_with_data(self) -> None:
        """The body is one data section in a usual form, and ends with the message."""
        plain = {body for body in BODIES if ends_with_data(b"head" + body, 4)}
        self.assertEqual(plain, {*BODIES[:5]})
