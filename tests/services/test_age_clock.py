# SPDX-License-Identifier: Apache-2.0
"""The clock for the age of messages: it follows the wall clock, but not its jumps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreError
from amqproute.services.age_clock import REMIND_SECONDS, STEP_SECONDS, AgeClock, ClockWatch
from amqproute.services.management_node import CONFLICT, OK, ManagementReply
from tests.support.fakes import EPOCH_MS

WEEK_MS = 7 * 86_400_000


class AgeClockTests(SynchronousTestCase):
    """Time passes by the clock that nobody sets."""

    def setUp(self) -> None:
        self.reactor = Clock()
        self.off_ms = 0
        self.clock = AgeClock(self.wall_ns, self.reactor.seconds)

    def wall_ms(self) -> int:
        return EPOCH_MS + self.off_ms + round(self.reactor.seconds() * 1000)

    def wall_ns(self) -> int:
        return 1_000_000 * self.wall_ms()

    def test_corrections(self) -> None:
        """The adjustments of a time daemon are followed, both ways."""
        for off_ms in (500, -500, 59_000, 0):
            self.off_ms = off_ms
            self.reactor.advance(10)
            self.assertEqual((self.clock.now_ms(), self.clock.jump_ms), (self.wall_ms(), 0))

    def test_jump(self) -> None:
        """It is not followed, is told, and has not happened when the clock is right again."""
        for off_ms in (WEEK_MS, -WEEK_MS):
            self.off_ms = off_ms
            for _ in range(5):
                self.reactor.advance(100)
                expected = EPOCH_MS + round(self.reactor.seconds() * 1000)
                self.assertEqual((self.clock.now_ms(), self.clock.jump_ms), (expected, off_ms))
            self.off_ms = 0
            self.assertEqual((self.clock.now_ms(), self.clock.jump_ms), (self.wall_ms(), 0))

    def test_sleep(self) -> None:
        """It counts, is no jump, and is told before anything is judged by the time after it."""
        asleep = [0.0]
        told: list[int] = []
        clock = AgeClock(
            self.wall_ns, self.reactor.seconds, lambda: self.reactor.seconds() - asleep[0]
        )
        clock.when_slept = lambda: told.append(clock.jump_ms)
        self.reactor.advance(100)
        clock.now_ms()
        for seconds in (30.0, 7200.0):
            self.reactor.advance(seconds)
            asleep[0] += seconds
            self.assertEqual((clock.now_ms(), clock.jump_ms), (self.wall_ms(), 0))
            clock.now_ms()
            self.assertEqual(len(told), seconds > STEP_SECONDS)

    def test_accept(self) -> None:
        """An operator says that it is right now."""
        self.off_ms = WEEK_MS
        self.clock.now_ms()
        self.clock.accept(WEEK_MS)
        self.assertEqual((self.clock.now_ms(), self.clock.jump_ms), (self.wall_ms(), 0))

    @given(
        st.lists(st.tuples(st.floats(0, 1000), st.integers(-3 * WEEK_MS, 3 * WEEK_MS)), max_size=30)
    )
    def test_any(self, steps: list[tuple[float, int]]) -> None:
        """The age grows by elapsed time for any wall clock, but for small corrections."""
        reactor = Clock()
        off = [0]
        clock = AgeClock(
            lambda: 1_000_000 * (EPOCH_MS + off[0] + round(reactor.seconds() * 1000)),
            reactor.seconds,
        )
        for seconds, off_ms in steps:
            before = clock.now_ms()
            reactor.advance(seconds)
            off[0] = off_ms
            passed = clock.now_ms() - before
            self.assertLessEqual(abs(passed - seconds * 1000), STEP_SECONDS * 1000 + 2)


class WatchTests(SynchronousTestCase):
    """Operators are told, asked, and heard."""

    def setUp(self) -> None:
        self.reactor = Clock()
        self.off_ms = 0
        self.postponed: list[int] = []
        self.answer: Deferred[None] = succeed(None)
        self.changes = 0
        clock = AgeClock(
            lambda: 1_000_000 * (EPOCH_MS + self.off_ms + round(self.reactor.seconds() * 1000)),
            self.reactor.seconds,
        )
        self.watch = ClockWatch(clock, self.reactor, self.changed, self.postpone)
        self.logged: list[str] = []
        self.watch.log = self  # type: ignore[assignment]
        self.watch.start()
        self.addCleanup(self.watch.stop)

    def warn(self, text: str, **facts: object) -> None:
        self.logged.append(text.format(**facts))

    info = warn

    def failure(self, text: str, failure: object) -> None:
        self.logged.append(text)

    def changed(self) -> None:
        self.changes += 1

    def postpone(self, ms: int) -> Deferred[None]:
        self.postponed.append(ms)
        return self.answer

    def accept(self) -> ManagementReply:
        given = self.watch.accept()
        return self.successResultOf(given) if isinstance(given, Deferred) else given

    def test_told(self) -> None:
        """Once, and again after an hour; with the command that answers."""
        self.off_ms = WEEK_MS
        self.reactor.pump([5.0] * 10)
        self.assertEqual((len(self.logged), self.changes), (1, 1))
        self.assertIn("ahead by 604800 s", self.watch.status())
        self.assertIn("amqproute clock accept", self.logged[0])
        self.assertEqual(self.watch.row()["state"], "jumped")
        self.reactor.pump([5.0] * int(REMIND_SECONDS / 5))
        self.assertEqual((len(self.logged), self.changes), (2, 1))
        self.off_ms = 0
        self.reactor.advance(5)
        self.assertEqual((self.watch.status(), self.changes), ("", 2))

    def test_accepted_ahead(self) -> None:
        """Lives are longer by the jump, before the clock is followed."""
        self.off_ms = WEEK_MS
        self.reactor.advance(5)
        self.answer = Deferred()
        given = self.watch.accept()
        assert isinstance(given, Deferred)
        self.assertEqual(self.watch.clock.jump_ms, WEEK_MS)
        self.answer.callback(None)
        self.assertEqual(self.successResultOf(given).status, OK)
        self.assertEqual((self.postponed, self.watch.status()), ([WEEK_MS], ""))

    def test_accepted_back(self) -> None:
        """A clock set back makes lives longer as it is."""
        self.off_ms = -WEEK_MS
        self.reactor.advance(5)
        self.assertEqual((self.accept().status, self.postponed), (OK, []))
        self.assertEqual(self.watch.status(), "")

    def test_jumps_while_it_is_accepted(self) -> None:
        """Only the jump that lives are longer by is followed, and one at a time."""
        self.off_ms = WEEK_MS
        self.reactor.advance(5)
        self.answer = Deferred()
        given = self.watch.accept()
        self.assertEqual(self.accept().status, CONFLICT)
        self.off_ms = 1000 * WEEK_MS
        self.answer.callback(None)
        assert isinstance(given, Deferred)
        self.successResultOf(given)
        self.assertEqual(self.postponed, [WEEK_MS])
        self.assertEqual(self.watch.clock.jump_ms, 999 * WEEK_MS)

    def test_paused_machine(self) -> None:
        """Two hours that nobody counted need nobody's hand, but time to turn out wrong."""
        hours_ms = 7_200_000
        self.off_ms = hours_ms
        self.reactor.pump([5.0] * 60)
        self.assertIn("by itself in 305 s", self.watch.status())
        self.off_ms = 0
        self.reactor.advance(5)
        self.off_ms = hours_ms
        self.reactor.pump([5.0] * 120)
        self.assertEqual(self.postponed, [])
        self.reactor.pump([5.0] * 2)
        self.assertEqual((self.postponed, self.watch.status()), ([hours_ms], ""))
        # Back again, and far ahead: an operator is asked.
        for off_ms in (0, hours_ms + WEEK_MS):
            self.off_ms = off_ms
            self.reactor.pump([5.0] * 1000)
            self.assertIn("clock accept", self.watch.status())
            self.assertNotIn("by itself", self.watch.status())
        self.assertEqual(self.postponed, [hours_ms])

    def test_paused_machine_without_a_disk(self) -> None:
        """A store that does not take it is asked again, and not every five seconds."""
        self.off_ms = 7_200_000
        self.answer = Deferred()
        self.reactor.pump([5.0] * 125)
        self.answer.errback(StoreError("no disk"))
        self.answer = succeed(None)
        self.reactor.pump([5.0] * 60)
        self.assertEqual(len(self.postponed), 1)
        self.reactor.pump([5.0] * 65)
        self.assertEqual((len(self.postponed), self.watch.status()), (2, ""))

    def test_not_accepted(self) -> None:
        """Without a jump, or where the store fails, nothing is followed."""
        self.assertEqual(self.accept().status, CONFLICT)
        self.off_ms = WEEK_MS
        self.answer = fail(StoreError("no disk"))
        self.assertEqual(self.accept().status, CONFLICT)
        self.assertEqual(self.watch.clock.jump_ms, WEEK_MS)
