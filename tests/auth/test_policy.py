# SPDX-License-Identifier: Apache-2.0
"""Access rules: the table of rights, and errors for the operator."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth import policy
from amqproute.auth.policy import AccessPolicy, Rule, Verb, default_rules
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal

ANN = Principal("user", "ann")
BOB = Principal("user", "bob")
BETA = Principal("peer", "mx.beta.example", frozenset({"mx.beta.example", "beta.example"}))
GAMMA = Principal("peer", "gamma.example", frozenset({"gamma.example"}))
ROOT = Principal("uid", "0")

RULES = (
    Rule.of(deny=["publish"], who="user:bob", node="orders"),
    Rule.of(allow=["publish", "consume"], who="user:*", node="orders"),
    Rule.of(allow=["publish"], who="user:ann", node="*@b.test"),
    Rule.of(allow=["publish"], who="user:bob", node="@b.test"),
    Rule.of(allow=["transfer"], who="peer:beta.example", node="orders"),
    Rule.of(allow=["browse"], who="*", node="prices"),
    Rule.of(allow=["publish"], who="peer:*", node="amqp$transfer"),
    Rule.of(allow=["consume"], who="anonymous", node="prices.*"),
)


class PrincipalTests(SynchronousTestCase):
    def test_str(self) -> None:
        self.assertEqual(
            [str(one) for one in (ANN, GAMMA, ROOT, ANONYMOUS_PRINCIPAL)],
            ["user:ann", "peer:gamma.example", "uid:0", "anonymous"],
        )


class TableTests(SynchronousTestCase):
    def test_table(self) -> None:
        """Who, what, where: the answer and the rule that gave it."""
        rules = AccessPolicy(RULES)
        for principal, verb, node, allowed, index in (
            (BOB, Verb.PUBLISH, "orders", False, 0),
            (BOB, Verb.CONSUME, "orders", True, 1),
            (ANN, Verb.PUBLISH, "orders", True, 1),
            (ANN, Verb.PUBLISH, "Orders", False, None),
            (ANN, Verb.MANAGE, "orders", False, None),
            (ANN, Verb.PUBLISH, "@b.test", True, 2),
            (ANN, Verb.PUBLISH, "x@b.test", True, 2),
            (ANN, Verb.PUBLISH, "x@b.test.example", False, None),
            (BOB, Verb.PUBLISH, "@b.test", True, 3),
            (BOB, Verb.PUBLISH, "x@b.test", False, None),
            (BOB, Verb.PUBLISH, "amqp$transfer", False, None),
            (BETA, Verb.TRANSFER, "orders", True, 4),
            (GAMMA, Verb.TRANSFER, "orders", False, None),
            (BETA, Verb.PUBLISH, "amqp$transfer", True, 6),
            (ANONYMOUS_PRINCIPAL, Verb.BROWSE, "prices", True, 5),
            (ANONYMOUS_PRINCIPAL, Verb.CONSUME, "prices.eu.gold", True, 7),
            (ANONYMOUS_PRINCIPAL, Verb.CONSUME, "prices", False, None),
            (ROOT, Verb.MANAGE, "orders", False, None),
        ):
            case = f"{principal} {verb} {node}"
            self.assertEqual(rules.explain(principal, verb, node), (allowed, index), case)
            self.assertEqual(rules.allows(principal, verb, node), allowed, case)
            self.assertEqual(rules.allows(principal, verb, node), allowed, case)

    def test_nothing_is_allowed_by_default(self) -> None:
        rules = AccessPolicy([])
        for verb in Verb:
            self.assertFalse(rules.allows(ROOT, verb, "orders"))

    def test_operator(self) -> None:
        """Root and the daemon's user may manage, unless the operator said no."""
        rules = AccessPolicy(default_rules(998))
        for uid, allowed in (("0", True), ("998", True), ("1000", False)):
            self.assertEqual(rules.allows(Principal("uid", uid), Verb.MANAGE, "orders"), allowed)
        self.assertFalse(rules.allows(ROOT, Verb.CONSUME, "orders"))
        self.assertFalse(rules.allows(Principal("user", "0"), Verb.MANAGE, "orders"))
        own = [Rule.of(deny=["manage"], who="uid:*", node="*")]
        self.assertFalse(
            AccessPolicy([*own, *default_rules(0)]).allows(ROOT, Verb.MANAGE, "orders")
        )
        self.assertEqual(len(default_rules(0)), 1)

    def test_memory_is_bounded(self) -> None:
        rules = AccessPolicy(RULES)
        self.patch(policy, "REMEMBERED_ANSWERS", 10)
        for number in range(100):
            rules.allows(ANN, Verb.PUBLISH, f"node{number}")
        rules.allows(ANN, Verb.PUBLISH, "n" * 100_000)
        self.assertLessEqual(len(rules._answers), 10)
        self.assertNotIn((ANN, Verb.PUBLISH, "n" * 100_000), rules._answers)


class RuleTests(SynchronousTestCase):
    def test_refused(self) -> None:
        """A rule that could not mean what its author meant is refused with the reason."""
        for arguments, word in (
            ({"who": "*", "node": "*"}, "allow"),
            ({"who": "*", "node": "*", "allow": ["read"]}, "read"),
            ({"who": "*", "node": "*", "allow": "publish"}, "list"),
            ({"who": "*", "node": "", "allow": ["publish"]}, "node"),
            ({"who": "ann", "node": "*", "allow": ["publish"]}, "user:NAME"),
            ({"who": "role:x", "node": "*", "allow": ["publish"]}, "user:NAME"),
            ({"who": "user:", "node": "*", "allow": ["publish"]}, "user:NAME"),
            ({"who": "uid:root", "node": "*", "allow": ["publish"]}, "number"),
            ({"who": "*", "node": "*", "allow": ["manage"], "deny": ["manage"]}, "both"),
        ):
            with self.assertRaises(ValueError) as caught:
                Rule.of(**arguments)  # type: ignore[arg-type]
            self.assertIn(word, str(caught.exception))

    def test_str(self) -> None:
        self.assertEqual(
            str(Rule.of(who="user:*", node="a", allow=["consume", "publish"])),
            "{allow: [publish, consume], who: 'user:*', node: 'a'}",
        )

    def test_peer_names_are_dns_names(self) -> None:
        rules = AccessPolicy([Rule.of(allow=["transfer"], who="peer:Beta.Example.", node="*")])
        self.assertTrue(rules.allows(BETA, Verb.TRANSFER, "orders"))

    @given(
        pattern=st.text(alphabet="ab*.@$", max_size=8), name=st.text(alphabet="ab.@$", max_size=8)
    )
    def test_stars(self, pattern: str, name: str) -> None:
        """A star is any run of characters, as in the shell."""
        self.assertEqual(policy.pattern_matcher(pattern)(name), fnmatchcase(name, pattern))
