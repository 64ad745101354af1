# SPDX-License-Identifier: Apache-2.0
"""The entries that a store should have, by its journal: the last stock and later records.

The journal is never ahead of the store: a record is written after its commit. It may be a second
behind, and then the store's outbox has the missing ends. Records dropped on a full disk or lost by
damage are gone: an incomplete journal proves nothing about single entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from amqproute.journal.reader import segments
from amqproute.journal.record import BEGINS, ENDS, JournalLine, JournalRecord, RecordKind
from amqproute.journal.recovery import first_damage, whole_lines

__all__ = ["ExpectedEntries", "living", "named_by"]

MOST_READ_BYTES: Final = 512 * 1024 * 1024
"""Limit of reading the journal backwards, for a stock and for names."""


@dataclass(slots=True)
class ExpectedEntries:
    """The entries that should exist according to the journal.

    Attributes:
        ids: ids of entries that have begun and not ended.
        stream: names the store that numbers them.
        is_all: whether a stock, or the journal's beginning, was found.
        is_whole: whether no relevant record is missing: no line is damaged, and none reports
            unwritten records. Otherwise some of the entries may have ended.
    """

    ids: set[int] = field(default_factory=set)
    stream: str = ""
    is_all: bool = True
    is_whole: bool = True


def living(directory: Path, budget: int = MOST_READ_BYTES) -> ExpectedEntries:
    """Return the entries that should exist.

    Args:
        directory: the journal.
        budget: octets that may be read.

    Raises:
        OSError: reading failed.
    """
    found = ExpectedEntries()
    chosen: list[Path] = []
    stocks = 0
    for path in reversed(segments(directory)):
        budget -= path.stat().st_size
        if budget < 0 and chosen:
            found.is_all = stocks > 0
            break
        chosen.append(path)
        lines = list(whole_lines(path))
        if lines and not found.stream:
            found.stream = lines[-1].body["stream"]
        stocks += sum(1 for line in lines if _ends_stock(line, found.stream))
        if stocks > 1:
            break  # the last stock lies entirely after the end of the one before
    begun: set[int] = set()
    ended: set[int] = set()
    stock: set[int] = set()
    seen: dict[str, int] = {}
    is_twofold = False
    for path in reversed(chosen):
        found.is_whole &= first_damage(path) is None
        for line in whole_lines(path):
            if line.kind == RecordKind.GAP:
                found.is_whole = False
            if line.body["stream"] != found.stream:
                continue
            if line.kind == RecordKind.START:
                stock.clear()  # the stock being taken will not end
                seen.clear()
                is_twofold = False
            elif _ends_stock(line, found.stream):
                found.ids = (stock | begun) - ended
                if not is_twofold:  # else the end of the other stock is still to come
                    stock, begun = set(), set()
                seen.clear()
                is_twofold = False
            elif line.kind == RecordKind.STOCK:
                node = str(line.body["all"].get("node"))
                ids = list(_ids_of_ranges(str(line.body["all"].get("ranges", ""))))
                # Earlier releases took a stock at a stop while another one was being taken.
                is_twofold |= bool(ids) and ids[0] <= seen.get(node, 0)
                seen[node] = max(seen.get(node, 0), *ids) if ids else 0
                stock.update(ids)
            elif line.kind in BEGINS:
                begun.update(_durable(line))
            elif line.kind in ENDS:
                ended.update(_entries(line))
    found.ids = (found.ids | begun) - ended
    return found


def named_by(
    directory: Path, stream: str, ids: Collection[int], budget: int = MOST_READ_BYTES
) -> dict[int, JournalRecord]:
    """Return the records with which entries have begun, as far as they are found.

    Args:
        directory: the journal.
        stream: names the store that numbers the entries.
        ids: ids of the entries.
        budget: octets that may be read.
    """
    wanted = set(ids)
    found: dict[int, JournalRecord] = {}
    for path in reversed(segments(directory)):
        budget -= path.stat().st_size
        if budget < 0 or not wanted:
            break
        for line in whole_lines(path):
            if line.kind not in BEGINS or line.body["stream"] != stream:
                continue
            if wanted.isdisjoint(_entries(line)):
                continue
            for record in line.records():
                if record.entry in wanted:
                    assert record.entry is not None
                    found[record.entry] = record
        wanted -= found.keys()
    return found


def _ends_stock(line: JournalLine, stream: str) -> bool:
    return (
        line.kind == RecordKind.STOCK
        and "node" not in line.body["all"]
        and line.body["stream"] == stream
    )


def _entries(line: JournalLine) -> list[int]:
    several = line.body["each"].get("entry")
    return [each for each in several or [line.body["all"].get("entry")] if isinstance(each, int)]


def _durable(line: JournalLine) -> Iterator[int]:
    """Yield the entries that survive the broker."""
    flags: Any = line.body["each"].get("durable")
    if flags is None:
        flags = [line.body["all"].get("durable", True)] * line.count
    entries = line.body["each"].get("entry") or [line.body["all"].get("entry")]
    for entry, is_durable in zip(entries, flags, strict=False):
        if isinstance(entry, int) and is_durable is not False:
            yield entry


def _ids_of_ranges(text: str) -> Iterator[int]:
    """Yield the ids in the ranges of a stock: ``1-5 9 12-20``."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
