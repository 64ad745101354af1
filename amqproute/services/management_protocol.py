# SPDX-License-Identifier: Apache-2.0
"""Requests to services and their replies, from message to values and back (G-18 to G-20)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from twisted.internet.defer import Deferred

from amqproute.address import from_compatibility, host_of, is_reserved, parse
from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.commit_batch import Batch
from amqproute.errors import DecodeError, InvalidField, NotFound, PreconditionFailed
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.services.command_schema import (
    BAD_REQUEST,
    MOST_COMMANDS,
    CommandRefused,
    ManagementCommand,
    parse_text,
    read_map,
)
from amqproute.services.management_rows import Row
from amqproute.services.node_changes import CommandResult
from amqproute.values import ANSWERING, Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Int

__all__ = [
    "Allows",
    "ManagementReply",
    "ManagementRequest",
    "ReplyAddress",
    "accept",
    "attribute_names",
    "result_row",
    "whole",
]

SERVICE_TYPE: Final = "org.amqp.management"
"""The ``type`` of the management node itself, which a QUERY carries in the working draft."""

MOST_VALUES: Final = 16_384
"""Values in the body of a request; each takes some microseconds to decode."""

Allows = Callable[[Principal, Verb, str], bool]
Commands = Sequence[tuple[int, ManagementCommand | CommandRefused]]


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ManagementRequest:
    """A request, taken apart.

    Attributes:
        operation: the operation in upper case.
        properties: the application-properties.
        body: the map of the amqp-value body; empty for any other body.
        principal: the requester.
        batch: the commands, each with the number of its line or position, or the reason why it is
            invalid; None for a single request.
    """

    operation: str
    properties: Mapping[str, object]
    body: Mapping[str, object]
    principal: Principal
    batch: Commands | CommandRefused | None = None

    @property
    def entity_type(self) -> str | None:
        """The requested type; None for all."""
        for key in ("entityType", "type"):
            value = self.properties.get(key)
            if isinstance(value, str) and value != SERVICE_TYPE:
                return str(value)
        return None


@dataclass(frozen=True, slots=True)
class ManagementReply:
    """A reply.

    Attributes:
        status: like those of HTTP (G-20).
        description: the cause as text.
        body: sent as a map.
        properties: further application-properties.
    """

    status: int
    description: str
    body: Mapping[str, object]
    properties: Mapping[str, object]

    @classmethod
    def of(
        cls, status: int, description: str, body: Row | None = None, **properties: object
    ) -> ManagementReply:
        """Make a reply."""
        return cls(status, description, body or {}, properties)


def answering(broker: Broker, reply: Deferred[_T]) -> None:
    """Note that a request is being worked on until its reply is on its node: a stop waits for it.

    Args:
        broker: which stops.
        reply: fires when the reply has been committed.
    """
    broker.replies_due += 1

    def done(result: _T) -> _T:
        broker.replies_due -= 1
        return result

    reply.addBoth(done)


@dataclass(frozen=True, slots=True)
class ReplyAddress:
    """The address of the reply to a request, and its correlation-id.

    Attributes:
        target: the node.
        address: the address as in the request.
        correlation: the correlation-id of the reply.
    """

    target: ITarget
    address: str
    correlation: spec.MessageId | None

    def put(self, reply: ManagementReply, batch: Batch) -> None:
        """Put a reply on its node, as part of a batch.

        Raises:
            AmqpError: the node does not take it.
        """
        encoded = _encode_reply(reply, self.address, self.correlation)
        self.target.put(encoded, batch, ANSWERING)


def accept(
    message: Message, origin: Origin, broker: Broker, allows: Allows
) -> tuple[ManagementRequest, ReplyAddress]:
    """Read a request and find out where its reply goes, before anything is done.

    Raises:
        PreconditionFailed: it has no reply-to, or the asker has no right to it.
        DecodeError: it is malformed.
    """
    asked = message.properties
    request = _read_request(message, origin.principal)
    reply_to = asked.reply_to
    if not reply_to:
        raise PreconditionFailed("the request has no reply-to: the answer has nowhere to go")
    correlation = asked.message_id if asked.message_id is not None else asked.correlation_id
    target = _reply_target(broker, allows, reply_to, origin.principal)
    return request, ReplyAddress(target, reply_to, correlation)


def _reply_target(broker: Broker, allows: Allows, reply_to: str, principal: Principal) -> ITarget:
    reply_to = broker.name_of(_plain(reply_to))
    if "@" in reply_to and broker.answers_to is not None:
        found = _with_domain(broker.answers_to, allows, reply_to, principal)
        if not isinstance(found, str):
            return found
        reply_to = found
    if is_reserved(reply_to):
        raise PreconditionFailed(f"the reply-to {reply_to!r} is a service and takes no replies")
    if host_of(reply_to) != principal.host:
        raise PreconditionFailed(f"the reply-to {reply_to!r} is in another virtual host")
    try:
        target = broker.target(reply_to)
    except NotFound:
        raise PreconditionFailed(f"the reply-to {reply_to!r} is no node of this broker") from None
    if reply_to not in broker.dynamic and not allows(principal, Verb.PUBLISH, reply_to):
        raise PreconditionFailed(
            f"the reply-to {reply_to!r} is a node that {principal} may not publish to"
        )
    return target


def _with_domain(
    find: Callable[[str], str | ITarget], allows: Allows, reply_to: str, principal: Principal
) -> str | ITarget:
    """Resolve a reply-to with a domain: to a node here, by its name, or to the relay.

    A peer may receive replies at the domains it proves, anybody where he may publish.
    """
    try:
        found = find(reply_to)
        address = parse(reply_to)
    except InvalidField as error:
        raise PreconditionFailed(f"reply-to: {error.description}") from None
    if (
        isinstance(found, str)
        or address.domain in principal.names
        or allows(principal, Verb.PUBLISH, str(address))
    ):
        return found
    raise PreconditionFailed(
        f"the reply-to {reply_to!r} is an address that {principal} may not publish to"
    )


def _plain(reply_to: str) -> str:
    """Read a reply-to of a client made for RabbitMQ 4 (A-22)."""
    try:
        return from_compatibility(reply_to) or reply_to
    except InvalidField as error:
        raise PreconditionFailed(f"reply-to: {error.description}") from None


def _read_request(message: Message, principal: Principal) -> ManagementRequest:
    properties = message.application_properties
    body = _read_body(message)
    operation = properties.get("operation")
    return ManagementRequest(
        operation.upper() if isinstance(operation, str) else "",
        properties,
        body if isinstance(body, dict) else {},
        principal,
        None if operation else _read_batch(body),
    )


def _read_body(message: Message) -> Any:
    """Decode the body: its value, or the text that its data are (G-18)."""
    offsets = message.offsets
    if offsets.body_code == spec.SECTION_AMQP_VALUE:
        start, end = offsets.body_start, offsets.body_end
        return sections.decode_section(message.encoded, start, end, MOST_VALUES)
    content_type = str(message.properties.content_type or "")
    if offsets.body_code != spec.SECTION_DATA or not content_type.startswith("text/plain"):
        return None
    octets = []
    at = offsets.body_start
    while at < offsets.body_end:
        after = sections.skip(message.encoded, at, offsets.body_end)
        octets.append(bytes(sections.decode_section(message.encoded, at, after)))
        at = after
    try:
        return b"".join(octets).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"the body is not UTF-8: {error.reason}") from None


def _read_batch(body: object) -> Commands | CommandRefused | None:
    """Read a batch; None if the body is none."""
    try:
        if isinstance(body, str):
            return parse_text(body)
        if isinstance(body, list):
            return _read_maps(body)
    except CommandRefused as refused:
        return refused
    return None


def _read_maps(body: list[Any]) -> Commands:
    if not 0 < len(body) <= MOST_COMMANDS:
        raise CommandRefused(BAD_REQUEST, f"a batch has 1 to {MOST_COMMANDS} commands")
    commands: list[tuple[int, ManagementCommand | CommandRefused]] = []
    for place, given in enumerate(body, 1):
        try:
            if not isinstance(given, dict):
                raise CommandRefused(BAD_REQUEST, "a command is a map")
            commands.append((place, read_map(given)))
        except CommandRefused as refused:
            commands.append((place, refused))
    return commands


def whole(properties: Mapping[str, object], key: str, default: int) -> int:
    """Read a number from 0 up.

    Raises:
        ValueError: it is not one; the text says so.
    """
    value = properties.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"the application property `{key}` is not a number from 0 up")
    return int(value)


def attribute_names(body: Mapping[str, object]) -> list[str]:
    """Read the attributes requested by a QUERY; none for all.

    Raises:
        ValueError: the list is invalid; the text says so.
    """
    names = body.get("attributeNames")
    if names is None:
        return []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("`attributeNames` is not a list of names")
    return names


def result_row(index: int, result: CommandResult) -> dict[str, object]:
    """Return one result of a batch in the form of the reply (G-20)."""
    return {
        "index": Int(index),
        "status": Int(result.status),
        "description": result.words,
        "attributes": dict(result.attributes),
    }


def _encode_reply(
    reply: ManagementReply, reply_to: str, correlation: spec.MessageId | None
) -> Message:
    properties: dict[str, object] = {
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
