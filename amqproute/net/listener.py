# SPDX-License-Identifier: Apache-2.0
"""Accepting connections: one `Listener` for each entry of ``listen:`` in the configuration.

A listener opens its sockets, counts, and makes an `EngineProtocol` for each connection. The `Make`
that it is given makes engine and user: `amqproute.net.offered_protocols` chooses them by the first
octets of the connection. Endpoints are described as in `amqproute.net.listening_sockets`.

`amqproute.net.accept_policy` decides who gets a place, and which mute connection is closed for it.
Connections without a place are closed at once and counted; the log gets the first, and then a
summary at intervals, so that a flood does not fill the disk as well. Likewise for peers that TLS
refuses: `MOST_LOGGED` of a kind are logged one by one, the others as a number.

A connection from a listed balancer has to begin with a header of the PROXY protocol
(`amqproute.net.proxy_header_reader`), within the time for the TLS handshake. Until then the
connection counts as the balancer's, afterwards as that of the client named in the header.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.errors import ListenError, TlsError
from amqproute.log_rate_limit import RateLimitedLog, and_more
from amqproute.net.accept_policy import (
    AcceptPolicy,
    AcceptTerms,
    Admit,
    CloseFirst,
    PeerStanding,
    Refuse,
    contains,
)
from amqproute.net.client_address import unmapped
from amqproute.net.connection_scheduler import ConnectionScheduler
from amqproute.net.connection_set import ConnectionSet
from amqproute.net.listening_service import ListeningService
from amqproute.net.proxy_header_reader import ProxyHeaderReader, log_balancer
from amqproute.net.proxy_protocol import ProxyHeader
from amqproute.net.pump import (
    ConnectionOwner,
    ConnectionResources,
    ConnectionSecurity,
    EngineProtocol,
    Make,
)
from amqproute.net.tls import ClientCertificateMode, PeerJudge, TlsContexts
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["Listener", "ListenerTls", "TlsMode"]

log = Logger()

TlsMode = Literal["none", "upgrade", "implicit"]

_SUMMARY_SECONDS: Final = 30.0
MOST_LOGGED: Final = 20
"""Lines about connections refused for one reason, within `log_rate_limit.EVERY_SECONDS`."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """TLS at a listener.

    Attributes:
        contexts: our certificate; needed unless `mode` is ``none``.
        mode: ``implicit`` from the first octet; ``upgrade`` when the engine agrees on it.
        client_certificate: whether one is requested.
        judge: decides about certificates shown; None: trusted authorities alone decide.
        refused: called with address and error of each peer that TLS has refused.
    """

    contexts: TlsContexts | None = None
    mode: TlsMode = "none"
    client_certificate: ClientCertificateMode = "optional"
    judge: PeerJudge | None = None
    refused: Callable[[str, TlsError], None] | None = None


_NO_TLS: Final = ListenerTls()
_NO_RESOURCES: Final = ConnectionResources()


class Listener(ListeningService, ConnectionOwner):
    """One listening endpoint; a Twisted service.

    Attributes:
        description: the endpoint, as configured.
        connections: the connections open now.
        handshakes: TLS handshakes by level (`TransportFacts.level`) and code of the failure.
        places: connections with a place, and counters of those refused.
        clock: the reactor.
        header_seconds: time for a balancer to send its PROXY header.
    """

    def __init__(
        self,
        reactor: Any,  # Any: several interfaces at once; see below
        description: str,
        make: Make,
        *,
        tls: ListenerTls = _NO_TLS,
        terms: AcceptTerms | None = None,
        policy: AcceptPolicy | None = None,
        resources: ConnectionResources = _NO_RESOURCES,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Prepare; nothing is opened yet.

        Args:
            reactor: where to listen; with IReactorTCP, IReactorTime, IReactorUNIX and
                IReactorSocket.
            description: see the module.
            make: makes engine and user of each connection.
            tls: the tls of the connections.
            terms: the places at this listener and how they are shared out.
            policy: shared with other listeners.
            resources: resources of each connection; the listener replaces schedulers that are None.
            environ: names the sockets that systemd passes.

        Raises:
            ListenError: the description cannot be understood.
            TlsError: `contexts` has no certificate to show.
        """
        super().__init__(reactor, description, environ)
        self.connections: ConnectionSet[EngineProtocol] = ConnectionSet()
        self.handshakes: Counter[tuple[str, str]] = Counter()
        terms = terms or AcceptTerms(10_000, 10_000, 10_000)
        policy = policy or AcceptPolicy(terms.places)
        self.places = policy.listener(terms)
        self._policy = policy
        self._headless: ConnectionSet[ProxyHeaderReader] = ConnectionSet()
        self.clock = reactor
        self._make = make
        self._resources = ConnectionResources(
            resources.limits,
            resources.scheduler or ConnectionScheduler(reactor),
            resources.turns or TurnScheduler(reactor),
        )
        self.header_seconds = resources.limits.tls_seconds
        self._tls_refused = tls.refused
        self._security = ConnectionSecurity()
        if tls.mode != "none":
            if tls.contexts is None:
                raise ListenError(f"{description}: TLS needs tls.certificate and tls.private-key")
            self._security = ConnectionSecurity(
                tls.contexts.server_creator(tls.client_certificate, tls.judge),
                implicit=tls.mode == "implicit",
            )
        self._rate_limited_log = RateLimitedLog(reactor.seconds, MOST_LOGGED)
        self._shown = (0, 0)
        self._last_limit = ""
        self._last_limit_at: float | None = None
        self._shown_at: float | None = None

    def __repr__(self) -> str:
        state = "listening" if self.is_listening else "closed"
        return f"<Listener {self.description} {state} connections={len(self.connections)}>"

    def adopt(self, terms: AcceptTerms) -> None:
        """Put new shares and balancers in force."""
        self.places.adopt(terms)

    def row(self) -> dict[str, str | int | None]:
        """Return the attributes of the listener for the management node."""
        terms, places = self.places.terms, self.places
        return {
            "name": self.description,
            "connections": len(places),
            "max-connections": terms.places,
            "mute": places.mute,
            "mute-per-address": terms.per_address,
            "mute-per-network": terms.per_network,
            "refused": places.refused,
            "closed-mute": places.closed,
            "last-limit": self._last_limit,
            "last-limit-age-ms": None
            if self._last_limit_at is None
            else int((self._reactor.seconds() - self._last_limit_at) * 1000),
        }

    def stopService(self) -> Deferred[None]:
        """Close the sockets and drop the remaining connections; fires when all are gone.

        For an orderly end, call `stop_accepting`, let the users of the connections close them, and
        call this afterwards.
        """
        super().stopService()  # type: ignore[no-untyped-call]
        # A socket that is being closed may still deliver accepted connections.
        return self.stop_accepting().addCallback(
            lambda _: gatherResults(
                [self.connections.drop_all(), self._headless.drop_all()]
            ).addCallback(lambda _: None)
        )

    def accept(self, host: str) -> EngineProtocol | ProxyHeaderReader | None:
        """Make the protocol of a new connection, or None if it gets no place.

        Args:
            host: the address that it comes from; empty for a unix socket.
        """
        balancers = self.places.terms.balancers
        if balancers and contains(balancers, host):
            reader = ProxyHeaderReader(self, host)
            # The balancer's own address has no share, which all clients behind it would use up.
            if not self._admit(reader, "", host):
                return None
            self._headless.add(reader)
            return reader
        return self._make_protocol(host, None)

    def _make_protocol(self, host: str, client: tuple[str, int] | None) -> EngineProtocol | None:
        protocol = EngineProtocol(
            self._make,
            self._reactor,
            security=self._security,
            resources=self._resources,
            owner=self,
            client=client,
        )
        if not self._admit(protocol, host, host):
            return None
        self.connections.add(protocol)
        return protocol

    def _admit(self, key: EngineProtocol | ProxyHeaderReader, host: str, shown: str) -> bool:
        """Tell whether a connection gets a place, and give it one."""
        now = self._reactor.seconds()
        decision = self.places.decide(host, now)
        if not isinstance(decision, Admit):
            self._last_limit, self._last_limit_at = decision.limit, now
            self._log_limit(decision, shown, now)
        if isinstance(decision, Refuse):
            return False
        if isinstance(decision, CloseFirst):
            self._policy.leave(decision.victim)
            victim = decision.victim
            assert isinstance(victim, EngineProtocol | ProxyHeaderReader)
            victim.abort()
        self.places.enter(key, host, now)
        return True

    def header_read(self, reader: ProxyHeaderReader, header: ProxyHeader) -> EngineProtocol | None:
        """Continue a connection whose balancer has named the client; None if it gets no place."""
        self.header_lost(reader)
        if header.host is None:
            protocol = self._make_protocol(reader.host, None)
        else:
            protocol = self._make_protocol(header.host, (header.host, header.port))
        if protocol is not None:
            protocol.factory = reader.factory
        return protocol

    def header_lost(self, reader: ProxyHeaderReader, why: str = "") -> None:
        """Forget a connection that waited for its header; `why` names the problem, if any."""
        self.places.leave(reader)
        self._headless.discard(reader)
        self._headless.tell_if_gone()
        log_balancer(self._rate_limited_log, reader.host, self.description, why)

    def _log_limit(self, decision: Refuse | CloseFirst, host: str, now: float) -> None:
        if self._shown_at is not None and now - self._shown_at < _SUMMARY_SECONDS:
            return
        refused, closed = self._shown
        log.warn(
            "{listener}: {refused} connections refused, {closed} mute ones closed to make room; "
            "the latest comes from {host}, and the limit is {limit}",
            listener=self.description,
            refused=self.places.refused - refused,
            closed=self.places.closed - closed,
            host=host or "this machine",
            limit=decision.limit,
        )
        self._shown_at = now
        self._shown = (self.places.refused, self.places.closed)

    def connection_identified(self, protocol: EngineProtocol, kind: str, user: str) -> str | None:
        """See `ConnectionOwner`."""
        standing = _STANDINGS.get(kind, PeerStanding.KNOWN)
        return self.places.authenticated(protocol, standing, self._reactor.seconds(), user)

    def connection_secured(self, protocol: EngineProtocol) -> None:
        """See `ConnectionOwner`."""
        self.handshakes[protocol.facts.level, ""] += 1

    def connection_lost(self, protocol: EngineProtocol, reason: Failure) -> None:
        """See `ConnectionOwner`."""
        self.connections.discard(protocol)
        self.places.leave(protocol)
        error = reason.value
        if isinstance(error, TlsError):
            self.handshakes["none", error.code] += 1
            self._log_refusal(protocol.facts.remote, error)
            if self._tls_refused is not None:
                self._tls_refused(protocol.facts.remote, error)
        self.connections.tell_if_gone()

    def _log_refusal(self, peer: str, error: TlsError) -> None:
        if isinstance(error.__cause__, ConnectionDone | ConnectionLost):
            # Port checks do this every few seconds.
            log.debug(
                "{peer} left {listener} during the TLS handshake",
                peer=peer,
                listener=self.description,
            )
            return
        count = self._rate_limited_log.due(error.code)
        if not count:
            return
        if error.code == "tls.plain-text":
            log.warn(
                "peer {peer} spoke plain text on the TLS port {listener}; it has to connect with "
                "amqps{more}",
                peer=peer,
                listener=self.description,
                more=and_more(count),
            )
        else:
            log.info(
                "{peer} at {listener}: {code}: {words}{more}",
                peer=peer,
                listener=self.description,
                code=error.code,
                words=str(error),
                more=and_more(count),
            )

    def _factory(self) -> ServerFactory:
        return _Accepting(self)


class _Accepting(ServerFactory):
    """Twisted's view of a listener."""

    noisy = False

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def buildProtocol(self, addr: IAddress | None) -> TwistedProtocol | None:
        """Make a protocol; for None Twisted closes the socket at once."""
        protocol = self._listener.accept(unmapped(getattr(addr, "host", None) or ""))
        if protocol is not None:
            protocol.factory = self
        return protocol


_STANDINGS: Final = {"anonymous": PeerStanding.ANONYMOUS, "peer": PeerStanding.BROKER}
