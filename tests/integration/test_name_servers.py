# SPDX-License-Identifier: Apache-2.0
"""The resolver against name servers on loopback: our own, and BIND, Knot and Unbound if installed.

The same scenarios run against each. BIND and Knot serve the zones themselves; Unbound resolves
for us and asks our own server, as a resolver of a real site would. Where a program is not
installed its tests are skipped and say so (Debian: ``apt-get install bind9 knot unbound``).
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, ClassVar

import dns.rdatatype
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import SkipTest, TestCase

from amqproute.errors import ResolveError
from amqproute.resolver.answer import DnsAnswer, DnsQuestion
from amqproute.resolver.dns_cache import DnsCache
from amqproute.resolver.dns_client import ClientLimits, DnsClient
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import ResolverLimits, SrvResolver
from amqproute.resolver.zone import ZoneFault, ZoneFaultKind, ZoneServer
from amqproute.values import Resolution
from tests.support.patience import PATIENCE
from tests.support.targets import LOOPBACK, dialled

HEAD = "$ORIGIN {0}.\n$TTL 300\n@ SOA ns.{0}. hostmaster.{0}. 1 3600 600 86400 60\n@ NS ns\n"

TEST_ZONE = (
    HEAD.format("test.example")
    + """
ns A 127.0.0.1
_amqps._tcp.ok SRV 10 60 5671 amqp.ok
_amqp._tcp.ok SRV 0 0 5672 amqp.ok
amqp.ok A 192.0.2.1
amqp.ok AAAA 2001:db8::1
_amqps._tcp.prio SRV 20 0 5671 b.prio
_amqps._tcp.prio SRV 10 0 5671 a.prio
a.prio A 192.0.2.11
b.prio A 192.0.2.12
_amqps._tcp.none SRV 0 0 0 .
none A 192.0.2.2
host A 192.0.2.3
host AAAA 2001:db8::3
bare TXT "no service, no address"
_amqps._tcp.v6 SRV 0 0 5671 amqp.v6
amqp.v6 AAAA 2001:db8::6
_amqps._tcp.alias CNAME _amqps._tcp.provider.example.
_amqps._tcp.away SRV 0 0 5671 hub2.provider.example.
_amqps._tcp.ghost SRV 0 0 5671 nobody.ghost
_amqps._tcp.xn--bcher-kva SRV 0 0 5671 amqp.ok
"""
    + "".join(
        f"_amqps._tcp.many SRV {n} 0 5671 amqp-number-{n}.many\n"
        f"amqp-number-{n}.many A 192.0.2.{n}\n"
        for n in range(1, 81)
    )
)

PROVIDER_ZONE = (
    HEAD.format("provider.example")
    + """
