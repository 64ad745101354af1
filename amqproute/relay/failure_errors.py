# SPDX-License-Identifier: Apache-2.0
"""Errors with which messages are given up, in the codes used by reports.

`failure_verdict` decides *that* a message is given up; this module gives the reason, in the codes
of `amqproute.services.sender_reports`. The error's info has ``code``, the peer's own text as
``text`` and, if the peer gave one, the peer's own code as ``remote-code``. Pure.
"""

from __future__ import annotations

import re
from typing import Any, Final

from amqproute import conditions
from amqproute.errors import AmqpError
from amqproute.outcomes import ErrorDetails, Outcome, Rejection
from amqproute.relay.failure_verdict import FailureVerdict
from amqproute.wire.amqp10.types import Symbol

__all__ = ["fault", "no_route", "refusal", "rejection"]

CODE: Final = Symbol("code")
TEXT: Final = Symbol("text")
REMOTE_CODE: Final = Symbol("remote-code")
_CODE: Final = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+")
LONGEST_CODE: Final = 64

UNDERSTOOD: Final = frozenset(
    ("route.loop", "route.hops", "route.relay", "policy.path", "policy.origin", "reply.gone")
)
"""Codes in a peer's rejection that have the same meaning here."""

BY_CONDITION: Final[dict[str, str]] = {
    conditions.NOT_FOUND: "remote.no-node",
    conditions.RESOURCE_DELETED: "remote.no-node",
    conditions.UNAUTHORIZED_ACCESS: "remote.refused",
    conditions.NOT_ALLOWED: "remote.refused",
    conditions.LINK_MESSAGE_SIZE_EXCEEDED: "message.size",
}
"""Codes for a peer's rejection without a code."""


def rejection(hop: str, verdict: FailureVerdict, outcome: Outcome) -> ErrorDetails:
    """Return the error for a message ended by a peer's outcome.

    Args:
        hop: the key of the next hop.
        verdict: the verdict on the outcome.
        outcome: the outcome.
    """
    error = outcome.error if isinstance(outcome, Rejection) else None
    remote = _remote_code(error)
    code = remote if remote in UNDERSTOOD else BY_CONDITION.get(verdict.condition or "")
    if code is None:
        code = "remote.rejected" if isinstance(outcome, Rejection) else "message.undeliverable"
    info: dict[str, Any] = {CODE: Symbol(code), TEXT: verdict.words}
    if remote:
        info[REMOTE_CODE] = Symbol(remote)
    return ErrorDetails(
        condition=verdict.condition or conditions.NOT_ALLOWED,
        description=f"{hop}: {verdict.words}",
        info=info,
    )


def _remote_code(error: ErrorDetails | None) -> str:
    value = (error.info or {}).get(CODE) if error is not None else None
    if isinstance(value, str) and len(value) <= LONGEST_CODE and _CODE.fullmatch(value):
        return str(value)
    return ""


def refusal(hop: str, error: AmqpError) -> ErrorDetails:
    """Return the error for a message that cannot be sent to a peer at all."""
    code = error.info.get("code") or BY_CONDITION.get(error.condition, "message.undeliverable")
    return ErrorDetails(
        condition=error.condition,
        description=f"cannot be sent to {hop}: {error.description}",
        info={CODE: Symbol(code), TEXT: error.description},
    )


def no_route(words: str) -> ErrorDetails:
    """Return the error for messages that are returned because there is no next hop."""
    return ErrorDetails(
        condition=conditions.NOT_FOUND,
        description=words,
        info={CODE: Symbol("route.unroutable"), REMOTE_CODE: Symbol(words.partition(":")[0])},
    )


def fault(hop: str, verdict: FailureVerdict) -> ErrorDetails:
    """Return the error for a message that ends every connection on which it is sent."""
    return ErrorDetails(
        condition=verdict.condition or conditions.INTERNAL_ERROR,
        description=f"{hop} ends the connection for it: {verdict.words}",
        info={CODE: Symbol("remote.fault"), TEXT: verdict.words},
    )
