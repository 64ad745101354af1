# SPDX-License-Identifier: Apache-2.0
"""``requeue``: returns dead letters and refused messages to their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

from amqproute.cli import render
from amqproute.cli.command_error import DONE, NEGATIVE, USAGE, CommandError
from amqproute.cli.commands.common_options import (
    NODE_NAME,
    AccessOptions,
    access_options,
    json_option,
    vhost_option,
)
from amqproute.cli.commands.management_request import go_through
from amqproute.cli.commands.message_options import age, counted, entry_id
from amqproute.cli.message_text import Facts
from amqproute.cli.program_commands import ProgramCommand

__all__ = ["requeue"]

REASONS: Final = ("rejected", "expired", "max-deliveries", "max-length", "undeliverable")
_COLUMNS: Final = ("ID", "TO", "GOES-TO", "REASON", "CONDITION", "AGE", "BYTES", "MESSAGE-ID")


@click.command(cls=ProgramCommand)
@click.argument("queue", type=NODE_NAME)
@vhost_option
@click.argument("ids", metavar="[ID]...", nargs=-1, type=entry_id)
@click.option("--source", metavar="NODE", default="", help="Those that left this queue.")
@click.option(
    "--reason", type=click.Choice(REASONS), default=None, help="Those that failed like this."
)
@click.option(
    "--condition",
    metavar="CONDITION",
    default="",
    help="Those with this error, as in --condition amqp:not-found.",
)
@click.option(
    "--where",
    metavar="SQL",
    default="",
    help="Those that a selector fits, as in --where \"color = 'red'\".",
)
@click.option("--older-than", metavar="TIME", help="Dead for longer, as in --older-than 2h.")
@click.option("--newer-than", metavar="TIME", help="Dead for less, as in --newer-than 30m.")
@click.option("--limit", type=click.IntRange(1), help="Most messages to process.")
@click.option("--dry-run", is_flag=True, help="Only count, and show five of them.")
@access_options
@json_option
def requeue(
    queue: str,
    ids: Sequence[int],
    source: str,
    reason: str | None,
    condition: str,
    where: str,
    older_than: str | None,
    newer_than: str | None,
    limit: int | None,
    dry_run: bool,
    access: AccessOptions,
    as_json: bool,
) -> int:
    """Return dead letters on QUEUE to their addresses.

    QUEUE is a node that keeps dead letters. Each returns to the queue that it left; a message that
    could not be delivered to another organization, or came back from there, is sent to its address
    again, by the present routes. A message has to match all given options; without any, all dead
    letters are selected.

    Deliveries are counted from 0 again, and a message that had a time to live has none any more.
    A message that its node refuses stays on QUEUE. Exit code 1 if there was nothing to requeue, or
    if any selected message stayed.
    """
    given: Facts = {
        "ids": list(ids),
        "source": source,
        "reason": reason,
        "condition": condition,
        "where": where,
        "older-than-ms": _milliseconds("--older-than", older_than),
        "newer-than-ms": _milliseconds("--newer-than", newer_than),
        "limit": limit,
        "dry-run": dry_run,
    }
    asked = {key: value for key, value in given.items() if value}
    total: Facts = {"messages": 0, "bytes": 0, "refused": 0, "refused-because": ""}
    missing: list[int] = []
    targets: dict[str, int] = {}
    samples: list[Facts] = []

    def told(facts: Facts) -> bool:
        for key in ("messages", "bytes", "refused"):
            total[key] += int(facts[key])
        total["refused-because"] = facts["refused-because"] or total["refused-because"]
        missing.extend(facts["missing"])
        samples.extend(facts["samples"])
        for name, count in facts["targets"].items():
            targets[name] = targets.get(name, 0) + int(count)
        if limit is not None:
            asked["limit"] = limit - total["messages"]
        return limit is None or total["messages"] < limit

    go_through(access, "REQUEUE", asked, told, name=queue)
    del samples[5:]
    if as_json:
        facts = {**total, "dry-run": dry_run, "targets": targets, "missing": missing}
        render.json_text({**facts, "samples": samples})
    else:
        _print(queue, total, targets, samples, missing, dry_run)
    failed = total["refused-because"] or missing or not total["messages"]
    return NEGATIVE if failed else DONE


def _print(
    queue: str,
    total: Facts,
    targets: Mapping[str, int],
    samples: Sequence[Facts],
    missing: Sequence[int],
    dry_run: bool,
) -> None:
    words = "would be requeued" if dry_run else "requeued"
    click.echo(f"{counted(total['messages'])} {words} ({total['bytes']} bytes)")
    for name, count in sorted(targets.items()):
        click.echo(render.printable(f"  {count} to {name}"))
    if samples and dry_run:
        rows = ([_cell(key, row) for key in _KEYS] for row in samples)
        render.table(_COLUMNS, rows, right="ID AGE BYTES")
    if total["refused-because"]:
        stayed = counted(total["refused"]) if total["refused"] else "the rest"
        render.warn(f"{stayed} on {queue} not requeued: {total['refused-because']}")
    if missing:
        ids = " ".join(map(str, missing))
        render.warn(f"not on {queue}, or with a consumer: {ids}; see amqproute queue messages")


_KEYS: Final = (
    "id",
    "to",
    "new-queue",
    "state",
    "condition",
    "age-ms",
    "bytes",
    "message-id",
)


def _cell(key: str, row: Facts) -> object:
    value = row.get(key)
    return age(int(value)) if key == "age-ms" and value is not None else value


def _milliseconds(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    from amqproute.config.units import parse_seconds  # imports the configuration's schema, too

    try:
        return int(parse_seconds(text) * 1000)
    except ValueError as error:
        raise CommandError(
            USAGE, "usage.time", f"{option}: {error}", f"as in {option} 2h"
        ) from None
