# SPDX-License-Identifier: Apache-2.0
"""What ``$management`` offers, in one table: entity types, operations, and the right each takes.

The service accepts no operation and no entity type of the daemon's that is not declared here
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
    """What the asker needs beside the right to attach to ``$management``; words for people."""

    NONE = "none"
    SERVICE = "`manage` on `$management`"
    NODES = "`manage` on each node that it is about"
    RELAY_QUEUE = "`manage` on the relay queue"
    RELAY_QUEUES = "`manage` on each relay queue that is concerned"
    LISTED_QUEUES = "`manage` on each relay queue that is concerned; of a queue `browse` suffices"
    DEAD_LETTERS = "`manage` on the queue and on each target"


@dataclass(frozen=True, slots=True)
class OperationDeclaration:
    """One operation.

    Attributes:
        name: as it stands in ``operation``.
        does: for people, in the third person.
        right: what the asker needs; the dispatcher requires that on the service, functions the
            others, since only they know which nodes an operation is about.
        kinds: the entity types that it is for; empty where it names no type.
        changes: it changes something: the audit journal has it, with who asked.
    """

    name: str
    does: str
    right: RequiredRight
    kinds: tuple[str, ...] = ()
    changes: bool = True


@dataclass(frozen=True, slots=True)
class EntityDeclaration:
    """One kind of thing that can be asked about.

    Attributes:
        name: as it stands in ``entityType``.
        shows: for people, a noun phrase.
        is_repeated: its entities stand among those of another type as well, so that a question
            without a type leaves them out.
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
        EntityDeclaration("queue", "queues and topics, relay queues among them"),
        EntityDeclaration("topic", "topics", is_repeated=True),
        EntityDeclaration("relay-queue", "relay queues, with the state of their next hop"),
        EntityDeclaration("binding", "bindings between nodes", is_repeated=True),
        EntityDeclaration("link", "links of clients and peers, and bindings"),
        EntityDeclaration("exchange", "exchanges, those that are predeclared among them"),
        EntityDeclaration("exchange-binding", "bindings from exchanges", is_repeated=True),
        EntityDeclaration("alias", "further names of nodes"),
        EntityDeclaration("route", "routes to domains, of the file and made at runtime"),
        EntityDeclaration("policy", "policies over exchanges and queues"),
        EntityDeclaration("operator-policy", "policies that bound what others say of queues"),
        EntityDeclaration("shape", "how old what waits is, by queue", is_repeated=True),
        EntityDeclaration("connection", "connections of clients and peers"),
        EntityDeclaration("hold", "holds of messages on their way out"),
        EntityDeclaration("peer", "next hops, with what is known of them"),
        EntityDeclaration("clock", "the clock by which messages age"),
        EntityDeclaration("certificate", "the certificate of this broker"),
        EntityDeclaration("contract", "what each user and peer may ask, and has used of it"),
        EntityDeclaration("probe", "connections that were refused lately, and probes of peers"),
        EntityDeclaration("journal", "the audit journal"),
        EntityDeclaration("listener", "listeners and the places on them"),
        EntityDeclaration("decision", "the last decisions about domains"),
        EntityDeclaration("watermark", "what holds publishers back, and how near it is"),
        EntityDeclaration("branch", "branches of distributed transactions, where they are offered"),
    )
}
"""The entity types by name, in the order of ``GET-TYPES``."""

_R = RequiredRight

OPERATIONS: Final = {
    each.name: each
    for each in (
        OperationDeclaration("QUERY", "lists entities", _R.NONE, changes=False),
        OperationDeclaration("READ", "shows one entity", _R.NONE, changes=False),
        OperationDeclaration("GET-TYPES", "names the entity types", _R.NONE, changes=False),
        OperationDeclaration(
            "GET-OPERATIONS", "names the operations on each entity type", _R.NONE, changes=False
        ),
        OperationDeclaration(
            "GET-ATTRIBUTES", "names the attributes that entities have", _R.NONE, changes=False
        ),
        OperationDeclaration("CREATE", "makes one", _R.NODES, _MADE),
        OperationDeclaration("ASSERT", "compares one with options", _R.NONE, _MADE),
        OperationDeclaration("UPDATE", "changes options of one", _R.NODES, (*_LINKED, *_POLICIES)),
        OperationDeclaration("RENAME", "gives one another name", _R.NODES, _NAMED),
        OperationDeclaration("DELETE", "deletes one", _R.NODES, _MADE),
        OperationDeclaration(
            "PURGE", "deletes what waits on a queue, or on a relay queue", _R.NODES, NODE_KINDS
        ),
        OperationDeclaration("MOVE", "moves messages to another node", _R.NODES, NODE_KINDS),
        OperationDeclaration("COPY", "copies messages to another node", _R.NODES, NODE_KINDS),
        OperationDeclaration("HOLD", "sends nothing from a relay queue", _R.RELAY_QUEUE),
        OperationDeclaration("RELEASE", "ends the holds of a relay queue", _R.RELAY_QUEUE),
        OperationDeclaration("RETRY-NOW", "ends the back-off of a relay queue", _R.RELAY_QUEUE),
        OperationDeclaration(
            "EXPIRE", "ends the life of what waits on a relay queue", _R.RELAY_QUEUE
        ),
        OperationDeclaration(
            "FORGET", "forgets what the DNS has said of a domain", _R.RELAY_QUEUE, changes=False
        ),
        OperationDeclaration("LIST-MESSAGES", "lists messages", _R.LISTED_QUEUES, changes=False),
        OperationDeclaration("HOLD-MESSAGES", "makes a hold of messages", _R.RELAY_QUEUES),
        OperationDeclaration(
            "RETRY-MESSAGES", "ends the waiting of messages on their way out", _R.RELAY_QUEUES
        ),
        OperationDeclaration(
            "EXPIRE-MESSAGES", "ends the lives of messages on their way out", _R.RELAY_QUEUES
        ),
        OperationDeclaration(
            "DELETE-MESSAGES", "deletes messages on their way out", _R.RELAY_QUEUES
        ),
        OperationDeclaration(
            "REROUTE-MESSAGES", "moves messages to where the routes of now lead", _R.RELAY_QUEUES
        ),
        OperationDeclaration(
            "WHY", "says why a message has not gone yet", _R.RELAY_QUEUES, changes=False
        ),
        OperationDeclaration("RELEASE-HOLD", "ends a hold", _R.RELAY_QUEUES),
        OperationDeclaration("REQUEUE", "sends dead letters where they belong", _R.DEAD_LETTERS),
        OperationDeclaration("ACCEPT-TIME", "follows a wall clock that has jumped", _R.SERVICE),
        OperationDeclaration("DRAIN", "takes no new messages", _R.SERVICE),
        OperationDeclaration("DRAIN-END", "takes messages again", _R.SERVICE),
        OperationDeclaration("DRAIN-STATUS", "says how far a drain has come", _R.SERVICE),
        OperationDeclaration("STATUS", "judges whether all is well", _R.NONE, changes=False),
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
# What `$management` offers

Made from `amqproute/services/management_table.py` by
`python -m amqproute.services.management_table`.

A request is a message to the node `$management` (or `amqp$admin`) with the application properties
`operation`, `type` or `entityType`, and `name`, and options in its body; or a batch of commands.
The forms, the statuses and the bounds stand in the docstring of
`amqproute/services/management_node.py`. Who may attach to the node may ask; some operations take
a further right. Operations that change something stand in the audit journal, with who asked.
"""


def render() -> str:
    """Write the page that lists entity types and operations."""
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
