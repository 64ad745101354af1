# SPDX-License-Identifier: Apache-2.0
"""Encoding of messages from the command line, and formatting of received ones."""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from amqproute.errors import AmqpError, DecodeError, NotImplementedHere
from amqproute.message import Message
from amqproute.values import REPORT, RETURN_TO, SECURE_PATH
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import Array, Described, Symbol, Timestamp, UByte, UInt

__all__ = [
    "MessageDraft",
    "body_of",
    "decode_reply",
    "encode_commands",
    "encode_request",
    "outcome_words",
    "plain",
    "shown",
]


Facts: TypeAlias = dict[str, Any]
"""Attributes of something by name, in values that JSON can hold: those of management are of the
protocol's open type system, and their types stand with the daemon."""


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """The common properties of all messages of one ``send``.

    Attributes:
        to: the address; properties.to.
        durable: survives a restart of every broker on the way.
        priority: 0 to 9, or None for the default.
        ttl_ms: lifetime, or None.
        return_to: address for returned messages and reports, or None.
        reports: the reports to send there; none for the default ones.
        secure_path: the level below which it must not travel, or None.
        properties: application-properties.
        message_id: the id of all messages; None for a new one each.
        standard: further fields of `spec.Properties`, by their names there.
    """

    to: str
    durable: bool = True
    priority: int | None = None
    ttl_ms: int | None = None
    return_to: str | None = None
    reports: tuple[str, ...] = ()
    secure_path: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
    message_id: str | None = None
    # Any: fields of `spec.Properties`, each of its own type.
    standard: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, body: str | bytes, now_ms: int) -> tuple[str, bytes]:
        """Encode one message: text as amqp-value, bytes as data.

        Returns:
            Its message-id and its octets.
        """
        is_text = isinstance(body, str)
        message_id, head = self.encode_head(is_text, now_ms)
        section = spec.SECTION_AMQP_VALUE if is_text else spec.SECTION_DATA
        return message_id, head + sections.encode_section(section, body)

    def encode_head(self, is_text: bool, now_ms: int) -> tuple[str, bytes]:
        """Encode the sections before the body.

        Returns:
            The message-id and the octets.
        """
        message_id = self.message_id or str(uuid.uuid4())
        parts = [
            sections.encode_header(
                spec.Header(
                    durable=self.durable,
                    priority=UByte(4 if self.priority is None else self.priority),
                    ttl=None if self.ttl_ms is None else UInt(self.ttl_ms),
                )
            )
        ]
        annotations: dict[Symbol, Any] = {}
        if self.return_to is not None:
            annotations[RETURN_TO] = self.return_to
        if self.reports:
            annotations[REPORT] = [Symbol(word) for word in self.reports]
        if self.secure_path is not None:
            annotations[SECURE_PATH] = Symbol(self.secure_path)
        if annotations:
            parts.append(sections.encode_annotations(spec.SECTION_MESSAGE_ANNOTATIONS, annotations))
        fields = {
            "content_type": None if is_text else Symbol("application/octet-stream"),
            "creation_time": Timestamp(now_ms),
            **self.standard,
        }
        parts.append(codec.encode(spec.Properties(message_id=message_id, to=self.to, **fields)))
        if self.properties:
            section = spec.SECTION_APPLICATION_PROPERTIES
            parts.append(sections.encode_section(section, dict(self.properties)))
        return message_id, b"".join(parts)


def encode_request(
    message_id: str, reply_to: str, properties: Mapping[str, object], body: Mapping[str, object]
) -> bytes:
    """Encode a request to ``$management``."""
    return b"".join(
        (
            codec.encode(spec.Properties(message_id=message_id, reply_to=reply_to)),
            sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, dict(properties)),
            sections.encode_section(spec.SECTION_AMQP_VALUE, dict(body)),
        )
    )


