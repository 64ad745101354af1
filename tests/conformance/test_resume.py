# SPDX-License-Identifier: Apache-2.0
"""Resumed links: suspended termini and deliveries, part 2 §2.6.13, part 3 §3.5.6."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import QueueOptions
from amqproute.values import EXACTLY_ONCE_CAPABILITY
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import (
    Client,
    Network,
    attach,
    body_of,
    condition,
    header_of,
    message,
    section,
)

STAYS = {"expiry_policy": "connection-close", "timeout": 60}
SECOND = spec.RECEIVER_SECOND
CONFIRMS: dict[str, Any] = {
    "rcv_settle_mode": SECOND,
    "desired_capabilities": (EXACTLY_ONCE_CAPABILITY,),
}
"""A sender that settles what was accepted."""


class ResumeCase(SynchronousTestCase):
    """A broker with two queues, and a client called ``client``."""

    limits: dict[str, Any] = {}

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(nodes=["q", "r"], limits=self.limits)
        self.client = self.house.client().ready()

    def again(self, container: str = "client") -> Client:
        """The client breaks off and connects again."""
        self.client.hang_up()
        self.client = self.house.client().ready(container)
        return self.client

    def taken_elsewhere(self) -> list[bytes]:
        """Return what another consumer gets at this moment."""
        other = self.house.client().ready("other")
        other.receiver(credit=100)
        found = other.bodies()
        other.hang_up()
        return found


class ConsumerCase(ResumeCase):
    """A consumer that has got three messages."""

    def setUp(self) -> None:
        super().setUp()
        self.client.fill([b"1", b"2", b"3"])
        self.answer = self.receive(credit=3)
        self.tags = [each.delivery_tag for each in self.client.all(spec.Transfer)]

    def receive(self, credit: int | None = None, **fields: Any) -> spec.Attach:
        """Attach the receiver ``x``; fields of the source may be among the others."""
        terms = {key: fields.pop(key) for key in tuple(fields) if key in spec_source}
        source = spec.Source(address="q", **{**STAYS, **terms})
        return self.client.receiver(None, name="x", credit=credit, source=source, **fields)

    def sent(self) -> list[tuple[bytes, bool, bool, bytes]]:
        """Take what came: tag, resume, settled, body."""
        return [
            (
                each.delivery_tag,
                bool(each.resume),
                bool(each.settled),
                body_of(payload) if payload else b"",
            )
            for each, payload in self.client.payloads(spec.Transfer)
        ]


spec_source = {each.name for each in spec.Source.fields}


class ParkedTests(ConsumerCase):
    """Unsettled entries stay with a consumer while its terminus lives (O-04, O-06)."""

    def test_answer(self) -> None:
        """L-44, E-01: the answer says how long."""
        source = self.answer.source
        self.assertEqual((source.expiry_policy, source.timeout), ("connection-close", 60))
        self.assertEqual(source.durable, 0)

    def test_longest(self) -> None:
        """E-01: longer than the longest is answered with the longest."""
        source = spec.Source(address="q", **{**STAYS, "timeout": 999_999})
        source = self.client.receiver(None, 1, "long", source=source).source
        self.assertEqual(source.timeout, 3600)

    def test_detached(self) -> None:
        """O-06: nobody else gets it, on the same connection or on others."""
        self.client.dispose(1)
        self.client.send(spec.Detach(handle=0))
        self.assertEqual(self.taken_elsewhere(), [])
        self.assertEqual(self.house.depth(), 2)
        self.client.receiver(handle=1, name="y", credit=9)
        self.assertEqual(self.client.bodies(), [])

    def test_closed(self) -> None:
        """O-06: a link that is closed gives it back at once."""
        self.client.send(spec.Detach(handle=0, closed=True))
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_lost_connection(self) -> None:
        """O-17: not the loss of the connection frees it, but the end of the terminus."""
        self.client.hang_up()
        self.assertEqual(self.taken_elsewhere(), [])
        self.world.advance(59)
        self.assertEqual(self.taken_elsewhere(), [])
        self.world.advance(3)
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])
        self.assertEqual(len(self.house.amqp10.suspended), 0)

    def test_expired(self) -> None:
        """O-11, O-17: then it is available again, and its delivery-count is as it was."""
        self.client.hang_up()
        self.world.advance(62)
        other = self.house.client().ready("other")
        other.receiver(credit=9)
        got = other.messages()
        self.assertEqual([body_of(each) for each in got], [b"1", b"2", b"3"])
        self.assertEqual([header_of(each).delivery_count for each in got], [0, 0, 0])
        self.assertFalse(header_of(got[0]).first_acquirer)

    def test_default_outcome(self) -> None:
        """O-17, O-21: the default outcome is applied when the terminus expires, not before."""
        self.client.send(spec.Detach(handle=0, closed=True))
        self.receive(credit=3, default_outcome=spec.Modified(delivery_failed=True))
        self.client.hang_up()
        self.world.advance(30)
        self.assertEqual(self.taken_elsewhere(), [])
        self.world.advance(32)
        other = self.house.client().ready("other")
        other.receiver(credit=9)
        counts = [header_of(each).delivery_count for each in other.messages()]
        self.assertEqual(counts, [1, 1, 1])

    def test_session_end(self) -> None:
        """§3.5.6: with the default policy it is the end of the session that frees it."""
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.receiver(name="d", credit=3)
        self.client.send(spec.Detach(handle=0))
        self.assertEqual(self.taken_elsewhere(), [])
        self.client.send(spec.End())
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_link_detach(self) -> None:
        """§3.5.6: with link-detach the timer runs at once; with a timeout of 0 it is over."""
        self.client.send(spec.Detach(handle=0, closed=True))
        self.receive(credit=3, expiry_policy="link-detach", timeout=10)
        self.client.send(spec.Detach(handle=0))
        self.assertEqual(self.taken_elsewhere(), [])
        self.world.advance(12)
        self.receive(credit=3, expiry_policy="link-detach", timeout=0)
        self.client.send(spec.Detach(handle=0))
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_timer_starts_anew(self) -> None:
        """§3.5.6: an attach stops the timer; the next detach starts it from the beginning."""
        self.client.hang_up()
        self.world.advance(50)
        self.client = self.house.client().ready()
        self.receive(unsettled=dict.fromkeys(self.tags))
        self.client.hang_up()
        self.world.advance(50)
        self.assertEqual(self.taken_elsewhere(), [])
        self.world.advance(12)
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_deleted_queue(self) -> None:
        """L-03: what is parked goes with its node."""
        self.client.hang_up()
        queue = self.house.broker.nodes["q"]
        self.house.shared.detach_from(lambda node, _: node is not queue)
        self.assertEqual(queue.acquired, 3)
        self.house.shared.detach_from(lambda node, _: node is queue)
        self.assertEqual((queue.acquired, len(self.house.amqp10.suspended)), (0, 0))


class ResumeTests(ConsumerCase):
    """A consumer that comes back with an unsettled map."""

    def test_no_outcome(self) -> None:
        """Both know it, no outcome: it is resumed under its tag, before anything new."""
        self.client.fill([b"4"])
        self.again()
        answer = self.receive(unsettled=dict.fromkeys(self.tags))
        self.assertEqual(answer.unsettled, dict.fromkeys(self.tags))
        self.client.credit(2)
        self.assertEqual(
            self.sent(),
            [(self.tags[0], True, False, b"1"), (self.tags[1], True, False, b"2")],
        )
        self.client.credit(9, delivery_count=2)
        third, new = self.sent()
        self.assertEqual(third, (self.tags[2], True, False, b"3"))
        self.assertEqual((new[1], new[3]), (False, b"4"))
        self.assertNotIn(new[0], self.tags)
        self.client.dispose(0, 3)
        self.assertEqual(self.house.depth(), 0)

    def test_received(self) -> None:
        """A receiver that has a part of it gets it from the beginning."""
        self.again()
        part = spec.Received(section_number=0, section_offset=1)
        self.receive(unsettled={self.tags[0]: part}, credit=1)
        self.assertEqual(self.sent(), [(self.tags[0], True, False, b"1")])

    def test_outcome(self) -> None:
        """The receiver has come to an outcome: acted on, told without payload, settled."""
        self.again()
        self.receive(
            unsettled={
                self.tags[0]: spec.Accepted(),
                self.tags[1]: spec.Released(),
                self.tags[2]: spec.Rejected(error=spec.Error(condition="test:no", description="n")),
            }
        )
        self.assertEqual(self.house.depth(), 1)
        self.client.credit(3)
        self.assertEqual([each[:2] for each in self.sent()], [(tag, True) for tag in self.tags])
        settled = self.client.all(spec.Disposition)
        self.assertTrue(all(each.settled and not each.role for each in settled))
        self.assertEqual([each.first for each in settled], [0, 1, 2])
        self.assertIsInstance(settled[1].state, spec.Released)
        self.assertEqual(self.taken_elsewhere(), [b"2"])

    def test_outcome_not_agreed(self) -> None:
        """O-31: an outcome that was not agreed ends the link; everything goes back."""
        self.again()
        self.receive(
            unsettled={self.tags[0]: spec.Rejected()}, outcomes=(Symbol("amqp:accepted:list"),)
        )
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-allowed")
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_only_the_sender(self) -> None:
        """Deliveries unknown to the receiver are sent again, under their tags, to this link."""
        self.again()
        self.receive(unsettled={self.tags[1]: None}, credit=9)
        self.assertEqual(
            self.sent(),
            [
                (self.tags[0], False, False, b"1"),
                (self.tags[1], True, False, b"2"),
                (self.tags[2], False, False, b"3"),
            ],
        )

    def test_no_map(self) -> None:
        """A client that comes back without a map has lost its memory: all is sent again."""
        self.again()
        self.receive(credit=9)
        self.assertEqual([each[1:] for each in self.sent()], [(False, False, b"1"),
                         (False, False, b"2"), (False, False, b"3")])  # fmt: skip

    def test_only_the_receiver(self) -> None:
        """Unknown deliveries are settled: they are not in our map, and their tags stay unused."""
        self.client.dispose(0, 2)
        self.client.fill([b"4"])
        self.again()
        answer = self.receive(unsettled={self.tags[2]: None, b"their own": None}, credit=9)
        self.assertFalse(answer.unsettled)
        ((tag, resumed, _, body),) = self.sent()
        self.assertEqual((resumed, body), (False, b"4"))
        self.assertNotIn(tag, self.tags)

    def test_strange_tags(self) -> None:
        """E-02: tags in the map that go round the counter do no harm."""
        self.client.fill([b"4", b"5", b"6", b"7"])
        self.again()
        self.receive(unsettled={self.tags[1]: None, b"\xff" * 4: None}, credit=9)
        sent = self.sent()
        self.assertEqual(len({tag for tag, *_ in sent}), 7)

    def test_incomplete(self) -> None:
        """§2.7.3: to an incomplete map nothing new is sent, and silence says nothing."""
        self.client.fill([b"4"])
        self.again()
        self.receive(unsettled={self.tags[1]: None}, incomplete_unsettled=True, credit=9)
        self.assertEqual(self.sent(), [(self.tags[1], True, False, b"2")])
        self.client.dispose(0)
        self.client.send(spec.Detach(handle=0))
        answer = self.receive(unsettled={self.tags[0]: None, self.tags[2]: None}, credit=9)
        self.assertEqual(answer.unsettled, {self.tags[0]: None, self.tags[2]: None})
        self.assertEqual([each[1:] for each in self.sent()], [(True, False, b"1"),
                         (True, False, b"3"), (False, False, b"4")])  # fmt: skip

    def test_our_map_does_not_fit(self) -> None:
        """§2.7.3: a map that is too large for a frame is cut, and says so."""
        self.client.fill([b"%d" % n for n in range(200)], "r")
        source = spec.Source(address="r", **STAYS)
        self.client.receiver(None, 1, "big", credit=200, source=source)
        self.assertEqual(len(self.client.bodies()), 200)
        self.client.hang_up()
        small = self.house.client().opened("client", max_frame_size=512).begun()
        answer = small.receiver(None, 0, "big", source=source)
        self.assertTrue(answer.incomplete_unsettled)
        small.credit(300)
        self.assertEqual(len(small.bodies()), 200)

    def test_detached_again_before_credit(self) -> None:
        """A delivery that waited for credit is still the link's own when it goes once more."""
        self.again()
        self.receive(unsettled=dict.fromkeys(self.tags), credit=1)
        self.assertEqual(len(self.sent()), 1)
        self.again()
        answer = self.receive(unsettled={}, credit=9)
        self.assertEqual(set(answer.unsettled), set(self.tags))
        self.assertEqual(sorted(each[3] for each in self.sent()), [b"1", b"2", b"3"])

    def test_closed_before_credit(self) -> None:
        """O-06: closed, the link gives back what it had not been sent again yet."""
        self.again()
        self.receive(unsettled=dict.fromkeys(self.tags))
        self.client.send(spec.Detach(handle=0, closed=True))
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_null_source(self) -> None:
        """L-33: an attach that names no source finds the one that was kept."""
        self.again()
        answer = self.client.receiver(None, name="x", source=None, credit=9)
        self.assertEqual(answer.source.address, "q")
        self.assertEqual([each[3] for each in self.sent()], [b"1", b"2", b"3"])

    def test_another_queue(self) -> None:
        """Under the name of a suspended link another one begins: what was parked goes back."""
        self.again()
        self.client.receiver("r", name="x")
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_another_mode(self) -> None:
        """L-12: the distribution-mode is fixed for the life of the link."""
        self.again()
        source = spec.Source(address="q", distribution_mode="copy", **STAYS)
        self.client.send(attach("receiver", "x", 0, None, source=source))
        self.assertIsNone(self.client.one(spec.Attach).source)
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:precondition-failed")
        self.assertEqual(self.taken_elsewhere(), [])

    def test_another_container(self) -> None:
        """L-09: the container is part of the name: nobody else resumes the link."""
        self.again("another")
        answer = self.receive(unsettled=dict.fromkeys(self.tags), credit=9)
        self.assertFalse(answer.unsettled)
        self.assertEqual(self.sent(), [])

    def test_stolen(self) -> None:
        """L-09: attached on another connection, the link takes what it had along."""
        again = self.house.client().ready()
        source = spec.Source(address="q", **STAYS)
        answer = again.receiver(
            None, name="x", source=source, unsettled=dict.fromkeys(self.tags), credit=9
        )
        self.assertEqual(set(answer.unsettled), set(self.tags))
        self.assertEqual([each.resume for each in again.all(spec.Transfer)], [True] * 3)

    def test_settled_meanwhile(self) -> None:
        """O-33: an outcome that was on its way when the link went counts, and is not asked for."""
        self.client.dispose(0, 1, settled=False)
        self.again()
        answer = self.receive(unsettled=dict.fromkeys(self.tags, spec.Accepted()), credit=9)
        self.assertEqual(set(answer.unsettled), {self.tags[2]})
        self.assertEqual(self.house.depth(), 0)

    def test_rolled_back_meanwhile(self) -> None:
        """O-07, X-19: parking survives a rollback: what it frees is the link's own again."""
        target = spec.Coordinator(capabilities=(spec.TXN_LOCAL,))
        self.client.send(attach("sender", "c", 5, None, target=target))
        self.client.names()
        self.client.publish(0, declare(), handle=5)
        (declared,) = [each.state for each in self.client.all(spec.Disposition)]
        state = spec.TransactionalState(txn_id=declared.txn_id, outcome=spec.Accepted())
        self.client.dispose(0, 2, state, settled=False)
        self.client.send(spec.Detach(handle=0))
        self.client.one(spec.Detach)
        self.client.publish(1, discharge(declared.txn_id, fail=True), handle=5)
        self.assertEqual(self.taken_elsewhere(), [])
        answer = self.receive(unsettled=dict.fromkeys(self.tags))
        self.assertEqual(set(answer.unsettled), set(self.tags))

    def test_acquired_and_rolled_back(self) -> None:
        """X-20: what was acquired in a transaction is for all after its rollback, parked or not."""
        target = spec.Coordinator(capabilities=(spec.TXN_LOCAL,))
        self.client.send(attach("sender", "c", 5, None, target=target))
        self.client.names()
        self.client.publish(0, declare(), handle=5)
        (declared,) = [each.state for each in self.client.all(spec.Disposition)]
        self.client.fill([b"4"])
        source = spec.Source(address="q", **STAYS)
        self.client.receiver(None, 1, "y", source=source)
        self.client.credit(1, 1, properties={Symbol("txn-id"): declared.txn_id})
        self.assertEqual(self.client.bodies(), [b"4"])
        self.client.send(spec.Detach(handle=1))
        self.assertEqual(self.taken_elsewhere(), [])
        self.client.publish(1, discharge(declared.txn_id, fail=True), handle=5)
        self.assertEqual(self.taken_elsewhere(), [b"4"])


