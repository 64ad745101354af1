# SPDX-License-Identifier: Apache-2.0
"""Messages of commands to operators, and the daemon's log of commands."""

from __future__ import annotations

import os
import signal
import tempfile
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.support import Daemon, certificates, until
from tests.support.program import Process, run


class CommandTests(SynchronousTestCase):
    """Commands beside a daemon of which little is configured."""

    timeout = 120

    def setUp(self) -> None:
        self.daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]})
        self.addCleanup(self.daemon.stop)
        self.addCleanup(self.daemon.check)

    def command(self, *words: str, **extra: Any) -> tuple[int, str, str]:
        done = run(*words, **extra)
        return done.returncode, done.stdout, done.stderr

    def test_log_lines(self) -> None:
        """Commands leave no line at level info; at level debug each leaves two."""
        config = ("--config", str(self.daemon.file))
        self.daemon.start()
        for words in (("status",), ("queue", "ls"), ("peer", "ls")):
            self.assertEqual(self.command(*words, *config)[0], 0)
        self.assertEqual(self.command("send", "q", "--body", "x", *config)[0], 0)
        url = f"amqp://127.0.0.1:{self.daemon.plain}"
        self.assertEqual(self.command("receive", "q", "--count", "1", "--url", url)[0], 0)
        # Who comes over the network may call itself what it likes: that is told.
        self.daemon.wait_log("127.0.0.1:.* opened by anonymous, container amqproute-cli-")
        self.assertNotIn("unix:uid", self.daemon.log())
        self.daemon.reload(log={"format": "text", "level": "debug"})
        mark = self.daemon.mark()
        self.assertEqual(self.command("status", *config)[0], 0)
        self.daemon.wait_log("unix:uid=[0-9]+ opened by uid:", mark)
        self.daemon.wait_log("unix:uid=[0-9]+ closed", mark)

    def test_broken_file(self) -> None:
        """A mistake in the file does not cut an operator off from the daemon that runs."""
        self.daemon.start()
        self.daemon.file.write_text(self.daemon.file.read_text() + "\n]] broken")
        code, out, err = self.command("status", "--config", str(self.daemon.file))
        self.assertEqual((code, "all is well" in out), (0, True), out + err)
        self.assertIn(f"the daemon at unix:{self.daemon.socket} is asked all the same", err)
        self.daemon.stop()
        code, out, err = self.command("status", "--config", str(self.daemon.file))
        self.assertEqual(code, 2, err)

    def test_bytes(self) -> None:
        """`queue ls` counts bodies that are files of their own, also after a restart."""
        self.daemon.write(journal={"enabled": False})
        self.daemon.start()
        config = ("--config", str(self.daemon.file))
        body = self.daemon.directory / "body"
        body.write_bytes(b"x" * 2_000_000)

        def shown() -> int:
            _, out, _ = self.command("queue", "ls", *config)
            headings, row = (line.split("\t") for line in out.splitlines())
            found = dict(zip(headings, row, strict=True))
            self.assertEqual(found["QUEUE"], "q")
            return int(found["BYTES"])

        for _ in range(3):
            self.assertEqual(self.command("send", "q", "--file", str(body), *config)[0], 0)
        whole = shown()
        self.assertEqual(whole // 1000, 6000)
        self.daemon.stop()
        self.daemon.start()
        self.assertEqual(shown(), whole)
        got = str(self.daemon.directory / "got")
        self.assertEqual(self.command("receive", "q", "--output", got, *config)[0], 0)
        self.assertEqual(shown() // 1000, 4000)
        self.assertEqual(self.command("queue", "purge", "q", *config)[0], 0)
        self.assertEqual(shown(), 0)

    def test_transactions(self) -> None:
        """With the feature off, that is what is said."""
        self.daemon.start()
        config = ("--config", str(self.daemon.file))
        code, _, err = self.command("transaction", "ls", *config)
        self.assertEqual(code, 1)
        self.assertIn("distributed transactions are not enabled at this daemon", err)
        self.assertIn("distributed-transactions.enabled", err)
        self.assertNotIn("entity type", err)
        for action in ("commit", "roll-back", "forget"):
            code, _, err = self.command("transaction", action, "none", *config)
            self.assertEqual(code, 1)
            self.assertIn("transaction.disabled: distributed transactions are not enabled", err)
            self.assertNotIn("COMMIT-BRANCH", err)

    def test_url_by_address(self) -> None:
        """Of a URL with an address no DNSSEC is advised."""
        self.daemon.start()
        trust = str(certificates().trust)
        url = f"amqps://127.0.0.1:{self.daemon.tls}"
        code, _, err = self.command("receive", "q", "--url", url, "--trust", trust)
        self.assertEqual(code, 3)
        self.assertIn("tls.name: ", err)
        self.assertIn("it names alpha.example", err)
        self.assertNotRegex(err, "DNSSEC|SRV records|TLSA")

    def test_waiting(self) -> None:
        """`receive` reports that it waits, and continues; with a time-out there is no report."""
        self.daemon.start()
        config = ("--config", str(self.daemon.file))
        self.assertEqual(self.command("receive", "q", "--timeout", "1.5", *config), (1, "", ""))
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            waiting = Process(
                ["receive", "q", "--count", "1", *config],
                environ=os.environ,
                stdout=out.fileno(),
                stderr=err.fileno(),
            )
            self.addCleanup(waiting.kill)

            def told() -> str:
                return os.pread(err.fileno(), 1000, 0).decode()

            until(lambda: "waiting for messages on q; Ctrl-C ends it" in told(), "the words")
            self.assertEqual(self.command("send", "q", "--body", "x", *config)[0], 0)
            self.assertEqual(waiting.wait(30), 0)
            self.assertEqual(os.pread(out.fileno(), 10, 0), b"x\n")
            self.assertEqual(told().count("\n"), 1)

    def test_interrupted_twice(self) -> None:
        """A second Ctrl-C, or SIGTERM, while a command ends changes nothing."""
        self.daemon.start()
        config = ("--config", str(self.daemon.file))
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            waiting = Process(
                ["receive", "q", *config],
                environ=os.environ,
                stdout=out.fileno(),
                stderr=err.fileno(),
            )
            self.addCleanup(waiting.kill)
            until(lambda: b"waiting" in os.pread(err.fileno(), 1000, 0), "the words")
            # Stopped, it meets all three of them at once.
            os.kill(waiting.pid, signal.SIGSTOP)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                os.kill(waiting.pid, number)
            self.assertEqual(waiting.wait(30), 1)
            self.assertNotIn(b"Traceback", os.pread(err.fileno(), 5000, 0))
            self.assertNotIn(b"ReactorNotRunning", os.pread(err.fileno(), 5000, 0))
