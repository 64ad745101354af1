# SPDX-License-Identifier: Apache-2.0
"""``--help`` of every command, on a terminal of 100 columns; and which have ``--json`` held."""

from __future__ import annotations

from collections.abc import Iterator

import click

from amqproute.cli.main import amqproute
from tests.golden.compare import DATA, GoldenCase

NOT_HELD = (
    "bench relay", "demo",  # measurements
    "config show",  # a row for every setting: `tests.cli.test_config_show`
    "doctor", "health",  # of this machine, its disk too: `tests.integration.test_monitoring`
    "pipeline ",  # with Spark: `tests.pipeline`
    "token ",  # with a secret: `tests.cli.test_token`
    "store quarantine release",  # of a damaged store: `tests.integration.test_damaged_store`
)  # fmt: skip
"""Commands with ``--json`` whose output no golden file has, by how they begin, and why."""


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


def with_json(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the commands that have an option ``--json``."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, name
            yield from with_json(found, (*words, name))
    elif any("--json" in each.opts for each in command.params):
        yield " ".join(words)


class HelpTests(GoldenCase):
    """The words in which the program explains itself."""

    def test_help(self) -> None:
        """All commands, in the order of their groups."""
        context = click.Context(
            amqproute, info_name="amqproute", terminal_width=100, **amqproute.context_settings
        )
        self.assertGolden("help.txt", "\n".join(helps(amqproute, context)))

    def test_json(self) -> None:
        """Each command that prints JSON is in `tests.golden.course`, or is in `NOT_HELD`."""
        held = "\n".join(path.read_text() for path in (DATA / "json").glob("*.txt"))
        found = [name for name in with_json(amqproute) if not name.startswith(NOT_HELD)]
        self.assertEqual([name for name in found if f"$ {name}" not in held], [])
