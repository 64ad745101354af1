# SPDX-License-Identifier: Apache-2.0
"""Credit closes for all publishers at once, and messages refused by a full disk wait for it."""

from __future__ import annotations

from typing import Any

from amqproute import conditions
from amqproute.broker.publish_gate import DAMAGE, DISK, MEMORY, STORE
from amqproute.frontends.common.frontend_limits import FrontendLimits
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.engine_events import PartsReceived
from amqproute.wire.amqp10.link import Delivery
from tests.frontends.test_receiver_link import BETA, InboundCase
from tests.support.fakes import message, node
from tests.support.reporting import asking, let_report, reports_on


class BrakeTests(InboundCase):
    def setUp(self) -> None:
        super().setUp()
        self.gate = self.house.broker.gate
        self.link = self.client.sender("q")
        self.run_now()

    def test_closes_and_opens(self) -> None:
        """Credit is revoked, what was on its way is taken; it comes back by itself."""
        self.assertEqual(self.link.credit, 10)
        self.gate.close(DISK, "full")
        self.client.send(self.link, message(b"1"))
        self.run_now()
        self.assertEqual(self.link.credit, 0)
        self.assertOutcomes(self.client, "Accepted")
        self.gate.open(DISK)
        self.run_now()
        self.assertEqual(self.link.credit, 10)

    def test_all_reasons(self) -> None:
        """It opens with the last reason."""
        self.gate.close(DISK, "full")
        self.gate.close(MEMORY, "much")
        self.gate.open(DISK)
        self.run_now()
        self.assertEqual(self.link.credit, 0)
        self.gate.open(MEMORY)
        self.run_now()
        self.assertEqual(self.link.credit, 10)

    def test_peers_and_newcomers(self) -> None:
        """Peers are braked like clients, and whoever comes now."""
        self.gate.close(DISK, "full")
        peer = self.house.client(BETA)
        self.run_now()
        transfer = peer.sender("amqp$transfer")
        other = self.house.client()
        self.run_now()
        link = other.sender("full")
        self.run_now()
        self.assertEqual((transfer.credit, link.credit), (0, 0))
        self.gate.open(DISK)
        self.run_now()
        self.assertGreater(transfer.credit, 0)
        self.assertEqual(link.credit, 3)

    def test_memory(self) -> None:
        """Octets on their way to the disk close it beyond the limit, and open it afterwards."""
        self.build(limits=FrontendLimits(link_credit=10, memory_bytes=1000))
        gate = self.house.broker.gate
        link = self.client.sender("q")
        self.run_now()
        states: list[bool] = []
        gate.watch(lambda: states.append(gate.is_open))
        self.client.send(link, *(message(b"x" * 300) for _ in range(5)))
        self.run_now()
        self.assertEqual(states, [False, True])
        self.assertOutcomes(self.client, *["Accepted"] * 5)
        self.assertEqual(self.house.shared.memory.used_bytes, 0)
        self.assertEqual(link.credit, 10)


