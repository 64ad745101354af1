# SPDX-License-Identifier: Apache-2.0
"""Rows for operators: queues, topics, bindings, aliases, relay queues."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from amqproute.address import host_label, host_of
from amqproute.broker.binding import Binding
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import PREFIX as SUBSCRIPTION_PREFIX
from amqproute.broker.topic import Topic
from amqproute.services.entity_names import EntityNames, EntityTable
from amqproute.services.exchange_entity import argument_text, policy_names, term_facts
from amqproute.services.node_changes import NodeChanges
from amqproute.values import RELAY_PREFIX

__all__ = [
    "AGES_MINUTES",
    "Index",
    "ManagementRows",
    "Row",
    "RowIndex",
    "Rows",
    "no_destination",
    "no_links",
    "octets_on",
    "rows_there",
    "virtual_host_of_queue",
]

AGES_MINUTES: Final = (5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Upper ends of the classes of age of a `shapes` row; the last class has none."""

Row = Mapping[str, object]
Rows = Callable[[], Iterable[Row]]
Index = Sequence[tuple[str, Callable[[str], Row]]]
"""Names of entities, each with the function for its row, which raises `KeyError` without it."""


class RowIndex(Protocol):
    """The names of the entities of a type, from which the rows of a part of them can be made."""

    def __call__(self, host: str | None = None) -> Index:
        """Return the index.

        Args:
            host: the label of a virtual host, to leave out others; None for all.
        """


def no_links(host: str | None = None) -> Index:
    """Return nothing: the broker has no clients."""
    return ()


def rows_there(index: Iterable[tuple[str, Callable[[str], Row]]]) -> Iterator[Row]:
    """Yield the rows of entities that still exist: some may vanish between two turns."""
    for name, make in index:
        try:
            row = make(name)
        except KeyError:
            continue
        yield row


def no_destination(queue: str) -> Row:
    """Return nothing: the broker relays to nobody."""
    return {}


def virtual_host_of_queue(name: str) -> str | None:
    """Return the label of the virtual host of a queue, by its name; None for a relay queue."""
    if name.startswith(RELAY_PREFIX):
        return None
    return host_label(host_of(name.removeprefix(SUBSCRIPTION_PREFIX)))


def octets_on(queue: Queue) -> int:
    """Return the octets of the messages on a queue, wherever they are."""
    return queue.resident_bytes + queue.paged_bytes + queue.filed_bytes


