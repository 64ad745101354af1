# SPDX-License-Identifier: Apache-2.0
"""The journal: two threads between its events and the disk.

The threads of the reactor and of the store append events to a queue and continue. The *encoder*
takes them every `GATHER_SECONDS` and encodes them as runs, so that no message is kept in memory for
the journal. The *disk* thread gives the runs their places in the chain, writes them with one write,
and syncs within `SYNC_SECONDS`. It alone waits for the disk; if that hangs or is full, runs wait in
memory, up to a bound, and are dropped and counted beyond it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from zope.interface import implementer

from amqproute.errors import StoreError
from amqproute.interfaces import IJournal
from amqproute.journal.event import (
    ArrivalEvent,
    Came,
    JournalEvent,
    MessageRun,
    RunEvent,
    TracedArrivalEvent,
)
from amqproute.journal.journal_outbox import JournalOutbox, read_rows
from amqproute.journal.loss_counter import LossCounter
from amqproute.journal.record import LONGEST_RUN, RecordKind
from amqproute.journal.recovery import JournalStart, begun, begun_by, missing, recover
from amqproute.journal.segments import JournalSegments, SegmentNames

GATHER_SECONDS: Final = 0.05
"""Time that events wait for others, to share lines of several records. Events of large bodies do
not wait (`JournalEvent.is_heavy`)."""
SYNC_SECONDS: Final = 1.0
SYNC_BYTES: Final = 4 * 1024 * 1024
"""Written records are synced after this time, or this many octets."""
RETAIN_SECONDS: Final = 120.0
"""Interval of the search for segments to remove, besides when there are too many."""
RETRY_SECONDS: Final = 1.0
YIELD_SECONDS: Final = 0.0002
"""Pause between batches of lines, for the reactor's thread, which would otherwise wait for up to a
switch interval each time it has released the interpreter lock."""
MOST_EVENTS: Final = 50_000
"""Events that may wait to be encoded; they keep messages in memory."""
AT_ONCE: Final = 4096
"""Runs in one write."""
RUN_BYTES: Final = 200
"""Memory of a run besides its text."""


@dataclass(frozen=True, slots=True)
class JournalTerms:
    """Configured terms of the journal.

    Attributes:
        segment_bytes: size at which a segment is closed.
        segment_seconds: age at which a segment is closed.
        keep_seconds: time for which closed segments are kept; 0 for ever.
        max_bytes: bound on the octets of all segments; 0 for a part of the file system.
        stops: accept no messages while the journal cannot be written; otherwise records are
            counted instead of written.
        held_bytes: bound on records that wait in memory for the disk.
        is_traced: trace contexts are recorded; as of the start.
        gather_seconds: time that events wait for others; not configured.
        retry_seconds: the pause after a failure of the disk; not configured.
    """

    segment_bytes: int = 64 * 1024 * 1024
    segment_seconds: float = 60.0
    keep_seconds: float = 90 * 86400.0
    max_bytes: int = 0
    stops: bool = True
    held_bytes: int = 16 * 1024 * 1024
    is_traced: bool = False
    gather_seconds: float = GATHER_SECONDS
    retry_seconds: float = RETRY_SECONDS


@dataclass(slots=True)
class JournalFigures:
    """Counters since the start.

    Attributes:
        records: written.
        bytes: written.
        lost: records that were dropped.
        segments: closed.
        fault: why nothing can be written now; empty if all is well.
    """

    records: int = 0
    bytes: int = 0
    lost: int = 0
    segments: int = 0
    fault: str = ""


@dataclass(slots=True)
class Opened:
    """Result of opening the journal.

    Attributes:
        is_new: there was no journal before.
        restored: records that the journal lacked and the store's outbox had.
        begun: the latest arrivals in it.
        put_back: the reason why it may have been restored (`amqproute.journal.recovery`).
    """

    is_new: bool
    restored: int
    begun: JournalStart
    put_back: str = ""


class JournalListener:
    """Listener for failures of the journal. This one ignores them.

    All methods are called in the reactor's thread, and only where `JournalTerms.stops`.
    """

    def journal_failed(self, reason: str) -> None:
        """Nothing can be written."""

    def journal_recovered(self) -> None:
        """The journal can be written again."""


_NO_LISTENER: Final = JournalListener()


@implementer(IJournal)
class Journal:
    """The journal of a daemon.

    Args:
        directory: the directory of the journal; created if missing.
        reactor: the reactor for the way back from the threads.
        terms: see `JournalTerms`; a reload replaces them.
        domain: the organization.
        now_us: the wall clock.
        seconds: the monotonic clock.
        listener: notified of failures.
        write: a function like `os.write`; tests simulate a full disk by it.
    """

    log = Logger()
    is_kept = True

    def __init__(
        self,
        directory: Path,
        reactor: IReactorFromThreads,
        terms: JournalTerms,
        *,
        domain: str,
        now_us: Callable[[], int],
        seconds: Callable[[], float] = time.monotonic,
        listener: JournalListener = _NO_LISTENER,
        write: Callable[[int, memoryview], int] = os.write,
    ) -> None:
        self.directory = directory
        self.terms = terms
        self.domain = domain
        self.figures = JournalFigures()
        self.now_us = now_us
        self.outbox = JournalOutbox(now_us, self._committed)
        self._arrivals = TracedArrivalEvent if terms.is_traced else ArrivalEvent
        self._reactor = reactor
        self._seconds = seconds
        self._listener = listener
        self._put = write
        self._events: deque[JournalEvent] = deque()
        self._bell = threading.Event()
        self._is_rung = False
        self._ending = threading.Event()
        self._hurry = threading.Event()
        self._disk = threading.Condition()
        self._lines: deque[tuple[int, int | None, MessageRun]] = deque()
        self._held_bytes = 0
        self._encoding = 0  # events that are events no more, and not lines yet
        self._lines_since: float | None = None  # the oldest of `_lines`; None: there are none
        self._writing_since: float | None = None  # the oldest line that is being written
        self._lost = 0
        self._is_encoded = False
        self._segments: JournalSegments | None = None
        self._name = ""
        self._tally = LossCounter(directory)
        self._began = self._synced_at = self._retained_at = 0.0
        self._synced_bytes = 0
        self._is_troubled = False
        self._threads: list[threading.Thread] = []
        self._is_over = False
        self._waiting: list[Deferred[None]] = []

    def __repr__(self) -> str:
        return f"<Journal {self.directory} waiting={self.waiting}>"

    # Called by the threads of the reactor and of the store; these calls do not wait.

    def arrivals(self, came: Sequence[Came]) -> ArrivalEvent:
        """See `IJournal.arrivals`."""
        return self._arrivals(self.now_us(), came, self.domain)

    def note(self, event: JournalEvent) -> None:
        """See `IJournal.note`."""
        self._committed((event,))

    def _committed(self, events: Sequence[JournalEvent]) -> None:
        if len(self._events) > MOST_EVENTS:
            self._overrun(len(events))
            return
        self._events.extend(events)
        if not self._is_rung:
            self._is_rung = True
            self._bell.set()
        if events[-1].is_heavy:
            self._hurry.set()

    def _overrun(self, events: int) -> None:
        """Drop events: the encoder does not keep up, and they cannot wait in memory either."""
        with self._disk:
            self._lost += events
            self.figures.lost += events
            self._trouble("events arrive faster than they can be written")

    @property
    def waiting(self) -> int:
        """Events and runs that are not written yet."""
        # In processing order: an event that moves on meanwhile is counted twice rather than never.
        return len(self._events) + self._encoding + len(self._lines)

    def open(
        self, names: SegmentNames, rows: Sequence[tuple[int, bytes]], former: str = ""
    ) -> Deferred[Opened]:
        """Repair the journal if necessary, and start.

        Args:
            names: the names for the lines; the journal's own name among them is ignored.
            rows: the store's outbox.
            former: the stream of `rows`, if the store has got another name since.

        Returns:
            A Deferred of the result; it fails with `StoreError`.
        """
        done: Deferred[Opened] = Deferred()
        thread = threading.Thread(
            target=self._live, args=(names, rows, former, done), name="journal disk", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return done

    def close(self) -> Deferred[None]:
        """Write everything, close the segment, and stop the threads."""
        done: Deferred[None] = Deferred()
        if not self._threads or self._is_over:
            done.callback(None)
            return done
        self._waiting.append(done)
        self._ending.set()
        self._hurry.set()
        self._bell.set()
        return done

    # The encoder's thread.

    def _encode(self) -> None:
        try:
            self._encode_all()
        except BaseException as error:
            self.log.failure("the journal's encoder died")
            self._trouble(f"the journal's encoder died: {error!r}; restart the daemon")
        finally:
            with self._disk:
                self._is_encoded = True
                self._disk.notify()

    def _encode_all(self) -> None:
        events = self._events
        while True:
            self._bell.wait()
            self._hurry.wait(self.terms.gather_seconds)
            self._hurry.clear()
            is_last = self._ending.is_set()
            self._bell.clear()
            self._is_rung = False
            while events:
                self._make_lines(events)
                time.sleep(YIELD_SECONDS)
            if is_last and not events:
                break
            if self._ending.is_set():
                self._hurry.set()
                self._bell.set()

    def _make_lines(self, events: deque[JournalEvent]) -> None:
        lines: list[tuple[int, int | None, MessageRun]] = []
        while events and len(lines) < LONGEST_RUN:
            self._encoding += 1  # before it is taken: somebody may ask in between
            event = events.popleft()
            try:
                settle_us = event.settle_us
                lines += [(event.number, settle_us, run) for run in event.runs()]
            except Exception:
                with self._disk:
                    self._lost += 1
                self.log.failure("an event could not be written down")
        size = _size_of(lines)
        with self._disk:
            there_is_room = self._held_bytes + size <= self.terms.held_bytes
            if there_is_room:
                if lines and self._lines_since is None:
                    self._lines_since = self._seconds()
                self._lines += lines
                self._held_bytes += size
            else:
                lost = sum(run.count for _, _, run in lines)
                self._lost += lost
                self.figures.lost += lost
            self._encoding = 0
            if not there_is_room or self._held_bytes > self.terms.held_bytes // 2:
                # Before the disk's thread can report that all is well again.
                self._trouble("the disk under {directory} does not take its records")
            self._disk.notify()

    # The disk's thread.

    def _live(
        self,
        names: SegmentNames,
        rows: Sequence[tuple[int, bytes]],
        former: str,
        done: Deferred[Opened],
    ) -> None:
        try:
            found = self._open(names, rows, former)
        except Exception as error:
            words = StoreError(f"the journal in {self.directory} cannot be opened: {error}")
            words.__cause__ = error
            self._reactor.callFromThread(done.errback, words)
            self._reactor.callFromThread(self._ended)
            return
        encoder = threading.Thread(target=self._encode, name="journal encoder", daemon=True)
        self._threads.append(encoder)
        encoder.start()
        self._reactor.callFromThread(done.callback, found)
        try:
            self._write_all()
        except BaseException as error:
            self.log.failure("the journal's thread died")
            self._trouble(f"the journal's thread died: {error!r}; restart the daemon")
        finally:
            self._reactor.callFromThread(self._ended)

    def _ended(self) -> None:
        self._is_over = True
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)

    def _open(self, names: SegmentNames, rows: Sequence[tuple[int, bytes]], former: str) -> Opened:
        carried, damaged = read_rows(rows)
        found = recover(self.directory, names.broker, carried, self.now_us)
        self._lost = self._tally.read() + damaged
        if damaged:
            self.log.error(
                "{count} records that the store kept for the journal do not match their checksums: "
                "they are left out",
                count=damaged,
            )
        self._tally.write(self._lost)  # allocates its room
        names = replace(names, journal=found.journal)
        segments = JournalSegments(
            self.directory, names, found.place, found.head, self.now_us, self._put
        )
        lacking = missing(carried, found)
        lines = [(number, None, run) for number, run in lacking]
        if lines:
            segments.rename(replace(names, stream=former or names.stream))
            try:
                segments.append(lines)
                segments.close()
            except OSError as error:
                # A broker that does not start would help nobody: write them later.
                self._trouble(f"{self.directory}: {error.strerror or error}")
                if former:
                    self._lost += sum(run.count for _, run in lacking)
                else:
                    self._lines.extend(lines)
                    self._held_bytes += _size_of(lines)
            segments.rename(names)
        self.outbox.begin(max([found.place.carried, *(number for number, _ in carried)]))
        known = begun(self.directory, names.stream, found)
        if not former:
            known.ids.update(each for _, run in lacking for each in begun_by(run))
        self._name = found.journal
        self._segments = segments
        self._retained_at = -RETAIN_SECONDS
        self.log.info(
            "journal {journal} continues at record {seq}",
            journal=found.journal,
            seq=segments.place.seq,
        )
        restored = sum(run.count for _, run in lacking)
        return Opened(found.is_new, restored, known, found.put_back)

    def _write_all(self) -> None:
        segments = self._segments
        assert segments is not None
        while True:
            with self._disk:
                if not (self._lines or self._lost or self._is_encoded):
                    self._disk.wait(self._patience(segments))
                lines = [self._lines.popleft() for _ in range(min(AT_ONCE, len(self._lines)))]
                # All lines of an event in one write: a segment has all of them or none.
                while self._lines and lines[-1][0] and self._lines[0][0] == lines[-1][0]:
                    lines.append(self._lines.popleft())
                if lines:
                    self._writing_since = self._lines_since
                    self._lines_since = self._seconds() if self._lines else None
                is_last = self._is_encoded and not self._lines
            try:
                self._write(segments, lines, is_last)
            except OSError as error:
                self.figures.fault = str(error)
                self._trouble(f"{{directory}}: {error.strerror or error}")
                self._tally.write(self._at_stake())
                if is_last:
                    self.log.error(
                        "the journal ends without its last {count} records; the next start "
                        "records the gap, and adds those that the store has: {error}",
                        count=self._lost + sum(run.count for _, _, run in self._lines),
                        error=str(error),
                    )
                    segments.drop()
                    return
                self._ending.wait(self.terms.retry_seconds)
                if self._ending.is_set():
                    time.sleep(min(0.1, self.terms.retry_seconds))
                continue
            if self._is_troubled and self._held_bytes <= self.terms.held_bytes // 4:
                self.figures.fault = ""
                self._is_troubled = False
                self.log.info("the journal is written again")
                self._reactor.callFromThread(self._listener.journal_recovered)
            if is_last:
                return

    def _at_stake(self) -> int:
        """Return the number of records that would be lost now; the store has the others."""
        with self._disk:
            return self._lost + sum([run.count for number, _, run in self._lines if not number])

    def _patience(self, segments: JournalSegments) -> float | None:
        """Return the time until the next work if no event arrives; None for ever."""
        if self._is_troubled:
            # No event may arrive, since publishers wait for the journal.
            return self.terms.retry_seconds
        if not segments.is_open:
            return None
        due = self._began + self.terms.segment_seconds
        if segments.needs_sync:
            due = min(due, self._synced_at + SYNC_SECONDS)
        return max(0.0, due - self._seconds())

    def _write(
        self,
        segments: JournalSegments,
        lines: list[tuple[int, int | None, MessageRun]],
        is_last: bool,
    ) -> None:
        if lines or self._lost:
            try:
                self._append(segments, lines)
            except OSError:
                with self._disk:
                    self._lines.extendleft(reversed(lines))
                    self._lines_since = self._writing_since or self._lines_since
                raise
            with self._disk:
                self._held_bytes -= _size_of(lines)
                self._writing_since = None
        now = self._seconds()
        unsynced = segments.written_bytes - self._synced_bytes
        if segments.needs_sync and (
            now >= self._synced_at + SYNC_SECONDS or unsynced >= SYNC_BYTES
        ):
            self._sync(segments)
        is_due = now >= self._began + self.terms.segment_seconds
        if segments.is_open and (is_last or is_due or segments.size >= self.terms.segment_bytes):
            self._close(segments)

    def _append(
        self, segments: JournalSegments, lines: list[tuple[int, int | None, MessageRun]]
    ) -> None:
        if not segments.is_open:
            self._began = self._seconds()
        lost = self._lost
        if lost:
            words = "there was no room, or the disk did not take them"
            gap = RunEvent(RecordKind.GAP, self.now_us(), {"count": lost, "words": words})
            segments.append([(0, None, run) for run in gap.runs()])
            with self._disk:
                self._lost -= lost
            self.log.warn(
                "{count} records of the journal are lost: {words}", count=lost, words=words
            )
        before = segments.written_bytes
        count = segments.append(lines)
        self.figures.records += count
        self.figures.bytes += segments.written_bytes - before

    def _sync(self, segments: JournalSegments) -> None:
        segments.sync()
        self._synced_at = self._seconds()
        self._is_durable(segments)

    def _is_durable(self, segments: JournalSegments) -> None:
        self._synced_bytes = segments.written_bytes
        self.outbox.is_durable(segments.place.carried)
        if self._tally.count:
            self._tally.write(self._at_stake())

    def _close(self, segments: JournalSegments) -> None:
        segments.close()
        self.figures.segments += 1
        self._is_durable(segments)
        now = self._seconds()
        terms = self.terms
        is_over = terms.max_bytes and segments.closed_bytes > terms.max_bytes
        if is_over or now >= self._retained_at + RETAIN_SECONDS:
            self._retained_at = now
            removed = segments.retain(int(terms.keep_seconds * 1e6), terms.max_bytes)
            if removed:
                self.log.info(
                    "{count} old segments of the journal removed, up to {last}",
                    count=len(removed),
                    last=str(removed[-1]),
                )

    def _trouble(self, words: str) -> None:
        """Log, once, that the journal cannot be written, and what follows; notify the listener."""
        if self._is_troubled:
            return
        self._is_troubled = True
        words = words.replace("{directory}", str(self.directory))
        self.figures.fault = self.figures.fault or words
        stops = self.terms.stops
        self.log.warn(
            "the journal cannot be written: {words}. {policy}",
            words=words,
            policy="Nothing more is accepted until it can (journal.on-full: stop)"
            if stops
            else "What finds no room in memory is lost, and counted (journal.on-full: count)",
        )
        if stops:
            reason = f"the journal cannot be written: {words}"
            self._reactor.callFromThread(self._listener.journal_failed, reason)

    @property
    def position(self) -> tuple[str, int]:
        """The journal's name, and the sequence of its next record; an empty name before `open`."""
        segments = self._segments
        return ("", 1) if segments is None else (self._name, segments.place.seq)

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest event that is not written yet, seconds; 0 if there is none.

        The time that the encoder lets events wait for others is part of it.
        """
        lag = 0.0
        with suppress(IndexError):  # another thread takes them, so asking first proves nothing
            lag = (self.now_us() - self._events[0].time_us) / 1e6
        for since in (self._lines_since, self._writing_since):
            if since is not None:
                lag = max(lag, self._seconds() - since)
        return max(0.0, lag)

    def statistics(self) -> dict[str, float]:
        """Return the counters, and the waiting events and octets."""
        figures = self.figures
        return {
            "records": figures.records,
            "bytes": figures.bytes,
            "lost": figures.lost,
            "segments": figures.segments,
            "waiting": self.waiting,
            "waiting_bytes": self._held_bytes,
        }


def _size_of(lines: Sequence[tuple[int, int | None, MessageRun]]) -> int:
    """Return the estimated memory of runs."""
    return sum([len(run.shared) + len(run.columns) + RUN_BYTES for _, _, run in lines])
