# SPDX-License-Identifier: Apache-2.0
"""The endpoint of the HTTP service: admits connections, and knows what each shows of its client."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.logger import Logger

from amqproute.http.client_memory import ClientMemory
from amqproute.http.handshake_turns import TurnedTlsFactory
from amqproute.http.http_channel import HttpChannel, HttpLimits
from amqproute.http.http_messages import ClientFacts
from amqproute.http.request_rates import RequestRates
from amqproute.http.site import HttpSite
from amqproute.log_rate_limit import RateLimitedLog, and_more, source_of
from amqproute.net.client_address import unix_credentials, unmapped
from amqproute.net.connection_set import ConnectionSet
from amqproute.net.listening_service import ListeningService
from amqproute.net.reactor import ISocketReactor
from amqproute.net.tls import ClientCertificateMode, TlsContexts
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["HttpListener", "HttpTerms", "HttpTls"]

log = Logger()


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
    """

    connections: int = 1000
    per_address: int = 200
    per_second: float = 200.0


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
        environ: names the sockets that systemd passes.

    Attributes:
        description: the description of the endpoint.
        connections: the connections open now.
        refused: the number of connections that got no place.
        held: the memory that connections hold.

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
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(reactor, description, environ)
        self.site = site
        self.limits = limits
        self.connections: ConnectionSet[HttpChannel] = ConnectionSet()
        self.refused = 0
        self.held = ClientMemory()
        self._terms = terms
        self._rates = RequestRates(terms.per_second, reactor.seconds)
        self._leaving: set[HttpChannel] = set()
        self._sources: Counter[str] = Counter()
        self._source_of: dict[HttpChannel, str] = {}
        self._limited_log = RateLimitedLog(reactor.seconds)
        factory = self.factory = _Accepting(self)
        self._accepting: Any = factory  # Any: a factory of Twisted's, wrapped or not
        if tls is not None:
            creator = tls.contexts.server_creator(tls.client_certificate)
            turns = tls.turns or TurnScheduler(reactor)
            self._accepting = TurnedTlsFactory(creator, factory, reactor, turns)

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
        return self.stop_accepting().addCallback(lambda _: self.connections.drop_all())

    def accept(self, host: str) -> HttpChannel | None:
        """Make the protocol of a new connection, or None if it gets no place.

        Args:
            host: the address that it comes from; empty for a unix socket.
        """
        source = source_of(host)
        limit = self._limit_met(source)
        if limit:
            self._refuse(host, limit)
            return None
        channel = HttpChannel(
            self.site, self._reactor, self.limits, self._lost, facts_of, source, self.held
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
        factory: ServerFactory = self._accepting
        return factory


class _Accepting(ServerFactory):
    """Twisted's view of the endpoint."""

    noisy = False

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:
        """Make a protocol; for None Twisted closes the socket at once."""
        return self._listener.accept(unmapped(getattr(addr, "host", None) or ""))


def facts_of(transport: object) -> ClientFacts:
    """Return what a transport shows of its client."""
    made: Any = transport  # Any: of several kinds, with and without TLS
    peer = made.getPeer()
    address = unmapped(getattr(peer, "host", None) or "")
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
        bool(address) and ip_address(address.partition("%")[0]).is_loopback,
        names,
        uid,
        verification is not None,
    )