def declare() -> bytes:
    """Encode the message that declares a transaction."""
    return section(spec.SECTION_AMQP_VALUE, spec.Declare())


def discharge(txn_id: bytes, fail: bool) -> bytes:
    """Encode the message that ends one."""
    return section(spec.SECTION_AMQP_VALUE, spec.Discharge(txn_id=txn_id, fail=fail))


class BoundTests(ConsumerCase):
    """Kept termini have bounds."""

    limits = {"suspended_deliveries": 4, "suspended_links": 2}

    def test_deliveries(self) -> None:
        """E-02: with too much, the link that has been gone for the longest time expires."""
        self.client.fill([b"4", b"5"], "r")
        source = spec.Source(address="r", **STAYS)
        self.client.receiver(None, 1, "y", credit=2, source=source)
        self.client.send(spec.Detach(handle=0))
        self.assertEqual(self.taken_elsewhere(), [])
        self.client.send(spec.Detach(handle=1))
        self.assertEqual(self.house.amqp10.suspended.deliveries, 2)
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])

    def test_links(self) -> None:
        """E-02: so it is with too many links."""
        self.client.send(spec.Detach(handle=0))
        for name in "abc":
            self.client.receiver(None, 0, name, source=spec.Source(address="r", **STAYS))
            self.client.send(spec.Detach(handle=0))
        self.assertEqual(len(self.house.amqp10.suspended), 2)
        self.assertEqual(self.taken_elsewhere(), [b"1", b"2", b"3"])


