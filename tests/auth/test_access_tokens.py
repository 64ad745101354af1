# SPDX-License-Identifier: Apache-2.0
"""Access tokens and their scopes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, execute
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth import access_tokens, file_replacement
from amqproute.auth.access_tokens import (
    FILE,
    MOST_OF_PRINCIPAL,
    MOST_WAITING,
    AccessToken,
    AccessTokens,
    TokenRefused,
    principal_named,
)
from amqproute.auth.token_scope import MOST_WORDS, TokenScope
from amqproute.errors import ConfigError
from amqproute.values import Principal

ANN = Principal("user", "ann")
READ = TokenScope.of(["read"])


def halves(text: str) -> tuple[str, str]:
    """Return the public part of a token, and its secret, which may have underscores."""
    prefix, token_id, secret = text.split("_", 2)
    return f"{prefix}_{token_id}", secret


class TokensTests(SynchronousTestCase):
    """Tokens in a directory."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.now_ms = 1000
        self.tokens = self.opened()

    def opened(self) -> AccessTokens:
        """Read the file again."""
        return AccessTokens(self.directory, lambda: self.now_ms, execute)

    def create(self, name: str = "a", principal: Principal = ANN) -> tuple[AccessToken, str]:
        """Make a token that is good for a minute."""
        return self.successResultOf(self.tokens.create(name, principal, READ, 60, "uid:0"))

    def test_kept_without_its_secret(self) -> None:
        """A token is found after a restart; its secret is nowhere in the file."""
        token, text = self.create("deploy")
        self.assertEqual(self.opened().find(text), token)
        file = self.directory / FILE
        self.assertNotIn(halves(text)[1], file.read_text())
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.assertEqual([each.name for each in self.directory.iterdir()], [FILE])

    def test_found_only_whole(self) -> None:
        """No other text is a token, and none of another token's halves."""
        _, text = self.create()
        _, other = self.create("b")
        swapped = f"{halves(text)[0]}_{halves(other)[1]}"
        for wrong in ("", "x", text[:-1], text + "a", text.upper(), swapped, f"{text}\n"):
            self.assertIsNone(self.tokens.find(wrong), wrong)

    def test_end(self) -> None:
        """A token ends at its time, or when it is revoked."""
        token, text = self.create()
        self.now_ms += 59_999
        self.assertIsNotNone(self.tokens.find(text))
        self.assertEqual(self.tokens.rows()[0]["used-ms"], 60_999)
        self.now_ms += 1
        self.assertIsNone(self.tokens.find(text))
        self.assertEqual(self.tokens.rows()[0]["state"], "expired")
        token, text = self.create()
        self.assertEqual(len(self.tokens), 1)  # the expired one makes room
        self.assertEqual(self.successResultOf(self.tokens.revoke(token.id)), token)
        self.assertIsNone(self.successResultOf(self.tokens.revoke(token.id)))
        self.assertIsNone(self.tokens.find(text))
        self.assertEqual(len(self.opened()), 0)

    def test_bounds(self) -> None:
        """A user has so many, and no more."""
        for _ in range(MOST_OF_PRINCIPAL):
            self.create()
        refused = self.tokens.create("a", ANN, READ, 60, "uid:0")
        self.failureResultOf(refused, TokenRefused)
        self.create(principal=Principal("user", "bob"))

    def test_a_disk_that_fails(self) -> None:
        """A token that cannot be stored is not made, one that cannot be removed stays."""
        token, text = self.create()
        moved = self.directory.with_name("moved")
        self.directory.rename(moved)
        refused = self.tokens.create("a", ANN, READ, 60, "uid:0")
        self.failureResultOf(refused, TokenRefused)
        self.failureResultOf(self.tokens.revoke(token.id), TokenRefused)
        self.assertIsNotNone(self.tokens.find(text))
        moved.rename(self.directory)

    def test_damaged_file(self) -> None:
        """The daemon does not start with a file that it cannot read."""
        for text in ("{", "[]", '{"tokens": {"a": {}}}', '{"tokens": 7}'):
            (self.directory / FILE).write_text(text)
            self.assertRaises(ConfigError, self.opened)

    def test_principals(self) -> None:
        """The principal of a token."""
        self.assertEqual(principal_named("user:ann"), ANN)
        self.assertEqual(str(principal_named("peer:B.example")), "peer:b.example")
        self.assertEqual(str(principal_named("uid:7")), "uid:7")
        for text in ("", "ann", "anonymous", "user:", "user:*", "uid:x", "peer:a\n", "group:a"):
            self.assertRaises(ValueError, principal_named, text)


