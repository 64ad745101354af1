# SPDX-License-Identifier: Apache-2.0
"""The router: address to local node or next hop."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from amqproute.address import (
    TRANSFER_NODE,
    Address,
    from_compatibility,
    in_host,
    normalize_domain,
    parse,
)
from amqproute.errors import InvalidField, NotAllowed
from amqproute.values import Local, NextHop, RouteRule

_ADDRESS = re.compile(r"[0-9.]+|[0-9a-fA-F:]*:[0-9a-fA-F:.]*")
NODE = "{node}"
"""Placeholder for the node in a route's target template."""
REMEMBERED = 10_000
"""Addresses whose routes are cached; a full cache is emptied."""


class Router:
    """Decides routes; immutable, so that a reload swaps in a new one.

    Args:
        own_names: domains whose nodes live here, and the container-id.
        rules: the static routes.
        containers: domains of configured peers by container-id (A-17). Only the configuration
            counts: a peer may claim any container-id.
        hosts: virtual hosts by those of the own names that belong to one.
    """

    def __init__(
        self,
        own_names: Iterable[str],
        rules: Sequence[RouteRule] = (),
        containers: Mapping[str, str] | None = None,
        hosts: Mapping[str, str] | None = None,
    ) -> None:
        self.hosts = dict(hosts or {})
        self.own_names = frozenset(normalize_domain(name) for name in own_names) | set(self.hosts)
        self.containers = {
            normalize_domain(name): domain for name, domain in (containers or {}).items()
        }
        self.rules = tuple(rules)
        self._known: dict[str, Local | NextHop] = {}
        self._known_in: dict[tuple[str, str], Local | NextHop] = {}

    def route(self, text: str, host: str = "") -> Local | NextHop:
        """Return where a message for this address goes.

        The address syntax of RabbitMQ 4 clients is translated here and nowhere below: access is
        granted to the resulting node (A-22).

        Args:
            text: the address.
            host: the virtual host of the author; a name without a domain belongs to it.

        Raises:
            InvalidField: `text` is not a valid address (A-13).
            NotAllowed: the address names a local node outside the author's virtual host.
        """
        known = self._known_in.get((host, text)) if host else self._known.get(text)
        if known is None:
            known = self.decide(parse(from_compatibility(text) or text), host)
            if len(self._known) + len(self._known_in) >= REMEMBERED:
                self._known.clear()
                self._known_in.clear()
            if host:
                self._known_in[host, text] = known
            else:
                self._known[text] = known
        return known

    def decide(self, address: Address, host: str = "") -> Local | NextHop:
        """Return where a message for a parsed address goes; see `route`.

        An address in one of our own domains gets the node's name within the broker: see
        `address.in_host`.
        """
        node, domain = address.node, address.domain
        if domain is None:
            return Local(in_host(host, node))
        if domain not in self.own_names:
            return self.hop(domain, node)
        owner = self.hosts.get(domain, "")
        if host and owner != host:
            raise NotAllowed(f"{domain} is not a domain of the virtual host {host!r}")
        return Local(in_host(owner, node) if node else "")

    def hop(self, domain: str, node: str = "") -> NextHop:
        """Return the next hop for a domain that is not ours.

        Args:
            domain: A-labels, lower case; or the container-id of a configured peer (A-17).
            node: the node of the address. It matters if the route's target is a template: such a
                peer takes each node's messages on a separate link, so each node is a separate hop.
        """
        domain = self.containers.get(domain, domain)
        rule = self.rule(domain)
        if rule is None:
            return NextHop(domain, domain)
        return self._by_rule(rule, node, domain)

    def direct(self, text: str) -> NextHop:
        """Return the hop to one node of another organization, over a link to that node.

        For messages whose ``to`` no longer gives their destination: messages returned to their
        sender (T-26). A route with its own target decides as it does for any message.

        Raises:
            InvalidField: `text` is not the address of a node at another organization.
        """
        address = parse(text)
        if address.domain is None or not address.node:
            raise InvalidField(f"{text!r} names no node of another organization")
        hop = self.hop(address.domain, address.node)
        if hop.target != TRANSFER_NODE:
            return hop
        target = f"{address.node}@{address.domain}"
        return replace(hop, key=f"{hop.key}/{target}", target=target)

    def hop_of_key(self, key: str) -> NextHop:
        """Return the next hop of a relay queue from an earlier run.

        If its route has left the configuration, the hop is restored from the key: the messages were
        accepted for that gateway.
        """
        place, slash, node = key.partition("/")
        if "@" in node:
            return replace(self.direct(node), key=key)
        if ":" not in place:
            # Keep the key: a route added since changes the way, not the queue.
            return replace(self.hop(place, node), key=key)
        for rule in self.rules:
            if rule.via is not None and bool(slash) == (NODE in rule.target):
                hop = self._by_rule(rule, node)
                if hop.key == key:
                    return hop
        return NextHop(key, place.rpartition(":")[0], via=f"amqps://{place}")

    @staticmethod
    def _by_rule(rule: RouteRule, node: str, domain: str = "") -> NextHop:
        key = host = domain
        if rule.via is not None:
            gateway = urlsplit(rule.via)
            host = gateway.hostname or ""
            key = f"{host}:{gateway.port or (5671 if gateway.scheme == 'amqps' else 5672)}"
        target = rule.target
        if NODE in target:
            key = f"{key}/{node}"
            target = target.replace(NODE, node)
        if rule.names and _ADDRESS.fullmatch(host):
            # An address proves nothing: the gateway is verified as the first of the names.
            host = rule.names[0]
        return NextHop(key, host, rule.via, target, rule.names)

    def rule(self, domain: str) -> RouteRule | None:
        """Return the static route that applies to a domain, if any."""
        return next((rule for rule in self.rules if rule.matches(domain)), None)
