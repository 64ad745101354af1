# SPDX-License-Identifier: Apache-2.0
"""Opens one connection to a next hop: resolve, connect, verify, open, attach."""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.errors import AmqprouteError, ResolveError
from amqproute.interfaces import IJournal
from amqproute.journal.event import SILENCE, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.net.pump import EngineProtocol, TransportFacts
from amqproute.relay import failure_verdict
from amqproute.relay.failure_verdict import FailureAction, FailureScope, FailureVerdict, PeerFailure
from amqproute.relay.peer_session import PeerSession, SessionListener, SessionTerms
from amqproute.trace_context import HopTracing
from amqproute.tracebacks import forget_frames
from amqproute.values import (
    RELAY_PREFIX,
    Candidate,
    NextHop,
    Resolution,
    TransportSecurity,
)
from amqproute.wire.amqp10.connection import Connection

MOST_CONTAINERS = 10_000
"""Containers remembered with the domain under which they were reached."""


class Resolver(Protocol):
    """Locates a domain: `amqproute.resolver.srv.SrvResolver`."""

    def resolve(self, domain: str) -> Awaitable[Resolution]:
        """Return the places to connect to; fails with `ResolveError`."""

    def forget(self, domain: str) -> object:
        """Query the DNS again next time."""


class PeerConnector(Protocol):
    """Connects to a place and verifies the peer: `amqproute.net.connector.Connector`."""

    def connect(
        self,
        candidate: Candidate,
        domain: str,
        make: Callable[[TransportFacts], tuple[Connection, PeerSession]],
        *,
        extra_names: Sequence[str] = (),
    ) -> Deferred[EngineProtocol]:
        """Return a Deferred that fails if no engine could be made; cancelling it gives up."""


class OutgoingIdentity(Protocol):
    """This container as peers see it.

    Attributes:
        own_id: the container-id.
        stream: names the store to peers that keep receipts.
    """

    own_id: str
    stream: str

    def engine(self, hop: NextHop, security: TransportSecurity) -> Connection:
        """Return a new engine in the client role."""

    def origin(self) -> str:
        """Return the name of ours that peers know to be proved; empty for none."""

    def tracing(self, hop: NextHop) -> HopTracing:
        """Return what becomes of the trace context of messages to a hop."""


class LookupListener(Protocol):
    """Receives the result of each look-up: `amqproute.relay.routing_decision`."""

    def made(
        self, hop: NextHop, candidates: Sequence[Candidate] = (), error: ResolveError | None = None
    ) -> None:
        """Handle the result of the look-up of a hop."""


class HopPlaces(NamedTuple):
    """The places of a hop.

    Attributes:
        candidates: the candidates, in order of preference.
        attempts: how they were found, one line each.
        ttl: seconds for which this holds; None for ever.
    """

    candidates: tuple[Candidate, ...]
    attempts: tuple[str, ...]
    ttl: float | None


class PlacesUnreachable(AmqprouteError):
    """No candidate of a hop could be used.

    Attributes:
        verdict: the verdict on the last candidate.
        attempts: one line for each candidate.
    """

    def __init__(self, verdict_: FailureVerdict, attempts: Sequence[str]) -> None:
        super().__init__(verdict_.words)
        self.verdict = verdict_
        self.attempts = tuple(attempts)


