# SPDX-License-Identifier: Apache-2.0
"""``/api/v1``: management over HTTP, made from the one definition of its operations.

Each entity type is a resource, and so is each of its entities; what is no method of HTTP is a
resource below it, as in ``POST /api/v1/queues/orders/purge``. Other operations stand where their
declaration says. A handler turns the request into the one that an AMQP client would send, and
`ManagementService` carries it out: the same checks, rights and records of the audit journal, which
has the address of the client as well.

Parameters are members of a JSON object, and with GET and DELETE parameters of the query. Further
parameters of the query are ``virtual-host``; ``or-assert`` of a PUT; and for lists ``limit``,
``cursor``, ``fields``, ``name`` (a pattern) and any attribute with the value that it has to have.

The entity tag of an entity begins with a digest of its definition, that of the configuration with
its version. A change with such a tag in If-Match is made only if this part is still the same: an
entity whose counters alone have changed has not changed in the sense of If-Match.

Operations that are for monitoring answer addresses of ``management.metrics-networks`` without a
log-in, and with 503 if something has failed, as load balancers want it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol
from urllib.parse import quote

from twisted.internet.defer import Deferred

from amqproute.http.http_messages import (
    HttpHandler,
    HttpProblem,
    HttpRequest,
    HttpResponse,
    json_in_turns,
    json_response,
)
from amqproute.http.site import HttpAccess, HttpResource, HttpSite
from amqproute.services.entity_pages import MOST_ON_PAGE, EntityQuery
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.services.management_table import (
    ENTITIES,
    ENTITY_METHODS,
    IF_VERSION,
    OPERATIONS,
    OR_ASSERT,
    EntityDeclaration,
    OperationDeclaration,
    parameters_of,
)
from amqproute.services.value_declaration import ValueDeclaration, ValueType
from amqproute.turn_scheduler import Pause
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal

__all__ = [
    "LIST_PARAMETERS",
    "PREFIX",
    "IManagement",
    "ManagementApi",
    "RequireMonitor",
    "forms",
    "has_precondition",
    "path_of",
]

PREFIX: Final = "/api/v1"
VIRTUAL_HOST: Final = "virtual-host"
_T = ValueType
LIST_PARAMETERS: Final = (
    ValueDeclaration("limit", _T.NUMBER, "entities of a page", least=1, most=MOST_ON_PAGE),
    ValueDeclaration("cursor", _T.TEXT, "the member `next` of the last page", longest=4096),
    ValueDeclaration("fields", _T.TEXT, "names of attributes, separated by commas", longest=4096),
    ValueDeclaration("name", _T.TEXT, "a pattern of names, with *", longest=1024),
    ValueDeclaration(VIRTUAL_HOST, _T.TEXT, "only entities of this virtual host", longest=255),
)
"""Parameters of the query for lists."""
_TAKEN_IN_QUERY: Final = ("GET", "DELETE")
_WELL: Final = ("ok", "warning")
"""States of a monitoring operation that are answered with 200."""
UNAVAILABLE: Final = 503

RequireMonitor = Callable[[HttpRequest, str, str], None]
"""Raises `HttpProblem` if a request may not have an operation that is for monitoring; it is called
with the request, the name of the operation and its subject."""


class IManagement(Protocol):
    """Executor of requests: `amqproute.services.management_node.ManagementService`."""

    def perform(self, request: ManagementRequest) -> Deferred[ManagementReply]:
        """Carry out a request."""

    def definition(self, kind: str, name: str) -> Mapping[str, object] | None:
        """Return what is declared of an entity; None without one."""

    def answer(self, request: ManagementRequest) -> ManagementReply | Deferred[ManagementReply]:
        """Carry out a request whose right has been checked."""

    async def list_entities(
        self, kind: str, query: EntityQuery, principal: Principal
    ) -> ManagementReply:
        """List entities of a type, page by page."""

    def pause_of(self, principal: Principal) -> Pause:
        """Return what is called between slices of work for somebody."""


def path_of(operation: OperationDeclaration, entity: EntityDeclaration | None) -> str:
    """Return the pattern of an operation's resource, on an entity type if it is for entities."""
    if operation.path:
        return f"{PREFIX}/{operation.path}"
    assert entity is not None
    if operation.name == "QUERY":
        return f"{PREFIX}/{entity.plural}"
    tail = "" if operation.name in ENTITY_METHODS else f"/{operation.name.lower()}"
    return f"{PREFIX}/{entity.plural}/{{name}}{tail}"


