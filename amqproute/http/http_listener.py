# SPDX-License-Identifier: Apache-2.0
"""The endpoint of the HTTP service: admits connections, and knows what each shows of its client.

A connection from a listed balancer has to begin with a header of the PROXY protocol, before TLS
and within the time for a request. The address in it counts wherever addresses matter, but for one
thing: a client is on this machine only if the socket shows it as well, so that passwords behind a
balancer take TLS at this endpoint. What HTTP headers say about addresses (Forwarded,
X-Forwarded-For) counts nowhere: any client can write them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IAddress, IProtocol
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.logger import Logger
from zope.interface import implementer

from amqproute.http.client_memory import ClientMemory
from amqproute.http.handshake_turns import TurnedTlsFactory
from amqproute.http.http_channel import HttpChannel, HttpLimits
from amqproute.http.http_messages import ClientFacts
from amqproute.http.request_rates import RequestRates
from amqproute.http.site import HttpSite
from amqproute.log_rate_limit import RateLimitedLog, and_more, source_of
from amqproute.net.accept_policy import IpNetwork, contains
from amqproute.net.client_address import unix_credentials, unmapped
from amqproute.net.connection_set import ConnectionSet
from amqproute.net.listening_service import ListeningService
from amqproute.net.proxy_header_reader import ProxyHeaderReader, log_balancer
from amqproute.net.proxy_protocol import ProxyHeader
from amqproute.net.reactor import ISocketReactor
from amqproute.net.tls import ClientCertificateMode, TlsContexts
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["HttpListener", "HttpTerms", "HttpTls"]

log = Logger()

HEADLESS_PART: Final = 10
"""One connection for this many places may wait for its PROXY header, beside those with a place."""


@dataclass(frozen=True, slots=True)
class HttpTls:
    """TLS at the endpoint.

    Attributes:
        contexts: our certificate.
        client_certificate: whether one is requested.
        turns: where the steps of handshakes wait; None for turns of their own.
    """

    contexts: TlsContexts
    client_certificate: ClientCertificateMode = "none"
    turns: TurnScheduler | None = None


@dataclass(frozen=True, slots=True)
class HttpTerms:
    """Bounds on admitted connections.

    Attributes:
        connections: open at one time.
        per_address: those of an IPv4 address, or of the /64 of an IPv6 address.
        per_second: new ones of such an address in a second; a second's worth may come at once.
        balancers: networks that must, and alone may, use the PROXY protocol.
    """

    connections: int = 1000
    per_address: int = 200
    per_second: float = 200.0
    balancers: Sequence[IpNetwork] = ()


_NO_TERMS: Final = HttpTerms()
_NO_LIMITS: Final = HttpLimits()


class HttpListener(ListeningService):
    """The endpoint; a Twisted service.

    Args:
        reactor: where to listen.
        description: see `amqproute.net.listening_sockets`.
        site: answers the requests.
        tls: None without TLS.
        terms: the terms of admission.
        limits: the limits of each connection.
        turns: where reads wait; None to take each at once.
        environ: names the sockets that systemd passes.

    Attributes:
        description: the description of the endpoint.
        connections: the connections open now.
        refused: the number of connections that got no place.
        held: the memory that connections hold.
        clock: the reactor.

    Raises:
        ListenError: the description cannot be understood.
        TlsError: there is no certificate to show.
    """

    def __init__(
        self,
        reactor: ISocketReactor,
        description: str,
        site: HttpSite,
        *,
        tls: HttpTls | None = None,
        terms: HttpTerms = _NO_TERMS,
        limits: HttpLimits = _NO_LIMITS,
        turns: TurnScheduler | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(reactor, description, environ)
        self.site = site
        self.limits = limits
        self.connections: ConnectionSet[HttpChannel] = ConnectionSet()
        self.refused = 0
        self.held = ClientMemory()
        self._terms = terms
        self._turns = turns
        self._rates = RequestRates(terms.per_second, reactor.seconds)
        self._leaving: set[HttpChannel] = set()
        self._sources: Counter[str] = Counter()
        self._source_of: dict[HttpChannel, str] = {}
        self._headless: ConnectionSet[ProxyHeaderReader] = ConnectionSet()
        self._limited_log = RateLimitedLog(reactor.seconds)
        self.clock = reactor
        self._clients: Any = _Channels(self)  # Any: a factory of Twisted's, wrapped or not
        if tls is not None:
            creator = tls.contexts.server_creator(tls.client_certificate)
            turns = tls.turns or TurnScheduler(reactor)
            self._clients = TurnedTlsFactory(creator, self._clients, reactor, turns)

    def __repr__(self) -> str:
        state = "listening" if self.is_listening else "closed"
        return f"<HttpListener {self.description} {state} connections={len(self.connections)}>"

    def adopt(self, terms: HttpTerms, limits: HttpLimits) -> None:
        """Put other bounds in force, for new connections."""
        self._terms, self.limits = terms, limits
        self._rates.adopt(terms.per_second)

    def row(self) -> dict[str, str | int | None]:
        """Return the attributes of the endpoint for the management node."""
        return {
            "name": f"http {self.description}",
            "connections": len(self.connections),
            "max-connections": self._terms.connections,
            "refused": self.refused,
            "event-streams": self.site.streams,
        }

    def stopService(self) -> Deferred[None]:
        """Close the sockets and drop the connections; fires when all are gone."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self.stop_accepting().addCallback(
            lambda _: gatherResults(
                [self.connections.drop_all(), self._headless.drop_all()]
            ).addCallback(lambda _: None)
        )

    def build(self, address: IAddress | None) -> IProtocol | None:
        """Make the protocol of a new connection, or None if it gets no place.

        Args:
            address: where it comes from; without a host for a unix socket.
        """
        host = unmapped(getattr(address, "host", None) or "")
        terms = self._terms
        if not terms.balancers or not contains(terms.balancers, host):
            made: IProtocol | None = self._clients.buildProtocol(address)
            return made
        # The balancer's own address has no share, which all clients behind it would use up.
        if len(self._headless) >= max(1, terms.connections // HEADLESS_PART):
            self._refuse(host, "max-connections")
            return None
        reader = ProxyHeaderReader(self, host)
        self._headless.add(reader)
        return reader

    @property
    def header_seconds(self) -> float:
        """Seconds for a balancer to send its PROXY header."""
        return self.limits.request_seconds

    def header_read(self, reader: ProxyHeaderReader, header: ProxyHeader) -> IProtocol | None:
        """See `amqproute.net.proxy_header_reader.HeaderOwner`."""
        self.header_lost(reader)
        named = header.host is not None
        address = _NamedAddress(header.host or reader.host, header.port, named)
        made: IProtocol | None = self._clients.buildProtocol(address)
        return made

    def header_lost(self, reader: ProxyHeaderReader, why: str = "") -> None:
        """See `amqproute.net.proxy_header_reader.HeaderOwner`."""
        self._headless.discard(reader)
        self._headless.tell_if_gone()
        log_balancer(self._limited_log, reader.host, self.description, why)

    def accept(self, host: str, *, is_named: bool = False) -> HttpChannel | None:
        """Make the protocol of a client, or None if it gets no place.

        Args:
            host: its address; empty for a unix socket.
            is_named: whether a balancer has named it; else it is that of the socket.
        """
        source = source_of(host)
        limit = self._limit_met(source)
        if limit:
            self._refuse(host, limit)
            return None
        facts = partial(facts_of, named=host) if is_named else facts_of
        channel = HttpChannel(
            self.site,
            self._reactor,
            self.limits,
            self._lost,
            facts,
            source,
            self.held,
            self._turns,
        )
        self.connections.add(channel)
        if source:
            self._sources[source] += 1
            self._source_of[channel] = source
        return channel

    def _limit_met(self, source: str) -> str:
        """Return the setting that keeps a new connection out; empty if there is a place for it."""
        terms = self._terms
        if source and self._rates.take(source):
            return "requests-per-second"
        if source and self._sources[source] >= terms.per_address:
            return "connections-per-address"
        if len(self.connections) - len(self._leaving) < terms.connections:
            return ""
        return "" if self._make_room(source) else "max-connections"

    def _make_room(self, source: str) -> bool:
        """Close an idle connection of an address that has more than a newcomer's.

        Of the address with the most, the one idle for longest; local ones stay.
        """
        counts = self._sources
        own = counts[source] if source else 0
        found = [
            (-counts[of], channel.idle_since, number)
            for number, (channel, of) in enumerate(self._source_of.items())
            if counts[of] > own and channel.is_idle and channel not in self._leaving
        ]
        if not found:
            return False
        victim = list(self._source_of)[min(found)[2]]
        self._leaving.add(victim)
        victim.abort()
        return True

    def _refuse(self, host: str, limit: str) -> None:
        self.refused += 1
        count = self._limited_log.due(limit)
        if count:
            log.warn(
                "{listener}: no place for an HTTP connection from {host}: management.{limit}{more}",
                listener=self.description,
                host=host or "this machine",
                limit=limit,
                more=and_more(count),
            )

    def _lost(self, channel: HttpChannel) -> None:
        self.connections.discard(channel)
        self._leaving.discard(channel)
        source = self._source_of.pop(channel, "")
        if source:
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]
        self.connections.tell_if_gone()

    def _factory(self) -> ServerFactory:
        return _Accepting(self)


