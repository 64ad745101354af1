# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts in management: rows name theirs, and operations stay within one by default."""

from __future__ import annotations

from typing import Any

from amqproute.broker.node_limits import QueueLimits
from amqproute.message import Message
from amqproute.routing.table import Router
from amqproute.services.definition_commands import definition_commands, hosts_of_rows
from amqproute.services.message_requeue import RequeueCommand
from amqproute.values import DEAD_LETTER_REASON, DEAD_LETTER_SOURCE
from amqproute.wire.amqp10.types import Symbol
from tests.services.test_node_changes import ORIGIN, ConfiguredNodes, InventoryCase, durable


class HostCase(InventoryCase):
    """A broker with the virtual hosts ``/``, ``shop`` and ``bank``."""

    def start(self, wanted: ConfiguredNodes) -> None:
        super().start(wanted)
        self.broker.hosts = {"shop": None, "bank": None}
        self.broker.recover_topologies(self.store.recovery().notes)

    def setUp(self) -> None:
        super().setUp()
        self.do(
            'create queue "//shop/till"\ncreate queue "//bank/till"\ncreate queue till\n'
            'create exchange "//shop/sales" with type=topic\n'
            "create exchange sales with type=fanout"
        )

    def ask(self, operation: str, kind: str, name: str = "", **more: Any) -> tuple[int, Any]:
        """Send a single request; ``body`` is its body, ``host`` its virtual host."""
        body = more.pop("body", {})
        given: dict[str, Any] = {"operation": operation, "type": kind}
        if name:
            given["name"] = name
        if "host" in more:
            given["virtual-host"] = more.pop("host")
        self.send(body, **given, **more)
        return self.answer()

    def names(self, kind: str, host: str | None, **more: Any) -> list[str]:
        """QUERY the names of a type; of one virtual host if it is given."""
        given = {} if host is None else {"host": host}
        status, body = self.ask("QUERY", kind, body={"attributeNames": ["name"]}, **given, **more)
        self.assertEqual(status, 200, body)
        return [str(name) for (name,) in body["results"]]


class ListTests(HostCase):
    """Lists."""

    def test_queues(self) -> None:
        """Of each virtual host by itself, and of all."""
        self.assertEqual(self.names("queue", "shop"), ["//shop/till"])
        self.assertEqual(self.names("queue", "bank"), ["//bank/till"])
        self.assertEqual(self.names("queue", "/"), ["dyn-1", "orders", "till", "prices"])
        everything = self.names("queue", None)
        self.assertEqual(len(everything), 6)

    def test_pages(self) -> None:
        """Offset, count and total are those of the virtual host."""
        self.do('create queue "//shop/a"\ncreate queue "//shop/z"')
        self.assertEqual(self.names("queue", "shop", offset=1, count=1), ["//shop/till"])

    def test_subscriptions(self) -> None:
        """A durable subscription is in the virtual host of its topic."""
        self.do('create topic "//shop/news"')
        self.assertEqual(self.names("topic", "shop"), ["//shop/news"])
        self.assertEqual(self.names("topic", "/"), ["prices"])

    def test_exchanges_and_bindings(self) -> None:
        """By their names within the broker; predeclared ones are in each."""
        self.do('create exchange-binding "//shop/sales" with target="//shop/till", key="eu.#"')
        shop = self.names("exchange", "shop")
        self.assertEqual(len(shop), 6)
        self.assertIn("//shop/amq.topic", shop)
        self.assertIn("//shop/sales", shop)
        self.assertIn("sales", self.names("exchange", "/"))
        self.assertEqual(
            self.names("exchange-binding", "shop"), ["//shop/sales to queue //shop/till by 'eu.#'"]
        )
        self.assertEqual(self.names("exchange-binding", "/"), [])
        _, body = self.ask("READ", "exchange", "sales", host="shop")
        self.assertEqual((body["virtual-host"], body["exchange-type"]), ("shop", "topic"))
        self.assertEqual(body["bindings"], 1)

    def test_batch(self) -> None:
        """A question of a batch asks by the attribute."""
        _, body = self.run_text("query queue with virtual-host=shop")
        (result,) = body["results"]
        rows = result["attributes"]["entities"]
        self.assertEqual([row["name"] for row in rows], ["//shop/till"])

    def test_relay_queues_are_in_none(self) -> None:
        """They are of the whole broker."""
        self.broker.make_internal("amqp$out/b.test", QueueLimits())
        for host in ("/", "shop"):
            self.assertNotIn("amqp$out/b.test", self.names("queue", host))
        self.assertIn("amqp$out/b.test", self.names("queue", None))

    def test_unknown(self) -> None:
        """A virtual host that is not there is an error, and no empty list."""
        status, _ = self.ask("QUERY", "queue", host="elsewhere")
        self.assertEqual(status, 404)
        self.assertEqual(self.statuses('create queue "//elsewhere/q"'), [404])
        status, _ = self.ask("QUERY", "queue", host="elsewhere")
        self.assertEqual(status, 404)
        status, _ = self.ask("QUERY", "queue", host=7)
        self.assertEqual(status, 400)


