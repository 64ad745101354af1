# SPDX-License-Identifier: Apache-2.0
"""Local transactions (part 4), frame by frame: topic X."""

from __future__ import annotations

import random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.local_transaction import TransactionLimits
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.transaction_registry import OPERATION_OCTETS, TRANSACTION_OCTETS
from amqproute.errors import StoreError, Unresolved
from amqproute.values import EXACTLY_ONCE_CAPABILITY, Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import Described, Symbol, ULong
from tests.conformance.frame_broker import (
    ACCEPTED,
    Client,
    Network,
    attach,
    body_of,
    condition,
    frame,
    message,
)
from tests.support.fakes import topic

COORDINATOR = 9
"""The handle of the coordinator link."""
UNKNOWN = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
TIMEOUT = "amqp:transaction:timeout"


def within(txn_id: bytes, outcome: Any = None) -> spec.TransactionalState:
    """Return a transactional state."""
    return spec.TransactionalState(txn_id=txn_id, outcome=outcome)


class TransactionCase(SynchronousTestCase):
    """A house with the queues ``q`` and ``r``, and a client with a coordinator link."""

    house_options: dict[str, Any] = {}

    def setUp(self) -> None:
        self.world = Network()
        self.build(**self.house_options)

    def build(self, **options: Any) -> None:
        """Build the house and connect the controller."""
        options.setdefault("nodes", ["q", "r"])
        self.house = self.world.house(**options)
        self.client = self.house.client().ready("controller")
        self.count = 0
        self.attach_coordinator()

    def attach_coordinator(self, handle: int = COORDINATOR, **fields: Any) -> spec.Attach:
        """Attach a coordinator link; return the answer."""
        given = {"source": None, "target": spec.Coordinator(), **fields}
        self.client.send(attach("sender", f"txn-{handle}", handle, None, **given))
        return self.client.one(spec.Attach)

    def number(self) -> int:
        """Return the next delivery-id of the controller's session."""
        self.count += 1
        return self.count - 1

    def control(self, body: Any, handle: int = COORDINATOR, **fields: Any) -> int:
        """Send a message to the coordinator; return its delivery-id."""
        encoded = codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), body))
        number = self.number()
        self.client.publish(number, encoded, handle, **fields)
        return number

    def declare(self, handle: int = COORDINATOR) -> bytes:
        """Declare a transaction; return its id."""
        number = self.control(spec.Declare(), handle)
        answer = self.client.one(spec.Disposition)
        self.assertEqual((answer.first, answer.role, answer.settled), (number, True, True))
        assert isinstance(answer.state, spec.Declared)
        return answer.state.txn_id

    def discharge(self, txn_id: bytes, fail: bool = False) -> list[spec.Disposition]:
        """Discharge; return the dispositions that come of it."""
        self.control(spec.Discharge(txn_id=txn_id, fail=fail))
        return self.client.all(spec.Disposition)

    def commit(self, txn_id: bytes) -> list[spec.Disposition]:
        """Commit; prove that it was accepted first; return the other dispositions."""
        first, *others = self.discharge(txn_id)
        self.assertEqual((first.first, first.settled), (self.count - 1, True))
        self.assertIsInstance(first.state, spec.Accepted)
        return others

    def roll_back(self, txn_id: bytes) -> list[spec.Disposition]:
        """Roll back; prove that it was accepted first; return the other dispositions."""
        first, *others = self.discharge(txn_id, True)
        self.assertEqual((first.first, first.settled), (self.count - 1, True))
        self.assertIsInstance(first.state, spec.Accepted)
        return others

    def assertFails(self, txn_id: bytes, wanted: str) -> list[spec.Disposition]:
        """A commit is rejected; return the other dispositions."""
        first, *others = self.discharge(txn_id)
        self.assertTrue(first.settled)
        self.assertIsInstance(first.state, spec.Rejected)
        self.assertEqual(condition(first.state), wanted)
        return others

    def post(self, txn_id: bytes, body: bytes = b"x", handle: int = 0, **fields: Any) -> int:
        """Send a message within a transaction."""
        number = self.number()
        encoded = fields.pop("encoded", None) or message(body)
        self.client.publish(number, encoded, handle, state=within(txn_id), **fields)
        return number

    def consumer(self, address: str = "q", credit: int = 10) -> Client:
        """Return another connection with a consumer."""
        client = self.house.client().ready("consumer")
        client.receiver(address, credit=credit)
        return client

    def receive(self, *bodies: bytes, handle: int = 1, **fields: Any) -> None:
        """Put messages on ``q`` and have the controller receive them."""
        self.client.fill(bodies)
        self.client.receiver("q", handle, credit=10, **fields)
        self.assertEqual(self.client.bodies(), list(bodies))

    def dispose(self, txn_id: bytes, first: int, last: int | None = None, **fields: Any) -> None:
        """Send an outcome within a transaction, unsettled unless said."""
        outcome = fields.pop("outcome", spec.Accepted())
        given = {"settled": False, **fields}
        self.client.dispose(first, last, within(txn_id, outcome), **given)

    @property
    def queue(self) -> Any:
        """The queue ``q``."""
        return self.house.broker.nodes["q"]

    def counts(self) -> tuple[int, int]:
        """Return what is available on ``q`` and what is acquired."""
        return self.queue.available, self.queue.acquired


