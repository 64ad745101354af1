# SPDX-License-Identifier: Apache-2.0
"""Changes of a night to earlier days."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.record import RecordKind
from tests.pipeline.journals import MIDNIGHT, SECOND, Journal, handed_on
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline import nightly
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.nightly import MADE, facts_of, refresh, retold, settle
    from amqproute.pipeline.warehouse import Warehouse

DAY = 86_400
FIRST = date(2026, 11, 22)
ONE = timedelta(days=1)


class RetoldTests(SparkCase):
    """Whose pages are written."""

    def test_days_before(self) -> None:
        """Also those of what vanished, and of what has moved, days after it came; no others."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        warehouse = Warehouse(self.spark, folder / "tables")
        alpha = Journal("alpha.example")
        alpha.write(RecordKind.START, {})
        for day in range(3):
            alpha.at = day * DAY + 100
            alpha.receive(1 + day, "orders")
        self.stock(alpha, "1-3")
        alpha.segment(folder)
        ingest(warehouse, [folder / alpha.domain])
        # As if their pages had been written: what was made then is made again below.
        settle(warehouse, warehouse.snapshot())
        self.assertEqual(retold(warehouse, warehouse.snapshot()), [])

        alpha.at = 4 * DAY
        alpha.end(RecordKind.DELIVERED, 2, "orders")
        self.stock(alpha, "3")
        alpha.segment(folder)
        ingest(warehouse, [folder / alpha.domain])
        made = refresh(warehouse)
        self.assertEqual(made.pending, {date(2026, 11, 26)})
        [violation] = warehouse.read("violations").collect()
        told = (violation.what, violation.entry, violation.day)
        self.assertEqual(told, ("lost", 1, date(2026, 11, 22)))
        days = [date(2026, 11, day) for day in (22, 23, 26)]
        self.assertEqual(retold(warehouse, made), days)

    def test_vanished(self) -> None:
        """A message without an end counts as it is, also if it went to another broker on another
        day, and the page of the day when it came is written again."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        warehouse = Warehouse(self.spark, folder / "tables")
        alpha, beta = Journal("alpha.example"), Journal("beta.example")
        for journal in (alpha, beta):
            journal.write(RecordKind.START, {})
        alpha.at = 10
        for entry, durable in ((1, True), (2, True), (3, False), (4, True), (5, True)):
            alpha.receive(
                entry, "amqp$out/beta.example", sender="user:ann", origin="alpha.example",
                durable=durable,
            )  # fmt: skip
        beta.at = alpha.at = DAY
        for entry in (4, 5):
            handed_on(alpha, beta, entry, 10 + entry, origin="alpha.example")
        self.stock(beta, "15")
        # What it says of 2 may be in the gap.
        alpha.write(RecordKind.GAP, {"count": 7})
        alpha.write(RecordKind.START, {})
        self.stock(alpha, "1")
        others = self.others()
        for journal in (alpha, beta, *others):
            journal.segment(folder)
        ingest(warehouse, [folder / journal.domain for journal in (alpha, beta, *others)])
        made = refresh(warehouse)
        said = facts_of(warehouse, FIRST, FIRST)
        fates = {fate: number for (_, fate), number in said.fates.items() if number}
        self.assertEqual(fates, {"waiting": 2, "forgotten": 1, "not known": 1, "lost": 1})
        self.assertEqual([row.began_us for row in said.oldest], [MIDNIGHT + 10 * SECOND])
        self.assertEqual((said.unaccounted, said.missing), (0, []))
        self.assertEqual((said.silent, said.records), ([], 13))
        later = facts_of(warehouse, FIRST + ONE, FIRST + 2 * ONE)
        [silent] = later.silent
        self.assertEqual((silent.domain, silent.last), ("silent.example", FIRST))
        for each in (said, later):
            gaps = [(gap.domain, gap["count"]) for gap in each.gaps if gap.reason == "missing"]
            self.assertEqual(gaps, [("torn.example", 3)])
        self.assertEqual(later.missing, [FIRST + 2 * ONE])
        settle(warehouse, made)
        late = dataclasses.replace(made, pending=frozenset([date(2026, 11, 24)]))
        self.assertEqual(retold(warehouse, late), [FIRST, FIRST + ONE, FIRST + 2 * ONE])

    def others(self) -> list[Journal]:
        """Write journals of brokers that tell nothing of the second day, that were stopped before
        it, and that miss records over midnight; of one two threads wrote around midnight."""
        silent, stopped, torn, busy = (
            Journal(f"{name}.example") for name in ("silent", "stopped", "torn", "busy")
        )
        for journal in (silent, stopped, torn, busy):
            journal.write(RecordKind.START, {})
        stopped.write(RecordKind.STOP, {})
        torn.seq += 3
        torn.at = DAY + 5
        torn.write(RecordKind.CONFIGURED, {})
        for at in (DAY + 0.1, DAY - 0.1, DAY + 0.2):
            busy.at = at
            busy.write(RecordKind.CONFIGURED, {})
        return [silent, stopped, torn, busy]

    def stock(self, journal: Journal, ranges: str) -> None:
        """Write what is on the node, a minute later, and that the journal continues."""
        journal.at += 100
        journal.write(RecordKind.STOCK, {"node": "orders", "ranges": ranges, "count": 1})
        journal.write(RecordKind.STOCK, {"count": 0})
        journal.at += 100
        journal.write(RecordKind.CONFIGURED, {})


class TouchedTests(SparkCase):
    """Entries and messages of the days that new records change are made again, and no others."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.journals = [Journal(f"{name}.example") for name in ("alpha", "beta", "gamma")]
        for journal in self.journals:
            journal.write(RecordKind.START, {})

    def sent(self, entry: int, at: float) -> None:
        """Let a client's message for another organization come to the first broker."""
        alpha = self.journals[0]
        alpha.at = at
        alpha.receive(entry, "amqp$out/beta.example", sender="user:ann", origin="alpha.example")

    def over(self, entry: int, at: float) -> None:
        """Hand a message on from the first broker to the second, and from there to the third."""
        alpha, beta, gamma = self.journals
        alpha.at = at
        handed_on(alpha, beta, entry, 100 + entry, origin="alpha.example")
        beta.at = at + 1
        trail = f"{alpha.broker} {beta.broker}"
        handed_on(beta, gamma, 100 + entry, 200 + entry, trail, origin="alpha.example")

    def history(self) -> list[list[Path]]:
        """Write four days, and what comes late of the first; return the segments of each night."""
        alpha, beta, gamma = self.journals
        nights: list[list[Path]] = []
        for day in range(4):
            self.at_night(day)
            # Two that come and go on their day, and one that waits for the next.
            for entry in (10 * day + 1, 10 * day + 2):
                self.sent(entry, day * DAY + 1000 + entry)
                self.over(entry, day * DAY + 2000 + entry)
                gamma.at += 1
                gamma.end(RecordKind.DELIVERED, 200 + entry, "orders", peer="user:bob")
            self.sent(10 * day + 3, day * DAY + DAY - 10)
            if day == 1:
                # From the day before: over midnight, and a copy of what expired.
                self.over(3, day * DAY + 10)
                beta.at = day * DAY + 20
                beta.end(RecordKind.EXPIRED, 102, "orders")
                beta.write(RecordKind.ROUTED, {"entry": 500, "parent": 102, "node": "dead"})
            if day == 3:
                # Of the first day, and of a copy made since.
                gamma.at = beta.at = day * DAY + 30
                gamma.end(RecordKind.DELIVERED, 203, "orders", peer="user:bob")
                beta.end(RecordKind.DELIVERED, 500, "dead", peer="user:eve")
                again = {"node": "orders", "from_stream": alpha.stream, "from_entry": 3}
                beta.write(RecordKind.DUPLICATE, again)
                # Of the second day; that it had left a day earlier comes late.
                alpha.at = day * DAY + 40
                alpha.end(RecordKind.RELAYED, 13, "amqp$out/beta.example", peer="peer:beta.example")
            nights.append([journal.segment(self.folder / "all") for journal in self.journals])
        self.sent(77, 5000)
        late = [alpha.segment(self.folder / "all")]
        alpha.at = 2 * DAY + 50
        alpha.end(RecordKind.DELIVERED, 13, "amqp$out/beta.example", peer="user:ann")
        nights.append([*late, alpha.segment(self.folder / "all")])
        return nights

    def at_night(self, day: int) -> None:
        for journal in self.journals:
            journal.at = day * DAY + 1.0
            journal.write(RecordKind.CONFIGURED, {})

    def made(self, name: str, nights: list[list[Path]]) -> Warehouse:
        """Take in the segments of nights, one after the other, and make everything of them."""
        warehouse = Warehouse(self.spark, self.folder / name / "tables")
        journals = self.folder / name / "journals"
        for segments in nights:
            for path in segments:
                place = journals / path.relative_to(self.folder / "all")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
            before = warehouse.snapshot()
            ingest(warehouse, [journals], look_everywhere=True)
            settle(warehouse, refresh(warehouse))
            self.remade.append(
                {
                    table: sorted(
                        (date.fromisoformat(part.day) - FIRST).days
                        for part in set(warehouse.snapshot().of(table)) - set(before.of(table))
                    )
                    for table in ("hops", "messages")
                }
            )
        return warehouse

    def test_same(self) -> None:
        """Night for night comes to the same as all at once; only what changes is made again."""
        nights = self.history()
        self.remade: list[dict[str, list[int]]] = []
        whole = self.made("whole", [[path for night in nights for path in night]])
        self.remade.clear()
        grown = self.made("grown", nights)
        for table in MADE:
            rows = [sorted(map(str, each.read(table).collect())) for each in (whole, grown)]
            self.assertEqual(*rows, table)
        days = [[0], [0, 1], [2], [0, 1, 3], [0, 1, 2]]
        for table in ("hops", "messages"):
            self.assertEqual([night[table] for night in self.remade], days, table)

    def test_over_midnight(self) -> None:
        """A message that ended on the first day of a night is counted there, whenever it began."""
        self.patch(nightly, "REACH", 1)
        alpha = self.journals[0]
        self.remade: list[dict[str, list[int]]] = []
        self.sent(1, DAY - 10)
        first = [alpha.segment(self.folder / "all")]
        self.over(1, DAY + 10)
        first += [journal.segment(self.folder / "all") for journal in self.journals]
        self.at_night(2)
        nights = [first, [journal.segment(self.folder / "all") for journal in self.journals]]
        warehouse = self.made("grown", nights)
        went = warehouse.read("volumes").where("domain = 'alpha.example' AND direction = 'out'")
        self.assertEqual([(row.day, row.messages) for row in went.collect()], [(FIRST + ONE, 1)])
        took = warehouse.read("latencies").where("domain = 'alpha.example' AND stage = 'hop'")
        self.assertEqual([(row.day, row.number) for row in took.collect()], [(FIRST + ONE, 1)])
