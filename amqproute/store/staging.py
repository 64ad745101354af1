# SPDX-License-Identifier: Apache-2.0
"""Contents that are staged: files to which clients add until they publish them.

In AMQP 0-9 a client may send a body before the message: with file.stage, or with message.append to
a reference. A transfer that was cut goes on where it stood, over another connection and after a
restart of the broker. So what has come is kept in a directory beside the database, one file for
each content, and never in memory.

Nothing of a part is ever seen without the rest of it (`amqproute.store.staged_file`). The name of a
file says whose it is: ``f`` and the digest of owner and identifier for a content that its user
named when it began, which keeps all that was written; ``m`` and the digest for one named by a save,
which is taken back to its last mark. A file ``t`` and a number has no name yet: the next start
removes it. So one rename gives a content its name and takes the place of another one by that name.

Nothing here is tied to a commit. Whoever publishes a content reads it into the body of a message
and removes it when that message is committed; a crash between the two leaves a content that expires
later, and never a message without its body.

Why so: a body file begins with sections of AMQP 1.0 that follow from properties and size, which
come last here; and one content may become several messages. Copying it costs the disk one more
write, and needs no second kind of body, of backup and of check.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.errors import LocalProtocolError, MessageDamaged, StagedContentLost, StoreError
from amqproute.interfaces import IBodyReader, IStagedContent, IStaging
from amqproute.store.body_files import not_read
from amqproute.store.io_thread import IoThread, ReactorCall
from amqproute.store.staged_file import (
    NAME,
    RECORD,
    RECORD_BYTES,
    StagedFile,
    file_name,
    read_facts,
    read_record,
    remove_file,
)
from amqproute.store.staging_ledger import StagingLedger, StagingTerms

__all__ = ["StagedContent", "StagingDirectory"]

log = Logger()

_Key = tuple[str, str]
T = TypeVar("T")


def _nothing() -> None:
    """Do nothing."""


@implementer(IBodyReader)
class StagedReader:
    """Sequential reader of one staged content."""

    def __init__(self, content: StagedContent) -> None:
        self._content = content
        self._file: BinaryIO | None = None
        self._rest = b""
        self._dropped = 0
        self.left = content.size

    def read(self, size: int) -> Deferred[bytes]:
        """See `IBodyReader.read`."""
        size = min(size, self.left)
        self.left -= size
        content = self._content
        content.check()
        return content.staging.run(lambda: self._read(size))

    def skip(self, octets: int) -> None:
        """See `IBodyReader.skip`."""
        octets = min(octets, self.left)
        self.left -= octets
        self._dropped += octets

    def close(self) -> None:
        """See `IBodyReader.close`."""
        self.left = 0
        self._content.staging.thread.leave(self._close)

    def _read(self, size: int) -> bytes:
        if not size:
            return b""
        entry = self._content.entry.file
        entry.check()
        try:
            if self._file is None:
                self._file = open(entry.path, "rb", RECORD_BYTES)  # noqa: SIM115 - see `close`
                read_facts(self._file)
            while self._dropped:
                dropped = len(self._some(self._dropped))
                self._dropped -= dropped
            parts = []
            while size:
                part = self._some(size)
                parts.append(part)
                size -= len(part)
        except OSError as error:
            raise not_read(error, entry.path) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some(self, size: int) -> bytes:
        """Return some of the next octets."""
        while not self._rest:
            assert self._file is not None
            record = read_record(self._file)
            if record is None:
                raise MessageDamaged(f"{self._content.entry.file.path} is damaged or cut short")
            self._rest = record[1]
        part, self._rest = self._rest[:size], self._rest[size:]
        return part

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._rest = b""


class _Entry:
    """One content, as the reactor's thread sees it.

    Attributes:
        key: owner and identifier; the latter is empty while it has none.
        file: its file.
        expected: octets that it will have; 0 if that is unknown.
        size: octets in it, as far as is known.
        stored: octets of its file.
        charged: octets that it counts for.
        saved: octets at its last save, and of the file then.
        touched_ms: when something was added.
        holder: who adds to it; None for nobody.
    """

    __slots__ = (
        "charged",
        "expected",
        "file",
        "holder",
        "is_by_saves",
        "key",
        "saved",
        "size",
        "stored",
        "touched_ms",
    )

    def __init__(self, key: _Key, file: StagedFile, expected: int, is_by_saves: bool) -> None:
        self.key = key
        self.file = file
        self.expected = expected
        self.is_by_saves = is_by_saves
        self.size = self.stored = self.charged = 0
        self.saved = (0, 0)
        self.touched_ms = 0
        self.holder: StagedContent | None = None


@implementer(IStagedContent)
class StagedContent:
    """One party's hold on a content; see `IStagedContent`.

    Args:
        staging: the directory.
        entry: the content.
        written: called with the number of octets that have been written.
    """

    def __init__(
        self, staging: StagingDirectory, entry: _Entry, written: Callable[[int], None]
    ) -> None:
        self.staging = staging
        self.entry = entry
        self._written = written
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<StagedContent {self.entry.key} {self.size} octets>"

    @property
    def size(self) -> int:
        """See `IStagedContent.size`."""
        return self.entry.size

    @property
    def is_lost(self) -> bool:
        """See `IStagedContent.is_lost`."""
        return self.entry.holder is not self

    def check(self) -> None:
        """See `IStagedContent.check`."""
        if self.is_lost:
            raise StagedContentLost("the staged content was taken over, removed, or has expired")
        if self._failure is not None:
            raise self._failure

    def append(self, parts: Sequence[bytes]) -> None:
        """See `IStagedContent.append`."""
        self.check()
        size = sum(map(len, parts))
        if not size:
            return
        entry = self.entry
        self.staging.charge(entry, size)
        done = self.staging.run(lambda: entry.file.append(parts))
        done.addCallback(self._appended, size)
        done.addErrback(lambda failure: log.failure("{content}", failure, content=self))

    def _appended(self, _: object, size: int) -> None:
        self._failure = self.entry.file.failure
        self._written(size)

    def save(self, identifier: str | None = None) -> Deferred[int]:
        """See `IStagedContent.save`."""
        self.check()
        return self.staging.save(self, identifier)

    def reader(self) -> StagedReader:
        """See `IStagedContent.reader`."""
        self.check()
        self.staging.touch(self.entry)
        return StagedReader(self)

    def release(self) -> None:
        """See `IStagedContent.release`."""
        if not self.is_lost:
            self.staging.release(self.entry)

    def remove(self) -> None:
        """See `IStagedContent.remove`."""
        if not self.is_lost:
            self.staging.remove(self.entry)


@implementer(IStaging)
class StagingDirectory:
    """The directory of staged contents.

    Args:
        path: created by `open` if it is missing.
        reactor: the reactor for results of the thread.
        clock_ms: milliseconds since the epoch.
    """

    def __init__(self, path: str, reactor: ReactorCall, clock_ms: Callable[[], int]) -> None:
        self.path = path
        self.thread = IoThread(f"staging {path}", reactor)
        self.clock_ms = clock_ms
        self._reactor = reactor
        self._is_open = self._is_closed = False
        self._ledger = StagingLedger(StagingTerms())
        self._known: dict[_Key, _Entry] = {}
        self._nameless: set[_Entry] = set()
        self._numbers = itertools.count(1)

    @classmethod
    def of(
        cls, database: str, reactor: ReactorCall, clock_ms: Callable[[], int]
    ) -> StagingDirectory:
        """Return the directory of a database."""
        return cls(os.path.splitext(database)[0] + ".staged", reactor, clock_ms)

    def __repr__(self) -> str:
        return f"<StagingDirectory {self.path} {self._ledger!r}>"

    @property
    def terms(self) -> StagingTerms:
        """See `IStaging.terms`."""
        return self._ledger.terms

    @terms.setter
    def terms(self, terms: StagingTerms) -> None:
        self._ledger.terms = terms

    # -- opening and closing -------------------------------------------------------------------

    def open(self) -> Deferred[int]:
        """Return a Deferred of the number of contents found; it fails with `StoreError`."""
        self._is_open = True
        return self.thread.run(self._look).addCallback(self._found)

    def close(self) -> Deferred[None]:
        """Let go of everything, keep what has a name, and end the thread. Harmless when done."""
        if self._is_closed:
            return succeed(None)
        for entry in (*self._known.values(), *self._nameless):
            if entry.holder is not None:
                self.release(entry)
        self._is_closed = True
        return self.thread.stop()

    def _look(self) -> list[_Entry]:
        """Read the headers of all files, on the thread."""
        found = []
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            with os.scandir(self.path) as there:
                files = [each for each in there if NAME.fullmatch(each.name)]
            for each in files:
                with open(each.path, "rb") as file:
                    facts = read_facts(file)
                entry = None if facts is None else self._entry_of(each.name, facts)
                if entry is None:
                    remove_file(each.path)
                    continue
                status = each.stat()
                entry.size = entry.stored = status.st_size
                entry.touched_ms = int(status.st_mtime * 1000)
                found.append(entry)
        except OSError as error:
            raise not_read(error, self.path) from error
        return found

    def _entry_of(self, name: str, facts: dict[str, object]) -> _Entry | None:
        kind, owner, identifier = name[0], facts.get("owner"), facts.get("identifier")
        expected = facts.get("size")
        if kind == "t" or not isinstance(owner, str) or not isinstance(expected, int):
            return None
        is_by_saves = kind == "m"
        if is_by_saves:
            # It may have been renamed since: the digest says by which name it is found.
            identifier = name
        elif not isinstance(identifier, str) or file_name("f", owner, identifier) != name:
            return None
        file = self._file(name, is_by_saves)
        return _Entry((owner, identifier), file, expected, is_by_saves)

    def _found(self, entries: list[_Entry]) -> int:
        for entry in entries:
            self._known[entry.key] = entry
            entry.charged = max(entry.expected, entry.size)
            self._ledger.add(entry.key[0], entry.charged)
        self.expire()
        return len(self._known)

    # -- IStaging ------------------------------------------------------------------------------

    def use(self, owner: str | None = None) -> tuple[int, int]:
        """See `IStaging.use`."""
        return self._ledger.use(owner)

    def rows(self) -> list[tuple[str, str, int, int]]:
        """See `IStaging.rows`."""
        return [
            (each.key[0], each.key[1], each.size, each.touched_ms) for each in self._known.values()
        ]

    def expire(self) -> int:
        """See `IStaging.expire`."""
        before = self.clock_ms() - self.terms.lifetime_ms
        old = [
            each for each in (*self._known.values(), *self._nameless) if each.touched_ms <= before
        ]
        for entry in old:
            self.remove(entry)
        return len(old)

    def begin(
        self, owner: str, identifier: str | None, size: int, written: Callable[[int], None]
    ) -> Deferred[IStagedContent]:
        """See `IStaging.begin`."""
        key = (owner, identifier or "")
        entry = None if identifier is None else self._known.get(key)
        if entry is not None and entry.expected == size:
            return self._load(entry, written).addCallback(
                lambda content: content or self._create(key, size, written)
            )
        if entry is not None:
            self.remove(entry)
        return self._create(key, size, written)

    def resume(
        self, owner: str, identifier: str, written: Callable[[int], None]
    ) -> Deferred[IStagedContent | None]:
        """See `IStaging.resume`."""
        entry = self._known.get((owner, file_name("m", owner, identifier)))
        if entry is None:
            return self.run(_nothing)
        return self._load(entry, written)

    def _create(
        self, key: _Key, size: int, written: Callable[[int], None]
    ) -> Deferred[IStagedContent]:
        owner, identifier = key
        try:
            self._ledger.check(owner, size)
        except StoreError as error:
            return self._failing(error)
        name = file_name("f", owner, identifier) if identifier else f"t{next(self._numbers):012d}"
        entry = _Entry(key, self._file(name, not identifier), size, not identifier)
        entry.charged = size
        self._ledger.add(owner, size)
        if identifier:
            self._known[key] = entry
        else:
            self._nameless.add(entry)
        self.touch(entry)
        entry.holder = content = StagedContent(self, entry, written)
        facts: dict[str, object] = {"owner": owner, "identifier": identifier, "size": size}

        def not_created(failure: Failure) -> Failure:
            if not content.is_lost:
                self.remove(entry)
            return failure

        made = self.run(lambda: entry.file.create(facts))
        return made.addCallbacks(lambda _: content, not_created)

    def _failing(self, error: StoreError) -> Deferred[Any]:
        """Return a Deferred that fails in a later turn."""

        def fail() -> None:
            raise error

        return self.run(fail)

    def run(self, function: Callable[[], T]) -> Deferred[T]:
        """Run a function on the thread, which fails when this is closed.

        Raises:
            LocalProtocolError: this is not open.
        """
        if not self._is_open:
            raise LocalProtocolError("the store is not open")
        if not self._is_closed:
            return self.thread.run(function)
        closed: Deferred[T] = Deferred()
        self._reactor.callFromThread(closed.errback, StoreError("the store is closed"))
        return closed

    def _load(
        self, entry: _Entry, written: Callable[[int], None]
    ) -> Deferred[IStagedContent | None]:
        """Take a content over."""
        entry.holder = content = StagedContent(self, entry, written)
        self.touch(entry)
        loaded: Deferred[int | None] = self.run(entry.file.load)
        return loaded.addCallback(self._loaded, content)

    def _loaded(self, size: int | None, content: StagedContent) -> StagedContent | None:
        content.check()
        entry = content.entry
        if size is None:
            self.remove(entry)
            return None
        entry.size, entry.stored = entry.saved = size, entry.file.stored
        self._charge_anew(entry)
        return content

    def _file(self, name: str, is_by_saves: bool) -> StagedFile:
        return StagedFile(self.path, name, is_by_saves, lambda: self.clock_ms())

    # -- contents ------------------------------------------------------------------------------

    def touch(self, entry: _Entry) -> None:
        """Something has happened to a content."""
        entry.touched_ms = self.clock_ms()

    def charge(self, entry: _Entry, octets: int) -> None:
        """Count octets that are added.

        Raises:
            StagingFull: a bound is reached.
        """
        # A record has a head: who adds octet by octet pays for it.
        stored = octets + RECORD.size * -(-octets // RECORD_BYTES)
        wanted = max(0, entry.stored + stored - entry.charged)
        self._ledger.check_growth(entry.key[0], entry.size + octets, wanted)
        self._ledger.grow(entry.key[0], wanted)
        entry.charged += wanted
        entry.size += octets
        entry.stored += stored
        self.touch(entry)

    def _charge_anew(self, entry: _Entry) -> None:
        wanted = max(entry.expected, entry.stored)
        self._ledger.grow(entry.key[0], wanted - entry.charged)
        entry.charged = wanted

    def save(self, content: StagedContent, identifier: str | None) -> Deferred[int]:
        """See `IStagedContent.save`."""
        entry = content.entry
        name: str | None = None
        undo: Callable[[], None] = _nothing
        if identifier is not None and entry.is_by_saves:
            name = file_name("m", entry.key[0], identifier)
            undo = self._rename(entry, name)
        self.touch(entry)

        # It counts from now on, also if it is let go before all of it is on the disk.
        entry.stored += RECORD.size
        before, entry.saved = entry.saved, (entry.size, entry.stored)

        def not_saved(failure: Failure) -> Failure:
            entry.saved = min(entry.saved, before)
            undo()
            return failure

        return self.run(lambda: entry.file.save(name)).addErrback(not_saved)

    def _rename(self, entry: _Entry, name: str) -> Callable[[], None]:
        """Have a content found by a name, in the place of another; return what undoes that."""
        before, was_nameless = entry.key, entry in self._nameless
        key = (before[0], name)
        other = self._known.get(key)
        if other is entry:
            return _nothing
        if other is not None:
            # Its file gives way to the rename.
            self._forget(other)
            self.thread.leave(other.file.close)
        self._forget_name(entry)
        entry.key = key
        self._known[key] = entry

        def undo() -> None:
            if self._known.get(key) is not entry:
                return  # something has become of it meanwhile
            del self._known[key]
            entry.key = before
            if was_nameless:
                self._nameless.add(entry)
                if entry.holder is None:
                    self.remove(entry)
            else:
                self._known[before] = entry
            if other is not None:
                self._known[key] = other
                self._ledger.add(key[0], other.charged)

        return undo

    def release(self, entry: _Entry) -> None:
        """Nobody holds a content any more."""
        if entry in self._nameless:
            self.remove(entry)
            return
        entry.holder = None
        if entry.is_by_saves:
            entry.size, entry.stored = entry.saved
            self._charge_anew(entry)
        self.thread.leave(entry.file.close)

    def remove(self, entry: _Entry) -> None:
        """Remove a content."""
        self._forget(entry)
        self.thread.start()
        self.thread.leave(entry.file.remove)

    def _forget(self, entry: _Entry) -> None:
        entry.holder = None
        self._forget_name(entry)
        self._ledger.remove(entry.key[0], entry.charged)

    def _forget_name(self, entry: _Entry) -> None:
        self._nameless.discard(entry)
        if self._known.get(entry.key) is entry:
            del self._known[entry.key]
