# SPDX-License-Identifier: Apache-2.0
"""``python -m benchmarks.metrics``: what metrics cost.

*Cost of a message*: a queue alone, in memory, with everything that is counted for metrics, beside
the same without it: histograms that count nothing, and no stages. The two alternate, and the
medians of the pairs are shown, for messages one by one and in batches of 100; beside them the share
of what a message costs a daemon in all (`--whole`, µs of CPU, from ``amqproute bench relay``).

*Collecting*: processor time of a scrape of 10,000 queues in memory, in the reactor's thread and in
that of the writer, and the longest piece of it between two chances to do something else, with the
garbage collections that the daemon has then.

*Scrapes*: a daemon with 10,000 queues is scraped again and again, while another connection asks for
``/livez`` without a pause: how long the answers take, how large they are, how long the event loop
stood still by its own account, and how long the other connection waited at most, beside what it
waited while nobody scraped.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from twisted.internet.task import Clock

from amqproute.broker.broker import Broker
from amqproute.broker.delivery_stages import StageTimes
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.bucket_counts import BucketCounts
from amqproute.daemon.garbage import set_thresholds
from amqproute.entry import Entry
from amqproute.journal.event import JournalEvent
from amqproute.message import Message
from amqproute.metrics.exposition import expose
from amqproute.metrics.node_metrics import NodeMetrics
from amqproute.metrics.snapshot import MetricsScope, MetricsSnapshot
from amqproute.outcomes import Acceptance
from amqproute.store.memory import MemoryStore
from amqproute.tools.daemon_pair import free_ports
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from amqproute.wire.amqp10 import sections, spec
from benchmarks.http_daemon import start_daemon

ORIGIN = Origin(ANONYMOUS_PRINCIPAL)
ACCEPTED = Acceptance()
BODY = sections.encode_section(spec.SECTION_DATA, b"x" * 1024)
QUEUES = 10_000
COUNTING: Sequence[tuple[type, str]] = (
    (BucketCounts, "add"), (BucketCounts, "add_run"), (StageTimes, "observe"),
)  # fmt: skip
"""What is counted on the path of a message for metrics alone."""


class Silence:
    """A journal that keeps nothing, but the time: entries have their stages."""

    is_kept = False
    domain = ""

    @staticmethod
    def now_us() -> int:
        """See `IJournal.now_us`."""
        return time.time_ns() // 1000

    def note(self, event: JournalEvent) -> None:
        """See `IJournal.note`."""


class Taker:
    """Takes whatever comes, and accepts it."""

    takes_ahead = False

    def __init__(self, broker: Broker, queue: Queue) -> None:
        self._broker = broker
        self._queue = queue
        self.taken = 0

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return 1 << 30

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        batch = self._broker.begin()
        self._queue.settle(entries, ACCEPTED, batch, consumer=self)
        batch.commit()
        self.taken += len(entries)

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        return []

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`."""


