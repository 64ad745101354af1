# SPDX-License-Identifier: Apache-2.0
"""A message as the broker carries it: its octets, and cached decoded parts.

`Message` holds the annotated message exactly as it was received. The sections are located by
skipping (about a microsecond, whatever the body's size); a section is decoded on first use and then
kept. The *bare message* - properties, application-properties, body - is never encoded again: every
change makes a new `Message` whose bytes before the bare message are new and whose bare message is
the same octets (part 3 §3.2, requirements M-02 and T-38).

Of a very large message only the sections before its body are in memory; the remainder is its
``rest``, read in parts by its sender (`amqproute.body.IBody`). Code that uses header, annotations
and properties, or changes the octets before the bare message, need not distinguish.

A message of another format than that of part 3 is carried *enclosed* (M-09): its octets are the
body of a message of part 3, and a delivery annotation has the number of its format. No sender can
set that: delivery annotations end at each hop (`Message.received`). Code that counts, keeps or
moves messages sees one without properties; a consumer gets the octets back unchanged.

Values needed once per message on its path through a broker are read from raw section octets by
functions with a bounded cache: most messages on a link carry the same header and the same
annotations, octet for octet, so the answer is a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, cast

from amqproute.body import IBody
from amqproute.errors import DecodeError
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.sections import SectionOffsets
from amqproute.wire.amqp10.spec import Annotations, Header, Properties
from amqproute.wire.amqp10.types import Described, Symbol, UInt, ULong

REMEMBERED: Final = 1024
"""Number of cached headers, and of cached annotations."""

LONGEST_REMEMBERED: Final = 512
"""Largest cached section in octets: larger ones are decoded each time, so the cache stays
bounded."""

NO_HEADER: Final = Header()
EXPIRY_FIELD: Final = 8
"""Index of absolute-expiry-time among the properties (part 3 §3.2.4)."""
USER_ID_FIELD: Final = 1
REPLY_TO_FIELD: Final = 4
"""Indices of user-id and reply-to, likewise."""
VIEW_BYTES: Final = 4096
"""Octets from which on a view costs less than a copy."""
MESSAGE_FORMAT: Final = Symbol("x-opt-amqproute-message-format")
"""Delivery annotation of an enclosed message: its message-format (part 2 §2.7.5)."""


class Message:
    """An annotated message (part 3 §3.2), immutable.

    Args:
        encoded: the message as transferred, message-format 0; of a very large one the sections
            before its body.
        rest: the remainder, an `amqproute.body.IBody`: body and footer of a very large message,
            which are never in memory as a whole. None for all others.

    Attributes:
        located: the offsets of the sections, if cached.
    """

    __slots__ = ("_annotations", "_header", "_properties", "encoded", "located", "rest")

    def __init__(self, encoded: bytes, rest: IBody | None = None) -> None:
        self.encoded = encoded
        self.rest = rest
        self.located: SectionOffsets | None = None
        self._header: Header | None = None
        self._annotations: Annotations | None = None
        self._properties: Properties | None = None

    def __repr__(self) -> str:
        return f"<Message {self.size} bytes>"

    @property
    def size(self) -> int:
        """Total octets; ``len(encoded)`` is the part in memory."""
        rest: int = 0 if self.rest is None else self.rest.size
        return len(self.encoded) + rest

    @property
    def has_body(self) -> bool:
        """Whether there is a body, even an empty one."""
        return self.rest is not None or bool((self.located or self.offsets).body_code)

    @property
    def has_footer(self) -> bool:
        """Whether there is a footer, which may sign the message."""
        if self.rest is not None:
            return bool(self.rest.has_footer)
        offsets = self.located or self.offsets
        return offsets.footer_end > offsets.footer_start

    def forget(self) -> None:
        """Drop decoded parts, to keep only the octets while the message waits."""
        self.located = self._header = self._annotations = self._properties = None

    # -- sections ------------------------------------------------------------------------------

    @property
    def offsets(self) -> SectionOffsets:
        """The offsets of the sections.

        Per-message code reads ``located or offsets``: an attribute costs no call.

        Raises:
            DecodeError: the bytes are not the sections of a message.
        """
        offsets = self.located
        if offsets is None:
            offsets = self.located = sections.locate(self.encoded)
        return offsets

    @property
    def header(self) -> Header:
        """The header, or one with all defaults. Not to be changed."""
        header = self._header
        if header is None:
            end = (self.located or self.offsets).header_end
            header = self._header = header_of(self.encoded[:end]) if end else NO_HEADER
        return header

    @property
    def annotations(self) -> Annotations:
        """The message annotations, empty without the section. Not to be changed."""
        annotations = self._annotations
        if annotations is None:
            annotations = self._annotations = annotations_of(self.annotation_bytes)
        return annotations

    @property
    def annotation_bytes(self) -> bytes:
        """The octets of the message-annotations section, empty without one."""
        offsets = self.located or self.offsets
        return self.encoded[offsets.message_annotations_start : offsets.message_annotations_end]

    @property
    def properties(self) -> Properties:
        """The properties, or all null without the section."""
        properties = self._properties
        if properties is None:
            offsets = self.located or self.offsets
            if offsets.properties_end > offsets.properties_start:
                properties = sections.decode_section(
                    self.encoded, offsets.properties_start, offsets.properties_end
                )
            else:
                properties = Properties()
            self._properties = properties
        assert properties is not None
        return properties

    @property
    def application_properties(self) -> Mapping[str, object]:
        """The application properties, empty without the section."""
        offsets = self.located or self.offsets
        start, end = offsets.application_properties_start, offsets.application_properties_end
        return sections.decode_section(self.encoded, start, end) if end > start else {}

    @property
    def bare(self) -> bytes:
        """The part of the bare message in memory, which hops pass on octet for octet."""
        offsets = self.located or self.offsets
        return self.encoded[offsets.bare_start : offsets.bare_end]

    def body_values(self) -> list[object]:
        """Decode the body sections, for a client that shows them."""
        encoded = self.encoded
        pos, end = self.offsets.body_start, self.offsets.body_end
        values = []
        while pos < end:
            after = sections.skip(encoded, pos, end)
            values.append(sections.decode_section(encoded, pos, after))
            pos = after
        return values

    @property
    def foreign_format(self) -> int:
        """The message-format of an enclosed message; 0 for a message of part 3."""
        offsets = self.located or self.offsets
        start, end = offsets.delivery_annotations_start, offsets.delivery_annotations_end
        if not end:
            return 0
        annotations = sections.decode_section(self.encoded, start, end)
        return int(annotations.get(MESSAGE_FORMAT, 0))

    def enclosed(self) -> bytes:
        """Return the octets of an enclosed message, as far as they are in memory."""
        if self.rest is not None:
            return b""
        (octets,) = self.body_values()
        assert isinstance(octets, bytes)
        return octets

    # -- what the broker asks for every message ------------------------------------------------

    @property
    def durable(self) -> bool:
        """header.durable."""
        return self.header.durable

    @property
    def delivery_count(self) -> int:
        """header.delivery-count as set by the sender."""
        return self.header.delivery_count

    @property
    def to(self) -> str | None:
        """properties.to, read without decoding the other properties (T-04)."""
        if self._properties is not None:
            return self._properties.to
        return sections.find_to(self.encoded, self.located or self.offsets)

    @property
    def user_id(self) -> object:
        """properties.user-id, read without decoding the other properties (M-17)."""
        if self._properties is not None:
            return self._properties.user_id
        return sections.find_property(self.encoded, self.located or self.offsets, USER_ID_FIELD)

    @property
    def reply_to(self) -> object:
        """properties.reply-to, read without decoding the other properties (M-18)."""
        if self._properties is not None:
            return self._properties.reply_to
        return sections.find_property(self.encoded, self.located or self.offsets, REPLY_TO_FIELD)

    def mentions(self, key: bytes) -> bool:
        """Return whether the octets of a symbol occur among the message annotations.

        The annotations are found from the front, without locating the other sections or decoding:
        for annotations that are checked on every message and occur on few.
        """
        encoded = self.encoded
        if len(encoded) < VIEW_BYTES and key not in encoded:
            return False  # the usual answer, for less than it takes to find the annotations
        start = annotations_from(encoded)
        end = 0
        if encoded[start : start + 2] == b"\x00\x53":
            section, code = encoded[start + 2 : start + 3], encoded[start + 3 : start + 4]
            if section > b"\x72":
                return False
            if section == b"\x72" and code == b"\xc1":
                end = start + 5 + int.from_bytes(encoded[start + 4 : start + 5], "big")
            elif section == b"\x72" and code == b"\xd1":
                end = start + 8 + int.from_bytes(encoded[start + 4 : start + 8], "big")
        if end:
            return encoded.find(key, start, end) >= 0
        return key in self.annotation_bytes

    def expires_ms(self, now_ms: int) -> int:
        """Return the time of its expiry, ms since the epoch; 0 for never (D-07).

        The earlier of ttl, counted from now, and absolute-expiry-time.
        """
        ttl = (self._header or self.header).ttl
        absolute = None
        offsets = self.located or self.offsets
        start = offsets.properties_start
        if offsets.properties_end != start and _may_expire_absolutely(self.encoded, start):
            absolute = self.properties.absolute_expiry_time
        if absolute is not None:
            # Times at or before the epoch are long past; 0 would mean never.
            absolute = max(1, int(absolute))
        if ttl is None:
            return absolute or 0
        end = now_ms + int(ttl)
        return end if absolute is None else min(end, absolute)

    def twin(self, encoded: bytes) -> Message:
        """Return a message that differs from this one in the octets of its body alone.

        Cached parts of this message are used for it as well.

        Args:
            encoded: its octets; the same up to the body's contents, which have the same size.
        """
        twin = Message(encoded)
        twin.located = self.located
        twin._header = self._header
        twin._annotations = self._annotations
        twin._properties = self._properties
        return twin

    # -- changed copies ------------------------------------------------------------------------

    def with_annotations(self, added: Annotations, *, drop: tuple[Symbol, ...] = ()) -> Message:
        """Return a message with annotations set, or dropped; the bare message is the same."""
        annotations = {key: value for key, value in self.annotations.items() if key not in drop}
        annotations.update(added)
        return self._with(self.encoded[: self.offsets.header_end], annotations)

    def without_expiry(self) -> Message:
        """Return a message whose header has no ttl: a dead letter does not expire again."""
        header = self.header
        if header.ttl is None:
            return self
        fresh = Header(durable=header.durable, priority=header.priority)
        return self._with(sections.encode_header(fresh), self.annotations)

    def undelivered(self) -> Message:
        """Return a message whose header counts no delivery attempts: it starts over."""
        header = self.header
        if not header.delivery_count and not header.first_acquirer:
            return self
        fresh = Header(durable=header.durable, priority=header.priority, ttl=header.ttl)
        return self._with(sections.encode_header(fresh), self.annotations)

    def _with(self, header: bytes, annotations: Annotations) -> Message:
        encoded = self.encoded
        offsets = self.offsets
        delivery = encoded[offsets.delivery_annotations_start : offsets.delivery_annotations_end]
        section = encode_annotations(annotations)
        return Message(b"".join((header, delivery, section, encoded[self.bare_from :])), self.rest)

    @property
    def bare_from(self) -> int:
        """Offset of the first octet after header and annotations: bare message and footer."""
        return (self.located or self.offsets).bare_start

    def received(self) -> Message:
        """Return the message as received: delivery annotations end at this hop (M-03).

        The bare message is the same; an absent body stays absent (M-23).
        """
        offsets = self.located or self.offsets
        if not offsets.delivery_annotations_end:
            return self
        encoded = self.encoded
        parts = (encoded[: offsets.header_end], self.annotation_bytes, encoded[self.bare_from :])
        return Message(b"".join(parts), self.rest)

    def with_to(self, address: str) -> Message:
        """Return a message without properties.to with that property added (T-14).

        This is done once, by the entry broker, before the message is in the network.

        Raises:
            DecodeError: the properties cannot be decoded.
        """
        return self._with_properties(to=address)

    def with_reply_to(self, address: str) -> Message:
        """Return the message with another properties.reply-to, as its entry broker writes it.

        Raises:
            DecodeError: the properties cannot be decoded.
        """
        return self._with_properties(reply_to=address)

    def _with_properties(self, **changes: Any) -> Message:
        encoded = self.encoded
        old = self.properties
        fields = {each.name: getattr(old, each.name) for each in Properties.fields}
        new = Properties(**{**fields, **changes})
        start = self.bare_from
        rest = self.offsets.properties_end or start
        return Message(b"".join((encoded[:start], codec.encode(new), encoded[rest:])), self.rest)

    def for_delivery(
        self, delivery_count: int, attempted: bool, expires_ms: int, now_ms: int
    ) -> tuple[bytes, bytes]:
        """Return the buffers to transfer to a consumer (M-04); ``rest``, if any, follows.

        Args:
            delivery_count: earlier attempts that failed.
            attempted: whether it was delivered before; else first-acquirer is set (L-22).
            expires_ms: time of its expiry; shortens the ttl, if it has one (T-30).
            now_ms: the wall clock.
        """
        end = (self.located or self.offsets).header_end
        old = self.encoded[:end]
        header = self.header
        ttl = None
        if header.ttl is not None:
            ttl = int(header.ttl)
            if expires_ms:
                # Never more than its former ttl: a clock may be set back.
                ttl = min(ttl, max(1, expires_ms - now_ms))
            return fresh_header(header, delivery_count, not attempted, ttl), rest_of(
                self.encoded, end
            )
        return _delivery_header(old, delivery_count, not attempted), rest_of(self.encoded, end)


def enclose(message_format: int, octets: bytes, rest: IBody | None = None) -> Message:
    """Return a message that carries one of another format (M-09).

    It counts as durable, since its own header cannot be read.

    Args:
        message_format: the format of the transfer, not 0.
        octets: the message; empty with a rest.
        rest: all of a very large message.
    """
    annotations = {MESSAGE_FORMAT: UInt(message_format)}
    head = sections.encode_header(Header(durable=True)) + sections.encode_annotations(
        spec.SECTION_DELIVERY_ANNOTATIONS, annotations
    )
    if rest is None:
        head += codec.encode(Described(ULong(spec.SECTION_DATA), octets))
    return Message(head, rest)


def rest_of(encoded: bytes, start: int) -> bytes:
    """Return the octets from `start` on, or a view if there are many of them."""
    if start and len(encoded) - start >= VIEW_BYTES:
        # Transports and engines accept a view in place of octets.
        return cast(bytes, memoryview(encoded)[start:])
    return encoded[start:]


def annotations_from(encoded: bytes) -> int:
    """Return the offset of the section after the header: the annotations, if any."""
    if encoded[:3] != b"\x00\x53\x70":
        return 0
    code = int.from_bytes(encoded[3:4], "big")  # a truncated message has no annotations
    if code == 0xC0:
        return 5 + int.from_bytes(encoded[4:5], "big")
    if code == 0x45:
        return 4
    return 8 + int.from_bytes(encoded[4:8], "big") if code == 0xD0 else 0


def encode_annotations(annotations: Annotations) -> bytes:
    """Encode a message-annotations section; nothing for no annotations."""
    return sections.encode_annotations(spec.SECTION_MESSAGE_ANNOTATIONS, annotations)


def fresh_header(header: Header, delivery_count: int, first: bool, ttl: int | None) -> bytes:
    """Encode a header for the next hop."""
    return sections.encode_header(
        Header(
            durable=header.durable,
            priority=header.priority,
            ttl=ttl,
            first_acquirer=first,
            delivery_count=delivery_count,
        )
    )


def _may_expire_absolutely(encoded: bytes, start: int) -> bool:
    """Return, without decoding, whether the properties reach as far as absolute-expiry-time."""
    if encoded[start : start + 4] == b"\x00\x53\x73\xc0":
        return encoded[start + 5] > EXPIRY_FIELD
    return encoded[start : start + 4] != b"\x00\x53\x73\x45"


def ends_with_data(encoded: bytes, start: int) -> bool:
    """Tell whether what begins at `start` is one data section, as usually written, to the end.

    Args:
        encoded: a message.
        start: where a section begins, or the message ends.
    """
    size = len(encoded) - start - 8
    if size > 0xFF - 3:
        return encoded[start : start + 8] == b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")
    return size >= -3 and encoded[start : start + 5] == bytes((0x00, 0x53, 0x75, 0xA0, size + 3))


def header_of(section: bytes) -> Header:
    """Decode a header section; equal sections give the same object.

    Raises:
        DecodeError: it is not a header section.
    """
    if len(section) > LONGEST_REMEMBERED:
        raise DecodeError("a header section larger than any header")
    return _header_of(section)


@lru_cache(maxsize=REMEMBERED)
def _header_of(section: bytes) -> Header:
    header = sections.decode_section(section, 0, len(section))
    assert isinstance(header, Header)
    return header


def annotations_of(section: bytes) -> Annotations:
    """Decode a message-annotations section; an empty one gives an empty mapping.

    Raises:
        DecodeError: it is not a map of symbols.
    """
    if not section:
        return {}
    if len(section) > LONGEST_REMEMBERED:
        return _decode_annotations(section)
    return _annotations_of(section)


@lru_cache(maxsize=REMEMBERED)
def _annotations_of(section: bytes) -> Annotations:
    return _decode_annotations(section)


def _decode_annotations(section: bytes) -> Annotations:
    annotations: Annotations = sections.decode_section(section, 0, len(section))
    return annotations


@lru_cache(maxsize=REMEMBERED)
def _delivery_header(section: bytes, delivery_count: int, first: bool) -> bytes:
    header = _header_of(section) if section else NO_HEADER
    return fresh_header(header, delivery_count, first, None)
