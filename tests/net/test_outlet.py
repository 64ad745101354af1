# SPDX-License-Identifier: Apache-2.0
"""The outlet on real sockets of this process: what is sent at once, and what is left."""

from __future__ import annotations

import socket
from typing import Any

from twisted.internet.protocol import Protocol
from twisted.internet.tcp import Connection
from twisted.internet.testing import MemoryReactor, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.outlet import Outlet, is_fit


class OutletTests(SynchronousTestCase):
    """`amqproute.net.outlet.Outlet`."""

    def setUp(self) -> None:
        near, self.far = socket.socketpair()
        near.setblocking(False)
        self.far.setblocking(False)
        self.addCleanup(near.close)
        self.addCleanup(self.far.close)
        self.reactor = MemoryReactor()
        self.transport: Any = Connection(near, Protocol(), self.reactor)  # type: ignore[no-untyped-call]
        self.transport.connected = True
        self.outlet = Outlet(self.transport)

    def write(self, *parts: bytes) -> None:
        """Write these in one go."""
        self.outlet.gather()
        for part in parts:
            self.outlet.write(part)
        self.outlet.send()

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
        """What the transport holds goes first."""
        self.transport.write(b"first")
        self.write(b"second")
        self.assertRaises(BlockingIOError, self.far.recv, 99)
        self.transport.doWrite()
        self.assertEqual(self.far.recv(99), b"firstsecond")

    def test_full(self) -> None:
        """What the socket does not take is the transport's, in order."""
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
        """Sockets have one, pretend transports have not."""
        self.assertTrue(is_fit(self.transport))
        self.assertFalse(is_fit(StringTransport()))
