# SPDX-License-Identifier: Apache-2.0
"""Fixture zones with one verdict code each, the same in ``explain`` and the relay.

Each fixture is a signed tree with one thing about it. `explain` is asked, and then the connector
that the relay uses, with the same resolution; they have to agree, place by place.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dns.rdataset
from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands import resolve
from amqproute.cli.commands.consult import Consulted
from amqproute.config import Config, loads
from amqproute.daemon.peer_assembly import make_judge, own_places, peer_policy
from amqproute.errors import ResolveError
from amqproute.net.authority import issue, make_authority
from amqproute.net.dane import record_of
from amqproute.net.peer_trust import ShownCertificate, TrustDemand, judge
from amqproute.resolver.dns_cache import DnsCache
from amqproute.resolver.dns_client import DnsClient
from amqproute.resolver.dnssec import DnssecValidator
from amqproute.resolver.dnssec_probe import DnssecProbe
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import DnssecTerms, DnssecUse, SrvResolver
from amqproute.resolver.zone import ZoneAuthority, ZoneFault, ZoneFaultKind
from amqproute.values import Resolution
from tests.resolver.fakes import PretendNetwork
from tests.support.signing import NOW, SignedTree
from tests.support.targets import dialled

BASE = """
domains: [alpha.example]
container-id: broker.alpha.example
tls: {certificate: c.pem, private-key: k.pem}
listen:
  - {endpoint: "tcp:5671", tls: implicit, client-certificate: optional, mechanisms: [EXTERNAL]}
