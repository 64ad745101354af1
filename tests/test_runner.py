# SPDX-License-Identifier: Apache-2.0
"""The runner of the suite: distribution of tests, and the slowest ones."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial._asyncrunner import _iterateTests
from twisted.trial._dist.distreporter import DistReporter
from twisted.trial.reporter import MinimalReporter
from twisted.trial.runner import TestLoader
from twisted.trial.unittest import SynchronousTestCase

from tests import campaigns
from tests.__main__ import (
    LISTED_FROM,
    LONG,
    MODULES_LISTED,
    REMEMBERED_FROM,
    TESTS_LISTED,
    TOGETHER,
    WORTH_A_JVM,
    Runner,
    compile_sources,
    of_part,
    remember,
    remembered,
    slowest,
)


@dataclass(frozen=True)
class Case:
    """A test, as far as the runner looks at it.

    Attributes:
        name: its id.
        seconds: how long it takes.
        shares_process: it needs what one process has.
    """

    name: str
    seconds: float
    shares_process: bool = False

    def id(self) -> str:
        """Return its id."""
        return self.name


class Worker:
    """A process of tests: it takes the seconds of each."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ran: list[str] = []

    async def run(self, case: Case, result: DistReporter) -> None:
        """Run a test."""
        self.clock.advance(case.seconds)
        self.ran.append(case.name)


