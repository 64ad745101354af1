# SPDX-License-Identifier: Apache-2.0
"""NSEC3: hashed proofs of absence, including opt-out, and their limits."""

from __future__ import annotations

import base64

import dns.dnssec
import dns.name
import dns.rdata
import dns.rdatatype
from twisted.trial.unittest import SynchronousTestCase

from amqproute.resolver.nsec_denial import DenialTooCostly, NsecDenial, ZoneCut

ZONE = dns.name.from_text("example.")
A, DS, TLSA = dns.rdatatype.A, dns.rdatatype.DS, dns.rdatatype.TLSA
Proof = tuple[dns.name.Name, object]


def hashed(name: str) -> str:
    return dns.dnssec.nsec3_hash(dns.name.from_text(name), b"", 0, 1)


def shifted(text: str, by: int) -> str:
    """A hash a little before or behind another one."""
    number = int.from_bytes(base64.b32hexdecode(text), "big") + by
    return base64.b32hexencode(number.to_bytes(20, "big")).decode()


def nsec3(
    begin: str, end: str, types: str = "", *, opt_out: bool = False, rounds: int = 0
) -> Proof:
    rdata = dns.rdata.from_text("IN", "NSEC3", f"1 {int(opt_out)} {rounds} - {end} {types}")
    return dns.name.from_text(f"{begin}.example."), rdata


def matching(name: str, types: str, **options: int) -> Proof:
    return nsec3(hashed(name), shifted(hashed(name), 1), types, **options)  # type: ignore[arg-type]


def covering(name: str, *, opt_out: bool = False) -> Proof:
    return nsec3(shifted(hashed(name), -1), shifted(hashed(name), 1), opt_out=opt_out)


def denial(*records: Proof) -> NsecDenial:
    return NsecDenial(ZONE, (), records)  # type: ignore[arg-type]


class HashedTests(SynchronousTestCase):
    def test_no_data(self) -> None:
        """A record at the name that lacks the type; not one that delegates, or is an alias."""
        name = dns.name.from_text("a.example.")
        self.assertTrue(denial(matching("a.example.", "MX RRSIG")).no_data(name, A))
        for types in ("A", "CNAME", "NS"):
            self.assertFalse(denial(matching("a.example.", types)).no_data(name, A), types)
        self.assertTrue(denial(matching("a.example.", "NS")).no_data(name, DS))
        self.assertFalse(denial(matching("a.example.", "NS SOA")).no_data(name, DS))
        self.assertFalse(denial(matching("b.example.", "MX")).no_data(name, A))

    def test_bitmap(self) -> None:
        """Each type is found in the bitmap where it is, and no other type by it."""
        name = dns.name.from_text("a.example.")
        there = {dns.rdatatype.from_text(text) for text in ("MX", "AAAA", "RRSIG", "CAA")}
        proof = denial(matching("a.example.", "MX AAAA RRSIG CAA"))
        for rdtype in map(dns.rdatatype.RdataType.make, range(1, 300)):
            self.assertEqual(proof.no_data(name, rdtype), rdtype not in there, rdtype)

    def test_no_name(self) -> None:
        """Closest encloser, next closer name and wildcard, all three."""
        name = dns.name.from_text("x.a.example.")
        whole = (
            matching("a.example.", "A"),
            covering("x.a.example."),
            covering("*.a.example."),
        )
        self.assertTrue(denial(*whole).no_name(name))
        for missing in range(3):
            part = [each for number, each in enumerate(whole) if number != missing]
            self.assertFalse(denial(*part).no_name(name), missing)

    def test_wildcard(self) -> None:
        """A wildcard that has no such type; and that it is the closest match."""
        name = dns.name.from_text("x.example.")
        proof = denial(
            matching("example.", "SOA NS"), covering("x.example."), matching("*.example.", "A")
        )
        self.assertTrue(proof.no_data(name, TLSA))
        self.assertFalse(proof.no_data(name, A))
        self.assertTrue(proof.no_closer_match(name, 1))
        self.assertFalse(denial(matching("example.", "SOA")).no_closer_match(name, 1))

    def test_cuts(self) -> None:
        """Delegation without DS, plain name, opt-out, no name, nothing."""
        name = dns.name.from_text("a.example.")
        apex = matching("example.", "SOA NS")
        for records, cut in (
            ((matching("a.example.", "NS"),), ZoneCut.INSECURE),
            ((matching("a.example.", "A"),), ZoneCut.NONE),
            ((matching("a.example.", "NS DS"),), ZoneCut.UNPROVED),
            ((matching("a.example.", "NS SOA"),), ZoneCut.UNPROVED),
            ((apex, covering("a.example.", opt_out=True)), ZoneCut.INSECURE),
            ((apex, covering("a.example.")), ZoneCut.NO_NAME),
            ((apex,), ZoneCut.UNPROVED),
            ((), ZoneCut.UNPROVED),
        ):
            with self.subTest(cut=cut, records=len(records)):
                self.assertIs(denial(*records).cut(name), cut)

    def test_opt_out_proves_no_absence(self) -> None:
        """Opt-out leaves the DS open and nothing else."""
        proof = denial(matching("example.", "SOA NS"), covering("a.example.", opt_out=True))
        name = dns.name.from_text("a.example.")
        self.assertTrue(proof.no_data(name, DS))
        self.assertFalse(proof.no_data(name, A))

    def test_last_of_the_zone(self) -> None:
        """The last record leads back to the first."""
        name = dns.name.from_text("a.example.")
        first, last = shifted(hashed("a.example."), 5), shifted(hashed("a.example."), 7)
        self.assertIs(
            denial(matching("example.", "SOA"), nsec3(last, first)).cut(name), ZoneCut.NO_NAME
        )

    def test_too_many_rounds(self) -> None:
        """A zone that hashes too often counts as not signed."""
        self.assertRaises(DenialTooCostly, denial, matching("a.example.", "A", rounds=101))
        denial(matching("a.example.", "A", rounds=100))


