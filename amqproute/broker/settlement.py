# SPDX-License-Identifier: Apache-2.0
"""What outcomes do to the entries of a queue (O-10 to O-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_cursor import ConsumerCursor
from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.entry_removal import UNREADABLE, EntryRemoval
from amqproute.broker.expiry import Expiry
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.queue_view import QueueView
from amqproute.broker.retry_delay import RetryDelay
from amqproute.broker.unmatched_entries import UnmatchedEntries
from amqproute.entry import MOST_COUNTED, Entry
from amqproute.journal.event import SOMEBODY, EntryTaker, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.values import DeadLetterReason
from amqproute.wire.amqp10 import spec


class QueueSettlement:
    """The way back onto one queue, and off it.

    Args:
        queue: it, for the journal.
        consumers: of the queue.
        deferral: its deferred entries.
        expiry: watches over the lives of what comes back.
        removal: takes entries off for good.
        unreachable: looks for what nobody needs any more.
        tally: counts.
        journal: where it is noted what is given back, an `IJournal`.
        dispatch: called when there may be something to hand out.

    Attributes:
        most_deliveries: failed attempts after which an entry is a dead letter; 0 for no bound.
    """

    __slots__ = (
        "_consumers",
        "_deferral",
        "_dispatch",
        "_expiry",
        "_journal",
        "_queue",
        "_removal",
        "_tally",
        "_unreachable",
        "most_deliveries",
    )

    def __init__(
        self,
        queue: QueueView,
        consumers: ConsumerSet,
        deferral: RetryDelay,
        expiry: Expiry,
        removal: EntryRemoval,
        unreachable: UnmatchedEntries,
        tally: QueueCounters,
        journal: Any,
        dispatch: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._consumers = consumers
        self._deferral = deferral
        self._expiry = expiry
        self._removal = removal
        self._unreachable = unreachable
        self._tally = tally
        self._journal = journal
        self._dispatch = dispatch
        self.most_deliveries = 0

    def settle(
        self, entries: Sequence[Entry], outcome: Any, batch: Batch, consumer: object
    ) -> None:
        """Act on an outcome. See `ISource.settle`."""
        feeds = self._consumers.feeds
        feed = feeds.get(consumer) if feeds else None
        if feed is not None and feed.copies:
            self._settle_copies(feed, entries, outcome)
        elif type(outcome) is spec.Accepted:
            self._consumers.acquired -= len(entries)
            self._removal.taken(entries, batch, consumer)
        elif outcome is UNREADABLE:
            self._consumers.acquired -= len(entries)
            self._removal.set_aside(list(entries), batch)
        elif type(outcome) is spec.Rejected:
            self._tally.rejected += len(entries)
            self.give_up(entries, DeadLetterReason.REJECTED, outcome.error, batch)
        else:
            if type(outcome) is spec.Modified:
                self._modify(entries, outcome, batch, consumer)
            else:
                self.release(entries)
            if self._journal.is_kept:
                self._note_released(entries, outcome, getattr(consumer, "taker", SOMEBODY))

    def _note_released(self, entries: Sequence[Entry], outcome: Any, taker: EntryTaker) -> None:
        """A consumer has given back what it was handed."""
        code = None
        if type(outcome) is spec.Modified:
            code = "modified.failed" if outcome.delivery_failed else "modified"
        facts = {"node": self._queue.name, "code": code, **taker.facts}
        columns = {"entry": [entry.id for entry in entries]}
        self._journal.note(RunEvent(RecordKind.RELEASED, self._journal.now_us(), facts, columns))

    def _settle_copies(self, feed: ConsumerCursor, entries: Sequence[Entry], outcome: Any) -> None:
        """Act on a browser's outcome, which concerns its own link only (S-04, L-24 to L-28)."""
        again = type(outcome) is spec.Released or (
            type(outcome) is spec.Modified and not outcome.undeliverable_here
        )
        if again:
            for entry in entries:
                feed.show_again(entry.line, entry)
            self._dispatch()
        elif feed.needed is not None:
            for entry in entries:
                feed.confirmed(entry)
            self._unreachable.look_at(entries)

    def give_up(
        self,
        entries: Sequence[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Dead-letter entries that a consumer took away."""
        self._consumers.acquired -= len(entries)
        self._removal.dead_letter(list(entries), reason, error, batch)

    # -- back ----------------------------------------------------------------------------------

    def release(self, entries: Sequence[Entry]) -> None:
        """Put entries back into their old places, unchanged (O-11)."""
        self._consumers.acquired -= len(entries)
        self._tally.released += len(entries)
        earliest = 0
        for entry in entries:
            entry.attempted = True
            if entry.expires_ms and (not earliest or entry.expires_ms < earliest):
                earliest = entry.expires_ms
        if earliest:
            self._expiry.watch(earliest)
        self.back(entries)

    def defer(self, entries: Sequence[Entry], seconds: float) -> None:
        """Take entries back, to be available again after some time."""
        self._consumers.acquired -= len(entries)
        for entry in entries:
            entry.attempted = True
        self._expiry.watch_all(entries)
        self._deferral.add(entries, seconds)

    def back(self, entries: Sequence[Entry]) -> None:
        """Make entries available that are in nobody's hands."""
        has_feeds = bool(self._consumers.feeds)
        for entry in entries:
            entry.line.back(entry)
            if has_feeds:
                self._consumers.offer_again(entry)
        self._dispatch()

    def _modify(
        self,
        entries: Sequence[Entry],
        outcome: spec.Modified,
        batch: Batch,
        consumer: object,
    ) -> None:
        most = self.most_deliveries
        back: list[Entry] = []
        spent: list[Entry] = []
        for entry in entries:
            _change(entry, outcome, batch, consumer)
            is_spent = most and outcome.delivery_failed and entry.delivery_count >= most
            (spent if is_spent else back).append(entry)
        if spent:
            self.give_up(spent, DeadLetterReason.MAX_DELIVERIES, None, batch)
        if back:
            self.release(back)


def _change(entry: Entry, outcome: spec.Modified, batch: Batch, consumer: object) -> None:
    """Apply a modified outcome to one entry (part 3 §3.4.5)."""
    changed = False
    if outcome.delivery_failed:
        entry.delivery_count = min(entry.delivery_count + 1, MOST_COUNTED)
        changed = True
    if outcome.undeliverable_here and consumer is not None:
        entry.bar(consumer)
    encoded = None
    if outcome.message_annotations:
        entry.message = entry.message.with_annotations(outcome.message_annotations)
        encoded = entry.message.encoded
        changed = True
    if changed and entry.stored:
        batch.transaction.update(entry.id, entry.delivery_count, encoded)
