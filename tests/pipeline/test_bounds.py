# SPDX-License-Identifier: Apache-2.0
"""Impossible times, numbers and ranges in anybody's journals affect nothing else."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.export import export
from amqproute.journal.record import END_OF_SEQ, RecordKind, read_line
from tests.pipeline.journals import MIDNIGHT, Journal
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline import coverage, reconcile
    from amqproute.pipeline.conservation import LONGEST_RANGE, judged, violations
    from amqproute.pipeline.exchange import between, open_source
    from amqproute.pipeline.figures import queues, reasons, volumes
    from amqproute.pipeline.ingest import IngestSummary, ingest
    from amqproute.pipeline.traces import hops
    from amqproute.pipeline.warehouse import Warehouse
    from amqproute.tools.synthetic import TrafficPlan, generate

DAY = 86_400.0
YEAR = 365 * DAY


class BoundCase(SparkCase):
    """A journal, and a warehouse on the evening of its day."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.journals = self.folder / "journals"
        self.warehouse = Warehouse(self.spark, self.folder / "tables")
        self.journal = Journal("alpha.example")
        self.journal.write(RecordKind.START, {})

    def ingest(self) -> IngestSummary:
        evening = MIDNIGHT + round(0.75 * DAY * 1_000_000)
        return ingest(self.warehouse, [self.journals], now_us=evening)

    def reasons(self) -> list[str]:
        rows = self.warehouse.read("rejects").orderBy("line").collect()
        return [row.reason for row in rows]


class TimeTests(BoundCase):
    """A time is near the day of its segment, and not to come."""

    def test_bounds(self) -> None:
        """A day ahead, as a clock may be, and a month of waiting are taken; what is beyond makes no
        day of its own."""
        taken = [1.0, -30 * DAY, 1.7 * DAY]
        future, far = "'time' is in the future", "'time' is more than 31 days from its segment's"
        refused = {4 * YEAR: future, 1.8 * DAY: future, -32 * DAY: far, -3 * YEAR: far}
        for entry, at in enumerate([*taken, *refused]):
            self.journal.at = at
            self.journal.receive(entry, "orders")
        self.journal.segment(self.journals)
        self.assertEqual(self.ingest(), IngestSummary(1, 4, 4, 0, 4))
        self.assertEqual(self.reasons(), list(refused.values()))
        days = [date(2026, 10, 23), date(2026, 11, 22), date(2026, 11, 23)]
        self.assertEqual(self.warehouse.snapshot().days("runs"), days)
        self.assertEqual(self.warehouse.snapshot().pending, set(days))

    def test_folder_of_a_day_to_come(self) -> None:
        """It is left until its day, with all that is in it."""
        self.journal.at = 3 * DAY
        self.journal.lines.clear()
        self.journal.receive(1, "orders")
        self.journal.segment(self.journals)
        self.assertEqual(self.ingest(), IngestSummary())
        later = MIDNIGHT + round(2.5 * DAY * 1_000_000)
        self.assertEqual(ingest(self.warehouse, [self.journals], now_us=later).records, 1)

    def test_clock_set_back(self) -> None:
        """A hole begins before it ends, and is where a record is missing: not where one is older
        than the one before it, over the minute or by an hour, as when a clock is set."""
        for at in (600.0, 300.0, 359.9, 360.0, 359.8, 360.1, 3960.0, 361.0, 301.0, 362.0):
            self.journal.at = at
            self.journal.receive(1, "orders")
            if at == 600:
                self.journal.seq += 5
        self.journal.at = 420.0
        self.journal.write(RecordKind.STOP, {})
        self.journal.segment(self.journals)
        self.ingest()
        [first, hole] = coverage.holes(self.warehouse.read("runs")).orderBy("from_us").collect()
        self.assertEqual((first.reason, first["count"]), (coverage.BEGINS, 0))
        self.assertEqual((hole.reason, hole.from_us, hole.until_us, hole["count"]), (
            coverage.MISSING, MIDNIGHT + 300_000_000, MIDNIGHT + 600_000_000, 5,
        ))  # fmt: skip


