# SPDX-License-Identifier: Apache-2.0
"""The class stream, over frames whose encoder is made from the facts of the document.

Rules: 09-STRM-01 to -25, 09-X-87 to -95, I-04, I-28.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.frontends.amqp09.access_realms import AccessRealms
from amqproute.frontends.amqp09.stream_window import StreamWindow
from tests.conformance.frame_broker import Network
from tests.frontends.amqp09.test_large_bodies import PART_FROM, large_house
from tests.support.client09 import Client09, context09
from tests.support.wire09 import V09

CLOCK = {"content-type": "text/plain", "priority": 3, "timestamp": 77, "headers": [("k", "I", 1)]}


class StreamCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(nodes=("q", "r"))
        self.client = self.connected()

    def connected(self, **changes: Any) -> Client09:
        return Client09(self.house, **{"version": V09, **changes}).channel(1, 2)

    def fill(self, *bodies: bytes, key: str = "q", **more: Any) -> None:
        self.connected().put("stream.publish", *bodies, routing_key=key, **more)

    def sent(self, seconds: float = 0.0) -> list[bytes]:
        """Let time pass; return the bodies that have come."""
        return self.client.run(seconds).bodies()


class DeliveryTests(StreamCase):
    def test_delivered(self) -> None:
        """A delivery is the publish with its properties, names its queue, and is gone at once."""
        self.fill(b"tick", properties=CLOCK, exchange="")
        names = self.client.ask("stream.consume", queue="q", consumer_tag="c")
        self.assertEqual(names, ["stream.consume-ok", "stream.deliver"])
        ((channel, _, arguments, properties, body),) = self.client.contents
        self.assertEqual((channel, properties, body), (1, CLOCK, b"tick"))
        self.assertEqual(
            arguments, {"consumer-tag": "c", "delivery-tag": 1, "exchange": "", "queue": "q"}
        )
        self.assertEqual(self.client.depth(), 0)
        self.assertEqual(self.client.refused("basic.ack", delivery_tag=1), ("channel", 406))

    def test_through_an_exchange(self) -> None:
        """A publish is routed by its exchange, and given to the consumers that are there."""
        self.client.ask("queue.bind", queue="q", exchange="amq.topic", routing_key="a.#")
        self.client.ask("stream.consume", queue="q")
        self.fill(b"1", key="a.b", exchange="amq.topic")
        self.client.run()
        ((_, _, arguments, _, body),) = self.client.contents
        self.assertEqual(
            (arguments["exchange"], arguments["queue"], body), ("amq.topic", "q", b"1")
        )
        self.fill(b"2", key="b", exchange="amq.topic")
        self.assertEqual(self.sent()[1:], [])

    def test_unknown_exchange(self) -> None:
        """A named exchange that is not there closes the channel with 404, by its own method."""
        self.client.put("stream.publish", b"1", exchange="none")
        self.assertEqual(self.client.closes(), [("channel", 404)])
        closed = self.client.methods[-1][2]
        self.assertEqual((closed["class-id"], closed["method-id"]), (80, 40))

    def test_internal_exchange(self) -> None:
        """An internal one refuses: 403."""
        self.client.ask("exchange.declare", exchange="i", type="fanout", internal=1)
        self.client.put("stream.publish", b"1", exchange="i")
        self.assertEqual(self.client.closes(), [("channel", 403)])

    def test_returned(self) -> None:
        """mandatory without a queue and immediate without a consumer come back whole."""
        for flag, key, code in (("mandatory", "none", 312), ("immediate", "q", 313)):
            self.client.methods.clear()
            self.client.contents.clear()
            self.client.put(
                "stream.publish", b"tock", properties=CLOCK, routing_key=key, **{flag: 1}
            )
            ((_, name, found, properties, body),) = self.client.contents
            self.assertEqual((name, found["reply-code"]), ("stream.return", code))
            self.assertEqual((found["exchange"], found["routing-key"]), ("", key))
            self.assertEqual((properties, body), (CLOCK, b"tock"))
        self.client.put("stream.publish", b"tock", routing_key="none")
        self.assertEqual(self.client.closes(), [])

    def test_immediate(self) -> None:
        """immediate is taken where a consumer can have it at once."""
        self.client.ask("stream.consume", queue="q")
        self.fill(b"now", immediate=1)
        self.assertEqual(self.sent(), [b"now"])

    def test_confirm_mode(self) -> None:
        """Confirms number the publishes of basic alone: those of streams have no answer."""
        self.client.ask("confirm.select")
        self.client.put("stream.publish", b"1", routing_key="q")
        self.client.publish(b"2")
        self.assertEqual(
            [name for name in self.client.names() if name == "basic.ack"], ["basic.ack"]
        )

    def test_in_a_transaction(self) -> None:
        """A publish on a transacted channel is there with the commit."""
        self.client.ask("tx.select")
        self.client.put("stream.publish", b"1", routing_key="q")
        self.assertEqual(self.client.depth(), 0)
        self.client.ask("tx.rollback")
        self.client.put("stream.publish", b"2", routing_key="q")
        self.client.ask("tx.commit")
        self.assertEqual(self.client.depth(), 1)

    def test_priorities(self) -> None:
        """Two levels of priority at least are told apart: the higher one is served first."""
        self.client.ask("queue.declare", queue="p", arguments=[("x-max-priority", "I", 10)])
        for priority in (0, 9, 4):
            self.fill(b"%d" % priority, key="p", properties={"priority": priority})
        self.client.ask("stream.consume", queue="p")
        self.assertEqual(self.client.bodies(), [b"9", b"4", b"0"])

    def test_large(self) -> None:
        """A body that is never in memory as a whole comes and goes, and comes back."""
        house = large_house(self.world, "l.test")
        client = Client09(house, version=V09, part_from=PART_FROM).channel()
        body = bytes(range(256)) * 100
        client.put("stream.publish", body, routing_key="q", properties=CLOCK, pieces=9000)
        for _ in range(20):
            client.run(0.1)
        client.ask("stream.consume", queue="q")
        for _ in range(20):
            client.run(0.1)
        self.assertEqual([(p, b) for *_, p, b in client.contents], [(CLOCK, body)])
        client.contents.clear()
        client.put("stream.publish", body, routing_key="x", mandatory=1, pieces=9000)
        for _ in range(20):
            client.run(0.1)
        self.assertEqual([(n, b) for _, n, _, _, b in client.contents], [("stream.return", body)])


class ConsumerTests(StreamCase):
    def test_tags(self) -> None:
        """An empty tag is replaced; one that is in use anywhere on the connection is 530."""
        found = self.client.answer("stream.consume", queue="q")
        self.assertTrue(found["consumer-tag"])
        self.assertEqual(
            self.client.refused("stream.consume", 2, queue="r", consumer_tag=found["consumer-tag"]),
            ("connection", 530),
        )

    def test_current_queue(self) -> None:
        """An empty queue name is the one last declared; without one it is 530."""
        self.client.ask("queue.declare", queue="q", passive=1)
        self.client.ask("stream.consume")
        self.fill(b"1")
        self.assertEqual(self.sent(), [b"1"])
        self.assertEqual(self.client.refused("stream.consume", 2), ("connection", 530))

    def test_exclusive(self) -> None:
        """An exclusive consumer keeps others out, of every class, and is kept out by them: 405."""
        self.client.ask("stream.consume", queue="q", exclusive=1)
        other = self.connected()
        self.assertEqual(other.refused("stream.consume", queue="q"), ("channel", 405))
        self.assertEqual(other.refused("basic.consume", queue="q"), ("channel", 403))
        other.ask("stream.consume", queue="r")
        self.assertEqual(
            self.client.refused("stream.consume", queue="r", exclusive=1), ("channel", 405)
        )

    def test_cancel(self) -> None:
        """cancel-ok names the consumer; nothing is sent after it, and the tag is free."""
        self.client.ask("stream.consume", queue="q", consumer_tag="c")
        found = self.client.answer("stream.cancel", consumer_tag="c")
        self.assertEqual(found, {"consumer-tag": "c"})
        self.fill(b"1")
        self.assertEqual(self.sent(), [])
        self.assertEqual(self.client.ask("stream.cancel", consumer_tag="x"), ["stream.cancel-ok"])
        names = self.client.ask("stream.consume", queue="q", consumer_tag="c")
        self.assertEqual(names, ["stream.consume-ok", "stream.deliver"])

    def test_nowait(self) -> None:
        """With nowait there is no answer; a failure closes the channel all the same."""
        self.fill(b"1")
        names = self.client.ask("stream.consume", queue="q", nowait=1, consumer_tag="c")
        self.assertEqual(names, ["stream.deliver"])
        self.assertEqual(self.client.ask("stream.cancel", consumer_tag="c", nowait=1), [])
        self.assertEqual(
            self.client.refused("stream.consume", queue="none", nowait=1), ("channel", 404)
        )

    def test_ends_with_its_channel(self) -> None:
        """A consumer is gone with its channel."""
        self.client.ask("stream.consume", queue="q")
        self.client.ask("channel.close")
        self.assertEqual(self.house.broker.nodes["q"].consumers, 0)

    def test_many(self) -> None:
        """Sixteen consumers of one queue share what comes; each has its own on one channel."""
        for number in range(16):
            self.client.ask("stream.consume", queue="q", consumer_tag=f"c{number}")
        self.client.ask("stream.consume", queue="r", consumer_tag="r")
        self.client.contents.clear()
        self.fill(*[b"m"] * 32)
        self.fill(b"r", key="r")
        self.client.run()
        found = [arguments["consumer-tag"] for _, _, arguments, _, _ in self.client.contents]
        self.assertEqual(
            {tag: found.count(tag) for tag in found},
            {**{f"c{number}": 2 for number in range(16)}, "r": 1},
        )

    def test_no_local(self) -> None:
        """With no-local what the connection itself publishes stays on the queue."""
        self.client.ask("stream.consume", queue="q", no_local=1)
        self.client.put("stream.publish", b"own", routing_key="q")
        self.fill(b"other")
        self.assertEqual(self.sent(), [b"other"])
        self.assertEqual(self.client.depth(), 1)

    def test_filter(self) -> None:
        """The filter table has the broker's own arguments: a priority among consumers."""
        self.client.ask("stream.consume", queue="q", consumer_tag="low")
        high = self.connected()
        high.ask("stream.consume", queue="q", filter=[("x-priority", "I", 5)])
        high.contents.clear()
        self.fill(b"1", b"2")
        self.assertEqual(high.run().bodies(), [b"1", b"2"])

    def test_flow(self) -> None:
        """With channel.flow off nothing is sent; then all that waited is."""
        self.client.ask("stream.consume", queue="q")
        self.client.ask("channel.flow", active=0)
        self.fill(b"1", b"2")
        self.assertEqual(self.sent(), [])
        self.client.ask("channel.flow", active=1)
        self.assertEqual(self.client.bodies(), [b"1", b"2"])

    def test_tickets(self) -> None:
        """A ticket has to be good for reading the queue, and for writing to the exchange."""
        context09(self.house).realms = AccessRealms({"/data": ["q"]})
        ticket = self.client.answer("access.request", realm="/data", read=1)["ticket"]
        names = self.client.ask("stream.consume", queue="q", ticket=ticket)
        self.assertEqual(names, ["stream.consume-ok"])
        self.client.put("stream.publish", b"1", routing_key="q", ticket=ticket)
        self.assertEqual(self.client.closes(), [("channel", 403)])

    def test_rights(self) -> None:
        """Without the right to consume or to publish: 403."""
        for allow, name in ((["publish"], "stream.consume"), (["consume"], "stream.publish")):
            rules = [Rule.of(who="*", node="*", allow=allow)]
            house = self.world.house(f"{allow[0]}.test", access=rules, nodes=("q",))
            client = Client09(house, version=V09).channel()
            if name == "stream.consume":
                client.ask(name, queue="q")
            else:
                client.put(name, b"1", routing_key="q")
            self.assertEqual(client.closes(), [("channel", 403)])


