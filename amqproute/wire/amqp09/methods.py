# SPDX-License-Identifier: Apache-2.0
"""The methods and properties of AMQP 0-9, 0-9-1 and their extensions.

Made by ``python -m tests.wire.amqp09.generate`` from ``tests/wire/amqp09/facts.yaml``: change those
and make it again. A test holds this module to what they give.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from amqproute.wire.amqp09.field_tables import EMPTY_TABLE, FieldTable
from amqproute.wire.amqp09.shapes import (
    NO_BODY,
    AmqpMethod,
    ContentProperties,
    FieldKind,
    InlineBody,
    MethodTraits,
)


@dataclass(slots=True, kw_only=True)
class ConnectionStart(AmqpMethod):
    """connection.start, to the client; answered by start-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.start",
        10,
        10,
        layout=(
            ("version_major", FieldKind.OCTET),
            ("version_minor", FieldKind.OCTET),
            ("server_properties", FieldKind.TABLE),
            ("mechanisms", FieldKind.LONGSTR),
            ("locales", FieldKind.LONGSTR),
        ),
        replies=frozenset((0xA000B,)),
        to_client=True,
    )
    version_major: int = 0
    version_minor: int = 0
    server_properties: FieldTable = EMPTY_TABLE
    mechanisms: bytes = b""
    locales: bytes = b""


@dataclass(slots=True, kw_only=True)
class ConnectionStartOk(AmqpMethod):
    """connection.start-ok, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.start-ok",
        10,
        11,
        layout=(
            ("client_properties", FieldKind.TABLE),
            ("mechanism", FieldKind.SHORTSTR),
            ("response", FieldKind.LONGSTR),
            ("locale", FieldKind.SHORTSTR),
        ),
        to_server=True,
    )
    client_properties: FieldTable = EMPTY_TABLE
    mechanism: str = ""
    response: bytes = b""
    locale: str = ""


@dataclass(slots=True, kw_only=True)
class ConnectionSecure(AmqpMethod):
    """connection.secure, to the client; answered by secure-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.secure",
        10,
        20,
        layout=(("challenge", FieldKind.LONGSTR),),
        replies=frozenset((0xA0015,)),
        to_client=True,
    )
    challenge: bytes = b""


@dataclass(slots=True, kw_only=True)
class ConnectionSecureOk(AmqpMethod):
    """connection.secure-ok, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.secure-ok", 10, 21, layout=(("response", FieldKind.LONGSTR),), to_server=True
    )
    response: bytes = b""


@dataclass(slots=True, kw_only=True)
class ConnectionTune(AmqpMethod):
    """connection.tune, to the client; answered by tune-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.tune",
        10,
        30,
        layout=(
            ("channel_max", FieldKind.SHORT),
            ("frame_max", FieldKind.LONG),
            ("heartbeat", FieldKind.SHORT),
        ),
        replies=frozenset((0xA001F,)),
        to_client=True,
    )
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


@dataclass(slots=True, kw_only=True)
class ConnectionTuneOk(AmqpMethod):
    """connection.tune-ok, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.tune-ok",
        10,
        31,
        layout=(
            ("channel_max", FieldKind.SHORT),
            ("frame_max", FieldKind.LONG),
            ("heartbeat", FieldKind.SHORT),
        ),
        to_server=True,
    )
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


@dataclass(slots=True, kw_only=True)
class ConnectionOpen(AmqpMethod):
    """connection.open, to the server; answered by open-ok or redirect."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.open",
        10,
        40,
        layout=(
            ("virtual_host", FieldKind.SHORTSTR),
            ("capabilities", FieldKind.SHORTSTR),
            ("insist", FieldKind.BIT),
        ),
        replies=frozenset(
            (
                0xA0029,
                0xA002A,
            )
        ),
        to_server=True,
        reserved=(
            "capabilities",
            "insist",
        ),
    )
    virtual_host: str = ""
    capabilities: str = ""
    insist: bool = False


@dataclass(slots=True, kw_only=True)
class ConnectionOpenOk(AmqpMethod):
    """connection.open-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.open-ok",
        10,
        41,
        layout=(("known_hosts", FieldKind.SHORTSTR),),
        to_client=True,
        reserved=("known_hosts",),
    )
    known_hosts: str = ""


@dataclass(slots=True, kw_only=True)
class ConnectionRedirect(AmqpMethod):
    """connection.redirect, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.redirect",
        10,
        42,
        layout=(
            ("host", FieldKind.SHORTSTR),
            ("known_hosts", FieldKind.SHORTSTR),
        ),
        to_client=True,
        only_0_9=True,
    )
    host: str = ""
    known_hosts: str = ""


@dataclass(slots=True, kw_only=True)
class ConnectionClose(AmqpMethod):
    """connection.close, both ways; answered by close-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.close",
        10,
        50,
        layout=(
            ("reply_code", FieldKind.SHORT),
            ("reply_text", FieldKind.SHORTSTR),
            ("class_id", FieldKind.SHORT),
            ("method_id", FieldKind.SHORT),
        ),
        replies=frozenset((0xA0033,)),
        to_server=True,
        to_client=True,
    )
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True, kw_only=True)
class ConnectionCloseOk(AmqpMethod):
    """connection.close-ok, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.close-ok", 10, 51, to_server=True, to_client=True
    )


@dataclass(slots=True, kw_only=True)
class ConnectionBlocked(AmqpMethod):
    """connection.blocked, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.blocked", 10, 60, layout=(("reason", FieldKind.SHORTSTR),), to_client=True
    )
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class ConnectionUnblocked(AmqpMethod):
    """connection.unblocked, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("connection.unblocked", 10, 61, to_client=True)


@dataclass(slots=True, kw_only=True)
class ConnectionUpdateSecret(AmqpMethod):
    """connection.update-secret, to the server; answered by update-secret-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.update-secret",
        10,
        70,
        layout=(
            ("new_secret", FieldKind.LONGSTR),
            ("reason", FieldKind.SHORTSTR),
        ),
        replies=frozenset((0xA0047,)),
        to_server=True,
    )
    new_secret: bytes = b""
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class ConnectionUpdateSecretOk(AmqpMethod):
    """connection.update-secret-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "connection.update-secret-ok", 10, 71, to_client=True
    )


