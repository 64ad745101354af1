# SPDX-License-Identifier: Apache-2.0
"""The state machine of a destination: data and decisions, without clock, queue or connection.

Each event comes with its time. It changes the data of a `DestinationLifecycle` and returns the
steps that follow, in order; `amqproute.relay.destination.Destination` executes them, and calls
`DestinationLifecycle.due` at `DestinationLifecycle.next_deadline`.

    idle --messages_waiting--> connecting --opened--> open --ended--> idle
                                 |    ^                 |
                              failed  +-- due --+     ended, failed
                                 v              |       |
                        refused or waiting -----+ <-----+

Times are seconds of the reactor's clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

from amqproute.relay.failure_verdict import FailureAction, FailureVerdict

__all__ = [
    "CONTACT_SECONDS",
    "EMPTY_SECONDS",
    "UNSURE_SECONDS",
    "DestinationLifecycle",
    "DestinationState",
    "NextStep",
    "SessionEnd",
    "WaitChoice",
]

EMPTY_SECONDS: Final = 1.0
"""Time for which a destination without messages and connection is kept."""
UNSURE_SECONDS: Final = 30.0
"""The same if the store fails."""
CONTACT_SECONDS: Final = 2.0
"""A peer that connects to us is tried at once, but not more often than at this interval; nor is a
younger attempt cancelled for it."""
GRAIN: Final = 1e-6
"""A deadline closer than this is due: sums of seconds are not exact."""


class DestinationState(enum.Enum):
    """The state of a destination; see the package docstring for the transitions."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    REFUSED = "refused"


class NextStep(enum.Enum):
    """One step to execute."""

    CONNECT = "connect"
    """Request a connection attempt."""
    CANCEL_ATTEMPT = "cancel attempt"
    ASK_DNS = "ask DNS"
    """Query the DNS again."""
    DISPATCH = "dispatch"
    """Have the queue deliver."""
    RESUME = "resume"
    """The delay has ended: have the queue deliver."""
    UNDEFER = "undefer"
    """End the delay of single messages, except suspects."""
    UNDEFER_ALL = "undefer all"
    CONFIRM_EMPTY = "confirm empty"
    """Confirm by a commit behind all others that the messages have left the disk."""
    PERSIST = "persist"
    FORGET = "forget"
    """Remove the destination."""


Steps: TypeAlias = tuple[NextStep, ...]
NOTHING: Final[Steps] = ()


class WaitChoice(enum.Enum):
    """Consequence of a failed attempt."""

    GIVE_UP = "give up"
    """It is proved that the hop does not exist: return its messages."""
    KEEP = "keep"
    """The attempt was an extra one: the planned one remains."""
    BACK_OFF = "back off"
    """Back off; call `DestinationLifecycle.wait_until` with the time."""


class SessionEnd(enum.Enum):
    """End of a session."""

    STOPPED = "stopped"
    """The daemon stops."""
    CLOSED = "closed"
    """This side has closed it."""
    IN_DOUBT = "in doubt"
    """It ended with messages in doubt, or without being useful."""
    LOST = "lost"
    LEFT = "left"
    """The peer has closed it while idle."""


CLOSED_BY_US: Final = frozenset({"connection.closed", "peer.moved"})


