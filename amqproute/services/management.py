# SPDX-License-Identifier: Apache-2.0
"""``$management``: the node that answers operators' questions (topic G).

A request is a message whose application-properties say what is asked, as in the working draft of
AMQP Management: ``operation``, ``type`` or ``entityType``, ``name``. The reply goes to the node
that ``reply-to`` names, with the request's message-id as correlation-id (G-19), ``statusCode``
and ``statusDescription`` (G-20), and a map as amqp-value. A question that fails is answered, not
rejected: link and session stay (G-21). Only a request that nobody could answer is rejected: one
without ``reply-to``, with a ``reply-to`` that is no node here, or one that does not decode.

==========  ==================================================================================
operation   reply
==========  ==================================================================================
``QUERY``   ``attributeNames`` and ``results``, a list of values for each entity; restricted by
            the body's ``attributeNames`` and the properties ``offset`` and ``count``; the
            reply's property ``count`` tells the rows given, ``total`` those there are
``READ``    the attributes of the one entity with that ``name``
==========  ==================================================================================

What there is to ask about is a registry: an `EntityType` is a name and a function that gives
rows. Operations are a table as well; a new one is an entry with a function.

Replies are put within the request's own batch, so that the request counts as accepted only when
its reply is on its way; that of an operation which takes its time follows when it is done. A reply
goes to local nodes only, and of these to dynamic ones, whose names nobody can guess, and to nodes
that the asker may publish to: the service lends nobody its own rights.

Limits: `MAX_ROWS` rows a reply; a client asks again with a larger ``offset``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from amqproute import conditions
from amqproute.address import from_compatibility, is_reserved
from amqproute.auth.policy import Verb
from amqproute.broker.batch import Batch
from amqproute.broker.broker import Broker
from amqproute.broker.queue import Queue
from amqproute.broker.topic import Topic
from amqproute.errors import AmqpError, DecodeError, InvalidField, NotFound, PreconditionFailed
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Int

__all__ = [
    "MANAGEMENT",
    "MAX_ROWS",
    "SYNONYMS",
    "EntityType",
    "ManagementService",
    "Reply",
    "Request",
    "encode_reply",
    "read_request",
    "reply_target",
]

MANAGEMENT: Final = "$management"
SYNONYMS: Final = ("amqp$admin",)
"""Further names under which the assembly enters the same service (G-01)."""

SERVICE_TYPE: Final = "org.amqp.management"
"""The ``type`` of the management node itself, which a QUERY carries in the working draft."""

MAX_ROWS: Final = 1000
"""Rows of one reply, whatever ``count`` asks for."""

OK: Final = 200
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
CONFLICT: Final = 409
INTERNAL: Final = 500
NOT_IMPLEMENTED: Final = 501

Row = Mapping[str, Any]
Rows = Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class EntityType:
    """One kind of thing that can be asked about.

    Attributes:
        name: as it stands in ``entityType``.
        rows: gives the entities now: attribute to value, all encodable; each has ``name``.
    """

    name: str
    rows: Rows


@dataclass(frozen=True, slots=True)
class Request:
    """A request, taken apart.

    Attributes:
        operation: in upper case.
        properties: the application-properties.
        body: the map of the amqp-value body; empty for any other body.
        principal: who asks.
    """

    operation: str
    properties: Mapping[str, Any]
    body: Mapping[str, Any]
    principal: Principal

    @property
    def entity_type(self) -> str | None:
        """What is asked about; None for everything."""
        for key in ("entityType", "type"):
            value = self.properties.get(key)
            if isinstance(value, str) and value != SERVICE_TYPE:
                return str(value)
        return None


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered.

    Attributes:
        status: like those of HTTP (G-20).
        description: the cause in words.
        body: goes out as a map.
        properties: further application-properties.
    """

    status: int
    description: str
    body: Mapping[str, Any]
    properties: Mapping[str, Any]

    @classmethod
    def of(cls, status: int, description: str, body: Row | None = None, **properties: Any) -> Reply:
        """Make a reply."""
        return cls(status, description, body or {}, properties)


