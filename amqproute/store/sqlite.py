# SPDX-License-Identifier: Apache-2.0
"""SqliteStore: the store as the reactor's thread sees it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.durable_path import sync_path
from amqproute.entry import ACCOUNT_SHIFT
from amqproute.errors import LocalProtocolError, StoreDamaged, StoreError, StoreUnavailable
from amqproute.interfaces import IOutbox, IStore
from amqproute.store import database_schema
from amqproute.store.body_files import BodyDirectory
from amqproute.store.checksums import crc_of_note, crc_of_queue, crc_of_receipt, is_sound
from amqproute.store.database_files import DatabaseFiles
from amqproute.store.db_writer import (
    DatabaseWriter,
    IReactorThreads,
    WriterCall,
    WriterFigures,
    WriterStop,
)
from amqproute.store.large_bodies import BodyDraft, StoredBody
from amqproute.store.mark import State
from amqproute.store.model import (
    QUARANTINE_NUMBER,
    QueueNumbers,
    QueueSummary,
    StoredEntry,
    StoreRecovery,
    StoreRoom,
    is_worth_a_try,
)
from amqproute.store.page_reader import EXPIRED, IDS, LOAD, NOBODYS, EntryPage, PageReader
from amqproute.store.pending_commit import PendingCommit
from amqproute.store.quarantine import QuarantineFolder
from amqproute.store.seal import SealState
from amqproute.store.staging import StagingDirectory
from amqproute.store.start_evidence import (
    LossAcceptance,
    StartEvidence,
    StoreFinding,
    Witness,
    entry_totals_of,
    examine,
    refusal,
)
from amqproute.store.statements import purge_transient, read_receipt
from amqproute.store.store_listener import StoreListener
from amqproute.store.store_sizes import StoreSizes

log = Logger()

ID_BLOCK: Final = 1 << 24
"""Ids that may be assigned before the bound in the database has to move."""
SHRINK_SECONDS: Final = 30.0
"""Time after which the database, when it could not be shrunk, is tried again; at once where there
is more room by then (`is_worth_a_try`)."""
DEFAULT_SIZES: Final = StoreSizes()
MOST_PAGES: Final = 0xFFFFFFFE
"""SQLite's own bound."""
FILED: Final = (
    "SELECT queue, sum(body_length) FROM entry INDEXED BY entry_payload"
    " WHERE payload IS NOT NULL AND payload < 0 AND body_start IS NULL GROUP BY queue"
)
"""Octets of bodies in files of their own, by the number of the queue."""
LOCK_TRIES: Final = 4
LOCK_SECONDS: Final = 0.1
"""Number of attempts to lock a file that is locked, and the pause between them."""
EVERYTHING: Final = 1 << 62
PURGE: Final = 10_000
"""Transient entries deleted in one transaction at the start."""


