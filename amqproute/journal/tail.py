# SPDX-License-Identifier: Apache-2.0
"""The last records of a journal, and new ones as they are written.

What is read is in proportion to the records asked for, not to the segment that has them: the last
ones are read from its end, and a follower finds its first line by bisection. It continues reading
where it stopped. While one segment is being written, that costs a check of the folder ``open`` and
the new octets; the segments of the days are listed when one has been closed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from amqproute.journal.reader import CHUNK_BYTES, lines_backwards, open_segment, segments
from amqproute.journal.record import InvalidLine, JournalLine, JournalRecord, read_line
from amqproute.journal.segments import OPEN, days, opened, parts_of

__all__ = ["between", "follow", "last"]

POLL_SECONDS: Final = 0.2


def last(
    directory: Path, count: int, wanted: Callable[[JournalRecord], bool] = lambda _: True
) -> tuple[list[JournalRecord], tuple[str, int]]:
    """Return the wanted ones of the last records, and the end of the journal.

    Args:
        directory: the journal.
        count: the number of records examined; 0 for the position only.
        wanted: selects the records to return; others take no memory.

    Returns:
        The records, and the position: the journal's name, and the sequence after its last record.
    """
    kept: list[JournalRecord] = []
    end = ("", 1)
    for path in reversed(segments(directory)):
        file = open_segment(path, directory)
        if file is None:
            continue
        with file:
            for octets in lines_backwards(file):
                try:
                    line = read_line(octets)
                except InvalidLine:
                    continue
                if end == ("", 1):
                    end = (line.body["journal"], line.seq + line.count)
                examined = list(line.records())[-count:] if count > 0 else []
                kept += filter(wanted, reversed(examined))
                count -= len(examined)
                if count <= 0:
                    return kept[::-1], end
    return kept[::-1], end


def follow(
    directory: Path, after: tuple[str, int], sleep: Callable[[float], object] = time.sleep
) -> Iterator[JournalRecord | None]:
    """Iterate over records as they are written; yield None whenever there is none for now.

    Args:
        directory: the journal.
        after: a position returned by `last`.
        sleep: called between two checks.
    """
    journal, seq = after
    done: tuple[str, int] | None = None
    before: object = None
    calm = 0
    while True:
        now = _folders(directory)
        # A folder's time has a resolution of milliseconds: check once more for later changes.
        calm = calm + 1 if now == before else 0
        before = now
        found = False
        for path in _from(directory, journal, seq) if calm < 2 else ():
            file = open_segment(path, directory) if parts_of(path) != done else None
            if file is None:
                continue
            done = parts_of(path)
            with file:
                growing = _Growing(file, seq)
                is_growing = True
                while is_growing:
                    # First: everything written before the close is then visible.
                    is_growing = _is_growing(directory, path)
                    for record in growing.records(seq):
                        journal, seq, found = record.journal, record.seq + 1, True
                        yield record
                    if is_growing:
                        yield None
                        sleep(POLL_SECONDS)
        if not found:
            yield None
            sleep(POLL_SECONDS)


def between(directory: Path, begin: tuple[str, int], end: int) -> Iterator[JournalRecord]:
    """Iterate over the records from one sequence to another, as far as they are on disk now.

    Args:
        directory: the journal.
        begin: the journal's name, and the first sequence.
        end: the sequence after the last one.
    """
    journal, seq = begin
    for path in _from(directory, journal, seq):
        file = open_segment(path, directory)
        if file is None:
            continue
        with file:
            for record in _Growing(file, seq).records(seq):
                if record.seq >= end:
                    return
                seq = record.seq + 1
                yield record


def _from(directory: Path, journal: str, seq: int) -> list[Path]:
    """Return the segments that may have records from a sequence on."""
    paths = [
        path for path in segments(directory) if journal in ("", (parts_of(path) or ("", 0))[0])
    ]
    starts = [(parts_of(path) or ("", 0))[1] for path in paths]
    before = [place for place, start in enumerate(starts) if start <= seq]
    return paths[before[-1] if before else 0 :]


def _folders(directory: Path) -> object:
    """Return a value that changes whenever a segment is begun or closed."""
    folders = []
    for day in days(directory):
        with suppress(FileNotFoundError):  # just removed for its age
            folders.append((day.name, day.stat().st_mtime_ns))
    return opened(directory), folders


def _is_growing(directory: Path, path: Path) -> bool:
    """Return whether a segment is the one being written."""
    return path.parent.name == OPEN and opened(directory)[-1:] == [path]


def _start(file: BinaryIO, seq: int) -> int:
    """Return the position of a line before which no record has a sequence from the given one on.

    Lines are in the order of their sequences. Where some cannot be read, the search ends.
    """
    low, high = 0, os.fstat(file.fileno()).st_size
    while high - low > CHUNK_BYTES:
        middle = (low + high) // 2
        chunk = os.pread(file.fileno(), CHUNK_BYTES, middle)
        begin = chunk.find(b"\n") + 1
        end = chunk.find(b"\n", begin)
        if not 0 < begin < end:
            break
        try:
            is_before = read_line(chunk[begin:end]).seq <= seq
        except InvalidLine:
            break
        if is_before:
            low = middle + begin
        else:
            high = middle
    return low


class _Growing:
    """A segment that is read as it grows.

    Args:
        file: the open file, wherever it is moved.
        seq: the first sequence that will be asked for.
    """

    def __init__(self, file: BinaryIO, seq: int) -> None:
        self._file = file.fileno()
        self._at = _start(file, seq)

    def records(self, seq: int) -> Iterator[JournalRecord]:
        """Iterate over records added since the last call, from a sequence on."""
        for line in self._lines():
            if line.seq + line.count > seq:
                for record in line.records():
                    if record.seq >= seq:
                        yield record

    def _lines(self) -> Iterator[JournalLine]:
        if self._at > os.fstat(self._file).st_size:
            # The disk refused the end of it, and the part already written was cut off.
            self._at = 0
        resumed_at = self._at
        rest = b""
        while chunk := os.pread(self._file, CHUNK_BYTES, self._at + len(rest)):
            *whole, rest = (rest + chunk).split(b"\n")
            for octets in whole:
                try:
                    line = read_line(octets)
                except InvalidLine:
                    if 0 < resumed_at == self._at:
                        # It was cut off and overwritten since the last check.
                        self._at = 0
                        yield from self._lines()
                        return
                    self._at += len(octets) + 1
                    continue
                self._at += len(octets) + 1
                yield line