def forms() -> list[tuple[OperationDeclaration, EntityDeclaration | None]]:
    """Return each operation, once for each entity type whose resources it belongs to.

    One that has two places comes twice: without a subject, and with a required one.
    """
    found: list[tuple[OperationDeclaration, EntityDeclaration | None]] = []
    for operation in OPERATIONS.values():
        if operation.subject_path:
            found.append((replace(operation, subject=""), None))
            of_one = replace(operation, path=operation.subject_path, needs_subject=True)
            found.append((of_one, None))
            continue
        if operation.path:
            found.append((operation, None))
            continue
        for entity in ENTITIES.values():
            if operation.name in ("QUERY", "READ") or entity.name in operation.kinds:
                found.append((operation, entity))
    return found


class ManagementApi:
    """The resources.

    Args:
        management: carries requests out.
        require_monitor: who may have the operations that are for monitoring.
    """

    def __init__(self, management: IManagement, require_monitor: RequireMonitor) -> None:
        self._management = management
        self._require_monitor = require_monitor

    def add_to(self, site: HttpSite) -> None:
        """Add the resources to a site."""
        handlers: dict[str, dict[str, HttpHandler]] = {}
        open_to_monitors: set[str] = set()
        for operation, entity in forms():
            path = path_of(operation, entity)
            if operation.is_monitoring:
                handler = self._monitor(operation)
                open_to_monitors.add(path)
            elif operation.name == "QUERY" and entity is not None:
                handler = self._lister(entity)
            else:
                handler = self._handler(operation, entity)
            handlers.setdefault(path, {})[operation.method] = handler
        for pattern, methods in handlers.items():
            is_open = pattern in open_to_monitors
            access = HttpAccess.OPTIONAL if is_open else HttpAccess.LOGGED_IN
            site.add(HttpResource(pattern, methods, access))

    def _monitor(self, operation: OperationDeclaration) -> HttpHandler:
        """Return the handler of an operation that monitoring reads, with or without a log-in."""
        parameters = parameters_of(operation, None)

        async def look(request: HttpRequest) -> HttpResponse:
            name = request.parameters.get("name", "")
            self._require_monitor(request, operation.name, name)
            reply = self._management.answer(request_of(request, operation, None, parameters))
            if isinstance(reply, Deferred):
                reply = await reply
            response = response_of(request, operation, reply)
            status = 200 if reply.body.get("state") in _WELL else UNAVAILABLE
            return replace(response, status=status).with_headers(("Cache-Control", "no-store"))

        return lambda request: Deferred.fromCoroutine(look(request))

    def _handler(
        self, operation: OperationDeclaration, entity: EntityDeclaration | None
    ) -> HttpHandler:
        parameters = parameters_of(operation, entity)

        async def carry_out(request: HttpRequest) -> HttpResponse:
            asked = request_of(request, operation, entity, parameters)
            require_scope(request, operation, str(asked.properties.get("name", "")))
            if operation.changes or takes_version(operation):
                asked = await self._with_precondition(request, operation, asked)
            reply = await self._management.perform(asked)
            response = response_of(request, operation, reply)
            return replace(response, version=self._version(operation, asked.entity_type, reply))

        return lambda request: Deferred.fromCoroutine(carry_out(request))

    async def _with_precondition(
        self, request: HttpRequest, operation: OperationDeclaration, asked: ManagementRequest
    ) -> ManagementRequest:
        """Return a request whose preconditions hold (RFC 9110 §13).

        Raises:
            HttpProblem: they do not.
        """
        versions = request.versions_in("if-match")
        others = request.versions_in("if-none-match") if operation.name == "CREATE" else None
        if versions is None and others is None:
            return asked
        if takes_version(operation):
            if versions is None or versions == ["*"]:
                return asked
            if len(versions) != 1:
                raise _failed("If-Match has to have one tag, of an answer to GET", "if-match")
            return replace(asked, body={**asked.body, IF_VERSION: versions[0]})
        if asked.entity_type is None or "name" not in asked.properties:
            raise _failed("this resource has no entity tag", "if-match")
        # Nothing comes between this and the change: reading an entity waits for nothing.
        present = await self._management.perform(
            replace(
                asked,
                operation="READ",
                properties={**asked.properties, "operation": "READ"},
                body={},
            )
        )
        if present.status not in (200, 404):
            return asked  # the operation is refused for the same reason
        version = self._version(OPERATIONS["READ"], asked.entity_type, present)
        if version and others and (version in others or "*" in others):
            raise _failed("there is one already", "if-none-match")
        if versions is not None and version not in versions and not (version and "*" in versions):
            words = "it has changed since it was read" if version else "there is none"
            raise _failed(words, "if-match")
        return asked

    def _version(
        self, operation: OperationDeclaration, kind: str | None, reply: ManagementReply
    ) -> str:
        """Return the version of what an answer shows; empty if it has none."""
        if reply.status != 200:
            return ""
        if operation.name == "READ":
            found = self._management.definition(str(kind), str(reply.body.get("name")))
            return "" if found is None else _digest(found)
        if operation.method == "GET":
            return str(reply.body.get("version", ""))
        return ""

    def _lister(self, entity: EntityDeclaration) -> HttpHandler:
        async def list_them(request: HttpRequest) -> HttpResponse:
            query = query_of(request, entity)
            require_scope(request, OPERATIONS["QUERY"], query.name)
            principal = request.who.principal
            reply = await self._management.list_entities(entity.name, query, principal)
            fields = [each for each in (request.one("fields") or "").split(",") if each]
            if fields and reply.status == 200:
                items = _restricted(reply.body.get("items"), fields)
                reply = replace(reply, body={**reply.body, "items": items})
            if reply.status == 200:
                return await json_in_turns(reply.body, self._management.pause_of(principal))
            return response_of(request, OPERATIONS["QUERY"], reply)

        return lambda request: Deferred.fromCoroutine(list_them(request))


