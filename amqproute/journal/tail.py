# SPDX-License-Identifier: Apache-2.0
"""The last records of a journal, and those that come.

What is followed is read on from where it was read to. As long as one segment is being written, that
costs a look at the folder ``open`` and what has come; the segments of the days are listed when one
has been closed.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from amqproute.journal.reader import open_segment, segments
from amqproute.journal.record import InvalidLine, JournalLine, JournalRecord, read_line
from amqproute.journal.segments import OPEN, days, opened, parts_of

__all__ = ["follow", "last"]

POLL_SECONDS: Final = 0.2
CHUNK_BYTES: Final = 256 * 1024


def last(
    directory: Path, count: int, wanted: Callable[[JournalRecord], bool] = lambda _: True
) -> tuple[list[JournalRecord], tuple[str, int]]:
    """Return what is wanted of the last records, and where the journal ends.

    Args:
        directory: of the journal.
        count: so many records are looked at.
        wanted: which of them are returned; the others take no memory.

    Returns:
        The records, and the place: the journal's name, and the sequence after its last record.
    """
    kept: list[JournalRecord] = []
    end = ("", 1)
    for path in reversed(segments(directory)):
        file = open_segment(path, directory)
        if file is None:
            continue
        own: deque[JournalRecord] = deque(maxlen=max(1, count))
        latest: JournalRecord | None = None
        there = 0
        with file:
            for record in _Growing(file).records(0):
                latest = record
                there += 1
                if wanted(record):
                    own.append(record)
        if latest is None:
            continue
        if end == ("", 1):
            end = (latest.journal, latest.seq + 1)
        kept = [record for record in own if record.seq > latest.seq - count] + kept
        count -= there
        if count <= 0:
            break
    return kept, end


def follow(
    directory: Path, after: tuple[str, int], sleep: Callable[[float], object] = time.sleep
) -> Iterator[JournalRecord | None]:
    """Iterate over records as they are written; None whenever there is nothing new for now.

    Args:
        directory: of the journal.
        after: a place that `last` has returned.
        sleep: between two looks.
    """
    journal, seq = after
    done: tuple[str, int] | None = None
    before: object = None
    calm = 0
    while True:
        now = _folders(directory)
        # A folder's time is no finer than a few milliseconds: once more, for what came within.
        calm = calm + 1 if now == before else 0
        before = now
        found = False
        for path in _from(directory, journal, seq) if calm < 2 else ():
            file = open_segment(path, directory) if parts_of(path) != done else None
            if file is None:
                continue
            done = parts_of(path)
            with file:
                growing = _Growing(file)
                is_growing = True
                while is_growing:
                    # First: what comes before it is closed is there then.
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


def _from(directory: Path, journal: str, seq: int) -> list[Path]:
    """Return the segments in which there may be records from a sequence on."""
    paths = [
        path for path in segments(directory) if journal in ("", (parts_of(path) or ("", 0))[0])
    ]
    starts = [(parts_of(path) or ("", 0))[1] for path in paths]
    before = [place for place, start in enumerate(starts) if start <= seq]
    return paths[before[-1] if before else 0 :]


def _folders(directory: Path) -> object:
    """Return what is another thing whenever a segment has been begun or closed."""
    folders = []
    for day in days(directory):
        with suppress(FileNotFoundError):  # removed for its age just now
            folders.append((day.name, day.stat().st_mtime_ns))
    return opened(directory), folders


def _is_growing(directory: Path, path: Path) -> bool:
    """Whether a segment is the one that is being written."""
    return path.parent.name == OPEN and opened(directory)[-1:] == [path]


class _Growing:
    """A segment that is read as it grows.

    Args:
        file: it; wherever it is moved to.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file.fileno()
        self._at = 0

    def records(self, seq: int) -> Iterator[JournalRecord]:
        """Iterate over what has come since the last time, from a sequence on."""
        for line in self._lines():
            if line.seq + line.count > seq:
                for record in line.records():
                    if record.seq >= seq:
                        yield record

    def _lines(self) -> Iterator[JournalLine]:
        if self._at > os.fstat(self._file).st_size:
            # The disk did not take the end of it, and what had been written of that was cut off.
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
                        # It was cut off, and something else written there, while nobody looked.
                        self._at = 0
                        yield from self._lines()
                        return
                    self._at += len(octets) + 1
                    continue
                self._at += len(octets) + 1
                yield line
