# SPDX-License-Identifier: Apache-2.0
"""Recovery of the journal at start: repair its end, and read its state.

A crash leaves a segment in the folder ``open``. Its last line may be torn: it is cut off, because
its content is in the store (`amqproute.journal.journal_outbox`). The same is done to the lines of
an event that was written only in part, if the store has carried it: it is written again. A power
failure may leave a hole followed by whole lines: it lies after the end known to the head, and
everything from there on is cut off. If anything before that is unreadable, the file has been
changed; it is left unchanged for ``amqproute journal verify`` to report.

If the head is a copy, or is missing while there are segments, the journal may be older than it once
was: it then continues after every sequence that may have been in use (`beyond`). That is harmless
if it was not older, for example if the files were moved to another machine, or their owner was
changed.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from twisted.logger import Logger

from amqproute.durable_path import sync_path
from amqproute.journal.event import MessageRun
from amqproute.journal.record import BEGINS, GENESIS, JournalLine
from amqproute.journal.segment_scan import SegmentScan, scan, whole_line
from amqproute.journal.segments import (
    OPEN,
    JournalHead,
    JournalPosition,
    closed,
    day_of,
    move,
    opened,
    parts_of,
    read_head,
    write_head,
)

HORIZON_IDS: Final = 65_536
"""Ids may enter the journal in another order than they were assigned, but at most this far
apart."""
NOBODY_KNOWS: Final = 1 << 63
"""Stands for the last record on disk if no head gives it."""
LOOK_BACK_BYTES: Final = 64 * 1024 * 1024
"""Octets of the journal read for the latest arrivals."""

log = Logger()


@dataclass(slots=True)
class JournalRecovery:
    """The state of a recovered journal.

    Attributes:
        journal: its name; a new one if there was none.
        place: where it continues.
        head: the known facts about its beginning.
        is_new: whether there was no journal.
        torn_bytes: octets cut off.
        put_back: why it may be older than it once was; empty if it is not.
        scans: scanned segments, by journal and first sequence.
    """

    journal: str
    place: JournalPosition
    head: JournalHead
    is_new: bool = False
    torn_bytes: int = 0
    put_back: str = ""
    scans: dict[tuple[str, int] | None, SegmentScan] = field(default_factory=dict)


@dataclass(slots=True)
class JournalStart:
    """The latest arrivals known to the journal.

    Attributes:
        ids: ids of entries.
        above: all entries with larger ids that the journal knows are among the ids; 0: the ids are
            complete.
    """

    ids: set[int] = field(default_factory=set)
    above: int = 0


def whole_lines(path: Path) -> Iterator[JournalLine]:
    """Iterate over the lines of a segment, up to the first unreadable one."""
    with path.open("rb") as file:
        for octets in file:
            line = whole_line(octets)
            if line is None:
                return
            yield line


def first_damage(path: Path) -> int | None:
    """Return the offset of the first damage in a segment; None if there is none.

    Each line is compared with the hash of the line before. A torn end, which a crash leaves in the
    folder ``open``, is not damage.
    """
    return _damage_in(path, scan(path))


def _damage_in(path: Path, found: SegmentScan) -> int | None:
    if found.damage is not None:
        return found.damage
    end = found.end.octets
    is_torn = path.parent.name == OPEN and not found.is_followed
    return None if is_torn or path.stat().st_size <= end else end


def recover(
    directory: Path,
    broker: str,
    carried: Sequence[tuple[int, MessageRun]] = (),
    now_us: Callable[[], int] = lambda: 0,
) -> JournalRecovery:
    """Repair the journal after a crash; afterwards the folder ``open`` is empty.

    Args:
        directory: the journal.
        broker: container-id, for names of files.
        carried: events that the store has carried, by number.
        now_us: the wall clock.

    Raises:
        OSError: the files cannot be read or written.
    """
    if not directory.exists():
        directory.mkdir(mode=0o700, parents=True)
        sync_path(directory.parent)
    head = read_head(directory)
    left = opened(directory)
    last = list(closed(directory, head.journal if head is not None else None))
    paths = [*last[-1:], *left]
    if head is None and not paths:
        head = JournalHead(secrets.token_hex(8), 0, GENESIS)
        write_head(directory, head, is_lasting=True)
    if head is not None and not paths:
        # If everything was removed, continue after it, so that the removal shows.
        place = JournalPosition(head.seq + 1, head.hash, head.carried)
        found = JournalRecovery(head.journal, place, head, is_new=not head.seq)
    else:
        found = _mended(directory, broker, head, left, paths, carried)
    if not found.is_new:
        _leap(found, directory, head, now_us())
    return found


def _mended(
    directory: Path,
    broker: str,
    head: JournalHead | None,
    left: Sequence[Path],
    paths: Sequence[Path],
    carried: Sequence[tuple[int, MessageRun]],
) -> JournalRecovery:
    """Repair the segments in ``open``, and find the end of the journal."""
    parts = parts_of(paths[-1])
    assert parts is not None
    journal = parts[0]
    is_its_head = head is not None and head.journal == journal
    found = JournalRecovery(
        journal,
        JournalPosition(),
        head if is_its_head and head else JournalHead(journal, 0, GENESIS),
    )
    safe = found.head.seq if is_its_head else NOBODY_KNOWS
    lines = Counter(number for number, _ in carried)
    for path in left:
        found.torn_bytes += _cut(path, _scanned(path, found), lines, safe)
    ends = [each.end for each in found.scans.values() if each.end.seq]
    if not ends:
        before = [_scanned(path, found) for path in paths if path not in left]
        ends = [each.end for each in before if each.end.seq]
    for end in ends:
        found.place.seq, found.place.hash = end.seq, end.hash
        found.place.carried = max(found.place.carried, end.carried)
    if is_its_head:
        # All lines up to there are on the disk; those of closed segments may not have been read.
        found.place.carried = max(found.place.carried, found.head.carried)
    if found.place.seq <= found.head.seq:
        log.error(
            "the journal ends at record {seq}, its head says {head}: records are missing",
            seq=found.place.seq - 1,
            head=found.head.seq,
        )
        found.place.seq, found.place.hash = found.head.seq + 1, found.head.hash
    for path in left:
        if path.stat().st_size:
            move(path, directory / day_of(_scanned(path, found).time_us), broker)
        else:
            path.unlink()
    return found


def _leap(found: JournalRecovery, directory: Path, head: JournalHead | None, now_us: int) -> None:
    """Skip sequences that may be in use, if the journal may be older than it once was."""
    if head is None or head.journal != found.journal:
        found.put_back = "there are segments and no head: the last records may be missing"
    elif head.is_copy:
        found.put_back = (
            "the head is a copy: the journal was restored from a backup or moved, or its owner or "
            "mode was changed"
        )
    else:
        return
    place = found.place
    after = place.seq - 1
    place.seq = beyond(place.seq, now_us)
    place.skipped = place.seq - after - 1
    log.warn(
        "{directory}: {why}. If records were written after number {after}, they are missing here; "
        "to keep the numbers unique, the next record is number {seq}",
        directory=str(directory),
        why=found.put_back,
        after=after,
        seq=place.seq,
    )


def beyond(seq: int, now_us: int) -> int:
    """Return an unused sequence, whatever was written since a copy was made.

    Sequences grow by less than one per microsecond, so the number of microseconds since the epoch
    exceeds all of them. If the clock was set back, or never set, only chance helps.
    """
    if now_us > seq:
        return now_us
    return seq + secrets.randbelow(1 << 48) + (1 << 40)


def _scanned(path: Path, found: JournalRecovery) -> SegmentScan:
    """Return the scan of a segment; each segment is read once."""
    key = parts_of(path)
    if key not in found.scans:
        found.scans[key] = scan(path)
    return found.scans[key]


def _cut(path: Path, found: SegmentScan, lines: Mapping[int, int], safe: int) -> int:
    """Cut off a torn end; return the number of octets.

    Args:
        path: the segment.
        found: its scan.
        lines: the number of lines of each carried event, by number.
        safe: the last record that was certainly on disk.
    """
    parts = parts_of(path)
    seq = found.end.seq or (0 if parts is None else parts[1])
    if found.is_followed and seq <= safe:
        log.error(
            "{path} is damaged or was changed at octet {at}: it is kept as it is",
            path=str(path),
            at=found.end.octets,
        )
        return 0
    last = found.last
    if last is not None and last.lines < lines.get(last.number, 0):
        found.cut(last.start)
    good = found.end.octets
    with path.open("r+b") as file:
        torn = file.seek(0, os.SEEK_END) - good
        if torn:
            file.truncate(good)
            log.info("{path}: {torn} octets of a torn end cut off", path=str(path), torn=torn)
        file.flush()
        os.fsync(file.fileno())
    found.is_followed = False
    return torn


def missing(
    carried: Sequence[tuple[int, MessageRun]], found: JournalRecovery
) -> list[tuple[int, MessageRun]]:
    """Return the carried events that the journal lacks."""
    return [(number, run) for number, run in carried if number > found.place.carried]


def begun_by(run: MessageRun) -> list[int]:
    """Return the ids of entries that begin with a run."""
    if run.kind not in BEGINS:
        return []
    ids: list[int] = json.loads(run.columns).get("entry", [])
    alone = json.loads(run.shared).get("entry")
    return ids if alone is None else [alone]


def begun(directory: Path, stream: str, found: JournalRecovery) -> JournalStart:
    """Return the entries that have begun lately according to the journal.

    Args:
        directory: the journal.
        stream: names the store that numbers them.
        found: the result of `recover`; segments scanned there are not read again.
    """
    known = JournalStart()
    budget = LOOK_BACK_BYTES
    highest = lowest = 0
    for path in reversed(list(closed(directory, found.journal))):
        budget -= path.stat().st_size
        scanned = _scanned(path, found)
        at = _damage_in(path, scanned)
        if at is not None:
            log.error(
                "{path} is damaged or was changed at octet {at}: everything after that is "
                "ignored; no message is lost by it. For details: amqproute journal verify",
                path=str(path),
                at=at,
            )
        ids = scanned.begun(stream)
        if ids:
            known.ids |= ids
            highest = max(highest, *ids)
            lowest = min(lowest or highest, *ids)
        if lowest and (lowest <= highest - HORIZON_IDS or budget < 0):
            known.above = max(lowest, highest - HORIZON_IDS)
            return known
    head = read_head(directory)
    if head is not None and head.first_seq > 1:
        known.above = lowest  # earlier records may have been removed for their age
    return known
