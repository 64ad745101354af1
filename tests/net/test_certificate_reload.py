# SPDX-License-Identifier: Apache-2.0
"""Certificates that change under a running daemon, connections that outlive them, revocation."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import TlsError
from amqproute.net.authority import issue, make_authority
from amqproute.net.certificate_reload import FileWatch, StaleConnections, retire, stale
from amqproute.net.tls import TlsContexts
from tests.net.test_inbound_trust import Meeting
from tests.net.wires import contexts_in, settle

SECONDS = 10.0
NOW = datetime.datetime.now(datetime.UTC)


def revocation_list(
    directory: Path,
    *revoked: x509.Certificate,
    encoding: serialization.Encoding = serialization.Encoding.PEM,
    next_update: datetime.datetime = NOW + datetime.timedelta(days=1),
    signer: Path | None = None,
) -> bytes:
    """A list of the authority in a directory."""
    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key(
        ((signer or directory) / "ca-key.pem").read_bytes(), None
    )
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(NOW - datetime.timedelta(days=9))
        .next_update(next_update)
    )
    for certificate in revoked:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(certificate.serial_number)
            .revocation_date(NOW - datetime.timedelta(days=2))
            .add_extension(x509.CRLReason(x509.ReasonFlags.key_compromise), critical=False)
            .build()
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(encoding)  # type: ignore[arg-type]


class RenewalTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.alpha = contexts_in(str(self.root), "alpha.example")
        self.beta = contexts_in(str(self.root), "beta.example")
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def observe(self, event: LogEvent) -> None:
        self.lines.append(formatEvent(event))

    def said(self) -> str:
        said, self.lines = "\n".join(self.lines), []
        return said

    def issue_next(self, folder: str) -> Path:
        issue(self.root, ["alpha.example"], folder=folder)
        return self.root / folder


class WatchTests(RenewalTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.changes = 0
        self.watch = FileWatch(self.alpha, self.clock, SECONDS, self.changed)
        self.watch.start()
        self.addCleanup(self.watch.stop)
        self.serial = self.alpha.loaded.serial

    def changed(self) -> None:
        self.changes += 1

    def put(self, folder: Path, name: str) -> None:
        """Replace a file as a careful program does."""
        os.replace(folder / name, self.root / "alpha.example" / name)

    def test_replaced(self) -> None:
        """A new pair counts when it has stood still; the log has both serials."""
        new = self.issue_next("new")
        self.put(new, "chain.pem")
        self.put(new, "key.pem")
        self.clock.advance(SECONDS)
        self.assertEqual(self.alpha.loaded.serial, self.serial)
        self.clock.advance(SECONDS)
        self.assertNotEqual(self.alpha.loaded.serial, self.serial)
        self.assertEqual(self.changes, 1)
        said = self.said()
        self.assertIn(f"{self.serial:x}", said)
        self.assertIn(f"{self.alpha.loaded.serial:x}", said)
        for _ in range(3):
            self.clock.advance(SECONDS)
        self.assertEqual((self.changes, self.said()), (1, ""))

    def test_slow_writer(self) -> None:
        """Certificate and key that arrive one after the other are waited for."""
        new = self.issue_next("new")
        self.put(new, "chain.pem")
        self.clock.advance(SECONDS)
        self.put(new, "key.pem")
        self.clock.advance(SECONDS)
        self.assertEqual((self.alpha.loaded.serial, self.said()), (self.serial, ""))
        self.clock.advance(SECONDS)
        self.assertNotEqual(self.alpha.loaded.serial, self.serial)

    def test_pair_that_does_not_fit(self) -> None:
        """It is refused, once; the old one stays; the key that fits heals it."""
        new = self.issue_next("new")
        self.put(new, "chain.pem")
        for _ in range(5):
            self.clock.advance(SECONDS)
        self.assertEqual(self.alpha.loaded.serial, self.serial)
        self.assertEqual(self.changes, 0)
        said = self.said()
        self.assertEqual(said.count("tls.key"), 1)
        self.assertIn(f"{self.serial:x}", said)
        self.put(new, "key.pem")
        self.clock.advance(SECONDS)
        self.clock.advance(SECONDS)
        self.assertNotEqual(self.alpha.loaded.serial, self.serial)

    def test_half_a_file(self) -> None:
        """Half a file, or none, changes nothing."""
        chain = self.root / "alpha.example" / "chain.pem"
        whole = chain.read_text()
        for content in (whole[: len(whole) // 2], ""):
            chain.write_text(content)
            self.clock.advance(SECONDS)
            self.clock.advance(SECONDS)
            self.assertIn("tls.file", self.said())
        chain.unlink()
        self.clock.advance(SECONDS)
        self.clock.advance(SECONDS)
        self.assertIn("tls.file", self.said())
        self.assertEqual(self.alpha.loaded.serial, self.serial)

    def test_reloaded_otherwise(self) -> None:
        """Files that a reload has read are not read again."""
        new = self.issue_next("new")
        self.put(new, "chain.pem")
        self.put(new, "key.pem")
        self.alpha.reload()
        self.watch.reloaded()
        self.said()
        self.clock.advance(SECONDS)
        self.clock.advance(SECONDS)
        self.assertEqual((self.changes, self.said()), (0, ""))

    def test_end_is_near(self) -> None:
        """A certificate that ends soon is told of, once a day."""
        until = self.alpha.loaded.chain[0].not_valid_after_utc.timestamp()
        self.alpha.now = lambda: until - 86400 + self.clock.seconds()
        for _ in range(5):
            self.clock.advance(SECONDS)
        self.assertEqual(self.said().count("renew it"), 1)
        self.clock.advance(86400)
        self.assertIn("HAS ENDED", self.said())

    def test_stopped(self) -> None:
        """After `stop` nobody looks any more."""
        self.watch.stop()
        self.watch.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class DrainTests(RenewalTestCase):
    def test_older_certificate_of_ours(self) -> None:
        """A connection remembers which certificate it was made with."""
        meeting = Meeting(self.alpha, self.beta)
        pumps = [meeting.client_pump]
        self.assertEqual(list(stale(pumps, self.alpha)), [])
        new = self.issue_next("new")
        for name in ("chain.pem", "key.pem"):
            os.replace(new / name, self.root / "alpha.example" / name)
        self.alpha.reload()
        self.assertEqual(list(stale(pumps, self.alpha)), [(pumps[0], StaleConnections.OURS_OLD)])
        self.assertEqual(list(stale(pumps, self.alpha, [StaleConnections.THEIRS_REVOKED])), [])
        retire(pumps[0], StaleConnections.OURS_OLD)
        settle(meeting.wire, meeting.clock)
        self.assertIn("older certificate", meeting.client.engine.closed_with.description)
        self.assertEqual(meeting.server.engine.reads, [b"close"])
        pumps[0].abort()
        self.assertEqual(list(stale(pumps, self.alpha)), [])
        retire(pumps[0], StaleConnections.OURS_OLD)

    def test_expired(self) -> None:
        """A peer's certificate may run out on a connection that stays."""
        meeting = Meeting(self.alpha, self.beta)
        until = self.alpha.loaded.chain[0].not_valid_after_utc.timestamp()
        self.beta.now = lambda: until + 1
        found = list(stale([meeting.server_pump], self.beta))
        self.assertEqual(found, [(meeting.server_pump, StaleConnections.THEIRS_EXPIRED)])


