# SPDX-License-Identifier: Apache-2.0
"""Transfers into the broker: part 2 §2.6.12 to §2.6.14, publishing (topic P)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreError
from amqproute.values import EXACTLY_ONCE_CAPABILITY, Principal
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.conformance.frame_broker import (
    ACCEPTED,
    REJECTED,
    Network,
    attach,
    bare,
    condition,
    data,
    frame,
    message,
)


def covered(dispositions: list[spec.Disposition]) -> list[int]:
    """Return the delivery-ids that dispositions cover."""
    ids = []
    for each in dispositions:
        last = each.first if each.last is None else each.last
        ids.extend(range(each.first, last + 1))
    return ids


class SettlementTests(SynchronousTestCase):
    """Answers to a publisher."""

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = self.house.client().ready()

    def test_unsettled(self) -> None:
        """P-05, O-08, §2.6.12: what is sent unsettled is settled, accepted, as receiver."""
        self.client.sender()
        self.client.publish(0)
        answer = self.client.one(spec.Disposition)
        self.assertTrue(answer.role)
        self.assertTrue(answer.settled)
        self.assertEqual(covered([answer]), [0])
        self.assertIsInstance(answer.state, spec.Accepted)

    def test_settled(self) -> None:
        """P-10, §2.6.12: what is sent settled is taken, and no disposition comes."""
        self.client.sender()
        self.client.publish(0, settled=True)
        self.assertTrue(self.client.none(spec.Disposition))
        self.assertEqual(self.house.depth(), 1)

    def test_settled_mode(self) -> None:
        """P-10: so on a link with snd-settle-mode settled."""
        self.client.sender(snd_settle_mode=1)
        self.client.publish(0, settled=True)
        self.assertTrue(self.client.none(spec.Disposition))
        self.assertEqual(self.house.depth(), 1)

    def test_settled_against_the_mode(self) -> None:
        """§2.8.2: with snd-settle-mode unsettled nothing may be sent settled."""
        self.client.sender(snd_settle_mode=0)
        self.client.publish(0, settled=True)
        ended = self.client.all(spec.Detach) + self.client.all(spec.End)
        self.assertEqual(len(ended), 1)
        self.assertIsNotNone(condition(ended[0]))

    def test_accepted_after_the_commit(self) -> None:
        """T-20, D-02: the accepted outcome is not sent before the store has committed."""
        self.client.sender()
        self.house.store.is_held = True
        self.client.publish(0, message(header=spec.Header(durable=True)))
        self.client.run(1)
        self.assertTrue(self.client.none(spec.Disposition))
        self.house.store.let_go()
        self.client.run()
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)

    def test_store_fails(self) -> None:
        """T-20, E-05: what could not be stored is never accepted; the sender is told."""
        self.client.sender()
        self.house.store.is_full = True
        self.client.publish(0, message(header=spec.Header(durable=True)))
        self.client.run(1)
        states = [type(each.state) for each in self.client.all(spec.Disposition)]
        self.assertNotIn(spec.Accepted, states)
        detached = [condition(each) for each in self.client.all(spec.Detach)]
        self.assertTrue(detached or spec.Released in states or spec.Rejected in states)
        self.flushLoggedErrors(StoreError)

    def test_bulk(self) -> None:
        """P-06, W-07: a batch in one segment is settled by one or few dispositions."""
        self.client.sender()
        self.client.write(*(self.client.transfer(n, batchable=True) for n in range(10)))
        answers = self.client.all(spec.Disposition)
        self.assertLessEqual(len(answers), 2)
        self.assertEqual(sorted(covered(answers)), list(range(10)))
        self.assertTrue(all(each.settled for each in answers))

    def test_at_once(self) -> None:
        """P-07: without batchable a delivery is settled without waiting for further ones."""
        self.client.sender()
        for number in range(3):
            self.client.publish(number, batchable=False)
            self.assertEqual(covered(self.client.all(spec.Disposition)), [number])

    def test_only_accepted(self) -> None:
        """P-11: with accepted as the only outcome dispositions are sent all the same."""
        outcomes = spec.Source(outcomes=(ACCEPTED,), default_outcome=spec.Accepted())
        self.client.sender(source=outcomes)
        self.client.publish(0)
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)

    def test_explicit_outcome(self) -> None:
        """P-09: who names the outcomes at attach is answered with one of them, or by a detach."""
        self.client.sender(source=spec.Source(outcomes=(ACCEPTED, REJECTED)))
        self.client.publish(0)
        self.client.publish(1, b"junk")
        states = [type(each.state) for each in self.client.all(spec.Disposition)]
        self.assertEqual(states, [spec.Accepted, spec.Rejected])
        self.client.sender(handle=1, source=spec.Source(outcomes=(ACCEPTED,)))
        self.client.publish(2, handle=1)
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)
        self.client.publish(3, b"junk", handle=1)
        self.assertTrue(self.client.none(spec.Disposition))
        detach = self.client.one(spec.Detach)
        self.assertEqual(condition(detach), "amqp:decode-error")
        self.assertEqual(detach.error.info["delivery-tag"], b"tag-3")

    def test_receiver_second(self) -> None:
        """§2.6.12, P-16: rcv-settle-mode second: outcome, then the sender settles."""
        self.client.sender(rcv_settle_mode=1, desired_capabilities=(EXACTLY_ONCE_CAPABILITY,))
        self.client.publish(0)
        answer = self.client.one(spec.Disposition)
        self.assertFalse(answer.settled)
        self.assertIsInstance(answer.state, spec.Accepted)
        self.client.send(spec.Disposition(role=False, first=0, settled=True, state=answer.state))
        self.assertTrue(self.client.none(spec.Detach) and self.client.none(spec.End))
        self.client.publish(1, delivery_tag=b"tag-0")
        self.assertEqual(self.house.depth(), 2)

    def test_receiver_first(self) -> None:
        """P-14, P-17: who only asks for rcv-settle-mode second gets first: many never settle."""
        durable = spec.Target(address="q", durable=spec.DURABLE_UNSETTLED_STATE)
        dynamic = spec.Target(dynamic=True)
        wishes = {Symbol("opt-delivery-mode"): Symbol("exactly-once")}
        self.world.house("b.test")
        for handle, (address, fields) in enumerate(
            (
                ("q", {}),
                ("q@b.test", {}),
                (None, {}),
                (None, {"target": durable}),
                (None, {"target": dynamic}),
                ("q", {"properties": wishes}),
                ("q", {"desired_capabilities": (Symbol("amqp:exactly-once"),)}),
            )
        ):
            answer = self.client.sender(address, handle, rcv_settle_mode=1, **fields)
            self.assertEqual(answer.rcv_settle_mode, spec.RECEIVER_FIRST)
            self.assertFalse(answer.offered_capabilities)
            self.assertEqual(answer.target.durable, spec.DURABLE_NONE)
            to = "q@b.test" if address == "q@b.test" else "q"
            self.client.publish(handle, message(to=to), handle=handle)
            told = self.client.one(spec.Disposition)
            self.assertEqual((told.settled, told.first), (True, handle))
            self.assertIsInstance(told.state, spec.Accepted)
            # The tag is free again without a word of the sender's.
            self.client.publish(handle + 100, message(to=to), handle=handle,
                                delivery_tag=b"tag-%d" % handle)  # fmt: skip
            self.assertTrue(self.client.one(spec.Disposition).settled)

    def test_receiver_first_ahead(self) -> None:
        """P-14: what is sent with the attach, before its answer, is settled first as well."""
        explicit = {"rcv_settle_mode": 1}
        self.world.house("b.test")
        self.world.dns_seconds = 1.0
        for handle, address in enumerate(("q", "q@b.test")):
            self.client.write(
                frame(attach("sender", f"ahead-{handle}", handle, address, rcv_settle_mode=1)),
                self.client.transfer(2 * handle, handle=handle),
                self.client.transfer(2 * handle + 1, handle=handle, **explicit),
            )
            self.client.run(2)
            self.assertEqual(self.client.one(spec.Attach).rcv_settle_mode, spec.RECEIVER_FIRST)
            told = self.client.all(spec.Disposition)
            self.assertEqual(covered(told), [2 * handle, 2 * handle + 1])
            self.assertTrue(all(each.settled for each in told))

    def test_receiver_second_by_target(self) -> None:
        """P-14: the capability may stand with the target, where Proton can put it."""
        target = spec.Target(address="q", capabilities=(EXACTLY_ONCE_CAPABILITY,))
        answer = self.client.sender(None, target=target, rcv_settle_mode=1)
        self.assertEqual(answer.rcv_settle_mode, spec.RECEIVER_SECOND)
        self.assertIn(EXACTLY_ONCE_CAPABILITY, answer.target.capabilities)
        self.assertIn("AMQPROUTE:EXACTLY-ONCE", answer.offered_capabilities)
        self.client.publish(0)
        self.assertFalse(self.client.one(spec.Disposition).settled)

    def test_capability_alone(self) -> None:
        """P-14: the capability is leave to settle second, no wish for it."""
        answer = self.client.sender(desired_capabilities=(EXACTLY_ONCE_CAPABILITY,))
        self.assertEqual(answer.rcv_settle_mode, spec.RECEIVER_FIRST)
        self.client.publish(0)
        self.assertTrue(self.client.one(spec.Disposition).settled)

    def test_receiver_second_for_peers(self) -> None:
        """P-14: a broker settles what it has heard of; it needs no capability."""
        peer = Principal("peer", "b.test", frozenset({"b.test"}))
        client = self.house.client(peer).ready("b.test")
        answer = client.sender("amqp$transfer", rcv_settle_mode=1)
        self.assertEqual(answer.rcv_settle_mode, spec.RECEIVER_SECOND)
        client.publish(0, message(to="q@a.test"))
        self.assertFalse(client.one(spec.Disposition).settled)

    def test_not_stored(self) -> None:
        """P-20, D-04: what is not durable is accepted, continues, and is never in the store."""
        self.client.sender()
        for number, durable in enumerate((None, False, True)):
            header = None if durable is None else spec.Header(durable=durable)
            self.client.publish(number, message(b"m", header=header))
            self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)
            self.assertEqual(len(self.house.store._where), int(bool(durable)))
        self.client.receiver(handle=1, credit=3)
        self.assertEqual(self.client.bodies(), [b"m"] * 3)

    def test_nothing_leaks_in_the_end(self) -> None:
        """O-27: whatever becomes of deliveries, no map of unsettled ones keeps any."""
        self.client.sender()
        for number in range(60):
            encoded = b"junk" if number % 3 == 1 else message(b"%d" % number)
            self.client.publish(number, encoded, settled=number % 3 == 2)
            self.client.run(0.1)
        depth = self.house.depth()
        self.assertGreater(depth, 20)
        consumer = self.house.client().ready("consumer")
        consumer.receiver(credit=100)
        self.assertEqual(len(consumer.messages()), depth)
        states = (spec.Accepted(), spec.Rejected(), spec.Modified(undeliverable_here=True))
        for number in range(depth):
            consumer.dispose(number, state=states[number % 3], settled=number % 2 == 0)
        links = [link for each in self.house.frontends for link in each.links.attached]
        self.assertGreater(len(links), 1)
        self.assertEqual([link.unsettled for link in links], [{}] * len(links))
        for link in links:
            self.assertEqual((link.session._outgoing, link.session._unsettled.incoming), ({}, {}))

    def test_nothing_leaks(self) -> None:
        """O-27: no delivery is left unsettled by the broker."""
        self.client.sender()
        for number in range(300):
            self.client.publish(number)
        self.assertEqual(sorted(covered(self.client.all(spec.Disposition))), list(range(300)))

    def test_tag_is_free_again(self) -> None:
        """§2.6.12: a delivery-tag may be used again once its delivery is settled."""
        self.client.sender()
        self.client.publish(0, delivery_tag=b"same")
        self.client.publish(1, delivery_tag=b"same")
        self.assertEqual(self.house.depth(), 2)

    def test_non_durable(self) -> None:
        """P-20, D-04: a message that is not durable is accepted as well, and delivered."""
        self.client.sender()
        self.client.publish(0, message(b"m", header=spec.Header(durable=False)))
        self.assertIsInstance(self.client.one(spec.Disposition).state, spec.Accepted)
        self.client.receiver(handle=1, credit=1)
        self.assertEqual(self.client.bodies(), [b"m"])


class FramesTests(SynchronousTestCase):
    """Deliveries of several frames, §2.6.14."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.house.client().ready()
        self.client.sender()
        self.client.names()

    def first(self, delivery_id: int = 0, handle: int = 0, **fields: Any) -> spec.Transfer:
        return spec.Transfer(
            handle=handle,
            delivery_id=delivery_id,
            delivery_tag=b"t%d" % delivery_id,
            message_format=0,
            **{"more": True, **fields},
        )

    def test_several_frames(self) -> None:
        """§2.6.14, L-50: a delivery may come in any number of frames, ids on the first only."""
        encoded = message(b"x" * 1000)
        self.client.write(frame(self.first(), encoded[:100]))
        for start in range(100, len(encoded), 100):
            more = start + 100 < len(encoded)
            self.assertEqual(self.house.depth(), 0)
            self.client.write(
                frame(spec.Transfer(handle=0, more=more), encoded[start : start + 100])
            )
        self.assertEqual(self.house.depth(), 1)
        self.client.receiver(handle=1, credit=1)
        self.assertEqual(self.client.bodies(), [b"x" * 1000])

    def test_large(self) -> None:
        """M-08: a message many times the size of a frame comes back octet for octet."""
        encoded = message(bytes(range(256)) * 4000)
        step = 60_000
        self.client.write(frame(self.first(), encoded[:step]))
        for start in range(step, len(encoded), step):
            more = start + step < len(encoded)
            self.client.write(
                frame(spec.Transfer(handle=0, more=more), encoded[start : start + step])
            )
        self.client.receiver(handle=1, credit=1)
        (got,) = self.client.messages()
        self.assertEqual(bare(got), bare(encoded))

    def test_empty_frames(self) -> None:
        """§2.6.14: a transfer frame may be without payload."""
        self.client.write(
            frame(self.first()),
            frame(spec.Transfer(handle=0, more=True)),
            frame(spec.Transfer(handle=0, more=True), message(b"m")),
            frame(spec.Transfer(handle=0)),
        )
        self.client.receiver(handle=1, credit=1)
        self.assertEqual(self.client.bodies(), [b"m"])

    def test_aborted(self) -> None:
        """§2.6.14, §2.7.5: an aborted delivery is dropped; it needs no outcome."""
        self.client.write(
            frame(self.first(), b"garbage"), frame(spec.Transfer(handle=0, aborted=True))
        )
        self.assertEqual(self.house.depth(), 0)
        self.assertTrue(self.client.none(spec.Disposition))
        self.client.publish(1, message(b"next"))
        self.client.receiver(handle=1, credit=1)
        self.assertEqual(self.client.bodies(), [b"next"])

    def test_interleaved(self) -> None:
        """§2.6.14: frames of deliveries on different links may be mixed."""
        self.client.sender(handle=1)
        one, two = message(b"1" * 50), message(b"2" * 50)
        self.client.write(
            frame(self.first(0, 0), one[:20]),
            frame(self.first(1, 1), two[:20]),
            frame(spec.Transfer(handle=0), one[20:]),
            frame(spec.Transfer(handle=1), two[20:]),
        )
        self.client.receiver(handle=2, credit=2)
        self.assertEqual(self.client.bodies(), [b"1" * 50, b"2" * 50])

    def test_settled_later(self) -> None:
        """§2.7.5: settled on any frame settles the delivery."""
        encoded = message(b"m")
        self.client.write(
            frame(self.first(settled=False), encoded[:3]),
            frame(spec.Transfer(handle=0, settled=True), encoded[3:]),
        )
        self.assertEqual(self.house.depth(), 1)
        self.assertTrue(self.client.none(spec.Disposition))

    def test_cut_off(self) -> None:
        """§2.6.14, D-12: a delivery of which the end never came is not a message."""
        self.client.write(frame(self.first(), message(b"half")))
        self.client.hang_up()
        self.assertEqual(self.house.depth(), 0)

    def test_detached_in_the_middle(self) -> None:
        """§2.6.14: nor is one whose link was detached before its end."""
        self.client.write(
            frame(self.first(), message(b"half")), frame(spec.Detach(handle=0, closed=True))
        )
        self.assertEqual(self.house.depth(), 0)

    def test_without_id(self) -> None:
        """§2.7.5: delivery-id is mandatory on the first transfer of a delivery."""
        self.client.write(frame(spec.Transfer(handle=0, delivery_tag=b"t"), message()))
        self.assertTrue(self.client.all(spec.End) or self.client.all(spec.Detach))
        self.assertEqual(self.house.depth(), 0)

    def test_without_tag(self) -> None:
        """§2.7.5: and so is the delivery-tag."""
        self.client.write(frame(spec.Transfer(handle=0, delivery_id=0), message()))
        self.assertTrue(self.client.all(spec.End) or self.client.all(spec.Detach))
        self.assertEqual(self.house.depth(), 0)

    def test_other_id_in_the_middle(self) -> None:
        """§2.7.5: continuation frames repeat the delivery-id or leave it out."""
        self.client.write(
            frame(self.first(0), message()),
            frame(spec.Transfer(handle=0, delivery_id=5), b""),
        )
        self.assertTrue(self.client.all(spec.End) or self.client.all(spec.Detach))
        self.assertEqual(self.house.depth(), 0)

    def test_other_format_in_the_middle(self) -> None:
        """§2.7.5: the message-format of a continuation is the first one's, or left out."""
        for delivery_id, message_format in enumerate((None, 0)):
            self.client.write(
                frame(self.first(delivery_id), message()[:5]),
                frame(spec.Transfer(handle=0, message_format=message_format), message()[5:]),
            )
        self.assertEqual(self.house.depth(), 2)
        self.client.write(
            frame(self.first(2), message()[:5]),
            frame(spec.Transfer(handle=0, message_format=1), message()[5:]),
        )
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:not-allowed")
        self.assertEqual(self.house.depth(), 2)

    def test_transfer_on_a_receiver(self) -> None:
        """§2.6.12: messages flow one way on a link."""
        self.client.receiver(handle=1, credit=1)
        self.client.publish(0, handle=1)
        self.assertTrue(self.client.all(spec.End) or self.client.all(spec.Detach))
        self.assertEqual(self.house.depth(), 0)


