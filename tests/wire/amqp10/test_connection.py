# SPDX-License-Identifier: Apache-2.0
"""Headers, open, close, heartbeats, deadlines (part 2 §2.2, §2.4)."""

from __future__ import annotations

import ssl
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import (
    Authenticated,
    ConnectionClosed,
    DeliveriesReceived,
    LinkAttached,
    LinkDetached,
    OpenReceived,
    SessionBegun,
    SessionEnded,
    TlsAgreed,
)
from amqproute.wire.amqp10.frames import EMPTY_FRAME
from amqproute.wire.amqp10.sasl import ServerAuthority
from amqproute.wire.amqp10.state_tables import HandshakePhase, LinkStateName
from tests.support.wire import (
    AMQP,
    SASL,
    TLS,
    Pair,
    Peer,
    Wire,
    attach,
    flow,
    frame,
    of_type,
    settings,
    transfer,
)

BEGIN = spec.Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)


class Headers(SynchronousTestCase):
    """The first eight octets, server side."""

    chunk: int | None = None

    def peer(self, sasl_server: ServerAuthority | None = None, **changes: Any) -> Peer:
        engine = Connection(settings("server", **changes), sasl_server=sasl_server)
        return Peer(engine, self.chunk)

    def test_plain(self) -> None:
        """The AMQP header is answered with the same."""
        peer = self.peer()
        peer.write(AMQP)
        self.assertEqual(peer.raw(), AMQP)
        self.assertEqual([type(event) for event in peer.events], [Authenticated])

    def test_other_version_is_told_ours(self) -> None:
        """AMQP 0-9-1 gets the header that we speak, and the end."""
        peer = self.peer()
        peer.write(b"AMQP\x00\x00\x09\x01")
        self.assertEqual(peer.raw(), AMQP)
        self.assertTrue(peer.engine.is_closed)
        self.assertTrue(of_type(peer.events, ConnectionClosed)[0].by_fault)

    def test_unknown_protocol_id_is_told_ours(self) -> None:
        """A header of no known protocol gets the header that we speak."""
        peer = self.peer()
        peer.write(b"AMQP\x07\x01\x00\x00")
        self.assertEqual(peer.raw(), AMQP)
        self.assertTrue(peer.engine.is_closed)

    def test_stranger_is_told_ours(self) -> None:
        """A start unlike AMQP gets the header that we speak, and the end (09-W-03)."""
        for octets in (b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", bytes(64)):
            for ours, changes in (
                (AMQP, {}),
                (SASL, {"sasl_server": _Offers()}),
                (SASL, {"sasl_server": _Offers(), "tls": "optional"}),
                (TLS, {"sasl_server": _Offers(), "tls": "required"}),
            ):
                peer = self.peer(**changes)
                peer.write(octets)
                self.assertEqual(peer.raw(), ours)
                self.assertTrue(peer.engine.is_closed)
                (closed,) = of_type(peer.events, ConnectionClosed)
                self.assertIn("not AMQP", closed.error.description)

    def test_hello_of_tls(self) -> None:
        """A TLS hello gets a TLS alert, which its client reads as one, and no service."""
        for mode, words in (("none", "tls: none"), ("optional", "tls: upgrade")):
            coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
                coming, going, server_hostname="a.test"
            )
            self.assertRaises(ssl.SSLWantReadError, client.do_handshake)
            peer = self.peer(tls=mode, sasl_server=_Offers())
            peer.write(going.read())
            self.assertTrue(peer.engine.is_closed)
            self.assertEqual(of_type(peer.events, TlsAgreed), [])
            (closed,) = of_type(peer.events, ConnectionClosed)
            self.assertIn(words, closed.error.description)
            coming.write(peer.raw())
            failure = self.assertRaises(ssl.SSLError, client.do_handshake)
            self.assertIn("ALERT_HANDSHAKE_FAILURE", failure.reason)

    def test_sasl_demanded(self) -> None:
        """A client that leaves SASL out is told the SASL header."""
        peer = self.peer(allow_no_sasl=False, sasl_server=_Offers())
        peer.write(AMQP)
        self.assertEqual(peer.raw(), SASL)
        self.assertTrue(peer.engine.is_closed)

    def test_tls_demanded(self) -> None:
        """A client that leaves TLS out is told the TLS header."""
        peer = self.peer(tls="required")
        peer.write(AMQP)
        self.assertEqual(peer.raw(), TLS)
        self.assertTrue(peer.engine.is_closed)

    def test_tls_refused(self) -> None:
        """Without TLS to offer, its header is answered with ours."""
        peer = self.peer()
        peer.write(TLS)
        self.assertEqual(peer.raw(), AMQP)
        self.assertTrue(peer.engine.is_closed)

    def test_tls_agreed(self) -> None:
        """The TLS header is answered; negotiation starts again on the secured stream."""
        peer = self.peer(tls="optional")
        peer.write(TLS)
        self.assertEqual(peer.raw(), TLS)
        self.assertEqual([type(event) for event in peer.events], [TlsAgreed])
        peer.engine.tls_established(0.0)
        peer.write(AMQP)
        self.assertEqual(peer.raw(), AMQP)
        self.assertTrue(peer.engine.is_secured)

    def test_tls_once(self) -> None:
        """TLS within TLS is refused."""
        peer = self.peer(tls="required")
        peer.write(TLS)
        peer.raw()
        peer.engine.tls_established(0.0)
        peer.write(TLS)
        self.assertEqual(peer.raw(), AMQP)
        self.assertTrue(peer.engine.is_closed)

    def test_octets_in_the_clear(self) -> None:
        """Input before the handshake is never read as if it had come through TLS."""
        peer = self.peer(tls="required")
        peer.write(TLS, AMQP)
        events = peer.engine.tls_established(0.0)
        self.assertEqual([type(event) for event in events], [ConnectionClosed])
        self.assertTrue(peer.engine.is_closed)

    def test_surplus(self) -> None:
        """The first octets of the handshake can be handed on to the TLS layer."""
        peer = self.peer(tls="required")
        peer.write(TLS, b"\x16\x03\x01")
        self.assertEqual(peer.engine.take_surplus(), b"\x16\x03\x01")
        self.assertEqual(peer.engine.tls_established(0.0), [])

    def test_surplus_is_bounded(self) -> None:
        """A peer that continues in the clear is cut off."""
        peer = self.peer(tls="required")
        peer.chunk = None
        peer.write(TLS, b"x" * 70000)
        self.assertTrue(peer.engine.is_closed)


