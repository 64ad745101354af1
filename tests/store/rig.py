# SPDX-License-Identifier: Apache-2.0
"""Shared code of the store's tests: a reactor that is only a queue of calls, and a model."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from amqproute.errors import StoreError
from amqproute.store.model import DamagedEntry, QueueSummary, StoredEntry, StoreRecovery
from amqproute.store.sqlite import SqliteStore
from amqproute.store.store_listener import StoreListener
from amqproute.store.store_sizes import StoreSizes
from tests.support.patience import PATIENCE

T = TypeVar("T")

SIZES = {each.name for each in fields(StoreSizes)}
CALLS = {"on_corrupt", "on_damage", "on_death"}


class QueueReactor:
    """Collects the writer's calls; the test runs them, in their order, in its own thread."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()

    def callFromThread(self, callable: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.calls.put(lambda: callable(*args, **kwargs))

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> threading.Timer:
        """As a reactor does; the call is run like those from the thread."""
        timer = threading.Timer(delay, self.calls.put, (lambda: callable(*args),))
        timer.daemon = True
        timer.start()
        return timer

    def next_call(self) -> Callable[[], Any]:
        """Wait for what a thread calls next, and return it.

        Raises:
            AssertionError: nobody has called.
        """
        try:
            return self.calls.get(timeout=PATIENCE)
        except Empty:
            raise AssertionError(f"no thread has called within {PATIENCE:g} s") from None

    def wait(self, deferred: Deferred[T]) -> T:
        """Run calls until `deferred` has fired; return its result or raise its failure."""
        results: list[Any] = []
        failures: list[Any] = []
        deferred.addCallbacks(results.append, failures.append)
        while not results and not failures:
            self.next_call()()
        if failures:
            failures[0].raiseException()
        return results[0]  # type: ignore[no-any-return]


class Calling(StoreListener):
    """Calls functions, by the names in `CALLS`."""

    def __init__(self, calls: dict[str, Callable[..., object]]) -> None:
        self._calls = calls

    def store_died(self, error: StoreError) -> None:
        self._call("on_death", error)

    def database_damaged(self, error: StoreError) -> None:
        self._call("on_corrupt", error)

    def entries_damaged(self, queue: str, damages: Sequence[DamagedEntry]) -> None:
        self._call("on_damage", queue, damages)

    def _call(self, name: str, *given: object) -> None:
        if name in self._calls:
            self._calls[name](*given)


class StoreFixture:
    """A store with its fake reactor; options of it, of its sizes, and of `Calling`."""

    def __init__(self, path: str, **options: Any) -> None:
        self.reactor = QueueReactor()
        self.now_ms = 1_000_000
        # A short log: its file is written in full when the store is opened.
        options = {"checkpoint_bytes": 256 * 1024, "remainder_bytes": 64 * 1024} | options
        sizes = {name: options.pop(name) for name in SIZES & options.keys()}
        calls = {name: options.pop(name) for name in CALLS & options.keys()}
        self.store = SqliteStore(
            path,
            self.reactor,
            clock_ms=lambda: self.now_ms,
            sizes=StoreSizes(**sizes),
            listener=Calling(calls),
            **options,
        )

    def open(self) -> StoreRecovery:
        return self.reactor.wait(self.store.open())

    def close(self) -> None:
        self.reactor.wait(self.store.close())

    def put(self, queue: str, *bodies: bytes, expires_ms: int = 0, flags: int = 0) -> list[int]:
        """Enqueue and wait for the commit; return the ids."""
        transaction = self.store.begin()
        ids = []
        for body in bodies:
            ids.append(self.store.next_id())
            transaction.enqueue(queue, ids[-1], body, self.now_ms, expires_ms, flags)
        self.reactor.wait(transaction.commit())
        return ids

    def load(
        self, queue: str, after: int = 0, limit: int = 1000, limit_bytes: int = 1 << 30
    ) -> list[StoredEntry]:
        return self.reactor.wait(self.store.load(queue, after, limit, limit_bytes))


class Model:
    """The contents a store must have, as plain dicts, with every operation written down naively."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[str, StoredEntry]] = {}
        self.payloads: dict[int, bytes] = {}
        self.received: dict[str, set[int]] = {}
        self.notes: dict[str, dict[str, bytes]] = {}

    def copy(self) -> Model:
        other = Model()
        other.entries = dict(self.entries)
        other.payloads = dict(self.payloads)
        other.received = {stream: set(ids) for stream, ids in self.received.items()}
        other.notes = {kind: dict(notes) for kind, notes in self.notes.items()}
        return other

    def apply(self, name: str, *args: Any) -> None:
        getattr(self, name)(*args)

    def enqueue(self, queue, entry_id, encoded, arrived_ms, expires_ms, flags):  # type: ignore
        entry = StoredEntry(entry_id, encoded, arrived_ms, expires_ms, 0, flags)
        self.entries[entry_id] = (queue, entry)

    def share(self, payload_id, encoded):  # type: ignore
        self.payloads[payload_id] = encoded

    def enqueue_shared(self, queue, entry_id, payload_id, size, *rest):  # type: ignore
        self.enqueue_shared_many([queue], [entry_id], payload_id, size, *rest)

    def enqueue_shared_many(  # type: ignore
        self, queues, entry_ids, payload_id, size, arrived_ms, expires_ms, flags
    ):
        body = self.payloads[payload_id]
        assert len(body) == size
        for queue, one in zip(queues, entry_ids, strict=True):
            entry = StoredEntry(one, body, arrived_ms, expires_ms, 0, flags, payload_id)
            self.entries[one] = (queue, entry)

    def living(self) -> dict[int, int]:
        """Payloads that entries refer to, and how many do."""
        return dict(Counter(e.payload_id for _, e in self.entries.values() if e.payload_id))

    def dequeue(self, ids):  # type: ignore
        for one in ids:
            self.entries.pop(one, None)

    def update(self, entry_id, delivery_count, encoded=None):  # type: ignore
        if entry_id in self.entries:
            queue, old = self.entries[entry_id]
            changes = {} if encoded is None else {"encoded": encoded, "payload_id": 0}
            self.entries[entry_id] = (
                queue,
                replace(old, delivery_count=delivery_count, **changes),
            )

    def move(self, entry_id, queue, new_id, encoded=None):  # type: ignore
        if entry_id in self.entries:
            _, old = self.entries.pop(entry_id)
            changes = {} if encoded is None else {"encoded": encoded, "payload_id": 0}
            self.entries[new_id] = (queue, replace(old, id=new_id, **changes))

    def mark_received(self, stream, ids):  # type: ignore
        self.received.setdefault(stream, set()).update(ids)

    def forget_received(self, stream, below):  # type: ignore
        ids = self.received.get(stream, set())
        self.received[stream] = {one for one in ids if one >= below}

    def forget_stream(self, stream):  # type: ignore
        self.received.pop(stream, None)

    def note(self, kind, key, value):  # type: ignore
        if value is None:
            self.notes.get(kind, {}).pop(key, None)
        else:
            self.notes.setdefault(kind, {})[key] = value

    def reopened(self) -> None:
        self.entries = {key: pair for key, pair in self.entries.items() if not pair[1].flags & 1}

    def queue(self, name: str) -> list[StoredEntry]:
        return [entry for _, (queue, entry) in sorted(self.entries.items()) if queue == name]

    def recovery(self) -> StoreRecovery:
        recovery = StoreRecovery()
        for name in {queue for queue, _ in self.entries.values()}:
            held = self.queue(name)
            size = sum(len(entry.encoded) for entry in held)
            recovery.queues[name] = QueueSummary(
                len(held), size, held[0].id, held[-1].id, held[0].arrived_ms
            )
        recovery.received = {name: sorted(ids) for name, ids in self.received.items() if ids}
        recovery.notes = {kind: dict(notes) for kind, notes in self.notes.items() if notes}
        return recovery
