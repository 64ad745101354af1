# SPDX-License-Identifier: Apache-2.0
"""Assembly of the parts that find and authenticate peers.

The command line builds the same parts from the same configuration, so that `explain` agrees with
the daemon.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address, ip_network
from types import MappingProxyType

from twisted.internet.defer import Deferred

from amqproute import __version__
from amqproute.config.field_types import matches_domain
from amqproute.config.schema import Config
from amqproute.dial_policy import TargetPolicy
from amqproute.errors import ConfigError
from amqproute.net.connector import Connector
from amqproute.net.inbound_trust import InboundTrust
from amqproute.net.own_addresses import OwnAddresses
from amqproute.net.peer_trust import TrustLevel, TrustPolicy, parse_pin
from amqproute.net.reactor import IReactor
from amqproute.net.tls import TlsContexts
from amqproute.resolver.anchors import read_anchors
from amqproute.resolver.dns_cache import CacheLimits, DnsCache
from amqproute.resolver.dns_client import ClientLimits, DnsClient
from amqproute.resolver.dnssec import DnssecValidator
from amqproute.resolver.dnssec_probe import DnssecProbe
from amqproute.resolver.nameservers import Nameserver, parse_nameserver, read_resolv_conf
from amqproute.resolver.srv import DnssecTerms, DnssecUse, SrvResolver
from amqproute.turn_scheduler import TurnScheduler
from amqproute.values import TRANSFER_CAPABILITY, NextHop, Resolution, TransportSecurity
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.sasl_mechanisms import ANONYMOUS, EXTERNAL, SaslClient, client_mechanism

__all__ = [
    "make_contexts",
    "make_inbound_trust",
    "make_judge",
    "make_resolver",
    "make_targets",
    "own_places",
    "peer_engine",
    "peer_policy",
    "pinned_policies",
    "product",
    "trusts",
]


def make_contexts(config: Config, *, checks_dates: bool = True) -> TlsContexts | None:
    """Make the TLS contexts of a configuration; None if it has no certificate.

    Args:
        config: the configuration.
        checks_dates: refuse a certificate of ours that is not valid now.

    Raises:
        TlsError: a file cannot be used.
    """
    tls = config.tls
    if tls.certificate is None:
        return None
    return TlsContexts(
        tls.certificate, tls.private_key, tls.trust, crl=tls.crl, checks_dates=checks_dates
    )


def make_targets(
    config: Callable[[], Config], is_routed: Callable[[str], bool] = lambda _: False
) -> Callable[[], TargetPolicy]:
    """Make the source of the rules for places that the DNS may lead to.

    The rules follow the configuration in force, because `peers` and `routes` may change.

    Args:
        config: returns the configuration in force.
        is_routed: returns whether a route made at runtime names a domain.
    """
    own = OwnAddresses(time.monotonic)
    made: tuple[Config, TargetPolicy] | None = None

    def policy() -> TargetPolicy:
        nonlocal made
        current = config()
        if made is None or made[0] is not current:
            settings = current.resolver
            made = (
                current,
                TargetPolicy.of(
                    allow=settings.allow_targets,
                    deny=settings.deny_targets,
                    ports=settings.allow_ports,
                    is_named=lambda domain: current.names(domain) or is_routed(domain),
                    own=own,
                ),
            )
        return made[1]

    return policy


def make_resolver(
    config: Config,
    reactor: IReactor,
    targets: Callable[[], TargetPolicy] | None = None,
    own: frozenset[tuple[str, int]] | None = None,
    turns: TurnScheduler | None = None,
) -> SrvResolver:
    """Make the resolver of a configuration.

    Args:
        config: the configuration.
        reactor: the reactor for queries and timers.
        targets: the targets from `make_targets`; None for the rules of this configuration.
        own: the places of this broker; None for `own_places`. Empty to look up our own domains as
            peers do.
        turns: schedules the reading of answers; None for one of its own.

    Raises:
        ConfigError: the trust anchors cannot be read.
    """
    settings = config.resolver
    servers = [parse_nameserver(text) for text in settings.nameservers] or read_resolv_conf()
    use = DnssecUse(settings.dnssec)
    validator = None
    if settings.validate_by == "self" and use is not DnssecUse.OFF:
        validator = make_validator(config)
    client = DnsClient(
        reactor,
        servers,
        random.SystemRandom(),
        limits=ClientLimits(deadline=2 * settings.timeout, try_timeout=settings.timeout / 2),
        authentication=use is not DnssecUse.OFF,
        trusts=trusts(config),
        validator=validator,
        turns=turns,
    )
    cache_limits = CacheLimits(
        max_entries=settings.cache_entries,
        max_ttl=settings.cache_longest,
        max_negative_ttl=settings.cache_longest_negative,
    )
    return SrvResolver(
        client,
        DnsCache(reactor, cache_limits, lambda answer: answer.octets),
        random.SystemRandom().random,
        reactor,
        targets=targets or make_targets(lambda: config),
        dnssec=DnssecTerms(
            use,
            DnssecProbe(
                client, reactor, zone=settings.dnssec_probe, refusal=_no_dnssec(use, client)
            ),
        ),
        own=own_places(config) if own is None else own,
    )


def make_validator(config: Config) -> DnssecValidator:
    """Make the DNSSEC validator of this process.

    Raises:
        ConfigError: the trust anchors cannot be read.
    """
    path = config.resolver.anchors
    try:
        return DnssecValidator(read_anchors(path), time.time)
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or str(error)
        place = config.source.place_of(("resolver", "anchors"))
        raise ConfigError([f"{place}: resolver.anchors: {path}: {words}"]) from error


def _no_dnssec(use: DnssecUse, client: DnsClient) -> str:
    """Return the reason why DNSSEC need not be probed; empty if it has to be."""
    if use is DnssecUse.OFF:
        return "resolver.dnssec is off"
    if not client.validates and not client.is_trusting:
        servers = ", ".join(map(str, client.nameservers))
        return (
            f"the AD bit of {servers} is not trusted; use a validating resolver on this machine, "
            "or name its network under resolver.trusted if the way there is safe, or set "
            "resolver.validate: self"
        )
    return ""


def trusts(config: Config) -> Callable[[Nameserver], bool]:
    """Return whether a name server's AD bit is trusted: on loopback, or where configured."""
    networks = [ip_network(text) for text in config.resolver.trusted]

    def is_trusted(server: Nameserver) -> bool:
        address = ip_address(server.host.partition("%")[0])
        return address.is_loopback or any(address in network for network in networks)

    return is_trusted


