# SPDX-License-Identifier: Apache-2.0
"""Messages as rows, and rows as messages.

A row has only values that stay the same however often a message is read: no delivery count and no
remaining lifetime. Values without a type of their own in Spark are text: a message-id of the type
``binary`` in hexadecimal, other values of a map as in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final
from uuid import UUID

from pyspark.sql import Row
from pyspark.sql.types import StructType

from amqproute.errors import AmqpError
from amqproute.message import Message
from amqproute.pipeline.datasource.options import OptionError
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Array, Described, Symbol, Timestamp, UByte, UInt

__all__ = ["READ_SCHEMA", "WRITE_COLUMNS", "OutgoingRow", "RowEncoder", "check_columns", "row_of"]

READ_SCHEMA: Final = """
    broker string, queue string, entry long,
    message_id string, message_id_type string, user_id string, `to` string, subject string,
    reply_to string, correlation_id string, content_type string, content_encoding string,
    absolute_expiry_time timestamp, creation_time timestamp,
    group_id string, group_sequence long, reply_to_group_id string,
    durable boolean, priority int,
    annotations map<string,string>, application_properties map<string,string>,
    body binary, body_type string
"""
"""``body_type`` is ``data``; ``text`` (an amqp-value of the type string) or ``binary`` (of that
type), with the octets as the body; ``value`` or ``sequence``, with JSON; ``undecodable``, with the
whole message."""

WRITE_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "address": ("string",),
    "body": ("binary", "string"),
    "message_id": ("string",),
    "subject": ("string",),
    "reply_to": ("string",),
    "correlation_id": ("string",),
    "content_type": ("string",),
    "content_encoding": ("string",),
    "absolute_expiry_time": ("timestamp",),
    "creation_time": ("timestamp",),
    "group_id": ("string",),
    "group_sequence": ("int", "bigint"),
    "durable": ("boolean",),
    "priority": ("int", "tinyint", "smallint", "bigint"),
    "ttl": ("int", "bigint"),
    "application_properties": ("map<string,string>",),
}
"""Columns for writing, each may be absent or null, and their types. ``ttl`` is in milliseconds;
``body`` becomes data (binary) or an amqp-value (string)."""

_TYPES: Final = ((str, "string"), (UUID, "uuid"), (bytes, "binary"), (int, "ulong"))


# -- from messages ---------------------------------------------------------------------------------


def row_of(broker: str, queue: str, entry: int | None, encoded: bytes) -> tuple[object, ...]:
    """Return the row for a message, in the order of `READ_SCHEMA`.

    Args:
        broker: container-id or place.
        queue: its queue.
        entry: the broker's number for it, None if unknown.
        encoded: the message.
    """
    message = Message(encoded)
    try:
        header, properties = message.header, message.properties
        facts = {str(key): _text(value) for key, value in message.annotations.items()}
        own = {str(key): _text(value) for key, value in message.application_properties.items()}
        body, body_type = _body(message)
    except (AmqpError, ValueError):
        empty = (None,) * 18
        return (broker, queue, entry, *empty, bytes(encoded), "undecodable")
    kind = next((name for each, name in _TYPES if isinstance(properties.message_id, each)), None)
    return (
        broker,
        queue,
        entry,
        _text(properties.message_id),
        kind,
        _text(properties.user_id),
        properties.to,
        properties.subject,
        properties.reply_to,
        _text(properties.correlation_id),
        _text(properties.content_type),
        _text(properties.content_encoding),
        _moment(properties.absolute_expiry_time),
        _moment(properties.creation_time),
        properties.group_id,
        None if properties.group_sequence is None else int(properties.group_sequence),
        properties.reply_to_group_id,
        bool(header.durable),
        int(header.priority),
        facts,
        own,
        body,
        body_type,
    )


def _body(message: Message) -> tuple[bytes | None, str | None]:
    values = message.body_values()
    code = message.offsets.body_code
    if code == spec.SECTION_DATA:
        return b"".join(value for value in values if isinstance(value, bytes)), "data"
    if code == spec.SECTION_AMQP_SEQUENCE:
        return _json(
            [item for value in values if isinstance(value, list) for item in value]
        ).encode(), "sequence"
    if not values:
        return None, None
    value = values[0]
    if isinstance(value, str) and not isinstance(value, Symbol):
        return value.encode(), "text"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value), "binary"
    return _json(value).encode(), "value"


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, UUID):
        return str(value)
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Convert a decoded value to one for JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        moment = _moment(value)
        return int(value) if moment is None else moment.isoformat()
    if isinstance(value, int | float | str):
        for kind in (str, int, float):
            if isinstance(value, kind):
                return kind(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, Array):
        return [_plain(item) for item in value.items]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    return str(value)


def _moment(value: int | None) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None  # beyond any calendar


# -- to messages -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OutgoingRow:
    """A row to be sent.

    Attributes:
        tag: its name on the link: the same for the same row, in any attempt and order.
        address: its target.
        message_id: its own, or derived from the run and the tag.
        parts: the encoded message.
    """

    tag: bytes
    address: str
    message_id: str
    parts: tuple[bytes, bytes]


class RowEncoder:
    """Turns the rows of one task into messages.

    A row is identified by a hash of its contents, and by the number of equal rows before it in the
    task. A repeated task may get its rows in another order; it gives each the same name.

    Args:
        prefix: beginning of message-ids for rows without one.
        address: the address for rows without one.
    """

    def __init__(self, prefix: str, address: str | None) -> None:
        self._prefix = prefix
        self._address = address
        self._seen: dict[bytes, int] = {}

    def encode(self, row: Row) -> OutgoingRow:
        """Encode one row.

        Raises:
            OptionError: it has no address, or an unsuitable value.
        """
        given = row.asDict()
        address = given.get("address") or self._address
        if not address:
            raise OptionError(
                "a row has no address: neither a column address nor the option address says where "
                "it goes"
            )
        body, section = given.get("body"), spec.SECTION_DATA
        if isinstance(body, str):
            section = spec.SECTION_AMQP_VALUE
        else:
            body = b"" if body is None else bytes(body)
        rest = sections.encode_section(section, body)
        if own := given.get("application_properties"):
            rest = sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, dict(own)) + rest
        header = _header(given)
        message_id = given.get("message_id")
        properties = _properties(given, address, message_id)
        head = codec.encode(properties)
        tag = self._tag(header + head + rest)
        if message_id is None:
            message_id = f"{self._prefix}/{tag.hex()}"
            head = codec.encode(_properties(given, address, message_id))
        return OutgoingRow(tag, address, message_id, (header + head, rest))

    def _tag(self, content: bytes) -> bytes:
        digest = blake2b(content, digest_size=16).digest()
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return digest + number.to_bytes(4, "big")


def _header(given: Mapping[str, Any]) -> bytes:
    priority, ttl, durable = given.get("priority"), given.get("ttl"), given.get("durable")
    if priority is not None and not 0 <= priority <= 9:
        raise OptionError(f"priority is 0 to 9, not {priority}")
    if ttl is not None and not 0 <= ttl < 1 << 32:
        raise OptionError(f"ttl is in milliseconds, up to 49 days, not {ttl}")
    return sections.encode_header(
        spec.Header(
            durable=durable is not False,
            priority=UByte(4 if priority is None else priority),
            ttl=None if ttl is None else UInt(ttl),
        )
    )


def _properties(given: Mapping[str, Any], address: str, message_id: str | None) -> spec.Properties:
    content_type = given.get("content_type")
    if content_type is None and not isinstance(given.get("body"), str):
        content_type = "application/octet-stream"
    encoding = given.get("content_encoding")
    sequence = given.get("group_sequence")
    return spec.Properties(
        message_id=message_id,
        to=address,
        subject=given.get("subject"),
        reply_to=given.get("reply_to"),
        correlation_id=given.get("correlation_id"),
        content_type=None if content_type is None else Symbol(content_type),
        content_encoding=None if encoding is None else Symbol(encoding),
        absolute_expiry_time=_timestamp(given.get("absolute_expiry_time")),
        creation_time=_timestamp(given.get("creation_time")),
        group_id=given.get("group_id"),
        group_sequence=None if sequence is None else UInt(sequence),
    )


def _timestamp(value: datetime | None) -> Timestamp | None:
    return None if value is None else Timestamp(round(value.timestamp() * 1000))


def check_columns(schema: StructType) -> None:
    """Refuse columns that do not belong to a message, and those of other types.

    Raises:
        OptionError: with the column, and the possible ones.
    """
    for each in schema.fields:
        types = WRITE_COLUMNS.get(each.name)
        if types is None:
            raise OptionError(
                f"the column {each.name!r} does not belong to a message; columns are "
                f"{', '.join(WRITE_COLUMNS)}"
            )
        if each.dataType.simpleString() not in types:
            raise OptionError(
                f"the column {each.name!r} is {each.dataType.simpleString()}, not "
                f"{' or '.join(types)}"
            )