Operation = Callable[[Request], "Reply | Deferred[Reply]"]
Allows = Callable[[Principal, Verb, str], bool]


@implementer(ITarget)
class ManagementService:
    """Answers requests. That the asker may `manage` was checked when the link was made.

    Args:
        broker: the nodes asked about, and those that replies go to.
        allows: the access rules, for replies to named nodes.
        now_ms: the wall clock, ms since the epoch.
        destinations: the state of each next hop: maps with ``queue``, the name of its relay
            queue, and whatever else is to be shown with it; an attribute that the queue has as
            well is shown with ``peer-`` before its name.
        connections: the open connections: maps with ``name`` and whatever else.

    Attributes:
        operations: name to function; may be added to.
    """

    log = Logger()

    name = MANAGEMENT
    acts_at_once = True
    """What a request asks for is done by `put`: no transaction could roll it back (X-04)."""

    def __init__(
        self,
        broker: Broker,
        allows: Allows,
        now_ms: Callable[[], int],
        *,
        destinations: Rows = tuple,
        connections: Rows = tuple,
    ) -> None:
        self._broker = broker
        self._allows = allows
        self._now_ms = now_ms
        self._types: dict[str, EntityType] = {}
        self.operations: dict[str, Operation] = {"QUERY": self._query, "READ": self._read}
        self._destinations = destinations
        self.register(EntityType("queue", self._queues))
        self.register(EntityType("relay-queue", self._relay_queues))
        self.register(EntityType("binding", self._bindings))
        self.register(EntityType("connection", connections))

    def __repr__(self) -> str:
        return f"<ManagementService {' '.join(self._types)}>"

    def register(self, entity_type: EntityType) -> None:
        """Make a kind of thing known; one of the same name is replaced."""
        self._types[entity_type.name] = entity_type

    # -- the node ------------------------------------------------------------------------------

    def space(self) -> int:
        """Return how many more requests can be taken: nothing is kept, so always many."""
        return 1 << 31

    def when_space(self, tell: Callable[[], None]) -> None:
        """Do nothing: there is always space."""

    def put(self, message: Message, batch: Batch, origin: Origin) -> None:
        """Answer one request within the batch. See `ITarget.put`."""
        try:
            asked = message.properties
            request = read_request(message, origin.principal)
        except DecodeError as error:
            # The class itself would end the session, see `frontends.inbound`; G-21 asks for less.
            raise AmqpError(error.description, condition=conditions.DECODE_ERROR) from None
        target = reply_target(self._broker, self._allows, asked.reply_to, origin.principal)
        reply = self.answer(request)
        correlation = asked.message_id if asked.message_id is not None else asked.correlation_id
        if isinstance(reply, Deferred):
            reply.addErrback(self._broken, request.operation)
            reply.addCallback(self._follow, target, asked.reply_to, correlation)
            reply.addErrback(self._not_told, request.operation)
        else:
            target.put(
                encode_reply(reply, asked.reply_to, correlation),
                batch,
                Origin(ANONYMOUS_PRINCIPAL),
            )

    def _follow(self, reply: Reply, target: Any, reply_to: Any, correlation: Any) -> Deferred[None]:
        batch = self._broker.begin()
        target.put(encode_reply(reply, reply_to, correlation), batch, Origin(ANONYMOUS_PRINCIPAL))
        return batch.commit()

    def _broken(self, failure: Failure, operation: str) -> Reply:
        self.log.failure("the operation {operation} failed", failure, operation=operation)
        return Reply.of(INTERNAL, "an internal error, see the broker's log")

    def _not_told(self, failure: Failure, operation: str) -> None:
        self.log.warn(
            "the reply to {operation} could not be kept: {error}",
            operation=operation,
            error=failure.getErrorMessage(),
        )

    def answer(self, request: Request) -> Reply | Deferred[Reply]:
        """Carry one request out."""
        if not request.operation:
            return Reply.of(BAD_REQUEST, "the application property `operation` is missing")
        operation = self.operations.get(request.operation)
        if operation is None:
            known = ", ".join(self.operations)
            return Reply.of(
                NOT_IMPLEMENTED, f"no operation {request.operation[:64]!r} here; there are {known}"
            )
        return operation(request)

    # -- operations ----------------------------------------------------------------------------

    def _query(self, request: Request) -> Reply:
        types = self._asked_types(request)
        if isinstance(types, Reply):
            return types
        try:
            offset = _whole(request.properties, "offset", 0)
            count = min(_whole(request.properties, "count", MAX_ROWS), MAX_ROWS)
            wanted = _attribute_names(request.body)
        except ValueError as error:
            return Reply.of(BAD_REQUEST, str(error))
        rows = [row for each in types for row in each.rows()]
        page = rows[offset : offset + count]
        names = list(wanted or dict.fromkeys(name for row in page for name in row))
        body = {
            "attributeNames": names,
            "results": [[row.get(name) for name in names] for row in page],
        }
        return Reply.of(OK, "OK", body, count=len(page), total=len(rows))

    def _read(self, request: Request) -> Reply:
        types = self._asked_types(request)
        if isinstance(types, Reply):
            return types
        name = request.properties.get("name", request.properties.get("identity"))
        if not isinstance(name, str) or not name:
            return Reply.of(BAD_REQUEST, "READ needs the application property `name`")
        for each in types:
            for row in each.rows():
                if row["name"] == name:
                    return Reply.of(OK, "OK", row)
        kind = request.entity_type or "entity"
        return Reply.of(NOT_FOUND, f"there is no {kind} named {name[:256]!r}")

    def _asked_types(self, request: Request) -> Sequence[EntityType] | Reply:
        name = request.entity_type
        if name is None:
            return tuple(self._types.values())
        found = self._types.get(name)
        if found is None:
            known = ", ".join(self._types)
            return Reply.of(BAD_REQUEST, f"no entity type {name[:64]!r} here; there are {known}")
        return (found,)

    # -- what there is -------------------------------------------------------------------------

    def _queues(self) -> Iterable[Row]:
        broker = self._broker
        for name, queue in sorted(broker.nodes.items()):
            yield self._queue_row(queue, "queue", "dynamic" if name in broker.dynamic else "node")
        for _, topic in sorted(broker.topics.items()):
            yield self._topic_row(topic)
            for _, subscription in sorted(topic.durable.items()):
                yield self._queue_row(subscription.queue, "queue", "subscription")
        for _, queue in sorted(broker.internal.items()):
            yield self._queue_row(queue, "queue", "relay")

    def _topic_row(self, topic: Topic) -> dict[str, Any]:
        tally = topic.tally
        return {
            "name": topic.name,
            "type": "queue",
            "kind": "topic",
            "depth": topic.waiting,
            "available": topic.waiting,
            "acquired": 0,
            "deferred": 0,
            "consumers": topic.consumers,
            "resident": topic.waiting + topic.retained,
            "bytes": topic.waiting_bytes,
            "oldest-age-ms": None,
            "enqueued": tally.published,
            "dequeued": tally.delivered,
            "expired": tally.expired,
            "dropped": tally.dropped,
            "unroutable": tally.unroutable,
            "subscriptions": len(topic.subscriptions),
            "durable-subscriptions": len(topic.durable),
        }

    def _bindings(self) -> Iterable[Row]:
        for binding in self._broker.bindings.values():
            declaration = binding.declaration
            yield {
                "name": binding.name,
                "type": "binding",
                "source": declaration.source,
                "target": declaration.target,
                "filter": declaration.selector,
                "mode": binding.mode,
                "moved": binding.moved,
                "refused": binding.refused,
                "reason": binding.words,
            }

    def _relay_queues(self) -> Iterable[Row]:
        states = {row.get("queue"): row for row in self._destinations()}
        for name, queue in sorted(self._broker.internal.items()):
            row = self._queue_row(queue, "relay-queue", "relay")
            for key, value in states.get(name, {}).items():
                if key not in ("queue", "name"):
                    row[f"peer-{key}" if key in row else key] = value
            yield row

    def _queue_row(self, queue: Queue, entity_type: str, kind: str) -> dict[str, Any]:
        oldest = queue.oldest_arrival_ms
        tally = queue.tally
        return {
            "name": queue.name,
            "type": entity_type,
            "kind": kind,
            "depth": queue.depth,
            "available": queue.available,
            "acquired": queue.acquired,
            "deferred": queue.deferred,
            "consumers": queue.consumers,
            "resident": queue.resident,
            "bytes": queue.resident_bytes + queue.paged_bytes,
            "oldest-age-ms": None if oldest is None else max(0, self._now_ms() - oldest),
            "enqueued": tally.enqueued,
            "dequeued": tally.dequeued,
            "released": tally.released,
            "rejected": tally.rejected,
            "expired": tally.expired,
            "dead-lettered": tally.dead_lettered,
            "loaded": tally.loaded,
        }


