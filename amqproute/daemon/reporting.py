# SPDX-License-Identifier: Apache-2.0
"""Reports to senders, put together: what the configuration says, where a report goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography import x509

from amqproute.address import is_reserved
from amqproute.broker.broker import Broker
from amqproute.config.schema import Config
from amqproute.errors import NotAllowed
from amqproute.net.certificate_identity import peer_domains
from amqproute.relay.destination_row import row_of
from amqproute.relay.error_disclosure import row_for_senders
from amqproute.relay.relay import Relay
from amqproute.routing.table import Router
from amqproute.services.sender_reports import Reporter, ReportTerms
from amqproute.values import NextHop

__all__ = ["make_reporter", "own_domain", "proved_domain", "report_terms"]


def own_domain(config: Config) -> str:
    """Return the name that this broker goes by among others; empty if it has none."""
    return config.domains[0] if config.domains else ""


def proved_domain(config: Config, certificate: x509.Certificate | None) -> str:
    """Return the name that peers know us to have proved: the origin of what begins here.

    One of our domains if the certificate has it, else a name of the certificate; without one we
    prove nothing, and our own word is all there is.
    """
    if certificate is None:
        return own_domain(config)
    proved = peer_domains(certificate)
    ours = [domain for domain in config.domains if domain in proved]
    return next(iter([*ours, *sorted(proved)]), "")


def report_terms(config: Config, container: str) -> ReportTerms:
    """Return what a configuration says about reports."""
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
    """Return the reporter of a house, and have its broker tell it of every end of a message.

    Args:
        broker: the local nodes.
        relay: the ways out.
        router: gives the router as it is now.
        terms: what the configuration says.
    """

    def place(address: str) -> Any:
        """By its own `to`, as any message, but without asking the DNS whether there is a way."""
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
