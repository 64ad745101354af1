# SPDX-License-Identifier: Apache-2.0
"""Distributed transactions for brokers in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqproute.broker.xa_registry import BranchLimits, BranchRegistry
from amqproute.services.management_node import MANAGEMENT
from amqproute.services.xa_node import DTX_COORDINATOR, XaNode, register

if TYPE_CHECKING:
    from tests.conformance.frame_broker import FrameBroker

__all__ = ["with_branches"]


def with_branches(house: FrameBroker) -> BranchRegistry:
    """Switch distributed transactions on; return the branches."""
    allows = house.transfer.rules.allows
    branches = BranchRegistry(
        house.shared.transactions,
        house.broker,
        house.store,
        house.world.now_ms,
        house.shared.nodes.target,
        house.relay.admit,
        lambda principal: allows(principal, "manage", DTX_COORDINATOR),
        BranchLimits(),
    )
    services = house.broker.services
    services[DTX_COORDINATOR] = XaNode(house.broker, branches, allows)
    register(services[MANAGEMENT], branches)
    return branches