class PlainTests(SynchronousTestCase):
    def test_ancestor_delegation(self) -> None:
        """The parent's record at a cut proves nothing below it (RFC 6840 §4.1)."""
        rdata = dns.rdata.from_text("IN", "NSEC", "z.example. NS RRSIG NSEC")
        proof = NsecDenial(ZONE, [(dns.name.from_text("sub.example."), rdata)], ())  # type: ignore[list-item]
        below = dns.name.from_text("host.sub.example.")
        self.assertFalse(proof.no_name(below))
        self.assertFalse(proof.no_data(below, A))
        self.assertIs(proof.cut(dns.name.from_text("sub.example.")), ZoneCut.INSECURE)

    def plain(self, *records: tuple[str, str]) -> NsecDenial:
        """Owners, and what their NSEC records say."""
        nsec = [
            (dns.name.from_text(owner), dns.rdata.from_text("IN", "NSEC", rdata))
            for owner, rdata in records
        ]
        return NsecDenial(ZONE, nsec, ())  # type: ignore[arg-type]

    def test_no_name(self) -> None:
        """A gap where the name would stand is half of the proof: a wildcard may answer instead."""
        name = dns.name.from_text("x.a.example.")
        gap = ("w.a.example.", "z.a.example. A RRSIG NSEC")
        for other, proved in (
            (None, False),
            (("*.a.example.", "b.a.example. A RRSIG NSEC"), False),  # it is there
            (("a.example.", "b.a.example. A RRSIG NSEC"), True),
            (("a.example.", "*.a.example. A RRSIG NSEC"), False),  # it is the next name
            (("example.", "a.example. SOA NS RRSIG NSEC"), False),  # no *.example., for what it is
        ):
            with self.subTest(other=other):
                records = (gap,) if other is None else (gap, other)
                self.assertIs(self.plain(*records).no_name(name), proved)
        # One record may do for both: nothing is between a.example. and z.example.
        self.assertTrue(self.plain(("a.example.", "z.example. A RRSIG NSEC")).no_name(name))
