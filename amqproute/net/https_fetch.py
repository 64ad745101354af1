# SPDX-License-Identifier: Apache-2.0
"""Fetches small documents over HTTPS, as the keys of an issuer of tokens.

Bounded in time and size. Redirects are not followed: whoever could redirect could name the keys.
Which URLs may be fetched is for the caller to decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from OpenSSL.SSL import Error as SslError
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.ssl import Certificate, platformTrust, trustRootFromCertificates
from twisted.python.failure import Failure
from twisted.web.client import Agent, BrowserLikePolicyForHTTPS, ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent

from amqproute.net.reactor import IReactor

__all__ = ["LONGEST_DOCUMENT", "TIMEOUT_SECONDS", "HttpsFetcher"]

LONGEST_DOCUMENT: Final = 256 * 1024
"""Octets."""
TIMEOUT_SECONDS: Final = 10.0
"""For the whole of it: name, connection, TLS, answer."""
_PEM_END: Final = b"-----END CERTIFICATE-----"


class HttpsFetcher:
    """Fetches documents.

    Args:
        reactor: the reactor.
        trust: PEM file with the authorities for the server; None for those of the machine.
        refusal: the exception of a document that cannot be fetched.
        agent: to use instead of one that connects.
    """

    def __init__(
        self,
        reactor: IReactor,
        trust: Path | None,
        refusal: type[Exception],
        agent: IAgent | None = None,
    ) -> None:
        self._reactor = reactor
        self._trust = trust
        self._refusal = refusal
        self._agent = agent

    def fetch(self, url: str) -> Deferred[bytes]:
        """Return the document at a URL; fails with the refusal."""
        fetched = Deferred.fromCoroutine(self._fetch(url))
        fetched.addTimeout(TIMEOUT_SECONDS, self._reactor)
        return fetched.addErrback(self._refused, url)

    async def _fetch(self, url: str) -> bytes:
        agent = self._agent
        if agent is None:
            policy = BrowserLikePolicyForHTTPS(self._trust_root())  # type: ignore[no-untyped-call]
            # A connection for each document: they are hours apart.
            seconds = TIMEOUT_SECONDS
            agent = Agent(self._reactor, policy, seconds)  # type: ignore[no-untyped-call]
        headers = Headers({"Accept": ["application/json"], "User-Agent": ["amqproute"]})
        response = await agent.request(b"GET", url.encode("ascii"), headers)
        body = _BoundedBody()
        response.deliverBody(body)  # type: ignore[no-untyped-call]
        if response.code != 200:
            body.whole.addErrback(lambda _: None)
            body.whole.cancel()
            raise self._refusal(f"{url}: status {response.code}")
        octets = await body.whole
        if octets is None:
            raise self._refusal(f"{url}: larger than {LONGEST_DOCUMENT} octets")
        return octets

    def _trust_root(self) -> object:
        if self._trust is None:
            return platformTrust()  # type: ignore[no-untyped-call]
        try:
            octets = self._trust.read_bytes()
            parts = octets.split(_PEM_END)[:-1]
            found = [Certificate.loadPEM(part + _PEM_END) for part in parts]
            return trustRootFromCertificates(found)  # type: ignore[no-untyped-call]
        except (OSError, SslError) as error:
            raise self._refusal(f"{self._trust}: {error}") from error

    def _refused(self, failure: Failure, url: str) -> bytes:
        error = failure.value
        if isinstance(error, self._refusal):
            raise error
        if isinstance(error, TimeoutError | CancelledError):
            raise self._refusal(f"{url}: no answer within {TIMEOUT_SECONDS:.0f} s") from error
        reasons = getattr(error, "reasons", None)  # of a response that never came
        if reasons:
            error = reasons[-1].value
        raise self._refusal(f"{url}: {str(error) or type(error).__name__}") from error


class _BoundedBody(Protocol):
    """Collects a body, up to the bound."""

    def __init__(self) -> None:
        self.whole: Deferred[bytes | None] = Deferred(lambda _: self._give_up())
        self._parts: list[bytes] = []
        self._octets = 0

    def dataReceived(self, data: bytes) -> None:
        """Keep a part; end the connection if it is too much."""
        self._octets += len(data)
        if self._octets <= LONGEST_DOCUMENT:
            self._parts.append(data)
        elif not self.whole.called:
            self._give_up()
            self.whole.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Conclude."""
        if self.whole.called:
            return
        if isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.whole.callback(b"".join(self._parts))
        else:
            self.whole.errback(reason)

    def _give_up(self) -> None:
        self._parts.clear()
        if self.transport is not None:
            self.transport.loseConnection()
