# SPDX-License-Identifier: Apache-2.0
"""Users of a directory, as far as no network is involved: servers, time, memory, names."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.directory_realm import (
    GRACE_SECONDS,
    MOST_REMEMBERED,
    DirectoryRealm,
    DirectoryTerms,
    DirectoryUser,
    ServerFailed,
    escaped_for_dn,
    escaped_for_filter,
    first_value,
)
from amqproute.auth.outside_realm import (
    CredentialsRefused,
    FetchFailed,
    RealmSurroundings,
    RealmUnavailable,
)
from amqproute.wire.sasl_mechanisms import OutsideIdentity


class Servers:
    """Directory servers with one user; as `DirectoryClient`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[tuple[str, str, float]] = []
        self.down: dict[str, float] = {}
        self.user = DirectoryUser(("ann",), ("ops",))

    def verify(self, server: str, name: str, password: str, seconds: float) -> DirectoryUser | None:
        self.asked.append((server, name, seconds))
        if server in self.down:
            self.clock.rightNow += min(self.down[server], seconds)
            raise ServerFailed("it is down")
        return self.user if password == "secret" else None

    def look_up(self, server: str, name: str, seconds: float) -> DirectoryUser | None:
        return self.verify(server, name, "secret", seconds)

    def probe(self, server: str, seconds: float) -> None:
        self.verify(server, "", "secret", seconds)


