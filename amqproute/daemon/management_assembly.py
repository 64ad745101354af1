# SPDX-License-Identifier: Apache-2.0
"""Assembly of the management node for operators and transaction managers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.xa_registry import BranchLimits, BranchRegistry
from amqproute.config.operations_settings import DistributedTransactionSettings
from amqproute.daemon.peer_tester import DaemonPeerTester
from amqproute.daemon.policy_assembly import Allows
from amqproute.frontends.common.client_connection import FrontendContext
from amqproute.interfaces import IStore
from amqproute.relay.destination_row import peer_row
from amqproute.relay.diagnosis import why
from amqproute.relay.relay import Relay
from amqproute.routing.table import Router
from amqproute.services import dns_flush, relay_commands, xa_node
from amqproute.services.entity_names import EntityNames, EntityTable
from amqproute.services.management_node import MANAGEMENT, ManagementService
from amqproute.services.management_rows import Index
from amqproute.services.message_requeue import RequeueCommand
from amqproute.services.relay_messages import RelayMessages

log = Logger()


def offer_relay_operations(
    management: ManagementService,
    broker: Broker,
    relay: Relay,
    router: Callable[[], Router],
    allows: Allows,
    now_ms: Callable[[], int],
    make_tester: Callable[[dns_flush.DnsFlush], DaemonPeerTester],
) -> None:
    """Register the operations on next hops and their waiting messages."""
    relay_commands.register(management, relay, allows)
    flush = dns_flush.DnsFlush(relay, router, allows)
    dns_flush.register(management, flush)
    make_tester(flush).register(management)
    RelayMessages(
        broker,
        relay,
        router,
        allows,
        lambda destination, entry: why(destination, entry, relay.holds, now_ms()),
        now_ms,
    ).register(management)
    RequeueCommand(broker, relay, router, allows, now_ms).register(management)

    def peer(name: str) -> dict[str, object]:
        return peer_row(relay.destinations[name], relay.holds)

    def peers(host: str | None = None) -> Index:
        return [(name, peer) for name in relay.destinations] if host is None else []

    management.show(
        "peer",
        lambda: [peer_row(each, relay.holds) for each in relay.destinations.values()],
        peers,
        EntityNames(EntityTable(lambda: relay.destinations.order, peer, has_hosts=False)),
    )


def offer_branches(
    settings: DistributedTransactionSettings,
    shared: FrontendContext,
    relay: Relay,
    store: IStore,
    allows: Allows,
    now_ms: Callable[[], int],
    notes: Mapping[str, bytes],
) -> BranchRegistry | None:
    """Offer distributed transactions if they are enabled; otherwise prepared branches wait."""
    broker = shared.broker
    if not settings.enabled:
        if notes:
            log.warn(
                "{count} branches of distributed transactions wait in the store and keep "
                "their messages: enable distributed-transactions to have them resolved",
                count=len(notes),
            )
        return None

    branches = BranchRegistry(
        shared.transactions,
        broker,
        store,
        now_ms,
        shared.nodes.target,
        relay.admit,
        lambda principal: allows(principal, Verb.MANAGE, xa_node.DTX_COORDINATOR),
        BranchLimits(
            branches=settings.max_branches,
            timeout_seconds=settings.timeout,
            total_bytes=settings.memory,
            warn_seconds=settings.warn_after,
        ),
    )
    branches.recovered(notes)
    coordinator = xa_node.XaNode(broker, branches, allows)
    broker.services[xa_node.DTX_COORDINATOR] = coordinator
    xa_node.register(broker.services[MANAGEMENT], branches)
    return branches


__all__ = ["offer_branches", "offer_relay_operations"]
