# SPDX-License-Identifier: Apache-2.0
"""Names in certificates, and what they prove."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from twisted.trial.unittest import SynchronousTestCase

from amqproute.net.authority import issue, make_authority
from amqproute.net.certificate_identity import (
    CertificateNames,
    is_address,
    match,
    names_of,
    peer_domains,
)


class IdentityTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()
        make_authority(self.directory)
        self.count = 0

    def certificate(self, name: str, **options: object) -> x509.Certificate:
        self.count += 1
        (issued,) = issue(self.directory, [name], folder=f"c{self.count}", **options)  # type: ignore[arg-type]
        return x509.load_pem_x509_certificate(Path(issued.chain).read_bytes())

    def test_dns_id(self) -> None:
        """A DNS-ID proves its own name, whatever the case, and no other."""
        certificate = self.certificate("beta.example", srv_names=())
        self.assertTrue(match(certificate, "Beta.Example."))
        self.assertFalse(match(certificate, "sub.beta.example"))
        self.assertFalse(match(certificate, "example"))

    def test_common_name_is_nothing(self) -> None:
        """Without subjectAltName names there is no name."""
        certificate = self.certificate(
            "beta.example", dns_names=(), srv_names=(), addresses=("::1",)
        )
        self.assertFalse(match(certificate, "beta.example"))
        self.assertEqual(peer_domains(certificate), frozenset())

    def test_names_in_words(self) -> None:
        """Ten names are listed; of more it is said how many there are."""
        names = tuple(f"n{number}.example" for number in range(12))
        listed = ", ".join(names[:10])
        self.assertEqual(str(CertificateNames(names[:10], (), ())), listed)
        self.assertEqual(str(CertificateNames(names, (), ())), f"{listed} and 2 more")

    def test_srv_id(self) -> None:
        """An SRV-ID of one of our services proves its domain; of another service it does not."""
        ours = self.certificate("a.example", dns_names=(), srv_names=("_amqp.beta.example",))
        self.assertTrue(match(ours, "beta.example"))
        self.assertFalse(match(ours, "beta.example", services=("_amqps",)))
        self.assertEqual(peer_domains(ours), frozenset({"beta.example"}))
        other = self.certificate("a.example", dns_names=(), srv_names=("_xmpp.beta.example",))
        self.assertFalse(match(other, "beta.example"))
        self.assertEqual(peer_domains(other), frozenset())

    def test_wildcards(self) -> None:
        """A wildcard stands for one whole label when verifying, and never says who somebody is."""
        certificate = self.certificate("*.beta.example")
        self.assertTrue(match(certificate, "x.beta.example"))
        self.assertFalse(match(certificate, "beta.example"))
        self.assertFalse(match(certificate, "x.y.beta.example"))
        self.assertEqual(peer_domains(certificate), frozenset())

    def test_extra_names(self) -> None:
        """A host name that the caller vouches for is accepted beside the domain."""
        certificate = self.certificate("mx.host.example")
        self.assertFalse(match(certificate, "beta.example"))
        self.assertTrue(match(certificate, "beta.example", extra_names=("mx.host.example",)))

    def test_addresses(self) -> None:
        """An IP address is proved by an iPAddress name only."""
        certificate = self.certificate("beta.example", addresses=("127.0.0.1", "::1"))
        self.assertTrue(match(certificate, "127.0.0.1"))
        self.assertTrue(match(certificate, "0:0:0:0:0:0:0:1"))
        self.assertFalse(match(certificate, "127.0.0.2"))
        self.assertTrue(is_address("::1"))
        self.assertFalse(is_address("1.example"))

    def test_explanation_names_both(self) -> None:
        """A mismatch says what was wanted, what was found, and the cure."""
        words = match(self.certificate("gamma.example"), "beta.example").explanation
        for part in ("beta.example", "gamma.example", "_amqps.gamma.example", "Cure"):
            self.assertIn(part, words)

    def test_cure_for_the_host_of_a_url(self) -> None:
        """Of a URL no DNS record says anything, so none is advised."""
        certificate = self.certificate("gamma.example")
        for host, kind in (("127.0.0.1", "as an IP address"), ("h.example", "as a DNS name")):
            words = match(certificate, host, is_host=True).explanation
            self.assertIn(f"names {host} {kind}", words)
            self.assertNotRegex(words, "DNSSEC|SRV records|TLSA")
            self.assertIn("DNSSEC", match(certificate, host).explanation)

    def test_malformed_names_are_skipped(self) -> None:
        """One bad name does not hide the good ones."""
        certificate = self.certificate(
            "beta.example",
            dns_names=("*.*.bad", "beta.example"),
            srv_names=("nonsense", "_amqp.x*.y"),
        )
        self.assertTrue(match(certificate, "beta.example"))
        self.assertEqual(peer_domains(certificate), frozenset({"beta.example"}))
        self.assertEqual(names_of(certificate).srv, ("nonsense", "_amqp.x*.y"))

    def test_names_are_taken_as_they_stand(self) -> None:
        """Nothing around a name is stripped off until it is somebody's."""
        for name in (" beta.example", "beta.example\n", "\x0bbeta.example", "beta.example..",
                     ".beta.example", "beta.example/x", "beta.example:5671", "x@beta.example",
                     "beta.example\0.evil.example", "a" * 64 + ".example"):  # fmt: skip
            certificate = self.written(x509.DNSName._init_without_validation(name))
            self.assertEqual(peer_domains(certificate), frozenset(), name)
            self.assertFalse(match(certificate, "beta.example"), name)
        certificate = self.written(x509.DNSName("BETA.example."))
        self.assertEqual(peer_domains(certificate), {"beta.example"})

    def written(self, *names: x509.GeneralName) -> x509.Certificate:
        """Return a certificate with names that no decent authority writes."""
        key = ec.generate_private_key(ec.SECP256R1())
        begin = datetime.datetime(2026, 1, 1)
        return (
            x509.CertificateBuilder(x509.Name([]), x509.Name([]), key.public_key(), 1)
            .not_valid_before(begin)
            .not_valid_after(begin + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .sign(key, hashes.SHA256())
        )

    def test_international_domain(self) -> None:
        """A name is the same in Unicode and as A-labels."""
        certificate = self.certificate("bücher.example")
        self.assertTrue(match(certificate, "xn--bcher-kva.example"))
        self.assertTrue(match(certificate, "bücher.example"))
        self.assertEqual(peer_domains(certificate), frozenset({"xn--bcher-kva.example"}))

    def test_nonsense_is_not_proved(self) -> None:
        """Values that cannot be names are refused without an exception."""
        certificate = self.certificate("beta.example")
        for name in ("", " ", "a b", "x" * 300, "-", "é" * 70 + ".example"):
            self.assertFalse(match(certificate, name), name)
