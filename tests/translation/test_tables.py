# SPDX-License-Identifier: Apache-2.0
"""The tables of `amqproute.translation`, row by row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from unittest import mock
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import DecodeError
from amqproute.message import Message
from amqproute.translation import content_message, message_content
from amqproute.translation.body_layout import BodyLayout
from amqproute.translation.content_message import ContentRefused, data_beginning, read_content
from amqproute.translation.decimal_numbers import decimal64_octets, decimal_number
from amqproute.translation.field_values import is_same, to_amqp09, to_amqp10
from amqproute.translation.message_content import (
    DeliveredContent,
    DeliveryState,
    content_of,
    routing_headers,
)
from amqproute.translation.message_snapshot import MessageSnapshot, fits_prefix
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.field_tables import (
    EpochSeconds,
    FieldTable,
    Float32,
    ForeignValue,
    Int8,
    Int16,
    Int64,
    LongString,
    TableDecimal,
    UInt8,
    UInt16,
    UInt32,
)
from amqproute.wire.amqp09.methods import BasicProperties
from amqproute.wire.amqp10 import codec, sections
from amqproute.wire.amqp10.spec import Header, Properties
from amqproute.wire.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def message_of(
    body: bytes = b"", to: str | None = None, absolute: bool = False, **properties: Any
) -> Message:
    """Return the message of a publish of `e` and `k`."""
    made = BasicProperties(**properties)
    octets = encode_properties(made)
    return Message(read_content(made, octets, absolute).message(body, "e", "k", to))


def content(message: Message, **more: Any) -> tuple[BasicProperties, DeliveredContent]:
    """Return what a client gets, decoded and as it is."""
    state = DeliveryState("q", 1_000_000, **{"ttl_ms": message.header.ttl, **more})
    delivered = content_of(message, state)
    properties = decode_properties(60, delivered.property_octets)
    assert isinstance(properties, BasicProperties)
    return properties, delivered


def new_message(body: bytes | None = None, **fields: Any) -> Message:
    """Return a message of 1.0 with properties."""
    data = codec.encode(Described(ULong(0x75), b"b")) if body is None else body
    return Message(codec.encode(Properties(**fields)) + data)


class ValueTests(SynchronousTestCase):
    """`to_amqp10`, `to_amqp09`, decimals."""

    def test_table(self) -> None:
        """Each tag, its type in 1.0, and what comes back."""
        rows: list[tuple[Any, Any, Any]] = [
            ("text", "text", None), ("a\0b", b"a\0b", b"a\0b"),
            (LongString(b"\xff"), b"\xff", b"\xff"),
            (7, Int(7), None), (UInt32(7), UInt(7), None), (Int8(-1), Byte(-1), None),
            (UInt8(1), UByte(1), None), (Int16(1), Short(1), None), (UInt16(1), UShort(1), None),
            (Int64(1), 1, None), (Float32(1.5), Float(1.5), None), (0.1, 0.1, None),
            (True, True, None), (EpochSeconds(5), Timestamp(5000), None),
            (TableDecimal(2, -314), Decimal64(decimal64_octets(2, -314)), None),
            (b"\xff", b"\xff", None), ({"a": 1}, {"a": Int(1)}, None),
            ([1, "a"], [Int(1), "a"], None),
            (None, None, None), (ForeignValue(b"c", b"a"), "a", "a"),
        ]  # fmt: skip
        for old, new, back in rows:
            frozen = FieldTable({"v": old})["v"]
            made = to_amqp10(frozen)
            self.assertEqual(codec.encode(made), codec.encode(new), old)
            again = to_amqp09(made)
            self.assertEqual(
                FieldTable({"v": again}).octets,
                FieldTable({"v": old if back is None else back}).octets,
                old,
            )

    def test_from_1_0(self) -> None:
        """Types that 0-9 has not."""
        text = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
        rows: list[tuple[Any, Any]] = [
            (ULong(1), Int64(1)), (ULong((1 << 64) - 1), "18446744073709551615"),
            (Symbol("s"), "s"), (Char("c"), "c"), (UUID(text), f"urn:uuid:{text}"),
            (Timestamp(-1), Int64(-1)), (Timestamp(1999), EpochSeconds(1)),
            (Array(0x50, [UByte(1)]), [UInt8(1)]), (Described(ULong(1), "v"), "v"),
            ({1: "a"}, {"1": "a"}), (Decimal64(decimal64_octets(0, 1 << 40)), "1099511627776"),
        ]  # fmt: skip
        for new, old in rows:
            self.assertEqual(
                FieldTable({"v": to_amqp09(new)}).octets, FieldTable({"v": old}).octets, new
            )
        self.assertRaises(TypeError, to_amqp09, object())

    @given(st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1))
    def test_decimals(self, scale: int, value: int) -> None:
        """Each decimal of a table is a decimal64, and back the same."""
        octets = Decimal64(decimal64_octets(scale, value))
        self.assertEqual(decimal_number(octets), Decimal(value).scaleb(-scale))
        back = to_amqp09(octets)
        assert isinstance(back, TableDecimal)
        self.assertEqual(back, TableDecimal(scale, value))

    def test_decimals_of_all_widths(self) -> None:
        """Values of the standard's encodings, known from elsewhere."""
        rows: list[tuple[Any, str]] = [
            (Decimal32(bytes.fromhex("32800001")), "1"),
            (Decimal32(bytes.fromhex("b2000064")), "-10.0"),
            (Decimal64(bytes.fromhex("31c0000000000001")), "1"),
            (Decimal128(bytes.fromhex("30400000000000000000000000000001")), "1"),
            (Decimal32(bytes.fromhex("78000000")), "Infinity"),
            (Decimal32(bytes.fromhex("f8000000")), "-Infinity"),
            (Decimal64(bytes.fromhex("7c00000000000000")), "NaN"),
            (Decimal32(bytes.fromhex("6cb8967f")), "9999999"),
            (Decimal32(bytes.fromhex("6cbfffff")), "0"),
        ]  # fmt: skip
        for octets, text in rows:
            self.assertEqual(str(decimal_number(octets)), text, octets)

    def test_same(self) -> None:
        """Changes that clients make to values when they pass them on."""
        same: list[tuple[Any, Any]] = [
            (Int8(1), 1), (Float32(0.5), 0.5), ("a", b"a"), (LongString(b"\xff"), b"\xff"),
            ((1, "a"), [1, b"a"]), ({"a": 1}, FieldTable({"a": UInt8(1)})),
            (float("nan"), float("nan")), (TableDecimal(1, 10), TableDecimal(0, 1)), (None, None),
        ]  # fmt: skip
        other: list[tuple[Any, Any]] = [
            (True, 1), (1, "1"), (None, 0), ((1,), (1, 2)), ({"a": 1}, {"b": 1}), (False, None),
            (TableDecimal(1, 10), (1, 10)), (0, None),
        ]  # fmt: skip
        for one, two in same:
            self.assertTrue(is_same(one, two) and is_same(two, one), (one, two))
        for one, two in other:
            self.assertFalse(is_same(one, two) or is_same(two, one), (one, two))


