# SPDX-License-Identifier: Apache-2.0
"""What the documentation says of the tables is what they are."""

from __future__ import annotations

import os
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.journal.record import FIELDS, LINE_FIELDS, RUN_FIELDS
from tests.pipeline.support import MISSING

if not MISSING:
    from amqproute.pipeline import tables
    from amqproute.pipeline.schema import RECORDS, RUNS, TABLES

PAGE = Path(amqproute.__file__).parents[1] / "docs" / "pipeline.md"


class SchemaTests(SynchronousTestCase):
    """Schemas, the journal's fields, and the page about them."""

    skip = MISSING

    def test_page(self) -> None:
        """The page names every table with its columns and their types, in order."""
        if not PAGE.exists():
            self.skipTest("not run from the sources")
        _, _, columns = PAGE.read_text().partition("## Columns\n")
        sections = re.split(r"^### ", columns, flags=re.M)[1:]
        told = {
            section.partition("\n")[0]: re.findall(r"`(\w+)`\s([\w<>]+)", section.split("\n\n")[2])
            for section in sections
        }
        expected = {}
        for name, schema in TABLES.items():
            expected[name] = [
                (field.name, text if len(text) < 40 else field.dataType.typeName())
                for field in schema
                for text in [field.dataType.simpleString()]
            ]
        self.assertEqual(told, expected)

    def test_fields_of_the_journal(self) -> None:
        """A field that is added to the records is in the tables."""
        self.assertEqual(RECORDS.names, list(FIELDS))
        self.assertEqual(RUNS["all"].dataType.names, list(RUN_FIELDS))  # type: ignore[attr-defined]
        self.assertEqual(RUNS["each"].dataType.names, list(RUN_FIELDS))  # type: ignore[attr-defined]
        self.assertTrue(set(LINE_FIELDS) <= set(RUNS.names))

    def test_partitions(self) -> None:
        """Every table is divided by day and domain."""
        for schema in TABLES.values():
            self.assertEqual(schema.names[-2:], ["day", "domain"])


class LinkTests(SynchronousTestCase):
    """How the list of what counts appears in a local directory."""

    skip = MISSING

    def test_whole_or_not_at_all(self) -> None:
        """Its text is on the disk before it has its name; nobody else's name is taken."""
        did: list[str] = []
        sync, link = os.fsync, os.link

        def synced(descriptor: int) -> None:
            file = Path(f"/proc/self/fd/{descriptor}")
            did.append(f"sync {file.resolve().name if file.is_dir() else file.read_text()}")
            sync(descriptor)

        def linked(source: Path, target: Path) -> None:
            did.append(f"link {target.name}")
            link(source, target)

        self.patch(os, "fsync", synced)
        self.patch(os, "link", linked)
        path = Path(self.mktemp()) / "log" / "7"
        files = object.__new__(tables._Files)
        files._link(path, "text")
        self.assertEqual(did, ["sync text", "link 7", "sync log"])
        self.assertRaises(tables.Conflict, files._link, path, "other")
        self.assertEqual([each.name for each in path.parent.iterdir()], ["7"])
        self.assertEqual(path.read_text(), "text")
