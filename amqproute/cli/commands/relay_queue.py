# SPDX-License-Identifier: Apache-2.0
"""Operator verbs on messages to other domains: retry, hold, expire, delete, reroute, why."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, ClientError, CommandError
from amqproute.cli.commands.attribute_table import RowTable, age, as_given, moment
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.list_command import ListCommand, list_command
from amqproute.cli.commands.management_request import ask, in_touch
from amqproute.cli.commands.message_options import (
    bulk_command,
    print_selected,
    selected,
    warn_of_missing,
)
from amqproute.cli.commands.operation_command import (
    CommandInputs,
    CommandRequest,
    OperationCommand,
    Outcome,
    milliseconds_of,
    operation_command,
)
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.plurals import counted

__all__ = ["delete", "expire", "hold", "holds", "release", "reroute", "retry", "why"]

retry: Final = operation_command(
    "retry",
    bulk_command(
        "RETRY-MESSAGES",
        """Retry messages now, before their next scheduled attempt.

        Ends the back-off of their domains, and the waiting of messages that a peer has returned.
        Held messages stay held.
        """,
        "tried now",
    ),
)
expire: Final = operation_command(
    "expire",
    bulk_command(
        "EXPIRE-MESSAGES",
        """Expire messages now, with reports to their senders.

        They are returned, reported and dead-lettered as requested. Messages in flight stay.
        """,
        "expired",
    ),
)
delete: Final = operation_command(
    "delete",
    bulk_command(
        "DELETE-MESSAGES",
        """Delete messages on their way to other domains.

        Only senders that requested reports get one; to return messages to all of them use
        `amqproute expire`. Messages in flight stay.
        """,
        "deleted",
    ),
)
reroute: Final = operation_command(
    "reroute",
    bulk_command(
        "REROUTE-MESSAGES",
        """Move messages whose routes have changed.

        To the relay queue of another next hop, or to a node of this broker. The others stay, and so
        do messages in flight. Reload the configuration first.

        Messages held by id or by a selector stay held at the other next hop, and stay in place if
        their address leads to a node here. A hold for a domain applies to its messages on any path;
        one for a next hop applies to messages for that hop, and not to those moved away.
        """,
        "moved",
        nothing="their addresses lead where they wait already: see amqproute explain ADDRESS",
    ),
)


def _held(outcome: Outcome) -> None:
    if outcome.is_dry:
        print_selected(outcome, "held")
        return
    facts = outcome.facts
    click.echo(render.printable(f"{facts['name']}: {facts['reason']}"))
    if facts["missing"]:
        warn_of_missing("not held, since no message on its way has this id", facts["missing"])
    if facts["in-flight"]:
        warn_of_missing("in flight, and held only if the peer gives it back", facts["in-flight"])
    if facts["to"] and not facts["queues"]:
        render.warn(f"nothing waits for {facts['to']}; what comes for it will be held")


def _ending(outcome: Outcome) -> int:
    nothing = outcome.is_dry and not outcome.facts["messages"]
    return NEGATIVE if nothing or outcome.facts["missing"] else DONE


def _set_end(request: CommandRequest, given: Mapping[str, object]) -> None:
    lasts, until = given["lasts"], given["until"]
    if lasts is not None and until is not None:
        raise CommandError(USAGE, "usage.until", "--for and --until exclude each other", "give one")
    if lasts is not None:
        end_ms = int(time.time() * 1000) + milliseconds_of("--for", str(lasts))
        request.body["until-ms"] = end_ms
    if until is not None:
        request.body["until-ms"] = _end_of(str(until))


def _end_of(until: str) -> int:
    """Return a moment to come in milliseconds since the epoch."""
    try:
        # Without a zone it is the time on the operator's clock.
        found = int(datetime.fromisoformat(until).timestamp() * 1000)
    except ValueError:
        words, step = f"{until!r} is no date and time", "as in --until 2030-01-31T06:00Z"
        raise CommandError(USAGE, "usage.until", words, step) from None
    if found <= time.time() * 1000:
        raise CommandError(USAGE, "usage.until", f"{until} is over", "give a time to come")
    return found


hold: Final = operation_command(
    "hold",
    OperationCommand(
        "HOLD-MESSAGES",
        "hold",
        """Hold messages, present and future ones, until they are released.

        A hold for a domain stops the connection to it, too. It outlives restarts of the daemon. It
        is listed in `amqproute holds` with its maker and reason, and ends with `amqproute release
        HOLD` or at its time; its id is never used again. Held messages expire like all others.
        """,
        _held,
        selected(
            (
                click.option(
                    "--for", "lasts", metavar="TIME", help="For how long, as in --for 2h."
                ),
                click.option(
                    "--until", metavar="TIME", help="Until when, as in --until 2030-01-31T06:00Z."
                ),
            ),
            _set_end,
            without=["until-ms"],
        ),
        afterwards=_ending,
    ),
)
holds: Final = list_command(
    "holds",
    ListCommand(
        "hold",
        "holds",
        "List the holds, with time, maker and reason.",
        RowTable(
            "HOLD=name TO WHERE IDS BY SINCE UNTIL REASON",
            {
                "IDS": lambda row: " ".join(map(str, row["ids"])) or None,
                "SINCE": lambda row: age(int(time.time() * 1000 - row["since-ms"])),
                "UNTIL": lambda row: moment(row["until-ms"]),
                "REASON": as_given("reason"),
            },
        ),
    ),
)


@click.command(cls=ProgramCommand)
@click.argument("holds", metavar="HOLD...", nargs=-1, required=True)
@access_options
@json_option
def release(holds: Sequence[str], access: AccessOptions, as_json: bool) -> None:
    """Release holds by their ids; the held messages are sent at once."""
    released: list[Facts] = []
    refused: list[ClientError] = []

    async def work(client: Client) -> None:
        for name in dict.fromkeys(holds):
            try:
                released.append(await ask(client, "RELEASE-HOLD", "hold", name))
            except ClientError as error:
                if not error.code.startswith("management."):
                    raise  # it would be the same for each of them
                refused.append(error)

    in_touch(access, work)
    if as_json:
        render.json_text({"released": released})
    else:
        for facts in released:
            click.echo(render.printable(f"{facts['name']}: released ({facts['reason']})"))
    if refused:
        first = refused[0]
        words = "; ".join(error.words for error in refused)
        raise ClientError(first.exit_code, first.code, words, first.next_step)


def _explain(outcome: Outcome) -> None:
    for line in _why_lines(outcome.facts):
        click.echo(render.printable(line))


def _why_lines(facts: Facts) -> list[str]:
    waits = f"{facts['bytes']} bytes, here for {age(facts['age-ms'])}"
    lines = [
        f"message {facts['id']} on {facts['queue']}, to {facts['to'] or '-'}: {waits}",
        *_published(facts),
        f"{facts['cause']}: {facts['description']}",
    ]
    if facts.get("last-error"):
        lines.append(f"last error: {facts['last-error']} ({facts['class']})")
        lines += [f"  {place}" for place in facts["places"]]
    if facts.get("failed-attempts"):
        lines.append(f"failed attempts to reach {facts['peer']}: {facts['failed-attempts']}")
    if facts.get("next-attempt-ms"):
        lines.append(f"next attempt: {moment(facts['next-attempt-ms'])}")
    if facts.get("tries"):
        lines.append(
            f"sent before: {counted(facts['tries'], 'time')}; {facts['given-back'] or 'no outcome'}"
        )
    if facts.get("limiter"):
        lines.append(f"limited by: {facts['limiter']}")
    if facts.get("expires-ms"):
        lines.append(f"expires: {moment(facts['expires-ms'])}")
    return [*lines, *(f"next: {command}" for command in facts["next"])]


def _published(facts: Facts) -> list[str]:
    """Say how a client of 0-9 or 0-9-1 has published a message; nothing of other messages."""
    if not facts.get("protocol"):
        return []
    key = facts.get("routing-key") or ""
    exchange = facts.get("exchange")
    where = f"to the exchange {exchange}" if exchange else "to the default exchange"
    kind = f" as {facts['content-class']} content" if facts.get("content-class") else ""
    return [f"published by {facts['protocol']}{kind}, {where}, with the routing key {key!r}"]


why: Final = operation_command(
    "why",
    OperationCommand(
        "WHY",
        "",
        """Explain why a message has not been delivered, and which command would help.

        ID is the number that `amqproute queue messages` shows.
        """,
        _explain,
        CommandInputs("ID"),
    ),
)
