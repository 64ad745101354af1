# SPDX-License-Identifier: Apache-2.0
"""Events of the engine for 0-9 and 0-9-1, in the order in which they happened.

`amqproute.wire.amqp09.connection09.Connection09.receive_data` returns a list of these. The receiver
must not change them.

Work is reported by batch: publishes that follow each other on a channel are one
`PublishesReceived`, acks one `DeliveriesSettled`, even if traffic of the same kinds on other
channels came in between. The order within a channel is always that of the wire; the order of
channels among each other is kept around all other events.

A peer may send much ahead, so the list may contain events of a channel that the user closes while
iterating over the list: check ``channel.is_open`` first. The engine makes no new events for a
channel or a connection that was closed here.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from amqproute.wire.amqp09.channel import Channel
from amqproute.wire.amqp09.contents import Content, Publish
from amqproute.wire.amqp09.field_tables import FieldTable
from amqproute.wire.amqp09.shapes import AmqpMethod
from amqproute.wire.amqp09.violations import Violation


@dataclass(slots=True)
class MechanismChosen:
    """Server: connection.start-ok. Answer: `challenge`, `authenticated` or `refuse_authentication`.

    The engine reads nothing further before the answer.

    Attributes:
        mechanism: one of those offered.
        response: the response for the mechanism, unchanged; for AMQPLAIN see `amqplain`.
        locale: the client's choice; one that was not offered counts as the first.
        client_properties: the properties of the client.
    """

    mechanism: str
    response: bytes
    locale: str
    client_properties: FieldTable


@dataclass(slots=True)
class ChallengeAnswered:
    """Server: connection.secure-ok. Answer as for `MechanismChosen`."""

    response: bytes


@dataclass(slots=True)
class MechanismsOffered:
    """Client: connection.start. Answer with `start_ok`."""

    mechanisms: Sequence[str]
    locales: Sequence[str]
    server_properties: FieldTable


@dataclass(slots=True)
class Challenged:
    """Client: connection.secure. Answer with `secure_ok`."""

    challenge: bytes


@dataclass(slots=True)
class VirtualHostAsked:
    """Server: connection.open. Answer with `open_ok` or `close`; the engine reads nothing before.

    Attributes:
        virtual_host: its name.
        capabilities: 0-9: capabilities requested by the client.
        insist: 0-9: the client wants no redirect (09-X-16).
    """

    virtual_host: str
    capabilities: str
    insist: bool


@dataclass(slots=True)
class ConnectionOpened:
    """Client: connection.open-ok."""

    known_hosts: str


@dataclass(slots=True)
class ConnectionRedirected:
    """Client, 0-9: connection.redirect. The connection is over (09-CONN-28)."""

    host: str
    known_hosts: str


@dataclass(slots=True)
class BlockedNotice:
    """Client: the server accepts no publishes for now."""

    reason: str


@dataclass(slots=True)
class UnblockedNotice:
    """Client: the server accepts publishes again."""


@dataclass(slots=True)
class SecretReplaced:
    """Server: connection.update-secret. Answer with `update_secret_ok` or `close`."""

    secret: bytes = field(repr=False)
    reason: str


@dataclass(slots=True)
class ChannelAsked:
    """Server: channel.open. Answer with `Channel.open_ok`, or close the connection."""

    channel: Channel


@dataclass(slots=True)
class ChannelOpened:
    """Client: channel.open-ok."""

    channel: Channel


@dataclass(slots=True)
class MethodReceived:
    """A method for the user, who answers it if it has replies and no nowait.

    The engine has added a consumer tag if the client left it to the server.
    """

    channel: Channel
    method: AmqpMethod


@dataclass(slots=True)
class PublishesReceived:
    """Server: complete publishes on one channel, in order."""

    channel: Channel
    publishes: list[Publish]


@dataclass(slots=True)
class ContentsReceived:
    """Other complete contents on one channel, in order: deliveries, gets, returns, files."""

    channel: Channel
    contents: list[Content]


@dataclass(slots=True)
class ContentPartReceived:
    """A part of a large content.

    The first event comes with the content's header. None of the body is kept by the engine.

    Attributes:
        channel: its channel.
        content: the content with method and properties; ``size`` is that of the whole body.
        parts: octets of the body, in order.
        is_last: whether the content is complete.
    """

    channel: Channel
    content: Content
    parts: list[bytes]
    is_last: bool


@dataclass(slots=True)
class ContentsHeld:
    """The amount of input in memory: unfinished contents, and unread octets.

    Reported on change, if enabled in the settings.

    Attributes:
        octets: the amount.
    """

    octets: int


class AckReceived(enum.Enum):
    """The peer's answer to deliveries."""

    ACKNOWLEDGED = "ack"
    REJECTED = "reject"
    """basic.reject or nack without requeue."""
    REQUEUED = "requeue"
    """basic.reject or nack with requeue."""


