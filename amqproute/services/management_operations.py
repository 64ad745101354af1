# SPDX-License-Identifier: Apache-2.0
"""The operations of management: parameters, rights, answers, and their places in the HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from amqproute.services.value_declaration import ValueDeclaration, ValueType, attributes_of
from amqproute.values import DeadLetterReason

__all__ = ["IF_VERSION", "NODE_KINDS", "OPERATIONS", "OperationDeclaration", "RequiredRight"]

_T = ValueType


class RequiredRight(Enum):
    """The right needed beside the right to attach to ``$management``; text for the page."""

    NONE = "none"
    SERVICE = "`manage` on `$management`"
    NODES = "`manage` on each node concerned"
    RELAY_QUEUE = "`manage` on the relay queue"
    RELAY_QUEUES = "`manage` on each relay queue concerned"
    LISTED_QUEUES = "`manage` on each relay queue concerned; for a queue `browse` suffices"
    BROWSED_QUEUE = "`browse` or `manage` on the queue"
    PUBLISHED = "`publish` on the address"
    OWN_TOKENS = "none for tokens of one's own; for others `manage` on `/users/PRINCIPAL`"
    CONFIGURATION = "`manage` on `/configuration`"
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
        subject: what the application property ``name`` means; empty if it takes none.
        needs_subject: whether it has to be given.
        parameters: that the body takes. None: they are those of the entity type.
        answers: attributes of the answer; there may be others. None: those of the entity type.
        refusals: statuses of refusals beside 400 and 403.
        method: the method of HTTP.
        path: in the HTTP API, below ``/api/v1``; ``{name}`` is the subject. Empty: that of the
            entity type.
        subject_path: its place with a subject, if `path` is that without one.
        is_monitoring: whether it may be read without a log-in from the networks of
            ``management.metrics-networks``, and answers over HTTP with the status 503 if its
            ``state`` is neither ok nor warning.
    """

    name: str
    does: str
    right: RequiredRight
    kinds: tuple[str, ...] = ()
    changes: bool = True
    subject: str = ""
    needs_subject: bool = True
    parameters: Sequence[ValueDeclaration] | None = None
    answers: Sequence[ValueDeclaration] | None = None
    refusals: Sequence[int] = ()
    method: str = "POST"
    path: str = ""
    subject_path: str = ""
    is_monitoring: bool = False


NODE_KINDS: Final = ("queue", "topic")
_LINKED: Final = (*NODE_KINDS, "link")
_NAMED: Final = (*_LINKED, "alias")
_POLICIES: Final = ("policy", "operator-policy")
_MADE: Final = (*_NAMED, "route", "exchange", "exchange-binding", *_POLICIES)
_R = RequiredRight

MOST_IDS: Final = 1000
"""Ids of messages in one request."""
LONGEST_SELECTOR: Final = 65536
IF_VERSION: Final = "if-version"
"""The parameter of operations on what has a version; If-Match over HTTP."""
_DRY_RUN: Final = ValueDeclaration("dry-run", _T.BOOLEAN, "only count, and show five of them")
_ONLY_COUNT: Final = ValueDeclaration(
    "dry-run", _T.BOOLEAN, "only print the number of messages to delete"
)
_CURSOR: Final = ValueDeclaration(
    "cursor", _T.TEXT, "from the answer to an earlier request, which this one continues",
    longest=4096,
)  # fmt: skip
_IF_VERSION: Final = ValueDeclaration(
    IF_VERSION, _T.TEXT, "the `version` of an earlier answer; refused if it has changed", longest=64
)
_REASON: Final = ValueDeclaration("reason", _T.TEXT, "shown to everybody who asks why", longest=256)
_LOGGED_REASON: Final = ValueDeclaration("reason", _T.TEXT, "for the log", longest=256)
_TOLD_REASON: Final = ValueDeclaration(
    "reason", _T.TEXT, "for their senders, in the report", longest=256
)
_LIMIT: Final = ValueDeclaration(
    "limit", _T.NUMBER, "most messages to process", is_nullable=True, least=1
)
_SELECTION: Final = (
    ValueDeclaration("ids", _T.NUMBERS, "of messages", longest=MOST_IDS),
    ValueDeclaration(
        "to", _T.TEXT, "those for a domain, or on the relay queue of this key", longest=1024
    ),
    ValueDeclaration(
        "where",
        _T.TEXT,
        "those that a selector fits, as in \"amqp.subject = 'invoice'\"",
        longest=LONGEST_SELECTOR,
    ),
    ValueDeclaration("all", _T.BOOLEAN, "all messages to all domains"),
)
_MANY: Final = attributes_of(
    "messages number, bytes number, samples maps, queues texts, refused number, "
    "refused-because text, waiting number, held number, freed number, missing numbers, "
    "dry-run boolean, cursor text"
)
_TAKEN: Final = (
    ValueDeclaration("target", _T.TEXT, "a node here", True, longest=1024),
    ValueDeclaration(
        "filter",
        _T.TEXT,
        "those that a selector fits, as in \"color = 'red'\"",
        is_nullable=True,
        longest=LONGEST_SELECTOR,
    ),
    _LIMIT,
    ValueDeclaration(
        "across-hosts", _T.BOOLEAN, "the target may be in another virtual host, //HOST/NAME"
    ),
    ValueDeclaration("dry-run", _T.BOOLEAN, "only count them"),
    _CURSOR,
)
_WAS_TAKEN: Final = attributes_of(
    "name text, target text, messages number, refused number, refused-because text, "
    "dry-run boolean, cursor text"
)
_HOP_ROW: Final = attributes_of("queue text")
_DRAIN: Final = attributes_of(
    "name text, draining boolean, done boolean, seconds number, moving number, staying number, "
    "writing number, stuck map, description text"
)
_NOTHING: Final[tuple[ValueDeclaration, ...]] = ()

