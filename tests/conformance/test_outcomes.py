# SPDX-License-Identifier: Apache-2.0
"""Outcomes of deliveries to consumers: part 3 §3.4, topic O."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    Client,
    Network,
    attach,
    body_of,
    condition,
    frame,
    header_of,
    section_of,
)
from tests.support import plain_decoder


class OutcomeCase(SynchronousTestCase):
    """A queue with five messages and a consumer on handle 0."""

    limits = QueueLimits()
    source: dict[str, Any] = {}
    fields: dict[str, Any] = {}

    def setUp(self) -> None:
        self.house = Network().house(nodes=[NodeDeclaration("q", self.limits, "dead"), "dead"])
        self.client = self.house.client().ready()
        self.client.fill([b"0", b"1", b"2", b"3", b"4"])
        self.consume(**self.fields)

    def consume(self, **fields: Any) -> None:
        source = spec.Source(address="q", **self.source)
        self.client.send(attach("receiver", "r", 0, None, source=source, **fields))
        self.answer = self.client.one(spec.Attach)

    def take(self, count: int, **fields: Any) -> list[bytes]:
        """Give credit for so many more; return the bodies that come."""
        self.client.credit(count, **fields)
        return self.client.bodies()

    def other(self) -> Client:
        """Return another consumer, without credit."""
        client = self.house.client().ready("other")
        client.receiver()
        return client


class OutcomeTests(OutcomeCase):
    """Effects of each outcome."""

    def test_acquired(self) -> None:
        """L-21, L-22, Q-32: while it is with one consumer no other gets it."""
        self.assertEqual(self.take(2), [b"0", b"1"])
        other = self.other()
        other.credit(10)
        self.assertEqual(other.bodies(), [b"2", b"3", b"4"])

    def test_accepted(self) -> None:
        """O-01, O-10: never transferred again."""
        self.take(5)
        self.client.dispose(0, 4)
        self.assertEqual(self.house.depth(), 0)
        self.assertEqual(self.house.depth("dead"), 0)

    def test_released(self) -> None:
        """O-02, O-11: offered again, at its old place, delivery-count unchanged."""
        self.take(2)
        self.client.dispose(0, 1, state=spec.Released())
        other = self.other()
        other.credit(3)
        got = other.messages()
        self.assertEqual([body_of(each) for each in got], [b"0", b"1", b"2"])
        self.assertEqual(header_of(got[0]).delivery_count, 0)

    def test_rejected(self) -> None:
        """O-03, O-12, O-19: moved to the dead-letter node with reason, source and the words."""
        self.take(1)
        error = spec.Error(condition="test:bad", description="cannot read it")
        self.client.dispose(0, state=spec.Rejected(error=error))
        self.assertEqual(self.house.depth(), 4)
        reader = self.house.client().ready("reader")
        reader.receiver("dead", credit=1)
        (letter,) = reader.messages()
        self.assertEqual(body_of(letter), b"0")
        annotations = section_of(letter, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(annotations["x-opt-dead-letter-reason"], "rejected")
        self.assertEqual(annotations["x-opt-dead-letter-source"], "q")
        self.assertIn("cannot read it", str(annotations))

    def test_modified_failed(self) -> None:
        """O-13: delivery-failed raises the delivery-count."""
        self.take(1)
        self.client.dispose(0, state=spec.Modified(delivery_failed=True))
        other = self.other()
        other.credit(1)
        (again,) = other.messages()
        self.assertEqual(body_of(again), b"0")
        self.assertEqual(header_of(again).delivery_count, 1)

    def test_modified_not_failed(self) -> None:
        """O-13: without delivery-failed it does not."""
        self.take(1)
        self.client.dispose(0, state=spec.Modified())
        other = self.other()
        other.credit(1)
        (again,) = other.messages()
        self.assertEqual((body_of(again), header_of(again).delivery_count), (b"0", 0))

    def test_undeliverable_here(self) -> None:
        """O-13: undeliverable-here bars this link from it, and no other."""
        self.take(1)
        self.client.dispose(0, state=spec.Modified(undeliverable_here=True))
        self.assertEqual(
            self.take(5, delivery_count=1, next_incoming_id=1), [b"1", b"2", b"3", b"4"]
        )
        other = self.other()
        other.credit(5)
        self.assertEqual(other.bodies(), [b"0"])

    def test_modified_annotations(self) -> None:
        """O-13: message-annotations are merged."""
        self.take(1)
        annotations = {Symbol("x-opt-why"): "busy"}
        self.client.dispose(0, state=spec.Modified(message_annotations=annotations))
        other = self.other()
        other.credit(1)
        (again,) = other.messages()
        got = section_of(again, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(got["x-opt-why"], "busy")

    def test_parked(self) -> None:
        """O-04, O-33: a delivery may stay unsettled, with state received, as long as it likes."""
        self.take(1)
        received = spec.Received(section_number=0, section_offset=0)
        self.client.dispose(0, state=received, settled=False)
        self.client.run(1000)
        self.assertTrue(self.client.none(spec.Detach))
        other = self.other()
        other.credit(1)
        self.assertEqual(other.bodies(), [b"1"])
        self.client.dispose(0)
        self.assertEqual(self.house.depth(), 4)


class LockTimeoutTests(OutcomeCase):
    """`lock-timeout`: an outcome that does not come (O-04)."""

    limits = QueueLimits(max_deliveries=3)

    seconds = 80.0

    def consume(self, **fields: Any) -> None:
        self.house.shared.lock_seconds = self.seconds
        super().consume(**fields)

    @property
    def timers(self) -> list[str]:
        """The calls of the clock."""
        return [str(call) for call in self.house.world.clock.getDelayedCalls()]

    def wait(self, seconds: float) -> None:
        """Let time pass in steps, as a clock does."""
        for _ in range(round(seconds)):
            self.client.run(1)

    def test_taken_back(self) -> None:
        """The broker settles a delivery without an outcome in time as failed; others get it."""
        self.take(2)
        self.wait(79)
        self.assertTrue(self.client.none(spec.Disposition))
        self.wait(21)
        given_back = self.client.one(spec.Disposition)
        self.assertEqual((given_back.role, given_back.first, given_back.last), (False, 0, 1))
        self.assertTrue(given_back.settled)
        self.assertTrue(given_back.state.delivery_failed)
        other = self.other()
        other.credit(2)
        got = other.messages()
        self.assertEqual([body_of(each) for each in got], [b"0", b"1"])
        self.assertEqual([header_of(each).delivery_count for each in got], [1, 1])

    def test_too_late(self) -> None:
        """An outcome that comes later changes nothing, and harms nobody."""
        self.take(1)
        self.wait(100)
        self.client.dispose(0)
        self.assertEqual(self.house.depth(), 5)
        self.assertTrue(self.client.none(spec.Detach) and self.client.none(spec.End))
        self.assertEqual(self.take(5, delivery_count=1, next_incoming_id=1)[0], b"0")

    def test_each_by_itself(self) -> None:
        """The time of each message runs from when it was sent; what has an outcome has it."""
        self.take(2)
        self.client.dispose(0)
        self.wait(60)
        self.assertEqual(self.take(1, delivery_count=2, next_incoming_id=2), [b"2"])
        self.wait(40)
        given_back = self.client.one(spec.Disposition)
        self.assertIn((given_back.first, given_back.last), [(1, None), (1, 1)])
        self.client.dispose(2)
        self.wait(200)
        self.assertTrue(self.client.none(spec.Disposition))
        self.assertEqual(self.house.depth(), 3)

    def test_dead_letter(self) -> None:
        """A message that nobody settles is a dead letter after max-deliveries."""
        self.take(1)
        for count in (1, 2, 3):
            self.wait(100)
            self.take(1, delivery_count=count, next_incoming_id=count)
        self.assertEqual((self.house.depth(), self.house.depth("dead")), (4, 1))

    def test_received_is_no_outcome(self) -> None:
        """State received does not make it last longer; no timer is left when nothing waits."""
        self.take(1)
        received = spec.Received(section_number=0, section_offset=0)
        self.client.dispose(0, state=received, settled=False)
        self.wait(101)
        self.assertEqual(len(self.client.all(spec.Disposition)), 1)
        self.wait(10)
        self.assertFalse([each for each in self.timers if "LockMonitor" in each])

    def test_browsers(self) -> None:
        """A browser holds nothing, and nothing is taken from it."""
        client = self.house.client().ready("browser")
        client.send(
            attach(
                "receiver", "b", 0, None, source=spec.Source(address="q", distribution_mode="copy")
            )
        )
        client.credit(5)
        self.assertEqual(len(client.messages()), 5)
        self.wait(200)
        client.run()
        self.assertTrue(client.none(spec.Disposition))

    def test_changed(self) -> None:
        """Another time is in force from the next look on; 0 ends it."""
        self.take(1)
        self.house.shared.lock_seconds = 0
        self.wait(500)
        self.assertTrue(self.client.none(spec.Disposition))
        self.assertEqual(self.take(1, delivery_count=1, next_incoming_id=1), [b"1"])
        self.house.shared.lock_seconds = 8
        self.assertEqual(self.take(1, delivery_count=2, next_incoming_id=2), [b"2"])
        self.wait(12)
        self.assertTrue(self.client.all(spec.Disposition))
        self.assertEqual(self.house.broker.nodes["q"].available, 5)

    def test_gone(self) -> None:
        """With the link its watch ends."""
        self.take(1)
        self.assertTrue([each for each in self.timers if "LockMonitor" in each])
        self.client.send(spec.Detach(handle=0, closed=True))
        self.assertFalse([each for each in self.timers if "LockMonitor" in each])
        self.assertEqual(self.house.broker.nodes["q"].available, 5)


class DispositionTests(OutcomeCase):
    """The form of outcomes."""

    def test_any_order(self) -> None:
        """O-05: dispositions come in any order and in ranges."""
        self.take(5)
        self.client.dispose(4)
        self.client.dispose(1, 2, state=spec.Released())
        self.client.dispose(3)
        self.client.dispose(0)
        self.assertEqual(self.house.depth(), 2)

    def test_wide_range(self) -> None:
        """O-05: a range may cover deliveries that are settled, or never were."""
        self.take(5)
        self.client.dispose(2)
        self.client.dispose(0, 4000)
        self.assertEqual(self.house.depth(), 0)
        self.assertTrue(self.client.none(spec.End))

    def test_unsettled_outcome(self) -> None:
        """O-08, §2.6.12: an outcome proposed unsettled is settled by the broker, as sender."""
        self.take(1)
        self.client.dispose(0, settled=False)
        answer = self.client.one(spec.Disposition)
        self.assertFalse(answer.role)
        self.assertTrue(answer.settled)
        self.assertEqual((answer.first, answer.last or 0), (0, 0))
        self.assertEqual(self.house.depth(), 4)

    def test_settled_outcome_needs_no_answer(self) -> None:
        """O-08: an outcome that comes settled is the end of it."""
        self.take(1)
        self.client.dispose(0)
        self.assertTrue(self.client.none(spec.Disposition))

    def test_settled_without_state(self) -> None:
        """O-14: settled without an outcome: the default-outcome, released, applies."""
        self.take(2)
        self.client.send(spec.Disposition(role=True, first=0, settled=True))
        other = self.other()
        other.credit(1)
        self.assertEqual(other.bodies(), [b"0"])

    def test_outcome_then_settlement(self) -> None:
        """O-15: accepted, then settled without a state, or accepted again, is accepted."""
        self.take(2)
        self.client.dispose(0, settled=False)
        self.client.send(spec.Disposition(role=True, first=0, settled=True))
        self.client.dispose(1, settled=False)
        self.client.dispose(1)
        self.assertEqual(self.house.depth(), 3)
        self.assertTrue(self.client.none(spec.Detach) and self.client.none(spec.End))

    def test_after_settlement(self) -> None:
        """O-15: what is said of a delivery after its settlement changes nothing."""
        self.take(1)
        self.client.dispose(0)
        self.client.dispose(0, state=spec.Released())
        self.assertEqual(self.house.depth(), 4)

    def test_contradiction(self) -> None:
        """O-15, E-09: accepted, then rejected while it is unsettled: illegal-state."""
        self.take(1)
        self.client.write(
            *(
                frame(spec.Disposition(role=True, first=0, settled=False, state=state))
                for state in (spec.Accepted(), spec.Rejected())
            )
        )
        ended = self.client.all(spec.Detach) + self.client.all(spec.End)
        self.assertEqual([condition(each) for each in ended], ["amqp:illegal-state"])
        self.assertEqual(self.house.depth("dead"), 0)

    def test_settled_contradiction(self) -> None:
        """O-15: so it is where the second one comes settled."""
        self.take(1)
        self.client.write(
            frame(spec.Disposition(role=True, first=0, state=spec.Accepted())),
            frame(spec.Disposition(role=True, first=0, state=spec.Released(), settled=True)),
        )
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:illegal-state")
        self.assertEqual(self.house.depth(), 4)

    def test_role(self) -> None:
        """§2.7.6: a disposition of the other role is about other deliveries."""
        self.take(1)
        self.client.send(spec.Disposition(role=False, first=0, settled=True, state=spec.Accepted()))
        self.assertEqual(self.house.depth(), 5)


class AgreedTests(OutcomeCase):
    """O-29 to O-31: a client that restricts its outcomes."""

    source = {"outcomes": (RELEASED, ACCEPTED)}

    def test_echo(self) -> None:
        """O-29, O-30: the set is echoed unchanged, in its order."""
        self.assertEqual(self.answer.source.outcomes, (RELEASED, ACCEPTED))

    def test_inside(self) -> None:
        """O-29: the outcomes of the set work."""
        self.take(2)
        self.client.dispose(0)
        self.client.dispose(1, state=spec.Released())
        self.assertEqual(self.house.depth(), 4)

    def test_outside(self) -> None:
        """O-31, E-10: an outcome outside of it detaches the link with not-allowed."""
        self.take(1)
        self.client.dispose(0, state=spec.Rejected())
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-allowed")
        self.assertEqual(self.house.depth("dead"), 0)
        other = self.other()
        other.credit(5)
        self.assertEqual(other.bodies(), [b"0", b"1", b"2", b"3", b"4"])

    def test_range(self) -> None:
        """O-15, Q-34: a range with a contradiction in it leaves nothing behind."""
        self.take(5)
        self.client.write(
            frame(spec.Disposition(role=True, first=2, state=spec.Accepted())),
            frame(
                spec.Disposition(role=True, first=0, last=4, state=spec.Released(), settled=True)
            ),
        )
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:illegal-state")
        other = self.other()
        other.credit(5)
        self.assertEqual(other.bodies(), [b"0", b"1", b"3", b"4"])
        self.assertEqual(self.house.depth(), 4)


class DefaultTests(OutcomeCase):
    """O-14, O-17, O-21: a client that names its default outcome."""

    source = {"default_outcome": spec.Rejected(), "outcomes": (ACCEPTED, REJECTED)}

    def test_echo(self) -> None:
        """O-22: the default-outcome that is in force is in the answer."""
        self.assertIsInstance(self.answer.source.default_outcome, spec.Rejected)

    def test_settled_without_state(self) -> None:
        """O-14, O-19: it applies where a delivery is settled without an outcome."""
        self.take(1)
        self.client.send(spec.Disposition(role=True, first=0, settled=True))
        self.assertEqual((self.house.depth(), self.house.depth("dead")), (4, 1))

    def test_orphan(self) -> None:
        """O-17: it applies to what a lost connection left unsettled."""
        self.take(2)
        self.client.hang_up()
        self.assertEqual((self.house.depth(), self.house.depth("dead")), (3, 2))


class PresettledTests(OutcomeCase):
    """O-32, P-14: at most once."""

    fields = {"snd_settle_mode": spec.SENDER_SETTLED}

    def test_settled(self) -> None:
        """O-32: to a link of mode settled the broker sends settled, and forgets."""
        self.client.credit(3)
        transfers = self.client.all(spec.Transfer)
        self.assertTrue(all(each.settled for each in transfers))
        self.client.run()
        self.assertEqual(self.house.depth(), 2)
        self.client.hang_up()
        self.assertEqual(self.house.depth(), 2)


class WireTests(OutcomeCase):
    """The contents of the broker's frames, by a decoder without defaults."""

    def consume(self, **fields: Any) -> None:
        """Each test attaches for itself."""

    def written(self, descriptor: int) -> list[Any]:
        """Return the performatives of a kind that were written since the last time."""
        found = [
            performative
            for _, performative, _ in plain_decoder.frames(b"".join(self.client.raw))
            if performative is not None and performative.descriptor == descriptor
        ]
        self.client.raw.clear()
        return found

    def test_settled_only_if_asked(self) -> None:
        """S-07, O-32: with accepted the only outcome, too, settled for mode settled alone."""
        source = spec.Source(address="q", outcomes=(ACCEPTED,), default_outcome=spec.Accepted())
        for handle, mode in enumerate((None, 0, 1, 2)):
            self.client.send(
                attach("receiver", f"r{handle}", handle, None, source=source, snd_settle_mode=mode)
            )
            (answer,) = self.written(0x12)
            in_force = plain_decoder.field(answer, 3)
            self.assertEqual(2 if in_force is None else in_force, 2 if mode is None else mode)
            self.client.credit(1, handle, next_incoming_id=handle)
            (transfer,) = self.written(0x14)
            self.assertEqual(bool(plain_decoder.field(transfer, 4)), mode == 1)
        self.assertEqual(self.house.depth(), 4)

    def test_answer_to_an_attach(self) -> None:
        """O-22, O-28, S-02: outcomes, default-outcome and distribution-mode stand there."""
        self.client.send(attach("receiver", "r", 0, "q"))
        (answer,) = self.written(0x12)
        source = plain_decoder.field(answer, 5)
        self.assertEqual(plain_decoder.field(source, 6), "move")
        self.assertEqual(plain_decoder.field(source, 8).descriptor, 0x26)
        outcomes = plain_decoder.field(source, 9)
        self.assertEqual(outcomes.items, (ACCEPTED, REJECTED, RELEASED, MODIFIED))

    def test_answer_to_an_outcome(self) -> None:
        """O-08: what the receiver left to us is settled, with its state, as sender."""
        self.client.send(attach("receiver", "r", 0, "q"))
        self.client.credit(1)
        self.written(0x14)
        self.client.dispose(0, settled=False)
        (answer,) = self.written(0x15)
        role, first, last, settled, state = [plain_decoder.field(answer, i) for i in range(5)]
        self.assertEqual((role, first, last or 0, settled), (False, 0, 0, True))
        self.assertEqual(state.descriptor, 0x24)


