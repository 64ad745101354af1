# SPDX-License-Identifier: Apache-2.0
"""MemoryStore: the same contract without a disk, for volatile data and for tests."""

from __future__ import annotations

import hashlib
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from zope.interface import implementer

from amqproute.entry import later_by
from amqproute.errors import LocalProtocolError, StoreError
from amqproute.interfaces import IBody, IBodyDraft, IBodyReader, IOutbox, IStore
from amqproute.store.model import (
    QUARANTINE_NUMBER,
    QueueNumbers,
    StoredEntry,
    StoreRecovery,
    StoreRoom,
)
from amqproute.store.pending_commit import (
    NEVER,
    SHARED_WIDTH,
    WIDTH,
    PendingCommit,
    SharedRows,
    StatementGroup,
    merge,
)
from amqproute.store.staging_memory import MemoryStaging


class IStoreClock(Protocol):
    """The part of a reactor that `MemoryStore` needs; `task.Clock` has it."""

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kwargs: object
    ) -> object:
        """Call `callable` after `delay` seconds."""


class _Queue:
    """Entries of one queue by id, with the ids in order."""

    __slots__ = ("entries", "ids")

    def __init__(self) -> None:
        self.entries: dict[int, StoredEntry] = {}
        self.ids: list[int] = []

    def add(self, entry: StoredEntry) -> None:
        self.entries[entry.id] = entry
        if not self.ids or entry.id > self.ids[-1]:
            self.ids.append(entry.id)
        else:
            insort(self.ids, entry.id)

    def remove(self, entry_id: int) -> StoredEntry:
        entry = self.entries.pop(entry_id)
        # Removed ids stay in the list until they are the majority: removal is then cheap
        # on average wherever in the queue it happens.
        if len(self.ids) > 64 and len(self.ids) > 2 * len(self.entries):
            self.ids = sorted(self.entries)
        return entry

    def after(self, after_id: int) -> Iterator[int]:
        ids = self.ids
        # Not a slice: a page of a long queue would copy everything behind it.
        for place in range(bisect_right(ids, after_id), len(ids)):
            yield ids[place]


class _Payload:
    """A body that entries share, and their number."""

    __slots__ = ("encoded", "holders")

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self.holders = 0


@implementer(IBody)
class MemoryBody:
    """The rest of a message, in memory."""

    number = 0

    def __init__(self, store: MemoryStore, octets: bytes) -> None:
        self._store = store
        self._octets = octets
        self.size = len(octets)
        self.has_footer = False
        self._digest: tuple[bytes, tuple[str, int]] | None = None

    def digest_of(self, before: bytes) -> tuple[str, int] | None:
        """See `IBody.digest_of`."""
        known = self._digest
        return known[1] if known is not None and known[0] == before else None

    def recall(self, before: bytes) -> Deferred[tuple[str, int] | None]:
        """See `IBody.recall`."""
        return self._store._submit(lambda: self.digest_of(before))

    def digested(self, before: bytes, digest: str, size: int) -> None:
        """See `IBody.digested`."""
        self._digest = before, (digest, size)

    def reader(self) -> MemoryReader:
        """See `IBody.reader`."""
        return MemoryReader(self._store, self._octets)


@implementer(IBodyReader)
class MemoryReader:
    """Reads it in parts, as if from a file."""

    def __init__(self, store: MemoryStore, octets: bytes) -> None:
        self._store = store
        self._octets = octets
        self._at = 0

    @property
    def left(self) -> int:
        """Octets not yet requested."""
        return len(self._octets) - self._at

    def read(self, size: int) -> Deferred[bytes]:
        """Return a Deferred of the next octets."""
        start, self._at = self._at, min(self._at + size, len(self._octets))
        octets = self._octets[start : self._at]
        return self._store._submit(lambda: octets)

    def skip(self, octets: int) -> None:
        """See `IBodyReader.skip`."""
        self._at = min(self._at + octets, len(self._octets))

    def close(self) -> None:
        """Do nothing."""


