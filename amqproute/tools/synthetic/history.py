# SPDX-License-Identifier: Apache-2.0
"""A warehouse with a long history, without the nightly runs for it.

A nightly run reads the days around those with new records, and none of the many before them. So
older days can be copies of one day: they serve to measure the cost of their presence. Their files
are those that as many nightly runs would have left, each change with its own directory; links to
one file replace copies.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path

from amqproute.pipeline.ingest import LOOK_BACK_SECONDS
from amqproute.pipeline.nightly import MADE
from amqproute.pipeline.warehouse import MANIFEST, TablePart, Warehouse, WarehouseSnapshot

__all__ = ["grow_old", "journal_days"]

_LISTS_OF_A_NIGHT = 3
"""Changes of a night: the ingest, the derived tables, and the pages."""


def grow_old(warehouse: Warehouse, days: int) -> WarehouseSnapshot:
    """Add days before the first day of a warehouse, as nightly runs would have left them.

    Args:
        warehouse: on this machine, with at least one day; the first one is copied.
        days: their number.

    Returns:
        A snapshot of the tables.
    """
    base = warehouse.snapshot()
    known = base.days("runs")
    pattern = [part for part in base.parts if part.day == known[0].isoformat()]
    folder = Path(warehouse.base, "data")
    added: list[TablePart] = []
    version = base.version + 1
    for number in range(days, 0, -1):
        version += _LISTS_OF_A_NIGHT
        added += _night(folder, pattern, known[0] - timedelta(number), version)
    # As if the last nightly run had just ended: it knows the present folders of journals.
    listed = dict.fromkeys(base.listed, time.time() + LOOK_BACK_SECONDS)
    parts = tuple(sorted([*base.parts, *added]))
    after = dataclasses.replace(base, version=version, parts=parts, listed=listed)
    warehouse.files.create(f"log/{version:020}.json", after.as_text())
    return after


def _night(folder: Path, pattern: Iterable[TablePart], day: date, version: int) -> list[TablePart]:
    """Copy a day, with a directory for each change of a nightly run."""
    changes: dict[str, str] = defaultdict(lambda: f"c{uuid.uuid4().hex[:16]}")
    lengths: dict[str, dict[str, int]] = defaultdict(dict)
    added = []
    for old in pattern:
        # Derived tables have one change each; an ingest has one for the lines of files
        # and one for the files.
        change = changes[old.table if old.table in (*MADE, "segments") else "runs"]
        part = dataclasses.replace(old, day=day.isoformat(), commit=change)
        if part in added:  # the second piece of a day
            part = dataclasses.replace(part, commit=f"c{uuid.uuid4().hex[:16]}")
        target = folder / part.path
        target.mkdir(parents=True)
        for each in (folder / old.path).iterdir():
            os.link(each, target / each.name)
            name = str((target / each.name).relative_to(folder / f"commit={part.commit}"))
            lengths[part.commit][name] = each.stat().st_size
        added.append(part)
    for commit, files in lengths.items():
        text = json.dumps({"change": version, "files": files})
        (folder / f"commit={commit}" / MANIFEST).write_text(text)
    return added


def journal_days(journal: Path, days: int) -> None:
    """Add folders of days before the first one of a journal, with links to its segments.

    Args:
        journal: directory of the journal.
        days: their number.
    """
    first = min(path for path in journal.iterdir() if path.is_dir())
    segments = list(first.iterdir())
    for number in range(1, days + 1):
        folder = journal / (date.fromisoformat(first.name) - timedelta(number)).isoformat()
        folder.mkdir()
        for each in segments:
            os.link(each, folder / each.name)
