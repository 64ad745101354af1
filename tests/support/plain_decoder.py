# SPDX-License-Identifier: Apache-2.0
"""A decoder of AMQP 1.0 from the type system of part 1 alone.

It shares no code with amqproute and adds no defaults: a composite is the list of its fields on the
wire, with nulls, and shorter if trailing fields are omitted. So a test sees exactly what was sent.

::

    [(channel, performative, payload)] = frames(octets)
    performative.descriptor     # 0x12, an attach
    performative.value[5]       # its source: a `Described` list, or None

Symbols are `Symbol`, other values the plain Python types; integers lose their width, which
`decode_typed` gives in addition. Every violation of the standard is a `PlainError`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID


class PlainError(Exception):
    """The octets are not AMQP 1.0."""


class Symbol(str):
    """A symbol (part 1 §1.6.21)."""

    __slots__ = ()


@dataclass(frozen=True)
class Described:
    """A value with its descriptor (part 1 §1.2)."""

    descriptor: object
    value: object


@dataclass(frozen=True)
class PlainArray:
    """An array (part 1 §1.6.24): the code of its constructor, and its items."""

    code: int
    items: tuple[object, ...]


_EMPTY: dict[int, object] = {0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0, 0x45: []}
_NUMBERS: dict[int, str] = {
    0x50: ">B",
    0x51: ">b",
    0x52: ">B",
    0x53: ">B",
    0x54: ">b",
    0x55: ">b",
    0x60: ">H",
    0x61: ">h",
    0x70: ">I",
    0x71: ">i",
    0x72: ">f",
    0x80: ">Q",
    0x81: ">q",
    0x82: ">d",
    0x83: ">q",
}
_RAW: dict[int, int] = {0x74: 4, 0x84: 8, 0x94: 16}
"""The decimals, which stay octets."""


def decode(octets: bytes, offset: int = 0) -> tuple[object, int]:
    """Decode the value at an offset; return it and the offset after it."""
    _, value, end = decode_typed(octets, offset)
    return value, end


def decode_typed(octets: bytes, offset: int = 0) -> tuple[int, object, int]:
    """Decode a value; return the code of its constructor as well, 0x00 for a described one."""
    code = _take(octets, offset, 1)[0]
    offset += 1
    if code == 0x00:
        descriptor, offset = decode(octets, offset)
        value, offset = decode(octets, offset)
        return code, Described(descriptor, value), offset
    value, offset = _value(code, octets, offset)
    return code, value, offset


def decode_all(octets: bytes) -> list[object]:
    """Decode values to the end of the octets: the sections of a message."""
    found = []
    offset = 0
    while offset < len(octets):
        value, offset = decode(octets, offset)
        found.append(value)
    return found


def frames(octets: bytes) -> list[tuple[int, Described | None, bytes]]:
    """Split octets into frames (part 2 §2.3): channel, performative, payload.

    Protocol headers are skipped; an empty frame has no performative.
    """
    found: list[tuple[int, Described | None, bytes]] = []
    offset = 0
    while offset < len(octets):
        head = _take(octets, offset, 8)
        if head.startswith(b"AMQP"):
            offset += 8
            continue
        size, words, _, channel = struct.unpack(">IBBH", head)
        if words < 2 or size < words * 4:
            raise PlainError(f"a frame of {size} octets with its data at {words * 4}")
        body = _take(octets, offset, size)[words * 4 :]
        offset += size
        if not body:
            found.append((channel, None, b""))
            continue
        performative, end = decode(body)
        if not isinstance(performative, Described) or not isinstance(performative.value, list):
            raise PlainError(f"no performative: {performative!r}")
        found.append((channel, performative, body[end:]))
    return found


def field(composite: object, index: int) -> object:
    """Return the value of a field on the wire, None for null or a missing field."""
    if not isinstance(composite, Described) or not isinstance(composite.value, list):
        raise PlainError(f"no composite: {composite!r}")
    return composite.value[index] if index < len(composite.value) else None


def _take(octets: bytes, offset: int, count: int) -> bytes:
    found = octets[offset : offset + count]
    if len(found) != count:
        raise PlainError(f"{count} octets are due at {offset}, there are {len(found)}")
    return found


def _value(code: int, octets: bytes, offset: int) -> tuple[object, int]:
    if code in _EMPTY:
        empty = _EMPTY[code]
        return ([] if empty == [] and code == 0x45 else empty), offset
    if code == 0x56:
        octet = _take(octets, offset, 1)[0]
        if octet > 1:
            raise PlainError(f"a boolean of {octet}")
        return bool(octet), offset + 1
    if code in _NUMBERS:
        size = struct.calcsize(_NUMBERS[code])
        return struct.unpack(_NUMBERS[code], _take(octets, offset, size))[0], offset + size
    if code in _RAW:
        return _take(octets, offset, _RAW[code]), offset + _RAW[code]
    if code == 0x73:
        return _take(octets, offset, 4).decode("utf-32-be"), offset + 4
    if code == 0x98:
        return UUID(bytes=_take(octets, offset, 16)), offset + 16
    width = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}.get(code >> 4)
    if width is None:
        raise PlainError(f"no type has the code 0x{code:02x}")
    size = int.from_bytes(_take(octets, offset, width), "big")
    body = _take(octets, offset + width, size)
    return _sized(code, width, body), offset + width + size


def _sized(code: int, width: int, body: bytes) -> object:
    kind = code & 0x0F
    if code >> 4 in (0xA, 0xB):
        if kind == 0x0:
            return body
        if kind == 0x1:
            return body.decode("utf-8")
        if kind == 0x3:
            return Symbol(body.decode("ascii"))
        raise PlainError(f"no type has the code 0x{code:02x}")
    count = int.from_bytes(_take(body, 0, width), "big")
    if code >> 4 in (0xE, 0xF):
        if kind != 0:
            raise PlainError(f"no type has the code 0x{code:02x}")
        return _array(count, body, width)
    if kind not in (0, 1):
        raise PlainError(f"no type has the code 0x{code:02x}")
    items, offset = [], width
    for _ in range(count):
        item, offset = decode(body, offset)
        items.append(item)
    if offset != len(body):
        raise PlainError(f"a compound value has {len(body) - offset} octets too many")
    if kind == 0:
        return items
    if count % 2:
        raise PlainError("a map with a key without a value")
    return dict(zip(items[::2], items[1::2], strict=True))


def _array(count: int, body: bytes, offset: int) -> PlainArray:
    code = _take(body, offset, 1)[0]
    offset += 1
    descriptor: object = None
    is_described = code == 0x00
    if is_described:
        descriptor, offset = decode(body, offset)
        code = _take(body, offset, 1)[0]
        offset += 1
    items: list[object] = []
    for _ in range(count):
        item, offset = _value(code, body, offset)
        items.append(Described(descriptor, item) if is_described else item)
    if offset != len(body):
        raise PlainError(f"an array has {len(body) - offset} octets too many")
    return PlainArray(code, tuple(items))
