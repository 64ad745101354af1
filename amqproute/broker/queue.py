# SPDX-License-Identifier: Apache-2.0
"""A queue: each message to one consumer, in order of priority and arrival (topics Q and D).

The entries stand in `broker.line.Line` objects, one for each priority in use; plain consumers
take from the head of the highest, consumers with a filter and browsers have a head of their own
(`broker.feed.Feed`). The queue deals: who has room gets a fair share, one entry at a time, and is
handed all of it in one call.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakMethod

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.batch import Batch
from amqproute.broker.feed import Feed, Selects
from amqproute.broker.limits import MemoryBudget, QueueLimits
from amqproute.broker.line import Line
from amqproute.broker.once import Once
from amqproute.broker.options import (
    Duplicates,
    Durability,
    Excess,
    Lifetime,
    NonTransactional,
    QueueOptions,
    Visibility,
)
from amqproute.broker.publishers import Publishers
from amqproute.entry import TRANSIENT, Entry
from amqproute.errors import (
    NotAllowed,
    PreconditionFailed,
    ResourceDeleted,
    ResourceLimitExceeded,
    ResourceLocked,
)
from amqproute.interfaces import IConsumer, ISource, ITarget
from amqproute.message import Message
from amqproute.values import DeadLetterReason, Origin
from amqproute.wire.amqp10 import spec

RELOAD_SECONDS = 1.0
"""After what time a page that could not be read is asked for again."""
UNBOUNDED = 1 << 31
MOST_COUNTED = 0xFFFFFFFF
"""Where a delivery-count stays: it is a uint, and a sender may start it anywhere."""
EXPIRY_GRAIN_SECONDS = 0.05
"""Expiry timers are not set finer than this, so that many short lives cost few timers."""
USUAL_PRIORITY = 4
"""header.priority of a message that does not say (part 3 §3.2.1)."""
HIGHEST_PRIORITY = 9
PRIORITY_PREFIX = "amqp$priority/"
NON_TRANSACTED = "x-opt-non-transacted"
FLEETING_MS = 1 << 62
"""expires_ms of an entry with a ttl of 0 that has not been offered to the consumers yet (D-11)."""

DeadLetter = Callable[["Queue", list[Entry], DeadLetterReason, "spec.Error | None", Batch], None]

Taken = Callable[["Queue", Sequence[Entry], Batch, object], None]
Dropped = Callable[["Queue", Sequence[Entry], str, Batch], None]


PURGED: Final = "operator.purged"
NODE_DELETED: Final = "node.deleted"
"""Why entries have gone that nobody has taken, for reports about them."""


def line_key(name: str, level: int) -> str:
    """Return the name under which the store keeps the entries of one priority of a queue."""
    return name if level == USUAL_PRIORITY else f"{PRIORITY_PREFIX}{level}/{name}"


def queue_of_key(key: str) -> str:
    """Return the queue's name behind a key of `line_key`."""
    if key.startswith(PRIORITY_PREFIX):
        return key[len(PRIORITY_PREFIX) :].partition("/")[2]
    return key


