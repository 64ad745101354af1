# SPDX-License-Identifier: Apache-2.0
"""Commands that pass values on to one operation, made from the definition of the operations.

Subject, options, their types, bounds and help come from `amqproute.services.management_table`; a
command adds its own long help and the words for its result. A required parameter is an argument, as
is a list of numbers; any other an option: true or false becomes a flag, which is sent if it is
given. `CommandInputs` declares what differs. The `cursor` is left out: an operation that has one is
carried out part by part, and its answers are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import click
import yaml

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.command_error import USAGE, CommandError
from amqproute.cli.commands.common_options import (
    NODE_NAME,
    AccessOptions,
    Decorator,
    access_options,
    entry_id,
    json_option,
    list_vhost_option,
    vhost_option,
)
from amqproute.cli.commands.management_request import KnownRefusal, ask, in_touch
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.services.management_table import (
    ENTITIES,
    OPERATIONS,
    OR_ASSERT,
    OperationDeclaration,
    parameters_of,
)
from amqproute.services.value_declaration import ValueDeclaration, ValueType

__all__ = [
    "CommandInputs",
    "CommandOption",
    "CommandRequest",
    "DefinedCommand",
    "OperationCommand",
    "Outcome",
    "milliseconds_of",
    "operation_command",
]

CURSOR: Final = "cursor"
_MOST: Final = ("limit", "count")
"""Parameters that bound the messages of one request; a command goes on up to that number."""
SAMPLES: Final = 5
"""Messages that are shown of those that an operation has changed."""
PART_SECONDS: Final = 120.0
"""Seconds that the daemon may take for one part of a bulk operation."""
_METAVARS: Final = {"where": "SQL", "arguments": "JSON"}
"""What the values of options are called in the help, where that is not TEXT."""


@dataclass(slots=True)
class CommandRequest:
    """A request of a command.

    Attributes:
        kind: the entity type.
        name: the subject, within the broker.
        body: the parameters.
        properties: further application properties.
    """

    kind: str
    name: str
    body: dict[str, object] = field(default_factory=dict)
    properties: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command has done.

    Attributes:
        request: what was asked.
        facts: the attributes of the answer, or of all parts together.
    """

    request: CommandRequest
    facts: Facts

    @property
    def name(self) -> str:
        """The subject, within the broker."""
        return self.request.name

    @property
    def is_dry(self) -> bool:
        """Whether nothing was changed, on request."""
        return self.request.body.get("dry-run") is True


@dataclass(frozen=True, slots=True)
class CommandOption:
    """How a parameter differs from its declaration on the command line.

    Attributes:
        shown: the name of the option, with dashes; or, without dashes, of an argument.
        help: its help.
        metavar: its value in the help.
        default: sent unless another value is given; shown unless it is empty.
        values: what a flag sends if it is not given, and if it is.
        read: (name of the option, text) to the value.
    """

    shown: str = ""
    help: str = ""
    metavar: str = ""
    default: object = None
    values: tuple[object, object] | None = None
    read: Callable[[str, str], object] | None = None


Own = Callable[[CommandRequest, Mapping[str, object]], None]


@dataclass(frozen=True, slots=True)
class CommandInputs:
    """What a command takes, and how that becomes the request.

    Attributes:
        subject: the argument's name in the help; empty for an operation on no entity.
        vhost: what ``--vhost`` does: ``names`` of nodes, subject and arguments, are placed by it;
            it is a ``parameter`` itself; without either the command has none.
        options: parameters that differ from their declaration.
        fixed: values that are always sent, without an option; ``name`` is the subject.
        without: parameters without an option.
        is_free: all options of the entity are values of ``--option``, KEY=VALUE.
        own: further options, which are no parameters. The one named ``kind`` is the entity type.
        prepare: called with the request and the values of all options.
    """

    subject: str = "NAME"
    vhost: Literal["names", "parameter", ""] = ""
    options: Mapping[str, CommandOption] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    without: Collection[str] = ()
    is_free: bool = False
    own: Sequence[Decorator] = ()
    prepare: Own = lambda *_: None


@dataclass(frozen=True, slots=True)
class OperationCommand:
    """How an operation is a command.

    Attributes:
        operation: its name.
        kind: the entity type of the request; empty if the operation has none.
        help: the help of the command; its first sentence is the summary.
        done: prints the result, or returns lines that tell it.
        inputs: what the command takes.
        has_json: whether ``--json`` prints the attributes.
        afterwards: called in the end, for warnings; returns the exit code, None for 0.
        refusals: refusals by their codes, with better words.
    """

    operation: str
    kind: str
    help: str
    done: Callable[[Outcome], str | None]
    inputs: CommandInputs = CommandInputs()
    has_json: bool = True
    afterwards: Callable[[Outcome], int | None] = lambda _: None
    refusals: Mapping[str, KnownRefusal] = field(default_factory=dict)

    @property
    def declaration(self) -> OperationDeclaration:
        """The operation."""
        return OPERATIONS[self.operation]

    @property
    def parameters(self) -> list[ValueDeclaration]:
        """The parameters that are arguments or options."""
        found: list[ValueDeclaration] = []
        if not self.inputs.is_free:
            found += parameters_of(self.declaration, ENTITIES.get(self.kind))
        if self.operation == "CREATE" and self.kind in ENTITIES:
            found.append(OR_ASSERT)
        left_out = {CURSOR, *self.inputs.without, *self.inputs.fixed}
        return [each for each in found if each.name not in left_out]

    @property
    def is_bulk(self) -> bool:
        """Whether the operation is carried out part by part."""
        return any(each.name == CURSOR for each in self.declaration.parameters or ())


