# SPDX-License-Identifier: Apache-2.0
"""``amqproute config show``: what it asks the daemon for, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.command_error import NEGATIVE, UNREACHABLE, ClientError
from amqproute.cli.commands import config as command
from amqproute.cli.main import amqproute
from amqproute.services.management_table import OPERATIONS
from amqproute.services.value_declaration import first_fault


def row(key: str, value: object, origin: str, place: str | None, **more: str) -> dict[str, object]:
    """Return a value as the daemon answers it."""
    return {"key": key, "value": value, "default": None, "origin": origin, "place": place, **more}


FACTS = {
    "version": "v1",
    "files": ["/e/a.yaml", "/e/conf.d/b.yaml"],
    "settings": {"relay": {"window": 7}},
    "values": [
        row("relay.window", 7, "file", "/e/a.yaml:2"),
        row("domains", "${D}", "environment", "/e/a.yaml:3"),
        row("tls.trust", "%d/ca.pem", "credential", "/e/a.yaml:4"),
        row("auto-create", False, "default", None),
        row('routes."g.example"', {"via": "amqps://g"}, "command", None, **{"made-by": "user:ann"}),
    ],
}


class ShowTests(SynchronousTestCase):
    """The command, with what the daemon would answer."""

    def setUp(self) -> None:
        self.asked: list[Mapping[str, object]] = []
        self.error: ClientError | None = None
        self.patch(command, "carry_out", self.carry_out)
        self.file = Path(self.mktemp()).absolute()
        self.file.write_text("relay: {window: 5}\n")

    def carry_out(
        self, access: object, operation: str, kind: str, name: str, attributes: Any
    ) -> Mapping[str, object]:
        """Take note of a request; its parameters are as declared."""
        self.assertEqual(operation, "CONFIG-READ")
        self.asked.append(attributes)
        self.assertIsNone(first_fault(attributes, OPERATIONS[operation].parameters or ()))
        if self.error is not None:
            raise self.error
        return FACTS

    def run_command(self, *words: str) -> Any:
        """Run the command."""
        return CliRunner().invoke(
            command.config, ["show", *words], catch_exceptions=False, **amqproute.context_settings
        )

    def test_text(self) -> None:
        """A line for each value with its origin, and the files at the end."""
        done = self.run_command("--changed")
        self.assertEqual(self.asked, [{"changed": True}])
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "SETTING\tVALUE\tFROM",
                "relay.window\t7\t/e/a.yaml:2",
                "domains\t${D}\tenvironment, /e/a.yaml:3",
                "tls.trust\t%d/ca.pem\tcredential, /e/a.yaml:4",
                "auto-create\tfalse\tdefault",
                'routes."g.example"\tvia: amqps://g\tcommand of user:ann',
                "5 values; in force: /e/a.yaml, /e/conf.d/b.yaml",
            ],
        )

    def test_json(self) -> None:
        """All that the daemon answers."""
        done = self.run_command("--json")
        self.assertEqual(self.asked, [{"changed": False}])
        self.assertEqual(json.loads(done.stdout), {"source": "in force", **FACTS})

    def test_files(self) -> None:
        """Without a daemon, and on request, the files are read; another refusal is one."""
        done = self.run_command("--changed", "--files", "--config", str(self.file))
        self.assertEqual(self.asked, [])
        self.assertEqual(
            done.stdout.splitlines()[1:],
            [f"relay.window\t5\t{self.file}:1", f"1 value; in the files: {self.file}"],
        )
        self.error = ClientError(UNREACHABLE, "connect.refused", "nobody listens")
        done = self.run_command("--changed", "--json", "--config", str(self.file))
        self.assertIn("nobody listens; these are the settings of the files", done.stderr)
        self.assertEqual(json.loads(done.stdout)["source"], "in the files")
        with self.assertRaises(ClientError):
            self.run_command("--url", "amqp://127.0.0.1:1")
        self.error = ClientError(NEGATIVE, "management.403", "no right")
        with self.assertRaises(ClientError):
            self.run_command("--config", str(self.file))
