# SPDX-License-Identifier: Apache-2.0
"""Measure the store: CPU per message (enqueue and dequeue), and the latency of commits.

Run as ``python benchmarks/store.py [--directory DIR] [--messages N]``; the directory has to be on
the kind of disk the store will live on. The parts:

* closed loop: for batches of 1, 10, 100 and 400 messages, `WINDOW` transactions on their way,
  each batch dequeued once its enqueue is durable. CPU is user and system time of the whole
  process (reactor's side, writer, checkpointer) over messages;
* open loop: 1,000 transactions a second for some seconds, as a server sees them;
* the same beside a reactor thread that computes all the time, which is the worst neighbor that
  the writer's thread can have;
* topics (``--topics`` for these alone): messages for 1, 10, 100 and 1,000 queues, the body shared
  or copied, each queue ending its entries in transactions of its own;
* opening with a backlog of a million messages (``--backlog``).
"""

from __future__ import annotations

import argparse
import heapq
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from amqproute.store.model import StoreRecovery
from amqproute.store.sqlite import SqliteStore

WINDOW = 8
BODY = os.urandom(1060)


class Later:
    """A call that `Loop` makes at some time; see `IDelayedCall`."""

    def __init__(self, due: float, call: Callable[[], Any]) -> None:
        self.due = due
        self.call = call
        self.is_cancelled = False

    def __lt__(self, other: Later) -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        """Do not make it."""
        self.is_cancelled = True