ns A 127.0.0.1
_amqps._tcp SRV 0 0 5671 hub
hub A 203.0.113.1
hub AAAA 2001:db8:1::1
hub2 CNAME hub
"""
)

ZONES = {"test.example": TEST_ZONE, "provider.example": PROVIDER_ZONE}

HUB = "2001:db8:1::1,203.0.113.1"

SCENARIOS = {
    "ok.test.example": (
        "amqp.ok.test.example:5671 amqps 2001:db8::1,192.0.2.1 | "
        "amqp.ok.test.example:5672 amqp 2001:db8::1,192.0.2.1"
    ),
    "prio.test.example": (
        "a.prio.test.example:5671 amqps 192.0.2.11 | b.prio.test.example:5671 amqps 192.0.2.12"
    ),
    "none.test.example": "!dns.no-service",
    "host.test.example": "host.test.example:5671 amqps 2001:db8::3,192.0.2.3",
    "bare.test.example": "!dns.no-address",
    "nobody.test.example": "!dns.nxdomain",
    "v6.test.example": "amqp.v6.test.example:5671 amqps 2001:db8::6",
    "alias.test.example": f"hub.provider.example:5671 amqps {HUB}",
    "away.test.example": f"hub2.provider.example:5671 amqps {HUB}",
    "ghost.test.example": "!dns.no-address",
    "Bücher.test.example": "amqp.ok.test.example:5671 amqps 2001:db8::1,192.0.2.1",
    "many.test.example": " | ".join(
        f"amqp-number-{n}.many.test.example:5671 amqps 192.0.2.{n}" for n in range(1, 17)
    ),
}


def free_port() -> int:
    """A loopback port that is free for UDP and TCP."""
    for _ in range(20):
        with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            udp.bind(("127.0.0.1", 0))
            try:
                tcp.bind(udp.getsockname())
            except OSError:
                continue
            return int(udp.getsockname()[1])
    raise AssertionError("no port is free for both UDP and TCP")


def words(resolution: Resolution) -> str:
    """Candidates in the form of `SCENARIOS`."""
    return " | ".join(
        f"{c.host}:{c.port} {c.security.value} {','.join(c.addresses)}"
        for c in resolution.candidates
    )


class Daemon(ProcessProtocol):
    """A name server's process; what it says is kept for the case that it does not start."""

    def __init__(self) -> None:
        self.output = b""
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self.output = (self.output + data)[-8000:]

    errReceived = outReceived

    def processEnded(self, reason: Failure) -> None:
        reason.trap(ProcessDone, ProcessTerminated)
        self.ended.callback(None)

    async def stop(self) -> None:
        """End the process: politely first."""
        if self.ended.called:
            return
        assert self.transport is not None
        self.transport.signalProcess("TERM")
        kill = reactor.callLater(PATIENCE, self.transport.signalProcess, "KILL")
        await self.ended
        if kill.active():
            kill.cancel()


PATIENT = ClientLimits(try_timeout=PATIENCE / 24, rounds=6, deadline=PATIENCE)
"""Six tries, each as much longer as the first one takes, within the deadline."""


class NameServerTestCase(TestCase):
    timeout = PATIENCE
    port: int

    def setUp(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self.start())

    async def start(self) -> None:
        raise NotImplementedError

    def nameserver(self) -> Nameserver:
        return Nameserver("127.0.0.1", self.port)

    def client(self, **limits: float) -> DnsClient:
        """Return a client with these limits; without any it is patient: the machine may be slow."""
        bounds = ClientLimits(**limits) if limits else PATIENT
        return DnsClient(reactor, [self.nameserver()], random.SystemRandom(), limits=bounds)

    def resolver(self, **limits: float) -> SrvResolver:
        cache: DnsCache[DnsQuestion, DnsAnswer] = DnsCache(reactor)
        return SrvResolver(
            self.client(**limits),
            cache,
            random.Random(1).random,
            reactor,
            targets=dialled(*LOOPBACK),
            limits=ResolverLimits() if limits else ResolverLimits(deadline=PATIENCE),
        )

    def run_async(self, work: Coroutine[Any, Any, None]) -> Deferred[None]:
        return Deferred.fromCoroutine(work)

    async def outcome(self, resolver: SrvResolver, domain: str) -> str:
        try:
            return words(await resolver.resolve(domain))
        except ResolveError as error:
            return "!" * error.permanent + error.code


class ScenarioMixin:
    """The scenarios that every server has to pass."""

    def test_scenarios(self: Any) -> Deferred[None]:
        """Each domain, one after the other, from a cold and then from a warm cache."""

        async def work() -> None:
            resolver = self.resolver()
            for _ in "cold", "warm":
                for domain, expected in SCENARIOS.items():
                    self.assertEqual(await self.outcome(resolver, domain), expected, domain)

        return self.run_async(work())

    def test_all_at_once(self: Any) -> Deferred[None]:
        """All domains at the same time, each several times."""

        async def work() -> None:
            resolver = self.resolver()
            domains = list(SCENARIOS) * 5
            waiting = [Deferred.fromCoroutine(self.outcome(resolver, d)) for d in domains]
            for domain, one in zip(domains, waiting, strict=True):
                self.assertEqual(await one, SCENARIOS[domain], domain)

        return self.run_async(work())