class NumberTests(BoundCase):
    """Sums hold, and nobody is asked for memory."""

    def test_bounds(self) -> None:
        """Sizes and durations beyond those of messages are refused with their line; what a
        segment leaves out may be anything."""
        size, span = "a size or a number is out of range", "a duration is out of range"
        most = (1 << 63) - 1
        self.journal.receive(1, "orders", size=1 << 40)
        self.journal.write(RecordKind.SEGMENT, {"previous": "0" * 64, "count": 1 << 61})
        for entry, fields in enumerate(
            ({"size": most}, {"bare_size": (1 << 40) + 1}, {"size": -1}, {"settle_us": most})
        ):
            self.journal.receive(10 + entry, "orders", **fields)
        self.journal.write(RecordKind.RECEIVED, {"node": "orders"}, 2, entry=[2, 3], size=[1, most])
        self.journal.write(RecordKind.DEFERRED, {"node": "orders", "count": most})
        self.journal.write(RecordKind.GAP, {"count": most})
        self.journal.segment(self.journals)
        self.assertEqual(self.ingest(), IngestSummary(1, 3, 3, 0, 7))
        self.assertEqual(self.reasons(), [size, size, size, span, size, size, size])
        runs = self.warehouse.read("runs")
        entries = hops(runs)
        [queue] = queues(entries).collect()
        self.assertEqual((queue.came, queue.octets), (1, 1 << 40))
        for figures in (volumes(entries), reasons(runs), coverage.holes(runs)):
            figures.collect()

    def test_sequence(self) -> None:
        """A line with a number that no journal comes to does not hide what is lost later, as the
        last of its journal would."""
        own, self.journal.seq = self.journal.seq, END_OF_SEQ - 9
        self.journal.at = 10
        self.journal.write(RecordKind.CONFIGURED, {})
        self.journal.seq, self.journal.at = own, 600
        self.journal.receive(1, "orders")
        self.journal.at = 1200
        self.journal.write(RecordKind.STOCK, {"count": 0})
        self.journal.write(RecordKind.STOP, {})
        self.journal.segment(self.journals)
        self.assertEqual(self.ingest(), IngestSummary(1, 4, 4, 0, 1))
        self.assertEqual(self.reasons(), ["'seq' is out of range"])
        runs = self.warehouse.read("runs")
        rows = violations(runs, judged(runs, hops(runs)), self.warehouse.read("rejects"))
        found = [(row.what, row.entry, row.hidden) for row in rows.collect()]
        self.assertEqual(found, [("lost", 1, False)])

    def test_ranges_of_a_stock(self) -> None:
        """An invalid or too long list of ranges is ignored; the others count."""
        for entry in (1, 2, 3):
            self.journal.receive(entry, "orders")
        self.journal.at = 600
        ranges = f"1 2-3 x 7-5 9-{LONGEST_RANGE + 9} 4-{(1 << 63) - 1} 99999999999999999999 -"
        self.journal.write(RecordKind.STOCK, {"node": "orders", "ranges": ranges, "count": 3})
        self.journal.write(RecordKind.STOCK, {"count": 0})
        self.journal.at = 1200
        self.journal.write(RecordKind.START, {})
        self.journal.segment(self.journals)
        self.ingest()
        runs = self.warehouse.read("runs")
        rows = judged(runs, hops(runs)).collect()
        self.assertEqual([(row.entry, row.wrong) for row in rows], [(1, []), (2, []), (3, [])])


class ExportTests(BoundCase):
    """An export says nothing of what it leaves out, so a damaged line has to."""

    def test_damaged_line(self) -> None:
        """The line's subject is not covered, so it is not lost. The other side's is."""
        ours, theirs = pair = ("alpha.example", "beta.example")
        planted = generate(TrafficPlan(300, organizations=pair), self.journals)
        shown = self.folder / "export"
        export(planted.journals[theirs], shown, ours, 0, 1 << 62)
        segments = sorted(shown.glob("*/*.jsonl"))
        path = [each for each in segments[:-1] if b'"from_entry"' in each.read_bytes()][1]
        lines = path.read_bytes().splitlines(keepends=True)
        place = next(i for i, line in enumerate(lines) if b'"from_entry"' in line)
        damaged = read_line(lines[place])
        lines[place] = b"x" + lines[place][1:]
        path.write_bytes(b"".join(lines))
        sides = []
        for name, directory in (("ours", planted.journals[ours]), ("theirs", shown)):
            scratch = self.folder / name
            scratch.mkdir()
            sides.append(open_source(self.spark, directory, None, scratch))
        result = reconcile.reconcile(*between(*sides))
        listed = {row.entry: row.verdict for row in result.listed.collect()}
        self.assertEqual(set(listed.values()), {reconcile.NOT_COVERED})
        missing = {record.from_entry for record in damaged.records()}
        self.assertTrue(missing)
        self.assertTrue(missing <= listed.keys())
        reasons_ = {row.reason for row in result.holes.where("domain = 'beta.example'").collect()}
        self.assertIn(coverage.DAMAGED, reasons_)
