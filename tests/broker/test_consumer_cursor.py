# SPDX-License-Identifier: Apache-2.0
"""Priorities, consumers with filters, and browsers of one queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker import consumer_cursor as feed_module
from amqproute.broker import entry_list as line_module
from amqproute.broker import stored_backlog as backlog_module
from amqproute.broker.link_selection import LinkSelection
from amqproute.broker.priority_queues import level_of
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.filters.registry import SELECTOR, read_filters
from amqproute.outcomes import Acceptance, Modification, Rejection, Release
from amqproute.wire.amqp10.types import Described, Symbol
from tests.support.fakes import ORIGIN, KeptStore, Taker, body_of, make_broker, message, node, put
from tests.support.fakes import settle_down as turn

ACCEPTED = Acceptance()
RELEASED = Release()


def bodies(*numbers: int) -> list[bytes]:
    """The bodies of messages with these numbers."""
    return [b"%d" % number for number in numbers]


def is_even(entry: Entry) -> bool:
    """A filter."""
    return int(body_of(entry)) % 2 == 0


class FeedTestCase(SynchronousTestCase):
    """A queue with little memory."""

    kept = 1000

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.boot()

    def boot(self) -> None:
        """Build a broker over what the store has."""
        self.broker = make_broker(self.clock, self.store, node("q", resident_messages=self.kept))
        self.queue = self.broker.nodes["q"]

    def put(self, *numbers: int, priority: int = 4) -> None:
        """Put durable messages."""
        made = [message(body, priority=priority) for body in bodies(*numbers)]
        put(self.broker, self.queue, *made)
        turn(self.clock)

    def taker(
        self, room: int, selects: Callable[[Entry], bool] | None = None, copies: bool = False
    ) -> Taker:
        """Attach a consumer."""
        taker = Taker(self.queue, room, selects=selects, copies=copies)
        self.queue.dispatch()
        turn(self.clock)
        return taker

    def settle(self, taker: Taker, entries: list[Entry], outcome: Any) -> None:
        """Give entries back."""
        taker.settle(self.broker, entries, outcome)
        turn(self.clock)


class Asked:
    """A filter that notes of which entries it is asked."""

    def __init__(self, step: int = 1, cost: int = 1) -> None:
        self.step = step
        self.cost = cost
        self.asked: list[int] = []

    def __call__(self, entry: Entry) -> bool:
        number = int(body_of(entry))
        self.asked.append(number)
        return number % self.step == 0


class TidyTests(FeedTestCase):
    """A long list of waiting matches is tidied."""

    def test_order(self) -> None:
        """With some entries taken by others the rest keeps its order."""
        self.patch(feed_module, "LEAST_TIDIED", 7)
        self.broker = make_broker(self.clock, self.store, node("q", priorities=10))
        self.queue = self.broker.nodes["q"]
        late = Taker(self.queue, 0, selects=Asked())
        for number in (1, 5, 2, 6, 7, 3, 4):
            self.put(number, priority=9 - number)
        plain = self.taker(1)
        self.assertEqual(plain.seen, bodies(1))
        self.put(8, priority=1)
        late.take(9)
        turn(self.clock)
        self.assertEqual(late.seen, bodies(*range(2, 9)))


class LateTests(FeedTestCase):
    """Filters are asked so many times in one turn, and go on in the next."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(feed_module, "AT_ONCE_TESTS", 10)
        self.patch(backlog_module, "AT_ONCE_TESTS", 10)

    def one_turn(self) -> None:
        """Run what is due, and nothing that comes up meanwhile."""
        due = [call for call in self.clock.calls if call.time <= self.clock.seconds()]
        for call in due:
            self.clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)

    def test_attach_to_a_long_queue(self) -> None:
        """Entries in memory are examined in turns, each once; the order stays."""
        self.put(*range(45))
        selects = Asked(step=10)
        taker = Taker(self.queue, 9, selects=selects)
        self.assertEqual(len(selects.asked), 10)
        self.queue.dispatch()
        counts = []
        while selects.asked[-1] != 44:
            self.assertEqual((taker.seen, taker.exhaustions), ([], 0))
            self.one_turn()
            counts.append(len(selects.asked))
        self.assertEqual(counts, [20, 30, 40, 45])
        self.assertEqual(taker.seen, bodies(0, 10, 20, 30, 40))
        self.assertEqual(selects.asked, list(range(45)))
        self.assertGreater(taker.exhaustions, 0)

    def test_cost(self) -> None:
        """An expensive filter has fewer entries in each turn."""
        self.put(*range(20))
        selects = Asked(cost=5)
        Taker(self.queue, 9, selects=selects)
        self.assertEqual(len(selects.asked), 2)
        self.queue.dispatch()
        self.one_turn()
        self.assertEqual(len(selects.asked), 4)

    def test_arrivals_wait_behind(self) -> None:
        """Entries that arrive meanwhile come after those that have not been examined yet."""
        self.put(*range(25))
        taker = Taker(self.queue, 99, selects=Asked())
        self.put(25, 26)
        turn(self.clock)
        self.assertEqual(taker.seen, bodies(*range(27)))

    def test_taken_meanwhile(self) -> None:
        """Entries taken by others are not delivered a second time."""
        self.put(*range(25))
        late = Taker(self.queue, 0, selects=Asked())
        plain = self.taker(20)
        self.assertEqual(plain.seen, bodies(*range(20)))
        first, second = plain.held[:5], plain.held[5:10]
        self.settle(plain, first, ACCEPTED)
        plain.room = 0
        self.settle(plain, second, RELEASED)
        late.take(99)
        turn(self.clock)
        self.assertEqual(sorted(map(int, late.seen)), [*range(5, 10), *range(20, 25)])

    def test_drained_while_behind(self) -> None:
        """A draining consumer learns of the end, though nothing is available any more."""
        self.put(*range(25))
        late = Taker(self.queue, 5, selects=Asked(step=100))
        purged = self.queue.purge()
        turn(self.clock)
        self.assertEqual(self.successResultOf(purged), 25)
        self.queue.dispatch()
        turn(self.clock)
        self.assertGreater(late.exhaustions, 0)

    def test_browser(self) -> None:
        """It is shown each entry once, whatever comes back meanwhile."""
        self.put(*range(25))
        plain = self.taker(5)
        browser = Taker(self.queue, 99, selects=Asked(), copies=True)
        self.settle(plain, plain.held[:5], RELEASED)
        plain.room = 0
        turn(self.clock)
        self.assertEqual(sorted(map(int, browser.seen)), list(range(25)))

    def test_many_filters(self) -> None:
        """With many filters to evaluate, arrivals are examined in later turns."""
        takers = [Taker(self.queue, 99, selects=Asked(cost=30)) for _ in range(3)]
        made = [message(body) for body in bodies(*range(20))]
        put(self.broker, self.queue, *made)
        for _ in range(100):
            before = sum(len(self.asked_of(each)) for each in takers)
            self.one_turn()
            self.assertLessEqual(sum(len(self.asked_of(each)) for each in takers) - before, 10)
        turn(self.clock)
        self.assertEqual(sorted(int(body) for each in takers for body in each.seen), [*range(20)])

    def asked_of(self, taker: Taker) -> list[int]:
        selects: Any = self.queue.state.consumers.cursors[taker].selects
        asked: list[int] = selects.asked
        return asked


