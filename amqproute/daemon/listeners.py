# SPDX-License-Identifier: Apache-2.0
"""Listeners built from the configuration, and the protocols that they serve."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final

from amqproute.auth.realm import Authenticator
from amqproute.config.access_settings import ListenSettings
from amqproute.config.schema import Config
from amqproute.daemon.peer_assembly import product
from amqproute.filters.registry import CAPABILITIES as FILTER_CAPABILITIES
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.connection_frontend import Frontend
from amqproute.frontends.common.endpoint_memory import CONNECTION_OCTETS
from amqproute.net.accept_policy import AcceptTerms, IpNetwork
from amqproute.net.offered_protocols import OfferedProtocol, OfferedProtocols
from amqproute.net.pump import Make, PumpLimits, TransportFacts
from amqproute.values import (
    PATH_CAPABILITY,
    PROBE_CAPABILITY,
    REPORT_CAPABILITY,
    TRANSFER_CAPABILITY,
)
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.protocol_choice import AMQP_1_0_HEADERS
from amqproute.wire.sasl_mechanisms import SaslServer

UNFINISHED_BYTES: Final = 64 * 1024 * 1024
"""Octets of deliveries that have begun and not ended, in the memory of one connection."""


def pump_limits(config: Config) -> PumpLimits:
    """Return what bounds the traffic of every connection."""
    limits = config.limits
    return PumpLimits(tls_seconds=limits.handshake_timeout, output_bytes=limits.output_buffer)


def accept_terms(listen: ListenSettings) -> AcceptTerms:
    """Return how the places of a listener are shared out."""
    return AcceptTerms(
        listen.max_connections,
        listen.mute_per_address,
        listen.mute_per_network,
        tuple((ip_network(name), share) for name, share in listen.mute_shares.items()),
    )


def balancers(listen: ListenSettings) -> list[IpNetwork]:
    """Return from where the PROXY protocol is read."""
    return [ip_network(each) for each in listen.proxy_protocol]


def accepting(
    config: Config,
    container_id: str,
    listen: ListenSettings,
    authenticator: Authenticator,
    context: Amqp10Context,
) -> Make:
    """Return what makes engine and frontend of a listener's connections, in its protocols."""
    limits = config.limits

    def make(facts: TransportFacts) -> tuple[Connection, Frontend]:
        authority = _Authority(authenticator)
        engine = Connection(
            ConnectionSettings(
                role="server",
                container_id=container_id,
                max_frame_size=limits.max_frame_size,
                channel_max=limits.max_sessions - 1,
                handle_max=limits.max_links - 1,
                idle_timeout=limits.idle_timeout,
                handshake_timeout=limits.handshake_timeout,
                max_message_size=limits.max_message_size or 0,
                max_partial=UNFINISHED_BYTES,
                max_endpoint_octets=2 * CONNECTION_OCTETS,
                reports_input=True,
                incoming_window=limits.session_window,
                offered_capabilities=(
                    "ANONYMOUS-RELAY",
                    TRANSFER_CAPABILITY,
                    PROBE_CAPABILITY,
                    REPORT_CAPABILITY,
                    PATH_CAPABILITY,
                    *FILTER_CAPABILITIES,
                ),
                properties=product(),
                tls="optional" if listen.tls == "upgrade" else "none",
                sasl_server=authority,
                allow_no_sasl="ANONYMOUS" in listen.mechanisms,
            )
        )
        authority.frontend = frontend = Frontend(engine, context, authenticator, facts)
        return engine, frontend

    offered = (OfferedProtocol("AMQP 1.0", AMQP_1_0_HEADERS, make),)
    return OfferedProtocols(offered, limits.handshake_timeout).make


class _Authority:
    """Gives an engine the mechanisms of its listener; the facts may change by an upgrade to TLS."""

    frontend: Frontend

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    @property
    def mechanisms(self) -> Sequence[str]:
        return self._authenticator.offers(self.frontend.log_in_facts())

    def start(self, name: str) -> SaslServer:
        return self._authenticator.begin(name, self.frontend.log_in_facts())


__all__ = [
    "UNFINISHED_BYTES",
    "accept_terms",
    "accepting",
    "balancers",
    "pump_limits",
]
