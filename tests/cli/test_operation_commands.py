# SPDX-License-Identifier: Apache-2.0
"""Commands and the definition of management agree: none has what the other does not know."""

from __future__ import annotations

import ast
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.cli.command_error import ClientError
from amqproute.cli.commands import list_command, management_request
from amqproute.cli.commands import operation_command as module
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.cli.commands.list_command import EntityListCommand
from amqproute.cli.commands.operation_command import (
    CommandOption,
    DefinedCommand,
    OperationCommand,
)
from amqproute.cli.main import amqproute as program
from amqproute.services.management_table import ENTITIES, OPERATIONS
from amqproute.services.value_declaration import ValueDeclaration, ValueType, first_fault

COMMANDS: Final = Path(amqproute.__file__).parent / "cli"

WITHOUT_COMMAND: Final = {
    "GET-TYPES": "a command knows the types",
    "GET-OPERATIONS": "a command knows the operations",
    "GET-ATTRIBUTES": "a command knows the attributes",
    "ASSERT": "lines of `batch` have it",
    "HOLD": "`hold --to` does so for a hop",
    "RELEASE": "`release` ends the holds of `hold`, whatever they hold",
    "RETRY-NOW": "`retry --to` does so with the messages of a hop",
    "EXPIRE": "`expire --to` does so with the messages of a hop",
    "TEST-PEER": "`peer test` runs in the command, with the configuration in the file",
    "PUBLISH-MESSAGE": "`send` is a publisher",
    "EXPLAIN": "`explain` decides by the configuration in the file",
    "TAIL-JOURNAL": "`journal tail` reads the files",
    "CONFIG-CHECK": "`check` reads the file",
    "CONFIG-PLAN": "`check` reads the file",
    "CONFIG-RELOAD": "a service manager reloads, with SIGHUP",
}
"""Operations that no command asks for, and why."""

BY_HAND: Final = {
    "batch": "a text with any number of commands",
    "bench ": "a measurement",
    "certs ": "files",
    "check": "files, without a daemon",
    "config show": "the files as well, where no daemon runs",
    "connection show": "a connection and its links, two requests",
    "definitions ": "plans in RabbitMQ's format, several requests",
    "demo": "daemons of its own",
    "dns ": "the name server, without a daemon",
    "doctor": "files, checks and tests of peers together",
    "drain": "begins, and asks until it is done",
    "explain": "the daemon's decisions by the files",
    "health": "the output and exit codes of a plug-in for Nagios",
    "journal ": "files",
    "peer show": "a peer, its connections and what the DNS said, several requests",
    "peer test": "connections of its own",
    "pipeline ": "files, with Spark",
    "queue shape": "columns and a line of sums, both by the rows",
    "receive": "a consumer",
    "release": "several holds, each with its answer",
    "resolve": "the name server, without a daemon",
    "send": "a publisher",
    "serve": "the daemon",
    "status": "five lists and an operation, judged together",
    "store ": "files",
    "user ": "a file",
}
"""Commands that are not made from the definition, or how they begin, and what they work on."""

COMMON: Final = {"url", "trust", "config", "as_json", "vhost", None}
"""Options that are no parameters of operations."""

FACTS: Final[Mapping[str, object]] = {
    "name": "orders", "type": "queue", "exchange-type": "topic", "messages": 3, "bytes": 9,
    "refused": 0, "refused-because": "", "waiting": 0, "held": 0, "freed": 0, "missing": [],
    "samples": [], "targets": {}, "queues": [], "to": "", "reason": "", "in-flight": [],
    "state": "fits", "now": "", "wall": "", "jump-ms": 0, "cursor": "", "token": "t",
    "principal": "p", "scope": [], "expires-ms": 1, "id": 7, "queue": "orders", "age-ms": 0,
    "cause": "", "description": "", "next": [], "at-bound-seconds": {},
}  # fmt: skip
"""Attributes of an answer that every command can print."""


