# SPDX-License-Identifier: Apache-2.0
"""Exchanges as clients of 1.0 see them: ``/exchanges/NAME[/KEY]``, beside queues of equal names."""

from __future__ import annotations

from typing import Any

from amqproute import conditions
from amqproute.address import exchange_node, from_exchange_address, node_of_rules
from amqproute.auth.policy import Rule
from amqproute.broker.exchanges.argument_rules import exchange_definition
from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.errors import InvalidField, NotAllowed
from amqproute.message import Message
from amqproute.values import Principal
from amqproute.wire.amqp10 import codec, sections, spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import Client, MemoryBroker, Network

EVERYTHING = Rule.of(who="*", node="*", allow=["publish", "consume", "transfer"])


def message_about(subject: str | None, body: bytes = b"x", **headers: Any) -> Message:
    """Return a message with a subject and application properties."""
    parts = [codec.encode(spec.Properties(subject=subject))]
    if headers:
        parts.append(sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, headers))
    return Message(b"".join((*parts, sections.encode_section(spec.SECTION_DATA, body))))


class AddressTests(HouseTestCase):
    """The address of an exchange."""

    def test_read(self) -> None:
        """Name and key are percent-encoded; nothing else is an exchange."""
        self.assertEqual(from_exchange_address("/exchanges/e"), ("e", None))
        self.assertEqual(from_exchange_address("/exchanges/e/"), ("e", ""))
        self.assertEqual(from_exchange_address("/exchanges/a%2Fb/k%40x.y"), ("a/b", "k@x.y"))
        for text in ("e", "/queues/e", "/exchanges", "exchanges/e"):
            self.assertIsNone(from_exchange_address(text))
        for text in (
            "/exchanges/",
            "/exchanges//k",
            "/exchanges/e/k/l",
            "/exchanges/e%2",
            "/exchanges/%ff",
        ):
            self.assertRaises(InvalidField, from_exchange_address, text)

    def test_rules(self) -> None:
        """Access rules know an exchange without keys, and every other node as it is."""
        self.assertEqual(node_of_rules("/exchanges/a%2Fb/key"), "/exchanges/a%2Fb")
        for name in ("a/b", "a%2Fb", "a b@c", "%"):
            self.assertEqual(from_exchange_address(exchange_node(name)), (name, None))
            self.assertEqual(node_of_rules(exchange_node(name)), exchange_node(name))
        self.assertEqual(node_of_rules("/exchanges/e"), exchange_node("e"))
        self.assertEqual(node_of_rules("celery"), "celery")


