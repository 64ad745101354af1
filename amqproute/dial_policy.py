# SPDX-License-Identifier: Apache-2.0
"""The rules on addresses from the DNS that this broker may connect to.

Anybody can publish an SRV record, and it may name any host, port and address, including those
behind our own firewall. `TargetPolicy` decides, for each address after its look-up, whether it may
be dialed for a domain. The decision is a function of the address, the port, the domain, the
configuration and this host's own addresses; it makes no queries and no connections.

=====================================================  ============================================
an address of                                          may be dialed
=====================================================  ============================================
this network (0.0.0.0/8, ::), multicast, broadcast     never: no broker can be there
loopback, link-local, reserved ranges                  if `resolver.allow-targets` has an entry
                                                       within that range
this host                                              if `resolver.allow-targets` has exactly it
private use, shared (100.64.0.0/10), unique-local      if the operator names the domain under
                                                       `routes` or `peers` (a wildcard names none),
                                                       or by `resolver.allow-targets`
anything else                                          always
=====================================================  ============================================

A wide entry such as ``0.0.0.0/0`` therefore opens private networks, and neither loopback nor this
host: those need explicit entries. `resolver.deny-targets` takes precedence over all of it.

An IPv6 address that embeds an IPv4 address (mapped, compatible, NAT64, SIIT, 6to4, Teredo) is
judged as that one. Within the local-use NAT64 prefix 64:ff9b:1::/48 the place of the IPv4 address
depends on the length of the prefix in use (RFC 6052 §2.2); every possible reading must be allowed.
A zone index (``fe80::1%eth0``) is ignored.

Ports below 1024, except 443, and the `OTHER_SERVICES` are dialed only with `resolver.allow-ports`,
for any domain.

The ranges are those of the IANA registries of special-purpose addresses (RFC 6890 and updates, as
of 2025), copied here, because the standard library's notion of private and reserved changes with
its version.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final

__all__ = ["OTHER_SERVICES", "Denied", "TargetPolicy", "is_impossible", "meanings"]

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class _Rule(enum.Enum):
    """The condition for dialing an address of a range."""

    NEVER = "never"
    IN_WORDS = "in words"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of the registries.

    Attributes:
        network: the range.
        words: its purpose.
        rule: the condition for dialing an address in it.
    """

    network: Network
    words: str
    rule: _Rule


def _ranges(rule: _Rule, words: str, *networks: str) -> list[_Range]:
    return [_Range(ip_network(network), words, rule) for network in networks]