def all_commands(
    command: click.Command = program, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that are no groups, with their words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None, name
        yield from all_commands(found, (*words, name))


def defined() -> Iterator[tuple[tuple[str, ...], DefinedCommand]]:
    """Yield the commands that are made from the definition of an operation, with their words."""
    for words, command in all_commands():
        if isinstance(command, DefinedCommand):
            yield tuple(words.split()), command


def named_operations() -> set[str]:
    """Return the operations that the sources of the commands name."""
    found = set()
    for path in COMMANDS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in OPERATIONS:
                found.add(node.value)
    return found


def sample(value: ValueDeclaration, how: CommandOption) -> str:
    """Return a value as it is written on the command line."""
    if value.choices:
        return value.choices[0]
    if how.read is not None:
        return "2h"
    is_number = value.type in (ValueType.NUMBER, ValueType.NUMBERS)
    return str(value.least or 7) if is_number else "other"


def arguments_of(declared: OperationCommand, *, all_options: bool) -> list[str]:
    """Return the subject, the arguments that are needed, and all options if they are wanted."""
    inputs = declared.inputs
    arguments = [] if not inputs.subject else ["7" if inputs.subject == "ID" else "orders"]
    options: list[str] = []
    for each in declared.parameters:
        how = inputs.options.get(each.name, CommandOption())
        shown = how.shown or f"--{each.name}"
        if module._is_argument(each, how):
            if each.type is not ValueType.NUMBERS or all_options:
                arguments.append(sample(each, how))
        elif all_options or each.is_required:
            is_flag = each.type is ValueType.BOOLEAN or how.values is not None
            options += [shown] if is_flag else [shown, sample(each, how)]
    if inputs.is_free and (all_options or declared.operation == "UPDATE"):
        options += ["--option", "capacity=7"]
    return [*arguments, *options]


class CommandCase(SynchronousTestCase):
    """Commands whose requests are noted and answered at once."""

    def setUp(self) -> None:
        self.asked: list[tuple[str, str, str, Mapping[str, object]]] = []
        self.properties: list[Mapping[str, object]] = []
        self.answers: list[Mapping[str, object]] = []
        self.rows: list[Mapping[str, object]] = []
        for each in (module, list_command):
            self.patch(each, "in_touch", self.in_touch)
        self.patch(module, "ask", self.ask)
        self.patch(list_command, "query", self.query)

    def in_touch(
        self, _: AccessOptions, work: Callable[[Any], Awaitable[Any]], refusals: object = None
    ) -> Any:
        """Do the work without a connection."""
        running: Any = work(None)
        try:
            running.send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("it waits for something")

    async def ask(
        self, _: object, operation: str, kind: str, name: str, body: Mapping[str, object],
        *, seconds: float | None = None, properties: Mapping[str, object] | None = None,
    ) -> dict[str, object]:  # fmt: skip
        """Take note of a request."""
        self.asked.append((operation, kind, name, dict(body)))
        self.properties.append(properties or {})
        facts = dict(self.answers.pop(0) if self.answers else FACTS)
        if operation == "LIST-MESSAGES" and isinstance(facts["messages"], int):
            facts["messages"] = []
        return facts

    async def query(self, _: object, kind: str, vhost: str | None = None) -> list[Any]:
        """Take note of a question."""
        self.asked.append(("QUERY", kind, vhost or "", {}))
        return [dict(row) for row in self.rows]

    def run_command(self, *words: str) -> Result:
        """Run a command."""
        return CliRunner().invoke(program, list(words), standalone_mode=False)


class DefinedCommandTests(CommandCase):
    """Commands made from the definition."""

    def test_there(self) -> None:
        """They are in the program, for operations and types that exist."""
        found = {" ".join(words): command.declared for words, command in defined()}
        self.assertGreaterEqual(len(found), 34)
        for words, each in found.items():
            operation = OPERATIONS[each.operation]
            if each.kind or not operation.path:
                self.assertIn(each.kind, ENTITIES, words)
            has_subject = bool(each.inputs.subject or "name" in each.inputs.fixed)
            self.assertGreaterEqual(has_subject, bool(operation.subject), words)
            self.assertTrue(not operation.kinds or each.kind in operation.kinds, words)

    def test_parameters(self) -> None:
        """Each parameter is there with its bounds and choices, and no other one."""
        for words, command in defined():
            declared = command.declared
            own = [each(lambda: None) for each in declared.inputs.own]
            not_shared = {each.name for one in own for each in one.__click_params__}
            shown = {
                each.name: each
                for each in command.params
                if each.name not in COMMON | not_shared | {"options"}
            }
            self.assertEqual("subject" in shown, bool(declared.inputs.subject), words)
            shown.pop("subject", None)
            parameters = {each.name: each for each in declared.parameters}
            names = {name: f"given_{name.replace('-', '_')}" for name in parameters}
            self.assertEqual({*names.values()}, {*shown}, words)
            for name, value in parameters.items():
                found: Any = shown[names[name]]
                how = declared.inputs.options.get(name, CommandOption())
                if isinstance(found, click.Option):
                    self.assertEqual(found.opts, [how.shown or f"--{name}"], words)
                    is_flag = value.type is ValueType.BOOLEAN or how.values is not None
                    self.assertEqual(found.is_flag, is_flag, name)
                    said = how.help or f"{value.does}."
                    self.assertEqual(str(found.help).lower(), said.lower(), name)
                if value.type is ValueType.NUMBER and value.least and how.read is None:
                    most = None if name == "count" else value.most
                    self.assertEqual((found.type.min, found.type.max), (value.least, most))
                if value.choices and how.values is None:
                    self.assertEqual(tuple(found.type.choices), tuple(value.choices))

    def test_names(self) -> None:
        """What a command says about parameters is about parameters that exist."""
        for words, command in defined():
            inputs = command.declared.inputs
            entity = ENTITIES.get(command.declared.kind)
            there = {each.name for each in module.parameters_of(
                command.declared.declaration, entity)}  # fmt: skip
            there |= {"name", "or-assert"}
            named = {*inputs.options, *inputs.fixed, *inputs.without}
            self.assertEqual(named - there, set(), words)

    def test_requests(self) -> None:
        """With all parameters, and with as few as possible, the definition takes the request."""
        for words, command in defined():
            declared = command.declared
            parameters = module.parameters_of(
                declared.declaration, ENTITIES.get(declared.kind or "queue")
            )
            for all_options in (False, True):
                more = arguments_of(declared, all_options=all_options)
                if "messages" in words and all_options:
                    more.remove("orders")  # goes without --to
                if any(each.name == "all" for each in declared.parameters):
                    more = [each for each in more if each != "--all"] or ["--all", "--yes"]
                done = self.run_command(*words, *more)
                self.assertEqual(done.exit_code, 0, (words, done.output, done.exception))
                operation, kind, _, body = self.asked.pop()
                self.assertEqual(operation, declared.operation, words)
                self.assertEqual(kind, declared.kind, words)
                self.assertIsNone(
                    first_fault(body, parameters, is_open=declared.kind == "policy"), (words, body)
                )
                if all_options:
                    wanted = {each.name for each in declared.parameters} - {"all", "or-assert"}
                    self.assertLessEqual(wanted, {*body}, words)

    def test_hosts(self) -> None:
        """--vhost places names of nodes, and is a parameter where the operation has it."""
        self.run_command("queue", "rename", "a", "b", "--vhost", "shop")
        self.assertEqual(
            self.asked.pop(), ("RENAME", "queue", "//shop/a", {"new-name": "//shop/b"})
        )
        self.run_command("link", "close", "a", "--vhost", "shop", "--connection", "c")
        body = {"connection": "c", "virtual-host": "shop"}
        self.assertEqual(self.asked.pop(), ("DELETE", "link", "a", body))

    def test_kinds(self) -> None:
        """An option may choose the entity type."""
        for words, kind in (
            (("queue", "create", "a"), "queue"),
            (("queue", "create", "a", "--type", "topic"), "topic"),
            (("policy", "delete", "a"), "policy"),
            (("policy", "delete", "a", "--operator"), "operator-policy"),
        ):
            self.assertEqual(self.run_command(*words).exit_code, 0)
            self.assertEqual(self.asked.pop()[1], kind, words)

    def test_values(self) -> None:
        """Flags with two values, times, and options as in the configuration."""
        self.run_command("exchange", "declare", "e", "--type", "topic", "--transient")
        self.assertEqual(
            self.asked.pop()[3],
            {"type": "topic", "durable": False, "auto-delete": False, "internal": False},
        )
        self.assertEqual(self.properties.pop(), {"or-assert": True})
        self.run_command("requeue", "dead", "7", "8", "--older-than", "2h")
        self.assertEqual(self.asked.pop()[3], {"ids": [7, 8], "older-than-ms": 7_200_000})
        words = ("queue", "create", "q", "--or-assert")
        self.run_command(*words, *(f"--option={each}" for each in ("ttl=60", "a=null", "b=[x]")))
        self.assertEqual(self.asked.pop()[3], {"ttl": 60, "a": None, "b": ["x"]})
        self.assertEqual(self.properties.pop(), {"or-assert": True})
        self.run_command("queue", "create", "q", "--option=name=x", "--option=or-assert=true")
        self.assertEqual(self.asked.pop()[2:], ("q", {"name": "x", "or-assert": True}))
        self.assertEqual(self.properties.pop(), {})

    def test_wrong_usage(self) -> None:
        """It is refused before anything is asked."""
        for words, code in (
            (("delete",), "usage.which"),
            (("delete", "--where", ""), "usage.which"),
            (("delete", "--all"), "usage.all"),
            (("delete", "--all", "--to", "a", "--yes"), "usage.all"),
            (("hold", "7", "--for", "1h", "--until", "2040-01-01"), "usage.until"),
            (("hold", "7", "--until", "2001-01-01"), "usage.until"),
            (("hold", "7", "--until", "noon"), "usage.until"),
            (("hold", "7", "--for", "long"), "usage.time"),
            (("requeue", "dead", "--newer-than", "x"), "usage.time"),
            (("queue", "messages", "a", "--to", "b"), "usage.which"),
            (("queue", "messages", "--vhost", "b"), "usage.which"),
            (("queue", "update", "a", "--option", "x"), "usage.option"),
        ):
            done = self.run_command(*words)
            self.assertEqual(getattr(done.exception, "code", None), code, words)
        self.assertEqual(self.asked, [])

    def test_output(self) -> None:
        """A line for people, or the attributes as JSON."""
        done = self.run_command("queue", "purge", "orders", "--dry-run")
        self.assertEqual(done.output, "orders: 3 messages would be deleted\n")
        done = self.run_command("queue", "purge", "orders", "--json")
        self.assertIn('"messages": 3', done.output)

    def test_types(self) -> None:
        """Numbers and choices of a definition are checked before anything is asked."""
        parameters = [
            ValueDeclaration("limit", ValueType.NUMBER, "at most so many", least=1, most=5),
            ValueDeclaration("mode", ValueType.TEXT, "how", choices=("copy", "move")),
            ValueDeclaration("cursor", ValueType.TEXT, "where to go on"),
        ]
        self.patch(module, "parameters_of", lambda *_: parameters)
        command = module.operation_command(
            "try", OperationCommand("PURGE", "queue", "Try it.", lambda _: "done")
        )
        for options, code in (
            (["--limit", "5", "--mode", "copy"], 0),
            (["--limit", "6"], 2),
            (["--limit", "x"], 2),
            (["--mode", "swap"], 2),
            (["--cursor", "x"], 2),
        ):
            done = CliRunner().invoke(command, ["orders", *options])
            self.assertEqual(done.exit_code, code, (options, done.output))
        self.assertEqual(len(self.asked), 1)
        self.assertEqual(self.asked[0][3], {"limit": 5, "mode": "copy"})


class BulkTests(CommandCase):
    """Operations that are carried out part by part."""

    def parts(self, *parts: Mapping[str, object]) -> None:
        """Have requests answered by these, with cursors; those to come by the last."""
        last = len(parts) - 1
        self.answers = [
            {**FACTS, **each, "cursor": "" if place == last else f"c{place}"}
            for place, each in enumerate(parts)
        ]

    def test_sums(self) -> None:
        """Numbers are added, lists joined, and a few samples shown."""
        rows = [{"id": number} for number in range(4)]
        self.parts(
            {"messages": 4, "queues": ["b", "a"], "samples": rows, "refused-because": "full"},
            {"messages": 4, "queues": ["a"], "samples": rows, "refused": 2},
        )
        done = self.run_command("expire", "--to", "b.example", "--reason", "late", "--json")
        self.assertEqual(done.return_value, 1)
        facts = json.loads(done.output)
        self.assertEqual((facts["messages"], facts["refused"]), (8, 2))
        self.assertEqual((facts["queues"], len(facts["samples"])), (["a", "b"], 5))
        self.assertEqual(facts["refused-because"], "full")
        self.assertNotIn("cursor", facts)
        sent = {"to": "b.example", "reason": "late"}
        self.assertEqual([each[3] for each in self.asked], [sent, {**sent, "cursor": "c0"}])

    def test_targets(self) -> None:
        """The counts by target are added as well."""
        self.parts({"targets": {"a": 1, "b": 2}}, {"targets": {"b": 3}})
        done = self.run_command("requeue", "dead")
        self.assertEqual(done.output, "6 messages requeued (18 bytes)\n  1 to a\n  5 to b\n")

    def test_limit(self) -> None:
        """The rest of a limit is asked for, and then nothing."""
        self.parts({"messages": 3}, {"messages": 2}, {"messages": 9})
        done = self.run_command("queue", "move", "a", "b", "--limit", "5")
        self.assertEqual(done.output, "5 messages moved\n")
        self.assertEqual([each[3]["limit"] for each in self.asked], [5, 2])

    def test_count(self) -> None:
        """A list longer than an answer is asked for within its bounds."""
        page = [{"id": number, "state": "waiting"} for number in range(500)]
        self.parts({"messages": page}, {"messages": page[:100]}, {"messages": page})
        done = self.run_command("queue", "messages", "a", "--count", "600", "--json")
        self.assertEqual([each[3]["count"] for each in self.asked], [500, 100])
        facts = json.loads(done.output)
        self.assertEqual((len(facts["messages"]), facts["more"]), (600, True))

    def test_hold(self) -> None:
        """A hold is one answer; of a dry run the messages are counted."""
        self.parts({"name": "h1", "reason": "audit", "missing": [8], "in-flight": [7]})
        done = self.run_command("hold", "7", "8", "--reason", "audit")
        self.assertEqual((done.stdout, done.return_value), ("h1: audit\n", 1))
        self.assertIn("no message on its way has this id: 8", done.stderr)
        self.assertIn("in flight, and held only if the peer gives it back: 7", done.stderr)
        done = self.run_command("hold", "--all", "--dry-run")
        self.assertEqual(
            (done.output, done.return_value), ("3 messages would be held (9 bytes)\n", 0)
        )


class ListTests(CommandCase):
    """Commands made from a declaration of columns."""

    def lists(self) -> dict[str, EntityListCommand]:
        """Return the commands by their words."""
        return {
            words: command
            for words, command in all_commands()
            if isinstance(command, EntityListCommand)
        }

    def test_there(self) -> None:
        """Each lists types that exist; its columns are attributes that these have."""
        found = self.lists()
        self.assertGreaterEqual(len(found), 11)
        for words, command in found.items():
            table = command.declared.table
            self.assertLessEqual(table.cells.keys(), {*table.headings}, words)
            self.assertLessEqual({*table.spare.split()}, {*table.headings}, words)
            for kind in command.declared.kinds.split():
                entity = ENTITIES[kind]
                known = {each.name for each in entity.attributes}
                if not entity.is_open:
                    self.assertLessEqual({*table.attributes.values()} - {"kind"}, known, words)

    def test_empty(self) -> None:
        """Without rows it prints the headings, and an empty list."""
        for words, command in self.lists().items():
            done = self.run_command(*words.split())
            headings = "\t".join(command.declared.table.headings)
            self.assertEqual(done.output, f"{headings}\n", words)
            done = self.run_command(*words.split(), "--json")
            self.assertEqual(json.loads(done.output), {command.declared.key: []}, words)
            asked = [each[1] for each in self.asked]
            self.assertEqual({*asked}, {*command.declared.kinds.split()}, words)
            self.asked.clear()

    def test_rows(self) -> None:
        """They are sorted and restricted; ages and empty texts become words."""
        self.rows = [
            {"name": "b", "waiting": 1, "holds": ["h1", "h2"], "host": ""},
            {"name": "a", "waiting": 2},
        ]
        done = self.run_command("peer", "ls")
        lines = [line.split("\t") for line in done.output.splitlines()]
        self.assertEqual([line[0] for line in lines], ["PEER", "a", "b"])
        self.assertEqual((lines[2][-1], lines[2][10]), ("h1 h2", "-"))
        self.rows = [{"name": "l", "node": "q", "expires-in": -1}, {"name": "m", "node": "r"}]
        done = self.run_command("link", "ls", "--node", "q", "--vhost", "/")
        self.assertEqual(done.output.splitlines()[1].split("\t")[0::8], ["l", "not yet"])
        self.assertEqual(self.asked[-1], ("QUERY", "link", "/", {}))
        self.assertEqual(len(done.output.splitlines()), 2)


class CoverageTests(SynchronousTestCase):
    """All operations, and all commands."""

    def test_every_operation(self) -> None:
        """Each operation has a command, or a reason to have none; not both."""
        named = named_operations()
        self.assertEqual({*OPERATIONS}, named | {*WITHOUT_COMMAND})
        self.assertEqual(named & {*WITHOUT_COMMAND}, set())

    def test_every_command(self) -> None:
        """Each command is made from the definition, or has a reason why not; not both."""
        made, by_hand = [], []
        for words, command in all_commands():
            is_made = isinstance(command, DefinedCommand | EntityListCommand)
            (made if is_made else by_hand).append(words)
        self.assertEqual([each for each in by_hand if not _reasons(each)], [])
        self.assertEqual([each for each in made if _reasons(each)], [])
        used = {reason for each in by_hand for reason in _reasons(each)}
        self.assertEqual({*BY_HAND}, used)


def _reasons(words: str) -> list[str]:
    return [each for each in BY_HAND if words == each or (
        each.endswith(" ") and words.startswith(each))]  # fmt: skip


class RefusalTests(SynchronousTestCase):
    """What a command says of refusals."""

    def test_next_steps(self) -> None:
        """The advice is about what was asked for."""
        for kind, status, words, step in (
            ("exchange", 409, "it is different", "amqproute exchange show NAME"),
            ("clock", 409, "it has not jumped", "amqproute clock show"),
            ("queue", 409, "it is there", "amqproute queue show NAME"),
            ("branch", 404, "there is no branch named 'x'", "amqproute transaction ls"),
            ("queue", 404, "there is no queue 'x'", "amqproute queue ls"),
        ):
            said = {"statusCode": status, "statusDescription": words}
            with self.assertRaises(ClientError) as caught:
                management_request.attributes_of_reply(said, {}, kind)
            self.assertIn(step, caught.exception.next_step)
