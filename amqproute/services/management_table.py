# SPDX-License-Identifier: Apache-2.0
"""The one definition of management, and the page made from it.

`management_entities` declares the entity types, `management_operations` the operations: names,
parameters with types and bounds, rights, attributes of answers, refusals, and whether they change
something. From these come the dispatcher of ``$management``, the check of parameters, what is
recorded in the audit journal, the answers to ``GET-TYPES`` and ``GET-OPERATIONS``, the HTTP API and
its OpenAPI document (`amqproute.http`), commands (`amqproute.cli`), and the page
``docs/management.md``. The service accepts only operations and entity types that are declared
(`ManagementService.offer`, `ManagementService.show`). `render` writes the page (``python -m
amqproute.services.management_table > docs/management.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from amqproute.services.management_entities import ENTITIES, EntityDeclaration
from amqproute.services.management_operations import (
    IF_VERSION,
    NODE_KINDS,
    OPERATIONS,
    OperationDeclaration,
    RequiredRight,
)
from amqproute.services.value_declaration import ValueDeclaration, ValueType

__all__ = [
    "ENTITIES",
    "ENTITY_METHODS",
    "IF_VERSION",
    "NODE_KINDS",
    "OPERATIONS",
    "OR_ASSERT",
    "EntityDeclaration",
    "OperationDeclaration",
    "RequiredRight",
    "http_path",
    "operations_of",
    "parameters_of",
    "render",
]


def operations_of(kind: str) -> list[str]:
    """Return the operations on an entity type, in the order of ``GET-OPERATIONS``."""
    named = (each.name for each in OPERATIONS.values() if kind in each.kinds)
    return ["QUERY", "READ", *named]


ENTITY_METHODS: Final = frozenset({"READ", "CREATE", "UPDATE", "DELETE"})
"""Operations that are the methods of an entity's resource in the HTTP API."""

OR_ASSERT: Final = ValueDeclaration(
    "or-assert", ValueType.BOOLEAN, "do nothing if there is one with these options already"
)
"""The application property of CREATE; a parameter of the query over HTTP."""

_HEAD: Final = """\
# Operations of `$management`

Generated from `amqproute/services/management_operations.py` and `management_entities.py` by
`python -m amqproute.services.management_table`. `docs/http-api.md` describes the HTTP API, in which
`TYPES` is the plural of an entity type, as in `queues` and `exchange-bindings`.

A request is a message to the node `$management` (or `amqp$admin`) with the application properties
`operation`, `type` or `entityType`, and `name`, and options in its body; or a batch of commands.
The docstring of `amqproute/services/management_node.py` has the formats, statuses and limits. The
right to attach to the node suffices for a request; some operations need a further right. Operations
that change something are recorded in the audit journal, with the requester.
"""


def parameters_of(
    operation: OperationDeclaration, entity: EntityDeclaration | None
) -> Sequence[ValueDeclaration]:
    """Return the parameters of an operation on an entity type."""
    if operation.parameters is not None:
        return operation.parameters
    if entity is None:
        return ()
    if operation.name == "DELETE":
        return entity.delete_options
    if operation.name == "UPDATE" and entity.changeable:
        known = {each.name: each for each in entity.options}
        or_create = ValueDeclaration("or-create", ValueType.BOOLEAN, "create a missing one")
        found = [known.get(name, or_create) for name in entity.changeable]
        return [replace(each, is_required=False, is_nullable=True) for each in found]
    if operation.name == "ASSERT":
        return [replace(each, is_required=False) for each in entity.options]
    return entity.options if operation.name in ("CREATE", "UPDATE") else ()


def render() -> str:
    """Return the page with the entity types and operations."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    yield "## Entity types\n"
    yield "| type | shows | operations |"
    yield "|---|---|---|"
    for entity in ENTITIES.values():
        names = ", ".join(f"`{name}`" for name in operations_of(entity.name))
        yield f"| `{entity.name}` | {entity.shows} | {names} |"
    yield "\n## Operations\n"
    yield "| operation | does | further right | in the audit journal | HTTP |"
    yield "|---|---|---|---|---|"
    for each in OPERATIONS.values():
        noted = "yes" if each.changes else "no"
        places = f"`{each.method} {http_path(each)}`"
        if each.subject_path:
            places += f", `{each.method} /api/v1/{each.subject_path}`"
        yield f"| `{each.name}` | {each.does} | {each.right.value} | {noted} | {places} |"
    yield "\n## Parameters\n"
    yield "The application property `name` is the subject; parameters are entries of the body.\n"
    for each in OPERATIONS.values():
        if each.parameters or (each.subject and each.path):
            yield f"### {each.name}\n"
            yield "| parameter | values | meaning |"
            yield "|---|---|---|"
            if each.subject:
                yield f"| `name` | a text | {each.subject} |"
            for value in each.parameters or ():
                needed = "; required" if value.is_required else ""
                yield f"| `{value.name}` | {value.words}{needed} | {value.does} |"
            yield ""
    yield "## Options and attributes of entities\n"
    for entity in ENTITIES.values():
        yield f"### {entity.name}\n"
        if entity.options:
            yield "| option | values | meaning |"
            yield "|---|---|---|"
            for value in entity.options:
                needed = "; required" if value.is_required else ""
                yield f"| `{value.name}` | {value.words}{needed} | {value.does} |"
            yield ""
        names = ", ".join(f"`{value.name}`" for value in entity.attributes)
        yield f"Attributes: {names}{', and others' if entity.is_open else ''}.\n"


def http_path(operation: OperationDeclaration) -> str:
    """Return the place of an operation in the HTTP API, as text."""
    if operation.path:
        return f"/api/v1/{operation.path}"
    if operation.name == "QUERY":
        return "/api/v1/TYPES"
    tail = "" if operation.name in ENTITY_METHODS else f"/{operation.name.lower()}"
    return f"/api/v1/TYPES/{{name}}{tail}"


if __name__ == "__main__":
    print(render(), end="")
