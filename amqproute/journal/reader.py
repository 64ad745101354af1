# SPDX-License-Identifier: Apache-2.0
"""Reads a journal, or an export of one.

In order, for one message, or to verify it. Following a journal that is being written is in
`amqproute.journal.tail`.

Reading needs only the files, no daemon and no lock: a journal that is being written is read up to
its present end. A segment that is moved to its day meanwhile is found there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final

from amqproute.journal.record import (
    GENESIS,
    PUT_BACK,
    InvalidLine,
    JournalLine,
    JournalRecord,
    RecordKind,
    link,
    named,
    read_line,
)
from amqproute.journal.segments import HEAD, OPEN, JournalHead, closed, opened, parts_of, read_head

MOST_ENTRIES: Final = 10_000
"""Bound on the entries of one message that are followed: copies of copies."""
_TAIL: Final = 1 << 20
"""Octets at the end of a segment that are searched for its last line."""
CHUNK_BYTES: Final = 256 * 1024
"""Octets of a segment that are read at once."""
FEW: Final = 200
"""Number of entries up to which the text of lines is searched before they are decoded."""


def segments(directory: Path) -> list[Path]:
    """Return all segments in order; the one being written is last."""
    # In this order, a segment moved meanwhile is seen twice rather than never.
    being_written = opened(directory)
    paths = list(closed(directory))
    moved = set(map(parts_of, paths))
    paths += [path for path in being_written if parts_of(path) not in moved]
    paths.sort(key=lambda path: parts_of(path) or ("", 0))
    return paths


def open_segment(path: Path, directory: Path) -> BinaryIO | None:
    """Open a segment, wherever it has been moved; None if it was removed."""
    with suppress(FileNotFoundError):
        return path.open("rb")
    parts = parts_of(path)
    for each in closed(directory):
        if parts_of(each) == parts:
            with suppress(FileNotFoundError):
                return each.open("rb")
    return None  # removed for its age


def is_journal(directory: Path) -> bool:
    """Return whether a directory has a journal, or an export of one."""
    return read_head(directory) is not None or bool(segments(directory))


def exported_for(directory: Path) -> str | None:
    """Return the partner of the export in a directory; None for a journal."""
    paths = [] if read_head(directory) is not None else segments(directory)
    return partner_of(paths[0]) if paths else None


def partner_of(path: Path) -> str | None:
    """Return the partner that a segment was exported for; None for a journal's own."""
    try:
        with path.open("rb") as file:
            line = read_line(file.readline())
    except (FileNotFoundError, InvalidLine):
        return None
    who = line.body["all"].get("peer") if line.kind == RecordKind.SEGMENT else None
    return who.removeprefix("peer:") if isinstance(who, str) else None


def octets_of(directory: Path) -> Iterator[bytes]:
    """Iterate over the octets of all whole lines, in order."""
    for path in segments(directory):
        file = open_segment(path, directory)
        if file is None:
            continue
        with file:
            for octets in file:
                if octets.endswith(b"\n"):
                    yield octets


def lines(
    directory: Path, wanted: Callable[[bytes], bool] = lambda _: True
) -> Iterator[JournalLine]:
    """Iterate over all readable lines.

    Args:
        directory: the journal.
        wanted: called with the octets of a line; False skips the line without decoding it.
    """
    for octets in octets_of(directory):
        if wanted(octets):
            try:
                yield read_line(octets)
            except InvalidLine:
                continue


def lines_backwards(file: BinaryIO, most: int | None = None) -> Iterator[bytes]:
    """Iterate over the octets of the whole lines of a segment, from the last one on.

    Args:
        file: the segment.
        most: octets at its end that are read; None for all.
    """
    at = os.fstat(file.fileno()).st_size
    begin = 0 if most is None else max(0, at - most)
    later = b""  # the rest of the line that begins before `at`
    is_torn = True  # that rest has no line feed yet
    while at > begin:
        size = min(CHUNK_BYTES, at - begin)
        at -= size
        first, *lines = (os.pread(file.fileno(), size, at) + later).split(b"\n")
        if lines and is_torn:
            lines.pop()
            is_torn = False
            # What is left of the chunk ends with a line feed.
        yield from reversed(lines)
        later = first
    if not is_torn and not begin:
        yield later


def records(directory: Path) -> Iterator[JournalRecord]:
    """Iterate over all records."""
    for line in lines(directory):
        yield from line.records()


