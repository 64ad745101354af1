# SPDX-License-Identifier: Apache-2.0
"""Outside realms made of the configuration: plug-ins, what a reload keeps, and what is missing."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.guarded_realm import GuardedPasswordRealm
from amqproute.auth.outside_realm import CredentialsRefused, OutsideRealms, RealmUnavailable
from amqproute.config.loader import loads
from amqproute.config.schema import Config
from amqproute.daemon.preflight import examine_files
from amqproute.daemon.realm_assembly import (
    OWN_KINDS,
    RealmAssembly,
    RealmKinds,
    RealmProblem,
    examine_realms,
)
from amqproute.errors import ConfigError
from amqproute.plugins import REALMS
from tests.auth.test_outside_log_ins import token_of
from tests.support.tiny_distribution import REALM_KINDS, install

ISSUERS = "issuers: {{a: {{issuer: 'https://a.example', audience: [a], leeway: {leeway}}}}}"
ABSENT = {name: EntryPoint(name, "absent_library:KIND", REALMS) for name in OWN_KINDS}
POINTS = {
    "staff": "tiny_acme_realms:STAFF",
    "guests": "tiny_acme_realms:GUESTS",
    "papers": "tiny_acme_realms:PAPERS",
    "later": "tiny_acme_realms:LATER",
    "bad": "tiny_acme_bad:BAD",
}
MODULES = {"tiny_acme_realms": REALM_KINDS, "tiny_acme_bad": "raise ValueError('no license')\n"}


class AssemblyCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = Path(self.mktemp()).absolute()
        self.directory.mkdir()
        self.secret = self.directory / "secret"
        self.secret.write_text("of the reader\n")
        self.realms = OutsideRealms()
        self.reactor: Any = MemoryReactorClock()  # type: ignore[no-untyped-call]
        self.addCleanup(self.realms.stop)

    def config(self, *settings: str, environ: dict[str, str] | None = None) -> Config:
        text = f"users: {{{', '.join(settings)}}}\n"
        return loads(text, self.directory / "a.yaml", environ or {})

    def ldap(self, timeout: int = 5) -> str:
        return (
            f"ldap: {{servers: ['ldaps://a'], search-base: 'dc=a', bind-dn: 'cn=a', "
            f"bind-password-file: '{self.secret}', timeout: {timeout}}}"
        )

    def assembly(self, kinds: RealmKinds | None = None) -> RealmAssembly:
        return RealmAssembly(self.realms, self.reactor, lambda: 0.0, kinds)


class AssemblyTests(AssemblyCase):
    """The broker's own kinds."""

    def test_reload(self) -> None:
        """A realm goes on if its settings and its secret are the same; others are made anew."""
        assembly = self.assembly()
        assembly.prepare(self.config(self.ldap(), ISSUERS.format(leeway=5)))()
        directory = self.realms.password_realm("ldap")
        issuer = self.realms.issuer("https://a.example")
        self.assertIsNotNone(directory)
        self.assertIsNotNone(issuer)
        assembly.prepare(self.config(self.ldap(), ISSUERS.format(leeway=7)))()
        self.assertIs(self.realms.password_realm("ldap"), directory)
        self.assertIsNot(self.realms.issuer("https://a.example"), issuer)
        self.secret.write_text("another\n")
        assembly.prepare(self.config(self.ldap(), ISSUERS.format(leeway=7)))()
        self.assertIsNot(self.realms.password_realm("ldap"), directory)
        assembly.prepare(self.config())()
        self.assertEqual((self.realms.names, self.realms.has_issuers), ((), False))

    def test_prepare_changes_nothing(self) -> None:
        """A reload that another component refuses leaves the realms as they are."""
        assembly = self.assembly()
        assembly.prepare(self.config(self.ldap()))()
        directory = self.realms.password_realm("ldap")
        assembly.prepare(self.config(self.ldap(7)))
        self.assertIs(self.realms.password_realm("ldap"), directory)
        self.secret.unlink()
        error = self.assertRaises(ConfigError, assembly.prepare, self.config(self.ldap()))
        self.assertEqual(
            error.problems,
            [
                f"{self.directory}/a.yaml:1: users.ldap.bind-password-file: {self.secret}: No such "
                "file or directory"
            ],
        )
        self.assertIs(self.realms.password_realm("ldap"), directory)

    def test_missing_extra(self) -> None:
        """A library that is not installed is named, with the extra that brings it."""
        config = self.config(self.ldap(), ISSUERS.format(leeway=5))
        absent = RealmKinds(ABSENT, list)
        error = self.assertRaises(ConfigError, self.assembly(absent).prepare, config)
        self.assertIn("pip install 'amqproute[ldap]'", str(error))
        found, _ = examine_realms(config, absent)
        self.assertEqual([at for at, _ in found], [("users", "ldap"), ("users", "issuers")])
        self.assertIn("pip install 'amqproute[oauth]'", found[1][1])
        self.assertEqual(examine_realms(config, RealmKinds()), ([], []))
        self.assertEqual(examine_realms(self.config(), absent), ([], []))


