# SPDX-License-Identifier: Apache-2.0
"""Cost of the audit journal per event, in the reactor's thread and in its own.

Run ``python -m benchmarks.journal``. Messages of 1 KiB with a message-id and an address are put on
a queue in batches of 1, 8 and 64, committed, handed out and accepted: two events each, one when it
has come and one when it has gone. The store is in memory. Figures are microseconds of CPU:

* *reactor*: of the thread that does all that, with a journal less without one, for each event; it
  has to stay under 5 us;
* *threads*: of the journal's own threads (digests, JSON, the chain, writing), for each event;
* *octets*: what an event takes in the segments.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from amqproute.broker.broker import Broker
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.journal.event import SILENCE, EntryTaker
from amqproute.journal.journal_writer import Journal, JournalTerms
from amqproute.journal.record import RecordKind
from amqproute.journal.segments import SegmentNames
from amqproute.message import Message
from amqproute.outcomes import Acceptance
from amqproute.store.memory import MemoryStore
from amqproute.values import Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import ULong

ORIGIN = Origin(
    Principal("user", "ann"), connection="127.0.0.1:4711", link="sender-1", level="authenticated"
)
ACCEPTED = Acceptance()
HEAD = sections.encode_header(spec.Header(durable=True))
BODY = sections.encode_section(spec.SECTION_DATA, b"x" * 1024)
BATCHES = (1, 8, 64)
NAMES = SegmentNames(
    "", "mx1.alpha.example", "alpha.example", "5d0c7c1e-7a39-4f57-9d0e-4d3f7f7a2a11"
)


def encoded(number: int) -> bytes:
    """Return a message as it comes."""
    properties = spec.Properties(message_id=ULong(number), to="orders@beta.example")
    return HEAD + codec.encode(properties) + BODY


class Consumer:
    """Takes everything, and says who it is."""

    taker = EntryTaker(
        RecordKind.DELIVERED,
        {"peer": "user:bob", "connection": "127.0.0.1:4712", "link": "receiver-1"},
    )
    takes_ahead = False

    def __init__(self) -> None:
        self.held: list[Entry] = []

    def capacity(self) -> int:
        return 1 << 20

    def deliver(self, entries: Sequence[Entry]) -> None:
        self.held += entries

    def holds(self) -> Sequence[Entry]:
        return self.held

    def exhausted(self) -> None:
        pass


class Threads:
    """Has calls from other threads done at once: there is no reactor."""

    def callFromThread(self, call: Any, *args: Any) -> None:
        call(*args)


def measure(messages: int, batch: int, journal: Journal | None) -> float:
    """Return the CPU seconds of this thread."""
    clock = Clock()
    store = MemoryStore(clock, None if journal is None else journal.outbox)
    store.open()
    clock.advance(0)
    now_ms = lambda: time.time_ns() // 1_000_000  # noqa: E731
    broker = Broker(store, clock, now_ms, str, journal=SILENCE if journal is None else journal)
    broker.declare([NodeDeclaration("q", QueueLimits())], {})
    queue: Queue = broker.nodes["q"]
    consumer = Consumer()
    queue.attach(consumer)  # type: ignore[arg-type]
    bodies = [encoded(number) for number in range(messages)]
    gc.collect()
    gc.disable()  # all events wait until the end here, which they do not in a daemon
    own = time.thread_time()
    for start in range(0, messages, batch):
        came = broker.begin()
        for body in bodies[start : start + batch]:
            queue.put(Message(body), came, ORIGIN)
        came.commit()
        clock.advance(0)
        left = broker.begin()
        held, consumer.held = consumer.held, []
        queue.settle(held, ACCEPTED, left, consumer)
        left.commit(True)
        clock.advance(0)
    own = time.thread_time() - own
    gc.enable()
    return own


def run(messages: int, batch: int, directory: Path) -> None:
    """Print a line for one size of batches."""
    without = min(measure(messages, batch, None) for _ in range(3))
    figures = []
    for attempt in range(3):
        journal = Journal(
            directory / f"{batch}-{attempt}",
            Threads(),
            JournalTerms(held_bytes=1 << 30),
            domain="alpha.example",
            now_us=lambda: time.time_ns() // 1000,
            gather_seconds=3600.0,  # its threads do nothing until it is closed: one after the other
        )
        journal.open(NAMES, ())
        while journal._segments is None:
            time.sleep(0.01)
        own = measure(messages, batch, journal)
        others = time.process_time()
        journal.close()
        while any(thread.is_alive() for thread in journal._threads):
            time.sleep(0.01)
        others = time.process_time() - others
        figures.append((own, others, journal.figures.bytes / journal.figures.records))
    own, others, octets = min(figures)
    events = 2 * messages
    print(
        f"{batch:5}  {1e6 * without / events:8.2f}  {1e6 * own / events:8.2f}  "
        f"{1e6 * (own - without) / events:8.2f}  {1e6 * others / events:8.2f}  {octets:7.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=64_000)
    messages = parser.parse_args().messages
    print("batch   without      with   reactor   threads   octets")
    with tempfile.TemporaryDirectory() as directory:
        for batch in BATCHES:
            run(messages, batch, Path(directory))


if __name__ == "__main__":
    main()