class ExclusiveTests(SynchronousTestCase):
    """A node's terms for its links hold for those that come back."""

    def test_one_consumer(self) -> None:
        """Q-20: a suspended link does not hold the only place."""
        world = Network()
        options = QueueOptions(destructive_links=1)
        house = world.house(nodes=[NodeDeclaration("q", QueueLimits(), None, options)])
        client = house.client().ready()
        client.fill([b"1"])
        source = spec.Source(address="q", **STAYS)
        client.receiver(None, name="x", credit=1, source=source)
        client.send(spec.Detach(handle=0))
        other = house.client().ready("other")
        other.receiver(credit=1)
        self.assertEqual(other.bodies(), [])


class PublisherCase(ResumeCase):
    """A publisher whose receiver settles second."""

    def send(self, **fields: Any) -> spec.Attach:
        """Attach the sender ``p``; fields of the target may be among the others."""
        terms = {key: fields.pop(key) for key in tuple(fields) if key in spec_source}
        target = spec.Target(address=terms.pop("address", "q"), **{**STAYS, **terms})
        given = {**CONFIRMS, "target": target, **fields}
        answer = self.client.sender(None, name="p", **given)
        self.client.all(spec.Flow)
        return answer


class PublisherTests(PublisherCase):
    """P-16, O-33: the outcome of what a publisher has sent is kept until it knows it."""

    def test_confirmed(self) -> None:
        """P-16: unsettled outcome, settled by the sender; then it is forgotten."""
        self.send()
        self.client.publish(0)
        told = self.client.one(spec.Disposition)
        self.assertIsInstance(told.state, spec.Accepted)
        self.assertFalse(told.settled)
        self.client.dispose(0, role=False)
        self.again()
        answer = self.send(unsettled={b"tag-0": None})
        self.assertFalse(answer.unsettled)

    def test_learns(self) -> None:
        """P-16: back with its map, the sender learns the outcome and settles; one message."""
        self.send()
        self.client.publish(0)
        self.again()
        answer = self.send(unsettled={b"tag-0": None, b"tag-1": None})
        self.assertEqual(answer.unsettled, {b"tag-0": spec.Accepted()})
        self.client.publish(0, b"", settled=True, resume=True, state=spec.Accepted(),
                            delivery_tag=b"tag-0")  # fmt: skip
        self.client.publish(1, delivery_tag=b"tag-1")
        self.assertEqual(self.house.depth(), 2)
        self.again()
        self.assertEqual(self.send(unsettled={b"tag-1": None}).unsettled,
                         {b"tag-1": spec.Accepted()})  # fmt: skip

    def test_sent_again(self) -> None:
        """P-16: sent again with its payload, resumed or not, it is the same delivery."""
        self.send()
        self.client.publish(0)
        for number, resume in enumerate((True, False)):
            self.again()
            self.send(unsettled={b"tag-0": None})
            self.client.publish(number, message(b"0"), delivery_tag=b"tag-0", resume=resume)
            told = self.client.one(spec.Disposition)
            self.assertIsInstance(told.state, spec.Accepted)
            self.assertFalse(told.settled)
            self.assertEqual(self.house.depth(), 1)
        self.client.dispose(1, role=False)
        self.again()
        self.assertFalse(self.send(unsettled={b"tag-0": None}).unsettled)

    def test_lost_before_the_commit(self) -> None:
        """O-33: lost while the disk is slow: the attach is answered when the outcome is known."""
        self.send()
        self.house.store.is_held = True
        self.client.publish(0)
        self.again()
        request = attach("sender", "p", 0, None, **CONFIRMS,
                         target=spec.Target(address="q", **STAYS),
                         unsettled={b"tag-0": None})  # fmt: skip
        self.client.send(request)
        self.assertTrue(self.client.none(spec.Attach))
        self.house.store.let_go()
        self.client.run()
        self.assertEqual(self.client.one(spec.Attach).unsettled, {b"tag-0": spec.Accepted()})

    def test_first(self) -> None:
        """O-33: so learns one whose receiver settles first, if nobody was there to be told."""
        self.send(rcv_settle_mode=0)
        self.house.store.is_held = True
        self.client.publish(0)
        self.client.hang_up()
        self.house.store.let_go()
        self.world.advance()
        self.client = self.house.client().ready()
        answer = self.send(rcv_settle_mode=0, unsettled={b"tag-0": None})
        self.assertEqual(answer.unsettled, {b"tag-0": spec.Accepted()})
        self.client.publish(0, message(b"0"), delivery_tag=b"tag-0", resume=True)
        self.assertTrue(self.client.one(spec.Disposition).settled)
        self.assertEqual(self.house.depth(), 1)

    def test_settled_by_silence(self) -> None:
        """§2.6.13: what the sender's map does not name is settled, and its tag is free."""
        self.send()
        self.client.publish(0)
        self.again()
        self.assertFalse(self.send(unsettled={b"other": None}).unsettled)
        self.client.publish(0)
        self.assertEqual(self.house.depth(), 2)

    def test_incomplete(self) -> None:
        """§2.7.3: silence of an incomplete map settles nothing."""
        self.send()
        self.client.publish(0)
        self.client.publish(1)
        self.again()
        answer = self.send(unsettled={b"tag-0": None}, incomplete_unsettled=True)
        self.assertEqual(set(answer.unsettled), {b"tag-0", b"tag-1"})

    def test_closed(self) -> None:
        """L-32: a closed link is forgotten with all its outcomes."""
        self.send()
        self.client.publish(0)
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.one(spec.Detach)
        self.assertFalse(self.send(unsettled={b"tag-0": None}).unsettled)

    def test_expired(self) -> None:
        """§3.5.6: and so is one whose time is over."""
        self.send()
        self.client.publish(0)
        self.client.hang_up()
        self.world.advance(62)
        self.client = self.house.client().ready()
        self.assertFalse(self.send(unsettled={b"tag-0": None}).unsettled)
        self.assertEqual(len(self.house.amqp10.suspended), 0)

    def test_rejected_when_gone(self) -> None:
        """O-33: an outcome that is no acceptance is kept the same way."""
        self.world.dns_seconds = 1.0
        target = spec.Target(address=None, **STAYS)
        self.client.sender(None, name="p", target=target, **CONFIRMS)
        self.client.publish(0, message(b"0", to="x@nowhere.test"))
        self.client.hang_up()
        self.world.advance(2)
        self.client = self.house.client().ready()
        answer = self.client.sender(None, name="p", target=target, **CONFIRMS,
                                    unsettled={b"tag-0": None})  # fmt: skip
        self.assertIsInstance(answer.unsettled[b"tag-0"], spec.Rejected)

    def test_null_target(self) -> None:
        """L-33: an attach that names no target finds the one that was kept."""
        self.send()
        self.client.publish(0)
        self.again()
        answer = self.client.sender(None, name="p", target=None, **CONFIRMS,
                                    unsettled={b"tag-0": None})  # fmt: skip
        self.assertEqual(answer.target.address, "q")
        self.assertEqual(answer.unsettled, {b"tag-0": spec.Accepted()})

    def test_credit(self) -> None:
        """F-02: outcomes that nobody confirms use the window up; to be resumed costs nothing."""
        house = Network().house(limits={"link_credit": 4})
        client = self.client = house.client().ready()
        self.house = house
        target = spec.Target(address="q", **STAYS)
        client.sender(None, name="p", target=target, **CONFIRMS)
        self.assertEqual(client.one(spec.Flow).link_credit, 4)
        for number in range(4):
            client.publish(number)
        self.assertTrue(client.none(spec.Flow))
        client.dispose(0, 3, role=False)
        self.assertEqual(client.all(spec.Flow)[-1].link_credit, 4)

    def test_credit_to_resume(self) -> None:
        """And when it is back, it has credit to resume all of them, and the window besides."""
        house = Network().house(limits={"link_credit": 4})
        client = house.client().ready()
        target = spec.Target(address="q", **STAYS)
        client.sender(None, name="p", target=target, **CONFIRMS)
        for number in range(4):
            client.publish(number)
        client.hang_up()
        client = house.client().ready()
        tags = dict.fromkeys(b"tag-%d" % number for number in range(4))
        client.sender(None, name="p", target=target, **CONFIRMS, unsettled=tags)
        self.assertEqual(client.one(spec.Flow).link_credit, 4)
        for number in range(4):
            client.publish(number, b"", resume=True, settled=True, state=spec.Accepted())
        client.publish(4)
        self.assertEqual(house.depth(), 5)


