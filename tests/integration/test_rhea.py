# SPDX-License-Identifier: Apache-2.0
"""rhea, the AMQP 1.0 library for Node.js, as publisher and consumer.

It is looked for where AMQPROUTE_RHEA points and in ``tests/integration/node_modules``
(``npm install --no-save --prefix tests/integration rhea``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.integration.support import (
    Daemon,
    DaemonTestCase,
    Wire,
    certificates,
    until,
)
from tests.support.patience import PATIENCE

CLIENT = Path(__file__).with_name("rhea_client.js")
HERE = Path(__file__).parent


@cache
def rhea() -> Path | None:
    """Return the directory of the package, if it is there."""
    pointed = os.environ.get("AMQPROUTE_RHEA")
    places = [Path(pointed), Path(pointed) / "node_modules" / "rhea"] if pointed else []
    for place in (*places, HERE / "node_modules" / "rhea"):
        if (place / "package.json").exists() and (place / "lib").is_dir():
            return place.resolve()
    return None


class RheaTests(DaemonTestCase):
    nodes = ({"name": "buried"}, {"name": "with-grave", "dead-letter": "buried"})

    def setUp(self) -> None:
        self.node_program = shutil.which("node")
        if self.node_program is None:
            raise SkipTest("Node.js is not installed")
        if rhea() is None:
            raise SkipTest(
                "rhea is not installed (npm install --no-save --prefix tests/integration rhea, or "
                "let AMQPROUTE_RHEA point to it)"
            )
        super().setUp()

    def command(self, verb: str, **arguments: Any) -> list[str]:
        connection = {"port": self.daemon.plain, **arguments.pop("connection", {})}
        command = {"rhea": str(rhea()), "verb": verb, "connection": connection, **arguments}
        assert self.node_program is not None
        return [self.node_program, str(CLIENT), json.dumps(command)]

    def rhea(self, verb: str, **arguments: Any) -> Any:
        """Run one command; return its answer."""
        done = subprocess.run(
            self.command(verb, **arguments), capture_output=True, text=True, timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, f"{done.stderr}\n{self.daemon.log()[-2000:]}")
        return json.loads(done.stdout)

    def publish(self, *messages: dict[str, Any], **options: Any) -> list[str]:
        options = {"address": self.node, **options}
        outcomes: list[str] = self.rhea("publish", messages=messages, **options)
        return outcomes

    def receive(self, *outcomes: str, address: str = "") -> list[dict[str, Any]]:
        got: list[dict[str, Any]] = self.rhea(
            "receive", address=address or self.node, outcomes=outcomes
        )
        return got

    def test_publish_and_consume(self) -> None:
        messages = [{"body": f"m{n}", "durable": True} for n in range(100)]
        self.assertEqual(self.publish(*messages), ["accepted"] * 100)
        got = self.receive(*["accept"] * 100)
        self.assertEqual([each["body"] for each in got], [f"m{n}" for n in range(100)])
        self.assertTrue(all(each["durable"] for each in got))

    def test_settled(self) -> None:
        self.publish({"body": "x"}, settled=True)
        self.assertEqual(self.receive("accept")[0]["body"], "x")

    def test_properties(self) -> None:
        """Types that JSON knows, in both directions."""
        properties = {"text": "n\u00e4h", "number": 3, "large": 2**40, "truth": True, "half": 0.5}
        self.publish({
            "body": {"a": [1, None, "b"]}, "to": "somewhere",
            "application_properties": properties, "message_annotations": {"x-opt-a": "b"},
        })  # fmt: skip
        (got,) = self.receive("accept")
        self.assertEqual(got["body"], {"a": [1, None, "b"]})
        self.assertEqual(got["properties"], properties)
        self.assertEqual((got["to"], got["annotations"]), ("somewhere", {"x-opt-a": "b"}))

    def test_large(self) -> None:
        self.publish({"body": "x", "durable": True}, grow=1_000_000)
        (got,) = self.receive("accept")
        self.assertEqual((len(got["body"]), set(got["body"])), (1_000_000, {"x"}))

    def test_outcomes(self) -> None:
        """Release, modify, accept: the same message each time, counted when it failed."""
        self.publish({"body": "again"})
        got = self.receive("release", "modify", "accept")
        self.assertEqual([each["body"] for each in got], ["again"] * 3)
        self.assertEqual([each["delivery_count"] for each in got], [0, 0, 1])
        self.assertEqual(self.rhea("drain", address=self.node), 0)

    def test_undeliverable_here(self) -> None:
        self.publish({"body": "1"}, {"body": "2"})
        got = self.receive("undeliverable", "accept")
        self.assertEqual([each["body"] for each in got], ["1", "2"])
        self.assertEqual(self.receive("accept")[0]["body"], "1")

    def test_reject(self) -> None:
        self.publish({"body": "foul"}, address="with-grave")
        self.receive("reject", address="with-grave")
        (dead,) = self.receive("accept", address="buried")
        self.assertEqual(dead["annotations"]["x-opt-dead-letter-reason"], "rejected")
        self.assertIn("app:foul", dead["annotations"]["x-opt-dead-letter-description"])

    def test_rejected_by_the_daemon(self) -> None:
        outcomes = self.publish(
            {"body": "x", "to": "nobody"}, {"body": "x"}, {"body": "x", "to": self.node},
            address="amqp$transfer",
        )  # fmt: skip
        self.assertEqual(
            sorted(outcomes),
            ["accepted", "rejected amqp:not-found", "rejected amqp:precondition-failed"],
        )

    def test_drain(self) -> None:
        self.publish(*({"body": str(n)} for n in range(7)))
        self.assertEqual(self.rhea("drain", address=self.node), 7)

    def test_request(self) -> None:
        self.assertEqual(self.rhea("request", address=self.node), ["QUESTION", "q1"])

    def test_refused(self) -> None:
        for sender in (True, False):
            answer = self.rhea("refused", address="nobody", sender=sender)
            self.assertEqual(answer, "amqp:not-found")

    def test_plain(self) -> None:
        """A password over TLS; rhea prefers PLAIN, it has no SCRAM."""
        self.publish({"body": "x"}, connection={
            "port": self.daemon.tls, "transport": "tls", "ca": str(certificates().trust),
            "servername": "alpha.example", "username": "anna", "password": "secret",
        })  # fmt: skip
        self.logged(r"opened by user:anna, .*TLSv1")

    def test_external(self) -> None:
        issued = certificates().issue("client.example")
        outcomes = self.publish(
            {"body": "x", "to": self.node}, address="amqp$transfer",
            connection={
                "port": self.daemon.tls, "transport": "tls", "ca": str(certificates().trust),
                "servername": "alpha.example", "cert": str(issued.chain),
                "key": str(issued.private_key), "enable_sasl_external": True,
            },
        )  # fmt: skip
        self.assertEqual(outcomes, ["accepted"])
        self.logged(r"opened by peer:client\.example, .*TLSv1")

    def test_reconnect(self) -> None:
        """The daemon is restarted below a client that reconnects."""
        daemon = Daemon("delta.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(daemon.stop)
        command = self.command(
            "reconnect", address="q", messages=[{"body": "back again", "durable": True}],
            connection={"port": daemon.plain, "reconnect": 100, "initial_reconnect_delay": 50},
        )  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        ) as client:  # fmt: skip
            try:
                assert client.stdout is not None
                self.assertEqual(client.stdout.readline(), "1\n")
                daemon.kill()
                daemon.start()
                self.assertEqual(client.stdout.readline(), "2\n")
                self.assertEqual(json.loads(client.stdout.readline()), ["accepted"])
                until(lambda: client.poll() is not None, "the end of the client")
            finally:
                client.kill()
        with Wire(daemon.plain) as wire:
            self.assertEqual(len(wire.consume("q", 1)), 1)
        daemon.check()
