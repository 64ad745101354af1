# SPDX-License-Identifier: Apache-2.0
"""The class tunnel, over frames whose encoder is made from the facts of the document.

Rules: 09-TUN-01 to -05, I-03.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.frontends.amqp09.tunnel_consumer import MOST_COPIES
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, content

META = [("version", "I", 3), ("peer", "F", [("name", "S", b"x")])]


class TunnelCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(nodes=("q", "r"))
        self.client = self.connected()

    def connected(self, version: bytes = V09, **changes: Any) -> Client09:
        return Client09(self.house, version=version, **changes).channel(1, 2)

    def request(
        self, *bodies: bytes, to: str = "q", client: Client09 | None = None, **properties: Any
    ) -> Client09:
        """Send tunnel.request."""
        given = {"proxy-name": to, **{key.replace("_", "-"): v for key, v in properties.items()}}
        return (client or self.connected()).put(
            "tunnel.request", *bodies, properties=given, meta_data=META, pieces=100_000
        )


class RequestTests(TunnelCase):
    def test_handed_over(self) -> None:
        """A consumer of 0-9 gets the request with properties, meta-data and octets as sent."""
        self.client.ask("basic.consume", queue="q")
        headers = [("k", "S", b"v")]
        self.request(b"\0\x01block", data_name="frame", durable=1, headers=headers)
        ((_, name, arguments, properties, body),) = self.client.run().contents
        self.assertEqual((name, body), ("tunnel.request", b"\0\x01block"))
        self.assertEqual(arguments, {"meta-data": META})
        self.assertEqual(
            properties,
            {"proxy-name": "q", "data-name": "frame", "durable": 1, "headers": headers},
        )

    def test_settled_when_sent(self) -> None:
        """It has no tag: it is gone when it is sent, and takes no place in a window."""
        self.client.ask("basic.qos", prefetch_count=1)
        self.client.ask("basic.consume", queue="q")
        self.request(b"1", b"2", b"3")
        self.assertEqual(self.client.run().bodies(), [b"1", b"2", b"3"])
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.client.refused("basic.ack", delivery_tag=1), ("channel", 406))

    def test_beside_basic(self) -> None:
        """Basic content of the same queue goes on as it did, with its tags."""
        self.client.ask("basic.consume", queue="q")
        sender = self.connected()
        sender.publish(b"1")
        self.request(b"t", client=sender)
        sender.publish(b"2")
        self.client.run()
        found = [(name, body) for _, name, _, _, body in self.client.contents]
        self.assertEqual(
            sorted(found),
            [("basic.deliver", b"1"), ("basic.deliver", b"2"), ("tunnel.request", b"t")],
        )
        self.client.ask("basic.ack", delivery_tag=2, multiple=1)
        self.assertEqual(self.client.depth(), 0)

    def test_waits(self) -> None:
        """Without a consumer it waits on its node; neither get nor streams take it."""
        self.request(b"1")
        self.assertEqual(self.client.ask("basic.get", queue="q"), ["basic.get-empty"])
        self.assertEqual(self.client.ask("stream.consume", 2, queue="q"), ["stream.consume-ok"])
        names = self.client.ask("basic.consume", queue="q")
        self.assertEqual(names, ["basic.consume-ok", "tunnel.request"])

    def test_other_protocols(self) -> None:
        """Clients of 0-9-1 get basic content, with headers for what is of the class."""
        self.request(b"1", data_name="d", broadcast=0)
        client = self.connected(V091)
        client.ask("basic.get", queue="q")
        ((_, _, _, properties, body),) = client.contents
        headers = {name: value for name, _, value in properties["headers"]}
        self.assertEqual(body, b"1")
        self.assertEqual(headers["x-opt-content-class"], b"tunnel")
        self.assertEqual(headers["x-opt-tunnel-data-name"], b"d")
        self.assertEqual(headers["x-opt-tunnel-broadcast"], 0)
        self.assertEqual(headers["x-opt-tunnel-meta-data"], META)

    def test_no_node(self) -> None:
        """Without a node of that name, or without a name, the channel ends with 404."""
        for properties in ({"proxy-name": "none"}, {"proxy-name": "x@nowhere.test"}, {}):
            client = self.connected()
            client.put("tunnel.request", b"1", properties=properties)
            for _ in range(5):
                client.run(10)
            self.assertEqual(client.closes(), [("channel", 404)], properties)
            closed = client.methods[-1][2]
            self.assertEqual((closed["class-id"], closed["method-id"]), (110, 10))

    def test_no_right(self) -> None:
        """Without the right to publish to the node it ends with 403."""
        house = self.world.house(
            "c.test", access=[Rule.of(who="*", node="*", allow=["consume"])], nodes=("q",)
        )
        client = Client09(house, version=V09).channel()
        self.request(b"1", client=client)
        self.assertEqual(client.closes(), [("channel", 403)])

    def test_those_before_it(self) -> None:
        """Methods before a refused request are not lost."""
        client = self.connected()
        names = ("q", "q", "none")
        client.write(
            *(
                content(1, "tunnel.request", b"1", {"proxy-name": each}, class_id=110)
                for each in names
            )
        )
        self.assertEqual(client.closes(), [("channel", 404)])
        self.assertEqual(client.depth(), 2)

    def test_too_large(self) -> None:
        """A block is one mebibyte at most: 311."""
        client = self.connected(part_from=1000)
        self.request(b"x" * 1001, client=client)
        self.assertEqual(client.closes(), [("channel", 311)])

    def test_in_a_transaction(self) -> None:
        """On a transacted channel it is put with the commit."""
        client = self.connected()
        client.ask("tx.select")
        self.request(b"1", client=client)
        self.assertEqual(client.depth(), 0)
        client.ask("tx.commit")
        self.assertEqual(client.depth(), 1)

    def test_flow(self) -> None:
        """With channel.flow off it waits; a cancel before it is sent leaves it on its node."""
        self.client.ask("basic.consume", queue="q", consumer_tag="c")
        self.client.ask("channel.flow", active=0)
        self.request(b"1")
        self.assertEqual(self.client.run().bodies(), [])
        self.client.ask("basic.cancel", consumer_tag="c")
        self.assertEqual(self.house.broker.nodes["q"].available, 1)
        self.client.ask("channel.flow", active=1)
        self.client.ask("basic.consume", queue="q")
        self.assertEqual(self.client.bodies(), [b"1"])


class BroadcastTests(TunnelCase):
    def test_everybody(self) -> None:
        """With broadcast all consumers of 0-9 of the node get it, each once."""
        others = [self.connected() for _ in range(3)]
        for each in (self.client, *others):
            each.ask("basic.consume", queue="q", no_ack=1)
        self.client.ask("basic.consume", 2, queue="q")
        elsewhere = self.connected()
        elsewhere.ask("basic.consume", queue="r")
        self.request(b"all", broadcast=1)
        self.assertEqual(self.client.run().bodies(), [b"all", b"all"])
        for each in others:
            self.assertEqual(each.run().bodies(), [b"all"])
        self.assertEqual(elsewhere.run().bodies(), [])
        self.assertEqual(self.client.depth(), 0)
        self.request(b"one", broadcast=0)
        found = [each.run().bodies() for each in (self.client, *others)]
        self.assertEqual(sorted(found), [[], [], [], [b"one"]])

    def test_those_who_wait(self) -> None:
        """A client that has stopped contents gets its copies later, as many as are kept for it."""
        slow = self.connected()
        slow.ask("basic.consume", queue="q", consumer_tag="slow", filter=[("x-priority", "I", -1)])
        slow.ask("channel.flow", active=0)
        self.client.ask("basic.consume", queue="q")
        for number in range(MOST_COPIES + 5):
            self.request(b"%d" % number, broadcast=1)
        self.assertEqual(len(self.client.run().bodies()), MOST_COPIES + 5)
        (connection,) = [
            each
            for each in self.house.shared.connections
            for row in each.link_rows()
            if row.get("consumer-tag") == "slow"
        ]
        rows = [row for row in connection.link_rows() if row.get("consumer-tag") == "slow"]
        self.assertEqual([row["broadcasts-lost"] for row in rows], [5])
        slow.ask("channel.flow", active=1)
        found = slow.bodies()
        self.assertEqual(found, [b"%d" % number for number in range(MOST_COPIES)])

    def test_octets_of_those_who_wait(self) -> None:
        """So it is with octets: a mebibyte is kept for a consumer."""
        slow = self.connected()
        slow.ask("basic.consume", queue="q", filter=[("x-priority", "I", -1)])
        slow.ask("channel.flow", active=0)
        self.client.ask("basic.consume", queue="q")
        for _ in range(5):
            self.request(b"x" * 400_000, broadcast=1)
        self.client.run()
        slow.ask("channel.flow", active=1)
        self.assertEqual(len(slow.bodies()), 2)


class AbroadTests(SynchronousTestCase):
    def test_another_organization(self) -> None:
        """A request to an address elsewhere arrives there as one, with all that it has."""
        world = Network()
        alpha, beta = world.house(), world.house("b.test", nodes=("gate",))
        here = Client09(alpha, version=V09).channel()
        there = Client09(beta, version=V09).channel()
        there.ask("basic.consume", queue="gate")
        properties = {
            "proxy-name": "gate@b.test", "data-name": "n", "durable": 1, "headers": [("a", "I", 1)]
        }  # fmt: skip
        here.put("tunnel.request", b"block", properties=properties, meta_data=META)
        for _ in range(10):
            world.advance(0.5)
        ((_, name, arguments, found, body),) = there.run().contents
        self.assertEqual((name, body), ("tunnel.request", b"block"))
        self.assertEqual(arguments, {"meta-data": META})
        headers = {name: value for name, _, value in found.pop("headers")}
        self.assertEqual(headers["a"], 1)
        properties.pop("headers")
        self.assertEqual(found, properties)
        self.assertEqual(here.closes(), [])