class ExactlyOnceTests(PublisherCase):
    """P-14, P-16, K-23: delivery-mode exactly-once, for publishers."""

    ONCE: Any = {
        "properties": {Symbol("delivery-mode"): Symbol("exactly-once")},
        "desired_capabilities": (EXACTLY_ONCE_CAPABILITY,),
    }

    def test_answer(self) -> None:
        """The broker settles second and says that it keeps what it knows, also over a restart."""
        self.client.sender("q", name="p", **self.ONCE)
        self.client.send(spec.Detach(handle=0, closed=True))
        answer = self.client.one(spec.Detach)
        answer = self.client.sender("q", name="p", **self.ONCE)
        self.assertEqual(answer.rcv_settle_mode, SECOND)
        target = answer.target
        self.assertEqual(
            (target.durable, target.expiry_policy, target.timeout), (2, "connection-close", 3600)
        )
        self.assertEqual(answer.properties[Symbol("delivery-mode")], "exactly-once")

    def test_standard_words(self) -> None:
        """A durable target and rcv-settle-mode second mean the same."""
        answer = self.send(durable=2, expiry_policy="never")
        self.assertEqual((answer.target.durable, answer.rcv_settle_mode), (2, SECOND))
        answer = self.client.sender(None, 1, "first", target=spec.Target(address="q", durable=2))
        self.assertEqual(answer.target.durable, 0)

    def test_capability(self) -> None:
        """P-12, P-14: not for a sender that does not say that it settles what was accepted."""
        self.client.send(attach("sender", "p", 0, "q", properties=self.ONCE["properties"]))
        self.assertIsNone(self.client.one(spec.Attach).target)
        detach = self.client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:not-implemented")
        self.assertIn("AMQPROUTE:EXACTLY-ONCE", detach.error.description)
        wish = {Symbol("opt-delivery-mode"): Symbol("exactly-once")}
        answer = self.client.sender("q", 1, "w", properties=wish)
        self.assertEqual(answer.properties[Symbol("delivery-mode")], "at-least-once")
        answer = self.client.sender("q", 2, "c", **self.ONCE)
        self.assertEqual(tuple(answer.offered_capabilities), (EXACTLY_ONCE_CAPABILITY,))

    def test_refused(self) -> None:
        """E-02: not for a sender of settled deliveries, nor for consumers, nor dynamic targets."""
        for handle, request in enumerate(
            (
                attach("sender", "s", 0, "q", snd_settle_mode=1, **self.ONCE),
                attach("receiver", "r", 1, "q", **self.ONCE),
                attach("sender", "d", 2, None, target=spec.Target(dynamic=True),
                       **self.ONCE),
            )
        ):  # fmt: skip
            self.client.send(request)
            self.client.one(spec.Attach)
            detach = self.client.one(spec.Detach)
            self.assertEqual(condition(detach), "amqp:not-implemented", handle)
            words = "ask for at-least-once" if handle == 1 else "attach with the snd-settle-mode"
            self.assertIn(words, detach.error.description)

    def test_once(self) -> None:
        """Lost at any point and sent again under resumption, it is on the queue once."""
        self.client.sender("q", name="p", **self.ONCE)
        self.client.publish(0)
        for number in range(3):
            self.again()
            answer = self.client.sender("q", name="p", **self.ONCE, unsettled={b"tag-0": None})
            self.assertEqual(answer.unsettled, {b"tag-0": spec.Accepted()})
            self.client.publish(number, message(b"0"), delivery_tag=b"tag-0", resume=True)
        self.assertEqual(self.house.depth(), 1)