class PluginTests(AssemblyCase):
    """Kinds of another distribution, which is really installed."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(install(self.directory / "site", "tiny_acme", MODULES, {REALMS: POINTS}))

    def realm(self, **settings: str) -> str:
        given = {"kind": "staff", **settings}
        return f"realms: {{corp: {{{', '.join(f'{key}: {each}' for key, each in given.items())}}}}}"

    def problems(self, *settings: str) -> list[str]:
        """Return why a start is refused; `check` has the same lines."""
        config = self.config(*settings)
        error = self.assertRaises(ConfigError, self.assembly().prepare, config)
        self.assertEqual(examine_files(config).problems, error.problems)
        return [each.removeprefix(f"{self.directory}/a.yaml:1: ") for each in error.problems]

    def test_made(self) -> None:
        """A realm of a plug-in verifies, has its deadline, and comes before the directory."""
        realm = self.realm(
            users="'svc-*'", deadline="3s", settings="{passwords: {svc-a: secret, bob: secret}}"
        )
        config = self.config(realm, self.ldap())
        self.assertEqual(examine_files(config).problems, [])
        self.assembly().prepare(config)()
        self.assertEqual(self.realms.names, ("corp", "ldap"))
        self.assertEqual(
            (self.realms.of_user("svc-a"), self.realms.of_user("bob")), ("corp", "ldap")
        )
        corp = self.realms.password_realm("corp")
        assert corp is not None
        found = self.successResultOf(corp.verify("svc-a", "secret"))
        self.assertEqual((found.name, found.realm, found.groups), ("svc-a", "corp", {"staff"}))
        self.failureResultOf(corp.verify("svc-a", "wrong"), CredentialsRefused)
        hanging = corp.verify("svc-slow", "x")
        self.reactor.advance(2.9)
        self.assertNoResult(hanging)
        self.reactor.advance(0.2)
        error = self.failureResultOf(hanging, RealmUnavailable).value
        self.assertEqual(str(error), "no answer within 3 s")
        for name in ("svc-broken", "svc-odd"):
            self.failureResultOf(corp.verify(name, "x"), RealmUnavailable)
        self.assertEqual(len(self.flushLoggedErrors(LookupError, TypeError)), 2)

    def test_tokens(self) -> None:
        """An issuer of a plug-in is one among the issuers; two cannot have one name."""
        papers = self.realm(kind="papers", settings="{issuer: 'https://p.example'}")
        self.assembly().prepare(self.config(papers, "token-passwords: true"))()
        self.assertTrue(self.realms.takes_tokens_as_passwords)
        issuer = self.realms.issuer("https://p.example")
        assert issuer is not None
        found = self.successResultOf(issuer.verify(token_of("x", "https://p.example")))
        self.assertEqual((found.name, found.realm), ("c2ln", "oauth"))
        probe = self.realms.probes()["oauth https://p.example"]
        self.assertEqual(self.successResultOf(probe()), "no papers today")
        same = self.realm(kind="papers", settings="{issuer: 'https://a.example'}")
        config = self.config(same, ISSUERS.format(leeway=5))
        error = self.assertRaises(ConfigError, self.assembly().prepare, config)
        self.assertIn("users.issuers.a: another realm has the issuer", error.problems[0])
        named = self.realm(kind="papers", users="'svc-*'", settings="{issuer: 'https://p.example'}")
        (said,) = self.problems(named)
        self.assertIn("users.realms.corp.users: the kind papers verifies tokens", said)

    def test_refused(self) -> None:
        """Each reason has a line with its place, at the start and by `check`."""
        plugin = "plug-in {0} (amqproute.realms: {1}, tiny_acme 1.0)"
        later, bad = (plugin.format(name, POINTS[name]) for name in ("later", "bad"))
        at = "users.realms.corp"
        for settings, words in (
            (
                {"kind": "stuff"},
                f"{at}.kind: no kind of realms 'stuff' is installed (there are: bad, guests, "
                "later, papers, staff); install the distribution that has it",
            ),
            (
                {"kind": "later"},
                f"{at}.kind: {later} cannot be used: it is written for version 2 of the interface "
                "of realms, and this broker has version 1",
            ),
            (
                {"kind": "bad"},
                f"{at}.kind: {bad} cannot be used: it cannot be imported: ValueError: no license",
            ),
            (
                {"kind": "ldap"},
                f"{at}.kind: the broker's own kind ldap has its settings in users.ldap",
            ),
            ({"settings": "{passwords: null}"}, f"{at}.settings.passwords: is no text"),
            (
                {"settings": "{fail: true}"},
                f"{at}.settings: the kind staff has failed: LookupError: the check fails",
            ),
        ):
            self.assertEqual(self.problems(self.realm(**settings)), [words])
        config = self.config(self.realm(settings="{incomplete: true}"))
        error = self.assertRaises(ConfigError, self.assembly().prepare, config)
        self.assertIn(
            f"{at}.kind: the kind staff has failed: its `probe` does not take nothing",
            error.problems[0],
        )

    def test_never_asked(self) -> None:
        """A realm behind one that has all users is named by `check`; issuers are none of these."""
        papers = "papers: {kind: papers, settings: {issuer: 'https://p.example'}}"
        two = f"realms: {{all: {{kind: staff}}, {papers}, more: {{kind: staff, users: 'a*'}}}}"
        found = examine_files(self.config(two, self.ldap()))
        at = f"{self.directory}/a.yaml:1: users."
        words = (
            "is never asked: the realm all before it has the users of all names; give that one a "
            'pattern, as in users: "svc-*"'
        )
        never = [each for each in found.warnings if "never asked" in each]
        self.assertEqual(never, [f"{at}realms.more.kind: {words}", f"{at}ldap: {words}"])
        some = self.config(self.realm(users="'a*'"), self.ldap())
        self.assertNotIn("never asked", str(examine_files(some).warnings))

    def test_all_at_once(self) -> None:
        """All problems are named together."""
        both = "realms: {a: {kind: stuff}, b: {kind: later}}"
        self.assertEqual(len(self.problems(both)), 2)

    def test_reload(self) -> None:
        """A realm goes on while what its plug-in prepares is equal; else the old one is stopped."""
        assembly = self.assembly()
        assembly.prepare(self.config(self.realm(settings="{a: 1}")))()
        before = self.realms.password_realm("corp")
        assembly.prepare(self.config(self.realm(settings="{a: 1}", users="'x*'")))()
        self.assertIs(self.realms.password_realm("corp"), before)
        self.assertIsNone(self.realms.of_user("bob"))
        for change in ({"settings": "{a: 2}"}, {"deadline": "3"}, {"kind": "guests"}):
            before = self.realms.password_realm("corp")
            assembly.prepare(self.config(self.realm(**change)))()
            after = self.realms.password_realm("corp")
            self.assertIsNot(after, before, str(change))
            assert isinstance(before, GuardedPasswordRealm)
            inner: Any = before.inner
            self.assertTrue(inner.is_stopped)

    def test_installed_meanwhile(self) -> None:
        """A reload finds a kind that was installed after the start."""
        assembly = self.assembly()
        config = self.config(self.realm(kind="new"))
        self.assertRaises(ConfigError, assembly.prepare, config)
        points = {REALMS: {"new": "tiny_acme_realms:STAFF"}}
        self.addCleanup(install(self.directory / "more", "tiny_more", {}, points))
        assembly.prepare(config)()
        self.assertEqual(self.realms.names, ("corp",))

    def test_secrets(self) -> None:
        """Values out of the environment and names of credentials are resolved, and not shown."""
        there = self.directory / "credentials"
        there.mkdir()
        settings = "{passwords: {bob: '${HUSH}'}, files: ['%d/ca', {key: '%d/key'}]}"
        environ = {"HUSH": "very-hush", "CREDENTIALS_DIRECTORY": str(there)}
        config = self.config(self.realm(settings=settings), environ=environ)
        given: Any = config.users.realms["corp"].settings
        self.assertEqual(given["files"], [f"{there}/ca", {"key": f"{there}/key"}])
        self.assertEqual(given["passwords"], {"bob": "very-hush"})
        assembly = self.assembly()
        assembly.prepare(config)()
        self.assertNotIn("very-hush", repr(assembly._made))
        outside = self.config(self.realm(settings="{file: '%d/ca', passwords: null}"))
        found = examine_files(outside)
        self.assertEqual(len(found.unresolved), 1)
        self.assertIn("users.realms.corp.settings.file: %d/ca is a credential", found.unresolved[0])
        hidden = self.config(self.realm(settings="{fail: '${HUSH}'}"), environ=environ)
        self.patch(RealmKinds, "prepare", refusing)
        error = self.assertRaises(ConfigError, assembly.prepare, hidden)
        self.assertIn("cannot use ${HUSH}", str(error))


def refusing(_: object, wanted: Any) -> Any:
    raise RealmProblem((wanted.at, f"cannot use {wanted.settings['fail']}"))