@dataclass(slots=True)
class Tally:
    """What happened on a queue since the daemon started; plain counters for operators."""

    enqueued: int = 0
    dequeued: int = 0
    released: int = 0
    rejected: int = 0
    expired: int = 0
    dead_lettered: int = 0
    loaded: int = 0
    purged: int = 0
    duplicates: int = 0
    unreachable: int = 0


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
        dead_letter: what becomes of entries that are rejected, expired or tried too often; it
            has to archive them within the batch.
        force_transient: nothing is written: every entry lives in memory only (dynamic queues,
            Q-18); such a queue never pages.
        rows: the name of its rows in the store, if that is not its own.

    Attributes:
        publishers: the links that send to it, which share its free space.
        lifetime: when it goes, if it is dynamic; None for ever.
        is_exclusive: links of its owner only may be attached to it (N-17).
        owner: the session that a dynamic queue was made on; else None.
        when_unused: called, once, when its lifetime is over.
        when_taken: called with (queue, entries, batch, consumer) before entries that a consumer
            has accepted are archived in that batch.
        when_dropped: called with (queue, entries, code, batch) before entries are archived that
            nobody has taken and that are no dead letters: purged, or gone with the queue.
    """

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
        dead_letter: DeadLetter | None = None,
        force_transient: bool = False,
        rows: str | None = None,
        log: Logger | None = None,
    ) -> None:
        self.name = name
        self.rows = rows or name
        self.limits = limits or QueueLimits()
        self.tally = Tally()
        self.dead_letter_name: str | None = None
        self._store = store
        self._clock = clock
        self._begin = begin
        self._now_ms = now_ms
        self._budget = budget or MemoryBudget()
        self._dead_letter = dead_letter or discard
        self._in_memory_only = force_transient
        self._log = log or Logger()
        self._usual = Line(line_key(self.rows, USUAL_PRIORITY), USUAL_PRIORITY, store, self._budget)
        self._levels: dict[int, Line] = {USUAL_PRIORITY: self._usual}
        self._lines: list[Line] = [self._usual]  # the highest priority first
        self._acquired = 0
        self._consumers: deque[Any] = deque()
        self._feeds: dict[Any, Feed] = {}
        self._deferred: list[tuple[float, Entry]] = []
        self._dispatching = False
        self._dispatch_again = False
        self._expiry_call: IDelayedCall | None = None
        self._deferral_call: IDelayedCall | None = None
        self._reload_call: IDelayedCall | None = None
        self._deleted = False
        self._is_ending = False
        self._waiting_for_space: list[WeakMethod[Callable[[], None]]] = []
        self._once: Once | None = None
        self._movers = 0
        self._standby: deque[tuple[Any, Selects | None]] = deque()
        self._soon: dict[Callable[[], Any], IDelayedCall] = {}
        self.publishers = Publishers(self.space, lambda: self.limits.capacity > 0)
        self.lifetime: Lifetime | None = None
        self.is_exclusive = False
        self.owner: object = None
        self.when_unused: Callable[[], None] | None = None
        self.when_taken: Taken | None = None
        self.when_dropped: Dropped | None = None
        self._creator_gone = False
        self._options = QueueOptions()
        self.options = options or self._options

    # -- habits --------------------------------------------------------------------------------

    @property
    def options(self) -> QueueOptions:
        """Its habits. A change concerns what arrives, and who attaches, from then on."""
        return self._options

    @options.setter
    def options(self, options: QueueOptions) -> None:
        before = self._options.duplicates
        self._options = options
        keeps_nothing = options.durability is Durability.TRANSIENT or self._in_memory_only
        self._keeps_nothing = keeps_nothing
        self._keeps_all = options.durability is Durability.FORCED and not keeps_nothing
        self._is_choosy = (
            self._is_ending
            or options.non_transactional is not NonTransactional.ALL
            or (keeps_nothing and not options.takes_durable)
        )
        if options.duplicates is not before:
            self._watch_duplicates(options.duplicates)
        for feed in self._feeds.values():
            if feed.copies and feed.needed is None and options.archive_unreachable:
                feed.needed = set()
        self._promote()

    @property
    def is_ending(self) -> bool:
        """Nothing is taken any more: it is about to be deleted (`broker.withdrawal`)."""
        return self._is_ending

    @is_ending.setter
    def is_ending(self, is_ending: bool) -> None:
        self._is_ending = is_ending
        self.options = self._options  # a queue that is not choosy looks at nothing

    def _watch_duplicates(self, policy: Duplicates) -> None:
        if self._once is not None:
            self._once.stop()
            self._once = None
        if policy is Duplicates.OFF:
            return
        with_numbers = policy is Duplicates.ALL
        self._once = Once(
            self.name, self._store, self._clock, with_numbers, self._indexed, self._log
        )
        held = [entry for each in self._consumers for entry in each.holds()]
        here = [entry for entry in (*self._in_memory(), *held) if not entry.stored]
        if self.depth or self._pending:
            self._once.index(self._lines, here)

    def _indexed(self) -> None:
        self._tell_space()
        self.publishers.changed()

    # -- what an operator sees -----------------------------------------------------------------

    @property
    def available(self) -> int:
        """Entries that a consumer could take now."""
        return sum([line.available for line in self._lines])

    @property
    def acquired(self) -> int:
        """Entries in consumers' hands."""
        return self._acquired

    @property
    def deferred(self) -> int:
        """Entries that wait for their next attempt."""
        return len(self._deferred)

    @property
    def depth(self) -> int:
        """Messages held: available, acquired and deferred (Q-15)."""
        return self.available + self._acquired + len(self._deferred)

    @property
    def resident(self) -> int:
        """Available entries in memory."""
        return sum(line.in_memory for line in self._lines)

    @property
    def resident_bytes(self) -> int:
        """Bytes of their messages, and of those that are deferred."""
        return sum(line.resident_bytes for line in self._lines)

    @property
    def paged_bytes(self) -> int:
        """Bytes of the entries that stand in the store only."""
        return sum(line.paged_bytes for line in self._lines)

    @property
    def consumers(self) -> int:
        """Consumers attached, browsers and those that wait for their turn among them."""
        return len(self._consumers) + len(self._standby)

    @property
    def is_settled(self) -> bool:
        """Nothing of this queue is on its way to the store."""
        return self._acquired == 0 and not any(line.pending for line in self._lines)

    @property
    def lowest_id(self) -> int:
        """A lower bound of the ids of entries that are or will be on this queue."""
        return min([self.next_id, *(entry.id for _, entry in self._deferred)])

    @property
    def next_id(self) -> int:
        """A lower bound of the ids of entries that are or will be available (not deferred)."""
        lows = [low for line in self._lines if (low := line.next_id) is not None]
        return min(lows) if lows else int(self._store.next_id())

    @property
    def oldest_arrival_ms(self) -> int | None:
        """When the oldest resident available entry arrived, or None without one."""
        return min((ms for line in self._lines if (ms := line.oldest_ms) is not None), default=None)

    def __repr__(self) -> str:
        paged = sum(line.paged for line in self._lines)
        return (
            f"<Queue {self.name} available={self.available} acquired={self._acquired} "
            f"paged={paged} consumers={len(self._consumers)}>"
        )

    # -- recovery and end ----------------------------------------------------------------------

    def recovered(self, count: int, size_bytes: int, level: int = USUAL_PRIORITY) -> None:
        """Take over what an earlier run of the daemon left in the store, of one priority."""
        line = self._line(level)
        line.recovered(count, size_bytes)
        if not count:
            return
        self._arm_expiry(0)
        if self._once is not None:
            lines = [each for each in self._lines if each.paged]
            self._once.index(lines)
        if self._options.archive_unreachable:
            self._call_soon(self._purge_unless_needed)

    def delete(self) -> None:
        """End the queue (lifetime policies): entries go, timers stop."""
        self._deleted = True
        batch = self._begin()
        self._drop(self._clear(), NODE_DELETED, batch)
        self._consumers.clear()
        self._standby.clear()
        self._feeds.clear()
        self.stop()
        batch.commit().addErrback(self._commit_failed)

    def stop(self) -> None:
        """Cancel the timers; the entries stay where they are."""
        calls = (self._expiry_call, self._deferral_call, self._reload_call, *self._soon.values())
        for call in calls:
            if call is not None and call.active():
                call.cancel()
        self._expiry_call = self._deferral_call = self._reload_call = None
        self._soon.clear()
        if self._once is not None:
            self._once.stop()

    def _call_soon(self, function: Callable[[], Any]) -> None:
        """Call a method when what is going on now is over, once however often it is asked for."""
        if function not in self._soon and not self._deleted:
            self._soon[function] = self._clock.callLater(0, self._call_now, function)

    def _call_now(self, function: Callable[[], Any]) -> None:
        self._soon.pop(function, None)
        function()

    def _clear(self) -> list[Entry]:
        """Take everything available and deferred out of memory."""
        entries = [entry for _, entry in self._deferred]
        for entry in entries:
            entry.line.forget(len(entry.message.encoded))
        self._deferred.clear()
        for line in self._lines:
            entries += line.clear()
        return entries

    def _line(self, level: int) -> Line:
        line = self._levels.get(level)
        if line is None:
            line = Line(line_key(self.rows, level), level, self._store, self._budget)
            self._levels[level] = line
            self._lines = sorted(self._levels.values(), key=lambda each: -each.level)
        return line

    # -- publish -------------------------------------------------------------------------------

    def space(self) -> int:
        """Return how many more messages fit (Q-15)."""
        if self._once is not None and self._once.is_indexing:
            return 0
        if not self.limits.capacity:
            return UNBOUNDED
        return max(0, self.limits.capacity - self.depth - self._pending)

    @property
    def _pending(self) -> int:
        return sum([line.pending for line in self._lines])

    def when_space(self, tell: Callable[[], None]) -> None:
        """Have ``tell``, a method, called once when there is space again.

        The object it belongs to is held weakly: links that come and go while a queue is full
        leave nothing behind.
        """
        waiting = [each for each in self._waiting_for_space if each() is not None]
        wanted = WeakMethod(tell)
        if wanted not in waiting:
            waiting.append(wanted)
        self._waiting_for_space = waiting

    def _tell_space(self) -> None:
        if self._waiting_for_space and self.space() > 0:
            waiting, self._waiting_for_space = self._waiting_for_space, []
            for each in waiting:
                tell = each()
                if tell is not None:
                    tell()

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Take a message into the batch. See `ITarget.put`."""
        limits = self.limits
        if self._deleted:
            raise ResourceDeleted(f"node {self.name} does not exist any more")
        identity = 0
        if self._once is not None:
            identity = self._once.identity(message)
            if identity and self._once.holds(identity):
                self.tally.duplicates += not batch.is_rehearsal
                return
        if self._is_choosy:
            self._choose(message, batch)
        if limits.capacity and self.depth + self._pending >= limits.capacity:
            raise ResourceLimitExceeded(
                f"queue {self.name} is full: {limits.capacity} messages",
                info={"limiter": "capacity"},
            )
        now_ms = batch.now_ms
        lasts = origin.is_dead_letter or not self._options.archive_expired
        expires_ms = 0 if lasts else message.expires_ms(now_ms)
        if limits.ttl_ms:
            latest = now_ms + limits.ttl_ms
            expires_ms = min(expires_ms, latest) if expires_ms else latest
        header = message.header
        durable = (header.durable or self._keeps_all) and not self._keeps_nothing
        line = self._usual
        if header.priority != USUAL_PRIORITY and limits.priorities > 1:
            line = self._line(level_of(header.priority, limits.priorities))
        size = len(message.encoded)
        pages = line.must_page(size, limits)
        if pages and self._in_memory_only:
            raise ResourceLimitExceeded(
                f"queue {self.name} is full: it lives in memory only", info={"limiter": "memory"}
            )
        store_id = self._store.next_id()
        stored = durable or pages
        entry = Entry(store_id, message, durable, stored, now_ms, expires_ms, header.delivery_count)
        entry.line = line
        entry.origin = origin.container_id
        if stored:
            flags = 0 if durable else TRANSIENT
            batch.transaction.enqueue(
                line.key, store_id, message.encoded, now_ms, expires_ms, flags
            )
        if expires_ms and header.ttl == 0 and not pages:
            entry.expires_ms = FLEETING_MS
        line.put(entry, size, pages)
        if identity and self._once is not None:
            self._once.put(entry, identity)
        try:
            batch.arrivals[self].append(entry)
        except KeyError:
            batch.arrivals[self] = [entry]

    def _choose(self, message: Message, batch: Batch) -> None:
        """Refuse what a choosy queue does not take (Q-19, K-15)."""
        if self._is_ending:
            raise ResourceDeleted(f"node {self.name} does not exist any more")
        options = self._options
        if self._keeps_nothing and not options.takes_durable and message.header.durable:
            raise PreconditionFailed(
                f"queue {self.name} keeps messages in memory only: durable ones are not taken"
            )
        if options.non_transactional is NonTransactional.ALL:
            return
        is_flagged = message.annotations.get(NON_TRANSACTED) is True
        if options.non_transactional is NonTransactional.UNSUPPORTED:
            if is_flagged:
                raise NotAllowed(f"queue {self.name} takes no non-transacted messages")
        elif batch.is_transactional and not is_flagged:
            raise NotAllowed(f"queue {self.name} takes non-transacted messages only")

    def arrived(self, entries: list[Entry]) -> None:
        """Line up entries whose batch has been committed."""
        if self._deleted:
            self._discard(entries)
            return
        if self._once is not None:
            entries = self._without_duplicates(entries, self._once)
        self.tally.enqueued += len(entries)
        earliest = 0
        feeds = self._feeds
        fleeting: list[Entry] = []
        for entry in entries:
            expires_ms = entry.expires_ms
            if expires_ms == FLEETING_MS:
                fleeting.append(entry)
            elif expires_ms and (not earliest or expires_ms < earliest):
                earliest = expires_ms
            line = entry.line
            if line.arrived(entry, len(entry.message.encoded)) and feeds:
                for feed in feeds.values():
                    feed.offer(line, entry)
        if earliest:
            self._arm_expiry(earliest)
        self.dispatch()
        if fleeting:
            self._let_go(fleeting)
        if self._options.archive_unreachable:
            self._archive_unneeded(entries)

    def _without_duplicates(self, entries: list[Entry], once: Once) -> list[Entry]:
        """Take out what is held already: its other copy was on its way when it was put."""
        twice = once.arrived(entries)
        if not twice:
            return entries
        self.tally.duplicates += len(twice)
        for entry in twice:
            entry.line.not_arrived(entry, len(entry.message.encoded))
        batch = self._begin()
        batch.transaction.dequeue([entry.id for entry in twice if entry.stored])
        batch.commit().addErrback(self._commit_failed)
        gone = set(twice)
        return [entry for entry in entries if entry not in gone]

    def _let_go(self, fleeting: list[Entry]) -> None:
        """Expire what was to be delivered at once or never (D-11)."""
        expired = []
        for entry in fleeting:
            entry.expires_ms = entry.arrived_ms
            if not entry.taken:
                entry.line.pluck(entry)
                expired.append(entry)
        if expired:
            self._expire_now(expired)

    def not_arrived(self, entries: list[Entry]) -> None:
        """Forget entries whose batch could not be committed."""
        if self._once is not None:
            self._once.not_arrived(entries)
        for entry in entries:
            entry.line.not_arrived(entry, len(entry.message.encoded))
        if self._waiting_for_space:
            self._clock.callLater(0, self._tell_space)

    # -- deliver -------------------------------------------------------------------------------

    def attach(
        self, consumer: IConsumer, selects: Selects | None = None, copies: bool = False
    ) -> None:
        """Add a consumer at the end of the rotation. See `ISource.attach`.

        One that takes entries away and is more than there may be waits until another goes (Q-21).
        """
        if not copies:
            if self._movers >= self._most_movers:
                self._standby.append((consumer, selects))
                return
            self._movers += 1
        if selects is not None or copies:
            held = [entry.id for each in self._consumers for entry in each.holds()]
            feed = self._feeds[consumer] = Feed(consumer, selects, copies)
            if copies and self._options.archive_unreachable:
                feed.needed = set()
            feed.join(self._lines, [*held, *(entry.id for _, entry in self._deferred)])
        self._consumers.append(consumer)

    def detach(self, consumer: IConsumer) -> None:
        """Remove a consumer; the one that waits longest takes its place."""
        feed = self._feeds.pop(consumer, None)
        if consumer in self._consumers:
            self._consumers.remove(consumer)
            if feed is None or not feed.copies:
                self._movers -= 1
                self._promote()
        else:
            self._standby = deque(each for each in self._standby if each[0] is not consumer)
        if self._options.archive_unreachable:
            self._call_soon(self._purge_unless_needed)
        self.look_at_life()

    @property
    def _most_movers(self) -> int:
        most = self._options.destructive_links
        return UNBOUNDED if most is None else most

    def _promote(self) -> None:
        while self._standby and self._movers < self._most_movers:
            consumer, selects = self._standby.popleft()
            self.attach(consumer, selects)
            # Later: what the one that goes now holds comes back first.
            self._call_soon(self.dispatch)

    def check_source(self, copies: bool, leaving: int = 0) -> None:
        """Refuse a link that would receive from this queue (N-14, Q-20, Q-21).

        Args:
            copies: it browses.
            leaving: consumers that take entries away and will be gone when it attaches.

        Raises:
            AmqpError: it may not.
        """
        options = self._options
        if options.visibility is Visibility.INBOUND:
            raise NotAllowed(f"{self.name!r} can be sent to only: it has visibility inbound")
        most = options.destructive_links
        if copies or most is None:
            return
        if most == 0:
            raise NotAllowed(f"{self.name!r} can be browsed only: distribution-mode copy")
        if options.excess is Excess.FAIL and self._movers - leaving >= most:
            words = f"{self.name!r} has {self._movers} consumers, no more are allowed"
            if most == 1:
                raise ResourceLocked(words)
            raise ResourceLimitExceeded(words, info={"limiter": "maximum-destructive-links"})

    def check_target(self) -> None:
        """Refuse a link, or a message, to this queue (N-14).

        Raises:
            NotAllowed: it can be received from only.
        """
        if self._options.visibility is Visibility.OUTBOUND:
            raise NotAllowed(f"{self.name!r} can be received from only: visibility outbound")

    # -- the life of a dynamic queue (N-16, N-17, K-21) ------------------------------------------

    def creator_gone(self) -> None:
        """The link that the queue was made for is gone."""
        self._creator_gone = True
        self.look_at_life()

    def look_at_life(self) -> None:
        """Tell, once, if the queue's lifetime is over."""
        lifetime = self.lifetime
        if lifetime is None or self.when_unused is None:
            return
        is_linked = bool(self.consumers or len(self.publishers))
        is_over = {
            Lifetime.CLOSE: self._creator_gone,
            Lifetime.NO_LINKS: not is_linked,
            Lifetime.NO_MESSAGES: self._creator_gone and not self._holds_any,
            Lifetime.NO_LINKS_OR_MESSAGES: not is_linked and not self._holds_any,
            Lifetime.SESSION: False,  # its session's end is not seen from here
        }[lifetime]
        if is_over:
            tell, self.when_unused = self.when_unused, None
            tell()

    @property
    def _holds_any(self) -> bool:
        return bool(self.depth or self._pending)

    def dispatch(self) -> None:
        """Hand out what is available to those who have room, in fair shares (Q-29, Q-30)."""
        if self._dispatching:
            self._dispatch_again = True
            return
        self._dispatching = True
        try:
            self._dispatch_again = True
            while self._dispatch_again:
                self._dispatch_again = False
                self._dispatch_once()
        finally:
            self._dispatching = False

    def _dispatch_once(self) -> None:
        for consumer, _ in tuple(self._standby):
            consumer.exhausted()
        if not self._consumers:
            return
        if not any(line.available for line in self._lines):
            self._tell_exhausted(self._consumers)
            return
        for consumer, entries in self._deal():
            consumer.deliver(entries)
        is_loading = self._refill()
        if self._feeds:
            is_loading = self._scan() or is_loading
        if is_loading:
            return
        if not any(line.in_memory for line in self._lines):
            self._tell_exhausted(self._consumers)
            return
        # What is left is not for those who still have room: they are barred from it, or it is
        # not what they select.
        self._tell_exhausted([each for each in self._consumers if each.capacity() > 0])

    def _deal(self) -> list[tuple[Any, list[Entry]]]:
        """Take entries off the lines and deal them to the consumers that have room."""
        shares = [
            _Share(consumer, room)
            for consumer in self._consumers
            if (room := consumer.capacity()) > 0
        ]
        if not shares:
            return []
        if self._feeds:
            self._deal_each(shares)
        else:
            turn = 0
            for line in self._lines:
                if line.in_memory:
                    turn = self._deal_line(line, shares, turn)
            if len(shares) > 1:
                # Whoever comes after the last one served is the first to be served next time.
                last = shares[(turn - 1) % len(shares)].consumer
                self._consumers.rotate(-self._consumers.index(last) - 1)
        return [(share.consumer, share.entries) for share in shares if share.entries]

    def _deal_line(self, line: Line, shares: list[_Share], turn: int) -> int:
        if line.returned:
            turn = self._deal_returned(line, shares, turn)
        if len(shares) == 1:
            share = shares[0]
            entries = self._take(line, share.left)
            share.left -= len(entries)
            share.entries = share.entries + entries if share.entries else entries
            return turn
        for entry in self._take(line, sum([share.left for share in shares])):
            turn = _give(shares, turn, entry)
        return turn

    def _deal_returned(self, line: Line, shares: list[_Share], turn: int) -> int:
        """Deal from the returned entries, passing over what nobody with room may have."""
        returned = line.returned
        now_ms = self._now_ms()
        expired: list[Entry] = []
        stay: list[Entry] = []
        size = seen = dealt = 0
        left = sum(share.left for share in shares)
        for entry in returned:
            if dealt == left:
                break
            seen += 1
            if 0 < entry.expires_ms <= now_ms:
                expired.append(entry)
            else:
                place = _give(shares, turn, entry)
                if place < 0:
                    stay.append(entry)
                    continue
                turn = place
                dealt += 1
            entry.taken = True
            size += len(entry.message.encoded)
        returned[:seen] = stay
        self._acquired += dealt
        line.forget(size)
        if expired:
            self._expire_now(expired)
        return turn

    def _take(self, line: Line, count: int) -> list[Entry]:
        """Take up to ``count`` entries from the resident line, leaving out expired ones."""
        taken: list[Entry] = []
        while len(taken) < count:
            entries = line.take(count - len(taken))
            if not entries:
                break
            entries = self._without_expired(entries)
            taken = taken + entries if taken else entries
        self._acquired += len(taken)
        return taken

    def _deal_each(self, shares: list[_Share]) -> None:
        """Deal where consumers have heads of their own: one entry for each in turn."""
        now_ms = self._now_ms()
        expired: list[Entry] = []
        line_of_waiting = deque(shares)
        while line_of_waiting:
            share = line_of_waiting.popleft()
            feed = self._feeds.get(share.consumer)
            entry = self._head_for(share.consumer) if feed is None else feed.pop()
            if entry is None:
                continue
            if 0 < entry.expires_ms <= now_ms:
                entry.line.pluck(entry)
                expired.append(entry)
                line_of_waiting.appendleft(share)
                continue
            if feed is None or not feed.copies:
                entry.line.pluck(entry)
                self._acquired += 1
            share.entries.append(entry)
            share.left -= 1
            if share.left:
                line_of_waiting.append(share)
        self._consumers.rotate(-1)
        if expired:
            self._expire_now(expired)

    def _head_for(self, consumer: Any) -> Entry | None:
        for line in self._lines:
            for entry in line.entries():
                if not (entry.barred and consumer in entry.barred):
                    return entry
        return None

    def _without_expired(self, entries: list[Entry]) -> list[Entry]:
        now_ms = self._now_ms()
        expired = [entry for entry in entries if 0 < entry.expires_ms <= now_ms]
        if not expired:
            return entries
        self._expire_now(expired)
        gone = set(expired)
        return [entry for entry in entries if entry not in gone]

    def _expire_now(self, expired: list[Entry]) -> None:
        batch = self._begin()
        self._expire(expired, batch)
        batch.commit().addErrback(self._commit_failed)

    def _tell_exhausted(self, consumers: Sequence[Any] | deque[Any]) -> None:
        for consumer in tuple(consumers):
            feed = self._feeds.get(consumer)
            if feed is None or not feed:
                consumer.exhausted()

    # -- paging --------------------------------------------------------------------------------

    def _refill(self) -> bool:
        """Load next pages where little is left in memory; True if some are coming."""
        if self._deleted:
            return False
        for line in self._lines:
            if line.wants_refill(self.limits):
                loaded = line.load(line.cursor)
                loaded.addCallback(self._loaded, line)
                loaded.addErrback(self._load_failed, line)
        return any(line.is_busy for line in self._lines)

    def _loaded(self, rows: Sequence[Any], line: Line) -> None:
        if self._deleted:
            line.is_busy = False
            return
        entries = line.refilled(rows)
        self.tally.loaded += len(entries)
        if entries:
            self._log.debug("{queue} loaded {count} entries", queue=self.name, count=len(entries))
        for feed in self._feeds.values():
            for entry in entries:
                feed.offer(line, entry)
        if self._options.archive_unreachable:
            self._archive_unneeded(entries)
        lives = [entry.expires_ms for entry in entries if entry.expires_ms]
        if lives:
            self._arm_expiry(min(lives))
        self.dispatch()

    def _load_failed(self, failure: Failure, line: Line) -> None:
        line.is_busy = False
        self._log.failure("{queue} could not load its backlog", failure, queue=self.name)
        if not self._deleted and self._reload_call is None:
            self._reload_call = self._clock.callLater(RELOAD_SECONDS, self._reload)

    def _reload(self) -> None:
        self._reload_call = None
        self.dispatch()

    def _scan(self) -> bool:
        """Let a feed with room look at the paged part; True if one does."""
        for feed in self._feeds.values():
            if feed or feed.consumer.capacity() <= 0:
                continue
            for line in self._lines:
                after = feed.scan_from(line)
                if after is None or self._is_scanned(feed, line):
                    continue
                if not line.is_busy:
                    scanned = line.load(after)
                    scanned.addCallback(self._scanned, line, feed)
                    scanned.addErrback(self._load_failed, line)
                return True
        return False

    def _is_scanned(self, feed: Feed, line: Line) -> bool:
        """The feed has come to the end, and nothing has been paged since."""
        return feed.ends.get(line) == (line.paged, self.tally.enqueued)

    def _scanned(self, rows: Sequence[Any], line: Line, feed: Feed) -> None:
        entries = line.scanned(rows)
        if self._deleted or self._feeds.get(feed.consumer) is not feed:
            self.dispatch()
            return
        room = feed.consumer.capacity()
        now_ms = self._now_ms()
        found: list[Entry] = []
        stopped = False
        for entry in entries:
            if len(found) >= room:
                stopped = True
                break
            if feed.scanned(line, entry) and not 0 < entry.expires_ms <= now_ms:
                found.append(entry)
                if not feed.copies:
                    line.pluck_paged(entry)
                    self._acquired += 1
        if rows and not stopped:
            feed.reached(line, rows[-1].id)
        if not rows:
            feed.ends[line] = (line.paged, self.tally.enqueued)
        if found:
            feed.consumer.deliver(found)
        self.dispatch()

    # -- settle --------------------------------------------------------------------------------

    def settle(
        self, entries: Sequence[Entry], outcome: Any, batch: Batch, consumer: object = None
    ) -> None:
        """Act on an outcome (O-10 to O-13). See `ISource.settle`."""
        if self._deleted:
            return
        feed = self._feeds.get(consumer) if self._feeds else None
        if feed is not None and feed.copies:
            self._settle_copies(feed, entries, outcome)
        elif type(outcome) is spec.Accepted:
            self._acquired -= len(entries)
            if self.when_taken is not None:
                self.when_taken(self, entries, batch, consumer)
            self._archive(entries, batch)
            self.tally.dequeued += len(entries)
        elif type(outcome) is spec.Rejected:
            self._acquired -= len(entries)
            self.tally.rejected += len(entries)
            self.dead_letter(list(entries), DeadLetterReason.REJECTED, outcome.error, batch)
        elif type(outcome) is spec.Modified:
            self._modify(entries, outcome, batch, consumer)
        else:
            self.release(entries)

    def retake(self, entries: Sequence[Entry]) -> None:
        """Undo `settle` with an outcome that archives. See `ISource.retake`."""
        self._acquired += len(entries)
        if self._once is not None:
            self._once.back(entries)

    def _settle_copies(self, feed: Feed, entries: Sequence[Entry], outcome: Any) -> None:
        """A browser's outcomes concern its own link only (S-04, L-24 to L-28)."""
        again = type(outcome) is spec.Released or (
            type(outcome) is spec.Modified and not outcome.undeliverable_here
        )
        if again:
            for entry in entries:
                feed.show_again(entry.line, entry)
            self.dispatch()
        elif feed.needed is not None:
            for entry in entries:
                feed.confirmed(entry)
            self._archive_unneeded(entries)

    def _archive_unneeded(self, entries: Sequence[Entry]) -> None:
        """Let go of available entries that no attached link needs any more (Q-23)."""
        if not self._consumers:
            if not self._standby:
                self._call_soon(self._purge_unless_needed)
            return
        feeds = [self._feeds.get(consumer) for consumer in self._consumers]
        if None in feeds:
            return  # somebody takes whatever there is
        unneeded = []
        for entry in entries:
            if not (entry.taken or any(feed is not None and feed.needs(entry) for feed in feeds)):
                entry.line.pluck(entry)
                unneeded.append(entry)
        if unneeded:
            self.tally.unreachable += len(unneeded)
            batch = self._begin()
            self._archive(unneeded, batch)
            batch.commit(patient=True).addErrback(self._commit_failed)

    def _purge_unless_needed(self) -> None:
        """Archive what is unreachable because a link has gone, or none has come yet."""
        if self._deleted or self._standby:
            return
        if self._consumers:
            self._archive_unneeded([each for line in self._lines for each in line.entries()])
        elif self.available or self._deferred:
            before = self.tally.purged
            purged = self.purge()
            purged.addCallback(self._purged_unreachable, before)
            purged.addErrback(self._commit_failed)

    def _purged_unreachable(self, count: int, before: int) -> None:
        self.tally.purged = before
        self.tally.unreachable += count

    def release(self, entries: Sequence[Entry]) -> None:
        """Put entries back into their old places, unchanged (O-11)."""
        if self._deleted:
            return
        self._acquired -= len(entries)
        self.tally.released += len(entries)
        earliest = 0
        for entry in entries:
            entry.attempted = True
            self._back(entry)
            if entry.expires_ms and (not earliest or entry.expires_ms < earliest):
                earliest = entry.expires_ms
        if earliest:
            self._arm_expiry(earliest)
        self.dispatch()

    def _back(self, entry: Entry) -> None:
        line = entry.line
        line.back(entry)
        for feed in self._feeds.values():
            feed.offer_again(line, entry)

    def _modify(
        self, entries: Sequence[Entry], outcome: Any, batch: Batch, consumer: object
    ) -> None:
        back: list[Entry] = []
        spent: list[Entry] = []
        for entry in entries:
            self._change(entry, outcome, batch, consumer)
            most = self.limits.max_deliveries
            is_spent = most and outcome.delivery_failed and entry.delivery_count >= most
            (spent if is_spent else back).append(entry)
        if spent:
            self._acquired -= len(spent)
            self.dead_letter(spent, DeadLetterReason.MAX_DELIVERIES, None, batch)
        if back:
            self.release(back)

    def _change(self, entry: Entry, outcome: Any, batch: Batch, consumer: object) -> None:
        """Apply a modified outcome to one entry (part 3 §3.4.5)."""
        changed = False
        if outcome.delivery_failed:
            entry.delivery_count = min(entry.delivery_count + 1, MOST_COUNTED)
            changed = True
        if outcome.undeliverable_here and consumer is not None:
            entry.bar(consumer)
        encoded = None
        if outcome.message_annotations:
            entry.message = entry.message.with_annotations(outcome.message_annotations)
            encoded = entry.message.encoded
            changed = True
        if changed and entry.stored:
            batch.transaction.update(entry.id, entry.delivery_count, encoded)

    def give_up(
        self,
        entries: Sequence[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Dead-letter acquired entries for a reason other than an outcome."""
        self._acquired -= len(entries)
        self.dead_letter(list(entries), reason, error, batch)

    def dead_letter(
        self,
        entries: list[Entry],
        reason: DeadLetterReason,
        error: spec.Error | None,
        batch: Batch,
    ) -> None:
        """Hand entries, no longer acquired, to the dead-letter treatment within the batch."""
        self.tally.dead_lettered += len(entries)
        self._dead_letter(self, entries, reason, error, batch)
        self._archive(entries, batch)

    def _archive(self, entries: Sequence[Entry], batch: Batch) -> None:
        ids = [entry.id for entry in entries if entry.stored]
        if ids:
            batch.transaction.dequeue(ids)
        if self._once is not None:
            self._once.gone(entries)
        if self.lifetime is not None:
            self._call_soon(self.look_at_life)
        if self._waiting_for_space:
            self._clock.callLater(0, self._tell_space)
        if self._feeds:
            for feed in self._feeds.values():
                feed.gone(entry.id for entry in entries)

    def _discard(self, entries: Sequence[Entry]) -> None:
        """Archive entries that arrived after the queue was deleted."""
        batch = self._begin()
        self._archive(entries, batch)
        batch.commit().addErrback(self._commit_failed)

    def _commit_failed(self, failure: Failure) -> None:
        self._log.failure("{queue} could not write to the store", failure, queue=self.name)

    def purge(self) -> Deferred[int]:
        """Archive every available and deferred entry.

        What is being loaded at this moment stays; it is purged by asking again.

        Returns:
            A Deferred of how many, when that is durable.
        """
        return self._clear_out(self._purge)

    def expire(self, error: spec.Error) -> Deferred[int]:
        """End the life of every available and deferred entry now, as an operator wants it.

        Args:
            error: says so, in the words that the senders are told.

        Returns:
            A Deferred of how many, when that is durable.
        """

        def expire(entries: list[Entry], batch: Batch) -> None:
            self.tally.expired += len(entries)
            self.dead_letter(entries, DeadLetterReason.EXPIRED, error, batch)

        return self._clear_out(expire)

    def _purge(self, entries: list[Entry], batch: Batch) -> None:
        self.tally.purged += len(entries)
        self._drop(entries, PURGED, batch)

    def _drop(self, entries: list[Entry], code: str, batch: Batch) -> None:
        """Archive entries that nobody has taken and that are no dead letters."""
        if self.when_dropped is not None and entries:
            self.when_dropped(self, entries, code, batch)
        self._archive(entries, batch)

    def _clear_out(self, let_go: Callable[[list[Entry], Batch], None]) -> Deferred[int]:
        batch = self._begin()
        entries = self._clear()
        let_go(entries, batch)
        count = [len(entries)]
        done: Deferred[Any] = batch.commit()
        for line in self._lines:
            done.addCallback(self._clear_line, line, let_go, count)
        return done.addCallback(lambda _: sum(count))

    def _clear_line(
        self,
        _: object,
        line: Line,
        let_go: Callable[[list[Entry], Batch], None],
        count: list[int],
    ) -> Deferred[Any]:
        """Let go of what stands in the store only, a page at a time."""
        if not line.paged or line.is_busy or self._deleted:
            return succeed(None)
        return line.load(line.cursor).addCallback(self._clear_page, line, let_go, count)

    def _clear_page(
        self,
        rows: Sequence[Any],
        line: Line,
        let_go: Callable[[list[Entry], Batch], None],
        count: list[int],
    ) -> Any:
        if self._once is not None:
            self._once.rows_gone(line, rows)
        ids = set(line.purged(rows))
        if not rows:
            return None
        batch = self._begin()
        let_go([line.entry(row) for row in rows if row.id in ids], batch)
        count.append(len(ids))
        return batch.commit().addCallback(self._clear_line, line, let_go, count)

    # -- deferral: entries that have to wait for their next attempt -----------------------------

    def defer(self, entries: Sequence[Entry], seconds: float) -> None:
        """Take back acquired entries, to be available again after some time.

        The wait is not persisted: after a restart the entries are available at once.
        """
        due = self._clock.seconds() + seconds
        self._acquired -= len(entries)
        for entry in entries:
            entry.attempted = True
            insort(self._deferred, (due, entry))
            entry.line.remember(len(entry.message.encoded))
        lives = [entry.expires_ms for entry in entries if entry.expires_ms]
        if lives:
            self._arm_expiry(min(lives))
        self._arm_deferral()

    def _arm_deferral(self) -> None:
        if self._deferral_call is not None and self._deferral_call.active():
            self._deferral_call.cancel()
        self._deferral_call = None
        if self._deferred:
            wait = max(0.0, self._deferred[0][0] - self._clock.seconds())
            self._deferral_call = self._clock.callLater(wait, self.undefer)

    def undefer(self, everything: bool = False) -> None:
        """Make deferred entries available whose time has come, or all of them."""
        now = self._clock.seconds()
        count = 0
        for due, _ in self._deferred:
            if due > now and not everything:
                break
            count += 1
        for _, entry in self._deferred[:count]:
            entry.line.forget(len(entry.message.encoded))
            self._back(entry)
        del self._deferred[:count]
        self._arm_deferral()
        if count:
            self.dispatch()

    # -- expiry (D-07 to D-11) -----------------------------------------------------------------

    def _arm_expiry(self, at_ms: int) -> None:
        wait = max(EXPIRY_GRAIN_SECONDS, (at_ms - self._now_ms()) / 1000)
        call = self._expiry_call
        if call is not None and call.active():
            if call.getTime() <= self._clock.seconds() + wait:
                return
            call.cancel()
        self._expiry_call = self._clock.callLater(wait, self._sweep)

    def _sweep(self) -> None:
        """Archive what has expired, in memory and in the store, and set the next timer."""
        self._expiry_call = None
        batch = self._begin()
        now_ms = batch.now_ms
        expired = self._sweep_deferred(now_ms)
        for line in self._lines:
            gone = {entry for entry in line.entries() if 0 < entry.expires_ms <= now_ms}
            if gone:
                line.remove(gone)
                expired += sorted(gone)
        if expired:
            self._expire(expired, batch)
            batch.commit().addErrback(self._commit_failed)
        for line in self._lines:
            if 0 < line.paged_expiry_ms <= now_ms and not line.is_busy:
                swept = line.find_expired(now_ms)
                swept.addCallback(self._swept, line, now_ms)
                swept.addErrback(self._load_failed, line)
        self._arm_next_expiry()

    def _sweep_deferred(self, now_ms: int) -> list[Entry]:
        expired = [entry for _, entry in self._deferred if 0 < entry.expires_ms <= now_ms]
        if expired:
            for entry in expired:
                entry.line.forget(len(entry.message.encoded))
            gone = set(expired)
            self._deferred = [pair for pair in self._deferred if pair[1] not in gone]
        return expired

    def _arm_next_expiry(self) -> None:
        lives = [entry.expires_ms for entry in self._in_memory() if entry.expires_ms]
        lives += [line.paged_expiry_ms for line in self._lines if line.paged_expiry_ms]
        if lives:
            self._arm_expiry(min(lives))

    def _in_memory(self) -> Iterator[Entry]:
        for line in self._lines:
            yield from line.entries()
        for _, entry in self._deferred:
            yield entry

    def _swept(self, rows: Sequence[Any], line: Line, now_ms: int) -> None:
        if self._deleted:
            line.is_busy = False
            return
        entries = line.swept(rows, now_ms)
        if entries:
            batch = self._begin()
            self._expire(entries, batch)
            batch.commit().addErrback(self._commit_failed)
        self._arm_next_expiry()
        self.dispatch()

    def _expire(self, entries: list[Entry], batch: Batch) -> None:
        self.tally.expired += len(entries)
        self.dead_letter(entries, DeadLetterReason.EXPIRED, None, batch)


@dataclass(slots=True)
class _Share:
    """What one consumer gets of one deal."""

    consumer: Any
    left: int
    entries: list[Entry] = field(default_factory=list)


def _give(shares: list[_Share], turn: int, entry: Entry) -> int:
    """Give an entry to the next who has room and may have it.

    Returns:
        Whose turn is next; -1 when nobody took it.
    """
    count = len(shares)
    for step in range(count):
        place = (turn + step) % count
        share = shares[place]
        if share.left and not (entry.barred and share.consumer in entry.barred):
            share.entries.append(entry)
            share.left -= 1
            return place + 1
    return -1


def level_of(priority: int, levels: int) -> int:
    """Return the level of a priority where a node tells only so many apart (D-06).

    The lowest are equivalent, and the highest are: with ``n`` levels those up to
    ``5 - ceil(n / 2)`` and those from ``4 + floor(n / 2)`` on.
    """
    if levels <= 1:
        return USUAL_PRIORITY
    low = max(0, 5 - (levels + 1) // 2)
    high = min(HIGHEST_PRIORITY, 4 + levels // 2)
    return min(max(int(priority), low), high)


def discard(
    queue: Queue,
    entries: list[Entry],
    reason: DeadLetterReason,
    error: spec.Error | None,
    batch: Batch,
) -> None:
    """Let dead letters go (a queue without a broker around it)."""
