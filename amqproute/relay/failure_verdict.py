# SPDX-License-Identifier: Apache-2.0
"""The meaning of failures for delivery, looked up in `failure_table`.

Two questions are answered for everything that can go wrong on the way to a peer: *how far does it
reach* (this message, the link, this host, the whole destination) and *what is done*. No other part
of the program decides this. The rows and their reasons are in `amqproute.relay.failure_table`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from amqproute import conditions
from amqproute.errors import LONGEST_DESCRIPTION, ConnectError, ResolveError, TlsError
from amqproute.outcomes import (
    Acceptance,
    ErrorDetails,
    Modification,
    Outcome,
    Rejection,
    Release,
)
from amqproute.relay import failure_table
from amqproute.relay.failure_table import FailureAction, FailureRow, FailureScope
from amqproute.relay.poison_detector import ConnectionEnd
from amqproute.wire.amqp10.types import Symbol

__all__ = [
    "ACCEPTED",
    "TEMPORARY",
    "FailureAction",
    "FailureScope",
    "FailureVerdict",
    "PeerFailure",
    "for_code",
    "for_end",
    "for_failure",
    "for_fault",
    "for_outcome",
    "refusal_seconds",
]


RETRY_AFTER: Final = Symbol("retry-after")
"""Key in an error's info: seconds until another attempt makes sense, as in our own refusals."""
LONGEST_RETRY: Final = 365 * 86_400
"""Larger values of ``retry-after``, in seconds, are ignored."""
LONGEST_CONDITION: Final = 128
LONGEST_REFUSAL: Final = 30.0
"""Seconds for which a DNS proof is trusted before the resolver is asked again; the resolver's own
cache follows the TTL. So changes of routes or of `resolver` are soon noticed too."""
SHORTEST_REFUSAL: Final = 1.0
"""The minimum of these seconds; the resolver caches nothing for less than five."""


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """The consequences of a failure.

    Attributes:
        scope: how far it reaches.
        action: the action.
        code: a stable code for logs, reports and statistics.
        words: the cause as text; the peer's own text if there is one.
        condition: the AMQP condition, if any.
        retry_after: the seconds after which the peer asks for another attempt; 0 if not given. It
            counts only from a peer that has proved its identity.
        lasts: how long a DNS proof of absence is trusted, seconds.
    """

    scope: FailureScope
    action: FailureAction
    code: str
    words: str = ""
    condition: str | None = None
    retry_after: float = 0.0
    lasts: float = 0.0

    @property
    def evidence(self) -> ConnectionEnd:
        """Its evidence on a message that was alone in flight when the connection ended."""
        if self.condition in failure_table.ON_PURPOSE:
            return ConnectionEnd.NONE
        if self.condition is not None and self.condition not in TEMPORARY:
            return ConnectionEnd.FAULT
        return ConnectionEnd.LOSS if self.code in failure_table.SEARCHED else ConnectionEnd.NONE


def _of(row: FailureRow, code: str, words: str) -> FailureVerdict:
    return FailureVerdict(row.scope, row.action, code, words)


def _of_error(row: FailureRow, code: str, error: ErrorDetails) -> FailureVerdict:
    """Return a verdict with the peer's text truncated, for the log, the store and reports."""
    words = (error.description or "")[:LONGEST_DESCRIPTION]
    condition = str(error.condition)[:LONGEST_CONDITION]
    return FailureVerdict(row.scope, row.action, code, words, condition, _retry_after(error))


def _retry_after(error: ErrorDetails) -> float:
    value = (error.info or {}).get(RETRY_AFTER)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 < value < LONGEST_RETRY else 0.0


TEMPORARY: Final = frozenset(
    condition
    for condition, row in failure_table.REFUSALS.items()
    if row.action is FailureAction.RETRY
)
"""Conditions of rejections after which a message is offered again; time may help."""


def _of_outcome(outcome: str, code: str, words: str = "") -> FailureVerdict:
    return _of(failure_table.OUTCOMES[outcome], code, words)


