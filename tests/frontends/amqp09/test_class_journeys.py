# SPDX-License-Identifier: Apache-2.0
"""Messages of the classes that only 0-9 has, on their way to another organization and back.

Rules: 5.6, 09-M-01, -07, 09-X-97, 09-MSG-20, 09-QUEUE-02, 09-STRM-12, 09-TUN-01 to -03.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.message import Message
from tests.conformance.frame_broker import FrameBroker, Network
from tests.frontends.amqp09.test_large_bodies import PART_FROM, large_house
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, call, content

EXAMPLES = max(10, settings.default.max_examples // 5)
OK = "message.ok"
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
NAMES = st.text("abcxyz-", min_size=1, max_size=10).filter(lambda name: name not in ("cc", "bcc"))
VALUES = st.one_of(
    st.tuples(st.just("S"), st.binary(max_size=20)),
    st.tuples(st.just("I"), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just("l"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("t"), st.integers(0, 1)),
    st.tuples(st.just("T"), st.integers(0, 1 << 40)),
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=4).map(
    lambda table: [(name, *value) for name, value in sorted(table.items())]
)
TRANSFERS = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 9),
        "delivery_mode": st.integers(0, 2),
        "message_id": TEXT,
        "correlation_id": TEXT,
        "reply_to": st.sampled_from(("", "answers@a.test", "q@b.test")),
        "content_type": st.sampled_from(("", "text/plain")),
        "content_encoding": st.sampled_from(("", "gzip")),
        "app_id": TEXT,
        "transaction_id": TEXT,
        "security_token": st.binary(max_size=100),
        "application_headers": TABLES,
    }
)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(("", "text/plain")),
        "headers": TABLES,
        "priority": st.integers(0, 9),
        "message-id": TEXT,
        "filename": TEXT,
        "timestamp": st.integers(0, 1 << 40),
    },
)
STREAMS = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(("", "text/plain")),
        "content-encoding": st.sampled_from(("", "gzip")),
        "headers": TABLES,
        "priority": st.integers(0, 9),
        "timestamp": st.integers(0, 1 << 40),
    },
)
TUNNELS = st.fixed_dictionaries(
    {},
    optional={
        "headers": TABLES,
        "data-name": TEXT,
        "durable": st.integers(0, 255),
        "broadcast": st.integers(0, 255),
    },
)
LARGE_BODY = bytes(range(256)) * 100
BODIES = st.one_of(st.binary(max_size=100), st.just(LARGE_BODY))
BLOCKS = st.binary(max_size=1000)
"""Of a tunnel.request, which is never taken in parts."""


class JourneyCase(SynchronousTestCase):
    """Two organizations, with a client of each."""

    def setUp(self) -> None:
        self.world = Network()
        self.alpha, self.beta = large_house(self.world), large_house(self.world, "b.test")
        self.here, self.there = self.connected(self.alpha), self.connected(self.beta)

    @staticmethod
    def connected(house: FrameBroker, version: bytes = V09) -> Client09:
        return Client09(house, version=version, part_from=PART_FROM).channel()

    def wait(self, house: FrameBroker, number: int = 1) -> None:
        """Let the relay work until so many messages are on its queue."""
        for _ in range(200):
            if house.broker.nodes["q"].depth >= number:
                return
            self.world.advance(0.2)
        raise AssertionError("nothing has come")

    def transfer(self, client: Client09, key: str, body: bytes = b"x", **fields: Any) -> None:
        client.methods.clear()
        client.write(call(1, "message.transfer", routing_key=key, body=(0, body), **fields))
        for _ in range(50):
            if client.methods:
                break
            self.world.advance(0.2)
            client.run()
        self.assertEqual(client.names(), [OK])

    def got(self, client: Client09) -> dict[str, Any]:
        """Take a transfer by message.get."""
        names = client.ask("message.get", queue="q", no_ack=1)
        self.assertEqual(names, [OK, "message.transfer"])
        return client.methods[1][2]

    def publish_file(
        self, client: Client09, key: str, body: bytes, properties: dict[str, Any]
    ) -> None:
        client.ask("file.open", identifier="i", content_size=len(body))
        client.write(
            content(1, "file.stage", body, properties, 9000, class_id=70),
            call(1, "file.publish", routing_key=key, identifier="i"),
        )

    def file(self, client: Client09) -> tuple[dict[str, Any], bytes]:
        """Take a file by a consumer that goes again."""
        client.ask("file.consume", queue="q", consumer_tag="c", no_ack=1)
        for _ in range(50):
            client.run()
        client.write(call(1, "file.open-ok"))
        for _ in range(50):
            client.run()
        ((_, name, _, properties, body),) = client.contents
        self.assertEqual(name, "file.stage")
        client.ask("file.cancel", consumer_tag="c")
        return properties, body


class MessageJourneyTests(JourneyCase):
    """The class message."""

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(TRANSFERS, st.binary(max_size=100))
    def test_there_and_back(self, fields: dict[str, Any], body: bytes) -> None:
        """All fields are there what they were here, and when they are back."""
        if any(name == "BCC" for name, *_ in fields["application_headers"]):
            return  # for routing
        client, other = self.here, self.there
        key = "q@b.test"
        for number in range(2):
            self.transfer(client, key, body, **fields)
            house = self.beta if number == 0 else self.alpha
            self.wait(house)
            found = self.got(other)
            for name, value in fields.items():
                self.assertEqual(found[name.replace("_", "-")], value, name)
            self.assertEqual(found["body"], (0, body))
            self.assertEqual(found["routing-key"], key)
            self.assertEqual((found["timestamp"], found["expiration"]), (0, 0))
            client, other, key = other, client, "q@a.test"

    def test_times(self) -> None:
        """The ttl is less by the time it took; its expiry is counted by the broker that has it."""
        self.transfer(self.here, "q@b.test", ttl=100_000, expiration=5, timestamp=5)
        self.wait(self.beta)
        found = self.got(self.there)
        self.assertTrue(90_000 < found["ttl"] <= 100_000, found)
        left = found["expiration"] - self.world.now_ms()
        self.assertTrue(80_000 < left <= 100_000, left)
        self.assertEqual(found["timestamp"], 0)

    def test_by_1_0_and_0_9_1(self) -> None:
        """Clients of 1.0 and 0-9-1 there read it, by the tables."""
        for _ in range(2):
            self.transfer(self.here, "q@b.test", b"body", message_id="m", transaction_id="t")
        self.wait(self.beta, 2)
        receiver = self.beta.client().ready()
        receiver.receiver(credit=1)
        message = Message(receiver.messages()[0])
        receiver.dispose(0)
        self.assertEqual(message.properties.message_id, "m")
        self.assertEqual(message.properties.to, "q@b.test")
        self.assertEqual(message.annotations["x-opt-message-transaction-id"], "t")
        client = self.connected(self.beta, V091)
        client.ask("basic.get", queue="q", no_ack=1)
        ((_, _, _, properties, body),) = client.contents
        self.assertEqual((body, properties["message-id"]), (b"body", "m"))

    def test_from_1_0(self) -> None:
        """A message of a 1.0 client there is a transfer here."""
        client = self.beta.client().ready()
        client.sender("q@a.test")
        client.publish(0, b"\0\x53\x75\xa0\4body")
        self.wait(self.alpha)
        found = self.got(self.here)
        self.assertEqual(found["body"], (0, b"body"))

    def test_large(self) -> None:
        """A body by reference is relayed from disk to disk."""
        body = bytes(range(256)) * 100
        client = self.here
        client.ask("message.open", reference=b"r")
        for at in range(0, len(body), 5000):
            client.ask("message.append", reference=b"r", bytes=body[at : at + 5000])
        client.write(
            call(1, "message.transfer", routing_key="q@b.test", body=(1, b"r")),
            call(1, "message.close", reference=b"r"),
        )
        self.wait(self.beta)
        receiver = self.connected(self.beta, V091)
        receiver.ask("basic.get", queue="q", no_ack=1)
        for _ in range(50):
            receiver.run()
        self.assertEqual(receiver.bodies(), [body])


class FileJourneyTests(JourneyCase):
    """The class file."""

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(FILES, BODIES)
    def test_there_and_back(self, properties: dict[str, Any], body: bytes) -> None:
        """Properties and body are there what they were here, and when they are back."""
        client, other, house, key = self.here, self.there, self.beta, "q@b.test"
        for _ in range(2):
            self.publish_file(client, key, body, properties)
            self.wait(house)
            self.assertEqual(self.file(other), (properties, body))
            client, other, house, key = other, client, self.alpha, "q@a.test"

    def test_by_1_0_and_0_9_1(self) -> None:
        """Clients of 1.0 and 0-9-1 there read it, and see what it is."""
        for _ in range(2):
            self.publish_file(self.here, "q@b.test", b"body", {"filename": "f.txt"})
        self.wait(self.beta, 2)
        receiver = self.beta.client().ready()
        receiver.receiver(credit=1)
        message = Message(receiver.messages()[0])
        receiver.dispose(0)
        self.assertEqual(message.annotations["x-opt-content-class"], "file")
        self.assertEqual(message.annotations["x-opt-file-name"], "f.txt")
        self.assertTrue(message.header.durable)
        client = self.connected(self.beta, V091)
        client.ask("basic.get", queue="q", no_ack=1)
        self.assertEqual(client.bodies(), [b"body"])

    def test_from_0_9_1(self) -> None:
        """A basic message there is no file here, but a transfer, or basic."""
        client = self.connected(self.beta, V091)
        client.publish(b"basic", key="q@a.test")
        self.wait(self.alpha)
        self.here.ask("file.consume", queue="q")
        self.assertEqual(self.here.names(), ["file.consume-ok"])
        self.assertEqual(self.got(self.here)["body"], (0, b"basic"))


class StreamJourneyTests(JourneyCase):
    """The class stream."""

    def packet(self, client: Client09) -> tuple[dict[str, Any], bytes]:
        """Take what is there by a consumer that goes again."""
        client.ask("stream.consume", queue="q", consumer_tag="c")
        for _ in range(50):
            client.run()
        ((_, name, _, properties, body),) = client.contents
        self.assertEqual(name, "stream.deliver")
        client.ask("stream.cancel", consumer_tag="c")
        return properties, body

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(STREAMS, BODIES)
    def test_there_and_back(self, properties: dict[str, Any], body: bytes) -> None:
        """Properties and body are there what they were here, and when they are back."""
        client, other, house, key = self.here, self.there, self.beta, "q@b.test"
        for _ in range(2):
            client.put("stream.publish", body, properties=properties, pieces=9000, routing_key=key)
            self.wait(house)
            self.assertEqual(self.packet(other), (properties, body))
            client, other, house, key = other, client, self.alpha, "q@a.test"

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(STREAMS, st.binary(max_size=100))
    def test_sent_on_by_0_9_1(self, properties: dict[str, Any], body: bytes) -> None:
        """A client of 0-9-1 there gets it, and what it sends on is of the class again."""
        self.here.put("stream.publish", body, properties=properties, routing_key="q@b.test")
        self.wait(self.beta)
        client = self.connected(self.beta, V091)
        client.ask("basic.get", queue="q", no_ack=1)
        ((_, _, _, shown, found),) = client.contents
        client.publish(found, key="q@a.test", properties=shown)
        client.hang_up()
        self.wait(self.alpha)
        self.assertEqual(self.packet(self.here), (properties, body))

    def test_by_1_0(self) -> None:
        """A client of 1.0 there reads it, and sees what it is."""
        self.here.put("stream.publish", b"body", properties={"priority": 3}, routing_key="q@b.test")
        self.wait(self.beta)
        receiver = self.beta.client().ready()
        receiver.receiver(credit=1)
        message = Message(receiver.messages()[0])
        self.assertEqual(message.annotations["x-opt-content-class"], "stream")
        self.assertEqual((message.header.durable, message.header.priority), (False, 3))


class TunnelJourneyTests(JourneyCase):
    """The class tunnel."""

    def request(self, client: Client09) -> tuple[list[Any], dict[str, Any], bytes]:
        """Take what is there by a consumer that goes again: meta-data, properties and octets."""
        client.ask("basic.consume", queue="q", consumer_tag="c")
        for _ in range(5):
            client.run()
        ((_, name, arguments, properties, body),) = client.contents
        self.assertEqual(name, "tunnel.request")
        client.ask("basic.cancel", consumer_tag="c")
        return arguments["meta-data"], properties, body

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(TUNNELS, TABLES, BLOCKS)
    def test_there_and_back(
        self, properties: dict[str, Any], meta_data: list[Any], body: bytes
    ) -> None:
        """Meta-data, properties and octets are there what they were here, and when back."""
        client, other, house, key = self.here, self.there, self.beta, "q@b.test"
        for _ in range(2):
            given_now = {**properties, "proxy-name": key}
            client.put("tunnel.request", body, properties=given_now, meta_data=meta_data)
            self.wait(house)
            self.assertEqual(self.request(other), (meta_data, given_now, body))
            client, other, house, key = other, client, self.alpha, "q@a.test"

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(TUNNELS, TABLES, BLOCKS)
    def test_sent_on_by_0_9_1(
        self, properties: dict[str, Any], meta_data: list[Any], body: bytes
    ) -> None:
        """A client of 0-9-1 there gets it, and what it sends on is of the class again."""
        given_now = {**properties, "proxy-name": "q@b.test"}
        self.here.put("tunnel.request", body, properties=given_now, meta_data=meta_data)
        self.wait(self.beta)
        client = self.connected(self.beta, V091)
        client.ask("basic.get", queue="q", no_ack=1)
        ((_, _, _, shown, found),) = client.contents
        client.publish(found, key="q@a.test", properties=shown)
        client.hang_up()
        self.wait(self.alpha)
        self.assertEqual(self.request(self.here), (meta_data, given_now, body))

    def test_by_1_0(self) -> None:
        """A client of 1.0 there reads it, and sees what it is."""
        properties = {"proxy-name": "q@b.test", "data-name": "n", "durable": 1, "broadcast": 2}
        meta_data = [("a", "I", 1)]
        self.here.put("tunnel.request", b"body", properties=properties, meta_data=meta_data)
        self.wait(self.beta)
        receiver = self.beta.client().ready()
        receiver.receiver(credit=1)
        message = Message(receiver.messages()[0])
        found = {
            name.removeprefix("x-opt-tunnel-"): value
            for name, value in message.annotations.items()
            if name.startswith("x-opt-tunnel-")
        }
        self.assertEqual(found, {**properties, "meta-data": {"a": 1}})
        self.assertEqual(message.annotations["x-opt-content-class"], "tunnel")
        self.assertTrue(message.header.durable)