class FullTests(InboundCase):
    """A store that takes nothing for now."""

    def setUp(self) -> None:
        super().setUp()
        self.gate = self.house.broker.gate
        self.link = self.client.sender("q")
        self.run_now()

    def settle_when_full(self, count: int, outcome: Any, settled: bool, *, stays: bytes) -> None:
        """Settle messages while the disk is full: one stays, until there is room for all."""
        link = self.client.receiver("q", count, name=f"in-{settled}")
        self.run_now()
        self.house.store.is_full = True
        self.client.settle(self.client.deliveries[-count:], outcome, settled=settled)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [stays])
        self.gate.open(STORE)
        self.run_now()
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [])
        link.detach(True)
        self.client.flush()
        self.run_now()

    def test_waits(self) -> None:
        """Nothing is said to the sender, and in the end all is there, once and in order."""
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"), message(b"2"))
        self.client.send(self.link, message(b"3"))
        self.run_now()
        self.assertEqual(list(self.gate.reasons), [STORE])
        self.assertEqual(self.link.credit, 0)
        self.assertTrue(self.link.is_active)
        self.assertOutcomes(self.client)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertOutcomes(self.client, "Accepted", "Accepted", "Accepted")
        self.assertEqual(self.house.bodies("q"), [b"1", b"2", b"3"])
        self.assertGreater(self.link.credit, 5)
        self.assertEqual(self.house.shared.memory.used_bytes, 0)

    def test_damaged(self) -> None:
        """A database that has proved damaged: the links end, so that what has no outcome was not
        taken; nobody gets credit any more, and what is there is delivered."""
        self.client.send(self.link, message(b"1"), message(b"2"))
        self.run_now()
        self.assertOutcomes(self.client, "Accepted", "Accepted")
        self.house.store.is_damaged = True
        self.client.send(self.link, message(b"3"))
        self.run_now()
        self.assertEqual(list(self.gate.reasons), [DAMAGE])
        error = self.assertDetached(self.client, self.link, conditions.INTERNAL_ERROR)
        self.assertIn("not taken", error.description)
        self.assertOutcomes(self.client, "Accepted", "Accepted")
        peer = self.house.client(BETA)
        self.run_now()
        links = [peer.sender("amqp$transfer"), self.client.sender("q", name="again")]
        self.run_now()
        self.assertEqual([each.credit for each in links], [0, 0])
        receiver = self.client.receiver("q", 5)
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        self.client.settle(self.client.deliveries, spec.Accepted(), settled=True)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [])
        self.assertTrue(receiver.is_active)
        # A commit that gets through proves nothing.
        self.house.store.is_damaged = False
        self.gate.open(STORE)
        self.run_now()
        self.assertFalse(self.gate.is_open)
        self.assertEqual([each.credit for each in links], [0, 0])

    def test_handed_out(self) -> None:
        """Messages delivered before the disk failed are in doubt, and are not put again."""
        consumer = self.house.client()
        self.run_now()
        consumer.receiver("q", credit=5)
        self.run_now()
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"))
        self.run_now()
        self.assertEqual(consumer.bodies(), [b"1"])
        self.assertEqual(list(self.gate.reasons), [STORE])
        error = self.assertDetached(self.client, self.link, conditions.INTERNAL_ERROR)
        self.assertIn("in doubt", error.description)
        self.assertOutcomes(self.client)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertEqual(consumer.bodies(), [b"1"])
        consumer.settle(consumer.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual((self.house.depth("q"), self.house.shared.memory.used_bytes), (0, 0))

    def test_handed_out_of_others(self) -> None:
        """Links none of whose messages was handed on wait for room, as if they were alone."""
        consumer = self.house.client()
        self.run_now()
        consumer.receiver("q", credit=5)
        quiet = [self.client.sender("full", name=name) for name in ("before", "behind")]
        self.run_now()
        self.house.store.is_full = True
        self.client.send(quiet[0], message(b"2"))
        self.client.send(self.link, message(b"1"))
        self.client.send(quiet[1], message(b"3"))
        self.run_now()
        self.assertEqual(consumer.bodies(), [b"1"])
        self.assertDetached(self.client, self.link, conditions.INTERNAL_ERROR)
        self.assertTrue(all(link.is_active for link in quiet))
        self.assertOutcomes(self.client)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertOutcomes(self.client, "Accepted", "Accepted")
        self.assertEqual(self.house.bodies("full"), [b"2", b"3"])
        consumer.settle(consumer.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual(self.house.shared.memory.used_bytes, 0)

    def test_not_trusted(self) -> None:
        """A store that has failed has to take a message before any goes ahead of it again."""
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"))
        self.run_now()
        consumer = self.house.client()
        self.run_now()
        consumer.receiver("q", credit=5)
        self.run_now()
        self.gate.open(STORE)  # somebody thinks there was room
        self.run_now()
        self.assertEqual((list(self.gate.reasons), consumer.bodies()), ([STORE], []))
        self.assertTrue(self.link.is_active)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertOutcomes(self.client, "Accepted")
        self.assertEqual(consumer.bodies(), [b"1"])
        self.assertFalse(self.gate.has_failed)

    def test_again_and_again(self) -> None:
        """It may fail more than once."""
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"), message(b"2"))
        self.run_now()
        for _ in range(3):
            self.gate.open(STORE)
            self.run_now()
            self.assertFalse(self.gate.is_open)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [b"1", b"2"])

    def test_sender_gone(self) -> None:
        """A message of a sender that is gone without an answer is not stored: it is sent again."""
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"))
        self.run_now()
        self.link.detach(True)
        self.client.flush()
        self.run_now()
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [])
        self.assertEqual(self.house.shared.memory.used_bytes, 0)

    def test_consumers_go_on(self) -> None:
        """Entries settled in the same read as a publisher's message leave the disk."""
        self.client.send(self.link, message(b"1"))
        self.client.receiver("q", 1)
        self.run_now()
        self.assertEqual(self.client.bodies(), [b"1"])
        self.house.store.is_full = True
        self.client.send(self.link, message(b"2"))
        self.client.settle(self.client.deliveries, spec.Accepted(), settled=False)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [])
        _, state, settled = self.client.updates[-1]
        self.assertTrue(isinstance(state, spec.Accepted) and settled)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [b"2"])

    def test_dead_letters(self) -> None:
        """A message rejected while its dead-letter node takes nothing is there in the end."""
        self.house.broker.add(node("dead"))
        self.house.broker.nodes["q"].dead_letter_name = "dead"
        for settled in (True, False):
            self.client.send(self.link, message(b"bad"))
            self.settle_when_full(1, spec.Rejected(), settled, stays=b"bad")
        self.assertEqual(self.house.bodies("dead"), [b"bad", b"bad"])
        self.assertEqual(self.house.depth("dead"), 2)

    def test_in_order(self) -> None:
        """Nothing overtakes what failed, whatever else waits, and whichever is ready first."""
        for is_gate_first in (True, False):
            before = self.house.bodies("q")
            domain = f"slow-{int(is_gate_first)}.example"
            self.network.silent.add(domain)
            link = self.client.sender(None, domain)
            self.run_now()
            self.house.store.is_full = True
            self.client.send(link, message(b"1", to="q"), message(b"2", to=f"x@{domain}"))
            self.client.send(link, message(b"3", to="q"))
            self.run_now()
            self.house.store.is_full = False
            if is_gate_first:
                self.gate.open(STORE)
                self.run_now()
                self.assertEqual(self.house.bodies("q"), [*before, b"1"])
            self.run_for(6)  # the DNS has not answered
            self.gate.open(STORE)
            self.run_now()
            self.assertEqual(self.house.bodies("q"), [*before, b"1", b"3"])
            self.assertEqual(self.house.shared.memory.used_bytes, 0)

    def test_in_order_of_failing(self) -> None:
        """Deliveries of a later failed commit stand before those that have come in between."""
        (frontend,) = self.house.shared.connections
        (link,) = frontend.links.attached
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"), message(b"2"), message(b"3"))
        self.run_now()
        line = link.context.waiting.lines[self.gate]
        came = list(line)
        line.remove(came[1])  # it is on its way to the store still, and the third has just come
        link.context.waiting._failed = 1
        link.context.wait_for(self.gate, [came[1]])
        self.assertEqual(list(line), came)
        self.house.store.is_full = False
        self.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.house.bodies("q"), [b"1", b"2", b"3"])

    def test_posting_gone(self) -> None:
        """A discharge does not wait for a posting that went with its link; it cannot commit."""
        (frontend,) = self.house.shared.connections
        transaction = frontend.transactions.declare(None)
        self.house.store.is_full = True
        self.client.send(self.link, message(b"1"))
        (link,) = frontend.links.attached
        self.run_now()
        state = spec.TransactionalState(txn_id=transaction.id)
        late = Delivery(link, 9, b"9", message(b"2").encoded, 0, False, state, False)
        frontend.event_batch.put_now(link.context, [late])
        self.assertEqual(transaction.pending, 1)
        self.link.detach(True)
        self.client.flush()
        self.run_now()
        self.assertEqual(transaction.pending, 0)
        self.assertIn("gone", str(transaction.doom))
        transaction.roll_back()

    def test_large_posting_known(self) -> None:
        """Nor for a very large posting whose outcome stands since an earlier attachment."""
        (frontend,) = self.house.shared.connections
        (link,) = frontend.links.attached
        transaction = frontend.transactions.declare(None)
        inbound = link.context
        inbound.resolved.outcomes[b"9"] = spec.Accepted()
        inbound._earlier = {b"9"}
        state = spec.TransactionalState(txn_id=transaction.id)
        known = Delivery(link, 9, b"9", b"", 0, False, state, False)
        inbound.parts_received(PartsReceived(link, known, [message(b"2").encoded], False, False))
        self.assertEqual(transaction.pending, 0)
        transaction.roll_back()

    def test_reports(self) -> None:
        """A sender is told in the end what a consumer accepted while the disk was full."""
        self.house.broker.add(node("back"))
        let_report(self.house)
        for settled in (True, False):
            self.client.send(self.link, asking(b"1", "delivered"), asking(b"2", "failure"))
            self.settle_when_full(2, spec.Accepted(), settled, stays=b"1")
        told = [report["code"] for report in reports_on(self.house)]
        self.assertEqual(told, ["done.delivered", "done.delivered"])
