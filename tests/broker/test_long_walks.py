# SPDX-License-Identifier: Apache-2.0
"""Operators' work on queues with very many messages: how much of it there is in one turn."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from amqproute.broker.node_limits import MemoryBudget
from amqproute.broker.queue_iterator import (
    LEAST,
    PAGE,
    PAGE_OCTETS,
    START,
    IteratorPosition,
    page_of,
)
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.filters.grammar import MAX_WORDS
from amqproute.message import Message
from amqproute.outcomes import ErrorDetails
from amqproute.wire.amqp10 import codec, sections, spec
from tests.broker.test_queue import QueueCase
from tests.support.fakes import KeptStore, Taker, body_of, make_broker, message, node, put
from tests.support.turn_clock import TurnClock

MANY = 200_000
ROOM = 1 << 40


class LongCase(QueueCase):
    """A queue that keeps everything in memory, on a clock with turns."""

    clock: TurnClock

    def setUp(self) -> None:
        self.clock = TurnClock()
        self.store = KeptStore(self.clock)
        self.make(MemoryBudget(ROOM), resident_messages=10**9, resident_bytes=ROOM)

    def fill(self, count: int) -> None:
        """Put messages that are not durable."""
        one = message(b"x", durable=False)
        for start in range(0, count, 10_000):
            put(self.broker, self.queue, *[one] * min(10_000, count - start))
            self.turn()
        self.assertEqual(self.queue.resident, count)

    def turns_of(self, done: Deferred[Any]) -> int:
        """Let turns pass until a Deferred fires; return their number."""
        fired: list[Any] = []
        done.addBoth(fired.append)
        turns = 0
        while not fired:
            self.assertGreater(self.clock.turn(), 0, "nothing goes on")
            turns += 1
        self.result = fired[0]
        return turns


class PurgeTests(LongCase):
    """What an operator, or a client of 0-9-1, removes."""

    def test_pages(self) -> None:
        """A purge of very many messages in memory removes a page in each turn."""
        self.fill(MANY)
        done = self.queue.purge()
        self.assertEqual(self.queue.available, 0)  # nobody gets them any more
        sizes = [self.queue.tally.purged]
        fired: list[int] = []
        done.addCallback(fired.append)
        while not fired:
            before = self.queue.tally.purged
            self.clock.turn()
            sizes.append(self.queue.tally.purged - before)
        self.assertEqual((max(sizes), sum(sizes), fired), (PAGE, MANY, [MANY]))
        self.assertEmpty(self.queue)

    def test_expiry_of_deferred_ones(self) -> None:
        """So does an end of their lives, which makes dead letters; deferred ones are among them."""
        self.fill(3 * PAGE)
        taker = Taker(self.queue)
        taker.take(2 * PAGE)
        self.queue.defer(list(taker.held), 60)
        sizes: list[int] = []
        done = self.queue.expire(ErrorDetails(condition="amqp:gone"))
        fired: list[int] = []
        done.addCallback(fired.append)
        before = 0
        while not fired:
            sizes.append(self.queue.tally.expired - before)
            before = self.queue.tally.expired
            self.clock.turn()
        self.assertEqual((max(sizes), fired), (PAGE, [3 * PAGE]))
        self.turn()
        self.assertEqual((self.queue.depth, self.dead.depth), (0, 3 * PAGE))

    def test_arrivals_meanwhile(self) -> None:
        """Messages that come between two pages stay."""
        self.fill(3 * PAGE)
        done = self.queue.purge()
        self.clock.turn()
        put(self.broker, self.queue, message(b"new"))
        self.turns_of(done)
        self.turn()
        self.assertEqual((self.result, self.queue.depth), (3 * PAGE, 1))
        self.assertEqual(self.bodies(self.queue), [b"new"])

    def test_store_fails_in_the_middle(self) -> None:
        """What is durable comes back with the next start, if the store does not let it go."""
        self.put(*[b"%d" % number for number in range(2 * PAGE)])
        done = self.queue.purge()
        self.store.is_failing = True
        self.turns_of(done)
        self.assertTrue(self.result.check(StoreError))
        self.store.is_failing = False
        again = make_broker(self.clock, self.store, node("q", "dead"), node("dead"))
        self.assertEqual(again.nodes["q"].depth, 2 * PAGE)


class WalkTests(LongCase):
    """What an operator looks at."""

    def walk(self, place: IteratorPosition = START, **options: Any) -> list[int]:
        """Walk over the queue; return the sizes of the pages, and note what was shown."""
        sizes: list[int] = []
        self.seen: list[int] = []

        def look(page: list[Entry]) -> None:
            sizes.append(len(page))
            self.seen += [each.id for each in page]

        walking = Deferred.fromCoroutine(self.queue.walk().run(look, place, **options))
        self.turns = self.turns_of(walking)
        return sizes

    def test_pages(self) -> None:
        """Each turn has one page, whatever there is in memory."""
        self.fill(MANY)
        sizes = self.walk()
        self.assertEqual((max(sizes), sum(sizes)), (PAGE, MANY))
        self.assertGreaterEqual(self.turns, MANY // PAGE)

    def test_smaller_pages(self) -> None:
        """Where an entry costs more, a page has fewer; on the disk as well."""
        self.make(resident_messages=30)
        self.put(*[b"%d" % number for number in range(100)])
        sizes = self.walk(size=7)
        self.assertEqual((max(sizes), sum(sizes)), (7, 100))
        self.assertEqual(self.seen, sorted(self.seen))

    def test_deferred_ones(self) -> None:
        """Deferred entries come in pages, too, and a walk can be left among them."""
        self.fill(1200)
        taker = Taker(self.queue)
        taker.take(1100)
        held = list(taker.held)
        for number, start in enumerate(range(0, 1100, 100)):
            self.queue.defer(held[start : start + 100], 60 - number)
        everything = self.walk()
        self.assertEqual((max(everything), sum(everything)), (PAGE, 1200))
        whole = self.seen
        self.assertEqual(len(set(whole)), 1200)
        seen: list[int] = []
        place: IteratorPosition | None = START
        while place is not None:
            sizes = self.walk(place, most=300, size=100)
            self.assertLessEqual(sum(sizes), 400)
            seen += self.seen
            place = self.result
        self.assertEqual(seen, whole)

    def test_due_meanwhile(self) -> None:
        """A deferred entry that is due between two pages is not shown among the deferred ones."""
        self.fill(20)
        taker = Taker(self.queue)
        taker.take(20)
        self.queue.defer(list(taker.held), 60)
        shown: list[list[bytes]] = []

        def look(page: list[Entry]) -> None:
            shown.append([body_of(each) for each in page])
            if len(shown) == 1:
                self.queue.recall(list(self.queue.deferred_entries))

        walking = Deferred.fromCoroutine(self.queue.walk().run(look, size=15))
        self.turns_of(walking)
        self.assertEqual(len(shown[0]), 15)
        self.assertEqual(sum(map(len, shown[1:])), 20)  # all of them are available now

    def test_many_properties(self) -> None:
        """Pages are smaller where messages have many properties; bodies do not count."""
        properties = {f"property-{number}": number for number in range(4000)}
        heavy = Message(
            codec.encode(spec.Header(durable=True))
            + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, properties)
            + sections.encode_section(spec.SECTION_DATA, b"x")
        )
        octets = heavy.offsets.body_start
        most = PAGE_OCTETS // octets
        self.assertTrue(1 < most < 10)
        for resident in (10**9, 7):
            self.store = KeptStore(self.clock)
            self.make(MemoryBudget(ROOM), resident_messages=resident, resident_bytes=ROOM)
            done = put(self.broker, self.queue, *[heavy] * 50)
            self.turn()
            self.successResultOf(done)
            sizes = self.walk()
            self.assertEqual((max(sizes), sum(sizes), len(set(self.seen))), (most, 50, 50))
            self.assertEqual(self.seen, sorted(self.seen))
        taker = Taker(self.queue)
        taker.take(20)
        self.turn()  # some of them are on the disk
        self.queue.defer(list(taker.held), 60)
        self.assertEqual(self.queue.deferred, 20)
        self.assertEqual((max(self.walk()), len(set(self.seen))), (most, 50))
        self.store = KeptStore(self.clock)
        self.make(MemoryBudget(ROOM), resident_messages=10**9, resident_bytes=ROOM)
        put(self.broker, self.queue, *[message(b"x" * 100_000)] * 20)
        self.turn()
        self.assertEqual(self.walk(), [20])

    def test_size_of_pages(self) -> None:
        """The longest selector has the smallest pages."""
        sizes = [page_of(words) for words in (0, 7, 8, 80, 500, MAX_WORDS, 10**6)]
        self.assertEqual(sizes, [PAGE, PAGE, PAGE // 2, PAGE // 11, 7, LEAST, LEAST])
