# SPDX-License-Identifier: Apache-2.0
"""Clients that receive: outcomes, drain, limits, dynamic nodes, ends of links."""

from __future__ import annotations

from typing import Any

from amqproute import conditions
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.message import Message
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node, put
from tests.support.memory_broker import MemoryBroker, Network


class OutboundCase(HouseTestCase):
    """A house with a queue ``q`` that has a dead-letter node, and a client."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.build()

    def build(self, **options: Any) -> None:
        """Build the house and connect the client."""
        self.house = MemoryBroker(
            self.network,
            "alpha.example",
            node("q", "dead", max_deliveries=3),
            node("dead"),
            **options,
        )
        self.client = self.house.client()
        self.run_now()

    def put(self, *bodies: bytes, **kind: Any) -> None:
        """Put messages on ``q``."""
        put(self.house.broker, self.house.broker.nodes["q"], *(message(b, **kind) for b in bodies))
        self.run_now()

    def received(self, *bodies: bytes, **fields: Any) -> list[Any]:
        """Put messages on ``q`` and receive them."""
        self.put(*bodies)
        self.link = self.client.receiver("q", 100, **fields)
        self.run_now()
        return self.client.deliveries


class OutcomeTests(OutboundCase):
    """Outcomes of a receiver (O-10 to O-17)."""

    def test_accepted(self) -> None:
        """It is gone, here and from the store."""
        deliveries = self.received(b"1", b"2")
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        self.client.settle(deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual((self.house.depth("q"), self.house.bodies("q")), (0, []))

    def test_each_outcome(self) -> None:
        """Released and modified come again; rejected is a dead letter."""
        released, failed, rejected = self.received(b"1", b"2", b"3")
        self.client.settle([rejected], spec.Rejected())
        self.client.settle([failed], spec.Modified(delivery_failed=True))
        self.client.settle([released], spec.Released())
        self.run_now()
        self.assertEqual(self.client.bodies()[3:], [b"2", b"1"])
        again = [Message(each.payload).header for each in self.client.deliveries[3:]]
        self.assertEqual([header.delivery_count for header in again], [1, 0])
        self.assertEqual([header.first_acquirer for header in again], [False, False])
        self.assertEqual((self.house.bodies("dead"), self.house.depth("q")), ([b"3"], 2))

    def test_unsettled_outcomes_are_settled_by_us(self) -> None:
        """An outcome that leaves the settling to us is answered when it is durable."""
        (delivery,) = self.received(b"1")
        self.client.settle([delivery], spec.Accepted(), settled=False)
        self.run_now()
        self.assertEqual((self.link.unsettled, self.house.depth("q")), ({}, 0))

    def test_outcome_counts_once(self) -> None:
        """Told twice, or told and then settled, it happens once."""
        first, second = self.received(b"1", b"2")
        for settled in (False, False, True):
            self.client.settle([first], spec.Rejected(), settled)
        self.client.settle([second], spec.Accepted(), False)
        self.client.flush()
        self.run_now()
        self.assertEqual(self.house.depth("dead"), 1)
        queue = self.house.broker.nodes["q"]
        self.assertEqual((queue.depth, queue.acquired), (0, 0))

    def test_outcome_and_gone(self) -> None:
        """A link that goes before we have settled does not give the message back."""
        (delivery,) = self.received(b"1")
        self.client.settle([delivery], spec.Accepted(), settled=False)
        self.link.detach()
        self.client.flush()
        self.run_now()
        queue = self.house.broker.nodes["q"]
        self.assertEqual((queue.depth, queue.acquired, self.house.bodies("q")), (0, 0, []))

    def test_contradiction(self) -> None:
        """An outcome is final; another one detaches the link (O-15)."""
        first, _ = self.received(b"1", b"2")
        self.client.settle([first], spec.Accepted(), False)
        self.client.settle([first], spec.Rejected(), False)
        self.run_now()
        self.assertDetached(self.client, self.link, conditions.ILLEGAL_STATE)
        self.assertEqual((self.house.depth("q"), self.house.depth("dead")), (1, 0))
        self.assertEqual(self.house.broker.nodes["q"].consumers, 0)

    def test_settled_without_outcome(self) -> None:
        """The source's default outcome decides (O-14); released if it has none."""
        (delivery,) = self.received(b"1")
        self.client.settle([delivery], None)
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1", b"1"])
        default = spec.Source(address="q", default_outcome=spec.Rejected())
        self.link.detach()
        self.client.flush()
        self.run_now()
        self.client.receiver(None, 10, "other", source=default)
        self.run_now()
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.assertEqual((self.house.depth("q"), self.house.depth("dead")), (0, 1))

    def test_transactions(self) -> None:
        """A transaction that is not known ends the link; what it held comes again."""
        (delivery,) = self.received(b"1")
        self.client.settle([delivery], spec.TransactionalState(txn_id=b"t"), False)
        self.run_now()
        self.assertDetached(self.client, self.link, conditions.TRANSACTION_UNKNOWN_ID)
        self.assertEqual(self.house.broker.nodes["q"].available, 1)

    def test_settled_deliveries(self) -> None:
        """A receiver that wants settled deliveries has them at most once."""
        self.received(b"1", b"2", snd_settle_mode=spec.SENDER_SETTLED)
        self.assertTrue(all(each.settled for each in self.client.deliveries))
        self.assertEqual((self.house.depth("q"), self.house.bodies("q")), (0, []))

    def test_store_fails(self) -> None:
        """An outcome that cannot be written harms neither link nor figures."""
        (delivery,) = self.received(b"1")
        self.house.store.is_failing = True
        self.client.settle([delivery], spec.Accepted(), False)
        self.run_now()
        self.assertGreaterEqual(len(self.flushLoggedErrors()), 1)
        self.assertIsNone(self.client.closed)
        self.assertEqual(self.house.broker.nodes["q"].acquired, 0)
        self.assertEqual(self.house.bodies("q"), [b"1"])

    def test_too_large(self) -> None:
        """A receiver that cannot take a message does not keep others from theirs."""
        self.put(bytes(1000), b"small")
        self.client.receiver("q", 10, max_message_size=500)
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"small"])
        other = self.house.client(container_id="other")
        other.receiver("q", 10)
        self.run_now()
        self.assertEqual(other.bodies(), [bytes(1000)])


