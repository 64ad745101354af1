# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: keeping the write-ahead log short without making commits wait.

Copying the log into the database takes time in proportion to its length, so a second thread with a
connection of its own does it (a PASSIVE checkpoint, which blocks nobody) while the writer
continues. What the writer appends meanwhile is the remainder; the checkpointer repeats until that
is small, and the writer copies the remainder itself between two commits. Then the whole log is in
the database, nobody reads from the log, and SQLite writes the next frame at its beginning: the log
stays bounded under a load that never pauses.

A commit that lengthens the file also waits for the file system's own journal, which takes about
twice as long as overwriting. So the file gets its full length before the first commit. SQLite takes
zeros behind the last frame for the end of the log, as it takes the frames of an earlier round.
"""

from __future__ import annotations

import errno
import mmap
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from twisted.logger import Logger

from amqproute.errors import StoreUnavailable
from amqproute.store.database_schema import Connect, in_words

log = Logger()

HEADER: Final = 32
"""Octets before the first frame (SQLite, "The WAL File Format")."""
FRAME_HEADER: Final = 24
"""Octets of a frame before its page."""
ZEROS: Final = bytes(1024 * 1024)
LONGEST: Final = 64 * 1024 * 1024
"""Bound on the length that the file gets in advance, octets."""
PASSES: Final = 4
"""Passive checkpoints in a row before the writer copies the remainder whatever its size."""


@dataclass(slots=True)
class CheckpointState:
    """Report of the checkpointer to the writer: one passive checkpoint has ended."""

    error: sqlite3.Error | None


class WalTracker:
    """Length of the log, and when it is checkpointed by which thread.

    All methods run on the writer's thread, except `_run`.

    Attributes:
        restarts: how often the whole log has been copied, so that it restarted.
    """

    def __init__(
        self,
        path: str,
        connect: Connect,
        report: Callable[[CheckpointState], None],
        checkpoint_pages: int,
        remainder_pages: int,
        yield_turn: Callable[[str], bool],
    ) -> None:
        self.restarts = 0
        self._yield_turn = yield_turn
        self._path = path
        self._connect = connect
        self._report = report
        self._checkpoint_pages = checkpoint_pages
        self._remainder_pages = remainder_pages
        self._connection: sqlite3.Connection | None = None
        self._index: mmap.mmap | None = None
        self._descriptor = -1
        self._passes = 0
        self._not_before = 0
        self._orders: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, connection: sqlite3.Connection) -> None:
        """Start the checkpointer; `connection` is the writer's, and the database is in WAL mode."""
        self._connection = connection
        self._lengthen()
        descriptor = os.open(f"{self._path}-shm", os.O_RDONLY | os.O_CLOEXEC)
        self._descriptor = descriptor
        self._index = mmap.mmap(descriptor, 100, prot=mmap.PROT_READ)
        self._thread = threading.Thread(
            target=self._run, name=f"store checkpointer {self._path}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after its current checkpoint."""
        if self._thread is not None:
            self._orders.put(False)
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Unmap the log's index. After all connections are closed, since POSIX locks go with it."""
        if self._index is not None:
            self._index.close()
            self._index = None
            os.close(self._descriptor)

    def frames(self) -> tuple[int, int]:
        """Return the number of frames in the log, and how many of them are in the database.

        Read from the shared index (SQLite, "WAL-mode File Format" §2.1, offsets 16 and 96): the
        only statement that reports it performs a checkpoint. Only the writer's thread changes the
        first number; the second grows until the log restarts. Mapped rather than read, since a
        system call would release the interpreter lock.
        """
        header = self._index
        assert header is not None
        return (
            int.from_bytes(header[16:20], sys.byteorder),
            int.from_bytes(header[96:100], sys.byteorder),
        )

    def position(self) -> bytes:
        """Return the end of the log in the form of `amqproute.store.seal.SealState.log`."""
        header = self._index
        assert header is not None
        return header[16:40]

    def is_copied(self) -> bool:
        """Tell whether all frames of the log are in the database."""
        frames, copied = self.frames()
        return copied >= frames

    def grown(self) -> None:
        """After a group: order a checkpoint if there is enough to copy."""
        if self._passes or self._thread is None:
            return
        frames, copied = self.frames()
        if frames - copied >= self._checkpoint_pages and frames >= self._not_before:
            self._order()

    def settled(self, report: CheckpointState) -> None:
        """After a passive checkpoint: repeat it, or copy the remainder, or wait after an error."""
        frames, copied = self.frames()
        if report.error is None:
            if frames - copied > self._remainder_pages and self._passes < PASSES:
                self._order()
                return
            assert self._connection is not None
            try:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                self.restarts += 1
            except sqlite3.Error as error:
                report = CheckpointState(error)
        self._passes = 0
        self._not_before = 0
        if report.error is not None:
            is_full = isinstance(in_words(report.error, self._path), StoreUnavailable)
            if is_full and self._yield_turn("copy the write-ahead log into the database"):
                frames, copied = self.frames()
                if copied >= frames:
                    self.restarts += 1
                    return
            # The log still holds everything and only grows. Try again when it has grown further.
            self._not_before = frames + self._checkpoint_pages
            log.warn(
                "{path}: cannot copy the write-ahead log into the database; it grows: {error}",
                path=self._path,
                error=str(report.error),
            )

    def _lengthen(self) -> None:
        """Extend the log with zeros to its expected length; without room it stays as it is."""
        connection = self._connection
        assert connection is not None
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        frames = self._checkpoint_pages + self._remainder_pages
        length = min(LONGEST, HEADER + frames * (FRAME_HEADER + page_size))
        # Closing this descriptor drops no locks: SQLite's are on the database and on the index.
        descriptor = os.open(f"{self._path}-wal", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        start = os.fstat(descriptor).st_size
        try:
            for offset in range(start, length, len(ZEROS)):
                part = min(len(ZEROS), length - offset)
                if os.pwrite(descriptor, ZEROS[:part], offset) < part:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError as error:
            os.ftruncate(descriptor, start)
            log.info(
                "{path}: the write-ahead log is not preallocated: {error}",
                path=self._path,
                error=str(error),
            )
        finally:
            os.close(descriptor)

    def _order(self) -> None:
        self._passes += 1
        self._orders.put(True)

    def _run(self) -> None:
        """The checkpointer's thread."""
        connection = None
        try:
            while self._orders.get():
                try:
                    if connection is None:
                        connection = self._connect(self._path)
                        connection.execute("PRAGMA synchronous=FULL")
                        connection.execute("PRAGMA fullfsync=ON")
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                except sqlite3.Error as error:
                    self._report(CheckpointState(error))
                else:
                    self._report(CheckpointState(None))
        finally:
            if connection is not None:
                connection.close()
