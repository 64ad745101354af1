# SPDX-License-Identifier: Apache-2.0
"""Lossless round trips between the protocols, over all types of properties and headers."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.message import Message
from amqproute.translation.content_message import read_content
from amqproute.translation.message_content import (
    DeliveredContent,
    DeliveryState,
    content_of,
    known_content,
)
from amqproute.translation.message_parts import EXCHANGE, HIDDEN, ROUTING_KEY
from amqproute.values import ORIGIN, TRACE
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue, Float32
from amqproute.wire.amqp09.methods import BasicProperties
from amqproute.wire.amqp10 import codec, sections
from amqproute.wire.amqp10.spec import Header, Properties
from amqproute.wire.amqp10.types import Described, Symbol, Timestamp, UInt, ULong
from tests.support.amqp_values import VALUES as VALUES_10
from tests.support.amqp_values import same
from tests.support.plain_amqp09 import pair_octets
from tests.wire.amqp09.test_field_tables import PAIRS

SHORT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
IDS = st.one_of(SHORT, st.uuids().map(lambda each: f"urn:uuid:{each}"))
OCTET = st.integers(0, 255)
PLAIN_BODY = st.binary(max_size=300)

SPECIAL = st.sampled_from(
    [
        ("x-opt-subject", "S", b"s"), ("x-opt-subject", "I", 1), ("x-opt-to", "S", b"a@b"),
        ("x-opt-group-sequence", "I", 7), ("x-opt-group-sequence", "l", -1),
        ("x-exchange", "V", None),
        ("x-basic-type", "S", b"t"), ("x-opt-amqp09", "x", b"\0\0"), ("x-opt-amqp10", "x", b"\x45"),
        ("x-opt-amqp10", "S", b"no"), ("x-opt-header-a", "S", b"v"), ("x-\xe9", "S", b"v"),
        ("CC", "A", [("S", b"k")]), ("CC", "S", b"k"), ("x-cc", "S", b"k"), ("x-death", "A", []),
        ("x-opt-footer", "F", [("a", "t", 1)]), ("x-opt-footer", "I", 1),
        ("x-opt-reply-to", "S", b"r"),
        ("x-opt-amqproute-trace", "A", [("S", b"me")]),
    ]
)  # fmt: skip
HEADERS = st.one_of(PAIRS, st.lists(SPECIAL, max_size=5)).map(pair_octets)


@st.composite
def property_octets(draw: st.DrawFn) -> bytes:
    """Flags and values of basic, each property absent, empty or anything it can be."""
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "content_type": SHORT, "content_encoding": SHORT, "headers": HEADERS,
        "delivery_mode": OCTET, "priority": OCTET, "correlation_id": IDS, "reply_to": SHORT,
        "expiration": st.integers(0, 1 << 40).map(str), "message_id": IDS,
        "timestamp": st.integers(0, (1 << 64) - 1),
        "type": SHORT.filter(lambda each: each != "amqp-1.0"), "user_id": SHORT, "app_id": SHORT,
        "cluster_id": SHORT,
    }  # fmt: skip
    properties = BasicProperties()
    for name in draw(st.sets(st.sampled_from(sorted(strategies)))):
        value = draw(strategies[name])
        if name == "headers":
            value = FieldTable.from_octets(value)
        setattr(properties, name, value)
    return encode_properties(properties)


def published(octets: bytes, body: bytes = b"body", exchange: str = "e", key: str = "k") -> Message:
    """Return what the broker makes of a publish."""
    properties = decode_properties(60, octets)
    assert isinstance(properties, BasicProperties)
    return Message(read_content(properties, octets).message(body, exchange, key))


def delivered(message: Message, ttl_ms: int | None = None, **more: Any) -> DeliveredContent:
    """Return what a client gets; of a ttl all is left unless another one is given."""
    left = message.header.ttl if ttl_ms is None else ttl_ms
    return content_of(message, DeliveryState("q", 1_000_000, left, **more))


def whole(content: DeliveredContent) -> bytes:
    """Return the body as one."""
    return b"".join(bytes(each) for each in content.body)


class KnownContentTests(SynchronousTestCase):
    """`known_content`: what was translated before is found by its octets, and nothing else is."""

    @given(property_octets(), st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 400))
    def test_same(self, octets: bytes, first: bytes, second: bytes, hint: int) -> None:
        """Any fields found agree with `content_of` of the message, also after a relay."""
        for change in (
            lambda each: each,
            lambda each: each.with_annotations({ORIGIN: "a.example", TRACE: ["a.example"]}),
            lambda each: each.with_to("q@b.example"),
            lambda each: each.with_reply_to("r@b.example"),
        ):
            delivered(change(published(octets, first)), own_domains=frozenset(("a.example",)))
            message = change(published(octets, second))
            again = Message(message.encoded)
            translated = delivered(message, own_domains=frozenset(("b.example",)))
            for each, start in ((message, 0), (again, message.offsets.body_start), (again, hint)):
                found = known_content(each, start)
                if found is None:
                    continue
                head, body = found
                self.assertEqual(
                    (*head, body),
                    (translated.exchange, translated.routing_key, translated.property_octets,
                     whole(translated)),
                )  # fmt: skip

    def test_found(self) -> None:
        """A second message with the same properties is found, with any size of its body."""
        octets = encode_properties(BasicProperties(message_id="found", delivery_mode=2))
        delivered(published(octets, b"first"))
        for size in (0, 1, 251, 252, 253, 254, 255, 256, 257, 5000):
            message = published(octets, b"x" * size)
            body_at = message.offsets.body_start
            again = Message(message.encoded)
            self.assertEqual(known_content(again, body_at), (("e", "k", octets), b"x" * size))
            self.assertIsNone(known_content(Message(message.encoded), body_at - 1))

    def test_not_found(self) -> None:
        """Other bodies, footers, a time to live and other annotations are translated each time."""
        octets = encode_properties(BasicProperties(message_id="other", delivery_mode=2))
        message = published(octets, b"b" * 10)
        delivered(message)
        start = message.offsets.body_start
        head = message.encoded[:start]
        data = codec.encode(Described(ULong(0x75), b"b"))
        footer = codec.encode(Described(ULong(0x78), {}))
        for tail in (
            b"",
            data + data,
            data + footer,
            codec.encode(Described(ULong(0x77), "b")),
            b"\x00\x53\x75\xb0\0\0\0\1b",
            b"\x00\x80\0\0\0\0\0\0\0\x75\xa0\1b",
        ):
            self.assertIsNone(known_content(Message(head + tail), start), tail)
        changed = message.with_annotations({ORIGIN: "a.example"})
        self.assertIsNone(known_content(changed, 0))
        delivered(changed)
        self.assertIsNotNone(known_content(changed, 0))
        mine = message.with_reply_to("r@b.example")
        lives = Message(sections.encode_header(Header(durable=True, ttl=UInt(5))) + message.bare)
        ends = Message(
            codec.encode(Properties(absolute_expiry_time=Timestamp(5_000_000))) + data
        ).with_annotations({EXCHANGE: "e", ROUTING_KEY: "k"})
        for other in (mine, lives, ends):
            delivered(other)
            self.assertIsNone(known_content(other, 0))
        mortal = encode_properties(BasicProperties(message_id="mortal", expiration="1000"))
        for _ in range(2):
            delivered(published(mortal))
            self.assertIsNone(known_content(published(mortal), 0))


class OldRoundTripTests(SynchronousTestCase):
    """0-9-1 to 1.0 and back."""

    @settings(max_examples=settings.default.max_examples // 2)
    @given(property_octets(), PLAIN_BODY, SHORT, SHORT)
    @example(b"\0\0", b"", "", "")
    def test_octet_by_octet(self, octets: bytes, body: bytes, exchange: str, key: str) -> None:
        """Properties, exchange, routing key and body are what they were."""
        content = delivered(published(octets, body, exchange, key))
        self.assertEqual(content.property_octets, octets)
        self.assertEqual((content.exchange, content.routing_key), (exchange, key))
        self.assertEqual((whole(content), content.size), (body, len(body)))

    @settings(max_examples=settings.default.max_examples // 2)
    @given(property_octets(), PLAIN_BODY)
    def test_over_another_organization(self, octets: bytes, body: bytes) -> None:
        """Changes of header and annotations by hops have no effect."""
        message = published(octets, body)
        passed = message.with_annotations({TRACE: ["a", "b"], ORIGIN: "alpha.example"})
        buffers = passed.for_delivery(3, True, 0, 1_000_000)
        content = delivered(Message(b"".join(map(bytes, buffers))))
        self.assertEqual((content.property_octets, whole(content)), (octets, body))
        self.assertEqual((content.exchange, content.routing_key), ("e", "k"))

    @settings(max_examples=settings.default.max_examples // 2)
    @given(property_octets(), st.integers(0, 1 << 31))
    def test_expiration(self, octets: bytes, left: int) -> None:
        """An expiration is less the time held, and nothing else changes with it."""
        message = published(octets)
        if message.header.ttl is None:
            return
        wanted = decode_properties(60, octets)
        assert isinstance(wanted, BasicProperties)
        if left != message.header.ttl:
            wanted.expiration = str(left)
        got = delivered(message, ttl_ms=left).property_octets
        self.assertEqual(decode_properties(60, got), wanted)

    @settings(max_examples=settings.default.max_examples // 2)
    @given(property_octets())
    def test_without_what_is_kept(self, octets: bytes) -> None:
        """A border may strip the annotation: what 1.0 can say is there all the same."""
        message = published(octets)
        stripped = message.with_annotations({}, drop=(Symbol("x-opt-amqp09"),))
        before, after = (
            decode_properties(60, each) for each in (octets, delivered(stripped).property_octets)
        )
        assert isinstance(before, BasicProperties)
        assert isinstance(after, BasicProperties)
        for name in ("user_id", "app_id", "reply_to", "type", "content_type"):
            value = getattr(before, name)
            if name == "reply_to" and "x-opt-reply-to" in (before.headers or {}):
                continue
            if name != "content_type" or (value or "").isascii():
                self.assertEqual(getattr(after, name), value, name)
        if before.priority not in (None, 4):
            self.assertEqual(after.priority, before.priority)
        self.assertEqual(after.delivery_mode, 2 if before.delivery_mode == 2 else 1)

    @settings(max_examples=settings.default.max_examples // 2)
    @given(property_octets(), st.dictionaries(SHORT, SHORT, max_size=2))
    def test_added_annotations(self, octets: bytes, names: dict[str, str]) -> None:
        """Additions of a broker on the way are headers beside the existing ones."""
        added = {f"x-death-{name.encode().hex()}": value for name, value in names.items()}
        message = published(octets)
        got = delivered(message.with_annotations({Symbol(n): v for n, v in added.items()}))
        wanted = decode_properties(60, octets)
        found = decode_properties(60, got.property_octets)
        assert isinstance(wanted, BasicProperties)
        assert isinstance(found, BasicProperties)
        headers = dict(wanted.headers or {})
        self.assertEqual(dict(found.headers or {}), {**headers, **added})
        wanted.headers = found.headers = None
        self.assertEqual(wanted, found)

    def test_carbon_copies(self) -> None:
        """CC stays; BCC is seen by nobody, and nothing else goes with it."""
        pairs = [
            ("a", "b", 1), ("BCC", "A", [("S", b"z")]), ("CC", "A", [("S", b"y")]), ("c", "s", 2)
        ]  # fmt: skip
        octets = encode_properties(
            BasicProperties(headers=FieldTable.from_octets(pair_octets(pairs)), app_id="x")
        )
        message = published(octets)
        self.assertNotIn(b"BCC", message.encoded)
        wanted = encode_properties(
            BasicProperties(
                headers=FieldTable.from_octets(pair_octets([pairs[0], pairs[2], pairs[3]])),
                app_id="x",
            )
        )
        self.assertEqual(delivered(message).property_octets, wanted)

    def test_forged(self) -> None:
        """Kept fields show only as far as the message agrees with them."""
        properties = BasicProperties(user_id="root", app_id="a", headers=FieldTable({"h": 1}))
        kept = encode_properties(properties)
        bare = codec.encode(Properties(user_id=b"eve")) + codec.encode(
            Described(ULong(0x75), b"body")
        )
        annotations = sections.encode_annotations(0x72, {Symbol("x-opt-amqp09"): kept})
        got = decode_properties(60, delivered(Message(annotations + bare)).property_octets)
        assert isinstance(got, BasicProperties)
        self.assertEqual((got.user_id, got.app_id), ("eve", None))
        self.assertFalse(got.headers)
        broken = sections.encode_annotations(0x72, {Symbol("x-opt-amqp09"): b"\xff\xff"})
        got = decode_properties(60, delivered(Message(broken + bare)).property_octets)
        assert isinstance(got, BasicProperties)
        self.assertEqual(got.user_id, "eve")


KEYS_10 = st.one_of(
    st.sampled_from(
        ["x-a", "x-opt-b", "x-basic-type", "x-basic-app-id", "x-cc", "x-opt-subject",
         "x-opt-footer", "x-opt-amqp10", "x-opt-header-%C3%A9", "y", "x-message-id", "CC"]
    ),
    st.text(st.characters(max_codepoint=127), max_size=6),
).map(Symbol)  # fmt: skip
SIMPLE_10 = VALUES_10.filter(lambda each: not isinstance(each, list | dict | Described))
TEXT_10 = st.one_of(st.text(max_size=5), st.text("aé\0", min_size=250, max_size=260))
IDS_10 = st.one_of(
    TEXT_10, st.binary(max_size=5), st.uuids(), st.integers(0, (1 << 64) - 1).map(ULong)
)
TIMES = st.integers(-(1 << 62), 1 << 62).map(Timestamp)
ASCII_10 = st.text(st.characters(max_codepoint=127), max_size=5).map(Symbol)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Any sections a message may have, in the usual encoding and in others."""
    out = bytearray()
    if draw(st.booleans()):
        header = Header(
            durable=draw(st.booleans()), priority=draw(OCTET), ttl=draw(st.none() | OCTET.map(UInt))
        )
        out += codec.encode(header)
    if draw(st.booleans()):
        annotations = draw(
            st.dictionaries(st.one_of(KEYS_10, OCTET.map(ULong)), VALUES_10, max_size=3)
        )
        if annotations:
            out += sections.encode_section(0x72, annotations)
    if draw(st.booleans()):
        optional = {
            "message_id": IDS_10, "user_id": st.binary(max_size=4), "to": TEXT_10,
            "subject": TEXT_10, "reply_to": st.one_of(TEXT_10, st.just("/queues/a%20b")),
            "correlation_id": IDS_10, "content_type": ASCII_10, "content_encoding": ASCII_10,
            "absolute_expiry_time": TIMES, "creation_time": TIMES, "group_id": TEXT_10,
            "group_sequence": st.integers(0, 0xFFFFFFFF).map(UInt), "reply_to_group_id": TEXT_10,
        }  # fmt: skip
        fields = draw(st.fixed_dictionaries({}, optional=optional))
        encoded = codec.encode(Properties(**fields))
        if draw(st.booleans()) and encoded[3] == 0xC0:
            # A sender that writes every list with four octets of size.
            size, count = encoded[4], encoded[5]
            encoded = (
                encoded[:3]
                + b"\xd0"
                + (size + 3).to_bytes(4, "big")
                + count.to_bytes(4, "big")
                + encoded[6:]
            )
        out += encoded
    if draw(st.booleans()):
        names = st.one_of(TEXT_10, st.just("x-a"), st.just("CC"), st.just("x-opt-subject"))
        out += sections.encode_section(0x74, draw(st.dictionaries(names, SIMPLE_10, max_size=3)))
    kind = draw(st.sampled_from(["data", "parts", "wide", "value", "text", "sequence", "none"]))
    octets = draw(st.binary(max_size=9))
    if kind == "data":
        out += codec.encode(Described(ULong(0x75), octets))
    elif kind == "wide":
        out += b"\x00\x53\x75\xb0" + len(octets).to_bytes(4, "big") + octets
    elif kind == "parts":
        out += codec.encode(Described(ULong(0x75), octets)) * 3
    elif kind == "value":
        out += codec.encode(Described(ULong(0x77), draw(VALUES_10)))
    elif kind == "text":
        out += codec.encode(Described(ULong(0x77), draw(TEXT_10)))
    elif kind == "sequence":
        out += codec.encode(Described(ULong(0x76), [1, "a"])) * 2
    if draw(st.booleans()) and kind != "none":
        footer = draw(st.dictionaries(st.one_of(KEYS_10, OCTET.map(ULong)), VALUES_10, max_size=2))
        out += sections.encode_section(0x78, footer)
    return bytes(out)


