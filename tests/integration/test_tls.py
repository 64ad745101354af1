# SPDX-License-Identifier: Apache-2.0
"""Listener and connector over real sockets of this machine."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import TestCase

from amqproute.errors import ConnectError, ListenError, TlsError
from amqproute.net.accept_policy import AcceptTerms
from amqproute.net.connector import Connector
from amqproute.net.listener import Listener
from amqproute.net.pump import EngineProtocol, PumpLimits
from amqproute.net.tls import TlsContexts
from amqproute.url import parse_url
from amqproute.values import Candidate, TransportSecurity
from amqproute.wire.amqp10.connection import Connection, ConnectionSettings
from amqproute.wire.amqp10.engine_events import OpenReceived
from tests.net.wires import PretendEngine, PretendUser, Side, contexts_in, listener_options
from tests.support.patience import PATIENCE

reactor: Any = _reactor


class WaitingUser(PretendUser):
    """A user whose octets and whose end can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = b""
        self.arrived: Deferred[None] = Deferred()
        self.gone: Deferred[Any] = Deferred()

    def events(self, events: Any) -> None:
        super().events(events)
        have = b"".join(event[1] for event in self.got if event[0] == "read")
        if self.wanted and self.wanted in have and not self.arrived.called:
            self.arrived.callback(None)
        if ("secured",) in events and not self.wanted:
            self.arrived.callback(None)

    def lost(self, reason: Any) -> None:
        super().lost(reason)
        self.gone.callback(reason.value)


class Octets(Protocol):
    """A bare TCP client: says something, waits for the end."""

    def __init__(self, words: bytes) -> None:
        self.words = words
        self.got = b""
        self.gone: Deferred[bytes] = Deferred()

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self.words)

    def dataReceived(self, data: bytes) -> None:
        self.got += data

    def connectionLost(self, reason: Any = None) -> None:
        self.gone.callback(self.got)


