# SPDX-License-Identifier: Apache-2.0
"""A content of 0-9 or 0-9-1 as a message of AMQP 1.0 (09: parts 5.1, 5.2, 5.5).

`read_content` does the part that depends on the properties alone; for recent properties it is a
cache look-up. `TranslatedContent.head` adds exchange, routing key and address and returns the
octets of all sections before the body; `TranslatedContent.message` those of the whole message.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar
from uuid import UUID

from amqproute.errors import AmqprouteError, DecodeError
from amqproute.translation.field_values import URN_UUID, is_same, to_amqp10
from amqproute.translation.message_parts import (
    BASIC_APP_ID,
    BASIC_TYPE,
    CARBON_COPY,
    DEFAULT_PRIORITY,
    ENCODED_BODY,
    EXCHANGE,
    FIELD_HEADERS,
    FOOTER_HEADER,
    HEADER_PREFIX,
    HIDDEN,
    KEPT_CONTENT,
    KEPT_MESSAGE,
    LONG_REPLY_TO,
    ROUTING_KEY,
    MessageParts,
    Slot,
    annotation_key,
    project,
)
from amqproute.translation.message_snapshot import MessageSnapshot
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue
from amqproute.wire.amqp09.methods import BasicProperties
from amqproute.wire.amqp09.violations import ViolationError
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.spec import Header, Properties
from amqproute.wire.amqp10.types import Symbol, Timestamp, UInt

LONGEST_REMEMBERED: Final = 512
"""Most octets of properties to be cached."""
REMEMBERED: Final = 1024
"""Number of cached translations of properties."""

LARGEST_SECTION: Final = 0xFFFFFFFF
"""Most octets of a data section; a larger body has several of them."""
MOST_TTL: Final = 0xFFFFFFFF
"""The longest ttl of 1.0, in ms."""
ABSOLUTE_FROM: Final = 10**12
"""An expiration of 0-9 above this is a time, in ms since the epoch, and not a duration."""
BASIC_CLASS: Final = BasicProperties.class_id

_NOT_FROM_CLIENTS: Final = frozenset((*HIDDEN, BASIC_TYPE, BASIC_APP_ID, CARBON_COPY, KEPT_MESSAGE))
"""Annotations that are never made from a header of this name."""
_EXCHANGE_KEY: Final = codec.encode(EXCHANGE)
_ROUTING_KEY: Final = codec.encode(ROUTING_KEY)
_NO_PROPERTIES: Final = codec.encode(Properties())
Key = TypeVar("Key")
_UUID_TEXT: Final = len(URN_UUID) + 36


class ContentRefused(AmqprouteError):
    """A content that cannot become a message: precondition-failed 406 on its channel."""


@dataclass(frozen=True)
class TranslatedContent:
    """A content without its body, exchange and routing key.

    Attributes:
        property_octets: flags and values to be stored: as received, but without BCC.
        parts: the message without its body.
        header: the section as octets.
        annotation_count: number of message annotations, without exchange and routing key.
        annotation_items: these, encoded.
        bare_properties: the properties section as octets, empty for none.
        application: the application-properties section as octets, empty for none.
        footer: the footer as octets, empty for none.
        framing: beginnings of the body sections of the original message, if it came to the client
            from 1.0; None otherwise.
    """

    property_octets: bytes
    parts: MessageParts
    header: bytes
    annotation_count: int
    annotation_items: bytes
    bare_properties: bytes
    application: bytes
    footer: bytes
    framing: MessageSnapshot | None

    @property
    def bare_head(self) -> bytes:
        """The octets of the bare message before the body."""
        return self.bare_properties + self.application

    @property
    def is_plain(self) -> bool:
        """Any body becomes one data section, and nothing follows it."""
        return not self.parts.encoded_body and self.framing is None and not self.footer

    def annotation_section(self, exchange: str, routing_key: str) -> bytes:
        """Return the message annotations as octets."""
        body = bytearray(self.annotation_items)
        body += _EXCHANGE_KEY
        codec.put_string(body, exchange)
        body += _ROUTING_KEY
        codec.put_string(body, routing_key)
        count = 2 * self.annotation_count + 4
        size = len(body) + 1
        if size <= 0xFF and count <= 0xFF:
            start = bytes((0x00, 0x53, 0x72, 0xC1, size, count))
        else:
            start = b"\x00\x53\x72\xd1" + (size + 3).to_bytes(4, "big") + count.to_bytes(4, "big")
        return start + body

    def head(self, exchange: str, routing_key: str, to: str | None = None) -> bytes:
        """Return the sections before the body.

        Args:
            exchange: the exchange of the publish.
            routing_key: its routing key.
            to: the address if it goes to one (09-M-01); it replaces one from the client.
        """
        annotations = self.annotation_section(exchange, routing_key)
        properties = self.bare_properties
        if to is not None and to != self.parts.properties.to:
            properties = codec.encode(_changed(self.parts.properties, to=to))
        return b"".join((self.header, annotations, properties, self.application))

    def message(self, body: bytes, exchange: str, routing_key: str, to: str | None = None) -> bytes:
        """Return the whole message.

        Args:
            body: the body of the content.
            exchange, routing_key, to: see `head`.

        Raises:
            ContentRefused: the type declares the body to be sections of 1.0, and it is not.
        """
        return b"".join((self.head(exchange, routing_key, to), self.body_octets(body), self.footer))

    def body_octets(self, body: bytes) -> bytes:
        """Return the body sections.

        Raises:
            ContentRefused: see `message`.
        """
        if self.parts.encoded_body:
            check_encoded_body(body)
            return body
        if self.framing is not None:
            kept = self.framing.body_octets(body)
            if kept is not None:
                return kept
        return data_beginning(len(body)) + body


@lru_cache(maxsize=REMEMBERED)
def data_beginning(size: int) -> bytes:
    """Return the octets before those of a data section: a large body follows in parts.

    Args:
        size: octets of the body, less than 2**32.
    """
    if size <= 0xFF:
        return bytes((0x00, 0x53, 0x75, 0xA0, size))
    return b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")


def check_encoded_body(body: bytes) -> None:
    """Check that octets are the body of a message of 1.0 and nothing else.

    Raises:
        ContentRefused: they are not.
    """
    try:
        found = sections.locate(body)
        if not body or found.body_start != 0 or found.body_end != len(body):
            raise ContentRefused("the type is amqp-1.0 and the body is not a body of AMQP 1.0")
        pos = 0
        while pos < len(body):
            after = sections.skip(body, pos, len(body))
            sections.decode_section(body, pos, after)
            pos = after
    except DecodeError as error:
        raise ContentRefused(f"the type is amqp-1.0 and the body does not decode: {error}") from (
            error
        )


def read_content(
    properties: BasicProperties, property_octets: bytes, absolute_expiration: bool = False
) -> TranslatedContent:
    """Translate the properties of a content.

    Args:
        properties: decoded.
        property_octets: flags and values as received.
        absolute_expiration: whether the connection speaks 0-9, where a large expiration is a time.

    Raises:
        ContentRefused: the expiration is not a number (09: part 5.1).
    """
    if len(property_octets) > LONGEST_REMEMBERED:
        return _translate(properties, property_octets, absolute_expiration)
    known = _known.get((property_octets, absolute_expiration))
    if known is None:
        known = _translate(properties, property_octets, absolute_expiration)
        if len(_known) >= REMEMBERED:
            _known.clear()
        _known[property_octets, absolute_expiration] = known
    return known


_known: dict[tuple[bytes, bool], TranslatedContent] = {}


def read_kept_content(octets: bytes) -> TranslatedContent | None:
    """Translate properties stored in an annotation; None for invalid octets.

    Anybody may have written the annotation. It counts only as far as the message confirms it.
    """
    known = _known.get((octets, False))
    if known is not None:
        return known
    try:
        properties = decode_properties(BASIC_CLASS, octets)
        assert isinstance(properties, BasicProperties)
        return read_content(properties, octets)
    except (ViolationError, ContentRefused):
        return None


def _translate(
    properties: BasicProperties, octets: bytes, absolute_expiration: bool
) -> TranslatedContent:
    table = properties.headers
    if table is not None and "BCC" in table:
        # Routing has read it; nobody else may see it (09: part 5.2).
        table = FieldTable({name: value for name, value in table.items() if name != "BCC"})
        properties = _copied(properties, table)
        octets = encode_properties(properties)
    headers: Mapping[str, FieldValue] = {} if table is None else table
    snapshot = (
        MessageSnapshot.from_header(headers[KEPT_MESSAGE]) if (KEPT_MESSAGE in headers) else None
    )
    shown: Container[tuple[str, object]] = ()
    restored: set[tuple[str, object]] = set()
    same: set[Slot] = set()
    if snapshot is not None:
        same.add((True, KEPT_MESSAGE))
        shown, restored, unchanged = _unchanged(snapshot.parts(), properties, headers)
        same |= unchanged
    parts = _generic_parts(properties, headers, same, absolute_expiration)
    exact = set[str]()
    framing = snapshot
    if snapshot is not None:
        exact = _restore(parts, snapshot, restored)
        if ("body", None) in shown and ("body", None) not in restored:
            framing = None  # The stored framing does not describe the client's body.
    if snapshot is not None and "properties" in exact:
        bare_properties = snapshot.properties
    else:
        bare_properties = codec.encode(parts.properties)
        if bare_properties == _NO_PROPERTIES:
            bare_properties = b""
    application = b""
    if snapshot is not None and "application" in exact:
        application = snapshot.application
    elif parts.application:
        application = sections.encode_section(
            spec.SECTION_APPLICATION_PROPERTIES, parts.application
        )
    footer = b""
    if snapshot is not None and "footer" in exact:
        footer = snapshot.footer
    elif parts.footer is not None:
        footer = sections.encode_section(spec.SECTION_FOOTER, parts.footer)
    header = b""
    if (
        parts.header.durable
        or parts.header.ttl is not None
        or parts.header.priority != DEFAULT_PRIORITY
    ):
        header = sections.encode_header(parts.header)
    annotations = {KEPT_CONTENT: octets, **parts.annotations}
    items = bytearray()
    for key, value in annotations.items():
        codec.encode_into(items, key)
        codec.encode_into(items, value)
    return TranslatedContent(
        octets,
        parts,
        header,
        len(annotations),
        bytes(items),
        bare_properties,
        application,
        footer,
        framing,
    )


def _copied(properties: BasicProperties, headers: FieldTable) -> BasicProperties:
    values = {name: getattr(properties, name) for name, _ in BasicProperties.layout}
    return BasicProperties(**{**values, "headers": headers})


def _changed(properties: Properties, to: str) -> Properties:
    values = {each.name: getattr(properties, each.name) for each in Properties.fields}
    return Properties(**{**values, "to": to})


def _unchanged(
    kept: MessageParts, properties: BasicProperties, headers: Mapping[str, FieldValue]
) -> tuple[Container[tuple[str, object]], set[tuple[str, object]], set[Slot]]:
    """Return the parts of a message that a client has left unchanged, and where these show."""
    seen = project(kept)
    whole: set[tuple[str, object]] = set()
    same: set[Slot] = set()
    for part, slots in seen.slots.items():
        for slot in slots:
            is_header, name = slot
            there = headers.get(name) if is_header else getattr(properties, name)
            if is_header and name not in headers:
                break
            if not is_same(seen.value(slot), there):
                break
            same.add(slot)
        else:
            whole.add(part)
    return seen.slots, whole, same


def _restore(
    parts: MessageParts, snapshot: MessageSnapshot, restored: set[tuple[str, object]]
) -> set[str]:
    """Restore parts; return the unchanged sections, octet by octet."""
    kept = snapshot.parts()
    exact = set()
    values = {each.name: getattr(kept.properties, each.name) for each in Properties.fields}
    there = {name for name, value in values.items() if value is not None}
    said = {
        name for name in values if getattr(parts.properties, name) is not None
    }  # by the client, whose value wins
    back = {name for name in there if ("properties", name) in restored}
    if back == there and not said and snapshot.properties:
        exact.add("properties")
    for name in back - said:
        setattr(parts.properties, name, values[name])
    is_whole = _merge("application", parts.application, kept.application, restored)
    if is_whole and snapshot.application:
        exact.add("application")
    _merge("annotation", parts.annotations, kept.annotations, restored)
    if kept.footer is not None and ("footer", None) in restored:
        parts.footer = kept.footer
        exact.add("footer")
    return exact


def _merge(
    section: str,
    mine: dict[Key, object],
    theirs: Mapping[Key, object],
    restored: Container[tuple[str, object]],
) -> bool:
    """Restore unchanged values of a map; return whether all are, and no others are present."""
    back = {name: value for name, value in theirs.items() if (section, name) in restored}
    is_whole = len(back) == len(theirs) and not mine
    said = dict(mine)
    mine.clear()
    mine.update(back)
    mine.update(said)
    return is_whole


def _generic_parts(
    properties: BasicProperties,
    headers: Mapping[str, FieldValue],
    same: set[Slot],
    absolute_expiration: bool,
) -> MessageParts:
    """Translate the parts that differ from a snapshot."""

    def value_of(name: str) -> str | int | None:
        if same and (False, name) in same:
            return None
        value: str | int | None = getattr(properties, name)
        return value

    def text_of(name: str) -> str | None:
        value = value_of(name)
        return value if isinstance(value, str) else None

    priority = properties.priority
    parts = MessageParts(
        Header(
            durable=properties.delivery_mode == 2,
            priority=DEFAULT_PRIORITY if priority is None else priority,
        )
    )
    expiration = text_of("expiration")
    to = Properties(
        message_id=_identifier(text_of("message_id")),
        user_id=None if (user := text_of("user_id")) is None else user.encode(),
        reply_to=text_of("reply_to"),
        correlation_id=_identifier(text_of("correlation_id")),
        content_type=_symbol(text_of("content_type")),
        content_encoding=_symbol(text_of("content_encoding")),
    )
    parts.properties = to
    if expiration is not None:
        number = _expiration(expiration)
        if absolute_expiration and number > ABSOLUTE_FROM:
            to.absolute_expiry_time = Timestamp(min(number, (1 << 63) - 1))
        else:
            parts.header.ttl = min(number, MOST_TTL)
    seconds = value_of("timestamp")
    if isinstance(seconds, int) and seconds * 1000 < 1 << 63:
        to.creation_time = Timestamp(seconds * 1000)
    kind = text_of("type")
    if kind == ENCODED_BODY:
        parts.encoded_body = True
    elif kind is not None:
        parts.annotations[BASIC_TYPE] = kind
    app_id = text_of("app_id")
    if app_id is not None:
        parts.annotations[BASIC_APP_ID] = app_id
    for name, value in headers.items():
        if not (same and (True, name) in same):
            _take_header(parts, name, value)
    return parts


def _take_header(parts: MessageParts, name: str, value: FieldValue) -> None:
    if name[:2] != "x-":
        nested = isinstance(value, Mapping) or type(value) is tuple
        if name == "CC" and nested and not isinstance(value, Mapping):
            parts.annotations[CARBON_COPY] = to_amqp10(value)
        elif nested:
            parts.annotations[annotation_key(name)] = to_amqp10(value)
        else:
            parts.application[name] = to_amqp10(value)
        return
    if name[:6] == "x-opt-" and _take_field(parts, name, value):
        return
    is_free = name.isascii() and name not in _NOT_FROM_CLIENTS and name[:13] != HEADER_PREFIX
    parts.annotations[Symbol(name) if is_free else annotation_key(name)] = to_amqp10(value)


def _take_field(parts: MessageParts, name: str, value: FieldValue) -> bool:
    """Use a header that carries a property or the footer of 1.0."""
    field = _FIELDS.get(name)
    if field is not None:
        if field == "group_sequence":
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TTL:
                parts.properties.group_sequence = UInt(value)
                return True
        elif isinstance(value, str):
            setattr(parts.properties, field, value)
            return True
    elif name == LONG_REPLY_TO and isinstance(value, str) and parts.properties.reply_to is None:
        parts.properties.reply_to = value
        return True
    elif name == FOOTER_HEADER and isinstance(value, Mapping) and all(map(str.isascii, value)):
        parts.footer = {Symbol(key): to_amqp10(each) for key, each in value.items()}
        return True
    return False


_FIELDS: Final[Mapping[str, str]] = {header: name for name, header in FIELD_HEADERS.items()}


def _identifier(text: str | None) -> str | UUID | None:
    if text is not None and len(text) == _UUID_TEXT and text.startswith(URN_UUID):
        try:
            found = UUID(text[len(URN_UUID) :])
        except ValueError:
            return text
        if str(found) == text[len(URN_UUID) :].lower():
            return found
    return text


def _symbol(text: str | None) -> Symbol | None:
    return Symbol(text) if text is not None and text.isascii() else None


def _expiration(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ContentRefused(f"the expiration {text!r:.40} is not a number of milliseconds")
    return int(text)


__all__ = [
    "LARGEST_SECTION",
    "ContentRefused",
    "TranslatedContent",
    "check_encoded_body",
    "data_beginning",
    "read_content",
    "read_kept_content",
]
