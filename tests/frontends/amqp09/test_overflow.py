# SPDX-License-Identifier: Apache-2.0
"""``x-overflow: reject-publish-dlx``: refused messages of a full queue become dead letters."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_limits import QueueLimits
from amqproute.message import Message
from amqproute.values import Origin, Principal
from tests.conformance.frame_broker import FrameBroker, Network, message
from tests.frontends.amqp09.test_large_bodies import PART_FROM, large_house
from tests.support.client09 import Client09

PEER = Principal("peer", "b.test", frozenset({"b.test"}))


class RejectPublishTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.use(self.world.house())

    def use(self, house: FrameBroker, **changes: Any) -> None:
        """Have a full queue ``full`` whose dead letters go to ``dead``."""
        self.house = house
        self.client = Client09(house, **changes).channel()
        self.client.ask("queue.declare", queue="dead")
        arguments = [
            ("x-max-length", "I", 1),
            ("x-overflow", "S", b"reject-publish-dlx"),
            ("x-dead-letter-exchange", "S", b""),
            ("x-dead-letter-routing-key", "S", b"dead"),
        ]
        self.client.ask("queue.declare", queue="full", arguments=arguments)
        self.client.publish(b"first", key="full")

    def confirms(self) -> list[str]:
        self.client.run()
        return self.client.names()

    def dead(self) -> tuple[dict[str, Any], bytes]:
        """Get a dead letter; return its first death and its body."""
        self.assertEqual(self.client.ask("basic.get", queue="dead", no_ack=1), ["basic.get-ok"])
        _, _, _, properties, body = self.client.contents[0]
        headers = {name: value for name, _, value in properties["headers"]}
        ((_, death),) = headers["x-death"]
        return {name: value for name, _, value in death}, body

    def test_nack_and_dead_letter(self) -> None:
        """The publisher has a nack, the dead-letter queue the message."""
        self.client.ask("confirm.select")
        self.client.methods.clear()
        self.client.publish(b"more", key="full", properties={"type": "t"})
        self.assertEqual(self.confirms(), ["basic.nack"])
        self.assertEqual((self.client.depth("full"), self.client.depth("dead")), (1, 1))
        death, body = self.dead()
        self.assertEqual(body, b"more")
        self.assertEqual(
            (death["reason"], death["queue"], death["count"], death["routing-keys"]),
            (b"maxlen", b"full", 1, [("S", b"full")]),
        )

    def test_room_again(self) -> None:
        """With room the queue takes messages again."""
        self.client.ask("basic.get", queue="full", no_ack=1)
        self.client.publish(b"more", key="full")
        self.assertEqual((self.client.depth("full"), self.client.depth("dead")), (1, 0))

    def test_reject_publish(self) -> None:
        """Without -dlx a refused message is gone."""
        arguments = [
            ("x-max-length", "I", 0),
            ("x-overflow", "S", b"reject-publish"),
            ("x-dead-letter-exchange", "S", b"amq.fanout"),
        ]
        self.client.ask("queue.declare", queue="strict", arguments=arguments)
        self.client.ask("queue.bind", queue="dead", exchange="amq.fanout")
        self.client.publish(b"more", key="strict")
        self.assertEqual((self.client.depth("strict"), self.client.depth("dead")), (0, 0))

    def test_among_others(self) -> None:
        """Of several queues one is full: none gets the message, and it is a dead letter once."""
        for name in ("q", "full"):
            self.client.ask("queue.bind", queue=name, exchange="amq.fanout")
        self.client.ask("confirm.select")
        self.client.methods.clear()
        self.client.publish(b"more", exchange="amq.fanout", key="any")
        self.assertEqual(self.confirms(), ["basic.nack"])
        self.assertEqual((self.client.depth("q"), self.client.depth("dead")), (0, 1))

    def test_several_full(self) -> None:
        """Each full queue makes a dead letter of the message; the publisher has one nack."""
        arguments = [
            ("x-max-length", "I", 1),
            ("x-overflow", "S", b"reject-publish-dlx"),
            ("x-dead-letter-exchange", "S", b""),
            ("x-dead-letter-routing-key", "S", b"dead"),
        ]
        self.client.ask("queue.declare", queue="full-too", arguments=arguments)
        self.client.publish(b"first", key="full-too")
        for name in ("q", "full", "full-too"):
            self.client.ask("queue.bind", queue=name, exchange="amq.fanout")
        self.client.ask("confirm.select")
        self.client.methods.clear()
        self.client.publish(b"more", exchange="amq.fanout", key="any")
        self.assertEqual(self.confirms(), ["basic.nack"])
        self.assertEqual((self.client.depth("q"), self.client.depth("dead")), (0, 2))
        deaths = []
        for _ in range(2):
            death, body = self.dead()
            self.client.contents.clear()
            deaths.append((death["queue"], body))
        self.assertEqual(sorted(deaths), [(b"full", b"more"), (b"full-too", b"more")])

    def test_transaction(self) -> None:
        """A transaction that a full queue breaks leaves nothing."""
        self.client.ask("tx.select")
        self.client.publish(b"more", key="full")
        self.client.ask("tx.commit")
        self.assertEqual(self.client.closes(), [("channel", 406)])
        self.assertEqual((self.client.depth("full"), self.client.depth("dead")), (1, 0))

    def test_one_step(self) -> None:
        """A full dead-letter queue refuses for good: full queues in a row, or a circle, end."""
        self.house.broker.nodes["dead"].limits = QueueLimits(
            capacity=1, octets=0, buries_refused=True
        )
        self.client.publish(b"more", key="full").publish(b"again", key="full")
        self.assertEqual((self.client.depth("full"), self.client.depth("dead")), (1, 0))

    def test_large_message(self) -> None:
        """A message that comes in parts is taken whole, refused, and a dead letter."""
        self.use(large_house(self.world, "c.test"), part_from=PART_FROM)
        body = bytes(range(256)) * (PART_FROM // 64)
        self.client.ask("confirm.select")
        self.client.methods.clear()
        self.client.publish(body, key="full")
        for _ in range(10):
            self.client.run()
        self.assertEqual(self.client.names(), ["basic.nack"])
        self.client.ask("basic.get", queue="dead", no_ack=1)
        for _ in range(10):
            self.client.run()
        self.assertEqual(self.client.contents[0][4], body)

    def test_peers(self) -> None:
        """A partner's broker keeps what is refused and tries again: no dead letter each time."""
        queue = self.house.broker.nodes["full"]
        found = Message(message(b"more"))
        for origin, count in ((Origin(PEER, is_peer=True), 0), (Origin(PEER), 1)):
            batch = self.house.broker.begin()
            self.assertEqual(queue.refuse(found, batch, origin), bool(count))
            batch.commit()
            self.world.advance()
            self.assertEqual(self.client.depth("dead"), count)
