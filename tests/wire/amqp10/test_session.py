# SPDX-License-Identifier: Apache-2.0
"""Sessions: begin and end, windows, dispositions over ranges (part 2 §2.5)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkDetached,
    SessionBegun,
    SessionEnded,
    SessionFlowed,
)
from amqproute.wire.amqp10.serial_numbers import SerialNumbers
from amqproute.wire.amqp10.state_tables import LinkStateName
from amqproute.wire.amqp10.types import Symbol
from tests.support.wire import Pair, Peer, attach, flow, frame, of_type, settings, transfer


class _Case(SynchronousTestCase):
    chunk: int | None = None

    def peer(self, **changes: Any) -> Peer:
        return Peer(Connection(settings("server", **changes)), self.chunk).opened().begun()


class LongReasons(_Case):
    """An outcome with a reason that is longer than a frame (part 2 §2.3.1)."""

    def test_cut(self) -> None:
        """The peer agreed to frames of a size; a long reason is cut, not sent in a larger one."""
        peer = Peer(Connection(settings("server"))).opened(max_frame_size=512).begun()
        link = peer.attached()
        link.flow(1)
        peer.send(transfer(0), b"body")
        info = {Symbol("key"): "x" * 600}
        error = spec.Error(condition="amqp:not-allowed", description="y" * 600, info=info)
        peer.read()
        link.session.settle(list(link.unsettled.values()), spec.Rejected(error=error))
        written = peer.raw()
        self.assertLessEqual(len(written), 512)
        self.assertIn(b"amqp:not-allowed", written)
        self.assertIn(b"y" * 60, written)


class Unfinished(_Case):
    """Deliveries that begin and do not end (part 2 §2.6.14)."""

    def begun_deliveries(self, peer: Peer, links: int) -> list[LinkDetached]:
        """Begin a delivery of 1000 octets on each of some links; return what was detached."""
        events: list[Any] = []
        for handle in range(links):
            link = peer.attached(handle=handle, name=f"link{handle}")
            link.flow(1)
            begun = transfer(handle, handle, more=True)
            events += peer.send(begun, b"x" * 1000)
        return of_type(events, LinkDetached)

    def test_bound(self) -> None:
        """All links together hold so much; the one that wants more is detached."""
        peer = self.peer(max_partial=5000)
        (detached,) = self.begun_deliveries(peer, 5)
        assert detached.error is not None
        self.assertEqual(detached.error.condition, "amqp:resource-limit-exceeded")
        self.assertTrue(detached.by_fault)
        for handle in range(4):
            peer.send(transfer(None, handle, more=False), b"y")
        self.assertEqual(len(of_type(peer.events, DeliveriesReceived)), 4)
        self.assertEqual(peer.engine.partial_bytes, 0)

    def test_ends_give_back(self) -> None:
        """Aborts, detaches and ends give back what they held."""
        peer = self.peer(max_partial=5000)
        self.begun_deliveries(peer, 4)
        peer.send(transfer(None, 0, aborted=True))
        peer.send(spec.Detach(handle=1, closed=True))
        self.assertLess(peer.engine.partial_bytes, 2500)
        peer.send(spec.End())
        self.assertEqual(peer.engine.partial_bytes, 0)

    def test_crumbs(self) -> None:
        """Many parts of an octet cost more than their octets."""
        peer = self.peer(max_partial=5000)
        peer.attached().flow(1)
        peer.send(transfer(0, more=True), b"x")
        crumbs = b"".join(frame(transfer(None, more=True), b"x") for _ in range(100))
        self.assertEqual(len(of_type(peer.write(crumbs), LinkDetached)), 1)


class Life(_Case):
    """Beginning and ending."""

    def test_answer(self) -> None:
        """Our begin names the peer's channel and carries our limits."""
        peer = Peer(Connection(settings(handle_max=9, incoming_window=50)), self.chunk).opened()
        peer.send(spec.Begin(next_outgoing_id=7, incoming_window=3, outgoing_window=1), channel=5)
        (begun,) = peer.read()
        self.assertEqual(begun.remote_channel, 5)
        self.assertEqual(begun.handle_max, 9)
        self.assertEqual(begun.incoming_window, 50)
        session = peer.engine.sessions[0]
        self.assertEqual((session.channel, session.remote_channel), (0, 5))
        self.assertEqual(session.next_incoming_id, 7)
        self.assertEqual(session.remote_incoming_window, 3)

    def test_peer_ends(self) -> None:
        """An end is answered; its links are detached first."""
        peer = self.peer()
        peer.attached()
        events = peer.send(spec.End(error=spec.Error(condition="amqp:internal-error")))
        self.assertEqual([type(event) for event in events], [LinkDetached, SessionEnded])
        (ended,) = of_type(events, SessionEnded)
        assert ended.error is not None
        self.assertEqual(ended.error.condition, "amqp:internal-error")
        self.assertEqual(peer.names(), ["End"])
        self.assertEqual(peer.engine.sessions, ())

    def test_we_end(self) -> None:
        """After our end everything on the channel is discarded until the peer's (E-11)."""
        peer = self.peer()
        link = peer.attached()
        session = link.session
        session.end()
        self.assertEqual(peer.names(), ["End"])
        self.assertIs(session.state, LinkStateName.CLOSING)
        events = peer.write(
            frame(transfer(0), b"x"),
            frame(attach(handle=1, name="other")),
            frame(flow(handle=77, link_credit=1)),
            frame(spec.Detach(handle=0)),
        )
        self.assertEqual(events, [])
        self.assertEqual(peer.send(spec.End()), [])
        self.assertEqual(peer.names(), [])
        self.assertIs(session.state, LinkStateName.DONE)
        self.assertEqual(peer.engine.sessions, ())

    def test_end_instead_of_accept(self) -> None:
        """A session is refused by `end`: begin and end, also when the peer has ended it."""
        for more in (b"", frame(spec.End())):
            peer = Peer(Connection(settings()), self.chunk).opened()
            peer.user = lambda event: None
            begin = spec.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            peer.write(frame(begin), more)
            of_type(peer.events, SessionBegun)[0].session.end()
            self.assertEqual(peer.names(), ["Begin", "End"])

    def test_we_end_before_the_answer(self) -> None:
        """A session can be ended before the peer has answered its begin."""
        peer = Peer(Connection(settings()), self.chunk).opened()
        session = peer.engine.begin()
        session.end()
        self.assertEqual(peer.names(), ["Begin", "End"])
        begin = spec.Begin(
            remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1
        )
        self.assertEqual(peer.write(frame(begin), frame(spec.End())), [])
        self.assertIs(session.state, LinkStateName.DONE)

    def test_our_session(self) -> None:
        """A session of ours is answered by remote-channel."""
        pair = Pair(self.chunk)
        session = pair.client.begin(context="mine")
        pair.run()
        (begun,) = of_type(pair.client_events, SessionBegun)
        self.assertIs(begun.session, session)
        self.assertTrue(begun.is_answer)
        self.assertEqual(session.context, "mine")
        self.assertTrue(session.is_active)

    def test_channels_of_the_peer(self) -> None:
        """The peer's channel-max bounds what we begin."""
        peer = Peer(Connection(settings()), self.chunk).opened(channel_max=1)
        peer.engine.begin()
        peer.engine.begin()
        self.assertRaises(LocalProtocolError, peer.engine.begin)

    def test_numbers(self) -> None:
        """The lowest free number is given out, up to the limit."""
        numbers = SerialNumbers(2)
        self.assertEqual([numbers.acquire() for _ in range(4)], [0, 1, 2, None])
        numbers.release(1)
        self.assertEqual(numbers.acquire(), 1)


