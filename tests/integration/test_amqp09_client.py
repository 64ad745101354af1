# SPDX-License-Identifier: Apache-2.0
"""``docs/examples/amqp09_client.py`` against a daemon: each command does what it says."""

from __future__ import annotations

import importlib.util
import io
import os
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10.types import Int
from tests.integration.amqp09 import PASSWORD, USER
from tests.integration.support import Daemon, certificates, client_tls, new_directory
from tests.integration.test_distributed_crash import Manager
from tests.integration.test_signals import Password

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "docs" / "examples" / "amqp09_client.py"


class Interrupted(io.TextIOWrapper):
    """Output that interrupts a command, as a key would, when a text has been printed."""

    until = ""

    def said(self) -> str:
        """Return what was printed."""
        written: bytes = self.buffer.getvalue()  # type: ignore[attr-defined]
        return written.decode(errors="replace")

    def flush(self) -> None:
        """Flush, as a command does behind each line; then look."""
        super().flush()
        if self.until and self.until in self.said():
            raise KeyboardInterrupt


class ClientCase(SynchronousTestCase):
    """The example, and a daemon with the queue ``q``."""

    changes: Mapping[str, Any] = {}

    def setUp(self) -> None:
        spec = importlib.util.spec_from_file_location("amqp09_client", CLIENT)
        assert spec is not None
        assert spec.loader is not None
        self.client: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.client)
        self.daemon = Daemon("alpha.example", changes=self.changes).start()
        self.addCleanup(self.daemon.stop)
        self.directory = new_directory()
        self.do("call", "queue.declare", "queue=q", "durable=1")

    def do(self, *words: str, code: int = 0, until: str = "") -> str:
        """Run a command, until it ends or has printed a text; return what it prints."""
        url = f"amqps://{USER}:{PASSWORD}@127.0.0.1:{self.daemon.tls}"
        trust = {"AMQP_CA": str(certificates().trust), "AMQP_NAME": self.daemon.name}
        out = Interrupted(io.BytesIO(), write_through=True)
        out.until = until
        with patch.dict(os.environ, trust), redirect_stdout(out), redirect_stderr(out):
            found = self.client.main([url, *words])
        out.until = ""
        self.assertEqual(found, 130 if until else code, out.said())
        return out.said()


class ClientTests(ClientCase):
    """The commands of the example."""

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

    def test_streams(self) -> None:
        """Packets come in order, without an acknowledgement; files and messages are passed over."""
        self.do("message", "put", "q", "hello")
        for number in range(3):
            self.do("stream", "put", "q", f"packet {number}")
        said = self.do("stream", "get", "q", until="packet 2")
        self.assertEqual(said.split("\n")[:3], ["packet 0", "packet 1", "packet 2"])
        self.assertIn("hello", self.do("message", "get", "q"))
        self.assertIn("empty", self.do("message", "get", "q"))

    def test_tunnels(self) -> None:
        """Blocks come to whoever receives from the node."""
        for number in range(2):
            self.do("tunnel", "send", "q", f"block {number}")
        said = self.do("--octets", "tunnel", "receive", "q", until="\nblock 1\n")
        self.assertEqual(said.count("tunnel.request"), 2)
        self.assertIn("\nblock 0\n", said)
        self.assertIn("404", self.do("tunnel", "send", "nowhere", "x", code=1))


class BranchTests(ClientCase):
    """The command ``dtx start``, where distributed transactions are on."""

    changes = {"distributed-transactions": {"enabled": True}}

    def test_branch(self) -> None:
        """What it publishes waits in the branch for what the manager decides."""
        login = Password(USER, PASSWORD)
        manager = Manager(self.daemon.tls, tls=client_tls(), sasl_client=login)
        for number, decision in enumerate(("commit", "rollback")):
            xid = [Int(7), b"g%d" % number, b"b"]
            identifier = f"7:{xid[1].hex()}:62"
            said = self.do("dtx", "start", identifier, "q", decision)
            self.assertIn(f"{decision!r} waits in branch {identifier}", said)
            self.assertIn("empty", self.do("message", "get", "q"))
            self.assertEqual(manager.ask("prepare", xid)[0], 0)
            self.assertEqual(manager.ask(decision, xid)[0], 0)
            found = self.do("message", "get", "q")
            self.assertIn("commit" if decision == "commit" else "empty", found)
        manager.wire.socket.close()
