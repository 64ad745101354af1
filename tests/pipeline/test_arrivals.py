# SPDX-License-Identifier: Apache-2.0
"""Segments in any order, repeated and late give the same tables.

Courses are drawn by Hypothesis (`tests.pipeline.courses`), and many of them are looked at together:
Spark takes as long for one as for fifty. A course that shows an error is made smaller in the same
way, all that have one thing less at once.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import Phase, given, settings

from amqproute.journal.record import RecordKind
from tests.pipeline.courses import (
    NIGHTS,
    Arrival,
    Course,
    arrivals,
    courses,
    lines_of,
    number_in,
)
from tests.pipeline.journals import Journal
from tests.pipeline.support import MISSING, SparkCase, computed
from tests.support.patience import PATIENCE

if TYPE_CHECKING or not MISSING:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from amqproute.pipeline import ingest as bronze
    from amqproute.pipeline.conservation import balance, judged, violations
    from amqproute.pipeline.figures import latencies, queues, reasons, volumes
    from amqproute.pipeline.handovers import contradictions
    from amqproute.pipeline.ingest import ingest
    from amqproute.pipeline.lines import parse
    from amqproute.pipeline.nightly import refresh, settle
    from amqproute.pipeline.stream import follow, live, progress, read_live, timed
    from amqproute.pipeline.table_schema import TABLES
    from amqproute.pipeline.traces import hops, messages
    from amqproute.pipeline.warehouse import Warehouse

IS_LONG = os.environ.get("AMQPROUTE_HYPOTHESIS") == "long"
ROUNDS = 20 if IS_LONG else 1
TOGETHER = 60 if IS_LONG else 30
"""Courses of a round."""

DAY = 86_400
BRONZE = ("runs", "rejects", "segments")
Rows = Mapping[str, Counter[str]]
"""The rows of tables, as text."""


def drawn(number: int) -> list[Course]:
    """Draw some courses."""
    found: list[Course] = []

    @settings(max_examples=number, phases=[Phase.generate], database=None)
    @given(courses())
    def gather(course: Course) -> None:
        found.append(course)

    gather()
    return found


def as_text(tables: Mapping[str, DataFrame]) -> Rows:
    """Return the rows of all of these."""
    return {
        name: Counter(text for (text,) in table.select(F.to_json(F.struct("*"))).collect())
        for name, table in tables.items()
    }


def differences(found: Rows, expected: Rows) -> list[str]:
    """Say which rows there are too many, or too few."""
    return [
        f"{name} {sign} {row}"
        for name in expected
        for sign, rows in (
            ("should not have", found[name] - expected[name]),
            ("should have", expected[name] - found[name]),
        )
        for row in rows.elements()
    ]


class ArrivalCase(SparkCase):
    """Courses that have come in their ways, beside the same records in order, each once."""

    seconds = 3600.0 if IS_LONG else 3 * PATIENCE

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def found(self, some: Sequence[Course], folder: Path) -> Rows:
        """Return what the tables say of courses that have come in."""
        raise NotImplementedError

    def expected(self, runs: DataFrame) -> Rows:
        """Return what they should say, from all lines."""
        raise NotImplementedError

    def wrong(self, some: Sequence[Course]) -> tuple[list[Course], list[str]]:
        """Return the courses that come out otherwise, and which rows do."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        lines = folder / "lines"
        lines.write_bytes(b"".join(line for n, c in enumerate(some) for line in lines_of(c, n)))
        runs = computed(parse(bronze._lines(self.spark, [str(lines)])))
        self.assertEqual(runs.where("reason IS NOT NULL").count(), 0)
        expected = self.expected(runs)
        rows = differences(self.found(some, folder), expected)
        if len(some) > 1 and not rows:
            for name, told in expected.items():
                self.assertGreater(sum(told.values()), 0, name)
        named = {number_in(row) for row in rows}
        return [course for number, course in enumerate(some) if number in named], rows

    def check(self) -> None:
        """Draw courses, and look at them; show the smallest of those that come out otherwise."""
        some = drawn(ROUNDS * TOGETHER)
        for first in range(0, len(some), TOGETHER):
            wrong, rows = self.wrong(some[first : first + TOGETHER])
            if wrong:
                course = self.smallest(wrong)
                _, rows = self.wrong([course])
                self.fail("\n".join([repr(course), *rows[:20]]))
            self.assertEqual(rows, [])

    def smallest(self, wrong: Sequence[Course]) -> Course:
        """Leave out of a course that comes out otherwise what is not needed for that."""
        until = time.monotonic() + self.seconds / 4
        while True:
            course = min(wrong, key=lambda course: len(repr(course)))
            wrong, _ = self.wrong(list(course.smaller()))
            if not wrong or time.monotonic() > until:
                return course