class Windows(_Case):
    """Session flow control (§2.5.6)."""

    def test_window_opens_in_time(self) -> None:
        """Our window is opened again when half of it is used."""
        peer = self.peer(incoming_window=4)
        peer.attached().flow(100)
        peer.read()
        peer.write(frame(transfer(0)), frame(transfer(1)))
        (told,) = peer.read()
        self.assertEqual((told.next_incoming_id, told.incoming_window), (2, 4))
        self.assertIsNone(told.handle)

    def test_never_stalls(self) -> None:
        """Ten times the window goes through (F-08)."""
        pair = Pair(self.chunk, credit=1000, server={"incoming_window": 10})
        for number in range(100):
            pair.sender.send([b"x"], b"%d" % number)
        pair.run()
        self.assertEqual(len(pair.received()), 100)

    def test_what_waits(self) -> None:
        """Beyond the peer's window frames wait, in order, until a flow opens it."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun(incoming_window=2)
        link = peer.attached("receiver")
        peer.send(flow(incoming_window=2, handle=0, link_credit=10))
        self.assertEqual(link.sendable, 2)
        for number in range(4):
            link.send([b"x"], b"%d" % number)
        self.assertEqual(len(peer.read()), 2)
        self.assertEqual((link.sendable, link.credit), (0, 6))
        events = peer.send(flow(next_incoming_id=2, incoming_window=1))
        self.assertEqual([type(event) for event in events], [SessionFlowed])
        self.assertEqual([each.delivery_id for each in peer.read()], [2])
        peer.send(flow(next_incoming_id=3, incoming_window=5))
        self.assertEqual([each.delivery_id for each in peer.read()], [3])
        self.assertEqual(link.sendable, 4)

    def test_link_flow_that_opens_the_window(self) -> None:
        """A link's flow that ends a stall reports the session too."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun(incoming_window=0)
        peer.attached("receiver")
        events = peer.send(flow(handle=0, link_credit=10, incoming_window=5))
        self.assertEqual(of_type(events, SessionFlowed)[0].session, peer.engine.sessions[0])

    def test_dropped_from_the_queue(self) -> None:
        """Deliveries of a detached link are dropped and leave no gap in the delivery-ids."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun(incoming_window=1)
        first = peer.attached("receiver")
        second = peer.attached("receiver", 1, name="second")
        peer.write(
            frame(flow(incoming_window=1, handle=0, link_credit=9)),
            frame(flow(incoming_window=1, handle=1, link_credit=9)),
        )
        first.send([b"x"], b"1")
        first.send([b"x"], b"2")
        second.send([b"x"], b"3")
        first.detach()
        self.assertEqual([type(each).__name__ for each in peer.read()], ["Transfer", "Detach"])
        peer.send(flow(next_incoming_id=1, incoming_window=9))
        (sent,) = peer.read()
        self.assertEqual((sent.delivery_id, sent.delivery_tag), (1, b"3"))

    def test_settled_while_it_waits(self) -> None:
        """A delivery that is settled before it left goes out settled."""
        peer = Peer(Connection(settings()), self.chunk).opened().begun(incoming_window=0)
        link = peer.attached("receiver")
        peer.send(flow(incoming_window=0, handle=0, link_credit=9))
        delivery = link.send([b"x"], b"1")
        link.session.settle([delivery])
        self.assertEqual(link.unsettled, {})
        peer.send(flow(incoming_window=9))
        (sent,) = peer.read()
        self.assertTrue(sent.settled)

    def test_serials_wrap(self) -> None:
        """Transfer-ids, delivery-ids and counts go over 2**32 without a stumble (RFC 1982)."""
        pair = Pair(self.chunk, initial_delivery_count=0xFFFFFFFE)
        session = pair.session
        (server_session,) = pair.server.sessions
        session.next_outgoing_id = server_session._input.next_id = 0xFFFFFFFE
        session._next_delivery_id = 0xFFFFFFFE
        pair.receiver.flow(100)
        pair.run()
        for number in range(5):
            pair.sender.send([b"x"], b"%d" % number)
        pair.run()
        deliveries = pair.received()
        self.assertEqual([each.id for each in deliveries], [0xFFFFFFFE, 0xFFFFFFFF, 0, 1, 2])
        self.assertEqual(pair.sender.delivery_count, 3)
        self.assertEqual(session.next_outgoing_id, 3)
        deliveries[0].link.session.settle(deliveries, spec.Accepted())
        pair.run()
        self.assertEqual(pair.sender.unsettled, {})
        pair.receiver.flow(7)
        pair.run()
        self.assertEqual(pair.sender.credit, 7)

    def test_range_that_wraps(self) -> None:
        """A disposition's range may go over 2**32."""
        pair = Pair(self.chunk)
        pair.session._next_delivery_id = 0xFFFFFFFF
        for number in range(3):
            pair.sender.send([b"x"], b"%d" % number)
        self.assertEqual(len(pair.session._outgoing), 3)
        pair.session._unsettled.on_disposition(
            spec.Disposition(role=True, first=0xFFFFFFFF, last=0, settled=True)
        )
        self.assertEqual(list(pair.sender.unsettled), [b"2"])

    def test_echo(self) -> None:
        """A session flow with echo is answered by one without."""
        peer = self.peer()
        peer.send(flow(echo=True))
        (told,) = peer.read()
        self.assertIsNone(told.handle)
        self.assertFalse(told.echo)