def newest_streams(directory: Path) -> dict[str, str]:
    """Return for each journal the stream of its newest record: the present store."""
    found: dict[str, str] = {}
    for path in reversed(segments(directory)):
        parts = parts_of(path)
        if parts is None or parts[0] in found:
            continue
        file = open_segment(path, directory)
        if file is None:
            continue
        with file:
            for octets in lines_backwards(file, _TAIL):
                with suppress(InvalidLine):
                    for record in read_line(octets).records():
                        found[parts[0]] = record.stream
                    break
    return found


# -- verify ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalFlaw:
    """A place where a journal differs from what was written.

    Attributes:
        segment: the file; None for the journal as a whole.
        line: the line, from 1; 0 for none.
        first: the first record concerned.
        last: the last record concerned.
        words: the problem.
    """

    segment: Path | None
    line: int
    first: int
    last: int
    words: str

    def __str__(self) -> str:
        where = "" if self.segment is None else f"{self.segment}:{self.line}: "
        those = (
            f"record {self.first}"
            if self.first == self.last
            else (f"records {self.first} to {self.last}")
        )
        return f"{where}{those}: {self.words}"


@dataclass(slots=True)
class JournalVerdict:
    """The result of `verify`.

    Attributes:
        journal: its name.
        segments: number of files read.
        records: number of records in them, up to the first flaw.
        first: sequence of the first record; 0 for none.
        last: sequence of the last record.
        hash: hash of the last line, for comparison with a copy kept elsewhere.
        partner: the partner of the export; None for a journal.
        flaw: the first flaw, or None.
        notes: facts that are not flaws: a torn end, segments removed for their age, records counted
            as lost.
    """

    journal: str
    segments: int = 0
    records: int = 0
    first: int = 0
    last: int = 0
    hash: str = GENESIS
    partner: str | None = None
    flaw: JournalFlaw | None = None
    notes: list[str] = field(default_factory=list)


def verify(directory: Path) -> list[JournalVerdict]:
    """Check every line of every journal in a directory, and its place in the chain.

    Returns:
        A verdict for each journal; there is more than one only if files of several are in one
        directory. In an export each file is checked by itself: records left out, missing files and
        a missing end of a file do not show.
    """
    head = read_head(directory)  # first: anything written meanwhile comes after it
    paths: dict[str, list[Path]] = {}
    for path in segments(directory):
        parts = parts_of(path)
        assert parts is not None
        paths.setdefault(parts[0], []).append(path)
    if head is not None and head.seq:
        paths.setdefault(head.journal, [])
    verdicts = []
    for journal, each in sorted(paths.items()):
        own = head if head is not None and head.journal == journal else None
        verifier = _Verifier(directory, journal, own)
        partner = partner_of(each[0]) if each and own is None else None
        found = verifier.run(each) if partner is None else verifier.run_export(each, partner)
        verdicts.append(found)
    return verdicts


