# SPDX-License-Identifier: Apache-2.0
"""Expensive steps take turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.turn_scheduler import (
    MOST_SECONDS,
    STEPS_IN_TURN,
    TRAFFIC_SECONDS,
    TURN_SECONDS,
    YIELDING,
    StepKind,
    TurnScheduler,
)
from tests.support.turn_clock import TurnClock

OTHER_WORK = TURN_SECONDS / 4
"""Processor time of other work in a turn."""


class TurnTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = TurnClock()
        self.turns = TurnScheduler(self.clock)
        self.taken: list[str] = []

    def ask(self, source: str) -> None:
        self.turns.ask("tls", source, lambda: self.taken.append(source))

    def test_at_once(self) -> None:
        """With few connections none waits, turn after turn, and nothing is left behind."""
        for _ in range(5):
            for _ in range(STEPS_IN_TURN):
                self.ask("a")
            self.assertEqual(len(self.taken), STEPS_IN_TURN)
            self.taken.clear()
            self.clock.turn()
        self.clock.turn()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_empty_turns(self) -> None:
        """A step now and then costs one turn more, which forgets its time, and no others."""
        called = 0
        turn = self.turns._turn

        def counting() -> None:
            nonlocal called
            called += 1
            turn()

        self.patch(self.turns, "_turn", counting)
        for number in range(10):
            self.ask("a")
            self.clock.turn()
            self.assertEqual((called, self.clock.getDelayedCalls()), (number + 1, []))
            self.clock.turn()
        for _ in range(STEPS_IN_TURN + 1):  # one has to wait, and takes a second turn
            self.ask("a")
        for _ in range(5):
            self.clock.turn()
        self.assertEqual((called, len(self.taken)), (12, 10 + STEPS_IN_TURN + 1))

    def test_many(self) -> None:
        """A thousand of one address are a few in each turn."""
        for _ in range(1000):
            self.ask("a")
        turns = 0
        while self.turns.waiting:
            before = len(self.taken)
            self.clock.turn()
            self.assertLessEqual(len(self.taken) - before, STEPS_IN_TURN)
            turns += 1
        self.assertEqual((len(self.taken), turns), (1000, 1000 // STEPS_IN_TURN - 1))

    def test_others(self) -> None:
        """A later connection from another address waits for a turn and not for all of those."""
        for _ in range(1000):
            self.ask("a")
        for source in ("b", "c"):
            self.ask(source)
        self.taken.clear()
        while len(self.taken) < 4:
            self.clock.turn()
        self.assertEqual(self.taken[:4], ["a", "b", "c", "a"])

    def test_kinds(self) -> None:
        """Kinds are served one after the other, however many steps there are of each."""
        for _ in range(100):
            self.ask("a")
        for number in range(3):
            self.turns.ask("dns", "", lambda number=number: self.taken.append(f"{number}"))
        self.taken.clear()
        while len(self.taken) < 6:
            self.clock.turn()
        self.assertEqual(self.taken[:6], ["a", "0", "a", "1", "a", "2"])

    def test_long_steps(self) -> None:
        """If processor time is measured, the turns after a long step pay it back to other work."""
        used = [0.0]
        for seconds, taken in (
            (TURN_SECONDS * 2.1, [1, 1, 2, 2, 3, 3]),
            (TURN_SECONDS * 1.4, [1, 2, 3, 3, 4, 5]),
            (TURN_SECONDS / 7.9, [8, 16, 24, 32, 40, 40]),
        ):
            turns = TurnScheduler(self.clock, lambda: used[0])
            self.taken.clear()

            def step(seconds: float = seconds) -> None:
                used[0] += seconds
                self.taken.append("")

            for _ in range(40):
                turns.ask("tls", "a", step)
            counts = [len(self.taken)]
            for _ in range(5):
                used[0] += OTHER_WORK
                self.clock.turn()
                counts.append(len(self.taken))
            self.assertEqual(counts, taken)
            while self.clock.getDelayedCalls():
                self.clock.turn()
            self.assertEqual(len(self.taken), 40)

    def test_debt_is_bounded(self) -> None:
        """A step of ten seconds keeps others waiting for no more than fifty turns."""
        used = [0.0]
        turns = TurnScheduler(self.clock, lambda: used[0])

        def collect() -> None:
            used[0] += 10

        turns.ask("tls", "a", collect)
        self.taken.clear()
        turns.ask("tls", "a", lambda: self.taken.append("a"))
        for _ in range(round(MOST_SECONDS / TURN_SECONDS) - 2):
            used[0] += OTHER_WORK
            self.clock.turn()
        self.assertEqual(self.taken, [])
        for _ in range(3):
            used[0] += OTHER_WORK
            self.clock.turn()
        self.assertEqual(self.taken, ["a"])

    def test_idle_turns(self) -> None:
        """A turn without other work pays everything back: nobody waited for the step."""
        used = [0.0]
        turns = TurnScheduler(self.clock, lambda: used[0])

        def step() -> None:
            used[0] += 20 * TURN_SECONDS
            self.taken.append("a")

        for _ in range(4):
            turns.ask("tls", "a", step)
        counts = [len(self.taken)]
        for other in (0.0, TURN_SECONDS / 20, OTHER_WORK, OTHER_WORK, 0.0):
            used[0] += other
            self.clock.turn()
            counts.append(len(self.taken))
        self.assertEqual(counts, [1, 2, 3, 3, 3, 4])

    def test_a_step_that_fails(self) -> None:
        """The others are taken nevertheless."""

        def fail() -> None:
            raise ValueError

        for _ in range(STEPS_IN_TURN):
            self.ask("a")
        self.turns.ask("tls", "a", fail)
        self.ask("a")
        self.taken.clear()
        self.assertRaises(ValueError, self.clock.turn)
        while self.turns.waiting:
            self.clock.turn()
        self.assertEqual(self.taken, ["a"])

    def test_steps_that_ask(self) -> None:
        """A step may ask for another one."""

        def again() -> None:
            self.taken.append("a")
            self.turns.ask("tls", "a", lambda: self.taken.append("b"))

        for _ in range(2):
            self.turns.ask("tls", "a", again)
        self.assertEqual(self.taken, ["a"])  # what it asks for is a step of its own
        for _ in range(4):
            self.clock.turn()
        self.assertEqual(sorted(self.taken), ["a", "a", "b", "b"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_work_before_a_step(self) -> None:
        """It counts, even if the step is the last work of its turn."""
        used = [0.0]
        turns = TurnScheduler(self.clock, lambda: used[0])

        def step() -> None:
            used[0] += 3.1 * TURN_SECONDS
            self.taken.append("a")

        for _ in range(3):
            used[0] += OTHER_WORK
            turns.ask("tls", "a", step)
            counts = []
            for _ in range(3):
                self.clock.turn()
                turns.ask("tls", "a", step)
                counts.append(len(self.taken))
                used[0] += OTHER_WORK
            self.assertEqual(counts, [1, 1, 2])
            while self.clock.turn():
                pass
            self.taken.clear()


class PauseTests(SynchronousTestCase):
    """Work that puts itself off to later turns."""

    def setUp(self) -> None:
        self.clock = TurnClock()
        self.used = 0.0
        self.turns = TurnScheduler(self.clock, lambda: self.used)
        self.done: list[object] = []

    def use(self, seconds: float, what: object) -> None:
        """Use processor time."""
        self.used += seconds
        self.done.append(what)

    def later(self, seconds: float, what: object) -> Deferred[None]:
        """Use processor time after a pause."""
        pause = self.turns.pause("pages", "")
        pause.addCallback(lambda _: self.use(seconds, what))
        return pause

    def test_a_long_step(self) -> None:
        """After a step of several turns' time, as many turns pass without another one."""
        for number in range(3):
            self.later(5 * TURN_SECONDS, number)
        at = []
        for turn in range(16):
            before = len(self.done)
            self.used += OTHER_WORK
            self.clock.turn()
            at += [turn] * (len(self.done) - before)
        self.assertEqual(self.done, [0, 1, 2])
        self.assertEqual(at, [0, 5, 10])
        self.clock.turn()
        self.clock.turn()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_takes_turns_with_others(self) -> None:
        """Many steps of one kind leave every other step to another kind."""
        for number in range(4):
            self.later(TURN_SECONDS, number)
        for word in ("a", "b"):
            self.turns.put_off("tls", "", partial(self.use, TURN_SECONDS, word))
        for _ in range(6):
            self.used += OTHER_WORK
            self.clock.turn()
        self.assertEqual(self.done, [0, "a", 1, "b", 2, 3])

    def test_cancelled(self) -> None:
        """What waited for a pause that was cancelled does not follow."""
        waiting = self.later(0.0, "never")
        waiting.cancel()
        self.failureResultOf(waiting)
        told = self.later(0.0, "once")
        self.clock.turn()
        self.successResultOf(told)
        self.assertEqual(self.done, ["once"])


