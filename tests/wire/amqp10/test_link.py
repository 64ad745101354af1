# SPDX-License-Identifier: Apache-2.0
"""Links: attach and detach, credit, transfers of any size (part 2 §2.6)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import LocalProtocolError, MessageSizeExceeded
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
)
from amqproute.wire.amqp10.state_tables import LinkStateName
from tests.support.wire import Pair, Peer, attach, flow, frame, of_type, settings, transfer


class _Case(SynchronousTestCase):
    chunk: int | None = None

    def peer(self, **changes: Any) -> Peer:
        return Peer(Connection(settings("server", **changes)), self.chunk).opened().begun()


class Attaching(_Case):
    """attach, refuse, detach."""

    def test_accept_echoes(self) -> None:
        """By default the answer repeats what was asked for (L-43)."""
        peer = self.peer(max_message_size=1000)
        peer.send(
            attach(
                snd_settle_mode=spec.SENDER_UNSETTLED,
                rcv_settle_mode=spec.RECEIVER_SECOND,
                target=spec.Target(address="q", durable=2, expiry_policy=spec.EXPIRE_NEVER),
            )
        )
        (answer,) = peer.read()
        self.assertEqual(answer.name, "link")
        self.assertIs(answer.role, True)
        self.assertEqual(answer.source, spec.Source(address="a"))
        self.assertEqual(answer.target.expiry_policy, spec.EXPIRE_NEVER)
        self.assertEqual(answer.snd_settle_mode, spec.SENDER_UNSETTLED)
        self.assertEqual(answer.rcv_settle_mode, spec.RECEIVER_SECOND)
        self.assertEqual(answer.max_message_size, 1000)
        self.assertIsNone(answer.initial_delivery_count)

    def test_accept_states_what_is_in_force(self) -> None:
        """Arguments of `accept` win over the request."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.send(attach("receiver", source=spec.Source(dynamic=True)))
        (attached,) = of_type(peer.events, LinkAttached)
        attached.link.accept(
            source=spec.Source(address="made-up"),
            snd_settle_mode=spec.SENDER_SETTLED,
            properties={"k": "v"},
            offered_capabilities=("queue",),
        )
        (answer,) = peer.read()
        self.assertEqual(answer.source.address, "made-up")
        self.assertEqual(answer.snd_settle_mode, spec.SENDER_SETTLED)
        self.assertEqual(answer.initial_delivery_count, 0)
        self.assertEqual(attached.link.source, spec.Source(address="made-up"))

    def test_client_sees_what_is_in_force(self) -> None:
        """A receiver learns the source from the sender's answer, a sender the target."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun()
        session = peer.engine.sessions[0]
        link = session.attach("dyn", "receiver", spec.Source(dynamic=True), spec.Target())
        peer.read()
        peer.send(attach("sender", name="dyn", source=spec.Source(address="made-up")))
        assert link.source is not None
        self.assertEqual(link.source.address, "made-up")
        self.assertTrue(of_type(peer.events, LinkAttached)[0].is_answer)

    def test_refuse(self) -> None:
        """A refusal has a null terminus on our side, then detach with the condition (L-34)."""
        for role, field in (("sender", "target"), ("receiver", "source")):
            peer = self.peer()
            peer.user = lambda event: (
                event.link.refuse(conditions.NOT_FOUND, "no such node", {"k": 1})
                if isinstance(event, LinkAttached)
                else None
            )
            peer.send(attach(role))
            answer, detach = peer.read()
            self.assertIsNone(getattr(answer, field))
            self.assertTrue(detach.closed)
            self.assertEqual(detach.error.condition, "amqp:not-found")
            self.assertEqual(detach.error.info, {"k": 1})
            self.assertEqual(peer.write(frame(transfer(0)), frame(flow(handle=0))), [])
            self.assertEqual(peer.send(spec.Detach(handle=0, closed=True)), [])
            self.assertEqual(peer.engine.sessions[0].links, ())

    def test_refused(self) -> None:
        """A refused client is told of the answer, then of the detach."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun()
        link = peer.engine.sessions[0].attach("x", "sender", None, spec.Target(address="q"))
        peer.read()
        error = spec.Error(condition="amqp:not-found")
        events = peer.write(
            frame(attach("receiver", name="x", target=None)),
            frame(spec.Detach(handle=0, closed=True, error=error)),
        )
        self.assertEqual([type(event) for event in events], [LinkAttached, LinkDetached])
        self.assertIsNone(link.target)
        (answer,) = peer.read()
        self.assertEqual((type(answer), answer.closed), (spec.Detach, True))

    def test_peer_detaches(self) -> None:
        """A detach is answered alike, and reports what was unsettled, oldest first."""
        peer = self.peer()
        link = peer.attached()
        link.flow(10)
        peer.write(frame(transfer(0), b"x"), frame(transfer(1), b"x"))
        peer.read()
        (detached,) = peer.send(spec.Detach(handle=0, closed=False))
        assert isinstance(detached, LinkDetached)
        self.assertFalse(detached.closed)
        self.assertFalse(detached.by_fault)
        self.assertEqual([each.tag for each in detached.deliveries], [b"t0", b"t1"])
        (answer,) = peer.read()
        self.assertFalse(answer.closed)
        self.assertFalse(link.is_active)
        self.assertEqual(link.session._unsettled.incoming, {})

    def test_settle_before_the_answer(self) -> None:
        """Settlements made while the events are walked go out before the detach."""
        peer = self.peer()
        peer.attached()
        peer.chunk = None
        peer.write(frame(transfer(0), b"x"), frame(spec.Detach(handle=0, closed=True)))
        (received,) = of_type(peer.events, DeliveriesReceived)
        self.assertTrue(received.link.is_active)
        received.link.session.settle(received.deliveries, spec.Accepted())
        self.assertEqual(peer.names(), ["Disposition", "Detach"])
        self.assertFalse(received.link.is_active)

    def test_we_detach(self) -> None:
        """After our detach there are no events of the link; the handle is free at the answer."""
        peer = self.peer()
        link = peer.attached()
        link.detach(error=spec.Error(condition="amqp:resource-deleted"))
        (detach,) = peer.read()
        self.assertTrue(detach.closed)
        self.assertEqual(peer.send(transfer(0), b"x"), [])
        self.assertEqual(peer.send(spec.Detach(handle=0, closed=True)), [])
        self.assertEqual(peer.names(), [])
        self.assertEqual(peer.attached(name="next").handle, 0)

    def test_name_again(self) -> None:
        """A name can be attached again as soon as it was detached, in the same read too (L-48)."""
        peer = self.peer()
        peer.attached()
        peer.chunk = None
        peer.write(frame(spec.Detach(handle=0)), frame(attach(source=spec.Source(address="other"))))
        self.assertEqual(peer.names(), ["Detach", "Attach"])
        (link,) = peer.engine.sessions[0].links
        self.assertIs(link.state, LinkStateName.OPEN)

    def test_name_again_unanswered(self) -> None:
        """A link that was never answered is out of the way of its successor."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.write(frame(attach()), frame(spec.Detach(handle=0)), frame(attach()))
        first, second = (event.link for event in of_type(peer.events, LinkAttached))
        first.accept()
        second.accept()
        self.assertEqual(peer.names(), ["Attach", "Detach", "Attach"])
        self.assertFalse(first.is_active)
        self.assertTrue(second.is_active)

    def test_both_directions(self) -> None:
        """A name stands for one link in each direction."""
        peer = self.peer()
        first = peer.attached("sender", 0)
        second = peer.attached("receiver", 1)
        self.assertTrue(first.is_active)
        self.assertTrue(second.is_active)

    def test_stolen(self) -> None:
        """A name attached again takes the link from the old one (L-09)."""
        peer = self.peer().begun(channel=1)
        old = peer.attached()
        peer.send(attach(), channel=1)
        (detached,) = of_type(peer.events, LinkDetached)
        self.assertIs(detached.link, old)
        self.assertTrue(detached.by_fault)
        self.assertFalse(detached.closed)
        assert detached.error is not None
        self.assertEqual(detached.error.condition, "amqp:link:stolen")
        detach, answer = peer.read()
        self.assertEqual((type(detach), type(answer)), (spec.Detach, spec.Attach))
        self.assertEqual(len(peer.engine.sessions[1].links), 1)

    def test_our_name_twice(self) -> None:
        """A name that we use is not ours to use again."""
        pair = Pair(self.chunk)
        self.assertRaises(
            LocalProtocolError, pair.session.attach, "link", "sender", None, spec.Target()
        )

    def test_handles_of_the_peer(self) -> None:
        """The peer's handle-max bounds what we attach."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun(handle_max=0)
        session = peer.engine.sessions[0]
        session.attach("one", "sender", None, spec.Target())
        self.assertRaises(LocalProtocolError, session.attach, "two", "sender", None, spec.Target())

    def test_accept_twice(self) -> None:
        """A second answer is our mistake."""
        self.assertRaises(LocalProtocolError, self.peer().attached().accept)

    def test_coordinator(self) -> None:
        """A coordinator is a target like any other."""
        peer = self.peer()
        target = spec.Coordinator(capabilities=("amqp:local-transactions",))
        self.assertEqual(peer.attached(target=target).target, target)


