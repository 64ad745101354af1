# SPDX-License-Identifier: Apache-2.0
"""The fields of message.transfer as properties of class basic, and back (09: part 5.6).

The rest of the translation knows class basic alone. A field that has a property of its name there
becomes that property, ``ttl`` becomes expiration, and ``application-headers`` the headers. The
others become headers, and so annotations of the message:

================================  ==========================
header and annotation             stands for
================================  ==========================
``x-opt-message-transaction-id``  transaction-id
``x-opt-message-security-token``  security-token
``x-opt-message-redelivered``     redelivered, from a client
``x-opt-basic-type``              type of class basic
================================  ==========================

An empty field is an absent property, because a transfer has all its fields always. What the
recipient learns of times is made when the message is delivered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from amqproute.translation.content_message import ABSOLUTE_FROM, MOST_TTL, ContentRefused
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue, FieldValueError
from amqproute.wire.amqp09.methods import BasicProperties, MessageTransfer

__all__ = ["DeliveryTimes", "TransferForm", "basic_of_transfer", "transfer_of_basic"]

TRANSACTION_ID: Final = "x-opt-message-transaction-id"
SECURITY_TOKEN: Final = "x-opt-message-security-token"  # noqa: S105 - the name of a header
REDELIVERED: Final = "x-opt-message-redelivered"
TYPE: Final = "x-opt-basic-type"
_NAMES: Final = frozenset((TRANSACTION_ID, SECURITY_TOKEN, REDELIVERED))
_TEXTS: Final = (
    "message_id",
    "correlation_id",
    "reply_to",
    "content_type",
    "content_encoding",
    "user_id",
    "app_id",
)
"""Fields that are properties of the same name."""


class TransferForm(NamedTuple):
    """Properties of class basic.

    Attributes:
        properties: decoded.
        octets: flags and values.
    """

    properties: BasicProperties
    octets: bytes


class DeliveryTimes(NamedTuple):
    """The times of a message, as its broker knows them.

    Attributes:
        ttl_ms: the ttl its sender gave it; 0 for none.
        expires_ms: when it expires, milliseconds since the epoch; 0 for never.
    """

    ttl_ms: int = 0
    expires_ms: int = 0


def basic_of_transfer(transfer: MessageTransfer, arrived_s: int | None) -> TransferForm:
    """Return what a client's transfer says of its message, as properties of class basic.

    Args:
        transfer: as it came.
        arrived_s: when, in seconds since the epoch (09-MSG-19); None for a message that goes to
            another broker, which is told no times but the ttl (09-X-97).

    Raises:
        ContentRefused: its headers are too large.
    """
    extra: dict[str, FieldValue] = {}
    if transfer.transaction_id:
        extra[TRANSACTION_ID] = transfer.transaction_id
    if transfer.security_token:
        extra[SECURITY_TOKEN] = transfer.security_token
    if transfer.redelivered:
        extra[REDELIVERED] = True
    properties = BasicProperties(priority=transfer.priority, timestamp=arrived_s)
    for name in _TEXTS:
        setattr(properties, name, getattr(transfer, name) or None)
    if transfer.delivery_mode:
        properties.delivery_mode = transfer.delivery_mode
    if transfer.ttl:
        properties.expiration = str(min(transfer.ttl, MOST_TTL))
    elif transfer.expiration and arrived_s is not None:
        # One that would be read as a duration is over in any case.
        is_time = transfer.expiration > ABSOLUTE_FROM
        properties.expiration = str(transfer.expiration) if is_time else "0"
    headers = transfer.application_headers
    if TYPE in headers:
        kind = headers[TYPE]
        if isinstance(kind, str) and len(kind.encode("utf-8", "replace")) <= 255:
            properties.type = kind
            headers = FieldTable({name: headers[name] for name in headers if name != TYPE})
    if headers or extra:
        try:
            # A name that occurs twice has its last value, so the table's octets stay as they are.
            properties.headers = FieldTable.from_octets(headers.octets + FieldTable(extra).octets)
        except FieldValueError as error:
            raise ContentRefused(f"application-headers: {error}") from None
    return TransferForm(properties, encode_properties(properties))


def transfer_of_basic(octets: bytes, times: DeliveryTimes) -> MessageTransfer:
    """Return a transfer with the fields that a message's properties stand for.

    Args:
        octets: flags and values of class basic.
        times: the times of the message.

    Returns:
        A transfer without destination, exchange, routing key and body.
    """
    properties = decode_properties(BasicProperties.class_id, octets)
    assert isinstance(properties, BasicProperties)
    table: FieldTable = properties.headers or FieldTable()
    transfer = MessageTransfer(
        priority=properties.priority or 0,
        delivery_mode=properties.delivery_mode or 0,
        timestamp=properties.timestamp or 0,
        redelivered=table.get(REDELIVERED) is True,
        transaction_id=_text(table.get(TRANSACTION_ID)),
        security_token=_octets(table.get(SECURITY_TOKEN)),
        ttl=times.ttl_ms,
        expiration=times.expires_ms,
    )
    for name in _TEXTS:
        setattr(transfer, name, getattr(properties, name) or "")
    headers = _own_headers(table)
    if properties.type:
        headers = FieldTable({**headers, TYPE: properties.type})
    transfer.application_headers = headers
    return transfer


def _own_headers(table: FieldTable) -> FieldTable:
    """Return the headers without those that stand for something else."""
    extra = {name: table[name] for name in table if name in _NAMES}
    if not extra:
        return table
    # As `basic_of_transfer` has put them together: its part of the octets is cut off again.
    suffix = FieldTable(extra).octets
    if table.octets.endswith(suffix):
        return FieldTable.from_octets(table.octets[: -len(suffix)])
    left: Mapping[str, FieldValue] = {name: table[name] for name in table if name not in _NAMES}
    return FieldTable(left)


def _text(value: FieldValue) -> str:
    """Return a header, which anybody may have set, as a short string."""
    if isinstance(value, str) and "\0" not in value and len(value.encode()) <= 255:
        return value
    return ""


def _octets(value: FieldValue) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else b""
