# SPDX-License-Identifier: Apache-2.0
"""Scheduling of connections: units, turns, order."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.connection_scheduler import CROWD, ConnectionScheduler, SchedulerShare
from amqproute.turn_scheduler import STEPS_IN_TURN, TurnScheduler
from tests.support.fakes import Turns


class Worked:
    """A connection with this many units of work to do."""

    def __init__(self, name: str, log: list[str], left: int = 0, seconds_per_unit: float = 0):
        self.name = name
        self.log = log
        self.left = left
        self.seconds_per_unit = seconds_per_unit
        self.budgets: list[int] = []
        self.time = [0.0]
        self.share = SchedulerShare()

    def work(self, budget: int) -> int:
        done = min(budget, self.left)
        self.left -= done
        self.log.append(self.name)
        self.budgets.append(budget)
        self.time[0] += done * self.seconds_per_unit
        return done

    @property
    def has_work(self) -> bool:
        return self.left > 0


class SchedulerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Turns()
        self.scheduler = ConnectionScheduler(self.clock, slice_units=1000, crowd=100)
        self.log: list[str] = []

    def tearDown(self) -> None:
        self.assertEqual(self.scheduler.waiting, 0)
        while self.clock.getDelayedCalls():
            self.clock.turn()

    def worker(self, name: str) -> Worked:
        return Worked(name, self.log)

    def read(self, connection: Worked, units: int) -> None:
        """Have a connection read this much work."""
        connection.left += units
        if self.scheduler.may_work(connection):
            self.scheduler.serve(connection)
        else:
            self.scheduler.wait(connection)

    def turn(self) -> str:
        """Let one turn of the reactor pass; return who has worked in it."""
        del self.log[:]
        self.clock.turn()
        return "".join(self.log)

    def test_little_work_is_done_at_once(self) -> None:
        """It waits for no turn, and needs none."""
        connection = self.worker("a")
        self.read(connection, 100)
        self.assertEqual(self.log, ["a"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_slice_in_each_turn(self) -> None:
        """A connection with more input continues in the next turn, and the next."""
        connection = self.worker("a")
        self.read(connection, 3500)
        self.assertTrue(connection.share.is_waiting)
        self.assertEqual([self.turn() for _ in range(3)], ["a"] * 3)
        self.assertFalse(connection.share.is_waiting)
        self.assertEqual(connection.share.slices, 4)

    def test_a_turn_is_no_longer_with_many(self) -> None:
        """A hundred greedy connections spend two slices in a turn at first, then one."""
        connections = [self.worker(chr(0x100 + number)) for number in range(100)]
        for connection in connections:
            self.read(connection, 2000)
        self.assertLessEqual(len(self.log), 2)
        self.assertEqual(self.scheduler.waiting, 100)
        self.assertTrue(self.scheduler.is_crowded)
        turns = [self.turn() for _ in range(198)]
        self.assertEqual({len(each) for each in turns}, {1})
        self.assertEqual({connection.share.slices for connection in connections}, {2})

    def test_half_slices(self) -> None:
        """Slices are half as long while many connections wait."""
        connections = [self.worker("a") for number in range(150)]
        for connection in connections:
            self.read(connection, 3000)
        self.assertGreater(self.scheduler.waiting, 100)
        self.clock.turn()
        self.clock.turn()
        budgets = [each for connection in connections for each in connection.budgets]
        self.assertEqual(budgets[-1], 500)
        while self.scheduler.waiting:
            self.clock.turn()
        budgets = [each for connection in connections for each in connection.budgets]
        self.assertEqual(set(budgets), {500, 1000})

    def test_in_turn(self) -> None:
        """Equals alternate."""
        for name in "abc":
            self.read(self.worker(name), 3000)
        order = "".join(self.log) + "".join(self.turn() for _ in range(10))
        for start in range(0, 9, 3):
            self.assertEqual(sorted(order[start : start + 3]), ["a", "b", "c"], order)

    def test_light_before_heavy(self) -> None:
        """A small request is served at once, however many others wait."""
        for number in range(50):
            self.read(self.worker(f"{number},"), 5000)
        light = self.worker("L")
        for _ in range(20):
            self.turn()
            del self.log[:]
            self.read(light, 10)
            self.assertEqual(self.log, ["L"])
        for _ in range(300):
            self.turn()

    def test_parties(self) -> None:
        """Forty greedy connections of one party have no more than one connection of another."""
        crowd = self.scheduler.party("address 192.0.2.1")
        many = [self.worker(f"{number},") for number in range(40)]
        for each in many:
            each.share.party = crowd
            self.read(each, 8000)
        one = self.worker("A")
        one.share.party = self.scheduler.party("user ann")
        done = 0
        for _ in range(40):
            if not one.share.is_waiting:
                self.read(one, 700)  # in sum far more than the fortieth part
            self.turn()
            done += self.log.count("A")
        self.assertGreaterEqual(one.share.slices, 20)
        self.assertLessEqual(sum(each.share.slices for each in many), 80)
        while self.scheduler.waiting:
            self.turn()

    def test_move(self) -> None:
        """A connection that logs in owes nothing of the work of others at its address."""
        crowd = self.scheduler.party("address 192.0.2.1")
        greedy = self.worker("g")
        greedy.share.party = crowd
        self.read(greedy, 100_000)
        while self.scheduler.waiting:
            self.turn()
        ann = self.scheduler.party("user ann")
        bulk, light = self.worker("b"), self.worker("L")
        self.scheduler.move(bulk, ann)
        self.scheduler.move(light, crowd)
        self.read(light, 10)
        self.scheduler.move(light, ann)
        self.read(bulk, 20_000)
        self.turn()
        self.turn()
        self.read(light, 10)
        self.turn()
        self.turn()
        self.assertFalse(light.share.is_waiting)
        while self.scheduler.waiting:
            self.turn()

    def test_move_at_work(self) -> None:
        """A connection may log in within its slice, and continues as another party's."""
        ann = self.scheduler.party("user ann")

        class LogIn(Worked):
            def work(worker, budget: int) -> int:
                self.scheduler.move(worker, ann)
                return super().work(budget)

        self.read(self.worker("g"), 20_000)
        one = LogIn("L", self.log)
        self.read(one, 3000)
        while self.scheduler.waiting:
            self.turn()
        self.assertEqual((one.left, one.share.party), (0, ann))

    def test_within_a_party(self) -> None:
        """A small request precedes the others of its party in the next turn."""
        party = self.scheduler.party("address 192.0.2.1")
        greedy = [self.worker(f"{number},") for number in range(20)]
        light = self.worker("L")
        for each in (*greedy, light):
            each.share.party = party
        for each in greedy:
            self.read(each, 5000)
        for _ in range(20):
            self.turn()  # each has had its first slice
        for _ in range(20):
            del self.log[:]
            self.read(light, 10)
            self.clock.turn()
            self.assertIn("L", self.log)
        while self.scheduler.waiting:
            self.turn()

    def test_party_of_nobody(self) -> None:
        """The record of a party's work is forgotten with its last connection."""
        one = self.worker("a")
        one.share.party = self.scheduler.party("user ann")
        self.assertIs(self.scheduler.party("user ann"), one.share.party)
        del one
        self.assertEqual(len(self.scheduler._parties), 0)

    def test_light_before_those_that_read_on(self) -> None:
        """A connection that uses up slices takes nothing from the share of others."""
        greedy = [self.worker(f"{number},") for number in range(20)]
        light = self.worker("L")
        at_once = 0
        for _ in range(100):
            for each in greedy:
                if not each.share.is_waiting:
                    self.read(each, 900)
            del self.log[:]
            self.read(light, 10)
            at_once += self.log == ["L"]
            self.turn()
        self.assertGreater(at_once, 90)  # those who are new have what is kept for them at first
        for _ in range(100):
            self.turn()

    def test_light_ones_are_bounded_too(self) -> None:
        """Of many that ask for little in one turn some wait for the next."""
        for number in range(100):
            self.read(self.worker(f"{number},"), 100)
        self.assertEqual(len(self.log), 20)
        self.assertEqual(self.turn().count(","), 10)
        for _ in range(7):
            self.turn()

    def test_no_debt_for_idle_processors(self) -> None:
        """Work done while no other connection wanted any is not charged later."""
        old, new = self.worker("o"), self.worker("n")
        for _ in range(100):
            self.read(old, 1000)
            self.turn()
        self.read(new, 3000)
        self.read(old, 3000)
        order = "".join(self.turn() for _ in range(6))
        self.assertIn("o", order[:2])

    def test_forgotten(self) -> None:
        """A closed connection works no more, and the turns end."""
        connection = self.worker("a")
        self.read(connection, 5000)
        self.scheduler.forget(connection)
        self.assertEqual(self.turn(), "")
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_forgotten_among_others(self) -> None:
        """Those who stay continue."""
        gone, stays = self.worker("g"), self.worker("s")
        self.read(stays, 3000)
        self.read(gone, 3000)
        self.scheduler.forget(gone)
        turns = "".join(self.turn() for _ in range(5))
        self.assertEqual(turns.strip("g"), "ss")

    def test_a_fault_stops_nobody_else(self) -> None:
        """The others are served in the next turn."""
        bad, good = self.worker("b"), self.worker("g")
        self.read(good, 2000)
        self.read(bad, 2000)
        bad.work = None  # type: ignore[assignment, method-assign]
        with self.assertRaises(TypeError):
            for _ in range(4):
                self.turn()
        for _ in range(3):
            self.turn()
        self.assertFalse(good.has_work)

    def test_crowd(self) -> None:
        """A few waiting connections are no crowd."""
        self.scheduler = ConnectionScheduler(self.clock, slice_units=1000)
        connections = [self.worker("a") for _ in range(CROWD)]
        for connection in connections:
            connection.left = 1
        for connection in connections[:-1]:
            self.scheduler.wait(connection)
        self.assertFalse(self.scheduler.is_crowded)
        self.scheduler.wait(connections[-1])
        self.assertTrue(self.scheduler.is_crowded)
        self.turn()