@implementer(IStore)
class SqliteStore:
    """Entries, receipts and notes in one SQLite database.

    Args:
        path: the database file; its directory is made if it is missing.
        reactor: the reactor for the way back from the writer's thread.
        clock_ms: dates receipts, milliseconds; called in any thread.
        sizes: the sizes of the files.
        connect: opens a connection; tests supply a faulty one.
        listener: notified of failures.
        outbox: notified of commits; None for nobody.
        witness: says which messages there should be, where the seal cannot; called on the writer's
            thread. None without a journal.

    Attributes:
        quarantined: number of damaged entries, which are kept and not delivered.
        staging: see `IStore`.
    """

    def __init__(
        self,
        path: str,
        reactor: IReactorThreads,
        *,
        clock_ms: Callable[[], int],
        sizes: StoreSizes = DEFAULT_SIZES,
        connect: database_schema.Connect = database_schema.connect,
        listener: StoreListener | None = None,
        outbox: IOutbox | None = None,
        witness: Witness | None = None,
    ) -> None:
        self._files = DatabaseFiles(path, reactor, sizes, connect)
        self.path = self._files.path
        self._sizes = sizes
        self._numbers = QueueNumbers()
        self._acceptance = LossAcceptance(self.path)
        self._evidence = StartEvidence()
        self._witness = witness
        self._quarantine = QuarantineFolder(self.path)
        self._why = ""
        self._accepted = ("", False)
        self._state: State | None = None
        self._turn = self._round = 0
        self._is_marked = True
        self._shrink_at = 0.0
        self._least_free = 0  # since it could not be made smaller
        self._listener = listener or StoreListener()
        self._writer = DatabaseWriter(
            self._files,
            reactor,
            self._numbers,
            sizes,
            clock_ms=clock_ms,
            on_round=self._begin_round,
            listener=self._listener,
            outbox=outbox,
        )
        self._is_sealing = True
        self.quarantined = 0
        self.staging = StagingDirectory.of(self.path, reactor, clock_ms)
        self._reader = PageReader(
            self._connection, self._files.segments, self.path, self._writer.has_proved_damaged
        )
        self._started = False
        self._closed: Deferred[None] | None = None
        self._next = 0
        self._reserve_at = 0
        self._reserved = 0
        self._submitted = 0

    def __repr__(self) -> str:
        state = "closed" if self._writer.death else "open" if self._reserved else "new"
        return f"<SqliteStore {self.path} {state} waiting={self._writer.pending()}>"

    # Opening and closing.

    def open(self) -> Deferred[StoreRecovery]:
        """See `IStore.open`."""
        if self._started:
            raise LocalProtocolError("a store is opened once")
        self._started = True
        opened: Deferred[StoreRecovery] = Deferred()
        self._writer.start()
        self._writer.submit(WriterCall(self._open, opened, vital=True))
        return opened.addCallback(self._open_staging)

    def _open_staging(self, recovery: StoreRecovery) -> Deferred[StoreRecovery]:
        return self.staging.open().addCallback(lambda _: recovery)

    def close(self) -> Deferred[None]:
        """See `IStore.close`. Harmless if it is closed, or was not opened."""
        if not self._started:
            self._started = True
            return succeed(None)
        if self._closed is None:
            self._closed = Deferred()
            self._writer.submit(
                WriterCall(partial(self._close, self._next), self._closed, vital=True)
            )
            self._closed.addErrback(_ignore_closed, self._writer)
            self._closed.addCallback(lambda _: self._files.bodies.close())
            self._closed.addCallback(lambda _: self.staging.close())
        follower: Deferred[None] = Deferred()
        self._closed.chainDeferred(follower)
        return follower

    # Work.

    def next_id(self) -> int:
        """See `IStore.next_id`.

        Raises:
            StoreError: the durable bound of ids could not be moved for a very long time.
        """
        entry_id = self._next
        self._next = entry_id + 1
        if entry_id >= self._reserve_at:
            self._reserve(entry_id)
        return entry_id

    def begin(self) -> PendingCommit:
        """See `IStore.begin`."""
        return PendingCommit(self._numbers, self._commit, self._sizes.file_bytes)

    def draft(self, written: Callable[[int], None], before: bytes | None = None) -> BodyDraft:
        """See `IStore.draft`."""
        return self._files.bodies.draft(written, before)

    def load(
        self, queue: str, after_id: int, limit: int, limit_bytes: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """See `IStore.load`. Returns at least one entry, even if it exceeds `limit_bytes`."""
        return self._read(LOAD, queue, after_id, limit, max(1, limit_bytes))

    def expired(
        self, queue: str, now_ms: int, after_id: int, limit: int
    ) -> Deferred[Sequence[StoredEntry]]:
        """See `IStore.expired`."""
        return self._read(EXPIRED, queue, after_id, now_ms, limit)

    def names(self) -> list[str]:
        """See `IStore.names`."""
        return [name for name, number in self._numbers.items() if number != QUARANTINE_NUMBER]

    def ids(self, queue: str, after_id: int, limit: int) -> Deferred[Sequence[int]]:
        """See `IStore.ids`."""
        if not self._reserved:
            raise LocalProtocolError("the store is not open")
        found: Deferred[Sequence[int]] = Deferred()
        parameters = (self._numbers.get(queue, 0), after_id, limit)
        self._writer.submit(WriterCall(partial(self._ids, parameters), found))
        return found

    def room(self) -> Deferred[StoreRoom]:
        """See `IStore.room`."""
        if not self._reserved:
            raise LocalProtocolError("the store is not open")
        measured: Deferred[StoreRoom] = Deferred()
        self._writer.submit(WriterCall(self._measure, measured))
        return measured

    @property
    def figures(self) -> WriterFigures:
        """The counters of the writer."""
        return self._writer.figures

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for the writer."""
        return self._writer.pending()

    def statistics(self) -> dict[str, float]:
        """Counters since the start, times in seconds, sizes in bytes."""
        figures = self._writer.figures
        room = os.statvfs(os.path.dirname(self.path))
        return {
            "submitted": self._submitted,
            "commits": figures.commits,
            "transactions": figures.transactions,
            "entries": figures.entries,
            "entries_per_commit": figures.entries / max(1, figures.commits),
            "failed_transactions": figures.failed,
            "waiting": self._writer.pending(),
            "last_commit_seconds": figures.last_commit_seconds,
            "max_commit_seconds": figures.max_commit_seconds,
            "log_restarts": self._writer.log_restarts(),
            "wal_bytes": _size(f"{self.path}-wal"),
            "segment_bytes": self._files.segments.segment_bytes,
            "body_bytes": self._files.bodies.used_bytes,
            "db_bytes": _size(self.path),
            "free_bytes": room.f_bavail * room.f_frsize,
        }

    # The reactor's side of the above.

    def _commit(self, transaction: PendingCommit) -> Deferred[None]:
        if not self._reserved:
            raise LocalProtocolError("the store is not open")
        if transaction.bodies:
            transaction.deferred.addCallback(self._named, transaction.bodies)
        if transaction.quarantined:
            transaction.deferred.addCallback(self._moved_aside, transaction.quarantined)
        self._submitted += 1
        self._writer.submit(transaction)
        return transaction.deferred

    def _moved_aside(self, _: None, count: int) -> None:
        self.quarantined += count

    def _named(self, _: None, bodies: Sequence[StoredBody]) -> None:
        self._files.bodies.named(bodies)

    def _read(
        self, chosen: str, queue: str, after_id: int, *bounds: int
    ) -> Deferred[Sequence[StoredEntry]]:
        if not self._reserved:
            raise LocalProtocolError("the store is not open")
        read: Deferred[EntryPage] = Deferred()
        number = self._numbers.get(queue, 0)
        ask = partial(self._reader.page, chosen, number, after_id, *bounds)
        self._writer.submit(WriterCall(ask, read))
        return read.addCallback(self._has_read, queue)

    def _has_read(self, page: EntryPage, queue: str) -> Sequence[StoredEntry]:
        if page.damages:
            self.quarantined += len(page.damages)
            for damage in page.damages:
                log.error(
                    "{path}: entry {entry} of {queue} is damaged and will not be delivered: {why}; "
                    "it is kept in quarantine",
                    path=self.path,
                    entry=damage.entry_id,
                    queue=queue,
                    why=damage.why,
                )
            self._listener.entries_damaged(queue, page.damages)
        for entry in page.entries:
            if entry.rest is not None:
                entry.rest = self._files.bodies.of_row(*entry.rest)
        return page.entries

    def _reserve(self, entry_id: int) -> None:
        """Move the bound of ids, long before it is reached.

        Peers see ids without a commit of ours (entries that are not durable), so a bound above
        them has to be durable, or a restart after a crash would use ids again.
        """
        if entry_id >= self._reserved:
            self._next = entry_id
            raise StoreError(
                f"{self.path}: no write has succeeded for {ID_BLOCK // 2} messages: see its "
                "earlier errors"
            )
        self._reserve_at = entry_id + ID_BLOCK // 64  # a failure is tried again later
        bound = entry_id + ID_BLOCK
        reserved: Deferred[None] = Deferred()
        reserved.addCallbacks(self._reservation_held, self._reservation_failed, (bound,))
        self._writer.submit(WriterCall(partial(self._save_bound, bound), reserved))

    def _reservation_held(self, _: None, bound: int) -> None:
        self._reserved = bound
        self._reserve_at = bound - ID_BLOCK // 2

    def _reservation_failed(self, failure: Failure) -> None:
        log.warn("{path}: cannot reserve ids: {error}", path=self.path, error=str(failure.value))

    # The writer's side of the above.

    def _open(self) -> StoreRecovery:
        self._make_directory()
        self._lock()
        self._examine()
        self._make_file()
        try:
            return self._open_database()
        except Exception as error:
            # A full disk: the store has to be open for consumers to empty it.
            words = database_schema.in_words(error, self.path)
            if not isinstance(words, StoreUnavailable):
                raise
            self._writer.let_go()
            if not self._files.ballast.drop("start") and not self._fold_log():
                raise
            return self._open_database()

    def _fold_log(self) -> bool:
        """Copy the log into the database and remove it without creating a file; True if it worked.

        For a disk without room even for the log's index: a lone connection keeps that in memory.
        """
        connection = self._files.connect(self.path)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
            (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            log.warn(
                "{path}: cannot copy its write-ahead log into it: {error}",
                path=self.path,
                error=str(error),
            )
            return False
        finally:
            connection.close()
        log.warn("{path}: the disk is full; its log was copied and removed", path=self.path)
        return not is_busy

    def _open_database(self) -> StoreRecovery:
        connection = self._writer.connection = self._files.connect(self.path)
        database_schema.prepare(
            connection,
            self.path,
            page_size=self._sizes.page_size,
            max_bytes=self._sizes.max_bytes,
            check_bytes=EVERYTHING if self._files.suspicion.stands() else self._sizes.check_bytes,
        )
        self._files.suspicion.dispel()
        put_aside = None
        if not self._evidence.is_sealed:
            put_aside = partial(self._quarantine.take, why="no row of the database names it")
        removed = self._files.segments.recover(connection, self.path, put_aside)
        self._quarantine.report(self._why)
        purged = 0
        while True:
            done = purge_transient(connection, PURGE, self._files.segments)
            purged += done
            if done < PURGE:
                break
        recovery = self._recover(connection)
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        bound = meta.get("next_id", 1)
        if "mark" in meta or self._files.mark.exists():
            self._state = (meta.get("mark", 0), bound)
            recovery.is_restored = self._state not in self._files.mark.read()
        (last,) = connection.execute(
            "SELECT max(ifnull((SELECT max(id) FROM entry), 0),"
            " ifnull((SELECT max(id) FROM payload), 0))"
        ).fetchone()
        self._turn, self._round = meta.get("turn", 0), meta.get("round", 0)
        # After an accepted finding, or a restore, the seal was moved away.
        if self._turn and self._evidence.finding is None and not self._files.seal.exists():
            log.warn(
                "{path} is missing: cannot verify that the store holds all that it held last; "
                "a new file is written",
                path=self._files.seal.path,
            )
        self._next = max(last + 1, bound)
        self._writer.watch_log()
        if self._files.seal.read() is None:
            # First, since a crash between mark and seal would look like a lost seal.
            state = self._state or (0, 1)
            self._write_seal(SealState(self._turn, self._round, *state))
        self._save_bound(self._next + ID_BLOCK)
        self._reservation_held(None, self._next + ID_BLOCK)
        if not self._files.ballast.load() and self._files.ballast.size > self._free():
            self._writer.yield_turn("start")
        # SQLite syncs the name of its log only.
        sync_path(os.path.dirname(self.path))
        recovery.accepted, recovery.tells_senders = self._accepted
        recovery.is_restored |= bool(self._accepted[0]) and "mark" in meta
        log.info(
            "{path}: {entries} entries on {queues} queues, {purged} transient entries deleted, "
            "{removed} unreferenced files {removed_how}",
            path=self.path,
            entries=sum(summary.count for summary in recovery.queues.values()),
            queues=len(recovery.queues),
            purged=purged,
            removed=removed,
            removed_how="removed" if put_aside is None else "moved to quarantine",
        )
        return recovery

    def _recover(self, connection: sqlite3.Connection) -> StoreRecovery:
        recovery = StoreRecovery()
        self._read_small_rows(connection, recovery)
        names = self._read_names(connection)
        count = total = 0
        filed = dict(connection.execute(FILED))
        for number, ids, *summary in connection.execute(
            "SELECT *, (SELECT arrived FROM entry WHERE id = first) FROM"
            " (SELECT queue, sum(id & 4294967295), count(*), sum(size), min(id) AS first, max(id)"
            " FROM entry INDEXED BY entry_queue GROUP BY queue)"
        ):
            count += summary[0]
            total += ids
            if number == QUARANTINE_NUMBER:
                self.quarantined = recovery.quarantined = summary[0]
                continue
            if number not in names:
                raise StoreDamaged(
                    database_schema.damaged(self.path, f"queue {number} has no name")
                )
            found = QueueSummary(*summary)
            recovery.queues[names[number]] = replace(found, filed_bytes=filed.get(number, 0))
        self._writer.entry_totals = count, total
        connection.execute(NOBODYS)  # entries quarantined while a consumer held them
        for account, *held in connection.execute(
            f"SELECT flags >> {ACCOUNT_SHIFT} AS account, count(*),"  # noqa: S608
            " sum(size + CASE WHEN body_start IS NULL THEN ifnull(body_length, 0) ELSE 0 END)"
            " FROM entry INDEXED BY entry_account WHERE flags > 255 GROUP BY account"
        ):
            recovery.accounts[account] = (held[0], held[1])
        empty = [(number,) for number, name in names.items() if name not in recovery.queues]
        connection.execute("BEGIN")
        connection.executemany("DELETE FROM queue WHERE number = ?", empty)
        connection.execute("COMMIT")
        self._numbers.restore(
            (number, name) for number, name in names.items() if name in recovery.queues
        )
        recovery.outbox = list(
            connection.execute("SELECT number, octets FROM outbox ORDER BY number")
        )
        return recovery

    def _read_small_rows(self, connection: sqlite3.Connection, recovery: StoreRecovery) -> None:
        """Read receipts and notes.

        Raises:
            StoreDamaged: one of them does not match its checksum, or is not text.
        """
        with _lenient(connection):
            self._read_receipts_and_notes(connection, recovery)

    def _read_receipts_and_notes(
        self, connection: sqlite3.Connection, recovery: StoreRecovery
    ) -> None:
        received: dict[str, set[int]] = {}
        for stream, *row, crc in connection.execute(
            "SELECT stream, low, high, at, steps, row_crc FROM receipt"
        ):
            if not is_sound(crc_of_receipt, (stream, *row), crc):
                raise StoreDamaged(self._damaged_row("receipt", f"of {stream!r}", crc))
            try:
                receipt = read_receipt(*row)
            except (TypeError, ValueError):
                raise StoreDamaged(self._damaged_row("receipt", f"of {stream!r}", crc)) from None
            received.setdefault(stream, set()).update(receipt.ids())
            recovery.received_ms = max(recovery.received_ms, receipt.at_ms)
        recovery.received = {stream: sorted(ids) for stream, ids in received.items()}
        for kind, key, value, crc in connection.execute(
            "SELECT kind, key, value, row_crc FROM note"
        ):
            if not is_sound(crc_of_note, (kind, key, value), crc):
                raise StoreDamaged(self._damaged_row("note", f"{kind!r} {key!r}", crc))
            recovery.notes.setdefault(kind, {})[key] = value

    def _read_names(self, connection: sqlite3.Connection) -> dict[int, str]:
        names: dict[int, str] = {}
        with _lenient(connection):
            for number, name, crc in connection.execute("SELECT number, name, row_crc FROM queue"):
                if not is_sound(crc_of_queue, (number, name), crc):
                    raise StoreDamaged(self._damaged_row("queue", f"{number} ({name!r})", crc))
                names[number] = name
        return names

    def _damaged_row(self, table: str, which: str, crc: object) -> str:
        """Return the error text for a damaged small row, and what to do about it."""
        if crc is None:
            return database_schema.damaged(self.path, f"the {table} {which} is not text")
        where = f"WHERE row_crc = {crc}"
        take = f"UPDATE {table} SET row_crc = NULL {where}"  # noqa: S608 - for reading
        give_up = f"DELETE FROM {table} {where}"  # noqa: S608 - for reading
        what, otherwise = {
            "receipt": (
                "the receipt",
                f"to drop it (messages of that peer may be delivered twice): sqlite3 {self.path} "
                f"'{give_up}'",
            ),
            "note": (
                "the note",
                f"to drop it: sqlite3 {self.path} '{give_up}'",
            ),
            "queue": (
                "the name of queue",
                f'to correct it: sqlite3 {self.path} "UPDATE queue SET row_crc = NULL, '  # noqa: S608
                f"name = 'NAME' {where}\"",
            ),
        }[table]
        return (
            f"the database {self.path} is damaged: {what} {which} does not match its checksum. "
            "Copy the state directory first. To recover everything else: amqproute store salvage. "
            f"To accept it as it is: sqlite3 {self.path} "
            f"'{take}' ; {otherwise}"
        )

    def _close(self, next_id: int) -> None:
        connection = self._writer.connection
        if connection is not None:
            try:
                self._writer.copy_log()
                self._save_bound(next_id)
                if self._writer.copy_log() and self._files.seal.state is not None:
                    entry_totals = entry_totals_of(connection)
                    sealed = replace(
                        self._files.seal.state, is_copied=True, entry_totals=entry_totals
                    )
                    self._write_seal(sealed)
                    self._write_seal(sealed)  # in both slots: neither is needed alone
                self._writer.finish_log()
            except sqlite3.Error as error:
                # Nothing is lost: the next start reads the log and skips some ids.
                log.warn(
                    "{path}: {error}",
                    path=self.path,
                    error=str(database_schema.in_words(error, self.path)),
                )
        raise WriterStop

    def _save_bound(self, bound: int) -> None:
        connection = self._writer.connection
        assert connection is not None
        before, after = self._state, (secrets.randbits(63), bound)
        turn, round_ = self._turn + 1, self._round + self._writer.is_log_copied
        self._write_mark([after] if before is None else [before, after])
        connection.execute(
            "INSERT OR REPLACE INTO meta (key, value)"
            " VALUES ('next_id', ?), ('mark', ?), ('turn', ?), ('round', ?)",
            (bound, after[0], turn, round_),
        )
        self._state, self._turn, self._round = after, turn, round_
        self._write_seal(self._sealed(after))
        self._write_mark([after])

    def _sealed(self, state: State, is_copied: bool = False) -> SealState:
        """Return the present state for the seal."""
        writer = self._writer
        position = writer.log_position
        return SealState(self._turn, self._round, *state, position, is_copied, writer.entry_totals)

    def _write_seal(self, sealed: SealState) -> None:
        try:
            self._files.seal.write(sealed)
        except OSError as error:
            # The old contents were true; the next start knows by the turn that they are older.
            if self._is_sealing:
                log.warn(
                    "cannot write {path}: {error}", path=self._files.seal.path, error=str(error)
                )
            self._is_sealing = False
        else:
            self._is_sealing = True

    def _begin_round(self) -> None:
        """Seal the store: all commits are in the database, and the log restarts."""
        connection, state = self._writer.connection, self._state
        assert connection is not None
        assert state is not None
        self._write_seal(self._sealed(state, is_copied=True))
        connection.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('round', ?)", (self._round + 1,)
        )
        self._round += 1
        self._files.seal.state = self._sealed(state)
        self._writer.note_seal()

    def _write_mark(self, states: list[State]) -> None:
        try:
            self._files.mark.write(states)
        except OSError as error:
            # The next start then treats the database as restored, which loses nothing.
            if self._is_marked:
                log.warn(
                    "cannot write {path}: {error}; if this persists, the next start treats the "
                    "store as restored from a backup",
                    path=self._files.mark.path,
                    error=str(error),
                )
            self._is_marked = False
        else:
            self._is_marked = True

    def _measure(self) -> StoreRoom:
        connection = self._writer.connection
        assert connection is not None
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (reusable,) = connection.execute("PRAGMA freelist_count").fetchone()
        if self._shrinks(pages * size, reusable * size) and self._shrink(connection):
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (reusable,) = connection.execute("PRAGMA freelist_count").fetchone()
        if self._files.ballast.load() or self._free() >= 2 * self._files.ballast.size:
            self._thaw(connection, size)
        self._files.segments.release_spares(
            self._writer.is_frozen or self._free() < 2 * self.plenty
        )
        if self._state is not None and self._state not in self._files.mark.read():
            # It was linked, or its owner was changed; after a crash it would look like a copy.
            self._write_mark([self._state])
        room = os.statvfs(os.path.dirname(self.path))
        not_copied = max(0, pages * size - os.stat(self.path).st_size)
        return StoreRoom(
            free=max(0, room.f_bavail * room.f_frsize - not_copied),
            total=room.f_blocks * room.f_frsize,
            is_short=self._writer.is_frozen and reusable * size < self.plenty,
            plenty=self.plenty,
            reusable=reusable * size,
            used=(pages - reusable) * size
            + self._files.segments.segment_bytes
            + self._files.bodies.used_bytes,
        )

    def _shrinks(self, size: int, reusable: int) -> bool:
        """Tell whether room is short on the file system, and the database has much unused room.

        The used part of the database has to fit into the log, through which it is rewritten.
        """
        free = self._free()
        if not (free < self.plenty <= reusable and size - reusable <= self._files.ballast.size):
            return False
        least = self._least_free = min(free, self._least_free)
        return time.monotonic() >= self._shrink_at or is_worth_a_try(free, least)

    def _shrink(self, connection: sqlite3.Connection) -> bool:
        """Return the room of an emptied database, and of its log, to the file system."""
        before = self._free()
        try:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            self._shrink_at = time.monotonic() + SHRINK_SECONDS
            self._least_free = before
            log.warn("cannot shrink {path}: {error}", path=self.path, error=str(error))
            return False
        log.info(
            "shrunk {path}: {size} bytes are free again",
            path=self.path,
            size=self._free() - before,
        )
        return True

    @property
    def plenty(self) -> int:
        """Octets of room at which messages are accepted again after the disk was full.

        Free for users other than root, so that the ballast can be created again; or in unused pages
        of the database, into which messages go while it may not grow.
        """
        return 2 * self._files.ballast.size

    def _free(self) -> int:
        room = os.statvfs(os.path.dirname(self.path))
        return room.f_bavail * room.f_frsize

    def _thaw(self, connection: sqlite3.Connection, page_size: int) -> None:
        """Let the database grow again after `DatabaseWriter.yield_turn`."""
        if self._writer.is_frozen:
            self._writer.is_frozen = self._files.seal.is_careful = False
            most = self._sizes.max_bytes // page_size if self._sizes.max_bytes else MOST_PAGES
            connection.execute(f"PRAGMA max_page_count={max(1, most)}").fetchone()

    def _connection(self) -> sqlite3.Connection:
        assert self._writer.connection is not None
        return self._writer.connection

    def _ids(self, parameters: tuple[int, int, int]) -> list[int]:
        assert self._writer.connection is not None
        return [entry_id for (entry_id,) in self._writer.connection.execute(IDS, parameters)]

    def _examine(self) -> None:
        """Compare the files with the evidence about them; see `amqproute.store.start_evidence`.

        Raises:
            StoreContradiction: something is missing that was on the disk.
        """
        evidence = self._evidence = examine(self.path, self._witness)
        self._accepted = self._acceptance.read()
        for words in evidence.notes:
            log.warn("{words}", words=words)
        if self._accepted[0]:
            self._why = f"the operator has accepted the finding {self._accepted[0]}"
        finding = evidence.finding
        if finding is None:
            if evidence.is_sealed and not evidence.has_log and evidence.sealed is not None:
                if not evidence.sealed.is_copied:
                    # Before anything is written: the next log is another one.
                    self._write_seal(replace(evidence.sealed, is_copied=True))
            else:
                self._why = self._why or "the seal cannot tell whether rows are missing"
            return
        if self._accepted[0] == finding.name:
            log.warn(
                "{words}. An operator has accepted this loss ({name}): opening the store",
                words=finding.words,
                name=finding.name,
            )
        elif evidence.is_restore:
            self._why = "the store was restored"
            log.warn("{words}; the mark is gone: treated as a restore", words=finding.words)
        else:
            raise refusal(finding)
        self._set_aside(finding)

    def _set_aside(self, finding: StoreFinding) -> None:
        """Move the files that contradict each other to quarantine."""
        take = partial(self._quarantine.take, why=f"contradicts ({finding.name})")
        log_path = f"{self.path}-wal"
        if finding.code == "database-missing":
            bodies = BodyDirectory.of(self.path)
            for number in bodies.look():
                take(bodies.name(number))
            take(self.path)
        if finding.drops_log:
            take(log_path)
        else:
            self._quarantine.copy(log_path, f"as it was found ({finding.name})")
        take(f"{self.path}-shm")
        # Last, since without them there is no contradiction.
        take(self._files.mark.path)
        take(self._files.seal.path)
        sync_path(os.path.dirname(self.path))
        self._quarantine.report(self._why)

    def settle_loss(self) -> None:
        """Forget that an operator has accepted a loss, after everything was done about it.

        Raises:
            OSError: that could not be recorded.
        """
        self._acceptance.remove()
        self._accepted = ("", False)

    def _make_directory(self) -> None:
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            if os.path.exists(self.path):
                os.close(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
            elif not os.access(os.path.dirname(self.path), os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise StoreError(f"cannot open {self.path} for writing: {error.strerror}") from error

    def _make_file(self) -> None:
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            os.close(descriptor)
        except OSError as error:
            raise StoreError(f"cannot open {self.path} for writing: {error.strerror}") from error
        mode = os.stat(self.path).st_mode & 0o777
        if mode & 0o077:
            log.warn(
                "{path} has mode {mode:03o}: other users of this host may read messages; chmod 600",
                path=self.path,
                mode=mode,
            )

    @staticmethod
    def _flock(descriptor: int) -> None:
        """Lock a file; a process that only tests the lock holds it for an instant."""
        for _ in range(LOCK_TRIES - 1):
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(LOCK_SECONDS)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _lock(self) -> None:
        """Lock the store until it is closed or this process ends in any way."""
        descriptor = os.open(f"{self.path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            self._flock(descriptor)
        except OSError as error:
            holder = os.read(descriptor, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreError(
                f"{self.path} is in use by process {holder}: a store has one daemon; stop "
                "it, or give this one another state directory"
            ) from error
        self._writer.lock = descriptor
        try:
            # In place: a full disk has no room for a truncated file.
            os.pwrite(descriptor, f"{os.getpid():<19}\n".encode("ascii"), 0)
            os.ftruncate(descriptor, 20)
        except OSError as fault:
            log.warn("cannot write {path}.lock: {error}", path=self.path, error=str(fault))


@contextmanager
def _lenient(connection: sqlite3.Connection) -> Iterator[None]:
    """Read damaged text as it is, so that it can be compared with its checksum."""
    connection.text_factory = database_schema.read_text
    try:
        yield
    finally:
        connection.text_factory = str


def _ignore_closed(failure: Failure, writer: DatabaseWriter) -> None:
    """Ignore the error of closing a store whose writer has ended."""
    if failure.value is not writer.death:
        failure.raiseException()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
