# SPDX-License-Identifier: Apache-2.0
"""The journal's files: where they are, and how they are written, closed, moved and removed.

::

    journal/open/<journal>-<first seq>.jsonl                       being written
    journal/2026-03-01/<broker>-<journal>-<first seq>.jsonl        closed, by the day of its start
    journal/head                                                   where the journal ends
    journal/lost                                                   see `loss_counter`

A segment is closed when it is large or old enough, and then moved as a whole: a reader of the
folders of the days never sees half of one. ``head`` gives the end of the journal, and its beginning
once old segments have been removed: without it, a journal that has lost its last records would look
complete.

A journal restored from a backup would give new records the names of records written since the
backup, and anybody who has collected those would take the new ones for copies. The head contains
the time of its own writing, by the clock of the file system, and the file's metadata has it too:
they differ for a file that was copied, or came out of an archive. The journal then continues at a
sequence that has never been used (`amqproute.journal.recovery.beyond`), and its next segment
records that.

All functions are called on the journal's own thread and raise `OSError`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from amqproute.durable_path import sync_path
from amqproute.journal.event import MessageRun
from amqproute.journal.record import (
    GENESIS,
    PUT_BACK,
    InvalidLine,
    RecordKind,
    assemble,
    chained,
    encode,
    read_line,
)
from amqproute.jsontext import parse_json
from amqproute.restore_detection import is_copy, stamp

OPEN: Final = "open"
HEAD: Final = "head"
SUFFIX: Final = ".jsonl"
USUAL_PART: Final = 5
"""The default bound on the journal is a fifth of the file system."""
LONGEST_GAP_DAYS: Final = 7
"""Days from one segment to the next beyond these do not count for the age of older segments."""
DAY_US: Final = 86_400_000_000
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_NAME: Final = re.compile(r"(?:(?P<broker>.+)-)?(?P<journal>[0-9a-f]{16})-(?P<seq>\d{20})\.jsonl")


@dataclass(frozen=True, slots=True)
class SegmentNames:
    """Fields of every line that name its source.

    Attributes:
        journal: the journal's own name, 16 hexadecimal digits.
        broker: container-id.
        domain: the organization.
        stream: names the store.
    """

    journal: str
    broker: str
    domain: str
    stream: str


@dataclass(slots=True)
class JournalPosition:
    """A position between two lines of a journal.

    Attributes:
        seq: sequence of the next record.
        hash: hash of the last line.
        carried: the highest event number written.
        skipped: number of sequences skipped before the next record.
    """

    seq: int = 1
    hash: str = GENESIS
    carried: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True)
class JournalHead:
    """The content of the file ``head``.

    Attributes:
        journal: name of the journal.
        seq: sequence of the last record; 0 for none.
        hash: hash of the last line.
        first_seq: sequence of the first record that has not been removed for age or size.
        first_previous: the hash of the line before that one.
        carried: see `JournalPosition`.
        is_copy: whether the file is a copy rather than the one written here.
    """

    journal: str
    seq: int
    hash: str
    first_seq: int = 1
    first_previous: str = GENESIS
    carried: int = 0
    is_copy: bool = False


_FIELDS: Final = ("journal", "seq", "hash", "first_seq", "first_previous", "carried")
_WRITTEN: Final = "written_us"


def read_head(directory: Path) -> JournalHead | None:
    """Return the head, or None if none can be read."""
    try:
        with (directory / HEAD).open("rb") as file:
            written = parse_json(file.read())
            # Heads of early releases lack it.
            is_other = _WRITTEN in written and is_copy(file.fileno(), written[_WRITTEN] * 1000)
        return JournalHead(**{name: written[name] for name in _FIELDS}, is_copy=is_other)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_head(directory: Path, head: JournalHead, is_lasting: bool = False) -> None:
    """Replace the head atomically, and sync it if `is_lasting`.

    Otherwise a power failure may leave the previous head, but never an empty one.
    """
    written = {name: getattr(head, name) for name in _FIELDS}
    fresh = directory / f"{HEAD}.new"
    with open(fresh, "wb", opener=_private) as file:
        written[_WRITTEN] = stamp(file.fileno()) // 1000
        file.write(json.dumps(written).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(directory / HEAD)
    if is_lasting:
        sync_path(directory)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def parts_of(path: Path) -> tuple[str, int] | None:
    """Return journal and first sequence from the name of a segment; None for another file."""
    found = _NAME.fullmatch(path.name)
    return None if found is None else (found["journal"], int(found["seq"]))


def days(directory: Path) -> list[Path]:
    """Return the folders of the days, the oldest first."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(each for each in directory.iterdir() if _DAY.fullmatch(each.name))
    return []


