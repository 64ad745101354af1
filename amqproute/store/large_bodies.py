# SPDX-License-Identifier: Apache-2.0
"""Very large messages: everything after the first sections, in files written and read in parts.

An incoming body is collected in a `BodyDraft`, part by part, by a thread of its own. When it is
complete and on the disk, the draft turns into a `StoredBody`, to which the message refers; another
thread reads it in parts, so that readers do not wait for fsyncs.

Who removes the file? Until a commit names it, the `StoredBody` does, when it is garbage-collected:
a message that is not durable, or was refused, or was lost with its connection, leaves nothing. From
that commit on the rows keep the file (`amqproute.store.body_files`); when the last of them is
deleted, the file is removed at once, or when the last `StoredBody` is collected, if there is one.

Behind the octets of a body its file has a *note* (`_NOTE`): digest and size of the bare message,
computed as it came in. They are in no row; with them nobody has to read a gigabyte again to name
the original of a copy that is made after a restart.

Behind the note are the *sums* (`_SUMS`): a CRC-32 for each `CHUNK_BYTES` of the body. A reader
checks a whole chunk before it returns the first octet of it: the delivery of a damaged body is
aborted in the middle, and no wrong octet was sent.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakValueDictionary
from zlib import crc32

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.errors import MessageDamaged, StoreError
from amqproute.interfaces import IBody, IBodyDraft, IBodyReader
from amqproute.store.body_files import BodyDirectory, in_words, not_read, read_exactly
from amqproute.store.checksums import CHUNK_BYTES
from amqproute.store.io_thread import IoThread, ReactorCall

__all__ = ["BodyDraft", "LargeBodies", "StoredBody", "check_body", "read_sums"]

log = Logger()

MOST_BUFFERS: Final = 512
"""Buffers of one pwritev(2); the system's bound is 1,024, and frames may have only 512 octets."""
SYNC_BYTES: Final = 8 * 1024 * 1024
"""Octets of a draft between two syncs, so that the last one is short."""

_NOTE: Final = struct.Struct(">8s32s32sQ")
"""Follows a body: `_MARK`; the digest (`_name_of`) of what precedes the body in the bare message;
the SHA-256 of the bare message, and its size."""
_MARK: Final = b"bare\0\0\0\1"

_SUMS: Final = struct.Struct(">8sIII")
"""Precedes the checksums of the chunks, 4 octets each: `_SUMS_MARK`, the size and number of the
chunks, and the CRC-32 of what follows."""
_SUMS_MARK: Final = b"sums\0\0\0\1"

_Known = tuple[bytes, tuple[str, int]]
"""The digest (`_name_of`) of what precedes the body; digest and size of the bare message then."""


@implementer(IBody)
class StoredBody:
    """The rest of a message, in a file.

    Attributes:
        number: the number of the file.
        size: its octets.
        is_named: committed rows refer to it.
        has_footer: see `IBody`.
        is_summed: its file has checksums, unless it is damaged.
    """

    __slots__ = (
        "__weakref__",
        "_bodies",
        "_digest",
        "_is_noted",
        "has_footer",
        "is_named",
        "is_summed",
        "number",
        "size",
    )

    def __init__(
        self, bodies: LargeBodies, number: int, size: int, is_named: bool, is_summed: bool = True
    ) -> None:
        self._bodies = bodies
        self.is_summed = is_summed
        self.number = number
        self.size = size
        self.is_named = is_named
        self.has_footer = False
        self._digest: _Known | None = None
        self._is_noted = is_named  # a body read from the store may have a note

    def __repr__(self) -> str:
        return f"<StoredBody {self.number} {self.size} bytes{' named' if self.is_named else ''}>"

    def __del__(self) -> None:
        if not self.is_named:
            self._bodies.discard(self.number)

    def digest_of(self, before: bytes) -> tuple[str, int] | None:
        """See `IBody.digest_of`."""
        if self._is_noted:
            self._digest = self._note() or self._digest
            self._is_noted = False
        return self._digest_of(before)

    def _digest_of(self, before: bytes) -> tuple[str, int] | None:
        known = self._digest
        return known[1] if known is not None and known[0] == _name_of(before) else None

    def recall(self, before: bytes) -> Deferred[tuple[str, int] | None]:
        """See `IBody.recall`."""
        if not self._is_noted:
            return succeed(self._digest_of(before))
        return self._bodies.reading.run(lambda: self.digest_of(before))

    def digested(self, before: bytes, digest: str, size: int) -> None:
        """See `IBody.digested`."""
        self._digest = _name_of(before), (digest, size)
        self._is_noted = False

    def _note(self) -> _Known | None:
        """Read the note behind the body; None if it was stored by a release that wrote none."""
        try:
            descriptor = self.open()
            try:
                octets = os.pread(descriptor, _NOTE.size, self.size)
            finally:
                os.close(descriptor)
        except (OSError, StoreError) as error:
            # Consumers of the message get this error as well.
            log.error("{body} cannot be read: {error}", body=self, error=str(error))
            return None
        if len(octets) != _NOTE.size:
            return None
        mark, name, digest, size = _NOTE.unpack(octets)
        return (name, (digest.hex(), size)) if mark == _MARK else None

    def reader(self) -> BodyReader:
        """See `IBody.reader`."""
        return BodyReader(self)

    def open(self) -> int:
        """Open the file for reading and return the descriptor.

        Raises:
            MessageDamaged: the file is missing.
            StoreError: it cannot be opened now.
        """
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise not_read(error, self.path) from error

    @property
    def path(self) -> str:
        """Of its file."""
        return self._bodies.directory.name(self.number)


