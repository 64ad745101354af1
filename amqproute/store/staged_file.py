# SPDX-License-Identifier: Apache-2.0
"""The file of one staged content, as the thread that writes it sees it.

A file is a header and records behind it (`RECORD`): octets, or a mark that says that everything
before it was saved. Each record has its checksum. What a crash leaves behind the last whole record
is cut off when the content is used again, so nothing of a record is ever seen in part.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final
from zlib import crc32

from twisted.logger import Logger

from amqproute.durable_path import sync_path
from amqproute.errors import StoreError
from amqproute.store.body_files import in_words, not_read

__all__ = [
    "NAME",
    "RECORD",
    "RECORD_BYTES",
    "StagedFile",
    "file_name",
    "read_facts",
    "read_record",
    "remove_file",
]

log = Logger()

_HEADER: Final = struct.Struct(">8sII")
"""Begins a file: `_MARK`, size and CRC-32 of the JSON that follows."""
_MARK: Final = b"staged\0\1"
RECORD: Final = struct.Struct(">cII")
"""Precedes a record: kind, octets, and the CRC-32 of kind and octets."""
_OCTETS: Final = b"D"
_SAVED: Final = b"S"
RECORD_BYTES: Final = 256 * 1024
"""Octets of one record at most, as much as is in memory while they are checked."""
MOST_HEADER: Final = 4096
SYNC_BYTES: Final = 8 * 1024 * 1024
"""Octets written between two syncs, so that the last one is short."""
NAME: Final = re.compile(r"[fm][0-9a-f]{64}|t\d{12}")


def file_name(kind: str, owner: str, identifier: str) -> str:
    """Return the name of the file of a content."""
    return kind + hashlib.sha256(f"{owner}\0{identifier}".encode()).hexdigest()


class StagedFile:
    """One file, as the thread sees it.

    Args:
        folder: its directory.
        name: the name of the file.
        is_by_saves: whether it counts as of its last save.
        clock_ms: milliseconds since the epoch, for its date.

    Attributes:
        name: changes when it is given another one.
        size: octets in it.
    """

    def __init__(
        self, folder: str, name: str, is_by_saves: bool, clock_ms: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._clock_ms = clock_ms
        self.name = name
        self._is_by_saves = is_by_saves
        self._descriptor = -1
        self._at = 0
        self._synced = 0
        self._saved_at = 0
        self._touched_ms = 0
        self._failure: Exception | None = None
        self.size = 0

    @property
    def path(self) -> str:
        """Of the file."""
        return f"{self._folder}/{self.name}"

    @property
    def failure(self) -> Exception | None:
        """What has gone wrong."""
        return self._failure

    @property
    def stored(self) -> int:
        """Octets of the file, with what belongs to no content."""
        return self._at

    def create(self, facts: dict[str, object]) -> None:
        """Begin the file anew.

        Raises:
            StoreError: it cannot be written.
        """
        octets = json.dumps(facts, separators=(",", ":")).encode()
        self._touched_ms = self._clock_ms()
        flags = os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC
        try:
            self._descriptor = os.open(self.path, flags, 0o600)
            self._put(_HEADER.pack(_MARK, len(octets), crc32(octets)) + octets)
            if self.name[0] != "t":
                sync_path(self._folder)
        except OSError as error:
            raise self._fault(error) from error

    def append(self, parts: Sequence[bytes]) -> None:
        """Add octets; a failure is raised by the next `save` or `check`."""
        if self._failure is not None:
            return
        try:
            if self._descriptor < 0:
                raise StoreError(f"{self.path} is closed")
            octets = b"".join(parts)
            for start in range(0, len(octets), RECORD_BYTES):
                self._record(_OCTETS, octets[start : start + RECORD_BYTES])
            self.size += len(octets)
            if self._at - self._synced > SYNC_BYTES:
                self._sync()
        except (OSError, StoreError) as error:
            self._fault(error)

    def check(self) -> None:
        """Raise what has gone wrong."""
        if self._failure is not None:
            raise self._failure

    def save(self, name: str | None) -> int:
        """Put everything so far on the disk, under a name; return the octets.

        Raises:
            StoreError: something could not be written.
        """
        self.check()
        try:
            if self._descriptor < 0:
                raise StoreError(f"{self.path} is closed")
            self._record(_SAVED, b"")
            self._sync()
            self._saved_at = self._at
            if name is not None and name != self.name:
                os.rename(self.path, f"{self._folder}/{name}")
                self.name = name
                sync_path(self._folder)
        except (OSError, StoreError) as error:
            raise self._fault(error) from error
        return self.size

    def load(self) -> int | None:
        """Open a file that is there, cut off what is not whole, and return its octets.

        Returns:
            None if nothing of it can be used.

        Raises:
            StoreError: it cannot be read now.
        """
        if self._descriptor >= 0 and self._failure is None and not self._is_by_saves:
            return self.size  # whoever held it has written all of this
        self.close()
        self._failure = None
        try:
            with open(self.path, "rb", RECORD_BYTES) as file:
                end, size = self._whole(file)
            if not end:
                return None
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            self._touched_ms = int(1000 * os.fstat(self._descriptor).st_mtime)
            os.ftruncate(self._descriptor, end)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise not_read(error, self.path) from error
        self._at = self._synced = self._saved_at = end
        self.size = size
        return size

    def _whole(self, file: BinaryIO) -> tuple[int, int]:
        """Return where the last whole record that counts ends, and how many octets precede."""
        if read_facts(file) is None:
            return 0, 0
        end = file.tell()
        size, saved = 0, (0 if self._is_by_saves else end, 0)
        while True:
            record = read_record(file)
            if record is None:
                break
            kind, octets = record
            size += len(octets)
            end += RECORD.size + len(octets)
            if kind == _SAVED or not self._is_by_saves:
                saved = end, size
        return saved

    def close(self) -> None:
        """Close the file, with what is kept of it on the disk."""
        if self._descriptor < 0:
            return
        try:
            if self._is_by_saves:
                os.ftruncate(self._descriptor, self._saved_at)
            elif self._failure is None:
                self._sync()
        except OSError as error:  # whoever goes on with it finds what there is
            log.warn("{path} was not synced: {error}", path=self.path, error=str(error))
        os.close(self._descriptor)
        self._descriptor = -1

    def _date(self) -> None:
        seconds = self._touched_ms / 1000
        os.utime(self._descriptor, (seconds, seconds))

    def remove(self) -> None:
        """Remove the file; a missing one is no error."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        remove_file(self.path)

    def _record(self, kind: bytes, octets: bytes) -> None:
        checksum = crc32(octets, crc32(kind))
        self._touched_ms = self._clock_ms()
        self._put(RECORD.pack(kind, len(octets), checksum) + octets)

    def _put(self, octets: bytes) -> None:
        done = 0
        while done < len(octets):  # a full disk, or a signal; the former raises now
            done += os.pwrite(self._descriptor, octets[done:], self._at + done)
        self._at += done

    def _sync(self) -> None:
        self._date()
        os.fdatasync(self._descriptor)
        self._synced = self._at

    def _fault(self, error: Exception) -> Exception:
        if isinstance(error, OSError):
            error = in_words(error, self.path)
        self._failure = error
        return error


