# SPDX-License-Identifier: Apache-2.0
"""Lifetimes: memory-only messages (D-03), dynamic nodes (N-22)."""

from __future__ import annotations

import uuid
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.errors import StoreError
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import Client, Network, attach, condition, message
from tests.support.plain_decoder import frames

DETACH, END, CLOSE = 0x16, 0x17, 0x18


class MemoryOnlyTests(SynchronousTestCase):
    """D-03: what is not durable, and was accepted, survives everything but the process's end."""

    count = 40
    everything = [b"%d" % number for number in range(count)]

    def setUp(self) -> None:
        self.house = Network().house(nodes=[NodeDeclaration("q", QueueLimits(resident_messages=5))])
        self.producer = self.house.client().ready("producer")
        self.producer.sender()
        self.producer.names()
        for number, body in enumerate(self.everything):
            self.producer.publish(number, message(body, header=spec.Header(durable=False)))
        states = [each.state for each in self.producer.all(spec.Disposition)]
        self.assertEqual({type(state) for state in states}, {spec.Accepted})
        self.assertEqual(self.house.depth(), self.count)

    def consumer(self, credit: int) -> Client:
        """Return a client of its own, with credit."""
        client = self.house.client().ready(str(uuid.uuid4()))
        client.receiver(credit=credit)
        client.run()
        return client

    def assert_all_are_there(self) -> None:
        """Take everything, in order."""
        client = self.consumer(2 * self.count)
        self.assertEqual(client.bodies(), self.everything)
        client.dispose(0, self.count - 1)
        self.assertEqual(self.house.depth(), 0)

    def test_more_than_memory_holds(self) -> None:
        """Most of them stand on the disk, and come back."""
        self.assertLessEqual(self.house.broker.nodes["q"].resident, 5)
        self.producer.hang_up()
        self.house.world.advance(86_400)
        self.assert_all_are_there()

    def test_consumers_come_to_grief(self) -> None:
        """Connections break, links close, sessions end, outcomes release and fail."""
        for end in (spec.Detach(handle=0, closed=True), spec.End(), spec.Close(), None):
            client = self.consumer(15)
            self.assertEqual(client.bodies(), self.everything[:15])
            client.dispose(0, 3, state=spec.Released())
            client.dispose(4, 6, state=spec.Modified(delivery_failed=True))
            if end is None:
                client.hang_up()
            else:
                client.send(end)
        self.assert_all_are_there()

    def test_disk_fails(self) -> None:
        """The store takes nothing for a while, when they are taken and given back."""
        self.house.store.is_full = True
        client = self.consumer(20)
        client.dispose(0, 3, state=spec.Released())
        client.hang_up()
        self.house.world.advance(60)
        self.house.store.is_full = False
        self.house.world.advance(60)
        self.flushLoggedErrors(StoreError)
        self.assert_all_are_there()

    def test_other_bounds(self) -> None:
        """A change of the configuration leaves what is there in its place."""
        for limits in (QueueLimits(resident_messages=1), QueueLimits(capacity=3), QueueLimits()):
            self.house.broker.declare([NodeDeclaration("q", limits)], {})
            self.house.world.advance(1)
            self.assertEqual(self.house.depth(), self.count)
        self.assert_all_are_there()


class DynamicTests(SynchronousTestCase):
    """Nodes that a client has made."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.house.client().ready("maker")

    def make(self) -> str:
        """Make one that goes with its link, and put a message on it."""
        answer = self.client.receiver(None, source=spec.Source(dynamic=True))
        address = str(answer.source.address)
        sender = self.house.client().ready("sender")
        sender.sender(address)
        sender.publish(0, message(header=spec.Header(durable=True)))
        self.assertIsInstance(sender.one(spec.Disposition).state, spec.Accepted)
        return address

    def test_gone_before_the_answer(self) -> None:
        """N-22: when the answer to the act that ends it is written, the node is no more."""
        for act, answer in (
            (spec.Detach(handle=0, closed=True), DETACH),
            (spec.End(), END),
            (spec.Close(), CLOSE),
        ):
            self.setUp()
            address = self.make()
            self.assertIn(address, self.house.broker.nodes)
            there: list[bool] = []
            write = self.client.end.write

            def watched(
                octets: bytes,
                answer: int = answer,
                address: str = address,
                there: list[bool] = there,
                write: Any = write,
            ) -> None:
                for _, performative, _ in frames(octets):
                    if performative is not None and performative.descriptor == answer:
                        there.append(address in self.house.broker.nodes)
                write(octets)

            self.patch(self.client.end, "write", watched)
            self.client.send(act)
            self.assertEqual(there, [False], act)
            other = self.house.client().ready("other")
            for role in ("sender", "receiver"):
                other.send(attach(role, role, 0, address))
                self.assertEqual(condition(other.one(spec.Detach)), "amqp:not-found")
                other.send(spec.Detach(handle=0, closed=True))
                other.names()
            self.assertEqual(list(self.house.store._where), [])
