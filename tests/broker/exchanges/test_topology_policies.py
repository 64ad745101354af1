# SPDX-License-Identifier: Apache-2.0
"""Matching and precedence of policies (issue 09-W-74, RabbitMQ's rules)."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.exchanges.argument_rules import (
    EXCHANGE_POLICY_KEYS,
    OPERATOR_KEYS,
    QUEUE_POLICY_KEYS,
    EffectiveTerm,
    QueueKind,
    TermSource,
    effective_terms,
)
from amqproute.broker.exchanges.queue_settings import terms_in_force, with_terms
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.exchanges.topology_policies import (
    LONGEST_PATTERN,
    PolicyScope,
    PolicySet,
    TopologyPolicy,
    topology_policy,
)
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.config.loader import loads
from amqproute.config.node_settings import PolicyDefinitionSettings
from amqproute.daemon.node_assembly import policy_declaration
from amqproute.errors import ConfigError


def made(name: str, pattern: str, priority: int = 0, **more: Any) -> TopologyPolicy:
    """Make a policy that says a lifetime."""
    return topology_policy(name, pattern, {"message-ttl": 5}, priority=priority, **more)


class SelectionTests(SynchronousTestCase):
    def test_highest_priority_applies(self) -> None:
        """One policy applies, that of the highest priority; of equals the first by name."""
        policies = PolicySet(
            [made("low", ".", -1), made("b", "^q"), made("a", "q"), made("high", "^orders", 7)]
        )
        for name, expected in (("orders", "high"), ("q1", "a"), ("xq", "a"), ("x", "low")):
            policy, operator = policies.of_queue(name)
            self.assertEqual((policy and policy.name, operator), (expected, None), name)
        self.assertEqual(PolicySet([made("a", "^q$")]).of_queue("q1"), (None, None))

    def test_operator_beside(self) -> None:
        """An operator policy applies beside the other, whatever their priorities."""
        policies = PolicySet([made("a", "q", 9), made("a", "q", is_operator=True)])
        both = policies.of_queue("q")
        self.assertEqual([each and each.name for each in both], ["a", "a"])
        self.assertEqual(policies.of_exchange("q"), policies.of_queue("q")[0])

    def test_scopes(self) -> None:
        """Each scope has its queues or exchanges; the default exchange has no policy."""
        for scope, fits in (
            (PolicyScope.ALL, (True, True, True)),
            (PolicyScope.QUEUES, (True, True, False)),
            (PolicyScope.CLASSIC_QUEUES, (True, False, False)),
            (PolicyScope.QUORUM_QUEUES, (False, True, False)),
            (PolicyScope.EXCHANGES, (False, False, True)),
        ):
            said = {"alternate-exchange": "a"} if scope is PolicyScope.EXCHANGES else {"expires": 5}
            policies = PolicySet([topology_policy("p", "", said, scope)])
            found = (
                policies.of_queue("q")[0],
                policies.of_queue("q", QueueKind.QUORUM)[0],
                policies.of_exchange("e"),
            )
            self.assertEqual(tuple(each is not None for each in found), fits, scope)
            self.assertIsNone(policies.of_exchange(""))

    def test_refused(self) -> None:
        """A fault of a policy is named with its key."""
        cases: list[tuple[dict[str, Any], str]] = [
            ({"name": ""}, "name: "),
            ({"name": "x" * 256}, "name: "),
            ({"name": "a\nb"}, "name: "),
            ({"pattern": "(a"}, "pattern: '(a' is not a regular expression: missing )"),
            ({"pattern": "a" * (LONGEST_PATTERN + 1)}, "pattern: it has 1025 characters"),
            ({"priority": 1 << 31}, "priority: "),
            ({"definition": {}}, "definition: it says nothing"),
            ({"definition": {"ha-mode": "all"}}, "definition: 'ha-mode' has no meaning"),
            ({"definition": {"max-priority": 5}}, "definition: 'max-priority' has no meaning"),
            ({"definition": {"max-length": "5"}}, "invalid arg 'max-length' for policy 'p'"),
            ({"definition": {"dead-letter-exchange": ""}}, "dead-letter-routing-key"),
            ({"scope": PolicyScope.QUEUES, "definition": {"alternate-exchange": "a"}},
             "a policy for queues"),
            ({"scope": PolicyScope.EXCHANGES}, "a policy for exchanges; there are alternate"),
            ({"is_operator": True, "definition": {"overflow": "drop-head"}},
             "an operator policy; there are delivery-limit, expires, max-length"),
            ({"is_operator": True, "scope": PolicyScope.EXCHANGES}, "apply-to: "),
        ]  # fmt: skip
        for given, words in cases:
            usual = {"name": "p", "pattern": "q", "definition": {"max-length": 5}}
            fault = self.assertRaises(TopologyFault, topology_policy, **{**usual, **given})
            self.assertIn(words, fault.text, given)


class InForceTests(SynchronousTestCase):
    """A queue's terms from policies, arguments and options."""

    def force(
        self, declaration: NodeDeclaration, *policies: TopologyPolicy
    ) -> tuple[dict[str, EffectiveTerm], NodeDeclaration]:
        terms = terms_in_force(declaration, PolicySet(policies))
        return terms, with_terms(declaration, {key: term.value for key, term in terms.items()})

    def test_untouched(self) -> None:
        """A queue that no client declared and no policy fits is what it was."""
        plain = NodeDeclaration("q", QueueLimits(ttl_ms=9, priorities=3, max_deliveries=2))
        self.assertEqual(self.force(plain, made("p", "x")), ({}, plain))

    def test_options(self) -> None:
        """Options count as arguments do; priorities and places stay those of the options."""
        plain = NodeDeclaration(
            "q", QueueLimits(ttl_ms=9, priorities=3, max_deliveries=2, capacity=7), "dead"
        )
        said = {"message-ttl": 20, "delivery-limit": 0, "max-length": 5, "expires": 10,
                "overflow": "reject-publish", "dead-letter-exchange": "dlx"}  # fmt: skip
        terms, node = self.force(plain, topology_policy("p", "q", said))
        self.assertEqual(terms["message-ttl"], EffectiveTerm(9, TermSource.OPTION))
        self.assertEqual(terms["delivery-limit"], EffectiveTerm(0, TermSource.POLICY, "p"))
        self.assertNotIn("expires", terms)
        self.assertNotIn("dead-letter-exchange", terms)
        limits = node.limits
        found = (limits.ttl_ms, limits.max_deliveries, limits.priorities, limits.capacity)
        self.assertEqual(found, (9, 1, 3, 5))
        self.assertEqual((node.dead_letter, node.dead_letter_target), ("dead", None))

    def test_declared(self) -> None:
        """Of a number the lowest is in force, of the rest the argument, then the policy."""
        declared = NodeDeclaration(
            "q",
            QueueLimits(),
            terms={"message-ttl": 50, "overflow": "reject-publish", "consumer-timeout": 0},
        )
        said = {"message-ttl": 60, "overflow": "drop-head", "max-length": 9,
                "consumer-timeout": 70, "dead-letter-exchange": "d"}  # fmt: skip
        bound = topology_policy("o", "q", {"message-ttl": 40, "max-length": 10}, is_operator=True)
        terms, node = self.force(declared, topology_policy("p", "q", said), bound)
        self.assertEqual(
            {key: (term.value, term.source.value, term.policy) for key, term in terms.items()},
            {
                "message-ttl": (40, "operator policy", "o"),
                "overflow": ("reject-publish", "argument", ""),
                "max-length": (9, "policy", "p"),
                "consumer-timeout": (70, "policy", "p"),
                "dead-letter-exchange": ("d", "policy", "p"),
            },
        )
        self.assertEqual((node.limits.ttl_ms, node.limits.capacity), (40, 9))

    def test_no_bound_is_the_highest(self) -> None:
        """-1 deliveries, and a timeout of 0, bound nothing."""
        for key, none in (("delivery-limit", -1), ("consumer-timeout", 0)):
            policy = topology_policy("p", "", {key: none}).terms
            self.assertEqual(effective_terms({key: 5}, policy)[key].value, 5)
            bound = topology_policy("p", "", {key: 5}).terms
            self.assertEqual(effective_terms({key: none}, bound)[key].value, 5)


