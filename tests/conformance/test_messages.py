# SPDX-License-Identifier: Apache-2.0
"""Messages on their way through the broker: part 3 §3.2, topics M and D."""

from __future__ import annotations

import uuid
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Duplicates, Durability, QueueOptions
from amqproute.message import MESSAGE_FORMAT
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import (
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
from tests.conformance.frame_broker import (
    START_MS,
    Client,
    Network,
    bare,
    condition,
    data,
    header_of,
    message,
    section,
    section_of,
    sections_of,
)
from tests.support import plain_decoder

VALUE = spec.SECTION_AMQP_VALUE
ERRORS_OF_FRAMES = ("amqp:connection:framing-error", "amqp:decode-error")


class MessageCase(SynchronousTestCase):
    """A queue with a sender on handle 0."""

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(nodes=[NodeDeclaration("q", QueueLimits(), "dead"), "dead"])
        self.client = self.house.client().ready()
        self.client.sender()
        self.client.names()
        self._sent = 0

    def put(self, encoded: bytes) -> Any:
        """Publish; return the state that comes back."""
        self.client.publish(self._sent, encoded)
        self._sent += 1
        return self.client.one(spec.Disposition).state

    def get(self, address: str = "q", **fields: Any) -> bytes | None:
        """Take one message by a client of its own, or find that there is none."""
        client = self.house.client().ready(str(uuid.uuid4()))
        client.receiver(address, **fields)
        client.credit(1, drain=True)
        found = client.messages()
        if found:
            client.dispose(0)
        client.send(spec.Close())
        return found[0] if found else None

    def through(self, encoded: bytes) -> bytes:
        """Publish a message and take it again."""
        self.assertIsInstance(self.put(encoded), spec.Accepted)
        got = self.get()
        assert got is not None
        return got


class BareMessageTests(MessageCase):
    """The bare message is immutable (M-02)."""

    def test_properties(self) -> None:
        """M-01, M-02, M-18, M-19: all properties and the body, octet for octet."""
        encoded = message(
            b"body",
            application={"a": "b", "n": 1, "null": None},
            message_id=ULong(7),
            user_id=b"me",
            to="somewhere@else.test",
            subject="subject",
            reply_to="back@here.test",
            correlation_id=uuid.UUID(int=5),
            content_type="text/plain; charset=utf-8",
            content_encoding="gzip",
            absolute_expiry_time=Timestamp(START_MS + 10**9),
            creation_time=Timestamp(1),
            group_id="group",
            group_sequence=UInt(3),
            reply_to_group_id="other",
        )
        self.assertEqual(bare(self.through(encoded)), encoded)

    def test_message_ids(self) -> None:
        """M-06, M-19: every type of message-id passes."""
        for value in (ULong(0), ULong(1 << 40), uuid.uuid4(), b"binary", "string", ""):
            encoded = message(message_id=value, correlation_id=value)
            self.assertEqual(bare(self.through(encoded)), encoded, repr(value))

    def test_same_message_id(self) -> None:
        """M-07: a message with an id that the queue holds is accepted, and counted, not kept."""
        options = QueueOptions(duplicates=Duplicates.GLOBAL_IDS)
        self.house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(), options=options)])
        self.client = self.house.client().ready()
        self.client.sender()
        self.client.names()
        for body in (b"first", b"second"):
            state = self.put(message(body, message_id="the same"))
            self.assertIsInstance(state, spec.Accepted)
        self.assertEqual(self.house.depth(), 1)
        self.assertEqual(self.house.broker.nodes["q"].tally.duplicates, 1)
        self.assertEqual(bare(self.get() or b""), message(b"first", message_id="the same"))

    def test_wide_encodings(self) -> None:
        """M-02: octets stay as they are also where they could be encoded shorter."""
        properties = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73\xd0\x00\x00\x00\x0a\x00\x00\x00\x01"
        properties += b"\xb1\x00\x00\x00\x01x"
        body = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xb0\x00\x00\x00\x02hi"
        encoded = properties + body
        self.assertEqual(bare(self.through(encoded)), encoded)

    def test_symbolic_descriptors(self) -> None:
        """Part 3 §3.2: sections may be described by symbol."""
        symbolic = codec.encode(Described(Symbol("amqp:data:binary"), b"hi"))
        self.assertTrue(self.through(symbolic).endswith(symbolic))

    def test_body_of_data(self) -> None:
        """T-03, M-05: several data sections stay several."""
        encoded = data(b"1") + data(b"") + data(b"3")
        self.assertEqual(bare(self.through(encoded)), encoded)

    def test_body_of_sequences(self) -> None:
        """T-03: several amqp-sequence sections."""
        one = section(spec.SECTION_AMQP_SEQUENCE, [1, "two", None])
        encoded = one + section(spec.SECTION_AMQP_SEQUENCE, [])
        self.assertEqual(bare(self.through(encoded)), encoded)

    def test_values(self) -> None:
        """M-27: every AMQP type passes as a value."""
        for value in (
            None,
            True,
            False,
            UByte(255),
            UShort(65535),
            UInt(1 << 31),
            ULong(1 << 63),
            Byte(-128),
            Short(-5),
            Int(-(1 << 31)),
            -(1 << 63),
            Float(1.5),
            2.25,
            Decimal32(b"\x22\x50\x00\x01"),
            Decimal64(b"\x22\x38" + b"\x00" * 6),
            Decimal128(b"\x22\x08" + b"\x00" * 14),
            Char("\U0001f600"),
            Timestamp(-1),
            uuid.UUID(int=1),
            b"",
            b"\xff" * 300,
            "",
            "ä" * 300,
            Symbol("symbol"),
            [],
            [1, [2, [3]]],
            {"k": "v", Symbol("s"): [1]},
            Described(Symbol("my:type"), {"a": 1}),
        ):
            encoded = section(VALUE, value)
            self.assertEqual(bare(self.through(encoded)), encoded, repr(value))

    def test_empty_body(self) -> None:
        """M-06, M-11: all may be in properties; what is empty or absent stays empty or absent."""
        properties = message(application={"all": "here"}, subject="s")[: -len(data(b"body"))]
        for body in (data(b""), section(VALUE, None), section(VALUE, ""), section(0x76, [])):
            for encoded in (properties + body, body):
                self.assertEqual(bare(self.through(encoded)), encoded)

    def test_footer(self) -> None:
        """M-03, M-25: the footer is the producer's and is copied."""
        encoded = message() + section(spec.SECTION_FOOTER, {Symbol("x-opt-sig-a"): b"signature"})
        self.assertEqual(bare(self.through(encoded)), encoded)

    def test_reply_to_is_not_checked(self) -> None:
        """M-18: reply-to is neither checked nor changed, whatever it is."""
        encoded = message(reply_to="@@ no address @@")
        self.assertEqual(bare(self.through(encoded)), encoded)


