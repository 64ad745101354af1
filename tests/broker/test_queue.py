# SPDX-License-Identifier: Apache-2.0
"""One queue: order, shares, outcomes, bounds, lifetimes, dead letters."""

from __future__ import annotations

import gc
import time
from functools import partial
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute import conditions
from amqproute.broker.broker import Broker
from amqproute.broker.node_limits import MemoryBudget
from amqproute.broker.publish_gate import STORE
from amqproute.broker.queue import Queue
from amqproute.errors import (
    ConfigError,
    NotAllowed,
    NotFound,
    ResourceDeleted,
    ResourceLimitExceeded,
)
from amqproute.errors import StoreError as StoreBroken
from amqproute.interfaces import IBatch, IBroker, IConsumer, ISource, ITarget
from amqproute.outcomes import Acceptance, ErrorDetails, Modification, Rejection, Release
from amqproute.routing.trail import TRACE
from amqproute.values import (
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    DEAD_LETTER_WORDS,
    REPORT_KIND,
    RETURN_TO,
    RETURNED,
)
from amqproute.wire.amqp10.types import Symbol, Timestamp
from tests.support.fakes import (
    EPOCH_MS,
    ORIGIN,
    KeptStore,
    Taker,
    body_of,
    make_broker,
    message,
    node,
    put,
    settle_down,
)

ACCEPTED = Acceptance()
RELEASED = Release()


