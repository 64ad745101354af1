# SPDX-License-Identifier: Apache-2.0
"""Values that a store returns."""

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
        payload_id: id of the shared payload in `encoded`, 0 for a body of its own. Entries of one
            page with the same payload have the same bytes object.
        rest: the `IBody` that follows `encoded`; None for a message without one.
    """

    id: int
    encoded: bytes
    arrived_ms: int
    expires_ms: int
    delivery_count: int
    flags: int
    payload_id: int = 0
    rest: Any = None  # Any: within the store its own row, until it has made an `IBody` of it


@dataclass(slots=True)
class DamagedEntry:
    """An entry that does not match its checksums, or cannot be read.

    Attributes:
        entry_id: its id.
        why: the defect, as text.
        entry: its readable part, never to be delivered; None for nothing.
        size: its bytes in the accounts of its queue.
    """

    entry_id: int
    why: str
    entry: StoredEntry | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """Summary of a queue.

    Number of entries, bytes of encoded messages, first and last id, arrival of the first entry by
    the wall clock, and octets of bodies in files of their own.
    """

    count: int
    bytes: int
    first_id: int
    last_id: int
    first_arrived_ms: int
    filed_bytes: int = 0


@dataclass(slots=True)
class StoreRecovery:
    """Contents of a store when it is opened, without entries.

    Attributes:
        queues: by name, those that have entries.
        received: receipt stream -> the ids still remembered, ascending.
        notes: kind -> key -> value.
        accounts: number of an account -> number of entries charged to it, and their octets.
        received_ms: the date of the newest receipt, ms; 0 without.
        outbox: rows returned by `IOutbox.carry` that are not obsolete, in order.
        is_restored: the database is not the one that was open last.
        accepted: the finding that an operator has accepted; empty for none
            (`amqproute.store.start_evidence`).
        tells_senders: missing messages are to be reported to their senders.
        quarantined: number of damaged entries, which are kept and not delivered.
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
    """Room for the store, bytes.

    Attributes:
        free: of the file system, for users other than root, less what the log will need of it.
        total: the total of the file system.
        reusable: unused pages within the database, whose file never shrinks.
        used: by what is stored, in the database and in files.
        is_short: the disk was full, the database may not grow, and does not have plenty of
            unused pages.
        plenty: octets that end this: free, or in unused pages.
    """

    free: int
    total: int
    reusable: int
    used: int
    is_short: bool = False
    plenty: int = 0

    @property
    def writable(self) -> int:
        """Octets that may be written, to either."""
        return self.free + self.reusable
