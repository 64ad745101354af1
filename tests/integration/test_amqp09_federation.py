# SPDX-License-Identifier: Apache-2.0
"""Messages of pika between two organizations, and the publisher's answers.

Rules: 09-M-01, 09-M-04, 09-M-06, 09-M-10.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import skipIf

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import reader
from tests.integration import support
from tests.integration.amqp09 import connect, pika, url
from tests.integration.support import Daemon, Zone, certificates
from tests.support.patience import PATIENCE, until

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "rabbitmq.md"
LARGE = bytes(range(256)) * 12_000


class Amqp09World:
    """A name server, alpha and beta; a name of each that leads nowhere."""

    def __init__(self) -> None:
        self.zone = Zone()
        nodes = [{"name": name} for name in ("orders", "answers", "kept")]
        make = {"nameserver": self.zone.port, "changes": {"nodes": nodes}}
        self.alpha = Daemon("alpha.example", **make)
        self.beta = Daemon("beta.example", **make)
        for daemon in (self.alpha, self.beta):
            daemon.spawn()
        for daemon in (self.alpha, self.beta):
            daemon.wait_ready()
            self.zone.point(daemon.name, daemon.tls, ttl=60)


@skipIf(pika is None, "pika is not installed")
class FederationTests(SynchronousTestCase):
    def setUp(self) -> None:
        world = support.shared(Amqp09World)
        self.zone, self.alpha, self.beta = world.zone, world.alpha, world.beta
        for daemon in (self.alpha, self.beta):
            self.addCleanup(daemon.check)

    def channel(self, daemon: Daemon) -> Any:
        connection = connect(daemon)
        self.addCleanup(connection.close)
        channel = connection.channel()
        channel.confirm_delivery()
        return channel

    def take(self, channel: Any, queue: str) -> tuple[Any, Any, bytes]:
        """Get the next message, however long it takes."""
        found: list[tuple[Any, Any, bytes]] = []

        def is_there() -> bool:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is not None:
                found.append((method, properties, body))
            return bool(found)

        until(is_there)
        return found[0]

    def test_there_and_back(self) -> None:
        """Every property and header arrives as it was sent, there and back."""
        properties = pika.BasicProperties(
            content_type="text/plain",
            content_encoding="identity",
            headers={"n": 1, "s": "text", "l": [1, "two", {"three": None}], "b": True},
            delivery_mode=2,
            priority=3,
            correlation_id="c",
            reply_to="answers@alpha.example",
            message_id="m",
            timestamp=1_700_000_000,
            type="order",
            user_id="anna",
            app_id="shop",
        )
        alpha, beta = self.channel(self.alpha), self.channel(self.beta)
        for body in (b"small", LARGE):
            alpha.basic_publish("", "orders@beta.example", body, properties, mandatory=True)
            method, found, arrived = self.take(beta, "orders")
            self.assertEqual(method.routing_key, "orders@beta.example")
            self.assertEqual((found, arrived == body), (properties, True))
            beta.basic_publish("", found.reply_to, arrived, found, mandatory=True)
            _, found, arrived = self.take(alpha, "answers")
            self.assertEqual((found, arrived == body), (properties, True))

    @skipIf(find_spec("celery") is None, "Celery is not installed")
    def test_celery(self) -> None:
        """A worker of beta runs a task of alpha, and the result comes back, as the page says."""
        (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TEST_TRUST": str(certificates().trust),
            "TEST_QUEUE": "tasks",
        }
        log = self.beta.directory / "celery.log"
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.integration.celery_tasks",
                 "worker", "-P", "solo", "-l", "INFO"],
                env={**environ, "TEST_BROKER": url(self.beta), "TEST_HOST": self.beta.name},
                stdout=output, stderr=output,
            )  # fmt: skip
        try:
            until(lambda: b"ready." in log.read_bytes(), "the worker", detail=log.read_text)
            by_name = "add.apply_async((4, 5), queue='tasks@beta.example').get(timeout=60)"
            program = f"from tests.integration.celery_tasks import add\nprint({by_name})\n{code}"
            done = subprocess.run(
                [sys.executable, "-c", program.replace("timeout=60", f"timeout={PATIENCE}")],
                env={**environ, "TEST_BROKER": url(self.alpha)},
                capture_output=True, text=True, timeout=3 * PATIENCE, check=False,
            )  # fmt: skip
            self.assertEqual(done.stdout, "9\n5\n", done.stderr + log.read_text())
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
        # By the name alone Celery declares it here, too.
        self.alpha.wait_log("user:anna declares the queue tasks@beta.example here")

    def test_direct_reply(self) -> None:
        """A request by direct reply-to is answered from another organization."""
        alpha, beta = self.channel(self.alpha), self.channel(self.beta)
        pseudo = "amq.rabbitmq.reply-to"
        found: list[tuple[str, bytes]] = []
        alpha.basic_consume(
            pseudo,
            lambda _, method, properties, body: found.append((properties.correlation_id, body)),
            auto_ack=True,
        )
        asked = pika.BasicProperties(reply_to=pseudo, correlation_id="7")
        for body in (b"small", LARGE):
            alpha.basic_publish("", "orders@beta.example", body, asked, mandatory=True)
            _, properties, arrived = self.take(beta, "orders")
            self.assertRegex(properties.reply_to, "^reply-[^@]+@alpha.example$")
            answer = pika.BasicProperties(correlation_id=properties.correlation_id)
            beta.basic_publish("", properties.reply_to, arrived[::-1], answer, mandatory=True)
            until(lambda: alpha.connection.process_data_events(0) or found)
            self.assertEqual(found.pop(), ("7", body[::-1]))

    def test_wrong_domain(self) -> None:
        """A message without a route is returned, or not confirmed."""
        alpha = self.channel(self.alpha)
        self.zone.set("test")  # an authority that knows that there is none
        address = "orders@nowhere.test"
        with self.assertRaises(pika.exceptions.UnroutableError) as caught:
            alpha.basic_publish("", address, b"lost", mandatory=True)
        (returned,) = caught.exception.messages
        self.assertEqual((returned.method.reply_code, returned.body), (312, b"lost"))
        with self.assertRaises(pika.exceptions.NackError):
            alpha.basic_publish("", address, b"lost")

    def test_partner_down(self) -> None:
        """Confirmed messages arrive, also while the partner is down, in order."""
        alpha = self.channel(self.alpha)
        self.beta.stop()
        try:
            for number in range(5):
                alpha.basic_publish("", "kept@beta.example", b"%d" % number, mandatory=True)
        finally:
            self.beta.spawn()
            self.beta.wait_ready()
        beta = self.channel(self.beta)
        self.assertEqual([self.take(beta, "kept")[2] for _ in range(5)],
                         [b"%d" % number for number in range(5)])  # fmt: skip

    def test_report(self) -> None:
        """A delivery report is read by its headers."""
        alpha = self.channel(self.alpha)
        headers = {"x-opt-return-to": "answers", "x-opt-report": "failure"}
        properties = pika.BasicProperties(delivery_mode=2, message_id="m-7", headers=headers)
        alpha.basic_publish("", "nobody@beta.example", b"lost", properties)
        _, found, _ = self.take(alpha, "answers")
        self.assertEqual(found.correlation_id, "m-7")
        self.assertEqual(
            (found.headers["kind"], found.headers["final"], found.headers["code"]),
            ("failure", True, "remote.no-node"),
        )
        self.assertIn("nobody@beta.example", found.headers["words"])

    def test_journal(self) -> None:
        """The journal names the protocol of whoever publishes and takes."""
        alpha = self.channel(self.alpha)
        properties = pika.BasicProperties(delivery_mode=2, message_id="named")
        alpha.basic_publish("", "kept", b"1", properties, mandatory=True)
        self.take(alpha, "kept")

        def kinds() -> set[tuple[str, str | None]]:
            """Return the kinds of the message's records, with the protocol of each."""
            return {
                (record.kind, record.protocol)
                for record in reader.records(self.alpha.directory / "state" / "journal")
                if record.connection and record.node == "kept"
            }

        until(lambda: {("received", "AMQP 0-9-1"), ("delivered", "AMQP 0-9-1")} <= kinds())
