# SPDX-License-Identifier: Apache-2.0
"""``queue``: what is in the daemon's queues, asked of its management node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from amqproute.cli import content, render, runner
from amqproute.cli.client import Client
from amqproute.cli.commands.options import Access, access_options, json_option, open_client
from amqproute.cli.refusal import NEGATIVE, ClientError

__all__ = ["MANAGEMENT", "age", "query", "queue"]

MANAGEMENT = "$management"

COLUMNS = (
    ("name", "QUEUE"),
    ("kind", "KIND"),
    ("depth", "DEPTH"),
    ("available", "AVAILABLE"),
    ("acquired", "ACQUIRED"),
    ("deferred", "DEFERRED"),
    ("consumers", "CONSUMERS"),
    ("bytes", "BYTES"),
    ("oldest-age-ms", "OLDEST"),
)


@click.group()
def queue() -> None:
    """Queues of the running daemon."""


@queue.command("ls")
@access_options
@json_option
def ls(url: str | None, trust: Path | None, config: Path | None, as_json: bool) -> None:
    """List the queues: nodes, dynamic nodes, and the relay queues to other domains.

    OLDEST is for how long the oldest message at hand has been waiting. With --json every
    attribute is shown, the counters since the start of the daemon among them.
    """
    access = Access(url, config, trust)

    async def work(reactor: Any) -> list[dict[str, Any]]:
        client = await open_client(reactor, access)
        try:
            return await query(client, "queue")
        finally:
            await client.close()

    rows = runner.run(work)
    if as_json:
        render.json_text({"queues": rows})
        return
    render.table(
        [heading for _, heading in COLUMNS],
        ([_cell(key, row.get(key)) for key, _ in COLUMNS] for row in rows),
        right="DEPTH AVAILABLE ACQUIRED DEFERRED CONSUMERS BYTES OLDEST",
    )


async def query(client: Client, entity_type: str) -> list[dict[str, Any]]:
    """Ask the management node for all entities of a type, page by page.

    Raises:
        ClientError: it refuses, or does not answer.
    """
    rows: list[dict[str, Any]] = []
    own: set[str] = set()  # the nodes of our replies, which are of no interest
    offset = 0
    while True:
        asked = {"operation": "QUERY", "entityType": entity_type, "offset": offset}

        def encode(message_id: str, reply_to: str, asked: dict[str, Any] = asked) -> bytes:
            own.add(reply_to)
            return content.encode_request(message_id, reply_to, asked, {})

        properties, body = content.decode_reply(await client.request(MANAGEMENT, encode))
        status = properties.get("statusCode")
        if status != 200 or not isinstance(body, dict):
            words = properties.get("statusDescription", "no words")
            raise ClientError(
                NEGATIVE, f"management.{status}", f"the broker answers: {words}", "see its log"
            )
        names = body.get("attributeNames", [])
        page = body.get("results", [])
        offset += len(page)
        rows += [content.plain(dict(zip(names, values, strict=True))) for values in page]
        if not page or offset >= properties.get("total", offset):
            return [row for row in rows if row.get("name") not in own]


def _cell(key: str, value: Any) -> Any:
    if key == "oldest-age-ms" and value is not None:
        return age(value)
    return value


def age(milliseconds: int) -> str:
    """Return a time span in one unit that fits."""
    seconds = milliseconds // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
