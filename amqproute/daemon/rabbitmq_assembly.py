# SPDX-License-Identifier: Apache-2.0
"""What the resources in RabbitMQ's form show of the daemon: totals, and open ports.

Totals take a walk over all queues, `QUEUES_IN_TURN` in a turn of the reactor. They are taken at
most every `TOTALS_SECONDS`, however often they are asked for; who asks meanwhile gets the last ones
or waits for those under way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from amqproute.address import host_label
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.config.schema import Config
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.http.rabbitmq_api import BrokerTotals, ListenerPlace
from amqproute.joined_calls import JoinedCalls
from amqproute.net.listening_service import ListeningService
from amqproute.turn_scheduler import Pause

__all__ = ["QUEUES_IN_TURN", "TOTALS_SECONDS", "RabbitmqFacts", "TotalsTaker"]

QUEUES_IN_TURN: Final = 100
TOTALS_SECONDS: Final = 5.0


class TotalsTaker:
    """Takes totals of queues and connections.

    Args:
        clock: the reactor's.
        broker: its queues.
        connections: returns the open connections.
        pause: called between slices of the walk over the queues.
    """

    def __init__(
        self,
        clock: IReactorTime,
        broker: Broker,
        connections: Callable[[], Sequence[ClientConnection]],
        pause: Pause,
    ) -> None:
        self._clock = clock
        self._broker = broker
        self._connections = connections
        self._pause = pause
        self._latest = BrokerTotals()
        self._taken_at: float | None = None
        self._calls: JoinedCalls[str, BrokerTotals] = JoinedCalls()

    def hosts(self) -> list[str]:
        """Return the labels of the virtual hosts."""
        return [host_label(host) for host in self._broker.host_names()]

    async def totals(self) -> BrokerTotals:
        """Return the totals, at most `TOTALS_SECONDS` old."""
        taken_at = self._taken_at
        if taken_at is not None and self._clock.seconds() - taken_at < TOTALS_SECONDS:
            return self._latest
        return await self._calls.call("", lambda: Deferred.fromCoroutine(self._take()))

    async def _take(self) -> BrokerTotals:
        broker, before, before_at = self._broker, self._latest, self._taken_at
        queues: list[Queue] = [*broker.nodes.values()]
        for topic in broker.topics.values():
            queues += (each.queue for each in topic.durable.values())
        ready = unsettled = published = delivered = consumers = 0
        for place, queue in enumerate(queues, 1):
            if place % QUEUES_IN_TURN == 0:
                await self._pause()
            ready += queue.available + queue.deferred
            unsettled += queue.acquired
            consumers += queue.consumers
            published += queue.tally.enqueued
            delivered += queue.tally.dequeued
        connections = self._connections()
        now = self._clock.seconds()
        totals = BrokerTotals(
            ready,
            unsettled,
            published,
            delivered,
            len(queues) + len(broker.topics),
            consumers,
            len(connections),
            sum([each.channel_count for each in connections]),
            sum([each.graph.exchange_count for each in broker.topologies.values()]),
        )
        if before_at is not None and now > before_at:
            seconds = now - before_at
            totals = replace(
                totals,
                publish_rate=max(0, published - before.published) / seconds,
                deliver_rate=max(0, delivered - before.delivered) / seconds,
            )
        self._latest, self._taken_at = totals, now
        return totals


class RabbitmqFacts:
    """Implements `amqproute.http.rabbitmq_api.IBrokerFacts`.

    Args:
        config: returns the configuration in force.
        node: the name of the broker.
        listeners: returns the listeners of AMQP, in the order of the configuration, and that of
            HTTP.
        taker: takes totals.
        why_not_ready: returns why no traffic should come here.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        node: str,
        listeners: Callable[[], tuple[Sequence[ListeningService], ListeningService | None]],
        taker: TotalsTaker,
        why_not_ready: Callable[[], Sequence[str]],
    ) -> None:
        self._config = config
        self.node = node
        self._listeners = listeners
        self._taker = taker
        self._why_not_ready = why_not_ready

    @property
    def is_enabled(self) -> bool:
        """See `IBrokerFacts`."""
        return self._config().management.rabbitmq_api

    def hosts(self) -> Sequence[str]:
        """See `IBrokerFacts`."""
        return self._taker.hosts()

    def totals(self) -> Awaitable[BrokerTotals]:
        """See `IBrokerFacts`."""
        return self._taker.totals()

    def why_not_ready(self) -> Sequence[str]:
        """See `IBrokerFacts`."""
        return self._why_not_ready()

    def places(self) -> Sequence[ListenerPlace]:
        """See `IBrokerFacts`."""
        config = self._config()
        listeners, http = self._listeners()
        uses: list[tuple[ListeningService, str]] = []
        for listener, settings in zip(listeners, config.listen, strict=True):
            # A port with upgrade takes clients without TLS, too.
            uses.append((listener, "amqp/ssl" if settings.tls == "implicit" else "amqp"))
        if http is not None:
            uses.append((http, "http" if config.management.tls == "none" else "https"))
        return [
            ListenerPlace(protocol, address.host, address.port)
            for service, protocol in uses
            for address in service.addresses
            if isinstance(address, IPv4Address | IPv6Address)
        ]