class SectionsTests(MessageCase):
    """Headers and annotations travel beside the bare message (M-03, M-04)."""

    def test_header_is_kept(self) -> None:
        """M-04: durable and priority never change."""
        got = header_of(self.through(message(header=spec.Header(durable=True, priority=7))))
        self.assertTrue(got.durable)
        self.assertEqual(got.priority, 7)

    def test_no_header(self) -> None:
        """M-22, D-04: no header means the defaults."""
        got = header_of(self.through(message()))
        self.assertFalse(got.durable)
        self.assertEqual((got.priority, got.ttl, got.delivery_count), (4, None, 0))

    def test_what_the_broker_changes(self) -> None:
        """M-04: of the header ttl, delivery-count and first-acquirer; nothing else of a message.

        Also where the queue stores everything, or nothing. Read by a decoder that fills in nothing.
        """
        annotations = {Symbol("x-opt-mine"): [1, "two"], Symbol("x-own"): "kept"}
        after = (
            section(spec.SECTION_MESSAGE_ANNOTATIONS, annotations)
            + message(b"body", application={"a": 1}, subject="s", to="somewhere@else.test")
            + section(spec.SECTION_FOOTER, {Symbol("x-opt-f"): b"f"})
        )
        headers = [
            spec.Header(durable=durable, priority=priority, ttl=UInt(10_000), delivery_count=3)
            for durable in (False, True)
            for priority in (0, 4, 7, 255)
        ]
        for durability in Durability:
            options = QueueOptions(durability=durability)
            declaration = NodeDeclaration("q", QueueLimits(priorities=1), options=options)
            self.house = Network().house(nodes=[declaration])
            self.client = self.house.client().ready()
            self.client.sender()
            self.client.names()
            for number, header in enumerate(headers):
                self.client.publish(number, codec.encode(header) + after)
            self.client.run(4)
            self.client.receiver(handle=1, credit=2 * len(headers))
            for attempt in range(2):
                got = self.client.messages()
                self.assertEqual(len(got), len(headers))
                for header, encoded in zip(headers, got, strict=True):
                    sent, behind = plain_decoder.decode(encoded)
                    durable, priority, ttl, first, count = [
                        plain_decoder.field(sent, index) for index in range(5)
                    ]
                    self.assertEqual((bool(durable), ttl), (header.durable, 6_000))
                    self.assertEqual(4 if priority is None else priority, header.priority)
                    self.assertEqual((bool(first), count), (not attempt, 3 + attempt))
                    self.assertEqual(encoded[behind:], after)
                state = spec.Modified(delivery_failed=True)
                self.client.dispose(0, len(headers) - 1, state=state)

    def test_first_acquirer(self) -> None:
        """L-22: first-acquirer is true for the first attempt, and only then."""
        self.put(message())
        self.client.receiver(handle=1, credit=2)
        (first,) = self.client.messages()
        self.assertTrue(header_of(first).first_acquirer)
        self.client.dispose(0, state=spec.Released())
        (second,) = self.client.messages()
        self.assertFalse(header_of(second).first_acquirer)

    def test_delivery_count_of_the_sender(self) -> None:
        """M-04: attempts before this broker count on."""
        got = header_of(self.through(message(header=spec.Header(delivery_count=3))))
        self.assertEqual(got.delivery_count, 3)

    def test_message_annotations(self) -> None:
        """M-03: message-annotations go end to end."""
        got = self.through(message(annotations={"x-opt-mine": [1, 2], "x-opt-you": "me"}))
        annotations = section_of(got, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(annotations["x-opt-mine"], [1, 2])
        self.assertEqual(annotations["x-opt-you"], "me")

    def test_delivery_annotations(self) -> None:
        """M-03, part 3 §3.2.2: delivery-annotations are for one hop."""
        annotations = section(spec.SECTION_DELIVERY_ANNOTATIONS, {Symbol("x-opt-hop"): "one"})
        got = self.through(annotations + message())
        self.assertIsNone(section_of(got, spec.SECTION_DELIVERY_ANNOTATIONS))

    def test_order_downstream(self) -> None:
        """M-23: sections in order, each at most once."""
        encoded = (
            codec.encode(spec.Header(durable=True))
            + section(spec.SECTION_DELIVERY_ANNOTATIONS, {})
            + section(spec.SECTION_MESSAGE_ANNOTATIONS, {Symbol("x-opt-a"): 1})
            + message(application={"a": 1}, subject="s")
            + section(spec.SECTION_FOOTER, {})
        )
        codes = [code for code, _ in sections_of(self.through(encoded))]
        self.assertEqual(codes, sorted(set(codes)))
        self.assertEqual(codes[-4:], [0x73, 0x74, 0x75, 0x78])


def undecodable() -> list[bytes]:
    """Properties and application-properties within a sound frame, and none of them sound."""
    long = b"\x00\x53\x74\xd1\x00\x00\x00\x0b\x00\x00\x00\x02"
    return [
        section(spec.SECTION_PROPERTIES, [Symbol("no-address")] * 3),
        section(spec.SECTION_PROPERTIES, [None] * 12 + [7]),
        section(spec.SECTION_PROPERTIES, [None] * 14 + ["beyond"]),
        b"\x00\x53\x73\xc0\x05\x03\x40\x40\xa1\x01",
        b"\x00\x53\x73\xc0\x06\x03\x40\x40\xa1\x01\xff",
        section(spec.SECTION_APPLICATION_PROPERTIES, {1: "number"}),
        section(spec.SECTION_APPLICATION_PROPERTIES, {Symbol("s"): "symbol"}),
        b"\x00\x53\x74\xc1\x04\x01\xa1\x01a",
        b"\x00\x53\x74\xc1\x05\x02\xa1\x01a\x3f",
        b"\x00\x53\x74\xc1\x09\x04\xa1\x01a\x41\xa1\x01a\x41",
        long + b"\xa1\x01a\xff\xa1\x02ab",
    ]


class ToleranceTests(MessageCase):
    """M-22 to M-24, E-08."""

    def refused(self, encoded: bytes) -> str:
        """M-24: rejected with decode-error; the link continues, and nothing is enqueued."""
        self.client.publish(0, encoded)
        told = self.client.one(spec.Disposition)
        self.assertTrue(told.settled)
        self.assertIsInstance(told.state, spec.Rejected)
        self.assertEqual(condition(told.state), "amqp:decode-error")
        self.assertEqual(self.house.depth(), 0)
        self.assertTrue(self.client.none(spec.End) and self.client.none(spec.Detach))
        self.client.publish(1, message(b"good"))
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)
        self.assertEqual(self.house.depth(), 1)
        words: str = told.state.error.description
        return words

    def malformed(self, encoded: bytes) -> None:
        """M-24, E-08: so it is with each of these."""
        self.refused(encoded)

    def test_missing_body(self) -> None:
        """M-22: a message without a body is rejected, whatever else it has."""
        header = codec.encode(spec.Header(durable=True))
        properties = codec.encode(spec.Properties(subject="no body"))
        footer = section(spec.SECTION_FOOTER, {})
        for encoded in (header, properties, header + properties + footer, footer):
            self.setUp()
            self.assertIn("tolerate-missing-body", self.refused(encoded))

    def test_missing_body_tolerated(self) -> None:
        """M-22, M-23: with the option it is taken, and its bare message is not changed."""
        self.house.amqp10.tolerates_missing_body = lambda: True
        header = codec.encode(spec.Header(durable=True))
        properties = codec.encode(spec.Properties(subject="no body"))
        footer = section(spec.SECTION_FOOTER, {Symbol("x"): 1})
        for before, rest, codes in (
            (header, b"", [0x70]),
            (b"", properties, [0x70, 0x73]),
            (header, properties + footer, [0x70, 0x73, 0x78]),
        ):
            got = self.through(before + rest)
            self.assertEqual([code for code, _ in sections_of(got)], codes)
            self.assertTrue(got.endswith(rest))

    def test_empty_message(self) -> None:
        """M-22: a message of no octets is rejected, with the option as without it."""
        self.assertIn("no octets", self.refused(b""))
        self.setUp()
        self.house.amqp10.tolerates_missing_body = lambda: True
        self.assertIn("no octets", self.refused(b""))

    def test_settled(self) -> None:
        """M-24, E-08, T-25: one that is settled already has no outcome: its link is detached."""
        self.client.publish(0, b"junk", settled=True)
        detach = self.client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:decode-error")
        self.assertEqual(detach.error.info["delivery-tag"], b"tag-0")
        self.assertTrue(self.client.none(spec.End))
        self.client.sender(handle=5)
        self.client.publish(1, handle=5)
        self.assertEqual(self.house.depth(), 1)

    def test_frame_boundary_lost(self) -> None:
        """M-24, K-10, E-06: a frame whose end cannot be found ends more than its message."""
        encoded = self.client.transfer(0, message(b"a body of some length"))
        self.client.write((len(encoded) - 8).to_bytes(4, "big") + encoded[4:])
        self.client.run(1)
        self.assertIn(condition(self.client.one(spec.Close)), ERRORS_OF_FRAMES)
        self.assertEqual(self.house.depth(), 0)

    def test_format_code(self) -> None:
        """M-24, E-08: a format code that does not exist."""
        self.malformed(b"\x00\x53\x75\xff\x00")

    def test_not_described(self) -> None:
        """M-24: a section that is no described value."""
        self.malformed(codec.encode("hello"))

    def test_unknown_section(self) -> None:
        """M-24: a descriptor that is not a section's."""
        self.malformed(section(0x7F, b"x"))

    def test_wrong_type(self) -> None:
        """M-24: a data section that holds no binary."""
        self.malformed(section(spec.SECTION_DATA, "text"))

    def test_truncated(self) -> None:
        """M-24: a section that ends in its middle."""
        self.malformed(data(b"hello")[:-2])

    def test_order(self) -> None:
        """M-24: sections out of order."""
        self.malformed(data() + codec.encode(spec.Properties(subject="late")))

    def test_header_twice(self) -> None:
        """M-24: a section that may stand once, twice."""
        header = codec.encode(spec.Header(durable=True))
        self.malformed(header + header + data())

    def test_mixed_bodies(self) -> None:
        """M-24: data and value in one body."""
        self.malformed(data() + section(VALUE, 1))

    def test_two_values(self) -> None:
        """M-24: two amqp-value sections."""
        self.malformed(section(VALUE, 1) + section(VALUE, 2))

    def test_bad_header(self) -> None:
        """M-24: a header whose fields are of other types."""
        self.malformed(section(spec.SECTION_HEADER, ["yes"]) + data())

    def test_bad_properties(self) -> None:
        """M-24: properties and application-properties that cannot be decoded, at any place."""
        for number, bad in enumerate(undecodable()):
            with self.subTest(bad.hex()):
                self.setUp()
                self.assertTrue(self.refused(bad + data()), number)

    def test_bad_properties_elsewhere(self) -> None:
        """M-23, M-24: so it is on the way to other domains, to services and within transactions."""
        bad = undecodable()[-1] + data()
        for number, target in enumerate(("amqp$transfer", "$management")):
            self.client.sender(target, handle=7 + number)
            self.client.publish(number, bad, handle=7 + number)
            told = self.client.one(spec.Disposition)
            self.assertEqual(condition(told.state), "amqp:decode-error", target)

    def test_strings_of_other_encodings(self) -> None:
        """M-23: application-properties that a broker in wide use sends arrive as they came."""
        taken = b"\x00\x53\x74\xc1\x07\x02\xa1\x01a\xa1\x01\xff"
        self.assertIn(taken, self.through(taken + data()))

    def test_bad_annotations(self) -> None:
        """M-24, T-27: annotations that are no map."""
        self.malformed(section(spec.SECTION_MESSAGE_ANNOTATIONS, [1]) + data())


