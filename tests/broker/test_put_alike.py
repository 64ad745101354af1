# SPDX-License-Identifier: Apache-2.0
"""`Queue.put_alike` does what `Queue.put` does for each message, or leaves it to it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import MemoryBudget, QueueLimits
from amqproute.broker.node_options import Duplicates, QueueOptions
from amqproute.broker.queue import Queue
from amqproute.message import Message
from tests.support.fakes import ORIGIN, KeptStore, Taker, make_broker, message, settle_down


class PutAlikeTests(SynchronousTestCase):
    def house(self, limits: QueueLimits, budget: int) -> tuple[Clock, KeptStore, Broker]:
        clock = Clock()
        store = KeptStore(clock)
        nodes = [NodeDeclaration("q", limits)]
        return clock, store, make_broker(clock, store, *nodes, budget=MemoryBudget(budget))

    def outcome(
        self, runs: list[list[Message]], limits: QueueLimits, budget: int, alike: bool
    ) -> tuple[Any, ...]:
        """Put runs of messages, each in a batch of its own; return what is to be seen of it."""
        clock, store, broker = self.house(limits, budget)
        queue = broker.nodes["q"]
        counts = []
        for run in runs:
            batch = broker.begin()
            taken = queue.put_alike(run, batch, ORIGIN) if alike else 0
            for each in run[taken:]:
                queue.put(each, batch, ORIGIN)
            assert batch.came is not None
            counts.append([(name, entry.id, how) for name, entry, _, _, how in batch.came])
            batch.commit()
            settle_down(clock)
        levels = queue.state.levels
        seen = (
            counts,
            queue.depth,
            levels.in_memory,
            levels.paged,
            levels.paged_bytes,
            levels.resident_bytes,
            levels.pending,
            [(row.id, row.flags, row.arrived_ms, row.encoded) for row in store.rows("q")],
        )
        taker = Taker(queue, 1000)
        queue.dispatch()
        settle_down(clock)
        return (*seen, taker.seen)

    @given(
        st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=8), min_size=1, max_size=5),
        st.booleans(),
        st.sampled_from([QueueLimits(), QueueLimits(resident_messages=5),
                         QueueLimits(resident_bytes=300)]),
        st.sampled_from([200, 1 << 20]),
    )  # fmt: skip
    def test_same(
        self, sizes: list[list[int]], durable: bool, limits: QueueLimits, budget: int
    ) -> None:
        """In memory and paged, with bodies of any size: nobody can tell the difference."""
        runs = [[message(b"x" * size, durable=durable) for size in run] for run in sizes]
        one, other = (self.outcome(runs, limits, budget, alike) for alike in (True, False))
        self.assertEqual(one, other)

    def test_taken(self) -> None:
        """Usual messages are taken at once; as many as stay in memory, then those to be paged."""
        clock, _, broker = self.house(QueueLimits(resident_messages=3), 1 << 20)
        queue = broker.nodes["q"]
        messages = [message(b"m%d" % number) for number in range(8)]
        batch = broker.begin()
        self.assertEqual(queue.put_alike(messages, batch, ORIGIN), 3)
        self.assertEqual(queue.put_alike(messages[3:], batch, ORIGIN), 5)
        batch.commit()
        settle_down(clock)
        self.assertEqual((queue.resident, queue.depth), (3, 8))

    def test_left_to_put(self) -> None:
        """Messages that need a decision each are not taken as a run."""
        usual = QueueLimits()
        ids = QueueOptions(duplicates=Duplicates.ALL)
        for limits, options, made in (
            (QueueLimits(capacity=9), QueueOptions(), message()),
            (QueueLimits(octets=900), QueueOptions(), message()),
            (QueueLimits(ttl_ms=900), QueueOptions(), message()),
            (usual, QueueOptions(), message(ttl=5)),
        ):
            _, _, broker = self.house(limits, 1 << 20)
            queue: Queue = broker.nodes["q"]
            queue.options = options
            self.assertEqual(queue.put_alike([made, made], broker.begin(), ORIGIN), 0, limits)
        _, _, broker = self.house(usual, 1 << 20)
        queue = broker.nodes["q"]
        queue.options = ids
        self.assertEqual(queue.put_alike([message(), message()], broker.begin(), ORIGIN), 2)
