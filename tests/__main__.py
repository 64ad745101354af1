# SPDX-License-Identifier: Apache-2.0
"""``python -m tests -j3 tests``: trial, with the tests that share a JVM in one of its processes.

Trial deals out single tests to whichever process is free. Sooner or later each process gets one
that needs Spark, and starts a JVM of its own, which takes seconds and is slow at whatever it does
for the first time. Here one process gets the tests that say so (``shares_process``), and goes on as
the others do behind them. A second one lends a hand as soon as nothing else is left to do, while
there are enough of them to be worth a JVM. All options are trial's, and so is everything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from twisted.scripts import trial
from twisted.trial._dist.disttrial import DistTrialRunner

WORTH_A_JVM = 8
"""So many tests take longer than a JVM that starts."""


class Runner(DistTrialRunner):
    """Trial's runner of several processes, but for who gets which tests."""

    _source: Iterable[Any] | None = None
    _shared: deque[Any]
    _rest: deque[Any]
    _has_second = False

    async def _driveWorker(self, result: Any, testCases: Iterable[Any], worker: Any) -> None:
        """Give tests to a process until there are none. All are given the same iterable."""
        is_first = self._source is not testCases
        if is_first:
            self._source, cases = testCases, list(testCases)
            self._shared = deque(case for case in cases if _shares(case))
            self._rest = deque(case for case in cases if not _shares(case))
            self._has_second = False
            await super()._driveWorker(result, self._each(self._shared, result), worker)
        await super()._driveWorker(result, self._each(self._rest, result), worker)
        if len(self._shared) >= WORTH_A_JVM and not self._has_second:
            self._has_second = True
            await super()._driveWorker(result, self._each(self._shared, result), worker)

    def _each(self, queue: deque[Any], result: Any) -> Iterator[Any]:
        while queue and not (self._exitFirst and not result.original.wasSuccessful()):
            yield queue.popleft()


def _shares(case: Any) -> bool:
    return getattr(case, "shares_process", False)


if __name__ == "__main__":
    trial.DistTrialRunner = Runner
    trial.run()
