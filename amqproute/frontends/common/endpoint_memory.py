# SPDX-License-Identifier: Apache-2.0
"""Memory of sessions and links over all connections: one bound, with a share for each party.

A client may attach a thousand links on each of many sessions of many connections. Each of them
costs some kilobytes in the engine and here, and keeps the terms of its attach: its name, addresses,
filters, capabilities. The engine counts that (`Connection.endpoint_octets`);
`EndpointMemory` adds it up by party and connection (`amqproute.broker.fair_shares`), after each
read. The parties are users and peers; all anonymous clients are one party, and its members are
their addresses.

A link or session for which there is no room is refused with ``amqp:resource-limit-exceeded``. A
refused link takes some memory until its client has detached it as well, so a connection that goes
on attaching `MOST_REFUSED` times is closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

from amqproute import conditions
from amqproute.broker.fair_shares import FairShares
from amqproute.conditions import Condition
from amqproute.errors import ResourceLimitExceeded

CONNECTION_OCTETS: Final = 16 * 1024 * 1024
"""Most octets of the sessions and links of one connection: 1024 links with filters."""
USUAL_OCTETS: Final = 256 * 1024 * 1024
"""Most octets of all connections where `limits.memory` sets no bound; else it is half of that."""
LEAST_OCTETS: Final = 4 * 1024 * 1024
"""Least bound for all connections, however small `limits.memory` is."""
MOST_REFUSED: Final = 100
"""Successive refusals for lack of room after which a connection is closed."""


class EndpointMemory:
    """Memory of the sessions and links of all connections.

    Args:
        memory_octets: ``limits.memory``; 0 for no bound.

    Attributes:
        limit: the most of all connections, in octets.
        shares: the use of each party.
    """

    def __init__(self, memory_octets: int) -> None:
        self.limit = max(memory_octets // 2, LEAST_OCTETS) if memory_octets else USUAL_OCTETS
        self.shares = FairShares()

    def __repr__(self) -> str:
        return f"<EndpointMemory {self.shares.used} of {self.limit}>"


class EndpointOwner(Protocol):
    """The connection that an `EndpointQuota` belongs to."""

    @property
    def party(self) -> tuple[str, Hashable]:
        """The party whose share it uses, and its member."""

    def close(self, condition: Condition, words: str) -> None:
        """Close the connection."""


class EndpointQuota:
    """Memory of the sessions and links of one connection.

    Args:
        owner: the connection.
        memory: the memory of all connections.

    Attributes:
        counted: the octets of the engine to which the count agrees.
    """

    def __init__(self, owner: EndpointOwner, memory: EndpointMemory) -> None:
        self._owner = owner
        self._memory = memory
        self._taken = 0
        self._waiting = 0
        self.counted = 0
        self._refused = 0
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<EndpointQuota {self._taken}>"

    @property
    def is_used(self) -> bool:
        """Whether any memory is counted."""
        return bool(self._taken or self._waiting)

    def admit(self, octets: int) -> None:
        """Add a session or link that has just been begun or attached.

        Raises:
            ResourceLimitExceeded: there is no room for it.
        """
        shares, party = self._memory.shares, self._owner.party
        room = min(shares.room(self._memory.limit, *party), CONNECTION_OCTETS - self._taken)
        if octets <= room:
            self._refused = 0
            self._taken += octets
            self.counted += octets
            shares.take(octets, *party)
            return
        self._refused += 1
        words = "your sessions and links take too much memory; end some of them"
        if self._refused > MOST_REFUSED:
            self._owner.close(conditions.RESOURCE_LIMIT_EXCEEDED, words)
        raise ResourceLimitExceeded(words, info={"limiter": "endpoint-memory"})

    def wait(self, octets: int) -> None:
        """Add an attach that is kept while its answer is delayed, even if its link ends."""
        self._waiting += octets
        self.counted -= octets

    def update(self, octets: int) -> None:
        """Update the count: links have been answered, or have ended.

        Args:
            octets: the octets of sessions and links, as the engine counts them.
        """
        self.counted = 0 if self._is_ended else octets
        taken = self.counted + self._waiting
        difference = taken - self._taken
        if not difference:
            return
        self._taken = taken
        if difference > 0:
            self._memory.shares.take(difference, *self._owner.party)
        else:
            self._memory.shares.give_back(-difference, *self._owner.party)

    def end(self) -> None:
        """Release what sessions and links take: the connection is lost."""
        self._is_ended = True
        self.update(0)


__all__ = ["CONNECTION_OCTETS", "MOST_REFUSED", "EndpointMemory", "EndpointOwner", "EndpointQuota"]
