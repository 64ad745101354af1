# SPDX-License-Identifier: Apache-2.0
"""Exchanges and bindings by commands, and import and export of RabbitMQ's definitions."""

from __future__ import annotations

import json
from typing import Any

from amqproute.broker.exchanges.binding_tables import ExchangeType
from amqproute.services.broker_definitions import (
    DefinitionPlan,
    UnmatchedDefinition,
    export_document,
    plan_import,
)
from amqproute.services.definition_commands import definition_commands, hosts_of_rows
from tests.services.test_node_changes import InventoryCase

DEFINITIONS: dict[str, Any] = {
    "rabbit_version": "3.13.7",
    "vhosts": [{"name": "/"}],
    "users": [{"name": "ann", "password_hash": "x", "tags": []}],
    "exchanges": [
        {"name": "events", "vhost": "/", "type": "topic", "durable": True, "auto_delete": False,
         "internal": False, "arguments": {"alternate-exchange": "lost"}},
        {"name": "lost", "vhost": "/", "type": "fanout", "durable": True, "auto_delete": False,
         "internal": True, "arguments": {}},
    ],
    "queues": [
        {"name": "jobs:eu", "vhost": "/", "durable": True, "auto_delete": False,
         "arguments": {"x-max-length": 5, "x-dead-letter-exchange": "lost"}},
        {"name": "celery", "vhost": "/", "durable": True, "auto_delete": True, "arguments": {}},
        {"name": "urgent", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {},
         "prioritized": True},
        {"name": "/queues/old", "vhost": "/", "durable": True, "auto_delete": False,
         "arguments": {}},
        {"name": "gone", "vhost": "/", "durable": False, "auto_delete": False, "arguments": {}},
    ],
    "bindings": [
        {"source": "events", "vhost": "/", "destination": "celery", "destination_type": "queue",
         "routing_key": "orders.#", "arguments": {}},
        {"source": "events", "vhost": "/", "destination": "lost", "destination_type": "exchange",
         "routing_key": "a,b=\"c\"", "arguments": {}},
        {"source": "amq.headers", "vhost": "/", "destination": "celery",
         "destination_type": "queue", "routing_key": "",
         "arguments": {"x-match": "all", "n": 3, "deep": {"list": [1, None]}}},
        {"source": "events", "vhost": "/", "destination": "gone", "destination_type": "queue",
         "routing_key": "x", "arguments": {}},
    ],
    "policies": [], "parameters": [],
}  # fmt: skip


def rows_of(case: InventoryCase, kind: str) -> list[dict[str, Any]]:
    """Ask for all entities of a type."""
    _, body = case.run_text(f"query {kind}")
    (result,) = body["results"]
    return [dict(each) for each in result["attributes"]["entities"]]


