# SPDX-License-Identifier: Apache-2.0
"""Identity and routes of the relay, by the configuration in force."""

from __future__ import annotations

from collections.abc import Callable

from amqproute.config.schema import Config
from amqproute.daemon.peer_assembly import peer_engine
from amqproute.daemon.reporting import proved_domain
from amqproute.net.tls import TlsContexts
from amqproute.routing.table import Router
from amqproute.trace_context import HopTracing, TraceIds
from amqproute.values import NextHop, TransportSecurity
from amqproute.wire.amqp10.connection import Connection

__all__ = ["RelayIdentity", "RoutesInForce"]


class RelayIdentity:
    """The identity of the relay's connections, an `OutgoingIdentity`.

    Args:
        own_id: the container-id.
        stream: identifies the store to peers that keep receipts.
        config: returns the configuration in force.
        contexts: the contexts with the certificate in force; None without TLS.
        ids: the ids of spans; None without tracing.
    """

    def __init__(
        self,
        own_id: str,
        stream: str,
        config: Callable[[], Config],
        contexts: TlsContexts | None,
        ids: TraceIds | None = None,
    ) -> None:
        self.own_id = own_id
        self.stream = stream
        self._config = config
        self._contexts = contexts
        self._ids = ids

    def engine(self, hop: NextHop, security: TransportSecurity) -> Connection:
        """See `OutgoingIdentity.engine`."""
        return peer_engine(self._config(), hop, security, self.own_id)

    def origin(self) -> str:
        """See `OutgoingIdentity.origin`."""
        contexts = self._contexts
        return proved_domain(self._config(), None if contexts is None else contexts.certificate)

    def tracing(self, hop: NextHop) -> HopTracing:
        """See `OutgoingIdentity.tracing`: as the contract with the peer says."""
        is_kept = self._config().peer_for(hop.domain).trace_context == "keep"
        return HopTracing(is_kept, self._ids if is_kept else None)


class RoutesInForce:
    """The routes of the router in force, `RelayRoutes`.

    Args:
        router: returns the router in force.
    """

    def __init__(self, router: Callable[[], Router]) -> None:
        self._router = router

    def hop_of_key(self, key: str) -> NextHop:
        """See `RelayRoutes.hop_of_key`."""
        return self._router().hop_of_key(key)

    def hop(self, domain: str) -> NextHop:
        """See `RelayRoutes.hop`."""
        return self._router().hop(domain)
