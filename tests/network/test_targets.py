# SPDX-License-Identifier: Apache-2.0
"""A daemon whose DNS leads inside, on a separate host with a listener on every port.

Two network namespaces and a wire between them, made here and gone with the test. In both a
listener takes down who connects to it, at every address and at the ports of AMQP and Redis. On the
machine itself nothing is dialled.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import amqproute
from amqproute.tools.daemon_pair import dies_with
from tests.integration.support import RUN, Daemon, until
from tests.integration.test_operator import command
from tests.network.lab import run, why_no_namespaces

LISTENER = """
import selectors, socket, sys
chosen = selectors.DefaultSelector()
for port in (5671, 6379):
    listening = socket.socket(socket.AF_INET6)
    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listening.bind(("::", port))
    listening.listen(100)
    chosen.register(listening, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in chosen.select():
        connection = key.fileobj.accept()[0]
        host, port = connection.getsockname()[:2]
        print(host.removeprefix("::ffff:"), port, flush=True)
        connection.close()
"""
DENIED = {
    "unspecified": "@ A 0.0.0.0",
    "unspecified6": "@ AAAA ::",
    "loopback": "@ A 127.0.0.1",
    "loopback6": "_amqps._tcp SRV 0 0 5671 mx\nmx AAAA ::1",
    "mapped": "@ AAAA ::ffff:127.0.0.1",
    "link-local": "@ A 169.254.83.1",
    "own": "@ A 203.0.113.1",
    "own-private": "@ A 10.83.0.1",
    "private": "@ A 10.83.0.2",
    "shared": "@ A 100.64.83.2",
    "unique-local": "@ AAAA fd83::2",
    "redis": "_amqps._tcp SRV 0 0 6379 mx\nmx A 8.8.8.8",
    "nearby": "@ A 10.83.0.2",  # stands below a wildcard, which names nobody
}
DIALLED = {
    "partner": ("@ A 10.83.0.2", "10.83.0.2 5671"),
    "allowed": ("_amqps._tcp SRV 0 0 5671 mx\nmx A 127.0.0.1", "127.0.0.1 5671"),
}
ADDRESSES = {
    "here": ("10.83.0.1/24", "169.254.83.1/16", "100.64.83.1/24", "203.0.113.1/24", "fd83::1/64"),
    "there": ("10.83.0.2/24", "169.254.83.2/16", "100.64.83.2/24", "203.0.113.2/24", "fd83::2/64"),
}
_numbers = itertools.count()


class HostedDaemon(Daemon):
    """A daemon in a namespace; what it reads and its unix socket are on the machine."""

    prefix: tuple[str, ...] = ()

    def spawn(self) -> None:
        """Start it there."""
        self._spawn([*self.prefix, *RUN, str(self.file)], {}, ())


class InsideTests(SynchronousTestCase):
    def setUp(self) -> None:
        if why_no_namespaces():
            raise SkipTest(why_no_namespaces())
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        mark = f"amqr{os.getpid()}t{next(_numbers)}"
        self.spaces = {name: f"{mark}{name}" for name in ADDRESSES}
        for space in self.spaces.values():
            run("ip", "netns", "add", space)
            self.addCleanup(self.remove, space)
            run("ip", "-n", space, "link", "set", "lo", "up")
        here, there = self.spaces.values()
        ends = ["name", "eth0", "type", "veth", "peer", "name", "eth0", "netns", there]
        run("ip", "-n", here, "link", "add", *ends)
        for name, space in self.spaces.items():
            for address in ADDRESSES[name]:
                nodad = ["nodad"] if ":" in address else []
                run("ip", "-n", space, "addr", "add", address, "dev", "eth0", *nodad)
            run("ip", "-n", space, "link", "set", "eth0", "up")
        self.logs = {name: self.start(name, "-c", LISTENER) for name in self.spaces}
        zone = self.directory / "zone"
        zone.write_text(self.zone())
        self.start("here", "-m", "amqproute.tools.zone_server", str(zone), "53", says="")

    @staticmethod
    def remove(space: str) -> None:
        with contextlib.suppress(AssertionError):
            run("ip", "netns", "del", space)

    def start(self, where: str, *words: str, says: str = "ready") -> Path:
        """Start a program in a namespace; return where it writes."""
        log = self.directory / f"{where}-{next(_numbers)}.log"
        root = str(Path(amqproute.__file__).parent.parent)
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.spaces[where], sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": root},
                preexec_fn=dies_with(os.getpid()),
            )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until(lambda: says in log.read_text(), f"{words[0]} at {where}", detail=log.read_text)
        return log

    @staticmethod
    def zone() -> str:
        lines = ["$TTL 1"]
        zones = {**DENIED, **{name: text for name, (text, _) in DIALLED.items()}}
        lines += [
            "$ORIGIN example.",
            "@ SOA ns hostmaster 1 60 60 60 1",
            "@ NS ns",
            "ns A 127.0.0.1",
        ]
        for name, text in zones.items():
            domain = "nearby.corp" if name == "nearby" else name
            lines += [f"$ORIGIN {domain}.example.", text]
        return "\n".join(lines) + "\n"

    def connections(self) -> list[str]:
        """The connections, with their clients."""
        lines = [line for log in self.logs.values() for line in log.read_text().splitlines()]
        return [line for line in lines if line != "ready"]

    def test_inside(self) -> None:
        """Messages for all of them are refused, and nobody is dialled but who may be."""
        daemon = HostedDaemon("alpha.example", nameserver=53)
        daemon.prefix = ("ip", "netns", "exec", self.spaces["here"])
        daemon.settings["resolver"].pop("allow-targets")
        daemon.write(
            peers={
                "*": {"level": "pkix"},
                "*.corp.example": {"level": "pkix"},
                "partner.example": {"level": "pkix"},
            }
        )
        daemon.start()
        self.addCleanup(daemon.stop)
        for name in DENIED:
            domain = "nearby.corp.example" if name == "nearby" else f"{name}.example"
            sent = command(daemon, "send", f"x@{domain}", "--body", "x")
            self.assertIn("dns.denied-target", sent.stderr, name)
            self.assertNotIn("allow-", sent.stderr.partition("next:")[0], name)
        self.assertEqual(self.connections(), [])
        sent = command(daemon, "send", "x@partner.example", "--body", "x")
        self.assertEqual(sent.returncode, 0, sent.stderr)
        until(lambda: DIALLED["partner"][1] in self.connections(), "the partner is dialled")
        daemon.settings["resolver"]["allow-targets"] = ["127.0.0.0/8"]
        daemon.reload()
        sent = command(daemon, "send", "x@allowed.example", "--body", "x")
        self.assertEqual(sent.returncode, 0, sent.stderr)
        until(lambda: DIALLED["allowed"][1] in self.connections(), "loopback is dialled")
        self.assertEqual(set(self.connections()), {place for _, place in DIALLED.values()})
        daemon.check()
