# SPDX-License-Identifier: Apache-2.0
"""Duplicate detection by the message-ids that a queue holds (Q-09, M-07).

A message whose id is held is not put again; its outcome is `accepted`. If the first one has not
been committed yet, it is not certain that it will be held: both are put, and the second is removed
when it arrives and finds the first.

After a restart, and when the policy changes, the backlog is *indexed*: read once, a page at a
time, for its ids. Meanwhile the queue has no space, so links get no credit; messages without
credit (from peers, or from other nodes) are compared with the ids read so far. An entry that leaves
before the index has reached it is noted, so that the page that still has it does not bring its id
back.

Ids beyond `MOST` on one queue are not compared any more, with a warning in the log. The queue reads
the pages that this class requests, and writes the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from amqproute.broker.entry_list import EntryList, is_readable
from amqproute.broker.message_id_index import MessageIdIndex, identity_of
from amqproute.entry import Entry
from amqproute.errors import DecodeError
from amqproute.message import Message
from amqproute.store.model import StoredEntry

MOST: Final = 5_000_000
"""Most ids remembered for one queue: about 45 MB."""
RETRY_SECONDS: Final = 1.0
"""Delay before a page that could not be read is read again."""
UNKNOWN: Final = -1
"""Identity of an entry that is exempt from the comparison, and may have a duplicate."""


class DuplicateFilter:
    """The ids of one queue.

    Args:
        with_numbers: ids of the type ulong count as well.

    Attributes:
        doubtful: entries put that may turn out to be duplicates when they arrive.
        is_full: ids have been left out since there were too many.
        run: number of starts of the index; pages requested in an earlier run are void.
    """

    __slots__ = (
        "_bound",
        "_cursor",
        "_held",
        "_left",
        "_lines",
        "_uncommitted",
        "doubtful",
        "is_full",
        "run",
        "with_numbers",
    )

    def __init__(self, with_numbers: bool) -> None:
        self.with_numbers = with_numbers
        self._held = MessageIdIndex()
        self._uncommitted: set[int] = set()
        self.doubtful: set[Entry] = set()
        self._lines: list[EntryList] = []
        self._cursor = 0
        self._bound = 0
        self._left: set[int] = set()
        self.is_full = False
        self.run = 0

    def __len__(self) -> int:
        return len(self._held)

    # -- in ------------------------------------------------------------------------------------

    def identity(self, message: Message) -> int:
        """Return the hash of a message's id, 0 if it is not compared."""
        return identity_of(message, self.with_numbers)

    def holds(self, identity: int) -> bool:
        """Return whether a message with this id is held and committed."""
        return identity in self._held and identity not in self._uncommitted

    def knows(self, identity: int) -> bool:
        """Return whether a message with this id is held, committed or not yet."""
        return identity in self._held

    def put(self, entry: Entry, identity: int) -> bool:
        """Note an entry that is about to be committed; False if there are too many ids."""
        if identity in self._uncommitted:
            self.doubtful.add(entry)
            return True
        if len(self._held) >= MOST:
            return False
        entry.identity = identity
        self._uncommitted.add(identity)
        self._held.add(identity)
        return True

    def arrived(self, entries: Sequence[Entry]) -> list[Entry]:
        """Note committed entries; return the duplicates among them."""
        if self._uncommitted:
            self._uncommitted.difference_update([entry.identity for entry in entries])
        if not self.doubtful:
            return []
        twice = []
        for entry in entries:
            if entry in self.doubtful:
                self.doubtful.discard(entry)
                identity = self.identity(entry.message)
                if identity in self._held:
                    twice.append(entry)
                else:
                    entry.identity = identity
                    self._held.add(identity)
        return twice

    def not_arrived(self, entries: Iterable[Entry]) -> None:
        """Forget entries that could not be committed."""
        for entry in entries:
            self.doubtful.discard(entry)
            if entry.identity:
                self._uncommitted.discard(entry.identity)
                self._held.discard(entry.identity)

    def not_safe(self, entries: Sequence[Entry]) -> None:
        """Exempt entries from the comparison that live on in memory after a failed commit.

        Their sender is in doubt. A repetition has to be stored before it is accepted.
        """
        self.not_arrived(entries)
        for entry in entries:
            entry.identity = UNKNOWN

    # -- out -----------------------------------------------------------------------------------

    def gone(self, entries: Iterable[Entry]) -> None:
        """Forget entries that the queue does not hold any more."""
        held = self._held
        # Most queues hold no message with an id, so there is none to look for.
        if held.count or self._lines:
            for entry in entries:
                if self._lines and not self._is_indexed(entry.line, entry.id):
                    self._left.add(entry.id)
                else:
                    held.discard(entry.identity or self._known(entry.message))
        self.is_full = False

    def back(self, entries: Iterable[Entry]) -> None:
        """Undo `gone`."""
        for entry in entries:
            if entry.id in self._left:
                self._left.discard(entry.id)
            elif entry.identity != UNKNOWN:
                self._held.add(entry.identity or self._known(entry.message))

    def _known(self, message: Message) -> int:
        try:
            return identity_of(message, self.with_numbers)
        except DecodeError:
            return 0  # it was stored before its id was read

    def _is_indexed(self, line: EntryList, entry_id: int) -> bool:
        lines = self._lines
        if not lines or entry_id >= self._bound:
            return True
        return line not in lines or (line is lines[0] and entry_id <= self._cursor)

    # -- the backlog ---------------------------------------------------------------------------

    def begin_index(
        self, lines: Iterable[EntryList], bound: int, in_memory: Iterable[Entry] = ()
    ) -> None:
        """Begin to read the ids of all entries; one in progress starts again.

        Args:
            lines: the lines with entries in the store.
            bound: only entries with smaller ids are read.
            in_memory: entries that are not in the store.
        """
        self._bound = bound
        self._lines = list(lines)
        self._cursor = 0
        self.run += 1
        for entry in in_memory:
            if entry.identity == UNKNOWN:
                continue
            entry.identity = self._known(entry.message)
            if entry.identity:
                self._held.add(entry.identity)

    def stop(self) -> None:
        """Make the requested page void."""
        self.run += 1

    def next_page(self) -> tuple[str, int] | None:
        """Return the key of a line and the id after which to read it; None at the end."""
        return (self._lines[0].key, self._cursor) if self._lines else None

    def indexed(self, rows: Sequence[StoredEntry]) -> None:
        """Note the ids of the page requested by `next_page`."""
        last = 0
        for row in rows:
            last = row.id
            if last >= self._bound:
                break
            if last in self._left or not is_readable(row):
                continue
            identity = self._known(Message(row.encoded))
            if identity and len(self._held) < MOST:
                self._held.add(identity)
        self._cursor = last
        if not rows or last >= self._bound:
            self._lines.pop(0)
            self._cursor = 0
            if not self._lines:
                self._left.clear()
