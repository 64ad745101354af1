# SPDX-License-Identifier: Apache-2.0
"""Connections, channels and consumers of 0-9-1 in management, and their end by operators."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.frontends.amqp09.client_description import LONGEST, client_description
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import call


class RowTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.house = Network().house()
        self.client = Client09(self.house).channel(1, 2, 3)
        self.client.ask("queue.declare", queue="w", durable=1)
        self.frontend: Any = self.client.end.protocol._user

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Return the rows of channels or consumers."""
        return [row for row in self.frontend.link_rows() if row["kind"] == kind]

    def test_channels(self) -> None:
        """Each has a row, with what confirms or commits."""
        self.client.ask("confirm.select", channel=2)
        self.client.ask("tx.select", channel=3)
        found = [(row["channel"], row["mode"]) for row in self.rows("channel")]
        self.assertEqual(found, [(1, "none"), (2, "confirms"), (3, "transactions")])
        self.assertEqual(self.frontend.row()["channels"], 3)

    def test_consumers(self) -> None:
        """A consumer has its tag, its prefetch and what it has not acknowledged."""
        self.client.write(call(1, "basic.qos", prefetch_count=2))
        self.client.ask("basic.consume", queue="w", consumer_tag="ct")
        for body in (b"1", b"2", b"3"):
            self.client.publish(body, key="w", channel=2)
        (row,) = self.rows("consumer")
        self.assertEqual(
            (row["name"], row["consumer-tag"], row["channel"], row["prefetch"], row["unsettled"]),
            ("ct", "ct", 1, 2, 2),
        )
        self.assertEqual((row["node"], row["virtual-host"]), ("w", "/"))
        self.client.ask("basic.consume", queue="w", consumer_tag="free", no_ack=1, channel=2)
        free = next(row for row in self.rows("consumer") if row["name"] == "free")
        self.assertEqual((free["prefetch"], free["no-ack"]), (0, True))

    def test_deliveries(self) -> None:
        """Each consumer counts its own, the channel those of all."""
        self.client.ask("queue.declare", queue="v", durable=1)
        self.client.ask("basic.consume", queue="w", consumer_tag="of w")
        self.client.ask("basic.consume", queue="v", consumer_tag="of v", no_ack=1)
        for key in "wvw":
            self.client.publish(b"1", b"2", b"3", key=key, channel=2)
        counts = {row["name"]: row["deliveries"] for row in self.rows("consumer")}
        self.assertEqual(counts, {"of w": 6, "of v": 3})
        self.assertEqual([row["deliveries"] for row in self.rows("channel")], [9, 0, 0])

    def test_consumer_is_cancelled(self) -> None:
        """By its tag: the client gets basic.cancel, and the channel goes on."""
        self.client.ask("basic.consume", queue="w", consumer_tag="ct")
        self.assertEqual(self.frontend.detach_named("ct"), 1)
        self.client.methods.clear()
        self.client.run()
        (cancel,) = self.client.methods
        self.assertEqual(cancel[:2], (1, "basic.cancel"))
        self.assertEqual(cancel[2]["consumer-tag"], "ct")
        self.assertEqual(self.rows("consumer"), [])
        self.assertEqual(len(self.rows("channel")), 3)
        self.assertEqual(self.client.closes(), [])

    def test_connection_is_closed(self) -> None:
        """With 320 and the words of the operator."""
        self.frontend.close(conditions.CONNECTION_FORCED, "moving house")
        self.client.run()
        self.assertEqual(self.client.closes(), [("connection", 320)])


class DescriptionTests(SynchronousTestCase):
    """A client's words about itself are a stranger's."""

    def test_shown(self) -> None:
        """Product, version, platform and name."""
        given = {"product": "pika", "version": "1.3", "platform": "Py", "connection_name": "app"}
        self.assertEqual(
            client_description(given),
            {
                "client-name": "app",
                "client-product": "pika",
                "client-version": "1.3",
                "client-platform": "Py",
            },
        )

    def test_bounded_and_escaped(self) -> None:
        """Long texts are cut, controls escaped, and what is no text is left out."""
        found = client_description(
            {"product": "p" * 100_000, "version": {"a": "b"}, "platform": "\x1b[2J", "other": "x"}
        )
        self.assertEqual(found["client-product"], "p" * LONGEST + "...")
        self.assertEqual(found["client-platform"], "\\x1b[2J")
        self.assertEqual(set(found), {"client-product", "client-platform"})
