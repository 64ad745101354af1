# SPDX-License-Identifier: Apache-2.0
"""Connecting to candidates and URLs, without a network."""

from __future__ import annotations

from typing import Any

from twisted.internet import error
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError, NoRouteError
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ConnectError
from amqproute.net.connector import Connector
from amqproute.net.pump import EngineProtocol
from amqproute.url import Url, parse_url
from amqproute.values import Candidate, TransportSecurity
from tests.net.wires import Side, Wire, WireEnd, contexts_in, settle


def candidate(
    *addresses: str, security: TransportSecurity = TransportSecurity.IMPLICIT
) -> Candidate:
    return Candidate("mx.example", 5671, security, addresses, 0, 0, "static")


class ConnectorTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.directory = self.mktemp()
        self.contexts = contexts_in(self.directory, "alpha.example")
        self.connector = Connector(self.reactor, self.contexts)
        self.sides: list[Side] = []

    def tearDown(self) -> None:
        self.assertEqual(
            [call for call in self.reactor.getDelayedCalls() if call.func.__name__ != "_tls_late"],
            [],
        )

    def make(self, facts: Any) -> Any:
        self.sides.append(Side(is_client=True))
        return self.sides[-1].make(facts)

    def connect(self, *addresses: str, **options: Any) -> Deferred[EngineProtocol]:
        return self.connector.connect(candidate(*addresses, **options), "beta.example", self.make)

    def tried(self) -> list[str]:
        return [client[0] for client in self.reactor.tcpClients]

    def fail(self, position: int, error: Exception) -> None:  # type: ignore[override]
        client = self.reactor.tcpClients[position]
        client[2].clientConnectionFailed(self.reactor.connectors[position], Failure(error))

    def built(self, position: int) -> Any:
        return self.reactor.tcpClients[position][2].buildProtocol(None)

    def test_refused(self) -> None:
        """Each address is tried; the error lists them all with what came of them."""
        connecting = self.connect("192.0.2.1", "2001:db8::1")
        self.assertEqual(self.tried(), ["192.0.2.1"])
        self.fail(0, NoRouteError())
        self.assertEqual(self.tried(), ["192.0.2.1", "2001:db8::1"])
        self.fail(1, ConnectionRefusedError())
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(error.code, "connect.refused")
        self.assertEqual(len(error.attempts), 2)
        self.assertIn("192.0.2.1:5671: connect.unreachable", error.attempts[0])
        self.assertIn("[2001:db8::1]:5671: connect.refused", error.attempts[1])

    def test_closed_while_it_opens(self) -> None:
        """What Twisted has wrapped for programs is told in words for people."""
        connecting = self.connect("192.0.2.1")
        wrapped: Any = Failure(ConnectionDone())
        self.fail(0, error.ConnectError(string=wrapped))
        failed = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(failed.code, "connect.unreachable")
        self.assertIn("Connection was closed cleanly.", str(failed))
        self.assertNotIn("Failure", str(failed))

    def test_stagger(self) -> None:
        """A silent address does not hold up the next."""
        connecting = self.connect("192.0.2.1", "192.0.2.2", "192.0.2.3")
        self.reactor.advance(0.25)
        self.assertEqual(self.tried(), ["192.0.2.1", "192.0.2.2"])
        self.fail(1, ConnectionRefusedError())
        self.assertEqual(self.tried()[-1], "192.0.2.3")
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(self.reactor.connectors[0].stoppedConnecting)
        self.assertTrue(self.reactor.connectors[2].stoppedConnecting)

    def test_silence(self) -> None:
        """All together have a deadline."""
        connecting = self.connect("192.0.2.1", "192.0.2.2")
        self.reactor.advance(0.25)
        self.reactor.advance(30)
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(error.code, "connect.timeout")
        self.assertEqual(len(error.attempts), 2)

    def test_first_wins(self) -> None:
        """The first connection ends the race; it counts when the peer has proved its name."""
        server_contexts = contexts_in(self.directory, "beta.example")
        connecting = self.connect("192.0.2.1", "192.0.2.2")
        self.reactor.advance(0.25)
        client = self.built(1)
        server, wire = self.serve(client, server_contexts)
        self.assertTrue(self.reactor.connectors[0].stoppedConnecting)
        settle(wire, self.reactor)
        protocol = self.successResultOf(connecting)
        self.assertEqual(protocol.facts.certificate_domains, {"beta.example"})
        assert server.facts is not None
        self.assertEqual(server.facts.certificate_domains, {"alpha.example"})

    def serve(self, client: Any, contexts: Any) -> tuple[Side, Wire]:
        from amqproute.net.pump import Security

        server = Side()
        pump = EngineProtocol(
            server.make,
            self.reactor,
            security=Security(contexts.server_creator("required"), implicit=True),
        )
        return server, Wire(client, pump)

    def test_wrong_name_then_right(self) -> None:
        """Where one machine shows a wrong certificate the next address gets its turn."""
        connecting = self.connect("192.0.2.1", "192.0.2.2")
        _, wire = self.serve(self.built(0), contexts_in(self.directory, "gamma.example"))
        settle(wire, self.reactor)
        self.assertNoResult(connecting)
        self.assertEqual(self.tried(), ["192.0.2.1", "192.0.2.2"])
        self.assertEqual(self.sides, [])
        _, wire = self.serve(self.built(1), contexts_in(self.directory, "beta.example"))
        settle(wire, self.reactor)
        self.successResultOf(connecting)

    def test_wrong_name_everywhere(self) -> None:
        """The code of the failure is that of TLS, even if another address refused."""
        connecting = self.connect("192.0.2.1", "192.0.2.2")
        self.fail(0, ConnectionRefusedError())
        _, wire = self.serve(self.built(1), contexts_in(self.directory, "gamma.example"))
        settle(wire, self.reactor)
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(error.code, "tls.name")
        self.assertEqual(len(error.attempts), 2)

    def test_cancel_during_tls(self) -> None:
        """Cancelling closes the connection."""
        connecting = self.connect("192.0.2.1")
        client, end = self.built(0), WireEnd()
        end.protocol = client
        client.makeConnection(end)
        connecting.cancel()
        self.failureResultOf(connecting, CancelledError)
        self.assertTrue(end.disconnecting)
        end.protocol.connectionLost(Failure(ConnectionDone()))

    def test_upgrade_is_ready_at_once(self) -> None:
        """With an upgrade the user sees the handshake; the connection is there before it."""
        connecting = self.connect("192.0.2.1", security=TransportSecurity.UPGRADE)
        client, end = self.built(0), WireEnd()
        client.makeConnection(end)
        self.assertIs(self.successResultOf(connecting).engine, self.sides[0].engine)

    def test_no_certificates(self) -> None:
        """Without contexts there is no TLS, and nothing is connected."""
        connecting = Connector(self.reactor, None).connect(
            candidate("192.0.2.1"), "beta.example", self.make
        )
        self.assertEqual(self.failureResultOf(connecting, ConnectError).value.code, "tls.untrusted")
        self.assertEqual(self.tried(), [])

    def test_urls(self) -> None:
        """URLs are read; what is none is refused, without showing a password."""
        self.assertEqual(
            parse_url("amqps://ann:p%40ss@broker.example"),
            Url("amqps", "broker.example", 5671, "", "ann", "p@ss"),
        )
        self.assertEqual(parse_url("amqp://[::1]:1234/"), Url("amqp", "::1", 1234))
        self.assertEqual(parse_url("unix:/run/a.sock"), Url("unix", path="/run/a.sock"))
        self.assertNotIn("secret", repr(parse_url("amqp://u:secret@h")))
        for bad in (
            "",
            "http://h",
            "amqp:",
            "unix:",
            "amqp://",
            "amqp://u:secret@h:x",
            "amqp://h/q",
        ):
            error = self.assertRaises(ValueError, parse_url, bad)
            self.assertNotIn("secret", str(error))

    def test_plain_url(self) -> None:
        """amqp:// needs no certificates."""
        connecting = Connector(self.reactor, None).connect_url(
            parse_url("amqp://127.0.0.1"), self.make
        )
        self.assertEqual(self.reactor.tcpClients[0][:2], ("127.0.0.1", 5672))
        self.built(0).makeConnection(WireEnd())
        self.successResultOf(connecting)
