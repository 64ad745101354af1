# SPDX-License-Identifier: Apache-2.0
"""Outcomes of deliveries and the errors that go with them, as the broker knows them.

They belong to no protocol. Each protocol translates at its edge: AMQP 1.0 in
`amqproute.wire.amqp10.delivery_states`, AMQP 0-9-1 in
`amqproute.frontends.amqp09.delivery_methods`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

__all__ = [
    "ACCEPTED",
    "FAILED",
    "RELEASED",
    "UNREADABLE",
    "Acceptance",
    "ErrorDetails",
    "Modification",
    "Outcome",
    "Rejection",
    "Release",
    "Unreadable",
]


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """An error as it is reported, stored and logged.

    Attributes:
        condition: a symbol, usually one of `amqproute.conditions`; a peer may send any other.
        description: the cause as text.
        info: further facts, of values that can be encoded.
    """

    condition: str
    description: str | None = None
    info: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The consumer has taken responsibility for the message: the entry ends."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The message is invalid: the entry becomes a dead letter.

    Attributes:
        error: why, if the consumer says so.
    """

    error: ErrorDetails | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The message was not processed: the entry becomes available again, unchanged."""


@dataclass(frozen=True, slots=True)
class Modification:
    """The message was not processed, and becomes available again with changes.

    Attributes:
        delivery_failed: counts as a failed delivery.
        undeliverable_here: the entry is not offered to the same consumer again.
        annotations: message annotations to set.
    """

    delivery_failed: bool = False
    undeliverable_here: bool = False
    # Any: annotations have symbols or numbers for keys, and a mapping is invariant in these.
    annotations: Mapping[Any, object] | None = None


class Unreadable(Enum):
    """The message was damaged when it was to be sent: the entry is quarantined."""

    UNREADABLE = "unreadable"


Outcome = Acceptance | Rejection | Release | Modification | Unreadable

ACCEPTED: Final = Acceptance()
RELEASED: Final = Release()
FAILED: Final = Modification(delivery_failed=True)
UNREADABLE: Final = Unreadable.UNREADABLE
