# SPDX-License-Identifier: Apache-2.0
"""``amqproute bench relay`` with few messages: its counts, not its speed."""

from __future__ import annotations

import json
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from amqproute.tools.daemon_pair import child_environment
from tests.support.patience import PATIENCE


class BenchTests(SynchronousTestCase):
    def test_all_phases(self) -> None:
        """Each phase has its figures, and every message is accounted for."""
        done = subprocess.run(
            [sys.executable, "-m", "amqproute", "bench", "relay", "--messages", "500", "--json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=child_environment(),
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        result = json.loads(done.stdout)
        self.assertTrue(result["exact"])
        phases = {phase["phase"]: phase for phase in result["phases"]}
        self.assertEqual(list(phases), ["accept", "backlog", "drain", "live", "latency"])
        for name, phase in phases.items():
            self.assertEqual((phase["lost"], phase["duplicated"], phase["refused"]), (0, 0, {}))
            if name != "backlog":  # measured from what is in beta's queue at the first look
                self.assertEqual(phase["messages"], 500)
                self.assertGreater(phase["rate"], 0)
        latency = phases["latency"]["latency-ms"]
        self.assertLessEqual(latency["p50"], latency["p99"])
        self.assertLessEqual(latency["p99"], latency["max"])
