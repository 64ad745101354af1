# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts: opened by both protocols, and a border that no form of an address crosses.

Rules: 09-CONN-21, 09-CONN-23, 09-ERR-09, 09-EXCH-03, 09-X-15, 09-X-17.
"""

from __future__ import annotations

import uuid
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.host_policies import HostPolicies
from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.broker.node_declaration import TopicDeclaration
from amqproute.frontends.common.virtual_hosts import VirtualHosts, VirtualHostTerms
from amqproute.values import RETURN_TO, Principal
from amqproute.wire.amqp10 import spec
from tests.conformance.frame_broker import (
    AMQP_HEADER,
    Client,
    FrameBroker,
    Network,
    attach,
    condition,
    frame,
    message,
)
from tests.support.client09 import Client09
from tests.support.wire09 import V09

ALICE = Principal("user", "alice")
PEER = Principal("peer", "b.test", frozenset({"b.test"}))
OTHERS = ("", "shop", "local")
"""The virtual hosts of the tests: all others, one with a domain, one without."""


class HostCase(SynchronousTestCase):
    """A broker with virtual hosts; in each there is a queue of the same name."""

    def setUp(self) -> None:
        self.world = Network()
        self.house = self.world.house(
            "a.test",
            nodes=["q", TopicDeclaration("t"), TopicDeclaration("//shop/t")],
            hosts={"shop": ["shop.test"], "local": []},
        )
        for host in ("shop", "local"):
            client = self.client09(host)
            client.ask("queue.declare", queue="q", durable=1)
            client.hang_up()

    def client09(self, host: str = "", **changes: Any) -> Client09:
        """Return a client of 0-9-1 in a virtual host, with channel 1 open."""
        return Client09(self.house, ALICE, virtual_host=f"/{host}", **changes).channel()

    def client10(
        self, hostname: str | None, container: str = "client", house: FrameBroker | None = None
    ) -> Client:
        """Return a client of 1.0 with a session."""
        client = (house or self.house).client(ALICE)
        return client.opened(container, hostname=hostname).begun()

    def depths(self) -> dict[str, int]:
        """Return how many messages are on each queue that has some."""
        nodes = self.house.broker.nodes
        return {name: queue.depth for name, queue in nodes.items() if queue.depth}

    def attached(self, client: Client, role: str, address: str | None, **fields: Any) -> str | None:
        """Attach and detach; return the condition of the refusal, None if there is none."""
        handle = next(self._handles)
        client.send(attach(role, str(uuid.uuid4()), handle, address, **fields))
        answer = client.one(spec.Attach)
        if (answer.target if role == "sender" else answer.source) is None:
            return condition(client.one(spec.Detach))
        client.send(spec.Detach(handle=handle, closed=True))
        client.names()
        return None

    _handles = iter(range(1, 1 << 30))


class OpenTests(HostCase):
    """The virtual host of a connection."""

    def refusal(self, name: str, principal: Principal = ALICE, **changes: Any) -> tuple[int, str]:
        client = Client09(self.house, principal, virtual_host=name, **changes)
        (found,) = [given for _, each, given in client.methods if each == "connection.close"]
        return found["reply-code"], found["reply-text"]

    def test_names(self) -> None:
        """A name counts with a slash and without; a domain stands for what it belongs to."""
        for name in ("/", "", "shop", "/shop", "local", "a.test", "/A.test.", "shop.test"):
            client = Client09(self.house, ALICE, virtual_host=name)
            self.assertIn("connection.open-ok", client.names(), name)

    def test_unknown(self) -> None:
        """One that is not there is refused with the code of the version."""
        self.assertEqual(
            self.refusal("/none"), (530, "NOT_ALLOWED - there is no virtual host '/none'")
        )
        self.assertEqual(self.refusal("none", version=V09)[0], 402)
        self.assertEqual(self.refusal("//shop")[0], 530)

    def test_not_allowed(self) -> None:
        """Whom the rules of the virtual host allow nothing may not open it."""
        self.house.shared.hosts._may_open = lambda principal, _: principal.name != "bob"
        bob = Principal("user", "bob")
        words = "NOT_ALLOWED - access to virtual host 'shop' refused for user:bob"
        self.assertEqual(self.refusal("shop", bob), (530, words))
        self.assertEqual(self.refusal("shop", bob, version=V09)[0], 403)
        self.assertEqual(self.refusal("shop", PEER)[0], 530)
        client = self.house.client(bob)
        client.write(AMQP_HEADER, frame(spec.Open(container_id="c", hostname="shop")))
        self.assertEqual(condition(client.one(spec.Close)), "amqp:unauthorized-access")

    def test_hostname(self) -> None:
        """Clients of 1.0 say it in the hostname; other names mean ``/``, as they did."""
        for hostname, host in (
            (None, ""), ("shop", "shop"), ("vhost:shop", "shop"), ("vhost:/shop", "shop"),
            ("Shop.TEST.", "shop"), ("vhost:/", ""), ("localhost", ""), ("a.test", ""),
        ):  # fmt: skip
            self.client10(hostname)
            self.assertEqual(self.house.frontends[-1].principal.host, host, hostname)

    def test_unknown_hostname(self) -> None:
        """A virtual host that is named as such has to be there."""
        client = self.house.client(ALICE)
        client.write(AMQP_HEADER, frame(spec.Open(container_id="c", hostname="vhost:none")))
        closed = client.one(spec.Close)
        self.assertEqual(condition(closed), "amqp:not-found")
        self.assertIn("no virtual host 'none'", closed.error.description)

    def test_brokers(self) -> None:
        """The broker of a partner is in none, whatever domain it looks for."""
        self.house.client(PEER).opened("b.test", hostname="shop.test")
        self.assertEqual(self.house.frontends[-1].principal, PEER)

    def test_most_connections(self) -> None:
        """One connection too many is refused until another has gone."""
        hosts = self.house.shared.hosts
        hosts.adopt({"shop": VirtualHostTerms(most_connections=1)})
        first = self.client09("shop")
        self.assertEqual(self.refusal("shop")[0], 530)
        self.assertIn("max-connections", self.refusal("shop")[1])
        self.assertEqual(hosts.connections("shop"), 1)
        first.hang_up()
        self.assertEqual(hosts.connections("shop"), 0)
        self.client09("shop")

    def test_most_nodes(self) -> None:
        """Queues of every kind count, and the next one is refused in words."""
        self.house.broker.hosts = {"shop": 4, "local": None}
        client = self.client09("shop")
        self.assertEqual(client.ask("queue.declare", queue="2", durable=1), ["queue.declare-ok"])
        self.assertEqual(client.ask("queue.declare", queue="3"), ["queue.declare-ok"])
        self.assertEqual(client.refused("queue.declare", queue="4"), ("connection", 506))
        answer = self.client10("shop")
        answer.send(attach("receiver", "dynamic", 0, None, source=spec.Source(dynamic=True)))
        answer.one(spec.Attach)
        self.assertEqual(condition(answer.one(spec.Detach)), "amqp:resource-limit-exceeded")
        self.assertEqual(
            self.client09("local").ask("queue.declare", queue="3"), ["queue.declare-ok"]
        )


class BorderTests(HostCase):
    """No form of an address leads from one virtual host to another."""

    def test_queues_of_one_name(self) -> None:
        """Queues of one name are three; 0-9-1 and 1.0 meet in each."""
        for host in OTHERS:
            self.client09(host).publish(host.encode() or b"/")
        for host in OTHERS:
            client = self.client10(f"vhost:{host}", f"c-{host}")
            client.receiver("q", credit=5)
            self.assertEqual(client.bodies(), [host.encode() or b"/"])

    def test_declare_and_delete(self) -> None:
        """Passive declares, deletes and purges find the own queues and exchanges alone."""
        shop = self.client09("shop")
        shop.ask("queue.declare", queue="own")
        shop.ask("exchange.declare", exchange="own", type="fanout")
        for host in ("", "local"):
            for name in ("own", "//shop/own"):
                for method, given in (
                    ("queue.declare", {"passive": 1, "queue": name}),
                    ("queue.purge", {"queue": name}),
                    ("basic.consume", {"queue": name}),
                    ("basic.get", {"queue": name}),
                    ("exchange.declare", {"passive": 1, "exchange": name, "type": "fanout"}),
                    ("queue.bind", {"queue": name, "exchange": "amq.fanout"}),
                    ("queue.bind", {"queue": "q", "exchange": name}),
                    ("exchange.bind", {"source": name, "destination": "amq.fanout"}),
                    ("exchange.bind", {"source": "amq.fanout", "destination": name}),
                ):
                    client = self.client09(host)
                    self.assertEqual(client.refused(method, **given)[1], 404, (host, name, method))
                self.client09(host).ask("queue.delete", queue=name)
                self.client09(host).ask("exchange.delete", exchange=name)
        self.assertEqual(shop.ask("queue.declare", queue="own", passive=1), ["queue.declare-ok"])
        again = shop.ask("exchange.declare", exchange="own", passive=1, type="fanout")
        self.assertEqual(again, ["exchange.declare-ok"])

    def test_default_exchange(self) -> None:
        """A key that names a queue elsewhere, in whatever form, goes to no queue."""
        for host in OTHERS:
            for key in (
                "//shop/q",
                "//local/q",
                "///q",
                "/queues/q",
                "//shop//exchanges/amq.fanout",
            ):
                self.client09(host).publish(b"x", key=key)
        self.assertEqual(self.depths(), {})

    def test_addresses_by_the_default_exchange(self) -> None:
        """``NAME@DOMAIN`` leads to a node of the own virtual host only."""
        for host, key, code in (
            ("shop", "q@a.test", 403), ("local", "q@a.test", 403), ("local", "q@shop.test", 403),
            ("", "q@shop.test", 403), ("shop", "//local/q@shop.test", 406),
            ("", "//shop/q@a.test", 406),
        ):  # fmt: skip
            client = self.client09(host)
            client.publish(b"x", key=key)
            self.assertEqual(client.closes(), [("channel", code)], (host, key))
        self.assertEqual(self.depths(), {})
        self.client09("shop").publish(b"x", key="q@shop.test")
        self.client09("").publish(b"x", key="q@a.test")
        self.assertEqual(self.depths(), {"//shop/q": 1, "q": 1})

    def test_exchanges(self) -> None:
        """Exchanges of one name have bindings of their own; all have the predeclared ones."""
        for host in OTHERS:
            client = self.client09(host)
            client.ask("queue.bind", queue="q", exchange="amq.fanout")
        self.client09("shop").publish(b"x", exchange="amq.fanout")
        self.assertEqual(self.depths(), {"//shop/q": 1})

    def test_links(self) -> None:
        """No address of a link leads out, for sending, receiving or browsing."""
        self.client09("shop").ask("queue.declare", queue="own")
        self.client09("shop").ask("queue.declare", queue="at@x")
        self.client09("shop").ask("exchange.declare", exchange="own", type="fanout")
        forms = [
            "own", "/queues/own", "own@shop.test", "/queues/own%40shop.test", "//shop/own",
            "/queues/%2F%2Fshop%2Fown", "//shop/own@a.test", "//shop/own@shop.test",
            "/queues/at%40x", "/queues/%2F%2Fshop%2Fat%40x", "/topics/own",
            "/exchanges/own", "/exchanges/own/key", "//shop//exchanges/own",
            "/exchanges/own@shop.test", "/exchanges/%2F%2Fshop%2Fown",
        ]  # fmt: skip
        for hostname in ("a.test", "local"):
            client = self.client10(hostname)
            for form in forms:
                for role in ("sender", "receiver"):
                    self.assertIsNotNone(self.attached(client, role, form), (hostname, role, form))
        inside = self.client10("shop")
        for form in ("own", "/queues/own", "own@shop.test", "/queues/own%40shop.test"):
            for role in ("sender", "receiver"):
                self.assertIsNone(self.attached(inside, role, form), form)
        for form in ("/exchanges/own", "/exchanges/own/key"):
            self.assertIsNone(self.attached(inside, "sender", form), form)
        self.assertIsNone(self.attached(inside, "receiver", "/queues/at%40x"))
        for form in ("q@a.test", "@a.test", "//local/q", "amqp$admin", "$management", "amqp$probe"):
            self.assertIsNotNone(self.attached(inside, "sender", form), form)
        self.assertIsNone(self.attached(inside, "sender", "@shop.test"))

    def test_anonymous_terminus(self) -> None:
        """`to` is an address like the others."""
        for hostname, to in (
            ("local", "q@a.test"), ("local", "q@shop.test"), ("shop", "q@a.test"),
            ("shop", "//local/q"), ("a.test", "q@shop.test"), ("a.test", "//shop/q"),
            ("shop", "amqp$admin"), ("shop", "amqp$admin@shop.test"),
        ):  # fmt: skip
            for address in (None, "amqp$transfer"):
                client = self.client10(hostname)
                client.sender(address)
                client.publish(0, message(b"x", to=to))
                state = client.one(spec.Disposition).state
                self.assertIsInstance(state, spec.Rejected, (hostname, to))
        self.assertEqual(self.depths(), {})
        for hostname, to in (("local", "q"), ("shop", "q"), ("shop", "q@shop.test")):
            client = self.client10(hostname)
            client.sender(None)
            client.publish(0, message(b"x", to=to))
            self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
        self.assertEqual(self.depths(), {"//local/q": 1, "//shop/q": 2})

    def test_partners(self) -> None:
        """A partner delivers to the domains of a virtual host, and to nothing else of it."""
        client = self.house.client(PEER).opened("b.test").begun()
        for number, address in enumerate(("q@shop.test", "@shop.test", "@a.test", None)):
            answer = client.sender(address, handle=number)
            self.assertIsNotNone(answer.target, address)
            client.publish(number, message(b"x", to="q@shop.test"), handle=number)
            self.assertIsInstance(client.one(spec.Disposition).state, spec.Accepted)
        self.assertEqual(self.depths(), {"//shop/q": 4})
        for form in ("//shop/q", "//local/q", "/exchanges/amq.fanout@shop.test"):
            self.assertIsNotNone(self.attached(client, "sender", form), form)
        self.assertIsNotNone(self.attached(client, "receiver", "q@shop.test"))

    def test_return_addresses(self) -> None:
        """Returned messages go to a node of the sender's own virtual host."""
        for hostname, address, is_taken in (
            ("shop", "q", False), ("shop", "q@a.test", False), ("shop", "//local/q", False),
            ("local", "q", False), ("a.test", "q@shop.test", False), ("a.test", "q", True),
            ("shop", "q@shop.test", True),
        ):  # fmt: skip
            client = self.client10(hostname)
            client.sender("q")
            annotated = message(b"x", annotations={RETURN_TO: address})
            client.publish(0, annotated)
            state = client.one(spec.Disposition).state
            self.assertEqual(isinstance(state, spec.Accepted), is_taken, (hostname, address))

    def test_dead_letters(self) -> None:
        """Dead letters stay in their virtual host, and name its queues as its clients do."""
        shop = self.client09("shop")
        arguments = [
            ("x-dead-letter-exchange", "S", b"amq.fanout"), ("x-message-ttl", "I", 1000),
        ]  # fmt: skip
        shop.ask("queue.declare", queue="short", arguments=arguments)
        for host in OTHERS:
            self.client09(host).ask("queue.bind", queue="q", exchange="amq.fanout")
        shop.publish(b"x", key="short")
        shop.run(2)
        self.assertEqual(self.depths(), {"//shop/q": 1})
        shop.ask("basic.get", queue="q", no_ack=1)
        ((_, _, _, properties, _),) = shop.contents
        self.assertIn(("queue", "S", b"short"), _deaths(properties))

    def test_alternate_exchange(self) -> None:
        """An alternate exchange is one of the same virtual host."""
        for host in OTHERS:
            client = self.client09(host)
            client.ask("exchange.declare", exchange="spare", type="fanout")
            client.ask("queue.bind", queue="q", exchange="spare")
        shop = self.client09("shop")
        arguments = [("alternate-exchange", "S", b"spare")]
        shop.ask("exchange.declare", exchange="main", type="direct", arguments=arguments)
        shop.publish(b"x", exchange="main", key="nobody")
        self.assertEqual(self.depths(), {"//shop/q": 1})

    def test_dynamic_nodes(self) -> None:
        """A dynamic node is reached by its address in its virtual host alone."""
        shop = self.client10("shop", "maker")
        answer = shop.receiver(None, source=spec.Source(dynamic=True))
        address = answer.source.address
        self.assertNotIn("/", address)
        self.assertIsNone(self.attached(self.client10("shop"), "sender", address))
        for hostname in ("a.test", "local"):
            for form in (address, f"{address}@shop.test", f"//shop/{address}"):
                found = self.attached(self.client10(hostname), "sender", form)
                self.assertIsNotNone(found, (hostname, form))

    def test_durable_subscriptions(self) -> None:
        """Subscriptions of one name, container and user are different ones in each."""
        source = spec.Source(address="t", durable=2, expiry_policy="never")
        for hostname in ("a.test", "shop"):
            client = self.client10(hostname, "reader")
            answer = client.receiver("t", name="sub", source=source)
            self.assertEqual(answer.source.address, "t")
            client.send(spec.Close())
        sender = self.client10("shop", "sender")
        sender.sender("t")
        sender.publish(0, message(b"for shop"))
        outside = self.client10("a.test", "reader")
        outside.receiver("t", name="sub", credit=5, source=source)
        self.assertEqual(outside.bodies(), [])
        inside = self.client10("shop", "reader")
        inside.send(attach("receiver", "sub", 0, None, source=None))
        answer = inside.one(spec.Attach)
        self.assertEqual(answer.source.address, "t")
        inside.credit(5)
        self.assertEqual(inside.bodies(), [b"for shop"])

    def test_suspended_links(self) -> None:
        """A link that was suspended in one virtual host is not found from another."""
        for host in ("", "shop"):
            self.client09(host).publish(b"of " + (host.encode() or b"/"))
        first = self.client10("shop", "worker")
        first.receiver("q", name="w", credit=1)
        self.assertEqual(first.bodies(), [b"of shop"])
        first.hang_up()
        other = self.client10("a.test", "worker")
        other.send(attach("receiver", "w", 0, "q"))
        self.assertFalse(other.one(spec.Attach).unsettled)
        other.credit(5)
        self.assertEqual(other.bodies(), [b"of /"])

    def test_transactions(self) -> None:
        """A transaction of 0-9-1 in a virtual host puts and takes there."""
        shop = self.client09("shop")
        shop.ask("tx.select")
        shop.publish(b"1")
        self.assertEqual(self.depths(), {})
        shop.ask("tx.commit")
        self.assertEqual(self.depths(), {"//shop/q": 1})

    def test_exclusive_consumers(self) -> None:
        """A queue that one client has to itself is not the one of that name elsewhere."""
        shop = self.client09("shop")
        self.assertEqual(shop.ask("basic.consume", queue="q", exclusive=1), ["basic.consume-ok"])
        other = self.client09("local")
        self.assertEqual(other.ask("basic.consume", queue="q"), ["basic.consume-ok"])

    def test_replies_to_partners(self) -> None:
        """A request that leaves gets a reply address, which is its partner's alone."""
        house = self.house
        self.world.house("b.test", nodes=["service"])
        shop = self.client10("shop")
        shop.sender("service@b.test")
        shop.publish(0, message(b"x", reply_to="q"))
        shop.run(10)
        self.assertIsInstance(shop.one(spec.Disposition).state, spec.Accepted)
        del house


