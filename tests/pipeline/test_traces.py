# SPDX-License-Identifier: Apache-2.0
"""Silver: entries from their records, and messages from their entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from amqproute.journal.record import Kind
from tests.pipeline.journals import MIDNIGHT, Journal, handed_on
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame

    from amqproute.pipeline import ingest
    from amqproute.pipeline.schema import HOPS, MESSAGES
    from amqproute.pipeline.traces import hops, messages


class TraceCase(SparkCase):
    """Three brokers, and tables of their journals that are not in files."""

    def setUp(self) -> None:
        super().setUp()
        self.alpha, self.beta, self.gamma = (
            Journal(f"{name}.example") for name in ("alpha", "beta", "gamma")
        )

    def runs(self, *journals: Journal) -> DataFrame:
        directory = Path(self.mktemp()).absolute()
        paths = [
            str(journal.segment(directory))
            for journal in journals or (self.alpha, self.beta, self.gamma)
            if journal.lines
        ]
        return ingest.parse(ingest._lines(self.spark, paths)).persist()

    def hops(self, *journals: Journal) -> DataFrame:
        return hops(self.runs(*journals)).persist()

    def publish(self, entry: int, to: str = "orders@beta.example", **fields: Any) -> None:
        domain = to.partition("@")[2]
        said = {"message_id": f"m{entry}", "message_id_type": "string", "to": to}
        self.alpha.receive(
            entry, f"amqp$out/{domain}", sender="user:ann", origin="alpha.example",
            **{**said, **fields},
        )  # fmt: skip


class HopTests(TraceCase):
    """One row for each entry."""

    def test_ordinary(self) -> None:
        """Beginning and end of an entry meet in one row, whatever came between."""
        self.publish(1, settle_us=7)
        self.alpha.at = 1
        self.alpha.end(Kind.DEFERRED, 1, "amqp$out/beta.example")
        self.alpha.at = 2
        self.alpha.end(
            Kind.RELAYED, 1, "amqp$out/beta.example", peer="peer:beta.example", attempt=2,
            queue_us=5, wire_us=6, settle_us=8,
        )  # fmt: skip
        self.beta.write(
            Kind.DUPLICATE, {"from_stream": self.alpha.stream, "from_entry": 1, "node": "orders"}
        )
        entries = self.hops(self.alpha, self.beta)
        self.assertEqual(entries.schema.names, HOPS.names)
        [row] = entries.collect()
        self.assertEqual(
            (row.kind, row.fate, row.commit_us, row.settle_us, row.queue_us, row.attempt),
            ("received", "relayed", 7, 8, 5, 2),
        )
        self.assertEqual((row.beginnings, row.endings, row.deferrals, row.duplicates), (1, 1, 1, 1))
        self.assertEqual(row.ended_us - row.began_us, 2_000_000)
        self.assertEqual((row.domain, str(row.day)), ("alpha.example", "2026-11-22"))

    def test_out_of_the_ordinary(self) -> None:
        """Entries that end twice, never, without a beginning, that move, that were recovered."""
        for entry in (1, 2, 5):
            self.publish(entry)
        self.alpha.end(Kind.EXPIRED, 1, "amqp$out/beta.example")
        self.alpha.end(Kind.DELETED, 1, "amqp$out/beta.example")
        self.alpha.end(Kind.DELIVERED, 3, "orders")
        self.alpha.write(Kind.RECOVERY, {"node": "orders"}, 2, entry=[4, 5])
        self.alpha.write(Kind.RECOVERY, {"count": 2})
        self.alpha.write(Kind.ROUTED, {"entry": 2, "parent": 2, "node": "amqp$dead-letter"})
        found = {
            row.entry: (row.kind, row.fate, row.beginnings, row.endings, row.queue)
            for row in self.hops(self.alpha).collect()
        }
        out = "amqp$out/beta.example"
        self.assertEqual(found, {
            1: ("received", "expired", 1, 2, out),
            2: ("received", None, 1, 0, "amqp$dead-letter"),
            3: (None, "delivered", 0, 1, "orders"),
            4: ("recovery", None, 0, 0, "orders"),
            5: ("received", None, 1, 0, out),
        })  # fmt: skip


class MessageTests(TraceCase):
    """One row for each message."""

    def messages(self, *journals: Journal) -> dict[str | None, Any]:
        rows = messages(self.hops(*journals))
        self.assertEqual(rows.schema.names, MESSAGES.names)
        return {row.message_id: row for row in rows.collect()}

    def test_over_three_brokers(self) -> None:
        """The hops of a message are in order, and its latency is from end to end."""
        self.publish(1, "orders@gamma.example")
        self.alpha.at = self.beta.at = 1
        handed_on(self.alpha, self.beta, 1, 11, message_id="m1", origin="alpha.example")
        self.beta.at = 2
        trail = f"{self.alpha.broker} {self.beta.broker}"
        handed_on(self.beta, self.gamma, 11, 21, trail, message_id="m1", origin="alpha.example")
        self.gamma.at = 3
        self.gamma.end(Kind.DELIVERED, 21, "orders", peer="user:bob")
        found = self.messages()
        self.assertEqual(list(found), ["m1"])
        message = found["m1"]
        self.assertEqual(
            [(hop.domain, hop.entry, hop.fate) for hop in message.hops],
            [("alpha.example", 1, "relayed"), ("beta.example", 11, "relayed"),
             ("gamma.example", 21, "delivered")],
        )  # fmt: skip
        self.assertEqual((message.trace_stream, message.trace_entry), (self.alpha.stream, 1))
        self.assertEqual((message.fate, message.latency_us), ("delivered", 3_000_000))
        self.assertEqual((message.brokers, message.copies, message.same_digest), (3, 0, True))

    def test_copies_and_reports(self) -> None:
        """What was made of a message belongs to it, also where a copy went to another broker."""
        self.publish(1)
        self.alpha.write(Kind.ROUTED, {"entry": 2, "parent": 1, "node": "amqp$out/beta.example"})
        self.alpha.end(Kind.DELETED, 1, "amqp$out/beta.example", code="copied")
        handed_on(self.alpha, self.beta, 2, 12, message_id="m1")
        self.beta.write(Kind.ROUTED, {"entry": 13, "parent": 12, "node": "amqp$dead-letter"})
        self.beta.end(Kind.DEAD_LETTERED, 12, "orders")
        self.publish(3)
        self.alpha.end(Kind.EXPIRED, 3, "amqp$out/beta.example")
        self.alpha.write(Kind.REPORTED, {"entry": 4, "parent": 3, "node": "reports"})
        found = self.messages()
        self.assertEqual(sorted(map(str, found)), ["m1", "m3"])
        self.assertEqual(
            {(hop.domain, hop.entry, hop.fate) for hop in found["m1"].hops},
            {("alpha.example", 1, "deleted"), ("alpha.example", 2, "relayed"),
             ("beta.example", 12, "dead-lettered"), ("beta.example", 13, None)},
        )  # fmt: skip
        self.assertEqual(found["m1"].copies, 2)
        self.assertEqual(found["m1"].fate, "dead-lettered")
        self.assertEqual([hop.entry for hop in found["m3"].hops], [3, 4])
        self.assertEqual((found["m3"].fate, found["m3"].copies), ("expired", 1))

    def test_bridge(self) -> None:
        """A broker in between that shows no journal does not divide a message."""
        self.publish(1, "orders@gamma.example", digest="1" * 64)
        self.alpha.end(Kind.RELAYED, 1, "amqp$out/gamma.example", peer="peer:x.example")
        self.gamma.receive(
            21, "orders", trail=f"{self.alpha.broker} mx.x.example", origin="alpha.example",
            message_id="m1", message_id_type="string", digest="1" * 64, sender="peer:x.example",
        )  # fmt: skip
        found = self.messages(self.alpha, self.gamma)
        self.assertEqual([hop.entry for hop in found["m1"].hops], [1, 21])
        self.assertIsNone(found["m1"].fate)
        self.assertIsNone(found["m1"].latency_us)

    def test_changed_and_twice(self) -> None:
        """A body that changed on the way, and a message that was taken twice, can be told."""
        self.publish(1)
        handed_on(self.alpha, self.beta, 1, 11, digest="e" * 64)
        self.beta.receive(
            12, "orders", from_stream=self.alpha.stream, from_entry=1, trail=self.alpha.broker
        )
        [message] = self.messages(self.alpha, self.beta).values()
        self.assertFalse(message.same_digest)
        self.assertEqual([hop.entry for hop in message.hops], [1, 11, 12])
        self.assertEqual(message.hops[0].began_us, MIDNIGHT)