class ToMessageTests(SynchronousTestCase):
    """09: parts 5.1 and 5.2: what a 1.0 client sees of a publish."""

    def test_properties(self) -> None:
        """Each property has its place."""
        message = message_of(
            b"body", content_type="text/x", content_encoding="gzip", delivery_mode=2, priority=9,
            correlation_id="urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", reply_to="answers",
            expiration="60000", message_id="m", timestamp=7, type="order", user_id="ann",
            app_id="shop", cluster_id="not mapped",
        )  # fmt: skip
        header = message.header
        self.assertEqual((header.durable, header.priority, header.ttl), (True, 9, 60000))
        self.assertEqual(
            message.properties,
            Properties(
                message_id="m", user_id=b"ann", reply_to="answers", content_type="text/x",
                correlation_id=UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
                content_encoding="gzip", creation_time=Timestamp(7000),
            ),
        )  # fmt: skip
        annotations = dict(message.annotations)
        del annotations["x-opt-amqp09"]
        self.assertEqual(
            annotations,
            {"x-exchange": "e", "x-routing-key": "k", "x-basic-type": "order",
             "x-basic-app-id": "shop"},
        )  # fmt: skip
        self.assertIsInstance(message.properties.correlation_id, UUID)
        self.assertEqual(message.body_values(), [b"body"])

    def test_nothing(self) -> None:
        """Without properties there is no header, and an empty data section for an empty body."""
        message = message_of()
        self.assertEqual(message.offsets.header_end, 0)
        self.assertEqual(message.offsets.properties_end, 0)
        self.assertEqual(message.bare, b"\x00\x53\x75\xa0\x00")
        self.assertEqual(message_of(b"x" * 256).bare[:8], b"\x00\x53\x75\xb0\x00\x00\x01\x00")

    def test_headers(self) -> None:
        """By name and kind of value."""
        headers: dict[str, Any] = {
            "plain": 1, "x-extra": [1], "CC": ["a", "b"], "table": {"a": 1}, "list": [True],
            "x-é": 2,
            "x-opt-subject": "s", "x-opt-group-sequence": 3, "x-opt-footer": {"sig": b"1"},
            "x-exchange": "mine", "x-opt-amqproute-trace": ["mine"], "x-opt-report": "all",
        }  # fmt: skip
        message = message_of(headers=FieldTable(headers))
        self.assertEqual(message.application_properties, {"plain": 1})
        annotations = dict(message.annotations)
        del annotations["x-opt-amqp09"]
        self.assertEqual(
            annotations,
            {
                "x-exchange": "e", "x-routing-key": "k", "x-extra": [1], "x-cc": ["a", "b"],
                "x-opt-header-table": {"a": 1}, "x-opt-header-list": [True],
                "x-opt-header-x-%C3%A9": 2, "x-opt-header-x-exchange": "mine",
                "x-opt-header-x-opt-amqproute-trace": ["mine"], "x-opt-report": "all",
            },
        )  # fmt: skip
        self.assertEqual(message.properties.subject, "s")
        self.assertEqual(message.properties.group_sequence, 3)
        offsets = message.offsets
        footer = sections.decode_section(message.encoded, offsets.footer_start, offsets.footer_end)
        self.assertEqual(footer, {"sig": b"1"})

    def test_expiration(self) -> None:
        """Milliseconds as text; nothing else is taken."""
        for text, ttl in (("0", 0), ("4294967295", 0xFFFFFFFF), ("99999999999999", 0xFFFFFFFF)):
            self.assertEqual(message_of(expiration=text).header.ttl, ttl)
        for text in ("", "-1", "1.5", "soon", "1 ", "٣"):
            self.assertRaises(ContentRefused, message_of, expiration=text)
        absolute = message_of(absolute=True, expiration="1700000000000")
        self.assertEqual(absolute.properties.absolute_expiry_time, 1_700_000_000_000)
        self.assertIsNone(absolute.header.ttl)
        self.assertEqual(message_of(absolute=True, expiration="1000").header.ttl, 1000)

    def test_address(self) -> None:
        """`to` is the address of the route, whatever a client says in a header."""
        headers = FieldTable({"x-opt-to": "elsewhere@other"})
        self.assertEqual(message_of(headers=headers).to, "elsewhere@other")
        routed = message_of(to="orders@beta.example", headers=headers, message_id="m")
        self.assertEqual((routed.to, routed.properties.message_id), ("orders@beta.example", "m"))

    def test_encoded_bodies(self) -> None:
        """The type amqp-1.0 says that the body is sections; others are refused."""
        value = codec.encode(Described(ULong(0x77), {"a": [Int(1)]}))
        message = message_of(value, type="amqp-1.0")
        self.assertEqual(message.bare, value)
        self.assertNotIn("x-basic-type", message.annotations)
        properties, delivered = content(message)
        self.assertEqual((properties.type, b"".join(delivered.body)), ("amqp-1.0", value))
        for body in (
            b"", b"text", value[:-1], value + b"x", codec.encode(Properties(to="a")),
            codec.encode(Properties(to="a")) + value, b"\x00\x53\x77\xa1\x01\xff",
            value + codec.encode(Described(ULong(0x78), {})),
        ):  # fmt: skip
            self.assertRaises(ContentRefused, message_of, body, type="amqp-1.0")

    def test_long_body_in_parts(self) -> None:
        """The part before the body is known before the body arrives."""
        made = BasicProperties(delivery_mode=2)
        translated = read_content(made, encode_properties(made))
        for size in (0, 255, 256, 70_000):
            parts = translated.head("e", "k") + data_beginning(size) + b"x" * size
            self.assertEqual(parts, translated.message(b"x" * size, "e", "k"))

    def test_remembered(self) -> None:
        """Properties that were seen before are not translated again, in either direction."""
        made = BasicProperties(app_id="remembered", headers=FieldTable({"a": 1}))
        octets = encode_properties(made)
        first = read_content(made, octets)
        state = DeliveryState("q", 0)
        message = Message(first.message(b"", "e", "k"))
        content_of(message, state)
        with (
            mock.patch.object(content_message, "_translate", side_effect=AssertionError),
            mock.patch.object(message_content, "project", side_effect=AssertionError),
        ):
            self.assertIs(read_content(made, octets), first)
            self.assertEqual(content_of(Message(message.encoded), state).property_octets, octets)


