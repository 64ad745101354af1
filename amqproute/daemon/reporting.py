# SPDX-License-Identifier: Apache-2.0
"""Assembly of the reports to senders."""

from __future__ import annotations

from collections.abc import Callable

from cryptography import x509

from amqproute.address import is_reserved
from amqproute.broker.broker import Broker
from amqproute.config.schema import Config
from amqproute.errors import NotAllowed
from amqproute.interfaces import ITarget
from amqproute.net.certificate_identity import peer_domains
from amqproute.relay.destination_row import row_of
from amqproute.relay.error_disclosure import row_for_senders
from amqproute.relay.relay import Relay
from amqproute.routing.table import Router
from amqproute.services.sender_reports import Reporter, ReportTerms
from amqproute.values import NextHop

__all__ = ["make_reporter", "own_domain", "proved_domain", "report_terms"]


def own_domain(config: Config) -> str:
    """Return the domain under which other brokers know this one; empty if it has none."""
    return config.domains[0] if config.domains else ""


def proved_domain(config: Config, certificate: x509.Certificate | None) -> str:
    """Return the domain that our certificate proves to peers: the origin of our own messages.

    One of our domains if the certificate names it, else another name of the certificate; without
    a certificate our unproved own domain.
    """
    if certificate is None:
        return own_domain(config)
    proved = peer_domains(certificate)
    ours = [domain for domain in config.domains if domain in proved]
    return next(iter([*ours, *sorted(proved)]), "")


def report_terms(config: Config, container: str) -> ReportTerms:
    """Return the report settings of a configuration."""
    return ReportTerms(
        domain=own_domain(config),
        container=container,
        default=frozenset(config.reports.default),
        lifetime_ms=int(config.reports.lifetime * 1000),
        dead_letter=config.relay.dead_letter,
    )


def make_reporter(
    broker: Broker, relay: Relay, router: Callable[[], Router], terms: ReportTerms
) -> Reporter:
    """Make the reporter, and register it with the broker for the end of every message.

    Args:
        broker: the local nodes.
        relay: the next hops.
        router: returns the router in force.
        terms: the terms from the configuration.
    """

    def place(address: str) -> ITarget:
        """Route a report by its own `to`, like any message, but without a DNS lookup."""
        route = router().route(address)
        if isinstance(route, NextHop):
            return relay.take_on_trust(route)
        if is_reserved(route.node):
            raise NotAllowed(f"reports are not sent to the service {route.node!r}")
        return broker.target(route.node)

    def hop_row(key: str) -> dict[str, object] | None:
        destination = relay.destinations.get(key)
        if destination is None:
            return None
        return {**row_for_senders(row_of(destination)), "offers": destination.offers}

    reporter = Reporter(broker, place, hop_row, terms)
    broker.disposal.reporter = reporter
    return reporter
