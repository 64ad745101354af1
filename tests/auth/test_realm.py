# SPDX-License-Identifier: Apache-2.0
"""What a listener offers, whom it takes a client for, and how long a guesser waits."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth import realm
from amqproute.auth.realm import (
    FAILURE_DELAY_SECONDS,
    MAX_FAILURES,
    WINDOW_SECONDS,
    Authenticator,
    Throttle,
    TransportFacts,
    login_key,
)
from amqproute.auth.users import UserFile
from amqproute.errors import ConfigError
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.mechanisms import (
    ANONYMOUS,
    EXTERNAL,
    MECHANISMS,
    PLAIN,
    SCRAM_SHA_256,
    Challenge,
    Credentials,
    Done,
    Failed,
    SaslStep,
    ScramSecret,
    Verify,
    client_mechanism,
)

SECRET = ScramSecret.derive("pencil", salt=b"s" * 16, iterations=4096)
USERS = UserFile(Path("users.yaml"), {"ann": SECRET})

CLEAR = TransportFacts(address="192.0.2.1")
TLS = TransportFacts(address="192.0.2.1", tls=True)
PEER = TransportFacts(
    address="192.0.2.2", tls=True, certificate_names=("Beta.Example", "mx.beta.example")
)
LOCAL = TransportFacts(uid=1000)


def at_once(function: Callable[[str, str], bool], name: str, password: str) -> Deferred[bool]:
    return succeed(function(name, password))


class RealmTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.throttle = Throttle(self.clock)

    def tearDown(self) -> None:
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def make(
        self,
        mechanisms: tuple[str, ...] = MECHANISMS,
        *,
        users: UserFile | None = USERS,
        defer_to_thread: realm.DeferToThread = at_once,
        plain_without_tls: bool = False,
    ) -> Authenticator:
        return Authenticator(
            mechanisms,
            users=users,
            clock=self.clock,
            throttle=self.throttle,
            login_key=b"k" * 32,
            defer_to_thread=defer_to_thread,
            random_bytes=lambda count: b"r" * count,
            plain_without_tls=plain_without_tls,
        )

    def log_in(
        self,
        authenticator: Authenticator,
        mechanism: str,
        facts: TransportFacts,
        username: str = "ann",
        password: str = "pencil",
    ) -> SaslStep:
        """Run one exchange as a frontend would; time passes as it needs to."""
        client = client_mechanism(
            mechanism,
            username=username if mechanism in (PLAIN, SCRAM_SHA_256) else "",
            password=password,
            nonce="client",
            confidential=True,
        )
        server = authenticator.begin(mechanism, facts)
        step = server.step(client.initial())
        while isinstance(step, Challenge):
            step = server.step(client.step(step.data))
        if isinstance(step, Verify):
            verified = authenticator.verify(step, facts)
            self.clock.advance(FAILURE_DELAY_SECONDS)
            step = server.resolve(self.successResultOf(verified))
        if isinstance(step, Done):
            client.finish(step.additional_data)
        return step


class OfferTests(RealmTestCase):
    def test_table(self) -> None:
        """What is offered follows from the facts of the transport."""
        for facts, users, expected in (
            (CLEAR, USERS, (SCRAM_SHA_256, ANONYMOUS)),
            (TLS, USERS, (SCRAM_SHA_256, PLAIN, ANONYMOUS)),
            (TLS, None, (ANONYMOUS,)),
            (PEER, USERS, MECHANISMS),
            (PEER, None, (EXTERNAL, ANONYMOUS)),
            (LOCAL, USERS, MECHANISMS),
            # A certificate without TLS is a contradiction; it is not believed.
            (TransportFacts(certificate_names=("b.example",)), None, (ANONYMOUS,)),
            (TransportFacts(tls=True, certificate_names=("*.b.example",)), None, (ANONYMOUS,)),
            (TransportFacts(tls=True, certificate_names=("", ".")), None, (ANONYMOUS,)),
        ):
            self.assertEqual(self.make(users=users).offers(facts), expected, facts)

    def test_only_what_is_configured(self) -> None:
        self.assertEqual(self.make((PLAIN, EXTERNAL)).offers(PEER), (EXTERNAL, PLAIN))
        self.assertEqual(self.make((EXTERNAL,)).offers(TLS), ())

    def test_plain_without_tls(self) -> None:
        """Only the operator's explicit word lets a password go in the clear."""
        self.assertEqual(self.make((PLAIN,)).offers(CLEAR), ())
        allowed = self.make((PLAIN,), plain_without_tls=True)
        self.assertEqual(allowed.offers(CLEAR), (PLAIN,))
        self.assertIsInstance(self.log_in(allowed, PLAIN, CLEAR), Done)

    def test_unknown_mechanism(self) -> None:
        with self.assertRaises(ConfigError) as caught:
            self.make(("SCRAM-SHA-1",))
        self.assertIn("SCRAM-SHA-256", str(caught.exception))

    def test_not_offered_is_refused(self) -> None:
        """A client cannot insist on what was not offered."""
        for mechanisms, mechanism, facts in (
            ((SCRAM_SHA_256,), ANONYMOUS, TLS),
            (MECHANISMS, PLAIN, CLEAR),
            (MECHANISMS, "GSSAPI", TLS),
        ):
            server = self.make(mechanisms).begin(mechanism, facts)
            self.assertIsInstance(server.step(b"\0ann\0pencil"), Failed)


