# SPDX-License-Identifier: Apache-2.0
"""From the address of a page to the page: asks management, and hands the rows to the page.

Each loader is asked for one page. It asks with the rights of the user, and never for more rows than
the page shows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from amqproute.dashboard.connection_pages import (
    ChannelList,
    ConnectionFacts,
    ConnectionList,
    channels_page,
    connection_page,
    connections_page,
)
from amqproute.dashboard.display_units import address
from amqproute.dashboard.journal_search import JournalBusy, JournalSearch
from amqproute.dashboard.management_source import ROWS_SHOWN, ManagementSource, RowPage
from amqproute.dashboard.message_pages import (
    MessageFacts,
    TraceFacts,
    message_page,
    trace_page,
)
from amqproute.dashboard.operations_pages import (
    BrokerPageFacts,
    JournalFacts,
    UserFacts,
    broker_page,
    holds_page,
    journal_page,
    log_page,
    users_page,
)
from amqproute.dashboard.overview_pages import OverviewFacts, overview_page
from amqproute.dashboard.page_blocks import Note, Page
from amqproute.dashboard.peer_pages import (
    FIRST_MESSAGES,
    PeerFacts,
    PeerList,
    peer_page,
    peers_page,
)
from amqproute.dashboard.queue_pages import QueueFacts, QueueList, queue_page, queues_page
from amqproute.dashboard.recent_log import RecentLog
from amqproute.dashboard.report_files import ReportList
from amqproute.dashboard.report_pages import reports_page
from amqproute.dashboard.row_values import Row, maps, text, texts
from amqproute.dashboard.topology_pages import (
    BindingList,
    ExchangeFacts,
    ExchangeList,
    bindings_page,
    exchange_page,
    exchanges_page,
    hosts_page,
)
from amqproute.dashboard.traffic_history import TrafficHistory
from amqproute.services.health_checks import CHECKS
from amqproute.values import RELAY_PREFIX

__all__ = ["LOADERS", "BrokerView", "MissingPage", "PageLoader", "missing_page"]

Query: TypeAlias = Mapping[str, str]

_NO_RIGHT: Final = "This takes the right to manage $management, which you do not have."
LONGEST_PARAMETER: Final = 1024
MOST_HOSTS: Final = 200
"""Virtual hosts that are shown."""


class MissingPage(Exception):
    """The subject of the page does not exist, or the user has no right to see it."""


class BrokerView(Protocol):
    """Contents of pages beside rows of management."""

    @property
    def history(self) -> TrafficHistory:
        """Traffic of the last minutes."""

    @property
    def journal(self) -> JournalSearch | None:
        """The audit journal; None if none is kept."""

    @property
    def log(self) -> RecentLog:
        """The last lines of the log."""

    @property
    def has_reports(self) -> bool:
        """Whether a warehouse of the pipeline is configured."""

    def reports(self) -> Awaitable[ReportList | None]:
        """Return the pages in the pipeline's warehouse; None if none is configured."""

    def report_page(self, name: str) -> Awaitable[bytes | None]:
        """Return one of these pages; None if it does not exist."""

    def settings(self) -> Awaitable[Sequence[Row]]:
        """Return the settings that differ from the defaults: ``name``, ``value``, ``source``."""

    def now_ms(self) -> int:
        """Return the wall clock, ms since the epoch."""

    def broker_row(self) -> Row:
        """Return attributes of the broker: ``name``, ``version``, ``domains``, ``up-ms``."""

    def incoming(self) -> Mapping[str, int]:
        """Return the number of connections from each organization, by its domain."""

    def hosts(self) -> Sequence[Row]:
        """Return the virtual hosts: ``name``, ``queues``, ``exchanges``, ``connections``."""

    def users(self) -> Sequence[Row]:
        """Return the users with a password."""

    def rules(self) -> Sequence[Row]:
        """Return the access rules in their order."""


PageLoader: TypeAlias = Callable[[ManagementSource, BrokerView, Query], Awaitable[Page]]


def missing_page(words: str, status: int = 404) -> Page:
    """Make the page for what does not exist, or has failed."""
    return Page("Not found" if status == 404 else "Not possible", [Note("why", words, "doubtful")],
                status=status, is_live=False)  # fmt: skip