class PutOffTests(SynchronousTestCase):
    """Those who wait share the turns with other work."""

    def setUp(self) -> None:
        self.clock = Turns()
        self.turns = TurnScheduler(self.clock)
        self.scheduler = ConnectionScheduler(self.clock, slice_units=1000, turns=self.turns)
        self.log: list[str] = []

    def read(self, connection: Worked, units: int) -> None:
        connection.left += units
        if self.scheduler.may_work(connection):
            self.scheduler.serve(connection)
        else:
            self.scheduler.wait(connection)

    def greedy(self) -> None:
        """Have five connections wait that have had a slice each."""
        for number in range(5):
            self.read(Worked(f"{number}", self.log), 10_000)
        while len(set(self.log)) < 5:
            self.clock.turn()
        self.log.clear()

    def test_beside_other_steps(self) -> None:
        """Slices and steps of other kinds alternate, and all are served in the end."""
        self.greedy()
        for _ in range(100):
            self.turns.put_off("tls", "192.0.2.1", lambda: self.log.append("t"))
        while self.scheduler.waiting:
            before = len(self.log)
            self.clock.turn()
            self.assertLessEqual(len(self.log) - before, STEPS_IN_TURN)
        steps = self.log.count("t")
        self.assertLess(abs(len(self.log) - 2 * steps), 5, self.log)
        while self.clock.getDelayedCalls():
            self.clock.turn()
        self.assertEqual(self.log.count("t"), 100)

    def test_light(self) -> None:
        """A connection that had less than others waits for no step of another kind."""
        light = Worked("L", self.log)
        self.greedy()
        for _ in range(100):
            self.turns.put_off("tls", "192.0.2.1", lambda: None)
        for _ in range(20):
            self.log.clear()
            # Others with little have used up what is kept for them in this turn.
            self.scheduler._spent = 2000.0
            self.read(light, 10)
            self.assertTrue(light.share.is_waiting)
            self.clock.turn()
            self.assertIn("L", self.log)
        while self.clock.getDelayedCalls():
            self.clock.turn()


