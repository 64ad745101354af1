# SPDX-License-Identifier: Apache-2.0
"""``config``: the settings in force, and where they come from."""

from __future__ import annotations

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, UNREACHABLE, CommandError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import carry_out
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramGroup
from amqproute.config import load
from amqproute.config.config_values import setting_values, shown_settings
from amqproute.config.loader import find
from amqproute.plurals import counted

__all__ = ["config"]


@click.group(cls=ProgramGroup)
def config() -> None:
    """The configuration: the settings in force, and where they come from."""


@config.command("show")
@click.option("--changed", is_flag=True, help="Only what differs from the defaults.")
@click.option("--files", "by_files", is_flag=True, help="Read the files; do not ask the daemon.")
@access_options
@json_option
def show(changed: bool, by_files: bool, access: AccessOptions, as_json: bool) -> int:
    """Show the settings in force in the daemon, and where each value comes from.

    That is a line of a file; the environment or a credential, named in a line of a file; the
    default; or a command, by which an alias, a route or a policy was made at runtime. Values out of
    the environment are shown as they are written, ${NAME}. Without a daemon the settings are those
    of the files, as with --files.
    """
    facts = _of_files(access, changed) if by_files else _of_daemon(access, changed)
    if as_json:
        render.json_text(facts)
        return DONE
    rows = facts["values"]
    render.table(
        ["SETTING", "VALUE", "FROM"],
        ([row["key"], row["value"], _origin(row)] for row in rows),
    )
    files = ", ".join(str(each) for each in facts["files"])
    click.echo(f"{counted(len(rows), 'value')}; {facts['source']}: {files or 'no file'}")
    return DONE


def _of_daemon(access: AccessOptions, changed: bool) -> Facts:
    try:
        found = carry_out(access, "CONFIG-READ", "broker", "", {"changed": changed})
    except CommandError as error:
        if error.exit_code != UNREACHABLE or access.url is not None:
            raise
        render.warn(f"{error}; these are the settings of the files")
        return _of_files(access, changed)
    return {"source": "in force", **found}


def _of_files(access: AccessOptions, changed: bool) -> Facts:
    settings = load(find(access.config))
    values = [each for each in setting_values(settings) if each.is_changed or not changed]
    return {
        "source": "in the files",
        "version": None,
        "files": [str(each) for each in settings.source.files],
        "settings": shown_settings(settings),
        "values": [each.as_row() for each in values],
    }


def _origin(row: Facts) -> str:
    """Return where a value comes from, as text."""
    if row["origin"] == "file":
        return str(row["place"])
    if row["origin"] == "command":
        return f"command of {row.get('made-by') or 'an operator'}"
    return f"{row['origin']}, {row['place']}" if row["place"] else str(row["origin"])