def closed(directory: Path, journal: str | None = None) -> Iterator[Path]:
    """Iterate over the closed segments in order.

    Args:
        directory: the journal.
        journal: the name of one journal; None for all.
    """
    found = []
    for day in days(directory):
        with suppress(FileNotFoundError, NotADirectoryError):  # just removed for its age
            for path in day.iterdir():
                parts = parts_of(path)
                if parts is not None and journal in (None, parts[0]):
                    found.append((parts, path))
    # By number and not by day: the wall clock may have been set back.
    found.sort()
    for _, path in found:
        yield path


def opened(directory: Path) -> list[Path]:
    """Return the segments being written; more than one only after a crash."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(each for each in (directory / OPEN).iterdir() if parts_of(each) is not None)
    return []


def safe(name: str) -> str:
    """Return a container-id in a form usable in a file's name."""
    return re.sub(r"[^A-Za-z0-9._]", "_", name)[:100].lstrip(".") or "_"


def day_of(time_us: int) -> str:
    """Return the name of the folder for a segment that begins at this time."""
    return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d")


def ages(paths: Sequence[Path], now_us: int) -> list[int]:
    """Return how many days ago each segment began, in the given order.

    A step of the wall clock from one segment to the next counts at most `LONGEST_GAP_DAYS`, and
    never less than zero: the clock may have been wrong for a while, which must not cost a segment.
    A running daemon writes more often.
    """
    later = datetime.fromtimestamp(now_us / 1e6, UTC).date()
    age = 0
    found = []
    for path in reversed(paths):
        try:
            day = date.fromisoformat(path.parent.name)
        except ValueError:
            day = later  # not a date, such as 0000-99-99
        age += min(max((later - day).days, 0), LONGEST_GAP_DAYS)
        later = day
        found.append(age)
    return found[::-1]


def closed_name(path: Path, broker: str) -> str:
    """Return the name that a segment in ``open`` gets when it is closed."""
    return f"{safe(broker)}-{path.name}"