class OrderTests(ArrivalCase):
    """The nightly run, each night."""

    def test_any_order(self) -> None:
        """Entries, messages and figures are those of all records, each once and all at once."""
        self.check()

    def found(self, some: Sequence[Course], folder: Path) -> Rows:
        """Bring in what comes each night, and make of it what is made."""
        warehouse = Warehouse(self.spark, folder / "tables")
        nights = [folder / f"night{number}" for number in range(NIGHTS)]
        for night in nights:
            night.mkdir()
        for number, course in enumerate(some):
            for each in arrivals(course, number):
                place(nights[each.night], each)
        for number in range(NIGHTS):
            ingest(warehouse, nights[: number + 1])
            settle(warehouse, refresh(warehouse))
        snapshot = warehouse.snapshot()
        return as_text(
            {name: warehouse.read(name, None, snapshot) for name in TABLES if name not in BRONZE}
        )

    def expected(self, runs: DataFrame) -> Rows:
        """Make the same of tables that are not in files."""
        entries = computed(hops(runs))
        doubtful = judged(runs, entries)
        with contradictions(entries, runs, doubtful) as between_brokers:
            wrong = computed(violations(runs, doubtful).unionByName(between_brokers))
        tables = {
            "hops": entries,
            "messages": messages(entries),
            "violations": wrong,
            "balance": balance(entries, doubtful),
            "latencies": latencies(entries),
            "volumes": volumes(entries),
            "reasons": reasons(runs),
            "queues": queues(entries),
        }
        self.assertEqual({*tables, *BRONZE}, TABLES.keys())
        return as_text(tables)


class StreamedTests(ArrivalCase):
    """The stream, as far as segments come in time."""

    def test_any_order(self) -> None:
        """The written tables equal the table of all records."""
        self.check()

    def found(self, some: Sequence[Course], folder: Path) -> Rows:
        """Follow files of which the oldest are the first, in several steps, to the end."""
        files = [
            (each.night, place(folder, each))
            for number, course in enumerate(some)
            for each in arrivals(course, number)
        ]
        # Hours end when something has come that is later than anything may be late.
        end = Journal("z.example")
        end.at = 60 * DAY
        end.write(RecordKind.CONFIGURED, {})
        last = end.segment(folder / "whole")
        files.append((NIGHTS, last))
        now = time.time()
        for age, (_, path) in enumerate(sorted(files, key=lambda file: file[0], reverse=True)):
            os.utime(path, (now - 60 * age, now - 60 * age))
        journals = sorted({path.parents[1] for _, path in files})
        query = follow(
            self.spark, journals, folder / "output", lateness="40 days",
            at_once=1 + len(files) // 3,
        )  # fmt: skip
        query.awaitTermination()
        done = progress(query)
        self.assertEqual(done.dropped, 0)
        return as_text({"live": read_live(self.spark, folder / "output")})

    def expected(self, runs: DataFrame) -> Rows:
        """Make the same figures of a table."""
        return as_text({"live": live(timed(runs))})


def place(folder: Path, arrival: Arrival) -> Path:
    """Put a file where it comes."""
    path = folder / arrival.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(arrival.text)
    return path