def takes_version(operation: OperationDeclaration) -> bool:
    """Return whether an operation itself checks the version in If-Match."""
    return any(each.name == IF_VERSION for each in operation.parameters or ())


def has_precondition(operation: OperationDeclaration, entity: EntityDeclaration | None) -> bool:
    """Return whether If-Match can hold for an operation."""
    return takes_version(operation) or (
        operation.changes and entity is not None and operation.name in ENTITY_METHODS
    )


def _failed(words: str, header: str) -> HttpProblem:
    return HttpProblem(412, words, header)


def _digest(definition: Mapping[str, object]) -> str:
    return hashlib.sha256(json_response(sorted(definition.items())).body).hexdigest()[:32]


def _restricted(items: object, fields: Sequence[str]) -> list[dict[str, object]]:
    rows = items if isinstance(items, Sequence) else ()
    return [{key: row[key] for key in ("name", *fields) if key in row} for row in rows]


# -- requests --------------------------------------------------------------------------------------


def request_of(
    request: HttpRequest,
    operation: OperationDeclaration,
    entity: EntityDeclaration | None,
    parameters: Sequence[ValueDeclaration],
) -> ManagementRequest:
    """Return the management request that an HTTP request stands for.

    Raises:
        HttpProblem: it cannot be read.
    """
    who = request.requester
    properties: dict[str, object] = {"operation": operation.name}
    if who is not None:
        properties |= {"remote": who.remote, "log-in": who.kind}
    if entity is not None:
        properties["type"] = entity.name
    if "name" in request.parameters:
        properties["name"] = request.parameters["name"]
    known = {VIRTUAL_HOST: ValueDeclaration(VIRTUAL_HOST, _T.TEXT)}
    if operation.name == "CREATE":
        known[OR_ASSERT.name] = OR_ASSERT
    if operation.subject and not operation.needs_subject:
        known["name"] = ValueDeclaration("name", _T.TEXT)
    body: dict[str, object] = {}
    if operation.method in _TAKEN_IN_QUERY:
        own = {each.name: each for each in parameters if each.name not in known}
        given = read_query(request, {**known, **own})
        body = {key: value for key, value in given.items() if key in own}
        if request.body:
            raise HttpProblem(400, f"{request.method} takes its parameters in the query", "body")
    else:
        given = read_query(request, known)
        said = request.json()
        if said is not None and not isinstance(said, dict):
            raise HttpProblem(400, "the body has to be a JSON object", "body")
        body = said or {}
    properties |= {key: value for key, value in given.items() if key in known}
    principal = ANONYMOUS_PRINCIPAL if who is None else who.principal
    return ManagementRequest(operation.name, properties, body, principal)