class JournalSegments:
    """Writes lines.

    Args:
        directory: the journal; it must exist.
        names: the fields that name the source.
        place: where to continue.
        head: the known facts about its beginning.
        now_us: the wall clock.
        write: a function like `os.write`; tests simulate a full disk by it.

    Attributes:
        place: the present position.
        size: octets of the segment being written.
        written_bytes: octets written by this object.
        closed_bytes: octets of closed segments as far as known: those closed since the start, and
            all of them after the first `retain`.
    """

    def __init__(
        self,
        directory: Path,
        names: SegmentNames,
        place: JournalPosition,
        head: JournalHead,
        now_us: Callable[[], int],
        write: Callable[[int, memoryview], int] = os.write,
    ) -> None:
        self._put = write
        self.place = place
        self.size = 0
        self.written_bytes = 0
        self.closed_bytes = 0
        self._directory = directory
        self._names = names
        self._head = head
        self._now_us = now_us
        self._file = -1
        self._path: Path | None = None
        self._day = ""
        self._unsynced = False
        self._is_folder_synced = False

    def rename(self, names: SegmentNames) -> None:
        """Change the fields that name the source; between two segments."""
        self._names = names

    @property
    def is_open(self) -> bool:
        """Whether a segment is being written."""
        return self._file >= 0

    @property
    def needs_sync(self) -> bool:
        """Whether anything was written since the last `sync`."""
        return self._unsynced

    def append(self, lines: Sequence[tuple[int, int | None, MessageRun]]) -> int:
        """Write runs, all of them or none.

        Args:
            lines: event number, 0 for none; duration of the commit, if known; and the run.

        Returns:
            The number of records.
        """
        if self._file < 0:
            self._begin()
        names, place = self._names, self.place
        octets = []
        seq, last, carried = place.seq, place.hash, place.carried
        for number, settle_us, run in lines:
            tail = assemble(
                run.kind,
                names.journal,
                names.broker,
                names.domain,
                names.stream,
                seq,
                run.count,
                run.time_us,
                run.shared if settle_us is None else _with(run.shared, settle_us),
                run.columns,
                number or None,
            )
            seq += run.count
            carried = max(carried, number)
            last, line = chained(last, tail)
            octets.append(line)
        self._write(b"".join(octets))
        count = seq - place.seq
        place.seq, place.hash, place.carried = seq, last, carried
        return count

    def _begin(self) -> None:
        """Begin a segment: a file, and its first line."""
        names, place = self._names, self.place
        now_us = self._now_us()
        folder = self._directory / OPEN
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{names.journal}-{place.seq:020}{SUFFIX}"
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._file, self._path, self.size = file, path, 0
        self._day = day_of(now_us)
        written: dict[str, Any] = {"previous": place.hash}
        if place.skipped:
            written |= {"count": place.skipped, "code": PUT_BACK}
        tail = assemble(
            RecordKind.SEGMENT,
            names.journal,
            names.broker,
            names.domain,
            names.stream,
            place.seq,
            1,
            now_us,
            encode(written),
            "{}",
            place.carried or None,
        )
        last, line = chained(place.hash, tail)
        try:
            self._write(line)
            sync_path(folder)
            if not self._is_folder_synced:  # it may be new
                sync_path(self._directory)
                self._is_folder_synced = True
        except OSError:
            os.close(file)
            self._file = -1
            with suppress(OSError):
                path.unlink()
            raise
        place.seq, place.hash, place.skipped = place.seq + 1, last, 0

    def _write(self, octets: bytes) -> None:
        """Write all octets; restore the former end if that fails."""
        view = memoryview(octets)
        at = 0
        try:
            while at < len(octets):
                at += self._put(self._file, view[at:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
                os.lseek(self._file, self.size, os.SEEK_SET)
            raise
        self.size += len(octets)
        self.written_bytes += len(octets)
        self._unsynced = True

    def sync(self) -> None:
        """Sync what has been written."""
        if self._unsynced:
            os.fdatasync(self._file)
            self._note_head()
            self._unsynced = False

    def _note_head(self, is_lasting: bool = False) -> None:
        place, old = self.place, self._head
        self._head = JournalHead(
            self._names.journal,
            place.seq - 1,
            place.hash,
            old.first_seq,
            old.first_previous,
            place.carried,
        )
        write_head(self._directory, self._head, is_lasting)

    def close(self) -> Path | None:
        """Close the segment and move it to its day; return its new path."""
        if self._file < 0:
            return None
        os.fsync(self._file)
        self.closed_bytes += self.size
        self._note_head(is_lasting=True)
        self._unsynced = False
        assert self._path is not None
        day = self._directory / self._day
        moved = move(self._path, day, self._names.broker)
        os.close(self._file)
        self._file = -1
        self._path = None
        return moved

    def drop(self) -> None:
        """Close the file without further work, because the daemon gives up."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def retain(self, keep_us: int, most_bytes: int) -> list[Path]:
        """Remove closed segments that are too old or exceed the bound.

        Args:
            keep_us: how long a segment is kept after the day on which it began; 0 for ever. See
                `ages`.
            most_bytes: bound on the octets of closed segments; 0 for a part of the file system.

        Returns:
            The removed segments.
        """
        now_us = self._now_us()
        limit = day_of(now_us - keep_us) if keep_us else ""
        all_ = [
            (path, path.stat().st_size) for path in closed(self._directory, self._names.journal)
        ]
        room = os.statvfs(self._directory)
        most_bytes = most_bytes or room.f_blocks * room.f_frsize // USUAL_PART
        excess = sum(size for _, size in all_) - most_bytes
        removed: list[Path] = []
        days_ago = ages([path for path, _ in all_], now_us)
        # The last one is always kept: the chain continues from it.
        for (path, size), age in zip(all_[:-1], days_ago, strict=False):
            if not (day_of(now_us - age * DAY_US) < limit or excess > 0):
                break
            excess -= size
            removed.append(path)
        if removed:
            # First: a leftover file after a crash is harmless, a missing one would be a flaw.
            self._begins_at(all_[len(removed)][0])
        self.closed_bytes = excess + most_bytes
        for path in removed:
            path.unlink()
            with suppress(OSError):
                path.parent.rmdir()
        return removed

    def _begins_at(self, path: Path) -> None:
        parts = parts_of(path)
        assert parts is not None
        try:
            with path.open("rb") as file:
                previous = read_line(file.readline()).body["all"].get("previous", GENESIS)
        except InvalidLine:
            previous = GENESIS  # the file was damaged; `verify` reports it
        old = self._head
        self._head = JournalHead(old.journal, old.seq, old.hash, parts[1], previous, old.carried)
        write_head(self._directory, self._head, is_lasting=True)


def move(path: Path, day: Path, broker: str) -> Path:
    """Move a complete segment to its day."""
    day.mkdir(mode=0o700, exist_ok=True)
    target = day / closed_name(path, broker)
    if path.exists():  # else it was already moved, and a later step failed
        path.rename(target)
    sync_path(day)
    sync_path(path.parent)
    sync_path(day.parent)
    return target


def _with(shared: str, settle_us: int) -> str:
    own = f'{{"settle_us":{settle_us}'
    return f"{own},{shared[1:]}" if shared != "{}" else f"{own}}}"
