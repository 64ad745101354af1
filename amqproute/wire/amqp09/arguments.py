# SPDX-License-Identifier: Apache-2.0
"""Methods and properties as octets, by their layouts, with fast paths for per-message methods.

The layouts define the encoding; `read_publish` and `read_ack` decode the two methods that occur
once per message in the same way, which a test verifies.

A shortstr is UTF-8 without NUL, anything else an illegal value. A reserved field is sent empty to a
peer of 0-9-1, and ignored when received from one (09: part 4.3).
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from amqproute.errors import LocalProtocolError
from amqproute.wire.amqp09.field_tables import (
    FieldTable,
    FieldValueError,
    read_table,
    table_octets,
)
from amqproute.wire.amqp09.methods import METHODS, PROPERTIES, BasicPublish
from amqproute.wire.amqp09.shapes import AmqpMethod, ContentProperties, FieldKind, InlineBody
from amqproute.wire.amqp09.versions import ProtocolVersion
from amqproute.wire.amqp09.violations import Violation, ViolationError

Argument: TypeAlias = bool | int | str | bytes | FieldTable | InlineBody
"""A field of a method, or a property."""

MOST_PLANS: Final = 256
"""Number of cached reading plans for combinations of properties."""

MOST_REMEMBERED: Final = 128
"""Number of decoded publish methods, properties and tables, each, in a connection's cache."""
LONGEST_REMEMBERED: Final = 192
"""Largest cached item in octets: it bounds the cache below 1 MiB."""

_SHORT = struct.Struct(">H")
_LONG = struct.Struct(">I")
_LONGLONG = struct.Struct(">Q")
_ACK = struct.Struct(">QB")
_NUMBERS: Final = {
    FieldKind.OCTET: struct.Struct(">B"),
    FieldKind.SHORT: _SHORT,
    FieldKind.LONG: _LONG,
    FieldKind.LONGLONG: _LONGLONG,
    FieldKind.TIMESTAMP: _LONGLONG,
}
_BIT = FieldKind.BIT
_OCTET = FieldKind.OCTET
_SHORTSTR = FieldKind.SHORTSTR
_LONGSTR = FieldKind.LONGSTR
_TABLE = FieldKind.TABLE
_TIMESTAMP = FieldKind.TIMESTAMP
_PUBLISH: Final = BasicPublish.traits.code

CLASSES_OF_0_9: Final = frozenset(
    kind.traits.class_id for kind in METHODS.values() if kind.traits.only_0_9
) - frozenset(kind.traits.class_id for kind in METHODS.values() if not kind.traits.only_0_9)
"""The ids of the classes that 0-9-1 has removed: file, stream, dtx, tunnel, message."""


def decode_method(payload: bytes, version: ProtocolVersion) -> AmqpMethod:
    """Decode the payload of a method frame: class id, method id, arguments.

    Raises:
        ViolationError: it is not a method of this version, or its arguments are malformed.
    """
    if len(payload) < 4:
        raise ViolationError(Violation.MALFORMED_FRAME, "a method frame without its ids")
    code = _LONG.unpack_from(payload)[0]
    kind = METHODS.get(code)
    is_0_9_1 = version is ProtocolVersion.V0_9_1
    if is_0_9_1 and code >> 16 in CLASSES_OF_0_9:
        raise ViolationError(Violation.UNKNOWN_CLASS, f"no class {code >> 16} in {version.value}")
    if kind is None or (kind.traits.only_0_9 and is_0_9_1):
        raise ViolationError(
            Violation.UNKNOWN_METHOD, f"no method {code >> 16}.{code & 0xFFFF} in {version.value}"
        )
    traits = kind.traits
    arguments: dict[str, Argument] = {}
    pos = 4
    end = len(payload)
    bit = 8
    octet = 0
    try:
        for name, shape in traits.layout:
            if shape is _BIT:
                if bit == 8:
                    octet = payload[pos]
                    pos += 1
                    bit = 0
                arguments[name] = octet >> bit & 1 == 1
                bit += 1
                continue
            bit = 8
            arguments[name], pos = _read(shape, payload, pos, end)
    except (IndexError, struct.error):
        raise _short(traits.name) from None
    except FieldValueError as fault:
        raise ViolationError(Violation.ILLEGAL_VALUE, f"{traits.name}: {fault}") from None
    except ViolationError as fault:
        fault.text = f"{traits.name}: {fault.text}"
        raise
    if pos != end:
        raise ViolationError(
            Violation.MALFORMED_FRAME, f"{traits.name}: {end - pos} octets behind its arguments"
        )
    if version is ProtocolVersion.V0_9_1:
        for name in traits.reserved:
            del arguments[name]
    return kind(**arguments)