class YieldTests(SynchronousTestCase):
    """Management yields to messages."""

    cost = 5 * TURN_SECONDS

    def setUp(self) -> None:
        self.clock = TurnClock()
        self.used = 0.0
        self.turns = TurnScheduler(self.clock, lambda: self.used)
        self.taken: list[str] = []

    def ask(self, kind: StepKind, word: str = "") -> None:
        """Ask for a step; if it yields, it takes several turns' time, else one turn's."""
        cost = self.cost if kind in YIELDING else TURN_SECONDS

        def step() -> None:
            self.used += cost
            self.clock.rightNow += cost
            self.taken.append(word or kind)

        self.turns.ask(kind, "", step)

    def turn(self, seconds: float = 0.0) -> None:
        """Let time pass, and call what is due; there is no other work."""
        self.clock.rightNow += seconds
        self.clock.turn()

    def test_rest(self) -> None:
        """While messages pass, a step is followed by as much time without one."""
        for kind in sorted(YIELDING):
            self.turns.note_traffic()
            self.taken.clear()
            for _ in range(3):
                self.ask(kind)
            self.assertEqual(len(self.taken), 1)
            for taken in (2, 3):
                for _ in range(10):  # turns are not time
                    self.turn()
                self.turn(0.9 * self.cost)
                self.assertEqual(len(self.taken), taken - 1)
                self.turn(0.2 * self.cost)
                self.assertEqual(len(self.taken), taken)
            self.turn(2 * self.cost)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_messages(self) -> None:
        """Without messages it has the time that it takes; a rest ends a while after the last."""
        self.turns.note_traffic()
        self.ask("http")
        for _ in range(round(TRAFFIC_SECONDS / self.cost) + 2):
            self.turn(self.cost)
            self.ask("http")
        self.taken.clear()
        self.turn(self.cost)
        for _ in range(4):
            self.ask("http")
        for _ in range(3):
            self.turn()
        self.assertEqual(len(self.taken), 4)

    def test_others_do_not_rest(self) -> None:
        """Handshakes, answers of name servers and input go on, before what rests."""
        self.turns.note_traffic()
        for kind in ("http", "rows", "tls", "dns", "pages", "input", "connect"):
            self.ask(kind)
        for _ in range(4):
            self.turn()
        self.assertEqual(self.taken, ["http", "tls", "dns", "input", "connect"])
        self.turn()
        self.assertEqual(self.taken[5:], [])
        self.assertEqual(self.clock.turn(), 0)  # a timer, and no turns
        self.turn(self.cost)
        self.assertEqual(self.taken[5:], ["rows"])

    def test_one_rest_for_all(self) -> None:
        """Kinds that yield have one share together, which they take in rotation."""
        self.turns.note_traffic()
        for kind in ("http", "http", "rows", "pages", "monitoring", "monitoring"):
            self.ask(kind)
        for number in range(1, 6):
            self.assertEqual(len(self.taken), number)
            self.turns.note_traffic()
            self.turn(1.1 * self.cost)
        self.assertEqual(self.taken, ["http", "http", "rows", "pages", "monitoring", "monitoring"])

    def test_in_between(self) -> None:
        """What does not yield is not kept waiting by a timer of what rests."""
        self.turns.note_traffic()
        self.ask("http")
        self.ask("http")
        self.turn()  # forgets the time of the first
        self.ask("tls")
        self.assertEqual(self.taken, ["http", "tls"])  # at once
        self.ask("dns")
        self.turn()
        self.assertEqual(self.taken, ["http", "tls", "dns"])

    def test_clock_set_back(self) -> None:
        """What rests goes on, whatever the clock says."""
        self.turns.note_traffic()
        self.ask("http")
        self.ask("http")
        self.clock.rightNow -= 3600
        self.ask("pages")
        for _ in range(3):
            self.turns.note_traffic()
            self.turn(1.1 * self.cost)
        self.assertEqual(self.taken, ["http", "http", "pages"])

    def test_time_passes(self) -> None:
        """A rest that ends while the next turn is asked for is no error."""
        seconds, call_later = self.clock.seconds, self.clock.callLater
        delays: list[float] = []

        def later() -> float:
            self.clock.rightNow += self.cost / 1.5
            return seconds()

        def call(delay: float, function: Callable[[], object]) -> object:
            delays.append(delay)
            return call_later(delay, function)

        self.patch(self.clock, "seconds", later)
        self.patch(self.clock, "callLater", call)
        self.turns.note_traffic()
        for _ in range(3):
            self.ask("http")
        while len(self.taken) < 3:
            self.turn()
        self.assertGreaterEqual(min(delays), 0)

    def test_bound(self) -> None:
        """A step of ten seconds does not shut management out for as long."""
        self.cost = 10.0
        self.turns.note_traffic()
        self.ask("http")
        self.ask("http")
        self.turn(MOST_SECONDS)
        self.assertEqual(len(self.taken), 2)