class Loop:
    """The smallest reactor: calls from the writer's thread and later ones, one after the other."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._later: list[Later] = []

    def callFromThread(self, callable: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.calls.put(lambda: callable(*args, **kwargs))

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any) -> Later:
        later = Later(time.perf_counter() + delay, lambda: callable(*args))
        heapq.heappush(self._later, later)
        return later

    def turn(self, seconds: float | None = None) -> None:
        """Run one call, whichever comes first; at most wait so long, None: for ever."""
        later = self._later
        while later and later[0].is_cancelled:
            heapq.heappop(later)
        if later:
            left = later[0].due - time.perf_counter()
            if left <= 0:
                heapq.heappop(later).call()
                return
            seconds = left if seconds is None else min(seconds, left)
        try:
            call = self.calls.get(seconds != 0, seconds)
        except Empty:
            return
        call()

    def until(self, done: Callable[[], bool]) -> None:
        """Run calls until `done`."""
        while not done():
            self.turn()

    def wait(self, deferred: Any) -> Any:
        """Run calls until `deferred` has fired."""
        results: list[Any] = []
        deferred.addBoth(results.append)
        self.until(lambda: bool(results))
        return results[0]


def cpu() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentiles(latencies: list[float]) -> str:
    """Median, 99th percentile and maximum, in milliseconds."""
    ordered = sorted(latencies)
    at = [ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1]]
    return "p50 {:6.2f}  p99 {:6.2f}  max {:6.2f} ms".format(*(one * 1000 for one in at))


class Load:
    """Enqueues batches and dequeues each once it is durable."""

    def __init__(self, store: SqliteStore, batch: int) -> None:
        self.store = store
        self.batch = batch
        self.latencies: list[float] = []
        self.done = 0

    def put(self) -> None:
        """Enqueue a batch."""
        store = self.store
        transaction = store.begin()
        ids = []
        now = time.time_ns() // 1_000_000
        for _ in range(self.batch):
            entry_id = store.next_id()
            transaction.enqueue("orders", entry_id, BODY, now, 0, 0)
            ids.append(entry_id)
        transaction.commit().addCallback(self._stored, ids, time.perf_counter())

    def _stored(self, _: None, ids: list[int], started: float) -> None:
        self.latencies.append(time.perf_counter() - started)
        transaction = self.store.begin()
        transaction.dequeue(ids)
        transaction.commit().addCallback(self._gone, time.perf_counter())

    def _gone(self, _: None, started: float) -> None:
        self.latencies.append(time.perf_counter() - started)
        self.done += 1


def closed_loop(store: SqliteStore, loop: Loop, batch: int, messages: int) -> None:
    """As fast as `WINDOW` batches on their way allow."""
    load = Load(store, batch)
    batches = max(WINDOW, messages // batch)
    before = store.statistics()
    started, used = time.perf_counter(), cpu()
    begun = 0
    while load.done < batches:
        while begun < batches and begun - load.done < WINDOW:
            load.put()
            begun += 1
        loop.turn()
    wall, used = time.perf_counter() - started, cpu() - used
    count = batches * batch
    after = store.statistics()
    per_commit = (after["entries"] - before["entries"]) / (after["commits"] - before["commits"])
    print(
        f"batch {batch:4}: {used / count * 1e6:7.2f} us CPU/message,"
        f" {count / wall:8.0f} messages/s, {per_commit:6.1f} entries/commit, "
        + percentiles(load.latencies)
    )


def open_loop(store: SqliteStore, loop: Loop, batch: int, seconds: float, busy: bool) -> None:
    """1,000 transactions a second (500 enqueue, 500 dequeue), whatever the store does."""
    load = Load(store, batch)
    started, used = time.perf_counter(), cpu()
    begun = 0
    total = int(seconds * 500)
    while load.done < total:
        due = started + begun / 500
        left = due - time.perf_counter()
        if begun < total and left <= 0:
            load.put()
            begun += 1
            continue
        if busy:
            sum(range(2000))  # the reactor computes, and never waits
            loop.turn(0)
        else:
            loop.turn(max(left, 0.0001) if begun < total else None)
    used = cpu() - used
    figures = store.statistics()
    print(
        f"1000 transactions/s of {batch} messages{', busy reactor' if busy else '':14}: "
        f"{percentiles(load.latencies)}, {used / seconds * 100:.0f}% CPU, "
        f"log {figures['wal_bytes'] / 1e6:.0f} MB, {figures['log_restarts']:.0f} restarts"
    )


class Topic:
    """Publishes each message to many queues; each queue ends its part of `WINDOW` messages."""

    def __init__(self, store: SqliteStore, subscribers: int, shared: bool) -> None:
        self.store = store
        self.queues = [f"topic/{number}" for number in range(subscribers)]
        self.shared = shared
        self.ended = 0
        self.parts = 0
        self._stored: list[list[int]] = []

    def publish(self) -> None:
        """One message, to every queue, in a transaction."""
        store = self.store
        ids = [store.next_id() for _ in self.queues]
        transaction = store.begin()
        if self.shared:
            payload = store.next_id()
            transaction.share(payload, BODY)
            transaction.enqueue_shared_many(self.queues, ids, payload, len(BODY), 1, 0, 0)
        else:
            for queue, one in zip(self.queues, ids, strict=True):
                transaction.enqueue(queue, one, BODY, 1, 0, 0)
        transaction.commit().addCallback(self._end, ids)

    def _end(self, _: None, ids: list[int]) -> None:
        self._stored.append(ids)
        if len(self._stored) == WINDOW:
            for part in zip(*self._stored, strict=True):
                transaction = self.store.begin()
                transaction.dequeue(part)
                transaction.commit().addCallback(self._gone)
            self._stored = []

    def _gone(self, _: None) -> None:
        self.parts += 1
        if self.parts % len(self.queues) == 0:
            self.ended += WINDOW


def topic(store: SqliteStore, loop: Loop, subscribers: int, shared: bool, entries: int) -> None:
    """As fast as two windows of messages on their way allow."""
    load = Topic(store, subscribers, shared)
    messages = -(-entries // subscribers // WINDOW) * WINDOW
    started, used = time.perf_counter(), cpu()
    begun = 0
    while load.ended < messages:
        while begun < messages and begun - load.ended < 2 * WINDOW:
            load.publish()
            begun += 1
        loop.turn()
    wall, used = time.perf_counter() - started, cpu() - used
    count = messages * subscribers
    print(
        f"topic, {subscribers:4} queues, body {'shared' if shared else 'copied'}: "
        f"{used / count * 1e6:6.2f} us CPU/entry, {used / messages * 1e6:8.0f} us CPU/message, "
        f"{count / wall:7.0f} entries/s"
    )


def backlog(path: str, loop: Loop, entries: int) -> None:
    """How long a store with a large backlog takes to open, and in how much memory."""
    store = SqliteStore(path, loop, clock_ms=lambda: time.time_ns() // 1_000_000)
    loop.wait(store.open())
    for _ in range(entries // 500):
        transaction = store.begin()
        for _ in range(500):
            transaction.enqueue("orders", store.next_id(), BODY, 1, 0, 0)
        done = transaction.commit()
        if store.statistics()["waiting"] > 4:
            loop.wait(done)
    loop.wait(done)
    loop.wait(store.close())
    for state in ("warm", "cold (file dropped from the page cache)"):
        if state != "warm":
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        store = SqliteStore(path, loop, clock_ms=lambda: time.time_ns() // 1_000_000)
        started = time.perf_counter()
        recovery: StoreRecovery = loop.wait(store.open())
        took = time.perf_counter() - started
        print(f"open with {recovery.queues['orders'].count} entries, {state}: {took:.2f} s")
        started = time.perf_counter()
        page = loop.wait(store.load("orders", entries // 2, 500, 1 << 20))
        took = time.perf_counter() - started
        print(f"  load of {len(page)} entries from its middle: {took * 1000:.1f} ms")
        loop.wait(store.close())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"  peak memory of this process: {peak / 1024:.0f} MiB")


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", default=None)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--backlog", type=int, default=0, metavar="ENTRIES")
    parser.add_argument("--topics", action="store_true", help="only these")
    parser.add_argument("--switch-interval", type=float, default=sys.getswitchinterval())
    arguments = parser.parse_args()
    sys.setswitchinterval(arguments.switch_interval)
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        loop = Loop()
        if arguments.backlog:
            backlog(os.path.join(directory, "backlog.db"), loop, arguments.backlog)
            return
        path = os.path.join(directory, "queues.db")
        store = SqliteStore(path, loop, clock_ms=lambda: time.time_ns() // 1_000_000)
        loop.wait(store.open())
        if not arguments.topics:
            for batch in (1, 10, 100, 400):
                closed_loop(store, loop, batch, min(arguments.messages, batch * 4000))
            for batch, busy in ((1, False), (20, False), (1, True), (20, True)):
                open_loop(store, loop, batch, arguments.seconds, busy)
        for subscribers in (1, 10, 100, 1000):
            for shared in (True, False):
                topic(store, loop, subscribers, shared, arguments.messages // 2)
        loop.wait(store.close())


if __name__ == "__main__":
    main()
