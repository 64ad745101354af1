# SPDX-License-Identifier: Apache-2.0
"""amqplib, a library for AMQP 0-9-1 of Node.js, unmodified, over TLS.

It is looked for in ``tests/integration/node_modules``
(``npm install --no-save --prefix tests/integration amqplib``).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.integration.amqp09 import PASSWORD, USER
from tests.integration.support import DaemonTestCase, certificates
from tests.support.patience import PATIENCE

CLIENT = Path(__file__).with_name("amqplib_client.js")
PACKAGE = Path(__file__).parent / "node_modules" / "amqplib"
NODE = shutil.which("node")


class AmqplibTests(DaemonTestCase):
    """The steps of the library's tutorials, and those they warn of."""

    if NODE is None:
        skip = "Node.js is not installed"
    elif not (PACKAGE / "package.json").exists():
        skip = "amqplib is not installed"

    def url(self, user: str = USER, password: str = PASSWORD, host: str = "%2f") -> str:
        return f"amqps://{user}:{password}@127.0.0.1:{self.daemon.tls}/{host}"

    def amqplib(self, verb: str, **more: Any) -> Any:
        """Run one command; return its answer."""
        command = {
            "amqplib": str(PACKAGE),
            "verb": verb,
            "url": self.url(),
            "ca": str(certificates().trust),
            "servername": self.daemon.name,
            **more,
        }
        assert NODE is not None
        done = subprocess.run(
            [NODE, str(CLIENT), json.dumps(command)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.daemon.log()[-2000:]}")
        return json.loads(done.stdout)

    def test_work(self) -> None:
        """50 confirmed messages, consumed by sevens."""
        got = self.amqplib("work")
        self.assertEqual(got, {"bodies": [f"{n}/{n}" for n in range(50)], "left": 0})

    def test_topics(self) -> None:
        """Routing by topics, through an exchange behind the first one."""
        got = self.amqplib("topics")
        self.assertEqual(got["all"], ["kern.info", "kern.critical", "anonymous"])
        self.assertEqual(got["critical"], ["kern.critical"])

    def test_call(self) -> None:
        """A question and its answer."""
        self.assertEqual(self.amqplib("call"), ["42", "QUESTION"])

    def test_mandatory(self) -> None:
        """The return comes before the confirm."""
        self.assertEqual(self.amqplib("mandatory"), ["NO_ROUTE", "confirmed"])

    def test_dead_letters(self) -> None:
        """x-death as the library reads it."""
        got = self.amqplib("grave")
        self.assertEqual(got, {"reason": "rejected", "queue": "node-mortal", "count": 1})

    def test_wrong(self) -> None:
        """Each refusal closes a channel with its code; the connection continues."""
        self.assertEqual(
            self.amqplib("wrong"),
            {
                "redeclare": 406,
                "arguments": 406,
                "missing": 404,
                "exchange": 404,
                "consume": 404,
                "reserved": 403,
                "publish": 404,
                "acknowledge": 406,
            },
        )

    def test_log_in(self) -> None:
        """A wrong password, an unknown user, an unknown virtual host; and our domain as one."""
        got = self.amqplib(
            "logIn",
            urls={
                "password": self.url(password="wrong"),
                "user": self.url(user="nobody"),
                "host": self.url(host="nowhere"),
                "domain": self.url(host="alpha.example"),
            },
        )
        self.assertIn("403", got["password"])
        self.assertIn("403", got["user"])
        self.assertIn("got <ConnectionClose", got["host"])
        self.assertEqual(got["domain"], "open")
