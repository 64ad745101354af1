# SPDX-License-Identifier: Apache-2.0
"""What a failure means: the one table of policy (T-23, T-25, T-26).

Two questions are answered for everything that can go wrong on the way to a peer: *how far does it
reach* (this message, this host, the whole destination) and *what happens*. Nobody else in the
house decides this. "Full" is not "never": conditions that time may cure never reject.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from amqproute import conditions
from amqproute.errors import ConnectError, ResolveError, TlsError
from amqproute.wire.amqp10 import spec


class Scope(enum.Enum):
    """How far a failure reaches."""

    MESSAGE = "message"
    HOST = "host"
    DESTINATION = "destination"


class Action(enum.Enum):
    """What happens."""

    SETTLE = "settle"  # the peer has it: forget it
    RETRY = "retry"  # offer it again after a while
    COUNT = "count"  # the same, and count a failed delivery
    REJECT = "reject"  # it will never be taken: dead letter, or back to its sender
    NEXT_HOST = "next-host"  # try the next candidate; after the last, defer the destination
    DEFER = "defer"  # the destination backs off; its messages wait


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do.

    Attributes:
        scope: how far it reaches.
        action: what happens.
        code: a stable code for logs, reports and figures.
        words: the cause, for people; the peer's own words where there are any.
        condition: the AMQP condition behind it, if there is one.
    """

    scope: Scope
    action: Action
    code: str
    words: str = ""
    condition: str | None = None

    @property
    def is_fault(self) -> bool:
        """Somebody broke the protocol: not the network, a stop, or a limit that time cures."""
        return self.condition is not None and self.condition not in TEMPORARY


ACCEPTED: Final = Verdict(Scope.MESSAGE, Action.SETTLE, "message.accepted")

TEMPORARY: Final = frozenset(
    (
        conditions.RESOURCE_LIMIT_EXCEEDED,
        conditions.RESOURCE_LOCKED,
        conditions.INTERNAL_ERROR,
        conditions.CONNECTION_FORCED,
        conditions.LINK_DETACH_FORCED,
        conditions.LINK_STOLEN,
        conditions.LINK_TRANSFER_LIMIT_EXCEEDED,
        conditions.SESSION_WINDOW_VIOLATION,
    )
)
"""A message rejected with one of these is offered again; time may cure it."""

HOST_CONDITIONS: Final[dict[str, Action]] = {
    # A link or connection that ended with one of these says something about the host as it is
    # now; anything that is not listed does too.
    conditions.RESOURCE_LIMIT_EXCEEDED: Action.DEFER,
    conditions.LINK_STOLEN: Action.DEFER,
}


def for_outcome(state: Any) -> Verdict:
    """Return what the peer's outcome for a message means (part 3 §3.4)."""
    kind = type(state)
    if kind is spec.Accepted:
        return ACCEPTED
    if kind is spec.Rejected:
        return _rejected(state.error)
    if kind is spec.Modified:
        if state.undeliverable_here:
            return Verdict(
                Scope.MESSAGE, Action.REJECT, "message.undeliverable", "undeliverable at the peer"
            )
        action = Action.COUNT if state.delivery_failed else Action.RETRY
        return Verdict(Scope.MESSAGE, action, "message.modified", "the peer could not deliver it")
    return Verdict(Scope.MESSAGE, Action.RETRY, "message.released", "the peer released it")


def _rejected(error: spec.Error | None) -> Verdict:
    if error is None:
        return Verdict(Scope.MESSAGE, Action.REJECT, "message.rejected", "the peer gave no reason")
    action = Action.RETRY if error.condition in TEMPORARY else Action.REJECT
    return Verdict(
        Scope.MESSAGE, action, "message.rejected", error.description or "", str(error.condition)
    )


def for_end(error: spec.Error | None, what: str) -> Verdict:
    """Return what it means that the peer ended the link, session or connection.

    Args:
        error: the error it gave, if any.
        what: ``link``, ``session`` or ``connection``, for the code.
    """
    if error is None:
        return Verdict(Scope.HOST, Action.NEXT_HOST, f"{what}.ended", f"the peer ended the {what}")
    action = HOST_CONDITIONS.get(error.condition, Action.NEXT_HOST)
    scope = Scope.DESTINATION if action is Action.DEFER else Scope.HOST
    return Verdict(scope, action, f"{what}.ended", error.description or "", str(error.condition))


def for_failure(error: BaseException) -> Verdict:
    """Return what an exception on the way to an open link means."""
    if isinstance(error, ResolveError):
        if error.permanent:
            return Verdict(
                Scope.DESTINATION, Action.REJECT, error.code, str(error), conditions.NOT_FOUND
            )
        return Verdict(Scope.DESTINATION, Action.DEFER, error.code, str(error))
    if isinstance(error, (ConnectError, TlsError)):
        return Verdict(Scope.HOST, Action.NEXT_HOST, error.code, str(error))
    if isinstance(error, PeerFailure):
        return error.verdict
    return Verdict(Scope.HOST, Action.NEXT_HOST, "peer.failed", f"{type(error).__name__}: {error}")


class PeerFailure(Exception):
    """An attempt to reach a peer that ended before the link was there.

    Attributes:
        verdict: what it means.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"{verdict.code}: {verdict.words}")
        self.verdict = verdict