class NetworkTests(TestCase):
    timeout = PATIENCE

    def setUp(self) -> None:
        self.directory = self.mktemp()
        self.alpha = contexts_in(self.directory, "alpha.example")
        self.beta = contexts_in(self.directory, "beta.example")
        self.sides: list[Side] = []
        self.made: Deferred[Side] = Deferred()
        self.clients: list[EngineProtocol] = []
        self.logged: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def observe(self, event: Any) -> None:
        if str(event.get("log_namespace", "")).startswith("amqproute"):
            self.logged.append(event["log_format"].format(**event))

    def make(self, facts: Any) -> tuple[PretendEngine, PretendUser]:
        side = Side()
        side.user = WaitingUser()
        self.sides.append(side)
        made = side.make(facts)
        if not self.made.called:
            self.made.callback(side)
        return made

    def listen(self, endpoint: str = "tcp:0:interface=127.0.0.1", **options: Any) -> Listener:
        options.setdefault("contexts", self.beta)
        options.setdefault("tls", "implicit")
        listener = Listener(reactor, endpoint, self.make, **listener_options(**options))
        listener.startService()
        self.addCleanup(listener.stopService)
        return listener

    async def connect(
        self,
        listener: Listener,
        contexts: TlsContexts | None = None,
        domain: str = "beta.example",
        *,
        upgrade: bool = False,
    ) -> tuple[EngineProtocol, Side]:
        side = Side(is_client=True, asks_for_tls=upgrade)
        side.user = WaitingUser()
        address: Any = listener.addresses[0]
        security = TransportSecurity.UPGRADE if upgrade else TransportSecurity.IMPLICIT
        candidate = Candidate("mx.example", address.port, security, ("127.0.0.1",), 0, 0, "static")
        connector = Connector(reactor, contexts or self.alpha)
        protocol = await connector.connect(candidate, domain, side.make)
        self.addCleanup(self.drop, protocol, side)
        return protocol, side

    def drop(self, protocol: EngineProtocol, side: Side) -> Any:
        if side.user.reason is None:
            protocol.abort()
            return side.user.gone  # type: ignore[attr-defined]
        return None

    async def refusal(self, *arguments: Any, **options: Any) -> ConnectError:
        try:
            await self.connect(*arguments, **options)
        except ConnectError as error:
            return error
        raise AssertionError("connected")

    async def test_mutual(self) -> None:
        """Both sides know each other; a megabyte crosses unchanged."""
        listener = self.listen(client_certificate="required")
        protocol, side = await self.connect(listener)
        self.assertEqual(protocol.facts.certificate_domains, {"beta.example"})
        server = await self.made
        assert server.facts is not None
        self.assertEqual(server.facts.certificate_domains, {"alpha.example"})
        payload = os.urandom(1 << 20)
        user: Any = server.user
        user.wanted = payload
        side.engine.output.append(payload)
        protocol.schedule_flush()
        await user.arrived

    async def test_refused_by_the_client(self) -> None:
        """Wrong name, expired, unknown authority: each with its code; no engine is made."""
        now = datetime.datetime.now(datetime.UTC)
        day = datetime.timedelta(days=1)
        expired = contexts_in(
            self.directory,
            "beta.example",
            folder="expired",
            not_before=now - 3 * day,
            not_after=now - day,
            now=lambda: (now - 2 * day).timestamp(),
        )
        stranger = contexts_in(self.mktemp(), "beta.example")
        for contexts, domain, code in (
            (self.beta, "other.example", "tls.name"),
            (expired, "beta.example", "tls.expired"),
            (stranger, "beta.example", "tls.untrusted"),
        ):
            error = await self.refusal(self.listen(contexts=contexts), domain=domain)
            self.assertEqual(error.code, code)
            self.assertEqual(len(error.attempts), 1)
        self.assertEqual(self.sides, [])

    async def test_no_client_certificate(self) -> None:
        """A client without one learns why it is dropped; no engine is made for it."""
        nobody = TlsContexts(None, None, Path(self.directory) / "ca.pem")
        listener = self.listen(client_certificate="required")
        _, side = await self.connect(listener, nobody)
        user: Any = side.user
        error = await user.gone
        self.assertEqual(error.code, "tls.no-certificate")
        self.assertEqual(self.sides, [])

    async def test_srv_id_only(self) -> None:
        """A certificate that names the service only is enough."""
        contexts = contexts_in(
            self.directory, "x.example", dns_names=(), srv_names=("_amqps.beta.example",)
        )
        protocol, _ = await self.connect(self.listen(contexts=contexts))
        self.assertEqual(protocol.facts.certificate_domains, {"beta.example"})

    async def test_upgrade(self) -> None:
        """TLS after the engines have agreed on it, with both names proved."""
        protocol, side = await self.connect(self.listen(tls="upgrade"), upgrade=True)
        user: Any = side.user
        await user.arrived
        self.assertEqual(protocol.facts.certificate_domains, {"beta.example"})
        user = (await self.made).user
        await user.arrived
        facts = user.facts
        self.assertEqual(facts.certificate_domains, {"alpha.example"})

    async def test_upgrade_of_amqp(self) -> None:
        """The AMQP engine itself: TLS header, TLS, AMQP header, open, with SNI and both names."""
        opened: Deferred[str] = Deferred()

        class Server(WaitingUser):
            def events(self, events: Any) -> None:
                for event in events:
                    if isinstance(event, OpenReceived):
                        assert self.facts is not None
                        opened.callback(",".join(self.facts.certificate_domains))

        class Client(WaitingUser):
            def events(self, events: Any) -> None:
                pass

        def serve(facts: Any) -> Any:
            settings = ConnectionSettings(
                role="server", container_id="b", tls="required", allow_no_sasl=True
            )
            return Connection(settings), Server()

        client = Client()

        def ask(facts: Any) -> Any:
            settings = ConnectionSettings(
                role="client", container_id="a", hostname="beta.example", tls="required"
            )
            engine = Connection(settings)
            engine.open()
            return engine, client

        self.make = serve  # type: ignore[method-assign]
        address: Any = self.listen(tls="upgrade", client_certificate="required").addresses[0]
        candidate = Candidate(
            "mx.example", address.port, TransportSecurity.UPGRADE, ("127.0.0.1",), 0, 0, "static"
        )
        protocol = await Connector(reactor, self.alpha).connect(candidate, "beta.example", ask)
        self.assertEqual(await opened, "alpha.example")
        protocol.abort()
        await client.gone

    async def test_back_pressure(self) -> None:
        """A full pipe pauses the user, an empty one wakes it; all arrives before the end."""
        listener = self.listen()
        protocol, side = await self.connect(listener)
        server: Any = await self.made
        await deferLater(reactor, 0)  # out of the call that made it
        reader: Any = side.user
        transport: Any = protocol.transport
        transport.pauseProducing()
        writable: Deferred[None] = Deferred()
        server.user.writable = lambda: writable.callback(None)
        payload = os.urandom(8 << 20)
        server.engine.output.append(payload)
        (pump,) = listener.connections
        pump.flush()
        self.assertTrue(pump.paused)
        self.assertEqual(server.user.pauses, ["paused"])
        transport.resumeProducing()
        await writable
        self.assertFalse(pump.paused)
        server.engine.output.append(payload)
        server.engine.is_closed = True
        pump.flush()
        await reader.gone
        self.assertEqual(b"".join(side.engine.reads), payload * 2)

    async def test_plain_text_on_tls_port(self) -> None:
        """One line in the log says who spoke plain text where."""
        listener = self.listen()
        client = Octets(b"AMQP\x00\x01\x00\x00")
        await self.tcp(listener, client)
        await client.gone
        (line,) = [line for line in self.logged if "plain text" in line]
        self.assertRegex(line, r"peer 127\.0\.0\.1:\d+ spoke plain text on the TLS port tcp:0")
        self.assertEqual(self.sides, [])

    def tcp(self, listener: Listener, client: Octets) -> Deferred[Any]:
        address: Any = listener.addresses[0]
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", address.port)
        factory = Factory()
        factory.noisy = False
        factory.buildProtocol = lambda addr: client  # type: ignore[method-assign]
        return endpoint.connect(factory)

    async def test_slow_loris(self) -> None:
        """A client that does not complete the handshake is dropped, and its place is free."""
        listener = self.listen(limits=PumpLimits(tls_seconds=0.2))
        client = Octets(b"\x16\x03\x01")
        await self.tcp(listener, client)
        await client.gone
        self.assertEqual(self.sides, [])
        self.assertEqual(listener.connections, set())

    async def test_limit(self) -> None:
        """The connection past the limit is closed without a handshake."""
        listener = self.listen(terms=AcceptTerms(1, 1, 1))
        await self.connect(listener)
        error = await self.refusal(listener)
        self.assertEqual(error.code, "tls.handshake")
        self.assertEqual(listener.places.refused, 1)
        self.assertTrue(any("refused" in line for line in self.logged))

    async def test_reload(self) -> None:
        """New certificates count for new connections; the old connection continues."""
        listener = self.listen()
        first, first_side = await self.connect(listener)
        contexts_in(self.directory, "beta.example", folder="new")
        root = Path(self.directory)
        for name in ("chain.pem", "key.pem"):
            os.replace(root / "new" / name, root / "beta.example" / name)
        self.beta.reload()
        second, _ = await self.connect(listener)
        self.assertNotEqual(first.facts.certificate, second.facts.certificate)
        self.assertEqual(second.facts.certificate, self.beta.certificate)
        (root / "beta.example" / "chain.pem").write_text("broken")
        self.assertRaises(TlsError, self.beta.reload)
        third, _ = await self.connect(listener)
        self.assertEqual(third.facts.certificate, self.beta.certificate)
        user: Any = (await self.made).user
        user.wanted = b"still here"
        first_side.engine.output.append(b"still here")
        first.flush()
        await user.arrived

    async def test_refused_port(self) -> None:
        """A port at which nobody listens is told as such."""
        listener = self.listen()
        address: Any = listener.addresses[0]
        await listener.stop_accepting()
        candidate = Candidate(
            "mx.example", address.port, TransportSecurity.IMPLICIT, ("127.0.0.1",), 0, 0, "static"
        )
        connector = Connector(reactor, self.alpha)
        error = await self.assertFailure(
            connector.connect(candidate, "beta.example", self.make), ConnectError
        )
        self.assertEqual(error.code, "connect.refused")

    async def test_names_of_the_system(self) -> None:
        """A host name in a URL is looked up by the system, and has to be proved."""
        contexts = contexts_in(self.directory, "localhost")
        listener = self.listen(contexts=contexts)
        address: Any = listener.addresses[0]
        side = Side(is_client=True)
        side.user = WaitingUser()
        connector = Connector(reactor, self.alpha)
        url = parse_url(f"amqps://localhost:{address.port}")
        protocol = await connector.connect_url(url, side.make)
        self.addCleanup(self.drop, protocol, side)
        self.assertEqual(protocol.facts.certificate_domains, {"localhost"})

    async def test_unix(self) -> None:
        """A unix socket: its mode, the peer's user id, a stale file, another listener."""
        path = os.path.abspath("s.sock")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(path)
        listener = self.listen(f"unix:{path}", tls="none")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o660)
        with self.assertRaises(ListenError) as caught:
            self.listen(f"unix:{path}", tls="none")
        self.assertIn("another process", str(caught.exception))
        side = Side(is_client=True)
        side.user = WaitingUser()
        connector = Connector(reactor, None)
        protocol = await connector.connect_url(parse_url(f"unix:{path}"), side.make)
        self.addCleanup(self.drop, protocol, side)
        facts = (await self.made).facts
        assert facts is not None
        self.assertEqual((facts.unix_uid, facts.unix_pid), (os.getuid(), os.getpid()))
        self.assertTrue(facts.is_encrypted)
        await listener.stopService()
        self.assertFalse(os.path.exists(path))
        error = await self.assertFailure(
            connector.connect_url(parse_url(f"unix:{path}"), side.make), ConnectError
        )
        self.assertIn(path, str(error))

    def test_systemd(self) -> None:
        """Several sockets of one FileDescriptorName are taken; a socket file stays systemd's."""
        path = os.path.abspath("activated.sock")
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        local = socket.socket(socket.AF_UNIX)
        local.bind(path)
        local.listen()
        inherited = [*sockets, local]
        program = (
            "import os, sys\n"
            "for target, source in enumerate(map(int, sys.argv[1].split(',')), 3):\n"
            "    os.dup2(source, target + 97)\n"
            "for target in (3, 4, 5):\n"
            "    os.dup2(target + 97, target)\n"
            "from twisted.internet import reactor\n"
            "from amqproute.net.listener import Listener\n"
            "os.environ['LISTEN_FDNAMES'] = 'amqps:amqps:local'\n"
            "for name in ('amqps', 'local'):\n"
            "    one = Listener(reactor, f'systemd:domain=INET:name={name}', None)\n"
            "    one.startService()\n"
            "    print(len(one.addresses), flush=True)\n"
            "    one.stopService()\n"
            "reactor.callLater(0, reactor.stop)\n"
            "reactor.run()\n"
        )
        with contextlib.ExitStack() as stack:
            for each in inherited:
                stack.enter_context(each)
            numbers = [str(each.fileno()) for each in inherited]
            done = subprocess.run(
                [sys.executable, "-c", program, ",".join(numbers)],
                pass_fds=[each.fileno() for each in inherited],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.assertEqual((done.stdout, done.stderr), ("2\n1\n", ""))
        self.assertTrue(os.path.exists(path))
        os.unlink(path)
