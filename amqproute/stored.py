# SPDX-License-Identifier: Apache-2.0
"""What a store gives back: plain values, without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["DamagedEntry", "QueueSummary", "StoreRecovery", "StoreRoom", "StoredEntry"]


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
