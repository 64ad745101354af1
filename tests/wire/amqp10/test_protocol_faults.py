# SPDX-License-Identifier: Apache-2.0
"""The engine's reactions to a peer's violations, and no exceptions."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    ConnectionClosed,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
    LinkDetached,
    SessionEnded,
)
from amqproute.wire.amqp10.link import Delivery, Link
from amqproute.wire.amqp10.state_tables import (
    ENDPOINT,
    PHASES,
    HandshakePhase,
    LinkStateName,
    StateTransition,
)
from amqproute.wire.amqp10.types import Described, UByte, UInt, ULong
from tests.support.wire import (
    AMQP,
    SASL,
    TLS,
    Pair,
    Peer,
    answer,
    attach,
    flow,
    frame,
    merged,
    of_type,
    pieces,
    sasl,
    settings,
    transfer,
)

BEGIN = spec.Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
LINK, SESSION, CONNECTION = LinkDetached, SessionEnded, ConnectionClosed
SCOPES: dict[type, type] = {LINK: spec.Detach, SESSION: spec.End, CONNECTION: spec.Close}


def disposition(**fields: Any) -> spec.Disposition:
    return spec.Disposition(**{"role": True, "first": 0, **fields})


def raw_attach(*fields: Any, channel: int = 0) -> bytes:
    """A frame with an attach of any fields."""
    body = codec.encode(Described(ULong(0x12), list(fields)))
    return (8 + len(body)).to_bytes(4, "big") + bytes((2, 0, 0, channel)) + body


# (what, settings, frames after open, begin and an attach of a sender at handle 0 with credit 5,
#  scope, condition)
TABLE: list[tuple[str, dict[str, Any], bytes, type, str]] = [
    (
        "frame shorter than its header",
        {},
        b"\0\0\0\7\2\0\0\0",
        CONNECTION,
        "connection:framing-error",
    ),
    ("frame too large", {}, b"\x7f\0\0\0\2\0\0\0", CONNECTION, "connection:framing-error"),
    (
        "data offset within the header",
        {},
        b"\0\0\0\x08\1\0\0\0",
        CONNECTION,
        "connection:framing-error",
    ),
    ("unknown frame type", {}, b"\0\0\0\x08\2\x09\0\0", CONNECTION, "connection:framing-error"),
    ("SASL frame", {}, sasl(spec.SaslOutcome(code=0)), CONNECTION, "connection:framing-error"),
    ("no AMQP value", {}, b"\0\0\0\x09\2\0\0\0\xff", CONNECTION, "decode-error"),
    ("unknown performative", {}, b"\0\0\0\x0c\2\0\0\0\0\x53\x1f\x45", CONNECTION, "decode-error"),
    ("missing field", {}, b"\0\0\0\x0c\2\0\0\0\0\x53\x12\x45", CONNECTION, "decode-error"),
    ("second open", {}, frame(spec.Open(container_id="p")), CONNECTION, "not-allowed"),
    (
        "channel above channel-max",
        {"channel_max": 3},
        frame(BEGIN, channel=4),
        CONNECTION,
        "connection:framing-error",
    ),
    (
        "frame above channel-max",
        {"channel_max": 3},
        frame(spec.End(), channel=4),
        CONNECTION,
        "connection:framing-error",
    ),
    ("channel in use", {}, frame(BEGIN), SESSION, "not-allowed"),
    (
        "channel in use, fields that are none of a begin",
        {},
        b"\0\0\0\x0c\2\0\0\0\0\x53\x11\x45",
        SESSION,
        "not-allowed",
    ),
    (
        "bad begin above channel-max",
        {"channel_max": 3},
        b"\0\0\0\x0c\2\0\0\4\0\x53\x11\x45",
        CONNECTION,
        "connection:framing-error",
    ),
    (
        "a begin that is no value",
        {},
        b"\0\0\0\x0f\2\0\0\1\0\x53\x11\xc0\x09\x01\x40",
        CONNECTION,
        "decode-error",
    ),
    (
        "octets after a bad begin",
        {},
        b"\0\0\0\x0d\2\0\0\1\0\x53\x11\x45\x40",
        CONNECTION,
        "decode-error",
    ),
    ("channel without a session", {}, frame(flow(), channel=9), CONNECTION, "not-allowed"),
    ("end without a session", {}, frame(spec.End(), channel=9), CONNECTION, "not-allowed"),
    (
        "handle above handle-max",
        {"handle_max": 3},
        frame(attach(handle=4, name="x")),
        CONNECTION,
        "connection:framing-error",
    ),
    ("handle in use", {}, frame(attach(handle=0, name="x")), SESSION, "session:handle-in-use"),
    ("transfer without a link", {}, frame(transfer(0, 5)), SESSION, "session:unattached-handle"),
    ("flow without a link", {}, frame(flow(handle=5)), SESSION, "session:unattached-handle"),
    (
        "detach without a link",
        {},
        frame(spec.Detach(handle=5)),
        SESSION,
        "session:unattached-handle",
    ),
    ("window violation", {"incoming_window": 2}, b"", SESSION, "session:window-violation"),
    (
        "delivery-id in use",
        {},
        frame(transfer(0)) + frame(transfer(0, delivery_tag=b"o")),
        SESSION,
        "invalid-field",
    ),
    ("disposition backwards", {}, frame(disposition(first=5, last=4)), SESSION, "invalid-field"),
    (
        "no credit",
        {},
        b"".join(frame(transfer(n)) for n in range(6)),
        LINK,
        "link:transfer-limit-exceeded",
    ),
    (
        "message too large",
        {"max_message_size": 10},
        frame(transfer(0), b"x" * 11),
        LINK,
        "link:message-size-exceeded",
    ),
    (
        "message too large in parts",
        {"max_message_size": 10},
        frame(transfer(0, more=True), b"x" * 6) + frame(transfer(None, more=True), b"x" * 6),
        LINK,
        "link:message-size-exceeded",
    ),
    ("no delivery-id", {}, frame(transfer(None, delivery_tag=b"t")), LINK, "invalid-field"),
    ("no delivery-tag", {}, frame(transfer(0, delivery_tag=None)), LINK, "invalid-field"),
    (
        "interleaved deliveries",
        {},
        frame(transfer(0, more=True)) + frame(transfer(1)),
        LINK,
        "not-allowed",
    ),
    (
        "tag changes",
        {},
        frame(transfer(0, more=True)) + frame(transfer(None, delivery_tag=b"o")),
        LINK,
        "not-allowed",
    ),
    (
        "message-format changes",
        {},
        frame(transfer(0, more=True)) + frame(transfer(None, delivery_tag=None, message_format=1)),
        LINK,
        "not-allowed",
    ),
    (
        "message-format changes in a long performative",
        {},
        frame(transfer(0, more=True))
        + frame(transfer(None, delivery_tag=None, message_format=1, batchable=True)),
        LINK,
        "not-allowed",
    ),
    (
        "tag in use",
        {},
        frame(transfer(0)) + frame(transfer(1, delivery_tag=b"t0")),
        LINK,
        "not-allowed",
    ),
    (
        "second where first was agreed",
        {},
        frame(transfer(0, rcv_settle_mode=1)),
        LINK,
        "invalid-field",
    ),
    (
        "no initial-delivery-count",
        {},
        frame(attach(handle=1, name="x", initial_delivery_count=None)),
        LINK,
        "invalid-field",
    ),
    (
        "attach with a field of another type",
        {},
        raw_attach("x", UInt(1), False, UByte(7)),
        LINK,
        "invalid-field",
    ),
    (
        "attach with more fields than there are",
        {},
        raw_attach("x", UInt(1), False, *[None] * 12),
        LINK,
        "invalid-field",
    ),
    (
        "attach with a map of strings",
        {},
        raw_attach("x", UInt(1), False, *[None] * 10, {"key": "value"}),
        LINK,
        "invalid-field",
    ),
    (
        "bad attach by a handle in use",
        {},
        raw_attach("x", UInt(0), False, UByte(7)),
        SESSION,
        "session:handle-in-use",
    ),
    (
        "bad attach above handle-max",
        {"handle_max": 3},
        raw_attach("x", UInt(4), False, UByte(7)),
        CONNECTION,
        "connection:framing-error",
    ),
    (
        "bad attach without a session",
        {},
        raw_attach("x", UInt(4), False, UByte(7), channel=9),
        CONNECTION,
        "not-allowed",
    ),
    ("attach without a name", {}, raw_attach(None, UInt(1), False), CONNECTION, "decode-error"),
    ("attach without a handle", {}, raw_attach("x", 1, False), CONNECTION, "decode-error"),
    ("attach without a role", {}, raw_attach("x", UInt(1)), CONNECTION, "decode-error"),
    (
        "transfer from a receiver",
        {},
        frame(attach("receiver", 1, "x")) + frame(transfer(0, 1)),
        LINK,
        "not-allowed",
    ),
]


class Table(SynchronousTestCase):
    """Each fault has the condition and the scope of the standard."""

    chunk: int | None = None

    def prepared(self, **changes: Any) -> Peer:
        peer = Peer(Connection(settings(credit_grace_new=0, **changes)), self.chunk)
        peer.opened().begun()
        peer.attached().flow(5)
        peer.read()
        return peer

    def assert_fault(self, peer: Peer, scope: type, condition: str, what: str) -> None:
        """The fault was told to the peer with this condition, and to the user."""
        told = [each for each in peer.read() if type(each) is SCOPES[scope]]
        self.assertEqual(len(told), 1, what)
        self.assertEqual(told[0].error.condition, f"amqp:{condition}", what)
        closings = (LINK, SESSION, CONNECTION)
        widest = [event for event in peer.events if isinstance(event, closings)]
        if what != "no initial-delivery-count":
            self.assertIsInstance(widest[-1], scope, what)
            self.assertTrue(widest[-1].by_fault, what)
            self.assertEqual(widest[-1].error, told[0].error, what)

    def test_table(self) -> None:
        """Condition and scope of every fault of the table."""
        for what, changes, octets, scope, condition in TABLE:
            peer = self.prepared(**changes)
            if what == "window violation":
                # The window opens by itself; only a user who holds it shut can be overrun.
                peer.engine.sessions[0]._input.window = 0
                octets = frame(transfer(0))
            peer.write(octets)
            self.assert_fault(peer, scope, condition, what)

    def test_bad_begin(self) -> None:
        """E-07: a bad begin is begun and ended, and nothing else notices; the user least of all."""
        answer_to_nothing = spec.Begin(
            remote_channel=7, next_outgoing_id=0, incoming_window=1, outgoing_window=1
        )
        empty = b"\0\0\0\x0c\2\0\0\x09\0\x53\x11\x45"
        wrong = b"\0\0\0\x13\2\0\0\x09\0\x53\x11\xc0\x06\x05\x40\x41\x43\x43\x43"
        for octets in (frame(answer_to_nothing, channel=9), empty, wrong):
            peer = self.prepared()
            peer.write(octets)
            begun, ended = peer.read()
            self.assertEqual(begun.remote_channel, 9)
            self.assertEqual(ended.error.condition, "amqp:invalid-field")
            told = len(peer.events)
            # What comes before the peer's end is discarded; then the channel is free.
            peer.write(frame(attach(name="x"), channel=9), octets, frame(flow(), channel=9))
            peer.write(frame(spec.End(), channel=9))
            self.assertEqual(peer.read(), [])
            self.assertEqual(peer.events[told:], [])
            peer.begun(9)
            self.assertEqual(len(peer.engine.sessions), 2)
            peer.send(transfer(0), b"payload")
            self.assertEqual(len(of_type(peer.events, DeliveriesReceived)), 1)

    def test_bad_attach(self) -> None:
        """E-03: an attach that cannot be read costs its link, and nothing else notices."""
        wrong = {"what": "is no source"}
        for role in (False, True):
            peer = self.prepared()
            octets = raw_attach("x", UInt(7), role, None, None, wrong)
            peer.write(octets)
            attached, detached = peer.read()
            self.assertEqual((attached.name, attached.role), ("x", not role))
            self.assertEqual((attached.source, attached.target), (None, None))
            self.assertTrue(detached.closed)
            self.assertEqual(detached.error.condition, "amqp:invalid-field")
            self.assertIn("amqp:attach:list: source is no source", detached.error.description)
            # What comes before the peer's detach is discarded; then handle and name are free.
            told = len(peer.events)
            if not role:
                peer.write(frame(transfer(0, 7), b"x"))
            peer.write(frame(spec.Detach(handle=7, closed=True)))
            self.assertEqual(peer.events[told:], [])
            peer.attached(handle=7, name="x")
            peer.read()
            peer.write(frame(transfer(0 if role else 1), b"payload"))
            self.assertEqual(len(of_type(peer.events, DeliveriesReceived)), 1)

    def test_bad_answer_to_an_attach(self) -> None:
        """Ours is detached for it, and nothing else notices."""
        peer = self.prepared()
        link = peer.engine.sessions[0].attach("ours", "sender", spec.Source(), spec.Target())
        peer.read()
        peer.write(raw_attach("ours", UInt(7), True, UByte(7)))
        self.assert_fault(peer, LINK, "invalid-field", "answer")
        self.assertEqual([event.link for event in of_type(peer.events, LinkDetached)], [link])
        peer.write(frame(spec.Detach(handle=7, closed=True)))
        self.assertIs(link.state, LinkStateName.DONE)
        again = peer.engine.sessions[0].attach("ours", "sender", spec.Source(), spec.Target())
        again.detach()
        peer.write(raw_attach("ours", UInt(7), True, UByte(7)))
        peer.write(frame(spec.Detach(handle=7, closed=True)))
        self.assertIs(again.state, LinkStateName.DONE)
        self.assertEqual(peer.names(), ["Attach", "Detach"])

    def test_bad_begin_before_our_open(self) -> None:
        """A bad begin behind the peer's open waits for ours, and so does its end."""
        empty = b"\0\0\0\x0c\2\0\0\0\0\x53\x11\x45"
        for more in (b"", frame(spec.End())):
            peer = Peer(Connection(settings()), self.chunk)
            peer.user = lambda event: None
            peer.write(AMQP, frame(spec.Open(container_id="p")), empty, more)
            self.assertEqual(peer.read(), [])
            peer.engine.open()
            self.assertEqual(peer.names(), ["Open", "Begin", "End"])
            peer.write(b"" if more else frame(spec.End()))
            self.assertEqual(peer.engine.sessions, ())

    def test_bad_begins_are_bounded(self) -> None:
        """Sessions that are refused and never ended are bounded like any."""
        peer = Peer(Connection(settings(channel_max=3)), self.chunk).opened(channel_max=1)
        for channel in range(3):
            peer.write(b"\0\0\0\x0c\2\0\0" + bytes((channel,)) + b"\0\x53\x11\x45")
        self.assertEqual(peer.names(), ["Begin", "End", "Begin", "End", "Close"])

    def test_bad_answer_to_a_begin(self) -> None:
        """A begin that may be the answer to ours cannot be told from another: close."""
        peer = Peer(Connection(settings()), self.chunk).opened()
        peer.engine.begin()
        peer.read()
        peer.write(b"\0\0\0\x0c\2\0\0\0\0\x53\x11\x45")
        self.assert_fault(peer, CONNECTION, "decode-error", "begin")

    def test_settled_on_unsettled(self) -> None:
        """Settlement against the mode of the link detaches it."""
        for mode, settled in ((spec.SENDER_UNSETTLED, True), (spec.SENDER_SETTLED, False)):
            peer = self.prepared()
            peer.attached(handle=1, name="x", snd_settle_mode=mode).flow(1)
            peer.read()
            peer.send(transfer(0, 1, settled=settled), b"x")
            self.assert_fault(peer, LINK, "not-allowed", str(mode))

    def test_before_open(self) -> None:
        """A frame before open closes the connection, after the open that has to precede."""
        peer = Peer(Connection(settings()), self.chunk)
        peer.write(AMQP, frame(BEGIN))
        opened, closed = peer.read()
        self.assertEqual(type(opened), spec.Open)
        self.assertEqual(closed.error.condition, "amqp:not-allowed")

    def test_small_frames(self) -> None:
        """A max-frame-size below 512 closes the connection."""
        peer = Peer(Connection(settings()), self.chunk)
        peer.write(AMQP, frame(spec.Open(container_id="p", max_frame_size=511)))
        self.assert_fault(peer, CONNECTION, "invalid-field", "open")

    def test_heartbeat_flood(self) -> None:
        """An idle-time-out of a millisecond is not served."""
        peer = Peer(Connection(settings()), self.chunk)
        peer.write(AMQP, frame(spec.Open(container_id="p", idle_time_out=1)))
        self.assert_fault(peer, CONNECTION, "resource-limit-exceeded", "open")

    def test_too_many_sessions(self) -> None:
        """Sessions that await our answer are bounded by channel-max."""
        peer = Peer(Connection(settings(channel_max=3)), self.chunk).opened()
        peer.user = lambda event: None
        for _ in range(4):
            peer.write(frame(BEGIN), frame(spec.End()))
        self.assertEqual(of_type(peer.events, ConnectionClosed), [])
        peer.send(BEGIN)
        self.assert_fault(peer, CONNECTION, "resource-limit-exceeded", "sessions")

    def test_too_many_links(self) -> None:
        """Links that await our answer are bounded by handle-max."""
        peer = Peer(Connection(settings(handle_max=3)), self.chunk).opened().begun()
        peer.user = lambda event: None
        for number in range(4):
            peer.write(frame(attach(name=str(number))), frame(spec.Detach(handle=0)))
        peer.send(attach(name="more"))
        self.assert_fault(peer, SESSION, "resource-limit-exceeded", "links")

    def test_fault_after_good_frames(self) -> None:
        """Input before the fault in the same read is reported, and settled before the end."""
        peer = self.prepared()
        peer.chunk = None
        peer.write(frame(transfer(0), b"x"), b"\xff" * 8)
        (received,) = of_type(peer.events, DeliveriesReceived)
        received.link.session.settle(received.deliveries, spec.Accepted())
        self.assertEqual(peer.names(), ["Disposition", "Close"])

    def test_session_fault_before_the_answer(self) -> None:
        """A fault in a session that we have not answered: begin, then end with the condition."""
        peer = Peer(Connection(settings()), self.chunk).opened()
        peer.chunk = None
        peer.write(frame(BEGIN), frame(transfer(0, 7)), frame(attach()))
        begun, ended = peer.read()
        self.assertEqual(type(begun), spec.Begin)
        self.assertEqual(ended.error.condition, "amqp:session:unattached-handle")
        self.assertEqual(of_type(peer.events, LinkAttached), [])
        peer.send(spec.End())
        self.assertEqual(peer.engine.sessions, ())

    def test_other_sessions_go_on(self) -> None:
        """A session's fault leaves the others alone."""
        peer = self.prepared().begun(channel=1)
        peer.send(transfer(0, 9), channel=1)
        peer.read()
        peer.send(transfer(0), b"x")
        self.assertEqual(len(of_type(peer.events, DeliveriesReceived)), 1)

    def test_in_flight_after_detach(self) -> None:
        """Frames on their way when we detached with an error are dropped without a word."""
        peer = self.prepared()
        peer.write(b"".join(frame(transfer(number)) for number in range(6)))
        peer.read()
        self.assertEqual(peer.write(frame(transfer(6)), frame(flow(handle=0))), [])
        peer.send(spec.Detach(handle=0, closed=True))
        self.assertEqual(peer.read(), [])
        self.assertTrue(peer.engine.sessions[0].is_active)

    def test_errant_link(self) -> None:
        """Transfers that only a window opened after our detach allows end the session."""
        peer = self.prepared(incoming_window=20)
        peer.write(b"".join(frame(transfer(number)) for number in range(6)))
        peer.read()
        for number in range(6, 40):
            peer.send(transfer(number))
        (ended,) = of_type(peer.events, SessionEnded)
        assert ended.error is not None
        self.assertEqual(ended.error.condition, "amqp:session:errant-link")

    def test_long_description(self) -> None:
        """An error that does not fit into the peer's frames is shortened."""
        peer = Peer(Connection(settings()), self.chunk).opened(max_frame_size=512)
        peer.engine.close(
            spec.Error(condition="amqp:internal-error", description="x" * 2000, info={"k": 1})
        )
        data = peer.raw()
        self.assertLess(len(data), 513)


