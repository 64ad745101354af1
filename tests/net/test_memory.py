# SPDX-License-Identifier: Apache-2.0
"""Memory left by failed connections, in both directions."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ResolveError
from amqproute.net.connector import Connector
from amqproute.net.inbound_trust import InboundTrust
from amqproute.net.peer_trust import TrustLevel, TrustPolicy
from amqproute.net.pump import ConnectionResources, ConnectionSecurity, EngineProtocol
from amqproute.turn_scheduler import STEPS_IN_TURN, TurnScheduler
from amqproute.values import Candidate, Resolution, TransportSecurity
from tests.net.wires import Owner, Policies, Side, Wire, WireEnd, contexts_in, settle
from tests.support.objects import PART, left_by

MEBIBYTE = 1024 * 1024
OF_PYOPENSSL = 16
"""Objects of a TLS connection that pyOpenSSL leaves in a cycle: its helper for the verification."""


class RefusingDns:
    """The DNS as the name server of a hostile zone has it: refused, in a later turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def resolve(self, domain: str) -> Deferred[Resolution]:
        """See `Source`."""
        resolving: Deferred[Resolution] = Deferred()
        error = ResolveError("dns.refused", f"{domain}: refused", permanent=False)
        self._clock.callLater(0, resolving.errback, error)
        return resolving

    def is_capable(self) -> Deferred[bool]:
        """See `Source`."""
        return succeed(True)


