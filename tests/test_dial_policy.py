# SPDX-License-Identifier: Apache-2.0
"""Addresses that may be dialed for a name from outside. Nothing is connected here."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import loads
from amqproute.dial_policy import OTHER_SERVICES, TargetPolicy, is_impossible, meanings
from amqproute.errors import ConfigError

STRANGER, NAMED = "stranger.example", "partner.example"
OWN = frozenset(map(ip_address, ("198.41.0.7", "10.9.9.9", "2600::7", "127.0.0.1", "fe80::7")))

NEVER, IN_WORDS, BY_NAME, ALWAYS = "never", "in words", "by name", "always"

REGISTRY: tuple[tuple[str, str, str], ...] = (
    # The IANA IPv4 Special-Purpose Address Registry, and multicast.
    ("0.0.0.0/8", NEVER, "unspecified"),
    ("0.0.0.0/32", NEVER, "unspecified"),
    ("10.0.0.0/8", BY_NAME, "private"),
    ("100.64.0.0/10", BY_NAME, "shared"),
    ("127.0.0.0/8", IN_WORDS, "loopback"),
    ("169.254.0.0/16", IN_WORDS, "link-local"),
    ("172.16.0.0/12", BY_NAME, "private"),
    ("192.0.0.0/24", IN_WORDS, "reserved"),
    ("192.0.0.0/29", IN_WORDS, "reserved"),
    ("192.0.0.8/32", IN_WORDS, "reserved"),
    ("192.0.0.9/32", IN_WORDS, "reserved"),
    ("192.0.0.10/32", IN_WORDS, "reserved"),
    ("192.0.0.170/32", IN_WORDS, "reserved"),
    ("192.0.0.171/32", IN_WORDS, "reserved"),
    ("192.0.2.0/24", IN_WORDS, "reserved"),
    ("192.31.196.0/24", ALWAYS, ""),  # AS112, globally reachable
    ("192.52.193.0/24", ALWAYS, ""),  # AMT, globally reachable
    ("192.88.99.0/24", IN_WORDS, "reserved"),
    ("192.168.0.0/16", BY_NAME, "private"),
    ("192.175.48.0/24", ALWAYS, ""),  # AS112, globally reachable
    ("198.18.0.0/15", IN_WORDS, "reserved"),
    ("198.51.100.0/24", IN_WORDS, "reserved"),
    ("203.0.113.0/24", IN_WORDS, "reserved"),
    ("224.0.0.0/4", NEVER, "multicast"),
    ("240.0.0.0/4", IN_WORDS, "reserved"),
    ("255.255.255.255/32", NEVER, "broadcast"),
    # The IANA IPv6 Special-Purpose Address Registry, and multicast.
    ("::1/128", IN_WORDS, "loopback"),
    ("::/128", NEVER, "unspecified"),
    ("100::/64", IN_WORDS, "reserved"),
    ("100:0:0:1::/64", IN_WORDS, "reserved"),
    ("2001::/23", IN_WORDS, "reserved"),
    ("2001:1::1/128", IN_WORDS, "reserved"),
    ("2001:1::2/128", IN_WORDS, "reserved"),
    ("2001:1::3/128", IN_WORDS, "reserved"),
    ("2001:2::/48", IN_WORDS, "reserved"),
    ("2001:3::/32", IN_WORDS, "reserved"),
    ("2001:4:112::/48", IN_WORDS, "reserved"),
    ("2001:10::/28", IN_WORDS, "reserved"),
    ("2001:20::/28", IN_WORDS, "reserved"),
    ("2001:30::/28", IN_WORDS, "reserved"),
    ("2001:db8::/32", IN_WORDS, "reserved"),
    ("2620:4f:8000::/48", ALWAYS, ""),  # AS112, globally reachable
    ("3fff::/20", IN_WORDS, "reserved"),
    ("5f00::/16", IN_WORDS, "reserved"),
    ("fc00::/7", BY_NAME, "unique-local"),
    ("fe80::/10", IN_WORDS, "link-local"),
    ("fec0::/10", IN_WORDS, "reserved"),
    ("ff00::/8", NEVER, "multicast"),
    # What is not given out, and what is.
    ("200::/7", IN_WORDS, "reserved"),
    ("4000::/3", IN_WORDS, "reserved"),
    ("c000::/3", IN_WORDS, "reserved"),
    ("2600::/12", ALWAYS, ""),
    ("8.8.8.0/24", ALWAYS, ""),
    ("1.0.0.0/8", ALWAYS, ""),
    ("223.255.255.0/24", ALWAYS, ""),
)


def policy(*allow: str, deny: tuple[str, ...] = (), ports: tuple[int, ...] = ()) -> TargetPolicy:
    return TargetPolicy.of(
        allow=allow, deny=deny, ports=ports, is_named=NAMED.__eq__, own=lambda: OWN
    )


def embedded(address: IPv4Address) -> list[IPv6Address]:
    """Every IPv6 address that stands for an IPv4 address, in the forms with one reading."""
    low, bits = int(address), 128
    forms = [
        int(IPv6Address("::ffff:0:0")) | low,
        int(IPv6Address("::ffff:0:0:0")) | low,
        int(IPv6Address("64:ff9b::")) | low,
        int(IPv6Address("2002::")) | low << bits - 48 | 0xABCD,
        int(IPv6Address("2001::")) | int(IPv4Address("8.8.4.4")) << 64 | (~low & 0xFFFFFFFF),
        int(IPv6Address("2001::")) | low << 64 | (~int(IPv4Address("8.8.4.4")) & 0xFFFFFFFF),
    ]
    if low > 1:
        forms.append(low)  # compatible; ::0 and ::1 are something else
    return [IPv6Address(form) for form in forms]


def local_nat64(address: IPv4Address) -> list[IPv6Address]:
    """The address behind local-use NAT64 prefixes of 48, 56, 64 and 96 (RFC 6052 §2.2)."""
    prefix, low = int(IPv6Address("64:ff9b:1::")), int(address)
    return [
        IPv6Address(prefix | (low >> 16) << 64 | (low & 0xFFFF) << 40),
        IPv6Address(prefix | (low >> 24) << 64 | (low & 0xFFFFFF) << 32),
        IPv6Address(prefix | low << 24),
        IPv6Address(prefix | low),
    ]


class AddressTests(SynchronousTestCase):
    def test_registry(self) -> None:
        """Both ends of every range: for a stranger, for a named domain, and allowed in words."""
        for text, rule, words in REGISTRY:
            network = ip_network(text)
            first, last = network[0], network[-1]
            if text == "2001::/23":
                first = IPv6Address("2001:1::")  # before it is Teredo
            if text == "240.0.0.0/4":
                last -= 1
            for address in map(str, (first, last)):
                stranger = policy().judge_address(address, STRANGER)
                named = policy().judge_address(address, NAMED)
                allowed = policy(text).judge_address(address, STRANGER)
                with self.subTest(address):
                    self.assertEqual(stranger is None, rule == ALWAYS, stranger)
                    self.assertEqual(named is None, rule in (ALWAYS, BY_NAME), named)
                    self.assertEqual(allowed is None, rule != NEVER, allowed)
                    if stranger is not None:
                        self.assertIn(words, stranger.reason)
                        self.assertEqual("resolver.allow-targets" in stranger.remedy, rule != NEVER)

    def test_not_in_words(self) -> None:
        """A wide entry opens private networks, and neither loopback nor this host."""
        wide = policy("0.0.0.0/0", "::/0")
        for address in ("10.1.2.3", "100.64.0.1", "fd00::1", "::ffff:192.168.1.1"):
            self.assertIsNone(wide.judge_address(address, STRANGER), address)
        for address in (
            "127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1", "0.0.0.0", "::",
            "240.0.0.1", "2001:db8::1", "224.0.0.1", "ff02::1", "198.41.0.7", "10.9.9.9", "2600::7",
        ):  # fmt: skip
            self.assertIsNotNone(wide.judge_address(address, STRANGER), address)

    def test_remedy(self) -> None:
        """The suggested remedy works, and opens nothing else."""
        for address in ("127.0.0.1", "fe80::7", "10.9.9.9", "198.41.0.7", "240.1.1.1"):
            denied = policy().judge_address(address, NAMED)
            assert denied is not None
            entry = denied.remedy.partition('["')[2].rstrip('"]')
            self.assertEqual(ip_network(entry).num_addresses, 1)
            self.assertIsNone(policy(entry).judge_address(address, STRANGER), address)

    def test_own(self) -> None:
        """This host's addresses, whoever the domain is; an entry for their network is no entry."""
        for address in ("198.41.0.7", "10.9.9.9", "2600::7", "::ffff:10.9.9.9", "2002:c629:7::1"):
            denied = policy("198.41.0.0/24", "10.0.0.0/8").judge_address(address, NAMED)
            assert denied is not None
            self.assertIn("this host", denied.reason)
        self.assertIsNone(policy("10.9.9.9/32").judge_address("10.9.9.9", STRANGER))
        self.assertIsNone(policy("127.0.0.0/8").judge_address("127.0.0.1", STRANGER))
        self.assertIsNotNone(policy("fe80::/10").judge_address("fe80::7%eth0", STRANGER))

    def test_zone_index(self) -> None:
        """It does not matter."""
        for address in ("::1%lo", "fe80::1%eth0", "fe80::1%25eth0", "ff02::1%1", "10.9.9.9%1"):
            self.assertIsNotNone(policy().judge_address(address, NAMED), address)
        self.assertIsNone(policy().judge_address("2600::1%eth0", STRANGER))

    def test_deny(self) -> None:
        """`deny-targets` comes before everything, and sees through what stands for something."""
        wide = policy("10.0.0.0/8", deny=("10.1.0.0/16", "8.8.8.0/24", "2600::/64"))
        for address in (
            "10.1.0.1",
            "::ffff:10.1.0.1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::",
            "2600::1",
        ):
            denied = wide.judge_address(address, NAMED)
            assert denied is not None
            self.assertIn("deny-targets", denied.reason)
        self.assertIsNone(wide.judge_address("10.2.0.1", STRANGER))

    def test_no_address(self) -> None:
        """An unreadable address is not dialed."""
        for text in (
            "",
            "localhost",
            "127.1",
            "0x7f000001",
            "2130706433",
            "1.2.3.4.5",
            "::g",
            "%lo",
        ):
            self.assertIsNotNone(policy("0.0.0.0/0").judge_address(text, NAMED), text)

    @given(
        st.one_of(
            st.ip_addresses(v=4),
            st.sampled_from(
                [n[0] for n in (ip_network(text) for text, _, _ in REGISTRY) if n.version == 4]
            ),
        )
    )
    def test_embedded(self, address: IPv4Address) -> None:
        """An IPv4 address is judged alike in whatever form it comes."""
        for domain in (STRANGER, NAMED):
            for rules in (policy(), policy("127.0.0.0/8", "100.64.0.0/10", "10.9.9.9/32")):
                plain = rules.judge_address(str(address), domain)
                for form in embedded(address):
                    found = rules.judge_address(str(form), domain)
                    self.assertEqual(found is None, plain is None, f"{form}: {found} {plain}")
                    if found is not None and plain is not None:
                        self.assertEqual(found.remedy, plain.remedy)

    @given(st.ip_addresses(v=4))
    def test_local_nat64(self, address: IPv4Address) -> None:
        """A forbidden address stays forbidden under any local-use prefix length; /96 is exact."""
        plain = policy().judge_address(str(address), STRANGER)
        *others, last = local_nat64(address)
        if int(address) >> 24:
            for form in (*others, last):
                self.assertIn(address, meanings(form))
                if plain is not None:
                    self.assertIsNotNone(policy().judge_address(str(form), STRANGER), str(form))
        if int(address) & 0xFFFFFF and int(address) >> 24:
            self.assertEqual(meanings(last), (address,))

    def test_local_nat64_unreadable(self) -> None:
        """An address in which no IPv4 address can stand leads nowhere that anybody knows."""
        self.assertEqual(meanings(IPv6Address("64:ff9b:1:0:ff00::808:808")), ())
        self.assertIsNotNone(policy().judge_address("64:ff9b:1:0:ff00::808:808", NAMED))
        self.assertIsNotNone(policy().judge_address("64:ff9b:1::", NAMED))

    @given(st.ip_addresses())
    def test_total(self, address: IPv4Address | IPv6Address) -> None:
        """There is a verdict for every address; a named domain is not worse off than a stranger."""
        stranger = policy().judge_address(str(address), STRANGER)
        if stranger is None:
            self.assertIsNone(policy().judge_address(str(address), NAMED))


