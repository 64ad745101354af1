# SPDX-License-Identifier: Apache-2.0
"""Operator verbs on messages to other domains: retry, hold, expire, delete, reroute, why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, ClientError, CommandError
from amqproute.cli.commands.common_options import AccessOptions, access_options, json_option
from amqproute.cli.commands.management_request import ask, carry_out, entities, in_touch
from amqproute.cli.commands.message_options import MessageOptions, age, bulk_command, entry_id
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand
from amqproute.plurals import counted

__all__ = ["delete", "expire", "hold", "holds", "release", "reroute", "retry", "why"]

HOLD_COLUMNS: Final = ("HOLD", "TO", "WHERE", "IDS", "BY", "SINCE", "UNTIL", "REASON")


@bulk_command()
def retry(selection: MessageOptions) -> int:
    """Retry messages now, before their next scheduled attempt.

    Ends the back-off of their domains, and the waiting of messages that a peer has returned. Held
    messages stay held.
    """
    return selection.carry_out("RETRY-MESSAGES", "tried now")


@bulk_command(click.option("--reason", default="", help="For their senders, in the report."))
def expire(selection: MessageOptions, reason: str) -> int:
    """Expire messages now, with reports to their senders.

    They are returned, reported and dead-lettered as requested. Messages in flight stay.
    """
    return selection.carry_out("EXPIRE-MESSAGES", "expired", reason=reason)


@bulk_command(click.option("--reason", default="", help="For the log."))
def delete(selection: MessageOptions, reason: str) -> int:
    """Delete messages on their way to other domains.

    Only senders that requested reports get one; to return messages to all of them use
    `amqproute expire`. Messages in flight stay.
    """
    return selection.carry_out("DELETE-MESSAGES", "deleted", reason=reason)


@bulk_command()
def reroute(selection: MessageOptions) -> int:
    """Move messages whose routes have changed.

    To the relay queue of another next hop, or to a node of this broker. The others stay, and so
    do messages in flight. Reload the configuration first.

    Messages held by id or by a selector stay held at the other next hop, and stay in place if
    their address leads to a node here. A hold for a domain applies to its messages on any path;
    one for a next hop applies to messages for that hop, and not to those moved away.
    """
    return selection.carry_out(
        "REROUTE-MESSAGES",
        "moved",
        nothing="their addresses lead where they wait already: see amqproute explain ADDRESS",
    )


@bulk_command(
    click.option("--reason", default="", help="Shown to everybody who asks why."),
    click.option("--for", "lasts", metavar="TIME", help="For how long, as in --for 2h."),
    click.option("--until", metavar="TIME", help="Until when, as in --until 2030-01-31T06:00Z."),
)
def hold(selection: MessageOptions, reason: str, lasts: str | None, until: str | None) -> int:
    """Hold messages, present and future ones, until they are released.

    A hold for a domain stops the connection to it, too. It outlives restarts of the daemon. It
    is listed in `amqproute holds` with its maker and reason, and ends with `amqproute release HOLD`
    or at its time; its id is never used again. Held messages expire like all others.
    """
    if selection.is_dry:
        return selection.carry_out("HOLD-MESSAGES", "held")
    asked = {**selection.which, "reason": reason, "until-ms": _until(lasts, until)}
    facts = carry_out(selection.access, "HOLD-MESSAGES", "hold", "", asked)
    if selection.as_json:
        render.json_text(facts)
    else:
        click.echo(render.printable(f"{facts['name']}: {facts['reason']}"))
        _print_not_held(facts)
    return NEGATIVE if facts["missing"] else DONE


def _print_not_held(facts: Facts) -> None:
    if facts["missing"]:
        ids = " ".join(map(str, facts["missing"]))
        render.warn(f"not held, since no message on its way has this id: {ids}")
    if facts["in-flight"]:
        ids = " ".join(map(str, facts["in-flight"]))
        render.warn(f"in flight, and held only if the peer gives it back: {ids}")
    if facts["to"] and not facts["queues"]:
        render.warn(f"nothing waits for {facts['to']}; what comes for it will be held")


@click.command(cls=ProgramCommand)
@access_options
@json_option
def holds(access: AccessOptions, as_json: bool) -> None:
    """List the holds, with time, maker and reason."""
    rows = entities(access, "hold")
    if as_json:
        render.json_text({"holds": rows})
        return
    now_ms = time.time() * 1000
    render.table(
        HOLD_COLUMNS,
        (
            (
                row["name"],
                row["to"] or None,
                row["where"] or None,
                " ".join(map(str, row["ids"])) or None,
                row["by"],
                age(int(now_ms - row["since-ms"])),
                None if not row["until-ms"] else _moment(row["until-ms"]),
                row["reason"],
            )
            for row in rows
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


@click.command(cls=ProgramCommand)
@click.argument("message", metavar="ID", type=entry_id)
@access_options
@json_option
def why(message: int, access: AccessOptions, as_json: bool) -> None:
    """Explain why a message has not been delivered, and which command would help.

    ID is the number that `amqproute queue messages` shows.
    """
    facts = carry_out(access, "WHY", "message", str(message))
    if as_json:
        render.json_text(facts)
        return
    for line in _why_lines(facts):
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
        lines.append(f"next attempt: {_moment(facts['next-attempt-ms'])}")
    if facts.get("tries"):
        lines.append(
            f"sent before: {counted(facts['tries'], 'time')}; {facts['given-back'] or 'no outcome'}"
        )
    if facts.get("limiter"):
        lines.append(f"limited by: {facts['limiter']}")
    if facts.get("expires-ms"):
        lines.append(f"expires: {_moment(facts['expires-ms'])}")
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


def _moment(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _until(lasts: str | None, until: str | None) -> int:
    """Return when a hold ends, ms since the epoch; 0 for never."""
    if lasts is not None and until is not None:
        raise CommandError(USAGE, "usage.until", "--for and --until exclude each other", "give one")
    try:
        if lasts is not None:
            from amqproute.config.units import parse_seconds  # the configuration's schema, too

            return int((time.time() + parse_seconds(lasts)) * 1000)
        if until is None:
            return 0
        moment = datetime.fromisoformat(until)
    except ValueError as error:
        words = f"{until!r} is no date and time" if lasts is None else str(error)
        raise CommandError(
            USAGE, "usage.until", words, "as in --for 2h or --until 2030-01-31T06:00Z"
        ) from None
    # Without a zone it is the time on the operator's clock.
    found = int(moment.timestamp() * 1000)
    if found <= time.time() * 1000:
        raise CommandError(USAGE, "usage.until", f"{until} is over", "give a time to come")
    return found
