# SPDX-License-Identifier: Apache-2.0
"""The seal: what the store held when it last committed, in a file beside the database.

SQLite takes a write-ahead log that is missing, cut short or damaged for one that ends there, and a
database without a log for a complete one. So the extent of the log has to be recorded elsewhere.
After each commit the writer notes in the seal the last frame of the log with its checksum, and the
number of entries with the sum of their ids. `amqproute.store.start_evidence` compares at the start.

**Order.** A note is made after the commit's fsync and is not synced itself: it is a write to mapped
memory, about a microsecond. A killed process leaves it in the page cache. A power failure may leave
an older note, never one of a commit that is not on the disk. So a seal is always a lower bound: a
store that has less than the seal says has lost something, which no crash of honest hardware does.

**Durable notes** are made when the bound of ids moves, when the whole log has been copied into the
database, and when the store is closed: the latter two say that the log is no longer needed.

**Turn and round.** A *turn* is counted with each change of the bound of ids, a *round* with each
restart of the log. Both are in the table ``meta`` as well. The turns tell whether seal or database
is older. The round tells whether this log can be applied to the database file as it is: the file's
round is that of the log, or the one before.

The file has two slots in sectors of their own, written alternately, each with a checksum: a torn
slot leaves the other. The file is overwritten in place, which needs no room on a full disk. While
the disk is full, notes are written by system calls: on a copy-on-write file system a write to
mapped memory could find no room, which would kill the process.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from amqproute.durable_path import sync_path

__all__ = ["NO_LOG", "Seal", "SealState"]

LENGTH: Final = 4096
SLOT: Final = 512
NO_LOG: Final = bytes(24)
"""The position of a log without frames."""
_MAGIC: Final = b"amqseal1"
_LAYOUT: Final = struct.Struct("<8sQQQQQBB24sQI")
_CHECK: Final = struct.Struct("<I")
_LOW_HALF: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class SealState:
    """Contents of a seal.

    Attributes:
        turn: number of changes of the bound of ids.
        round: number of restarts of the log.
        name: the random name of the last change of the bound (`amqproute.store.mark`).
        bound: the bound of ids.
        log: octets 16 to 40 of the log's shared index: number of frames, pages of the database,
            checksum of the last frame, salts (SQLite, "WAL-mode File Format" §2.1).
        is_copied: everything committed was in the database itself.
        entry_totals: number of entries, and the sum of their ids modulo 2**32; None if they were
            not counted.
    """

    turn: int
    round: int
    name: int
    bound: int
    log: bytes = NO_LOG
    is_copied: bool = False
    entry_totals: tuple[int, int] | None = None

    @property
    def frames(self) -> int:
        """Number of committed frames in the log."""
        return int.from_bytes(self.log[:4], sys.byteorder)

    @property
    def pages(self) -> int:
        """Number of pages in the database."""
        return int.from_bytes(self.log[4:8], sys.byteorder)

    @property
    def checksum(self) -> tuple[int, int]:
        """Of the last frame."""
        return int.from_bytes(self.log[8:12], sys.byteorder), int.from_bytes(
            self.log[12:16], sys.byteorder
        )

    @property
    def salt(self) -> bytes:
        """Common to all frames of the log."""
        return self.log[16:24]

    def same_state(self, name: int, bound: int) -> bool:
        """Tell whether a database with this state of its mark is the sealed one."""
        return (self.name, self.bound) == (name, bound)


class Seal:
    """The file of a store's seal. All methods but `read` are called on the writer's thread.

    Args:
        path: the path of the file.

    Attributes:
        is_careful: write by system calls, because the disk is full.
        state: the last durable note; None before the first one.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_careful = False
        self.state: SealState | None = None
        self._counter = 0
        self._descriptor = -1
        self._map: mmap.mmap | None = None

    def __repr__(self) -> str:
        return f"<Seal {self.path} {self._counter}>"

    def exists(self) -> bool:
        """Tell whether the file exists, readable or not."""
        return os.path.exists(self.path)

    def read(self) -> SealState | None:
        """Return the last valid note; None if the file is missing or has none."""
        try:
            with open(self.path, "rb") as file:
                octets = file.read(LENGTH)
        except OSError:
            return None
        found = [one for at in (0, SLOT) if (one := _unpack(octets[at : at + SLOT])) is not None]
        if not found:
            return None
        self._counter, sealed = max(found, key=lambda one: one[0])
        return sealed

    def write(self, sealed: SealState) -> None:
        """Make a durable note.

        Raises:
            OSError: it could not be written; the file still says nothing untrue.
        """
        if self._descriptor < 0:
            self._open()
        self.state = sealed
        self._counter += 1
        at = SLOT * (self._counter & 1)
        octets = _pack(self._counter, sealed, sealed.log, sealed.is_copied, sealed.entry_totals)
        if os.pwrite(self._descriptor, octets, at) < len(octets):
            raise OSError(f"{self.path} was written in part")
        os.fdatasync(self._descriptor)

    def note(self, log: bytes, entry_totals: tuple[int, int] | None) -> None:
        """Note a commit that is on the disk, without syncing the note.

        Args:
            log: see `SealState.log`.
            entry_totals: see `SealState.entry_totals`.

        Raises:
            OSError: it could not be written; only while `is_careful`.
        """
        state = self.state
        if state is None or self._map is None:
            return
        self._counter += 1
        octets = _pack(self._counter, state, log, False, entry_totals)
        at = SLOT * (self._counter & 1)
        if self.is_careful:
            os.pwrite(self._descriptor, octets, at)
        else:
            self._map[at : at + len(octets)] = octets

    def close(self) -> None:
        """Close the file."""
        if self._map is not None:
            self._map.close()
            self._map = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self.state = None

    def _open(self) -> None:
        """Create the file at full length, keeping its last note."""
        self.read()
        descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(descriptor).st_size != LENGTH:
                os.ftruncate(descriptor, 0)
                # Blocks, not a hole: a write to mapped memory must not have to allocate one.
                os.pwrite(descriptor, bytes(LENGTH), 0)
                os.fsync(descriptor)
                sync_path(os.path.dirname(self.path))
            self._map = mmap.mmap(descriptor, LENGTH)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor


def _pack(
    counter: int,
    state: SealState,
    log: bytes,
    is_copied: bool,
    entry_totals: tuple[int, int] | None,
) -> bytes:
    count, total = entry_totals or (0, 0)
    octets = _LAYOUT.pack(
        _MAGIC,
        counter,
        state.turn,
        state.round,
        state.name,
        state.bound,
        is_copied,
        entry_totals is not None,
        log,
        count,
        total & _LOW_HALF,
    )
    return octets + _CHECK.pack(crc32(octets))


def _unpack(slot: bytes) -> tuple[int, SealState] | None:
    size = _LAYOUT.size
    if len(slot) < size + _CHECK.size or slot[:8] != _MAGIC:
        return None
    if _CHECK.unpack_from(slot, size)[0] != crc32(slot[:size]):
        return None
    _, counter, turn, round_, name, bound, is_copied, is_counted, log, count, total = (
        _LAYOUT.unpack_from(slot)
    )
    entry_totals = (count, total) if is_counted else None
    return counter, SealState(turn, round_, name, bound, log, bool(is_copied), entry_totals)
