# SPDX-License-Identifier: Apache-2.0
"""Processes forked from a template behave like processes of the program."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.support.patience import PATIENCE
from tests.support.program import ROOT, Process, run

ABANDONS = """
import os, signal, sys
from pathlib import Path
from tests.support.program import Process
pid = Process(["batch"], environ={}, stdin=int(sys.argv[1]), stdout=2, stderr=2).pid
template = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
print(pid, template, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Starts a command that waits for its input, and goes."""


def wait_gone(pid: int) -> None:
    """Wait until there is no such process."""
    try:
        file = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([file], [], [], PATIENCE)[0], f"{pid} is still there"
    finally:
        os.close(file)


class ForkTests(SynchronousTestCase):
    def test_as_executed(self) -> None:
        """The same words on the same streams, and the same exit code."""
        for args in (["--version"], ["nonsense"], ["queue", "ls", "--url", "unix:/nowhere"]):
            executed = subprocess.run(
                [sys.executable, "-m", "amqproute", *args],
                capture_output=True,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                timeout=PATIENCE,
            )
            forked = run(*args)
            self.assertEqual(
                (forked.returncode, forked.stdout, forked.stderr),
                (executed.returncode, executed.stdout, executed.stderr),
            )

    def test_environment_and_input(self) -> None:
        """Are its own, and so are the file descriptors."""
        directory = Path(tempfile.mkdtemp(dir="."))
        (directory / "a.yaml").write_text("{listen: [], domains: [alpha.example], nonsense: 1}")
        found = run("check", environ={"AMQPROUTE_CONFIG": str(directory / "a.yaml")})
        self.assertEqual(found.returncode, 2)
        self.assertIn("nonsense", found.stderr)
        self.assertEqual(run("send", "x", "--file", "-", stdin="{", seconds=10).returncode, 2)

    def test_lives_and_ends(self) -> None:
        """It can be looked at and waited for, and killed."""
        reading, writing = os.pipe()
        process = Process(["batch"], environ={}, stdin=reading, stdout=writing, stderr=writing)
        self.assertIsNone(process.poll())
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.05)
        self.assertIn("support.program", Path(f"/proc/{process.pid}/cmdline").read_text())
        process.kill()
        self.assertEqual(process.wait(PATIENCE), -signal.SIGKILL)
        self.assertEqual(process.poll(), -signal.SIGKILL)
        process.kill()
        os.close(reading)
        os.close(writing)

    def test_none_is_left(self) -> None:
        """When the process that started it is killed, it goes too, and so does the template."""
        reading, writing = os.pipe()  # nobody writes, and this process keeps it open
        try:
            done = subprocess.run(
                [sys.executable, "-c", ABANDONS, str(reading)],
                capture_output=True,
                text=True,
                pass_fds=[reading],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                timeout=PATIENCE,
            )
            self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
            pids = [int(each) for each in done.stdout.split()]
            self.assertEqual(len(pids), 2)
            for pid in pids:
                wait_gone(pid)
        finally:
            os.close(reading)
            os.close(writing)