class _Verifier:
    """Verifies one journal."""

    def __init__(self, directory: Path, journal: str, head: JournalHead | None) -> None:
        self._directory = directory
        self._head = head
        self._verdict = JournalVerdict(journal)
        self._previous: str | None = None
        self._next: int | None = None

    def run(self, paths: list[Path]) -> JournalVerdict:
        verdict = self._verdict
        for path in paths:
            file = open_segment(path, self._directory)
            if file is None:
                self._removed(path)
                continue
            verdict.segments += 1
            with file:
                flaw = self._segment(path, file, is_last=path is paths[-1])
            if flaw is not None:
                verdict.flaw = flaw
                return verdict
        verdict.flaw = self._end()
        return verdict

    def _removed(self, path: Path) -> None:
        """Start again after segments removed by the daemon meanwhile, according to the head."""
        now, before, parts = read_head(self._directory), self._head, parts_of(path)
        if now is None or before is None or parts is None or now.first_seq <= parts[1]:
            return
        self._head = replace(before, first_seq=now.first_seq, first_previous=now.first_previous)
        self._previous = self._next = None

    def run_export(self, paths: list[Path], partner: str) -> JournalVerdict:
        """Verify an export: the chain restarts with each file, and has gaps."""
        verdict = self._verdict
        verdict.partner = partner
        for path in paths:
            file = open_segment(path, self._directory)
            if file is None:
                continue
            verdict.segments += 1
            self._previous = GENESIS
            with file:
                verdict.flaw = self._exported(path, file)
            if verdict.flaw is not None:
                return verdict
        return verdict

    def _exported(self, path: Path, file: BinaryIO) -> JournalFlaw | None:
        verdict = self._verdict
        for number, octets in enumerate(file, 1):
            expected = verdict.last + 1
            try:
                line = read_line(octets, self._previous)
                if not octets.endswith(b"\n"):
                    raise InvalidLine("torn")
            except InvalidLine as error:
                return JournalFlaw(path, number, expected, expected, f"at or after it: {error}")
            last = line.seq + line.count - 1
            if line.seq < expected:
                words = f"out of order: the one before it is {expected - 1}"
                return JournalFlaw(path, number, line.seq, last, words)
            verdict.first = verdict.first or line.seq
            verdict.records += line.count
            verdict.last = last
            verdict.hash = self._previous = line.hash
        return None

    def _segment(self, path: Path, file: BinaryIO, is_last: bool) -> JournalFlaw | None:
        for number, octets in enumerate(file, 1):
            try:
                line = read_line(octets)
                if not octets.endswith(b"\n"):
                    raise InvalidLine("torn")
            except InvalidLine as error:
                if is_last and self._may_be_lost(path):
                    self._verdict.notes.append(
                        f"{path} ends with line {number - 1}: the rest was not on disk when the "
                        "daemon ended, or is being written now"
                    )
                    return None
                if is_last and not file.readline():
                    self._verdict.notes.append(f"{path} ends with a torn line, or grows just now")
                    return None
                at = self._next or 0
                return JournalFlaw(path, number, at, at, f"the line cannot be read: {error}")
            flaw = self._line(path, number, line, octets)
            if flaw is not None:
                return flaw
        return None

    def _may_be_lost(self, path: Path) -> bool:
        """Return whether everything that the head knows to be on disk precedes the next line."""
        head, parts = self._head, parts_of(path)
        if head is None or parts is None or path.parent.name != OPEN:
            return False
        return (self._next or parts[1]) > head.seq

    def _line(
        self, path: Path, number: int, line: JournalLine, octets: bytes
    ) -> JournalFlaw | None:
        verdict = self._verdict
        last = line.seq + line.count - 1
        if self._previous is None:
            flaw = self._first(path, number, line)
            if flaw is not None:
                return flaw
        previous, expected = self._previous, self._next
        assert previous is not None
        assert expected is not None
        own = link(previous, octets.rstrip(b"\n")[len('{"h":"') + 64 + len('",') :])
        if line.seq > expected and own == line.hash and _is_put_back(line, expected):
            verdict.notes.append(
                f"the head was missing or a copy after record {expected - 1}, as after a restore: "
                f"any later records are missing; the journal continues at record {line.seq}"
            )
            expected = line.seq
        if line.seq > expected:
            words = f"missing: removed or moved; the next one is {line.seq}"
            return JournalFlaw(path, number, expected, line.seq - 1, words)
        if line.seq < expected:
            words = f"out of order: the one before it is {expected - 1}"
            return JournalFlaw(path, number, line.seq, last, words)
        if own != line.hash:
            words = (
                "changed, or the one before it was rewritten: the hash does not follow from the "
                "text and the line before"
            )
            return JournalFlaw(path, number, line.seq, last, words)
        head = self._head
        if head is not None and last == head.seq and line.hash != head.hash:
            return JournalFlaw(path, number, line.seq, last, "it differs from the journal's head")
        if line.kind == RecordKind.GAP:
            verdict.notes.append(
                f"{line.body['all'].get('count')} records before record {line.seq} could not be "
                "written"
            )
        verdict.first = verdict.first or line.seq
        verdict.records += line.count
        verdict.last = last
        verdict.hash = self._previous = line.hash
        self._next = last + 1
        return None

    def _first(self, path: Path, number: int, line: JournalLine) -> JournalFlaw | None:
        """Check that the journal begins where it should."""
        said = line.body["all"].get("previous")
        previous = said if line.kind == RecordKind.SEGMENT and isinstance(said, str) else GENESIS
        self._previous, self._next = previous, line.seq
        head = self._head
        first = 1 if head is None else head.first_seq
        if line.seq == first:
            wanted = GENESIS if head is None or first == 1 else head.first_previous
            if previous != wanted:
                words = "changed: it does not follow from the record before it"
                return JournalFlaw(path, number, line.seq, line.seq + line.count - 1, words)
            if first > 1:
                words = f"records before {first} were removed: for their age, or the journal's size"
                self._verdict.notes.append(words)
            return None
        if head is None:
            self._verdict.notes.append(
                f"there is no head: records before {line.seq} may be missing"
            )
            return None
        if line.seq < first:
            # Removed from the retained part, but still there: harmless.
            return None
        return JournalFlaw(path, number, first, line.seq - 1, "missing: removed from the beginning")

    def _end(self) -> JournalFlaw | None:
        verdict, head = self._verdict, self._head
        if head is None:
            is_there = (self._directory / HEAD).exists()
            what = "the head cannot be read" if is_there else "there is no head"
            verdict.notes.append(f"{what}: the last records may be missing")
        elif head.seq > verdict.last and head.first_seq <= head.seq:
            words = "missing: removed from the end; the journal's head has them"
            return JournalFlaw(None, 0, verdict.last + 1, head.seq, words)
        return None


