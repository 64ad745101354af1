# SPDX-License-Identifier: Apache-2.0
"""Expensive steps take turns."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.turn_scheduler import (
    MOST_SECONDS,
    STEPS_IN_TURN,
    TURN_SECONDS,
    TurnScheduler,
)


class TurnClock(Clock):
    """One second is one turn of a reactor, which runs what is asked for in it in the next one."""

    def callLater(self, delay: float, function: Any, *args: Any, **kw: Any) -> Any:
        return super().callLater(delay + 1, function, *args, **kw)


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
            self.clock.advance(1)
        self.clock.advance(1)
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
            self.clock.advance(1)
            self.assertEqual((called, self.clock.getDelayedCalls()), (number + 1, []))
            self.clock.advance(7)
        for _ in range(STEPS_IN_TURN + 1):  # one has to wait, and takes a second turn
            self.ask("a")
        for _ in range(5):
            self.clock.advance(1)
        self.assertEqual((called, len(self.taken)), (12, 10 + STEPS_IN_TURN + 1))

    def test_many(self) -> None:
        """A thousand of one address are a few in each turn."""
        for _ in range(1000):
            self.ask("a")
        turns = 0
        while self.turns.waiting:
            before = len(self.taken)
            self.clock.advance(1)
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
            self.clock.advance(1)
        self.assertEqual(self.taken[:4], ["a", "b", "c", "a"])

    def test_kinds(self) -> None:
        """Kinds are served one after the other, however many steps there are of each."""
        for _ in range(100):
            self.ask("a")
        for number in range(3):
            self.turns.ask("dns", "", lambda number=number: self.taken.append(f"{number}"))
        self.taken.clear()
        while len(self.taken) < 6:
            self.clock.advance(1)
        self.assertEqual(self.taken[:6], ["a", "0", "a", "1", "a", "2"])

    def test_long_steps(self) -> None:
        """If processor time is measured, the turns after a long step pay it back."""
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
                self.clock.advance(1)
                counts.append(len(self.taken))
            self.assertEqual(counts, taken)
            while self.clock.getDelayedCalls():
                self.clock.advance(1)
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
            self.clock.advance(1)
        self.assertEqual(self.taken, [])
        for _ in range(3):
            self.clock.advance(1)
        self.assertEqual(self.taken, ["a"])

    def test_a_step_that_fails(self) -> None:
        """The others are taken nevertheless."""

        def fail() -> None:
            raise ValueError

        for _ in range(STEPS_IN_TURN):
            self.ask("a")
        self.turns.ask("tls", "a", fail)
        self.ask("a")
        self.taken.clear()
        self.assertRaises(ValueError, self.clock.advance, 1)
        while self.turns.waiting:
            self.clock.advance(1)
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
            self.clock.advance(1)
        self.assertEqual(sorted(self.taken), ["a", "a", "b", "b"])
        self.assertEqual(self.clock.getDelayedCalls(), [])


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
            self.clock.advance(1)
            at += [turn] * (len(self.done) - before)
        self.assertEqual(self.done, [0, 1, 2])
        self.assertEqual(at, [0, 5, 10])
        self.clock.advance(10)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_takes_turns_with_others(self) -> None:
        """Many steps of one kind leave every other step to another kind."""
        for number in range(4):
            self.later(TURN_SECONDS, number)
        for word in ("a", "b"):
            self.turns.put_off("tls", "", partial(self.use, TURN_SECONDS, word))
        for _ in range(6):
            self.clock.advance(1)
        self.assertEqual(self.done, [0, "a", 1, "b", 2, 3])

    def test_cancelled(self) -> None:
        """What waited for a pause that was cancelled does not follow."""
        waiting = self.later(0.0, "never")
        waiting.cancel()
        self.failureResultOf(waiting)
        told = self.later(0.0, "once")
        self.clock.advance(1)
        self.successResultOf(told)
        self.assertEqual(self.done, ["once"])
