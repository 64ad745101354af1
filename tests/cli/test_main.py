# SPDX-License-Identifier: Apache-2.0
"""The table of commands: it matches them, and avoids loading them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import click
from click.testing import CliRunner
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands import COMMANDS
from amqproute.cli.main import amqproute
from amqproute.cli.program_commands import HELP_NAMES, ProgramCommand, ProgramGroup
from tests.support.patience import PATIENCE
from tests.support.program import ROOT

HEAVY = ("amqproute.daemon", "amqproute.config", "cryptography", "pydantic", "rich", "twisted")
"""Modules slow to load that no list of commands needs."""


def loaded_by(*args: str) -> tuple[str, set[str]]:
    """Run the program in a process of its own; return what it prints and the modules it loads."""
    script = (
        "import sys\n"
        "from amqproute.cli.main import amqproute\n"
        "amqproute.main(sys.argv[1:], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.split())


def every_command(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and those below it, with their words."""
    yield words, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None, name
                yield from every_command(found, (*words, name))


class TableTests(SynchronousTestCase):
    def test_agrees_with_the_commands(self) -> None:
        """Each entry leads to a command of its name, whose help begins as the entry says."""
        for name, entry in COMMANDS.items():
            command = amqproute.commands[name]
            self.assertEqual(command.name, name)
            paragraph = " ".join((command.help or "").split("\n\n")[0].split())
            self.assertEqual(paragraph.removesuffix(".").split(". ")[0] + ".", entry.summary)

    def test_help_lists_it_without_loading(self) -> None:
        """All commands are shown, and none of them is imported; nor what they need."""
        shown, modules = loaded_by("--help")
        listed = [line.split()[0] for line in shown.partition("Commands:")[2].splitlines() if line]
        self.assertEqual(listed, sorted(COMMANDS))
        commands = {entry.where.partition(":")[0] for entry in COMMANDS.values()}
        self.assertEqual(modules & commands, set())
        self.assertEqual({module for module in modules if module.startswith(HEAVY)}, set())

    def test_help_is_what_click_shows(self) -> None:
        """The summaries are shortened to the width as those of commands that are loaded."""
        whole = click.Group(commands=dict(amqproute.commands))
        formatters = click.HelpFormatter(width=70), click.HelpFormatter(width=70)
        with click.Context(amqproute) as context:
            amqproute.format_commands(context, formatters[0])
            whole.format_commands(context, formatters[1])
        self.assertEqual(formatters[0].getvalue(), formatters[1].getvalue())
        self.assertIn("...", formatters[0].getvalue())

    def test_one_command_loads_itself_only(self) -> None:
        """Commands to a running daemon do not load the parts of a daemon."""
        strangers = ("amqproute.daemon", "amqproute.broker", "amqproute.config", "pydantic", "rich")
        for name, module in (("queue", "queue"), ("peer", "peer"), ("hold", "relay_queue")):
            _, modules = loaded_by(name, "--help")
            self.assertIn(f"amqproute.cli.commands.{module}", modules)
            self.assertEqual({each for each in modules if each.startswith(strangers)}, set(), name)

    def test_help_options(self) -> None:
        """They are the same for a command that was called alone before, and for all commands."""
        for words, command in every_command(amqproute):
            self.assertIsInstance(command, ProgramCommand | ProgramGroup, " ".join(words))
            alone = CliRunner().invoke(command, ["--help"], standalone_mode=False)
            self.assertIn("-h, --help", alone.output)
            for option in HELP_NAMES:
                done = CliRunner().invoke(amqproute, [*words, option])
                self.assertEqual(done.exit_code, 0, done.output)
                self.assertIn("-h, --help", done.output)

    def test_unknown_command(self) -> None:
        """Is wrong usage; one that looks like it is named."""
        result = CliRunner().invoke(amqproute, ["qeue"])
        self.assertEqual(result.exit_code, 2)
        self.assertIn("No such command 'qeue'", result.stderr)
