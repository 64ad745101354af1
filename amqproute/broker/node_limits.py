# SPDX-License-Identifier: Apache-2.0
"""Limits of nodes: resident memory and capacity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

AT_ONCE_MS: Final = 1
"""The lifetime of messages that only a consumer who waits for them gets (x-message-ttl 0)."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of one queue.

    Attributes:
        resident_messages: entries kept in memory before further ones are paged.
        resident_bytes: their bodies' bytes, likewise.
        capacity: most messages held, available and acquired (Q-15); 0 means no bound.
        ttl_ms: lifetime given to messages that state none; 0 means for ever, `AT_ONCE_MS` that only
            a consumer who waits gets them.
        max_deliveries: failed attempts after which an entry is dead-lettered; 0 means no bound.
        priorities: the number of distinct priorities (D-06); 1 makes the queue first in, first
            out whatever the headers say.
        length: messages that may wait, where more push out the oldest; None for any number.
        octets: the highest number of octets of waiting messages; None for any.
        drops_head: whether a message above the limit displaces the oldest; otherwise it is refused.
        buries_refused: whether messages refused for lack of room become dead letters.
        consumer_timeout_ms: how long a consumer of 0-9 or 0-9-1 may leave a message
            unacknowledged, 0 for ever; None: as long as usual.
    """

    resident_messages: int = 20_000
    resident_bytes: int = 32 * 1024 * 1024
    capacity: int = 0
    ttl_ms: int = 0
    max_deliveries: int = 0
    priorities: int = 10
    length: int | None = None
    octets: int | None = None
    drops_head: bool = False
    buries_refused: bool = False
    consumer_timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """Bounds and habits of a topic.

    Attributes:
        buffer_messages: the highest number of messages in memory for one subscriber.
        buffer_bytes: the highest number of octets of their bodies.
        holds_publishers: a full buffer takes credit from publishers; else its oldest goes.
        rejects_unroutable: refuse what nobody wants; else it is accepted and dropped.
        last_value: newest messages kept for newcomers; 0 for none.
        last_value_key: the application property for each value of which so many are kept.
        last_value_bytes: the highest number of octets of kept messages.
        ttl_ms: lifetime given to messages that state none, or a longer one; 0 for no bound.
        queue: bounds of the queue of each durable subscription.
    """

    buffer_messages: int = 1000
    buffer_bytes: int = 8 * 1024 * 1024
    holds_publishers: bool = False
    rejects_unroutable: bool = False
    last_value: int = 0
    last_value_key: str | None = None
    last_value_bytes: int = 64 * 1024 * 1024
    ttl_ms: int = 0
    queue: QueueLimits = field(default_factory=QueueLimits)


@dataclass(slots=True)
class MemoryBudget:
    """Bytes of resident bodies over all queues; beyond the limit every queue pages.

    Attributes:
        limit_bytes: the bound.
        used_bytes: octets resident now; each queue keeps its own part up to date.
    """

    limit_bytes: int = 128 * 1024 * 1024
    used_bytes: int = 0
