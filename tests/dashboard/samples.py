# SPDX-License-Identifier: Apache-2.0
"""Brokers made of rows: one with ordinary work, an empty one, and one on fire.

``python -m tests.dashboard.samples DIR`` writes every page of each as a file that a browser opens.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogLevel

from amqproute.dashboard.display_units import address
from amqproute.dashboard.html_renderer import HtmlRenderer, PageFrame
from amqproute.dashboard.journal_search import JournalSearch
from amqproute.dashboard.management_source import NOTHING, Answer, RowPage
from amqproute.dashboard.overview_pages import problems_of
from amqproute.dashboard.page_actions import ACTIONS, confirmation_page, form_page, outcome_page
from amqproute.dashboard.page_blocks import Page
from amqproute.dashboard.page_loaders import LOADERS, MissingPage, missing_page
from amqproute.dashboard.peer_pages import test_page
from amqproute.dashboard.recent_log import RecentLog
from amqproute.dashboard.report_files import ReportFile, ReportHeadline, ReportList
from amqproute.dashboard.row_values import Row
from amqproute.dashboard.traffic_history import MOST_SAMPLES, TrafficHistory, TrafficSample
from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.services.health_checks import CHECKS

NOW_MS = 1_795_345_200_000
RELAY = "amqp$out/"


class SampleSource:
    """Management made of rows.

    Args:
        rows: by entity type.
        answers: by operation.
        user: the principal.
        may_manage: whether the user may manage the service.

    Attributes:
        asked: what was done: operation, type, name, body.
    """

    def __init__(
        self,
        rows: Mapping[str, Sequence[Row]],
        answers: Mapping[str, Answer],
        user: str = "user:ann",
        may_manage: bool = True,
    ) -> None:
        self._rows = rows
        self._answers = answers
        self.user = user
        self.may_manage = may_manage
        self.asked: list[tuple[str, str, str, Mapping[str, object]]] = []

    def rows(
        self,
        kind: str,
        *,
        cursor: str = "",
        contains: str = "",
        host: str = "",
        wanted: Mapping[str, str] = NOTHING,
        count: int = 50,
    ) -> Deferred[RowPage]:
        """See `ManagementSource`."""
        found = [
            row
            for row in self._rows.get(kind, ())
            if contains in str(row["name"])
            and host in ("", row.get("virtual-host"))
            and wanted.items() <= row.items()
        ]
        start = int(cursor or 0)
        end = start + count
        more = str(end) if end < len(found) else ""
        return succeed(RowPage(found[start:end], len(found), more))

    def one(self, kind: str, name: str) -> Deferred[Row | None]:
        """See `ManagementSource`."""
        return succeed(next((x for x in self._rows.get(kind, ()) if x["name"] == name), None))

    def some(self, kind: str, names: Sequence[str]) -> Deferred[Sequence[Row]]:
        """See `ManagementSource`."""
        return succeed([row for row in self._rows.get(kind, ()) if row["name"] in names])

    def do(
        self,
        operation: str,
        kind: str = "",
        name: str = "",
        body: Mapping[str, object] | None = None,
    ) -> Deferred[Answer]:
        """See `ManagementSource`."""
        self.asked.append((operation, kind, name, dict(body or {})))
        tested = Answer(200, "messages cannot go there", {"code": "tls.expired", "steps": steps()})
        known = {"TEST-PEER": tested, **self._answers}
        return succeed(known.get(operation, Answer(404, "there is nothing", {})))


class SampleView:
    """Made-up contents of pages beside rows of management.

    Args:
        history: traffic.
        users: rows.
        rules: rows.
        journal: the audit journal.
    """

    def __init__(
        self,
        history: TrafficHistory,
        users: Sequence[Row] = (),
        rules: Sequence[Row] = (),
        journal: JournalSearch | None = None,
    ) -> None:
        self.history = history
        self.journal = journal
        self.log = RecentLog(lambda event: str(event.get("text")))
        self.published: ReportList | None = None
        self.changed: Sequence[Row] = ()
        self._users = users
        self._rules = rules

    def now_ms(self) -> int:
        """See `BrokerView`."""
        return NOW_MS

    def broker_row(self) -> Row:
        """See `BrokerView`."""
        return {
            "name": "broker1.alpha.example",
            "version": "0.1.0",
            "domains": "alpha.example",
            "up-ms": 187_000_000,
        }

    def incoming(self) -> Mapping[str, int]:
        """See `BrokerView`."""
        return {"beta.example": 1}

    def hosts(self) -> Sequence[Row]:
        """See `BrokerView`."""
        return [
            {"name": "/", "queues": 5, "exchanges": 8, "connections": 9},
            {"name": "shop", "queues": 1, "exchanges": 7, "connections": 1},
        ]

    @property
    def has_reports(self) -> bool:
        """See `BrokerView`."""
        return self.published is not None

    def reports(self) -> Deferred[ReportList | None]:
        """See `BrokerView`."""
        return succeed(self.published)

    def report_page(self, name: str) -> Deferred[bytes | None]:
        """See `BrokerView`."""
        return succeed(REPORT if name == "2026-11-22.html" else None)

    async def settings(self) -> Sequence[Row]:
        """See `BrokerView`."""
        return self.changed

    def users(self) -> Sequence[Row]:
        """See `BrokerView`."""
        return self._users

    def rules(self) -> Sequence[Row]:
        """See `BrokerView`."""
        return self._rules


def queue(name: str, depth: int = 0, **more: object) -> Row:
    """Return the row of a queue."""
    return {
        "name": name, "type": "queue", "kind": "node", "depth": depth, "available": depth,
        "acquired": 0, "deferred": 0, "consumers": 1, "resident": depth, "bytes": depth * 1843,
        "oldest-age-ms": 4210 if depth else None, "enqueued": depth + 91, "dequeued": 91,
        "released": 0, "rejected": 0, "expired": 0, "dead-lettered": 0, "loaded": 0,
        "virtual-host": "/", **more,
    }  # fmt: skip


def shape(name: str, *ages: int) -> Row:
    """Return the row of a shape."""
    return {
        "name": name, "type": "shape", "kind": "node", "virtual-host": "/", "total": sum(ages),
        "ages": [*ages, *[0] * (10 - len(ages))],
        "ages-minutes": [5, 10, 20, 40, 80, 160, 320, 640, 1280], "on-disk": 0, "in-flight": 0,
    }  # fmt: skip


def peer(domain: str, state: str = "open", **more: object) -> Row:
    """Return the row of a next hop."""
    return {
        "name": domain, "type": "peer", "queue": f"{RELAY}{domain}", "hop": domain,
        "domain": domain, "state": state, "held": "", "dead": False, "in-flight": 3, "window": 64,
        "credit": 97, "limiter": "", "messages-per-second": None, "bytes-per-second": None,
        "failures": 0, "last-code": "", "last-error": "", "attempts": [], "next-attempt-ms": 0,
        "last-success-ms": NOW_MS - 3000, "container": f"broker1.{domain}", "level": "dane",
        "host": f"broker1.{domain}:5671", "address": "192.0.2.17", "relayed": 18211, "rejected": 0,
        "rejections": {}, "retried": 4, "connections": 2, "stuck": 0, "moves": 0, "waiting": 12,
        "bytes": 20_480, "oldest-arrival-ms": NOW_MS - 900, "holds": [], **more,
    }  # fmt: skip


def decision(domain: str, verdict: str = "ok") -> Row:
    """Return a decision about a hop."""
    return {
        "name": domain, "hop": domain, "domain": domain, "via": "", "target": "amqp$transfer",
        "code": verdict, "permanent": False, "places": [{
            "host": f"broker1.{domain}", "port": 5671, "security": "amqps",
            "addresses": ["192.0.2.17", "2001:db8::17"], "priority": 0, "weight": 10,
            "source": f"srv:_amqps._tcp.{domain}", "dnssec": "secure", "tlsa": "secure",
            "verdict": verdict, "proof": "dane", "reaches": "dane",
            "names": [domain, f"broker1.{domain}"], "server-name": domain,
        }],
    }  # fmt: skip


def message(number: int, queue_name: str, **more: object) -> Row:
    """Return the row of a message."""
    return {
        "id": number, "queue": queue_name, "virtual-host": "/", "to": "orders@beta.example",
        "message-id": f"order-{number}", "subject": "order", "priority": 4,
        "arrived-ms": NOW_MS - 90_000, "age-ms": 90_000, "bytes": 1843, "durable": True,
        "expires-ms": NOW_MS + 86_400_000, "attempts": 0, "state": "waiting", **more,
    }  # fmt: skip


def mark(name: str, **more: object) -> Row:
    """Return a watermark."""
    return {"name": name, "state": "open", "level": None, "limit": None, "reason": "", **more}


def connection(number: int, who: str = "user:ann", **more: object) -> Row:
    """Return a connection."""
    return {
        "name": f"192.0.2.{number % 250}:{40_000 + number}", "principal": who,
        "container": f"app-{number}", "tls": "TLSv1.3", "virtual-host": "/",
        "protocol": "AMQP 1.0", "since-ms": NOW_MS - 61_000, "age-ms": 61_000, "links": 2,
        "credit-in": 100, "credit-out": 10, "unsettled": 0, "transactions": 0,
        "deliveries-in": 100 * number, "deliveries-out": 7, **more,
    }  # fmt: skip


def traffic(level: int, growth: int = 0) -> TrafficHistory:
    """Return a history with some traffic."""
    history = TrafficHistory()
    taken = delivered = relayed = 0
    for number in range(MOST_SAMPLES):
        swing = (number * 37) % 23 + (40 if 60 < number < 90 else 0)
        taken += level * (20 + swing)
        delivered += level * (12 + swing // 2)
        relayed += level * (8 + swing // 3)
        history.add(
            TrafficSample(
                NOW_MS - (MOST_SAMPLES - 1 - number) * 5000,
                taken,
                delivered,
                relayed,
                level * 12 + growth * number,
                level * 3 + growth * number * 2,
                None if not level else 4210 + growth * number * 1000,
                "orders" if level else "",
            )
        )
    return history


REPORT = b"<!DOCTYPE html><title>report</title>"


def checks(**failed: str) -> Answer:
    """Return the answer to HEALTH, where the checks that are given have failed."""
    found = [
        {"name": name, "state": "failed" if name in failed else "ok",
         "description": failed.get(name, "it is well"), "cure": rule.cure}
        for name, rule in CHECKS.items()
    ]  # fmt: skip
    state = "failed" if failed else "ok"
    return Answer(200, state, {"state": state, "checks": found})


def reports(days: int, *headlines: ReportHeadline) -> ReportList:
    """Return the pages of the pipeline about some days."""
    files = [
        ReportFile(
            f"2026-{9 + n // 30:02}-{1 + n % 30:02}.html",
            40_000 + 977 * n % 30_000,
            NOW_MS - (days - n) * 86_400_000,
        )
        for n in reversed(range(days))
    ]
    return ReportList("/var/lib/amqproute-pipeline", files, headlines)


SETTINGS: Sequence[Row] = (
    {"name": "container-id", "value": "broker1.alpha.example", "source":
     "/etc/amqproute/amqproute.yaml:3"},
    {"name": "relay.dead-after", "value": "2d", "source": "/etc/amqproute/amqproute.yaml:18"},
    {"name": "listen[0]", "value": '{"endpoint": "tls:5671", "tls": "required"}', "source":
     "/etc/amqproute/amqproute.yaml:9"},
)  # fmt: skip

RULES: Sequence[Row] = (
    {"name": "1", "effect": "allow", "verbs": ["publish", "consume"], "who": "user:*",
     "node": "orders"},
    {"name": "2", "effect": "allow", "verbs": ["transfer"], "who": "peer:*.example", "node": "*"},
    {"name": "3", "effect": "deny", "verbs": ["all"], "who": "anonymous", "node": "*"},
)  # fmt: skip

MARKS: Sequence[Row] = (
    mark("disk", level=182e9, limit=5e9, directory="/var/lib/amqproute"),
    mark("memory", level=104e6, limit=2e9),
    mark("store"),
    mark("journal"),
    mark("destinations", level=3, limit=4000),
)


def ordinary() -> tuple[SampleSource, SampleView]:
    """Return a broker with ordinary work."""
    names = ["archive", "billing", "orders", "returns", f"{RELAY}beta.example"]
    rows: dict[str, Sequence[Row]] = {
        "queue": [
            queue("archive", 121_904, bytes=9_812_334_111, **{"oldest-age-ms": 86_400_000 * 31}),
            queue("billing", 0, consumers=4),
            queue("orders", 37, acquired=12),
            queue("returns", 2),
            queue("news", 0, kind="topic", subscriptions=3),
            queue("//shop/carts", 11, **{"virtual-host": "shop"}),
            queue(f"{RELAY}beta.example", 12, kind="relay", **{"virtual-host": None}),
        ],
        "shape": [
            shape("archive", 12, 11, 9, 14, 80, 190, 400, 980, 2100, 118_108),
            shape("orders", 37),
            *(shape(name, 9, 3) for name in names[3:]),
        ],
        "peer": [
            peer("beta.example"),
            peer("gamma.example", "idle", waiting=0, **{"oldest-arrival-ms": None}),
            peer("delta.example", "open", level="pkix"),
        ],
        "decision": [decision("beta.example")],
        "connection": [
            *(connection(number) for number in range(1, 9)),
            connection(20, "peer:beta.example", container="broker1.beta.example"),
            connection(21, "user:bob", protocol="AMQP 0-9-1"),
        ],
        "link": [
            {"name": "to-orders", "kind": "link", "direction": "in", "address": "orders",
             "node": "orders", "connection": "192.0.2.1:40001", "credit": 100, "unsettled": 0,
             "deliveries": 412, "virtual-host": "/"},
            {"name": "channel 1", "kind": "channel", "direction": "both", "address": None,
             "node": "orders", "connection": "192.0.2.21:40021", "credit": 200, "unsettled": 12,
             "unconfirmed": 3, "mode": "confirm", "principal": "user:bob", "virtual-host": "/"},
            {"name": "kept", "kind": "suspended", "direction": "out", "address": "news",
             "node": None, "connection": None, "credit": 0, "unsettled": 0, "deliveries": None,
             "virtual-host": "/"},
        ],
        "hold": [],
        "exchange": [
            {"name": name, "type": "exchange", "virtual-host": "/", "exchange-type": kind,
             "durable": True, "auto-delete": False, "internal": False, "alternate-exchange": None,
             "arguments": "{}", "bindings": 2, "predeclared": name.startswith("amq."),
             "made-by": ""}
            for name, kind in (("amq.direct", "direct"), ("amq.topic", "topic"),
                               ("events", "topic"))
        ],
        "exchange-binding": [
            {"name": "events to queue orders by 'eu.#'", "source": "events", "target": "orders",
             "target-type": "queue", "key": "eu.#", "arguments": "{}", "virtual-host": "/"},
        ],
        "binding": [
            {"name": "copy-orders", "source": "orders", "target": "archive", "filter": "",
             "subject": "order.#", "mode": "copy", "moved": 8121, "refused": 0, "reason": "",
             "virtual-host": "/"},
        ],
        "watermark": MARKS,
        "contract": [
            {"name": "user:ann", "state": "used", "limiter": "", "connections": 8, "links": 16,
             "messages": 9000, "spool": 120_000, "refused": {}, "limit-connections": 20,
             "limit-links": None},
        ],
        "certificate": [
            {"name": "certificate", "state": "valid", "code": "", "reason": "", "closed": [],
             "begins": "2026-09-01T00:00:00+00:00", "ends": "2026-12-01T00:00:00+00:00"},
        ],
        "clock": [{"name": "clock", "state": "fits", "jump-ms": 0, "reason": "",
                   "now": "2026-11-23T11:00:00Z", "wall": "2026-11-23T11:00:00Z"}],
        "listener": [
            {"name": "tcp 5671 (TLS)", "connections": 10, "max-connections": 10_000, "mute": 0,
             "refused": 0, "last-limit": "", "last-limit-age-ms": None},
        ],
        "probe": [],
        "branch": [],
        "journal": [
            {"name": "journal", "state": "written", "fault": "", "records": 812_112,
             "directory": "/var/lib/amqproute/journal", "bytes": 98_000_000, "lost": 0,
             "segments": 4, "waiting": 3},
        ],
    }  # fmt: skip
    answers = {
        "HEALTH": checks(),
        "STATUS": Answer(200, "all is well", {
            "verdicts": [], "counts": {}, "messages": {"here": 121_954, "to-others": 24},
            "peers": [],
        }),
        "LIST-MESSAGES": Answer(200, "2 messages", {
            "messages": [message(4711, "orders"), message(4712, "orders", subject=None)],
            "cursor": "",
        }),
        "WHY": Answer(200, "links receive: without credit, or by other filters", {
            **message(4711, "orders"), "cause": "in-line",
            "description": "4 links receive from orders: without credit, or by other filters",
            "next": ["amqproute link ls --node orders"], "holds": [],
        }),
        "RETRY-MESSAGES": Answer(200, "2 messages", {
            "messages": 2, "bytes": 3686, "samples": [message(4711, "orders")], "queues": [],
            "dry-run": True, "cursor": "",
        }),
    }  # fmt: skip
    users = [{"name": "ann", "mechanisms": "SCRAM-SHA-256, PLAIN"}, {"name": "bob"}]
    view = SampleView(traffic(4), users, RULES)
    view.changed = SETTINGS
    view.published = reports(60, ReportHeadline("good", "Every message is accounted for"))
    for number in range(12):
        view.log({
            "log_time": NOW_MS / 1000 + number, "log_level": LogLevel.info,
            "log_namespace": "amqproute.relay", "text": f"connected to broker{number}.beta.example",
        })  # fmt: skip
    return SampleSource(rows, answers), view


def empty() -> tuple[SampleSource, SampleView]:
    """Return a broker that has just been started for the first time."""
    answers = {
        "HEALTH": checks(),
        "STATUS": Answer(200, "all is well", {
            "verdicts": [], "counts": {}, "messages": {"here": 0, "to-others": 0}, "peers": [],
        }),
    }  # fmt: skip
    return SampleSource({}, answers), SampleView(TrafficHistory())


def verdict(code: str, severity: str, subject: str, words: str, command: str) -> Row:
    """Return a verdict of STATUS."""
    return {
        "code": code, "severity": severity, "subject": subject, "description": words,
        "next": command,
    }  # fmt: skip


_DEAD = (
    "tls.expired: the certificate of broker1.beta.example ended on 2026-11-20; it names "
    "beta.example, broker1.beta.example"
)


def on_fire() -> tuple[SampleSource, SampleView]:
    """Return a broker where everything is wrong."""
    source, view = ordinary()
    failing = {
        "failures": 41, "last-code": "tls.expired", "last-error": _DEAD, "waiting": 48_212,
        "bytes": 88_000_000, "oldest-arrival-ms": NOW_MS - 3 * 86_400_000, "level": "",
        "next-attempt-ms": NOW_MS + 340_000, "in-flight": 0, "credit": 0, "container": "",
        "attempts": [f"192.0.2.17:5671: {_DEAD}", "[2001:db8::17]:5671: connect.timeout"],
        "last-success-ms": NOW_MS - 3 * 86_400_000,
    }  # fmt: skip
    peers = [
        peer("beta.example", "waiting", dead=True, **failing),
        peer("gamma.example", "open", held="their warehouse moves until Monday", holds=["h1"]),
        peer("delta.example", "refused", **{**failing, "last-error": "dane.mismatch: no TLSA "
             "record fits the key of broker1.delta.example"}),
        peer("epsilon.example", "open", credit=0, rejected=812, **{
            "in-flight": 0, "rejections": {"no node": 800, "unauthorized": 12}}),
        *(peer(f"partner{number:03}.example", "waiting", **failing) for number in range(60)),
    ]  # fmt: skip
    troubled = [each for each in peers if each["state"] in ("waiting", "refused")]
    rows: dict[str, Sequence[Row]] = {
        **source._rows,
        "queue": [
            *source._rows["queue"],
            queue("dead", 40_112, consumers=0, **{"oldest-age-ms": 86_400_000 * 9}),
            *(queue(f"region-{n:04}", n * 7, consumers=n % 2, **{"oldest-age-ms": n * 60_000})
              for n in range(1, 300)),
        ],
        "shape": [
            *source._rows["shape"],
            shape("dead", 0, 0, 0, 12, 800, 9000, 12_000, 9000, 5000, 4300),
            *(shape(f"region-{n:04}", n, n * 2, n, n * 3) for n in range(1, 300)),
        ],
        "peer": peers,
        "decision": [decision("beta.example", "tls.expired")],
        "hold": [
            {"name": "h1", "type": "hold", "reason": "their warehouse moves until Monday",
             "by": "user:bob", "since-ms": NOW_MS - 90_000_000, "until-ms": None,
             "to": "gamma.example", "where": "", "ids": []},
            {"name": "h2", "type": "hold", "reason": "asked by the customer", "by": "user:ann",
             "since-ms": NOW_MS - 9000, "until-ms": NOW_MS + 9_000_000, "to": "",
             "where": "amqp.message_id = 'order-7'", "ids": []},
        ],
        "watermark": [
            mark("disk", state="closed", level=1.2e9, limit=5e9, directory="/var/lib/amqproute",
                 reason="1.2 GB are free, fewer than 5 GB"),
            mark("memory", level=1.9e9, limit=2e9),
            mark("journal", state="closed", reason="the journal's disk is full"),
            mark("store"),
            MARKS[-1],
        ],
        "probe": [
            {"name": str(n), "at-ms": NOW_MS - n * 7000, "probe": "", "step": "tls",
             "code": "tls.expired", "remote": f"198.51.100.{n}:50000", "who": "peer:beta.example",
             "description": "the certificate has expired"}
            for n in range(1, 30)
        ],
        "certificate": [
            {"name": "certificate", "state": "invalid", "code": "tls.expired",
             "closed": ["tcp 5671 (TLS)"], "begins": "2026-08-01T00:00:00+00:00",
             "ends": "2026-11-22T00:00:00+00:00",
             "reason": "our certificate ended on 2026-11-22: listeners with TLS are closed"},
        ],
        "clock": [{"name": "clock", "state": "jumped", "jump-ms": 86_400_000,
                   "reason": "the wall clock has jumped ahead by 1 d; its time is not used",
                   "now": "2026-11-23T11:00:00Z", "wall": "2026-11-24T11:00:00Z"}],
        "journal": [
            {**source._rows["journal"][0], "state": "troubled", "fault": "No space left on device",
             "waiting": 91_122, "lost": 812},
        ],
        "branch": [
            {"name": "b1", "owner": "user:tm", "xid": "4711:01:02", "state": "prepared",
             "command": "", "operations": 12, "age-ms": 7_000_000, "nodes": ["orders", "billing"]},
        ],
        "contract": [
            {**source._rows["contract"][0], "limiter": "messages-per-second", "state": "limited",
             "refused": {"connections": 12}},
        ],
        "binding": [
            {**source._rows["binding"][0], "refused": 12, "reason": "the node archive is full"},
        ],
    }  # fmt: skip
    verdicts = [
        verdict("mark.closed", "critical", "disk", "1.2 GB are free, fewer than 5 GB",
                "amqproute queue ls"),
        verdict("mark.closed", "critical", "journal", "the journal's disk is full",
                "amqproute queue ls"),
        verdict("clock.jumped", "critical", "clock", "the wall clock has jumped ahead by 1 d",
                "amqproute clock show"),
        verdict("certificate.invalid", "critical", "certificate",
                "our certificate ended on 2026-11-22", "amqproute check"),
        verdict("peer.unreachable", "warning", "beta.example",
                f"waiting, 48,212 messages wait, the oldest for 3 d: {_DEAD} (41 attempts)",
                "amqproute peer test beta.example"),
        verdict("peer.held", "warning", "gamma.example",
                "held, 12 messages wait: their warehouse moves until Monday", "amqproute holds"),
        verdict("node.no-consumer", "warning", "dead",
                "nobody receives from it: 40,112 messages wait, the oldest for 9 d",
                "amqproute link ls --node dead"),
        verdict("peer.rejects", "warning", "epsilon.example",
                "rejected 812 messages in the last hour, no node: 800",
                "amqproute peer show epsilon.example"),
        verdict("contract.bound", "warning", "user:ann",
                "held back by messages-per-second of its contract", "amqproute contract ls"),
    ]  # fmt: skip
    answers = {
        **source._answers,
        "HEALTH": checks(
            certificates="our certificate ended on 2026-11-22",
            disk="1.2 GB are free, fewer than 5 GB",
            journal="No space left on device; 91,122 events wait",
            clock="the wall clock has jumped ahead by 1 d",
            destinations="62 next hops cannot be reached: beta.example, org-1.example",
        ),
        "STATUS": Answer(200, "9 found", {
            "verdicts": verdicts,
            "counts": {"mark.closed": 2, "clock.jumped": 1, "certificate.invalid": 1,
                       "peer.unreachable": 62, "peer.held": 1, "node.no-consumer": 150,
                       "peer.rejects": 1, "contract.bound": 1},
            "messages": {"here": 162_066, "to-others": 2_941_000}, "peers": troubled[:100],
        }),
        "LIST-MESSAGES": Answer(200, "50 messages", {
            "messages": [
                message(n, f"{RELAY}beta.example", attempts=41,
                        **({"state": "held", "holds": ["h2"]} if n % 7 else {}),
                        **{"age-ms": 3 * 86_400_000 - (n - 9000) * 60_000})
                for n in range(9000, 9050)
            ],
            "cursor": "next",
        }),
        "WHY": Answer(200, _DEAD, {
            **message(9000, f"{RELAY}beta.example", attempts=41), "cause": "back-off",
            "description": f"{_DEAD}; attempt 42 comes in 340 s",
            "next": ["amqproute peer test beta.example", "amqproute retry --to beta.example"],
            "peer": "beta.example", "peer-state": "waiting", "last-error": _DEAD,
            "class": "host, retry", "failed-attempts": 41, "next-attempt-ms": NOW_MS + 340_000,
            "places": failing["attempts"], "tries": 41, "holds": [],
        }),
        "PURGE": Answer(200, "40112 messages would be deleted", {"messages": 40_112}),
        "DELETE-MESSAGES": Answer(200, "48212 messages", {
            "messages": 48_212, "bytes": 88_000_000, "queues": [f"{RELAY}beta.example"],
            "samples": [message(n, f"{RELAY}beta.example") for n in range(9000, 9005)],
            "dry-run": True, "cursor": "[\"amqp$out/beta.example\", 1]", "held": 12,
        }),
    }  # fmt: skip
    burning = SampleView(traffic(40, 900), view._users, RULES)
    burning.changed = [*SETTINGS, *({"name": f"peers.org-{n}.example.contract.messages-per-second",
                                     "value": str(n), "source": "/etc/amqproute/amqproute.yaml:99"}
                                    for n in range(150))]  # fmt: skip
    burning.published = reports(
        60,
        ReportHeadline("bad", "3 messages are not accounted for",
                       ["order-4711 was taken by beta.example and is nowhere", "order-4712"]),
        ReportHeadline("bad", "Brokers contradict each other about 1 hand-over"),
        ReportHeadline("doubtful", "The journal of gamma.example has a gap of 812 records"),
    )  # fmt: skip
    levels = (LogLevel.info, LogLevel.warn, LogLevel.error, LogLevel.critical)
    for number in range(80):
        burning.log({
            "log_time": NOW_MS / 1000 + number, "log_level": levels[number % 4],
            "log_namespace": "amqproute.relay.destination",
            "text": f"beta.example: {_DEAD}; attempt {number} comes in 340 s",
        })  # fmt: skip
    return SampleSource(rows, answers), burning


BROKERS: Mapping[str, Callable[[], tuple[SampleSource, SampleView]]] = {
    "ordinary": ordinary,
    "empty": empty,
    "fire": on_fire,
}

PAGES: Sequence[tuple[str, Mapping[str, str]]] = (
    *((name, {}) for name in LOADERS if name not in ("peer", "queue", "message", "exchange",
                                                     "connection")),
    ("peer", {"name": "beta.example"}),
    ("queue", {"name": "orders"}),
    ("message", {"id": "9000"}),
    ("exchange", {"name": "events"}),
    ("connection", {"name": "192.0.2.1:40001"}),
)  # fmt: skip


def story() -> Sequence[JournalRecord]:
    """Return the life of a message."""
    us = NOW_MS * 1000
    begun = JournalRecord(
        v=1,
        kind=RecordKind.RECEIVED,
        journal="j",
        broker="broker1.alpha.example",
        domain="alpha.example",
        stream="s",
        seq=1,
        time=us - 90_000_000,
        entry=9000,
        node=f"{RELAY}beta.example",
    )
    return [
        replace(begun, sender="user:ann", connection="192.0.2.1:40001", message_id="order-9000",
                to="orders@beta.example", size=1843),
        replace(begun, kind=RecordKind.DEFERRED, seq=2, time=us, entry=None, peer="beta.example",
                count=12, code="tls.expired", words=_DEAD),
        replace(begun, kind=RecordKind.RELAYED, seq=3, time=us + 5_000_000,
                peer="peer:beta.example", host="broker1.beta.example:5671", queue_us=95_000_000,
                wire_us=4100),
    ]  # fmt: skip


def made(name: str, query: Mapping[str, str], source: SampleSource, view: SampleView) -> Page:
    """Return a page of a sample, with its alarms."""
    found: list[Page] = []
    Deferred.fromCoroutine(_load(name, query, source, view)).addCallback(found.append)
    return found[0]


async def _load(
    name: str, query: Mapping[str, str], source: SampleSource, view: SampleView
) -> Page:
    try:
        page = await LOADERS[name](source, view, query)
    except MissingPage as missing:
        page = missing_page(str(missing))
    return replace(page, alarms=problems_of((await source.do("STATUS")).facts))


def steps() -> Sequence[Row]:
    """Return the steps of a connection test that fails."""
    return [
        {"step": "configuration", "place": "", "state": "ok", "ms": 1.2, "code": "ok",
         "words": "next hop beta.example, level dane-or-pkix",
         "details": ["we show a certificate that names alpha.example"], "next": None},
        {"step": "dns", "place": "", "state": "ok", "ms": 31.0, "code": "ok",
         "words": "broker1.beta.example:5671 (authenticated by DNSSEC)", "details": []},
        {"step": "tls", "place": "broker1.beta.example:5671", "state": "failed", "ms": 48.8,
         "code": "tls.expired", "words": _DEAD, "details": [],
         "next": "whose certificate it is has to renew it; then: systemctl reload amqproute"},
    ]  # fmt: skip


def further() -> Mapping[str, Page]:
    """Return pages that no loader makes, by a name."""
    source, _ = on_fire()
    action = ACTIONS["delete-messages"]
    values = {"to": "beta.example", "ids": "", "where": ""}
    back = address("peer", name="beta.example")
    answer = source._answers["DELETE-MESSAGES"]
    hold = ACTIONS["hold"]
    return {
        "test": test_page("beta.example", False, "Messages cannot go there.", steps()),
        "form": form_page("hold", hold, {"to": "beta.example"}, "Reason is empty.", back),
        "confirm": confirmation_page("delete-messages", action, values, answer, back),
        "outcome": outcome_page(action, values, answer, back),
    }


def write(directory: Path) -> None:
    """Write all pages, each for itself."""
    renderer = HtmlRenderer()
    static = directory / "ui" / "static"
    static.mkdir(parents=True, exist_ok=True)
    for name in ("dashboard.css", "dashboard.js", "icon.svg"):
        shutil.copy(str(files("amqproute.dashboard") / "static" / name), static / name)
    frame = PageFrame("user:ann", "token", "broker1.alpha.example", address(""), "", "11:00:00")
    for broker, make in BROKERS.items():
        for name, query in PAGES:
            source, view = make()
            page = made(name, query, source, view)
            (directory / f"{broker}-{name or 'overview'}.html").write_text(
                renderer.page(page, frame).replace('"/ui/static', '"ui/static')
            )
    for name, page in further().items():
        (directory / f"more-{name}.html").write_text(
            renderer.page(page, frame).replace('"/ui/static', '"ui/static')
        )
    (directory / "more-login.html").write_text(
        renderer.log_in("Name or password are wrong.", "/ui/", "ann").replace(
            '"/ui/static', '"ui/static'
        )
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
