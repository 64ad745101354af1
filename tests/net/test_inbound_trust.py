# SPDX-License-Identifier: Apache-2.0
"""DANE in real handshakes, both directions; the identity of a connecting peer by the DNS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ResolveError, TlsError
from amqproute.net.dane import record_of
from amqproute.net.inbound_trust import MOST_OF_ONE, MOST_STRANGERS, InboundTrust
from amqproute.net.peer_trust import (
    PeerPlace,
    TrustLevel,
    TrustMethod,
    TrustPolicy,
    demand,
    parse_pin,
)
from amqproute.net.pump import ConnectionResources, ConnectionSecurity, EngineProtocol, PumpLimits
from amqproute.net.tls import TlsContexts
from amqproute.values import (
    Candidate,
    Resolution,
    Tlsa,
    TlsaAnswer,
    TlsaState,
    TransportSecurity,
)
from tests.net.wires import Owner, Policies, Side, Wire, contexts_in, settle

HOST = "mx.alpha.example"


def resolution(
    state: TlsaState, *records: Tlsa, code: str = "", domain: str = "alpha.example"
) -> Resolution:
    """One place, in signed DNS unless the state says otherwise."""
    secure = state is not TlsaState.INSECURE
    candidate = Candidate(
        HOST,
        5671,
        TransportSecurity.IMPLICIT,
        ("192.0.2.1",),
        0,
        0,
        "srv:x",
        secure=secure,
        tlsa=TlsaAnswer(HOST, 5671, state, records, code, "words"),
    )
    return Resolution(domain, (candidate,), (), 60.0, False, secure)


class PretendDns:
    """Answers at once, or when told."""

    def __init__(self, answer: Resolution | ResolveError | None, *, capable: bool = True) -> None:
        self.answer = answer
        self.capable = capable
        self.asked: list[str] = []
        self.waiting: list[Deferred[Any]] = []

    def resolve(self, domain: str) -> Deferred[Resolution]:
        self.asked.append(domain)
        if self.answer is None:
            self.waiting.append(Deferred())
            return self.waiting[-1]
        return fail(self.answer) if isinstance(self.answer, ResolveError) else succeed(self.answer)

    def is_capable(self) -> Deferred[bool]:
        return succeed(self.capable)


class DnsOfEach(PretendDns):
    """Answers at once, for each domain on its own."""

    def __init__(self, answers: dict[str, Resolution | ResolveError]) -> None:
        super().__init__(None)
        self.answers = answers

    def resolve(self, domain: str) -> Deferred[Resolution]:
        self.asked.append(domain)
        answer = self.answers[domain]
        return fail(answer) if isinstance(answer, ResolveError) else succeed(answer)


class Meeting:
    """A client meets a server; each has to prove what it is asked for."""

    def __init__(
        self,
        client: TlsContexts,
        server: TlsContexts,
        *,
        judge: InboundTrust | None = None,
        wanted: Any = None,
        chunk: int = 65536,
        early: bytes = b"",
        host: str = "192.0.2.9",
    ) -> None:
        self.clock = Clock()
        self.client, self.server = Side(is_client=True), Side()
        self.client_lost: list[Failure] = []
        self.server_lost: list[Failure] = []
        creator = (
            client.client_creator("beta.example") if wanted is None else client.creator_for(wanted)
        )
        self.client.engine.output = [early] if early else []
        self.client_pump = EngineProtocol(
            self.client.make,
            self.clock,
            security=ConnectionSecurity(creator, implicit=True),
            is_client=True,
            owner=Owner(lambda _, reason: self.client_lost.append(reason)),
        )
        self.server_pump = EngineProtocol(
            self.server.make,
            self.clock,
            security=ConnectionSecurity(server.server_creator("optional", judge), implicit=True),
            resources=ConnectionResources(PumpLimits(tls_seconds=10)),
            owner=Owner(lambda _, reason: self.server_lost.append(reason)),
        )
        self.wire = Wire(self.client_pump, self.server_pump, chunk=chunk, host=host)
        settle(self.wire, self.clock)

    def outcome(self, side: str = "server") -> str:
        """``LEVEL DOMAINS`` of one side, or the code why it refused."""
        lost = self.server_lost if side == "server" else self.client_lost
        facts = getattr(self, side).facts
        if facts is None:
            return str(lost[0].value.code) if lost else "waits"  # type: ignore[attr-defined]
        return f"{facts.level} {','.join(sorted(facts.certificate_domains))}"


class InboundTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()
        self.beta = contexts_in(self.directory, "beta.example")
        self.alpha = contexts_in(self.directory, "alpha.example")
        ca = Path(self.directory) / "ca.pem"
        self.stranger = contexts_in(self.mktemp(), "alpha.example", trust=ca)

    def meet(
        self,
        who: TlsContexts,
        answer: Resolution | ResolveError | None,
        level: TrustLevel = TrustLevel.DANE_OR_PKIX,
        *,
        capable: bool = True,
        policy: TrustPolicy | None = None,
        own: Callable[[str], bool] = lambda _: False,
        **terms: Any,
    ) -> str:
        self.dns = PretendDns(answer, capable=capable)
        wanted = policy or TrustPolicy(level)
        pinned = {"alpha.example": wanted} if wanted.level is TrustLevel.PIN else {}
        judge = InboundTrust(
            Policies(lambda domain: wanted, lambda: pinned, is_own=own), self.dns, who.now
        )
        self.meeting = Meeting(who, self.beta, judge=judge, **terms)
        return self.meeting.outcome()

    def key(self, contexts: TlsContexts, *kind: int) -> Tlsa:
        assert contexts.certificate is not None
        usage, selector, matching = kind or (3, 1, 1)
        return record_of(contexts.certificate, usage=usage, selector=selector, matching=matching)

    def test_five_states(self) -> None:
        """The five states, for a certificate of a trusted authority and for one of nobody's."""
        good, unusable = self.key(self.alpha), Tlsa(1, 1, 1, b"a" * 32)
        failed = resolution(TlsaState.FAILED, code="dns.bogus")
        bogus = ResolveError("dns.bogus", "validation fails", permanent=False)
        pkix, nobody = "authenticated alpha.example", "tls.untrusted"
        for answer, trusted, untrusted in (
            (resolution(TlsaState.INSECURE), pkix, nobody),
            (resolution(TlsaState.ABSENT), pkix, nobody),
            (resolution(TlsaState.PRESENT, unusable), pkix, nobody),
            (resolution(TlsaState.PRESENT, good), "dane alpha.example", "dane.mismatch"),
            (failed, "dns.bogus", "dns.bogus"),
            (bogus, "dns.bogus", "dns.bogus"),
        ):
            with self.subTest(answer=answer):
                self.assertEqual(self.meet(self.alpha, answer), trusted)
                self.assertEqual(self.meet(self.stranger, answer), untrusted)

    def test_own_key(self) -> None:
        """A certificate of nobody's, whose key the domain's signed records name."""
        answer = resolution(TlsaState.PRESENT, self.key(self.stranger))
        self.assertEqual(self.meet(self.stranger, answer), "dane alpha.example")
        self.assertEqual(self.dns.asked, ["alpha.example"])
        # In roll-over both keys will do.
        both = resolution(TlsaState.PRESENT, self.key(self.alpha), self.key(self.stranger))
        for who in (self.alpha, self.stranger):
            self.assertEqual(self.meet(who, both), "dane alpha.example")
        # And PKIX does not help against records that name another key.
        self.assertEqual(self.meet(self.alpha, answer), "dane.mismatch")

    def test_any_place(self) -> None:
        """A peer may come from any of its places."""
        one = resolution(TlsaState.PRESENT, self.key(self.beta))
        two = resolution(TlsaState.PRESENT, self.key(self.stranger))
        both = replace(one, candidates=one.candidates + two.candidates)
        self.assertEqual(self.meet(self.stranger, both), "dane alpha.example")

    def test_absent_service(self) -> None:
        """A domain that only sends goes by PKIX; a failing DNS lets nobody in."""
        gone = ResolveError("dns.nxdomain", "no such", permanent=True)
        down = ResolveError("dns.servfail", "fails", permanent=False)
        self.assertEqual(self.meet(self.alpha, gone), "authenticated alpha.example")
        self.assertEqual(self.meet(self.stranger, gone), "tls.untrusted")
        self.assertEqual(self.meet(self.alpha, gone, TrustLevel.DANE), "dns.nxdomain")
        self.assertEqual(self.meet(self.alpha, down), "dns.servfail")

    def test_levels(self) -> None:
        """``dane`` takes signed records only; the lower levels, and we ourselves, ask nobody."""
        absent = resolution(TlsaState.ABSENT)
        fits = resolution(TlsaState.PRESENT, self.key(self.alpha))
        insecure = resolution(TlsaState.INSECURE, code="dns.insecure")
        for answer, outcome in (
            (absent, "dane.absent"),
            (insecure, "dns.insecure"),
            (fits, "dane alpha.example"),
        ):
            self.assertEqual(self.meet(self.alpha, answer, TrustLevel.DANE), outcome)
        for level in (TrustLevel.PKIX, TrustLevel.TLS, TrustLevel.NONE):
            self.assertEqual(self.meet(self.alpha, absent, level), "authenticated alpha.example")
            self.assertEqual(self.meet(self.stranger, fits, level), "tls.untrusted")
            self.assertEqual(self.dns.asked, [])
        ours = self.meet(self.alpha, absent, own=lambda domain: True)
        self.assertEqual((ours, self.dns.asked), ("authenticated alpha.example", []))

    def test_not_capable(self) -> None:
        """Without DNSSEC nobody is asked, and ``dane`` cannot be reached."""
        fits = resolution(TlsaState.PRESENT, self.key(self.alpha))
        found = self.meet(self.alpha, fits, capable=False)
        self.assertEqual((found, self.dns.asked), ("authenticated alpha.example", []))
        answer = resolution(TlsaState.INSECURE, code="dns.not-dnssec-capable")
        found = self.meet(self.alpha, answer, TrustLevel.DANE, capable=False)
        self.assertEqual(found, "dns.not-dnssec-capable")

    def test_pin(self) -> None:
        """A pinned key needs no authority; another one of the same name is refused."""
        pin = parse_pin(f"key-sha256:{self.key(self.stranger).data.hex()}")
        policy = TrustPolicy(TrustLevel.PIN, (pin,))
        absent = resolution(TlsaState.ABSENT)
        found = self.meet(self.stranger, absent, policy=policy)
        self.assertEqual((found, self.dns.asked), ("authenticated alpha.example", []))
        self.assertEqual(self.meet(self.alpha, absent, policy=policy), "tls.pin")

    def test_waiting(self) -> None:
        """Input that arrives during a DNS query waits with it; a deadline ends both."""
        for chunk in (65536, 9):
            self.assertEqual(self.meet(self.alpha, None, early=b"hello", chunk=chunk), "waits")
            self.assertEqual(self.meeting.server.engine.reads, [])
            (waiting,) = self.dns.waiting
            waiting.callback(resolution(TlsaState.PRESENT, self.key(self.alpha)))
            settle(self.meeting.wire, self.meeting.clock)
            self.assertEqual(self.meeting.outcome(), "dane alpha.example")
            self.assertEqual(b"".join(self.meeting.server.engine.reads), b"hello")
        self.meet(self.alpha, None)
        self.meeting.clock.advance(11)
        settle(self.meeting.wire, self.meeting.clock)
        self.assertEqual(self.meeting.outcome(), "tls.handshake")
        # The connection is lost while the DNS is asked: nobody is left to answer.
        self.meet(self.alpha, None)
        self.meeting.client_pump.abort()
        settle(self.meeting.wire, self.meeting.clock)
        self.assertEqual(len(self.meeting.server_lost), 1)

    def test_refused_after_waiting(self) -> None:
        """Nothing the peer has sent is looked at when it turns out to be somebody else."""
        self.meet(self.alpha, None, early=b"hello")
        (waiting,) = self.dns.waiting
        waiting.callback(resolution(TlsaState.PRESENT, self.key(self.beta)))
        settle(self.meeting.wire, self.meeting.clock)
        self.assertEqual(self.meeting.outcome(), "dane.mismatch")
        self.assertEqual(self.meeting.server.engine.reads, [])

    def test_strangers_wait_for_strangers(self) -> None:
        """Names that nobody answers for hold up neither all of the DNS nor a named peer."""
        self.dns = PretendDns(None)
        now = self.alpha.now
        judge = InboundTrust(
            Policies(lambda _: TrustPolicy(), is_named="beta.example".__eq__), self.dns, now
        )
        crowd = [
            Meeting(self.alpha, self.beta, judge=judge, host=f"192.0.2.{number}")
            for number in range(MOST_STRANGERS + 3)
        ]
        self.assertEqual(len(self.dns.asked), MOST_STRANGERS)
        partner = Meeting(self.beta, self.beta, judge=judge)
        self.assertEqual(self.dns.asked[MOST_STRANGERS:], ["beta.example"])
        answer = resolution(TlsaState.PRESENT, self.key(self.beta), domain="beta.example")
        self.dns.waiting[-1].callback(answer)
        settle(partner.wire, partner.clock)
        self.assertEqual(partner.outcome(), "dane beta.example")
        first_in_line = crowd[MOST_STRANGERS]
        first_in_line.client_pump.abort()  # it goes while it waits: its turn is the next one's
        settle(first_in_line.wire, first_in_line.clock)
        for number in range(2):
            self.dns.waiting[number].callback(resolution(TlsaState.PRESENT, self.key(self.alpha)))
            settle(crowd[number].wire, crowd[number].clock)
            self.assertEqual(crowd[number].outcome(), "dane alpha.example")
            self.assertEqual(len(self.dns.asked), MOST_STRANGERS + 2 + number)

    def test_one_stranger_and_the_others(self) -> None:
        """One address has a few places, whatever it asks; the others are for others."""
        self.dns = PretendDns(None)
        judge = InboundTrust(Policies(lambda _: TrustPolicy()), self.dns, self.alpha.now)
        crowd = [Meeting(self.alpha, self.beta, judge=judge) for _ in range(MOST_OF_ONE + 3)]
        self.assertEqual(len(self.dns.asked), MOST_OF_ONE)
        other = Meeting(self.alpha, self.beta, judge=judge, host="192.0.2.8")
        self.assertEqual(len(self.dns.asked), MOST_OF_ONE + 1)
        answer = resolution(TlsaState.PRESENT, self.key(self.alpha))
        self.dns.waiting[-1].callback(answer)
        settle(other.wire, other.clock)
        self.assertEqual(other.outcome(), "dane alpha.example")
        waits = crowd[MOST_OF_ONE]
        waits.client_pump.abort()  # it goes while it waits
        settle(waits.wire, waits.clock)
        for waiting in self.dns.waiting[:MOST_OF_ONE]:
            waiting.callback(answer)
        for waiting in self.dns.waiting[MOST_OF_ONE + 1 :]:
            waiting.callback(answer)
        for meeting in crowd:
            settle(meeting.wire, meeting.clock)
        outcomes = [each.outcome() for each in crowd if each is not waits]
        self.assertEqual(outcomes, ["dane alpha.example"] * (MOST_OF_ONE + 2))
        self.assertEqual(judge._strangers._of, {})

    def test_names_prove_themselves(self) -> None:
        """A name that is proved says nothing of the certificate's other names."""
        both = contexts_in(
            self.directory,
            "alpha.example",
            dns_names=("alpha.example", "gamma.example"),
            folder="both",
        )
        fits = resolution(TlsaState.PRESENT, self.key(both))
        alpha_only, alpha_pinned = "dane alpha.example", "authenticated alpha.example"
        pin = parse_pin(f"key-sha256:{self.key(both).data.hex()}")
        pinned = {"alpha.example": TrustPolicy(TrustLevel.PIN, (pin,))}
        for words, other in (
            ("another key", resolution(TlsaState.PRESENT, self.key(self.beta))),
            ("bogus records", resolution(TlsaState.FAILED, code="dns.bogus")),
            ("no answer", ResolveError("dns.servfail", "fails", permanent=False)),
        ):
            for pins, outcome in (({}, alpha_only), (pinned, alpha_pinned)):
                with self.subTest(other=words, pins=len(pins)):
                    dns = DnsOfEach({"alpha.example": fits, "gamma.example": other})
                    judge = InboundTrust(
                        Policies(
                            lambda name, pins=pins: pins.get(name, TrustPolicy()),  # type: ignore[misc]
                            lambda pins=pins: pins,  # type: ignore[misc]
                        ),
                        dns,
                        both.now,
                    )
                    meeting = Meeting(both, self.beta, judge=judge)
                    self.assertEqual(meeting.outcome(), outcome)
                    self.assertEqual(dns.asked[-1], "gamma.example")

    def test_bug(self) -> None:
        """A bug on the way lets nobody in."""
        dns = PretendDns(None)
        dns.resolve = lambda domain: 1 // 0  # type: ignore[assignment,return-value]
        judge = InboundTrust(Policies(lambda _: TrustPolicy()), dns, self.alpha.now)
        self.assertEqual(Meeting(self.alpha, self.beta, judge=judge).outcome(), "tls.handshake")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_certificate_without_domain(self) -> None:
        """A client's certificate that names no domain is verified, and is no peer."""
        client = contexts_in(self.directory, "c.example", dns_names=(), srv_names=())
        found = self.meet(client, resolution(TlsaState.ABSENT))
        self.assertEqual((found, self.dns.asked), ("authenticated ", []))


class OutboundTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()
        self.alpha = contexts_in(self.directory, "alpha.example")
        self.beta = contexts_in(self.directory, "beta.example")
        self.stranger = contexts_in(self.mktemp(), "other.example", trust=None)

    def meet(self, server: TlsContexts, *records: Tlsa) -> str:
        tlsa = TlsaAnswer("mx.beta.example", 5671, TlsaState.PRESENT, records)
        place = PeerPlace("beta.example", "mx.beta.example", True, tlsa)
        wanted = demand(TrustPolicy(), place)
        self.assertIs(wanted.method, TrustMethod.DANE)
        self.meeting = Meeting(self.alpha, server, wanted=wanted, early=b"secret")
        return self.meeting.outcome("client")

    def record(self, contexts: TlsContexts, *kind: int) -> Tlsa:
        certificate = contexts.loaded.chain[0]
        usage, selector, matching = kind
        return record_of(certificate, usage=usage, selector=selector, matching=matching)

    def test_fits(self) -> None:
        """A key that the records name will do, of whatever authority and name."""
        for kind in ((3, 1, 1), (3, 0, 2), (3, 0, 0)):
            record = self.record(self.stranger, *kind)
            self.assertEqual(self.meet(self.stranger, record), "dane other.example")

    def test_does_not_fit(self) -> None:
        """Another key gets an alert, nothing of the application, and the client knows why."""
        record = self.record(self.stranger, 3, 1, 1)
        self.assertEqual(self.meet(self.beta, record), "dane.mismatch")
        self.assertEqual(self.meeting.server.engine.reads, [])
        self.assertNotIn(b"secret", self.meeting.wire.seen)
        self.assertIn("alert", str(self.meeting.server_lost[0].value))

    def test_trust_anchor_sent(self) -> None:
        """An authority in the chain that the server sends, not trusted otherwise."""
        root = Path(self.directory)
        chain = root / "beta.example" / "chain.pem"
        whole = root / "whole.pem"
        whole.write_bytes(chain.read_bytes() + (root / "ca.pem").read_bytes())
        server = TlsContexts(whole, root / "beta.example" / "key.pem", None)
        authority = server.loaded.chain[1]
        record = record_of(authority, usage=2, selector=0, matching=1)
        client = contexts_in(self.mktemp(), "alpha.example")  # of another authority
        tlsa = TlsaAnswer("mx.beta.example", 5671, TlsaState.PRESENT, (record,))
        wanted = demand(TrustPolicy(), PeerPlace("beta.example", "mx.beta.example", True, tlsa))
        meeting = Meeting(client, server, wanted=wanted)
        self.assertEqual(meeting.outcome("client"), "dane beta.example")
        # Without the authority in the chain nothing leads to it.
        bare = TlsContexts(chain, root / "beta.example" / "key.pem", None)
        meeting = Meeting(client, bare, wanted=wanted)
        self.assertEqual(meeting.outcome("client"), "dane.mismatch")

    def test_encrypted_only(self) -> None:
        """Level ``tls``: whoever answers, and the level says so."""
        wanted = demand(TrustPolicy(TrustLevel.TLS), PeerPlace("beta.example", "mx.beta.example"))
        meeting = Meeting(self.alpha, self.stranger, wanted=wanted)
        self.assertEqual(meeting.outcome("client"), "tls ")
        self.assertIsNotNone(meeting.client.facts.own_serial)  # type: ignore[union-attr]

    def test_refused_demand(self) -> None:
        """Nothing is made for what is refused beforehand."""
        wanted = demand(TrustPolicy(TrustLevel.DANE), PeerPlace("beta.example", "mx.beta.example"))
        error = self.assertRaises(TlsError, self.alpha.creator_for, wanted)
        self.assertEqual(error.code, "dns.insecure")
