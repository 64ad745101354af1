# SPDX-License-Identifier: Apache-2.0
"""``amqproute token``: what it asks the daemon for, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.command_error import CommandError
from amqproute.cli.commands import operation_command
from amqproute.cli.commands import token as command
from amqproute.cli.main import amqproute as program
from amqproute.services.management_table import OPERATIONS
from amqproute.services.value_declaration import first_fault

ROW = {
    "name": "0123456789ab", "type": "token", "purpose": "graphs", "principal": "user:ann",
    "scope": ["read", "PURGE:a*"], "state": "valid", "created-ms": 0, "expires-ms": 86_400_000,
    "by": "uid:0", "used-ms": None,
}  # fmt: skip


class TokenTests(SynchronousTestCase):
    """Each command, with what the daemon would answer."""

    def setUp(self) -> None:
        self.asked: list[tuple[str, str, Mapping[str, object]]] = []
        self.patch(command, "carry_out", self.carry_out)
        self.patch(operation_command, "carry_out", self.carry_out)
        self.patch(command, "entities", lambda access, kind: [ROW])

    def carry_out(
        self, access: object, operation: str, kind: str, name: str, attributes: Any = None
    ) -> Mapping[str, object]:
        """Take note of a request; its parameters are as declared."""
        self.asked.append((operation, name, attributes or {}))
        declared = OPERATIONS[operation].parameters or ()
        self.assertIsNone(first_fault(attributes or {}, declared))
        return {**ROW, "token": "amqproute_x_y"}

    def run_command(self, *words: str) -> Any:
        """Run a command."""
        return CliRunner().invoke(
            program, ["token", *words], catch_exceptions=False, standalone_mode=False
        )

    def test_create(self) -> None:
        """The token alone is on standard output, to be put into a variable."""
        done = self.run_command(
            "create",
            "--for",
            "user:ann",
            "--scope",
            "read",
            "--scope",
            "PURGE:a*",
            "--expires",
            "1d",
        )
        self.assertEqual((done.exit_code, done.stdout), (0, "amqproute_x_y\n"))
        self.assertIn("user:ann, read PURGE:a*, until 1970-01-02 00:00 UTC", done.stderr)
        wanted = {
            "for": "user:ann",
            "scope": ["read", "PURGE:a*"],
            "expires-seconds": 86400,
            "purpose": "",
        }
        self.assertEqual(self.asked, [("CREATE-TOKEN", "", wanted)])
        done = self.run_command("create", "--json")
        self.assertEqual(json.loads(done.stdout)["token"], "amqproute_x_y")
        self.assertEqual(self.asked[1][2]["expires-seconds"], 30 * 86400)
        with self.assertRaises(CommandError):
            self.run_command("create", "--expires", "soon")

    def test_list_and_revoke(self) -> None:
        """The list has a line for each, and no secrets."""
        done = self.run_command("list")
        self.assertIn("0123456789ab", done.stdout)
        self.assertIn("read PURGE:a*", done.stdout)
        done = self.run_command("list", "--json")
        self.assertEqual(json.loads(done.stdout), {"tokens": [ROW]})
        done = self.run_command("revoke", "0123456789ab")
        self.assertEqual(done.stdout, "token 0123456789ab is revoked\n")
        self.assertEqual(self.asked, [("REVOKE-TOKEN", "0123456789ab", {})])
