# SPDX-License-Identifier: Apache-2.0
"""Open connections of clients and peers, and the enforcement of rights on their links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from twisted.logger import Logger

from amqproute import conditions
from amqproute.address import host_label
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import node_of
from amqproute.broker.topic import Topic
from amqproute.config.schema import Config
from amqproute.daemon.access_control import AccessControl
from amqproute.daemon.config_reload import Apply
from amqproute.daemon.policy_assembly import declared_contracts, make_policy
from amqproute.frontends.amqp09.frontend09 import Frontend09
from amqproute.frontends.amqp10.amqp10_context import Amqp10Context
from amqproute.frontends.amqp10.link_rows import suspended_index
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.contract_enforcement import ActiveContracts
from amqproute.plurals import counted
from amqproute.services.management_rows import Index, Row

__all__ = ["AttachedLinks"]

log = Logger()


class AttachedLinks:
    """The links of all connections.

    Args:
        broker: its nodes and aliases are what links lead to.
        config: gives the configuration in force.
        access: the rules in force.
        contracts: the contract of each connection.

    Attributes:
        amqp10: the connections of AMQP 1.0, and its suspended links; None before the start.
    """

    def __init__(
        self,
        broker: Broker,
        config: Callable[[], Config],
        access: AccessControl,
        contracts: ActiveContracts,
    ) -> None:
        self.amqp10: Amqp10Context | None = None
        self._broker = broker
        self._config = config
        self._access = access
        self._contracts = contracts

    @property
    def connections(self) -> Sequence[ClientConnection]:
        """The open connections of clients and peers."""
        return () if self.amqp10 is None else tuple(self.amqp10.common.connections)

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`. Applied last, when nodes and rights are the new ones.

        Links to removed nodes, or without the right any more, are detached.
        """
        removed_aliases = set(self._config().aliases) - set(config.aliases)
        is_new_policy = make_policy(config).rules != self._access.rules

        def apply() -> None:
            self.set_timeouts(config)
            self.detach_removed_nodes(removed_aliases)
            self._contracts.adopt(self.connections)
            if self.amqp10 is None or not is_new_policy:
                return
            if count := self.amqp10.common.detach_unauthorized():
                log.info(
                    "detached {links}: access revoked",
                    links=counted(count, "link"),
                )

        return apply

    def set_timeouts(self, config: Config) -> None:
        """Apply the time limits of receivers."""
        if self.amqp10 is not None:
            common = self.amqp10.common
            common.lock_seconds = config.limits.lock_timeout
            common.consumer_seconds = config.limits.consumer_timeout

    def detach_removed_nodes(self, aliases: AbstractSet[str]) -> None:
        """Detach the links of nodes that no longer exist, and of removed aliases."""

        def is_gone(node: object, address: str | None) -> bool:
            if address in aliases:
                return True
            node = node_of(node)
            if isinstance(node, Topic):
                return self._broker.topics.get(node.name) is not node
            return isinstance(node, Queue) and self._broker.nodes.get(node.name) is not node

        if self.amqp10 is not None:
            self.amqp10.common.detach_from(is_gone)

    def close_link(self, name: str, on: str) -> None:
        """Detach the links with a name on the connections with a name."""
        for connection in self.connections:
            if connection.facts.remote == on:
                connection.detach_named(name)

    def close_connection(self, name: str, words: str) -> int:
        """Close the connections with a name, and return how many those are."""
        found = [each for each in self.connections if each.facts.remote == name]
        for connection in found:
            connection.close(conditions.CONNECTION_FORCED, words)
        return len(found)

    # -- rows for operators ----------------------------------------------------------------------

    def connection_rows(self) -> list[Row]:
        """Return a row for each connection."""
        return [connection.row() for connection in self.connections]

    def connection_index(self, host: str | None = None) -> Index:
        """Return the names of the connections; see `management_rows.RowIndex`."""
        return [(each.facts.remote, partial(_row_of, each)) for each in self._in_host(host)]

    def _in_host(self, host: str | None) -> Iterable[ClientConnection]:
        """Return the connections to a virtual host, by its label; all with None."""
        return [
            each
            for each in self.connections
            if host is None or host_label(each.principal.host) == host
        ]

    def connections_with(self, wanted: Mapping[str, str]) -> Index | None:
        """See `management_node.Narrow`: those of a principal."""
        who = wanted.get("principal")
        if who is None:
            return None
        there = [each for each in self.connections if str(each.principal) == who]
        return [(each.facts.remote, partial(_row_of, each)) for each in there]

    def links_with(self, wanted: Mapping[str, str]) -> Index | None:
        """See `management_node.Narrow`: those of a connection, suspended ones, or channels."""
        name = wanted.get("connection")
        if name is not None:
            there = [each for each in self.connections if each.facts.remote == name]
            return [named for each in there for named in each.link_index()]
        kind = wanted.get("kind")
        if kind == "suspended" and self.amqp10 is not None:
            return list(suspended_index(self.amqp10.suspended))
        if kind == "channel":
            there = [each for each in self.connections if isinstance(each, Frontend09)]
            return [named for each in there for named in each.link_index()]
        return None

    def count_from(self) -> dict[str, int]:
        """Return the number of connections from each organization, by its domain."""
        found: dict[str, int] = {}
        for each in self.connections:
            if each.principal.kind == "peer":
                found[each.principal.name] = found.get(each.principal.name, 0) + 1
        return found

    def link_index(self, host: str | None = None) -> Index:
        """Return the names of attached and suspended links; see `management_rows.RowIndex`."""
        found: list[tuple[str, Callable[[str], Row]]] = []
        for each in self._in_host(host):
            found += each.link_index()
        if self.amqp10 is not None:
            found += suspended_index(self.amqp10.suspended, host)
        return found

    def transaction_rows(self) -> list[Row]:
        """Return a row for each open local transaction."""
        return [row for each in self.connections for row in each.transaction_rows()]

    def contract_rows(self) -> list[Row]:
        """Return, for each peer and user with a contract, its limits and their use."""
        rows = self._contracts.rows()
        here = {row["name"] for row in rows}
        absent = [
            terms.row(key, self._broker.accounts.find(key))
            for key, terms in sorted(declared_contracts(self._config()).items())
            if key not in here
        ]
        return [*rows, *absent]


def _row_of(connection: ClientConnection, name: str) -> Row:
    return connection.row()