class ConnectAgent:
    """Opens connections to next hops.

    Args:
        resolver: locates domains.
        connector: connects and verifies.
        identity: this container as peers see it.
        clock: the clock for deadlines.
        now_ms: the wall clock.
        attempt_seconds: time limit for one candidate, up to the attached link.
        decisions: receives the result of each look-up; may be None.
        journal: records each attempt.

    Attributes:
        lookups: results of look-ups, by whether DNSSEC proves them and the code of the failure.
        handshakes: TLS handshakes with peers, by level and code of the failure.
    """

    log = Logger()

    def __init__(
        self,
        resolver: Resolver,
        connector: PeerConnector,
        identity: OutgoingIdentity,
        clock: IReactorTime,
        now_ms: Callable[[], int],
        attempt_seconds: float,
        decisions: LookupListener | None = None,
        journal: IJournal = SILENCE,
    ) -> None:
        self._resolver = resolver
        self._connector = connector
        self._identity = identity
        self._clock = clock
        self._now_ms = now_ms
        self.attempt_seconds = attempt_seconds
        self._decisions = decisions
        self._journal = journal
        self.lookups: Counter[tuple[bool, str]] = Counter()
        self.handshakes: Counter[tuple[str, str]] = Counter()
        self._containers: OrderedDict[str, str] = OrderedDict()

    def domain_of(self, container: str) -> str | None:
        """Return the domain under which a container was last reached; None if unknown."""
        return self._containers.get(container)

    def _met(self, container: str, domain: str) -> None:
        self._containers[container] = domain
        self._containers.move_to_end(container)
        if len(self._containers) > MOST_CONTAINERS:
            self._containers.popitem(last=False)

    async def places(self, hop: NextHop) -> HopPlaces:
        """Return the places to try, in order of preference, and how they were found.

        Raises:
            ResolveError: there are none.
        """
        if hop.via is not None:
            fixed = (static_candidate(hop.via),)
            self._looked_up(hop, fixed, None)
            return HopPlaces(fixed, (f"static route via {hop.via}",), None)
        try:
            found = await self._resolver.resolve(hop.domain)
        except ResolveError as error:
            self.lookups[False, error.code] += 1
            self._looked_up(hop, (), error)
            raise
        self.lookups[found.authenticated, ""] += 1
        self._looked_up(hop, found.candidates, None)
        return HopPlaces(found.candidates, found.attempts, found.ttl)

    def _looked_up(
        self, hop: NextHop, candidates: Sequence[Candidate], error: ResolveError | None
    ) -> None:
        if self._decisions is not None:
            self._decisions.made(hop, candidates, error)

    def forget(self, hop: NextHop) -> None:
        """Query the DNS again next time, because its data may have changed."""
        if hop.via is None:
            self._resolver.forget(hop.domain)

    async def open(self, hop: NextHop, listener: SessionListener) -> PeerSession:
        """Return a session with an attached link.

        Raises:
            PlacesUnreachable: no candidate worked; all attempts are listed.
        """
        attempts: list[str] = []
        began = self._clock.seconds()
        try:
            places = await self.places(hop)
        except AmqprouteError as error:
            attempts.extend(getattr(error, "attempts", ()))
            last = failure_verdict.for_failure(error)
            self._note(hop, listener, self._stage("resolve_us", began), last)
            forget_frames(error)
            raise PlacesUnreachable(last, attempts) from error
        resolved = self._stage("resolve_us", began)
        last = FailureVerdict(
            FailureScope.DESTINATION, FailureAction.DEFER, "dns.no-address", "no candidate"
        )
        for candidate in _in_order(places.candidates, listener.avoid):
            place = f"{candidate.host}:{candidate.port}"
            began = self._clock.seconds()
            try:
                session = await self._attempt(hop, candidate, places.ttl, listener)
            except (AmqprouteError, PeerFailure) as error:
                forget_frames(error)
                last = failure_verdict.for_failure(error)
                if last.code.startswith(("tls.", "dane.")):
                    self.handshakes["none", last.code] += 1
                facts = {"host": place, **resolved, **self._stage("connect_us", began)}
                self._note(hop, listener, facts, last)
                lines = getattr(error, "attempts", ()) or (f"{place}: {last.code}: {last.words}",)
                attempts.extend(lines)
                self.log.debug("{hop} {place}: {code}", hop=hop.key, place=place, code=last.code)
                if last.scope is FailureScope.DESTINATION:
                    break
            else:
                self._met(session.remote_id, hop.domain)
                if session.level != "none":
                    self.handshakes[session.level, ""] += 1
                facts = {"host": place, **resolved, **self._stage("connect_us", began)}
                self._note(hop, listener, {**facts, "level": session.level}, None)
                return session
        raise PlacesUnreachable(last, attempts or places.attempts)

    def _stage(self, name: str, began: float) -> dict[str, object]:
        return {name: max(0, round(1e6 * (self._clock.seconds() - began)))}

    def _note(
        self,
        hop: NextHop,
        listener: SessionListener,
        facts: dict[str, object],
        failure: FailureVerdict | None,
    ) -> None:
        """Record an attempt in the journal."""
        if not self._journal.is_kept:
            return
        facts |= {
            "node": RELAY_PREFIX + hop.key,
            "peer": f"peer:{hop.domain}",
            "attempt": listener.failures + 1,
        }
        if failure is not None:
            facts |= {
                "code": failure.code,
                "condition": failure.condition,
                "words": failure.words,
            }
        self._journal.note(RunEvent(RecordKind.ATTEMPT, self._journal.now_us(), facts))

    async def _attempt(
        self, hop: NextHop, candidate: Candidate, ttl: float | None, listener: SessionListener
    ) -> PeerSession:
        ready: Deferred[PeerSession] = Deferred()
        made: list[PeerSession] = []

        identity = self._identity

        def make(facts: TransportFacts) -> tuple[Connection, PeerSession]:
            engine = identity.engine(hop, candidate.security)
            terms = SessionTerms(
                own_id=identity.own_id,
                # Each hop has its own floor, and therefore its own stream.
                stream=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{identity.stream}/{hop.key}")),
                store=identity.stream,
                origin=identity.origin(),
                candidate=candidate,
                address=facts.host,
                ttl=ttl,
                level=facts.level,
                tracing=identity.tracing(hop),
            )
            session = PeerSession(engine, hop, listener, terms, self._now_ms, ready)
            made.append(session)
            return engine, session

        deadline = failure_verdict.for_code(
            "peer.timeout", f"no attached link within {self.attempt_seconds:.0f} s"
        )

        def late() -> None:
            if not ready.called:
                ready.errback(PeerFailure(deadline))

        call = self._clock.callLater(self.attempt_seconds, late)
        connecting = self._connector.connect(candidate, hop.domain, make, extra_names=hop.names)
        # If no engine was made, the connector's failure is the result; otherwise the session
        # reports how it ended.
        connecting.addErrback(lambda failure: None if ready.called else ready.errback(failure))
        try:
            return await ready
        except GeneratorExit:
            raise  # nobody waits for it, and nothing may run: the daemon is gone
        except BaseException:
            # Failed, late or cancelled: nothing of this attempt may survive without an owner.
            connecting.cancel()
            for session in made:
                session.abandon(deadline)
            raise
        finally:
            if call.active():
                call.cancel()


def _in_order(
    candidates: Sequence[Candidate], avoid: tuple[str, int] | None
) -> Sequence[Candidate]:
    """Return the candidates with the one to avoid last."""
    if avoid is None:
        return candidates
    return sorted(candidates, key=lambda each: (each.host, each.port) == avoid)


def static_candidate(via: str) -> Candidate:
    """Return the single candidate of a static route."""
    gateway = urlsplit(via)
    implicit = gateway.scheme == "amqps"
    return Candidate(
        host=gateway.hostname or "",
        port=gateway.port or (5671 if implicit else 5672),
        security=TransportSecurity.IMPLICIT if implicit else TransportSecurity.UPGRADE,
        addresses=(),
        priority=0,
        weight=0,
        source="static",
    )