class CoordinatorTests(TransactionCase):
    """The coordinator link."""

    def test_attach(self) -> None:
        """X-12, X-13: it is recognized, without a source too; the answer says what is so."""
        answer = self.attach_coordinator(7)
        self.assertIsNone(answer.source)
        self.assertIsInstance(answer.target, spec.Coordinator)
        self.assertEqual(
            set(answer.target.capabilities),
            {"amqp:local-transactions", "amqp:multi-txns-per-ssn", "amqp:multi-ssns-per-txn"},
        )
        asked = spec.Coordinator(capabilities=(spec.TXN_LOCAL,))
        answer = self.attach_coordinator(8, target=asked, source=spec.Source())
        self.assertIn(spec.TXN_LOCAL, answer.target.capabilities)
        self.assertIsNotNone(answer.source)
        self.declare(8)

    def test_peers(self) -> None:
        """T-33: to a peer there is no coordinator."""
        peer = self.house.client(Principal("peer", "b.test", frozenset({"b.test"}))).ready("b")
        peer.send(attach("sender", "t", 0, None, target=spec.Coordinator()))
        self.assertIsNone(peer.one(spec.Attach).target)
        self.assertEqual(condition(peer.one(spec.Detach)), "amqp:not-allowed")

    def test_declare(self) -> None:
        """X-03, X-23, X-24: unsettled, with a null id, answered settled with an id of ours."""
        ids = {self.declare() for _ in range(3)}
        self.assertEqual(len(ids), 3)
        self.assertTrue(all(0 < len(each) <= 32 for each in ids))

    def test_many_transactions(self) -> None:
        """X-10: several transactions in one session, each on its own."""
        first, second = self.declare(), self.declare()
        self.client.sender("q", 0)
        self.post(first, b"1")
        self.post(second, b"2")
        self.client.all(spec.Disposition)
        self.roll_back(first)
        self.commit(second)
        self.assertEqual(self.consumer().bodies(), [b"2"])

    def test_global_id(self) -> None:
        """X-24: distributed transactions are not offered."""
        self.control(spec.Declare(global_id=b"xid"))
        answer = self.client.one(spec.Disposition)
        self.assertTrue(answer.settled)
        self.assertEqual(condition(answer.state), "amqp:not-implemented")

    def test_settled_declare(self) -> None:
        """X-23: nobody would learn the id."""
        self.control(spec.Declare(), settled=True)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-allowed")

    def test_other_messages(self) -> None:
        """A coordinator is sent declare and discharge, and nothing else."""
        for encoded in (
            message(b"x"),
            codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), "declare")),
            codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), spec.Accepted())),
        ):
            self.client.publish(self.number(), encoded, COORDINATOR)
            answer = self.client.one(spec.Disposition)
            self.assertEqual(condition(answer.state), "amqp:invalid-field")
        for encoded in (b"", b"\x00", b"\x00\x53\x77"):
            self.client.publish(self.number(), encoded, COORDINATOR)
            answer = self.client.one(spec.Disposition)
            self.assertIsInstance(answer.state, spec.Rejected)
        self.declare()

    def test_rejected_is_not_allowed(self) -> None:
        """X-26: a link whose source does not know rejected is detached with the error."""
        self.attach_coordinator(5, source=spec.Source(outcomes=(ACCEPTED,)))
        self.control(spec.Discharge(txn_id=b"nothing", fail=False), 5)
        detach = self.client.one(spec.Detach)
        self.assertEqual(condition(detach), UNKNOWN)

    def test_settled_discharge(self) -> None:
        """A discharge that is settled is done; there is nothing to answer."""
        txn_id = self.declare()
        self.client.sender("q", 0)
        self.post(txn_id)
        self.client.all(spec.Disposition)
        number = self.control(spec.Discharge(txn_id=txn_id), settled=True)
        firsts = [each.first for each in self.client.all(spec.Disposition)]
        self.assertNotIn(number, firsts)
        self.assertEqual(self.house.depth(), 1)

    def test_unknown(self) -> None:
        """X-31: an id that is unknown, or finished, is refused everywhere."""
        txn_id = self.declare()
        self.commit(txn_id)
        for each in (txn_id, b"nothing", b"", b"x" * 1000):
            self.assertEqual(self.assertFails(each, UNKNOWN), [])
        self.client.sender("q", 0)
        self.post(txn_id)
        self.assertEqual(condition(self.client.one(spec.Disposition).state), UNKNOWN)
        self.receive(b"1")
        self.dispose(txn_id, 0)
        self.assertEqual(condition(self.client.one(spec.Detach)), UNKNOWN)
        self.assertEqual(self.counts(), (1, 0))
        self.client.receiver("q", 2)
        self.client.credit(1, 2, drain=True, properties={Symbol("txn-id"): txn_id})
        self.assertEqual(condition(self.client.one(spec.Detach)), UNKNOWN)
        self.assertEqual(self.client.bodies(), [])

    def test_too_many(self) -> None:
        """Open transactions have a bound, and a name for it."""
        self.house.shared.transactions.limits = TransactionLimits(open=2)
        self.declare()
        txn_id = self.declare()
        self.control(spec.Declare())
        answer = self.client.one(spec.Disposition)
        self.assertEqual(condition(answer.state), "amqp:resource-limit-exceeded")
        self.roll_back(txn_id)
        self.declare()

    def test_credit(self) -> None:
        """Any number of transactions, one after the other, on one link."""
        for _ in range(150):
            self.roll_back(self.declare())
        self.assertEqual(self.client.all(spec.Detach), [])
        timers = [call for call in self.world.clock.getDelayedCalls() if call.getTime() >= 120]
        self.assertEqual(timers, [])
        self.assertEqual(len(self.house.frontends[0].transactions), 0)

    def test_other_connection(self) -> None:
        """X-05: a transaction is known on its connection only."""
        txn_id = self.declare()
        other = self.house.client().ready("other")
        other.sender("q")
        other.publish(0, state=within(txn_id))
        self.assertEqual(condition(other.one(spec.Disposition).state), UNKNOWN)

    def test_stopping(self) -> None:
        """A daemon that is being stopped lets transactions end, and begins none."""
        txn_id = self.declare()
        self.client.sender("q", 0)
        self.post(txn_id)
        self.client.all(spec.Disposition)
        self.house.shared.is_stopping = True
        self.house.frontends[0].stop_taking()
        self.control(spec.Declare())
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Rejected)
        self.commit(txn_id)
        self.assertEqual(self.house.depth(), 1)


