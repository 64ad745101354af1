# SPDX-License-Identifier: Apache-2.0
"""Connecting: to a candidate of a peer's domain, or to a URL.

The addresses of a candidate are tried in order, a new one every `ConnectPace.stagger_seconds` or as
soon as one has failed, and the first TCP connection wins (RFC 8305 §5). Then TLS follows. If it
fails on that connection, the remaining addresses are tried: one of several machines behind a name
may have been forgotten when certificates were renewed.

With implicit TLS the Deferred fires when the peer has proved its name and the engine has started;
with an upgrade, when the TCP connection exists, and the engine's user handles the rest. In TLS 1.3
a client finishes before the server has checked the client's certificate: a refusal of *our*
certificate appears as a `TlsError` in the user's `lost`. If nothing works, the failure is one
`ConnectError` that lists every address.

What a peer must prove is decided before connecting, by `amqproute.net.peer_trust.demand` from the
peer's level and the candidate's DNS data: if nothing would suffice, for example because TLSA
records fail validation, no connection is made, and the `ConnectError` has that code.
`TransportFacts.level` of the protocol holds the level reached.

The addresses in a domain's records are judged by `amqproute.dial_policy` before each connection,
one by one, with their values at that time: a denied address counts as failed, with the code
``dns.denied-target``. The gateway of a static route and the host of a URL are the operator's
choice, and are not judged.

Everything is bounded: a TCP connection by `ConnectPace.connect_seconds`, a TLS handshake by
`PumpLimits.tls_seconds`, all together by `ConnectPace.total_seconds`. Cancelling the Deferred
closes whatever is open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from twisted.internet import error as twisted_error
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, fail
from twisted.internet.endpoints import (
    TCP4ClientEndpoint,
    TCP6ClientEndpoint,
    UNIXClientEndpoint,
)
from twisted.internet.interfaces import IAddress, IDelayedCall, IHostResolution, IResolutionReceiver
from twisted.internet.protocol import Factory
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.dial_policy import TargetPolicy
from amqproute.errors import ConnectError, TlsError
from amqproute.net import certificate_identity
from amqproute.net.connection_scheduler import ConnectionScheduler
from amqproute.net.connection_set import ConnectionSet
from amqproute.net.peer_trust import (
    DEFAULT_POLICY,
    TrustDemand,
    TrustLevel,
    TrustMethod,
    TrustPolicy,
    demand,
    place_of,
)
from amqproute.net.pump import (
    ConnectionOwner,
    ConnectionResources,
    ConnectionSecurity,
    EngineProtocol,
    Make,
    PumpLimits,
)
from amqproute.net.tls import TlsContexts
from amqproute.tracebacks import forget_frames, without_frames
from amqproute.url import Url
from amqproute.values import Candidate, TlsaAnswer, TransportSecurity

__all__ = ["ConnectPace", "Connector"]

_CONNECT_CODES: Final = (
    "connect.refused",
    "connect.timeout",
    "connect.unreachable",
    "dns.denied-target",
)
_MakeProtocol = Callable[[Deferred[EngineProtocol]], EngineProtocol]


class _Failed(NamedTuple):
    """An address that failed."""

    address: str
    code: str
    words: str


@dataclass(frozen=True, slots=True)
class ConnectPace:
    """Timing of connecting, in seconds.

    Attributes:
        stagger_seconds: delay before the next address is tried in parallel.
        connect_seconds: limit of one TCP connection.
        total_seconds: limit of one candidate with all its addresses.
    """

    stagger_seconds: float = 0.25
    connect_seconds: float = 10.0
    total_seconds: float = 30.0


class Connector:
    """Makes connections, with our certificate.

    Attributes:
        connections: the present connections made by this connector.
    """

    def __init__(
        self,
        reactor: Any,  # Any: several interfaces at once; see below
        contexts: TlsContexts | None,
        *,
        pace: ConnectPace | None = None,
        limits: PumpLimits | None = None,
        scheduler: ConnectionScheduler | None = None,
        policy_for: Callable[[str], TrustPolicy] | None = None,
        tlsa: Callable[[str, int], Deferred[TlsaAnswer]] | None = None,
        targets: Callable[[], TargetPolicy] = TargetPolicy.of,
    ) -> None:
        """Initialize.

        Args:
            reactor: the reactor with IReactorTCP, IReactorTime, and for names and sockets
                IReactorPluggableNameResolver and IReactorUNIX.
            contexts: our certificate and trusted authorities; None if TLS is not used.
            pace: timing.
            limits: the limits of each connection.
            scheduler: shares processor time among connections; None for a separate one for each.
            policy_for: returns the trust policy of a domain.
            tlsa: looks up the TLSA records of a host named by a static route.
            targets: returns the policy of which places the DNS may lead to.
        """
        self._reactor = reactor
        self._contexts = contexts
        self._pace = pace or ConnectPace()
        self._resources = ConnectionResources(limits or PumpLimits(), scheduler)
        self._policy_for = policy_for
        self._tlsa = tlsa
        self._targets = targets
        self.connections: ConnectionSet[EngineProtocol] = ConnectionSet()

    def drop_all(self) -> Deferred[None]:
        """Drop all connections without a closing handshake; fires when all are gone."""
        return self.connections.drop_all()

    def connect(
        self, candidate: Candidate, domain: str, make: Make, *, extra_names: Sequence[str] = ()
    ) -> Deferred[EngineProtocol]:
        """Connect to a candidate, which must prove that it belongs to `domain`.

        Args:
            candidate: the place; without addresses the system looks its host up.
            domain: the name expected in the certificate, and sent as SNI.
            make: makes engine and user; called once a connection has won, at most once per address,
                and a second time only after the `lost` of the first user.
            extra_names: host names that the certificate may prove instead.

        Returns:
            A Deferred of the protocol; fails with `ConnectError`.
        """
        connecting = Deferred.fromCoroutine(self._connect(candidate, domain, make, extra_names))
        return connecting.addErrback(without_frames)

    async def demand_for(
        self, candidate: Candidate, domain: str, extra_names: Sequence[str] = ()
    ) -> TrustDemand:
        """Return what must be proved at a candidate of a domain."""
        policy = DEFAULT_POLICY if self._policy_for is None else self._policy_for(domain)
        asks = candidate.source == "static" and policy.level is TrustLevel.DANE
        if asks and self._tlsa is not None and not certificate_identity.is_address(candidate.host):
            answer = await self._tlsa(candidate.host, candidate.port)
            candidate = replace(candidate, tlsa=answer)
        return demand(policy, place_of(candidate, domain, extra_names))

    def connect_url(
        self, url: Url, make: Make, *, name: str | None = None
    ) -> Deferred[EngineProtocol]:
        """Connect to a URL: no SRV records, and the certificate must name the host.

        Args:
            url: the url from `parse_url`.
            make: makes engine and user.
            name: the name expected in the certificate, if not the host.

        Returns:
            A Deferred of the protocol; fails with `ConnectError`.
        """
        if url.scheme == "unix":
            by_path = Deferred.fromCoroutine(self._connect_unix(url.path, make))
            return by_path.addErrback(without_frames)
        wanted = name or url.host
        security = ConnectionSecurity()
        try:
            if url.scheme == "amqps" or self._contexts is not None:
                by_name = TrustDemand(
                    TrustMethod.PKIX, wanted, (wanted,), wanted, "authenticated", is_host=True
                )
                security = self._security(by_name, implicit=url.scheme == "amqps")
        except ConnectError:
            return fail()
        addresses = (url.host,)
        connecting = Deferred.fromCoroutine(
            self._connect_any(addresses, url.port, security, make, f"{url.host}:{url.port}")
        )
        return connecting.addErrback(without_frames)

    def _security(self, wanted: TrustDemand, *, implicit: bool) -> ConnectionSecurity:
        if self._contexts is None:
            raise ConnectError(
                "tls.untrusted",
                "tls.certificate is not configured: there is nothing to prove who we are with",
            )
        try:
            if (ailment := self._contexts.ailment) is not None:
                raise ailment  # peers would refuse us, and only their logs would show it
            return ConnectionSecurity(self._contexts.creator_for(wanted), implicit=implicit)
        except TlsError as error:
            raise ConnectError(error.code, str(error)) from error

    async def _connect(
        self, candidate: Candidate, domain: str, make: Make, extra_names: Sequence[str]
    ) -> EngineProtocol:
        where = f"{candidate.host}:{candidate.port}"
        wanted = await self.demand_for(candidate, domain, extra_names)
        if wanted.method is TrustMethod.REFUSED:
            line = f"{where}: {wanted.code}: {wanted.words}"
            raise ConnectError(wanted.code, f"no connection to {where}: {wanted.words}", (line,))
        security = ConnectionSecurity()
        if wanted.method is not TrustMethod.PLAIN:
            security = self._security(
                wanted, implicit=candidate.security is TransportSecurity.IMPLICIT
            )
        addresses = candidate.addresses or (candidate.host,)
        by_dns = domain if candidate.source != "static" else None
        return await self._connect_any(addresses, candidate.port, security, make, where, by_dns)

    async def _connect_any(
        self,
        addresses: Sequence[str],
        port: int,
        security: ConnectionSecurity,
        make: Make,
        where: str,
        by_dns: str | None = None,
    ) -> EngineProtocol:
        """Connect to one of several addresses.

        Args:
            addresses: IP addresses, or names for the system to look up.
            port: the TCP port.
            security: what is demanded.
            make: makes engine and user.
            where: host and port, as text.
            by_dns: the domain whose records lead here; None if configured by the operator.
        """
        deadline = self._reactor.seconds() + self._pace.total_seconds
        failures: list[_Failed] = []
        remaining: list[str] = []
        for address in addresses:
            if certificate_identity.is_address(address):
                remaining.append(address)
            else:
                remaining.extend(await self._look_up(address))
        if by_dns is not None:
            policy = self._targets()
            for address in tuple(remaining):
                denied = policy.judge(address, port, by_dns)
                if denied is not None:
                    remaining.remove(address)
                    failures.append(_Failed(address, "dns.denied-target", str(denied)))

        def protocol_for(ready: Deferred[EngineProtocol]) -> EngineProtocol:
            return self._make_protocol(security, make, ready)

        while remaining:
            race = _Race(self._reactor, remaining, port, self._pace, protocol_for)
            left = max(0.0, deadline - self._reactor.seconds())
            late = self._reactor.callLater(left, race.give_up)
            race.start_next()
            try:
                won = await race.done
            finally:
                if late.active():
                    late.cancel()
            failures.extend(race.failures)
            for failed in race.failures:
                remaining.remove(failed.address)
            if won is None:
                failures.extend(
                    _Failed(each, "connect.timeout", "no answer in time") for each in remaining
                )
                break
            protocol, address = won
            try:
                return await race.ready
            except CancelledError:
                protocol.abort()
                raise
            except Exception as error:  # however the connection ended, it is this attempt's outcome
                failures.append(_Failed(address, _code(error), _words(error)))
                remaining.remove(address)
                forget_frames(error)
        raise _no_connection(where, port, failures)

    async def _connect_unix(self, path: str, make: Make) -> EngineProtocol:
        ready: Deferred[EngineProtocol] = Deferred()
        factory = _Once(lambda: self._make_protocol(ConnectionSecurity(), make, ready))
        endpoint_type: Any = UNIXClientEndpoint
        endpoint = endpoint_type(self._reactor, path, timeout=self._pace.connect_seconds)
        try:
            await endpoint.connect(factory)
            return await ready
        except CancelledError:
            raise
        except Exception as error:  # every kind of refusal by the system is one outcome
            words = f"unix:{path}: {_words(error)}"
            raise ConnectError(_code(error), f"no connection to {words}", (words,)) from error

    def _make_protocol(
        self, security: ConnectionSecurity, make: Make, ready: Deferred[EngineProtocol]
    ) -> EngineProtocol:
        return EngineProtocol(
            make,
            self._reactor,
            security=security,
            is_client=True,
            resources=self._resources,
            owner=_Dialed(self.connections, ready),
        )

    async def _look_up(self, host: str) -> list[str]:
        """Return the addresses that the system finds for a configured name."""
        receiver = _Addresses()
        self._reactor.nameResolver.resolveHostName(receiver, host)
        done = receiver.done
        done.addTimeout(self._pace.connect_seconds, self._reactor)
        try:
            found = await done
        except TimeoutError as error:
            raise ConnectError("connect.name", f"{host} was not found in time") from error
        if not found:
            raise ConnectError("connect.name", f"{host} has no address", (f"{host}: no address",))
        return found


class _Dialed(ConnectionOwner):
    """Adds a connection to the set of present ones, and reports when it is ready."""

    def __init__(
        self, connections: ConnectionSet[EngineProtocol], ready: Deferred[EngineProtocol]
    ) -> None:
        self._connections = connections
        self._ready = ready

    def connection_ready(self, protocol: EngineProtocol) -> None:
        self._connections.add(protocol)
        if not self._ready.called:
            self._ready.callback(protocol)

    def connection_lost(self, protocol: EngineProtocol, reason: Failure) -> None:
        self._connections.discard(protocol)
        if not self._ready.called:
            self._ready.errback(reason)
        self._connections.tell_if_gone()


class _Race:
    """TCP connections to several addresses; the first one wins.

    Attributes:
        failures: address, code and text of each failure.
        ready: for the winner: fires when its engine has started, fails if it is lost before that.
        done: fires with the winner and its address, or None if no address has answered.
    """

    def __init__(
        self,
        reactor: Any,
        addresses: Sequence[str],
        port: int,
        pace: ConnectPace,
        protocol: _MakeProtocol,
    ) -> None:
        """Initialize; `protocol` makes the protocol of the winner."""
        self.failures: list[_Failed] = []
        self.ready: Deferred[EngineProtocol] = Deferred()
        self.done: Deferred[tuple[EngineProtocol, str] | None] = Deferred(lambda _: self.stop())
        self._reactor = reactor
        self._waiting = list(addresses)
        self._port = port
        self._pace = pace
        self._protocol = protocol
        self._attempts: dict[str, Deferred[Any]] = {}
        self._next_call: IDelayedCall | None = None
        self._is_decided = False

    def start_next(self) -> None:
        """Try the next address, and schedule the one after it."""
        self._next_call = None
        if self._is_decided or not self._waiting:
            return
        address = self._waiting.pop(0)
        endpoint_type: Any = TCP6ClientEndpoint if ":" in address else TCP4ClientEndpoint
        endpoint = endpoint_type(
            self._reactor, address, self._port, timeout=self._pace.connect_seconds
        )
        if self._waiting:
            self._next_call = self._reactor.callLater(self._pace.stagger_seconds, self.start_next)
        attempt: Deferred[Any] = endpoint.connect(_Once(self._won))
        self._attempts[address] = attempt
        attempt.addCallbacks(
            self._connected, self._failed, callbackArgs=(address,), errbackArgs=(address,)
        )

    def stop(self) -> None:
        """Abandon all connections that have not won."""
        self._is_decided = True
        if self._next_call is not None:
            self._next_call.cancel()
            self._next_call = None
        for attempt in list(self._attempts.values()):
            attempt.cancel()

    def give_up(self) -> None:
        """End the race without a winner: the time is over."""
        if not self._is_decided:
            self.stop()
            self.done.callback(None)

    def _won(self) -> TwistedProtocol | None:
        """Make the protocol of the first connection only."""
        if self._is_decided:
            return None
        self._is_decided = True
        return self._protocol(self.ready)

    def _connected(self, protocol: EngineProtocol, address: str) -> None:
        del self._attempts[address]
        self.stop()
        self.done.callback((protocol, address))

    def _failed(self, failure: Failure, address: str) -> None:
        self._attempts.pop(address, None)
        if self._is_decided:
            return  # another has won, or nobody waits any more
        error: Any = failure.value
        self.failures.append(_Failed(address, _code(error), _words(error)))
        if self._next_call is not None:
            self._next_call.cancel()
            self._next_call = None
        if self._waiting:
            self.start_next()
        elif not self._attempts:
            self._is_decided = True
            self.done.callback(None)


class _Once(Factory):
    """A factory for Twisted's endpoints."""

    noisy = False

    def __init__(self, make_protocol: Callable[[], TwistedProtocol | None]) -> None:
        self._make_protocol = make_protocol

    def buildProtocol(self, addr: IAddress | None) -> TwistedProtocol | None:
        """Return the protocol, or None to close the connection."""
        return self._make_protocol()