class QueueCase(SynchronousTestCase):
    """A broker with the nodes ``q`` and ``dead`` over a kept store."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.broker = self.make()

    def make(self, budget: MemoryBudget | None = None, **limits: int) -> Broker:
        """Build a broker over the store."""
        self.broker = make_broker(
            self.clock, self.store, node("q", "dead", **limits), node("dead"), budget=budget
        )
        self.queue = self.broker.nodes["q"]
        self.dead = self.broker.nodes["dead"]
        return self.broker

    def turn(self) -> None:
        """Let everything due happen."""
        settle_down(self.clock)

    def put(self, *bodies: bytes, queue: Queue | None = None, **kind: Any) -> None:
        """Put messages on a queue and let them arrive."""
        done = put(self.broker, queue or self.queue, *(message(body, **kind) for body in bodies))
        self.turn()
        self.successResultOf(done)

    def bodies(self, queue: Queue) -> list[bytes]:
        """Take everything off a queue."""
        taker = Taker(queue)
        taker.take(1000)
        self.turn()
        queue.detach(taker)
        self.settle(taker, list(taker.held), ACCEPTED)
        return taker.seen

    def settle(self, taker: Taker, entries: list[Any], outcome: Any) -> None:
        """Settle, and let it become durable."""
        done = taker.settle(self.broker, entries, outcome)
        self.turn()
        self.successResultOf(done)

    def assertEmpty(self, *queues: Queue) -> None:
        """Nothing is left in memory, in the figures or in the store."""
        for queue in queues:
            self.assertEqual((queue.depth, queue.resident_bytes, queue.paged_bytes), (0, 0, 0))
            self.assertEqual(self.store.rows(queue.name), [])
            self.assertTrue(queue.is_settled)


class OrderTests(QueueCase):
    """First in, first out, each to one (Q-03, Q-05)."""

    def test_interfaces(self) -> None:
        """The classes keep the contracts."""
        verifyObject(ITarget, self.queue)
        verifyObject(ISource, self.queue)
        verifyObject(IBroker, self.broker)
        verifyObject(IBatch, self.broker.begin())
        verifyObject(IConsumer, Taker(self.queue))

    def test_first_in_first_out(self) -> None:
        """The order is that of arrival, whatever the batches."""
        self.put(b"1", b"2")
        self.put(b"3")
        self.assertEqual(self.bodies(self.queue), [b"1", b"2", b"3"])
        self.assertEmpty(self.queue)

    def test_durable_and_not_keep_one_order(self) -> None:
        """Durable and other messages stand in one line."""
        for number in range(6):
            self.put(b"%d" % number, durable=bool(number % 2))
        self.assertEqual(len(self.store.rows("q")), 3)
        self.assertEqual(self.bodies(self.queue), [b"%d" % number for number in range(6)])

    def test_nothing_before_the_commit(self) -> None:
        """An entry is available when it is durable, and not before (T-20)."""
        taker = Taker(self.queue, 10)
        done = put(self.broker, self.queue, message())
        self.assertNoResult(done)
        self.assertEqual((taker.seen, self.queue.available), ([], 0))
        self.turn()
        self.assertEqual(taker.seen, [b"x"])

    def test_capacity_is_kept(self) -> None:
        """A consumer never gets more than it has room for."""
        self.put(*[b"%d" % number for number in range(10)])
        taker = Taker(self.queue)
        taker.take(4)
        self.assertEqual(taker.seen, [b"0", b"1", b"2", b"3"])
        taker.take(1)
        self.assertEqual(taker.seen[-1], b"4")
        self.assertEqual((self.queue.available, self.queue.acquired), (5, 5))

    def test_batches_that_are_committed_out_of_turn(self) -> None:
        """An id given out earlier and committed later loses neither entry nor place."""
        for limit in (100, 1):
            self.make(resident_messages=limit)
            if limit == 1:
                self.put(b"0")
            first, second = self.broker.begin(), self.broker.begin()
            self.queue.put(message(b"1"), first, ORIGIN)
            self.queue.put(message(b"2"), second, ORIGIN)
            second.commit()
            taker = Taker(self.queue)
            self.turn()
            taker.take(5) if limit == 1 else None
            self.turn()
            first.commit()
            self.turn()
            taker.take(5)
            self.turn()
            self.assertEqual(sorted(taker.seen), [b"0", b"1", b"2"][limit == 100 :])
            self.settle(taker, list(taker.held), ACCEPTED)
            self.assertEmpty(self.queue)

    def test_released_goes_back_to_its_place(self) -> None:
        """A released entry is the next one again, unchanged (O-11)."""
        self.put(b"1", b"2", b"3", b"4")
        taker = Taker(self.queue)
        taker.take(3)
        first, _, third = taker.held
        self.settle(taker, [third], RELEASED)
        self.settle(taker, [first], None)
        taker.take(3)
        self.assertEqual(taker.seen, [b"1", b"2", b"3", b"1", b"3", b"4"])
        self.assertEqual([entry.delivery_count for entry in taker.held], [0] * 4)
        self.assertTrue(first.attempted)
        self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEmpty(self.queue)


class SharesTests(QueueCase):
    """Competing consumers (Q-29, Q-30, W-10)."""

    def test_shares_of_a_backlog(self) -> None:
        """Two who have room share evenly; one who has none holds nothing back."""
        idle, one, two = Taker(self.queue), Taker(self.queue), Taker(self.queue)
        self.put(*[b"%d" % number for number in range(90)])
        one.room = two.room = 45
        self.queue.dispatch()
        self.assertEqual((len(idle.seen), len(one.seen), len(two.seen)), (0, 45, 45))
        self.assertEqual(len({*one.seen, *two.seen}), 90)

    def test_credit_over_priorities(self) -> None:
        """One consumer gets no more than it has room for, also from several priorities."""
        for priority in (1, 4, 7):
            self.put(b"one", b"two", priority=priority)
        taker = Taker(self.queue)
        for room, held in ((3, 3), (2, 5), (2, 6)):
            taker.take(room)
            self.turn()
            self.assertEqual(len(taker.held), held)

    def test_shares_one_at_a_time(self) -> None:
        """Single messages go round as well, past the idle one."""
        idle, one, two = Taker(self.queue), Taker(self.queue, 99), Taker(self.queue, 99)
        for number in range(90):
            self.put(b"%d" % number)
        self.assertEqual(idle.seen, [])
        self.assertTrue(36 <= len(one.seen) <= 54, len(one.seen))
        self.assertEqual(sorted([*one.seen, *two.seen]), sorted(b"%d" % n for n in range(90)))

    def test_shares_of_released_ones(self) -> None:
        """Entries that came back are dealt like the others, in order."""
        self.put(*[b"%d" % number for number in range(6)])
        taker = Taker(self.queue)
        taker.take(6)
        self.queue.detach(taker)
        one, two = Taker(self.queue, 2), Taker(self.queue, 2)
        self.settle(taker, list(taker.held), RELEASED)
        self.assertEqual([one.seen, two.seen], [[b"0", b"2"], [b"1", b"3"]])

    def test_barred_entries_let_others_pass(self) -> None:
        """Undeliverable-here bars one consumer from one entry, and from nothing else (O-13)."""
        self.put(*[b"%d" % number for number in range(4)])
        taker = Taker(self.queue)
        taker.take(1)
        outcome = Modification(undeliverable_here=True)
        self.settle(taker, list(taker.held), outcome)
        taker.take(1)
        self.assertEqual(taker.seen, [b"0", b"1"])
        self.settle(taker, list(taker.held), outcome)
        taker.take(5)
        self.assertEqual(taker.seen, [b"0", b"1", b"2", b"3"])
        other = Taker(self.queue)
        other.take(5)
        self.assertEqual(other.seen, [b"0", b"1"])
        self.assertEqual([entry.delivery_count for entry in other.held], [0, 0])

    def test_barred_consumers_are_forgotten(self) -> None:
        """Consumers that bar themselves and go are not remembered."""
        self.put(b"0")
        for _ in range(20):
            taker = Taker(self.queue)
            taker.take(1)
            (entry,) = taker.held
            self.settle(taker, [entry], Modification(undeliverable_here=True))
            self.queue.detach(taker)
            del taker
        gc.collect()
        self.assertEqual(len(entry.barred or ()), 0)

    def test_barred_entries_exhaust(self) -> None:
        """A consumer barred from all remaining entries is notified of the end (F-10)."""
        taker = Taker(self.queue, 1)
        self.put(b"0")
        self.settle(taker, list(taker.held), Modification(undeliverable_here=True))
        before = taker.exhaustions
        taker.take(1)
        self.assertEqual((taker.held, taker.exhaustions), ([], before + 1))

    def test_exhausted(self) -> None:
        """A consumer hears when the queue has nothing more."""
        taker = Taker(self.queue)
        taker.take(1)
        self.assertEqual(taker.exhaustions, 1)
        self.put(b"0", b"1")
        self.assertEqual(taker.exhaustions, 1)
        taker.take(1)
        self.assertEqual((taker.seen, taker.exhaustions), ([b"0", b"1"], 2))

    def test_detached(self) -> None:
        """A detached consumer gets nothing more; detaching twice is harmless."""
        taker = Taker(self.queue, 5)
        self.queue.detach(taker)
        self.queue.detach(taker)
        self.put(b"0")
        self.assertEqual(taker.seen, [])

    def test_settling_inside_a_delivery(self) -> None:
        """A consumer may settle before `deliver` returns."""
        broker = self.broker

        class Hasty(Taker):
            def deliver(self, entries: Any) -> None:
                super().deliver(entries)
                self.room += len(entries)
                self.settle(broker, list(entries), ACCEPTED)
                self.queue.dispatch()

        hasty = Hasty(self.queue, 1)
        self.put(*[b"%d" % number for number in range(20)])
        self.assertEqual(hasty.seen, [b"%d" % number for number in range(20)])
        self.assertEmpty(self.queue)


class OutcomeTests(QueueCase):
    """Effects of outcomes on an entry (O-10 to O-13, O-24)."""

    def taken(self, *bodies: bytes, **kind: Any) -> Taker:
        """Put messages and have them taken."""
        self.put(*bodies, **kind)
        taker = Taker(self.queue)
        taker.take(len(bodies))
        return taker

    def test_accepted(self) -> None:
        """It is gone."""
        taker = self.taken(b"1", b"2")
        self.assertEqual(self.queue.acquired, 2)
        self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEmpty(self.queue)
        self.assertEqual(self.queue.tally.dequeued, 2)

    def test_rejected(self) -> None:
        """It goes to the dead letters, with the reason."""
        taker = self.taken(b"1", ttl=60_000)
        error = ErrorDetails(condition=conditions.NOT_ALLOWED, description="bad taste")
        self.settle(taker, list(taker.held), Rejection(error=error))
        self.assertEmpty(self.queue)
        letters = Taker(self.dead)
        letters.take(1)
        letter = letters.held[0]
        self.assertEqual(body_of(letter), b"1")
        self.assertEqual(
            letter.message.annotations,
            {
                DEAD_LETTER_REASON: Symbol("rejected"),
                DEAD_LETTER_SOURCE: "q",
                DEAD_LETTER_WORDS: "amqp:not-allowed: bad taste",
            },
        )
        self.assertEqual((letter.expires_ms, letter.message.header.ttl), (0, None))
        self.assertTrue(letter.durable)

    def test_rejected_without_dead_letters(self) -> None:
        """It is dropped."""
        self.queue.dead_letter_name = None
        taker = self.taken(b"1")
        self.settle(taker, list(taker.held), Rejection())
        self.assertEmpty(self.queue, self.dead)

    def test_dead_letters_of_the_dead(self) -> None:
        """A dead letter that is rejected in turn does not go round."""
        self.dead.dead_letter_name = "dead"
        taker = self.taken(b"1")
        self.settle(taker, list(taker.held), Rejection())
        last = Taker(self.dead)
        last.take(1)
        self.settle(last, list(last.held), Rejection())
        self.assertEmpty(self.queue, self.dead)

    def test_dead_letters_that_find_no_place(self) -> None:
        """A missing or full dead-letter node costs the letter and nothing else."""
        self.queue.dead_letter_name = "nowhere"
        taker = self.taken(b"1")
        self.settle(taker, list(taker.held), Rejection())
        self.assertEmpty(self.queue, self.dead)

    def test_a_consumer_with_many_words(self) -> None:
        """Rejections in ever different words fill neither the log nor the dead letters."""
        told: list[str] = []

        def observe(event: Any) -> None:
            told.append(event["log_format"].format(**event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        queue = self.broker.create_dynamic()  # without a dead-letter node
        for number in range(100):
            for place in (queue, self.queue):
                self.put(b"x", queue=place)
                taker = Taker(place)
                taker.take(1)
                words = ErrorDetails(condition=f"x:{number}", description="y" * 50_000)
                taker.settle(self.broker, list(taker.held), Rejection(error=words))
                place.detach(taker)
                self.turn()
        lines = [line for line in told if "dropped" in line]
        self.assertEqual(len(lines), 1)
        self.assertLess(len(lines[0]), 1000)
        reader = Taker(self.dead)
        reader.take(1)
        self.assertLess(len(reader.held[0].message.annotations[DEAD_LETTER_WORDS]), 2000)

    def test_return_to(self) -> None:
        """A sender that asked for it gets the message back, once (T-26)."""
        asked: list[str] = []
        back = self.broker.create_dynamic()

        def return_to(address: str) -> Any:
            asked.append(address)
            return back

        self.broker.return_to = return_to
        kind = {RETURN_TO: "me@a.example", TRACE: ["a", "b"], "x-opt-own": 1}
        taker = self.taken(b"1", annotations=kind)
        self.settle(taker, list(taker.held), Rejection())
        self.assertEqual((asked, self.dead.depth), (["me@a.example"], 0))
        returned = Taker(back)
        returned.take(1)
        self.assertEqual(
            returned.held[0].message.annotations,
            {
                Symbol("x-opt-own"): 1,
                DEAD_LETTER_REASON: Symbol("rejected"),
                DEAD_LETTER_SOURCE: "q",
                REPORT_KIND: RETURNED,
            },
        )

    def test_return_to_nowhere(self) -> None:
        """A return address that leads nowhere leaves the message to the dead letters."""

        def return_to(address: str) -> Any:
            raise NotFound("no such node")

        self.broker.return_to = return_to
        taker = self.taken(b"1", annotations={RETURN_TO: "me"})
        self.settle(taker, list(taker.held), Rejection())
        self.assertEqual(self.dead.depth, 1)

    def test_modified(self) -> None:
        """Count and annotations are changed, durably (O-13)."""
        taker = self.taken(b"1", count=2)
        entry = taker.held[0]
        changes = {Symbol("x-opt-try"): 1}
        self.settle(taker, [entry], Modification(delivery_failed=True, annotations=changes))
        self.assertEqual(entry.delivery_count, 3)
        row = self.store.rows("q")[0]
        self.assertEqual((row.delivery_count, row.encoded), (3, entry.message.encoded))
        self.assertEqual(entry.message.annotations, changes)
        self.make()
        again = Taker(self.queue)
        again.take(1)
        self.turn()
        self.assertEqual(again.held[0].delivery_count, 3)
        self.assertEqual(again.held[0].message.annotations, changes)

    def test_count_of_the_sender_outlives_a_restart(self) -> None:
        """A delivery-count that came with the message is not lost when it is loaded."""
        self.put(b"1", count=2)
        self.make()
        taker = Taker(self.queue)
        taker.take(1)
        self.turn()
        self.assertEqual(taker.held[0].delivery_count, 2)

    def test_count_stays_a_uint(self) -> None:
        """A sender that starts the count at its end cannot make it overflow."""
        taker = self.taken(b"1", count=0xFFFFFFFF)
        entry = taker.held[0]
        self.settle(taker, [entry], Modification(delivery_failed=True))
        self.assertEqual(entry.delivery_count, 0xFFFFFFFF)
        entry.message.for_delivery(entry.delivery_count, True, 0, 0)

    def test_max_deliveries(self) -> None:
        """Tried too often is dead-lettered, with the reason."""
        self.make(max_deliveries=2)
        taker = self.taken(b"1")
        for _ in range(2):
            self.settle(taker, list(taker.held), Modification(delivery_failed=True))
            taker.take(1)
        self.assertEqual((self.queue.depth, taker.held), (0, []))
        letters = Taker(self.dead)
        letters.take(1)
        self.assertEqual(
            letters.held[0].message.annotations[DEAD_LETTER_REASON], Symbol("max-deliveries")
        )

    def test_max_deliveries_counts_failures_only(self) -> None:
        """Barring a consumer is no failed delivery."""
        self.make(max_deliveries=2)
        taker = self.taken(b"1", count=2)
        self.settle(taker, list(taker.held), Modification(undeliverable_here=True))
        self.assertEqual((self.queue.depth, self.dead.depth), (1, 0))


class BoundsTests(QueueCase):
    """Capacity and memory (Q-15)."""

    def test_capacity(self) -> None:
        """Available, acquired and arriving messages count; the next is refused."""
        self.make(capacity=3)
        self.put(b"1")
        Taker(self.queue).take(1)
        self.put(b"2")
        batch = self.broker.begin()
        self.queue.put(message(), batch, ORIGIN)
        self.assertEqual(self.queue.space(), 0)
        error = self.assertRaises(ResourceLimitExceeded, self.queue.put, message(), batch, ORIGIN)
        self.assertEqual(error.info, {"limiter": "capacity"})
        batch.commit()
        self.turn()
        self.assertEqual(self.queue.depth, 3)

    def test_space_is_told(self) -> None:
        """A waiter for space is notified once, when there is some."""
        self.make(capacity=1)
        told = []

        class Sender:
            def tell(self) -> None:
                told.append(self)

        sender, gone = Sender(), Sender()
        self.put(b"1")
        for _ in range(3):
            self.queue.when_space(sender.tell)
            self.queue.when_space(gone.tell)
        del gone
        taker = Taker(self.queue)
        taker.take(1)
        self.turn()
        self.assertEqual(told, [])
        self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEqual(told, [sender])
        self.put(b"2")
        self.assertEqual(self.bodies(self.queue), [b"2"])
        self.assertEqual(told, [sender])

    def test_waiting_leaves_nothing_behind(self) -> None:
        """Links that come and go while a queue is full are not remembered."""

        class Sender:
            def tell(self) -> None:
                """Nothing."""

        self.make(capacity=1)
        self.put(b"1")
        for _ in range(100):
            self.queue.when_space(Sender().tell)
        self.assertLessEqual(len(self.queue._space.waiters), 1)

    def test_failed_commit_makes_space(self) -> None:
        """A waiter behind a failing batch is notified of the space."""
        self.make(capacity=1)
        told = []

        class Sender:
            def tell(self) -> None:
                told.append(1)

        sender = Sender()
        self.store.is_failing = True
        done = put(self.broker, self.queue, message())
        self.queue.when_space(sender.tell)
        self.turn()
        self.failureResultOf(done, StoreBroken)
        self.assertEqual(told, [1])

    def test_failed_commit(self) -> None:
        """A batch that fails leaves the queue as it was, paging or not."""
        for limit in (100, 1):
            self.make(resident_messages=limit)
            self.store.is_failing = True
            done = put(self.broker, self.queue, message(b"1"), message(b"2"))
            self.turn()
            self.failureResultOf(done, StoreBroken)
            self.store.is_failing = False
            self.assertEmpty(self.queue)
            self.put(b"3", b"4", b"5")
            self.assertEqual(self.queue.depth, 3)
            self.assertEqual(self.bodies(self.queue), [b"3", b"4", b"5"])
            self.assertEmpty(self.queue)

    def test_much_waits_for_one_commit(self) -> None:
        """A transaction of 50,000 outcomes does not cost the square of it."""
        batch = self.broker.begin()
        told: list[int] = []
        gc.disable()  # the rest of the process is not what is looked at
        self.addCleanup(gc.enable)
        begun = time.thread_time()
        for number in range(50_000):
            batch.when_committed(partial(told.append, number))
            batch.when_failed(partial(told.append, -1))
        self.assertLess(time.thread_time() - begun, 4)  # it is 0.02; the square is 8
        batch.commit()
        self.turn()
        self.assertEqual(told, list(range(50_000)))

    def test_dynamic_nodes_are_bounded(self) -> None:
        """A node that lives in memory takes no more than there is memory for."""
        queue = self.broker.create_dynamic()
        batch = self.broker.begin()
        body = bytes(10 * 1024 * 1024)
        for _ in range(3):
            queue.put(message(body), batch, ORIGIN)
        self.assertRaises(ResourceLimitExceeded, queue.put, message(body), batch, ORIGIN)
        queue.put(message(b"small"), batch, ORIGIN)

    def test_budget(self) -> None:
        """All queues together keep to the memory that they share."""
        budget = MemoryBudget(1000)
        self.make(budget)
        self.put(bytes(600))
        self.put(bytes(600), queue=self.dead)
        self.assertEqual((self.queue.resident, self.dead.resident), (1, 0))
        self.assertLessEqual(budget.used_bytes, 1000)
        self.assertEqual(len(self.bodies(self.dead)), 1)
        self.assertEqual(len(self.bodies(self.queue)), 1)
        self.assertEqual(budget.used_bytes, 0)


class LifeTests(QueueCase):
    """Time to live (D-07 to D-11)."""

    def test_expired_by_the_timer(self) -> None:
        """An entry is dead-lettered when it expires, without a consumer."""
        self.put(b"1", ttl=1000)
        self.put(b"2")
        self.clock.advance(0.9)
        self.assertEqual(self.queue.depth, 2)
        self.clock.advance(0.2)
        self.turn()
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (1, 1))
        letters = Taker(self.dead)
        letters.take(1)
        reason = letters.held[0].message.annotations[DEAD_LETTER_REASON]
        self.assertEqual(reason, Symbol("expired"))
        self.assertEqual(self.bodies(self.queue), [b"2"])

    def test_expired_on_a_full_disk(self) -> None:
        """Its dead letter is there when there is room; no row stays, and nobody is alarmed."""
        self.put(b"1", ttl=1000)
        self.store.is_full = True
        self.clock.advance(1.1)
        self.turn()
        self.assertEqual((list(self.broker.gate.reasons), self.queue.depth), ([STORE], 0))
        self.assertEqual(len(self.store.rows("q")), 1)
        self.broker.gate.open(STORE)
        self.turn()
        self.assertFalse(self.broker.gate.is_open)
        self.store.is_full = False
        self.broker.gate.open(STORE)
        self.turn()
        self.assertEmpty(self.queue)
        self.assertEqual((self.bodies(self.dead), self.queue.tally.expired), ([b"1"], 1))

    def test_ended_on_a_disk_that_fails_then(self) -> None:
        """The caller gets the store's error, once, as for any other commit."""
        self.put(b"1")
        self.store.is_full = True
        done = self.queue.expire(ErrorDetails(condition=conditions.RESOURCE_DELETED))
        self.turn()
        self.assertNoResult(done)
        self.store.is_failing = True
        self.broker.gate.open(STORE)
        self.turn()
        self.assertIn("disk is full", str(self.failureResultOf(done, StoreBroken).value))

    def test_never_delivered_late(self) -> None:
        """An entry whose time has come is not delivered, timer or no timer."""
        self.put(b"1", ttl=10)
        self.clock.rightNow += 0.02
        taker = Taker(self.queue)
        taker.take(1)
        self.turn()
        self.assertEqual((taker.seen, self.dead.depth), ([], 1))

    def test_expired_ones_take_no_room(self) -> None:
        """A consumer gets what it has room for, past those whose time has come."""
        self.put(b"1")
        self.put(b"2", ttl=10)
        self.put(b"3")
        self.clock.rightNow += 0.02
        taker = Taker(self.queue)
        taker.take(2)
        self.assertEqual(taker.seen, [b"1", b"3"])

    def test_acquired_stands(self) -> None:
        """A delivery in progress is not touched; released after its time, it is gone."""
        self.put(b"1", ttl=100)
        taker = Taker(self.queue)
        taker.take(1)
        self.clock.advance(1)
        self.turn()
        self.assertEqual(self.queue.acquired, 1)
        self.settle(taker, list(taker.held), RELEASED)
        taker.take(1)
        self.turn()
        self.assertEqual((taker.seen, self.queue.depth, self.dead.depth), ([b"1"], 0, 1))

    def test_of_the_node(self) -> None:
        """The node's own limit applies to messages that live longer."""
        self.make(ttl_ms=500)
        self.put(b"1")
        self.put(b"2", ttl=10_000)
        self.put(b"3", ttl=100)
        self.clock.advance(0.2)
        self.turn()
        self.assertEqual(self.queue.depth, 2)
        self.clock.advance(0.4)
        self.turn()
        self.assertEqual((self.queue.depth, self.dead.depth), (0, 3))

    def test_absolute(self) -> None:
        """So does absolute-expiry-time, also one long before; a dead letter does not die again."""
        self.put(b"1", expiry=Timestamp(EPOCH_MS + 1000))
        self.put(b"2", expiry=Timestamp(-7))
        self.clock.advance(0.1)
        self.turn()
        self.assertEqual(self.queue.depth, 1)
        self.clock.advance(1)
        self.turn()
        self.assertEqual(self.queue.depth, 0)
        self.assertEqual(self.bodies(self.dead), [b"2", b"1"])

    def test_paged(self) -> None:
        """Entries that stand in the store only expire as well."""
        self.make(resident_messages=1)
        self.put(b"0")
        self.put(b"1", ttl=1000)
        self.put(b"2", ttl=100_000)
        self.put(b"3")
        self.assertEqual(self.queue.resident, 1)
        self.clock.advance(1.1)
        self.turn()
        self.assertEqual((self.queue.depth, self.dead.depth), (3, 1))
        self.assertEqual(self.bodies(self.queue), [b"0", b"2", b"3"])
        self.assertEmpty(self.queue)

    def test_after_a_restart(self) -> None:
        """Entries that expired during a stop of the daemon go when the queue is back."""
        self.put(b"1", ttl=1000)
        self.put(b"2", ttl=90_000)
        self.broker.stop()
        self.clock.advance(50)
        self.make()
        self.clock.advance(0.1)
        self.turn()
        self.assertEqual((self.queue.depth, self.dead.depth), (1, 1))
        self.clock.advance(120)
        self.turn()
        self.assertEqual((self.queue.depth, self.dead.depth), (0, 2))

    def test_age_after_a_restart(self) -> None:
        """The age of the oldest is known before anything is read: also of another priority."""
        self.assertIsNone(self.queue.oldest_arrival_ms)
        self.put(b"1")
        begun = self.queue.oldest_arrival_ms
        self.clock.advance(20)
        self.put(b"2", b"3", priority=7)
        self.broker.stop()
        self.clock.advance(50)
        self.make(resident_messages=1)
        self.assertEqual(self.queue.oldest_arrival_ms, begun)
        self.assertEqual(len(self.bodies(self.queue)), 3)
        self.assertIsNone(self.queue.oldest_arrival_ms)

    def test_age_of_what_stands_in_the_store(self) -> None:
        """A consumer has all that is in memory: what is paged is not older than it says."""
        self.make(resident_messages=1)
        for number in range(3):
            self.put(b"%d" % number)
            self.clock.advance(10)
        first = self.queue.oldest_arrival_ms
        assert first is not None
        taker = Taker(self.queue)
        taker.take(1)
        self.assertEqual(self.queue.oldest_arrival_ms, first + 10_000)

    def test_deferred(self) -> None:
        """Waiting for another attempt does not lengthen a life."""
        self.put(b"1", ttl=1000)
        taker = Taker(self.queue)
        taker.take(1)
        self.clock.advance(0.5)
        # The timer for it is gone meanwhile, as it is when others have expired.
        self.queue.stop()
        self.queue.defer(taker.held, 100)
        self.clock.advance(0.6)
        self.turn()
        self.assertEqual((self.queue.depth, self.dead.depth), (0, 1))

    def test_far_away(self) -> None:
        """The largest times there are do no harm."""
        self.put(b"1", ttl=0xFFFFFFFF, expiry=Timestamp((1 << 63) - 1))
        self.assertEqual(self.bodies(self.queue), [b"1"])


