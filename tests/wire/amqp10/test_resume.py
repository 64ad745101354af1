# SPDX-License-Identifier: Apache-2.0
"""Resuming deliveries on a link that is attached again (part 2 §2.6.13)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.connection_state import MOST_UNSETTLED
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
)
from tests.support.wire import Pair, Peer, answer, attach, flow, frame, of_type, settings, transfer

SOURCE = spec.Source(address="a", durable=2, expiry_policy=spec.EXPIRE_NEVER)
TARGET = spec.Target(address="b", durable=2, expiry_policy=spec.EXPIRE_NEVER)


class Sending(SynchronousTestCase):
    """We are the sender."""

    chunk: int | None = None

    def test_whole_story(self) -> None:
        """Two engines: detach with one delivery unsettled, attach again, resume, settle once."""
        pair = Pair(self.chunk)
        pair.sender.send([b"first"], b"1")
        pair.sender.send([b"second"], b"2")
        pair.run()
        kept = {each.tag: None for each in pair.received()}
        pair.sender.detach(closed=False)
        mine = dict.fromkeys(pair.sender.unsettled)
        pair.run()
        (gone,) = of_type(pair.server_events, LinkDetached)
        self.assertEqual(len(gone.deliveries), 2)
        self.assertFalse(gone.closed)
        pair.server_events.clear()

        def user(event: Any) -> None:
            if isinstance(event, LinkAttached):
                self.assertEqual(event.attach.unsettled, mine)
                event.link.accept(unsettled=kept)
                event.link.flow(10)
            else:
                answer(event)

        pair.on_server = user
        link = pair.session.attach("link", "sender", SOURCE, TARGET, unsettled=mine)
        pair.run()
        assert link.remote_attach is not None
        self.assertEqual(link.remote_attach.unsettled, {b"1": None, b"2": None})
        link.send([b"first"], b"1", resume=True)
        link.send([b"second"], b"2", resume=True)
        link.send([b"third"], b"3")
        pair.run()
        received = pair.received()
        self.assertEqual(
            [(each.tag, each.resumed) for each in received],
            [(b"1", True), (b"2", True), (b"3", False)],
        )
        received[0].link.session.settle(received, spec.Accepted())
        pair.run()
        (updated,) = of_type(pair.client_events, DeliveriesUpdated)
        self.assertEqual(len(updated.deliveries), 3)
        self.assertEqual(link.unsettled, {})

    def test_incomplete_map(self) -> None:
        """To a peer whose map is incomplete only resumed deliveries go (§2.7.3)."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun()
        link = peer.attached("receiver", unsettled={b"1": None}, incomplete_unsettled=True)
        peer.send(flow(handle=0, link_credit=5))
        self.assertEqual(link.sendable, 0)
        self.assertRaises(LocalProtocolError, link.send, [b"x"], b"2")
        link.send([b"x"], b"1", resume=True)
        (sent,) = peer.read()
        self.assertTrue(sent.resume)

    def test_resume_with_outcome(self) -> None:
        """A delivery that is over on both sides is resumed settled, without a payload."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun()
        link = peer.attached("receiver", unsettled={b"1": spec.Accepted()})
        peer.send(flow(handle=0, link_credit=5))
        link.send([], b"1", resume=True, settled=True, state=spec.Accepted())
        (sent,) = peer.read()
        self.assertEqual((sent.resume, sent.settled, sent.state), (True, True, spec.Accepted()))
        self.assertEqual(link.unsettled, {})

    def test_give_up(self) -> None:
        """A delivery can be resumed to abort it; it counts as settled."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun()
        link = peer.attached("receiver", unsettled={b"1": None})
        peer.send(flow(handle=0, link_credit=5))
        self.assertTrue(link.send([], b"1", resume=True, aborted=True).settled)
        (sent,) = peer.read()
        self.assertTrue(sent.aborted)
        self.assertEqual(link.unsettled, {})

    def test_large_map(self) -> None:
        """A map that does not fit into a frame is cut and said to be incomplete."""
        peer = Peer(Connection(settings()), self.chunk).opened(max_frame_size=512).begun()
        session = peer.engine.sessions[0]
        kept = {b"%032d" % number: None for number in range(100)}
        session.attach("big", "receiver", SOURCE, TARGET, unsettled=kept)
        (told,) = peer.read()
        self.assertTrue(told.incomplete_unsettled)
        self.assertLess(len(told.unsettled), 15)

    def test_many_unsettled(self) -> None:
        """A map of more deliveries than a peer has to decode is cut, too."""
        peer = Peer(Connection(settings()), self.chunk).opened(max_frame_size=1 << 24).begun()
        session = peer.engine.sessions[0]
        state = spec.Received(section_number=1, section_offset=1)
        kept = {b"%05d" % number: state for number in range(MOST_UNSETTLED + 1)}
        session.attach("many", "receiver", SOURCE, TARGET, unsettled=kept)
        (told,) = peer.read()
        self.assertTrue(told.incomplete_unsettled)
        self.assertEqual(len(told.unsettled), MOST_UNSETTLED)


class SendingByteByByte(Sending):
    """The same, an octet at a time."""

    chunk = 1


class Receiving(SynchronousTestCase):
    """We are the receiver."""

    chunk: int | None = None

    def peer(self, unsettled: dict[bytes, Any], **accept: Any) -> Peer:
        peer = Peer(Connection(settings()), self.chunk).opened().begun()

        def user(event: Any) -> None:
            if isinstance(event, LinkAttached):
                event.link.accept(unsettled=unsettled, **accept)
                event.link.flow(10)

        peer.user = user
        peer.send(attach(unsettled={b"t0": None}))
        return peer

    def test_known(self) -> None:
        """A resumed delivery of our map arrives, and is settled like any other."""
        peer = self.peer({b"t0": None})
        self.assertEqual(peer.read()[0].unsettled, {b"t0": None})
        peer.send(transfer(0, resume=True), b"x")
        (received,) = of_type(peer.events, DeliveriesReceived)
        (delivery,) = received.deliveries
        self.assertTrue(delivery.resumed)
        delivery.link.session.settle([delivery], spec.Accepted())
        self.assertEqual(len(peer.read()), 1)

    def test_unknown(self) -> None:
        """A resumed delivery that is not in our map is ignored (§2.7.5)."""
        peer = self.peer({})
        peer.send(transfer(0, resume=True), b"x")
        self.assertEqual(of_type(peer.events, DeliveriesReceived), [])
        (link,) = peer.engine.sessions[0].links
        self.assertEqual(link.unsettled, {})
        self.assertEqual(link.credit, 9)

    def test_new_on_incomplete(self) -> None:
        """After our incomplete map a new delivery detaches the link (§2.7.3)."""
        peer = self.peer({b"t0": None}, incomplete_unsettled=True)
        peer.write(frame(transfer(0, resume=True), b"x"), frame(transfer(1), b"x"))
        (detached,) = of_type(peer.events, LinkDetached)
        assert detached.error is not None
        self.assertEqual(detached.error.condition, "amqp:not-allowed")


class ReceivingByteByByte(Receiving):
    """The same, an octet at a time."""

    chunk = 1
