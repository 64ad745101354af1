# SPDX-License-Identifier: Apache-2.0
"""Validation in this process: a signed tree, and every defect of one."""

from __future__ import annotations

import random

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import dns.rrset
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ResolveError
from amqproute.resolver.anchors import ROOT_ANCHORS, parse_anchors, read_anchors
from amqproute.resolver.answer import (
    DnsAnswer,
    DnsOutcome,
    DnsQuestion,
    UnusableAnswer,
    read_response,
)
from amqproute.resolver.dns_cache import DnsCache
from amqproute.resolver.dns_client import ClientLimits, DnsClient
from amqproute.resolver.dnssec import MAX_CHECKS, DnssecValidator, ValidationResult, _Work
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import SrvResolver
from amqproute.resolver.zone import ZoneAuthority, ZoneFault, ZoneFaultKind
from tests.resolver.fakes import PretendNetwork
from tests.support.signing import HEAD, NOW, SignedTree, ds_text, make_key
from tests.support.targets import dialled

A, AAAA, SRV, TLSA = (
    dns.rdatatype.A,
    dns.rdatatype.AAAA,
    dns.rdatatype.SRV,
    dns.rdatatype.TLSA,
)

BETA = (
    "_amqps._tcp SRV 0 0 5671 mx\nmx A 192.0.2.1\n_5671._tcp.mx TLSA 3 1 1 " + "ab" * 32 + "\n"
    "alias CNAME mx\nout CNAME host.plain.example.\nin CNAME mx.gamma.example.\n"
)
GAMMA = "mx A 192.0.2.3\nout CNAME mx.beta.example.\n"
PLAIN = "host A 192.0.2.2\nback CNAME mx.beta.example.\n"


class DnssecTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = PretendNetwork()
        self.now = NOW

    def tearDown(self) -> None:
        self.network.settle()
        self.assertEqual(self.network.ports, [])

    def tree(self, **options: tuple[str, ...]) -> SignedTree:
        self.built = SignedTree(
            {"beta.example": BETA, "gamma.example": GAMMA, "plain.example": PLAIN},
            unsigned=options.pop("unsigned", ("plain.example",)),
            **options,
        )
        self.use(self.built.authority)
        self.validator = DnssecValidator(self.built.anchors, lambda: self.now)
        return self.built

    def use(self, authority: ZoneAuthority) -> None:
        self.network.servers["192.0.2.53", 53] = authority

    def client(self) -> DnsClient:
        return DnsClient(
            self.network,
            [Nameserver("192.0.2.53")],
            random.Random(1),
            validator=self.validator,
            limits=ClientLimits(),
        )

    def ask(self, name: str, rdtype: dns.rdatatype.RdataType) -> DnsAnswer:
        asking = self.client().ask(DnsQuestion(name, rdtype))
        self.network.settle()
        return self.successResultOf(asking)

    def refused(self, name: str, rdtype: dns.rdatatype.RdataType) -> ResolveError:
        asking = self.client().ask(DnsQuestion(name, rdtype))
        self.network.settle()
        return self.failureResultOf(asking, ResolveError).value


class ValidationTests(DnssecTestCase):
    def test_signed(self) -> None:
        """Records, aliases and absences of signed zones are secure."""
        self.tree()
        for name, rdtype, outcome in (
            ("_amqps._tcp.beta.example", SRV, DnsOutcome.FOUND),
            ("_5671._tcp.mx.beta.example", TLSA, DnsOutcome.FOUND),
            ("alias.beta.example", A, DnsOutcome.FOUND),
            ("in.beta.example", A, DnsOutcome.FOUND),
            ("mx.beta.example", AAAA, DnsOutcome.NODATA),
            ("_tcp.beta.example", A, DnsOutcome.NODATA),
            ("alias.beta.example", AAAA, DnsOutcome.NODATA),
            ("nothing.beta.example", A, DnsOutcome.NXDOMAIN),
            ("a.b.nothing.beta.example", A, DnsOutcome.NXDOMAIN),
            ("beta.example", A, DnsOutcome.NODATA),
            ("no.such.tree", A, DnsOutcome.NXDOMAIN),
            ("plain.example", dns.rdatatype.DS, DnsOutcome.NODATA),
            ("beta.example", dns.rdatatype.DS, DnsOutcome.FOUND),
        ):
            with self.subTest(name=name, rdtype=rdtype):
                answer = self.ask(name, rdtype)
                self.assertEqual(answer.outcome, outcome)
                self.assertTrue(answer.authenticated)
                self.assertIsNone(answer.message)

    def test_unsigned(self) -> None:
        """One unsigned zone on the way and the answer is insecure, not bogus."""
        self.tree()
        for name, rdtype in (
            ("host.plain.example", A),
            ("host.plain.example", AAAA),
            ("nothing.plain.example", A),
            ("out.beta.example", A),
            ("back.plain.example", A),
        ):
            with self.subTest(name=name):
                self.assertFalse(self.ask(name, rdtype).authenticated)

    def test_lifetime(self) -> None:
        """No answer outlives its signature."""
        self.tree()
        self.now = NOW + 24 * 3600 - 7
        self.assertLessEqual(self.ask("mx.beta.example", A).ttl, 7)

    def test_keys_are_remembered(self) -> None:
        """The second answer of a zone takes one question."""
        tree = self.tree()
        self.ask("mx.beta.example", A)
        tree.authority.asked.clear()
        self.ask("_amqps._tcp.beta.example", SRV)
        self.assertEqual(len(tree.authority.asked), 1)
        self.validator.flush()
        tree.authority.asked.clear()
        self.ask("_amqps._tcp.beta.example", SRV)
        self.assertEqual(
            [str(each) for each in tree.authority.asked],
            [
                "_amqps._tcp.beta.example SRV",
                ". DNSKEY",
                "example DS",
                "example DNSKEY",
                "beta.example DS",
                "beta.example DNSKEY",
            ],
        )

    def test_without_anchor(self) -> None:
        """A part of the tree that no anchor vouches for is insecure."""
        self.tree()
        self.validator = DnssecValidator(
            parse_anchors(f"gamma.example. DS {ds_text('.', make_key(9))}"), lambda: self.now
        )
        self.assertFalse(self.ask("mx.beta.example", A).authenticated)

    def test_anchor_inside(self) -> None:
        """An anchor below the root serves for what is below it."""
        tree = self.tree()
        digest = ds_text("beta.example.", tree.keys["beta.example"])
        self.validator = DnssecValidator(
            parse_anchors(f"beta.example. DS {digest}"), lambda: self.now
        )
        self.assertTrue(self.ask("mx.beta.example", A).authenticated)
        key = tree.keys["beta.example"][1].to_text()
        self.validator = DnssecValidator(
            parse_anchors(f"beta.example. DNSKEY {key}"), lambda: self.now
        )
        self.assertTrue(self.ask("mx.beta.example", A).authenticated)


