# SPDX-License-Identifier: Apache-2.0
"""Dead-lettering to an exchange (x-dead-letter-exchange), with ``x-death``.

What goes where is decided as for any publish. A queue that a message would come round to without
anybody having had it does not get it again (`is_dead_letter_circle`), an exchange that is not there
gets nothing, and the log says so. Addresses of other organizations never get dead letters: a key
may stand in an annotation that anybody can write, and nobody asks for the right to publish here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from zope.interface import implementer

from amqproute.address import exchange_node, in_host, local_name
from amqproute.broker.commit_batch import Batch
from amqproute.broker.exchanges.topology import Topology
from amqproute.broker.exchanges.topology_fault import TopologyFault
from amqproute.broker.queue_view import QueueView
from amqproute.entry import Entry
from amqproute.errors import NotFound
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.translation.dead_letters import (
    DeadLetterTarget,
    DeathEvent,
    DeathReason,
    dead_letter_keys,
    death_annotations,
    is_dead_letter_circle,
)
from amqproute.translation.message_content import routing_headers
from amqproute.translation.message_parts import CARBON_COPY, EXCHANGE, ROUTING_KEY
from amqproute.values import DeadLetterReason, Origin

REASONS: Final[Mapping[DeadLetterReason, DeathReason]] = {
    DeadLetterReason.REJECTED: DeathReason.REJECTED,
    DeadLetterReason.EXPIRED: DeathReason.EXPIRED,
    DeadLetterReason.MAX_LENGTH: DeathReason.MAX_LENGTH,
    DeadLetterReason.MAX_DELIVERIES: DeathReason.DELIVERY_LIMIT,
    DeadLetterReason.UNDELIVERABLE: DeathReason.REJECTED,
}
"""Words of ``x-death``, which has fewer."""


class DeadLetter:
    """An entry on its way to an exchange.

    Args:
        queue: that it leaves.
        entry: the entry.
        reason: why.
        target: where it goes.

    Attributes:
        target: the argument.
    """

    __slots__ = ("_annotations", "_entry", "_queue", "_reason", "target")

    def __init__(
        self, queue: QueueView, entry: Entry, reason: DeadLetterReason, target: DeadLetterTarget
    ) -> None:
        self.target = target
        self._queue = queue
        self._entry = entry
        self._reason = REASONS[reason]
        self._annotations = entry.message.annotations

    def event(self, now_ms: int) -> DeathEvent:
        """Return its death."""
        annotations, name = self._annotations, local_name(self._queue.name)
        exchange, key = annotations.get(EXCHANGE), annotations.get(ROUTING_KEY)
        if not isinstance(exchange, str) or not isinstance(key, str):
            exchange, key = "", name  # as a delivery shows it (09-M-08)
        copies = annotations.get(CARBON_COPY)
        more = copies if isinstance(copies, list | tuple) else ()
        keys = (key, *(each for each in more if isinstance(each, str)))
        ttl = self._entry.message.header.ttl
        expiration = None if ttl is None else str(int(ttl))
        return DeathEvent(name, self._reason, now_ms, exchange, keys, expiration)

    def message(self, facts: Mapping[str, object], now_ms: int) -> Message:
        """Return it as it is published.

        Args:
            facts: further annotations.
            now_ms: the wall clock.
        """
        event = self.event(now_ms)
        annotations, gone = death_annotations(self._annotations, event, self.target)
        return self._entry.message.with_annotations({**annotations, **facts}, drop=gone)

    def goes_round(self, queue: str) -> bool:
        """Tell whether it would come to a queue for ever, and nobody would have it."""
        return is_dead_letter_circle(self._annotations, queue, self._reason)


@implementer(ITarget)
class DeadLetterExchange:
    """The exchange for dead letters of a queue, as a target for one of them.

    Args:
        dead: it.
        topology: the exchanges.
    """

    __slots__ = ("_dead", "_topology", "name")

    def __init__(
        self,
        dead: DeadLetter,
        topology: Topology,
    ) -> None:
        self.name = in_host(topology.host, exchange_node(dead.target.exchange))
        self._dead = dead
        self._topology = topology

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Publish it. See `ITarget.put`.

        Raises:
            NotFound: there is no such exchange, or nobody who gets it.
            AmqpError: one of those who get it does not take it.
        """
        dead, topology = self._dead, self._topology
        exchange = dead.target.exchange
        keys = dead_letter_keys(dead.event(batch.now_ms), dead.target)
        try:
            outcome = topology.graph.route(exchange, keys, routing_headers(message))
        except TopologyFault as fault:
            raise NotFound(fault.text) from None
        targets = [
            queue
            for queue in topology.queues_of(outcome)
            if not dead.goes_round(local_name(queue.name))
        ]
        if not targets:
            raise NotFound(f"no queue gets dead letters of exchange {exchange!r} with {keys[0]!r}")
        topology.put(exchange, targets, message, batch, origin)

    def space(self) -> int:
        """See `ITarget.space`: a dead letter is put where there is room, or is dropped."""
        return 1

    def when_space(self, notify: Callable[[], None]) -> None:
        """See `ITarget.when_space`."""
        notify()
