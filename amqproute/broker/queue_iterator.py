# SPDX-License-Identifier: Apache-2.0
"""Iteration over the entries of a queue for an operator, one page for each reactor turn.

A million entries can be visited without disturbing others: `PAGE` of them at a time, from memory or
by one read of the store, and then the reactor has its turn. Where each is asked a long selector, or
shown, or has many properties, a page has fewer. Deferred entries come first, by their ids, then
each line in the order of service. Entries held by consumers are not shown, nor those that have
arrived since the start.

Consumers go on meanwhile. An entry that moves from the store to memory between two pages is not
missed: before each read of the store, memory is searched for such entries. An entry that a consumer
takes and releases behind the position is missed; to be certain, hold the queue or iterate again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from amqproute.broker.entry_list import EntryList
from amqproute.broker.priority_queues import HIGHEST_PRIORITY
from amqproute.broker.queue_state import QueueState
from amqproute.entry import Entry
from amqproute.errors import DecodeError
from amqproute.message import Message
from amqproute.store.model import StoredEntry
from amqproute.turn_scheduler import Pause

__all__ = ["PAGE", "START", "IteratorPosition", "QueueIterator", "StopBefore", "page_of"]

PAGE: Final = 500
"""Entries visited in one turn of the reactor."""
PAGE_OCTETS: Final = 256 * 1024
"""Octets before the bodies of the entries of a page: a selector reads properties octet by octet."""
SMALL_OCTETS: Final = 1024
"""Octets of a message of which nobody asks how many of them are the body."""
LEAST: Final = 5
"""Entries of the smallest page."""
WORDS_PER_TEST: Final = 8
"""Words of a selector that cost as much as to visit one more entry."""
BUSY_SECONDS: Final = 0.01
"""Delay before the next attempt if a line is being read by another operation."""


class StopBefore(NamedTuple):
    """The answer of a look that takes no more entries.

    Attributes:
        entry_id: the first entry of the page that it has not taken.
    """

    entry_id: int


Look = Callable[[list[Entry]], "Awaitable[None] | StopBefore | None"]


class IteratorPosition(NamedTuple):
    """Position of an iteration.

    Attributes:
        level: the level of the line; above all levels for the deferred entries.
        after: the id of the last entry seen of it.
    """

    level: int
    after: int


START: Final = IteratorPosition(HIGHEST_PRIORITY + 1, 0)


def page_of(words: int) -> int:
    """Return how many entries to visit at once where each is asked a selector.

    Args:
        words: the number of its words (`amqproute.filters.grammar`).
    """
    return max(LEAST, PAGE // (1 + words // WORDS_PER_TEST))


def _fitting(entries: list[Entry]) -> list[Entry]:
    """Return the first of these entries, as many as are a page by their octets; one at least."""
    octets = 0
    for number, entry in enumerate(entries):
        message = entry.message
        size = len(message.encoded)
        octets += size if size <= SMALL_OCTETS else _head_octets(message)
        if octets > PAGE_OCTETS and number:
            return entries[:number]
    return entries


def _head_octets(message: Message) -> int:
    try:
        return message.offsets.body_start
    except DecodeError:  # reported when the message is read
        return 0


class IteratedQueue(Protocol):
    """The queue of an iteration."""

    @property
    def state(self) -> QueueState:
        """Its state."""

    def load(self, line: EntryList, after_id: int, limit: int) -> Deferred[Sequence[StoredEntry]]:
        """Read a page of a line, which is busy until the page has been processed."""

    def dispatch(self) -> None:
        """Deliver available entries: consumers may have waited for a line that was busy."""


class QueueIterator:
    """An iteration over one queue.

    Args:
        queue: the queue.
        clock: the clock for waits.
        pause: called between pages.
        until: the id from which on entries are too new.

    Attributes:
        until: as given.
    """

    def __init__(self, queue: IteratedQueue, clock: IReactorTime, pause: Pause, until: int) -> None:
        self._queue = queue
        self._levels = queue.state.levels
        self._deferral = queue.state.retry_delay
        self._clock = clock
        self._pause = pause
        self.until = until

    async def run(
        self,
        look: Look,
        place: IteratorPosition = START,
        most: int | None = None,
        size: int = PAGE,
    ) -> IteratorPosition | None:
        """Visit all entries, page by page.

        Args:
            look: called with the entries of a page, which are available at that moment: it has to
                take the ones it wants before it waits for anything. If it returns an awaitable,
                the next page follows after that; with a `StopBefore` none does.
            place: start position.
            most: stop after about so many entries, a page more at most; those that are skipped
                count as well, since they have cost as much.
            size: entries of a page, at most.

        Returns:
            The position to continue from; None at the end.

        Raises:
            StoreError: a page could not be read.
        """
        seen = 0
        level, after = place
        if level > HIGHEST_PRIORITY:
            seen, left_at = await self._run_deferred(look, after, most, size)
            if left_at is not None:
                return left_at
        for line in self._levels.lines:
            if line.level > level:
                continue
            if line.level < level:
                level, after = line.level, 0
            found: list[Entry] = []
            while True:
                if most is not None and seen >= most:
                    return IteratorPosition(level, after)
                if not found:
                    found = self._in_memory(line, after)
                if found:
                    part = _fitting(found[:size])
                    last = part[-1].id
                    seen += len(part)
                    page = [each for each in part if not each.taken]
                    del found[: len(part)]
                elif not line.paged or after >= self.until:
                    break
                elif line.is_busy:
                    await deferLater(self._clock, BUSY_SECONDS)
                    continue
                else:
                    page, read = await self._on_disk(line, max(after, line.cursor), size)
                    if not read:
                        break
                    last = read[-1]
                    page = [each for each in page if each.id < self.until]
                    part = _fitting(page)
                    if len(part) < len(page):
                        page, last = part, part[-1].id  # the others are read again
                    seen += bisect_right(read, last)
                after = last
                stop = await self._show(page, look)
                if stop is not None:
                    return IteratorPosition(level, stop.entry_id - 1)
        return None

    async def find(self, ids: Iterable[int], look: Look) -> None:
        """Visit the entries with these ids that are available or deferred; all of them."""
        wanted = set(ids)
        found = [each for each in self._deferral.entries() if each.id in wanted]
        for line in self._levels.lines:
            found += [each for each in line.entries() if each.id in wanted]
        wanted.difference_update([each.id for each in found])
        await self._show(found, look)
        for line in self._levels.lines:
            for entry_id in sorted(wanted):
                while line.is_busy:
                    await deferLater(self._clock, BUSY_SECONDS)
                if not line.paged or not line.cursor < entry_id < self.until:
                    continue  # what has not been given out the store may not even know to ask for
                page, _ = await self._on_disk(line, entry_id - 1, 1)
                page = [each for each in page if each.id == entry_id]
                if page:
                    wanted.discard(entry_id)
                    await self._show(page, look)

    async def _run_deferred(
        self, look: Look, after: int, most: int | None, size: int
    ) -> tuple[int, IteratorPosition | None]:
        """Visit the deferred entries; return their number, and where it stopped, None at the end.

        The arguments are those of `run`.
        """
        seen = 0
        while True:
            entries = self._deferred(after, size)
            if seen and not entries:
                return seen, None
            stop = await self._show(entries, look)
            if stop is not None:
                return seen, IteratorPosition(START.level, stop.entry_id - 1)
            if not entries:
                return seen, None
            seen += len(entries)
            after = entries[-1].id
            if most is not None and seen >= most:
                return seen, IteratorPosition(START.level, after)

    def _deferred(self, after: int, count: int) -> list[Entry]:
        """Return the deferred entries that follow an id, so many at most."""
        found = (each for each in self._deferral.entries() if after < each.id < self.until)
        return _fitting(heapq.nsmallest(count, found, key=attrgetter("id")))

    def _in_memory(self, line: EntryList, after: int) -> list[Entry]:
        return [each for each in line.entries() if after < each.id < self.until]

    async def _on_disk(
        self, line: EntryList, after: int, most: int = PAGE
    ) -> tuple[list[Entry], list[int]]:
        """Read a page; return its entries, and the ids of all that was read."""
        try:
            rows = await self._queue.load(line, after, most)
        except BaseException:
            line.is_busy = False
            raise
        return line.scanned(rows), [row.id for row in rows]

    async def _show(self, entries: Sequence[Entry], look: Look) -> StopBefore | None:
        answer = look(list(entries)) if entries else None
        stop = answer if isinstance(answer, StopBefore) else None
        if answer is not None and not isinstance(answer, StopBefore):
            await answer
        self._queue.dispatch()
        await self._pause()
        return stop