@dataclass(slots=True)
class DestinationLifecycle:
    """The state of one destination between and during connections.

    Attributes:
        state: the current state.
        held: why nothing is sent; None unless held.
        is_stopping: whether sending has stopped for good.
        is_urgent: whether the next attempt precedes those of others.
        was_useful: whether the session has brought an acceptance.
        retry_at: when the delay ends; None without one.
        planned_retry_at: when the delay would have ended without the peer's call.
        probe_at: when to try because the peer has connected to us; None for never.
        check_at: when to check whether the destination can be removed; None for never.
        contacted_at: time of the last attempt caused by the peer's call.
        refused_until: end of the refusal of messages.
    """

    state: DestinationState = DestinationState.IDLE
    held: str | None = None
    is_stopping: bool = False
    is_urgent: bool = False
    was_useful: bool = False
    retry_at: float | None = None
    planned_retry_at: float | None = None
    probe_at: float | None = None
    check_at: float | None = None
    contacted_at: float = -CONTACT_SECONDS
    refused_until: float = 0.0

    # -- time ------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return the time of the next call of `due`; None for never."""
        deadlines = (self.retry_at, self.probe_at, self.check_at)
        return min((each for each in deadlines if each is not None), default=None)

    def due(self, now: float) -> Steps:
        """Act on expired deadlines."""
        steps = NOTHING
        limit = now + GRAIN
        if self.retry_at is not None and self.retry_at <= limit:
            steps += self._resume()
        if self.probe_at is not None and self.probe_at <= limit:
            steps += self._probe(now)
        if self.check_at is not None and self.check_at <= limit:
            self.check_at = None
            steps += (NextStep.CONFIRM_EMPTY,)
        return steps

    # -- connecting ------------------------------------------------------------------------------

    def messages_waiting(self) -> Steps:
        """Handle waiting messages without a session."""
        if self.state is not DestinationState.IDLE or self.held is not None or self.is_stopping:
            return NOTHING
        self.state = DestinationState.CONNECTING
        self.retry_at = None
        return (NextStep.CONNECT,)

    def may_begin(self, has_messages: bool) -> bool:
        """Return whether an attempt is still needed, now that it is its turn."""
        if not has_messages or self.held is not None:
            self.state = DestinationState.IDLE
            return False
        self.is_urgent = False
        return True

    def opened(self) -> Steps:
        """Handle a new session."""
        self.state = DestinationState.OPEN
        self.planned_retry_at = None
        self.was_useful = False
        return NextStep.UNDEFER, NextStep.DISPATCH

    def failed(self, verdict: FailureVerdict, now: float) -> WaitChoice:
        """Handle a failed attempt, or the end of a session that was not useful."""
        planned, self.planned_retry_at = self.planned_retry_at, None
        if verdict.action is FailureAction.REJECT:
            self.state = DestinationState.REFUSED
            self.refused_until = now + verdict.lasts
            return WaitChoice.GIVE_UP
        if planned is not None and planned > now:
            self.wait_until(planned)
            return WaitChoice.KEEP
        return WaitChoice.BACK_OFF

    def wait_until(self, at: float) -> None:
        """Set the time of the next attempt."""
        self.state = DestinationState.WAITING
        self.retry_at = at

    def _resume(self) -> Steps:
        self.retry_at = None
        self.state = DestinationState.IDLE
        return (NextStep.RESUME,)

    def ended(self, verdict: FailureVerdict, has_doubt: bool) -> SessionEnd:
        """Handle the end of a session; after a loss, `failed` or `wait_until` follows.

        Args:
            verdict: the reason.
            has_doubt: whether messages are left without an outcome.
        """
        if self.is_stopping:
            end = SessionEnd.STOPPED
        elif verdict.code in CLOSED_BY_US:
            end = SessionEnd.CLOSED
        elif has_doubt or verdict.condition is not None or not self.was_useful:
            return SessionEnd.IN_DOUBT
        elif verdict.action in (FailureAction.DEFER, FailureAction.RETRY):
            return SessionEnd.LOST
        else:
            end = SessionEnd.LEFT
        self.state = DestinationState.IDLE
        return end

    # -- requested attempts ----------------------------------------------------------------------

    def wake(self) -> Steps:
        """Try now, for an operator (T-37)."""
        if self.state is not DestinationState.WAITING:
            return (NextStep.UNDEFER_ALL,)
        self.is_urgent = True
        return *self._resume(), NextStep.UNDEFER_ALL

    def contacted(self, now: float, attempt_age: float | None) -> Steps:
        """Try now, because the peer has connected to us and is therefore up (T-37).

        Args:
            now: the time.
            attempt_age: age of the attempt in progress; None without one.
        """
        if self.state is DestinationState.OPEN:
            return (NextStep.UNDEFER,)
        is_young = attempt_age is not None and attempt_age < CONTACT_SECONDS
        if self.held is not None or self.is_stopping or is_young or self.probe_at is not None:
            return NOTHING
        at = self.contacted_at + CONTACT_SECONDS
        if at > now:
            self.probe_at = at
            return NOTHING
        return self._probe(now)

    def _probe(self, now: float) -> Steps:
        self.probe_at = None
        self.contacted_at = now
        if self.state is DestinationState.WAITING:
            self.planned_retry_at = self.retry_at
        elif self.state is not DestinationState.CONNECTING:
            return (NextStep.DISPATCH,)
        self.is_urgent = True
        resume = self._resume()
        return NextStep.CANCEL_ATTEMPT, NextStep.ASK_DNS, *resume, NextStep.UNDEFER

    # -- holds and refusals ----------------------------------------------------------------------

    def hold(self, reason: str) -> None:
        """Stop sending."""
        self.held = reason

    def unhold(self) -> Steps:
        """Resume sending."""
        if self.held is None:
            return NOTHING
        self.held = None
        return (NextStep.DISPATCH,)

    def is_refused(self, now: float) -> bool:
        """Return whether messages are refused (T-25); end an expired refusal."""
        if self.state is not DestinationState.REFUSED:
            return False
        if now < self.refused_until:
            return True
        self.state = DestinationState.IDLE
        return False

    def end_refusal(self) -> Steps:
        """End the refusal."""
        if self.state is not DestinationState.REFUSED:
            return NOTHING
        self.state = DestinationState.IDLE
        return (NextStep.DISPATCH,)

    # -- removal ---------------------------------------------------------------------------------

    def emptied(self, at: float) -> None:
        """The last message has left: check at this time whether the destination can be removed."""
        if not self.is_stopping:
            self.check_at = at

    def confirmed(self, is_empty: bool, is_settled: bool, now: float) -> Steps:
        """Handle the success of the commit that followed all others.

        Args:
            is_empty: there are no messages, and no session.
            is_settled: nothing is being written to the store.
            now: the time.
        """
        if not is_empty:
            return (NextStep.PERSIST,)  # a message arrived while the note was being deleted
        if not is_settled:
            self.emptied(now + EMPTY_SECONDS)
            return NOTHING
        if self.state is not DestinationState.CONNECTING:
            return (NextStep.FORGET,)
        self.state = DestinationState.IDLE
        return NextStep.CANCEL_ATTEMPT, NextStep.FORGET

    def stop_sending(self) -> Steps:
        """Send no new messages."""
        self.is_stopping = True
        self.retry_at = self.probe_at = None
        if self.state is DestinationState.CONNECTING:
            self.state = DestinationState.IDLE
        return (NextStep.CANCEL_ATTEMPT,)

    def stop(self) -> None:
        """Clear all deadlines."""
        self.retry_at = self.probe_at = self.check_at = None