@dataclass(slots=True, kw_only=True)
class ChannelOpen(AmqpMethod):
    """channel.open, to the server; answered by open-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.open",
        20,
        10,
        layout=(("out_of_band", FieldKind.SHORTSTR),),
        replies=frozenset((0x14000B,)),
        to_server=True,
        reserved=("out_of_band",),
    )
    out_of_band: str = ""


@dataclass(slots=True, kw_only=True)
class ChannelOpenOk(AmqpMethod):
    """channel.open-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.open-ok",
        20,
        11,
        layout=(("channel_id", FieldKind.LONGSTR),),
        to_client=True,
        reserved=("channel_id",),
    )
    channel_id: bytes = b""


@dataclass(slots=True, kw_only=True)
class ChannelFlow(AmqpMethod):
    """channel.flow, both ways; answered by flow-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.flow",
        20,
        20,
        layout=(("active", FieldKind.BIT),),
        replies=frozenset((0x140015,)),
        to_server=True,
        to_client=True,
    )
    active: bool = False


@dataclass(slots=True, kw_only=True)
class ChannelFlowOk(AmqpMethod):
    """channel.flow-ok, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.flow-ok",
        20,
        21,
        layout=(("active", FieldKind.BIT),),
        to_server=True,
        to_client=True,
    )
    active: bool = False


@dataclass(slots=True, kw_only=True)
class ChannelClose(AmqpMethod):
    """channel.close, both ways; answered by close-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.close",
        20,
        40,
        layout=(
            ("reply_code", FieldKind.SHORT),
            ("reply_text", FieldKind.SHORTSTR),
            ("class_id", FieldKind.SHORT),
            ("method_id", FieldKind.SHORT),
        ),
        replies=frozenset((0x140029,)),
        to_server=True,
        to_client=True,
    )
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True, kw_only=True)
class ChannelCloseOk(AmqpMethod):
    """channel.close-ok, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.close-ok", 20, 41, to_server=True, to_client=True
    )


@dataclass(slots=True, kw_only=True)
class ChannelResume(AmqpMethod):
    """channel.resume, to the server; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.resume",
        20,
        50,
        layout=(("channel_id", FieldKind.LONGSTR),),
        replies=frozenset((0x140050,)),
        to_server=True,
        only_0_9=True,
    )
    channel_id: bytes = b""


@dataclass(slots=True, kw_only=True)
class ChannelPing(AmqpMethod):
    """channel.ping, both ways; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.ping",
        20,
        60,
        replies=frozenset((0x140050,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )


@dataclass(slots=True, kw_only=True)
class ChannelPong(AmqpMethod):
    """channel.pong, both ways; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.pong",
        20,
        70,
        replies=frozenset((0x140050,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )


@dataclass(slots=True, kw_only=True)
class ChannelOk(AmqpMethod):
    """channel.ok, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "channel.ok", 20, 80, to_server=True, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class AccessRequest(AmqpMethod):
    """access.request, to the server; answered by request-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "access.request",
        30,
        10,
        layout=(
            ("realm", FieldKind.SHORTSTR),
            ("exclusive", FieldKind.BIT),
            ("passive", FieldKind.BIT),
            ("active", FieldKind.BIT),
            ("write", FieldKind.BIT),
            ("read", FieldKind.BIT),
        ),
        replies=frozenset((0x1E000B,)),
        to_server=True,
    )
    realm: str = ""
    exclusive: bool = False
    passive: bool = False
    active: bool = False
    write: bool = False
    read: bool = False


@dataclass(slots=True, kw_only=True)
class AccessRequestOk(AmqpMethod):
    """access.request-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "access.request-ok", 30, 11, layout=(("ticket", FieldKind.SHORT),), to_client=True
    )
    ticket: int = 0


@dataclass(slots=True, kw_only=True)
class ExchangeDeclare(AmqpMethod):
    """exchange.declare, to the server; answered by declare-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "exchange.declare",
        40,
        10,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("exchange", FieldKind.SHORTSTR),
            ("type", FieldKind.SHORTSTR),
            ("passive", FieldKind.BIT),
            ("durable", FieldKind.BIT),
            ("auto_delete", FieldKind.BIT),
            ("internal", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
            ("arguments", FieldKind.TABLE),
        ),
        replies=frozenset((0x28000B,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    exchange: str = ""
    type: str = ""
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    nowait: bool = False
    arguments: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class ExchangeDeclareOk(AmqpMethod):
    """exchange.declare-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("exchange.declare-ok", 40, 11, to_client=True)


@dataclass(slots=True, kw_only=True)
class ExchangeDelete(AmqpMethod):
    """exchange.delete, to the server; answered by delete-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "exchange.delete",
        40,
        20,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("exchange", FieldKind.SHORTSTR),
            ("if_unused", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
        ),
        replies=frozenset((0x280015,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    exchange: str = ""
    if_unused: bool = False
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class ExchangeDeleteOk(AmqpMethod):
    """exchange.delete-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("exchange.delete-ok", 40, 21, to_client=True)


@dataclass(slots=True, kw_only=True)
class ExchangeBound(AmqpMethod):
    """exchange.bound, to the server; answered by bound-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "exchange.bound",
        40,
        22,
        layout=(
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("queue", FieldKind.SHORTSTR),
        ),
        replies=frozenset((0x280017,)),
        to_server=True,
    )
    exchange: str = ""
    routing_key: str = ""
    queue: str = ""


@dataclass(slots=True, kw_only=True)
class ExchangeBoundOk(AmqpMethod):
    """exchange.bound-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "exchange.bound-ok",
        40,
        23,
        layout=(
            ("reply_code", FieldKind.SHORT),
            ("reply_text", FieldKind.SHORTSTR),
        ),
        to_client=True,
    )
    reply_code: int = 0
    reply_text: str = ""


@dataclass(slots=True, kw_only=True)
class ExchangeBind(AmqpMethod):
    """exchange.bind, to the server; answered by bind-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "exchange.bind",
        40,
        30,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("destination", FieldKind.SHORTSTR),
            ("source", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
            ("arguments", FieldKind.TABLE),
        ),
        replies=frozenset((0x28001F,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class ExchangeBindOk(AmqpMethod):
    """exchange.bind-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("exchange.bind-ok", 40, 31, to_client=True)