def _is_put_back(line: JournalLine, expected: int) -> bool:
    """Return whether a line says that all sequences since the expected one were skipped."""
    said = line.body["all"]
    return (
        line.kind == RecordKind.SEGMENT
        and said.get("code") == PUT_BACK
        and said.get("count") == line.seq - expected
    )


# -- find ------------------------------------------------------------------------------------------


def find(
    directory: Path,
    *,
    message_id: str | None = None,
    entry: int | None = None,
    digest: str | None = None,
) -> list[JournalRecord]:
    """Return all records about a message, its copies and its parents, in order.

    The journal is read twice: first for the names of the message, then for its records. Records
    about a destination that it waited for are included.

    Args:
        directory: the journal.
        message_id: the id as text; a ``binary`` in hexadecimal.
        entry: its id on any node.
        digest: digest of the bare message.
    """
    name = None if message_id is None else named(message_id)
    seen = _entries_of(directory, name, entry, digest)
    if not seen:
        return []
    return _story(directory, seen)


def _entries_of(
    directory: Path, message_id: str | None, entry: int | None, digest: str | None
) -> set[tuple[str, int]]:
    """Return the streams and ids of the entries that match."""
    if entry is not None:
        needle = str(entry).encode()
    elif message_id is not None:
        needle = json.dumps(message_id)[1:-1].encode()
    else:
        needle = (digest or "").encode()
    found: set[tuple[str, int]] = set()
    parents: set[tuple[str, int]] = set()
    for line in lines(directory, lambda octets: needle in octets):
        if line.kind == RecordKind.STOCK:
            continue
        for record in line.records():
            if record.entry is None or not (
                record.entry == entry
                or (message_id is not None and record.message_id == message_id)
                or (digest is not None and record.digest == digest)
            ):
                continue
            if len(found) < MOST_ENTRIES:
                found.add((record.stream, record.entry))
                if record.parent is not None:
                    parents.add((record.stream, record.parent))
    return found | parents


def _story(directory: Path, seen: set[tuple[str, int]]) -> list[JournalRecord]:
    story: list[JournalRecord] = []
    waits: dict[str, int] = {}
    mentions = _mentions(seen)

    def wanted(octets: bytes) -> bool:
        return bool(mentions(octets)) or b'"deferred"' in octets

    for line in lines(directory, wanted):
        if line.kind == RecordKind.STOCK:
            continue
        for record in line.records():
            node = record.node or ""
            if record.entry is None:
                if record.kind == RecordKind.DEFERRED and waits.get(node):
                    story.append(record)
                continue
            key = (record.stream, record.entry)
            child = record.parent is not None and (record.stream, record.parent) in seen
            if key not in seen and not (child and len(seen) < MOST_ENTRIES):
                continue
            if key not in seen:
                seen.add(key)
                mentions = _mentions(seen)
            story.append(record)
            if record.kind in COMES:
                waits[node] = waits.get(node, 0) + 1
            elif record.kind in GOES:
                waits[node] = waits.get(node, 1) - 1
    return story


def _mentions(seen: Collection[tuple[str, int]]) -> Callable[[bytes], object]:
    """Return a predicate: whether the text of a line may be about one of these entries."""
    if len(seen) > FEW:
        return lambda octets: b'"entry":' in octets
    numbers = b"|".join(sorted({b"%d" % entry for _, entry in seen}))
    return re.compile(rb"(?<!\d)(?:%s)(?!\d)" % numbers).search


COMES: Final = {
    RecordKind.RECEIVED,
    RecordKind.ROUTED,
    RecordKind.SPOOLED,
    RecordKind.REPORTED,
    RecordKind.RECOVERY,
}
GOES: Final = {
    RecordKind.RELAYED,
    RecordKind.DELIVERED,
    RecordKind.REJECTED,
    RecordKind.EXPIRED,
    RecordKind.DEAD_LETTERED,
    RecordKind.RETURNED,
    RecordKind.DELETED,
}


def as_json(record: JournalRecord) -> dict[str, object]:
    """Return a record for programs: all fields that are known."""
    facts: dict[str, object] = {"event_id": record.event_id}
    for name in record.__dataclass_fields__:
        value = getattr(record, name)
        if value is not None:
            facts[name] = value
    return facts
