# SPDX-License-Identifier: Apache-2.0
"""Random transactions against a model of plain dicts, with restarts anywhere."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.store.fsck import check
from amqproute.store.memory import MemoryStore
from amqproute.store.pending_commit import PendingCommit
from tests.store.plain_store import PlainStore
from tests.store.rig import Model, StoreFixture

QUEUES = st.sampled_from(["a", "b", "amqp$out/β.example"])
BODIES = st.one_of(st.binary(max_size=40), st.integers(0, 40_000).map(lambda n: b"\0x" * n))
# Which entry an operation means: counted from the newest id, so that it often is a live one.
BACK = st.integers(1, 12)
STREAMS = st.sampled_from(["s", "t"])
PEER_IDS = st.integers(0, 60)

OPERATION = st.one_of(
    st.tuples(st.just("enqueue"), QUEUES, BODIES, st.integers(0, 9), st.integers(0, 7)),
    st.tuples(st.just("enqueue"), QUEUES, BODIES, st.integers(0, 9), st.integers(0, 7)),
    st.tuples(st.just("publish"), st.lists(QUEUES, max_size=4), BODIES, st.integers(0, 7)),
    st.tuples(st.just("publish"), st.lists(QUEUES, max_size=4), BODIES, st.integers(0, 7)),
    st.tuples(st.just("again"), BACK, QUEUES, st.integers(0, 9), st.integers(0, 7)),
    st.tuples(st.just("dequeue"), st.lists(BACK, max_size=6)),
    st.tuples(st.just("update"), BACK, st.integers(0, 99), st.none() | BODIES),
    st.tuples(st.just("move"), BACK, QUEUES, st.none() | BODIES),
    st.tuples(st.just("mark_received"), STREAMS, st.lists(PEER_IDS, max_size=9)),
    st.tuples(st.just("forget_received"), STREAMS, PEER_IDS),
    st.tuples(st.just("forget_stream"), STREAMS),
    st.tuples(st.just("note"), STREAMS, st.sampled_from("kl"), st.none() | st.binary(max_size=9)),
)
STEP = st.one_of(
    st.tuples(st.just("commit"), st.lists(OPERATION, max_size=8)),
    st.tuples(st.just("commit"), st.lists(OPERATION, max_size=8)),
    st.tuples(st.just("commit"), st.lists(OPERATION, max_size=8)),
    st.tuples(st.just("load"), QUEUES, st.integers(0, 5)),
    st.tuples(st.just("reopen")),
)


class Script:
    """Runs steps on a store and on a model, and compares what loads show."""

    def __init__(self, case: SynchronousTestCase) -> None:
        self.case = case
        self.model = Model()
        self.now_ms = 5
        self.last_id = 0
        self.fired: list[int] = []
        self.asked = 0

    def fill(self, transaction: PendingCommit, next_id: Any, operations: list[Any]) -> None:
        """Put operations into a transaction and the model."""
        for name, *args in operations:
            if name == "enqueue":
                queue, body, expires, flags = args
                self.last_id = next_id()
                args = [queue, self.last_id, body, self.now_ms, expires, flags]
            elif name == "publish":
                queues, body, flags = args
                payload_id = next_id()
                transaction.share(payload_id, body)
                self.model.share(payload_id, body)
                ids = [next_id() for _ in queues]
                self.last_id = ids[-1] if ids else payload_id
                name, args = (
                    "enqueue_shared_many",
                    [queues, ids, payload_id, len(body), self.now_ms, 0, flags],
                )
            elif name == "again":
                old = self.model.entries.get(self.last_id + 1 - args[0])
                if old is None or not old[1].payload_id:
                    continue
                self.last_id = next_id()
                name, args = (
                    "enqueue_shared",
                    [
                        args[1],
                        self.last_id,
                        old[1].payload_id,
                        len(old[1].encoded),
                        self.now_ms,
                        *args[2:],
                    ],
                )
            elif name == "dequeue":
                args = [[self.last_id + 1 - back for back in args[0]]]
            elif name == "update":
                args[0] = self.last_id + 1 - args[0]
            elif name == "move":
                old = self.last_id + 1 - args[0]
                self.last_id = next_id()
                args = [old, args[1], self.last_id, args[2]]
            getattr(transaction, name)(*args)
            self.model.apply(name, *args)

    def expect(self, deferred: Deferred[Any], result: Any) -> None:
        """The Deferred has to fire in its turn, with this result."""
        number, self.asked = self.asked, self.asked + 1
        self.case.assertFalse(deferred.called)

        def check(found: Any) -> None:
            self.fired.append(number)
            self.case.assertEqual(found, result)

        deferred.addCallback(check)

    def step(self, store: Any, step: Any) -> None:
        """Do a commit or a load, without waiting for it."""
        word, *args = step
        if word == "commit":
            transaction = store.begin()
            self.fill(transaction, store.next_id, args[0])
            self.expect(transaction.commit(), None)
        else:
            queue, limit = args
            held = self.model.queue(queue)
            self.expect(store.load(queue, 0, limit + 1, 1 << 30), held[: limit + 1])
            expired = [entry for entry in held if 0 < entry.expires_ms <= self.now_ms]
            self.expect(store.expired(queue, self.now_ms, 0, 100), expired)


class ModelTests(SynchronousTestCase):
    """Stores do what the model does."""

    @settings(max_examples=settings.get_profile("ordinary").max_examples // 4)
    @given(st.lists(STEP, max_size=12), st.sampled_from([1 << 20, 30_000, 20]))
    def test_sqlite(self, steps: list[Any], file_bytes: int) -> None:
        """With any grouping of commits, loads and restarts agree with the calls."""
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        path = os.path.join(directory, "queues.db")
        script = Script(self)
        bounds = {"file_bytes": file_bytes, "segment_bytes": 100_000}
        logs = {"checkpoint_bytes": 1 << 16, "remainder_bytes": 1 << 14}
        house = StoreFixture(path, page_size=4096, **logs, **bounds)
        house.open()
        for step in [*steps, ("reopen",), ("load", "a", 99), ("load", "b", 99), ("reopen",)]:
            if step[0] != "reopen":
                script.step(house.store, step)
                continue
            house.close()
            # No payload without entries, and no entry without its payload.
            self.assertEqual(check(path), [])
            script.model.reopened()
            house = StoreFixture(path, **logs, **bounds)
            self.assertEqual(house.open(), script.model.recovery())
            self.assertEqual(script.fired, list(range(script.asked)))
        house.close()
        shutil.rmtree(directory)

    @given(st.lists(STEP.filter(lambda step: step[0] != "reopen"), max_size=12))
    def test_memory(self, steps: list[Any]) -> None:
        """The store in memory shows the same."""
        clock = Clock()
        store = MemoryStore(clock)
        script = Script(self)
        store.open()
        for number, step in enumerate([*steps, ("load", "a", 99), ("load", "b", 99)]):
            script.step(store, step)
            if number % 3 == 2:
                clock.advance(0)
        clock.advance(0)
        self.assertEqual(script.fired, list(range(script.asked)))
        holders = {one: payload.holders for one, payload in store._payloads.items()}
        self.assertEqual(holders, script.model.living())
        self.assertEqual(clock.getDelayedCalls(), [])

    @given(st.lists(STEP.filter(lambda step: step[0] != "reopen"), max_size=12))
    def test_plain(self, steps: list[Any]) -> None:
        """So does the one that is written from the interfaces."""
        clock = Clock()
        store = PlainStore(clock)
        script = Script(self)
        store.open()
        for number, step in enumerate([*steps, ("load", "a", 99), ("load", "b", 99)]):
            script.step(store, step)
            if number % 3 == 2:
                clock.advance(0)
        clock.advance(0)
        self.assertEqual(script.fired, list(range(script.asked)))
        self.assertEqual(set(store.disk.state.payloads), set(script.model.living()))
        self.assertEqual(clock.getDelayedCalls(), [])
