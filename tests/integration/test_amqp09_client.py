# SPDX-License-Identifier: Apache-2.0
"""``docs/examples/amqp09_client.py`` against a daemon: each command does what it says."""

from __future__ import annotations

import importlib.util
import io
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.amqp09 import PASSWORD, USER
from tests.integration.support import Daemon, certificates, new_directory

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "docs" / "examples" / "amqp09_client.py"


class ClientTests(SynchronousTestCase):
    """The commands of the example."""

    def setUp(self) -> None:
        spec = importlib.util.spec_from_file_location("amqp09_client", CLIENT)
        assert spec is not None
        assert spec.loader is not None
        self.client: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.client)
        self.daemon = Daemon("alpha.example").start()
        self.addCleanup(self.daemon.stop)
        self.directory = new_directory()
        self.do("call", "queue.declare", "queue=q", "durable=1")

    def do(self, *words: str, code: int = 0) -> str:
        """Run a command; return what it prints."""
        url = f"amqps://{USER}:{PASSWORD}@127.0.0.1:{self.daemon.tls}"
        trust = {"AMQP_CA": str(certificates().trust), "AMQP_NAME": self.daemon.name}
        out = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with patch.dict(os.environ, trust), redirect_stdout(out), redirect_stderr(out):
            found = self.client.main([url, *words])
        said = out.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
        self.assertEqual(found, code, said)
        return str(said)

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