def queue_alone(messages: int, batch_size: int) -> float:
    """Return the microseconds of CPU of a message that is put, handed out and accepted."""
    clock = Clock()
    store = MemoryStore(clock)
    store.open()
    clock.advance(0)
    broker = Broker(
        store,
        clock,
        lambda: time.time_ns() // 1_000_000,
        str,
        journal=Silence(),  # type: ignore[arg-type]
    )
    broker.declare([NodeDeclaration("q", QueueLimits())], {})
    queue = broker.nodes["q"]
    taker = Taker(broker, queue)
    queue.attach(taker)  # type: ignore[arg-type]
    message = Message(BODY)
    began = time.thread_time()
    for _ in range(messages // batch_size):
        batch = broker.begin()
        for _ in range(batch_size):
            queue.put(message, batch, ORIGIN)
        batch.commit()
        clock.advance(0)
    took = time.thread_time() - began
    assert taker.taken == messages // batch_size * batch_size, taker.taken
    assert queue.tally.dequeued == taker.taken
    return 1e6 * took / taker.taken


def without_counting(measure: Callable[[], float]) -> float:
    """Measure while nothing is counted for metrics alone."""
    kept = [(cls, name, getattr(cls, name)) for cls, name in COUNTING]
    for cls, name, _ in kept:
        setattr(cls, name, lambda *_: None)
    try:
        return measure()
    finally:
        for cls, name, function in kept:
            setattr(cls, name, function)


def cost(messages: int, runs: int, whole: float) -> list[str]:
    """Measure the cost of a message; return the lines of a table."""
    lines = [
        "| batch | without, µs | with, µs | difference, µs | of a message's CPU in a daemon |",
        "|---|---|---|---|---|",
    ]
    for batch in (1, 100):
        pairs = []
        for number in range(runs):
            order = (False, True) if number % 2 else (True, False)
            found = {}
            for counts in order:
                if counts:
                    found[counts] = queue_alone(messages, batch)
                else:
                    found[counts] = without_counting(
                        lambda batch=batch: queue_alone(messages, batch)
                    )
            pairs.append((found[False], found[True]))
        without = statistics.median(each for each, _ in pairs)
        counted = statistics.median(each for _, each in pairs)
        more = statistics.median(after - before for before, after in pairs)
        share = 100 * more / whole
        lines.append(f"| {batch} | {without:.2f} | {counted:.2f} | {more:+.2f} | {share:.2f} % |")
    return lines


def collecting(queues: int) -> list[str]:
    """Measure the processor time of a scrape of many queues; return the lines of a table."""
    clock = Clock()
    store = MemoryStore(clock)
    store.open()
    clock.advance(0)

    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    broker = Broker(store, clock, now_ms, str)
    names = [f"queue-{number:05}" for number in range(queues)]
    broker.declare([NodeDeclaration(name, QueueLimits()) for name in names], {})
    nodes = NodeMetrics(broker, now_ms, lambda: names[:500], tuple)
    one = frozenset({"amqproute_node_messages"})
    lines = [
        "| answer | reactor's thread, ms | longest piece, ms | writer's thread, ms | KiB |",
        "|---|---|---|---|---|",
    ]
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    set_thresholds()
    for title, scope in (
        ("`/metrics`", MetricsScope()),
        ("`/metrics/detailed?family=amqproute_node_messages`", MetricsScope(True, one)),
        ("`/metrics/detailed`", MetricsScope(True)),
    ):
        found = []
        for _ in range(5):
            snapshot = MetricsSnapshot(scope)
            began = last = time.thread_time()
            longest = 0.0
            for source in (nodes.nodes, nodes.topics, nodes.hosts):
                for _ in source(snapshot):
                    now = time.thread_time()
                    longest, last = max(longest, now - last), now
            collected = time.thread_time()
            _, text = expose(snapshot, "")
            written = time.thread_time()
            found.append((collected - began, longest, written - collected, len(text) // 1024))
            gc.collect()
        took, longest, wrote, size = (
            statistics.median(column) for column in zip(*found, strict=True)
        )
        lines.append(
            f"| {title} | {1000 * took:.0f} | {1000 * longest:.1f} | {1000 * wrote:.0f} "
            f"| {size:.0f} |"
        )
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    return lines


# -- scrapes ---------------------------------------------------------------------------------------


class Bystander(threading.Thread):
    """Asks for ``/livez`` without a pause, and keeps how long each answer took."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._is_over = threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        """Ask until it is told to end; less often than the bound on requests."""
        while not self._is_over.is_set():
            began = time.perf_counter()
            self._connection.request("GET", "/livez")
            self._connection.getresponse().read()
            self.waits.append(time.perf_counter() - began)
            time.sleep(0.012)

    def end(self) -> tuple[float, float]:
        """End; return the median and the longest wait, milliseconds."""
        self._is_over.set()
        self.join()
        return 1000 * statistics.median(self.waits), 1000 * max(self.waits)


def get(port: int, path: str) -> tuple[float, bytes]:
    """Return the duration of a request, seconds, and its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {text[:200]!r}")
    return took, text


def value_of(text: bytes, name: str) -> float:
    """Return the one value of a metric without labels."""
    (line,) = [each for each in text.decode().splitlines() if each.startswith(f"{name} ")]
    return float(line.split()[1])


def start(directory: Path, port: int, queues: int) -> subprocess.Popen[bytes]:
    """Start a daemon with so many queues."""
    settings: dict[str, object] = {
        "listen": [{"endpoint": f"unix:{directory / 's'}", "mechanisms": ["EXTERNAL"]}],
        "nodes": [{"name": f"queue-{number:05}"} for number in range(queues)],
        "management": {
            "http": f"tcp:{port}:interface=127.0.0.1",
            "metrics-networks": ["127.0.0.1/32"],
        },
    }
    return start_daemon(directory, port, settings)


def scrapes(runs: int, queues: int) -> list[str]:
    """Measure scrapes of a daemon with many queues; return the lines of a table."""
    (port,) = free_ports(1)
    lines = [
        "| answer | median, ms | longest, ms | KiB | event loop stood still, ms "
        "| bystander p50, ms | bystander longest, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        process = start(Path(name), port, queues)
        try:
            other = Bystander(port)
            other.start()
            time.sleep(5)
            median, longest = other.end()
            lines.append(f"| nobody scrapes | | | | | {median:.1f} | {longest:.1f} |")
            stop = "amqproute_scrape_longest_stop_seconds"
            for path in (
                "/metrics",
                f"/metrics/detailed?family=amqproute_node_messages&family={stop}",
                "/metrics/detailed",
            ):
                other = Bystander(port)
                other.start()
                took, stops, size = [], [], 0
                for _ in range(runs):
                    seconds, text = get(port, path)
                    took.append(1000 * seconds)
                    stops.append(1000 * value_of(text, stop))
                    size = len(text) // 1024
                    time.sleep(0.2)
                median, longest = other.end()
                shown = path.partition(f"&family={stop}")[0]
                lines.append(
                    f"| `{shown}` | {statistics.median(took):.0f} | {max(took):.0f} | {size} "
                    f"| {max(stops):.1f} | {median:.1f} | {longest:.1f} |"
                )
        finally:
            process.terminate()
            process.wait()
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000, help="of each run")
    parser.add_argument("--runs", type=int, default=10, help="pairs of runs, and scrapes")
    parser.add_argument("--queues", type=int, default=QUEUES)
    parser.add_argument("--whole", type=float, default=34.0, help="µs of CPU of a message in all")
    parser.add_argument("--no-daemon", action="store_true", help="processor times only")
    asked = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors\n")
    print("\n".join(cost(asked.messages, asked.runs, asked.whole)), end="\n\n")
    print("\n".join(collecting(asked.queues)), end="\n\n")
    if asked.no_daemon:
        return
    print("\n".join(scrapes(asked.runs, asked.queues)))


if __name__ == "__main__":
    main()
