# SPDX-License-Identifier: Apache-2.0
"""Commands that list the entities of a type, from a declaration of their columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.commands.attribute_table import RowTable
from amqproute.cli.commands.common_options import (
    AccessOptions,
    access_options,
    json_option,
    list_vhost_option,
)
from amqproute.cli.commands.management_request import KnownRefusal, in_touch, query
from amqproute.cli.commands.operation_command import OperationCommand, operation_command
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand

__all__ = ["EntityListCommand", "ListCommand", "RowFilter", "add_commands", "list_command"]


@dataclass(frozen=True, slots=True)
class RowFilter:
    """An option that restricts a list.

    Attributes:
        flag: its name, with dashes.
        metavar: its value in the help.
        help: its help.
        keeps: (row, value) to whether the row is shown.
    """

    flag: str
    metavar: str
    help: str
    keeps: Callable[[Facts, str], bool]


@dataclass(frozen=True, slots=True)
class ListCommand:
    """How a list is a command.

    Attributes:
        kinds: the entity types, divided by blanks; rows of several have their ``kind``.
        key: the name of the list in JSON.
        help: the help of the command; its first sentence is the summary.
        table: the table for people.
        has_vhost: whether ``--vhost`` restricts it.
        order: the sort key of a row; None for the order of the daemon.
        only: the option that restricts it further.
        refusals: refusals by their codes, with better words.
    """

    kinds: str
    key: str
    help: str
    table: RowTable
    has_vhost: bool = False
    order: Callable[[Facts], tuple[object, ...]] | None = None
    only: RowFilter | None = None
    refusals: Mapping[str, KnownRefusal] = field(default_factory=dict)


class EntityListCommand(ProgramCommand):
    """A command made from a `ListCommand`.

    Attributes:
        declared: what it was made from.
    """

    declared: ListCommand


def list_command(name: str, declared: ListCommand) -> click.Command:
    """Make the command of a name."""
    kinds, only = declared.kinds.split(), declared.only

    async def rows_of(client: Client, vhost: str | None) -> list[Facts]:
        found: list[Facts] = []
        for kind in kinds:
            rows = await query(client, kind, vhost)
            found += rows if len(kinds) == 1 else [{**row, "kind": kind} for row in rows]
        return found

    def act(
        access: AccessOptions, as_json: bool, vhost: str | None = None, wanted: str | None = None
    ) -> None:
        rows = in_touch(access, lambda client: rows_of(client, vhost), declared.refusals)
        if only is not None and wanted is not None:
            rows = [row for row in rows if only.keeps(row, wanted)]
        if declared.order is not None:
            rows.sort(key=declared.order)
        if as_json:
            render.json_text({declared.key: rows})
        else:
            declared.table.print(rows)

    callback: Callable[..., object] = access_options(json_option(act))
    if declared.has_vhost:
        callback = list_vhost_option(callback)
    if only is not None:
        option = click.option(only.flag, "wanted", metavar=only.metavar, help=only.help)
        callback = option(callback)
    command = click.command(name, cls=EntityListCommand, help=declared.help)(callback)
    command.declared = declared
    return command


def add_commands(
    group: click.Group, declared: Mapping[str, OperationCommand | ListCommand]
) -> None:
    """Add the commands of these names to a group."""
    for name, each in declared.items():
        if isinstance(each, ListCommand):
            group.add_command(list_command(name, each))
        else:
            group.add_command(operation_command(name, each))