class SchemaTests(SynchronousTestCase):
    """The configuration and the commands take the same policies."""

    def test_same_keys(self) -> None:
        """Each key of a policy is a setting, and no other."""
        keys = {info.alias for info in PolicyDefinitionSettings.model_fields.values()}
        self.assertEqual(keys, QUEUE_POLICY_KEYS | EXCHANGE_POLICY_KEYS)

    def test_same_values(self) -> None:
        """Both refuse the same."""
        samples = (-2, -1, 0, 1, 0xFFFFFFFF, 1 << 32, 315360000001, "x", "x" * 255,
                   "é" * 128, "drop-head", "reject-publish-dlx", "lazy", "at-least-once",
                   True)  # fmt: skip
        for key in sorted(QUEUE_POLICY_KEYS | EXCHANGE_POLICY_KEYS):
            for value in samples:
                try:
                    settings = PolicyDefinitionSettings.model_validate({key: value})
                except ValidationError:
                    self.assertRaises(TopologyFault, topology_policy, "p", "q", {key: value})
                else:
                    said = settings.model_dump(by_alias=True, exclude_none=True)
                    self.assertEqual(topology_policy("p", "q", said).terms.values, {key: value})

    def test_same_scopes(self) -> None:
        """Each key has its place in operator policies and by what a policy applies to."""
        values = {"alternate-exchange": "a", "overflow": "drop-head", "max-length": 5}
        entries, expected = [], []
        for scope in PolicyScope:
            for is_operator in (False, True):
                for key, value in values.items():
                    expected.append((scope, is_operator, key))
                    entries.append(
                        f"- {{name: p{len(entries)}, pattern: q, apply-to: {scope.value}, "
                        f"operator: {str(is_operator).lower()}, definition: {{{key}: {value}}}}}\n"
                    )
        error = self.assertRaises(ConfigError, loads, "policies:\n" + "".join(entries), "f")
        refused = {int(each.split("[")[1].split("]")[0]) for each in error.problems}
        for place, (scope, is_operator, key) in enumerate(expected):
            try:
                topology_policy("p", "q", {key: values[key]}, scope, 0, is_operator)
            except TopologyFault:
                self.assertIn(place, refused, expected[place])
            else:
                self.assertNotIn(place, refused, expected[place])

    def test_declaration(self) -> None:
        """An entry of the file is the policy that it says."""
        text = "policies: [{name: p, pattern: q, operator: true, definition: {max-length: 5}}]"
        (settings,) = loads(text, "f").policies
        expected = topology_policy("p", "q", {"max-length": 5}, is_operator=True)
        self.assertEqual(policy_declaration(settings), expected)

    def test_operator_keys(self) -> None:
        """Operator policies bound numbers only."""
        self.assertLess(OPERATOR_KEYS, QUEUE_POLICY_KEYS)
