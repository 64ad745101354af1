# SPDX-License-Identifier: Apache-2.0
"""A fake engine, its user, and an in-memory wire under real TLS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.conditions import Condition
from amqproute.net.authority import issue, make_authority
from amqproute.net.listener import ListenerTls
from amqproute.net.peer_trust import TrustPolicy
from amqproute.net.pump import (
    ConnectionOwner,
    ConnectionResources,
    EngineProtocol,
    IUpgradableUser,
    PumpLimits,
    TransportFacts,
)
from amqproute.net.tls import TlsContexts
from amqproute.wire.amqp10.spec import Error
from amqproute.wire.engine import EngineBase, TlsAgreed


class Owner(ConnectionOwner):
    """Calls a function when a connection is lost."""

    def __init__(self, lost: Callable[[EngineProtocol, Failure], object]) -> None:
        self._lost = lost

    def connection_lost(self, protocol: EngineProtocol, reason: Failure) -> None:
        self._lost(protocol, reason)


@dataclass
class Policies:
    """Demands of a test on peers; see `amqproute.net.inbound_trust.PeerPolicies`."""

    policy_for: Callable[[str], TrustPolicy]
    pinned: Callable[[], Mapping[str, TrustPolicy]] = dict
    is_named: Callable[[str], bool] = lambda _: False
    is_own: Callable[[str], bool] = lambda _: False


def listener_options(**options: Any) -> dict[str, Any]:
    """Return arguments of `Listener` from its own and those of its parts."""
    names = {each.name for each in fields(ListenerTls)}
    parts = {name: options.pop(name) for name in names & options.keys()}
    tls = ListenerTls(mode=options.pop("tls", "none"), **parts)
    resources = ConnectionResources(options.pop("limits", PumpLimits()))
    return {"tls": tls, "resources": resources, **options}


class PretendEngine(EngineBase):
    """Reports what it reads; speaks a line protocol for TLS.

    ``tls\\n`` is what both sides have to say before TLS starts.
    """

    def __init__(self, *, is_client: bool = False, asks_for_tls: bool = False) -> None:
        self.is_client = is_client
        self.asks_for_tls = asks_for_tls
        super().__init__()
        self.deadline: float | None = None
        self.started_at: float | None = None
        self.ticks: list[float] = []
        self.reads: list[bytes] = []
        self.closed_with: Any = None
        self.eof = 0
        self.secured_at: float | None = None
        self._surplus = b""

    def start(self, now: float) -> None:
        self.started_at = now
        if self.is_client and self.asks_for_tls:
            self.output.append(b"tls\n")

    def receive_data(self, data: bytes, now: float, budget: int | None = None) -> list[Any]:
        self.reads.append(data)
        if data.startswith(b"tls\n") and self.secured_at is None:
            if not self.is_client:
                self.output.append(b"tls\n")
            self._surplus = data[4:]
            return [TlsAgreed()]
        if data == b"bug":
            raise ZeroDivisionError("a bug")
        return [("read", data)]

    def take_surplus(self) -> bytes:
        surplus, self._surplus = self._surplus, b""
        return surplus

    def tls_established(self, now: float) -> list[Any]:
        self.secured_at = now
        return [("secured",)]

    def receive_eof(self, now: float) -> list[Any]:
        self.eof += 1
        self.is_closed = True
        return [("eof",)]

    def next_deadline(self) -> float | None:
        return self.deadline

    def tick(self, now: float) -> list[Any]:
        self.ticks.append(now)
        self.deadline = None
        return [("tick", now)]

    def close_with(self, condition: Condition, words: str) -> None:
        self.closed_with = Error(condition=condition, description=words)
        self.output.append(b"close")


@implementer(IUpgradableUser)
class PretendUser:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.pump: EngineProtocol | None = None
        self.got: list[Any] = []
        self.facts: TransportFacts | None = None
        self.reason: Failure | None = None
        self.pauses: list[str] = []
        self.on_events: Callable[[Any], object] | None = None

    def connected(self, pump: EngineProtocol) -> None:
        self.pump = pump

    def secured(self, facts: TransportFacts) -> None:
        self.facts = facts

    def events(self, events: Any) -> None:
        self.got.extend(events)
        if self.on_events is not None:
            self.on_events(events)

    def paused(self) -> None:
        self.pauses.append("paused")

    def writable(self) -> None:
        self.pauses.append("writable")

    def lost(self, reason: Failure) -> None:
        assert self.reason is None, "lost twice"
        self.reason = reason


class Side:
    """One end: makes its engine and user, and remembers them and the facts it was given."""

    def __init__(self, *, is_client: bool = False, asks_for_tls: bool = False) -> None:
        self.engine = PretendEngine(is_client=is_client, asks_for_tls=asks_for_tls)
        self.user = PretendUser()
        self.facts: TransportFacts | None = None

    def make(self, facts: TransportFacts) -> tuple[PretendEngine, PretendUser]:
        assert self.facts is None, "made twice"
        self.facts = facts
        return self.engine, self.user


class WireEnd(StringTransport):
    """A transport whose output a `Wire` carries over."""

    disconnected = False
    protocol: Any = None
    how: type[Exception] = ConnectionDone

    def loseConnection(self) -> None:
        self.disconnecting = True

    def abortConnection(self) -> None:
        self.disconnecting = True
        self.how = ConnectionAborted
        self.clear()

    def lose(self, why: Exception) -> None:
        """End; like the transports of a reactor it holds nothing above it any more."""
        protocol, self.protocol, self.producer = self.protocol, None, None
        self.disconnected = True
        protocol.connectionLost(Failure(why))


class Wire:
    """Two transports back to back; `carry` moves octets until both sides are silent."""

    def __init__(
        self, client: Any, server: Any, *, chunk: int = 65536, host: str = "192.0.2.9"
    ) -> None:
        # What the server sees at the other end.
        self.ends = (WireEnd(), WireEnd(peerAddress=IPv4Address("TCP", host, 4711)))
        self.chunk = chunk
        self.seen = b""  # what crossed towards the server
        for end, protocol in zip(self.ends, (client, server), strict=True):
            end.protocol = protocol
        for end in reversed(self.ends):
            end.protocol.makeConnection(end)

    def carry(self) -> None:
        moved = True
        while moved:
            moved = False
            for here, there in (self.ends, self.ends[::-1]):
                data = here.value()
                if data and not there.disconnected:
                    here.clear()
                    moved = True
                    if here is self.ends[0]:
                        self.seen += data
                    for start in range(0, len(data), self.chunk):
                        if not there.disconnected:
                            there.protocol.dataReceived(data[start : start + self.chunk])
                if here.disconnecting and not here.disconnected and not here.value():
                    moved = True
                    here.lose(here.how())
                    if not there.disconnected:
                        # The other side reads what is under way, then the end.
                        there.lose(ConnectionDone())


def contexts_in(directory: str, name: str, **options: Any) -> TlsContexts:
    """Make an authority in `directory` if there is none, and contexts for `name` of it."""
    root = Path(directory)
    if not (root / "ca.pem").exists():
        make_authority(root)
    now = options.pop("now", None)
    trust = options.pop("trust", root / "ca.pem")
    (issued,) = issue(root, [name], **options)
    extra = {} if now is None else {"now": now}
    return TlsContexts(issued.chain, issued.private_key, trust, **extra)


def settle(wire: Wire, clock: Clock) -> None:
    """Let everything that is due now happen."""
    wire.carry()
    clock.advance(0)
    wire.carry()
