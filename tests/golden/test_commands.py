# SPDX-License-Identifier: Apache-2.0
"""``--help`` of every command, as it is printed on a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Iterator

import click

from amqproute.cli.main import amqproute
from tests.golden.compare import GoldenCase


def helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the help of a command and of all commands below it."""
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            inner = click.Context(
                found, context, name, terminal_width=100, **found.context_settings
            )
            yield from helps(found, inner)


class HelpTests(GoldenCase):
    """The words in which the program explains itself."""

    def test_help(self) -> None:
        """All commands, in the order of their groups."""
        context = click.Context(
            amqproute, info_name="amqproute", terminal_width=100, **amqproute.context_settings
        )
        self.assertGolden("help.txt", "\n".join(helps(amqproute, context)))
