# SPDX-License-Identifier: Apache-2.0
"""Windows, rates, starts and removals: the pure parts of the scheduler."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.token_bucket import Rate, RateLimiter
from amqproute.relay.connect_scheduler import ConnectScheduler
from amqproute.relay.receipt_floor import ReceiptFloor
from amqproute.relay.send_window import SendWindow
from amqproute.turn_scheduler import STEPS_IN_TURN, TurnScheduler
from tests.support.turn_clock import TurnClock


class WindowTests(SynchronousTestCase):
    """Credit that has to be earned."""

    def test_slow_start(self) -> None:
        """It doubles with each round trip up to the limit."""
        window = SendWindow(50, 1000)
        sizes = []
        for _ in range(6):
            sizes.append(window.size)
            window.succeeded(window.size, window.size)
        self.assertEqual(sizes, [50, 100, 200, 400, 800, 1000])

    def test_grows_only_in_use(self) -> None:
        """Outcomes of a few messages say nothing about a large window."""
        window = SendWindow(10, 1000)
        for _ in range(1000):
            window.succeeded(1, 1)
        self.assertLess(window.size, 25)

    def test_lost_link(self) -> None:
        """A lost link halves it, and from there it grows slowly."""
        window = SendWindow(10, 1000)
        for _ in range(8):
            window.succeeded(window.size, window.size)
        self.assertEqual(window.size, 1000)
        window.failed(1000)
        self.assertEqual(window.size, 500)
        window.succeeded(500, 500)
        self.assertEqual(window.size, 501)

    def test_death(self) -> None:
        """Failed attempts kill, outcomes revive; after a death it begins small."""
        window = SendWindow(50, 1000, 3.0)
        for _ in range(6):
            window.succeeded(window.size, window.size)
        deaths = []
        for _ in range(4):
            window.failed()
            deaths.append(window.is_dead)
        self.assertEqual(deaths, [False, False, True, True])
        self.assertEqual(window.size, 50)
        window.succeeded(1, 1)
        self.assertFalse(window.is_dead)
        for _ in range(5):
            window.succeeded(window.size, window.size)
        self.assertEqual(window.size, 1000)

    def test_barren_links(self) -> None:
        """Lost again and again without an outcome: one at a time, until there is one."""
        window = SendWindow(50, 1000, 3.0)
        sizes = []
        for _ in range(4):
            window.failed(5)
            sizes.append(window.size)
        self.assertEqual(sizes, [50, 50, 1, 1])
        self.assertFalse(window.is_dead)
        window.failed()
        self.assertEqual(window.size, 1)
        window.succeeded(1, 1)
        window.succeeded(2, 2)
        self.assertEqual(window.size, 4)
        window.failed(4)
        self.assertEqual(window.size, 4)
        for _ in range(8):
            window.succeeded(window.size, window.size)
        self.assertGreater(window.size, 200)

    def test_cohorts(self) -> None:
        """A link lost with few messages in doubt is a part of a failed attempt."""
        window = SendWindow(50, 1000, 1.0)
        for _ in range(9):
            window.failed(5)
        self.assertFalse(window.is_dead)
        for _ in range(20):
            window.failed(5)
        self.assertTrue(window.is_dead)

    @given(
        st.integers(1, 100),
        st.integers(1, 1000),
        st.lists(st.tuples(st.booleans(), st.integers(0, 2000), st.integers(0, 2000))),
    )
    def test_bounds(self, first: int, limit: int, steps: list[tuple[bool, int, int]]) -> None:
        """It is never nothing and never more than the limit."""
        window = SendWindow(first, limit)
        for succeeds, count, in_flight in steps:
            if succeeds:
                window.succeeded(count, in_flight)
            else:
                before = window.size
                window.failed(count if in_flight % 2 else None)
                self.assertLessEqual(window.size, max(before, min(first, limit)))
            self.assertTrue(1 <= window.size <= limit, window)

    def test_other_bounds(self) -> None:
        """A reload takes effect at once."""
        window = SendWindow(50, 1000)
        for _ in range(6):
            window.succeeded(window.size, window.size)
        window.adopt(50, 20, 1.0)
        self.assertEqual(window.size, 20)
        window.failed()
        self.assertTrue(window.is_dead)


class RateTests(SynchronousTestCase):
    """Token buckets."""

    def test_messages(self) -> None:
        """A second's worth at once, then evenly."""
        limiter = RateLimiter(Rate(messages=10), 0.0)
        self.assertEqual(limiter.room(100, 0.0), 10)
        limiter.spend(10, 1000, 0.0)
        self.assertEqual((limiter.room(100, 0.0), limiter.wait(0.0)), (0, 0.1))
        self.assertEqual(limiter.denying(0.0), "messages-per-second")
        self.assertEqual(limiter.room(100, 0.5), 5)
        self.assertEqual(limiter.room(100, 100.0), 10)
        self.assertEqual(limiter.denying(100.0), "")

    def test_octets(self) -> None:
        """A message larger than the bucket goes, and is paid for afterwards."""
        limiter = RateLimiter(Rate(octets=1000), 0.0)
        self.assertEqual(limiter.room(5000, 0.0), 1)
        limiter.spend(1, 5000, 0.0)
        self.assertAlmostEqual(limiter.wait(0.0), 4.001)
        self.assertEqual(limiter.room(5000, 3.9), 0)
        self.assertEqual(limiter.denying(3.9), "bytes-per-second")
        self.assertEqual(limiter.room(5000, 4.1), 1)

    @given(
        st.floats(0.1, 1000),
        st.floats(1, 1e6),
        st.lists(st.tuples(st.floats(0, 5), st.integers(1, 5000)), max_size=60),
    )
    def test_average(self, rate: float, octets: float, steps: list[tuple[float, int]]) -> None:
        """Over any time it is a second's worth, the rate, and one message, at most."""
        limiter = RateLimiter(Rate(rate, octets), 0.0)
        now, sent, size_sent, largest = 0.0, 0, 0, 0
        for wait, size in steps:
            now += wait
            room = min(limiter.room(size, now), 50)
            limiter.spend(room, room * size, now)
            sent += room
            size_sent += room * size
            largest = max(largest, size)
            self.assertLessEqual(sent, max(1.0, rate) + rate * now + 1e-3)
            self.assertLessEqual(size_sent, max(1.0, octets) * 1.001 + octets * now + largest)
            if not room:
                now += limiter.wait(now) + 1e-3
                self.assertGreater(limiter.room(size, now), 0)


