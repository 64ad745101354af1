# SPDX-License-Identifier: Apache-2.0
"""Memory of sessions and links over all connections: one bound, with a share for each party.

A client may attach a thousand links on each of many sessions of many connections. Each of them
costs some kilobytes in the engine and here, and keeps what is in force of its attach: its name,
addresses, filters, capabilities. The engine counts that (`Connection.endpoint_octets`);
`EndpointMemory` adds it up by party and connection (`amqproute.broker.fair_shares`), after each
read. The parties are users and peers; all anonymous clients are one party, and its members are
their addresses.

Where there is no room for what is attached or begun, it is refused with
``amqp:resource-limit-exceeded``: the link, or the session. A refused link takes some memory until
its client has detached it as well, so whoever goes on attaching `MOST_REFUSED` times is closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Protocol

from amqproute import conditions
from amqproute.broker.fair_shares import FairShares
from amqproute.conditions import Condition
from amqproute.errors import ResourceLimitExceeded

CONNECTION_OCTETS: Final = 16 * 1024 * 1024
"""The most that the sessions and links of one connection take: 1024 links with filters."""
USUAL_OCTETS: Final = 256 * 1024 * 1024
"""The most for all connections where `limits.memory` sets no bound; else it is half of that."""
LEAST_OCTETS: Final = 4 * 1024 * 1024
"""However little memory there is."""
MOST_REFUSED: Final = 100
"""Refusals for lack of room, one after the other, after which a connection is closed."""


class EndpointMemory:
    """Memory of the sessions and links of all connections.

    Args:
        memory_octets: ``limits.memory``; 0 for no bound.

    Attributes:
        limit: the most of all connections, in octets.
        shares: who has how much.
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
        """Whose share it uses, and as which member of that party."""

    def close(self, condition: Condition, words: str) -> None:
        """Close the connection."""


class EndpointQuota:
    """Memory of the sessions and links of one connection.

    Args:
        owner: the connection.
        memory: of all connections.
    """

    def __init__(self, owner: EndpointOwner, memory: EndpointMemory) -> None:
        self._owner = owner
        self._memory = memory
        self._taken = 0
        self._waiting = 0
        self._refused = 0
        self._is_ended = False

    def __repr__(self) -> str:
        return f"<EndpointQuota {self._taken}>"

    @property
    def is_used(self) -> bool:
        """Something is counted."""
        return bool(self._taken or self._waiting)

    def admit(self, octets: int) -> None:
        """Count in a session or link that has just been begun or attached.

        Raises:
            ResourceLimitExceeded: there is no room for it.
        """
        shares, party = self._memory.shares, self._owner.party
        room = min(shares.room(self._memory.limit, *party), CONNECTION_OCTETS - self._taken)
        if octets <= room:
            self._refused = 0
            self._taken += octets
            shares.take(octets, *party)
            return
        self._refused += 1
        words = "your sessions and links take too much memory; end some of them"
        if self._refused > MOST_REFUSED:
            self._owner.close(conditions.RESOURCE_LIMIT_EXCEEDED, words)
        raise ResourceLimitExceeded(words, info={"limiter": "endpoint-memory"})

    def wait(self, octets: int) -> None:
        """Count an attach that is kept until something is known, whatever becomes of its link."""
        self._waiting += octets

    def update(self, octets: int) -> None:
        """Bring the count up to date: links have been answered, or are over.

        Args:
            octets: of sessions and links, as the engine counts them.
        """
        counted = self._waiting if self._is_ended else octets + self._waiting
        difference = counted - self._taken
        if not difference:
            return
        self._taken = counted
        if difference > 0:
            self._memory.shares.take(difference, *self._owner.party)
        else:
            self._memory.shares.give_back(-difference, *self._owner.party)

    def end(self) -> None:
        """Release what sessions and links take: the connection is lost."""
        self._is_ended = True
        self.update(0)


__all__ = ["CONNECTION_OCTETS", "MOST_REFUSED", "EndpointMemory", "EndpointOwner", "EndpointQuota"]
