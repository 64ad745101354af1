# SPDX-License-Identifier: Apache-2.0
"""The unit of durability: the changes of one read from the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.publish_gate import PublishGate
from amqproute.broker.receipts import Stream
from amqproute.entry import Entry
from amqproute.interfaces import IBatch, IJournal, IStoreTransaction
from amqproute.journal.event import (
    SILENCE,
    Came,
    DepartureEvent,
    JournalEvent,
    RunEvent,
)
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.values import Local, NextHop, Origin

_NOTHING: Final[Mapping[Any, int]] = MappingProxyType({})
_NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})


Arrived = TypeVar("Arrived", contravariant=True)
"""A message, as a node keeps it."""


class BatchParticipant(Protocol[Arrived]):
    """A node with messages in a batch, notified of the progress of its commit."""

    def go_ahead(self, entries: Sequence[Arrived], batch: Batch) -> None:
        """Deliver messages before they are committed (`broker.early_delivery`)."""

    def arrived(self, entries: Sequence[Arrived]) -> None:
        """Make messages available: they are committed."""

    def not_arrived(self, entries: Sequence[Arrived]) -> None:
        """Forget messages: their batch has failed, or was abandoned."""


@implementer(IBatch)
class Batch:
    """Arrivals and settlements that become durable together.

    Attributes:
        now_ms: the wall clock read once for the whole batch.
        transaction: the store transaction beneath.
        arrivals: entries put so far, by queue; the queues' `put` adds to it.
        last_id: the id of the last of them; 0 before.
        is_transactional: its messages belong to a client's transaction (Q-19).
        leaving: entries that its transaction ends, by queue: they do not count against capacity.
        is_rehearsal: whether it will be abandoned; its messages are not counted.
        gate: the gate of the broker.
        goes_ahead: its messages may be delivered while the commit is in progress: their frontend
            can leave the sender in doubt (`broker.early_delivery`). Messages that would be put
            again (see `redo`) are not: there would be two of them.
        ahead: messages delivered early; the queues' `go_ahead` adds to it.
        authorized: sender, address and route of the last message whose rights were checked; later
            messages with the same sender and address need no check, since a batch is made in one
            step (`amqproute.services.transfer`). None before.
        came: arrivals for the journal so far (`amqproute.journal.event.ArrivalEvent`); None without
            a journal.
        redo: calls to be repeated in another batch if the store could not take this one (see
            `broker.commit_retry`): ids of entries that end here while others come in their place,
            dead letters and reports, and a function that puts these and ends those.
    """

    __slots__ = (
        "_journal",
        "_receipts",
        "_when_committed",
        "_when_failed",
        "ahead",
        "arrivals",
        "authorized",
        "came",
        "gate",
        "goes_ahead",
        "is_rehearsal",
        "is_transactional",
        "last_id",
        "leaving",
        "now_ms",
        "redo",
        "transaction",
    )

    log = Logger()

    def __init__(
        self,
        transaction: IStoreTransaction,
        now_ms: int,
        gate: PublishGate,
        journal: IJournal = SILENCE,
    ) -> None:
        self._journal = journal
        self.came: list[Came] | None = [] if journal.is_kept else None
        self.transaction = transaction
        self.now_ms = now_ms
        self.gate = gate
        self.arrivals: dict[BatchParticipant[Any], list[Any]] = {}
        self.last_id = 0
        self.goes_ahead = False
        self.ahead: list[Entry] = []
        self.authorized: tuple[Origin, str, Local | NextHop] | None = None
        self.is_rehearsal = False
        self.is_transactional = False
        self.leaving: Mapping[BatchParticipant[Any], int] = _NOTHING
        self.redo: list[tuple[Sequence[int], Callable[[Batch], None]]] = []
        self._receipts: dict[Stream, list[int]] = {}
        self._when_committed: list[Callable[[], None]] | None = None  # of most batches
        self._when_failed: list[Callable[[], None]] | None = None

    def mark(self, stream: Stream, entry_id: int) -> None:
        """Note the receipt of a peer's message; it becomes durable with the message."""
        stream.pending.add(entry_id)
        try:
            self._receipts[stream].append(entry_id)
        except KeyError:
            self._receipts[stream] = [entry_id]

    def record(self, event: JournalEvent) -> None:
        """Record an event in the journal when this is committed."""
        if self.came is not None:
            self.transaction.record(event)

    def ended(
        self,
        kind: RecordKind,
        node: str,
        entries: Sequence[Entry],
        facts: Mapping[str, object] = _NO_FACTS,
        now_us: int = 0,
    ) -> None:
        """Record in the journal how entries end with this batch.

        Args:
            kind: the kind of their end.
            node: their node.
            entries: not to be changed any more.
            facts: fields of the records.
            now_us: the wall clock, where it was read already.
        """
        if self.came is not None and entries:
            self.transaction.record(
                DepartureEvent(kind, now_us or self._journal.now_us(), node, entries, facts)
            )

    def damaged(self, node: str, ids: Sequence[int], code: str) -> None:
        """Record in the journal that entries of a node are damaged in the store.

        Only their ids are used: their contents may not even be messages.
        """
        if self.came is not None and ids:
            facts = {"node": node, "code": code}
            event = RunEvent(
                RecordKind.DELETED, self._journal.now_us(), facts, {"entry": list(ids)}
            )
            self.transaction.record(event)

    def repeated(self, node: str, message: Message, origin: Origin) -> None:
        """Record in the journal that a message is a duplicate, and is not kept."""
        if self.came is not None and not self.is_rehearsal:
            self.came.append((node, message, origin, origin.tag, RecordKind.DUPLICATE))

    def copied(self, first: int, node: str, message: Message, origin: Origin) -> None:
        """Record in the journal that the arrivals since are copies of one message.

        Args:
            first: number of arrivals before them.
            node: the node that made the copies and keeps none for itself.
            message: the original.
            origin: its sender.
        """
        came = self.came
        if came is not None:
            copies = came[first:]
            came[first:] = [
                (*each[:4], RecordKind.ROUTED if each[4] is None else each[4]) for each in copies
            ]
            came.append((node, message, origin, origin.tag, len(copies)))

    def copied_each(self, first: int, node: str) -> None:
        """Journal each later entry as the only copy of its message.

        Args:
            first: the number of entries before them.
            node: the exchange or topic that made the copies and keeps none.
        """
        came = self.came
        if came is not None:
            routed = RecordKind.ROUTED
            copies, came[first:] = came[first:], []
            for name, entry, origin, tag, _ in copies:
                came.append((name, entry, origin, tag, routed))
                came.append((node, entry.message, origin, tag, 1))

    def when_committed(self, notify: Callable[[], None]) -> None:
        """Call ``notify()`` when this is durable, before its messages arrive."""
        if self._when_committed is None:
            self._when_committed = []
        self._when_committed.append(notify)

    def when_failed(self, notify: Callable[[], None]) -> None:
        """Call ``notify()`` when it is certain that this will not be durable."""
        if self._when_failed is None:
            self._when_failed = []
        self._when_failed.append(notify)

    def commit(self, patient: bool = False) -> Deferred[None]:
        """Make the batch durable, then line up the entries on their queues.

        Args:
            patient: nobody waits for the commit; see the store's `Transaction.commit`.

        Returns:
            A Deferred that fires with None, after the entries have become available; or fails
            with `StoreError`, in which case none of it happened.
        """
        for stream, ids in self._receipts.items():
            self.transaction.mark_received(stream.key, ids)
            stream.trim(self.transaction)
        if self.came:
            self.transaction.record(self._journal.arrivals(self.came))
        done: Deferred[None] = self.transaction.commit(patient)
        done.addCallbacks(self._committed, self._failed)
        gate = self.gate
        if self.goes_ahead and gate.is_open and not (gate.has_failed or self.redo):
            for queue, entries in self.arrivals.items():
                try:
                    queue.go_ahead(entries, self)
                except Exception:
                    self._log_fault(queue.go_ahead)
        return done

    @property
    def is_ahead(self) -> bool:
        """Whether some of its messages have been delivered before the commit."""
        return bool(self.ahead)

    @property
    def is_plain(self) -> bool:
        """Whether it records no receipts: none of its messages is from a relaying peer."""
        return not self._receipts

    def abandon(self) -> None:
        """Discard the batch instead of committing it.

        Only for a batch that contains nothing but messages: settlements act at once on the entries
        in memory.
        """
        self._undo()

    def _log_fault(self, notify: Callable[..., object]) -> None:
        """Log the exception of a participant that was notified of the progress.

        It is a fault of this program, and no reason not to notify the others, including the
        senders of the messages.
        """
        self.log.failure("a callback of a commit failed: {notify}", notify=notify)

    def _notify(self, listeners: Sequence[Callable[[], object]] | None) -> None:
        for notify in listeners or ():
            try:
                notify()
            except Exception:
                self._log_fault(notify)

    def _committed(self, _: object) -> None:
        if self.gate.has_failed and self.transaction.begins():
            self.gate.has_failed = False
        for stream, ids in self._receipts.items():
            stream.confirm(ids)
        if self._when_committed is not None:
            self._notify(self._when_committed)
        for queue, entries in self.arrivals.items():
            try:
                queue.arrived(entries)
            except Exception:
                self._log_fault(queue.arrived)

    def _failed(self, failure: Failure) -> Failure:
        self.gate.has_failed = True
        self._undo()
        if self.is_ahead and self.came:
            # Messages delivered early are in memory only, and end there: they began all the same.
            ahead = set(self.ahead)
            left = [each for each in self.came if type(each[1]) is Entry and each[1] in ahead]
            self._journal.note(self._journal.arrivals(left))
        return failure

    def _undo(self) -> None:
        self._notify(self._when_failed)
        for queue, entries in self.arrivals.items():
            try:
                queue.not_arrived(entries)
            except Exception:
                self._log_fault(queue.not_arrived)
        for stream, ids in self._receipts.items():
            stream.unmark(ids)
