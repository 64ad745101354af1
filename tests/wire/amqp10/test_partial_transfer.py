# SPDX-License-Identifier: Apache-2.0
"""Large deliveries in parts, in and out (part 2 §2.5.6, §2.6.14)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import LocalProtocolError, MessageSizeExceeded
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    PartsReceived,
    SessionEnded,
)
from tests.support.wire import Pair, Peer, of_type, settings, transfer

FRAME = 512


def pair(chunk: int | None = None, part_from: int = 1000, **changes: Any) -> Pair:
    """Two engines with small frames, of which the server takes parts."""
    server = {"part_from": part_from, "max_frame_size": FRAME, **changes.pop("server", {})}
    joined = Pair(chunk, server=server, **changes)
    joined.receiver.takes_parts = True
    return joined


def parts_of(events: Any) -> bytes:
    return b"".join(part for event in of_type(events, PartsReceived) for part in event.parts)


class Incoming(SynchronousTestCase):
    """The receiver's events."""

    def test_in_parts(self) -> None:
        """From the threshold on octets come as they come; small ones come whole."""
        joined = pair()
        joined.sender.send((b"small",), b"s")
        delivery = joined.sender.send((b"x" * 5000, b"y" * 700), b"l")
        joined.sender.send((b"after",), b"a")
        joined.run()
        self.assertEqual([one.payload for one in joined.received()], [b"small", b"after"])
        events = of_type(joined.server_events, PartsReceived)
        self.assertEqual(parts_of(events), b"x" * 5000 + b"y" * 700)
        self.assertEqual([event.is_last for event in events][-1:], [True])
        order = [type(event) for event in joined.server_events]
        self.assertEqual(order[0], DeliveriesReceived)
        self.assertEqual(order[-1], DeliveriesReceived)
        one = events[0].delivery
        self.assertEqual(one.tag, b"l")
        joined.receiver.session.settle([one], spec.Accepted())
        joined.run()
        (updated,) = of_type(joined.client_events, DeliveriesUpdated)
        self.assertEqual(updated.deliveries, [delivery])
        self.assertEqual(joined.server.partial_bytes, 0)

    @given(st.lists(st.integers(0, 6000), max_size=6), st.none() | st.integers(1, 900))
    def test_any_split(self, sizes: list[int], chunk: int | None) -> None:
        """With any sizes and cuts the octets are the same."""
        joined = pair(chunk)
        bodies = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
        for number, body in enumerate(bodies):
            joined.sender.send((body,), b"%d" % number)
        joined.run()
        got: dict[bytes, bytes] = {one.tag: one.payload for one in joined.received()}
        for event in of_type(joined.server_events, PartsReceived):
            tag = event.delivery.tag
            got[tag] = got.get(tag, b"") + b"".join(event.parts)
            event.link.session.took(sum(map(len, event.parts)))
        self.assertEqual(got, {b"%d" % number: body for number, body in enumerate(bodies)})

    def test_not_asked_for(self) -> None:
        """A link that does not take parts gets its deliveries whole."""
        joined = pair()
        joined.receiver.takes_parts = False
        joined.sender.send((bytes(5000),), b"l")
        joined.run()
        self.assertEqual([len(one.payload) for one in joined.received()], [5000])

    def test_window_is_the_brake(self) -> None:
        """Octets not taken close the window; taking them opens it again."""
        joined = pair(server={"part_window": 8 * FRAME, "incoming_window": 64})
        joined.sender.send((bytes(100_000),), b"l")
        joined.run()
        before = len(parts_of(joined.server_events))
        # The window of before, at most, and what is left of the small one.
        self.assertLess(before, 72 * FRAME)
        self.assertEqual(joined.session.remote_incoming_window, 0)
        joined.receiver.session.took(before)
        joined.run()
        more = len(parts_of(joined.server_events)) - before
        self.assertGreater(more, 0)
        self.assertLess(more, 10 * FRAME)
        seen = before
        while len(parts_of(joined.server_events)) < 100_000:
            fresh = len(parts_of(joined.server_events)) - seen
            seen += fresh
            joined.receiver.session.took(fresh)
            joined.run()
        self.assertTrue(of_type(joined.server_events, PartsReceived)[-1].is_last)
        # Then the window is as it was.
        for number in range(200):
            if not joined.sender.credit:
                break
            joined.sender.send((b"x",), b"n%d" % number)
        joined.run()
        self.assertEqual(of_type(joined.server_events, SessionEnded), [])

    def test_window_violation(self) -> None:
        """Octets granted before the window became smaller are valid; more are not."""
        peer = Peer(
            Connection(
                settings(part_from=1000, max_frame_size=FRAME, incoming_window=16, part_window=1024)
            )
        ).opened()
        peer.begun()
        link = peer.attached()
        link.takes_parts = True
        link.flow(10)
        for number in range(16):
            peer.send(transfer(None if number else 0, more=True), bytes(400))
            self.assertEqual(of_type(peer.events, SessionEnded), [], number)
        peer.send(transfer(None, more=True), bytes(400))
        (ended,) = of_type(peer.events, SessionEnded)
        assert ended.error is not None
        self.assertEqual(ended.error.condition, conditions.SESSION_WINDOW_VIOLATION)

    def test_aborted(self) -> None:
        """An aborted delivery is settled, and void."""
        peer = Peer(Connection(settings(part_from=1000, max_frame_size=FRAME))).opened().begun()
        link = peer.attached()
        link.takes_parts = True
        link.flow(10)
        for number in range(4):
            peer.send(transfer(None if number else 0, more=True), bytes(400))
        self.assertEqual(len(link.unsettled), 1)
        peer.send(transfer(None, aborted=True))
        last = of_type(peer.events, PartsReceived)[-1]
        self.assertTrue(last.is_aborted)
        self.assertTrue(last.delivery.settled)
        self.assertFalse(link.unsettled)
        # The same tag and the next id are free.
        peer.send(transfer(1, delivery_tag=b"t0"), b"whole")
        (received,) = of_type(peer.events, DeliveriesReceived)
        self.assertEqual(received.deliveries[0].payload, b"whole")

    def test_unknown_resumed(self) -> None:
        """A resumed delivery of no map of ours is ignored to its end, settled or not (§2.7.5)."""
        for settled in (False, True):
            engine = Connection(settings(part_from=1000, max_frame_size=FRAME))
            peer = Peer(engine).opened().begun()
            link = peer.attached()
            link.takes_parts = True
            link.flow(10)
            for number in range(5):
                head = transfer(
                    None if number else 0, more=number < 4, resume=not number, settled=settled
                )
                peer.send(head, bytes(400))
            self.assertEqual(of_type(peer.events, PartsReceived), [], settled)
            self.assertEqual((link.unsettled, link.unfinished), ({}, None))
            self.assertEqual(engine.partial_bytes, 0)
            peer.send(transfer(1), b"whole")
            (received,) = of_type(peer.events, DeliveriesReceived)
            self.assertEqual(received.deliveries[0].payload, b"whole")

    def test_settled_early(self) -> None:
        """A refused delivery is not reported any further."""
        joined = pair()
        outgoing = joined.sender.send_parts(9000, b"l")
        outgoing.append([bytes(4000)])
        joined.run()
        (event,) = of_type(joined.server_events, PartsReceived)
        joined.receiver.session.settle([event.delivery], spec.Rejected())
        joined.run()
        joined.server_events.clear()
        outgoing.append([bytes(5000)])
        joined.sender.send((b"after",), b"a")
        joined.run()
        self.assertEqual(of_type(joined.server_events, PartsReceived), [])
        self.assertEqual([one.payload for one in joined.received()], [b"after"])

    def test_settled_by_the_sender(self) -> None:
        """A delivery sent settled is reported to its end, and never unsettled."""
        joined = pair()
        joined.sender.send((bytes(5000),), b"l", settled=True)
        joined.run()
        self.assertEqual(len(parts_of(joined.server_events)), 5000)
        self.assertFalse(joined.receiver.unsettled)

    def test_too_large(self) -> None:
        """The size is checked as octets come."""
        joined = pair(server={"max_message_size": 3000})
        joined.sender.max_message_size = 0  # a peer that does not look
        joined.sender.send((bytes(50_000),), b"l")
        joined.run()
        (detached,) = of_type(joined.server_events, LinkDetached)
        assert detached.error is not None
        self.assertEqual(detached.error.condition, conditions.LINK_MESSAGE_SIZE_EXCEEDED)
        self.assertLessEqual(len(parts_of(joined.server_events)), 3000)

    def test_link_goes_in_the_middle(self) -> None:
        """A link that ends in the middle gives the session its window back."""
        joined = pair(server={"part_window": 4 * FRAME, "incoming_window": 64})
        outgoing = joined.sender.send_parts(90_000, b"l")
        outgoing.append([bytes(3000)])
        joined.run()
        joined.sender.detach()
        joined.run()
        self.assertTrue(outgoing.is_over)
        (detached,) = of_type(joined.server_events, LinkDetached)
        self.assertEqual([one.tag for one in detached.deliveries], [b"l"])
        self.assertEqual(joined.session.remote_incoming_window, 64)


