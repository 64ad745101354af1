# SPDX-License-Identifier: Apache-2.0
"""Clients behind a balancer of the HTTP endpoint, by the PROXY protocol."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.http.http_channel import HttpLimits
from amqproute.http.http_listener import HttpListener, HttpTerms, HttpTls
from amqproute.http.http_messages import HttpRequest, HttpResponse
from amqproute.http.site import HttpAccess, SiteTerms
from amqproute.log_rate_limit import EVERY_SECONDS
from amqproute.turn_scheduler import TurnScheduler
from tests.http.doors import DoorsCase, deeds
from tests.http.rig import ANN, Answer, Web, basic, encode, is_whole, read_answer
from tests.net.test_proxy_protocol import header
from tests.net.wires import WireEnd, contexts_in

BALANCER = "10.0.0.1"
BALANCERS = [ip_network("10.0.0.0/30"), ip_network("127.0.0.8/32")]
LOCAL = header()[:12] + b"\x20\x00\x00\x00"


class End(WireEnd):
    """A transport below TLS."""

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Take note of nothing."""


class BalancerCase(SynchronousTestCase):
    """An endpoint whose connections are in memory."""

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.reactor: Any = MemoryReactorClock()
        self.web = Web(directory, clock=self.reactor)
        self.web.site.mount("/who", self.who, access=HttpAccess.OPEN)
        self.ends: list[WireEnd] = []

    def who(self, request: HttpRequest) -> HttpResponse:
        """Say what the service sees of its client."""
        client = request.client
        shown = [client.address, client.is_loopback, client.has_tls]
        return HttpResponse(200, json.dumps(shown).encode(), "application/json")

    def listener(
        self, limits: HttpLimits | None = None, tls: HttpTls | None = None, **terms: Any
    ) -> HttpListener:
        """Open an endpoint."""
        listener = HttpListener(
            self.reactor,
            "tcp:9672:interface=127.0.0.1",
            self.web.site,
            tls=tls,
            terms=HttpTerms(**{"balancers": BALANCERS, **terms}),
            limits=limits or HttpLimits(),
        )
        listener.startService()
        self.factory = self.reactor.tcpServers[-1][1]
        return listener

    def connect(self, host: str = BALANCER) -> WireEnd | None:
        """Connect from an address; None without a place."""
        kind = IPv6Address if ":" in host else IPv4Address
        address = kind("TCP", host, 4711)
        protocol = self.factory.buildProtocol(address)
        if protocol is None:
            return None
        end = End(peerAddress=address)
        end.protocol = protocol
        protocol.makeConnection(end)
        self.ends.append(end)
        return end

    def connected(self, host: str = BALANCER) -> WireEnd:
        """Connect where there is a place."""
        end = self.connect(host)
        assert end is not None
        return end

    def answer(self, end: WireEnd) -> Answer:
        """Return what has come."""
        self.reactor.advance(0)
        answer = read_answer(end.value())
        end.clear()
        return answer

    def ask(
        self, first: bytes, headers: Mapping[str, str] | None = None, host: str = BALANCER
    ) -> Any:
        """Ask what the service sees, after some octets; return it."""
        end = self.connected(host)
        end.protocol.dataReceived(first + encode("GET", "/who", headers))
        answer = self.answer(end)
        self.assertEqual(answer.status, 200, answer.body)
        end.lose(ConnectionDone())
        return answer.json()

    def lose_all(self) -> None:
        """Lose all connections; no timer is left."""
        for end in self.ends:
            if not end.disconnected:
                end.lose(ConnectionDone())
        self.reactor.advance(0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class HeaderTests(BalancerCase):
    """Which headers are taken, and what follows from them."""

    def test_versions(self) -> None:
        """The client is the one that the balancer names, by either version."""
        self.listener()
        for first, address in (
            (header("203.0.113.5"), "203.0.113.5"),
            (header("2001:db8::5"), "2001:db8::5"),
            (header("203.0.113.5", more=b"\x04\x00\x02xx"), "203.0.113.5"),
            (b"PROXY TCP4 203.0.113.6 10.0.0.1 4711 443\r\n", "203.0.113.6"),
            (b"PROXY TCP6 2001:db8::6 2001:db8::1 4711 443\r\n", "2001:db8::6"),
        ):
            self.assertEqual(self.ask(first), [address, False, False])
        self.lose_all()

    def test_in_octets(self) -> None:
        """Header and request may come an octet at a time."""
        self.listener()
        for first in (header("203.0.113.5"), b"PROXY TCP4 203.0.113.5 10.0.0.1 1 2\r\n"):
            end = self.connected()
            for octet in first + encode("GET", "/who"):
                end.protocol.dataReceived(bytes([octet]))
            self.assertEqual(self.answer(end).json(), ["203.0.113.5", False, False])
        self.lose_all()

    def test_own_connections(self) -> None:
        """Connections of the balancer itself, such as its checks, count as its own."""
        listener = self.listener(per_address=2)
        for first in (LOCAL, b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN ::1 ::1 1 2\r\n"):
            self.assertEqual(self.ask(first), [BALANCER, False, False])
        self.assertEqual(self.ask(LOCAL, host="127.0.0.8"), ["127.0.0.8", True, False])
        ends = [self.connected() for _ in range(3)]
        for end in ends:
            end.protocol.dataReceived(LOCAL)
        self.assertEqual([end.disconnecting for end in ends], [False, False, True])
        self.assertEqual(listener.refused, 1)
        self.lose_all()

    def test_refused(self) -> None:
        """Without its header a listed balancer gets no answer: the log says what is missing."""
        told: list[str] = []
        globalLogPublisher.addObserver(
            observer := lambda event: told.append(event["log_format"].format(**event))
        )
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        listener = self.listener(HttpLimits(request_seconds=7))
        for octets, words in (
            (encode("GET", "/who"), "no header"),
            (b"\x16\x03\x01\x00\xf4\x01", "no header"),
            (b"PROXY TCP4 203.0.113.5 10.0.0.1 1 99999\r\n", "beyond 65535"),
            (b"PROXY " + b"a" * 101, "more than 107"),
            (header(version=0x31), "version 3"),
            (header(more=b"\x04"), "extension"),
            (b"", "in time"),
            (header()[:20], "in time"),
            (b"PROXY TCP4 203.0.113.5", "in time"),
        ):
            end = self.connected()
            end.protocol.dataReceived(octets)
            self.reactor.advance(7)
            self.assertTrue(end.disconnecting, octets)
            self.assertEqual(end.value(), b"")
            self.assertIn(words, told[-1] if told else "")
            self.assertIn(f"balancer {BALANCER} at tcp:9672", told[-1])
            end.protocol.dataReceived(encode("GET", "/who"))
            self.assertEqual(end.value(), b"")
            self.reactor.advance(EVERY_SECONDS)
        self.assertEqual(len(listener.connections), 0)
        self.lose_all()

    def test_octet_by_octet_too_slow(self) -> None:
        """Octets that trickle in do not buy time."""
        self.listener(HttpLimits(request_seconds=7))
        end = self.connected()
        for octet in header():
            end.protocol.dataReceived(bytes([octet]))
            self.reactor.advance(1)
        self.assertTrue(end.disconnecting)
        self.lose_all()

    def test_from_elsewhere(self) -> None:
        """From an address that is not listed a header is no HTTP, and names nobody."""
        self.listener()
        self.assertEqual(self.ask(b"", host="10.0.0.9"), ["10.0.0.9", False, False])
        for first in (header("203.0.113.5"), b"PROXY TCP4 203.0.113.5 10.0.0.1 1 2\r\n"):
            end = self.connected("10.0.0.9")
            end.protocol.dataReceived(first + encode("GET", "/who"))
            self.assertEqual(self.answer(end).status, 400)
        self.lose_all()

    def test_headers_of_http(self) -> None:
        """What a client writes about addresses counts nowhere."""
        self.listener()
        headers = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "::1"}
        found = self.ask(header("203.0.113.5"), headers)
        self.assertEqual(found, ["203.0.113.5", False, False])
        self.assertEqual(self.ask(b"", headers, "10.0.0.9"), ["10.0.0.9", False, False])

    def test_mapped(self) -> None:
        """A balancer that an IPv6 socket shows is the one that is listed."""
        self.listener()
        found = self.ask(header("203.0.113.5"), host="::ffff:10.0.0.1")
        self.assertEqual(found, ["203.0.113.5", False, False])

    def test_reload(self) -> None:
        """Other balancers are in force from the next connection on."""
        listener = self.listener()
        waiting = self.connected()
        terms = HttpTerms(balancers=[ip_network("10.9.9.9/32")])
        listener.adopt(terms, listener.limits)
        waiting.protocol.dataReceived(header("203.0.113.5") + encode("GET", "/who"))
        self.assertEqual(self.answer(waiting).json(), ["203.0.113.5", False, False])
        self.assertEqual(self.ask(b""), [BALANCER, False, False])
        self.assertEqual(
            self.ask(header("203.0.113.5"), host="10.9.9.9"), ["203.0.113.5", False, False]
        )

    def test_stop_before_the_header(self) -> None:
        """A stop ends connections that wait for their header."""
        listener = self.listener()
        end = self.connected()
        stopped = listener.stopService()
        self.assertNoResult(stopped)
        self.assertTrue(end.disconnecting)
        self.lose_all()
        self.successResultOf(stopped)


class ShareTests(BalancerCase):
    """What clients behind a balancer may take."""

    def served(self, host: str) -> bool:
        """Connect as a client with an address; tell whether it gets a place."""
        end = self.connected()
        end.protocol.dataReceived(header(host))
        return not end.disconnecting

    def test_connections(self) -> None:
        """Each client has a share; the balancer has none that they would use up."""
        listener = self.listener(per_address=2, per_second=100.0)
        hosts = ["203.0.113.5"] * 3 + [f"203.0.113.{number}" for number in range(10, 20)]
        self.assertEqual([self.served(host) for host in hosts], [True, True, False] + [True] * 10)
        self.assertEqual((len(listener.connections), listener.refused), (12, 1))
        self.lose_all()
        self.assertEqual(len(listener.connections), 0)

    def test_rate_of_connections(self) -> None:
        """The rate of new connections is that of the client."""
        self.listener(per_second=2.0)
        hosts = ["203.0.113.5"] * 3 + ["203.0.113.6"]
        self.assertEqual([self.served(host) for host in hosts], [True, True, False, True])
        self.lose_all()

    def test_rate_of_requests(self) -> None:
        """So is the rate of requests."""
        self.web.site.adopt(SiteTerms(requests_per_second=2.0))
        self.listener()

        def status(host: str) -> int:
            end = self.connected()
            end.protocol.dataReceived(header(host) + encode("GET", "/who"))
            return self.answer(end).status

        statuses = [status("203.0.113.5") for _ in range(3)]
        self.assertEqual([*statuses, status("203.0.113.6")], [200, 200, 429, 200])
        self.lose_all()

    def test_waiting_for_headers(self) -> None:
        """Connections without a header have a bound of their own, and take nobody's place."""
        listener = self.listener(connections=20)
        waiting = [self.connected(), self.connected()]
        self.assertIsNone(self.connect())
        self.assertEqual(listener.refused, 1)
        self.assertIsNotNone(self.connect("192.0.2.1"))
        waiting[0].protocol.dataReceived(header())
        self.assertIsNotNone(self.connect())
        waiting[1].lose(ConnectionDone())
        self.assertIsNotNone(self.connect())
        self.assertIsNone(self.connect())
        self.lose_all()

    def test_room_for_others(self) -> None:
        """Where all places are in use, the client with the most makes room."""
        listener = self.listener(connections=4)
        for host in ("203.0.113.5", "203.0.113.5", "203.0.113.5", "203.0.113.6"):
            self.assertTrue(self.served(host))
        self.assertTrue(self.served("203.0.113.7"))
        self.assertEqual([end.disconnecting for end in self.ends], [True] + [False] * 4)
        self.assertFalse(self.served("203.0.113.5"))
        self.lose_all()
        self.assertEqual(len(listener.connections), 0)


class PasswordTests(BalancerCase):
    """Where passwords may be sent."""

    def status(self, named: str, host: str) -> int:
        """Log in through a balancer."""
        end = self.connected(host)
        end.protocol.dataReceived(header(named) + encode("GET", "/api/v1/session", ANN))
        return self.answer(end).status

    def test_without_tls(self) -> None:
        """A client is on this machine only if socket and balancer say so."""
        self.listener()
        self.assertEqual(self.status("203.0.113.5", "127.0.0.8"), 403)
        self.assertEqual(self.status("127.0.0.1", BALANCER), 403)
        self.assertEqual(self.status("127.0.0.1", "127.0.0.8"), 200)
        self.lose_all()


class RecordedTurns(TurnScheduler):
    """Takes note of who asks."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.asked: set[tuple[str, str]] = set()

    def ask(self, kind: str, source: str, step: Any) -> None:
        """Take note, and go on."""
        self.asked.add((kind, source))
        super().ask(kind, source, step)


class TlsTests(BalancerCase):
    """TLS behind the header."""

    def setUp(self) -> None:
        super().setUp()
        self.trust = Path(self.mktemp())
        contexts = contexts_in(str(self.trust), "localhost")
        self.turns = RecordedTurns(self.reactor)
        self.tls = HttpTls(contexts, turns=self.turns)

    def talk(self, end: WireEnd, octets: bytes) -> Answer:
        """Shake hands, send a request and return its answer."""
        context = ssl.create_default_context(cafile=str(self.trust / "ca.pem"))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        is_sent, received = False, b""
        for _ in range(50):
            try:
                if not is_sent:
                    client.do_handshake()
                    client.write(octets)
                    is_sent = True
                received += client.read()
            except ssl.SSLWantReadError:
                pass
            if is_whole("GET", received):
                return read_answer(received)
            if sent := outgoing.read():
                end.protocol.dataReceived(sent)
            self.reactor.advance(0)
            incoming.write(end.value())
            end.clear()
        raise AssertionError(f"no answer: {received!r}")

    def test_behind_the_header(self) -> None:
        """The header goes before the handshake; a password is taken."""
        self.listener(tls=self.tls)
        end = self.connected()
        end.protocol.dataReceived(header("203.0.113.5"))
        answer = self.talk(end, encode("GET", "/who"))
        self.assertEqual(answer.json(), ["203.0.113.5", False, True])
        end = self.connected()
        end.protocol.dataReceived(b"PROXY TCP4 203.0.113.6 10.0.0.1 1 2\r\n")
        answer = self.talk(end, encode("GET", "/api/v1/session", ANN))
        self.assertEqual(answer.status, 200, answer.body)
        self.assertEqual(self.turns.asked, {("tls", "203.0.113.5"), ("tls", "203.0.113.6")})
        self.lose_all()

    def test_without_a_header(self) -> None:
        """A handshake at once is no header."""
        self.listener(tls=self.tls)
        end = self.connected()
        with self.assertRaises(AssertionError):
            self.talk(end, encode("GET", "/who"))
        self.assertTrue(end.disconnecting)
        self.lose_all()

    def test_no_place(self) -> None:
        """With TLS, too, connections without a place are closed and not kept."""
        listener = self.listener(tls=self.tls, per_address=1)
        self.assertIsNotNone(self.connect("192.0.2.1"))
        self.assertIsNone(self.connect("192.0.2.1"))
        for is_closing in (False, True):
            end = self.connected()
            end.protocol.dataReceived(header("203.0.113.5"))
            self.assertEqual(end.disconnecting, is_closing)
        self.assertEqual((len(listener.connections), listener.refused), (2, 2))
        self.lose_all()


class DaemonTests(DoorsCase):
    """What the daemon makes of the address."""

    further = {
        "management": {
            "http": "tcp:0:interface=127.0.0.1",
            "proxy-protocol": ["127.0.0.8/32"],
            "metrics-networks": ["127.0.0.9/32"],
        }
    }

    async def through(self, named: str, octets: bytes) -> Answer:
        """Ask through the balancer."""
        listener = self.app.web.listener
        assert listener is not None
        address = IPv4Address("TCP", "127.0.0.8", 4711)
        end = End(peerAddress=address)
        end.protocol = listener.build(address)
        end.protocol.makeConnection(end)
        end.protocol.dataReceived(header(named) + octets)
        while not is_whole("GET", end.value()):
            await self.turn()
        answer = read_answer(end.value())
        end.protocol.connectionLost(Failure(ConnectionDone()))
        return answer

    async def test_metrics_and_records(self) -> None:
        """Networks for metrics and records of changes go by the client's address."""
        statuses = [
            (await self.through(named, encode("GET", "/metrics"))).status
            for named in ("127.0.0.9", "127.0.0.10", "203.0.113.9")
        ]
        self.assertEqual(statuses, [200, 401, 401])
        noted: list[Any] = []
        self.patch(self.app.broker.journal, "note", noted.append)
        login = {"Authorization": basic("root", "secret")}
        made = await self.through("127.0.0.10", encode("PUT", "/api/v1/queues/q", login, {}))
        self.assertEqual(made.status, 201, made.body)
        (found,) = deeds(noted)
        self.assertEqual(json.loads(found["detail"])["remote"], "127.0.0.10")
