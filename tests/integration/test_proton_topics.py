# SPDX-License-Identifier: Apache-2.0
"""Qpid Proton as a subscriber: topics, durable subscriptions, and a restart between them."""

from __future__ import annotations

from typing import Any

from amqproute.store.fsck import check
from tests.integration.support import until
from tests.integration.test_proton import ProtonTestCase
from tests.support.patience import PATIENCE

try:
    from proton import Message, Terminus
    from proton.reactor import AtMostOnce, Container, DurableSubscription, Selector
except ImportError:
    DurableSubscription = None


class TopicTests(ProtonTestCase):
    """A daemon with topics, and a node of its own for what is not about one topic."""

    nodes = (
        {"name": "t", "type": "topic"},
        {"name": "prices", "type": "topic", "last-value": 1, "last-value-key": "symbol"},
        {"name": "red"},
        {"name": "all"},
    )
    changes = {
        "bindings": [
            {"source": "t", "target": "red", "filter": "color = 'red'"},
            {"source": "red", "target": "all"},
        ]
    }

    def setUp(self) -> None:
        super().setUp()
        self.node = "t"

    def kinds(self) -> dict[str, str]:
        """Ask the management node what there is: name to kind."""
        receiver = self.connection.create_receiver(None, dynamic=True, credit=1)
        sender = self.connection.create_sender("$management")
        asked = {"operation": "QUERY", "entityType": "queue"}
        reply_to = receiver.link.remote_source.address
        sender.send(Message(id="1", reply_to=reply_to, properties=asked))
        body = receiver.receive(timeout=PATIENCE).body
        sender.close()
        receiver.close()
        names = body["attributeNames"]
        rows = [dict(zip(names, values, strict=True)) for values in body["results"]]
        return {row["name"]: row["kind"] for row in rows}

    def subscriber(self) -> Any:
        """Connect as a container with a name of its own."""
        container = Container()
        container.container_id = "subscriber"
        return self.connect(container=container)

    def test_subscribers(self) -> None:
        """Two subscribers get everything, one of them pre-settled."""
        first = self.connection.create_receiver("t", credit=10)
        second = self.connection.create_receiver("t", credit=10, options=AtMostOnce(), name="two")
        self.send(*(Message(body=n, durable=True) for n in range(3)))
        for receiver in (first, second):
            self.assertEqual([receiver.receive(timeout=PATIENCE).body for _ in range(3)], [0, 1, 2])
        for _ in range(3):
            first.accept()

    def test_filter(self) -> None:
        receiver = self.connection.create_receiver(
            "t", credit=10, options=Selector("color = 'red'")
        )
        colors = ("red", "blue", "red")
        self.send(*(Message(body=n, properties={"color": c}) for n, c in enumerate(colors)))
        self.assertEqual([receiver.receive(timeout=PATIENCE).body for _ in range(2)], [0, 2])

    def test_last_value(self) -> None:
        self.node = "prices"
        sent = [("a", 1), ("b", 2), ("a", 3)]
        self.send(*(Message(body=price, properties={"symbol": name}) for name, price in sent))
        receiver = self.connection.create_receiver("prices", credit=10)
        self.assertEqual([receiver.receive(timeout=PATIENCE).body for _ in range(2)], [2, 3])

    def test_durable(self) -> None:
        """Messages sent while the subscriber and then the daemon are away arrive (W-17)."""
        name = "amqp$sub/t/subscriber/sub/anonymous%40127.0.0.1"
        connection = self.subscriber()
        options = [DurableSubscription(), Selector("color = 'red'")]
        receiver = connection.create_receiver("t", credit=10, name="sub", options=options)
        self.assertEqual(receiver.link.remote_source.durability, Terminus.DELIVERIES)
        connection.close()
        colors = ("red", "blue", "red")
        messages = [
            Message(body=n, durable=True, properties={"color": c}) for n, c in enumerate(colors)
        ]
        self.send(*messages)
        self.connection.close()
        self.assertEqual(self.daemon.stop(), 0)
        self.daemon.start()
        self.connection = self.connect()
        self.assertEqual(self.kinds()[name], "subscription")
        connection = self.subscriber()
        receiver = connection.create_receiver("t", credit=10, name="sub", options=options)
        got = []
        for _ in range(2):
            got.append(receiver.receive(timeout=PATIENCE).body)
            receiver.accept()
        self.assertEqual(got, [0, 2])
        receiver.close()
        until(lambda: name not in self.kinds(), "an ended subscription")

    def test_large(self) -> None:
        """A large body for two subscriptions is one on the disk, over a kill, until both had it."""
        files = self.daemon.directory / "state" / "store.bodies"
        body = "large" * 20_000

        def subscribers() -> list[Any]:
            return [
                self.subscriber().create_receiver(
                    "t", credit=1, name=f"large-{number}", options=DurableSubscription()
                )
                for number in range(2)
            ]

        for each in subscribers():
            each.connection.close()
        self.send(Message(body=body, durable=True))
        self.assertLess(sum(file.stat().st_size for file in files.iterdir()), 150_000)
        self.connection.close()
        self.daemon.kill()
        self.assertEqual(check(str(self.daemon.directory / "state" / "store.db")), [])
        self.daemon.start()
        self.connection = self.connect()
        for each in subscribers():
            self.assertEqual(each.receive(timeout=PATIENCE).body, body)
            each.accept()
            each.close()
        # The next start removes what nobody needs, the segment that was the current one too.
        self.connection.close()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertEqual(list(files.iterdir()), [])
        self.daemon.start()
        self.connection = self.connect()

    def test_bindings(self) -> None:
        """From the topic by way of a queue into another one, by configuration."""
        self.send(*(Message(body=c, properties={"color": c}) for c in ("red", "blue")))
        self.node = "all"
        (got,) = self.receive(1)
        self.assertEqual(got.body, "red")
        self.assertEqual(self.kinds()["t"], "topic")