class PrincipalTests(RealmTestCase):
    def test_who(self) -> None:
        """Each way in leads to its kind of principal."""
        beta = frozenset({"beta.example", "mx.beta.example"})
        for mechanism, facts, expected in (
            (EXTERNAL, PEER, Principal("peer", "beta.example", beta)),
            (EXTERNAL, LOCAL, Principal("uid", "1000")),
            (SCRAM_SHA_256, CLEAR, Principal("user", "ann")),
            (PLAIN, TLS, Principal("user", "ann")),
            (ANONYMOUS, TLS, ANONYMOUS_PRINCIPAL),
        ):
            authenticator = self.make()
            step = self.log_in(authenticator, mechanism, facts)
            assert isinstance(step, Done), step
            self.assertEqual(authenticator.principal(step.credentials), expected)

    def test_chosen_name(self) -> None:
        authenticator = self.make()
        step = authenticator.begin(EXTERNAL, PEER).step(b"mx.beta.example")
        assert isinstance(step, Done)
        self.assertEqual(str(authenticator.principal(step.credentials)), "peer:mx.beta.example")

    def test_a_user_cannot_look_like_a_peer(self) -> None:
        self.assertEqual(
            str(self.make().principal(Credentials(PLAIN, "peer:b.example"))),
            "user:peer:b.example",
        )


class VerifyTests(RealmTestCase):
    def test_wrong_password_waits(self) -> None:
        """A wrong password is answered after the delay, a right one at once."""
        authenticator = self.make()
        self.assertIs(
            self.successResultOf(authenticator.verify(Verify("ann", "pencil"), TLS)), True
        )
        for step in (Verify("ann", "wrong"), Verify("nobody", "pencil")):
            verified = authenticator.verify(step, TLS)
            self.assertNoResult(verified)
            self.clock.advance(FAILURE_DELAY_SECONDS)
            self.assertIs(self.successResultOf(verified), False)

    def test_a_broken_thread_is_a_refusal(self) -> None:
        """An error in the thread is logged and does not let anybody in."""

        def broken(*_: object) -> Deferred[bool]:
            return fail(RuntimeError("no thread"))

        def raising(*_: object) -> Deferred[bool]:
            raise RuntimeError("no pool")

        for defer_to_thread in (broken, raising):
            verified = self.make(defer_to_thread=defer_to_thread).verify(
                Verify("ann", "pencil"), TLS
            )
            self.clock.advance(FAILURE_DELAY_SECONDS)
            self.assertIs(self.successResultOf(verified), False)
            self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_verifications_are_bounded(self) -> None:
        """Threads are not piled up; when they are done there is room again."""
        self.patch(realm, "MAX_VERIFICATIONS", 2)
        waiting: list[Deferred[bool]] = []

        def later(*_: object) -> Deferred[bool]:
            waiting.append(Deferred())
            return waiting[-1]

        authenticator = self.make(defer_to_thread=later)
        results = [authenticator.verify(Verify("ann", "pencil"), TLS) for _ in range(4)]
        self.assertEqual(len(waiting), 2)
        self.clock.advance(FAILURE_DELAY_SECONDS)
        self.assertEqual([self.successResultOf(late) for late in results[2:]], [False, False])
        for deferred in waiting:
            deferred.callback(True)
        self.assertEqual([self.successResultOf(early) for early in results[:2]], [True, True])
        authenticator.verify(Verify("ann", "pencil"), TLS)
        self.assertEqual(len(waiting), 3)

    def test_cancelled(self) -> None:
        """A connection that is gone may cancel; that is no error, and its place is free."""
        authenticator = self.make(defer_to_thread=lambda *_: Deferred())
        verified = authenticator.verify(Verify("ann", "pencil"), TLS)
        verified.cancel()
        self.failureResultOf(verified, CancelledError)
        self.assertIn("verifying=0", repr(authenticator))


