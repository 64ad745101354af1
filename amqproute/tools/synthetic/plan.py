# SPDX-License-Identifier: Apache-2.0
"""Plans, rates and faults of synthetic journals."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = [
    "LONGEST_DELAY",
    "SECOND",
    "FaultPlan",
    "FaultRates",
    "PlannedFault",
    "PlantedFaults",
    "TrafficPlan",
    "numbers_of",
]

SECOND: Final = 1_000_000
"""Microseconds."""

LONGEST_DELAY: Final = 600.0
"""Largest number of seconds that a message waits for its next hop."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """Ordinary incidents, as shares of the messages, 0.0 to 1.0.

    Attributes:
        two_hops: relayed by a third organization's broker.
        deferred: deferred once by the next hop, and accepted at the second attempt.
        delayed: wait up to `LONGEST_DELAY` for their next hop.
        expired: expire in the first relay queue, with a report.
        rejected: rejected by the consumer, and not kept.
        dead_lettered: undeliverable, and kept as dead letters.
        suppressed: sent twice by the previous hop, and accepted once.
    """

    two_hops: float = 0.2
    deferred: float = 0.005
    delayed: float = 0.002
    expired: float = 0.0005
    rejected: float = 0.0005
    dead_lettered: float = 0.0005
    suppressed: float = 0.0005


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Faults: the number of each to plant.

    Attributes:
        lost: handed over by the sender's journal, unknown to the next hop.
        duplicated: accepted and delivered twice by the next hop.
        changed: the next hop has another digest.
        unknown: received by the next hop from an entry that the sender never had.
        in_flight: no fault: at the cut one side has written its record and the other has not.
        vanished: lost from a queue without a record.
        unexplained: delivered from a queue that it never entered.
        ended_twice: delivered twice by the same broker, having come once.
        came_back: entries that are in a stock after their end.
        gap: hand-overs that the next hop could not record, with a record of the gap.
    """

    lost: int = 0
    duplicated: int = 0
    changed: int = 0
    unknown: int = 0
    in_flight: int = 0
    vanished: int = 0
    unexplained: int = 0
    ended_twice: int = 0
    came_back: int = 0
    gap: int = 0

    @classmethod
    def at(cls, transfers: int, **shares: float) -> FaultPlan:
        """Return the numbers for shares of transfers: ``FaultPlan.at(10_000, lost=0.001)``."""
        return cls(**{name: round(share * transfers) for name, share in shares.items()})


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """The plan of synthetic journals.

    Attributes:
        transfers: messages that clients publish, each for another organization. One over one hop
            makes four events.
        seed: of all random choices.
        organizations: their domains; the faults are planted between the first two.
        start: the start of the journals, in seconds since the epoch.
        seconds: their duration.
        rates: the rates of ordinary incidents.
        faults: the faults to plant.
        offsets: seconds that an organization's clock is ahead, by domain.
        segment_bytes: size at which a segment is closed.
        segment_seconds: age at which a segment is closed.
        stock_seconds: between two stock records.
        processes: number of processes. Each covers a part of the time, and its brokers start with a
            new journal and store, as after a restore.
    """

    transfers: int
    seed: int = 1
    organizations: tuple[str, ...] = ("alpha.example", "beta.example", "gamma.example")
    start: int = 1_795_305_600  # 2026-11-22T00:00:00Z
    seconds: int = 86_400
    rates: FaultRates = FaultRates()
    faults: FaultPlan = FaultPlan()
    offsets: Mapping[str, float] = field(default_factory=dict)
    segment_bytes: int = 64 * 1024 * 1024
    segment_seconds: int = 3600
    stock_seconds: int = 3600
    processes: int = 1


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault, and the two ends of the hop it is on.

    Attributes:
        kind: name of a field of `FaultPlan`.
        message_id: the id as in the records; None where there is none.
        sender: domain of the broker that handed over.
        receiver: domain of the next hop; the broker itself for what happens within one.
        stream: with `entry`, the message at the sender; at the broker itself for the rest.
        entry: see `stream`.
    """

    kind: str
    message_id: str | None
    sender: str
    receiver: str
    stream: str
    entry: int


@dataclass(slots=True)
class PlantedFaults:
    """The generated faults and messages.

    Attributes:
        journals: directory of the journal, by domain.
        faults: all of them, including those in flight and in a gap.
        fates: number of messages by fate, without planted ones and reports.
        events: number of records.
    """

    journals: dict[str, Path]
    faults: list[PlannedFault] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)
    events: int = 0

    def of(self, kind: str) -> list[PlannedFault]:
        """Return the faults of a kind."""
        return [fault for fault in self.faults if fault.kind == kind]


def numbers_of(faults: FaultPlan) -> dict[str, int]:
    """Return the number of each kind."""
    return dataclasses.asdict(faults)
