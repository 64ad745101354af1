# SPDX-License-Identifier: Apache-2.0
"""The sections of a message, located without being decoded (part 3 §3.2).

A message is a row of described values. `locate` walks it by skipping lengths: about a
microsecond, whatever the body's size. The contents of a section are read only on request
(`decode_section`, `find_to`); the bare message is forwarded unchanged.

`locate` checks the order and the number of the sections, and that each lies within the data. It
does not ask for a body, which the standard wants and some senders leave out: see
`SectionOffsets.body_code`.
"""

from __future__ import annotations

import struct
from typing import Any, Final, cast

from amqproute.errors import DecodeError
from amqproute.wire.amqp10 import codec, spec, types
from amqproute.wire.amqp10.codec import MAX_DEPTH, WIDTHS
from amqproute.wire.amqp10.fastpath import read_header
from amqproute.wire.amqp10.spec import Annotations, Header

_U32 = struct.Struct(">I").unpack_from
_U64 = struct.Struct(">Q").unpack_from

_SECTION_BY_SYMBOL: Final = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": 0x78,
}
_LISTS = frozenset((types.LIST_0, types.LIST_8, types.LIST_32))
_MAPS = frozenset((types.MAP_8, types.MAP_32))
_BINARIES = frozenset((types.BINARY_8, types.BINARY_32))
# The format codes that may stand after a section's descriptor.
_CODES_BY_SECTION: Final = {
    0x70: _LISTS, 0x71: _MAPS, 0x72: _MAPS, 0x73: _LISTS, 0x74: _MAPS, 0x75: _BINARIES,
    0x76: _LISTS, 0x77: frozenset((types.DESCRIBED, *WIDTHS)), 0x78: _MAPS,
}  # fmt: skip
_PYTHON_TYPES: Final[dict[int, type]] = {
    0x71: dict, 0x72: dict, 0x74: dict, 0x75: bytes, 0x76: list, 0x78: dict,
}  # fmt: skip
_ANNOTATION_KEYS = frozenset((types.Symbol, types.ULong))
_KEY_TYPES: Final = {
    0x71: _ANNOTATION_KEYS, 0x72: _ANNOTATION_KEYS, 0x74: frozenset((str,)),
    0x78: _ANNOTATION_KEYS,
}  # fmt: skip
_ANNOTATED = frozenset((0x71, 0x72, 0x78))
# Start and end of each section, in the order of their descriptors.
_NOWHERE: Final = [0] * 18
_new = object.__new__


class SectionOffsets:
    """Offsets of the sections of one message.

    Each pair of ``_start`` and ``_end`` delimits a section with its descriptor; both are 0 for a
    section that is absent.

    Attributes:
        body_start, body_end: all the body sections together.
        body_code: 0x75 data, 0x76 amqp-sequence, 0x77 amqp-value; 0 for a message without one.
        bare_start, bare_end: properties, application-properties and body, which no intermediary
        changes. Header and annotations precede them, the footer follows.
    """

    __slots__ = (
        "application_properties_end",
        "application_properties_start",
        "bare_end",
        "bare_start",
        "body_code",
        "body_end",
        "body_start",
        "delivery_annotations_end",
        "delivery_annotations_start",
        "footer_end",
        "footer_start",
        "header_end",
        "header_start",
        "message_annotations_end",
        "message_annotations_start",
        "properties_end",
        "properties_start",
    )

    header_start: int
    header_end: int
    delivery_annotations_start: int
    delivery_annotations_end: int
    message_annotations_start: int
    message_annotations_end: int
    properties_start: int
    properties_end: int
    application_properties_start: int
    application_properties_end: int
    body_start: int
    body_end: int
    body_code: int
    footer_start: int
    footer_end: int
    bare_start: int
    bare_end: int

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SectionOffsets):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        told = []
        for name in (
            "header", "delivery_annotations", "message_annotations", "properties",
            "application_properties", "body", "footer", "bare",
        ):  # fmt: skip
            start, end = getattr(self, f"{name}_start"), getattr(self, f"{name}_end")
            if start != end:
                told.append(f" {name}={start}:{end}")
        return f"<SectionOffsets{''.join(told)}>"


