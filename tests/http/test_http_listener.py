# SPDX-License-Identifier: Apache-2.0
"""The endpoint of the HTTP service on real sockets: TLS, certificates, unix sockets, places."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, inlineCallbacks
from twisted.internet.testing import MemoryReactorClock
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from amqproute.errors import ListenError
from amqproute.http.http_channel import HttpChannel
from amqproute.http.http_listener import HttpListener, HttpTerms, HttpTls
from amqproute.http.http_messages import HttpResponse
from amqproute.http.site import HttpAccess
from amqproute.net.tls import TlsContexts
from amqproute.turn_scheduler import TurnScheduler
from tests.http.rig import ANN, Web, Wire, encode
from tests.integration.support import Certificates, certificates, new_directory


class UnixConnection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def ask(connection: http.client.HTTPConnection, headers: dict[str, str]) -> tuple[int, bytes]:
    """Ask who has logged in."""
    connection.request("GET", "/api/v1/session", headers=headers)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


class RecordedTurns(TurnScheduler):
    """Steps that all wait for a later turn."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.asked: list[tuple[str, str]] = []

    def ask(self, kind: str, source: str, step: Callable[[], None]) -> None:
        """Take note, and put the step off."""
        self.asked.append((kind, source))
        self.put_off(kind, source, step)


