# SPDX-License-Identifier: Apache-2.0
"""Queues with the ages of their messages, and a queue with its messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.dashboard.display_units import (
    DASH,
    address,
    age,
    date_time,
    number,
    size,
)
from amqproute.dashboard.list_parts import filter_by_name_and_host, noted_refusal, part_addresses
from amqproute.dashboard.management_source import RowPage
from amqproute.dashboard.page_blocks import (
    ActionButton,
    AgeBars,
    Block,
    Cell,
    Column,
    Facts,
    Figure,
    Figures,
    FilterForm,
    FormField,
    Note,
    Page,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, counts, text, texts, whole
from amqproute.values import RELAY_PREFIX

__all__ = ["QueueFacts", "QueueList", "age_bars", "queue_page", "queues_page"]


def age_bars(shape: Row | None) -> AgeBars | None:
    """Return the bars of a row of the entity type ``shape``; None without one."""
    if shape is None:
        return None
    ends = counts(shape, "ages-minutes")
    labels = [f"up to {_minutes(each)}" for each in ends] + ["older"]
    found = counts(shape, "ages")
    if len(found) != len(labels):
        return None
    return AgeBars(found, labels)


def _minutes(minutes: int) -> str:
    return f"{minutes} min" if minutes < 60 else f"{minutes / 60:.1f} h".replace(".0 h", " h")


@dataclass(frozen=True, slots=True)
class QueueList:
    """Contents of the list of queues.

    Attributes:
        queues: rows.
        shapes: rows of the entity type ``shape``, by name.
        contains: the filter.
        host: the virtual host; empty for all.
        is_first: whether it is the first part.
    """

    queues: RowPage
    shapes: Mapping[str, Row]
    contains: str = ""
    host: str = ""
    is_first: bool = True


def queues_page(facts: QueueList) -> Page:
    """Make the page of all queues."""
    made = []
    for row in facts.queues.rows:
        name = text(row, "name")
        depth, consumers = whole(row, "depth"), whole(row, "consumers")
        is_stuck = bool(depth) and not consumers and text(row, "kind") != "relay"
        made.append(
            TableRow(
                name,
                [
                    Cell(name, address("queue", name=name)),
                    Cell(text(row, "kind"), detail=text(row, "virtual-host")),
                    Cell(number(depth)),
                    Cell("", bars=age_bars(facts.shapes.get(name))),
                    Cell(age(whole(row, "oldest-age-ms"))),
                    Cell(
                        number(consumers),
                        state="doubtful" if is_stuck else "",
                        detail="nobody receives" if is_stuck else "",
                    ),
                    Cell(number(whole(row, "acquired"))),
                    Cell(size(whole(row, "bytes"))),
                ],
            )
        )
    first, more = part_addresses(
        "queues", facts.is_first, facts.queues.cursor, contains=facts.contains, host=facts.host
    )
    table = Table(
        "queues",
        "Queues",
        [
            Column("queue", "code"),
            Column("kind", is_minor=True),
            Column("messages", "number"),
            Column("ages"),
            Column("oldest", "number"),
            Column("consumers", "number"),
            Column("acquired", "number", is_minor=True),
            Column("size", "number", is_minor=True),
        ],
        made,
        empty=(f"No queue has {facts.contains!r} in its name." if facts.contains else "No queues."),
        total=facts.queues.total,
        first=first,
        more=more,
        filter=filter_by_name_and_host("queues", facts.contains, facts.host),
        note="Ages: each bar is a class of age, from up to 5 minutes on the left, doubling, to "
        "more than 21 hours on the right.",
    )
    blocks = [*noted_refusal(facts.queues), table]
    return Page("Queues", blocks, "queues", subtitle="queues, topics, subscriptions, relay queues")


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Contents of the page of one queue.

    Attributes:
        row: the row of the queue.
        shape: its ages; None without.
        messages: rows of messages.
        refused: why there are none; empty if they could be read.
        cursor: the cursor of the next part of the messages; empty at the end.
        where: the selector.
        is_first: whether it is the first part.
    """

    row: Row
    shape: Row | None
    messages: Sequence[Row]
    refused: str = ""
    cursor: str = ""
    where: str = ""
    is_first: bool = True


_SHOWN: Final = frozenset(
    {
        "name", "type", "depth", "available", "acquired", "deferred", "consumers", "resident",
        "bytes", "oldest-age-ms", "enqueued", "dequeued", "released", "rejected", "expired",
        "dead-lettered", "loaded", "kind", "virtual-host", "options", "terms", "dropped",
        "unroutable", "subscriptions", "durable-subscriptions",
    }
)  # fmt: skip
"""Attributes that have a place of their own, or that nobody asks for at night."""


def queue_page(facts: QueueFacts) -> Page:
    """Make the page of one queue."""
    row = facts.row
    name = text(row, "name")
    is_relay = name.startswith(RELAY_PREFIX)
    is_topic = text(row, "kind") == "topic"
    blocks: list[Block] = []
    depth, consumers = whole(row, "depth") or 0, whole(row, "consumers") or 0
    if depth and not consumers and not is_relay and not is_topic:
        blocks.append(Note("verdict", "Messages wait and nobody receives from it.", "doubtful"))
    blocks += [Toolbar("tools", _buttons(name, is_relay, is_topic)), _figures(facts)]
    bars = age_bars(facts.shape)
    if bars is not None:
        blocks.append(_ages(bars))
    if not is_topic:
        blocks.append(_messages(facts, name))
    blocks.append(_details(row))
    subtitle = " · ".join(each for each in (text(row, "kind"), text(row, "virtual-host")) if each)
    return Page(name, blocks, "queues", subtitle=subtitle, parent=("Queues", address("queues")))


