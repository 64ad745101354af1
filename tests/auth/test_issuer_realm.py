# SPDX-License-Identifier: Apache-2.0
"""Tokens of an issuer: which are good, whose they are, and by which keys they are verified."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from joserfc.jwk import ECKey, OctKey, RSAKey
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.issuer_keys import (
    LEAST_SECONDS,
    REFRESH_SECONDS,
    STALE_SECONDS,
    IssuerKeys,
    is_safe_url,
)
from amqproute.auth.issuer_realm import MOST_REMEMBERED, IssuerRealm, IssuerTerms
from amqproute.auth.outside_realm import (
    MOST_GROUPS,
    CredentialsRefused,
    RealmSurroundings,
    RealmUnavailable,
)
from amqproute.auth.token_text import issuer_of
from amqproute.wire.sasl_mechanisms import OutsideIdentity
from tests.support.issuer import TokenIssuer

NOW = 1_800_000_000.0


class IssuerCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.issuer = TokenIssuer()
        self.realm = self.make()

    def make(self, read_file: Callable[[], bytes] | None = None, **changes: Any) -> IssuerRealm:
        surroundings = RealmSurroundings(
            "oauth test",
            self.clock,
            self.now,
            self.issuer.fetch,
            lambda count: b"r" * count,
            MemoryReactorClock(),  # type: ignore[no-untyped-call]
        )
        given = {"issuer": self.issuer.url, "audience": ("amqproute",), "algorithms": ("ES256",)}
        terms = IssuerTerms(**{**given, **changes})
        return IssuerRealm(
            terms, IssuerKeys(self.issuer.url, surroundings, read_file), surroundings
        )

    def now(self) -> float:
        return NOW + self.clock.seconds()

    def token(self, **claims: Any) -> str:
        return self.issuer.token({"exp": self.now() + 300, **claims})

    def taken(self, token: str) -> OutsideIdentity:
        return self.successResultOf(self.realm.verify(token))

    def refused(self, token: str, words: str) -> None:
        """Fail unless a token is refused for this reason."""
        error = self.failureResultOf(self.realm.verify(token), CredentialsRefused).value
        self.assertIn(words, str(error))


class ClaimTests(IssuerCase):
    """The claims of tokens (RFC 7519 §4.1, RFC 9068 §4)."""

    def test_taken(self) -> None:
        """Name, groups and end come from the token."""
        found = self.taken(self.token(scope="orders.read orders.write", groups=["ops"]))
        self.assertEqual(
            found,
            OutsideIdentity(
                "ann",
                "oauth",
                frozenset({"orders.read", "orders.write", "ops"}),
                NOW + 300 + self.realm.terms.leeway,
            ),
        )

    def test_refused(self) -> None:
        """Each claim that is verified refuses by itself."""
        for claims, words in (
            ({"exp": NOW - 31}, "exp"),
            ({"exp": None}, "exp"),
            ({"exp": "never"}, "exp"),
            ({"nbf": NOW + 31}, "not yet valid"),
            ({"iat": NOW + 31}, "in the future"),
            ({"aud": "somebody"}, "aud"),
            ({"aud": ["a", "b"]}, "aud"),
            ({"aud": None}, "aud"),
            ({"iss": "https://other.test"}, "iss"),
            ({"sub": None}, "no claim 'sub'"),
            ({"sub": 7}, "sub"),
            ({"sub": "an*"}, "not allowed"),
            ({"sub": "a" * 300}, "longer"),
            ({"groups": [str(each) for each in range(MOST_GROUPS + 1)]}, "groups, more than"),
        ):
            self.refused(self.token(**claims), words)

    def test_leeway(self) -> None:
        """Clocks may differ by so much."""
        self.taken(self.token(exp=NOW - 29, nbf=NOW + 29))

    def test_one_audience_is_enough(self) -> None:
        self.taken(self.token(aud=["other", "amqproute"]))

    def test_other_claims(self) -> None:
        """The name may be in any claim, groups in objects, with a prefix."""
        self.realm = self.make(
            user_claim="preferred_username",
            group_claims=("realm_access.roles", "absent.roles", "sub.x"),
            group_prefix="kc:",
        )
        token = self.token(
            preferred_username="Ann", realm_access={"roles": ["ops", 7, "a\nb"]}, scope="x"
        )
        found = self.taken(token)
        self.assertEqual((found.name, found.groups), ("Ann", frozenset({"kc:ops"})))


class SignatureTests(IssuerCase):
    """Signatures (RFC 8725)."""

    def test_wrong_signature(self) -> None:
        kid = next(iter(self.issuer.keys))
        other = ECKey.generate_key("P-256", {"kid": kid})
        claims = {"exp": NOW + 300}
        self.refused(self.issuer.token(claims, key=other), "signature of the token is wrong")

    def test_changed_claims(self) -> None:
        head, _, tail = self.token().split(".")
        forged = json.dumps(
            {"iss": self.issuer.url, "aud": "amqproute", "sub": "root", "exp": NOW + 300}
        )
        middle = base64.urlsafe_b64encode(forged.encode()).decode().rstrip("=")
        self.refused(f"{head}.{middle}.{tail}", "signature of the token is wrong")

    def test_algorithms(self) -> None:
        """Those that are not listed are refused before keys are asked for, none and HMAC first."""
        claims = {"exp": NOW + 300}
        (public,) = self.issuer.documents()["/keys"]["keys"]
        shared = OctKey.import_key(json.dumps(public))
        for algorithm, key in (("HS256", shared), ("RS256", RSAKey.generate_key(2048))):
            self.refused(self.issuer.token(claims, {"alg": algorithm}, key), "not allowed")
        _, middle, _ = self.token().split(".")
        header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
        self.refused(f"{header}.{middle}.", "not allowed")
        self.refused(f"{header}.{middle}.AAAA", "not allowed")
        self.assertEqual(self.issuer.fetched, [])

    def test_key_of_another_kind(self) -> None:
        """A key is used with its own algorithm, even if others are listed."""
        self.realm = self.make(algorithms=("ES256", "RS256"))
        token = self.issuer.token({"exp": NOW + 300}, {"alg": "RS256"}, RSAKey.generate_key(2048))
        self.refused(token, "no key")

    def test_critical_header(self) -> None:
        """An extension that is critical and unknown refuses the token (RFC 7515 §4.1.11)."""
        head, middle, tail = self.token().split(".")
        header = json.loads(base64.urlsafe_b64decode(head + "=="))
        header |= {"crit": ["x"], "x": 1}
        head = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
        self.refused(f"{head}.{middle}.{tail}", "not valid")

    def test_no_token(self) -> None:
        """What is no signed token names no issuer."""
        for text in ("", "a.b", "ä.b.c", "aa.bb.cc", "a" * 8000, f"{'a' * 8000}.aa.aa"):
            self.assertRaises(CredentialsRefused, issuer_of, text)
        self.assertEqual(issuer_of(self.token()), self.issuer.url)
        for claims in ({"iss": None}, {"iss": 7}, {"iss": "x" * 600}, {"iss": ""}):
            self.assertRaises(CredentialsRefused, issuer_of, self.token(**claims))

    def test_remembered(self) -> None:
        """A token is not verified each time, though never beyond its end; the memory is bounded."""
        token = self.token()
        found = self.taken(token)
        self.assertIs(self.taken(token), found)
        self.clock.advance(61)
        self.assertEqual(self.taken(token), found)
        self.assertIsNot(self.taken(token), None)
        self.clock.advance(300)
        self.refused(token, "exp")
        brief = self.token(exp=self.now() + 1)
        self.taken(brief)
        self.clock.advance(32)
        self.refused(brief, "exp")
        for number in range(MOST_REMEMBERED + 5):
            self.realm._remember(str(number).encode(), found)
        self.assertEqual(len(self.realm._remembered), MOST_REMEMBERED)


class KeyTests(IssuerCase):
    """Where keys come from, and how often."""

    def test_discovery(self) -> None:
        """Keys are fetched once, when they are needed."""
        self.assertEqual(self.issuer.fetched, [])
        for _ in range(3):
            self.taken(self.token(jti=str(_)))
        places = [f"https://login.test{each}" for each in self.issuer.documents()]
        self.assertEqual(self.issuer.fetched, places)

    def test_rotation(self) -> None:
        """An unknown key has them fetched again; the withdrawn one is of no use then."""
        old = self.token()
        self.taken(old)
        self.clock.advance(LEAST_SECONDS)
        withdrawn = self.token(jti="1")
        self.issuer.rotate()
        self.taken(self.token())
        self.refused(withdrawn, "no key")

    def test_made_up_keys(self) -> None:
        """Tokens with unknown keys have keys fetched every `LEAST_SECONDS`, not more often."""
        self.taken(self.token())
        before = len(self.issuer.fetched)
        for number in range(50):
            token = self.issuer.token({"exp": NOW + 300}, {"kid": f"made up {number}"})
            self.refused(token, "no key")
            self.clock.advance(1)
        self.assertEqual(len(self.issuer.fetched) - before, 2 * 1)
        self.taken(self.token())

    def test_all_wait_for_one_fetch(self) -> None:
        """Tokens that come meanwhile wait for the same answer, and one may leave."""
        self.issuer.waiting = []
        verified = [self.realm.verify(self.token(jti=str(each))) for each in range(5)]
        self.assertEqual(len(self.issuer.waiting), 1)
        verified[0].cancel()
        self.failureResultOf(verified[0])
        while self.issuer.waiting:
            self.issuer.waiting.pop()()
        for each in verified[1:]:
            self.successResultOf(each)
        self.assertEqual(len(self.issuer.fetched), 2)

    def test_unavailable(self) -> None:
        """Without keys nobody can tell whether a token is good: it is not refused."""
        self.issuer.trouble = "connection refused"
        error = self.failureResultOf(self.realm.verify(self.token()), RealmUnavailable).value
        self.assertIn("connection refused", str(error))
        fetched = len(self.issuer.fetched)
        self.failureResultOf(self.realm.verify(self.token()), RealmUnavailable)
        self.assertEqual(len(self.issuer.fetched), fetched)
        self.assertEqual(self.successResultOf(self.realm.probe()), "connection refused")
        self.issuer.trouble = ""
        self.clock.advance(LEAST_SECONDS)
        self.assertEqual(self.successResultOf(self.realm.probe()), "")
        self.taken(self.token())

    def test_stale_keys(self) -> None:
        """Former keys serve while new ones cannot be fetched, for a day."""
        self.taken(self.token())
        self.issuer.trouble = "it is down"
        self.clock.advance(REFRESH_SECONDS)
        self.taken(self.token())
        self.clock.advance(STALE_SECONDS)
        self.failureResultOf(self.realm.verify(self.token()), RealmUnavailable)

    def test_refreshed(self) -> None:
        """Keys are fetched again after an hour, and a withdrawn one is out of use."""
        withdrawn = self.token(exp=NOW + 10_000)
        self.taken(withdrawn)
        self.issuer.rotate()
        self.clock.advance(REFRESH_SECONDS)
        self.refused(withdrawn, "no key")

    def test_file(self) -> None:
        """Keys of a file need no network."""
        document = json.dumps(self.issuer.documents()["/keys"]).encode()
        self.realm = self.make(lambda: document)
        self.taken(self.token())
        self.assertEqual(self.issuer.fetched, [])

    def test_bad_documents(self) -> None:
        """A key set without a public key for signatures is none."""
        (public,) = self.issuer.documents()["/keys"]["keys"]
        small = RSAKey.generate_key(1024).as_dict(private=False)
        secret = next(iter(self.issuer.keys.values())).as_dict(private=True)
        for document in (
            b"",
            b"[]",
            b"{}",
            b'{"keys": {}}',
            b'{"keys": [1, {"kty": "oct", "k": "AAAA"}, {"kty": "new"}, {"kty": "EC"}]}',
            json.dumps({"keys": [{**public, "use": "enc"}, {**public, "kid": 7}]}).encode(),
            json.dumps({"keys": [small, secret]}).encode(),
        ):
            self.realm = self.make(lambda document=document: document)  # type: ignore[misc]
            self.failureResultOf(self.realm.verify(self.token()), RealmUnavailable)

    def test_discovery_of_another_issuer(self) -> None:
        """The document has to be that of the issuer, and its keys come by https."""
        for change, words in (
            ({"issuer": "https://login.test/"}, "another issuer"),
            ({"jwks_uri": "http://login.test/keys"}, "begins with https"),
            ({"jwks_uri": None}, "begins with https"),
        ):
            document = {**self.issuer.documents()["/.well-known/openid-configuration"], **change}

            def fetch(_: str, document: Any = document) -> Deferred[bytes]:
                return succeed(json.dumps(document).encode())

            threads: Any = MemoryReactorClock()  # type: ignore[no-untyped-call]
            surroundings = RealmSurroundings("t", self.clock, self.now, fetch, bytes, threads)
            keys = IssuerKeys(self.issuer.url, surroundings)
            error = self.failureResultOf(keys.find("k", "ES256"), RealmUnavailable).value
            self.assertIn(words, str(error))

    def test_without_key_id(self) -> None:
        """A token without a key's id is taken if there is one key for it only."""
        self.taken(self.issuer.token({"exp": NOW + 300}, {"kid": None}))
        self.issuer.rotate(keep=True)
        self.clock.advance(REFRESH_SECONDS)
        token = self.issuer.token({"exp": NOW + 9000}, {"kid": None})
        self.refused(token, "no key")

    def test_hint(self) -> None:
        """A client is told where tokens come from."""
        place = "https://login.test/.well-known/openid-configuration"
        self.assertEqual(self.realm.hint, {"openid-configuration": place})
        hint = self.make(scope="amqproute", has_discovery=False).hint
        self.assertEqual(hint, {"scope": "amqproute"})


class UrlTests(SynchronousTestCase):
    def test_safe(self) -> None:
        for url in (
            "https://a.test/keys",
            "http://127.0.0.1:8080/k",
            "http://[::1]/",
            "http://localhost/",
        ):
            self.assertTrue(is_safe_url(url), url)
        for url in (
            "http://a.test/",
            "file:///etc/passwd",
            "https://",
            "https://u:p@a.test/",
            "https://a.test/\n",
            "http://127.0.0.1.a.test/",
            "https://[::1",
            "https://a.test:99999/",
        ):
            self.assertFalse(is_safe_url(url), url)