def _name_of(octets: bytes) -> bytes:
    """Return a digest that stands for octets that need not be kept."""
    return hashlib.sha256(octets).digest()


@implementer(IBodyReader)
class BodyReader:
    """Sequential reader of one body."""

    __slots__ = ("_at", "_body", "_chunk", "_chunk_at", "_descriptor", "_is_used", "_sums")

    def __init__(self, body: StoredBody) -> None:
        self._body = body
        self._descriptor = -1
        self._at = 0
        self._is_used = False
        self._sums: Sequence[int] = ()
        self._chunk = b""
        self._chunk_at = 0

    @property
    def left(self) -> int:
        """Octets not requested yet."""
        return self._body.size - self._at

    def read(self, size: int) -> Deferred[bytes]:
        """Return a Deferred of the next octets, at most this many; empty at the end.

        It fails with `MessageDamaged` if they differ from the written ones.
        """
        start = self._at
        size = min(size, self.left)
        self._at += size
        self._is_used = True
        return self._body._bodies.reading.run(lambda: self._read(start, size))

    def skip(self, octets: int) -> None:
        """See `IBodyReader.skip`."""
        self._at += min(octets, self.left)

    def close(self) -> None:
        """Stop reading and close the file."""
        if self._is_used:
            self._is_used = False
            self._body._bodies.reading.leave(self._close)

    def _read(self, start: int, size: int) -> bytes:
        if not size:
            return b""
        body = self._body
        if self._descriptor < 0:
            self._descriptor = body.open()
            if body.is_summed:
                self._sums = read_sums(self._descriptor, body.path, body.size)
        if not self._sums:
            return read_exactly(self._descriptor, body.path, size, start)
        parts = []
        while size:
            octets = self._chunk_of(start)
            offset = start - self._chunk_at
            # A read of a whole chunk, as links do it, copies nothing.
            part = octets[offset : offset + size]
            parts.append(part)
            start += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _chunk_of(self, start: int) -> bytes:
        """Return the chunk that contains an octet, after checking it."""
        number = start // CHUNK_BYTES
        if not self._chunk or self._chunk_at != number * CHUNK_BYTES:
            body = self._body
            at = number * CHUNK_BYTES
            size = min(CHUNK_BYTES, body.size - at)
            octets = read_exactly(self._descriptor, body.path, size, at)
            if crc32(octets) != self._sums[number]:
                raise MessageDamaged(
                    f"{body.path}: octets {at} to {at + size} do not match their checksum"
                )
            self._chunk, self._chunk_at = octets, at
        return self._chunk

    def _close(self) -> None:
        self._chunk = b""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_sums(descriptor: int, path: str, size: int) -> Sequence[int]:
    """Return the checksums behind a body of `size` octets.

    Raises:
        MessageDamaged: they are missing or damaged themselves.
    """
    count = -(-size // CHUNK_BYTES)
    try:
        octets = os.pread(descriptor, _NOTE.size + _SUMS.size + 4 * count, size)
    except OSError as error:
        raise not_read(error, path) from error
    if octets.startswith(_MARK):
        octets = octets[_NOTE.size :]
    sums = octets[_SUMS.size : _SUMS.size + 4 * count]
    if octets[: _SUMS.size] != _SUMS.pack(_SUMS_MARK, CHUNK_BYTES, count, crc32(sums)):
        raise MessageDamaged(f"{path}: the checksums behind the body are damaged")
    return struct.unpack(f">{count}I", sums)


def check_body(path: str, size: int) -> str | None:
    """Check a whole body file; return its defect, None without one."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    try:
        for number, noted in enumerate(read_sums(descriptor, path, size)):
            at = number * CHUNK_BYTES
            octets = read_exactly(descriptor, path, min(CHUNK_BYTES, size - at), at)
            if crc32(octets) != noted:
                return f"{path}: octets {at} to {at + len(octets)} do not match their checksum"
    except StoreError as error:
        return str(error)
    finally:
        os.close(descriptor)
    return None


@implementer(IBodyDraft)
class BodyDraft:
    """An incoming body; see `IBodyDraft`."""

    def __init__(
        self, bodies: LargeBodies, written: Callable[[int], None], before: bytes | None = None
    ) -> None:
        self._bodies = bodies
        self._written = written
        self._before = before
        self._digest = None if before is None else hashlib.sha256(before)
        self._bare_size = 0 if before is None else len(before)
        self._number = 0
        self._descriptor = -1
        self._at = 0
        self._synced = 0
        self._sums: list[int] = []
        self._sum = 0  # of the chunk that is not complete
        self._failure: Exception | None = None
        self._is_begun = self._is_ended = False
        self.size = 0

    def __repr__(self) -> str:
        return f"<BodyDraft {self._number} {self.size} bytes>"

    def append(self, parts: Sequence[bytes], bare: Sequence[bytes | memoryview] = ()) -> None:
        """See `IBodyDraft.append`."""
        size = sum(map(len, parts))
        self.size += size
        self._is_begun = True
        done = self._bodies.writing.run(lambda: self._write(parts, size, bare))
        done.addErrback(self._failed)
        done.addCallback(lambda _: self._written(size))
        done.addErrback(lambda failure: log.failure("{body}: callback failed", failure, body=self))

    def finish(self) -> Deferred[IBody]:
        """See `IBodyDraft.finish`."""
        self._is_ended = True
        return self._bodies.writing.run(self._finish).addCallback(self._finished)

    def abandon(self) -> None:
        """See `IBodyDraft.abandon`."""
        if not self._is_ended:
            self._is_ended = True
            if self._is_begun:  # else the thread may never start, and the job would keep this alive
                self._bodies.writing.leave(self._remove)

    # On the writing thread.

    def _write(self, parts: Sequence[bytes], size: int, bare: Sequence[bytes | memoryview]) -> None:
        if self._failure is not None:
            return
        bodies = self._bodies
        try:
            if self._descriptor < 0:
                bodies.require_room(self)
                self._number, self._descriptor = bodies.directory.create()
            bodies.require_room(self)
            if len(parts) > MOST_BUFFERS:
                parts = [b"".join(parts)]
            done = os.pwritev(self._descriptor, parts, self._at)
            if done < size:
                os.pwrite(self._descriptor, b"".join(parts)[done:], self._at + done)
            for part in parts:
                self._add_to_sums(part)
            if self._digest is not None:
                for each in bare:
                    self._digest.update(each)  # releases the interpreter lock meanwhile
                    self._bare_size += len(each)
            if self._at - self._synced > SYNC_BYTES:
                self._synced = self._at
                os.fdatasync(self._descriptor)
        except (OSError, StoreError) as error:
            self._fault(error)
            raise

    def _add_to_sums(self, octets: bytes) -> None:
        view = memoryview(octets)
        while view:
            room = CHUNK_BYTES - self._at % CHUNK_BYTES
            part = view[:room]
            self._sum = crc32(part, self._sum)
            self._at += len(part)
            if len(part) == room:
                self._sums.append(self._sum)
                self._sum = 0
            view = view[room:]

    def _finish(self) -> int:
        if self._failure is None:
            try:
                if self._descriptor < 0:
                    self._number, self._descriptor = self._bodies.directory.create()
                if os.fstat(self._descriptor).st_size != self._at:
                    raise StoreError(f"{self._bodies.directory.name(self._number)} was cut short")
                self._write_note()
                os.fdatasync(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = -1
                self._bodies.directory.sync()
            except (OSError, StoreError) as error:
                self._fault(error)
        if self._failure is not None:
            raise self._failure
        return self._number

    def _write_note(self) -> None:
        octets = b""
        if self._before is not None and self._digest is not None:
            name, digest = _name_of(self._before), self._digest.digest()
            octets = _NOTE.pack(_MARK, name, digest, self._bare_size)
        sums = self._sums if self._at % CHUNK_BYTES == 0 else [*self._sums, self._sum]
        packed = struct.pack(f">{len(sums)}I", *sums)
        octets += _SUMS.pack(_SUMS_MARK, CHUNK_BYTES, len(sums), crc32(packed)) + packed
        done = os.pwrite(self._descriptor, octets, self._at)
        if done < len(octets):
            os.pwrite(self._descriptor, octets[done:], self._at + done)  # raises the reason

    def _fault(self, error: Exception) -> None:
        if isinstance(error, OSError):
            error = in_words(error, self._bodies.directory.name(self._number))
        self._failure = error
        self._remove()

    def _remove(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._bodies.directory.remove(self._number)

    # On the reactor's thread.

    def _failed(self, failure: Failure) -> None:
        """Do nothing: `finish` reports the failure."""
        failure.trap(OSError, StoreError)  # type: ignore[no-untyped-call]

    def _finished(self, number: int) -> StoredBody:
        body = self._bodies.adopt(number, self.size)
        if self._before is not None and self._digest is not None:
            body.digested(self._before, self._digest.hexdigest(), self._bare_size)
        return body


class LargeBodies:
    """The body files, as the reactor's thread sees them.

    Args:
        directory: the directory of the files.
        reactor: the reactor for results of the threads.
        max_bytes: bound on the octets of all files, 0 for none.
    """

    def __init__(self, directory: BodyDirectory, reactor: ReactorCall, max_bytes: int = 0) -> None:
        self.directory = directory
        self.writing = IoThread(f"body writer {directory.path}", reactor)
        self.reading = IoThread(f"body reader {directory.path}", reactor)
        self._max_bytes = max_bytes
        self._known: WeakValueDictionary[int, StoredBody] = WeakValueDictionary()
        self._sizes: dict[int, int] = {}
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<LargeBodies {self.directory.path} {len(self._sizes)}>"

    @property
    def used_bytes(self) -> int:
        """Octets of the known body files."""
        return sum(list(self._sizes.values()))

    def draft(self, written: Callable[[int], None], before: bytes | None = None) -> BodyDraft:
        """See `IStore.draft`."""
        return BodyDraft(self, written, before)

    def adopt(self, number: int, size: int) -> StoredBody:
        """Return the body of a finished draft."""
        self._sizes[number] = size
        body = self._known[number] = StoredBody(self, number, size, is_named=False)
        return body

    def of_row(self, number: int, size: int, is_summed: bool) -> StoredBody:
        """Return the body that a row refers to."""
        body = self._known.get(number)
        if body is None:
            self._sizes[number] = size
            body = StoredBody(self, number, size, is_named=True, is_summed=is_summed)
            self._known[number] = body
        return body

    def named(self, bodies: Sequence[StoredBody]) -> None:
        """A commit names these."""
        for body in bodies:
            body.is_named = True

    def swept(self, numbers: Sequence[int]) -> None:
        """No row refers to these files any more."""
        for number in numbers:
            body = self._known.get(number)
            if body is not None:
                body.is_named = False
            else:
                self.discard(number)
        self.writing.start()

    def discard(self, number: int) -> None:
        """Remove a file. From any thread."""
        self._sizes.pop(number, None)
        if not self._is_closed:
            self.writing.leave(lambda: self.directory.remove(number))

    def require_room(self, draft: BodyDraft) -> None:
        """Refuse to continue a draft without room.

        Raises:
            StoreError: the configured limit is reached.
        """
        if self._max_bytes and self.used_bytes + draft.size > self._max_bytes:
            raise StoreError(f"no room in {self.directory.path}: the configured limit is reached")

    def close(self) -> Deferred[None]:
        """Remove what no row refers to, and end the threads."""
        for body in list(self._known.values()):
            if not body.is_named:
                self.discard(body.number)
        self._is_closed = True
        return self.writing.stop().addCallback(lambda _: self.reading.stop())
