# SPDX-License-Identifier: Apache-2.0
"""Counters of a queue, for operators."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class QueueCounters:
    """Counters of a queue since the start of the daemon."""

    enqueued: int = 0
    dequeued: int = 0
    released: int = 0
    rejected: int = 0
    expired: int = 0
    dead_lettered: int = 0
    loaded: int = 0
    purged: int = 0
    duplicates: int = 0
    unreachable: int = 0
    damaged: int = 0
    stream_lost: int = 0

    def add(self, other: QueueCounters) -> None:
        """Add the counters of another queue."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
