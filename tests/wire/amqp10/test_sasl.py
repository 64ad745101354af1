# SPDX-License-Identifier: Apache-2.0
"""The SASL layer (part 5 §5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import AuthenticationFailed as Failure
from amqproute.errors import LocalProtocolError
from amqproute.wire import sasl_mechanisms
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.connection import Connection
from amqproute.wire.amqp10.engine_events import (
    Authenticated,
    AuthenticationRejected,
    ConnectionClosed,
    CredentialsPresented,
    OpenReceived,
)
from amqproute.wire.sasl_mechanisms import ScramSecret, ServerContext
from tests.support.wire import AMQP, SASL, Peer, Wire, frame, of_type, sasl, settings

SECRET = ScramSecret.derive("secret", salt=b"0123456789abcdef", iterations=4096)


class Server:
    """Offers mechanisms on a confidential stream."""

    def __init__(self, *names: str) -> None:
        self.mechanisms: Sequence[str] = names

    def start(self, name: str) -> sasl_mechanisms.SaslServer:
        return sasl_mechanisms.server_mechanism(
            name,
            ServerContext(
                lookup={"alice": SECRET}.get,
                nonce="server-nonce-0123456789abcdef",
                decoy_key=b"k",
                confidential=True,
            ),
        )


class Client:
    """Wants one mechanism."""

    def __init__(self, name: str, password: str = "secret") -> None:
        self.name = name
        self.password = password

    def choose(self, offered: Sequence[str]) -> sasl_mechanisms.SaslClient | None:
        if self.name not in offered:
            return None
        return sasl_mechanisms.client_mechanism(
            self.name,
            username="alice",
            password=self.password,
            nonce="client-nonce-0123456789abcdef",
            confidential=True,
        )


class TwoEngines(SynchronousTestCase):
    """Both sides of each mechanism."""

    chunk: int | None = None

    def wire(self, name: str, *offered: str, password: str = "secret") -> Wire:
        wire = Wire(
            Connection(settings("client"), sasl_client=Client(name, password)),
            Connection(
                settings("server", allow_no_sasl=False),
                sasl_server=Server(*(offered or (name,))),
            ),
            self.chunk,
        )
        wire.client.open()
        return wire

    def answer_password(self, wire: Wire, ok: bool) -> None:
        usual = wire.on_server

        def user(event: Any) -> None:
            if isinstance(event, CredentialsPresented):
                step = event.step
                self.assertEqual((step.username, step.password), ("alice", "secret"))
                events = wire.server.credentials_verified(ok, 0.0)
                wire.server_events.extend(events)
                for each in events:
                    user(each)
            usual(event)

        wire.on_server = user

    def test_anonymous(self) -> None:
        """ANONYMOUS authenticates nobody, and the opens follow."""
        wire = self.wire("ANONYMOUS").run()
        (done,) = of_type(wire.server_events, Authenticated)
        self.assertEqual((done.mechanism, done.identity.name), ("ANONYMOUS", ""))
        self.assertEqual(of_type(wire.client_events, Authenticated)[0].mechanism, "ANONYMOUS")
        self.assertEqual(len(of_type(wire.client_events, OpenReceived)), 1)

    def test_plain(self) -> None:
        """PLAIN waits for the verification outside."""
        wire = self.wire("PLAIN")
        self.answer_password(wire, True)
        wire.run()
        (done,) = of_type(wire.server_events, Authenticated)
        self.assertEqual((done.mechanism, done.identity.name), ("PLAIN", "alice"))
        self.assertEqual(len(of_type(wire.client_events, OpenReceived)), 1)

    def test_plain_refused(self) -> None:
        """A wrong password ends both sides."""
        wire = self.wire("PLAIN")
        self.answer_password(wire, False)
        wire.run()
        for events, engine in (
            (wire.server_events, wire.server),
            (wire.client_events, wire.client),
        ):
            self.assertEqual(len(of_type(events, AuthenticationRejected)), 1)
            self.assertIsInstance(events[-1], ConnectionClosed)
            self.assertTrue(engine.is_closed)

    def test_scram(self) -> None:
        """SCRAM proves both sides, with the server's proof in the outcome."""
        wire = self.wire("SCRAM-SHA-256").run()
        (done,) = of_type(wire.server_events, Authenticated)
        self.assertEqual(done.identity.name, "alice")
        self.assertEqual(len(of_type(wire.client_events, OpenReceived)), 1)

    def test_scram_refused(self) -> None:
        """A wrong password fails."""
        wire = self.wire("SCRAM-SHA-256", password="wrong").run()
        self.assertEqual(len(of_type(wire.server_events, AuthenticationRejected)), 1)
        self.assertEqual(len(of_type(wire.client_events, AuthenticationRejected)), 1)

    def test_nothing_suits(self) -> None:
        """A client that likes no mechanism goes, and says why in its event."""
        wire = self.wire("PLAIN", "ANONYMOUS").run()
        (failed,) = of_type(wire.client_events, AuthenticationRejected)
        self.assertIn("ANONYMOUS", failed.reason)
        self.assertTrue(wire.client.is_closed)


