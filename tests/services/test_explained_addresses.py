# SPDX-License-Identifier: Apache-2.0
"""EXPLAIN: where a message for an address goes, and what it costs to say so."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.relay import destination_row
from amqproute.relay.destination_row import peer_row_of
from amqproute.relay.routing_decision import RoutingDecisions
from amqproute.routing.table import Router
from amqproute.services.management_protocol import ManagementReply
from amqproute.services.message_access import explain_address
from amqproute.store.memory import MemoryStore
from amqproute.values import NextHop
from tests.support.fakes import node

LONGEST = 16 * 1024


class ExplainTests(SynchronousTestCase):
    """A broker with one node."""

    def setUp(self) -> None:
        clock = Clock()
        self.broker = Broker(MemoryStore(clock), clock, lambda: 0, lambda: "dynamic")
        self.broker.declare([node("orders")], {})
        self.asked: list[str] = []

    def explain(self, text: str) -> ManagementReply:
        """Ask about an address."""
        return explain_address(text, self.broker, Router(["alpha.example"]), self.row, self.row)

    def row(self, key: str) -> dict[str, object] | None:
        """Return the state of one next hop."""
        self.asked.append(key)
        return {"name": key} if key == "beta.example" else None

    def test_facts(self) -> None:
        """A node here, and a next hop with what is known of it, which is looked up by its key."""
        here = self.explain("orders@alpha.example")
        self.assertEqual((here.body["way"], here.body["kind"]), ("local", "queue"))
        self.assertEqual(self.explain("none").body["kind"], None)
        self.assertEqual(self.asked, [])
        beta = self.explain("orders@beta.example")
        self.assertEqual(beta.body["peer"], {"name": "beta.example"})
        self.assertEqual(self.explain("orders@gamma.example").body["decision"], None)
        self.assertEqual(self.asked, ["beta.example"] * 2 + ["gamma.example"] * 2)

    def test_one_row(self) -> None:
        """Beside thousands of next hops the row of one is made."""
        made: list[Any] = []
        self.patch(destination_row, "peer_row", lambda each, _: made.append(each) or {"name": each})
        hops: Any = {f"d{number}.example": f"d{number}" for number in range(4000)}
        holds: Any = None
        self.assertEqual(peer_row_of(hops, holds, "d7.example"), {"name": "d7"})
        self.assertEqual(peer_row_of(hops, holds, "other.example"), None)
        self.assertEqual(made, ["d7"])

    def test_decision(self) -> None:
        """A decision is found by its key, and says the same as the list of all."""

        async def find(*_: Any) -> Any:
            raise AssertionError("there are no places to ask about")

        decisions = RoutingDecisions(find)
        for number in range(3):
            decisions.made(NextHop(f"d{number}.example", f"d{number}.example"))
        self.assertEqual(decisions.row("d1.example"), decisions.rows()[1])
        self.assertIsNone(decisions.row("d9.example"))

    def test_long_addresses(self) -> None:
        """The longest that a request can have are refused, in few words."""
        for text in (
            "a" * LONGEST,
            "a@" * (LONGEST // 2),
            "x@" + "a." * (LONGEST // 2),
            "/" * LONGEST,
            "x@b" + "%41" * (LONGEST // 3),
            "amqps://" + "a" * LONGEST,
            "x@" + "\N{LATIN SMALL LETTER E WITH ACUTE}." * (LONGEST // 2),
            "x@" + "xn--a." * (LONGEST // 6),
            '"' * LONGEST + "@b.example",
        ):
            reply = self.explain(text)
            self.assertEqual(reply.status, 400, text[:20])
            self.assertLess(len(reply.description), 1500, text[:20])