class TableByteByByte(Table):
    """The same, an octet at a time."""

    chunk = 1


class StateTables(SynchronousTestCase):
    """The tables are whole."""

    def test_every_state_is_reached(self) -> None:
        """Every state but the first is some step's result."""
        self.assertEqual(set(ENDPOINT.values()) | {LinkStateName.UNBOUND}, set(LinkStateName))

    def test_done_is_the_end(self) -> None:
        """Nothing leads out of DONE, and something leads out of all others."""
        sources = {state for state, _ in ENDPOINT}
        self.assertEqual(sources, set(LinkStateName) - {LinkStateName.DONE})

    def test_sides_are_symmetric(self) -> None:
        """The peer may do all that we may: the table is its own mirror."""
        mirror = {
            LinkStateName.OPENING: LinkStateName.OFFERED,
            LinkStateName.OFFERED: LinkStateName.OPENING,
            LinkStateName.WITHDRAWN: LinkStateName.LAPSED,
            LinkStateName.LAPSED: LinkStateName.WITHDRAWN,
            LinkStateName.CLOSING: LinkStateName.LEAVING,
            LinkStateName.LEAVING: LinkStateName.CLOSING,
        }
        steps = {
            StateTransition.SEND_OPENING: StateTransition.RECEIVE_OPENING,
            StateTransition.RECEIVE_OPENING: StateTransition.SEND_OPENING,
            StateTransition.SEND_CLOSING: StateTransition.RECEIVE_CLOSING,
            StateTransition.RECEIVE_CLOSING: StateTransition.SEND_CLOSING,
        }
        for (state, step), after in ENDPOINT.items():
            self.assertEqual(
                ENDPOINT[mirror.get(state, state), steps[step]], mirror.get(after, after)
            )

    def test_every_phase_ends(self) -> None:
        """From every phase the connection can be refused."""
        self.assertEqual(
            {phase for (phase, _), after in PHASES.items() if after is HandshakePhase.OVER},
            set(HandshakePhase),
        )


