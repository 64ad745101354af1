# SPDX-License-Identifier: Apache-2.0
"""Messages whose properties do not fit into the frames of a client (09-W-11).

They stay for those who can be given them, and whoever cannot goes on with the next one.
"""

from __future__ import annotations

from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, call

LARGE: Final = [("a", "S", b"x" * 5000)]


class SmallFrameTests(SynchronousTestCase):
    """A queue with a message that one client cannot be given, and one that it can."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = Client09(self.house, version=V09).channel()

    def small(self, version: bytes = V09, **more: Any) -> Client09:
        return Client09(self.house, version=version, frame_max=4096, **more).channel()

    def publish(self) -> None:
        self.client.publish(b"large", properties={"headers": LARGE}).publish(b"small")

    def test_transfers(self) -> None:
        """message.consume and message.get, which has its answer."""
        for name in ("consume", "get"):
            self.publish()
            client = self.small()
            client.ask(f"message.{name}", queue="q", destination="d")
            client.write(call(1, "message.ok"))
            (body,) = [each["body"] for _, each_name, each in client.methods if "body" in each]
            self.assertEqual(body, (0, b"small"))
            self.assertEqual(self.client.depth(), 1)
            client.hang_up()
            self.client.ask("queue.purge", queue="q")

    def test_get(self) -> None:
        """basic.get, in both versions."""
        for version in (V09, V091):
            self.publish()
            client = self.small(version)
            self.assertEqual(client.ask("basic.get", queue="q", no_ack=1), ["basic.get-ok"])
            self.assertEqual(client.bodies(), [b"small"])
            self.assertEqual(client.ask("basic.get", queue="q", no_ack=1), ["basic.get-empty"])
            self.assertEqual(self.client.depth(), 1)
            self.client.ask("queue.purge", queue="q")

    def test_files(self) -> None:
        """What cannot be staged to a client is not opened to it."""
        for name, headers in (("large", LARGE), ("small", [])):
            self.client.ask("file.open", identifier=name, content_size=5)
            self.client.put("file.stage", name.encode(), properties={"headers": headers})
            self.client.write(call(1, "file.publish", routing_key="q", identifier=name))
        self.assertEqual(self.client.depth(), 2)
        client = self.small()
        client.ask("file.consume", queue="q", consumer_tag="c")
        opens = [each for _, name, each in client.methods if name == "file.open"]
        self.assertEqual(len(opens), 1)
        client.write(call(1, "file.open-ok"), call(1, "file.ack", delivery_tag=1))
        self.assertEqual([body for *_, body in client.contents], [b"small"])
        self.assertEqual((client.closes(), client.depth()), ([], 1))

    def test_broadcasts(self) -> None:
        """A broadcast that one consumer cannot be given is lost for that one, and counted."""
        client = self.small()
        client.ask("basic.consume", queue="q", consumer_tag="s", filter=[("x-priority", "I", -1)])
        self.client.ask("basic.consume", queue="q")
        sender = Client09(self.house, version=V09).channel()
        for meta_data in (LARGE, []):
            properties = {"proxy-name": "q", "broadcast": 1}
            sender.put("tunnel.request", b"x", properties=properties, meta_data=meta_data)
        self.assertEqual(len(self.client.run().contents), 2)
        self.assertEqual(len(client.run().contents), 1)
        self.assertEqual(self.client.depth(), 0)
        rows = [row for each in self.house.shared.connections for row in each.link_rows()]
        (lost,) = [row["broadcasts-lost"] for row in rows if row.get("consumer-tag") == "s"]
        self.assertEqual(lost, 1)

    def test_returns(self) -> None:
        """A header of a few octets more than agreed is taken, and cannot be sent back."""
        for version in (V09, V091):
            client = self.small(version)
            for size in range(4050, 4070):
                properties = {"headers": [("a", "S", b"x" * size)]}
                client.publish(b"x", key="none", properties=properties, mandatory=1)
                if client.closes():
                    break
            self.assertEqual(client.closes(), [("channel", 406)])
            self.assertIn("basic.return", client.names())
