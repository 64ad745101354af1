# SPDX-License-Identifier: Apache-2.0
"""Journals altered by an expert: sequences and hashes are consistent again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from amqproute.journal import record
from amqproute.journal.record import GENESIS, JournalRecord, RecordKind
from amqproute.journal.segments import day_of

FAR = 1 << 60
"""No journal comes to such a number."""

Change = Callable[[JournalRecord], Iterable[JournalRecord]]
"""Gives what is in place of a record: itself, nothing, or several."""


def tampered(journal: Path, to: Path, change: Change) -> Path:
    """Write a journal again, each record on a line of its own, and return its directory.

    Args:
        journal: the directory, with folders of days.
        to: the directory that gets the changed one.
        change: what to make of each record, but for those that begin a segment. One that is given
            a number that no journal comes to keeps it, and the others are counted as without it.
    """
    last, seq = GENESIS, 1
    for path in sorted(journal.glob("[0-9]*-*/*.jsonl"), key=lambda each: each.name):
        lines = []
        begin = seq
        for each in _changed(path, change, last):
            is_own = each.seq < FAR
            last, line = _line(last, each, seq if is_own else each.seq)
            lines.append(line)
            seq += is_own
        _write(to / path.parent.name, path.name, begin, lines)
    return to


def forged(journal: Path) -> Path:
    """Write one more segment of a journal, which is consistent and follows from none; return it."""
    path = max(journal.glob("[0-9]*-*/*.jsonl"), key=lambda each: each.name)
    *_, last = records_of(path)
    first = dataclasses.replace(last, kind=RecordKind.SEGMENT, previous="f" * 64)
    known, opening = _line(first.previous or "", first, last.seq + 1)
    _, closing = _line(known, last, last.seq + 2)
    return _write(path.parent, path.name, last.seq + 1, [opening, closing])


def over_days(records: Sequence[JournalRecord], days: int, to: Path) -> list[Path]:
    """Write records as a journal of some days, of which the last is theirs; return its segments."""
    last, seq = GENESIS, 1
    paths = []
    for number in range(days):
        begin, lines = seq, []
        first = dataclasses.replace(records[0], kind=RecordKind.SEGMENT, previous=last)
        for each in [first, *records[number::days]]:
            time = each.time - (days - 1 - number) * 86_400_000_000
            is_own = each.seq < FAR
            moved = dataclasses.replace(each, time=time)
            last, line = _line(last, moved, seq if is_own else each.seq)
            lines.append(line)
            seq += is_own
        name = f"{first.broker}-{first.journal}-{begin:020}.jsonl"
        paths.append(_write(to / day_of(time), name, begin, lines))
    return paths


def _line(last: str, each: JournalRecord, seq: int) -> tuple[str, bytes]:
    tail = record.tail(
        each.kind, each.journal, each.broker, each.domain, each.stream, seq, 1, each.time,
        _facts(each), {},
    )  # fmt: skip
    return record.chained(last, tail)


def _write(folder: Path, name: str, begin: int, lines: Sequence[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.rpartition('-')[0]}-{begin:020}.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def records_of(path: Path) -> Iterator[JournalRecord]:
    """Yield the records of a segment."""
    for octets in path.read_bytes().splitlines(keepends=True):
        yield from record.read_line(octets).records()


def _changed(path: Path, change: Change, last: str) -> Iterator[JournalRecord]:
    for each in records_of(path):
        if each.kind == RecordKind.SEGMENT:
            yield dataclasses.replace(each, previous=last)
        else:
            yield from change(each)


def _facts(each: JournalRecord) -> dict[str, Any]:
    named = ((name, getattr(each, name)) for name in record.RUN_FIELDS)
    return {name: value for name, value in named if value is not None}