class ToContentTests(SynchronousTestCase):
    """09: parts 5.3, 5.4 and 5.5: what a 0-9-1 client sees of a message of 1.0."""

    def test_properties(self) -> None:
        """Each field has its place."""
        encoded = codec.encode(Header(durable=True, priority=2, ttl=9)) + new_message(
            message_id=ULong(7), user_id=b"ann", to="a@b", subject="s", reply_to="/queues/a%20b",
            correlation_id=UUID(int=1), content_type=Symbol("t"), content_encoding=Symbol("c"),
            creation_time=Timestamp(7999), group_id="g", group_sequence=UInt(3),
            reply_to_group_id="r",
        ).encoded  # fmt: skip
        properties, _ = content(Message(encoded), ttl_ms=8)
        kept = dict(properties.headers or {})
        del kept["x-opt-amqp10"]
        properties.headers = None
        self.assertEqual(
            properties,
            BasicProperties(
                message_id="7", user_id="ann", reply_to="a b", content_type="t",
                correlation_id="urn:uuid:00000000-0000-0000-0000-000000000001", timestamp=7,
                content_encoding="c", delivery_mode=2, priority=2, expiration="8",
            ),
        )  # fmt: skip
        self.assertEqual(
            kept,
            {
                "x-opt-to": "a@b", "x-opt-subject": "s", "x-opt-group-id": "g",
                "x-opt-group-sequence": 3, "x-opt-reply-to-group-id": "r",
            },
        )  # fmt: skip

    def test_what_does_not_fit(self) -> None:
        """Long and binary ids, long reply-to, user-id that is no text, time before the epoch."""
        long = "é" * 128
        properties, _ = content(
            new_message(
                message_id=b"\x01", correlation_id=long, reply_to=long, user_id=b"\xff",
                creation_time=Timestamp(-1), content_type=Symbol("t" * 256),
            )
        )  # fmt: skip
        headers = dict(properties.headers or {})
        self.assertEqual(
            {name: headers[name] for name in headers if name != "x-opt-amqp10"},
            {"x-message-id": b"\x01", "x-correlation-id": long, "x-opt-reply-to": long},
        )
        properties.headers = None
        self.assertEqual(properties, BasicProperties(delivery_mode=1))

    def test_absolute_expiry(self) -> None:
        """Without a ttl the expiration is what is left until then."""
        message = new_message(absolute_expiry_time=Timestamp(1_000_500))
        self.assertEqual(content(message)[0].expiration, "500")
        past = new_message(absolute_expiry_time=Timestamp(5))
        self.assertEqual(content(past)[0].expiration, "0")
        self.assertEqual(content(message, ttl_ms=70)[0].expiration, "70")

    def test_bodies(self) -> None:
        """Data is joined, a text is a text, and other values are sections."""
        text = codec.encode(Described(ULong(0x77), "é"))
        octets = codec.encode(Described(ULong(0x77), b"\xff"))
        number = codec.encode(Described(ULong(0x77), Int(1)))
        sequence = codec.encode(Described(ULong(0x76), [Int(1)]))
        data = codec.encode(Described(ULong(0x75), b"ab"))
        rows = [
            (text, "é".encode(), "text/plain", None), (octets, b"\xff", None, None),
            (number, number, None, "amqp-1.0"), (sequence * 2, sequence * 2, None, "amqp-1.0"),
            (data * 2, b"abab", None, None), (b"", b"", None, None),
            (b"\x00\x53\x77\xa1\x01\xff", b"\x00\x53\x77\xa1\x01\xff", None, "amqp-1.0"),
        ]  # fmt: skip
        for encoded, body, content_type, kind in rows:
            properties, delivered = content(new_message(encoded, subject="s"))
            self.assertEqual(b"".join(map(bytes, delivered.body)), body)
            self.assertEqual((properties.content_type, properties.type), (content_type, kind))
        properties, _ = content(new_message(text, content_type=Symbol("text/html")))
        self.assertEqual(properties.content_type, "text/html")

    def test_route(self) -> None:
        """Exchange and routing key as published, or the queue's name for others' messages."""
        _, delivered = content(message_of())
        self.assertEqual((delivered.exchange, delivered.routing_key), ("e", "k"))
        _, delivered = content(message_of(), is_routed_here=False)
        self.assertEqual((delivered.exchange, delivered.routing_key), ("", "q"))
        _, delivered = content(new_message())
        self.assertEqual((delivered.exchange, delivered.routing_key), ("", "q"))
        for wrong in (1, "k" * 256, "a\0", None):
            message = new_message().with_annotations(
                {Symbol("x-exchange"): "e", Symbol("x-routing-key"): wrong}
            )
            _, delivered = content(message)
            self.assertEqual((delivered.exchange, delivered.routing_key), ("", "q"))

    def test_reply_to(self) -> None:
        """The domain that the message got on its way out is left out again at home."""
        message = message_of(reply_to="answers").with_reply_to("answers@alpha.example")
        home = frozenset({"alpha.example"})
        self.assertEqual(content(message, own_domains=home)[0].reply_to, "answers")
        self.assertEqual(content(message)[0].reply_to, "answers@alpha.example")
        other = message_of(reply_to="answers").with_reply_to("other@alpha.example")
        self.assertEqual(content(other, own_domains=home)[0].reply_to, "other@alpha.example")
        set_so = message_of(reply_to="answers@alpha.example")
        self.assertEqual(content(set_so, own_domains=home)[0].reply_to, "answers@alpha.example")

    def test_very_large(self) -> None:
        """The part before the body is enough for the properties."""
        made = BasicProperties(app_id="a", headers=FieldTable({"h": UInt8(1)}))
        octets = encode_properties(made)
        rest = mock.Mock(size=1 << 30)
        message = Message(read_content(made, octets).head("e", "k"), rest)
        usual = BodyLayout(1 << 20, fragments=((data_beginning(1 << 20), 1 << 20),))
        _, delivered = content(message, layout=usual)
        self.assertEqual((delivered.property_octets, delivered.body), (octets, ()))
        self.assertEqual(delivered.size, 1 << 20)
        foreign = Message(codec.encode(Properties(subject="s")), rest)
        self.assertEqual(content(foreign, layout=usual)[0].headers, {"x-opt-subject": "s"})
        properties, _ = content(foreign, layout=BodyLayout(1 << 20, is_encoded=True))
        self.assertEqual(properties.type, "amqp-1.0")

    def test_cut_short(self) -> None:
        """Annotations that end within what is kept are broken, and nothing else happens."""
        section = message_of(app_id="a").annotation_bytes
        for size in range(6, len(section)):
            cut = section[:4] + bytes((size - 5,)) + section[5:size]
            message = Message(cut + b"\x00\x53\x75\xa0\x00")
            self.assertRaises(DecodeError, content, message)

    def test_dead_letter_without_expiry(self) -> None:
        """A message whose ttl was taken off has no expiration, and all else it had."""
        message = message_of(expiration="5", app_id="a").without_expiry()
        self.assertEqual(content(message)[0], BasicProperties(app_id="a"))

    def test_plain_tags(self) -> None:
        """Clients of 0-9 get tags that their libraries know."""
        headers = FieldTable({"a": UInt32(1), "b": Float32(0.5), "c": "s"})
        octets = content(message_of(headers=headers), plain_tags=True)[1].property_octets
        found = decode_properties(60, octets)
        assert isinstance(found, BasicProperties)
        assert found.headers is not None
        self.assertEqual(found.headers.octets, headers.plain().octets)
        same = FieldTable({"c": "s", "n": 1})
        octets = content(message_of(headers=same), plain_tags=True)[1].property_octets
        self.assertEqual(octets, encode_properties(BasicProperties(headers=same)))

    def test_routing_headers(self) -> None:
        """A headers exchange routes messages of 1.0 by what 0-9-1 clients would see."""
        encoded = sections.encode_section(
            0x72, {Symbol("x-a"): Int(1), Symbol("x-cc"): ["k"], Symbol("x-exchange"): "e"}
        ) + sections.encode_section(0x74, {"b": UInt(2), "c": Symbol("s")})
        encoded += codec.encode(Described(ULong(0x75), b""))
        headers = dict(routing_headers(Message(encoded)))
        self.assertEqual(headers, {"x-a": 1, "CC": ["k"], "b": 2, "c": "s"})


