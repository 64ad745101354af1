# SPDX-License-Identifier: Apache-2.0
"""The writer thread, which alone uses the database, and the checkpointer beside it."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from amqproute.bucket_counts import SECONDS, SIZES, BucketCounts
from amqproute.errors import StoreDamaged, StoreError, StoreIntakeClosed, StoreUnavailable
from amqproute.interfaces import IOutbox
from amqproute.store import database_schema, wakeup
from amqproute.store.checkpoint import CheckpointState, WalTracker
from amqproute.store.checksums import crc_of_queue, summed
from amqproute.store.database_files import DatabaseFiles
from amqproute.store.model import QueueNumbers
from amqproute.store.pending_commit import WIDTH, PendingCommit, StatementGroup, merge
from amqproute.store.statements import (
    GRAIN,
    INSERT,
    NAME,
    tidy,
    write_facts,
    write_outbox,
    write_stages,
)
from amqproute.store.store_listener import StoreListener
from amqproute.store.store_sizes import StoreSizes

log = Logger()

GROUP_ENTRIES: Final = 4096
"""Bound of one group, beside `StoreSizes.group_bytes`: what it adds to the wait of the
transactions behind it."""
PATIENCE_SECONDS: Final = 0.01
"""Time that a patient transaction may wait for others with which to share an fsync."""
FULL_HAND: Final = 64
"""Number of entries of patient transactions that are added to the next commit."""
RESTARTS: Final = 8
"""Number of restarts of a group of which SQLite rolled back the whole transaction."""


class IReactorThreads(Protocol):
    """The methods of a reactor that the store needs (`IReactorFromThreads`, `IReactorTime`)."""

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object
    ) -> IDelayedCall:
        """Call `callable` in the reactor's thread after some seconds."""

    def callFromThread(
        self, callable: Callable[..., object], *args: object, **kwargs: object
    ) -> None:
        """Call `callable` in the reactor's thread, in the order of these calls."""


@dataclass(slots=True)
class WriterCall:
    """A function to run on the writer's thread, in order with the commits before and after.

    Attributes:
        function: the function to run.
        deferred: fires with the result in the reactor's thread.
        vital: if it fails, the writer ends.
    """

    function: Callable[[], object]
    deferred: Deferred[Any]  # Any: the type of what `function` returns
    vital: bool = False


@dataclass(slots=True)
class WriterFigures:
    """Counters, written by the writer's thread, read by any.

    Attributes:
        seconds: durations of commits.
        sizes: numbers of transactions in a commit.
        waits: seconds from the submission of a transaction until it was durable; patient
            transactions, for which nobody waits, are not counted.
    """

    commits: int = 0
    transactions: int = 0
    entries: int = 0
    failed: int = 0
    last_commit_seconds: float = 0.0
    max_commit_seconds: float = 0.0
    seconds: BucketCounts = field(init=False, default_factory=lambda: BucketCounts(SECONDS))
    sizes: BucketCounts = field(init=False, default_factory=lambda: BucketCounts(SIZES))
    waits: BucketCounts = field(init=False, default_factory=lambda: BucketCounts(SECONDS))


class WriterResume:
    """Job that ends a refusal: the reactor has been notified; accept the entries that follow."""


class WriterStop(Exception):
    """Raised by the last call to end the writer's loop."""


