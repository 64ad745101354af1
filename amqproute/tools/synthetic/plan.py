# SPDX-License-Identifier: Apache-2.0
"""What is generated, and what was: plans, rates, faults."""

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
"""Seconds that a message waits for its next hop, at most."""


@dataclass(frozen=True, slots=True)
class FaultRates:
    """What happens in the ordinary way, as a share of the messages, 0.0 to 1.0.

    Attributes:
        two_hops: go over a third organization's broker.
        deferred: are put off once by the next hop, and taken at the second attempt.
        delayed: wait up to `LONGEST_DELAY` for their next hop.
        expired: come to the end of their time in the first relay queue, with a report.
        rejected: are refused by the consumer, and nothing keeps them.
        dead_lettered: cannot be delivered, and are kept as dead letters.
        suppressed: are sent twice by the previous hop, and taken once.
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
    """What must not happen: how many of each are planted.

    Attributes:
        lost: the sender wrote that the next hop took it, which knows nothing of it.
        duplicated: the next hop took it, and gave it out, twice.
        changed: the next hop has another digest.
        unknown: the next hop has it from an entry that the sender never had.
        in_flight: no fault: at the cut one side has written its part and the other has not.
        vanished: in a queue, and then nowhere.
        unexplained: given out of a queue that it never came to.
        ended_twice: given out twice by the same broker, having come once.
        came_back: in a stock after its end.
        gap: hand-overs whose records the next hop could not write, and said so.
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
        """Give numbers for shares of so many transfers: ``Faults.at(10_000, lost=0.001)``."""
        return cls(**{name: round(share * transfers) for name, share in shares.items()})


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """What to generate.

    Attributes:
        transfers: messages that clients publish, each for another organization. One over one hop
            makes four events.
        seed: everything else follows from it.
        organizations: their domains; between the first two the faults are planted.
        start: of the journals, in seconds since the epoch.
        seconds: what time they cover.
        rates: what happens in the ordinary way.
        faults: what is planted.
        offsets: seconds that an organization's clock is ahead, by domain.
        segment_bytes: a segment is closed that has grown so large,
        segment_seconds: or is so old.
        stock_seconds: between two records of what the queues hold.
        processes: how many share the work. Each takes a part of the time, and its brokers begin a
            journal and a store of their own, as after a restore.
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
        message_id: as in the records; None where there is none.
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
    """What was generated.

    Attributes:
        journals: directory of the journal, by domain.
        faults: all of them, those in flight and in a gap too.
        fates: how many messages came to which end, what was planted and reports left out.
        events: records that were written.
    """

    journals: dict[str, Path]
    faults: list[PlannedFault] = field(default_factory=list)
    fates: Counter[str] = field(default_factory=Counter)
    events: int = 0

    def of(self, kind: str) -> list[PlannedFault]:
        """Return the faults of a kind."""
        return [fault for fault in self.faults if fault.kind == kind]


def numbers_of(faults: FaultPlan) -> dict[str, int]:
    """Return how many of each kind there are."""
    return dataclasses.asdict(faults)