# ------------------------------------------------------------------------------ arbitrary input

PHASE_PREFIXES = [
    b"",
    TLS,
    SASL,
    AMQP,
    AMQP + frame(spec.Open(container_id="p")),
    AMQP + frame(spec.Open(container_id="p")) + frame(BEGIN),
    AMQP + frame(spec.Open(container_id="p")) + frame(BEGIN) + frame(attach()),
    AMQP + frame(spec.Open(container_id="p")) + frame(BEGIN) + frame(spec.End()),
    AMQP + frame(spec.Open(container_id="p")) + frame(spec.Close()),
]

small = st.integers(0, 3)
maybe = st.one_of(st.none(), small)
flags = st.booleans()
states = st.sampled_from([None, spec.Accepted(), spec.Released(), spec.Rejected()])
bodies = st.one_of(
    st.builds(spec.Open, container_id=st.just("p")),
    st.builds(
        spec.Begin,
        remote_channel=maybe,
        next_outgoing_id=small,
        incoming_window=small,
        outgoing_window=small,
    ),
    st.builds(
        attach,
        st.sampled_from(["sender", "receiver"]),
        small,
        st.sampled_from(["x", "y"]),
        snd_settle_mode=st.integers(0, 2),
        rcv_settle_mode=st.integers(0, 1),
        initial_delivery_count=maybe,
        target=st.sampled_from([None, spec.Target(address="q")]),
    ),
    st.builds(
        flow,
        next_incoming_id=maybe,
        incoming_window=small,
        handle=maybe,
        delivery_count=maybe,
        link_credit=maybe,
        drain=flags,
        echo=flags,
    ),
    st.builds(
        transfer,
        maybe,
        small,
        settled=st.one_of(st.none(), flags),
        more=flags,
        aborted=flags,
        resume=flags,
        state=states,
        rcv_settle_mode=st.one_of(st.none(), st.integers(0, 1)),
    ),
    st.builds(spec.Disposition, role=flags, first=small, last=maybe, settled=flags, state=states),
    st.builds(spec.Detach, handle=small, closed=flags),
    st.builds(spec.End),
    st.builds(spec.Close),
)
frames = st.builds(frame, bodies, st.sampled_from([b"", b"x", b"y" * 40]), st.integers(0, 2))


