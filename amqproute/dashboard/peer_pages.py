# SPDX-License-Identifier: Apache-2.0
"""Other organizations: the map, and a page for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.dashboard.display_units import (
    DASH,
    address,
    age,
    countdown,
    date_time,
    number,
    size,
)
from amqproute.dashboard.list_parts import filter_field, part_addresses
from amqproute.dashboard.management_source import RowPage
from amqproute.dashboard.page_blocks import (
    ActionButton,
    Block,
    Cell,
    Column,
    Command,
    Facts,
    Figure,
    Figures,
    FilterForm,
    LinkMap,
    MapPeer,
    Note,
    Page,
    PageState,
    Table,
    TableRow,
    Toolbar,
)
from amqproute.dashboard.row_values import Row, flag, maps, real, text, texts, whole
from amqproute.values import RELAY_PREFIX

__all__ = [
    "FIRST_MESSAGES",
    "MOST_ON_MAP",
    "PeerFacts",
    "PeerList",
    "peer_page",
    "peers_page",
    "test_page",
]

FIRST_MESSAGES: Final = 10
"""Waiting messages on the page of an organization; its queue has all."""
MOST_ON_MAP: Final = 16
MOST_TROUBLED: Final = 20
"""Next hops in trouble that stand above a list of many."""
_BOX_HEIGHT: Final = 46
_PITCH: Final = 62
_BOX_WIDTH: Final = 300
_WIDTH: Final = 960

_STATES: Final[Mapping[str, PageState]] = {
    "open": "good",
    "idle": "dim",
    "connecting": "doubtful",
    "waiting": "bad",
    "refused": "bad",
    "held": "doubtful",
}
_WORDS: Final = {
    "open": "connected",
    "idle": "idle",
    "connecting": "connecting",
    "waiting": "failing, waits to try again",
    "refused": "refused",
    "held": "held by an operator",
}

_SHORT: Final = {"waiting": "failing", "held": "held"}
"""Words for the map, which has little room."""


@dataclass(frozen=True, slots=True)
class PeerList:
    """Contents of the list of organizations.

    Attributes:
        ours: our domain.
        peers: rows of next hops.
        incoming: number of connections from each domain.
        now_ms: the wall clock.
        contains: the filter.
        is_first: whether it is the first part of the list.
        troubled: rows of next hops in trouble, wherever in the list they are.
    """

    ours: str
    peers: RowPage
    incoming: Mapping[str, int]
    now_ms: int
    contains: str = ""
    is_first: bool = True
    troubled: Sequence[Row] = ()


def _state(row: Row) -> str:
    return "held" if text(row, "held") else text(row, "state")


def state_cell(row: Row) -> Cell:
    """Return the state of a next hop."""
    name = _state(row)
    state: PageState = "bad" if flag(row, "dead") else _STATES.get(name, "")
    words = _WORDS.get(name, name)
    return Cell(f"{words}, dead" if flag(row, "dead") else words, state=state)


def _order(row: Row) -> tuple[int, int]:
    """Return the key that puts what is wrong first, and then what has most to do."""
    ranks = {"bad": 0, "doubtful": 1, "good": 2, "": 3, "dim": 4}
    return ranks[state_cell(row).state], -(whole(row, "waiting") or 0)


def _age_of(row: Row, now_ms: int) -> str:
    arrived = whole(row, "oldest-arrival-ms")
    return DASH if arrived is None else age(now_ms - arrived)


def peers_page(facts: PeerList) -> Page:
    """Make the page of all organizations."""
    blocks: list[Block] = []
    if facts.peers.refused:
        blocks.append(Note("refused", facts.peers.refused, "bad"))
    known = {text(row, "name"): row for row in (*facts.troubled, *facts.peers.rows)}
    rows = sorted(known.values(), key=_order)
    if rows:
        blocks.append(_map(rows[:MOST_ON_MAP], facts))
    listed = {text(row, "name") for row in facts.peers.rows}
    if not listed.issuperset(text(row, "name") for row in facts.troubled):
        troubled = sorted(facts.troubled, key=_order)[:MOST_TROUBLED]
        columns = _table(facts, ()).columns
        blocks.append(Table("troubled", "In trouble", columns, _rows(facts, troubled)))
    blocks.append(_table(facts, facts.peers.rows))
    return Page("Organizations", blocks, "peers", subtitle="links to other brokers and from them")


def _map(rows: Sequence[Row], facts: PeerList) -> LinkMap:
    count = len(rows)
    deep = max(1, (count + 1) // 2)
    height = deep * _PITCH
    center_y = height // 2
    made = []
    for place, row in enumerate(rows):
        is_left = place % 2 == 0
        x = 0 if is_left else _WIDTH - _BOX_WIDTH
        y = place // 2 * _PITCH + (_PITCH - _BOX_HEIGHT) // 2
        middle = y + _BOX_HEIGHT // 2
        begin, end = (_BOX_WIDTH, 400) if is_left else (_WIDTH - _BOX_WIDTH, 560)
        cell = state_cell(row)
        domain = text(row, "domain")
        links = facts.incoming.get(domain, 0)
        into = f"{links} from there" if links else "none from there"
        name = text(row, "name")
        made.append(
            MapPeer(
                name,
                address("peer", name=name),
                cell.state,
                _SHORT.get(_state(row), cell.text.partition(",")[0]),
                into,
                f"{number(whole(row, 'waiting'))} waiting",
                x,
                y,
                f"M{begin} {middle}L{end} {center_y}",
            )
        )
    total = facts.peers.total
    note = ""
    if total is not None and total > count:
        note = f"{count} of {total:,} next hops, those in trouble first."
    return LinkMap("map", "Map", facts.ours or "this broker", made, height, center_y, note)


def _rows(facts: PeerList, rows: Sequence[Row]) -> Sequence[TableRow]:
    made = []
    for row in rows:
        name, domain = text(row, "name"), text(row, "domain")
        cell = state_cell(row)
        reason = text(row, "held") or text(row, "last-error")
        made.append(
            TableRow(
                name,
                [
                    Cell(name, address("peer", name=name)),
                    Cell(cell.text, state=cell.state, detail=reason),
                    Cell(number(whole(row, "waiting"))),
                    Cell(_age_of(row, facts.now_ms)),
                    Cell(number(whole(row, "in-flight"))),
                    Cell(text(row, "level") or DASH),
                    Cell(number(facts.incoming.get(domain, 0))),
                ],
                "bad" if cell.state == "bad" else "",
            )
        )
    return made


def _table(facts: PeerList, rows: Sequence[Row]) -> Table:
    first, more = part_addresses(
        "peers", facts.is_first, facts.peers.cursor, contains=facts.contains
    )
    return Table(
        "peers",
        "Next hops",
        [
            Column("organization", "code"),
            Column("link to it"),
            Column("waiting", "number"),
            Column("oldest", "number"),
            Column("in flight", "number", is_minor=True),
            Column("security", is_minor=True),
            Column("links from it", "number", is_minor=True),
        ],
        _rows(facts, rows),
        empty=(
            f"No next hop has {facts.contains!r} in its name."
            if facts.contains
            else "No message has gone to another organization yet."
        ),
        total=facts.peers.total,
        first=first,
        more=more,
        filter=FilterForm(address("peers"), [filter_field(facts.contains)]),
    )


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """Contents of the page of one next hop.

    Attributes:
        row: the row of the next hop.
        decisions: about its domain: where it may be reached, and what has to be proved.
        connections: from it.
        probes: recently refused connections of it, and probes by it.
        holds: on it.
        messages: the first waiting ones.
        now_ms: the wall clock.
    """

    row: Row
    decisions: Sequence[Row]
    connections: Sequence[Row]
    probes: Sequence[Row]
    holds: Sequence[Row]
    messages: Sequence[Row]
    now_ms: int


def peer_page(facts: PeerFacts) -> Page:
    """Make the page of one organization."""
    row, now_ms = facts.row, facts.now_ms
    name, domain = text(row, "name"), text(row, "domain")
    blocks: list[Block] = [*_verdict(row)]
    blocks.append(
        Toolbar(
            "tools",
            [
                ActionButton("Test the connection", "peer-test", [("to", domain)]),
                ActionButton("Retry now", "retry", [("to", name)]),
                ActionButton("Hold", "hold", [("to", name)]),
                ActionButton("Forget DNS answers", "forget-dns", [("name", domain)]),
                ActionButton("Reroute", "reroute", [("to", name)]),
                ActionButton("Expire all", "expire", [("to", name)]),
            ],
        )
    )
    blocks += [_figures(row, now_ms), _link(row, now_ms)]
    blocks += [_way(each) for each in facts.decisions[:1]]
    attempts = texts(row, "attempts")
    if attempts:
        blocks.append(Note("attempts", "Places of the last attempt", "", attempts))
    blocks += [
        _holds(facts.holds),
        _waiting(name, facts.messages),
        _connections(facts.connections),
        _probes(facts.probes),
    ]
    return Page(name, blocks, "peers", parent=("Organizations", address("peers")))


def _verdict(row: Row) -> list[Block]:
    """Return what is wrong with a link, if anything is."""
    held, error, failures = text(row, "held"), text(row, "last-error"), whole(row, "failures") or 0
    domain = text(row, "domain")
    if held:
        words = f"An operator holds the messages to it: {held}"
        return [Note("verdict", words, "doubtful", commands=[Command("amqproute holds")])]
    if failures or text(row, "state") == "refused":
        items = [f"{failures} failed in a row"] if failures else []
        if whole(row, "next-attempt-ms"):
            items.append(f"next attempt at {date_time(whole(row, 'next-attempt-ms'))} UTC")
        words = error or text(row, "last-code") or "the last attempts failed"
        return [Note("verdict", words, "bad", items, [Command(f"amqproute peer test {domain}")])]
    if text(row, "limiter"):
        return [Note("verdict", f"{text(row, 'limiter')} limits sending now.", "doubtful")]
    is_stalled = text(row, "state") == "open" and (whole(row, "waiting") or 0) > 0
    if is_stalled and whole(row, "credit") == 0 and not whole(row, "in-flight"):
        words = "It is connected and gives no credit: its queue is full, or it holds us back."
        return [Note("verdict", words, "doubtful")]
    return []


def _figures(row: Row, now_ms: int) -> Figures:
    cell = state_cell(row)
    waiting = whole(row, "waiting")
    return Figures(
        "figures",
        [
            Figure("link", cell.text, text(row, "host"), cell.state),
            Figure("waiting", number(waiting), size(whole(row, "bytes"))),
            Figure("oldest", _age_of(row, now_ms)),
            Figure(
                "in flight",
                number(whole(row, "in-flight")),
                f"window {number(whole(row, 'window'))}, credit {number(whole(row, 'credit'))}",
            ),
            Figure("relayed", number(whole(row, "relayed")), "since the start"),
            Figure(
                "rejected",
                number(whole(row, "rejected")),
                _rejections(row),
                "doubtful" if whole(row, "rejected") else "",
            ),
        ],
    )


def _rejections(row: Row) -> str:
    found = row.get("rejections")
    if not isinstance(found, Mapping):
        return ""
    return ", ".join(f"{kind}: {count}" for kind, count in list(found.items())[:5])


def _link(row: Row, now_ms: int) -> Facts:
    rates = [
        f"{number(real(row, key))} {unit}"
        for key, unit in (("messages-per-second", "messages/s"), ("bytes-per-second", "octets/s"))
        if row.get(key) is not None
    ]
    host, where = text(row, "host"), text(row, "address")
    pairs = [
        ("domain", Cell(text(row, "domain"))),
        ("host", Cell(f"{host} ({where})" if where else host)),
        ("container", Cell(text(row, "container"))),
        ("security of the connection", Cell(text(row, "level"))),
        ("limit", Cell(", ".join(rates))),
        ("failures in a row", Cell(number(whole(row, "failures")))),
        ("last code", Cell(text(row, "last-code"))),
        ("next attempt", Cell(countdown(whole(row, "next-attempt-ms"), now_ms))),
        ("last success (UTC)", Cell(date_time(whole(row, "last-success-ms")))),
        ("retried", Cell(number(whole(row, "retried")))),
        ("connections so far", Cell(number(whole(row, "connections")))),
        ("ended without an outcome", Cell(number(whole(row, "stuck")))),
        ("ended because the DNS changed", Cell(number(whole(row, "moves")))),
        ("relay queue", Cell(text(row, "queue"), address("queue", name=text(row, "queue")))),
    ]
    shown = [pair for pair in pairs if pair[1].text not in ("", DASH)]
    return Facts("link", "Link to it", shown)


def _way(decision: Row) -> Table:
    code = text(decision, "code")
    made = []
    for place, each in enumerate(maps(decision, "places")):
        verdict = text(each, "verdict")
        made.append(
            TableRow(
                str(place),
                [
                    Cell(
                        f"{text(each, 'host')}:{text(each, 'port')}",
                        detail=", ".join(texts(each, "addresses")),
                    ),
                    Cell(f"{text(each, 'priority')} / {text(each, 'weight')}"),
                    Cell(text(each, "security"), detail=text(each, "source")),
                    Cell(_secure(text(each, "dnssec")), detail=_tlsa(text(each, "tlsa"))),
                    Cell(
                        "good" if verdict == "ok" else verdict,
                        state="good" if verdict == "ok" else "bad",
                        detail=f"{text(each, 'proof')}, reaches {text(each, 'reaches')}",
                    ),
                    Cell(", ".join(texts(each, "names"))),
                ],
            )
        )
    via = text(decision, "via")
    words = f"A route leads to {via}." if via else "From the DNS of its domain."
    if code not in ("", "ok"):
        words += f" The decision: {code}" + (
            ", for good: messages are returned." if flag(decision, "permanent") else "."
        )
    return Table(
        "way",
        "Way taken, and what its certificate has to prove",
        [
            Column("place", "code"),
            Column("priority / weight", "number", is_minor=True),
            Column("transport"),
            Column("DNSSEC and DANE"),
            Column("verdict"),
            Column("names accepted", "code", is_minor=True),
        ],
        made,
        empty="The DNS has not been asked yet, or has given no place.",
        note=words,
    )


def _secure(dnssec: str) -> str:
    return "signed (DNSSEC)" if dnssec == "secure" else "not signed"


def _tlsa(state: str) -> str:
    if not state:
        return "TLSA not asked for"
    return {"secure": "TLSA records, signed", "insecure": "no usable TLSA records"}.get(
        state, f"TLSA {state}"
    )


def _holds(rows: Sequence[Row]) -> Table:
    made = [
        TableRow(
            text(row, "name"),
            [
                Cell(text(row, "name"), address("holds")),
                Cell(text(row, "by")),
                Cell(text(row, "reason")),
                Cell(
                    "",
                    button=ActionButton("Release", "release", [("name", text(row, "name"))]),
                ),
            ],
        )
        for row in rows
    ]
    columns = [Column("hold", "code"), Column("by"), Column("reason"), Column("")]
    return Table("holds", "Holds", columns, made, empty="No hold concerns it.")


def _waiting(name: str, rows: Sequence[Row]) -> Table:
    queue = f"{RELAY_PREFIX}{name}"
    made = [
        TableRow(
            text(row, "id"),
            [
                Cell(text(row, "id"), address("message", id=text(row, "id"), queue=queue)),
                Cell(text(row, "to")),
                Cell(text(row, "state")),
                Cell(number(whole(row, "attempts"))),
                Cell(age(whole(row, "age-ms"))),
                Cell(size(whole(row, "bytes"))),
            ],
        )
        for row in rows
    ]
    columns = [
        Column("message", "number"),
        Column("to", "code"),
        Column("state"),
        Column("attempts", "number", is_minor=True),
        Column("age", "number"),
        Column("size", "number", is_minor=True),
    ]
    more = address("queue", name=queue) if len(rows) >= FIRST_MESSAGES else ""
    return Table(
        "messages", "First waiting messages", columns, made, empty="No message waits.", more=more
    )


def _connections(rows: Sequence[Row]) -> Table:
    made = [
        TableRow(
            text(row, "name"),
            [
                Cell(text(row, "name"), address("connection", name=text(row, "name"))),
                Cell(text(row, "container")),
                Cell(text(row, "tls") or "none"),
                Cell(age(whole(row, "age-ms"))),
                Cell(number(whole(row, "deliveries-in"))),
            ],
        )
        for row in rows
    ]
    columns = [
        Column("connection", "code"),
        Column("container", "code", is_minor=True),
        Column("TLS"),
        Column("age", "number"),
        Column("messages from it", "number"),
    ]
    return Table(
        "connections", "Connections from it", columns, made, empty="It is not connected to us."
    )


def _probes(rows: Sequence[Row]) -> Table:
    made = [
        TableRow(
            f"{text(row, 'at-ms')} {text(row, 'remote')} {text(row, 'step')} {place}",
            [
                Cell(date_time(whole(row, "at-ms"))),
                Cell(text(row, "step")),
                Cell(text(row, "code"), state="good" if text(row, "code") == "ok" else "bad"),
                Cell(text(row, "remote")),
                Cell(text(row, "description")),
            ],
        )
        for place, row in enumerate(rows)
    ]
    columns = [
        Column("time (UTC)", "number"),
        Column("step"),
        Column("code"),
        Column("from", "code", is_minor=True),
        Column("because"),
    ]
    return Table(
        "probes",
        "What we refused it, and its probes",
        columns,
        made,
        empty="Nothing was refused recently.",
    )


def test_page(domain: str, good: bool, words: str, steps: Sequence[Row]) -> Page:
    """Make the page with the result of a connection test.

    Args:
        domain: the domain or address that was tested.
        good: whether messages can go there.
        words: the result.
        steps: with ``step``, ``place``, ``state``, ``ms``, ``code``, ``words``, ``details`` and
            ``next``.
    """
    peer = domain.rpartition("@")[2]
    states: dict[str, PageState] = {"ok": "good", "failed": "bad", "skipped": "dim"}
    made = []
    cures = []
    for place, step in enumerate(steps):
        state = text(step, "state")
        details = "; ".join([text(step, "words"), *texts(step, "details")]).strip("; ")
        code = text(step, "code")
        made.append(
            TableRow(
                str(place),
                [
                    Cell(text(step, "step"), detail=text(step, "place")),
                    Cell(state, state=states.get(state, "")),
                    Cell(f"{real(step, 'ms') or 0:,.0f} ms"),
                    Cell(details, detail="" if code in ("", "ok") else code),
                ],
                "bad" if state == "failed" else "",
            )
        )
        if text(step, "next"):
            cures.append(f"{text(step, 'step')}: {text(step, 'next')}")
    columns = [Column("step"), Column("result"), Column("took", "number"), Column("finding")]
    blocks: list[Block] = [Note("verdict", words, "good" if good else "bad", cures)]
    blocks.append(
        Toolbar(
            "tools",
            [
                ActionButton("Test again", "peer-test", [("to", domain)]),
                ActionButton("Retry now", "retry", [("to", peer)]),
            ],
        )
    )
    blocks.append(Table("steps", "Steps", columns, made, empty="No step was taken."))
    return Page(
        f"Test of {domain}",
        blocks,
        "peers",
        parent=(peer, address("peer", name=peer)),
        is_live=False,
    )
