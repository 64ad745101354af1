# SPDX-License-Identifier: Apache-2.0
"""State that a topic shares with its subscriptions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

from amqproute.entry import later_by
from amqproute.filters.registry import FilterSet
from amqproute.interfaces import ITarget
from amqproute.message import Message


class TopicArrival:
    """A message that has reached a topic.

    Attributes:
        id: the id from the store's ids; grows.
        message: the message as put.
        arrived_ms: wall clock.
        expires_ms: wall clock after which nobody gets it; 0 for never.
        origin: the container-id of its sender, None if unknown.
        stored: it is kept for newcomers in a row of the store (`broker.last_value`).
    """

    __slots__ = ("arrived_ms", "expires_ms", "id", "message", "origin", "stored")

    def __init__(
        self, id: int, message: Message, arrived_ms: int, expires_ms: int, origin: str | None
    ) -> None:
        self.id = id
        self.message = message
        self.arrived_ms = arrived_ms
        self.expires_ms = expires_ms
        self.origin = origin
        self.stored = False

    def postpone(self, ms: int, now_ms: int) -> None:
        """Have it age from later on: the clock was set. See `amqproute.entry.later_by`."""
        by_ms = later_by(self.arrived_ms, ms, now_ms)
        self.arrived_ms += by_ms
        if self.expires_ms > 0:
            self.expires_ms += by_ms


@dataclass(slots=True)
class TopicCounters:
    """Counters of a topic since the start of the daemon.

    Attributes:
        published: messages put.
        delivered: entries handed to subscribers in memory.
        dropped: entries that a full buffer had no room for.
        expired: entries in buffers whose time was over.
        unroutable: messages that nobody wanted.
    """

    published: int = 0
    delivered: int = 0
    dropped: int = 0
    expired: int = 0
    unroutable: int = 0

    def add(self, other: TopicCounters) -> None:
        """Add the counters of another topic."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class TopicOutlet(Protocol):
    """An outlet of a topic: receives messages within the publisher's batch.

    Attributes:
        filters: which messages.
    """

    filters: FilterSet

    @property
    def is_bounded(self) -> bool:
        """Whether the target can be full."""

    def target(self) -> ITarget:
        """Return it; raise `AmqpError` if there is none now."""

    def selects(self, message: Message, origin: str | None) -> bool:
        """Tell whether a message is wanted."""


__all__ = ["TopicArrival", "TopicCounters", "TopicOutlet"]
