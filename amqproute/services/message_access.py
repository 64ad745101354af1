# SPDX-License-Identifier: Apache-2.0
"""Publishing through ``$management``, and what addresses mean: PUBLISH-MESSAGE and EXPLAIN.

PUBLISH-MESSAGE puts one message on a node or sends it to another organization, as a client's link
to the address ``to`` would: the requester needs `publish` there, the answer comes when the message
is on disk. The body is a text, or octets in base64.

EXPLAIN says where a message for an address goes: to a node here, or to the next hop of a domain,
with the last decision about that domain and the state of the hop.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Final

from twisted.internet.defer import Deferred

from amqproute import conditions
from amqproute.broker.broker import Broker
from amqproute.conditions import Condition
from amqproute.errors import (
    AmqpError,
    InvalidField,
    ResolveError,
    StoreUnavailable,
    Unresolved,
)
from amqproute.interfaces import ITarget
from amqproute.message import Message
from amqproute.routing.table import Router
from amqproute.services.command_schema import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    FULL,
    NOT_FOUND,
    OK,
)
from amqproute.services.management_node import ManagementService
from amqproute.services.management_protocol import ManagementReply, ManagementRequest
from amqproute.services.management_rows import Row
from amqproute.values import Local, NextHop, Origin, Principal
from amqproute.wire.amqp10 import codec, sections, spec

__all__ = ["MessagePublisher", "explain_address", "register"]

_STATUS: Final[Mapping[Condition, int]] = {
    conditions.NOT_FOUND: NOT_FOUND,
    conditions.UNAUTHORIZED_ACCESS: FORBIDDEN,
    conditions.NOT_ALLOWED: FORBIDDEN,
    conditions.INVALID_FIELD: BAD_REQUEST,
    conditions.RESOURCE_LIMIT_EXCEEDED: FULL,
}


class MessagePublisher:
    """Publishes messages.

    Args:
        broker: the broker for the commit.
        target: returns the node of an address for somebody who wants to send to it; raises
            `Unresolved` if a domain has to be asked about first.
        admit: asks about it.
    """

    def __init__(
        self,
        broker: Broker,
        target: Callable[[str, Principal], ITarget],
        admit: Callable[[NextHop], Deferred[None]],
    ) -> None:
        self._broker = broker
        self._target = target
        self._admit = admit

    async def publish(self, request: ManagementRequest) -> ManagementReply:
        """Carry out PUBLISH-MESSAGE."""
        body = request.body
        to = str(body["to"])
        try:
            message = _message(to, body)
        except ValueError as error:
            return ManagementReply.of(BAD_REQUEST, str(error), {"field": "body"})
        if not self._broker.gate.is_open:
            reasons = "; ".join(
                f"{key}: {words}" for key, words in self._broker.gate.reasons.items()
            )
            return ManagementReply.of(FULL, f"the broker takes no messages now: {reasons}")
        try:
            target = await self._found(to, request.principal)
            if target.space() < 1:
                return ManagementReply.of(FULL, f"there is no space on {to[:256]!r}")
            batch = self._broker.begin()
            target.put(message, batch, Origin(request.principal))
            await batch.commit()
        except AmqpError as error:
            status = _STATUS.get(error.condition, CONFLICT)
            return ManagementReply.of(
                status, error.description, {"condition": str(error.condition)}
            )
        except (Unresolved, ResolveError) as error:
            return ManagementReply.of(CONFLICT, f"the domain cannot be looked up now: {error}")
        except StoreUnavailable as error:
            return ManagementReply.of(FULL, f"the message is not taken: {error}")
        return ManagementReply.of(OK, "the message is accepted", {"to": to, "bytes": message.size})

    async def _found(self, to: str, principal: Principal) -> ITarget:
        try:
            return self._target(to, principal)
        except Unresolved as error:
            await self._admit(error.hop)
            return self._target(to, principal)


def _message(to: str, body: Mapping[str, object]) -> Message:
    """Return the message.

    Raises:
        ValueError: the body cannot be read.
    """
    ttl, priority = body.get("ttl-ms"), body.get("priority")
    header = spec.Header(
        durable=body.get("durable") is not False,
        priority=priority if isinstance(priority, int) else 4,
        ttl=ttl if isinstance(ttl, int) else None,
    )
    given = {
        name.replace("-", "_"): value
        for name in ("message-id", "subject", "reply-to", "correlation-id", "content-type")
        if isinstance(value := body.get(name), str)
    }
    properties = spec.Properties(to=to, **given)  # type: ignore[arg-type] # texts, as declared
    text = str(body.get("body", ""))
    more = body.get("application-properties")
    parts = [codec.encode(header), codec.encode(properties)]
    if isinstance(more, Mapping) and more:
        plain = {str(key): value for key, value in more.items()}
        for key, value in plain.items():
            if not isinstance(value, str | int | float | bool | None):
                raise ValueError(f"the application property {key[:64]!r} is no plain value")
        parts.append(sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, plain))
    if body.get("encoding") == "base64":
        try:
            octets = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("`body` is not base64") from None
        parts.append(sections.encode_section(spec.SECTION_DATA, octets))
    elif body.get("encoding") == "value":
        parts.append(sections.encode_section(spec.SECTION_AMQP_VALUE, text))
    else:
        parts.append(sections.encode_section(spec.SECTION_DATA, text.encode("utf-8", "replace")))
    return Message(b"".join(parts))


def explain_address(
    text: str,
    broker: Broker,
    router: Router,
    decision_of: Callable[[str], Row | None],
    peer_of: Callable[[str], Row | None],
) -> ManagementReply:
    """Say where a message for an address goes.

    Args:
        text: the address.
        broker: the nodes.
        router: the routes in force.
        decision_of: returns the last decision about the next hop with a key, if there is one.
        peer_of: returns the state of the next hop with a key, if it has any.
    """
    try:
        route = router.route(text)
    except InvalidField as error:
        return ManagementReply.of(BAD_REQUEST, error.description, {"field": "name"})
    except AmqpError as error:
        return ManagementReply.of(FORBIDDEN, error.description)
    if isinstance(route, Local):
        name = broker.resolve(route.node)
        kind = "queue" if name in broker.nodes else "topic" if name in broker.topics else None
        words = f"{text} is {'the node ' + name if kind else 'here, and there is no such node'}"
        here: dict[str, object] = {
            "address": text,
            "way": "local",
            "node": name,
            "kind": kind,
            "description": words,
        }
        return ManagementReply.of(OK, words, here)
    key = route.key
    decision, peer = decision_of(key), peer_of(key)
    via = "" if route.via is None else f" by the route {route.via}"
    words = f"{text} is relayed to {key}{via}"
    facts: dict[str, object] = {
        "address": text,
        "way": "relay",
        "hop": key,
        "via": None if route.via is None else str(route.via),
        "decision": None if decision is None else dict(decision),
        "peer": None if peer is None else dict(peer),
        "description": words,
    }
    return ManagementReply.of(OK, words, facts)


def register(
    service: ManagementService,
    publisher: MessagePublisher,
    explain: Callable[[str], ManagementReply],
) -> None:
    """Add the operations to the management node.

    Args:
        service: the node.
        publisher: publishes.
        explain: says where a message for an address goes.
    """
    service.offer("PUBLISH-MESSAGE", lambda asked: Deferred.fromCoroutine(publisher.publish(asked)))
    service.offer("EXPLAIN", lambda asked: explain(str(asked.properties["name"])))
