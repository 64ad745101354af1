# SPDX-License-Identifier: Apache-2.0
"""The router of a configuration, without the rest of a daemon: `explain` uses it too."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence

from amqproute.config.loader import read_route
from amqproute.config.routing_settings import RouteSettings
from amqproute.config.schema import Config
from amqproute.errors import ConfigError, InvalidField
from amqproute.routing.table import Router
from amqproute.values import RouteRule

__all__ = ["describe_route", "make_router", "rule_of_route"]


def rule_of_route(route: RouteSettings) -> RouteRule:
    """Return the routing rule of a route, from the configuration or made at runtime."""
    return RouteRule(route.domain, route.via, route.target, route.names)


def describe_route(options: Mapping[str, object], config: Config) -> RouteRule:
    """Return the settings of a route to be made at runtime.

    Raises:
        ConfigError: it is not valid.
    """
    rule = rule_of_route(read_route(options))
    if rule.pattern in config.local_domains:
        raise ConfigError([f"domain: {rule.pattern} is one of ours: its nodes are here"])
    return rule


def _among(rules: Sequence[RouteRule], made: Iterable[RouteRule]) -> list[RouteRule]:
    """Put routes made at runtime before the first rule of the file that would hide them."""
    found = list(rules)
    for rule in made:
        if all(each.pattern != rule.pattern for each in rules):
            example = rule.pattern.replace("*", "any", 1)
            hidden = (at for at, each in enumerate(found) if each.matches(example))
            found.insert(next(hidden, len(found)), rule)
    return found


def make_router(config: Config, container_id: str, made: Iterable[RouteRule] = ()) -> Router:
    """Make the router of a configuration, for the daemon and `explain` alike.

    Args:
        config: the configuration.
        container_id: our own, which names this broker as its domains do (T-07); empty if unknown.
        made: the routes made at runtime. One goes before those of the file that are wider; where
            the file has the same domains, it counts alone.
    """
    own = {container_id, *config.local_domains}
    host = socket.gethostname()
    if "." in host:  # a bare host name is no domain, and would shadow a real one
        own.add(host)
    rules = _among([rule_of_route(route) for route in config.routes], made)
    containers = {
        peer.container_id: domain
        for domain, peer in config.peers.items()
        if peer.container_id is not None and _is_domain(peer.container_id)
    }
    return Router(filter(_is_domain, own), rules, containers, config.domains_of_hosts)


def _is_domain(name: str) -> bool:
    try:
        Router([name])
    except InvalidField:
        return False
    return True
