# SPDX-License-Identifier: Apache-2.0
"""``pipeline``: the group of the commands that turn journals into tables and reports.

The commands themselves are in `amqproute.cli.pipeline_commands`; this module imports nothing heavy,
so that the list is fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

from amqproute.cli.program_commands import ProgramGroup

__all__ = ["pipeline"]

SUMMARIES: Final[Mapping[str, str]] = {
    "compact": "Merge the files of days that arrived in many pieces.",
    "fsck": "Check the files of the tables.",
    "ingest": "Load closed segments of journals into the tables.",
    "prune": "Remove days older than a number of days from the tables.",
    "reconcile": "Compare our journal with a partner's.",
    "report": "Write a report page about a day, or a range of days.",
    "run": "Run everything: tables, figures, conservation, and the page of each new day.",
    "stream": "Follow journals, and keep the figures of each hour up to date.",
    "trace": "Show where a message is, and its path.",
}
"""The commands, with the first sentence of the help of each."""


class AnalysisCommand(ProgramGroup):
    """A group that imports its commands on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return sorted(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in SUMMARIES:
            return None
        command: click.Command = getattr(import_module("amqproute.cli.pipeline_commands"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        stand_ins = {name: click.Command(name, help=words) for name, words in SUMMARIES.items()}
        click.Group(commands=stand_ins).format_commands(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; an unknown name is wrong usage."""
        if args and args[0] not in SUMMARIES and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}; there are: {', '.join(SUMMARIES)}.")
        return super().resolve_command(ctx, args)


@click.group(cls=AnalysisCommand)
def pipeline() -> None:
    """Turn journals into tables, reports and proofs, on Apache Spark.

    Needs the extra `pipeline` (pip install 'amqproute[pipeline]'), and Java 17 or later, which
    comes with it where the machine has none. On one machine by default; --master names a cluster.
    """