def busy(peer: Peer) -> Any:
    """Return a user that accepts everything, grants credit, sends and settles."""

    def user(event: Any) -> None:
        peer._answer(event)
        if isinstance(event, LinkAttached):
            if event.link.role == "receiver":
                event.link.flow(3)
        elif isinstance(event, DeliveriesReceived):
            if event.link.is_active:
                event.link.session.settle(event.deliveries, spec.Accepted())
        elif isinstance(event, DeliveriesUpdated):
            event.link.session.settle(event.deliveries)
        link = getattr(event, "link", None)
        if isinstance(link, Link) and link.role == "sender":
            while link.sendable and link.deliveries < 50:
                settled = link.snd_settle_mode == spec.SENDER_SETTLED
                link.send([b"z" * 600], b"%d" % link.deliveries, settled=settled)
            if link.drain:
                link.drained()

    return user


class Arbitrary(SynchronousTestCase):
    """With any input the engine neither raises nor grows nor lingers."""

    def assert_ends(self, peer: Peer) -> None:
        """Every connection ends within its deadlines when nothing more comes."""
        engine = peer.engine
        peer.raw()
        for _ in range(4):
            deadline = engine.next_deadline()
            if deadline is None:
                break
            peer.now = max(peer.now, deadline)
            for event in engine.tick(peer.now):
                peer.events.append(event)
                peer.user(event)
            peer.raw()
        peer.events.extend(engine.receive_eof(peer.now))
        self.assertTrue(engine.is_closed)
        self.assertEqual(len(of_type(peer.events, ConnectionClosed)), 1)
        self.assertIsInstance(peer.events[-1], ConnectionClosed)
        self.assertEqual(engine.sessions, ())

    @given(st.sampled_from(PHASE_PREFIXES), st.binary(max_size=200))
    def test_octets(self, prefix: bytes, octets: bytes) -> None:
        """Arbitrary octets in any phase."""
        peer = Peer(Connection(settings(tls="optional")))
        peer.user = busy(peer)
        peer.write(prefix)
        peer.write(octets)
        self.assert_ends(peer)

    @given(st.lists(frames, max_size=30), st.integers(0, 2**32))
    @hypothesis_settings(max_examples=300)
    def test_frames(self, stream: list[bytes], seed: int) -> None:
        """Arbitrary sequences of right frames, to a busy user, cut anyhow."""
        peer = Peer(Connection(settings(handle_max=2, channel_max=1, incoming_window=4)))
        peer.user = busy(peer)
        octets = AMQP + frame(spec.Open(container_id="p")) + frame(BEGIN) + b"".join(stream)
        cuts = random.Random(seed)
        while octets:
            size = cuts.randint(1, 1000)
            peer.write(octets[:size])
            octets = octets[size:]
            if cuts.random() < 0.5:
                peer.raw()
            for session in peer.engine.sessions:
                self.assert_agrees(session)
        self.assert_ends(peer)

    def assert_agrees(self, session: Any) -> None:
        """The two views of unsettled deliveries are one."""
        by_tag = {
            id(delivery)
            for link in session.links
            for delivery in link.unsettled.values()
            if delivery.id >= 0
            and link.state in (LinkStateName.OPEN, LinkStateName.OFFERED, LinkStateName.LEAVING)
        }
        by_id = {id(each) for each in session._unsettled.incoming.values()} | {
            id(each) for each in session._outgoing.values()
        }
        self.assertLessEqual(by_id, by_tag | self._lapsed(session))
        self.assertLessEqual(by_tag, by_id)

    def _lapsed(self, session: Any) -> set[int]:
        return {
            id(delivery)
            for link in session.links
            if link.state is LinkStateName.LAPSED
            for delivery in link.unsettled.values()
        }

    @given(st.lists(frames, max_size=20), st.integers(1, 60))
    def test_chunking(self, stream: list[bytes], size: int) -> None:
        """The events do not depend on how the octets were cut."""
        octets = AMQP + frame(spec.Open(container_id="p")) + frame(BEGIN) + b"".join(stream)

        def run(chunk: int | None) -> list[Any]:
            engine = Connection(settings())
            engine.start(0.0)
            told = []
            for piece in pieces(octets, chunk):
                told.extend(engine.receive_data(piece, 0.0))
            return merged(told)

        whole = run(None)
        self.assertEqual(run(size), whole)
        self.assertEqual(run(1), whole)


