# SPDX-License-Identifier: Apache-2.0
"""What one queue costs: with many consumers, with a message-id to compare, with selectors.

Run ``python -m benchmarks.queues``; ``--long`` for a queue of a million entries. Everything is in
memory, without a network, so the figures are those of the queue alone:

* put and take: microseconds for a message put in a batch of 100, committed, handed out and
  accepted in batches of up to 100, with 1, 10 and 100 consumers;
* duplicates: the same with the policies `off` and `global-ids`, which a node has by default;
* selectors: a backlog that stands in the store, and consumers that each select one message in a
  hundred: how long until they have all of it, and what each further arrival costs then. The
  second figure must not grow with the backlog: nobody reads it again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock

from amqproute.broker.broker import Broker, NodeDeclaration
from amqproute.broker.limits import QueueLimits
from amqproute.broker.options import Duplicates, QueueOptions
from amqproute.broker.queue import Queue
from amqproute.entry import Entry
from amqproute.message import Message
from amqproute.store.memory import MemoryStore
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from amqproute.wire.amqp10 import codec, sections, spec

BATCH = 100
ORIGIN = Origin(ANONYMOUS_PRINCIPAL)
ACCEPTED = spec.Accepted()
BODY = sections.encode_section(spec.SECTION_DATA, b"x" * 1024)


class House:
    """A broker with the queue ``q``, and a clock."""

    def __init__(self, limits: QueueLimits, options: QueueOptions) -> None:
        self.clock = Clock()
        store = MemoryStore(self.clock)
        store.open()
        self.clock.advance(0)
        self.broker = Broker(store, self.clock, self._now_ms, str)
        self.broker.declare([NodeDeclaration("q", limits, None, options)], {})
        self.queue: Queue = self.broker.nodes["q"]

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

    def __init__(self, house: House, room: int, number: int | None = None) -> None:
        self.room = room
        self.taken = 0
        self._house = house
        self._number = number
        self._held: list[Entry] = []
        house.queue.attach(self, None if number is None else self._selects)

    def _selects(self, entry: Entry) -> bool:
        return bool(entry.message.application_properties["n"] == self._number)

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


def messages(count: int, first: int = 0) -> list[bytes]:
    """Encode messages with an id, and a number from 0 to 99 to select by."""
    return [
        codec.encode(spec.Properties(message_id=f"message-{number:024d}"))
        + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, {"n": number % 100})
        + BODY
        for number in range(first, first + count)
    ]


def put_and_take(consumers: int, duplicates: Duplicates, count: int = 20_000) -> float:
    """Return microseconds per message."""
    encoded = messages(count)
    best = float("inf")
    for _ in range(3):
        house = House(QueueLimits(), QueueOptions(duplicates=duplicates))
        takers = [Consumer(house, BATCH) for _ in range(consumers)]
        started = time.perf_counter()
        for start in range(0, count, BATCH):
            house.put(encoded[start : start + BATCH])
            for taker in takers:
                taker.accept()
            house.clock.advance(0)
        best = min(best, time.perf_counter() - started)
        assert sum(taker.taken for taker in takers) == count
    return best / count * 1e6


def selective(backlog: int, consumers: int) -> tuple[float, float]:
    """Return microseconds per entry of a backlog, and per arrival from then on."""
    limits = QueueLimits(resident_messages=5_000)
    house = House(limits, QueueOptions(archive_expired=False))
    for start in range(0, backlog, 10_000):
        house.put(messages(10_000, start))
    started = time.perf_counter()
    takers = [Consumer(house, 1 << 30, number) for number in range(consumers)]
    house.queue.dispatch()
    house.run()
    found = time.perf_counter() - started
    assert all(taker.taken == backlog // 100 for taker in takers)
    encoded = messages(2_000, backlog)
    started = time.perf_counter()
    house.put(encoded)
    house.run()
    further = time.perf_counter() - started
    assert all(taker.taken == (backlog + 2_000) // 100 for taker in takers)
    return found / backlog * 1e6, further / len(encoded) * 1e6


def main(arguments: Any = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--long", action="store_true", help="a backlog of a million")
    is_long = parser.parse_args(arguments).long
    for consumers in (1, 10, 100):
        cost = put_and_take(consumers, Duplicates.OFF)
        print(f"put and take, {consumers:3} consumers           {cost:8.2f} us per message")
    cost = put_and_take(1, Duplicates.GLOBAL_IDS)
    print(f"the same with duplicate-policy global-ids {cost:8.2f} us per message")
    for backlog in (20_000, 100_000, 1_000_000) if is_long else (20_000, 100_000):
        for consumers in (1, 10):
            found, arrival = selective(backlog, consumers)
            print(
                f"{backlog:9,} entries, {consumers:2} selective consumers: {found:7.2f} us per "
                f"entry, then {arrival:7.2f} us per arrival"
            )


if __name__ == "__main__":
    main()
