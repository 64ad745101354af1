# SPDX-License-Identifier: Apache-2.0
"""Eviction of unfinished deliveries that hold too much memory or make no progress.

A delivery that has begun and not ended occupies memory for as long as its sender likes. What all
of them hold together is bounded, and when the bound is passed somebody has to give way: always the
party that holds most, of its connections the one that holds most, and there the delivery that has
made no progress for longest. So nobody who holds less than an equal part ever gives way while
others hold more than theirs, however many connections and links these have.

To give way does a sender no harm if what has come of its delivery can be written to disk: the
delivery goes on from there (`EvictionAction.SPILL`). Where that is not possible the delivery is
ended (`EvictionAction.END`).

These are decisions: nothing here measures, or acts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Eviction", "EvictionAction", "PartialDelivery", "evictions", "overdue"]

C = TypeVar("C", bound=Hashable)
"""Key of a connection."""
K = TypeVar("K")
"""Key of a delivery."""


@dataclass(frozen=True, slots=True)
class PartialDelivery(Generic[K]):
    """A delivery on its way in.

    Attributes:
        key: which; for the one who acts.
        octets: the octets in memory.
        idle_seconds: since it last made progress.
        can_spill: what has come of it can be written to disk.
    """

    key: K
    octets: int
    idle_seconds: float
    can_spill: bool


class EvictionAction(Enum):
    """Action on an unfinished delivery."""

    SPILL = "spill"
    END = "end"


@dataclass(frozen=True, slots=True)
class Eviction(Generic[C, K]):
    """A delivery that has to give way.

    Attributes:
        connection: on which.
        incoming: the delivery.
        way: how.
    """

    connection: C
    incoming: PartialDelivery[K]
    way: EvictionAction


def evictions(
    held: Mapping[Hashable, Mapping[C, int]],
    deliveries_of: Callable[[C], Sequence[PartialDelivery[K]]],
    excess: int,
) -> list[Eviction[C, K]]:
    """Return which deliveries have to give way, in order.

    Args:
        held: octets in memory, by party and connection.
        deliveries_of: looks up what a connection holds; asked only of those that hold most.
        excess: octets that have to be free afterwards.

    Returns:
        As many as have ``excess`` octets together; all of them, if these have less.
    """
    found: list[Eviction[C, K]] = []
    parties = []
    for order, by_connection in enumerate(held.values()):
        connections = [(-octets, each, c) for each, (c, octets) in enumerate(by_connection.items())]
        heapify(connections)
        parties.append((-sum(by_connection.values()), order, connections))
    heapify(parties)
    lists: dict[C, list[PartialDelivery[K]]] = {}
    while excess > 0 and parties:
        total, order, connections = heappop(parties)
        if not connections:
            continue
        octets, number, connection = heappop(connections)
        deliveries = lists.get(connection)
        if deliveries is None:
            # The last one goes first; of equals the one that is listed first.
            deliveries = lists[connection] = list(deliveries_of(connection))[::-1]
            deliveries.sort(key=lambda each: (each.idle_seconds, each.octets))
        if deliveries:
            incoming = deliveries.pop()
            way = EvictionAction.SPILL if incoming.can_spill else EvictionAction.END
            found.append(Eviction(connection, incoming, way))
            excess -= incoming.octets
            total += incoming.octets
            heappush(connections, (octets + incoming.octets, number, connection))
        else:
            total -= octets  # it holds nothing that could be taken from it
        heappush(parties, (total, order, connections))
    return found


def overdue(
    deliveries: Sequence[PartialDelivery[K]], spill_after: float, end_after: float
) -> list[tuple[PartialDelivery[K], EvictionAction]]:
    """Return which deliveries of a connection have made no progress for too long.

    Args:
        deliveries: all of them, those that are written to disk as they come included.
        spill_after: seconds after which a delivery has no claim to memory.
        end_after: seconds after which it is given up.
    """
    found = []
    for each in deliveries:
        if each.idle_seconds >= end_after:
            found.append((each, EvictionAction.END))
        elif each.idle_seconds >= spill_after and each.can_spill:
            found.append((each, EvictionAction.SPILL))
    return found
