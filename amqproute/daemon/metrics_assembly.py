# SPDX-License-Identifier: Apache-2.0
"""Assembly of the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from twisted.internet.threads import deferToThreadPool

from amqproute.address import in_host
from amqproute.config.schema import Config
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.metrics.broker_metrics import (
    CountedConnection,
    MetricsParts,
    NetworkMetrics,
    StoreMetrics,
    TracingFacts,
    TracingMetrics,
    TransferMetrics,
)
from amqproute.metrics.metrics_service import MetricsService
from amqproute.metrics.node_metrics import NodeMetrics
from amqproute.metrics.peer_metrics import PeerMetrics
from amqproute.net.reactor import IReactor
from amqproute.relay.connect_agent import static_candidate
from amqproute.relay.relay import Relay

__all__ = ["connection_facts", "make_metrics", "named_nodes", "named_peers"]


def connection_facts(connections: Sequence[ClientConnection]) -> Iterator[CountedConnection]:
    """Yield the connections as they are counted, each when it is asked for."""
    return (
        CountedConnection(
            each.journal_protocol or "AMQP 1.0",
            each.principal.kind,
            each.link_count,
            each.channel_count,
        )
        for each in connections
    )


def remembered(
    names: Callable[[Config], list[str]], config: Callable[[], Config]
) -> Callable[[], list[str]]:
    """Return what gives the names of the present configuration, sorted once for each."""
    known: tuple[Config, list[str]] | None = None

    def present() -> list[str]:
        nonlocal known
        here = config()
        if known is None or known[0] is not here:
            known = here, names(here)
        return known[1]

    return present


def named_nodes(config: Config) -> list[str]:
    """Return the nodes of the configuration that metrics name, at most `metrics.named`."""
    here = [node.name for node in config.nodes]
    hosted = [
        in_host(host, node.name)
        for host, settings in config.virtual_hosts.items()
        for node in settings.nodes
    ]
    return sorted([*here, *hosted])[: config.management.metrics_named]


def named_peers(config: Config) -> list[str]:
    """Return the keys of the configured hops that metrics name, at most `metrics.named`."""
    keys = {name for name in config.peers if "*" not in name}
    for route in config.routes:
        if route.via is not None:
            place = static_candidate(route.via)
            keys.add(f"{place.host}:{place.port}")
        elif "*" not in route.domain:
            keys.add(route.domain)
    return sorted(keys)[: config.management.metrics_named]


def make_metrics(
    reactor: IReactor,
    parts: MetricsParts,
    store: StoreMetrics,
    relay: Relay,
    config: Callable[[], Config],
    now_ms: Callable[[], int],
    name: str,
    tracing: Callable[[], TracingFacts] | None = None,
) -> MetricsService:
    """Return the service that answers scrapes, of the broker of a name."""
    network, transfers = NetworkMetrics(parts), TransferMetrics(parts)
    nodes = NodeMetrics(
        parts.broker,
        now_ms,
        remembered(named_nodes, config),
        lambda: config().virtual_hosts,
    )
    peers = PeerMetrics(relay, now_ms, remembered(named_peers, config))
    return MetricsService(
        parts.reactor.pause,
        time.perf_counter,
        (
            network.daemon,
            network.network,
            transfers.transfers,
            store.store,
            store.journal,
            TracingMetrics(tracing).tracing,
            nodes.hosts,
        ),
        (nodes.nodes, nodes.topics, peers.peers),
        lambda function: deferToThreadPool(reactor, reactor.getThreadPool(), function),
        lambda: name if config().management.rabbitmq_metrics else "",
    )