class PriorityTests(FeedTestCase):
    """Higher priorities overtake; within one, order holds (D-05, D-06, W-19)."""

    def test_overtaking(self) -> None:
        """Low A, high B, high C: delivered B, C, A."""
        self.put(1, priority=2)
        self.put(2, 3, priority=8)
        self.assertEqual(self.taker(9).seen, bodies(2, 3, 1))

    def test_between_consumers(self) -> None:
        """The high ones go first, whoever takes them."""
        self.put(1, 2)
        self.put(3, 4, priority=9)
        first, second = self.taker(0), self.taker(0)
        first.room = second.room = 1
        self.queue.dispatch()
        self.assertEqual(sorted(first.seen + second.seen), bodies(3, 4))

    def test_paged(self) -> None:
        """Each priority pages for itself, and comes back after a restart."""
        self.kept = 2
        self.boot()
        self.put(*range(10))
        self.put(*range(10, 20), priority=9)
        self.boot()
        taker = self.taker(20)
        turn(self.clock)
        self.assertEqual(taker.seen, bodies(*range(10, 20), *range(10)))

    def test_one_level(self) -> None:
        """With one priority the queue is first in, first out."""
        self.broker = make_broker(self.clock, self.store, node("q", priorities=1))
        self.queue = self.broker.nodes["q"]
        self.put(1, priority=0)
        self.put(2, priority=9)
        self.assertEqual(self.taker(9).seen, bodies(1, 2))

    def test_levels(self) -> None:
        """With n levels the outermost priorities are equivalent (part 3 §3.2.1)."""
        self.assertEqual([level_of(each, 10) for each in range(10)], list(range(10)))
        self.assertEqual(len({level_of(each, 2) for each in range(10)}), 2)
        self.assertEqual(level_of(4, 2), level_of(0, 2))
        self.assertEqual(level_of(5, 2), level_of(9, 2))
        self.assertEqual(level_of(255, 10), 9)
        for levels in range(1, 11):
            self.assertEqual(len({level_of(each, levels) for each in range(10)}), levels)