class BogusTests(DnssecTestCase):
    def assertBogus(self, name: str, rdtype: dns.rdatatype.RdataType, words: str) -> None:
        error = self.refused(name, rdtype)
        self.assertEqual(error.code, "dns.bogus")
        self.assertFalse(error.permanent)
        self.assertIn(words, "\n".join(error.attempts))

    def test_changed_record(self) -> None:
        """A record that the signature is not over."""
        tree = self.tree()
        zone = tree.zones["beta.example"]
        zone.replace_rdataset(
            "mx.beta.example.",
            dns.rdataset.from_text("IN", "A", 300, "203.0.113.66"),
        )
        self.assertBogus("mx.beta.example", A, "the signature of mx.beta.example A does not hold")
        self.assertBogus("alias.beta.example", A, "does not hold")

    def test_expired(self) -> None:
        """Signatures past their time; and a clock that is wrong looks the same."""
        self.tree(expired=("beta.example",))
        self.assertBogus("mx.beta.example", A, "expired")
        self.tree()
        self.now = NOW - 7200
        self.assertBogus("mx.beta.example", A, "not yet valid")

    def test_unsigned_record(self) -> None:
        """Signatures that are not there, in a zone that has to have them."""
        tree = self.tree()
        zone = tree.zones["beta.example"]
        zone.delete_rdataset("mx.beta.example.", "RRSIG", "A")
        self.assertBogus("mx.beta.example", A, "mx.beta.example A is not signed")

    def test_wrong_ds(self) -> None:
        """Keys that the parent does not know."""
        self.tree(wrong_ds=("beta.example",))
        self.assertBogus("mx.beta.example", A, "no key of beta.example fits its DS records")

    def test_unsigned_child(self) -> None:
        """DS records say that the zone is signed, and it is not."""
        tree = self.tree()
        tree.authority.set_zone(HEAD.format("beta.example.") + BETA)
        self.assertBogus("mx.beta.example", A, "no key of beta.example fits")

    def test_hidden_ds(self) -> None:
        """Hidden DS records require a proof that there are none."""
        tree = self.tree()
        zone = tree.zones["example"]
        zone.delete_rdataset("beta.example.", "DS")
        zone.delete_rdataset("beta.example.", "RRSIG", "DS")
        tree.authority.set_zone(HEAD.format("beta.example.") + BETA)
        self.assertBogus("mx.beta.example", A, "does not prove whether beta.example is")

    def test_denied_wrongly(self) -> None:
        """An absence needs its own proof, not any signed one."""
        tree = self.tree()
        zone = tree.zones["beta.example"]
        for owner in ("_5671._tcp.mx.beta.example.", "mx.beta.example."):
            for rdtype in ("TLSA", "A"):
                zone.delete_rdataset(owner, rdtype)
        self.assertBogus("mx.beta.example", A, "nothing signed says")
        self.assertBogus("_5671._tcp.mx.beta.example", TLSA, "nothing signed says")

    def test_other_root(self) -> None:
        """A root whose keys the anchors do not know."""
        self.tree()
        self.validator = DnssecValidator(parse_anchors(ROOT_ANCHORS), lambda: self.now)
        self.assertBogus("mx.beta.example", A, "no key of the root fits the trust anchors")

    def test_second_server(self) -> None:
        """Another name server may have the truth."""
        good = self.tree().authority
        bad = self.tree(expired=("beta.example",)).authority
        self.network.servers["192.0.2.54", 53] = good
        self.use(bad)
        client = self.client()
        client.set_nameservers([Nameserver("192.0.2.53"), Nameserver("192.0.2.54")])
        asking = client.ask(DnsQuestion("mx.beta.example", A))
        self.network.settle()
        self.assertTrue(self.successResultOf(asking).authenticated)

    def test_not_capable(self) -> None:
        """A name server that keeps signatures back is told from an attack."""
        tree = self.tree()

        class Stripping(ZoneAuthority):
            def _answer(self, query, name, rdclass, rdtype):  # type: ignore[no-untyped-def]
                query.ednsflags &= ~dns.flags.DO
                return super()._answer(query, name, rdclass, rdtype)

        self.use(Stripping(tree.zones.values()))
        error = self.refused("mx.beta.example", A)
        self.assertEqual(error.code, "dns.not-dnssec-capable")

    @given(st.integers(0, 2**16), st.integers(1, 255))
    @example(28, 2)  # in the question: it says that another type was asked for
    def test_any_changed_octet(self, position: int, flip: int) -> None:
        """A changed signed answer is the same answer, or it is refused."""
        tree = SHARED
        question = DnsQuestion("_5671._tcp.mx.beta.example", TLSA)
        query = dns.message.make_query(
            dns.name.from_text(question.name), question.rdtype, want_dnssec=True
        )
        wire = bytearray(ask_authority(tree, query))
        expected = read_response(question, dns.message.from_wire(bytes(wire))).records
        wire[12 + position % (len(wire) - 12)] ^= flip
        try:
            message = dns.message.from_wire(bytes(wire))
            answer = read_response(question, message)
        except (dns.exception.DNSException, UnusableAnswer, ValueError):
            return
        judged = judge(tree, answer, message)
        if isinstance(judged, ValidationResult):
            self.assertTrue(judged.is_secure)
            self.assertEqual(answer.records, expected)