class PostingTests(TransactionCase):
    """Messages sent in a transaction."""

    def setUp(self) -> None:
        super().setUp()
        self.client.sender("q", 0)
        self.client.all(spec.Flow)
        self.txn_id = self.declare()

    def test_invisible(self) -> None:
        """X-06, X-25: before the commit nobody sees it; afterwards it is there once."""
        consumer = self.consumer()
        self.post(self.txn_id, b"1")
        self.assertEqual((consumer.run().bodies(), self.house.depth()), ([], 0))
        self.client.all(spec.Disposition)
        self.commit(self.txn_id)
        self.assertEqual(consumer.run().bodies(), [b"1"])
        self.assertEqual(consumer.run(1000).bodies(), [])

    def test_row(self) -> None:
        """An operator sees what a transaction holds, for how long, and that it is doomed."""
        self.post(self.txn_id, b"1")
        self.client.publish(self.number(), message(b"2"), 0, state=within(self.txn_id))
        self.client.run(2)
        (connection,) = self.house.shared.connections
        (row,) = connection.transaction_rows()
        self.assertEqual(
            {key: row[key] for key in ("name", "state", "postings", "outcomes", "nodes")},
            {
                "name": self.txn_id.hex(),
                "state": "open",
                "postings": 2,
                "outcomes": 0,
                "nodes": ["q"],
            },
        )
        self.assertEqual(row["bytes"], len(message(b"1")) + len(message(b"2")))
        self.assertEqual((row["principal"], row["protocol"]), ("anonymous", "AMQP 1.0"))
        self.assertEqual((row["idle-ms"], row["timeout-ms"]), (2000, 120_000))
        self.client.all(spec.Disposition)
        self.commit(self.txn_id)
        self.assertEqual(list(connection.transaction_rows()), [])

    def test_mixed(self) -> None:
        """X-01, X-02, K-11: one link carries both; no session is fixed to a mode."""
        consumer = self.consumer()
        self.post(self.txn_id, b"within")
        self.client.publish(self.number(), message(b"without"), 0)
        self.assertEqual(consumer.run().bodies(), [b"without"])
        self.client.all(spec.Disposition)
        other = self.declare()
        self.post(other, b"rolled back")
        self.client.publish(self.number(), message(b"again without"), 0)
        self.client.all(spec.Disposition)
        self.roll_back(other)
        self.assertEqual(consumer.run().bodies(), [b"again without"])
        self.commit(self.txn_id)
        self.assertEqual(consumer.run().bodies(), [b"within"])

    def test_provisional(self) -> None:
        """X-14, X-15: every posting gets a provisional outcome, which settles nothing."""
        numbers = [self.number() for _ in range(3)]
        state = within(self.txn_id)
        self.client.write(*(self.client.transfer(each, state=state) for each in numbers))
        answer = self.client.one(spec.Disposition)
        self.assertEqual((answer.first, answer.last), (numbers[0], numbers[-1]))
        self.assertEqual((answer.role, answer.settled), (True, False))
        assert isinstance(answer.state, spec.TransactionalState)
        self.assertEqual(answer.state.txn_id, self.txn_id)
        self.assertIsInstance(answer.state.outcome, spec.Accepted)

    def test_settled_after_commit(self) -> None:
        """X-16, X-18, X-27, X-30: the coordinator's answer first, then plain accepted."""
        first = self.post(self.txn_id)
        last = self.post(self.txn_id)
        self.client.all(spec.Disposition)
        self.house.store.is_held = True
        self.assertEqual(self.discharge(self.txn_id), [])
        self.house.store.let_go()
        self.client.run()
        commit, answer = self.client.all(spec.Disposition)
        self.assertEqual((commit.first, commit.settled), (self.count - 1, True))
        self.assertIsInstance(commit.state, spec.Accepted)
        self.assertEqual((answer.first, answer.last, answer.settled), (first, last, True))
        self.assertIsInstance(answer.state, spec.Accepted)

    def test_rolled_back(self) -> None:
        """X-08, X-22: nothing arrives, and the deliveries are settled released."""
        consumer = self.consumer()
        number = self.post(self.txn_id)
        self.client.all(spec.Disposition)
        (answer,) = self.roll_back(self.txn_id)
        self.assertEqual((answer.first, answer.settled), (number, True))
        self.assertIsInstance(answer.state, spec.Released)
        self.assertEqual((consumer.run().bodies(), self.house.depth()), ([], 0))

    def test_flagged(self) -> None:
        """M-21: a message flagged non-transacted is there at once, and stays there."""
        for ends in (self.roll_back, self.commit):
            txn_id = self.declare()
            flagged = message(b"1", annotations={"x-opt-non-transacted": True})
            number = self.post(txn_id, encoded=flagged)
            plain = self.post(txn_id, encoded=message(b"2", annotations={"x-opt-other": 1}))
            answers = {each.first: each for each in self.client.all(spec.Disposition)}
            self.assertTrue(answers[number].settled)
            self.assertIsInstance(answers[number].state, spec.Accepted)
            self.assertIsInstance(answers[plain].state, spec.TransactionalState)
            self.assertEqual(self.counts(), (1, 0))
            (answer,) = ends(txn_id)
            self.assertEqual(answer.first, plain)
            self.client.receiver("q", 7, credit=10, snd_settle_mode=spec.SENDER_SETTLED)
            self.assertEqual(self.client.bodies()[:1], [b"1"])
            self.client.send(spec.Detach(handle=7, closed=True))

    def test_false_flag(self) -> None:
        """M-21: the flag is a boolean, and true."""
        for value in (False, "true", 1):
            self.post(self.txn_id, encoded=message(annotations={"x-opt-non-transacted": value}))
        self.assertEqual(self.counts(), (0, 0))
        self.client.all(spec.Disposition)
        self.commit(self.txn_id)
        self.assertEqual(self.counts(), (3, 0))

    def test_flagged_and_refused(self) -> None:
        """M-21: what becomes of a flagged message does not concern the transaction."""
        self.house.broker.nodes["r"].limits = QueueLimits(capacity=1)
        self.client.fill([b"0"], "r")
        self.client.send(attach("sender", "full", 3, "r"))
        flagged = message(annotations={"x-opt-non-transacted": True})
        number = self.post(self.txn_id, handle=3, encoded=flagged)
        (answer,) = self.client.all(spec.Disposition)
        self.assertEqual((answer.first, answer.settled), (number, True))
        self.assertIsInstance(answer.state, spec.Rejected)
        self.post(self.txn_id, b"1")
        self.client.all(spec.Disposition)
        self.commit(self.txn_id)
        self.assertEqual(self.counts(), (1, 0))

    def test_flow_is_not_transactional(self) -> None:
        """F-09, F-12, X-04: a rollback gives no credit back, and undoes no attach."""
        granted = self.house.frontends[0]
        (link,) = [each for each in granted.links.attached if each.name == "sender-0"]
        before = link.credit, link.delivery_count
        for _ in range(3):
            self.post(self.txn_id)
        self.client.all(spec.Disposition)
        self.client.sender("r", 4)
        self.roll_back(self.txn_id)
        self.assertEqual((link.credit, link.delivery_count), (before[0] - 3, before[1] + 3))
        self.client.publish(self.number(), handle=4)
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)

    def test_larger_than_the_window(self) -> None:
        """A transaction may hold more messages than a link has credit."""
        self.build(limits={"link_credit": 4})
        self.client.sender("q", 0)
        txn_id = self.declare()
        for _ in range(20):
            self.post(txn_id)
        self.assertEqual(self.client.all(spec.Detach), [])
        self.client.all(spec.Disposition)
        self.commit(txn_id)
        self.assertEqual(self.house.depth(), 20)

    def test_settled_by_the_sender(self) -> None:
        """K-16: a sender that settles, when it sends or on the provisional outcome."""
        self.post(self.txn_id, b"1", settled=True)
        number = self.post(self.txn_id, b"2")
        self.client.all(spec.Disposition)
        self.client.dispose(number, state=within(self.txn_id), role=False)
        self.assertEqual(self.house.depth(), 0)
        self.assertEqual(self.commit(self.txn_id), [])
        self.assertEqual(self.consumer().bodies(), [b"1", b"2"])

    def test_order(self) -> None:
        """Postings keep their order; what was sent plainly before the discharge is before them."""
        self.client.write(
            self.client.transfer(self.number(), message(b"1"), state=within(self.txn_id)),
            self.client.transfer(self.number(), message(b"2"), state=within(self.txn_id)),
            self.client.transfer(self.number(), message(b"0")),
            self.client.transfer(
                self.number(),
                codec.encode(
                    Described(
                        ULong(spec.SECTION_AMQP_VALUE),
                        spec.Discharge(txn_id=self.txn_id, fail=False),
                    )
                ),
                COORDINATOR,
            ),
            self.client.transfer(self.number(), message(b"3")),
        )
        self.assertEqual(self.consumer().bodies(), [b"0", b"1", b"2", b"3"])

    def test_none_and_local(self) -> None:
        """X-01: beside an open transaction every plain transfer is one on its own, whole or not."""
        self.post(self.txn_id, b"within")
        self.client.all(spec.Disposition)
        consumer = self.consumer()
        whole = message(b"plain")
        number = self.number()
        first = spec.Transfer(handle=0, delivery_id=number, delivery_tag=b"t", message_format=0,
                              more=True)  # fmt: skip
        self.client.write(frame(first, whole[:3]))
        self.assertEqual((consumer.run().bodies(), self.house.depth()), ([], 0))
        self.client.write(frame(spec.Transfer(handle=0), whole[3:]))
        answer = self.client.one(spec.Disposition)
        self.assertEqual((answer.first, answer.settled), (number, True))
        self.assertIsInstance(answer.state, spec.Accepted)
        self.assertEqual(consumer.run().bodies(), [b"plain"])
        self.client.sender("amqp$transfer", 4)
        for to, wanted in (("q", None), ("nowhere", "amqp:not-found"), ("q", None)):
            self.client.publish(self.number(), message(to.encode(), to=to), 4)
            state = self.client.one(spec.Disposition).state
            found = None if isinstance(state, spec.Accepted) else condition(state)
            self.assertEqual(found, wanted)
        self.assertEqual(consumer.run().bodies(), [b"q", b"q"])
        self.commit(self.txn_id)
        self.assertEqual(consumer.run().bodies(), [b"within"])

    def test_several_links(self) -> None:
        """X-05: one transaction on several links and sessions of the connection."""
        self.client.sender("r", 4)
        self.client.begun(1)
        self.client.sender("r", 0, "elsewhere", channel=1)
        self.post(self.txn_id, b"1")
        self.post(self.txn_id, b"2", 4)
        self.client.publish(0, message(b"3"), channel=1, state=within(self.txn_id))
        self.client.all(spec.Disposition)
        answers = self.commit(self.txn_id)
        self.assertEqual(len(answers), 3)
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (1, 2))

    def test_link_gone(self) -> None:
        """Postings stay when their link ends before the discharge."""
        self.post(self.txn_id, b"1")
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.all(spec.Disposition)
        self.assertEqual(self.commit(self.txn_id), [])
        self.assertEqual(self.house.depth(), 1)

    def test_refused(self) -> None:
        """X-16: what cannot be taken is refused at once, and the transaction with it."""
        self.client.sender("amqp$transfer", 4)
        self.post(self.txn_id, b"1")
        self.client.all(spec.Disposition)
        number = self.post(self.txn_id, handle=4, encoded=message(b"2", to="nowhere"))
        answer = self.client.one(spec.Disposition)
        self.assertEqual((answer.first, answer.settled), (number, True))
        self.assertEqual(condition(answer.state), "amqp:not-found")
        (answer,) = self.assertFails(self.txn_id, ROLLBACK)
        self.assertIsInstance(answer.state, spec.Released)
        self.assertEqual(self.house.depth(), 0)

    def test_malformed(self) -> None:
        """A malformed message is rejected, and its transaction cannot be committed (M-24)."""
        self.post(self.txn_id, b"1")
        self.client.all(spec.Disposition)
        self.post(self.txn_id, encoded=b"\x00\x53\x77\xa1\x05")
        state = self.client.one(spec.Disposition).state
        self.assertEqual(condition(state), "amqp:decode-error")
        self.assertTrue(self.client.none(spec.End))
        self.assertFails(self.txn_id, ROLLBACK)
        self.assertEqual(self.house.depth(), 0)
        self.assertEqual(len(self.house.frontends[0].transactions), 0)

    def test_full_at_the_discharge(self) -> None:
        """X-16, X-26: there was room for each, but there is not for all: nothing is done."""
        self.build(nodes=[NodeDeclaration("q", QueueLimits(capacity=3)), "r"])
        self.client.sender("r", 4)
        self.client.sender("q", 0)
        txn_id = self.declare()
        self.post(txn_id, b"0", 4)
        for _ in range(2):
            self.post(txn_id)
        self.client.fill([b"a", b"b"])
        self.client.all(spec.Disposition)
        answers = self.assertFails(txn_id, ROLLBACK)
        self.assertTrue(all(isinstance(each.state, spec.Released) for each in answers))
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (2, 0))
        self.assertEqual(self.queue.space(), 1)
        txn_id = self.declare()
        self.post(txn_id)
        self.client.all(spec.Disposition)
        self.commit(txn_id)
        self.assertEqual(self.house.depth("q"), 3)

    def test_full_by_the_commit(self) -> None:
        """Q-15: whoever could send to a queue can no more when a commit has filled it."""
        self.build(nodes=[NodeDeclaration("q", QueueLimits(capacity=3)), "r"])
        others = [self.house.client().ready(f"other-{number}") for number in range(2)]
        for client in (self.client, *others):
            client.sender("q", 0)
        links = [
            link
            for frontend in self.house.frontends
            for link in frontend.links.attached
            if link.name == "sender-0"
        ]
        self.assertEqual(sum(link.credit for link in links), 3)
        txn_id = self.declare()
        for _ in range(3):
            self.post(txn_id)
        self.client.all(spec.Disposition)
        self.assertGreater(sum(link.credit for link in links), 0)
        self.commit(txn_id)
        self.assertEqual([link.credit for link in links], [0, 0, 0])
        self.receive_all()
        self.assertEqual(sum(link.credit for link in links), 3)

    def receive_all(self) -> None:
        """Have somebody take everything off ``q``."""
        consumer = self.consumer()
        consumer.dispose(0, len(consumer.bodies()) - 1)

    def test_makes_its_own_room(self) -> None:
        """Q-15: what a transaction archives does not count against what it puts there."""
        self.build(nodes=[NodeDeclaration("q", QueueLimits(capacity=2)), "r"])
        self.receive(b"1", b"2")
        self.client.sender(None, 5)
        for is_committed in (False, True):
            txn_id = self.declare()
            self.dispose(txn_id, 0)
            self.post(txn_id, encoded=message(b"3", to="q"), handle=5)
            (promise,) = self.client.all(spec.Disposition)
            self.assertEqual(promise.state, within(txn_id, spec.Accepted()))
            if is_committed:
                self.commit(txn_id)
            else:
                self.roll_back(txn_id)
            self.assertEqual((self.house.depth("q"), self.queue.space()), (2, 0))
        self.assertEqual(self.client.bodies(), [b"3"])
        txn_id = self.declare()
        self.dispose(txn_id, 1)
        for body in (b"4", b"5"):
            self.post(txn_id, encoded=message(body, to="q"), handle=5)
        self.client.all(spec.Disposition)
        self.assertFails(txn_id, ROLLBACK)
        self.assertEqual(self.house.depth("q"), 2)

    def test_store_fails(self) -> None:
        """X-11, X-26: what the store cannot write is rolled back as a whole."""
        self.receive(b"1", b"2")
        self.post(self.txn_id, b"3")
        self.dispose(self.txn_id, 0)
        self.dispose(self.txn_id, 1, outcome=spec.Rejected())
        self.client.all(spec.Disposition)
        self.house.store.is_full = True
        (answer,) = self.assertFails(self.txn_id, ROLLBACK)
        self.assertIsInstance(answer.state, spec.Released)
        self.assertEqual(self.counts(), (0, 2))
        self.house.store.is_full = False
        self.assertFails(self.txn_id, UNKNOWN)
        self.client.dispose(0, 1)
        self.assertEqual((self.counts(), self.house.depth()), ((0, 0), 0))
        self.flushLoggedErrors(StoreError)

    def test_bounds(self) -> None:
        """The operations of transactions have named bounds; a rollback frees the room."""
        terms = self.house.shared.transactions
        self.roll_back(self.txn_id)
        size = len(message(b"x"))
        charged = TRANSACTION_OCTETS + 2 * (OPERATION_OCTETS + size)
        for limits, name in (
            (TransactionLimits(connection_bytes=2 * size), "transaction-bytes"),
            # A connection that is alone may have half of the half that its principal may have.
            (TransactionLimits(total_bytes=4 * charged), "transaction-bytes"),
            (TransactionLimits(operations=2), "transaction-operations"),
        ):
            terms.limits = limits
            for _ in range(2):
                txn_id = self.declare()
                for _ in range(2):
                    self.post(txn_id)
                    self.assertIsInstance(
                        self.client.one(spec.Disposition).state, spec.TransactionalState
                    )
                self.post(txn_id)
                error = self.client.one(spec.Disposition).state.error
                self.assertEqual(error.info[Symbol("limiter")], name)
                self.assertFails(txn_id, ROLLBACK)
                self.assertEqual(terms.staged_bytes, 0)

    def test_shares(self) -> None:
        """A client with many connections leaves room for another."""
        terms = self.house.shared.transactions
        terms.limits = TransactionLimits(total_bytes=64_000)
        post = message(b"x" * 500)
        for name in ("one", "two", "three", "four"):
            self.connect(Principal("user", "greedy"), name)
            self.fill_up(post)
        self.assertLess(terms.staged_bytes, 32_000)
        # Somebody else gets as much again as is free, and the first still has a part of its own.
        self.connect(Principal("user", "ann"), "ann")
        self.assertGreaterEqual(self.fill_up(post), 5)
        self.assertLess(terms.staged_bytes, 64_000)

    def test_many_open(self) -> None:
        """Transactions are charged when they are empty, and operations without octets are, too."""
        terms = self.house.shared.transactions
        terms.limits = TransactionLimits(total_bytes=64_000)
        self.control(spec.Declare())
        while isinstance(self.client.one(spec.Disposition).state, spec.Declared):
            self.control(spec.Declare())
        self.assertLessEqual(terms.staged_bytes, 16_000)
        self.client.hang_up()
        self.assertEqual(terms.staged_bytes, 0)

    def connect(self, principal: Principal, name: str) -> None:
        """Go on as somebody else, with a link to ``q`` and a coordinator link."""
        self.client = self.house.client(principal).ready(name)
        self.count = 0
        self.attach_coordinator()
        self.client.sender("q")

    def fill_up(self, encoded: bytes) -> int:
        """Post in one transaction until a posting is refused; return how many were not."""
        txn_id = self.declare()
        for taken in range(1000):
            self.post(txn_id, encoded=encoded)
            state = self.client.one(spec.Disposition).state
            if not isinstance(state, spec.TransactionalState):
                self.assertEqual(condition(state), "amqp:resource-limit-exceeded")
                return taken
        raise AssertionError("there is no bound")

    def test_management(self) -> None:
        """X-04, G-04: management is not transactional, and says so instead of acting early."""
        self.client.sender("$management", 4)
        self.post(self.txn_id, handle=4)
        answer = self.client.one(spec.Disposition)
        self.assertEqual(condition(answer.state), "amqp:not-allowed")
        self.assertFails(self.txn_id, ROLLBACK)

    def test_counted_once(self) -> None:
        """The counters of an operator count what has happened."""
        self.client.sender("amqp$transfer", 4)
        self.post(self.txn_id, handle=4, encoded=message(b"x", to="q"))
        self.client.all(spec.Disposition)
        self.assertEqual(self.house.transfer.tally.local, 0)
        self.commit(self.txn_id)
        self.assertEqual(self.house.transfer.tally.local, 1)

    def test_access(self) -> None:
        """Rights are looked at when the message comes, in a transaction too."""
        rule = Rule.of(who="*", node="q", allow=["publish"])
        anyway = Rule.of(who="*", node="amqp$transfer", allow=["publish"])
        self.build(access=[rule, anyway])
        self.client.sender("amqp$transfer", 0)
        txn_id = self.declare()
        self.post(txn_id, encoded=message(b"x", to="r"))
        state = self.client.one(spec.Disposition).state
        self.assertEqual(condition(state), "amqp:unauthorized-access")

    def test_second(self) -> None:
        """A sender that settles last (rcv-settle-mode second) does so after the commit."""
        self.client.sender(
            "q",
            4,
            rcv_settle_mode=spec.RECEIVER_SECOND,
            desired_capabilities=(EXACTLY_ONCE_CAPABILITY,),
        )
        self.post(self.txn_id, handle=4)
        self.client.all(spec.Disposition)
        (answer,) = self.commit(self.txn_id)
        self.assertFalse(answer.settled)
        self.assertIsInstance(answer.state, spec.Accepted)


