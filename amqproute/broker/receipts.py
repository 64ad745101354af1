# SPDX-License-Identifier: Apache-2.0
"""Receipts: which of a peer's messages have been taken already (T-36, Q-28).

A relaying peer numbers its messages: the delivery-tag is the id of the entry in its relay queue,
and the link property ``amqproute:stream`` names the store that gave the ids out. After a lost
connection or a crash it sends again what it has no outcome for; a receipt turns the second
arrival into a mere `accepted`.

A receipt is written in the same commit as the message. It is needed only while the peer may send
the id again, and the peer says how far that is: ``amqproute:floor``, in its attach and in flows,
is the lowest id that it may still send without knowing the outcome. Receipts below are dropped.
Streams that never come back are dropped by the store after a time (the longest life of a message
in a relay queue, and a margin).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

MAX_IDS = 200_000
"""Receipts kept of one stream; a peer that never tells its floor loses the oldest ones."""
MAX_STREAMS = 256
"""Streams kept of one peer: one for each of its hops to here, in each store it has ever had; the
oldest goes."""
HIGHEST_FLOOR = (1 << 63) - 1
"""What a store can keep as an id."""
PRUNE_EVERY = 256
"""Receipts that have to be droppable before a floor is written to the store."""


class Stream:
    """The receipts of one peer's stream.

    Attributes:
        key: names it in the store: the proved peer and the stream's name.
        ids: ids taken and not below the floor.
        pending: ids whose commit is under way.
        duplicates: arrivals that a receipt answered.
    """

    __slots__ = ("_above", "_below", "duplicates", "floor", "ids", "key", "pending")

    def __init__(self, key: str, ids: Sequence[int] = ()) -> None:
        self.key = key
        self.ids = set(ids)
        self.pending: set[int] = set()
        self.floor = 0
        self.duplicates = 0
        # The same ids again: a heap of those above the floor, and those that may go when they are
        # many. A peer tells floors as often as it likes; each may cost only what it forgets.
        self._above = sorted(self.ids)
        self._below: list[int] = []

    def seen(self, entry_id: int) -> bool:
        """Tell whether the message with this id was taken before."""
        if entry_id in self.ids:
            self.duplicates += 1
            return True
        return False

    def confirm(self, ids: Sequence[int]) -> None:
        """These are durable."""
        self.pending.difference_update(ids)
        self.ids.update(ids)
        for entry_id in ids:
            heappush(self._above, entry_id)

    def unmark(self, ids: Sequence[int]) -> None:
        """Take back receipts whose commit failed."""
        self.pending.difference_update(ids)

    def trim(self, transaction: Any) -> bool:
        """Keep the number of receipts bounded; True if something was put into the transaction."""
        if len(self.ids) <= MAX_IDS:
            return False
        kept = sorted(self.ids)[len(self.ids) // 2 :]
        self.ids = set(kept)
        self._above = kept
        self._below = []
        transaction.forget_received(self.key, kept[0])
        return True

    def forget_below(self, floor: int, transaction: Any) -> bool:
        """Drop receipts below the floor; True if something was put into the transaction."""
        floor = min(floor, HIGHEST_FLOOR)
        if floor <= self.floor:
            return False
        self.floor = floor
        above, below = self._above, self._below
        while above and above[0] < floor:
            below.append(heappop(above))
        if not below or (len(below) < PRUNE_EVERY and len(below) < len(self.ids)):
            return False
        self.ids.difference_update(below)
        below.clear()
        transaction.forget_received(self.key, floor)
        return True


class Receipts:
    """All streams, by key."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}

    def recovered(self, received: Mapping[str, Sequence[int]]) -> None:
        """Take over what the store remembers."""
        for key, ids in received.items():
            self._streams[key] = Stream(key, ids)

    def stream(self, peer: str, name: str, forget: Callable[[str], None]) -> Stream:
        """Return a peer's stream, a new one if need be.

        Args:
            peer: the proved name of the peer.
            name: what it calls the stream.
            forget: called with the key of a stream that has to make room.
        """
        key = f"{peer}/{name}"
        stream = self._streams.get(key)
        if stream is None:
            known = [key for key in self._streams if key.startswith(f"{peer}/")]
            if len(known) >= MAX_STREAMS:
                del self._streams[known[0]]
                forget(known[0])
            stream = self._streams[key] = Stream(key)
        return stream

    def __len__(self) -> int:
        return sum(len(stream.ids) for stream in self._streams.values())

    @property
    def duplicates(self) -> int:
        """Arrivals answered from a receipt since the start."""
        return sum(stream.duplicates for stream in self._streams.values())
