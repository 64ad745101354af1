# SPDX-License-Identifier: Apache-2.0
"""The part of a queue that is in the store only: decisions which pages to load.

Refill loads the head of a line into memory, for whoever takes what comes. A scan is for those who
select: a page is read once and shown to every cursor that has come as far as where it begins. Who
is behind is read for first, so that the others wait for it and all go on together; but every
`FRONT_EVERY` pages the one in front is, so that it gets on however many come after it. A cursor
that wants nothing at the moment takes part as long as it may keep what it finds
(`broker.consumer_cursor`).

The queue does the reading; a line is busy meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.broker.consumer_cursor import AT_ONCE_TESTS, CursorMatch, cost_of
from amqproute.broker.entry_list import EntryList
from amqproute.broker.queue_state import QueueState
from amqproute.entry import Entry
from amqproute.store.model import StoredEntry

__all__ = ["RELOAD_SECONDS", "Scan", "catch_up", "next_scan", "refilled", "scanned"]

RELOAD_SECONDS: Final = 1.0
"""After what time a page that could not be read is asked for again."""
LEAST_SCANNED: Final = 20
FRONT_EVERY: Final = 4
"""How many pages are read for one that is read for who is in front."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A page to be read for cursors.

    Attributes:
        line: of the queue.
        after: the id after which it begins.
        limit: entries, at most.
        tail: the highest id of the line when it is asked for.
    """

    line: EntryList
    after: int
    limit: int
    tail: int


def refilled(state: QueueState, line: EntryList, rows: Sequence[StoredEntry]) -> list[Entry]:
    """Line up a page that was read from where the line's part in memory ends; return it."""
    entries = line.refilled(rows)
    state.consumers.offer(line, entries)
    state.counters.loaded += len(entries)
    return entries


def next_scan(state: QueueState, number: int) -> Scan | None:
    """Return the page that cursors with capacity want read next; None if they want none.

    Nothing is to be read while the line is busy.

    Args:
        state: of the queue.
        number: of the page: so many, this one included, have been read.
    """
    cursors = state.consumers.cursors.values()
    hungry = [each for each in cursors if not each and each.consumer.capacity() > 0]
    if not hungry:
        return None
    for line in state.levels.lines:
        positions = [at for each in hungry if (at := each.scan_from(line)) is not None]
        if positions:
            after = min(positions) if number % FRONT_EVERY else max(positions)
            tests = sum([cost_of(each) for each in {each.selects for each in cursors}])
            return Scan(line, after, max(LEAST_SCANNED, AT_ONCE_TESTS // tests), line.tail)
    return None


def scanned(state: QueueState, scan: Scan, rows: Sequence[StoredEntry]) -> None:
    """Show a page to the cursors that have come as far as where it begins."""
    line = scan.line
    entries = line.scanned(rows)
    if state.is_deleted:
        return
    last = rows[-1].id if rows else scan.tail
    chosen = CursorMatch(entries)
    for cursor in state.consumers.cursors.values():
        at = cursor.scan_from(line)
        if at is None or not scan.after <= at < last:
            continue
        capacity = cursor.consumer.capacity()
        if cursor.has_enough(capacity):
            continue
        cursor.look(line, chosen.by(cursor.selects), last, capacity)
    for entry in entries:
        entry.message.forget()


def catch_up(state: QueueState) -> None:
    """Have cursors examine what they have put off, one turn's worth of it."""
    tests = AT_ONCE_TESTS
    for cursor in tuple(state.consumers.cursors.values()):
        if tests <= 0:
            break
        tests = cursor.catch_up(tests)
