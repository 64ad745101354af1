# SPDX-License-Identifier: Apache-2.0
"""``status``: whether all is well with the running daemon, and if not, with what."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from amqproute.cli import render
from amqproute.cli.client import Client
from amqproute.cli.commands.asking import in_touch, query
from amqproute.cli.commands.options import Access, access_options, json_option
from amqproute.cli.commands.selecting import age
from amqproute.cli.refusal import DONE, NEGATIVE, ClientError

__all__ = ["status"]

COLUMNS: Final = (
    ("name", "MARK"),
    ("state", "STATE"),
    ("level", "LEVEL"),
    ("limit", "LIMIT"),
    ("opens-at", "OPENS-AT"),
)
TYPES: Final = ("watermark", "peer", "queue", "listener", "clock", "certificate")
RECENT_MS: Final = 600_000
"""How long it is told that a listener had no place for somebody."""
BRANCH: Final = "branch"

Row = Mapping[str, Any]


@click.command("status")
@access_options
@json_option
def status(url: str | None, trust: Path | None, config: Path | None, as_json: bool) -> int:
    """Say whether all is well with the running daemon, and if not, with what.

    The marks are those at which publishers (disk, max-bytes, memory, store) or receivers (outgoing)
    are held back, in bytes; then follow the messages that fill memory, the peers that cannot be
    reached, the branches of distributed transactions that wait for their manager, a clock that has
    jumped, and a certificate of ours that is not valid. Listeners that have closed or refused
    connections for want of a place in the last ten minutes stand first. The exit code is 1 if
    anything is held back, cannot be reached, or is wrong with clock or certificate.
    """
    found = in_touch(Access(url, config, trust), _ask)
    marks, peers, queues, listeners, *odd, branches = (found[each] for each in (*TYPES, BRANCH))
    alarms = [row for rows in odd for row in rows if row["reason"]]
    crowded = [row for row in listeners if _is_crowded(row)]
    closed = [row for row in marks if row["state"] != "open"]
    troubled = [row for row in peers if row["failures"] or row["state"] in ("held", "refused")]
    prepared = [row for row in branches if row["state"] == "prepared"]
    if as_json:
        well = not (closed or troubled or alarms)
        facts = {"well": well, "watermarks": marks, "peers": troubled, "alarms": alarms}
        more = {"branches": prepared, "listeners": listeners, "messages": _messages(queues)}
        render.json_text({**facts, **more})
    else:
        for row in crowded:
            click.echo(_of_listener(row))
        _show(marks, [*closed, *alarms], troubled, prepared, queues)
    return NEGATIVE if closed or troubled or alarms else DONE


async def _ask(client: Client) -> dict[str, list[dict[str, Any]]]:
    found = {each: await query(client, each) for each in TYPES}
    try:
        found[BRANCH] = await query(client, BRANCH)
    except ClientError as error:
        if error.code != "management.400":
            raise
        found[BRANCH] = []  # distributed transactions are not enabled, so there is no such type
    return found


def _messages(queues: Iterable[Row]) -> dict[str, int]:
    totals = {"here": 0, "to-others": 0}
    for row in queues:
        totals["to-others" if row["kind"] == "relay" else "here"] += row["depth"]
    return totals


def _show(
    marks: list[dict[str, Any]],
    closed: list[dict[str, Any]],
    troubled: list[dict[str, Any]],
    prepared: list[dict[str, Any]],
    queues: list[dict[str, Any]],
) -> None:
    render.table(
        [heading for _, heading in COLUMNS],
        ([row.get(key) for key, _ in COLUMNS] for row in marks),
        right="LEVEL LIMIT OPENS-AT",
    )
    parts: dict[str, int] = next((row["parts"] for row in marks if row["name"] == "memory"), {})
    held = ", ".join(f"{name} {size}" for name, size in parts.items() if size)
    click.echo(f"messages in memory, bytes: {held or 'none'}")
    totals = _messages(queues)
    click.echo(f"{totals['here']} messages here, {totals['to-others']} on their way to others")
    damaged = sum(row.get("quarantined") or 0 for row in marks)
    if damaged:
        click.echo(
            f"{damaged} damaged messages are in quarantine and go to nobody: look at the disk, and "
            "see amqproute store quarantine ls"
        )
    for row in closed:
        click.echo(f"{row['name']}: {row['reason']}")
    now_ms = int(time.time() * 1000)
    for row in troubled:
        click.echo(_of_peer(row, now_ms))
    for row in prepared:
        click.echo(
            f"{row['name']}: prepared for {age(row['age-ms'])}, waits for its transaction manager"
        )
    if any(row["state"] == "held" for row in troubled):
        click.echo("next: amqproute holds; amqproute release HOLD")
    if any(row["state"] != "held" for row in troubled):
        click.echo(
            "next: amqproute peer test PEER (by a gateway: ADDRESS); amqproute queue messages "
            "--to PEER; amqproute why ID"
        )
    if prepared:
        click.echo("next: amqproute transaction ls")
    if not (closed or troubled):
        click.echo("all is well")


def _is_crowded(row: Row) -> bool:
    since = row["last-limit-age-ms"]
    return since is not None and since < RECENT_MS


def _of_listener(row: Row) -> str:
    return (
        f"{row['name']}: {row['connections']} connections, {row['mute']} of them mute; "
        f"{row['refused']} refused and {row['closed-mute']} mute ones closed since the start, the "
        f"last {age(row['last-limit-age-ms'])} ago: the limit is {row['last-limit']}"
    )


def _of_peer(row: Row, now_ms: int) -> str:
    since = row.get("oldest-arrival-ms")
    oldest = f", the oldest for {age(now_ms - since)}" if since else ""
    why = row["held"] or row["last-error"] or row["state"]
    tried = f" ({row['failures']} attempts)" if row["failures"] else ""
    return f"{row['name']}: {row['state']}, {row['waiting']} messages wait{oldest}: {why}{tried}"