def encode_method(method: AmqpMethod, version: ProtocolVersion) -> bytes:
    """Encode the payload of a method frame.

    Raises:
        LocalProtocolError: a value does not fit its field, or this version lacks the method.
    """
    traits = method.traits
    if traits.only_0_9 and version is ProtocolVersion.V0_9_1:
        raise LocalProtocolError(f"{version.value} has no {traits.name}")
    out = [_LONG.pack(traits.code)]
    skipped = traits.reserved if version is ProtocolVersion.V0_9_1 else ()
    bit = 8
    octet = 0
    for name, shape in traits.layout:
        value: Argument = getattr(method, name)
        if name in skipped:
            value = type(value)()
        if shape is _BIT:
            if bit == 8:
                bit = octet = 0
                out.append(b"")
            octet |= bool(value) << bit
            bit += 1
            out[-1] = bytes((octet,))
            continue
        bit = 8
        out.append(_octets(shape, name, value))
    return b"".join(out)


def read_publish(payload: bytes, version: ProtocolVersion) -> BasicPublish | None:
    """Decode a basic.publish; None if `decode_method` must handle it, faults included."""
    try:
        size = payload[6]
        key_at = 7 + size
        key_end = key_at + 1 + payload[key_at]
        if key_end + 1 != len(payload):
            return None
        exchange = payload[7:key_at].decode()
        key = payload[key_at + 1 : key_end].decode()
    except (IndexError, UnicodeDecodeError):
        return None
    if "\0" in exchange or "\0" in key:
        return None
    bits = payload[key_end]
    ticket = payload[4] << 8 | payload[5] if version is ProtocolVersion.V0_9 else 0
    return BasicPublish(
        ticket=ticket,
        exchange=exchange,
        routing_key=key,
        mandatory=bits & 1 == 1,
        immediate=bits & 2 == 2,
    )


def read_ack(data: bytes, pos: int, end: int) -> tuple[int, int] | None:
    """Read the arguments of basic.ack, nack or reject: the tag and the octet of bits."""
    if end - pos != 13:
        return None
    tag, bits = _ACK.unpack_from(data, pos + 4)
    return tag, bits


def _read(shape: FieldKind, data: bytes, pos: int, end: int) -> tuple[Argument, int]:
    if shape is _SHORTSTR:
        return _read_shortstr(data, pos, end)
    if shape is _LONGSTR:
        return _read_longstr(data, pos, end)
    if shape is _TABLE:
        return read_table(data, pos, end)
    number = _NUMBERS.get(shape)
    if number is not None:
        value: int = number.unpack_from(data, pos)[0]
        return value, pos + number.size
    discriminator = data[pos]
    if discriminator > 1:
        raise FieldValueError(f"a body that begins with {discriminator}")
    octets, pos = _read_longstr(data, pos + 1, end)
    return InlineBody(octets, discriminator == 1), pos


def _read_shortstr(data: bytes, pos: int, end: int) -> tuple[str, int]:
    after = pos + 1 + data[pos]
    if after > end:
        raise IndexError
    try:
        text = data[pos + 1 : after].decode()
    except UnicodeDecodeError:
        raise FieldValueError("a short string that is no UTF-8") from None
    if "\0" in text:
        raise FieldValueError("a short string with a NUL")
    return text, after


