# SPDX-License-Identifier: Apache-2.0
"""What goes into the store and what comes out of it: plain values, no behavior."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import sub
from typing import Any, Final

from amqproute.values import QUARANTINE

QUARANTINE_NUMBER: Final = -1
"""The queue of entries that were found damaged. It has no row of its own in the database."""
TRANSIENT: Final = 1
"""Bit 0 of `StoredEntry.flags`: a non-durable entry that was paged out; `open` deletes it."""

MEBIBYTE: Final = 1024 * 1024


@dataclass(slots=True)
class StoredEntry:
    """One entry as `load` returns it.

    Attributes:
        id: strictly increasing over the whole store, also across restarts; the order of a
            queue is the order of its ids.
        encoded: the annotated message, byte for byte.
        arrived_ms: wall clock, milliseconds since the epoch.
        expires_ms: the same clock; 0 means never.
        delivery_count: failed deliveries so far (part 3 §3.2.1).
        flags: `TRANSIENT`; the other bits belong to the broker.
        payload_id: the shared payload that `encoded` is, 0 for a body of its own. Entries of one
            page with the same payload have the same bytes object.
        rest: the `IBody` that follows `encoded`; None for a message that is all there.
    """

    id: int
    encoded: bytes
    arrived_ms: int
    expires_ms: int
    delivery_count: int
    flags: int
    payload_id: int = 0
    rest: Any = None


@dataclass(slots=True)
class DamagedEntry:
    """An entry that does not match its checksums, or cannot be read.

    Attributes:
        entry_id: its id.
        why: what is wrong, in words.
        entry: what can be read of it, not to be handed to anybody; None for nothing.
        size: its bytes, as its queue counts them.
    """

    entry_id: int
    why: str
    entry: StoredEntry | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """What a queue holds.

    Entries, bytes of encoded messages, the ids at both ends, when the first of them arrived by the
    wall clock, and octets of bodies that are files of their own.
    """

    count: int
    bytes: int
    first_id: int
    last_id: int
    first_arrived_ms: int
    filed_bytes: int = 0


@dataclass(slots=True)
class StoreRecovery:
    """What the store remembers when it is opened.

    Attributes:
        queues: by name, those that have entries.
        received: receipt stream -> the ids still remembered, ascending.
        notes: kind -> key -> value.
        accounts: number of an account -> how many entries stand in it, and their octets.
        received_ms: the date of the newest receipt, ms; 0 without.
        outbox: the rows that are left of what `IOutbox.carry` returned, in order.
        is_restored: the database is not the one that was here last.
        accepted: the finding in spite of which an operator has it opened; empty for none
            (`amqproute.store.start_evidence`).
        tells_senders: messages that are missing are to be reported to their senders.
        quarantined: how many damaged entries are kept in nobody's reach.
    """

    queues: dict[str, QueueSummary] = field(default_factory=dict)
    accounts: dict[int, tuple[int, int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)
    received_ms: int = field(default=0, compare=False)
    notes: dict[str, dict[str, bytes]] = field(default_factory=dict)
    outbox: list[tuple[int, bytes]] = field(default_factory=list)
    is_restored: bool = False
    accepted: str = ""
    tells_senders: bool = False
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class StoreRoom:
    """How much the store may still grow, bytes.

    Attributes:
        free: of the file system, for whoever is not root, less what the log will need of it.
        total: of the file system.
        reusable: within the database: pages that nothing stands on any more. Its file never
            shrinks.
        used: by what is stored, in the database and in files.
        is_short: the disk was full, the database may not grow, and has not plenty of pages that
            nothing stands on.
        plenty: octets that end this: free, or on such pages.
    """

    free: int
    total: int
    reusable: int
    used: int
    is_short: bool = False
    plenty: int = 0

    @property
    def writable(self) -> int:
        """Octets that may be written, wherever they go."""
        return self.free + self.reusable


def is_worth_a_try(room: int, before: int) -> bool:
    """Tell whether what has failed for want of room should be tried again at once.

    Where there is twice as much and a mebibyte: so a disk that empties slowly costs few tries.

    Args:
        room: octets that may be written now.
        before: the least that could be since it has failed.
    """
    return room >= 2 * before + MEBIBYTE


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A run of received ids, remembered together: one row, whatever their number.

    Attributes:
        low: the smallest id.
        high: the largest id.
        steps: the differences between neighbors; empty when there are no gaps.
        at_ms: when they were marked.
    """

    low: int
    high: int
    steps: tuple[int, ...]
    at_ms: int

    @classmethod
    def of(cls, ids: Iterable[int], at_ms: int) -> StoredReceipt:
        """Pack `ids`, which are not empty, in any order, with repetitions or without."""
        ordered = sorted(set(ids))
        low, high = ordered[0], ordered[-1]
        if high - low == len(ordered) - 1:
            return cls(low, high, (), at_ms)
        return cls(low, high, tuple(map(sub, ordered[1:], ordered)), at_ms)

    def ids(self) -> Sequence[int]:
        """The ids again, ascending."""
        if not self.steps:
            return range(self.low, self.high + 1)
        return list(accumulate(self.steps, initial=self.low))

    def without_below(self, below: int) -> StoredReceipt | None:
        """The rest of this receipt once ids under `below` are forgotten; None for no rest."""
        left = [one for one in self.ids() if one >= below]
        return StoredReceipt.of(left, self.at_ms) if left else None


class QueueNumbers(dict[str, int]):
    """Queue names to the small numbers that rows carry; a new name gets the next number.

    Attributes:
        unsaved: numbers whose names the database has not got yet. The reactor's thread adds,
            the writer's thread takes away after the commit that holds them; each single step
            is one dict operation, so no lock is needed.
    """

    def __init__(self) -> None:
        super().__init__({QUARANTINE: QUARANTINE_NUMBER})
        self.unsaved: dict[int, str] = {}
        self._last = 0

    def __missing__(self, name: str) -> int:
        self._last += 1
        # First the promise to save the name, then the number: a row can never reach the
        # writer before the name of its queue does.
        self.unsaved[self._last] = name
        self[name] = self._last
        return self._last

    def restore(self, names: Iterator[tuple[int, str]]) -> None:
        """Take over the numbers that the database knows."""
        for number, name in names:
            self[name] = number
            self._last = max(self._last, number)