def encode_commands(message_id: str, reply_to: str, text: str) -> bytes:
    """Encode a batch of commands to ``$management``, a command on each line."""
    properties = codec.encode(spec.Properties(message_id=message_id, reply_to=reply_to))
    return properties + sections.encode_section(spec.SECTION_AMQP_VALUE, text)


def decode_reply(encoded: bytes) -> tuple[spec.Fields, object]:
    """Decode a reply of ``$management``: application-properties and body.

    Raises:
        DecodeError: it is not a message.
    """
    message = Message(encoded)
    bodies = list(_bodies(message))
    return message.application_properties, bodies[0] if bodies else None


def _bodies(message: Message) -> Iterator[Any]:
    """Decode the body, section for section."""
    offsets = message.offsets
    at = offsets.body_start
    while at < offsets.body_end:
        # A section is a described value: its descriptor, then the value.
        after = sections.skip(message.encoded, at, offsets.body_end)
        yield sections.decode_section(message.encoded, at, after)
        at = after


def body_of(message: Message) -> object:
    """Decode the body: bytes, one value, or a list of the sections' values.

    Raises:
        DecodeError: it is malformed.
    """
    bodies = list(_bodies(message))
    code = message.offsets.body_code
    if code == spec.SECTION_DATA:
        return b"".join(bodies)
    if code == spec.SECTION_AMQP_SEQUENCE:
        return [item for body in bodies for item in body]
    return bodies[0] if bodies else None


def plain(value: object) -> Any:  # Any: what JSON can hold
    """Convert a decoded value for JSON, without loss.

    Bytes become text if they are UTF-8, else ``{"base64": ...}``; times become ISO 8601.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Timestamp):
        return _time(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _text_or_base64(bytes(value))
    if isinstance(value, uuid.UUID | Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, Array):
        return [plain(item) for item in value.items]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Described):
        return {"descriptor": plain(value.descriptor), "value": plain(value.value)}
    if isinstance(value, spec.Composite):
        return {
            each.name.replace("_", "-"): plain(getattr(value, each.name))
            for each in value.fields
            if getattr(value, each.name) is not None
        }
    return str(value)


def _properties(properties: spec.Properties) -> Facts:
    facts: Facts = plain(properties)
    for key in ("creation-time", "absolute-expiry-time"):
        if key in facts:  # a plain int by now: the standard's table has its type
            facts[key] = _time(facts[key])
    return facts


def _time(value: int) -> str:
    try:
        moment = datetime.fromtimestamp(value / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(int(value))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text_or_base64(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def shown(encoded: bytes, message_format: int = 0) -> Facts:
    """Describe a message for ``receive --json``, without absent sections.

    A message that does not decode, or is of another message-format than that of part 3, has its
    octets under ``undecodable``, and the reason.
    """
    message = Message(encoded)
    try:
        if message_format:
            raise NotImplementedHere(f"message-format {message_format} is not that of AMQP 1.0")
        offsets = message.offsets
        facts: Facts = {"header": plain(message.header)}
        if message.annotations:
            facts["annotations"] = plain(message.annotations)
        facts["properties"] = _properties(message.properties)
        if offsets.application_properties_end:
            facts["application-properties"] = plain(message.application_properties)
        facts["body"] = plain(body_of(message))
    except (DecodeError, AmqpError) as error:
        return {
            "undecodable": base64.b64encode(encoded).decode(),
            "reason": error.description,
        }
    return facts


def outcome_words(outcome: object) -> tuple[str, str]:
    """Format an outcome: its name, and the cause if there is one."""
    if isinstance(outcome, spec.Accepted):
        return "accepted", ""
    if isinstance(outcome, spec.Rejected):
        error = outcome.error
        if error is None:
            return "rejected", ""
        return "rejected", f"{error.condition}: {error.description or 'no reason given'}"
    if isinstance(outcome, spec.Modified):
        where = "undeliverable here" if outcome.undeliverable_here else "not delivered"
        return "modified", where
    return "released", "the broker did not take it"