class RetirementTests(TransactionCase):
    """Outcomes told in a transaction."""

    def setUp(self) -> None:
        super().setUp()
        self.receive(b"1", b"2")
        self.txn_id = self.declare()

    def test_commit(self) -> None:
        """X-07, X-17, X-30: archived by the commit, and settled by us only then."""
        self.dispose(self.txn_id, 0, 1)
        self.assertEqual((self.counts(), self.client.all(spec.Disposition)), ((0, 2), []))
        (answer,) = self.commit(self.txn_id)
        self.assertEqual((answer.first, answer.last), (0, 1))
        self.assertEqual((answer.role, answer.settled), (False, True))
        self.assertIsInstance(answer.state, spec.Accepted)
        self.assertEqual((self.counts(), self.house.depth()), ((0, 0), 0))

    def test_roll_back(self) -> None:
        """X-08, X-19, O-07: still acquired by its link; it can be disposed of again."""
        other = self.consumer()
        self.dispose(self.txn_id, 0, 1)
        self.assertEqual(self.roll_back(self.txn_id), [])
        self.assertEqual((self.counts(), other.run().bodies()), ((0, 2), []))
        again = self.declare()
        self.dispose(again, 0)
        self.client.dispose(1)
        self.assertEqual(self.counts(), (0, 1))
        self.commit(again)
        self.assertEqual((self.counts(), self.house.depth()), ((0, 0), 0))

    def test_both_directions(self) -> None:
        """X-28: postings and retirements of one transaction, each in frames of its role."""
        self.client.sender("r", 4)
        number = self.post(self.txn_id, handle=4)
        self.dispose(self.txn_id, 0)
        self.client.all(spec.Disposition)
        answers = self.commit(self.txn_id)
        self.assertEqual(
            {(each.role, each.first) for each in answers}, {(True, number), (False, 0)}
        )
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (1, 1))

    def test_each_outcome(self) -> None:
        """X-07: every outcome waits for the commit; released and modified give back after it."""
        self.build(nodes=[NodeDeclaration("q", QueueLimits(), "dead"), "dead"])
        self.receive(b"0", b"1", b"2", b"3")
        txn_id = self.declare()
        other = self.consumer()
        self.dispose(txn_id, 0)
        self.dispose(txn_id, 1, outcome=spec.Rejected())
        self.dispose(txn_id, 2, outcome=spec.Released())
        self.dispose(txn_id, 3, outcome=spec.Modified(delivery_failed=True))
        self.assertEqual((self.counts(), self.house.depth("dead")), ((0, 4), 0))
        self.client.credit(0, 1, delivery_count=4)
        self.client.all(spec.Disposition)
        answers = self.commit(txn_id)
        self.assertEqual([each.first for each in answers], [0, 1, 2, 3])
        self.assertEqual(other.run().bodies(), [b"2", b"3"])
        self.assertEqual((self.counts(), self.house.depth("dead")), ((0, 2), 1))

    def test_modified_durably(self) -> None:
        """Changes by modified are in the store when the discharge is answered."""
        self.build(nodes=[NodeDeclaration("q", QueueLimits(max_deliveries=1), "dead"), "dead"])
        self.receive(b"0")
        txn_id = self.declare()
        self.dispose(txn_id, 0, outcome=spec.Modified(delivery_failed=True))
        self.commit(txn_id)
        self.assertEqual((self.house.depth("q"), self.house.depth("dead")), (0, 1))

    def test_changed(self) -> None:
        """O-16: a provisional outcome can change until the discharge."""
        self.dispose(self.txn_id, 0)
        self.dispose(self.txn_id, 0, outcome=spec.Released())
        self.commit(self.txn_id)
        self.assertEqual(self.client.bodies(), [b"1"])

    def test_settled_early(self) -> None:
        """K-16: a receiver that settles as well; a rollback makes the message available."""
        self.client.credit(0, 1, delivery_count=2)
        self.dispose(self.txn_id, 0, settled=True)
        self.dispose(self.txn_id, 1)
        self.client.dispose(1, state=within(self.txn_id), settled=True)
        self.assertEqual(self.counts(), (0, 2))
        self.assertEqual(self.roll_back(self.txn_id), [])
        self.assertEqual(self.counts(), (2, 0))
        self.assertEqual(self.consumer().bodies(), [b"1", b"2"])

    def test_settled_early_commit(self) -> None:
        """K-16: and a commit has nothing left to settle."""
        self.dispose(self.txn_id, 0, 1, settled=True)
        self.assertEqual(self.commit(self.txn_id), [])
        self.assertEqual(self.counts(), (0, 0))

    def test_settled_plainly(self) -> None:
        """K-16: settled behind the outcome, with the same one or none."""
        self.dispose(self.txn_id, 0, 1)
        self.client.dispose(0)
        self.client.send(spec.Disposition(role=True, first=1, settled=True))
        self.assertEqual(self.counts(), (0, 2))
        self.assertEqual(self.commit(self.txn_id), [])
        self.assertEqual(self.counts(), (0, 0))

    def test_contradicted(self) -> None:
        """O-15, O-16: outside its transaction an outcome is no provisional one."""
        self.dispose(self.txn_id, 0)
        self.client.dispose(0, state=spec.Rejected(), settled=False)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:illegal-state")
        self.assertEqual(self.counts(), (1, 1))
        self.commit(self.txn_id)
        self.assertEqual(self.counts(), (1, 0))

    def test_other_transaction(self) -> None:
        """A delivery is part of one transaction."""
        self.dispose(self.txn_id, 0)
        other = self.declare()
        self.dispose(other, 0)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:illegal-state")
        self.assertFails(other, ROLLBACK)

    def test_outcome_not_agreed(self) -> None:
        """O-31: the outcomes of the link hold in transactions too."""
        source = spec.Source(address="q", outcomes=(ACCEPTED,))
        self.client.send(attach("receiver", "narrow", 4, None, source=source))
        self.client.all(spec.Attach)
        self.client.credit(0, 1, delivery_count=2)
        self.client.fill([b"3"])
        self.client.credit(10, 4)
        self.dispose(self.txn_id, 2, outcome=spec.Rejected())
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-allowed")
        self.assertFails(self.txn_id, ROLLBACK)

    def test_without_outcome(self) -> None:
        """A state without an outcome says nothing; settled, the default outcome counts (O-14)."""
        self.client.credit(0, 1, delivery_count=2)
        self.dispose(self.txn_id, 0, outcome=None)
        self.commit(self.txn_id)
        self.assertEqual(self.counts(), (0, 2))
        txn_id = self.declare()
        self.dispose(txn_id, 0, outcome=None, settled=True)
        self.commit(txn_id)
        self.assertEqual(self.counts(), (1, 1))

    def test_link_gone(self) -> None:
        """O-06: a link that goes gives back what it holds; the rest is the transaction's."""
        self.dispose(self.txn_id, 0)
        self.client.send(spec.Detach(handle=1, closed=True))
        self.assertEqual(self.counts(), (1, 1))
        self.commit(self.txn_id)
        self.assertEqual(self.counts(), (1, 0))

    def test_link_gone_and_rolled_back(self) -> None:
        """O-06, X-19: there is no link any more to hold it."""
        self.dispose(self.txn_id, 0)
        self.client.send(spec.Detach(handle=1, closed=True))
        self.roll_back(self.txn_id)
        self.assertEqual(self.counts(), (2, 0))

    def test_browser(self) -> None:
        """S-04: what a browser says in a transaction changes nothing on the queue."""
        self.client.dispose(0, 1)
        self.client.fill([b"3"])
        self.client.credit(0, 1, delivery_count=2)
        source = spec.Source(address="q", distribution_mode="copy")
        for ends in (self.commit, self.roll_back):
            browser = self.house.client().ready("browser")
            self.client = browser
            self.count = 0
            self.attach_coordinator()
            browser.send(attach("receiver", "b", 1, None, source=source))
            browser.credit(10, 1)
            txn_id = self.declare()
            self.dispose(txn_id, 0)
            browser.send(spec.Detach(handle=1, closed=True))
            ends(txn_id)
            self.assertEqual(self.queue.acquired + self.queue.available, 1)