def _read_longstr(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    after = pos + 4 + int(_LONG.unpack_from(data, pos)[0])
    if after > end:
        raise IndexError
    return data[pos + 4 : after], after


def _short(what: str) -> ViolationError:
    return ViolationError(Violation.MALFORMED_FRAME, f"{what} ends within a field")


def shortstr(text: str) -> bytes:
    """Encode a short string with its length.

    Raises:
        LocalProtocolError: it has more than 255 octets, or a NUL.
    """
    try:
        octets = text.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError("half a surrogate pair in a short string") from None
    if len(octets) > 255 or b"\0" in octets:
        raise LocalProtocolError(f"no short string: {text[:60]!r} of {len(octets)} octets")
    return bytes((len(octets),)) + octets


def _octets(shape: FieldKind, name: str, value: Argument) -> bytes:
    if shape is _SHORTSTR and isinstance(value, str):
        return shortstr(value)
    if shape is _LONGSTR and isinstance(value, bytes):
        return _LONG.pack(len(value)) + value
    if shape is _TABLE and isinstance(value, FieldTable):
        return table_octets(value)
    if shape is FieldKind.CONTENT and isinstance(value, InlineBody):
        return bytes((value.is_reference,)) + _LONG.pack(len(value.octets)) + value.octets
    number = _NUMBERS.get(shape)
    if number is not None and isinstance(value, int):
        try:
            return number.pack(value)
        except struct.error:
            pass
    raise LocalProtocolError(f"{name}: {value!r} is no {shape.value}")


# --------------------------------------------------------------------------- properties

_Plan: TypeAlias = tuple[tuple[str, FieldKind], ...]
_plans: dict[tuple[int, int], _Plan] = {}


def _plan(kind: type[ContentProperties], flags: int) -> _Plan:
    """Return the properties that are present, for one word of flags."""
    layout = kind.layout
    if flags & 1 or flags & (0xFFFF >> len(layout)):
        raise ViolationError(Violation.ILLEGAL_VALUE, f"property flags {flags:04x}")
    plan = tuple(each for at, each in enumerate(layout) if flags & 0x8000 >> at)
    if len(_plans) >= MOST_PLANS:
        _plans.clear()
    _plans[kind.class_id, flags] = plan
    return plan


def decode_properties(
    class_id: int, octets: bytes, tables: dict[bytes, FieldTable] | None = None
) -> ContentProperties:
    """Decode the property flags and values of a content header (09-W-20, 09-W-21).

    Args:
        class_id: the id of the content.
        octets: flags and values, after the body size.
        tables: cached ones, by their octets; short ones are added.

    Raises:
        ViolationError: they are malformed, or the class has no contents.
    """
    kind = PROPERTIES.get(class_id)
    if kind is None:
        raise ViolationError(Violation.CONTENT_CLASS, f"no content in class {class_id}")
    end = len(octets)
    if end < 2:
        raise _short("a content header")
    flags = octets[0] << 8 | octets[1]
    properties = kind()
    plan = _plans.get((class_id, flags))
    if plan is None:
        plan = _plan(kind, flags)
    pos = 2
    try:
        for name, shape in plan:
            if shape is _SHORTSTR:
                after = pos + 1 + octets[pos]
                if after > end:
                    raise _short("a content header")
                text = octets[pos + 1 : after].decode()
                if "\0" in text:
                    raise ViolationError(Violation.ILLEGAL_VALUE, f"{name} with a NUL")
                setattr(properties, name, text)
                pos = after
            elif shape is _OCTET:
                setattr(properties, name, octets[pos])
                pos += 1
            elif shape is _TIMESTAMP:
                setattr(properties, name, _LONGLONG.unpack_from(octets, pos)[0])
                pos += 8
            else:
                start = pos
                pos += 4 + int(_LONG.unpack_from(octets, pos)[0])
                table = tables.get(octets[start:pos]) if tables else None
                if table is None:
                    table, pos = read_table(octets, start, end)
                    if tables is not None and pos - start <= LONGEST_REMEMBERED:
                        if len(tables) >= MOST_REMEMBERED:
                            tables.clear()
                        tables[octets[start:pos]] = table
                setattr(properties, name, table)
    except (IndexError, struct.error):
        raise _short("a content header") from None
    except UnicodeDecodeError:
        raise ViolationError(Violation.ILLEGAL_VALUE, f"{name} is no UTF-8") from None
    except FieldValueError as fault:
        raise ViolationError(Violation.ILLEGAL_VALUE, f"{name}: {fault}") from None
    if pos != end:
        raise ViolationError(Violation.MALFORMED_FRAME, f"{end - pos} octets behind the properties")
    return properties


def encode_properties(properties: ContentProperties) -> bytes:
    """Encode property flags and values.

    Raises:
        LocalProtocolError: a value does not fit its property.
    """
    flags = 0
    out = [b""]
    mask = 0x8000
    for name, shape in properties.layout:
        value: Argument | None = getattr(properties, name)
        if value is not None:
            flags |= mask
            out.append(_octets(shape, name, value))
        mask >>= 1
    out[0] = _SHORT.pack(flags)
    return b"".join(out)


NO_PROPERTIES: Final = b"\0\0"
"""Flags without any property."""


__all__ = [
    "CLASSES_OF_0_9",
    "LONGEST_REMEMBERED",
    "MOST_REMEMBERED",
    "NO_PROPERTIES",
    "Argument",
    "decode_method",
    "decode_properties",
    "encode_method",
    "encode_properties",
    "read_ack",
    "read_publish",
    "shortstr",
]
