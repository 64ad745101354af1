# SPDX-License-Identifier: Apache-2.0
"""Mechanisms of a listener, identities of clients, and delays for guessers."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.log_in_queue import MOST_RUNNING, MOST_WAITING, SLOTS
from amqproute.auth.realm import Authenticator, LogInTransport, Verifier, login_key
from amqproute.auth.users import UserFile
from amqproute.errors import ConfigError
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.sasl_mechanisms import (
    ANONYMOUS,
    EXTERNAL,
    MECHANISMS,
    PLAIN,
    SCRAM_SHA_256,
    Credentials,
    MechanismChallenge,
    MechanismDone,
    MechanismFailed,
    SaslStep,
    ScramSecret,
    VerifyCredentials,
    client_mechanism,
)

SECRET = ScramSecret.derive("pencil", salt=b"s" * 16, iterations=4096)
USERS = UserFile(Path("users.yaml"), {"ann": SECRET})

CLEAR = LogInTransport(address="192.0.2.1")
TLS = LogInTransport(address="192.0.2.1", tls=True)
PEER = LogInTransport(
    address="192.0.2.2", tls=True, certificate_names=("Beta.Example", "mx.beta.example")
)
LOCAL = LogInTransport(uid=1000)


def at_once(function: Callable[[str, str], bool], name: str, password: str) -> Deferred[bool]:
    return succeed(function(name, password))


class RealmTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.verifier = Verifier(self.clock, at_once)
        self._lines: list[str] = []
        globalLogPublisher.addObserver(self._observe)
        self.addCleanup(globalLogPublisher.removeObserver, self._observe)

    def _observe(self, event: LogEvent) -> None:
        if "log-in" in (event.get("log_format") or ""):
            self._lines.append(formatEvent(event))

    def lines(self) -> list[str]:
        """Return what the log says of failed log-ins."""
        return self._lines

    def tearDown(self) -> None:
        self.verifier.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    took: float

    def make(
        self,
        mechanisms: tuple[str, ...] = MECHANISMS,
        *,
        users: UserFile | None = USERS,
        plain_without_tls: bool = False,
    ) -> Authenticator:
        return Authenticator(
            mechanisms,
            users=users,
            verifier=self.verifier,
            login_key=b"k" * 32,
            random_bytes=lambda count: b"r" * count,
            plain_without_tls=plain_without_tls,
        )

    def log_in(
        self,
        authenticator: Authenticator,
        mechanism: str,
        facts: LogInTransport,
        username: str = "ann",
        password: str = "pencil",
    ) -> SaslStep:
        """Run one exchange as a frontend would; time passes as it needs to, and is in `took`."""
        self.took = 0.0
        client = client_mechanism(
            mechanism,
            username=username if mechanism in (PLAIN, SCRAM_SHA_256) else "",
            password=password,
            nonce="client",
            confidential=True,
        )
        server = authenticator.begin(mechanism, facts)
        step = server.step(client.initial())
        while isinstance(step, MechanismChallenge):
            step = server.step(client.step(step.data))
        if isinstance(step, VerifyCredentials):
            verified = authenticator.verify(step, facts)
            begun = self.clock.seconds()
            while not verified.called and self.clock.seconds() < begun + 60:
                self.clock.advance(0.05)
            self.took = self.clock.seconds() - begun
            step = server.resolve(self.successResultOf(verified))
        if isinstance(step, MechanismDone):
            client.finish(step.additional_data)
        return step


class OfferTests(RealmTestCase):
    def test_table(self) -> None:
        """The offer follows from the facts of the transport."""
        for facts, users, expected in (
            (CLEAR, USERS, (SCRAM_SHA_256, ANONYMOUS)),
            (TLS, USERS, (SCRAM_SHA_256, PLAIN, ANONYMOUS)),
            (TLS, None, (ANONYMOUS,)),
            (PEER, USERS, (EXTERNAL, SCRAM_SHA_256, PLAIN, ANONYMOUS)),
            (PEER, None, (EXTERNAL, ANONYMOUS)),
            (LOCAL, USERS, (EXTERNAL, SCRAM_SHA_256, PLAIN, ANONYMOUS)),
            # A certificate without TLS is a contradiction; it is not believed.
            (LogInTransport(certificate_names=("b.example",)), None, (ANONYMOUS,)),
            (LogInTransport(tls=True, certificate_names=("*.b.example",)), None, (ANONYMOUS,)),
            (LogInTransport(tls=True, certificate_names=("", ".")), None, (ANONYMOUS,)),
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
        self.assertIsInstance(self.log_in(allowed, PLAIN, CLEAR), MechanismDone)

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
            self.assertIsInstance(server.step(b"\0ann\0pencil"), MechanismFailed)


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
            assert isinstance(step, MechanismDone), step
            self.assertEqual(authenticator.principal(step.credentials), expected)

    def test_chosen_name(self) -> None:
        authenticator = self.make()
        step = authenticator.begin(EXTERNAL, PEER).step(b"mx.beta.example")
        assert isinstance(step, MechanismDone)
        self.assertEqual(str(authenticator.principal(step.credentials)), "peer:mx.beta.example")

    def test_a_user_cannot_look_like_a_peer(self) -> None:
        self.assertEqual(
            str(self.make().principal(Credentials(PLAIN, "peer:b.example"))),
            "user:peer:b.example",
        )


class VerifyTests(RealmTestCase):
    def slow(self) -> list[Deferred[bool]]:
        """Have passwords looked at in threads that take their time; return what these wait for."""
        waiting: list[Deferred[bool]] = []

        def later(*_: object) -> Deferred[bool]:
            waiting.append(Deferred())
            return waiting[-1]

        self.verifier.stop()
        self.verifier = Verifier(self.clock, later)
        return waiting

    def test_wrong_password_waits(self) -> None:
        """A wrong password is answered after the delay, a right one at once."""
        authenticator = self.make()
        self.assertIs(
            self.successResultOf(authenticator.verify(VerifyCredentials("ann", "pencil"), TLS)),
            True,
        )
        for step, seconds in (
            (VerifyCredentials("ann", "wrong"), 1.0),
            (VerifyCredentials("nobody", "pencil"), 2.0),
        ):
            verified = authenticator.verify(step, TLS)
            self.clock.advance(seconds - 0.1)
            self.assertNoResult(verified)
            self.clock.advance(0.1)
            self.assertIs(self.successResultOf(verified), False)

    def test_a_broken_thread_is_no_refusal(self) -> None:
        """An error in the thread is logged, lets nobody in, and accuses nobody."""

        def broken(*_: object) -> Deferred[bool]:
            return fail(RuntimeError("no thread"))

        def raising(*_: object) -> Deferred[bool]:
            raise RuntimeError("no pool")

        for defer_to_thread in (broken, raising):
            self.verifier = Verifier(self.clock, defer_to_thread)
            server = self.make().begin(PLAIN, TLS)
            step = server.step(b"\0ann\0pencil")
            assert isinstance(step, VerifyCredentials)
            granted = self.successResultOf(self.make().verify(step, TLS))
            self.assertIsNone(granted)
            result = server.resolve(granted)
            assert isinstance(result, MechanismFailed)
            self.assertTrue(result.is_temporary)
            self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_verifications_are_bounded(self) -> None:
        """Threads are not piled up; when one is done the next begins."""
        waiting = self.slow()
        authenticator = self.make()
        results = [
            authenticator.verify(
                VerifyCredentials("ann", "pencil"), LogInTransport(f"192.0.2.{n}", True)
            )
            for n in range(MOST_RUNNING + 2)
        ]
        self.assertEqual(len(waiting), MOST_RUNNING)
        for number, result in enumerate(results):
            self.assertNoResult(result)
            waiting[number].callback(True)
            self.assertIs(self.successResultOf(result), True)

    def test_too_many_of_one_address(self) -> None:
        """A refused client is told to come back, not that the password is wrong."""
        self.slow()
        authenticator = self.make()
        results = [
            authenticator.verify(VerifyCredentials("ann", "pencil"), TLS)
            for _ in range(SLOTS + MOST_WAITING + 1)
        ]
        self.clock.advance(0)
        self.assertEqual([number for number, each in enumerate(results) if each.called], [SLOTS])
        self.assertIsNone(self.successResultOf(results[SLOTS]))

    def test_cancelled(self) -> None:
        """A connection that is gone cancels; what was begun is counted and logged when it ends."""
        waiting = self.slow()
        verified = self.make().verify(VerifyCredentials("ann", "wrong"), TLS)
        verified.cancel()
        self.failureResultOf(verified, CancelledError)
        self.assertIn("log-ins=1", repr(self.verifier))
        waiting[0].callback(False)
        self.assertIn("log-ins=0", repr(self.verifier))
        self.assertEqual(self.lines(), ['log-in failed from 192.0.2.1, PLAIN, user "ann"'])
        second = self.make().verify(VerifyCredentials("ann", "wrong"), TLS)
        waiting[1].callback(False)
        self.clock.advance(1.9)
        self.assertNoResult(second)
        second.cancel()
        self.failureResultOf(second, CancelledError)
        self.assertIn("log-ins=0", repr(self.verifier))

    def test_cancelled_before_its_turn(self) -> None:
        waiting = self.slow()
        results = [self.make().verify(VerifyCredentials("ann", "x"), TLS) for _ in range(SLOTS + 1)]
        results[-1].cancel()
        self.failureResultOf(results[-1], CancelledError)
        for each in waiting:
            each.callback(True)
        self.assertEqual(len(waiting), SLOTS)
        self.assertIn("log-ins=0", repr(self.verifier))


class GuessingTests(RealmTestCase):
    """Wrong passwords cost more each time, and right ones nothing."""

    def guess(self, mechanism: str, facts: LogInTransport, times: int) -> list[float]:
        """Return how long each answer took."""
        took = []
        for _ in range(times):
            step = self.log_in(self.make(), mechanism, facts, password="wrong")
            assert isinstance(step, MechanismFailed)
            self.assertFalse(step.is_temporary)
            took.append(round(self.took, 1))
        return took

    def test_answers_wait(self) -> None:
        """Twice as long each time, by either mechanism, and another address starts over."""
        for mechanism in (SCRAM_SHA_256, PLAIN):
            self.verifier = Verifier(self.clock, at_once, 5.0)
            self.assertEqual(self.guess(mechanism, TLS, 4), [1.0, 2.0, 4.0, 5.0])
            other = LogInTransport("192.0.2.77", tls=True)
            step = self.log_in(self.make(), mechanism, other, "bob", "wrong")
            self.assertIsInstance(step, MechanismFailed)
            self.assertAlmostEqual(self.took, 1.0, 1)
            self.verifier.stop()

    def test_no_lock_out(self) -> None:
        """Ten wrong ones at a time do not keep a right one waiting for 2 s, from that address and
        for that user, nor anybody else."""
        local = LogInTransport("127.0.0.1", tls=True)
        for guessed, right in ((SCRAM_SHA_256, PLAIN), (PLAIN, SCRAM_SHA_256)):
            answers = []
            for _ in range(10):
                server = self.make().begin(guessed, local)
                client = client_mechanism(
                    guessed, username="ann", password="wrong", nonce="n", confidential=True
                )
                step = server.step(client.initial())
                if isinstance(step, MechanismChallenge):
                    step = server.step(client.step(step.data))
                assert isinstance(step, VerifyCredentials)
                answers.append(self.make().verify(step, local))
                answers[-1].addErrback(lambda failure: failure.trap(CancelledError))
            self.assertIsInstance(self.log_in(self.make(), right, local), MechanismDone)
            self.assertLessEqual(self.took, 2.0)
            for answer in answers:
                answer.cancel()

    def test_scram_waits_for_its_turn(self) -> None:
        """The result of a proof is withheld until a slot is free: it would be a free guess."""
        facts = LogInTransport("192.0.2.5", tls=True)
        wrong = [
            self.make().verify(VerifyCredentials("bob", None, False, SCRAM_SHA_256), facts)
            for _ in range(20 + SLOTS)
        ]
        self.clock.advance(1.5)
        server = self.make().begin(SCRAM_SHA_256, facts)
        client = client_mechanism(SCRAM_SHA_256, username="ann", password="pencil", nonce="n")
        step = server.step(client.initial())
        assert isinstance(step, MechanismChallenge)
        step = server.step(client.step(step.data))
        assert isinstance(step, VerifyCredentials)
        self.assertIs(step.is_right, True)
        self.assertIsNone(step.password)
        verified = self.make().verify(step, facts)
        self.assertNoResult(verified)
        self.clock.advance(1.5)
        self.assertIsInstance(server.resolve(self.successResultOf(verified)), MechanismDone)
        self.assertIsInstance(self.log_in(self.make(), SCRAM_SHA_256, facts), MechanismDone)
        self.assertEqual(self.took, 0.0)
        for each in wrong:
            each.addErrback(lambda failure: failure.trap(CancelledError))
            each.cancel()

    def test_others_are_not_counted(self) -> None:
        """Certificates and ANONYMOUS have nothing to guess, and pass while passwords wait."""
        facts = LogInTransport("192.0.2.1", tls=True, certificate_names=("beta.example",))
        for _ in range(10):
            self.make().begin(EXTERNAL, facts).step(b"gamma.example")
            self.make((EXTERNAL,)).begin(PLAIN, facts).step(b"\0ann\0wrong")
        self.assertEqual(self.lines(), [])
        self.guess(SCRAM_SHA_256, facts, 5)
        self.assertIsInstance(self.log_in(self.make(), EXTERNAL, facts), MechanismDone)

    def test_malformed(self) -> None:
        """A malformed log-in is refused like a wrong password, and as late."""
        for mechanism, octets in ((PLAIN, b"\0ann"), (SCRAM_SHA_256, b"n,,n=ann")):
            step = self.make().begin(mechanism, TLS).step(octets)
            self.assertEqual(step, VerifyCredentials(step.username, None, False, mechanism))  # type: ignore[union-attr]

    def test_logged(self) -> None:
        """Address, mechanism and user, also of processes on this machine."""
        self.guess(PLAIN, TLS, 1)
        self.guess(SCRAM_SHA_256, LogInTransport("fe80::1%eth0", tls=True), 1)
        self.guess(SCRAM_SHA_256, LOCAL, 1)
        self.assertEqual(
            self.lines(),
            [
                'log-in failed from 192.0.2.1, PLAIN, user "ann"',
                'log-in failed from fe80::1, SCRAM-SHA-256, user "ann"',
                'log-in failed from the local user id 1000, SCRAM-SHA-256, user "ann"',
            ],
        )

    def test_keys(self) -> None:
        for facts, key in (
            (LogInTransport("192.0.2.1"), "192.0.2.1"),
            (LogInTransport("::ffff:192.0.2.1"), "192.0.2.1"),
            (LogInTransport("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64"),
            (LogInTransport("2001:db8:1:2::1"), "2001:db8:1:2::/64"),
            (LogInTransport("fe80::1%eth0"), "fe80::/64"),
            (LogInTransport("somewhere"), "somewhere"),
            (LogInTransport(uid=1000), "uid:1000"),
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
