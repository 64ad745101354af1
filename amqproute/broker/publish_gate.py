# SPDX-License-Identifier: Apache-2.0
"""The gate for all publishers: while it is closed, none gets credit.

A queue with a capacity brakes its own publishers (`broker.publisher_credit`). What concerns all of
them, whichever node they send to, is one `PublishGate`: a disk that fills up, a store that takes
nothing, memory that runs out. As long as one reason stands it is closed: clients and peers have
their credit revoked, and what they sent before they knew is taken. Nobody is refused, nothing is
lost; consumers, relays, deletions and the management go on, which is how room comes about. With the
last reason it opens again by itself.

Reasons come and go by measurement (`amqproute.services.watermarks`) or by what happens: a commit
that failed for want of room closes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["DAMAGE", "DISK", "JOURNAL", "MAX_BYTES", "MEMORY", "STORE", "HeldMemory", "PublishGate"]

DISK: Final = "disk"
MAX_BYTES: Final = "max-bytes"
MEMORY: Final = "memory"
STORE: Final = "store"
JOURNAL: Final = "journal"
DAMAGE: Final = "damage"
"""The reasons: too little room on the disk, too much in the store, too much in memory, a store that
could not write, a journal that cannot be written, and a database that has proved damaged, which
stands until a restart."""


LEAST_PART: Final = 256 * 1024
"""Octets that each connection may have on their way in any case: what one read brings at most."""


class PublishGate:
    """Open, or closed for some reasons.

    Attributes:
        is_open: publishers may have credit.
        reasons: what is against it, with words for the operator.
        closed: how often it was closed since the start.
        has_failed: the store has failed, and has not taken a message since: whatever the reasons
            say, nothing goes ahead of it (`broker.early_delivery`).
    """

    __slots__ = ("_waiting", "_watchers", "closed", "has_failed", "is_open", "reasons")

    def __init__(self) -> None:
        self.is_open = True
        self.reasons: dict[str, str] = {}
        self.closed = 0
        self.has_failed = False
        self._watchers: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<PublishGate {'open' if self.is_open else 'closed: ' + ', '.join(self.reasons)}>"

    def watch(self, changed: Callable[[], None]) -> None:
        """Have ``changed()`` called whenever it has opened or closed; for as long as it lives."""
        self._watchers.append(changed)

    def when_open(self, notify: Callable[[], None]) -> None:
        """Have ``notify()`` called, once, when it opens next; before those who watch."""
        self._waiting.append(notify)

    def close(self, reason: str, words: str) -> bool:
        """Enter a reason; True if it did not stand before."""
        is_new = reason not in self.reasons
        self.reasons[reason] = words
        if self.is_open:
            self.is_open = False
            self.closed += 1
            self._notify()
        return is_new

    def open(self, reason: str) -> bool:
        """Strike a reason out; True if it stood."""
        if self.reasons.pop(reason, None) is None:
            return False
        if not self.reasons:
            self.is_open = True
            waiting, self._waiting = self._waiting, []
            for notify in waiting:
                notify()
            self._notify()
        return True

    def _notify(self) -> None:
        for changed in tuple(self._watchers):
            changed()


class HeldMemory:
    """Octets of messages that the broker has in memory because somebody sent them.

    They are counted where they stand: it is not the size of the process, which has much in it that
    no credit would have kept out. Bodies of queues are not in it: queues page
    (`broker.node_limits.MemoryBudget`).

    Args:
        gate: closed above the limit, opened again below three quarters of it.
        limit_bytes: the bound; 0 for none.

    Attributes:
        held_bytes: counted as they come and go: on their way to the disk.
        arriving_bytes: of deliveries that have begun and not ended, as they come.
    """

    __slots__ = ("_gate", "_is_above", "arriving_bytes", "held_bytes", "limit_bytes")

    def __init__(self, gate: PublishGate, limit_bytes: int = 0) -> None:
        self._gate = gate
        self._is_above = False
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.arriving_bytes = 0

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return self.held_bytes + self.arriving_bytes

    @property
    def low_bytes(self) -> int:
        """Octets below which the gate opens again."""
        return self.limit_bytes * 3 // 4

    def part(self, connections: int) -> int:
        """Return the octets that one of so many connections may hold now and be read on.

        There is no bound before half of the limit is used. From then on whoever holds more than
        its part of that half has to wait, so that one flood does not close the gate for all.
        """
        if not self.limit_bytes or self.used_bytes * 2 < self.limit_bytes:
            return 1 << 62
        return max(LEAST_PART, self.limit_bytes // 2 // max(1, connections))

    def hold(self, size: int) -> None:
        """Count so many octets."""
        self.held_bytes += size
        if self.held_bytes + self.arriving_bytes > self.limit_bytes and not self._is_above:
            self.look()

    @property
    def most_arriving(self) -> int:
        """The bound of `arriving_bytes` (`broker.partial_delivery_eviction`); 0 for none."""
        return self.limit_bytes // 4

    def arrive(self, octets: int) -> None:
        """Count so many octets more, or less, of unfinished deliveries."""
        self.arriving_bytes += octets
        if self._is_above or self.used_bytes > self.limit_bytes:
            self.look()

    def release(self, size: int) -> None:
        """Count them no more."""
        self.held_bytes -= size
        if self._is_above and self.held_bytes + self.arriving_bytes <= self.low_bytes:
            self.look()

    def look(self) -> None:
        """Close or open the gate, if it is time."""
        used = self.used_bytes
        if not self.limit_bytes:
            return
        if used > self.limit_bytes and not self._is_above:
            self._is_above = True
            self._gate.close(
                MEMORY,
                f"{used} bytes of messages are on their way in memory, {self.limit_bytes} may be "
                f"(limits.memory); open again at {self.low_bytes}",
            )
        elif self._is_above and used <= self.low_bytes:
            self._is_above = False
            self._gate.open(MEMORY)
