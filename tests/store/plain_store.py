# SPDX-License-Identifier: Apache-2.0
"""A store written from `amqproute.interfaces` alone: slow, simple, and sufficient for a broker.

Nothing of `amqproute.store` but its values (`amqproute.store.model`) is used: whoever writes
another store can begin here, and run `tests.store.contract` on it. What is durable is in a
`PlainDisk`; a store that is opened on the same one finds it again.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface import implementer

from amqproute.entry import later_by
from amqproute.errors import LocalProtocolError, StoreError, StoreUnavailable
from amqproute.interfaces import IBody, IBodyDraft, IOutbox, IStore, IStoreTransaction
from amqproute.store.model import TRANSIENT, QueueSummary, StoredEntry, StoreRecovery, StoreRoom
from tests.store.plain_staging import PlainContent, PlainStaging

T = TypeVar("T")


@dataclass
class PlainState:
    """Everything that a commit changes; a commit works on a copy."""

    entries: dict[int, tuple[str, StoredEntry]] = field(default_factory=dict)
    payloads: dict[int, bytes] = field(default_factory=dict)
    received: dict[str, dict[int, int]] = field(default_factory=dict)
    notes: dict[str, dict[str, bytes]] = field(default_factory=dict)
    outbox: list[tuple[int, bytes]] = field(default_factory=list)

    def copy(self) -> PlainState:
        return PlainState(
            dict(self.entries),
            dict(self.payloads),
            {stream: dict(ids) for stream, ids in self.received.items()},
            {kind: dict(notes) for kind, notes in self.notes.items()},
            list(self.outbox),
        )

    def used(self) -> int:
        """Octets, a shared body counted once."""
        own = [each for _, each in self.entries.values() if not each.payload_id]
        bodies = [each.rest.size for each in own if each.rest is not None]
        return (
            sum(len(each.encoded) for each in own)
            + sum(bodies)
            + sum(map(len, self.payloads.values()))
        )


@dataclass
class PlainDisk:
    """The parts that outlive a store.

    Attributes:
        limit: octets; a commit that would need more fails. 0 for none.
    """

    state: PlainState = field(default_factory=PlainState)
    next_id: int = 1
    limit: int = 0
    staged: list[PlainContent] = field(default_factory=list)


@implementer(IBody)
class PlainBody:
    """The rest of a message."""

    def __init__(self, store: PlainStore, octets: bytes) -> None:
        self._store = store
        self._octets = octets
        self._digest: tuple[bytes, str, int] | None = None
        self.size = len(octets)
        self.has_footer = False

    def digest_of(self, before: bytes) -> tuple[str, int] | None:
        known = self._digest
        return known[1:] if known is not None and known[0] == before else None

    def recall(self, before: bytes) -> Deferred[tuple[str, int] | None]:
        return self._store.later(lambda: self.digest_of(before))

    def digested(self, before: bytes, digest: str, size: int) -> None:
        self._digest = before, digest, size

    def reader(self) -> PlainReader:
        return PlainReader(self._store, self._octets)


class PlainReader:
    """Reads a body from its beginning."""

    def __init__(self, store: PlainStore, octets: bytes) -> None:
        self._store = store
        self._rest = octets

    @property
    def left(self) -> int:
        return len(self._rest)

    def read(self, size: int) -> Deferred[bytes]:
        octets, self._rest = self._rest[:size], self._rest[size:]
        return self._store.later(lambda: octets)

    def close(self) -> None:
        self._rest = b""


@implementer(IBodyDraft)
class PlainDraft:
    """A body on its way in."""

    def __init__(
        self, store: PlainStore, written: Callable[[int], None], before: bytes | None
    ) -> None:
        self._store = store
        self._written = written
        self._before = before
        self._octets = b""
        self._bare = before or b""
        self.size = 0

    def append(self, parts: Sequence[bytes], bare: Sequence[bytes | memoryview] = ()) -> None:
        size = sum(map(len, parts))
        self._octets += b"".join(parts)
        self._bare += b"".join(bare)
        self.size += size
        self._store.later(lambda: size).addCallback(self._written)

    def finish(self) -> Deferred[PlainBody]:
        return self._store.later(self._finished)

    def _finished(self) -> PlainBody:
        body = PlainBody(self._store, self._octets)
        if self._before is not None:
            digest = hashlib.sha256(self._bare).hexdigest()
            body.digested(self._before, digest, len(self._bare))
        return body

    def abandon(self) -> None:
        self._octets = b""


@implementer(IStoreTransaction)
class PlainTransaction:
    """Changes, written down as functions of the state."""

    def __init__(self, store: PlainStore) -> None:
        self._store = store
        self._changes: list[Callable[[PlainState], None]] = []
        self._is_committed = False
        self._sizes: dict[int, int] = {}
        self._added = False
        self._others = False
        self._removed: set[int] = set()
        self.events: list[Any] = []

    def _change(self, change: Callable[[PlainState], None]) -> None:
        self._check()
        self._changes.append(change)

    def _check(self) -> None:
        if self._is_committed:
            raise LocalProtocolError("the transaction has been committed")

    def _put(self, state: PlainState, queue: str, entry: StoredEntry) -> None:
        if entry.id in state.entries:
            raise StoreError(f"entry {entry.id} exists already")
        state.entries[entry.id] = queue, entry

    def enqueue(
        self,
        queue: str,
        entry_id: int,
        encoded: bytes,
        arrived_ms: int,
        expires_ms: int,
        flags: int,
        rest: Any = None,
    ) -> None:
        entry = StoredEntry(entry_id, encoded, arrived_ms, expires_ms, 0, flags, rest=rest)
        self._change(lambda state: self._put(state, queue, entry))
        self._added = True

    def share(self, payload_id: int, encoded: bytes) -> None:
        def change(state: PlainState) -> None:
            if payload_id in state.payloads:
                raise StoreError(f"payload {payload_id} exists already")
            state.payloads[payload_id] = encoded

        if payload_id in self._sizes:
            raise LocalProtocolError(f"payload {payload_id} is shared twice")
        self._change(change)
        self._sizes[payload_id] = len(encoded)

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
        self.enqueue_shared_many(
            [queue], [entry_id], payload_id, size, arrived_ms, expires_ms, flags
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
        if len(queues) != len(entry_ids) or self._sizes.get(payload_id, size) != size:
            raise LocalProtocolError("the ids, or the size, do not fit")

        def change(state: PlainState) -> None:
            body = state.payloads.get(payload_id)
            if body is None:
                raise StoreError(f"an entry refers to a deleted payload (one of [{payload_id}])")
            for queue, one in zip(queues, entry_ids, strict=True):
                self._put(
                    state,
                    queue,
                    StoredEntry(one, body, arrived_ms, expires_ms, 0, flags, payload_id),
                )

        self._change(change)
        self._added = self._added or bool(queues)

    def dequeue(self, ids: Sequence[int]) -> None:
        gone = list(ids)

        def change(state: PlainState) -> None:
            for one in gone:
                state.entries.pop(one, None)

        self._change(change)
        self._removed.update(gone)

    def update(self, entry_id: int, delivery_count: int, encoded: bytes | None = None) -> None:
        def change(state: PlainState) -> None:
            if entry_id in state.entries:
                queue, old = state.entries[entry_id]
                state.entries[entry_id] = (
                    queue,
                    replace(_with_body(old, encoded), delivery_count=delivery_count),
                )

        self._change(change)
        self._others = True

    def move(self, entry_id: int, queue: str, new_id: int, encoded: bytes | None = None) -> None:
        def change(state: PlainState) -> None:
            if entry_id in state.entries:
                _, old = state.entries.pop(entry_id)
                self._put(state, queue, replace(_with_body(old, encoded), id=new_id))

        self._change(change)
        self._others = True

    def mark_received(self, stream: str, ids: Sequence[int]) -> None:
        marked = list(ids)

        def change(state: PlainState) -> None:
            at_ms = self._store.now_ms()
            state.received.setdefault(stream, {}).update(dict.fromkeys(marked, at_ms))

        self._change(change)
        self._others = True

    def forget_received(self, stream: str, below: int) -> None:
        def change(state: PlainState) -> None:
            ids = state.received.pop(stream, {})
            left = {one: at for one, at in ids.items() if one >= below}
            if left:
                state.received[stream] = left

        self._change(change)
        self._others = True

    def forget_stream(self, stream: str) -> None:
        self._change(lambda state: state.received.pop(stream, {}).clear())
        self._others = True

    def forget_received_before(self, ms: int) -> None:
        def change(state: PlainState) -> None:
            for stream, ids in list(state.received.items()):
                state.received[stream] = {one: at for one, at in ids.items() if at >= ms}

        self._change(change)
        self._others = True

    def postpone(self, ms: int, now_ms: int) -> None:
        def change(state: PlainState) -> None:
            for one, (queue, entry) in state.entries.items():
                by_ms = later_by(entry.arrived_ms, ms, now_ms)
                expires_ms = entry.expires_ms + by_ms if entry.expires_ms > 0 else 0
                state.entries[one] = (
                    queue,
                    replace(entry, arrived_ms=entry.arrived_ms + by_ms, expires_ms=expires_ms),
                )

        self._change(change)
        self._others = True

    def note(self, kind: str, key: str, value: bytes | None) -> None:
        def change(state: PlainState) -> None:
            if value is None:
                state.notes.get(kind, {}).pop(key, None)
            else:
                state.notes.setdefault(kind, {})[key] = value

        self._change(change)
        self._others = True

    def record(self, event: Any) -> None:
        self._check()
        self.events.append(event)

    def begins(self) -> bool:
        return self._added

    def ended(self) -> list[int]:
        return list(self._removed)

    def only_removes(self) -> bool:
        return not self._added and not self._others and not self._sizes

    def commit(self, patient: bool = False) -> Deferred[None]:
        self._check()
        self._is_committed = True
        return self._store.later(self._apply)

    def _apply(self) -> None:
        self._store.apply(self._changes, self.events)


def _with_body(entry: StoredEntry, encoded: bytes | None) -> StoredEntry:
    """Return the entry with a body of its own, if one is given."""
    return entry if encoded is None else replace(entry, encoded=encoded, payload_id=0)


@implementer(IStore)
class PlainStore:
    """The store.

    Args:
        clock: for the next turn of the reactor.
        disk: what an earlier store has left.
        now_ms: the wall clock, for receipts.
        outbox: is notified of commits.
    """

    quarantined = 0

    def __init__(
        self,
        clock: Clock,
        disk: PlainDisk | None = None,
        now_ms: Callable[[], int] = int,
        outbox: IOutbox | None = None,
    ) -> None:
        self.disk = disk or PlainDisk()
        self.now_ms = now_ms
        self._clock = clock
        self._outbox = outbox
        self._waiting: list[tuple[Deferred[Any], Callable[[], Any]]] = []
        self._names: dict[str, None] = {}
        self._is_open = False
        self._failure: StoreError | None = None
        self._commits = 0
        self.staging = PlainStaging(self.disk.staged, self.later, now_ms)

    # -- one thing after the other -----------------------------------------------------------------

    def later(self, function: Callable[[], T]) -> Deferred[T]:
        """Have a function called in the next turn, in order; return a Deferred of its result."""
        if not self._is_open:
            raise LocalProtocolError("the store is not open")
        if self._failure is not None:
            failed: Deferred[T] = Deferred()
            self._clock.callLater(0, failed.errback, self._failure)
            return failed
        done: Deferred[T] = Deferred()
        self._waiting.append((done, function))
        self._clock.callLater(0, self._one)
        return done

    def _one(self) -> None:
        done, function = self._waiting.pop(0)
        try:
            result = self._call(function)
        except StoreError as error:
            done.errback(error)
        else:
            done.callback(result)

    def _call(self, function: Callable[[], T]) -> T:
        if self._failure is not None:
            raise self._failure
        return function()

    def die(self) -> None:
        """Break: nothing that waits is done, and nothing ever will."""
        self._failure = StoreError("the writer of the store died")

    # -- IStore ------------------------------------------------------------------------------------

    def open(self) -> Deferred[StoreRecovery]:
        if self._is_open:
            raise LocalProtocolError("a store is opened once")
        self._is_open = True
        return self.later(self._recover)

    def _recover(self) -> StoreRecovery:
        state = self.disk.state = self.disk.state.copy()
        for one, (_, entry) in list(state.entries.items()):
            if entry.flags & TRANSIENT:
                del state.entries[one]
        self._drop_payloads(state)
        queues: dict[str, QueueSummary] = {}
        for name in dict.fromkeys(queue for queue, _ in state.entries.values()):
            held = self._entries(name)
            queues[name] = QueueSummary(
                len(held),
                sum(len(each.encoded) for each in held),
                held[0].id,
                held[-1].id,
                held[0].arrived_ms,
                sum(each.rest.size for each in held if each.rest is not None),
            )
            self._names[name] = None
        received = {stream: sorted(ids) for stream, ids in state.received.items() if ids}
        dates = [at for ids in state.received.values() for at in ids.values()]
        return StoreRecovery(
            queues=queues,
            received=received,
            received_ms=max(dates, default=0),
            notes={kind: dict(notes) for kind, notes in state.notes.items() if notes},
            outbox=list(state.outbox),
        )

    def close(self) -> Deferred[None]:
        if not self._is_open:
            self._is_open = True
        closed = self.later(lambda: None)
        closed.addCallback(self._closed)
        return closed

    def _closed(self, _: None) -> None:
        self._failure = StoreError("the store is closed")

    def next_id(self) -> int:
        one = self.disk.next_id
        self.disk.next_id += 1
        return one

    def begin(self) -> PlainTransaction:
        return PlainTransaction(self)

    def draft(self, written: Callable[[int], None], before: bytes | None = None) -> PlainDraft:
        return PlainDraft(self, written, before)

    def load(
        self, queue: str, after_id: int, limit: int, limit_bytes: int
    ) -> Deferred[list[StoredEntry]]:
        def page() -> list[StoredEntry]:
            found: list[StoredEntry] = []
            for each in self._entries(queue):
                if each.id > after_id:
                    if len(found) >= limit or sum(len(e.encoded) for e in found) >= limit_bytes:
                        break
                    found.append(each)
            return found

        return self.later(page)

    def expired(
        self, queue: str, now_ms: int, after_id: int, limit: int
    ) -> Deferred[list[StoredEntry]]:
        return self.later(
            lambda: [
                each
                for each in self._entries(queue)
                if each.id > after_id and 0 < each.expires_ms <= now_ms
            ][:limit]
        )

    def names(self) -> list[str]:
        return list(self._names)

    def ids(self, queue: str, after_id: int, limit: int) -> Deferred[Sequence[int]]:
        return self.later(
            lambda: [each.id for each in self._entries(queue) if each.id > after_id][:limit]
        )

    def room(self) -> Deferred[StoreRoom]:
        def measure() -> StoreRoom:
            used = self.disk.state.used()
            total = self.disk.limit or 1 << 40
            return StoreRoom(free=max(0, total - used), total=total, reusable=0, used=used)

        return self.later(measure)

    def statistics(self) -> dict[str, float]:
        return {"submitted": self._commits + len(self._waiting), "waiting": len(self._waiting)}

    # -- commits -----------------------------------------------------------------------------------

    def _entries(self, queue: str) -> list[StoredEntry]:
        entries = self.disk.state.entries
        return [copy.copy(entry) for _, (name, entry) in sorted(entries.items()) if name == queue]

    def apply(self, changes: Sequence[Callable[[PlainState], None]], events: list[Any]) -> None:
        """Do all of it or nothing."""
        before = self.disk.state
        state = before.copy()
        for change in changes:
            change(state)
        self._drop_payloads(state)
        used = state.used()
        if self.disk.limit and used > self.disk.limit and used > before.used():
            raise StoreUnavailable("the disk is full")
        is_carried = False
        if self._outbox is not None and events:
            carried = self._outbox.carry(events)
            if carried is not None:
                number, octets, floor = carried
                rows = [row for row in state.outbox if row[0] > floor]
                state.outbox = [*rows, (number, octets)]
                is_carried = True
        self.disk.state = state
        self._commits += 1
        self._names |= dict.fromkeys(queue for queue, _ in state.entries.values())
        if self._outbox is not None and events:
            self._outbox.committed(events, is_carried)

    @staticmethod
    def _drop_payloads(state: PlainState) -> None:
        referred = {entry.payload_id for _, entry in state.entries.values()}
        state.payloads = {one: body for one, body in state.payloads.items() if one in referred}