def skip(data: bytes, offset: int, end: int | None = None) -> int:
    """Return the end of the value at ``offset``, without decoding it.

    Raises:
        DecodeError: no value starts there, or it does not end within the data.
    """
    return _skip(data, offset, len(data) if end is None else end, MAX_DEPTH)


def _skip(data: bytes, pos: int, end: int, depth: int) -> int:
    if pos >= end:
        raise DecodeError("the data end where a value has to start")
    code = data[pos]
    while code == types.DESCRIBED:
        if depth == 0:
            raise DecodeError(f"values nest deeper than {MAX_DEPTH}")
        depth -= 1
        pos = _skip(data, pos + 1, end, depth)
        if pos >= end:
            raise DecodeError("the data end where a value has to start")
        code = data[pos]
    width = WIDTHS.get(code)
    if width is None:
        raise DecodeError(f"format code 0x{code:02x} is not defined")
    if width >= 0:
        pos += 1 + width
    elif width == -1:
        if pos + 2 > end:
            raise DecodeError("the data end within a value")
        pos += 2 + data[pos + 1]
    else:
        if pos + 5 > end:
            raise DecodeError("the data end within a value")
        pos += 5 + _U32(data, pos + 1)[0]
    if pos > end:
        raise DecodeError("the data end within a value")
    return pos


