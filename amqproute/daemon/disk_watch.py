# SPDX-License-Identifier: Apache-2.0
"""Watermarks of disk and memory, assembled from the configuration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.broker import Broker
from amqproute.config.schema import Config
from amqproute.frontends.amqp10.suspended_links import SuspendedLinks
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.frontends.common.consuming_endpoint import ConsumingEndpoint
from amqproute.interfaces import IStore
from amqproute.relay.relay import Relay
from amqproute.services.management_node import MANAGEMENT
from amqproute.services.watermarks import DiskTerms, MemoryUse, Watermarks

__all__ = ["disk_terms", "make_watermarks"]


def disk_terms(config: Config) -> DiskTerms:
    """Return the disk settings of a configuration."""
    floor, most = config.store.min_free, config.store.max_bytes or 0
    if isinstance(floor, str):
        return DiskTerms(min_free_percent=float(floor.removesuffix("%")), max_bytes=most)
    return DiskTerms(min_free=floor, max_bytes=most)


def _consumers(shared: FrontendContext) -> Iterator[ConsumingEndpoint]:
    """Iterate over the consumers of all connections."""
    for connection in shared.connections:
        for endpoint in connection.endpoints():
            if isinstance(endpoint, ConsumingEndpoint):
                yield endpoint


def count_outgoing(shared: FrontendContext, relay: Relay) -> None:
    """Sum up the outgoing memory of all consumers, and wake those whose limit has grown."""
    links = [octets for each in _consumers(shared) if (octets := each.held_bytes)]
    hops = [octets for each in relay.destinations.values() if (octets := each.held_bytes)]
    by = {"consumers": sum(links), "relay": sum(hops)}
    is_more = shared.outgoing.counted(by, len(links) + len(hops))
    relay.allow_part(shared.outgoing.part_bytes)
    if is_more:
        for source in {each.source for each in _consumers(shared)}:
            source.dispatch()
        for destination in relay.destinations.values():
            destination.queue.dispatch()


def make_watermarks(
    broker: Broker,
    store: IStore,
    clock: IReactorTime,
    shared: FrontendContext,
    suspended: SuspendedLinks,
    relay: Relay,
    config: Config,
) -> Watermarks:
    """Start to watch disk and memory, and register the figures for operators."""

    def sample() -> int:
        count_outgoing(shared, relay)
        shared.partial_deliveries.spare_octets = watermarks.spare
        return shared.partial_deliveries.look()

    def others() -> dict[str, int]:
        topics = sum([each.waiting_bytes for each in broker.topics.values()])
        return {
            "queues": broker.budget.used_bytes,
            "topics": topics,
            "suspended": suspended.octets,
        }

    watermarks = Watermarks(
        broker,
        store,
        clock,
        str(config.state_directory),
        disk_terms(config),
        MemoryUse(shared.memory, sample, shared.outgoing, others),
    )

    def rows() -> Iterable[dict[str, object]]:
        yield from watermarks.rows()
        yield relay.destination_quota.row()

    broker.services[MANAGEMENT].show("watermark", rows)
    watermarks.start()
    return watermarks
