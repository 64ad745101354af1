# SPDX-License-Identifier: Apache-2.0
"""The parts of an AMQP 1.0 message, and how a client of 0-9 or 0-9-1 sees each.

`project` is the table of 09: part 5.3: it returns the properties and headers for a client, and
which of them show each part of the message. Both directions use it to detect changes: a part is
unchanged if its properties and headers are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID

from amqproute.translation.field_values import URN_UUID, to_amqp09
from amqproute.values import ORIGIN, TRACE
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue, FieldValueError
from amqproute.wire.amqp10.spec import Header, Properties
from amqproute.wire.amqp10.types import Symbol, ULong

KEPT_CONTENT: Final = Symbol("x-opt-amqp09")
"""Annotation: flags and values of the properties as a client of 0-9 or 0-9-1 sent them."""
KEPT_MESSAGE: Final = "x-opt-amqp10"
"""Header: the sections of a 1.0 message whose translation is not reversible."""
EXCHANGE: Final = Symbol("x-exchange")
ROUTING_KEY: Final = Symbol("x-routing-key")
BASIC_TYPE: Final = Symbol("x-basic-type")
BASIC_APP_ID: Final = Symbol("x-basic-app-id")
CARBON_COPY: Final = Symbol("x-cc")
HEADER_PREFIX: Final = "x-opt-header-"
"""Prefix of the annotation for a header that belongs neither to the application properties nor has
a valid name for an annotation; its name follows, percent-encoded."""
HIDDEN: Final = frozenset((KEPT_CONTENT, EXCHANGE, ROUTING_KEY, TRACE, ORIGIN))
"""Annotations of brokers that do not become headers."""

FIELD_HEADERS: Final[Mapping[str, str]] = {
    "to": "x-opt-to",
    "subject": "x-opt-subject",
    "group_id": "x-opt-group-id",
    "group_sequence": "x-opt-group-sequence",
    "reply_to_group_id": "x-opt-reply-to-group-id",
}
"""Properties of 1.0 without a counterpart in 0-9, and their headers."""
LONG_REPLY_TO: Final = "x-opt-reply-to"
FOOTER_HEADER: Final = "x-opt-footer"
ENCODED_BODY: Final = "amqp-1.0"
"""The type that declares the body to be encoded sections of 1.0 (09: part 5.5)."""
TEXT_TYPE: Final = "text/plain"
QUEUE_ADDRESS: Final = "/queues/"

SHORTSTR_OCTETS: Final = 255
DEFAULT_PRIORITY: Final = 4
_SAFE: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~ \\\""

Slot = tuple[bool, str]
"""A place in a content: a header (True) or a property (False), and its name."""


@dataclass
class MessageParts:
    """The parts of a message that clients of 0-9 and 0-9-1 can see or send back.

    Attributes:
        header: only durable, priority and ttl count.
        annotations: message annotations without those in `HIDDEN`.
        properties: the properties of the bare message.
        application: the application properties.
        footer: the footer, None without one.
        encoded_body: whether the body is sections of 1.0 and not data.
        text_body: whether the body is one amqp-value with a string.
        expiration_text: the text shown for an absolute-expiry-time; None if it was not shown.
    """

    header: Header = field(default_factory=Header)
    annotations: dict[object, object] = field(default_factory=dict)
    properties: Properties = field(default_factory=Properties)
    application: dict[str, object] = field(default_factory=dict)
    footer: dict[object, object] | None = None
    encoded_body: bool = False
    text_body: bool = False
    expiration_text: str | None = None


@dataclass
class Projection:
    """The parts of a message in 0-9 and 0-9-1.

    Attributes:
        properties: by the names of `BasicProperties`.
        headers: the header table.
        slots: for each part (its section and name) the places that show it: none, or several.
    """

    properties: dict[str, str | int] = field(default_factory=dict)
    headers: dict[str, FieldValue] = field(default_factory=dict)
    slots: dict[tuple[str, object], tuple[Slot, ...]] = field(default_factory=dict)

    def value(self, slot: Slot) -> FieldValue:
        """Return the value of a slot; None if it is empty."""
        is_header, name = slot
        return self.headers.get(name) if is_header else self.properties.get(name)

    def holds(self, slot: Slot) -> bool:
        """Return whether a slot has a value."""
        is_header, name = slot
        return name in (self.headers if is_header else self.properties)


def project(parts: MessageParts) -> Projection:
    """Translate all but the body to 0-9 and 0-9-1 (09: part 5.3)."""
    seen = Projection()
    for name, value in parts.application.items():
        _show_header(seen, ("application", name), name, value)
    for key, value in parts.annotations.items():
        _show_annotation(seen, key, value)
    _show_properties(seen, parts)
    if parts.footer is not None:
        footer = {str(key): value for key, value in parts.footer.items()}
        _show_header(seen, ("footer", None), FOOTER_HEADER, footer)
    _show_delivery(seen, parts)
    if parts.encoded_body:
        seen.properties["type"] = ENCODED_BODY
        seen.slots["body", None] = ((False, "type"),)
    elif parts.text_body and "content_type" not in seen.properties:
        seen.properties["content_type"] = TEXT_TYPE
        seen.slots["body", None] = ((False, "content_type"),)
    return seen


def _show_header(seen: Projection, part: tuple[str, object], name: str, value: object) -> None:
    """Show a part as a header, unless no table can hold it, or it would look like a snapshot."""
    seen.slots[part] = ()
    if name == KEPT_MESSAGE:
        return
    try:
        shown = to_amqp09(value)
        FieldTable({name: shown})
    except (FieldValueError, TypeError):
        return
    seen.headers[name] = shown
    seen.slots[part] = ((True, name),)


def _show_property(seen: Projection, part: tuple[str, object], name: str, value: str | int) -> None:
    seen.properties[name] = value
    seen.slots[part] = ((False, name),)


def _show_annotation(seen: Projection, key: object, value: object) -> None:
    part = ("annotation", key)
    seen.slots[part] = ()
    if not isinstance(key, str) or not key.startswith("x-"):
        return
    if key in (BASIC_TYPE, BASIC_APP_ID):
        if is_shortstr(value):
            _show_property(seen, part, "type" if key == BASIC_TYPE else "app_id", str(value))
    elif key == CARBON_COPY:
        _show_header(seen, part, "CC", value)
    elif key.startswith(HEADER_PREFIX):
        _show_header(seen, part, unquote(key[len(HEADER_PREFIX) :]), value)
    else:
        _show_header(seen, part, str(key), value)


def _show_properties(seen: Projection, parts: MessageParts) -> None:
    properties = parts.properties
    for name, header in (("message_id", "x-message-id"), ("correlation_id", "x-correlation-id")):
        value = getattr(properties, name)
        if value is None:
            continue
        text = _id_text(value)
        part = ("properties", name)
        if text is None:
            _show_header(seen, part, header, value)
        else:
            _show_property(seen, part, name, text)
    for name, header in FIELD_HEADERS.items():
        value = getattr(properties, name)
        if value is not None:
            shown = value if isinstance(value, str) else int(value)
            _show_header(seen, ("properties", name), header, shown)
    reply_to = properties.reply_to
    if reply_to is not None:
        part = ("properties", "reply_to")
        shown = reply_to_text(reply_to)
        if is_shortstr(shown):
            _show_property(seen, part, "reply_to", shown)
        else:
            _show_header(seen, part, LONG_REPLY_TO, reply_to)
    for name in ("content_type", "content_encoding"):
        value = getattr(properties, name)
        if value is not None:
            seen.slots["properties", name] = ()
            if is_shortstr(value):
                _show_property(seen, ("properties", name), name, str(value))
    if properties.user_id is not None:
        part = ("properties", "user_id")
        seen.slots[part] = ()
        text = _utf8(properties.user_id)
        if is_shortstr(text):
            _show_property(seen, part, "user_id", str(text))
    created = properties.creation_time
    if created is not None:
        part = ("properties", "creation_time")
        seen.slots[part] = ()
        if created >= 0:
            _show_property(seen, part, "timestamp", int(created) // 1000)


def _show_delivery(seen: Projection, parts: MessageParts) -> None:
    seen.properties["delivery_mode"] = 2 if parts.header.durable else 1
    if parts.header.priority != DEFAULT_PRIORITY:
        seen.properties["priority"] = int(parts.header.priority)
    if parts.header.ttl is not None:
        seen.properties["expiration"] = str(int(parts.header.ttl))
    if parts.properties.absolute_expiry_time is not None:
        seen.slots["properties", "absolute_expiry_time"] = ()
        if parts.header.ttl is None and parts.expiration_text is not None:
            _show_property(
                seen,
                ("properties", "absolute_expiry_time"),
                "expiration",
                parts.expiration_text,
            )


def _id_text(value: object) -> str | None:
    """Return an id as a short string; None if it must be a header."""
    if isinstance(value, UUID):
        return f"{URN_UUID}{value}"
    if isinstance(value, ULong):
        return str(int(value))
    return str(value) if is_shortstr(value) else None


def _utf8(octets: bytes) -> str | None:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return None


def is_shortstr(value: object) -> bool:
    """Return whether a value is a text that fits into a short string."""
    return (
        isinstance(value, str)
        and len(value) <= SHORTSTR_OCTETS
        and "\0" not in value
        and len(value.encode("utf-8", "surrogatepass")) <= SHORTSTR_OCTETS
    )


def reply_to_text(address: str) -> str:
    """Return a reply-to in the form for 0-9: the queue's name of a ``/queues/`` address."""
    return unquote(address[len(QUEUE_ADDRESS) :]) if address.startswith(QUEUE_ADDRESS) else address


def visible(annotations: Mapping[object, object]) -> dict[object, object]:
    """Return annotations without those of brokers."""
    return {key: value for key, value in annotations.items() if key not in HIDDEN}


def annotation_key(header: str) -> Symbol:
    """Return the annotation for a header that needs a name of ours."""
    return Symbol(HEADER_PREFIX + quote(header, safe=_SAFE))


__all__ = [
    "BASIC_APP_ID",
    "BASIC_TYPE",
    "CARBON_COPY",
    "DEFAULT_PRIORITY",
    "ENCODED_BODY",
    "EXCHANGE",
    "FIELD_HEADERS",
    "FOOTER_HEADER",
    "HEADER_PREFIX",
    "HIDDEN",
    "KEPT_CONTENT",
    "KEPT_MESSAGE",
    "LONG_REPLY_TO",
    "ROUTING_KEY",
    "SHORTSTR_OCTETS",
    "MessageParts",
    "Projection",
    "Slot",
    "annotation_key",
    "is_shortstr",
    "project",
    "reply_to_text",
    "visible",
]
