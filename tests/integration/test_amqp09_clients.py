# SPDX-License-Identifier: Apache-2.0
"""Unmodified third-party clients of AMQP 0-9-1 against a daemon.

pika, py-amqp, kombu, aio-pika and a Celery worker, with messages to and from AMQP 1.0 between them.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import skipIf

from tests.integration.amqp09 import (
    PASSWORD,
    USER,
    connect,
    pika,
    ssl_options,
    tls_context,
    url,
)
from tests.integration.support import DaemonTestCase, Wire, certificates, message
from tests.support.patience import PATIENCE, until

try:
    import aio_pika
    import amqp  # type: ignore[import-untyped]
    import celery  # type: ignore[import-untyped]
    import kombu  # type: ignore[import-untyped]
    import kombu.transport.native_delayed_delivery as delayed  # type: ignore[import-untyped]
except ImportError:  # pragma: no cover - depends on the machine
    celery = None


@skipIf(pika is None or celery is None, "the clients of 0-9-1 are not installed")
class ClientTests(DaemonTestCase):
    """A team's first week."""

    def test_pika_queue(self) -> None:
        """Declare, publish with confirms, consume, acknowledge, delete."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            channel.queue_declare("work", durable=True)
            channel.confirm_delivery()
            properties = pika.BasicProperties(
                delivery_mode=2, headers={"n": 1, "l": [1, "two"]}, content_type="text/plain"
            )
            bodies = [b"%d" % number for number in range(50)]
            for body in bodies:
                channel.basic_publish("", "work", body, properties, mandatory=True)
            channel.basic_qos(prefetch_count=7)
            found = []
            for method, got, body in channel.consume("work", inactivity_timeout=PATIENCE):
                assert method is not None
                self.assertEqual(got.headers, {"n": 1, "l": [1, "two"]})
                found.append(body)
                channel.basic_ack(method.delivery_tag)
                if len(found) == len(bodies):
                    break
            channel.cancel()
            self.assertEqual(found, bodies)
            self.assertEqual(channel.queue_delete("work").method.message_count, 0)
            with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as caught:
                channel.queue_declare("work", passive=True)
            self.assertEqual(caught.exception.reply_code, 404)

    def test_pika_unroutable(self) -> None:
        """A confirmed publish that goes nowhere raises, with the message."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            with self.assertRaises(pika.exceptions.UnroutableError) as caught:
                channel.basic_publish("", "nowhere", b"lost", mandatory=True)
            (returned,) = caught.exception.messages
            self.assertEqual((returned.method.reply_code, returned.body), (312, b"lost"))

    def test_pika_request(self) -> None:
        """A request is answered on an exclusive queue with a generated name."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            mine = channel.queue_declare("", exclusive=True).method.queue
            channel.exchange_declare("requests", "topic", auto_delete=True)
            served = channel.queue_declare("", exclusive=True).method.queue
            channel.queue_bind(served, "requests", "orders.#")
            channel.basic_publish(
                "requests",
                "orders.new",
                b"ask",
                pika.BasicProperties(reply_to=mine, correlation_id="7"),
            )
            method, properties, body = channel.basic_get(served, auto_ack=True)
            self.assertEqual((method.exchange, method.routing_key), ("requests", "orders.new"))
            channel.basic_publish(
                "",
                properties.reply_to,
                body.upper(),
                pika.BasicProperties(correlation_id=properties.correlation_id),
            )
            _, properties, body = channel.basic_get(mine, auto_ack=True)
            self.assertEqual((properties.correlation_id, body), ("7", b"ASK"))

    def test_pika_direct_reply(self) -> None:
        """A request by direct reply-to is answered on the channel that has asked."""
        with connect(self.daemon) as asking, connect(self.daemon) as answering:
            client, server = asking.channel(), answering.channel()
            requests = server.queue_declare("", exclusive=True).method.queue

            def answer(channel: Any, method: Any, properties: Any, body: bytes) -> None:
                channel.queue_declare(properties.reply_to, passive=True)
                found = pika.BasicProperties(correlation_id=properties.correlation_id)
                channel.basic_publish("", properties.reply_to, body.upper(), found)
                channel.basic_ack(method.delivery_tag)

            server.basic_qos(prefetch_count=1)
            found: list[tuple[str, bytes]] = []
            client.basic_consume(
                "amq.rabbitmq.reply-to",
                lambda _, method, properties, body: found.append((properties.correlation_id, body)),
                auto_ack=True,
            )
            client.confirm_delivery()
            for number in range(3):
                properties = pika.BasicProperties(
                    reply_to="amq.rabbitmq.reply-to", correlation_id=str(number)
                )
                client.basic_publish("", requests, b"ask", properties, mandatory=True)
                for method, given, body in server.consume(requests, inactivity_timeout=PATIENCE):
                    answer(server, method, given, body)
                    break
            until(lambda: asking.process_data_events(0) or len(found) == 3)
            self.assertEqual(found, [(str(number), b"ASK") for number in range(3)])
            with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as caught:
                client.basic_consume("amq.rabbitmq.reply-to", print, auto_ack=True)
            self.assertEqual(caught.exception.reply_code, 406)

    def test_pika_transaction(self) -> None:
        """A transaction counts with its commit."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            channel.tx_select()
            channel.basic_publish("", self.node, b"1")
            channel.tx_rollback()
            channel.basic_publish("", self.node, b"2")
            channel.tx_commit()
            self.assertEqual(channel.basic_get(self.node, auto_ack=True)[2], b"2")
            channel.tx_commit()
            self.assertIsNone(channel.basic_get(self.node)[0])

    def test_pika_threads_of_nobody(self) -> None:
        """Deliveries to a client that dies are redelivered."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            channel.basic_publish("", self.node, b"1")
            channel.basic_get(self.node)
        with connect(self.daemon) as connection:
            channel = connection.channel()
            method, _, _ = channel.basic_get(self.node, auto_ack=True)
            self.assertTrue(method.redelivered)

    def test_pika_and_amqp10(self) -> None:
        """Both protocols share queues."""
        with connect(self.daemon) as connection:
            channel = connection.channel()
            with Wire(self.daemon.plain) as wire:
                wire.publish(self.node, [message(b"from 1.0")])
            method, _, body = channel.basic_get(self.node, auto_ack=True)
            self.assertEqual((method.routing_key, body), (self.node, b"from 1.0"))

    def test_py_amqp(self) -> None:
        """py-amqp, also with its own defaults."""
        connection = amqp.Connection(
            f"127.0.0.1:{self.daemon.tls}", USER, PASSWORD, ssl=ssl_options()
        )
        connection.connect()
        self.addCleanup(connection.close)
        channel = connection.channel()
        channel.exchange_declare("py", "headers", auto_delete=False)
        channel.queue_bind(self.node, "py", arguments={"x-match": "all", "kind": "new"})
        for kind in ("old", "new"):
            content = amqp.Message(kind, application_headers={"kind": kind, "none": None})
            channel.basic_publish(content, "py")
        found = channel.basic_get(self.node)
        self.assertEqual(found.body, "new")
        channel.basic_reject(found.delivery_tag, requeue=True)
        found = channel.basic_get(self.node)
        self.assertTrue(found.delivery_info["redelivered"])
        channel.basic_ack(found.delivery_tag)
        channel.queue_unbind(self.node, "py", arguments={"x-match": "all", "kind": "new"})
        channel.exchange_delete("py")

    def test_kombu(self) -> None:
        """An exchange and a queue of the same name, and a simple queue."""
        with kombu.Connection(url(self.daemon), ssl=ssl_options()) as connection:
            queue = kombu.Queue("same", kombu.Exchange("same"), routing_key="same")
            with connection.Producer() as producer:
                producer.publish(
                    {"a": 1}, exchange=queue.exchange, routing_key="same", declare=[queue]
                )
            found: list[Any] = []

            def received(body: Any, content: Any) -> None:
                found.append(body)
                content.ack()

            with connection.Consumer(queue, callbacks=[received]):
                connection.drain_events(timeout=PATIENCE)
            self.assertEqual(found, [{"a": 1}])
            simple = connection.SimpleQueue("simple")
            simple.put([1, 2])
            content = simple.get(timeout=PATIENCE)
            content.ack()
            self.assertEqual(content.payload, [1, 2])
            simple.close()

    def test_kombu_direct_reply(self) -> None:
        """A request of kombu by direct reply-to."""
        with (
            kombu.Connection(url(self.daemon), ssl=ssl_options()) as connection,
            connection.channel() as channel,
        ):
            replies = kombu.Queue("amq.rabbitmq.reply-to", no_declare=True, no_ack=True)
            found: list[Any] = []

            def received(body: Any, content: Any) -> None:
                found.append((body, content.properties["correlation_id"]))

            consumer = kombu.Consumer(channel, replies, callbacks=[received], no_ack=True)
            with consumer, connection.channel() as other:
                requests = kombu.Queue("kombu-requests", channel=other, auto_delete=True)
                requests.declare()
                kombu.Producer(channel).publish(
                    {"n": 1},
                    routing_key="kombu-requests",
                    reply_to="amq.rabbitmq.reply-to",
                    correlation_id="7",
                )
                asked: list[Any] = []
                until(lambda: asked.append(requests.get(no_ack=True)) or asked[-1] is not None)
                kombu.Producer(other).publish(
                    {"n": 2},
                    routing_key=asked[-1].properties["reply_to"],
                    correlation_id=asked[-1].properties["correlation_id"],
                )
                connection.drain_events(timeout=PATIENCE)
            self.assertEqual(found, [({"n": 2}, "7")])

    def test_kombu_delayed_delivery(self) -> None:
        """Celery's delays with quorum queues: 28 exchanges and queues with lifetimes in a chain."""
        with kombu.Connection(url(self.daemon), ssl=ssl_options()) as connection:
            delayed.declare_native_delayed_delivery_exchanges_and_queues(connection, "quorum")
            queue = kombu.Queue(
                "delayed",
                kombu.Exchange("delayed", type="topic"),
                routing_key="delayed",
                queue_arguments={"x-queue-type": "quorum"},
            )
            queue(connection.channel()).declare()
            delayed.bind_queue_to_native_delayed_delivery_exchange(connection, queue)
            found: list[Any] = []

            def received(body: Any, content: Any) -> None:
                found.append((body, time.monotonic() - began))
                content.ack()

            began = time.monotonic()
            producer = kombu.Producer(connection.channel())
            for seconds in (3, 1, 2):
                producer.publish(
                    seconds,
                    exchange=delayed.level_name(delayed.MAX_LEVEL),
                    routing_key=delayed.calculate_routing_key(seconds, "delayed"),
                )
            with connection.Consumer(queue, callbacks=[received]):
                while len(found) < 3:
                    connection.drain_events(timeout=PATIENCE)
            self.assertEqual([body for body, _ in found], [1, 2, 3])
            self.assertEqual([body for body, after in found if after < body], [])

    def test_aio_pika(self) -> None:
        """aio-pika with confirms, a fanout exchange and an iterator."""
        context = tls_context()
        context.check_hostname = False

        async def talk() -> list[bytes]:
            connection = await aio_pika.connect_robust(
                host="127.0.0.1", port=self.daemon.tls, login=USER, password=PASSWORD,
                ssl=True, ssl_context=context, timeout=PATIENCE,
            )  # fmt: skip
            found = []
            async with connection:
                channel = await connection.channel()
                await channel.set_qos(10)
                queue = await channel.declare_queue("aio", durable=True)
                fanout = await channel.declare_exchange("fan", aio_pika.ExchangeType.FANOUT)
                await queue.bind(fanout)
                await fanout.publish(aio_pika.Message(b"1"), "")
                await channel.default_exchange.publish(aio_pika.Message(b"2"), "aio")
                async with queue.iterator(timeout=PATIENCE) as messages:
                    async for each in messages:
                        async with each.process():
                            found.append(each.body)
                        if len(found) == 2:
                            break
                await queue.delete()
                await fanout.delete()
            return found

        self.assertEqual(asyncio.run(talk()), [b"1", b"2"])

    def test_celery(self) -> None:
        """A worker with acks-late, a countdown, retries, and results by AMQP."""
        environ = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent.parent.parent),
            "TEST_BROKER": url(self.daemon),
            "TEST_TRUST": str(certificates().trust),
        }
        log = self.daemon.directory / "celery.log"
        with log.open("wb") as output:
            worker = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.integration.celery_tasks",
                 "worker", "-P", "solo", "-l", "INFO"],
                env=environ, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            until(lambda: b"ready." in log.read_bytes(), "the worker", detail=log.read_text)
            program = (
                "from tests.integration.celery_tasks import add, app, flaky\n"
                f"print(add.delay(2, 3).get(timeout={PATIENCE}),\n"
                f"      add.apply_async((4, 5), countdown=1).get(timeout={PATIENCE}),\n"
                f"      flaky.delay(7).get(timeout={PATIENCE}))\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", program], env=environ, capture_output=True, text=True,
                timeout=3 * PATIENCE, check=False,
            )  # fmt: skip
            self.assertEqual(done.stdout, "5 9 7\n", done.stderr + log.read_text())
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
