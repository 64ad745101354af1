# SPDX-License-Identifier: Apache-2.0
"""The interface of plug-ins for realms: what is refused, and what is guarded against."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.guarded_realm import (
    MOST_FAULTS,
    GuardedPasswordRealm,
    GuardedTokenRealm,
    RealmGuard,
)
from amqproute.auth.outside_realm import CredentialsRefused, RealmUnavailable
from amqproute.auth.realm_kinds import (
    INTERFACE,
    PASSWORDS,
    TOKENS_OF_ISSUER,
    fault_of_realm,
    fault_of_realm_kind,
    read_secret,
)
from amqproute.daemon.ldap_plugin import LDAP
from amqproute.daemon.oauth_plugin import OAUTH
from amqproute.wire.sasl_mechanisms import OutsideIdentity
from tests.auth.test_outside_log_ins import Directory, Issuer


def kind(**changes: object) -> object:
    """Return a kind of realms, with changes."""
    given: dict[str, object] = {
        "interface": INTERFACE,
        "verifies": PASSWORDS,
        "prepare": lambda settings: settings,
        "make": lambda prepared, surroundings: None,
    }
    return SimpleNamespace(**{**given, **changes})


class FaultTests(SynchronousTestCase):
    """What is no kind, and what is no realm."""

    def test_kinds(self) -> None:
        for sound in (kind(), kind(verifies=TOKENS_OF_ISSUER), LDAP, OAUTH):
            self.assertEqual(fault_of_realm_kind(sound), "")
        for wrong, words in (
            (object(), "it is no object with a number `interface`"),
            (SimpleNamespace, "it is no object with a number `interface`"),
            (kind(interface="1"), "it is no object with a number `interface`"),
            (kind(interface=True), "it is no object with a number `interface`"),
            (
                kind(interface=INTERFACE + 1),
                f"it is written for version {INTERFACE + 1} of the interface of realms, and this "
                f"broker has version {INTERFACE}",
            ),
            (kind(verifies="faces"), "its `verifies` is neither passwords nor tokens"),
            (kind(prepare=None), "its `prepare` does not take settings"),
            (kind(make=lambda prepared: None), "its `make` does not take prepared, surroundings"),
        ):
            self.assertEqual(fault_of_realm_kind(wrong), words)

    def test_realms(self) -> None:
        directory, issuer = Directory(), Issuer()
        self.assertEqual(fault_of_realm(directory, PASSWORDS), "")
        self.assertEqual(fault_of_realm(issuer, TOKENS_OF_ISSUER), "")
        self.assertEqual(
            fault_of_realm(issuer, PASSWORDS), "its `verify` does not take name, password"
        )
        self.assertEqual(fault_of_realm(directory, TOKENS_OF_ISSUER), "its `issuer` is no text")
        issuer.hint = {"scope": 1}  # type: ignore[dict-item]
        self.assertEqual(
            fault_of_realm(issuer, TOKENS_OF_ISSUER), "its `hint` is no mapping of texts"
        )
        self.assertEqual(fault_of_realm(None, PASSWORDS), "its `probe` does not take nothing")

    def test_secret(self) -> None:
        """The secret is the first line, and has to be there."""
        file = Path(self.mktemp())
        file.write_bytes("pässword\r\nmore\n".encode())
        self.assertEqual(read_secret(file), "pässword")
        for octets, words in (
            (b"", "the first line is empty; it has to hold the password"),
            (b"\nmore", "the first line is empty; it has to hold the password"),
            (b"\xff\n", "is not UTF-8"),
        ):
            file.write_bytes(octets)
            self.assertEqual(
                str(self.assertRaises(ValueError, read_secret, file)), f"{file}: {words}"
            )
        absent = Path(self.mktemp())
        words = f"{absent}: No such file or directory"
        self.assertEqual(str(self.assertRaises(ValueError, read_secret, absent)), words)


class GuardTests(SynchronousTestCase):
    """What a realm does wrong ends as unavailable, for the one who asks, in time."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.inner: Any = Directory()
        self.realm = GuardedPasswordRealm(self.inner, self.guard())

    def guard(self) -> RealmGuard:
        return RealmGuard("corp", "corp", 5.0, self.clock)

    def unavailable(self, asked: Deferred[OutsideIdentity]) -> str:
        return str(self.failureResultOf(asked, RealmUnavailable).value)

    def test_answers(self) -> None:
        """Right answers pass, with the name of the realm; so do both exceptions."""
        found = self.successResultOf(self.realm.verify("bob", "secret"))
        self.assertEqual(found, OutsideIdentity("bob", "corp", frozenset({"ops"})))
        self.failureResultOf(self.realm.verify("bob", "wrong"), CredentialsRefused)
        self.inner.is_down = True
        self.assertIn("connection refused", self.unavailable(self.realm.verify("bob", "secret")))
        self.assertEqual(self.successResultOf(self.realm.probe()), "down")
        self.assertIsNone(self.realm.recheck("bob"))
        self.inner.now = CredentialsRefused("gone")
        asked = self.realm.recheck("bob")
        assert asked is not None
        self.failureResultOf(asked, CredentialsRefused)
        self.realm.stop()
        self.assertTrue(self.inner.is_stopped)

    def test_deadline(self) -> None:
        """A question is cancelled at the deadline; a late answer does nothing."""
        cancelled: list[object] = []
        hanging: list[Deferred[Any]] = [Deferred(cancelled.append) for _ in range(2)]
        hanging.append(Deferred())
        self.inner.verify = lambda *_: hanging[2]
        self.inner.recheck = lambda _: hanging[1]
        self.inner.probe = lambda: hanging[0]
        verified, asked = self.realm.verify("bob", "secret"), self.realm.recheck("bob")
        probed = self.realm.probe()
        assert asked is not None
        self.clock.advance(4.9)
        self.assertNoResult(verified)
        self.clock.advance(0.2)
        self.assertEqual(self.unavailable(verified), "no answer within 5 s")
        self.assertEqual(self.unavailable(asked), "no answer within 5 s")
        self.assertEqual(self.successResultOf(probed), "no answer within 5 s")
        self.assertCountEqual(cancelled, hanging[:2])
        hanging[2].callback(OutsideIdentity("bob", ""))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_faults(self) -> None:
        """Exceptions and odd answers are logged with their tracebacks, a few of them."""
        odd: list[Any] = [
            None, True, "bob", OutsideIdentity("bob", "", expires=float("nan")),
            OutsideIdentity(1, ""), OutsideIdentity("bob", "", frozenset({1})),  # type: ignore[arg-type]
            OutsideIdentity("bob", "", account="x" * 2001), OutsideIdentity("bob", "", None),  # type: ignore[arg-type]
        ]  # fmt: skip
        for answer in odd:
            self.inner.verify = lambda *_, answer=answer: succeed(answer)
            said = self.unavailable(self.realm.verify("bob", "secret"))
            self.assertEqual(said, "the realm has failed: TypeError")
        self.inner.verify = lambda *_: fail(LookupError("no table"))
        said = self.unavailable(self.realm.verify("bob", "secret"))
        self.assertEqual(said, "the realm has failed: LookupError")
        self.assertEqual(len(self.flushLoggedErrors(TypeError)), MOST_FAULTS)

    def test_raised(self) -> None:
        """What raises instead of returning a Deferred is no different."""
        self.inner.verify = self.inner.recheck = self.inner.probe = self.inner.stop = raising
        self.assertIn("ZeroDivisionError", self.unavailable(self.realm.verify("bob", "secret")))
        asked = self.realm.recheck("bob")
        assert asked is not None
        self.assertIn("ZeroDivisionError", self.unavailable(asked))
        self.assertIn("ZeroDivisionError", self.successResultOf(self.realm.probe()))
        self.realm.stop()
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), MOST_FAULTS)

    def test_names(self) -> None:
        """A name that cannot be that of a user, and too many groups, are refused."""
        for answer in (
            OutsideIdentity("bob:x", ""),
            OutsideIdentity("bob", "", frozenset(map(str, range(1000)))),
        ):
            self.inner.verify = lambda *_, answer=answer: succeed(answer)
            self.failureResultOf(self.realm.verify("bob", "secret"), CredentialsRefused)

    def test_tokens(self) -> None:
        """Realms of tokens are guarded alike."""
        issuer: Any = Issuer()
        realm = GuardedTokenRealm(issuer, self.guard())
        self.assertEqual((realm.issuer, realm.hint), (issuer.issuer, issuer.hint))
        found = self.successResultOf(realm.verify(issuer.issue("carl", "ops")))
        self.assertEqual((found.name, found.realm, found.expires), ("carl", "corp", 1000.0))
        self.failureResultOf(realm.verify("x"), CredentialsRefused)
        issuer.verify = raising
        self.assertIn("ZeroDivisionError", self.unavailable(realm.verify("x")))
        self.assertEqual(self.successResultOf(realm.probe()), "")
        realm.stop()
        self.assertEqual(issuer.good, {})
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


def raising(*_: object) -> Any:
    raise ZeroDivisionError
