# SPDX-License-Identifier: Apache-2.0
"""Requirements on a host, and certificates that meet them: the table, row by row."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import TlsError
from amqproute.net import dane
from amqproute.net.authority import issue, make_authority
from amqproute.net.peer_trust import (
    PeerPlace,
    ShownCertificate,
    TrustDemand,
    TrustLevel,
    TrustMethod,
    TrustPolicy,
    TrustVerdict,
    demand,
    judge,
    parse_pin,
)
from amqproute.values import Tlsa, TlsaAnswer, TlsaState

UNTRUSTED = TlsError("tls.untrusted", "its authority is not trusted")
KEY, OTHER_KEY = Tlsa(3, 1, 1, b"a" * 32), Tlsa(3, 1, 1, b"b" * 32)

DOMAIN, HOST = "beta.example", "mx.beta.example"


def place(state: TlsaState | None, *records: Tlsa, code: str = "", **changes: object) -> PeerPlace:
    """A target of beta.example; with a state its SRV records are signed."""
    if state is None:
        return PeerPlace(DOMAIN, HOST)
    tlsa = TlsaAnswer(HOST, 5671, state, records, code, "some words")
    made = PeerPlace(DOMAIN, HOST, state is not TlsaState.INSECURE, tlsa)
    return replace(made, **changes)  # type: ignore[arg-type]


ABSENT, FAILED = TlsaState.ABSENT, TlsaState.FAILED
INSECURE, PRESENT = TlsaState.INSECURE, TlsaState.PRESENT
UNUSABLE = (
    Tlsa(1, 1, 1, b"a" * 32),
    Tlsa(0, 0, 1, b"a" * 32),
    Tlsa(3, 2, 1, b"a" * 32),
    Tlsa(3, 1, 3, b"a" * 32),
    Tlsa(3, 1, 1, b"short"),
    Tlsa(4, 1, 1, b"a" * 32),
    Tlsa(3, 1, 0, b""),
)


@dataclass(frozen=True)
class Row:
    """A level, a place, and what is demanded there: method, names, server name; or a code."""

    level: TrustLevel
    place: PeerPlace
    expected: str


BOTH = f"{DOMAIN},{HOST}"
ROWS = (
    Row(TrustLevel.DANE_OR_PKIX, place(None), f"pkix {DOMAIN} {DOMAIN}"),
    Row(TrustLevel.DANE_OR_PKIX, place(INSECURE), f"pkix {DOMAIN} {DOMAIN}"),
    Row(TrustLevel.DANE_OR_PKIX, place(PRESENT, KEY), f"dane {HOST},{DOMAIN} {HOST}"),
    Row(TrustLevel.DANE_OR_PKIX, place(PRESENT, KEY, *UNUSABLE), f"dane {HOST},{DOMAIN} {HOST}"),
    Row(TrustLevel.DANE_OR_PKIX, place(ABSENT), f"pkix {BOTH} {HOST}"),
    Row(TrustLevel.DANE_OR_PKIX, place(PRESENT, *UNUSABLE), f"pkix {BOTH} {HOST}"),
    Row(TrustLevel.DANE_OR_PKIX, place(FAILED, code="dns.bogus"), "dns.bogus"),
    Row(TrustLevel.DANE_OR_PKIX, place(FAILED, code="dns.servfail"), "dns.servfail"),
    Row(
        TrustLevel.DANE_OR_PKIX,
        place(INSECURE, code="dns.not-dnssec-capable"),
        f"pkix {DOMAIN} {DOMAIN}",
    ),
    # A signed domain whose target is in a zone that is not: its name counts all the same.
    Row(TrustLevel.DANE_OR_PKIX, place(INSECURE, is_secure=True), f"pkix {BOTH} {HOST}"),
    Row(
        TrustLevel.DANE_OR_PKIX,
        place(
            None,
        ),
        f"pkix {DOMAIN} {DOMAIN}",
    ),
    Row(
        TrustLevel.DANE_OR_PKIX,
        replace(place(PRESENT, KEY), is_static=True),
        f"pkix {DOMAIN} {DOMAIN}",
    ),
    Row(TrustLevel.DANE, place(None), "dns.insecure"),
    Row(TrustLevel.DANE, place(INSECURE, code="dns.insecure"), "dns.insecure"),
    Row(TrustLevel.DANE, place(INSECURE, code="dns.not-dnssec-capable"), "dns.not-dnssec-capable"),
    Row(TrustLevel.DANE, place(PRESENT, KEY), f"dane {HOST},{DOMAIN} {HOST}"),
    Row(TrustLevel.DANE, place(PRESENT, UNUSABLE[0]), f"dane {HOST},{DOMAIN} {HOST}"),
    Row(TrustLevel.DANE, place(PRESENT, *UNUSABLE[2:]), "dane.unusable"),
    Row(TrustLevel.DANE, place(ABSENT), "dane.absent"),
    Row(TrustLevel.DANE, place(FAILED, code="dns.bogus"), "dns.bogus"),
    Row(
        TrustLevel.DANE,
        replace(place(PRESENT, KEY), is_static=True),
        f"dane {HOST},{DOMAIN} {HOST}",
    ),
    Row(TrustLevel.PKIX, place(PRESENT, KEY), f"pkix {DOMAIN} {DOMAIN}"),
    Row(TrustLevel.PKIX, place(FAILED, code="dns.bogus"), f"pkix {DOMAIN} {DOMAIN}"),
    Row(
        TrustLevel.PKIX,
        replace(place(None), names=("gw.example",)),
        "pkix beta.example,gw.example beta.example",
    ),
    Row(TrustLevel.PIN, place(ABSENT), "tls.pin"),
    Row(TrustLevel.TLS, place(FAILED, code="dns.bogus"), f"tls  {DOMAIN}"),
    Row(TrustLevel.NONE, place(None), f"tls  {DOMAIN}"),
    Row(TrustLevel.NONE, replace(place(None), is_plain=True), "plain  "),
)


class DemandTests(SynchronousTestCase):
    def test_rows(self) -> None:
        """Each row of the table and of the other levels."""
        for row in ROWS:
            with self.subTest(level=str(row.level), place=row.place):
                found = demand(TrustPolicy(row.level), row.place)
                words = f"{found.method.value} {','.join(found.names)} {found.server_name}"
                self.assertEqual(
                    found.code if found.method is TrustMethod.REFUSED else words, row.expected
                )
                self.assertTrue(found.words)

    def test_levels_reached(self) -> None:
        """The scope of each method."""
        pin = TrustPolicy(TrustLevel.PIN, (parse_pin("sha256:" + "ab" * 32),))
        for policy, where, level in (
            (TrustPolicy(), place(None), "authenticated"),
            (TrustPolicy(), place(PRESENT, KEY), "dane"),
            (pin, place(None), "authenticated"),
            (TrustPolicy(TrustLevel.TLS), place(None), "tls"),
            (TrustPolicy(TrustLevel.NONE), replace(place(None), is_plain=True), "none"),
        ):
            self.assertEqual(demand(policy, where).level, level)

    def test_strongest_digest(self) -> None:
        """A weaker digest does not stand in for a stronger one that is published, too."""
        long = Tlsa(3, 1, 2, b"c" * 64)
        exact = Tlsa(3, 1, 0, b"key")
        self.assertEqual(
            dane.usable((KEY, long, exact), is_demanded=False),
            (long, exact),
        )
        other = Tlsa(3, 0, 1, b"d" * 32)  # of another selector: another kind
        self.assertEqual(dane.usable((long, other), is_demanded=False), (long, other))

    def test_pins(self) -> None:
        """The forms of pins."""
        self.assertFalse(parse_pin("sha256:" + ":".join(["ab"] * 32)).is_key)
        self.assertTrue(parse_pin("key-sha256:" + "AB" * 32).is_key)
        for bad in ("", "ab" * 32, "sha1:" + "ab" * 20, "sha256:ab", "sha256:" + "xy" * 32):
            self.assertRaises(ValueError, parse_pin, bad)

    @given(
        st.sampled_from(TrustLevel),
        st.sampled_from(TlsaState),
        st.booleans(),
        st.booleans(),
        st.lists(st.sampled_from((KEY, *UNUSABLE))),
    )
    def test_no_downgrade(
        self, level: TrustLevel, state: TlsaState, secure: bool, static: bool, records: list[Tlsa]
    ) -> None:
        """No level gives less than its name, whatever the DNS says; failures never pass."""
        where = replace(place(state, *records, code="x"), is_secure=secure, is_static=static)
        found = demand(TrustPolicy(level), where)
        if level is TrustLevel.DANE:
            self.assertIn(found.method, (TrustMethod.DANE, TrustMethod.REFUSED))
        if level in (TrustLevel.DANE, TrustLevel.DANE_OR_PKIX) and not static and state is FAILED:
            self.assertIs(found.method, TrustMethod.REFUSED)
        if level in (TrustLevel.PKIX, TrustLevel.DANE_OR_PKIX):
            self.assertIn(found.method, (TrustMethod.PKIX, TrustMethod.DANE, TrustMethod.REFUSED))
            if found.method is TrustMethod.PKIX and not secure:
                self.assertEqual(found.names, (DOMAIN,))


class JudgeTests(SynchronousTestCase):
    root: ClassVar[Path]

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        make_authority(directory)
        issue(directory, [DOMAIN, HOST, "gamma.example"])
        past = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
        issue(
            directory,
            ["old.example"],
            not_before=past - datetime.timedelta(days=9),
            not_after=past,
            dns_names=[DOMAIN],
        )
        self.authority = self.read(directory / "ca.pem")
        self.beta, self.host, self.gamma, self.old = (
            self.read(directory / name / "chain.pem")
            for name in (DOMAIN, HOST, "gamma.example", "old.example")
        )

    def read(self, path: Path) -> x509.Certificate:
        return x509.load_pem_x509_certificate(path.read_bytes())

    def judged(
        self,
        records: tuple[Tlsa, ...],
        *chain: x509.Certificate,
        level: TrustLevel = TrustLevel.DANE_OR_PKIX,
        trusted: bool = False,
    ) -> str:
        """``ok LEVEL``, or the code."""
        wanted = demand(TrustPolicy(level), place(PRESENT, *records) if records else place(ABSENT))
        return self.code(wanted, ShownCertificate(chain, None if trusted else UNTRUSTED))

    def code(self, wanted: TrustDemand, shown: ShownCertificate) -> str:
        self.verdict: TrustVerdict = judge(wanted, shown, datetime.datetime.now(datetime.UTC))
        if self.verdict.failure is None:
            return f"ok {self.verdict.level}"
        return self.verdict.failure.code

    def record(self, certificate: x509.Certificate, *kind: int) -> Tlsa:
        usage, selector, matching = kind
        return dane.record_of(certificate, usage=usage, selector=selector, matching=matching)

    def test_end_entity(self) -> None:
        """DANE-EE: every selector and matching; no names, no dates, no authority."""
        for certificate in (self.beta, self.gamma, self.old):
            for selector in (0, 1):
                for matching in (0, 1, 2):
                    record = self.record(certificate, 3, selector, matching)
                    self.assertEqual(self.judged((record,), certificate), "ok dane")
                    self.assertEqual(
                        self.judged((record,), self.host, trusted=True), "dane.mismatch"
                    )

    def test_mismatch_in_words(self) -> None:
        """The words have the names wanted, the names found, the records and the cure."""
        self.judged((self.record(self.beta, 3, 1, 1),), self.gamma, trusted=True)
        words = str(self.verdict.failure)
        for part in (
            DOMAIN,
            "gamma.example",
            f"_5671._tcp.{HOST}",
            self.record(self.beta, 3, 1, 1).data.hex(),
            self.record(self.gamma, 3, 1, 1).data.hex(),
            "Cure:",
        ):
            self.assertIn(part, words)

    def test_roll_over(self) -> None:
        """With both records published both keys will do."""
        records = (self.record(self.beta, 3, 1, 1), self.record(self.host, 3, 1, 1))
        for certificate in (self.beta, self.host):
            self.assertEqual(self.judged(records, certificate), "ok dane")

    def test_trust_anchor(self) -> None:
        """DANE-TA: chain, dates and name count; the trusted authorities do not."""
        for kind in ((2, 0, 1), (2, 1, 1), (2, 0, 0), (2, 1, 2)):
            record = self.record(self.authority, *kind)
            self.assertEqual(self.judged((record,), self.beta, self.authority), "ok dane")
            self.assertEqual(self.judged((record,), self.host, self.authority), "ok dane")
            self.assertEqual(self.judged((record,), self.gamma, self.authority), "tls.name")
            self.assertEqual(self.judged((record,), self.old, self.authority), "dane.chain")
            self.assertEqual(
                self.judged((record,), self.beta, self.gamma),
                "ok dane" if kind == (2, 0, 0) else "dane.mismatch",
            )
        self.assertIn("expired", str(self.judged_failure()))

    def judged_failure(self) -> TlsError:
        self.judged((self.record(self.authority, 2, 1, 1),), self.old, self.authority)
        assert self.verdict.failure is not None
        return self.verdict.failure

    def test_forged_chain(self) -> None:
        """A certificate beside the published authority, not signed by it, proves nothing."""
        directory = Path(self.mktemp())
        make_authority(directory)  # of the same name
        (forged,) = issue(directory, [DOMAIN])
        certificate = self.read(forged.chain)
        record = self.record(self.authority, 2, 1, 1)
        self.assertEqual(self.judged((record,), certificate, self.authority), "dane.chain")

    def test_end_entity_before_anchor(self) -> None:
        """One that fits is enough, whatever the others say."""
        records = (
            self.record(self.authority, 2, 1, 1),
            self.record(self.gamma, 3, 1, 1),
        )
        self.assertEqual(self.judged(records, self.gamma, self.authority), "ok dane")

    def test_pkix_usages(self) -> None:
        """Usages 0 and 1: only if DANE is demanded, and then beside PKIX and name."""
        for certificate, kind in ((self.beta, (1, 1, 1)), (self.authority, (0, 1, 1))):
            record = self.record(certificate, *kind)
            chain = (self.beta, self.authority)
            for level, trusted, code in (
                (TrustLevel.DANE, True, "ok dane"),
                (TrustLevel.DANE, False, "tls.untrusted"),
                (TrustLevel.DANE_OR_PKIX, True, "ok authenticated"),
                (TrustLevel.DANE_OR_PKIX, False, "tls.untrusted"),
            ):
                self.assertEqual(self.judged((record,), *chain, level=level, trusted=trusted), code)
        record = self.record(self.gamma, 1, 1, 1)
        found = self.judged((record,), self.gamma, level=TrustLevel.DANE, trusted=True)
        self.assertEqual(found, "tls.name")

    def test_pkix(self) -> None:
        """PKIX on a signed target: the domain or the target, by a trusted authority."""
        self.assertEqual(self.judged((), self.beta, trusted=True), "ok authenticated")
        self.assertEqual(self.judged((), self.host, trusted=True), "ok authenticated")
        self.assertEqual(self.judged((), self.gamma, trusted=True), "tls.name")
        for part in ("beta.example or mx.beta.example", "it names gamma.example", "DNSSEC"):
            self.assertIn(part, str(self.verdict.failure))
        self.assertEqual(self.judged((), self.beta), "tls.untrusted")

    def test_pin(self) -> None:
        """A pin goes by certificate or key alone."""
        key = dane.record_of(self.old).data.hex()
        octets = self.old.public_bytes(serialization.Encoding.DER)
        import hashlib

        for text in (f"key-sha256:{key}", f"sha256:{hashlib.sha256(octets).hexdigest()}"):
            wanted = demand(TrustPolicy(TrustLevel.PIN, (parse_pin(text),)), place(None))
            self.assertEqual(
                self.code(wanted, ShownCertificate((self.old,), UNTRUSTED)), "ok authenticated"
            )
            self.assertEqual(self.code(wanted, ShownCertificate((self.beta,))), "tls.pin")
            self.assertIn("peers.beta.example.pin", str(self.verdict.failure))

    def test_revoked(self) -> None:
        """A revoked certificate is refused, whatever else speaks for it."""
        revoked = TlsError("tls.revoked", "it is revoked")
        for records in ((), (self.record(self.beta, 3, 1, 1),)):
            wanted = demand(TrustPolicy(), place(PRESENT, *records) if records else place(ABSENT))
            self.assertEqual(
                self.code(wanted, ShownCertificate((self.beta,), None, revoked)), "tls.revoked"
            )

    def test_nothing_shown(self) -> None:
        """No certificate proves nothing; a refused demand stays refused; TLS asks for nothing."""
        self.assertEqual(
            self.code(demand(TrustPolicy(), place(ABSENT)), ShownCertificate(())),
            "tls.no-certificate",
        )
        refused = demand(TrustPolicy(), place(FAILED, code="dns.bogus"))
        self.assertEqual(self.code(refused, ShownCertificate((self.beta,))), "dns.bogus")
        self.assertEqual(
            self.code(demand(TrustPolicy(TrustLevel.TLS), place(ABSENT)), ShownCertificate(())),
            "ok tls",
        )
