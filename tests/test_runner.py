# SPDX-License-Identifier: Apache-2.0
"""The runner of the suite: who gets which tests, and which took longest."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial._dist.distreporter import DistReporter
from twisted.trial.reporter import MinimalReporter
from twisted.trial.unittest import SynchronousTestCase

from tests.__main__ import (
    LISTED_FROM,
    MODULES_LISTED,
    TESTS_LISTED,
    Runner,
    compile_sources,
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


class RunnerTests(SynchronousTestCase):
    """`tests.__main__.Runner`, with processes that are not there."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.stream = StringIO()
        self.runner = Runner(
            MinimalReporter, 2, [], stream=self.stream, reactor=MemoryReactorClock()
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

    def test_shared_first(self) -> None:
        """The first process gets the tests that share one, before all others."""
        first, second = self.drive(
            Case("a.b.Case.test_short", 1.0),
            Case("a.c.Case.test_shared", 1.0, shares_process=True),
            workers=2,
        )
        self.assertEqual(first.ran, ["a.c.Case.test_shared", "a.b.Case.test_short"])
        self.assertEqual(second.ran, [])

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
