# SPDX-License-Identifier: Apache-2.0
"""The path of a message through two brokers, in memory (W-13)."""

from __future__ import annotations

from amqproute.message import Message
from amqproute.routing.trail import TRACE
from amqproute.values import ORIGIN
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network


class JourneyTests(HouseTestCase):
    """A client at alpha, a consumer at beta."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = MemoryBroker(self.network, "alpha.example", node("q"))

    def beta(self) -> MemoryBroker:
        """Put beta on the network."""
        return MemoryBroker(self.network, "beta.example", node("orders"))

    def test_there(self) -> None:
        """Published here, received there: the same octets, the same `to`, a trace."""
        beta = self.beta()
        client = self.alpha.client()
        link = client.sender("orders@beta.example")
        self.run_now()
        sent = message(b"body", to="orders@beta.example", annotations={"x-opt-own": 7})
        client.send(link, sent)
        self.run_now()
        self.assertOutcomes(client, "Accepted")
        consumer = beta.client()
        consumer.receiver("orders", 10)
        self.run_now()
        got = Message(consumer.deliveries[0].payload)
        self.assertEqual(got.bare, sent.bare)
        marks = {"x-opt-own": 7, TRACE: ["ct-alpha.example"], ORIGIN: "alpha.example"}
        self.assertEqual(got.annotations, marks)
        self.assertTrue(got.durable)
        consumer.settle(consumer.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual((beta.depth("orders"), self.alpha.depth("beta.example")), (0, 0))
        self.assertEqual(beta.store.rows("orders"), [])
        self.assertEqual(self.alpha.store.rows("amqp$out/beta.example"), [])

    def test_accepted_while_beta_is_down(self) -> None:
        """The client is served at once; the messages go when beta is there, in order."""
        self.network.dead.add("beta.example")
        client = self.alpha.client()
        link = client.sender("orders@beta.example")
        self.run_now()
        for number in range(5):
            client.send(link, message(b"%d" % number))
        self.run_now()
        self.assertOutcomes(client, *["Accepted"] * 5)
        self.assertEqual(self.alpha.depth("beta.example"), 5)
        beta = self.beta()
        self.run_for(20)
        self.assertEqual(beta.depth("orders"), 0)
        self.network.dead.clear()
        self.run_for(40)
        self.assertEqual(beta.bodies("orders"), [b"%d" % number for number in range(5)])
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_both_crash(self) -> None:
        """Cut anywhere, crash either: every message arrives, and arrives once."""
        beta = self.beta()
        client = self.alpha.client()
        link = client.sender("orders@beta.example")
        self.run_now()
        client.send(link, *(message(b"%02d" % number) for number in range(20)))
        self.step(15)
        for turns in range(2, 40, 3):
            client.send(link, message(b"%02d" % (20 + turns)))
            self.step(turns)
            if turns % 2:
                beta.crash()
                beta = MemoryBroker(self.network, "beta.example", node("orders"), store=beta.store)
            else:
                for wire in self.network.wires:
                    wire.cut()
            self.run_for(30)
        self.run_for(400, 5)
        expected = [b"%02d" % number for number in range(20)]
        expected += [b"%02d" % (20 + turns) for turns in range(2, 40, 3)]
        self.assertEqual(beta.bodies("orders"), expected)
        self.assertEqual(self.alpha.depth("beta.example"), 0)

    def test_alpha_crashes(self) -> None:
        """Messages accepted by alpha are sent by the next alpha, and kept by beta once."""
        beta = self.beta()
        for turns in range(1, 40):
            client = self.alpha.client()
            link = client.sender("orders@beta.example")
            self.run_now()
            client.send(link, message(b"%02d" % turns))
            self.step(turns)
            self.alpha.crash()
            store = self.alpha.store
            self.alpha = MemoryBroker(self.network, "alpha.example", node("q"), store=store)
            self.run_for(5)
        arrived = beta.bodies("orders")
        self.assertEqual(sorted(set(arrived)), sorted(arrived))
        self.assertGreater(len(arrived), 20)
        self.assertEqual(self.alpha.depth("beta.example"), 0)
