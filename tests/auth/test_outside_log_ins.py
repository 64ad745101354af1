# SPDX-License-Identifier: Apache-2.0
"""Log-ins that outside realms verify: which realm, its queue, its failures."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.log_in_queue import SLOTS
from amqproute.auth.outside_realm import (
    MOST_GROUPS,
    CredentialsRefused,
    NamedRealm,
    OutsideRealms,
    RealmUnavailable,
    checked_groups,
)
from amqproute.auth.password_log_in import PasswordLogIn
from amqproute.auth.policy import AccessPolicy, Rule, Verb
from amqproute.auth.realm import MOST_OUTSIDE, Authenticator, LogInTransport, Verifier
from amqproute.auth.users import UserFile
from amqproute.values import Principal
from amqproute.wire.sasl_mechanisms import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    XOAUTH2,
    Credentials,
    MechanismChallenge,
    MechanismDone,
    MechanismFailed,
    OutsideIdentity,
    SaslStep,
    ScramSecret,
    Verification,
    VerifyCredentials,
)

SECRET = ScramSecret.derive("pencil", salt=b"s" * 16, iterations=4096)
TLS = LogInTransport(address="192.0.2.1", tls=True)
ISSUER = "https://login.test"


def token_of(sub: str, issuer: str = ISSUER) -> str:
    """Return what looks like a token; nothing of it is verified here."""
    parts = ({"alg": "ES256"}, {"iss": issuer, "sub": sub})
    texts = [
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts
    ]
    return ".".join([*texts, "c2ln"])


class Directory:
    """A directory with a user, which may be slow or down."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waiting: list[Deferred[OutsideIdentity]] | None = None
        self.is_down = False
        self.is_stopped = False
        self.name = "bob"
        self.account = "the account of bob"
        self.rechecked: list[str] = []
        self.now: OutsideIdentity | Exception | None = None
        """The answer to `recheck`; None if it cannot tell."""

    def verify(self, name: str, password: str) -> Deferred[OutsideIdentity]:
        self.asked.append(name)
        if self.waiting is not None:
            self.waiting.append(Deferred())
            return self.waiting[-1]
        if self.is_down:
            return fail(RealmUnavailable("ldaps://a: connection refused"))
        if password != "secret":
            return fail(CredentialsRefused("the directory refuses it"))
        groups = frozenset({"ops"})
        return succeed(OutsideIdentity(self.name, "ldap", groups, account=self.account))

    def recheck(self, account: str) -> Deferred[OutsideIdentity] | None:
        self.rechecked.append(account)
        if self.now is None:
            return None
        if isinstance(self.now, Exception):
            return fail(self.now)
        return succeed(self.now)

    def probe(self) -> Deferred[str]:
        return succeed("down" if self.is_down else "")

    def stop(self) -> None:
        self.is_stopped = True


class Issuer:
    """An issuer of tokens, which knows them by heart."""

    issuer = ISSUER

    def __init__(self) -> None:
        self.good: dict[str, OutsideIdentity] = {}
        self.hint = {"openid-configuration": f"{ISSUER}/.well-known/openid-configuration"}
        self.is_down = False

    def issue(self, sub: str, *groups: str, expires: float = 1000.0) -> str:
        token = token_of(sub)
        self.good[token] = OutsideIdentity(sub, "oauth", frozenset(groups), expires)
        return token

    def verify(self, token: str) -> Deferred[OutsideIdentity]:
        if self.is_down:
            return fail(RealmUnavailable("no keys"))
        return maybeDeferred(self._find, token)

    def _find(self, token: str) -> OutsideIdentity:
        if token not in self.good:
            raise CredentialsRefused("the signature of the token is wrong")
        return self.good[token]

    def probe(self) -> Deferred[str]:
        return succeed("")

    def stop(self) -> None:
        self.good.clear()


class OutsideCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.users = UserFile(Path("users.yaml"), {"ann": SECRET})
        self.realms = OutsideRealms()
        self.directory, self.issuer = Directory(), Issuer()
        self.realms.adopt([NamedRealm("ldap", self.directory)], [self.issuer], True)
        self.verifier = Verifier(
            self.clock, lambda function, *given: succeed(function(*given)), 8.0, self.realms
        )
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)
        self.addCleanup(self.verifier.stop)

    def observe(self, event: LogEvent) -> None:
        if "log-in" in (event.get("log_format") or ""):
            self.lines.append(formatEvent(event))

    def authenticator(self, plain_without_tls: bool = False) -> Authenticator:
        return Authenticator(
            MECHANISMS,
            users=self.users,
            verifier=self.verifier,
            login_key=b"k" * 32,
            plain_without_tls=plain_without_tls,
        )

    def verify(
        self, step: VerifyCredentials, facts: LogInTransport = TLS
    ) -> Deferred[Verification]:
        return self.verifier.verify(step, facts, self.users)

    def settle(self, verified: Deferred[Verification]) -> Verification:
        """Let time pass until there is an answer."""
        for _ in range(400):
            if verified.called:
                break
            self.clock.advance(0.05)
        return self.successResultOf(verified)

    def log_in(self, mechanism: str, *responses: bytes) -> SaslStep:
        """Run one exchange; the last step of it."""
        authenticator = self.authenticator()
        server = authenticator.begin(mechanism, TLS)
        step: SaslStep = MechanismChallenge(b"")
        for response in responses:
            step = server.step(response)
            if isinstance(step, VerifyCredentials):
                step = server.resolve(self.settle(authenticator.verify(step, TLS)))
        return step


class RealmOfTests(OutsideCase):
    """Which realm decides."""

    def test_users_of_the_file(self) -> None:
        """They are verified by the file, even if the directory knows such a user."""
        self.directory.name = "ann"
        self.assertIs(self.settle(self.verify(VerifyCredentials("ann", "pencil"))), True)
        self.assertIs(self.settle(self.verify(VerifyCredentials("ann", "secret"))), False)
        self.assertEqual(self.directory.asked, [])

    def test_others(self) -> None:
        found = self.settle(self.verify(VerifyCredentials("bob", "secret")))
        self.assertEqual(found, OutsideIdentity("bob", "ldap", frozenset({"ops"})))
        self.assertEqual(self.verifier.counts["ldap", "accepted"], 1)

    def test_nobody_becomes_a_user_of_the_file(self) -> None:
        """A directory or issuer that names a user of the file is refused."""
        self.directory.name = "ann"
        self.assertIs(self.settle(self.verify(VerifyCredentials("ANN", "secret"))), False)
        step = VerifyCredentials("", self.issuer.issue("ann"), mechanism=OAUTHBEARER)
        self.assertIs(self.settle(self.verify(step)), False)
        self.assertIn("is a user of the users file", " ".join(self.lines))

    def test_several(self) -> None:
        """The first realm decides whose users have such names, and no other one is asked."""
        machines, second = Directory(), Directory()
        machines.name = "svc-a"
        named = [
            NamedRealm("machines", machines, "svc-*"),
            NamedRealm("second", second, "*-a"),
            NamedRealm("ldap", self.directory),
        ]
        self.realms.adopt(named, [], False)
        for name, realm in (("svc-a", machines), ("x-a", second), ("bob", self.directory)):
            self.settle(self.verify(VerifyCredentials(name, "wrong")))
            self.assertEqual(realm.asked, [name])
        self.assertIsInstance(
            self.settle(self.verify(VerifyCredentials("svc-a", "secret"))), OutsideIdentity
        )
        self.assertEqual(self.verifier.counts["machines", "accepted"], 1)
        self.assertEqual(self.verifier.counts["second", "crowded"], 0)
        self.assertEqual(self.realms.names, ("machines", "second", "ldap"))
        self.assertTrue(self.realms.has("second"))
        self.assertFalse(self.realms.has("third"))

    def test_names_of_another_realm(self) -> None:
        """A realm that answers with the name of another one's user is refused."""
        named = [NamedRealm("machines", Directory(), "svc-*"), NamedRealm("ldap", self.directory)]
        self.realms.adopt(named, [], False)
        self.directory.name = "svc-a"
        self.assertIs(self.settle(self.verify(VerifyCredentials("SVC-A", "secret"))), False)
        self.assertIn("'svc-a' is a user of the realm machines", self.lines[0])

    def test_queues(self) -> None:
        """A realm that hangs delays the users of no other one."""
        slow = Directory()
        slow.waiting = []
        named = [NamedRealm("slow", slow, "slow-*"), NamedRealm("ldap", self.directory)]
        self.realms.adopt(named, [], False)
        for number in range(100):
            facts = LogInTransport(f"192.0.2.{number}", tls=True)
            self.verify(VerifyCredentials(f"slow-{number}", "x"), facts)
        self.assertEqual(len(slow.waiting), MOST_OUTSIDE)
        found = self.verify(VerifyCredentials("bob", "secret"))
        self.assertIsInstance(self.successResultOf(found), OutsideIdentity)

    def test_token_as_password(self) -> None:
        """It never reaches the directory, and is a password like others where that is off."""
        token = self.issuer.issue("carl")
        found = self.settle(self.verify(VerifyCredentials("whoever", token)))
        self.assertEqual(found, self.issuer.good[token])
        self.assertEqual(self.directory.asked, [])
        self.realms.adopt([NamedRealm("ldap", self.directory)], [self.issuer], False)
        self.assertIs(self.settle(self.verify(VerifyCredentials("whoever", token))), False)

    def test_unknown_issuer(self) -> None:
        step = VerifyCredentials("", token_of("carl", "https://x.test"), mechanism=OAUTHBEARER)
        self.assertIs(self.settle(self.verify(step)), False)
        self.assertIn("'https://x.test' are not taken", self.lines[0])
        self.assertEqual(self.verifier.counts["oauth", "refused"], 1)

    def test_adopt(self) -> None:
        """A realm that is not used any more is stopped, others are not."""
        other = Directory()
        self.realms.adopt([NamedRealm("ldap", other)], [self.issuer], False)
        self.assertEqual((self.directory.is_stopped, other.is_stopped), (True, False))
        self.assertIs(self.realms.issuer(ISSUER), self.issuer)
        self.assertEqual(set(self.realms.probes()), {"ldap", f"oauth {ISSUER}"})

    def test_too_many_groups(self) -> None:
        """A user of more groups than are looked at is refused: a rule might name a lost one."""
        names = [str(each) for each in range(MOST_GROUPS + 1)]
        self.assertRaises(CredentialsRefused, checked_groups, names)
        self.assertEqual(checked_groups(["a\n", "", "b" * 300, "c"], "x:"), {"x:c"})


