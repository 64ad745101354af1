# SPDX-License-Identifier: Apache-2.0
"""Two daemons without a common authority, which trust each other through signed DNS alone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import dns.rdataset
from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import Issued
from amqproute.net.dane import record_of
from tests.integration.support import (
    Certificates,
    Daemon,
    Wire,
    Zone,
    body_of,
    message,
    new_directory,
)
from tests.support.signing import SignedTree

TTL = 1


def record(issued: Issued) -> str:
    return str(record_of(x509.load_pem_x509_certificates(issued.chain.read_bytes())[0]))


class DaneTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.tree = SignedTree({"alpha.example": "", "beta.example": ""}, now=time.time())
        self.zone = Zone()
        self.zone.authority = self.tree.authority
        self.addCleanup(self.zone.close)
        self.anchors = new_directory() / "anchors"
        self.anchors.write_text(self.tree.anchor_text)
        # An authority for each side, which the other side does not know.
        self.authorities = Certificates(), Certificates()
        self.certificates = [
            each.issue(name)
            for each, name in zip(self.authorities, ("alpha.example", "beta.example"), strict=True)
        ]
        self.alpha, self.beta = (
            self.daemon(name, issued)
            for name, issued in zip(
                ("alpha.example", "beta.example"), self.certificates, strict=True
            )
        )
        self.publish_keys("alpha.example", self.alpha, record(self.certificates[0]))

    def daemon(self, name: str, issued: Issued) -> Daemon:
        changes: dict[str, Any] = {
            "nodes": [{"name": "orders"}],
            "peers": {"*": {"level": "dane"}},
            "resolver": {
                "nameservers": [f"127.0.0.1:{self.zone.port}"],
                "validate": "self",
                "anchors": str(self.anchors),
                "timeout": 2,
                "cache-longest": 0.2,
                "allow-targets": ["127.0.0.0/8"],
            },
        }
        daemon = Daemon(name, issued=issued, changes=changes)
        daemon.settings["tls"]["watch"] = 0.2
        daemon.write()
        self.addCleanup(daemon.stop)
        self.addCleanup(daemon.check)
        return daemon

    def publish_keys(self, domain: str, daemon: Daemon, *records: str) -> None:
        """Sign and serve the zone of a daemon with TLSA records."""
        lines = [f"_amqps._tcp SRV 0 0 {daemon.tls} broker1", "broker1 A 127.0.0.1"]
        lines += [f"_{daemon.tls}._tcp.broker1 TLSA {each}" for each in records]
        self.tree.replace(domain, "\n".join(lines) + "\n", ttl=TTL)

    def send(self, *bodies: bytes) -> None:
        with Wire(self.alpha.plain) as wire:
            wire.publish(
                "orders@beta.example", [message(body, "orders@beta.example") for body in bodies]
            )

    def receive(self, count: int) -> list[bytes]:
        with Wire(self.beta.plain) as wire:
            return [body_of(each) for each in wire.consume("orders", count)]

    def start(self) -> None:
        self.alpha.spawn()
        self.beta.spawn()
        self.alpha.wait_ready()
        self.beta.wait_ready()

    def test_delivered_and_rolled_over(self) -> None:
        """Both sides prove themselves by TLSA alone; a change of key loses nothing."""
        old, new = self.certificates[1], self.authorities[1].issue("beta.example")
        self.publish_keys("beta.example", self.beta, record(old), record(new))
        self.start()
        self.send(b"1", b"2")
        self.assertEqual(self.receive(2), [b"1", b"2"])
        mark = self.beta.mark()
        for ours, theirs in ((old.chain, new.chain), (old.private_key, new.private_key)):
            beside = Path(f"{ours}.new")
            beside.write_bytes(theirs.read_bytes())
            os.replace(beside, ours)
        found = self.beta.wait_log("certificate of ours replaced: serial ([0-9a-f]+) was", mark)
        serial = x509.load_pem_x509_certificates(old.chain.read_bytes())[0].serial_number
        self.assertNotEqual(int(found[1], 16), serial)
        self.send(b"3")
        self.assertEqual(self.receive(1), [b"3"])
        # The old record goes; whoever connects again finds the new key.
        self.publish_keys("beta.example", self.beta, record(new))
        self.alpha.kill()
        self.alpha.start()
        self.send(b"4")
        self.assertEqual(self.receive(1), [b"4"])

    def test_mismatch_never_delivers(self) -> None:
        """A key that the records do not name gets nothing; the right record heals it."""
        self.publish_keys("beta.example", self.beta, "3 1 1 " + "ab" * 32)
        self.start()
        self.send(b"x")
        self.alpha.wait_log("dane.mismatch")
        self.publish_keys("beta.example", self.beta, record(self.certificates[1]))
        self.assertEqual(self.receive(1), [b"x"])

    def test_impostor_does_not_get_in(self) -> None:
        """A sender whose key its own domain does not name is refused by the receiver."""
        self.publish_keys("beta.example", self.beta, record(self.certificates[1]))
        self.publish_keys("alpha.example", self.alpha, "3 1 1 " + "cd" * 32)
        self.start()
        self.send(b"x")
        self.beta.wait_log("dane.mismatch")
        self.publish_keys("alpha.example", self.alpha, record(self.certificates[0]))
        self.assertEqual(self.receive(1), [b"x"])

    def test_bogus_waits(self) -> None:
        """Records that fail validation keep the message waiting, with their own code."""
        evil = dns.rdataset.from_text("IN", "SRV", TTL, "0 0 1 broker1.alpha.example.")
        self.tree.replace(
            "beta.example",
            "_amqps._tcp SRV 0 0 1 broker1\n",
            change=lambda zone: zone.replace_rdataset("_amqps._tcp.beta.example.", evil),
        )
        self.start()
        self.send(b"x")
        self.alpha.wait_log("dns.bogus")
        self.publish_keys("beta.example", self.beta, record(self.certificates[1]))
        self.assertEqual(self.receive(1), [b"x"])
