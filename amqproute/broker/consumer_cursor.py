# SPDX-License-Identifier: Apache-2.0
"""Cursors of selective consumers and browsers over the entries of a queue.

A plain consumer takes entries from the head of the queue. A consumer with a filter has a position
of its own, which can be ahead of the head (Q-31); a browser has one that moves without taking
entries (L-23 to L-28). A `ConsumerCursor` is that position. Each entry is examined once for each
cursor:

* entries in memory when the consumer attaches, and all that arrive or are loaded later, are
  *offered*; selected ones wait in a heap, by priority and id;
* paged entries are *scanned*, a page at a time, while a cursor has capacity and an empty heap. A
  page is shown to every cursor that has reached it (`broker.stored_backlog`).

Matches of a scan beyond the capacity wait in the heap, too, up to `AHEAD_MESSAGES`; they remain
available to other consumers. A cursor with enough of them stops, and continues from there later.

So for a consumer that selects one message of a million, the million is searched once, whatever its
credit, and only new arrivals from then on; many such consumers share the reading.

The number of filter evaluations in one turn of the reactor is bounded (`AT_ONCE_TESTS`). Entries
beyond that are examined in the following turns (`broker.stored_backlog`). Until then the cursor
delivers nothing, since an unexamined entry may stand before the matches.

Entries taken by other consumers are skipped. When one comes back it is offered again: to consumers
always, to browsers if they have not seen it. A browser therefore remembers two sets of entries for
as long as these may come back, which is until the store has deleted them:

* entries in memory that it has *seen* when it attached. It has not seen entries that were held by
  others then: a consumer, a transaction, a batch whose commit failed later;
* entries it was *denied* since: they were taken before its turn came.

It was offered all other entries that come back before.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from amqproute.broker.entry_list import EntryList
from amqproute.entry import Entry
from amqproute.interfaces import IConsumer

Selects = Callable[[Entry], bool]

AHEAD_MESSAGES: Final = 500
"""Most paged entries that one cursor may keep in memory because it selects them."""
AHEAD_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of such entries beyond the capacity of the cursors, over all cursors of a queue; an
entry counts for each cursor that selects it."""
AT_ONCE_TESTS: Final = 5000
"""Filter evaluations in one turn, in units of a short filter (`broker.link_selection`)."""
LEAST_TIDIED: Final = 128
"""A cursor with fewer entries does not look for entries that have gone."""


def cost_of(selects: Selects | None) -> int:
    """Return the cost of an evaluation of a filter, 1 for a short one."""
    return 1 if selects is None else getattr(selects, "cost", 1)


class CursorMatch:
    """Results of each filter for some entries; equal filters are evaluated once.

    Args:
        entries: the entries, in order.
    """

    __slots__ = ("_by", "entries")

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self._by: dict[Selects, Sequence[Entry]] = {}

    def by(self, selects: Selects | None) -> Sequence[Entry]:
        """Return the entries that a filter selects."""
        if selects is None:
            return self.entries
        found = self._by.get(selects)
        if found is None:
            found = self._by[selects] = [each for each in self.entries if selects(each)]
        return found