def query_of(request: HttpRequest, entity: EntityDeclaration) -> EntityQuery:
    """Return what a list is asked for.

    Raises:
        HttpProblem: it cannot be read.
    """
    known = {each.name: each for each in LIST_PARAMETERS}
    attributes = {each.name for each in entity.attributes}
    wanted: dict[str, str] = {}
    for key in request.query:
        if key in known:
            continue
        if key not in attributes and not entity.is_open:
            there = ", ".join(sorted({*known, *attributes}))
            raise HttpProblem(400, f"unknown parameter {key[:64]!r}; there are {there}", key[:64])
        wanted[key] = request.one(key) or ""
    given = read_query(request, known, others=tuple(wanted))
    limit = given.get("limit", 100)
    assert isinstance(limit, int)
    host = given.get(VIRTUAL_HOST)
    return EntityQuery(
        str(given.get("name", "")),
        wanted,
        None if host is None else str(host),
        limit,
        str(given.get("cursor", "")),
    )


def read_query(
    request: HttpRequest, known: Mapping[str, ValueDeclaration], others: Sequence[str] = ()
) -> dict[str, object]:
    """Return the parameters of a query, each of its declared type.

    Raises:
        HttpProblem: one is unknown, given twice, or wrong.
    """
    found: dict[str, object] = {}
    for key, texts in request.query.items():
        if key in others:
            continue
        declared = known.get(key)
        if declared is None:
            there = ", ".join(sorted(known)) or "none"
            raise HttpProblem(400, f"unknown parameter {key[:64]!r}; there are {there}", key[:64])
        if declared.type in (_T.TEXTS, _T.NUMBERS):
            parts = [part for text in texts for part in text.split(",")]
            value: object = [_value(part, _ONE[declared.type]) for part in parts]
        else:
            value = _value(request.one(key) or "", declared.type)
        if not declared.fits(value):
            raise HttpProblem(400, f"`{key}` is not {declared.words}", key)
        found[key] = value
    return found


_ONE: Final = {_T.TEXTS: _T.TEXT, _T.NUMBERS: _T.NUMBER}


def _value(text: str, kind: ValueType) -> object:
    """Return the value of a parameter; the text itself if it is none of its type."""
    if kind is _T.BOOLEAN:
        return {"true": True, "false": False}.get(text, text)
    if kind is _T.FRACTION and re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return float(text)
    if kind is _T.NUMBER and text.removeprefix("-").isascii() and len(text) < 20:
        return int(text) if text.removeprefix("-").isdigit() else text
    return text


def require_scope(request: HttpRequest, operation: OperationDeclaration, name: str) -> None:
    """Refuse what the log-in is not good for.

    Raises:
        HttpProblem: it is not.
    """
    scope = request.who.scope
    if not scope.covers(operation.name, name, changes=operation.changes):
        words = f"the token is good for {scope}, not for {operation.name}"
        raise HttpProblem(403, words, facts={"scope": scope.words})


_ANY: Final = next(iter(ENTITIES.values()))


# -- answers ---------------------------------------------------------------------------------------


def response_of(
    request: HttpRequest, operation: OperationDeclaration, reply: ManagementReply
) -> HttpResponse:
    """Return the answer that a reply stands for.

    Raises:
        HttpProblem: the reply is a refusal.
    """
    if not 200 <= reply.status < 300:
        facts = dict(reply.body)
        field = str(facts.pop("field", ""))
        more = {"attributes": facts} if facts else {}
        facts = {"operation": operation.name, **more}
        raise HttpProblem(reply.status, reply.description, field, facts)
    if operation.method == "GET":
        return json_response(reply.body)
    said = {"description": reply.description, "attributes": reply.body}
    if reply.status != 201:
        return json_response(said)
    if "{name}" not in path_of(operation, _ANY):
        return json_response(said, 201)
    name = quote(str(request.parameters.get("name", "")), safe="")
    place = request.path.rpartition("/")[0]
    return json_response(said, 201).with_headers(("Location", f"{place}/{name}"))
