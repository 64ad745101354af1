# SPDX-License-Identifier: Apache-2.0
"""Journals altered by an expert: sequences and hashes are consistent again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from amqproute.journal import record
from amqproute.journal.record import GENESIS, JournalRecord, RecordKind

Change = Callable[[JournalRecord], Iterable[JournalRecord]]
"""Gives what is in place of a record: itself, nothing, or several."""


def tampered(journal: Path, to: Path, change: Change) -> Path:
    """Write a journal again, each record on a line of its own, and return its directory.

    Args:
        journal: the directory, with folders of days.
        to: the directory that gets the changed one.
        change: what to make of each record, but for those that begin a segment.
    """
    last, seq = GENESIS, 1
    for path in sorted(journal.glob("[0-9]*-*/*.jsonl"), key=lambda each: each.name):
        lines = []
        begin = seq
        for each in _changed(path, change, last):
            tail = record.tail(
                each.kind, each.journal, each.broker, each.domain, each.stream, seq, 1, each.time,
                _facts(each), {},
            )  # fmt: skip
            last, line = record.chained(last, tail)
            lines.append(line)
            seq += 1
        folder = to / path.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{path.name.rpartition('-')[0]}-{begin:020}.jsonl"
        (folder / name).write_bytes(b"".join(lines))
    return to


def _changed(path: Path, change: Change, last: str) -> Iterator[JournalRecord]:
    for octets in path.read_bytes().splitlines(keepends=True):
        for each in record.read_line(octets).records():
            if each.kind == RecordKind.SEGMENT:
                yield dataclasses.replace(each, previous=last)
            else:
                yield from change(each)


def _facts(each: JournalRecord) -> dict[str, Any]:
    named = ((name, getattr(each, name)) for name in record.RUN_FIELDS)
    return {name: value for name, value in named if value is not None}