class FormatTests(MessageCase):
    """Messages of another message-format than that of part 3 (M-09, T-03, part 2 §2.7.5)."""

    octets = b"\x00\x53\x70 no message of part 3 \xff"
    number = 0x50420100

    def publish_foreign(self, octets: bytes | None = None, **fields: Any) -> Any:
        """Publish one; return the state that comes back."""
        given = {"message_format": self.number, **fields}
        self.client.publish(self._sent, self.octets if octets is None else octets, **given)
        self._sent += 1
        return self.client.one(spec.Disposition).state

    def receive(self, address: str = "q", **fields: Any) -> Client:
        """Attach a client of its own, with credit."""
        client = self.house.client().ready(str(uuid.uuid4()))
        client.receiver(address, credit=10, **fields)
        return client

    def test_through_a_queue(self) -> None:
        """A queue takes it and forwards its octets and its number as they came."""
        for octets in (self.octets, b"", bytes(70_000)):
            self.client.names()
            self.assertIsInstance(self.publish_foreign(octets), spec.Accepted)
            client = self.receive()
            received = client.payloads(spec.Transfer)
            self.assertEqual({each.message_format for each, _ in received[:1]}, {self.number})
            self.assertEqual(b"".join(payload for _, payload in received), octets)
            client.dispose(0)
            self.assertEqual(self.house.depth(), 0)
            client.send(spec.Close())

    def test_in_order(self) -> None:
        """It is in line with the others, whose number is 0."""
        self.put(message(b"before"))
        self.publish_foreign()
        self.put(message(b"after"))
        received = self.receive().payloads(spec.Transfer)
        self.assertEqual([each.message_format for each, _ in received], [0, self.number, 0])

    def test_again(self) -> None:
        """Released, rejected and failed messages are delivered unchanged, the dead letter too."""
        self.publish_foreign()
        client = self.receive()
        for number, state in enumerate(
            (spec.Released(), spec.Modified(delivery_failed=True), spec.Rejected())
        ):
            ((transfer, payload),) = client.payloads(spec.Transfer)
            self.assertEqual((transfer.message_format, payload), (self.number, self.octets))
            client.dispose(number, state=state)
        ((transfer, payload),) = self.receive("dead").payloads(spec.Transfer)
        self.assertEqual((transfer.message_format, payload), (self.number, self.octets))

    def test_no_properties(self) -> None:
        """A selector finds nothing in it, whatever its octets would mean."""
        self.publish_foreign(message(b"", subject="red"))
        self.put(message(b"ours", subject="red"))
        selector = {
            Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), "subject = 'red'")
        }
        source = spec.Source(address="q", filter=selector)
        client = self.receive(source=source)
        ((transfer, payload),) = client.payloads(spec.Transfer)
        self.assertEqual(transfer.message_format, 0)
        self.assertEqual(bare(payload), message(b"ours", subject="red"))

    def test_no_forgery(self) -> None:
        """A delivery annotation of a sender makes no message one of another format."""
        forged = section(spec.SECTION_DELIVERY_ANNOTATIONS, {MESSAGE_FORMAT: UInt(7)})
        self.put(forged + message(b"ours"))
        ((transfer, payload),) = self.receive().payloads(spec.Transfer)
        self.assertEqual(transfer.message_format, 0)
        self.assertEqual(bare(payload), message(b"ours"))

    def test_refused_by_what_routes(self) -> None:
        """If properties are needed it is refused, and the link lives on."""
        world = Network()
        house = world.house(nodes=["q", TopicDeclaration("t")])
        world.house("b.test")
        for address in (None, "amqp$transfer", "x@b.test", "t", "$management"):
            client = house.client().ready(str(uuid.uuid4()))
            client.sender(address)
            client.publish(0, self.octets, message_format=1)
            state = client.one(spec.Disposition).state
            self.assertIsInstance(state, spec.Rejected, address)
            self.assertEqual(condition(state), "amqp:not-implemented", address)
            self.assertTrue(client.none(spec.Detach) and client.none(spec.End), address)
        self.assertEqual(house.depth(), 0)

    def test_not_moved_to_another_domain(self) -> None:
        """A binding of its queue to an address elsewhere rejects it: a dead letter, not a loss."""
        self.world.house("b.test", nodes=["x"])
        self.house.broker.bind(BindingDeclaration("q", "x@b.test", None))
        self.assertIsInstance(self.publish_foreign(), spec.Accepted)
        self.client.run(1)
        self.assertEqual((self.house.depth(), self.house.depth("dead")), (0, 1))
        ((transfer, payload),) = self.receive("dead").payloads(spec.Transfer)
        self.assertEqual((transfer.message_format, payload), (self.number, self.octets))