class DefinedCommand(ProgramCommand):
    """A command made from a definition.

    Attributes:
        declared: what it was made from.
    """

    declared: OperationCommand


def operation_command(name: str, declared: OperationCommand) -> DefinedCommand:
    """Make the command of a name."""
    parameters = declared.parameters

    def act(access: AccessOptions, as_json: bool = False, **given: object) -> int | None:
        request = _request(declared, parameters, given)
        declared.inputs.prepare(request, given)
        facts = in_touch(
            access, lambda client: _answer(client, declared, request), declared.refusals
        )
        outcome = Outcome(request, facts)
        if as_json:
            render.json_text(facts)
        else:
            for line in (declared.done(outcome) or "").splitlines():
                click.echo(render.printable(line))
        return declared.afterwards(outcome)

    callback: Callable[..., object] = act
    for add in reversed(_decorators(declared, parameters)):
        callback = add(callback)
    command = click.command(name, cls=DefinedCommand, help=declared.help)(callback)
    command.declared = declared
    return command


# -- requests --------------------------------------------------------------------------------------


def _request(
    declared: OperationCommand, parameters: Sequence[ValueDeclaration], given: Mapping[str, object]
) -> CommandRequest:
    """Return the request with the parameters that were given, and flags that were set."""
    inputs = declared.inputs
    fixed = dict(inputs.fixed)
    name = fixed.pop("name", given.get("subject") or "")
    request = CommandRequest(str(given.get("kind", declared.kind)), str(name))
    if OR_ASSERT.name in fixed:
        request.properties[OR_ASSERT.name] = fixed.pop(OR_ASSERT.name)
    if inputs.is_free:
        request.body |= _free_options(given["options"])
    for each in parameters:
        how, value = inputs.options.get(each.name, CommandOption()), given[_variable(each)]
        if how.values is not None:
            value = how.values[bool(value)]
        elif value is None or value is False or value == () or (declared.is_bulk and value == ""):
            continue
        elif how.read is not None:
            value = how.read(how.shown, str(value))
        place = request.properties if each is OR_ASSERT else request.body
        place[each.name] = list(value) if isinstance(value, tuple) else value
    if given.get("vhost") is not None:
        request.body["virtual-host"] = given["vhost"]
    request.body |= fixed
    return request


def _free_options(given: object) -> dict[str, object]:
    """Read KEY=VALUE as the configuration would read ``KEY: VALUE``."""
    assert isinstance(given, tuple)
    options: dict[str, object] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise CommandError(
                USAGE, "usage.option", f"{text!r} is not KEY=VALUE", "as in --option capacity=1000"
            )
        try:
            options[key] = yaml.safe_load(value)
        except (yaml.YAMLError, RecursionError):
            options[key] = value
        if not isinstance(options[key], str | int | float | bool | list | None):
            options[key] = value
    return options


def milliseconds_of(shown: str, text: str) -> int:
    """Read a time span, as in 2h, as the value of an option.

    Raises:
        CommandError: it is none.
    """
    from amqproute.config.units import parse_seconds  # imports the configuration's schema, too

    try:
        return int(parse_seconds(text) * 1000)
    except ValueError as error:
        raise CommandError(USAGE, "usage.time", f"{shown}: {error}", f"as in {shown} 2h") from None


async def _answer(client: Client, declared: OperationCommand, request: CommandRequest) -> Facts:
    kind, name, properties = request.kind, request.name, request.properties
    if not declared.is_bulk:
        return await ask(
            client, declared.operation, kind, name, request.body, properties=properties
        )
    bound = next((each for each in declared.parameters if each.name in _MOST), None)
    given = request.body.get(bound.name) if bound is not None else None
    most = given if isinstance(given, int) else None
    body, total, count = dict(request.body), Facts(), 0
    with render.progress() as progress:
        task = progress.add_task("messages", total=None)
        while True:
            if bound is not None and most is not None:
                body[bound.name] = min(most - count, bound.most or most)
            facts = await ask(
                client,
                declared.operation,
                kind,
                name,
                body,
                seconds=PART_SECONDS,
                properties=properties,
            )
            cursor = str(facts.pop(CURSOR, None) or "")
            _merge(total, facts)
            count = _count(total)
            progress.update(task, completed=count)
            if not cursor or (most is not None and count >= most):
                break
            body[CURSOR] = cursor
    if isinstance(total.get("messages"), list):
        total["more"] = bool(cursor) or (most is not None and count > most)
        total["messages"] = total["messages"][:most]
    if "samples" in total:
        del total["samples"][SAMPLES:]
    return total