class AcquisitionTests(TransactionCase):
    """Messages acquired in a transaction."""

    def setUp(self) -> None:
        super().setUp()
        self.client.fill([b"1", b"2"])
        self.client.receiver("q", 1)
        self.txn_id = self.declare()

    def acquire(self, credit: int = 1, drain: bool = True, **fields: Any) -> list[spec.Transfer]:
        """Give credit within the transaction; return the transfers."""
        properties = {Symbol("txn-id"): self.txn_id}
        self.client.credit(credit, 1, drain=drain, properties=properties, **fields)
        return self.client.all(spec.Transfer)

    def test_commit(self) -> None:
        """X-20, X-29, K-24: by the consuming link's handle; afterwards it has no outcome yet."""
        (transfer,) = self.acquire()
        self.assertFalse(transfer.settled)
        self.assertEqual(transfer.state, within(self.txn_id))
        self.assertEqual(self.counts(), (1, 1))
        self.assertEqual(self.commit(self.txn_id), [])
        self.assertEqual(self.counts(), (1, 1))
        self.client.dispose(0)
        self.assertEqual((self.counts(), self.house.depth()), ((1, 0), 1))

    def test_roll_back(self) -> None:
        """X-20, X-21, K-17: it is available to all again."""
        self.acquire(2)
        (answer,) = self.roll_back(self.txn_id)
        self.assertEqual((answer.role, answer.first, answer.last), (False, 0, 1))
        self.assertTrue(answer.settled)
        self.assertIsInstance(answer.state, spec.Released)
        self.assertEqual(self.consumer().bodies(), [b"1", b"2"])

    def test_drained(self) -> None:
        """X-29: with nothing to acquire the drain is answered."""
        self.acquire(5)
        (flow,) = self.client.all(spec.Flow)[-1:]
        self.assertEqual((flow.link_credit, flow.delivery_count, flow.drain), (0, 5, True))

    def test_accepted_in_it(self) -> None:
        """X-20: acquired and accepted in one transaction."""
        self.acquire(2)
        self.dispose(self.txn_id, 0)
        self.commit(self.txn_id)
        self.assertEqual(self.counts(), (0, 1))

    def test_accepted_in_it_and_rolled_back(self) -> None:
        """K-17: the rollback of the acquisition frees it, whatever was said."""
        self.acquire(2)
        self.dispose(self.txn_id, 0)
        self.dispose(self.txn_id, 1, settled=True)
        self.roll_back(self.txn_id)
        self.assertEqual(self.counts(), (2, 0))

    def test_until_the_discharge(self) -> None:
        """Credit that is left at the discharge goes on outside of any transaction."""
        first, second = self.acquire(10, False)
        self.assertEqual((first.state, second.state), (within(self.txn_id), within(self.txn_id)))
        self.commit(self.txn_id)
        self.client.fill([b"3"])
        self.assertIsNone(self.client.run().one(spec.Transfer).state)

    def test_until_the_next_flow(self) -> None:
        """A flow says in which transaction, or in none."""
        self.acquire(1, False)
        self.client.credit(1, 1, delivery_count=1)
        self.assertIsNone(self.client.one(spec.Transfer).state)
        self.roll_back(self.txn_id)
        self.assertEqual(self.counts(), (1, 1))

    def test_link_gone(self) -> None:
        """A link that goes gives back what it has acquired, once."""
        self.acquire(2)
        self.client.send(spec.Detach(handle=1, closed=True))
        self.assertEqual(self.counts(), (2, 0))
        self.roll_back(self.txn_id)
        self.assertEqual(self.counts(), (2, 0))

    def test_settled_link(self) -> None:
        """X-14: settled and txn-id never go together."""
        self.client.receiver("q", 2, snd_settle_mode=spec.SENDER_SETTLED)
        properties = {Symbol("txn-id"): self.txn_id}
        self.client.credit(1, 2, drain=True, properties=properties)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-implemented")

    def test_not_binary(self) -> None:
        """A txn-id is binary."""
        self.client.credit(1, 1, drain=True, properties={Symbol("txn-id"): "text"})
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:invalid-field")


