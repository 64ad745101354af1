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
from twisted.internet.defer import inlineCallbacks
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from amqproute.errors import ListenError
from amqproute.http.http_listener import HttpListener, HttpTerms, HttpTls
from amqproute.net.tls import TlsContexts
from tests.http.rig import ANN, Web
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


class ListenerTests(TestCase):
    """Each opens an endpoint of its own."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.web = Web(self.directory)

    def listen(self, description: str, **terms: Any) -> HttpListener:
        """Open an endpoint."""
        real: Any = reactor
        self.web.site.clock = real
        listener = HttpListener(real, description, self.web.site, **terms)
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
        listener = self.listen("tcp:0:interface=127.0.0.1", tls=HttpTls(contexts, "optional"))
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
