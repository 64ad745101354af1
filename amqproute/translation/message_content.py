# SPDX-License-Identifier: Apache-2.0
"""A message of AMQP 1.0 as a content of 0-9 or 0-9-1 (09: parts 5.3, 5.4, 5.5).

A message published by a client of 0-9 or 0-9-1 carries its original properties. As far as the
corresponding sections of 1.0 are unchanged, the original is sent octet by octet; only changes are
translated. Any other message is translated, and if the translation is not reversible, gets a
`MessageSnapshot` beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from amqproute.errors import DecodeError
from amqproute.message import Message
from amqproute.translation.body_layout import BodyLayout
from amqproute.translation.content_message import (
    LARGEST_SECTION,
    TranslatedContent,
    data_beginning,
    read_content,
    read_kept_content,
)
from amqproute.translation.field_values import is_fragile, is_same
from amqproute.translation.message_parts import (
    EXCHANGE,
    KEPT_CONTENT,
    KEPT_MESSAGE,
    ROUTING_KEY,
    MessageParts,
    is_shortstr,
    project,
    visible,
)
from amqproute.translation.message_snapshot import MOST_FRAGMENTS, MessageSnapshot
from amqproute.wire.amqp09.arguments import decode_properties, encode_properties
from amqproute.wire.amqp09.contents import ContentHead
from amqproute.wire.amqp09.field_tables import FieldTable, FieldValue, Int64
from amqproute.wire.amqp09.methods import BasicProperties
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.spec import Header, Properties

DELIVERY_COUNT: Final = "x-delivery-count"
LONGEST_HEAD: Final = 512
"""Octets of the sections before a body beyond which their translation is not remembered."""
MOST_HEADS: Final = 1024
"""Translations that are remembered."""

_DATA: Final = spec.SECTION_DATA
_VALUE: Final = spec.SECTION_AMQP_VALUE
_KEPT_FIRST: Final = codec.encode(KEPT_CONTENT)
_EXCHANGE_KEY: Final = codec.encode(EXCHANGE)
_ROUTING_KEY: Final = codec.encode(ROUTING_KEY)
_STRINGS: Final = (0xA1, 0xB1)
_BINARIES: Final = (0xA0, 0xB0)
_known_heads: dict[bytes, ContentHead] = {}


@dataclass(frozen=True)
class DeliveredContent:
    """A message in the form for a client of 0-9 or 0-9-1.

    Attributes:
        property_octets: flags and values for the content header.
        exchange: the exchange of its publish; empty for the default exchange.
        routing_key: the routing key of its publish.
        body: octets, in order; empty for a very large message.
        rest_size: octets of the body of a very large message, 0 for any other.
    """

    property_octets: bytes
    exchange: str
    routing_key: str
    body: tuple[bytes | memoryview, ...]
    rest_size: int = 0

    @property
    def size(self) -> int:
        """Octets of the body."""
        return self.rest_size or sum(map(len, self.body))


@dataclass(frozen=True)
class DeliveryState:
    """The facts of a delivery that are not in the message itself.

    Attributes:
        queue: its queue.
        now_ms: wall clock.
        ttl_ms: the remaining ttl; None for a message without one (09-M-07).
        is_routed_here: whether exchange and routing key in its annotations were set by this broker,
            or by one trusted to do so (09-M-08).
        own_domains: domains to be removed from a reply-to that a client had set without one
            (09-M-06).
        layout: the layout of the body of a very large message; needed if it has a ``rest``.
        plain_tags: whether the client speaks 0-9, whose libraries read common tags only (09-W-31).
        delivery_count: deliveries before this one, for header x-delivery-count; 0 for none.
    """

    queue: str
    now_ms: int
    ttl_ms: int | None = None
    is_routed_here: bool = True
    own_domains: frozenset[str] = frozenset()
    layout: BodyLayout | None = None
    plain_tags: bool = False
    delivery_count: int = 0


def content_of(message: Message, delivery: DeliveryState) -> DeliveredContent:
    """Translate a message.

    The result has no body of a very large message: see `body_layout.BodyExtractor`.

    Raises:
        DecodeError: its sections do not decode.
    """
    body: tuple[bytes | memoryview, ...] = ()
    fragments: Sequence[tuple[bytes, int]] | None
    layout, rest_size = delivery.layout, 0
    if layout is None:
        body, is_encoded, is_text, fragments = body_of(message)
        offsets = message.offsets
        footer = message.encoded[offsets.footer_start : offsets.footer_end]
    else:
        is_encoded, is_text, footer = layout.is_encoded, layout.is_text, layout.footer
        rest_size, fragments = layout.size, unusual(layout)
    kept = _as_kept(message, delivery, is_encoded, footer)
    exchange: object
    key: object
    if kept is not None:
        octets, exchange, key = kept
    else:
        annotations = message.annotations
        parts = _parts_of(message, delivery, is_encoded, is_text, footer)
        said = annotations.get(KEPT_CONTENT)
        known = read_kept_content(said) if isinstance(said, bytes) else None
        if known is not None:
            _hide_own_address(parts, known, annotations)
            octets = _kept_octets(parts, known, delivery)
        else:
            octets = _translated_octets(message, parts, fragments, footer)
        exchange, key = annotations.get(EXCHANGE), annotations.get(ROUTING_KEY)
    is_addressed = delivery.is_routed_here and is_shortstr(exchange) and is_shortstr(key)
    is_usual = layout is None and fragments is None and not (is_encoded or is_text)
    if is_addressed and is_usual and (kept is not None or not _has_terms(message)):
        _remember_head(message, octets, str(exchange), str(key))
    if delivery.delivery_count:
        octets = _with_delivery_count(octets, delivery.delivery_count)
    if delivery.plain_tags:
        octets = _with_plain_tags(octets)
    if is_addressed:
        return DeliveredContent(octets, str(exchange), str(key), body, rest_size)
    return DeliveredContent(octets, "", delivery.queue, body, rest_size)


def known_content(message: Message, start: int) -> tuple[ContentHead, bytes] | None:
    """Look up what a message becomes whose sections before the body were translated before.

    That is so where these sections alone decide: a message without a time of expiry, and with a
    body of one data section. If a broker has changed it, it has no reply-to either. What is found
    is the same for every consumer that is told of no earlier deliveries and understands all tags.

    Args:
        message: not a very large one.
        start: where its body may begin; where it does, if the sections are located.

    Returns:
        Its head and its body; None for a message that `content_of` has to translate.
    """
    encoded = message.encoded
    located = message.located
    if located is not None:
        start = located.body_start
    head = _known_heads.get(encoded[:start])
    if head is None:
        return None
    # What precedes `start` is whole sections, so one begins here.
    body_at = start + 8
    size = len(encoded) - body_at
    if size <= 0xFF - 3:  # it has the short form, if it is as we write it
        body_at -= 3
        size += 3
        if size < 0 or encoded[start:body_at] != data_beginning(size):
            return None
    elif size <= 0xFF or encoded[start:body_at] != data_beginning(size):
        return None
    return head, encoded[body_at:]


def _has_terms(message: Message) -> bool:
    """Tell whether the clock, or the names of this broker, take part in a translation."""
    properties = message.properties
    return properties.absolute_expiry_time is not None or properties.reply_to is not None


def _remember_head(message: Message, octets: bytes, exchange: str, key: str) -> None:
    """Have `known_content` find the translation of a message with a usual body."""
    offsets = message.offsets
    start = offsets.body_start
    if (
        0 < start <= LONGEST_HEAD
        and offsets.body_end == len(message.encoded)
        and message.header.ttl is None
    ):
        if len(_known_heads) >= MOST_HEADS:
            _known_heads.clear()
        _known_heads[message.encoded[:start]] = ContentHead(exchange, key, octets)


def unusual(layout: BodyLayout) -> Sequence[tuple[bytes, int]] | None:
    """Return the fragments of a layout; None if any content of its size gets the same ones."""
    fragments = layout.fragments
    if fragments is not None and len(fragments) == 1:
        ((prefix, size),) = fragments
        if size <= LARGEST_SECTION and prefix == data_beginning(size):
            return None
    return fragments


def routing_headers(message: Message) -> Mapping[str, FieldValue]:
    """Return the headers used by a headers exchange to route a message of a 1.0 client.

    Raises:
        DecodeError: its sections do not decode.
    """
    parts = MessageParts(
        annotations=visible(message.annotations), application=dict(message.application_properties)
    )
    return project(parts).headers


def _parts_of(
    message: Message, delivery: DeliveryState, is_encoded: bool, is_text: bool, footer: bytes
) -> MessageParts:
    header = message.header
    properties = message.properties
    expiration = None
    expires = properties.absolute_expiry_time
    if expires is not None and delivery.ttl_ms is None:
        expiration = str(max(0, int(expires) - delivery.now_ms))
    return MessageParts(
        Header(durable=header.durable, priority=header.priority, ttl=delivery.ttl_ms),
        annotations=visible(message.annotations),
        properties=properties,
        application=dict(message.application_properties),
        footer=dict(sections.decode_section(footer, 0, len(footer))) if footer else None,
        encoded_body=is_encoded,
        text_body=is_text,
        expiration_text=expiration,
    )


def _as_kept(
    message: Message, delivery: DeliveryState, is_encoded: bool, footer: bytes
) -> tuple[bytes, str, str] | None:
    """Detect from the octets, without decoding a section, that nothing has changed.

    Returns:
        The original properties, exchange and routing key; None if the sections must be decoded.
    """
    annotations = message.annotation_bytes
    # As written by `TranslatedContent.annotation_section`: stored properties come first.
    pos = 12 if annotations[3:4] == b"\xd1" else 6
    if not annotations.startswith(_KEPT_FIRST, pos):
        return None
    start = pos + len(_KEPT_FIRST)
    kept, _ = _sized(annotations, start, 0xA0)
    known = None if kept is None else read_kept_content(kept)
    if known is None:
        return None
    end = pos + len(known.annotation_items)
    if annotations[pos:end] != known.annotation_items:
        return None
    exchange, end = _text_behind(annotations, end, _EXCHANGE_KEY)
    key, end = _text_behind(annotations, end, _ROUTING_KEY)
    if exchange is None or key is None or end != len(annotations):
        return None
    header, old, offsets = message.header, known.parts, message.offsets
    if (
        header.durable is not old.header.durable
        or delivery.ttl_ms != old.header.ttl
        or header.priority != old.header.priority
        or is_encoded is not old.encoded_body
        or old.properties.absolute_expiry_time is not None
    ):
        return None
    encoded = message.encoded
    begin, stop = offsets.bare_start, offsets.body_start or offsets.bare_end
    if encoded[begin:stop] != known.bare_head:
        return None
    if footer != known.footer:
        return None
    return known.property_octets, exchange, key


def _text_behind(octets: bytes, pos: int, name: bytes) -> tuple[str | None, int]:
    """Read a string whose annotation must begin at an offset."""
    if not octets.startswith(name, pos):
        return None, pos
    text, end = _sized(octets, pos + len(name), 0xA1)
    try:
        return None if text is None else text.decode(), end
    except UnicodeDecodeError:
        return None, end


def _sized(octets: bytes, pos: int, code: int) -> tuple[bytes | None, int]:
    """Read octets with a size, after a constructor whose short form is `code`."""
    found = octets[pos] if pos < len(octets) else -1
    if found == code:
        start = pos + 2
        end = start + int.from_bytes(octets[pos + 1 : start], "big")
    elif found == code | 0x10:
        start = pos + 5
        end = start + int.from_bytes(octets[pos + 1 : start], "big")
    else:
        return None, pos
    return octets[start:end], end


def _kept_octets(parts: MessageParts, known: TranslatedContent, delivery: DeliveryState) -> bytes:
    """Return the original properties with later changes."""
    then = project(known.parts)
    now = project(parts)
    properties = decode_properties(BasicProperties.class_id, known.property_octets)
    assert isinstance(properties, BasicProperties)
    is_changed = False
    for name in {*then.properties, *now.properties}:
        value = now.properties.get(name)
        if is_same(then.properties.get(name), value):
            continue
        if name == "reply_to" and _is_own(properties.reply_to, value, delivery.own_domains):
            continue
        setattr(properties, name, value)
        is_changed = True
    headers = dict(properties.headers or {})
    is_other = False
    for name in [*then.headers, *(each for each in now.headers if each not in then.headers)]:
        if name not in now.headers:
            is_other = headers.pop(name, then) is not then or is_other
        elif name not in then.headers or not is_same(then.headers[name], now.headers[name]):
            headers[name] = now.headers[name]
            is_other = True
    if is_other:
        properties.headers = FieldTable(headers)
    return encode_properties(properties) if is_changed or is_other else known.property_octets


def _hide_own_address(
    parts: MessageParts, known: TranslatedContent, annotations: Mapping[object, object]
) -> None:
    """Leave out a `to` that a broker made from the routing key (09-M-01): no sender set it."""
    to = parts.properties.to
    if to is not None and known.parts.properties.to is None and to == annotations.get(ROUTING_KEY):
        values = {each.name: getattr(parts.properties, each.name) for each in Properties.fields}
        parts.properties = Properties(**{**values, "to": None})


def _encoded_items(annotations: Mapping[object, object]) -> dict[bytes, bytes]:
    return {codec.encode(key): codec.encode(value) for key, value in annotations.items()}


def _is_own(set_name: str | None, value: object, domains: frozenset[str]) -> bool:
    """Return whether a reply-to is the name set by a client, with a domain of ours."""
    if not isinstance(value, str) or set_name is None:
        return False
    name, at, domain = value.rpartition("@")
    return bool(at) and name == set_name and domain.lower() in domains


def _translated_octets(
    message: Message,
    parts: MessageParts,
    fragments: Sequence[tuple[bytes, int]] | None,
    footer: bytes,
) -> bytes:
    """Translate by the tables, and store the irreversible parts."""
    seen = project(parts)
    properties = BasicProperties(**seen.properties)  # type: ignore[arg-type]
    headers = dict(seen.headers)
    if headers:
        properties.headers = FieldTable(headers)
    octets = encode_properties(properties)
    if (
        fragments is None
        and not any(map(is_fragile, headers.values()))
        and _comes_back(message, parts, read_content(properties, octets), footer)
    ):
        return octets
    offsets = message.offsets
    encoded = message.encoded
    annotations = message.annotation_bytes
    if len(parts.annotations) != len(message.annotations):
        annotations = sections.encode_annotations(
            spec.SECTION_MESSAGE_ANNOTATIONS, parts.annotations
        )
    headers[KEPT_MESSAGE] = MessageSnapshot(
        annotations,
        encoded[offsets.properties_start : offsets.properties_end],
        encoded[offsets.application_properties_start : offsets.application_properties_end],
        footer,
        None if fragments is None else tuple(fragments),
        parts.text_body,
        parts.expiration_text,
    ).octets()
    properties.headers = FieldTable(headers)
    return encode_properties(properties)


def _comes_back(
    message: Message, parts: MessageParts, again: TranslatedContent, footer: bytes
) -> bool:
    """Return whether publishing the translation gives the same message."""
    offsets = message.offsets
    start, end = offsets.bare_start, offsets.body_start or offsets.bare_end
    return (
        message.encoded[start:end] == again.bare_head
        and footer == again.footer
        and _encoded_items(parts.annotations) == _encoded_items(again.parts.annotations)
    )


def _with_delivery_count(octets: bytes, count: int) -> bytes:
    properties = decode_properties(BasicProperties.class_id, octets)
    assert isinstance(properties, BasicProperties)
    headers = dict(properties.headers or {})
    headers[DELIVERY_COUNT] = Int64(count)
    properties.headers = FieldTable(headers)
    return encode_properties(properties)


def _with_plain_tags(octets: bytes) -> bytes:
    properties = decode_properties(BasicProperties.class_id, octets)
    assert isinstance(properties, BasicProperties)
    if properties.headers is not None:
        plain = properties.headers.plain()
        if plain.octets != properties.headers.octets:
            properties.headers = plain
            return encode_properties(properties)
    return octets


def body_of(
    message: Message,
) -> tuple[tuple[bytes | memoryview, ...], bool, bool, list[tuple[bytes, int]] | None]:
    """Return the body for clients of 0-9 and 0-9-1 (09: part 5.5).

    Returns:
        The octets in order; whether they are encoded sections of 1.0; whether they are the text of
        one amqp-value; and for each section the octets before its contents with their number, None
        if the body is one data section with the usual beginning.

    Raises:
        DecodeError: the sections are malformed.
    """
    encoded = message.encoded
    offsets = message.offsets
    start, end = offsets.body_start, offsets.body_end
    code = offsets.body_code
    if not code:
        return (b"",), False, False, []
    if code == _VALUE:
        pos = sections.section_at(encoded, start, end)[1]
        content = _contents(encoded, pos, end, _STRINGS)
        is_text = content is not None
        if content is None:
            content = _contents(encoded, pos, end, _BINARIES)
        octets = encoded[start if content is None else content : end]
        if content is None or (is_text and not _is_utf8(octets)):
            return (encoded[start:end],), True, False, None
        return (octets,), False, is_text, [(encoded[start:content], end - content)]
    if code == _DATA and encoded[start + 1] == 0x53:
        # The usual case: one section with the usual beginning.
        at = start + (5 if encoded[start + 3] == 0xA0 else 8)
        if at <= end and encoded[start:at] == data_beginning(end - at):
            return (memoryview(encoded)[at:end],), False, False, None
    if code != _DATA:
        return (encoded[start:end],), True, False, None
    view = memoryview(encoded)
    bodies: list[memoryview] = []
    fragments: list[tuple[bytes, int]] = []
    pos = start
    while pos < end:
        after = sections.skip(encoded, pos, end)
        inner = sections.section_at(encoded, pos, end)[1]
        content = _contents(encoded, inner, after, _BINARIES)
        if content is None:
            raise DecodeError("a data section without octets")
        bodies.append(view[content:after])
        fragments.append((encoded[pos:content], after - content))
        pos = after
    if len(fragments) > MOST_FRAGMENTS:
        return tuple(bodies), False, False, None
    return tuple(bodies), False, False, fragments


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


def _contents(encoded: bytes, pos: int, end: int, codes: tuple[int, int]) -> int | None:
    """Return the offset of a binary's or string's octets that end with its section."""
    if pos < end and encoded[pos] == codes[0]:
        return pos + 2
    return pos + 5 if pos < end and encoded[pos] == codes[1] else None


__all__ = [
    "DeliveredContent",
    "DeliveryState",
    "body_of",
    "content_of",
    "known_content",
    "routing_headers",
]
