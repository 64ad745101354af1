# SPDX-License-Identifier: Apache-2.0
"""One message on one queue.

An entry is what a queue keeps and a consumer receives: the message's octets and the broker's own
facts about it, which are never added to the octets (part 3 §3.2: the bare message is immutable).

    available --acquire--> acquired --accepted, rejected--> archived
        ^                     |
        +------released-------+

The state follows from the place of the entry: in a queue's entry list (available), held by a
consumer (acquired), nowhere (archived).
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

from amqproute.message import Message

MOST_COUNTED: Final = 0xFFFFFFFF
"""Maximum of a delivery-count: it is a uint, and a sender may start it anywhere."""
FLEETING_MS: Final = 1 << 62
"""expires_ms of an entry with a ttl of 0 that has not been offered to the consumers yet (D-11)."""
TRANSIENT: Final = 1
"""Store flag: a non-durable entry that was paged out; dropped when the store is opened."""
ACCOUNT_SHIFT: Final = 8
"""First bit of the number of the entry's account in the store's flags."""


def later_by(arrived_ms: int, ms: int, now_ms: int) -> int:
    """Return how far the age of an item is postponed, in ms, after the clock was set ahead.

    By the jump; but no arrival may lie in the future. An item that arrived before a restart, while
    the clock was right, would otherwise live longer by the whole jump.

    Args:
        arrived_ms: time of its arrival, by the clock then.
        ms: the jump of the clock.
        now_ms: the clock now.
    """
    return max(0, min(ms, now_ms - arrived_ms))


class Entry:
    """An entry on a queue.

    Attributes:
        id: position in the queue and identity in the store; grows over the whole store's life.
        message: the message, annotated as it arrived.
        durable: the entry is in the store and must survive this process.
        stored: a row in the store has to be deleted when the entry is archived.
        arrived_ms: wall clock at arrival, ms since the epoch.
        expires_ms: wall clock after which it must not be delivered; 0 means never.
        delivery_count: earlier attempts that failed (header.delivery-count, part 3 §3.2.1).
        attempted: it has been handed to a consumer before (clears header.first-acquirer).
        origin: the container-id of its connection, for filters; not kept in the store, so None
            after it was paged out.
        line: the `EntryList` that it is in, or was in before it was acquired.
        taken: not available: a consumer holds it, or it is gone.
        has_seat: whether it was acquired from the middle of its list, and its place is kept.
        identity: digest of its message-id on queues that reject duplicates; else 0.
        barred: consumers that said undeliverable-here (part 3 §3.4.5), or None. Held weakly, so
            that short-lived consumers leave nothing behind.
        charge: the account that it is charged to and its octets; None for none.
        sent_us: wall clock of its last delivery to a consumer, microseconds since the epoch; 0
            before, and without a journal.
        tries: number of deliveries since it was loaded into memory.
    """

    __slots__ = (
        "__weakref__",
        "arrived_ms",
        "attempted",
        "barred",
        "charge",
        "delivery_count",
        "durable",
        "expires_ms",
        "has_seat",
        "id",
        "identity",
        "line",
        "message",
        "origin",
        "sent_us",
        "stored",
        "taken",
        "tries",
    )

    def __init__(
        self,
        id: int,
        message: Message,
        durable: bool,
        stored: bool,
        arrived_ms: int,
        expires_ms: int,
        delivery_count: int = 0,
    ) -> None:
        self.id = id
        self.message = message
        self.durable = durable
        self.stored = stored
        self.arrived_ms = arrived_ms
        self.expires_ms = expires_ms
        self.delivery_count = delivery_count
        self.attempted = False
        self.taken = False
        self.has_seat = False
        self.identity = 0
        self.line: Any = None
        self.origin: str | None = None
        self.barred: WeakSet[Any] | None = None
        self.charge: tuple[Any, int] | None = None
        self.sent_us = 0
        self.tries = 0

    def postpone(self, ms: int, now_ms: int) -> None:
        """Postpone its aging after a change of the clock. See `later_by`."""
        by_ms = later_by(self.arrived_ms, ms, now_ms)
        self.arrived_ms += by_ms
        if self.expires_ms > 0:
            self.expires_ms += by_ms

    def bar(self, consumer: object) -> None:
        """Withhold it from a consumer that has said undeliverable-here."""
        if self.barred is None:
            self.barred = WeakSet()
        self.barred.add(consumer)

    def __lt__(self, other: Entry) -> bool:
        return self.id < other.id

    def __repr__(self) -> str:
        return f"<Entry {self.id} {len(self.message.encoded)} bytes count={self.delivery_count}>"
