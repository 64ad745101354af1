# SPDX-License-Identifier: Apache-2.0
"""TLS of HTTP connections, whose handshakes wait for their turn.

A handshake takes a signature, and strangers can ask for as many as they like. The steps of all
handshakes of the daemon share a part of each turn of the reactor (`amqproute.turn_scheduler`), and
an address waits behind itself.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import (
    IAddress,
    IOpenSSLServerConnectionCreator,
    IProtocol,
    IProtocolFactory,
    IReactorTime,
)
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory

from amqproute.log_rate_limit import source_of
from amqproute.net.client_address import unmapped
from amqproute.turn_scheduler import TurnScheduler

__all__ = ["TurnedTlsFactory"]


class _HandshakeInTurn(BufferingTLSTransport):
    """One connection.

    Attributes:
        source: whose steps wait behind each other.
    """

    factory: TurnedTlsFactory
    source = ""
    _unshaken: list[bytes]

    def __init__(
        self, factory: TLSMemoryBIOFactory, wrapped: IProtocol, connect: bool = True
    ) -> None:
        super().__init__(factory, wrapped, connect)
        self._unshaken = []

    def dataReceived(self, data: bytes) -> None:
        """Decrypt, or let the octets of the handshake wait."""
        if self._handshakeDone:
            super().dataReceived(data)  # type: ignore[no-untyped-call] # Twisted's
            return
        self._unshaken.append(data)
        if len(self._unshaken) == 1:
            below: Any = self.transport  # Any: Twisted's, of several kinds
            below.pauseProducing()
            self.factory.turns.ask("tls", self.source, self._shake)

    def _shake(self) -> None:
        data, self._unshaken = b"".join(self._unshaken), []
        if self._lostTLSConnection or self._aborted:
            return
        below: Any = self.transport  # Any: as above
        below.resumeProducing()
        super().dataReceived(data)  # type: ignore[no-untyped-call] # Twisted's


class TurnedTlsFactory(TLSMemoryBIOFactory):
    """Makes such connections.

    Args:
        creator: of `amqproute.net.tls`.
        wrapped: makes the protocols above.
        clock: the reactor.
        turns: the steps of the daemon.
    """

    def __init__(
        self,
        creator: IOpenSSLServerConnectionCreator,
        wrapped: IProtocolFactory,
        clock: IReactorTime,
        turns: TurnScheduler,
    ) -> None:
        super().__init__(creator, False, wrapped, clock)
        self.turns = turns

    def buildProtocol(  # type: ignore[override] # None: see `IProtocolFactory`
        self, addr: IAddress | None
    ) -> _HandshakeInTurn | None:
        """Make the protocol of a connection from `addr`; None if there is none above."""
        above = self.wrappedFactory.buildProtocol(addr)
        if above is None:  # Twisted would wrap it, and keep the connection
            return None
        made = _HandshakeInTurn(self, above)
        made.source = source_of(unmapped(getattr(addr, "host", None) or ""))
        return made
