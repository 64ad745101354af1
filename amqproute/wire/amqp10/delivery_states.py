# SPDX-License-Identifier: Apache-2.0
"""Outcomes and errors in AMQP 1.0: the one table between `amqproute.outcomes` and its types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from amqproute.outcomes import (
    ACCEPTED,
    RELEASED,
    Acceptance,
    ErrorDetails,
    Modification,
    Outcome,
    Rejection,
    Release,
)
from amqproute.wire.amqp10 import spec

__all__ = ["ACCEPTED_STATE", "RELEASED_STATE", "details_of", "error_of", "outcome_of", "state_of"]

ACCEPTED_STATE: Final = spec.Accepted()
RELEASED_STATE: Final = spec.Released()


def details_of(error: spec.Error | None) -> ErrorDetails | None:
    """Return an error of the wire as a plain value."""
    if error is None:
        return None
    return ErrorDetails(error.condition, error.description, error.info)


def error_of(details: ErrorDetails | None) -> spec.Error | None:
    """Return an error in its form on the wire (part 2 §2.8.14)."""
    if details is None:
        return None
    return spec.Error(
        condition=details.condition, description=details.description, info=details.info
    )


# Any: each function is called with states, or outcomes, of its own type only.
_OUTCOMES: Final[Mapping[type, Callable[[Any], Outcome]]] = {
    spec.Accepted: lambda _: ACCEPTED,
    spec.Rejected: lambda state: Rejection(details_of(state.error)),
    spec.Released: lambda _: RELEASED,
    spec.Modified: lambda state: Modification(
        state.delivery_failed, state.undeliverable_here, state.message_annotations
    ),
}
_STATES: Final[Mapping[type, Callable[[Any], spec.Outcome]]] = {
    Acceptance: lambda _: ACCEPTED_STATE,
    Rejection: lambda outcome: spec.Rejected(error=error_of(outcome.error)),
    Release: lambda _: RELEASED_STATE,
    Modification: lambda outcome: spec.Modified(
        delivery_failed=outcome.delivery_failed,
        undeliverable_here=outcome.undeliverable_here,
        message_annotations=outcome.annotations,
    ),
}


def outcome_of(state: object) -> Outcome | None:
    """Return the outcome that a delivery state is (part 3 §3.4); None if it is none.

    The outcome *declared* of a coordinator (part 4 §4.5.5) ends no entry and is none either.
    """
    translate = _OUTCOMES.get(type(state))
    return None if translate is None else translate(state)


def state_of(outcome: Outcome) -> spec.Outcome:
    """Return an outcome as a delivery state.

    Raises:
        KeyError: it is `UNREADABLE`, which no receiver can come to.
    """
    return _STATES[type(outcome)](outcome)
