# SPDX-License-Identifier: Apache-2.0
"""Routing of addresses (T-05 to T-08)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField
from amqproute.routing.table import REMEMBERED, Router
from amqproute.values import Local, NextHop, RouteRule


class RouterTests(SynchronousTestCase):
    """The table."""

    def router(self, *rules: RouteRule) -> Router:
        """Return the router of a broker with two names."""
        return Router(["alpha.example", "Host-1.alpha.example."], rules, {"ct-7": "beta.example"})

    def test_local(self) -> None:
        """No domain, or one of ours in any spelling, is local (T-06, T-07)."""
        router = self.router()
        for address in ("orders", "orders@alpha.example", "orders@ALPHA.example.",
                        "orders@host-1.alpha.example"):  # fmt: skip
            self.assertEqual(router.route(address), Local("orders"))
        self.assertEqual(router.route("a@b@alpha.example"), Local("a@b"))
        self.assertEqual(router.route("@alpha.example"), Local(""))

    def test_compatibility(self) -> None:
        """Addresses of RabbitMQ 4's clients are rewritten once."""
        router = self.router()
        self.assertEqual(router.route("/queues/a%20b"), Local("a b"))
        self.assertEqual(router.route("/queues/a%40beta.example"), router.route("a@beta.example"))
        self.assertEqual(router.route("/queues/%2Fqueues%2Fa"), Local("/queues/a"))

    def test_dns(self) -> None:
        """Any other domain is its own next hop (T-08)."""
        hop = NextHop("beta.example", "beta.example")
        router = self.router()
        self.assertEqual(router.route("orders@Beta.Example"), hop)
        self.assertEqual(router.route("@beta.example"), hop)
        self.assertEqual(
            router.route("x@bücher.example"),
            NextHop("xn--bcher-kva.example", "xn--bcher-kva.example"),
        )

    def test_rules_in_their_order(self) -> None:
        """The first rule that fits decides."""
        router = self.router(
            RouteRule("beta.example", "amqps://gw.beta.example"),
            RouteRule("*.beta.example", "amqp://sub.beta.example", "anonymous", ("x.example",)),
            RouteRule("gamma.example", None, "anonymous"),
            RouteRule("*", "amqps://smart.example:5700"),
        )
        for address, hop in (
            ("a@beta.example",
             NextHop("gw.beta.example:5671", "gw.beta.example", "amqps://gw.beta.example")),
            ("a@eu.beta.example",
             NextHop("sub.beta.example:5672", "sub.beta.example", "amqp://sub.beta.example",
                     "anonymous", ("x.example",))),
            ("a@gamma.example",
             NextHop("gamma.example", "gamma.example", None, "anonymous")),
            ("a@delta.example",
             NextHop("smart.example:5700", "smart.example", "amqps://smart.example:5700")),
        ):  # fmt: skip
            self.assertEqual(router.route(address), hop)
        self.assertEqual(router.route("a@alpha.example"), Local("a"))

    def test_wildcard_does_not_mean_the_domain_itself(self) -> None:
        """``*.beta.example`` is about what is below, and not about lookalikes."""
        rule = RouteRule("*.beta.example", None)
        self.assertTrue(rule.matches("eu.beta.example"))
        self.assertFalse(rule.matches("beta.example"))
        self.assertFalse(rule.matches("notbeta.example"))

    def test_node_template(self) -> None:
        """A peer that takes each node on a link of its own is a hop for each node (T-34)."""
        router = self.router(RouteRule("beta.example", "amqps://gw", "/queues/{node}"))
        hop = router.route("orders@beta.example")
        assert isinstance(hop, NextHop)
        self.assertEqual((hop.key, hop.target), ("gw:5671/orders", "/queues/orders"))
        self.assertEqual(router.hop_of_key(hop.key), hop)

    def test_direct(self) -> None:
        """A returned message goes by a link to the node, also after a restart (T-26)."""
        for rules in ((), (RouteRule("*", "amqps://gw"),)):
            router = self.router(*rules)
            hop = router.direct("replies@beta.example")
            self.assertEqual(hop.target, "replies@beta.example")
            self.assertNotEqual(hop.key, router.hop("beta.example").key)
            self.assertEqual(router.hop_of_key(hop.key), hop)
        templated = self.router(RouteRule("*", "amqps://gw", "/queues/{node}"))
        self.assertEqual(templated.direct("replies@beta.example").target, "/queues/replies")
        for text in ("replies", "@beta.example"):
            self.assertRaises(InvalidField, router.direct, text)

    def test_container(self) -> None:
        """A peer may be named by the container-id that the operator wrote down (A-17)."""
        self.assertEqual(self.router().route("a@ct-7"), NextHop("beta.example", "beta.example"))

    def test_keys_of_earlier_runs(self) -> None:
        """A relay queue keeps its name and finds the way that is configured now."""
        router = self.router(
            RouteRule("beta.example", "amqp://gw.example", "anonymous", ("n.example",))
        )
        self.assertEqual(
            router.hop_of_key("gw.example:5672"),
            NextHop(
                "gw.example:5672", "gw.example", "amqp://gw.example", "anonymous", ("n.example",)
            ),
        )
        moved = router.hop_of_key("beta.example")
        self.assertEqual((moved.key, moved.via), ("beta.example", "amqp://gw.example"))
        gone = router.hop_of_key("old.example:5999")
        self.assertEqual((gone.key, gone.domain), ("old.example:5999", "old.example"))
        self.assertEqual(router.hop_of_key("d.example"), NextHop("d.example", "d.example"))

    def test_bad_addresses(self) -> None:
        """Texts that are no address have no route (A-13)."""
        for address in ("", "name@", "x@-bad-.example", "x@10.0.0.1"):
            self.assertRaises(InvalidField, self.router().route, address)

    def test_memory_is_bounded(self) -> None:
        """A sender of ever new addresses does not fill it."""
        router = self.router()
        for number in range(REMEMBERED + 10):
            router.route(f"n{number}")
        self.assertLessEqual(len(router._known), REMEMBERED)
