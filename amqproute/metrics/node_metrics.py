# SPDX-License-Identifier: Apache-2.0
"""Sources of metrics: nodes, topics, exchanges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain
from typing import Final

from amqproute.address import host_label, split_host
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.broker.queue_counters import QueueCounters
from amqproute.broker.topic import Topic
from amqproute.metrics.families import OTHER
from amqproute.metrics.snapshot import MetricsScope, MetricsSnapshot

__all__ = ["NodeMetrics", "ValueTable", "age_seconds"]

_GAUGES: Final = (
    "messages",
    "acquired_messages",
    "deferred_messages",
    "messages_bytes",
    "oldest_message_age_seconds",
    "consumers",
    "full",
)
_OLDEST: Final = (_GAUGES.index("oldest_message_age_seconds"),)
_COUNTERS: Final = (
    "enqueued",
    "dequeued",
    "released",
    "rejected",
    "expired",
    "dead_lettered",
    "purged",
    "duplicate",
    "unreachable",
    "stream_lost",
    "damaged",
)
_FAMILIES: Final = (
    *(f"amqproute_node_{name}" for name in _GAUGES),
    *(f"amqproute_node_{name}_messages" for name in _COUNTERS),
)
_TOPIC_FAMILIES: Final = (
    "amqproute_topic_subscriptions",
    *(
        f"amqproute_topic_{name}_messages"
        for name in ("published", "delivered", "dropped", "expired", "unroutable")
    ),
)
FOLDED_ROWS: Final = 500
"""Rows that are added up at a time: half a millisecond."""
OTHERS: Final = (OTHER, OTHER)
"""The labels of nodes that are not named."""


def age_seconds(arrived_ms: int | None, now_ms: int) -> float:
    """Return the age of a message; 0 without one."""
    return 0.0 if arrived_ms is None else max(0, now_ms - arrived_ms) / 1000


class ValueTable:
    """Rows of values of some families, and the sum of those that are not named.

    Args:
        snapshot: receives the values.
        families: the families of the columns, in order.
        largest: the columns whose values are not added up: the largest counts.

    Attributes:
        is_wanted: whether a column is wanted at all.
    """

    def __init__(
        self,
        snapshot: MetricsSnapshot,
        families: Sequence[str],
        largest: Collection[int] = (),
    ) -> None:
        self.is_wanted = snapshot.scope.wants(families)
        self._table = snapshot.table(families)
        self._largest = largest
        self._rows: list[Sequence[float]] = []

    def name(self, labels: tuple[str, ...], row: Sequence[float]) -> None:
        """Add a row with its own labels."""
        self._table.add(labels, row)

    def sum_up(self, row: Sequence[float]) -> None:
        """Add a row to the sum."""
        self._rows.append(row)
        if len(self._rows) >= FOLDED_ROWS:
            self._fold()

    def _fold(self) -> None:
        """Replace rows by their sum: column by column, much faster than row by row."""
        largest = self._largest
        self._rows = [
            tuple(
                max(column) if place in largest else sum(column)
                for place, column in enumerate(zip(*self._rows, strict=True))
            )
        ]

    def end(self, labels: tuple[str, ...]) -> None:
        """Add the sum, if there is one."""
        if self._rows:
            self._fold()
            self.name(labels, self._rows[0])


def _counters(tally: QueueCounters) -> tuple[int, ...]:
    return (
        tally.enqueued,
        tally.dequeued,
        tally.released,
        tally.rejected,
        tally.expired,
        tally.dead_lettered,
        tally.purged,
        tally.duplicates,
        tally.unreachable,
        tally.stream_lost,
        tally.damaged,
    )


class NodeMetrics:
    """The nodes of a broker.

    Args:
        broker: the broker.
        now_ms: the wall clock.
        named: returns the names of the nodes that ``/metrics`` names.
        hosts: returns the virtual hosts that are named.
    """

    def __init__(
        self,
        broker: Broker,
        now_ms: Callable[[], int],
        named: Callable[[], Collection[str]],
        hosts: Callable[[], Collection[str]],
    ) -> None:
        self._broker = broker
        self._now_ms = now_ms
        self._named = named
        self._hosts = hosts

    def nodes(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add queues and durable subscriptions."""
        broker, scope = self._broker, snapshot.scope
        table = ValueTable(snapshot, _FAMILIES, _OLDEST)
        if not table.is_wanted:
            return
        named = frozenset(self._named())
        queues = chain(
            list(broker.nodes.items()),
            [
                (each.queue.name, each.queue)
                for topic in tuple(broker.topics.values())
                for each in topic.durable.values()
            ],
        )
        now_ms = self._now_ms()
        for name, queue in queues:
            host, local = split_host(name)
            if scope.nodes and local not in scope.nodes:
                continue
            row = _queue_row(queue, now_ms)
            if scope.is_detailed or name in named:
                table.name((host_label(host), local), row)
            else:
                table.sum_up(row)
            yield
        if not scope.is_detailed:
            table.sum_up((*[0] * len(_GAUGES), *_counters(broker.context.ended)))
        table.end(OTHERS)

    def topics(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add topics."""
        broker, scope = self._broker, snapshot.scope
        table = ValueTable(snapshot, _TOPIC_FAMILIES)
        if not table.is_wanted:
            return
        named = frozenset(self._named())
        for name, topic in list(broker.topics.items()):
            host, local = split_host(name)
            if scope.nodes and local not in scope.nodes:
                continue
            if scope.is_detailed or name in named:
                table.name((host_label(host), local), _topic_row(topic))
            else:
                table.sum_up(_topic_row(topic))
            yield
        if not scope.is_detailed:
            ended = broker.context.ended_topics
            counters = ended.published, ended.delivered, ended.dropped, ended.expired
            table.sum_up((0, *counters, ended.unroutable))
        table.end(OTHERS)

    def hosts(self, snapshot: MetricsSnapshot) -> Iterator[None]:
        """Add the numbers of nodes, exchanges and bindings of each virtual host."""
        if not _is_general(snapshot.scope):
            return
        broker = self._broker
        named = frozenset(self._hosts())
        names = broker.host_names()
        snapshot.add("amqproute_virtual_hosts", len(names))
        queues = dict.fromkeys(names, 0)
        topics = dict.fromkeys(names, 0)
        for name in list(broker.nodes):
            host = split_host(name)[0]
            queues[host] = queues.get(host, 0) + 1
            yield
        for name in list(broker.topics):
            host = split_host(name)[0]
            topics[host] = topics.get(host, 0) + 1
        families = ("nodes", "topics", "exchanges", "bindings")
        table = ValueTable(snapshot, [f"amqproute_{name}" for name in families])
        for host in queues.keys() | topics.keys():
            topology = broker.topologies.get(host)
            exchanges = bindings = 0
            if topology is not None:
                exchanges = topology.graph.exchange_count
                bindings = topology.graph.binding_count
            row = (queues.get(host, 0), topics.get(host, 0), exchanges, bindings)
            if not host or host in named:
                table.name((host_label(host),), row)
            else:
                table.sum_up(row)
            yield
        table.end((OTHER,))


_EMPTY: Final = (0, 0, 0, 0, 0.0)
"""Values of an empty queue: most of many queues are empty."""


def _is_general(scope: MetricsScope) -> bool:
    """Tell whether more is wanted than single nodes or peers."""
    return not (scope.nodes or scope.peers)


def _queue_row(queue: Queue, now_ms: int) -> tuple[float, ...]:
    depth = queue.depth
    held: tuple[float, ...] = _EMPTY
    if depth:
        held = (
            depth,
            queue.acquired,
            queue.deferred,
            queue.resident_bytes + queue.paged_bytes + queue.filed_bytes,
            age_seconds(queue.oldest_arrival_ms, now_ms),
        )
    return (*held, queue.consumers, queue.state.is_full, *_counters(queue.tally))


def _topic_row(topic: Topic) -> tuple[float, ...]:
    tally = topic.tally
    return (
        len(topic.subscriptions) + len(topic.durable),
        tally.published,
        tally.delivered,
        tally.dropped,
        tally.expired,
        tally.unroutable,
    )