class WaitingWorker(Worker):
    """One that has its seconds given one by one."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self._left = 0.0
        self._done: Deferred[None] | None = None

    async def run(self, case: Case, result: DistReporter) -> None:
        """Run a test."""
        self.ran.append(case.name)
        self._left, self._done = case.seconds, Deferred()
        await self._done

    def work(self) -> None:
        """Let a second go by."""
        self._left -= 1
        if self._left <= 0 and (done := self._done) is not None:
            self._done = None
            done.callback(None)


class RunnerTests(SynchronousTestCase):
    """`tests.__main__.Runner`, with processes that are not there."""

    def setUp(self) -> None:
        # The run that this test is part of may be one that writes down how long tests took.
        self.patch(os, "environ", {k: v for k, v in os.environ.items() if k != "AMQPROUTE_SECONDS"})
        self.clock = Clock()
        self.stream = StringIO()
        self.runner = Runner(
            MinimalReporter, 3, [], stream=self.stream, reactor=MemoryReactorClock()
        )
        self.runner._clock = self.clock.seconds
        self.result = self.runner._makeResult()

    def drive(self, *cases: Case, workers: int = 1) -> list[Worker]:
        """Run tests to their end, one process after the other."""
        found = [Worker(self.clock) for _ in range(workers)]
        for worker in found:
            running = self.runner._driveWorker(self.result, cases, worker)
            self.successResultOf(Deferred.fromCoroutine(running))
        return found

    def together(self, *cases: Case, workers: int = 3) -> list[Worker]:
        """Run tests to their end, each process taking its next one when it is done."""
        found = [WaitingWorker() for _ in range(workers)]
        running = [
            Deferred.fromCoroutine(self.runner._driveWorker(self.result, cases, worker))
            for worker in found
        ]
        for _ in range(sum(int(case.seconds) for case in cases)):
            for worker in found:
                worker.work()
        for each in running:
            self.successResultOf(each)
        return list(found)

    def test_shared_first(self) -> None:
        """The first process gets the tests that share one, before all others."""
        first, second = self.drive(
            Case("a.b.Case.test_short", 1.0),
            Case("a.c.Case.test_shared", 1.0, shares_process=True),
            workers=2,
        )
        self.assertEqual(first.ran, ["a.c.Case.test_shared", "a.b.Case.test_short"])
        self.assertEqual(second.ran, [])

    def test_longest_first(self) -> None:
        """The longest tests begin first, and unknown ones last, in their order."""
        self.runner._remembered = {"a.b.Case.test_long": 9.0, "a.b.Case.test_longer": 10.0}
        names = ["a.b.Case.test_x", "a.b.Case.test_long", "a.b.Case.test_longer", "a.b.Case.test_a"]
        [worker] = self.drive(*(Case(name, 1.0) for name in names))
        self.assertEqual(worker.ran, [names[2], names[1], names[0], names[3]])

    def test_together(self) -> None:
        """A process gets the tests of a module, up to some seconds of them; long ones go alone."""
        modules = {
            f"a.{name}.Case.test_{number}": seconds
            for name, seconds in (("b", 1.0), ("c", TOGETHER / 3), ("d", LONG))
            for number in range(4)
        }
        self.runner._remembered = modules
        workers = self.together(*(Case(name, seconds) for name, seconds in modules.items()))
        ran = ["".join(name[2] for name in worker.ran) for worker in workers]
        self.assertEqual(ran, ["cccbbbbc", "dd", "dd"])

    def mixed(self, shared: float, rest: float) -> list[Worker]:
        """Run tests of these seconds together, which are remembered."""
        cases = [
            *(Case(f"a.s.Case.test_{n}", shared, shares_process=True) for n in range(20)),
            *(Case(f"a.r.Case.test_{n}", rest) for n in range(20)),
        ]
        self.runner._remembered = {case.name: case.seconds for case in cases}
        workers = self.together(*cases)
        ran = sorted(name for worker in workers for name in worker.ran)
        self.assertEqual(ran, sorted(case.name for case in cases))
        return workers

    def test_second_from_the_start(self) -> None:
        """Two processes begin with the tests that share one where those take longest."""
        first, second, third = self.mixed(shared=2.0, rest=1.0)
        self.assertEqual(
            [each.ran[0][:3] for each in (first, second, third)], ["a.s"] * 2 + ["a.r"]
        )
        self.assertNotIn("a.s", {name[:3] for name in third.ran})

    def test_second_at_the_end(self) -> None:
        """Otherwise one does, and another helps with as many as are worth it, behind all others."""
        first, second, third = self.mixed(shared=1.0, rest=1.0)
        self.assertEqual({name[:3] for name in first.ran}, {"a.s"})
        for helping in (second, third):
            kinds = [name[:3] for name in helping.ran]
            self.assertEqual(kinds, sorted(kinds))
        self.assertEqual(
            ["a.s.Case" in " ".join(each.ran) for each in (second, third)].count(True), 1
        )

    def test_few_are_not_worth_it(self) -> None:
        """A handful of tests stays with one process, however long they take."""
        cases = [Case(f"a.s.Case.test_{n}", 5.0, shares_process=True) for n in range(WORTH_A_JVM)]
        self.runner._remembered = {case.name: case.seconds for case in cases}
        self.assertEqual([len(each.ran) for each in self.together(*cases)], [WORTH_A_JVM, 0, 0])

    def test_ends_with_slowest(self) -> None:
        """The outcome is followed by what took longest."""
        self.drive(
            Case("a.b.Case.test_short", 0.5),
            Case("a.c.Case.test_shared", 2.0, shares_process=True),
            Case("a.b.Case.test_long", 2.5),
        )
        self.runner.writeResults(self.result)
        found = self.stream.getvalue().partition("Slowest tests:\n")[2].splitlines()
        self.assertEqual(
            [line.split() for line in found],
            [
                ["2.5", "s", "a.b.Case.test_long"],
                ["2.0", "s", "a.c.Case.test_shared"],
                ["0.5", "s", "a.b.Case.test_short"],
                ["Slowest", "modules:"],
                ["3.0", "s", "a.b"],
                ["2.0", "s", "a.c"],
            ],
        )


class CompileTests(SynchronousTestCase):
    """`tests.__main__.compile_sources`."""

    def test_compiled(self) -> None:
        """Bytecode is written whatever the environment says; a bad module is no obstacle."""
        self.patch(sys, "dont_write_bytecode", True)
        root = Path(self.mktemp())
        for name, text in (("good", "x = 1\n"), ("bad", "x = \n"), ("nested/other", "y = 2\n")):
            source = root / "amqproute" / f"{name}.py"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
        compile_sources(root)
        found = {path.name.partition(".")[0] for path in root.rglob("*.pyc")}
        self.assertEqual(found, {"good", "other"})


class RememberTests(SynchronousTestCase):
    """`tests.__main__.remember`."""

    def test_read_again(self) -> None:
        """Written times are read back; without the file there are none."""
        path = Path(self.mktemp())
        self.assertEqual(remembered(path), {})
        remember(path, {"a": REMEMBERED_FROM, "b": REMEMBERED_FROM / 2, "c": 12.34})
        self.assertEqual(remembered(path), {"a": REMEMBERED_FROM, "c": 12.3})

    def test_other_part(self) -> None:
        """A run of one part leaves alone what is known of the other."""
        path = Path(self.mktemp())
        one, other = "tests.network.test_soak.SoakTests.test_short", "tests.test_runner.A.test_b"
        remember(path, {one: 2.0}, campaigns=True)
        remember(path, {other: 3.0})
        self.assertEqual(remembered(path), {one: 2.0, other: 3.0})
        remember(path, {}, campaigns=True)
        self.assertEqual(remembered(path), {other: 3.0})


@cache
def whole_suite() -> Any:
    """Load all tests, which takes seconds, once."""
    return TestLoader().loadByName("tests", recurse=True)


class CampaignTests(SynchronousTestCase):
    """`tests.campaigns` divides the suite."""

    def setUp(self) -> None:
        self.suite = whole_suite()
        self.ids = {case.id() for case in _iterateTests(self.suite)}

    def test_each_in_one(self) -> None:
        """The parts of ``make test`` and ``make test-campaigns`` are the suite together."""
        ordinary, others = (
            [case.id() for case in _iterateTests(of_part(self.suite, which))]
            for which in (False, True)
        )
        self.assertEqual(set(ordinary) & set(others), set())
        self.assertEqual(sorted([*ordinary, *others]), sorted(self.ids))
        self.assertGreater(len(ordinary), 20 * len(others))

    def test_rows(self) -> None:
        """Each row names tests that exist, none names those of another, and each area is tested
        with daemons in the ordinary suite."""
        parts = [part for campaign in campaigns.CAMPAIGNS for part in campaign.tests]
        for part in parts:
            self.assertTrue(any(f"{each}.".startswith(f"{part}.") for each in self.ids), part)
            beside = [other for other in parts if f"{part}.".startswith(f"{other}.")]
            self.assertEqual(beside, [part])
        for campaign in campaigns.CAMPAIGNS:
            self.assertIn(campaign.ordinary, self.ids)
            self.assertFalse(campaigns.is_campaign(campaign.ordinary), campaign.ordinary)
            place = campaign.ordinary.startswith(("tests.integration.", "tests.pipeline."))
            self.assertTrue(place, campaign.ordinary)

    def test_wrong_part(self) -> None:
        """A request for tests that are all of the other part names that part."""
        suite = TestLoader().loadByName("tests.network.test_soak")
        with self.assertRaises(SystemExit) as caught:
            of_part(suite, campaigns=False)
        self.assertIn("make test-campaigns", str(caught.exception))


class SlowestTests(SynchronousTestCase):
    """`tests.__main__.slowest`."""

    def test_most(self) -> None:
        """So many tests and modules and no more, the longest first."""
        seconds = {f"m{n}.Case.test_{n}": 1.0 + n for n in range(TESTS_LISTED + 1)}
        lines = slowest(seconds)
        self.assertEqual(len(lines), 1 + TESTS_LISTED + 1 + MODULES_LISTED)
        last = TESTS_LISTED
        self.assertTrue(lines[1].endswith(f"m{last}.Case.test_{last}"), lines[1])
        self.assertNotIn("m0", "".join(lines))

    def test_nothing_slow(self) -> None:
        """No line for what takes no time."""
        self.assertEqual(slowest({"m.Case.test_a": LISTED_FROM / 4}), [])
        self.assertEqual(slowest({}), [])
