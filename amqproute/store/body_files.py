# SPDX-License-Identifier: Apache-2.0
"""Bodies outside the database: a directory of numbered files beside it.

Theory of operation
-------------------

A row of ``entry`` with a negative ``payload`` has its body, or the larger part of it, in the file
of that number; a row of ``payload``, which many entries share, in that of its ``segment``. There
are two kinds of files:

* a **segment** holds whole messages of ``StoreSizes.file_bytes`` and more, one after the other; the
  row names the place (``body_start``, ``body_length``) and holds no octets itself. A message that
  many entries share is stored and counted there once. The writer's thread appends to one segment at
  a time and begins another when it is full;
* a **body file** holds the rest of one very large message, written while it came in
  (`amqproute.store.large_bodies`). The rows of that message hold its first sections, and
  ``body_start`` is NULL; any number of rows may refer to one file.

A file lives as long as a row refers to it, as a shared payload does: the commit that deletes rows
collects their files, those left without rows are reported to the reactor, and are removed once
nobody reads them. Data are on the disk before the commit that names them: segments by one
`fdatasync` for the whole group, body files before they are handed out.

**After a crash** there may be files that no committed row names, and tails of segments behind the
last row. The former are removed when the store is opened; every segment found then counts as full,
so nothing is written behind an unknown tail.

**Spare segments**: `SPARES` of the unused segments are kept and overwritten later, under a new
number. Their blocks are allocated: a group appended to a new file waits for the file system's
journal with each fsync, one that overwrites an old file does not.

**Compaction**: a message that stays for long keeps its segment. When the unused octets exceed the
used ones, and `WASTE`, the live messages of the emptiest segment are copied to the current one, in
a commit of their own. So the directory holds at most twice what the messages need, `WASTE`, and the
spare segments.

Why so
------

A body of 64 KiB in pages is written to the log, checksummed, copied to the database, and
read again, page by page, to be freed. Measured for enqueue and dequeue together, in groups of 50:
96 us of CPU in pages, 50 us in a segment; for 32 KiB 51 and 19 us, for 16 KiB 29 and 19, for 8 KiB
18 and 12. For a message that ten queues share, rows and all, in groups of 20: 101 and 67 us for
64 KiB, 71 and 59 for 32 KiB. A lone message pays for the second fsync: below 32 KiB that costs
more than it saves.
One file for each such message would be simpler, and two directory operations dearer.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from twisted.logger import Logger

from amqproute.errors import MessageDamaged, StoreDamaged, StoreError, StoreUnavailable
from amqproute.store.checksums import row_sum
from amqproute.store.model import Column

__all__ = [
    "ROW_WIDTH",
    "BodyDirectory",
    "BodyFiles",
    "Filed",
    "in_words",
    "named_files",
    "not_read",
    "read_exactly",
]

log = Logger()

SEGMENT_BYTES: Final = 32 * 1024 * 1024
"""Size at which a segment is full."""
WASTE: Final = 64 * 1024 * 1024
"""Unused octets that are tolerated."""
SPARES: Final = 2
"""Unused segments kept for overwriting. Where messages leave as fast as they come, one would do."""
OPEN_FILES: Final = 16
"""Segments kept open for reading."""
MOST_BUFFERS: Final = 512
"""Buffers of one pwritev(2); the system's bound is 1,024."""
_NAME: Final = re.compile(r"\d{12}")

Filed = tuple[int, int, int, int, int, bytes, Any]
"""Id, queue, arrived, expires, flags, encoded, and the rest of the message, or None."""

ROW_WIDTH: Final = 12
"""Columns of a row from `BodyFiles.place`: id, queue, arrived, expires, flags, size, encoded,
payload, body_start, body_length, octets_crc, row_sum."""

UNNEEDED: Final = (
    "SELECT json_group_array(value) FROM json_each(?) WHERE NOT EXISTS"
    " (SELECT 1 FROM entry INDEXED BY entry_payload WHERE entry.payload = -value)"
    " AND NOT EXISTS"
    " (SELECT 1 FROM payload INDEXED BY payload_segment WHERE payload.segment = value)"
)


