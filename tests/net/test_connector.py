# SPDX-License-Identifier: Apache-2.0
"""Connecting to candidates and URLs, without a network."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from twisted.internet import error
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError, NoRouteError
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.dial_policy import TargetPolicy
from amqproute.errors import ConnectError
from amqproute.net.connector import Connector
from amqproute.net.pump import EngineProtocol
from amqproute.url import Url, parse_url
from amqproute.values import Candidate, TransportSecurity
from tests.net.wires import Side, Wire, WireEnd, contexts_in, settle
from tests.support.targets import DOCUMENTATION


def candidate(
    *addresses: str, security: TransportSecurity = TransportSecurity.IMPLICIT
) -> Candidate:
    return Candidate("mx.example", 5671, security, addresses, 0, 0, "static")


class ConnectorTestCase(SynchronousTestCase):
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


class ConnectorTests(ConnectorTestCase):
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
        """Errors that Twisted wraps for programs are put into words for people."""
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
        from amqproute.net.pump import ConnectionSecurity

        server = Side()
        pump = EngineProtocol(
            server.make,
            self.reactor,
            security=ConnectionSecurity(contexts.server_creator("required"), implicit=True),
        )
        return server, Wire(client, pump)

    def test_wrong_name_then_right(self) -> None:
        """After a wrong certificate at one machine the next address is tried."""
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


class TargetTests(ConnectorTestCase):
    """Places to which the DNS leads are judged when they are dialled; nothing is, where denied."""

    def setUp(self) -> None:
        super().setUp()
        self.own = {ip_address("192.0.2.9")}
        self.named: set[str] = set()
        self.connector = Connector(
            self.reactor,
            self.contexts,
            targets=lambda: TargetPolicy.of(
                allow=DOCUMENTATION, is_named=self.named.__contains__, own=lambda: self.own
            ),
        )

    def dial(
        self, *addresses: str, port: int = 5671, source: str = "address"
    ) -> Deferred[EngineProtocol]:
        place = replace(candidate(*addresses), port=port, source=source)
        return self.connector.connect(place, "beta.example", self.make)

    def denied(self, connecting: Deferred[EngineProtocol]) -> ConnectError:
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(error.code, "dns.denied-target")
        self.assertEqual(self.tried(), [])
        return error

    def test_denied(self) -> None:
        """A forbidden address gets no packet, whatever the look-up gave and whenever it was."""
        for source in ("address", "srv:_amqps._tcp.beta.example"):
            for address in ("127.0.0.1", "0.0.0.0", "::", "::1", "fe80::1%eth0", "10.0.0.1",
                            "::ffff:10.0.0.1", "192.0.2.9"):  # fmt: skip
                self.denied(self.dial(address, source=source))
        self.denied(self.dial("192.0.2.1", port=6379))

    def test_private_zones(self) -> None:
        """`allow-targets` opens a private range, and `deny-targets` closes a part of it again."""
        allowed = [(("10.0.0.0/8",), ("10.9.0.0/16",)), (("fd00::/8", "100.64.0.0/10"), ())]
        for (allow, deny), (good, bad) in zip(
            allowed,
            (
                (("10.1.2.3",), ("10.9.0.1", "192.168.1.1", "::ffff:10.9.0.1", "127.0.0.1")),
                (("fd00::7", "100.64.1.1"), ("10.1.2.3", "fe80::7%eth0", "169.254.1.1")),
            ),
            strict=True,
        ):
            self.connector = Connector(
                self.reactor,
                self.contexts,
                targets=lambda allow=allow, deny=deny: TargetPolicy.of(
                    allow=allow, deny=deny, own=lambda: self.own
                ),
            )
            for address in bad:
                before = len(self.tried())
                connecting = self.dial(address)
                error = self.failureResultOf(connecting, ConnectError).value
                self.assertEqual((error.code, len(self.tried())), ("dns.denied-target", before))
            for address in good:
                connecting = self.dial(address)
                self.assertEqual(self.tried()[-1], address)
                self.fail(len(self.tried()) - 1, ConnectionRefusedError())
                error = self.failureResultOf(connecting, ConnectError).value
                self.assertEqual(error.code, "connect.refused")

    def test_rebind(self) -> None:
        """A host that is looked up by the system now is judged by what it is now."""
        self.reactor.nameResolver = Names("10.0.0.1", "127.0.0.1")
        error = self.denied(self.dial())
        self.assertEqual(len(error.attempts), 2)
        self.named.add("beta.example")
        connecting = self.dial()
        self.assertEqual(self.tried(), ["10.0.0.1"])
        self.fail(0, ConnectionRefusedError())
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(error.code, "connect.refused")

    def test_own_address_since(self) -> None:
        """An address that this host has got in the meantime."""
        self.own.add(ip_address("192.0.2.1"))
        self.denied(self.dial("192.0.2.1"))

    def test_others_are_tried(self) -> None:
        """A denied address is as one that has failed."""
        connecting = self.dial("127.0.0.1", "192.0.2.1")
        self.assertEqual(self.tried(), ["192.0.2.1"])
        self.fail(0, ConnectionRefusedError())
        error = self.failureResultOf(connecting, ConnectError).value
        self.assertEqual(error.code, "connect.refused")
        self.assertIn("127.0.0.1:5671: dns.denied-target", error.attempts[0])

    def test_static(self) -> None:
        """The operator's choice is not judged: `via` may be anywhere, at any port."""
        for address, port in (("127.0.0.1", 25), ("10.0.0.1", 6379), ("::1", 5671)):
            connecting = self.dial(address, port=port, source="static")
            self.assertEqual(self.reactor.tcpClients[-1][:2], (address, port))
            connecting.cancel()
            self.failureResultOf(connecting, CancelledError)


class Names:
    """A resolver of the system's that knows one answer."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def resolveHostName(self, receiver: Any, name: str, *_: Any) -> Any:
        receiver.resolutionBegan(None)
        for address in self.addresses:
            receiver.addressResolved(IPv4Address("TCP", address, 0))
        receiver.resolutionComplete()
