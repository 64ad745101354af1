# SPDX-License-Identifier: Apache-2.0
"""The third door: commands that pass values on answer as the other two do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from click.testing import CliRunner, Result
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread, deferToThread

from amqproute.cli.command_error import ClientError
from amqproute.cli.commands import operation_command as module
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.cli.commands.management_request import _attributes
from amqproute.cli.main import amqproute as program
from amqproute.http.management_api import path_of
from amqproute.services.management_table import ENTITIES, OPERATIONS
from amqproute.values import Principal
from tests.cli.test_operation_commands import defined
from tests.http.doors import DoorsCase


class CommandDoorTests(DoorsCase):
    """Commands whose requests go to the node as messages do."""

    async def setUp(self) -> None:
        await super().setUp()
        self.who = "root"
        self.patch(module, "carry_out", self.carry_out)
        self.commands = {" ".join(words): command for words, command in defined()}

    def carry_out(
        self, _: AccessOptions, operation: str, kind: str, name: str, body: Mapping[str, object]
    ) -> Any:
        """Ask the node from the command's thread; refusals become errors of the command."""
        made: Any = reactor
        who = Principal("user", self.who)
        said = blockingCallFromThread(
            made,
            lambda: Deferred.fromCoroutine(
                self.by_amqp(operation, body, who=who, name=name, type=kind)
            ),
        )
        properties = {"statusCode": said.status, "statusDescription": said.words}
        return _attributes(properties, dict(said.attributes))

    async def run_command(self, words: str, *arguments: str) -> Result:
        """Run a command in a thread."""
        asked = [*words.split(), *arguments]
        # Not standalone: an error is raised instead of printed.
        done: Result = await deferToThread(
            CliRunner().invoke, program, asked, standalone_mode=False
        )
        return done

    async def test_refusals(self) -> None:
        """What is not there, and what somebody may not do, is refused in the same words."""
        for who in ("root", "viewer"):
            self.who = who
            for words, command in self.commands.items():
                declared = command.declared
                required = [each.name for each in declared.parameters if each.is_required]
                done = await self.run_command(
                    words, "nothing-there", *(["other-name"] * len(required))
                )
                assert isinstance(done.exception, ClientError), (words, done.output)
                operation, entity = OPERATIONS[declared.operation], ENTITIES[declared.kind]
                path = path_of(operation, entity).replace("{name}", quote("nothing-there"))
                body: Any = dict.fromkeys(required, "other-name")
                sent = b"" if operation.method == "DELETE" else body
                answer = await self.by_http(operation.method, path, sent, who=who)
                self.assertGreaterEqual(answer.status, 400, words)
                self.assertEqual(done.exception.code, f"management.{answer.status}", words)
                self.assertEqual(done.exception.words, answer.json()["detail"], words)

    async def test_results(self) -> None:
        """A change that a command makes is the one that the other doors make."""
        for name in ("a", "b"):
            await self.by_http("PUT", f"/api/v1/queues/{name}", {})
            await self.by_http("POST", "/api/v1/messages/publish", {"to": name, "body": "x"})
        for words, arguments, path, method in (
            ("queue purge", ("--dry-run",), "/api/v1/queues/b/purge", "POST"),
            ("queue delete", (), "/api/v1/queues/b", "DELETE"),
        ):
            done = await self.run_command(words, "a", *arguments, "--json")
            self.assertEqual(done.exit_code, 0, (words, done.output, done.exception))
            sent: object = {"dry-run": True} if arguments else b""
            answer = await self.by_http(method, path, sent)
            self.assertEqual(answer.status, 200, answer.body)
            shown, attributes = json.loads(done.output), answer.json()["attributes"]
            self.assertEqual(shown.keys(), attributes.keys(), words)
            self.assertEqual(shown["messages"], attributes["messages"], words)
        self.assertNotIn("a", self.app.broker.nodes)
