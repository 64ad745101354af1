# SPDX-License-Identifier: Apache-2.0
"""Publishing by clients of 0-9 and 0-9-1: targets and answers.

Rules: 09-BASIC-34, -35, -36, -38, -39, -40, 09-X-64, -66, -67, -68, 09-W-71, -72, -73, 09-M-01,
-02, -04, -05, 09: part 5.1 (user-id), 09-TX-05 to -09, 09-CHAN-17.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker.publish_gate import STORE
from amqproute.errors import ResolveError
from amqproute.message import Message
from amqproute.values import Principal
from tests.conformance.frame_broker import EVERYTHING, Network
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content, publish


class PublishTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = Client09(self.house).channel()

    def confirming(self) -> Client09:
        self.assertEqual(self.client.ask("confirm.select"), ["confirm.select-ok"])
        self.client.methods.clear()
        return self.client

    def test_to_a_queue(self) -> None:
        """The default exchange finds the queue with the key's name."""
        self.client.publish(b"1", b"2")
        self.assertEqual(self.client.depth(), 2)
        self.assertEqual(self.client.names(), [])

    def test_run(self) -> None:
        """A run of publishes becomes the same messages as publishes one by one."""
        self.client.ask("exchange.declare", exchange="t", type="topic")
        for key in ("a.*", "#.b"):
            self.client.ask("queue.bind", queue="q", exchange="t", routing_key=key)
        durable, other = {"delivery-mode": 2}, {"delivery-mode": 2, "message-id": "m"}
        copied = {"delivery-mode": 2, "headers": [("CC", "A", [("S", b"a.x")])]}
        octets = [
            content(1, "basic.publish", body, properties, routing_key=key, exchange=exchange)
            for exchange, key in (("t", "a.b"), ("", "q"), ("t", "a.c"))
            for properties in (durable, other, copied, durable)
            for body in (b"", b"1", b"2", b"x" * 300, b"y" * 300, b"z" * 20)
        ]
        self.client.write(*octets)
        together = [row.encoded for row in self.house.store.rows("q")]
        self.client.ask("queue.purge", queue="q")
        for each in octets:
            self.client.write(each)
        self.assertEqual(together, [row.encoded for row in self.house.store.rows("q")])
        self.assertEqual(len(together), len(octets))
        self.client.ask("basic.consume", queue="q", no_ack=1)
        self.assertEqual(
            self.client.bodies(), [b"", b"1", b"2", b"x" * 300, b"y" * 300, b"z" * 20] * 12
        )

    def test_known_route(self) -> None:
        """A message published again goes by the present bindings and rights."""
        client = self.client
        client.ask("exchange.declare", exchange="t", type="topic")
        client.ask("queue.declare", queue="other")
        bindings = [
            {"queue": queue, "exchange": "t", "routing_key": "#"} for queue in ("q", "other")
        ]

        def published(*bodies: bytes) -> tuple[int, int]:
            client.publish(*bodies, exchange="t", key="a.b", properties={"delivery-mode": 2})
            return client.depth(), client.depth("other")

        self.assertEqual(published(b"0"), (0, 0))
        client.ask("queue.bind", **bindings[0])
        self.assertEqual([published(b"1"), published(b"2"), published(b"3", b"4")],
                         [(1, 0), (2, 0), (4, 0)])  # fmt: skip
        client.ask("queue.bind", **bindings[1])
        self.assertEqual([published(b"5"), published(b"6")], [(5, 1), (6, 2)])
        client.ask("queue.unbind", **bindings[0])
        self.assertEqual([published(b"7"), published(b"8")], [(6, 3), (6, 4)])
        client.ask("queue.delete", queue="other")
        client.ask("queue.declare", queue="other")
        self.assertEqual(published(b"9"), (6, 0))
        client.ask("queue.bind", **bindings[1])
        self.assertEqual([published(b"10"), published(b"11")], [(6, 1), (6, 2)])
        service = self.house.transfer
        service.reload(replace(service.rules, allows=lambda _, verb, name: verb != "publish"))
        client.methods.clear()
        client.publish(b"12", exchange="t", key="a.b", properties={"delivery-mode": 2})
        self.assertEqual(client.closes(), [("channel", 403)])

    def test_known_route_of_a_user(self) -> None:
        """A route that one connection has found is one for others, as far as they may use it."""
        self.client.ask("queue.bind", queue="q", exchange="amq.topic", routing_key="k")
        for name, codes in (("ann", []), ("bob", [406]), ("ann", [])):
            client = Client09(self.house, Principal("user", name)).channel()
            rules = self.house.transfer.rules
            rules.allows = lambda _, verb, name: verb != "impersonate"
            client.publish(b"x", exchange="amq.topic", key="k", properties={"user-id": "ann"})
            self.assertEqual([code for _, code in client.closes()], codes)
        self.assertEqual(self.client.depth(), 2)

    def test_confirms(self) -> None:
        """A run of publishes is confirmed by one ack, when it is on the disk."""
        client = self.confirming()
        self.house.store.is_held = True
        client.publish(b"1", b"2", b"3")
        self.assertEqual(client.names(), [])
        self.house.store.let_go()
        client.run()
        ((_, name, arguments),) = client.methods
        self.assertEqual((name, arguments["delivery-tag"], arguments["multiple"]),
                         ("basic.ack", 3, 1))  # fmt: skip

    def test_return_before_ack(self) -> None:
        """A mandatory message that goes nowhere comes back before its ack."""
        client = self.confirming()
        client.publish(b"lost", key="none", mandatory=1, properties={"type": "t"})
        _, _, arguments, properties, body = client.contents[0]
        self.assertEqual((arguments["reply-code"], arguments["routing-key"]), (312, "none"))
        self.assertEqual((properties, body), ({"type": "t"}, b"lost"))
        self.assertEqual(client.names(), ["basic.return", "basic.ack"])

    def test_refused_with_the_last_credit(self) -> None:
        """A channel that ends by a publish does not keep the connection from being read."""
        self.client.publish(b"first")
        frontend: Any = self.client.end.protocol._user  # type: ignore[attr-defined]
        frontend.channels[1].publisher._granted = 1
        self.client.write(content(1, "basic.publish", b"x", routing_key="k", exchange="none"))
        self.assertEqual(self.client.closes(), [("channel", 404)])
        self.assertEqual(frontend._throttled, set())

    def test_return_while_stopped(self) -> None:
        """A message to be returned while the client takes no contents closes the channel."""
        self.client.ask("channel.flow", active=0)
        self.client.publish(b"lost", key="none", mandatory=1)
        self.assertEqual(self.client.closes(), [("channel", 406)])

    def test_nowhere(self) -> None:
        """Without mandatory it is dropped, and confirmed at once."""
        client = self.confirming()
        client.publish(b"lost", key="none")
        self.assertEqual(client.names(), ["basic.ack"])

    def test_immediate(self) -> None:
        """With immediate a message comes back unless a consumer takes it at once."""
        self.client.publish(b"1", immediate=1)
        self.assertEqual(self.client.contents[0][2]["reply-code"], 313)
        other = Client09(self.house).channel()
        other.ask("basic.consume", queue="q", no_ack=1)
        self.client.methods.clear()
        self.client.publish(b"2", immediate=1)
        self.assertEqual(self.client.names(), [])
        self.assertEqual(other.run().bodies(), [b"2"])

    def test_wrong_exchange(self) -> None:
        """A missing exchange closes the channel, an internal one too; what follows is dropped."""
        self.client.ask("exchange.declare", exchange="in", type="fanout", internal=1)
        for exchange, code in (("none", 404), ("in", 403)):
            client = Client09(self.house).channel()
            client.publish(b"1", b"2", exchange=exchange)
            self.assertEqual(client.closes(), [("channel", code)])
            client.publish(b"3")
            self.assertEqual(client.depth(), 0)

    def test_rights(self) -> None:
        """Publishing needs the right on the exchange, or on the queue of the default exchange."""
        allowed = [each for each in EVERYTHING if each != "publish"]
        rules = [
            Rule.of(who="*", node="/exchanges/amq.fanout", allow=["publish"]),
            Rule.of(who="*", node="*", allow=allowed),
        ]
        house = self.world.house("r.test", access=rules)
        for exchange, codes in (("amq.fanout", []), ("amq.direct", [403]), ("", [403])):
            client = Client09(house).channel()
            client.publish(b"1", exchange=exchange)
            self.assertEqual([code for _, code in client.closes()], codes, exchange)

    def test_user_id(self) -> None:
        """A user-id has to be that of the user."""
        allowed = [each for each in EVERYTHING if each != "impersonate"]
        house = self.world.house("u.test", access=[Rule.of(who="*", node="*", allow=allowed)])
        client = Client09(house).channel()
        client.publish(b"1", properties={"user-id": "ann"})
        self.assertEqual(client.closes(), [])
        client.publish(b"1", properties={"user-id": "bob"})
        self.assertEqual(client.closes(), [("channel", 406)])

    def test_wrong_expiration(self) -> None:
        """An expiration that is no number is refused on the channel."""
        self.client.publish(b"1", properties={"expiration": "soon"})
        self.assertEqual(self.client.closes(), [("channel", 406)])

    def test_full_disk(self) -> None:
        """While the disk takes nothing the client is told, not read, and loses nothing."""
        client = self.confirming()
        client.publish(b"0")
        client.methods.clear()
        self.house.broker.gate.close(STORE, "the disk is full")
        client.run()
        self.assertEqual(client.names(), ["connection.blocked"])
        self.assertEqual(client.end.producerState, "paused")
        self.house.broker.gate.open(STORE)
        client.run()
        self.assertEqual(client.names(), ["connection.unblocked"])
        client.publish(b"1")
        self.assertEqual(client.names(), ["basic.ack"])

    def test_slow_disk(self) -> None:
        """A publisher that is faster than the disk is not read any more."""
        house = self.world.house("s.test", limits={"link_credit": 10})
        client = Client09(house).channel()
        house.store.is_held = True
        client.publish(*[b"m"] * 20)
        self.assertEqual(client.end.producerState, "paused")
        house.store.let_go()
        client.run()
        self.assertEqual(client.end.producerState, "producing")
        self.assertEqual(client.depth(), 20)


class FederationTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.other = self.world.house("b.test")
        self.client = Client09(self.house).channel()
        self.client.ask("confirm.select")
        self.client.methods.clear()

    def test_to_another_organization(self) -> None:
        """A key NAME@DOMAIN is an address: the message is relayed with it as `to`."""
        properties = {"content-type": "text/plain", "headers": [("n", "I", 7)], "message-id": "m"}
        self.client.publish(b"order", key="q@b.test", mandatory=1, properties=properties)
        self.world.advance(1)
        self.client.run()
        self.assertEqual(self.client.names(), ["basic.ack"])
        there = Client09(self.other).channel()
        there.ask("basic.get", queue="q")
        _, _, arguments, found, body = there.contents[0]
        self.assertEqual((arguments["routing-key"], body), ("q@b.test", b"order"))
        self.assertEqual(found, properties)

    def test_never_a_queue(self) -> None:
        """A declared queue whose name is an address catches nothing (09-M-02)."""
        self.client.ask("queue.declare", queue="q@b.test")
        self.client.methods.clear()
        self.client.publish(b"order", key="q@b.test")
        self.world.advance(1)
        self.assertEqual(self.client.depth("q@b.test"), 0)
        self.assertEqual(self.other.depth(), 1)

    def test_own_domain(self) -> None:
        """An address at our own domain is the queue here."""
        self.client.publish(b"1", key="q@a.test")
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(self.client.names(), ["basic.ack"])

    def test_unknown_domain(self) -> None:
        """Without a route a mandatory message is returned, and others are not confirmed."""
        self.world.domains["none.test"] = ResolveError(
            "dns.no-domain", "no such domain", permanent=True
        )
        self.client.publish(b"1", key="q@none.test")
        self.world.advance(10)
        self.client.run()
        self.assertEqual(self.client.names(), ["basic.nack"])
        self.client.publish(b"1", key="q@none.test", mandatory=1)
        self.world.advance(10)
        self.client.run()
        self.assertEqual(self.client.names(), ["basic.return", "basic.ack"])

    def test_order_behind_the_dns(self) -> None:
        """A message behind one that waits for the DNS waits as well."""
        self.world.dns_seconds = 1.0
        self.client.publish(b"1", key="q@b.test")
        self.client.publish(b"2")
        self.assertEqual(self.client.names(), [])
        self.assertEqual(self.client.depth(), 0)
        self.world.advance(2)
        self.client.run()
        self.assertEqual(self.client.depth(), 1)
        self.assertEqual(set(self.client.names()), {"basic.ack"})

    def test_immediate(self) -> None:
        """Immediate cannot be met elsewhere."""
        self.client.publish(b"1", key="q@b.test", immediate=1)
        self.assertEqual(self.client.contents[0][2]["reply-code"], 313)


class TransactionTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house()
        self.client = Client09(self.house).channel()

    def test_commit_and_rollback(self) -> None:
        """Publishes count with the commit, and not at all after a rollback."""
        client = self.client
        self.assertEqual(client.ask("tx.select"), ["tx.select-ok"])
        client.publish(b"1", b"2")
        self.assertEqual(client.depth(), 0)
        self.assertEqual(client.ask("tx.commit"), ["tx.commit-ok"])
        self.assertEqual(client.depth(), 2)
        client.publish(b"3")
        self.assertEqual(client.ask("tx.rollback"), ["tx.rollback-ok"])
        self.assertEqual(client.ask("tx.commit"), ["tx.commit-ok"])
        self.assertEqual(client.depth(), 2)

    def test_acks(self) -> None:
        """Acks count with the commit; after a rollback the client has the messages still."""
        client = self.client
        client.publish(b"1")
        client.ask("tx.select")
        client.ask("basic.get", queue="q")
        (tag,) = client.tags()
        client.ask("basic.ack", delivery_tag=tag)
        client.ask("tx.rollback")
        self.assertEqual(client.depth(), 1)
        client.ask("basic.ack", delivery_tag=tag)
        self.assertEqual(client.depth(), 1)
        self.assertEqual(client.ask("tx.commit"), ["tx.commit-ok"])
        self.assertEqual(client.depth(), 0)

    def test_end_of_the_channel(self) -> None:
        """Uncommitted work is undone with the channel."""
        client = self.client
        client.publish(b"1")
        client.ask("tx.select")
        client.ask("basic.get", queue="q")
        client.ask("basic.ack", delivery_tag=client.tags()[0])
        client.publish(b"2")
        self.assertEqual(client.ask("channel.close"), ["channel.close-ok"])
        self.assertEqual(client.depth(), 1)
        client.channel()
        client.ask("basic.get", queue="q")
        self.assertEqual(client.contents[0][2]["redelivered"], 1)

    def test_without_select(self) -> None:
        """Commit and rollback need select; select and confirm exclude each other."""
        for name in ("tx.commit", "tx.rollback"):
            self.assertEqual(self.client.refused(name), ("channel", 406))
        self.client.ask("tx.select")
        self.assertEqual(self.client.refused("confirm.select"), ("channel", 406))

    def test_timeout(self) -> None:
        """A transaction in which nothing happens is rolled back, and its commit refused."""
        self.client.ask("tx.select")
        self.client.publish(b"1")
        self.world.advance(300)
        self.assertEqual(self.client.refused("tx.commit"), ("channel", 406))
        self.assertEqual(self.client.depth(), 0)

    def test_to_another_organization(self) -> None:
        """A commit waits for the DNS of what it publishes."""
        self.world.house("b.test")
        self.world.dns_seconds = 1.0
        self.client.ask("tx.select")
        self.client.publish(b"1", key="q@b.test")
        self.assertEqual(self.client.ask("tx.commit"), [])
        self.world.advance(2)
        self.assertEqual(self.client.run().names(), ["tx.commit-ok"])

    def test_before_select(self) -> None:
        """Methods before tx.select in one segment are in no transaction; a rollback leaves them."""
        client = self.client
        client.publish(b"old")
        client.ask("basic.get", queue="q")
        client.write(
            publish(1, b"1"),
            publish(1, b"2"),
            call(1, "basic.ack", delivery_tag=client.tags()[0]),
            call(1, "tx.select"),
            publish(1, b"3"),
            call(1, "tx.rollback"),
        )
        self.assertEqual(client.names()[-2:], ["tx.select-ok", "tx.rollback-ok"])
        client.ask("basic.consume", queue="q")
        self.assertEqual(client.bodies(), [b"1", b"2"])

    def test_before_select_behind_the_dns(self) -> None:
        """It is not, either, where it waits for the DNS when the transaction begins."""
        there = self.world.house("b.test")
        self.world.dns_seconds = 1.0
        address = "q@b.test"
        self.client.write(
            publish(1, b"1", address), call(1, "tx.select"), publish(1, b"2", address)
        )
        self.client.write(call(1, "tx.rollback"))
        for _ in range(10):
            self.client.run(1)
        self.assertEqual(self.client.names(), ["tx.select-ok", "tx.rollback-ok"])
        self.assertEqual(there.depth(), 1)

    def test_waits_when_its_channel_ends(self) -> None:
        """A publish that waits for the DNS is undone with its channel; no transaction stays."""
        there = self.world.house("b.test")
        self.world.dns_seconds = 1.0
        (connection,) = self.house.shared.connections
        self.client.ask("tx.select")
        self.client.publish(b"1", key="q@b.test")
        self.client.ask("channel.close")
        for _ in range(10):
            self.client.run(1)
        self.assertEqual(there.depth(), 0)
        self.assertEqual(len(connection.transactions), 0)

    def test_acknowledged_behind_a_commit(self) -> None:
        """An ack that waits behind a commit when the channel ends gives its message back."""
        self.world.house("b.test")
        self.world.dns_seconds = 1.0
        client = self.client
        client.publish(b"1")
        client.ask("tx.select")
        client.ask("basic.get", queue="q")
        client.write(
            publish(1, b"2", "q@b.test"),
            call(1, "tx.commit"),
            call(1, "basic.ack", delivery_tag=client.tags()[0]),
            call(1, "channel.close"),
        )
        client.run(5)
        queue = self.house.broker.nodes["q"]
        self.assertEqual((queue.acquired, queue.available), (0, 1))