class Threads:
    """Runs functions at once, or when `run_all` is called; as `DirectoryThreads`."""

    def __init__(self) -> None:
        self.is_busy = False
        self.waiting: list[Callable[[], None]] = []
        self.is_stopped = False

    def run(self, function: Callable[[], DirectoryUser | None]) -> Deferred[DirectoryUser | None]:
        answer: Deferred[DirectoryUser | None] = Deferred()

        def go() -> None:
            try:
                result = function()
            except Exception as error:
                answer.errback(error)
            else:
                answer.callback(result)

        if self.is_busy:
            self.waiting.append(go)
        else:
            go()
        return answer

    def run_all(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()

    def stop(self) -> None:
        self.is_stopped = True


class DirectoryCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.servers = Servers(self.clock)
        self.threads = Threads()
        self.realm = self.make()

    def make(self, **changes: float | str) -> DirectoryRealm:
        surroundings = RealmSurroundings(
            "ldap",
            self.clock,
            lambda: 0.0,
            lambda _: fail(FetchFailed()),
            bytes,
            MemoryReactorClock(),  # type: ignore[no-untyped-call]
        )
        terms = DirectoryTerms(("ldaps://a", "ldaps://b"), **changes)  # type: ignore[arg-type]
        return DirectoryRealm(terms, self.servers, self.threads, surroundings)

    def asked(self) -> list[str]:
        """Return which servers were asked, and forget it."""
        found, self.servers.asked = [server for server, _, _ in self.servers.asked], []
        return found

    def refused(self, name: str = "ann", password: str = "wrong") -> str:
        """Return why a log-in is refused."""
        try:
            verified = self.realm.verify(name, password)
        except CredentialsRefused as error:
            return str(error)
        return str(self.failureResultOf(verified, CredentialsRefused).value)

    def taken(self, name: str = "ann") -> OutsideIdentity:
        return self.successResultOf(self.realm.verify(name, "secret"))


class VerificationTests(DirectoryCase):
    def test_right_and_wrong(self) -> None:
        self.assertEqual(self.taken(), OutsideIdentity("ann", "ldap", frozenset({"ops"})))
        self.assertIn("refuses", self.refused())

    def test_never_empty(self) -> None:
        """An empty password or name never reaches a server (RFC 4513 §5.1.2)."""
        self.assertIn("empty", self.refused("ann", ""))
        self.assertIn("empty", self.refused("", "secret"))
        self.assertEqual(self.asked(), [])

    def test_names(self) -> None:
        """The name is the directory's, in lower case; one that cannot be a user's is refused."""
        self.servers.user = DirectoryUser(("Ann.Miller", "ANN"))
        self.assertEqual(self.taken("Ann").name, "ann")
        self.assertEqual(self.taken("ann@corp.test").name, "ann")
        self.servers.user = DirectoryUser(None)
        self.assertEqual(self.taken("BOB").name, "bob")
        self.servers.user = DirectoryUser(())
        self.assertIn("no attribute", self.refused("carl", "secret"))
        self.servers.user = DirectoryUser(("a*",))
        self.assertIn("not allowed", self.refused("dora", "secret"))
        self.asked()
        for name in ("a*)(uid=*", "a b", "a\\2a", "a,ou=x", "-a", "a\0b"):
            self.refused(name, "secret")
        self.assertEqual(self.asked(), [])

    def test_group_prefix(self) -> None:
        self.realm = self.make(group_prefix="ad:")
        self.assertEqual(self.taken().groups, frozenset({"ad:ops"}))


class ServerTests(DirectoryCase):
    def test_fail_over(self) -> None:
        """The next server is asked, and first from then on, until the other may have recovered."""
        self.realm = self.make(remember=0.0)
        self.taken()
        self.assertEqual(self.asked(), ["ldaps://a"])
        self.servers.down = {"ldaps://a": 0.1}
        self.taken()
        self.assertEqual(self.asked(), ["ldaps://a", "ldaps://b"])
        self.taken()
        self.assertEqual(self.asked(), ["ldaps://b"])
        self.clock.advance(10)
        self.servers.down.clear()
        self.taken()
        self.taken()
        self.assertEqual(self.asked(), ["ldaps://a", "ldaps://a"])

    def test_all_down(self) -> None:
        """That is no wrong password, and is not remembered as one."""
        self.servers.down = {"ldaps://a": 0.0, "ldaps://b": 0.0}
        failure = self.failureResultOf(self.realm.verify("ann", "secret"), RealmUnavailable)
        self.assertEqual(str(failure.value), "ldaps://a: it is down; ldaps://b: it is down")
        self.assertIn("it is down", self.successResultOf(self.realm.probe()))
        self.servers.down.clear()
        self.taken()
        self.assertEqual(self.successResultOf(self.realm.probe()), "")

    def test_time_is_shared(self) -> None:
        """A server that does not answer leaves time for the next one."""
        self.servers.down = {"ldaps://a": 60.0}
        self.taken()
        self.assertEqual([seconds for _, _, seconds in self.servers.asked], [2.5, 2.5])

    def test_thread_that_hangs(self) -> None:
        """Nobody waits for a thread for longer than the time of a log-in."""
        self.threads.is_busy = True
        verified = self.realm.verify("ann", "secret")
        self.clock.advance(5.0 + GRACE_SECONDS)
        self.failureResultOf(verified, RealmUnavailable)
        self.threads.run_all()  # too late, and nobody is told
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        self.realm.stop()
        self.assertTrue(self.threads.is_stopped)


class MemoryTests(DirectoryCase):
    def test_remembered(self) -> None:
        """Right and wrong passwords are remembered for a while, each for its own."""
        self.taken()
        self.refused()
        self.asked()
        self.taken()
        self.assertIn("a moment ago", self.refused())
        self.assertEqual(self.asked(), [])
        self.clock.advance(10)
        self.refused()
        self.taken()
        self.assertEqual(self.asked(), ["ldaps://a"])
        self.clock.advance(50)
        self.taken()
        self.assertEqual(self.asked(), ["ldaps://a"])

    def test_bounded(self) -> None:
        for number in range(MOST_REMEMBERED + 10):
            self.realm._remember(str(number).encode(), 10.0, None)
        self.assertEqual(len(self.realm._remembered), MOST_REMEMBERED)

    def test_at_the_same_time(self) -> None:
        """The same log-in several times is one question; one of them may leave."""
        self.threads.is_busy = True
        verified = [self.realm.verify("ann", "secret") for _ in range(3)]
        self.assertEqual(len(self.threads.waiting), 1)
        verified[1].cancel()
        self.failureResultOf(verified[1])
        self.threads.run_all()
        for each in (verified[0], verified[2]):
            self.assertEqual(self.successResultOf(each).name, "ann")
        self.assertEqual(len(self.realm._log_ins), 0)


class EscapeTests(SynchronousTestCase):
    def test_filter(self) -> None:
        """RFC 4515 §3."""
        self.assertEqual(escaped_for_filter("a*(b)\\c\0d"), "a\\2a\\28b\\29\\5cc\\00d")
        self.assertEqual(escaped_for_filter("änn@x"), "änn@x")

    def test_dn(self) -> None:
        """RFC 4514 §2.4."""
        for text, found in (
            ("ann", "ann"),
            ('a"+,;<>=\\b', 'a\\"\\+\\,\\;\\<\\>\\=\\\\b'),
            ("#a", "\\#a"),
            (" a ", "\\ a\\ "),
            (" ", "\\ "),
            ("a\0", "a\\00"),
        ):
            self.assertEqual(escaped_for_dn(text), found)

    def test_first_value(self) -> None:
        for dn, value in (
            ("cn=operators,ou=groups,dc=test", "operators"),
            ("cn=a\\,b,ou=x", "a,b"),
            ("cn=\\C3\\A4nn,ou=x", "änn"),
            ("cn=a+uid=b,ou=x", ""),
            ("cn=", ""),
            ("", ""),
            ("cn=a\\", "a"),
        ):
            self.assertEqual(first_value(dn), value, dn)


class RecheckTests(DirectoryCase):
    """Users who have logged in are looked up again, without their passwords."""

    def test_cannot_tell(self) -> None:
        """A broker without an entry of its own cannot look anybody up."""
        self.assertIsNone(self.realm.recheck("ann"))

    def test_rechecked(self) -> None:
        """The user is looked up by the name as given, and has the groups of now."""
        self.realm = self.make(looks_up=True)
        self.servers.user = DirectoryUser(("ann",), ("ops",))
        found = self.successResultOf(self.realm.verify("Ann@corp.test", "secret"))
        self.assertEqual(found.account, "Ann@corp.test")
        self.servers.user = DirectoryUser(("ann",), ("readers",))
        asked = self.realm.recheck(found.account)
        assert asked is not None
        now = self.successResultOf(asked)
        self.assertEqual((now.name, now.groups), ("ann", {"readers"}))
        self.assertEqual(self.servers.asked[-1][1], "Ann@corp.test")

    def test_gone(self) -> None:
        """An account that is gone has no remembered password any more; others have theirs."""
        self.realm = self.make(looks_up=True)
        for name in ("ann", "bob"):
            self.servers.user = DirectoryUser((name,))
            self.successResultOf(self.realm.verify(name, "secret"))
        self.servers.user = None
        asked = self.realm.recheck("ann")
        assert asked is not None
        self.failureResultOf(asked, CredentialsRefused)
        self.assertEqual(self.refused("ann", "secret"), "the directory refuses it")
        self.assertEqual(self.successResultOf(self.realm.verify("bob", "secret")).name, "bob")

    def test_down(self) -> None:
        """Servers that are down say nothing about the user."""
        self.realm = self.make(looks_up=True)
        self.servers.down = {"ldaps://a": 0.0, "ldaps://b": 0.0}
        asked = self.realm.recheck("ann")
        assert asked is not None
        self.failureResultOf(asked, RealmUnavailable)
