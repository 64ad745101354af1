# SPDX-License-Identifier: Apache-2.0
"""Reads a segment once, at start: its end, damage, and the entries that began in it.

A start reads whole segments of up to 64 MiB before anybody is served, and most lines of a busy
broker have one record. Decoding a line as JSON takes five times as long as hashing it, and the hash
proves more: a line whose hash follows from its text and the line before was written by this
journal. So every line is hashed, and its few fields of interest are taken from the octets by
position. Only a line in another spelling, or with a wrong hash, is decoded.
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
"""A line up to its field ``all``, in the form of `amqproute.journal.record.assemble`."""
# Within a string the quotation mark before the colon is escaped by a backslash.
_ENTRIES: Final = re.compile(rb'"entry":(?:\[([0-9,]+)\]|(\d+))')
_BEGINS: Final = frozenset(str(kind).encode() for kind in BEGINS)


@dataclass(frozen=True, slots=True)
class ScanPosition:
    """A position between two lines.

    Attributes:
        octets: offset in the segment.
        seq: sequence of the next record; 0 if the segment has no line before.
        hash: hash of the line before.
        carried: the highest event number on a line before.
    """

    octets: int = 0
    seq: int = 0
    hash: str = GENESIS
    carried: int = 0


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last lines of a segment, if they belong to an event of the store.

    Attributes:
        number: number of the event.
        lines: how many of its lines exist.
        start: the position of the first one.
    """

    number: int
    lines: int
    start: ScanPosition


@dataclass(slots=True)
class SegmentScan:
    """The content of a segment.

    Attributes:
        end: position after the last readable line.
        time_us: time of the first line; 0 without one.
        damage: offset of the first line that does not follow from the one before; None if all do.
        is_followed: whether whole lines follow after something unreadable at `end`.
        last: the event of the last line; None if it has none.
        lines: number of lines read.
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
        """Return the entries of a store that began, from the lines before any damage.

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
        """Record that the segment was cut off at a position: nothing after it counts."""
        self.end = position
        self.last = None
        self.is_followed = False


def whole_line(octets: bytes) -> JournalLine | None:
    """Parse a line; return None if it is torn or invalid."""
    try:
        return read_line(octets) if octets.endswith(b"\n") else None
    except InvalidLine:
        return None


def scan(path: Path) -> SegmentScan:
    """Read a segment up to the first unreadable line.

    Raises:
        OSError: reading failed.
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
                    fields = None  # another spelling
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