@dataclass(slots=True, kw_only=True)
class ExchangeUnbind(AmqpMethod):
    """exchange.unbind, to the server; answered by unbind-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "exchange.unbind",
        40,
        40,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("destination", FieldKind.SHORTSTR),
            ("source", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
            ("arguments", FieldKind.TABLE),
        ),
        replies=frozenset((0x280033,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class ExchangeUnbindOk(AmqpMethod):
    """exchange.unbind-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("exchange.unbind-ok", 40, 51, to_client=True)


@dataclass(slots=True, kw_only=True)
class QueueDeclare(AmqpMethod):
    """queue.declare, to the server; answered by declare-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.declare",
        50,
        10,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("passive", FieldKind.BIT),
            ("durable", FieldKind.BIT),
            ("exclusive", FieldKind.BIT),
            ("auto_delete", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
            ("arguments", FieldKind.TABLE),
        ),
        replies=frozenset((0x32000B,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    nowait: bool = False
    arguments: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class QueueDeclareOk(AmqpMethod):
    """queue.declare-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.declare-ok",
        50,
        11,
        layout=(
            ("queue", FieldKind.SHORTSTR),
            ("message_count", FieldKind.LONG),
            ("consumer_count", FieldKind.LONG),
        ),
        to_client=True,
    )
    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


@dataclass(slots=True, kw_only=True)
class QueueBind(AmqpMethod):
    """queue.bind, to the server; answered by bind-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.bind",
        50,
        20,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
            ("arguments", FieldKind.TABLE),
        ),
        replies=frozenset((0x320015,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class QueueBindOk(AmqpMethod):
    """queue.bind-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("queue.bind-ok", 50, 21, to_client=True)


@dataclass(slots=True, kw_only=True)
class QueuePurge(AmqpMethod):
    """queue.purge, to the server; answered by purge-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.purge",
        50,
        30,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
        ),
        replies=frozenset((0x32001F,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class QueuePurgeOk(AmqpMethod):
    """queue.purge-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.purge-ok", 50, 31, layout=(("message_count", FieldKind.LONG),), to_client=True
    )
    message_count: int = 0


@dataclass(slots=True, kw_only=True)
class QueueDelete(AmqpMethod):
    """queue.delete, to the server; answered by delete-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.delete",
        50,
        40,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("if_unused", FieldKind.BIT),
            ("if_empty", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
        ),
        replies=frozenset((0x320029,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class QueueDeleteOk(AmqpMethod):
    """queue.delete-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.delete-ok", 50, 41, layout=(("message_count", FieldKind.LONG),), to_client=True
    )
    message_count: int = 0


@dataclass(slots=True, kw_only=True)
class QueueUnbind(AmqpMethod):
    """queue.unbind, to the server; answered by unbind-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "queue.unbind",
        50,
        50,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("arguments", FieldKind.TABLE),
        ),
        replies=frozenset((0x320033,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class QueueUnbindOk(AmqpMethod):
    """queue.unbind-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("queue.unbind-ok", 50, 51, to_client=True)


@dataclass(slots=True, kw_only=True)
class BasicQos(AmqpMethod):
    """basic.qos, to the server; answered by qos-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.qos",
        60,
        10,
        layout=(
            ("prefetch_size", FieldKind.LONG),
            ("prefetch_count", FieldKind.SHORT),
            ("global_", FieldKind.BIT),
        ),
        replies=frozenset((0x3C000B,)),
        to_server=True,
    )
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


@dataclass(slots=True, kw_only=True)
class BasicQosOk(AmqpMethod):
    """basic.qos-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("basic.qos-ok", 60, 11, to_client=True)


@dataclass(slots=True, kw_only=True)
class BasicConsume(AmqpMethod):
    """basic.consume, to the server; answered by consume-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.consume",
        60,
        20,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("consumer_tag", FieldKind.SHORTSTR),
            ("no_local", FieldKind.BIT),
            ("no_ack", FieldKind.BIT),
            ("exclusive", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
            ("filter", FieldKind.TABLE),
        ),
        replies=frozenset((0x3C0015,)),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    filter: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class BasicConsumeOk(AmqpMethod):
    """basic.consume-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.consume-ok", 60, 21, layout=(("consumer_tag", FieldKind.SHORTSTR),), to_client=True
    )
    consumer_tag: str = ""


@dataclass(slots=True, kw_only=True)
class BasicCancel(AmqpMethod):
    """basic.cancel, both ways; answered by cancel-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.cancel",
        60,
        30,
        layout=(
            ("consumer_tag", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
        ),
        replies=frozenset((0x3C001F,)),
        to_server=True,
        to_client=True,
    )
    consumer_tag: str = ""
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class BasicCancelOk(AmqpMethod):
    """basic.cancel-ok, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.cancel-ok",
        60,
        31,
        layout=(("consumer_tag", FieldKind.SHORTSTR),),
        to_server=True,
        to_client=True,
    )
    consumer_tag: str = ""


@dataclass(slots=True, kw_only=True)
class BasicPublish(AmqpMethod):
    """basic.publish, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.publish",
        60,
        40,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("mandatory", FieldKind.BIT),
            ("immediate", FieldKind.BIT),
        ),
        to_server=True,
        has_content=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


@dataclass(slots=True, kw_only=True)
class BasicReturn(AmqpMethod):
    """basic.return, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.return",
        60,
        50,
        layout=(
            ("reply_code", FieldKind.SHORT),
            ("reply_text", FieldKind.SHORTSTR),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
        ),
        to_client=True,
        has_content=True,
    )
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True, kw_only=True)
class BasicDeliver(AmqpMethod):
    """basic.deliver, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.deliver",
        60,
        60,
        layout=(
            ("consumer_tag", FieldKind.SHORTSTR),
            ("delivery_tag", FieldKind.LONGLONG),
            ("redelivered", FieldKind.BIT),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
        ),
        to_client=True,
        has_content=True,
    )
    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True, kw_only=True)
class BasicGet(AmqpMethod):
    """basic.get, to the server; answered by get-ok or get-empty."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.get",
        60,
        70,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("no_ack", FieldKind.BIT),
        ),
        replies=frozenset(
            (
                0x3C0047,
                0x3C0048,
            )
        ),
        to_server=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    no_ack: bool = False