class FilterTests(FeedTestCase):
    """A consumer with a filter has a head of its own (Q-31, L-02, W-06)."""

    def test_past_the_head(self) -> None:
        """It takes what it selects; the rest stays for others, in order."""
        self.put(1, 2, 3, 4)
        even = self.taker(9, is_even)
        self.assertEqual(even.seen, bodies(2, 4))
        self.assertEqual(self.taker(9).seen, bodies(1, 3))
        self.assertEqual(self.queue.available, 0)

    def test_arrivals(self) -> None:
        """Later arrivals are examined once."""
        calls: list[bytes] = []

        def selects(entry: Entry) -> bool:
            calls.append(body_of(entry))
            return is_even(entry)

        self.put(1, 2)
        taker = self.taker(1, selects)
        self.put(3, 4, 5, 6)
        self.assertEqual(taker.seen, bodies(2))
        taker.take(9)
        self.assertEqual(taker.seen, bodies(2, 4, 6))
        self.assertEqual(calls, bodies(1, 2, 3, 4, 5, 6))

    def test_shared_with_others(self) -> None:
        """No consumer gets an entry of another, and nothing waits for a filter without room."""
        self.put(*range(10))
        even = self.taker(0, is_even)
        everything = self.taker(3)
        self.assertEqual(everything.seen, bodies(0, 1, 2))
        even.take(9)
        self.assertEqual(even.seen, bodies(4, 6, 8))
        everything.take(9)
        self.assertEqual(everything.seen, bodies(0, 1, 2, 3, 5, 7, 9))

    def test_given_back(self) -> None:
        """A released entry has its old place again, for everybody."""
        self.put(1, 2, 3)
        even = self.taker(9, is_even)
        even.room = 0
        self.settle(even, list(even.held), Release())
        self.assertEqual(self.taker(9).seen, bodies(1, 2, 3))

    def test_given_back_to_a_filter(self) -> None:
        """It is offered again to a consumer that selects it."""
        self.put(1, 2)
        everything = self.taker(9)
        even = self.taker(9, is_even)
        everything.room = 0
        self.settle(everything, list(everything.held), Release())
        self.assertEqual(even.seen, bodies(2))

    def test_bars_itself(self) -> None:
        """Undeliverable here keeps an entry from the one, not from others."""
        self.put(2)
        even, other = self.taker(9, is_even), self.taker(0, is_even)
        self.settle(even, list(even.held), Modification(undeliverable_here=True))
        self.assertEqual(even.seen, bodies(2))
        other.take(1)
        self.assertEqual(other.seen, bodies(2))

    def test_exhausted(self) -> None:
        """It is told when nothing is left for it, though others' messages are."""
        self.put(1, 3)
        self.assertGreater(self.taker(1, is_even).exhaustions, 0)

    def test_expired(self) -> None:
        """A filter does not deliver expired entries either."""
        put(self.broker, self.queue, message(b"2", ttl=1000), message(b"4"))
        turn(self.clock)
        even = self.taker(0, is_even)
        self.clock.advance(2)
        even.take(9)
        self.assertEqual(even.seen, bodies(4))

    def test_priorities(self) -> None:
        """A filter's own head is ordered by priority too."""
        self.put(2, 4)
        self.put(6, priority=9)
        self.assertEqual(self.taker(9, is_even).seen, bodies(6, 2, 4))


