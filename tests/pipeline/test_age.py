# SPDX-License-Identifier: Apache-2.0
"""The cost of a night does not grow with the tables, counted in reads, listings and jobs."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.record import RecordKind
from tests.pipeline.journals import Journal, handed_on
from tests.pipeline.support import MISSING, SparkCase

if TYPE_CHECKING or not MISSING:
    from amqproute.pipeline import ingest as bronze
    from amqproute.pipeline import nightly
    from amqproute.pipeline.days import between
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.nightly import refresh, retold, settle
    from amqproute.pipeline.traces import hops
    from amqproute.pipeline.warehouse import TablePart, Warehouse
    from amqproute.tools.synthetic.history import grow_old, journal_days

DAY = 86_400
ONE = timedelta(days=1)
WEEK = 1
"""Days of a week here: `nightly.REACH`."""
REAL = 3 * WEEK + 1
"""Days that were really taken in: as many as are read where something of last week comes late."""
KNOWN = 62
"""Days of which the names of segments are compared with those that come."""
LONG_AGO = -400
"""The first of them, in days from the day of `Journal`: folders of the last days are looked into
whatever has changed."""
FIRST = date(2026, 11, 22) + timedelta(LONG_AGO)


class NightTests(SparkCase):
    """A night with some weeks before it, and the same night with a year more before it."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(nightly, "REACH", WEEK)
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.alpha, self.beta = Journal("alpha.example"), Journal("beta.example")
        self.journals = [self.folder / each.domain for each in (self.alpha, self.beta)]
        self.entry = 0

    def day(self, number: int) -> None:
        """Close the segments of a day: messages from one to the other, and what both have left."""
        for journal in (self.alpha, self.beta):
            journal.at = (LONG_AGO + number) * DAY + 1000.0
            journal.write(RecordKind.CONFIGURED, {})
        for _ in range(2):
            self.entry += 1
            self.alpha.receive(self.entry, "amqp$out/beta.example", sender="user:ann")
            handed_on(self.alpha, self.beta, self.entry, self.entry)
            self.beta.end(RecordKind.DELIVERED, self.entry, "orders")
        for journal in (self.alpha, self.beta):
            journal.at += 100
            journal.write(RecordKind.STOCK, {"count": 0})
            journal.at += 100
            journal.write(RecordKind.CONFIGURED, {})
            journal.segment(self.folder)

    def night(self, warehouse: Warehouse) -> tuple[Counter[str], Sequence[date]]:
        """Do what `run` does, but for the pages; return what it took, and whose pages they are."""
        with self.counted() as work:
            ingest(warehouse, self.journals)
            made = refresh(warehouse)
            told = retold(warehouse, made)
            settle(warehouse, made)
        return work, told

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Count jobs, directories of tables that are read, names that are listed, and
        folders of journals that are looked into."""
        work: Counter[str] = Counter()
        context: Any = self.spark.sparkContext
        scheduler = context._jsc.sc().dagScheduler()
        ages, read, fresh = self.files.ages, Warehouse._read, bronze._fresh

        def counted_ages(files: Any, name: str) -> dict[str, float]:
            found: dict[str, float] = ages(files, name)
            work[f"names in {name.partition('=')[0].partition('/')[0]}"] += len(found)
            return found

        def counted_read(tables: Warehouse, parts: Sequence[TablePart], *rest: Any) -> Any:
            work["directories"] += len(parts)
            return read(tables, parts, *rest)

        def counted_fresh(tables: Warehouse, folders: Any, *rest: Any) -> Any:
            work["folders"] += len(folders.paths)
            return fresh(tables, folders, *rest)

        self.patch(self.files, "ages", counted_ages)
        self.patch(Warehouse, "_read", counted_read)
        self.patch(bronze, "_fresh", counted_fresh)
        before = scheduler.numTotalJobs()
        yield work
        work["jobs"] = scheduler.numTotalJobs() - before
        for place, name, value in (
            (self.files, "ages", ages), (Warehouse, "_read", read), (bronze, "_fresh", fresh),
        ):  # fmt: skip
            self.patch(place, name, value)

    @property
    def files(self) -> Any:
        return type(Warehouse(self.spark, self.folder / "x").files)

    def rows(self, warehouse: Warehouse, table: str, days: Sequence[date]) -> list[Any]:
        return sorted(map(str, warehouse.read(table, days).collect()))

    def test_year(self) -> None:
        """A year of days costs nothing more, in a night that adds one and has something late of
        last week: it makes two weeks again, reads the one before, and what it makes is the same."""
        late = self.history()
        young = Warehouse(self.spark, self.folder / "tables" / "young")
        ingest(young, self.journals)
        entries = young.stage("hops", hops(young.read("runs")))
        young.publish(young.snapshot(), entries, pending=())
        for journal in self.journals:
            journal_days(journal, 90)
        old = Warehouse(self.spark, self.folder / "tables" / "old")
        shutil.copytree(young.base, old.base)
        warehouses = {young: KNOWN, old: KNOWN + 365}
        for warehouse, days in warehouses.items():
            self.assertEqual(len(grow_old(warehouse, days).days("hops")), REAL + days)
        self.day(REAL)
        late.rename(self.folder / "alpha.example" / late.parent.name / late.name)

        today = FIRST + REAL * ONE
        made = between(today - 2 * WEEK * ONE, today)
        works = []
        for warehouse in warehouses:
            before = warehouse.snapshot()
            work, told = self.night(warehouse)
            works.append(work)
            after = warehouse.snapshot()
            fresh = set(after.parts) - set(before.parts)
            self.assertEqual({date.fromisoformat(part.day) for part in fresh}, set(made))
            self.assertEqual(set(told), {today - WEEK * ONE, today})
            self.assertEqual(after.pending, frozenset())
            self.assertEqual(warehouse.read("messages", made).count(), 2 * len(made) + 1)
        self.assertEqual(*works)
        # The new day's of two brokers, and the one in which something came late.
        self.assertEqual(works[0]["folders"], 3)
        # Of each day that it reads, the tables once or a few times; and names of segments.
        self.assertLess(works[0]["directories"], 300)
        for table in ("messages", "violations", "balance"):
            self.assertEqual(*(self.rows(each, table, made) for each in warehouses), table)

    def history(self) -> Path:
        """Write the segments of all days, and one that comes late, of the day a week before the
        next; return it."""
        late = None
        for number in range(REAL):
            self.day(number)
            if number == REAL - WEEK:
                self.alpha.receive(1000, "orders", sender="user:ann")
                self.alpha.end(RecordKind.DELIVERED, 1000, "orders")
                late = self.alpha.segment(self.folder / "late")
        assert late is not None
        return late


class WindowTests(SynchronousTestCase):
    """Days that are made again together."""

    skip = MISSING

    def windows(self, *days: int) -> list[tuple[int, int, int, int]]:
        return [
            tuple((each - FIRST).days for each in (w.read[0], w.made[0], w.made[-1], w.read[-1]))
            for w in nightly._windows(FIRST + each * ONE for each in days)
        ]  # type: ignore[misc]

    def test_night(self) -> None:
        """A day and what comes late for last week are one window: two weeks are read before."""
        self.assertEqual(self.windows(100), [(86, 93, 107, 114)])
        self.assertEqual(self.windows(100, 94), [(80, 87, 107, 114)])

    def test_late(self) -> None:
        """Late records of long ago make the days around them again, and none between."""
        self.assertEqual(self.windows(100, 0), [(-14, -7, 7, 14), (86, 93, 107, 114)])
        # No window reads what another one makes.
        self.assertEqual(self.windows(100, 79), [(65, 72, 107, 114)])
        self.assertEqual(self.windows(100, 78), [(64, 71, 85, 92), (86, 93, 107, 114)])
        self.assertEqual(self.windows(), [])