_SPECIAL: Final[tuple[_Range, ...]] = (
    *_ranges(_Rule.NEVER, "unspecified", "0.0.0.0/8", "::/128"),
    *_ranges(_Rule.NEVER, "broadcast", "255.255.255.255/32"),
    *_ranges(_Rule.NEVER, "multicast", "224.0.0.0/4", "ff00::/8"),
    *_ranges(_Rule.IN_WORDS, "loopback", "127.0.0.0/8", "::1/128"),
    *_ranges(_Rule.IN_WORDS, "link-local", "169.254.0.0/16", "fe80::/10"),
    *_ranges(_Rule.NAMED, "private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
    *_ranges(_Rule.NAMED, "shared", "100.64.0.0/10"),
    *_ranges(_Rule.NAMED, "unique-local", "fc00::/7"),
    *_ranges(_Rule.IN_WORDS, "reserved (protocol assignments)", "192.0.0.0/24", "2001::/23"),
    *_ranges(
        _Rule.IN_WORDS,
        "reserved (documentation)",
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
    ),
    *_ranges(_Rule.IN_WORDS, "reserved (benchmarking)", "198.18.0.0/15"),
    *_ranges(_Rule.IN_WORDS, "reserved (former 6to4 relays)", "192.88.99.0/24"),
    *_ranges(_Rule.IN_WORDS, "reserved (former site-local)", "fec0::/10"),
    *_ranges(_Rule.IN_WORDS, "reserved (discard)", "100::/64", "100:0:0:1::/64"),
    *_ranges(_Rule.IN_WORDS, "reserved (segment routing)", "5f00::/16"),
    *_ranges(_Rule.IN_WORDS, "reserved", "240.0.0.0/4"),
)
"""The first range that contains an address counts."""

_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""The allocated part of IPv6; addresses outside of it, and in no range above, are reserved."""
_UNASSIGNED: Final = (
    IPv6Network("::/3"),
    IPv6Network("4000::/2"),
    IPv6Network("8000::/1"),
)

_LOW_32: Final = (
    IPv6Network("::ffff:0:0/96"),  # mapped (RFC 4291 §2.5.5.2)
    IPv6Network("::ffff:0:0:0/96"),  # translated (RFC 2765)
    IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
)
_COMPATIBLE: Final = IPv6Network("::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_SIX_TO_FOUR: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")

_LAST_WELL_KNOWN: Final = 1023
_HTTPS: Final = 443
"""The one port below 1024 that may be dialed: some firewalls pass no other, and brokers use it."""

OTHER_SERVICES: Final[dict[int, str]] = {
    1080: "SOCKS",
    1099: "Java RMI",
    1433: "SQL Server",
    1434: "SQL Server",
    1521: "Oracle",
    1883: "MQTT",
    2049: "NFS",
    2181: "ZooKeeper",
    2375: "Docker",
    2376: "Docker",
    2377: "Docker Swarm",
    2379: "etcd",
    2380: "etcd",
    3000: "HTTP",
    3128: "an HTTP proxy",
    3260: "iSCSI",
    3268: "Active Directory",
    3269: "Active Directory",
    3306: "MySQL",
    3389: "Remote Desktop",
    4369: "Erlang's port mapper",
    4505: "Salt",
    4506: "Salt",
    5000: "HTTP",
    5060: "SIP",
    5061: "SIP",
    5222: "XMPP",
    5269: "XMPP",
    5432: "PostgreSQL",
    5601: "Kibana",
    5900: "VNC",
    5901: "VNC",
    5984: "CouchDB",
    5985: "WinRM",
    5986: "WinRM",
    6000: "X11",
    6379: "Redis",
    6443: "Kubernetes",
    6667: "IRC",
    7000: "Cassandra",
    7001: "Cassandra",
    7474: "Neo4j",
    7687: "Neo4j",
    8000: "HTTP",
    8080: "HTTP",
    8081: "HTTP",
    8086: "InfluxDB",
    8088: "HTTP",
    8200: "Vault",
    8443: "HTTPS",
    8500: "Consul",
    8883: "MQTT",
    8888: "HTTP",
    9000: "HTTP",
    9042: "Cassandra",
    9090: "Prometheus",
    9092: "Kafka",
    9093: "Kafka",
    9100: "printers",
    9200: "Elasticsearch",
    9300: "Elasticsearch",
    9418: "Git",
    10250: "Kubernetes",
    10255: "Kubernetes",
    11211: "memcached",
    15672: "RabbitMQ's management",
    25672: "RabbitMQ's cluster",
    27017: "MongoDB",
    27018: "MongoDB",
    27019: "MongoDB",
}
"""Ports commonly used by other services. None of 32768 and above: those are assigned at random to
any listener."""


@dataclass(frozen=True, slots=True)
class Denied:
    """An address that may not be dialed.

    Attributes:
        reason: for operators, to follow the address or port: "it is loopback (127.0.0.0/8)".
        remedy: the setting that would allow it; empty if there is none.
    """

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


def _nobody() -> Collection[Address]:
    return ()


@dataclass(frozen=True)
class TargetPolicy:
    """The rules of a configuration.

    Attributes:
        is_named: whether the operator names a domain, without a wildcard.
        allowed: `resolver.allow-targets`.
        denied: `resolver.deny-targets`.
        ports: `resolver.allow-ports`.
        own: returns the addresses of this host's interfaces.
    """

    is_named: Callable[[str], bool]
    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()
    ports: frozenset[int] = frozenset()
    own: Callable[[], Collection[Address]] = _nobody

    @classmethod
    def of(
        cls,
        *,
        allow: Iterable[str] = (),
        deny: Iterable[str] = (),
        ports: Iterable[int] = (),
        is_named: Callable[[str], bool] = lambda _: False,
        own: Callable[[], Collection[Address]] = _nobody,
    ) -> TargetPolicy:
        """Make a policy of networks as text.

        Raises:
            ValueError: one of them is not a network.
        """
        allowed, denied = tuple(map(ip_network, allow)), tuple(map(ip_network, deny))
        return cls(is_named, allowed, denied, frozenset(ports), own)

    def judge(self, address: str, port: int, domain: str) -> Denied | None:
        """Decide whether an address and port may be dialed for a domain; None if so.

        Args:
            address: IPv4 or IPv6, as text.
            port: the TCP port.
            domain: the normalized domain whose records lead there.
        """
        return self.judge_port(port) or self.judge_address(address, domain)

    def judge_port(self, port: int) -> Denied | None:
        """Decide whether a port may be dialed, at any address; None if so."""
        if port in self.ports:
            return None
        if port <= _LAST_WELL_KNOWN and port != _HTTPS:
            reason = f"port {port} is one of those below 1024"
        elif port in OTHER_SERVICES:
            reason = f"port {port} is {OTHER_SERVICES[port]} by custom"
        else:
            return None
        return Denied(reason, f"allow it by resolver.allow-ports: [{port}]")

    def judge_address(self, text: str, domain: str) -> Denied | None:
        """Decide whether an address may be dialed for a domain, at any port; None if so."""
        try:
            written = _plain(text)
        except ValueError:
            return Denied("it is no IP address")
        meant = meanings(written)
        spellings = (written, *meant)
        for network in self.denied:
            if any(each in network for each in spellings):
                return Denied(
                    f"it lies in {network}, which resolver.deny-targets excludes",
                    f"take {network} out of resolver.deny-targets",
                )
        if not meant:
            return Denied("it can be read as no IPv4 address", _allow_one(written))
        for each in meant:
            denied = self._judge(each, spellings, domain)
            if denied is not None:
                if each != written:
                    return Denied(f"it stands for {each}: {denied.reason}", denied.remedy)
                return denied
        return None

    def _judge(
        self, address: Address, spellings: Collection[Address], domain: str
    ) -> Denied | None:
        found = _range_of(address)
        words = "" if found is None else f"it is {found.words} ({found.network})"
        if found is not None and found.rule is _Rule.NEVER:
            return Denied(f"{words}, where no broker can be")
        if found is None or found.words != "loopback":
            own = address in self.own()
            if own and not self._has_exactly(address):
                return Denied("it is an address of this host", _allow_one(address))
        if found is None:
            return None
        if found.rule is _Rule.IN_WORDS:
            if any(address in entry and _is_within(entry, found.network) for entry in self.allowed):
                return None
            return Denied(words, _allow_one(address))
        if self.is_named(domain) or any(
            each in entry for entry in self.allowed for each in spellings
        ):
            return None
        return Denied(
            f"{words}, and {domain} is not named under peers or routes",
            f"allow it by resolver.allow-targets, or name {domain} under peers",
        )

    def _has_exactly(self, address: Address) -> bool:
        return ip_network(address) in self.allowed


def is_impossible(network: str) -> bool:
    """Return whether no address of a network may be dialed with any configuration."""
    wanted = ip_network(network)
    return any(each.rule is _Rule.NEVER and _is_within(wanted, each.network) for each in _SPECIAL)


def meanings(address: Address) -> tuple[Address, ...]:
    """Return the addresses at which a connection to an address may end.

    That is the address itself, or the IPv4 addresses that it embeds; none, if it should embed one
    that cannot be read.
    """
    if isinstance(address, IPv4Address):
        return (address,)
    bits = int(address)
    if any(address in network for network in _LOW_32):
        return (_ipv4(bits),)
    if address in _COMPATIBLE and bits > 1:  # :: and ::1 embed none
        return (_ipv4(bits),)
    if address in _SIX_TO_FOUR:
        return (_ipv4(bits >> 80),)
    if address in _TEREDO:
        return (_ipv4(~bits), _ipv4(bits >> 64))  # the client, and the server that leads to it
    if address in _LOCAL_NAT64:
        return _readings(bits)
    return (address,)


def _readings(bits: int) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses within a local-use NAT64 address, by the lengths of RFC 6052 §2.2.

    The octet after the first 64 bits is 0, and so are all after the IPv4 address. A reading as an
    address of "this network" has the wrong length, unless there is no other.
    """
    if bits >> 56 & 0xFF:
        return ()
    above, below = bits >> 64, bits & (1 << 56) - 1
    found = [_ipv4(bits)]
    for behind in (16, 24, 32):  # prefixes of 48, 56, 64: the number of bits after that octet
        length = 32 - behind
        if not below & (1 << 56 - behind) - 1:
            found.append(_ipv4((above & (1 << length) - 1) << behind | below >> 56 - behind))
    real = tuple(dict.fromkeys(each for each in found if int(each) >> 24))
    return real or (found[0],)


def _ipv4(bits: int) -> IPv4Address:
    return IPv4Address(bits & 0xFFFFFFFF)


def _plain(text: str) -> Address:
    """Parse an address, without its zone index.

    Raises:
        ValueError: it is not an address.
    """
    return ip_address(text.partition("%")[0])


@lru_cache(maxsize=4096)
def _range_of(address: Address) -> _Range | None:
    for each in _SPECIAL:
        if address in each.network:
            return each
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        network = next(each for each in _UNASSIGNED if address in each)
        return _Range(network, "reserved", _Rule.IN_WORDS)
    return None


def _is_within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network):
        return inner.subnet_of(outer)
    return False


def _allow_one(address: Address) -> str:
    return f'allow it by resolver.allow-targets: ["{ip_network(address)}"]'
