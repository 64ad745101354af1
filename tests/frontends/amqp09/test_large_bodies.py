# SPDX-License-Identifier: Apache-2.0
"""Very large bodies in 0-9 and 0-9-1: in parts to the store, in parts from it.

Rules: 09-BASIC-34, -35, -46, -48, -54, 09-W-73, 09-M-10, 09: part 5.5, 09-TX-05.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import MessageDamaged, StoreUnavailable
from amqproute.frontends.amqp09.large_content_output import PART_BYTES
from amqproute.message import Message
from amqproute.store.memory import MemoryDraft, MemoryReader
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Described, Symbol, ULong
from tests.conformance.frame_broker import FrameBroker, Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

PART_FROM = 20_000
LARGE = bytes(range(256)) * 500
PIECES = 4088


def large_house(world: Network, name: str = "a.test", **more: Any) -> FrameBroker:
    return world.house(name, settings={"part_from": PART_FROM}, **more)


class LargeCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = large_house(self.world)
        self.client = self.connect()

    def connect(self, house: FrameBroker | None = None, **changes: Any) -> Client09:
        return Client09(house or self.house, part_from=PART_FROM, **changes).channel()

    def publish(self, client: Client09, *bodies: bytes, key: str = "q", **more: Any) -> Client09:
        channel = more.pop("channel", 1)
        return client.write(*(self.frames(body, key, channel, **more) for body in bodies))

    @staticmethod
    def frames(body: bytes, key: str = "q", channel: int = 1, **more: Any) -> bytes:
        return content(channel, "basic.publish", body, pieces=PIECES, routing_key=key, **more)

    def rests(self, name: str = "q") -> list[Any]:
        """Return the bodies in the store of a queue; that of a declared one has a longer name."""
        store = self.house.store
        (found,) = (each for each in store.names() if f"/{each}".endswith(f"/{name}"))
        return [row.rest for row in store.rows(found)]

    def settle(self, client: Client09, turns: int = 20) -> Client09:
        """Let reads and turns of the reactor happen."""
        for _ in range(turns):
            client.run()
        return client

    def got(self, client: Client09, **more: Any) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        """Get the next message; return arguments, properties and body."""
        client.ask("basic.get", queue="q", **more)
        self.settle(client)
        ((_, name, arguments, properties, body),) = client.contents
        self.assertEqual(name, "basic.get-ok")
        return arguments, properties, body

    def from_amqp10(self, encoded: bytes, house: FrameBroker | None = None) -> None:
        """Publish a message by 1.0, in frames of 10,000 octets."""
        client = (house or self.house).client().ready()
        client.sender("q")
        cuts = range(0, len(encoded), 10_000)
        client.write(
            *(
                client.transfer(0, encoded[at : at + 10_000], more=at + 10_000 < len(encoded))
                for at in cuts
            )
        )
        ((disposition),) = client.all(spec.Disposition)
        self.assertIsInstance(disposition.state, spec.Accepted)

    def by_amqp10(self, house: FrameBroker | None = None) -> Message:
        """Take a message by 1.0."""
        client = (house or self.house).client().ready()
        client.receiver(credit=1)
        for _ in range(20):
            client.run()
        return Message(client.messages()[0])


class PublishTests(LargeCase):
    def test_through(self) -> None:
        """It is in the store and not in memory, and comes out as it went in."""
        properties = {"content-type": "a/b", "headers": [("n", "I", 7)], "delivery-mode": 2}
        self.client.ask("confirm.select")
        self.client.methods.clear()
        self.publish(self.client, b"before", LARGE, b"after", properties=properties)
        self.assertEqual(self.client.names()[-1:], ["basic.ack"])
        rows = self.house.store.rows("q")
        self.assertEqual([row.rest is None for row in rows], [True, False, True])
        self.assertLess(len(rows[1].encoded), 300)
        other = self.connect()
        other.ask("basic.consume", queue="q")
        self.settle(other)
        self.assertEqual([each[3] for each in other.contents], [properties] * 3)
        self.assertEqual([each[4] for each in other.contents], [b"before", LARGE, b"after"])
        other.write(call(1, "basic.ack", delivery_tag=0, multiple=1))
        self.assertEqual((other.depth(), self.house.store.rows("q")), (0, []))

    def test_transient(self) -> None:
        """One that is not durable is not stored as an entry, and goes the same way."""
        self.publish(self.client, LARGE)
        self.assertEqual(self.house.store.rows("q"), [])
        self.assertEqual(self.got(self.client, no_ack=1)[2], LARGE)

    def test_get(self) -> None:
        """basic.get brings it, and what is behind it with the next one."""
        self.publish(self.client, LARGE, b"next")
        arguments, _, body = self.got(self.client, no_ack=1)
        self.assertEqual((arguments["message-count"], body), (1, LARGE))
        self.assertEqual(self.got(self.client, no_ack=1)[2], b"next")
        self.assertEqual(self.client.depth(), 0)

    def test_memory(self) -> None:
        """While it comes in, what is in memory is what the disk has not taken yet."""
        frames = self.frames(LARGE * 10)
        for at in range(0, len(frames), 30_000):
            self.client.write(frames[at : at + 30_000])
            engine = self.client.end.protocol.engine
            self.assertLess(engine.held_octets, 2 * PIECES)
            self.assertEqual(self.house.shared.memory.held_bytes, 0)
        self.assertEqual(self.client.depth(), 1)

    def test_slow_disk(self) -> None:
        """Octets that the disk has not taken hold the client up."""
        house = large_house(self.world, "s.test", limits={"uncommitted_bytes": 50_000})
        client = self.connect(house)
        house.store.is_held = True
        client.write(self.frames(LARGE)[:60_000])
        self.assertEqual(client.end.producerState, "paused")
        house.store.let_go()
        client.run()
        self.assertEqual(client.end.producerState, "producing")
        client.write(self.frames(LARGE)[60_000:])
        self.assertEqual(client.depth(), 1)

    def test_interleaved(self) -> None:
        """Several come in on as many channels at one time."""
        numbers = range(1, 5)
        client = Client09(self.house, part_from=PART_FROM).channel(*numbers)
        bodies = [bytes((number,)) * len(LARGE) for number in numbers]
        frames = [
            self.frames(body, channel=each) for each, body in zip(numbers, bodies, strict=True)
        ]
        cuts = []
        for each in frames:
            pieces, at = [], 0
            while at < len(each):
                size = 8 + int.from_bytes(each[at + 3 : at + 7], "big")
                pieces.append(each[at : at + size])
                at += size
            cuts.append(pieces)
        client.write(*(piece for row in zip(*cuts, strict=True) for piece in row))
        self.assertEqual(client.depth(), 4)
        found = {self.got(self.connect(), no_ack=1)[2] for _ in numbers}
        self.assertEqual(found, set(bodies))

    def test_finds_what_was_published(self) -> None:
        """A get behind a publish on one channel finds it, however slow the disk."""
        self.house.store.is_held = True
        self.client.write(self.frames(LARGE), call(1, "basic.get", queue="q", no_ack=1))
        self.assertEqual(self.client.names(), [])
        self.house.store.let_go()
        self.settle(self.client)
        self.assertEqual(self.client.bodies(), [LARGE])

    def test_cut(self) -> None:
        """A half-sent message leaves nothing: the channel closes, or the connection breaks."""
        drafts = self.house.shared.partial_deliveries.drafts
        frames = self.frames(LARGE)
        for end in ("close", "cut"):
            client = self.connect()
            client.write(call(2, "channel.open"), self.frames(LARGE, channel=2)[:60_000])
            self.assertEqual(drafts.used, 1)
            if end == "close":
                # Any method in between breaks the connection's rules; a close of another
                # channel does not concern it.
                client.write(call(1, "channel.close"))
                self.assertEqual(drafts.used, 1)
            client.hang_up()
            self.assertEqual((drafts.used, self.house.shared.memory.held_bytes), (0, 0))
        self.assertEqual(self.client.depth(), 0)
        self.client.write(frames)
        self.assertEqual(self.client.depth(), 1)

    def test_closed_behind(self) -> None:
        """A message complete before its channel closed is taken."""
        self.house.store.is_held = True
        self.client.write(self.frames(LARGE), call(1, "channel.close"))
        self.house.store.let_go()
        self.client.run()
        self.assertEqual(self.client.depth(), 1)

    def test_refused_early(self) -> None:
        """A message that would be refused in the end is refused at its header."""
        cases: list[tuple[dict[str, Any], int]] = [
            ({"exchange": "none"}, 404),
            ({"properties": {"expiration": "soon"}}, 406),
        ]
        for arguments, code in cases:
            client = self.connect()
            client.write(self.frames(LARGE, **arguments)[:10_000])
            self.assertEqual(client.closes(), [("channel", code)])
        self.assertEqual(self.house.shared.partial_deliveries.drafts.used, 0)

    def test_no_room(self) -> None:
        """A body that the store has no room for, 2**63 octets say, is refused at once."""
        self.house.shared.partial_deliveries.spare_octets = 1 << 40
        whole = self.frames(LARGE)
        size = len(LARGE).to_bytes(8, "big")
        huge = whole.replace(size, (1 << 63).to_bytes(8, "big"), 1)
        self.client.write(huge[:10_000])
        self.assertEqual(self.client.closes(), [("channel", 311)])
        self.assertEqual(self.house.shared.memory.held_bytes, 0)

    def test_no_place(self) -> None:
        """Beyond the places for large messages it is not taken; its sender knows by the nack."""
        self.client.ask("confirm.select")
        self.client.methods.clear()
        drafts = self.house.shared.partial_deliveries.drafts
        drafts.take(400, "user:else", 1)
        self.client.write(self.frames(LARGE)[:10_000])
        self.assertEqual(self.client.names(), [])
        self.client.write(self.frames(LARGE)[10_000:], self.frames(b"small"))
        self.assertEqual(self.client.names(), ["basic.nack", "basic.ack"])
        drafts.give_back(400, "user:else", 1)
        self.publish(self.client, LARGE)
        self.assertEqual((self.client.names(), self.client.depth()), (["basic.ack"], 2))

    def test_disk_is_full(self) -> None:
        """A draft that cannot be written is not confirmed, and the disk counts as full."""
        self.client.ask("confirm.select")
        self.client.methods.clear()
        finished: Deferred[Any] = Deferred()
        self.patch(MemoryDraft, "finish", lambda _: finished)
        self.publish(self.client, LARGE)
        finished.errback(Failure(StoreUnavailable("the disk is full")))
        self.client.run()
        self.assertIn("basic.nack", self.client.names())
        self.assertFalse(self.house.broker.gate.is_open)
        self.assertEqual(self.client.depth(), 0)

    def test_idle(self) -> None:
        """A content without progress is ended; a heartbeat is no progress."""
        partial = self.house.shared.partial_deliveries
        self.client.write(self.frames(LARGE)[:60_000])
        for _ in range(10):
            self.world.clock.advance(29)
            self.client.write(b"\x08\0\0\0\0\0\0\xce")
            partial.look()
        self.assertEqual(self.client.closes(), [])
        self.world.clock.advance(29)
        partial.look()
        self.client.run()
        self.assertEqual(self.client.closes(), [("channel", 406)])
        self.assertEqual(partial.drafts.used, 0)

    def test_spilled(self) -> None:
        """One that is not large goes to the disk if it does not get on, and is taken at its end."""
        body = b"x" * 300_000
        client = Client09(self.house).channel()
        client.write(self.frames(body)[:250_000])
        engine = client.end.protocol.engine
        self.assertGreater(engine.held_octets, 200_000)
        self.world.clock.advance(31)
        self.house.shared.partial_deliveries.look()
        client.run()
        self.assertLess(engine.held_octets, 5000)
        client.write(self.frames(body)[250_000:])
        self.assertEqual(client.depth(), 1)
        self.assertEqual(self.got(client, no_ack=1)[2], body)

    def test_transaction(self) -> None:
        """It counts with the commit, and leaves nothing after a rollback."""
        client = self.client
        client.ask("tx.select")
        self.publish(client, LARGE)
        self.assertEqual(client.depth(), 0)
        self.assertEqual(client.ask("tx.rollback"), ["tx.rollback-ok"])
        self.house.store.is_held = True
        client.write(self.frames(LARGE), call(1, "tx.commit"))
        self.assertEqual(client.names()[1:], [])
        self.house.store.let_go()
        client.run()
        self.assertEqual((client.names()[-1:], client.depth()), (["tx.commit-ok"], 1))
        self.assertEqual(self.got(self.connect(), no_ack=1)[2], LARGE)

    def test_several_queues(self) -> None:
        """Queues of one exchange share its body."""
        for name in ("one", "two"):
            self.client.ask("queue.declare", queue=name, durable=1)
            self.client.ask("queue.bind", queue=name, exchange="amq.fanout")
        self.publish(self.client, LARGE, exchange="amq.fanout", properties={"delivery-mode": 2})
        self.assertEqual([self.client.depth(each) for each in ("one", "two")], [1, 1])
        (one,), (two,) = self.rests(name="one"), self.rests(name="two")
        self.assertIs(one, two)
        for name in ("one", "two"):
            self.client.ask("basic.get", queue=name, no_ack=1)
            self.assertEqual(self.settle(self.client).bodies(), [LARGE])

    def test_returned(self) -> None:
        """A mandatory one that goes nowhere comes back whole, before its ack."""
        self.client.ask("confirm.select")
        self.client.methods.clear()
        self.publish(self.client, LARGE, b"small", key="none", mandatory=1)
        self.settle(self.client)
        self.assertEqual(self.client.names(), ["basic.return", "basic.return", "basic.ack"])
        self.assertEqual(self.client.bodies(), [LARGE, b"small"])
        self.assertEqual(self.house.shared.partial_deliveries.drafts.used, 0)

    def test_to_another_organization(self) -> None:
        """It is relayed as it came, and arrives octet by octet."""
        other = large_house(self.world, "b.test")
        self.client.ask("confirm.select")
        self.client.methods.clear()
        properties = {"headers": [("n", "I", 7)], "message-id": "m", "app-id": "a"}
        self.publish(self.client, LARGE, key="q@b.test", properties=properties)
        for _ in range(30):
            self.world.advance(0.1)
        self.assertEqual(self.client.run().names(), ["basic.ack"])
        arguments, found, body = self.got(self.connect(other), no_ack=1)
        self.assertEqual((found, body == LARGE), (properties, True))
        self.assertEqual(arguments["routing-key"], "q@b.test")


class DeliverTests(LargeCase):
    def test_slow_consumer(self) -> None:
        """A consumer that does not read costs one part; other channels are served between parts."""
        body = LARGE * 20
        self.assertGreater(len(body), 4 * PART_BYTES)
        self.publish(self.client, body, body)
        consumer = Client09(self.house, part_from=PART_FROM).channel(1, 2)
        reads: list[int] = []
        read = MemoryReader.read

        def counted(reader: MemoryReader, size: int) -> Deferred[bytes]:
            reads.append(size)
            return read(reader, size)

        self.patch(MemoryReader, "read", counted)
        consumer.ask("basic.qos", prefetch_count=1)
        pump = consumer.end.protocol
        pump.pauseProducing()
        consumer.ask("basic.consume", queue="q")
        consumer.ask("basic.consume", 2, queue="q")
        frontend = pump._user
        for _ in range(10):
            self.world.clock.advance(0)
        self.assertLessEqual(len(reads), 6)
        self.assertTrue(frontend.is_paused)
        pump.resumeProducing()
        self.settle(consumer, 60)
        self.assertEqual([each[4] == body for each in consumer.contents], [True, True])

    def test_order_on_the_channel(self) -> None:
        """Nothing comes between the frames of a content; what waits comes behind it."""
        self.publish(self.client, LARGE, b"second")
        consumer = self.connect()
        consumer.ask("confirm.select")
        consumer.methods.clear()
        consumer.write(
            call(1, "basic.consume", queue="q", no_ack=1),
            self.frames(b"third", key="none", mandatory=1),
        )
        self.settle(consumer)
        self.assertEqual(
            [each for each in consumer.names() if each != "basic.consume-ok"][-1:],
            ["basic.deliver"],
        )
        self.assertEqual(sorted(len(each[4]) for each in consumer.contents), [5, 6, len(LARGE)])

    def test_rejected_and_again(self) -> None:
        """It can be sent more than once; what is not acknowledged comes back."""
        self.publish(self.client, LARGE)
        arguments, _, _ = self.got(self.client)
        self.client.write(
            call(1, "basic.reject", delivery_tag=arguments["delivery-tag"], requeue=1)
        )
        self.client.contents.clear()
        arguments, _, body = self.got(self.client)
        self.assertEqual((arguments["redelivered"], body == LARGE), (1, True))
        self.client.hang_up()
        self.assertEqual(self.got(self.connect())[2], LARGE)

    def test_channel_ends_in_the_middle(self) -> None:
        """A message not sent whole is back on its queue, acknowledged or not."""
        body = LARGE * 20
        self.publish(self.client, body)
        held: list[tuple[Deferred[bytes], Deferred[bytes]]] = []
        read = MemoryReader.read

        def slow(reader: MemoryReader, size: int) -> Deferred[bytes]:
            if size < PART_BYTES:
                return read(reader, size)
            held.append((Deferred(), read(reader, size)))
            return held[-1][0]

        for no_ack in (0, 1):
            consumer = self.connect()
            with_slow = self.patch(MemoryReader, "read", slow)
            consumer.ask("basic.consume", queue="q", no_ack=no_ack)
            self.settle(consumer, 3)
            self.assertEqual(len(held), 1)
            self.assertEqual(consumer.ask("channel.close")[-1:], ["channel.close-ok"])
            with_slow.restore()
            waiting, done = held.pop()
            done.chainDeferred(waiting)
            self.settle(consumer)
            self.assertEqual(self.client.depth(), 1)
        self.assertEqual(self.got(self.connect(), no_ack=1)[2], body)

    def test_cancelled_in_the_middle(self) -> None:
        """After a cancel the content goes on to its end."""
        body = LARGE * 20
        self.publish(self.client, body)
        consumer = self.connect()
        consumer.write(
            call(1, "basic.consume", queue="q", consumer_tag="t"),
            call(1, "basic.cancel", consumer_tag="t"),
        )
        self.settle(consumer, 60)
        self.assertEqual([len(each[4]) for each in consumer.contents] or [len(body)], [len(body)])

    def test_damaged(self) -> None:
        """A body that cannot be read to its end closes the channel; it is not sent again."""
        self.publish(self.client, LARGE, b"next", properties={"delivery-mode": 2})
        read = MemoryReader.read

        def damaged(reader: MemoryReader, size: int) -> Deferred[bytes]:
            if size < PART_BYTES:
                return read(reader, size)
            return fail(Failure(MessageDamaged("octets 0 to 9 do not match their checksum")))

        patched = self.patch(MemoryReader, "read", damaged)
        consumer = self.connect()
        consumer.ask("basic.consume", queue="q")
        self.settle(consumer)
        self.assertEqual(consumer.closes(), [("channel", 406)])
        patched.restore()
        self.assertEqual(len(self.flushLoggedErrors()), 0)
        self.assertEqual(self.got(self.connect(), no_ack=1)[2], b"next")

    def test_prefetch_in_octets(self) -> None:
        """It counts with the octets of its body, and one always may be sent."""
        self.publish(self.client, LARGE, LARGE)
        consumer = self.connect(version=V09)
        consumer.ask("basic.qos", prefetch_size=1000)
        consumer.ask("basic.consume", queue="q")
        self.settle(consumer)
        self.assertEqual(consumer.bodies(), [LARGE])
        consumer.write(call(1, "basic.ack", delivery_tag=1))
        self.settle(consumer)
        self.assertEqual(consumer.bodies(), [LARGE])


def section(code: int, value: Any) -> bytes:
    return codec.encode(Described(ULong(code), value))


class FromAmqp10Tests(LargeCase):
    """A message of 1.0 as 0-9-1 gets it and sends it again."""

    def again(self, encoded: bytes) -> tuple[dict[str, Any], bytes]:
        """Have 0-9-1 get a message and publish it untouched; check that nothing has changed."""
        self.from_amqp10(encoded)
        self.assertIsNotNone(self.rests()[0])
        self.client.contents.clear()
        _, properties, body = self.got(self.client, no_ack=1)
        self.publish(self.client, body, properties=properties)
        self.assertEqual(self.client.closes(), [])
        before, after = Message(encoded), self.by_amqp10()
        self.assertEqual(after.bare, before.bare)
        one, other = before.offsets, after.offsets
        self.assertEqual(
            after.encoded[other.footer_start : other.footer_end],
            encoded[one.footer_start : one.footer_end],
        )
        return properties, body

    def head(self) -> bytes:
        return codec.encode(spec.Header(durable=True)) + codec.encode(
            spec.Properties(subject="s", message_id="m")
        )

    def test_data(self) -> None:
        """One data section is the body."""
        _, body = self.again(self.head() + section(0x75, LARGE))
        self.assertEqual(body, LARGE)

    def test_several_data_sections(self) -> None:
        """Several are one body, and several again."""
        parts = (b"", LARGE, b"x", LARGE[:70_000], b"")
        _, body = self.again(self.head() + b"".join(section(0x75, each) for each in parts))
        self.assertEqual(body, b"".join(parts))

    def test_footer(self) -> None:
        """A footer is a header, and a footer again."""
        footer = sections.encode_section(0x78, {Symbol("x-opt-sum"): b"sum"})
        properties, body = self.again(self.head() + section(0x75, LARGE) + footer)
        self.assertEqual(body, LARGE)
        self.assertIn("x-opt-footer", [name for name, *_ in properties["headers"]])

    def test_text(self) -> None:
        """A string is a text body."""
        text = "größe " * 10_000
        properties, body = self.again(self.head() + section(0x77, text))
        self.assertEqual(body, text.encode())
        self.assertEqual(properties["content-type"], "text/plain")

    def test_binary_value(self) -> None:
        """So is a value of octets."""
        _, body = self.again(self.head() + section(0x77, LARGE))
        self.assertEqual(body, LARGE)

    def test_value(self) -> None:
        """Any other value stays encoded."""
        encoded = section(0x77, {"k": ["v" * 30_000, 1]})
        properties, body = self.again(self.head() + encoded)
        self.assertEqual((properties["type"], body), ("amqp-1.0", encoded))

    def test_sequences(self) -> None:
        """So do sequences."""
        encoded = section(0x76, ["v" * 30_000]) * 2
        properties, body = self.again(self.head() + encoded)
        self.assertEqual((properties["type"], body), ("amqp-1.0", encoded))

    def test_broken_text(self) -> None:
        """A string that is no UTF-8 stays encoded."""
        encoded = b"\x00\x53\x77\xb1" + (30_000).to_bytes(4, "big") + b"\xff" * 30_000
        properties, body = self.again(self.head() + encoded)
        self.assertEqual((properties["type"], body), ("amqp-1.0", encoded))

    def test_encoded_by_the_client(self) -> None:
        """A type amqp-1.0 has to be true of the body, which is looked at as it comes."""
        self.publish(self.client, section(0x77, "v" * 30_000), properties={"type": "amqp-1.0"})
        self.assertEqual(self.by_amqp10().body_values(), ["v" * 30_000])
        for body in (LARGE, section(0x75, LARGE)[:-1], section(0x75, LARGE) + section(0x78, {})):
            client = self.connect()
            self.publish(client, body, properties={"type": "amqp-1.0"})
            self.assertEqual(client.closes(), [("channel", 406)])
        self.assertEqual(self.house.shared.partial_deliveries.drafts.used, 0)

    def test_relayed(self) -> None:
        """A message of 1.0 from another organization arrives as from here."""
        other = large_house(self.world, "b.test")
        client = other.client().ready()
        client.sender("q@a.test")
        encoded = self.head() + section(0x75, LARGE) + section(0x75, LARGE)
        cuts = range(0, len(encoded), 10_000)
        client.write(
            *(
                client.transfer(0, encoded[at : at + 10_000], more=at + 10_000 < len(encoded))
                for at in cuts
            )
        )
        for _ in range(30):
            self.world.advance(0.1)
        self.assertEqual(self.got(self.client, no_ack=1)[2], LARGE * 2)
