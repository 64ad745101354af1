# SPDX-License-Identifier: Apache-2.0
"""The paged part of a queue: decisions which pages to load.

Refill loads the head of a line into memory, for consumers that take entries in order. A scan is for
selective consumers: a page is read once and shown to every cursor that has reached its beginning.
The hindmost cursor is served first, so that the others wait for it and all go on together; but
every `FRONT_EVERY` pages the foremost is, so that it makes progress however many come after it. A
cursor without demand takes part as long as it may keep its findings (`broker.consumer_cursor`).

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
"""Delay before a page that could not be read is read again."""
LEAST_SCANNED: Final = 20
FRONT_EVERY: Final = 4
"""One of so many pages is read for the foremost cursor."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A page to be read for cursors.

    Attributes:
        line: the line of the queue.
        after: the id after which it begins.
        limit: most entries.
        tail: the highest id of the line at the time of the request.
    """

    line: EntryList
    after: int
    limit: int
    tail: int


def refilled(state: QueueState, line: EntryList, rows: Sequence[StoredEntry]) -> list[Entry]:
    """Line up a page that continues the line's part in memory; return its entries."""
    entries = line.refilled(rows)
    state.consumers.offer(line, entries)
    state.counters.loaded += len(entries)
    return entries


def next_scan(state: QueueState, number: int) -> Scan | None:
    """Return the next page for cursors with capacity; None if they want none.

    It must not be read while the line is busy.

    Args:
        state: the state of the queue.
        number: the number of the page, counted from 1.
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
    """Show a page to the cursors that have reached its beginning."""
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
    """Let cursors examine entries that they have put off, as many as one turn allows."""
    tests = AT_ONCE_TESTS
    for cursor in tuple(state.consumers.cursors.values()):
        if tests <= 0:
            break
        tests = cursor.catch_up(tests)
