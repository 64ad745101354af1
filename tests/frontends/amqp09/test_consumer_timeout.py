# SPDX-License-Identifier: Apache-2.0
"""A consumer that leaves a message unacknowledged for too long loses its channel."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.topology_policies import policy_sets, topology_policy
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import call


class ConsumerTimeoutTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.house.shared.consumer_seconds = 80.0
        self.client = Client09(self.house).channel(1, 2)

    def declare(self, name: str = "w", **arguments: int) -> None:
        """Declare a queue, and publish a message to it."""
        table = [(f"x-{key.replace('_', '-')}", "I", value) for key, value in arguments.items()]
        self.client.ask("queue.declare", queue=name, durable=1, arguments=table)
        self.client.publish(b"m", key=name)

    def closed_after(self, *seconds: float) -> list[list[tuple[str, int]]]:
        """Return what is closed after each of these spans of time."""
        found = []
        for each in seconds:
            self.client.methods.clear()
            self.client.run(each)
            found.append(self.client.closes())
        return found

    def test_consumer(self) -> None:
        """The channel is closed with 406, and the message is delivered to another."""
        self.declare()
        self.client.ask("basic.consume", queue="w", consumer_tag="c")
        self.assertEqual(self.closed_after(79, 12), [[], [("channel", 406)]])
        (text,) = [each["reply-text"] for _, _, each in self.client.methods]
        self.assertEqual(
            text,
            "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value "
            "used: 80000 ms",
        )
        self.client.ask("basic.get", channel=2, queue="w")
        self.assertEqual(self.client.contents[0][2]["redelivered"], 1)

    def test_acknowledged_in_time(self) -> None:
        """Each delivery has its own time, and what is acknowledged none."""
        self.declare()
        self.client.ask("basic.consume", queue="w", consumer_tag="c")
        for tag in range(1, 5):
            self.client.publish(b"m", key="w", channel=2)
            self.assertEqual(self.closed_after(60), [[]])
            self.client.write(call(1, "basic.ack", delivery_tag=tag))
        self.client.write(call(1, "basic.ack", delivery_tag=5))
        self.assertEqual(self.closed_after(1000), [[]])
        self.assertEqual((self.client.depth("w"), self.world.clock.getDelayedCalls()), (0, []))

    def test_got(self) -> None:
        """Messages from basic.get have to be acknowledged as well; those without acks never."""
        self.declare()
        self.client.publish(b"m", key="w")
        self.client.ask("basic.get", queue="w", no_ack=1)
        self.assertEqual(self.closed_after(200), [[]])
        self.client.ask("basic.get", queue="w")
        self.assertEqual(self.closed_after(92), [[("channel", 406)]])

    def test_argument(self) -> None:
        """The queue's argument goes before the setting; 0 is no bound."""
        self.declare("short", consumer_timeout=8000)
        self.declare("never", consumer_timeout=0)
        self.client.ask("basic.consume", channel=2, queue="never")
        self.assertEqual(self.closed_after(3600), [[]])
        self.client.ask("basic.consume", queue="short")
        self.assertEqual(self.closed_after(7.5, 2), [[], [("channel", 406)]])

    def test_policy(self) -> None:
        """A policy that comes later is in force within a minute; the lower number counts."""
        self.declare("w", consumer_timeout=3_600_000)
        self.client.ask("basic.consume", queue="w")
        self.assertEqual(self.closed_after(100), [[]])
        policy = topology_policy("p", "^w", {"consumer-timeout": 30_000})
        self.house.broker.adopt_policies(policy_sets([policy]))
        self.assertEqual(self.closed_after(61), [[("channel", 406)]])