class DatabaseWriter:
    """Writes all waiting transactions as one SQLite transaction, reports, and repeats.

    Args:
        files: the database and the files beside it.
        reactor: the reactor for the way back from the thread.
        numbers: the numbers of queues.
        sizes: the sizes of the files.
        clock_ms: dates receipts, milliseconds; called on the writer's thread.
        on_round: called on the writer's thread when the log, which has been copied, restarts.
        listener: notified of failures.
        outbox: notified of commits; None for nobody.

    Attributes:
        figures: the counters.
        death: why the store is unusable; None while the thread lives.
        connection: the database; made and used on the writer's thread only.
        is_frozen: the database may not grow, see `yield_turn`.
        entry_totals: number of entries, and the sum of their ids; None if they were not
            counted.
        lock: descriptor of the lock file, -1 for none.
    """

    def __init__(
        self,
        files: DatabaseFiles,
        reactor: IReactorThreads,
        numbers: QueueNumbers,
        sizes: StoreSizes,
        *,
        clock_ms: Callable[[], int],
        on_round: Callable[[], object],
        listener: StoreListener,
        outbox: IOutbox | None = None,
    ) -> None:
        self.path = files.path
        self.figures = WriterFigures()
        self.death: StoreError | None = None
        self.connection: sqlite3.Connection | None = None
        self.lock = -1
        self._reactor = reactor
        self._numbers = numbers
        self._files = files.segments
        self._removed = files.bodies.swept
        self._ballast = files.ballast
        self._seal = files.seal
        self._suspicion = files.suspicion
        self._group_bytes = sizes.group_bytes
        self._on_round = on_round
        self._clock_ms = clock_ms
        self._listener = listener
        self._is_damaged = False
        self._outbox = outbox
        self._is_carrying = False
        self.is_frozen = False
        self.entry_totals: tuple[int, int] | None = None
        self._has_seal_failed = False
        self._failing = False
        self._is_repeating = False  # that was logged, and no group has succeeded at once since
        self._refusal: StoreError | None = None
        self._patient: list[PendingCommit | WriterCall | WriterResume] = []
        self._held_entries = 0  # dequeued by these; -1 if they do anything else as well
        self._release_call: IDelayedCall | None = None
        self._turn: list[PendingCommit | WriterCall | WriterResume] = []
        self._jobs: SimpleQueue[PendingCommit | WriterCall | CheckpointState | WriterResume] = (
            SimpleQueue()
        )
        # The jobs fetched last, and how many of them have been answered.
        self._batch: list[PendingCommit | WriterCall | CheckpointState | WriterResume] = []
        self._answered = 0
        self._fired: list[tuple[Deferred[Any], Any]] = []
        self._reports: deque[list[tuple[Deferred[Any], Any]]] = deque()
        self._bell: wakeup.Wakeup | None = None
        self._wal = WalTracker(
            self.path,
            files.connect,
            self._jobs.put,
            max(1, sizes.checkpoint_bytes // sizes.page_size),
            max(1, sizes.remainder_bytes // sizes.page_size),
            self.yield_turn,
        )
        self._thread = threading.Thread(
            target=self._live, name=f"store writer {self.path}", daemon=True
        )

    # On the reactor's thread.

    def start(self) -> None:
        """Start the thread."""
        if wakeup.is_fit(self._reactor):
            self._bell = wakeup.Wakeup(self._reactor, self._hear)
        self._thread.start()

    def submit(self, job: PendingCommit | WriterCall) -> None:
        """Queue a job. Its Deferred fires from the reactor, never within this call.

        A patient transaction is held back here for `PATIENCE_SECONDS`: at a thousand messages a
        second each message would otherwise cost two commits, one when it arrives, and one when it
        has left, which nobody waits for. Held here rather than in the thread, it does not wake the
        thread either. Once `FULL_HAND` entries are held, the next transaction takes them along.
        Until then it overtakes them, if they only dequeue: the fewer pages a lone message has to
        wait for, the better.
        """
        held = self._patient
        if isinstance(job, PendingCommit) and self.death is None:
            job.submitted = time.perf_counter()
            if job.is_patient:
                held.append(job)
                if self._held_entries >= 0 and job.only_removes():
                    self._held_entries += len(job.stages[0].dequeued)
                else:
                    self._held_entries = -1  # these may not be overtaken
                if self._release_call is None:
                    self._release_call = self._reactor.callLater(PATIENCE_SECONDS, self._release)
                return
            if 0 <= self._held_entries < FULL_HAND:
                self._send(job)
                return
        held.append(job)
        self._hand_over()

    def _release(self) -> None:
        self._release_call = None
        if self._patient:
            self._hand_over()

    def _hand_over(self) -> None:
        """Send the held jobs to the thread, in order."""
        held, self._patient = self._patient, []
        self._held_entries = 0
        call, self._release_call = self._release_call, None
        if call is not None:
            call.cancel()
        for job in held:
            self._send(job)

    def _send(self, job: PendingCommit | WriterCall | WriterResume) -> None:
        """Send a job to the thread after the present turn of the reactor.

        The thread would compete for the interpreter while the reactor passes the same message on to
        the next hop or to a consumer, so it starts afterwards; and all work of one turn is in one
        commit.
        """
        self._turn.append(job)
        if len(self._turn) == 1:
            # Runs before any work of a later turn: publishers wait for it.
            self._reactor.callFromThread(self._turn_ends)

    def _turn_ends(self) -> None:
        turn, self._turn = self._turn, []
        for job in turn:
            self._jobs.put(job)
        if self.death is not None:
            self._bury()  # the thread may have ended before it received them

    def pending(self) -> int:
        """Return the number of jobs waiting for the writer."""
        return self._jobs.qsize() + len(self._turn) + len(self._patient)

    def _hear(self) -> None:
        """Fire the Deferreds that the thread has reported, in order."""
        reports = self._reports
        while reports:
            for deferred, result in reports.popleft():
                if isinstance(result, Exception):
                    deferred.errback(result)
                else:
                    deferred.callback(result)

    def _end(self) -> None:
        """Finish after the thread has ended."""
        self._hear()
        if self._bell is not None:
            self._bell.close()
        self._bury()

    def _bury(self) -> None:
        jobs = []
        while not self._jobs.empty():
            jobs.append(self._jobs.get_nowait())
        for job in jobs:
            if not isinstance(job, CheckpointState | WriterResume):
                job.deferred.errback(self.death)

    def log_restarts(self) -> int:
        """Return how often the write-ahead log has restarted."""
        return self._wal.restarts

    # The writer's thread.

    def _live(self) -> None:
        try:
            self._loop()
        except WriterStop:
            self.death = StoreError(f"the store {self.path} is closed")
        except BaseException as error:  # never end silently
            log.failure("the writer thread of the store {path} died", path=self.path)
            self.death = StoreError(
                f"the writer thread of the store {self.path} died ({error!r}): "
                "restart the daemon; what was committed is safe"
            )
            self.death.__cause__ = error
            self._reactor.callFromThread(self._listener.store_died, self.death)
        finally:
            self.release()
            self._fired += [
                (job.deferred, self.death)
                for job in self._batch[self._answered :]
                if not isinstance(job, CheckpointState | WriterResume)
            ]
            self._report()
            self._reactor.callFromThread(self._end)

    def release(self) -> None:
        """Close everything."""
        self.let_go()
        if self.is_frozen:
            self._ballast.load(1)  # in the room of the log, so that the store can be opened again
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1

    def let_go(self) -> None:
        """Close everything but the lock."""
        self._wal.stop()
        if self.connection is not None:
            self.connection.close()
            self.connection = None
        self._files.close()
        # Later: closing this descriptor drops the locks SQLite holds on the same file.
        self._wal.close()
        self._seal.close()

    @property
    def log_position(self) -> bytes:
        """The end of the log, in the form that a seal contains."""
        return self._wal.position()

    @property
    def is_log_copied(self) -> bool:
        """Whether the database has all frames of the log."""
        return self._wal.is_copied()

    def note_seal(self) -> None:
        """Note in the seal that everything committed so far is on the disk."""
        try:
            self._seal.note(self._wal.position(), self.entry_totals)
        except OSError as error:
            # The older note stays and is still true.
            if not self._has_seal_failed:
                self._has_seal_failed = True
                log.warn("cannot write {path}: {error}", path=self._seal.path, error=str(error))
        else:
            self._has_seal_failed = False

    def watch_log(self) -> None:
        """Start the checkpointer; the database is in WAL mode by now."""
        assert self.connection is not None
        self._wal.start(self.connection)

    def copy_log(self) -> bool:
        """Stop the checkpointer and copy the whole log; return whether it worked."""
        assert self.connection is not None
        self._wal.stop()
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return self._wal.is_copied()

    def finish_log(self) -> None:
        """Remove the log, as the last step before closing, after `copy_log`."""
        assert self.connection is not None
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def _loop(self) -> None:
        jobs = self._jobs
        while True:
            self._answered = 0
            self._batch = [jobs.get()]
            self._batch += [jobs.get_nowait() for _ in range(jobs.qsize())]
            group: list[PendingCommit] = []
            room, entries = self._group_bytes, GROUP_ENTRIES
            for job in self._batch:
                if isinstance(job, PendingCommit):
                    group.append(job)
                    count, octets = job.weight()
                    entries -= count
                    room -= octets
                    if entries > 0 and room > 0:
                        continue
                self._write(group)
                group, room, entries = [], self._group_bytes, GROUP_ENTRIES
                if isinstance(job, WriterCall):
                    self._call(job)
                elif isinstance(job, CheckpointState):
                    self._answered += 1
                    self._settled(job)
                elif isinstance(job, WriterResume):
                    self._answered += 1
                    if not self._is_damaged:
                        self._refusal = None
            self._write(group)
            # The next job may take long to come: do not keep messages in memory until then.
            self._answered, self._batch = 0, []
            del group, job

    def _settled(self, job: CheckpointState) -> None:
        if job.error is not None:
            self.has_proved_damaged(job.error)
        restarts = self._wal.restarts
        self._wal.settled(job)
        if self._wal.restarts > restarts and self._wal.is_copied():
            try:
                self._on_round()
            except Exception as error:
                # The log continues in the same round, which is as safe.
                self._roll_back()
                self.has_proved_damaged(error)
                words = database_schema.in_words(error, self.path)
                log.warn("{path} cannot be sealed: {words}", path=self.path, words=str(words))

    def _call(self, job: WriterCall) -> None:
        try:
            result = job.function()
        except WriterStop:
            self._answer((job,), None)
            raise
        except Exception as error:
            result = database_schema.in_words(error, self.path)
            if job.vital:
                self._answer((job,), result)
                raise WriterStop from error
            self.has_proved_damaged(error)
        self._answer((job,), result)
        self._report()

    def _write(self, group: Sequence[PendingCommit]) -> None:
        if not group:
            return
        started = time.perf_counter()
        if self._refusal is not None and any(one.begins() for one in group):
            # Submitted before the reactor was notified; they must not overtake what failed.
            self._isolate(list(group), self._refusal)
            self._report()
            return
        try:
            self._commit(group)
        except Exception as error:
            self._roll_back()
            if self.has_proved_damaged(error):
                self._isolate(list(group), self._refusal)
            elif len(group) == 1 and not self._is_carrying and not self._may_yield(group[0], error):
                self._failed(group, error)
            elif self._isolate(list(group)) and not self._is_repeating:
                self._is_repeating = True
                log.warn(
                    "{path}: a commit failed ({error}) and succeeded at the second attempt",
                    path=self.path,
                    error=str(error),
                )
        else:
            self._answer(group, None)
            self._is_repeating = False
            if self._failing:
                self._failing = False
                if not self._is_damaged:
                    log.info("{path} accepts transactions again", path=self.path)
        self.note_seal()
        ended = time.perf_counter()
        took = ended - started
        figures = self.figures
        figures.seconds.add(took)
        figures.sizes.add(len(group))
        for one in group:
            if not one.is_patient:
                figures.waits.add(ended - one.submitted)
        figures.commits += 1
        figures.transactions += len(group)
        figures.last_commit_seconds = took
        figures.max_commit_seconds = max(took, figures.max_commit_seconds)
        self._report()
        self._wal.grown()
        if self._files.is_untidy:
            self._tidy()

    def _commit(self, group: Sequence[PendingCommit]) -> None:
        connection = self.connection
        assert connection is not None
        stages, facts = merge(group)
        names = list(self._numbers.unsaved.items())
        events = self._events(group)
        outbox = self._outbox
        carried = None
        if outbox is not None and events and not self.is_frozen:
            carried = outbox.carry(events)
        self._is_carrying = carried is not None
        if not (carried or names or facts or any(stage.is_busy() for stage in stages)):
            self._notify_outbox(events, False)
            return  # only empty transactions: no write, no fsync
        if not (carried or names or facts) and len(stages) == 1 and stages[0].only_begins():
            rows = stages[0].rows
            if len(rows) <= GRAIN * WIDTH:  # one statement is a transaction of its own
                INSERT.run(connection, summed(rows))
                self.figures.entries += stages[0].born()
                self._count(stages, 0)
                self._notify_outbox(events, False)
                return
        connection.execute("BEGIN")
        if names:
            NAME.run(connection, [each for one in names for each in (*one, crc_of_queue(*one))])
        absent = write_stages(connection, stages, self._files)
        for fact in facts:
            write_facts(connection, fact, self._clock_ms())
        if carried:
            write_outbox(connection, carried)
        self._files.look(connection)
        connection.execute("COMMIT")
        self._files.committed()
        self._count(stages, absent)
        self._notify_outbox(events, bool(carried))
        for number, _ in names:
            self._numbers.unsaved.pop(number, None)
        for stage in stages:
            self.figures.entries += stage.born() + len(stage.dequeued)

    def _count(self, stages: Sequence[StatementGroup], absent: int) -> None:
        """Update the totals after a commit."""
        if self.entry_totals is None:
            return
        if absent:
            self.entry_totals = None  # it is unknown which of them were absent
            return
        count, total = self.entry_totals
        for stage in stages:
            more, change = stage.balance()
            count += more
            total += change
        self.entry_totals = count, total

    def _events(self, group: Sequence[PendingCommit]) -> list[Any]:
        """Return the events of these transactions for the outbox."""
        if self._outbox is None:
            return []
        return [event for one in group for event in one.events]

    def _notify_outbox(self, events: Sequence[Any], is_carried: bool) -> None:
        if events and self._outbox is not None:
            self._outbox.committed(events, is_carried)

    def _isolate(self, group: list[PendingCommit], refusal: StoreError | None = None) -> bool:
        """Write a failed group again with a savepoint around each transaction.

        A transaction that fails is rolled back and reported alone: one poisonous transaction costs
        its neighbors nothing, and on a full disk those that only dequeue still succeed. The others
        share one fsync.

        Returns:
            Whether none has failed this time.
        """
        connection = self.connection
        assert connection is not None
        bad: dict[int, Exception] = {}
        if refusal is not None:
            bad = {index: refusal for index, one in enumerate(group) if one.begins()}
        for _ in range(RESTARTS):
            try:
                given_up = self._try_each(connection, group, bad)
            except (sqlite3.Error, OSError, StoreError) as error:
                self._roll_back()
                left = [index for index in range(len(group)) if index not in bad]
                ends = [index for index in left if group[index].only_removes()]
                if len(ends) < len(left) and ends and self._is_disk_full(error):
                    left = [index for index in left if index not in ends]
                    bad.update((index, error) for index in left)
                    continue
                bad.update((index, error) for index in left)
                break
            if given_up is None:
                break
            bad[given_up[0]] = given_up[1]
        else:
            refused = StoreError(f"{self.path} rejects one transaction after the other")
            bad.update((index, refused) for index in range(len(group)) if index not in bad)
        self._retry_removals(connection, group, bad)
        for index, one in enumerate(group):
            if index in bad:
                self._failed([one], bad[index])
            else:
                self._answer((one,), None)
        return not bad

    def yield_turn(self, why: str) -> bool:
        """Release the ballast, and accept nothing for which the database has to grow.

        The log is copied at once, before anything else takes the room.

        Args:
            why: purpose of the room, an infinitive for the log.

        Returns:
            True if there was any ballast.
        """
        connection = self.connection
        assert connection is not None
        was_there = self._ballast.drop(why)
        self._files.release_spares(True)
        if not self.is_frozen:
            self.is_frozen = self._seal.is_careful = True
            connection.execute("PRAGMA max_page_count=1").fetchone()  # its present size
            signal: Deferred[Any] = Deferred()
            words = f"the disk is full under {self.path}"
            self._fired.append((signal.addCallback(self._notify_full), words))
        if was_there:
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                log.warn("{path}: {error}", path=self.path, error=str(error))
        return was_there

    def has_proved_damaged(self, error: Exception) -> bool:
        """Accept nothing until a restart if this error shows that the database is damaged.

        Removals continue as far as the database allows: each commit that succeeds is safe.

        Returns:
            Whether it is such an error.
        """
        words = database_schema.in_words(error, self.path)
        if not isinstance(words, StoreDamaged):
            return False
        if self._is_damaged:
            return True
        self._is_damaged = True
        reason = (
            f"{words}. The store accepts nothing until a restart, which checks all of it; readable "
            "messages are still delivered. To see what is damaged: amqproute store check; stop the "
            "daemon before amqproute store salvage"
        )
        self._refusal = StoreIntakeClosed(reason)
        log.error("{reason}", reason=reason)
        signal: Deferred[Any] = Deferred()
        self._fired.append((signal.addCallback(self._notify_corrupt), reason))
        try:
            self._suspicion.raise_for(str(words))
        except OSError as fault:
            log.error(
                "cannot write {path}, a restart may not check the whole store: {error}",
                path=self._suspicion.path,
                error=str(fault),
            )
        return True

    def _notify_corrupt(self, reason: str) -> None:
        self._listener.database_damaged(StoreIntakeClosed(reason))

    def _notify_full(self, words: str) -> None:
        self._listener.disk_full(StoreUnavailable(words))

    def _is_disk_full(self, error: Exception) -> bool:
        return isinstance(database_schema.in_words(error, self.path), StoreUnavailable)

    def _may_yield(self, one: PendingCommit, error: Exception) -> bool:
        """Tell whether a removal failed because the disk is full, and there is ballast left."""
        return self._ballast.is_there and one.only_removes() and self._is_disk_full(error)

    def _retry_removals(
        self, connection: sqlite3.Connection, group: list[PendingCommit], bad: dict[int, Exception]
    ) -> None:
        """Retry removals in the room of the ballast."""
        ends = [index for index in bad if self._may_yield(group[index], bad[index])]
        if not ends or not self.yield_turn("let messages be taken out"):
            return
        failures: dict[int, Exception] = {}
        try:
            given_up = self._try_each(connection, [group[index] for index in ends], failures)
        except (sqlite3.Error, OSError, StoreError) as error:
            log.warn("{path}: {error}", path=self.path, error=str(error))
            self._roll_back()
            return
        if given_up is None:
            for place, index in enumerate(ends):
                if place not in failures:
                    del bad[index]

    def _try_each(
        self, connection: sqlite3.Connection, group: list[PendingCommit], bad: dict[int, Exception]
    ) -> tuple[int, Exception] | None:
        """Write all transactions but the `bad`, adding those that fail to `bad`.

        Returns:
            None if the rest is committed (or all are bad); else the transaction at which
            SQLite rolled back everything, including earlier ones, and the error.
        """
        self.entry_totals = None  # too costly to keep over rollbacks
        connection.execute("BEGIN")
        names = list(self._numbers.unsaved.items())
        no_room: Exception | None = None
        for index, one in enumerate(group):
            if index in bad:
                if self._is_disk_full(bad[index]):
                    no_room = bad[index]  # SQLite rolled back everything in an earlier try
                continue
            if no_room is not None and one.begins():
                bad[index] = no_room  # it may be small enough, but must not overtake the failed one
                continue
            connection.execute("SAVEPOINT one")
            changes = self._files.changes()
            try:
                NAME.run(connection, [each for one in names for each in (*one, crc_of_queue(*one))])
                stages, facts = merge([one])
                write_stages(connection, stages, self._files)
                for fact in facts:
                    write_facts(connection, fact, self._clock_ms())
            except Exception as error:
                if not self._is_damaged and self.has_proved_damaged(error):
                    # Entries added before it in this transaction are not safe either.
                    self._roll_back()
                    began = (place for place, other in enumerate(group) if other.begins())
                    bad |= {place: self._refusal for place in began if self._refusal}
                if not connection.in_transaction:
                    return index, bad.get(index, error)
                connection.execute("ROLLBACK TO one")
                self._files.rolled_back_to(changes)
                bad[index] = error
                if self._is_disk_full(error):
                    no_room = error
            connection.execute("RELEASE one")
        self._files.look(connection)
        connection.execute("COMMIT")
        self._files.committed()
        # The outbox row is left out: on a full disk removals must not need room for it.
        self._notify_outbox(
            self._events([one for index, one in enumerate(group) if index not in bad]), False
        )
        return None

    def _tidy(self) -> None:
        """Compact the body files, in a commit of its own."""
        assert self.connection is not None
        try:
            tidy(self.connection, self._files)
        except Exception as error:
            self._roll_back()
            self.has_proved_damaged(error)
            words = database_schema.in_words(error, self.path)
            log.warn("{path}: cannot compact body files: {words}", path=self.path, words=str(words))
        self.note_seal()
        self._report()

    def _roll_back(self) -> None:
        assert self.connection is not None
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")
        self._files.rolled_back()

    def _failed(self, group: Sequence[PendingCommit], error: Exception) -> None:
        self.figures.failed += len(group)
        words = database_schema.in_words(error, self.path)
        if self.has_proved_damaged(error) and any(one.begins() for one in group):
            assert self._refusal is not None
            words = self._refusal
        if not (self._failing or self._is_damaged):
            self._failing = True
            log.warn("{path} cannot accept transactions: {words}", path=self.path, words=str(words))
        self._answer(group, words)
        if (
            self._refusal is None
            and isinstance(words, StoreUnavailable)
            and any(one.begins() for one in group)
        ):
            self._refusal = words
            signal: Deferred[Any] = Deferred()
            self._fired.append((signal.addCallback(self._notify_released), None))

    def _notify_released(self, _: object) -> None:
        """End the refusal, behind everything submitted before the reactor was notified."""
        self._patient.append(WriterResume())
        self._hand_over()

    def _answer(self, jobs: Sequence[PendingCommit | WriterCall], result: object) -> None:
        """Record the result of these jobs, the next ones of the batch."""
        self._fired += [(job.deferred, result) for job in jobs]
        self._answered += len(jobs)

    def _report(self) -> None:
        if self._files.swept:
            swept, self._files.swept = self._files.swept, []
            signal: Deferred[Any] = Deferred()
            self._fired.append((signal.addCallback(self._removed), swept))
        if self._fired:
            fired, self._fired = self._fired, []
            self._reports.append(fired)
            if self._bell is not None:
                self._bell.ring()
            else:
                self._reactor.callFromThread(self._hear)