class SecondTests(OutcomeCase):
    """rcv-settle-mode second on a consumer."""

    fields = {"rcv_settle_mode": spec.RECEIVER_SECOND}

    def test_second(self) -> None:
        """§2.6.12: outcome by the receiver, settlement by the sender, then by the receiver."""
        self.assertEqual(self.answer.rcv_settle_mode, spec.RECEIVER_SECOND)
        self.take(1)
        self.client.dispose(0, settled=False)
        answer = self.client.one(spec.Disposition)
        self.assertTrue(answer.settled)
        self.client.send(spec.Disposition(role=True, first=0, settled=True))
        self.assertEqual(self.house.depth(), 4)
        self.assertTrue(self.client.none(spec.End))


class AttemptTests(OutcomeCase):
    """O-24: max-deliveries."""

    limits = QueueLimits(max_deliveries=2)

    def test_limit(self) -> None:
        """O-24: after this many failed attempts a message is a dead letter."""
        for number in range(2):
            got = self.take(1, delivery_count=number, next_incoming_id=number)
            self.assertEqual(got, [b"0"])
            self.client.dispose(number, state=spec.Modified(delivery_failed=True))
        self.assertEqual((self.house.depth(), self.house.depth("dead")), (4, 1))
        reader = self.house.client().ready("reader")
        reader.receiver("dead", credit=1)
        (letter,) = reader.messages()
        annotations = section_of(letter, spec.SECTION_MESSAGE_ANNOTATIONS)
        self.assertEqual(annotations["x-opt-dead-letter-reason"], "max-deliveries")
