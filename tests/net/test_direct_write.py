# SPDX-License-Identifier: Apache-2.0
"""Direct writes on real sockets of this process: octets sent at once, and the rest."""

from __future__ import annotations

import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.direct_write import (
    FULL_BYTES,
    PIECE_BYTES,
    READ_BYTES,
    DirectWriter,
    is_fit,
    joined,
)
from amqproute.net.pump import EngineProtocol
from tests.net.wires import Side


class OutletTests(SynchronousTestCase):
    """`amqproute.net.direct_write.DirectWriter`."""

    def setUp(self) -> None:
        near, self.far = socket.socketpair()
        near.setblocking(False)
        self.far.setblocking(False)
        self.addCleanup(near.close)
        self.addCleanup(self.far.close)
        self.reactor = MemoryReactor()
        self.transport: Any = Connection(near, Protocol(), self.reactor)  # type: ignore[no-untyped-call]
        self.transport.connected = True
        self.outlet = DirectWriter(self.transport)

    def write(self, *parts: bytes) -> None:
        """Write these in one go."""
        self.outlet.gathered = gathered = []
        for part in parts:
            self.outlet.write(part)
        self.outlet.gathered = None
        self.outlet.send(gathered)

    def test_at_once(self) -> None:
        """Parts leave joined, without the reactor."""
        self.write(b"one", b"two")
        self.assertEqual(self.far.recv(99), b"onetwo")
        self.assertEqual(self.reactor.getWriters(), [])

    def test_nothing(self) -> None:
        """Nothing written is nothing sent."""
        self.write()
        self.assertEqual(self.reactor.getWriters(), [])
        self.assertRaises(BlockingIOError, self.far.recv, 99)

    def test_behind_what_waits(self) -> None:
        """Octets that the transport holds go first."""
        self.transport.write(b"first")
        self.write(b"second")
        self.assertRaises(BlockingIOError, self.far.recv, 99)
        self.transport.doWrite()
        self.assertEqual(self.far.recv(99), b"firstsecond")

    def test_full(self) -> None:
        """Octets that the socket does not take go to the transport, in order."""
        data = bytes(range(256)) * 8192
        self.write(data)
        self.assertEqual(self.reactor.getWriters(), [self.transport])
        received = b""
        while len(received) < len(data):
            try:
                received += self.far.recv(1 << 20)
            except BlockingIOError:
                self.transport.doWrite()
        self.assertEqual(received, data)
        self.assertEqual(self.reactor.getWriters(), [])

    def test_partly_taken(self) -> None:
        """Of several parts what the socket does not take is the transport's, in order."""
        parts = [bytes((number,)) * 300_000 for number in range(9)]
        self.write(*parts)
        received = b""
        while len(received) < 2_700_000:
            try:
                received += self.far.recv(1 << 20)
            except BlockingIOError:
                self.transport.doWrite()
        self.assertEqual(received, b"".join(parts))

    def test_many_parts(self) -> None:
        """More parts than the system takes in one call."""
        self.write(*[bytes((number % 256,)) for number in range(2000)])
        self.transport.doWrite()
        self.assertEqual(self.far.recv(9999), bytes(number % 256 for number in range(2000)))

    def test_sizes_of_reads(self) -> None:
        """The size of the next read follows the size of the last one."""
        self.transport.getPeer = lambda: IPv4Address("TCP", "192.0.2.1", 4711)
        for name in ("setTcpNoDelay", "setTcpKeepAlive"):  # the socket is none of TCP
            setattr(self.transport, name, lambda _: None)
        pump = EngineProtocol(Side().make, Clock())
        pump.makeConnection(self.transport)
        self.addCleanup(pump.connectionLost)
        sizes = []
        for size in (100, 40_000, 900_000, 100, 40_000):
            pump.dataReceived(bytes(size))
            sizes.append(self.transport.bufferSize)
        self.assertEqual(sizes, [65536, FULL_BYTES, FULL_BYTES, READ_BYTES, FULL_BYTES])
        self.assertLess(READ_BYTES, FULL_BYTES)

    def test_lost(self) -> None:
        """A dead socket is left to the transport to find."""
        self.far.close()
        self.write(b"x")
        self.assertEqual(self.reactor.getWriters(), [self.transport])
        self.assertIsInstance(self.transport.doWrite(), Exception)

    def test_not_gathering(self) -> None:
        """A write on its own is the transport's."""
        self.outlet.write(b"x")
        self.assertEqual(self.reactor.getWriters(), [self.transport])

    def test_fit(self) -> None:
        """Sockets have one, fake transports have not."""
        self.assertTrue(is_fit(self.transport))
        self.assertFalse(is_fit(StringTransport()))


class JoinedTests(SynchronousTestCase):
    """`amqproute.net.direct_write.joined`."""

    @given(st.lists(st.integers(1, 3 * PIECE_BYTES), min_size=1, max_size=12))
    def test_joined(self, sizes: list[int]) -> None:
        """Nothing is lost, and no piece is larger than a piece and what filled it."""
        parts = [bytes((index,)) * size for index, size in enumerate(sizes)]
        pieces = joined(parts)
        self.assertEqual(b"".join(pieces), b"".join(parts))
        for piece in pieces[:-1]:
            self.assertGreaterEqual(len(piece), PIECE_BYTES)
        self.assertLess(max(map(len, pieces)), PIECE_BYTES + max(sizes) + 1)
