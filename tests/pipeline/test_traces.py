# SPDX-License-Identifier: Apache-2.0
"""Silver: entries from their records, and messages from their entries."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from amqproute.journal.record import RecordKind
from tests.pipeline.journals import MIDNIGHT, SECOND, Journal, handed_on
from tests.pipeline.support import MISSING, SparkCase, computed

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame

    from amqproute.pipeline import ingest, lines
    from amqproute.pipeline.table_schema import HOPS, MESSAGES, RUNS
    from amqproute.pipeline.traces import hops, messages
    from amqproute.pipeline.warehouse import few


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
        return computed(lines.parse(ingest._lines(self.spark, paths)))

    def hops(self, *journals: Journal) -> DataFrame:
        return computed(hops(self.runs(*journals)))

    def publish(self, entry: int, to: str = "orders@beta.example", **fields: Any) -> None:
        domain = to.partition("@")[2]
        said = {"message_id": f"m{entry}", "message_id_type": "string", "to": to}
        self.alpha.receive(
            entry, f"amqp$out/{domain}", sender="user:ann", origin="alpha.example",
            **{**said, **fields},
        )  # fmt: skip


class SpreadTests(SparkCase):
    """Records of runs in files."""

    def test_columns(self) -> None:
        """Of all fields of records those are read that are named, also where rows are left out."""
        path = f"{self.mktemp()}/runs"
        few(self.spark, RUNS).write.parquet(path)
        runs = self.spark.read.schema(RUNS).parquet(path)
        rows = lines.spread(runs, ("entry",)).where("entry IS NOT NULL").select("entry")
        plan = rows._jdf.queryExecution().executedPlan().toString()
        read = "n:int,all:struct<entry:bigint>,each:struct<entry:array<bigint>>"
        self.assertIn(f"ReadSchema: struct<{read}>", plan)


class HopTests(TraceCase):
    """One row for each entry."""

    def test_hops(self) -> None:
        """Beginning and end of an entry meet in one row, whatever came between; and what is told of
        entries that end twice, never, without a beginning, that move, that were recovered."""
        self.publish(9, settle_us=7)
        self.alpha.at = 1
        self.alpha.end(RecordKind.DEFERRED, 9, "amqp$out/beta.example")
        self.alpha.at = 2
        self.alpha.end(
            RecordKind.RELAYED, 9, "amqp$out/beta.example", peer="peer:beta.example", attempt=2,
            queue_us=5, wire_us=6, settle_us=8,
        )  # fmt: skip
        self.beta.write(
            RecordKind.DUPLICATE,
            {"from_stream": self.alpha.stream, "from_entry": 9, "node": "orders"},
        )
        for entry in (1, 2, 5):
            self.publish(entry)
        self.alpha.end(RecordKind.EXPIRED, 1, "amqp$out/beta.example")
        self.alpha.end(RecordKind.DELETED, 1, "amqp$out/beta.example")
        self.alpha.end(RecordKind.DELIVERED, 3, "orders")
        self.alpha.write(RecordKind.RECOVERY, {"node": "orders"}, 2, entry=[4, 5])
        self.alpha.write(RecordKind.RECOVERY, {"count": 2})
        self.alpha.write(RecordKind.ROUTED, {"entry": 2, "parent": 2, "node": "amqp$dead-letter"})
        entries = self.hops(self.alpha, self.beta)
        self.assertEqual(entries.schema.names, HOPS.names)
        rows = {row.entry: row for row in entries.collect()}

        row = rows.pop(9)
        self.assertEqual(
            (row.kind, row.fate, row.commit_us, row.settle_us, row.queue_us, row.attempt),
            ("received", "relayed", 7, 8, 5, 2),
        )
        self.assertEqual((row.beginnings, row.endings, row.deferrals, row.duplicates), (1, 1, 1, 1))
        self.assertEqual(row.ended_us - row.began_us, 2_000_000)
        self.assertEqual((row.domain, str(row.day)), ("alpha.example", "2026-11-22"))

        out = "amqp$out/beta.example"
        found = {
            entry: (row.kind, row.fate, row.beginnings, row.endings, row.queue)
            for entry, row in rows.items()
        }
        self.assertEqual(found, {
            1: ("received", "expired", 1, 2, out),
            2: ("received", None, 1, 0, "amqp$dead-letter"),
            3: (None, "delivered", 0, 1, "orders"),
            4: ("recovery", None, 0, 0, "orders"),
            5: ("received", None, 1, 0, out),
        })  # fmt: skip


class MessageTests(TraceCase):
    """One row for each message."""

    def test_messages(self) -> None:
        """Messages that went different ways, out of the same journals."""
        self.over_three_brokers(100)
        self.copies_and_reports(200)
        self.over_a_stranger(300)
        self.changed_and_twice(400)
        rows = messages(self.hops())
        self.assertEqual(rows.schema.names, MESSAGES.names)
        found = {row.message_id: row for row in rows.collect()}
        self.assertEqual(sorted(found), ["m100", "m200", "m203", "m300", "m400"])

        # The hops of a message are in order, and its latency is from end to end.
        message = found["m100"]
        self.assertEqual(
            [(hop.domain, hop.entry, hop.fate) for hop in message.hops],
            [("alpha.example", 100, "relayed"), ("beta.example", 111, "relayed"),
             ("gamma.example", 121, "delivered")],
        )  # fmt: skip
        self.assertEqual((message.trace_stream, message.trace_entry), (self.alpha.stream, 100))
        self.assertEqual((message.fate, message.latency_us), ("delivered", 3_000_000))
        self.assertEqual((message.brokers, message.copies, message.same_digest), (3, 0, True))

        # What was made of a message belongs to it, also where a copy went to another broker.
        message = found["m200"]
        self.assertEqual(
            {(hop.domain, hop.entry, hop.fate) for hop in message.hops},
            {("alpha.example", 200, "deleted"), ("alpha.example", 202, "relayed"),
             ("beta.example", 212, "dead-lettered"), ("beta.example", 213, None)},
        )  # fmt: skip
        self.assertEqual((message.fate, message.copies), ("dead-lettered", 2))
        message = found["m203"]
        self.assertEqual([hop.entry for hop in message.hops], [203, 204])
        self.assertEqual((message.fate, message.copies), ("expired", 1))

        # A broker in between that shows no journal does not divide a message.
        message = found["m300"]
        self.assertEqual([hop.entry for hop in message.hops], [300, 321])
        self.assertEqual((message.fate, message.latency_us), (None, None))

        # A body that changed on the way, and a message that was taken twice, can be told.
        message = found["m400"]
        self.assertFalse(message.same_digest)
        self.assertEqual([hop.entry for hop in message.hops], [400, 411, 412])
        self.assertEqual(message.hops[0].began_us, MIDNIGHT + 400 * SECOND)

        # This test keeps nothing, and none of the steps in between is kept.
        cached = self.spark._jsparkSession.sharedState().cacheManager().numCachedEntries()
        self.assertEqual(cached, 0)

    def test_published_twice(self) -> None:
        """Of two messages with the same id and body, what comes back from a broker that shows no
        journal is the one that was handed over."""
        same = {"to": "orders@gamma.example", "message_id": "m1", "digest": "1" * 64}
        for entry in (1, 2, 3):
            self.publish(entry, **same)
        out = "amqp$out/gamma.example"
        self.alpha.end(RecordKind.RELAYED, 1, out, peer="peer:x.example")
        self.alpha.end(RecordKind.EXPIRED, 2, out)
        self.gamma.receive(
            21, "orders", trail=f"{self.alpha.broker} mx.x.example", origin="alpha.example",
            message_id="m1", message_id_type="string", digest="1" * 64, sender="peer:x.example",
        )  # fmt: skip
        rows = messages(self.hops()).collect()
        found = {row.trace_entry: [hop.entry for hop in row.hops] for row in rows}
        self.assertEqual(found, {1: [1, 21], 2: [2], 3: [3]})

    def test_answers(self) -> None:
        """A broker's answer to its own client is no message; an answer that leaves
        for another organization is one, and so is what a client without a name publishes."""
        to = "reply@beta.example"
        for entry, node in ((1, "dynamic-1"), (2, "amqp$out/beta.example")):
            shared = {"entry": entry, "node": node, "to": to if entry == 2 else node}
            self.alpha.write(RecordKind.ROUTED, {**shared, "sender": "anonymous"})
        self.alpha.receive(3, "orders", to="orders@alpha.example", sender="anonymous")
        entries = self.hops(self.alpha)
        self.assertEqual(sorted(row.entry for row in entries.collect()), [1, 2, 3])
        rows = messages(entries).collect()
        self.assertEqual(sorted(row.trace_entry for row in rows), [2, 3])

    def begin(self, second: int) -> None:
        """Let time pass at all brokers."""
        self.alpha.at = self.beta.at = self.gamma.at = second

    def over_three_brokers(self, first: int) -> None:
        self.begin(first)
        self.publish(first, "orders@gamma.example")
        self.begin(first + 1)
        named = {"message_id": f"m{first}", "origin": "alpha.example"}
        handed_on(self.alpha, self.beta, first, first + 11, **named)
        self.begin(first + 2)
        trail = f"{self.alpha.broker} {self.beta.broker}"
        handed_on(self.beta, self.gamma, first + 11, first + 21, trail, **named)
        self.begin(first + 3)
        self.gamma.end(RecordKind.DELIVERED, first + 21, "orders", peer="user:bob")

    def copies_and_reports(self, first: int) -> None:
        self.begin(first)
        out = "amqp$out/beta.example"
        self.publish(first)
        self.alpha.write(RecordKind.ROUTED, {"entry": first + 2, "parent": first, "node": out})
        self.alpha.end(RecordKind.DELETED, first, out, code="copied")
        handed_on(self.alpha, self.beta, first + 2, first + 12, message_id=f"m{first}")
        self.beta.write(
            RecordKind.ROUTED,
            {"entry": first + 13, "parent": first + 12, "node": "amqp$dead-letter"},
        )
        self.beta.end(RecordKind.DEAD_LETTERED, first + 12, "orders")
        self.publish(first + 3)
        self.alpha.end(RecordKind.EXPIRED, first + 3, out)
        self.alpha.write(
            RecordKind.REPORTED, {"entry": first + 4, "parent": first + 3, "node": "reports"}
        )

    def over_a_stranger(self, first: int) -> None:
        self.begin(first)
        self.publish(first, "orders@gamma.example", digest="1" * 64)
        self.alpha.end(RecordKind.RELAYED, first, "amqp$out/gamma.example", peer="peer:x.example")
        self.gamma.receive(
            first + 21, "orders", trail=f"{self.alpha.broker} mx.x.example",
            origin="alpha.example", message_id=f"m{first}", message_id_type="string",
            digest="1" * 64, sender="peer:x.example",
        )  # fmt: skip

    def changed_and_twice(self, first: int) -> None:
        self.begin(first)
        self.publish(first)
        handed_on(self.alpha, self.beta, first, first + 11, digest="e" * 64)
        self.beta.receive(
            first + 12, "orders", from_stream=self.alpha.stream, from_entry=first,
            trail=self.alpha.broker,
        )  # fmt: skip