def section_at(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Read a section's descriptor in any encoding.

    Returns:
        Its code, 0 for a symbol that names none, and the offset after it.

    Raises:
        DecodeError: no section begins there.
    """
    if data[pos] != types.DESCRIBED:
        raise DecodeError("a message section without a descriptor")
    descriptor, after = codec.decode(data, pos + 1, end)
    if type(descriptor) is types.Symbol:
        return _SECTION_BY_SYMBOL.get(descriptor, 0), after
    if type(descriptor) is types.ULong:
        return int(descriptor), after
    raise DecodeError("the descriptor of a message section is neither ulong nor symbol")


def locate(encoded: bytes) -> SectionOffsets:
    """Locate the sections of a message.

    Raises:
        DecodeError: the bytes are not the sections of one message, in the standard's order.
    """
    end = len(encoded)
    bounds = _NOWHERE.copy()
    codes = _CODES_BY_SECTION
    last = pos = 0
    while pos < end:
        start = pos
        try:
            if encoded[pos + 1] == 0x53 and encoded[pos] == 0:
                section = encoded[pos + 2]
                pos += 3
            else:
                section, pos = section_at(encoded, pos, end)
            code = encoded[pos]
            if section > last:
                if section > 0x78 or section < 0x70 or (last >= 0x75 and section != 0x78):
                    raise _order_error(section, last)
                bounds[2 * section - 0xE0] = start
                last = section
            elif section != last or (section != 0x75 and section != 0x76):
                # Only data and amqp-sequence repeat.
                raise _order_error(section, last)
            if code not in codes[section]:
                raise DecodeError(f"section 0x{section:02x} of a message has a wrong type")
            if code == 0xC0 or code == 0xC1 or code == 0xA0:
                pos += 2 + encoded[pos + 1]
            elif code == 0xB0:
                pos += 5 + _U32(encoded, pos + 1)[0]
            else:
                pos = _skip(encoded, pos, end, MAX_DEPTH)
        except (IndexError, struct.error):
            raise DecodeError("the data end within a message section") from None
        bounds[2 * section - 0xDF] = pos
    if pos > end:
        raise DecodeError("the data end within a message section")
    found = _new(SectionOffsets)
    (
        found.header_start,
        found.header_end,
        found.delivery_annotations_start,
        found.delivery_annotations_end,
        found.message_annotations_start,
        found.message_annotations_end,
        found.properties_start,
        found.properties_end,
        found.application_properties_start,
        found.application_properties_end,
        data_start,
        data_end,
        sequence_start,
        sequence_end,
        value_start,
        value_end,
        found.footer_start,
        found.footer_end,
    ) = bounds
    if data_end:
        found.body_code = 0x75
        found.body_start = data_start
        found.body_end = data_end
    elif value_end:
        found.body_code = 0x77
        found.body_start = value_start
        found.body_end = value_end
    else:
        found.body_code = 0x76 if sequence_end else 0
        found.body_start = sequence_start
        found.body_end = sequence_end
    found.bare_start = (
        found.message_annotations_end or found.delivery_annotations_end or found.header_end
    )
    found.bare_end = found.footer_start if found.footer_end else end
    return found


def _order_error(section: int, last: int) -> DecodeError:
    if not 0x70 <= section <= 0x78:
        return DecodeError(f"descriptor 0x{section:02x} is no section of a message")
    return DecodeError(f"message section 0x{section:02x} after 0x{last:02x}")


def find_to(encoded: bytes, offsets: SectionOffsets) -> str | None:
    """Read the field ``to`` of the properties, and nothing else.

    Returns:
        The address, or None for a message without it.

    Raises:
        DecodeError: the properties are broken before or in this field.
    """
    if offsets.properties_start == offsets.properties_end:
        return None
    try:
        pos = _find(encoded, offsets, 2)
        if not pos:
            return None
        code = encoded[pos]
        if code == 0xA1:
            start = pos + 2
            pos = start + encoded[pos + 1]
        elif code == 0xB1:
            start = pos + 5
            pos = start + _U32(encoded, pos + 1)[0]
        else:
            raise DecodeError("amqp:properties:list: to is no string")
        if pos > offsets.properties_end:
            raise DecodeError("amqp:properties:list: to is cut short")
        return encoded[start:pos].decode()
    except (IndexError, struct.error):
        raise DecodeError("amqp:properties:list is cut short") from None
    except UnicodeDecodeError:
        raise DecodeError("amqp:properties:list: to is not valid UTF-8") from None


def find_property(
    encoded: bytes, offsets: SectionOffsets, index: int
) -> object:  # the type depends on the field
    """Read one field of the properties, and nothing else.

    Args:
        encoded: the message.
        offsets: the offsets of its sections.
        index: the index of the field, from 0 (part 3 §3.2.4).

    Returns:
        The value, or None for a message without it.

    Raises:
        DecodeError: the properties are broken before or in this field.
    """
    if offsets.properties_start == offsets.properties_end:
        return None
    try:
        pos = _find(encoded, offsets, index)
    except (IndexError, struct.error):
        raise DecodeError("amqp:properties:list is cut short") from None
    return codec.decode(encoded, pos, offsets.properties_end)[0] if pos else None


def find_id_and_to(
    encoded: bytes, offsets: SectionOffsets
) -> tuple[object, str | None]:  # an id has one of four types
    """Read the fields ``message-id`` and ``to`` of the properties, and nothing else.

    Returns:
        Both, each None for a message without it.

    Raises:
        DecodeError: the properties are broken before or in these fields.
    """
    pos, end = offsets.properties_start, offsets.properties_end
    try:
        # The common case: an id of a usual kind, no user-id, and a short string.
        code = encoded[pos + 3] if pos < end and encoded[pos + 1] == 0x53 else 0
        if code == 0xC0:
            count = encoded[pos + 5]
            pos += 6
        elif code == 0xD0:
            count = _U32(encoded, pos + 8)[0]
            pos += 12
        else:
            count = 0
        if count > 2:
            code = encoded[pos]
            name: Any = None
            if code == 0xA1:
                after = pos + 2 + encoded[pos + 1]
                name = encoded[pos + 2 : after].decode()
            elif code == 0x80:
                after = pos + 9
                name = types.ULong(_U64(encoded, pos + 1)[0])
            elif code == 0x53:
                after = pos + 2
                name = types.ULong(encoded[pos + 1])
            elif code == 0x40:
                after = pos + 1
            else:
                after = end  # the generic path
            if encoded[after] == 0x40 and encoded[after + 1] == 0xA1:
                stop = after + 3 + encoded[after + 2]
                if stop <= end:
                    return name, encoded[after + 3 : stop].decode()
    except (IndexError, struct.error, UnicodeDecodeError):
        pass  # the generic path finds the fault
    return find_property(encoded, offsets, 0), find_to(encoded, offsets)


def _find(encoded: bytes, offsets: SectionOffsets, index: int) -> int:
    """Return the offset of a field of the properties, which exist; 0 for an absent or null one."""
    pos = offsets.properties_start
    end = offsets.properties_end
    pos = pos + 3 if encoded[pos + 1] == 0x53 else _skip(encoded, pos + 1, end, MAX_DEPTH)
    code = encoded[pos]
    if code == 0xC0:
        count = encoded[pos + 2]
        pos += 3
    elif code == 0xD0:
        count = _U32(encoded, pos + 5)[0]
        pos += 9
    else:
        return 0
    if count <= index:
        return 0
    for _ in range(index):
        # Without a call for most fields: each message is looked through for its address.
        width = WIDTHS.get(encoded[pos], -4)
        if width >= 0:
            pos += 1 + width
        elif width == -1:
            pos += 2 + encoded[pos + 1]
        else:
            pos = _skip(encoded, pos, end, MAX_DEPTH)
    if pos >= end:
        raise DecodeError("amqp:properties:list is cut short")
    return 0 if encoded[pos] == 0x40 else pos


def decode_section(
    encoded: bytes, start: int, end: int, most_values: int | None = None
) -> Any:  # Any: see Returns
    """Decode the one section between ``start`` and ``end``.

    Args:
        encoded: the octets.
        start: the first one of the section.
        end: the one behind it.
        most_values: largest number of values within it; see `codec.decode`. None: no bound.

    Returns:
        None when start and end are equal; `Header` or `Properties`; a dict for annotations,
        application-properties and footer; ``bytes`` for data, a ``list`` for amqp-sequence, and
        the value itself for amqp-value (composed, where it is of a type of `spec`).

    Raises:
        DecodeError: the section is broken.
    """
    if start == end:
        return None
    if encoded[start : start + 3] == b"\x00\x53\x70":
        header = read_header(encoded, start, end)
        if header is not None and header[1] == end:
            return header[0]
    value, after = codec.decode(encoded, start, end, most_values)
    if after != end or type(value) is not types.Described:
        raise DecodeError("not one message section")
    descriptor = value.descriptor
    if type(descriptor) is types.ULong:
        section = int(descriptor)
    elif type(descriptor) is types.Symbol:
        section = _SECTION_BY_SYMBOL.get(descriptor, 0)
    else:
        raise DecodeError("the descriptor of a message section is neither ulong nor symbol")
    if section == spec.SECTION_HEADER or section == spec.SECTION_PROPERTIES:
        return spec.compose(value)
    inner: Any = value.value
    if section == spec.SECTION_AMQP_VALUE:
        return spec.compose(inner)
    wanted = _PYTHON_TYPES.get(section)
    if wanted is None:
        raise DecodeError(f"descriptor {descriptor!r:.64} is no section of a message")
    kind: Any = type(inner)
    if kind is not wanted:
        raise DecodeError(f"section 0x{section:02x} of a message has a wrong type")
    if wanted is dict:
        allowed = _KEY_TYPES[section]
        for key in inner:
            if type(key) not in allowed:
                raise DecodeError(f"section 0x{section:02x} of a message has the key {key!r:.64}")
    return inner


def encode_section(section: int, value: object) -> bytes:
    """Encode a section other than header and properties: its descriptor and the value.

    Args:
        section: the numeric descriptor, as `spec.SECTION_DATA`.
        value: as `decode_section` gives it. ``str`` keys of annotations and of the footer go
            out as symbols.

    Raises:
        LocalProtocolError: the value has no encoding.
    """
    out = bytearray((0x00, 0x53, section))
    if section in _ANNOTATED:
        codec.put_fields(out, cast(Annotations, value))
    else:
        codec.encode_into(out, value)
    return bytes(out)


def encode_header(header: Header) -> bytes:
    """Encode a header section."""
    return codec.encode(header)


def encode_annotations(section: int, annotations: Annotations) -> bytes:
    """Encode delivery-annotations, message-annotations or footer; empty ones to nothing."""
    return encode_section(section, annotations) if annotations else b""
