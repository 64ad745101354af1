# SPDX-License-Identifier: Apache-2.0
"""Deliveries to clients of 0-9 and 0-9-1, and their return.

Rules: 09-BASIC-10, -11, -14 to -20, -25, -28, -29, -33, -44, -45, -48, -50 to -52, -58 to -62,
09-X-01, -56, -57, -60, -62, -71, 09-DOM-10, 09-CHAN-12, I-27, 09-M-08, -09.
"""

from __future__ import annotations

from typing import Any

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from amqproute.frontends.amqp09.delivery_methods import BOUND_SECONDS
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call


class ConsumeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = Client09(self.house).channel()

    def fill(self, *bodies: bytes) -> None:
        Client09(self.house).channel().publish(*bodies)

    def test_consume_and_ack(self) -> None:
        """Messages come in order, and are gone when they are acknowledged."""
        self.fill(b"1", b"2", b"3")
        names = self.client.ask("basic.consume", queue="q", consumer_tag="c")
        self.assertEqual(names, ["basic.consume-ok", *["basic.deliver"] * 3])
        self.assertEqual(self.client.tags(), [1, 2, 3])
        self.assertEqual([content[2]["redelivered"] for content in self.client.contents], [0] * 3)
        self.client.ask("basic.ack", delivery_tag=2, multiple=1)
        self.assertEqual(self.client.depth(), 1)
        self.client.ask("basic.ack", delivery_tag=0, multiple=1)
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.client.refused("basic.ack", delivery_tag=9), ("channel", 406))

    def test_without_acks(self) -> None:
        """With no-ack a message is gone when it is sent."""
        self.fill(b"1", b"2")
        self.client.ask("basic.consume", queue="q", no_ack=1)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])
        self.assertEqual(self.client.depth(), 0)

    def test_reject(self) -> None:
        """With requeue a message comes back redelivered; without it is gone."""
        self.fill(b"1")
        self.client.ask("basic.get", queue="q")
        self.client.ask("basic.reject", delivery_tag=1, requeue=1)
        self.client.ask("basic.get", queue="q")
        self.assertEqual(self.client.contents[0][2]["redelivered"], 1)
        self.client.ask("basic.nack", delivery_tag=2, multiple=0, requeue=1)
        self.client.ask("basic.get", queue="q")
        self.client.ask("basic.reject", delivery_tag=3, requeue=0)
        self.assertEqual(self.client.depth(), 0)

    def test_get(self) -> None:
        """get gives one message with the count of those left, or says that there is none."""
        self.fill(b"1", b"2")
        self.assertEqual(self.client.ask("basic.get", queue="q"), ["basic.get-ok"])
        self.assertEqual(self.client.contents[0][2]["message-count"], 1)
        self.client.ask("basic.get", queue="q", no_ack=1)
        self.assertEqual(self.client.ask("basic.get", queue="q"), ["basic.get-empty"])
        self.assertEqual(self.house.broker.nodes["q"].consumers, 0)

    def test_prefetch(self) -> None:
        """No more than the window is sent ahead; each consumer has one of its own in 0-9-1."""
        self.fill(*[b"m"] * 6)
        self.client.ask("basic.qos", prefetch_count=2)
        self.client.ask("basic.consume", queue="q", consumer_tag="a")
        self.assertEqual(len(self.client.contents), 2)
        self.client.ask("basic.consume", queue="q", consumer_tag="b")
        self.assertEqual(len(self.client.contents), 2)
        self.client.ask("basic.ack", delivery_tag=1)
        self.assertEqual(len(self.client.contents), 1)

    def test_prefetch_of_a_channel(self) -> None:
        """With global in 0-9-1, and without it in 0-9, the window is that of the channel."""
        self.fill(*[b"m"] * 9)
        old = Client09(self.house, version=V09).channel()
        for client, is_global in ((self.client, 1), (old, 0)):
            client.ask("basic.qos", prefetch_count=2, **{"global": is_global})
            client.ask("basic.consume", queue="q", consumer_tag="a")
            self.assertEqual(len(client.contents), 2)
            client.ask("basic.consume", queue="q", consumer_tag="b")
            self.assertEqual(len(client.contents), 0)
            client.ask("basic.qos", prefetch_count=3, **{"global": is_global})
            self.assertEqual(len(client.contents), 1)

    def test_prefetch_of_a_connection(self) -> None:
        """With global in 0-9 the window is that of the connection."""
        self.fill(*[b"m"] * 9)
        client = Client09(self.house, version=V09).channel(1, 2)
        client.ask("basic.qos", prefetch_count=3, **{"global": 1})
        client.ask("basic.consume", queue="q", consumer_tag="a")
        self.assertEqual(len(client.contents), 3)
        client.ask("basic.consume", 2, queue="q", consumer_tag="b")
        self.assertEqual(len(client.contents), 0)

    def test_prefetch_in_octets(self) -> None:
        """A window in octets is never exceeded, but by a message that is alone."""
        self.fill(b"x" * 600, b"x" * 300, b"x" * 300)
        self.client.ask("basic.qos", prefetch_size=500)
        self.client.ask("basic.consume", queue="q", consumer_tag="a")
        self.assertEqual(len(self.client.contents), 1)
        self.client.ask("basic.ack", delivery_tag=1)
        self.assertEqual(len(self.client.contents), 1)
        self.client.ask("basic.ack", delivery_tag=2)
        self.assertEqual(len(self.client.contents), 1)

    def test_flow(self) -> None:
        """A client that stops contents gets none until it starts them again."""
        self.client.ask("basic.consume", queue="q")
        self.assertEqual(self.client.ask("channel.flow", active=0), ["channel.flow-ok"])
        self.fill(b"1")
        self.assertEqual(self.client.run().bodies(), [])
        self.client.ask("channel.flow", active=1)
        self.assertEqual(self.client.bodies(), [b"1"])

    def test_no_local(self) -> None:
        """With no-local a consumer does not get what its own connection publishes."""
        self.client.ask("basic.consume", queue="q", no_local=1)
        self.client.publish(b"mine")
        self.fill(b"theirs")
        self.assertEqual(self.client.run().bodies(), [b"theirs"])

    def test_cancel(self) -> None:
        """After cancel-ok nothing comes, and what has come can be acknowledged."""
        self.fill(b"1")
        self.client.ask("basic.consume", queue="q", consumer_tag="c")
        self.assertEqual(self.client.ask("basic.cancel", consumer_tag="c"), ["basic.cancel-ok"])
        self.fill(b"2")
        self.assertEqual(self.client.run().bodies(), [])
        self.client.ask("basic.ack", delivery_tag=1)
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(self.client.ask("basic.cancel", consumer_tag="none"), ["basic.cancel-ok"])

    def test_exclusive(self) -> None:
        """An exclusive consumer is alone, or is refused."""
        other = Client09(self.house).channel()
        self.client.ask("basic.consume", queue="q", consumer_tag="c", exclusive=1)
        self.assertEqual(other.refused("basic.consume", queue="q"), ("channel", 403))
        self.client.ask("basic.cancel", consumer_tag="c")
        other.ask("basic.consume", queue="q")
        found = self.client.refused("basic.consume", queue="q", exclusive=1)
        self.assertEqual(found, ("channel", 403))

    def test_same_tag(self) -> None:
        """A consumer tag that is in use is refused on the connection."""
        self.client.ask("basic.consume", queue="q", consumer_tag="c")
        found = self.client.refused("basic.consume", queue="q", consumer_tag="c")
        self.assertEqual(found, ("connection", 530))

    def test_end_of_a_channel(self) -> None:
        """Unacknowledged deliveries are redelivered after the end of the channel or connection."""
        self.fill(b"1", b"2")
        self.client.channel(2)
        self.client.ask("basic.consume", queue="q", consumer_tag="a")
        self.client.ask("channel.close")
        other = Client09(self.house).channel()
        other.ask("basic.consume", queue="q", consumer_tag="b")
        self.assertEqual([content[2]["redelivered"] for content in other.contents], [1, 1])
        other.hang_up()
        self.client.ask("basic.get", 2, queue="q", no_ack=1)
        self.assertEqual(self.client.bodies(), [b"1"])

    def test_settled_behind_an_error(self) -> None:
        """An answer in one segment behind what closes its channel: the message comes again."""
        for name, more in (("basic.ack", {}), ("basic.nack", {"requeue": 1})):
            self.fill(b"1")
            self.client.ask("basic.get", queue="q")
            (tag,) = self.client.tags()
            self.client.write(
                call(1, "queue.bind", queue="q", exchange="none"),
                call(1, name, delivery_tag=tag, **more),
            )
            self.assertEqual(self.client.closes(), [("channel", 404)])
            self.client.write(call(1, "channel.close-ok"), call(1, "channel.open"))
            self.assertEqual(self.house.broker.nodes["q"].acquired, 0)
            self.client.ask("basic.get", queue="q", no_ack=1)
            self.assertEqual(self.client.bodies(), [b"1"])

    def test_recover(self) -> None:
        """recover without requeue sends again to the same consumer; with it to anybody."""
        self.fill(b"1", b"2")
        self.client.ask("basic.consume", queue="q", consumer_tag="c")
        names = self.client.ask("basic.recover-sync", requeue=0)
        self.assertEqual(names, ["basic.recover-ok", "basic.deliver", "basic.deliver"])
        found: list[Any] = [each[2]["redelivered"] for each in self.client.contents]
        self.assertEqual((found, self.client.tags()), ([1, 1], [3, 4]))
        self.client.ask("basic.cancel", consumer_tag="c")
        self.client.ask("basic.recover", requeue=1)
        other = Client09(self.house).channel()
        other.ask("basic.consume", queue="q", no_ack=1)
        self.assertEqual(other.bodies(), [b"1", b"2"])

    def test_recover_in_a_transaction(self) -> None:
        """0-9 forbids recover on a transacted channel."""
        client = Client09(self.house, version=V09).channel()
        client.ask("tx.select")
        self.assertEqual(client.refused("basic.recover", requeue=1), ("channel", 406))

    def test_node_gone(self) -> None:
        """A consumer whose queue is deleted is cancelled; who does not know that is left alone."""
        self.client.ask("queue.declare", queue="new", durable=1)
        self.client.ask("basic.consume", queue="new", consumer_tag="c")
        plain = Client09(self.house, capabilities=()).channel()
        plain.ask("basic.consume", queue="new", consumer_tag="c")
        plain.methods.clear()
        self.assertEqual(
            self.client.ask("queue.delete", queue="new"), ["queue.delete-ok", "basic.cancel"]
        )
        self.client.ask("queue.declare", queue="brief")
        self.client.ask("basic.consume", queue="brief", consumer_tag="c")
        self.assertEqual(
            self.client.ask("queue.delete", queue="brief"), ["queue.delete-ok", "basic.cancel"]
        )
        self.assertEqual(plain.run().names(), [])

    def test_bound_of_consumers(self) -> None:
        """A connection has so many consumers and no more."""
        house = self.world.house("b.test", limits={"links": 3})
        client = Client09(house).channel()
        for tag in "abc":
            client.ask("basic.consume", queue="q", consumer_tag=tag)
        found = client.refused("basic.consume", queue="q", consumer_tag="d")
        self.assertEqual(found, ("channel", 406))

    def test_bound_of_unacknowledged(self) -> None:
        """However large the window, so many deliveries are unacknowledged and no more."""
        house = self.world.house("u.test", limits={"unsettled": 5})
        Client09(house).channel().publish(*[b"m"] * 9)
        client = Client09(house).channel()
        client.ask("basic.consume", queue="q")
        self.assertEqual(len(client.contents), 5)
        with capturedLogs() as events:
            client.run(BOUND_SECONDS - 1)
            self.assertEqual([each for each in events if "acknowledges" in formatEvent(each)], [])
            client.run(1)
            Client09(house).channel().publish(b"m")
            client.run(2 * BOUND_SECONDS)
        (line,) = [text for text in map(formatEvent, events) if "acknowledges" in text]
        self.assertIn("channel 1 has 5 deliveries and acknowledges none of them", line)
        client.ask("basic.ack", delivery_tag=0, multiple=1)
        self.assertEqual(len(client.contents), 5)

    def test_bound_and_acknowledgements(self) -> None:
        """The log says nothing of a client that is at the bound and acknowledges."""
        house = self.world.house("v.test", limits={"unsettled": 5})
        Client09(house).channel().publish(*[b"m"] * 50)
        client = Client09(house).channel()
        with capturedLogs() as events:
            client.ask("basic.consume", queue="q")
            for tag in range(1, 20):
                client.run(BOUND_SECONDS / 2)
                client.ask("basic.ack", delivery_tag=tag)
            client.ask("channel.close", reply_code=200)
            client.run(2 * BOUND_SECONDS)
        self.assertEqual([each for each in events if "acknowledges" in formatEvent(each)], [])

    def test_order_of_answers(self) -> None:
        """Methods behind one that waits for the disk wait for its answer."""
        self.house.store.is_held = True
        self.client.write(call(1, "queue.declare", queue="new", durable=1), call(1, "basic.qos"))
        self.assertEqual(self.client.names(), [])
        self.house.store.let_go()
        self.assertEqual(self.client.run().names(), ["queue.declare-ok", "basic.qos-ok"])

    def test_get_behind_publish(self) -> None:
        """A get on the publishing channel finds the published message."""
        self.house.store.is_held = True
        self.client.publish(b"1", properties={"delivery-mode": 2})
        self.client.write(call(1, "basic.get", queue="q"), call(1, "basic.qos"))
        self.assertEqual(self.client.names(), [])
        self.house.store.let_go()
        self.assertEqual(self.client.run().names(), ["basic.get-ok", "basic.qos-ok"])