class ClientTests(HouseTestCase):
    """A client of 1.0, a queue and an exchange that are both named ``celery``, and others."""

    def setUp(self) -> None:
        super().setUp()
        self.build()

    def build(self, *rules: Rule) -> None:
        """Build the house."""
        self.network = Network(self.clock)
        self.house = MemoryBroker(
            self.network,
            "alpha.example",
            *(node(name) for name in ("celery", "other", "copy")),
            rules=[*rules, EVERYTHING],
        )
        self.topology = self.house.broker.topology
        for name, kind in (("celery", "topic"), ("h", "headers"), ("inner", "direct")):
            flags = {"durable": True, "internal": name == "inner"}
            self.topology.declare(exchange_definition(name, kind, flags, {}))
        self.bind("celery", "other", "orders.#")
        self.bind("celery", "copy", "copies")
        self.bind("h", "other", "", **{"x-match": "all", "n": 3})
        self.client: Client = self.house.client()
        self.run_now()

    def bind(self, exchange: str, queue: str, key: str, **arguments: object) -> None:
        """Bind a queue."""
        target = BindingTarget(TargetKind.QUEUE, queue)
        self.topology.bind(ExchangeBinding(exchange, target, key, arguments))

    def send(self, address: str | None, *messages: Message) -> list[str]:
        """Send messages on a link of their own; return what became of them, sorted."""
        before = len(self.client.updates)
        link = self.client.sender(address, f"to {address} {before}")
        self.run_now()
        self.client.send(link, *messages)
        self.run_now()
        return sorted(self.client.outcomes()[before:])

    def refused(self, address: str, condition: str) -> None:
        """Check that a link is refused."""
        link = self.client.sender(address, address)
        self.run_now()
        self.assertDetached(self.client, link, condition)

    def test_two_name_spaces(self) -> None:
        """A bare name is the queue, and so is /queues/; /exchanges/ is the exchange."""
        self.assertEqual(self.send("celery", message()), ["Accepted"])
        self.assertEqual(self.send("/queues/celery", message()), ["Accepted"])
        self.assertEqual((self.house.depth("celery"), self.house.depth("other")), (2, 0))
        self.assertEqual(self.send("/exchanges/celery/orders.eu", message()), ["Accepted"])
        self.assertEqual((self.house.depth("celery"), self.house.depth("other")), (2, 1))
        self.refused("/exchanges/none", conditions.NOT_FOUND)
        self.refused("/exchanges/inner", conditions.NOT_ALLOWED)
        self.refused("/exchanges/", conditions.INVALID_FIELD)

    def test_keys(self) -> None:
        """The key of the address, else the subject; x-cc adds keys; consumers see both names."""
        sent = [message_about("orders"), message_about("none"), message_about(None)]
        self.assertEqual(
            self.send("/exchanges/celery", *sent), ["Accepted", "Rejected", "Rejected"]
        )
        codes = [state.error.info["code"] for _, state, _ in self.client.updates[:2]]
        self.assertEqual(codes, ["exchange.unroutable"] * 2)
        copied = message(annotations={"x-cc": ["copies"], "x-opt-a": 1})
        self.assertEqual(self.send("/exchanges/celery/orders.x", copied), ["Accepted"])
        self.assertEqual((self.house.depth("other"), self.house.depth("copy")), (2, 1))
        (row,) = self.house.store.rows(self.house.broker.nodes["copy"].rows)
        annotations = Message(row.encoded).annotations
        self.assertEqual(annotations["x-exchange"], "celery")
        self.assertEqual(annotations["x-routing-key"], "orders.x")
        self.assertEqual(annotations["x-opt-a"], 1)
        wrong = message(annotations={"x-cc": "copies"})
        self.assertEqual(self.send("/exchanges/celery/orders", wrong), ["Rejected"])
        self.assertEqual(self.send("/exchanges/celery", message_about("k" * 256)), ["Rejected"])

    def test_headers(self) -> None:
        """Application properties are the headers of a message."""
        right, wrong = message_about(None, n=3), message_about(None, n=4)
        self.assertEqual(self.send("/exchanges/h", right, wrong), ["Accepted", "Rejected"])
        self.assertEqual(self.house.depth("other"), 1)

    def test_by_each_message(self) -> None:
        """A link without address reaches exchanges by `to`."""
        sent = [message(to="/exchanges/celery/orders"), message(to="/exchanges/none/k")]
        self.assertEqual(self.send(None, *sent), ["Accepted", "Rejected"])
        self.assertEqual(self.house.depth("other"), 1)

    def test_nothing_to_receive(self) -> None:
        """Messages are on queues; the answer says so."""
        link = self.client.receiver("/exchanges/celery", 1)
        self.run_now()
        error = self.assertDetached(self.client, link, NotAllowed.condition)
        self.assertIn("bind a queue", str(error.description))

    def test_rights(self) -> None:
        """Rules name the kind: a right on the queue is none on the exchange, and the reverse."""
        self.build(
            Rule.of(who="user:ann", node="/exchanges/celery", deny=["publish"]),
            Rule.of(who="user:ann", node="other", deny=["publish"]),
        )
        self.assertEqual(self.send("celery", message()), ["Accepted"])
        self.assertEqual(self.send("/exchanges/h", message_about(None, n=3)), ["Accepted"])
        for address in ("/exchanges/celery", "/exchanges/celery/orders", "/exchanges/c%65lery/x"):
            self.refused(address, conditions.UNAUTHORIZED_ACCESS)
        self.assertEqual(self.send(None, message(to="/exchanges/celery/orders")), ["Rejected"])

    def test_partners(self) -> None:
        """Exchanges are for clients of this broker: a partner knows nodes."""
        beta = Principal("peer", "beta.example", frozenset({"beta.example"}))
        peer = self.house.client(beta, container_id="ct-beta")
        link = peer.sender("/exchanges/celery/orders")
        self.run_now()
        self.assertDetached(peer, link, conditions.UNAUTHORIZED_ACCESS)
        link = peer.sender("amqp$transfer", "second")
        self.run_now()
        peer.send(link, message(to="/exchanges/celery/orders"))
        self.run_now()
        self.assertOutcomes(peer, "Rejected")
        self.assertEqual(self.house.depth("other"), 0)

    def test_queue_with_at_sign(self) -> None:
        """A queue of such a name on 0-9-1 is a source by /queues/, and no target by that."""
        broker = self.house.broker
        mailbox = broker.nodes["celery"]
        broker.rename("celery", "box@beta.example")
        link = self.client.receiver("/queues/box%40beta.example", 5)
        self.run_now()
        self.assertTrue(link.is_active)
        target = broker.topology.route("", ("box@beta.example",), {})
        self.assertEqual((target.queues, target.addresses), ((), ("box@beta.example",)))
        self.bind("celery", "box@beta.example", "mail")
        self.assertEqual(self.send("/exchanges/celery/mail", message(b"here")), ["Accepted"])
        self.assertEqual(self.client.bodies(), [b"here"])
        self.assertEqual(mailbox.consumers, 1)