class PortTests(SynchronousTestCase):
    def test_ports(self) -> None:
        """AMQP's, HTTPS's and those of nobody; not those of others, whoever the domain is."""
        for port in (443, 5671, 5672, 1024, 10000, 20000, 32768, 65535):
            self.assertIsNone(policy().judge_port(port), port)
        for port in (1, 22, 25, 80, 389, 445, 636, 993, 1023, *OTHER_SERVICES):
            denied = policy().judge_port(port)
            assert denied is not None
            self.assertIn(f"allow-ports: [{port}]", denied.remedy)
            self.assertIsNone(policy(ports=(port,)).judge_port(port))
            self.assertIsNotNone(policy().judge("8.8.8.8", port, NAMED))
        self.assertTrue(
            {1433, 2049, 2375, 3306, 5432, 6379, 8080, 9200, 11211} < set(OTHER_SERVICES)
        )

    def test_none_at_random(self) -> None:
        """None lies where systems hand out ports at random: whoever has one would be refused."""
        self.assertEqual([port for port in OTHER_SERVICES if not 1024 <= port < 32768], [])


class ConfigurationTests(SynchronousTestCase):
    def test_impossible(self) -> None:
        """A rule without effect is refused when it is read."""
        self.assertTrue(is_impossible("0.0.0.0/32"))
        self.assertFalse(is_impossible("0.0.0.0/0"))
        for network in ("0.0.0.0/8", "::/128", "239.0.0.0/8", "255.255.255.255/32"):
            with self.assertRaises(ConfigError) as caught:
                loads(f'resolver: {{allow-targets: ["{network}"]}}\n', "amqproute.yaml")
            self.assertIn("cannot contain a broker", str(caught.exception))

    def test_ports(self) -> None:
        for port in ("0", "65536", "https"):
            with self.assertRaises(ConfigError):
                loads(f"resolver: {{allow-ports: [{port}]}}\n", "amqproute.yaml")
        config = loads("resolver: {allow-ports: [993]}\n", "amqproute.yaml")
        self.assertEqual(config.resolver.allow_ports, (993,))

    def test_named(self) -> None:
        """Under `peers` or `routes`, and not by a wildcard."""
        config = loads(
            'peers: {A.example: {}, "*.w.example": {}, "*": {}}\n'
            "routes: [{domain: b.example}, {domain: '*.v.example'}]\n",
            "amqproute.yaml",
        )
        for domain, is_named in (
            ("a.example", True), ("b.example", True), ("x.a.example", False),
            ("x.w.example", False), ("x.v.example", False), ("c.example", False),
        ):  # fmt: skip
            self.assertEqual(config.names(domain), is_named, domain)
