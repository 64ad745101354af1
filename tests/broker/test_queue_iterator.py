# SPDX-License-Identifier: Apache-2.0
"""An operator's iteration over a queue: each entry once, in order, beside other traffic."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from amqproute.broker.queue_iterator import PAGE, START, IteratorPosition, StopBefore
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.outcomes import ErrorDetails
from tests.broker.test_queue import QueueCase
from tests.support.fakes import Taker, body_of, message, put


class WalkTests(QueueCase):
    """A queue that keeps three entries in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.make(resident_messages=3)

    def fill(self, count: int, start: int = 0) -> list[bytes]:
        """Put numbered messages; return their bodies."""
        bodies = [b"%d" % number for number in range(start, start + count)]
        self.put(*bodies)
        return bodies

    def walk(
        self,
        look: Callable[[list[Entry]], StopBefore | None],
        place: IteratorPosition = START,
        most: int | None = None,
    ) -> IteratorPosition | None:
        """Walk to the end of what was asked for."""
        walking = Deferred.fromCoroutine(self.queue.walk().run(look, place, most))
        for _ in range(100):
            if walking.called:
                break
            self.turn()
            self.clock.advance(0.02)
        return self.successResultOf(walking)

    def seen(self) -> list[bytes]:
        """Return the bodies that a walk shows."""
        bodies: list[bytes] = []
        self.assertIsNone(self.walk(lambda page: bodies.extend(map(body_of, page))))
        return bodies

    def test_all_in_order(self) -> None:
        """Memory and store, in pages; nothing has changed afterwards."""
        bodies = self.fill(2 * PAGE + 7)
        pages: list[int] = []
        self.walk(lambda page: pages.append(len(page)))
        self.assertLessEqual(max(pages), PAGE)
        self.assertEqual(self.seen(), bodies)
        self.assertEqual((self.queue.depth, self.queue.resident), (len(bodies), 3))
        self.assertEqual(self.bodies(self.queue), bodies[:1000])

    def test_in_parts(self) -> None:
        """A walk can be left and gone on with."""
        bodies = self.fill(1200)
        seen: list[bytes] = []
        place: IteratorPosition | None = START
        rounds = 0
        while place is not None:
            place = self.walk(lambda page: seen.extend(map(body_of, page)), place, 400)
            rounds += 1
        self.assertEqual((seen, rounds > 2), (bodies, True))

    def test_stopped(self) -> None:
        """A look that takes no more of a page ends the walk there, and it goes on with the rest."""
        self.fill(20)
        taker = Taker(self.queue)
        taker.take(7)
        while len(taker.held) < 7:
            self.turn()
        held = list(taker.held)
        for seconds, each in zip(range(70, 0, -10), held, strict=True):
            self.queue.defer([each], seconds)
        self.queue.detach(taker)
        self.put(b"urgent", priority=9)
        for most in (1, 2, 3, 6, 7, 8, 100):
            seen: list[Entry] = []
            place: IteratorPosition | None = START
            while place is not None:
                part: list[Entry] = []

                def look(
                    page: list[Entry], part: list[Entry] = part, most: int = most
                ) -> StopBefore | None:
                    room = most - len(part)
                    part.extend(page[:room])
                    return StopBefore(page[room].id) if room < len(page) else None

                place = self.walk(look, place)
                self.assertLessEqual(len(part), most)
                seen += part
            bodies = [b"%d" % number for number in range(20)]
            self.assertEqual([*map(body_of, seen)], [*bodies[:7], b"urgent", *bodies[7:]], most)

    def test_short_lines(self) -> None:
        """A page counts with the entries it has: a part has those of several lines."""
        for priority in range(10):
            self.put(b"%d" % priority, priority=priority)
        seen: list[bytes] = []
        place = self.walk(lambda page: seen.extend(map(body_of, page)), START, 8)
        self.assertEqual(seen, [b"%d" % priority for priority in range(9, 1, -1)])
        assert place is not None
        self.assertIsNone(self.walk(lambda page: seen.extend(map(body_of, page)), place, 8))
        self.assertEqual(len(seen), 10)

    def test_held_and_new_ones_are_left_out(self) -> None:
        """Entries held by a consumer are not shown, nor those that arrive during the iteration."""
        bodies = self.fill(10)
        taker = Taker(self.queue)
        taker.take(2)
        seen: list[bytes] = []
        walking = Deferred.fromCoroutine(
            self.queue.walk().run(lambda page: seen.extend(map(body_of, page)))
        )
        put(self.broker, self.queue, message(b"new"))
        for _ in range(20):
            self.turn()
        self.successResultOf(walking)
        self.assertEqual(seen, bodies[2:])
        self.assertEqual(sorted(map(body_of, self.queue.held_by_consumers())), sorted(bodies[:2]))

    def test_refill_does_not_hide_anything(self) -> None:
        """Entries that move from the store to memory between two pages are not missed."""
        bodies = self.fill(1600)
        taker = Taker(self.queue)
        seen: list[bytes] = []

        def look(page: list[Entry]) -> None:
            seen.extend(map(body_of, page))
            taker.take(1)

        self.walk(look)
        self.assertEqual(set(seen) | set(taker.seen), set(bodies))
        self.assertEqual(seen, sorted(seen, key=int))

    def test_picked(self) -> None:
        """Picked entries are gone from queue and store; the others stay in their places."""
        bodies = self.fill(1300)

        def look(page: list[Entry]) -> None:
            odd = [each for each in page if int(body_of(each)) % 2]
            batch = self.broker.begin()
            self.queue.pick(odd)
            self.queue.purge_picked(odd, batch)
            batch.commit()

        self.walk(look)
        self.turn()
        self.assertEqual((self.queue.depth, self.queue.tally.purged), (650, 650))
        self.assertEqual(self.bodies(self.queue), bodies[::2])
        self.turn()
        self.assertEqual((self.queue.depth, self.store.rows("q")), (0, []))

    def test_all_picked(self) -> None:
        """An emptied queue works like a new one."""
        self.fill(1300)

        def look(page: list[Entry]) -> None:
            batch = self.broker.begin()
            self.queue.pick(page)
            self.queue.expire_picked(page, ErrorDetails(condition="amqp:gone"), batch)
            batch.commit()

        self.walk(look)
        self.turn()
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (0, 1300))
        self.assertEqual((self.queue.resident_bytes, self.queue.paged_bytes), (0, 0))
        self.assertEqual(self.store.rows("q"), [])
        bodies = self.fill(5)
        self.assertEqual(self.seen(), bodies)
        self.assertEqual(self.bodies(self.queue), bodies)

    def test_move_that_fails(self) -> None:
        """Entries whose move the store does not take are available again, in their places."""
        bodies = self.fill(3)
        pages: list[list[Entry]] = []
        self.walk(pages.append)
        picked = pages[0][:2]
        batch = self.broker.begin()
        self.queue.pick(picked)
        self.queue.move_picked(picked, batch)
        self.assertEqual(self.queue.depth, 1)
        self.store.is_failing = True
        committed = batch.commit()
        self.turn()
        self.failureResultOf(committed, StoreError)
        self.store.is_failing = False
        self.assertEqual(self.queue.depth, 3)
        self.assertEqual(self.bodies(self.queue), bodies)

    def test_deferred(self) -> None:
        """Deferred entries come first and can be picked, or called back."""
        bodies = self.fill(3)
        taker = Taker(self.queue)
        taker.take(2)
        held = list(taker.held)
        self.queue.defer(held, 60)
        self.assertEqual(self.seen(), bodies)
        self.assertEqual(self.queue.recall([held[0]]), 1)
        self.assertEqual((self.queue.deferred, self.queue.recall([held[0]])), (1, 0))
        self.queue.pick([held[1]])
        batch = self.broker.begin()
        self.queue.purge_picked([held[1]], batch)
        batch.commit()
        self.turn()
        self.assertEqual(self.seen(), [bodies[0], bodies[2]])
        self.queue.detach(taker)
        self.assertEqual(self.bodies(self.queue), [bodies[0], bodies[2]])

    def test_find(self) -> None:
        """By ids: in memory, in the store, deferred; those that are not there are left out."""
        self.fill(1200)
        ids: dict[bytes, int] = {}
        self.walk(lambda page: ids.update({body_of(each): each.id for each in page}))
        found: list[bytes] = []
        wanted = [ids[b"1"], ids[b"700"], ids[b"1199"], 1 << 40]
        finding = Deferred.fromCoroutine(
            self.queue.walk().find(wanted, lambda page: found.extend(map(body_of, page)))
        )
        for _ in range(20):
            self.turn()
        self.successResultOf(finding)
        self.assertEqual(sorted(found), [b"1", b"1199", b"700"])

    def test_find_what_cannot_be(self) -> None:
        """An id that no message has yet, or can have, is not asked for in the store."""
        self.fill(1200)
        self.store.load = lambda *_: self.fail_later()  # type: ignore[method-assign]
        walk = self.queue.walk()
        wanted = [-1, self.store.next_id(), 1 << 63, (1 << 64) - 1]
        finding = Deferred.fromCoroutine(walk.find(wanted, lambda _: None))
        self.turn()
        self.successResultOf(finding)

    def test_store_fails(self) -> None:
        """The walk ends with the error, and the queue goes on."""
        self.fill(20)
        self.store.load = lambda *_: self.fail_later()  # type: ignore[method-assign]
        walking = Deferred.fromCoroutine(self.queue.walk().run(lambda _: None))
        for _ in range(5):
            self.turn()
        self.failureResultOf(walking, StoreError)
        del self.store.load
        self.assertEqual(len(self.bodies(self.queue)), 20)

    def fail_later(self) -> Deferred[object]:
        """Fail on the next turn."""
        failing: Deferred[object] = Deferred()
        self.clock.callLater(0, lambda: failing.errback(StoreError("the disk is gone")))
        return failing
