# SPDX-License-Identifier: Apache-2.0
"""Delay reports to senders: once for each message, at each broker.

A message that has waited in a relay queue for ``reports.delay-after`` is reported to its sender,
who may still want to act, long before it is given up. Entries of a queue are in the order of their
arrival, so the progress is one number for each queue: the id up to which delays were reported. It
is stored in the commit that sends the reports, so each message is reported once, whatever happens
in between.

A queue is only searched when its oldest message is old enough, and then a page at a time, from
where the last search ended: a large backlog is read once, and is not held in memory. Messages that
are not durable are not reported; they would not survive the broker either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.broker.entry_list import is_readable
from amqproute.broker.priority_queues import HIGHEST_PRIORITY, line_key
from amqproute.broker.queue import Queue
from amqproute.entry import TRANSIENT, Entry
from amqproute.interfaces import IStore
from amqproute.message import Message
from amqproute.services.sender_reports import Reporter
from amqproute.stored import StoredEntry
from amqproute.values import RETURN_TO

__all__ = ["DELAY_NOTES", "DelayReports"]

DELAY_NOTES: Final = "delay-report"
"""The kind of the store's notes: queue to the id up to which delays were reported."""
PAGE_MESSAGES: Final = 500
PAGE_BYTES: Final = 4 * 1024 * 1024
SHORTEST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 300.0
RETURN_TO_OCTETS: Final = RETURN_TO.encode()


class DelayReports:
    """Periodic search of the relay queues for delayed messages.

    Args:
        broker: owner of the relay queues.
        store: holds their entries.
        reporter: sends the reports.
        clock: the clock for the time between two searches.
        after_seconds: how long a message may wait unreported.

    Attributes:
        reporter: the argument.
        after_seconds: the argument; it may change.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        store: IStore,
        reporter: Reporter,
        clock: IReactorTime,
        after_seconds: float,
    ) -> None:
        self.after_seconds = after_seconds
        self._broker = broker
        self._store = store
        self.reporter = reporter
        self._clock = clock
        self._marks: dict[str, int] = {}
        self._call: IDelayedCall | None = None
        self._looking: Deferred[None] | None = None

    def recovered(self, notes: Mapping[str, bytes]) -> None:
        """Take over the progress of an earlier run of the daemon."""
        for key, value in notes.items():
            try:
                self._marks[key] = int(value)
            except ValueError as error:
                self.log.error(
                    "unreadable note of {key}: its senders may get a delay report again: {error}",
                    key=key,
                    error=str(error),
                )

    def start(self) -> None:
        """Start the searches."""
        self._arm()

    def stop(self) -> None:
        """Stop the searches."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
        if self._looking is not None:
            self._looking.cancel()

    def _arm(self) -> None:
        pause = min(max(self.after_seconds / 4, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        self._call = self._clock.callLater(pause, self._look)

    def _look(self) -> None:
        self._call = None
        self._looking = looking = Deferred.fromCoroutine(self.look())
        looking.addErrback(self._failed)
        looking.addCallback(self._looked)

    def _failed(self, failure: Failure) -> None:
        if self._looking is not None and not self._looking.called:
            self.log.failure("the search for delayed messages failed", failure)

    def _looked(self, _: object) -> None:
        self._looking = None
        self._arm()

    async def look(self) -> None:
        """Report every message that has waited too long and was not reported."""
        queues = self._broker.internal
        known = {
            line_key(queue.rows, level): queue
            for queue in queues.values()
            for level in range(HIGHEST_PRIORITY + 1)
        }
        gone = [key for key in self._marks if key not in known]
        if gone:
            batch = self._broker.begin()
            for key in gone:
                del self._marks[key]
                batch.transaction.note(DELAY_NOTES, key, None)
            await batch.commit(True)
        for queue in list(queues.values()):
            cutoff_ms = self._broker.begin().now_ms - int(self.after_seconds * 1000)
            oldest = queue.oldest_arrival_ms
            is_late = queue.acquired or queue.deferred or oldest is None or oldest <= cutoff_ms
            if queue.depth and is_late:
                for level in range(HIGHEST_PRIORITY + 1):
                    await self._look_at(queue, line_key(queue.rows, level), cutoff_ms)

    async def _look_at(self, queue: Queue, key: str, cutoff_ms: int) -> None:
        while True:
            mark = self._marks.get(key, 0)
            rows = await self._store.load(key, mark, PAGE_MESSAGES, PAGE_BYTES)
            late = [row for row in rows if row.arrived_ms <= cutoff_ms]
            if not late:
                return
            batch = self._broker.begin()
            for row in late:
                if not row.flags & TRANSIENT and (row.expires_ms or 1 << 62) > batch.now_ms:
                    self._report(queue, row, batch)
            batch.transaction.note(DELAY_NOTES, key, str(late[-1].id).encode())
            await batch.commit()
            self._marks[key] = late[-1].id
            if len(late) < len(rows):
                return

    def _report(self, queue: Queue, row: StoredEntry, batch: Batch) -> None:
        if not is_readable(row):
            return  # the queue quarantines it when it gets there
        message = Message(row.encoded)
        if message.mentions(RETURN_TO_OCTETS):
            entry = Entry(
                row.id, message, True, True, row.arrived_ms, row.expires_ms, row.delivery_count
            )
            self.reporter.delayed(queue, entry, batch)