class QosTests(StreamCase):
    def qos(self, channel: int = 1, **arguments: int) -> None:
        self.assertEqual(self.client.ask("stream.qos", channel, **arguments), ["stream.qos-ok"])

    def test_rate(self) -> None:
        """With a rate one message at a time is ahead of what the client can have consumed."""
        self.qos(consume_rate=100)
        self.fill(*[bytes([number]) * 50 for number in range(5)])
        self.client.ask("stream.consume", queue="q")
        self.assertEqual(len(self.client.bodies()), 1)
        for _ in range(4):
            self.assertEqual(self.sent(0.49), [])
            self.assertEqual(len(self.sent(0.02)), 1)
        self.assertEqual(self.sent(10), [])

    def test_rate_and_count(self) -> None:
        """A window in messages is sent ahead at once, the others at the rate."""
        self.qos(consume_rate=100, prefetch_count=3)
        self.fill(*[b"x" * 50] * 6)
        self.client.ask("stream.consume", queue="q")
        self.assertEqual(len(self.client.bodies()), 3)
        self.assertEqual(len(self.sent(0.51)), 1)
        self.assertEqual(len(self.sent(1.01)), 2)

    def test_rate_and_size(self) -> None:
        """So is one in octets; a message larger than it goes when nothing is ahead."""
        self.qos(consume_rate=100, prefetch_size=120)
        self.fill(b"x" * 50, b"x" * 50, b"x" * 50, b"x" * 500, b"y")
        self.client.ask("stream.consume", queue="q")
        self.assertEqual(len(self.client.bodies()), 2)
        self.assertEqual([len(body) for body in self.sent(0.51)], [50])
        self.assertEqual(self.sent(0.9), [])
        self.assertEqual([len(body) for body in self.sent(0.2)], [500])
        self.assertEqual(self.sent(4.9), [])
        self.assertEqual(self.sent(0.2), [b"y"])

    def test_windows_without_rate(self) -> None:
        """Without a rate what the transport takes is consumed: all of it comes, in bursts."""
        self.qos(prefetch_count=2)
        self.fill(*[b"x"] * 7)
        self.client.ask("stream.consume", queue="q")
        found = len(self.client.bodies())
        while more := len(self.sent()):
            found += more
        self.assertEqual(found, 7)

    def test_full_transport(self) -> None:
        """While the transport takes nothing, nothing is sent, and no timer runs."""
        self.qos(prefetch_count=1)
        self.fill(*[b"x"] * 3)
        self.client.end.protocol.pauseProducing()
        self.client.ask("stream.consume", queue="q")
        before = len(self.client.bodies())
        self.assertEqual(self.sent(5), [])
        self.client.end.protocol.resumeProducing()
        found = before
        for _ in range(5):
            found += len(self.sent(0.1))
        self.assertEqual(found, 3)

    def test_global(self) -> None:
        """With global the window is that of the connection: its channels share it."""
        self.qos(consume_rate=10, **{"global": 1})
        self.fill(b"x" * 10, b"x" * 10)
        self.fill(b"y" * 10, key="r")
        self.client.ask("stream.consume", 1, queue="q")
        self.assertEqual(len(self.client.bodies()), 1)
        self.client.ask("stream.consume", 2, queue="r")
        self.assertEqual(self.client.bodies(), [])
        self.assertEqual(len(self.sent(1.01)), 1)
        self.assertEqual(len(self.sent(1.01)), 1)

    def test_changed(self) -> None:
        """A new window holds for what is sent from then on, and what waited goes."""
        self.qos(consume_rate=1)
        self.fill(*[b"x" * 100] * 3)
        self.client.ask("stream.consume", queue="q")
        self.assertEqual(len(self.client.bodies()), 1)
        names = self.client.ask("stream.qos")
        self.assertEqual(names, ["stream.qos-ok", "stream.deliver", "stream.deliver"])

    def test_ends_with_its_consumer(self) -> None:
        """Messages that wait for their time are on the queue again after a cancel."""
        self.qos(consume_rate=1)
        self.fill(*[b"x" * 100] * 3)
        self.client.ask("stream.consume", queue="q", consumer_tag="c")
        self.client.ask("stream.cancel", consumer_tag="c")
        self.assertEqual(self.client.depth(), 2)
        self.assertEqual(self.house.broker.nodes["q"].available, 2)

    def test_operators_see_it(self) -> None:
        """The row of a consumer has its class and its window."""
        self.qos(consume_rate=7, prefetch_size=9, prefetch_count=2)
        self.client.ask("stream.consume", queue="q", consumer_tag="c")
        (connection,) = [each for each in self.house.shared.connections if each.link_count]
        (row,) = [each for each in connection.link_rows() if each.get("consumer-tag") == "c"]
        self.assertEqual(
            [row[key] for key in ("content-class", "prefetch-size", "prefetch", "consume-rate")],
            ["stream", 9, 2, 7],
        )


