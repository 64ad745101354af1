# SPDX-License-Identifier: Apache-2.0
"""``amqproute token``: what it asks the daemon for, and what it prints."""

from __future__ import annotations

import json
from typing import Any

from amqproute.cli.command_error import CommandError
from tests.cli.test_operation_commands import CommandCase

ROW = {
    "name": "0123456789ab", "type": "token", "purpose": "graphs", "principal": "user:ann",
    "scope": ["read", "PURGE:a*"], "state": "valid", "created-ms": 0, "expires-ms": 86_400_000,
    "by": "uid:0", "used-ms": None,
}  # fmt: skip


class TokenTests(CommandCase):
    """Each command, with what the daemon would answer."""

    def setUp(self) -> None:
        super().setUp()
        self.answers = [{**ROW, "token": "amqproute_x_y"}] * 2
        self.rows = [ROW]

    def token(self, *words: str) -> Any:
        """Run a command."""
        done = self.run_command("token", *words)
        if done.exception is not None:
            raise done.exception
        return done

    def test_create(self) -> None:
        """The token alone is on standard output, to be put into a variable."""
        options = ("--for=user:ann", "--scope=read", "--scope=PURGE:a*", "--expires=1d")
        done = self.token("create", *options)
        self.assertEqual((done.exit_code, done.stdout), (0, "amqproute_x_y\n"))
        self.assertIn("user:ann, read PURGE:a*, until 1970-01-02 00:00 UTC", done.stderr)
        wanted = {"for": "user:ann", "scope": ["read", "PURGE:a*"], "expires-seconds": 86400}
        self.assertEqual(self.asked, [("CREATE-TOKEN", "token", "", wanted)])
        done = self.token("create", "--json")
        self.assertEqual(json.loads(done.stdout)["token"], "amqproute_x_y")
        wanted = {"scope": ["read"], "expires-seconds": 30 * 86400}
        self.assertEqual(self.asked[1][3], wanted)
        with self.assertRaises(CommandError):
            self.token("create", "--expires", "soon")

    def test_list_and_revoke(self) -> None:
        """The list has a line for each, and no secrets."""
        done = self.token("list")
        self.assertIn("0123456789ab", done.stdout)
        self.assertIn("read PURGE:a*", done.stdout)
        done = self.token("list", "--json")
        self.assertEqual(json.loads(done.stdout), {"tokens": [ROW]})
        done = self.token("revoke", "0123456789ab")
        self.assertEqual(done.stdout, "token 0123456789ab is revoked\n")
        self.assertEqual(self.asked[-1], ("REVOKE-TOKEN", "token", "0123456789ab", {}))