class MeasuredTests(SynchronousTestCase):
    def test_dear_units(self) -> None:
        """Units that take longer than they should are charged as longer, and given out fewer."""
        clock = Turns()
        log: list[str] = []
        dear = Worked("d", log, 100_000, 20e-6)
        cheap = Worked("c", log, 20_000, 1e-6)
        cheap.time = dear.time
        scheduler = ConnectionScheduler(clock, lambda: dear.time[0], slice_units=1000)
        for worker in (dear, cheap):
            scheduler.wait(worker)
        while cheap.left:
            clock.turn()
        self.assertEqual(set(cheap.budgets), {1000})
        # What both have had of the processor is about the same.
        had = (100_000 - dear.left) * 20
        self.assertTrue(15_000 < had < 45_000, had)
        for _ in range(5):
            clock.turn()
        self.assertLess(dear.budgets[-1], 300)

    def test_a_hiccup_is_forgotten(self) -> None:
        """The slices of a connection get longer again."""
        clock = Turns()
        worker = Worked("w", [], 1_000_000, 30e-6)
        scheduler = ConnectionScheduler(clock, lambda: worker.time[0], slice_units=1000)
        scheduler.wait(worker)
        for _ in range(10):
            clock.turn()
        self.assertLess(worker.budgets[-1], 500)
        worker.seconds_per_unit = 1e-6
        for _ in range(20):
            clock.turn()
        self.assertEqual(worker.budgets[-1], 1000)
