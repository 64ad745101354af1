# SPDX-License-Identifier: Apache-2.0
"""Commands that only pass values on, made from the definition of their operations.

Subject, options, their types, bounds and help come from `amqproute.services.management_table`; a
command adds its own long help and the words for its result. A required parameter is an argument,
any other an option: true or false becomes a flag, which is sent if it is given. Parameters that a
program alone uses (`cursor`) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import click

from amqproute.cli import render
from amqproute.cli.commands.common_options import (
    NODE_NAME,
    AccessOptions,
    access_options,
    json_option,
    list_vhost_option,
    vhost_option,
)
from amqproute.cli.commands.management_request import carry_out
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.services.management_table import ENTITIES, OPERATIONS, parameters_of
from amqproute.services.value_declaration import ValueDeclaration, ValueType

__all__ = ["DefinedCommand", "OperationCommand", "Outcome", "operation_command"]

_OF_PROGRAMS: Final = ("cursor",)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command has done.

    Attributes:
        name: the subject, within the broker.
        asked: the parameters sent.
        facts: the attributes of the answer.
    """

    name: str
    asked: Mapping[str, object]
    facts: Facts


@dataclass(frozen=True, slots=True)
class OperationCommand:
    """How an operation is a command.

    Attributes:
        operation: its name.
        kind: the entity type of the request.
        help: the help of the command; its first sentence is the summary.
        done: the line for a terminal.
        subject: the argument's name in the help.
        vhost: what ``--vhost`` does: ``names`` of nodes, subject and arguments, are placed by it;
            it is a ``parameter`` itself; without either the command has none.
        has_json: whether ``--json`` prints the attributes.
        afterwards: called in the end, for warnings.
    """

    operation: str
    kind: str
    help: str
    done: Callable[[Outcome], str]
    subject: str = "NAME"
    vhost: Literal["names", "parameter", ""] = ""
    has_json: bool = True
    afterwards: Callable[[Outcome], None] = lambda _: None

    @property
    def parameters(self) -> list[ValueDeclaration]:
        """The parameters that are arguments or options."""
        found = parameters_of(OPERATIONS[self.operation], ENTITIES.get(self.kind))
        return [each for each in found if each.name not in _OF_PROGRAMS]


def operation_command(name: str, declared: OperationCommand) -> click.Command:
    """Make the command of a name."""
    parameters = declared.parameters

    def act(access: AccessOptions, as_json: bool = False, **given: object) -> None:
        subject = str(given["subject"])
        asked = _asked(parameters, given)
        if declared.vhost == "parameter" and given["vhost"] is not None:
            asked["virtual-host"] = given["vhost"]
        facts = carry_out(access, declared.operation, declared.kind, subject, asked)
        outcome = Outcome(subject, asked, facts)
        if as_json:
            render.json_text(facts)
        else:
            click.echo(declared.done(outcome))
        declared.afterwards(outcome)

    callback: Callable[..., object] = act
    for add in reversed(_decorators(declared, parameters)):
        callback = add(callback)
    command = click.command(name, cls=DefinedCommand, help=declared.help)(callback)
    command.declared = declared
    return command


class DefinedCommand(ProgramCommand):
    """A command made from a definition.

    Attributes:
        declared: what it was made from.
    """

    declared: OperationCommand


def _asked(parameters: list[ValueDeclaration], given: Mapping[str, object]) -> dict[str, object]:
    """Return what is sent: parameters that were given, and flags that were set."""
    values = {each.name: given[_variable(each)] for each in parameters}
    return {key: value for key, value in values.items() if value is not None and value is not False}


def _decorators(
    declared: OperationCommand, parameters: list[ValueDeclaration]
) -> list[Callable[..., Any]]:
    kind = NODE_NAME if declared.vhost == "names" else click.STRING
    found: list[Callable[..., Any]] = [
        click.argument("subject", metavar=declared.subject, type=kind)
    ]
    if declared.vhost == "names":
        found.append(vhost_option)
    found += (
        click.argument(_variable(each), type=kind, metavar=each.name.upper())
        for each in parameters
        if each.is_required
    )
    found += (_option(each) for each in parameters if not each.is_required)
    if declared.vhost == "parameter":
        found.append(list_vhost_option)
    found.append(access_options)
    if declared.has_json:
        found.append(json_option)
    return found


def _option(value: ValueDeclaration) -> Callable[..., Any]:
    flag = f"--{value.name}"
    words = f"{value.does[:1].upper()}{value.does[1:]}."
    if value.type is ValueType.BOOLEAN:
        return click.option(flag, _variable(value), is_flag=True, help=words)
    kind: click.ParamType = click.STRING  # type: ignore[type-arg]
    if value.choices:
        kind = click.Choice(list(value.choices))
    elif value.type is ValueType.NUMBER:
        kind = click.IntRange(value.least, value.most)
    metavar = "TEXT" if value.type is ValueType.TEXT and not value.choices else None
    if value.name in ENTITIES:
        metavar = value.name.upper()
    return click.option(flag, _variable(value), type=kind, metavar=metavar, help=words)


def _variable(value: ValueDeclaration) -> str:
    return f"given_{value.name.replace('-', '_')}"