async def _overview(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    status = await source.do("STATUS")
    marks = await source.rows("watermark")
    return overview_page(
        OverviewFacts(
            view.broker_row(),
            status.facts if status.is_good else {},
            marks.rows,
            view.history,
            "" if status.is_good else status.words,
        )
    )


async def _peers(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor, contains = query.get("cursor", ""), query.get("contains", "")
    peers = await source.rows("peer", cursor=cursor, contains=contains)
    incoming = view.incoming() if peers.rows else {}
    ours = text(view.broker_row(), "domains").partition(",")[0]
    troubled: Sequence[Row] = ()
    if not cursor and not contains and peers.cursor:
        status = await source.do("STATUS")
        troubled = maps(status.facts, "peers") if status.is_good else ()
    return peers_page(
        PeerList(ours, peers, incoming, view.now_ms(), contains, not cursor, troubled)
    )


async def _peer(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    name = query.get("name", "")
    row = await source.one("peer", name)
    if row is None:
        raise MissingPage(
            f"There is no next hop {name!r}: no message has gone there since the start, or you may "
            "not see it."
        )
    domain = text(row, "domain")
    who = f"peer:{domain}"
    decisions = await source.rows("decision", contains=name)
    connections = await source.rows("connection", wanted={"principal": who})
    probes = await source.rows("probe", count=1000)
    holds = await source.rows("hold", count=1000)
    names = set(texts(row, "holds"))
    listed = await source.do(
        "LIST-MESSAGES", "queue", f"{RELAY_PREFIX}{name}", {"count": FIRST_MESSAGES}
    )
    return peer_page(
        PeerFacts(
            row,
            [each for each in decisions.rows if text(each, "hop") == text(row, "hop")],
            connections.rows,
            [each for each in probes.rows if text(each, "who") == who][:10],
            [each for each in holds.rows if text(each, "name") in names],
            maps(listed.facts, "messages") if listed.is_good else [],
            view.now_ms(),
        )
    )


async def _queues(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor, contains, host = (query.get(key, "") for key in ("cursor", "contains", "host"))
    queues = await source.rows("queue", cursor=cursor, contains=contains, host=host)
    filled = [text(row, "name") for row in queues.rows if row.get("depth")]
    shapes = await source.some("shape", filled) if filled else []
    by_name = {text(row, "name"): row for row in shapes}
    return queues_page(QueueList(queues, by_name, contains, host, not cursor))


async def _queue(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    name, where, cursor = (query.get(key, "") for key in ("name", "where", "cursor"))
    row = await source.one("queue", name)
    if row is None:
        raise MissingPage(f"There is no queue {name!r}, or you may not see it.")
    shape = await source.one("shape", name) if row.get("depth") else None
    body: dict[str, object] = {"count": ROWS_SHOWN}
    body |= {key: value for key, value in (("where", where), ("cursor", cursor)) if value}
    messages: Sequence[Row] = []
    refused = following = ""
    if text(row, "kind") not in ("topic", "subscription"):
        listed = await source.do("LIST-MESSAGES", "queue", name, body)
        if listed.is_good:
            messages, following = maps(listed.facts, "messages"), text(listed.facts, "cursor")
        else:
            refused = listed.words
    return queue_page(QueueFacts(row, shape, messages, refused, following, where, not cursor))


async def _message(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    number = query.get("id", "")
    answer = await source.do("WHY", "", number)
    why = answer.facts if answer.is_good else None
    story, refused = None, ""
    if view.journal is None:
        refused = "No journal is kept."
    elif why is None and not source.may_manage:
        refused = _NO_RIGHT
    elif number.isascii() and number.isdigit() and len(number) < 20:
        try:
            story = await view.journal.life(entry=int(number))
        except JournalBusy as busy:
            refused = str(busy)
    return message_page(MessageFacts(number, why, answer.words, story, refused))


async def _trace(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    kind = next((each for each in ("message", "entry", "digest") if query.get(each)), "message")
    wanted = query.get(kind, "").strip()
    if not wanted:
        return trace_page(TraceFacts())
    if view.journal is None:
        return trace_page(TraceFacts(wanted, kind, None, "No journal is kept."))
    if not source.may_manage:
        return trace_page(TraceFacts(wanted, kind, None, _NO_RIGHT))
    try:
        if kind == "entry":
            if not (wanted.isascii() and wanted.isdigit() and len(wanted) < 20):
                return trace_page(TraceFacts(wanted, kind, None, "A number has digits only."))
            story = await view.journal.life(entry=int(wanted))
        elif kind == "digest":
            story = await view.journal.life(digest=wanted.lower())
        else:
            story = await view.journal.life(message_id=wanted)
    except JournalBusy as busy:
        return trace_page(TraceFacts(wanted, kind, None, str(busy)))
    return trace_page(TraceFacts(wanted, kind, story))


async def _exchanges(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor, contains, host = (query.get(key, "") for key in ("cursor", "contains", "host"))
    exchanges = await source.rows("exchange", cursor=cursor, contains=contains, host=host)
    return exchanges_page(ExchangeList(exchanges, contains, host, not cursor))


async def _bindings(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor, contains, host = (query.get(key, "") for key in ("cursor", "contains", "host"))
    found = await source.rows("exchange-binding", cursor=cursor, contains=contains, host=host)
    between = None if cursor else await source.rows("binding", contains=contains, host=host)
    return bindings_page(BindingList(found, between, contains, host, not cursor))


async def _channels(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor, host = query.get("cursor", ""), query.get("host", "")
    found = await source.rows("link", cursor=cursor, host=host, wanted={"kind": "channel"})
    return channels_page(ChannelList(found, host, not cursor))


async def _exchange(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    name = query.get("name", "")
    row = await source.one("exchange", name)
    if row is None:
        raise MissingPage(f"There is no exchange {name!r}, or you may not see it.")
    outward = await source.rows("exchange-binding", wanted={"source": name})
    there = {"target": name, "target-type": "exchange"}
    into = await source.rows("exchange-binding", wanted=there)
    return exchange_page(ExchangeFacts(row, outward, into))


async def _hosts(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    if not source.may_manage:
        return hosts_page(RowPage((), None, "", _NO_RIGHT))
    found = view.hosts()
    return hosts_page(RowPage(found[:MOST_HOSTS], len(found)))


async def _connections(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor, contains, host = (query.get(key, "") for key in ("cursor", "contains", "host"))
    found = await source.rows("connection", cursor=cursor, contains=contains, host=host)
    suspended: Sequence[Row] = []
    if not cursor:
        suspended = (await source.rows("link", host=host, wanted={"kind": "suspended"})).rows
    return connections_page(ConnectionList(found, suspended, contains, host, not cursor))


async def _connection(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    name = query.get("name", "")
    row = await source.one("connection", name)
    if row is None:
        raise MissingPage(f"The connection {name!r} has ended, or you may not see it.")
    links = await source.rows("link", wanted={"connection": name})
    return connection_page(ConnectionFacts(row, links.rows))


async def _holds(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    cursor = query.get("cursor", "")
    return holds_page(await source.rows("hold", cursor=cursor), not cursor)


async def _journal(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    kind, node = query.get("kind", ""), query.get("node", "")
    found = (await source.rows("journal", count=1)).rows
    row = found[0] if found else None
    if view.journal is None or row is None:
        return journal_page(JournalFacts(None, None))
    if not source.may_manage:
        return journal_page(JournalFacts(row, None, _NO_RIGHT, kind, node))
    records = await view.journal.last(kind, node.strip("*"))
    report = address("report") if view.has_reports else ""
    return journal_page(JournalFacts(row, records, "", kind, node, report))


async def _report(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    if not source.may_manage:
        return reports_page(None, _NO_RIGHT)
    return reports_page(await view.reports(), "", query.get("cursor", ""))


async def _log(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    level, contains = query.get("level", ""), query.get("contains", "")
    if not source.may_manage:
        return log_page([], _NO_RIGHT)
    return log_page(view.log.lines(level, contains), "", level, contains)


async def _users(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    contracts = await source.rows("contract")
    if not source.may_manage:
        hidden = RowPage((), None, "", _NO_RIGHT)
        return users_page(UserFacts(hidden, hidden, contracts))
    users, rules = view.users(), view.rules()
    return users_page(
        UserFacts(RowPage(users[:200], len(users)), RowPage(rules[:200], len(rules)), contracts)
    )


async def _broker(source: ManagementSource, view: BrokerView, query: Query) -> Page:
    certificates = (await source.rows("certificate", count=1)).rows
    clocks = (await source.rows("clock", count=1)).rows
    health = await source.do("HEALTH")
    asks = {name: rule.asks for name, rule in CHECKS.items()}
    checks = [
        {**each, "asks": asks.get(text(each, "name"), "")} for each in maps(health.facts, "checks")
    ]
    return broker_page(
        BrokerPageFacts(
            certificates[0] if certificates else None,
            clocks[0] if clocks else None,
            await source.rows("listener"),
            await source.rows("probe"),
            await source.rows("branch"),
            checks,
            await view.settings() if source.may_manage else None,
            view.now_ms(),
            "" if health.is_good else health.words,
        )
    )


LOADERS: Final[Mapping[str, PageLoader]] = {
    "": _overview,
    "peers": _peers,
    "peer": _peer,
    "queues": _queues,
    "queue": _queue,
    "message": _message,
    "trace": _trace,
    "exchanges": _exchanges,
    "exchange": _exchange,
    "bindings": _bindings,
    "channels": _channels,
    "hosts": _hosts,
    "connections": _connections,
    "connection": _connection,
    "holds": _holds,
    "journal": _journal,
    "report": _report,
    "log": _log,
    "users": _users,
    "broker": _broker,
}
"""Loaders by the last part of the address."""
