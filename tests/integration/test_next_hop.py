# SPDX-License-Identifier: Apache-2.0
"""A daemon's identity at the next hop: TLS, SASL and open, seen by a scripted partner.

The partner is a TLS server that shares no code with the relay, but for what it writes; what it
hears is read by `tests.support.plain_decoder`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.tools.daemon_pair import free_ports
from amqproute.wire.amqp10 import spec
from tests.integration.clients import AMQP, SASL, Raw, frame, message, sasl_frame
from tests.integration.support import Daemon, Wire, Zone, certificates, until
from tests.integration.test_remote_services import request, section
from tests.support.patience import PATIENCE
from tests.support.plain_decoder import field, frames

DOMAIN = "partner.example"


class Partner:
    """A next hop that demands a certificate, logs callers in, opens, and says no more.

    Args:
        mechanisms: what it offers.

    Attributes:
        names: what callers asked for by SNI.
        subjects: the domain names in their certificates.
        heard: octets of each caller.
    """

    def __init__(self, *mechanisms: str) -> None:
        issued = certificates().issue(DOMAIN)
        self.names: list[str | None] = []
        self.subjects: list[list[str]] = []
        self.heard: list[bytearray] = []
        self._mechanisms = mechanisms
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(issued.chain, issued.private_key)
        self._context.load_verify_locations(certificates().trust)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.sni_callback = lambda _, name, __: self.names.append(name)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _ = self._socket.accept()
                plain.settimeout(PATIENCE)
                with (
                    contextlib.suppress(OSError),
                    self._context.wrap_socket(plain, server_side=True) as secured,
                ):
                    certificate: Any = secured.getpeercert()
                    self.subjects.append([name for _, name in certificate["subjectAltName"]])
                    self._talk(secured)

    def _talk(self, secured: ssl.SSLSocket) -> None:
        heard = bytearray()
        self.heard.append(heard)
        script = [
            (SASL, SASL + sasl_frame(spec.SaslMechanisms(sasl_server_mechanisms=self._mechanisms))),
            (b"\x00\x53\x41", sasl_frame(spec.SaslOutcome(code=0))),
            (AMQP, AMQP),
            (b"\x00\x53\x10", frame(spec.Open(container_id="partner", idle_time_out=1000))),
        ]
        while data := secured.recv(65536):
            heard += data
            while script and script[0][0] in heard:
                secured.sendall(script.pop(0)[1])

    def close(self) -> None:
        """Take no more callers."""
        self._socket.close()


class NextHopTests(SynchronousTestCase):
    """Alpha has a message for the partner."""

    def call(self, *mechanisms: str) -> Partner:
        """Have alpha call a partner that offers these mechanisms."""
        zone = Zone()
        partner = Partner(*mechanisms)
        self.addCleanup(partner.close)
        zone.point(DOMAIN, partner.port)
        self.alpha = Daemon("alpha.example", nameserver=zone.port).start()
        self.addCleanup(self.alpha.stop)
        with Wire(self.alpha.plain) as wire:
            wire.publish(f"q@{DOMAIN}", [message(b"m")])
        return partner

    def test_open(self) -> None:
        """T-18, T-19, T-35: both prove themselves, SNI and open name the domain, and it beats."""
        partner = self.call("ANONYMOUS", "EXTERNAL")

        def beats() -> int:
            said = frames(_whole(partner.heard[0])) if partner.heard else []
            return sum(performative is None for _, performative, _ in said)

        until(lambda: beats() >= 2, "two empty frames within the partner's idle-time-out")
        self.assertEqual(partner.names[0], DOMAIN)
        self.assertIn("alpha.example", partner.subjects[0])
        said = {
            performative.descriptor: performative
            for _, performative, _ in frames(_whole(partner.heard[0]))
            if performative is not None
        }
        self.assertEqual(field(said[0x41], 0), "EXTERNAL")
        self.assertEqual(field(said[0x10], 0), "broker1.alpha.example")
        self.assertEqual(field(said[0x10], 1), DOMAIN)
        idle_ms = field(said[0x10], 4)
        assert isinstance(idle_ms, int)
        self.assertGreater(idle_ms, 0)
        self.alpha.check()

    def test_anonymous(self) -> None:
        """T-19: to a broker that knows us by ANONYMOUS only nothing is said, and it is logged."""
        partner = self.call("ANONYMOUS")
        self.alpha.wait_log(f"{DOMAIN} cannot be reached.*ANONYMOUS")
        self.assertNotIn(AMQP, bytes(partner.heard[0]))
        self.alpha.check()


class RelayQueueTests(SynchronousTestCase):
    """A relay queue as operators see it over ``$management``."""

    def test_query(self) -> None:
        """T-37: QUERY has depth, oldest age, next attempt and last error of each relay queue."""
        zone = Zone()
        zone.point(DOMAIN, free_ports(1)[0])
        slow = {"first-retry": 100, "last-retry": 100}
        alpha = Daemon(
            "alpha.example",
            nameserver=zone.port,
            changes={"nodes": [{"name": "answers"}], "relay": slow},
        )
        self.addCleanup(alpha.stop)
        alpha.start()
        asked_s = time.time()
        with Wire(alpha.plain) as wire:
            wire.publish(f"q@{DOMAIN}", [message(b"1"), message(b"2")])
            alpha.wait_log(f"{DOMAIN} cannot be reached")
            wire.publish("$management", [request("QUERY", "answers", "$management", "relay-queue")])
            (reply,) = wire.consume("answers", 1)
        body = section(reply, 0x77)
        (values,) = body["results"]
        row = dict(zip(body["attributeNames"], values, strict=True))
        self.assertEqual((row["name"], row["depth"]), (f"amqp$out/{DOMAIN}", 2))
        self.assertTrue(0 <= row["oldest-age-ms"] <= (time.time() - asked_s + 1) * 1000, row)
        self.assertEqual(row["failures"], 1)
        self.assertIn("refused", row["last-error"])
        self.assertGreater(row["next-attempt-ms"], asked_s * 1000)
        alpha.check()


def _whole(octets: bytearray) -> bytes:
    """Return the frames that are complete."""
    data, end = bytes(octets), 0
    while len(data) - end >= 8:
        is_header = data[end : end + 4] == b"AMQP"
        size = 8 if is_header else int.from_bytes(data[end : end + 4], "big")
        if end + size > len(data):
            break
        end += size
    return data[:end]


class ContainerTests(SynchronousTestCase):
    """The name a daemon gives itself."""

    def opened(self, daemon: Daemon, hostname: str = "") -> spec.Open:
        """Open a connection; return the daemon's open."""
        with Raw(daemon.plain) as raw:
            raw.write(AMQP, frame(spec.Open(container_id="c", hostname=hostname or None))).header()
            return raw.expect(spec.Open)

    def test_generated(self) -> None:
        """A-15: an id that nobody configured is made once, kept over restarts, and is unique."""
        daemons = [Daemon(f"{name}.example", changes={"container-id": None}) for name in "xy"]
        for daemon in daemons:
            self.addCleanup(daemon.stop)
            daemon.start()
        first, other = (self.opened(daemon).container_id for daemon in daemons)
        self.assertTrue(first and other)
        self.assertNotEqual(first, other)
        daemons[0].kill()
        daemons[0].start()
        self.assertEqual(self.opened(daemons[0]).container_id, first)

    def test_strict_hostname(self) -> None:
        """A-16: a host name of nobody's is served, or refused with `strict-hostname`."""
        daemon = Daemon("alpha.example", domains=["second.example"])
        self.addCleanup(daemon.stop)
        daemon.start()
        self.opened(daemon, "nobody.example")
        daemon.reload(**{"strict-hostname": True})
        for name in ("alpha.example", "SECOND.example", "broker1.alpha.example", ""):
            self.opened(daemon, name)
        with Raw(daemon.plain) as raw:
            raw.write(AMQP, frame(spec.Open(container_id="c", hostname="nobody.example"))).header()
            error = raw.expect(spec.Close).error
        assert error is not None
        self.assertEqual(str(error.condition), "amqp:not-found")
