# SPDX-License-Identifier: Apache-2.0
"""Segments vanish during `run`: the daemon moves open ones, and removes old ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.journals import Journal
from tests.pipeline.support import MISSING, SparkCase
from tests.pipeline.test_commands import invoked

if TYPE_CHECKING or not MISSING:
    from pyspark.errors import PySparkException

    from amqproute.pipeline import ingest
    from amqproute.pipeline.warehouse import Warehouse

DAY = 86_400


class VanishingTests(SparkCase):
    """Files that are there when they are listed, and not when they are read."""

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tables = Warehouse(self.spark, self.folder / "tables")
        journal = Journal("alpha.example")
        self.segments = []
        for day in range(5):
            journal.at = day * DAY
            journal.receive(day, "orders")
            self.segments.append(journal.segment(self.folder))
        self.journal = self.folder / journal.domain

    def once(self, module: object, name: str, act: Callable[[], object]) -> list[str]:
        """Have something done right before the first call of a function; say so in the list."""
        function: Callable[..., Any] = getattr(module, name)
        done: list[str] = []

        def called(*arguments: Any, **named: Any) -> Any:
            if not done:
                done.append(name)
                act()
            return function(*arguments, **named)

        self.patch(module, name, called)
        return done

    def entries(self) -> list[int]:
        runs = self.tables.read("runs").select("all.entry").collect()
        return sorted(row.entry for row in runs)

    def test_run(self) -> None:
        """A day's folder goes before it is listed, a segment when it is listed, one before it is
        read and one while it is: `run` takes the others. What comes back is taken the next time."""
        kept = self.folder / "kept"
        shutil.copytree(self.journal, kept)
        done = [
            self.once(ingest, "_fresh", lambda: shutil.rmtree(self.segments[0].parent)),
            self.once(ingest, "_take", self.segments[2].unlink),
            self.once(ingest, "_written", self.segments[3].unlink),
        ]
        found = ingest._found

        def listed(folders: Sequence[str]) -> list[ingest.SegmentFile]:
            files = list(found(folders))
            self.segments[1].unlink(missing_ok=True)
            return files

        self.patch(ingest, "_found", listed)
        command = ["run", "--warehouse", self.tables.base, "--journal", self.journal]
        result = invoked(*command)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertEqual([len(each) for each in done], [1, 1, 1])
        self.assertIn("1 new segments with 1 records.", result.stdout)
        self.assertEqual(self.entries(), [4])
        self.assertEqual(self.tables.read("segments").count(), 1)
        self.patch(ingest, "_found", found)
        shutil.copytree(kept, self.journal, dirs_exist_ok=True)
        self.assertEqual(ingest.ingest(self.tables, [self.journal]).segments, 4)
        self.assertEqual(self.entries(), [0, 1, 2, 3, 4])

    def test_all_gone(self) -> None:
        """With nothing left there is nothing to do."""
        self.once(ingest, "_fresh", lambda: shutil.rmtree(self.journal))
        self.assertEqual(ingest.ingest(self.tables, [self.journal]).segments, 0)

    def test_other_errors(self) -> None:
        """An error that no missing file explains is not tried again."""
        calls = []

        def refused(*_: Any) -> Any:
            calls.append(1)
            raise PySparkException("out of order")

        self.patch(ingest, "_take", refused)
        with self.assertRaisesRegex(PySparkException, "out of order"):
            ingest.ingest(self.tables, [self.journal])
        self.assertEqual(len(calls), 1)