class ThrottleTests(RealmTestCase):
    def guess(self, mechanism: str, facts: TransportFacts, times: int) -> None:
        for _ in range(times):
            step = self.log_in(self.make(), mechanism, facts, password="wrong")
            self.assertIsInstance(step, Failed)

    def test_too_many_failures(self) -> None:
        """After the limit even the right password is refused from there, until the window ends."""
        self.guess(SCRAM_SHA_256, TLS, MAX_FAILURES)
        for mechanism in (SCRAM_SHA_256, PLAIN):
            self.assertIsInstance(self.log_in(self.make(), mechanism, TLS), Failed)
        other = TransportFacts(address="192.0.2.9", tls=True)
        self.assertIsInstance(self.log_in(self.make(), PLAIN, other), Done)
        self.clock.advance(WINDOW_SECONDS)
        self.assertIsInstance(self.log_in(self.make(), PLAIN, TLS), Done)

    def test_plain_counts(self) -> None:
        self.guess(PLAIN, TLS, MAX_FAILURES)
        self.assertTrue(self.throttle.refuses("192.0.2.1"))

    def test_below_the_limit(self) -> None:
        self.guess(PLAIN, TLS, MAX_FAILURES - 1)
        self.assertIsInstance(self.log_in(self.make(), PLAIN, TLS), Done)

    def test_others_are_not_counted(self) -> None:
        """Certificates and ANONYMOUS have nothing to guess, and pass while passwords wait."""
        facts = TransportFacts("192.0.2.1", tls=True, certificate_names=("beta.example",))
        for _ in range(MAX_FAILURES):
            self.make().begin(EXTERNAL, facts).step(b"gamma.example")
            self.make((EXTERNAL,)).begin(PLAIN, facts).step(b"\0ann\0wrong")
        self.assertEqual(len(self.throttle), 0)
        self.guess(SCRAM_SHA_256, facts, MAX_FAILURES)
        self.assertIsInstance(self.log_in(self.make(), EXTERNAL, facts), Done)

    def test_at_the_same_time(self) -> None:
        """Exchanges begun before the limit was reached do not get past it, even the right one."""
        waiting: list[Deferred[bool]] = []

        def later(*_: object) -> Deferred[bool]:
            waiting.append(Deferred())
            return waiting[-1]

        authenticator = self.make(defer_to_thread=later)
        servers = [authenticator.begin(PLAIN, TLS) for _ in range(MAX_FAILURES + 1)]
        results = []
        for server in servers:
            step = server.step(b"\0ann\0guess")
            assert isinstance(step, Verify)
            results.append(authenticator.verify(step, TLS))
        for deferred in waiting:
            deferred.callback(deferred is waiting[-1])
        self.assertNoResult(results[-1])
        self.clock.advance(FAILURE_DELAY_SECONDS)
        for server, result in zip(servers, results, strict=True):
            self.assertIs(self.successResultOf(result), False)
            self.assertIsInstance(server.resolve(False), Failed)
        self.assertIsInstance(authenticator.begin(PLAIN, TLS).step(b"\0ann\0pencil"), Failed)

    def test_scram_at_the_same_time(self) -> None:
        """The same for SCRAM: the count is looked at again at the last step."""
        late = self.make().begin(SCRAM_SHA_256, TLS)
        client = client_mechanism(SCRAM_SHA_256, username="ann", password="pencil", nonce="n")
        challenge = late.step(client.initial())
        assert isinstance(challenge, Challenge)
        self.guess(SCRAM_SHA_256, TLS, MAX_FAILURES)
        self.assertIsInstance(late.step(client.step(challenge.data)), Failed)

    def test_table_is_bounded(self) -> None:
        self.patch(realm, "MAX_ADDRESSES", 5)
        for number in range(50):
            self.throttle.failed(f"192.0.2.{number}")
            self.clock.advance(0.01)
        self.assertEqual(len(self.throttle), 5)
        self.clock.advance(WINDOW_SECONDS)
        self.throttle.failed("198.51.100.1")
        self.assertEqual(len(self.throttle), 1)

    def test_keys(self) -> None:
        for facts, key in (
            (TransportFacts("192.0.2.1"), "192.0.2.1"),
            (TransportFacts("::ffff:192.0.2.1"), "192.0.2.1"),
            (TransportFacts("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64"),
            (TransportFacts("2001:db8:1:2::1"), "2001:db8:1:2::/64"),
            (TransportFacts("fe80::1%eth0"), "fe80::/64"),
            (TransportFacts("somewhere"), "somewhere"),
            (TransportFacts(uid=1000), "uid:1000"),
        ):
            self.assertEqual(facts.counted_as, key)


class LoginKeyTests(SynchronousTestCase):
    def test_lasting(self) -> None:
        """The key is made once, for its owner's eyes, and is the same ever after."""
        directory = Path(self.mktemp())
        directory.mkdir()
        first = login_key(directory)
        self.assertEqual(len(first), 32)
        self.assertEqual(login_key(directory), first)
        self.assertEqual([entry.name for entry in directory.iterdir()], ["login-key"])
        self.assertEqual(stat.S_IMODE((directory / "login-key").stat().st_mode), 0o600)
        (directory / "login-key").write_bytes(b"short")
        with self.assertRaises(ConfigError):
            login_key(directory)