class QueueTests(OutsideCase):
    """Log-ins outside do not delay others."""

    def test_slow_directory(self) -> None:
        """Users of the file and tokens are verified while the directory hangs, as many as come."""
        self.directory.waiting = []
        hanging = [
            self.verify(VerifyCredentials(f"u{number}", "x"), LogInTransport(f"192.0.2.{number}"))
            for number in range(100)
        ]
        self.assertEqual(len(self.directory.waiting), MOST_OUTSIDE)
        same = [self.verify(VerifyCredentials(f"v{each}", "x")) for each in range(SLOTS + 3)]
        found = self.verify(VerifyCredentials("ann", "pencil"))
        self.assertIs(self.successResultOf(found), True)
        step = VerifyCredentials("", self.issuer.issue("carl"), mechanism=OAUTHBEARER)
        self.assertIsInstance(self.successResultOf(self.verify(step)), OutsideIdentity)
        self.assertFalse(any(each.called for each in (*hanging, *same)))
        while self.directory.waiting:
            self.directory.waiting.pop().errback(RealmUnavailable("no answer"))
        self.assertTrue(all(self.successResultOf(each) is None for each in hanging))

    def test_down_is_no_wrong_password(self) -> None:
        """It has its own line, within a limit, does not count as a failure, and ends as such."""
        self.directory.is_down = True
        for _ in range(20):
            self.assertIsNone(self.successResultOf(self.verify(VerifyCredentials("bob", "secret"))))
        self.assertEqual(len(self.lines), 3)
        self.assertIn(
            'log-in from 192.0.2.1, user "bob", cannot be verified: ldap: ldaps://a: connection '
            "refused",
            self.lines[0],
        )
        self.assertEqual(self.verifier.counts["ldap", "unavailable"], 20)
        step = self.log_in(PLAIN, b"\0bob\0secret")
        self.assertIsInstance(step, MechanismFailed)
        assert isinstance(step, MechanismFailed)
        self.assertTrue(step.is_temporary)

    def test_failures_count_together(self) -> None:
        """A guesser is as slow at all realms as at one."""
        self.settle(self.verify(VerifyCredentials("ann", "wrong")))
        begun = self.clock.seconds()
        self.settle(self.verify(VerifyCredentials("bob", "wrong")))
        self.assertGreaterEqual(self.clock.seconds() - begun, 1.9)

    def test_reload_takes_the_directory(self) -> None:
        """A log-in that waits is refused when there is no directory any more."""
        self.directory.waiting = []
        for each in range(SLOTS):
            self.verify(VerifyCredentials(f"u{each}", "x"))
        last = self.verify(VerifyCredentials("bob", "secret"))
        self.realms.adopt([], [], False)
        while self.directory.waiting:
            self.directory.waiting.pop().errback(RealmUnavailable("stopped"))
        self.assertIs(self.settle(last), False)