@dataclass(slots=True, kw_only=True)
class BasicGetOk(AmqpMethod):
    """basic.get-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.get-ok",
        60,
        71,
        layout=(
            ("delivery_tag", FieldKind.LONGLONG),
            ("redelivered", FieldKind.BIT),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("message_count", FieldKind.LONG),
        ),
        to_client=True,
        has_content=True,
    )
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


@dataclass(slots=True, kw_only=True)
class BasicGetEmpty(AmqpMethod):
    """basic.get-empty, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.get-empty",
        60,
        72,
        layout=(("cluster_id", FieldKind.SHORTSTR),),
        to_client=True,
        reserved=("cluster_id",),
    )
    cluster_id: str = ""


@dataclass(slots=True, kw_only=True)
class BasicAck(AmqpMethod):
    """basic.ack, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.ack",
        60,
        80,
        layout=(
            ("delivery_tag", FieldKind.LONGLONG),
            ("multiple", FieldKind.BIT),
        ),
        to_server=True,
        to_client=True,
    )
    delivery_tag: int = 0
    multiple: bool = False


@dataclass(slots=True, kw_only=True)
class BasicReject(AmqpMethod):
    """basic.reject, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.reject",
        60,
        90,
        layout=(
            ("delivery_tag", FieldKind.LONGLONG),
            ("requeue", FieldKind.BIT),
        ),
        to_server=True,
    )
    delivery_tag: int = 0
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class BasicRecover(AmqpMethod):
    """basic.recover, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.recover", 60, 100, layout=(("requeue", FieldKind.BIT),), to_server=True
    )
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class BasicQpidRecoverSyncOk(AmqpMethod):
    """basic.qpid-recover-sync-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.qpid-recover-sync-ok", 60, 101, to_client=True
    )


@dataclass(slots=True, kw_only=True)
class BasicQpidRecoverSync(AmqpMethod):
    """basic.qpid-recover-sync, to the server; answered by qpid-recover-sync-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.qpid-recover-sync",
        60,
        102,
        layout=(("requeue", FieldKind.BIT),),
        replies=frozenset((0x3C0065,)),
        to_server=True,
    )
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class BasicRecoverSync(AmqpMethod):
    """basic.recover-sync, to the server; answered by recover-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.recover-sync",
        60,
        110,
        layout=(("requeue", FieldKind.BIT),),
        replies=frozenset((0x3C006F,)),
        to_server=True,
    )
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class BasicRecoverOk(AmqpMethod):
    """basic.recover-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("basic.recover-ok", 60, 111, to_client=True)


@dataclass(slots=True, kw_only=True)
class BasicNack(AmqpMethod):
    """basic.nack, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "basic.nack",
        60,
        120,
        layout=(
            ("delivery_tag", FieldKind.LONGLONG),
            ("multiple", FieldKind.BIT),
            ("requeue", FieldKind.BIT),
        ),
        to_server=True,
        to_client=True,
    )
    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class FileQos(AmqpMethod):
    """file.qos, to the server; answered by qos-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.qos",
        70,
        10,
        layout=(
            ("prefetch_size", FieldKind.LONG),
            ("prefetch_count", FieldKind.SHORT),
            ("global_", FieldKind.BIT),
        ),
        replies=frozenset((0x46000B,)),
        to_server=True,
        only_0_9=True,
    )
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


@dataclass(slots=True, kw_only=True)
class FileQosOk(AmqpMethod):
    """file.qos-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.qos-ok", 70, 11, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class FileConsume(AmqpMethod):
    """file.consume, to the server; answered by consume-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.consume",
        70,
        20,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("consumer_tag", FieldKind.SHORTSTR),
            ("no_local", FieldKind.BIT),
            ("no_ack", FieldKind.BIT),
            ("exclusive", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
            ("filter", FieldKind.TABLE),
        ),
        replies=frozenset((0x460015,)),
        to_server=True,
        only_0_9=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    filter: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class FileConsumeOk(AmqpMethod):
    """file.consume-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.consume-ok",
        70,
        21,
        layout=(("consumer_tag", FieldKind.SHORTSTR),),
        to_client=True,
        only_0_9=True,
    )
    consumer_tag: str = ""


@dataclass(slots=True, kw_only=True)
class FileCancel(AmqpMethod):
    """file.cancel, to the server; answered by cancel-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.cancel",
        70,
        30,
        layout=(
            ("consumer_tag", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
        ),
        replies=frozenset((0x46001F,)),
        to_server=True,
        only_0_9=True,
    )
    consumer_tag: str = ""
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class FileCancelOk(AmqpMethod):
    """file.cancel-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.cancel-ok",
        70,
        31,
        layout=(("consumer_tag", FieldKind.SHORTSTR),),
        to_client=True,
        only_0_9=True,
    )
    consumer_tag: str = ""


@dataclass(slots=True, kw_only=True)
class FileOpen(AmqpMethod):
    """file.open, both ways; answered by open-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.open",
        70,
        40,
        layout=(
            ("identifier", FieldKind.SHORTSTR),
            ("content_size", FieldKind.LONGLONG),
        ),
        replies=frozenset((0x460029,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    identifier: str = ""
    content_size: int = 0


@dataclass(slots=True, kw_only=True)
class FileOpenOk(AmqpMethod):
    """file.open-ok, both ways; answered by stage."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.open-ok",
        70,
        41,
        layout=(("staged_size", FieldKind.LONGLONG),),
        replies=frozenset((0x460032,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    staged_size: int = 0


@dataclass(slots=True, kw_only=True)
class FileStage(AmqpMethod):
    """file.stage, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.stage", 70, 50, to_server=True, to_client=True, has_content=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class FilePublish(AmqpMethod):
    """file.publish, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.publish",
        70,
        60,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("mandatory", FieldKind.BIT),
            ("immediate", FieldKind.BIT),
            ("identifier", FieldKind.SHORTSTR),
        ),
        to_server=True,
        only_0_9=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False
    identifier: str = ""


@dataclass(slots=True, kw_only=True)
class FileReturn(AmqpMethod):
    """file.return, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.return",
        70,
        70,
        layout=(
            ("reply_code", FieldKind.SHORT),
            ("reply_text", FieldKind.SHORTSTR),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
        ),
        to_client=True,
        has_content=True,
        only_0_9=True,
    )
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True, kw_only=True)
class FileDeliver(AmqpMethod):
    """file.deliver, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.deliver",
        70,
        80,
        layout=(
            ("consumer_tag", FieldKind.SHORTSTR),
            ("delivery_tag", FieldKind.LONGLONG),
            ("redelivered", FieldKind.BIT),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("identifier", FieldKind.SHORTSTR),
        ),
        to_client=True,
        only_0_9=True,
    )
    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    identifier: str = ""


