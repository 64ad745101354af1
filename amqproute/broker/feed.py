# SPDX-License-Identifier: Apache-2.0
"""What a consumer with a filter, or a browser, still has to look at.

A plain consumer takes whatever stands at the head. A consumer with a filter has a head of its
own, which can be ahead of the queue's (Q-31); a browser has one that moves without taking
anything (L-23 to L-28). A `Feed` is that head. Each entry is examined once for each feed:

* those in memory when the consumer attaches, and every one that arrives or is loaded later, are
  *offered*; what the filter selects waits in a heap, by priority and id;
* those that stand in the store only are *scanned*, a page at a time, from the feed's own cursor
  on, and only while the consumer has room and nothing waits.

So a consumer that selects one message of a million reads the million once, in pages, and from
then on looks at new arrivals only.

An entry that somebody else has taken is passed over. When it comes back it is offered again: to
consumers always, to browsers if they have not been shown it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from amqproute.broker.line import Line
from amqproute.entry import Entry

Selects = Callable[[Entry], bool]


class Feed:
    """The head of one consumer.

    Args:
        consumer: whose.
        selects: its filter, or None for everything.
        copies: it browses: it is shown entries and takes none.

    Attributes:
        passed: browsers: ids that somebody else held when their turn came.
        needed: browsers of a queue that archives what nobody needs (Q-23): ids that were
            selected and are not confirmed; else None.
        ends: how a line looked when a scan came to its end.
    """

    __slots__ = (
        "_cursors",
        "_waiting",
        "consumer",
        "copies",
        "ends",
        "needed",
        "passed",
        "selects",
    )

    def __init__(self, consumer: Any, selects: Selects | None, copies: bool) -> None:
        self.consumer = consumer
        self.selects = selects
        self.copies = copies
        self.passed: set[int] = set()
        self.needed: set[int] | None = None
        self.ends: dict[Line, tuple[int, int]] = {}
        self._cursors: dict[Line, int] = {}
        self._waiting: list[tuple[int, int, Entry]] = []

    def __repr__(self) -> str:
        return f"<Feed of {self.consumer!r} waiting={len(self._waiting)}>"

    def __bool__(self) -> bool:
        """Something waits (it may turn out to be taken)."""
        return bool(self._waiting)

    def join(self, lines: Iterable[Line], held: Iterable[int]) -> None:
        """Begin: examine what is in memory.

        Args:
            lines: of the queue.
            held: ids that consumers hold at this moment.
        """
        if self.copies:
            self.passed.update(held)
        for line in lines:
            for entry in line.entries():
                self._examine(line, entry)
            last = line.resident[-1].id if line.resident else 0
            self._cursors[line] = max(last, line.cursor)

    def offer(self, line: Line, entry: Entry) -> None:
        """Examine an entry that has arrived, or was loaded."""
        if entry.id > self._cursors.get(line, 0):
            self._cursors[line] = entry.id
            self._examine(line, entry)

    def offer_again(self, line: Line, entry: Entry) -> None:
        """Examine an entry that has come back."""
        if not self.copies:
            self._examine(line, entry)
        elif entry.id in self.passed:
            self.passed.discard(entry.id)
            self._examine(line, entry)
        elif entry.id > self._cursors.get(line, 0):
            self.offer(line, entry)

    def _examine(self, line: Line, entry: Entry) -> None:
        if self.selects is None or self.selects(entry):
            heapq.heappush(self._waiting, (-line.level, entry.id, entry))
            if self.needed is not None:
                self.needed.add(entry.id)

    def needs(self, entry: Entry) -> bool:
        """Tell whether the consumer wants an entry that is in memory, or has not confirmed it."""
        if self.copies:
            return self.needed is None or entry.id in self.needed
        return self.selects is None or self.selects(entry)

    def confirmed(self, entry: Entry) -> None:
        """Browsers: the other side has seen it and needs it no more (L-27)."""
        if self.needed is not None:
            self.needed.discard(entry.id)

    def show_again(self, line: Line, entry: Entry) -> None:
        """Browsers: an entry that the other side has released is shown once more (L-28)."""
        if entry.taken:
            self.passed.add(entry.id)
        else:
            heapq.heappush(self._waiting, (-line.level, entry.id, entry))

    def pop(self) -> Entry | None:
        """Return the next entry that can be had, or None."""
        while self._waiting:
            entry = heapq.heappop(self._waiting)[2]
            if entry.taken:
                if self.copies:
                    self.passed.add(entry.id)
                continue
            if entry.barred and self.consumer in entry.barred:
                continue
            return entry
        return None

    def scan_from(self, line: Line) -> int | None:
        """Return the id after which the paged part has to be scanned, or None if it has been."""
        return max(self._cursors.get(line, 0), line.cursor) if line.paged else None

    def scanned(self, line: Line, entry: Entry) -> bool:
        """Note that a paged entry was examined; True if it is selected."""
        self._cursors[line] = entry.id
        is_selected = self.selects is None or self.selects(entry)
        if is_selected and self.needed is not None:
            self.needed.add(entry.id)
        return is_selected

    def reached(self, line: Line, entry_id: int) -> None:
        """Note how far a scan has come."""
        self._cursors[line] = max(self._cursors.get(line, 0), entry_id)

    def gone(self, ids: Iterable[int]) -> None:
        """Forget entries that will not come back."""
        if self.passed or self.needed:
            gone = set(ids)
            self.passed -= gone
            if self.needed:
                self.needed -= gone
