# SPDX-License-Identifier: Apache-2.0
"""Cost of one queue: with many consumers, with a message-id to compare, with selectors.

Run ``python -m benchmarks.queues``; ``--long`` for a queue of a million entries, ``--entries`` and
``--consumers`` for other sizes. Everything is in memory, without a network, so the figures are
those of the queue alone:

* put and take: microseconds for a message put in a batch of 100, committed, handed out and
  accepted in batches of up to 100, with 1, 10 and 100 consumers;
* duplicates: the same with the policies `off` and `global-ids`, which a node has by default;
* selectors: a backlog that is in the store, and consumers that each select one message in a
  hundred: how long until they have all of it, and how often each row was read for that; what each
  further arrival costs then; and, with a new backlog, what each message costs where every consumer
  has credit for one and accepts it before the next. Rows read have to stay near one for each
  entry, however many consumers there are; what grows with them is the asking of their filters.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock

from amqproute.broker.broker import Broker
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Duplicates, QueueOptions
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.filters.registry import SELECTOR, read_filters
from amqproute.message import Message
from amqproute.outcomes import Acceptance
from amqproute.store.memory import MemoryStore
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Described, Symbol

BATCH = 100
ORIGIN = Origin(ANONYMOUS_PRINCIPAL)
ACCEPTED = Acceptance()
BODY = sections.encode_section(spec.SECTION_DATA, b"x" * 1024)
SMALL = sections.encode_section(spec.SECTION_DATA, b"x")
SELECTORS = (1, 10, 100)


class House:
    """A broker with the queue ``q``, and a clock."""

    def __init__(self, limits: QueueLimits, options: QueueOptions) -> None:
        self.clock = Clock()
        store = MemoryStore(self.clock)
        self.rows_read = 0
        self._load = store.load
        store.load = self._counted_load  # type: ignore[method-assign]
        store.open()
        self.clock.advance(0)
        self.broker = Broker(store, self.clock, self._now_ms, str)
        self.broker.declare([NodeDeclaration("q", limits, None, options)], {})
        self.queue: Queue = self.broker.nodes["q"]

    def _counted_load(self, *arguments: Any) -> Any:
        return self._load(*arguments).addCallback(self._count)

    def _count(self, rows: Any) -> Any:
        self.rows_read += len(rows)
        return rows

    def _now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def put(self, encoded: Sequence[bytes]) -> None:
        """Put messages, a batch at a time."""
        for start in range(0, len(encoded), BATCH):
            batch = self.broker.begin()
            for each in encoded[start : start + BATCH]:
                self.queue.put(Message(each), batch, ORIGIN)
            batch.commit()
            self.clock.advance(0)

    def run(self) -> None:
        """Let what is due happen until nothing moves."""
        while any(call.getTime() <= self.clock.seconds() for call in self.clock.calls):
            self.clock.advance(0)


class Consumer:
    """Takes up to its room."""

    takes_ahead = False

    def __init__(self, house: House, room: int, number: int | None = None) -> None:
        self.room = room
        self.taken = 0
        self._house = house
        self._held: list[Entry] = []
        selector = {Symbol("s"): Described(Symbol(SELECTOR), f"n = {number}")}
        filters = read_filters(selector, own_container="")

        def selects(entry: Entry) -> bool:
            return filters.matches(entry.message, entry.origin)

        house.queue.attach(self, None if number is None else selects)

    def capacity(self) -> int:
        return self.room

    def deliver(self, entries: Sequence[Entry]) -> None:
        self.room -= len(entries)
        self.taken += len(entries)
        self._held.extend(entries)

    def holds(self) -> list[Entry]:
        return self._held

    def exhausted(self) -> None:
        """Nothing to be told."""

    def accept(self) -> None:
        """Accept what it holds, and have room for as much again."""
        held, self._held = self._held, []
        if held:
            batch = self._house.broker.begin()
            self._house.queue.settle(held, ACCEPTED, batch, self)
            batch.commit()
            self.room += len(held)


def messages(count: int, first: int = 0, body: bytes = BODY) -> list[bytes]:
    """Encode messages with an id, and a number from 0 to 99 to select by."""
    return [
        codec.encode(spec.Properties(message_id=f"message-{number:024d}"))
        + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"n": number % 100})
        + body
        for number in range(first, first + count)
    ]


def put_and_take(consumers: int, duplicates: Duplicates, count: int = 20_000) -> float:
    """Return microseconds per message."""
    encoded = messages(count)
    best = float("inf")
    for _ in range(3):
        house = House(QueueLimits(), QueueOptions(duplicates=duplicates))
        takers = [Consumer(house, BATCH) for _ in range(consumers)]
        started = time.process_time()
        for start in range(0, count, BATCH):
            house.put(encoded[start : start + BATCH])
            for taker in takers:
                taker.accept()
            house.clock.advance(0)
        best = min(best, time.process_time() - started)
        assert sum(taker.taken for taker in takers) == count
    return best / count * 1e6


def backlog_of(count: int) -> House:
    """Return a broker whose queue has a backlog in the store."""
    house = House(QueueLimits(resident_messages=5_000), QueueOptions(archive_expired=False))
    for start in range(0, count, 10_000):
        house.put(messages(min(10_000, count - start), start, SMALL))
    return house


def selective(backlog: int, consumers: int) -> tuple[float, float, float]:
    """Return microseconds per entry of a backlog, rows read for each, and us per arrival then."""
    house = backlog_of(backlog)
    started = time.process_time()
    takers = [Consumer(house, 1 << 30, number) for number in range(consumers)]
    house.queue.dispatch()
    house.run()
    found = time.process_time() - started
    assert all(taker.taken == backlog // 100 for taker in takers)
    rows = house.rows_read
    encoded = messages(2_000, backlog, SMALL)
    started = time.process_time()
    house.put(encoded)
    house.run()
    further = time.process_time() - started
    assert all(taker.taken == (backlog + 2_000) // 100 for taker in takers)
    return found / backlog * 1e6, rows / backlog, further / len(encoded) * 1e6


def one_by_one(backlog: int, consumers: int, count: int = 2_000) -> tuple[float, float]:
    """Return us per message, and rows read for each, where each consumer has credit for one.

    ``count`` messages are taken; 100 rows have to be looked at for each as far as nobody else
    has looked for something among them.
    """
    house = backlog_of(backlog)
    started = time.process_time()
    takers = [Consumer(house, 1, number) for number in range(consumers)]
    house.queue.dispatch()
    house.run()
    left = min(count, backlog // 100 * consumers)
    while sum(taker.taken for taker in takers) < left:
        for taker in takers:
            taker.accept()
        house.queue.dispatch()
        house.run()
    taken = sum(taker.taken for taker in takers)
    return (time.process_time() - started) / taken * 1e6, house.rows_read / taken


def measure_selectors(sizes: Sequence[int], counts: Sequence[int]) -> None:
    """Print tables of what selective consumers cost, and how that grows with the selectors."""
    print("\n                  until all is found                                  then")
    print("  entries  selectors   us/entry  rows/entry  us/entry/selector  us/arrival", flush=True)
    for backlog in sizes:
        for consumers in counts:
            found, rows, arrival = selective(backlog, consumers)
            print(
                f"{backlog:9,}  {consumers:9}  {found:9.2f}  {rows:10.2f}  "
                f"{found / consumers:17.2f}  {arrival:10.2f}",
                flush=True,
            )
    print(
        "\n                  with a credit of one\n  entries  selectors  us/message  rows/message"
    )
    for backlog in sizes:
        for consumers in counts:
            each, read = one_by_one(backlog, consumers)
            print(f"{backlog:9,}  {consumers:9}  {each:10.2f}  {read:12.1f}", flush=True)


def main(arguments: Any = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="a backlog of a million")
    parser.add_argument("--entries", type=int, help="the backlog for selectors")
    parser.add_argument("--consumers", type=int, help="selectors")
    given = parser.parse_args(arguments)
    sizes = [20_000, 100_000, 1_000_000] if given.long else [20_000, 100_000]
    if given.entries or given.consumers:
        measure_selectors(
            [given.entries] if given.entries else sizes,
            [given.consumers] if given.consumers else SELECTORS,
        )
        return
    for consumers in (1, 10, 100):
        cost = put_and_take(consumers, Duplicates.OFF)
        print(f"put and take, {consumers:3} consumers           {cost:8.2f} us per message")
    cost = put_and_take(1, Duplicates.GLOBAL_IDS)
    print(f"the same with duplicate-policy global-ids {cost:8.2f} us per message")
    measure_selectors(sizes, SELECTORS)


if __name__ == "__main__":
    main()
