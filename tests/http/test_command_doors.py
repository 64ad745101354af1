# SPDX-License-Identifier: Apache-2.0
"""The third door: commands that pass values on answer as the other two do."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from click.testing import CliRunner, Result
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread, deferToThread

from amqproute.cli.command_error import ClientError
from amqproute.cli.commands import operation_command as module
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.cli.commands.management_request import attributes_of_reply
from amqproute.cli.main import amqproute as program
from amqproute.http.management_api import forms, path_of
from amqproute.services.command_schema import OPERATIONS as COMMANDS
from amqproute.services.management_table import ENTITIES, OPERATIONS
from amqproute.values import Principal
from tests.cli.test_operation_commands import (
    WITHOUT_COMMAND,
    arguments_of,
    defined,
    named_operations,
)
from tests.http.doors import DoorsCase

NOT_AT_ODDS: Final = {
    "clock show": "there is always a clock",
    "contract show": "says more than the daemon",
    "exchange bind": "exchanges have one more way to be missing: their targets",
    "token create": "everybody may make tokens of their own",
    "transaction commit": "not enabled at this daemon",
    "transaction forget": "not enabled at this daemon",
    "transaction roll-back": "not enabled at this daemon",
}
"""Commands that are not refused, or in words of their own, and why."""

MAKING: Final = {"exchange declare", "policy set", "queue create"}
"""Commands that make what is not there."""


class CommandDoorTests(DoorsCase):
    """Commands whose requests go to the node as messages do."""

    async def setUp(self) -> None:
        await super().setUp()
        self.who = "root"
        self.last: tuple[str, str, str, Mapping[str, object], Mapping[str, object]] | None = None
        self.patch(module, "in_touch", self.in_touch)
        self.patch(module, "ask", self.ask)
        self.commands = {" ".join(words): command for words, command in defined()}

    def in_touch(
        self, _: AccessOptions, work: Callable[[Any], Awaitable[Any]], refusals: object
    ) -> Any:
        """Do the work of a command, which runs in a thread, in the thread of the reactor."""
        made: Any = reactor

        async def within() -> Any:
            return await work(None)

        return blockingCallFromThread(made, lambda: Deferred.fromCoroutine(within()))

    async def ask(
        self, _: object, operation: str, kind: str, name: str, body: Mapping[str, object],
        *, seconds: float | None = None, properties: Mapping[str, object] | None = None,
    ) -> Any:  # fmt: skip
        """Ask the node; refusals become errors of the command."""
        more = dict(properties or {})
        self.last = (operation, kind, name, body, more)
        said = await self.by_amqp(
            operation, body, who=Principal("user", self.who), name=name, type=kind, **more
        )
        answer = {"statusCode": said.status, "statusDescription": said.words}
        return attributes_of_reply(answer, dict(said.attributes), kind)

    async def run_command(self, words: str, *arguments: str) -> Result:
        """Run a command in a thread."""
        asked = [*words.split(), *arguments]
        # Not standalone: an error is raised instead of printed.
        done: Result = await deferToThread(
            CliRunner().invoke, program, asked, standalone_mode=False
        )
        return done

    async def by_http_as_last(self) -> Any:
        """Ask by HTTP what the last command has asked the node."""
        assert self.last is not None
        operation, kind, name, body, properties = self.last
        declared = OPERATIONS[operation]
        path = path_of(declared, ENTITIES.get(kind) if not declared.path else None)
        in_query: dict[str, object] = {
            key: value for key, value in properties.items() if key == "or-assert"
        }
        if declared.method in ("GET", "DELETE"):
            in_query |= body
        if name and "{name}" not in path and declared.subject:
            in_query["name"] = name
        target = path.replace("{name}", quote(name, safe=""))
        if in_query:
            pairs = (
                f"{key}={quote(str(json.dumps(value)).strip(chr(34)))}"
                for key, value in in_query.items()
            )
            target += "?" + "&".join(pairs)
        sent: object = b"" if declared.method in ("GET", "DELETE") else dict(body)
        return await self.by_http(declared.method, target, sent, who=self.who)

    async def test_refusals(self) -> None:
        """What is not there, and what somebody may not do, is refused in the same words."""
        refused = set()
        for who in ("root", "viewer"):
            self.who = who
            for words, command in self.commands.items():
                if words in NOT_AT_ODDS or (who == "root" and words in MAKING):
                    continue
                declared = command.declared
                more = arguments_of(declared, all_options=False)
                if any(each.name == "ids" for each in declared.parameters) and not more:
                    more = ["--to", "nothing-there.example"]
                done = await self.run_command(
                    words, *(each.replace("orders", "nothing-there") for each in more)
                )
                answer = await self.by_http_as_last()
                if done.exception is None:
                    self.assertLess(answer.status, 400, (who, words, answer.body))
                    continue
                refused.add(words)
                assert isinstance(done.exception, ClientError), (words, done.exception)
                self.assertEqual(done.exception.code, f"management.{answer.status}", words)
                self.assertEqual(done.exception.words, answer.json()["detail"], words)
        never = self.commands.keys() - refused - NOT_AT_ODDS.keys()
        self.assertEqual(never, set())

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

    async def test_moves(self) -> None:
        """Bulk operations answer by a command as by HTTP; their parts are put together."""
        for _ in range(3):
            await self.by_http("POST", "/api/v1/messages/publish", {"to": "orders", "body": "x"})
        done = await self.run_command("queue", "move", "orders", "other", "--limit", "2", "--json")
        self.assertEqual(json.loads(done.output)["messages"], 2, done.exception)
        listed = await self.run_command("queue", "messages", "other", "--json")
        rows = json.loads(listed.output)["messages"]
        answer = await self.by_http("GET", "/api/v1/messages?name=other")
        self.assertEqual([row["id"] for row in rows], [
            row["id"] for row in answer.json()["messages"]
        ])  # fmt: skip
        self.assertEqual(len(rows), 2)


class ReachTests(DoorsCase):
    """Every operation at every door."""

    further: Mapping[str, Any] = {"distributed-transactions": {"enabled": True}}

    def test_every_door(self) -> None:
        """Each operation is there by AMQP and by HTTP, and has a command or a reason."""
        by_http = {operation.name for operation, _ in forms()}
        by_amqp = {*self.management.operations, *COMMANDS}
        by_command = {command.declared.operation for _, command in defined()} | named_operations()
        for name in OPERATIONS:
            self.assertIn(name, by_http)
            self.assertIn(name, by_amqp)
            self.assertNotEqual(name in by_command, name in WITHOUT_COMMAND, name)
