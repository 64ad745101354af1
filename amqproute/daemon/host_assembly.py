# SPDX-License-Identifier: Apache-2.0
"""The virtual hosts of the configuration, put in force at the start and by a reload."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from twisted.logger import Logger

from amqproute import conditions
from amqproute.address import host_label, host_of
from amqproute.broker.broker import Broker
from amqproute.config.schema import Config
from amqproute.daemon.access_control import AccessControl
from amqproute.daemon.config_reload import Apply
from amqproute.errors import ConfigError
from amqproute.frontends.common.client_connection import ClientConnection
from amqproute.frontends.common.virtual_hosts import VirtualHosts, VirtualHostTerms
from amqproute.plurals import counted
from amqproute.services.management_rows import Row, octets_on

__all__ = ["ConfiguredHosts"]


class ConfiguredHosts:
    """The virtual hosts in force.

    Args:
        broker: the broker whose nodes they hold.
        access: their access rules.
        own_domains: gives the domains of the broker, those of virtual hosts included.
        connections: gives the open connections.

    Attributes:
        hosts: them, as frontends see them.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        access: AccessControl,
        own_domains: Callable[[], Collection[str]],
        connections: Callable[[], Sequence[ClientConnection]],
    ) -> None:
        self.hosts = VirtualHosts(own_domains, access.may_open)
        self._broker = broker
        self._connections = connections

    def prepare(self, config: Config) -> Apply:
        """See `config_reload.Prepare`.

        A virtual host that holds messages stays: a typing error in a file must not hide them.

        Raises:
            ConfigError: one that the configuration does not name any more holds messages.
        """
        wanted = config.virtual_hosts
        gone = [name for name in self.hosts.names if name not in wanted]
        problems = [words for name in gone if (words := self._why_stays(name))]
        if problems:
            raise ConfigError(problems)
        terms = {
            name: VirtualHostTerms(frozenset(host.domains), host.max_connections)
            for name, host in wanted.items()
        }

        def apply() -> None:
            self.hosts.adopt(terms)
            self._broker.hosts = {name: host.max_nodes for name, host in wanted.items()}
            for name in gone:
                self._remove(name)

        return apply

    def rows(self) -> list[Row]:
        """Return the rows of `virtual-host` entities: those configured, and those with contents."""
        broker = self._broker
        connections = Counter(each.principal.host for each in self._connections())
        topics = Counter(host_of(name) for name in broker.topics)
        found: list[Row] = []
        for host in broker.host_names():
            queues = broker.nodes.of(host).values()
            topology = broker.topologies.get(host)
            most = None if not host else self.hosts.most_connections(host)
            found.append(
                {
                    "name": host_label(host),
                    "type": "virtual-host",
                    "virtual-host": host_label(host),
                    "configured": host in self.hosts,
                    "domains": sorted(self.hosts.domains(host)),
                    "nodes": len(queues) + topics[host],
                    "max-nodes": broker.hosts.get(host),
                    "exchanges": 0 if topology is None else topology.graph.exchange_count,
                    "connections": connections[host],
                    "max-connections": most,
                    "messages": sum([queue.depth for queue in queues]),
                    "bytes": sum([octets_on(queue) for queue in queues]),
                }
            )
        return found

    def _why_stays(self, host: str) -> str:
        queues = [queue for queue in self._broker.nodes.of(host).values() if queue.depth]
        topics = [
            topic
            for name, topic in self._broker.topics.items()
            if host_of(name) == host and topic.durable
        ]
        if not queues and not topics:
            return ""
        held = []
        if queues:
            messages = counted(sum([queue.depth for queue in queues]), "message")
            held.append(f"{messages} in {counted(len(queues), 'queue')}")
        if topics:
            count = sum([len(topic.durable) for topic in topics])
            held.append(counted(count, "durable subscription"))
        return (
            f"virtual-hosts: {host}: cannot be removed while it holds {' and '.join(held)}: "
            "consume or purge them first"
        )

    def _remove(self, host: str) -> None:
        """Close its connections; its exchanges and queues wait for its return."""
        words = f"the virtual host {host!r} was removed from the configuration"
        for connection in self._connections():
            if connection.principal.host == host:
                connection.close(conditions.CONNECTION_FORCED, words)
        if count := self._broker.node_count(host):
            self.log.warn(
                "virtual host {host} is not in the configuration any more: {nodes} of it stay, and "
                "nobody reaches them; delete them with `amqproute queue delete //{host}/NAME`",
                host=host,
                nodes=counted(count, "node"),
            )

    def warn_of_unknown(self) -> None:
        """Say in the log what the store holds of virtual hosts that are not configured."""
        found = {host_of(name) for name in (*self._broker.nodes, *self._broker.topics)}
        for host in sorted(found):
            if host not in self.hosts:
                self._remove(host)
