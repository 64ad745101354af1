# SPDX-License-Identifier: Apache-2.0
"""Handshakes take turns."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.handshake_scheduler import MOST_IN_TURN, HandshakeScheduler


class TurnClock(Clock):
    """One second is one turn of a reactor, which runs what is asked for in it in the next one."""

    def callLater(self, delay: float, function: Any, *args: Any, **kw: Any) -> Any:
        return super().callLater(delay + 1, function, *args, **kw)


class HandshakeTurnsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = TurnClock()
        self.turns = HandshakeScheduler(self.clock)
        self.taken: list[str] = []

    def ask(self, source: str) -> None:
        self.turns.ask(source, lambda: self.taken.append(source))

    def test_at_once(self) -> None:
        """Where there are few nobody waits, turn after turn, and nothing is left behind."""
        for _ in range(5):
            for _ in range(MOST_IN_TURN):
                self.ask("a")
            self.assertEqual(len(self.taken), MOST_IN_TURN)
            self.taken.clear()
            self.clock.advance(1)
        self.clock.advance(1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_many(self) -> None:
        """A thousand of one address are a few in each turn."""
        for _ in range(1000):
            self.ask("a")
        turns = 0
        while len(self.turns):
            before = len(self.taken)
            self.clock.advance(1)
            self.assertLessEqual(len(self.taken) - before, MOST_IN_TURN)
            turns += 1
        self.assertEqual((len(self.taken), turns), (1000, 1000 // MOST_IN_TURN - 1))

    def test_others(self) -> None:
        """Whoever comes later from another address waits for a turn and not for all of those."""
        for _ in range(1000):
            self.ask("a")
        for source in ("b", "c"):
            self.ask(source)
        self.taken.clear()
        self.clock.advance(1)
        self.assertEqual(self.taken, ["a", "b", "c", *["a"] * (MOST_IN_TURN - 3)])

    def test_steps_that_ask(self) -> None:
        """A step may ask for another one."""

        def again() -> None:
            self.taken.append("a")
            self.turns.ask("a", lambda: self.taken.append("b"))

        for _ in range(MOST_IN_TURN):
            self.turns.ask("a", again)
        self.assertEqual(len(self.taken), MOST_IN_TURN)
        self.clock.advance(1)
        self.assertEqual(sorted(self.taken), ["a"] * MOST_IN_TURN + ["b"] * MOST_IN_TURN)
        self.clock.advance(1)
        self.clock.advance(1)
        self.assertEqual(self.clock.getDelayedCalls(), [])
