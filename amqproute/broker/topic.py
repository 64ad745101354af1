# SPDX-License-Identifier: Apache-2.0
"""Topics: each message goes to each subscription that selects it (topics N and S, K-05).

How it works
============

``put`` takes a message into its sender's batch. The *outlets* of the topic, which outlive links
(durable subscriptions and bindings), get it at once, within that batch: when its outcome is
`accepted`, it is safe for all of them. Its body is stored once, however many they are, and each has
a small row that refers to it (`SharedBodyBatch`). Subscriptions that end with their link get it
when the batch is committed, into a buffer in memory, without cost for the store.

A message that no subscriber selects is accepted and dropped (S-15), or refused if the topic is
``unroutable: reject`` (N-08).

Slow subscribers
================

A durable subscription with a capacity, and the target of a binding, can be full. The topic then has
no space: publishers get no credit, and a message without credit is refused before any subscriber
has it. So a durable subscriber never loses a message, and the slowest of them sets the pace;
without a capacity its backlog grows on the disk. A subscriber in memory loses its oldest messages
instead, or sets the pace too (``subscriber-full``).

New subscribers
===============

A new subscription gets new messages only, unless the topic keeps its newest ones (``last-value``,
N-25): these come first, the oldest before the newest. ``last-value-key`` keeps them for each value
of an application property, so that a subscriber of prices begins with one price for each stock. A
link can limit them by ``first-message-date`` (L-14). Durable ones survive a restart
(`broker.last_value`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_set import UNBOUNDED
from amqproute.broker.exchanges.subject_table import SubjectTable
from amqproute.broker.last_value import LastValueCache
from amqproute.broker.node_context import NodeContext
from amqproute.broker.node_limits import QueueLimits, TopicLimits
from amqproute.broker.publisher_credit import Publishers
from amqproute.broker.queue import Queue
from amqproute.broker.shared_body import SharedBodyBatch, share_on_all
from amqproute.broker.space_waiters import SpaceWaiters
from amqproute.broker.subscription import (
    NOTES,
    Definition,
    DurableSubscription,
    Subscription,
    same_filter,
    subscription_key,
)
from amqproute.broker.topic_state import TopicArrival, TopicCounters, TopicOutlet
from amqproute.entry import Entry
from amqproute.errors import (
    AmqpError,
    NotAllowed,
    PreconditionFailed,
    ResourceDeleted,
    ResourceLimitExceeded,
    StoreError,
)
from amqproute.filters.registry import FilterSet, read_filters
from amqproute.filters.subject import subject_words
from amqproute.interfaces import ITarget
from amqproute.journal.event import EntryTaker
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.outcomes import ACCEPTED
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin, is_of_address

MOST_SUBSCRIPTIONS: Final = 100_000
"""Most durable subscriptions of one topic."""


class _Nobody:
    """Consumer of messages that no subscriber wants any more."""

    taker = EntryTaker(RecordKind.DELETED, {"code": "subscription.changed"})


NOBODY: Final = _Nobody()
EMPTYING_SECONDS: Final = 0.1
"""Interval of the checks of a queue that is being emptied."""


@implementer(ITarget)
class Topic:
    """A topic node.

    Args:
        name: its name.
        context: what it shares with the other nodes.
        make_queue: makes the queue of a durable subscription, by name, with the topic's limits.
        limits: its bounds and options.
    """

    def __init__(
        self,
        name: str,
        context: NodeContext,
        make_queue: Callable[[str, QueueLimits], Queue],
        *,
        limits: TopicLimits | None = None,
    ) -> None:
        self._name = name
        self.tally = TopicCounters()
        self.now_ms = context.now_ms
        self.durable: dict[tuple[str, ...], DurableSubscription] = {}
        self.shared: dict[tuple[str, ...], Subscription] = {}
        self._limits = limits or TopicLimits()
        self._store = context.store
        self._clock = context.clock
        self._begin = context.begin
        self._ended = context.ended_topics
        self._all_durable = context.subscriptions
        self._make_queue = make_queue
        self._log = context.log
        self._subscriptions: SubjectTable[Subscription] = SubjectTable()
        self._outlets: SubjectTable[TopicOutlet] = SubjectTable()
        self._bounded = 0
        self._last = LastValueCache(name, context, self._limits)
        self._beginning: dict[tuple[str, ...], list[Deferred[DurableSubscription]]] = {}
        self._leaving: dict[tuple[str, ...], list[Callable[[], None]]] = {}
        self._calls: dict[Queue, IDelayedCall] = {}
        self._waiters = SpaceWaiters()
        self.publishers = Publishers(self, context.clock)
        self._deleted = False

    def __repr__(self) -> str:
        return (
            f"<Topic {self.name} subscriptions={len(self._subscriptions)} "
            f"durable={len(self.durable)}>"
        )

    # -- what an operator sees, and sets ---------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name; it may change."""
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name
        self._last.rename(name)

    @property
    def limits(self) -> TopicLimits:
        """Its bounds and options."""
        return self._limits

    @limits.setter
    def limits(self, limits: TopicLimits) -> None:
        is_other = limits.last_value_key != self._limits.last_value_key or not limits.last_value
        self._limits = self._last.limits = limits
        if is_other:
            self._last.clear()
        for each in self.durable.values():
            each.queue.limits = limits.queue
        self._recount()

    def postpone(self, ms: int, now_ms: int) -> None:
        """Shift all times: the wall clock was set ahead."""
        for each in self._subscriptions:
            each.postpone(ms, now_ms)
        for durable in self.durable.values():
            durable.queue.postpone(ms, now_ms)
        self._last.postpone(ms, now_ms)

    @property
    def subscriptions(self) -> Sequence[Subscription]:
        """Number of subscriptions that end with their link."""
        return tuple(self._subscriptions)

    @property
    def waiting(self) -> int:
        """Messages in the buffers of subscribers."""
        return sum(each.waiting for each in self._subscriptions)

    @property
    def waiting_bytes(self) -> int:
        """Octets of these."""
        return sum(each.waiting_bytes for each in self._subscriptions)

    @property
    def consumers(self) -> int:
        """Links that receive from it."""
        count = sum(each.consumers for each in self._subscriptions)
        return count + sum(each.consumers for each in self.durable.values())

    @property
    def retained(self) -> int:
        """Messages kept for newcomers."""
        return len(self._last)

    # -- publish -----------------------------------------------------------------------------------

    def space(self) -> int:
        """Return the number of messages for which all outlets have room."""
        spaces = []
        if self._bounded:
            for outlet in self._outlets:
                if outlet.is_bounded:
                    try:
                        spaces.append(outlet.target().space())
                    except AmqpError:
                        continue
        if self._limits.holds_publishers:
            spaces.extend(each.space() for each in self._subscriptions)
        return min(spaces, default=UNBOUNDED)

    @property
    def is_bounded(self) -> bool:
        """Whether an outlet can be full."""
        return bool(self._bounded) or self._limits.holds_publishers

    def when_space(self, notify: Callable[[], None]) -> None:
        """Call ``notify``, a method, once when there is space again; it is held weakly."""
        self._waiters.add(notify)
        for outlet in self._outlets:
            if outlet.is_bounded:
                try:
                    target = outlet.target()
                except AmqpError:
                    continue
                if target.space() <= 0:
                    target.when_space(self.space_available)

    def space_available(self) -> None:
        """Notify the waiters if there is space now: an outlet has taken messages."""
        if self._waiters and self.space() > 0:
            for notify in self._waiters.leave(len(self._waiters)):
                # Not within this call: a publisher's frontend may be in the middle of its events.
                self._clock.callLater(0, notify)

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Put a message on all outlets that select it. See `ITarget.put`."""
        if self._deleted:
            raise ResourceDeleted(f"node {self.name} does not exist any more")
        limits = self._limits
        container = origin.container_id or None
        outlets = [
            each for each in _reached(self._outlets, message) if each.selects(message, container)
        ]
        if limits.holds_publishers and (batch.is_transactional or not origin.has_credit):
            self._require_space(message, container)
        if not outlets and limits.rejects_unroutable and not self._is_wanted(message, container):
            self.tally.unroutable += 1
            raise PreconditionFailed(
                f"no subscription on topic {self.name} selects this message",
                info={"code": "topic.unroutable"},
            )
        arrival = None
        if self._subscriptions or limits.last_value:
            now_ms = batch.now_ms
            expires_ms = 0 if origin.is_dead_letter else message.expires_ms(now_ms)
            if limits.ttl_ms:
                latest = now_ms + limits.ttl_ms
                expires_ms = min(expires_ms, latest) if expires_ms else latest
            arrival = TopicArrival(self._store.next_id(), message, now_ms, expires_ms, container)
        keeps = arrival if limits.last_value and message.header.durable else None
        before = 0 if batch.came is None else len(batch.came)
        if outlets:
            self._put_on(outlets, message, batch, origin, keeps)
        elif keeps is not None:
            self._last.store(keeps, batch.transaction)
        batch.copied(before, self.name, message, origin)
        self.tally.published += not batch.is_rehearsal
        if arrival is not None:
            try:
                batch.arrivals[self].append(arrival)
            except KeyError:
                batch.arrivals[self] = [arrival]
        elif not outlets:
            self.tally.unroutable += not batch.is_rehearsal

    def _is_wanted(self, message: Message, container: str | None) -> bool:
        reached = _reached(self._subscriptions, message)
        return any(each.selects(message, container) for each in reached)

    def _require_space(self, message: Message, container: str | None) -> None:
        for each in _reached(self._subscriptions, message):
            if each.space() <= 0 and each.selects(message, container):
                raise ResourceLimitExceeded(
                    f"a subscriber of topic {self.name} has no room for more",
                    info={"limiter": "subscriber-buffer"},
                )

    def _put_on(
        self,
        outlets: Sequence[TopicOutlet],
        message: Message,
        batch: Batch,
        origin: Origin,
        keeps: TopicArrival | None,
    ) -> None:
        # All or nothing: first all outlets are asked, then all get it.
        targets = []
        for outlet in outlets:
            target = outlet.target()
            if outlet.is_bounded and target.space() <= 0:
                raise ResourceLimitExceeded(
                    f"{target.name}, which gets the messages of topic {self.name}, is full",
                    info={"limiter": "capacity"},
                )
            targets.append(target)
        keep = None if keeps is None else partial(self._last.store, keeps)
        for target, error in share_on_all(
            targets, message, batch, origin, self._store.next_id, keep
        ):
            # Too late to refuse it: others have it. Full targets were handled above.
            self._log.warn(
                "a message on topic {topic} could not be put on {target}: {error}",
                topic=self.name,
                target=target.name,
                error=error,
            )

    def go_ahead(self, arrivals: Sequence[TopicArrival], batch: Batch) -> None:
        """Do nothing: subscribers in memory get messages when they are safe."""

    def arrived(self, arrivals: Sequence[TopicArrival]) -> None:
        """Deliver committed messages to subscribers in memory."""
        if self._deleted:
            return
        if self._limits.last_value:
            self._last.keep(arrivals)
        for subscription, share in self._shares(arrivals):
            subscription.arrived(share)
        for each in arrivals:
            # Decoded sections are not needed while it waits.
            each.message.forget()

    def _shares(
        self, arrivals: Sequence[TopicArrival]
    ) -> list[tuple[Subscription, Sequence[TopicArrival]]]:
        """Return the subscriptions that arrivals may match, each with these arrivals."""
        subscriptions = self._subscriptions
        if not subscriptions.reads_subjects:
            return [(each, arrivals) for each in subscriptions]
        shares: dict[Subscription, list[TopicArrival]] = {}
        for arrival in arrivals:
            for subscription in subscriptions.match(subject_words(arrival.message)):
                shares.setdefault(subscription, []).append(arrival)
        return [(each, shares[each]) for each in subscriptions.ordered(shares)]

    def not_arrived(self, arrivals: Sequence[TopicArrival]) -> None:
        """Do nothing: uncommitted messages were not delivered."""

    # -- subscriptions of links --------------------------------------------------------------------

    def join(self, subscription: Subscription) -> None:
        """Begin a subscription in memory, with the retained messages."""
        self._subscriptions.put(subscription, subscription.filters.subject_pattern)
        if subscription.key is not None:
            self.shared[subscription.key] = subscription
        # New messages reach it by themselves while the retained ones are being read back.
        before_id = self._store.next_id()
        self._last.when_loaded(lambda: self._give_kept(subscription, before_id))

    def _give_kept(self, subscription: Subscription, before_id: int) -> None:
        kept = self._last.since(subscription.since_ms, self.now_ms())
        kept = [each for each in kept if each.id < before_id]
        if kept and subscription.is_joined:
            subscription.arrived(kept)

    def leave(self, subscription: Subscription) -> None:
        """End a subscription in memory."""
        self._subscriptions.remove(subscription)
        if subscription.key is not None and self.shared.get(subscription.key) is subscription:
            del self.shared[subscription.key]
        self.space_available()

    # -- durable subscriptions ---------------------------------------------------------------------

    def subscribe(
        self, definition: Definition, filters: FilterSet
    ) -> Deferred[DurableSubscription]:
        """Find or begin a durable subscription.

        Args:
            definition: the request of an attach.
            filters: the definition's, compiled.

        Returns:
            A Deferred of the subscription, when it is on the disk.

        Raises:
            NotAllowed: it belongs to another owner.
            PreconditionFailed: it exists with another first-message-date (L-16), or is shared
                where this is not.
            ResourceLimitExceeded: there are too many.
        """
        known = self.begun(definition.container, definition.name, definition.owner)
        if known is not None:
            return self._found(known, definition, filters)
        answer: Deferred[DurableSubscription] = Deferred()
        if definition.key in self._leaving:
            # The queue of the same name is being emptied; new messages must not go with it.
            self._leaving[definition.key].append(
                lambda: self._subscribe_again(definition, filters, answer)
            )
            return answer
        if self._last.is_loading:
            self._last.when_loaded(lambda: self._subscribe_again(definition, filters, answer))
            return answer
        waiting = self._beginning.get(definition.key)
        if waiting is not None:
            waiting.append(answer)
            return answer
        if len(self.durable) + len(self._beginning) >= MOST_SUBSCRIPTIONS:
            raise ResourceLimitExceeded(
                f"topic {self.name} has {MOST_SUBSCRIPTIONS} durable subscriptions already",
                info={"limiter": "subscriptions"},
            )
        self._beginning[definition.key] = [answer]
        queue = self._make_queue(definition.queue_name, self._limits.queue)
        batch = self._begin()
        batch.transaction.note(NOTES, definition.queue_name, definition.encode())
        origin = Origin(ANONYMOUS_PRINCIPAL, event=RecordKind.ROUTED)
        kept = self._last.since(definition.since_ms, batch.now_ms)
        for each in kept:
            if queue.space() > 0 and filters.matches(each.message, each.origin):
                queue.put(each.message, batch, origin)
        subscription = DurableSubscription(self, definition, filters, queue)
        batch.commit().addCallbacks(
            self._begun, self._not_begun, (subscription,), errbackArgs=(subscription,)
        )
        return answer

    def begun(self, container: str, name: str, owner: str) -> DurableSubscription | None:
        """Find a durable subscription by its key for an owner.

        It may belong to another owner: see `Definition.is_of`.
        """
        known = self.durable.get(subscription_key(container, name, owner))
        if known is None and is_of_address(owner):
            # One from before the distinction of addresses belongs to all anonymous clients until it
            # is closed: otherwise nobody could consume its messages.
            older = self.durable.get((container, name))
            if older is not None and older.definition.is_of(owner):
                return older
        return known

    def _subscribe_again(
        self, definition: Definition, filters: FilterSet, answer: Deferred[DurableSubscription]
    ) -> None:
        found = maybeDeferred(self.subscribe, definition, filters)
        found.addCallbacks(answer.callback, answer.errback)

    def _found(
        self, known: DurableSubscription, definition: Definition, filters: FilterSet
    ) -> Deferred[DurableSubscription]:
        old = known.definition
        if not old.is_of(definition.owner):
            raise NotAllowed(f"the subscription {definition.name!r} belongs to another principal")
        if definition.since_ms is not None and definition.since_ms != old.since_ms:
            raise PreconditionFailed(
                f"the subscription {definition.name!r} has another first-message-date: attach "
                "without one, or close it to begin anew"
            )
        if old.is_shared != definition.is_shared:
            raise PreconditionFailed(
                f"the subscription {definition.name!r} is "
                f"{'shared' if old.is_shared else 'not shared'}"
            )
        if same_filter(old.filter, definition.filter) and old.durable == definition.durable:
            return succeed(known)
        if old.is_shared and known.consumers:
            raise PreconditionFailed(
                f"the shared subscription {definition.name!r} has other filters, and is in use"
            )
        changed = old.with_filter(definition)
        batch = self._begin()
        batch.transaction.note(NOTES, changed.queue_name, changed.encode())

        def done(_: object) -> DurableSubscription:
            known.change(changed, filters)
            if known in self._outlets:
                self._outlets.put(known, filters.subject_pattern)
            return known

        return batch.commit().addCallback(done)

    def _begun(self, _: object, subscription: DurableSubscription) -> None:
        self._enter(subscription)
        self._log.info("subscription {name} begun", name=subscription.name)
        for answer in self._beginning.pop(subscription.definition.key):
            answer.callback(subscription)

    def _not_begun(self, failure: Failure, subscription: DurableSubscription) -> None:
        subscription.queue.stop()
        for answer in self._beginning.pop(subscription.definition.key):
            answer.errback(failure)

    def _enter(self, subscription: DurableSubscription) -> None:
        self.durable[subscription.definition.key] = subscription
        self._all_durable[subscription.queue.name] = subscription.queue
        self.add_outlet(subscription)

    def recovered(self, definition: Definition) -> None:
        """Restore a durable subscription of an earlier run of the daemon.

        Raises:
            AmqpError: its filter is not supported any more.
        """
        filters = read_filters(
            definition.filter, own_container=definition.creator, now_ms=self.now_ms
        )
        queue = self._make_queue(definition.queue_name, self._limits.queue)
        self._enter(DurableSubscription(self, definition, filters, queue))

    def recover_last(self) -> None:
        """Restore the retained messages of an earlier run of the daemon (N-25)."""
        self._last.recover()

    def unsubscribe(self, subscription: DurableSubscription) -> None:
        """End a durable subscription with its waiting messages."""
        key = subscription.definition.key
        if self.durable.get(key) is not subscription:
            return
        del self.durable[key]
        self._all_durable.pop(subscription.queue.name, None)
        self.remove_outlet(subscription)
        self._leaving[key] = []
        batch = self._begin()
        batch.transaction.note(NOTES, subscription.name, None)
        batch.commit().addErrback(self._failed, subscription.name)
        self._log.info("subscription {name} ended", name=subscription.name)
        self.empty(subscription.queue, lambda: self._left(key))

    def _left(self, key: tuple[str, ...]) -> None:
        for again in self._leaving.pop(key):
            again()

    def empty(self, queue: Queue, done: Callable[[], None]) -> None:
        """Remove all entries of an unused queue from memory and disk, then end it."""
        self._calls.pop(queue, None)
        purged = queue.purge()
        purged.addCallbacks(
            self._purged, self._not_purged, (queue, done), errbackArgs=(queue, done)
        )

    def _purged(self, _: object, queue: Queue, done: Callable[[], None]) -> None:
        if queue.depth:
            self._calls[queue] = self._clock.callLater(EMPTYING_SECONDS, self.empty, queue, done)
            return
        queue.delete()
        done()

    def _not_purged(self, failure: Failure, queue: Queue, done: Callable[[], None]) -> None:
        # Its rows stay in the store without a definition; the next start removes them.
        self._failed(failure, queue.name)
        queue.stop()
        done()

    def archive(self, queue: Queue, entries: Sequence[Entry]) -> None:
        """Remove unwanted entries from a subscription's queue."""
        batch = self._begin()
        queue.settle(entries, ACCEPTED, batch, NOBODY)
        batch.commit(True).addErrback(self._failed, queue.name)

    def _failed(self, failure: Failure, name: str) -> None:
        if isinstance(failure.value, StoreError):
            self._log.error("{name}: {error}", name=name, error=failure.getErrorMessage())
        else:
            self._log.failure("{name} could not write to the store", failure, name=name)

    # -- outlets -----------------------------------------------------------------------------------

    def add_outlet(self, outlet: TopicOutlet) -> None:
        """Add an outlet, which gets messages from now on."""
        self._outlets.put(outlet, outlet.filters.subject_pattern)
        self._recount()

    def remove_outlet(self, outlet: TopicOutlet) -> None:
        """Remove an outlet, which gets no more messages."""
        self._outlets.remove(outlet)
        self._recount()
        self.space_available()

    def _recount(self) -> None:
        self._bounded = sum(each.is_bounded for each in self._outlets)

    # -- end ---------------------------------------------------------------------------------------

    def delete(self) -> None:
        """End the topic and every subscription to it."""
        for each in tuple(self.durable.values()):
            self.unsubscribe(each)
        self._deleted = True
        self._ended.add(self.tally)
        self._subscriptions.clear()
        self.shared.clear()
        self._outlets.clear()
        self._last.end()

    def stop(self) -> None:
        """Cancel timers; stored messages stay."""
        for each in self.durable.values():
            each.queue.stop()
        for queue, call in self._calls.items():
            queue.stop()
            if call.active():
                call.cancel()
        self._calls.clear()


Taker = TypeVar("Taker")


def _reached(table: SubjectTable[Taker], message: Message) -> Sequence[Taker]:
    """Return the subscriptions that may select a message, by its subject."""
    return table.match(subject_words(message) if table.reads_subjects else ())


__all__ = [
    "SharedBodyBatch",
    "Topic",
    "TopicArrival",
    "TopicCounters",
    "TopicLimits",
    "TopicOutlet",
]