class Credit(_Case):
    """Link flow control (§2.6.7)."""

    def test_flow(self) -> None:
        """Credit is a number of deliveries from now on."""
        pair = Pair(self.chunk, credit=2)
        self.assertEqual(pair.sender.sendable, 2)
        pair.sender.send([b"x"], b"1")
        pair.receiver.flow(5)  # crosses the delivery
        pair.run()
        self.assertEqual(pair.sender.credit, 4)
        self.assertEqual(pair.receiver.credit, 4)

    def test_crossing(self) -> None:
        """A flow that crosses deliveries does not grant them twice."""
        peer = self.peer()
        link = peer.attached("receiver")
        peer.send(flow(handle=0, delivery_count=0, link_credit=5))
        link.send([b"x"], b"1")
        link.send([b"x"], b"2")
        peer.send(flow(handle=0, delivery_count=1, link_credit=5))
        self.assertEqual(link.credit, 4)

    def test_no_credit(self) -> None:
        """To send without credit is our mistake."""
        pair = Pair(self.chunk, credit=None)
        self.assertEqual(pair.sender.sendable, 0)
        self.assertRaises(LocalProtocolError, pair.sender.send, [b"x"], b"1")

    def test_revoked(self) -> None:
        """Deliveries within a grant that was revoked are taken (F-04)."""
        peer = self.peer(credit_grace_new=0)
        link = peer.attached()
        link.flow(3)
        link.flow(0)
        peer.write(*(frame(transfer(number), b"x") for number in range(3)))
        self.assertEqual(link.deliveries, 3)
        self.assertEqual(of_type(peer.events, LinkDetached), [])

    def test_grace(self) -> None:
        """A new link takes ten deliveries before it has given credit, and not eleven (P-04)."""
        peer = self.peer()
        peer.write(frame(attach()), *(frame(transfer(number), b"x") for number in range(10)))
        self.assertEqual(of_type(peer.events, LinkDetached), [])
        peer.send(transfer(10), b"x")
        (detached,) = of_type(peer.events, LinkDetached)
        assert detached.error is not None
        self.assertEqual(detached.error.condition, "amqp:link:transfer-limit-exceeded")
        self.assertEqual(len(detached.deliveries), 10)

    def test_grace_before_the_answer(self) -> None:
        """Too much before our attach: the detach comes after the user's attach."""
        peer = self.peer(credit_grace_new=1)
        peer.chunk = None
        peer.write(frame(attach()), frame(transfer(0), b"x"), frame(transfer(1), b"x"))
        self.assertEqual(
            [type(event) for event in peer.events[-3:]],
            [LinkAttached, DeliveriesReceived, LinkDetached],
        )
        self.assertEqual(peer.names(), ["Attach", "Detach"])
        self.assertFalse(of_type(peer.events, LinkAttached)[0].link.is_active)

    def test_early_flow(self) -> None:
        """Credit that a receiver gives before our attach counts from our first delivery."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.write(frame(attach("receiver")), frame(flow(handle=0, link_credit=3, echo=True)))
        (attached,) = of_type(peer.events, LinkAttached)
        self.assertEqual(attached.link.sendable, 0)
        attached.link.accept(initial_delivery_count=70)
        self.assertEqual(attached.link.sendable, 3)
        answer, echo = peer.read()
        self.assertEqual(answer.initial_delivery_count, 70)
        self.assertEqual((echo.delivery_count, echo.link_credit), (70, 3))

    def test_echo(self) -> None:
        """Echo is answered with the link's state."""
        peer = self.peer()
        peer.attached("receiver")
        (flowed,) = peer.send(flow(handle=0, link_credit=3, echo=True))
        assert isinstance(flowed, LinkFlowed)
        (told,) = peer.read()
        self.assertEqual((told.handle, told.delivery_count, told.link_credit), (0, 0, 3))

    def test_properties(self) -> None:
        """A flow carries link properties both ways."""
        pair = Pair(self.chunk)
        pair.receiver.flow(1, properties={"txn-id": b"t"})
        pair.run()
        (flowed,) = of_type(pair.client_events, LinkFlowed)
        self.assertEqual(flowed.flow.properties, {"txn-id": b"t"})

    def test_drain(self) -> None:
        """Drain: the sender uses the credit or gives it back; the receiver learns of it (F-10)."""
        pair = Pair(self.chunk, credit=None)
        pair.receiver.flow(5, drain=True)
        pair.run()
        self.assertTrue(pair.sender.drain)
        pair.sender.send([b"x"], b"1")
        pair.sender.drained()
        pair.run()
        self.assertEqual(pair.sender.credit, 0)
        self.assertEqual(pair.receiver.credit, 0)
        self.assertEqual(pair.sender.delivery_count, 5)
        self.assertEqual(pair.receiver.delivery_count, 5)
        (flowed,) = of_type(pair.server_events, LinkFlowed)
        self.assertEqual(flowed.flow.link_credit, 0)

    def test_drain_is_answered_once(self) -> None:
        """However often the user says that there is nothing; a new drain has a new answer."""
        peer = self.peer()
        link = peer.attached("receiver")
        for _ in range(2):
            peer.send(flow(handle=0, link_credit=5, drain=True))
            for _ in range(3):
                link.drained()
            (told,) = peer.read()
            self.assertEqual((told.link_credit, told.drain), (0, True))

    def test_drain_behind_the_queue(self) -> None:
        """Deliveries that wait for the window are sent before the credit is given back."""
        peer = self.peer()
        link = peer.attached("receiver")
        peer.send(flow(incoming_window=0, handle=0, link_credit=5, drain=True))
        link.send([b"x"], b"1")
        link.drained()
        self.assertEqual(peer.names(), [])
        peer.send(flow(incoming_window=9))
        sent, told = peer.read()
        self.assertEqual(type(sent), spec.Transfer)
        self.assertEqual((told.delivery_count, told.link_credit), (5, 0))

    def test_available(self) -> None:
        """The sender's `available` is passed on."""
        peer = self.peer()
        link = peer.attached()
        peer.send(flow(handle=0, delivery_count=0, available=12))
        self.assertEqual(link.available, 12)

    def test_flow_on_a_sender(self) -> None:
        """Credit is not the sender's to give."""
        pair = Pair(self.chunk)
        self.assertRaises(LocalProtocolError, pair.sender.flow, 1)
        self.assertRaises(LocalProtocolError, pair.receiver.drained)
        self.assertRaises(LocalProtocolError, pair.receiver.flow, -1)


