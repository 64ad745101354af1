# SPDX-License-Identifier: Apache-2.0
"""A queue: each message to one consumer, in order of priority and arrival (topics Q and D).

The contents of a queue are data (`queue_state`); its parts are functions over them that return
decisions and change nothing else. `Queue` applies these decisions to the store, the journal,
consumers, senders and timers. The parts:

    enqueue            admission and placing of messages; admission: restrictions of the options
    duplicate_filter   message-ids, against duplicates
    priority_queues    the lines of entries, one for each priority in use
    consumer_set       the consumers; dispatch: distribution of entries among them
    early_delivery     delivery of entries while their commit is in progress
    stored_backlog     reading of pages from the store
    expiry             expired entries
    length_limit       entries that make room for others
    retry_delay        entries that wait for their next attempt
    settlement         effects of outcomes
    unmatched_entries  entries that no attached link needs
    entry_removal      removal of entries
    queue_capacity     notices of free space; publisher_credit: the senders' shares of it
    queue_iterator     all entries, a page at a time, for operators
    xa_queue_holds     entries and places held by prepared branches of distributed transactions
    lifetime_policy    lifetime of dynamic queues
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker import admission, entry_list
from amqproute.broker.alarm import Alarm
from amqproute.broker.call_once import CallOnce
from amqproute.broker.commit_batch import Batch
from amqproute.broker.commit_retry import all_of, retry_settle
from amqproute.broker.consumer_cursor import Selects
from amqproute.broker.consumer_set import UNBOUNDED
from amqproute.broker.dispatch import BROKEN_SECONDS, Shares, deal
from amqproute.broker.duplicate_filter import MOST, RETRY_SECONDS, DuplicateFilter
from amqproute.broker.early_delivery import confirm_early, deal_early, keep_early
from amqproute.broker.enqueue import admit
from amqproute.broker.entry_list import EntryList, unreadable
from amqproute.broker.entry_removal import (
    DISCARD,
    DUPLICATE,
    NODE_DELETED,
    NODE_GONE,
    EntryRemoval,
    IDisposal,
)
from amqproute.broker.expiry import (
    earliest,
    lines_to_sweep,
    next_expiry,
    take_expired,
    take_fleeting,
    wait_until,
)
from amqproute.broker.length_limit import take_excess
from amqproute.broker.lifetime_policy import LifetimePolicy
from amqproute.broker.message_id_index import identity_of
from amqproute.broker.node_context import NodeContext
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import AT_ONCE_MS, QueueLimits
from amqproute.broker.node_options import Duplicates, QueueOptions
from amqproute.broker.priority_queues import USUAL_PRIORITY
from amqproute.broker.queue_capacity import QueueCapacity
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.queue_iterator import BUSY_SECONDS, PAGE, QueueIterator
from amqproute.broker.queue_state import USUAL_LIMITS, USUAL_OPTIONS, QueueState
from amqproute.broker.settlement import (
    Browsed,
    Bury,
    Quarantine,
    Remove,
    Return,
    Rewrite,
    SettlementDecision,
    decide,
    is_release,
    make_available,
    released_code,
)
from amqproute.broker.stored_backlog import (
    RELOAD_SECONDS,
    Scan,
    catch_up,
    next_scan,
    refilled,
    scanned,
)
from amqproute.broker.unmatched_entries import take_unmatched
from amqproute.broker.xa_queue_holds import hold_recovered, load_rows
from amqproute.content_class import is_stream
from amqproute.entry import ACCOUNT_SHIFT, FLEETING_MS, TRANSIENT, Entry
from amqproute.errors import ResourceLimitExceeded
from amqproute.interfaces import IConsumer, IRefusingTarget, ISource
from amqproute.journal.event import SOMEBODY, EntryTaker, RunEvent
from amqproute.journal.record import RecordKind
from amqproute.log_rate_limit import RateLimitedLog
from amqproute.message import Message
from amqproute.outcomes import Acceptance, ErrorDetails, Outcome
from amqproute.store.model import DamagedEntry, StoredEntry
from amqproute.translation.dead_letters import DeadLetterTarget
from amqproute.values import QUARANTINE, DeadLetterReason, Origin

MOST_RESTS: Final = 16
"""Most pages kept in memory while the disk is full; no more are read beyond that."""
_NO_IDS: Final[frozenset[int]] = frozenset()
"""Shared by all queues: hardly any needs a set of its own, and each would take 216 octets."""

Remover = Callable[[list[Entry], Batch], None]
"""Removes entries with a batch."""


@implementer(IRefusingTarget, ISource)
class Queue:
    """A queue node.

    Args:
        name: its name; it may change.
        context: what it shares with the other nodes.
        limits: its bounds.
        options: its options.
        disposal: final disposal of entries that leave.
        force_transient: nothing is written: every entry lives in memory only (dynamic queues,
            Q-18); such a queue never pages.
        rows: the name of its rows in the store, if that is not its own.

    Attributes:
        state: what it holds.
        declaration: its declaration, without the effects of policies; None for dynamic
            queues and those that clients cannot address.
        dead_letter_name: the node for its dead letters, or None.
        dead_letter_target: the exchange for its dead letters, or None; it goes before the node.
        publishers: the links that send to it, which share its free space.
        life: the lifetime of a dynamic queue; None for ever.
        when_empty: called soon after its last message has left; None for nobody.
        takes_any_format: messages may be of another message-format than that of part 3 (M-09).
    """

    takes_any_format = True

    # A relay queue waits for each of thousands of destinations: a dictionary is a kilobyte more.
    __slots__ = (
        "__weakref__",
        "_again",
        "_begin",
        "_clock",
        "_ended",
        "_expiry_alarm",
        "_ids_alarm",
        "_is_busy",
        "_journal",
        "_log",
        "_now_ms",
        "_overruns",
        "_pages",
        "_pause",
        "_quarantined",
        "_reload_alarm",
        "_removal",
        "_retry_alarm",
        "_soon",
        "_space",
        "_stages",
        "_store",
        "dead_letter_name",
        "dead_letter_target",
        "declaration",
        "life",
        "publishers",
        "state",
        "when_empty",
    )

    def __init__(
        self,
        name: str,
        context: NodeContext,
        *,
        limits: QueueLimits = USUAL_LIMITS,
        options: QueueOptions = USUAL_OPTIONS,
        disposal: IDisposal = DISCARD,
        force_transient: bool = False,
        rows: str | None = None,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._pause = context.pause
        self._now_ms = context.now_ms
        self._begin = context.begin
        self._journal = context.journal
        self._log = context.log
        self._ended = context.ended
        self._stages = context.stages
        self.state = QueueState(name, rows, context.budget, context.quotas, force_transient)
        self._removal = EntryRemoval(self, self.state, disposal)
        self._space = QueueCapacity(self.state, self._clock)
        self.publishers = self._space.publishers
        self._soon = CallOnce(self._clock)
        self._expiry_alarm = Alarm(self._clock)
        self._retry_alarm = Alarm(self._clock)
        self._reload_alarm = Alarm(self._clock)
        self._ids_alarm = Alarm(self._clock)
        self._overruns: RateLimitedLog | None = None
        self._is_busy = False
        self._again = False
        self._pages = 0  # that cursors have read
        self._quarantined = _NO_IDS  # of entries that prepared branches hold
        self.declaration: NodeDeclaration | None = None
        self.dead_letter_name: str | None = None
        self.dead_letter_target: DeadLetterTarget | None = None
        self.life: LifetimePolicy | None = None
        self.when_empty: Callable[[], None] | None = None
        self.limits = limits
        self.options = options

    # -- name, limits, options -------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name; it may change."""
        return self.state.name

    @name.setter
    def name(self, name: str) -> None:
        self.state.name = name

    @property
    def rows(self) -> str:
        """The name of its rows in the store."""
        return self.state.rows

    @property
    def is_relay(self) -> bool:
        """Whether it is a relay queue: its consumer is another broker."""
        return self.state.is_relay

    @is_relay.setter
    def is_relay(self, is_relay: bool) -> None:
        self.state.is_relay = is_relay

    @property
    def limits(self) -> QueueLimits:
        """Its bounds. A new capacity applies at once; messages beyond it stay."""
        return self.state.limits

    @limits.setter
    def limits(self, limits: QueueLimits) -> None:
        before, self.state.limits = self.state.limits, limits
        if limits.capacity != before.capacity or limits.octets != before.octets:
            self._space.changed()
        if limits.drops_head:
            self._call_once(self._drop_excess)

    @property
    def options(self) -> QueueOptions:
        """Its options. A change concerns messages and links that come later."""
        return self.state.options

    @options.setter
    def options(self, options: QueueOptions) -> None:
        state = self.state
        before, state.options = state.options, options
        self._apply_rules()
        if options.duplicates is not before.duplicates:
            self._watch_duplicates(options.duplicates)
        consumers = state.consumers
        consumers.notes_needs = options.archive_unreachable
        for cursor in consumers.cursors.values():
            if cursor.copies and cursor.needed is None and options.archive_unreachable:
                cursor.needed = set()
        most = options.destructive_links
        consumers.most_movers = UNBOUNDED if most is None else most
        self._promote()

    @property
    def is_ending(self) -> bool:
        """Whether it is about to be deleted and takes no messages (`broker.node_deletion`)."""
        return self.state.is_ending

    @is_ending.setter
    def is_ending(self, is_ending: bool) -> None:
        self.state.is_ending = is_ending
        self._apply_rules()

    def _apply_rules(self) -> None:
        state = self.state
        state.rules = admission.rules_of(state.options, state.force_transient, state.is_ending)

    # -- what an operator sees -----------------------------------------------------------------

    @property
    def tally(self) -> QueueCounters:
        """Its counters."""
        return self.state.counters

    @property
    def available(self) -> int:
        """Number of entries that a consumer could take now."""
        return self.state.levels.available

    @property
    def acquired(self) -> int:
        """Number of entries held by consumers."""
        return self.state.acquired

    @property
    def deferred(self) -> int:
        """Number of entries that wait for their next attempt."""
        return len(self.state.retry_delay)

    @property
    def depth(self) -> int:
        """Messages held: available, acquired and deferred (Q-15)."""
        return self.state.depth

    @property
    def resident(self) -> int:
        """Available entries in memory."""
        return self.state.levels.in_memory

    @property
    def resident_bytes(self) -> int:
        """Bytes of their messages, and of those that are deferred."""
        return self.state.levels.resident_bytes

    @property
    def paged_bytes(self) -> int:
        """Bytes of the entries that are in the store only."""
        return self.state.levels.paged_bytes

    @property
    def filed_bytes(self) -> int:
        """Octets of very large bodies, which are files and in neither of the other two counts."""
        return self.state.levels.filed_bytes

    @property
    def consumers(self) -> int:
        """Number of attached consumers, including browsers and waiting consumers."""
        return len(self.state.consumers)

    @property
    def is_used(self) -> bool:
        """Whether it holds messages, or messages are on their way to it."""
        return self.state.is_used

    @property
    def is_settled(self) -> bool:
        """Whether no change of this queue is on its way to the store."""
        state = self.state
        return not (state.acquired or state.levels.pending or state.promised)

    @property
    def promised(self) -> int:
        """Places kept free for messages of prepared branches."""
        return self.state.promised

    @property
    def lowest_id(self) -> int:
        """A lower bound of the ids of entries that are or will be on this queue."""
        return min([self.next_id, *(entry.id for entry in self.deferred_entries)])

    @property
    def next_id(self) -> int:
        """A lower bound of the ids of entries that are or will be available (not deferred)."""
        low = self.state.levels.next_id
        return self._store.next_id() if low is None else low

    @property
    def oldest_arrival_ms(self) -> int | None:
        """Arrival of the oldest available entry (`EntryList.oldest_ms`), None without one."""
        return self.state.levels.oldest_ms

    def arrivals_ms(self) -> list[int]:
        """Return the arrival times of waiting entries in memory; those in the store are newer."""
        return [entry.arrived_ms for entry in self.state.waiting()]

    def __repr__(self) -> str:
        return (
            f"<Queue {self.name} available={self.available} acquired={self.acquired} "
            f"paged={self.state.levels.paged} consumers={len(self.state.consumers.rotation)}>"
        )

    # -- recovery and end ----------------------------------------------------------------------

    def recovered(
        self,
        count: int,
        size_bytes: int,
        level: int = USUAL_PRIORITY,
        first_arrived_ms: int = 0,
        filed_bytes: int = 0,
    ) -> None:
        """Take over the stored entries of one priority from an earlier run of the daemon."""
        line = self.state.levels.line(level)
        newest_id = self._store.next_id() if count else 0
        line.recovered(count, size_bytes, newest_id, first_arrived_ms, filed_bytes)
        if not count:
            return
        self._watch_expiry(0)
        if self.state.limits.drops_head:
            self._call_once(self._drop_excess)
        if self.state.duplicates is not None:
            self._read_ids([each for each in self.state.levels.lines if each.paged])
        if self.state.options.archive_unreachable:
            self._call_once(self._check_unmatched)

    def delete(self) -> None:
        """End the queue (lifetime policies): entries go, timers stop."""
        state = self.state
        state.is_deleted = True
        self.is_ending = True
        batch = self._begin()
        if state.quotas.by_number:
            state.quotas.gone(list(state.consumers.held()))  # nobody settles them any more
        state.duplicates = None
        self._removal.drop(state.take_all(), NODE_DELETED, batch)
        self._departed()
        state.consumers.clear()
        self.stop()
        self._commit(batch)
        # Queues come and go with connections: none is left to the collector of garbage.
        self.life = None
        self._removal.queue_is_deleted()
        if not state.is_relay:  # `relay.Relay` keeps those of next hops
            self._ended.add(state.counters)

    def stop(self) -> None:
        """Cancel the timers; the entries stay where they are."""
        self._soon.stop()
        self._expiry_alarm.stop()
        self._retry_alarm.stop()
        self._reload_alarm.stop()
        self._ids_alarm.stop()
        if self.state.duplicates is not None:
            self.state.duplicates.stop()

    def _call_once(self, function: Callable[[], object]) -> None:
        """Call a method later in this reactor turn, unless the queue is gone by then."""
        if not self.state.is_deleted:
            self._soon.call(function)

    def _commit(self, batch: Batch, patient: bool = False) -> None:
        """Commit a batch of the queue's own; retry later what a full disk does not take."""
        done = batch.commit(patient)
        done.addErrback(retry_settle, batch, self._begin).addErrback(self._commit_failed)

    def _commit_failed(self, failure: Failure) -> None:
        self._log.failure("{queue} could not write to the store", failure, queue=self.name)

    # -- publish -------------------------------------------------------------------------------

    def space(self) -> int:
        """Return how many more messages fit (Q-15)."""
        return self.state.space()

    def when_space(self, notify: Callable[[], None]) -> None:
        """Call ``notify``, a method, once when there is space again; it is held weakly."""
        self._space.waiters.add(notify)

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Take a message into the batch. See `ITarget.put`."""
        state = self.state
        duplicates = state.duplicates
        identity = 0
        if duplicates is not None:
            identity = identity_of(message, duplicates.with_numbers)
            if identity and duplicates.holds(identity):
                state.counters.duplicates += not batch.is_rehearsal
                batch.repeated(state.name, message, origin)
                return
        now_ms = batch.now_ms
        try:
            line, pages, is_durable, expires_ms = admit(
                state,
                message,
                now_ms,
                is_transactional=batch.is_transactional,
                is_dead_letter=origin.is_dead_letter,
                leaving=batch.leaving.get(self, 0) if batch.leaving else 0,
            )
        except ResourceLimitExceeded:
            if self.refuse(message, batch, origin) and batch.is_rehearsal:
                return
            raise
        entry_id = self._store.next_id()
        header = message.header
        encoded = message.encoded
        account = origin.account
        stored = is_durable or pages
        entry = Entry(
            entry_id, message, is_durable, stored, now_ms, expires_ms, header.delivery_count
        )
        entry.line = line
        entry.origin = origin.container_id
        if stored:
            flags = 0 if is_durable else TRANSIENT
            if account is not None:
                flags |= account.number << ACCOUNT_SHIFT
            batch.transaction.enqueue(
                line.key, entry_id, encoded, now_ms, expires_ms, flags, message.rest
            )
        if expires_ms and not pages and (header.ttl == 0 or state.limits.ttl_ms == AT_ONCE_MS):
            entry.expires_ms = FLEETING_MS
        line.put(entry, len(encoded), pages)
        if account is not None:
            state.quotas.put(entry, account)
        if identity and duplicates is not None and not duplicates.put(entry, identity):
            self._warn_of_many_ids(duplicates)
        if batch.came is not None:
            batch.came.append((state.name, entry, origin, origin.tag, None))
        batch.last_id = entry_id
        try:
            batch.arrivals[self].append(entry)
        except KeyError:
            batch.arrivals[self] = [entry]

    def put_alike(self, messages: Sequence[Message], batch: Batch, origin: Origin) -> int:
        """Take messages of one sender that differ in the contents of their bodies alone.

        As `put` for each, at less cost. What has to be decided for each message is left to `put`:
        a bound that may be reached, an expiry, message-ids, a share of the sender's.

        Returns:
            How many were taken, of the first ones; perhaps none.
        """
        state, first = self.state, messages[0]
        limits, rules = state.limits, state.rules
        duplicates = state.duplicates
        if (
            limits.capacity
            or limits.octets is not None
            or limits.ttl_ms
            or rules.is_selective
            or state.is_relay
            or state.is_reading_ids
            or state.force_transient
            or origin.account is not None
            or (rules.expires and first.expires_ms(batch.now_ms))
            or (duplicates is not None and duplicates.identity(first))
        ):
            return 0
        now_ms = batch.now_ms
        line, pages, is_durable, _ = admit(state, first, now_ms)
        sizes = [len(message.encoded) for message in messages]
        if not pages:
            # As many as stay in memory; the next one is to be paged.
            sizes = sizes[: line.room(sizes, limits)]
        next_id, delivery_count = self._store.next_id, first.header.delivery_count
        sender, key, came = origin.container_id, line.key, batch.came
        stored = is_durable or pages
        flags = 0 if is_durable else TRANSIENT
        enqueue = batch.transaction.enqueue if stored else None
        entries: list[Entry] = []
        for message in messages[: len(sizes)]:
            entry_id = next_id()
            entry = Entry(entry_id, message, is_durable, stored, now_ms, 0, delivery_count)
            entry.line = line
            entry.origin = sender
            if enqueue is not None:
                enqueue(key, entry_id, message.encoded, now_ms, 0, flags, None)
            entries.append(entry)
        line.put_all(entries, sum(sizes), pages)
        if came is not None:
            name, tag = state.name, origin.tag
            came += [(name, entry, origin, tag, None) for entry in entries]
        batch.last_id = entries[-1].id
        try:
            batch.arrivals[self] += entries
        except KeyError:
            batch.arrivals[self] = entries
        return len(entries)

    def refuse(self, message: Message, batch: Batch, origin: Origin) -> bool:
        """Dead-letter a message for which there is no room (reject-publish-dlx).

        Its sender gets a refusal all the same. Exceptions: dead letters of other queues, which
        could go round; messages of a transaction, which fails as a whole; and messages of other
        brokers, which keep them and try again.

        Returns:
            Whether it is dead-lettered, or would be in a rehearsal.
        """
        if (
            not self.state.limits.buries_refused
            or batch.is_transactional
            or origin.is_peer
            or origin.is_dead_letter
        ):
            return False
        if not batch.is_rehearsal:
            self._removal.refused(message, origin, batch)
        return True

    def repeats(self, message: Message) -> bool:
        """Return whether the queue has a message with this id and would drop a second one.

        Raises:
            DecodeError: the message's id cannot be read.
        """
        duplicates = self.state.duplicates
        if duplicates is None:
            return False
        identity = duplicates.identity(message)
        return identity != 0 and duplicates.knows(identity)

    def go_ahead(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Deliver entries whose commit is in progress, where `broker.early_delivery` allows it."""
        state = self.state
        if (
            not state.consumers.rotation
            or self._is_busy
            or state.is_deleted
            or (state.duplicates is not None and state.duplicates.doubtful)
            or (state.is_relay and not batch.is_plain)
            or state.options.archive_unreachable
        ):
            return
        dealt = deal_early(state, entries, batch.now_ms)
        if not dealt:
            return
        for _, share in dealt:
            batch.ahead += share
        self._is_busy = True
        self._again = False
        try:
            self._deliver(dealt)
        finally:
            self._is_busy = False
        if self._again:
            self.dispatch()

    def is_ahead(self, entry: Entry) -> bool:
        """Return whether an entry has been delivered before its commit is complete."""
        return entry in self.state.early

    def arrived(self, entries: Sequence[Entry]) -> None:
        """Line up entries whose batch has been committed."""
        state = self.state
        if state.is_deleted:
            self._remove_late(confirm_early(state, entries))
            return
        if state.duplicates is not None and (twice := state.duplicates.arrived(entries)):
            entries = self._without_repetitions(entries, twice)
        state.counters.enqueued += len(entries)
        if state.early:
            entries = confirm_early(state, entries)
            self._check_lifetime()
        earliest_ms = 0
        consumers = state.consumers
        fleeting: list[Entry] = []
        for entry in entries:
            expires_ms = entry.expires_ms
            if expires_ms:
                if expires_ms == FLEETING_MS:
                    fleeting.append(entry)
                elif not earliest_ms or expires_ms < earliest_ms:
                    earliest_ms = expires_ms
            if consumers.cursors:
                consumers.arrived(entry.line, entry)
            else:
                entry.line.arrived(entry, len(entry.message.encoded))
        if earliest_ms:
            self._watch_expiry(earliest_ms)
        if entries and (consumers.rotation or consumers.standby):
            self.dispatch()
        if fleeting and (expired := take_fleeting(fleeting)):
            self._expire(expired)
        if state.options.archive_unreachable:
            self._remove_unmatched(entries)
        if state.limits.capacity:
            self._space.filled()
        if state.limits.drops_head:
            self._drop_excess()

    def _drop_excess(self) -> None:
        """Remove the oldest messages in excess of the length limit (x-max-length)."""
        taken, unread = take_excess(self.state)
        if taken:
            self._count_lost(taken)
            batch = self._begin()
            self._removal.dead_letter(taken, DeadLetterReason.MAX_LENGTH, None, batch)
            self._departed()
            self._commit(batch)
        for line in unread:
            if not line.is_busy:
                self._refill(line)

    def _count_lost(self, entries: Sequence[Entry]) -> None:
        """Count what streams lose because they come faster than they are consumed; say so."""
        count = len([each for each in entries if is_stream(each.message)])
        if not count:
            return
        counters = self.state.counters
        counters.stream_lost += count
        if self._overruns is None:
            self._overruns = RateLimitedLog(self._clock.seconds)
        lost = self._overruns.due(self.name, count)
        if lost:
            self._log.warn(
                "{queue} is over its limit and has dropped {count} messages of streams, {total} in "
                "all: who consumes them is too slow, or nobody does",
                queue=self.name,
                count=lost,
                total=counters.stream_lost,
            )

    def _remove_late(self, entries: Sequence[Entry]) -> None:
        """Remove entries that arrived after the deletion of the queue."""
        batch = self._begin()
        batch.ended(RecordKind.DELETED, self.name, entries, NODE_GONE)
        self._removal.archive(entries, batch)
        self._departed()
        self._commit(batch)

    def not_arrived(self, entries: Sequence[Entry]) -> None:
        """Forget entries whose batch could not be committed."""
        state = self.state
        duplicates = state.duplicates
        if state.early:
            if duplicates is not None:
                out = [entry for entry in entries if entry in state.early]
                duplicates.arrived([entry for entry in out if not entry.durable])
                duplicates.not_safe([entry for entry in out if entry.durable])
            entries = keep_early(state, entries)
            self._check_lifetime()
        if duplicates is not None:
            duplicates.not_arrived(entries)
        state.quotas.gone(entries)
        for entry in entries:
            entry.line.not_arrived(entry, len(entry.message.encoded))
        self._space.freed()

    # -- message-ids ---------------------------------------------------------------------------

    def _watch_duplicates(self, policy: Duplicates) -> None:
        state = self.state
        self._ids_alarm.stop()
        if policy is Duplicates.OFF:
            state.duplicates = None
        else:
            state.duplicates = DuplicateFilter(with_numbers=policy is Duplicates.ALL)
            if state.is_used:
                here = [entry for entry in state.in_memory() if not entry.stored]
                self._read_ids(state.levels.lines, here)
                return
        state.is_reading_ids = False
        self._space.changed()  # there are no ids to wait for

    def _read_ids(self, lines: Sequence[EntryList], in_memory: Sequence[Entry] = ()) -> None:
        """Read the message-ids of all entries; meanwhile messages within credit are not taken."""
        self._ids_alarm.stop()
        if self.state.duplicates is not None:
            self.state.is_reading_ids = True
            self.state.duplicates.begin_index(lines, self._store.next_id(), in_memory)
            self._read_next_ids()

    def _read_next_ids(self) -> None:
        duplicates = self.state.duplicates
        page = None if duplicates is None else duplicates.next_page()
        if duplicates is None or page is None:
            self.state.is_reading_ids = False
            self._space.changed()
            return
        key, after = page
        rows = self._store.load(key, after, entry_list.LOAD_MESSAGES, entry_list.LOAD_BYTES)
        read = (duplicates, duplicates.run)
        rows.addCallbacks(self._ids_read, self._ids_not_read, read, errbackArgs=read)

    def _ids_read(self, rows: Sequence[StoredEntry], duplicates: DuplicateFilter, run: int) -> None:
        if duplicates is self.state.duplicates and run == duplicates.run:
            duplicates.indexed(rows)
            self._read_next_ids()

    def _ids_not_read(self, failure: Failure, duplicates: DuplicateFilter, run: int) -> None:
        self._log.failure("{queue} could not read its message-ids", failure, queue=self.name)
        if duplicates is self.state.duplicates and run == duplicates.run:
            self._ids_alarm.set(RETRY_SECONDS, self._read_next_ids)

    def _warn_of_many_ids(self, duplicates: DuplicateFilter) -> None:
        if not duplicates.is_full:
            duplicates.is_full = True
            self._log.warn(
                "{queue} holds {most} messages with an id, the limit: duplicates of further "
                "messages are not detected until there are fewer",
                queue=self.name,
                most=MOST,
            )

    def _without_repetitions(
        self, entries: Sequence[Entry], twice: Sequence[Entry]
    ) -> Sequence[Entry]:
        """Remove duplicates of messages whose first copy was on its way when they were put."""
        state = self.state
        state.counters.duplicates += len(twice)
        for entry in twice:
            entry.line.unmatched(entry, len(entry.message.encoded))
        state.quotas.gone(twice)
        batch = self._begin()
        batch.ended(RecordKind.DELETED, self.name, twice, DUPLICATE)
        self._removal.end_rows(twice, batch)
        batch.commit().addErrback(self._commit_failed)
        gone = set(twice)
        return [entry for entry in entries if entry not in gone]

    # -- deliver -------------------------------------------------------------------------------

    def attach(
        self, consumer: IConsumer, selects: Selects | None = None, copies: bool = False
    ) -> None:
        """Add a consumer at the end of the rotation. See `ISource.attach`.

        A consumer in excess of the limit waits until another one leaves (Q-21).
        """
        consumers = self.state.consumers
        if self.life is not None and not copies:
            self.life.attached(consumer)
        if consumers.is_full and not copies:
            consumers.standby.append((consumer, selects))
            return
        cursor = consumers.cursor_for(consumer, selects, copies)
        if cursor is not None:
            cursor.join(self.state.levels.lines, self._store.next_id())
        consumers.add(consumer, cursor)

    def narrow(self, consumer: IConsumer, selects: Selects) -> None:
        """Have a consumer that takes everything select from now on.

        Args:
            consumer: it was attached without a filter.
            selects: what it takes.
        """
        cursor = self.state.consumers.narrow(consumer, selects)
        if cursor is not None:
            cursor.join(self.state.levels.lines, self._store.next_id())

    def detach(self, consumer: IConsumer) -> None:
        """Remove a consumer; the longest waiting one takes its place."""
        self.state.consumers.remove(consumer)
        self._promote()
        if self.state.options.archive_unreachable:
            self._call_once(self._check_unmatched)
        if self.life is not None:
            self.life.look()

    def _promote(self) -> None:
        consumers = self.state.consumers
        while (waiting := consumers.next_standby()) is not None:
            self.attach(*waiting)
            # Later: the entries of the leaving consumer come back first.
            self._call_once(self.dispatch)

    def check_source(self, copies: bool, leaving: int = 0) -> None:
        """Refuse a link that would receive from this queue (N-14, Q-20, Q-21).

        Args:
            copies: it browses.
            leaving: consumers that take entries away and will be gone when it attaches.

        Raises:
            AmqpError: it may not.
        """
        movers = self.state.consumers.movers - leaving
        admission.check_source(self.name, self.options, copies, movers)

    def dispatch(self) -> None:
        """Deliver what is available. See `ISource.dispatch`.

        Entries that come back or arrive meanwhile are not delivered within this call, but by
        another round, after all consumers have got their shares.
        """
        self._again = True
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._again:
                self._again = False
                self._dispatch_once()
        finally:
            self._is_busy = False

    def _dispatch_once(self) -> None:
        state = self.state
        consumers = state.consumers
        if consumers.standby:
            for consumer, _ in tuple(consumers.standby):
                consumer.exhausted()
        if not consumers.rotation:
            return
        if state.levels.is_empty:
            if consumers.cursors:
                self._scan()  # cursors that are behind must learn that nothing is left
            self._notify_exhausted(consumers.rotation)
            return
        dealt, expired, has_room = deal(state, self._now_ms())
        try:
            if expired:
                self._expire(expired)
        finally:
            # Dealt entries stand on no line: only their consumers can give them back.
            if dealt:
                self._deliver(dealt)
        is_loading = False
        for line in state.levels.lines:
            if line.paged and line.needs_refill(state.limits):
                self._refill(line)
            is_loading = is_loading or line.is_busy
        if consumers.cursors:
            is_loading = self._scan() or is_loading
        if not is_loading and not self._again:  # what has come back takes another round
            if not state.levels.has_resident:
                self._notify_exhausted(consumers.rotation)
            elif has_room:
                # Consumers that still have capacity are barred from the remaining entries, or do
                # not select them.
                self._notify_exhausted([each for each in consumers.rotation if each.capacity() > 0])

    def _notify_exhausted(self, notified: Sequence[IConsumer]) -> None:
        """Notify consumers that no entry waits for them."""
        cursors = self.state.consumers.cursors
        for consumer in tuple(notified):
            if not (cursors and cursors.get(consumer)):
                consumer.exhausted()

    def _deliver(self, dealt: Shares) -> None:
        """Hand consumers their shares, and note the time."""
        state = self.state
        now_us = self._journal.now_us()
        for consumer, entries in dealt:
            if now_us:
                for entry in entries:
                    entry.sent_us = now_us
                    entry.tries += 1
            acquired = state.acquired
            try:
                consumer.deliver(entries)
            except Exception:  # a fault of this program; the others still get their shares
                self._log.failure("delivering entries to {consumer} failed", consumer=consumer)
                if state.acquired == acquired:  # it has settled nothing of it
                    self._take_back(consumer, entries)

    def _take_back(self, consumer: IConsumer, entries: Sequence[Entry]) -> None:
        """Defer entries that a consumer was given and does not hold."""
        cursor = self.state.consumers.cursors.get(consumer)
        if cursor is None or not cursor.copies:
            held = set(consumer.holds())
            self.defer([each for each in entries if each not in held], BROKEN_SECONDS)

    # -- read ----------------------------------------------------------------------------------

    def load(
        self, line: EntryList, after_id: int, limit: int | None = None
    ) -> Deferred[Sequence[StoredEntry]]:
        """Read a page of a line, which is busy until the page has been processed.

        Rows that are not messages are set aside. An empty page would look like the end of the line:
        where no row of a page is a message, the next one is read.
        """
        line.is_busy = True
        most = entry_list.LOAD_MESSAGES
        rows: Deferred[Sequence[StoredEntry]] = self._store.load(
            line.key,
            after_id,
            most if limit is None else min(limit, most),
            entry_list.LOAD_BYTES,
        )
        return rows.addCallback(self._page_read, line, limit)

    def _page_read(
        self, rows: Sequence[StoredEntry], line: EntryList, limit: int | None
    ) -> Sequence[StoredEntry] | Deferred[Sequence[StoredEntry]]:
        left = self._readable(rows, line)
        return left if left or not rows else self.load(line, rows[-1].id, limit)

    def _readable(self, rows: Sequence[StoredEntry], line: EntryList) -> Sequence[StoredEntry]:
        """Return the rows of a page that are messages, and set the others aside.

        Their checksums fit, so they were written like this: by an earlier release, or by a fault
        of this one.
        """
        bad = unreadable(rows)
        if not bad:
            return rows
        unread = line.unread(bad)
        if unread:
            self._quarantine(line.level, unread)
        return [row for row in rows if row not in bad]

    def _page_failed(self, failure: Failure, line: EntryList) -> None:
        """Log that a page could not be read, and read it again after a while."""
        line.is_busy = False
        self._log.failure("{queue} could not load its backlog", failure, queue=self.name)
        if not (self.state.is_deleted or self._reload_alarm.is_set):
            self._reload_alarm.set(RELOAD_SECONDS, self.dispatch)

    def _refill(self, line: EntryList) -> None:
        """Read the next page of a line with few entries left in memory."""
        rows = self.load(line, line.cursor)
        rows.addCallback(self._refilled, line).addErrback(self._page_failed, line)

    def _refilled(self, rows: Sequence[StoredEntry], line: EntryList) -> None:
        state = self.state
        if state.is_deleted:
            line.is_busy = False
            return
        entries = refilled(state, line, rows)
        if entries:
            self._log.debug("{queue} loaded {count} entries", queue=self.name, count=len(entries))
        if state.options.archive_unreachable:
            self._remove_unmatched(entries)
        self._watch_expiry_of(entries)
        if state.limits.drops_head:
            self._drop_excess()
        self.dispatch()

    def _scan(self) -> bool:
        """Read paged entries for cursors with capacity; return whether there are any."""
        for cursor in self.state.consumers.cursors.values():
            if cursor.is_behind:
                self._call_once(self._catch_up)
                return True
        scan = next_scan(self.state, self._pages + 1)
        if scan is None:
            return False
        if not scan.line.is_busy:
            self._pages += 1
            rows = self.load(scan.line, scan.after, scan.limit)
            rows.addCallback(self._scanned, scan).addErrback(self._page_failed, scan.line)
        return True

    def _scanned(self, rows: Sequence[StoredEntry], scan: Scan) -> None:
        scanned(self.state, scan, rows)
        self.dispatch()

    def _catch_up(self) -> None:
        catch_up(self.state)
        self.dispatch()

    def _quarantine(self, level: int, rows: Sequence[StoredEntry]) -> None:
        """Set paged entries aside that are not messages, although their checksums are right."""
        for row in rows:
            self._log.error(
                "entry {entry} of {node} is not a message: quarantined, not delivered: "
                "amqproute store quarantine show {entry}",
                entry=row.id,
                node=self.name,
            )
        damages = [DamagedEntry(row.id, "it is no message", row, len(row.encoded)) for row in rows]
        self.quarantined(level, damages, is_moved=False)

    def quarantined(
        self, level: int, damages: Sequence[DamagedEntry], *, is_moved: bool = True
    ) -> None:
        """Withhold damaged paged entries from consumers.

        Args:
            level: the level of their line.
            damages: their remains.
            is_moved: the store has set them aside itself.
        """
        line = self.state.levels.line(level)
        entries = []
        for damage in damages:
            if damage.entry is not None:
                entry = line.new_entry(damage.entry)
                self.state.quotas.gone([entry])
                entry.charge = None
                entries.append(entry)
            line.lost(damage.entry_id, damage.size)
        ids = [damage.entry_id for damage in damages]
        batch = self._begin()
        if not is_moved:
            for entry_id in ids:
                batch.transaction.move(entry_id, QUARANTINE, entry_id)
        self._removal.damaged(entries, ids, batch)
        self._departed()
        self._commit(batch)

    # -- settle --------------------------------------------------------------------------------

    def settle(
        self, entries: Sequence[Entry], outcome: Outcome, batch: Batch, consumer: object = None
    ) -> None:
        """Act on an outcome (O-10 to O-13). See `ISource.settle`."""
        state = self.state
        if state.is_deleted:
            return
        if type(outcome) is Acceptance and not state.consumers.cursors:
            self._accept(entries, batch, consumer)
            return
        is_given_back = False
        for decision in decide(state, entries, outcome, consumer):
            self._apply(decision, batch, consumer)
            is_given_back = is_given_back or is_release(decision)
        if is_given_back and self._journal.is_kept:
            self._note_released(entries, released_code(outcome), consumer)

    def _accept(self, entries: Sequence[Entry], batch: Batch, consumer: object) -> None:
        self.state.acquired -= len(entries)
        now_us = self._journal.now_us()
        self._removal.taken(entries, batch, consumer, now_us)
        if now_us:
            stages = self._stages
            (stages.relay if self.state.is_relay else stages.local).observe(entries, now_us)
        self._departed()

    def _apply(self, decision: SettlementDecision, batch: Batch, consumer: object) -> None:
        match decision:
            case Remove(entries):
                self._accept(entries, batch, consumer)
            case Quarantine(entries):
                self.state.acquired -= len(entries)
                self._removal.set_aside(entries, batch)
                self._departed()
            case Bury(entries, reason, error):
                if reason is DeadLetterReason.REJECTED:
                    self.state.counters.rejected += len(entries)
                self.give_up(entries, reason, error, batch)
            case Rewrite(entry, encoded):
                batch.transaction.update(entry.id, entry.delivery_count, encoded)
            case Return(entries):
                self.release(entries)
            case Browsed(entries, is_again):
                if is_again:
                    self.dispatch()
                else:
                    self._remove_unmatched(entries)

    def _note_released(self, entries: Sequence[Entry], code: str | None, consumer: object) -> None:
        """Record in the journal that a consumer has given entries back."""
        taker: EntryTaker = getattr(consumer, "taker", SOMEBODY)
        facts = {"node": self.name, "code": code, **taker.facts}
        columns = {"entry": [entry.id for entry in entries]}
        self._journal.note(RunEvent(RecordKind.RELEASED, self._journal.now_us(), facts, columns))

    def retake(self, entries: Sequence[Entry]) -> None:
        """Undo `settle` with an outcome that archives. See `ISource.retake`."""
        self.state.acquired += len(entries)
        self.state.remember(entries)

    def release(self, entries: Sequence[Entry]) -> None:
        """Put entries back in their old places, unchanged (O-11)."""
        state = self.state
        if state.is_deleted:
            return
        state.acquired -= len(entries)
        state.counters.released += len(entries)
        for entry in entries:
            entry.attempted = True
        self._watch_expiry_of(entries)
        self._make_available(entries)

    def give_up(
        self,
        entries: Sequence[Entry],
        reason: DeadLetterReason,
        error: ErrorDetails | None,
        batch: Batch,
    ) -> None:
        """Dead-letter acquired entries for a reason other than an outcome."""
        self.state.acquired -= len(entries)
        self._removal.dead_letter(list(entries), reason, error, batch)
        self._departed()

    def _make_available(self, entries: Sequence[Entry]) -> None:
        make_available(self.state, entries)
        self.dispatch()
        if self.state.limits.drops_head:
            self._drop_excess()

    def _departed(self) -> None:
        """Notify listeners that entries have left."""
        if self.life is not None:
            self._call_once(self.life.look)
        if self.when_empty is not None and self.state.is_empty:
            self._call_once(self.when_empty)
        if self._space.waiters.waiting:
            self._space.freed()

    def _check_lifetime(self) -> None:
        """Schedule a check whether it is empty or at the end of its life: messages have left."""
        if self.life is not None:
            self._call_once(self.life.look)

    # -- what an operator removes --------------------------------------------------------------

    def purge(self) -> Deferred[int]:
        """Archive every available and deferred entry.

        Returns:
            A Deferred of their number, when that is durable.
        """
        return self._clear_out(self._removal.purge)

    def expire(self, error: ErrorDetails) -> Deferred[int]:
        """End the life of every available and deferred entry now, for an operator.

        Args:
            error: the reason for the senders.

        Returns:
            A Deferred of their number, when that is durable.
        """
        return self._clear_out(partial(self._removal.expire, error=error))

    def _clear_out(self, remove: Remover) -> Deferred[int]:
        """Remove all entries that are there now, page by page.

        Those in memory are off their lines at once.

        A page that is being loaded at this moment is waited for. On a full disk, removals that need
        no room happen as soon as the store writes, since they free some; those that need room for
        dead letters or reports wait for it.

        Args:
            remove: called with entries and the batch in which it has to remove them.

        Returns:
            A Deferred of their number, when that is durable.
        """
        counts: list[int] = []
        rests: list[Deferred[None]] = []

        def page(entries: list[Entry]) -> Deferred[None]:
            batch = self._begin()
            remove(entries, batch)
            self._departed()
            counts.append(len(entries))
            done = batch.commit().addErrback(retry_settle, batch, self._begin, rests)
            return done.addCallback(waited)

        def waited(_: object) -> Deferred[None] | None:
            return all_of(rests) if len(rests) > MOST_RESTS else None

        async def pages(entries: list[Entry]) -> None:
            await page(entries[:PAGE])
            for start in range(PAGE, len(entries), PAGE):
                await self._pause()
                await page(entries[start : start + PAGE])

        done = Deferred.fromCoroutine(pages(self.state.take_all()))
        for line in self.state.levels.lines:
            # What is paged now, or is being loaded.
            until = line.tail + 1
            done.addCallback(
                lambda _, line, until: self._clear_line(line, until, page), line, until
            )
        return done.addCallback(lambda _: all_of(rests)).addCallback(lambda _: sum(counts))

    def _clear_line(
        self, line: EntryList, until: int, remove: Callable[[list[Entry]], Deferred[None]]
    ) -> Deferred[None]:
        """Remove entries with ids below `until`: those loaded meanwhile, then the paged ones."""
        if self.state.is_deleted:
            return succeed(None)
        if line.is_busy:
            later: Deferred[None] = deferLater(self._clock, BUSY_SECONDS)
            return later.addCallback(lambda _: self._clear_line(line, until, remove))
        loaded = [entry for entry in line.entries() if entry.id < until]
        if loaded:
            line.remove(set(loaded))
            return remove(loaded).addCallback(lambda _: self._clear_line(line, until, remove))
        if not line.paged or line.cursor >= until:
            return succeed(None)
        rows = self.load(line, line.cursor)
        return rows.addCallback(self._clear_page, line, until, remove)

    def _clear_page(
        self,
        rows: Sequence[StoredEntry],
        line: EntryList,
        until: int,
        remove: Callable[[list[Entry]], Deferred[None]],
    ) -> Deferred[None] | None:
        entries = line.cleared([row for row in rows if row.id < until])
        if not entries:
            return None
        return remove(entries).addCallback(lambda _: self._clear_line(line, until, remove))

    # -- what no link needs ----------------------------------------------------------------------

    def _check_unmatched(self) -> None:
        """Check all entries: a link has gone, or none has come yet (Q-23)."""
        state = self.state
        if state.consumers.rotation:
            self._remove_unmatched(list(state.levels.entries()))
        elif not state.consumers.standby and (state.levels.available or state.retry_delay):
            done = self._clear_out(self._removal.remove_unmatched)
            done.addErrback(self._commit_failed)

    def _remove_unmatched(self, entries: Sequence[Entry]) -> None:
        """Remove those of these available entries that no attached link selects."""
        consumers = self.state.consumers
        if not consumers.rotation:
            if not consumers.standby:
                self._call_once(self._check_unmatched)
            return
        unmatched = take_unmatched(self.state, entries)
        if unmatched:
            batch = self._begin()
            self._removal.remove_unmatched(unmatched, batch)
            self._departed()
            self._commit(batch, patient=True)

    # -- what an operator looks at, and picks --------------------------------------------------

    def walk(self) -> QueueIterator:
        """Return an iterator over all present entries, a page at a time."""
        return QueueIterator(self, self._clock, self._pause, self._store.next_id())

    def pick(self, entries: Sequence[Entry]) -> None:
        """Take entries found by `walk` off their lines, for one of the following methods."""
        self.state.take(entries)

    def purge_picked(self, entries: list[Entry], batch: Batch) -> None:
        """Archive picked entries as `purge` does."""
        self._removal.purge(entries, batch)
        self._departed()

    def expire_picked(self, entries: list[Entry], error: ErrorDetails, batch: Batch) -> None:
        """End the lives of picked entries as `expire` does."""
        self._removal.expire(entries, batch, error)
        self._departed()

    def move_picked(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Archive picked entries that are put on another node within the same batch.

        If the commit fails, they are available again.
        """
        self._removal.moved(entries, batch)
        self._departed()
        batch.when_failed(partial(self._not_moved, entries))

    def _not_moved(self, entries: Sequence[Entry]) -> None:
        self.state.remember(entries)
        self._make_available(entries)

    def recall(self, entries: Sequence[Entry]) -> int:
        """Make the deferred ones of these entries available; return their number."""
        recalled = sorted(self.state.retry_delay.take(entries))
        if recalled:
            self._make_available(recalled)
        return len(recalled)

    def held_by_consumers(self) -> Iterator[Entry]:
        """Iterate over the entries held by consumers."""
        return self.state.consumers.held()

    # -- what prepared branches hold -----------------------------------------------------------

    def promise(self, count: int) -> None:
        """Change the number of reserved places by so many."""
        self.state.promised += count
        self._call_once(self._space.look)

    def hold_recovered(self, entries: Sequence[tuple[int, int]], level: int) -> None:
        """Hold recovered entries as if a consumer had them: see `xa_queue_holds`."""
        hold_recovered(self.state, entries, level)

    def forget_recovered(self, count: int) -> None:
        """Note that so many of these entries are not in the store any more."""
        self.state.acquired -= count

    async def load_recovered(self, key: str, ids: Sequence[int]) -> list[Entry]:
        """Read such entries of a line, without those that have left the store.

        Rows that are not messages are left out as well and set aside, as on any line.

        Args:
            key: the key of the line.
            ids: the ids of the entries, ascending.

        Raises:
            StoreError: they cannot be read.
        """
        line = next(each for each in self.state.levels.lines if each.key == key)
        rows = await load_rows(self._store, key, ids)
        bad = unreadable(rows)
        fresh = [row for row in bad if row.id not in self._quarantined]
        if fresh:
            self._quarantined |= {row.id for row in fresh}
            self._quarantine(line.level, fresh)
        found = [line.entry(row) for row in rows if row not in bad]
        for entry in found:
            entry.taken = True
        return found

    # -- deferral --------------------------------------------------------------------------------

    def defer(self, entries: Sequence[Entry], seconds: float) -> None:
        """Defer acquired entries: they are available again after some time.

        The wait is not persisted: after a restart the entries are available at once.
        """
        self.state.acquired -= len(entries)
        for entry in entries:
            entry.attempted = True
        self._watch_expiry_of(entries)
        self.state.retry_delay.add(entries, self._clock.seconds() + seconds)
        self._watch_retries()

    def wait_of(self, entry: Entry) -> float | None:
        """Return the seconds until a deferred entry is available; None if it is not deferred."""
        return self.state.retry_delay.wait_of(entry, self._clock.seconds())

    def hold_back(self, entries: Container[Entry], seconds: float, step: float) -> None:
        """Delay the deferred ones of these entries, so that they come back one by one.

        Args:
            entries: deferred or not.
            seconds: until the first of them, at least.
            step: seconds between two of them, at least.
        """
        self.state.retry_delay.hold_back(entries, self._clock.seconds() + seconds, step)
        self._watch_retries()

    def bring_forward(self, entry: Entry) -> None:
        """Make a deferred entry available at once."""
        self.state.retry_delay.bring_forward(entry, self._clock.seconds())
        self._watch_retries()

    @property
    def deferred_entries(self) -> Iterator[Entry]:
        """Return the deferred entries, the next to be available first."""
        return self.state.retry_delay.entries()

    def undefer(self, everything: bool = False, but: Container[int] = ()) -> None:
        """Make deferred entries available: those that are due, or all of them.

        Args:
            everything: all of them.
            but: ids of exceptions, which wait until they are due.
        """
        ended = self.state.retry_delay.end(self._clock.seconds(), everything, but)
        self._watch_retries()
        if ended:
            self._make_available(ended)

    def _watch_retries(self) -> None:
        due = self.state.retry_delay.next_due
        if due is None:
            self._retry_alarm.stop()
        else:
            self._retry_alarm.set(max(0.0, due - self._clock.seconds()), self.undefer)

    # -- expiry ----------------------------------------------------------------------------------

    def spare(self) -> None:
        """Suspend expiry by the lifetime that this broker sets, until `end_sparing`."""
        self.state.is_spared = True

    def end_sparing(self) -> None:
        """Resume expiry, of overdue messages as well; see `broker.expiry`."""
        if self.state.is_spared:
            self.state.is_spared = False
            self._watch_next_expiry()

    def _watch_expiry(self, at_ms: int) -> None:
        """Set the timer to this time, unless it goes off earlier."""
        self._expiry_alarm.set_earlier(wait_until(at_ms, self._now_ms()), self._sweep)

    def _watch_expiry_of(self, entries: Sequence[Entry]) -> None:
        if at_ms := earliest(entries):
            self._watch_expiry(at_ms)

    def _watch_next_expiry(self) -> None:
        if at_ms := next_expiry(self.state):
            self._watch_expiry(at_ms)

    def _sweep(self) -> None:
        """Remove expired entries from memory and store, and set the next timer."""
        state = self.state
        if state.is_spared:
            return  # `end_sparing` sets the timer
        now_ms = self._now_ms()
        if expired := take_expired(state, now_ms):
            self._expire(expired)
        for line in lines_to_sweep(state, now_ms):
            line.is_busy = True
            rows: Deferred[Sequence[StoredEntry]] = self._store.expired(
                line.key, now_ms, line.cursor, entry_list.LOAD_MESSAGES
            )
            rows.addCallback(self._readable, line).addCallback(self._swept, line, now_ms)
            rows.addErrback(self._page_failed, line)
        self._watch_next_expiry()

    def _swept(self, rows: Sequence[StoredEntry], line: EntryList, now_ms: int) -> None:
        if self.state.is_deleted:
            line.is_busy = False
            return
        entries = line.swept(rows, now_ms)
        if entries:
            self._expire(entries)
        self._watch_next_expiry()
        self.dispatch()

    def _expire(self, entries: list[Entry]) -> None:
        """Remove expired entries."""
        batch = self._begin()
        self._removal.expire(entries, batch)
        self._departed()
        self._commit(batch)

    def postpone(self, ms: int, now_ms: int) -> None:
        """Shift all times: the wall clock was set ahead by so much.

        Entries that are only in the store are changed there (`IStoreTransaction.postpone`).
        """
        for entry in self.in_memory():
            entry.postpone(ms, now_ms)
        for line in self.state.levels.lines:
            line.postpone(ms, now_ms)

    def in_memory(self) -> Iterator[Entry]:
        """Iterate over the entries in memory, including those held by consumers."""
        return self.state.in_memory()