def own_places(config: Config) -> frozenset[tuple[str, int]]:
    """Return names and addresses with the ports at which peers reach this broker."""
    names = {*config.local_domains}
    host = socket.gethostname().lower()
    if "." in host:
        names.add(host)
    found: set[tuple[str, int]] = set()
    for listen in config.listen:
        place = listen.parsed
        if not place.port:
            continue
        interface = "127.0.0.1" if place.interface == "localhost" else place.interface
        if interface and not ip_address(interface).is_unspecified:
            found.add((str(ip_address(interface)), place.port))
        found.update((name, place.port) for name in names)
    return frozenset(found)


def peer_policy(config: Config, domain: str) -> TrustPolicy:
    """Return the security policy of a configuration for a domain's brokers."""
    peer = config.peer_for(domain)
    return _policy(peer.level, peer.pin)


@lru_cache(maxsize=4096)
def _policy(level: str, pins: tuple[str, ...]) -> TrustPolicy:
    return TrustPolicy(TrustLevel(level), tuple(map(parse_pin, pins)))


def product() -> dict[str, object]:
    """Return the properties of an open that describe this program."""
    return {"product": "amqproute", "version": __version__}


def peer_engine(
    config: Config,
    hop: NextHop,
    security: TransportSecurity,
    container_id: str,
    properties: Mapping[str, object] = MappingProxyType({}),
) -> Connection:
    """Return the engine of a connection to a peer, for the relay and for `peer test`.

    Args:
        config: the configuration.
        hop: the next hop.
        security: the way in which TLS starts there.
        container_id: ours.
        properties: further properties of the open.
    """
    limits = config.limits
    is_plain = peer_policy(config, hop.domain).level is TrustLevel.NONE
    wants_tls = security is TransportSecurity.UPGRADE and not is_plain
    settings = ConnectionSettings(
        role="client",
        container_id=container_id,
        hostname=hop.domain,
        max_frame_size=limits.max_frame_size,
        idle_timeout=limits.idle_timeout,
        handshake_timeout=limits.handshake_timeout,
        incoming_window=limits.session_window,
        offered_capabilities=(TRANSFER_CAPABILITY,),
        properties={**product(), **properties},
        tls="required" if wants_tls else "none",
    )
    return Connection(settings, sasl_client=_ExternalOnly(else_nobody=is_plain))