class BodyDirectory:
    """The directory of body files, and their numbering. Safe to use from several threads.

    Args:
        path: created by `open` if it is missing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._numbers = itertools.count(1)

    @classmethod
    def of(cls, database: str) -> BodyDirectory:
        """Return the directory of a database."""
        return cls(os.path.splitext(database)[0] + ".bodies")

    def __repr__(self) -> str:
        return f"<BodyDirectory {self.path}>"

    def name(self, number: int) -> str:
        """Return the path of a file."""
        return f"{self.path}/{number:012d}"

    def look(self) -> dict[int, int]:
        """Return the files present: number to size."""
        try:
            with os.scandir(self.path) as there:
                files = [each for each in there if _NAME.fullmatch(each.name)]
                return {int(each.name): each.stat().st_size for each in files}
        except FileNotFoundError:
            return {}

    def open(self) -> dict[int, int]:
        """Create the directory if needed, list its files, and number new ones after them."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        found = self.look()
        self._numbers = itertools.count(max(found, default=0) + 1)
        return found

    def beyond(self, number: int) -> None:
        """Never assign this number, nor a lower one."""
        self._numbers = itertools.count(max(number + 1, next(self._numbers)))

    def create(self) -> tuple[int, int]:
        """Create a file.

        Returns:
            Its number, and a descriptor for writing.
        """
        number = next(self._numbers)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        return number, os.open(self.name(number), flags, 0o600)

    def renew(self, number: int) -> tuple[int, int]:
        """Reuse the blocks of an unused file under a new number.

        The number is new so that a row with the old one, in a database that was restored, finds no
        file rather than other messages.

        Returns:
            As `create`.
        """
        descriptor = os.open(self.name(number), os.O_WRONLY | os.O_CLOEXEC)
        renewed = next(self._numbers)
        try:
            os.rename(self.name(number), self.name(renewed))
        except BaseException:
            os.close(descriptor)
            raise
        return renewed, descriptor

    def sync(self) -> None:
        """Make the names of new files durable."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, number: int) -> None:
        """Remove a file; a missing one is no error."""
        try:
            os.unlink(self.name(number))
        except FileNotFoundError:
            return
        except OSError as error:
            # The next start removes it.
            log.warn("cannot remove {path}: {error}", path=self.name(number), error=str(error))


class BodyFiles:
    """The body files, as the writer's thread sees them.

    Args:
        directory: the directory of the files.
        max_bytes: bound on the octets of segments, 0 for none.
        segment_bytes: size at which a segment is full.
        file_bytes: shared payloads of this size and more are stored in segments.

    Attributes:
        file_bytes: the bytes, as given.
        swept: numbers of files without references, for the reactor to remove.
    """

    def __init__(
        self, directory: BodyDirectory, max_bytes: int, segment_bytes: int, file_bytes: int
    ) -> None:
        self.file_bytes = file_bytes
        self._directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._current = 0
        self._descriptor = -1
        self._at = 0
        self._is_synced = True
        self._is_new = False
        # Of each segment: its size, and the octets that rows refer to.
        self._sizes: dict[int, int] = {}
        self._live: dict[int, int] = {}
        # Changes by the current group; applied to `_live` when it is committed.
        self._changes: dict[int, int] = {}
        self._suspects: set[int] = set()
        self._unneeded: set[int] = set()
        self._readers: OrderedDict[int, int] = OrderedDict()
        self._spares: list[int] = []
        self._is_short = False
        self._left_alone: set[int] = set()
        self.swept: list[int] = []

    @property
    def segment_bytes(self) -> int:
        """Octets of all segments."""
        return sum(list(self._sizes.values()))

    # -- opening and closing -------------------------------------------------------------------

    def recover(
        self,
        connection: sqlite3.Connection,
        path: str,
        put_aside: Callable[[str], object] | None = None,
    ) -> int:
        """Adopt the segments found at the start, and remove files that no row names.

        Args:
            connection: the connection of the database.
            path: the database, for error texts.
            put_aside: called with the path of each file that no row names, where these may not be
                removed; None to remove them.

        Returns:
            The number of files removed or put aside.

        Raises:
            StoreError: a file is missing, or is shorter than rows say.
        """
        found = self._directory.open()
        for number, wanted, live, count in named_files(connection):
            self._directory.beyond(number)
            size = found.pop(number, None)
            if size is None or size < wanted:
                what = "is missing" if size is None else f"has {size} bytes instead of {wanted}"
                give_up = (
                    f"DELETE FROM entry WHERE payload = -{number}"  # noqa: S608 - for reading
                    f" OR payload IN (SELECT id FROM payload WHERE segment = {number});"
                    f" DELETE FROM payload WHERE segment = {number}"
                )
                raise StoreDamaged(
                    f"{self._directory.name(number)}, which holds {count} messages of {path}, "
                    f"{what}: put it back from where it was moved to; to give these messages up: "
                    f"sqlite3 {path} '{give_up}'"
                )
            if live is not None:
                self._sizes[number], self._live[number] = size, live
        for number in found:
            if put_aside is None:
                self._directory.remove(number)
            else:
                put_aside(self._directory.name(number))
        return len(found)

    def close(self) -> None:
        """Close all descriptors; remove the current segment if nothing refers to it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if not self._live[self._current]:
                self._directory.remove(self._current)
        while self._spares:
            self._directory.remove(self._spares.pop())
        while self._readers:
            os.close(self._readers.popitem()[1])

    # -- a group of transactions ---------------------------------------------------------------

    def place(self, filed: Sequence[Filed]) -> list[Column]:
        """Write entries' messages to the current segment.

        Returns:
            Rows, `ROW_WIDTH` values each, one after the other.

        Raises:
            OSError: they could not be written.
            StoreError: the configured limit is reached.
        """
        places = iter(self.append([row[5] for row in filed if row[6] is None]))
        rows: list[Column] = []
        for entry_id, queue, arrived, expires, flags, encoded, rest in filed:
            size = len(encoded)
            rows += (entry_id, queue, arrived, expires, flags, size)
            if rest is not None:
                payload = -rest.number
                rows += (encoded, payload, None, rest.size)
            else:
                number, start = next(places)
                payload = -number
                rows += (b"", payload, start, size)
            checksum = row_sum(entry_id, queue, arrived, expires, flags, 0, size, payload)
            rows += (crc32(encoded), checksum)
        return rows

    def append(self, messages: Sequence[bytes]) -> list[tuple[int, int]]:
        """Write messages to the current segment.

        Returns:
            For each, the number of its segment and the offset.

        Raises:
            OSError: they could not be written.
            StoreError: the configured limit is reached.
        """
        places: list[tuple[int, int]] = []
        buffers: list[bytes] = []
        placed: dict[int, int] = {}
        start = self._at
        try:
            for encoded in messages:
                size = len(encoded)
                if not self._current or self._at + size > self._segment_bytes:
                    self._write(buffers, start)
                    self._begin()
                    buffers, start = [], 0
                places.append((self._current, self._at))
                buffers.append(encoded)
                self._at += size
                placed[self._current] = placed.get(self._current, 0) + size
            self._write(buffers, start)
        except BaseException:
            self._at = start
            raise
        for number, size in placed.items():
            self._changes[number] = self._changes.get(number, 0) + size
        return places

    def _begin(self) -> None:
        """Begin a segment; the previous one is full."""
        wanted = self.segment_bytes + max(1, len(self._spares)) * self._segment_bytes
        if self._max_bytes and wanted > self._max_bytes:
            raise StoreError(f"no room in {self._directory.path}: the configured limit is reached")
        self.sync()
        # The new one first: if there is no room for it, the present one stays in use.
        number, descriptor = self._create()
        if self._current:
            os.close(self._descriptor)
            self._suspects.add(self._current)
        self._current, self._descriptor = number, descriptor
        self._at = 0
        self._sizes[self._current] = 0
        self._live[self._current] = 0
        self._is_new = True

    def _create(self) -> tuple[int, int]:
        if self._spares:
            spare = self._spares.pop()
            try:
                return self._directory.renew(spare)
            except OSError:
                self.swept.append(spare)  # a new file will do
        return self._directory.create()

    def _write(self, buffers: list[bytes], at: int) -> None:
        for start in range(0, len(buffers), MOST_BUFFERS):
            part = buffers[start : start + MOST_BUFFERS]
            size = sum(map(len, part))
            done = os.pwritev(self._descriptor, part, at)
            while done < size:  # a full disk, or a signal; the former raises now
                rest = b"".join(part)[done:]
                done += os.pwrite(self._descriptor, rest, at + done)
            at += size
            self._is_synced = False
            self._sizes[self._current] = max(at, self._sizes[self._current])

    def sync(self) -> None:
        """Make all writes durable."""
        if not self._is_synced:
            try:
                os.fdatasync(self._descriptor)
            except OSError:
                # Linux reports a failed write once and then forgets it: what follows the last
                # commit in this segment is unreliable, and nothing may be appended to it.
                self._is_synced = True
                self._at = self._segment_bytes
                raise
            self._is_synced = True
        if self._is_new:
            self._directory.sync()
            self._is_new = False

    def release_spares(self, is_short: bool) -> None:
        """Keep spare segments only while there is enough room.

        Args:
            is_short: room is short from now on; False: there is enough again.
        """
        self._is_short = is_short
        if is_short:
            self.swept += self._spares
            self._spares.clear()
            self._leave_current()

    def _leave_current(self) -> None:
        """Remove the current segment if nothing refers to it and nothing is being written."""
        if self._descriptor < 0 or self._changes or self._live[self._current]:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._forget_reader(self._current)
        self.swept.append(self._current)
        del self._sizes[self._current], self._live[self._current]
        self._suspects.discard(self._current)
        self._current, self._at = 0, 0
        self._is_synced, self._is_new = True, False

    def left(self, octets: Mapping[int, int]) -> None:
        """Note that rows were removed from files: number to the octets they occupied there."""
        for number, size in octets.items():
            self._suspects.add(number)
            self._changes[number] = self._changes.get(number, 0) - size

    def look(self, connection: sqlite3.Connection) -> None:
        """Find the files that have no references after the commit; called before it."""
        self._unneeded = set()
        suspects = self._suspects - {self._current}
        if suspects:
            (found,) = connection.execute(UNNEEDED, (json.dumps(sorted(suspects)),)).fetchone()
            self._unneeded = set(json.loads(found))

    def committed(self) -> None:
        """Apply the changes of the group, which has been committed."""
        for number, change in self._changes.items():
            if number in self._live:
                self._live[number] += change
        for number in self._unneeded:
            is_segment = self._sizes.pop(number, None) is not None
            self._live.pop(number, None)
            self._forget_reader(number)
            is_spare = is_segment and len(self._spares) < SPARES and not self._is_short
            (self._spares if is_spare else self.swept).append(number)
        self._changes.clear()
        self._suspects &= {self._current}
        self._unneeded = set()
        if self._is_short:
            self._leave_current()

    def changes(self) -> dict[int, int]:
        """Return the changes of the current group so far, for `rolled_back_to`."""
        return dict(self._changes)

    def rolled_back_to(self, changes: dict[int, int]) -> None:
        """Discard the changes of one transaction that was rolled back; the group continues."""
        self._changes = changes

    def rolled_back(self) -> None:
        """Discard the changes of the group, which was rolled back."""
        self._changes.clear()
        self._unneeded = set()

    # -- tidying -------------------------------------------------------------------------------

    @property
    def is_untidy(self) -> bool:
        """Whether more octets are unused than used, and more than `WASTE`."""
        live = sum(self._live.values())
        wasted = sum(self._sizes.values()) - live
        return wasted > WASTE and wasted > live

    def leave_alone(self, number: int) -> None:
        """Never compact this segment: part of it cannot be read."""
        self._left_alone.add(number)

    def emptiest(self) -> int | None:
        """Return the full segment with the smallest used part; None if there is none."""
        full = [each for each in self._live if each not in (self._current, *self._left_alone)]
        return min(full, key=lambda one: self._live[one] / max(1, self._sizes[one]), default=None)

    # -- reading -------------------------------------------------------------------------------

    def read(self, number: int, start: int, length: int) -> bytes:
        """Read a message from a segment.

        Raises:
            MessageDamaged: the file is missing, or the disk cannot read it.
            StoreError: it cannot be read now.
        """
        name = self._directory.name(number)
        descriptor = self._readers.get(number)
        if descriptor is None:
            try:
                descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise not_read(error, name) from error
            self._readers[number] = descriptor
            if len(self._readers) > OPEN_FILES:
                os.close(self._readers.popitem(last=False)[1])
        else:
            self._readers.move_to_end(number)
        if length < 0 or start < 0:
            raise MessageDamaged(f"{name} has no message of {length} octets at {start}")
        return read_exactly(descriptor, name, length, start)

    def _forget_reader(self, number: int) -> None:
        descriptor = self._readers.pop(number, None)
        if descriptor is not None:
            os.close(descriptor)


