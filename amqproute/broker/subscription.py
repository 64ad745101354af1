# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of a topic, volatile and durable (S-04, S-20, S-21).

A `Subscription` lives as long as a link, in memory. A `DurableSubscription` lives until it is
closed, on the disk: its messages wait in a queue of its own, which nobody can address.

For a subscriber an outcome is an acknowledgement and not an instruction (S-04): `accepted` and
`rejected` mean that the message has been seen; after `released` and `modified` it is offered again
on this subscription; `modified` with undeliverable-here means that it has been seen as well.
Outcomes of one subscriber have no effect on the others.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from urllib.parse import quote

from twisted.logger import Logger
from zope.interface import implementer

from amqproute.broker.commit_batch import Batch
from amqproute.broker.node_limits import TopicLimits
from amqproute.broker.queue import Queue
from amqproute.broker.topic_state import TopicArrival, TopicCounters
from amqproute.entry import MOST_COUNTED, Entry
from amqproute.errors import DecodeError
from amqproute.filters.registry import FilterSet
from amqproute.interfaces import IConsumer, ISource
from amqproute.journal.event import SOMEBODY, EntryTaker
from amqproute.message import Message
from amqproute.outcomes import ACCEPTED, Acceptance, Modification, Outcome, Rejection
from amqproute.stored_values import decode_value, encode_value, map_octets
from amqproute.values import is_of_address, principal_of

NOTES: Final = "subscription"
"""Kind of the store's notes with the definitions of durable subscriptions."""
PREFIX: Final = "amqp$sub/"
GLOBAL: Final = "@global"
"""In place of the container of a subscription that every container may share. It cannot be the
quoted form of a container-id."""

UNSETTLED_STATE: Final = 2
"""A terminus-durability (part 3 §3.5.5): unsettled deliveries are kept, too."""
UNKNOWN_OCTETS: Final = 256 * 1024
"""Assumed size of a message before the first one."""
SIZE_MEMORY: Final = 64
"""The size of a large message decays by one part in so many with each batch of smaller ones."""


class TopicHost(Protocol):
    """A topic, for its subscriptions."""

    tally: TopicCounters

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def limits(self) -> TopicLimits:
        """Its bounds and options."""

    def now_ms(self) -> int:
        """Return the wall clock, ms since the epoch."""

    def join(self, subscription: Subscription) -> None:
        """Send a subscription new messages from now on."""

    def leave(self, subscription: Subscription) -> None:
        """Stop sending to a subscription."""

    def unsubscribe(self, subscription: DurableSubscription) -> None:
        """End a durable subscription with its waiting messages."""

    def space_available(self) -> None:
        """Note that a subscription can take messages again."""

    def archive(self, queue: Queue, entries: Sequence[Entry]) -> None:
        """End entries on the queue of a durable subscription that its filters do not want."""


