# SPDX-License-Identifier: Apache-2.0
"""How entries leave a queue for good: archived, dead-lettered, expired, dropped, cleared out.

Entries leave with somebody's batch. Before, an `IDisposal` is told, which may put something into
the
same batch: a report to the sender, the message itself where dead letters go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.commit_batch import Batch
from amqproute.broker.commit_retry import all_of, retry_settle
from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.queue_view import QueueView
from amqproute.broker.retry_delay import RetryDelay
from amqproute.broker.stored_backlog import StoredBacklog
from amqproute.entry import Entry
from amqproute.errors import AmqpError
from amqproute.journal.event import SOMEBODY, EntryTaker, because
from amqproute.journal.record import RecordKind
from amqproute.values import QUARANTINE, DeadLetterReason
from amqproute.wire.amqp10 import spec

PURGED: Final = "operator.purged"
NODE_DELETED: Final = "node.deleted"
DAMAGED: Final = "store.damaged"
"""Why entries have gone that nobody has taken, for reports about them."""
UNREACHABLE: Final = {"code": "node.unreachable"}
NODE_GONE: Final = {"code": NODE_DELETED}
DUPLICATE: Final = {"code": "message.duplicate"}
MOVED: Final = {"code": "message.moved"}
"""Why entries have gone, for the journal."""

UNREADABLE: Final = object()
"""The outcome of an entry whose body turned out to be damaged when it was to be sent."""

DAMAGED_WORDS: Final = (
    "message {entry} of {node} is damaged and goes to nobody: {why}; it is kept in quarantine"
)
"""What the log says of one."""

LetGo = Callable[[list[Entry], Batch], None]
MOST_RESTS: Final = 16
"""Pages that wait in memory for a full disk to have room before no more are read."""


class IDisposal(Protocol):
    """What becomes of entries that leave their queues: who is told of it, and what is kept."""

    def taken(
        self, queue: QueueView, entries: Sequence[Entry], batch: Batch, consumer: object
    ) -> None:
        """Entries end with this batch since a consumer has accepted them."""

    def dropped(self, queue: QueueView, entries: Sequence[Entry], code: str, batch: Batch) -> None:
        """Entries end with this batch which nobody has taken and which are no dead letters."""

    def counted(
        self, queue: QueueView, count: int, reason: DeadLetterReason, error: spec.Error | None
    ) -> None:
        """So many entries become dead letters; once for each, however often `dead_letter` is."""

    def dead_letter(
        self,
        queue: QueueView,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Entries end with this batch that are rejected, expired or tried too often.

        The journal is told here how they end; the caller archives them.
        """


