# SPDX-License-Identifier: Apache-2.0
"""The authority in a directory."""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

from cryptography import x509
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import TlsError
from amqproute.net.authority import issue, make_authority
from amqproute.net.certificate_identity import names_of


class AuthorityTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp())

    def refused(self, code: str, call: object, *arguments: object, **options: object) -> str:
        error = self.assertRaises(TlsError, call, *arguments, **options)  # type: ignore[arg-type]
        self.assertEqual(error.code, code)
        return str(error)

    def test_files(self) -> None:
        """Four files; keys are their owner's alone; nothing else is left lying about."""
        self.assertEqual(make_authority(self.directory), self.directory / "ca.pem")
        (issued,) = issue(self.directory, ["Beta.Example"])
        self.assertEqual(issued.chain, self.directory / "beta.example" / "chain.pem")
        found = {
            str(Path(folder, name).relative_to(self.directory))
            for folder, _, names in os.walk(self.directory)
            for name in names
        }
        expected = {"ca.pem", "ca-key.pem", "beta.example/chain.pem", "beta.example/key.pem"}
        self.assertEqual(found, expected)
        for key in (self.directory / "ca-key.pem", issued.private_key):
            self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        for folder in (self.directory, issued.chain.parent):
            self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)

    def test_certificate(self) -> None:
        """Issued for both sides, with DNS-ID and both SRV-IDs, and signed by the authority."""
        make_authority(self.directory)
        (issued,) = issue(self.directory, ["beta.example"], serial=17)
        certificate = x509.load_pem_x509_certificate(issued.chain.read_bytes())
        authority = x509.load_pem_x509_certificate((self.directory / "ca.pem").read_bytes())
        certificate.verify_directly_issued_by(authority)
        self.assertEqual(certificate.serial_number, 17)
        names = names_of(certificate)
        self.assertEqual(names.dns, ("beta.example",))
        self.assertEqual(names.srv, ("_amqps.beta.example", "_amqp.beta.example"))
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        self.assertEqual(len(list(usage)), 2)

    def test_lengths(self) -> None:
        """SRV-IDs are DER: one octet for a length up to 127, two for a longer one."""
        make_authority(self.directory)
        found = []
        for length in (120, 121):
            name = f"{'a' * 60}.{'b' * (length - 69)}.example"
            (issued,) = issue(self.directory, [name])
            certificate = x509.load_pem_x509_certificate(issued.chain.read_bytes())
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            found += [each.value for each in names.value.get_values_for_type(x509.OtherName)]
            self.assertEqual(names_of(certificate).srv, (f"_amqps.{name}", f"_amqp.{name}"))
        heads = [value.partition(b"_")[0] for value in found]
        self.assertEqual(heads, [b"\x16\x7f", b"\x16\x7e", b"\x16\x81\x80", b"\x16\x7f"])

    def test_never_overwrites(self) -> None:
        """Neither the authority nor a certificate, nor one half of several."""
        make_authority(self.directory)
        before = (self.directory / "ca-key.pem").read_bytes()
        self.refused("tls.exists", make_authority, self.directory)
        issue(self.directory, ["a.example"])
        self.refused("tls.exists", issue, self.directory, ["b.example", "a.example"])
        self.assertFalse((self.directory / "b.example").exists())
        self.assertEqual((self.directory / "ca-key.pem").read_bytes(), before)

    def test_bad_requests(self) -> None:
        """Names that are none, among them ways out of the directory, are refused in words."""
        self.assertIn(
            "certs authority", self.refused("tls.file", issue, self.directory, ["a.example"])
        )
        make_authority(self.directory)
        for name in ("../x", "", "a/b", "a..b", "-x", "a" * 254, "a b"):
            self.refused("tls.request", issue, self.directory, [name])
        self.refused("tls.request", issue, self.directory, [])
        self.refused(
            "tls.request", issue, self.directory, ["a.example"], client=False, server=False
        )
        early = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
        self.refused("tls.request", issue, self.directory, ["a.example"], not_after=early)

    def test_does_not_outlive_its_authority(self) -> None:
        """The end of the authority is the end of what it has issued."""
        make_authority(self.directory, days=3)
        (issued,) = issue(self.directory, ["a.example"], days=100)
        certificate = x509.load_pem_x509_certificate(issued.chain.read_bytes())
        authority = x509.load_pem_x509_certificate((self.directory / "ca.pem").read_bytes())
        self.assertEqual(certificate.not_valid_after_utc, authority.not_valid_after_utc)