@implementer(ISource)
class Subscription:
    """A subscription that lasts as long as its links: a buffer in memory with a bound.

    The bound is for messages that wait for credit; those held by subscribers are bounded by their
    links. When it is full the oldest message is dropped, and counted; or, with that option, the
    topic takes no more from publishers.

    Args:
        topic: its topic.
        filters: its filters.
        since_ms: retained messages that arrived earlier are not wanted (L-14); None: the
            topic's own choice.
        key: the key of a shared one (S-20); None for one of a single link.

    Attributes:
        delivered: number of entries delivered.
        dropped: number of entries dropped to make room.
    """

    __slots__ = (
        "__weakref__",
        "_again",
        "_buffer",
        "_bytes",
        "_consumers",
        "_dispatching",
        "_returned",
        "_size",
        "_test",
        "delivered",
        "dropped",
        "filters",
        "is_joined",
        "key",
        "since_ms",
        "topic",
    )

    log = Logger()

    def __init__(
        self,
        topic: TopicHost,
        filters: FilterSet,
        since_ms: int | None = None,
        key: tuple[str, ...] | None = None,
    ) -> None:
        self.topic = topic
        self.filters = filters
        self.since_ms = since_ms
        self.key = key
        self.is_joined = False
        self.delivered = 0
        self.dropped = 0
        self._test = filters.matches if filters else None
        self._buffer: deque[Entry] = deque()
        self._returned: list[Entry] = []
        self._bytes = 0
        self._size = 0.0
        self._consumers: deque[IConsumer] = deque()
        self._dispatching = False
        self._again = False

    def __repr__(self) -> str:
        return f"<Subscription to {self.topic.name} waiting={self.waiting} dropped={self.dropped}>"

    @property
    def name(self) -> str:
        """The topic's name: a subscription of this kind has no name."""
        return self.topic.name

    def postpone(self, ms: int, now_ms: int) -> None:
        """Shift all times: the wall clock was set ahead."""
        for entry in self._buffer:
            entry.postpone(ms, now_ms)

    @property
    def waiting(self) -> int:
        """Messages that wait for credit."""
        return len(self._buffer) + len(self._returned)

    @property
    def waiting_bytes(self) -> int:
        """Octets of these."""
        return self._bytes

    @property
    def consumers(self) -> int:
        """Links attached."""
        return len(self._consumers)

    def space(self) -> int:
        """Return the number of messages that still fit into the buffer, by earlier sizes.

        The largest recent one counts, at the beginning `UNKNOWN_OCTETS`.
        """
        limits = self.topic.limits
        left = limits.buffer_bytes - self._bytes
        if left <= 0:
            return 0
        fitting = max(1, int(left / (self._size or UNKNOWN_OCTETS)))
        return max(0, min(fitting, limits.buffer_messages - self.waiting))

    def selects(self, message: Message, origin: str | None) -> bool:
        """Tell whether a message is wanted."""
        return self._test is None or self._test(message, origin)

    # -- ISource ---------------------------------------------------------------------------------

    def attach(
        self,
        consumer: IConsumer,
        selects: Callable[[Entry], bool] | None = None,
        copies: bool = False,
    ) -> None:
        """Add a link; the first one begins the subscription. What it wants is in `filters`."""
        self._consumers.append(consumer)
        if not self.is_joined:
            self.is_joined = True
            self.topic.join(self)

    def detach(self, consumer: IConsumer) -> None:
        """Remove a link; the last one ends the subscription."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)
        if not self._consumers and self.is_joined:
            self.is_joined = False
            self._buffer.clear()
            self._returned.clear()
            self._bytes = 0
            self.topic.leave(self)

    def arrived(self, arrivals: Sequence[TopicArrival]) -> None:
        """Buffer the selected ones of these."""
        test = self._test
        buffer = self._buffer
        size = largest = 0
        for each in arrivals:
            message = each.message
            if test is None or test(message, each.origin):
                buffer.append(
                    Entry(
                        each.id,
                        message,
                        False,
                        False,
                        each.arrived_ms,
                        each.expires_ms,
                        message.delivery_count,
                    )
                )
                octets = len(message.encoded)
                size += octets
                if octets > largest:
                    largest = octets
        self._bytes += size
        if size:
            self._size = max(largest, self._size - (self._size - largest) / SIZE_MEMORY)
            self.dispatch()
            limits = self.topic.limits
            if self.waiting > limits.buffer_messages or self._bytes > limits.buffer_bytes:
                self._make_room()

    def _make_room(self) -> None:
        limits = self.topic.limits
        if limits.holds_publishers:
            return
        if not self.dropped:
            self.log.warn(
                "a subscriber of topic {topic} is too slow: its oldest messages are dropped, at "
                "most {messages} messages and {bytes} octets wait for it",
                topic=self.topic.name,
                messages=limits.buffer_messages,
                bytes=limits.buffer_bytes,
            )
        while self.waiting and (
            self.waiting > limits.buffer_messages or self._bytes > limits.buffer_bytes
        ):
            entry = self._returned.pop(0) if self._returned else self._buffer.popleft()
            self._bytes -= len(entry.message.encoded)
            self.dropped += 1
            self.topic.tally.dropped += 1

    def dispatch(self) -> None:
        """Deliver waiting messages to links with credit."""
        if self._dispatching:
            self._again = True
            return
        self._dispatching = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._dispatch_once()
        finally:
            self._dispatching = False

    def _dispatch_once(self) -> None:
        for consumer in tuple(self._consumers):
            room = consumer.capacity()
            if room <= 0:
                continue
            if len(self._consumers) > 1:
                # Shared: no link gets all of them while the others have credit, too.
                room = min(room, 1 + self.waiting // len(self._consumers))
            entries = self._take(room)
            if entries:
                self.delivered += len(entries)
                self.topic.tally.delivered += len(entries)
                try:
                    consumer.deliver(entries)
                except Exception:  # a fault of this program; the others still get theirs
                    self.log.failure(
                        "topic {topic}: delivering messages to {consumer} failed",
                        topic=self.topic.name,
                        consumer=consumer,
                    )
                self._again = self._again or len(self._consumers) > 1
        if len(self._consumers) > 1:
            self._consumers.rotate(-1)
        if not self.waiting:
            for consumer in tuple(self._consumers):
                if consumer.capacity() > 0:
                    consumer.exhausted()
        self.topic.space_available()

    def _take(self, room: int) -> list[Entry]:
        returned, buffer = self._returned, self._buffer
        now_ms = self.topic.now_ms()
        taken: list[Entry] = []
        while len(taken) < room and (returned or buffer):
            entry = returned.pop(0) if returned else buffer.popleft()
            self._bytes -= len(entry.message.encoded)
            if 0 < entry.expires_ms <= now_ms:
                self.topic.tally.expired += 1
            else:
                taken.append(entry)
        return taken

    def settle(
        self,
        entries: Sequence[Entry],
        outcome: Outcome,
        batch: Batch | None,
        consumer: object = None,
    ) -> None:
        """Act on an acknowledgement; nothing of it touches the store (S-04)."""
        if not self.is_joined or is_seen(outcome):
            return
        failed = type(outcome) is Modification and outcome.delivery_failed
        annotations = outcome.annotations if type(outcome) is Modification else None
        for entry in entries:
            entry.attempted = True
            if failed:
                entry.delivery_count = min(entry.delivery_count + 1, MOST_COUNTED)
            if annotations:
                entry.message = entry.message.with_annotations(annotations)
            insort(self._returned, entry)
            self._bytes += len(entry.message.encoded)
        self._make_room_if_full()
        self.dispatch()

    def retake(self, entries: Sequence[Entry]) -> None:
        """Do nothing: settled messages have not been in the store."""

    def _make_room_if_full(self) -> None:
        limits = self.topic.limits
        if self.waiting > limits.buffer_messages or self._bytes > limits.buffer_bytes:
            self._make_room()


def is_seen(outcome: Outcome) -> bool:
    """Return whether a subscriber has finished with a message (S-04)."""
    if isinstance(outcome, Modification):
        return bool(outcome.undeliverable_here)
    return isinstance(outcome, Acceptance | Rejection)


def node_of(source: object) -> object:
    """Return the node of a link's source or target: the topic of a subscription, or the node."""
    return source.topic if isinstance(source, Subscription | DurableSubscription) else source


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of a durable subscription, as stored.

    Attributes:
        topic: the topic's name.
        container: the container-id, or `GLOBAL`.
        name: the link's name; of a shared one the part before ``|``.
        owner: its creator, by `amqproute.values.owner_of`; only links of this owner may use it.
        creator: the container-id of its creator, for no-local.
        is_shared: several links may take from it.
        durable: requested terminus-durability.
        since_ms: first-message-date in force, or None (L-14).
        filter: the filter set as received.
        is_changed: the filter was changed: waiting messages are checked again.
    """

    topic: str
    container: str
    name: str
    owner: str
    creator: str
    is_shared: bool = False
    durable: int = UNSETTLED_STATE
    since_ms: int | None = None
    filter: Mapping[str, object] | None = None
    is_changed: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        """Its key among all topics: see `subscription_key`."""
        return subscription_key(self.container, self.name, self.owner)

    @property
    def queue_name(self) -> str:
        """The name of its queue."""
        container, name, *address = self.key
        parts = [quote(part, safe="") for part in (name, *address)]
        container = container if container == GLOBAL else quote(container, safe="")
        return "/".join((f"{PREFIX}{self.topic}", container, *parts))

    def is_of(self, owner: str) -> bool:
        """Return whether it belongs to an owner."""
        return self.owner in (owner, principal_of(owner))

    def encode(self) -> bytes:
        """Return it as the octets of an AMQP map."""
        return encode_value(
            {
                "topic": self.topic,
                "container": self.container,
                "name": self.name,
                "owner": self.owner,
                "creator": self.creator,
                "shared": self.is_shared,
                "durable": self.durable,
                "since": self.since_ms,
                "filter": dict(self.filter) if self.filter else None,
                "changed": self.is_changed,
            }
        )

    @classmethod
    def decode(cls, encoded: bytes) -> Definition:
        """Read it back.

        Raises:
            DecodeError: these are not the octets of a definition.
        """
        value = decode_value(encoded)
        if not isinstance(value, dict):
            raise DecodeError("the definition of a subscription is not a map")
        try:
            return cls(
                value["topic"],
                value["container"],
                value["name"],
                value["owner"],
                value["creator"],
                value["shared"],
                int(value["durable"]),
                None if value["since"] is None else int(value["since"]),
                value["filter"],
                value["changed"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DecodeError(f"the definition of a subscription lacks {error}") from None

    def with_filter(self, other: Definition) -> Definition:
        """Return it with the filter, and the terms of the link, of another attach (L-48)."""
        changed = self.is_changed or not same_filter(self.filter, other.filter)
        return replace(self, filter=other.filter, durable=other.durable, is_changed=changed)


def subscription_key(container: str, name: str, owner: str) -> tuple[str, ...]:
    """Return the key of a durable subscription among all topics.

    That is container and name, and the address of an anonymous owner.
    """
    return (container, name, owner) if is_of_address(owner) else (container, name)


def same_filter(one: Mapping[str, object] | None, other: Mapping[str, object] | None) -> bool:
    """Return whether two filter sets are equal, octet for octet."""
    return map_octets(one) == map_octets(other)


@implementer(ISource)
class DurableSubscription:
    """A subscription with a queue of its own, which outlives links and restarts (S-20, Q-36).

    Args:
        topic: its topic.
        definition: the definition as in the store.
        filters: the definition's, compiled.
        queue: the queue of its messages.
    """

    __slots__ = ("__weakref__", "_links", "definition", "filters", "queue", "topic")

    def __init__(
        self, topic: TopicHost, definition: Definition, filters: FilterSet, queue: Queue
    ) -> None:
        self.topic = topic
        self.definition = definition
        self.filters = filters
        self.queue = queue
        self._links: dict[object, IConsumer] = {}

    def __repr__(self) -> str:
        return f"<DurableSubscription {self.queue.name} depth={self.queue.depth}>"

    @property
    def name(self) -> str:
        """The name of its queue."""
        return self.queue.name

    @property
    def consumers(self) -> int:
        """Links attached."""
        return len(self._links)

    def change(self, definition: Definition, filters: FilterSet) -> None:
        """Change the filter."""
        self.definition = definition
        self.filters = filters

    # -- outlet of the topic -----------------------------------------------------------------------

    @property
    def is_bounded(self) -> bool:
        """Whether it can be full."""
        return bool(self.queue.limits.capacity)

    def target(self) -> Queue:
        """Target of its messages."""
        return self.queue

    def selects(self, message: Message, origin: str | None) -> bool:
        """Tell whether a message is wanted."""
        filters = self.filters
        return not filters or filters.matches(message, origin)

    # -- ISource -----------------------------------------------------------------------------------

    def attach(
        self,
        consumer: IConsumer,
        selects: Callable[[Entry], bool] | None = None,
        copies: bool = False,
    ) -> None:
        """Add a link. What it wants is in `filters`."""
        taker: IConsumer = consumer
        if self.definition.is_changed and self.filters:
            taker = _Sieve(self, consumer)
        self._links[consumer] = taker
        self.queue.attach(taker)

    def detach(self, consumer: IConsumer) -> None:
        """Remove a link; the subscription stays."""
        taker = self._links.pop(consumer, None)
        if taker is not None:
            self.queue.detach(taker)

    def dispatch(self) -> None:
        """See `ISource.dispatch`."""
        self.queue.dispatch()

    def settle(
        self, entries: Sequence[Entry], outcome: Outcome, batch: Batch, consumer: object = None
    ) -> None:
        """Act on an acknowledgement (S-04): seen, or offered again here."""
        shared = self.definition.is_shared and type(outcome) is Modification
        if not shared and is_seen(outcome):
            outcome = ACCEPTED
        self.queue.settle(entries, outcome, batch, self._links.get(consumer, consumer))

    def retake(self, entries: Sequence[Entry]) -> None:
        """See `ISource.retake`."""
        self.queue.retake(entries)


@implementer(IConsumer)
class _Sieve:
    """Applies a changed filter to waiting messages, and drops those not selected."""

    takes_ahead = False

    def __init__(self, subscription: DurableSubscription, consumer: IConsumer) -> None:
        self._subscription = subscription
        self._consumer = consumer

    @property
    def taker(self) -> EntryTaker:
        """The consumer, for the journal."""
        return getattr(self._consumer, "taker", SOMEBODY)

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        room: int = self._consumer.capacity()
        return room

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        subscription = self._subscription
        wanted = [each for each in entries if subscription.selects(each.message, each.origin)]
        if len(wanted) < len(entries):
            kept = set(map(id, wanted))
            seen = [each for each in entries if id(each) not in kept]
            subscription.topic.archive(subscription.queue, seen)
        if wanted:
            self._consumer.deliver(wanted)

    def holds(self) -> Iterable[Entry]:
        """See `IConsumer.holds`."""
        held: Iterable[Entry] = self._consumer.holds()
        return held

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`."""
        self._consumer.exhausted()
