# SPDX-License-Identifier: Apache-2.0
"""Virtual hosts: selection by a connection, and access to them.

A virtual host is a name space with nodes, exchanges and rights of its own. A connection that has
opened one has a principal of that host (`amqproute.values.Principal.host`), and all requests of a
principal are confined to it: addresses lead to its nodes (`node_access`), and the access rules of
others never apply. The host ``/`` always exists; its name is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from amqproute.errors import NotFound, ResourceLimitExceeded, UnauthorizedAccess
from amqproute.values import Principal

__all__ = ["HOSTNAME_PREFIX", "VirtualHostTerms", "VirtualHosts"]

HOSTNAME_PREFIX: Final = "vhost:"
"""Prefix of a virtual host in the hostname of an open, as in AMQP 1.0 clients of RabbitMQ 4."""


@dataclass(frozen=True, slots=True)
class VirtualHostTerms:
    """One virtual host.

    Attributes:
        domains: the domains of its nodes.
        most_connections: most connections that have it open; None for no bound.
    """

    domains: frozenset[str] = frozenset()
    most_connections: int | None = None


class VirtualHosts:
    """The virtual hosts of a broker.

    Args:
        own_domains: returns the domains of the broker, including those of all virtual hosts.
        may_open: returns whether the access rules let a principal into a virtual host.
    """

    def __init__(
        self,
        own_domains: Callable[[], Collection[str]] = frozenset,
        may_open: Callable[[Principal, str], bool] = lambda *_: False,
    ) -> None:
        self._own_domains = own_domains
        self._may_open = may_open
        self._terms: Mapping[str, VirtualHostTerms] = {}
        self._of_domain: Mapping[str, str] = {}
        self._open: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<VirtualHosts {len(self._terms)} open={self._open.total()}>"

    def adopt(self, terms: Mapping[str, VirtualHostTerms]) -> None:
        """Put a configuration in force; connections keep the virtual host they have opened."""
        self._terms = dict(terms)
        self._of_domain = {
            domain: name for name, each in self._terms.items() for domain in each.domains
        }

    @property
    def names(self) -> Collection[str]:
        """Their names, without that of ``/``."""
        return self._terms.keys()

    def __contains__(self, host: str) -> bool:
        """Return whether there is a virtual host of this name."""
        return not host or host in self._terms

    def most_connections(self, host: str) -> int | None:
        """Return how many connections may have a virtual host open; None for any number."""
        terms = self._terms.get(host)
        return None if terms is None else terms.most_connections

    def domains(self, host: str) -> Collection[str]:
        """Return the domains of a virtual host."""
        if host:
            return self._terms[host].domains if host in self._terms else frozenset()
        return [domain for domain in self._own_domains() if domain not in self._of_domain]

    def connections(self, host: str) -> int:
        """Return the number of connections that have a virtual host open."""
        return self._open[host]

    # -- which one -------------------------------------------------------------------------------

    def named(self, name: str) -> str | None:
        """Return the virtual host named by connection.open, or None (09-CONN-23).

        Some clients leave out the leading slash, so a name counts with and without it (I-08). A
        domain stands for the virtual host that it belongs to.
        """
        plain = name.removeprefix("/")
        if plain in self:
            return plain
        domain = plain.lower().rstrip(".")
        owner = self._of_domain.get(domain)
        if owner is None and domain in self._own_domains():
            return ""
        return owner

    def meant(self, hostname: str | None, principal: Principal) -> str:
        """Return the virtual host for the open of a client of AMQP 1.0.

        Brokers of other organizations are always in ``/``: their hostname is the domain they want.

        Args:
            hostname: the hostname in the open.
            principal: the principal of the client.

        Raises:
            NotFound: it is ``vhost:NAME``, and there is no such virtual host.
        """
        if not hostname or principal.kind == "peer":
            return ""
        if hostname.startswith(HOSTNAME_PREFIX):
            found = self.named(hostname[len(HOSTNAME_PREFIX) :])
            if found is None:
                name = hostname[len(HOSTNAME_PREFIX) :]
                raise NotFound(f"there is no virtual host {name[:128]!r}")
            return found
        if hostname in self._terms:
            return hostname
        return self._of_domain.get(hostname.lower().rstrip("."), "")

    # -- who has it open -------------------------------------------------------------------------

    def enter(self, principal: Principal, host: str) -> Principal:
        """Let a connection into a virtual host, until `leave`.

        Returns:
            Its principal there.

        Raises:
            UnauthorizedAccess: the principal has no right there.
            ResourceLimitExceeded: it is open on as many connections as allowed.
        """
        if not host:
            return principal
        if principal.kind == "peer" or not self._may_open(principal, host):
            raise UnauthorizedAccess(f"access to virtual host {host!r} refused for {principal}")
        most = self._terms[host].most_connections
        if most is not None and self._open[host] >= most:
            raise ResourceLimitExceeded(
                f"the virtual host {host!r} has {most} connections "
                f"(virtual-hosts: {host}: max-connections)",
                info={"limiter": "virtual-host-connections"},
            )
        self._open[host] += 1
        return replace(principal, host=host)

    def leave(self, principal: Principal) -> None:
        """Note the end of a connection that has entered."""
        host = principal.host
        if host:
            self._open[host] -= 1
            if self._open[host] <= 0:
                del self._open[host]