class MechanismTests(OutsideCase):
    """OAUTHBEARER (RFC 7628) and XOAUTH2, by the octets of RFC 7628 §4."""

    def test_offered(self) -> None:
        """Only with an issuer, and only where nobody can listen."""
        clear = LogInTransport(address="192.0.2.1")
        self.assertIn(OAUTHBEARER, self.authenticator().offers(TLS))
        self.assertNotIn(OAUTHBEARER, self.authenticator().offers(clear))
        self.assertIn(XOAUTH2, self.authenticator(plain_without_tls=True).offers(clear))
        self.realms.adopt([], [], False)
        self.assertNotIn(OAUTHBEARER, self.authenticator().offers(TLS))

    def test_taken(self) -> None:
        token = self.issuer.issue("carl", "ops").encode()
        for mechanism, response in (
            (OAUTHBEARER, b"n,,\1auth=Bearer " + token + b"\1\1"),
            (OAUTHBEARER, b"n,a=carl,\1host=a.test\1port=5671\1auth=bearer " + token + b"\1\1"),
            (XOAUTH2, b"user=carl\1auth=Bearer " + token + b"\1\1"),
            (XOAUTH2, b"user=\1auth=Bearer " + token + b"\1\1"),
            (PLAIN, b"\0\0" + token),
            (PLAIN, b"\0whoever\0" + token),
        ):
            step = self.log_in(mechanism, response)
            self.assertIsInstance(step, MechanismDone, response)
            assert isinstance(step, MechanismDone)
            principal = self.authenticator().principal(step.credentials)
            self.assertEqual((str(principal), principal.groups), ("user:carl", {"ops"}))

    def test_refused(self) -> None:
        """A JSON text says so, and after the client's dummy response the exchange has failed."""
        token = token_of("mallory").encode()
        for mechanism, response, dummy, status in (
            (OAUTHBEARER, b"n,,\1auth=Bearer " + token + b"\1\1", b"\1", "invalid_token"),
            (XOAUTH2, b"user=x\1auth=Bearer " + token + b"\1\1", b"", "401"),
        ):
            step = self.log_in(mechanism, response)
            assert isinstance(step, MechanismChallenge)
            self.assertLess(len(step.data), 450)
            said = json.loads(step.data)
            self.assertEqual(said["status"], status)
            self.assertEqual(
                said["openid-configuration"], f"{ISSUER}/.well-known/openid-configuration"
            )
            self.assertIsInstance(self.log_in(mechanism, response, dummy), MechanismFailed)
        self.assertIn('OAUTHBEARER, user "": "the signature of the token is wrong"', self.lines[0])

    def test_no_token_yet(self) -> None:
        """A client may ask where tokens come from (RFC 7628 §4.3); that is no failed log-in."""
        step = self.log_in(OAUTHBEARER, b"n,,\1auth=\1\1")
        assert isinstance(step, MechanismChallenge)
        self.assertIn("openid-configuration", json.loads(step.data))
        self.assertEqual(self.lines, [])

    def test_another_user(self) -> None:
        """A token is good for its own user only."""
        token = self.issuer.issue("carl").encode()
        step = self.log_in(OAUTHBEARER, b"n,a=bob,\1auth=Bearer " + token + b"\1\1")
        self.assertIsInstance(step, MechanismChallenge)

    def test_malformed(self) -> None:
        token = self.issuer.issue("carl").encode()
        for mechanism, response in (
            (OAUTHBEARER, b""),
            (OAUTHBEARER, b"n,,\1auth=Bearer " + token),
            (OAUTHBEARER, b"p=tls-unique,,\1auth=Bearer " + token + b"\1\1"),
            (OAUTHBEARER, b"n,b=carl,\1auth=Bearer " + token + b"\1\1"),
            (OAUTHBEARER, b"n,,\1auth=Basic abc\1\1"),
            (OAUTHBEARER, b"n,,\1auth=Bearer \xff\1\1"),
            (OAUTHBEARER, b"n,,\1auth=Bearer " + b"a" * 7600 + b"\1\1"),
            (OAUTHBEARER, b"n,,\1auth=Bearer " + b"a" * 9000 + b"\1\1"),
            (XOAUTH2, b"user=" + b"a" * 300 + b"\1auth=Bearer " + token + b"\1\1"),
        ):
            self.assertIsInstance(self.log_in(mechanism, response), MechanismFailed, response)

    def test_unavailable(self) -> None:
        self.issuer.is_down = True
        token = token_of("carl").encode()
        step = self.log_in(OAUTHBEARER, b"n,,\1auth=Bearer " + token + b"\1\1")
        assert isinstance(step, MechanismFailed)
        self.assertTrue(step.is_temporary)

    def test_new_secrets(self) -> None:
        """A token replaces one of the same user and realm, and nothing else does."""
        first, other = self.issuer.issue("carl", expires=5), self.issuer.issue("dora")
        newer = self.issuer.good[first]
        credentials = Credentials(PLAIN, "carl", outside=newer)

        def replaced(secret: str, credentials: Credentials = credentials) -> Verification:
            verified = self.authenticator().verify_secret(credentials, secret.encode(), TLS)
            assert verified is not None
            return self.settle(verified)

        self.assertEqual(replaced(first), newer)
        for secret in (other, "pencil", "", token_of("mallory"), "a" * 8000):
            self.assertIs(replaced(secret), False, secret)
        self.assertIs(replaced(first, Credentials(PLAIN, "ann")), False)
        of_directory = Credentials(PLAIN, "bob", outside=OutsideIdentity("bob", "ldap"))
        self.assertIsInstance(replaced("secret", of_directory), OutsideIdentity)
        self.assertIs(replaced(self.issuer.issue("bob"), of_directory), False)