def read_facts(file: BinaryIO) -> dict[str, object] | None:
    """Return what the header of a file says; None if it is damaged."""
    mark, size, checksum = _unpacked(_HEADER, file.read(_HEADER.size)) or (b"", 0, 0)
    if mark != _MARK or size > MOST_HEADER:
        return None
    octets = file.read(size)
    if len(octets) != size or crc32(octets) != checksum:
        return None
    found = json.loads(octets)
    return found if isinstance(found, dict) else None


def read_record(file: BinaryIO) -> tuple[bytes, bytes] | None:
    """Return kind and octets of the next record; None if there is no whole one."""
    head = _unpacked(RECORD, file.read(RECORD.size))
    if head is None:
        return None
    kind, size, checksum = head
    if kind not in (_OCTETS, _SAVED) or size > RECORD_BYTES:
        return None
    octets = file.read(size)
    if len(octets) != size or crc32(octets, crc32(kind)) != checksum:
        return None
    return kind, octets


def _unpacked(shape: struct.Struct, octets: bytes) -> tuple[Any, ...] | None:
    return shape.unpack(octets) if len(octets) == shape.size else None


def remove_file(path: str) -> None:
    """Remove a file; where that fails, the next start does it."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warn("cannot remove {path}: {error}", path=path, error=str(error))
