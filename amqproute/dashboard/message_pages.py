# SPDX-License-Identifier: Apache-2.0
"""One message: why it waits, and its life from the audit journal across hops."""

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
from amqproute.dashboard.page_blocks import (
    ActionButton,
    Block,
    Cell,
    Command,
    Facts,
    FilterForm,
    FormField,
    LogLines,
    LogRow,
    Note,
    Page,
    PageState,
    Table,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, text, texts, whole
from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.journal.record_text import said, when
from amqproute.values import RELAY_PREFIX

__all__ = ["MessageFacts", "TraceFacts", "life", "message_page", "trace_page"]

_RECORD_STATES: Final[Mapping[str, PageState]] = {
    RecordKind.DEFERRED: "doubtful",
    RecordKind.REJECTED: "bad",
    RecordKind.EXPIRED: "bad",
    RecordKind.DEAD_LETTERED: "bad",
    RecordKind.RETURNED: "bad",
    RecordKind.DELETED: "bad",
    RecordKind.RELAYED: "good",
    RecordKind.DELIVERED: "good",
    RecordKind.GAP: "bad",
}


@dataclass(frozen=True, slots=True)
class MessageFacts:
    """Contents of the page of one message.

    Attributes:
        id: the broker's own number.
        why: the answer to WHY; None if the message has gone, or is not for this user.
        refused: why there is none.
        story: records of the journal; None if no journal is kept, or it is not for this user.
        story_refused: why there is no story.
    """

    id: str
    why: Row | None
    refused: str
    story: Sequence[JournalRecord] | None
    story_refused: str = ""


_CAUSES: Final[Mapping[str, PageState]] = {
    "in-flight": "good",
    "in-line": "",
    "connecting": "",
    "idle": "",
    "held": "doubtful",
    "limit": "doubtful",
    "credit": "doubtful",
    "no-consumer": "doubtful",
}


def message_page(facts: MessageFacts) -> Page:
    """Make the page of one message."""
    blocks: list[Block] = []
    why = facts.why
    if why is None:
        blocks.append(Note("why", facts.refused, "doubtful"))
    else:
        cause = text(why, "cause")
        state = _CAUSES.get(cause.partition(".")[0], "bad")
        items = [f"cause: {cause}"]
        if text(why, "class"):
            items.append(f"kind of failure: {text(why, 'class')}")
        if whole(why, "failed-attempts"):
            items.append(f"attempts failed: {whole(why, 'failed-attempts')}")
        if whole(why, "next-attempt-ms"):
            items.append(f"next attempt (UTC): {date_time(whole(why, 'next-attempt-ms'))}")
        items += [f"tried: {each}" for each in texts(why, "places")]
        commands = [Command(each) for each in texts(why, "next")]
        blocks.append(Note("why", text(why, "description"), state, items, commands))
        blocks += [_tools(facts.id, why), _facts(why)]
    blocks.append(life(facts.story, facts.story_refused))
    return Page(
        f"Message {facts.id}",
        blocks,
        "queues",
        subtitle="why it waits, and what has happened to it",
        parent=_parent(why),
    )


def _parent(why: Row | None) -> tuple[str, str]:
    queue = "" if why is None else text(why, "queue")
    return (queue, address("queue", name=queue)) if queue else ("Queues", address("queues"))


def _tools(number_text: str, why: Row) -> Toolbar:
    queue = text(why, "queue")
    if not queue.startswith(RELAY_PREFIX):
        where = [("name", queue)]
        return Toolbar(
            "tools",
            [
                ActionButton("Move messages of the queue", "move", where),
                ActionButton("Requeue dead letters", "requeue", where),
            ],
        )
    one = [("ids", number_text)]
    buttons = [
        ActionButton("Retry now", "retry", one),
        ActionButton("Hold", "hold", one),
        ActionButton("Reroute", "reroute", one),
        ActionButton("Expire", "expire", one),
        ActionButton("Delete", "delete-messages", one),
    ]
    held = texts(why, "holds")
    buttons[:0] = [ActionButton(f"Release {each}", "release", [("name", each)]) for each in held]
    peer = text(why, "peer")
    if peer and text(why, "last-error"):
        to = text(why, "to")
        buttons.insert(0, ActionButton("Test the connection", "peer-test", [("to", to or peer)]))
    return Toolbar("tools", buttons)


def _facts(why: Row) -> Facts:
    queue, peer, message_id = text(why, "queue"), text(why, "peer"), text(why, "message-id")
    pairs = [
        ("queue", Cell(queue, address("queue", name=queue))),
        ("organization", Cell(peer, address("peer", name=peer) if peer else "")),
        ("link to it", Cell(text(why, "peer-state"))),
        ("to", Cell(text(why, "to"))),
        ("message-id", Cell(message_id, address("trace", message=message_id))),
        ("subject", Cell(text(why, "subject"))),
        ("state", Cell(text(why, "state"))),
        ("arrived (UTC)", Cell(date_time(whole(why, "arrived-ms")))),
        ("age", Cell(age(whole(why, "age-ms")))),
        ("expires (UTC)", Cell(date_time(whole(why, "expires-ms")))),
        ("attempts", Cell(number(whole(why, "attempts")))),
        ("size", Cell(size(whole(why, "bytes")))),
        ("priority", Cell(text(why, "priority"))),
        ("durable", Cell("yes" if why.get("durable") else "no")),
    ]
    return Facts("facts", "The message", [each for each in pairs if each[1].text not in ("", DASH)])


def life(story: Sequence[JournalRecord] | None, refused: str = "") -> LogLines:
    """Return the records of a message in the order of time."""
    rows = [
        LogRow(
            when(each.time),
            str(each.kind),
            said(each),
            _RECORD_STATES.get(each.kind, ""),
            f"broker {each.broker}" + (f", entry {each.entry}" if each.entry else ""),
        )
        for each in story or ()
    ]
    empty = refused or "The journal has no record of it."
    return LogLines("life", "Its life, from the audit journal", rows, empty)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """Contents of the search for a message.

    Attributes:
        wanted: what was searched; empty before the search.
        kind: ``message``, ``entry`` or ``digest``.
        story: the records found; None without a search, or without a journal.
        refused: why there are none.
    """

    wanted: str = ""
    kind: str = "message"
    story: Sequence[JournalRecord] | None = None
    refused: str = ""


def trace_page(facts: TraceFacts) -> Page:
    """Make the page that searches the journal for a message."""
    search = Table(
        "search",
        "Search",
        [],
        [],
        empty="By message-id, by the broker's own number, or by the digest of the bare message.",
        filter=FilterForm(
            address("trace"),
            [
                FormField(
                    "message",
                    "Message-id",
                    facts.wanted if facts.kind == "message" else "",
                    "search",
                ),
                FormField(
                    "entry", "Number", facts.wanted if facts.kind == "entry" else "", "search"
                ),
                FormField(
                    "digest", "Digest", facts.wanted if facts.kind == "digest" else "", "search"
                ),
            ],
        ),
    )
    blocks: list[Block] = [search]
    if facts.wanted:
        entries = list(dict.fromkeys(each.entry for each in facts.story or () if each.entry))
        blocks.append(life(facts.story, facts.refused))
        if entries:
            links = [
                (f"number {each}", Cell("why does it wait?", address("message", id=each)))
                for each in entries[:10]
            ]
            blocks.append(Facts("entries", "Its numbers here", links))
    return Page(
        "Trace",
        blocks,
        "trace",
        subtitle="one message's life, across hops as far as this journal and reports tell",
        is_live=False,
    )