class SizeTests(SynchronousTestCase):
    """max-message-size, L-47."""

    def setUp(self) -> None:
        self.house = Network().house(settings={"max_message_size": 1000})
        self.client = self.house.client().ready()
        self.client.sender()

    def test_too_large(self) -> None:
        """L-47, §2.8.18: more than max-message-size detaches with its condition."""
        self.client.publish(0, message(b"x" * 1001))
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:link:message-size-exceeded")
        self.assertEqual(self.house.depth(), 0)

    def test_too_large_in_pieces(self) -> None:
        """L-47: it does so before the whole message was gathered."""
        first = spec.Transfer(
            handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True
        )
        self.client.write(frame(first, b"x" * 600))
        self.client.write(frame(spec.Transfer(handle=0, more=True), b"x" * 600))
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:link:message-size-exceeded")

    def test_just_fits(self) -> None:
        """L-47: the limit itself is allowed."""
        spare = 1000 - len(data(b"x" * 900))
        encoded = data(b"x" * (900 + spare))
        self.assertEqual(len(encoded), 1000)
        self.client.publish(0, encoded)
        self.assertEqual(self.house.depth(), 1)

    def test_too_large_for_the_receiver(self) -> None:
        """L-47, E-01: a receiver's max-message-size is kept by the broker as well."""
        house = Network().house()
        client = house.client().ready()
        client.fill([b"x" * 5000, b"small"])
        client.receiver(max_message_size=1000, credit=10)
        self.assertEqual(client.bodies(), [b"small"])
        self.assertEqual(house.depth(), 2)