class ManagementRows:
    """Rows of a broker's entities: attribute to value, all encodable; each has ``name``.

    Args:
        broker: the broker.
        inventory: knows the source of a node; None: not shown.
        now_ms: the wall clock, ms since the epoch.
        destination_of: returns the state of the next hop of a relay queue, by the queue's name; an
            attribute that the queue has as well is shown with ``peer-`` before its name.
        links: the links of clients.
    """

    def __init__(
        self,
        broker: Broker,
        inventory: NodeChanges | None,
        now_ms: Callable[[], int],
        destination_of: Callable[[str], Row] = no_destination,
        links: RowIndex = no_links,
    ) -> None:
        self._broker = broker
        self._inventory = inventory
        self._now_ms = now_ms
        self._destination_of = destination_of
        self._links = links

    def queues(self) -> Iterable[Row]:
        """Nodes, topics with their durable subscriptions, and relay queues."""
        return (make(name) for name, make in self.queue_index())

    def queue_index(self, host: str | None = None) -> Index:
        """Return the names of `queues`, in the same order; see `RowIndex`.

        A row costs thirty times as much as its entry here, and a page of many queues has few rows.
        """
        broker = self._broker
        index: list[tuple[str, Callable[[str], Row]]] = [
            (name, self._node_row) for name in broker.nodes.order
        ]
        for name in broker.topics.order:
            index.append((name, self._topic_row_here))
            for _, subscription in sorted(broker.topics[name].durable.items()):
                index.append((subscription.queue.name, self._subscription_row))
        index += [(name, self._relay_row) for name in broker.internal.order]
        return _queues_in(index, host)

    def queue_names(self) -> EntityNames:
        """Return the names of `queues`."""
        broker = self._broker
        return EntityNames(
            EntityTable(lambda: broker.nodes.order, self._node_row),
            EntityTable(lambda: broker.topics.order, self._topic_row_here),
            EntityTable(
                lambda: broker.context.subscriptions.order,
                self._subscription_row,
                SUBSCRIPTION_PREFIX,
            ),
            EntityTable(lambda: broker.internal.order, self._relay_row, has_hosts=False),
        )

    def _node_row(self, name: str) -> Row:
        kind = "dynamic" if name in self._broker.dynamic else "node"
        row = self._queue_row(self._broker.nodes[name], "queue", kind) | self._origin(name)
        row["virtual-host"] = host_label(host_of(name))
        terms = None if self._inventory is None else self._inventory.declared(name)
        if terms is not None:
            row["arguments"] = argument_text(terms.arguments)
            row["auto-delete"] = terms.auto_delete
            if terms.has_priorities:
                row["prioritized"] = True
        return row | policy_names(self._broker.terms_of(name).values())

    def _topic_row_here(self, name: str) -> Row:
        return self._topic_row(self._broker.topics[name]) | self._origin(name)

    def _subscription_row(self, name: str) -> Row:
        row = self._queue_row(self._subscription(name), "queue", "subscription")
        return {**row, "virtual-host": virtual_host_of_queue(name)}

    def _subscription(self, name: str) -> Queue:
        """Return the queue of a durable subscription.

        Raises:
            KeyError: there is none of that name.
        """
        queue = self._broker.context.subscriptions[name]
        assert isinstance(queue, Queue)
        return queue

    def _relay_row(self, name: str) -> Row:
        return self._queue_row(self._broker.internal[name], "queue", "relay")

    def topics(self) -> Iterable[Row]:
        """Topics only."""
        return (self._topic_alone(name) for name in self._broker.topics.order)

    def _topic_alone(self, name: str) -> Row:
        return {**self._topic_row(self._broker.topics[name]), "type": "topic"} | self._origin(name)

    def topic_names(self) -> EntityNames:
        """Return the names of `topics`."""
        return EntityNames(EntityTable(lambda: self._broker.topics.order, self._topic_alone))

    def details(self, name: str) -> dict[str, object]:
        """Return the attributes for a READ of a node in addition to its row."""
        if self._inventory is None:
            return {}
        options = self._inventory.options(name)
        found: dict[str, object] = {"options": options} if options else {}
        terms = self._broker.terms_of(name)
        if terms:
            found["terms"] = {key: term_facts(term) for key, term in sorted(terms.items())}
        return found

    def _origin(self, name: str) -> dict[str, object]:
        return {} if self._inventory is None else self._inventory.origin(name)

    def _topic_row(self, topic: Topic) -> dict[str, object]:
        tally = topic.tally
        return {
            "name": topic.name,
            "type": "queue",
            "kind": "topic",
            "depth": topic.waiting,
            "available": topic.waiting,
            "acquired": 0,
            "deferred": 0,
            "consumers": topic.consumers,
            "resident": topic.waiting + topic.retained,
            "bytes": topic.waiting_bytes,
            "oldest-age-ms": None,
            "enqueued": tally.published,
            "dequeued": tally.delivered,
            "expired": tally.expired,
            "dropped": tally.dropped,
            "unroutable": tally.unroutable,
            "virtual-host": host_label(host_of(topic.name)),
            "subscriptions": len(topic.subscriptions),
            "durable-subscriptions": len(topic.durable),
        }

    def bindings(self) -> Iterable[Row]:
        """Bindings, those of the configuration and those made at runtime."""
        return rows_there(self.binding_index())

    def binding_index(self, host: str | None = None) -> Index:
        """Return the names of `bindings`, in the same order; see `RowIndex`."""
        return [(each.name, partial(self._binding_row, each)) for each in self._bindings_in(host)]

    def _bindings_in(self, host: str | None) -> Iterable[Binding]:
        bindings = self._broker.bindings.values()
        if host is None:
            return bindings
        return [each for each in bindings if host_label(host_of(each.declaration.source)) == host]

    def _binding_row(self, binding: Binding, name: str) -> Row:
        declaration = binding.declaration
        if self._broker.bindings.get(declaration) is not binding:
            raise KeyError(name)  # it is gone meanwhile
        return {
            "name": binding.name,
            "type": "binding",
            "virtual-host": host_label(host_of(declaration.source)),
            "source": declaration.source,
            "target": declaration.target,
            "filter": declaration.selector,
            "subject": declaration.subject,
            "mode": binding.mode,
            "moved": binding.moved,
            "refused": binding.refused,
            "reason": binding.words,
        } | self._origin(binding.name)

    def links(self) -> Iterable[Row]:
        """Bindings, and the links of clients (G-17)."""
        return rows_there(self.link_index())

    def link_index(self, host: str | None = None) -> Index:
        """Return the names of `links`, in the same order; see `RowIndex`."""
        index: list[tuple[str, Callable[[str], Row]]] = [
            (each.name, partial(self._binding_link, each)) for each in self._bindings_in(host)
        ]
        index += self._links(host)
        return index

    def _binding_link(self, binding: Binding, name: str) -> Row:
        return {**self._binding_row(binding, name), "type": "link", "kind": "binding"}

    def client_links(self, name: str, host: str | None = None) -> Iterable[Row]:
        """Return the links of clients with a name; see `RowIndex` for the virtual host."""
        return rows_there([each for each in self._links(host) if each[0] == name])

    def aliases(self) -> Iterable[Row]:
        """Further names of nodes."""
        for name, target in sorted(self._broker.aliases.items()):
            host = host_label(host_of(name))
            row = {"name": name, "type": "alias", "virtual-host": host, "target": target}
            yield row | self._origin(name)

    def relay_queues(self) -> Iterable[Row]:
        """Queues to other domains, with the state of their destination."""
        return map(self._relay_queue_row, self._broker.internal.order)

    def relay_queue_names(self) -> EntityNames:
        """Return the names of `relay_queues`."""
        order = EntityTable(
            lambda: self._broker.internal.order, self._relay_queue_row, has_hosts=False
        )
        return EntityNames(order)

    def _relay_queue_row(self, name: str) -> Row:
        row = self._queue_row(self._broker.internal[name], "relay-queue", "relay")
        for key, value in self._destination_of(name).items():
            if key not in ("queue", "name"):
                row[f"peer-{key}" if key in row else key] = value
        return row

    def shapes(self) -> Iterable[Row]:
        """Ages of waiting messages, by queue: ``ages`` counts by class (`AGES_MINUTES`).

        Entries on disk only are counted separately: they are newer than those in memory, and
        reading them all would cost the daemon more than the answer is worth.
        """
        return (make(name) for name, make in self.shape_index())

    def shape_index(self, host: str | None = None) -> Index:
        """Return the names of `shapes`, in the same order; see `RowIndex`."""
        broker = self._broker
        index: list[tuple[str, Callable[[str], Row]]] = [
            (name, self._node_shape) for name in broker.nodes.order
        ]
        for name in broker.topics.order:
            for _, each in sorted(broker.topics[name].durable.items()):
                index.append((each.queue.name, self._subscription_shape))
        index += [(name, self._relay_shape) for name in broker.internal.order]
        return _queues_in(index, host)

    def shape_names(self) -> EntityNames:
        """Return the names of `shapes`."""
        broker = self._broker
        return EntityNames(
            EntityTable(lambda: broker.nodes.order, self._node_shape),
            EntityTable(
                lambda: broker.context.subscriptions.order,
                self._subscription_shape,
                SUBSCRIPTION_PREFIX,
            ),
            EntityTable(lambda: broker.internal.order, self._relay_shape, has_hosts=False),
        )

    def _node_shape(self, name: str) -> Row:
        return self._shape_row("node", name, self._broker.nodes[name])

    def _subscription_shape(self, name: str) -> Row:
        return self._shape_row("subscription", name, self._subscription(name))

    def _relay_shape(self, name: str) -> Row:
        return self._shape_row("relay", name, self._broker.internal[name])

    def _shape_row(self, kind: str, name: str, queue: Queue) -> Row:
        ages = [0] * (len(AGES_MINUTES) + 1)
        now_ms = self._now_ms()
        arrivals = queue.arrivals_ms()
        for arrived_ms in arrivals:
            ages[bisect_left(AGES_MINUTES, (now_ms - arrived_ms) / 60_000)] += 1
        return {
            "name": name,
            "type": "shape",
            "kind": kind,
            "virtual-host": virtual_host_of_queue(name),
            "total": queue.depth,
            "ages": ages,
            "ages-minutes": list(AGES_MINUTES),
            "on-disk": max(0, queue.available + queue.deferred - len(arrivals)),
            "in-flight": queue.acquired,
        }

    def _queue_row(self, queue: Queue, entity_type: str, kind: str) -> dict[str, object]:
        oldest = queue.oldest_arrival_ms
        tally = queue.tally
        lost = {"stream-lost": tally.stream_lost} if tally.stream_lost else {}
        return {
            "name": queue.name,
            "type": entity_type,
            "kind": kind,
            "depth": queue.depth,
            "available": queue.available,
            "acquired": queue.acquired,
            "deferred": queue.deferred,
            "consumers": queue.consumers,
            "resident": queue.resident,
            "bytes": octets_on(queue),
            "oldest-age-ms": None if oldest is None else max(0, self._now_ms() - oldest),
            "enqueued": tally.enqueued,
            "dequeued": tally.dequeued,
            "released": tally.released,
            "rejected": tally.rejected,
            "expired": tally.expired,
            "dead-lettered": tally.dead_lettered,
            "loaded": tally.loaded,
            **lost,
        }


def _queues_in(index: Index, host: str | None) -> Index:
    """Return the part of an index of queues that is in a virtual host."""
    if host is None:
        return index
    return [each for each in index if virtual_host_of_queue(each[0]) == host]