class StoryTests(DnssecTestCase):
    """The queries shown to the operator are those made."""

    def attempts(self) -> tuple[str, ...]:
        resolver = SrvResolver(
            self.client(),
            DnsCache(self.network),
            random.Random(1).random,
            self.network,
            targets=dialled(),
        )
        waiting = resolver.resolve("beta.example")
        for _ in range(20):
            self.network.settle()
            self.network.advance(1)
        return self.successResultOf(waiting).attempts

    def test_keys(self) -> None:
        """A zone's keys are told of once, though two answers at a time wait for them."""
        self.tree()
        told = self.attempts()
        self.assertEqual(len(told), len(set(told)), told)
        self.assertEqual(len([line for line in told if line.startswith("beta.example DNSKEY")]), 1)

    def test_tries(self) -> None:
        """The cost of one query is reported whole."""
        self.tree()
        self.built.authority.set_fault("_amqp._tcp.beta.example", ZoneFault(ZoneFaultKind.DROP))
        told = [line for line in self.attempts() if line.startswith("_amqp._tcp")]
        self.assertEqual(len(told), ClientLimits().rounds)


SHARED = SignedTree({"beta.example": BETA})
VALIDATOR = DnssecValidator(SHARED.anchors, lambda: NOW)


def ask_authority(tree: SignedTree, query: dns.message.Message) -> bytes:
    reply = tree.authority.respond(query.to_wire(), udp=False)
    assert reply is not None
    return reply.wire


class CostTests(SynchronousTestCase):
    """The bound on the cost of one answer."""

    def test_signatures(self) -> None:
        """So many signatures are checked for one answer, and no more."""
        work = _Work(lambda question: None)  # type: ignore[arg-type,return-value]
        for _ in range(MAX_CHECKS):
            work.spend()
        error = self.assertRaises(UnusableAnswer, work.spend)
        self.assertIn("too many signatures", str(error))


def judge(
    tree: SignedTree, answer: DnsAnswer, message: dns.message.Message
) -> ValidationResult | UnusableAnswer:
    from dataclasses import replace

    async def fetch(question: DnsQuestion) -> dns.message.Message:
        query = dns.message.make_query(
            dns.name.from_text(question.name or "."), question.rdtype, want_dnssec=True
        )
        return dns.message.from_wire(ask_authority(tree, query))

    working = VALIDATOR.judge(replace(answer, message=message), fetch)
    try:
        working.send(None)
    except StopIteration as stop:
        result: ValidationResult = stop.value
        return result
    except UnusableAnswer as failure:
        return failure
    raise AssertionError("nothing here waits")


class AnchorTests(SynchronousTestCase):
    def test_shipped(self) -> None:
        """The root's keys."""
        anchors = read_anchors()
        self.assertEqual({each.key_tag for each in anchors[dns.name.root].digests}, {20326, 38696})

    def test_refused(self) -> None:
        """Texts that are no list of anchors."""
        for text in ("", "; nothing\n", ". IN A 192.0.2.1", "nonsense", ". IN DS 1 2"):
            with self.subTest(text):
                self.assertRaises(ValueError, parse_anchors, text)
