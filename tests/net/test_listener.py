# SPDX-License-Identifier: Apache-2.0
"""Listening endpoints, without a network."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ListenError, TlsError
from amqproute.net.listener import MOST_TOLD, ConnectionCount, Listener, activated_sockets
from amqproute.sparing import EVERY_SECONDS
from tests.net.wires import Side, WireEnd


class ListenerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()

    def listener(self, description: str = "tcp:5672", **options: Any) -> Listener:
        return Listener(self.reactor, description, lambda facts: Side().make(facts), **options)

    def connect(self, listener: Listener) -> WireEnd | None:
        protocol = self.factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 4711))
        if protocol is None:
            return None
        end = WireEnd(peerAddress=IPv4Address("TCP", "127.0.0.1", 4711))
        end.protocol = protocol
        protocol.makeConnection(end)
        return end

    def opened(self, **options: Any) -> Listener:
        listener = self.listener(**options)
        listener.startService()
        self.factory = self.reactor.tcpServers[-1][1]
        return listener

    def test_descriptions(self) -> None:
        """Twisted's notation, quoting included, is understood."""
        self.listener("tcp:5671:interface=127.0.0.1:backlog=5").startService()
        port, _, backlog, interface = self.reactor.tcpServers[-1]
        self.assertEqual((port, backlog, interface), (5671, 5, "127.0.0.1"))
        self.listener("tcp6:5671:interface=\\:\\:1").startService()
        self.assertEqual(self.reactor.tcpServers[-1][3], "::1")
        path = os.path.join(self.mktemp(), "a:b")
        os.mkdir(os.path.dirname(path))
        self.listener("unix:" + path.replace(":", "\\:")).startService()
        name, _, _, mode, _ = self.reactor.unixServers[-1]
        self.assertEqual((name, mode), (path, 0o660))

    def test_bad_descriptions(self) -> None:
        """What is no endpoint is refused in words, before anything is opened."""
        for bad in (
            "",
            "tcp",
            "tcp:",
            "tcp:x",
            "unix:",
            "ssl:5671",
            "tcp:1:2",
            "systemd:",
            "tcp:1:backlog=x",
        ):
            error = self.assertRaises(ListenError, self.listener, bad)
            self.assertIn(repr(bad), str(error))
        self.assertRaises(ListenError, self.listener, tls="implicit")

    def test_limit(self) -> None:
        """Connections past the limit are refused and counted; room is made by those that go."""
        listener = self.opened(max_connections=2)
        first = self.connect(listener)
        assert first is not None
        self.assertIsNotNone(self.connect(listener))
        self.assertIsNone(self.connect(listener))
        self.assertEqual(listener.refused, 1)
        first.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(listener.connections), 1)
        self.assertIsNotNone(self.connect(listener))

    def test_limit_in_all(self) -> None:
        """Listeners may share a limit."""
        total = ConnectionCount(1)
        one = self.opened(total=total)
        self.assertIsNotNone(self.connect(one))
        other = self.opened(total=total)
        self.assertIsNone(self.connect(other))
        self.assertEqual((one.refused, other.refused), (0, 1))

    def test_strangers_do_not_fill_the_log(self) -> None:
        """Of those whom TLS refuses a few are told, then how many; each place for itself."""
        told: list[str] = []

        def observe(event: Any) -> None:
            told.append(event["log_format"].format(**event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

        def strangers(count: int, code: str) -> list[str]:
            told.clear()
            for _ in range(count):
                end = self.connect(listener)
                assert end is not None
                end.protocol.connectionLost(Failure(TlsError(code, "no")))
            return [line for line in told if "4711" in line]

        listener = self.opened()
        for code, words in (("tls.plain-text", "spoke plain text"), ("tls.untrusted", "no")):
            lines = strangers(1000, code)
            self.assertEqual(len(lines), MOST_TOLD)
            self.assertIn(words, lines[0])
            self.reactor.advance(EVERY_SECONDS)
            (line, *_) = strangers(1000, code)
            self.assertIn(f"{1000 - MOST_TOLD} more", line)
        listener = self.opened()
        self.assertEqual(len(strangers(1, "tls.untrusted")), 1)

    def test_facts(self) -> None:
        """The facts name the peer as the log does."""
        listener = self.opened()
        self.connect(listener)
        (protocol,) = listener.connections
        self.assertEqual(protocol.facts.remote, "127.0.0.1:4711")
        self.assertFalse(protocol.facts.is_encrypted)

    def test_stop(self) -> None:
        """Stopping drops what is left, and fires when it is gone."""
        listener = self.opened()
        end = self.connect(listener)
        assert end is not None
        stopped = listener.stopService()
        self.assertNoResult(stopped)
        self.assertTrue(end.disconnecting)
        end.protocol.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(stopped)
        self.assertEqual(listener.addresses, [])

    def test_file_that_is_no_socket(self) -> None:
        """A file of another kind is never removed."""
        path = self.mktemp()
        with open(path, "w") as stream:
            stream.write("precious")
        error = self.assertRaises(ListenError, self.listener(f"unix:{path}").startService)
        self.assertIn("no socket", str(error))
        self.assertTrue(os.path.exists(path))

    def test_no_systemd(self) -> None:
        """Outside systemd a systemd endpoint says what is missing."""
        listener = self.listener("systemd:domain=INET:name=amqps", environ={})
        error = self.assertRaises(ListenError, listener.startService)
        self.assertIn("no sockets at all: systemctl start amqproute.socket", str(error))

    def test_names_without_sockets(self) -> None:
        """Names left in the environment of a process without the sockets do no harm."""
        names = ":".join(["x"] * 4)
        for name, descriptor in activated_sockets({"LISTEN_FDNAMES": names}):
            with socket.socket(fileno=os.dup(descriptor)) as probe:
                self.assertTrue(probe.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), name)
