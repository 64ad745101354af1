# SPDX-License-Identifier: Apache-2.0
"""Settings become the components that find peers and verify them."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config import loads
from amqproute.config.config_diff import after_reload
from amqproute.daemon.peer_assembly import (
    make_contexts,
    make_resolver,
    make_targets,
    own_places,
    peer_policy,
    pinned_policies,
    trusts,
)
from amqproute.errors import ConfigError
from amqproute.net.peer_trust import TrustLevel
from amqproute.resolver.nameservers import Nameserver

PIN = "sha256:" + "ab" * 32


class FederationTests(SynchronousTestCase):
    def test_trusted_name_servers(self) -> None:
        """Loopback always, others where they are named."""
        config = loads("resolver: {trusted: [192.0.2.0/24, 'fd00::/8']}", "f")
        for host, expected in (
            ("127.0.0.53", True),
            ("::1", True),
            ("192.0.2.1", True),
            ("fd00::1", True),
            ("198.51.100.1", False),
            ("2001:db8::1", False),
        ):
            self.assertEqual(trusts(config)(Nameserver(host)), expected, host)

    def test_targets(self) -> None:
        """The rules are those of the configuration in force, and of this host."""
        config = loads("resolver: {allow-targets: [10.0.0.0/8], allow-ports: [993]}", "f")
        targets = make_targets(lambda: config)
        self.assertIsNone(targets().judge("10.0.0.1", 993, "beta.example"))
        self.assertIsNotNone(targets().judge("127.0.0.1", 5671, "beta.example"))
        self.assertIn(ip_address("127.0.0.1"), targets().own())
        config = loads("peers: {beta.example: {level: pkix}}", "f")
        self.assertIsNotNone(targets().judge("10.0.0.1", 993, "beta.example"))
        self.assertIsNone(targets().judge("10.0.0.1", 5671, "beta.example"))
        self.assertIsNotNone(targets().judge("10.0.0.1", 5671, "gamma.example"))

    def test_what_a_reload_changes(self) -> None:
        """Rules of targets change at once, and the rest of `resolver` does not."""
        one = loads("resolver: {timeout: 2, allow-targets: [10.0.0.0/8]}", "f")
        two = loads("resolver: {timeout: 2, deny-targets: [11.0.0.0/8], allow-ports: [1]}", "f")
        self.assertEqual(after_reload(one, two).resolver, two.resolver)
        three = loads("resolver: {timeout: 3, allow-targets: [10.0.0.0/8]}", "f")
        self.assertEqual(after_reload(one, three).resolver, one.resolver)

    def test_own_places(self) -> None:
        """Our addresses for peers: names with all ports, addresses with theirs; no unix socket."""
        config = loads(
            "container-id: broker.alpha.example\ndomains: [alpha.example]\n"
            "tls: {certificate: c, private-key: k}\nlisten:\n"
            "  - {endpoint: 'unix:/run/s', mechanisms: [EXTERNAL]}\n"
            "  - {endpoint: 'tcp:5671:interface=127.0.0.1', tls: implicit}\n"
            "  - {endpoint: 'tcp6:5672', tls: upgrade}\n",
            "f",
        )
        found = own_places(config)
        for place in (
            ("127.0.0.1", 5671),
            ("broker.alpha.example", 5671),
            ("alpha.example", 5672),
        ):
            self.assertIn(place, found)
        self.assertNotIn(("127.0.0.1", 5672), found)

    def test_policies(self) -> None:
        """Levels by exact name, wildcard and default; pins by name."""
        config = loads(
            f"peers: {{a.example: {{level: pin, pin: [{PIN!r}]}}, '*.example': {{level: dane}}}}",
            "f",
        )
        self.assertIs(peer_policy(config, "a.example").level, TrustLevel.PIN)
        self.assertIs(peer_policy(config, "b.example").level, TrustLevel.DANE)
        self.assertIs(peer_policy(config, "elsewhere.test").level, TrustLevel.DANE_OR_PKIX)
        self.assertEqual(list(pinned_policies(config)), ["a.example"])

    def test_dnssec_is_not_to_be_had(self) -> None:
        """A server that cannot be believed is not asked; the daemon knows at once."""
        for settings in (
            "{nameservers: [192.0.2.1]}",
            "{nameservers: [127.0.0.1], dnssec: 'off'}",
        ):
            config = loads(f"resolver: {settings}", "f")
            capable = make_resolver(config, Clock()).is_capable()
            self.assertFalse(self.successResultOf(capable))

    def test_anchors(self) -> None:
        """Anchors come from the file, or with the release; what is none is told with its line."""
        path = Path(self.mktemp())
        path.write_text(". IN DS 20326 8 2 " + "ab" * 32 + "\n")
        for settings in ("{validate: self}", f"{{validate: self, anchors: {path.absolute()}}}"):
            make_resolver(loads(f"resolver: {settings}", "f"), Clock())
        path.write_text("nonsense")
        config = loads(f"\nresolver:\n  validate: self\n  anchors: {path.absolute()}\n", "f")
        error = self.assertRaises(ConfigError, make_resolver, config, Clock())
        self.assertIn("f:4: resolver.anchors:", str(error))

    def test_without_certificate(self) -> None:
        """No certificate, no contexts."""
        self.assertIsNone(make_contexts(loads("", "f")))
