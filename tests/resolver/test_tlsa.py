# SPDX-License-Identifier: Apache-2.0
"""Trust in DNSSEC: the AD bit and its permitted sources, bogus answers, TLSA of candidates."""

from __future__ import annotations

import random

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
from twisted.internet.defer import CancelledError
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import ResolveError
from amqproute.resolver.answer import DnsAnswer, DnsQuestion
from amqproute.resolver.dns_cache import CacheLimits, DnsCache
from amqproute.resolver.dns_client import DnsClient
from amqproute.resolver.dnssec_probe import BAD_SECONDS, GOOD_SECONDS, DnssecCapability, DnssecProbe
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import DnssecTerms, DnssecUse, SrvResolver
from amqproute.resolver.zone import ZoneAuthority, ZoneFault, ZoneFaultKind, ZoneReply
from amqproute.values import Candidate, Resolution, TlsaAnswer, TlsaState
from tests.resolver.fakes import PretendNetwork
from tests.support.targets import dialled

HEAD = "$ORIGIN {}\n$TTL 300\n@ SOA ns.invalid. h.invalid. 1 3600 600 86400 60\n@ NS ns.invalid.\n"
ROOT = HEAD.format(".")
TLSA_DATA = "3 1 1 " + "ab" * 32
BETA = "_amqps._tcp SRV 0 0 5671 mx\nmx A 192.0.2.1\n_5671._tcp.mx TLSA " + TLSA_DATA + "\n"
PROVIDER = "hub A 192.0.2.7\n_5671._tcp.hub TLSA " + TLSA_DATA + "\n"

TLSA_NAME = "_5671._tcp.mx.beta.example"
SRV_NAME = "_amqps._tcp.beta.example"


class Resolver(ZoneAuthority):
    """Plays a validating resolver; names in `bogus` fail its validation.

    Attributes:
        bogus: SERVFAIL, unless validation is switched off (CD).
        explains: with an extended error, too.
    """

    def __init__(self, *zones: str) -> None:
        super().__init__(zones)
        self.bogus: set[str] = set()
        self.explains = False
        self.with_cd = 0

    def respond(self, wire: bytes, *, udp: bool) -> ZoneReply | None:
        query = dns.message.from_wire(wire)
        name = query.question[0].name.to_text(omit_final_dot=True)
        checking = not query.flags & dns.flags.CD
        self.with_cd += not checking
        if name in self.bogus and checking:
            response = dns.message.make_response(query)
            response.set_rcode(dns.rcode.SERVFAIL)
            if self.explains:
                options = [dns.edns.EDEOption(dns.edns.EDECode.DNSSEC_BOGUS, "a signature")]
                response.use_edns(0, options=options)
            return ZoneReply(response.to_wire())
        return super().respond(wire, udp=udp)


class TrustTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = PretendNetwork()
        self.server = Resolver(
            ROOT,
            HEAD.format("beta.example.") + BETA,
            HEAD.format("provider.example.") + PROVIDER,
        )
        self.server.plays_resolver = frozenset({"", "beta.example", "provider.example"})
        self.network.servers["127.0.0.1", 53] = self.server
        self.network.servers["192.0.2.53", 53] = self.server
        self.build()

    def tearDown(self) -> None:
        self.network.settle()
        self.assertEqual(self.network.ports, [])

    def build(self, host: str = "127.0.0.1", dnssec: DnssecUse = DnssecUse.USE) -> None:
        self.client = DnsClient(
            self.network,
            [Nameserver(host)],
            random.Random(1),
            trusts=lambda server: server.host == "127.0.0.1",
        )
        self.cache: DnsCache[DnsQuestion, DnsAnswer] = DnsCache(
            self.network, CacheLimits(min_ttl=0, failure_ttl=0, stale_window=3600)
        )
        self.probe = DnssecProbe(self.client, self.network)
        self.resolver = SrvResolver(
            self.client,
            self.cache,
            random.Random(1).random,
            self.network,
            dnssec=DnssecTerms(dnssec, self.probe),
            targets=dialled(),
        )

    def resolve(self, domain: str = "beta.example") -> Resolution:
        waiting = self.resolver.resolve(domain)
        self.network.settle()
        return self.successResultOf(waiting)

    def refused(self, domain: str = "beta.example") -> ResolveError:
        waiting = self.resolver.resolve(domain)
        self.network.settle()
        return self.failureResultOf(waiting, ResolveError).value

    def candidate(self) -> Candidate:
        return self.resolve().candidates[0]

    def tlsa(self) -> TlsaAnswer:
        found = self.candidate().tlsa
        assert found is not None
        return found

    def zone(self, text: str, origin: str = "beta.example.") -> None:
        self.server.set_zone(HEAD.format(origin) + text)