class PagedFilterTests(FeedTestCase):
    """Filters on a backlog that stands in the store."""

    kept = 3

    def setUp(self) -> None:
        super().setUp()
        self.patch(line_module, "LOAD_MESSAGES", 4)

    def test_scan(self) -> None:
        """It finds what it selects in the store, and takes only that."""
        self.put(*range(50))
        taker = self.taker(99, lambda entry: int(body_of(entry)) % 10 == 7)
        turn(self.clock, 50)
        self.assertEqual(taker.seen, bodies(7, 17, 27, 37, 47))
        self.assertEqual((self.queue.available, self.queue.acquired), (45, 5))
        rest = self.taker(99)
        turn(self.clock, 50)
        self.assertEqual(rest.seen, bodies(*(n for n in range(50) if n % 10 != 7)))
        self.assertEqual(self.queue.available, 0)

    def test_each_once(self) -> None:
        """A backlog is examined once, whatever comes and goes: no scan for each message."""
        self.put(*range(60))
        looked: list[int] = []

        def selects(entry: Entry) -> bool:
            looked.append(int(body_of(entry)))
            return False

        self.taker(9, selects)
        turn(self.clock, 60)
        for number in range(60, 80):
            self.put(number)
            turn(self.clock, 4)
        self.assertEqual(looked, list(range(80)))

    def test_given_back(self) -> None:
        """An entry that was found in the store and released comes again, once."""
        self.put(*range(30))
        taker = self.taker(1, lambda entry: int(body_of(entry)) == 20)
        turn(self.clock, 30)
        self.assertEqual(taker.seen, bodies(20))
        taker.room = 0
        self.settle(taker, list(taker.held), Release())
        rest = self.taker(99)
        turn(self.clock, 30)
        self.assertEqual(sorted(rest.seen, key=int), bodies(*range(30)))

    def test_restart(self) -> None:
        """Unsettled entries of a filter are available again after a restart."""
        self.put(*range(30))
        taker = self.taker(9, is_even)
        turn(self.clock, 30)
        self.settle(taker, taker.held[:5], Acceptance())
        self.boot()
        rest = self.taker(99)
        turn(self.clock, 30)
        self.assertEqual(rest.seen, bodies(*(n for n in range(30) if n not in (0, 2, 4, 6, 8))))

    @given(
        st.lists(
            st.one_of(
                st.tuples(st.just("put"), st.integers(1, 6)),
                st.tuples(st.just("even"), st.integers(1, 4)),
                st.tuples(st.just("all"), st.integers(1, 4)),
                st.tuples(st.just("accept"), st.booleans()),
                st.tuples(st.just("release"), st.booleans()),
                st.tuples(st.just("boot"), st.none()),
            ),
            max_size=40,
        )
    )
    def test_nothing_lost_nothing_twice(self, steps: list[tuple[str, Any]]) -> None:
        """With two consumers, one with a filter, and restarts in any order each message is settled
        once, and all can be had in the end."""
        self.clock = Clock()
        self.store = KeptStore(self.clock)
        self.boot()
        even, rest = self.taker(0, is_even), self.taker(0)
        number = 0
        accepted: list[bytes] = []
        for step, value in steps:
            if step == "put":
                self.put(*range(number, number + value))
                number += value
            elif step == "boot":
                self.boot()
                even, rest = self.taker(0, is_even), self.taker(0)
            elif step in ("even", "all"):
                (even if step == "even" else rest).take(value)
            else:
                taker = even if value else rest
                held = list(taker.held)
                if step == "accept":
                    accepted += [body_of(entry) for entry in held]
                    self.settle(taker, held, Acceptance())
                else:
                    taker.room = 0
                    self.settle(taker, held, Release())
            turn(self.clock, 6)
        held = [body_of(entry) for entry in [*even.held, *rest.held]]
        everything = self.taker(1000)
        turn(self.clock, 60)
        self.assertEqual(
            sorted([*accepted, *held, *everything.seen], key=int), bodies(*range(number))
        )
        self.assertEqual(len(everything.held), len(everything.seen))


