# SPDX-License-Identifier: Apache-2.0
"""The gate for all publishers: while it is closed, none gets credit.

A queue with a capacity limits its own publishers (`broker.publisher_credit`). Shortages that
concern all publishers, whatever node they send to, close one `PublishGate`: a disk that fills up, a
store that takes nothing, memory that runs out. As long as one reason stands it is closed: the
credit of clients and peers is revoked, and messages sent before are taken. Nothing is refused or
lost; consumers, relays, deletions and management go on, which frees room. It opens again by itself
when the last reason is gone.

Reasons come and go by measurement (`amqproute.services.watermarks`) or by events: a commit that
failed for lack of room closes it at once.
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
"""Octets that each connection may have on their way in any case: the most that one read brings."""


class PublishGate:
    """Open, or closed for some reasons.

    Attributes:
        is_open: whether publishers may have credit.
        reasons: the reasons against it, with words for the operator.
        closed: number of times it was closed since the start.
        has_failed: the store has failed, and has not taken a message since: there is no early
            delivery, whatever the reasons (`broker.early_delivery`).
    """

    __slots__ = ("_removals", "_waiting", "_watchers", "closed", "has_failed", "is_open", "reasons")

    def __init__(self) -> None:
        self.is_open = True
        self.reasons: dict[str, str] = {}
        self.closed = 0
        self.has_failed = False
        self._watchers: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []
        self._removals: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<PublishGate {'open' if self.is_open else 'closed: ' + ', '.join(self.reasons)}>"

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed()`` whenever it has opened or closed."""
        self._watchers.append(changed)

    def when_open(self, notify: Callable[[], None]) -> None:
        """Call ``notify()`` once when it opens next, before the watchers."""
        self._waiting.append(notify)

    def when_writing(self, notify: Callable[[], None]) -> None:
        """Call ``notify()`` once when the reason `STORE` goes next, whatever others there are.

        For what frees room: while it waits for the gate, `DISK` and `MAX_BYTES` may stay for ever.
        """
        self._removals.append(notify)

    def close(self, reason: str, words: str) -> bool:
        """Add a reason; return whether it is new."""
        is_new = reason not in self.reasons
        self.reasons[reason] = words
        if self.is_open:
            self.is_open = False
            self.closed += 1
            self._notify()
        return is_new

    def open(self, reason: str) -> bool:
        """Remove a reason; return whether it was there."""
        if self.reasons.pop(reason, None) is None:
            return False
        if reason == STORE:
            removals, self._removals = self._removals, []
            for notify in removals:
                notify()
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
    """Octets of incoming messages in memory.

    They are counted, not measured by the size of the process, much of which does not depend on
    credit. Messages on queues are not included: queues page (`broker.node_limits.MemoryBudget`).

    Args:
        gate: closed above the limit, opened again below three quarters of it.
        limit_bytes: the bound; 0 for none.

    Attributes:
        held_bytes: the bytes of messages on their way to the disk.
        arriving_bytes: the bytes of unfinished deliveries.
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
        """The total."""
        return self.held_bytes + self.arriving_bytes

    @property
    def low_bytes(self) -> int:
        """Octets below which the gate opens again."""
        return self.limit_bytes * 3 // 4

    def part(self, connections: int) -> int:
        """Return the octets that one of so many connections may hold before reading pauses.

        There is no bound before half of the limit is used. From then on connections that hold more
        than their part of that half have to wait, so that one flood does not close the gate for
        all.
        """
        if not self.limit_bytes or self.used_bytes * 2 < self.limit_bytes:
            return 1 << 62
        return max(LEAST_PART, self.limit_bytes // 2 // max(1, connections))

    def hold(self, size: int) -> None:
        """Add so many octets."""
        self.held_bytes += size
        if self.held_bytes + self.arriving_bytes > self.limit_bytes and not self._is_above:
            self.look()

    @property
    def most_arriving(self) -> int:
        """The bound of `arriving_bytes` (`broker.partial_delivery_eviction`); 0 for none."""
        return self.limit_bytes // 4

    def arrive(self, octets: int) -> None:
        """Add so many octets of unfinished deliveries; subtract them if negative."""
        self.arriving_bytes += octets
        if self._is_above or self.used_bytes > self.limit_bytes:
            self.look()

    def release(self, size: int) -> None:
        """Subtract so many octets."""
        self.held_bytes -= size
        if self._is_above and self.held_bytes + self.arriving_bytes <= self.low_bytes:
            self.look()

    def look(self) -> None:
        """Close or open the gate by the present use."""
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
