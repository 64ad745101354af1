# SPDX-License-Identifier: Apache-2.0
"""Listeners built from the configuration, and the protocols that they serve."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Final

from amqproute import __version__
from amqproute.auth.realm import Authenticator, LogInTransport
from amqproute.config.access_settings import ListenSettings
from amqproute.config.schema import Config
from amqproute.daemon.peer_assembly import product
from amqproute.filters.registry import capabilities as filter_capabilities
from amqproute.frontends.amqp09.amqp09_context import Amqp09Context
from amqproute.frontends.amqp09.class_registry import offered_classes
from amqproute.frontends.amqp09.frontend09 import Frontend09
from amqproute.frontends.amqp09.log_in_exchange import offered_mechanisms
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.connection_frontend import Frontend
from amqproute.frontends.common.endpoint_memory import CONNECTION_OCTETS
from amqproute.net.accept_policy import AcceptTerms
from amqproute.net.offered_protocols import OfferedProtocol, OfferedProtocols
from amqproute.net.pump import Make, PumpLimits, TransportFacts
from amqproute.values import (
    PATH_CAPABILITY,
    PROBE_CAPABILITY,
    REPORT_CAPABILITY,
    TRANSFER_CAPABILITY,
)
from amqproute.wire.amqp09.connection09 import Connection09
from amqproute.wire.amqp09.connection_settings import FRAME_MIN_SIZE, Connection09Settings
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.protocol_choice import AMQP_1_0_HEADERS, BEFORE_1_0_HEADERS
from amqproute.wire.sasl_mechanisms import SaslServer

CAPABILITIES_09: Final = (
    "authentication_failure_close",
    "basic.nack",
    "connection.blocked",
    "consumer_cancel_notify",
    "consumer_priorities",
    "direct_reply_to",
    "exchange_exchange_bindings",
    "per_consumer_qos",
    "publisher_confirms",
)
"""Extensions of 0-9-1 that are announced: those that work, and no others (09-W-70)."""
UNFINISHED_CONTENTS: Final = 32 * 1024 * 1024
"""Octets of unfinished contents in the memory of one connection of 0-9 or 0-9-1; what goes beyond
is handed up in parts."""
UNFINISHED_BYTES: Final = 64 * 1024 * 1024
"""Octets of unfinished deliveries in the memory of one connection."""


def pump_limits(config: Config) -> PumpLimits:
    """Return the traffic limits of every connection."""
    limits = config.limits
    return PumpLimits(tls_seconds=limits.handshake_timeout, output_bytes=limits.output_buffer)


def accept_terms(listen: ListenSettings) -> AcceptTerms:
    """Return the terms by which a listener admits connections."""
    return AcceptTerms(
        listen.max_connections,
        listen.mute_per_address,
        listen.mute_per_network,
        tuple((ip_network(name), share) for name, share in listen.mute_shares.items()),
        tuple(ip_network(each) for each in listen.proxy_protocol),
    )


def accepting(
    config: Config,
    container_id: str,
    listen: ListenSettings,
    authenticator: Authenticator,
    context: Amqp10Context,
    context09: Amqp09Context,
) -> Make:
    """Return the factory for engine and frontend of a listener's connections, in its protocols."""
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
                    *filter_capabilities(),
                ),
                properties=product(),
                tls="optional" if listen.tls == "upgrade" else "none",
                allow_no_sasl="ANONYMOUS" in listen.mechanisms,
            ),
            sasl_server=authority,
        )
        authority.frontend = frontend = Frontend(engine, context, authenticator, facts)
        return engine, frontend

    def make09(facts: TransportFacts) -> tuple[Connection09, Frontend09]:
        engine = Connection09(settings09(config, authenticator, facts))
        return engine, Frontend09(engine, context09, authenticator, facts)

    offered = (
        OfferedProtocol("AMQP 1.0", AMQP_1_0_HEADERS, make),
        OfferedProtocol("AMQP 0-9-1", BEFORE_1_0_HEADERS, make09),
    )
    return OfferedProtocols(offered, limits.handshake_timeout).make


def settings09(
    config: Config, authenticator: Authenticator, facts: TransportFacts
) -> Connection09Settings:
    """Return what we offer to a client of AMQP 0-9 or 0-9-1."""
    limits = config.limits
    mechanisms = offered_mechanisms(
        authenticator,
        LogInTransport(
            facts.host or "",
            facts.tls_version is not None,
            tuple(sorted(facts.certificate_domains)),
            facts.unix_uid,
        ),
    )
    return Connection09Settings(
        role="server",
        connection_id=facts.remote,
        mechanisms=mechanisms,
        properties=FieldTable(
            {
                "product": "amqproute",
                "version": __version__,
                "platform": f"Python {'.'.join(platform.python_version_tuple()[:2])}",
                "information": "AMQP 0-9-1, 0-9 and 1.0; licensed under Apache-2.0",
            }
        ),
        capabilities=CAPABILITIES_09,
        classes=offered_classes(config.distributed_transactions.enabled),
        channel_max=limits.max_sessions if limits.max_sessions < 65536 else 65535,
        frame_max=max(FRAME_MIN_SIZE, limits.max_frame_size),
        heartbeat=min(65535, max(1, int(limits.idle_timeout))),
        handshake_timeout=limits.handshake_timeout,
        max_content=limits.max_message_size or 0,
        max_partial=UNFINISHED_CONTENTS,
        reports_input=True,
    )


class _Authority:
    """The SASL mechanisms that an engine offers; they may change with an upgrade to TLS."""

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
    "pump_limits",
]