def _count(total: Facts) -> int:
    messages = total.get("messages", 0)
    return len(messages) if isinstance(messages, list) else int(messages)


def _merge(total: Facts, part: Facts) -> None:
    """Add an answer to those before: numbers are added, lists joined, of texts the last one stays.

    Lists of texts are sets of names; maps have numbers.
    """
    for key, value in part.items():
        before = total.get(key)
        if before is None or isinstance(value, bool):
            total[key] = value
        elif isinstance(value, int):
            total[key] = before + value
        elif isinstance(value, list):
            names = all(isinstance(each, str) for each in (*before, *value))
            total[key] = sorted({*before, *value}) if names else before + value
        elif isinstance(value, dict):
            total[key] = {
                each: before.get(each, 0) + value.get(each, 0) for each in {**before, **value}
            }
        else:
            total[key] = value or before


# -- arguments and options -------------------------------------------------------------------------

# Any: what click's decorators return
_Decorators = list[Callable[..., Any]]

_FREE_OPTION: Final = "as in --option capacity=1000; repeatable."


def _decorators(declared: OperationCommand, parameters: Sequence[ValueDeclaration]) -> _Decorators:
    inputs = declared.inputs
    kind = NODE_NAME if inputs.vhost == "names" else click.STRING
    found: _Decorators = []
    if inputs.subject:
        is_needed = declared.declaration.needs_subject
        shown = inputs.subject if is_needed else f"[{inputs.subject}]"
        subject = entry_id if inputs.subject == "ID" else kind
        found.append(click.argument("subject", metavar=shown, type=subject, required=is_needed))
    if inputs.vhost == "names":
        found.append(vhost_option)
    adapted = [(each, inputs.options.get(each.name, CommandOption())) for each in parameters]
    found += (_argument(*each, kind) for each in adapted if _is_argument(*each))
    if inputs.is_free:
        found.append(_free_option(declared.operation == "UPDATE"))
    found += (_option(*each, declared.is_bulk) for each in adapted if not _is_argument(*each))
    if inputs.vhost == "parameter":
        found.append(list_vhost_option)
    found += [*inputs.own, access_options]
    if declared.has_json:
        found.append(json_option)
    return found


def _is_argument(value: ValueDeclaration, how: CommandOption) -> bool:
    if how.shown:
        return not how.shown.startswith("-")
    return value.is_required or value.type is ValueType.NUMBERS


# Any: see above
def _argument(
    value: ValueDeclaration,
    how: CommandOption,
    kind: click.ParamType,  # type: ignore[type-arg]
) -> Callable[..., Any]:
    if value.type is ValueType.NUMBERS:
        return click.argument(_variable(value), metavar="[ID]...", nargs=-1, type=entry_id)
    return click.argument(_variable(value), type=kind, metavar=how.shown or value.name.upper())


def _free_option(is_change: bool) -> Callable[..., Any]:
    words = (
        "An option to change; with the value null it gets its default again. Repeatable."
        if is_change
        else f"An option as under `nodes` in the configuration, {_FREE_OPTION}"
    )
    return click.option(
        "--option", "options", metavar="KEY=VALUE", multiple=True, required=is_change, help=words
    )


def _option(value: ValueDeclaration, how: CommandOption, is_bulk: bool) -> Callable[..., Any]:
    flag = how.shown or f"--{value.name}"
    words = how.help or f"{value.does[:1].upper()}{value.does[1:]}."
    if value.type is ValueType.BOOLEAN or how.values is not None:
        return click.option(flag, _variable(value), is_flag=True, help=words)
    kind: click.ParamType = click.STRING  # type: ignore[type-arg]
    if value.choices:
        kind = click.Choice(list(value.choices))
    elif value.type is ValueType.NUMBER and how.read is None:
        # Of more than fit into one answer the next ones are asked for.
        is_bound = is_bulk and value.name in _MOST
        most = None if is_bound else value.most
        bounded = value.least is not None or most is not None
        kind = click.IntRange(value.least, most) if bounded else click.INT
    metavar = "TEXT" if kind is click.STRING else None
    if value.name in ENTITIES:
        metavar = value.name.upper()
    return click.option(
        flag,
        _variable(value),
        type=kind,
        metavar=how.metavar or _METAVARS.get(value.name, metavar),
        help=words,
        required=value.is_required,
        multiple=value.type is ValueType.TEXTS,
        default=how.default,
        show_default=how.default not in (None, ""),
    )


def _variable(value: ValueDeclaration) -> str:
    return f"given_{value.name.replace('-', '_')}"