class CursorLookahead:
    """The paged entries that the cursors of one queue have read ahead.

    Attributes:
        bytes: the bytes of the messages.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class ConsumerCursor:
    """The position of one consumer in its queue.

    Args:
        consumer: the consumer.
        selects: its filter, or None for everything.
        copies: it browses: it is shown entries and takes none.
        shared: entries kept by all cursors of the queue.

    Attributes:
        cost: the cost of an evaluation of its filter.
        needed: for browsers of a queue that archives unselected messages (Q-23): ids that were
            selected and are not confirmed; else None.
    """

    __slots__ = (
        "_ahead",
        "_bound",
        "_denied",
        "_gone",
        "_horizons",
        "_later",
        "_left",
        "_positions",
        "_seen",
        "_shared",
        "_waiting",
        "consumer",
        "copies",
        "cost",
        "needed",
        "selects",
    )

    def __init__(
        self, consumer: IConsumer, selects: Selects | None, copies: bool, shared: CursorLookahead
    ) -> None:
        self.consumer = consumer
        self.selects = selects
        self.copies = copies
        self.cost = cost_of(selects)
        self.needed: set[int] | None = None
        self._later: deque[tuple[EntryList, Entry]] = deque()
        self._left: set[int] = set()  # gone for good while they stand in `_later`
        self._shared = shared
        self._ahead: dict[int, int] = {}
        self._positions: dict[EntryList, int] = {}
        self._waiting: list[tuple[int, int, Entry]] = []
        self._bound = LEAST_TIDIED
        self._gone: set[int] = set()  # since `_waiting` was tidied up
        # Browsers: the highest id of each line that it can have been too late for, and ids.
        self._horizons: dict[EntryList, int] = {}
        self._seen: set[int] = set()
        self._denied: set[int] = set()

    def __repr__(self) -> str:
        return f"<ConsumerCursor of {self.consumer!r} waiting={len(self._waiting)}>"

    def __bool__(self) -> bool:
        """Whether matches wait, some of which may have been taken."""
        return bool(self._waiting) or bool(self._later)

    def __len__(self) -> int:
        """Number of waiting matches, including those that have been taken."""
        return len(self._waiting)

    def join(self, lines: Iterable[EntryList], newest_id: int) -> None:
        """Begin: examine what is in memory.

        Args:
            lines: the lines of the queue.
            newest_id: the highest id that any entry has so far.
        """
        tests = AT_ONCE_TESTS
        for line in lines:
            if self.copies:
                self._horizons[line] = line.cursor if line.is_paging else newest_id
                self._denied.update(line.plucked_ids)
            for entry in line.entries():
                if tests > 0:
                    tests -= self.cost
                    self._examine(line, entry)
                else:
                    self._later.append((line, entry))
            last = line.resident[-1].id if line.resident else 0
            self._positions[line] = max(last, line.cursor)

    def arrived(self, line: EntryList, entry: Entry, is_late: bool) -> None:
        """Examine an entry that has arrived in memory.

        Args:
            line: the line of the entry.
            entry: the entry.
            is_late: whether to put it off.
        """
        if not line.is_paging:
            self._positions[line] = max(entry.id, self._positions.get(line, 0))
        if self._later or (is_late and self.selects is not None):
            self._later.append((line, entry))
        else:
            self._examine(line, entry)

    @property
    def is_behind(self) -> bool:
        """Whether entries that were put off have to be examined."""
        return bool(self._later)

    def catch_up(self, tests: int) -> int:
        """Examine entries that were put off, by so many tests and one more; return the rest."""
        later = self._later
        while later and tests > 0:
            line, entry = later.popleft()
            if entry.id not in self._left and entry.id not in self._seen:
                tests -= self.cost
                self._examine(line, entry)
        if not later:
            self._left.clear()
            self._tidy()  # nothing was delivered meanwhile, and others may have taken it
        return tests

    def paged(self, line: EntryList, entry: Entry, before_id: int) -> None:
        """Examine an entry that has arrived in the store, unless unexamined ones stand before it.

        Args:
            line: the line of the entry.
            entry: the entry.
            before_id: the end of the line before its arrival.
        """
        if self._position(line) >= before_id and not self._later:
            is_wanted = self.selects is None or self.selects(entry)
            self.look(line, (entry,) if is_wanted else (), entry.id, 0)

    def offer(self, line: EntryList, chosen: CursorMatch) -> None:
        """Examine loaded entries that were not examined while they were paged."""
        position = self._positions.get(line, 0)
        last_id = chosen.entries[-1].id
        if position < last_id:
            for entry in chosen.by(self.selects):
                if entry.id > position:
                    self._wait_for(line, entry)
            self._positions[line] = last_id

    def offer_again(self, line: EntryList, entry: Entry) -> None:
        """Examine an entry that has come back."""
        if not self.copies or entry.id in self._denied or self._missed_by(line, entry):
            self._examine(line, entry)

    def _missed_by(self, line: EntryList, entry: Entry) -> bool:
        return entry.id <= self._horizons.get(line, 0) and entry.id not in self._seen

    def plucked(self, line: EntryList, entry: Entry) -> None:
        """Note that an entry is taken out of the paged part: no scan finds it there."""
        if self.copies and entry.id > self._position(line):
            self._denied.add(entry.id)

    def _examine(self, line: EntryList, entry: Entry) -> None:
        if self.selects is None or self.selects(entry):
            self._wait_for(line, entry)

    def _wait_for(self, line: EntryList, entry: Entry) -> None:
        if self.copies:
            self._denied.discard(entry.id)
            if entry.id <= self._horizons.get(line, 0):
                self._seen.add(entry.id)
        self._push(line, entry)
        if self.needed is not None:
            self.needed.add(entry.id)

    def _push(self, line: EntryList, entry: Entry) -> None:
        heapq.heappush(self._waiting, (-line.level, entry.id, entry))
        if len(self._waiting) > self._bound:
            self._tidy()

    def needs(self, entry: Entry) -> bool:
        """Return whether the consumer selects an entry in memory, or has not confirmed it."""
        if self.copies:
            return self.needed is None or entry.id in self.needed
        return self.selects is None or self.selects(entry)

    def confirmed(self, entry: Entry) -> None:
        """Browsers: the other side has seen the entry and does not need it any more (L-27)."""
        if self.needed is not None:
            self.needed.discard(entry.id)

    def show_again(self, line: EntryList, entry: Entry) -> None:
        """Browsers: show an entry again that the other side has released (L-28)."""
        if entry.taken:
            self._denied.add(entry.id)
        else:
            self._push(line, entry)

    def pop(self) -> Entry | None:
        """Return the next available match, or None."""
        if self._later:
            return None
        while self._waiting:
            entry = heapq.heappop(self._waiting)[2]
            if entry.taken:
                self._pass_over(entry)
                continue
            if self._ahead:
                self._shared.bytes -= self._ahead.pop(entry.id, 0)
            if entry.barred and self.consumer in entry.barred:
                continue
            return entry
        self._gone.clear()
        return None

    def _pass_over(self, entry: Entry) -> None:
        if self._ahead:
            self._shared.bytes -= self._ahead.pop(entry.id, 0)
        if self.copies and entry.id not in self._gone:
            self._denied.add(entry.id)

    def _tidy(self) -> None:
        """Drop entries that others have taken meanwhile, and duplicates."""
        kept = {}
        for place in self._waiting:
            if place[2].taken:
                self._pass_over(place[2])
            else:
                kept[place[1]] = place
        self._waiting = list(kept.values())
        heapq.heapify(self._waiting)
        self._gone.clear()
        self._bound = max(LEAST_TIDIED, 2 * len(self._waiting))

    # -- the paged part ------------------------------------------------------------------------

    def _position(self, line: EntryList) -> int:
        return max(self._positions.get(line, 0), line.cursor)

    def scan_from(self, line: EntryList) -> int | None:
        """Return the id after which to scan the paged part; None if all of it was scanned."""
        position = self._position(line)
        return position if line.paged and position < line.tail else None

    def has_enough(self, room: int) -> bool:
        """Return whether it may not keep more paged entries.

        Args:
            room: so many it may keep in any case: they will be taken at once.
        """
        ahead = len(self._ahead)
        return ahead >= room and (ahead >= AHEAD_MESSAGES or self._shared.bytes >= AHEAD_BYTES)

    def look(self, line: EntryList, wanted: Iterable[Entry], last_id: int, room: int) -> None:
        """Keep paged entries from its position on, until it has enough.

        Args:
            line: the line of the entries.
            wanted: the matches after its position, up to ``last_id``.
            last_id: the position after that.
            room: see `has_enough`.
        """
        position = self._position(line)
        for entry in wanted:
            if entry.id <= position:
                continue
            if self.has_enough(room):
                self._positions[line] = entry.id - 1
                return
            line.found(entry)
            self._ahead[entry.id] = size = len(entry.message.encoded)
            self._shared.bytes += size
            self._wait_for(line, entry)
        self._positions[line] = max(position, last_id)

    def leave(self) -> None:
        """Drop all entries kept for the consumer: it leaves."""
        self._shared.bytes -= sum(self._ahead.values())
        self._ahead.clear()
        self._later.clear()

    def gone(self, ids: Collection[int]) -> None:
        """Forget entries that will not come back: the store has deleted them."""
        self._denied.difference_update(ids)
        self._seen.difference_update(ids)
        if self.needed:
            self.needed.difference_update(ids)
        if self._later:
            self._left.update(ids)
        if self._waiting:
            self._gone.update(ids)
            if len(self._waiting) + len(self._gone) > self._bound:
                self._tidy()
