# SPDX-License-Identifier: Apache-2.0
"""Realms and tickets of 0-9, and what 0-9-1 has of them.

Rules: 09-ACC-01 to -14, 09-DOM-01, 09-X-20 to -23, -31, -33, -49, -58, -63, -69, 09-EXCH-11,
09-QUEUE-07, -26, -34, -42, -50, I-05, I-15.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.frontends.amqp09 import access_realms
from amqproute.frontends.amqp09.access_realms import AccessRealms
from amqproute.values import Principal
from tests.conformance.frame_broker import EVERYTHING, Network
from tests.frontends.amqp09.test_large_bodies import PART_FROM, large_house
from tests.support.client09 import Client09, context09
from tests.support.wire09 import V09, call

BOB = Principal("user", "bob")
REALMS = {"/data": ["*"], "/shop": ["shop.*", "/exchanges/shop.*"], "/lab/*": ["lab.*"]}
ALL = {"passive": 1, "active": 1, "write": 1, "read": 1}


class RealmCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(hosts={"shop": []})
        context09(self.house).realms = AccessRealms(REALMS)
        self.client = self.connected()

    def connected(self, **changes: Any) -> Client09:
        """Return a client of 0-9 with channels 1 and 2."""
        return Client09(self.house, **{"version": V09, **changes}).channel(1, 2)

    def ticket(
        self, client: Client09 | None = None, channel: int = 1, realm: str = "/data", **rights: int
    ) -> int:
        """Request a ticket with some rights, by default with all."""
        found = (client or self.client).answer(
            "access.request", channel, realm=realm, **(rights or ALL)
        )
        return int(found["ticket"])


class RequestTests(RealmCase):
    def test_granted(self) -> None:
        """A ticket is a number of its own, and never 0."""
        found = [self.ticket(channel=channel) for channel in (1, 2)]
        self.assertEqual(len(set(found)), 2)
        self.assertNotIn(0, found)

    def test_unknown_realm(self) -> None:
        """An undefined realm is refused as a forbidden one is: 403, of the channel (I-05)."""
        texts = []
        for realm, rules in (("/none", EVERYTHING), ("/data", ["publish"])):
            house = self.world.house("b.test", access=[Rule.of(who="*", node="*", allow=rules)])
            policy = AccessPolicy([Rule.of(who="*", node="*", allow=rules)])
            context09(house).realms = AccessRealms(REALMS, policy.grants_somewhere)
            client = Client09(house, version=V09).channel()
            self.assertEqual(
                client.refused("access.request", realm=realm, read=1), ("channel", 403)
            )
            (text,) = [
                given["reply-text"] for _, _, given in client.methods if "reply-text" in given
            ]
            texts.append(text.replace(realm.encode() if isinstance(text, bytes) else realm, "R"))
        self.assertEqual(texts[0], texts[1])

    def test_rights_of_the_user(self) -> None:
        """A ticket is given for what the user may do somewhere, and for nothing else."""
        rules = [
            Rule.of(who="user:bob", node="*", deny=["create"]),
            Rule.of(who="user:*", node="orders", allow=["publish", "create"]),
        ]
        policy = AccessPolicy(rules)
        context09(self.house).realms = AccessRealms(REALMS, policy.grants_somewhere)
        bob = self.connected(principal=BOB)
        for right, is_granted in (
            ("write", True), ("passive", True), ("active", False), ("read", False),
        ):  # fmt: skip
            names = bob.ask("access.request", realm="/data", **{right: 1})
            self.assertEqual(names, ["access.request-ok" if is_granted else "channel.close"], right)
            if not is_granted:
                bob.write(call(1, "channel.close-ok"), call(1, "channel.open"))
        self.ticket(active=1)
        self.assertTrue(policy.grants_somewhere(Principal("user", "ann"), Verb.CREATE))

    def test_second_request(self) -> None:
        """A second request for a realm destroys the first ticket (09-ACC-07)."""
        first = self.ticket()
        other = self.ticket(realm="/shop")
        second = self.ticket(read=1)
        self.assertNotEqual(first, second)
        self.assertEqual(
            self.client.ask("basic.get", queue="q", ticket=second), ["basic.get-empty"]
        )
        self.assertEqual(
            self.client.ask("queue.declare", queue="shop.q", ticket=other), ["queue.declare-ok"]
        )
        self.assertEqual(
            self.client.refused("basic.get", queue="q", ticket=first), ("channel", 403)
        )

    def test_exclusive(self) -> None:
        """An exclusive ticket keeps others from the realm, and is refused while they use it."""
        self.ticket(active=1, exclusive=1)
        self.ticket(active=1, exclusive=1)  # the only one is its own (09-X-21)
        other = self.connected(principal=BOB)
        for fields in ({"read": 1}, {"read": 1, "exclusive": 1}):
            found = other.refused("access.request", realm="/data", **fields)
            self.assertEqual(found, ("channel", 403))
        self.assertEqual(other.ask("basic.get", queue="q"), ["basic.get-empty"])
        self.ticket(other, realm="/shop")
        found = self.client.refused("access.request", realm="/shop", exclusive=1, active=1)
        self.assertEqual(found, ("channel", 403))
        self.ticket(other)
        found = self.client.refused("access.request", realm="/data", exclusive=1, active=1)
        self.assertEqual(found, ("channel", 403))
        other.hang_up()
        self.ticket(active=1, exclusive=1)

    def test_exclusive_in_a_virtual_host(self) -> None:
        """A realm of another virtual host is another one."""
        self.ticket(active=1, exclusive=1)
        self.ticket(self.connected(virtual_host="shop"), active=1, exclusive=1)

    def test_end(self) -> None:
        """Nothing is left of tickets when channels and connections have ended."""
        realms = context09(self.house).realms
        for end in (
            lambda: self.client.ask("channel.close", reply_code=200),
            lambda: self.client.hang_up(),
        ):
            ticket = self.ticket(channel=1 if self.client.end else 2, exclusive=1, active=1)
            self.assertEqual(len(realms._holders), 1)
            end()
            self.world.advance()
            self.assertEqual(realms._holders, {})
            self.client = self.connected()
        found = self.client.refused("basic.get", queue="q", ticket=ticket)
        self.assertEqual(found, ("channel", 403))

    def test_bound(self) -> None:
        """A connection has so many tickets at most, whatever realms there are."""
        self.patch(access_realms, "MOST_TICKETS", 3)
        for number in range(3):
            self.ticket(realm=f"/lab/{number}")
        self.ticket(realm="/lab/0")
        found = self.client.refused("access.request", realm="/lab/9", read=1)
        self.assertEqual(found, ("channel", 406))

    def test_numbers_go_round(self) -> None:
        """Numbers are used again when all have been, but not those of tickets in force."""
        self.patch(access_realms, "LAST_TICKET", 3)
        kept = self.ticket(realm="/shop")
        found = [self.ticket() for _ in range(4)]
        self.assertEqual((kept, found), (1, [2, 3, 2, 3]))

    def test_0_9_1(self) -> None:
        """There a ticket is given for anything, and none is looked at, as RabbitMQ has it."""
        client = Client09(self.house).channel()
        for realm in ("/data", "/none"):
            found = client.answer("access.request", realm=realm, exclusive=1, active=1)
            self.assertEqual(found["ticket"], 1)
        self.assertEqual(client.ask("basic.get", queue="q", ticket=99), ["basic.get-empty"])
        self.ticket(active=1, exclusive=1)


class UseTests(RealmCase):
    METHODS = (
        ("active", "exchange.declare", {"exchange": "e", "type": "fanout"}),
        ("passive", "exchange.declare", {"exchange": "amq.fanout", "passive": 1}),
        ("active", "queue.declare", {"queue": "new"}),
        ("active", "queue.bind", {"queue": "q", "exchange": "amq.fanout"}),
        ("active", "queue.unbind", {"queue": "q", "exchange": "amq.fanout"}),
        ("read", "basic.consume", {"queue": "q", "consumer_tag": "c"}),
        ("read", "basic.get", {"queue": "q"}),
        ("read", "queue.purge", {"queue": "q"}),
        ("active", "queue.delete", {"queue": "new"}),
        ("active", "exchange.delete", {"exchange": "e"}),
    )

    def test_each_use(self) -> None:
        """A method needs a ticket that is good for it, and the ticket alone does not do."""
        for right, name, fields in self.METHODS:
            others = {each: 1 for each in ALL if each != right}
            lacking = self.ticket(**others)
            found = self.client.refused(name, ticket=lacking, **fields)
            self.assertEqual(found, ("channel", 403), name)
            names = self.client.ask(name, ticket=self.ticket(**{right: 1}), **fields)
            self.assertIn(names[0].rpartition("-")[2], ("ok", "empty"), name)

    def test_passive_declare_of_a_queue(self) -> None:
        """The field rule asks for active access; passive is enough to look (09-ACC-09)."""
        for right in ("passive", "active"):
            ticket = self.ticket(**{right: 1})
            names = self.client.ask("queue.declare", queue="q", passive=1, ticket=ticket)
            self.assertEqual(names, ["queue.declare-ok"])
        found = self.client.refused(
            "queue.declare", queue="q", passive=1, ticket=self.ticket(read=1)
        )
        self.assertEqual(found, ("channel", 403))

    def test_publish(self) -> None:
        """Publishing needs a ticket that is good for writing (09-X-63)."""
        self.client.publish(b"1", ticket=self.ticket(write=1))
        self.client.publish(b"2", ticket=self.ticket(write=1), exchange="amq.fanout")
        self.assertEqual((self.client.closes(), self.client.depth()), ([], 1))
        self.client.publish(b"3", ticket=self.ticket(read=1))
        self.assertEqual((self.client.closes(), self.client.depth()), ([("channel", 403)], 1))

    def test_publish_by_a_known_way(self) -> None:
        """A ticket is looked at although the way of such a message is known."""
        self.client.ask("queue.bind", queue="q", exchange="amq.fanout")
        for _ in range(2):
            self.client.publish(b"1", b"2", exchange="amq.fanout")
        lacking = self.ticket(read=1)
        self.client.publish(b"3", b"4", exchange="amq.fanout", ticket=lacking)
        self.assertEqual((self.client.closes(), self.client.depth()), ([("channel", 403)], 4))

    def test_no_ticket(self) -> None:
        """Ticket 0 is none: the user's own rights decide (I-15)."""
        self.client.publish(b"1")
        self.assertEqual(self.client.ask("basic.get", queue="q"), ["basic.get-ok"])

    def test_never_given(self) -> None:
        """A ticket that nobody has is refused."""
        for name, fields in (
            ("basic.get", {"queue": "q"}),
            ("queue.declare", {"queue": "new"}),
            ("exchange.declare", {"exchange": "e", "type": "direct"}),
        ):
            self.assertEqual(self.client.refused(name, ticket=77, **fields), ("channel", 403))
        self.client.publish(b"1", ticket=77)
        self.assertEqual((self.client.closes()[-1], self.client.depth()), (("channel", 403), 0))

    def test_of_another_channel(self) -> None:
        """A ticket of another channel closes the connection (09-ACC-13)."""
        for is_publish in (False, True):
            client = self.connected()
            ticket = self.ticket(client)
            if is_publish:
                client.methods.clear()
                client.publish(b"1", b"2", ticket=ticket, channel=2)
            else:
                client.ask("basic.get", 2, queue="q", ticket=ticket)
            self.assertEqual(client.closes(), [("connection", 530)])
        self.assertEqual(self.house.broker.nodes["q"].depth, 0)

    def test_of_another_connection(self) -> None:
        """A ticket of another connection is none here."""
        ticket = self.ticket(self.connected())
        found = self.client.refused("basic.get", queue="q", ticket=ticket)
        self.assertEqual(found, ("channel", 403))

    def test_other_realm(self) -> None:
        """A ticket is good for what its realm has; what is new has to belong to it."""
        ticket = self.ticket(realm="/shop")
        for name, fields in (
            ("queue.declare", {"queue": "shop.q"}),
            ("exchange.declare", {"exchange": "shop.e", "type": "fanout"}),
            ("queue.bind", {"queue": "shop.q", "exchange": "shop.e"}),
            ("queue.purge", {}),  # the queue that was declared last
        ):
            names = self.client.ask(name, ticket=ticket, **fields)
            self.assertEqual(names, [f"{name}-ok"])
        self.client.publish(b"1", key="shop.q", ticket=ticket)
        self.client.publish(b"2", exchange="shop.e", ticket=ticket)
        self.assertEqual(self.client.depth("shop.q"), 2)
        for name, fields in (
            ("queue.declare", {"queue": "q"}),
            ("queue.declare", {"queue": "other"}),
            ("exchange.declare", {"exchange": "other", "type": "fanout"}),
            ("basic.get", {"queue": "q"}),
        ):
            ticket = self.ticket(realm="/shop")
            self.assertEqual(self.client.refused(name, ticket=ticket, **fields), ("channel", 403))
        for fields in ({"key": "q"}, {"exchange": "amq.fanout"}):
            ticket = self.ticket(realm="/shop")
            self.client.publish(b"1", ticket=ticket, **fields)
            self.assertEqual(self.client.closes(), [("channel", 403)])
            self.client.write(call(1, "channel.close-ok"), call(1, "channel.open"))
            self.client.methods.clear()

    def test_more_than_the_rules(self) -> None:
        """A ticket gives no right that the access rules do not."""
        rules = [Rule.of(who="*", node="q", allow=["consume"]),
                 Rule.of(who="*", node="mine", allow=["create", "publish"])]  # fmt: skip
        self.house = self.world.house("b.test", access=rules)
        client = self.connected()
        for name, fields in (
            ("queue.declare", {"queue": "other"}),
            ("queue.delete", {"queue": "q"}),
        ):
            found = client.refused(name, ticket=self.ticket(client), **fields)
            self.assertEqual(found, ("channel", 403), name)

    def test_realms_change(self) -> None:
        """A ticket is good for what its realm has now."""
        ticket = self.ticket(realm="/shop")
        context09(self.house).realms.adopt({"/shop": ["*"]})
        self.assertEqual(
            self.client.ask("basic.get", queue="q", ticket=ticket), ["basic.get-empty"]
        )
        context09(self.house).realms.adopt({})
        found = self.client.refused("basic.get", queue="q", ticket=ticket)
        self.assertEqual(found, ("channel", 403))

    def test_large_publish(self) -> None:
        """A large message is refused before its first octet is stored."""
        self.house = large_house(self.world, "c.test")
        client = self.connected(part_from=PART_FROM)
        client.publish(b"x" * (4 * PART_FROM), ticket=self.ticket(client, read=1))
        self.assertEqual((client.closes(), client.depth()), ([("channel", 403)], 0))