OPERATIONS: Final = {
    each.name: each
    for each in (
        OperationDeclaration(
            "QUERY", "lists entities", _R.NONE, changes=False, method="GET"
        ),
        OperationDeclaration(
            "READ", "shows one entity", _R.NONE, changes=False, subject="the entity",
            refusals=(404,), method="GET",
        ),
        OperationDeclaration(
            "GET-TYPES", "lists the entity types", _R.NONE, changes=False, parameters=_NOTHING,
            answers=_NOTHING, method="GET", path="types",
        ),
        OperationDeclaration(
            "GET-OPERATIONS", "lists the operations on each entity type", _R.NONE, changes=False,
            parameters=_NOTHING, answers=_NOTHING, method="GET", path="operations",
        ),
        OperationDeclaration(
            "GET-ATTRIBUTES", "lists the attributes of entities", _R.NONE, changes=False,
            parameters=_NOTHING, answers=_NOTHING, method="GET", path="attributes",
        ),
        OperationDeclaration(
            "CREATE", "creates an entity", _R.NODES, _MADE, subject="the entity",
            refusals=(404, 409, 507), method="PUT",
        ),
        OperationDeclaration(
            "ASSERT", "compares an entity with options", _R.NONE, _MADE, subject="the entity",
            refusals=(404, 409),
        ),
        OperationDeclaration(
            "UPDATE", "changes options of an entity", _R.NODES, (*_LINKED, *_POLICIES),
            subject="the entity", refusals=(404, 409, 507), method="PATCH",
        ),
        OperationDeclaration(
            "RENAME", "renames an entity", _R.NODES, _NAMED, subject="the entity",
            parameters=(
                ValueDeclaration("new-name", _T.TEXT, "the new name", True, longest=1024),
            ),
            refusals=(404, 409),
        ),
        OperationDeclaration(
            "DELETE", "deletes an entity", _R.NODES, _MADE, subject="the entity",
            refusals=(404, 409), method="DELETE",
        ),
        OperationDeclaration(
            "PURGE", "deletes the messages on a queue or relay queue", _R.NODES, NODE_KINDS,
            subject="the queue", parameters=(_ONLY_COUNT,),
            answers=attributes_of("messages number"),
            refusals=(404, 409),
        ),
        OperationDeclaration(
            "MOVE", "moves messages to another node", _R.NODES, NODE_KINDS, subject="the queue",
            parameters=_TAKEN, answers=_WAS_TAKEN,
            refusals=(404, 409),
        ),
        OperationDeclaration(
            "COPY", "copies messages to another node", _R.NODES, NODE_KINDS, subject="the queue",
            parameters=_TAKEN, answers=_WAS_TAKEN,
            refusals=(404, 409),
        ),
        OperationDeclaration(
            "HOLD", "holds a relay queue: nothing is sent", _R.RELAY_QUEUE,
            subject="the relay queue, or its next hop", parameters=(_REASON,),
            answers=_HOP_ROW, refusals=(404, 409), path="relay-queues/{name}/hold",
        ),
        OperationDeclaration(
            "RELEASE", "ends the holds of a relay queue", _R.RELAY_QUEUE,
            subject="the relay queue, or its next hop", parameters=_NOTHING,
            answers=_HOP_ROW, refusals=(404,), path="relay-queues/{name}/release",
        ),
        OperationDeclaration(
            "RETRY-NOW", "ends the back-off of a relay queue", _R.RELAY_QUEUE,
            subject="the relay queue, or its next hop", parameters=_NOTHING,
            answers=_HOP_ROW, refusals=(404,), path="relay-queues/{name}/retry-now",
        ),
        OperationDeclaration(
            "EXPIRE", "expires the messages on a relay queue", _R.RELAY_QUEUE,
            subject="the relay queue, or its next hop", parameters=(_REASON,),
            answers=attributes_of("messages number"), refusals=(404,),
            path="relay-queues/{name}/expire",
        ),
        OperationDeclaration(
            "FORGET", "drops the cached DNS answers for a domain", _R.RELAY_QUEUE, changes=False,
            subject="the domain, or an address there", parameters=_NOTHING,
            answers=attributes_of("hop text"), path="dns/{name}/forget",
        ),
        OperationDeclaration(
            "TEST-PEER", "tests the connection to a peer, step by step", _R.RELAY_QUEUE,
            subject="the domain, or an address there",
            parameters=(
                ValueDeclaration(
                    "size", _T.NUMBER, "octets of the rehearsed message", least=0, most=1 << 40
                ),
            ),
            answers=attributes_of(
                "domain text, address text, probe text, code text, steps maps"
            ),
            refusals=(409,), path="peers/{name}/test",
        ),
        OperationDeclaration(
            "LIST-MESSAGES", "lists messages", _R.LISTED_QUEUES, changes=False,
            parameters=(
                *_SELECTION,
                ValueDeclaration("count", _T.NUMBER, "no more than these", least=1, most=500),
                ValueDeclaration("with-body", _T.BOOLEAN, "with their bodies, on a queue"),
                _CURSOR,
            ),
            answers=attributes_of("messages maps, cursor text"), refusals=(404,),
            subject="a queue; without one relay queues", needs_subject=False, method="GET",
            path="messages",
        ),
        OperationDeclaration(
            "HOLD-MESSAGES", "holds messages", _R.RELAY_QUEUES,
            parameters=(
                *_SELECTION,
                _REASON,
                ValueDeclaration("until-ms", _T.NUMBER, "its end; ms since the epoch", least=0),
                _DRY_RUN,
                _CURSOR,
            ),
            answers=_NOTHING, refusals=(404, 409), path="messages/hold",
        ),
        OperationDeclaration(
            "RETRY-MESSAGES", "ends the back-off of outgoing messages", _R.RELAY_QUEUES,
            parameters=(*_SELECTION, _DRY_RUN, _CURSOR), answers=_MANY, refusals=(404,),
            path="messages/retry",
        ),
        OperationDeclaration(
            "EXPIRE-MESSAGES", "expires outgoing messages", _R.RELAY_QUEUES,
            parameters=(*_SELECTION, _TOLD_REASON, _DRY_RUN, _CURSOR), answers=_MANY,
            refusals=(404, 409), path="messages/expire",
        ),
        OperationDeclaration(
            "DELETE-MESSAGES", "deletes outgoing messages", _R.RELAY_QUEUES,
            parameters=(*_SELECTION, _LOGGED_REASON, _DRY_RUN, _CURSOR), answers=_MANY,
            refusals=(404, 409), path="messages/delete",
        ),
        OperationDeclaration(
            "REROUTE-MESSAGES",
            "moves messages to the next hops of the current routes",
            _R.RELAY_QUEUES,
            parameters=(*_SELECTION, _LOGGED_REASON, _DRY_RUN, _CURSOR), answers=_MANY,
            refusals=(404, 409), path="messages/reroute",
        ),
        OperationDeclaration(
            "WHY", "explains why a message has not been sent yet", _R.RELAY_QUEUES, changes=False,
            subject="the id of the message", parameters=_NOTHING,
            answers=attributes_of(
                "id number, queue text, to text?, cause text, description text, next texts"
            ),
            refusals=(404, 507), method="GET", path="messages/{name}/why",
        ),
        OperationDeclaration(
            "RELEASE-HOLD", "ends a hold", _R.RELAY_QUEUES, subject="the hold",
            parameters=_NOTHING, answers=_NOTHING, refusals=(404,), path="holds/{name}/release",
        ),
        OperationDeclaration(
            "REQUEUE", "sends dead letters back to their original nodes", _R.DEAD_LETTERS,
            subject="the queue with the dead letters",
            parameters=(
                ValueDeclaration("ids", _T.NUMBERS, "of messages", longest=MOST_IDS),
                ValueDeclaration("source", _T.TEXT, "those that left this queue", longest=1024),
                ValueDeclaration(
                    "reason", _T.TEXT, "those that failed like this",
                    choices=tuple(each.value for each in DeadLetterReason),
                ),
                ValueDeclaration(
                    "condition", _T.TEXT, "those with this error, as in amqp:not-found",
                    longest=256,
                ),
                ValueDeclaration(
                    "where", _T.TEXT, "those that a selector fits, as in \"color = 'red'\"",
                    longest=LONGEST_SELECTOR,
                ),
                ValueDeclaration("older-than-ms", _T.NUMBER, "dead for longer", is_nullable=True),
                ValueDeclaration("newer-than-ms", _T.NUMBER, "dead for less", is_nullable=True),
                _LIMIT,
                _DRY_RUN,
                _CURSOR,
            ),
            answers=attributes_of(
                "name text, messages number, bytes number, targets map, samples maps, "
                "refused number, refused-because text, missing numbers, dry-run boolean, "
                "cursor text"
            ),
            refusals=(404,), path="queues/{name}/requeue",
        ),
        OperationDeclaration(
            "CLOSE-CONNECTION", "closes a connection", _R.SERVICE, ("connection",),
            subject="the connection",
            parameters=(
                ValueDeclaration(
                    "reason", _T.TEXT, "a reason for the client", shortest=1, longest=200
                ),
            ),
            answers=attributes_of("name text, connections number"), refusals=(404,),
            path="connections/{name}/close",
        ),
        OperationDeclaration(
            "ACCEPT-TIME", "accepts the time after a jump of the wall clock", _R.SERVICE,
            parameters=_NOTHING, answers=_NOTHING, refusals=(409, 500), path="clock/accept-time",
        ),
        OperationDeclaration(
            "DRAIN", "stops accepting new messages", _R.SERVICE, parameters=_NOTHING,
            answers=_DRAIN, path="drain/begin",
        ),
        OperationDeclaration(
            "DRAIN-END", "accepts messages again", _R.SERVICE, parameters=_NOTHING,
            answers=_DRAIN, path="drain/end",
        ),
        OperationDeclaration(
            "DRAIN-STATUS", "shows the progress of a drain", _R.SERVICE, changes=False,
            parameters=_NOTHING, answers=_DRAIN, method="GET", path="drain",
        ),
        OperationDeclaration(
            "STATUS", "reports the health of the broker", _R.NONE, changes=False,
            parameters=_NOTHING, answers=_NOTHING, method="GET", path="status",
        ),
        OperationDeclaration(
            "HEALTH", "runs one health check by name, or all of them", _R.NONE, changes=False,
            subject="the check; all without one", needs_subject=False,
            parameters=(
                ValueDeclaration(
                    "within-seconds", _T.FRACTION, "how long before an end it is told", least=0,
                    most=316224000,
                ),
            ),
            answers=attributes_of("state text, checks maps"), refusals=(404,), method="GET",
            path="health", subject_path="health/{name}", is_monitoring=True,
        ),
        OperationDeclaration(
            "COMMIT-BRANCH", "commits a prepared branch", _R.NONE, subject="the branch",
            parameters=_NOTHING, answers=_NOTHING, refusals=(404, 409),
            path="branches/{name}/commit",
        ),
        OperationDeclaration(
            "ROLL-BACK-BRANCH", "rolls a prepared branch back", _R.NONE, subject="the branch",
            parameters=_NOTHING, answers=_NOTHING, refusals=(404, 409),
            path="branches/{name}/roll-back",
        ),
        OperationDeclaration(
            "FORGET-BRANCH", "forgets a resolved branch", _R.NONE, subject="the branch",
            parameters=_NOTHING, answers=_NOTHING, refusals=(404, 409),
            path="branches/{name}/forget",
        ),
        OperationDeclaration(
            "PUBLISH-MESSAGE", "publishes a message", _R.PUBLISHED,
            parameters=(
                ValueDeclaration("to", _T.TEXT, "the address", True, shortest=1, longest=2048),
                ValueDeclaration("body", _T.TEXT, "of the message", longest=1048576),
                ValueDeclaration(
                    "encoding", _T.TEXT, "text and base64 are data, value is an amqp-value",
                    choices=("text", "base64", "value"),
                ),
                ValueDeclaration("content-type", _T.TEXT, "of the body", longest=256),
                ValueDeclaration("subject", _T.TEXT, "of the message", longest=1024),
                ValueDeclaration("message-id", _T.TEXT, "of the message", longest=1024),
                ValueDeclaration("correlation-id", _T.TEXT, "of the message", longest=1024),
                ValueDeclaration("reply-to", _T.TEXT, "where answers go", longest=2048),
                ValueDeclaration("durable", _T.BOOLEAN, "true by default"),
                ValueDeclaration("priority", _T.NUMBER, "4 by default", least=0, most=255),
                ValueDeclaration("ttl-ms", _T.NUMBER, "its lifetime", least=1, most=4294967295),
                ValueDeclaration(
                    "application-properties", _T.MAP, "texts, numbers, true and false", longest=100
                ),
            ),
            answers=attributes_of("to text, bytes number"), refusals=(404, 409, 507),
            path="messages/publish",
        ),
        OperationDeclaration(
            "EXPLAIN", "explains where a message for an address goes", _R.SERVICE, changes=False,
            subject="the address", parameters=_NOTHING,
            answers=attributes_of("address text, way text, description text"), method="GET",
            path="explain/{name}",
        ),
        OperationDeclaration(
            "TAIL-JOURNAL", "shows the last records of the audit journal", _R.SERVICE,
            changes=False,
            parameters=(
                ValueDeclaration("count", _T.NUMBER, "records looked at", least=1, most=1000),
                ValueDeclaration("kind", _T.TEXT, "only records of this kind", longest=64),
                ValueDeclaration("node", _T.TEXT, "only records about this node", longest=1024),
                ValueDeclaration("entry", _T.NUMBER, "only records about this message", least=0),
            ),
            answers=attributes_of("records maps"), method="GET", path="journal",
        ),
        OperationDeclaration(
            "CREATE-TOKEN", "makes an access token of the HTTP API", _R.OWN_TOKENS,
            parameters=(
                ValueDeclaration(
                    "for", _T.TEXT, "its user, as in user:ann; the requester by default",
                    longest=320,
                ),
                ValueDeclaration(
                    "scope", _T.TEXTS, "all, read, or names of operations, as in MOVE:orders*; "
                    "read by default", longest=50,
                ),
                ValueDeclaration(
                    "expires-seconds", _T.NUMBER, "its lifetime; 30 days by default", least=60,
                    most=315360000,
                ),
                ValueDeclaration("purpose", _T.TEXT, "what it is for", longest=64),
            ),
            answers=attributes_of(
                "name text, token text, principal text, scope texts, expires-ms number"
            ),
            refusals=(507,), path="tokens",
        ),
        OperationDeclaration(
            "REVOKE-TOKEN", "revokes an access token", _R.OWN_TOKENS, subject="the token",
            parameters=_NOTHING, answers=attributes_of("name text"), refusals=(404, 507),
            path="tokens/{name}/revoke",
        ),
        OperationDeclaration(
            "CONFIG-READ", "shows the settings in force, and where their values come from",
            _R.SERVICE, changes=False,
            parameters=(
                ValueDeclaration(
                    "changed", _T.BOOLEAN, "only `values` that differ from their defaults"
                ),
            ),
            answers=attributes_of("version text, files texts, settings map, values maps"),
            method="GET", path="config",
        ),
        OperationDeclaration(
            "CONFIG-CHECK", "checks the configuration file", _R.SERVICE, changes=False,
            parameters=_NOTHING,
            answers=attributes_of("valid boolean, problems texts, warnings texts"), method="GET",
            path="config/check",
        ),
        OperationDeclaration(
            "CONFIG-PLAN", "shows what a reload would change", _R.SERVICE, changes=False,
            parameters=(_IF_VERSION,),
            answers=attributes_of("changed texts, waiting texts, files texts, version text"),
            refusals=(409, 412), method="GET", path="config/plan",
        ),
        OperationDeclaration(
            "CONFIG-RELOAD", "reloads the configuration file", _R.CONFIGURATION,
            parameters=(_IF_VERSION,),
            answers=attributes_of("changed texts, waiting texts, failed texts"),
            refusals=(409, 412), path="config/reload",
        ),
    )
}  # fmt: skip
"""The operations by name."""