class FlowTests(OutboundCase):
    """Credit, drain and bounds (F-10)."""

    def test_credit(self) -> None:
        """No more than the receiver asked for."""
        self.put(b"1", b"2", b"3")
        link = self.client.receiver("q", 2)
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        link.flow(1)
        self.client.flush()
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1", b"2", b"3"])

    def test_drain(self) -> None:
        """A drain is answered with what there is, and with giving up the rest."""
        self.put(b"1")
        link = self.client.receiver("q")
        self.run_now()
        link.flow(5, drain=True)
        self.client.flush()
        self.run_now()
        self.assertEqual((self.client.bodies(), link.credit), ([b"1"], 0))
        link.flow(5, drain=True)
        self.client.flush()
        self.run_now()
        self.assertEqual(link.credit, 0)
        self.put(b"2")
        self.assertEqual(self.client.bodies(), [b"1"])

    def test_drain_of_a_barred_consumer(self) -> None:
        """Also when what is left is not for this receiver."""
        (delivery,) = self.received(b"1")
        self.client.settle([delivery], spec.Modified(undeliverable_here=True))
        self.run_now()
        self.link.flow(5, drain=True)
        self.client.flush()
        self.run_now()
        self.assertEqual((self.link.credit, len(self.client.deliveries)), (0, 1))

    def test_unsettled_are_bounded(self) -> None:
        """A receiver that never settles gets no more than the limits."""
        self.build(limits=FrontendLimits(unsettled=3))
        deliveries = self.received(*[b"%d" % number for number in range(9)])
        self.assertEqual(len(deliveries), 3)
        self.client.settle(deliveries[:1], spec.Accepted())
        self.run_now()
        self.assertEqual(len(self.client.deliveries), 4)

    def test_bytes_are_bounded(self) -> None:
        """In bytes as well, though one delivery always passes."""
        self.build(limits=FrontendLimits(unsettled_bytes=1000))
        link = self.client.receiver("q", 100)
        self.run_now()
        self.put(bytes(5000))
        self.put(bytes(5000))
        self.assertEqual(len(self.client.deliveries), 1)
        self.client.settle(self.client.deliveries[:1], spec.Accepted())
        self.run_now()
        self.assertEqual(len(self.client.deliveries), 2)
        self.assertEqual(link.credit, 98)

    def test_paused(self) -> None:
        """A transport that is full stops deliveries, and a drained one goes on."""
        self.client.receiver("q", 100)
        self.run_now()
        (frontend,) = self.house.shared.connections
        frontend.paused()
        self.put(b"1", b"2")
        self.assertEqual(self.client.deliveries, [])
        frontend.writable()
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_stopping(self) -> None:
        """A daemon that stops hands nothing out, and knows what is held."""
        deliveries = self.received(b"1")
        (frontend,) = self.house.shared.connections
        self.house.shared.is_stopping = True
        self.put(b"2")
        self.assertEqual(len(self.client.deliveries), 1)
        self.assertFalse(frontend.holds_nothing)
        self.client.settle(deliveries, spec.Accepted())
        self.run_now()
        self.assertTrue(frontend.holds_nothing)
        self.assertTrue(frontend.is_idle)

    def test_shared_window(self) -> None:
        """Two links of one session share its window and lose nothing."""
        self.build()
        client = self.house.client(incoming_window=4)
        self.run_now()
        for name in ("one", "two"):
            client.receiver("q", 100, name)
        self.run_now()
        self.put(*[b"%d" % number for number in range(40)])
        self.run_now()
        self.assertEqual(sorted(client.bodies()), sorted(b"%d" % n for n in range(40)))


