# SPDX-License-Identifier: Apache-2.0
"""Tests of `amqproute.services.broker_definitions`."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.argument_rules import QueueDeclaration
from amqproute.broker.exchanges.binding_tables import (
    BindingTarget,
    ExchangeBinding,
    ExchangeType,
    TargetKind,
)
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition
from amqproute.services.broker_definitions import (
    DefinitionPlan,
    DefinitionsError,
    PlannedHost,
    PlannedPolicy,
    export_document,
    plan_import,
)
from amqproute.wire.amqp09.field_tables import TableDecimal, UInt32

EXPORTED: dict[str, Any] = {
    "rabbit_version": "3.12.1",
    "product_name": "RabbitMQ",
    "users": [{"name": "shop", "password_hash": "secret", "hashing_algorithm": "x", "tags": []}],
    "vhosts": [{"name": "/"}, {"name": "test", "tags": []}],
    "permissions": [{"user": "shop", "vhost": "/", "configure": "", "write": ".*", "read": ".*"}],
    "topic_permissions": [{"user": "shop", "vhost": "/", "exchange": "e", "write": "", "read": ""}],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@host"}],
    "parameters": [
        {"vhost": "/", "component": "shovel", "name": "move", "value": {}},
        {"vhost": "/", "component": "operator_policy", "name": "bound",
         "value": {"pattern": ".*", "apply-to": "queues", "definition": {"max-length": 9},
                   "priority": 1}},
    ],
    "policies": [
        {"vhost": "/", "name": "ttl", "pattern": "^t", "apply-to": "queues", "priority": 2,
         "definition": {"message-ttl": 5, "ha-mode": "all"}},
        {"vhost": "/", "name": "ha", "pattern": "^t", "apply-to": "all", "priority": 0,
         "definition": {"ha-mode": "all"}},
        {"vhost": "/", "name": "s", "pattern": "", "apply-to": "streams", "definition": {}},
        {"vhost": "/", "name": "wrong", "pattern": "", "definition": {"expires": 0}},
    ],
    "queues": [
        {"name": "celery", "vhost": "/", "durable": True, "auto_delete": False,
         "arguments": {"x-queue-type": "quorum", "x-message-ttl": 5}},
        {"name": "log", "vhost": "/", "durable": True, "auto_delete": False,
         "arguments": {"x-queue-type": "stream"}},
        {"name": "t", "vhost": "test", "durable": False, "auto_delete": True, "arguments": []},
    ],
    "exchanges": [
        {"name": "amq.topic", "vhost": "/", "type": "topic", "durable": True,
         "auto_delete": False, "internal": False, "arguments": {}},
        {"name": "celery", "vhost": "/", "type": "direct", "durable": True,
         "auto_delete": False, "internal": False, "arguments": {"alternate-exchange": "u"}},
        {"name": "later", "vhost": "/", "type": "x-delayed-message", "durable": True,
         "auto_delete": False, "internal": False, "arguments": {"x-delayed-type": "direct"}},
        {"name": "u", "vhost": "/", "type": "fanout", "durable": True,
         "auto_delete": False, "internal": True, "arguments": {}},
    ],
    "bindings": [
        {"source": "celery", "vhost": "/", "destination": "celery", "destination_type": "queue",
         "routing_key": "celery", "arguments": {}},
        {"source": "celery", "vhost": "/", "destination": "u", "destination_type": "exchange",
         "routing_key": "k", "arguments": {"a": 1}},
        {"source": "later", "vhost": "/", "destination": "celery", "destination_type": "queue",
         "routing_key": "k", "arguments": {}},
        {"source": "celery", "vhost": "/", "destination": "log", "destination_type": "queue",
         "routing_key": "k", "arguments": {}},
        {"source": "", "vhost": "/", "destination": "celery", "destination_type": "queue",
         "routing_key": "celery", "arguments": {}},
    ],
}  # fmt: skip


class ImportTests(SynchronousTestCase):
    """`plan_import`."""

    def test_plan(self) -> None:
        """Definitions that would be created, and the names of those that would not."""
        plan = plan_import(json.dumps(EXPORTED))
        celery = ExchangeDefinition(
            "celery", ExchangeType.DIRECT, alternate="u", arguments={"alternate-exchange": "u"}
        )
        queue = {"x-queue-type": "quorum", "x-message-ttl": 5}
        self.assertEqual(
            plan.hosts,
            (
                PlannedHost(
                    "/",
                    (celery, ExchangeDefinition("u", ExchangeType.FANOUT, internal=True)),
                    (QueueDeclaration("celery", True, arguments=queue),),
                    (
                        ExchangeBinding(
                            "celery", BindingTarget(TargetKind.QUEUE, "celery"), "celery"
                        ),
                        ExchangeBinding(
                            "celery", BindingTarget(TargetKind.EXCHANGE, "u"), "k", {"a": 1}
                        ),
                    ),
                    (
                        PlannedPolicy("ttl", "^t", "queues", 2, {"message-ttl": 5}),
                        PlannedPolicy("bound", ".*", "queues", 1, {"max-length": 9}, True),
                    ),
                ),
                PlannedHost("test", (), (QueueDeclaration("t", False, auto_delete=True),)),
            ),
        )
        self.assertEqual(plan.users, ("shop",))
        self.assertNotIn("secret", repr(plan))
        self.assertEqual(
            sorted((each.kind, each.name) for each in plan.unmatched),
            [
                ("binding", "celery to log by 'k'"), ("binding", "later to celery by 'k'"),
                ("exchange", "later"), ("global parameter", "cluster_name"), ("parameter", "move"),
                ("permission", "shop"), ("policy", "ha"), ("policy", "s"), ("policy", "ttl"),
                ("policy", "wrong"), ("queue", "log"), ("topic permission", "shop"),
            ],
        )  # fmt: skip
        reasons = {each.name: each.reason for each in plan.unmatched}
        self.assertIn("'x-delayed-message' is a plug-in", reasons["later"])
        self.assertIn("streams", reasons["log"])
        self.assertIn("ha-mode", reasons["ttl"])
        self.assertIn("expires", reasons["wrong"])

    def test_one_host(self) -> None:
        """An export of one virtual host names none."""
        rows = [{"name": "q", "durable": True}]
        plan = plan_import(json.dumps({"queues": rows, "news": 1}).encode())
        self.assertEqual(plan.hosts, (PlannedHost("/", (), (QueueDeclaration("q", True),)),))
        self.assertEqual([(e.kind, e.name) for e in plan.unmatched], [("section", "news")])
        self.assertEqual(plan_import("{}"), DefinitionPlan())

    def test_wrong(self) -> None:
        """A document that is no export is refused with the place."""
        rows: list[tuple[Any, str]] = [
            ("{", "JSON"), ("[]", "object"), ("[" * 100_000, "JSON"), ({"queues": {}}, "queues"),
            ({"queues": [1]}, "queues"), ({"queues": [{"name": 1}]}, "queues"),
            ({"queues": [{"name": "q", "durable": 1}]}, "durable"),
            ({"queues": [{"name": "q"}, {"name": "q"}]}, "twice"),
            ({"queues": [{"name": "q", "arguments": "x"}]}, "arguments"),
            ({"exchanges": [{"name": "e"}]}, "type"), ({"bindings": [{"source": "e"}]}, "bindings"),
            ({"policies": [{"name": "p", "definition": 1}]}, "policy p"),
            ({"parameters": [{"name": "p", "component": "operator_policy"}]}, "policy p"),
            ({"vhosts": [{"name": None}]}, "vhosts"), ({"users": [{}]}, "users"),
            ({"queues": [{"name": "q", "vhost": 1}]}, "vhost"),
        ]  # fmt: skip
        for document, words in rows:
            text = document if isinstance(document, str) else json.dumps(document)
            error = self.assertRaises(DefinitionsError, plan_import, text)
            self.assertIn(words, str(error))

    @given(
        st.dictionaries(
            st.sampled_from(sorted(EXPORTED)),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=3),
                lambda each: (
                    st.lists(each, max_size=2)
                    | st.dictionaries(
                        st.sampled_from(["name", "vhost", "type", "arguments", "source", "value"]),
                        each,
                        max_size=3,
                    )
                ),
                max_leaves=8,
            ),
            max_size=3,
        )
    )
    def test_any(self, document: dict[str, Any]) -> None:
        """Any document results in a plan or an error of ours."""
        try:
            plan_import(json.dumps(document))
        except DefinitionsError as error:
            self.assertTrue(str(error))


class ExportTests(SynchronousTestCase):
    """`export_document`."""

    def test_round_trip(self) -> None:
        """An export is imported unchanged."""
        plan = plan_import(json.dumps(EXPORTED))
        document, unmatched = export_document(plan)
        again = plan_import(json.dumps(document))
        self.assertEqual(unmatched, ())
        self.assertEqual((again.hosts, again.users, again.unmatched), (plan.hosts, plan.users, ()))

    def test_what_json_cannot_say(self) -> None:
        """It is left out and named; exclusive queues and their bindings belong to connections."""
        arguments = {"d": TableDecimal(1, 2), "b": b"x", "f": float("inf"), "n": UInt32(5)}
        host = PlannedHost(
            "/",
            queues=(QueueDeclaration("q", arguments=arguments), QueueDeclaration("x", False, True)),
            bindings=(ExchangeBinding("amq.topic", BindingTarget(TargetKind.QUEUE, "x"), "k"),),
        )
        document, unmatched = export_document(DefinitionPlan((host,)))
        self.assertEqual([each.name for each in unmatched], ["q", "q", "q"])
        queues: Any = document["queues"]
        self.assertEqual([(q["name"], q["arguments"]) for q in queues], [("q", {"n": 5})])
        self.assertEqual(document["bindings"], [])
        json.dumps(document)
