# SPDX-License-Identifier: Apache-2.0
"""``python -m tests -j3 tests``: trial, with the tests that share a JVM in one or two processes.

These are the ordinary tests; with ``--campaigns`` as the first word the campaigns in their short
forms (`tests.campaigns`). All other options are trial's, and so is everything else but the order.

Trial deals out single tests to whichever process is free. Sooner or later each process gets one
that needs Spark, and starts a JVM of its own, which takes seconds and is slow at whatever it does
for the first time. Here the first process gets the tests that say so (``shares_process``), and goes
on as the others do behind them. A second one does so too where these tests take longer than all
others, and otherwise as soon as nothing else is left to do, while there are enough of them to be
worth a JVM.

The other tests of a module stay together, up to `TOGETHER` seconds of them: what they share
(imports, sources that were parsed, a daemon) is made in one process instead of in each of them.

Tests that took long are begun first and each by itself, so that no process is left with a long one
at the end. ``tests/seconds.json`` says how long; a run that passes with ``AMQPROUTE_SECONDS=write``
writes it, of the ordinary tests or of the campaigns.

Before the first test all sources are compiled. The suite starts some hundred processes, and where
PYTHONDONTWRITEBYTECODE is set each of them would compile what it imports, which is more work than
most of them do otherwise.

A run ends with the tests, and the modules of tests, that took longest (`slowest`).
"""

from __future__ import annotations

import compileall
import json
import os
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.scripts import trial
from twisted.trial._asyncrunner import _iterateTests
from twisted.trial._dist.disttrial import DistTrialRunner
from twisted.trial.runner import TestSuite

from tests.campaigns import is_campaign

WORTH_A_JVM = 8
"""So many tests take longer than a JVM that starts."""
MACHINES = 2
"""Processes with a JVM, at most."""

ROOT = Path(__file__).parent.parent
COMPILED = ("amqproute", "benchmarks", "tests")
SECONDS = ROOT / "tests" / "seconds.json"

REMEMBERED_FROM = 1.0
"""Tests of this many seconds or more are written down."""
SHORT = 0.03
"""Seconds of a test of which nothing is written down, on average."""

LONG = 8.0
"""A test of this many seconds is given to a process by itself."""
TOGETHER = 12.0
"""Seconds of tests of one module that one process gets at once."""

TESTS_LISTED = 20
MODULES_LISTED = 10
LISTED_FROM = 0.1
"""Tests of fewer seconds are not worth a line."""


def slowest(seconds: Mapping[str, float]) -> list[str]:
    """Return lines that name the slowest tests, and the modules whose tests took longest together.

    Args:
        seconds: how long each test took, by its id (``package.module.Case.test``).
    """
    modules: defaultdict[str, float] = defaultdict(float)
    for test, taken in seconds.items():
        modules[test.rsplit(".", 2)[0]] += taken
    return [
        *_longest("tests", seconds, TESTS_LISTED),
        *_longest("modules", modules, MODULES_LISTED),
    ]


def _longest(what: str, seconds: Mapping[str, float], most: int) -> list[str]:
    names = sorted(seconds, key=lambda name: (-seconds[name], name))[:most]
    lines = [f"{seconds[name]:9.1f} s  {name}" for name in names if seconds[name] >= LISTED_FROM]
    return [f"Slowest {what}:", *lines] if lines else []


def of_part(suite: Any, campaigns: bool) -> Any:
    """Return the tests of a suite that are campaigns, or those that are none.

    Raises:
        SystemExit: there are tests, and none of them is of this part.
    """
    cases = list(_iterateTests(suite))
    part = [case for case in cases if is_campaign(case.id()) == campaigns]
    if cases and not part:
        raise SystemExit(
            "These tests are none of the campaigns; make test runs them."
            if campaigns
            else "These tests are campaigns; make test-campaigns runs them."
        )
    return TestSuite(part)


