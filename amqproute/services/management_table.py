# SPDX-License-Identifier: Apache-2.0
"""The one table of ``$management``: entity types, operations, and the right that each needs.

The service accepts only operations and entity types of the daemon that are declared here
(`ManagementService.offer` and `ManagementService.show`). Its dispatcher, its answers to
``GET-TYPES`` and ``GET-OPERATIONS``, what counts as a change for the audit journal, and the page
``docs/management.md`` come from these rows. `render` writes that page
(``python -m amqproute.services.management_table > docs/management.md``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "ENTITIES",
    "NODE_KINDS",
    "OPERATIONS",
    "EntityDeclaration",
    "OperationDeclaration",
    "RequiredRight",
    "operations_of",
    "render",
]


class RequiredRight(Enum):
    """The right needed beside the right to attach to ``$management``; text for the page."""

    NONE = "none"
    SERVICE = "`manage` on `$management`"
    NODES = "`manage` on each node concerned"
    RELAY_QUEUE = "`manage` on the relay queue"
    RELAY_QUEUES = "`manage` on each relay queue concerned"
    LISTED_QUEUES = "`manage` on each relay queue concerned; for a queue `browse` suffices"
    DEAD_LETTERS = "`manage` on the queue and on each target"


@dataclass(frozen=True, slots=True)
class OperationDeclaration:
    """One operation.

    Attributes:
        name: the value of ``operation``.
        does: description for the page, in the third person.
        right: the further right; the dispatcher checks the one on the service, the functions check
            the others, since only they know the nodes concerned.
        kinds: the entity types; empty if it has none.
        changes: whether it changes something: then it is journaled with its requester.
    """

    name: str
    does: str
    right: RequiredRight
    kinds: tuple[str, ...] = ()
    changes: bool = True


@dataclass(frozen=True, slots=True)
class EntityDeclaration:
    """One entity type.

    Attributes:
        name: the value of ``entityType``.
        shows: description for the page, a noun phrase.
        is_repeated: whether its entities are also entities of another type: then a query without a
            type omits them.
    """

    name: str
    shows: str
    is_repeated: bool = False


NODE_KINDS: Final = ("queue", "topic")
_LINKED: Final = (*NODE_KINDS, "link")
_NAMED: Final = (*_LINKED, "alias")
_POLICIES: Final = ("policy", "operator-policy")
_MADE: Final = (*_NAMED, "route", "exchange", "exchange-binding", *_POLICIES)

ENTITIES: Final = {
    each.name: each
    for each in (
        EntityDeclaration("queue", "queues and topics, including relay queues"),
        EntityDeclaration("topic", "topics", is_repeated=True),
        EntityDeclaration("relay-queue", "relay queues, with the state of their next hop"),
        EntityDeclaration("binding", "bindings between nodes", is_repeated=True),
        EntityDeclaration("link", "links of clients and peers, and bindings"),
        EntityDeclaration("exchange", "exchanges, including predeclared ones"),
        EntityDeclaration("exchange-binding", "bindings from exchanges", is_repeated=True),
        EntityDeclaration("alias", "alternative names of nodes"),
        EntityDeclaration("route", "routes to domains, from the file and made at runtime"),
        EntityDeclaration("policy", "policies for exchanges and queues"),
        EntityDeclaration(
            "operator-policy", "policies that limit arguments and other policies of queues"
        ),
        EntityDeclaration("shape", "ages of waiting messages, by queue", is_repeated=True),
        EntityDeclaration("connection", "connections of clients and peers"),
        EntityDeclaration("hold", "holds of outgoing messages"),
        EntityDeclaration("peer", "next hops and their state"),
        EntityDeclaration("clock", "the clock by which messages age"),
        EntityDeclaration("certificate", "the certificate of this broker"),
        EntityDeclaration("contract", "the contract of each user and peer, and its use"),
        EntityDeclaration("probe", "recently refused connections, and probes of peers"),
        EntityDeclaration("journal", "the audit journal"),
        EntityDeclaration("listener", "listeners and their free places"),
        EntityDeclaration("decision", "recent decisions about domains"),
        EntityDeclaration("watermark", "limits that stop publishers, and how near they are"),
        EntityDeclaration("branch", "branches of distributed transactions, if enabled"),
    )
}
"""The entity types by name, in the order of ``GET-TYPES``."""

_R = RequiredRight

OPERATIONS: Final = {
    each.name: each
    for each in (
        OperationDeclaration("QUERY", "lists entities", _R.NONE, changes=False),
        OperationDeclaration("READ", "shows one entity", _R.NONE, changes=False),
        OperationDeclaration("GET-TYPES", "lists the entity types", _R.NONE, changes=False),
        OperationDeclaration(
            "GET-OPERATIONS", "lists the operations on each entity type", _R.NONE, changes=False
        ),
        OperationDeclaration(
            "GET-ATTRIBUTES", "lists the attributes of entities", _R.NONE, changes=False
        ),
        OperationDeclaration("CREATE", "creates an entity", _R.NODES, _MADE),
        OperationDeclaration("ASSERT", "compares an entity with options", _R.NONE, _MADE),
        OperationDeclaration(
            "UPDATE", "changes options of an entity", _R.NODES, (*_LINKED, *_POLICIES)
        ),
        OperationDeclaration("RENAME", "renames an entity", _R.NODES, _NAMED),
        OperationDeclaration("DELETE", "deletes an entity", _R.NODES, _MADE),
        OperationDeclaration(
            "PURGE", "deletes the messages on a queue or relay queue", _R.NODES, NODE_KINDS
        ),
        OperationDeclaration("MOVE", "moves messages to another node", _R.NODES, NODE_KINDS),
        OperationDeclaration("COPY", "copies messages to another node", _R.NODES, NODE_KINDS),
        OperationDeclaration("HOLD", "holds a relay queue: nothing is sent", _R.RELAY_QUEUE),
        OperationDeclaration("RELEASE", "ends the holds of a relay queue", _R.RELAY_QUEUE),
        OperationDeclaration("RETRY-NOW", "ends the back-off of a relay queue", _R.RELAY_QUEUE),
        OperationDeclaration("EXPIRE", "expires the messages on a relay queue", _R.RELAY_QUEUE),
        OperationDeclaration(
            "FORGET", "drops the cached DNS answers for a domain", _R.RELAY_QUEUE, changes=False
        ),
        OperationDeclaration("LIST-MESSAGES", "lists messages", _R.LISTED_QUEUES, changes=False),
        OperationDeclaration("HOLD-MESSAGES", "holds messages", _R.RELAY_QUEUES),
        OperationDeclaration(
            "RETRY-MESSAGES", "ends the back-off of outgoing messages", _R.RELAY_QUEUES
        ),
        OperationDeclaration("EXPIRE-MESSAGES", "expires outgoing messages", _R.RELAY_QUEUES),
        OperationDeclaration("DELETE-MESSAGES", "deletes outgoing messages", _R.RELAY_QUEUES),
        OperationDeclaration(
            "REROUTE-MESSAGES",
            "moves messages to the next hops of the current routes",
            _R.RELAY_QUEUES,
        ),
        OperationDeclaration(
            "WHY", "explains why a message has not been sent yet", _R.RELAY_QUEUES, changes=False
        ),
        OperationDeclaration("RELEASE-HOLD", "ends a hold", _R.RELAY_QUEUES),
        OperationDeclaration(
            "REQUEUE", "sends dead letters back to their original nodes", _R.DEAD_LETTERS
        ),
        OperationDeclaration(
            "CLOSE-CONNECTION", "closes a connection", _R.SERVICE, ("connection",)
        ),
        OperationDeclaration(
            "ACCEPT-TIME", "accepts the time after a jump of the wall clock", _R.SERVICE
        ),
        OperationDeclaration("DRAIN", "stops accepting new messages", _R.SERVICE),
        OperationDeclaration("DRAIN-END", "accepts messages again", _R.SERVICE),
        OperationDeclaration("DRAIN-STATUS", "shows the progress of a drain", _R.SERVICE),
        OperationDeclaration("STATUS", "reports the health of the broker", _R.NONE, changes=False),
        OperationDeclaration(
            "HEALTH", "runs one health check by name, or all of them", _R.NONE, changes=False
        ),
        OperationDeclaration("COMMIT-BRANCH", "commits a prepared branch", _R.NONE),
        OperationDeclaration("ROLL-BACK-BRANCH", "rolls a prepared branch back", _R.NONE),
        OperationDeclaration("FORGET-BRANCH", "forgets a resolved branch", _R.NONE),
    )
}
"""The operations by name."""


def operations_of(kind: str) -> list[str]:
    """Return the operations on an entity type, in the order of ``GET-OPERATIONS``."""
    named = (each.name for each in OPERATIONS.values() if kind in each.kinds)
    return ["QUERY", "READ", *named]


_HEAD: Final = """\
# Operations of `$management`

Generated from `amqproute/services/management_table.py` by
`python -m amqproute.services.management_table`.

A request is a message to the node `$management` (or `amqp$admin`) with the application properties
`operation`, `type` or `entityType`, and `name`, and options in its body; or a batch of commands.
The docstring of `amqproute/services/management_node.py` has the formats, statuses and limits. The
right to attach to the node suffices for a request; some operations need a further right. Operations
that change something are recorded in the audit journal, with the requester.
"""


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
    yield "| operation | does | further right | in the audit journal |"
    yield "|---|---|---|---|"
    for each in OPERATIONS.values():
        noted = "yes" if each.changes else "no"
        yield f"| `{each.name}` | {each.does} | {each.right.value} | {noted} |"
    yield ""


if __name__ == "__main__":
    print(render(), end="")