class DeferralTests(QueueCase):
    """Entries that wait for their next attempt."""

    def test_waits(self) -> None:
        """Each waits its time, and then has its old place."""
        self.put(b"1", b"2", b"3")
        taker = Taker(self.queue)
        taker.take(2)
        self.queue.defer([taker.held[0]], 5)
        self.queue.defer([taker.held[1]], 1)
        self.assertEqual((self.queue.deferred, self.queue.acquired, self.queue.depth), (2, 0, 3))
        self.clock.advance(1)
        self.assertEqual(self.queue.deferred, 1)
        taker.take(1)
        self.assertEqual(taker.seen[-1], b"2")
        self.queue.undefer(everything=True)
        taker.take(2)
        self.assertEqual(taker.seen[-2:], [b"1", b"3"])
        self.assertEqual(self.queue.resident_bytes, 0)

    def test_lowest_id(self) -> None:
        """The floor of a stream knows the deferred, the paged and those on their way."""
        self.make(resident_messages=1)
        self.put(b"1", b"2", b"3")
        rows = [row.id for row in self.store.rows("q")]
        self.assertEqual(self.queue.lowest_id, rows[0])
        taker = Taker(self.queue)
        taker.take(1)
        self.assertTrue(rows[0] < self.queue.lowest_id <= rows[1])
        self.queue.defer(taker.held, 5)
        self.assertEqual(self.queue.lowest_id, rows[0])
        self.assertTrue(rows[0] < self.queue.next_id <= rows[1])
        self.make()
        before = self.store.next_id()
        put(self.broker, self.dead, message())
        self.assertTrue(before < self.dead.lowest_id)
        self.turn()
        self.assertTrue(before < self.dead.lowest_id)


