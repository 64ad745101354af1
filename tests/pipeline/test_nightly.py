# SPDX-License-Identifier: Apache-2.0
"""What a night changes of the days before it."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from amqproute.journal.record import Kind
from tests.pipeline.journals import Journal
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.nightly import refresh, retold, settle
    from amqproute.pipeline.tables import Warehouse

DAY = 86_400


class RetoldTests(SparkCase):
    """Whose pages are written."""

    def test_days_before(self) -> None:
        """Also those of what vanished, and of what has moved, days after it came; no others."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        warehouse = Warehouse(self.spark, folder / "tables")
        alpha = Journal("alpha.example")
        alpha.write(Kind.START, {})
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
        alpha.end(Kind.DELIVERED, 2, "orders")
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

    def stock(self, journal: Journal, ranges: str) -> None:
        """Write what is on the node, a minute later, and that the journal goes on."""
        journal.at += 100
        journal.write(Kind.STOCK, {"node": "orders", "ranges": ranges, "count": 1})
        journal.write(Kind.STOCK, {"count": 0})
        journal.at += 100
        journal.write(Kind.CONFIGURED, {})
