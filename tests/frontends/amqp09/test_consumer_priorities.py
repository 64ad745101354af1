# SPDX-License-Identifier: Apache-2.0
"""Consumers with a higher priority are served first, while they have room (09-W-70)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import call


class ConsumerPriorityTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = Client09(self.house).channel(1, 2)
        self.client.ask("queue.declare", queue="w", durable=1)

    def consume(self, tag: str, priority: int | None, window: int = 2) -> None:
        """Consume with a priority."""
        arguments = [] if priority is None else [("x-priority", "I", priority)]
        self.client.write(
            call(1, "basic.qos", prefetch_count=window),
            call(1, "basic.consume", queue="w", consumer_tag=tag, filter=arguments),
        )

    def served(self, count: int) -> list[str]:
        """Publish messages one by one; return the consumers that they go to."""
        self.client.contents.clear()
        for _ in range(count):
            self.client.publish(b"m", key="w", channel=2)
        return [each[2]["consumer-tag"] for each in self.client.contents]

    def test_order(self) -> None:
        """The highest takes all it has room for, then the next; -1 is below none."""
        self.consume("low", -1)
        self.consume("usual", None)
        self.consume("high", 5)
        self.assertEqual(self.served(7), ["high", "high", "usual", "usual", "low", "low"])
        self.client.write(call(1, "basic.ack", delivery_tag=1))
        self.assertEqual(self.client.contents[-1][2]["consumer-tag"], "high")

    def test_backlog(self) -> None:
        """Waiting messages go to the highest priority first, and equals share."""
        self.served(0)
        self.client.write(call(1, "channel.flow", active=0))
        for tag, priority in (("low", 0), ("a", 3), ("b", 3)):
            self.consume(tag, priority)
        self.served(5)
        self.client.write(call(1, "channel.flow", active=1))
        tags = [each[2]["consumer-tag"] for each in self.client.contents]
        self.assertCountEqual(tags, ["a", "a", "b", "b", "low"])

    def test_gone(self) -> None:
        """When the highest has gone the others are equal again."""
        self.consume("high", 5, 10)
        self.consume("one", None, 10)
        self.consume("two", None, 10)
        self.client.write(call(1, "basic.cancel", consumer_tag="high"))
        self.assertCountEqual(self.served(4), ["one", "one", "two", "two"])
        self.assertEqual(self.house.broker.nodes["w"].state.consumers.priorities, {})

    def test_refused(self) -> None:
        """A priority is a number; arguments of streams are refused by name."""
        for name, kind, value in (("x-priority", "S", b"high"), ("x-stream-filter", "S", b"a")):
            found = self.client.refused("basic.consume", queue="w", filter=[(name, kind, value)])
            self.assertEqual(found, ("channel", 406))
