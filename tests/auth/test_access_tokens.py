# SPDX-License-Identifier: Apache-2.0
"""Access tokens and their scopes."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.access_tokens import (
    FILE,
    MOST_OF_PRINCIPAL,
    AccessTokens,
    TokenRefused,
    principal_named,
)
from amqproute.auth.token_scope import MOST_WORDS, TokenScope
from amqproute.errors import ConfigError
from amqproute.values import Principal

ANN = Principal("user", "ann")
READ = TokenScope.of(["read"])


class TokensTests(SynchronousTestCase):
    """Tokens in a directory."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.now_ms = 1000
        self.tokens = self.opened()

    def opened(self) -> AccessTokens:
        """Read the file again."""
        return AccessTokens(self.directory, lambda: self.now_ms)

    def test_kept_without_its_secret(self) -> None:
        """A token is found after a restart; its secret is nowhere in the file."""
        token, text = self.tokens.create("deploy", ANN, READ, 60, "uid:0")
        self.assertEqual(self.opened().find(text), token)
        file = self.directory / FILE
        self.assertNotIn(text.rpartition("_")[2], file.read_text())
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)
        self.assertEqual([each.name for each in self.directory.iterdir()], [FILE])

    def test_found_only_whole(self) -> None:
        """No other text is a token, and none of another token's halves."""
        _, text = self.tokens.create("a", ANN, READ, 60, "uid:0")
        _, other = self.tokens.create("b", ANN, READ, 60, "uid:0")
        swapped = text.rpartition("_")[0] + "_" + other.rpartition("_")[2]
        for wrong in ("", "x", text[:-1], text + "a", text.upper(), swapped, f"{text}\n"):
            self.assertIsNone(self.tokens.find(wrong), wrong)

    def test_end(self) -> None:
        """A token ends at its time, or when it is revoked."""
        token, text = self.tokens.create("a", ANN, READ, 60, "uid:0")
        self.now_ms += 59_999
        self.assertIsNotNone(self.tokens.find(text))
        self.assertEqual(self.tokens.rows()[0]["used-ms"], 60_999)
        self.now_ms += 1
        self.assertIsNone(self.tokens.find(text))
        self.assertEqual(self.tokens.rows()[0]["state"], "expired")
        token, text = self.tokens.create("a", ANN, READ, 60, "uid:0")
        self.assertEqual(len(self.tokens), 1)  # the expired one makes room
        self.assertEqual(self.tokens.revoke(token.id), token)
        self.assertIsNone(self.tokens.revoke(token.id))
        self.assertIsNone(self.tokens.find(text))
        self.assertEqual(len(self.opened()), 0)

    def test_bounds(self) -> None:
        """A user has so many, and no more."""
        for _ in range(MOST_OF_PRINCIPAL):
            self.tokens.create("a", ANN, READ, 60, "uid:0")
        self.assertRaises(TokenRefused, self.tokens.create, "a", ANN, READ, 60, "uid:0")
        self.tokens.create("a", Principal("user", "bob"), READ, 60, "uid:0")

    def test_a_disk_that_fails(self) -> None:
        """A token that cannot be stored is not made, one that cannot be removed stays."""
        token, text = self.tokens.create("a", ANN, READ, 60, "uid:0")
        moved = self.directory.with_name("moved")
        self.directory.rename(moved)
        self.assertRaises(TokenRefused, self.tokens.create, "a", ANN, READ, 60, "uid:0")
        self.assertRaises(TokenRefused, self.tokens.revoke, token.id)
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
