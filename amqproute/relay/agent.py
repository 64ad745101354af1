# SPDX-License-Identifier: Apache-2.0
"""Makes one connection to a next hop: resolve, connect, prove, open, attach."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.entry import Entry
from amqproute.errors import AmqprouteError
from amqproute.relay import verdict
from amqproute.relay.peer import PeerSession
from amqproute.relay.verdict import Action, PeerFailure, Scope, Verdict
from amqproute.values import Candidate, NextHop, TransportSecurity
from amqproute.wire.amqp10.connection import Connection


@dataclass(slots=True)
class Told:
    """What a session tells its destination; see `PeerSession`."""

    floor: Callable[[], int]
    ended: Callable[[PeerSession, Verdict], None]
    outcomes: Callable[[Sequence[Entry], Verdict, Any], None]
    commit: Callable[[], None]
    room: Callable[[], None]


class Unreachable(AmqprouteError):
    """No candidate of a hop could be used.

    Attributes:
        verdict: of the last one tried.
        attempts: a line for each.
    """

    def __init__(self, verdict_: Verdict, attempts: Sequence[str]) -> None:
        super().__init__(verdict_.words)
        self.verdict = verdict_
        self.attempts = tuple(attempts)


class Agent:
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
    ) -> None:
        self._resolver = resolver
        self._connector = connector
        self._engine = engine
        self._clock = clock
        self._own_id = own_id
        self._stream = stream
        self._now_ms = now_ms
        self.attempt_seconds = attempt_seconds

    async def candidates(self, hop: NextHop) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
        """Return the places to try, in order, and how they were found.

        Raises:
            ResolveError: there are none.
        """
        if hop.via is not None:
            return (static_candidate(hop.via),), (f"static route via {hop.via}",)
        resolution = await self._resolver.resolve(hop.domain)
        return resolution.candidates, resolution.attempts

    async def open(self, hop: NextHop, told: Told) -> PeerSession:
        """Return a session with an attached link.

        Raises:
            Unreachable: no candidate worked; every attempt is listed.
        """
        attempts: list[str] = []
        try:
            candidates, found = await self.candidates(hop)
        except AmqprouteError as error:
            attempts.extend(getattr(error, "attempts", ()))
            raise Unreachable(verdict.for_failure(error), attempts) from error
        last = Verdict(Scope.DESTINATION, Action.DEFER, "dns.no-address", "no candidate")
        for candidate in candidates:
            place = f"{candidate.host}:{candidate.port}"
            try:
                return await self._attempt(hop, candidate, told)
            except (AmqprouteError, PeerFailure) as error:
                last = verdict.for_failure(error)
                lines = getattr(error, "attempts", ()) or (f"{place}: {last.code}: {last.words}",)
                attempts.extend(lines)
                self.log.debug("{hop} {place}: {code}", hop=hop.key, place=place, code=last.code)
                if last.scope is Scope.DESTINATION:
                    break
        raise Unreachable(last, attempts or found)

    async def _attempt(self, hop: NextHop, candidate: Candidate, told: Told) -> PeerSession:
        ready: Deferred[PeerSession] = Deferred()
        made: list[PeerSession] = []

        def attached(session: PeerSession) -> None:
            if not ready.called:
                ready.callback(session)
            else:
                session.abandon(deadline)

        def ended(session: PeerSession, why: Verdict) -> None:
            if not ready.called:
                ready.errback(PeerFailure(why))
            else:
                told.ended(session, why)

        def make(_: Any) -> tuple[Connection, PeerSession]:
            engine = self._engine(hop, candidate.security)
            session = PeerSession(
                engine,
                hop,
                own_id=self._own_id,
                # Each hop has a floor of its own, and so a stream of its own.
                stream=str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._stream}/{hop.key}")),
                floor=told.floor,
                now_ms=self._now_ms,
                attached=attached,
                ended=ended,
                outcomes=told.outcomes,
                commit=told.commit,
                room=told.room,
            )
            made.append(session)
            return engine, session

        deadline = Verdict(
            Scope.HOST,
            Action.NEXT_HOST,
            "peer.timeout",
            f"no attached link within {self.attempt_seconds:.0f} s",
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
        except BaseException:
            # Failed, late or cancelled: nothing of this attempt may live on without an owner.
            connecting.cancel()
            for session in made:
                session.abandon(deadline)
            raise
        finally:
            if call.active():
                call.cancel()


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
