# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host, from the kernel; with network namespaces if available."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SkipTest, SynchronousTestCase

import amqproute
from amqproute.net import own_addresses
from amqproute.net.own_addresses import FRESH_SECONDS, OwnAddresses
from tests.network.lab import run, why_no_namespaces
from tests.support.patience import PATIENCE

SHOW = """
import time
from amqproute.net.own_addresses import OwnAddresses
print(*sorted(map(str, OwnAddresses(time.monotonic)())))
"""


class OwnAddressesTests(SynchronousTestCase):
    def test_loopback(self) -> None:
        """A host has 127.0.0.1, and nobody else's addresses."""
        found = OwnAddresses(Clock().seconds)()
        self.assertIn(ip_address("127.0.0.1"), found)
        self.assertNotIn(ip_address("8.8.8.8"), found)

    def test_refreshed(self) -> None:
        """A result is used for a moment only."""
        clock = Clock()
        read: list[int] = []
        self.patch(own_addresses, "_ipv4_addresses", lambda: read.append(1) or [])
        own = OwnAddresses(clock.seconds)
        for _ in range(100):
            own()
        self.assertEqual(len(read), 1)
        clock.advance(FRESH_SECONDS)
        own()
        self.assertEqual(len(read), 2)

    def test_unreadable(self) -> None:
        """The last result stays in use, and the log names the fault once."""
        clock = Clock()
        own = OwnAddresses(clock.seconds)
        before = own()

        def fail() -> None:
            raise OSError("no")

        self.patch(own_addresses, "_ipv4_addresses", fail)
        with capturedLogs() as logged:
            for _ in range(3):
                clock.advance(FRESH_SECONDS)
                self.assertEqual(own(), before)
        self.assertEqual(len(logged), 1)

    def test_kinds(self) -> None:
        """Further addresses of an interface, more than one answer holds, and those of IPv6."""
        if why_no_namespaces():
            raise SkipTest(why_no_namespaces())
        space = f"amqr{os.getpid()}own"
        run("ip", "netns", "add", space)
        try:
            run("ip", "-n", space, "link", "set", "lo", "up")
            ends = ["name", "a", "type", "veth", "peer", "name", "b"]
            run("ip", "-n", space, "link", "add", *ends)
            added = [f"10.83.{number // 200}.{number % 200 + 1}" for number in range(300)]
            batch = Path(self.mktemp())
            lines = [f"addr add {address}/16 dev a\n" for address in added]
            batch.write_text("".join(lines) + "addr add 2001:db8::83/64 dev a nodad\n")
            run("ip", "-n", space, "-batch", str(batch))
            shown = subprocess.run(
                ["ip", "netns", "exec", space, sys.executable, "-c", SHOW],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=True,
                env={**os.environ, "PYTHONPATH": str(Path(amqproute.__file__).parent.parent)},
            )
        finally:
            with contextlib.suppress(AssertionError):
                run("ip", "netns", "del", space)
        self.assertEqual(set(shown.stdout.split()), {*added, "2001:db8::83", "127.0.0.1", "::1"})
