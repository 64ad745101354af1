# SPDX-License-Identifier: Apache-2.0
"""What a consumer says of the entries it was handed (part 3 §3.4)."""

from __future__ import annotations

from enum import Enum
from typing import Final

from amqproute.wire.amqp10 import spec

__all__ = ["UNREADABLE", "Outcome", "Unreadable"]


class Unreadable(Enum):
    """The outcome of an entry whose body turned out to be damaged when it was to be sent."""

    UNREADABLE = "unreadable"


UNREADABLE: Final = Unreadable.UNREADABLE

Outcome = (
    spec.Accepted
    | spec.Rejected
    | spec.Released
    | spec.Modified
    | spec.Received
    | Unreadable
    | None
)
"""None and `spec.Received` mean released."""
