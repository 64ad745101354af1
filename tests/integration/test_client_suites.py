# SPDX-License-Identifier: Apache-2.0
"""The integration suites of py-amqp and kombu, as their authors run them on RabbitMQ.

``make .venv/.suites`` fetches the source distributions of the installed versions, which have them;
here is no copy. They log in as guest at a port without TLS.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

from amqproute.auth.users import add_user
from tests.integration.support import Daemon, DaemonTestCase, free_ports
from tests.support.patience import PATIENCE

SUITES = Path(sys.prefix) / "suites"

IMMEDIATE = "(False-True or True-True)"
"""Parameters of py-amqp's tests that publish with `immediate`, and want it refused with 540 as by
RabbitMQ since its version 3. It is part of AMQP 0-9-1, and works here."""
TLS = "(tls or test_tls)"
"""They need the certificates of py-amqp's own container, and a host on the internet."""


class SuiteTests(DaemonTestCase):
    """One suite in each test."""

    port = 0

    @classmethod
    def make(cls) -> Daemon:
        daemon = Daemon("alpha.example")
        (cls.port,) = free_ports(1)
        add_user(daemon.users, "guest", "guest", iterations=4096)
        listener = {
            "endpoint": daemon.endpoint(cls.port),
            "mechanisms": ["PLAIN"],
            "plain-without-tls": True,
        }
        everything = ["publish", "consume", "create", "browse"]
        daemon.write(
            listen=[*daemon.settings["listen"], listener],
            access=[*daemon.settings["access"], {"allow": everything, "who": "user:guest"}],
        )
        return daemon.start()

    def run_suite(self, package: str, modules: Sequence[str], deselected: str = "") -> int:
        """Run modules of a suite; return how many tests passed, which all have to."""
        found = sorted(SUITES.glob(f"{package}-*/t/integration"))
        if not found:
            raise SkipTest(f"the suite of {package} is not there: make .venv/.suites")
        directory = found[-1].parent.parent
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:sugar"]
        if deselected:
            command += ["-k", f"not ({deselected})"]
        done = subprocess.run(
            [*command, *(f"t/integration/{each}" for each in modules)],
            cwd=directory,
            env={
                **os.environ,
                "RABBITMQ_HOST": "127.0.0.1",
                "RABBITMQ_5672_TCP": str(self.port),
            },
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
        summary = done.stdout[-4000:] + done.stderr[-2000:]
        self.assertEqual(done.returncode, 0, summary)
        counted = re.search(r"(\d+) passed", summary)
        assert counted is not None, summary
        self.assertNotRegex(summary, r"\d+ (failed|error|skipped|rerun)")
        return int(counted[1])

    def test_py_amqp(self) -> None:
        """py-amqp: all but those with TLS of its own, and those that want `immediate` refused."""
        passed = self.run_suite("amqp", ["test_rmq.py"], f"{TLS} or {IMMEDIATE}")
        self.assertGreaterEqual(passed, 8)

    def test_kombu(self) -> None:
        """kombu, transport py-amqp: all."""
        passed = self.run_suite("kombu", ["test_py_amqp.py"])
        self.assertGreaterEqual(passed, 51)
