# SPDX-License-Identifier: Apache-2.0
"""Decisions of the daemon about its connections."""

from __future__ import annotations

from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.frontends.common.virtual_hosts import VirtualHosts
from amqproute.values import Principal

__all__ = ["ConnectionPolicy"]


class ConnectionPolicy:
    """Default decisions: every host name is served, events are ignored; see the methods.

    Args:
        contracts: the contracts of peers and users; None for none.
        hosts: the virtual hosts; None if there is but ``/``.
    """

    def __init__(
        self, contracts: ActiveContracts | None = None, hosts: VirtualHosts | None = None
    ) -> None:
        self.contracts = contracts
        self.hosts = hosts or VirtualHosts()

    def serves(self, hostname: str | None) -> bool:
        """Return whether the host name of an open is one of ours (A-16)."""
        return True

    def peer_opened(self, principal: Principal) -> None:
        """Handle a connection opened by a peer, which is a sign that it can be reached."""

    def seen(self, step: str, remote: str, who: str, code: str, words: str, probe: str) -> None:
        """Handle the open of a prober, or a refused connection.

        Args:
            step: the step reached; see `amqproute.services.peer_probe`.
            remote: the address.
            who: the principal.
            code: ``ok``, or the reason of the refusal.
            words: the same in words.
            probe: the id of a prober; empty for others.
        """