class ZoneServerTests(ScenarioMixin, NameServerTestCase):
    """Our own small server."""

    async def start(self) -> None:
        self.server = ZoneServer(list(ZONES.values()), reactor)
        self.port = await self.server.start()
        self.addCleanup(self.server.stop)

    def test_faults(self) -> Deferred[None]:
        """SERVFAIL, REFUSED, garbage, silence and lateness over real sockets."""

        async def work() -> None:
            for kind, code in (
                (ZoneFaultKind.SERVFAIL, "dns.servfail"),
                (ZoneFaultKind.REFUSED, "dns.refused"),
                (ZoneFaultKind.GARBAGE, "dns.malformed"),
                (ZoneFaultKind.DROP, "dns.timeout"),
            ):
                self.server.authority.set_fault("_amqps._tcp.host.test.example", ZoneFault(kind))
                resolver = self.resolver(try_timeout=0.1)
                self.assertEqual(await self.outcome(resolver, "host.test.example"), code)
            late = ZoneFault(ZoneFaultKind.DELAY, 0.05)
            self.server.authority.set_fault("_amqps._tcp.host.test.example", late)
            found = await self.outcome(self.resolver(), "host.test.example")
            self.assertEqual(found, SCENARIOS["host.test.example"])

        return self.run_async(work())

    def test_nobody_listens(self) -> Deferred[None]:
        """A closed port is noticed at once, not after a time-out."""

        async def work() -> None:
            await self.server.stop()
            began = reactor.seconds()
            self.assertEqual(
                await self.outcome(self.resolver(), "ok.test.example"), "dns.unreachable"
            )
            self.assertLess(reactor.seconds() - began, 1.5)

        return self.run_async(work())

    def test_stop_with_open_connections(self) -> Deferred[None]:
        """Stopping closes connections, and forgets answers that would come late."""

        async def work() -> None:
            name = "_amqps._tcp.many.test.example"
            question = DnsQuestion(name, dns.rdatatype.SRV)
            client = self.client()
            self.assertEqual(len((await client.ask(question)).services), 80)
            self.server.authority.set_fault(name, ZoneFault(ZoneFaultKind.DELAY, 30))
            waiting = client.ask(question)
            while self.server.authority.asked.count(question) < 3:
                await deferLater(reactor, 0.01)
            await self.server.stop()
            waiting.cancel()
            waiting.addErrback(lambda failure: None)

        return self.run_async(work())


class IPv6ZoneServerTests(ScenarioMixin, NameServerTestCase):
    """Our own small server, over IPv6."""

    async def start(self) -> None:
        try:
            with socket.socket(socket.AF_INET6) as probe:
                probe.bind(("::1", 0))
        except OSError as error:
            raise SkipTest(f"no IPv6 loopback here: {error}") from None
        server = ZoneServer(list(ZONES.values()), reactor)
        self.port = await server.start("::1")
        self.addCleanup(server.stop)

    def nameserver(self) -> Nameserver:
        return Nameserver("::1", self.port)