@dataclass(slots=True, kw_only=True)
class FileAck(AmqpMethod):
    """file.ack, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.ack",
        70,
        90,
        layout=(
            ("delivery_tag", FieldKind.LONGLONG),
            ("multiple", FieldKind.BIT),
        ),
        to_server=True,
        only_0_9=True,
    )
    delivery_tag: int = 0
    multiple: bool = False


@dataclass(slots=True, kw_only=True)
class FileReject(AmqpMethod):
    """file.reject, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "file.reject",
        70,
        100,
        layout=(
            ("delivery_tag", FieldKind.LONGLONG),
            ("requeue", FieldKind.BIT),
        ),
        to_server=True,
        only_0_9=True,
    )
    delivery_tag: int = 0
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class StreamQos(AmqpMethod):
    """stream.qos, to the server; answered by qos-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.qos",
        80,
        10,
        layout=(
            ("prefetch_size", FieldKind.LONG),
            ("prefetch_count", FieldKind.SHORT),
            ("consume_rate", FieldKind.LONG),
            ("global_", FieldKind.BIT),
        ),
        replies=frozenset((0x50000B,)),
        to_server=True,
        only_0_9=True,
    )
    prefetch_size: int = 0
    prefetch_count: int = 0
    consume_rate: int = 0
    global_: bool = False


@dataclass(slots=True, kw_only=True)
class StreamQosOk(AmqpMethod):
    """stream.qos-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.qos-ok", 80, 11, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class StreamConsume(AmqpMethod):
    """stream.consume, to the server; answered by consume-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.consume",
        80,
        20,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("consumer_tag", FieldKind.SHORTSTR),
            ("no_local", FieldKind.BIT),
            ("exclusive", FieldKind.BIT),
            ("nowait", FieldKind.BIT),
            ("filter", FieldKind.TABLE),
        ),
        replies=frozenset((0x500015,)),
        to_server=True,
        only_0_9=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    exclusive: bool = False
    nowait: bool = False
    filter: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class StreamConsumeOk(AmqpMethod):
    """stream.consume-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.consume-ok",
        80,
        21,
        layout=(("consumer_tag", FieldKind.SHORTSTR),),
        to_client=True,
        only_0_9=True,
    )
    consumer_tag: str = ""


@dataclass(slots=True, kw_only=True)
class StreamCancel(AmqpMethod):
    """stream.cancel, to the server; answered by cancel-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.cancel",
        80,
        30,
        layout=(
            ("consumer_tag", FieldKind.SHORTSTR),
            ("nowait", FieldKind.BIT),
        ),
        replies=frozenset((0x50001F,)),
        to_server=True,
        only_0_9=True,
    )
    consumer_tag: str = ""
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class StreamCancelOk(AmqpMethod):
    """stream.cancel-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.cancel-ok",
        80,
        31,
        layout=(("consumer_tag", FieldKind.SHORTSTR),),
        to_client=True,
        only_0_9=True,
    )
    consumer_tag: str = ""


@dataclass(slots=True, kw_only=True)
class StreamPublish(AmqpMethod):
    """stream.publish, to the server."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.publish",
        80,
        40,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("mandatory", FieldKind.BIT),
            ("immediate", FieldKind.BIT),
        ),
        to_server=True,
        has_content=True,
        only_0_9=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


@dataclass(slots=True, kw_only=True)
class StreamReturn(AmqpMethod):
    """stream.return, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.return",
        80,
        50,
        layout=(
            ("reply_code", FieldKind.SHORT),
            ("reply_text", FieldKind.SHORTSTR),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
        ),
        to_client=True,
        has_content=True,
        only_0_9=True,
    )
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True, kw_only=True)
class StreamDeliver(AmqpMethod):
    """stream.deliver, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "stream.deliver",
        80,
        60,
        layout=(
            ("consumer_tag", FieldKind.SHORTSTR),
            ("delivery_tag", FieldKind.LONGLONG),
            ("exchange", FieldKind.SHORTSTR),
            ("queue", FieldKind.SHORTSTR),
        ),
        to_client=True,
        has_content=True,
        only_0_9=True,
    )
    consumer_tag: str = ""
    delivery_tag: int = 0
    exchange: str = ""
    queue: str = ""


@dataclass(slots=True, kw_only=True)
class ConfirmSelect(AmqpMethod):
    """confirm.select, to the server; answered by select-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "confirm.select",
        85,
        10,
        layout=(("nowait", FieldKind.BIT),),
        replies=frozenset((0x55000B,)),
        to_server=True,
    )
    nowait: bool = False


@dataclass(slots=True, kw_only=True)
class ConfirmSelectOk(AmqpMethod):
    """confirm.select-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("confirm.select-ok", 85, 11, to_client=True)


@dataclass(slots=True, kw_only=True)
class TxSelect(AmqpMethod):
    """tx.select, to the server; answered by select-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "tx.select", 90, 10, replies=frozenset((0x5A000B,)), to_server=True
    )


@dataclass(slots=True, kw_only=True)
class TxSelectOk(AmqpMethod):
    """tx.select-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("tx.select-ok", 90, 11, to_client=True)


@dataclass(slots=True, kw_only=True)
class TxCommit(AmqpMethod):
    """tx.commit, to the server; answered by commit-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "tx.commit", 90, 20, replies=frozenset((0x5A0015,)), to_server=True
    )


@dataclass(slots=True, kw_only=True)
class TxCommitOk(AmqpMethod):
    """tx.commit-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("tx.commit-ok", 90, 21, to_client=True)


@dataclass(slots=True, kw_only=True)
class TxRollback(AmqpMethod):
    """tx.rollback, to the server; answered by rollback-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "tx.rollback", 90, 30, replies=frozenset((0x5A001F,)), to_server=True
    )