class _ExternalOnly:
    """Authentication to a peer: by our certificate, and by nothing else (T-19).

    At level ``none``, where the operator asks nothing of a peer, anonymous is allowed too.
    """

    def __init__(self, *, else_nobody: bool) -> None:
        self._else_nobody = else_nobody

    def choose(self, offered: Sequence[str]) -> SaslClient | None:
        if EXTERNAL in offered:
            return client_mechanism(EXTERNAL)
        if self._else_nobody and ANONYMOUS in offered:
            return client_mechanism(ANONYMOUS)
        return None


def pinned_policies(config: Config) -> Mapping[str, TrustPolicy]:
    """Return the domains whose certificates are pinned."""
    return {
        domain: _policy(peer.level, peer.pin)
        for domain, peer in config.peers.items()
        if peer.level == "pin"
    }


@dataclass(frozen=True, slots=True)
class _Claims:
    """The resolver for claims of connecting peers: nobody dials, so no place is left out.

    Otherwise a peer at an address that is not dialled would have no TLSA records, and weaker
    evidence would be enough.
    """

    resolver: SrvResolver

    def resolve(self, domain: str) -> Deferred[Resolution]:
        """See `amqproute.net.inbound_trust.PeerSource`."""
        return self.resolver.resolve(domain, to_dial=False)

    def is_capable(self) -> Deferred[bool]:
        """See `amqproute.net.inbound_trust.PeerSource`."""
        return self.resolver.is_capable()


@dataclass(frozen=True, slots=True)
class _ConfiguredPolicies:
    """Policies of the configuration in force; see `amqproute.net.inbound_trust.PeerPolicies`."""

    config: Callable[[], Config]

    def policy_for(self, domain: str) -> TrustPolicy:
        return peer_policy(self.config(), domain)

    def pinned(self) -> Mapping[str, TrustPolicy]:
        return pinned_policies(self.config())

    def is_own(self, domain: str) -> bool:
        return domain in self.config().local_domains

    def is_named(self, domain: str) -> bool:
        peers = self.config().peers
        return any(each != "*" and matches_domain(each, domain) for each in peers)


def make_inbound_trust(config: Callable[[], Config], resolver: SrvResolver) -> InboundTrust:
    """Make the authentication of connecting peers, by the configuration in force."""
    return InboundTrust(
        _ConfiguredPolicies(config),
        _Claims(resolver),
        time.time,
    )


def make_judge(config: Config, resolver: SrvResolver | None) -> Connector:
    """Make a connector for its security demands only; it connects nowhere (``explain``).

    Args:
        config: the configuration.
        resolver: for the TLSA records of hosts that routes name; None to use the level alone.
    """
    return Connector(
        None,
        None,
        policy_for=lambda domain: peer_policy(config, domain),
        tlsa=None if resolver is None else resolver.tlsa,
    )
