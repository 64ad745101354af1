# SPDX-License-Identifier: Apache-2.0
"""Tools made for RabbitMQ's HTTP API read ours: pyrabbit2, and the module of Flower that looks at
queues."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from typing import Any

from twisted.internet import reactor
from twisted.internet.threads import deferToThread

from amqproute.http.http_listener import HttpListener
from tests.http.test_rabbitmq_api import RabbitmqCase


class ToolCase(RabbitmqCase):
    """A daemon in this process at a port; tools run in a thread."""

    async def setUp(self) -> None:
        await super().setUp()
        made: Any = reactor
        listener = HttpListener(made, "tcp:0:interface=127.0.0.1", self.app.web.site)
        listener.startService()
        self.addCleanup(listener.stopService)
        address: Any = listener.addresses[0]
        self.place = f"127.0.0.1:{address.port}"
        await self.publish(3)


class PyrabbitTests(ToolCase):
    """pyrabbit2, which kombu's manager and many scripts use or are like."""

    if importlib.util.find_spec("pyrabbit2") is None:
        skip = "there is no pyrabbit2"

    async def test_reading(self) -> None:
        """Its calls that only read queues, totals and connections."""
        from pyrabbit2.api import Client

        client = Client(self.place, "root", "secret")

        def work() -> dict[str, Any]:
            return {
                "overview": client.get_overview(),
                "all": client.get_queues(),
                "of-host": client.get_queues("shop"),
                "one": client.get_queue("/", "orders"),
                "depth": client.get_queue_depth("/", "orders"),
                "connections": client.get_connections(),
            }

        found: Mapping[str, Any] = await deferToThread(work)
        self.assertEqual(found["overview"]["queue_totals"]["messages"], 3)
        self.assertEqual(
            sorted(row["name"] for row in found["all"]),
            ["answers", "news", "orders", "other", "till"],
        )
        self.assertEqual([row["name"] for row in found["of-host"]], ["till"])
        self.assertEqual(found["one"]["messages_ready"], 3)
        self.assertEqual(found["depth"], 3)
        self.assertEqual(found["connections"], [])

    async def test_refusals(self) -> None:
        """Wrong passwords, missing rights and missing queues are told by their status."""
        from pyrabbit2.api import Client, PermissionError
        from pyrabbit2.http import HTTPError

        def status(user: str, password: str, name: str) -> int:
            try:
                Client(self.place, user, password).get_queue("/", name)
            except PermissionError:
                return 401
            except HTTPError as error:
                return int(error.status)
            return 200

        for user, password, name, expected in (
            ("root", "secret", "orders", 200),
            ("root", "secret", "nothing", 404),
            ("maker", "secret", "orders", 403),
            ("root", "wrong", "orders", 401),
        ):
            self.assertEqual(await deferToThread(status, user, password, name), expected)


class FlowerTests(ToolCase):
    """Flower's page of the broker."""

    if importlib.util.find_spec("flower") is None:
        skip = "there is no Flower"

    async def test_queues(self) -> None:
        """By the URL of the broker, whose virtual host it asks about."""
        from flower.utils.broker import RabbitMQ

        def queues(broker_url: str, names: list[str]) -> list[dict[str, Any]]:
            api = f"http://root:secret@{self.place}/api/"
            return asyncio.run(RabbitMQ(broker_url, api).queues(names))

        for url, name, messages in (
            ("amqp://root:secret@localhost//", "orders", 3),  # the default virtual host
            ("amqp://root:secret@localhost/", "orders", 3),
            ("amqp://root:secret@localhost/shop", "till", 0),
        ):
            (row,) = await deferToThread(queues, url, [name, "nothing"])
            self.assertEqual((row["name"], row["messages"]), (name, messages), url)
            for column in ("messages_ready", "messages_unacknowledged", "consumers"):
                self.assertIsInstance(row[column], int, column)
