# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: receivers of replies, permitted senders, ends of addresses.

What RabbitMQ does is played in `tests.integration.sequences_extensions`.
"""

from __future__ import annotations

import uuid
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.broker import queue_declarations
from amqproute.broker.reply_addresses import REPLY_QUEUE
from amqproute.message import Message
from amqproute.services.reply_paths import LOOK_AT, ReplyPaths
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import FrameBroker, Network, attach, condition, message
from tests.frontends.amqp09.test_large_bodies import PART_FROM, large_house
from tests.support.client09 import Client09
from tests.support.wire09 import V09, call, content

BOB = Principal("user", "bob")
ASK = {"reply-to": REPLY_QUEUE, "correlation-id": "7"}


class ReplyCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(hosts={"shop": ["shop.test"]})
        self.client = self.asking()
        self.responder = Client09(self.house, BOB).channel()

    def asking(self, house: FrameBroker | None = None, **changes: Any) -> Client09:
        """Return a client that waits for replies on channel 1."""
        client = Client09(house or self.house, **changes).channel()
        self.consume(client)
        return client

    def consume(self, client: Client09, channel: int = 1, tag: str = "r") -> None:
        found = client.ask("basic.consume", channel, queue=REPLY_QUEUE, consumer_tag=tag, no_ack=1)
        self.assertEqual(found, ["basic.consume-ok"])

    def request(self, client: Client09 | None = None, channel: int = 1) -> str:
        """Send a request; return where to reply to, as the responder sees it."""
        (client or self.client).publish(b"?", properties=ASK, channel=channel)
        return self.address_at(self.responder)

    @staticmethod
    def address_at(responder: Client09, queue: str = "q") -> str:
        responder.ask("basic.get", queue=queue, no_ack=1)
        return str(responder.contents[0][3]["reply-to"])

    def replies(self, client: Client09 | None = None) -> list[tuple[int, str, str, bytes]]:
        """Return channel, consumer tag, routing key and body of what was delivered."""
        client = (client or self.client).run()
        found = [
            (channel, given["consumer-tag"], given["routing-key"], body)
            for channel, name, given, _, body in client.contents
            if name == "basic.deliver"
        ]
        client.contents.clear()
        client.methods.clear()
        return found


class DirectReplyTests(ReplyCase):
    def test_reply(self) -> None:
        """The responder sees an address of the channel; what it sends there is delivered."""
        address = self.request()
        self.assertTrue(address.startswith(REPLY_QUEUE + "."))
        self.responder.publish(b"!", key=address, properties={"correlation-id": "7"})
        self.client.run()
        self.assertEqual(self.client.contents[0][3], {"correlation-id": "7"})
        self.assertEqual(self.replies(), [(1, "r", address, b"!")])
        self.assertEqual(self.house.broker.nodes[address].depth, 0)

    def test_other_properties_stay(self) -> None:
        """Nothing but the reply-to changes, in this request and in those beside it."""
        given = {"headers": [("n", "I", 1)], "type": "t", "app-id": "a"}
        other = {**given, "reply-to": "elsewhere"}
        self.client.write(
            content(1, "basic.publish", b"1", {**given, **ASK}, routing_key="q"),
            content(1, "basic.publish", b"2", other, routing_key="q"),
            content(1, "basic.publish", b"3", {**given, **ASK}, routing_key="q"),
        )
        found = []
        for _ in range(3):
            self.responder.ask("basic.get", queue="q", no_ack=1)
            found.append(self.responder.contents[0][3])
        address = found[0]["reply-to"]
        wanted = {**given, "reply-to": address, "correlation-id": "7"}
        self.assertEqual(found, [wanted, other, wanted])

    def test_each_channel(self) -> None:
        """Each channel has an address of its own, and gets its own replies."""
        self.client.channel(2)
        self.consume(self.client, 2, "s")
        first, second = self.request(), self.request(channel=2)
        self.assertNotEqual(first, second)
        self.responder.publish(b"2", key=second).publish(b"1", key=first)
        self.assertEqual(self.replies(), [(2, "s", second, b"2"), (1, "r", first, b"1")])

    def test_refused(self) -> None:
        """Acknowledgements, a second consumer, and requests without a consumer: 406."""
        for no_ack in (1, 0):  # the second time there is no consumer any more
            found = self.client.refused("basic.consume", queue=REPLY_QUEUE, no_ack=no_ack)
            self.assertEqual(found, ("channel", 406))
        self.client.methods.clear()
        self.client.write(
            content(1, "basic.publish", b"before", routing_key="q"),
            content(1, "basic.publish", b"?", ASK, routing_key="q"),
            content(1, "basic.publish", b"behind", routing_key="q"),
        )
        self.assertEqual(self.client.closes(), [("channel", 406)])
        self.assertEqual(self.client.depth(), 1)

    def test_cancelled_in_one_segment(self) -> None:
        """A request counts when it is sent, whatever comes behind it in the same read."""
        self.client.write(
            content(1, "basic.publish", b"?", ASK, routing_key="q"),
            call(1, "basic.cancel", consumer_tag="r"),
            content(1, "basic.publish", b"?", ASK, routing_key="q"),
        )
        self.assertEqual(self.client.names()[-2:], ["basic.cancel-ok", "channel.close"])
        self.assertEqual(self.client.depth(), 1)

    def test_mandatory(self) -> None:
        """A reply is routed while somebody waits for it, and comes back afterwards."""
        address = self.request()
        self.responder.publish(b"!", key=address, mandatory=1)
        self.assertEqual(len(self.replies()), 1)
        self.client.ask("basic.cancel", consumer_tag="r")
        self.responder.names()
        self.responder.publish(b"late", key=address, mandatory=1).publish(b"later", key=address)
        self.assertEqual(self.responder.names(), ["basic.return"])

    def test_returned_request(self) -> None:
        """A request that goes nowhere comes back."""
        self.client.publish(b"?", key="none", mandatory=1, properties=ASK)
        _, name, given, properties, body = self.client.contents[0]
        self.assertEqual((name, given["reply-code"], body), ("basic.return", 312, b"?"))
        self.assertTrue(properties["reply-to"].startswith(REPLY_QUEUE + "."))

    def test_asked_for(self) -> None:
        """A declaration of an address says whether it is in use."""
        address = self.request()
        wanted = {"message-count": 0, "consumer-count": 1}
        for passive in (0, 1):
            for name in (REPLY_QUEUE, address):
                found = self.responder.answer("queue.declare", queue=name, passive=passive)
                self.assertEqual(found, {"queue": name, **wanted})
        self.client.ask("channel.close", reply_code=200)
        for name in (address, REPLY_QUEUE + ".none"):
            for passive in (0, 1):
                self.assertEqual(
                    self.responder.refused("queue.declare", queue=name, passive=passive),
                    ("channel", 404),
                )

    def test_ends(self) -> None:
        """An address ends with its consumer, its channel, its connection; a new one is another."""
        before = set(self.house.broker.nodes)
        seen = set()
        for end in (
            lambda client: client.ask("basic.cancel", consumer_tag="r"),
            lambda client: client.ask("channel.close", reply_code=200),
            lambda client: client.hang_up(),
            lambda client: client.refused("queue.declare", queue="none", passive=1),
        ):
            client = self.asking()
            address = self.request(client)
            self.assertIn(address, self.house.broker.nodes)
            end(client)
            self.world.advance()
            self.assertNotIn(address, self.house.broker.nodes)
            seen.add(address)
        self.assertEqual(len(seen), 4)
        self.client.hang_up()
        self.assertLess(set(self.house.broker.nodes), before)
        self.assertEqual(self.house.broker.dynamic, set())

    def test_no_queue(self) -> None:
        """For all other methods there is no such queue, for the channel itself neither."""
        address = self.request()
        for client in (self.client.channel(2), self.responder):
            channel = 2 if client is self.client else 1
            for name in (address, REPLY_QUEUE):
                for method, fields in (
                    ("basic.get", {"no_ack": 1}),
                    ("queue.purge", {}),
                    ("queue.bind", {"exchange": "amq.direct", "routing_key": "k"}),
                ):
                    found = client.refused(method, channel, queue=name, **fields)
                    self.assertEqual(found, ("channel", 404), (method, name))
                self.assertEqual(
                    client.ask("queue.delete", channel, queue=name), ["queue.delete-ok"]
                )
            self.assertEqual(
                client.refused("basic.consume", channel, queue=address, no_ack=1),
                ("channel", 404),
            )
        self.responder.publish(b"!", key=address)
        self.assertEqual(len(self.replies()), 1)

    def test_0_9(self) -> None:
        """Clients of 0-9 have it as well."""
        client = self.asking(version=V09)
        address = self.request(client)
        self.responder.publish(b"!", key=address)
        self.assertEqual(self.replies(client), [(1, "r", address, b"!")])

    def test_large_request(self) -> None:
        """The address stands in requests that are taken in parts, too."""
        house = large_house(self.world, "c.test")
        client = Client09(house, part_from=PART_FROM).channel()
        body = b"x" * (4 * PART_FROM)
        self.consume(client)
        client.publish(body, properties=ASK)
        for _ in range(10):
            client.run()
        responder = Client09(house, BOB).channel()
        address = self.address_at(responder)
        self.assertTrue(address.startswith(REPLY_QUEUE + "."))
        responder.publish(b"!", key=address)
        self.assertEqual(self.replies(client), [(1, "r", address, b"!")])
        client.ask("basic.cancel", consumer_tag="r")
        client.publish(body, properties=ASK)
        self.assertEqual(client.closes(), [("channel", 406)])


class RightsTests(ReplyCase):
    def test_no_rule_for_replies(self) -> None:
        """The right to take requests includes replies; requests need dynamic nodes."""
        rules = [
            Rule.of(who="user:ann", node="dynamic", allow=["create"]),
            Rule.of(who="user:ann", node="q", allow=["publish"]),
            Rule.of(who="user:bob", node="q", allow=["consume"]),
        ]
        house = self.world.house("b.test", access=rules)
        client, responder = self.asking(house), Client09(house, BOB).channel()
        client.publish(b"?", properties=ASK)
        address = self.address_at(responder)
        responder.publish(b"!", key=address)
        self.assertEqual(len(self.replies(client)), 1)
        self.assertEqual(
            responder.refused("basic.consume", queue=REPLY_QUEUE, no_ack=1), ("channel", 403)
        )
        responder.methods.clear()
        responder.publish(b"!", key="q")
        self.assertEqual(responder.closes(), [("channel", 403)])

    def test_amqp_1_0(self) -> None:
        """A client of 1.0 replies by a link or by `to`, without a rule; it cannot take replies."""
        rules = [
            Rule.of(who="user:ann", node="*", allow=["create", "publish"]),
            Rule.of(who="user:bob", node="q", allow=["consume"]),
            Rule.of(who="user:bob", node="amqp$transfer", allow=["publish"]),
            Rule.of(who="user:eve", node="*", allow=["consume", "browse"]),
        ]
        house = self.world.house("b.test", access=rules)
        client = self.asking(house)
        client.publish(b"?", properties=ASK)
        responder = house.client(BOB).ready()
        responder.receiver("q", credit=1)
        address = Message(responder.messages()[0]).reply_to
        assert isinstance(address, str)
        responder.sender(address, 1)
        responder.publish(0, message(b"by a link"), handle=1)
        responder.sender(None, 2)
        responder.publish(1, message(b"by to", to=address), handle=2)
        self.assertEqual([body for *_, body in self.replies(client)], [b"by a link", b"by to"])
        eve = house.client(Principal("user", "eve")).ready()
        eve.send(attach("receiver", "r", 0, address))
        self.assertIsNone(eve.one(spec.Attach).source)
        self.assertEqual(condition(eve.one(spec.Detach)), "amqp:not-allowed")
        responder.names()
        client.ask("basic.cancel", consumer_tag="r")
        responder.run()
        self.assertEqual(condition(responder.one(spec.Detach)), "amqp:resource-deleted")

    def test_virtual_hosts(self) -> None:
        """An address is good in its virtual host only."""
        shop = Client09(self.house, virtual_host="shop").channel()
        shop.answer("queue.declare", queue="q")
        self.consume(shop)
        shop.publish(b"?", properties=ASK)
        address = self.address_at(shop)
        self.assertIn(f"//shop/{address}", self.house.broker.nodes)
        self.responder.publish(b"!", key=address, mandatory=1)
        self.assertEqual(self.responder.names(), ["basic.return"])
        shop.publish(b"!", key=address)
        self.assertEqual(self.replies(shop), [(1, "r", address, b"!")])


class BoundTests(ReplyCase):
    def test_addresses(self) -> None:
        """Addresses count among the transient queues, of which each user has a share."""
        self.client.hang_up()
        self.patch(queue_declarations, "MOST_TRANSIENT", 4)
        self.client = Client09(self.house).channel(1, 2, 3)
        for channel in (1, 2):
            self.consume(self.client, channel, str(channel))
        found = self.client.refused("basic.consume", 3, queue=REPLY_QUEUE, no_ack=1)
        self.assertEqual(found, ("connection", 506))
        self.client = Client09(self.house).channel(1, 2)
        for channel in (1, 2):
            self.consume(self.client, channel, str(channel))
        self.consume(self.responder)
        self.assertEqual(
            self.responder.refused("queue.declare", queue="t", exclusive=1), ("connection", 506)
        )

    def test_replies_that_wait(self) -> None:
        """Messages for a client that does not read are bounded, and refused beyond that."""
        address = self.request()
        self.client.ask("channel.flow", active=0)
        queue = self.house.broker.nodes[address]
        self.assertEqual((queue.limits.capacity, queue.limits.octets), (10_000, 1 << 26))
        self.responder.ask("confirm.select")
        for _ in range(7):
            self.responder.publish(*[b"x" * 100_000] * 100, key=address)
        names = [name for _, name, _ in self.responder.methods if name != "confirm.select-ok"]
        self.assertIn("basic.nack", names)
        self.assertLess(queue.depth, 680)
        self.client.hang_up()
        self.assertNotIn(address, self.house.broker.nodes)

    def test_stopped_client(self) -> None:
        """Replies in order to whoever stops contents for a while."""
        address = self.request()
        self.client.ask("channel.flow", active=0)
        for number in range(3):
            self.responder.publish(b"%d" % number, key=address, properties={"priority": number})
        self.assertEqual(self.replies(), [])
        self.client.ask("channel.flow", active=1)
        self.assertEqual([body for *_, body in self.replies()], [b"0", b"1", b"2"])


class FederationTests(ReplyCase):
    def setUp(self) -> None:
        super().setUp()
        self.other = self.world.house("b.test")
        self.paths = self.let_reply(self.house, "a.test")
        self.let_reply(self.other, "b.test")
        self.there = Client09(self.other, BOB).channel()

    def let_reply(self, house: FrameBroker, domain: str) -> ReplyPaths:
        rules = house.transfer.rules
        paths = ReplyPaths(
            house.broker,
            self.world.clock,
            lambda: domain,
            rules.allows,
            lambda: str(uuid.uuid4()),
        )
        house.transfer.replies = paths
        self.addCleanup(paths.stop)
        return paths

    def ask_there(self, client: Client09) -> str:
        """Send a request to the other organization; return where to reply to."""
        client.publish(b"?", key="q@b.test", properties=ASK, mandatory=1)
        for _ in range(20):
            self.world.advance(0.2)
            self.there.ask("basic.get", queue="q", no_ack=1)
            if self.there.contents:
                return str(self.there.contents[0][3]["reply-to"])
        raise AssertionError("nothing has come")

    def come(self, client: Client09) -> list[bytes]:
        for _ in range(20):
            self.world.advance(0.2)
            client.run()
        return [body for *_, body in self.replies(client)]

    def test_responder_elsewhere(self) -> None:
        """A responder in another organization replies to an alias of the address."""
        address = self.ask_there(self.client)
        self.assertRegex(address, "^reply-[0-9a-f-]+@a.test$")
        self.there.publish(b"!", key=address, mandatory=1)
        self.assertEqual(self.come(self.client), [b"!"])
        self.assertEqual(self.there.names(), ["basic.get-ok"])

    def test_amqp_1_0_elsewhere(self) -> None:
        """So does a client of 1.0."""
        self.client.publish(b"?", key="q@b.test", properties=ASK)
        self.come(self.client)
        responder = self.other.client(BOB).ready()
        responder.receiver("q", credit=1)
        address = Message(responder.messages()[0]).reply_to
        assert isinstance(address, str)
        responder.sender(address, 1)
        responder.publish(0, message(b"1.0"), handle=1)
        self.assertEqual(self.come(self.client), [b"1.0"])

    def test_in_a_virtual_host(self) -> None:
        """A reply from elsewhere finds its virtual host."""
        client = Client09(self.house, virtual_host="shop").channel()
        self.consume(client)
        address = self.ask_there(client)
        self.there.publish(b"!", key=address)
        self.assertEqual(self.come(client), [b"!"])
        self.responder.publish(b"stolen", key=address, mandatory=1)
        self.assertEqual(self.come(client), [])

    def test_too_late(self) -> None:
        """Nothing is left of an address that has ended: a late reply is refused."""
        address = self.ask_there(self.client)
        self.client.ask("basic.cancel", consumer_tag="r")
        self.there.publish(b"late", key=address)
        self.assertEqual(self.come(self.client), [])
        self.paths.sweep()
        self.assertEqual(self.paths.aliases, {})

    def test_one_after_the_other(self) -> None:
        """A channel that takes new addresses without end leaves nothing behind."""
        self.client.ask("basic.cancel", consumer_tag="r")
        origins: list[Any] = []
        remember = self.paths._make

        def watch(name: str, origin: Any) -> Any:
            origins.append(origin)
            return remember(name, origin)

        self.patch(self.paths, "_make", watch)
        for number in range(3 * LOOK_AT):
            self.consume(self.client)
            self.client.publish(b"?", key="q@b.test", properties=ASK)
            self.client.ask("basic.cancel", consumer_tag="r")
            if number % 50 == 49:
                self.paths.sweep()
        self.assertEqual(len(origins), 3 * LOOK_AT)
        self.assertLessEqual(len(origins[-1].replies), 2 * LOOK_AT)
