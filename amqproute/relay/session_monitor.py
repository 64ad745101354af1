# SPDX-License-Identifier: Apache-2.0
"""Monitors an open connection: whether it is used, answered, and still at the right place.

============  ====================================================================================
unused        nothing in flight and nothing waiting for a while: the connection is closed
stuck         one delivery has been without an outcome for too long after it was written
moved         the DNS, queried again when its answer has expired, leads elsewhere: nothing more
              is sent, outcomes are awaited, and the next connection goes there
============  ====================================================================================

In each case the connection ends, and the verdict gives the destination the reason.

None of this costs anything per message. A stuck delivery is found by checking the oldest delivery
from time to time: if it is the same as before, it has had no outcome.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeadlineError
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.errors import AmqprouteError
from amqproute.relay.connect_agent import ConnectAgent, HopPlaces
from amqproute.relay.failure_verdict import for_code
from amqproute.relay.peer_session import PeerSession
from amqproute.values import NextHop

SHORTEST_TTL = 30.0
LONGEST_TTL = 3600.0
"""Bounds of the time, in seconds, after which the DNS is queried again."""
LOOKS = 4
"""Number of checks of the oldest delivery within the time it may take."""
LOOKUP_SECONDS = 60.0
DRAIN_SECONDS = 30.0
"""Time to wait for outcomes on a connection that will move to another place."""


class SessionMonitor:
    """Monitors one session of a destination.

    Args:
        session: the session.
        hop: its next hop.
        agent: queries the DNS.
        clock: the clock for timers.
        idle_seconds: how long a connection may be unused.
        settle_seconds: how long a delivery may be without an outcome.
        is_unused: returns whether the session has been unused for that long.
        before_close: called before a clean close.

    Attributes:
        is_draining: whether sending has stopped.
    """

    log = Logger()

    def __init__(
        self,
        session: PeerSession,
        hop: NextHop,
        agent: ConnectAgent,
        clock: IReactorTime,
        *,
        idle_seconds: float,
        settle_seconds: float,
        is_unused: Callable[[], bool],
        before_close: Callable[[], None],
    ) -> None:
        self.is_draining = False
        self._session = session
        self._hop = hop
        self._agent = agent
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._settle_seconds = settle_seconds
        self._is_unused = is_unused
        self._before_close = before_close
        self._calls: dict[str, IDelayedCall] = {}
        self._looking_up: Deferred[HopPlaces] | None = None
        self._oldest: object = None
        self._oldest_since = 0.0
        self._arm("unused", idle_seconds, self._check_idle)
        self._arm("stuck", settle_seconds / LOOKS, self._check_stuck)
        self._arm_moved()

    def stop(self) -> None:
        """Cancel the timers."""
        for call in self._calls.values():
            if call.active():
                call.cancel()
        self._calls.clear()
        if self._looking_up is not None:
            self._looking_up.cancel()

    def _arm(self, what: str, seconds: float, look: Callable[[], None]) -> None:
        self._calls[what] = self._clock.callLater(seconds, look)

    # -- unused ----------------------------------------------------------------------------------

    def _check_idle(self) -> None:
        if self._is_unused():
            self._before_close()
            self._session.close()
        else:
            self._arm("unused", self._idle_seconds, self._check_idle)

    # -- stuck -----------------------------------------------------------------------------------

    def _check_stuck(self) -> None:
        now = self._clock.seconds()
        oldest = self._session.oldest_in_flight
        if oldest is None or oldest != self._oldest:
            self._oldest = oldest
            self._oldest_since = now
        elif now - self._oldest_since >= self._settle_seconds:
            seconds = now - self._oldest_since
            self.log.warn(
                "{destination} has given no outcome for {seconds:.0f} s, {count} messages are "
                "without one: the connection is made again",
                destination=self._hop.key,
                seconds=seconds,
                count=self._session.in_flight,
            )
            self._session.abandon(for_code("peer.stuck", f"no outcome for {seconds:.0f} s"))
            return
        self._arm("stuck", self._settle_seconds / LOOKS, self._check_stuck)

    # -- moved -----------------------------------------------------------------------------------

    def _arm_moved(self) -> None:
        ttl = self._session.ttl
        if ttl is not None:
            wait = min(LONGEST_TTL, max(SHORTEST_TTL, ttl))
            self._arm("moved", wait, self._ask)

    def _ask(self) -> None:
        places = Deferred.fromCoroutine(self._agent.places(self._hop))
        self._looking_up = places
        places.addTimeout(LOOKUP_SECONDS, self._clock)
        places.addCallbacks(self._answered, self._unanswered)
        places.addErrback(self._broken)

    def _answered(self, places: HopPlaces) -> None:
        self._looking_up = None
        if self._session.is_at(places.candidates):
            self._session.ttl = places.ttl
            self._arm_moved()
            return
        self.log.info(
            "{destination} has moved: the connection follows the DNS", destination=self._hop.key
        )
        self.is_draining = True
        self._arm("drain", DRAIN_SECONDS, self._leave)
        self.read()

    def read(self) -> None:
        """Leave a draining connection after its last outcome; called after each read."""
        if self.is_draining and not self._session.in_flight:
            self._leave()

    def _leave(self) -> None:
        self._before_close()
        self._session.close(for_code("peer.moved", "the DNS names other hosts now"))

    def _unanswered(self, failure: Failure) -> None:
        """Keep the connection: a DNS failure or denial is no reason to end it."""
        self._looking_up = None
        if not isinstance(failure.value, (AmqprouteError, CancelledError, DeadlineError)):
            self._broken(failure)
        elif self._calls:
            self._arm_moved()

    def _broken(self, failure: Failure) -> None:
        self._looking_up = None
        self.log.failure("{destination} could not be looked up", failure, destination=self._hop.key)
        if self._calls:
            self._arm_moved()
