# SPDX-License-Identifier: Apache-2.0
"""Policies, priorities of consumers and the consumer timeout, seen by pika."""

from __future__ import annotations

from typing import Any
from unittest import skipIf

from tests.integration.amqp09 import connect, pika
from tests.integration.support import DaemonTestCase
from tests.support.program import run


@skipIf(pika is None, "pika is not installed")
class PolicyTests(DaemonTestCase):
    def policy(self, *words: str) -> Any:
        """Run ``amqproute policy``."""
        return run("policy", *words, "--config", str(self.daemon.file))

    def test_policy(self) -> None:
        """A policy is in force for queues to come and those that are there, also by a reload."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("jobs.a", durable=True)
            self.assertEqual(self.policy("set", "jobs", "^jobs[.]", '{"max-length": 2}').stderr, "")
            channel.queue_declare("jobs.b", durable=True)
            for name in ("jobs.a", "jobs.b"):
                for number in range(4):
                    channel.basic_publish("", name, b"%d" % number)
                self.assertEqual(channel.queue_declare(name, passive=True).method.message_count, 2)
            shown = run("queue", "show", "jobs.a", "--config", str(self.daemon.file)).stdout
            self.assertRegex(shown, r"terms.max-length\s+2 \(policy jobs\)")
            bound = {"name": "bound", "pattern": "jobs", "operator": True}
            self.daemon.reload(policies=[{**bound, "definition": {"max-length": 1}}])
            channel.queue_declare("jobs.a", durable=True)
            channel.basic_publish("", "jobs.a", b"last")
            self.assertEqual(channel.queue_declare("jobs.a", passive=True).method.message_count, 1)
            refused = self.policy("delete", "bound", "--operator")
            self.assertIn("is declared at", refused.stderr)
            wrong = self.policy("set", "wrong", "jobs", '{"ha-mode": "all"}')
            self.assertIn("'ha-mode' has no meaning", wrong.stderr)

    def test_consumer_timeout(self) -> None:
        """A consumer that does not acknowledge loses its channel with 406, and nothing else."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            arguments = {"x-consumer-timeout": 500, "x-queue-type": "quorum"}
            channel.queue_declare("slow", durable=True, arguments=arguments)
            channel.basic_publish("", "slow", b"m")
            channel.basic_consume("slow", lambda *_: None)
            closed = self.assertRaises(
                pika.exceptions.ChannelClosedByBroker, channel.start_consuming
            )
            self.assertEqual(closed.reply_code, 406)
            self.assertIn("timed out. Timeout value used: 500 ms", closed.reply_text)
            method, _, body = connection.channel().basic_get("slow", auto_ack=True)
            self.assertEqual((method.redelivered, body), (True, b"m"))

    def test_consumer_priorities(self) -> None:
        """The capability is announced; the consumer with the higher priority gets all it can."""
        with connect(self.daemon) as connection:
            self.assertTrue(connection._impl.server_capabilities["consumer_priorities"])
            channel = connection.channel()
            channel.queue_declare("ranked", durable=True)
            served: list[str] = []
            for tag, priority in (("low", -1), ("high", 10)):
                channel.basic_consume(
                    "ranked",
                    lambda _, method, *__: served.append(method.consumer_tag),
                    auto_ack=True,
                    consumer_tag=tag,
                    arguments={"x-priority": priority},
                )
            for _ in range(5):
                channel.basic_publish("", "ranked", b"m")
            while len(served) < 5:
                connection.process_data_events(0.1)
            self.assertEqual(served, ["high"] * 5)