class OneThread:
    """A thread that works when the test says so, and fails when it says so."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], None], Deferred[None]]] = []

    def __call__(self, work: Callable[[], None]) -> Deferred[None]:
        """Keep what it shall do."""
        done: Deferred[None] = Deferred()
        self.works.append((work, done))
        return done

    def work(self) -> Callable[[], None]:
        """Do what there is to do; return what tells the reactor."""
        ((work, done),) = self.works
        self.works.clear()
        try:
            work()
        except OSError as error:
            failure = error
            return lambda: done.errback(failure)
        return lambda: done.callback(None)


class ThreadTests(SynchronousTestCase):
    """The file is written in a thread, one change after the other."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.thread = OneThread()
        self.tokens = AccessTokens(self.directory, lambda: 1000, self.thread)

    def make(self, principal: Principal = ANN) -> Deferred[tuple[AccessToken, str]]:
        """Make a token."""
        return self.tokens.create("a", principal, READ, 60, "uid:0")

    def stored(self) -> AccessTokens:
        """Read what would be there after a crash."""
        return AccessTokens(self.directory, lambda: 1000, self.thread)

    def fail_sync(self) -> None:
        """Let the disk refuse to sync."""

        def fail(_: int) -> None:
            raise OSError(errno.EIO, "the disk is gone")

        self.patch(file_replacement.os, "fsync", fail)

    def made(self) -> tuple[AccessToken, str]:
        """Make a token, and wait for it."""
        making = self.make()
        self.thread.work()()
        return self.successResultOf(making)

    def test_nothing_in_the_reactor(self) -> None:
        """A token is shown when it is on disk and the reactor knows, not before."""
        making = self.make()
        self.assertEqual(list(self.directory.iterdir()), [])
        self.assertNoResult(making)
        tell = self.thread.work()
        self.assertEqual(len(self.stored()), 1)
        self.assertNoResult(making)
        self.assertEqual((len(self.tokens), self.tokens.rows()), (0, []))
        tell()
        token, text = self.successResultOf(making)
        self.assertEqual((self.tokens.find(text), self.stored().find(text)), (token, token))

    def test_synced(self) -> None:
        """The file and its name are synced before anybody hears of it."""
        synced: list[str] = []
        fsync, sync_path = file_replacement.os.fsync, file_replacement.sync_path

        def file_synced(descriptor: int) -> None:
            synced.append("file")
            fsync(descriptor)

        def path_synced(path: Any) -> None:
            self.assertTrue((self.directory / FILE).exists())
            synced.append(path.name)
            sync_path(path)

        self.patch(file_replacement.os, "fsync", file_synced)
        self.patch(file_replacement, "sync_path", path_synced)
        making = self.make()
        self.thread.work()
        self.assertEqual(synced[:2], ["file", self.directory.name])
        self.assertNoResult(making)

    def test_in_order(self) -> None:
        """Each change begins when the one before is stored, and knows of it."""
        self.patch(access_tokens, "MOST_OF_PRINCIPAL", 2)
        making = [self.make() for _ in range(3)]
        self.assertEqual(len(self.thread.works), 1)
        for number in (0, 1):
            self.assertNoResult(making[number])
            self.thread.work()()
            self.successResultOf(making[number])
            self.assertEqual(len(self.stored()), number + 1)
        self.failureResultOf(making[2], TokenRefused)
        self.assertEqual((len(self.tokens), len(self.stored()), self.thread.works), (2, 2, []))

    def test_failure(self) -> None:
        """A token that cannot be synced is not made; the next one does not bring it back."""
        making, other = self.make(), self.make()
        with_disk = file_replacement.os.fsync
        self.fail_sync()
        self.thread.work()()
        refused = self.failureResultOf(making, TokenRefused)
        self.assertIn("the disk is gone", str(refused.value))
        self.patch(file_replacement.os, "fsync", with_disk)
        self.thread.work()()
        token, _ = self.successResultOf(other)
        self.assertEqual([row["name"] for row in self.stored().rows()], [token.id])
        self.assertEqual([each.name for each in self.directory.iterdir()], [FILE])

    def test_revoked(self) -> None:
        """A token that is being revoked is refused; it is answered when the file says so."""
        token, text = self.made()
        revoking = self.tokens.revoke(token.id)
        again = self.tokens.revoke(token.id)
        self.assertIsNone(self.tokens.find(text))
        self.assertNoResult(revoking)
        tell = self.thread.work()
        self.assertEqual(len(self.stored()), 0)
        self.assertNoResult(revoking)
        tell()
        self.assertEqual(self.successResultOf(revoking), token)
        self.assertIsNone(self.successResultOf(again))
        self.assertIsNone(self.tokens.find(text))

    def test_revoking_fails(self) -> None:
        """A token that cannot be revoked is good again, and whoever asked hears of it."""
        token, text = self.made()
        revoking = self.tokens.revoke(token.id)
        self.fail_sync()
        self.thread.work()()
        self.failureResultOf(revoking, TokenRefused)
        self.assertEqual(self.tokens.find(text), token)
        self.assertEqual(self.stored().find(text), token)

    def test_nobody_waits(self) -> None:
        """A change goes on when its caller is gone: file and memory stay the same."""
        making = self.make()
        making.cancel()
        self.failureResultOf(making, CancelledError)
        self.thread.work()()
        self.assertEqual((len(self.tokens), len(self.stored())), (1, 1))
        (row,) = self.tokens.rows()
        revoking = self.tokens.revoke(str(row["name"]))
        revoking.cancel()
        self.fail_sync()
        self.thread.work()()
        self.failureResultOf(revoking, CancelledError)
        self.assertEqual(len(self.tokens), 1)

    def test_bound(self) -> None:
        """So many changes wait for the disk; one more is refused at once."""
        making = [self.make() for _ in range(MOST_WAITING + 1)]
        self.failureResultOf(self.make(), TokenRefused)
        for each in making:
            self.assertNoResult(each)
        while self.thread.works:
            self.thread.work()()
        self.assertEqual(len(self.tokens), MOST_OF_PRINCIPAL)
        self.failureResultOf(making[-1], TokenRefused)


