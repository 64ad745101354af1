# SPDX-License-Identifier: Apache-2.0
"""What the documentation says of the tables is what they are."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.journal.record import FIELDS, LINE_FIELDS, RUN_FIELDS
from tests.pipeline.support import MISSING

if not MISSING:
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