_OF_ENTRIES: Final = (
    "SELECT -payload AS number, max(ifnull(body_start, 0) + body_length) AS wanted,"
    " CASE WHEN max(body_start) IS NOT NULL THEN sum(body_length) END AS live, count(*) AS messages"
    " FROM entry INDEXED BY entry_payload WHERE payload < 0 GROUP BY payload"
)
_OF_PAYLOADS: Final = (
    "SELECT segment, max(body_start + body_length), sum(body_length), count(*)"
    " FROM payload INDEXED BY payload_segment WHERE segment IS NOT NULL GROUP BY segment"
)


def named_files(
    connection: sqlite3.Connection, are_shared: bool = True
) -> Iterable[tuple[int, int, int | None, int]]:
    """Yield number, required size, live octets and number of rows of each file that has rows.

    The live octets are None for a body file.

    Args:
        connection: the connection of the database.
        are_shared: its schema allows shared payloads in files.
    """
    rows = f"{_OF_ENTRIES} UNION ALL {_OF_PAYLOADS}" if are_shared else _OF_ENTRIES
    yield from connection.execute(
        "SELECT number, max(wanted), sum(live), sum(messages)"  # noqa: S608 - of constants
        f" FROM ({rows}) GROUP BY number"
    )


def read_exactly(descriptor: int, path: str, size: int, start: int) -> bytes:
    """Read a number of octets at an offset.

    Raises:
        MessageDamaged: the file is too short.
        StoreError: it cannot be read.
    """
    try:
        octets = os.pread(descriptor, size, start)
    except OSError as error:
        raise not_read(error, path) from error
    if len(octets) < size:
        raise MessageDamaged(f"{path} ends at {start + len(octets)} within a message")
    return octets


def not_read(error: OSError, path: str) -> StoreError:
    """Convert a read error; to `MessageDamaged` if trying again will not help."""
    words = f"cannot read {path}: {error.strerror or error}"
    is_lasting = error.errno in (errno.ENOENT, errno.EIO, errno.EISDIR, errno.ENOTDIR)
    return (MessageDamaged if is_lasting else StoreError)(words)


_NOT_THE_DISK: Final = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


def in_words(error: OSError, path: str) -> StoreError:
    """Convert an error of the operating system, with a remedy for the operator."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        words = (
            f"no room for {path} (file system or quota): nothing of this was stored; free space, "
            "consumers and peers may continue to empty queues"
        )
    elif error.errno in _NOT_THE_DISK:
        words = (
            f"{error.filename or path}: {error.strerror}: nothing was stored; something else is in "
            f"its place, or user id {os.geteuid()} may not write there: put it back as it was"
        )
    else:
        words = f"the disk failed under {path} ({error.strerror or error}): nothing was stored"
    said = StoreUnavailable(words)
    said.__cause__ = error
    return said