class Dispositions(_Case):
    """settle, and the dispositions of the peer."""

    def test_one_frame_for_a_run(self) -> None:
        """Consecutive deliveries, on whatever links, are settled in one frame."""
        peer = self.peer()
        peer.attached()
        peer.attached(handle=1, name="second")
        peer.write(*(frame(transfer(number, number % 2), b"x") for number in range(6)))
        deliveries = sorted(
            (
                delivery
                for event in of_type(peer.events, DeliveriesReceived)
                for delivery in event.deliveries
            ),
            key=lambda each: each.id,
        )
        session = peer.engine.sessions[0]
        session.settle(deliveries, spec.Accepted())
        (told,) = peer.read()
        self.assertEqual((told.first, told.last, told.settled), (0, 5, True))
        self.assertEqual((told.role, told.state), (True, spec.Accepted()))
        self.assertTrue(all(each.settled for each in deliveries))
        self.assertTrue(all(not link.unsettled for link in session.links))

    def test_runs(self) -> None:
        """A gap begins another frame."""
        pair = Pair(self.chunk)
        for number in range(5):
            pair.sender.send([b"x"], b"%d" % number)
        pair.run()
        received = pair.received()
        session = pair.receiver.session
        session.settle([received[0], received[1], received[3], received[4]], spec.Released())
        pair.run()
        updates = of_type(pair.client_events, DeliveriesUpdated)
        self.assertEqual(
            [[each.tag for each in update.deliveries] for update in updates],
            [[b"0", b"1"], [b"3", b"4"]],
        )
        self.assertEqual(list(pair.sender.unsettled), [b"2"])

    def test_grouped_by_link(self) -> None:
        """A range over two links is one event for each."""
        peer = self.peer()
        for handle, name in ((0, "first"), (1, "second")):
            peer.attached("receiver", handle, name=name)
            peer.send(flow(handle=handle, link_credit=10))
        first, second = peer.engine.sessions[0].links
        for number in range(4):
            (first, second)[number % 2].send([b"x"], b"%d" % number)
        events = peer.send(
            spec.Disposition(role=True, first=0, last=3, settled=True, state=spec.Accepted())
        )
        self.assertEqual(
            [(event.link, [each.tag for each in event.deliveries]) for event in events],
            [(first, [b"0", b"2"]), (second, [b"1", b"3"])],
        )

    def test_wide_range(self) -> None:
        """A range over two billion ids costs no more than what is unsettled."""
        peer = self.peer()
        link = peer.attached("receiver")
        peer.send(flow(handle=0, link_credit=10))
        link.send([b"x"], b"t")
        (updated,) = peer.send(spec.Disposition(role=True, first=0, last=0x7FFFFFFF, settled=True))
        assert isinstance(updated, DeliveriesUpdated)
        self.assertEqual(len(updated.deliveries), 1)

    def test_after_settlement(self) -> None:
        """Dispositions after the settlement are ignored."""
        pair = Pair(self.chunk)
        pair.sender.send([b"x"], b"t")
        pair.run()
        session = pair.receiver.session
        session.settle(pair.received(), spec.Accepted())
        session.settle(pair.received(), spec.Released())
        pair.run()
        self.assertEqual(len(of_type(pair.client_events, DeliveriesUpdated)), 1)

    def test_receiver_second(self) -> None:
        """rcv-settle-mode second: outcome, settlement by the sender, then the receiver's."""
        pair = Pair(self.chunk, rcv_settle_mode=spec.RECEIVER_SECOND)
        pair.sender.send([b"x"], b"t")
        pair.run()
        (received,) = pair.received()
        self.assertEqual(received.rcv_settle_mode, spec.RECEIVER_SECOND)
        pair.receiver.session.settle([received], spec.Accepted(), settled=False)
        pair.run()
        (updated,) = of_type(pair.client_events, DeliveriesUpdated)
        self.assertFalse(updated.settled)
        self.assertEqual(updated.state, spec.Accepted())
        self.assertEqual(list(pair.receiver.unsettled), [b"t"])
        pair.session.settle(updated.deliveries, spec.Accepted())
        pair.run()
        (settled,) = of_type(pair.server_events, DeliveriesUpdated)
        self.assertTrue(settled.settled)
        self.assertEqual(pair.receiver.unsettled, {})
        self.assertEqual(pair.sender.unsettled, {})

    def test_states_of_both(self) -> None:
        """A delivery keeps what the peer said and what we said apart."""
        pair = Pair(self.chunk)
        sent = pair.sender.send([b"x"], b"t")
        pair.run()
        (received,) = pair.received()
        rejected = spec.Rejected(error=spec.Error(condition="amqp:not-found"))
        pair.receiver.session.settle([received], rejected)
        pair.run()
        self.assertEqual(received.local_state, rejected)
        self.assertEqual(sent.state, rejected)
        self.assertTrue(sent.settled)


class LifeByteByByte(Life):
    """The same, an octet at a time."""

    chunk = 1


class WindowsByteByByte(Windows):
    """The same, an octet at a time."""

    chunk = 1


class DispositionsByteByByte(Dispositions):
    """The same, an octet at a time."""

    chunk = 1
