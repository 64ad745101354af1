# SPDX-License-Identifier: Apache-2.0
"""Management for the dashboard: the operations of ``$management``, asked for a logged-in user.

Requests are carried out by the service that answers AMQP clients and the HTTP API, with the same
checks, rights and records of the audit journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from amqproute.dashboard.management_source import NOTHING, ROWS_SHOWN, Answer, RowPage
from amqproute.dashboard.row_values import Row, maps, text, whole
from amqproute.errors import AmqprouteError
from amqproute.http.requester import Requester
from amqproute.services.command_schema import FORBIDDEN, OK
from amqproute.services.entity_pages import EntityQuery
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.services.management_table import OPERATIONS
from amqproute.values import Principal

__all__ = ["Management", "ManagementDoor"]


class Management(Protocol):
    """Executor of requests: `amqproute.services.management_node.ManagementService`."""

    def perform(self, request: ManagementRequest) -> Deferred[ManagementReply]:
        """Carry out a request."""

    def list_entities(
        self, kind: str, query: EntityQuery, principal: Principal
    ) -> Awaitable[ManagementReply]:
        """List entities of a type, page by page."""

    def named_entities(
        self, kind: str, names: Sequence[str], principal: Principal
    ) -> ManagementReply:
        """List the entities of a type that have these names."""


class ManagementDoor:
    """Management with the rights of one requester.

    Args:
        management: carries requests out.
        requester: who has logged in.
        may_manage: returns whether a principal may manage the service itself.
    """

    def __init__(
        self,
        management: Management,
        requester: Requester,
        may_manage: Callable[[Principal], bool],
    ) -> None:
        self._management = management
        self._requester = requester
        self._may_manage = may_manage

    def __repr__(self) -> str:
        return f"<ManagementDoor {self._requester}>"

    @property
    def user(self) -> str:
        """See `ManagementSource`."""
        return str(self._requester.principal)

    @property
    def may_manage(self) -> bool:
        """See `ManagementSource`."""
        return self._is_covered("QUERY", "") and self._may_manage(self._requester.principal)

    async def rows(
        self,
        kind: str,
        *,
        cursor: str = "",
        contains: str = "",
        host: str = "",
        wanted: Mapping[str, str] = NOTHING,
        count: int = ROWS_SHOWN,
    ) -> RowPage:
        """See `ManagementSource`."""
        if not self._is_covered("QUERY", ""):
            return RowPage((), None, "", self._out_of_scope("QUERY"))
        query = EntityQuery(
            name=f"*{contains}*" if contains else "",
            wanted=wanted,
            host=host or None,
            limit=count,
            cursor=cursor,
        )
        reply = await self._management.list_entities(kind, query, self._requester.principal)
        if reply.status != OK:
            return RowPage((), None, "", reply.description)
        following = text(reply.body, "next")
        return RowPage(maps(reply.body, "items"), whole(reply.body, "total"), following)

    async def one(self, kind: str, name: str) -> Row | None:
        """See `ManagementSource`."""
        answer = await self.do("READ", kind, name)
        return answer.facts if answer.is_good else None

    async def some(self, kind: str, names: Sequence[str]) -> Sequence[Row]:
        """See `ManagementSource`."""
        if not self._is_covered("QUERY", ""):
            return []
        reply = self._management.named_entities(kind, names, self._requester.principal)
        return maps(reply.body, "items")

    async def do(
        self,
        operation: str,
        kind: str = "",
        name: str = "",
        body: Mapping[str, object] | None = None,
    ) -> Answer:
        """See `ManagementSource`."""
        if not self._is_covered(operation, name):
            return Answer(FORBIDDEN, self._out_of_scope(operation), {})
        requester = self._requester
        properties: dict[str, object] = {
            "operation": operation,
            "remote": requester.remote,
            "log-in": requester.kind,
        }
        properties |= {key: value for key, value in (("type", kind), ("name", name)) if value}
        request = ManagementRequest(operation, properties, dict(body or {}), requester.principal)
        try:
            reply = await self._management.perform(request)
        except AmqprouteError as error:
            return Answer(500, str(error), {})
        return Answer(reply.status, reply.description, reply.body)

    def _is_covered(self, operation: str, name: str) -> bool:
        declared = OPERATIONS.get(operation)
        changes = declared is None or declared.changes
        return self._requester.scope.covers(operation, name, changes=changes)

    def _out_of_scope(self, operation: str) -> str:
        return f"the token of {self._requester} is not for {operation}"
