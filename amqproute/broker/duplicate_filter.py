# SPDX-License-Identifier: Apache-2.0
"""A queue takes each message once: what it knows of the ids it holds, and how (Q-09, M-07).

A message whose id is held is not put again; its sender is told `accepted`. If the other one has
not been committed yet, nobody knows whether it will be held: both are put, and the second goes
when it arrives and finds the first.

After a restart, and when the policy changes, the backlog is *indexed*: read once, a page at a
time, for its ids. Meanwhile the queue has no space, so links get no credit; what comes without
credit (from peers, or from other nodes) is compared with what has been read so far. An entry
that leaves before the index has come to it is noted, so that the page it is still on does not
bring its id back.

Ids beyond `MOST` on one queue are not compared any more; the log says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.entry_list import LOAD_BYTES, LOAD_MESSAGES, EntryList, is_readable
from amqproute.broker.message_id_index import MessageIdIndex, identity_of
from amqproute.entry import Entry
from amqproute.errors import DecodeError
from amqproute.message import Message

MOST: Final = 5_000_000
"""Ids that are remembered for one queue: about 45 MB."""
RETRY_SECONDS: Final = 1.0
UNKNOWN: Final = -1
"""The identity of an entry that may be there a second time: no message is compared with it."""


class DuplicateFilter:
    """The ids of one queue.

    Args:
        name: of the queue, for the log.
        store: the `IStore`.
        clock: for another try when the store could not be read.
        with_numbers: ids of the type ulong count as well.
        when_indexed: called when the backlog has been read.
    """

    def __init__(
        self,
        name: str,
        store: Any,
        clock: IReactorTime,
        with_numbers: bool,
        when_indexed: Callable[[], None],
        log: Logger,
    ) -> None:
        self.with_numbers = with_numbers
        self._name = name
        self._store = store
        self._clock = clock
        self._when_indexed = when_indexed
        self._log = log
        self._held = MessageIdIndex()
        self._uncommitted: set[int] = set()
        self._doubtful: set[Entry] = set()
        self._lines: list[EntryList] = []
        self._cursor = 0
        self._bound = 0
        self._left: set[int] = set()
        self._is_full = False
        self._runs = 0
        self._stopped = False
        self._retry: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_in_doubt(self) -> bool:
        """An entry has been put which will go when it arrives, if another one is held by then."""
        return bool(self._doubtful)

    # -- in ------------------------------------------------------------------------------------

    def identity(self, message: Message) -> int:
        """Return what stands for the message's id, 0 if it is not compared."""
        return identity_of(message, self.with_numbers)

    def holds(self, identity: int) -> bool:
        """Tell whether a message of this id is held, safely."""
        return identity in self._held and identity not in self._uncommitted

    def knows(self, identity: int) -> bool:
        """Tell whether a message of this id is held, safely or not yet."""
        return identity in self._held

    def put(self, entry: Entry, identity: int) -> None:
        """Note an entry that is about to be committed."""
        if identity in self._uncommitted:
            self._doubtful.add(entry)
            return
        if len(self._held) >= MOST:
            self._complain()
            return
        entry.identity = identity
        self._uncommitted.add(identity)
        self._held.add(identity)

    def _complain(self) -> None:
        if not self._is_full:
            self._is_full = True
            self._log.warn(
                "{queue} holds {most} messages with an id: repetitions of further ones will not "
                "be noticed until there are fewer",
                queue=self._name,
                most=MOST,
            )

    def arrived(self, entries: Sequence[Entry]) -> list[Entry]:
        """Note entries that have been committed; return those that are held already."""
        self._uncommitted.difference_update([entry.identity for entry in entries])
        if not self._doubtful:
            return []
        twice = []
        for entry in entries:
            if entry in self._doubtful:
                self._doubtful.discard(entry)
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
            self._doubtful.discard(entry)
            if entry.identity:
                self._uncommitted.discard(entry.identity)
                self._held.discard(entry.identity)

    def not_safe(self, entries: Sequence[Entry]) -> None:
        """Compare nothing with entries that live on in memory though their commit has failed.

        Their sender is in doubt. Sent again, they have to be made safe before it is told so.
        """
        self.not_arrived(entries)
        for entry in entries:
            entry.identity = UNKNOWN

    # -- out -----------------------------------------------------------------------------------

    def gone(self, entries: Iterable[Entry]) -> None:
        """Forget entries that the queue does not hold any more."""
        discard = self._held.discard
        for entry in entries:
            if self._lines and not self._is_indexed(entry.line, entry.id):
                self._left.add(entry.id)
            else:
                discard(entry.identity or self._known(entry.message))
        self._is_full = False

    def back(self, entries: Iterable[Entry]) -> None:
        """Remember entries again that are held after all."""
        for entry in entries:
            if entry.id in self._left:
                self._left.discard(entry.id)
            elif entry.identity != UNKNOWN:
                self._held.add(entry.identity or self._known(entry.message))

    def _known(self, message: Message) -> int:
        try:
            return self.identity(message)
        except DecodeError:
            return 0  # it was stored before anybody looked at its id

    def _is_indexed(self, line: EntryList, entry_id: int) -> bool:
        lines = self._lines
        if not lines or entry_id >= self._bound:
            return True
        return line not in lines or (line is lines[0] and entry_id <= self._cursor)

    # -- the backlog ---------------------------------------------------------------------------

    def index(self, lines: Iterable[EntryList], in_memory: Iterable[Entry] = ()) -> None:
        """Read the ids of what is held: of entries in memory, and of those in the store.

        What is being read already is begun anew.

        Args:
            lines: those with entries in the store.
            in_memory: entries that are not in the store.
        """
        self._bound = self._store.next_id()
        self._lines = list(lines)
        self._cursor = 0
        self._runs += 1
        self._stop_retry()
        for entry in in_memory:
            if entry.identity == UNKNOWN:
                continue
            entry.identity = self._known(entry.message)
            if entry.identity:
                self._held.add(entry.identity)
        self._next()

    def stop(self) -> None:
        """Read nothing more."""
        self._stopped = True
        self._stop_retry()

    def _stop_retry(self) -> None:
        if self._retry is not None and self._retry.active():
            self._retry.cancel()

    def _next(self) -> None:
        if self._stopped:
            return
        if not self._lines:
            self._when_indexed()
            return
        page = self._store.load(self._lines[0].key, self._cursor, LOAD_MESSAGES, LOAD_BYTES)
        page.addCallbacks(self._read, self._failed, (self._runs,), errbackArgs=(self._runs,))

    def _read(self, rows: Sequence[Any], run: int) -> None:
        if self._stopped or run != self._runs:
            return
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
        self._next()

    def _failed(self, failure: Failure, run: int) -> None:
        self._log.failure("{queue} could not read its message-ids", failure, queue=self._name)
        if not self._stopped and run == self._runs:
            self._retry = self._clock.callLater(RETRY_SECONDS, self._next)
