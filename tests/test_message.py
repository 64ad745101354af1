# SPDX-License-Identifier: Apache-2.0
"""The message: its decoding, and its unchangeable bare part."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import DecodeError
from amqproute.message import Message, annotations_of
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Symbol, Timestamp, UInt, ULong
from tests.support import fakes
from tests.support.amqp_values import SYMBOLS, TEXT, U32, composites

TRACE = Symbol("x-opt-trace")


def section(code: int, value: Any) -> bytes:
    """Encode a section by hand."""
    return b"\x00\x53" + bytes([code]) + codec.encode(value)


ANNOTATIONS = st.dictionaries(SYMBOLS.filter(bool), TEXT, min_size=1, max_size=4)
BODIES = st.one_of(
    st.binary(max_size=600).map(lambda each: section(0x75, each)),
    st.lists(st.binary(max_size=40), min_size=2, max_size=3).map(
        lambda parts: b"".join(section(0x75, each) for each in parts)
    ),
    st.lists(TEXT, max_size=3).map(lambda each: section(0x76, each)),
    TEXT.map(lambda each: section(0x77, each)),
)


@st.composite
def encoded_messages(draw: Any) -> tuple[bytes, bytes, bytes]:
    """Draw a message: what comes before the bare message, the bare message, the footer."""
    before = b""
    if draw(st.booleans()):
        before += codec.encode(draw(composites(spec.Header)))
    if draw(st.booleans()):
        before += section(0x71, draw(ANNOTATIONS))
    if draw(st.booleans()):
        before += section(0x72, draw(ANNOTATIONS))
    bare = b""
    if draw(st.booleans()):
        bare += codec.encode(draw(composites(spec.Properties)))
    if draw(st.booleans()):
        bare += section(0x74, draw(st.dictionaries(TEXT, TEXT, min_size=1, max_size=3)))
    bare += draw(BODIES)
    footer = section(0x78, draw(ANNOTATIONS)) if draw(st.booleans()) else b""
    return before, bare, footer


class BareMessageTests(SynchronousTestCase):
    """The bare message and the footer, octet for octet (T-38, M-02)."""

    def check(self, made: Message, bare: bytes, footer: bytes) -> None:
        """Prove that both are still there, at the end and unchanged."""
        self.assertEqual(made.bare, bare)
        self.assertTrue(made.encoded.endswith(bare + footer))

    @given(encoded_messages(), ANNOTATIONS)
    def test_annotations(self, parts: tuple[bytes, bytes, bytes], added: dict[Any, Any]) -> None:
        """Annotations are set and dropped without touching what follows them."""
        before, bare, footer = parts
        message = Message(before + bare + footer)
        old = dict(message.annotations)
        made = message.with_annotations(added)
        self.check(made, bare, footer)
        self.assertEqual(made.annotations, {**old, **added})
        self.assertEqual(made.header, message.header)
        self.check(made.with_annotations({}, drop=tuple(added)), bare, footer)

    @given(encoded_messages())
    def test_received(self, parts: tuple[bytes, bytes, bytes]) -> None:
        """The kept message has all but delivery annotations."""
        before, bare, footer = parts
        message = Message(before + bare + footer)
        made = message.received()
        self.check(made, bare, footer)
        self.assertEqual(made.offsets.delivery_annotations_end, 0)
        self.assertEqual(made.annotations, message.annotations)
        self.assertEqual(made.header, message.header)

    @given(encoded_messages())
    def test_without_expiry(self, parts: tuple[bytes, bytes, bytes]) -> None:
        """The header loses its ttl and keeps durability and priority."""
        before, bare, footer = parts
        message = Message(before + bare + footer)
        made = message.without_expiry()
        self.check(made, bare, footer)
        self.assertIsNone(made.header.ttl)
        self.assertEqual(made.header.durable, message.header.durable)
        self.assertEqual(made.header.priority, message.header.priority)
        self.assertEqual(made.annotations, message.annotations)

    @given(encoded_messages(), U32, st.booleans(), st.integers(0, 10), st.integers(0, 10**6))
    def test_for_delivery(
        self,
        parts: tuple[bytes, bytes, bytes],
        count: int,
        attempted: bool,
        now_ms: int,
        life: int,
    ) -> None:
        """A consumer gets a fresh header, and the rest as it is."""
        before, bare, footer = parts
        message = Message(before + bare + footer).received()
        head, rest = message.for_delivery(count, attempted, now_ms + life, now_ms)
        self.assertTrue(rest.endswith(bare + footer))
        self.assertEqual(rest, message.encoded[message.offsets.header_end :])
        told = Message(head + rest)
        self.assertEqual(told.header.delivery_count, count)
        self.assertEqual(told.header.first_acquirer, not attempted)
        self.assertEqual(told.header.durable, message.header.durable)
        if message.header.ttl is None:
            self.assertIsNone(told.header.ttl)
        else:
            self.assertLessEqual(told.header.ttl, max(1, message.header.ttl))

    @given(encoded_messages(), TEXT.filter(bool))
    def test_with_to(self, parts: tuple[bytes, bytes, bytes], to: str) -> None:
        """`to` is supplied; the other properties and all behind them stay."""
        before, bare, footer = parts
        message = Message(before + bare + footer)
        made = message.with_to(to)
        self.assertEqual(made.to, to)
        self.assertEqual(made.properties.to, to)
        self.assertEqual(made.header, message.header)
        self.assertEqual(made.annotations, message.annotations)
        for each in spec.Properties.fields:
            if each.name != "to":
                self.assertEqual(
                    getattr(made.properties, each.name), getattr(message.properties, each.name)
                )
        rest = message.offsets.properties_end or message.bare_from
        self.assertTrue(made.encoded.endswith(message.encoded[rest:]))

    @given(encoded_messages())
    def test_to_is_read_without_the_rest(self, parts: tuple[bytes, bytes, bytes]) -> None:
        """Both ways of reading `to` agree."""
        message = Message(b"".join(parts))
        quick = message.to
        self.assertEqual(quick, message.properties.to)
        self.assertEqual(message.to, quick)


class MessageTests(SynchronousTestCase):
    """The fields read, and their edges."""

    def test_absent_body_stays_absent(self) -> None:
        """A message without a body continues without one (M-23)."""
        bare = codec.encode(spec.Properties(to="a"))
        footer = section(0x78, {Symbol("x"): "y"})
        message = Message(bare + footer)
        self.assertFalse(message.has_body)
        self.assertIs(message.received(), message)
        ours = section(0x71, {Symbol("x"): "y"})
        self.assertEqual(Message(ours + bare + footer).received().encoded, bare + footer)
        self.assertEqual(message.body_values(), [])
        self.assertTrue(Message(bare + section(0x75, b"")).has_body)

    def test_received_is_itself_when_nothing_changes(self) -> None:
        """The usual message is not copied."""
        message = fakes.message(b"x", annotations={"x-opt-a": 1})
        self.assertIs(message.received(), message)

    def test_equal_headers_are_one(self) -> None:
        """Headers are remembered by their octets."""
        self.assertIs(fakes.message(ttl=5).header, fakes.message(ttl=5).header)

    def test_huge_header_is_refused(self) -> None:
        """Nobody fills the memory with headers."""
        huge = section(0x70, b"")[:3] + codec.encode([True, 4, None, False, UInt(0), "x" * 600])
        message = Message(huge + section(0x75, b""))
        self.assertRaises(DecodeError, lambda: message.header)

    def test_large_annotations_are_not_remembered(self) -> None:
        """They are decoded again each time."""
        large = fakes.message(annotations={"x-opt-a": "x" * 600}).annotation_bytes
        self.assertEqual(annotations_of(large), annotations_of(large))
        self.assertIsNot(annotations_of(large), annotations_of(large))

    def test_annotations_have_to_be_a_map(self) -> None:
        """A section of another type is not taken for one."""
        for value in ([1], b"x", {"text": 1}):
            bad = Message(section(0x72, value) + section(0x75, b""))
            self.assertRaises(DecodeError, lambda bad=bad: bad.annotations)

    def test_life(self) -> None:
        """The earlier of ttl and absolute-expiry-time ends it (D-07)."""
        for ttl, absolute, end in (
            (None, None, 0),
            (500, None, 1500),
            (None, 1200, 1200),
            (500, 1200, 1200),
            (500, 1800, 1500),
            (0, None, 1000),
            (None, 0, 1),
            (None, -5, 1),
        ):
            expiry = None if absolute is None else Timestamp(absolute)
            message = fakes.message(ttl=ttl, expiry=expiry)
            self.assertEqual(message.expires_ms(1000), end, (ttl, absolute))

    def test_life_with_few_properties(self) -> None:
        """Properties that end before absolute-expiry-time say nothing about it."""
        self.assertEqual(fakes.message(to="a").expires_ms(1000), 0)
        for empty in (b"\x00\x53\x73\x45", b"\x00\x53\x73\xd0\x00\x00\x00\x04\x00\x00\x00\x00"):
            self.assertEqual(Message(empty + section(0x75, b"")).expires_ms(1000), 0)

    def test_ttl_never_grows(self) -> None:
        """A clock that is set back does not lengthen a life, nor overflow its field (T-30)."""
        message = fakes.message(ttl=0xFFFFFFFF)
        head, rest = message.for_delivery(0, False, message.expires_ms(5000), 1000)
        self.assertEqual(Message(head + rest).header.ttl, 0xFFFFFFFF)
        head, rest = fakes.message(ttl=100).for_delivery(0, False, 1100, 1090)
        self.assertEqual(Message(head + rest).header.ttl, 10)
        head, rest = fakes.message(ttl=100).for_delivery(0, False, 1100, 2000)
        self.assertEqual(Message(head + rest).header.ttl, 1)

    def test_broken(self) -> None:
        """Bytes that are no message are refused when they are looked at."""
        for data in (b"junk", section(0x75, b"")[:-1] + b"\xff", section(0x78, {}) * 2):
            self.assertRaises(DecodeError, Message(data).received)

    def test_forget(self) -> None:
        """Decoded parts are dropped, and decoded again."""
        message = fakes.message(to="a@b.example", annotations={"x-opt-a": 1})
        told = (message.to, message.header, message.annotations, message.properties.to)
        message.forget()
        self.assertEqual(
            told, (message.to, message.header, message.annotations, message.properties.to)
        )

    def test_sections(self) -> None:
        """Application properties and bodies are read on demand."""
        application = sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"a": 1})
        message = Message(application + section(0x75, b"1") + section(0x75, b"2"))
        self.assertEqual(message.application_properties, {"a": 1})
        self.assertEqual(message.body_values(), [b"1", b"2"])
        self.assertEqual(fakes.message().application_properties, {})


class GlanceTests(SynchronousTestCase):
    """Fields read without decoding equal those of the message."""

    @given(
        marks=st.dictionaries(
            st.sampled_from(("x-opt-return-to", "x-opt-report", "x-opt-a" * 30)),
            st.text(max_size=300),
        ),
        body=st.sampled_from((b"", b"x-opt-return-to", b"\xa3\x0fx-opt-return-to" * 9)),
        durable=st.booleans(),
        ttl=st.none() | st.integers(0, 9),
        delivery=st.booleans(),
    )
    def test_mentions(
        self, marks: dict[str, str], body: bytes, durable: bool, ttl: int | None, delivery: bool
    ) -> None:
        """A symbol among the annotations is found, one elsewhere is not."""
        built = fakes.message(body, durable=durable, ttl=ttl, annotations=marks, to="x-opt-report")
        if delivery:
            cut = built.offsets.header_end
            extra = sections.encode_section(0x71, {Symbol("x-opt-return-to"): 1})
            built = Message(built.encoded[:cut] + extra + built.encoded[cut:])
        for key in ("x-opt-return-to", "x-opt-report"):
            found = built.mentions(key.encode())
            if key in marks:
                self.assertTrue(found, key)
            elif not any(key in value for value in marks.values()):
                self.assertFalse(found, key)

    @given(
        user=st.none() | st.binary(max_size=300),
        back=st.none() | st.text(max_size=300),
        key=st.none() | st.text(max_size=9) | st.integers(0, 2**63).map(ULong) | st.uuids(),
        subject=st.none() | st.text(max_size=9),
    )
    def test_fields(self, user: Any, back: Any, key: Any, subject: Any) -> None:
        """user-id and reply-to, and a reply-to that is written again with all else as it was."""
        fields = {"user_id": user, "reply_to": back, "message_id": key, "subject": subject}
        encoded = codec.encode(spec.Properties(**fields)) + b"\x00Su\xa0\x01x"
        built = Message(encoded)
        self.assertEqual((built.user_id, built.reply_to), (user, back))
        changed = Message(built.with_reply_to("reply-1@a.example").encoded).properties
        after = {name: getattr(changed, name) for name in fields}
        self.assertEqual(after, {**fields, "reply_to": "reply-1@a.example"})
        self.assertEqual(Message(b"\x00Su\xa0\x01x").reply_to, None)