class TwoEnginesByteByByte(TwoEngines):
    """The same, an octet at a time."""

    chunk = 1


class ServerSide(SynchronousTestCase):
    """Frames allowed to clients, and others."""

    chunk: int | None = None

    def peer(self, *names: str) -> Peer:
        return Peer(
            Connection(settings("server", allow_no_sasl=False), sasl_server=Server(*names)),
            self.chunk,
        )

    def outcome(self, peer: Peer) -> int:
        return int(peer.read()[-1].code)

    def test_pipelined(self) -> None:
        """A client may write everything up to its open without waiting (§5.3.2)."""
        peer = self.peer("PLAIN")
        peer.write(
            SASL,
            sasl(spec.SaslInit(mechanism="PLAIN", initial_response=b"\0alice\0secret")),
            AMQP,
            frame(spec.Open(container_id="p")),
        )
        self.assertEqual([type(event) for event in peer.events], [CredentialsPresented])
        events = peer.engine.credentials_verified(True, 0.0)
        self.assertEqual([type(event) for event in events], [Authenticated, OpenReceived])
        data = peer.raw()
        self.assertTrue(data.startswith(SASL))
        self.assertTrue(data.endswith(AMQP))

    def test_held_input_is_bounded(self) -> None:
        """Input during the verification of a password is bounded."""
        peer = self.peer("PLAIN")
        peer.chunk = None
        peer.write(
            SASL,
            sasl(spec.SaslInit(mechanism="PLAIN", initial_response=b"\0alice\0secret")),
            b"x" * 70000,
        )
        self.assertTrue(peer.engine.is_closed)
        self.assertEqual(peer.engine.credentials_verified(True, 0.0), [])

    def test_not_offered(self) -> None:
        """A mechanism that was not offered fails with outcome auth."""
        peer = self.peer("ANONYMOUS")
        peer.write(SASL, sasl(spec.SaslInit(mechanism="PLAIN")))
        self.assertEqual(self.outcome(peer), spec.SASL_AUTH)
        self.assertTrue(peer.engine.is_closed)

    def test_out_of_turn(self) -> None:
        """A response before the init fails with outcome sys-perm."""
        peer = self.peer("ANONYMOUS")
        peer.write(SASL, sasl(spec.SaslResponse(response=b"")))
        self.assertEqual(self.outcome(peer), spec.SASL_SYS_PERM)

    def test_amqp_frame(self) -> None:
        """An AMQP frame in the SASL layer ends it."""
        peer = self.peer("ANONYMOUS")
        peer.write(SASL, frame(spec.Open(container_id="p")))
        self.assertTrue(peer.engine.is_closed)
        self.assertEqual(len(of_type(peer.events, AuthenticationRejected)), 1)

    def test_large_frame(self) -> None:
        """A SASL frame above 512 octets ends it (§5.3.1)."""
        peer = self.peer("ANONYMOUS")
        peer.write(SASL, sasl(spec.SaslInit(mechanism="ANONYMOUS", initial_response=b"x" * 600)))
        self.assertTrue(peer.engine.is_closed)

    def test_sasl_twice(self) -> None:
        """After SASL only AMQP may follow."""
        peer = self.peer("ANONYMOUS")
        peer.write(SASL, sasl(spec.SaslInit(mechanism="ANONYMOUS")), SASL)
        self.assertTrue(peer.engine.is_closed)
        self.assertTrue(peer.raw().endswith(AMQP))

    def test_sasl_is_optional(self) -> None:
        """With allow_no_sasl a client may start with AMQP."""
        peer = Peer(Connection(settings("server"), sasl_server=Server("ANONYMOUS")), self.chunk)
        peer.write(AMQP)
        (done,) = of_type(peer.events, Authenticated)
        self.assertIsNone(done.mechanism)

    def test_stream_ends_while_verifying(self) -> None:
        """An answer that comes too late does nothing."""
        peer = self.peer("PLAIN")
        init = spec.SaslInit(mechanism="PLAIN", initial_response=b"\0alice\0secret")
        peer.write(SASL, sasl(init))
        peer.engine.receive_eof(1.0)
        self.assertEqual(peer.engine.credentials_verified(True, 2.0), [])

    def test_nothing_to_verify(self) -> None:
        """An answer that nobody asked for is our mistake."""
        peer = self.peer("PLAIN")
        self.assertRaises(LocalProtocolError, peer.engine.credentials_verified, True, 0.0)


