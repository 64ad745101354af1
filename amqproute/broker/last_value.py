# SPDX-License-Identifier: Apache-2.0
"""Retained messages of a topic, for new subscribers (N-25).

They are in memory. Durable ones are in the store as well, in rows of their own that share the body
with those of the subscriptions: a row is written in the publisher's batch, and deleted, a few
milliseconds later, when a newer message has taken its place. After a crash there can be some more
rows than messages to keep; they are processed in order of arrival, like new messages, so the older
ones are dropped then.

While they are read back after a start, new messages are held until the older ones are there, and
new subscribers get them as soon as they are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from amqproute.broker.entry_list import LOAD_BYTES, LOAD_MESSAGES, is_readable
from amqproute.broker.node_context import NodeContext
from amqproute.broker.node_limits import TopicLimits
from amqproute.broker.shared_body import SharedBodyBatch
from amqproute.broker.topic_state import TopicArrival
from amqproute.errors import DecodeError
from amqproute.interfaces import IStoreTransaction
from amqproute.message import Message
from amqproute.store.model import StoredEntry

MOST_KEYS: Final = 10_000
"""Most values of ``last-value-key``; the one without messages for the longest time is dropped."""
LAST_PREFIX: Final = "amqp$last/"


def last_key(topic: str) -> str:
    """Return the name under which the store keeps the newest messages of a topic."""
    return LAST_PREFIX + topic


class LastValueCache:
    """The newest messages of a topic.

    Args:
        topic: its name.
        context: what the topic shares with the other nodes.

    Attributes:
        limits: the bounds of the topic.
    """

    log = Logger()

    __slots__ = (
        "_begin",
        "_by_key",
        "_bytes",
        "_held",
        "_store",
        "_waiting",
        "is_loading",
        "limits",
        "rows",
    )

    def __init__(self, topic: str, context: NodeContext, limits: TopicLimits) -> None:
        self.rows = last_key(topic)
        self.is_loading = False
        self._store = context.store
        self._begin = context.begin
        self.limits = limits
        self._by_key: OrderedDict[Hashable, deque[TopicArrival]] = OrderedDict()
        self._bytes = 0
        self._held: list[TopicArrival] = []
        self._waiting: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    # -- in ------------------------------------------------------------------------------------

    def store(
        self, arrival: TopicArrival, transaction: IStoreTransaction | SharedBodyBatch
    ) -> None:
        """Write the row of a durable message within its publisher's batch."""
        arrival.stored = True
        transaction.enqueue(
            self.rows,
            arrival.id,
            arrival.message.encoded,
            arrival.arrived_ms,
            arrival.expires_ms,
            0,
            arrival.message.rest,
        )

    def keep(self, arrivals: Sequence[TopicArrival]) -> None:
        """Remember committed messages, and forget older ones."""
        if self.is_loading:
            self._held.extend(arrivals)
            return
        limits = self.limits
        dropped: list[TopicArrival] = []
        for each in arrivals:
            self._keep(each, limits, dropped)
        self._delete(dropped)

    def _keep(
        self, arrival: TopicArrival, limits: TopicLimits, dropped: list[TopicArrival]
    ) -> None:
        key = _value_of(arrival.message, limits.last_value_key)
        line = self._by_key.get(key)
        if line is None:
            line = self._by_key[key] = deque()
        else:
            self._by_key.move_to_end(key)
        line.append(arrival)
        self._bytes += len(arrival.message.encoded)
        while len(line) > limits.last_value:
            self._drop(line, dropped)
        while self._bytes > limits.last_value_bytes or len(self._by_key) > MOST_KEYS:
            oldest = next(iter(self._by_key))
            line = self._by_key[oldest]
            if line:
                self._drop(line, dropped)
            if not line:
                del self._by_key[oldest]

    def _drop(self, line: deque[TopicArrival], dropped: list[TopicArrival]) -> None:
        arrival = line.popleft()
        self._bytes -= len(arrival.message.encoded)
        dropped.append(arrival)

    def _delete(self, dropped: Iterable[TopicArrival]) -> None:
        """Delete the rows of dropped messages."""
        ids = [each.id for each in dropped if each.stored]
        if ids:
            batch = self._begin()
            batch.transaction.dequeue(ids)
            batch.commit(patient=True).addErrback(self._not_written)

    def _not_written(self, failure: Failure) -> None:
        # The memory is right all the same. The next start finds too many rows and drops them; or,
        # after a failed renaming, rows of a topic that does not exist, and logs it.
        self.log.failure("cannot update the retained messages of {rows}", failure, rows=self.rows)

    # -- out -----------------------------------------------------------------------------------

    def since(self, since_ms: int | None, now_ms: int) -> list[TopicArrival]:
        """Return the unexpired messages that arrived then or later, in order of arrival."""
        kept = [
            each
            for line in self._by_key.values()
            for each in line
            if not 0 < each.expires_ms <= now_ms
            and (since_ms is None or each.arrived_ms >= since_ms)
        ]
        kept.sort(key=lambda each: each.id)
        return kept

    def postpone(self, ms: int, now_ms: int) -> None:
        """Shift all times: the wall clock was set ahead."""
        for each in [*self._held, *(each for line in self._by_key.values() for each in line)]:
            each.postpone(ms, now_ms)

    def clear(self) -> None:
        """Forget everything."""
        dropped = [each for line in self._by_key.values() for each in line] + self._held
        self._by_key.clear()
        self._held.clear()
        self._bytes = 0
        self._delete(dropped)

    def end(self) -> None:
        """Forget everything, including rows being read back: the topic is deleted."""
        self.limits = TopicLimits()
        self.clear()

    def rename(self, topic: str) -> None:
        """Keep the rows under the topic's new name."""
        self.when_loaded(lambda: self._rename(topic))

    def _rename(self, topic: str) -> None:
        kept = [each for each in self.since(None, 0) if each.stored]
        self.rows = last_key(topic)
        if kept:
            batch = self._begin()
            for each in kept:
                old_id, each.id = each.id, self._store.next_id()
                batch.transaction.move(old_id, self.rows, each.id)
            batch.commit().addErrback(self._not_written)

    # -- after a start -------------------------------------------------------------------------

    def recover(self) -> None:
        """Read back the messages of an earlier run of the daemon."""
        self.is_loading = True
        self._load(0)

    def when_loaded(self, call: Callable[[], None]) -> None:
        """Call a function as soon as the messages have been read back."""
        if self.is_loading:
            self._waiting.append(call)
        else:
            call()

    def _load(self, after_id: int) -> None:
        page = self._store.load(self.rows, after_id, LOAD_MESSAGES, LOAD_BYTES)
        page.addCallbacks(self._loaded, self._not_loaded)

    def _loaded(self, rows: Sequence[StoredEntry]) -> None:
        if not rows:
            self._ready()
            return
        limits = self.limits
        held = {each.id for each in self._held}
        dropped: list[TopicArrival] = []
        for row in rows:
            if row.id in held:
                continue  # it has arrived since
            if not is_readable(row):
                self.log.error(
                    "entry {entry} of {rows} is not a message: not retained",
                    entry=row.id,
                    rows=self.rows,
                )
                continue
            message = Message(row.encoded, row.rest)
            arrival = TopicArrival(row.id, message, row.arrived_ms, row.expires_ms, None)
            arrival.stored = True
            self._keep(arrival, limits, dropped)
            arrival.message.forget()
        self._delete(dropped)
        self._load(rows[-1].id)

    def _not_loaded(self, failure: Failure) -> None:
        # The rows stay for the next start; new subscribers do without them until then.
        self.log.failure("cannot read the retained messages of {rows}", failure, rows=self.rows)
        self._ready()

    def _ready(self) -> None:
        self.is_loading = False
        held, self._held = self._held, []
        self.keep(held)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


def _value_of(message: Message, key: str | None) -> Hashable:
    """Return the key for the value of a property; None for a message without one."""
    if key is None:
        return None
    try:
        value = message.application_properties.get(key)
        hash(value)
    except (DecodeError, TypeError):
        return None
    if isinstance(value, str | bytes):
        return value
    # The publisher chooses the hash of a number or UUID; that of its text is salted.
    if isinstance(value, int):
        value = int(value)
    return (f"{type(value).__name__} {value!r}",)