class OverrunTests(StreamCase):
    def test_dropped_by_priority(self) -> None:
        """Over its limit a queue drops the lowest priority first, counts it, and says so."""
        self.client.ask(
            "queue.declare",
            queue="p",
            arguments=[("x-max-length", "I", 3), ("x-max-priority", "I", 10)],
        )
        for number, priority in enumerate((9, 0, 5, 0, 9)):
            self.fill(b"%d" % number, key="p", properties={"priority": priority})
        self.client.run(1)
        queue = self.house.broker.nodes["p"]
        self.assertEqual(queue.tally.stream_lost, 2)
        self.client.ask("stream.consume", queue="p")
        self.assertEqual(self.client.bodies(), [b"0", b"4", b"2"])

    def test_basic_is_not_counted(self) -> None:
        """Messages of another class are dropped as ever, and counted as such."""
        self.client.ask("queue.declare", queue="p", arguments=[("x-max-length", "I", 1)])
        self.client.publish(b"1", b"2", key="p")
        self.client.run(1)
        self.assertEqual(self.house.broker.nodes["p"].tally.stream_lost, 0)
        self.assertEqual(self.house.broker.nodes["p"].tally.dead_lettered, 1)

    def test_refused(self) -> None:
        """A queue that refuses when it is full: the channel counts what its client has lost."""
        arguments = [("x-max-length", "I", 1), ("x-overflow", "S", b"reject-publish")]
        self.client.ask("queue.declare", queue="p", arguments=arguments)
        self.client.put("stream.publish", b"1", b"2", b"3", routing_key="p")
        self.assertEqual(self.client.closes(), [])
        rows = [row for each in self.house.shared.connections for row in each.link_rows()]
        self.assertEqual([row["stream-lost"] for row in rows if "stream-lost" in row], [2])


class StreamWindowTests(SynchronousTestCase):
    def test_bounds(self) -> None:
        """Room and time, by the rules of the module."""
        window = StreamWindow()
        self.assertTrue(window.is_open)
        window.set(100, 0, 50)
        self.assertTrue(window.fits(1000, 0.0))
        window.take(60, 0.0)
        self.assertFalse(window.fits(60, 0.0))
        self.assertTrue(window.fits(40, 0.0))
        self.assertEqual(window.next_at(60, 0.0), 1.2)
        window.take(40, 0.0)
        self.assertEqual((window.room(0.0), window.room(1.2), window.room(2.0)), (0, 1, 1000))

    def test_bounded_memory(self) -> None:
        """However large the window is, what is reckoned with is bounded."""
        window = StreamWindow()
        window.set(0, 65535, 1)
        sent = 0
        while window.fits(1, 0.0):
            window.take(1, 0.0)
            sent += 1
        self.assertEqual(sent, 1000)