class DaemonTestCase(NameServerTestCase):
    """A server that is a program of somebody else."""

    program: ClassVar[str]

    async def start(self) -> None:
        path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
        binary = shutil.which(self.program, path=path)
        if binary is None:
            raise SkipTest(f"{self.program} is not installed")
        await self.prepare()
        # Not trial's own directory: a path of a unix socket has at most 107 octets.
        self.directory = Path(tempfile.mkdtemp(prefix="amqproute-dns-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        for origin, text in ZONES.items():
            (self.directory / f"{origin}.zone").write_text(text)
        self.port = free_port()
        configuration = self.directory / "server.conf"
        configuration.write_text(self.configuration())
        self.daemon = Daemon()
        arguments = [binary, *self.arguments(str(configuration))]
        reactor.spawnProcess(
            self.daemon, binary, arguments, env=dict(os.environ), path=str(self.directory)
        )
        self.addCleanup(lambda: Deferred.fromCoroutine(self.daemon.stop()))
        await self.wait_until_ready()

    async def prepare(self) -> None:
        """Files needed before the program starts."""

    def configuration(self) -> str:
        raise NotImplementedError

    def arguments(self, configuration: str) -> list[str]:
        raise NotImplementedError

    async def wait_until_ready(self) -> None:
        deadline = reactor.seconds() + PATIENCE
        client = self.client(rounds=1, try_timeout=0.5)
        while True:
            try:
                for zone in ZONES:
                    await client.ask(DnsQuestion(f"ns.{zone}", dns.rdatatype.A))
            except ResolveError as error:
                output = self.daemon.output.decode("utf-8", "replace")
                if self.daemon.ended.called:
                    self.fail(f"{self.program} ended:\n{output}")
                if reactor.seconds() > deadline:
                    self.fail(f"{self.program} is not ready: {error}\n{output}")
                await deferLater(reactor, 0.1)
            else:
                return


class BindTests(ScenarioMixin, DaemonTestCase):
    """BIND 9 as the authoritative server."""

    program = "named"

    def configuration(self) -> str:
        zones = "\n".join(
            f'zone "{origin}" {{ type primary; file "{origin}.zone"; }};' for origin in ZONES
        )
        return f"""
options {{
    directory "{self.directory}";
    pid-file "{self.directory}/named.pid";
    session-keyfile "{self.directory}/session.key";
    listen-on port {self.port} {{ 127.0.0.1; }};
    listen-on-v6 {{ none; }};
    recursion no;
    notify no;
}};
controls {{ }};
{zones}
"""

    def arguments(self, configuration: str) -> list[str]:
        return ["-g", "-n", "1", "-c", configuration]


class KnotTests(ScenarioMixin, DaemonTestCase):
    """Knot DNS as the authoritative server."""

    program = "knotd"

    def configuration(self) -> str:
        zones = "\n".join(
            f"  - domain: {origin}\n    file: {origin}.zone\n    zonefile-sync: -1"
            for origin in ZONES
        )
        return f"""
server:
    rundir: "{self.directory}"
    listen: 127.0.0.1@{self.port}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
database:
    storage: "{self.directory}/db"
template:
  - id: default
    storage: "{self.directory}"
log:
  - target: stderr
    any: info
zone:
{zones}
"""

    def arguments(self, configuration: str) -> list[str]:
        return ["-c", configuration]


class UnboundTests(ScenarioMixin, DaemonTestCase):
    """Unbound, resolving for us by asking our own server."""

    program = "unbound"

    async def prepare(self) -> None:
        self.server = ZoneServer(list(ZONES.values()), reactor)
        self.upstream = await self.server.start()
        self.addCleanup(self.server.stop)

    def configuration(self) -> str:
        stubs = "\n".join(
            f"stub-zone:\n    name: {origin}\n    stub-addr: 127.0.0.1@{self.upstream}"
            for origin in ZONES
        )
        return f"""
server:
    interface: 127.0.0.1
    port: {self.port}
    do-not-query-localhost: no
    do-daemonize: no
    use-syslog: no
    logfile: ""
    chroot: ""
    username: ""
    directory: "{self.directory}"
    pidfile: "{self.directory}/unbound.pid"
    module-config: "iterator"
    infra-cache-min-rtt: 4000
    num-threads: 1
    outgoing-range: 64
    cache-max-negative-ttl: 60
remote-control:
    control-enable: no
{stubs}
"""

    def arguments(self, configuration: str) -> list[str]:
        return ["-d", "-c", configuration]

    def test_failing_zone(self) -> Deferred[None]:
        """The zone's own server fails: the resolver says SERVFAIL, and that proves nothing."""

        async def work() -> None:
            for name in "_amqps._tcp.host.test.example", "_amqp._tcp.host.test.example":
                self.server.authority.set_fault(name, ZoneFault(ZoneFaultKind.SERVFAIL))
            self.assertEqual(
                await self.outcome(self.resolver(), "host.test.example"), "dns.servfail"
            )

        return self.run_async(work())
