# SPDX-License-Identifier: Apache-2.0
"""Policies by commands and by the configuration, and their effect on queues and exchanges."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from amqproute.broker.exchanges.argument_rules import QueueDeclaration
from amqproute.broker.exchanges.topology_policies import TopologyPolicy, topology_policy
from amqproute.broker.queue_declarations import HostedDeclarations, QueueDeclarations
from amqproute.services import policy_entity
from amqproute.services.broker_definitions import DefinitionPlan, export_document, plan_import
from amqproute.services.definition_commands import definition_commands, hosts_of_rows
from amqproute.services.node_changes import ConfiguredNodes
from tests.services.test_exchange_entity import rows_of
from tests.services.test_node_changes import InventoryCase


def definition(**values: object) -> str:
    """Write a definition as an option of a command; ``_`` stands for ``-``."""
    text = json.dumps({key.replace("_", "-"): value for key, value in values.items()})
    escaped = text.replace('"', '\\"')
    return f'definition="{escaped}"'


DROP, LOST = "drop-head", "lost"
TTL = definition(message_ttl=60000)


class PolicyCase(InventoryCase):
    """A broker with declared queues."""

    def start(self, wanted: ConfiguredNodes) -> None:
        super().start(wanted)
        self.declarations = QueueDeclarations(self.broker, self.inventory, self.clock)
        self.inventory.when_policies_changed = self.declarations.policies_changed
        self.declarations.recovered()

    def declare(self, name: str, durable: bool = True, **arguments: Any) -> None:
        """Declare a queue as a client does; ``_`` stands for ``-``."""
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        asked = QueueDeclaration(name, durable, arguments=given)
        self.declarations.declare(asked, "c")
        self.clock.advance(1)

    def read(self, kind: str, name: str) -> dict[str, Any]:
        """READ an entity."""
        self.send({}, operation="READ", type=kind, name=name)
        status, body = self.answer()
        self.assertEqual(status, 200, body)
        return dict(body)

    def configured(self, *policies: TopologyPolicy) -> ConfiguredNodes:
        """Return the configuration with policies."""
        places = {
            ("operator-policy" if each.is_operator else "policy", each.name): "etc.yaml:9"
            for each in policies
        }
        return replace(self.CONFIGURED, policies=policies, policy_places=places)


class PolicyCommandTests(PolicyCase):
    def test_commands(self) -> None:
        """Policies are made, compared, changed, listed, kept over a restart, and deleted."""
        self.do(
            f'create policy short with pattern="^tmp[.]", apply-to=queues, {TTL}\n'
            f"create operator-policy short with pattern=., priority=-3, {TTL}\n"
            f'create or assert policy short with pattern="^tmp[.]", {TTL}\n'
            "assert policy short with priority=0\n"
            "update policy short with priority=5\n"
            f"update policy more with pattern=x, or-create=true, {TTL}\n"
        )
        self.restart()
        (short, more) = rows_of(self, "policy")
        self.assertEqual(
            {key: short[key] for key in ("name", "pattern", "apply-to", "priority", "origin")},
            {"name": "short", "pattern": "^tmp[.]", "apply-to": "queues", "priority": 5,
             "origin": "runtime"},
        )  # fmt: skip
        self.assertEqual((short["definition"], more["name"]), ('{"message-ttl": 60000}', "more"))
        self.assertEqual([row["priority"] for row in rows_of(self, "operator-policy")], [-3])
        self.do("delete policy short\ndelete policy more\ndelete operator-policy short")
        self.assertEqual((rows_of(self, "policy"), rows_of(self, "operator-policy")), ([], []))
        self.assertEqual(self.notes(), {})

    def test_refused(self) -> None:
        """Wrong commands are refused with the key; nothing has changed."""
        self.do(f"create policy p with pattern=q, {TTL}")
        for text, status, words in (
            (f"create policy p with pattern=q, {TTL}", 409, "there is a policy 'p' already"),
            (f"create policy x with pattern=(, {TTL}", 400, "pattern: '(' is not a regular"),
            (f"create policy x with {TTL}", 400, "pattern: a policy needs one"),
            ("create policy x with pattern=q", 400, "definition: it is a JSON object in a text"),
            ('create policy x with pattern=q, definition="[1]"', 400, "definition: "),
            (f"create policy x with pattern=q, apply-to=streams, {TTL}", 400, "apply-to: 'str"),
            (f"create policy x with pattern=q, priority=high, {TTL}", 400, "priority: "),
            (f"create policy x with pattern=q, prio=1, {TTL}", 400, "unknown option 'prio'"),
            ("assert policy p with priority=4", 409, "priority"),
            ("update policy x with priority=4", 404, "there is no policy 'x'"),
            ("delete operator-policy p", 404, "there is no operator-policy 'p'"),
            ("update policy p with definition=null", 400, "definition: "),
        ):
            _, body = self.run_text(text)
            result = body["results"][0]
            self.assertEqual((int(result["status"]), text), (status, text), result)
            self.assertIn(words, result["description"])
        self.assertEqual(len(rows_of(self, "policy")), 1)

    def test_most(self) -> None:
        """There are this many policies of both kinds, and no more."""
        self.patch(policy_entity, "MOST_POLICIES", 2)
        text = (
            f"create policy a with pattern=q, {TTL}\ncreate operator-policy a with pattern=q, {TTL}"
        )
        self.do(text)
        self.assertEqual(self.statuses(f"create policy b with pattern=q, {TTL}"), [507])
        self.do(f"update policy a with pattern=x, or-create=true, {TTL}")

    def test_virtual_host(self) -> None:
        """A policy is for one virtual host, which has to be there."""
        self.assertEqual(
            self.statuses(f"create policy p with pattern=., virtual-host=shop, {TTL}"), [400]
        )
        self.broker.hosts = {"shop": None}
        self.declare("q")
        hosted = HostedDeclarations(self.broker, self.inventory, self.clock).of("shop")
        hosted.declare(QueueDeclaration("q", True), "c")
        self.do(f"create policy p with pattern=^q, virtual-host=shop, {TTL}")
        lives = [self.broker.nodes[name].limits.ttl_ms for name in ("q", "//shop/q", "orders")]
        self.assertEqual(lives, [0, 60000, 0])
        hosted.declare(QueueDeclaration("q2", False), "c")
        self.assertEqual(self.broker.nodes["//shop/q2"].limits.ttl_ms, 60000)

    def test_each_virtual_host_has_its_own(self) -> None:
        """Policies of one name in two virtual hosts are two; neither changes the other."""
        self.broker.hosts = {"shop": None}
        hosted = HostedDeclarations(self.broker, self.inventory, self.clock).of("shop")
        self.declare("q")
        hosted.declare(QueueDeclaration("q", True), "c")
        self.do(f"update policy p with pattern=^q, virtual-host=shop, or-create=true, {TTL}")
        shorter = definition(message_ttl=1000)
        self.do(f"update policy p with pattern=^q, or-create=true, {shorter}")

        def lives() -> list[int]:
            return [self.broker.nodes[name].limits.ttl_ms for name in ("q", "//shop/q")]

        self.assertEqual(lives(), [1000, 60000])
        rows = [(row["name"], row["virtual-host"]) for row in rows_of(self, "policy")]
        self.assertEqual(sorted(rows), [("//shop/p", "shop"), ("p", "/")])
        self.assertEqual(self.statuses('update policy "//shop/p" with virtual-host="/"'), [400])
        self.may = {"/policies/p"}
        self.assertEqual(self.statuses('delete policy "//shop/p"'), [403])
        self.may = {"//shop//policies/p"}
        self.do('delete policy "//shop/p"')
        self.assertEqual(lives(), [1000, 0])

    def test_right(self) -> None:
        """A policy takes the right to manage ``/policies/NAME``."""
        self.may = {"$management", "orders"}
        self.assertEqual(self.statuses(f"create policy p with pattern=q, {TTL}"), [403])
        self.may.add("/policies/p")
        self.assertEqual(self.statuses(f"create policy p with pattern=q, {TTL}"), [201])

    def test_all_or_nothing(self) -> None:
        """A batch that fails leaves no policy, in force or noted."""
        self.declare("q")
        self.statuses(f"create policy p with pattern=q, {TTL}\ncreate queue orders")
        self.assertEqual((rows_of(self, "policy"), self.notes().keys()), ([], {"node"}))
        self.assertEqual(self.broker.nodes["q"].limits.ttl_ms, 0)

    def test_not_stored(self) -> None:
        """A policy that the store does not take is not in force."""
        self.declare("q")
        self.store.is_failing = True
        self.send(f"create policy p with pattern=q, {TTL}")
        self.store.is_failing = False
        self.clock.advance(1)
        self.assertEqual(self.broker.nodes["q"].limits.ttl_ms, 0)
        self.assertFalse(self.inventory.policies["policy"])
        self.flushLoggedErrors()


class InForceTests(PolicyCase):
    def test_queues(self) -> None:
        """Queues there are and queues to come, transient ones too, follow the policies."""
        self.declare("tmp.a", message_ttl=90000)
        self.declare("tmp.b", message_ttl=30000)
        self.do(f'create policy p with pattern="^(tmp|orders)", {TTL}')
        self.declare("tmp.c", durable=False)
        self.declare("other")
        lives = {name: queue.limits.ttl_ms for name, queue in self.broker.nodes.items()}
        lives.pop(self.replies.name)
        self.assertEqual(
            lives,
            {"orders": 60000, "tmp.a": 60000, "tmp.b": 30000, "tmp.c": 60000, "other": 0},
        )
        self.do("rename queue tmp.a x")
        self.assertEqual(self.broker.nodes["x"].limits.ttl_ms, 90000)
        self.do("delete policy p")
        self.assertEqual(self.broker.nodes["tmp.c"].limits.ttl_ms, 0)
        self.assertEqual(self.broker.nodes["orders"].limits.ttl_ms, 0)

    def test_redeclared(self) -> None:
        """Policies are no part of what a client declares: the same declaration still fits."""
        self.do(f"create policy p with pattern=q, {TTL}")
        self.declare("q", max_length=5)
        self.declare("q", max_length=5)

    def test_sources(self) -> None:
        """A READ says of each value where it is written."""
        self.declare("q", message_ttl=90000, max_priority=3)
        self.do(
            f"create policy p with pattern=q, {definition(message_ttl=70, overflow=DROP)}\n"
            f"create operator-policy o with pattern=q, {definition(max_length=2)}"
        )
        row = self.read("queue", "q")
        self.assertEqual((row["policy"], row["operator-policy"]), ("p", "o"))
        self.assertEqual(
            {name: dict(term) for name, term in row["terms"].items()},
            {
                "message-ttl": {"value": 70, "source": "policy", "policy": "p"},
                "overflow": {"value": "drop-head", "source": "policy", "policy": "p"},
                "max-length": {"value": 2, "source": "operator policy", "policy": "o"},
                "max-priority": {"value": 3, "source": "argument"},
            },
        )
        self.assertNotIn("terms", self.read("queue", "orders"))

    def test_excess_goes(self) -> None:
        """A bound that a policy brings is in force for what waits already."""
        self.declare("q")
        self.fill("q", 5)
        self.do(f"create policy p with pattern=q, {definition(max_length=2)}")
        self.clock.advance(1)
        self.assertEqual(self.broker.nodes["q"].available, 2)

    def test_expires(self) -> None:
        """A queue that a client declared ends by a policy; one of the file does not."""
        self.declare("q")
        self.do(f"create policy p with pattern=., {definition(expires=5000)}")
        self.clock.advance(4)
        self.declarations.used("q")
        self.clock.advance(4.5)
        self.assertIn("q", self.broker.nodes)
        self.clock.advance(1)
        self.assertEqual(set(self.broker.nodes) - {self.replies.name}, {"orders"})
        self.declare("r")
        self.do("delete policy p")
        self.clock.advance(60)
        self.assertIn("r", self.broker.nodes)

    def test_expires_after_restart(self) -> None:
        """The time starts over with each start."""
        self.declare("q")
        self.do(f"create policy p with pattern=q, {definition(expires=5000)}")
        self.clock.advance(2)
        self.declarations.stop()
        self.restart()
        self.clock.advance(4)
        self.assertIn("q", self.broker.nodes)
        self.clock.advance(2)
        self.assertNotIn("q", self.broker.nodes)

    def test_auto_delete_goes_on(self) -> None:
        """A policy that comes while a queue is in use does not make it stay."""
        asked = QueueDeclaration("q", True, auto_delete=True)
        self.declarations.declare(asked, "c")
        self.clock.advance(1)
        queue = self.broker.nodes["q"]
        queue.attach(self.taker)
        self.do(f"create policy p with pattern=q, {definition(expires=5000)}")
        queue.detach(self.taker)
        self.clock.advance(1)
        self.assertNotIn("q", self.broker.nodes)

    def test_alternate_exchange(self) -> None:
        """Exchanges get the alternate exchange of a policy unless their declaration names one."""
        self.do(
            "create exchange a with type=direct\n"
            "create exchange b with type=direct, alternate-exchange=own\n"
            "create exchange lost with type=fanout\n"
            "create exchange-binding lost with target=orders\n"
            f"create policy p with pattern=., {definition(alternate_exchange=LOST)}"
        )
        route = self.broker.topology.graph.route
        self.assertEqual(route("a", ["k"], {}).queues, ("orders",))
        self.assertEqual(route("amq.direct", ["k"], {}).queues, ("orders",))
        self.assertEqual(route("b", ["k"], {}).queues, ())
        self.assertEqual(route("", ["k"], {}).queues, ())
        row = self.read("exchange", "a")
        self.assertEqual((row["alternate-exchange"], row["policy"]), ("lost", "p"))
        self.assertEqual(self.read("exchange", "b")["alternate-exchange"], "own")
        self.restart()
        route = self.broker.topology.graph.route
        self.assertEqual(route("a", ["k"], {}).queues, ("orders",))
        self.do("create exchange c with type=topic\ndelete policy p")
        self.assertEqual(route("a", ["k"], {}).queues, ())
        self.assertIsNone(self.broker.topology.graph.exchange("c").alternate)
        self.do("assert exchange a with type=direct")


class ConfiguredPolicyTests(PolicyCase):
    def test_file_goes_first(self) -> None:
        """A policy of the file goes before one made here, which is back when it has left."""
        self.declare("q")
        self.do(f"create policy p with pattern=q, {TTL}")
        wanted = self.configured(topology_policy("p", "q", {"message-ttl": 7}))
        self.inventory.declare(wanted)
        self.assertEqual(self.broker.nodes["q"].limits.ttl_ms, 7)
        (row,) = rows_of(self, "policy")
        self.assertEqual((row["origin"], row["declared-at"]), ("configuration", "etc.yaml:9"))
        self.do("update policy p with priority=3")
        self.assertEqual(self.broker.nodes["q"].limits.ttl_ms, 7)
        self.inventory.declare(self.CONFIGURED)
        self.assertEqual(self.broker.nodes["q"].limits.ttl_ms, 60000)

    def test_not_changed_here(self) -> None:
        """Policies of the file are changed there."""
        policy = topology_policy("p", "q", {"message-ttl": 7}, is_operator=True)
        self.inventory.declare(self.configured(policy))
        for text in ("delete operator-policy p", "update operator-policy p with priority=1"):
            _, body = self.run_text(text)
            self.assertIn("declared at etc.yaml:9", body["results"][0]["description"])
        self.assertEqual(self.statuses("delete policy p"), [404])

    def test_refused_reload_changes_nothing(self) -> None:
        """A reload that another node refuses leaves the policies in force as they were."""
        wanted = self.configured(topology_policy("p", "orders", {"message-ttl": 7}))
        self.inventory.prepare(wanted)
        self.assertEqual(self.broker.nodes["orders"].limits.ttl_ms, 0)
        self.inventory.prepare(wanted)()
        self.assertEqual(self.broker.nodes["orders"].limits.ttl_ms, 7)


class PolicyDefinitionTests(PolicyCase):
    """Policies in definitions of RabbitMQ."""

    DOCUMENT = """{"rabbit_version": "3.13.7", "vhosts": [{"name": "/"}],
      "policies": [{"vhost": "/", "name": "a \\"b\\"", "pattern": "^x\\\\.",
        "apply-to": "queues", "priority": 2, "definition": {"message-ttl": 5, "ha-mode": "all"}},
        {"vhost": "/", "name": "ae", "pattern": ".", "apply-to": "exchanges", "priority": 0,
         "definition": {"alternate-exchange": "lost", "message-ttl": 4}},
        {"vhost": "/", "name": "bad", "pattern": "(", "apply-to": "all", "priority": 0,
         "definition": {"max-length": 4}}],
      "parameters": [{"vhost": "/", "component": "operator_policy", "name": "o",
        "value": {"pattern": "", "apply-to": "queues", "priority": 1,
                  "definition": {"max-length": 9}}}]}"""

    def test_there_and_back(self) -> None:
        """Imported policies are in force, and exported again; unsupported ones are named."""
        plan = plan_import(self.DOCUMENT)
        unmatched = list(plan.unmatched)
        self.do("\n".join(definition_commands(plan.hosts[0], unmatched)))
        self.assertEqual(
            [(each.kind, each.name) for each in unmatched],
            [("policy", 'a "b"'), ("policy", "ae"), ("policy", "bad")],
        )
        self.assertEqual(
            [each.reason for each in unmatched[:2]],
            ["without counterpart: ha-mode", "without counterpart: message-ttl"],
        )
        self.declare("x.q")
        limits = self.broker.nodes["x.q"].limits
        self.assertEqual((limits.ttl_ms, limits.length), (5, 9))
        policies = [*rows_of(self, "policy"), *rows_of(self, "operator-policy")]
        hosts = hosts_of_rows([], [], [], policies)
        document, left = export_document(DefinitionPlan(hosts))
        self.assertEqual((len(document["policies"]), left), (2, ()))  # type: ignore[arg-type]
        again = plan_import(json.dumps(document))
        self.assertEqual(again.unmatched, ())
        self.assertCountEqual(again.hosts[0].policies, plan.hosts[0].policies)
