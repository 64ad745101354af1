# SPDX-License-Identifier: Apache-2.0
"""Unfinished deliveries of all connections, and the bound of their memory.

Each engine reports with every read the octets of its peer's input that it holds: the frames of
unfinished deliveries, and an incomplete frame. The sum counts as memory on its way
(`broker.publish_gate.HeldMemory`), and has a bound of its own, a quarter of ``limits.memory``: so
endless deliveries cannot take the room of others, nor close the gate for all. Beyond the bound, the
largest holders are evicted (`amqproute.broker.partial_delivery_eviction`): users and peers, and
anonymous clients by their addresses. Eviction frees the octets in excess, and `SPARE_BYTES` more,
so that the work after a read is in proportion to it:

* a delivery with more than `HEAD_BYTES` is handed up in parts and goes to a draft of the store, as
  every delivery beyond a mebibyte does. Its sender does not notice;
* any other is ended with its link, with ``amqp:resource-limit-exceeded``, and an incomplete frame
  with its connection: the sender begins again.

A delivery without progress for `SPILL_SECONDS` is spilled even if there is room. One without
progress for ``limits.delivery-timeout`` is ended, in memory or on the disk. Progress is a kibibyte
of the message; empty frames do not count. Time in which we stop the sender does not count.
Thousands may be overdue at one time: each turn of the reactor checks `MOST_LOOKED_AT` deliveries
and those of one connection more, and handles `MOST_EVICTED` of them, or `SPARE_BYTES`.

Drafts cost a file each, and octets on the disk. Both are bounded, their octets by the room of the
store, with a share for each principal and connection; a large message beyond that is released, so
its sender keeps it (`amqproute.frontends.amqp10.large_message_receiver`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable
from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.fair_shares import FairShares
from amqproute.broker.partial_delivery_eviction import (
    Eviction,
    EvictionAction,
    PartialDelivery,
    evictions,
    overdue,
)
from amqproute.broker.publish_gate import HeldMemory

__all__ = ["HEAD_BYTES", "SPILL_SECONDS", "InputHolder", "PartialDeliveries"]

SPILL_SECONDS: Final = 30.0
"""Time without progress after which a delivery is spilled."""
SPARE_BYTES: Final = 1024 * 1024
"""Octets freed beyond the excess; fewer where the bound is small."""
MOST_LOOKED_AT: Final = 1000
MOST_EVICTED: Final = 16
"""Deliveries checked, and overdue ones handled, in one turn of the reactor."""

HEAD_BYTES: Final = 128 * 1024
"""Most octets of the sections before the body of a very large message: they stay in memory."""


class InputHolder(Hashable, Protocol):
    """A connection with unfinished input of its peer.

    An unfinished delivery has a key of the connection's own.
    """

    @property
    def party(self) -> tuple[str, Hashable]:
        """The party whose share of a bound it uses, and its member."""

    @property
    def is_anonymous(self) -> bool:
        """Whether the client has proved no identity."""

    def held_input(self) -> int:
        """Return the octets that its engine holds of the peer's input."""

    def partial_deliveries(self, are_all: bool) -> list[PartialDelivery[Hashable]]:
        """Return its unfinished deliveries: those in memory, or all."""

    def partial_delivery(self, key: Hashable) -> PartialDelivery[Hashable] | None:
        """Return one of them; None if it is unfinished no more."""

    def spill(self, key: Hashable) -> None:
        """Write the present part of a delivery to disk, and the rest as it arrives."""

    def end_partial(self, key: Hashable, words: str) -> None:
        """End a delivery with its link, or an incomplete frame with the connection."""

    def flush(self) -> None:
        """Write the engine's output."""


