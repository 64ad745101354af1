# SPDX-License-Identifier: Apache-2.0
"""The connection attempts of one destination: one at a time, scheduled."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from amqproute.relay.connect_agent import ConnectAgent, PlacesUnreachable
from amqproute.relay.connect_scheduler import ConnectScheduler
from amqproute.relay.failure_verdict import FailureVerdict
from amqproute.relay.peer_session import PeerSession, SessionListener
from amqproute.tracebacks import without_frames
from amqproute.values import NextHop


class AttemptHost(SessionListener, Protocol):
    """The owner of an attempt: a destination that needs a session."""

    def wants_session(self) -> bool:
        """Return whether a session is still needed, now that it is this attempt's turn."""

    def opened(self, session: PeerSession) -> None:
        """Take over the new session."""

    def not_opened(self, verdict: FailureVerdict, attempts: tuple[str, ...]) -> None:
        """Handle a failed attempt; `attempts` has one line for each place tried."""

    def broken(self, failure: Failure) -> None:
        """Handle an unexpected exception."""


class ConnectAttempt:
    """Obtains sessions.

    Args:
        hop: the next hop.
        agent: opens connections.
        starts: schedules the start of attempts.
        clock: the clock for the age of an attempt.
        owner: receives the sessions and listens to them.
    """

    def __init__(
        self,
        hop: NextHop,
        agent: ConnectAgent,
        starts: ConnectScheduler,
        clock: IReactorTime,
        owner: AttemptHost,
    ) -> None:
        self._hop = hop
        self._agent = agent
        self._starts = starts
        self._clock = clock
        self._owner = owner
        self._opening: Deferred[PeerSession] | None = None
        self._began = 0.0

    @property
    def age(self) -> float | None:
        """Seconds for which an attempt has been in progress; None without one."""
        return None if self._opening is None else self._clock.seconds() - self._began

    def ask(self, urgent: bool) -> None:
        """Request an attempt, which never starts within this call."""
        self._starts.ask(self._begin, urgent)

    def cancel(self) -> None:
        """Cancel the attempt in progress or in the queue, without notification."""
        self._starts.withdraw(self._begin)
        if self._opening is not None:
            opening, self._opening = self._opening, None
            opening.cancel()

    def _begin(self) -> None:
        if not self._owner.wants_session():
            return
        self._began = self._clock.seconds()
        self._opening = opening = Deferred.fromCoroutine(self._agent.open(self._hop, self._owner))
        opening.addCallbacks(self._opened, self._not_opened)
        opening.addErrback(self._owner.broken)

    def _opened(self, session: PeerSession) -> None:
        self._opening = None
        self._owner.opened(session)

    def _not_opened(self, failure: Failure) -> None:
        unreachable = failure.value
        if isinstance(unreachable, (CancelledError, PlacesUnreachable)):
            without_frames(failure)
        if isinstance(unreachable, CancelledError):
            return
        self._opening = None
        if isinstance(unreachable, PlacesUnreachable):
            self._owner.not_opened(unreachable.verdict, unreachable.attempts)
        else:
            self._owner.broken(failure)
