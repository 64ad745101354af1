# SPDX-License-Identifier: Apache-2.0
"""What a night changes of the days before it."""

from __future__ import annotations

import dataclasses
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.record import RecordKind
from tests.pipeline.journals import MIDNIGHT, SECOND, Journal, handed_on
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.nightly import facts_of, refresh, retold, settle
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
        # As if their pages had been written: what was made then is made anew below.
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
        """What has no end counts as what it is, also where it went on to another broker on another
        day, and the page of the day when it came is written anew."""
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
        for journal in (alpha, beta):
            journal.segment(folder)
        ingest(warehouse, [folder / journal.domain for journal in (alpha, beta)])
        made = refresh(warehouse)
        said = facts_of(warehouse, FIRST, FIRST)
        fates = {fate: number for (_, fate), number in said.fates.items() if number}
        self.assertEqual(fates, {"waiting": 2, "forgotten": 1, "not known": 1, "lost": 1})
        self.assertEqual([row.began_us for row in said.oldest], [MIDNIGHT + 10 * SECOND])
        self.assertEqual((said.unaccounted, said.missing), (0, []))
        self.assertEqual(facts_of(warehouse, FIRST, date(2026, 11, 24)).missing, [FIRST + 2 * ONE])
        settle(warehouse, made)
        late = dataclasses.replace(made, pending=frozenset([date(2026, 11, 24)]))
        self.assertEqual(retold(warehouse, late), [FIRST, FIRST + ONE, FIRST + 2 * ONE])

    def stock(self, journal: Journal, ranges: str) -> None:
        """Write what is on the node, a minute later, and that the journal goes on."""
        journal.at += 100
        journal.write(RecordKind.STOCK, {"node": "orders", "ranges": ranges, "count": 1})
        journal.write(RecordKind.STOCK, {"count": 0})
        journal.at += 100
        journal.write(RecordKind.CONFIGURED, {})
