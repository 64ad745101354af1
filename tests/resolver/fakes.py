# SPDX-License-Identifier: Apache-2.0
"""A fake network for DNS: a clock with UDP and TCP on which `ZoneAuthority` objects answer.

`PretendNetwork` is what the client takes for a reactor. Servers stand at addresses; what they
send arrives after one turn of the clock, or later. A `tamper` hook sees each UDP query and may put
datagrams of its own on the way first: the attacker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError, ConnectionRefusedError
from twisted.internet.interfaces import IReactorTCP
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute.resolver.zone import ZoneAuthority

Address = tuple[str, int]
Datagram = tuple[bytes, Address]

LATENCY = 0.001


class PretendPort:
    """A bound UDP socket."""

    def __init__(self, network: PretendNetwork, protocol: Any, number: int) -> None:
        self.network = network
        self.protocol = protocol
        self.number = number
        self.peer: Address | None = None
        self.open = True
        protocol.makeConnection(self)

    def connect(self, host: str, port: int) -> None:
        if host in self.network.unroutable:
            raise OSError(101, "Network is unreachable")
        self.peer = (host, port)

    def write(self, datagram: bytes, addr: Address | None = None) -> None:
        assert addr in (None, self.peer)
        assert self.peer is not None
        self.network.sent.append((datagram, self.peer))
        self.network.carry(self, datagram, self.peer)

    def deliver(self, datagram: bytes, source: Address) -> None:
        if self.open:
            self.protocol.datagramReceived(datagram, source)

    def refuse(self) -> None:
        """An ICMP error: the select reactor tells the protocol, the epoll reactor closes."""
        if self.open and self.network.epoll:
            self.close()
        elif self.open:
            self.protocol.connectionRefused()

    def close(self) -> None:
        assert self.open, "closed twice"
        self.open = False
        self.network.ports.remove(self)
        self.protocol.doStop()

    def stopListening(self) -> Deferred[None]:
        self.close()
        done: Deferred[None] = Deferred()
        done.callback(None)
        return done


class PretendConnection(StringTransport):
    """The client's end of a TCP connection to a `ZoneAuthority`."""

    def __init__(self, network: PretendNetwork, authority: ZoneAuthority, protocol: Any) -> None:
        super().__init__()
        self.network = network
        self.authority = authority
        self.protocol = protocol
        self.received = b""
        self.open = True
        network.connections.append(self)

    def write(self, data: bytes) -> None:
        self.received += data
        while len(self.received) >= 2:
            length = int.from_bytes(self.received[:2], "big")
            if len(self.received) < 2 + length:
                return
            wire, self.received = self.received[2 : 2 + length], self.received[2 + length :]
            if self.network.tcp_hangs_up:
                self.network.callLater(LATENCY, self.end)
                continue
            reply = self.authority.respond(wire, udp=False)
            if reply is not None:
                framed = len(reply.wire).to_bytes(2, "big") + reply.wire
                middle = len(framed) // 2  # split where it hurts
                self.network.callLater(LATENCY + reply.delay, self.deliver, framed[:middle])
                self.network.callLater(LATENCY + reply.delay, self.deliver, framed[middle:])

    def deliver(self, data: bytes) -> None:
        if self.open:
            self.protocol.dataReceived(data)

    def end(self) -> None:
        if self.open:
            self.open = False
            self.network.connections.remove(self)
            self.protocol.connectionLost(Failure(ConnectionRefusedError()))

    def loseConnection(self) -> None:
        self.network.callLater(0, self.end)

    abortConnection = loseConnection


class _Connector:
    def __init__(self) -> None:
        self.cancelled = False

    def stopConnecting(self) -> None:
        self.cancelled = True


@implementer(IReactorTCP)
class PretendNetwork(Clock):
    """A reactor without sockets."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[Address, ZoneAuthority] = {}
        self.ports: list[PretendPort] = []
        self.connections: list[PretendConnection] = []
        self.sent: list[Datagram] = []
        self.unroutable: set[str] = set()
        self.tcp_refused = False
        self.tcp_hangs_up = False
        self.tcp_dials: list[Address] = []
        self.no_sockets = False
        self.epoll = False
        self.tamper: Callable[[bytes, Address], list[Datagram]] | None = None

    def listenUDP(
        self, port: int, protocol: Any, interface: str = "", maxPacketSize: int = 8192
    ) -> PretendPort:
        if self.no_sockets:
            raise CannotListenError(interface, port, OSError(24, "Too many open files"))
        bound = PretendPort(self, protocol, 40_000 + len(self.sent))
        self.ports.append(bound)
        return bound

    def carry(self, port: PretendPort, datagram: bytes, to: Address) -> None:
        if self.tamper is not None:
            for forged, source in self.tamper(datagram, to):
                self.callLater(LATENCY, port.deliver, forged, source)
        authority = self.servers.get(to)
        if authority is None:
            self.callLater(LATENCY, port.refuse)
            return
        reply = authority.respond(datagram, udp=True)
        if reply is not None:
            self.callLater(LATENCY + reply.delay, port.deliver, reply.wire, to)

    def connectTCP(
        self,
        host: str,
        port: int,
        factory: Any,
        timeout: float = 30,
        bindAddress: Address | None = None,
    ) -> _Connector:
        connector = _Connector()
        self.tcp_dials.append((host, port))
        self.callLater(LATENCY, self._connected, (host, port), factory, connector)
        return connector

    def _connected(self, address: Address, factory: Any, connector: _Connector) -> None:
        if connector.cancelled:
            return
        authority = self.servers.get(address)
        if authority is None or self.tcp_refused:
            factory.clientConnectionFailed(connector, Failure(ConnectionRefusedError()))
            return
        protocol = factory.buildProtocol(None)
        protocol.makeConnection(PretendConnection(self, authority, protocol))

    def listenTCP(self, *args: object, **kwargs: object) -> Any:
        raise AssertionError("no TCP server on the pretend network")

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass: at least what some round trips need."""
        for _ in range(100):
            self.advance(LATENCY)
        if seconds:
            # Small steps, as a timer fired late by a big one would see the wrong time.
            for _ in range(int(seconds / 0.25)):
                self.advance(0.25)
            for _ in range(100):
                self.advance(LATENCY)
