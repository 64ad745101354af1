# SPDX-License-Identifier: Apache-2.0
"""Connections from balancers, up to the end of their PROXY header.

An endpoint of whatever protocol makes a `ProxyHeaderReader` for a connection from a listed network.
When the header is there, the endpoint (`HeaderOwner`) makes the protocol of the client that it
names, and that protocol takes the place of the reader at the transport.
"""

from __future__ import annotations

from typing import Any, Protocol

from twisted.internet.interfaces import IDelayedCall, IProtocol, IReactorTime
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.log_rate_limit import RateLimitedLog, and_more
from amqproute.net.proxy_protocol import ProxyHeader, ProxyHeaderError, read_proxy_header

__all__ = ["HeaderOwner", "ProxyHeaderReader", "log_balancer"]

log = Logger()


class HeaderOwner(Protocol):
    """An endpoint with connections from balancers.

    Attributes:
        clock: the reactor.
        header_seconds: time for a balancer to send its header.
    """

    @property
    def clock(self) -> IReactorTime:
        """See `HeaderOwner`."""
        ...

    @property
    def header_seconds(self) -> float:
        """See `HeaderOwner`."""
        ...

    def header_read(self, reader: ProxyHeaderReader, header: ProxyHeader) -> IProtocol | None:
        """Continue a connection whose balancer has named the client; None if it gets no place."""
        ...

    def header_lost(self, reader: ProxyHeaderReader, why: str = "") -> None:
        """Forget a connection that waited for its header; `why` names the problem, if any."""
        ...


class ProxyHeaderReader(TwistedProtocol):
    """A connection from a balancer, up to the end of its PROXY header.

    Args:
        owner: the endpoint.
        host: the balancer's address.

    Attributes:
        host: as given.
    """

    def __init__(self, owner: HeaderOwner, host: str) -> None:
        self.host = host
        self._owner = owner
        self._data = b""
        self._guard: IDelayedCall | None = None
        self._is_over = False

    def connectionMade(self) -> None:
        """Wait for the header, but not for ever."""
        self._guard = self._owner.clock.callLater(self._owner.header_seconds, self._late)

    def dataReceived(self, data: bytes) -> None:
        """Read the header; what follows it belongs to the client's protocol."""
        if self._is_over:
            return
        self._data += data
        try:
            header = read_proxy_header(self._data)
        except ProxyHeaderError as error:
            self._fail(str(error))
            return
        if header is None:
            return
        self._end()
        transport: Any = self.transport  # Any: Twisted's, of several kinds
        protocol = self._owner.header_read(self, header)
        if protocol is None:
            transport.abortConnection()
            return
        transport.protocol = protocol
        protocol.makeConnection(transport)
        rest, self._data = self._data[header.size :], b""
        if rest:
            transport.protocol.dataReceived(rest)  # this may be a TLS protocol by now

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Give back the place."""
        if not self._is_over:
            self._end()
            # Balancers look in this way whether the port is open.
            self._owner.header_lost(self, "" if not self._data else "left within its header")

    def abort(self) -> None:
        """Drop the connection."""
        transport: Any = self.transport  # Any: as above
        transport.abortConnection()

    def _late(self) -> None:
        self._guard = None
        self._fail("sent no PROXY header in time")

    def _fail(self, why: str) -> None:
        self._end()
        self._owner.header_lost(self, why)
        self.abort()

    def _end(self) -> None:
        self._is_over = True
        guard, self._guard = self._guard, None
        if guard is not None and guard.active():
            guard.cancel()


def log_balancer(limited: RateLimitedLog, host: str, endpoint: str, why: str) -> None:
    """Log what is wrong with a balancer's header, unless it was logged a moment ago.

    Args:
        limited: the endpoint's bound on lines.
        host: the balancer's address.
        endpoint: the description of the endpoint.
        why: what is wrong; nothing is logged for an empty text.
    """
    count = limited.due(("proxy", why)) if why else 0
    if count:
        log.warn(
            "balancer {peer} at {listener}: {words}; the connection is closed{more}",
            peer=host,
            listener=endpoint,
            words=why,
            more=and_more(count),
        )