def rewritten(octets: bytes) -> bytes:
    """Return properties as a client library may write them again: other tags, octets as text."""
    properties = decode_properties(60, octets)
    assert isinstance(properties, BasicProperties)

    def value_of(value: FieldValue) -> FieldValue:
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value
        if isinstance(value, FieldTable):
            return {name: value_of(each) for name, each in value.items()}
        if type(value) is tuple:
            return [value_of(each) for each in value]
        return float(value) if isinstance(value, Float32) else value

    if properties.headers is not None:
        plain = properties.headers.plain()
        properties.headers = FieldTable({name: value_of(each) for name, each in plain.items()})
    return encode_properties(properties)


class NewRoundTripTests(SynchronousTestCase):
    """1.0 to 0-9-1, published again, to 1.0."""

    def check(self, encoded: bytes, octets: bytes, body: bytes, ttl: int | None) -> Message:
        """Check that a message is the one before, section by section."""
        before, after = Message(encoded), published(octets, body)
        self.assertEqual(after.bare, before.bare)
        one, other = before.offsets, after.offsets
        self.assertEqual(
            after.encoded[other.footer_start : other.footer_end],
            encoded[one.footer_start : one.footer_end],
        )
        kept = {key: value for key, value in after.annotations.items() if key not in HIDDEN}
        self.assertTrue(same(_sorted(kept), _sorted(before.annotations)), (kept, before))
        self.assertEqual(
            (after.header.durable, after.header.priority, after.header.ttl),
            (before.header.durable, before.header.priority, ttl),
        )
        return after

    @settings(max_examples=settings.default.max_examples // 3)
    @given(messages())
    def test_untouched(self, encoded: bytes) -> None:
        """Every section is what it was, the bare message and the footer octet by octet."""
        message = Message(encoded)
        content = delivered(message)
        after = self.check(encoded, content.property_octets, whole(content), message.header.ttl)
        if message.has_body:
            # A second time round nothing grows.
            again = delivered(after)
            self.assertEqual(again.property_octets, content.property_octets)
            self.assertEqual(whole(again), whole(content))

    @settings(max_examples=settings.default.max_examples // 3)
    @given(messages())
    def test_other_tags(self, encoded: bytes) -> None:
        """Client libraries write numbers and octets with other tags."""
        message = Message(encoded)
        content = delivered(message)
        octets = rewritten(content.property_octets)
        self.check(encoded, octets, whole(content), message.header.ttl)

    @settings(max_examples=settings.default.max_examples // 3)
    @given(messages())
    def test_changed(self, encoded: bytes) -> None:
        """Fields changed by a client have its values, and the rest is unchanged."""
        message = Message(encoded)
        content = delivered(message)
        properties = decode_properties(60, content.property_octets)
        assert isinstance(properties, BasicProperties)
        headers = dict(properties.headers or {})
        headers["added"] = 7
        properties.headers = FieldTable(headers)
        properties.correlation_id = "mine"
        after = published(encode_properties(properties), whole(content))
        self.assertEqual(after.application_properties["added"], 7)
        self.assertEqual(after.properties.correlation_id, "mine")
        for each in Properties.fields:
            if each.name != "correlation_id":
                value = getattr(message.properties, each.name)
                self.assertTrue(same(getattr(after.properties, each.name), value), each.name)
        there = dict(message.application_properties)
        left = dict(after.application_properties)
        del left["added"]
        there.pop("added", None)
        self.assertTrue(same(_sorted(left), _sorted(there)), (left, there))

    @settings(max_examples=settings.default.max_examples // 3)
    @given(messages())
    def test_hop_annotations(self, encoded: bytes) -> None:
        """A client neither sees nor sends on what brokers note for each other."""
        message = Message(encoded).with_annotations({TRACE: ["a"], ORIGIN: "alpha.example"})
        content = delivered(message)
        properties = decode_properties(60, content.property_octets)
        assert isinstance(properties, BasicProperties)
        self.assertNotIn(str(TRACE), properties.headers or {})
        after = published(content.property_octets, whole(content))
        self.assertNotIn(TRACE, after.annotations)
        self.assertNotIn(ORIGIN, after.annotations)
        self.check(encoded, content.property_octets, whole(content), message.header.ttl)


def _sorted(value: Any) -> dict[Any, Any]:
    return dict(sorted(value.items(), key=lambda pair: codec.encode(pair[0])))
