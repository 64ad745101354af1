# SPDX-License-Identifier: Apache-2.0
"""The wall clock jumps by an hour; the steady clock of timers does not."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.broker.node_limits import QueueLimits
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from tests.support.fakes import EPOCH_MS, KeptStore, Taker, message, node

HOUR_MS = 3_600_000


class ClockCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.jumped_ms = 0
        store = KeptStore(self.clock)
        self.broker = Broker(store, self.clock, self.now_ms, lambda: "dynamic")
        self.broker.declare([node("q")], {})
        self.queue = self.broker.nodes["q"]

    def now_ms(self) -> int:
        return EPOCH_MS + self.jumped_ms + round(self.clock.seconds() * 1000)

    def put(self, **options: Any) -> None:
        batch = self.broker.begin()
        self.queue.put(message(b"x", **options), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()
        self.clock.advance(0)
        self.clock.advance(0)


class JumpTests(ClockCase):
    """Of the clock that a broker is given."""

    def test_ahead(self) -> None:
        """Entries that have expired by the clock are not delivered, and go within ten minutes."""
        self.put(ttl=1_800_000)
        self.put(ttl=3 * HOUR_MS)
        self.jumped_ms = HOUR_MS
        for _ in range(605):
            self.clock.advance(1)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (1, 1))

    def test_ahead_and_asked_for(self) -> None:
        """A consumer gets unexpired entries only."""
        self.put(ttl=1_800_000)
        self.jumped_ms = HOUR_MS
        taker = Taker(self.queue, 10)
        self.queue.dispatch()
        self.clock.advance(1)
        self.assertEqual((taker.held, self.queue.tally.expired), ([], 1))

    def test_back(self) -> None:
        """Lives last longer by the jump, and end; no timer runs wild."""
        self.put(ttl=1_800_000)
        self.jumped_ms = -HOUR_MS
        timers = 0
        for _ in range(90):
            self.clock.advance(59)
            timers = max(timers, len(self.clock.getDelayedCalls()))
            if self.clock.seconds() < 5000:
                self.assertEqual(self.queue.depth, 1)
        for _ in range(20):
            self.clock.advance(60)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (0, 1))
        self.assertLessEqual(timers, 2)

    def test_accepted(self) -> None:
        """Once an operator has accepted a jump ahead, lives are longer by it, everywhere."""
        self.broker.nodes["q"].limits = QueueLimits(resident_messages=2)
        for _ in range(6):
            self.put(ttl=1_800_000)
        batch = self.broker.begin()
        now_ms = EPOCH_MS + HOUR_MS
        batch.transaction.postpone(HOUR_MS, now_ms)
        batch.commit()
        self.clock.advance(0)
        self.broker.postpone(HOUR_MS, now_ms)
        self.jumped_ms = HOUR_MS
        for _ in range(29):
            self.clock.advance(60)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (6, 0))
        for _ in range(12):
            self.clock.advance(60)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (0, 6))

    def test_arrived_while_the_clock_was_right(self) -> None:
        """A daemon that starts with a clock in the past does not keep for years what it had."""
        self.broker.nodes["q"].limits = QueueLimits(resident_messages=2)
        for _ in range(6):
            self.put(ttl=1_800_000)
        self.jumped_ms = -1000 * HOUR_MS
        self.clock.advance(60)
        batch = self.broker.begin()
        now_ms = EPOCH_MS + 60_000
        batch.transaction.postpone(1000 * HOUR_MS, now_ms)
        batch.commit()
        self.clock.advance(0)
        self.broker.postpone(1000 * HOUR_MS, now_ms)
        self.jumped_ms = 0
        for _ in range(28):
            self.clock.advance(60)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (6, 0))
        for _ in range(12):
            self.clock.advance(60)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (0, 6))


class SparedTests(ClockCase):
    """A queue whose messages are to be tried before they expire."""

    def test_lifetime_of_ours(self) -> None:
        """Entries overdue by the broker's own limit stay, and are delivered once."""
        self.queue.limits = QueueLimits(ttl_ms=1_800_000)
        self.queue.spare()
        self.put()
        self.put(ttl=60_000)
        self.jumped_ms = HOUR_MS
        for _ in range(700):
            self.clock.advance(1)
        self.assertEqual(self.queue.depth, 2)
        taker = Taker(self.queue, 10)
        self.queue.dispatch()
        self.clock.advance(1)
        self.assertEqual((len(taker.held), self.queue.tally.expired), (1, 1))
        self.queue.release(taker.held)
        self.queue.dispatch()
        self.clock.advance(1)
        self.assertEqual(self.queue.tally.expired, 2)

    def test_end(self) -> None:
        """Then it goes as ever."""
        self.queue.limits = QueueLimits(ttl_ms=1_800_000)
        self.queue.spare()
        self.put()
        self.jumped_ms = HOUR_MS
        self.clock.advance(700)
        self.assertEqual(self.queue.depth, 1)
        self.queue.end_sparing()
        self.clock.advance(1)
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (0, 1))
