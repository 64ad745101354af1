# SPDX-License-Identifier: Apache-2.0
"""Single rules of the classes exchange, queue, basic and tx that no other test shows.

`tests.requirements_amqp09` says which. Where nothing is said of the version both are tried.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from tests.conformance.frame_broker import Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, V091, content


class RuleCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = self.of(V091)
        self.old = self.of(V09)

    def of(self, version: bytes, **changes: Any) -> Client09:
        return Client09(self.house, version=version, **changes).channel()

    @property
    def both(self) -> tuple[Client09, Client09]:
        """A client of 0-9-1 and one of 0-9."""
        return self.client, self.old


class QueueRuleTests(RuleCase):
    def test_nothing_before_a_binding(self) -> None:
        """A queue gets from an exchange what comes behind its binding (09-QUEUE-03)."""
        for client in self.both:
            client.ask("queue.declare", queue="new", exclusive=1)
            client.publish(b"lost", exchange="amq.fanout")
            client.ask("queue.bind", queue="new", exchange="amq.fanout")
            client.publish(b"kept", exchange="amq.fanout")
            self.assertEqual(client.ask("basic.get", queue="new", no_ack=1), ["basic.get-ok"])
            self.assertEqual((client.contents[0][4], client.depth("new")), (b"kept", 0))
            client.ask("queue.delete", queue="new")

    def test_many(self) -> None:
        """Hundreds of queues and bindings, and tens of exchanges and consumers."""
        client = self.client
        for number in range(300):
            client.ask("queue.declare", queue=f"q{number}", exclusive=1)
        for number in range(20):
            client.ask("exchange.declare", exchange=f"e{number}", type="fanout")
            found = client.ask("queue.bind", queue="q7", exchange=f"e{number}")
            self.assertEqual(found, ["queue.bind-ok"])
            found = client.ask("basic.consume", queue="q7", consumer_tag=f"c{number}")
            self.assertEqual(found, ["basic.consume-ok"])
        client.publish(b"1", exchange="e19")
        self.assertEqual(client.depth("q7"), 1)

    def test_transient_messages(self) -> None:
        """A durable queue makes no message persistent (09-QUEUE-10)."""
        self.client.ask("queue.declare", queue="new", durable=1)
        for mode, stored in ((1, 0), (2, 1)):
            self.client.publish(b"m", key="new", properties={"delivery-mode": mode})
            self.assertEqual(
                len(self.house.store.rows(self.house.broker.nodes["new"].rows)), stored, mode
            )

    def test_exclusive_ends_with_its_connection(self) -> None:
        """An exclusive queue goes with its connection, used or not (09-QUEUE-12, I-12)."""
        for version in (V091, V09):
            client = self.of(version)
            client.ask("queue.declare", queue="mine", exclusive=1)
            client.ask("channel.close", reply_code=200)
            self.assertIn("mine", self.house.broker.nodes)
            client.hang_up()
            self.assertNotIn("mine", self.house.broker.nodes)

    def test_passive_ignores_arguments(self) -> None:
        """A passive declare looks at nothing but the name (09-QUEUE-15, 09-EXCH-18)."""
        odd = [("x-max-length", "S", b"much"), ("alternate-exchange", "I", 7)]
        for client in self.both:
            found = client.ask(
                "queue.declare", queue="q", passive=1, exclusive=1, auto_delete=1, arguments=odd
            )
            self.assertEqual(found, ["queue.declare-ok"])
            found = client.ask(
                "exchange.declare", exchange="amq.topic", type="direct", passive=1, arguments=odd
            )
            self.assertEqual(found, ["exchange.declare-ok"])

    def test_flags_of_what_is_there(self) -> None:
        """In 0-9 durable and auto-delete are ignored where a queue or exchange exists."""
        self.old.ask("queue.declare", queue="new", durable=1)
        self.old.ask("exchange.declare", exchange="e", type="fanout", durable=1)
        for fields in ({}, {"auto_delete": 1}, {"durable": 1, "auto_delete": 1}):
            found = self.old.ask("queue.declare", queue="new", **fields)
            self.assertEqual(found, ["queue.declare-ok"])
            found = self.old.ask("exchange.declare", exchange="e", type="fanout", **fields)
            self.assertEqual(found, ["exchange.declare-ok"])
            found = self.client.refused("exchange.declare", exchange="e", type="topic", **fields)
            self.assertEqual(found, ("channel", 406))

    def test_reserved_names(self) -> None:
        """Names that begin with amq.: 530 for queues in 0-9, else 403; passive is permitted."""
        self.assertEqual(self.client.refused("queue.declare", queue="amq.x"), ("channel", 403))
        self.assertEqual(self.old.refused("queue.declare", queue="amq.x"), ("connection", 530))
        self.old = self.of(V09)
        for client in self.both:
            found = client.refused("exchange.declare", exchange="amq.x", type="direct")
            self.assertEqual(found, ("channel", 403))
            found = client.refused("queue.declare", queue="amq.x", passive=1)
            self.assertEqual(found, ("channel", 404))

    def test_names(self) -> None:
        """The characters and lengths of names in 0-9 (09-X-114, 09-X-115, I-07)."""
        for name in ("a-b_c.d:e@f", "Q9", "x" * 127):
            found = self.old.ask("queue.declare", queue=name, exclusive=1)
            self.assertEqual(found, ["queue.declare-ok"])
        for name in ("a b", "a/b", "é", "x" * 128):
            self.assertEqual(self.old.refused("queue.declare", queue=name), ("channel", 406), name)
            found = self.old.refused("exchange.declare", exchange=name, type="fanout")
            self.assertEqual(found, ("channel", 406), name)

    def test_failed_bind(self) -> None:
        """A bind or unbind that fails: 404 of the channel, whatever is missing (I-06)."""
        for fields in ({"queue": "none", "exchange": "amq.direct"},
                       {"queue": "q", "exchange": "none"}):  # fmt: skip
            for client in self.both:
                self.assertEqual(client.refused("queue.bind", **fields), ("channel", 404))
            self.assertEqual(self.old.refused("queue.unbind", **fields), ("channel", 404))
            self.assertEqual(self.client.ask("queue.unbind", **fields), ["queue.unbind-ok"])
        fields = {"queue": "q", "exchange": "amq.direct", "routing_key": "never"}
        self.assertEqual(self.old.refused("queue.unbind", **fields), ("channel", 404))

    def test_what_0_9_does_not_bind(self) -> None:
        """A durable queue to a transient exchange, a queue to an internal one: 530 in 0-9."""
        self.client.ask("exchange.declare", exchange="brief", type="fanout")
        self.client.ask("exchange.declare", exchange="inner", type="fanout", internal=1, durable=1)
        self.client.ask("queue.declare", queue="firm", durable=1)
        for exchange in ("brief", "inner"):
            fields = {"queue": "firm", "exchange": exchange}
            found = self.of(V09).refused("queue.bind", **fields)
            self.assertEqual(found, ("connection", 530), exchange)
            self.assertEqual(self.client.ask("queue.bind", **fields), ["queue.bind-ok"])

    def test_last_declared(self) -> None:
        """An empty name is the queue declared last, in each method that names one."""
        for client in self.both:
            client.ask("queue.declare", queue="first", exclusive=1)
            client.ask("queue.declare", queue="last", exclusive=1)
            client.ask("queue.bind", exchange="amq.direct")
            client.publish(b"1", b"2", b"3", exchange="amq.direct", key="last")
            self.assertEqual(client.depth("last"), 3)
            self.assertEqual(client.ask("basic.get", no_ack=1), ["basic.get-ok"])
            names = client.ask("basic.consume", consumer_tag="c", no_ack=1)
            self.assertEqual(names, ["basic.consume-ok", "basic.deliver", "basic.deliver"])
            client.ask("basic.cancel", consumer_tag="c")
            self.assertEqual(client.ask("queue.unbind", exchange="amq.direct", routing_key="last"),
                             ["queue.unbind-ok"])  # fmt: skip
            self.assertEqual(client.answer("queue.purge"), {"message-count": 0})
            self.assertEqual(client.ask("queue.delete"), ["queue.delete-ok"])
            self.assertNotIn("last", self.house.broker.nodes)
            client.ask("queue.delete", queue="first")

    def test_purge(self) -> None:
        """A purge takes what waits, not what a client has, and cancels no consumer."""
        for client in self.both:
            client.ask("tx.select")
            client.publish(b"1", b"2", b"3", key="q")
            client.ask("tx.commit")
            client.ask("basic.qos", prefetch_count=1)
            names = client.ask("basic.consume", queue="q", consumer_tag="c")
            self.assertEqual(names, ["basic.consume-ok", "basic.deliver"])
            self.assertEqual(client.answer("queue.purge", queue="q"), {"message-count": 2})
            self.assertEqual(client.depth(), 1)
            client.ask("basic.ack", delivery_tag=1)
            client.ask("tx.commit")
            self.assertEqual((client.closes(), client.depth()), ([], 0))
            other = self.of(V091).publish(b"4")
            self.assertEqual(client.run().names()[-1], "basic.deliver")
            other.hang_up()
            client.ask("basic.cancel", consumer_tag="c")
            client.ask("tx.rollback")
            client.hang_up()
            self.of(V091).ask("queue.purge", queue="q")

    def test_without_answers(self) -> None:
        """A failure with nowait is an exception, in each method that has it."""
        for name, fields in (
            ("exchange.delete", {"exchange": "amq.direct"}),
            ("exchange.declare", {"exchange": "", "type": "direct"}),
            ("queue.bind", {"queue": "none", "exchange": "amq.direct"}),
            ("queue.declare", {"queue": "none", "passive": 1}),
            ("queue.purge", {"queue": "none"}),
            ("queue.delete", {"queue": "q", "if_empty": 1}),
            ("basic.consume", {"queue": "none"}),
        ):
            self.client.publish(b"1")
            found = self.client.refused(name, nowait=1, **fields)
            self.assertEqual(found[0], "channel", name)
        self.client.ask("exchange.declare", exchange="e", type="fanout")
        self.assertEqual(self.client.ask("exchange.delete", exchange="e", nowait=1), [])
        self.assertNotIn("e", self.house.broker.topology.graph)

    def test_missing_exchange(self) -> None:
        """A missing exchange is not deleted: 404 in 0-9, success in 0-9-1."""
        self.assertEqual(self.old.refused("exchange.delete", exchange="none"), ("channel", 404))
        found = self.client.ask("exchange.delete", exchange="none")
        self.assertEqual(found, ["exchange.delete-ok"])

    def test_stopped_consumers(self) -> None:
        """A consumer that has stopped contents is a consumer still (09-QUEUE-18)."""
        self.client.ask("basic.consume", queue="q", consumer_tag="c")
        self.client.ask("channel.flow", active=0)
        found = self.old.answer("queue.declare", queue="q", passive=1)
        self.assertEqual(found["consumer-count"], 1)
        found = self.old.refused("queue.delete", queue="q", if_unused=1)
        self.assertEqual(found, ("channel", 406))


class BasicRuleTests(RuleCase):
    def test_priorities(self) -> None:
        """In a queue with levels 9 precedes 0; within a level the first is first."""
        self.client.ask("queue.declare", queue="levels", arguments=[("x-max-priority", "I", 9)])
        for number, (priority, mode) in enumerate(((0, 1), (9, 2), (0, 2), (9, 1), (5, 1), (4, 1))):
            properties = {"priority": priority, "delivery-mode": mode}
            self.client.publish(b"%d" % number, key="levels", properties=properties)
        for client in self.both:
            client.ask("basic.consume", queue="levels", consumer_tag="c")
            self.assertEqual(client.bodies(), [b"1", b"3", b"4", b"5", b"0", b"2"])
            client.hang_up()

    def test_priorities_of_0_9(self) -> None:
        """A queue declared on 0-9 has priorities, unless its argument says otherwise."""
        none = [("x-max-priority", "I", 0)]
        for client, arguments, expected in (
            (self.old, [], [b"1", b"0"]),
            (self.old, none, [b"0", b"1"]),
            (self.client, [], [b"0", b"1"]),
        ):
            for durable in (0, 1):
                asked = {"queue": "new", "durable": durable, "arguments": arguments}
                self.assertEqual(client.ask("queue.declare", **asked), ["queue.declare-ok"])
                for each in self.both:  # an equal declaration, of either version, changes nothing
                    self.assertEqual(each.ask("queue.declare", **asked), ["queue.declare-ok"])
                for number, priority in enumerate((0, 9)):
                    client.publish(b"%d" % number, key="new", properties={"priority": priority})
                client.ask("basic.consume", queue="new", consumer_tag="c", no_ack=1)
                self.assertEqual(client.bodies(), expected, (client, durable))
                client.contents.clear()
                client.ask("basic.cancel", consumer_tag="c")
                client.ask("queue.delete", queue="new")

    def test_order(self) -> None:
        """Persistent messages do not overtake others, nor the other way round (09-BASIC-09)."""
        for number in range(6):
            mode = {"delivery-mode": 1 + number % 2}
            self.client.publish(b"%d" % number, properties=mode)
        self.client.ask("basic.consume", queue="q", consumer_tag="c", no_ack=1)
        self.assertEqual(self.client.bodies(), [b"%d" % number for number in range(6)])

    def test_no_window_without_acks(self) -> None:
        """Windows do not hold for consumers without acknowledgements, and 0 is none."""
        self.client.publish(*[b"12345"] * 5)
        self.client.ask("basic.qos", prefetch_count=1, prefetch_size=5)
        self.client.ask("basic.consume", queue="q", consumer_tag="c", no_ack=1)
        self.assertEqual(len(self.client.bodies()), 5)
        self.client.publish(*[b"12345"] * 5)
        self.client.ask("basic.cancel", consumer_tag="c")
        self.client.publish(*[b"12345"] * 5)
        self.client.ask("basic.qos", prefetch_count=0, prefetch_size=0)
        self.client.ask("basic.consume", queue="q", consumer_tag="d")
        self.assertEqual(len(self.client.bodies()), 5)

    def test_qos_while_consuming(self) -> None:
        """In 0-9 a window that is granted holds for consumers that are there (09-BASIC-19)."""
        self.old.publish(*[b"m"] * 5)
        self.old.ask("basic.qos", prefetch_count=1)
        self.old.ask("basic.consume", queue="q", consumer_tag="c")
        self.assertEqual(len(self.old.contents), 1)
        self.old.ask("basic.qos", prefetch_count=3)
        self.assertEqual(len(self.old.contents), 2)

    def test_get_needs_an_ack(self) -> None:
        """A message from get is unacknowledged, unless no-ack was set (09-BASIC-46)."""
        self.client.publish(b"1", b"2", exchange="", key="q")
        self.client.ask("basic.get", queue="q")
        arguments = self.client.contents[0][2]
        self.assertEqual((arguments["exchange"], arguments["routing-key"]), ("", "q"))
        self.client.ask("basic.get", queue="q", no_ack=1)
        self.assertEqual(self.client.depth(), 1)
        self.client.ask("basic.ack", delivery_tag=1)
        self.assertEqual(self.client.depth(), 0)

    def test_nowait(self) -> None:
        """consume and cancel without an answer (09-BASIC-26, 09-BASIC-32)."""
        self.client.publish(b"1")
        names = self.client.ask("basic.consume", queue="q", consumer_tag="c", nowait=1)
        self.assertEqual(names, ["basic.deliver"])
        self.assertEqual(self.client.ask("basic.cancel", consumer_tag="c", nowait=1), [])
        self.client.publish(b"2")
        self.assertEqual(self.client.names(), [])

    def test_unknown_consume_arguments(self) -> None:
        """A filter that nobody knows is taken (09-BASIC-27)."""
        for client in self.both:
            found = client.ask(
                "basic.consume", queue="q", consumer_tag="c", filter=[("x-mine", "I", 1)]
            )
            self.assertEqual(found, ["basic.consume-ok"])

    def test_delivery_limit(self) -> None:
        """Deliveries are counted, and beyond the limit the message is a dead letter."""
        self.client.ask("queue.declare", queue="dead")
        arguments = [
            ("x-delivery-limit", "I", 2),
            ("x-dead-letter-exchange", "S", b""),
            ("x-dead-letter-routing-key", "S", b"dead"),
        ]
        self.client.ask("queue.declare", queue="counted", arguments=arguments)
        self.client.publish(b"1", key="counted")
        counts = []
        for tag in (1, 2, 3):
            self.client.ask("basic.get", queue="counted")
            headers = self.client.contents[0][3].get("headers", [])
            counts += [value for name, _, value in headers if name == "x-delivery-count"]
            self.client.ask("basic.reject", delivery_tag=tag, requeue=1)
        self.assertEqual(counts, [1, 2])
        self.assertEqual((self.client.depth("counted"), self.client.depth("dead")), (0, 1))

    def test_rejected(self) -> None:
        """A rejected message goes to another consumer before it comes back (09-X-72)."""
        self.client.ask("basic.qos", prefetch_count=1)
        self.client.ask("basic.consume", queue="q", consumer_tag="a")
        self.client.publish(b"1")
        self.old.ask("basic.consume", queue="q", consumer_tag="b")
        self.client.ask("basic.reject", delivery_tag=1, requeue=1)
        names = [*self.client.run().names(), *self.old.run().names()]
        self.assertEqual(names.count("basic.deliver"), 1)

    def test_redelivered_is_said(self) -> None:
        """A delivery that one client did not acknowledge is redelivered to another."""
        self.client.publish(b"1")
        self.client.ask("basic.get", queue="q")
        self.assertEqual(self.client.contents[0][2]["redelivered"], 0)
        self.client.hang_up()
        self.old.ask("basic.get", queue="q")
        self.assertEqual(self.old.contents[0][2]["redelivered"], 1)


class TransactionRuleTests(RuleCase):
    def test_committed_is_stored(self) -> None:
        """commit-ok comes when the work is on the disk, and not before (09-TX-01)."""
        for client in self.both:
            self.assertEqual(client.ask("tx.select"), ["tx.select-ok"])
            client.publish(b"1", properties={"delivery-mode": 2})
            self.house.store.is_held = True
            self.assertEqual(client.ask("tx.commit"), [])
            self.house.store.let_go()
            self.assertEqual(client.run().names(), ["tx.commit-ok"])
        self.assertEqual(len(self.house.store.rows("q")), 2)


class ConnectionRuleTests(RuleCase):
    def test_properties_change_nothing(self) -> None:
        """Peer properties are information (09-DOM-12, 09-X-08)."""
        for capabilities in ((), ("unknown", "basic.nack")):
            client = self.of(V091, capabilities=capabilities)
            self.assertEqual(client.ask("queue.declare", queue="q", passive=1),
                             ["queue.declare-ok"])  # fmt: skip

    def test_operator_closes(self) -> None:
        """A connection that the daemon closes is told 320 (09-ERR-08)."""
        self.client.methods.clear()
        for connection in tuple(self.house.shared.connections):
            connection.close(conditions.CONNECTION_FORCED, "the broker is being stopped")
        self.client.run()
        self.assertEqual(self.client.closes(), [("connection", 320)])

    def test_success_is_never_sent(self) -> None:
        """No method is answered with a reply code (09-ERR-03)."""
        for name, fields in (
            ("queue.declare", {"queue": "new"}),
            ("queue.bind", {"queue": "new", "exchange": "amq.fanout"}),
            ("basic.qos", {}),
            ("tx.select", {}),
        ):
            self.client.ask(name, **fields)
            ((_, _, arguments),) = self.client.methods
            self.assertNotIn("reply-code", arguments)

    def test_longest_routing_key(self) -> None:
        """A routing key has 255 octets at most, which a short string holds (09-M-03)."""
        self.client.ask("queue.declare", queue="x" * 255, exclusive=1)
        self.client.write(content(1, "basic.publish", b"1", routing_key="x" * 255))
        self.assertEqual(self.client.depth("x" * 255), 1)

    def test_time_held(self) -> None:
        """Each hop takes the time that it has held a message off its life (09-M-07)."""
        other = self.world.house("b.test")
        self.client.publish(b"1", key="q@b.test", properties={"expiration": "60000"})
        for _ in range(10):
            self.world.advance(1.0)
        there = Client09(other).channel()
        there.ask("basic.get", queue="q", no_ack=1)
        left = int(there.contents[0][3]["expiration"])
        self.assertLess(left, 60_000)
        self.assertGreater(left, 40_000)
