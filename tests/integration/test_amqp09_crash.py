# SPDX-License-Identifier: Apache-2.0
"""Answers to a client of AMQP 0-9-1 hold after kill -9: confirms, commits, declarations."""

from __future__ import annotations

from unittest import skipIf

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.amqp09 import connect, pika
from tests.integration.support import Daemon
from tests.support.patience import PATIENCE


@skipIf(pika is None, "pika is not installed")
class CrashTests(SynchronousTestCase):
    def test_kill(self) -> None:
        """Nothing that was confirmed or committed is missing, and nothing is there twice."""
        daemon = Daemon("alpha.example").start()
        self.addCleanup(daemon.stop)
        channel = connect(daemon).channel()
        channel.exchange_declare("e", "topic", durable=True)
        arguments = {"x-message-ttl": 600_000}
        channel.queue_declare("q", durable=True, arguments=arguments)
        channel.queue_bind("q", "e", "a.*")
        channel.queue_declare("brief")
        channel.confirm_delivery()
        durable = pika.BasicProperties(delivery_mode=2)
        confirmed = []
        for number in range(100):
            channel.basic_publish("e", "a.b", b"%d" % number, durable, mandatory=True)
            confirmed.append(b"%d" % number)
        channel.basic_publish("", "brief", b"gone", durable)
        other = channel.connection.channel()
        other.tx_select()
        for number in range(100, 120):
            other.basic_publish("", "q", b"%d" % number, durable)
            confirmed.append(b"%d" % number)
        for _ in range(10):
            method, _, body = other.basic_get("q")
            other.basic_ack(method.delivery_tag)
            confirmed.remove(body)
        other.tx_commit()
        daemon.kill()
        daemon.start()
        channel = connect(daemon).channel()
        channel.queue_declare("q", durable=True, arguments=arguments)  # as it was
        found = []
        for method, _, body in channel.consume("q", inactivity_timeout=PATIENCE):
            assert method is not None
            found.append(body)
            if len(found) == len(confirmed):
                break
        channel.cancel()
        channel.basic_nack(0, multiple=True)
        self.assertEqual(found, confirmed)
        self.assertEqual(channel.queue_declare("q", passive=True).method.message_count, 110)
        channel.queue_purge("q")
        channel.basic_publish("e", "a.c", b"still bound", mandatory=True)
        self.assertEqual(channel.basic_get("q", auto_ack=True)[2], b"still bound")
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare("brief", passive=True)
