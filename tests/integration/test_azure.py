# SPDX-License-Identifier: Apache-2.0
"""Azure's clients, `uamqp` and the one inside `azure-servicebus`, with their default settle modes.

They log in by SASL PLAIN over TLS; ``$cbs``, which only the service knows, is not spoken here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from amqproute.wire.amqp10 import codec, spec
from tests.integration.support import Daemon, DaemonTestCase, Wire, certificates, message

CLIENT = Path(__file__).with_name("azure_client.py")
MANY = 500
LARGE = 3 * 2**20 + 7


class Cases:
    """The requests to both libraries."""

    library: str
    module: str
    wrong_password: str
    changes: Any = {}
    waits: Any = {}

    @classmethod
    def make(cls) -> Any:
        """Start a daemon whose certificate names this machine."""
        names = ["alpha.example", "localhost"]
        issued = certificates().issue("alpha.example", dns_names=names)
        changes = {"nodes": cls.queues(), **cls.changes}
        return Daemon("alpha.example", issued=issued, changes=changes).start()

    def setUp(self) -> None:
        if importlib.util.find_spec(self.module.partition(".")[0]) is None:
            raise SkipTest(f"{self.library} is not installed (pip install '.[interop]')")
        super().setUp()

    def run_client(self, verb: str, **arguments: Any) -> Any:
        """Run one command in a process; return its answer."""
        command = {
            "library": self.library,
            "port": self.daemon.tls,
            "trust": str(certificates().trust),
            "user": "anna",
            "password": "secret",
            "node": self.node,
            "verb": verb,
            **arguments,
        }
        done = subprocess.run(
            [sys.executable, str(CLIENT)], input=json.dumps(command), capture_output=True,
            text=True, timeout=50,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.daemon.log()[-2000:]}")
        return json.loads(done.stdout)

    def test_send_and_receive(self) -> None:
        """A sent message is reported as sent, and comes once."""
        bodies = ["one", "two", "three"]
        self.assertEqual(self.run_client("send", bodies=bodies), ["sent"] * 3)
        self.assertEqual(self.run_client("receive", outcomes=["accepted"] * 3), bodies)
        self.assert_empty()

    def test_large(self) -> None:
        """A message of many frames arrives whole at a receiver that says it takes as much."""
        body = b"00000000".ljust(LARGE, b"x")
        takes = {"max_message_size": 2 * LARGE}
        self.assertEqual(self.run_client("send", count=1, size=LARGE, options=takes), ["sent"])
        got = self.run_client("receive", outcomes=["accepted"], digest=True, options=takes)
        self.assertEqual(got, [["00000000", LARGE, hashlib.sha256(body).hexdigest()]])
        self.assert_empty()

    def test_many(self) -> None:
        """More messages than a receiver gives credit for at once, each once and in order."""
        sent = self.run_client("send", count=MANY, size=200)
        self.assertEqual(sent, ["sent"] * MANY)
        got = self.run_client("receive", outcomes=["accepted"] * MANY, digest=True)
        self.assertEqual([number for number, _, _ in got], [f"{n:08d}" for n in range(MANY)])
        self.assertEqual({length for _, length, _ in got}, {200})
        self.assert_empty()

    def test_outcomes(self) -> None:
        """Released and modified messages come again, rejected ones do not."""
        self.run_client("send", bodies=["one", "two", "three"])
        outcomes = ["released", "rejected", "modified"]
        self.assertEqual(
            self.run_client("receive", outcomes=outcomes, **self.waits), ["one", "two", "three"]
        )
        again = self.run_client("receive", outcomes=["accepted"] * 2)
        self.assertEqual(sorted(again), ["one", "three"])
        self.assert_empty()

    def test_wrong_password(self) -> None:
        """It is refused, and nothing is stored."""
        answer = self.run_client("send", bodies=["one"], password="guessed")
        self.assertIn(self.wrong_password, answer["failed"])
        self.logged(r'log-in failed from 127\.0\.0\.1, PLAIN, user "anna"')
        self.assert_empty()

    def test_wrong_node(self) -> None:
        """It is refused with what the broker says."""
        for verb, arguments in (
            ("send", {"bodies": ["one"]}),
            ("receive", {"outcomes": ["accepted"]}),
        ):
            answer = str(self.run_client(verb, node="nowhere", **arguments))
            self.assertIn("no node is named 'nowhere' here", answer)
            self.logged(r"user:anna\) link \S+ refused: .*no node is named 'nowhere' here")


class UamqpTests(Cases, DaemonTestCase):
    """The C library; its wheels are for x86."""

    library = "uamqp"
    module = "uamqp"
    wrong_password = "ConnectionClose"


class ServiceBusTests(Cases, DaemonTestCase):
    """The protocol of the Service Bus package below its own conventions."""

    library = "azure-servicebus"
    module = "azure.servicebus"
    wrong_password = "SASL negotiation failed"
    waits = {"wait": True}
    changes = {"tolerate-missing-body": True}

    def test_missing_body(self) -> None:
        """M-23: to an independent decoder a body that was absent is absent."""
        properties = codec.encode(spec.Properties(subject="no body"))
        with Wire(self.daemon.plain) as wire:
            wire.publish(self.node, [properties, message(b"")])
        self.assertEqual(self.run_client("receive", outcomes=["accepted"] * 2), [None, ""])
