# SPDX-License-Identifier: Apache-2.0
"""Users who are gone are logged out: by a reload, and by asking their realms."""

from __future__ import annotations

from pathlib import Path

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.log_in_recheck import LogInRecheck
from amqproute.auth.outside_realm import (
    CredentialsRefused,
    NamedRealm,
    OutsideRealms,
    RealmUnavailable,
)
from amqproute.auth.users import UserFile
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal
from amqproute.wire.sasl_mechanisms import OutsideIdentity, ScramSecret
from tests.auth.test_outside_log_ins import Directory, Issuer

SECRET = ScramSecret.derive("pencil", salt=b"s" * 16, iterations=4096)
OTHER = ScramSecret.derive("pen", salt=b"s" * 16, iterations=4096)


class OpenLogIn:
    """A connection of a user."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.ended: list[str] = []
        self.renewed: list[Principal] = []

    def renew(self, principal: Principal) -> None:
        self.principal = principal
        self.renewed.append(principal)

    def end_log_in(self, words: str) -> None:
        self.ended.append(words)


def outside(name: str, *groups: str, realm: str = "ldap", host: str = "") -> Principal:
    """Return a user of a realm."""
    return Principal(
        "user", name, host=host, groups=frozenset(groups), realm=realm, account=f"{name}@corp"
    )


class RecheckCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.realms = OutsideRealms()
        self.directory = Directory()
        self.realms.adopt([NamedRealm("ldap", self.directory)], [Issuer()], False)
        self.users = UserFile(Path("users.yaml"), {"ann": SECRET, "eve": SECRET})
        self.open: list[OpenLogIn] = []
        self.recheck = LogInRecheck(self.clock, self.realms, self.users, lambda: self.open, 300.0)
        self.recheck.begin()
        self.addCleanup(self.recheck.stop)
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def observe(self, event: LogEvent) -> None:
        if event.get("log_namespace") == "amqproute.auth.log_in_recheck":
            self.lines.append(formatEvent(event))

    def log_in(self, principal: Principal) -> OpenLogIn:
        self.open.append(OpenLogIn(principal))
        return self.open[-1]


class ReloadTests(RecheckCase):
    """What a reload ends."""

    def reload(self, users: dict[str, ScramSecret]) -> None:
        apply = self.recheck.prepare(300.0)
        self.users.adopt(UserFile(Path("users.yaml"), users))
        apply()

    def test_file(self) -> None:
        """Users who are removed, and those with other passwords, are logged out; nobody else."""
        ann, eve = self.log_in(Principal("user", "ann")), self.log_in(Principal("user", "eve"))
        others = [
            self.log_in(each)
            for each in (
                ANONYMOUS_PRINCIPAL, Principal("peer", "ann"), Principal("uid", "1000"),
                outside("bob"), outside("carl", realm="oauth"),
            )
        ]  # fmt: skip
        self.reload({"ann": SECRET, "eve": SECRET, "new": SECRET})
        self.assertEqual((ann.ended, eve.ended), ([], []))
        self.reload({"ann": OTHER, "new": SECRET})
        self.assertEqual(ann.ended, ["the user has another password"])
        self.assertEqual(eve.ended, ["the user is not in the users file any more"])
        self.assertEqual([each.ended for each in others], [[]] * 5)
        self.assertIn("has ended 2 log-ins", self.lines[0])

    def test_name_of_the_file(self) -> None:
        """A user of a realm whose name the file has now was another one."""
        bob = self.log_in(outside("bob"))
        self.reload({"bob": SECRET})
        self.assertEqual(bob.ended, ["the name is that of a user of the users file now"])

    def test_realms(self) -> None:
        """A realm that is not used any more, and one that has other users now, lose theirs."""
        bob, carl = self.log_in(outside("bob")), self.log_in(outside("carl", realm="oauth"))
        self.realms.adopt([NamedRealm("ldap", self.directory, "x*")], [], False)
        self.reload({})
        self.assertEqual(bob.ended, ["the name is not one of the realm ldap any more"])
        self.assertEqual(carl.ended, ["the realm oauth is not used any more"])
        self.realms.adopt([], [], False)
        self.reload({})
        self.assertEqual(bob.ended[1:], ["the realm ldap is not used any more"])

    def test_interval(self) -> None:
        """A reload puts another interval in force, and 0 ends the rounds."""
        self.log_in(outside("bob"))
        self.recheck.prepare(10.0)()
        self.clock.advance(10.0)
        self.assertEqual(self.directory.rechecked, ["bob@corp"])
        self.recheck.prepare(0.0)()
        self.clock.advance(1000.0)
        self.assertEqual(len(self.directory.rechecked), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RoundTests(RecheckCase):
    """Realms are asked about their users."""

    def test_closed(self) -> None:
        """All log-ins of a closed account end, once in each interval, asked about once."""
        bobs = [self.log_in(outside("bob")) for _ in range(3)]
        ann = self.log_in(Principal("user", "ann"))
        self.directory.now = CredentialsRefused("the directory refuses it")
        self.clock.advance(299.0)
        self.assertEqual(self.directory.rechecked, [])
        self.clock.advance(1.0)
        self.assertEqual(self.directory.rechecked, ["bob@corp"])
        self.assertEqual([each.ended for each in bobs], [["the account of the user is closed"]] * 3)
        self.assertEqual(ann.ended, [])
        self.assertEqual(
            self.lines,
            ["ended 3 log-ins of user:bob, whose account is closed: the directory refuses it"],
        )

    def test_groups(self) -> None:
        """Other groups are put in force, in the virtual host of each connection."""
        here, there = self.log_in(outside("bob", "ops")), self.log_in(outside("bob", host="shop"))
        same = self.log_in(outside("bob", "readers"))
        self.directory.now = OutsideIdentity(
            "bob", "ldap", frozenset({"readers"}), account="bob@corp"
        )
        self.clock.advance(300.0)
        self.assertEqual(here.principal.groups, {"readers"})
        self.assertEqual((there.principal.host, there.principal.groups), ("shop", {"readers"}))
        self.assertEqual((same.renewed, same.ended, here.ended), ([], [], []))
        self.assertEqual(here.principal.account, "bob@corp")

    def test_another_user(self) -> None:
        """An account that has another name now is that of somebody else."""
        bob = self.log_in(outside("bob"))
        self.directory.now = OutsideIdentity("carl", "ldap")
        self.clock.advance(300.0)
        self.assertEqual(bob.ended, ["its account is that of another user now"])

    def test_unavailable(self) -> None:
        """A realm that cannot tell ends nothing, is not asked further, and is named once."""
        users = [self.log_in(outside(name)) for name in ("bob", "carl", "dora")]
        self.directory.now = RealmUnavailable("ldaps://a: refused")
        self.clock.advance(300.0)
        self.assertEqual(self.directory.rechecked, ["bob@corp"])
        self.clock.advance(300.0)
        self.assertEqual(len(self.directory.rechecked), 2)
        self.assertEqual([each.ended for each in users], [[], [], []])
        self.assertIn(
            "realm ldap cannot tell whether 3 users who have logged in are still there; they stay: "
            "ldaps://a: refused",
            self.lines[0],
        )
        self.directory.now = OutsideIdentity("bob", "ldap")
        self.clock.advance(300.0)
        self.assertEqual(len(self.directory.rechecked), 5)

    def test_cannot_tell(self) -> None:
        """A realm without the means is asked once in a round, and ends nothing."""
        users = [self.log_in(outside(name)) for name in ("bob", "carl")]
        self.clock.advance(300.0)
        self.assertEqual(self.directory.rechecked, ["bob@corp"])
        self.assertEqual([each.ended for each in users], [[], []])

    def test_one_at_a_time(self) -> None:
        """A slow realm has one question at a time, and one round; others are asked meanwhile."""
        slow = Directory()
        waiting: list[Deferred[OutsideIdentity]] = []

        def recheck(account: str) -> Deferred[OutsideIdentity]:
            waiting.append(Deferred())
            return waiting[-1]

        self.patch(slow, "recheck", recheck)
        named = [NamedRealm("slow", slow, "slow-*"), NamedRealm("ldap", self.directory)]
        self.realms.adopt(named, [], False)
        for number in range(100):
            self.log_in(outside(f"slow-{number}", realm="slow"))
        bob = self.log_in(outside("bob"))
        self.directory.now = CredentialsRefused("gone")
        self.clock.advance(300.0)
        self.assertEqual((len(waiting), len(bob.ended)), (1, 1))
        self.clock.advance(300.0)
        self.assertEqual(len(waiting), 1)
        waiting[0].errback(CredentialsRefused("gone"))
        self.assertEqual(len(waiting), 2)
        self.assertEqual(len(self.open[0].ended), 1)
        self.recheck.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(len(waiting), 2)

    def test_fault(self) -> None:
        """A fault of ours is logged, and the next round begins all the same."""
        self.log_in(outside("bob"))
        self.patch(self.directory, "recheck", lambda account: succeed(1 // len(account[8:])))
        self.clock.advance(300.0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.clock.advance(300.0)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
