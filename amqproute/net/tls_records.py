# SPDX-License-Identifier: Apache-2.0
"""TLS on top of any transport, in pieces of many records.

Twisted's layer encrypts, and takes out of OpenSSL, one record of at most 16 KiB after the other,
and copies each beforehand; input to be decrypted goes into OpenSSL's buffer as a whole, which never
shrinks. Here both go in pieces of `PIECE_BYTES`: few calls, and the working set stays in the
processor's cache.

A record takes some 10 microseconds, and may hold a single octet: 64 KiB can be 2,800 of these. So a
read has `READ_RECORDS` decrypted at once, which is enough for a mebibyte in records of full size.
The rest waits, encrypted, until the layer above asks for more (`RecordLayer.go_on`).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from OpenSSL import SSL
from twisted.internet.interfaces import ITransport
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from amqproute.net import tls
from amqproute.net.direct_write import PIECE_BYTES, DirectWriter
from amqproute.tracebacks import without_frames

__all__ = ["LAST_RECORDS", "READ_RECORDS", "RecordFactory", "RecordLayer"]

RECORD_BYTES: Final = 16 * 1024
"""Maximum octets in one TLS record (RFC 8446 section 5.1)."""
READ_RECORDS: Final = 64
"""Records decrypted at once when a read arrives."""
LAST_RECORDS: Final = 1024
"""Records decrypted when the connection is lost: the rest of a read, unless they are shorter than
those of any honest peer."""


class RecordLayer(TLSMemoryBIOProtocol):
    """TLS for an `EngineProtocol`, one read at a time.

    Twisted's own default also gathers small writes over a reactor turn; the pump does that.

    Attributes:
        records: number of records decrypted so far.
        is_behind: whether octets have arrived that are not decrypted; see `go_on`.
    """

    records = 0
    is_behind = False

    verification: tls.Verification | None = None  # set by the creators of `amqproute.net.tls`
    outlet: DirectWriter | None = None  # replaces the transport for writing
    before_handshake: Callable[[bytes], None] | None = None  # takes octets, and calls `decrypt`
    _allowance = 0
    _is_stuck = False  # OpenSSL may have more records than were allowed

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[no-untyped-call] # Twisted's
        self._encrypted: deque[memoryview] = deque()

    def makeConnection(self, transport: ITransport) -> None:
        """Start the handshake; records go through the outlet from then on."""
        super().makeConnection(transport)  # type: ignore[no-untyped-call] # Twisted's
        if self.outlet is not None and self.transport is not None:
            self.transport = cast(Any, self.outlet)

    def dataReceived(self, data: bytes) -> None:
        """Decrypt, or queue the octets of the handshake."""
        if self.before_handshake is not None and not self._handshakeDone:
            self.before_handshake(data)
        else:
            self.decrypt(data)

    def decrypt(self, data: bytes) -> None:
        """Decrypt the first records of a read, and pass them on as one."""
        if not self._lostTLSConnection:
            self._encrypted.append(memoryview(data))
            self.go_on(READ_RECORDS)

    def go_on(self, records: int) -> None:
        """Decrypt at most `records` more records, and pass them on as one."""
        above: Any = self.wrappedProtocol
        self._allowance = records
        above.is_gathering = True
        try:
            if self._is_stuck:
                self._flushReceiveBIO()
            while self._encrypted and self._allowance and not self._lostTLSConnection:
                octets = self._encrypted.popleft()
                if len(octets) > PIECE_BYTES:
                    self._encrypted.appendleft(octets[PIECE_BYTES:])
                super().dataReceived(octets[:PIECE_BYTES])  # type: ignore[no-untyped-call] # Twisted's
        finally:
            is_rest = self._is_stuck or bool(self._encrypted)
            self.is_behind = is_rest and not self._lostTLSConnection
            above.read_ends()

    def _flushReceiveBIO(self) -> None:
        """Pass on the records that OpenSSL has, as many as are allowed."""
        receive = self._tlsConnection.recv
        while not self._lostTLSConnection:
            self._is_stuck = not self._allowance  # there may be more
            if self._is_stuck:
                break
            try:
                octets = receive(2 * RECORD_BYTES)
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                self._shutdownTLS()  # type: ignore[no-untyped-call] # Twisted's
                self._tlsShutdownFinished(None)
            except SSL.Error:
                self._tlsShutdownFinished(Failure())  # type: ignore[no-untyped-call] # Twisted's
            else:
                self._allowance -= 1
                self.records += 1
                if not self._aborted:
                    above: Any = self.wrappedProtocol
                    above.dataReceived(octets)
        self._flushSendBIO()  # type: ignore[no-untyped-call] # Twisted's

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        """Keep the reason for the end of TLS without its frames, which hold this layer."""
        if reason is not None:
            without_frames(reason)
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call] # Twisted's
        self.is_behind = False

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """End, and drop all references to the connection."""
        if self.is_behind and self._handshakeDone:
            self.go_on(LAST_RECORDS)
        self._encrypted.clear()
        self.is_behind = False
        super().connectionLost(reason)  # type: ignore[no-untyped-call] # Twisted's
        if self.verification is not None:
            self.verification.let_go()
            self.verification = None
        self.outlet = None
        self.before_handshake = None
        self.wrappedProtocol: Any = None
        self._producer = None

    def _write(self, data: bytes) -> None:
        """Encrypt, and pass on all records of a piece as one."""
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
        except SSL.WantReadError:  # the peer renegotiates
            with contextlib.suppress(SSL.WantReadError):
                self._hand_down()
            self._bufferedWrite(data[at:])  # type: ignore[no-untyped-call] # Twisted's
        except SSL.Error:
            self._tlsShutdownFinished(Failure())  # type: ignore[no-untyped-call] # Twisted's

    def _hand_down(self) -> None:
        # Allow for the overhead of each record.
        below: Any = self.transport
        below.write(self._tlsConnection.bio_read(2 * PIECE_BYTES))


class RecordFactory(TLSMemoryBIOFactory):
    """Makes record layers, as Twisted expects."""

    protocol = RecordLayer
