# SPDX-License-Identifier: Apache-2.0
"""A queue: each message to one consumer, in order of priority and arrival (topics Q and D).

`Queue` is its parts put together, and what others see of them. The parts:

    enqueue            what is taken, and what is known of it until it stands on a line
    priority_queues    the lines of entries, one for each priority in use
    consumer_set       who takes, and how entries are dealt to them; dispatch: hands them over
    early_delivery     what is handed out while its commit is under way
    stored_backlog     what stands in the store only: refilled, scanned, purged
    expiry             entries whose time is over
    retry_delay        entries that wait for their next attempt
    entry_removal      how entries leave for good
    settlement         what outcomes do
    unmatched_entries  entries that no attached link needs
    duplicate_filter   message-ids, so that nothing is held twice
    admission          whom it lets attach and what it takes, by its options
    queue_capacity     how many more it takes; publisher_credit: who sends, how the
                       free ones are shared;
                       space_waiters: who waits for some
    queue_iterator     shows all of them to an operator, a page at a time; selected_entries:
                       what he picks
    xa_queue_holds     what prepared branches of distributed transactions keep of it
    lifetime_policy    when a dynamic one goes
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker import admission
from amqproute.broker.call_once import CallOnce
from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_cursor import Selects
from amqproute.broker.consumer_set import UNBOUNDED, ConsumerSet
from amqproute.broker.dispatch import Dispatch
from amqproute.broker.early_delivery import EarlyDelivery
from amqproute.broker.enqueue import Enqueue
from amqproute.broker.entry_removal import DISCARD, NODE_DELETED, EntryRemoval, IDisposal
from amqproute.broker.expiry import Expiry
from amqproute.broker.lifetime_policy import LifetimePolicy
from amqproute.broker.node_limits import MemoryBudget, QueueLimits
from amqproute.broker.node_options import QueueOptions
from amqproute.broker.priority_queues import USUAL_PRIORITY, PriorityQueues
from amqproute.broker.queue_capacity import QueueCapacity
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.queue_iterator import QueueIterator
from amqproute.broker.retry_delay import RetryDelay
from amqproute.broker.selected_entries import SelectedEntries
from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.broker.settlement import QueueSettlement
from amqproute.broker.stored_backlog import StoredBacklog
from amqproute.broker.unmatched_entries import UnmatchedEntries
from amqproute.broker.xa_queue_holds import BranchHolds
from amqproute.entry import FLEETING_MS, Entry
from amqproute.interfaces import IConsumer, ISource, ITarget
from amqproute.journal.event import SILENCE
from amqproute.message import Message
from amqproute.store.model import DamagedEntry
from amqproute.values import DeadLetterReason
from amqproute.wire.amqp10 import spec

USUAL_OPTIONS = QueueOptions()


@implementer(ITarget, ISource)
class Queue:
    """A queue node.

    Args:
        name: its name; it may change.
        store: the `IStore`.
        clock: for expiry and deferral timers.
        begin: makes a `Batch`, for what the queue does on its own account.
        now_ms: the wall clock, ms since the epoch.
        limits: its bounds.
        options: its habits.
        budget: the memory budget it shares with the other queues.
        accounts: who is charged for what entries occupy.
        journal: where it is noted what becomes of entries, an `IJournal`.
        disposal: what becomes of entries that leave.
        force_transient: nothing is written: every entry lives in memory only (dynamic queues,
            Q-18); such a queue never pages.
        rows: the name of its rows in the store, if that is not its own.

    Attributes:
        put: takes a message into a batch; see `ITarget.put`.
        publishers: the links that send to it, which share its free space.
        picked: what an operator picks out of it.
        holds: what prepared branches keep of it.
        life: how long it lives, if it is dynamic; None for ever.
        is_relay: what it hands out goes to another broker.
        when_empty: called soon after its last message has left; None for nobody.
        takes_any_format: messages may be of another message-format than that of part 3 (M-09).
    """

    takes_any_format = True

    # A relay queue waits for each of thousands of destinations: a dictionary is a kilobyte more.
    __slots__ = (
        "__weakref__",
        "_accounts",
        "_ahead",
        "_backlog",
        "_begin",
        "_clock",
        "_consumers",
        "_deferral",
        "_deleted",
        "_dispatch",
        "_enqueue",
        "_expiry",
        "_is_ending",
        "_levels",
        "_limits",
        "_log",
        "_options",
        "_removal",
        "_settlement",
        "_soon",
        "_space",
        "_unreachable",
        "dead_letter_name",
        "holds",
        "is_relay",
        "life",
        "name",
        "picked",
        "publishers",
        "put",
        "rows",
        "tally",
        "when_empty",
    )

    def __init__(
        self,
        name: str,
        store: Any,
        clock: IReactorTime,
        begin: Callable[[], Batch],
        now_ms: Callable[[], int],
        *,
        limits: QueueLimits | None = None,
        options: QueueOptions | None = None,
        budget: MemoryBudget | None = None,
        accounts: SenderQuotas | None = None,
        disposal: IDisposal = DISCARD,
        force_transient: bool = False,
        rows: str | None = None,
        journal: Any = SILENCE,
        log: Logger | None = None,
    ) -> None:
        self.name = name
        self.rows = rows or name
        self.tally = QueueCounters()
        self.dead_letter_name: str | None = None
        self._clock = clock
        self._begin = begin
        self._log = log or Logger()
        self._accounts = SenderQuotas() if accounts is None else accounts
        self._levels = PriorityQueues(
            self.rows, store, budget or MemoryBudget(), self._accounts, self._unreadable
        )
        self._deferral = RetryDelay(clock, lambda entries: self._settlement.back(entries))
        self._expiry = Expiry(
            clock,
            now_ms,
            self._levels,
            self._deferral,
            lambda entries: self._removal.expire_now(entries),
            self.dispatch,
            lambda failure, line: self._backlog.failed(failure, line),
        )
        self._consumers = ConsumerSet(self._levels, self._expiry, now_ms)
        self._ahead = EarlyDelivery(self._levels, self._consumers)
        self._backlog = StoredBacklog(
            self._levels,
            self._consumers,
            clock,
            self._loaded,
            self.dispatch,
            self._load_failed,
        )
        self._removal: EntryRemoval = EntryRemoval(
            self,
            self._levels,
            self._consumers,
            self._deferral,
            self._backlog,
            self.tally,
            begin,
            disposal,
            self._gone,
            self._commit_failed,
        )
        self._unreachable: UnmatchedEntries = UnmatchedEntries(
            self._levels,
            self._consumers,
            self._removal.unreachable_now,
            lambda: self._call_once(self._unreachable.look),
            self._removal.clear_out_unreachable,
        )
        self._settlement: QueueSettlement = QueueSettlement(
            self,
            self._consumers,
            self._deferral,
            self._expiry,
            self._removal,
            self._unreachable,
            self.tally,
            journal,
            self.dispatch,
        )
        self._dispatch = Dispatch(
            self._levels,
            self._consumers,
            self._ahead,
            self._backlog,
            self._settlement,
            journal,
            self._log,
        )
        self.holds = BranchHolds(
            self._levels,
            self._consumers,
            store,
            lambda: self._call_once(self._space.look),
            self._unreadable,
        )
        self._space: QueueCapacity = QueueCapacity(
            self._levels, self._consumers, self._deferral, self._ahead, self.holds, clock
        )
        self._enqueue = Enqueue(
            self,
            self._levels,
            self._space,
            self._ahead,
            self._removal,
            self._accounts,
            self.tally,
            store,
            clock,
            self._log,
            force_transient,
            self._check_lifetime,
        )
        self.picked = SelectedEntries(
            self._consumers,
            self._deferral,
            self._removal,
            self._settlement,
            self._enqueue.back,
        )
        self.put = self._enqueue.put  # as it is: not by another call for each message
        self.publishers = self._space.publishers
        self._deleted = False
        self._is_ending = False
        self._soon = CallOnce(clock)
        self.life: LifetimePolicy | None = None
        self.is_relay = False
        self.when_empty: Callable[[], None] | None = None
        self.limits = limits or QueueLimits()
        self._options = USUAL_OPTIONS
        self.options = options or USUAL_OPTIONS

    # -- habits --------------------------------------------------------------------------------

    @property
    def limits(self) -> QueueLimits:
        """Its bounds. Another capacity is shared out at once; what is there stays."""
        return self._limits

    @limits.setter
    def limits(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._enqueue.limits = limits
        self._space.resize(limits.capacity)
        self._settlement.most_deliveries = limits.max_deliveries
        self._dispatch.limits = limits

    @property
    def options(self) -> QueueOptions:
        """Its habits. A change concerns what arrives, and who attaches, from then on."""
        return self._options

    @options.setter
    def options(self, options: QueueOptions) -> None:
        self._options = options
        self._enqueue.adopt(options, self._is_ending)
        consumers = self._consumers
        consumers.notes_needs = options.archive_unreachable
        for feed in consumers.feeds.values():
            if feed.copies and feed.needed is None and options.archive_unreachable:
                feed.needed = set()
        most = options.destructive_links
        consumers.most_movers = UNBOUNDED if most is None else most
        self._promote()

    @property
    def is_ending(self) -> bool:
        """Nothing is taken any more: it is about to be deleted (`broker.node_deletion`)."""
        return self._is_ending

    @is_ending.setter
    def is_ending(self, is_ending: bool) -> None:
        self._is_ending = is_ending
        self._enqueue.adopt(self._options, is_ending)

    # -- what an operator sees -----------------------------------------------------------------

    @property
    def available(self) -> int:
        """Entries that a consumer could take now."""
        return self._levels.available

    @property
    def acquired(self) -> int:
        """Entries in consumers' hands."""
        return self._consumers.acquired

    @property
    def deferred(self) -> int:
        """Entries that wait for their next attempt."""
        return len(self._deferral)

    @property
    def depth(self) -> int:
        """Messages held: available, acquired and deferred (Q-15)."""
        return self._space.depth

    @property
    def resident(self) -> int:
        """Available entries in memory."""
        return self._levels.in_memory

    @property
    def resident_bytes(self) -> int:
        """Bytes of their messages, and of those that are deferred."""
        return self._levels.resident_bytes

    @property
    def paged_bytes(self) -> int:
        """Bytes of the entries that stand in the store only."""
        return self._levels.paged_bytes

    @property
    def filed_bytes(self) -> int:
        """Octets of very large bodies, which are files and in neither of the other two counts."""
        return self._levels.filed_bytes

    @property
    def consumers(self) -> int:
        """Consumers attached, browsers and those that wait for their turn among them."""
        return len(self._consumers)

    @property
    def is_used(self) -> bool:
        """Something is held, or on its way here."""
        return self._space.is_used

    @property
    def is_settled(self) -> bool:
        """Nothing of this queue is on its way to the store."""
        return not (self._consumers.acquired or self._levels.pending or self.holds.places)

    @property
    def lowest_id(self) -> int:
        """A lower bound of the ids of entries that are or will be on this queue."""
        return min([self.next_id, *(entry.id for entry in self._deferral.entries())])

    @property
    def next_id(self) -> int:
        """A lower bound of the ids of entries that are or will be available (not deferred)."""
        return self._levels.next_id

    @property
    def oldest_arrival_ms(self) -> int | None:
        """Arrival of the oldest available entry (`EntryList.oldest_ms`), None without one."""
        return self._levels.oldest_ms

    def arrivals_ms(self) -> list[int]:
        """Return when each entry in memory arrived that waits; those in the store are newer."""
        return [entry.arrived_ms for entry in self._in_memory()]

    def __repr__(self) -> str:
        return (
            f"<Queue {self.name} available={self.available} acquired={self.acquired} "
            f"paged={self._levels.paged} consumers={self._consumers.active}>"
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
        """Take over what an earlier run of the daemon left in the store, of one priority."""
        line = self._levels.line(level)
        line.recovered(count, size_bytes, first_arrived_ms, filed_bytes)
        if not count:
            return
        self._expiry.watch(0)
        self._enqueue.recovered()
        if self._options.archive_unreachable:
            self._call_once(self._unreachable.look)

    def delete(self) -> None:
        """End the queue (lifetime policies): entries go, timers stop."""
        self._deleted = True
        self._enqueue.end()
        batch = self._begin()
        if self._accounts:
            self._accounts.gone(list(self._consumers.held()))  # nobody settles them any more
        self._removal.drop(self._removal.take_all(), NODE_DELETED, batch)
        self._consumers.clear()
        self._backlog.end()
        self._expiry.end()
        self.stop()
        self._removal.commit(batch)

    def stop(self) -> None:
        """Cancel the timers; the entries stay where they are."""
        self._soon.stop()
        self._enqueue.stop()
        self._expiry.stop()
        self._deferral.stop()
        self._backlog.stop()

    def _call_once(self, function: Callable[[], Any]) -> None:
        """Call a method when what is going on now is over, unless the queue is no more then."""
        if not self._deleted:
            self._soon.call(function)

    # -- publish -------------------------------------------------------------------------------

    def space(self) -> int:
        """Return how many more messages fit (Q-15)."""
        return self._space.left()

    def when_space(self, notify: Callable[[], None]) -> None:
        """Have ``notify``, a method, called once when there is space again; it is held weakly."""
        self._space.when_left(notify)

    def repeats(self, message: Message) -> bool:
        """Tell whether the queue has a message of this id, and would drop a second one.

        Raises:
            DecodeError: the message's id cannot be read.
        """
        return self._enqueue.repeats(message)

    def go_ahead(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Hand out entries whose commit is in progress, where `broker.early_delivery` may."""
        if not (
            self._deleted
            or self._enqueue.is_in_doubt
            or (self.is_relay and not batch.is_plain)
            or self._options.archive_unreachable
        ):
            self._dispatch.deliver_early(entries, batch)

    def is_ahead(self, entry: Entry) -> bool:
        """Tell whether an entry has been handed out whose commit is still under way."""
        return entry in self._ahead.entries

    def arrived(self, entries: list[Entry]) -> None:
        """Line up entries whose batch has been committed."""
        if self._deleted:
            self._removal.archive_now(self._ahead.arrived(entries))
            return
        entries = self._enqueue.arrived(entries)
        earliest = 0
        feeds = self._consumers.feeds
        fleeting: list[Entry] = []
        for entry in entries:
            expires_ms = entry.expires_ms
            if expires_ms == FLEETING_MS:
                fleeting.append(entry)
            elif expires_ms and (not earliest or expires_ms < earliest):
                earliest = expires_ms
            line = entry.line
            if not feeds:
                line.arrived(entry, len(entry.message.encoded))
            else:
                self._consumers.arrived(line, entry)
        if earliest:
            self._expiry.watch(earliest)
        self._dispatch.run()
        if fleeting:
            self._expiry.let_go(fleeting)
        if self._options.archive_unreachable:
            self._unreachable.look_at(entries)
        self._space.filled()

    def not_arrived(self, entries: list[Entry]) -> None:
        """Forget entries whose batch could not be committed."""
        self._enqueue.not_arrived(entries)

    # -- deliver -------------------------------------------------------------------------------

    def attach(
        self, consumer: IConsumer, selects: Selects | None = None, copies: bool = False
    ) -> None:
        """Add a consumer at the end of the rotation. See `ISource.attach`.

        One that takes entries away and is more than there may be waits until another goes (Q-21).
        """
        self._consumers.attach(consumer, selects, copies)

    def detach(self, consumer: IConsumer) -> None:
        """Remove a consumer; the one that waits longest takes its place."""
        if self._consumers.detach(consumer):
            # Later: what the one that goes now holds comes back first.
            self._call_once(self.dispatch)
        if self._options.archive_unreachable:
            self._call_once(self._unreachable.look)
        if self.life is not None:
            self.life.look()

    def _promote(self) -> None:
        if self._consumers.promote():
            self._call_once(self.dispatch)

    def check_source(self, copies: bool, leaving: int = 0) -> None:
        """Refuse a link that would receive from this queue (N-14, Q-20, Q-21).

        Args:
            copies: it browses.
            leaving: consumers that take entries away and will be gone when it attaches.

        Raises:
            AmqpError: it may not.
        """
        movers = self._consumers.movers - leaving
        admission.check_source(self.name, self._options, copies, movers)

    def check_target(self) -> None:
        """Refuse a link, or a message, to this queue (N-14).

        Raises:
            NotAllowed: it can be received from only.
        """
        admission.check_target(self.name, self._options)

    def dispatch(self) -> None:
        """Hand out what is available. See `ISource.dispatch`."""
        self._dispatch.run()

    def _loaded(self, entries: list[Entry]) -> None:
        """Note a page that is in memory now."""
        self.tally.loaded += len(entries)
        if entries:
            self._log.debug("{queue} loaded {count} entries", queue=self.name, count=len(entries))
        if self._options.archive_unreachable:
            self._unreachable.look_at(entries)
        self._expiry.watch_all(entries)

    def _load_failed(self, failure: Failure) -> None:
        self._log.failure("{queue} could not load its backlog", failure, queue=self.name)

    def _unreadable(self, level: int, rows: Sequence[Any]) -> None:
        """Paged entries are no messages, although they are what was written: set them aside."""
        for row in rows:
            self._log.error(
                "entry {entry} of {node} is no message and goes to nobody; it is kept in "
                "quarantine: amqproute store quarantine show {entry}",
                entry=row.id,
                node=self.name,
            )
        damages = [DamagedEntry(row.id, "it is no message", row, len(row.encoded)) for row in rows]
        self.quarantined(level, damages, is_moved=False)

    def quarantined(
        self, level: int, damages: Sequence[DamagedEntry], *, is_moved: bool = True
    ) -> None:
        """Give paged entries that are damaged to nobody any more.

        Args:
            level: their line's.
            damages: what is left of them.
            is_moved: the store has set them aside itself.
        """
        line = self._levels.line(level)
        entries = []
        for damage in damages:
            if damage.entry is not None:
                entry = line.damaged(damage.entry)
                self._accounts.gone([entry])
                entry.charge = None
                entries.append(entry)
            line.lost(damage.entry_id, damage.size)
        ids = [damage.entry_id for damage in damages]
        self._removal.damaged_now(entries, ids, () if is_moved else ids)

    # -- settle --------------------------------------------------------------------------------

    def settle(
        self, entries: Sequence[Entry], outcome: Any, batch: Batch, consumer: object = None
    ) -> None:
        """Act on an outcome (O-10 to O-13). See `ISource.settle`."""
        if not self._deleted:
            self._settlement.settle(entries, outcome, batch, consumer)

    def retake(self, entries: Sequence[Entry]) -> None:
        """Undo `settle` with an outcome that archives. See `ISource.retake`."""
        self._consumers.acquired += len(entries)
        self._enqueue.back(entries)

    def release(self, entries: Sequence[Entry]) -> None:
        """Put entries back into their old places, unchanged (O-11)."""
        if not self._deleted:
            self._settlement.release(entries)

    def give_up(
        self,
        entries: Sequence[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Dead-letter acquired entries for a reason other than an outcome."""
        self._settlement.give_up(entries, reason, error, batch)

    def _gone(self, entries: Sequence[Entry]) -> None:
        """Draw the conclusions from entries' having left."""
        self._enqueue.gone(entries)
        if self.life is not None:
            self._check_lifetime()
        if self.when_empty is not None and not self.depth:
            self._call_once(self.when_empty)
        self._space.freed()

    def _check_lifetime(self) -> None:
        """Have it looked at when what is going on now is over: messages have left."""
        if self.life is not None:
            self._call_once(self.life.look)

    def _commit_failed(self, failure: Failure) -> None:
        self._log.failure("{queue} could not write to the store", failure, queue=self.name)

    def purge(self) -> Deferred[int]:
        """Archive every available and deferred entry.

        What is being loaded at this moment stays; it is purged by asking again.

        Returns:
            A Deferred of how many, when that is durable.
        """
        return self._removal.clear_out(self._removal.purge)

    def expire(self, error: spec.Error) -> Deferred[int]:
        """End the life of every available and deferred entry now, as an operator wants it.

        Args:
            error: says so, in the words that the senders are told.

        Returns:
            A Deferred of how many, when that is durable.
        """
        return self._removal.clear_out(
            lambda entries, batch: self._removal.expire(entries, batch, error)
        )

    # -- what an operator looks at ---------------------------------------------------------------

    def walk(self) -> QueueIterator:
        """Return what goes through all entries that are here now, a page at a time."""
        return QueueIterator(
            self._levels, self._deferral, self._clock, self.dispatch, self._levels.newest_id()
        )

    def wait_of(self, entry: Entry) -> float | None:
        """Return the seconds until a deferred entry is available; None for any other."""
        return self._deferral.wait_of(entry)

    def held_by_consumers(self) -> Iterator[Entry]:
        """Iterate over the entries in consumers' hands, as far as these tell."""
        return self._consumers.held()

    # -- deferral and expiry -------------------------------------------------------------------

    def defer(self, entries: Sequence[Entry], seconds: float) -> None:
        """Take back acquired entries, to be available again after some time.

        The wait is not persisted: after a restart the entries are available at once.
        """
        self._settlement.defer(entries, seconds)

    def hold_back(self, entries: Container[Entry], seconds: float, step: float) -> None:
        """Have those of these entries that are deferred come back one by one.

        Args:
            entries: among others.
            seconds: until the first of them, at least.
            step: seconds between two of them, at least.
        """
        self._deferral.hold_back(entries, seconds, step)

    def bring_forward(self, entry: Entry) -> None:
        """Make a deferred entry available at once."""
        self._deferral.bring_forward(entry)

    @property
    def deferred_entries(self) -> Iterator[Entry]:
        """The deferred entries, the next to be available first."""
        return self._deferral.entries()

    def undefer(self, everything: bool = False, but: Container[int] = ()) -> None:
        """Make deferred entries available whose time has come, or all of them.

        Args:
            everything: all of them.
            but: ids of those that wait nevertheless until their time has come.
        """
        self._deferral.end(everything, but)

    def spare(self) -> None:
        """Let the lifetime that this broker gives end no message until `end_sparing`."""
        self._expiry.is_spared = True

    def end_sparing(self) -> None:
        """Let what is overdue expire from now on; see `broker.expiry`."""
        self._expiry.end_sparing()

    def postpone(self, ms: int, now_ms: int) -> None:
        """Note that the wall clock was set ahead by so much: everything here ages from there on.

        What stands in the store only is changed there (`IStoreTransaction.postpone`).
        """
        for entry in self.in_memory():
            entry.postpone(ms, now_ms)
        for line in self._levels.lines:
            line.postpone(ms, now_ms)

    def in_memory(self) -> Iterator[Entry]:
        """Iterate over the entries in memory, those in consumers' hands among them."""
        yield from self._in_memory()
        yield from self._consumers.held()

    def _in_memory(self) -> Iterator[Entry]:
        yield from self._levels.entries()
        yield from self._deferral.entries()
