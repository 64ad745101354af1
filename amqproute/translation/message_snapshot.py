# SPDX-License-Identifier: Apache-2.0
"""The parts of an AMQP 1.0 message that 0-9 cannot express, carried in a header.

A table has no place for symbols, uuids, arrays, or several data sections. If the translation of a
message is not reversible octet by octet, the delivery carries its sections in the header
``x-opt-amqp10``. When a client publishes that header, each part of the sections is restored if its
properties and headers are unchanged; the client's changes are translated as usual.

The header is a client's statement like any other. It can express nothing that a client of 1.0 could
not put into a message of its own: the result is checked like one (user-id, annotations, rights).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from amqproute.errors import DecodeError
from amqproute.translation.message_parts import MessageParts, visible
from amqproute.wire.amqp09.field_tables import FieldValue
from amqproute.wire.amqp10 import codec, sections
from amqproute.wire.amqp10.spec import Properties

_VERSION = 1
MOST_FRAGMENTS = 4096
"""Most body sections whose boundaries are stored; a body with more arrives as one."""


@dataclass(frozen=True)
class MessageSnapshot:
    """Sections of a message without header, delivery annotations and body.

    Attributes:
        annotations, properties, application, footer: the sections as octets, empty for none. The
            annotations are without those of brokers.
        body: for each body section the octets before its contents, and the number of these; None if
            the body becomes one data section anyway.
        text_body: whether the body is one amqp-value with a string.
        expiration_text: see `MessageParts.expiration_text`.
    """

    annotations: bytes = b""
    properties: bytes = b""
    application: bytes = b""
    footer: bytes = b""
    body: tuple[tuple[bytes, int], ...] | None = None
    text_body: bool = False
    expiration_text: str | None = None
    _parts: list[MessageParts] = field(default_factory=list, repr=False, compare=False)

    def octets(self) -> bytes:
        """Return the value of the header."""
        return codec.encode(
            [
                _VERSION,
                self.annotations,
                self.properties,
                self.application,
                self.footer,
                None if self.body is None else [list(each) for each in self.body],
                self.text_body,
                self.expiration_text,
            ]
        )

    @classmethod
    def from_header(cls, value: FieldValue) -> MessageSnapshot | None:
        """Read the header; None if it was not written by a broker of this program."""
        if isinstance(value, str):
            value = value.encode()  # Some clients write octets as text.
        if not isinstance(value, bytes):
            return None
        try:
            fields, after = codec.decode(bytes(value), most_values=4 * MOST_FRAGMENTS)
            if after != len(value) or not isinstance(fields, list) or len(fields) != 8:
                return None
            version, annotations, properties, application, footer, body, text_body, expiration = (
                fields
            )
            if version != _VERSION or not (
                all(isinstance(each, bytes) for each in (annotations, properties, application))
                and isinstance(footer, bytes)
                and isinstance(text_body, bool)
                and (expiration is None or isinstance(expiration, str))
            ):
                return None
            snapshot = cls(
                annotations, properties, application, footer, _body(body), text_body, expiration
            )
            snapshot.parts()
        except (DecodeError, ValueError):
            return None
        return snapshot

    def parts(self) -> MessageParts:
        """Return the sections decoded.

        Raises:
            DecodeError: they are not sections of these kinds.
        """
        if not self._parts:
            properties = _section(self.properties, 0x73)
            application = _section(self.application, 0x74)
            annotations = _section(self.annotations, 0x72)
            footer = _section(self.footer, 0x78)
            self._parts.append(
                MessageParts(
                    annotations=visible(annotations) if isinstance(annotations, Mapping) else {},
                    properties=properties if isinstance(properties, Properties) else Properties(),
                    application=dict(application) if isinstance(application, Mapping) else {},
                    footer=dict(footer) if isinstance(footer, Mapping) else None,
                    text_body=self.text_body,
                    expiration_text=self.expiration_text,
                )
            )
        return self._parts[0]

    def body_octets(self, body: bytes) -> bytes | None:
        """Return the original body sections around a body; None if it does not fit them."""
        if self.body is None or sum(size for _, size in self.body) != len(body):
            return None
        if self.text_body:
            try:
                body.decode()
            except UnicodeDecodeError:
                return None
        out: list[bytes] = []
        pos = 0
        for prefix, size in self.body:
            out += (prefix, body[pos : pos + size])
            pos += size
        return b"".join(out)


def _section(octets: bytes, code: int) -> object:
    if not octets:
        return None
    if sections.section_at(octets, 0, len(octets))[0] != code:
        raise DecodeError("a section in place of another one")
    return sections.decode_section(octets, 0, len(octets))


def _body(value: object) -> tuple[tuple[bytes, int], ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_FRAGMENTS:
        raise ValueError("not a list of body sections")
    fragments = []
    for each in value:
        prefix, size = each if isinstance(each, list) and len(each) == 2 else (None, None)
        if not isinstance(prefix, bytes) or not isinstance(size, int) or size < 0:
            raise ValueError("not a body section")
        # The octets before the contents must be the beginning of a section of this size.
        if not fits_prefix(prefix, size):
            raise ValueError("not the beginning of a body section")
        fragments.append((prefix, size))
    return tuple(fragments)


def fits_prefix(prefix: bytes, size: int) -> bool:
    """Return whether octets begin a data section, or an amqp-value with a string or octets.

    Args:
        prefix: descriptor, constructor and size.
        size: octets of the contents.
    """
    if not prefix:
        return False
    try:
        section, pos = sections.section_at(prefix, 0, len(prefix))
    except (DecodeError, IndexError):
        return False
    rest = prefix[pos:]
    codes = _CONSTRUCTORS.get((section, len(rest)), ())
    return bool(codes) and rest[0] in codes and int.from_bytes(rest[1:], "big") == size


_CONSTRUCTORS: Final[Mapping[tuple[int, int], tuple[int, ...]]] = {
    (0x75, 2): (0xA0,), (0x75, 5): (0xB0,), (0x77, 2): (0xA0, 0xA1), (0x77, 5): (0xB0, 0xB1),
}  # fmt: skip
"""Constructors that may follow a descriptor, by section and by the octets of code and size."""


__all__ = ["MOST_FRAGMENTS", "MessageSnapshot", "fits_prefix"]
