# SPDX-License-Identifier: Apache-2.0
"""Commands and the definition of management agree: none has what the other does not know."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

import amqproute
from amqproute.cli.commands import operation_command as module
from amqproute.cli.commands.common_options import AccessOptions
from amqproute.cli.commands.operation_command import DefinedCommand, OperationCommand
from amqproute.cli.main import amqproute as program
from amqproute.services.management_table import ENTITIES, OPERATIONS
from amqproute.services.value_declaration import ValueDeclaration, ValueType, first_fault

COMMANDS: Final = Path(amqproute.__file__).parent / "cli"

WITHOUT_COMMAND: Final = {
    "GET-TYPES": "a command knows the types",
    "GET-OPERATIONS": "a command knows the operations",
    "GET-ATTRIBUTES": "a command knows the attributes",
    "ASSERT": "lines of `batch` have it",
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

COMMON: Final = {"url", "trust", "config", "as_json", "vhost", None}
"""Options that are no parameters of operations."""


def defined(
    command: click.Command = program, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], DefinedCommand]]:
    """Yield the commands that are made from the definition, with their words."""
    if isinstance(command, DefinedCommand):
        yield words, command
    elif isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from defined(found, (*words, name))


def named_operations() -> set[str]:
    """Return the operations that the sources of the commands name."""
    found = set()
    for path in COMMANDS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and node.value in OPERATIONS:
                found.add(node.value)
    return found


def sample(value: ValueDeclaration) -> str:
    """Return a value as it is written on the command line."""
    if value.choices:
        return value.choices[0]
    return str(value.least or 7) if value.type is ValueType.NUMBER else "other"


class DefinedCommandTests(SynchronousTestCase):
    """Commands made from the definition."""

    def setUp(self) -> None:
        self.asked: list[tuple[str, str, str, Mapping[str, object]]] = []
        self.patch(module, "carry_out", self.carry_out)

    def carry_out(
        self, _: AccessOptions, operation: str, kind: str, name: str, body: Mapping[str, object]
    ) -> dict[str, object]:
        """Take note of a request."""
        self.asked.append((operation, kind, name, dict(body)))
        return {"name": name, "messages": 3}

    def test_there(self) -> None:
        """They are in the program, for operations and types that exist."""
        found = {" ".join(words): command.declared for words, command in defined()}
        self.assertGreaterEqual(
            found.keys(),
            {"connection close", "link close", "exchange delete", "queue delete", "queue purge",
             "queue rename", "token revoke"},
        )  # fmt: skip
        for words, each in found.items():
            operation = OPERATIONS[each.operation]
            self.assertIn(each.kind, ENTITIES, words)
            self.assertTrue(operation.subject, words)
            self.assertTrue(not operation.kinds or each.kind in operation.kinds, words)

    def test_parameters(self) -> None:
        """Each parameter is there with its bounds and choices, and no other one."""
        for words, command in defined():
            shown = {each.name: each for each in command.params if each.name not in COMMON}
            subject = shown.pop("subject")
            self.assertIsInstance(subject, click.Argument, words)
            declared = {each.name: each for each in command.declared.parameters}
            names = {name: f"given_{name.replace('-', '_')}" for name in declared}
            self.assertEqual({*names.values()}, {*shown}, words)
            for name, value in declared.items():
                found: Any = shown[names[name]]
                self.assertEqual(isinstance(found, click.Argument), value.is_required, name)
                if isinstance(found, click.Option):
                    self.assertEqual(found.opts, [f"--{name}"], words)
                    self.assertEqual(found.is_flag, value.type is ValueType.BOOLEAN, name)
                    self.assertEqual(str(found.help).lower(), f"{value.does}.".lower(), name)
                if value.type is ValueType.NUMBER:
                    self.assertEqual((found.type.min, found.type.max), (value.least, value.most))
                if value.choices:
                    self.assertEqual(tuple(found.type.choices), tuple(value.choices))

    def test_requests(self) -> None:
        """With all parameters, and with none, the request is one that the definition takes."""
        for words, command in defined():
            declared = command.declared
            required = [each for each in declared.parameters if each.is_required]
            arguments = ["orders", *map(sample, required)]
            options: list[str] = []
            for each in declared.parameters:
                if not each.is_required:
                    options.append(f"--{each.name}")
                    options += [] if each.type is ValueType.BOOLEAN else [sample(each)]
            for more in ([], options):
                done = CliRunner().invoke(program, [*words, *arguments, *more])
                self.assertEqual(done.exit_code, 0, (words, done.output, done.exception))
                operation, kind, name, body = self.asked.pop()
                self.assertEqual((operation, kind), (declared.operation, declared.kind), words)
                self.assertEqual(name, "orders")
                self.assertIsNone(first_fault(body, declared.parameters), (words, body))
                wanted = {each.name for each in declared.parameters if more or each.is_required}
                self.assertEqual({*body}, wanted, words)

    def test_hosts(self) -> None:
        """--vhost places names of nodes, and is a parameter where the operation has it."""
        runner = CliRunner()
        runner.invoke(program, ["queue", "rename", "a", "b", "--vhost", "shop"])
        self.assertEqual(
            self.asked.pop(), ("RENAME", "queue", "//shop/a", {"new-name": "//shop/b"})
        )
        runner.invoke(program, ["link", "close", "a", "--vhost", "shop", "--connection", "c"])
        body = {"connection": "c", "virtual-host": "shop"}
        self.assertEqual(self.asked.pop(), ("DELETE", "link", "a", body))

    def test_output(self) -> None:
        """A line for people, or the attributes as JSON."""
        done = CliRunner().invoke(program, ["queue", "purge", "orders", "--dry-run"])
        self.assertEqual(done.output, "orders: 3 messages would be deleted\n")
        done = CliRunner().invoke(program, ["queue", "purge", "orders", "--json"])
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
            "try", OperationCommand("MOVE", "queue", "Try it.", lambda _: "done")
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


class CoverageTests(SynchronousTestCase):
    """All operations, and all commands."""

    def test_every_operation(self) -> None:
        """Each operation has a command, or a reason to have none; not both."""
        named = named_operations()
        self.assertEqual({*OPERATIONS}, named | {*WITHOUT_COMMAND})
        self.assertEqual(named & {*WITHOUT_COMMAND}, set())