class NullDisposal:
    """Tells nobody and keeps nothing: for queues that are not where a message was sent."""

    def taken(
        self, queue: QueueView, entries: Sequence[Entry], batch: Batch, consumer: object
    ) -> None:
        """See `IDisposal.taken`."""

    def dropped(self, queue: QueueView, entries: Sequence[Entry], code: str, batch: Batch) -> None:
        """See `IDisposal.dropped`."""

    def counted(
        self, queue: QueueView, count: int, reason: DeadLetterReason, error: spec.Error | None
    ) -> None:
        """See `IDisposal.counted`."""

    def dead_letter(
        self,
        queue: QueueView,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """See `IDisposal.dead_letter`."""
        kind = RecordKind.EXPIRED if reason is DeadLetterReason.EXPIRED else RecordKind.REJECTED
        batch.ended(kind, queue.name, entries, because(error, reason.value))


DISCARD: Final = NullDisposal()


class EntryRemoval:
    """What takes entries, which are off the lines already, out of one queue.

    Args:
        queue: it, as those know it who are told of what leaves.
        levels: the queue's lines.
        consumers: its consumers.
        deferral: its deferred entries.
        backlog: what stands in the store only.
        tally: counts.
        begin: makes a `Batch`, for what the queue does on its own account.
        disposal: what becomes of what leaves.
        gone: called with entries that the queue does not hold any more.
        failed: called with a failure of the store.
    """

    _log = Logger()

    __slots__ = (
        "_backlog",
        "_begin",
        "_consumers",
        "_deferral",
        "_disposal",
        "_failed",
        "_gone",
        "_levels",
        "_queue",
        "_tally",
    )

    def __init__(
        self,
        queue: QueueView,
        levels: PriorityQueues,
        consumers: ConsumerSet,
        deferral: RetryDelay,
        backlog: StoredBacklog,
        tally: QueueCounters,
        begin: Callable[[], Batch],
        disposal: IDisposal,
        gone: Callable[[Sequence[Entry]], None],
        failed: Callable[[Failure], None],
    ) -> None:
        self._queue = queue
        self._levels = levels
        self._consumers = consumers
        self._deferral = deferral
        self._backlog = backlog
        self._tally = tally
        self._begin = begin
        self._disposal = disposal
        self._gone = gone
        self._failed = failed

    # -- within somebody's batch ---------------------------------------------------------------

    def archive(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Let go of entries, their rows in the store as well; the caller tells the journal."""
        self.end_rows(entries, batch)
        self._gone(entries)

    def end_rows(self, entries: Sequence[Entry], batch: Batch) -> None:
        """End the rows of entries, and nothing else."""
        ids = [entry.id for entry in entries if entry.stored]
        if ids:
            batch.transaction.dequeue(ids)
        for line in self._levels.lines:
            if line.plucked_ids and (plucked := line.plucked(entries)):
                batch.when_committed(partial(line.rows_removed, plucked))
        if self._consumers.feeds:
            # Not before: whoever holds them may give them back if the store does not take it.
            batch.when_committed(partial(self._consumers.gone, entries))

    def dead_letter(
        self,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Have entries treated as dead letters, and let go of them."""
        self._tally.dead_lettered += len(entries)
        self._disposal.counted(self._queue, len(entries), reason, error)
        self._disposal.dead_letter(self._queue, entries, reason, error, batch)
        self.archive(entries, batch)
        ids = [entry.id for entry in entries if entry.stored]

        def again(batch: Batch) -> None:
            self._disposal.dead_letter(self._queue, entries, reason, error, batch)
            self.end_rows(entries, batch)

        batch.redo.append((ids, again))

    def expire(self, entries: list[Entry], batch: Batch, error: spec.Error | None = None) -> None:
        """Let go of entries whose time is over."""
        self._tally.expired += len(entries)
        self.dead_letter(entries, DeadLetterReason.EXPIRED, error, batch)

    def taken(self, entries: Sequence[Entry], batch: Batch, consumer: object) -> None:
        """Let go of entries that a consumer has accepted."""
        self._disposal.taken(self._queue, entries, batch, consumer)
        taker: EntryTaker = getattr(consumer, "taker", SOMEBODY)
        batch.ended(taker.kind, self._queue.name, entries, taker.facts)
        self.archive(entries, batch)
        self._tally.dequeued += len(entries)

    def moved(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Let go of entries that stand on another node within the same batch."""
        batch.ended(RecordKind.DELETED, self._queue.name, entries, MOVED)
        self.archive(entries, batch)

    def purge(self, entries: list[Entry], batch: Batch) -> None:
        """Let go of entries that an operator does not want here."""
        self._tally.purged += len(entries)
        self.drop(entries, PURGED, batch)

    def drop(self, entries: list[Entry], code: str, batch: Batch) -> None:
        """Let go of entries that nobody has taken and that are no dead letters."""
        if entries:
            self._disposal.dropped(self._queue, entries, code, batch)
        batch.ended(RecordKind.DELETED, self._queue.name, entries, {"code": code})
        self.archive(entries, batch)

    def remove_unmatched(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Let go of what no attached link needs (Q-23)."""
        self._tally.unreachable += len(entries)
        batch.ended(RecordKind.DELETED, self._queue.name, entries, UNREACHABLE)
        self.archive(entries, batch)

    def set_aside(self, entries: list[Entry], batch: Batch) -> None:
        """Let go of entries whose bodies are damaged; the store keeps them for an operator."""
        self._tally.damaged += len(entries)
        for entry in entries:
            if entry.stored:
                batch.transaction.move(entry.id, QUARANTINE, entry.id)
        self._report_damaged(entries, [entry.id for entry in entries], batch)
        self._gone(entries)

    def damaged(self, entries: list[Entry], ids: Sequence[int], batch: Batch) -> None:
        """Note that the store has set paged entries aside.

        Args:
            entries: those of which enough can be read to tell their senders.
            ids: of all of them.
            batch: for the reports.
        """
        self._tally.damaged += len(ids)
        self._report_damaged(entries, ids, batch)
        self._gone(entries)

    def _report_damaged(self, entries: list[Entry], ids: Sequence[int], batch: Batch) -> None:
        batch.damaged(self._queue.name, ids, DAMAGED)
        for entry in entries:
            try:
                self._disposal.dropped(self._queue, [entry], DAMAGED, batch)
            except AmqpError as error:
                # What is left of it does not say who is to be told.
                self._log.warn(
                    "the sender of message {entry} of {node}, which is damaged, is not told: "
                    "{error}",
                    entry=entry.id,
                    node=self._queue.name,
                    error=error,
                )

    # -- on the queue's own account ------------------------------------------------------------

    def damaged_now(
        self, entries: list[Entry], ids: Sequence[int], moved: Sequence[int] = ()
    ) -> None:
        """Do `damaged` in a batch of its own, and set those aside that the store has not."""
        batch = self._begin()
        for entry_id in moved:
            batch.transaction.move(entry_id, QUARANTINE, entry_id)
        self.damaged(entries, ids, batch)
        self.commit(batch)

    def expire_now(self, entries: list[Entry]) -> None:
        """Let go of entries whose time is over."""
        batch = self._begin()
        self.expire(entries, batch)
        self.commit(batch)

    def archive_now(self, entries: Sequence[Entry]) -> None:
        """Let go of entries that arrived when the queue was no more."""
        batch = self._begin()
        batch.ended(RecordKind.DELETED, self._queue.name, entries, NODE_GONE)
        self.archive(entries, batch)
        self.commit(batch)

    def end_now(self, entries: Sequence[Entry]) -> None:
        """End entries which the queue held already when they arrived: they never were on it."""
        batch = self._begin()
        batch.ended(RecordKind.DELETED, self._queue.name, entries, DUPLICATE)
        self.end_rows(entries, batch)
        batch.commit().addErrback(self._failed)

    def unreachable_now(self, entries: Sequence[Entry]) -> None:
        """Let go of what no attached link needs."""
        batch = self._begin()
        self.remove_unmatched(entries, batch)
        self.commit(batch, patient=True)

    def commit(self, batch: Batch, patient: bool = False) -> None:
        """Commit a batch of the queue's own; what a full disk does not take is done later."""
        done: Deferred[Any] = batch.commit(patient)
        done.addErrback(retry_settle, batch, self._begin).addErrback(self._failed)

    def take_all(self) -> list[Entry]:
        """Take everything available and deferred out of memory, and return it."""
        return self._deferral.clear() + self._levels.clear()

    def clear_out(self, let_go: LetGo) -> Deferred[int]:
        """Let go of everything: what is in memory at once, the rest a page at a time.

        What is being loaded at this moment stays. On a full disk what needs no room goes at once,
        since that makes some; what needs some, for dead letters or reports, goes when there is.

        Args:
            let_go: called with entries and the batch in which it has to archive them.

        Returns:
            A Deferred of how many, when that is durable.
        """
        count = [0]
        rests: list[Deferred[None]] = []

        def page(entries: list[Entry]) -> Deferred[Any]:
            batch = self._begin()
            let_go(entries, batch)
            count.append(len(entries))
            done: Deferred[Any] = batch.commit()
            return done.addErrback(retry_settle, batch, self._begin, rests).addCallback(waited)

        def waited(_: object) -> Deferred[Any] | None:
            return all_of(rests) if len(rests) > MOST_RESTS else None

        done = page(self.take_all())
        for line in self._levels.lines:
            done.addCallback(lambda _, line: self._backlog.clear(line, page), line)
        return done.addCallback(lambda _: all_of(rests)).addCallback(lambda _: sum(count))

    def clear_out_unreachable(self) -> None:
        """Let go of everything: nobody is attached."""
        if self._levels.available or self._deferral:
            self.clear_out(self.remove_unmatched).addErrback(self._failed)