class Outgoing(SynchronousTestCase):
    """The sender's frames."""

    def test_parts_of_any_size(self) -> None:
        """Parts are joined and cut so that frames are full."""
        joined = pair()
        body = bytes(range(256)) * 40
        outgoing = joined.sender.send_parts(len(body), b"l")
        for at in range(0, len(body), 100):
            outgoing.append([body[at : at + 50], body[at + 50 : at + 100]])
        self.assertTrue(outgoing.is_over)
        before = joined.client.frames_out
        joined.run()
        self.assertEqual(parts_of(joined.server_events), body)
        self.assertLess(before, 2 * len(body) // FRAME)

    def test_empty_end(self) -> None:
        """A delivery of no octets is begun and ended by an empty part."""
        joined = pair()
        outgoing = joined.sender.send_parts(0, b"l")
        outgoing.append([])
        joined.run()
        self.assertEqual([one.payload for one in joined.received()], [b""])
        self.assertTrue(outgoing.is_over)

    def test_others_go_between(self) -> None:
        """Other links of the session are not held up."""
        joined = pair()
        other = joined.session.attach("other", "sender", spec.Source(), spec.Target(address="c"))
        joined.run()
        receiver = of_type(joined.server_events, LinkAttached)[-1].link
        receiver.flow(10)
        joined.run()
        outgoing = joined.sender.send_parts(10_000, b"l")
        outgoing.append([bytes(5000)])
        self.assertEqual(joined.sender.sendable, 0)
        self.assertGreater(other.sendable, 0)
        other.send((b"small",), b"s")
        joined.run()
        self.assertEqual([one.payload for one in joined.received()], [b"small"])
        with self.assertRaises(LocalProtocolError):
            joined.sender.send((b"x",), b"x")
        outgoing.append([bytes(5000)])
        joined.run()
        self.assertEqual(len(parts_of(joined.server_events)), 10_000)
        self.assertGreater(joined.sender.sendable, 0)

    def test_waits_for_the_window(self) -> None:
        """A delivery that does not fit waits, and is clear later; others take turns with it."""
        joined = pair(server={"incoming_window": 4, "part_window": 2 * FRAME})
        outgoing = joined.sender.send_parts(60_000, b"l")
        outgoing.append([bytes(6000)])
        self.assertFalse(outgoing.is_clear)
        taken = 0
        for _ in range(60):
            joined.run()
            new = len(parts_of(joined.server_events)) - taken
            taken += new
            joined.receiver.session.took(new)
            if outgoing.is_clear and outgoing.missing:
                outgoing.append([bytes(min(6000, outgoing.missing))])
        joined.run()
        self.assertEqual(len(parts_of(joined.server_events)), 60_000)

    def test_abort(self) -> None:
        """Begun or not, an aborted delivery leaves nothing behind."""
        joined = pair()
        credit = joined.sender.credit
        outgoing = joined.sender.send_parts(5000, b"l")
        outgoing.abort()
        self.assertEqual(joined.sender.credit, credit)
        self.assertFalse(joined.sender.unsettled)
        outgoing = joined.sender.send_parts(5000, b"l")
        outgoing.append([bytes(3000)])
        joined.run()
        outgoing.abort()
        outgoing.abort()
        outgoing.append([b"nothing"])
        joined.run()
        self.assertTrue(of_type(joined.server_events, PartsReceived)[-1].is_aborted)
        self.assertFalse(joined.receiver.unsettled)
        joined.sender.send((b"after",), b"a")
        joined.run()
        self.assertEqual([one.payload for one in joined.received()], [b"after"])

    def test_too_large(self) -> None:
        """The size is known beforehand, so it is refused beforehand."""
        joined = pair(server={"max_message_size": 4000})
        with self.assertRaises(MessageSizeExceeded):
            joined.sender.send_parts(4001, b"l")
        outgoing = joined.sender.send_parts(4000, b"l")
        with self.assertRaises(LocalProtocolError):
            outgoing.append([bytes(4001)])

    def test_credit_while_it_waits(self) -> None:
        """A flow that comes in the middle of a delivery gives what it says."""
        joined = pair(credit=1)
        outgoing = joined.sender.send_parts(5000, b"l")
        outgoing.append([bytes(3000)])
        joined.run()
        joined.receiver.flow(1)
        joined.run()
        outgoing.append([bytes(2000)])
        self.assertEqual(joined.sender.credit, 1)

    def test_drain(self) -> None:
        """A drain is answered when the delivery has ended."""
        joined = pair()
        outgoing = joined.sender.send_parts(5000, b"l")
        outgoing.append([bytes(3000)])
        joined.run()
        joined.receiver.flow(5, drain=True)
        joined.run()
        joined.sender.drained()
        joined.run()
        self.assertEqual(joined.receiver.credit, 5)
        outgoing.append([bytes(2000)])
        joined.run()
        self.assertEqual(joined.receiver.credit, 0)