class HeadersByteByByte(Headers):
    """The same, an octet at a time."""

    chunk = 1


class _Offers:
    mechanisms = ("ANONYMOUS",)

    def start(self, name: str) -> Any:
        raise AssertionError(name)


class ClientHeaders(SynchronousTestCase):
    """The first eight octets, client side."""

    def client(self, **changes: Any) -> Peer:
        return Peer(Connection(settings("client", **changes)))

    def test_plain(self) -> None:
        """A client without SASL starts with the AMQP header, and may pipeline its open."""
        peer = self.client()
        peer.engine.open()
        self.assertTrue(peer.raw().startswith(AMQP + b"\x00\x00\x00"))

    def test_tls_first(self) -> None:
        """A client that requires TLS asks for it and waits; its open waits too."""
        peer = self.client(tls="required")
        peer.engine.open()
        self.assertEqual(peer.raw(), TLS)
        self.assertEqual([type(event) for event in peer.write(TLS)], [TlsAgreed])
        peer.engine.tls_established(0.0)
        self.assertTrue(peer.raw().startswith(AMQP + b"\x00\x00\x00"))

    def test_tls_denied(self) -> None:
        """A server that does not offer TLS is left: nothing goes out in the clear."""
        peer = self.client(tls="required")
        peer.raw()
        peer.write(SASL)
        self.assertTrue(peer.engine.is_closed)
        self.assertEqual(peer.raw(), b"")

    def test_other_answer(self) -> None:
        """A server that wants SASL of a client without is left, with an event that says so."""
        peer = self.client()
        (closed,) = of_type(peer.write(SASL), ConnectionClosed)
        assert closed.error is not None
        self.assertIn("AMQP_1_0_SASL", closed.error.description or "")

    def test_tls_not_agreed(self) -> None:
        """`tls_established` out of turn is our mistake."""
        self.assertRaises(LocalProtocolError, self.client().engine.tls_established, 0.0)