@dataclass(slots=True, kw_only=True)
class TxRollbackOk(AmqpMethod):
    """tx.rollback-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits("tx.rollback-ok", 90, 31, to_client=True)


@dataclass(slots=True, kw_only=True)
class DtxSelect(AmqpMethod):
    """dtx.select, to the server; answered by select-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "dtx.select", 100, 10, replies=frozenset((0x64000B,)), to_server=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class DtxSelectOk(AmqpMethod):
    """dtx.select-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "dtx.select-ok", 100, 11, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class DtxStart(AmqpMethod):
    """dtx.start, to the server; answered by start-ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "dtx.start",
        100,
        20,
        layout=(("dtx_identifier", FieldKind.SHORTSTR),),
        replies=frozenset((0x640015,)),
        to_server=True,
        only_0_9=True,
    )
    dtx_identifier: str = ""


@dataclass(slots=True, kw_only=True)
class DtxStartOk(AmqpMethod):
    """dtx.start-ok, to the client."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "dtx.start-ok", 100, 21, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class TunnelRequest(AmqpMethod):
    """tunnel.request, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "tunnel.request",
        110,
        10,
        layout=(("meta_data", FieldKind.TABLE),),
        to_server=True,
        to_client=True,
        has_content=True,
        only_0_9=True,
    )
    meta_data: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class MessageTransfer(AmqpMethod):
    """message.transfer, both ways; answered by ok or reject."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.transfer",
        120,
        10,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("destination", FieldKind.SHORTSTR),
            ("redelivered", FieldKind.BIT),
            ("immediate", FieldKind.BIT),
            ("ttl", FieldKind.LONGLONG),
            ("priority", FieldKind.OCTET),
            ("timestamp", FieldKind.TIMESTAMP),
            ("delivery_mode", FieldKind.OCTET),
            ("expiration", FieldKind.TIMESTAMP),
            ("exchange", FieldKind.SHORTSTR),
            ("routing_key", FieldKind.SHORTSTR),
            ("message_id", FieldKind.SHORTSTR),
            ("correlation_id", FieldKind.SHORTSTR),
            ("reply_to", FieldKind.SHORTSTR),
            ("content_type", FieldKind.SHORTSTR),
            ("content_encoding", FieldKind.SHORTSTR),
            ("user_id", FieldKind.SHORTSTR),
            ("app_id", FieldKind.SHORTSTR),
            ("transaction_id", FieldKind.SHORTSTR),
            ("security_token", FieldKind.LONGSTR),
            ("application_headers", FieldKind.TABLE),
            ("body", FieldKind.CONTENT),
        ),
        replies=frozenset(
            (
                0x7801F4,
                0x780208,
            )
        ),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    ticket: int = 0
    destination: str = ""
    redelivered: bool = False
    immediate: bool = False
    ttl: int = 0
    priority: int = 0
    timestamp: int = 0
    delivery_mode: int = 0
    expiration: int = 0
    exchange: str = ""
    routing_key: str = ""
    message_id: str = ""
    correlation_id: str = ""
    reply_to: str = ""
    content_type: str = ""
    content_encoding: str = ""
    user_id: str = ""
    app_id: str = ""
    transaction_id: str = ""
    security_token: bytes = b""
    application_headers: FieldTable = EMPTY_TABLE
    body: InlineBody = NO_BODY


@dataclass(slots=True, kw_only=True)
class MessageConsume(AmqpMethod):
    """message.consume, to the server; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.consume",
        120,
        20,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("destination", FieldKind.SHORTSTR),
            ("no_local", FieldKind.BIT),
            ("no_ack", FieldKind.BIT),
            ("exclusive", FieldKind.BIT),
            ("filter", FieldKind.TABLE),
        ),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        only_0_9=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    destination: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    filter: FieldTable = EMPTY_TABLE


@dataclass(slots=True, kw_only=True)
class MessageCancel(AmqpMethod):
    """message.cancel, to the server; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.cancel",
        120,
        30,
        layout=(("destination", FieldKind.SHORTSTR),),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        only_0_9=True,
    )
    destination: str = ""


@dataclass(slots=True, kw_only=True)
class MessageGet(AmqpMethod):
    """message.get, to the server; answered by ok or empty."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.get",
        120,
        40,
        layout=(
            ("ticket", FieldKind.SHORT),
            ("queue", FieldKind.SHORTSTR),
            ("destination", FieldKind.SHORTSTR),
            ("no_ack", FieldKind.BIT),
        ),
        replies=frozenset(
            (
                0x7801F4,
                0x7801FE,
            )
        ),
        to_server=True,
        only_0_9=True,
        reserved=("ticket",),
    )
    ticket: int = 0
    queue: str = ""
    destination: str = ""
    no_ack: bool = False


@dataclass(slots=True, kw_only=True)
class MessageRecover(AmqpMethod):
    """message.recover, to the server; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.recover",
        120,
        50,
        layout=(("requeue", FieldKind.BIT),),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        only_0_9=True,
    )
    requeue: bool = False


@dataclass(slots=True, kw_only=True)
class MessageOpen(AmqpMethod):
    """message.open, both ways; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.open",
        120,
        60,
        layout=(("reference", FieldKind.LONGSTR),),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    reference: bytes = b""


@dataclass(slots=True, kw_only=True)
class MessageClose(AmqpMethod):
    """message.close, both ways; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.close",
        120,
        70,
        layout=(("reference", FieldKind.LONGSTR),),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    reference: bytes = b""


@dataclass(slots=True, kw_only=True)
class MessageAppend(AmqpMethod):
    """message.append, both ways; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.append",
        120,
        80,
        layout=(
            ("reference", FieldKind.LONGSTR),
            ("bytes", FieldKind.LONGSTR),
        ),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    reference: bytes = b""
    bytes: bytes = b""