class RevocationTests(RenewalTestCase):
    def with_list(self, who: str, *contents: bytes) -> TlsContexts:
        paths = []
        for number, content in enumerate(contents):
            paths.append(self.root / f"{who}-{number}.crl")
            paths[-1].write_bytes(content)
        folder = self.root / who
        return TlsContexts(
            folder / "chain.pem", folder / "key.pem", self.root / "ca.pem", crl=paths
        )

    def certificate(self, contexts: TlsContexts) -> x509.Certificate:
        return contexts.loaded.chain[0]

    def test_both_directions(self) -> None:
        """A revoked certificate is refused by whoever has the list, with words that help."""
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
            content = revocation_list(self.root, self.certificate(self.beta), encoding=encoding)
            alpha = self.with_list("alpha.example", content)
            self.assertEqual(Meeting(alpha, self.beta).outcome("client"), "tls.revoked")
            content = revocation_list(self.root, self.certificate(self.alpha), encoding=encoding)
            beta = self.with_list("beta.example", content)
            meeting = Meeting(self.alpha, beta)
            self.assertEqual(meeting.outcome("server"), "tls.revoked")
            self.assertEqual(meeting.server.engine.reads, [])
            words = str(meeting.server_lost[0].value)
            serial = f"{self.certificate(self.alpha).serial_number:x}"
            for part in (serial, "amqproute authority", "keyCompromise", "needs a new one"):
                self.assertIn(part, words)

    def test_others(self) -> None:
        """Certificates that no list names, and authorities without a list, are not touched."""
        other = Path(self.mktemp())
        make_authority(other, name="another authority")
        alpha = self.with_list(
            "alpha.example",
            revocation_list(self.root, self.certificate(self.alpha)),
            revocation_list(other),
        )
        self.assertEqual(Meeting(alpha, self.beta).outcome("client"), "authenticated beta.example")
        self.assertEqual(len(alpha.loaded.revocations), 2)
        self.assertNotIn("should have been renewed", self.said())

    def test_old_list(self) -> None:
        """A list past its time still revokes, and the log says that it is old."""
        past = NOW - datetime.timedelta(days=1)
        content = revocation_list(self.root, self.certificate(self.beta), next_update=past)
        alpha = self.with_list("alpha.example", content)
        self.assertIn("should have been renewed", self.said())
        self.assertEqual(Meeting(alpha, self.beta).outcome("client"), "tls.revoked")

    def test_refused(self) -> None:
        """A file that is no list, or is not signed by the authority it names, is refused."""
        forger = Path(self.mktemp())
        make_authority(forger)
        forged = revocation_list(self.root, self.certificate(self.beta), signer=forger)
        for content in (b"nothing", b"", forged):
            error = self.assertRaises(TlsError, self.with_list, "alpha.example", content)
            self.assertEqual(error.code, "tls.crl")
        error = self.assertRaises(
            TlsError, TlsContexts, None, None, None, crl=[self.root / "missing.crl"]
        )
        self.assertEqual(error.code, "tls.crl")

    def test_reloaded(self) -> None:
        """A new list counts without a restart, for connections that are there as well."""
        beta = self.with_list("beta.example", revocation_list(self.root))
        meeting = Meeting(self.alpha, beta)
        self.assertEqual(meeting.outcome(), "authenticated alpha.example")
        clock = Clock()
        revoked: list[object] = []
        watch = FileWatch(
            beta, clock, SECONDS, lambda: revoked.extend(stale([meeting.server_pump], beta))
        )
        watch.start()
        self.addCleanup(watch.stop)
        path = self.root / "beta.example-0.crl"
        path.write_bytes(revocation_list(self.root, self.certificate(self.alpha)))
        clock.advance(SECONDS)
        clock.advance(SECONDS)
        self.assertEqual(revoked, [(meeting.server_pump, StaleConnections.THEIRS_REVOKED)])
        self.assertEqual(Meeting(self.alpha, beta).outcome(), "tls.revoked")