class BodyTests(SynchronousTestCase):
    def test_between_versions(self) -> None:
        """A message of 0-9-1 arrives unchanged at 0-9 and AMQP 1.0."""
        world = Network()
        house = world.house()
        client = Client09(house).channel()
        properties = {
            "content-type": "text/plain",
            "headers": [("n", "I", 7), ("s", "S", b"text")],
            "delivery-mode": 2,
            "priority": 5,
            "correlation-id": "c",
            "reply-to": "r",
            "message-id": "m",
            "timestamp": 1_700_000_000,
            "type": "t",
            "app-id": "a",
        }
        client.publish(b"body", b"body", properties=properties)
        old = Client09(house, version=V09).channel()
        old.ask("basic.get", queue="q", no_ack=1)
        self.assertEqual(old.contents[0][3:], (properties, b"body"))
        receiver = house.client().ready()
        receiver.receiver(credit=1)
        message = Message(receiver.messages()[0])
        self.assertTrue(message.header.durable)
        self.assertEqual(message.application_properties, {"n": 7, "s": "text"})
        self.assertEqual(message.properties.message_id, "m")

    def test_from_amqp10(self) -> None:
        """A message of AMQP 1.0 arrives at 0-9-1."""
        world = Network()
        house = world.house()
        house.client().ready().fill([b"one", b"two"])
        client = Client09(house).channel()
        client.ask("basic.consume", queue="q", no_ack=1)
        self.assertEqual([content[2]["routing-key"] for content in client.contents], ["q", "q"])
        self.assertEqual(client.bodies(), [b"one", b"two"])

    def test_half_sent(self) -> None:
        """Unfinished contents of all connections are bounded: the largest holder is closed."""
        house = Network().house(limits={"memory_bytes": 8 << 20})
        clients = [Client09(house, reports_input=True).channel() for _ in range(3)]
        for count, client in enumerate(clients):
            self.begin(client, 1, 200_000 * (count + 1))
        last = Client09(house, reports_input=True).channel(*range(1, 12))
        for channel in range(1, 12):
            self.begin(last, channel, 120_000)
        # Too little for a file of its own: the oldest of them have ended.
        self.assertEqual([client.closes() for client in clients], [[]] * 3)
        self.assertEqual(set(last.closes()), {("channel", 406)})
        self.assertLess(len(last.closes()), 11)

    def test_half_sent_to_the_disk(self) -> None:
        """The received part of a content goes to the disk if it is too large; no client notices."""
        house = Network().house(limits={"memory_bytes": 8 << 20})
        client = Client09(house, reports_input=True).channel(1, 2, 3)
        for channel in (1, 2, 3):
            self.begin(client, channel, 900_000)
        self.assertEqual(client.closes(), [])
        self.assertLess(client.end.protocol.engine.held_octets, 2 << 20)
        self.assertEqual(house.shared.partial_deliveries.spilled, 1)

    def begin(self, client: Client09, channel: int, size: int) -> None:
        """Publish a body and leave out its end."""
        whole = content(channel, "basic.publish", b"x" * size, routing_key="q", pieces=5000)
        client.write(whole[:-5008])

    def test_too_large(self) -> None:
        """A body above the bound closes its channel."""
        house = Network().house()
        client = Client09(house, max_content=1000).channel()
        client.publish(b"x" * 2000)
        self.assertEqual(client.closes(), [("channel", 311)])
