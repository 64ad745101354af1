# SPDX-License-Identifier: Apache-2.0
"""Fakes with behavior: a store that outlives its broker and may fail, consumers, messages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from twisted.internet.task import Clock
from zope.interface import implementer

from amqproute.broker.binding import BindingDeclaration
from amqproute.broker.broker import Broker
from amqproute.broker.exchanges.topology_record import (
    BINDING_NOTES,
    ENDING_NOTES,
    EXCHANGE_NOTES,
)
from amqproute.broker.node_declaration import NodeDeclaration, TopicDeclaration
from amqproute.broker.node_limits import MemoryBudget, QueueLimits, TopicLimits
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import NOTES
from amqproute.entry import Entry
from amqproute.errors import StoreError, StoreIntakeClosed, StoreUnavailable
from amqproute.interfaces import IConsumer
from amqproute.message import Message
from amqproute.store.memory import MemoryStore
from amqproute.store.model import TRANSIENT, QueueSummary, StoreRecovery
from amqproute.store.pending_commit import PendingCommit
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Symbol, UInt
from tests.support.audit import Audit

EPOCH_MS = 1_700_000_000_000
"""The wall clock at 0 of a `task.Clock`."""
ORIGIN = Origin(ANONYMOUS_PRINCIPAL)


class Turns(Clock):
    """A clock that, like a reactor, leaves calls added in a turn to the next one."""

    def turn(self, seconds: float = 0.0) -> None:
        """Make the calls due after this time, but none that they add."""
        self.rightNow += seconds
        due = [call for call in self.calls if call.getTime() <= self.seconds()]
        self.calls = [call for call in self.calls if call not in due]
        for call in due:
            call.called = 1
            call.func(*call.args, **call.kw)


def wall(clock: Clock) -> Any:
    """Return a wall clock that follows a `task.Clock`."""
    return lambda: EPOCH_MS + round(clock.seconds() * 1000)


class KeptStore(MemoryStore):
    """A `MemoryStore` that a second broker can reuse, and that fails on request.

    Attributes:
        is_failing: every commit fails while it is True.
        is_full: every commit with new entries fails while it is True.
        is_damaged: likewise, and for good.
        notes: kind to key to value.
        received: stream to ids.
        audit: checks each commit; None without a broker.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.is_failing = False
        self.is_full = False
        self.is_damaged = False
        self.notes: dict[str, dict[str, bytes]] = {}
        self.received: dict[str, set[int]] = {}
        self.audit: Audit | None = None
        self.open()

    def _apply(self, transaction: PendingCommit) -> None:
        if self.is_failing:
            raise StoreError("the disk is full")
        if self.is_full and transaction.begins():
            raise StoreUnavailable("no room")
        if self.is_damaged and transaction.begins():
            raise StoreIntakeClosed("the database is damaged")
        if self.audit is not None:
            self.audit.committed(transaction, {value: key for key, value in self._numbers.items()})
        super()._apply(transaction)
        for facts in transaction.facts:
            for stream, below in facts.forgets.items():
                kept = self.received.get(stream, set())
                self.received[stream] = {one for one in kept if one >= below}
            for stream in facts.forgotten:
                self.received.pop(stream, None)
            for stream, ids in facts.marks.items():
                self.received.setdefault(stream, set()).update(ids)
            for (kind, key), value in facts.notes.items():
                if value is None:
                    self.notes.get(kind, {}).pop(key, None)
                else:
                    self.notes.setdefault(kind, {})[key] = value

    def rows(self, queue: str) -> list[Any]:
        """Return the stored rows of a queue, in order."""
        kept = self._queues.get(self._numbers.get(queue, 0))
        return [] if kept is None else [kept.entries[key] for key in sorted(kept.entries)]

    def recovery(self) -> StoreRecovery:
        """Return the result of opening the store after a crash: transient rows are dropped."""
        queues = {}
        for name in list(self._numbers):
            for row in self.rows(name):
                if row.flags & TRANSIENT:
                    self._where.pop(row.id).remove(row.id)
            left = self.rows(name)
            if left:
                size = sum(len(row.encoded) for row in left)
                queues[name] = QueueSummary(
                    len(left), size, left[0].id, left[-1].id, left[0].arrived_ms
                )
        received = {stream: sorted(ids) for stream, ids in self.received.items() if ids}
        notes = {kind: dict(each) for kind, each in self.notes.items()}
        return StoreRecovery(queues, received=received, notes=notes)


