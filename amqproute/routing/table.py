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
"""What a route's target template has in place of the node."""
REMEMBERED = 10_000
"""Addresses whose route is kept; beyond it the memory starts afresh."""


class Router:
    """Decides routes; immutable, so that a reload swaps in a new one.

    Args:
        own_names: domains whose nodes live here, and the container-id.
        rules: the static routes.
        containers: container-ids of configured peers, to their domains (A-17). Only what the
            operator wrote counts: a peer may call itself what it likes.
        hosts: those of the own names that virtual hosts have, and which ones.
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

        The spelling of clients made for RabbitMQ 4 is read here, once, and nowhere below: access
        is granted to the node that comes out (A-22).

        Args:
            text: the address.
            host: the virtual host of whoever has written it: a name without a domain is there.

        Raises:
            InvalidField: the address is not one (A-13).
            NotAllowed: it is one in a virtual host, of a node here and not there.
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

        The node of an own domain is named as it is within the broker: see `address.in_host`.
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
            node: of the address. It matters where the route's target is a template: such a peer
                takes each node's messages on a link of their own, so each is a hop of its own.
        """
        domain = self.containers.get(domain, domain)
        rule = self.rule(domain)
        if rule is None:
            return NextHop(domain, domain)
        return self._by_rule(rule, node, domain)

    def direct(self, text: str) -> NextHop:
        """Return the hop to one node of another organization, by a link to that node.

        For messages whose ``to`` does not say where they go now: those on their way back (T-26).
        A route with a target of its own decides as it does for any message.

        Raises:
            InvalidField: it is not an address of another organization's node.
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
        """Return the next hop that a relay queue was made for in an earlier run.

        The route may be gone from the configuration. The messages were accepted for that gateway,
        so it is asked as it was.
        """
        place, slash, node = key.partition("/")
        if "@" in node:
            return replace(self.direct(node), key=key)
        if ":" not in place:
            # Under the name it has: a route made since leads it elsewhere, to the same queue.
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
            # An address proves nothing: the first of the names is what the gateway is asked for.
            host = rule.names[0]
        return NextHop(key, host, rule.via, target, rule.names)

    def rule(self, domain: str) -> RouteRule | None:
        """Return the static route that applies to a domain, if any."""
        return next((rule for rule in self.rules if rule.matches(domain)), None)
