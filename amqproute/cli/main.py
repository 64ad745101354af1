# SPDX-License-Identifier: Apache-2.0
"""The entry point: the group of commands, and the conversion of errors to exit codes.

A command is imported on use. ``--help`` takes the summaries from the table
`amqproute.cli.commands.COMMANDS`, which repeats them; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

import click

from amqproute import __version__
from amqproute.cli import render
from amqproute.cli.command_error import NEGATIVE, UNREACHABLE, USAGE, CommandError, Interrupted
from amqproute.cli.commands import COMMANDS, CommandEntry
from amqproute.cli.program_commands import ProgramGroup
from amqproute.errors import (
    AmqpError,
    AmqprouteError,
    ConfigError,
    ConnectError,
    ResolveError,
    StoreDamaged,
    StoreError,
    TlsError,
)

__all__ = ["amqproute", "main"]


class Loading(Mapping[str, click.Command]):
    """The commands of a table by name, each imported on use."""

    def __init__(self, table: Mapping[str, CommandEntry]) -> None:
        self._table = table

    def __getitem__(self, name: str) -> click.Command:
        command: click.Command = resolve_name(self._table[name].where)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class Program(ProgramGroup):
    """A group of commands whose errors end as the package docstring promises."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands as click does, without importing them."""
        # As a group of placeholders with names and summaries only.
        entries = COMMANDS.items()
        shown = {name: click.Command(name, help=entry.summary) for name, entry in entries}
        click.Group(commands=shown).format_commands(ctx, formatter)

    def main(self, *args: Any, **extra: Any) -> Any:  # Any: as click declares it
        """Run a command; in standalone mode print errors, and exit."""
        inherited: Any = super().main
        if not extra.pop("standalone_mode", True):
            return inherited(*args, standalone_mode=False, **extra)
        try:
            result = inherited(*args, standalone_mode=False, **extra)
        except click.UsageError as error:
            error.show()
            sys.exit(USAGE)
        except click.ClickException as error:
            render.refuse(CommandError(USAGE, "usage", error.format_message(), "see --help"))
            sys.exit(USAGE)
        except (click.Abort, Interrupted):
            render.refuse(CommandError(NEGATIVE, "interrupted", "stopped before it was done", ""))
            sys.exit(NEGATIVE)
        except AmqprouteError as error:
            refusal = as_refusal(error)
            render.refuse(refusal)
            sys.exit(refusal.exit_code)
        except OSError as error:
            # Printing it, most likely: a full disk behind a redirection. A closed pipe is click's.
            words = error.strerror or str(error)
            where = f"{error.filename}: " if error.filename else ""
            step = "look at the file system that is written to; what was printed before is done"
            render.refuse(CommandError(NEGATIVE, "failed", f"{where}{words}", step))
            sys.exit(NEGATIVE)
        sys.exit(result if isinstance(result, int) else 0)


def as_refusal(error: AmqprouteError) -> CommandError:
    """Return any error of the package with its exit code and next step."""
    match error:
        case CommandError():
            return error
        case ConfigError():
            first, *others = error.problems
            step = "correct the file, then: amqproute check --config FILE"
            return CommandError(USAGE, "config", first, step, others)
        case TlsError():
            return CommandError(USAGE, error.code, str(error))
        case ConnectError():
            return CommandError(UNREACHABLE, error.code, str(error), details=error.attempts)
        case ResolveError():
            return CommandError(NEGATIVE, error.code, str(error), details=error.attempts)
        case AmqpError():
            return CommandError(NEGATIVE, error.condition, error.description)
        case StoreDamaged():
            step = "docs/recovery.md has the ways out of each damage to the state directory"
            return CommandError(NEGATIVE, "store.damaged", str(error), step)
        case StoreError():
            return CommandError(NEGATIVE, "store.failed", str(error), "")
        case _:
            return CommandError(NEGATIVE, "failed", str(error))


@click.group(
    cls=Program,
    commands=Loading(COMMANDS),
    context_settings={"max_content_width": 100},
)
@click.version_option(__version__, prog_name="amqproute")
def amqproute() -> None:
    """Store-and-forward messaging between organizations, over AMQP 1.0.

    Exit codes: 0 done, 1 a negative answer, 2 wrong usage or configuration, 3 the daemon cannot
    be reached. The configuration is found through --config, $AMQPROUTE_CONFIG, or
    /etc/amqproute/amqproute.yaml.
    """


def main() -> None:
    """Run the program; the console script's entry point."""
    amqproute.main(prog_name="amqproute")
