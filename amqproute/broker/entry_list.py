# SPDX-License-Identifier: Apache-2.0
"""Entries of one priority of one queue in id order: the head in memory, the rest in the store.

::

    returned (sorted list)  <  resident (deque)  <  paged (only a count here, rows in the store)

`returned` holds released entries; it is served first, which puts an entry back in its old place
(Q-05). `resident` is the head of the line in memory. `paged` is the rest; see the
package docstring for when entries are paged and why the order holds.

A consumer with a filter takes entries out of the middle. One that stood in the resident deque
leaves its *seat* there: the entry stays in the deque marked as taken, is passed over, and has its
old place again when it comes back. One that was found among the paged ones is *plucked*: its id
is remembered until the row is gone, so that it is not loaded a second time.

Consumers with a filter look ahead into the paged part. Entries that they have found there and not
taken are still paged; the line knows them (weakly), so that a row that is read again is the same
entry for every consumer.

There is one operation at a time on the paged part (`is_busy`): refill, scan, sweep or clearing out.
A row can therefore never be delivered twice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from weakref import WeakValueDictionary

from amqproute.broker.node_limits import MemoryBudget, QueueLimits
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.entry import ACCOUNT_SHIFT, TRANSIENT, Entry, later_by
from amqproute.errors import DecodeError
from amqproute.message import Message, ends_with_data
from amqproute.store.model import StoredEntry

LOAD_MESSAGES = 500
LOAD_BYTES = 4 * 1024 * 1024


def is_readable(row: StoredEntry) -> bool:
    """Return whether the octets of a row of the store are the sections of a message."""
    message = Message(row.encoded, row.rest)
    try:
        return message.delivery_count >= 0 and bool(row.encoded or row.rest is not None)
    except DecodeError:
        return False


def unreadable(rows: Sequence[StoredEntry]) -> list[StoredEntry]:
    """Return the rows of a page that are not messages, and complete the others.

    A row counts deliveries from its first change on, the header those from its sender's first
    attempt on: the row gets what the header says where that is more.

    Messages of one sender often differ in the contents of their bodies alone. What precedes the
    body is examined once for each run of these.
    """
    bad: list[StoredEntry] = []
    head, count = b"", 0
    for row in rows:
        encoded = row.encoded
        at = len(head)
        if not (at and encoded.startswith(head) and ends_with_data(encoded, at)):
            message = Message(encoded, row.rest)
            head = b""
            try:
                count = message.delivery_count
                offsets = message.offsets
            except DecodeError:
                bad.append(row)
                continue
            if not encoded and row.rest is None:
                bad.append(row)
                continue
            if row.rest is None and ends_with_data(encoded, offsets.body_start):
                head = encoded[: offsets.body_start]
        if count > row.delivery_count:
            row.delivery_count = count
    return bad


class EntryList:
    """The entries of one priority.

    Args:
        key: the name of its rows in the store.
        level: the priority; higher levels are served first.
        budget: the memory budget shared by all queues.
        accounts: the accounts of the senders.

    Attributes:
        returned: released entries, sorted by id.
        resident: the head of the line, in id order, seats of taken entries among them.
        resident_bytes: bytes of the messages available in memory.
        paged: entries that stand in the store only.
        paged_bytes: their bytes.
        tail: the highest id that stands, or stood, in the store only.
        paged_since_ms: a lower bound of when the first of them arrived, in the order of arrival.
        paged_expiry_ms: a lower bound of when the first of them expires; 0 for never.
        cursor: the highest id that is or was in memory, once the line pages.
        is_paging: new entries go to the store only.
        is_busy: the paged part is being read; the reader sets it, and passes the rows.
        seats: the seats of taken entries within `resident`.
        pending: entries put and not committed yet.
        plucked_ids: the ids of plucked entries whose rows may still be in the store.
    """

    __slots__ = (
        "_accounts",
        "_ahead",
        "_budget",
        "_filed",
        "_pending_bytes",
        "_pending_from",
        "_pending_paged",
        "cursor",
        "is_busy",
        "is_paging",
        "key",
        "level",
        "paged",
        "paged_bytes",
        "paged_expiry_ms",
        "paged_since_ms",
        "pending",
        "plucked_ids",
        "resident",
        "resident_bytes",
        "returned",
        "seats",
        "tail",
    )

    def __init__(
        self,
        key: str,
        level: int,
        budget: MemoryBudget,
        accounts: SenderQuotas,
    ) -> None:
        self._accounts = accounts
        self.key = key
        self.level = level
        self.returned: list[Entry] = []
        self.resident: deque[Entry] = deque()
        self.resident_bytes = 0
        self.paged = 0
        self.paged_bytes = 0
        self._filed = 0
        self.paged_expiry_ms = 0
        self.paged_since_ms = 0
        self.cursor = 0
        self.tail = 0
        self.is_paging = False
        self.is_busy = False
        self.pending = 0
        self._pending_paged = 0
        self._pending_bytes = 0
        self._pending_from = 0
        self.seats = 0
        self.plucked_ids: set[int] = set()
        self._ahead: WeakValueDictionary[int, Entry] | None = None  # made when it is needed
        self._budget = budget

    def __repr__(self) -> str:
        return f"<EntryList {self.key} available={self.available} paged={self.paged}>"

    # -- what there is -------------------------------------------------------------------------

    @property
    def in_memory(self) -> int:
        """Available entries in memory."""
        return len(self.returned) + len(self.resident) - self.seats

    @property
    def available(self) -> int:
        """Available entries."""
        return len(self.returned) + len(self.resident) - self.seats + self.paged

    @property
    def filed_bytes(self) -> int:
        """Octets of the bodies of available entries that are files of their own."""
        return self._filed if self.available else 0

    @property
    def next_id(self) -> int | None:
        """A lower bound of the ids that are or will be available; None when nothing is here."""
        lows = [entry.id for entry in self.returned[:1]]
        lows += [entry.id for entry in self._heads()]
        if self.paged or self._pending_paged:
            lows.append(self.cursor + 1)
        if self.pending:
            lows.append(self._pending_from)
        return min(lows) if lows else None

    @property
    def oldest_ms(self) -> int | None:
        """Arrival of the oldest available entry, or None without one.

        If none of them is in memory, as after a restart, it is the arrival of the last one that
        was, or of the first one that was found in the store.
        """
        heads = [*self.returned[:1], *self._heads()]
        if heads:
            return min(entry.arrived_ms for entry in heads)
        return self.paged_since_ms if self.paged else None

    def _heads(self) -> list[Entry]:
        head = next((entry for entry in self.resident if not entry.taken), None)
        return [] if head is None else [head]

    def entries(self) -> Iterator[Entry]:
        """Iterate over the available entries in memory, in order."""
        yield from self.returned
        for entry in self.resident:
            if not entry.taken:
                yield entry

    def recovered(
        self,
        count: int,
        size_bytes: int,
        newest_id: int,
        first_arrived_ms: int = 0,
        filed_bytes: int = 0,
    ) -> None:
        """Take over the stored entries of an earlier run of the daemon.

        Args:
            count: entries.
            size_bytes: the bytes of their messages.
            newest_id: an upper bound of their ids.
            first_arrived_ms: arrival of the first of them.
            filed_bytes: octets of bodies that are files of their own.
        """
        self.paged = count
        self.paged_bytes = size_bytes
        self._filed = filed_bytes
        self.is_paging = count > 0
        self.paged_since_ms = first_arrived_ms
        self.paged_expiry_ms = 1 if count else 0
        self.tail = newest_id if count else 0

    def hold(self, entry_id: int, size: int) -> None:
        """Withhold a stored entry from all consumers: a prepared branch holds it."""
        self.plucked_ids.add(entry_id)
        self._unpage(1, size)

    # -- in ------------------------------------------------------------------------------------

    def must_page(self, size: int, limits: QueueLimits) -> bool:
        """Return whether one more entry of this size has to be paged."""
        return (
            self.is_paging
            or self.resident_bytes + self._pending_bytes + size > limits.resident_bytes
            or len(self.resident) + self.pending >= limits.resident_messages
            or self._budget.used_bytes + size > self._budget.limit_bytes
        )

    def put(self, entry: Entry, size: int, pages: bool) -> None:
        """Note an entry that is about to be committed."""
        if pages and not self.is_paging:
            self.is_paging = True
            # Everything before this entry is resident, acquired or about to be.
            self.cursor = entry.id - 1
        if not self.pending:
            self._pending_from = entry.id
        self.pending += 1
        if pages:
            self._pending_paged += 1
            entry.taken = True  # it cannot be found in memory
        else:
            self._pending_bytes += size

    def room(self, sizes: Sequence[int], limits: QueueLimits) -> int:
        """Return how many messages of these sizes may follow in memory, of which the first may.

        As `must_page` for each, if the ones before it have been put.
        """
        most = limits.resident_messages - len(self.resident) - self.pending
        octets = limits.resident_bytes - self.resident_bytes - self._pending_bytes
        largest = self._budget.limit_bytes - self._budget.used_bytes
        for count, size in enumerate(sizes):
            octets -= size
            if octets < 0 or size > largest or count >= most:
                return count
        return len(sizes)

    def put_all(self, entries: Sequence[Entry], size: int, pages: bool) -> None:
        """Note entries that are about to be committed; see `put`.

        Args:
            entries: one at least.
            size: octets of their messages.
            pages: they go to the store only.
        """
        first = entries[0]
        self.put(first, size, pages)
        more = len(entries) - 1
        self.pending += more
        if pages:
            self._pending_paged += more
            for entry in entries:
                entry.taken = True

    def arrived(self, entry: Entry, size: int) -> bool:
        """Line up a committed entry; return whether it is in memory."""
        if entry.message.rest is not None:
            self._file(entry)
        self.pending -= 1
        if not entry.taken:
            self._pending_bytes -= size
            if self.resident and entry.id < self.resident[-1].id:
                insort(self.returned, entry)
            else:
                self.resident.append(entry)
            self.resident_bytes += size
            self._budget.used_bytes += size
            return True
        self._pending_paged -= 1
        if entry.id <= self.cursor or entry.id < self.tail:
            # A batch that was begun later was committed, and perhaps loaded, first: some consumers
            # would not read this row any more.
            if entry.id > self.cursor:
                self.plucked_ids.add(entry.id)
            entry.taken = False
            insort(self.returned, entry)
            self.remember(size)
            return True
        if not self.paged:
            self.paged_since_ms = entry.arrived_ms
        self.paged += 1
        self.paged_bytes += size
        self.tail = entry.id
        expires_ms = entry.expires_ms
        if expires_ms and (not self.paged_expiry_ms or expires_ms < self.paged_expiry_ms):
            self.paged_expiry_ms = expires_ms
        return False

    def postpone(self, ms: int, now_ms: int) -> None:
        """Note that the times of paged entries were shifted.

        The first expiry is not known any more; the known time stays a lower bound.
        """
        if self.paged:
            self.paged_since_ms += later_by(self.paged_since_ms, ms, now_ms)

    def passed(self, size: int) -> None:
        """Note the end of the commit of an entry that was delivered early."""
        self.pending -= 1
        self._pending_bytes -= size

    def not_arrived(self, entry: Entry, size: int) -> None:
        """Forget an entry that could not be committed."""
        self.pending -= 1
        if entry.taken:
            self._pending_paged -= 1
        else:
            self._pending_bytes -= size
        if not self.paged:
            self.leave_paging()

    def unmatched(self, entry: Entry, size: int) -> None:
        """Forget a committed entry, whose row must not be loaded until it is gone."""
        self.plucked_ids.add(entry.id)
        self.not_arrived(entry, size)

    def back(self, entry: Entry) -> None:
        """Put an entry back in its old place."""
        if entry.message.rest is not None:
            self._file(entry)
        entry.taken = False
        if entry.has_seat:
            entry.has_seat = False
            self.seats -= 1
        else:
            insort(self.returned, entry)
        self.remember(len(entry.message.encoded))

    def _file(self, entry: Entry) -> None:
        """Count an entry that becomes available, and whose body is a file of its own."""
        # Entries that an operator removed without knowing their sizes (damaged rows) end here.
        rest = entry.message.rest
        assert rest is not None
        self._filed = self.filed_bytes + rest.size

    def _unfile(self, entries: Iterable[Entry]) -> None:
        """Subtract the files of entries that are not available any more."""
        if self._filed:
            gone = sum(each.message.rest.size for each in entries if each.message.rest is not None)
            self._filed = max(0, self._filed - gone)

    def remember(self, size: int) -> None:
        """Add bytes of available entries in memory."""
        self.resident_bytes += size
        self._budget.used_bytes += size

    def forget(self, size: int) -> None:
        """Subtract bytes of entries that are not available in memory any more."""
        self.resident_bytes -= size
        self._budget.used_bytes -= size

    def leave_paging(self) -> None:
        """Let new entries stay in memory again once nothing is paged."""
        if self._pending_paged == 0:
            self.is_paging = False

    # -- out -----------------------------------------------------------------------------------

    def take(self, count: int) -> list[Entry]:
        """Take up to ``count`` entries from the resident line."""
        resident = self.resident
        entries: list[Entry] = []
        while resident and count > 0:
            entry = resident.popleft()
            if entry.taken:
                self._drop_seat(entry)
                continue
            entry.taken = True
            entries.append(entry)
            count -= 1
        messages = [entry.message for entry in entries]
        size = sum([len(message.encoded) for message in messages])
        filed = sum([message.rest.size for message in messages if message.rest is not None])
        self.resident_bytes -= size
        self._budget.used_bytes -= size
        if filed and self._filed:
            self._filed = max(0, self._filed - filed)
        return entries

    def pluck(self, entry: Entry) -> bool:
        """Take one entry, wherever it is; return whether it was in the paged part."""
        entry.taken = True
        self._unfile((entry,))
        if self.is_paging and entry.id > self.cursor and entry.id not in self.plucked_ids:
            self.plucked_ids.add(entry.id)
            self._unpage(1, len(entry.message.encoded))
            return True
        self.forget(len(entry.message.encoded))
        index = bisect_left(self.returned, entry)
        if index < len(self.returned) and self.returned[index] is entry:
            del self.returned[index]
            return False
        resident = self.resident
        while resident[0] is not entry and resident[0].taken:
            self._drop_seat(resident.popleft())
        if resident[0] is entry:
            resident.popleft()
            return False
        entry.has_seat = True
        self.seats += 1
        if self.seats > 64 and self.seats > len(self.resident) // 2:
            self._compact()
        return False

    def plucked(self, entries: Sequence[Entry]) -> list[int]:
        """Return the ids of those entries that were plucked out of the paged part."""
        return [
            entry.id for entry in entries if entry.line is self and entry.id in self.plucked_ids
        ]

    def rows_removed(self, ids: Sequence[int]) -> None:
        """Forget plucked entries whose rows have left the store: they cannot be loaded again."""
        self.plucked_ids.difference_update(ids)

    def _drop_seat(self, entry: Entry) -> None:
        if entry.has_seat:
            entry.has_seat = False
        self.seats -= 1

    def _compact(self) -> None:
        """Drop seats: entries that come back then join the returned ones, in their order."""
        for entry in self.resident:
            entry.has_seat = False
        self.resident = deque(entry for entry in self.resident if not entry.taken)
        self.seats = 0

    def remove(self, gone: set[Entry]) -> None:
        """Remove these entries from memory for good."""
        for entry in gone:
            entry.taken = True
        self.returned = [entry for entry in self.returned if entry not in gone]
        self.resident = deque(entry for entry in self.resident if entry not in gone)
        self.forget(sum(len(entry.message.encoded) for entry in gone))
        self._unfile(gone)

    def clear(self) -> list[Entry]:
        """Remove all entries from memory and return them."""
        entries = list(self.entries())
        self.remove(set(entries))
        return entries

    # -- the paged part --------------------------------------------------------------------------

    def lost(self, entry_id: int, size: int) -> None:
        """Forget a damaged paged entry, which the store does not return any more."""
        if entry_id > self.cursor and entry_id not in self.plucked_ids:
            self._unpage(1, size)

    def needs_refill(self, limits: QueueLimits) -> bool:
        """Return whether to load the next page: few entries are left, and there is room."""
        if not self.paged or self.is_busy:
            return False
        if len(self.resident) - self.seats > LOAD_MESSAGES // 2:
            return False
        if self.resident and self.resident_bytes > LOAD_BYTES // 2:
            return False
        # Entries that every consumer has barred itself from: more would only fill the memory.
        return not self.returned or (
            len(self.returned) < limits.resident_messages
            and self.resident_bytes < limits.resident_bytes
        )

    def refilled(self, rows: Sequence[StoredEntry]) -> list[Entry]:
        """Line up a page that was loaded after the cursor; return its entries."""
        self.is_busy = False
        entries = [self.entry(row) for row in rows if row.id not in self.plucked_ids]
        if rows:
            self.cursor = rows[-1].id
            self.paged_since_ms = rows[-1].arrived_ms
            size = sum([len(entry.message.encoded) for entry in entries])
            self.resident.extend(entries)
            self._unpage(len(entries), size)
            self.remember(size)
            self.plucked_ids = {one for one in self.plucked_ids if one > self.cursor}
        else:
            # The count includes rows that have expired in the store meanwhile.
            self.paged = self.paged_bytes = 0
            self.leave_paging()
        return entries

    def scanned(self, rows: Sequence[StoredEntry]) -> list[Entry]:
        """Return the entries of a page that are still paged and not taken."""
        self.is_busy = False
        return [self.entry(row) for row in self.unread(rows)]

    def found(self, entry: Entry) -> None:
        """Remember a paged entry that a consumer wants, as long as it wants it."""
        entry.taken = False
        if self._ahead is None:
            self._ahead = WeakValueDictionary()
        self._ahead[entry.id] = entry

    def cleared(self, rows: Sequence[StoredEntry]) -> list[Entry]:
        """Take a page that was loaded after the cursor off the line; return its entries."""
        entries = self.scanned(rows)
        for entry in entries:
            entry.taken = True
        if rows:
            self.cursor = rows[-1].id
            self.paged_since_ms = rows[-1].arrived_ms
            self._unpage(len(entries), sum(len(entry.message.encoded) for entry in entries))
            self._unfile(entries)
        return entries

    def unread(self, rows: Sequence[StoredEntry]) -> list[StoredEntry]:
        """Return those of these rows that are still paged and not taken."""
        return [row for row in rows if row.id > self.cursor and row.id not in self.plucked_ids]

    def swept(self, rows: Sequence[StoredEntry], now_ms: int) -> list[Entry]:
        """Take paged entries that have expired off the line; return them."""
        entries = self.scanned(rows)
        for entry in entries:
            entry.taken = True
            self.plucked_ids.add(entry.id)
        # Full page: there may be more. Otherwise look again in a while: later arrivals that
        # expire earlier lower the mark themselves.
        self.paged_expiry_ms = now_ms if len(rows) == LOAD_MESSAGES else now_ms + 60_000
        self._unpage(len(entries), sum(len(entry.message.encoded) for entry in entries))
        self._unfile(entries)
        return entries

    def _unpage(self, count: int, size: int) -> None:
        self.paged = max(0, self.paged - count)
        self.paged_bytes = max(0, self.paged_bytes - size)
        if not self.paged:
            self.paged_expiry_ms = 0
            self.leave_paging()

    def entry(self, row: StoredEntry) -> Entry:
        """Return the entry of a row of the store; make it if there is none yet.

        The row has been completed by `unreadable`, or is damaged: its octets need not be a message.
        """
        if self._ahead:
            known = self._ahead.get(row.id)
            if known is not None:
                return known
        return self.new_entry(row)

    def new_entry(self, row: StoredEntry) -> Entry:
        """Make an entry of a row of the store; see `entry`."""
        entry = Entry(
            row.id,
            Message(row.encoded, row.rest),
            not row.flags & TRANSIENT,
            True,
            row.arrived_ms,
            row.expires_ms,
            row.delivery_count,
        )
        entry.line = self
        if row.flags >> ACCOUNT_SHIFT:
            self._accounts.loaded(entry, row.flags)
        return entry
