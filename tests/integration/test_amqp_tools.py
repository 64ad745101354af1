# SPDX-License-Identifier: Apache-2.0
"""The command line tools of librabbitmq (Debian: amqp-tools), unmodified, over TLS and without."""

from __future__ import annotations

import shutil
import subprocess

from amqproute.auth.users import add_user
from tests.integration.support import Daemon, DaemonTestCase, certificates, free_ports
from tests.support.patience import PATIENCE

USER, PASSWORD = "carl", "shell"


class ToolTests(DaemonTestCase):
    """amqp-publish, amqp-get, amqp-consume, amqp-declare-queue and amqp-delete-queue."""

    if shutil.which("amqp-publish") is None:
        skip = "amqp-tools is not installed"

    port = 0

    @classmethod
    def make(cls) -> Daemon:
        # The tools compare the certificate with the address that they connect to.
        issued = certificates().issue("alpha.example", dns_names=["alpha.example", "localhost"])
        daemon = Daemon("alpha.example", issued=issued)
        (cls.port,) = free_ports(1)
        add_user(daemon.users, USER, PASSWORD, iterations=4096)
        listener = {
            "endpoint": daemon.endpoint(cls.port),
            "mechanisms": ["PLAIN"],
            "plain-without-tls": True,
        }
        carl = {"allow": ["publish", "consume", "create"], "who": f"user:{USER}"}
        daemon.write(
            nodes=[{"name": "there"}],
            listen=[*daemon.settings["listen"], listener],
            access=[*daemon.settings["access"], carl],
        )
        return daemon.start()

    def tool(
        self,
        name: str,
        *arguments: str,
        password: str = PASSWORD,
        host: str = "%2f",
        given: str = "",
        code: int | None = 0,
    ) -> str:
        """Run a tool; return what it prints, errors too. A `code` of None is any."""
        url = f"amqp://{USER}:{password}@127.0.0.1:{self.port}/{host}"
        done = subprocess.run(
            [f"amqp-{name}", "--url", url, *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if code is not None:
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_publish_and_get(self) -> None:
        """One message in and out; then there is none."""
        self.assertEqual(self.tool("declare-queue", "-d", "-q", "tools").strip(), "tools")
        self.tool("publish", "-r", "tools", "-p", "-C", "text/plain", "-H", "a: b", "-b", "hello")
        self.assertEqual(self.tool("get", "-q", "tools"), "hello")
        self.tool("get", "-q", "tools", code=2)
        self.tool("delete-queue", "-q", "tools")

    def test_lines(self) -> None:
        """Each line is a message, and a program is run for each."""
        self.tool("declare-queue", "-d", "-q", "lines")
        self.tool("publish", "-l", "-r", "lines", given="one\ntwo\nthree\n")
        found = self.tool("consume", "-q", "lines", "-p", "1", "-c", "3", "cat")
        self.assertEqual(found.split(), ["one", "two", "three"])

    def test_through_an_exchange(self) -> None:
        """A consumer with a queue of its own behind an exchange."""
        with subprocess.Popen(
            ["amqp-consume", "--url", f"amqp://{USER}:{PASSWORD}@127.0.0.1:{self.port}/%2f",
             "-e", "amq.topic", "-r", "news.*", "-x", "-c", "1", "cat"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as consumer:  # fmt: skip
            try:
                assert consumer.stdout is not None
                # It says the name of its queue when it has bound it.
                self.assertIn("gen-", consumer.stdout.readline())
                self.tool("publish", "-e", "amq.topic", "-r", "news.today", "-b", "new")
                self.assertEqual(consumer.stdout.read(), "new")
            finally:
                consumer.kill()

    def test_tls(self) -> None:
        """Over TLS, with the broker's certificate checked against the host's name."""
        where = f"amqps://{USER}:{PASSWORD}@localhost:{self.daemon.tls}/"
        trust = ("--cacert", str(certificates().trust))
        publish = ("amqp-publish", "--url", where, "-r", "there", "-b", "safe")
        done = subprocess.run([*publish, *trust], timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.tool("get", "-q", "there"), "safe")

    def test_wrong(self) -> None:
        """A wrong password, virtual host, queue and exchange; a declaration that differs."""
        self.assertIn("403", self.tool("get", "-q", "there", password="wrong", code=1))
        self.assertIn("530", self.tool("get", "-q", "there", host="nowhere", code=1))
        self.assertIn("404", self.tool("get", "-q", "nowhere", code=1))
        # It may be gone before it is told.
        self.tool("publish", "-e", "nowhere", "-r", "k", "-b", "x", code=None)
        self.logged("is refused basic.publish: 404 no exchange 'nowhere'")
        self.tool("declare-queue", "-d", "-q", "kept")
        self.assertIn("406", self.tool("declare-queue", "-q", "kept", code=1))
