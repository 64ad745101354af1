# SPDX-License-Identifier: Apache-2.0
"""A small read-only part of the HTTP API of RabbitMQ, for checks and tools that know only that.

========================================  =======================================================
path, below ``/api``                      answer
========================================  =======================================================
``/overview``                             totals of messages and objects, rates, listeners
``/queues``, ``/queues/VHOST``            queues and topics of virtual hosts, as an array
``/queues/VHOST/NAME``                    one of them
``/connections``                          connections, as an array
``/health/checks/CHECK``                  200 or 503, with ``status`` and ``reason``
========================================  =======================================================

Lists take ``page``, ``page_size`` (at most `MOST_ON_PAGE`), ``name`` (a part of the names) and
``columns``; with ``page`` the answer is an object with ``items`` and counts. Without it everything
comes in one array, of at most `MOST_ROWS` entities: more are refused, as a part of them would be
taken for all. Relay queues are not in the lists; ``/api/v1/relay-queues`` has them.

Names and meanings are those of RabbitMQ; figures that do not exist here are left out. Rows are read
through management, with the same rights as ``/api/v1``: `manage` on ``$management``, and a token
whose scope has QUERY, READ or HEALTH. Totals are taken at most every `TOTALS_SECONDS`. The setting
``management.rabbitmq-api`` switches all of it on.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from twisted.internet.defer import Deferred

from amqproute import __version__
from amqproute.address import ROOT_HOST, local_name
from amqproute.http.http_messages import (
    ITEMS_IN_TURN,
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    json_in_turns,
    json_response,
)
from amqproute.http.management_api import IManagement, RequireMonitor, require_scope
from amqproute.http.site import HttpAccess, HttpResource, HttpSite
from amqproute.services.entity_pages import EntityQuery
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.services.management_rows import Row
from amqproute.services.management_table import OPERATIONS
from amqproute.turn_scheduler import Pause
from amqproute.values import ANONYMOUS_PRINCIPAL

__all__ = [
    "MOST_ON_PAGE",
    "MOST_ROWS",
    "BrokerTotals",
    "IBrokerFacts",
    "ListenerPlace",
    "RabbitmqApi",
]

PREFIX: Final = "/api"
MOST_ON_PAGE: Final = 500
"""Entities of a page, as in RabbitMQ."""
MOST_ROWS: Final = 10_000
"""Entities of an array without pages."""
_ROWS_AT_ONCE: Final = 1000
_DAYS: Final = {"days": 1, "weeks": 7, "months": 30, "years": 365}


@dataclass(frozen=True, slots=True)
class BrokerTotals:
    """Totals of a broker's virtual hosts.

    Attributes:
        ready: messages that wait.
        unsettled: messages that consumers hold.
        published: messages put on queues since the start.
        delivered: messages that left queues since the start.
        queues: number of queues and topics.
        consumers: number of consumers of queues.
        connections: number of open connections.
        channels: number of channels of AMQP 0-9-1.
        exchanges: number of exchanges.
        publish_rate: messages per second of late.
        deliver_rate: messages per second of late.
    """

    ready: int = 0
    unsettled: int = 0
    published: int = 0
    delivered: int = 0
    queues: int = 0
    consumers: int = 0
    connections: int = 0
    channels: int = 0
    exchanges: int = 0
    publish_rate: float = 0.0
    deliver_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class ListenerPlace:
    """A port that is open.

    Attributes:
        protocol: the protocol in RabbitMQ's words: ``amqp``, ``amqp/ssl``, ``http`` or ``https``.
        address: the IP address.
        port: the number.
    """

    protocol: str
    address: str
    port: int


class IBrokerFacts(Protocol):
    """What is asked of the daemon beside management."""

    @property
    def is_enabled(self) -> bool:
        """Whether the setting allows these resources."""

    @property
    def node(self) -> str:
        """The name of the broker."""

    def hosts(self) -> Sequence[str]:
        """Return the virtual hosts by their labels."""

    def places(self) -> Sequence[ListenerPlace]:
        """Return the open ports."""

    def totals(self) -> Awaitable[BrokerTotals]:
        """Return the totals, which may be a few seconds old."""

    def why_not_ready(self) -> Sequence[str]:
        """Return why no traffic should come here; empty if it may."""


class RabbitmqApi:
    """The resources.

    Args:
        management: reads entities and runs health checks.
        facts: what management has not got.
        require_monitor: who may read health checks.
    """

    def __init__(
        self, management: IManagement, facts: IBrokerFacts, require_monitor: RequireMonitor
    ) -> None:
        self._management = management
        self._facts = facts
        self._require_monitor = require_monitor

    def add_to(self, site: HttpSite) -> None:
        """Add the resources to a site."""
        resources: tuple[tuple[str, Callable[[HttpRequest], Awaitable[HttpResponse]]], ...] = (
            ("overview", self._overview),
            ("queues", self._queues),
            # Flower does not encode the name of the default virtual host.
            ("queues/", self._queues),
            ("queues//", self._queues),
            ("queues/{vhost}", self._queues),
            ("queues/{vhost}/{name}", self._queue),
            ("connections", self._connections),
        )
        for path, handler in resources:
            site.add(HttpResource(f"{PREFIX}/{path}", {"GET": self._when_enabled(handler)}))
        checks = self._when_enabled(self._check)
        pattern = f"{PREFIX}/health/checks/{{check...}}"
        site.add(HttpResource(pattern, {"GET": checks}, HttpAccess.OPTIONAL))

    def _when_enabled(
        self, handler: Callable[[HttpRequest], Awaitable[HttpResponse]]
    ) -> HttpHandler:
        async def answer(request: HttpRequest) -> HttpResponse:
            if not self._facts.is_enabled:
                raise HttpProblem(
                    404, "management.rabbitmq-api is off; /api/v1/openapi.json has what there is"
                )
            return await handler(request)

        return lambda request: Deferred.fromCoroutine(answer(request))

    # -- lists -------------------------------------------------------------------------------------

    async def _queues(self, request: HttpRequest) -> HttpResponse:
        host = request.parameters.get("vhost")
        return await self._listed(request, "queue", host, lambda row: queue_row(row, self._facts))

    async def _connections(self, request: HttpRequest) -> HttpResponse:
        return await self._listed(
            request, "connection", None, lambda row: connection_row(row, self._facts)
        )

    async def _listed(
        self, request: HttpRequest, kind: str, host: str | None, shown: Callable[[Row], Row]
    ) -> HttpResponse:
        page = _whole(request, "page", 1 << 31)
        size = _whole(request, "page_size", MOST_ON_PAGE) or 100
        pause = self._management.pause_of(request.who.principal)
        part = request.one("name") or ""
        pattern = f"*{part}*" if part else ""
        if page is None:
            rows, total = await self._some(request, kind, host, pattern, 0, MOST_ROWS)
            if total > len(rows):
                raise HttpProblem(
                    400, f"{total} are too many for one answer: ask with page and page_size", "page"
                )
            return await json_in_turns(await _shown(request, rows, shown, pause), pause)
        start = (page - 1) * size
        rows, total = await self._some(request, kind, host, pattern, start, size)
        pages = max(1, -(-total // size))
        if page > pages:
            raise HttpProblem(400, f"there are {pages} pages", "page")
        items = await _shown(request, rows, shown, pause)
        everything = total
        if pattern:
            _, everything = await self._some(request, kind, host, "", 0, 0)
        return await json_in_turns(
            {
                "filtered_count": total,
                "item_count": len(items),
                "items": items,
                "page": page,
                "page_count": pages,
                "page_size": size,
                "total_count": everything,
            },
            pause,
        )

    async def _some(
        self, request: HttpRequest, kind: str, host: str | None, pattern: str, start: int, most: int
    ) -> tuple[list[Row], int]:
        """Return entities from a place on, and the number of all that match.

        Queues of all virtual hosts are those of one after the other.
        """
        require_scope(request, OPERATIONS["QUERY"], pattern)
        hosts: Sequence[str | None] = (host,)
        if kind == "queue" and host is None:
            hosts = self._facts.hosts()
        rows: list[Row] = []
        total = 0
        for each in hosts:
            query = EntityQuery(pattern, {}, each, offset=max(0, start - total))
            found, count = await self._of_host(request, kind, query, most - len(rows))
            rows += found
            total += count
        return rows, total

    async def _of_host(
        self, request: HttpRequest, kind: str, query: EntityQuery, most: int
    ) -> tuple[list[Row], int]:
        rows: list[Row] = []
        total: int | None = None
        while True:
            query = replace(query, limit=min(_ROWS_AT_ONCE, most - len(rows)))
            reply = _good(await self._management.list_entities(kind, query, request.who.principal))
            found, following = reply.body["items"], str(reply.body["next"] or "")
            assert isinstance(found, Sequence)
            rows += found
            if total is None:
                count = reply.body["total"]
                total = count if isinstance(count, int) else 0
            if not following or len(rows) >= most:
                return rows, total
            query = replace(query, cursor=following)

    async def _queue(self, request: HttpRequest) -> HttpResponse:
        host, name = request.parameters["vhost"], request.parameters["name"]
        require_scope(request, OPERATIONS["READ"], name)
        reply = _good(
            await self._management.perform(
                ManagementRequest(
                    "READ",
                    {"operation": "READ", "type": "queue", "name": name, "virtual-host": host},
                    {},
                    request.who.principal,
                )
            )
        )
        return json_response(_columns(request, [queue_row(reply.body, self._facts)])[0])

    # -- overview ----------------------------------------------------------------------------------

    async def _overview(self, request: HttpRequest) -> HttpResponse:
        await self._some(request, "listener", None, "", 0, 1)  # the right to list
        totals = await self._facts.totals()
        node = self._facts.node
        queue_totals = {
            "messages": totals.ready + totals.unsettled,
            "messages_ready": totals.ready,
            "messages_unacknowledged": totals.unsettled,
        }
        stats: dict[str, object] = {
            "publish": totals.published,
            "publish_details": {"rate": round(totals.publish_rate, 1)},
            "deliver_get": totals.delivered,
            "deliver_get_details": {"rate": round(totals.deliver_rate, 1)},
        }
        return json_response(
            {
                "product_name": "amqproute",
                "product_version": __version__,
                "management_version": __version__,
                "rabbitmq_version": __version__,
                "cluster_name": node,
                "node": node,
                "exchange_types": [
                    {"name": name, "enabled": True}
                    for name in ("direct", "fanout", "headers", "topic")
                ],
                "message_stats": stats,
                "queue_totals": queue_totals,
                "object_totals": {
                    "channels": totals.channels,
                    "connections": totals.connections,
                    "consumers": totals.consumers,
                    "exchanges": totals.exchanges,
                    "queues": totals.queues,
                },
                "statistics_db_event_queue": 0,
                "listeners": [
                    {
                        "node": node,
                        "protocol": each.protocol,
                        "ip_address": each.address,
                        "port": each.port,
                    }
                    for each in self._facts.places()
                ],
            }
        )

    # -- health checks -----------------------------------------------------------------------------

    async def _check(self, request: HttpRequest) -> HttpResponse:
        name, _, rest = request.parameters["check"].partition("/")
        self._require_monitor(request, "HEALTH", name)
        reason = await self._why_failed(request, name, [] if not rest else rest.split("/"))
        if not reason:
            answer = json_response({"status": "ok"})
        else:
            answer = json_response({"status": "failed", "reason": reason}, 503)
        return answer.with_headers(("Cache-Control", "no-store"))

    async def _why_failed(self, request: HttpRequest, name: str, rest: Sequence[str]) -> str:
        """Return why a check has failed; empty if it has not.

        Raises:
            HttpProblem: there is no such check.
        """
        if name in ("port-listener", "protocol-listener") and len(rest) >= 1:
            return self._why_no_listener(name, "/".join(rest))
        if name == "certificate-expiration" and len(rest) == 2:
            return await self._ran(request, "certificates", _seconds(*rest))
        if rest or name not in _CHECKS:
            known = ", ".join((*_CHECKS, *_CHECKS_WITH_MORE))
            raise HttpProblem(404, f"there is no such check; there are {known}")
        if name in ("ready-to-serve-clients", "is-in-service"):
            return "; ".join(self._facts.why_not_ready())
        check = _CHECKS[name]
        return await self._ran(request, check) if check else ""

    def _why_no_listener(self, name: str, wanted: str) -> str:
        places = self._facts.places()
        if name == "port-listener":
            is_open = wanted in {str(each.port) for each in places}
            return "" if is_open else f"no listener on port {wanted[:16]}"
        protocols = {each.protocol for each in places}
        # RabbitMQ serves both versions on one port, and so do we.
        asked = {"amqp091": "amqp", "amqp10": "amqp", "amqps": "amqp/ssl"}.get(wanted, wanted)
        return "" if asked in protocols else f"no listener for {wanted[:32]}"

    async def _ran(self, request: HttpRequest, check: str, within: float | None = None) -> str:
        who = request.requester
        body: dict[str, object] = {} if within is None else {"within-seconds": within}
        asked = ManagementRequest(
            "HEALTH",
            {"operation": "HEALTH", "name": check},
            body,
            ANONYMOUS_PRINCIPAL if who is None else who.principal,
        )
        reply = self._management.answer(asked)
        if isinstance(reply, Deferred):
            reply = await reply
        found = _good(reply).body
        if found["state"] in ("ok", "warning"):
            return ""
        checks = found["checks"]
        assert isinstance(checks, Sequence)
        return "; ".join(str(each["description"]) for each in checks)


_CHECKS: Final[Mapping[str, str]] = {
    "alarms": "alarms",
    "local-alarms": "alarms",
    "virtual-hosts": "store",
    "node-is-mirror-sync-critical": "",
    "node-is-quorum-critical": "",
    "ready-to-serve-clients": "",
    "is-in-service": "",
}
"""Checks of RabbitMQ without parameters, each with ours; empty for what one node always passes."""
_CHECKS_WITH_MORE: Final = (
    "port-listener/PORT",
    "protocol-listener/PROTOCOL",
    "certificate-expiration/NUMBER/UNIT",
)


def _seconds(number: str, unit: str) -> float:
    days = _DAYS.get(unit)
    if days is None or not (number.isascii() and number.isdigit() and len(number) < 6):
        units = ", ".join(_DAYS)
        raise HttpProblem(400, f"the time is a number up to 99999, and one of {units}", "within")
    return min(int(number) * days, 3660) * 86400.0


def _whole(request: HttpRequest, name: str, most: int) -> int | None:
    text = request.one(name)
    if text is None:
        return None
    is_number = text.isascii() and text.isdigit() and len(text) < 11
    if not is_number or not 1 <= int(text) <= most:
        raise HttpProblem(400, f"`{name}` is not a number from 1 to {most}", name)
    return int(text)


def _good(reply: ManagementReply) -> ManagementReply:
    if 200 <= reply.status < 300:
        return reply
    raise HttpProblem(reply.status, reply.description)


async def _shown(
    request: HttpRequest, rows: Sequence[Row], shown: Callable[[Row], Row], pause: Pause
) -> list[Row]:
    """Return rows as RabbitMQ shows them, made in turns of the reactor."""
    items: list[Row] = []
    for place in range(0, len(rows), ITEMS_IN_TURN):
        items += _columns(request, map(shown, rows[place : place + ITEMS_IN_TURN]))
        await pause()
    return items


def _columns(request: HttpRequest, rows: Iterable[Row]) -> list[Row]:
    """Return rows with the columns that are asked for; of ``a.b`` all of a."""
    wanted = [each for each in (request.one("columns") or "").split(",") if each]
    if not wanted:
        return list(rows)
    tops = {each.partition(".")[0] for each in wanted}
    return [{key: value for key, value in row.items() if key in tops} for row in rows]


# -- rows ------------------------------------------------------------------------------------------


def queue_row(row: Row, facts: IBrokerFacts) -> Row:
    """Return a queue as RabbitMQ shows it."""
    arguments = row.get("arguments")
    ready = _number(row, "available") + _number(row, "deferred")
    held = _number(row, "acquired")
    found: dict[str, object] = {
        "name": local_name(str(row["name"])),
        "vhost": row.get("virtual-host") or ROOT_HOST,
        "type": "topic" if row.get("kind") == "topic" else "classic",
        "node": facts.node,
        "state": "running",
        "durable": row.get("kind") != "dynamic",
        "auto_delete": row.get("auto-delete") is True,
        "exclusive": False,
        "arguments": json.loads(arguments) if isinstance(arguments, str) and arguments else {},
        "messages": ready + held,
        "messages_ready": ready,
        "messages_unacknowledged": held,
        "messages_ram": _number(row, "resident"),
        "message_bytes": _number(row, "bytes"),
        "consumers": _number(row, "consumers"),
        "message_stats": {
            "publish": _number(row, "enqueued"),
            "deliver_get": _number(row, "dequeued"),
            "redeliver": _number(row, "released"),
        },
    }
    for key, name in (("policy", "policy"), ("operator-policy", "operator_policy")):
        if row.get(key):
            found[name] = row[key]
    return found


def connection_row(row: Row, facts: IBrokerFacts) -> Row:
    """Return a connection as RabbitMQ shows it."""
    peer, _, port = str(row["name"]).rpartition(":")
    client = {
        key.removeprefix("client-").replace("-", "_"): value
        for key, value in row.items()
        if key.startswith("client-")
    }
    found: dict[str, object] = {
        "name": row["name"],
        "node": facts.node,
        "state": "running",
        "type": "network",
        "user": str(row.get("principal", "")).partition(":")[2],
        "vhost": row.get("virtual-host") or ROOT_HOST,
        "protocol": row.get("protocol", ""),
        "ssl": bool(row.get("tls")),
        "peer_host": peer.strip("[]"),
        "channels": _number(row, "channels"),
        "connected_at": _number(row, "since-ms"),
        "client_properties": client,
        "user_provided_name": row.get("container", ""),
    }
    if port.isascii() and port.isdigit():
        found["peer_port"] = int(port)
    for key, name in (("frame-max", "frame_max"), ("channel-max", "channel_max")):
        if key in row:
            found[name] = row[key]
    if "heartbeat" in row:
        found["timeout"] = row["heartbeat"]
    return found


def _number(row: Row, key: str) -> int:
    value = row.get(key)
    return value if isinstance(value, int) else 0