@implementer(IAddress)
@dataclass(frozen=True, slots=True)
class _NamedAddress:
    """Where a connection through a balancer comes from.

    Attributes:
        host: the address.
        port: the port.
        is_named: whether the balancer has named them; else they are its own.
    """

    host: str
    port: int
    is_named: bool


class _Accepting(ServerFactory):
    """Twisted's view of the endpoint."""

    noisy = False

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Make a protocol; for None Twisted closes the socket at once."""
        made: Any = self._listener.build(addr)  # Any: of Twisted's, with and without TLS
        protocol: Protocol | None = made
        return protocol


class _Channels(ServerFactory):
    """Makes what speaks HTTP, above TLS if there is any."""

    noisy = False

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener

    def buildProtocol(self, addr: IAddress | None) -> HttpChannel | None:
        """Make the protocol of a client; None if it gets no place."""
        host = unmapped(getattr(addr, "host", None) or "")
        is_named = isinstance(addr, _NamedAddress) and addr.is_named
        return self._listener.accept(host, is_named=is_named)


def facts_of(transport: object, named: str = "") -> ClientFacts:
    """Return what a transport shows of its client.

    Args:
        transport: the transport.
        named: the client's address as a balancer has named it; empty if it is that of the socket.
    """
    made: Any = transport  # Any: of several kinds, with and without TLS
    peer = made.getPeer()
    beside = unmapped(getattr(peer, "host", None) or "")
    address = named or beside
    verification = getattr(made, "verification", None)
    names: tuple[str, ...] = ()
    if verification is not None:
        verification.conclude(address)
        if verification.failure is None:
            names = tuple(sorted(verification.domains))
    credentials = None if address else unix_credentials(made)
    uid = None if credentials is None else credentials[1]
    return ClientFacts(
        address,
        verification is not None or uid is not None,
        _is_loopback(beside) and _is_loopback(address),
        names,
        uid,
        verification is not None,
    )


def _is_loopback(host: str) -> bool:
    return bool(host) and ip_address(host.partition("%")[0]).is_loopback