class EndTests(TransactionCase):
    """Transactions that nobody discharges (X-31)."""

    def setUp(self) -> None:
        super().setUp()
        self.client.sender("q", 0)
        self.receive(b"1")
        self.txn_id = self.declare()
        self.number_of_post = self.post(self.txn_id, b"2")
        self.dispose(self.txn_id, 0)
        self.client.all(spec.Disposition)

    def assertRolledBack(self, acquired: int) -> None:
        """Nothing of it was done, and nothing of it is left."""
        self.assertEqual(self.counts(), (1 - acquired, acquired))
        self.assertEqual(self.house.shared.transactions.staged_bytes, 0)
        self.assertEqual(len(self.house.frontends[0].transactions), 0)

    def test_coordinator_detached(self) -> None:
        """X-08, X-31: rolled back with the coordinator link; other links go on."""
        self.client.send(spec.Detach(handle=COORDINATOR, closed=True))
        self.assertRolledBack(1)
        answer = self.client.one(spec.Disposition)
        self.assertEqual(answer.first, self.number_of_post)
        self.assertIsInstance(answer.state, spec.Released)
        self.client.dispose(0)
        self.assertEqual(self.house.depth(), 0)

    def test_other_coordinator_detached(self) -> None:
        """X-31: only those that were declared on it."""
        self.attach_coordinator(7)
        self.client.send(spec.Detach(handle=7, closed=True))
        self.commit(self.txn_id)
        self.assertEqual(self.client.bodies(), [b"2"])

    def test_session_ended(self) -> None:
        """X-31: the session goes, and all its links."""
        self.client.send(spec.End())
        self.assertRolledBack(0)

    def test_connection_lost(self) -> None:
        """X-31: the connection is cut."""
        self.client.hang_up()
        self.assertRolledBack(0)
        self.assertEqual(self.consumer().bodies(), [b"1"])

    def test_connection_lost_in_the_commit(self) -> None:
        """X-11: a commit that is on its way to the disk is done, whoever is there to hear it."""
        self.house.store.is_held = True
        self.discharge(self.txn_id)
        self.client.hang_up()
        self.house.store.let_go()
        self.world.advance()
        self.assertEqual(self.consumer().bodies(), [b"2"])

    def test_connection_lost_and_store_fails(self) -> None:
        """X-11: and if it cannot be written, all is as before."""
        self.house.store.is_held = True
        self.discharge(self.txn_id)
        self.client.hang_up()
        self.house.store.is_full = True
        self.house.store.let_go()
        self.world.advance()
        self.house.store.is_full = False
        self.assertRolledBack(0)
        self.assertEqual(self.consumer().bodies(), [b"1"])
        self.flushLoggedErrors(StoreError)

    def test_time_out(self) -> None:
        """X-31: idle for too long, it is rolled back; its id says so from then on."""
        self.client.run(119)
        self.post(self.txn_id, b"3")
        self.client.run(119)
        self.assertEqual(self.counts(), (0, 1))
        self.client.all(spec.Disposition)
        self.client.run(2)
        self.assertRolledBack(1)
        answer = self.client.one(spec.Disposition)
        self.assertIsInstance(answer.state, spec.Released)
        self.assertEqual(self.assertFails(self.txn_id, TIMEOUT), [])
        self.post(self.txn_id)
        self.assertEqual(condition(self.client.one(spec.Disposition).state), TIMEOUT)
        self.client.dispose(0)
        self.assertEqual(self.house.depth(), 0)

    def test_twice(self) -> None:
        """X-31: what is being discharged cannot be discharged."""
        self.house.store.is_held = True
        self.assertEqual(self.discharge(self.txn_id), [])
        (answer,) = self.discharge(self.txn_id, True)
        self.assertEqual(condition(answer.state), UNKNOWN)
        self.house.store.let_go()
        self.client.run()
        first = self.client.all(spec.Disposition)[0]
        self.assertIsInstance(first.state, spec.Accepted)


