# SPDX-License-Identifier: Apache-2.0
"""Classes of content on one queue: who gets what.

Rules: 09-QUEUE-01, -02, 5.6, 09-X-113.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.amqp09.class_registry import offered_classes
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, call

CLASSES = ("file", "stream", "dtx", "tunnel", "message")
FIRST = {
    "file": "file.qos",
    "stream": "stream.qos",
    "dtx": "dtx.select",
    "tunnel": "tunnel.request",
    "message": "message.qos",
}


class MixedQueueTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.connected()

    def connected(self, version: bytes = V09) -> Client09:
        return Client09(self.house, version=version).channel()

    def fill(self) -> None:
        """Put three contents of basic and three of stream on the queue, in turn."""
        client = self.connected()
        for number in b"123":
            client.publish(b"basic %c" % number)
            client.put("stream.publish", b"stream %c" % number, routing_key="q")

    def test_consumers(self) -> None:
        """A consumer of 0-9 gets what is of its own class, in the order of its publishes."""
        self.fill()
        self.client.ask("basic.consume", queue="q", no_ack=1)
        self.assertEqual({name for _, name, *_ in self.client.contents}, {"basic.deliver"})
        self.assertEqual(self.client.bodies(), [b"basic 1", b"basic 2", b"basic 3"])
        self.client.ask("stream.consume", queue="q")
        self.assertEqual({name for _, name, *_ in self.client.contents}, {"stream.deliver"})
        self.assertEqual(self.client.bodies(), [b"stream 1", b"stream 2", b"stream 3"])
        self.assertEqual(self.client.depth(), 0)

    def test_consumers_first(self) -> None:
        """It is the same for consumers that are there before the contents."""
        self.client.ask("basic.consume", queue="q", no_ack=1)
        other = self.connected()
        other.ask("stream.consume", queue="q")
        self.client.contents.clear()
        other.contents.clear()
        self.fill()
        self.client.run()
        other.run()
        self.assertEqual(self.client.bodies(), [b"basic 1", b"basic 2", b"basic 3"])
        self.assertEqual(other.bodies(), [b"stream 1", b"stream 2", b"stream 3"])

    def test_get(self) -> None:
        """basic.get passes over what is of another class, and is empty if nothing else is there."""
        self.client.put("stream.publish", b"stream", routing_key="q")
        self.client.publish(b"basic")
        self.client.ask("basic.get", queue="q", no_ack=1)
        self.assertEqual(self.client.bodies(), [b"basic"])
        self.assertEqual(self.client.ask("basic.get", queue="q"), ["basic.get-empty"])
        self.assertEqual(self.client.depth(), 1)

    def test_0_9_1_gets_all(self) -> None:
        """A client of 0-9-1 gets all as basic content; a header names the class of the others."""
        self.fill()
        client = self.connected(V091)
        client.ask("basic.consume", queue="q", no_ack=1)
        classes = [
            {name: value for name, _, value in properties.get("headers", [])}.get(
                "x-opt-content-class"
            )
            for *_, properties, _ in client.contents
        ]
        self.assertEqual(classes, [None, b"stream"] * 3)
        self.assertEqual(len(client.bodies()), 6)

    def test_sent_on_by_0_9_1(self) -> None:
        """A message of 0-9-1 with these headers is of their class again."""
        self.client.put(
            "stream.publish", b"x", properties={"priority": 7, "timestamp": 5}, routing_key="q"
        )
        client = self.connected(V091)
        client.ask("basic.get", queue="q", no_ack=1)
        ((_, _, _, properties, body),) = client.contents
        client.publish(body, properties=properties)
        self.client.ask("stream.consume", queue="q")
        ((_, _, _, properties, body),) = self.client.contents
        self.assertEqual((properties, body), ({"priority": 7, "timestamp": 5}, b"x"))

    def test_unknown_to_0_9_1(self) -> None:
        """On a connection of 0-9-1 the five classes are unknown: 503, of the connection."""
        for name in CLASSES:
            client = self.connected(V091)
            client.write(call(1, FIRST[name]))
            self.assertEqual(client.closes(), [("connection", 503)], name)
            self.assertEqual(client.methods[-1][2]["class-id"] > 60, True)

    def test_frame_types_of_requests(self) -> None:
        """Frame types 9 and 10, which one broker once used for class message, are refused: 501."""
        for kind in (9, 10):
            client = self.connected()
            client.write(bytes((kind,)) + b"\0\1\0\0\0\0\xce")
            self.assertEqual(client.closes(), [("connection", 501)])


class AnnouncementTests(SynchronousTestCase):
    def test_server_properties(self) -> None:
        """The classes are told to clients of 0-9 only; dtx where it is switched on."""
        house = Network().house()
        for version, expected in ((V09, b"stream tunnel"), (V091, None)):
            client = Client09(house, version=version, classes=("stream", "tunnel"))
            ((_, _, arguments),) = [
                each for each in client.methods if each[1] == "connection.start"
            ]
            found = {name: value for name, _, value in arguments["server-properties"]}
            self.assertEqual(found.get("classes"), expected)
        self.assertEqual(set(offered_classes(True)) - set(offered_classes(False)), {"dtx"})
        self.assertLessEqual({"stream", "tunnel"}, set(offered_classes(False)))
