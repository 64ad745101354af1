# SPDX-License-Identifier: Apache-2.0
"""Links as operators see them, and their end by an operator."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import codec, spec
from tests.conformance.frame_broker import Client, Network, condition, section, section_of


class OverviewTests(SynchronousTestCase):
    """G-13, G-17."""

    def setUp(self) -> None:
        self.house = Network().house()
        self.client = self.house.client().ready("worker")

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the rows of the client's links, by name."""
        frontend = next(
            each for each in self.house.frontends if each.connection.remote_container_id == "worker"
        )
        return {row["name"]: row for row in frontend.link_rows()}

    def ask(self, text: str) -> list[dict[str, Any]]:
        """Send commands by a client of its own; return their results."""
        operator = self.house.client().ready("operator")
        source = spec.Source(dynamic=True)
        address = operator.receiver(None, source=source, credit=1).source.address
        operator.sender("$management", handle=1)
        asked = codec.encode(spec.Properties(message_id="m", reply_to=address))
        operator.publish(0, asked + section(spec.SECTION_AMQP_VALUE, text), handle=1)
        operator.run()
        (reply,) = operator.messages()
        results: list[dict[str, Any]] = section_of(reply, spec.SECTION_AMQP_VALUE)["results"]
        operator.hang_up()
        return results

    def test_rows(self) -> None:
        """Both directions, with credit and what is unsettled."""
        self.client.fill([b"1", b"2", b"3"])
        self.client.sender("q", handle=0, name="in")
        self.client.receiver("q", handle=1, name="out", credit=2)
        rows = self.rows()
        self.assertEqual((rows["in"]["direction"], rows["in"]["address"]), ("in", "q"))
        self.assertEqual(rows["in"]["credit"], self.client.house.shared.limits.link_credit)
        out = rows["out"]
        self.assertEqual((out["direction"], out["node"], out["credit"]), ("out", "q", 0))
        self.assertEqual((out["unsettled"], out["deliveries"], out["copies"]), (2, 2, False))
        self.assertEqual((out["container"], out["principal"]), ("worker", "anonymous"))
        whole = {each.row()["container"]: each.row() for each in self.house.frontends}["worker"]
        self.assertEqual((whole["unsettled"], whole["links"], whole["credit-out"]), (2, 2, 0))

    def test_query(self) -> None:
        """`query link` shows them beside the bindings."""
        self.client.sender("q", name="in")
        (result,) = self.ask("query link with kind=link, container=worker")
        (row,) = result["attributes"]["entities"]
        self.assertEqual((row["name"], row["is-waiting"]), ("in", False))

    def test_closed_by_an_operator(self) -> None:
        """`delete link` detaches them; what they held is there for others."""
        self.client.fill([b"1"])
        self.client.receiver("q", name="out", credit=1)
        (result,) = self.ask("delete link out")
        self.assertEqual((result["status"], result["attributes"]["links"]), (200, 1))
        self.client.run()
        self.assertEqual(condition(self.client.one(spec.Detach)), "amqp:link:detach-forced")
        self.assertEqual(self.rows(), {})
        other: Client = self.house.client().ready("other")
        other.receiver("q", credit=1)
        self.assertEqual(other.bodies(), [b"1"])
        self.assertEqual(self.ask("delete link out")[0]["status"], 404)
        self.assertEqual(self.ask("rename link out in")[0]["status"], 404)

    def test_only_bindings_change(self) -> None:
        """G-15, G-16: a client's link is renamed and changed by its client alone: 409."""
        self.client.sender("q", handle=0, name="in")
        self.client.receiver("q", handle=1, name="out", credit=2)
        for text in (
            "rename link in other",
            "rename link out in",
            "update link out with mode=copy",
        ):
            (result,) = self.ask(text)
            self.assertEqual(result["status"], 409, text)
            self.assertIn("client's link", result["description"], text)
        self.assertEqual(set(self.rows()), {"in", "out"})
        self.assertEqual(self.ask("rename link nobody other")[0]["status"], 404)
        self.ask("create queue r")
        self.assertEqual(self.ask("create link out q r")[0]["status"], 201)
        self.assertEqual(self.ask("rename link out along")[0]["status"], 200)

    def test_query_of_both(self) -> None:
        """G-17: bindings and attached links, with credit, delivery-count and what is unsettled."""
        self.ask("create queue r\ncreate queue s")
        self.ask("create link along r s")
        self.client.fill([b"1", b"2", b"3"])
        self.client.sender("r", handle=0, name="in")
        self.client.publish(0)
        self.client.publish(1)
        self.client.receiver("q", handle=1, name="out", credit=2)
        (result,) = self.ask("query link")
        rows = {row["name"]: row for row in result["attributes"]["entities"]}
        along = rows["along"]
        self.assertEqual((along["kind"], along["source"], along["target"]), ("binding", "r", "s"))
        self.assertEqual((along["moved"], along["mode"]), (2, "move"))
        self.assertEqual((rows["in"]["delivery-count"], rows["in"]["unsettled"]), (2, 0))
        credit = self.house.shared.limits.link_credit
        self.assertEqual(rows["in"]["credit"], credit - 2)
        out = rows["out"]
        self.assertEqual((out["credit"], out["delivery-count"], out["unsettled"]), (0, 2, 2))
        self.client.dispose(0)
        self.client.credit(3, handle=1, delivery_count=2)
        (result,) = self.ask("query link out")
        (out,) = result["attributes"]["entities"]
        self.assertEqual((out["credit"], out["delivery-count"], out["unsettled"]), (2, 3, 2))
        for text, names in (
            ("query link along", ["along"]),
            ("query link with direction=out, container=worker", ["out"]),
            ("query link with kind=binding", ["along"]),
            ("query link nobody", []),
        ):
            (result,) = self.ask(text)
            found = [row["name"] for row in result["attributes"]["entities"]]
            self.assertEqual((result["status"], found), (200, names), text)
