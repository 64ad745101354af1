# SPDX-License-Identifier: Apache-2.0
"""Documents over HTTPS, from a server on loopback: bounds of size and time, redirects, trust."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet import reactor, ssl
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from amqproute.net.https_fetch import LONGEST_DOCUMENT, TIMEOUT_SECONDS, HttpsFetcher
from tests.integration.support import certificates


class Refused(Exception):
    """A document that cannot be fetched."""


class Server(Protocol):
    """Answers every request with the same octets."""

    answer = b""

    def dataReceived(self, data: bytes) -> None:
        if b"\r\n\r\n" in data and self.transport is not None:
            self.transport.write(self.answer)
            self.transport.loseConnection()


def reply(body: bytes, status: str = "200 OK", length: int | None = None, more: str = "") -> bytes:
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{more}\r\n"
    return head.encode() + body


class FetchTests(TestCase):
    async def fetched(
        self, answer: bytes, *, trust: Path | None, tls: bool = True, host: str = "localhost"
    ) -> bytes:
        """Fetch from a server."""
        factory = Factory.forProtocol(Server)
        Server.answer = answer
        listen: Callable[..., Any] = reactor.listenTCP  # type: ignore[attr-defined]
        if tls:
            issued = certificates().issue("localhost", dns_names=["localhost"])
            context = ssl.DefaultOpenSSLContextFactory(str(issued.private_key), str(issued.chain))
            port = reactor.listenSSL(  # type: ignore[attr-defined]
                0, factory, context, interface="127.0.0.1"
            )
        else:
            port = listen(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        scheme = "https" if tls else "http"
        fetcher = HttpsFetcher(reactor, trust, Refused)  # type: ignore[arg-type]
        return await fetcher.fetch(f"{scheme}://{host}:{port.getHost().port}/keys")

    async def refused(self, answer: bytes, words: str, **options: Any) -> None:
        given = {"trust": certificates().trust, **options}
        with self.assertRaises(Refused) as raised:
            await self.fetched(answer, **given)
        self.assertIn(words, str(raised.exception))

    async def test_fetched(self) -> None:
        body = b'{"keys": []}'
        self.assertEqual(await self.fetched(reply(body), trust=certificates().trust), body)
        self.assertEqual(await self.fetched(reply(body), trust=None, tls=False), body)

    async def test_untrusted(self) -> None:
        """A certificate of an unknown authority, or for another name, is refused."""
        await self.refused(reply(b"{}"), "certificate verify failed", trust=None)
        await self.refused(reply(b"{}"), "", host="127.0.0.1")

    async def test_status(self) -> None:
        """Anything but 200 is refused, redirects are not followed."""
        await self.refused(reply(b"no", "404 Not Found"), "status 404")
        elsewhere = "Location: https://elsewhere.test/\r\n"
        await self.refused(reply(b"", "302 Found", more=elsewhere), "status 302")

    async def test_size(self) -> None:
        """What is too large is given up, however it is announced; what is cut off is none."""
        most = b"a" * LONGEST_DOCUMENT
        self.assertEqual(await self.fetched(reply(most), trust=certificates().trust), most)
        await self.refused(reply(most + b"a"), "larger than")
        await self.refused(reply(most + b"a", length=1 << 40), "larger than")
        await self.refused(reply(b"half", length=100), "")

    async def test_no_server(self) -> None:
        fetcher = HttpsFetcher(reactor, None, Refused)  # type: ignore[arg-type]
        with self.assertRaises(Refused):
            await fetcher.fetch("http://127.0.0.1:1/keys")

    async def test_no_authorities(self) -> None:
        await self.refused(reply(b"{}"), "/nonexistent", trust=Path("/nonexistent"))


class TimeTests(SynchronousTestCase):
    def test_silence(self) -> None:
        """A server that does not answer is given up."""
        clock = Clock()

        class Agent:
            def request(self, *_: object) -> Deferred[Any]:
                return Deferred()

        fetcher = HttpsFetcher(clock, None, Refused, Agent())  # type: ignore[arg-type]
        fetched = fetcher.fetch("https://a.test/keys")
        clock.advance(TIMEOUT_SECONDS)
        error = self.failureResultOf(fetched, Refused).value
        self.assertIn("no answer within 10 s", str(error))