class AbroadTests(TransactionCase):
    """Postings for other organizations (T-33)."""

    def setUp(self) -> None:
        super().setUp()
        self.far = self.world.house("b.test", nodes=["inbox"])

    def test_alias(self) -> None:
        """T-33: the commit is that of the relay queue; the way on begins after it."""
        self.client.sender("inbox@b.test", 0)
        txn_id = self.declare()
        self.post(txn_id, b"1")
        self.world.advance(1)
        self.assertEqual((self.world.connects, self.far.depth("inbox")), ([], 0))
        self.client.all(spec.Disposition)
        self.commit(txn_id)
        self.world.advance(1)
        self.assertEqual(self.far.depth("inbox"), 1)

    def test_rolled_back(self) -> None:
        """T-33: and without a commit it does not begin."""
        self.client.sender("amqp$transfer", 0)
        txn_id = self.declare()
        self.post(txn_id, encoded=message(b"1", to="inbox@b.test"))
        self.client.all(spec.Disposition)
        self.roll_back(txn_id)
        self.world.advance(5)
        self.assertEqual(self.far.depth("inbox"), 0)

    def test_peer_is_down(self) -> None:
        """T-33: that the peer cannot be reached is nothing that the commit waits for."""
        self.world.down.add("amqp.b.test")
        self.client.sender("inbox@b.test", 0)
        txn_id = self.declare()
        self.post(txn_id, b"1")
        self.client.all(spec.Disposition)
        self.commit(txn_id)

    def test_discharge_waits_for_the_dns(self) -> None:
        """A posting that waits for the DNS is part of the discharge that came behind it."""
        for address, to in (("inbox@b.test", None), ("amqp$transfer", "inbox@b.test")):
            self.world.dns_seconds = 2.0
            self.world.domains["b.test"] = ["amqp.b.test"]
            handle = 3 if to else 0
            self.client.send(attach("sender", f"s{handle}", handle, address))
            txn_id = self.declare()
            encoded = message(b"1", to=to) if to else message(b"1")
            self.post(txn_id, encoded=encoded, handle=handle)
            waiting = self.discharge(txn_id)
            if waiting:
                # The domain is known since the first round.
                self.assertIsNotNone(to)
                continue
            self.assertEqual(self.far.depth("inbox"), 0)
            self.client.run(3)
            states = [each.state for each in self.client.all(spec.Disposition) if each.settled]
            self.assertEqual([type(each) for each in states], [spec.Accepted, spec.Accepted])
            self.client.run(3)
            self.assertEqual(self.far.depth("inbox"), 1)

    def test_flagged_waits_for_the_dns(self) -> None:
        """M-21: a flagged message that waits for the DNS is nothing the discharge waits for."""
        self.world.dns_seconds = 2.0
        self.client.sender("amqp$transfer", 0)
        txn_id = self.declare()
        flagged = message(b"1", to="inbox@b.test", annotations={"x-opt-non-transacted": True})
        number = self.post(txn_id, encoded=flagged)
        self.roll_back(txn_id)
        self.client.run(3)
        (answer,) = self.client.all(spec.Disposition)
        self.assertEqual((answer.first, answer.settled), (number, True))
        self.assertIsInstance(answer.state, spec.Accepted)
        self.client.run(3)
        self.assertEqual(self.far.depth("inbox"), 1)

    def test_no_such_domain(self) -> None:
        """A posting that waited in vain dooms the transaction, wherever it waited."""
        self.world.dns_seconds = 2.0
        self.client.sender("q", 0)
        self.client.sender("amqp$transfer", 4)
        for number, address in enumerate(("x@nowhere.test", "amqp$transfer")):
            handle = 5 + number
            self.client.send(attach("sender", f"s{handle}", handle, address))
            txn_id = self.declare()
            self.post(txn_id, b"1")
            to = f"x@nowhere{number}.test" if number else None
            encoded = message(b"2", to=to) if to else message(b"2")
            self.post(txn_id, handle=handle, encoded=encoded)
            self.client.all(spec.Disposition)
            self.assertEqual(self.discharge(txn_id), [])
            self.client.run(3)
            states = [each.state for each in self.client.all(spec.Disposition)]
            conditions = [condition(each) for each in states if isinstance(each, spec.Rejected)]
            self.assertIn(ROLLBACK, conditions)
            self.assertEqual(self.house.depth(), 0)

    def test_link_gone_while_waiting(self) -> None:
        """A posting whose link goes before the DNS answers dooms the transaction."""
        self.world.dns_seconds = 2.0
        self.client.send(attach("sender", "s", 0, "inbox@b.test"))
        txn_id = self.declare()
        self.post(txn_id)
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.run(3)
        self.assertFails(txn_id, ROLLBACK)

    def test_coordinator_gone_while_waiting(self) -> None:
        """The discharge waits for the DNS, and the coordinator link goes."""
        self.world.dns_seconds = 2.0
        self.client.sender("amqp$transfer", 0)
        txn_id = self.declare()
        self.post(txn_id, encoded=message(b"1", to="inbox@b.test"))
        self.discharge(txn_id)
        self.client.send(spec.Detach(handle=COORDINATOR, closed=True))
        self.client.run(5)
        self.assertEqual(self.far.depth("inbox"), 0)
        self.assertEqual(len(self.house.frontends[0].transactions), 0)

    def test_way_forgotten(self) -> None:
        """A domain that is not known any more at the discharge is looked up again."""
        self.client.sender("inbox@b.test", 0)
        txn_id = self.declare()
        self.post(txn_id)
        self.client.all(spec.Disposition)
        relay = self.house.relay
        real, ask, asked, answer = relay.target, relay.admit, [], Deferred[None]()

        def forgotten(hop: Any, origin: Any) -> Any:
            if not asked:
                raise Unresolved(hop)
            return real(hop, origin)

        def admit(hop: Any, origin: Any = None) -> Deferred[None]:
            asked.append(hop)
            return answer.addCallback(lambda _: ask(hop))

        self.patch(relay, "target", forgotten)
        self.patch(relay, "admit", admit)
        self.assertEqual(self.discharge(txn_id), [])
        self.assertEqual(len(asked), 1)
        self.client.run(1000)
        answer.callback(None)
        self.client.run()
        states = [each.state for each in self.client.all(spec.Disposition)]
        self.assertEqual([type(each) for each in states], [spec.Accepted, spec.Accepted])

    def test_way_not_found_again(self) -> None:
        """And if that does not help, it is rolled back."""
        self.client.sender("inbox@b.test", 0)
        txn_id = self.declare()
        self.post(txn_id)
        self.client.all(spec.Disposition)

        def forgotten(hop: Any, origin: Any) -> Any:
            raise Unresolved(hop)

        self.patch(self.house.relay, "target", forgotten)
        self.control(spec.Discharge(txn_id=txn_id))
        self.client.run(10)
        first, second = self.client.all(spec.Disposition)
        self.assertEqual(condition(first.state), ROLLBACK)
        self.assertIsInstance(second.state, spec.Released)