class BrowserTests(FeedTestCase):
    """A browser sees and takes nothing (L-23 to L-28, S-13, W-12)."""

    def browser(self, room: int = 99) -> Taker:
        """Attach one."""
        return self.taker(room, copies=True)

    def test_sees_all(self) -> None:
        """It is shown everything, once, and later arrivals; the queue is as it was."""
        self.put(1, 2, 3)
        browser = self.browser()
        self.put(4)
        self.assertEqual(browser.seen, bodies(1, 2, 3, 4))
        self.assertEqual((self.queue.available, self.queue.acquired), (4, 0))
        self.assertEqual(self.taker(9).seen, bodies(1, 2, 3, 4))

    def test_outcomes(self) -> None:
        """Accepting and rejecting confirm; releasing shows it again, on this link only."""
        self.put(1, 2, 3)
        browser, other = self.browser(), self.browser()
        one, two, three = browser.held
        self.settle(browser, [one], Acceptance())
        self.settle(browser, [two], Rejection())
        self.settle(browser, [three], Release())
        self.assertEqual(browser.seen, bodies(1, 2, 3, 3))
        self.assertEqual(other.seen, bodies(1, 2, 3))
        self.assertEqual(self.queue.available, 3)

    def test_taken_ones(self) -> None:
        """An entry held by a consumer is not shown until it comes back, and then once."""
        self.put(1, 2, 3)
        consumer = self.taker(1)
        browser = self.browser()
        self.assertEqual(browser.seen, bodies(2, 3))
        consumer.room = 0
        self.settle(consumer, list(consumer.held), Release())
        self.assertEqual(browser.seen, bodies(2, 3, 1))
        again = self.taker(1)
        again.room = 0
        self.settle(again, list(again.held), Release())
        self.assertEqual(browser.seen, bodies(2, 3, 1))

    def test_gone(self) -> None:
        """Consumed entries are not shown to a new browser."""
        self.put(1, 2, 3)
        consumer = self.taker(1)
        self.settle(consumer, list(consumer.held), Acceptance())
        self.assertEqual(self.browser().seen, bodies(2, 3))

    def test_paged(self) -> None:
        """It reads a backlog in the store, a page at a time, and leaves it there."""
        self.kept = 3
        self.boot()
        self.patch(line_module, "LOAD_MESSAGES", 4)
        self.put(*range(30))
        browser = self.browser(7)
        turn(self.clock, 20)
        self.assertEqual(browser.seen, bodies(*range(7)))
        browser.take(99)
        turn(self.clock, 40)
        self.assertEqual(browser.seen, bodies(*range(30)))
        self.assertEqual(self.queue.available, 30)

    def test_with_a_filter(self) -> None:
        """A browser may have a filter."""
        self.put(1, 2, 3, 4)
        self.assertEqual(self.taker(9, is_even, copies=True).seen, bodies(2, 4))

    def test_beside_a_consumer(self) -> None:
        """Browsing does not keep a consumer from anything."""
        self.browser(0)
        consumer = self.taker(9)
        self.put(1, 2)
        self.assertEqual(consumer.seen, bodies(1, 2))

    def test_not_committed(self) -> None:
        """Entries whose removal failed are shown when they come back; to each browser, once."""
        self.put(1, 2)
        consumer = self.taker(1)
        early = self.browser()
        entries = list(consumer.held)
        batch = self.broker.begin()
        self.queue.settle(entries, ACCEPTED, batch, consumer)
        self.store.is_failing = True
        failed = batch.commit()
        late = self.browser()
        turn(self.clock)
        self.failureResultOf(failed, StoreError)
        self.store.is_failing = False
        self.queue.retake(entries)
        for _ in range(2):
            self.settle(consumer, entries, RELEASED)
            consumer.take(1)
            entries = list(consumer.held)
        for browser in (early, late):
            self.assertEqual(browser.seen, bodies(2, 1))

    def test_not_committed_after_it_was_shown(self) -> None:
        """A failed removal does not show an entry to a browser again."""
        self.kept = 2
        self.boot()
        self.patch(feed_module, "AHEAD_MESSAGES", 1)
        self.patch(line_module, "LOAD_MESSAGES", 2)
        self.put(*range(6))
        consumer = self.taker(1, lambda entry: body_of(entry) == b"4")
        browser = self.browser(0)
        self.settle(consumer, list(consumer.held), RELEASED)
        browser.take(99)
        consumer.take(1)
        entries = list(consumer.held)
        batch = self.broker.begin()
        self.queue.settle(entries, ACCEPTED, batch, consumer)
        self.store.is_failing = True
        batch.commit().addErrback(lambda _: None)
        turn(self.clock)
        self.store.is_failing = False
        self.queue.retake(entries)
        self.settle(consumer, entries, RELEASED)
        self.assertEqual(sorted(browser.seen), bodies(*range(6)))

    def test_nobody_attached_holds_it(self) -> None:
        """A link that has gone may hold entries still (parked, in a transaction)."""
        self.put(1, 2)
        consumer = self.taker(1)
        self.queue.detach(consumer)
        browser = self.browser()
        self.settle(consumer, list(consumer.held), RELEASED)
        self.assertEqual(browser.seen, bodies(2, 1))

    def test_picked_when_it_is_passed(self) -> None:
        """An entry taken out of the backlog is shown when it comes back, once."""
        self.kept = 2
        self.boot()
        self.patch(line_module, "LOAD_MESSAGES", 2)
        self.patch(feed_module, "AHEAD_MESSAGES", 1)
        self.put(*range(10))
        browser = self.browser(1)
        picky = [self.taker(1, lambda entry: body_of(entry) == b"7") for _ in range(2)]
        browser.take(99)
        turn(self.clock)
        self.assertEqual(browser.seen, bodies(0, 1, 2, 3, 4, 5, 6, 8, 9))
        for consumer in picky:
            self.settle(consumer, list(consumer.held), RELEASED)
        self.assertEqual(browser.seen, bodies(0, 1, 2, 3, 4, 5, 6, 8, 9, 7))

    def test_held_out_of_the_backlog_before(self) -> None:
        """An entry plucked from the backlog before a browser comes is shown when back, once."""
        self.kept = 2
        self.boot()
        self.patch(feed_module, "AHEAD_MESSAGES", 1)
        self.patch(line_module, "LOAD_MESSAGES", 2)
        self.put(*range(10))
        consumer = self.taker(1, lambda entry: body_of(entry) == b"7")
        browser = self.browser(2)
        for _ in range(3):
            self.settle(consumer, list(consumer.held), RELEASED)
            browser.take(1)
            consumer.take(1)
        browser.take(99)
        turn(self.clock)
        self.assertEqual(sorted(browser.seen), bodies(*range(10)))
        self.assertEqual(browser.seen[:3], bodies(0, 1, 7))

    def test_back_before_it_came(self) -> None:
        """An entry plucked from the backlog and released before a browser comes is shown once."""
        self.kept = 2
        self.boot()
        self.patch(line_module, "LOAD_MESSAGES", 2)
        self.put(*range(6))
        consumer = self.taker(1, lambda entry: body_of(entry) == b"4")
        self.settle(consumer, list(consumer.held), RELEASED)
        browser = self.browser()
        consumer.take(1)
        self.settle(consumer, list(consumer.held), RELEASED)
        self.assertEqual(sorted(browser.seen), bodies(*range(6)))

    def test_out_of_turn(self) -> None:
        """An entry that was committed late is shown once, however often it is released."""
        self.put(0)
        early, late = self.broker.begin(), self.broker.begin()
        self.queue.put(message(b"1"), early, ORIGIN)
        self.queue.put(message(b"2"), late, ORIGIN)
        late.commit()
        turn(self.clock)
        browser = self.browser()
        early.commit()
        turn(self.clock)
        consumer = self.taker(3)
        self.settle(consumer, list(consumer.held), RELEASED)
        self.assertEqual(browser.seen, bodies(0, 2, 1))

    def test_keeps_nothing_of_what_has_gone(self) -> None:
        """One without credit, on a queue that others empty, keeps little in memory."""
        self.put(*range(5))
        idle = [self.browser(0), self.taker(0, is_even), self.taker(0, is_even, copies=True)]
        consumer = self.taker(99)
        for first in range(5, 2000, 10):
            self.put(*range(first, first + 10))
            consumer.take(10)
            self.settle(consumer, list(consumer.held), ACCEPTED)
            self.put(first)
            consumer.take(1)
            self.settle(consumer, list(consumer.held), RELEASED)
            consumer.take(99)
            self.settle(consumer, list(consumer.held), ACCEPTED)
        self.assertEqual(self.queue.depth, 0)
        for feed in self.queue.state.consumers.cursors.values():
            self.assertLess(len(feed), 300)
        consumer.room = 0
        self.put(-1, -2)
        for each in idle:
            each.take(99)
        # The one that takes away, and a browser before and behind it.
        self.assertEqual([each.seen for each in idle], [bodies(-1, -2), bodies(-2), []])


