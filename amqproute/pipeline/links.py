# SPDX-License-Identifier: Apache-2.0
"""The chain from one segment to the next.

The first line of a segment repeats the hash of the last line of the segment before it. If they
differ although no record is missing between them, one of the two was forged as a whole: each is
consistent in itself (`amqproute.pipeline.chain`), and nothing shows which is genuine. The later one
is reported by its first line; if that one was ingested first, the earlier one is reported.

Only the rows of the files are compared; no line is read for it. Exports, which are chains of their
own, files of several journals, and files whose first or last line was rejected or already present
prove nothing, and are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from amqproute.journal.record import RecordKind
from amqproute.pipeline.chain import TAMPERED

__all__ = ["opening", "unlinked"]

_SegmentRow = Mapping[str, Any]
"""A row of `amqproute.pipeline.table_schema.SEGMENTS`."""

_LATER: Final = f"{TAMPERED}its segment does not follow from the segment before it"
_EARLIER: Final = f"{TAMPERED}the next segment does not follow from it"


def opening() -> Column:
    """The hash that a run says it follows, if it is the first of a segment and of no export."""
    is_first = (F.col("kind") == RecordKind.SEGMENT) & F.col("all.peer").isNull()
    return F.when(is_first, F.col("all.previous")).alias("opening")


def unlinked(
    new: Sequence[_SegmentRow],
    beside: Callable[[Sequence[int], Sequence[int]], Iterable[_SegmentRow]],
) -> list[dict[str, object]]:
    """Find the segments that do not fit those next to them.

    Args:
        new: rows of the new files.
        beside: returns the rows of files that were there already, by their ``end_seq`` or their
            ``first_seq``.

    Returns:
        A row of `amqproute.pipeline.table_schema.REJECTS` for each, without its text.
    """
    ends = {key: row for row in new if row["closing"] and (key := _key(row, "end_seq"))}
    starts = {key: row for row in new if row["opening"] and (key := _key(row, "first_seq"))}
    found = [_told(row, _LATER, 1) for row in starts.values() if _differs(ends, row)]
    alone = starts.keys() - ends.keys(), ends.keys() - starts.keys()
    if not any(alone):
        return found
    wanted = [sorted({seq for _, seq in keys}) for keys in alone]
    old_ends: dict[tuple[str, int], list[_SegmentRow]] = defaultdict(list)
    old_starts: dict[tuple[str, int], list[_SegmentRow]] = defaultdict(list)
    for row in beside(*wanted):
        if row["closing"] and (key := _key(row, "end_seq")):
            old_ends[key].append(row)
        if row["opening"] and (key := _key(row, "first_seq")):
            old_starts[key].append(row)
    for key in sorted(alone[0]):
        if any(old["closing"] != starts[key]["opening"] for old in old_ends[key]):
            found.append(_told(starts[key], _LATER, 1))
    for key in sorted(alone[1]):
        if any(old["opening"] != ends[key]["closing"] for old in old_starts[key]):
            found.append(_told(ends[key], _EARLIER, None))
    return found


def _key(row: _SegmentRow, name: str) -> tuple[str, int] | None:
    """Return the journal and the sequence at one end of a file; None for several journals."""
    return (row["journals"][0], row[name]) if len(row["journals"] or ()) == 1 else None


def _differs(ends: Mapping[tuple[str, int], _SegmentRow], row: _SegmentRow) -> bool:
    before = ends.get((row["journals"][0], row["first_seq"]))
    return before is not None and before["closing"] != row["opening"]


def _told(row: _SegmentRow, reason: str, line: int | None) -> dict[str, object]:
    said = {name: row[name] for name in ("path", "segment", "day", "domain")}
    return {**said, "line": line, "reason": reason, "text": None}
