# SPDX-License-Identifier: Apache-2.0
"""The management node over the wire: names, order, replies, and links into the relay (topic G)."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import skipUnless

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Rule
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10.types import ULong
from tests.conformance.frame_broker import (
    Client,
    FrameBroker,
    Network,
    attach,
    condition,
    message,
    section,
    section_of,
)

try:
    import proton
except ImportError:
    proton = None

ADMIN = 1
"""The handle of the link to the management node."""


class Operator:
    """A client with a link to ``amqp$admin`` and a dynamic node for the replies.

    Attributes:
        client: the connection.
        address: that of the dynamic node.
    """

    def __init__(self, house: FrameBroker, principal: Principal | None = None) -> None:
        kinds = () if principal is None else (principal,)
        self.client: Client = house.client(*kinds).ready("operator")
        source = spec.Source(dynamic=True)
        self.address = self.client.receiver(None, source=source, credit=1000).source.address
        self.client.sender("amqp$admin", handle=ADMIN)
        self.count = 0

    def request(self, text: str, **fields: Any) -> bytes:
        """Encode a transfer with commands; its message-id is its delivery-id unless said."""
        number, self.count = self.count, self.count + 1
        given = {"message_id": ULong(number), "reply_to": self.address, **fields}
        asked = codec.encode(spec.Properties(**given))
        return self.client.transfer(
            number, asked + section(spec.SECTION_AMQP_VALUE, text), handle=ADMIN
        )

    def ask(self, text: str, **fields: Any) -> bytes:
        """Send commands; return the reply as it came."""
        self.client.write(self.request(text, **fields))
        self.client.run()
        state = self.client.one(spec.Disposition).state
        assert isinstance(state, spec.Accepted), state
        (reply,) = self.client.messages()
        return reply

    def statuses(self, text: str) -> list[int]:
        """Send commands; return the status of each."""
        body = section_of(self.ask(text), spec.SECTION_AMQP_VALUE)
        return [int(each["status"]) for each in body["results"]]


class ReplyTests(SynchronousTestCase):
    """G-19, G-27."""

    @skipUnless(proton, "python-qpid-proton is not installed")
    def test_correlation(self) -> None:
        """G-19: the correlation-id is the message-id in value and type, as Qpid Proton reads it."""
        operator = Operator(Network().house())
        number = uuid.UUID(int=77)
        for sent, wanted in (
            (ULong(7), 7),
            ("m-1", "m-1"),
            (b"\x00\xff", b"\x00\xff"),
            (number, number),
        ):
            reply = proton.Message()
            reply.decode(operator.ask("query queue", message_id=sent, correlation_id="other"))
            found = reply.correlation_id
            found = bytes(found) if isinstance(found, memoryview) else found
            self.assertEqual((found, type(found)), (wanted, type(wanted)))
            self.assertEqual(reply.address, operator.address)
            self.assertIs(type(reply.properties["statusCode"]), proton.int32)
            self.assertEqual(reply.properties["statusCode"], 200)
        reply = proton.Message()
        reply.decode(operator.ask("query queue", message_id=None, correlation_id="c-9"))
        self.assertEqual(reply.correlation_id, "c-9")

    def test_once_and_in_order(self) -> None:
        """G-27: many requests in one segment: run as they came, each answered once."""
        house = Network().house()
        operator = Operator(house)
        count = 50
        texts = ["create queue a", "rename queue a b", "rename queue b a", "delete queue a"]
        operator.client.write(*(operator.request(texts[n % 4]) for n in range(count)))
        operator.client.run()
        replies = operator.client.messages()
        properties = [section_of(each, spec.SECTION_PROPERTIES) for each in replies]
        self.assertEqual([each.correlation_id for each in properties], list(range(count)))
        statuses = [
            int(section_of(each, spec.SECTION_AMQP_VALUE)["results"][0]["status"])
            for each in replies
        ]
        self.assertEqual(statuses, ([201, 200, 200, 204] * count)[:count])
        operator.client.run(60)
        self.assertEqual(operator.client.messages(), [])

    def test_reply_to_with_our_domain(self) -> None:
        """A-02, G-19: the address of a dynamic node as it was given, domain and all."""
        operator = Operator(Network().house("a.test", qualify=True))
        self.assertTrue(operator.address.endswith("@a.test"))
        reply = operator.ask("query queue")
        self.assertEqual(section_of(reply, spec.SECTION_PROPERTIES).to, operator.address)


class NameTests(SynchronousTestCase):
    """G-24: a name means the same node to management as on a link."""

    def setUp(self) -> None:
        self.house = Network().house("a.test")
        self.operator = Operator(self.house)

    def outcome(self, address: str) -> str | None:
        """Send a message to an address; return why not, or None."""
        client = self.house.client().ready("sender")
        client.send(attach("sender", "s", 0, address))
        if client.one(spec.Attach).target is None:
            return condition(client.one(spec.Detach))
        client.publish(0)
        state = client.one(spec.Disposition).state
        return None if isinstance(state, spec.Accepted) else condition(state)

    def test_links_and_commands(self) -> None:
        """Created nodes can be attached to; renamed and deleted ones cannot any more."""
        self.assertEqual(self.operator.statuses("create queue a\ncreate alias x a"), [201, 201])
        for address in ("a", "a@a.test", "/queues/a", "x"):
            self.assertIsNone(self.outcome(address), address)
        self.assertEqual(self.house.depth("a"), 4)
        self.assertEqual(self.operator.statuses("rename queue a b"), [200])
        self.assertEqual(self.outcome("a"), "amqp:not-found")
        self.assertIsNone(self.outcome("b@a.test"))
        self.assertIsNone(self.outcome("x"))
        self.assertEqual(self.house.depth("b"), 6)
        self.assertEqual(self.operator.statuses("delete alias x\ndelete queue b"), [204, 204])
        for address in ("b", "b@a.test", "/queues/b", "x"):
            self.assertEqual(self.outcome(address), "amqp:not-found", address)

    def test_every_spelling(self) -> None:
        """A command may name a node as a link does: with our domain, or as `/queues/NAME`."""
        text = "create queue a\ncreate queue c"
        self.assertEqual(self.operator.statuses(text), [201, 201])
        for name in ("a", "a@a.test", "a@A.TEST.", "/queues/a"):
            text = f"assert queue {name}\nupdate queue {name} with capacity=5"
            self.assertEqual(self.operator.statuses(text), [200, 200], name)
            body = section_of(self.operator.ask(f"query queue {name}"), spec.SECTION_AMQP_VALUE)
            (row,) = body["results"][0]["attributes"]["entities"]
            self.assertEqual((row["name"], row["capacity"]), ("a", 5), name)
        self.assertEqual(self.operator.statuses("create link l /queues/a c@a.test"), [201])
        (link,) = self.house.broker.bindings
        self.assertEqual((link.source, link.target), ("a", "c"))
        self.assertEqual(self.operator.statuses("assert queue a@b.test"), [404])
        self.assertEqual(self.operator.statuses("create queue a@a.test"), [400])
        self.assertEqual(self.operator.statuses("delete queue c@a.test"), [204])
        self.assertNotIn("c", self.house.broker.nodes)

    def test_no_alias_of_management(self) -> None:
        """K-01: by no alias, spelling or `to` does anything come to the management node."""
        self.house.world.house("b.test")
        names = ("$management", "amqp$admin")
        for name in names:
            for address in (f"{name}@a.test", f"{name}@b.test"):
                self.assertEqual(self.outcome(address), "amqp:not-allowed", address)
            self.assertEqual(self.operator.statuses(f"create alias x {name}"), [404])
        client = self.house.client().ready("sender")
        text = section(spec.SECTION_AMQP_VALUE, "create queue a")
        number = 0
        for handle, address in enumerate((None, "amqp$transfer", "@a.test", "@b.test")):
            client.sender(address, handle=handle)
            for to in (f"{name}@{domain}" for name in names for domain in ("a.test", "b.test")):
                asked = codec.encode(spec.Properties(to=to, reply_to="q"))
                client.publish(number, asked + text, handle=handle)
                number += 1
                client.run(1)
                state = client.one(spec.Disposition).state
                self.assertIsInstance(state, spec.Rejected, (address, to))
        self.assertNotIn("a", self.house.broker.nodes)

    def test_rights_by_name(self) -> None:
        """G-25: the rules of access are asked about the node, however it is spelled."""
        ann = Principal("user", "ann")
        rules = [
            Rule.of(who="user:ann", node="$management", allow=["manage"]),
            Rule.of(who="user:ann", node="amqp$admin", allow=["manage"]),
            Rule.of(who="user:ann", node="dynamic", allow=["create"]),
            Rule.of(who="user:ann", node="team.*", allow=["manage"]),
        ]
        house = Network().house("a.test", nodes=["team.in", "q"], access=rules)
        operator = Operator(house, ann)
        for text, wanted in (
            ("create queue team.a", [201]),
            ("create queue a", [403]),
            ("rename queue team.a a", [403]),
            ("rename queue team.a team.b", [200]),
            ("purge queue q", [403]),
            ("purge queue q@a.test", [403]),
            ("purge queue /queues/q", [403]),
            ("create link l team.in team.b", [201]),
            ("create link m q team.b", [403]),
            ("create link m team.in q@a.test", [403]),
            ("create queue team.c\ndelete queue q", [424, 403]),
            ("query queue q", [200]),
        ):
            self.assertEqual(operator.statuses(text), wanted, text)
        self.assertEqual(set(house.broker.nodes) & {"a", "team.a", "team.c"}, set())


class LinkTests(SynchronousTestCase):
    """G-12, G-13: links made by command, into the relay too."""

    def test_into_the_relay(self) -> None:
        """A link to ``NODE@DOMAIN`` takes what fits to the other broker, once it is made."""
        world = Network()
        near = world.house("a.test", nodes=["out"])
        far = world.house("b.test", nodes=["in"])
        operator = Operator(near)
        client = near.client().ready("sender")
        client.sender("out")
        client.publish(0, message(b"red", application={"color": "red"}))
        client.publish(1, message(b"blue", application={"color": "blue"}))
        text = "create link l out in@b.test with filter=\"color = 'red'\""
        self.assertEqual(operator.statuses(text), [201])
        world.advance(1)
        self.assertEqual((near.depth("out"), far.depth("in")), (1, 1))
        self.assertEqual(operator.statuses("create link l out in@b.test"), [409])
        self.assertEqual(operator.statuses("create or assert " + text.removeprefix("create ")),
                         [200])  # fmt: skip
        self.assertEqual(operator.statuses("delete link l\nassert link l"), [424, 404])
        self.assertEqual(operator.statuses("delete link l"), [204])
        client.publish(2, message(b"red", application={"color": "red"}))
        world.advance(1)
        self.assertEqual((near.depth("out"), far.depth("in")), (2, 1))


class DeleteTests(SynchronousTestCase):
    """G-07."""

    def test_links_are_told(self) -> None:
        """Every link of a deleted queue, of either direction, is detached, closed, and told why."""
        house = Network().house(nodes=[])
        operator = Operator(house)
        self.assertEqual(operator.statuses("create queue a\ncreate queue b"), [201, 201])
        client = house.client().ready("worker")
        client.sender("a", handle=0)
        client.receiver("a", handle=1, credit=5)
        client.receiver("b", handle=2, credit=5)
        client.publish(0)
        client.run()
        self.assertEqual(operator.statuses("delete queue a with if-empty=true"), [409])
        self.assertEqual(operator.statuses("delete queue a with if-unused=true"), [409])
        self.assertTrue(client.none(spec.Detach))
        self.assertEqual(operator.statuses("delete queue a"), [204])
        client.run()
        gone = client.all(spec.Detach)
        self.assertEqual(len({each.handle for each in gone}), 2)
        for detach in gone:
            self.assertTrue(detach.closed)
            self.assertEqual(condition(detach), "amqp:resource-deleted")
        self.assertEqual(operator.statuses("delete queue a"), [404])
        self.assertTrue(client.none(spec.End) and client.none(spec.Close))
        self.assertEqual(operator.statuses("delete queue b with if-empty=true"), [204])
