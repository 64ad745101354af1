# SPDX-License-Identifier: Apache-2.0
"""From a configuration to the router, without what else a daemon is made of: `explain` uses it."""

from __future__ import annotations

import socket

from amqproute.config.parameters import Config
from amqproute.errors import InvalidField
from amqproute.routing.table import Router
from amqproute.values import RouteRule

__all__ = ["make_router"]


def make_router(config: Config, container_id: str) -> Router:
    """Make the router of a configuration: the one that decides for daemon and `explain` alike.

    Args:
        config: the configuration.
        container_id: our own, which names this broker as its domains do (T-07); empty if unknown.
    """
    own = {container_id, *config.local_domains}
    host = socket.gethostname()
    if "." in host:  # a bare host name is nobody's domain, and would shadow one that is
        own.add(host)
    rules = [
        RouteRule(route.domain, route.via, route.target, route.names) for route in config.routes
    ]
    containers = {
        peer.container_id: domain
        for domain, peer in config.peers.items()
        if peer.container_id is not None and _is_domain(peer.container_id)
    }
    return Router(filter(_is_domain, own), rules, containers)


def _is_domain(name: str) -> bool:
    try:
        Router([name])
    except InvalidField:
        return False
    return True
