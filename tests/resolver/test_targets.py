# SPDX-License-Identifier: Apache-2.0
"""A zone with forbidden targets: the fate of its candidates."""

from __future__ import annotations

import random
from collections.abc import Iterable
from ipaddress import ip_address

from twisted.trial.unittest import SynchronousTestCase

from amqproute.dial_policy import TargetPolicy
from amqproute.errors import ResolveError
from amqproute.resolver.dns_cache import DnsCache
from amqproute.resolver.dns_client import DnsClient
from amqproute.resolver.nameservers import Nameserver
from amqproute.resolver.srv import SrvResolver
from amqproute.resolver.zone import ZoneAuthority
from amqproute.values import Resolution
from tests.resolver.fakes import PretendNetwork
from tests.support.targets import DOCUMENTATION

HEAD = "$ORIGIN beta.example.\n$TTL 60\n@ SOA ns hostmaster 1 3600 600 86400 60\n"
SRV = "_amqps._tcp SRV 0 0 {port} mx\n"


class TargetTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.network = PretendNetwork()
        self.authority = ZoneAuthority([])
        self.network.servers["192.0.2.53", 53] = self.authority

    def resolve(
        self,
        zone: str,
        *,
        allow: Iterable[str] = (),
        ports: Iterable[int] = (),
        named: bool = False,
        own: Iterable[tuple[str, int]] = (),
        to_dial: bool = True,
    ) -> Resolution | ResolveError:
        self.authority.set_zone(HEAD + zone + "\n")
        policy = TargetPolicy.of(
            allow=(*DOCUMENTATION, *allow),
            ports=ports,
            is_named=lambda domain: named and domain == "beta.example",
            own=lambda: {ip_address("192.0.2.7")},
        )
        resolver = SrvResolver(
            DnsClient(self.network, [Nameserver("192.0.2.53")], random.Random(1)),
            DnsCache(self.network),
            random.Random(1).random,
            self.network,
            targets=lambda: policy,
            own=own,
        )
        found: list[Resolution] = []
        failed: list[ResolveError] = []
        waiting = resolver.resolve("beta.example", to_dial=to_dial)
        waiting.addCallbacks(found.append, lambda failure: failed.append(failure.value))
        self.network.settle()
        return found[0] if found else failed[0]

    def places(self, found: Resolution | ResolveError) -> list[str]:
        if isinstance(found, ResolveError):
            raise found
        return [f"{each.port} {' '.join(each.addresses)}" for each in found.candidates]

    def denied(self, found: Resolution | ResolveError) -> ResolveError:
        assert isinstance(found, ResolveError), found
        self.assertEqual((found.code, found.permanent), ("dns.denied-target", True))
        self.assertIn("denied", "\n".join(found.attempts))
        return found

    def test_addresses(self) -> None:
        """By SRV, and by the domain's own address; the answer's additional section is no way in."""
        for record, words in (
            ("A 127.0.0.1", "loopback"),
            ("A 0.0.0.0", "unspecified"),
            ("AAAA ::", "unspecified"),
            ("AAAA ::1", "loopback"),
            ("AAAA ::ffff:127.0.0.1", "127.0.0.1"),
            ("AAAA 64:ff9b::a9fe:a9fe", "169.254.169.254"),
            ("A 169.254.169.254", "link-local"),
            ("AAAA fe80::1", "link-local"),
            ("A 10.0.0.1", "name beta.example under peers"),
            ("AAAA fd00::1", "name beta.example under peers"),
            ("A 100.64.0.1", "name beta.example under peers"),
            ("A 224.0.0.1", "multicast"),
            ("A 240.0.0.1", "reserved"),
            ("A 192.0.2.7", "address of this host"),
        ):
            for zone in (f"{SRV.format(port=5671)}mx {record}", f"@ {record}"):
                error = self.denied(self.resolve(zone))
                self.assertIn(words, str(error))
                # The name server sends the target's addresses along; those are no exception.
                self.assertNotIn("192.0.2.53", str(error))

    def test_left_out(self) -> None:
        """Of several places those that are denied are left out, each with its reason."""
        zone = (
            SRV.format(port=5671)
            + SRV.format(port=6379)
            + SRV.format(port=25)
            + "mx A 192.0.2.1\nmx A 127.0.0.1\nmx AAAA ::1\nmx AAAA 2001:db8::1"
        )
        found = self.resolve(zone)
        self.assertEqual(self.places(found), ["5671 2001:db8::1 192.0.2.1"])
        told = "\n".join(found.attempts)
        for words in (
            "mx.beta.example at 127.0.0.1: denied, it is loopback (127.0.0.0/8)",
            "mx.beta.example at ::1: denied",
            "mx.beta.example: denied, port 6379 is Redis by custom",
            "mx.beta.example: denied, port 25 is one of those below 1024",
        ):
            self.assertIn(words, told)

    def test_named(self) -> None:
        """A partner that the operator names may be at a private address, and nowhere else."""
        zone = SRV.format(port=5671) + "mx A 10.0.0.1\nmx A 127.0.0.1\nmx AAAA fd00::1"
        self.assertEqual(self.places(self.resolve(zone, named=True)), ["5671 fd00::1 10.0.0.1"])
        self.denied(self.resolve(SRV.format(port=5432) + "mx A 10.0.0.1", named=True))

    def test_allowed(self) -> None:
        """Networks and ports that the configuration allows."""
        zone = SRV.format(port=993) + "mx A 10.0.0.1\nmx A 127.0.0.1\nmx A 10.1.0.1"
        found = self.resolve(zone, allow=("10.0.0.0/16", "127.0.0.0/8"), ports=(993,))
        (place,) = self.places(found)
        self.assertEqual(set(place.split()), {"993", "10.0.0.1", "127.0.0.1"})

    def test_ourselves(self) -> None:
        """A place that is not dialled, and is this broker, still ends the list."""
        zone = (
            "_amqps._tcp SRV 0 0 5671 us\n_amqps._tcp SRV 10 0 5671 mx\n"
            "us A 127.0.0.1\nmx A 192.0.2.1"
        )
        error = self.resolve(zone, own=[("127.0.0.1", 5671)])
        assert isinstance(error, ResolveError)
        self.assertEqual((error.code, error.permanent), ("dns.loop-to-self", False))
        self.assertEqual(self.places(self.resolve(zone)), ["5671 192.0.2.1"])

    def test_not_to_dial(self) -> None:
        """Published records are shown without a connection, denied or not."""
        zone = SRV.format(port=25) + "mx A 127.0.0.1"
        self.assertEqual(self.places(self.resolve(zone, to_dial=False)), ["25 127.0.0.1"])
