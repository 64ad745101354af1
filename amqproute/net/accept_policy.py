# SPDX-License-Identifier: Apache-2.0
"""Admission of connections at listeners, and which connections make room: no sockets here.

A connection is *mute* until its peer has authenticated and opened. Strangers can make mute
connections at no cost, so these are shared out:

* An address (IPv6: a /64) and a network (IPv4: a /24, IPv6: a /48) have a share of mute connections
  at a listener. A listed network, such as a NAT gateway, has a share of its own size, for each of
  its addresses and for all of them.
* When a share or all places are in use, the oldest mute connection makes room: within the share, or
  of the network that uses the largest part of its share. It is closed at once for a newcomer from a
  network with fewer, or from a known address, and otherwise only after `LEAST_SECONDS`: closing a
  connection before its peer could answer helps nobody.
* Two tenths of all places are reserved: one (`RESERVED`) for addresses whose peers have
  authenticated before and for brokers of other domains, and one for those brokers only. The memory
  of such addresses is bounded and ages (`MOST_ADDRESSES`, `MEMORY_SECONDS`). Their mute connections
  do not count towards their network.

* A user, or another domain's broker, may have as many connections, at one listener and at all of
  them, as places would still be free of other authenticated ones: one alone has half. A user with a
  number of connections by contract is limited to that number instead, by the frontend.

Unix sockets have no shares by address, and may use the reserved places.

`AcceptPolicy` covers all listeners of a daemon and their common limit; `ListenerPlaces` is the part
of one listener. The time of each decision is independent of the number of connections.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

__all__ = [
    "LEAST_SECONDS",
    "AcceptPolicy",
    "AcceptTerms",
    "Admit",
    "CloseFirst",
    "IpNetwork",
    "ListenerPlaces",
    "PeerStanding",
    "Refuse",
    "contains",
]

LEAST_SECONDS: Final = 3.0
"""Age up to which a mute connection is not closed for newcomers without a better claim."""

RESERVED: Final = 10
"""One place in this many is reserved for known addresses, and one for other domains' brokers."""

MOST_ADDRESSES: Final = 10_000
"""Bound on known addresses, and on those of brokers; the least recently used is forgotten."""

MEMORY_SECONDS: Final = 7 * 86400.0
"""Time for which an address stays known after its last authentication."""

_IPV4_PREFIX: Final = 24
_IPV6_PREFIX: Final = 48
_HOST_PREFIX: Final = 64  # of IPv6: who owns one address of a /64 owns all (RFC 4291 §2.5.4)
_CLASSES: Final = 33

_NONE: Final[OrderedDict[Hashable, float]] = OrderedDict()

IpNetwork = IPv4Network | IPv6Network


class PeerStanding(IntEnum):
    """Familiarity of an address or a connection's peer, in ascending order."""

    STRANGER = 0
    ANONYMOUS = 1
    KNOWN = 2
    BROKER = 3


@dataclass(frozen=True, slots=True)
class AcceptTerms:
    """The shares of one listener.

    Attributes:
        places: connections open at one time.
        per_address: mute connections of one address.
        per_network: mute connections of one network.
        shares: listed networks and their shares; the narrowest counts.
        balancers: networks that must, and alone may, use the PROXY protocol.
    """

    places: int
    per_address: int
    per_network: int
    shares: Sequence[tuple[IpNetwork, int]] = ()
    balancers: Sequence[IpNetwork] = ()


@dataclass(frozen=True, slots=True)
class Admit:
    """Accept the connection."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Close the new connection; `limit` is the bound it has met, as text."""

    limit: str


@dataclass(frozen=True, slots=True)
class CloseFirst:
    """Close the mute connection `victim`, report its end with `leave`, and accept the new one."""

    victim: Hashable
    limit: str


AcceptDecision = Admit | Refuse | CloseFirst