"""

SRV = "_amqps._tcp SRV 10 0 5671 mx\nmx A 192.0.2.1\n"
TLSA = "_5671._tcp.mx TLSA {}\n"
STRANGE = "3 1 1 " + "ab" * 32


def unchanged(_: SignedTree) -> None:
    """Nothing more is done to the tree."""


def tamper_with(owner: str, rdtype: str, text: str) -> Callable[[SignedTree], None]:
    def change(tree: SignedTree) -> None:
        zone = tree.zones["beta.example"]
        zone.replace_rdataset(f"{owner}.", dns.rdataset.from_text("IN", rdtype, 300, text))

    return change


def fault(name: str, kind: ZoneFaultKind) -> Callable[[SignedTree], None]:
    return lambda tree: tree.authority.set_fault(name, ZoneFault(kind))


@dataclass(frozen=True)
class Fixture:
    """A zone and what has to come of it.

    Attributes:
        name: what it shows.
        zone: beta.example, without SOA and NS; ``{own}`` and ``{other}`` are TLSA data of keys.
        code: of `explain`.
        places: ``host proof`` of each place, in any order.
        shows: what becomes of the certificate of beta.example there: a code, or ``ok LEVEL``.
        extra: more of the configuration.
        unsigned: beta.example is not signed.
        change: what is done to the signed zone.
        address: who is written to.
    """

    name: str
    zone: str
    code: str
    places: tuple[str, ...] = ()
    shows: str = ""
    extra: str = ""
    unsigned: bool = False
    change: Callable[[SignedTree], None] = field(default=unchanged)
    address: str = "orders@beta.example"


FIXTURES = (
    Fixture(
        "no SRV, an address", "@ A 192.0.2.9", "ok", ("beta.example pkix",), "ok authenticated"
    ),
    Fixture("SRV .", "_amqps._tcp SRV 0 0 0 .\n@ A 192.0.2.9", "dns.no-service"),
    Fixture(
        "weights",
        "_amqps._tcp SRV 0 0 5671 a\n_amqps._tcp SRV 0 10 5671 b\n_amqps._tcp SRV 0 30 5671 c\n"
        "a A 192.0.2.1\nb A 192.0.2.2\nc A 192.0.2.3",
        "ok",
        ("a.beta.example pkix", "b.beta.example pkix", "c.beta.example pkix"),
        "ok authenticated",
    ),
    Fixture(
        "a target that is an alias",
        "_amqps._tcp SRV 0 0 5671 alias\nalias CNAME mx\nmx A 192.0.2.1\n" + TLSA.format("{own}"),
        "ok",
        ("alias.beta.example dane",),
        "ok dane",
    ),
    Fixture(
        "the alias's own records where its end has none",
        "_amqps._tcp SRV 0 0 5671 alias\nalias CNAME mx\nmx A 192.0.2.1\n"
        "_5671._tcp.alias TLSA {own}",
        "ok",
        ("alias.beta.example dane",),
        "ok dane",
    ),
    Fixture(
        "bogus SRV",
        SRV,
        "dns.bogus",
        change=tamper_with("_amqps._tcp.beta.example", "SRV", "0 0 5671 evil.example."),
    ),
    Fixture(
        "bogus TLSA",
        SRV + TLSA.format("{other}"),
        "dns.bogus",
        ("mx.beta.example refused",),
        change=tamper_with("_5671._tcp.mx.beta.example", "TLSA", STRANGE),
    ),
    Fixture(
        "insecure",
        SRV + TLSA.format("{other}"),
        "ok",
        ("mx.beta.example pkix",),
        "ok authenticated",
        unsigned=True,
    ),
    Fixture("TLSA match", SRV + TLSA.format("{own}"), "ok", ("mx.beta.example dane",), "ok dane"),
    Fixture(
        "TLSA mismatch",
        SRV + TLSA.format("{other}"),
        "ok",
        ("mx.beta.example dane",),
        "dane.mismatch",
    ),
    Fixture(
        "TLSA in roll-over",
        SRV + TLSA.format("{other}") + TLSA.format("{own}"),
        "ok",
        ("mx.beta.example dane",),
        "ok dane",
    ),
    Fixture(
        "TLSA unusable",
        SRV + TLSA.format("1 1 1 " + "ab" * 32),
        "ok",
        ("mx.beta.example pkix",),
        "ok authenticated",
    ),
    Fixture(
        "TLSA fails",
        SRV + TLSA.format("{own}"),
        "dns.servfail",
        ("mx.beta.example refused",),
        change=fault("_5671._tcp.mx.beta.example", ZoneFaultKind.SERVFAIL),
    ),
    Fixture(
        "private address",
        "_amqps._tcp SRV 0 0 5671 mx\nmx A 10.1.2.3",
        "dns.denied-target",
        extra="resolver: {deny-targets: [10.0.0.0/8]}\n",
    ),
    Fixture(
        "private address of a stranger",
        "_amqps._tcp SRV 0 0 5671 mx\nmx A 10.1.2.3",
        "dns.denied-target",
        extra='peers: {"*.example": {level: pkix}}\n',
    ),
    Fixture(
        "private address of a partner",
        "_amqps._tcp SRV 0 0 5671 mx\nmx A 10.1.2.3",
        "ok",
        ("mx.beta.example pkix",),
        "ok authenticated",
        extra="peers: {beta.example: {level: pkix}}\n",
    ),
    Fixture(
        "private address, allowed",
        "_amqps._tcp SRV 0 0 5671 mx\nmx A 10.1.2.3",
        "ok",
        ("mx.beta.example pkix",),
        "ok authenticated",
        extra="resolver: {allow-targets: [10.0.0.0/8]}\n",
    ),
    Fixture(
        "port of another service",
        "_amqps._tcp SRV 0 0 6379 mx\nmx A 192.0.2.1",
        "dns.denied-target",
        extra="peers: {beta.example: {level: pkix}}\n",
    ),
    Fixture(
        "port of another service, allowed",
        "_amqps._tcp SRV 0 0 6379 mx\nmx A 192.0.2.1",
        "ok",
        ("mx.beta.example pkix",),
        "ok authenticated",
        extra="resolver: {allow-ports: [6379]}\n",
    ),
    Fixture(
        "we are the backup",
        SRV + "_amqps._tcp SRV 20 0 5671 broker.alpha.example.\n"
        "_amqps._tcp SRV 30 0 5671 behind\nbehind A 192.0.2.3\n",
        "ok",
        ("mx.beta.example pkix",),
        "ok authenticated",
    ),
    Fixture(
        "we are the preferred target",
        "_amqps._tcp SRV 5 0 5671 broker.alpha.example.\n" + SRV,
        "dns.loop-to-self",
    ),
    Fixture(
        "static override",
        SRV,
        "ok",
        ("gateway.example pkix",),
        extra='routes: [{domain: beta.example, via: "amqps://gateway.example:5671"}]\n',
    ),
    Fixture(
        "static override, pinned",
        SRV,
        "ok",
        ("gateway.example pin",),
        extra='routes: [{domain: beta.example, via: "amqps://gateway.example:5671"}]\n'
        f"peers: {{gateway.example: {{level: pin, pin: ['sha256:{'ab' * 32}']}}}}\n",
    ),
    Fixture(
        "IDNA",
        SRV,
        "ok",
        ("mx.xn--bcher-kva.example pkix",),
        address="orders@Bücher.example",
    ),
    Fixture("NXDOMAIN", "", "dns.nxdomain", address="orders@nowhere.beta.example"),
    Fixture(
        "SERVFAIL",
        SRV,
        "dns.servfail",
        change=fault("_amqps._tcp.beta.example", ZoneFaultKind.SERVFAIL),
        extra="",
    ),
    Fixture(
        "dane demanded, absent",
        SRV,
        "dane.absent",
        ("mx.beta.example refused",),
        extra="peers: {beta.example: {level: dane}}\n",
    ),
    Fixture(
        "dane demanded, insecure",
        SRV,
        "dns.insecure",
        ("mx.beta.example refused",),
        extra="peers: {beta.example: {level: dane}}\n",
        unsigned=True,
    ),
    Fixture(
        "dane demanded, PKIX-EE with name and authority",
        SRV + TLSA.format("{pkix}"),
        "ok",
        ("mx.beta.example dane",),
        "ok dane",
        extra="peers: {beta.example: {level: dane}}\n",
    ),
    Fixture(
        "dnssec required, insecure",
        SRV,
        "dns.insecure",
        extra="resolver: {dnssec: require}\n",
        unsigned=True,
    ),
)


class VerdictTests(SynchronousTestCase):
    def setUp(self) -> None:
        directory = Path(self.mktemp())
        make_authority(directory)
        issue(directory, ["beta.example", "other.example"])
        self.own, self.other = (
            x509.load_pem_x509_certificate((directory / name / "chain.pem").read_bytes())
            for name in ("beta.example", "other.example")
        )

    def prepare(self, fixture: Fixture) -> tuple[Config, SrvResolver]:
        config = loads(BASE + fixture.extra, Path("amqproute.yaml"))
        zone = fixture.zone.format(
            own=record_of(self.own),
            other=record_of(self.other),
            pkix=record_of(self.own, usage=1),
        )
        tree = SignedTree(
            {
                "beta.example": zone + "\n",
                "alpha.example": "broker A 192.0.2.200\n",
                "xn--bcher-kva.example": SRV,
            },
            unsigned=("beta.example",) if fixture.unsigned else (),
        )
        fixture.change(tree)
        self.network = PretendNetwork()
        return config, self.resolver(config, tree, tree.authority)

    def resolver(self, config: Config, tree: SignedTree, authority: ZoneAuthority) -> SrvResolver:
        network = self.network
        network.servers["192.0.2.53", 53] = authority
        client = DnsClient(
            network,
            [Nameserver("192.0.2.53")],
            random.Random(1),
            validator=DnssecValidator(tree.anchors, lambda: NOW),
        )
        return SrvResolver(
            client,
            DnsCache(network),
            random.Random(1).random,
            network,
            targets=dialled(
                *config.resolver.allow_targets,
                deny=config.resolver.deny_targets,
                ports=config.resolver.allow_ports,
                named=(*config.peers, *(route.domain for route in config.routes)),
            ),
            dnssec=DnssecTerms(DnssecUse(config.resolver.dnssec), DnssecProbe(client, network)),
            own=own_places(config),
        )

    def look_up(self, resolver: SrvResolver, domain: str) -> Resolution | ResolveError:
        found: list[Any] = []
        resolver.resolve(domain).addBoth(found.append)
        self.network.settle()
        result = found[0]
        return result if isinstance(result, Resolution) else result.value

    def explain(self, config: Config, resolver: SrvResolver, address: str) -> Any:
        outcomes: dict[str, Any] = {}

        async def look_up(
            _: Any, __: Config, domain: str, ___: Any = None
        ) -> Resolution | ResolveError:
            outcomes[domain] = self.look_up(resolver, domain)
            return outcomes[domain]  # type: ignore[no-any-return]

        async def consult(*_: Any) -> Consulted:
            return Consulted("no daemon here")

        self.patch(resolve, "_look_up", look_up)
        self.patch(resolve, "consult", consult)
        explaining = Deferred.fromCoroutine(resolve._explain(None, config, address))
        return self.successResultOf(explaining)

    def test_fixtures(self) -> None:
        """Each fixture has its one code, in ``explain`` and in the connector."""
        self.assertGreaterEqual(len(FIXTURES), 14)
        for fixture in FIXTURES:
            with self.subTest(fixture.name):
                config, resolver = self.prepare(fixture)
                found = self.explain(config, resolver, fixture.address)
                self.assertEqual(found.code, fixture.code, found.words)
                places = tuple(
                    f"{candidate.host} {wanted.method.value}"
                    for candidate, wanted in zip(found.candidates, found.demands, strict=True)
                )
                self.assertEqual(sorted(places), sorted(fixture.places))
                self.assertEqual(self.demands(config, resolver, found), found.demands)
                if fixture.shows:
                    shown = ShownCertificate((self.own,))
                    for wanted in found.demands:
                        self.assertEqual(self.shown(wanted, shown), fixture.shows)

    def demands(self, config: Config, resolver: SrvResolver, found: Any) -> list[TrustDemand]:
        """The demands of the relay's connector at the same places."""
        connector = make_judge(config, resolver)
        domain = found.demands[0].domain if found.demands else ""
        waiting = [
            Deferred.fromCoroutine(connector.demand_for(candidate, domain))
            for candidate in found.candidates
        ]
        self.network.settle()
        return [self.successResultOf(each) for each in waiting]

    def shown(self, wanted: TrustDemand, shown: ShownCertificate) -> str:
        import datetime

        verdict = judge(wanted, shown, datetime.datetime.now(datetime.UTC))
        return f"ok {verdict.level}" if verdict.failure is None else verdict.failure.code

    def test_not_capable(self) -> None:
        """Name servers that hide DNSSEC have a code of their own, whatever the domain does."""
        fixture = Fixture("x", SRV, "", extra="peers: {beta.example: {level: dane}}\n")
        config, _ = self.prepare(fixture)
        tree = SignedTree({"beta.example": SRV})
        plain = SignedTree({"beta.example": SRV}, unsigned=("", "example", "beta.example"))
        resolver = self.resolver(config, tree, plain.authority)
        found = self.explain(config, resolver, "orders@beta.example")
        self.assertEqual(found.code, "dns.not-dnssec-capable")

    def test_policies(self) -> None:
        """Levels and pins of the file are those of the decision."""
        config = loads(
            f"peers: {{b.example: {{level: pin, pin: ['SHA256:{'AB' * 32}']}}}}".replace(
                "SHA", "sha"
            ),
            Path("f"),
        )
        self.assertEqual(str(peer_policy(config, "b.example").level), "pin")
        self.assertEqual(len(peer_policy(config, "b.example").pins), 1)
        self.assertEqual(str(peer_policy(config, "c.example").level), "dane-or-pkix")