ACCEPTED: Final = _of_outcome("accepted", "message.accepted")
_RELEASED: Final = _of_outcome("released", "message.released", "the peer released it")
_UNKNOWN: Final = _of_outcome("no outcome", "message.released", "the peer gave no outcome")
_REJECTED: Final = _of_outcome(
    "rejected, without an error", "message.rejected", "the peer gave no reason"
)
_UNDELIVERABLE: Final = _of_outcome(
    "modified, undeliverable-here", "message.undeliverable", "undeliverable at the peer"
)
_FAILED: Final = _of_outcome(
    "modified, delivery-failed", "message.modified", "the peer could not deliver it"
)
_MODIFIED: Final = _of_outcome("modified", "message.modified", "the peer could not deliver it")


def for_outcome(outcome: Outcome | None) -> FailureVerdict:
    """Return the verdict on a peer's outcome for a message (part 3 §3.4); None: it gave none."""
    if type(outcome) is Acceptance:
        return ACCEPTED
    if isinstance(outcome, Rejection):
        return _rejected(outcome.error)
    if isinstance(outcome, Modification):
        if outcome.undeliverable_here:
            return _UNDELIVERABLE
        return _FAILED if outcome.delivery_failed else _MODIFIED
    return _RELEASED if isinstance(outcome, Release) else _UNKNOWN


def _rejected(error: ErrorDetails | None) -> FailureVerdict:
    if error is None:
        return _REJECTED
    row = failure_table.REFUSALS.get(error.condition, failure_table.REFUSED_OTHERWISE)
    return _of_error(row, "message.rejected", error)


def for_end(error: ErrorDetails | None, what: str) -> FailureVerdict:
    """Return the verdict on the end of a link, session or connection by the peer.

    Args:
        error: the peer's error, if any.
        what: ``link``, ``session`` or ``connection``, for the code.
    """
    code = f"{what}.ended"
    if error is None:
        return _of(failure_table.ENDED_OTHERWISE, code, f"the peer ended the {what}")
    row = failure_table.ENDS.get(error.condition, failure_table.ENDED_OTHERWISE)
    return _of_error(row, code, error)


def for_fault(error: ErrorDetails | None) -> FailureVerdict:
    """Return the verdict on a connection that this side ended for a fault of the peer.

    Args:
        error: the error it was ended with. It is ours, so its condition proves nothing about a
            message.
    """
    if error is None:
        return for_code("peer.broken", "")
    return for_code(
        "peer.broken", f"{error.condition}: {error.description or ''}"[:LONGEST_DESCRIPTION]
    )


def for_code(code: str, words: str) -> FailureVerdict:
    """Return the verdict on a failure with one of our own codes."""
    return _of(failure_table.row_for_code(code), code, words)


def refusal_seconds(ttl: float | None) -> float:
    """Return the seconds for which messages are refused after a proof of absence.

    Args:
        ttl: the remaining time to live of the proof, in seconds; None if unknown.
    """
    return max(SHORTEST_REFUSAL, min(LONGEST_REFUSAL, LONGEST_REFUSAL if ttl is None else ttl))


def for_failure(error: BaseException) -> FailureVerdict:
    """Return the verdict on an exception on the way to an open link."""
    if isinstance(error, ResolveError):
        verdict = for_code(error.code, str(error))
        if verdict.action is not FailureAction.REJECT:
            return verdict
        if error.permanent:
            return FailureVerdict(
                verdict.scope,
                FailureAction.REJECT,
                error.code,
                str(error),
                conditions.NOT_FOUND,
                lasts=refusal_seconds(error.ttl),
            )
        return FailureVerdict(verdict.scope, FailureAction.DEFER, error.code, str(error))
    if isinstance(error, (ConnectError, TlsError)):
        verdict = for_code(error.code, str(error))
        if verdict.scope is FailureScope.DESTINATION:
            # A DNS failure for one host, such as failing TLSA records, is not final while there is
            # another host.
            return FailureVerdict(
                FailureScope.HOST, FailureAction.NEXT_HOST, verdict.code, verdict.words
            )
        return verdict
    if isinstance(error, PeerFailure):
        return error.verdict
    return for_code("peer.failed", f"{type(error).__name__}: {error}")


class PeerFailure(Exception):
    """A failed attempt to reach a peer, before the link was attached.

    Attributes:
        verdict: its consequences.
    """

    def __init__(self, verdict: FailureVerdict) -> None:
        super().__init__(f"{verdict.code}: {verdict.words}")
        self.verdict = verdict
