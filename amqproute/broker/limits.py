# SPDX-License-Identifier: Apache-2.0
"""How much of a queue stands in memory, and how much there may be of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one queue.

    Attributes:
        resident_messages: entries kept in memory before further ones are paged.
        resident_bytes: their bodies' bytes, likewise.
        capacity: most messages held, available and acquired (Q-15); 0 means no bound.
        ttl_ms: lifetime given to messages that state none; 0 means for ever.
        max_deliveries: failed attempts after which an entry is dead-lettered; 0 means no bound.
        priorities: how many priorities are told apart (D-06); 1 makes the queue first in, first
            out whatever the headers say.
    """

    resident_messages: int = 20_000
    resident_bytes: int = 32 * 1024 * 1024
    capacity: int = 0
    ttl_ms: int = 0
    max_deliveries: int = 0
    priorities: int = 10


@dataclass(slots=True)
class MemoryBudget:
    """Bytes of resident bodies over all queues; beyond the limit every queue pages.

    Attributes:
        limit_bytes: the bound.
        used_bytes: what is resident now; each queue keeps its part of it up to date.
    """

    limit_bytes: int = 128 * 1024 * 1024
    used_bytes: int = 0
