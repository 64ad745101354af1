# SPDX-License-Identifier: Apache-2.0
"""Gold: violations of conservation, and innocent cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.record import ENDS, PUT_BACK, RecordKind
from tests.pipeline.journals import Journal
from tests.pipeline.support import MISSING
from tests.pipeline.test_traces import TraceCase

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import functions as F

    from amqproute.pipeline import ingest, lines
    from amqproute.pipeline.conservation import balance, judged, violations
    from amqproute.pipeline.coverage import RESTORED, holes
    from amqproute.pipeline.exchange import ExchangeSource, between
    from amqproute.pipeline.reconcile import AGREED, VERDICTS, reconcile
    from amqproute.pipeline.table_schema import BALANCE, VIOLATIONS
    from amqproute.pipeline.traces import hops
    from amqproute.tools.synthetic import FaultPlan, FaultRates, TrafficPlan, generate


Found = set[tuple[str, int, bool]]
"""Violation, entry, and whether it is hidden."""


class JudgmentTests(TraceCase):
    """One rule after the other, each in a journal of its own."""

    def test_rules(self) -> None:
        """Findings in the journal of each case are exactly those it names."""
        cases = (
            self.each_violation, self.grace, self.end, self.end_after_a_stop, self.stock_in_part,
            self.memory_only, self.gap, self.missing, self.begins_late, self.copies_in_memory,
        )  # fmt: skip
        journals, expected = [], set()
        for case in cases:
            domain = f"{case.__name__.replace('_', '-')}.example"
            self.alpha = Journal(domain)
            self.alpha.write(RecordKind.START, {})
            expected |= {(domain, *each) for each in case()}
            journals.append(self.alpha)
        runs = self.runs(*journals)
        entries = hops(runs).persist()
        doubtful = judged(runs, entries)
        rows = violations(runs, doubtful)
        self.assertEqual(rows.schema.names, VIOLATIONS.names)
        found = {(row.domain, row.what, row.entry, row.hidden) for row in rows.collect()}
        self.assertEqual(found, expected)
        balanced = {
            row.domain: (row.accepted, row.forgotten, row.queued, row.lost)
            for row in balance(entries, doubtful).collect()
        }
        self.assertEqual(balanced["memory-only.example"], (2, 1, 0, 1))
        self.assertEqual(balanced["copies-in-memory.example"], (1, 0, 1, 0))

    def stock(self, ranges: str, at: float, is_whole: bool = True) -> None:
        self.alpha.at = at
        self.alpha.write(RecordKind.STOCK, {"node": "orders", "ranges": ranges, "count": 1})
        if is_whole:
            self.alpha.write(RecordKind.STOCK, {"count": 0})

    def each_violation(self) -> Found:
        """The entry that was lost, unexplained, began or ended twice, or came back is named."""
        for entry in range(1, 10):
            self.publish(entry)
        self.alpha.end(RecordKind.DELIVERED, 2, "orders")
        self.alpha.end(RecordKind.DELIVERED, 3, "orders")
        self.alpha.end(RecordKind.EXPIRED, 3, "orders")
        self.alpha.end(RecordKind.DELIVERED, 50, "orders")
        self.publish(4)
        self.alpha.end(RecordKind.DELIVERED, 5, "orders")
        self.stock("1-2 4-6 9", 1000)
        self.publish(20)
        self.stock("1 4 6 9 20", 4000)
        self.alpha.at = 5000
        self.alpha.end(RecordKind.DELIVERED, 6, "orders")
        return {
            ("came back", 2, False), ("came back", 5, False), ("ended twice", 3, False),
            ("unexplained", 50, False), ("began twice", 4, False), ("lost", 7, False),
            ("lost", 8, False),
        }  # fmt: skip

    def grace(self) -> Found:
        """Events at the time of a stock need not be in it; nor those behind it."""
        self.publish(1)
        self.alpha.at = 970
        self.publish(2)
        self.stock("", 1000)
        self.alpha.at = 1030
        self.alpha.end(RecordKind.DELIVERED, 1, "orders")
        self.alpha.end(RecordKind.DELIVERED, 2, "orders")
        self.publish(3)
        self.alpha.at = 1100
        self.alpha.write(RecordKind.CONFIGURED, {})
        return set()

    def end(self) -> Found:
        """A stock at the end of what is there says nothing."""
        self.publish(1)
        self.stock("", 1000)
        return set()

    def end_after_a_stop(self) -> Found:
        """It does when the broker has stopped."""
        self.end()
        self.alpha.write(RecordKind.STOP, {})
        return {("lost", 1, False)}

    def stock_in_part(self) -> Found:
        """A broker that was killed while it took stock has not said what it did not reach."""
        self.publish(1)
        self.stock("7", 1000, is_whole=False)
        self.alpha.at = 2000
        self.alpha.write(RecordKind.START, {})
        return set()

    def memory_only(self) -> Found:
        """Messages that were not durable end with their broker, which is no loss."""
        self.publish(1, durable=False)
        self.publish(2)
        self.alpha.at = 100
        self.alpha.write(RecordKind.START, {})
        self.stock("", 1000)
        self.alpha.write(RecordKind.STOP, {})
        return {("lost", 2, False)}

    def gap(self) -> Found:
        """With records missing by the journal's own word no broker is accused."""
        self.publish(1)
        self.alpha.at = 10
        self.publish(2)
        self.alpha.at = 3000
        self.alpha.write(RecordKind.GAP, {"count": 1, "words": "the disk is full"})
        self.alpha.end(RecordKind.DELIVERED, 9, "orders")
        self.stock("", 4000)
        self.alpha.write(RecordKind.STOP, {})
        return {("lost", 1, True), ("lost", 2, True), ("unexplained", 9, True)}

    def missing(self) -> Found:
        """Nor where its numbers say it."""
        self.publish(1)
        self.alpha.write(RecordKind.START, {})
        self.stock("", 1000)
        self.alpha.write(RecordKind.STOP, {})
        del self.alpha.lines[2]
        return {("lost", 1, True)}

    def begins_late(self) -> Found:
        """Nor before its first record that is there, though a later journal has its first one."""
        self.alpha.lines.clear()
        self.alpha.at = 10
        self.alpha.end(RecordKind.DELIVERED, 9, "orders")
        self.alpha.at = 20
        self.alpha.write(RecordKind.STOP, {})
        self.alpha.name, self.alpha.seq, self.alpha.at = "f" * 16, 1, 30
        self.alpha.write(RecordKind.START, {})
        self.alpha.end(RecordKind.DELIVERED, 10, "orders")
        return {("unexplained", 9, True), ("unexplained", 10, True)}

    def copies_in_memory(self) -> Found:
        """A topic that kept nothing but copies in memory has nothing to account for."""
        self.publish(1)
        said = {"node": "news", "size": 100, "digest": "e" * 64, "durable": True}
        self.alpha.write(RecordKind.RECEIVED, {**said, "copies": 0})
        self.stock("1", 1000)
        self.stock("1", 4000)
        return set()

    def test_put_back(self) -> None:
        """Sequences that were left out since a journal was put back are no number of records."""
        journals = [Journal("soon.example"), Journal("late.example")]
        for journal, minutes in zip(journals, (0, 5), strict=True):
            journal.receive(1, "orders")
            journal.at = 60 * minutes + 10
            journal.seq += 10**15
            journal.write(RecordKind.SEGMENT, {"previous": "", "count": 10**15, "code": PUT_BACK})
            journal.write(RecordKind.STOP, {})
        found = holes(self.runs(*journals)).where("reason <> 'begins'").collect()
        self.assertEqual([(row["reason"], row["count"]) for row in found], [(RESTORED, None)] * 2)


