# SPDX-License-Identifier: Apache-2.0
"""``docs/examples/amqp09_client.py`` against a daemon: each command does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.amqp09 import PASSWORD, USER
from tests.integration.support import Daemon, certificates, new_directory
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "docs" / "examples" / "amqp09_client.py"


class ClientTests(SynchronousTestCase):
    """The commands of the example."""

    def setUp(self) -> None:
        self.daemon = Daemon("alpha.example").start()
        self.addCleanup(self.daemon.stop)
        self.directory = new_directory()
        self.do("call", "queue.declare", "queue=q", "durable=1")

    def do(self, *words: str, code: int = 0) -> str:
        """Run a command; return what it prints."""
        done = subprocess.run(
            [
                sys.executable,
                str(CLIENT),
                f"amqps://{USER}:{PASSWORD}@127.0.0.1:{self.daemon.tls}",
                *words,
            ],
            capture_output=True,
            timeout=PATIENCE,
            env={
                **os.environ,
                "AMQP_CA": str(certificates().trust),
                "AMQP_NAME": self.daemon.name,
            },
            check=False,
        )
        self.assertEqual(done.returncode, code, done.stderr)
        return (done.stdout + done.stderr).decode()

    def test_commands(self) -> None:
        """Files and messages go in and come out; what is refused says why."""
        source = Path(self.directory, "report.bin")
        body = bytes(range(256)) * 2000
        source.write_bytes(body)
        self.assertIn("published", self.do("file", "put", "q", str(source)))
        target = new_directory()
        self.do("file", "get", "q", str(target))
        self.assertEqual((target / "report.bin").read_bytes() == body, True)
        said = self.do("--octets", "message", "put", "q", "hello")
        self.assertIn("message.transfer", said)
        self.assertIn("accepted", said)
        self.assertIn("hello", self.do("message", "get", "q"))
        self.assertIn("accepted", self.do("message", "send", "q", str(source)))
        self.assertIn("routing-key: q", self.do("message", "get", "q"))
        self.assertIn("empty", self.do("message", "get", "q"))
        self.do("stream", "put", "q", "packet")
        self.do("tunnel", "send", "q", "block")
        self.assertIn("540", self.do("dtx", "start", "1:02:03", "q", "x", code=1))
        self.assertIn("returned: 312", self.do("file", "put", "nowhere", str(source), code=1))
