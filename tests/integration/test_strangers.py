# SPDX-License-Identifier: Apache-2.0
"""Mute strangers, guessers and balancers at a running daemon."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
from collections import deque
from typing import Any, Final

from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.integration.support import (
    SASL,
    Daemon,
    DaemonTestCase,
    Raw,
    Wire,
    client_tls,
    opening,
    sasl_frame,
    until,
)
from tests.net.test_proxy_protocol import header
from tests.support.program import run

BALANCER: Final = "127.0.0.99"


class MuteTests(DaemonTestCase):
    """One address with as many connections as it likes."""

    changes = {"access": [{"allow": ["publish", "consume", "browse", "manage"], "who": "*"}]}

    def test_one_address_locks_nobody_out(self) -> None:
        """A thousand mute connections of one address, renewed when they are closed: every
        bystander gets in at the first attempt, and the operator sees what happens."""
        mute: deque[socket.socket] = deque()
        self.addCleanup(lambda: [each.close() for each in mute])
        for number in range(1000):
            with contextlib.suppress(ConnectionError):
                mute.append(socket.create_connection(("127.0.0.1", self.daemon.plain), 10))
            if number % 50 == 49:
                with Wire(self.daemon.plain, source=f"127.0.0.{2 + number // 50}") as bystander:
                    bystander.attach("sender", self.node)
        self.logged("connections refused, .* the limit is 100 for 127.0.0.1")
        found = self.listener()
        self.assertEqual(found["mute"], 100)
        self.assertGreaterEqual(found["refused"] + found["closed-mute"], 900)
        told = run("status", "--config", str(self.daemon.file))
        self.assertIn("100 for 127.0.0.1", told.stdout)
        for each in mute:
            each.close()
        until(lambda: self.listener()["mute"] == 0, "the places are given back")
        self.still_serves()

    def listener(self) -> dict[str, Any]:
        """Return the management node's row of the listener."""
        told = run("status", "--json", "--config", str(self.daemon.file))
        (row,) = [
            row
            for row in json.loads(told.stdout)["listeners"]
            if row["name"] == self.daemon.endpoint(self.daemon.plain)
        ]
        return dict(row)


class DescriptorTests(DaemonTestCase):
    """More connections than the process may have file descriptors."""

    @classmethod
    def make(cls) -> Daemon:
        daemon = Daemon("alpha.example", changes={"nodes": cls.queues()})
        for listen in daemon.settings["listen"][1:]:
            listen["mute-per-address"] = 400
            listen["mute-per-network"] = 400
        daemon.write()
        return daemon.start()

    def test_none_left(self) -> None:
        """The daemon lives, says it in few lines, and serves when descriptors are free again."""
        limits = resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE)
        taken = len(os.listdir(f"/proc/{self.daemon.pid}/fd"))
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, (taken + 50, limits[1]))
        mute = []
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                mute.append(socket.create_connection(("127.0.0.1", self.daemon.plain), 10))
                stack.callback(mute[-1].close)
            self.logged("connections could not be accepted .*raise LimitNOFILE=")
            self.assertLess(self.daemon.log()[self.begun_at :].count("\n"), 30)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_NOFILE, limits)
        # Those that the kernel had accepted meanwhile are still turned away.
        until(self.lets_in, "a connection that is let in")
        self.still_serves()

    def lets_in(self) -> bool:
        """Tell whether a client can log in."""
        try:
            with Wire(self.daemon.plain) as wire:
                wire.attach("sender", "test_none_left")
        except OSError:
            return False
        return True


class GuessingTests(DaemonTestCase):
    """Wrong passwords by the dozen, from everybody's address."""

    def log_in(self, password: bytes) -> Raw:
        """Return a client that has sent its name and password."""
        client = Raw(self.daemon.tls, client_tls())
        self.addCleanup(client.close)
        init = spec.SaslInit(mechanism=Symbol("PLAIN"), initial_response=b"\0anna\0" + password)
        client.write(SASL, sasl_frame(init))
        self.assertEqual(client.header(), SASL)
        client.expect(spec.SaslMechanisms)
        return client

    def test_no_lock_out(self) -> None:
        """The right password is taken while the answers to ten wrong ones are held back; then
        these come, and each is in the log with the name that was tried."""
        wrong = [self.log_in(b"guess") for _ in range(10)]
        right = self.log_in(b"secret").expect(spec.SaslOutcome)
        self.assertEqual(right.code, spec.SASL_OK)
        self.assertEqual(wrong[0].expect(spec.SaslOutcome).code, spec.SASL_AUTH)
        self.logged('log-in failed from 127.0.0.1, PLAIN, user "anna"')
        with Raw(self.daemon.tls, client_tls(), source="127.0.0.2") as other:
            other.write(SASL)
            self.assertEqual(other.header(), SASL)


class BalancerTests(DaemonTestCase):
    """The PROXY protocol, before TLS and without."""

    @classmethod
    def make(cls) -> Daemon:
        daemon = Daemon("alpha.example", changes={"nodes": cls.queues()})
        for listen in daemon.settings["listen"][1:]:
            listen["proxy-protocol"] = [f"{BALANCER}/32"]
        daemon.write()
        return daemon.start()

    def test_client_behind_a_balancer(self) -> None:
        """The log names the client that the balancer has named."""
        first = header("203.0.113.5", 4711)
        with Wire(self.daemon.plain, source=BALANCER, first=first) as client:
            client.attach("sender", self.node)
            self.logged(r"203\.0\.113\.5:4711 opened by anonymous")
        self.still_serves()

    def test_reload(self) -> None:
        """Another list of balancers is in force after a reload."""
        listens = json.loads(self.daemon.file.read_text())["listen"]
        for listen in listens[1:]:
            listen["proxy-protocol"].append("127.0.0.97/32")
        self.daemon.reload(listen=listens)
        first = header("203.0.113.7", 4711)
        with Wire(self.daemon.plain, source="127.0.0.97", first=first) as client:
            client.attach("sender", self.node)
            self.logged(r"203\.0\.113\.7:4711 opened by anonymous")
        self.assertNotIn("take effect at the next start", self.daemon.log()[self.begun_at :])

    def test_before_tls(self) -> None:
        """The header goes before the TLS handshake."""
        first = header("2001:db8::5", 4711)
        with Raw(self.daemon.tls, client_tls(), source=BALANCER, first=first) as client:
            client.write(b"AMQP\x03\x01\x00\x00")
            self.assertEqual(client.header(), b"AMQP\x03\x01\x00\x00")
            mechanisms = client.expect(spec.SaslMechanisms)
            self.assertIn("PLAIN", mechanisms.sasl_server_mechanisms)

    def test_from_elsewhere(self) -> None:
        """From another address the header is no AMQP, and no TLS."""
        with Raw(self.daemon.plain, first=header("203.0.113.6"), source="127.0.0.98") as client:
            self.assertTrue(client.closed())
        self.logged(r"127\.0\.0\.98:\d+ ")
        with Raw(self.daemon.tls, first=header("203.0.113.6"), source="127.0.0.98") as client:
            self.assertTrue(client.closed())
        self.logged(r"127\.0\.0\.98:\d+ .*TLS port")
        self.assertNotIn("203.0.113.6", self.daemon.log())

    def test_without_a_header(self) -> None:
        """From the balancer nothing else is taken."""
        with Raw(self.daemon.plain, source=BALANCER) as client:
            client.write(opening())
            self.assertTrue(client.closed())
        self.logged(rf"balancer {BALANCER} .*no header of the PROXY protocol")