class RightsTests(OutsideCase):
    def test_groups(self) -> None:
        """A rule about a group is one about each user in it; answers are not mixed up."""
        policy = AccessPolicy(
            [
                Rule.of(who="group:banned*", node="*", deny=["publish"]),
                Rule.of(who="group:ops", node="*", allow=["publish"]),
            ]
        )
        for groups, answer in (((), False), (("ops",), True), (("ops", "banned-1"), False)):
            user = Principal("user", "bob", groups=frozenset(groups), realm="ldap")
            self.assertIs(policy.allows(user, Verb.PUBLISH, "q"), answer, groups)
            self.assertIs(policy.allows(user, Verb.PUBLISH, "q"), answer, groups)
        self.assertEqual(Principal("user", "bob"), Principal("user", "bob", realm="ldap"))
        self.assertFalse(policy.allows(Principal("user", "ops"), Verb.PUBLISH, "q"))

    def test_http(self) -> None:
        """Basic and Bearer lead to the same users."""
        log_in = PasswordLogIn(self.verifier, self.users, self.clock.seconds)
        bob = self.successResultOf(log_in.principal("bob", "secret", TLS))
        assert isinstance(bob, Principal)
        self.assertEqual((str(bob), bob.realm, bob.groups), ("user:bob", "ldap", {"ops"}))
        found = self.successResultOf(log_in.bearer(self.issuer.issue("carl"), TLS))
        self.assertEqual(found, (Principal("user", "carl"), 1000.0))
        wrong = log_in.bearer(token_of("mallory"), TLS)
        self.clock.advance(8)
        self.assertIsNone(self.successResultOf(wrong))
        self.issuer.is_down = True
        self.assertIs(self.successResultOf(log_in.bearer(token_of("dora"), TLS)), False)
        self.assertTrue(log_in.is_known(bob))
        self.assertFalse(log_in.is_known(Principal("user", "ann", realm="ldap")))
        self.assertFalse(log_in.is_known(Principal("user", "bob")))
        self.realms.adopt([], [], False)
        self.assertFalse(log_in.is_known(bob))
        self.assertIsNone(self.successResultOf(log_in.bearer(token_of("dora"), TLS)))
