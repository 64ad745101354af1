# SPDX-License-Identifier: Apache-2.0
"""Plans shared by alike publishes: their queues, and the first octets of their messages.

Most clients publish with few keys and equal properties, so the sections before the body are made
once. What may change at any time is still looked at with each message: the sender's rights, and
whether the queues exist. Only within one run of publishes nothing changes (`PublishPlan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from amqproute.broker.exchanges.exchange_graph import RoutingOutcome
from amqproute.broker.exchanges.topology import Topology
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.translation.content_message import data_beginning
from amqproute.wire.amqp09.contents import Publish

__all__ = ["KnownRoutes", "MessagePattern", "PublishPlan"]

MOST_ROUTES: Final = 4096
"""Publishes whose routes are remembered, for all connections."""
LONGEST_PROPERTIES: Final = 192
"""Octets of properties beyond which a route is not remembered: all take a few mebibytes."""


class MessagePattern:
    """Messages that differ in their bodies alone, each one data section.

    Args:
        first: one of them.
        size: octets of its body.
    """

    __slots__ = ("_before", "_head", "_size", "_twin")

    def __init__(self, first: Message, size: int) -> None:
        self._size = size
        self._before = before = first.encoded[: len(first.encoded) - size]
        self._head = before[: first.offsets.body_start]
        self._twin = first.twin(before)  # without the body, which nobody needs

    def message(self, body: bytes) -> Message:
        """Return the message with a body."""
        size = len(body)
        if size == self._size:
            return self._twin.twin(self._before + body)
        return Message(b"".join((self._head, data_beginning(size), body)))

    def messages(self, bodies: Iterable[bytes]) -> list[Message]:
        """Return messages with these bodies."""
        size, before, twin = self._size, self._before, self._twin.twin
        return [twin(before + body) if len(body) == size else self.message(body) for body in bodies]


class PublishPlan:
    """The way of publishes with one method and equal properties, for one run of publishes.

    Attributes:
        targets: queues, or one way to another organization.
        pattern: their messages, as they are admitted.
        takes_many: the one target may take several of them in one go.
    """

    __slots__ = ("pattern", "takes_many", "targets")

    def __init__(self, targets: Sequence[ITarget], pattern: MessagePattern) -> None:
        self.targets = targets
        self.pattern = pattern
        self.takes_many = len(targets) == 1


class KnownRoute:
    """Destination of publishes to an exchange with one key and equal properties.

    Attributes:
        edition: the edition of the exchanges at that time.
        outcome: the queues.
        pattern: the messages, before they are admitted.
    """

    __slots__ = ("edition", "outcome", "pattern")

    def __init__(self, edition: object, outcome: RoutingOutcome, pattern: MessagePattern) -> None:
        self.edition = edition
        self.outcome = outcome
        self.pattern = pattern


class KnownRoutes:
    """Routes through exchanges that were decided before and have not changed since."""

    __slots__ = ("_routes",)

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str, str, bytes, bool], KnownRoute] = {}

    def __repr__(self) -> str:
        return f"<KnownRoutes {len(self._routes)}>"

    def find(self, topology: Topology, publish: Publish, is_0_9: bool) -> KnownRoute | None:
        """Return the route of a publish; None if it has to be decided."""
        method = publish.method
        route = self._routes.get(
            (topology.host, method.exchange, method.routing_key, publish.property_octets, is_0_9)
        )
        if route is None or route.edition is not topology.graph.edition or method.immediate:
            return None
        return route

    def add(
        self,
        topology: Topology,
        publish: Publish,
        is_0_9: bool,
        outcome: RoutingOutcome,
        pattern: MessagePattern,
    ) -> None:
        """Remember a route that has just been decided."""
        method, octets = publish.method, publish.property_octets
        if len(octets) > LONGEST_PROPERTIES:
            return
        if len(self._routes) >= MOST_ROUTES:
            self._routes.clear()
        key = (topology.host, method.exchange, method.routing_key, octets, is_0_9)
        self._routes[key] = KnownRoute(topology.graph.edition, outcome, pattern)
