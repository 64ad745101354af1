# SPDX-License-Identifier: Apache-2.0
"""Shovels and federation links of a RabbitMQ, unmodified, over AMQP 0-9-1 against a daemon.

A shovel is a client of two brokers, and a federation link one of its upstream: both run inside of
RabbitMQ, so the daemon is source, destination and upstream here, and never downstream. They are
made at runtime by ``rabbitmqctl``, as operators make them. One node for all: it starts slowly.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.rabbitmq_shovel import Node
from tests.integration.amqp09 import connect, pika
from tests.integration.rabbitmq import MISSING, control, has_plugin, rabbit_node
from tests.integration.support import Daemon, certificates, until
from tests.support.patience import PATIENCE

PLUGINS = ("rabbitmq_shovel", "rabbitmq_federation")
DURABLE = {"durable": True, "auto_delete": False, "arguments": {}}
EVERYTHING = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
MANY = 2000


def why_skipped() -> str:
    """Say what is not installed; empty if all is."""
    if MISSING or pika is None:
        return MISSING or "pika is not installed"
    missing = [name for name in PLUGINS if not has_plugin(name)]
    return f"RabbitMQ has no plug-in {missing[0]}" if missing else ""


class Side:
    """A connection of pika to one of the brokers, made anew when it has broken."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._connection: Any = None

    def channel(self) -> Any:
        """Return a new channel."""
        channel = None
        if self._connection is not None:
            try:
                channel = self._connection.channel()
            except (pika.exceptions.AMQPError, OSError):
                self._connection = None  # its broker was killed
        if channel is None:
            self._connection = self._make()
            channel = self._connection.channel()
        return channel

    def publish(self, bodies: list[bytes], key: str, exchange: str = "") -> None:
        """Publish persistent messages in a transaction, which is committed on return."""
        channel = self.channel()
        channel.tx_select()
        for body in bodies:
            channel.basic_publish(exchange, key, body, pika.BasicProperties(delivery_mode=2))
        channel.tx_commit()
        channel.close()

    def depth(self, queue: str) -> int:
        """Return how many messages wait on a queue; -1 where there is none."""
        try:
            channel = self.channel()
            return int(channel.queue_declare(queue, passive=True).method.message_count)
        except (pika.exceptions.AMQPError, OSError):
            return -1

    def take(self, queue: str, least: int) -> list[bytes]:
        """Wait for so many messages on a queue, and take all that are there."""
        found: list[bytes] = []
        channel = self.channel()

        def is_there() -> bool:
            while True:
                method, _, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    return len(set(found)) >= least
                found.append(body)

        until(is_there, f"{least} messages on {queue}")
        return found

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None and self._connection.is_open:
            self._connection.close()


