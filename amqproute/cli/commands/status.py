# SPDX-License-Identifier: Apache-2.0
"""``status``: the health of the running daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.command_error import DONE, NEGATIVE, ClientError
from amqproute.cli.commands.attribute_table import RowTable, age
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import ask, in_touch, query
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.plurals import counted

__all__ = ["status"]

MARKS: Final = RowTable(
    "MARK=name STATE LEVEL> LIMIT> OPENS-AT>",
)
TYPES: Final = ("watermark", "listener", "clock", "certificate")
MOST_COMMANDS: Final = 3
"""Commands that are printed for one code."""
RECENT_MS: Final = 600_000
"""Seconds for which refusals of a full listener are reported."""
BRANCH: Final = "branch"

Row = Facts


@click.command("status", cls=ProgramCommand)
@access_options
@json_option
def status(access: AccessOptions, as_json: bool) -> int:
    """Report the health of the running daemon.

    The marks are those at which publishers (disk, max-bytes, memory, store, journal) or receivers
    (outgoing) are limited, in bytes; then follow the messages in memory, the problems, with the
    code of each (docs/status.md lists them) and the command for details, and the branches of
    distributed transactions that wait for their manager. The settings under `status` are the
    limits for problems. Listeners that have closed or refused connections for lack of
    capacity in the last ten minutes come first. The exit code is 1 if there is any problem.
    """
    found, rows = in_touch(access, _ask)
    marks, listeners, clocks, certificates, branches = (rows[each] for each in (*TYPES, BRANCH))
    alarms = [row for row in (*clocks, *certificates) if row["reason"]]
    verdicts: list[Row] = list(found["verdicts"])
    prepared = [row for row in branches if row["state"] == "prepared"]
    if as_json:
        well = {"well": not verdicts, "watermarks": marks, "peers": found["peers"]}
        more = {"alarms": alarms, "branches": prepared, "listeners": listeners}
        judged = {"verdicts": verdicts, "counts": found["counts"], "messages": found["messages"]}
        render.json_text({**well, **more, **judged})
    else:
        for row in listeners:
            if _is_crowded(row):
                click.echo(_of_listener(row))
        _show_marks(marks, found["messages"])
        _show_verdicts(verdicts, found["counts"])
        for row in prepared:
            click.echo(
                f"{row['name']}: prepared for {age(row['age-ms'])}, waits for its transaction "
                "manager"
            )
        if prepared:
            click.echo("next: amqproute transaction ls")
        if not verdicts:
            click.echo("all is well")
    return NEGATIVE if verdicts else DONE


async def _ask(client: Client) -> tuple[Facts, dict[str, list[Facts]]]:
    rows = {each: await query(client, each) for each in TYPES}
    try:
        rows[BRANCH] = await query(client, BRANCH)
    except ClientError as error:
        if error.code != "management.400":
            raise
        rows[BRANCH] = []  # distributed transactions are not enabled, so there is no such type
    return await ask(client, "STATUS", "broker", ""), rows


def _show_marks(marks: list[Facts], messages: Mapping[str, int]) -> None:
    MARKS.print(marks)
    parts: dict[str, int] = next((row["parts"] for row in marks if row["name"] == "memory"), {})
    held = ", ".join(f"{name} {size}" for name, size in parts.items() if size)
    click.echo(f"messages in memory, bytes: {held or 'none'}")
    here = counted(messages["here"], "message")
    click.echo(f"{here} here, {messages['to-others']} on their way to others")
    damaged = sum(row.get("quarantined") or 0 for row in marks)
    if damaged:
        click.echo(
            f"{counted(damaged, 'damaged message')} in quarantine, for nobody: look at the disk, "
            "and see amqproute store quarantine ls"
        )


def _show_verdicts(verdicts: list[Row], counts: Mapping[str, int]) -> None:
    """Print the problems, and once for each code the command for details."""
    for code in dict.fromkeys(row["code"] for row in verdicts):
        those = [row for row in verdicts if row["code"] == code]
        for row in those:
            words = f"{row['subject']}: {row['description']}"
            click.echo(render.printable(f"{words} [{code}]"))
        more = counts[code] - len(those)
        if more > 0:
            click.echo(f"and {more} more [{code}]")
        for command in list(dict.fromkeys(row["next"] for row in those))[:MOST_COMMANDS]:
            click.echo(render.printable(f"next: {command}"))


def _is_crowded(row: Row) -> bool:
    since = row["last-limit-age-ms"]
    return since is not None and since < RECENT_MS


def _of_listener(row: Row) -> str:
    return (
        f"{row['name']}: {counted(row['connections'], 'connection')}, {row['mute']} of them mute; "
        f"{row['refused']} refused and {row['closed-mute']} mute ones closed since the start, the "
        f"last {age(row['last-limit-age-ms'])} ago: the limit is {row['last-limit']}"
    )
