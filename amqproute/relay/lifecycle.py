# SPDX-License-Identifier: Apache-2.0
"""What a destination does next: data and decisions, without a clock, a queue or a connection.

Each event comes with the time at which it happens. It changes the data of a `DestinationLifecycle`
and returns the steps that follow, in order; `amqproute.relay.destination.Destination` takes them,
and calls `DestinationLifecycle.due` at `DestinationLifecycle.next_deadline`.

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
"""How long a destination without messages and connection is kept, for the next message."""
UNSURE_SECONDS: Final = 30.0
"""The same where the store fails."""
CONTACT_SECONDS: Final = 2.0
"""A peer that calls in is tried at once, but not more often than this; nor is an attempt given up
for it that is younger."""
GRAIN: Final = 1e-6
"""A deadline that is closer than this has come: sums of seconds are not exact."""


class DestinationState(enum.Enum):
    """Where a destination is; see the package docstring for the transitions."""

    IDLE = "idle"
    CONNECTING = "connecting"
    OPEN = "open"
    WAITING = "waiting"
    REFUSED = "refused"


class NextStep(enum.Enum):
    """One thing to do."""

    CONNECT = "connect"
    """Ask for an attempt, in its turn."""
    CANCEL_ATTEMPT = "cancel attempt"
    ASK_DNS = "ask DNS"
    """Have the addresses looked up again."""
    DISPATCH = "dispatch"
    """Have the queue deliver."""
    RESUME = "resume"
    """The wait is over: have the queue deliver."""
    UNDEFER = "undefer"
    """End the wait of single messages, but for those that are suspected."""
    UNDEFER_ALL = "undefer all"
    CONFIRM_EMPTY = "confirm empty"
    """Have a commit behind all others say that the messages have left the disk."""
    PERSIST = "persist"
    FORGET = "forget"
    """Remove the destination."""


Steps: TypeAlias = tuple[NextStep, ...]
NOTHING: Final[Steps] = ()


class WaitChoice(enum.Enum):
    """What follows a failed attempt."""

    GIVE_UP = "give up"
    """There is proof that the hop does not exist: its messages go back."""
    KEEP = "keep"
    """The attempt was out of turn: the one that was planned before stays."""
    BACK_OFF = "back off"
    """`DestinationLifecycle.wait_until` is to say until when."""


class SessionEnd(enum.Enum):
    """How a session has ended."""

    STOPPED = "stopped"
    """We stop."""
    CLOSED = "closed"
    """We have closed it."""
    IN_DOUBT = "in doubt"
    """It may be for a message, or was of no use."""
    LOST = "lost"
    LEFT = "left"
    """The peer has closed it when it had nothing to do."""


CLOSED_BY_US: Final = frozenset({"connection.closed", "peer.moved"})


@dataclass(slots=True)
class DestinationLifecycle:
    """The life of one destination between and during connections.

    Attributes:
        state: where it is.
        held: why nothing is sent; None if it is.
        is_stopping: nothing new is sent any more.
        is_urgent: the next attempt goes before those of others.
        was_useful: the session has brought an acceptance.
        retry_at: when the wait is over; None while it does not wait.
        planned_retry_at: when it would have been over, had the peer not called in.
        probe_at: when to try because the peer has called in; None for not at all.
        check_at: when to look whether it can be removed; None for not at all.
        contacted_at: when it was tried last because the peer had called in.
        refused_until: until when its messages are refused.
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
        """Return when `due` has something to say; None for never."""
        deadlines = (self.retry_at, self.probe_at, self.check_at)
        return min((each for each in deadlines if each is not None), default=None)

    def due(self, now: float) -> Steps:
        """Act on the deadlines that have passed."""
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
        """There are messages, and no session."""
        if self.state is not DestinationState.IDLE or self.held is not None or self.is_stopping:
            return NOTHING
        self.state = DestinationState.CONNECTING
        self.retry_at = None
        return (NextStep.CONNECT,)

    def may_begin(self, has_messages: bool) -> bool:
        """An attempt has its turn: tell whether it is still wanted."""
        if not has_messages or self.held is not None:
            self.state = DestinationState.IDLE
            return False
        self.is_urgent = False
        return True

    def opened(self) -> Steps:
        """There is a session."""
        self.state = DestinationState.OPEN
        self.planned_retry_at = None
        self.was_useful = False
        return NextStep.UNDEFER, NextStep.DISPATCH

    def failed(self, verdict: FailureVerdict, now: float) -> WaitChoice:
        """An attempt has failed, or a session has ended before it was of use."""
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
        """Try again then."""
        self.state = DestinationState.WAITING
        self.retry_at = at

    def _resume(self) -> Steps:
        self.retry_at = None
        self.state = DestinationState.IDLE
        return (NextStep.RESUME,)

    def ended(self, verdict: FailureVerdict, has_doubt: bool) -> SessionEnd:
        """The session is over; where it was lost, `failed` or `wait_until` follows.

        Args:
            verdict: why.
            has_doubt: it leaves messages without an outcome.
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

    # -- somebody asks for an attempt ------------------------------------------------------------

    def wake(self) -> Steps:
        """An operator asks (T-37)."""
        if self.state is not DestinationState.WAITING:
            return (NextStep.UNDEFER_ALL,)
        self.is_urgent = True
        return *self._resume(), NextStep.UNDEFER_ALL

    def contacted(self, now: float, attempt_age: float | None) -> Steps:
        """The peer has called in, so it is up (T-37).

        Args:
            now: the time.
            attempt_age: of the attempt that is being made; None for none.
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
        """Send nothing."""
        self.held = reason

    def unhold(self) -> Steps:
        """Send again."""
        if self.held is None:
            return NOTHING
        self.held = None
        return (NextStep.DISPATCH,)

    def is_refused(self, now: float) -> bool:
        """Tell whether messages are refused (T-25), and end the refusal when it is over."""
        if self.state is not DestinationState.REFUSED:
            return False
        if now < self.refused_until:
            return True
        self.state = DestinationState.IDLE
        return False

    def end_refusal(self) -> Steps:
        """Refuse nothing any more."""
        if self.state is not DestinationState.REFUSED:
            return NOTHING
        self.state = DestinationState.IDLE
        return (NextStep.DISPATCH,)

    # -- the end ---------------------------------------------------------------------------------

    def emptied(self, at: float) -> None:
        """The last message has left: look then whether the destination can be removed."""
        if not self.is_stopping:
            self.check_at = at

    def confirmed(self, is_empty: bool, is_settled: bool, now: float) -> Steps:
        """The commit behind all others is on the disk.

        Args:
            is_empty: there are no messages, and no session.
            is_settled: nothing is on its way to the store.
            now: the time.
        """
        if not is_empty:
            return (NextStep.PERSIST,)  # a message came while the note was being deleted
        if not is_settled:
            self.emptied(now + EMPTY_SECONDS)
            return NOTHING
        if self.state is not DestinationState.CONNECTING:
            return (NextStep.FORGET,)
        self.state = DestinationState.IDLE
        return NextStep.CANCEL_ATTEMPT, NextStep.FORGET

    def stop_sending(self) -> Steps:
        """Send nothing new."""
        self.is_stopping = True
        self.retry_at = self.probe_at = None
        if self.state is DestinationState.CONNECTING:
            self.state = DestinationState.IDLE
        return (NextStep.CANCEL_ATTEMPT,)

    def stop(self) -> None:
        """Have no deadline any more."""
        self.retry_at = self.probe_at = self.check_at = None
