# SPDX-License-Identifier: Apache-2.0
"""A queue: first in, first out, one consumer for each message (topics Q and D).

The line of a queue has three parts, in id order::

    returned (sorted list)  <  resident (deque)  <  paged (only a count here, rows in the store)

`returned` holds what consumers gave back; it is served first, which puts an entry back into its
old place (Q-05). `resident` is the head of the line in memory. `paged` is the rest; see the
package docstring for when entries are paged and why the order holds.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakMethod, WeakSet

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.batch import Batch
from amqproute.broker.limits import MemoryBudget, QueueLimits
from amqproute.entry import TRANSIENT, Entry
from amqproute.errors import ResourceDeleted, ResourceLimitExceeded
from amqproute.interfaces import IConsumer, ISource, ITarget
from amqproute.message import Message
from amqproute.values import DeadLetterReason, Origin
from amqproute.wire.amqp10 import spec

LOAD_MESSAGES = 500
LOAD_BYTES = 4 * 1024 * 1024
RELOAD_SECONDS = 1.0
"""After what time a page that could not be read is asked for again."""
UNBOUNDED = 1 << 31
MOST_COUNTED = 0xFFFFFFFF
"""Where a delivery-count stays: it is a uint, and a sender may start it anywhere."""
EXPIRY_GRAIN_SECONDS = 0.05
"""Expiry timers are not set finer than this, so that many short lives cost few timers."""

DeadLetter = Callable[["Queue", list[Entry], DeadLetterReason, "spec.Error | None", Batch], None]


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


@implementer(ITarget, ISource)
class Queue:
    """A queue node.

    Args:
        name: its name; also the name of its rows in the store.
        store: the `IStore`.
        clock: for expiry and deferral timers.
        begin: makes a `Batch`, for what the queue does on its own account.
        now_ms: the wall clock, ms since the epoch.
        limits: its bounds.
        budget: the memory budget it shares with the other queues.
        dead_letter: what becomes of entries that are rejected, expired or tried too often; it
            has to archive them within the batch.
        force_transient: nothing is written: every entry lives in memory only (dynamic queues,
            Q-18); such a queue never pages.
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
        budget: MemoryBudget | None = None,
        dead_letter: DeadLetter | None = None,
        force_transient: bool = False,
        log: Logger | None = None,
    ) -> None:
        self.name = name
        self.limits = limits or QueueLimits()
        self.tally = Tally()
        self.dead_letter_name: str | None = None
        self._store = store
        self._clock = clock
        self._begin = begin
        self._now_ms = now_ms
        self._budget = budget or MemoryBudget()
        self._dead_letter = dead_letter or discard
        self._force_transient = force_transient
        self._log = log or Logger()
        self._returned: list[Entry] = []
        self._resident: deque[Entry] = deque()
        self._resident_bytes = 0
        self._paged = 0
        self._paged_bytes = 0
        self._cursor = 0
        self._loading = False
        self._paging = False
        self._pending = 0
        self._pending_paged = 0
        self._pending_bytes = 0
        self._pending_from = 0
        self._acquired = 0
        self._consumers: deque[Any] = deque()
        self._deferred: list[tuple[float, Entry]] = []
        self._dispatching = False
        self._dispatch_again = False
        self._expiry_call: IDelayedCall | None = None
        self._paged_expiry_ms = 0
        self._deferral_call: IDelayedCall | None = None
        self._reload_call: IDelayedCall | None = None
        self._deleted = False
        self._waiting_for_space: list[WeakMethod[Callable[[], None]]] = []

    # -- what an operator sees -----------------------------------------------------------------

    @property
    def available(self) -> int:
        """Entries that a consumer could take now."""
        return len(self._returned) + len(self._resident) + self._paged

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
        return len(self._returned) + len(self._resident)

    @property
    def resident_bytes(self) -> int:
        """Bytes of their messages."""
        return self._resident_bytes

    @property
    def paged_bytes(self) -> int:
        """Bytes of the entries that stand in the store only."""
        return self._paged_bytes

    @property
    def consumers(self) -> int:
        """Consumers attached."""
        return len(self._consumers)

    @property
    def is_settled(self) -> bool:
        """Nothing of this queue is on its way to the store."""
        return self._pending == 0 and self._acquired == 0

    @property
    def lowest_id(self) -> int:
        """A lower bound of the ids of entries that are or will be on this queue."""
        lows = [self.next_id]
        lows.extend(entry.id for _, entry in self._deferred)
        return min(lows)

    @property
    def next_id(self) -> int:
        """A lower bound of the ids of entries that are or will be available (not deferred)."""
        lows = [line[0].id for line in (self._returned, self._resident) if line]
        if self._paged or self._pending_paged:
            lows.append(self._cursor + 1)
        if self._pending:
            lows.append(self._pending_from)
        return min(lows) if lows else int(self._store.next_id())

    @property
    def oldest_arrival_ms(self) -> int | None:
        """When the oldest resident available entry arrived, or None without one."""
        heads = [line[0].arrived_ms for line in (self._returned, self._resident) if line]
        return min(heads) if heads else None

    def __repr__(self) -> str:
        return (
            f"<Queue {self.name} available={self.available} acquired={self._acquired} "
            f"paged={self._paged} consumers={len(self._consumers)}>"
        )

    # -- recovery and end ----------------------------------------------------------------------

    def recovered(self, count: int, size_bytes: int) -> None:
        """Take over what an earlier run of the daemon left in the store."""
        self._paged = count
        self._paged_bytes = size_bytes
        self._paging = count > 0
        if count:
            self._paged_expiry_ms = 1
            self._arm_expiry(0)

    def delete(self) -> None:
        """End the queue (lifetime policies): entries go, timers stop."""
        self._deleted = True
        batch = self._begin()
        entries = [*self._returned, *self._resident, *(entry for _, entry in self._deferred)]
        self._archive(entries, batch)
        self._forget_resident(sum(len(entry.message.encoded) for entry in entries))
        self._returned.clear()
        self._resident.clear()
        self._deferred.clear()
        self._consumers.clear()
        self.stop()
        batch.commit().addErrback(self._commit_failed)

    def stop(self) -> None:
        """Cancel the timers; the entries stay where they are."""
        for call in (self._expiry_call, self._deferral_call, self._reload_call):
            if call is not None and call.active():
                call.cancel()
        self._expiry_call = self._deferral_call = self._reload_call = None

    # -- publish -------------------------------------------------------------------------------

    def space(self) -> int:
        """Return how many more messages fit (Q-15)."""
        if not self.limits.capacity:
            return UNBOUNDED
        return max(0, self.limits.capacity - self.depth - self._pending)

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
        if limits.capacity and self.depth + self._pending >= limits.capacity:
            raise ResourceLimitExceeded(
                f"queue {self.name} is full: {limits.capacity} messages",
                info={"limiter": "capacity"},
            )
        now_ms = batch.now_ms
        expires_ms = 0 if origin.is_dead_letter else message.expires_ms(now_ms)
        if limits.ttl_ms:
            latest = now_ms + limits.ttl_ms
            expires_ms = min(expires_ms, latest) if expires_ms else latest
        durable = message.durable and not self._force_transient
        size = len(message.encoded)
        stored = durable
        starts_paging = False
        if self._paging:
            stored = True
        elif (
            self._resident_bytes + self._pending_bytes + size > limits.resident_bytes
            or len(self._resident) + self._pending >= limits.resident_messages
            or self._budget.used_bytes + size > self._budget.limit_bytes
        ):
            if self._force_transient:
                raise ResourceLimitExceeded(
                    f"queue {self.name} is full: it lives in memory only",
                    info={"limiter": "memory"},
                )
            self._paging = stored = True
            starts_paging = True
        store_id = self._store.next_id()
        if starts_paging:
            # Everything before this entry is resident, acquired or about to be.
            self._cursor = store_id - 1
        entry = Entry(
            store_id, message, durable, stored, now_ms, expires_ms, message.delivery_count
        )
        if stored:
            flags = 0 if durable else TRANSIENT
            batch.transaction.enqueue(
                self.name, store_id, message.encoded, now_ms, expires_ms, flags
            )
        if not self._pending:
            self._pending_from = store_id
        self._pending += 1
        if self._paging:
            self._pending_paged += 1
            # The mark by which `arrived` knows that this entry goes to the paged part.
            entry.attempted = True
        else:
            self._pending_bytes += size
        try:
            batch.arrivals[self].append(entry)
        except KeyError:
            batch.arrivals[self] = [entry]

    def arrived(self, entries: list[Entry]) -> None:
        """Line up entries whose batch has been committed."""
        if self._deleted:
            self._discard(entries)
            return
        self.tally.enqueued += len(entries)
        self._pending -= len(entries)
        resident = self._resident
        resident_bytes = 0
        earliest = 0
        for entry in entries:
            size = len(entry.message.encoded)
            expires_ms = entry.expires_ms
            if expires_ms and (not earliest or expires_ms < earliest):
                earliest = expires_ms
            if entry.attempted:
                self._pending_paged -= 1
                if entry.id <= self._cursor:
                    # A batch that was begun later was committed, and loaded, first: nobody
                    # would read this row any more.
                    entry.attempted = False
                    insort(self._returned, entry)
                    self._remember_resident(size)
                    continue
                self._paged += 1
                self._paged_bytes += size
                if expires_ms and (not self._paged_expiry_ms or expires_ms < self._paged_expiry_ms):
                    self._paged_expiry_ms = expires_ms
            else:
                if resident and entry.id < resident[-1].id:
                    insort(self._returned, entry)
                else:
                    resident.append(entry)
                resident_bytes += size
        if resident_bytes:
            self._pending_bytes -= resident_bytes
            self._resident_bytes += resident_bytes
            self._budget.used_bytes += resident_bytes
        if earliest:
            self._arm_expiry(earliest)
        self.dispatch()

    def not_arrived(self, entries: list[Entry]) -> None:
        """Forget entries whose batch could not be committed."""
        self._pending -= len(entries)
        for entry in entries:
            if entry.attempted:
                self._pending_paged -= 1
            else:
                self._pending_bytes -= len(entry.message.encoded)
        if not self._paged:
            self._leave_paging()
        if self._waiting_for_space:
            self._clock.callLater(0, self._tell_space)

    # -- deliver -------------------------------------------------------------------------------

    def attach(self, consumer: IConsumer) -> None:
        """Add a consumer at the end of the rotation."""
        self._consumers.append(consumer)

    def detach(self, consumer: IConsumer) -> None:
        """Remove a consumer."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

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
        if not self._consumers:
            return
        if not self._returned and not self._resident and not self._paged:
            self._tell_exhausted()
            return
        for consumer, entries in self._deal():
            consumer.deliver(entries)
        if self._paged and self._refill():
            return
        if not self._returned and not self._resident:
            self._tell_exhausted()
            return
        # What is left is not for those who still have room: they are barred from it.
        for consumer in tuple(self._consumers):
            if consumer.capacity() > 0:
                consumer.exhausted()

    def _deal(self) -> list[tuple[Any, list[Entry]]]:
        """Take entries off the line and deal them to the consumers that have room."""
        rooms = [(consumer, consumer.capacity()) for consumer in self._consumers]
        rooms = [(consumer, room) for consumer, room in rooms if room > 0]
        if not rooms:
            return []
        if len(rooms) == 1 and not self._returned:
            consumer, room = rooms[0]
            entries = self._take(room)
            return [(consumer, entries)] if entries else []
        shares = [_Share(consumer, room) for consumer, room in rooms]
        turn = self._deal_returned(shares) if self._returned else 0
        for entry in self._take(sum(share.left for share in shares)):
            turn = _give(shares, turn, entry)
        # Whoever comes after the last one served is the first to be served next time.
        last = shares[(turn - 1) % len(shares)].consumer
        self._consumers.rotate(-self._consumers.index(last) - 1)
        return [(share.consumer, share.entries) for share in shares if share.entries]

    def _deal_returned(self, shares: list[_Share]) -> int:
        """Deal from the returned line, passing over what nobody with room may have."""
        returned = self._returned
        now_ms = self._now_ms()
        expired: list[Entry] = []
        stay: list[Entry] = []
        size = seen = turn = dealt = 0
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
            size += len(entry.message.encoded)
        returned[:seen] = stay
        self._acquired += dealt
        self._forget_resident(size)
        if expired:
            self._expire_now(expired)
        return turn

    def _take(self, count: int) -> list[Entry]:
        """Take up to ``count`` entries from the resident line, leaving out expired ones."""
        resident = self._resident
        taken: list[Entry] = []
        while resident and len(taken) < count:
            wanted = min(count - len(taken), len(resident))
            entries = [resident.popleft() for _ in range(wanted)]
            self._forget_resident(sum([len(entry.message.encoded) for entry in entries]))
            entries = self._without_expired(entries)
            taken = taken + entries if taken else entries
        self._acquired += len(taken)
        return taken

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

    def _tell_exhausted(self) -> None:
        for consumer in tuple(self._consumers):
            consumer.exhausted()

    # -- paging --------------------------------------------------------------------------------

    def _refill(self) -> bool:
        """Load the next paged entries once little is left in memory; True if some are coming."""
        if self._loading:
            return True
        if self._deleted or len(self._resident) > LOAD_MESSAGES // 2:
            return False
        if self._resident and self._resident_bytes > LOAD_BYTES // 2:
            return False
        if self._returned and (
            len(self._returned) >= self.limits.resident_messages
            or self._resident_bytes >= self.limits.resident_bytes
        ):
            # Entries that every consumer has barred itself from: more would only fill the memory.
            return False
        self._loading = True
        loaded = self._store.load(self.name, self._cursor, LOAD_MESSAGES, LOAD_BYTES)
        loaded.addCallback(self._loaded)
        loaded.addErrback(self._load_failed)
        return True

    def _loaded(self, rows: Sequence[Any]) -> None:
        self._loading = False
        if self._deleted:
            return
        size = 0
        earliest = 0
        for row in rows:
            message = Message(row.encoded)
            entry = Entry(
                row.id,
                message,
                not row.flags & TRANSIENT,
                True,
                row.arrived_ms,
                row.expires_ms,
                # The row counts from its first change on, the header from its sender's.
                max(row.delivery_count, message.delivery_count),
            )
            message.forget()
            self._resident.append(entry)
            size += len(row.encoded)
            if row.expires_ms and (not earliest or row.expires_ms < earliest):
                earliest = row.expires_ms
        self.tally.loaded += len(rows)
        if rows:
            self._cursor = rows[-1].id
            self._paged = max(0, self._paged - len(rows))
            self._paged_bytes = max(0, self._paged_bytes - size)
            self._remember_resident(size)
            self._log.debug("{queue} loaded {count} entries", queue=self.name, count=len(rows))
        else:
            # Rows that the count promised and the store has not: expired in the store meanwhile.
            self._paged = 0
            self._paged_bytes = 0
        if not self._paged:
            self._paged_expiry_ms = 0
            self._leave_paging()
        if earliest:
            self._arm_expiry(earliest)
        self.dispatch()

    def _leave_paging(self) -> None:
        if self._pending_paged == 0:
            self._paging = False

    def _load_failed(self, failure: Failure) -> None:
        self._loading = False
        self._log.failure("{queue} could not load its backlog", failure, queue=self.name)
        if not self._deleted and self._reload_call is None:
            self._reload_call = self._clock.callLater(RELOAD_SECONDS, self._reload)

    def _reload(self) -> None:
        self._reload_call = None
        self.dispatch()

    def _remember_resident(self, size: int) -> None:
        self._resident_bytes += size
        self._budget.used_bytes += size

    def _forget_resident(self, size: int) -> None:
        self._resident_bytes -= size
        self._budget.used_bytes -= size

    # -- settle --------------------------------------------------------------------------------

    def settle(
        self, entries: Sequence[Entry], outcome: Any, batch: Batch, consumer: object = None
    ) -> None:
        """Act on an outcome (O-10 to O-13). See `ISource.settle`."""
        if self._deleted:
            return
        if type(outcome) is spec.Accepted:
            self._acquired -= len(entries)
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

    def release(self, entries: Sequence[Entry]) -> None:
        """Put entries back into their old places, unchanged (O-11)."""
        if self._deleted:
            return
        self._acquired -= len(entries)
        self.tally.released += len(entries)
        size = 0
        earliest = 0
        for entry in entries:
            entry.attempted = True
            insort(self._returned, entry)
            size += len(entry.message.encoded)
            if entry.expires_ms and (not earliest or entry.expires_ms < earliest):
                earliest = entry.expires_ms
        self._remember_resident(size)
        if earliest:
            self._arm_expiry(earliest)
        self.dispatch()

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
            if entry.barred is None:
                entry.barred = WeakSet()
            entry.barred.add(consumer)
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
        if self._waiting_for_space:
            self._clock.callLater(0, self._tell_space)

    def _discard(self, entries: Sequence[Entry]) -> None:
        """Archive entries that arrived after the queue was deleted."""
        batch = self._begin()
        self._archive(entries, batch)
        batch.commit().addErrback(self._commit_failed)

    def _commit_failed(self, failure: Failure) -> None:
        self._log.failure("{queue} could not write to the store", failure, queue=self.name)

    def purge(self) -> Deferred[int]:
        """Archive every available and deferred entry.

        Returns:
            A Deferred of how many, when that is durable.
        """
        batch = self._begin()
        entries = [*self._returned, *self._resident, *(entry for _, entry in self._deferred)]
        self._returned.clear()
        self._resident.clear()
        self._deferred.clear()
        self._forget_resident(sum(len(entry.message.encoded) for entry in entries))
        self._archive(entries, batch)
        self.tally.purged += len(entries)
        if self._loading:
            # What is being loaded now arrives in a moment; it is purged by asking again.
            return batch.commit().addCallback(lambda _: len(entries))
        return batch.commit().addCallback(self._purge_paged, len(entries))

    def _purge_paged(self, _: object, count: int) -> int | Deferred[int]:
        """Go on with what stands in the store only, a piece at a time."""
        if not self._paged or self._deleted:
            return count
        # Under the same mark as a refill, so that no entry is loaded and purged at once.
        self._loading = True
        loaded = self._store.load(self.name, self._cursor, LOAD_MESSAGES, LOAD_BYTES)
        return loaded.addCallback(self._purge_loaded, count)  # type: ignore[no-any-return]

    def _purge_loaded(self, rows: Sequence[Any], count: int) -> int | Deferred[int]:
        self._loading = False
        if not rows:
            return count
        batch = self._begin()
        batch.transaction.dequeue([row.id for row in rows])
        self._cursor = rows[-1].id
        self._paged = max(0, self._paged - len(rows))
        self._paged_bytes = max(0, self._paged_bytes - sum(len(row.encoded) for row in rows))
        self.tally.purged += len(rows)
        if not self._paged:
            self._leave_paging()
        return batch.commit().addCallback(self._purge_paged, count + len(rows))

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
            self._remember_resident(len(entry.message.encoded))
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
            insort(self._returned, entry)
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
        expired = [
            entry
            for line in (self._returned, self._resident)
            for entry in line
            if 0 < entry.expires_ms <= now_ms
        ]
        expired += [entry for _, entry in self._deferred if 0 < entry.expires_ms <= now_ms]
        if expired:
            gone = set(expired)
            self._returned = [entry for entry in self._returned if entry not in gone]
            self._resident = deque(entry for entry in self._resident if entry not in gone)
            self._deferred = [pair for pair in self._deferred if pair[1] not in gone]
            self._forget_resident(sum(len(entry.message.encoded) for entry in expired))
            self._expire(expired, batch)
            batch.commit().addErrback(self._commit_failed)
        if self._paged_expiry_ms and self._paged_expiry_ms <= now_ms and not self._loading:
            self._sweep_paged(now_ms)
        self._arm_next_expiry()

    def _arm_next_expiry(self) -> None:
        lives = [
            entry.expires_ms
            for line in (self._returned, self._resident)
            for entry in line
            if entry.expires_ms
        ]
        lives += [entry.expires_ms for _, entry in self._deferred if entry.expires_ms]
        if self._paged_expiry_ms:
            lives.append(self._paged_expiry_ms)
        if lives:
            self._arm_expiry(min(lives))

    def _sweep_paged(self, now_ms: int) -> None:
        # A load and a sweep of the same rows must not overlap, or an entry would live twice.
        self._loading = True
        swept = self._store.expired(self.name, now_ms, self._cursor, LOAD_MESSAGES)
        swept.addCallback(self._swept, now_ms)
        swept.addErrback(self._load_failed)

    def _swept(self, rows: Sequence[Any], now_ms: int) -> None:
        self._loading = False
        if self._deleted:
            return
        # Full page: there may be more. Otherwise look again in a while: later arrivals that
        # expire earlier lower the mark themselves.
        self._paged_expiry_ms = now_ms if len(rows) == LOAD_MESSAGES else now_ms + 60_000
        if not self._paged:
            self._paged_expiry_ms = 0
        entries = [
            Entry(row.id, Message(row.encoded), True, True, row.arrived_ms, row.expires_ms)
            for row in rows
        ]
        if entries:
            self._paged -= len(entries)
            self._paged_bytes -= sum(len(entry.message.encoded) for entry in entries)
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


def discard(
    queue: Queue,
    entries: list[Entry],
    reason: DeadLetterReason,
    error: spec.Error | None,
    batch: Batch,
) -> None:
    """Let dead letters go (a queue without a broker around it)."""
