# SPDX-License-Identifier: Apache-2.0
"""The documentation of the tables agrees with them."""

from __future__ import annotations

import json
import os
import re
from datetime import date
from pathlib import Path
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.journal.record import FIELDS, LINE_FIELDS, RUN_FIELDS
from tests.pipeline.support import MISSING

if not MISSING:
    from amqproute.pipeline import warehouse
    from amqproute.pipeline.table_schema import RECORDS, RUNS, TABLES

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
    """The list appears atomically in a local directory."""

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
        files = object.__new__(warehouse._Files)
        files._link(path, "text")
        self.assertEqual(did, ["sync text", "link 7", "sync log"])
        self.assertRaises(warehouse.PublicationConflict, files._link, path, "other")
        self.assertEqual([each.name for each in path.parent.iterdir()], ["7"])
        self.assertEqual(path.read_text(), "text")


class KeptFiles:
    """Files in memory."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.synced: list[str] = []
        self.touched: list[str] = []

    def walk(self, name: str) -> list[warehouse.Stored]:
        return []  # changes have no files of rows here, and so no list of them

    def touch(self, name: str) -> None:
        self.touched.append(name)

    def names(self, name: str) -> list[str]:
        return sorted(each.partition("/")[2] for each in self.texts if each.startswith(f"{name}/"))

    def read(self, name: str) -> str:
        return self.texts[name]

    def sync(self, name: str) -> None:
        self.synced.append(name)

    def create(self, name: str, text: str) -> None:
        if name in self.texts:
            raise warehouse.PublicationConflict(name)
        self.texts[name] = text


class SnapshotTests(SynchronousTestCase):
    """The contents of the tables, change by change, without Spark."""

    skip = MISSING

    def setUp(self) -> None:
        self.warehouse = object.__new__(warehouse.Warehouse)
        self.warehouse.base = "somewhere"
        self.files = KeptFiles()
        self.warehouse.files = cast(Any, self.files)

    def part(self, table: str, commit: str) -> warehouse.TablePart:
        return warehouse.TablePart(table, "2026-11-22", "alpha.example", commit)

    def test_publish(self) -> None:
        """Added parts appear, removed ones disappear, all others stay; what another
        change has not seen is not overwritten."""
        one, two, three = self.part("runs", "1"), self.part("hops", "1"), self.part("hops", "2")
        days = {date(2026, 11, 22)}
        empty = self.warehouse.snapshot()
        self.assertEqual((empty.version, empty.parts, empty.pending), (0, (), frozenset()))
        first = self.warehouse.publish(empty, [two, one], [], pending=days)
        self.assertEqual((first.version, set(first.parts), first.pending), (1, {one, two}, days))
        self.assertEqual(self.files.synced, ["data/commit=1"])
        self.assertRaises(warehouse.PublicationConflict, self.warehouse.publish, empty, [three], [])
        second = self.warehouse.publish(first, [three], [two])
        self.assertEqual((set(second.parts), second.pending), ({one, three}, days))
        self.assertEqual(self.files.touched, ["changes/1"])  # what it brought is looked at again
        third = self.warehouse.publish(second, [], [], pending=())
        self.assertEqual((set(third.parts), third.pending), ({one, three}, frozenset()))
        self.assertEqual(self.warehouse.snapshot(), third)

    def test_later_format(self) -> None:
        """Tables of a format that nobody knows here are not read."""
        self.warehouse.publish(self.warehouse.snapshot(), [self.part("runs", "1")], [])
        (name,) = self.files.texts
        said = json.loads(self.files.texts[name])
        self.files.texts[name] = json.dumps({**said, "format": 99})
        error = self.assertRaises(warehouse.UnreadableList, self.warehouse.snapshot)
        self.assertIn("of format 99, which a later release writes", str(error))
