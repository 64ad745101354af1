# SPDX-License-Identifier: Apache-2.0
"""Incomplete messages: the beginning of the body, and its validity."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import AmqpError, DecodeError, ResourceLimitExceeded
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.body_scanner import BodyScanner, head_size
from amqproute.wire.amqp10.types import Described, Symbol, ULong

DATA = st.binary(max_size=300).map(lambda each: sections.encode_section(spec.SECTION_DATA, each))
SEQUENCE = st.lists(st.integers(0, 9), max_size=4).map(
    lambda each: sections.encode_section(spec.SECTION_AMQP_SEQUENCE, each)
)
VALUE = st.sampled_from(
    [None, "text", 7, {"k": b"v"}, Described(Symbol("x:y"), Described(ULong(1 << 40), "deep"))]
).map(lambda each: sections.encode_section(spec.SECTION_AMQP_VALUE, each))
FOOTER = st.just(sections.encode_section(spec.SECTION_FOOTER, {"x": 1}))
BODY = st.one_of(
    st.lists(DATA, min_size=1, max_size=4).map(b"".join),
    st.lists(SEQUENCE, min_size=1, max_size=4).map(b"".join),
    VALUE,
)
WHOLE = st.tuples(BODY, st.one_of(st.just(b""), FOOTER)).map(b"".join)
CUTS = st.lists(st.integers(0, 1500), max_size=8)


def walk(octets: bytes, cuts: list[int]) -> BodyScanner:
    walked = BodyScanner()
    bounds = [0, *sorted(min(cut, len(octets)) for cut in cuts), len(octets)]
    sure = [0]
    for start, end in pairwise(bounds):
        walked.feed(octets[start:end])
        sure.append(walked.bare_size)
    walked.finish()
    # What was once said to be of the body, is.
    assert sure == sorted(sure), sure
    return walked


class WalkTests(SynchronousTestCase):
    """`BodyScanner` says what `sections.locate` says."""

    @given(WHOLE, CUTS)
    def test_well_formed(self, octets: bytes, cuts: list[int]) -> None:
        """A valid body is valid in any parts."""
        walked = walk(octets, cuts)
        self.assertEqual(walked.has_footer, sections.locate(octets).footer_end > 0)
        self.assertEqual(walked.bare_size, sections.locate(octets).bare_end)
        self.assertEqual(walked.size, len(octets))

    @given(WHOLE, st.lists(st.lists(st.integers(0, 40), max_size=4), max_size=60))
    def test_followed(self, octets: bytes, sizes: list[list[int]]) -> None:
        """The result is the whole body, without the footer."""
        end = sections.locate(octets).bare_end
        walked = BodyScanner()
        body = b""
        at = 0
        for each in [*sizes, [len(octets)]]:
            parts = []
            for size in each:
                parts.append(octets[at : at + size])
                at += len(parts[-1])
            body += b"".join(walked.follow(parts))
            self.assertEqual(body, octets[: walked.bare_size])
        walked.finish()
        self.assertEqual(body, octets[:end])

    @given(st.one_of(WHOLE, st.just(b"")), st.binary(max_size=20), st.integers(0, 99), CUTS)
    def test_broken(self, octets: bytes, more: bytes, cut: int, cuts: list[int]) -> None:
        """An invalid body is invalid in any parts."""
        octets = octets[: max(0, len(octets) - cut)] + more
        try:
            found = sections.locate(octets)
            is_body = bool(found.body_code) and not found.bare_start and not found.header_end
            is_body = is_body and not (found.properties_end or found.application_properties_end)
        except DecodeError:
            is_body = False
        if is_body:
            walk(octets, cuts)
        else:
            with self.assertRaises(DecodeError):
                walk(octets, cuts)

    def test_large(self) -> None:
        """A value is skipped by its length, however long."""
        walked = BodyScanner()
        walked.feed(b"\x00\x53\x75\xb0\x7f\xff\xff\xff")
        for _ in range(2047):
            walked.feed(bytes(1 << 20))
        walked.feed(bytes((1 << 20) - 1))
        walked.finish()


class HeadTests(SynchronousTestCase):
    """`head_size` finds the body."""

    def test_found(self) -> None:
        """With any of the sections before it."""
        head = codec.encode(spec.Header(durable=True)) + codec.encode(spec.Properties(to="q"))
        body = sections.encode_section(spec.SECTION_DATA, b"x" * 500)
        self.assertEqual(head_size(head + body, 1000), len(head))
        self.assertEqual(head_size(head + body[:9], 1000), len(head))
        self.assertEqual(head_size(body, 1000), 0)

    def test_too_long(self) -> None:
        """Sections before the body are refused."""
        annotations = {Symbol("x-opt-a"): bytes(2000)}
        head = sections.encode_annotations(spec.SECTION_MESSAGE_ANNOTATIONS, annotations)
        for octets in (head, head[:1500], head + b"\x00\x53\x75\xa0\x00"):
            with self.assertRaises(ResourceLimitExceeded):
                head_size(octets, 1000)

    @given(st.binary(min_size=1, max_size=60))
    def test_anything(self, octets: bytes) -> None:
        """Nothing but errors of ours comes of octets that are no message."""
        try:
            head_size(octets, 50)
        except AmqpError:
            return