def every(step: int, rest: int = 0) -> Callable[[Entry], bool]:
    """A filter of its own: one number of so many."""
    return lambda entry: int(body_of(entry)) % step == rest


class ScanTests(FeedTestCase):
    """Many look for something in one long backlog (Q-31)."""

    kept = 10

    def setUp(self) -> None:
        super().setUp()
        self.rows_read = 0
        self.pages = 0
        self.patch(line_module, "LOAD_MESSAGES", 50)
        load = self.store.load

        def counted(*arguments: Any) -> Any:
            self.pages += 1
            return load(*arguments).addCallback(note)

        def note(rows: Any) -> Any:
            self.rows_read += len(rows)
            return rows

        self.patch(self.store, "load", counted)

    def long_turn(self) -> None:
        """Let everything happen."""
        while any(call.getTime() <= self.clock.seconds() for call in self.clock.calls):
            self.clock.advance(0)

    @property
    def line(self) -> Any:
        """The line of the usual priority."""
        return self.queue.state.levels.usual

    def test_one_reading(self) -> None:
        """However many select, a row is read once; each gets what it selects, in order."""
        self.put(*range(2000))
        takers = [Taker(self.queue, 1000, selects=every(20, rest)) for rest in range(20)]
        self.queue.dispatch()
        self.long_turn()
        for rest, taker in enumerate(takers):
            self.assertEqual(taker.seen, bodies(*range(rest, 2000, 20)))
        self.assertLessEqual(self.rows_read, 2000)
        self.assertEmpty()

    def assertEmpty(self) -> None:
        """All is taken: nothing is remembered once it is settled."""
        for taker in list(self.queue.state.consumers.rotation):
            self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEqual((self.queue.depth, self.queue.paged_bytes), (0, 0))
        self.assertFalse(self.line.plucked_ids)
        self.assertEqual(self.queue.state.consumers._lookahead.bytes, 0)
        self.assertEqual(self.store.rows("q"), [])

    def test_credit_for_one(self) -> None:
        """A consumer that takes one entry at a time causes no second read."""
        self.put(*range(3000))
        taker = self.taker(0, every(10))
        for _ in range(300):
            taker.take(1)
            self.long_turn()
            self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEqual(taker.seen, bodies(*range(0, 3000, 10)))
        self.assertLessEqual(self.rows_read, 3000)

    def test_arrivals_are_not_read(self) -> None:
        """A cursor at the end examines arrivals, not the store."""
        self.put(*range(100))
        taker = self.taker(100, every(10))
        self.long_turn()
        pages = self.pages
        for number in range(100, 200):
            self.put(number)
        self.assertEqual(taker.seen, bodies(*range(0, 200, 10)))
        self.assertEqual(self.pages, pages)

    def test_bounds(self) -> None:
        """A cursor with enough stops there, and goes on later; nothing is lost or out of order."""
        for name, most in (("AHEAD_MESSAGES", 3), ("AHEAD_BYTES", 40)):
            self.patch(feed_module, name, most)
            self.put(*range(500))
            slow, fast = self.taker(1, every(2)), self.taker(1000, every(2, 1))
            self.long_turn()
            self.assertEqual(fast.seen, bodies(*range(1, 500, 2)))
            self.assertEqual(slow.seen, bodies(0))
            self.assertLessEqual(len(self.queue.state.consumers.cursors[slow]._ahead), 3)
            for number in range(2, 500, 2):
                slow.take(1)
                self.long_turn()
                self.assertEqual(slow.seen[-1], b"%d" % number)
            self.assertEmpty()
            self.queue.detach(slow)
            self.queue.detach(fast)

    def test_same_thing(self) -> None:
        """An entry found by two cursors goes to one; the other gets it if it comes back."""
        self.put(*range(40))
        first, second = self.taker(1, every(10)), self.taker(1, every(10))
        self.long_turn()
        self.assertEqual((first.seen, second.seen), (bodies(0), bodies(10)))
        second.take(10)
        self.assertEqual(second.seen, bodies(10, 20, 30))
        first.take(10)
        self.long_turn()
        self.assertEqual(first.seen, bodies(0))
        second.room = 0
        self.settle(second, list(second.held), RELEASED)
        self.assertEqual(first.seen, bodies(0, 10, 20, 30))
        self.settle(first, list(first.held), ACCEPTED)
        self.assertEqual(self.queue.depth, 36)

    def test_taken_from_the_head(self) -> None:
        """Entries found by one cursor are still available to all."""
        self.put(*range(100))
        waiting = self.taker(1, every(30))
        self.long_turn()
        plain = self.taker(1000)
        self.long_turn()
        self.assertEqual(plain.seen, bodies(*range(1, 100)))
        waiting.take(10)
        self.long_turn()
        self.assertEqual(waiting.seen, bodies(0))
        self.assertEmpty()

    def test_expired(self) -> None:
        """Entries that have expired since they were found are not delivered, nor counted twice."""
        made = [message(b"%d" % number, ttl=1000 if number % 2 else 9000) for number in range(40)]
        put(self.broker, self.queue, *made)
        turn(self.clock)
        taker = self.taker(1, every(10, 1))
        other = self.taker(0, every(10, 2))
        self.long_turn()
        self.clock.advance(2)
        self.long_turn()
        self.assertEqual((self.queue.available, self.queue.tally.expired), (20, 19))
        taker.take(10)
        other.take(10)
        self.long_turn()
        self.assertEqual((taker.seen, other.seen), (bodies(1), bodies(2, 12, 22, 32)))
        self.clock.advance(10)
        self.long_turn()
        self.assertEqual(self.queue.depth, 5)
        self.assertEmpty_but(5)

    def assertEmpty_but(self, held: int) -> None:
        """Nothing is in the store but what consumers hold in memory."""
        self.assertEqual((self.queue.acquired, self.queue.available), (held, 0))
        self.assertEqual(self.queue.paged_bytes, 0)

    def test_purged(self) -> None:
        """Entries purged since they were found are not delivered."""
        self.put(*range(40))
        taker = self.taker(1, every(10))
        self.long_turn()
        purged = self.queue.purge()
        self.long_turn()
        self.assertEqual(self.successResultOf(purged), 39)
        taker.take(10)
        self.long_turn()
        self.assertEqual(taker.seen, bodies(0))
        self.assertEmpty()

    def test_front_gets_on(self) -> None:
        """However many come anew, who is in front gets to the end."""
        self.put(*range(1000))
        front = self.taker(1, lambda entry: body_of(entry) == b"999")
        for _ in range(100):
            Taker(self.queue, 1, selects=lambda _: False)
            self.queue.dispatch()
            self.clock.advance(0)
        self.assertEqual(front.seen, bodies(999))

    def test_short_turns(self) -> None:
        """With many filters pages are short, so that others get their turn between them."""
        self.patch(backlog_module, "AT_ONCE_TESTS", 100)
        self.put(*range(200))
        takers = [Taker(self.queue, 1, selects=every(1000, -rest)) for rest in range(10)]
        self.queue.dispatch()
        self.long_turn()
        self.assertEqual(len(takers), 10)
        self.assertGreaterEqual(self.pages, (190 - 50) // backlog_module.LEAST_SCANNED)

    def test_equal_filters(self) -> None:
        """Filters that are equal are asked once for all."""
        asked: list[int] = []
        filters = read_filters(
            {Symbol("s"): Described(Symbol(SELECTOR), "priority = 4")}, own_container="a"
        )
        made = [LinkSelection(filters), LinkSelection(filters)]
        matches = filters.matches

        def counted(message: Any, origin: Any) -> bool:
            asked.append(1)
            return matches(message, origin)

        for each in made:
            each._matches = counted  # type: ignore[method-assign]
        self.put(*range(50))
        for each in made:
            Taker(self.queue, 0, selects=each).room = 100
        asked.clear()
        self.queue.dispatch()
        self.long_turn()
        self.assertEqual(len(asked), 40)  # the others are in memory
        self.assertEqual(made[0], made[1])
        self.assertNotEqual(made[0], LinkSelection(filters, 5))
        local = {Symbol("n"): Described(Symbol("apache.org:no-local-filter:list"), [])}
        mine = LinkSelection(read_filters(local, own_container="a"))
        self.assertNotEqual(mine, LinkSelection(read_filters(local, own_container="b")))
        self.assertEqual(mine, mine)

    def test_out_of_turn(self) -> None:
        """A batch that was begun earlier is committed later: nobody misses its entries."""
        self.put(*range(20))
        taker, browser = self.taker(100, every(1)), self.taker(100, every(1), True)
        early, late = self.broker.begin(), self.broker.begin()
        self.queue.put(message(b"20"), early, ORIGIN)
        self.queue.put(message(b"21"), late, ORIGIN)
        for batch in (late, early):
            batch.commit()
            turn(self.clock)
        self.assertEqual(sorted(taker.seen), sorted(bodies(*range(22))))
        self.assertEqual(len(browser.seen), len(set(browser.seen)))
        self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEqual((self.queue.depth, self.store.rows("q")), (0, []))

    def test_browser_behind(self) -> None:
        """An entry that comes back behind a browser's position hides none before it."""
        self.put(*range(40))
        browser = self.taker(15, copies=True)
        taker = self.taker(1, lambda entry: body_of(entry) == b"35")
        self.long_turn()
        self.assertEqual((len(browser.seen), taker.seen), (15, bodies(35)))
        for _ in range(2):
            self.settle(taker, list(taker.held), RELEASED)
            taker.take(1)
            self.long_turn()
        browser.take(100)
        self.long_turn()
        self.assertEqual(sorted(map(int, browser.seen)), [each for each in range(40) if each != 35])
        self.settle(taker, list(taker.held), RELEASED)
        self.queue.detach(taker)
        browser.take(100)
        self.long_turn()
        self.assertEqual(sorted(map(int, browser.seen)), list(range(40)))