class Transfers(_Case):
    """Messages in one frame and in many."""

    def test_batch(self) -> None:
        """Transfers in one read on one link are one event."""
        pair = Pair(None)
        for number in range(10):
            pair.sender.send([b"x"], b"%d" % number)
        pair.run()
        (received,) = of_type(pair.server_events, DeliveriesReceived)
        self.assertEqual(len(received.deliveries), 10)

    def test_fields(self) -> None:
        """A delivery arrives with all that was said of it."""
        pair = Pair(self.chunk)
        state = spec.TransactionalState(txn_id=b"x")
        pair.sender.send(
            [b"ab", b"cd"],
            b"tag",
            message_format=3,
            state=state,
            batchable=True,
            context="mine",
        )
        pair.run()
        (got,) = pair.received()
        self.assertEqual(
            (got.tag, got.payload, got.message_format, got.settled, got.state, got.batchable),
            (b"tag", b"abcd", 3, False, state, True),
        )
        self.assertEqual(pair.sender.unsettled[b"tag"].context, "mine")

    def test_settled(self) -> None:
        """Settled deliveries are forgotten at once by both."""
        pair = Pair(self.chunk)
        pair.sender.send([b"x"], b"t", settled=True)
        pair.run()
        self.assertTrue(pair.received()[0].settled)
        self.assertEqual(pair.sender.unsettled, {})
        self.assertEqual(pair.receiver.unsettled, {})

    def test_split(self) -> None:
        """A message larger than the peer's frames is split, and whole again at the other end."""
        pair = Pair(self.chunk, server={"max_frame_size": 512}, client={"max_frame_size": 512})
        body = bytes(range(256)) * 20
        for cut in (1, 100, 511, 512, 513, 5119):
            pair.sender.send([body[:cut], b"", body[cut:]], b"%d" % cut)
        pair.sender.send([], b"empty")
        data = pair.client.data_to_send()
        self.assertGreater(len(data), 60)
        self.assertLess(pair.client.remote_max_frame_size, 513)
        pair.server_events.extend(pair.server.receive_data(b"".join(data), 0.0))
        self.assertEqual([each.payload for each in pair.received()], [body] * 6 + [b""])

    def test_exact_frames(self) -> None:
        """No frame is larger than agreed, whatever the size of the message."""
        pair = Pair(None, server={"max_frame_size": 512}, client={"max_frame_size": 512})
        for size in range(380, 520):
            pair.receiver.flow(10)
            pair.run()
            pair.sender.send([b"x" * size], b"%d" % size)
            pair.run()
            self.assertEqual(len(pair.received()[-1].payload), size)
        self.assertTrue(pair.sender.is_active)

    def test_aborted(self) -> None:
        """An aborted delivery is dropped; its credit is used (§2.6.14)."""
        peer = self.peer()
        link = peer.attached()
        link.flow(5)
        peer.write(
            frame(transfer(0, more=True), b"half"),
            frame(transfer(None, aborted=True)),
            frame(transfer(1), b"whole"),
        )
        (received,) = of_type(peer.events, DeliveriesReceived)
        self.assertEqual([each.payload for each in received.deliveries], [b"whole"])
        self.assertEqual(link.credit, 3)
        self.assertEqual(list(link.unsettled), [b"t1"])

    def test_settled_on_a_later_frame(self) -> None:
        """Settled on any frame settles the delivery."""
        peer = self.peer()
        peer.attached()
        peer.write(frame(transfer(0, more=True), b"a"), frame(transfer(None, settled=True), b"b"))
        (received,) = of_type(peer.events, DeliveriesReceived)
        self.assertTrue(received.deliveries[0].settled)
        self.assertEqual(received.deliveries[0].payload, b"ab")

    def test_links_interleave(self) -> None:
        """Frames of deliveries on different links may be mixed."""
        peer = self.peer()
        peer.attached()
        peer.attached(handle=1, name="second")
        peer.write(
            frame(transfer(0, 0, more=True), b"a"),
            frame(transfer(1, 1, more=True), b"b"),
            frame(transfer(None, 0), b"A"),
            frame(transfer(None, 1), b"B"),
        )
        payloads = [
            delivery.payload
            for event in of_type(peer.events, DeliveriesReceived)
            for delivery in event.deliveries
        ]
        self.assertEqual(payloads, [b"aA", b"bB"])

    def test_too_large_for_the_peer(self) -> None:
        """A delivery larger than the peer takes is not sent, and nothing is used up."""
        pair = Pair(self.chunk, server={"max_message_size": 10})
        self.assertRaises(MessageSizeExceeded, pair.sender.send, [b"x" * 11], b"t")
        self.assertEqual(pair.sender.credit, 100)
        self.assertEqual(pair.sender.unsettled, {})
        pair.sender.send([b"x" * 10], b"t")

    def test_settle_modes(self) -> None:
        """Settlement against snd-settle-mode is our mistake."""
        unsettled = Pair(self.chunk, snd_settle_mode=spec.SENDER_UNSETTLED)
        self.assertRaises(LocalProtocolError, unsettled.sender.send, [b"x"], b"t", settled=True)
        settled = Pair(self.chunk, snd_settle_mode=spec.SENDER_SETTLED)
        self.assertRaises(LocalProtocolError, settled.sender.send, [b"x"], b"t")

    def test_tag_in_use(self) -> None:
        """A tag is free again when its delivery is settled."""
        pair = Pair(self.chunk)
        sent = pair.sender.send([b"x"], b"t")
        self.assertRaises(LocalProtocolError, pair.sender.send, [b"x"], b"t")
        pair.session.settle([sent])
        pair.sender.send([b"x"], b"t")

    def test_long_tag(self) -> None:
        """A tag has at most 32 octets."""
        pair = Pair(self.chunk)
        self.assertRaises(LocalProtocolError, pair.sender.send, [b"x"], b"t" * 33)

    def test_large_state(self) -> None:
        """A delivery state that leaves no room in a frame is refused before anything is sent."""
        pair = Pair(self.chunk)
        state = spec.TransactionalState(txn_id=b"x" * 300)
        self.assertRaises(LocalProtocolError, pair.sender.send, [b"x"], b"t", state=state)
        self.assertEqual(pair.sender.credit, 100)


class AttachingByteByByte(Attaching):
    """The same, an octet at a time."""

    chunk = 1


class CreditByteByByte(Credit):
    """The same, an octet at a time."""

    chunk = 1


class TransfersByteByByte(Transfers):
    """The same, an octet at a time."""

    chunk = 1