class DirectoryTests(QueueCase):
    """Names, declarations, dynamic nodes (A-04, A-06, A-08, N-19, N-22)."""

    def test_names(self) -> None:
        """Nodes and aliases lead to nodes; other spellings were read by the router."""
        self.broker.declare([node("q"), node("a b")], {"alias": "q"})
        self.assertIs(self.broker.target("alias"), self.queue)
        self.assertIs(self.broker.source("alias"), self.queue)
        self.assertEqual(self.broker.target("a b").name, "a b")
        for name in ("nowhere", "/queues/q"):
            self.assertRaises(NotFound, self.broker.target, name)

    def test_declarations_are_checked(self) -> None:
        """An alias that hides a node or leads nowhere is refused, both in one go."""
        error = self.assertRaises(
            ConfigError, self.broker.declare, [node("q")], {"q": "q", "x": "nowhere"}
        )
        self.assertEqual(len(error.problems), 2)

    def test_retiring(self) -> None:
        """A node that is not declared any more goes when it is empty, and only then."""
        self.put(b"1")
        self.broker.declare([node("new")], {})
        self.assertEqual(set(self.broker.nodes), {"q", "new"})
        self.assertEqual(self.bodies(self.queue), [b"1"])
        self.broker.declare([node("new")], {})
        self.assertEqual(set(self.broker.nodes), {"new"})

    def test_dynamic(self) -> None:
        """A dynamic node keeps nothing on disk, and goes with what is on it."""
        queue = self.broker.create_dynamic()
        self.put(b"1", queue=queue)
        self.assertEqual(self.store.rows(queue.name), [])
        self.assertIs(self.broker.source(queue.name), queue)
        batch = self.broker.begin()
        queue.put(message(b"2"), batch, ORIGIN)
        self.broker.delete(queue)
        self.successResultOf(self.settled(batch.commit()))
        self.assertRaises(NotFound, self.broker.source, queue.name)
        self.assertRaises(ResourceDeleted, queue.put, message(), self.broker.begin(), ORIGIN)
        self.assertEqual((queue.depth, self.broker.budget.used_bytes), (0, 0))
        self.broker.delete(queue)

    def test_timers_of_a_deleted_queue(self) -> None:
        """A queue that is gone leaves no timer: what watches over lives would hold it for long."""
        queue = self.broker.create_dynamic()
        self.put(b"1", queue=queue, ttl=100_000)
        self.assertNotEqual(self.clock.getDelayedCalls(), [])
        self.broker.delete(queue)
        self.turn()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def settled(self, deferred: Any) -> Any:
        """Let it fire."""
        self.turn()
        return deferred

    def test_declared_nodes_are_not_deleted(self) -> None:
        """Only dynamic nodes go with their links."""
        self.broker.delete(self.queue)
        self.assertIs(self.broker.target("q"), self.queue)

    def test_internal(self) -> None:
        """A relay queue is not addressable, and is recovered like a node."""
        queue = self.broker.make_internal("amqp$out/b", self.queue.limits)
        self.assertIs(self.broker.make_internal("amqp$out/b", self.queue.limits), queue)
        self.put(b"1", queue=queue)
        self.assertRaises(NotAllowed, self.broker.target, "amqp$out/b")
        self.make()
        self.assertEqual(list(self.broker.recovered_nodes.messages), ["amqp$out/b"])
        again = self.broker.make_internal("amqp$out/b", self.queue.limits)
        self.assertEqual((again.depth, self.broker.recovered_nodes.messages), (1, {}))
        self.assertEqual(self.bodies(again), [b"1"])

    def test_timers_end(self) -> None:
        """A stopped broker leaves no timer behind."""
        self.put(b"1", ttl=1000)
        taker = Taker(self.queue)
        self.put(b"2")
        taker.take(2)
        self.queue.defer(taker.held, 7)
        self.broker.stop()
        self.turn()
        self.assertEqual(self.clock.getDelayedCalls(), [])
