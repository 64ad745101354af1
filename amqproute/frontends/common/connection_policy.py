# SPDX-License-Identifier: Apache-2.0
"""Decisions of the daemon about its connections."""

from __future__ import annotations

from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.frontends.common.virtual_hosts import VirtualHosts
from amqproute.values import Principal

__all__ = ["ConnectionPolicy"]


class ConnectionPolicy:
    """The decisions of a broker by itself: everything is served, nobody is told; see the methods.

    Args:
        contracts: what each peer and user may ask of us; None: nobody has any.
        hosts: the virtual hosts; None if there is but ``/``.
    """

    def __init__(
        self, contracts: ActiveContracts | None = None, hosts: VirtualHosts | None = None
    ) -> None:
        self.contracts = contracts
        self.hosts = hosts or VirtualHosts()

    def serves(self, hostname: str | None) -> bool:
        """Tell whether the host name of an open is one of ours (A-16)."""
        return True

    def lock_seconds(self) -> float:
        """Return how long a delivery may be without an outcome (O-04); 0 for ever."""
        return 0.0

    def consumer_seconds(self) -> float:
        """Return how long a message may be unacknowledged in 0-9 and 0-9-1; 0 for ever."""
        return 0.0

    def peer_opened(self, principal: Principal) -> None:
        """A peer has opened a connection, so it can be reached as a rule."""

    def seen(self, step: str, remote: str, who: str, code: str, words: str, probe: str) -> None:
        """Somebody has opened a connection as a prober, or was refused.

        Args:
            step: how far it came; see `amqproute.services.peer_probe`.
            remote: the address.
            who: the principal.
            code: ``ok``, or why it was refused.
            words: the same in words.
            probe: the id that a prober has given itself; empty for none.
        """