class LinkTests(OutboundCase):
    """Sources that are not, and links that go."""

    def test_refused(self) -> None:
        """Each with its condition."""
        for number, (condition, source) in enumerate(
            (
                (conditions.NOT_FOUND, spec.Source(address="nowhere")),
                (conditions.NOT_FOUND, None),
                (conditions.INVALID_FIELD, spec.Source()),
                (conditions.NOT_ALLOWED, spec.Source(address="q@beta.example")),
                (conditions.NOT_ALLOWED, spec.Source(address="amqp$transfer")),
                (conditions.NOT_ALLOWED, spec.Source(address="amqp$out/beta.example")),
                (conditions.NOT_IMPLEMENTED,
                 spec.Source(address="q", outcomes=(Symbol("x:list"),))),
                (conditions.INVALID_FIELD, spec.Source(address="x", dynamic=True)),
            )
        ):  # fmt: skip
            link = self.client.receiver(None, 0, f"in{number}", source=source)
            self.run_now()
            self.assertDetached(self.client, link, condition)

    def test_detached(self) -> None:
        """Entries of a link are released when it ends (O-06)."""
        self.received(b"1", b"2")
        self.link.detach()
        self.client.flush()
        self.run_now()
        self.assertEqual(self.house.broker.nodes["q"].available, 2)
        other = self.house.client()
        other.receiver("q", 10)
        self.run_now()
        self.assertEqual(other.bodies(), [b"1", b"2"])

    def test_lost(self) -> None:
        """And when the connection goes without a word (Q-34)."""
        self.received(b"1", b"2")
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        queue = self.house.broker.nodes["q"]
        self.assertEqual((queue.available, queue.consumers), (2, 0))
        self.assertEqual((self.house.shared.connections, self.house.amqp10.links), (set(), {}))

    def test_stolen(self) -> None:
        """A link that is taken over gives its messages to the one that took it."""
        self.received(b"1")
        other = self.house.client()
        other.receiver("q", 10)
        self.run_now()
        self.assertDetached(self.client, self.link, conditions.LINK_STOLEN)
        self.assertEqual(other.bodies(), [b"1"])
        self.assertEqual(self.house.broker.nodes["q"].consumers, 1)

    def test_dynamic(self) -> None:
        """A dynamic node lives as long as its link, and others may send to it (N-19, N-22)."""
        link = self.client.receiver(None, 10, source=spec.Source(dynamic=True))
        self.run_now()
        assert link.source is not None
        name = link.source.address
        self.assertIn(name, self.house.broker.dynamic)
        other = self.house.client(container_id="other")
        sender = other.sender(name)
        self.run_now()
        other.send(sender, message(b"reply"))
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"reply"])
        link.detach()
        self.client.flush()
        self.run_now()
        self.assertEqual(self.house.broker.dynamic, set())
        self.assertNotIn(name, self.house.broker.nodes)

    def test_dynamic_goes_with_the_connection(self) -> None:
        """Also when nobody says goodbye."""
        for name in ("one", "two"):
            self.client.receiver(None, 10, name, source=spec.Source(dynamic=True))
        self.client.sender(None, "three", target=spec.Target(dynamic=True))
        self.run_now()
        self.assertEqual(len(self.house.broker.dynamic), 3)
        self.client.wire.cut()  # type: ignore[attr-defined]
        self.run_now()
        self.assertEqual(self.house.broker.dynamic, set())

    def test_attached_and_gone_at_once(self) -> None:
        """Attach, detach and close in one read leave nothing behind."""
        link = self.client.receiver("q", 5)
        link.detach()
        self.client.connection.close()
        self.client.flush()
        self.put(b"1")
        self.run_now()
        queue = self.house.broker.nodes["q"]
        self.assertEqual((queue.available, queue.consumers), (1, 0))
        self.assertEqual(self.house.shared.connections, set())