class Opening(SynchronousTestCase):
    """open and close."""

    chunk: int | None = None

    def peer(self, **changes: Any) -> Peer:
        return Peer(Connection(settings("server", **changes)), self.chunk)

    def test_open(self) -> None:
        """Our open carries the settings; overrides win."""
        peer = self.peer(
            idle_timeout=30.0, channel_max=7, offered_capabilities=("ANONYMOUS-RELAY",)
        )
        peer.user = lambda event: None
        peer.write(AMQP, frame(spec.Open(container_id="p", hostname="h")))
        peer.engine.open(properties={"product": "x"})
        (opened,) = peer.read()
        self.assertEqual(opened.container_id, "server.example")
        self.assertEqual(opened.idle_time_out, 30000)
        self.assertEqual(opened.channel_max, 7)
        self.assertEqual(opened.max_frame_size, 262144)
        self.assertEqual(opened.offered_capabilities, ("ANONYMOUS-RELAY",))
        self.assertEqual(opened.properties, {"product": "x"})
        self.assertEqual(peer.engine.remote_container_id, "p")
        self.assertIs(peer.engine.state, LinkStateName.OPEN)

    def test_peer_closes(self) -> None:
        """A close is answered, and that is the end."""
        peer = self.peer().opened()
        peer.send(spec.Close())
        self.assertEqual(peer.names(), ["Close"])
        self.assertTrue(peer.engine.is_closed)
        (closed,) = of_type(peer.events, ConnectionClosed)
        self.assertEqual((closed.error, closed.by_fault, closed.clean), (None, False, True))

    def test_peer_closes_with_error(self) -> None:
        """The condition of the peer's close is reported."""
        peer = self.peer().opened()
        peer.send(spec.Close(error=spec.Error(condition="amqp:connection:forced")))
        (closed,) = of_type(peer.events, ConnectionClosed)
        assert closed.error is not None
        self.assertEqual(closed.error.condition, "amqp:connection:forced")

    def test_we_close(self) -> None:
        """After our close only the peer's close counts."""
        peer = self.peer().opened()
        peer.begun()
        peer.engine.close()
        self.assertEqual(peer.names(), ["Close"])
        self.assertFalse(peer.engine.is_closed)
        self.assertEqual(peer.send(attach()), [])
        events = peer.send(spec.Close())
        self.assertEqual([type(event) for event in events], [SessionEnded, ConnectionClosed])
        self.assertTrue(peer.engine.is_closed)
        self.assertEqual(peer.raw(), b"")

    def test_close_before_open(self) -> None:
        """To refuse a connection, `close` sends the open that the standard wants first."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.write(AMQP, frame(spec.Open(container_id="p")))
        peer.engine.close(spec.Error(condition="amqp:unauthorized-access"))
        self.assertEqual(peer.names(), ["Open", "Close"])

    def test_close_in_negotiation(self) -> None:
        """A close before AMQP is spoken just ends it."""
        peer = self.peer()
        peer.engine.close()
        self.assertTrue(peer.engine.is_closed)
        self.assertEqual(
            [type(event) for event in peer.engine.receive_eof(0.0)], [ConnectionClosed]
        )

    def test_open_twice(self) -> None:
        """Our second open is our mistake."""
        peer = self.peer().opened()
        self.assertRaises(LocalProtocolError, peer.engine.open)

    def test_frames_as_opened(self) -> None:
        """The max-frame-size that our open names is the one that holds."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.write(AMQP, frame(spec.Open(container_id="p")))
        peer.engine.open(max_frame_size=512)
        peer.write(b"\0\0\x02\x01\2\0\0\0")
        self.assertTrue(of_type(peer.events, ConnectionClosed)[0].by_fault)

    def test_accept_before_open(self) -> None:
        """To accept a session before our open is our mistake."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.write(AMQP, frame(spec.Open(container_id="p")), frame(BEGIN))
        self.assertRaises(LocalProtocolError, peer.engine.sessions[0].accept)

    def test_begin_before_open(self) -> None:
        """A session before our open is our mistake."""
        self.assertRaises(LocalProtocolError, self.peer().engine.begin)

    def test_stream_ends(self) -> None:
        """When the stream ends, links and sessions end before the connection does."""
        peer = self.peer().opened().begun()
        peer.attached()
        events = peer.engine.receive_eof(1.0)
        self.assertEqual(
            [type(event) for event in events], [LinkDetached, SessionEnded, ConnectionClosed]
        )
        self.assertTrue(peer.engine.is_closed)
        self.assertEqual(peer.engine.receive_eof(1.0), [])

    def test_verbs_after_the_end(self) -> None:
        """Verbs on what is gone do nothing; to send on it is our mistake."""
        peer = self.peer().opened().begun()
        link = peer.attached("receiver")
        peer.send(flow(handle=0, link_credit=5))
        peer.engine.receive_eof(1.0)
        link.detach()
        link.drained()
        link.session.settle([], None)
        link.session.end()
        peer.engine.close()
        self.assertEqual(link.sendable, 0)
        self.assertRaises(LocalProtocolError, link.send, [b"x"], b"t")
        self.assertEqual(peer.raw(), b"")

    def test_one_segment(self) -> None:
        """Header to close in one write: the delivery is reported, everything is answered (P-03)."""
        peer = self.peer()
        seen: list[bool] = []

        def user(event: Any) -> None:
            peer._answer(event)
            if isinstance(event, DeliveriesReceived):
                seen.append(event.link.is_active)
                event.link.session.settle(event.deliveries, spec.Accepted())

        peer.user = user
        peer.chunk = None
        peer.write(
            AMQP,
            frame(spec.Open(container_id="p")),
            frame(BEGIN),
            frame(attach()),
            frame(transfer(0), b"one"),
            frame(transfer(1, settled=True), b"two"),
            frame(spec.Detach(handle=0, closed=True)),
            frame(spec.End()),
            frame(spec.Close()),
        )
        self.assertEqual(
            [type(event) for event in peer.events],
            [
                Authenticated,
                OpenReceived,
                SessionBegun,
                LinkAttached,
                DeliveriesReceived,
                LinkDetached,
                SessionEnded,
                ConnectionClosed,
            ],
        )
        self.assertEqual(seen, [True])
        self.assertEqual(
            peer.names(), ["Open", "Begin", "Attach", "Disposition", "Detach", "End", "Close"]
        )
        self.assertTrue(peer.engine.is_closed)
        self.assertFalse(of_type(peer.events, LinkAttached)[0].link.is_active)

    def test_one_segment_unanswered(self) -> None:
        """A user that answers nothing does not keep a pipelining peer from its close."""
        peer = self.peer()
        peer.user = lambda event: None
        peer.chunk = None
        peer.write(
            AMQP,
            frame(spec.Open(container_id="p")),
            frame(BEGIN),
            frame(attach()),
            frame(spec.Close()),
        )
        self.assertEqual(peer.names(), ["Open", "Close"])
        self.assertTrue(peer.engine.is_closed)

    def test_begins_are_answered_late(self) -> None:
        """A session that the peer ended before our begin is begun and ended when we accept it."""
        peer = self.peer().opened()
        peer.user = lambda event: None
        peer.write(frame(BEGIN), frame(spec.End()))
        self.assertEqual(peer.names(), [])
        of_type(peer.events, SessionBegun)[0].session.accept()
        self.assertEqual(peer.names(), ["Begin", "End"])
        self.assertEqual(peer.engine.sessions, ())

    def test_channel_is_used_again(self) -> None:
        """After both ends a channel starts over."""
        peer = self.peer().opened().begun()
        peer.send(spec.End())
        self.assertEqual(peer.names(), ["End"])
        peer.send(BEGIN)
        (begun,) = peer.read()
        self.assertEqual(begun.remote_channel, 0)
        self.assertEqual(len(peer.engine.sessions), 1)


class OpeningByteByByte(Opening):
    """The same, an octet at a time."""

    chunk = 1


class Time(SynchronousTestCase):
    """Deadlines: handshake, heartbeats, idleness, close."""

    def peer(self, **changes: Any) -> Peer:
        return Peer(Connection(settings("server", **changes)))

    def test_handshake(self) -> None:
        """A client without an open in time is closed."""
        peer = self.peer(handshake_timeout=10.0)
        self.assertEqual(peer.engine.next_deadline(), 10.0)
        peer.write(AMQP[:5])
        self.assertEqual(peer.engine.tick(9.9), [])
        (closed,) = peer.engine.tick(10.0)
        assert isinstance(closed, ConnectionClosed)
        self.assertTrue(closed.by_fault)
        self.assertTrue(peer.engine.is_closed)
        self.assertIsNone(peer.engine.next_deadline())

    def test_handshake_after_header(self) -> None:
        """Once AMQP is spoken the slow peer gets a close with the reason."""
        peer = self.peer(handshake_timeout=10.0)
        peer.write(AMQP)
        peer.engine.tick(10.0)
        opened, closed = peer.read()
        self.assertEqual(type(opened), spec.Open)
        self.assertEqual(closed.error.condition, "amqp:resource-limit-exceeded")

    def test_open_ends_the_handshake(self) -> None:
        """The peer's open ends the handshake."""
        self.assertIsNone(self.peer().opened().engine.next_deadline())

    def test_heartbeats(self) -> None:
        """Empty frames go out at half the peer's idle-time-out, and only when nothing else did."""
        peer = self.peer().opened(idle_time_out=10000)
        engine = peer.engine
        self.assertEqual(engine.next_deadline(), 5.0)
        engine.tick(5.0)
        self.assertEqual(peer.raw(), EMPTY_FRAME)
        self.assertEqual(engine.next_deadline(), 10.0)
        peer.now = 8.0
        peer.send(BEGIN)
        self.assertEqual(peer.names(), ["Begin"])
        self.assertEqual(engine.next_deadline(), 13.0)

    def test_silence(self) -> None:
        """A peer silent for twice our idle time-out is closed."""
        peer = self.peer(idle_timeout=10.0).opened()
        engine = peer.engine
        self.assertEqual(engine.next_deadline(), 20.0)
        peer.now = 15.0
        peer.write(EMPTY_FRAME)
        self.assertEqual(engine.next_deadline(), 35.0)
        self.assertEqual(engine.tick(34.0), [])
        (closed,) = engine.tick(35.0)
        assert isinstance(closed, ConnectionClosed)
        self.assertTrue(closed.by_fault)
        self.assertEqual(peer.names(), ["Close"])

    def test_close_is_bounded(self) -> None:
        """A peer that does not answer our close is not waited for (E-06)."""
        peer = self.peer(close_timeout=5.0).opened()
        engine = peer.engine
        engine.close()
        peer.raw()
        # The verb knows no time: the engine asks for a tick at once and counts from there.
        self.assertEqual(engine.next_deadline(), 0.0)
        self.assertEqual(engine.tick(100.0), [])
        self.assertEqual(engine.next_deadline(), 105.0)
        (closed,) = engine.tick(105.0)
        assert isinstance(closed, ConnectionClosed)
        self.assertFalse(closed.clean)
        self.assertTrue(engine.is_closed)

    def test_fault_then_garbage(self) -> None:
        """After a framing error nothing is read; the end of the stream ends it."""
        peer = self.peer().opened()
        peer.write(b"\xff" * 64)
        peer.write(b"\xff" * 64)
        self.assertEqual(peer.names(), ["Close"])
        self.assertFalse(peer.engine.is_closed)
        self.assertEqual(peer.engine.receive_eof(1.0), [])
        self.assertTrue(peer.engine.is_closed)


