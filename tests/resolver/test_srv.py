# SPDX-License-Identifier: Apache-2.0
"""From domain to candidates: the table of the package docstring, row by row."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import dns.flags
import dns.message
import dns.rdatatype
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import InvalidField, ResolveError
from amqproute.resolver.answer import DnsAnswer, DnsQuestion
from amqproute.resolver.dns_cache import CacheLimits, DnsCache
from amqproute.resolver.dns_client import DnsClient
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import DnssecTerms, DnssecUse, ResolverLimits, SrvResolver
from amqproute.resolver.zone import ZoneAuthority, ZoneFault, ZoneFaultKind
from amqproute.values import Candidate, Resolution, TlsaAnswer, TlsaState, TransportSecurity
from tests.resolver.fakes import Datagram, PretendNetwork
from tests.support.targets import dialled

A, AAAA, SRV = dns.rdatatype.A, dns.rdatatype.AAAA, dns.rdatatype.SRV

HEAD = "$ORIGIN {}.\n$TTL 300\n@ SOA ns hostmaster 1 3600 600 86400 60\n@ NS ns\n"
OTHER = HEAD.format("provider.example") + (
    "hub A 203.0.113.1\nhub AAAA 2001:db8:1::1\nhub2 CNAME hub\n_amqps._tcp SRV 0 0 5671 hub\n"
)

SERVFAIL = ZoneFault(ZoneFaultKind.SERVFAIL)
DROP = ZoneFault(ZoneFaultKind.DROP)
SECURE, PLAIN = "_amqps._tcp.beta.example", "_amqp._tcp.beta.example"


@dataclass(frozen=True)
class Row:
    """One row: what the zone beta.example says, and what comes of it.

    `expected` lists candidates as ``host:port security addresses``, or is a code of `ResolveError`;
    a ``!`` before the code means permanent.
    """

    name: str
    zone: str
    expected: str
    faults: dict[str, ZoneFault] = field(default_factory=dict)
    denied: tuple[str, ...] = ()
    mentions: str = ""


ROWS = (
    Row(
        "one target with both families, IPv6 first",
        "_amqps._tcp SRV 0 0 5671 amqp\namqp A 192.0.2.1\namqp AAAA 2001:db8::1",
        "amqp.beta.example:5671 amqps 2001:db8::1,192.0.2.1",
    ),
    Row(
        "priorities",
        "_amqps._tcp SRV 20 0 5671 b\n_amqps._tcp SRV 10 0 5672 a\na A 192.0.2.1\nb A 192.0.2.2",
        "a.beta.example:5672 amqps 192.0.2.1 | b.beta.example:5671 amqps 192.0.2.2",
    ),
    Row(
        "amqps before amqp, whatever the priorities",
        "_amqp._tcp SRV 0 0 5672 b\n_amqps._tcp SRV 10 0 5671 a\na A 192.0.2.1\nb A 192.0.2.2",
        "a.beta.example:5671 amqps 192.0.2.1 | b.beta.example:5672 amqp 192.0.2.2",
    ),
    Row(
        "amqp alone",
        "_amqp._tcp SRV 0 0 5672 b\nb A 192.0.2.2\n@ A 192.0.2.9",
        "b.beta.example:5672 amqp 192.0.2.2",
    ),
    Row(
        "IPv6 only",
        "_amqps._tcp SRV 0 0 5671 a\na AAAA 2001:db8::1",
        "a.beta.example:5671 amqps 2001:db8::1",
    ),
    Row(
        "a target in another domain is asked for",
        "_amqps._tcp SRV 0 0 5671 hub.provider.example.",
        "hub.provider.example:5671 amqps 2001:db8:1::1,203.0.113.1",
    ),
    Row(
        "a target that is an alias keeps its name",
        "_amqps._tcp SRV 0 0 5671 hub2.provider.example.",
        "hub2.provider.example:5671 amqps 2001:db8:1::1,203.0.113.1",
        mentions="at its alias hub.provider.example",
    ),
    Row(
        "the service is an alias into another domain",
        "_amqps._tcp CNAME _amqps._tcp.provider.example.",
        "hub.provider.example:5671 amqps 2001:db8:1::1,203.0.113.1",
    ),
    Row("no SRV: the domain as a host", "@ A 192.0.2.9", "beta.example:5671 amqps 192.0.2.9"),
    Row(
        "no SRV: the domain as a host, both families",
        "@ A 192.0.2.9\n@ AAAA 2001:db8::9",
        "beta.example:5671 amqps 2001:db8::9,192.0.2.9",
    ),
    Row("'.' ends it", "_amqps._tcp SRV 0 0 0 .\n@ A 192.0.2.9", "!dns.no-service"),
    Row(
        "'.' for amqp only ends it too", "_amqp._tcp SRV 0 0 0 .\n@ A 192.0.2.9", "!dns.no-service"
    ),
    Row(
        "'.' for amqps, records for amqp",
        "_amqps._tcp SRV 0 0 0 .\n_amqp._tcp SRV 0 0 5672 b\nb A 192.0.2.2",
        "b.beta.example:5672 amqp 192.0.2.2",
        mentions="target '.'",
    ),
    Row(
        "'.' for amqps, amqp unknown",
        "_amqps._tcp SRV 0 0 0 .\n_amqp._tcp SRV 0 0 5672 b\nb A 192.0.2.2",
        "dns.servfail",
        faults={PLAIN: SERVFAIL},
    ),
    Row(
        "'.' among others is skipped",
        "_amqps._tcp SRV 0 0 0 .\n_amqps._tcp SRV 0 0 5671 a\na A 192.0.2.1",
        "a.beta.example:5671 amqps 192.0.2.1",
    ),
    Row(
        "port 0 and odd names are skipped",
        "_amqps._tcp SRV 0 0 0 a\n_amqps._tcp SRV 1 0 5671 a\\032b\n_amqps._tcp SRV 2 0 5671 a\n"
        "a A 192.0.2.1",
        "a.beta.example:5671 amqps 192.0.2.1",
        mentions="not a host name",
    ),
    Row("the domain without anything", "ns A 192.0.2.53", "!dns.no-address"),
    Row("targets without addresses", "_amqps._tcp SRV 0 0 5671 ghost", "!dns.no-address"),
    Row(
        "a target without address is skipped",
        "_amqps._tcp SRV 0 0 5671 ghost\n_amqps._tcp SRV 9 0 5671 a\na A 192.0.2.1",
        "a.beta.example:5671 amqps 192.0.2.1",
        mentions="ghost.beta.example: skipped, it has no address",
    ),
    Row(
        "amqps fails and amqp is absent: nothing is proven",
        "@ A 192.0.2.9",
        "dns.servfail",
        faults={SECURE: SERVFAIL},
    ),
    Row(
        "amqp fails and amqps is absent: nothing is proven",
        "@ A 192.0.2.9",
        "dns.timeout",
        faults={PLAIN: DROP},
    ),
    Row(
        "amqps fails and amqp has records",
        "_amqp._tcp SRV 0 0 5672 b\nb A 192.0.2.2",
        "b.beta.example:5672 amqp 192.0.2.2",
        faults={SECURE: SERVFAIL},
        mentions="SERVFAIL",
    ),
    Row(
        "a target's addresses fail",
        "_amqps._tcp SRV 0 0 5671 hub.provider.example.",
        "dns.refused",
        faults={"hub.provider.example": ZoneFault(ZoneFaultKind.REFUSED)},
    ),
    Row(
        "one target's addresses fail, the other's are known",
        "_amqps._tcp SRV 0 0 5671 hub.provider.example.\n_amqps._tcp SRV 1 0 5671 a\na A 192.0.2.1",
        "a.beta.example:5671 amqps 192.0.2.1",
        faults={"hub.provider.example": SERVFAIL},
    ),
    Row("the domain's addresses fail", "@ A 192.0.2.9", "dns.servfail", {"beta.example": SERVFAIL}),
    Row("nonsense", "@ A 192.0.2.9", "dns.malformed", {SECURE: ZoneFault(ZoneFaultKind.GARBAGE)}),
    Row("aliases in a circle", "_amqps._tcp CNAME x\nx CNAME y\ny CNAME x", "dns.loop"),
    Row(
        "denied targets are left out",
        "_amqps._tcp SRV 0 0 5671 a\n_amqps._tcp SRV 1 0 5671 b\na A 127.0.0.1\nb A 192.0.2.2",
        "b.beta.example:5671 amqps 192.0.2.2",
        denied=("127.0.0.0/8", "::1/128"),
        mentions="a.beta.example at 127.0.0.1: denied, it lies in 127.0.0.0/8",
    ),
    Row(
        "all targets denied, also as mapped addresses",
        "_amqps._tcp SRV 0 0 5671 a\na A 127.0.0.1\na AAAA ::ffff:127.0.0.2\n"
        "a AAAA 64:ff9b::7f00:1",
        "!dns.denied-target",
        denied=("127.0.0.0/8",),
    ),
    Row(
        "the domain's own address denied", "@ A 10.0.0.1", "!dns.denied-target", {}, ("10.0.0.0/8",)
    ),
)


def words(resolution: Resolution) -> str:
    """Candidates as `Row.expected` has them."""
    return " | ".join(
        f"{c.host}:{c.port} {c.security.value} {','.join(c.addresses)}"
        for c in resolution.candidates
    )


class ResolverTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = PretendNetwork()
        self.authority = ZoneAuthority([OTHER])
        self.network.servers["192.0.2.53", 53] = self.authority
        self.build()

    def build(
        self,
        denied: tuple[str, ...] = (),
        dnssec: DnssecUse = DnssecUse.USE,
        seed: int = 1,
        **limits: float,
    ) -> None:
        client = DnsClient(self.network, [Nameserver("192.0.2.53")], random.Random(seed))
        self.cache: DnsCache[DnsQuestion, DnsAnswer] = DnsCache(
            self.network, CacheLimits(failure_ttl=5, stale_window=3600)
        )
        self.resolver = SrvResolver(
            client,
            self.cache,
            random.Random(seed).random,
            self.network,
            targets=dialled(deny=denied),
            dnssec=DnssecTerms(dnssec),
            limits=ResolverLimits(**limits),  # type: ignore[arg-type]
        )

    def tearDown(self) -> None:
        self.network.settle()
        self.assertEqual(self.network.ports, [])
        self.assertEqual(self.network.getDelayedCalls(), [])

    def zone(self, text: str) -> None:
        self.authority.set_zone(HEAD.format("beta.example") + text + "\n")

    def resolve(self, domain: str = "beta.example", seconds: float = 0) -> Resolution:
        waiting = self.resolver.resolve(domain)
        self.network.settle(seconds)
        return self.successResultOf(waiting)

    def fail_to_resolve(self, domain: str = "beta.example", seconds: float = 0) -> ResolveError:
        waiting = self.resolver.resolve(domain)
        self.network.settle(seconds)
        return self.failureResultOf(waiting, ResolveError).value

    def questions(self) -> Counter[str]:
        counted = Counter(str(question) for question in self.authority.asked)
        self.authority.asked.clear()
        return counted


class TableTests(ResolverTestCase):
    def test_rows(self) -> None:
        """Each row of the table."""
        for row in ROWS:
            with self.subTest(row.name):
                self.build(row.denied)
                self.zone(row.zone)
                self.authority.clear_faults()
                for name, fault in row.faults.items():
                    self.authority.set_fault(name, fault)
                waiting = self.resolver.resolve("beta.example")
                self.network.settle(0 if waiting.called else 12)
                if "dns." in row.expected:
                    error = self.failureResultOf(waiting, ResolveError).value
                    self.assertEqual("!" * error.permanent + error.code, row.expected, row.name)
                    attempts = error.attempts
                else:
                    resolution = self.successResultOf(waiting)
                    self.assertEqual(words(resolution), row.expected, row.name)
                    attempts = resolution.attempts
                self.assertIn(row.mentions, "\n".join(attempts), row.name)
                self.assertTrue(attempts)

    def test_whole_resolution(self) -> None:
        """Every field of a resolution, once."""
        self.zone("_amqps._tcp 120 SRV 10 60 5671 amqp\namqp A 192.0.2.1")
        resolution = self.resolve()
        self.assertEqual(
            resolution.candidates,
            (
                Candidate(
                    host="amqp.beta.example",
                    port=5671,
                    security=TransportSecurity.IMPLICIT,
                    addresses=("192.0.2.1",),
                    priority=10,
                    weight=60,
                    source="srv:_amqps._tcp.beta.example",
                    secure=False,
                    tlsa=TlsaAnswer(
                        "amqp.beta.example",
                        5671,
                        TlsaState.INSECURE,
                        code="dns.insecure",
                        words="its records are not signed with DNSSEC",
                    ),
                ),
            ),
        )
        self.assertEqual(
            (resolution.domain, resolution.stale, resolution.authenticated),
            ("beta.example", False, False),
        )
        # The AAAA of the target is proven absent, for the SOA's 60 seconds.
        self.assertLessEqual(resolution.ttl, 60)
        self.assertGreater(resolution.ttl, 59)
        self.assertEqual(
            resolution.attempts,
            (
                "_amqps._tcp.beta.example SRV @192.0.2.53:53: 1 record, ttl 120 s",
                "_amqp._tcp.beta.example SRV @192.0.2.53:53: NXDOMAIN, ttl 60 s",
                "amqp.beta.example AAAA @192.0.2.53:53: no data, ttl 60 s",
                "amqp.beta.example A: 1 record, ttl 300 s (remembered, 300 s left)",
            ),
        )

    def test_nxdomain(self) -> None:
        """Neither services nor the domain exist."""
        error = self.fail_to_resolve("nobody.provider.example")
        self.assertEqual((error.code, error.permanent), ("dns.nxdomain", True))
        self.assertEqual(len(error.attempts), 5)
        assert error.ttl is not None
        self.assertTrue(0 < error.ttl <= 900, error.ttl)
        first = error.ttl
        self.network.advance(4)
        error = self.fail_to_resolve("nobody.provider.example")
        self.assertLess(abs(error.ttl - (first - 4)), 0.5)

    def test_families_take_turns(self) -> None:
        """IPv6 first, then by turns, then what is left (RFC 8305 §4); only this many of each."""
        self.build(max_addresses=3)
        a = "".join(f"a A 192.0.2.{n}\n" for n in range(1, 6))
        aaaa = "a AAAA 2001:db8::1\na AAAA 2001:db8::2\n"
        self.zone("_amqps._tcp SRV 0 0 5671 a\n" + a + aaaa)
        addresses = self.resolve().candidates[0].addresses
        self.assertEqual([":" in text for text in addresses], [True, False, True, False, False])
        self.assertEqual(len(set(addresses)), 5)

    def test_weights(self) -> None:
        """Each resolution draws again, by weight."""
        self.zone(
            "_amqps._tcp SRV 0 900 5671 a\n_amqps._tcp SRV 0 100 5671 b\n"
            "a A 192.0.2.1\nb A 192.0.2.2"
        )
        first = Counter(self.resolve().candidates[0].host[0] for _ in range(300))
        self.assertGreater(first["a"], 240)
        self.assertGreater(first["b"], 10)

    def test_idna(self) -> None:
        """A Unicode domain is asked for as A-labels."""
        self.authority.set_zone(HEAD.format("xn--bcher-kva.example") + "@ A 192.0.2.7\n")
        resolution = self.resolve("Bücher.Example.")
        self.assertEqual(resolution.domain, "xn--bcher-kva.example")
        self.assertEqual(resolution.candidates[0].host, "xn--bcher-kva.example")

    def test_no_domain(self) -> None:
        """IP addresses, nonsense and too long names are refused without asking anybody."""
        long = ".".join(["a" * 60] * 4)
        for domain in "127.0.0.1", "::1", "[::1]", "", "a..b", "a b", "beta.example:5671", long:
            error = self.fail_to_resolve(domain)
            self.assertEqual((error.code, error.permanent), ("dns.bad-name", True), domain)
        self.assertEqual(self.network.sent, [])

    def test_glue_of_strangers_is_not_believed(self) -> None:
        """Addresses for a third party's host are asked for, whatever the answer brings along."""
        self.zone("_amqps._tcp SRV 0 0 5671 hub.provider.example.")
        self.resolve()
        self.assertEqual(self.questions()["hub.provider.example A"], 1)
        self.zone("_amqps._tcp SRV 0 0 5671 a\na A 192.0.2.1\na AAAA 2001:db8::1")
        self.resolver.flush()
        self.resolve()
        self.assertEqual(
            sorted(self.questions()),
            ["_amqp._tcp.beta.example SRV", "_amqps._tcp.beta.example SRV"],
        )

    def test_many_targets(self) -> None:
        """Only this many targets are looked up; the others are named as left out."""
        self.build(max_targets=3)
        records = "\n".join(
            f"_amqps._tcp SRV {n} 0 5671 h{n}\nh{n} A 192.0.2.{n}" for n in range(1, 101)
        )
        self.zone(records)
        resolution = self.resolve()
        self.assertEqual([c.host[:2] for c in resolution.candidates], ["h1", "h2", "h3"])
        self.assertIn("97 more targets are left out", resolution.attempts)
        self.assertEqual(self.network.tcp_dials, [("192.0.2.53", 53)])


