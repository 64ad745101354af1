# SPDX-License-Identifier: Apache-2.0
"""Commands and groups whose help has the same options, however they are called.

click makes the option for the help of a command once, when the command is first used, with the
names that its context has then. These come from the group above. A command that is called without
it, as tests do, would have ``--help`` alone from then on, for the whole process. So each command
names them itself.
"""

from __future__ import annotations

from typing import Final

import click

__all__ = ["HELP_NAMES", "ProgramCommand", "ProgramGroup"]

HELP_NAMES: Final = ("-h", "--help")


class ProgramCommand(click.Command):
    """A command."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """See `click.Command.get_help_option_names`."""
        ctx.help_option_names = [*HELP_NAMES]
        return super().get_help_option_names(ctx)


class ProgramGroup(click.Group):
    """A group of commands; those that it decorates are of these classes, too."""

    command_class = ProgramCommand
    group_class = type

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """See `click.Command.get_help_option_names`."""
        ctx.help_option_names = [*HELP_NAMES]
        return super().get_help_option_names(ctx)
