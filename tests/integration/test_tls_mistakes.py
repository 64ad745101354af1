# SPDX-License-Identifier: Apache-2.0
"""Mistakes with TLS between two brokers: each is named by both logs and by ``peer test``."""

from __future__ import annotations

import datetime
import re
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import Issued
from tests.integration.support import (
    Certificates,
    Daemon,
    Wire,
    Zone,
    certificates,
    message,
)
from tests.integration.test_operator import command
from tests.support.program import run

ALPHA, BETA = "alpha.example", "beta.example"
EVASIVE = re.compile(
    r"non-clean|\\x1[56]|alert internal error|Connection was closed cleanly|unexpected end of file"
)
"""Texts that tell an operator nothing."""


class MistakeTests(SynchronousTestCase):
    """One test for each mistake; alpha connects, beta is called."""

    timeout = 120

    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.alpha = Daemon(ALPHA, nameserver=self.zone.port)
        self.alpha.settings["relay"].update({"connect-timeout": 3})
        self.zone.point(ALPHA, self.alpha.tls)

    def beta(self, issued: Issued | None = None, **listener: Any) -> Daemon:
        """Start the broker that is called."""
        beta = Daemon(BETA, nameserver=self.zone.port, issued=issued)
        beta.settings["listen"][3].update(listener)
        beta.write(nodes=[{"name": "orders"}])
        self.addCleanup(beta.kill)
        return beta.start()

    def named(
        self, beta: Daemon, port: int, ours: str, theirs: str, tested: str, service: str = "_amqps"
    ) -> None:
        """Have alpha call a port of beta's; assert what both logs and ``peer test`` say.

        Args:
            beta: who is called.
            port: where.
            ours: a pattern for the log of alpha.
            theirs: another for that of beta.
            tested: another for what ``peer test`` prints.
            service: of the SRV record.
        """
        self.zone.point(BETA, port, service=f"{service}._tcp")
        self.alpha.write()
        self.alpha.start()
        self.addCleanup(self.alpha.kill)
        with Wire(self.alpha.plain) as wire:
            wire.publish(f"orders@{BETA}", [message(b"x")])
        line = self.alpha.wait_log(r".*beta\.example cannot be reached.*", seconds=30)[0]
        self.assertRegex(line, ours)
        self.assertNotRegex(line, EVASIVE)
        found = beta.wait_log(rf".*(?:{theirs}).*", seconds=30)[0]
        self.assertNotRegex(found, EVASIVE)
        done = command(self.alpha, "peer", "test", BETA)
        self.assertEqual(done.returncode, 1, done.stdout)
        failed = done.stdout[done.stdout.index("FAILED") :]
        self.assertRegex(failed, tested)
        self.assertNotRegex(failed, EVASIVE)
        self.assertIn("next: ", failed)
        for daemon in (self.alpha, beta):
            self.assertNotIn("Traceback", daemon.log())

    def test_tls_to_a_port_that_upgrades(self) -> None:
        beta = self.beta()
        words = "does not begin with TLS|speaks AMQP before TLS"
        self.named(beta, beta.upgrade, words, "the client begins TLS", words)

    def test_tls_to_a_port_without(self) -> None:
        beta = self.beta()
        words = "does not begin with TLS|speaks AMQP before TLS"
        self.named(beta, beta.plain, words, "the client begins TLS", words)

    def test_plain_to_a_tls_port(self) -> None:
        beta = self.beta()
        words = "speaks TLS from the first octet"
        self.named(beta, beta.tls, words, "spoke plain text on the TLS port", words, "_amqp")

    def test_name_mismatch(self) -> None:
        beta = self.beta(certificates().issue("gamma.example"))
        words = "does not prove beta.example.*names gamma.example"
        theirs = "wanted beta.example.* our certificate names gamma.example"
        self.named(beta, beta.tls, words, theirs, words)

    def test_unknown_authority(self) -> None:
        beta = self.beta(Certificates().issue(BETA))
        words = "its authority is not trusted|its issuer is unknown"
        self.named(beta, beta.tls, words, "does not trust the authority of our certificate", words)

    def test_our_unknown_authority(self) -> None:
        """The other way around: the one that is called does not trust the caller's authority."""
        issued = Certificates().issue(ALPHA)
        self.alpha.settings["tls"].update(
            {"certificate": str(issued.chain), "private-key": str(issued.private_key)}
        )
        beta = self.beta()
        words = "does not take our certificate"
        theirs = r"tls\.untrusted: .*(authority is not trusted|issuer is unknown)"
        self.named(beta, beta.tls, words, theirs, words)

    def test_expired(self) -> None:
        """It has run out while the daemon runs."""
        now = datetime.datetime.now(datetime.UTC)
        for seconds in (8, 60):
            ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
            beta = self.beta(certificates().issue(BETA, not_before=now, not_after=ends))
            if datetime.datetime.now(datetime.UTC) < ends:
                break
            beta.stop()  # it took so long that it has started without TLS
        while datetime.datetime.now(datetime.UTC) <= ends + datetime.timedelta(seconds=1):
            time.sleep(0.1)
        words = r"tls\.expired: .*it has expired"
        self.named(beta, beta.tls, words, "our certificate has expired", words)

    def test_without_certificate(self) -> None:
        """A client shows none where one is required; it sees why, and so does the broker."""
        issued = certificates().issue(BETA, dns_names=[BETA, "localhost"])
        listener = {"client-certificate": "required", "mechanisms": ["EXTERNAL"]}
        beta = self.beta(issued, **listener)
        url = f"amqps://localhost:{beta.tls}"
        trust = str(certificates().trust)
        done = run("receive", "orders", "--url", url, "--trust", trust, "--count", "1")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, "requires a certificate, and we have shown none")
        self.assertNotRegex(done.stderr, EVASIVE)
        beta.wait_log(
            r"tls\.no-certificate: the peer has shown no certificate, and one is required"
        )
        # A broker without one dials nobody, and is told what it lacks.
        del self.alpha.settings["tls"]["certificate"], self.alpha.settings["tls"]["private-key"]
        plain = [each for each in self.alpha.settings["listen"] if not each.get("tls")]
        self.alpha.write(listen=plain)
        self.zone.point(BETA, beta.tls)
        self.alpha.start()
        self.addCleanup(self.alpha.kill)
        with Wire(self.alpha.plain) as wire:
            wire.publish(f"orders@{BETA}", [message(b"x")])
        line = self.alpha.wait_log(r".*beta\.example cannot be reached.*")[0]
        self.assertRegex(line, "tls.certificate")
        done = command(self.alpha, "peer", "test", BETA)
        self.assertIn("tls.certificate is not configured", done.stdout)
