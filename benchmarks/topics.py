# SPDX-License-Identifier: Apache-2.0
"""Cost of a message on a topic per subscriber, and the number of stored bodies.

Run ``python -m benchmarks.topics [--deliveries N] [--part memory|durable|keys|subjects]``. Without
a network: consumers that take and accept whatever there is stand for the links.

* *memory*: subscriptions that end with their link. Microseconds of CPU for each delivery, from
  ``put`` to the settlement.
* *durable*: subscriptions on the disk, on SQLite. The same, with enqueue and dequeue of every
  delivery by the store's writer; and what one message of all of them takes in the file before it
  is acknowledged: bodies, rows, octets.
* *keys*: a topic exchange with so many bindings and keys of so many words. Microseconds of CPU to
  find the queues of one key, and the nodes of the tree entered for it.
* *subjects*: a topic of AMQP 1.0 with so many subscriptions in memory, each with a subject of its
  own. Microseconds of CPU for each message, which one of them gets.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from amqproute.broker.broker import Broker
from amqproute.broker.exchanges.binding_tables import (
    BindingTarget,
    ExchangeBinding,
    ExchangeType,
    TargetKind,
)
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition, ExchangeGraph
from amqproute.broker.node_declaration import TopicDeclaration
from amqproute.broker.node_limits import QueueLimits, TopicLimits
from amqproute.broker.subscription import Definition, Subscription
from amqproute.broker.topic import Topic
from amqproute.entry import Entry
from amqproute.filters.registry import NO_FILTERS, declared_filters
from amqproute.message import Message
from amqproute.outcomes import Acceptance
from amqproute.store.memory import MemoryStore
from amqproute.store.sqlite import SqliteStore
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from amqproute.wire.amqp10 import codec, sections, spec
from benchmarks.store import Loop, cpu

SUBSCRIBERS = (1, 10, 100, 1000)
BINDINGS = (100, 1000, 10_000, 50_000)
WORDS = (4, 8, 16)
SUBJECTS = (1, 10, 100, 1000, 10_000)
LOOKUPS = 20_000
PARTS = ("memory", "durable", "keys", "subjects")
BODY = 1024
BATCH = 20
ORIGIN = Origin(ANONYMOUS_PRINCIPAL)
ACCEPTED = Acceptance()


def now_ms() -> int:
    """Return the wall clock."""
    return time.time_ns() // 1_000_000


def encoded() -> bytes:
    """Return a durable message with a body of its own."""
    header = sections.encode_header(spec.Header(durable=True))
    return header + sections.encode_section(spec.SECTION_DATA, b"x" * BODY)


class Link:
    """A consumer that accepts at once what it gets; within the broker's batch of that moment."""

    takes_ahead = False

    def __init__(self, broker: Broker, source: Any, is_open: bool = True) -> None:
        self.broker = broker
        self.source = source
        self.is_open = is_open
        self.taken = 0
        source.attach(self)

    def capacity(self) -> int:
        """See `IConsumer`."""
        return 1 << 20 if self.is_open else 0

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer`."""
        self.taken += len(entries)
        for entry in entries:
            entry.message.for_delivery(0, entry.attempted, entry.expires_ms, 0)
        if isinstance(self.source, Subscription):
            self.source.settle(entries, ACCEPTED, None, self)
            return
        batch = self.broker.begin()
        self.source.settle(entries, ACCEPTED, batch, self)
        batch.commit(True)

    def holds(self) -> Sequence[Entry]:
        """See `IConsumer`."""
        return ()

    def exhausted(self) -> None:
        """See `IConsumer`."""


def make_topic(store: Any, clock: Any) -> tuple[Broker, Topic]:
    """Return a broker with one topic."""
    broker = Broker(store, clock, now_ms, lambda: "unused")
    limits = TopicLimits(buffer_messages=1 << 20, queue=QueueLimits())
    broker.declare([TopicDeclaration("t", limits)], {})
    return broker, broker.topics["t"]


def publish(broker: Broker, topic: Topic, count: int) -> Any:
    """Put messages in one batch."""
    batch = broker.begin()
    for _ in range(count):
        topic.put(Message(encoded()), batch, ORIGIN)
    return batch.commit()


def memory(subscribers: int, deliveries: int) -> float:
    """Return microseconds of CPU for each delivery to subscribers in memory."""
    clock = Clock()
    store = MemoryStore(clock)
    store.open()
    broker, topic = make_topic(store, clock)
    links = [Link(broker, Subscription(topic, NO_FILTERS)) for _ in range(subscribers)]
    messages = max(BATCH, deliveries // subscribers)
    started = cpu()
    for _ in range(messages // BATCH):
        publish(broker, topic, BATCH)
        clock.advance(0)
    spent = cpu() - started
    taken = sum(link.taken for link in links)
    assert taken == messages // BATCH * BATCH * subscribers, taken
    return spent / taken * 1e6


def durable(subscribers: int, deliveries: int) -> tuple[float, str]:
    """Return microseconds of CPU for each delivery, and what one message takes in the file."""
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "store.db")
        loop, clock = Loop(), Clock()
        store = SqliteStore(path, loop, clock_ms=now_ms)
        loop.wait(store.open())
        broker, topic = make_topic(store, clock)
        links = []
        for number in range(subscribers):
            made: list[Any] = []
            definition = Definition("t", "c", f"s{number}", "user:ann", "c")
            topic.subscribe(definition, NO_FILTERS).addCallback(made.append)
            loop.until(lambda made=made: bool(made))  # type: ignore[misc]
            links.append(Link(broker, made[0], is_open=False))
        loop.wait(publish(broker, topic, 1))
        held = in_file(path)
        for link in links:
            link.is_open = True
            link.source.dispatch()
        messages = max(BATCH, deliveries // subscribers)
        started = cpu()
        for _ in range(messages // BATCH):
            loop.wait(publish(broker, topic, BATCH))
        loop.wait(broker.begin().commit())
        spent = cpu() - started
        taken = sum(link.taken for link in links) - subscribers
        assert taken == messages // BATCH * BATCH * subscribers, taken
        loop.wait(store.close())
        return spent / taken * 1e6, held


def keys(bindings: int, words: int) -> tuple[float, float]:
    """Return microseconds of CPU, and nodes entered, for one key of a topic exchange."""
    graph = ExchangeGraph({"q"}, most_bindings=bindings)
    graph.declare(ExchangeDefinition("t", ExchangeType.TOPIC))
    target = BindingTarget(TargetKind.QUEUE, "q")
    tail = [f"w{number}" for number in range(words - 2)]
    kinds = (["{}", *tail], ["{}", "#"], ["{}", *(["*"] * (words - 2))], ["{}", *tail[:-1], "#"])
    for number in range(bindings):
        pattern = ".".join(["site", *kinds[number % 4]]).format(number // 4)
        graph.bind(ExchangeBinding("t", target, pattern))
    asked = [".".join(["site", str(number), *tail]) for number in range(bindings // 4)]
    trie: Any = graph._exchanges["t"].table
    before, started = trie.trie.steps, cpu()
    count = 0
    while count < LOOKUPS:
        for key in asked[: LOOKUPS - count]:
            count += 1
            assert trie.match(key, {})
    return (cpu() - started) / count * 1e6, (trie.trie.steps - before) / count


def subjects(subscribers: int) -> float:
    """Return microseconds of CPU for a message that one of so many subscriptions wants."""
    clock = Clock()
    store = MemoryStore(clock)
    store.open()
    broker, topic = make_topic(store, clock)
    links = [
        Link(broker, Subscription(topic, declared_filters(f"site.{number}.#", None, now_ms)))
        for number in range(subscribers)
    ]
    messages = 200 if subscribers > 1000 else 2000
    header = sections.encode_header(spec.Header(durable=True))
    body = sections.encode_section(spec.SECTION_DATA, b"x" * BODY)
    made = [
        header + codec.encode(spec.Properties(subject=f"site.{number % subscribers}.new")) + body
        for number in range(messages)
    ]
    started = cpu()
    for at in range(0, messages, BATCH):
        batch = broker.begin()
        for octets in made[at : at + BATCH]:
            topic.put(Message(octets), batch, ORIGIN)
        batch.commit()
        clock.advance(0)
    spent = cpu() - started
    assert sum(link.taken for link in links) == messages
    return spent / messages * 1e6


def in_file(path: str) -> str:
    """Say what is in the store: bodies, rows that refer to them, octets of bodies."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        rows, own = database.execute(
            "SELECT count(*), total(length(encoded)) FROM entry"
        ).fetchone()
        bodies, shared = database.execute(
            "SELECT count(*), total(length(encoded)) FROM payload"
        ).fetchone()
    return f"{rows} rows, {bodies} shared bodies, {int(own + shared)} octets of bodies"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--deliveries", type=int, default=100_000)
    parser.add_argument("--part", choices=PARTS, action="append")
    given = parser.parse_args()
    deliveries, parts = given.deliveries, given.part or PARTS
    if "memory" in parts or "durable" in parts:
        print(f"message of {len(encoded())} octets, {BATCH} in a batch; us of CPU per delivery")
    for subscribers in SUBSCRIBERS if "memory" in parts else ():
        print(f"  memory   {subscribers:5} subscribers: {memory(subscribers, deliveries):6.2f}")
    for subscribers in SUBSCRIBERS if "durable" in parts else ():
        cost, held = durable(subscribers, deliveries // 2)
        print(f"  durable  {subscribers:5} subscribers: {cost:6.2f}   one message: {held}")
    for bindings in BINDINGS if "keys" in parts else ():
        for words in WORDS:
            cost, steps = keys(bindings, words)
            words_of = f"{bindings:6} bindings, {words:2} words"
            print(f"  keys     {words_of}: {cost:6.2f} us, {steps:.0f} nodes")
    for subscribers in SUBJECTS if "subjects" in parts else ():
        print(
            f"  subjects {subscribers:5} subscriptions: {subjects(subscribers):8.1f} us per message"
        )


if __name__ == "__main__":
    main()
