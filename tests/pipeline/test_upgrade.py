# SPDX-License-Identifier: Apache-2.0
"""Tables and journals written by revision 5b54e44 (`tests.golden.upgrade`) stay readable."""

from __future__ import annotations

import tempfile
from pathlib import Path

from amqproute.journal.record import RecordKind
from tests.golden.upgrade import unpack
from tests.pipeline.support import MISSING, SparkCase

if not MISSING:
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.traces import hops, messages
    from amqproute.pipeline.warehouse import Warehouse


class UpgradeTests(SparkCase):
    """The contents of the tables, and the additions to them."""

    def test_tables(self) -> None:
        """Alpha's first segment is in the tables; it is not taken twice, and beta's joins it."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        unpack(folder, "alpha", "beta", "tables")
        warehouse = Warehouse(self.spark, folder / "tables")
        before = warehouse.read("runs")
        self.assertEqual({row.domain for row in before.collect()}, {"alpha.example"})
        journals = [folder / name / "state" / "journal" for name in ("alpha", "beta")]
        ingested = ingest(warehouse, journals)
        self.assertEqual((ingested.segments, ingested.rejected, ingested.duplicates), (1, 0, 0))
        rows = {row.message_id: row for row in messages(hops(warehouse.read("runs"))).collect()}
        found = {
            name: (row.fate, [hop.domain for hop in row.hops if hop.parent is None])
            for name, row in rows.items()
        }
        both = ["alpha.example", "beta.example"]
        expected: dict[str, tuple[str | None, list[str]]] = {
            "far-0": (RecordKind.DELIVERED, both),
            "far-1": (None, both),
            "far-2": (None, both),
            # Alpha's part of these is in the segment that is open.
            "far-3": (None, ["beta.example"]),
            "twice": (None, ["beta.example"]),
            "plain-0": (None, ["alpha.example"]),
            "plain-1": (None, ["alpha.example"]),
        }
        self.assertEqual(found, expected)