class RabbitLinkTests(SynchronousTestCase):
    skip = why_skipped() or None

    def setUp(self) -> None:
        everything = ["publish", "consume", "create", "browse", "manage"]
        self.alpha = Daemon(
            "alpha.example",
            changes={
                "nodes": [{"name": "ours"}, {"name": "slow"}],
                "access": [{"allow": everything, "who": who} for who in ("user:anna", "uid:*")],
            },
        ).start()
        self.addCleanup(self.alpha.stop)

    def uri(self, password: str = "secret") -> str:
        """Return the address of the daemon, as a shovel is given it."""
        query = urlencode(
            {
                "cacertfile": str(certificates().trust),
                "verify": "verify_peer",
                "server_name_indication": "alpha.example",
                "heartbeat": "5",
            },
            safe="/",
        )
        return f"amqps://anna:{password}@127.0.0.1:{self.alpha.tls}/%2F?{query}"

    def definitions(self) -> dict[str, Any]:
        """Return what the node has from the start."""
        names = ("theirs", "orders", "outgoing", "events-here", "shared", "slow", "lost")
        return {
            "vhosts": [{"name": "/"}],
            "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
            "permissions": [{"user": "guest", **EVERYTHING}],
            "queues": [
                {"name": name, "vhost": "/", **DURABLE, "arguments": arguments}
                for name, arguments in (
                    *((name, {}) for name in names if name != "orders"),
                    ("orders", {"x-queue-version": 1}),  # as `Node.wait_ready` declares it
                )
            ],
            "exchanges": [
                {"name": "events", "vhost": "/", "type": "topic", "internal": False, **DURABLE}
            ],
            "bindings": [
                {
                    "source": "events",
                    "vhost": "/",
                    "destination": "events-here",
                    "destination_type": "queue",
                    "routing_key": "eu.#",
                    "arguments": {},
                }
            ],
        }

    def test_all(self) -> None:
        with rabbit_node(plugins=PLUGINS, definitions=self.definitions()) as node:
            self.node: Node = node
            self.there = Side(
                lambda: pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
            )
            self.here = Side(lambda: connect(self.alpha))
            self.shovels()
            self.exchanges_by_shovel()
            self.exchange_federation()
            self.queue_federation()
            self.wrong_password()
            self.missing_exchange()
            self.killed_in_the_middle()
            self.there.close()
            self.here.close()
        # Shovels that find no queue, exchange or password are told so, and so is our log.
        self.alpha.stop()

    # -- helpers -----------------------------------------------------------------------------------

    def shovel(self, name: str, **value: Any) -> None:
        """Make or replace a dynamic shovel; ``_`` stands for ``-``."""
        given: dict[str, Any] = {
            "src-protocol": "amqp091",
            "dest-protocol": "amqp091",
            "ack-mode": "on-confirm",
            "reconnect-delay": 1,
            **{key.replace("_", "-"): each for key, each in value.items()},
        }
        control(self.node, "set_parameter", "shovel", name, json.dumps(given))

    def state(self, name: str) -> str:
        """Return what the node says of a shovel."""
        words = control(self.node, "eval", "rabbit_shovel_status:status().")
        return next((each for each in words.split("{{<<") if f'<<"{name}">>' in each), "")

    # -- steps -------------------------------------------------------------------------------------

    def shovels(self) -> None:
        """From a queue here to one there, and from there to a queue that the shovel makes here."""
        bodies = [b"%d" % number for number in range(200)]
        self.shovel(
            "in", src_uri=self.uri(), src_queue="ours", dest_uri="amqp://", dest_queue="theirs"
        )
        self.shovel(
            "out", src_uri="amqp://", src_queue="outgoing", dest_uri=self.uri(),
            dest_queue="made-here",
        )  # fmt: skip
        self.here.publish(bodies, "ours")
        self.there.publish(bodies, "outgoing")
        self.assertEqual(self.there.take("theirs", 200), bodies)
        until(lambda: self.here.depth("made-here") == 200, "all here", detail=self.alpha.log)
        self.assertEqual(self.here.take("made-here", 200), bodies)

    def exchanges_by_shovel(self) -> None:
        """From an exchange there to one here: the keys come along."""
        channel = self.here.channel()
        channel.exchange_declare("incoming", "topic", durable=True)
        channel.queue_declare("incoming-eu", durable=True)
        channel.queue_bind("incoming-eu", "incoming", "eu.#")
        self.shovel(
            "keys", src_uri="amqp://", src_exchange="events", src_exchange_key="#",
            dest_uri=self.uri(), dest_exchange="incoming",
        )  # fmt: skip
        until(lambda: "running" in self.state("keys"), "running", detail=self.alpha.log)
        self.there.publish([b"a"], "eu.orders", "events")
        self.there.publish([b"b"], "us.orders", "events")
        self.there.publish([b"c"], "eu.offers", "events")
        self.assertEqual(self.here.take("incoming-eu", 2), [b"a", b"c"])
        control(self.node, "clear_parameter", "shovel", "keys")
        self.there.take("events-here", 2)

    def exchange_federation(self) -> None:
        """The node is downstream: its bindings decide what leaves here."""
        upstream = {"uri": self.uri(), "ack-mode": "on-confirm", "reconnect-delay": 1}
        control(
            self.node, "set_parameter", "federation-upstream", "alpha",
            json.dumps({**upstream, "expires": 3_600_000, "max-hops": 1}),
        )  # fmt: skip
        definition = json.dumps({"federation-upstream": "alpha"})
        control(self.node, "set_policy", "fed", "^events$", definition, "--apply-to", "exchanges")
        name = f"federation: events -> {self.cluster()}"
        until(lambda: self.here.depth(name) == 0, "the link's queue", detail=self.alpha.log)
        until(self.is_bound, "the binding of the other side", detail=self.alpha.log)
        self.here.publish([b"1"], "eu.orders", "events")
        self.here.publish([b"2"], "us.orders", "events")
        self.here.publish([b"3"], "eu.offers", "events")
        self.assertEqual(self.there.take("events-here", 2), [b"1", b"3"])
        # What is bound there later is asked for here, and no longer when it is not.
        channel = self.there.channel()
        channel.queue_bind("shared", "events", "us.#")
        until(lambda: self.reaches("shared", b"4", "us.orders"), "us too", detail=self.alpha.log)
        channel.queue_unbind("shared", "events", "us.#")
        # The internal exchange is the link's alone.
        internal = self.here.channel()
        internal.confirm_delivery()
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as refused:
            internal.basic_publish(f"{name} B", "eu.orders", b"x")
        self.assertIn(refused.exception.reply_code, (403, 404))
        control(self.node, "clear_policy", "fed")
        until(lambda: self.here.depth(name) == -1, "the link's queue gone", detail=self.alpha.log)

    def cluster(self) -> str:
        """Return the name by which the node calls its cluster."""
        words = control(self.node, "eval", "rabbit_nodes:cluster_name().")
        return words.strip().removeprefix('<<"').removesuffix('">>')

    def is_bound(self) -> bool:
        """Publish until the link has bound its exchange, which it does at its own pace."""
        return self.reaches("events-here", b"0", "eu.first")

    def reaches(self, queue: str, body: bytes, key: str) -> bool:
        """Publish to our exchange; tell whether it is on a queue there, and take it off."""
        self.here.publish([body], key, "events")
        time.sleep(0.2)
        channel = self.there.channel()
        method, _, _ = channel.basic_get(queue, auto_ack=True)
        return method is not None

    def queue_federation(self) -> None:
        """Consumers there get what waits on the queue of that name here."""
        channel = self.here.channel()
        channel.queue_declare("shared", durable=True)
        definition = json.dumps({"federation-upstream": "alpha"})
        control(self.node, "set_policy", "shared", "^shared$", definition, "--apply-to", "queues")
        bodies = [b"%d" % number for number in range(50)]
        self.here.publish(bodies, "shared")
        found: list[bytes] = []
        consumer = self.there.channel()
        for _, _, body in consumer.consume("shared", auto_ack=True, inactivity_timeout=PATIENCE):
            found.append(body)
            if len(found) >= 50 or body is None:
                break
        consumer.cancel()
        self.assertCountEqual(found, bodies)
        control(self.node, "clear_policy", "shared")

    def wrong_password(self) -> None:
        """It is refused and logged, nothing is lost, and the right one lets all through."""
        self.there.publish([b"kept"], "slow")
        since = self.alpha.mark()
        self.shovel(
            "slow", src_uri="amqp://", src_queue="slow", dest_uri=self.uri("wrong"),
            dest_queue="slow",
        )  # fmt: skip
        self.alpha.wait_log('log-in failed from 127.0.0.1, PLAIN, user "anna"', since)
        self.assertNotIn("running", self.state("slow"))
        self.shovel(
            "slow", src_uri="amqp://", src_queue="slow", dest_uri=self.uri(), dest_queue="slow"
        )
        self.assertEqual(self.here.take("slow", 1), [b"kept"])

    def missing_exchange(self) -> None:
        """Nothing is confirmed, so nothing is lost.

        RabbitMQ 3.10 does not see that its channel was closed with 404, whoever closes it: the
        shovel stands still and counts as running until an operator restarts it.
        """
        since = self.alpha.mark()
        self.there.publish([b"patient"], "lost")
        self.shovel(
            "lost",
            src_uri="amqp://",
            src_queue="lost",
            dest_uri=self.uri(),
            dest_exchange="not-yet",
            dest_exchange_key="k",
        )
        self.alpha.wait_log("404 .*not-yet", since)
        channel = self.here.channel()
        channel.queue_declare("at-last", durable=True)
        channel.exchange_declare("not-yet", "direct", durable=True)
        channel.queue_bind("at-last", "not-yet", "k")
        control(self.node, "restart_shovel", "lost")
        self.assertEqual(self.here.take("at-last", 1), [b"patient"])
        control(self.node, "clear_parameter", "shovel", "lost")

    def killed_in_the_middle(self) -> None:
        """kill -9 of the daemon, thrice: none is lost, some may be there twice."""
        bodies = [b"%d" % number for number in range(MANY)]
        self.here.publish(bodies, "ours")
        publisher = threading.Thread(target=self.publish_there, args=(bodies,))
        publisher.start()
        for least in (100, 500, 1000):
            until(lambda least=least: self.moved() >= least, "moved", detail=self.alpha.log)
            self.alpha.kill()
            self.alpha.start()
        publisher.join(PATIENCE)
        for side, queue in ((self.there, "theirs"), (self.here, "made-here")):
            found = side.take(queue, MANY)
            self.assertEqual(set(found), set(bodies))
            twice = sum(count - 1 for count in Counter(found).values())
            print(f"\n3 kills, {MANY} messages: {twice} copies on {queue}")

    def moved(self) -> int:
        """Return how many messages have come to the other side."""
        return self.there.depth("theirs")

    def publish_there(self, bodies: list[bytes]) -> None:
        """Publish at the node, on a connection of its own."""
        node = self.node
        side = Side(
            lambda: pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        )
        side.publish(bodies, "outgoing")
        side.close()