@dataclass(slots=True, kw_only=True)
class MessageCheckpoint(AmqpMethod):
    """message.checkpoint, both ways; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.checkpoint",
        120,
        90,
        layout=(
            ("reference", FieldKind.LONGSTR),
            ("identifier", FieldKind.SHORTSTR),
        ),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    reference: bytes = b""
    identifier: str = ""


@dataclass(slots=True, kw_only=True)
class MessageResume(AmqpMethod):
    """message.resume, both ways; answered by offset."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.resume",
        120,
        100,
        layout=(
            ("reference", FieldKind.LONGSTR),
            ("identifier", FieldKind.SHORTSTR),
        ),
        replies=frozenset((0x780212,)),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    reference: bytes = b""
    identifier: str = ""


@dataclass(slots=True, kw_only=True)
class MessageQos(AmqpMethod):
    """message.qos, to the server; answered by ok."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.qos",
        120,
        110,
        layout=(
            ("prefetch_size", FieldKind.LONG),
            ("prefetch_count", FieldKind.SHORT),
            ("global_", FieldKind.BIT),
        ),
        replies=frozenset((0x7801F4,)),
        to_server=True,
        only_0_9=True,
    )
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


@dataclass(slots=True, kw_only=True)
class MessageOk(AmqpMethod):
    """message.ok, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.ok", 120, 500, to_server=True, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class MessageEmpty(AmqpMethod):
    """message.empty, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.empty", 120, 510, to_server=True, to_client=True, only_0_9=True
    )


@dataclass(slots=True, kw_only=True)
class MessageReject(AmqpMethod):
    """message.reject, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.reject",
        120,
        520,
        layout=(
            ("code", FieldKind.SHORT),
            ("text", FieldKind.SHORTSTR),
        ),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    code: int = 0
    text: str = ""


@dataclass(slots=True, kw_only=True)
class MessageOffset(AmqpMethod):
    """message.offset, both ways."""

    traits: ClassVar[MethodTraits] = MethodTraits(
        "message.offset",
        120,
        530,
        layout=(("value", FieldKind.LONGLONG),),
        to_server=True,
        to_client=True,
        only_0_9=True,
    )
    value: int = 0


@dataclass(slots=True, kw_only=True)
class BasicProperties(ContentProperties):
    """The properties of a content of class basic."""

    class_id: ClassVar[int] = 60
    layout: ClassVar[tuple[tuple[str, FieldKind], ...]] = (
        ("content_type", FieldKind.SHORTSTR),
        ("content_encoding", FieldKind.SHORTSTR),
        ("headers", FieldKind.TABLE),
        ("delivery_mode", FieldKind.OCTET),
        ("priority", FieldKind.OCTET),
        ("correlation_id", FieldKind.SHORTSTR),
        ("reply_to", FieldKind.SHORTSTR),
        ("expiration", FieldKind.SHORTSTR),
        ("message_id", FieldKind.SHORTSTR),
        ("timestamp", FieldKind.TIMESTAMP),
        ("type", FieldKind.SHORTSTR),
        ("user_id", FieldKind.SHORTSTR),
        ("app_id", FieldKind.SHORTSTR),
        ("cluster_id", FieldKind.SHORTSTR),
    )
    content_type: str | None = None
    content_encoding: str | None = None
    headers: FieldTable | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


@dataclass(slots=True, kw_only=True)
class FileProperties(ContentProperties):
    """The properties of a content of class file."""

    class_id: ClassVar[int] = 70
    layout: ClassVar[tuple[tuple[str, FieldKind], ...]] = (
        ("content_type", FieldKind.SHORTSTR),
        ("content_encoding", FieldKind.SHORTSTR),
        ("headers", FieldKind.TABLE),
        ("priority", FieldKind.OCTET),
        ("reply_to", FieldKind.SHORTSTR),
        ("message_id", FieldKind.SHORTSTR),
        ("filename", FieldKind.SHORTSTR),
        ("timestamp", FieldKind.TIMESTAMP),
        ("cluster_id", FieldKind.SHORTSTR),
    )
    content_type: str | None = None
    content_encoding: str | None = None
    headers: FieldTable | None = None
    priority: int | None = None
    reply_to: str | None = None
    message_id: str | None = None
    filename: str | None = None
    timestamp: int | None = None
    cluster_id: str | None = None


@dataclass(slots=True, kw_only=True)
class StreamProperties(ContentProperties):
    """The properties of a content of class stream."""

    class_id: ClassVar[int] = 80
    layout: ClassVar[tuple[tuple[str, FieldKind], ...]] = (
        ("content_type", FieldKind.SHORTSTR),
        ("content_encoding", FieldKind.SHORTSTR),
        ("headers", FieldKind.TABLE),
        ("priority", FieldKind.OCTET),
        ("timestamp", FieldKind.TIMESTAMP),
    )
    content_type: str | None = None
    content_encoding: str | None = None
    headers: FieldTable | None = None
    priority: int | None = None
    timestamp: int | None = None


@dataclass(slots=True, kw_only=True)
class TunnelProperties(ContentProperties):
    """The properties of a content of class tunnel."""

    class_id: ClassVar[int] = 110
    layout: ClassVar[tuple[tuple[str, FieldKind], ...]] = (
        ("headers", FieldKind.TABLE),
        ("proxy_name", FieldKind.SHORTSTR),
        ("data_name", FieldKind.SHORTSTR),
        ("durable", FieldKind.OCTET),
        ("broadcast", FieldKind.OCTET),
    )
    headers: FieldTable | None = None
    proxy_name: str | None = None
    data_name: str | None = None
    durable: int | None = None
    broadcast: int | None = None