@dataclass(slots=True)
class DeliveriesSettled:
    """Server: the client acknowledged or rejected deliveries of one channel.

    Attributes:
        channel: their channel.
        settlement: the answer.
        tags: their delivery tags, for `DeliveryTags.restore` after a rollback.
        contexts: the contexts passed to `Channel.deliver`.
    """

    channel: Channel
    settlement: AckReceived
    tags: list[int]
    contexts: list[object]


@dataclass(slots=True)
class PublishesSettled:
    """Client: the server confirmed or rejected publishes.

    Attributes:
        channel: their channel.
        confirmed: ack, or nack.
        numbers: the numbers of the publishes.
        contexts: the contexts passed to `Channel.publish`.
    """

    channel: Channel
    confirmed: bool
    numbers: list[int]
    contexts: list[object]


@dataclass(slots=True)
class FlowChanged:
    """The peer starts or stops our contents (channel.flow); it has been answered (09-CHAN-14)."""

    channel: Channel
    active: bool


@dataclass(slots=True)
class ChannelEnded:
    """The channel has ended. ``channel.unacknowledged`` has its unacknowledged deliveries.

    Attributes:
        channel: the channel.
        code: the reply code; 0 if the connection has ended with it.
        text: the reason as text.
        class_id: the id of the method that caused it, 0 for none.
        method_id: the same.
        violation: the rule broken by the peer, for which the engine has closed the channel.
        answer_due: whether the peer closed: call `Channel.close_ok` when everything has ended.
    """

    channel: Channel
    code: int
    text: str
    class_id: int = 0
    method_id: int = 0
    violation: Violation | None = None
    answer_due: bool = False


@dataclass(slots=True)
class ChannelCloseAnswered:
    """The peer has answered our channel.close: the number is free."""

    channel: Channel


@dataclass(slots=True)
class ConnectionEnded:
    """The last event: one side has closed, the transport is gone, or a deadline has passed.

    `ChannelEnded` for each channel came before it.

    Attributes:
        code: the reply code of the close; 0 without one.
        text: the reason as text, for the log.
        class_id: the id of the method that caused it, 0 for none.
        method_id: the same.
        violation: the rule broken by the peer.
        clean: whether it was closed with the peer's consent; False should be logged (09-CONN-35).
        answer_due: whether the peer closed: call `Connection09.close_ok` when everything has ended.
    """

    code: int
    text: str
    class_id: int = 0
    method_id: int = 0
    violation: Violation | None = None
    clean: bool = False
    answer_due: bool = False


ProtocolEvent: TypeAlias = (
    MechanismChosen
    | ChallengeAnswered
    | MechanismsOffered
    | Challenged
    | VirtualHostAsked
    | ConnectionOpened
    | ConnectionRedirected
    | BlockedNotice
    | UnblockedNotice
    | SecretReplaced
    | ChannelAsked
    | ChannelOpened
    | MethodReceived
    | PublishesReceived
    | ContentsReceived
    | ContentPartReceived
    | ContentsHeld
    | DeliveriesSettled
    | PublishesSettled
    | FlowChanged
    | ChannelEnded
    | ChannelCloseAnswered
    | ConnectionEnded
)

__all__ = [
    "AckReceived",
    "BlockedNotice",
    "ChallengeAnswered",
    "Challenged",
    "ChannelAsked",
    "ChannelCloseAnswered",
    "ChannelEnded",
    "ChannelOpened",
    "ConnectionEnded",
    "ConnectionOpened",
    "ConnectionRedirected",
    "ContentPartReceived",
    "ContentsHeld",
    "ContentsReceived",
    "DeliveriesSettled",
    "FlowChanged",
    "MechanismChosen",
    "MechanismsOffered",
    "MethodReceived",
    "ProtocolEvent",
    "PublishesReceived",
    "PublishesSettled",
    "SecretReplaced",
    "UnblockedNotice",
    "VirtualHostAsked",
]