class LifetimeTests(MessageCase):
    """ttl and absolute-expiry-time, topic D."""

    def ttl(self, milliseconds: int, body: bytes = b"mortal") -> bytes:
        return message(body, header=spec.Header(ttl=UInt(milliseconds)))

    def test_expired(self) -> None:
        """D-07, D-08, D-11: after its ttl a message is not transferred."""
        self.put(self.ttl(200))
        self.client.run(0.3)
        self.assertIsNone(self.get())
        self.assertEqual(self.house.depth(), 0)

    def test_alive(self) -> None:
        """D-07: before that it is, with what is left of its ttl (D-11)."""
        self.put(self.ttl(10_000))
        self.client.run(4)
        got = self.get()
        assert got is not None
        self.assertEqual(header_of(got).ttl, 6_000)

    def test_absolute(self) -> None:
        """D-07: absolute-expiry-time ends a life as well, and is never changed."""
        encoded = message(absolute_expiry_time=Timestamp(START_MS + 5_000))
        self.put(encoded)
        self.assertEqual(bare(self.get() or b""), encoded)
        self.put(encoded)
        self.client.run(6)
        self.assertIsNone(self.get())

    def test_earlier_wins(self) -> None:
        """D-07: of the two the earlier."""
        header = spec.Header(ttl=UInt(60_000))
        self.put(message(header=header, absolute_expiry_time=Timestamp(START_MS + 1_000)))
        self.client.run(2)
        self.assertIsNone(self.get())

    def test_dead_letter(self) -> None:
        """D-11, O-24: an expired message moves to the dead-letter node, with reason and source."""
        self.put(self.ttl(200, b"late"))
        self.client.run(1)
        got = self.get("dead")
        assert got is not None
        annotations = section_of(got, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(annotations["x-opt-dead-letter-reason"], "expired")
        self.assertEqual(annotations["x-opt-dead-letter-source"], "q")

    def test_acquired_stands(self) -> None:
        """D-09, D-11: a delivery in progress at expiry stands; it can be accepted."""
        self.put(self.ttl(500))
        self.client.receiver(handle=1, credit=1)
        self.assertEqual(len(self.client.messages()), 1)
        self.client.run(2)
        self.assertEqual(self.house.depth(), 1)
        self.client.dispose(0)
        self.assertEqual(self.house.depth(), 0)
        self.assertEqual(self.house.depth("dead"), 0)

    def test_released_after_expiry(self) -> None:
        """D-09: a message that is released after its expiry is not offered again."""
        self.put(self.ttl(500))
        self.client.receiver(handle=1, credit=2)
        self.client.messages()
        self.client.run(2)
        self.client.dispose(0, state=spec.Released())
        self.client.run(1)
        self.assertEqual(self.client.messages(), [])
        self.assertEqual(self.house.depth(), 0)

    def test_ttl_zero(self) -> None:
        """D-11: ttl 0 reaches nobody later than at once."""
        self.put(self.ttl(0))
        self.client.run(0.2)
        self.assertIsNone(self.get())

    def test_on_arrival(self) -> None:
        """D-10: ttl runs from receipt; a message that is past its absolute expiry is late."""
        self.put(message(absolute_expiry_time=Timestamp(START_MS - 1)))
        self.client.run(0.2)
        self.assertIsNone(self.get())

    def test_the_others_live(self) -> None:
        """D-07: expiry of one leaves its neighbors in their places."""
        for body, life in ((b"1", 10_000), (b"2", 100), (b"3", 10_000)):
            self.put(self.ttl(life, body))
        self.client.run(1)
        self.client.receiver(handle=1, credit=5)
        self.assertEqual(self.client.bodies(), [b"1", b"3"])


class OrderTests(MessageCase):
    """D-12, D-14, Q-03, Q-05."""

    def test_in_order(self) -> None:
        """D-12, Q-03: a producer's messages go out in their order."""
        for number in range(50):
            self.put(message(b"%d" % number))
        self.client.receiver(handle=1, credit=50)
        self.assertEqual(self.client.bodies(), [b"%d" % number for number in range(50)])

    def test_old_place(self) -> None:
        """Q-05, O-11: what is released goes back to its old place."""
        for number in range(4):
            self.put(message(b"%d" % number))
        self.client.receiver(handle=1, credit=2)
        self.assertEqual(self.client.bodies(), [b"0", b"1"])
        self.client.dispose(1, state=spec.Released())
        self.client.dispose(0, state=spec.Released())
        self.client.credit(4, handle=1, delivery_count=2, next_incoming_id=2)
        self.assertEqual(self.client.bodies(), [b"0", b"1", b"2", b"3"])

    def test_memory_is_kept(self) -> None:
        """D-03: what is not durable survives everything but the end of the process."""
        self.put(message(b"kept"))
        self.client.hang_up()
        self.world.advance(86_400)
        self.assertIsNotNone(self.get())

    def test_durability_does_not_part_them(self) -> None:
        """D-12: durable and other messages of one link stay in one order."""
        for number in range(10):
            durable = spec.Header(durable=number % 2 == 0)
            self.put(message(b"%d" % number, header=durable))
        self.client.receiver(handle=1, credit=10)
        self.assertEqual(self.client.bodies(), [b"%d" % number for number in range(10)])