class PlacesTests(SynchronousTestCase):
    """Connections in memory: which get a place."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.web = Web(self.directory)
        self.open: list[HttpChannel] = []
        self.addCleanup(lambda: [each.connectionLost() for each in self.open])

    def listener(self, **terms: Any) -> HttpListener:
        """Make an endpoint."""
        self.reactor: Any = MemoryReactorClock()
        description = "tcp:0:interface=127.0.0.1"
        return HttpListener(self.reactor, description, self.web.site, terms=HttpTerms(**terms))

    def connect(self, listener: HttpListener, host: str) -> Wire | None:
        """Connect; None without a place."""
        channel = listener.accept(host)
        if channel is None:
            return None
        wire = Wire()
        channel.makeConnection(wire)  # type: ignore[no-untyped-call]
        self.open.append(channel)
        self.reactor.advance(0.1)
        return wire

    def lose(self, wire: Wire) -> None:
        """Lose the connection of a transport."""
        for channel in [each for each in self.open if each.transport is wire]:
            self.open.remove(channel)
            channel.connectionLost()

    def test_rate_of_new_connections(self) -> None:
        """Each address has one; an IPv6 address that of its /64."""
        listener = self.listener(per_second=3.0)
        for hosts in (("192.0.2.1",) * 3, ("2001:db8::1", "2001:db8::2", "2001:db8::3")):
            for host in hosts:
                wire = self.connect(listener, host)
                assert wire is not None
                self.lose(wire)
        self.assertIsNone(self.connect(listener, "2001:db8::4"))
        self.assertIsNotNone(self.connect(listener, "192.0.2.2"))
        self.assertEqual(listener.refused, 1)
        self.reactor.advance(1)
        self.assertIsNotNone(self.connect(listener, "2001:db8::4"))

    def test_room_for_others(self) -> None:
        """Where all places are in use, the address with the most loses one that is idle."""
        listener = self.listener(connections=4, per_address=3)
        waiting: Deferred[HttpResponse] = Deferred()
        self.web.site.mount("/wait", lambda _: waiting, access=HttpAccess.OPEN)
        busy, *idle = [self.connect(listener, "192.0.2.1") for _ in range(3)]
        other = self.connect(listener, "192.0.2.2")
        assert busy is not None
        self.open[0].dataReceived(encode("GET", "/wait"))
        newcomer = self.connect(listener, "192.0.2.3")
        self.assertIsNotNone(newcomer)
        aborted = [each.is_aborted for each in (busy, *idle, other, newcomer) if each]
        self.assertEqual(aborted, [False, True, False, False, False])
        assert idle[0] is not None
        self.lose(idle[0])
        self.assertEqual(len(listener.connections), 4)
        self.assertIsNone(self.connect(listener, "192.0.2.1"))  # nobody has more
        self.assertEqual(listener.refused, 1)
        waiting.callback(HttpResponse())


class ListenerTests(TestCase):
    """Each opens an endpoint of its own."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.web = Web(self.directory)
        self.real: Any = reactor

    def listen(self, description: str, **terms: Any) -> HttpListener:
        """Open an endpoint."""
        self.web.site.clock = self.real
        listener = HttpListener(self.real, description, self.web.site, **terms)
        self.addCleanup(listener.stopService)
        listener.startService()
        return listener

    def port(self, listener: HttpListener) -> int:
        """Return the port of an endpoint."""
        address: Any = listener.addresses[0]
        return int(address.port)

    def do(self, make: Callable[[], http.client.HTTPConnection], headers: dict[str, str]) -> Any:
        """Ask in a thread."""
        return deferToThread(lambda: ask(make(), headers))

    @inlineCallbacks
    def test_loopback(self) -> Any:
        """Without TLS on loopback a password will do."""
        listener = self.listen("tcp:0:interface=127.0.0.1")
        port = self.port(listener)
        status, body = yield self.do(lambda: http.client.HTTPConnection("127.0.0.1", port), ANN)
        self.assertEqual(status, 200)
        self.assertIn(b'"principal":"user:ann"', body)
        self.assertEqual(listener.row()["refused"], 0)

    @inlineCallbacks
    def test_unix_socket(self) -> Any:
        """A local process is its user id."""
        path = str(new_directory() / "http.sock")
        self.listen(f"unix:{path}")
        status, body = yield self.do(lambda: UnixConnection(path), {})
        self.assertEqual(status, 200)
        self.assertIn(f'"principal":"uid:{os.getuid()}"'.encode(), body)

    @inlineCallbacks
    def test_tls(self) -> Any:
        """The endpoint shows our certificate; a verified one of the client is a peer."""
        authority = certificates()
        ours, theirs = authority.issue("localhost"), authority.issue("b.test")
        stranger = Certificates().issue("b.test")
        contexts = TlsContexts(ours.chain, ours.private_key, authority.trust)
        turns = RecordedTurns(self.real)
        tls = HttpTls(contexts, "optional", turns)
        listener = self.listen("tcp:0:interface=127.0.0.1", tls=tls)
        port = self.port(listener)

        def connect(shown: Any) -> http.client.HTTPConnection:
            context = ssl.create_default_context(cafile=str(authority.trust))
            if shown is not None:
                context.load_cert_chain(shown.chain, shown.private_key)
            return http.client.HTTPSConnection("localhost", port, context=context)

        status, body = yield self.do(lambda: connect(theirs), {})
        self.assertIn(b'"principal":"peer:b.test"', body)
        status, body = yield self.do(lambda: connect(None), {})
        self.assertEqual(status, 401)
        status, body = yield self.do(lambda: connect(None), ANN)
        self.assertEqual(status, 200)
        with self.assertRaises((ssl.SSLError, OSError, http.client.HTTPException)):
            yield self.do(lambda: connect(stranger), ANN)
        self.assertEqual(set(turns.asked), {("tls", "127.0.0.1")})
        self.assertGreaterEqual(len(turns.asked), 4)

    @inlineCallbacks
    def test_places(self) -> Any:
        """Connections beyond the terms are closed at once, and counted; an end makes room."""
        terms = HttpTerms(connections=10, per_address=2)
        listener = self.listen("tcp:0:interface=127.0.0.1", terms=terms)
        port = self.port(listener)
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        self.addCleanup(lambda: [each.close() for each in held])

        def third() -> bytes:
            with socket.create_connection(("127.0.0.1", port)) as made:
                made.settimeout(60)
                return made.recv(1)

        self.assertEqual((yield deferToThread(third)), b"")
        self.assertEqual((listener.refused, len(listener.connections)), (1, 2))
        for each in held:
            each.shutdown(socket.SHUT_RDWR)
            yield deferToThread(each.recv, 1)
        make = lambda: http.client.HTTPConnection("127.0.0.1", port)  # noqa: E731
        status, _ = yield self.do(make, ANN)
        self.assertEqual(status, 200)

    def test_descriptions(self) -> None:
        """A text that names no endpoint is refused."""
        with self.assertRaises(ListenError):
            HttpListener(reactor, "carrier-pigeon:7", self.web.site)  # type: ignore[arg-type]
