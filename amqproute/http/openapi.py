# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI 3.1 document of the HTTP API, made from the definition of its operations.

It is served as ``/api/v1/openapi.json``, to everybody: it says nothing about the broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from amqproute import __version__
from amqproute.http.http_messages import EVENTS, HttpRequest, HttpResponse, json_response
from amqproute.http.journal_feed import LAST_EVENT_ID, TAIL_PATH
from amqproute.http.journal_stretch import MOST_BEHIND
from amqproute.http.management_api import (
    LIST_PARAMETERS,
    PREFIX,
    forms,
    has_precondition,
    path_of,
)
from amqproute.http.session_resources import SESSION_PATH
from amqproute.http.site import FORM, HttpAccess, HttpResource, HttpSite
from amqproute.services.management_table import (
    ENTITIES,
    OPERATIONS,
    OR_ASSERT,
    EntityDeclaration,
    OperationDeclaration,
    parameters_of,
)
from amqproute.services.value_declaration import ValueDeclaration, ValueType

__all__ = ["OPENAPI_PATH", "add_openapi_resource", "openapi"]

OPENAPI_PATH: Final = f"{PREFIX}/openapi.json"
_JSON: Final = "application/json"
_PROBLEM: Final = "application/problem+json"
_OF_ALL: Final = (400, 401, 403, 404, 406, 429, 500, 501, 503)
"""Statuses that every operation can answer with."""
_OF_BODIES: Final = (413, 415)

_ENTITY_TAG: Final = r'^(\*|"[!#-~]*")$'

Schema = dict[str, object]


def add_openapi_resource(site: HttpSite) -> None:
    """Add the document to a site."""
    document = json_response(openapi())

    def show(request: HttpRequest) -> HttpResponse:
        return document

    site.add(HttpResource(OPENAPI_PATH, {"GET": show}, HttpAccess.OPEN))


def openapi() -> Schema:
    """Return the document."""
    paths: dict[str, dict[str, object]] = {}
    for operation, entity in forms():
        at = paths.setdefault(path_of(operation, entity), {})
        at[operation.method.lower()] = _operation(operation, entity)
    paths[SESSION_PATH] = _session()
    paths[TAIL_PATH] = {"get": _tail()}
    paths[OPENAPI_PATH] = {"get": _document()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "amqproute",
            "version": __version__,
            "summary": "Management of a store-and-forward broker",
            "description": "Names of entities are one part of the path, percent-encoded: "
            "`//shop/orders` is `%2F%2Fshop%2Forders`. Users and rights are those of AMQP. "
            "Refusals are problems as in RFC 9457, with the wrong parameter in `field`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"token": []}, {"session": []}, {"certificate": []}],
        "tags": [{"name": "sessions"}, {"name": "operations"}]
        + [{"name": each.plural, "description": each.shows} for each in ENTITIES.values()],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "an access token, made with `amqproute token create`",
                },
                "session": {"type": "apiKey", "in": "cookie", "name": "amqproute-session"},
                "certificate": {"type": "mutualTLS"},
            },
            "schemas": {
                "Problem": _PROBLEM_SCHEMA,
                **{_schema_name(each): _entity(each) for each in ENTITIES.values()},
            },
            "responses": {"Problem": _problem("The request is refused, or has failed")},
        },
    }


_PROBLEM_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "RFC 9457",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "field": {"type": "string", "description": "the parameter that is wrong"},
        "operation": {"type": "string"},
        "attributes": {"type": "object"},
    },
    "required": ["type", "title", "status", "detail"],
}