def _buttons(name: str, is_relay: bool, is_topic: bool) -> Sequence[ActionButton]:
    if is_relay:
        key = name.removeprefix(RELAY_PREFIX)
        return [
            ActionButton("Retry now", "retry", [("to", key)]),
            ActionButton("Hold", "hold", [("to", key)]),
            ActionButton("Reroute", "reroute", [("to", key)]),
            ActionButton("Expire all", "expire", [("to", key)]),
            ActionButton("Delete all", "delete-messages", [("to", key)]),
        ]
    named = [("name", name)]
    if is_topic:
        return [ActionButton("Delete the topic", "delete-queue", named)]
    return [
        ActionButton("Move messages", "move", named),
        ActionButton("Copy messages", "copy", named),
        ActionButton("Requeue dead letters", "requeue", named),
        ActionButton("Purge", "purge", named),
        ActionButton("Delete the queue", "delete-queue", named),
    ]


def _figures(facts: QueueFacts) -> Figures:
    row = facts.row
    return Figures(
        "figures",
        [
            Figure("messages", number(whole(row, "depth")), size(whole(row, "bytes"))),
            Figure("available", number(whole(row, "available"))),
            Figure("acquired", number(whole(row, "acquired")), "with consumers"),
            Figure("deferred", number(whole(row, "deferred")), "wait for their time"),
            Figure("oldest", age(whole(row, "oldest-age-ms"))),
            Figure("consumers", number(whole(row, "consumers"))),
        ],
    )


def _ages(bars: AgeBars) -> Table:
    made = [
        TableRow(
            label,
            [Cell(label), Cell(number(count)), Cell("", bars=_only(bars, place))],
        )
        for place, (count, label) in enumerate(zip(bars.counts, bars.labels, strict=True))
        if count
    ]
    columns = [Column("age"), Column("messages", "number"), Column("among all ages", is_minor=True)]
    return Table("ages", "Ages of waiting messages", columns, made, empty="No message waits.")


def _only(bars: AgeBars, place: int) -> AgeBars:
    shown = [count if each == place else 0 for each, count in enumerate(bars.counts)]
    return AgeBars(shown, bars.labels)


def _messages(facts: QueueFacts, name: str) -> Table:
    made = [
        TableRow(
            text(row, "id"),
            [
                Cell(text(row, "id"), address("message", id=text(row, "id"), queue=name)),
                Cell(
                    text(row, "message-id") or DASH,
                    address("trace", message=text(row, "message-id")),
                ),
                Cell(text(row, "to"), detail=text(row, "subject")),
                Cell(text(row, "state"), detail=", ".join(texts(row, "holds"))),
                Cell(number(whole(row, "attempts"))),
                Cell(age(whole(row, "age-ms"))),
                Cell(date_time(whole(row, "expires-ms"))),
                Cell(size(whole(row, "bytes"))),
            ],
        )
        for row in facts.messages
    ]
    columns = [
        Column("message", "number"),
        Column("message-id", "code", is_minor=True),
        Column("to", "code"),
        Column("state"),
        Column("attempts", "number"),
        Column("age", "number"),
        Column("expires (UTC)", "number", is_minor=True),
        Column("size", "number", is_minor=True),
    ]
    first, more = part_addresses(
        "queue", facts.is_first, facts.cursor, name=name, where=facts.where
    )
    return Table(
        "messages",
        "Messages",
        columns,
        made,
        empty=facts.refused
        or ("No message matches." if facts.where else "No message is on this queue."),
        first=first,
        more=more,
        filter=FilterForm(
            address("queue"),
            [
                FormField(
                    "where",
                    "Selector",
                    facts.where,
                    "search",
                    hint="such as: color = 'red', or: amqp.message_id = 'm-1'",
                )
            ],
            [("name", name)],
        ),
    )


def _details(row: Row) -> Facts:
    totals = [
        (label, Cell(number(whole(row, key))))
        for key, label in (
            ("enqueued", "enqueued"),
            ("dequeued", "dequeued"),
            ("released", "released by consumers"),
            ("rejected", "rejected by consumers"),
            ("expired", "expired"),
            ("dead-lettered", "dead-lettered"),
            ("dropped", "dropped"),
            ("unroutable", "without a subscriber"),
            ("subscriptions", "subscriptions"),
        )
        if row.get(key) is not None
    ]
    more = [
        (key, Cell(str(value)))
        for key, value in row.items()
        if key not in _SHOWN and value not in (None, "", [], {})
    ]
    options = row.get("options")
    if isinstance(options, Mapping):
        more += [(str(key), Cell(str(each))) for key, each in options.items() if each is not None]
    terms = row.get("terms")
    if isinstance(terms, Mapping):
        for key, term in terms.items():
            if isinstance(term, Mapping):
                source = " ".join(
                    str(term[part]) for part in ("source", "policy") if term.get(part)
                )
                more.append((str(key), Cell(str(term.get("value")), detail=source)))
    return Facts("details", "Totals and options", [*totals, *dict(more).items()])
