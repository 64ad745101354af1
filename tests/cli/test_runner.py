# SPDX-License-Identifier: Apache-2.0
"""The reactor of one command, which ends with the command's result."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.support.patience import PATIENCE
from tests.support.program import ROOT


class RunTests(SynchronousTestCase):
    """The output of a process that runs one coroutine function."""

    def run_one(self, function: str) -> str:
        program = f"from amqproute.cli.runner import run\n{function}\nprint(run(work))\n"
        done = subprocess.run(
            (sys.executable, "-c", program),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout + done.stderr

    def test_result(self) -> None:
        """The coroutine's result is returned."""
        self.assertEqual(self.run_one("async def work(reactor): return 7"), "7\n")

    def test_failure(self) -> None:
        """The coroutine's exception is raised, and one before there is a coroutine as well."""
        for head in ("async def work(reactor): ", "def work(reactor): "):
            told = self.run_one(f"{head}raise ValueError('no')")
            self.assertTrue(told.endswith("ValueError: no\n"), told)