class ScopeTests(SynchronousTestCase):
    """The scope of a token."""

    def test_words(self) -> None:
        """All, what only reads, operations, and operations on some entities."""
        for words, name, node, changes, is_covered in (
            (["all"], "DELETE", "orders", True, True),
            (["read"], "READ", "orders", False, True),
            (["read"], "DELETE", "orders", True, False),
            (["READ"], "DELETE", "orders", True, False),
            (["move"], "MOVE", "orders", True, True),
            (["MOVE"], "COPY", "orders", True, False),
            (["MOVE:orders*"], "MOVE", "orders/a", True, True),
            (["MOVE:orders*"], "MOVE", "other", True, False),
            (["MOVE:orders"], "MOVE", "orders/a", True, False),
            (["read", "PURGE:a"], "PURGE", "a", True, True),
        ):
            scope = TokenScope.of(words)
            self.assertEqual(scope.covers(name, node, changes=changes), is_covered, words)

    def test_wrong_words(self) -> None:
        """Meaningless scopes are refused."""
        for words in (
            [],
            [""],
            ["MOVE:"],
            ["MO VE"],
            ["M,N"],
            ["-MOVE"],
            ["X" * 400],
            ["A"] * (MOST_WORDS + 1),
        ):
            self.assertRaises(ValueError, TokenScope.of, words)
