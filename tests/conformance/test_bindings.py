# SPDX-License-Identifier: Apache-2.0
"""Bindings to nodes of other organizations: source, relay queue, peer (N-09 to N-12, T-09)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.node_declaration import TopicDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.errors import ConfigError
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import START_MS, FrameBroker, Network, bare, message, section_of

DURABLE = spec.Header(durable=True)


class AbroadTests(SynchronousTestCase):
    """Two brokers; what is on ``t`` and ``out`` of the first is for ``inbox`` of the second."""

    def setUp(self) -> None:
        self.world = Network()
        self.near = self.world.house("a.test", nodes=["out", "q"])
        self.far = self.world.house("b.test", nodes=["inbox", "small"])
        self.near.broker.add(TopicDeclaration("t"))
        self.producer = self.near.client().ready("producer")
        self.count = 0

    def bind(self, source: str, target: str = "inbox@b.test", selector: str | None = None) -> Any:
        """Make a binding."""
        return self.near.broker.bind(BindingDeclaration(source, target, selector))

    def send(self, node: str, *encoded: bytes) -> list[Any]:
        """Send messages to a node of the first broker; return the outcomes."""
        handle = self.count
        self.producer.sender(node, handle, f"to {node} {handle}")
        for each in encoded:
            self.producer.publish(self.count, each, handle)
            self.count += 1
        return [each.state for each in self.producer.all(spec.Disposition)]

    def sent(self, node: str, *bodies: bytes, **fields: Any) -> None:
        """Send messages with these bodies; all are accepted."""
        header = fields.pop("header", DURABLE)
        made = [message(body, header=header, **fields) for body in bodies]
        states = self.send(node, *made)
        self.assertTrue(states)
        self.assertTrue(all(isinstance(state, spec.Accepted) for state in states), states)

    def received(self, house: FrameBroker | None = None, node: str = "inbox") -> list[bytes]:
        """Take everything off a node of the second broker."""
        client = (house or self.far).client().ready("consumer")
        client.receiver(node, credit=100, snd_settle_mode=spec.SENDER_SETTLED)
        return client.run().messages()

    def bodies(self, node: str = "inbox") -> list[bytes]:
        """The same, bodies only."""
        return [section_of(each, spec.SECTION_DATA) for each in self.received(node=node)]

    @property
    def relay_queue(self) -> Queue:
        """The place of messages for the second broker."""
        (queue,) = self.near.broker.internal.values()
        return queue

    def test_topic(self) -> None:
        """Selected messages arrive, in order, the bare message octet for octet."""
        self.bind("t", selector="color = 'red'")
        red = message(
            b"1", header=DURABLE, application={"color": "red"}, to="t@a.test", message_id="m"
        )
        self.send("t", red, message(b"2", application={"color": "blue"}))
        self.sent("t", b"3", b"4", application={"color": "red"})
        self.world.advance(1)
        first, *others = self.received()
        self.assertEqual(bare(first), bare(red))
        annotations = section_of(first, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(list(annotations["x-opt-amqproute-trace"]), ["a.test"])
        self.assertEqual([section_of(each, spec.SECTION_DATA) for each in others], [b"3", b"4"])
        self.assertEqual(self.relay_queue.depth, 0)

    def test_queue(self) -> None:
        """A queue's messages move: there is one of each, here or there, at any time."""
        binding = self.bind("out")
        self.world.down.add("amqp.b.test")
        self.sent("out", b"1", b"2", b"3")
        self.assertEqual((self.near.depth("out"), self.relay_queue.depth), (0, 3))
        self.assertEqual(binding.moved, 3)
        self.world.down.clear()
        self.world.advance(400)
        self.assertEqual((self.relay_queue.depth, self.bodies()), (0, [b"1", b"2", b"3"]))

    def test_connection_lost(self) -> None:
        """The connection breaks with outcomes on their way: nothing is lost, or twice."""
        self.bind("out")
        self.sent("out", b"0")
        self.world.advance(1)
        self.far.store.is_held = True
        self.sent("out", b"1", b"2")
        self.world.advance(0.1)
        self.world.cut_all()
        self.far.store.let_go()
        self.far.store.is_held = False
        self.world.advance(400)
        self.assertEqual(self.bodies(), [b"0", b"1", b"2"])
        self.assertEqual(self.relay_queue.depth, 0)

    def test_full(self) -> None:
        """A relay queue that is full takes the binding's credit, and gives it back (N-12)."""
        self.bind("out")
        self.world.down.add("amqp.b.test")
        self.sent("out", b"0")
        self.relay_queue.limits = QueueLimits(capacity=2)
        self.sent("out", b"1", b"2", b"3")
        self.assertEqual((self.near.depth("out"), self.relay_queue.depth), (2, 2))
        self.world.down.clear()
        self.world.advance(400)
        self.assertEqual((self.near.depth("out"), self.relay_queue.depth), (0, 0))
        self.assertEqual(self.bodies(), [b"0", b"1", b"2", b"3"])

    def test_lifetime(self) -> None:
        """The time on the source and in the relay queue is taken off the ttl (D-09)."""
        header = spec.Header(durable=True, ttl=100_000)
        self.sent("out", b"1", header=header)
        self.world.advance(20)
        self.world.down.add("amqp.b.test")
        self.bind("out")
        self.world.advance(10)
        self.world.down.clear()
        self.world.advance(40)
        (got,) = self.received()
        left = section_of(got, spec.SECTION_HEADER).ttl
        self.assertLessEqual(left, 100_000 - (self.world.now_ms() - START_MS) + 10)
        self.assertGreater(left, 0)

    def test_both_ends_elsewhere(self) -> None:
        """A binding begins at a node here."""
        declaration = BindingDeclaration("inbox@b.test", "q")
        with self.assertRaises(ConfigError):
            self.near.broker.declare([], {}, [declaration])

    def test_fan_out(self) -> None:
        """A node here, two abroad: everybody gets a copy, within one commit of the publisher."""
        self.world.house("c.test", nodes=["inbox"])
        for target in ("q", "inbox@b.test", "inbox@c.test"):
            self.bind("t", target)
        self.sent("t", b"1", b"2")
        self.world.advance(1)
        third = self.world.houses["amqp.c.test"]
        self.assertEqual(self.bodies(), [b"1", b"2"])
        self.assertEqual(len(self.received(third)), 2)
        self.assertEqual(self.near.depth("q"), 2)

    def test_no_such_node(self) -> None:
        """The peer knows no such node: that does not hold up what goes elsewhere on it."""
        self.bind("out", "nobody@b.test")
        self.bind("t")
        self.sent("out", b"lost")
        self.sent("t", b"1")
        self.world.advance(400)
        self.assertEqual(self.bodies(), [b"1"])
        self.assertEqual(self.near.depth("out"), 0)
