# SPDX-License-Identifier: Apache-2.0
"""A journal that checks, in every test with a broker, that it gets an event for each change.

On each commit it compares beginnings and ends in the store with the journal's events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from amqproute.broker.last_value import LAST_PREFIX
from amqproute.broker.xa_record import ROWS as BRANCH_ROWS
from amqproute.journal.event import ArrivalEvent, DepartureEvent, MessageRun
from amqproute.store.pending_commit import SHARED_WIDTH, WIDTH, PendingCommit


class Unaccounted(AssertionError):
    """An entry has begun or ended without an event."""


class Audit:
    """An `IJournal` that keeps its events, and compares.

    Args:
        now_ms: the wall clock.

    Attributes:
        living: entries that have begun and not ended.
        runs: the runs to be written.
        arrival_type: of the events for arrivals.
    """

    is_kept = True
    domain = "alpha.example"

    def __init__(self, now_ms: Any) -> None:
        self._now_ms = now_ms
        self.living: set[int] = set()
        self.runs: list[MessageRun] = []
        self.arrival_type = ArrivalEvent

    def now_us(self) -> int:
        """See `IJournal.now_us`."""
        return int(self._now_ms() * 1000)

    def arrivals(self, came: Any) -> ArrivalEvent:
        """See `IJournal.arrivals`."""
        return self.arrival_type(self.now_us(), came, self.domain)

    def note(self, event: Any) -> None:
        """See `IJournal.note`."""
        self.runs += event.runs()  # all of it must be writable

    def committed(self, transaction: PendingCommit, names: dict[int, str]) -> None:
        """Compare a transaction before it is applied.

        Raises:
            Unaccounted: something is missing.
        """
        events = transaction.events
        come = {
            entry.id
            for event in events
            if isinstance(event, ArrivalEvent)
            for _, entry, *_ in event._came
            if hasattr(entry, "id")
        }
        gone = [
            entry.id
            for event in events
            if isinstance(event, DepartureEvent)
            for entry in event._entries
        ]
        begins = {
            entry_id
            for entry_id, number in _born(transaction)
            if names[number] != BRANCH_ROWS and not names[number].startswith(LAST_PREFIX)
        }
        if begins - come:
            raise Unaccounted(f"entries {sorted(begins - come)[:5]} begin without an event")
        if len(gone) != len(set(gone)):
            raise Unaccounted(f"entries end twice: {sorted(gone)[:5]}")
        self.living |= begins
        ended = self.living.intersection(transaction.ended())
        if ended - set(gone):
            raise Unaccounted(f"entries {sorted(ended - set(gone))[:5]} end without an event")
        self.living -= ended
        for event in events:
            self.runs += event.runs()


def _born(transaction: PendingCommit) -> Iterator[tuple[int, int]]:
    """Yield id and queue of each written row."""
    for stage in transaction.stages:
        rows = stage.rows
        yield from zip(rows[::WIDTH], rows[1::WIDTH], strict=True)
        if stage.shared is not None:
            flat = stage.shared.rows
            yield from zip(flat[::SHARED_WIDTH], flat[1::SHARED_WIDTH], strict=True)
            yield from ((row[0], row[1]) for row in stage.shared.filed)
