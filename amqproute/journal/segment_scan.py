# SPDX-License-Identifier: Apache-2.0
"""Read a segment once, as a start needs it: where it ends, whether it is damaged, what began in it.

A start reads whole segments of up to 64 MiB while nobody is served yet, and most lines of a busy
broker are of one record. To decode a line as JSON takes five times as long as to hash it, and the
hash proves more: a line whose hash follows from its text and the line before is what this journal
has written. So every line is hashed, and its few fields of interest are taken from the octets by
their place. Only a line that is spelled in another way, or whose hash does not follow, is decoded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from amqproute.journal.record import (
    BEGINS,
    GENESIS,
    VERSION,
    InvalidLine,
    JournalLine,
    RecordKind,
    link,
    read_line,
)

__all__ = ["LastEvent", "ScanPosition", "SegmentScan", "scan", "whole_line"]

_BEGINNING: Final = b'{"h":"'
_BEHIND: Final = b'",'
_HASH: Final = slice(len(_BEGINNING), len(_BEGINNING) + 64)
_TEXT: Final = _HASH.stop + len(_BEHIND)
_STRING: Final = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_FIELDS: Final = re.compile(
    rb'"v":%d,"kind":"([a-z-]+)","journal":%b,"broker":%b,"domain":%b,"stream":"([^"\\]*)",'
    rb'"seq":(\d{1,18}),"n":(\d{1,2}),"time":(\d{1,18})(?:,"o":(\d{1,18}))?,"all":\{'
    % (VERSION, _STRING, _STRING, _STRING)
)
"""A line up to its field ``all``, as `amqproute.journal.record.assemble` writes it."""
# Within a string the quotation mark before the colon has a backslash before it.
_ENTRIES: Final = re.compile(rb'"entry":(?:\[([0-9,]+)\]|(\d+))')
_BEGINS: Final = frozenset(str(kind).encode() for kind in BEGINS)


@dataclass(frozen=True, slots=True)
class ScanPosition:
    """Where a journal stands between two lines.

    Attributes:
        octets: before it in the segment.
        seq: of the next record; 0 if the segment has no line before.
        hash: of the line before.
        carried: the highest number, among what the store has told, on a line before.
    """

    octets: int = 0
    seq: int = 0
    hash: str = GENESIS
    carried: int = 0


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last lines of a segment, if they are of one event of the store.

    Attributes:
        number: of the event.
        lines: how many of its lines are there.
        start: where they begin.
    """

    number: int
    lines: int
    start: ScanPosition


@dataclass(slots=True)
class SegmentScan:
    """What a segment says.

    Attributes:
        end: behind the last line that can be read.
        time_us: when the first line was written; 0 without one.
        damage: at which octet begins the first line that does not follow from the one before; None
            if all of them follow.
        is_followed: behind `end` there is something that cannot be read, and whole lines behind it.
        last: the event that the last line is of; None if it is of none.
        lines: that were read.
        decoded: how many of them had to be decoded as JSON.
    """

    end: ScanPosition = field(default_factory=ScanPosition)
    time_us: int = 0
    damage: int | None = None
    is_followed: bool = False
    last: LastEvent | None = None
    lines: int = 0
    decoded: int = 0
    _begun: list[tuple[int, bytes, bytes]] = field(default_factory=list)

    def begun(self, stream: str) -> set[int]:
        """Return which entries of a store began, by the lines before any damage.

        Args:
            stream: names the store.
        """
        name = stream.encode()
        limit = self.end.octets if self.damage is None else self.damage
        ids: set[int] = set()
        for at, its_stream, entries in self._begun:
            if its_stream == name and at < limit:
                ids.update(map(int, entries.split(b",")))
        return ids

    def cut(self, position: ScanPosition) -> None:
        """The segment was cut off at a position: nothing counts that stood behind it."""
        self.end = position
        self.last = None
        self.is_followed = False


def whole_line(octets: bytes) -> JournalLine | None:
    """Return a line; None for one that is torn or none."""
    try:
        return read_line(octets) if octets.endswith(b"\n") else None
    except InvalidLine:
        return None


def scan(path: Path) -> SegmentScan:
    """Read a segment up to the first line that cannot be read.

    Raises:
        OSError: as it comes.
    """
    found = SegmentScan()
    begun = found._begun
    previous = ""
    octets_before = seq = carried = number = lines_of_event = 0
    start = ScanPosition()
    with path.open("rb") as file:
        for octets in file:
            own = octets[_HASH].decode("ascii", "replace")
            fields = _FIELDS.match(octets, _TEXT)
            is_framed = (
                octets.startswith(_BEGINNING)
                and octets.startswith(_BEHIND, _HASH.stop)
                and octets.endswith(b"\n")
            )
            follows = is_framed and link(previous, octets[_TEXT:-1]) == own
            entries = None
            if follows and fields is not None and fields[1] in _BEGINS:
                entries = _ENTRIES.search(octets, fields.end())
                if entries is None and b'"entry":' in octets:
                    fields = None  # spelled in another way
            if follows and fields is not None:
                kind, stream, seq_text, count, time_text, number_text = fields.groups()
                line_seq, line_count, time_us = int(seq_text), int(count), int(time_text)
                line_number = int(number_text or 0)
                ids = b"" if entries is None else entries[1] or entries[2]
            else:
                found.decoded += 1
                line = whole_line(octets)
                if line is None:
                    found.is_followed = any(map(whole_line, file))
                    break
                if not previous and line.kind == RecordKind.SEGMENT:
                    before = str(line.body["all"].get("previous", GENESIS))
                    follows = link(before, octets[_TEXT:-1]) == own
                if not follows:
                    found.damage = octets_before if found.damage is None else found.damage
                kind, stream = line.kind.encode(), line.body["stream"].encode()
                line_seq, line_count, time_us = line.seq, line.count, line.time
                given = line.body.get("o")
                line_number = given if isinstance(given, int) else 0
                ids = _ids_of(line) if kind in _BEGINS else b""
            if not found.lines:
                found.time_us = time_us
            if ids:
                begun.append((octets_before, stream, ids))
            if not line_number or kind == b"segment" or line_number != number:
                number = 0 if kind == b"segment" else line_number
                lines_of_event = 0
                if number:
                    start = ScanPosition(octets_before, seq, previous, carried)
            lines_of_event += 1
            carried = max(carried, line_number)
            seq = line_seq + line_count
            previous = own
            octets_before += len(octets)
            found.lines += 1
    if found.lines:
        found.end = ScanPosition(octets_before, seq, previous, carried)
    if number:
        found.last = LastEvent(number, lines_of_event, start)
    return found


def _ids_of(line: JournalLine) -> bytes:
    entries = line.body["each"].get("entry") or [line.body["all"].get("entry")]
    return b",".join(b"%d" % each for each in entries if isinstance(each, int))