class OutwardTests(SynchronousTestCase):
    """Connections that we try to make."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.codes: list[str] = []
        directory = self.mktemp()
        self.connector = Connector(self.reactor, contexts_in(directory, "alpha.example"))
        self.gamma = contexts_in(directory, "gamma.example")

    def connect(self, *addresses: str) -> Deferred[Any]:
        """Begin to connect; note what comes of it."""
        implicit = TransportSecurity.IMPLICIT
        candidate = Candidate("mx.example", 5671, implicit, addresses, 0, 0, "static")
        connecting: Deferred[Any] = self.connector.connect(
            candidate, "beta.example", lambda _: self.fail("no engine")
        )
        return connecting.addErrback(
            lambda failure: self.codes.append(getattr(failure.value, "code", failure.type.__name__))
        )

    def over(self, code: str) -> None:
        """Check what came of it, and clear what the test reactor remembers."""
        self.assertEqual(self.codes, [code])
        self.codes.clear()
        self.reactor.tcpClients.clear()
        self.reactor.connectors.clear()
        self.reactor.advance(0)

    def refuse(self) -> None:
        """Connect to one address that refuses."""
        self.connect("192.0.2.1")
        failed = Failure(ConnectionRefusedError())  # type: ignore[no-untyped-call]
        self.reactor.tcpClients[0][2].clientConnectionFailed(self.reactor.connectors[0], failed)
        self.over("connect.refused")

    def test_many_refused(self) -> None:
        """Objects and memory stay flat over thousands of refused connections."""
        left = left_by(self.refuse, 20_000 // PART, warm_up=200)
        self.assertEqual(left.cyclic, 0, left.kinds)
        self.assertLess(left.kept, 1000 // PART)
        self.assertLess(left.octets, 16 * MEBIBYTE)

    def test_silence(self) -> None:
        """Addresses that never answer."""

        def connect() -> None:
            self.connect("192.0.2.1", "192.0.2.2")
            self.reactor.advance(0.3)
            self.reactor.advance(30)
            self.over("connect.timeout")

        left = left_by(connect, 60)
        self.assertEqual(left.cyclic, 0, left.kinds)

    def test_cancelled(self) -> None:
        """Attempts that are given up."""

        def connect() -> None:
            self.connect("192.0.2.1", "192.0.2.2").cancel()
            self.over("CancelledError")

        left = left_by(connect, 60)
        self.assertEqual(left.cyclic, 0, left.kinds)

    def test_wrong_name(self) -> None:
        """Peers that do not prove their name."""

        def connect() -> None:
            self.connect("192.0.2.1")
            client = self.reactor.tcpClients[0][2].buildProtocol(None)
            security = ConnectionSecurity(self.gamma.server_creator("required"), implicit=True)
            wire = Wire(client, EngineProtocol(Side().make, self.reactor, security=security))
            settle(wire, self.reactor)
            self.over("tls.name")

        left = left_by(connect, 40)
        self.assertLessEqual(left.cyclic, 40 * 2 * OF_PYOPENSSL, left.kinds)


class InwardTests(SynchronousTestCase):
    """Connections that others make, and that do not get in."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.turns = TurnScheduler(self.clock)
        self.codes: list[str] = []
        self.beta = contexts_in(self.mktemp(), "beta.example")
        self.stranger = contexts_in(self.mktemp(), *["alpha.example"])
        self.judge = InboundTrust(
            Policies(lambda _: TrustPolicy(TrustLevel.DANE_OR_PKIX)),
            RefusingDns(self.clock),
            lambda: 0.0,
        )

    def meet(self) -> None:
        """Have a stranger with a certificate of its own connect."""
        codes = self.codes
        client = EngineProtocol(
            Side(is_client=True).make,
            self.clock,
            security=ConnectionSecurity(
                self.stranger.client_creator("beta.example"), implicit=True
            ),
            is_client=True,
        )
        server = EngineProtocol(
            Side().make,
            self.clock,
            security=ConnectionSecurity(
                self.beta.server_creator("optional", self.judge), implicit=True
            ),
            resources=ConnectionResources(turns=self.turns),
            owner=Owner(lambda _, reason: codes.append(reason.value.code)),  # type: ignore[attr-defined]
        )
        wire = Wire(client, server)
        for _ in range(4):
            settle(wire, self.clock)

    def test_unknown_authority(self) -> None:
        """A certificate in a zone whose name servers refuse, as in the attack."""
        left = left_by(self.meet, 40)
        self.assertEqual(len(self.codes), 60)
        self.assertLessEqual(left.cyclic, 40 * 2 * OF_PYOPENSSL, left.kinds)
        self.assertNotIn("traceback", dict(left.kinds))

    def test_no_tls(self) -> None:
        """Plain text where TLS is wanted."""
        codes = self.codes

        def meet() -> None:
            pump = EngineProtocol(
                Side().make,
                self.clock,
                security=ConnectionSecurity(self.beta.server_creator("required"), implicit=True),
                resources=ConnectionResources(turns=self.turns),
                owner=Owner(lambda _, reason: codes.append(reason.value.code)),  # type: ignore[attr-defined]
            )
            end = WireEnd()
            end.protocol = pump
            pump.makeConnection(end)
            end.protocol.dataReceived(b"GET / HTTP/1.0\r\n\r\n")
            end.lose(ConnectionDone())
            self.clock.advance(0)

        left = left_by(meet, 40)
        self.assertEqual(set(codes), {"tls.plain-text"})
        self.assertLessEqual(left.cyclic, 40 * OF_PYOPENSSL, left.kinds)

    def test_gone_before_its_turn(self) -> None:
        """Input of a client is not kept until a turn that no longer needs it."""
        octets = b"\x16\x03\x01" + bytes(64 * 1024)
        ends = []
        for _ in range(STEPS_IN_TURN + 1):
            pump = EngineProtocol(
                Side().make,
                self.clock,
                security=ConnectionSecurity(self.beta.server_creator("required"), implicit=True),
                resources=ConnectionResources(turns=self.turns),
            )
            end = WireEnd()
            end.protocol = pump
            pump.makeConnection(end)
            end.protocol.dataReceived(octets)
            ends.append((end, pump))
        end, pump = ends[-1]
        self.assertEqual((self.turns.waiting, pump._unshaken), (1, [octets]))
        end.lose(ConnectionDone())
        self.assertEqual(pump._unshaken, [])
        for end, _ in ends[:-1]:
            if not end.disconnected:
                end.lose(ConnectionDone())
        self.clock.advance(0)
        self.assertEqual((self.turns.waiting, self.clock.getDelayedCalls()), (0, []))