class PlantedTests(TraceCase):
    """A day of three organizations, and of three others that are healthy."""

    healthy = ("delta.example", "epsilon.example", "zeta.example")
    rates = dict.fromkeys(("expired", "rejected", "dead_lettered", "delayed", "deferred"), 0.01)

    def test_exactly_what_was_planted(self) -> None:
        """Each planted violation is listed once, and nothing else; every row of balance adds up.
        Of the healthy ones nothing is listed, and the first two agree about everything."""
        directory = Path(self.mktemp()).absolute()
        faults = FaultPlan(
            vanished=3, unexplained=2, ended_twice=2, came_back=1, lost=2, duplicated=1
        )
        plan = TrafficPlan(1000, seconds=4 * 3600, rates=FaultRates(**self.rates), faults=faults)
        planted = generate(plan, directory)
        well = generate(
            replace(plan, organizations=self.healthy, faults=FaultPlan(), seed=2), directory
        )
        paths = [str(path) for path in directory.rglob("*.jsonl")]
        runs = lines.parse(ingest._lines(self.spark, paths)).persist()
        entries = hops(runs).persist()
        words = {"vanished": "lost", "unexplained": "unexplained", "ended_twice": "ended twice",
                 "came_back": "came back"}  # fmt: skip
        expected = {
            (words[fault.kind], fault.stream, fault.entry, fault.message_id)
            for fault in planted.faults
            if fault.kind in words
        }
        self.assertEqual(len(expected), 8)
        doubtful = judged(runs, entries)
        rows = violations(runs, doubtful).collect()
        found = [(row.what, row.stream, row.entry, row.message_id) for row in rows]
        self.assertEqual(sorted(map(str, found)), sorted(map(str, expected)))
        self.assertFalse(any(row.hidden for row in rows))
        balanced = balance(entries, doubtful)
        self.assertEqual(balanced.schema.names, BALANCE.names)
        hours = balanced.collect()
        ends = [kind.replace("-", "_") for kind in ENDS]
        for row in hours:
            rest = row.queued + row.forgotten + row.lost
            self.assertEqual(row.accepted, sum(row[name] for name in ends) + rest)
        self.assertEqual(sum(row.lost for row in hours), 3)
        self.assertGreater(sum(row.queued for row in hours), 0)

        self.assertEqual(well.faults, [])
        first = [row for row in hours if row.domain == self.healthy[0]]
        self.assertGreater(sum(row.accepted for row in first), 200)
        known = holes(runs)
        result = reconcile(
            *between(
                *(
                    ExchangeSource(
                        directory, domain, entries.where(F.col("domain") == domain), known
                    )
                    for domain in self.healthy[:2]
                )
            )
        )
        self.assertEqual(result.listed.collect(), [])
        self.assertGreater(result.count(AGREED), 200)
        self.assertEqual(result.count(*(verdict for verdict in VERDICTS if verdict != AGREED)), 0)
