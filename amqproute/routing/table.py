# SPDX-License-Identifier: Apache-2.0
"""The router: address to local node or next hop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from amqproute.address import Address, normalize_domain, parse
from amqproute.values import Local, NextHop, RouteRule

REMEMBERED = 10_000
"""Addresses whose route is kept; beyond it the memory starts afresh."""


class Router:
    """Decides routes; immutable, so that a reload swaps in a new one.

    Args:
        own_names: domains whose nodes live here, and the container-id.
        rules: the static routes.
    """

    def __init__(self, own_names: Iterable[str], rules: Sequence[RouteRule] = ()) -> None:
        self.own_names = frozenset(normalize_domain(name) for name in own_names)
        self.rules = tuple(rules)
        self._known: dict[str, Local | NextHop] = {}

    def route(self, text: str) -> Local | NextHop:
        """Return where a message for this address goes.

        Raises:
            InvalidField: the address is not one (A-13).
        """
        known = self._known.get(text)
        if known is None:
            known = self.decide(parse(text))
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[text] = known
        return known

    def decide(self, address: Address) -> Local | NextHop:
        """Return where a message for a parsed address goes."""
        if address.domain is None or address.domain in self.own_names:
            return Local(address.node)
        return self.hop(address.domain)

    def hop(self, domain: str) -> NextHop:
        """Return the next hop for a domain that is not ours."""
        rule = self.rule(domain)
        if rule is None:
            return NextHop(domain, domain)
        if rule.via is None:
            return NextHop(domain, domain, None, rule.target, rule.names)
        gateway = urlsplit(rule.via)
        host = gateway.hostname or ""
        port = gateway.port or (5671 if gateway.scheme == "amqps" else 5672)
        return NextHop(f"{host}:{port}", host, rule.via, rule.target, rule.names)

    def rule(self, domain: str) -> RouteRule | None:
        """Return the static route that applies to a domain, if any."""
        return next((rule for rule in self.rules if rule.matches(domain)), None)