class ServerSideByteByByte(ServerSide):
    """The same, an octet at a time."""

    chunk = 1


class ClientSide(SynchronousTestCase):
    """Frames allowed to servers, and others."""

    def peer(self, client: Any) -> Peer:
        peer = Peer(Connection(settings("client", hostname="b.example"), sasl_client=client))
        peer.write(SASL)
        return peer

    def offer(self, peer: Peer, *names: str) -> None:
        peer.write(sasl(spec.SaslMechanisms(sasl_server_mechanisms=names)))

    def test_init(self) -> None:
        """The init names mechanism and host."""
        peer = self.peer(Client("ANONYMOUS"))
        self.offer(peer, "PLAIN", "ANONYMOUS")
        (init,) = peer.read()
        self.assertEqual((init.mechanism, init.hostname), ("ANONYMOUS", "b.example"))

    def test_outcomes(self) -> None:
        """Every outcome but ok is a failure."""
        for code in (1, 2, 3, 4):
            peer = self.peer(Client("ANONYMOUS"))
            self.offer(peer, "ANONYMOUS")
            peer.write(sasl(spec.SaslOutcome(code=code)))
            self.assertEqual(len(of_type(peer.events, AuthenticationRejected)), 1)
            self.assertTrue(peer.engine.is_closed)

    def test_ok_without_proof(self) -> None:
        """A server that says ok without SCRAM's proof is not believed."""
        peer = self.peer(Client("SCRAM-SHA-256"))
        self.offer(peer, "SCRAM-SHA-256")
        peer.write(sasl(spec.SaslOutcome(code=0)))
        self.assertEqual(len(of_type(peer.events, AuthenticationRejected)), 1)

    def test_ok_at_once(self) -> None:
        """A server that says ok before there is a mechanism is not believed."""
        peer = self.peer(Client("ANONYMOUS"))
        peer.write(sasl(spec.SaslOutcome(code=0)))
        self.assertEqual(len(of_type(peer.events, AuthenticationRejected)), 1)

    def test_endless(self) -> None:
        """A server that challenges for ever is left."""

        class Patient:
            name = "X"

            def initial(self) -> bytes | None:
                return None

            def step(self, challenge: bytes) -> bytes:
                return challenge

            def finish(self, additional: bytes | None) -> None:
                raise AssertionError

        class Choose:
            def choose(self, offered: Sequence[str]) -> Any:
                return Patient()

        peer = self.peer(Choose())
        self.offer(peer, "X")
        for _ in range(20):
            peer.write(sasl(spec.SaslChallenge(challenge=b"?")))
        self.assertTrue(peer.engine.is_closed)

    def test_choice_fails(self) -> None:
        """A chooser that gives up is reported with its reason."""

        class Choose:
            def choose(self, offered: Sequence[str]) -> Any:
                raise Failure("auth.mechanism", "PLAIN needs a confidential transport")

        peer = self.peer(Choose())
        self.offer(peer, "PLAIN")
        (failed,) = of_type(peer.events, AuthenticationRejected)
        self.assertIn("confidential", failed.reason)

    def test_answer_too_long(self) -> None:
        """An answer that does not fit into a SASL frame is a failure here, not a broken frame."""
        peer = self.peer(Client("PLAIN", "x" * 600))
        self.offer(peer, "PLAIN")
        self.assertEqual(len(of_type(peer.events, AuthenticationRejected)), 1)
        self.assertEqual(peer.read(), [])