class OneOffTests(SynchronousTestCase):
    """P-02 to P-04."""

    def test_everything_at_once(self) -> None:
        """P-03, W-22: header to close in one segment: the message is stored, all answered."""
        house = Network().house()
        client = house.client()
        client.write(
            b"AMQP\x00\x01\x00\x00",
            frame(spec.Open(container_id="c")),
            frame(spec.Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)),
            frame(attach("sender", "s", 0, "q")),
            client.transfer(0, message(b"once", header=spec.Header(durable=True))),
            frame(spec.Detach(handle=0, closed=True)),
            frame(spec.End()),
            frame(spec.Close()),
        )
        names = client.names()
        wanted = ["Open", "Begin", "Attach", "Detach", "End", "Close"]
        self.assertEqual([name for name in names if name in wanted], wanted)
        self.assertTrue(client.is_cut)
        self.assertEqual(house.depth(), 1)

    def test_grace(self) -> None:
        """P-04: a new link takes ten deliveries before its credit has arrived."""
        house = Network().house()
        client = house.client().ready()
        client.write(frame(attach("sender", "s", 0, "q")), *(client.transfer(n) for n in range(10)))
        self.assertTrue(client.none(spec.Detach))
        self.assertEqual(covered(client.all(spec.Disposition)), list(range(10)))
        self.assertEqual(house.depth(), 10)

    def test_grace_ends(self) -> None:
        """P-04: and not any number of them."""
        house = Network().house()
        client = house.client().ready()
        client.write(frame(attach("sender", "s", 0, "q")), *(client.transfer(n) for n in range(50)))
        detached = [condition(each) for each in client.all(spec.Detach)]
        self.assertEqual(detached, ["amqp:link:transfer-limit-exceeded"])

    def test_continuous(self) -> None:
        """P-02: a long-lived publisher is granted credit again and again."""
        house = Network().house(limits={"link_credit": 10})
        client = house.client().ready()
        client.sender()
        credit = 0
        for number in range(100):
            for flow in client.all(spec.Flow):
                if flow.link_credit is not None:
                    credit = (flow.delivery_count or 0) + flow.link_credit - number
            self.assertGreater(credit, 0, f"no credit after {number}")
            credit -= 1
            client.publish(number)
        self.assertEqual(house.depth(), 100)
