# SPDX-License-Identifier: Apache-2.0
"""What comes onto a queue: which messages are taken, and what is known of them until they arrive.

A message is refused here, or it becomes an entry that belongs to its sender's batch. When that is
committed, what is not held twice is lined up; when it cannot be, nothing is left of it. Of what
the queue holds the ids are known, where it takes each message once (`broker.duplicate_filter`), and
who is charged for it (`broker.sender_quotas`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from amqproute.broker import admission
from amqproute.broker.commit_batch import Batch
from amqproute.broker.duplicate_filter import DuplicateFilter
from amqproute.broker.early_delivery import EarlyDelivery
from amqproute.broker.entry_list import EntryList
from amqproute.broker.entry_removal import EntryRemoval
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Duplicates, Durability, NonTransactional, QueueOptions
from amqproute.broker.priority_queues import USUAL_PRIORITY, PriorityQueues, level_of
from amqproute.broker.queue_capacity import QueueCapacity
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.queue_view import QueueView
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.entry import FLEETING_MS, TRANSIENT, Entry
from amqproute.errors import NotImplementedHere, ResourceDeleted, ResourceLimitExceeded
from amqproute.message import Message
from amqproute.plurals import counted
from amqproute.values import Origin
from amqproute.wire.amqp10 import spec


class Enqueue:
    """What one queue takes.

    Args:
        queue: it, as batches, the journal and senders know it.
        levels: its lines.
        space: its places.
        ahead: what is handed out before it is committed.
        removal: ends what turns out to be a repetition.
        accounts: who is charged for what entries occupy.
        tally: counts.
        store: the `IStore`.
        clock: for another try when ids could not be read.
        log: for the same.
        in_memory_only: nothing is written, and nothing paged, whatever the options say (Q-18).
        emptied: called when all that the queue had may have left before it was committed.

    Attributes:
        limits: the queue's bounds.
    """

    __slots__ = (
        "_accounts",
        "_ahead",
        "_clock",
        "_duplicates",
        "_emptied",
        "_expires",
        "_in_memory_only",
        "_is_choosy",
        "_is_ending",
        "_keeps_all",
        "_keeps_nothing",
        "_levels",
        "_log",
        "_options",
        "_queue",
        "_removal",
        "_space",
        "_store",
        "_tally",
        "limits",
    )

    def __init__(
        self,
        queue: QueueView,
        levels: PriorityQueues,
        space: QueueCapacity,
        ahead: EarlyDelivery,
        removal: EntryRemoval,
        accounts: SenderQuotas,
        tally: QueueCounters,
        store: Any,
        clock: IReactorTime,
        log: Logger,
        in_memory_only: bool,
        emptied: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._levels = levels
        self._space = space
        self._ahead = ahead
        self._removal = removal
        self._accounts = accounts
        self._tally = tally
        self._store = store
        self._clock = clock
        self._log = log
        self._in_memory_only = in_memory_only
        self._emptied = emptied
        self._duplicates: DuplicateFilter | None = None
        self._options = QueueOptions()
        self.limits = QueueLimits()

    # -- habits --------------------------------------------------------------------------------

    def adopt(self, options: QueueOptions, is_ending: bool) -> None:
        """Take what these options allow from now on; nothing at all if the queue is ending."""
        before, self._options = self._options, options
        keeps_nothing = options.durability is Durability.TRANSIENT or self._in_memory_only
        self._keeps_nothing = keeps_nothing
        self._keeps_all = options.durability is Durability.FORCED and not keeps_nothing
        self._expires = options.archive_expired
        self._is_ending = is_ending
        self._is_choosy = (  # one that is not looks at nothing
            is_ending
            or options.non_transactional is not NonTransactional.ALL
            or (keeps_nothing and not options.takes_durable)
        )
        if options.duplicates is not before.duplicates:
            self._watch(options.duplicates)

    def _watch(self, policy: Duplicates) -> None:
        if self._duplicates is not None:
            self._duplicates.stop()
            self._duplicates = None
        if policy is not Duplicates.OFF:
            name = self._queue.name
            with_numbers = policy is Duplicates.ALL
            self._duplicates = DuplicateFilter(
                name, self._store, self._clock, with_numbers, self._space.open, self._log
            )
            if self._space.is_used:
                here = [entry for entry in self._queue.in_memory() if not entry.stored]
                self._space.close()
                self._duplicates.index(self._levels.lines, here)
                return
        self._space.open()  # nobody waits for ids that are not read

    def recovered(self) -> None:
        """Entries of an earlier run are on the lines: have their ids read."""
        if self._duplicates is not None:
            self._space.close()
            self._duplicates.index([each for each in self._levels.lines if each.paged])

    def end(self) -> None:
        """Take nothing any more: the queue is gone."""
        self._is_ending = self._is_choosy = True
        self.stop()
        self._duplicates = None

    def stop(self) -> None:
        """Read nothing more."""
        if self._duplicates is not None:
            self._duplicates.stop()

    # -- in ------------------------------------------------------------------------------------

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Take a message into the batch. See `ITarget.put`."""
        identity = 0
        if self._duplicates is not None:
            identity = self._duplicates.identity(message)
            if identity and self._duplicates.holds(identity):
                self._tally.duplicates += not batch.is_rehearsal
                batch.repeated(self._queue.name, message, origin)
                return
        if self._is_choosy:
            self._check(message, batch)
        limits = self.limits
        if limits.capacity:
            self._require_capacity(batch)
        line = self._levels.usual
        header = message.header
        if header.priority != USUAL_PRIORITY and limits.priorities > 1:
            line = self._levels.line(level_of(header.priority, limits.priorities))
        offsets = message.located  # it was looked at for the header
        if offsets is not None and offsets.delivery_annotations_end and self._queue.is_relay:
            _require_standard_format(message)
        size = len(message.encoded)
        pages = line.must_page(size, limits)
        if pages and self._in_memory_only:
            raise ResourceLimitExceeded(
                f"queue {self._queue.name} is full: it lives in memory only",
                info={"limiter": "memory"},
            )
        entry = self._enter(message, header, batch, origin, line, pages)
        line.put(entry, size, pages)
        if origin.account is not None:
            self._accounts.put(entry, origin.account)
        if identity and self._duplicates is not None:
            self._duplicates.put(entry, identity)
        queue = self._queue
        if batch.came is not None:
            batch.came.append((queue.name, entry, origin, origin.tag, None))
        batch.last_id = entry.id
        try:
            batch.arrivals[queue].append(entry)
        except KeyError:
            batch.arrivals[queue] = [entry]

    def repeats(self, message: Message) -> bool:
        """Tell whether a message would be dropped, now or when it arrives. See `Queue.repeats`."""
        if self._duplicates is None:
            return False
        identity = self._duplicates.identity(message)
        return identity != 0 and self._duplicates.knows(identity)

    def _check(self, message: Message, batch: Batch) -> None:
        name = self._queue.name
        if self._is_ending:
            raise ResourceDeleted(f"node {name} does not exist any more")
        admission.check_message(
            name, self._options, message, batch.is_transactional, self._keeps_nothing
        )

    def _require_capacity(self, batch: Batch) -> None:
        queue = self._queue
        capacity = self.limits.capacity
        if self._space.taken - batch.leaving.get(queue, 0) >= capacity:
            raise ResourceLimitExceeded(
                f"queue {queue.name} is full: {counted(capacity, 'message')}",
                info={"limiter": "capacity"},
            )

    def _enter(
        self,
        message: Message,
        header: spec.Header,
        batch: Batch,
        origin: Origin,
        line: EntryList,
        pages: bool,
    ) -> Entry:
        """Make the entry, and write it where it has to be written."""
        now_ms = batch.now_ms
        lasts = origin.is_dead_letter or not self._expires
        expires_ms = 0 if lasts else message.expires_ms(now_ms)
        most_ms = self.limits.ttl_ms
        if most_ms:
            latest = now_ms + most_ms
            expires_ms = min(expires_ms, latest) if expires_ms else latest
        durable = (header.durable or self._keeps_all) and not self._keeps_nothing
        store_id = self._store.next_id()
        stored = durable or pages
        entry = Entry(store_id, message, durable, stored, now_ms, expires_ms, header.delivery_count)
        entry.line = line
        entry.origin = origin.container_id
        if stored:
            flags = 0 if durable else TRANSIENT
            if origin.account is not None:
                flags |= origin.account.flags
            batch.transaction.enqueue(
                line.key, store_id, message.encoded, now_ms, expires_ms, flags, message.rest
            )
        if expires_ms and header.ttl == 0 and not pages:
            entry.expires_ms = FLEETING_MS
        return entry

    @property
    def is_in_doubt(self) -> bool:
        """Something is on its way that will not stay when it arrives and finds another one."""
        return self._duplicates is not None and self._duplicates.is_in_doubt

    def arrived(self, entries: list[Entry]) -> list[Entry]:
        """Note entries whose batch has been committed; return those that are to be lined up."""
        if self._duplicates is not None:
            entries = self._without_repetitions(entries, self._duplicates)
        self._tally.enqueued += len(entries)
        if self._ahead.entries:
            entries = self._ahead.arrived(entries)
            self._emptied()
        return entries

    def _without_repetitions(self, entries: list[Entry], once: DuplicateFilter) -> list[Entry]:
        """Take out what is held already: its other copy was on its way when it was put."""
        twice = once.arrived(entries)
        if not twice:
            return entries
        self._tally.duplicates += len(twice)
        for entry in twice:
            entry.line.unmatched(entry, len(entry.message.encoded))
        self._accounts.gone(twice)
        self._removal.end_now(twice)
        gone = set(twice)
        return [entry for entry in entries if entry not in gone]

    def not_arrived(self, entries: list[Entry]) -> None:
        """Forget entries whose batch could not be committed."""
        if self._ahead.entries:
            if self._duplicates is not None:
                out = [entry for entry in entries if entry in self._ahead.entries]
                self._duplicates.arrived([entry for entry in out if not entry.durable])
                self._duplicates.not_safe([entry for entry in out if entry.durable])
            entries = self._ahead.not_arrived(entries)
            self._emptied()
        if self._duplicates is not None:
            self._duplicates.not_arrived(entries)
        if self._accounts:
            self._accounts.gone(entries)
        for entry in entries:
            entry.line.not_arrived(entry, len(entry.message.encoded))
        self._space.freed()

    # -- what is held --------------------------------------------------------------------------

    def gone(self, entries: Sequence[Entry]) -> None:
        """Forget entries that the queue does not hold any more."""
        if self._duplicates is not None:
            self._duplicates.gone(entries)
        if self._accounts:
            self._accounts.gone(entries)

    def back(self, entries: Sequence[Entry]) -> None:
        """Undo `gone`: the store has not let go of them."""
        if self._accounts:
            self._accounts.back(entries)
        if self._duplicates is not None:
            self._duplicates.back(entries)


def _require_standard_format(message: Message) -> None:
    """Refuse what cannot go to another broker: it has no place for a trace (M-09, T-27).

    Raises:
        NotImplementedHere: it is of another message-format than that of part 3.
    """
    if message.foreign_format:
        raise NotImplementedHere(
            f"a message of message-format {message.foreign_format} is not sent to other brokers"
        )