@implementer(IResolutionReceiver)
class _Addresses:
    """Collects the results of the system's resolver."""

    def __init__(self) -> None:
        self.done: Deferred[list[str]] = Deferred(self._cancel)
        self._resolution: IHostResolution | None = None
        self._found: list[str] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        self._resolution = resolutionInProgress

    def addressResolved(self, address: IAddress) -> None:
        host = getattr(address, "host", None)
        if host is not None and host not in self._found:
            self._found.append(host)

    def resolutionComplete(self) -> None:
        if not self.done.called:
            self.done.callback(self._found)

    def _cancel(self, _: object) -> None:
        if self._resolution is not None:
            with suppress(NotImplementedError):  # a look-up in a thread cannot be cancelled
                self._resolution.cancel()


def _code(error: BaseException) -> str:
    if isinstance(error, TlsError):
        return error.code
    if isinstance(error, twisted_error.ConnectionRefusedError):
        return "connect.refused"
    if isinstance(error, twisted_error.TimeoutError):
        return "connect.timeout"
    return "connect.unreachable"


def _words(error: BaseException) -> str:
    if isinstance(error, twisted_error.ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, twisted_error.TimeoutError):
        return "no answer in time"
    if isinstance(error, twisted_error.ConnectError) and isinstance(error.args[0], Failure):
        return str(error.args[0].value)  # closed before it was open: a readable text
    if isinstance(error, twisted_error.ConnectError) and isinstance(error.osError, int):
        words = os.strerror(error.osError)
        return words[:1].lower() + words[1:]
    return str(error)


def _no_connection(where: str, port: int, failures: Sequence[_Failed]) -> ConnectError:
    """Combine all failures into one error, ranked: TLS failures, refusals, silence."""
    attempts = tuple(
        f"[{each.address}]:{port}: {each.code}: {each.words}"
        if ":" in each.address
        else f"{each.address}:{port}: {each.code}: {each.words}"
        for each in failures
    )

    def rank(failed: _Failed) -> int:
        return _CONNECT_CODES.index(failed.code) if failed.code in _CONNECT_CODES else -1

    chief = min(failures, key=rank)
    return ConnectError(chief.code, f"no connection to {where}: {chief.words}", attempts)