class StateTests(TrustTestCase):
    def test_present(self) -> None:
        """Secure all the way: the records travel with the candidate."""
        candidate = self.candidate()
        self.assertTrue(candidate.secure)
        found = candidate.tlsa
        assert found is not None
        self.assertEqual((found.owner, found.state), (TLSA_NAME, TlsaState.PRESENT))
        self.assertEqual([str(record) for record in found.records], [TLSA_DATA])

    def test_absent(self) -> None:
        """A proof that there are none is not the same as nobody having asked."""
        self.zone("_amqps._tcp SRV 0 0 5671 mx\nmx A 192.0.2.1\n")
        self.assertEqual(self.tlsa().state, TlsaState.ABSENT)

    def test_insecure(self) -> None:
        """In an unsigned zone TLSA is not even asked for."""
        self.server.plays_resolver = frozenset({""})
        found = self.tlsa()
        self.assertEqual((found.state, found.code), (TlsaState.INSECURE, "dns.insecure"))
        self.assertFalse(self.candidate().secure)
        self.assertNotIn(TLSA_NAME, [question.name for question in self.server.asked])

    def test_insecure_target(self) -> None:
        """A signed domain may point to a host in a zone that is not."""
        self.zone("_amqps._tcp SRV 0 0 5671 hub.provider.example.\n")
        self.assertEqual(self.tlsa().state, TlsaState.PRESENT)
        self.server.plays_resolver = frozenset({"", "beta.example"})
        self.resolver.flush()
        candidate = self.candidate()
        self.assertTrue(candidate.secure)
        assert candidate.tlsa is not None
        self.assertEqual(candidate.tlsa.state, TlsaState.INSECURE)

    def test_alias(self) -> None:
        """The service by an alias: as secure as the least secure of the zones on the way."""
        self.zone(
            "_amqps._tcp CNAME _amqps._tcp.provider.example.\n",
        )
        self.zone("_amqps._tcp SRV 0 0 5671 hub\n" + PROVIDER, "provider.example.")
        self.assertTrue(self.candidate().secure)
        for missing in ("beta.example", "provider.example"):
            self.server.plays_resolver = frozenset({"", "beta.example", "provider.example"}) - {
                missing
            }
            self.resolver.flush()
            self.assertFalse(self.candidate().secure, missing)

    def test_failed(self) -> None:
        """No answer is no absence, and no stale answer stands in for a bogus one."""
        for kind, code in (
            (ZoneFaultKind.SERVFAIL, "dns.servfail"),
            (ZoneFaultKind.REFUSED, "dns.refused"),
        ):
            self.resolver.flush()
            self.server.set_fault(TLSA_NAME, ZoneFault(kind))
            found = self.tlsa()
            self.assertEqual((found.state, found.code), (TlsaState.FAILED, code))
        self.server.clear_faults()
        self.resolver.flush()
        self.assertEqual(self.tlsa().state, TlsaState.PRESENT)
        self.network.advance(400)  # past its time
        self.server.set_fault(TLSA_NAME, ZoneFault(ZoneFaultKind.SERVFAIL))
        self.assertEqual(self.tlsa().state, TlsaState.PRESENT)  # stale, and still signed
        self.server.clear_faults()
        self.network.advance(400)
        self.server.bogus = {TLSA_NAME}
        found = self.tlsa()
        self.assertEqual((found.state, found.code), (TlsaState.FAILED, "dns.bogus"))

    def test_off(self) -> None:
        """With DNSSEC off nothing is believed."""
        self.build(dnssec=DnssecUse.OFF)
        candidate = self.candidate()
        self.assertFalse(candidate.secure)
        self.assertEqual(self.tlsa().state, TlsaState.INSECURE)
        self.assertIn("off", self.tlsa().words)

    def test_domain_as_host(self) -> None:
        """Without SRV the domain itself may have records."""
        self.zone(f"@ A 192.0.2.9\n_5671._tcp TLSA {TLSA_DATA}\n")
        self.assertEqual(self.tlsa().owner, "_5671._tcp.beta.example")
        self.assertEqual(self.tlsa().state, TlsaState.PRESENT)

    def test_configured_host(self) -> None:
        """A host that the operator names."""
        for host, state in (
            ("mx.beta.example", TlsaState.PRESENT),
            ("other.beta.example", TlsaState.ABSENT),
        ):
            waiting = self.resolver.tlsa(host, 5671)
            self.network.settle()
            self.assertEqual(self.successResultOf(waiting).state, state)


