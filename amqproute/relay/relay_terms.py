# SPDX-License-Identifier: Apache-2.0
"""Configured terms of relaying, and counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Final

from amqproute.broker.outgoing_memory import UNBOUNDED
from amqproute.broker.token_bucket import Rate
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.values import NextHop

FIRST_WINDOW = 50
"""Initial window of a destination without history."""
NO_RATE = Rate()
SUCCEEDED: Final = "ok"
"""The code of an attempt that led to an attached link."""
MOST_CODES: Final = 64
"""Different codes that are counted apart; some contain what a peer has sent."""
OTHER_CODES: Final = "other"


def _unlimited(_: NextHop) -> Rate:
    return NO_RATE


@dataclass(frozen=True, slots=True)
class RelayBounds:
    """Bounds on all destinations together.

    Attributes:
        connects_per_second: rate of new connections.
        most_destinations: destinations with messages or a connection; see `destination_quota`.
    """

    connects_per_second: float = 50.0
    most_destinations: int = 4000


@dataclass(slots=True)
class RelayTerms:
    """Terms of relaying; shared by all destinations.

    Attributes:
        schedule: back-off of destinations and of released messages.
        window: the maximum number of entries without an outcome; see `send_window.SendWindow`.
        idle_seconds: an idle connection is closed after this time.
        window_bytes: bound on the octets of messages without an outcome.
        dead_after: failed attempts in a row after which a destination counts as dead.
        settle_seconds: a peer is stuck if a delivery has no outcome after this time.
        bounds: on all destinations together.
        rate: bound on the rate of messages to a hop.
        part_bytes: the part of `window_bytes` for which there is memory now; computed while the
            daemon runs (`broker.outgoing_memory`), not configured.
    """

    schedule: RetrySchedule = field(default_factory=RetrySchedule)
    window: int = 1000
    idle_seconds: float = 60.0
    window_bytes: int = 64 * 1024 * 1024
    dead_after: float = 3.0
    settle_seconds: float = 120.0
    bounds: RelayBounds = RelayBounds()
    rate: Callable[[NextHop], Rate] = _unlimited
    part_bytes: int = field(default=UNBOUNDED, init=False)

    def adopt(self, other: RelayTerms) -> None:
        """Copy all configured values from other terms."""
        for each in fields(self):
            if each.init:
                setattr(self, each.name, getattr(other, each.name))


@dataclass(slots=True)
class DestinationCounters:
    """Plain counters for operators.

    Attributes:
        rejections: by kind (`rejection_counts.kind_of`).
        attempts: attempts to connect, by code.
    """

    relayed: int = 0
    rejected: int = 0
    retried: int = 0
    connections: int = 0
    failures: int = 0
    stuck: int = 0
    moves: int = 0
    rejections: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    def attempted(self, code: str) -> None:
        """Count an attempt that succeeded (`SUCCEEDED`) or failed, by the code of the failure."""
        attempts = self.attempts
        if code not in attempts and len(attempts) >= MOST_CODES:
            code = OTHER_CODES
        attempts[code] = attempts.get(code, 0) + 1

    def add(self, other: DestinationCounters) -> None:
        """Add the counters of another destination."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                for key, count in theirs.items():
                    mine[key] = mine.get(key, 0) + count
            else:
                setattr(self, each.name, mine + theirs)