def make_broker(
    clock: Clock,
    store: Any,
    *nodes: NodeDeclaration | TopicDeclaration,
    budget: MemoryBudget | None = None,
    bindings: Sequence[BindingDeclaration] = (),
) -> Broker:
    """Return a broker with nodes, over a store that may have contents."""
    numbers = count(1)
    audit = store.audit = Audit(wall(clock))
    broker = Broker(
        store,
        clock,
        wall(clock),
        lambda: f"dynamic-{next(numbers)}",
        budget=budget,
        journal=audit,
    )
    recovery = store.recovery()
    broker.recovered_nodes.recovered(recovery.queues, recovery.notes.get(NOTES, {}))
    broker.topology.recovered(
        *(recovery.notes.get(kind, {}) for kind in (EXCHANGE_NOTES, BINDING_NOTES, ENDING_NOTES))
    )
    broker.declare(nodes, {}, bindings)
    broker.topology.go_on()
    return broker


def node(name: str, dead_letter: str | None = None, **limits: int) -> NodeDeclaration:
    """Declare a node."""
    return NodeDeclaration(name, QueueLimits(**limits), dead_letter)


def topic(name: str, **limits: Any) -> TopicDeclaration:
    """Declare a topic."""
    return TopicDeclaration(name, TopicLimits(**limits))


def message(
    body: bytes = b"x",
    *,
    durable: bool = True,
    ttl: int | None = None,
    count: int = 0,
    to: str | None = None,
    expiry: Any = None,
    annotations: dict[str, Any] | None = None,
    application: dict[str, Any] | None = None,
    footer: dict[str, Any] | None = None,
    priority: int = 4,
) -> Message:
    """Return a message with the sections for the arguments."""
    parts = []
    if durable or ttl is not None or count or priority != 4:
        header = spec.Header(
            durable=durable,
            priority=priority,
            ttl=None if ttl is None else UInt(ttl),
            delivery_count=count,
        )
        parts.append(sections.encode_header(header))
    if annotations:
        symbols = {Symbol(key): value for key, value in annotations.items()}
        parts.append(sections.encode_section(spec.SECTION_MESSAGE_ANNOTATIONS, symbols))
    if to is not None or expiry is not None:
        parts.append(codec.encode(spec.Properties(to=to, absolute_expiry_time=expiry)))
    if application:
        parts.append(sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, application))
    parts.append(sections.encode_section(spec.SECTION_DATA, body))
    if footer:
        symbols = {Symbol(key): value for key, value in footer.items()}
        parts.append(sections.encode_section(spec.SECTION_FOOTER, symbols))
    return Message(b"".join(parts))


def body_of(entry: Entry) -> bytes:
    """Return the body of an entry made by `message`."""
    return bytes(entry.message.body_values()[0])


@implementer(IConsumer)
class Taker:
    """A consumer with a capacity set by its test.

    Attributes:
        room: the value of `capacity`; used up by deliveries.
        held: entries it holds.
        seen: bodies of all entries delivered to it.
        exhaustions: number of `exhausted` calls.
    """

    takes_ahead = True

    def __init__(
        self, queue: Queue, room: int = 0, *, selects: Any = None, copies: bool = False
    ) -> None:
        self.queue = queue
        self.room = room
        self.held: list[Entry] = []
        self.seen: list[bytes] = []
        self.exhaustions = 0
        queue.attach(self, selects, copies)

    def capacity(self) -> int:
        """See `IConsumer.capacity`."""
        return self.room

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        if len(entries) > self.room:
            raise AssertionError(f"{len(entries)} entries for {self.room}")
        self.room -= len(entries)
        for entry in entries:
            self.seen.append(body_of(entry))
            entry.message.forget()
        self.held.extend(entries)

    def holds(self) -> list[Entry]:
        """See `IConsumer.holds`."""
        return list(self.held)

    def exhausted(self) -> None:
        """See `IConsumer.exhausted`."""
        self.exhaustions += 1

    def take(self, room: int) -> None:
        """Add capacity."""
        self.room += room
        self.queue.dispatch()

    def settle(self, broker: Broker, entries: Sequence[Entry], outcome: Any) -> Any:
        """Settle entries with an outcome, in a batch of their own."""
        for entry in entries:
            self.held.remove(entry)
        batch = broker.begin()
        self.queue.settle(entries, outcome, batch, self)
        return batch.commit()


def put(
    broker: Broker, queue: Any, *messages: Message, origin: Origin = ORIGIN, ahead: bool = False
) -> Any:
    """Put messages on a node in one batch; return the Deferred of its commit."""
    batch = broker.begin()
    batch.goes_ahead = ahead
    for each in messages:
        queue.put(each, batch, origin)
    return batch.commit()


def settle_down(clock: Clock, turns: int = 50) -> None:
    """Run everything due at this instant."""
    for _ in range(turns):
        clock.advance(0)