class SnapshotTests(SynchronousTestCase):
    """`MessageSnapshot`: a stranger's octets."""

    def test_strangers(self) -> None:
        """A value that is no snapshot is a header like others."""
        good = MessageSnapshot(properties=codec.encode(Properties(subject="s")))
        read = MessageSnapshot.from_header(good.octets())
        self.assertEqual(read, good)
        text = MessageSnapshot(expiration_text="5").octets()
        self.assertIsNotNone(MessageSnapshot.from_header(text.decode("latin-1").encode("latin-1")))
        fields: list[Any] = [1, b"", b"", b"", b"", None, False, None]
        for at, wrong in (
            (0, 2), (1, "a"), (1, good.properties), (2, b"\x00\x53\x73\xc0\x05"), (3, b"\x40"),
            (4, 1), (5, [[b"\x00\x53\x75\xa0\x01", 2]]), (5, [[b"", 0]]), (5, [1]), (5, "a"),
            (6, 0), (7, 1), (5, [[b"\x00\x53\x73\xa0\x01", 1]]),
            (5, [[b"\x00\x53\x75\xa1\x01", 1]]),
        ):  # fmt: skip
            octets = codec.encode([*fields[:at], wrong, *fields[at + 1 :]])
            self.assertIsNone(MessageSnapshot.from_header(octets), (at, wrong))
        self.assertIsNotNone(MessageSnapshot.from_header(codec.encode(fields)))
        for value in (None, 1, b"", b"\xff", codec.encode(fields) + b"x", {"a": 1}, True):
            self.assertIsNone(MessageSnapshot.from_header(value))

    def test_brokers_annotations(self) -> None:
        """A client puts no annotation of brokers into a message this way."""
        forged = sections.encode_section(
            0x72,
            {Symbol("x-opt-amqproute-trace"): ["a"], Symbol("x-exchange"): "f", Symbol("n"): 1},
        )
        headers = FieldTable({"x-opt-amqp10": MessageSnapshot(annotations=forged).octets()})
        annotations = message_of(headers=headers).annotations
        self.assertEqual((annotations["n"], annotations["x-exchange"]), (1, "e"))
        self.assertNotIn("x-opt-amqproute-trace", annotations)

    def test_forged_by_a_1_0_client(self) -> None:
        """A message of 1.0 brings no snapshot with it: the broker alone writes them."""
        forged = MessageSnapshot(properties=codec.encode(Properties(subject="forged"))).octets()
        body = codec.encode(Described(ULong(0x75), b""))
        for section in (
            sections.encode_section(0x74, {"x-opt-amqp10": forged}),
            sections.encode_section(0x72, {Symbol("x-opt-amqp10"): forged}),
            sections.encode_section(0x72, {Symbol("x-opt-header-x-opt-amqp10"): forged}),
        ):
            message = Message(section + body)
            octets = content(message)[1].property_octets
            properties = decode_properties(60, octets)
            assert isinstance(properties, BasicProperties)
            self.assertNotEqual((properties.headers or {})["x-opt-amqp10"], forged)
            again = Message(read_content(properties, octets).message(b"", "e", "k"))
            self.assertIsNone(again.properties.subject)
            self.assertEqual(again.bare, message.bare)

    def test_prefixes(self) -> None:
        """Descriptors in any encoding, and nothing but data, strings and octets."""
        symbol = b"\x00\xa3\x10amqp:data:binary"
        self.assertTrue(fits_prefix(symbol + b"\xa0\x03", 3))
        self.assertTrue(fits_prefix(b"\x00\x80" + bytes(7) + b"\x75\xb0\0\0\0\x03", 3))
        for prefix in (b"", b"\x00", symbol, b"\x00\x53\x75", b"\x00\x53\x75\xa0\x03\x00", b"\x40"):
            self.assertFalse(fits_prefix(prefix, 3), prefix)
