# SPDX-License-Identifier: Apache-2.0
"""Connection policy from the configuration, and its listeners in the daemon."""

from __future__ import annotations

from collections.abc import Callable

from amqproute.config.schema import Config
from amqproute.frontends.common.connection_policy import ConnectionPolicy
from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.frontends.common.virtual_hosts import HOSTNAME_PREFIX, VirtualHosts
from amqproute.relay.relay import Relay
from amqproute.services.peer_probe import PeerProbes
from amqproute.services.transfer import TransferService
from amqproute.values import Principal

__all__ = ["ConfiguredPolicy"]


class ConfiguredPolicy(ConnectionPolicy):
    """The policy of a daemon.

    Args:
        config: returns the configuration in force.
        transfer: knows the names of this broker.
        relay: retries waiting messages for a peer that has connected.
        probes: keeps the results of probes and refusals.
        contracts: the limits of each peer and user.
        hosts: the virtual hosts.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        transfer: TransferService,
        relay: Relay,
        probes: PeerProbes,
        contracts: ActiveContracts,
        hosts: VirtualHosts,
    ) -> None:
        super().__init__(contracts, hosts)
        self._config = config
        self._transfer = transfer
        self._relay = relay
        self._probes = probes

    def serves(self, hostname: str | None) -> bool:
        """See `ConnectionPolicy.serves`."""
        if not self._config().strict_hostname or not hostname:
            return True
        if hostname.startswith(HOSTNAME_PREFIX):
            return True  # it was found
        return hostname.lower().rstrip(".") in self._transfer.rules.router.own_names

    def peer_opened(self, principal: Principal) -> None:
        """See `ConnectionPolicy.peer_opened`."""
        self._relay.peer_called(principal)

    def seen(self, step: str, remote: str, who: str, code: str, words: str, probe: str) -> None:
        """See `ConnectionPolicy.seen`."""
        self._probes.note(step, remote, who, code, words, probe)