@dataclass(frozen=True, slots=True)
class _Source:
    """The accounting keys of a connection's origin; no address for a unix socket."""

    address: str
    network: str
    address_share: int
    network_share: int


@dataclass(slots=True)
class _Entry:
    source: _Source
    since: float
    standing: PeerStanding = PeerStanding.STRANGER
    user: str = ""


class _Users:
    """Connections by user."""

    def __init__(self) -> None:
        self._count: dict[str, int] = {}
        self._total = 0

    def add(self, user: str) -> None:
        self._count[user] = self._count.get(user, 0) + 1
        self._total += 1

    def remove(self, user: str) -> None:
        self._total -= 1
        self._count[user] -= 1
        if not self._count[user]:
            del self._count[user]

    def excess(self, user: str, places: int) -> int:
        """Return the share of a user who exceeds it; 0 for others."""
        own = self._count.get(user, 0)
        share = max(1, (places - (self._total - own) + 1) // 2)
        return share if own > share else 0


class _Memory:
    """Addresses whose peers have authenticated."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def has(self, address: str, now: float) -> bool:
        seen = self._seen.get(address)
        return seen is not None and now - seen < MEMORY_SECONDS

    def add(self, address: str, now: float) -> None:
        self._seen[address] = now
        self._seen.move_to_end(address)
        if len(self._seen) > MOST_ADDRESSES:
            self._seen.popitem(last=False)


class AcceptPolicy:
    """All listeners of a daemon.

    Args:
        limit: connections at all of them together.

    Attributes:
        limit: the limit, as given; may be lowered before the first connection.
        count: present connections.
        users: authenticated connections by user.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0
        self._listeners: list[ListenerPlaces] = []
        self.users = _Users()
        self._known = _Memory()
        self._brokers = _Memory()

    def listener(self, terms: AcceptTerms) -> ListenerPlaces:
        """Return the part of one listener."""
        places = ListenerPlaces(self, terms)
        self._listeners.append(places)
        return places

    def standing(self, address: str, now: float) -> PeerStanding:
        """Return the standing of an address in the form of `address_key`."""
        if not address or self._brokers.has(address, now):
            return PeerStanding.BROKER
        return PeerStanding.KNOWN if self._known.has(address, now) else PeerStanding.STRANGER

    def remember(self, address: str, standing: PeerStanding, now: float) -> None:
        """Record that a peer at an address, in the form of `address_key`, has authenticated."""
        if address and standing >= PeerStanding.KNOWN:
            (self._brokers if standing is PeerStanding.BROKER else self._known).add(address, now)

    def leave(self, key: Hashable) -> None:
        """Record the end of a connection, at any listener."""
        for places in self._listeners:
            places.leave(key)

    def fullest(self) -> tuple[int, Hashable, float] | None:
        """Return the network that uses the largest part of its share; None if none is mute.

        Returns:
            Its class, and the key and arrival time of its oldest mute connection.
        """
        found = [each for places in self._listeners if (each := places.fullest()) is not None]
        return max(found, key=lambda each: (each[0], -each[2]), default=None)


class ListenerPlaces:
    """The places of one listener.

    Attributes:
        terms: its shares.
        closed: mute connections closed to make room, since the start.
        refused: connections refused, since the start.
    """

    def __init__(self, policy: AcceptPolicy, terms: AcceptTerms) -> None:
        self.terms = terms
        self.closed = 0
        self.refused = 0
        self._policy = policy
        self._entries: dict[Hashable, _Entry] = {}
        # Mute connections with their arrival times, oldest first.
        self._by_address: dict[str, OrderedDict[Hashable, float]] = {}
        self._by_network: dict[str, OrderedDict[Hashable, float]] = {}
        # Networks by the used part of their share, in powers of two.
        self._classes: list[dict[str, None]] = [{} for _ in range(_CLASSES)]
        self._class_of: dict[str, int] = {}
        self._anonymous: dict[str, int] = {}
        self._users = _Users()
        self._shares = sorted(terms.shares, key=lambda each: each[0].prefixlen, reverse=True)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def mute(self) -> int:
        """Number of mute connections."""
        return sum(map(len, self._by_network.values()))

    def adopt(self, terms: AcceptTerms) -> None:
        """Apply other terms from the next connection on; no connection is closed for them."""
        self.terms = terms
        self._shares = sorted(terms.shares, key=lambda each: each[0].prefixlen, reverse=True)

    def decide(self, host: str, now: float) -> AcceptDecision:
        """Decide about a new connection; changes only the counters of refusals.

        Args:
            host: its IP address; empty for a unix socket.
            now: monotonic time, seconds.
        """
        decision = self._decide(self._source(host, now), now)
        if isinstance(decision, CloseFirst):
            self.closed += 1
        elif isinstance(decision, Refuse):
            self.refused += 1
        return decision

    def enter(self, key: Hashable, host: str, now: float) -> None:
        """Record an accepted connection."""
        source = self._source(host, now)
        self._entries[key] = _Entry(source, now)
        self._policy.count += 1
        if source.address:
            self._by_address.setdefault(source.address, OrderedDict())[key] = now
            self._by_network.setdefault(source.network, OrderedDict())[key] = now
            self._classify(source)

    def authenticated(
        self, key: Hashable, standing: PeerStanding, now: float, user: str = ""
    ) -> str | None:
        """Record the peer of a connection; does nothing if the connection has ended.

        Args:
            key: the connection.
            standing: the standing of its peer.
            now: monotonic time, seconds.
            user: the user with a share of the places; empty for nobody.

        Returns:
            The share, as text, that the user exceeds with this connection, or None. The connection
            is counted anyway while it is open.
        """
        entry = self._entries.get(key)
        if entry is None or entry.standing is not PeerStanding.STRANGER:
            return None
        self._unmute(key, entry)
        entry.standing = standing
        if standing is PeerStanding.ANONYMOUS:
            network = entry.source.network
            self._anonymous[network] = self._anonymous.get(network, 0) + 1
        self._policy.remember(entry.source.address, standing, now)
        if not user or standing is PeerStanding.ANONYMOUS:
            return None
        entry.user = user
        self._users.add(user)
        self._policy.users.add(user)
        for users, places, where in (
            (self._users, self.terms.places, "at this listener"),
            (self._policy.users, self._policy.limit, "in all"),
        ):
            share = users.excess(user, places)
            if share:
                return f"{share} of {places} connections {where}"
        return None

    def leave(self, key: Hashable) -> None:
        """Record the end of a connection; does nothing the second time."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._policy.count -= 1
        if entry.user:
            self._users.remove(entry.user)
            self._policy.users.remove(entry.user)
        if entry.standing is PeerStanding.STRANGER:
            self._unmute(key, entry)
        elif entry.standing is PeerStanding.ANONYMOUS:
            left = self._anonymous[entry.source.network] - 1
            self._anonymous[entry.source.network] = left
            if not left:
                del self._anonymous[entry.source.network]

    def fullest(self) -> tuple[int, Hashable, float] | None:
        """As `AcceptPolicy.fullest`, for this listener."""
        for number in range(_CLASSES - 1, -1, -1):
            for network in self._classes[number]:
                key, since = next(iter(self._by_network[network].items()))
                return number, key, since
        return None

    def _decide(self, source: _Source, now: float) -> AcceptDecision:
        terms, policy = self.terms, self._policy
        standing = policy.standing(source.address, now)
        if source.address:
            own = self._by_address.get(source.address, _NONE)
            if len(own) >= source.address_share:
                limit = f"{source.address_share} for {source.address}"
                return _replace(own, source.address_share, now, limit)
            beside = self._by_network.get(source.network, _NONE)
            if len(beside) >= source.network_share:
                limit = f"{source.network_share} for {source.network}"
                return _replace(beside, source.network_share, now, limit)
            if self._anonymous.get(source.network, 0) > terms.places // 2:
                return Refuse(f"half of the places for anonymous clients from {source.network}")
        if len(self._entries) >= _open_to(standing, terms.places):
            limit = f"{terms.places} at this listener"
            return self._make_room(source, standing, self.fullest(), now, limit)
        if policy.count >= _open_to(standing, policy.limit):
            limit = f"{policy.limit} in all"
            return self._make_room(source, standing, policy.fullest(), now, limit)
        return Admit()

    def _make_room(
        self,
        source: _Source,
        standing: PeerStanding,
        fullest: tuple[int, Hashable, float] | None,
        now: float,
        limit: str,
    ) -> AcceptDecision:
        if fullest is None:
            return Refuse(limit)
        number, key, since = fullest
        claim = self._class(source, 1) if standing < PeerStanding.KNOWN else 0
        if number > claim or now - since >= LEAST_SECONDS:
            return CloseFirst(key, limit)
        return Refuse(limit)

    def _source(self, host: str, now: float) -> _Source:
        """Return the accounting keys of a connection."""
        terms = self.terms
        address = _parsed(host)
        if address is None:
            return _Source(host, host, terms.per_address, terms.per_network)
        own = _own_key(address)
        for network, share in self._shares:
            if network.version == address.version and address in network:
                return _Source(own, str(network), share, share)
        if self._policy.standing(own, now) > PeerStanding.STRANGER:
            return _Source(own, own, terms.per_address, terms.per_address)
        prefix = _IPV4_PREFIX if isinstance(address, IPv4Address) else _IPV6_PREFIX
        network_key = str(ip_network((address.packed, prefix), strict=False))
        return _Source(own, network_key, terms.per_address, terms.per_network)

    def _unmute(self, key: Hashable, entry: _Entry) -> None:
        source = entry.source
        if not source.address:
            return
        for table, name in (
            (self._by_address, source.address),
            (self._by_network, source.network),
        ):
            del table[name][key]
            if not table[name]:
                del table[name]
        self._classify(source)

    def _class(self, source: _Source, more: int = 0) -> int:
        """Return the class of a network: the used part of its share, whatever the share's size."""
        count = len(self._by_network.get(source.network, ())) + more
        part = -(-count * self.terms.per_network // max(1, source.network_share))
        return min(part.bit_length(), _CLASSES - 1)

    def _classify(self, source: _Source) -> None:
        network = source.network
        number = self._class(source)
        before = self._class_of.get(network, 0)
        if number == before:
            return
        self._classes[before].pop(network, None)
        if number:
            self._class_of[network] = number
            self._classes[number][network] = None
        else:
            del self._class_of[network]


def contains(networks: Sequence[IpNetwork], host: str) -> bool:
    """Return whether an address is in one of the networks; False for other text."""
    address = _parsed(host)
    return address is not None and any(
        network.version == address.version and address in network for network in networks
    )


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _own_key(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv6Address):
        return str(ip_network((address.packed, _HOST_PREFIX), strict=False))
    return str(address)


def _open_to(standing: PeerStanding, places: int) -> int:
    """Return how many of `places` may be in use for a peer of this standing to get one."""
    kept = places // RESERVED
    return places - kept * max(0, PeerStanding.BROKER - max(standing, PeerStanding.ANONYMOUS))


def _replace(
    mute: OrderedDict[Hashable, float], share: int, now: float, limit: str
) -> AcceptDecision:
    """Replace the oldest connection of a full share, if it is old enough.

    One after the other and never all of them at once, which would affect everybody else.
    """
    key, since = next(iter(mute.items()))
    newest = next(reversed(mute.values()))
    if now - since >= LEAST_SECONDS and now - newest >= LEAST_SECONDS / share:
        return CloseFirst(key, limit)
    return Refuse(limit)
