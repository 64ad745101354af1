# SPDX-License-Identifier: Apache-2.0
"""Final removal of entries: archived, dead-lettered, expired, dropped, purged.

Entries leave within a batch. An `IDisposal` is notified before, and may add to the same batch: a
report to the sender, the message itself on the node for dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from twisted.logger import Logger

from amqproute.broker.commit_batch import Batch
from amqproute.broker.queue_state import QueueState
from amqproute.broker.queue_view import DeletedQueue, QueueView
from amqproute.entry import Entry
from amqproute.errors import AmqpError
from amqproute.journal.event import SOMEBODY, EntryTaker, because
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.outcomes import ErrorDetails
from amqproute.values import QUARANTINE, DeadLetterReason, Origin

PURGED: Final = "operator.purged"
NODE_DELETED: Final = "node.deleted"
DAMAGED: Final = "store.damaged"
"""Reasons for the end of entries that were not consumed, for reports."""
UNREACHABLE: Final = {"code": "node.unreachable"}
NODE_GONE: Final = {"code": NODE_DELETED}
DUPLICATE: Final = {"code": "message.duplicate"}
MOVED: Final = {"code": "message.moved"}
"""Reasons for the end of entries, for the journal."""

DAMAGED_WORDS: Final = "message {entry} of {node} is damaged: {why}; quarantined, not delivered"
"""Words of the log for one entry."""


class IDisposal(Protocol):
    """Final disposal of entries that leave their queues: reports and dead letters."""

    def taken(
        self, queue: QueueView, entries: Sequence[Entry], batch: Batch, consumer: object
    ) -> None:
        """Handle entries that end with this batch because a consumer has accepted them."""

    def dropped(self, queue: QueueView, entries: Sequence[Entry], code: str, batch: Batch) -> None:
        """Handle entries that end with this batch, neither consumed nor dead letters."""

    def counted(
        self, queue: QueueView, count: int, reason: DeadLetterReason, error: ErrorDetails | None
    ) -> None:
        """Count entries that become dead letters, once each, even if `dead_letter` is repeated."""

    def dead_letter(
        self,
        queue: QueueView,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> None:
        """Handle entries that end with this batch: rejected, expired or tried too often.

        The end is recorded in the journal here; the caller archives them.
        """

    def refused(self, queue: QueueView, message: Message, origin: Origin, batch: Batch) -> None:
        """Dead-letter a message that a queue without room has refused."""


class NullDisposal:
    """No reports and no dead letters: for queues to which no message is addressed."""

    def taken(
        self, queue: QueueView, entries: Sequence[Entry], batch: Batch, consumer: object
    ) -> None:
        """See `IDisposal.taken`."""

    def dropped(self, queue: QueueView, entries: Sequence[Entry], code: str, batch: Batch) -> None:
        """See `IDisposal.dropped`."""

    def counted(
        self, queue: QueueView, count: int, reason: DeadLetterReason, error: ErrorDetails | None
    ) -> None:
        """See `IDisposal.counted`."""

    def dead_letter(
        self,
        queue: QueueView,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> None:
        """See `IDisposal.dead_letter`."""
        kind = RecordKind.EXPIRED if reason is DeadLetterReason.EXPIRED else RecordKind.REJECTED
        batch.ended(kind, queue.name, entries, because(error, reason.value))

    def refused(self, queue: QueueView, message: Message, origin: Origin, batch: Batch) -> None:
        """See `IDisposal.refused`."""


DISCARD: Final = NullDisposal()


class EntryRemoval:
    """Removal of entries from one queue by batches; they are off the lines already.

    Args:
        queue: the queue, for the disposal.
        state: its state.
        disposal: final disposal of the entries.
    """

    _log = Logger()

    __slots__ = ("_disposal", "_queue", "_state")

    def __init__(self, queue: QueueView, state: QueueState, disposal: IDisposal) -> None:
        self._queue = queue
        self._state = state
        self._disposal = disposal

    def queue_is_deleted(self) -> None:
        """Forget the queue, which refers to this, except for the facts needed by late entries."""
        self._queue = DeletedQueue(self._queue)

    def refused(self, message: Message, origin: Origin, batch: Batch) -> None:
        """See `IDisposal.refused`."""
        self._disposal.refused(self._queue, message, origin, batch)

    def archive(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Remove entries with their rows in the store; the caller records it in the journal."""
        self.end_rows(entries, batch)
        self._state.forget(entries)

    def end_rows(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Delete the rows of entries, and nothing else."""
        ids = [entry.id for entry in entries if entry.stored]
        if ids:
            batch.transaction.dequeue(ids)
        for line in self._state.levels.lines:
            if line.plucked_ids and (plucked := line.plucked(entries)):
                batch.when_committed(partial(line.rows_removed, plucked))
        if self._state.consumers.cursors:
            # Not before: their holder may release them if the commit fails.
            batch.when_committed(partial(self._state.consumers.gone, entries))

    def dead_letter(
        self,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> None:
        """Dead-letter entries and remove them."""
        self._state.counters.dead_lettered += len(entries)
        self._disposal.counted(self._queue, len(entries), reason, error)
        self._disposal.dead_letter(self._queue, entries, reason, error, batch)
        self.archive(entries, batch)
        ids = [entry.id for entry in entries if entry.stored]

        def again(batch: Batch) -> None:
            self._disposal.dead_letter(self._queue, entries, reason, error, batch)
            self.end_rows(entries, batch)

        batch.redo.append((ids, again))

    def expire(self, entries: list[Entry], batch: Batch, error: ErrorDetails | None = None) -> None:
        """Remove expired entries."""
        self._state.counters.expired += len(entries)
        self.dead_letter(entries, DeadLetterReason.EXPIRED, error, batch)

    def taken(self, entries: Sequence[Entry], batch: Batch, consumer: object, now_us: int) -> None:
        """Remove entries that a consumer has accepted, at a time by the clock of the journal."""
        self._disposal.taken(self._queue, entries, batch, consumer)
        taker: EntryTaker = getattr(consumer, "taker", SOMEBODY)
        state = self._state
        batch.ended(taker.kind, state.name, entries, taker.facts, now_us)
        self.end_rows(entries, batch)
        if state.duplicates is not None or state.quotas.by_number:
            state.forget(entries)
        state.counters.dequeued += len(entries)

    def moved(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Remove entries that are put on another node within the same batch."""
        batch.ended(RecordKind.DELETED, self._state.name, entries, MOVED)
        self.archive(entries, batch)

    def purge(self, entries: list[Entry], batch: Batch) -> None:
        """Remove entries for an operator."""
        self._state.counters.purged += len(entries)
        self.drop(entries, PURGED, batch)

    def drop(self, entries: list[Entry], code: str, batch: Batch) -> None:
        """Remove entries that were not consumed and are no dead letters."""
        if entries:
            self._disposal.dropped(self._queue, entries, code, batch)
        batch.ended(RecordKind.DELETED, self._state.name, entries, {"code": code})
        self.archive(entries, batch)

    def remove_unmatched(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Remove entries that no attached link selects (Q-23)."""
        self._state.counters.unreachable += len(entries)
        batch.ended(RecordKind.DELETED, self._state.name, entries, UNREACHABLE)
        self.archive(entries, batch)

    def set_aside(self, entries: list[Entry], batch: Batch) -> None:
        """Remove entries whose bodies are damaged; the store keeps them for an operator."""
        self._state.counters.damaged += len(entries)
        for entry in entries:
            if entry.stored:
                batch.transaction.move(entry.id, QUARANTINE, entry.id)
        self._report_damaged(entries, [entry.id for entry in entries], batch)
        self._state.forget(entries)

    def damaged(self, entries: list[Entry], ids: Sequence[int], batch: Batch) -> None:
        """Note that the store has set paged entries aside.

        Args:
            entries: the entries whose senders can be read, and notified.
            ids: the ids of all of them.
            batch: the batch for the reports.
        """
        self._state.counters.damaged += len(ids)
        self._report_damaged(entries, ids, batch)
        self._state.forget(entries)

    def _report_damaged(self, entries: list[Entry], ids: Sequence[int], batch: Batch) -> None:
        batch.damaged(self._state.name, ids, DAMAGED)
        for entry in entries:
            try:
                self._disposal.dropped(self._queue, [entry], DAMAGED, batch)
            except AmqpError as error:
                # Its remains do not tell the sender.
                self._log.warn(
                    "cannot notify the sender of damaged message {entry} of {node}: {error}",
                    entry=entry.id,
                    node=self._state.name,
                    error=error,
                )
