# SPDX-License-Identifier: Apache-2.0
"""Unfinished deliveries of all connections, and the bound of their memory.

Each engine tells with every read what it holds of its peer's input: the frames of unfinished
deliveries, and a frame that is not complete. The sum counts as memory on its way
(`broker.publish_gate.HeldMemory`), and has a bound of its own, a quarter of ``limits.memory``: so
what never ends cannot take the room of messages that do, nor close the gate for everybody.
Past the bound those who hold most give way (`amqproute.broker.partial_delivery_eviction`): users
and peers, and the anonymous by their addresses. They give way for what has come, and for
`SPARE_BYTES` more, so that no read is followed by more of this work than it brought:

* a delivery of which more than `HEAD_BYTES` have come is handed up in parts and goes to a draft of
  the store, as one does anyway that grows beyond a mebibyte. Its sender
  notices nothing;
* any other is ended with its link, with ``amqp:resource-limit-exceeded``, and a frame that is not
  complete with its connection: the sender begins again.

One that makes no progress for `SPILL_SECONDS` is spilled even if there is room. One that makes
none for ``limits.delivery-timeout`` is ended, in memory or on the disk. Progress is a kibibyte of
the message; empty frames are none. Time in which we do not let the sender go on does not count.
Thousands may be overdue at one time: each turn of the reactor looks at `MOST_LOOKED_AT` deliveries
and those of one connection more, and deals with `MOST_EVICTED` of them, or with `SPARE_BYTES`.

Drafts cost a file each, and octets on the disk. Both are bounded, their octets by what the store
may still take, with a share for each principal and connection; a large message beyond that is
released, so its sender keeps it (`amqproute.frontends.amqp10.large_message_receiver`).
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
"""Without progress for so long a delivery has no claim to memory."""
SPARE_BYTES: Final = 1024 * 1024
"""Octets that are freed beyond what is too much; fewer where the bound is small."""
MOST_LOOKED_AT: Final = 1000
MOST_EVICTED: Final = 16
"""Overdue deliveries that are looked at, and dealt with, in one turn of the reactor."""

HEAD_BYTES: Final = 128 * 1024
"""Octets that the sections before a very large message's body may have: they stay in memory."""


class InputHolder(Hashable, Protocol):
    """A connection, as far as its peer's unfinished input goes.

    A delivery on its way in is named by a key of the connection's own.
    """

    @property
    def party(self) -> tuple[str, Hashable]:
        """Whose share of a bound it uses, and as which member of that party."""

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody has proved who is there."""

    def held_input(self) -> int:
        """Return the octets that its engine holds of the peer's input."""

    def partial_deliveries(self, are_all: bool) -> list[PartialDelivery[Hashable]]:
        """Return what is on its way in: what is in memory, or all."""

    def partial_delivery(self, key: Hashable) -> PartialDelivery[Hashable] | None:
        """Return what there is of one; None if there is none any more."""

    def spill(self, key: Hashable) -> None:
        """Write to disk what has come of a delivery, and the rest as it comes."""

    def end_partial(self, key: Hashable, words: str) -> None:
        """End a delivery with its link, or an incomplete frame with the connection."""

    def flush(self) -> None:
        """Have what the engine has to say written."""


class PartialDeliveries:
    """Unfinished deliveries of all connections.

    Args:
        memory: what counts as on its way.
        connections: every connection; changed as they come and go.
        clock: the reactor, for its turns.
        timeout_seconds: without progress for so long a delivery is ended.

    Attributes:
        drafts: the places of large messages on their way to the disk, and who has them.
        draft_octets: what these have on the disk or on the way there, and whose that is.
        spare_octets: that the store may still take, as measured last; None before that.
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
        """Tell whether a party's large messages may have so many octets more on the disk.

        As many as would still be free, like everything that is shared; its only one may have all.
        """
        if self.spare_octets is None or self.drafts.held(party) <= 1:
            return True
        shares = self.draft_octets
        return shares.room(self.spare_octets + shares.used, party, member) >= octets

    def holds(self, connection: InputHolder, octets: int) -> None:
        """Take note of what a connection's engine holds now."""
        if octets:
            before = self._held.get(connection, 0)
            self._held[connection] = octets
        else:
            before = self._held.pop(connection, 0)
        self._memory.arrive(octets - before)

    @property
    def is_too_much(self) -> bool:
        """More is held than the bound allows: `relieve` has something to do."""
        return self._memory.arriving_bytes > self._memory.most_arriving > 0

    def relieve(self) -> None:
        """Have those who hold most give way, until there is room again."""
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
        """Count anew, and deal with what makes no progress: with some now, the rest in turns.

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
        """Look at some deliveries, and deal with some of those that make no progress."""
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
            still = [] if each is None else [each]  # it may have got on meanwhile, or be over
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