# -------------------------------------------------------------------------------- two engines


class Verbs(RuleBasedStateMachine):
    """Two engines, random verbs on both sides, pieces of random size."""

    @initialize(window=st.integers(2, 8), frame_size=st.sampled_from([512, 600, 65536]))
    def prepare(self, window: int, frame_size: int) -> None:
        both = {"incoming_window": window, "max_frame_size": frame_size, "credit_grace_new": 0}
        self.pair = Pair(7, credit=None, client=both, server=both)
        self.pair.on_server = self.serve
        self.pair.on_client = self.use
        self.number = 0
        self.granted = 0
        self.got: list[Delivery] = []
        self.expected: list[bytes] = []
        self.arrived: list[bytes] = []

    def serve(self, event: Any) -> None:
        answer(event)
        if isinstance(event, LinkAttached):
            self.pair.receiver = event.link
        elif isinstance(event, DeliveriesReceived):
            self.got.extend(event.deliveries)
            self.arrived.extend(each.payload for each in event.deliveries)

    def use(self, event: Any) -> None:
        if isinstance(event, DeliveriesUpdated) and not event.settled:
            self.pair.session.settle(event.deliveries, event.state)

    @rule(credit=st.integers(0, 10))
    def grant(self, credit: int) -> None:
        self.pair.receiver.flow(credit)

    @rule(size=st.sampled_from([0, 1, 400, 500, 1500]), settled=st.booleans())
    def send(self, size: int, settled: bool) -> None:
        link = self.pair.sender
        if link.credit > 0:
            self.number += 1
            body = b"%d:" % self.number + b"x" * size
            link.send([body[:3], body[3:]], b"%d" % self.number, settled=settled)
            self.expected.append(body)

    @rule(first=st.booleans(), count=st.integers(1, 5), back=st.booleans())
    def settle(self, first: bool, count: int, back: bool) -> None:
        some = self.got[:count] if back else self.got[-count:]
        self.pair.receiver.session.settle(some, spec.Accepted(), settled=first)
        if first:
            self.got = [each for each in self.got if not each.settled]

    @rule()
    def drain(self) -> None:
        self.pair.receiver.flow(self.pair.receiver.credit, drain=True)

    @rule()
    def drained(self) -> None:
        if self.pair.sender.drain:
            self.pair.sender.drained()

    @rule(echo=st.booleans())
    def ask(self, echo: bool) -> None:
        self.pair.receiver.flow(self.pair.receiver.credit, echo=echo)

    @precondition(lambda self: self.arrived == self.expected)
    @rule(closed=st.booleans())
    def again(self, closed: bool) -> None:
        self.pair.run()
        self.pair.sender.detach(closed=closed)
        self.pair.run()
        self.got.clear()
        self.pair.sender = self.pair.session.attach(
            "link", "sender", spec.Source(address="a"), spec.Target(address="b")
        )
        self.pair.run()

    @rule()
    def carry(self) -> None:
        self.pair.run()
        if not self.pair.session._queue:
            assert self.arrived == self.expected, "all arrives, once and in order"
        assert set(self.pair.sender.unsettled) == set(self.pair.receiver.unsettled)
        (server_session,) = self.pair.server.sessions
        assert set(self.pair.session._outgoing) == set(server_session._unsettled.incoming)
        assert self.pair.sender.delivery_count == self.pair.receiver.delivery_count

    @invariant()
    def nobody_complains(self) -> None:
        if hasattr(self, "pair"):
            told = self.pair.client_events + self.pair.server_events
            assert not [each for each in told if getattr(each, "by_fault", False)]
            assert self.pair.sender.credit >= 0
            assert self.pair.receiver.credit >= 0


class Stateful(SynchronousTestCase):
    """Invariants of two engines under random verbs."""

    def test_verbs(self) -> None:
        """No fault is ever found, credit is kept, the unsettled maps agree at rest."""
        run_state_machine_as_test(
            Verbs, settings=hypothesis_settings(max_examples=60, stateful_step_count=40)
        )