class CommandTests(HostCase):
    """Commands on one entity."""

    def test_names_in_a_virtual_host(self) -> None:
        """The property says where names are."""
        status, _ = self.ask("CREATE", "queue", "desk", host="shop")
        self.assertEqual(status, 201)
        self.assertIn("//shop/desk", self.broker.nodes)
        status, body = self.ask("READ", "queue", "desk", host="shop")
        self.assertEqual((status, body["name"]), (200, "//shop/desk"))
        status, _ = self.ask(
            "CREATE", "exchange-binding", "sales", host="shop", body={"target": "desk", "key": "a"}
        )
        self.assertEqual(status, 201)
        self.assertEqual(self.broker.topology_of("shop").graph.binding_count, 1)
        self.assertEqual(self.broker.topology.graph.binding_count, 0)
        status, _ = self.ask("DELETE", "queue", "desk", host="bank")
        self.assertEqual(status, 404)
        status, _ = self.ask("DELETE", "queue", "//shop/desk", host="bank")
        self.assertEqual(status, 400)
        status, _ = self.ask("DELETE", "queue", "desk", host="shop")
        self.assertEqual(status, 204)

    def test_exchanges_of_one_name(self) -> None:
        """A change in one virtual host leaves the others alone, over a restart too."""
        self.do('delete exchange "//shop/sales"')
        self.assertIn("sales", self.broker.topology.graph)
        self.restart()
        self.assertIn("sales", self.broker.topology.graph)
        self.assertNotIn("sales", self.broker.topology_of("shop").graph)
        self.assertEqual(self.statuses('create exchange "//elsewhere/e" with type=topic'), [404])

    def test_bindings_stay_within(self) -> None:
        """Both ends are in one virtual host."""
        for source, target in (
            ("//shop/sales", "till"),
            ("//shop/sales", "//bank/till"),
            ("sales", "//shop/till"),
        ):
            text = f'create exchange-binding "{source}" with target="{target}"'
            self.assertEqual(self.statuses(text), [400], text)

    def test_rights(self) -> None:
        """Rules of ``/`` name exchanges of virtual hosts behind these."""
        text = 'create exchange-binding "//shop/sales" with target="//shop/till"'
        for may, status in (
            ({"/exchanges/sales", "//shop/till"}, 403),
            ({"//shop//exchanges/sales"}, 403),
            ({"//shop//exchanges/sales", "//shop/till"}, 201),
        ):
            self.may = may
            self.assertEqual(self.statuses(text)[-1], status, may)

    def test_moves(self) -> None:
        """Messages leave their virtual host only if the operator says that they may."""
        self.fill("//shop/till")
        for operation in ("MOVE", "COPY"):
            status, _ = self.ask(operation, "queue", "//shop/till", body={"target": "till"})
            self.assertEqual(status, 409)
        self.assertEqual(self.broker.nodes["till"].depth, 0)
        self.send(
            {"target": "till", "across-hosts": True},
            operation="MOVE",
            type="queue",
            name="//shop/till",
        )
        self.clock.advance(1)
        status, _ = self.answer()
        self.assertEqual(status, 200)
        self.assertEqual(self.broker.nodes["till"].depth, 3)


class RequeueTests(HostCase):
    """Dead letters."""

    def setUp(self) -> None:
        super().setUp()
        self.do('create queue "//shop/dead"\ncreate queue "//shop/jobs"\ncreate queue jobs')
        router = Router(["a.test"])
        RequeueCommand(
            self.broker,
            None,
            lambda: router,
            self.allows,
            lambda: 7500,  # type: ignore[arg-type]
        ).register(self.service)

    def requeue(self, source: str) -> dict[str, Any]:
        """Put a dead letter of a queue on ``//shop/dead``, and requeue what is there."""
        facts = {DEAD_LETTER_REASON: Symbol("rejected"), DEAD_LETTER_SOURCE: source}
        message = Message(durable().with_annotations(facts).encoded)
        batch = self.broker.begin()
        self.broker.target("//shop/dead").put(message, batch, ORIGIN)
        batch.commit()
        self.clock.advance(0)
        self.send({}, operation="REQUEUE", name="//shop/dead")
        for _ in range(50):
            self.clock.advance(0.001)
        status, body = self.answer()
        self.assertEqual(status, 200, body)
        return dict(body)

    def test_names_as_clients_write_them(self) -> None:
        """A dead letter returns to the queue of its own virtual host."""
        self.assertEqual(self.requeue("jobs")["messages"], 1)
        self.assertEqual(self.broker.nodes["//shop/jobs"].depth, 1)
        self.assertEqual(self.broker.nodes["jobs"].depth, 0)

    def test_no_way_out(self) -> None:
        """A client's annotation leads to no other virtual host."""
        for source in ("//bank/till", "till2"):
            self.assertEqual(self.requeue(source)["messages"], 0, source)
        self.assertEqual(self.broker.nodes["//bank/till"].depth, 0)


class DefinitionTests(HostCase):
    """Definitions, by virtual host."""

    def test_there_and_back(self) -> None:
        """The export of one virtual host is created in another one."""
        self.do(
            'create queue "//shop/q" with arguments="{\\"x-max-length\\": 5}"\n'
            'create exchange-binding "//shop/sales" with target="//shop/q", key=k\n'
            'create policy "//shop/p" with pattern=., definition="{\\"max-length\\": 9}"'
        )
        rows = []
        for kind in ("exchange", "queue", "exchange-binding", "policy"):
            _, body = self.run_text(f"query {kind}")
            rows.append(body["results"][0]["attributes"]["entities"])
        hosts = {host.name: host for host in hosts_of_rows(*rows)}
        self.assertEqual(sorted(hosts), ["/", "bank", "shop"])
        shop = hosts["shop"]
        self.assertEqual([each.name for each in shop.queues], ["q", "till"])
        self.do("\n".join(definition_commands(shop, [], "bank")))
        self.assertEqual(self.broker.nodes["//bank/q"].limits.length, 5)
        self.assertEqual(self.broker.topology_of("bank").graph.binding_count, 1)
        self.assertIn("//bank/p", self.names("policy", "bank"))