class TwoEngines(SynchronousTestCase):
    """Both roles against each other."""

    chunk: int | None = None

    def test_life(self) -> None:
        """Open, begin, attach, credit, and a clean close of both."""
        pair = Pair(self.chunk)
        self.assertEqual(pair.sender.credit, 100)
        self.assertTrue(pair.sender.is_active)
        pair.client.close()
        pair.run()
        self.assertTrue(pair.client.is_closed)
        self.assertTrue(pair.server.is_closed)
        self.assertTrue(of_type(pair.client_events, ConnectionClosed)[0].clean)

    def test_pipelined_client(self) -> None:
        """A client may open, begin and attach before it has heard anything."""
        wire = Wire(Connection(settings("client")), Connection(settings("server")), self.chunk)
        wire.client.open()
        session = wire.client.begin()
        link = session.attach("r", "receiver", spec.Source(address="a"), spec.Target())
        link.flow(10)
        wire.run()
        (server_link,) = wire.server.sessions[0].links
        self.assertEqual(server_link.credit, 10)
        self.assertIs(link.state, LinkStateName.OPEN)

    def test_tallies(self) -> None:
        """Frames and deliveries are counted at both ends."""
        pair = Pair(self.chunk)
        pair.sender.send([b"x"], b"t")
        pair.run()
        self.assertEqual(pair.client.deliveries_out, 1)
        self.assertEqual(pair.server.deliveries_in, 1)
        self.assertEqual(pair.client.frames_out, pair.server.frames_in)
        self.assertEqual(pair.server.frames_out, pair.client.frames_in)


class TwoEnginesByteByByte(TwoEngines):
    """The same, an octet at a time."""

    chunk = 1


class Settings(SynchronousTestCase):
    """Refused settings."""

    def test_frame_size(self) -> None:
        """A max-frame-size below 512 is refused (§2.7.1)."""
        self.assertRaises(
            ValueError, ConnectionSettings, role="server", container_id="c", max_frame_size=511
        )

    def test_phase(self) -> None:
        """An engine that was not started reads nothing."""
        engine = Connection(settings())
        self.assertIs(engine.phase, HandshakePhase.START)