class EntryTests(ResumeCase):
    """A receiver that wants to identify entries gets their ids as delivery-tags."""

    CAPABILITIES = [Symbol("amqproute:stream")]

    def setUp(self) -> None:
        super().setUp()
        self.house.shared.stream = "store-1"
        self.client.fill([b"1", b"2"])

    def tags(self, **fields: Any) -> tuple[spec.Attach, dict[bytes, bytes]]:
        """Attach, and return the answer, and the tags with the bodies; then close the link."""
        answer = self.client.receiver(
            name="x", credit=9, desired_capabilities=self.CAPABILITIES, **fields
        )
        found = self.client.payloads(spec.Transfer)
        self.client.send(spec.Detach(handle=0, closed=True))
        self.client.all(spec.Detach)
        return answer, {each.delivery_tag: body_of(payload) for each, payload in found}

    def test_same(self) -> None:
        """They are the same for browsers and consumers, however often; the answer names the
        store."""
        browsed = spec.Source(address="q", distribution_mode="copy")
        answer, shown = self.tags(source=browsed)
        self.assertEqual(answer.properties[Symbol("amqproute:stream")], "store-1")
        self.assertEqual(tuple(answer.offered_capabilities), tuple(self.CAPABILITIES))
        self.assertEqual(list(shown.values()), [b"1", b"2"])
        first, second = (int.from_bytes(tag, "big") for tag in shown)
        self.assertEqual({len(tag) for tag in shown}, {8})
        self.assertLess(first, second)
        for _ in range(2):
            self.assertEqual(self.tags()[1], shown)

    def came_again(self, first: spec.Transfer) -> None:
        """One delivery was settled, and only then sent again under its tag."""
        found = [body for _, _, body, _ in self.client.frames if not isinstance(body, spec.Flow)]
        self.client.frames = []
        *_, settled, again = found
        self.assertEqual([type(settled), type(again)], [spec.Disposition, spec.Transfer], found)
        self.assertEqual((settled.first, settled.settled), (first.delivery_id, True))
        self.assertEqual(again.delivery_tag, first.delivery_tag)

    def test_given_back(self) -> None:
        """A delivery returned and not settled comes again when its tag is free."""
        for number, mode in enumerate((None, "copy")):
            source = spec.Source(address="q", distribution_mode=mode)
            self.client.receiver(
                None, number, f"x{number}", 4, source=source, desired_capabilities=self.CAPABILITIES
            )
            first, _ = self.client.all(spec.Transfer)
            self.client.frames = []
            self.client.dispose(first.delivery_id, state=spec.Released(), settled=False)
            self.came_again(first)
            self.client.send(spec.Detach(handle=number, closed=True))
            self.client.frames = []

    def test_given_back_within(self) -> None:
        """The same in a transaction."""
        self.client.receiver(name="x", credit=4, desired_capabilities=self.CAPABILITIES)
        first, _ = self.client.all(spec.Transfer)
        target = spec.Coordinator(capabilities=(spec.TXN_LOCAL,))
        self.client.send(attach("sender", "c", 5, None, target=target))
        self.client.names()
        self.client.publish(0, declare(), handle=5)
        (declared,) = [each.state for each in self.client.all(spec.Disposition)]
        state = spec.TransactionalState(txn_id=declared.txn_id, outcome=spec.Released())
        self.client.dispose(first.delivery_id, state=state, settled=False)
        self.client.frames = []
        self.client.publish(1, discharge(declared.txn_id, fail=False), handle=5)
        self.came_again(first)

    def test_others(self) -> None:
        """Without the request it gets neither."""
        answer = self.client.receiver(name="x", credit=9)
        self.assertEqual(tuple(answer.offered_capabilities or ()), ())
        self.assertNotIn(Symbol("amqproute:stream"), answer.properties)
        self.assertEqual({len(t.delivery_tag) for t in self.client.all(spec.Transfer)}, {4})


class SizeTests(ResumeCase):
    """The fields that every hop reads have a bound of their own."""

    def test_annotations(self) -> None:
        """E-02: header and annotations of more than 256 KiB are refused, the link continues."""
        self.client.sender()
        large = message(b"x", annotations={"x-opt-large": "x" * (256 * 1024)})
        self.client.publish(0, large[:200_000], more=True)
        self.client.publish(0, large[200_000:])
        told = self.client.one(spec.Disposition)
        self.assertIsInstance(told.state, spec.Rejected)
        self.assertEqual(told.state.error.condition, "amqp:resource-limit-exceeded")
        self.assertIn("262144", told.state.error.description)
        large = message(b"y" * 300_000, annotations={"x-opt-small": "x"})
        self.client.publish(1, large[:200_000], more=True)
        self.client.publish(1, large[200_000:])
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)