def _problem(words: str) -> Schema:
    content = {_PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": words, "content": content}


def _content(response: Schema) -> Mapping[str, object]:
    content = response["content"]
    assert isinstance(content, Mapping)
    return content


def _refusals(statuses: Sequence[int]) -> Schema:
    return {str(each): {"$ref": "#/components/responses/Problem"} for each in sorted(set(statuses))}


def _schema_name(entity: EntityDeclaration) -> str:
    return "".join(part.capitalize() for part in entity.name.split("-"))


def _entity(entity: EntityDeclaration) -> Schema:
    return {
        "type": "object",
        "description": entity.shows,
        "properties": {each.name: each.schema() for each in entity.attributes},
        "required": ["name"],
    }


def _operation(operation: OperationDeclaration, entity: EntityDeclaration | None) -> Schema:
    path = path_of(operation, entity)
    words = operation.does[0].upper() + operation.does[1:]
    tag = path.removeprefix(f"{PREFIX}/").split("/")[0]
    known = {each.plural for each in ENTITIES.values()}
    name = operation.name.lower() + (f"-{entity.name}" if entity is not None else "")
    name += "-one" * (operation.path == operation.subject_path != "")
    found: Schema = {
        "operationId": re.sub(r"-(.)", lambda match: match[1].upper(), name),
        "summary": words if entity is None else f"{words}: {entity.shows}",
        "description": f"Further right: {operation.right.value}.",
        "tags": [tag if tag in known else "operations"],
        "parameters": _parameters(operation, entity),
    }
    refusals = [*_OF_ALL, *operation.refusals]
    if has_precondition(operation, entity):
        refusals.append(412)
    if operation.method not in ("GET", "DELETE"):
        found["requestBody"] = _body(operation, entity)
        refusals += _OF_BODIES
    found["responses"] = {**_refusals(refusals), **_answers(operation, entity)}
    return found


def _parameters(operation: OperationDeclaration, entity: EntityDeclaration | None) -> list[Schema]:
    found: list[Schema] = []
    if "{name}" in path_of(operation, entity):
        schema: Schema = {"type": "string", "minLength": 1, "maxLength": 1024}
        words = operation.subject or "the entity"
        found.append(
            {
                "name": "name",
                "in": "path",
                "required": True,
                "description": words,
                "schema": schema,
            }
        )
    if operation.name == "QUERY":
        assert entity is not None
        shown = {each.name for each in LIST_PARAMETERS}
        filters = [
            ValueDeclaration(each.name, ValueType.TEXT, "only entities with this value")
            for each in entity.attributes
            if each.name not in shown
        ]
        return found + [_in_query(each) for each in (*LIST_PARAMETERS, *filters)]
    if operation.subject and not operation.needs_subject:
        found.append(_in_query(ValueDeclaration("name", ValueType.TEXT, operation.subject)))
    host = ValueDeclaration("virtual-host", ValueType.TEXT, "whose names are in the request")
    found.append(_in_query(host))
    if operation.name == "CREATE":
        found.append(_in_query(OR_ASSERT))
    if has_precondition(operation, entity):
        words = "the ETag of an earlier GET; 412 if it has changed"
        found.append(_in_header("If-Match", words, {"type": "string", "pattern": _ENTITY_TAG}))
    if operation.name == "CREATE":
        words = "* to refuse what is there already with 412"
        found.append(_in_header("If-None-Match", words, {"type": "string"}))
    if operation.method in ("GET", "DELETE"):
        found += [_in_query(each) for each in parameters_of(operation, entity)]
    return found


def _in_header(name: str, words: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": words, "schema": schema}


def _in_query(value: ValueDeclaration) -> Schema:
    schema = value.schema()
    words = str(schema.pop("description", value.name))
    found: Schema = {"name": value.name, "in": "query", "description": words, "schema": schema}
    if value.is_required:
        found["required"] = True
    if value.type in (ValueType.TEXTS, ValueType.NUMBERS):
        found |= {"style": "form", "explode": False}
    return found


def _body(operation: OperationDeclaration, entity: EntityDeclaration | None) -> Schema:
    parameters = parameters_of(operation, entity)
    required = [each.name for each in parameters if each.is_required]
    schema: Schema = {
        "type": "object",
        "properties": {each.name: each.schema() for each in parameters},
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return {"required": bool(required), "content": {_JSON: {"schema": schema}}}


def _answers(operation: OperationDeclaration, entity: EntityDeclaration | None) -> Schema:
    schema = _attributes(operation, entity)
    if operation.name == "QUERY":
        assert entity is not None
        schema = {
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {"$ref": f"#/components/schemas/{_schema_name(entity)}"},
                },
                "next": {"type": ["string", "null"], "description": "the cursor of the next page"},
                "total": {"type": ["integer", "null"]},
            },
            "required": ["items", "next", "total"],
        }
    elif operation.method != "GET":
        schema = {
            "type": "object",
            "properties": {"description": {"type": "string"}, "attributes": schema},
            "required": ["description", "attributes"],
        }
    done: Schema = {"description": "Done", "content": {_JSON: {"schema": schema}}}
    if operation.method == "GET":
        known: Schema = {"description": "The client has this answer already"}
        found: Schema = {"200": {**done, "headers": _TAG}, "304": known}
        if operation.is_monitoring:
            failed = _problem("Something has failed; or too many requests")
            failed["content"] = {**_content(failed), **_content(done)}
            found["503"] = failed
        return found
    if operation.name == "CREATE-TOKEN":
        return {"201": done}
    return {"200": done, "201": done} if operation.name in ("CREATE", "UPDATE") else {"200": done}


_TAG: Final[Mapping[str, object]] = {
    "ETag": {"description": "for If-None-Match and If-Match", "schema": {"type": "string"}}
}


def _attributes(operation: OperationDeclaration, entity: EntityDeclaration | None) -> Schema:
    if operation.name == "READ":
        assert entity is not None
        return {"$ref": f"#/components/schemas/{_schema_name(entity)}"}
    return {
        "type": "object",
        "properties": {each.name: each.schema() for each in operation.answers or ()},
    }


def _tail() -> Schema:
    parameters = OPERATIONS["TAIL-JOURNAL"].parameters or ()
    text: Schema = {"schema": {"type": "string"}}
    seen = "the id of the last event of an earlier answer: continue with the record after it"
    return {
        "operationId": "followJournal",
        "summary": "Follows the audit journal: an event `record` for each record, as JSON",
        "description": "The id of an event is `JOURNAL:SEQUENCE`. Of the records that a client "
        f"has missed it gets those among the last {MOST_BEHIND}. An event `omitted` stands in the "
        "place of records that are left out, whether they fit or not; its data is an object with "
        "their number in `count`, or null if the id names no record of this journal.",
        "tags": ["operations"],
        "parameters": [
            *(_in_query(each) for each in parameters if each.name != "count"),
            _in_header(LAST_EVENT_ID, seen, {"type": "string"}),
        ],
        "responses": {
            "200": {"description": "Server-sent events", "content": {EVENTS: text}},
            **_refusals(_OF_ALL),
        },
    }


def _document() -> Schema:
    schema: Schema = {"type": "object"}
    return {
        "operationId": "getOpenapi",
        "summary": "Shows this document",
        "tags": ["operations"],
        "security": [],
        "responses": {
            "200": {"description": "The document", "content": {_JSON: {"schema": schema}}},
            "304": {"description": "The client has this answer already"},
            **_refusals((406, 429)),
        },
    }


def _session() -> Schema:
    text: Schema = {"type": "string"}
    shown: Schema = {
        "type": "object",
        "properties": {
            "principal": text,
            "kind": text,
            "csrf-token": text,
            "scope": {"type": "array", "items": text},
        },
        "required": ["principal", "kind"],
    }
    content: Schema = {_JSON: {"schema": shown}}
    log_in: Schema = {
        "type": "object",
        "properties": {"user": text, "password": {**text, "format": "password"}},
        "required": ["user", "password"],
    }
    refusals = _refusals(_OF_ALL)
    return {
        "get": {
            "operationId": "showSession",
            "summary": "Shows who has logged in",
            "tags": ["sessions"],
            "responses": {
                "200": {"description": "Somebody", "content": content},
                "304": {"description": "The client has this answer already"},
                **refusals,
            },
        },
        "post": {
            "operationId": "logIn",
            "summary": "Begins a session, and sets its cookie",
            "tags": ["sessions"],
            "security": [],
            "requestBody": {
                "required": True,
                "content": {_JSON: {"schema": log_in}, FORM: {"schema": log_in}},
            },
            "responses": {
                "201": {"description": "Logged in", "content": content},
                **refusals,
                **_refusals(_OF_BODIES),
            },
        },
        "delete": {
            "operationId": "logOut",
            "summary": "Ends the session",
            "tags": ["sessions"],
            "responses": {"204": {"description": "Logged out"}, **refusals},
        },
    }
