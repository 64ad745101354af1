# SPDX-License-Identifier: Apache-2.0
"""Methods of 0-9 and 0-9-1 in any order leave the broker intact.

A fault of the program would be logged, and fail the test; what a client leaves is given back.
"""

from __future__ import annotations

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, call, content

PHRASES = (
    call(1, "channel.open"),
    call(1, "channel.close"),
    call(1, "channel.close-ok"),
    call(1, "queue.declare", queue="x", durable=1),
    call(1, "queue.declare", queue="y", exclusive=1),
    call(1, "queue.declare", queue="z", auto_delete=1),
    call(1, "queue.delete", queue="x"),
    call(1, "queue.delete", queue="y"),
    call(1, "queue.purge", queue="x"),
    call(1, "queue.bind", queue="x", exchange="e", routing_key="#"),
    call(1, "exchange.declare", exchange="e", type="topic", durable=1),
    call(1, "exchange.delete", exchange="e"),
    content(1, "basic.publish", b"1", {"delivery-mode": 2}, routing_key="x"),
    content(1, "basic.publish", b"2", routing_key="y", mandatory=1),
    content(1, "basic.publish", b"3", routing_key="z@b.test"),
    content(1, "basic.publish", b"4", routing_key="x", immediate=1),
    content(1, "basic.publish", b"5", exchange="e", routing_key="k"),
    call(1, "basic.consume", queue="x"),
    call(1, "basic.consume", queue="y", no_ack=1),
    call(1, "basic.consume", queue="z", consumer_tag="z"),
    call(1, "basic.consume", queue="x", consumer_tag="t", exclusive=1),
    call(1, "basic.cancel", consumer_tag="t"),
    call(1, "basic.cancel", consumer_tag="z"),
    call(1, "basic.get", queue="x"),
    call(1, "basic.get", queue="y", no_ack=1),
    call(1, "basic.ack", delivery_tag=0, multiple=1),
    call(1, "basic.nack", delivery_tag=0, multiple=1, requeue=1),
    call(1, "basic.reject", delivery_tag=1),
    call(1, "basic.recover-sync", requeue=1),
    call(1, "basic.recover", requeue=0),
    call(1, "basic.qos", prefetch_count=1),
    call(1, "basic.qos", prefetch_size=3),
    call(1, "channel.flow", active=0),
    call(1, "channel.flow", active=1),
    call(1, "confirm.select"),
    call(1, "tx.select"),
    call(1, "tx.commit"),
    call(1, "tx.rollback"),
    content(1, "stream.publish", b"6", class_id=80, routing_key="x", mandatory=1),
    content(1, "stream.publish", b"7", class_id=80, exchange="e", routing_key="k", immediate=1),
    content(1, "tunnel.request", b"8", {"proxy-name": "x", "broadcast": 1}, class_id=110),
    content(1, "tunnel.request", b"9", {"proxy-name": "z@b.test"}, class_id=110),
    call(1, "stream.consume", queue="x", consumer_tag="s"),
    call(1, "stream.consume", queue="y"),
    call(1, "stream.cancel", consumer_tag="s"),
    call(1, "stream.qos", prefetch_count=1, consume_rate=10),
    call(1, "stream.qos", prefetch_size=1),
    call(0, "connection.close", reply_code=200),
)
SEQUENCES = 300


class SequenceTests(SynchronousTestCase):
    def test_any_order(self) -> None:
        """Hundreds of sequences leave no message in nobody's hands, and no exclusive queue."""
        random = Random(7)
        world = Network()
        world.dns_seconds = 0.5
        world.house("b.test", nodes=("z",))
        house = world.house()
        for number in range(SEQUENCES):
            client = Client09(house, version=(V09, V091)[number % 2]).channel()
            house.store.is_held = random.random() < 0.3
            phrases = [random.choice(PHRASES) for _ in range(random.randint(1, 25))]
            cut = random.randint(0, len(phrases))
            client.write(*phrases[:cut])
            if not client.end.is_gone:
                client.write(*phrases[cut:])
            if house.store.is_held:
                house.store.let_go()
            if not client.end.is_gone:
                client.hang_up()
            world.advance(1)
            for queue in house.broker.nodes.values():
                self.assertEqual((queue.acquired, queue.consumers), (0, 0), phrases)
            self.assertNotIn("y", house.broker.nodes)
            self.assertEqual(house.shared.memory.used_bytes, 0)
            self.assertEqual(len(house.shared.connections), 0)
