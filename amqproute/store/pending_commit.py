# SPDX-License-Identifier: Apache-2.0
"""Changes of a store transaction, collected so that many can be written as one.

A `StatementGroup` holds changes in the order in which they are written: inserts, updates, moves,
deletes. Since an id lives only once (created by enqueue or move, ended by dequeue or move), that
order has the same result as the order of the calls, except for the few pairs that
`StatementGroup.clashes` knows; such a pair opens the next stage. Ordinary traffic needs one stage
for any number of transactions.
Shared payloads are inserted before everything else, and deleted after everything else of the whole
group (`statements.write_stages`), so that they need no order of their own. The same applies to body
files (`amqproute.store.body_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from zope.interface import implementer

from amqproute.errors import LocalProtocolError
from amqproute.interfaces import IBody, IStoreTransaction
from amqproute.store.body_files import Filed
from amqproute.store.model import QUARANTINE_NUMBER, QueueNumbers, StoredReceipt

WIDTH: Final = 8
"""Columns of a row in `StatementGroup.rows`: id, queue, arrived, expires, flags, count, size,
encoded."""
SHARED_WIDTH: Final = 7
"""Columns of a row in `SharedRow.rows`: id, queue, arrived, expires, flags, size, payload."""

NEVER: Final = 1 << 62
"""A size that no message reaches, octets."""

Move = tuple[int, int, bytes | None]


class SharedRows:
    """New payloads, new entries that refer to payloads, and new entries with bodies in files.

    Attributes:
        rows: the entries, `SHARED_WIDTH` values each, one after the other in a flat list.
        payloads: id -> the encoded message.
        filed: entries whose bodies are, or will be, in files.
        unborn: body files of entries that were added and removed within the group.
    """

    __slots__ = ("filed", "payloads", "rows", "unborn")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.payloads: dict[int, bytes] = {}
        self.filed: list[Filed] = []
        self.unborn: set[int] = set()

    def references(self) -> set[int]:
        """Return the ids of the payloads to which the entries refer."""
        return set(self.rows[SHARED_WIDTH - 1 :: SHARED_WIDTH])

    def drop_unreferenced(self) -> None:
        """Forget payloads to which no entry refers."""
        references = self.references()
        self.payloads = {one: self.payloads[one] for one in self.payloads if one in references}


class StatementGroup:
    """Changes of entries that may be written in one fixed order.

    Attributes:
        rows: new entries, `WIDTH` values each, one after the other in a flat list.
        shared: changes with shared payloads; None, as in most stages, for nothing.
        dequeued: ids of removed entries.
        updates: id -> delivery count and, if it changes, the encoded message.
        moves: id -> new id, queue number and, if it changes, the encoded message.
        arrivals: the new ids of `moves`.
    """

    __slots__ = ("arrivals", "dequeued", "moves", "rows", "shared", "updates")

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.shared: SharedRows | None = None
        self.dequeued: set[int] = set()
        self.updates: dict[int, tuple[int, bytes | None]] = {}
        self.moves: dict[int, Move] = {}
        self.arrivals: set[int] = set()

    def is_busy(self) -> bool:
        """Tell whether there is anything to write."""
        return bool(
            self.rows or self.dequeued or self.updates or self.moves or self.shared is not None
        )

    def only_begins(self) -> bool:
        """Tell whether there are new entries without shared payloads, and nothing else."""
        return bool(self.rows) and not (
            self.dequeued or self.updates or self.moves or self.shared is not None
        )

    def born(self) -> int:
        """Return the number of new entries."""
        count = len(self.rows) // WIDTH
        if self.shared is not None:
            count += len(self.shared.rows) // SHARED_WIDTH + len(self.shared.filed)
        return count

    def balance(self) -> tuple[int, int]:
        """Return the change in the number of entries, and in the sum of their ids.

        It holds if all removed or moved entries exist.
        """
        total: int = sum(self.rows[::WIDTH]) - sum(self.dequeued)
        if self.shared is not None:
            total += sum(self.shared.rows[::SHARED_WIDTH])
            total += sum([row[0] for row in self.shared.filed])
        for old, move in self.moves.items():
            total += move[0] - old
        return self.born() - len(self.dequeued), total

    def born_bytes(self) -> int:
        """Return the bytes of new encoded messages, counting shared ones once."""
        size: int = sum(self.rows[WIDTH - 2 :: WIDTH])
        if self.shared is not None:
            size += sum(map(len, self.shared.payloads.values()))
            size += sum([len(row[5]) for row in self.shared.filed])
        return size

    def sharing(self) -> SharedRows:
        """Return `shared`, creating it if necessary."""
        if self.shared is None:
            self.shared = SharedRows()
        return self.shared

    def clashes(self, updates: Iterable[int], moves: Iterable[int]) -> bool:
        """Tell whether later updates and moves cannot join: the fixed order would differ.

        An update of a moved entry would be written before the move; a move of a moved entry
        has to see the first one; a move of a removed entry would bring it back.
        """
        for one in updates:
            if one in self.moves or one in self.arrivals:
                return True
        for one in moves:
            if one in self.moves or one in self.arrivals or one in self.dequeued:
                return True
        return False

    def update(self, entry_id: int, delivery_count: int, encoded: bytes | None) -> None:
        """Add an update; a body from an earlier update stays if this one has none."""
        if encoded is None and entry_id in self.updates:
            encoded = self.updates[entry_id][1]
        self.updates[entry_id] = (delivery_count, encoded)

    def move(self, entry_id: int, move: Move) -> None:
        """Add a move."""
        self.moves[entry_id] = move
        self.arrivals.add(move[0])

    def join(self, later: StatementGroup) -> None:
        """Add the changes of a later stage that does not clash."""
        self.rows += later.rows
        if later.shared is not None:
            shared = self.sharing()
            shared.rows += later.shared.rows
            shared.payloads.update(later.shared.payloads)
            shared.filed += later.shared.filed
            shared.unborn |= later.shared.unborn
        self.dequeued |= later.dequeued
        for entry_id, (count, encoded) in later.updates.items():
            self.update(entry_id, count, encoded)
        self.moves.update(later.moves)
        self.arrivals |= later.arrivals

    def drop_unborn(self) -> None:
        """Drop entries that are added and removed within this stage.

        Safe: no sender has been answered, because no Deferred fires before the commit that would
        have held both writes; afterwards the state is the same as with them. A stage with moves
        is left alone, since a move may have renumbered the entry first.
        """
        if not self.dequeued or self.moves:
            return
        if self.rows:
            self.rows = self._born_to_stay(self.rows, WIDTH)
        if self.shared is not None:
            self.shared.rows = self._born_to_stay(self.shared.rows, SHARED_WIDTH)
            self.shared.drop_unreferenced()
            if self.shared.filed:
                self._drop_unborn_filed(self.shared)

    def _drop_unborn_filed(self, shared: SharedRows) -> None:
        unborn = self.dequeued.intersection([row[0] for row in shared.filed])
        if unborn:
            self.dequeued -= unborn
            gone = [row[6] for row in shared.filed if row[0] in unborn and row[6] is not None]
            shared.unborn.update(rest.number for rest in gone)
            shared.filed = [row for row in shared.filed if row[0] not in unborn]

    def _born_to_stay(self, flat: list[Any], width: int) -> list[Any]:
        """Drop rows that are dequeued here from a flat list, and from `dequeued`."""
        ids = flat[::width]
        unborn = self.dequeued.intersection(ids)
        if not unborn:
            return flat
        self.dequeued -= unborn
        kept: list[Any] = []
        for index, entry_id in enumerate(ids):
            if entry_id not in unborn:
                kept += flat[index * width : (index + 1) * width]
        return kept


class CommitFacts:
    """Receipts and notes of one or many transactions, in an order that is safe to write.

    Marks are written before `forgets`, and `forgotten` after both; what would
    contradict that order opens the next `CommitFacts`.
    """

    __slots__ = ("forget_before_ms", "forgets", "forgotten", "marks", "notes", "postponed")

    def __init__(self) -> None:
        self.marks: dict[str, list[int]] = {}
        self.forgets: dict[str, int] = {}
        self.notes: dict[tuple[str, str], bytes | None] = {}
        self.forgotten: set[str] = set()
        self.forget_before_ms: int | None = None
        self.postponed: list[tuple[int, int]] = []

    def clashes(self, later: CommitFacts) -> bool:
        """Tell whether a later mark would be lost to an earlier request to forget."""
        if not later.marks:
            return False
        if self.forget_before_ms is not None:
            return True
        return any(
            stream in self.forgotten or min(ids) < self.forgets.get(stream, min(ids))
            for stream, ids in later.marks.items()
        )

    def join(self, later: CommitFacts) -> None:
        """Add later facts that do not clash."""
        for stream, ids in later.marks.items():
            self.marks.setdefault(stream, []).extend(ids)
        for stream, below in later.forgets.items():
            self.forgets[stream] = max(below, self.forgets.get(stream, below))
        self.forgotten |= later.forgotten
        self.notes.update(later.notes)
        if later.forget_before_ms is not None:
            self.forget_before_ms = max(later.forget_before_ms, self.forget_before_ms or 0)
        self.postponed += later.postponed

    def receipts(self, now_ms: int) -> list[tuple[str, StoredReceipt]]:
        """Return the marks as one receipt for each stream."""
        return [(stream, StoredReceipt.of(ids, now_ms)) for stream, ids in self.marks.items()]


@implementer(IStoreTransaction)
class PendingCommit:
    """Changes that become durable together or not at all; created by a store's `begin`.

    A transaction that is dropped without `commit` has no effect. Operations on an id that
    does not exist, or no longer, do nothing.
    """

    __slots__ = (
        "_file_bytes",
        "_hand_over",
        "_numbers",
        "_rows",
        "bodies",
        "deferred",
        "events",
        "facts",
        "is_patient",
        "quarantined",
        "stages",
        "submitted",
    )

    def __init__(
        self,
        numbers: QueueNumbers,
        hand_over: Callable[[PendingCommit], Deferred[None]],
        file_bytes: int = NEVER,
    ) -> None:
        self._numbers = numbers
        self._file_bytes = file_bytes
        self.bodies: list[Any] = []
        self._hand_over: Callable[[PendingCommit], Deferred[None]] | None = hand_over
        first = StatementGroup()
        self.stages = [first]
        # New ids are never touched by anything earlier, so rows may always join stage one.
        self._rows = first.rows
        self.facts: list[CommitFacts] = []
        self.events: list[object] = []
        self.deferred: Deferred[None] = Deferred()
        self.is_patient = False
        self.submitted = 0.0  # `time.perf_counter` when it was handed to the writer
        self.quarantined = 0

    def enqueue(
        self,
        queue: str,
        entry_id: int,
        encoded: bytes,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
        rest: IBody | None = None,
    ) -> None:
        """Add an entry to a queue.

        Args:
            queue: the queue's name.
            entry_id: the id from the store's `next_id`.
            encoded: the annotated message; kept, not copied.
            arrived_ms: wall clock, milliseconds since the epoch.
            expires_ms: the same clock, 0 for never.
            flags: `TRANSIENT` and the broker's own bits.
            rest: the `IBody` that follows `encoded`; None for a message without one.
        """
        if self._hand_over is None:
            raise _too_late()
        if rest is not None or len(encoded) >= self._file_bytes:
            self._file(queue, entry_id, encoded, arrived_ms, expires_ms, flags, rest)
            return
        self._rows += (
            entry_id,
            self._numbers[queue],
            arrived_ms,
            expires_ms,
            flags,
            0,
            len(encoded),
            encoded,
        )

    def _file(
        self,
        queue: str,
        entry_id: int,
        encoded: bytes,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
        rest: IBody | None,
    ) -> None:
        if rest is not None:
            self.bodies.append(rest)
        self.stages[0].sharing().filed.append(
            (entry_id, self._numbers[queue], arrived_ms, expires_ms, flags, encoded, rest)
        )

    def share(self, payload_id: int, encoded: bytes) -> None:
        """Add a body that many entries may refer to.

        It lives as long as at least one entry refers to it; a body without references at
        commit is not stored.

        Args:
            payload_id: the id from the store's `next_id`.
            encoded: the annotated message; kept, not copied.
        """
        if self._hand_over is None:
            raise _too_late()
        payloads = self.stages[0].sharing().payloads
        if payload_id in payloads:
            raise LocalProtocolError(f"payload {payload_id} is shared twice")
        payloads[payload_id] = encoded

    def enqueue_shared(
        self,
        queue: str,
        entry_id: int,
        payload_id: int,
        size: int,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
    ) -> None:
        """Add an entry whose body is a shared payload to a queue.

        The commit fails unless the payload is part of this transaction or stored.

        Args:
            queue: the queue's name.
            entry_id: the id from the store's `next_id`.
            payload_id: the id of `share`, in this transaction or in an earlier one.
            size: bytes of the payload.
            arrived_ms: wall clock, milliseconds since the epoch.
            expires_ms: the same clock, 0 for never.
            flags: `TRANSIENT` and the broker's own bits.

        Raises:
            LocalProtocolError: the size is not that of the payload, which is of this transaction.
        """
        self.enqueue_shared_many(
            (queue,), (entry_id,), payload_id, size, arrived_ms, expires_ms, flags
        )

    def enqueue_shared_many(
        self,
        queues: Sequence[str],
        entry_ids: Sequence[int],
        payload_id: int,
        size: int,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
    ) -> None:
        """Do `enqueue_shared` for many queues, each with the id at the same place.

        Raises:
            LocalProtocolError: as there; or the numbers of ids and queues differ.
        """
        if self._hand_over is None:
            raise _too_late()
        shared = self.stages[0].sharing()
        encoded = shared.payloads.get(payload_id)
        if encoded is not None and len(encoded) != size:
            raise LocalProtocolError(
                f"payload {payload_id} has {len(encoded)} bytes, its entry says {size}"
            )
        if len(queues) != len(entry_ids):
            raise LocalProtocolError(f"{len(queues)} queues and {len(entry_ids)} ids")
        numbers, rows = self._numbers, shared.rows
        for queue, entry_id in zip(queues, entry_ids, strict=True):
            rows += (
                entry_id,
                numbers[queue],
                arrived_ms,
                expires_ms,
                flags,
                size,
                payload_id,
            )

    def dequeue(self, ids: Sequence[int]) -> None:
        """Remove entries; a payload is removed with the last entry that refers to it."""
        if self._hand_over is None:
            raise _too_late()
        self.stages[-1].dequeued.update(ids)

    def update(self, entry_id: int, delivery_count: int, encoded: bytes | None = None) -> None:
        """Set an entry's delivery count and, if given, its encoded message.

        An entry with a shared payload gets the message as a body of its own. If the rest of the
        message is in a file, `encoded` is what precedes it.
        """
        self._stage_for((entry_id,), ()).update(entry_id, delivery_count, encoded)

    def move(self, entry_id: int, queue: str, new_id: int, encoded: bytes | None = None) -> None:
        """Move an entry to the tail of another queue under a new id, as for a dead letter.

        A shared payload stays shared unless `encoded` replaces it.
        """
        number = self._numbers[queue]
        self.quarantined += number == QUARANTINE_NUMBER
        self._stage_for((), (entry_id,)).move(entry_id, (new_id, number, encoded))

    def mark_received(self, stream: str, ids: Sequence[int]) -> None:
        """Add receipts: these ids of a peer's stream have arrived."""
        if ids:
            later = CommitFacts()
            later.marks[stream] = list(ids)
            self._add(later)

    def forget_received(self, stream: str, below: int) -> None:
        """Drop a stream's receipts with ids under `below`."""
        later = CommitFacts()
        later.forgets[stream] = below
        self._add(later)

    def forget_stream(self, stream: str) -> None:
        """Drop all receipts of a stream."""
        later = CommitFacts()
        later.forgotten.add(stream)
        self._add(later)

    def forget_received_before(self, ms: int) -> None:
        """Drop the receipts of any stream that were made before this time."""
        later = CommitFacts()
        later.forget_before_ms = ms
        self._add(later)

    def postpone(self, ms: int, now_ms: int) -> None:
        """See `IStoreTransaction.postpone`."""
        later = CommitFacts()
        later.postponed = [(ms, now_ms)]
        self._add(later)

    def note(self, kind: str, key: str, value: bytes | None) -> None:
        """Store a small durable fact, or delete it with None."""
        later = CommitFacts()
        later.notes[kind, key] = value
        self._add(later)

    def record(self, event: object) -> None:
        """Pass an event to the store's outbox when this is committed; not if it fails."""
        if self._hand_over is None:
            raise _too_late()
        self.events.append(event)

    def commit(self, patient: bool = False) -> Deferred[None]:
        """Commit everything above.

        Args:
            patient: nobody waits for it: it may be delayed by some milliseconds to share an
                fsync. If it only removes entries, later commits may overtake it.

        Returns:
            A Deferred that fires after the fsync that made the transaction durable, never
            inside this call, and in the order of the commits (but for patience); or fails with
            `StoreError`.
        """
        hand_over, self._hand_over = self._hand_over, None
        if hand_over is None:
            raise _too_late()
        shared = self.stages[0].shared
        if shared is not None:
            shared.drop_unreferenced()
        self.is_patient = patient
        return hand_over(self)

    def weight(self) -> tuple[int, int]:
        """Return the number of entries added and removed here, and the octets of added ones."""
        entries = octets = 0
        for stage in self.stages:
            entries += stage.born() + len(stage.dequeued)
            if stage.rows or stage.shared is not None:
                octets += stage.born_bytes()
        return entries, octets

    def begins(self) -> bool:
        """Tell whether entries are added here."""
        return any(stage.born() for stage in self.stages)

    def ended(self) -> list[int]:
        """Return the ids of entries removed here."""
        return [entry_id for stage in self.stages for entry_id in stage.dequeued]

    def only_removes(self) -> bool:
        """Tell whether this removes entries and does nothing else."""
        first = self.stages[0]
        return not (
            len(self.stages) > 1
            or self.facts
            or first.rows
            or first.updates
            or first.moves
            or first.shared is not None
        )

    def _stage_for(self, updates: tuple[int, ...], moves: tuple[int, ...]) -> StatementGroup:
        if self._hand_over is None:
            raise _too_late()
        if self.stages[-1].clashes(updates, moves):
            self.stages.append(StatementGroup())
        return self.stages[-1]

    def _add(self, later: CommitFacts) -> None:
        if self._hand_over is None:
            raise _too_late()
        if self.facts:
            add_facts(self.facts, later)
        else:
            self.facts.append(later)


def _too_late() -> LocalProtocolError:
    return LocalProtocolError("the transaction is already committed; begin another one")


def add_facts(facts: list[CommitFacts], later: CommitFacts) -> None:
    """Append `later` to a list of facts, joined to the last one if that is safe."""
    if not facts or facts[-1].clashes(later):
        facts.append(CommitFacts())
    facts[-1].join(later)


def merge(transactions: Sequence[PendingCommit]) -> tuple[list[StatementGroup], list[CommitFacts]]:
    """Merge transactions, in their order, into as few stages as possible."""
    stages = [StatementGroup()]
    facts: list[CommitFacts] = []
    for transaction in transactions:
        for stage in transaction.stages:
            if (stage.updates or stage.moves) and stages[-1].clashes(stage.updates, stage.moves):
                stages.append(StatementGroup())
            stages[-1].join(stage)
        for fact in transaction.facts:
            add_facts(facts, fact)
    for stage in stages:
        stage.drop_unborn()
    return stages, facts
