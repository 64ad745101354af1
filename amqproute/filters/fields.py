# SPDX-License-Identifier: Apache-2.0
"""Reads single fields of a message, without decoding the others.

A `FieldReader` is made once for a filter and knows which fields it wants. For each message it walks
the application properties by skipping, compares the octets of each key, decodes the values it
wants and stops when it has them all; of the properties it decodes the fields at the wanted
places. Header and annotations are the message's own, which remembers them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from amqproute.errors import DecodeError
from amqproute.filters.names import (
    PROPERTY_INDEX,
    VIEWS,
    MessageView,
    SelectorField,
    SelectorSection,
    Value,
)
from amqproute.message import Message
from amqproute.wire.amqp10 import codec, sections

Row: TypeAlias = list[Value]
"""The values of a reader's fields, in the order of its argument."""

_U32 = struct.Struct(">I").unpack_from
_STRAIGHT: Final = frozenset((str, int, bool, bytes, float))


class FieldReader:
    """Reads a row of fields from each message.

    Args:
        fields: the fields to read, each once.
    """

    __slots__ = ("_annotations", "_application", "_header", "_properties", "_width", "fields")

    def __init__(self, fields: Sequence[SelectorField]) -> None:
        self.fields = tuple(fields)
        self._width = len(self.fields)
        self._application: dict[bytes, tuple[int, MessageView]] = {}
        # (place in the properties, place in the row, view), by place.
        self._properties: list[tuple[int, int, MessageView]] = []
        self._header: list[tuple[str, int, MessageView]] = []
        self._annotations: list[tuple[str, int, MessageView]] = []
        for slot, field in enumerate(self.fields):
            if field.section is SelectorSection.APPLICATION:
                self._application[field.key.encode()] = slot, field.view
            elif field.section is SelectorSection.PROPERTIES:
                self._properties.append((PROPERTY_INDEX[field.key], slot, field.view))
            elif field.section is SelectorSection.HEADER:
                self._header.append((field.key, slot, field.view))
            else:
                self._annotations.append((field.key, slot, field.view))
        self._properties.sort(key=lambda wanted: wanted[:2])

    def read(self, message: Message) -> Row:
        """Return the values of the fields; None for those that the message does not have.

        Raises:
            DecodeError: a section that is needed is broken before or in a wanted field.
        """
        row: Row = [None] * self._width
        try:
            if self._application:
                self._read_application(message, row)
            if self._properties:
                self._read_properties(message, row)
        except (IndexError, struct.error):
            raise DecodeError("a section of the message is cut short") from None
        if self._header:
            header = message.header
            for key, slot, view in self._header:
                row[slot] = VIEWS[view](getattr(header, key))
        if self._annotations:
            annotations = message.annotations
            for key, slot, view in self._annotations:
                row[slot] = VIEWS[view](annotations.get(key))
        return row

    def _read_application(self, message: Message, row: Row) -> None:
        encoded = message.encoded
        offsets = message.offsets
        end = offsets.application_properties_end
        pos = offsets.application_properties_start
        if pos == end:
            return
        pos = pos + 3 if encoded[pos + 1] == 0x53 else sections.skip(encoded, pos + 1, end)
        code = encoded[pos]
        if code == 0xC1:
            count = encoded[pos + 2] >> 1
            pos += 3
        elif code == 0xD1:
            count = _U32(encoded, pos + 5)[0] >> 1
            pos += 9
        else:
            raise DecodeError("amqp:application-properties:map is no map")
        wanted = self._application
        missing = len(wanted)
        while count:
            count -= 1
            code = encoded[pos]
            if code == 0xA1:
                start = pos + 2
                pos = start + encoded[pos + 1]
            elif code == 0xB1:
                start = pos + 5
                pos = start + _U32(encoded, pos + 1)[0]
            else:
                raise DecodeError("amqp:application-properties:map has a key that is no string")
            if pos >= end:
                raise DecodeError("amqp:application-properties:map is cut short")
            place = wanted.get(encoded[start:pos])
            if place is not None:
                value, pos = codec.decode(encoded, pos, end)
                row[place[0]] = value if type(value) in _STRAIGHT else VIEWS[place[1]](value)
                missing -= 1
                if not missing:
                    return
            elif encoded[pos] == 0xA1:
                pos += 2 + encoded[pos + 1]
            else:
                pos = sections.skip(encoded, pos, end)
        if pos > end:
            raise DecodeError("amqp:application-properties:map is cut short")

    def _read_properties(self, message: Message, row: Row) -> None:
        encoded = message.encoded
        offsets = message.offsets
        end = offsets.properties_end
        pos = offsets.properties_start
        if pos == end:
            return
        pos = pos + 3 if encoded[pos + 1] == 0x53 else sections.skip(encoded, pos + 1, end)
        code = encoded[pos]
        if code == 0xC0:
            count = encoded[pos + 2]
            pos += 3
        elif code == 0xD0:
            count = _U32(encoded, pos + 5)[0]
            pos += 9
        elif code == 0x45:
            return
        else:
            raise DecodeError("amqp:properties:list is no list")
        place = 0
        raw = None
        decoded = -1
        for index, slot, view in self._properties:
            if index >= count:
                return
            while place < index:
                pos = pos + 1 if encoded[pos] == 0x40 else sections.skip(encoded, pos, end)
                place += 1
            if decoded != index:
                raw, pos = codec.decode(encoded, pos, end)
                decoded = index
                place += 1
            if raw is not None:
                row[slot] = VIEWS[view](raw)