class PolicyTests(SynchronousTestCase):
    """The border of the access rules; whatever a rule grants, it stands."""

    def setUp(self) -> None:
        everything = [Rule.of(who="*", node="*", allow=list(Verb))]
        self.policies = HostPolicies(
            AccessPolicy(everything), {each: AccessPolicy(everything) for each in ("one", "two")}
        )

    def granted(self, principal: Principal, node: str) -> set[str]:
        return {str(verb) for verb in Verb if self.policies.allows(principal, verb, node)}

    def test_border(self) -> None:
        """Each kind of principal on each kind of node."""
        one = Principal("user", "a", host="one")
        every = {str(verb) for verb in Verb}
        for principal, node, granted in (
            (ALICE, "q", every), (ALICE, "//one/q", {"manage"}), (PEER, "//one/q", {"transfer"}),
            (PEER, "//none/q", set()), (one, "//one/q", every), (one, "//two/q", set()),
            (one, "q", {"impersonate"}), (one, "q@b.test", {"publish", "impersonate"}),
            (one, "amqp$transfer", every), (one, "dynamic", every),
            (one, "amqp$admin", {"impersonate"}),
            (Principal("user", "a", host="gone"), "//gone/q", set()),
        ):  # fmt: skip
            self.assertEqual(self.granted(principal, node), granted, (principal, node))

    def test_may_open(self) -> None:
        """A rule that grants something lets in; one that denies does not."""
        rules = [
            Rule.of(who="user:bob", node="*", deny=["publish"]),
            Rule.of(who="user:alice", node="q", allow=["consume"]),
        ]
        policies = HostPolicies(AccessPolicy([]), {"one": AccessPolicy(rules)})
        self.assertTrue(policies.may_open(ALICE, "one"))
        self.assertFalse(policies.may_open(Principal("user", "bob"), "one"))
        self.assertFalse(policies.may_open(ALICE, "two"))


class DirectoryTests(SynchronousTestCase):
    """Names of virtual hosts, whoever writes them."""

    def test_domains(self) -> None:
        """Each domain belongs to one."""
        hosts = VirtualHosts(lambda: ("a.test", "shop.test"))
        hosts.adopt({"shop": VirtualHostTerms(frozenset({"shop.test"}))})
        self.assertEqual(list(hosts.domains("")), ["a.test"])
        self.assertEqual(hosts.domains("shop"), {"shop.test"})
        self.assertEqual(list(hosts.domains("gone")), [])
        self.assertEqual(hosts.named("SHOP.test."), "shop")
        self.assertIsNone(hosts.named("SHOP"))


def _deaths(properties: dict[str, Any]) -> list[Any]:
    """Return the fields of the tables of x-death."""
    (deaths,) = [value for name, _, value in properties["headers"] if name == "x-death"]
    return [field for _, table in deaths for field in table]
