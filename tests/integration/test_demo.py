# SPDX-License-Identifier: Apache-2.0
"""``amqproute demo``, run as a command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import read_line
from amqproute.tools.daemon_pair import child_environment
from tests.support.patience import PATIENCE

NODES = ("orders", "amqp$out/beta.example")


def of(directory: Path) -> set[int]:
    """Find the processes that have something of this directory on their command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if os.fsencode(str(directory)) in path.read_bytes():
                found.add(int(path.parent.name))
        except OSError:
            pass  # it has just ended
    return found - {os.getpid()}


class DemoTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.temporary = Path(self.mktemp()).absolute()
        self.temporary.mkdir(parents=True)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "amqproute", "demo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**child_environment(), "TMPDIR": str(self.temporary)},
        )
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=PATIENCE)

    def assertNothingLeft(self) -> None:
        """No process of the demonstration runs, no file of it lies about."""
        self.assertEqual(of(self.temporary), set())
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_nothing_lost_nothing_twice(self) -> None:
        """Without any preparation: everything comes, once, and nothing is left behind but the
        journals, if that is asked for."""
        journals = Path(self.mktemp()).absolute()
        process = self.start("--messages", "100", "--journals", str(journals))
        said, complained = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, complained), (0, ""), said)
        counts = dict(line.split("\t") for line in said.splitlines() if "\t" in line)
        self.assertEqual(counts.pop("messages"), "count")
        wanted = {"sent": "100", "received at beta": "100", "lost": "0", "duplicated": "0"}
        self.assertEqual({name: counts[name] for name in wanted}, wanted)
        self.assertIn("IN SRV 10 0 ", said)
        self.assertIn("peer:alpha.example, over TLSv1.3", said)
        for domain, ending in (("alpha.example", "relayed"), ("beta.example", "delivered")):
            segments = list((journals / domain).glob("*-*-*/*.jsonl"))
            runs = [read_line(line) for path in segments for line in path.open("rb")]
            ended = [r for r in runs if r.kind == ending and r.body["all"]["node"] in NODES]
            self.assertEqual(sum(run.count for run in ended), 100)
            self.assertEqual(runs[-1].kind, "stop")
            self.assertIn(f"--journal {journals / domain}", said)
        self.assertNothingLeft()

    def test_json_and_directory(self) -> None:
        """With --json a program reads the result; a directory of one's own is kept."""
        directory = self.temporary / "kept"
        process = self.start("--messages", "10", "--json", "--directory", str(directory))
        said, complained = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, complained), (0, ""), said)
        result = json.loads(said)
        self.assertEqual((result["relayed"], result["received"], result["lost"]), (10, 10, 0))
        self.assertTrue((directory / "alpha" / "amqproute.yaml").is_file())
        self.assertEqual(of(self.temporary), set())
        again = self.start("--directory", str(directory))
        said, complained = again.communicate(timeout=PATIENCE)
        self.assertEqual((again.returncode, said), (2, ""), complained)
        self.assertIn("pair.directory: ", complained)

    def test_interrupted(self) -> None:
        """SIGTERM ends it with everything it has started."""
        process = self.start("--messages", "10", "--keep-running")
        assert process.stdout is not None
        for line in process.stdout:
            if "until Ctrl-C" in line:
                break
        self.assertEqual(len(of(self.temporary)), 3)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)
        self.assertNothingLeft()

    def test_killed(self) -> None:
        """Even kill -9 leaves no process behind."""
        process = self.start("--messages", "10", "--keep-running")
        assert process.stdout is not None
        for line in process.stdout:
            if "until Ctrl-C" in line:
                break
        process.kill()
        process.communicate(timeout=PATIENCE)
        until = time.monotonic() + PATIENCE
        while of(self.temporary):
            self.assertLess(time.monotonic(), until, of(self.temporary))
            time.sleep(0.05)  # what ends is not our child: there is nothing to wait for