class TopicTests(TransactionCase):
    """Topics in transactions."""

    def setUp(self) -> None:
        super().setUp()
        broker = self.house.broker
        bindings = [BindingDeclaration("t", "q"), BindingDeclaration("t", "r")]
        nodes = [NodeDeclaration(name, QueueLimits()) for name in ("q", "r")]
        broker.declare([*nodes, topic("t")], {}, bindings)
        self.subscriber = self.house.client().ready("subscriber")
        self.subscriber.receiver("t", credit=10)
        self.client.sender("t", 0)
        self.txn_id = self.declare()

    def test_publish(self) -> None:
        """X-06: subscribers and bound queues see nothing before the commit; it counts once."""
        self.post(self.txn_id, b"1")
        self.client.all(spec.Disposition)
        self.assertEqual((self.subscriber.run().bodies(), self.house.depth("r")), ([], 0))
        self.commit(self.txn_id)
        self.assertEqual(self.subscriber.run().bodies(), [b"1"])
        self.assertEqual((self.house.depth("q"), self.house.depth("r")), (1, 1))
        self.assertEqual(self.house.broker.topics["t"].tally.published, 1)

    def test_rolled_back(self) -> None:
        """X-08: nothing of it arrives anywhere."""
        self.post(self.txn_id, b"1")
        self.client.all(spec.Disposition)
        self.roll_back(self.txn_id)
        self.assertEqual((self.subscriber.run().bodies(), self.house.depth("r")), ([], 0))
        self.assertEqual(self.house.broker.topics["t"].tally.published, 0)

    def test_acknowledged(self) -> None:
        """X-07, X-19: a subscriber's outcomes wait for the discharge as well."""
        self.client.receiver("t", 1, credit=1)
        self.client.publish(self.number(), message(b"1"))
        self.assertEqual(self.client.bodies(), [b"1"])
        self.client.all(spec.Disposition)
        self.dispose(self.txn_id, 0)
        self.assertEqual(self.roll_back(self.txn_id), [])
        again = self.declare()
        self.dispose(again, 0, outcome=spec.Released())
        self.client.credit(1, 1, delivery_count=1)
        self.assertEqual(self.client.bodies(), [])
        self.client.all(spec.Disposition)
        self.commit(again)
        self.assertEqual(self.client.bodies(), [b"1"])


class ModelTests(TransactionCase):
    """Transactions against a model, at random."""

    def run_course(self, chance: random.Random) -> None:
        """Do thirty things; then lose the connection, and compare what is left."""
        self.build()
        self.client.sender("q", 0)
        self.client.receiver("q", 1)
        left = {b"m%d" % each for each in range(8)}
        self.client.fill(sorted(left))
        self.client.credit(8, 1)
        held = dict(enumerate(self.client.bodies()))
        works: dict[bytes, tuple[set[bytes], set[bytes]]] = {}
        for step in range(30):
            txn_id = chance.choice(list(works) or [b""])
            what = chance.choice(("declare", "post", "accept", "accept", "commit", "roll back"))
            if what == "declare" or not txn_id:
                works[self.declare()] = (set(), set())
            elif what == "post":
                body = b"p%d" % step
                self.post(txn_id, body, settled=chance.random() < 0.3)
                works[txn_id][0].add(body)
            elif what == "accept" and held:
                number = chance.choice(list(held))
                self.dispose(txn_id, number, settled=chance.random() < 0.3)
                works[txn_id][1].add(held.pop(number))
            elif what == "commit":
                self.client.all(spec.Disposition)
                self.house.store.is_full = chance.random() < 0.2
                self.discharge(txn_id)
                posted, accepted = works.pop(txn_id)
                if not self.house.store.is_full or not (posted or accepted):
                    left = (left - accepted) | posted
                self.house.store.is_full = False
            else:
                self.client.all(spec.Disposition)
                self.roll_back(txn_id)
                works.pop(txn_id)
            self.client.all(spec.Disposition)
        self.client.hang_up()
        self.assertEqual(self.queue.acquired, 0)
        self.assertEqual(self.house.shared.transactions.staged_bytes, 0)
        self.assertEqual(sorted(self.consumer(credit=100).bodies()), sorted(left))

    def test_courses(self) -> None:
        """X-08, X-11: what is left is what was committed, and all that was not taken."""
        for seed in range(60):
            try:
                self.run_course(random.Random(seed))
            except self.failureException as error:
                raise self.failureException(f"seed {seed}: {error}") from error
        self.flushLoggedErrors(StoreError)


class WireTests(TransactionCase):
    """The frames on the wire."""

    def test_frames_in_one_segment(self) -> None:
        """P-04: coordinator, declare, sender and message, without waiting for answers."""
        client = self.house.client().ready("hasty")
        declare = codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), spec.Declare()))
        client.write(
            frame(attach("sender", "t", 0, None, target=spec.Coordinator())),
            client.transfer(0, declare, 0),
            client.transfer(1, declare, 0),
        )
        answers = client.all(spec.Disposition)
        self.assertEqual([type(each.state) for each in answers], [spec.Declared, spec.Declared])

    def test_body(self) -> None:
        """The message arrives octet for octet."""
        self.client.sender("q", 0)
        txn_id = self.declare()
        encoded = message(b"\x00" * 1000, header=spec.Header(durable=True), subject="s")
        self.post(txn_id, encoded=encoded)
        self.client.all(spec.Disposition)
        self.commit(txn_id)
        (got,) = self.consumer().messages()
        self.assertEqual(body_of(got), b"\x00" * 1000)
        self.assertEqual(got[-1000:], encoded[-1000:])