@implementer(IBodyDraft)
class MemoryDraft:
    """An incoming body, in memory."""

    def __init__(
        self, store: MemoryStore, written: Callable[[int], None], before: bytes | None
    ) -> None:
        self._store = store
        self._written = written
        self._before = before
        self._digest = hashlib.sha256(before or b"")
        self._bare_size = len(before or b"")
        self._parts: list[bytes] = []
        self.size = 0

    def append(self, parts: Sequence[bytes], bare: Sequence[bytes | memoryview] = ()) -> None:
        """See `IBodyDraft.append`."""
        self._parts += parts
        for each in bare:
            self._digest.update(each)
            self._bare_size += len(each)
        size = sum(map(len, parts))
        self.size += size
        self._store._submit(lambda: size).addCallback(self._written)

    def finish(self) -> Deferred[IBody]:
        """See `IBodyDraft.finish`."""
        return self._store._submit(self._finished)

    def _finished(self) -> MemoryBody:
        body = MemoryBody(self._store, b"".join(self._parts))
        if self._before is not None:
            body.digested(self._before, self._digest.hexdigest(), self._bare_size)
        return body

    def abandon(self) -> None:
        """See `IBodyDraft.abandon`."""
        self._parts = []


@implementer(IStore)
class MemoryStore:
    """A store that keeps nothing beyond its process.

    It commits on the reactor's next turn, all waiting work in one turn, in order; there are no
    threads. It keeps one reference to each encoded message and copies none.

    Args:
        reactor: the reactor for the next turn.
        outbox: receives committed events, an `IOutbox`; may be None.
        clock_ms: dates staged contents, milliseconds.

    Attributes:
        quarantined: always empty: nothing is read from a disk.
        staging: see `IStore`.
    """

    quarantined = 0

    def __init__(
        self,
        reactor: IStoreClock,
        outbox: IOutbox | None = None,
        clock_ms: Callable[[], int] = int,
    ) -> None:
        self._reactor = reactor
        self._outbox = outbox
        self._numbers = QueueNumbers()
        self._queues: dict[int, _Queue] = {}
        self._where: dict[int, _Queue] = {}
        self._payloads: dict[int, _Payload] = {}
        self._next = 1
        self._jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self._open = False
        self._closed = False
        self._submitted = 0
        self._commits = 0
        self._transactions = 0
        self._entries = 0
        self.staging = MemoryStaging(self._submit, clock_ms)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._open else "new"
        return f"<MemoryStore {state} entries={len(self._where)} waiting={len(self._jobs)}>"

    def open(self) -> Deferred[StoreRecovery]:
        """See `IStore.open`: there is never anything to recover."""
        if self._open:
            raise LocalProtocolError("a store is opened once")
        self._open = True
        return self._submit(StoreRecovery)

    def close(self) -> Deferred[None]:
        """See `IStore.close`."""
        done: Deferred[None] = self._submit(lambda: None)
        self._closed = True
        return done

    def next_id(self) -> int:
        """See `IStore.next_id`."""
        entry_id = self._next
        self._next = entry_id + 1
        return entry_id

    def begin(self) -> PendingCommit:
        """See `IStore.begin`."""
        return PendingCommit(self._numbers, self._commit)

    def draft(self, written: Callable[[int], None], before: bytes | None = None) -> MemoryDraft:
        """See `IStore.draft`."""
        return MemoryDraft(self, written, before)

    def load(
        self, queue: str, after_id: int, limit: int, limit_bytes: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """See `IStore.load`."""
        return self._submit(lambda: self._load(queue, after_id, limit, limit_bytes))

    def expired(
        self, queue: str, now_ms: int, after_id: int, limit: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """See `IStore.expired`."""
        return self._submit(lambda: self._expired(queue, now_ms, after_id, limit))

    def names(self) -> list[str]:
        """See `IStore.names`."""
        return [name for name, number in self._numbers.items() if number != QUARANTINE_NUMBER]

    def ids(self, queue: str, after_id: int, limit: int) -> Deferred[Sequence[int]]:
        """See `IStore.ids`."""
        return self._submit(lambda: [each.id for each in self._load(queue, after_id, limit, NEVER)])

    def room(self) -> Deferred[StoreRoom]:
        """See `IStore.room`: practically unlimited."""
        return self._submit(lambda: StoreRoom(free=1 << 62, total=1 << 62, reusable=0, used=0))

    def statistics(self) -> dict[str, float]:
        """Return the counters of `SqliteStore` that apply here."""
        return {
            "submitted": self._submitted,
            "commits": self._commits,
            "transactions": self._transactions,
            "entries": self._entries,
            "entries_per_commit": self._entries / max(1, self._commits),
            "failed_transactions": 0,
            "waiting": len(self._jobs),
        }

    def _commit(self, transaction: PendingCommit) -> Deferred[None]:
        self._submitted += 1
        self._put(lambda: self._apply(transaction), transaction.deferred)
        return transaction.deferred

    def _submit(self, function: Callable[[], Any]) -> Deferred[Any]:
        deferred: Deferred[Any] = Deferred()
        self._put(function, deferred)
        return deferred

    def _put(self, function: Callable[[], Any], deferred: Deferred[Any]) -> None:
        if not self._open:
            raise LocalProtocolError("the store is not open")
        if self._closed:
            function = _refuse
        self._jobs.append((function, deferred))
        if len(self._jobs) == 1:
            self._reactor.callLater(0, self._turn)

    def _turn(self) -> None:
        jobs, self._jobs = self._jobs, []
        self._commits += 1
        results: list[tuple[Deferred[Any], Any]] = []
        for function, deferred in jobs:
            try:
                results.append((deferred, function()))
            except StoreError as error:
                results.append((deferred, error))
        for deferred, result in results:
            if isinstance(result, StoreError):
                deferred.errback(result)
            else:
                deferred.callback(result)

    def _apply(self, transaction: PendingCommit) -> None:
        # Receipts and notes are for the next start, and there is none: they are dropped.
        stages, facts = merge([transaction])
        for stage in stages:
            self._check(stage)
        left: list[int] = []
        for stage in stages:
            self._write(stage, left)
        for fact in facts:
            for ms, now_ms in fact.postponed:
                self._postpone(ms, now_ms)
        for payload_id in left:
            payload = self._payloads.get(payload_id)
            if payload is not None and not payload.holders:
                del self._payloads[payload_id]
        self._transactions += 1
        if self._outbox is not None and transaction.events:
            self._outbox.committed(transaction.events, False)

    def _postpone(self, ms: int, now_ms: int) -> None:
        for queue in self._queues.values():
            for entry_id, entry in queue.entries.items():
                by_ms = later_by(entry.arrived_ms, ms, now_ms)
                expires_ms = entry.expires_ms + by_ms if entry.expires_ms > 0 else entry.expires_ms
                queue.entries[entry_id] = replace(
                    entry, arrived_ms=entry.arrived_ms + by_ms, expires_ms=expires_ms
                )

    def _check(self, stage: StatementGroup) -> None:
        self._check_new(stage.rows[::WIDTH])
        shared = stage.shared
        if shared is None:
            return
        self._check_new(shared.rows[::SHARED_WIDTH])
        self._check_new([row[0] for row in shared.filed])
        twice = shared.payloads.keys() & self._payloads.keys()
        if twice:
            raise StoreError(f"payloads {sorted(twice)[:9]} exist already")
        gone = shared.references() - shared.payloads.keys() - self._payloads.keys()
        if gone:
            raise StoreError(f"an entry refers to a deleted payload (one of {sorted(gone)[:9]})")

    def _check_new(self, ids: Sequence[int]) -> None:
        for entry_id in ids:
            if entry_id in self._where:
                raise StoreError(f"entry {entry_id} exists already")

    def _write(self, stage: StatementGroup, left: list[int]) -> None:
        """Apply a stage; add the payloads released by entries to `left`."""
        rows = stage.rows
        self._entries += stage.born() + len(stage.dequeued)
        for start in range(0, len(rows), WIDTH):
            entry_id, number, arrived, expires, flags, count, _, encoded = rows[
                start : start + WIDTH
            ]
            self._add(number, StoredEntry(entry_id, encoded, arrived, expires, count, flags))
        if stage.shared is not None:
            self._write_shared(stage.shared)
        for entry_id, (count, body) in stage.updates.items():
            if entry_id in self._where:
                entry = self._where[entry_id].entries[entry_id]
                # Not changed in place: a page loaded earlier shares the object.
                self._where[entry_id].entries[entry_id] = StoredEntry(
                    entry_id,
                    entry.encoded if body is None else body,
                    entry.arrived_ms,
                    entry.expires_ms,
                    count,
                    entry.flags,
                    entry.payload_id if body is None else self._leave(entry, left),
                    entry.rest,
                )
        for entry_id, (new_id, number, body) in stage.moves.items():
            if entry_id in self._where:
                entry = self._where.pop(entry_id).remove(entry_id)
                self._add(
                    number,
                    StoredEntry(
                        new_id,
                        entry.encoded if body is None else body,
                        entry.arrived_ms,
                        entry.expires_ms,
                        entry.delivery_count,
                        entry.flags,
                        entry.payload_id if body is None else self._leave(entry, left),
                        entry.rest,
                    ),
                )
        for entry_id in stage.dequeued:
            if entry_id in self._where:
                self._leave(self._where.pop(entry_id).remove(entry_id), left)

    def _write_shared(self, shared: SharedRows) -> None:
        for payload_id, encoded in shared.payloads.items():
            self._payloads[payload_id] = _Payload(encoded)
        rows = shared.rows
        for start in range(0, len(rows), SHARED_WIDTH):
            entry_id, number, arrived, expires, flags, _, payload_id = rows[
                start : start + SHARED_WIDTH
            ]
            payload = self._payloads[payload_id]
            payload.holders += 1
            entry = StoredEntry(entry_id, payload.encoded, arrived, expires, 0, flags, payload_id)
            self._add(number, entry)
        for entry_id, number, arrived, expires, flags, encoded, rest in shared.filed:
            entry = StoredEntry(entry_id, encoded, arrived, expires, 0, flags, rest=rest)
            self._add(number, entry)

    def _leave(self, entry: StoredEntry, left: list[int]) -> int:
        """Remove an entry from the holders of its payload, if any; return 0."""
        if entry.payload_id:
            self._payloads[entry.payload_id].holders -= 1
            left.append(entry.payload_id)
        return 0

    def _add(self, number: int, entry: StoredEntry) -> None:
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = _Queue()
        queue.add(entry)
        self._where[entry.id] = queue

    def _load(
        self, name: str, after_id: int, limit: int, limit_bytes: int
    ) -> Sequence[StoredEntry]:
        queue = self._queues.get(self._numbers.get(name, 0), _Queue())
        page: list[StoredEntry] = []
        size = 0
        for entry_id in queue.after(after_id):
            entry = queue.entries.get(entry_id)
            if entry is None:
                continue
            if len(page) >= limit or (page and size >= limit_bytes):
                break
            page.append(entry)
            size += len(entry.encoded)
        return page

    def _expired(self, name: str, now_ms: int, after_id: int, limit: int) -> Sequence[StoredEntry]:
        queue = self._queues.get(self._numbers.get(name, 0), _Queue())
        page: list[StoredEntry] = []
        for entry_id in queue.after(after_id):
            entry = queue.entries.get(entry_id)
            if entry is not None and 0 < entry.expires_ms <= now_ms:
                page.append(entry)
                if len(page) >= limit:
                    break
        return page


def _refuse() -> None:
    raise StoreError("the store is closed")