class BogusTests(TrustTestCase):
    def test_bogus(self) -> None:
        """SERVFAIL that is one of validation has a code of its own, however it is found out."""
        for explains in (False, True):
            self.server.explains = explains
            self.server.with_cd = 0
            self.server.bogus = {SRV_NAME}
            error = self.refused()
            self.assertEqual((error.code, error.permanent), ("dns.bogus", False))
            self.assertEqual(self.server.with_cd, 0 if explains else 1)
            self.resolver.flush()

    def test_no_way_around(self) -> None:
        """Records of the other service are no way around a bogus one."""
        self.zone(BETA + "_amqp._tcp SRV 0 0 5672 mx\n")
        self.assertEqual(len(self.resolve().candidates), 2)
        self.resolver.flush()
        self.server.bogus = {SRV_NAME}
        self.assertEqual(self.refused().code, "dns.bogus")

    def test_failing_server(self) -> None:
        """A SERVFAIL that stays one without validation is not called bogus."""
        self.server.set_fault(SRV_NAME, ZoneFault(ZoneFaultKind.SERVFAIL))
        self.assertEqual(self.refused().code, "dns.servfail")

    def test_not_stale(self) -> None:
        """Yesterday's records do not stand in for bogus ones of today."""
        self.resolve()
        self.network.advance(400)
        self.server.bogus = {SRV_NAME}
        self.assertEqual(self.refused().code, "dns.bogus")


class TrustTests(TrustTestCase):
    def test_untrusted_server(self) -> None:
        """The AD bit of a server that nobody has said to trust counts for nothing."""
        self.build("192.0.2.53")
        self.assertFalse(self.client.is_trusting)
        candidate = self.candidate()
        self.assertFalse(candidate.secure)

    def test_untrusted_is_not_blamed(self) -> None:
        """Nor is such a server asked twice why it fails."""
        self.build("192.0.2.53")
        self.server.bogus = {SRV_NAME}
        self.assertEqual(self.refused().code, "dns.servfail")
        self.assertEqual(self.server.with_cd, 0)

    def test_glue_is_not_believed(self) -> None:
        """Addresses that came along are asked for again where all has to be secure."""
        self.resolve()
        asked = [str(question) for question in self.server.asked]
        self.assertIn("mx.beta.example A", asked)


class ProbeTests(TrustTestCase):
    def capability(self) -> DnssecCapability:
        waiting = self.probe.capability()
        self.network.settle()
        return self.successResultOf(waiting)

    def test_capable(self) -> None:
        """Asked once in a while."""
        for _ in range(3):
            self.assertTrue(self.capability().is_capable)
        self.assertEqual(len(self.server.asked), 1)
        self.network.advance(GOOD_SECONDS + 1)
        self.capability()
        self.assertEqual(len(self.server.asked), 2)

    def test_not_capable(self) -> None:
        """Told with its own code, by whoever requires DNSSEC; looked into again soon."""
        self.server.plays_resolver = frozenset()
        self.assertFalse(self.capability().is_capable)
        self.assertEqual(self.tlsa().code, "dns.not-dnssec-capable")
        self.build(dnssec=DnssecUse.REQUIRE)
        error = self.refused()
        self.assertEqual((error.code, error.permanent), ("dns.not-dnssec-capable", False))
        self.assertIn("validating resolver", str(error))
        self.server.plays_resolver = frozenset({"", "beta.example"})
        self.network.advance(BAD_SECONDS + 1)
        self.resolver.flush()
        self.assertTrue(self.resolve().authenticated)

    def test_required_and_insecure(self) -> None:
        """A capable server and an unsigned domain: that is the domain's own matter."""
        self.server.plays_resolver = frozenset({""})
        self.build(dnssec=DnssecUse.REQUIRE)
        self.assertEqual(self.refused().code, "dns.insecure")

    def test_failing(self) -> None:
        """No answer is told in words."""
        self.server.set_fault("", ZoneFault(ZoneFaultKind.REFUSED))
        self.assertIn("dns.refused", self.capability().words)

    def test_one_failing_question_is_no_way_around_dane(self) -> None:
        """A failing query does not show that there is no DNSSEC; an answer does."""

        def may_be_had() -> object:
            waiting = self.resolver.is_capable()
            self.network.settle()
            return self.successResultOf(waiting)

        self.server.plays_resolver = frozenset()
        self.assertFalse(may_be_had())
        for kind in (ZoneFaultKind.REFUSED, ZoneFaultKind.SERVFAIL):
            self.build()
            self.server.set_fault("", ZoneFault(kind))
            self.assertTrue(may_be_had(), kind)
            self.assertFalse(self.capability().is_capable)

    def test_nobody_to_ask(self) -> None:
        """If no answer could be believed no server is asked."""
        probe = DnssecProbe(self.client, self.network, refusal="nobody is trusted")
        found = self.successResultOf(probe.capability())
        self.assertEqual(found, DnssecCapability(False, "nobody is trusted"))

    def test_waiting_together(self) -> None:
        """A second request waits with the first; one that leaves does not end the others."""
        first, second = self.probe.capability(), self.probe.capability()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.network.settle()
        self.assertTrue(self.successResultOf(second).is_capable)
        self.assertEqual(len(self.server.asked), 1)

    def test_self_validating(self) -> None:
        """A client that validates needs no trusted server."""
        self.assertFalse(self.client.validates)
        self.assertTrue(self.successResultOf(self.settled()))

    def settled(self) -> object:
        waiting = self.resolver.is_capable()
        self.network.settle()
        return waiting