class Runner(DistTrialRunner):
    """Trial's runner of several processes, but for who gets which tests, and the end of a run."""

    campaigns = False
    _source: Iterable[Any] | None = None
    _shared: deque[list[Any]]
    _rest: deque[list[Any]]
    _machines = 0
    _driven = 0
    _seconds: dict[str, float] = {}
    _remembered: Mapping[str, float] = {}
    _clock: Callable[[], float] = staticmethod(time.monotonic)

    def run(self, test: Any) -> Any:
        """Run those of the tests that are of this part."""
        return super().run(of_part(test, self.campaigns))

    def runUntilFailure(self, test: Any) -> Any:
        """Run those of the tests that are of this part, again and again."""
        return super().runUntilFailure(of_part(test, self.campaigns))

    async def _driveWorker(self, result: Any, testCases: Iterable[Any], worker: Any) -> None:
        """Give tests to a process until there are none. All are given the same iterable."""
        if self._source is not testCases:
            self._source = testCases
            self._plan(list(testCases))
        self._driven += 1
        if has_machine := self._driven <= self._machines:
            await super()._driveWorker(result, self._each(self._shared, result), worker)
        await super()._driveWorker(result, self._each(self._rest, result), worker)
        if len(self._shared) >= WORTH_A_JVM and not has_machine and self._machines < MACHINES:
            self._machines += 1
            await super()._driveWorker(result, self._each(self._shared, result), worker)

    def _plan(self, cases: Sequence[Any]) -> None:
        """Put the longest first, and decide how many processes begin with those that share one."""
        seconds = {id(case): self._remembered.get(case.id(), SHORT) for case in cases}

        def taken(some: Iterable[Any]) -> float:
            return sum(seconds[id(case)] for case in some)

        groups = [[case] for case in cases if _shares(case)]
        self._shared = deque(sorted(groups, key=taken, reverse=True))
        groups = _together([case for case in cases if not _shares(case)], taken)
        self._rest = deque(sorted(groups, key=taken, reverse=True))
        shared, rest = (sum(map(taken, queue)) for queue in (self._shared, self._rest))
        is_most = shared > rest and len(self._shared) >= 2 * WORTH_A_JVM
        self._machines = MACHINES if is_most and self._maxWorkers > MACHINES else 1
        self._driven = 0
        self._seconds = {}

    def _each(self, queue: deque[list[Any]], result: Any) -> Iterator[Any]:
        while queue:
            for case in queue.popleft():
                if self._exitFirst and not result.original.wasSuccessful():
                    return
                began = self._clock()
                yield case
                # The process asks for its next test when it is done with this one.
                self._seconds[case.id()] = self._clock() - began

    def writeResults(self, result: Any) -> None:
        """Write the outcome, then what took longest."""
        super().writeResults(result)
        self.stream.write("".join(f"{line}\n" for line in slowest(self._seconds)))
        if os.environ.get("AMQPROUTE_SECONDS") == "write" and result.original.wasSuccessful():
            remember(SECONDS, self._seconds, self.campaigns)


def remembered(path: Path) -> dict[str, float]:
    """Return how long tests took that took long, by their ids; nothing where nobody has written
    it."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return {str(test): float(seconds) for test, seconds in found.items()}


def remember(path: Path, seconds: Mapping[str, float], campaigns: bool = False) -> None:
    """Write down how long tests took, and keep what is known of the other part."""
    long = {test: each for test, each in remembered(path).items() if is_campaign(test) != campaigns}
    long |= {test: round(each, 1) for test, each in seconds.items() if each >= REMEMBERED_FROM}
    path.write_text(json.dumps(long, indent=1, sort_keys=True) + "\n")


def _together(cases: Iterable[Any], taken: Callable[[Iterable[Any]], float]) -> list[list[Any]]:
    """Divide tests into groups that a process gets at once."""
    groups: list[list[Any]] = []
    open_groups: dict[str, list[Any]] = {}
    for case in cases:
        module = case.id().rsplit(".", 2)[0]
        if taken([case]) >= LONG:
            groups.append([case])
        elif (group := open_groups.get(module)) and taken([*group, case]) <= TOGETHER:
            group.append(case)
        else:
            open_groups[module] = group = [case]
            groups.append(group)
    return groups


def _shares(case: Any) -> bool:
    return getattr(case, "shares_process", False)


def compile_sources(root: Path) -> None:
    """Write the bytecode of all modules that processes of the suite import, where it is not there.

    What cannot be compiled, or written, is left to whoever imports it.
    """
    for name in COMPILED:
        compileall.compile_dir(root / name, quiet=2)


if __name__ == "__main__":
    compile_sources(ROOT)
    Runner.campaigns = "--campaigns" in sys.argv[1:2]
    if Runner.campaigns:
        del sys.argv[1]
    Runner._remembered = remembered(SECONDS)
    trial.DistTrialRunner = Runner
    trial.run()
