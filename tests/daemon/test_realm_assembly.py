# SPDX-License-Identifier: Apache-2.0
"""Outside realms made of the configuration: what a reload keeps, and what is missing."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.outside_realm import OutsideRealms
from amqproute.config.loader import loads
from amqproute.config.schema import Config
from amqproute.daemon.realm_assembly import (
    PLUGINS,
    RealmAssembly,
    missing_plugins,
    read_secret,
)
from amqproute.errors import ConfigError

ISSUERS = "issuers: {{a: {{issuer: 'https://a.example', audience: [a], leeway: {leeway}}}}}"
ABSENT = {name: EntryPoint(name, "absent_library:make", "amqproute.realms") for name in PLUGINS}


class AssemblyTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.secret = self.directory / "secret"
        self.secret.write_text("of the reader\n")
        self.realms = OutsideRealms()
        self.addCleanup(self.realms.stop)

    def config(self, *settings: str) -> Config:
        return loads(f"users: {{{', '.join(settings)}}}\n", self.directory / "a.yaml")

    def ldap(self, timeout: int = 5) -> str:
        return (
            f"ldap: {{servers: ['ldaps://a'], search-base: 'dc=a', bind-dn: 'cn=a', "
            f"bind-password-file: '{self.secret}', timeout: {timeout}}}"
        )

    def assembly(self, plugins: Any = PLUGINS) -> RealmAssembly:
        reactor: Any = MemoryReactorClock()
        return RealmAssembly(self.realms, reactor, lambda: 0.0, plugins)

    def test_reload(self) -> None:
        """A realm goes on if its settings and its secret are the same; others are made anew."""
        assembly = self.assembly()
        assembly.prepare(self.config(self.ldap(), ISSUERS.format(leeway=5)))()
        directory, issuer = self.realms.directory, self.realms.issuer("https://a.example")
        self.assertIsNotNone(directory)
        self.assertIsNotNone(issuer)
        assembly.prepare(self.config(self.ldap(), ISSUERS.format(leeway=7)))()
        self.assertIs(self.realms.directory, directory)
        self.assertIsNot(self.realms.issuer("https://a.example"), issuer)
        self.secret.write_text("another\n")
        assembly.prepare(self.config(self.ldap(), ISSUERS.format(leeway=7)))()
        self.assertIsNot(self.realms.directory, directory)
        assembly.prepare(self.config())()
        self.assertEqual((self.realms.directory, self.realms.has_issuers), (None, False))

    def test_prepare_changes_nothing(self) -> None:
        """A reload that another component refuses leaves the realms as they are."""
        assembly = self.assembly()
        assembly.prepare(self.config(self.ldap()))()
        directory = self.realms.directory
        assembly.prepare(self.config(self.ldap(7)))
        self.assertIs(self.realms.directory, directory)
        self.secret.unlink()
        self.assertRaises(ConfigError, assembly.prepare, self.config(self.ldap()))
        self.assertIs(self.realms.directory, directory)

    def test_missing_extra(self) -> None:
        """A library that is not installed is named, with the extra that brings it."""
        config = self.config(self.ldap(), ISSUERS.format(leeway=5))
        assembly = self.assembly(ABSENT)
        error = self.assertRaises(ConfigError, assembly.prepare, config)
        self.assertIn("pip install 'amqproute[ldap]'", str(error))
        found = missing_plugins(config, ABSENT)
        self.assertEqual([at for at, _ in found], [("users", "ldap"), ("users", "issuers")])
        self.assertIn("pip install 'amqproute[oauth]'", found[1][1])
        self.assertEqual(missing_plugins(config), [])
        self.assertEqual(missing_plugins(self.config(), ABSENT), [])

    def test_secret(self) -> None:
        """The secret is the first line, and has to be there."""
        self.secret.write_bytes("pässword\r\nmore\n".encode())
        self.assertEqual(read_secret(self.secret), "pässword")
        for octets in (b"", b"\nmore", b"\xff\n"):
            self.secret.write_bytes(octets)
            self.assertRaises(ConfigError, read_secret, self.secret)
        self.assertRaises(ConfigError, read_secret, self.directory / "absent")
