# SPDX-License-Identifier: Apache-2.0
"""Queues created by links, if the operator permits it (Q-38)."""

from __future__ import annotations

import itertools

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.errors import StoreError
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import Client, FrameBroker, Network, attach, condition

ANN = Principal("user", "ann")
RIGHTS = ["publish", "consume", "create"]


class AutoCreateTests(SynchronousTestCase):
    """A broker whose user may make queues whose names begin with ``team.``."""

    def setUp(self) -> None:
        self.world = Network()
        self.handles = itertools.count(10)

    def house(self, auto_create: bool = True) -> FrameBroker:
        """Make the broker."""
        rules = [
            Rule.of(who="*", node="team.*", allow=RIGHTS),
            Rule.of(who="*", node="*", allow=["publish", "consume"]),
        ]
        return self.world.house("a.test", nodes=[], access=rules, auto_create=auto_create)

    def refused(self, client: Client, role: str, address: str, **fields: object) -> str | None:
        """Attach where that is refused; return the condition."""
        handle = next(self.handles)
        client.send(attach(role, f"link {handle}", handle, address, **fields))
        answer = client.one(spec.Attach)
        self.assertIsNone(answer.target if role == "sender" else answer.source)
        return condition(client.one(spec.Detach))

    def test_off(self) -> None:
        """Off, which is the default: no link makes a node, whatever its holder may."""
        house = self.house(auto_create=False)
        client = house.client(ANN).ready()
        for role in ("sender", "receiver"):
            self.assertEqual(self.refused(client, role, "team.a"), "amqp:not-found")
        self.assertEqual(house.broker.nodes, {})

    def test_producer_and_consumer_meet(self) -> None:
        """The first client creates the queue, by any spelling; operators delete it."""
        house = self.house()
        client = house.client(ANN).ready()
        for number, (role, address) in enumerate(
            (("sender", "team.a"), ("receiver", "team.b@a.test"), ("sender", "/queues/team.c"))
        ):
            answer = getattr(client, role)(address, handle=number)
            terminus = answer.target if role == "sender" else answer.source
            self.assertEqual(terminus.address, address)
        self.assertEqual(sorted(house.broker.nodes), ["team.a", "team.b", "team.c"])
        client.publish(0)
        client.run()
        consumer = house.client(ANN).ready("consumer")
        consumer.receiver("team.a", credit=1)
        self.assertEqual(consumer.bodies(), [b"0"])
        self.assertEqual(house.inventory.origin("team.a")["made-by"], "user:ann")
        house.client(ANN).ready("again").sender("team.a")

    def test_not_made(self) -> None:
        """No right to create, a peer, a topic, a bad name, a service, a reserved name."""
        house = self.house()
        client = house.client(ANN).ready()
        for role in ("sender", "receiver"):
            self.assertEqual(self.refused(client, role, "other"), "amqp:not-found")
        asked = spec.Target(address="team.t", capabilities=(Symbol("topic"),))
        found = self.refused(client, "sender", "team.t", target=asked)
        self.assertEqual(found, "amqp:not-found")
        peer = house.client(Principal("peer", "b.test", frozenset({"b.test"}))).ready("b.test")
        self.assertIsNotNone(self.refused(peer, "sender", "team.a"))
        self.assertIsNotNone(self.refused(client, "sender", "amqp$nothing"))
        self.assertEqual(self.refused(client, "sender", "team." + "x" * 2000), "amqp:invalid-field")
        self.assertEqual(house.broker.nodes, {})
        client.sender("amqp$transfer", handle=7)
        client.publish(0, handle=7)
        self.assertEqual(house.broker.nodes, {})

    def test_bounded(self) -> None:
        """The bound of nodes holds, and one more is refused with its name."""
        house = self.house()
        house.inventory.most_nodes = 2
        client = house.client(ANN).ready()
        client.sender("team.a", handle=0)
        client.sender("team.b", handle=1)
        self.assertEqual(self.refused(client, "sender", "team.c"), "amqp:resource-limit-exceeded")
        self.assertEqual(len(house.broker.nodes), 2)

    def test_answered_when_durable(self) -> None:
        """The attach is answered when the queue is on the disk; if it cannot be, there is none."""
        house = self.house()
        client = house.client(ANN).ready()
        house.store.is_held = True
        client.send(attach("sender", "s", 0, "team.a"))
        self.assertTrue(client.none(spec.Attach))
        house.store.let_go()
        client.run()
        self.assertEqual(client.one(spec.Attach).target.address, "team.a")
        house.store.is_full = True
        client.send(attach("sender", "s2", 1, "team.b"))
        client.run()
        self.assertIsNone(client.one(spec.Attach).target)
        self.assertEqual(condition(client.one(spec.Detach)), "amqp:internal-error")
        self.assertEqual(list(house.broker.nodes), ["team.a"])
        self.flushLoggedErrors(StoreError)
