# SPDX-License-Identifier: Apache-2.0
"""TLS on top of any transport, in pieces of many records.

Twisted's layer encrypts, and takes out of OpenSSL, one record of at most 16 KiB after the other,
and copies each beforehand; what it is given to decrypt goes into OpenSSL's buffer as a whole, which
keeps the size it once had. Here both go in pieces of `PIECE_BYTES`: few calls, and what is at work
stays in the processor's cache.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, cast

from OpenSSL import SSL
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from amqproute.net import tls
from amqproute.net.outlet import PIECE_BYTES, Outlet
from amqproute.tracebacks import without_frames

__all__ = ["RecordFactory", "RecordLayer"]

RECORD_BYTES: Final = 16 * 1024
"""What one TLS record holds at most (RFC 8446 section 5.1)."""


class RecordLayer(TLSMemoryBIOProtocol):
    """TLS for an `EngineProtocol`, one read at a time.

    Twisted's own default also gathers small writes over a reactor turn; the pump does that.
    """

    verification: tls.Verification | None = None  # set by the creators of `amqproute.net.tls`
    outlet: Outlet | None = None  # to write to, in place of the transport
    before_handshake: Callable[[bytes], None] | None = None  # takes octets, and calls `decrypt`

    def makeConnection(self, transport: Any) -> None:
        """Begin the handshake; records go through the outlet from then on."""
        super().makeConnection(transport)  # type: ignore[no-untyped-call] # Twisted's
        if self.outlet is not None and self.transport is not None:
            self.transport = cast(Any, self.outlet)

    def dataReceived(self, data: bytes) -> None:
        """Decrypt, or have the octets of the handshake wait for their turn."""
        if self.before_handshake is not None and not self._handshakeDone:
            self.before_handshake(data)
        else:
            self.decrypt(data)

    def decrypt(self, data: bytes) -> None:
        """Decrypt, and hand over all records of this read as one."""
        above: Any = self.wrappedProtocol
        octets = memoryview(data)
        above.read_begins()
        try:
            for start in range(0, len(octets), PIECE_BYTES):
                if start and self._lostTLSConnection:
                    break
                super().dataReceived(octets[start : start + PIECE_BYTES])  # type: ignore[no-untyped-call] # Twisted's
        finally:
            above.read_ends()

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        """Keep why TLS has ended, without the frames it came through: they hold this layer."""
        if reason is not None:
            without_frames(reason)
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call] # Twisted's

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End, and hold nothing of the connection any more."""
        super().connectionLost(reason)  # type: ignore[no-untyped-call] # Twisted's
        if self.verification is not None:
            self.verification.let_go()
            self.verification = None
        self.outlet = None
        self.before_handshake = None
        self.wrappedProtocol: Any = None
        self._producer = None

    def _write(self, data: bytes) -> None:
        """Encrypt, and hand over all records of a piece as one."""
        if len(data) <= RECORD_BYTES or not self._handshakeDone or self._lostTLSConnection:
            super()._write(data)  # type: ignore[no-untyped-call] # Twisted's
            return
        octets = memoryview(data)
        encrypt = self._tlsConnection.send
        at = 0
        try:
            while at < len(octets):
                stop = min(at + PIECE_BYTES, len(octets))
                while at < stop:
                    at += encrypt(octets[at : min(at + RECORD_BYTES, stop)])
                self._hand_down()
        except SSL.WantReadError:  # the peer negotiates anew
            with contextlib.suppress(SSL.WantReadError):
                self._hand_down()
            self._bufferedWrite(data[at:])  # type: ignore[no-untyped-call] # Twisted's
        except SSL.Error:
            self._tlsShutdownFinished(Failure())  # type: ignore[no-untyped-call] # Twisted's

    def _hand_down(self) -> None:
        # There is room for what each record has besides.
        below: Any = self.transport
        below.write(self._tlsConnection.bio_read(2 * PIECE_BYTES))


class RecordFactory(TLSMemoryBIOFactory):
    """Makes layers, as Twisted wants it."""

    protocol = RecordLayer