METHODS: Final[dict[int, type[AmqpMethod]]] = {
    each.traits.code: each
    for each in (
        ConnectionStart,
        ConnectionStartOk,
        ConnectionSecure,
        ConnectionSecureOk,
        ConnectionTune,
        ConnectionTuneOk,
        ConnectionOpen,
        ConnectionOpenOk,
        ConnectionRedirect,
        ConnectionClose,
        ConnectionCloseOk,
        ConnectionBlocked,
        ConnectionUnblocked,
        ConnectionUpdateSecret,
        ConnectionUpdateSecretOk,
        ChannelOpen,
        ChannelOpenOk,
        ChannelFlow,
        ChannelFlowOk,
        ChannelClose,
        ChannelCloseOk,
        ChannelResume,
        ChannelPing,
        ChannelPong,
        ChannelOk,
        AccessRequest,
        AccessRequestOk,
        ExchangeDeclare,
        ExchangeDeclareOk,
        ExchangeDelete,
        ExchangeDeleteOk,
        ExchangeBound,
        ExchangeBoundOk,
        ExchangeBind,
        ExchangeBindOk,
        ExchangeUnbind,
        ExchangeUnbindOk,
        QueueDeclare,
        QueueDeclareOk,
        QueueBind,
        QueueBindOk,
        QueuePurge,
        QueuePurgeOk,
        QueueDelete,
        QueueDeleteOk,
        QueueUnbind,
        QueueUnbindOk,
        BasicQos,
        BasicQosOk,
        BasicConsume,
        BasicConsumeOk,
        BasicCancel,
        BasicCancelOk,
        BasicPublish,
        BasicReturn,
        BasicDeliver,
        BasicGet,
        BasicGetOk,
        BasicGetEmpty,
        BasicAck,
        BasicReject,
        BasicRecover,
        BasicQpidRecoverSyncOk,
        BasicQpidRecoverSync,
        BasicRecoverSync,
        BasicRecoverOk,
        BasicNack,
        FileQos,
        FileQosOk,
        FileConsume,
        FileConsumeOk,
        FileCancel,
        FileCancelOk,
        FileOpen,
        FileOpenOk,
        FileStage,
        FilePublish,
        FileReturn,
        FileDeliver,
        FileAck,
        FileReject,
        StreamQos,
        StreamQosOk,
        StreamConsume,
        StreamConsumeOk,
        StreamCancel,
        StreamCancelOk,
        StreamPublish,
        StreamReturn,
        StreamDeliver,
        ConfirmSelect,
        ConfirmSelectOk,
        TxSelect,
        TxSelectOk,
        TxCommit,
        TxCommitOk,
        TxRollback,
        TxRollbackOk,
        DtxSelect,
        DtxSelectOk,
        DtxStart,
        DtxStartOk,
        TunnelRequest,
        MessageTransfer,
        MessageConsume,
        MessageCancel,
        MessageGet,
        MessageRecover,
        MessageOpen,
        MessageClose,
        MessageAppend,
        MessageCheckpoint,
        MessageResume,
        MessageQos,
        MessageOk,
        MessageEmpty,
        MessageReject,
        MessageOffset,
    )
}
"""All methods, by class id and method id."""

PROPERTIES: Final[dict[int, type[ContentProperties]]] = {
    each.class_id: each
    for each in (
        BasicProperties,
        FileProperties,
        StreamProperties,
        TunnelProperties,
    )
}
"""The properties of each class that has contents, by class id."""

REPLIES: Final = frozenset(code for method in METHODS.values() for code in method.traits.replies)
"""The codes of the methods that answer others."""

__all__ = [
    "METHODS",
    "PROPERTIES",
    "REPLIES",
    "AccessRequest",
    "AccessRequestOk",
    "BasicAck",
    "BasicCancel",
    "BasicCancelOk",
    "BasicConsume",
    "BasicConsumeOk",
    "BasicDeliver",
    "BasicGet",
    "BasicGetEmpty",
    "BasicGetOk",
    "BasicNack",
    "BasicProperties",
    "BasicPublish",
    "BasicQos",
    "BasicQosOk",
    "BasicQpidRecoverSync",
    "BasicQpidRecoverSyncOk",
    "BasicRecover",
    "BasicRecoverOk",
    "BasicRecoverSync",
    "BasicReject",
    "BasicReturn",
    "ChannelClose",
    "ChannelCloseOk",
    "ChannelFlow",
    "ChannelFlowOk",
    "ChannelOk",
    "ChannelOpen",
    "ChannelOpenOk",
    "ChannelPing",
    "ChannelPong",
    "ChannelResume",
    "ConfirmSelect",
    "ConfirmSelectOk",
    "ConnectionBlocked",
    "ConnectionClose",
    "ConnectionCloseOk",
    "ConnectionOpen",
    "ConnectionOpenOk",
    "ConnectionRedirect",
    "ConnectionSecure",
    "ConnectionSecureOk",
    "ConnectionStart",
    "ConnectionStartOk",
    "ConnectionTune",
    "ConnectionTuneOk",
    "ConnectionUnblocked",
    "ConnectionUpdateSecret",
    "ConnectionUpdateSecretOk",
    "DtxSelect",
    "DtxSelectOk",
    "DtxStart",
    "DtxStartOk",
    "ExchangeBind",
    "ExchangeBindOk",
    "ExchangeBound",
    "ExchangeBoundOk",
    "ExchangeDeclare",
    "ExchangeDeclareOk",
    "ExchangeDelete",
    "ExchangeDeleteOk",
    "ExchangeUnbind",
    "ExchangeUnbindOk",
    "FileAck",
    "FileCancel",
    "FileCancelOk",
    "FileConsume",
    "FileConsumeOk",
    "FileDeliver",
    "FileOpen",
    "FileOpenOk",
    "FileProperties",
    "FilePublish",
    "FileQos",
    "FileQosOk",
    "FileReject",
    "FileReturn",
    "FileStage",
    "MessageAppend",
    "MessageCancel",
    "MessageCheckpoint",
    "MessageClose",
    "MessageConsume",
    "MessageEmpty",
    "MessageGet",
    "MessageOffset",
    "MessageOk",
    "MessageOpen",
    "MessageQos",
    "MessageRecover",
    "MessageReject",
    "MessageResume",
    "MessageTransfer",
    "QueueBind",
    "QueueBindOk",
    "QueueDeclare",
    "QueueDeclareOk",
    "QueueDelete",
    "QueueDeleteOk",
    "QueuePurge",
    "QueuePurgeOk",
    "QueueUnbind",
    "QueueUnbindOk",
    "StreamCancel",
    "StreamCancelOk",
    "StreamConsume",
    "StreamConsumeOk",
    "StreamDeliver",
    "StreamProperties",
    "StreamPublish",
    "StreamQos",
    "StreamQosOk",
    "StreamReturn",
    "TunnelProperties",
    "TunnelRequest",
    "TxCommit",
    "TxCommitOk",
    "TxRollback",
    "TxRollbackOk",
    "TxSelect",
    "TxSelectOk",
]
