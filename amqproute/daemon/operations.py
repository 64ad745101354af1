# SPDX-License-Identifier: Apache-2.0
"""What operators and transaction managers reach through management, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.logger import Logger

from amqproute.auth.policy import Verb
from amqproute.broker.branches import Branches, BranchLimits
from amqproute.broker.broker import Broker
from amqproute.config.upkeep import DistributedTransactions
from amqproute.daemon.rules import Allows
from amqproute.frontends.amqp10 import Shared
from amqproute.interfaces import IStore
from amqproute.relay.relay import Relay
from amqproute.relay.row import peer_row
from amqproute.relay.why import why
from amqproute.routing.table import Router
from amqproute.services import dns_memory, dtx, relay_operations
from amqproute.services.management import MANAGEMENT, EntityType, ManagementService
from amqproute.services.relay_messages import RelayMessages
from amqproute.services.requeueing import Requeueing

log = Logger()


def offer_relay_operations(
    management: ManagementService,
    broker: Broker,
    relay: Relay,
    router: Callable[[], Router],
    allows: Allows,
    now_ms: Callable[[], int],
) -> None:
    """Let operators see the ways out, and act on what waits there."""
    relay_operations.register(management, relay, allows)
    dns_memory.register(management, relay, router, allows)
    RelayMessages(
        broker,
        relay,
        router,
        allows,
        lambda destination, entry: why(destination, entry, relay.holds, now_ms()),
        now_ms,
    ).register(management)
    Requeueing(broker, relay, router, allows, now_ms).register(management)
    management.register(
        EntityType(
            "peer",
            lambda: [peer_row(each, relay.holds) for each in relay.destinations.values()],
        )
    )


def offer_branches(
    settings: DistributedTransactions,
    shared: Shared,
    relay: Relay,
    store: IStore,
    allows: Allows,
    now_ms: Callable[[], int],
    notes: Mapping[str, bytes],
) -> Branches | None:
    """Offer distributed transactions, if that is wanted; what is prepared waits if not."""
    broker = shared.broker
    if not settings.enabled:
        if notes:
            log.warn(
                "{count} branches of distributed transactions wait in the store and keep "
                "their messages: enable distributed-transactions to have them resolved",
                count=len(notes),
            )
        return None

    branches = Branches(
        shared.transactions,
        broker,
        store,
        now_ms,
        shared.termini.node_for,
        relay.admit,
        lambda principal: allows(principal, Verb.MANAGE, dtx.DTX_COORDINATOR),
        BranchLimits(
            branches=settings.max_branches,
            timeout_seconds=settings.timeout,
            total_bytes=settings.memory,
            warn_seconds=settings.warn_after,
        ),
    )
    branches.recovered(notes)
    coordinator = dtx.DtxCoordinator(broker, branches, allows)
    broker.services[dtx.DTX_COORDINATOR] = coordinator
    dtx.register(broker.services[MANAGEMENT], branches)
    return branches


__all__ = ["offer_branches", "offer_relay_operations"]
