# SPDX-License-Identifier: Apache-2.0
"""Contents: a method with properties and a body (09: part 3.4)."""

from __future__ import annotations

from typing import NamedTuple

from amqproute.wire.amqp09.methods import BasicProperties, BasicPublish
from amqproute.wire.amqp09.shapes import AmqpMethod, ContentProperties


class Content:
    """A received content.

    Method and properties may be shared with other contents: they must not be changed.

    Attributes:
        method: its method.
        properties: decoded.
        property_octets: flags and values as received, to be sent again unchanged.
        parts: octets of the body, in order. For a content passed on in parts they are in the
            events.
        size: octets of the whole body.
        number: of a publish on a channel in confirm mode: its number in confirms, counting from 1;
            else 0.
    """

    __slots__ = ("method", "number", "parts", "properties", "property_octets", "size")

    def __init__(
        self,
        method: AmqpMethod,
        properties: ContentProperties,
        property_octets: bytes,
        size: int,
        parts: list[bytes],
        number: int = 0,
    ) -> None:
        self.method = method
        self.properties = properties
        self.property_octets = property_octets
        self.size = size
        self.parts = parts
        self.number = number

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.method.traits.name} {self.size} octets>"

    @property
    def body(self) -> bytes:
        """The parts joined."""
        parts = self.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Publish(Content):
    """A basic.publish with its content."""

    __slots__ = ()

    method: BasicPublish
    properties: BasicProperties

    @property
    def original(self) -> Content:
        """The content as the client sent it, which is what comes back to it."""
        return self


class ContentHead(NamedTuple):
    """The facts of a delivery besides its body.

    Attributes:
        exchange: the exchange of the publish.
        routing_key: its routing key.
        property_octets: flags and values.
    """

    exchange: str
    routing_key: str
    property_octets: bytes


OutgoingContent = tuple[ContentHead, bytes, bool, object]
"""A content to be delivered in a burst (`amqproute.wire.amqp09.channel.Channel.deliver_burst`): its
head, one object for all contents with the same head; its body; whether it was delivered before; and
what is returned when the delivery is acknowledged."""


__all__ = ["Content", "ContentHead", "OutgoingContent", "Publish"]
