# SPDX-License-Identifier: Apache-2.0
"""``health``: the daemon's health checks, for operators, monitoring and load balancers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.daemon_access import open_client
from amqproute.cli.commands.management_request import ask, carry_out
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.config.units import parse_seconds
from amqproute.errors import AmqprouteError
from amqproute.net.reactor import IReactor
from amqproute.plurals import counted

__all__ = ["ask_health", "health", "health_of", "is_failed"]

OPERATION: Final = "HEALTH"
ENTITY: Final = "broker"
UNKNOWN: Final = 3
_NAGIOS: Final[Mapping[str, tuple[int, str]]] = {
    "ok": (0, "OK"),
    "warning": (1, "WARNING"),
    "failed": (2, "CRITICAL"),
    "unknown": (UNKNOWN, "UNKNOWN"),
}
"""Exit codes and words of plug-ins for Nagios, by the state of a check."""
LONGEST_LINE: Final = 1000


@click.command("health", cls=ProgramCommand)
@click.argument("check", required=False, default="")
@click.option(
    "--within",
    metavar="TIME",
    help="Certificates have to be valid for this long, as in 30d. [default: status.certificate]",
)
@click.option(
    "--nagios",
    is_flag=True,
    help="One line and the exit code of a plug-in for Nagios: 0 ok, 1 warning, 2 critical, 3 "
    "unknown.",
)
@access_options
@json_option
def health(
    check: str,
    within: str | None,
    nagios: bool,
    access: AccessOptions,
    as_json: bool,
) -> int:
    """Run the health checks of the running daemon, or the one that is named.

    The checks are store, journal, disk, listeners, certificates, clock, realms, dns, dnssec,
    destinations, oldest-message, consumers and alarms; docs/health.md says what each asks. A
    finding is printed with its cure. The exit code is 1 if a check has failed; a warning does not
    change it.
    """
    if nagios:
        return _as_plugin(access, check, within)
    found = ask_health(access, check, within)
    checks: Sequence[Facts] = found["checks"]
    if as_json:
        render.json_text(found)
        return NEGATIVE if is_failed(found) else DONE
    render.table(
        ["CHECK", "STATE", "FINDING"],
        ([row["name"], row["state"], row["description"]] for row in checks),
    )
    for row in checks:
        if row["cure"]:
            click.echo(render.printable(f"{row['name']}: {row['cure']}"))
        if row["next"]:
            click.echo(render.printable(f"next: {row['next']}"))
    return NEGATIVE if is_failed(found) else DONE


def ask_health(access: AccessOptions, check: str = "", within: str | None = None) -> Facts:
    """Ask the daemon for the results of its checks.

    Args:
        access: options for the connection.
        check: the only check wanted; empty for all.
        within: the time for which certificates have to be valid; None for the setting.

    Raises:
        CommandError: the time or the check is unknown, or the daemon does not answer.
    """
    body: dict[str, object] = {}
    if within is not None:
        try:
            body["within-seconds"] = parse_seconds(within)
        except ValueError as error:
            raise CommandError(
                USAGE, "usage.time", f"--within: {error}", "as in: --within 30d"
            ) from None
    return carry_out(access, OPERATION, ENTITY, check, body)


async def health_of(reactor: IReactor, access: AccessOptions) -> Facts:
    """As `ask_health`, of all checks, on a reactor that runs already."""
    async with await open_client(reactor, access) as client:
        return await ask(client, OPERATION, ENTITY, "")


def is_failed(found: Facts) -> bool:
    """Tell whether a check has failed, or could not be made."""
    return any(row["state"] in ("failed", "unknown") for row in found["checks"])


def _as_plugin(access: AccessOptions, check: str, within: str | None) -> int:
    """Print the line of a plug-in for Nagios, and return its exit code."""
    try:
        found = ask_health(access, check, within)
    except AmqprouteError as error:
        _print_line("UNKNOWN", str(error), "")
        return UNKNOWN
    checks: Sequence[Facts] = found["checks"]
    code, word = _NAGIOS[str(found["state"])]
    bad = [row for row in checks if row["state"] != "ok"]
    words = "; ".join(f"{row['name']}: {row['description']}" for row in bad)
    counts = " ".join(
        f"{state}={sum(row['state'] == state for row in checks)}"
        for state in ("failed", "warning", "unknown")
    )
    _print_line(word, words or f"{counted(len(checks), 'check')} passed", counts)
    return code


def _print_line(word: str, words: str, counts: str) -> None:
    # A bar begins the figures, and a line break ends the line that is shown.
    text = render.printable(" ".join(words.split())).replace("|", "/")[:LONGEST_LINE]
    click.echo(f"AMQPROUTE {word} - {text}" + (f" | {counts}" if counts else ""))
