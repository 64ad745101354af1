# SPDX-License-Identifier: Apache-2.0
"""Listening endpoints, without a network."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

from twisted.internet import tcp
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import Logger, globalLogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ListenError, TlsError
from amqproute.log_rate_limit import EVERY_SECONDS
from amqproute.net import listening_sockets
from amqproute.net.accept_policy import LEAST_SECONDS, AcceptPolicy, AcceptTerms
from amqproute.net.listener import MOST_LOGGED, Listener
from amqproute.net.listening_sockets import _AcceptBounds, activated_sockets
from amqproute.net.pump import PumpLimits
from amqproute.turn_scheduler import STEPS_IN_TURN
from tests.net.test_proxy_protocol import header
from tests.net.wires import Side, WireEnd, contexts_in, listener_options


def _text(event: Any) -> str:
    return str(event["log_format"].format(**event))


class Port:
    """A listening socket that notes what is done with it."""

    connected = True
    _logger: Logger

    def __init__(self, did: list[str]) -> None:
        self._did = did

    def stopReading(self) -> None:
        self._did.append("stop")

    def startReading(self) -> None:
        self._did.append("start")


class ListenerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()

    def listener(self, description: str = "tcp:5672", **options: Any) -> Listener:
        return Listener(
            self.reactor,
            description,
            lambda facts: Side().make(facts),
            **listener_options(**options),
        )

    def connect(self, listener: Listener, host: str = "127.0.0.1") -> WireEnd | None:
        protocol = self.factory.buildProtocol(IPv4Address("TCP", host, 4711))
        if protocol is None:
            return None
        end = WireEnd(peerAddress=IPv4Address("TCP", host, 4711))
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
        """A text that is no endpoint is refused in words, before anything is opened."""
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
        listener = self.opened(terms=AcceptTerms(2, 2, 2))
        first = self.connect(listener)
        assert first is not None
        self.assertIsNotNone(self.connect(listener))
        self.assertIsNone(self.connect(listener))
        self.assertEqual(listener.places.refused, 1)
        first.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(listener.connections), 1)
        self.assertIsNotNone(self.connect(listener))

    def test_limit_in_all(self) -> None:
        """Listeners may share a limit."""
        policy = AcceptPolicy(1)
        one = self.opened(policy=policy)
        self.assertIsNotNone(self.connect(one))
        other = self.opened(policy=policy)
        self.assertIsNone(self.connect(other))
        self.assertEqual((one.places.refused, other.places.refused), (0, 1))

    def test_mute_connection_makes_room(self) -> None:
        """The oldest mute connection is dropped for a new one; who has logged in is not."""
        listener = self.opened(terms=AcceptTerms(100, 2, 10))
        first = self.connect(listener)
        assert first is not None
        (protocol,) = listener.connections
        protocol.identified("user", "user:ann")
        second = self.connect(listener)
        assert second is not None
        self.connect(listener)
        self.reactor.advance(LEAST_SECONDS)
        self.assertIsNotNone(self.connect(listener))
        self.assertEqual((first.disconnecting, second.disconnecting), (False, True))
        self.assertEqual(listener.places.closed, 1)
        self.assertEqual(len(listener.places), 3)
        second.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(len(listener.places), 3)

    def test_floods_do_not_fill_the_log(self) -> None:
        """The first refusal is logged, and later how many there were, with the latest address."""
        told: list[str] = []
        globalLogPublisher.addObserver(observer := lambda event: told.append(_text(event)))
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        listener = self.opened(terms=AcceptTerms(100, 2, 10))
        for _ in range(1000):
            self.connect(listener, "192.0.2.7")
        self.reactor.advance(30)
        for _ in range(3):  # one of the two old ones makes room
            self.connect(listener, "192.0.2.7")
        lines = [line for line in told if "connections refused" in line]
        self.assertEqual(len(lines), 2)
        self.assertIn("1 connections refused, 0 mute", lines[0])
        self.assertIn("997 connections refused, 1 mute", lines[1])
        self.assertIn("192.0.2.7, and the limit is 2 for 192.0.2.7", lines[1])
        row = listener.row()
        self.assertEqual((row["refused"], row["closed-mute"], row["mute"]), (1000, 1, 2))

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
            self.assertEqual(len(lines), MOST_LOGGED)
            self.assertIn(words, lines[0])
            self.reactor.advance(EVERY_SECONDS)
            (line, *_) = strangers(1000, code)
            self.assertIn(f"{1000 - MOST_LOGGED} more", line)
        listener = self.opened()
        self.assertEqual(len(strangers(1, "tls.untrusted")), 1)

    def test_facts(self) -> None:
        """The facts name the peer as the log does."""
        listener = self.opened()
        self.connect(listener)
        (protocol,) = listener.connections
        self.assertEqual(protocol.facts.remote, "127.0.0.1:4711")
        self.assertFalse(protocol.facts.is_encrypted)

    def test_no_descriptor_left(self) -> None:
        """A socket that cannot accept pauses, once, and continues unless it was closed."""
        did: list[str] = []
        port = Port(did)
        _AcceptBounds(port, self.reactor)
        port._logger.info("EMFILE recovery: Closed socket from {address}", address="x")
        for _ in range(3):
            port._logger.info("Could not accept ({acceptError})", acceptError="EMFILE")
        self.assertEqual(did, ["stop"])
        self.reactor.advance(0.5)
        self.assertEqual(did, ["stop", "start"])
        port._logger.info("Could not accept ({acceptError})", acceptError="EMFILE")
        port.connected = False
        self.reactor.advance(0.5)
        self.assertEqual(did, ["stop", "start", "stop"])
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_reserve(self) -> None:
        """The reserve is had again when there is a descriptor, and not missed aloud before."""
        left = 0

        def opened(*_: object) -> Any:
            if not left:
                raise OSError(errno.EMFILE, "Too many open files")
            return open_(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

        open_ = os.open
        reserve = tcp._FileDescriptorReservation(lambda: os.fdopen(opened()))
        self.patch(tcp, "_reservedFD", reserve)
        self.patch(os, "open", opened)
        port = Port([])
        _AcceptBounds(port, self.reactor)
        for is_there in (False, False, True):
            left = int(is_there)
            port._logger.info("Could not accept ({acceptError})", acceptError="EMFILE")
            self.reactor.advance(0.5)
            self.assertEqual(reserve.available(), is_there)
        self.assertEqual(self.flushLoggedErrors(), [])
        with reserve:
            left = 0
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)  # so Twisted would say it

    def test_mapped(self) -> None:
        """An IPv4 client of an IPv6 socket is that IPv4 client, to users and in the log."""
        listener = self.opened(policy=AcceptPolicy(1))
        self.connect(listener, "::ffff:192.0.2.7")
        (protocol,) = listener.connections
        self.assertEqual(
            (protocol.facts.host, protocol.facts.remote), ("192.0.2.7", "192.0.2.7:4711")
        )
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        self.addCleanup(globalLogPublisher.removeObserver, events.append)
        self.assertIsNone(self.connect(listener, "::ffff:192.0.2.8"))
        self.assertIn("the latest comes from 192.0.2.8,", _text(events[-1]))

    def test_handshakes_take_turns(self) -> None:
        """Clients that begin TLS together are not all served in one turn of the reactor, and one
        address waits behind itself only."""
        contexts = contexts_in(self.mktemp(), "beta.example")
        listener = self.opened(contexts=contexts, tls="implicit")
        ends = []
        for host in ["192.0.2.1"] * 30 + ["192.0.2.2"]:
            end = self.connect(listener, host)
            assert end is not None
            ends.append(end)
            end.protocol.dataReceived(b"no handshake at all, and refused when it is looked at")
        self.assertEqual(sum(end.disconnecting for end in ends), STEPS_IN_TURN)
        turns = listener._resources.turns
        assert turns is not None
        self.assertEqual(turns.waiting, 31 - STEPS_IN_TURN)
        self.assertFalse(ends[-1].disconnecting)
        (turn,) = [c for c in self.reactor.getDelayedCalls() if c.getTime() == 0]
        take = turn.func
        turn.cancel()
        take()
        self.assertEqual(sum(end.disconnecting for end in ends), 2 * STEPS_IN_TURN)
        self.assertTrue(ends[-1].disconnecting)
        self.reactor.advance(0)
        self.assertTrue(all(end.disconnecting for end in ends))
        for end in ends:
            if not end.disconnected:
                end.protocol.connectionLost(Failure(ConnectionDone()))
        self.reactor.advance(0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def balanced(self, **options: Any) -> Listener:
        terms = options.pop("terms", AcceptTerms(10_000, 10_000, 10_000))
        balancers = [ip_network("10.0.0.0/30")]
        return self.opened(terms=replace(terms, balancers=balancers), **options)

    def test_proxied(self) -> None:
        """A listed balancer's word on the client counts, for the facts and for the shares."""
        listener = self.balanced(terms=AcceptTerms(100, 2, 10))
        ends = []
        for number in range(4):
            end = self.connect(listener, "10.0.0.1")
            assert end is not None, number
            ends.append(end)
        for end in ends:
            octets = header("192.0.2.9", 99) + b"hello"
            for at in range(0, len(octets), 7):
                if not end.disconnecting:
                    end.protocol.dataReceived(octets[at : at + 7])
        self.assertEqual([end.disconnecting for end in ends], [False, False, True, True])
        self.assertEqual(len(listener.places), 2)
        for protocol in listener.connections:
            self.assertEqual(protocol.facts.remote, "192.0.2.9:99")
            self.assertEqual(protocol.facts.host, "192.0.2.9")
            self.assertEqual(b"".join(protocol.engine.reads), b"hello")  # type: ignore[attr-defined]
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_proxied_by_ipv6(self) -> None:
        listener = self.balanced()
        end = self.connect(listener, "10.0.0.1")
        assert end is not None
        end.protocol.dataReceived(header("2001:db8::1", 99))
        (protocol,) = listener.connections
        self.assertEqual(protocol.facts.remote, "[2001:db8::1]:99")

    def test_proxied_by_a_line(self) -> None:
        """Version 1 of the protocol, in parts."""
        listener = self.balanced()
        end = self.connect(listener, "10.0.0.1")
        assert end is not None
        for octet in b"PROXY TCP4 192.0.2.9 10.0.0.1 99 5672\r\nhello":
            end.protocol.dataReceived(bytes([octet]))
        (protocol,) = listener.connections
        self.assertEqual(protocol.facts.remote, "192.0.2.9:99")
        self.assertEqual(b"".join(protocol.engine.reads), b"hello")  # type: ignore[attr-defined]

    def test_a_balancers_own_connection(self) -> None:
        """The balancer's checks count as its own."""
        listener = self.balanced()
        end = self.connect(listener, "10.0.0.1")
        assert end is not None
        end.protocol.dataReceived(header()[:12] + b"\x20\x00\x00\x00")
        (protocol,) = listener.connections
        self.assertEqual(protocol.facts.remote, "10.0.0.1:4711")

    def test_header_missing(self) -> None:
        """A balancer has to send its header, the right one, and in time."""
        told: list[str] = []
        globalLogPublisher.addObserver(observer := lambda event: told.append(_text(event)))
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        listener = self.balanced(limits=PumpLimits(tls_seconds=7))
        for octets, words in (
            (b"AMQP\x00\x01\x00\x00", "no header"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n", "two ports"),
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2", "in time"),
            (b"", "in time"),
            (header()[:20], "in time"),
        ):
            end = self.connect(listener, "10.0.0.1")
            assert end is not None
            end.protocol.dataReceived(octets)
            self.reactor.advance(7)
            self.assertTrue(end.disconnecting)
            self.assertIn(words, told[-1] if told else "")
            self.reactor.advance(EVERY_SECONDS)
            end.protocol.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((len(listener.places), listener.connections), (0, set()))

    def test_header_of_somebody_else(self) -> None:
        """From elsewhere a header is octets like any others."""
        listener = self.balanced()
        end = self.connect(listener, "10.0.0.9")
        assert end is not None
        end.protocol.dataReceived(header())
        (protocol,) = listener.connections
        self.assertEqual(protocol.facts.host, "10.0.0.9")
        self.assertEqual(protocol.engine.reads, [header()])  # type: ignore[attr-defined]

    def test_stop_before_the_header(self) -> None:
        listener = self.balanced()
        end = self.connect(listener, "10.0.0.1")
        assert end is not None
        stopped = listener.stopService()
        self.assertNoResult(stopped)
        end.protocol.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(stopped)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

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

    def test_systemd(self) -> None:
        """A socket of systemd is taken by its name; it blocks nobody, and no child inherits it."""
        with socket.socket() as ours:
            ours.bind(("127.0.0.1", 0))
            ours.listen()
            os.set_blocking(ours.fileno(), True)
            os.set_inheritable(ours.fileno(), True)
            self.patch(listening_sockets, "_FIRST_DESCRIPTOR", ours.fileno())
            for number, name in enumerate(("index=0", "name=amqps")):
                description = f"systemd:domain=INET:{name}"
                self.listener(description, environ={"LISTEN_FDNAMES": "amqps"}).startService()
                self.assertEqual(len(self.reactor.adoptedPorts), number + 1)
            self.assertEqual(self.reactor.adoptedPorts[0][:2], (ours.fileno(), socket.AF_INET))
            self.assertFalse(os.get_blocking(ours.fileno()))
            self.assertFalse(os.get_inheritable(ours.fileno()))
            other = self.listener("systemd:name=plain", environ={"LISTEN_FDNAMES": "amqps"})
            error = self.assertRaises(ListenError, other.startService)
            self.assertIn("handed over 1 by the names amqps;", str(error))

    def test_names_without_sockets(self) -> None:
        """Names left in the environment of a process without the sockets do no harm."""
        names = ":".join(["x"] * 4)
        for name, descriptor in activated_sockets({"LISTEN_FDNAMES": names}):
            with socket.socket(fileno=os.dup(descriptor)) as probe:
                self.assertTrue(probe.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN), name)
