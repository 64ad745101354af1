# SPDX-License-Identifier: Apache-2.0
"""Guessers are slowed down over any number of connections, right passwords are not."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth import log_in_queue
from amqproute.auth.log_in_queue import (
    FORGIVE_SECONDS,
    LONGEST_HOLD_SECONDS,
    MOST_RUNNING,
    MOST_WAITING,
    PAIR_SECONDS,
    SLOTS,
    LogInQueue,
)

GUESSER = "192.0.2.1"


class Desk:
    """A queue whose log-ins are looked at in no time."""

    def __init__(self, longest_delay: float = 8.0) -> None:
        self.queue = LogInQueue(longest_delay)
        self.now = 0.0
        self.right: set[Hashable] = set()
        self.looked_at: dict[Hashable, float] = {}
        self.delays: dict[Hashable, float] = {}
        self.sent_away: set[Hashable] = set()
        self.number = 0

    def come(self, address: str, user: str, is_right: bool = False) -> int:
        """Have somebody log in."""
        self.number += 1
        if is_right:
            self.right.add(self.number)
        gone = self.queue.arrive(self.number, address, user, self.now)
        if gone is not None:
            self.sent_away.add(gone)
        self.look()
        return self.number

    def look(self) -> None:
        while keys := self.queue.due(self.now):
            for key in keys:
                self.looked_at[key] = self.now
                self.delays[key] = self.queue.settled(key, key in self.right, self.now)

    def wait(self, seconds: float) -> None:
        """Let time pass as the clock of the daemon would."""
        end = self.now + seconds
        while (at := self.queue.next_due()) is not None and at <= end:
            self.now = max(self.now, at)
            self.look()
        self.now = end
        self.look()


class QueueTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk()

    def assert_soon(self, key: int, begun: float) -> None:
        """A right password is answered within 2 s, without a delay."""
        self.desk.wait(2.0)
        self.assertIn(key, self.desk.looked_at)
        self.assertLessEqual(self.desk.looked_at[key] - begun, 2.0)
        self.assertEqual(self.desk.delays[key], 0.0)

    def test_ten_wrong_and_a_right_one(self) -> None:
        """The attack of the issue: ten at once, then the right one for the same user."""
        for _ in range(10):
            self.desk.come("127.0.0.1", "ann")
        self.assert_soon(self.desk.come("127.0.0.1", "ann", True), self.desk.now)

    def test_a_thousand_wrong(self) -> None:
        """The same with a thousand for many users, whose connections stay."""
        for number in range(1000):
            self.desk.come(GUESSER, f"user{number % 50}")
        self.assert_soon(self.desk.come(GUESSER, "ann", True), self.desk.now)

    def test_from_everywhere_for_one_user(self) -> None:
        """A user who is guessed from a thousand addresses gets in from a new one."""
        for turn in range(3):
            for number in range(1000):
                self.desk.come(f"198.51.{number}.1", "ann")
            self.desk.wait(1.0 + turn)
        self.assert_soon(self.desk.come("203.0.113.1", "ann", True), self.desk.now)

    def test_known_user_beside_a_guesser(self) -> None:
        """A user who has logged in from the guesser's address before does not wait for the guesser,
        who continues all the time."""
        self.desk.come(GUESSER, "ann", True)
        for number in range(400):
            self.desk.come(GUESSER, f"user{number}")
            self.desk.wait(0.01)
            if number % 40 == 39:
                key = self.desk.come(GUESSER, "ann", True)
                self.assertEqual(self.desk.looked_at.get(key), self.desk.now)

    def test_new_user_beside_a_guesser(self) -> None:
        """A new user of the guesser's address has a turn as well while one user is guessed."""
        for _ in range(100):
            self.desk.come(GUESSER, "ann")
            self.desk.wait(0.01)
        key = self.desk.come(GUESSER, "bob", True)
        begun = self.desk.now
        for _ in range(200):
            self.desk.come(GUESSER, "ann")
            self.desk.wait(0.01)
        self.assertLessEqual(self.desk.looked_at[key] - begun, 2.0)

    def test_same_user_beside_a_guesser(self) -> None:
        """A guesser of the same user at the same address, who gives each connection up for a new
        one, does not push in before somebody who waits: neither before nor after the first
        log-in of that user."""
        guesses: list[int] = []
        for turn in range(3):
            key = None
            for number in range(300):
                if number == 100:
                    key = self.desk.come(GUESSER, "ann", True)
                    begun = self.desk.now
                guesses.append(self.desk.come(GUESSER, "ann"))
                self.desk.wait(0.01)
                if len(guesses) > 5:
                    self.desk.queue.withdraw(guesses.pop(0))
            assert key is not None
            self.assertLessEqual(self.desk.looked_at[key] - begun, 2.0, turn)

    def test_rate(self) -> None:
        """However many guesses there are, an address has this many looked at."""
        for _ in range(6000):
            self.desk.come(GUESSER, f"user{self.desk.number % 300}")
            self.desk.wait(0.01)
        ramp = 5 * SLOTS
        self.assertLessEqual(len(self.desk.looked_at), ramp + 60.0 / LONGEST_HOLD_SECONDS * SLOTS)
        self.assertGreater(len(self.desk.looked_at), 100)
        self.assertLessEqual(len(self.desk.queue), MOST_WAITING)

    def test_closing_connections_gains_nothing(self) -> None:
        """A guess that was looked at holds its slot whether or not somebody waits for it."""
        for _ in range(3000):
            key = self.desk.come(GUESSER, "ann")
            self.desk.queue.withdraw(key)
            self.desk.wait(0.01)
        self.assertLessEqual(
            len(self.desk.looked_at), 5 * SLOTS + 30.0 / LONGEST_HOLD_SECONDS * SLOTS
        )
        self.assertEqual(len(self.desk.queue), 0)

    def test_answers_of_failures_wait_longer_each_time(self) -> None:
        """By address and by user, whichever has failed more."""

        def delays(come: Callable[[int], int]) -> list[float]:
            found = []
            for number in range(6):
                found.append(self.desk.delays[come(number)])
                self.desk.wait(2.0)
            return found

        expected = [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
        self.assertEqual(delays(lambda n: self.desk.come(GUESSER, f"u{n}")), expected)
        self.assertEqual(delays(lambda n: self.desk.come(f"198.51.{n}.1", "ann")), expected)
        self.assertEqual(self.desk.delays[self.desk.come("203.0.113.1", "bob")], 1.0)

    def test_failures_are_forgiven(self) -> None:
        for _ in range(4):
            self.desk.come(GUESSER, "ann")
            self.desk.wait(2.0)
        self.desk.wait(3 * FORGIVE_SECONDS)
        self.assertEqual(self.desk.delays[self.desk.come(GUESSER, "ann")], 2.0)
        self.desk.wait(60 * FORGIVE_SECONDS)
        self.assertEqual(self.desk.delays[self.desk.come(GUESSER, "ann")], 1.0)

    def test_own_account_forgives_nothing(self) -> None:
        """A guesser with an account of its own does not start over by logging in."""
        for _ in range(3):
            self.desk.come(GUESSER, "ann")
            self.desk.wait(2.0)
            self.desk.come(GUESSER, "mallory", True)
        self.assertEqual(self.desk.delays[self.desk.come(GUESSER, "ann")], 8.0)

    def test_those_sent_away(self) -> None:
        """The line of an address is bounded; the oldest of who has most in it goes."""
        desk = self.desk
        keys = [desk.come(GUESSER, "ann") for _ in range(SLOTS + MOST_WAITING - 1)]
        bob = desk.come(GUESSER, "bob")
        self.assertEqual(desk.sent_away, set())
        desk.come(GUESSER, "bob")
        self.assertEqual(desk.sent_away, {keys[SLOTS]})
        self.assertNotIn(bob, desk.sent_away)

    def test_threads(self) -> None:
        """So many are looked at at a time; known users first, then the addresses in turn."""
        queue = self.desk.queue
        queue.remember("203.0.113.9", "ann", 0.0)
        for number in range(MOST_RUNNING):
            queue.arrive(("first", number), f"198.51.{number}.1", "x", 0.0)
        first = queue.due(0.0)
        self.assertEqual(len(first), MOST_RUNNING)
        for number in range(3):
            queue.arrive(("many", number), GUESSER, "x", 0.0)
        queue.arrive("other", "203.0.113.1", "x", 0.0)
        queue.arrive("known", "203.0.113.9", "ann", 0.0)
        self.assertEqual(queue.due(0.0), [])
        order = []
        for key in first:
            queue.settled(key, True, 0.0)
            order += queue.due(0.0)
        self.assertEqual(order, ["known", ("many", 2), "other", ("many", 0)])

    def test_has_slot(self) -> None:
        queue = self.desk.queue
        self.assertTrue(queue.has_slot(GUESSER, "ann", 0.0))
        for _ in range(SLOTS):
            self.desk.come(GUESSER, "bob")
        self.assertFalse(queue.has_slot(GUESSER, "ann", 0.0))
        self.assertTrue(queue.has_slot("192.0.2.2", "ann", 0.0))
        queue.remember(GUESSER, "ann", 0.0)
        self.assertTrue(queue.has_slot(GUESSER, "ann", 0.0))
        self.assertTrue(queue.has_slot(GUESSER, "cy", LONGEST_HOLD_SECONDS))
        self.desk.wait(PAIR_SECONDS)
        for _ in range(SLOTS):
            self.desk.come(GUESSER, "bob")
        self.assertFalse(queue.has_slot(GUESSER, "ann", self.desk.now))

    def test_memory_is_bounded(self) -> None:
        """No table grows with the names and addresses that strangers make up."""
        self.patch(log_in_queue, "MOST_COUNTED", 10)
        self.patch(log_in_queue, "MOST_PAIRS", 10)
        queue = self.desk.queue
        for number in range(100):
            self.desk.come(f"198.51.{number}.1", f"user{number}")
            queue.remember(f"198.51.{number}.1", f"user{number}", self.desk.now)
        self.assertEqual((len(queue._by_address), len(queue._by_user)), (10, 10))
        self.assertEqual(len(queue._pairs), 10)
        self.desk.wait(2.0)
        self.assertEqual((queue._lines, queue._holds, queue._waiting), ({}, [], {}))

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["192.0.2.1", "192.0.2.2", "uid:7"]),
                st.sampled_from(["ann", "bob", ""]),
                st.booleans(),
                st.sampled_from([0.0, 0.0, 0.05, 0.7]),
            ),
            max_size=150,
        )
    )
    @settings(max_examples=80, deadline=None)
    def test_anything(self, story: list[tuple[str, str, bool, float]]) -> None:
        """Everybody is looked at once or sent away; slots are never overdrawn; a right password
        after whatever happened is answered within 2 s."""
        desk = Desk()
        for address, user, is_right, pause in story:
            desk.come(address, user, is_right and bool(user))
            desk.wait(pause)
            for line in desk.queue._lines.values():
                assert 0 <= line.taken <= SLOTS
                assert line.length <= MOST_WAITING
        begun = desk.now
        last = desk.come("192.0.2.1", "ann", True)
        desk.wait(2.0)
        assert desk.looked_at[last] - begun <= 2.0
        desk.wait(100.0)
        assert desk.looked_at.keys() | desk.sent_away == set(range(1, desk.number + 1))
        assert not desk.looked_at.keys() & desk.sent_away
        assert desk.queue._lines == {}