class MemoryTests(ResolverTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.zone("_amqps._tcp SRV 0 0 5671 a\na A 192.0.2.1\na AAAA 2001:db8::1")

    def test_second_time_from_memory(self) -> None:
        """Within the TTL nobody is asked, and the answer comes at once."""
        self.resolve()
        self.questions()
        again = self.successResultOf(self.resolver.resolve("beta.example"))
        self.assertEqual(self.questions(), Counter())
        self.assertIn("(remembered, ", again.attempts[0])

    def test_single_flight(self) -> None:
        """Many resolve one domain at once; each question is asked once."""
        waiting = [self.resolver.resolve("beta.example") for _ in range(10)]
        self.network.settle()
        for one in waiting:
            self.successResultOf(one)
        self.assertEqual(set(self.questions().values()), {1})

    def test_negative_expires(self) -> None:
        """Absence is remembered for the SOA's time and asked for again then."""
        self.zone("ns A 192.0.2.53")
        self.assertEqual(self.fail_to_resolve().code, "dns.no-address")
        self.questions()
        self.zone("_amqps._tcp SRV 0 0 5671 a\na A 192.0.2.1")
        self.assertEqual(self.fail_to_resolve().code, "dns.no-address")
        self.assertEqual(self.questions(), Counter())
        self.network.advance(61)
        self.assertEqual(words(self.resolve()), "a.beta.example:5671 amqps 192.0.2.1")

    def test_failure_is_remembered_shortly(self) -> None:
        """A broken zone is not asked for once per message, and is asked again soon."""
        self.authority.set_fault(SECURE, SERVFAIL)
        self.authority.set_fault(PLAIN, SERVFAIL)
        self.assertEqual(self.fail_to_resolve().code, "dns.servfail")
        self.questions()
        error = self.fail_to_resolve()
        self.assertEqual(self.questions(), Counter())
        self.assertIn("_amqps._tcp.beta.example SRV: dns.servfail (remembered)", error.attempts)
        self.authority.clear_faults()
        self.network.advance(5)
        self.resolve()

    def test_stale(self) -> None:
        """Servers fail after the TTL: yesterday's answer is used and says so."""
        self.resolve()
        self.network.advance(400)
        for kind in ZoneFaultKind.SERVFAIL, ZoneFaultKind.REFUSED, ZoneFaultKind.DROP:
            for name in SECURE, PLAIN, "a.beta.example":
                self.authority.set_fault(name, ZoneFault(kind))
            resolution = self.resolve_slowly()
            self.assertTrue(resolution.stale)
            self.assertLessEqual(resolution.ttl, 30)
            self.assertEqual(resolution.candidates[0].addresses, ("2001:db8::1", "192.0.2.1"))
            self.assertIn("stale", "\n".join(resolution.attempts))
            self.network.advance(6)
        self.authority.clear_faults()
        self.assertFalse(self.resolve().stale)

    def resolve_slowly(self) -> Resolution:
        waiting = self.resolver.resolve("beta.example")
        self.network.settle(19)
        return self.successResultOf(waiting)

    def test_stale_ends(self) -> None:
        """Past the window there is nothing left."""
        self.resolve()
        self.network.advance(300 + 3600 + 1)
        self.authority.set_fault(SECURE, SERVFAIL)
        self.assertEqual(self.fail_to_resolve().code, "dns.servfail")

    def test_stale_refusal_is_not_permanent(self) -> None:
        """A '.' of yesterday delays and does not refuse."""
        self.zone("_amqps._tcp SRV 0 0 0 .")
        self.assertTrue(self.fail_to_resolve().permanent)
        self.network.advance(301)
        self.authority.set_fault(SECURE, SERVFAIL)
        error = self.fail_to_resolve()
        self.assertFalse(error.permanent)

    def test_forget(self) -> None:
        """Forgetting a domain takes its services, its targets wherever they lie, and no more."""
        self.zone("_amqps._tcp SRV 0 0 5671 hub.provider.example.")
        self.resolve()
        self.resolve("provider.example")
        self.questions()
        self.assertEqual(self.resolver.forget("BETA.example"), 4)
        self.resolve("provider.example")
        self.assertNotIn("_amqps._tcp.provider.example SRV", self.questions())
        self.resolve()
        self.assertIn("_amqps._tcp.beta.example SRV", self.questions())
        self.assertRaises(InvalidField, self.resolver.forget, "127.0.0.1")

    def test_flush(self) -> None:
        """Flushing takes everything."""
        self.resolve()
        self.assertEqual(self.resolver.flush(), 4)
        self.resolve()
        self.assertEqual(self.questions()["_amqps._tcp.beta.example SRV"], 2)


class DeadlineTests(ResolverTestCase):
    def test_overall_deadline(self) -> None:
        """A resolution ends in time whatever the client does, with what was learned."""

        class Silent:
            def ask(self, question: DnsQuestion) -> Deferred[DnsAnswer]:
                return Deferred()

        resolver = SrvResolver(Silent(), self.cache, random.Random(1).random, self.network)
        waiting = resolver.resolve("beta.example")
        self.network.advance(19)
        self.assertNoResult(waiting)
        self.network.advance(1)
        error = self.failureResultOf(waiting, ResolveError).value
        self.assertEqual((error.code, error.permanent), ("dns.timeout", False))

    def test_cancel(self) -> None:
        """Cancelling leaves nothing behind."""
        self.authority.set_fault(SECURE, DROP)
        waiting = self.resolver.resolve("beta.example")
        self.network.settle()
        waiting.cancel()
        self.failureResultOf(waiting, CancelledError)
        self.assertEqual(self.network.ports, [])
        self.assertEqual(self.network.getDelayedCalls(), [])


class DnssecTests(ResolverTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.zone("_amqps._tcp SRV 0 0 5671 a\na A 192.0.2.1")
        self.secure_names: tuple[str, ...] = ("beta.example",)
        self.network.tamper = self.validate

    def validate(self, datagram: bytes, to: tuple[str, int]) -> list[Datagram]:
        """Answer first, with the AD bit for secure names, as a validating server would."""
        reply = self.authority.respond(datagram, udp=True)
        assert reply is not None
        response = dns.message.from_wire(reply.wire)
        if response.question[0].name.to_text(True).endswith(self.secure_names):
            response.flags |= dns.flags.AD
        return [(response.to_wire(), to)]

    def test_use(self) -> None:
        """The AD bit of the SRV answer is passed on."""
        resolution = self.resolve()
        self.assertTrue(resolution.authenticated)
        self.assertIn("authenticated", resolution.attempts[0])
        self.secure_names = ()
        self.resolver.flush()
        self.assertFalse(self.resolve().authenticated)

    def test_fallback_needs_authenticated_absence(self) -> None:
        """The domain's own address is authenticated only if the absence of SRV is."""
        self.zone("@ A 192.0.2.9")
        self.assertTrue(self.resolve().authenticated)
        self.resolver.flush()
        self.secure_names = ("_tcp.beta.example",)
        self.assertFalse(self.resolve().authenticated)

    def test_require(self) -> None:
        """Required: without the bit nothing is believed, with it everything is as usual."""
        self.build(dnssec=DnssecUse.REQUIRE)
        self.assertTrue(self.resolve().authenticated)
        self.assertGreater(self.questions()["a.beta.example A"], 0)
        self.build(dnssec=DnssecUse.REQUIRE)
        self.secure_names = ()
        error = self.fail_to_resolve()
        self.assertEqual((error.code, error.permanent), ("dns.insecure", False))

    def test_off(self) -> None:
        """Off: the bit is never passed on."""
        self.build(dnssec=DnssecUse.OFF)
        self.assertFalse(self.resolve().authenticated)