# -- requests and replies ----------------------------------------------------------------------


def reply_target(broker: Broker, allows: Allows, reply_to: str | None, principal: Principal) -> Any:
    """Return the node that a reply goes to.

    Raises:
        PreconditionFailed: there is none, or the asker has no right to it.
    """
    if not reply_to:
        raise PreconditionFailed("the request has no reply-to: the answer has nowhere to go")
    reply_to = _plain(reply_to)
    if is_reserved(reply_to):
        raise PreconditionFailed(f"the reply-to {reply_to!r} is a service and takes no replies")
    try:
        target = broker.target(reply_to)
    except NotFound:
        raise PreconditionFailed(f"the reply-to {reply_to!r} is no node of this broker") from None
    if reply_to not in broker.dynamic and not allows(principal, Verb.PUBLISH, reply_to):
        raise PreconditionFailed(
            f"the reply-to {reply_to!r} is a node that {principal} may not publish to"
        )
    return target


def _plain(reply_to: str) -> str:
    """Read a reply-to of a client made for RabbitMQ 4 (A-22)."""
    try:
        return from_compatibility(reply_to) or reply_to
    except InvalidField as error:
        raise PreconditionFailed(f"reply-to: {error.description}") from None


def read_request(message: Message, principal: Principal) -> Request:
    """Take a request apart.

    Raises:
        DecodeError: it is malformed.
    """
    properties = message.application_properties
    offsets = message.offsets
    body: Any = None
    if offsets.body_code == spec.SECTION_AMQP_VALUE:
        body = sections.decode_section(message.encoded, offsets.body_start, offsets.body_end)
    operation = properties.get("operation")
    return Request(
        operation.upper() if isinstance(operation, str) else "",
        properties,
        body if isinstance(body, dict) else {},
        principal,
    )


def _whole(properties: Mapping[str, Any], key: str, default: int) -> int:
    value = properties.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"the application property `{key}` is not a number from 0 up")
    return int(value)


def _attribute_names(body: Mapping[str, Any]) -> list[str]:
    names = body.get("attributeNames")
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("`attributeNames` is not a list of names")
    return names


def encode_reply(reply: Reply, reply_to: str | None, correlation: Any) -> Message:
    """Return a reply as it is put on its node."""
    properties: dict[str, Any] = {
        "statusCode": Int(reply.status),
        "statusDescription": reply.description,
    }
    for key, value in reply.properties.items():
        properties[key] = Int(value) if type(value) is int else value
    return Message(
        b"".join(
            (
                codec.encode(spec.Properties(to=reply_to, correlation_id=correlation)),
                sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, properties),
                sections.encode_section(spec.SECTION_AMQP_VALUE, dict(reply.body)),
            )
        )
    )