class StartsTests(SynchronousTestCase):
    """The line of those who want to connect."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.starts = ConnectScheduler(self.clock, 10.0)
        self.begun: list[tuple[str, float]] = []
        self.askers: dict[str, object] = {}

    def ask(self, name: str, urgent: bool = False) -> None:
        """Ask for a start."""

        def begin() -> None:
            self.begun.append((name, round(self.clock.seconds(), 3)))

        self.askers[name] = begin
        self.starts.ask(begin, urgent)

    def test_lone(self) -> None:
        """No destination waits without a reason, and none begins within the call."""
        self.ask("a")
        self.assertEqual(self.begun, [])
        self.clock.advance(0)
        self.assertEqual(self.begun, [("a", 0.0)])

    def test_spaced(self) -> None:
        """No more than this many in a second, the urgent first."""
        for number in range(5):
            self.ask(f"{number}")
        self.clock.advance(0)
        self.ask("urgent", urgent=True)
        self.clock.pump([0.1] * 10)
        self.assertEqual([name for name, _ in self.begun], ["0", "urgent", "1", "2", "3", "4"])
        times = [when for _, when in self.begun]
        self.assertTrue(all(b - a >= 0.0999 for a, b in pairwise(times)))

    def test_turns(self) -> None:
        """Behind other costly steps it waits, and can be withdrawn meanwhile."""
        self.clock = TurnClock()
        turns = TurnScheduler(self.clock)
        self.starts = ConnectScheduler(self.clock, 10.0, turns)
        steps: list[int] = []
        for name, begun in (("a", ["a"]), ("b", ["a"])):
            for number in range(5 * STEPS_IN_TURN):
                turns.ask("tls", "", lambda number=number: steps.append(number))
            self.ask(name)
            self.clock.rightNow += 1
            self.clock.turn()
            self.assertEqual(turns.waiting, 3 * STEPS_IN_TURN + 1)
            if name == "b":
                self.starts.withdraw(self.askers["b"])  # type: ignore[arg-type]
            while self.clock.getDelayedCalls():
                self.clock.advance(1)
            self.assertEqual([name for name, _ in self.begun], begun)
        self.assertEqual(len(steps), 10 * STEPS_IN_TURN)

    def test_withdrawn(self) -> None:
        """A destination without demand is skipped."""
        for name in "abc":
            self.ask(name)
        self.starts.withdraw(self.askers["b"])  # type: ignore[arg-type]
        self.clock.pump([0.1] * 5)
        self.assertEqual([name for name, _ in self.begun], ["a", "c"])
        self.ask("d")
        self.starts.stop()
        self.clock.pump([0.1] * 5)
        self.assertEqual(len(self.begun), 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RemovalTests(SynchronousTestCase):
    """Entries that hold the floor down."""

    def test_floor(self) -> None:
        """It rises with what is durable, and never over what failed."""
        removals = ReceiptFloor()
        removals.add([7, 5])
        first = removals.commit()
        removals.add([9])
        second = removals.commit()
        self.assertEqual(removals.floor([20]), 5)
        removals.done(first)
        self.assertEqual(removals.floor([20]), 9)
        self.assertTrue(removals)
        removals.failed(second)
        self.assertFalse(removals)
        self.assertEqual(removals.floor([20]), 9)
        for low in range(30, 60):
            removals.add([low])
            removals.failed(removals.commit())
        self.assertEqual(removals.floor([20]), 9)
        self.assertEqual(removals.floor([3, 20]), 3)
