# SPDX-License-Identifier: Apache-2.0
"""Makes one connection to a next hop: resolve, connect, prove, open, attach."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.entry import Entry
from amqproute.errors import AmqprouteError, ResolveError
from amqproute.journal.event import SILENCE, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.relay import failure_verdict
from amqproute.relay.failure_verdict import FailureAction, FailureScope, FailureVerdict, PeerFailure
from amqproute.relay.peer_session import PeerSession
from amqproute.tracebacks import forget_frames
from amqproute.values import RELAY_PREFIX, Candidate, NextHop, TransportSecurity
from amqproute.wire.amqp10.connection import Connection

MOST_CONTAINERS = 10_000
"""Containers of which it is remembered for which domain they were reached."""


@dataclass(slots=True)
class SessionListener:
    """What a session tells its destination, and asks it; see `PeerSession`.

    Attributes:
        avoid: host and port from which the last connection was lost: tried last.
        attempt: which attempt this is, from 1.
    """

    floor: Callable[[], int]
    ended: Callable[[PeerSession, FailureVerdict], None]
    outcomes: Callable[[Sequence[Entry], FailureVerdict, Any], None]
    commit: Callable[[], None]
    room: Callable[[], None]
    doubtful: Callable[[], Sequence[int]] = tuple
    cannot_resume: Callable[[], None] = lambda: None
    avoid: tuple[str, int] | None = None
    attempt: int = 1


class HopPlaces(NamedTuple):
    """Where a hop can be reached.

    Attributes:
        candidates: in the order to try.
        attempts: how they were found, a line each.
        ttl: for how many seconds that is true; None for ever.
    """

    candidates: tuple[Candidate, ...]
    attempts: tuple[str, ...]
    ttl: float | None


class PlacesUnreachable(AmqprouteError):
    """No candidate of a hop could be used.

    Attributes:
        verdict: of the last one tried.
        attempts: a line for each.
    """

    def __init__(self, verdict_: FailureVerdict, attempts: Sequence[str]) -> None:
        super().__init__(verdict_.words)
        self.verdict = verdict_
        self.attempts = tuple(attempts)


class ConnectAgent:
    """Opens connections to next hops.

    Args:
        resolver: domain to `Resolution`.
        connector: candidate to connected, verified transport.
        engine: makes a client-role engine for (hop, security).
        clock: for deadlines.
        own_id: our container-id.
        stream: names our store to peers that keep receipts.
        now_ms: the wall clock.
        attempt_seconds: the longest one candidate may take to an attached link.
        origin: gives the name that peers know us to have proved; empty for none.
        decided: told what each look-up leads to; see `routing_decision`.
        journal: where each attempt is noted, an `IJournal`.
    """

    log = Logger()

    def __init__(
        self,
        resolver: Any,
        connector: Any,
        engine: Callable[[NextHop, TransportSecurity], Connection],
        clock: IReactorTime,
        *,
        own_id: str,
        stream: str,
        now_ms: Callable[[], int],
        attempt_seconds: float,
        origin: Callable[[], str] = str,
        decided: Callable[[NextHop, Sequence[Candidate], ResolveError | None], None] | None = None,
        journal: Any = SILENCE,
    ) -> None:
        self._resolver = resolver
        self._connector = connector
        self._engine = engine
        self._clock = clock
        self._own_id = own_id
        self._stream = stream
        self._now_ms = now_ms
        self.attempt_seconds = attempt_seconds
        self._origin = origin
        self._decided = decided or (lambda *_: None)
        self._journal = journal
        self._containers: OrderedDict[str, str] = OrderedDict()

    def domain_of(self, container: str) -> str | None:
        """Return the domain for which a container was reached last; None if it was not of late."""
        return self._containers.get(container)

    def _met(self, container: str, domain: str) -> None:
        self._containers[container] = domain
        self._containers.move_to_end(container)
        if len(self._containers) > MOST_CONTAINERS:
            self._containers.popitem(last=False)

    async def places(self, hop: NextHop) -> HopPlaces:
        """Return the places to try, in order, and how they were found.

        Raises:
            ResolveError: there are none.
        """
        if hop.via is not None:
            fixed = (static_candidate(hop.via),)
            self._decided(hop, fixed, None)
            return HopPlaces(fixed, (f"static route via {hop.via}",), None)
        try:
            found = await self._resolver.resolve(hop.domain)
        except ResolveError as error:
            self._decided(hop, (), error)
            raise
        self._decided(hop, found.candidates, None)
        return HopPlaces(found.candidates, found.attempts, found.ttl)

    def forget(self, hop: NextHop) -> None:
        """Ask the DNS anew next time: there is reason to think that things have changed."""
        if hop.via is None:
            self._resolver.forget(hop.domain)

    async def open(self, hop: NextHop, listener: SessionListener) -> PeerSession:
        """Return a session with an attached link.

        Raises:
            PlacesUnreachable: no candidate worked; every attempt is listed.
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
                facts = {"host": place, **resolved, **self._stage("connect_us", began)}
                self._note(hop, listener, facts, last)
                lines = getattr(error, "attempts", ()) or (f"{place}: {last.code}: {last.words}",)
                attempts.extend(lines)
                self.log.debug("{hop} {place}: {code}", hop=hop.key, place=place, code=last.code)
                if last.scope is FailureScope.DESTINATION:
                    break
            else:
                self._met(session.remote_id, hop.domain)
                facts = {"host": place, **resolved, **self._stage("connect_us", began)}
                self._note(hop, listener, {**facts, "level": session.level}, None)
                return session
        raise PlacesUnreachable(last, attempts or places.attempts)

    def _stage(self, name: str, began: float) -> dict[str, Any]:
        return {name: max(0, round(1e6 * (self._clock.seconds() - began)))}

    def _note(
        self,
        hop: NextHop,
        listener: SessionListener,
        facts: dict[str, Any],
        failure: FailureVerdict | None,
    ) -> None:
        """Have an attempt in the journal."""
        if not self._journal.is_kept:
            return
        facts |= {
            "node": RELAY_PREFIX + hop.key,
            "peer": f"peer:{hop.domain}",
            "attempt": listener.attempt,
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

        def attached(session: PeerSession) -> None:
            if not ready.called:
                ready.callback(session)
            else:
                session.abandon(deadline)

        def ended(session: PeerSession, why: FailureVerdict) -> None:
            if not ready.called:
                ready.errback(PeerFailure(why))
            else:
                listener.ended(session, why)

        def make(facts: Any) -> tuple[Connection, PeerSession]:
            engine = self._engine(hop, candidate.security)
            session = PeerSession(
                engine,
                hop,
                own_id=self._own_id,
                # Each hop has a floor of its own, and so a stream of its own.
                stream=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._stream}/{hop.key}")),
                floor=listener.floor,
                now_ms=self._now_ms,
                attached=attached,
                ended=ended,
                outcomes=listener.outcomes,
                commit=listener.commit,
                room=listener.room,
                doubtful=listener.doubtful,
                cannot_resume=listener.cannot_resume,
                candidate=candidate,
                address=facts.host,
                ttl=ttl,
                origin=self._origin(),
                level=facts.level,
                store=self._stream,
            )
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
        # The connector's own failure comes first when no engine was made; once one was made, its
        # session tells how it ended.
        connecting.addErrback(lambda failure: None if ready.called else ready.errback(failure))
        try:
            return await ready
        except GeneratorExit:
            raise  # nobody waits for it any more, and nothing may run: the house is gone
        except BaseException:
            # Failed, late or cancelled: nothing of this attempt may live on without an owner.
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
    """Put the one to avoid last."""
    if avoid is None:
        return candidates
    return sorted(candidates, key=lambda each: (each.host, each.port) == avoid)


def static_candidate(via: str) -> Candidate:
    """Return the one candidate of a static route."""
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