class PartialDeliveries:
    """Unfinished deliveries of all connections.

    Args:
        memory: counter of incoming messages.
        connections: every connection; changed as they come and go.
        clock: the reactor, for its turns.
        timeout_seconds: without progress for so long a delivery is ended.

    Attributes:
        drafts: the places of large messages on their way to the disk, by party.
        draft_octets: their octets, by party.
        spare_octets: octets that the store may still take, by the last measurement; None before.
        spilled: deliveries that were written to disk before their time, since the start.
        ended: deliveries that were ended, since the start.
    """

    def __init__(
        self,
        memory: HeldMemory,
        connections: Collection[InputHolder],
        clock: IReactorTime,
        timeout_seconds: float,
    ) -> None:
        self._memory = memory
        self._connections = connections
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._held: dict[InputHolder, int] = {}
        # What is still to be looked at, and what was found overdue.
        self._rest: deque[InputHolder] = deque()
        self._overdue: deque[tuple[InputHolder, Hashable]] = deque()
        self._is_scheduled = False
        self.drafts = FairShares()
        self.draft_octets = FairShares()
        self.spare_octets: int | None = None
        self.spilled = 0
        self.ended = 0

    def __repr__(self) -> str:
        return f"<PartialDeliveries {self._memory.arriving_bytes} on {len(self._held)}>"

    def may_grow(self, octets: int, party: str, member: Hashable) -> bool:
        """Return whether a party's large messages may have so many octets more on the disk.

        A party may have as many as would still be free; its only message may have all of them.
        """
        if self.spare_octets is None or self.drafts.held(party) <= 1:
            return True
        shares = self.draft_octets
        return shares.room(self.spare_octets + shares.used, party, member) >= octets

    def holds(self, connection: InputHolder, octets: int) -> None:
        """Note the octets that a connection's engine holds now."""
        if octets:
            before = self._held.get(connection, 0)
            self._held[connection] = octets
        else:
            before = self._held.pop(connection, 0)
        self._memory.arrive(octets - before)

    @property
    def is_too_much(self) -> bool:
        """Whether the bound is exceeded, so that `relieve` has something to do."""
        return self._memory.arriving_bytes > self._memory.most_arriving > 0

    def relieve(self) -> None:
        """Evict from the largest holders until there is room again."""
        if not self.is_too_much:
            return
        most = self._memory.most_arriving
        parties: dict[Hashable, dict[InputHolder, int]] = {}
        for connection, octets in self._held.items():
            name, member = connection.party
            party = (name, member) if connection.is_anonymous else name
            parties.setdefault(party, {})[connection] = octets
        excess = self._memory.arriving_bytes - most + min(most // 8, SPARE_BYTES)
        for each in evictions(parties, _in_memory, excess):
            self._evict(each, "unfinished deliveries hold too much memory")

    def look(self) -> int:
        """Count again, and handle deliveries without progress: some now, the rest in turns.

        Returns:
            The octets that are held.
        """
        for connection in tuple(self._connections):
            self.holds(connection, connection.held_input())
        if not self._rest:
            self._rest.extend(self._connections)
        if not self._is_scheduled:
            self._go_on()
        self.relieve()
        return self._memory.arriving_bytes

    def _go_on(self) -> None:
        """Check some deliveries, and handle some of those without progress."""
        self._is_scheduled = False
        words = f"nothing came of a delivery for {self._timeout_seconds:g} s"
        looked_at = evicted = octets = 0
        while self._overdue or self._rest:
            if looked_at >= MOST_LOOKED_AT or evicted >= MOST_EVICTED or octets >= SPARE_BYTES:
                self._is_scheduled = True
                self._clock.callLater(0, self._go_on)
                return
            if not self._overdue:
                connection = self._rest.popleft()
                deliveries = connection.partial_deliveries(are_all=True)
                looked_at += 1 + len(deliveries)
                found = overdue(deliveries, SPILL_SECONDS, self._timeout_seconds)
                self._overdue.extend([(connection, each.key) for each, _ in found])
                continue
            connection, key = self._overdue.popleft()
            each = connection.partial_delivery(key)
            still = [] if each is None else [each]  # it may have ended
            for delivery, action in overdue(still, SPILL_SECONDS, self._timeout_seconds):
                self._evict(Eviction(connection, delivery, action), words)
                evicted += 1
                octets += delivery.octets

    def _evict(self, eviction: Eviction[InputHolder, Hashable], words: str) -> None:
        connection, key = eviction.connection, eviction.incoming.key
        if eviction.way is EvictionAction.SPILL:
            self.spilled += 1
            connection.spill(key)
        else:
            self.ended += 1
            connection.end_partial(key, words)
        connection.flush()
        self.holds(connection, connection.held_input())


def _in_memory(connection: InputHolder) -> list[PartialDelivery[Hashable]]:
    """Return the deliveries that a connection holds in memory."""
    return connection.partial_deliveries(are_all=False)