class ExchangeCommandTests(InventoryCase):
    """Commands, all or nothing, kept over a restart."""

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Ask for all entities of a type."""
        return rows_of(self, kind)

    def test_commands(self) -> None:
        """Exchanges and bindings are made, compared, shown, kept and deleted."""
        self.do(
            "create exchange e with type=topic, alternate-exchange=lost\n"
            "create exchange lost with type=fanout, internal=true\n"
            "create exchange-binding e with target=orders, key=a.#\n"
            "create exchange-binding e with target=lost, target-type=exchange, key=b\n"
            'create exchange-binding amq.headers with target=orders, arguments="{\\"n\\": 1}"\n'
            "create or assert exchange e with type=topic, alternate-exchange=lost\n"
            "create or assert exchange-binding e with target=orders, key=a.#\n"
            "assert exchange lost with internal=true\n"
            "assert exchange-binding e with target=orders, key=a.#"
        )
        self.restart()
        graph = self.broker.topology.graph
        self.assertIs(graph.exchange("e").type, ExchangeType.TOPIC)
        self.assertEqual(graph.binding_count, 3)
        rows = {row["name"]: row for row in self.rows("exchange")}
        self.assertEqual(rows["e"]["exchange-type"], "topic")
        self.assertEqual((rows["e"]["bindings"], rows["e"]["alternate-exchange"]), (2, "lost"))
        self.assertTrue(rows["amq.topic"]["predeclared"])
        bindings = self.rows("exchange-binding")
        arguments = sorted(row["arguments"] for row in bindings)
        self.assertEqual(arguments, ['{"n": 1}', "{}", "{}"])
        self.assertTrue(all(row["durable"] for row in bindings))
        self.do("delete exchange-binding e with target=orders, key=a.#")
        self.assertEqual(graph.binding_count, 2)
        self.do("delete exchange e")
        self.assertEqual(graph.binding_count, 1)
        self.restart()
        self.assertNotIn("e", self.broker.topology.graph)

    def test_refused(self) -> None:
        """An impossible change has its reason, and undoes the batch."""
        self.do("create exchange e with type=topic")
        for text, status in (
            ("create exchange e with type=topic", 409),
            ("create or assert exchange e with type=fanout", 409),
            ("assert exchange e with durable=false", 409),
            ("assert exchange none", 404),
            ("create exchange amq.mine with type=topic", 400),
            ("create exchange f", 400),
            ("create exchange f with type=x-delayed-message", 400),
            ("create exchange f with type=topic, durable=1", 400),
            ("create exchange f with type=topic, colour=red", 400),
            ("create exchange f with type=topic, arguments=x", 400),
            ("delete exchange none", 404),
            ("delete exchange amq.topic", 400),
            ("create exchange-binding e with target=none", 404),
            ("create exchange-binding none with target=orders", 404),
            ("create exchange-binding e with key=k", 400),
            ("create exchange-binding e with target=orders, target-type=topic", 400),
            ("delete exchange-binding e with target=orders", 404),
            ("assert exchange-binding e with target=orders", 404),
            ("update exchange e with durable=false", 400),
        ):
            self.assertEqual(self.statuses(text)[-1], status, text)
        self.do("create exchange-binding e with target=orders, key=k")
        self.assertEqual(self.statuses("delete exchange e with if-unused=true"), [409])
        text = (
            "create exchange f with type=topic\ndelete exchange e\n"
            "create exchange-binding f with target=orders\ndelete queue none"
        )
        self.assertEqual(self.statuses(text)[-1], 404)
        graph = self.broker.topology.graph
        self.assertNotIn("f", graph)
        self.assertEqual(len(graph.bindings_from("e")), 1)

    def test_store_fails(self) -> None:
        """Changes that the store does not take are undone."""
        self.do("create exchange e with type=topic")
        self.store.is_failing = True
        self.run_silent("delete exchange e\ncreate exchange f with type=topic")
        self.store.is_failing = False
        self.flushLoggedErrors()
        self.assertIn("e", self.broker.topology.graph)
        self.assertNotIn("f", self.broker.topology.graph)

    def run_silent(self, text: str) -> None:
        """Send commands whose reply fails with the store."""
        self.send(text)
        self.clock.advance(1)

    def test_rights(self) -> None:
        """Rights name the kind of both ends."""
        binding = "create exchange-binding e with target=orders"
        self.do("create exchange e with type=topic")
        for may, text, status in (
            ({"e"}, "create exchange e2 with type=topic", 403),
            ({"/exchanges/e2"}, "create exchange e2 with type=topic", 201),
            ({"/exchanges/e"}, binding, 403),
            ({"orders"}, binding, 403),
            ({"/exchanges/e", "orders"}, binding, 201),
            ({"/exchanges/e", "e2"}, f"{binding}2, target-type=exchange", 403),
            ({"e"}, "delete exchange e", 403),
        ):
            self.may = may
            self.assertEqual(self.statuses(text)[-1], status, (may, text))

    def test_declared_queues(self) -> None:
        """An operator makes a queue as clients do, and is shown what they declared."""
        made: list[str] = []
        self.inventory.when_declared = made.append
        self.do('create queue q with auto-delete=true, arguments="{\\"x-max-length\\": 2}"')
        self.assertEqual(made, ["q"])
        (row,) = [row for row in self.rows("queue") if row["name"] == "q"]
        self.assertEqual((row["arguments"], row["auto-delete"]), ('{"x-max-length": 2}', True))
        self.assertEqual(self.broker.nodes["q"].limits.length, 2)
        wrong = 'create queue r with arguments="{\\"x-max-length\\": \\"two\\"}"'
        self.assertEqual(self.statuses(wrong), [400])
        self.do("create exchange-binding amq.topic with target=q, key=k")
        self.do("delete queue q")
        self.assertEqual(self.broker.topology.graph.binding_count, 0)
        self.restart()
        self.assertEqual(self.broker.topology.graph.binding_count, 0)


class DefinitionTests(InventoryCase):
    """From RabbitMQ's export to nodes here, and back."""

    def test_round_trip(self) -> None:
        """An import is exported again; omissions are named; a repetition changes nothing."""
        plan = plan_import(json.dumps(DEFINITIONS))
        unmatched: list[UnmatchedDefinition] = []
        (host,) = plan.hosts
        lines = list(definition_commands(host, unmatched))
        missing = [(each.kind, each.name) for each in unmatched]
        self.assertEqual(missing, [("queue", "/queues/old"), ("queue", "gone")])
        self.do("\n".join(lines))
        self.do("\n".join(lines))
        self.restart()
        self.assertEqual(self.broker.nodes["jobs:eu"].limits.length, 5)
        levels = [self.broker.nodes[name].limits.priorities for name in ("celery", "urgent")]
        self.assertEqual(levels, [1, 10])
        kinds = ("exchange", "queue", "exchange-binding")
        shown = hosts_of_rows(*(rows_of(self, kind) for kind in kinds))
        document, left = export_document(DefinitionPlan(shown))
        self.assertEqual(left, ())
        again = json.loads(json.dumps(document))
        for key in ("exchanges", "queues", "bindings"):
            left_out = {"gone", "/queues/old"}
            wanted = [each for each in DEFINITIONS[key] if not left_out & _texts(each)]
            found = [each for each in again[key] if each.get("name") != "orders"]
            self.assertEqual(_sorted(found), _sorted(wanted), key)


def _texts(row: dict[str, Any]) -> set[str]:
    return {value for value in row.values() if isinstance(value, str)}


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)
