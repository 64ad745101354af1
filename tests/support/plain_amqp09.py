# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-9 and 0-9-1 from their facts alone: octets to plain values, and back.

It shares no code with amqproute and reads ``tests/wire/amqp09/facts.yaml`` itself. A method is its
name and a dictionary with the names of the reference; a table is a list of (name, tag, value), so
that a test sees exactly what was sent, including tags, order and repetitions.

::

    frame_octets(1, 1, method_octets("basic.ack", {"delivery-tag": 1, "multiple": 0}))
    [(kind, channel, payload)] = frames(octets)
    name, arguments = method(payload)
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, TypeAlias

import yaml

FACTS: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent.parent / "wire" / "amqp09" / "facts.yaml").read_text(encoding="utf-8")
)

IDS: dict[str, tuple[int, int]] = {}
FIELDS: dict[str, dict[str, str]] = {}
FLAGS: dict[str, list[str]] = {}
RECEIVER: dict[str, str] = {}
PROPERTIES: dict[int, dict[str, str]] = {}
for _each in FACTS["classes"]:
    if "properties" in _each:
        PROPERTIES[_each["id"]] = _each["properties"]
    for _name, _number, _receiver, _, _flags, _fields in _each["methods"]:
        _whole = f"{_each['name']}.{_name}"
        IDS[_whole] = (_each["id"], _number)
        FIELDS[_whole] = _fields
        FLAGS[_whole] = _flags
        RECEIVER[_whole] = _receiver
NAMES = {ids: name for name, ids in IDS.items()}

Pairs: TypeAlias = list[tuple[str, str, Any]]

_NUMBERS = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q", "timestamp": ">Q"}
_TAGS = {
    "b": ">b", "B": ">B", "s": ">h", "U": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q",
    "L": ">q", "f": ">f", "d": ">d", "T": ">Q", "t": ">B", "k": ">c",
}  # fmt: skip


class PlainError(Exception):
    """The octets are not AMQP 0-9."""


def _take(octets: bytes, at: int, count: int) -> bytes:
    if at + count > len(octets):
        raise PlainError(f"{at + count - len(octets)} octets are missing")
    return octets[at : at + count]


def frame_octets(kind: int, channel: int, payload: bytes, end: int = 0xCE) -> bytes:
    """Encode a frame."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes((end,))


def frames(octets: bytes) -> list[tuple[int, int, bytes]]:
    """Split octets into frames: type, channel, payload."""
    found = []
    at = 0
    while at < len(octets):
        kind, channel, size = struct.unpack(">BHI", _take(octets, at, 7))
        if _take(octets, at + 7, size + 1)[-1] != 0xCE:
            raise PlainError("no frame end")
        found.append((kind, channel, octets[at + 7 : at + 7 + size]))
        at += size + 8
    return found


# ------------------------------------------------------------------------------------- tables


def table_pairs(octets: bytes) -> Pairs:
    """Decode the pairs of a table."""
    found: Pairs = []
    at = 0
    while at < len(octets):
        size = octets[at]
        name = _take(octets, at + 1, size).decode()
        tag, value, at = _tagged(octets, at + 1 + size)
        found.append((name, tag, value))
    return found


def _tagged(octets: bytes, at: int) -> tuple[str, Any, int]:
    tag = _take(octets, at, 1).decode("latin-1")
    at += 1
    if tag in _TAGS:
        size = struct.calcsize(_TAGS[tag])
        return tag, struct.unpack(_TAGS[tag], _take(octets, at, size))[0], at + size
    if tag == "V":
        return tag, None, at
    if tag == "D":
        return tag, struct.unpack(">Bi", _take(octets, at, 5)), at + 5
    if tag not in "SxcCFA":
        raise PlainError(f"unknown tag {tag!r}")
    (size,) = struct.unpack(">I", _take(octets, at, 4))
    inner = _take(octets, at + 4, size)
    at += 4 + size
    if tag == "F":
        return tag, table_pairs(inner), at
    if tag == "A":
        items = []
        place = 0
        while place < len(inner):
            item_tag, item, place = _tagged(inner, place)
            items.append((item_tag, item))
        return tag, items, at
    return tag, inner, at


def pair_octets(pairs: Pairs) -> bytes:
    """Encode the pairs of a table."""
    out = b""
    for name, tag, value in pairs:
        encoded = name.encode()
        out += bytes((len(encoded),)) + encoded + _tagged_octets(tag, value)
    return out


def _tagged_octets(tag: str, value: Any) -> bytes:
    head = tag.encode("latin-1")
    if tag in _TAGS:
        return head + struct.pack(_TAGS[tag], value)
    if tag == "V":
        return head
    if tag == "D":
        return head + struct.pack(">Bi", *value)
    if tag == "F":
        value = pair_octets(value)
    elif tag == "A":
        value = b"".join(_tagged_octets(*item) for item in value)
    return head + struct.pack(">I", len(value)) + value


# ------------------------------------------------------------------------- fields and methods


def _field(kind: str, octets: bytes, at: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        size = struct.calcsize(_NUMBERS[kind])
        return struct.unpack(_NUMBERS[kind], _take(octets, at, size))[0], at + size
    if kind == "shortstr":
        size = _take(octets, at, 1)[0]
        return _take(octets, at + 1, size).decode(), at + 1 + size
    if kind == "content":
        value, after = _field("longstr", octets, at + 1)
        return (_take(octets, at, 1)[0], value), after
    (size,) = struct.unpack(">I", _take(octets, at, 4))
    inner = _take(octets, at + 4, size)
    return (table_pairs(inner) if kind == "table" else inner), at + 4 + size


def _field_octets(kind: str, value: Any) -> bytes:
    if kind in _NUMBERS:
        return struct.pack(_NUMBERS[kind], value)
    if kind == "shortstr":
        encoded = value.encode()
        return bytes((len(encoded),)) + encoded
    if kind == "content":
        return bytes((value[0],)) + _field_octets("longstr", value[1])
    inner = pair_octets(value) if kind == "table" else value
    return struct.pack(">I", len(inner)) + inner


def method(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Decode the payload of a method frame."""
    name = NAMES[struct.unpack(">HH", _take(payload, 0, 4))]
    arguments: dict[str, Any] = {}
    at = 4
    bits = ""
    for field, kind in FIELDS[name].items():
        if kind == "bit":
            if not bits:
                bits = f"{_take(payload, at, 1)[0]:08b}"
                at += 1
            arguments[field] = int(bits[-1])
            bits = bits[:-1]
        else:
            bits = ""
            arguments[field], at = _field(kind, payload, at)
    if at != len(payload):
        raise PlainError(f"{len(payload) - at} octets behind {name}")
    return name, arguments


def method_octets(name: str, arguments: dict[str, Any] | None = None, /, **more: Any) -> bytes:
    """Encode the payload of a method frame; missing arguments are empty, zero or false.

    Keywords have an underscore where the name has a hyphen.
    """
    given = dict(arguments or {}, **{key.replace("_", "-"): value for key, value in more.items()})
    empty = {"shortstr": "", "longstr": b"", "table": [], "content": (0, b"")}
    out = struct.pack(">HH", *IDS[name])
    bits: list[int] = []
    for field, kind in [*FIELDS[name].items(), ("", "")]:
        value = given.pop(field, empty.get(kind, 0))
        if kind == "bit":
            bits.append(int(value))
            continue
        while bits:
            out += bytes((sum(bit << place for place, bit in enumerate(bits[:8])),))
            bits = bits[8:]
        if field:
            out += _field_octets(kind, value)
    if given:
        raise PlainError(f"{name} has no {', '.join(given)}")
    return out


def header(payload: bytes) -> tuple[int, int, dict[str, Any]]:
    """Decode the payload of a header frame: class, body size, the properties present."""
    class_id, weight, size, flags = struct.unpack(">HHQH", _take(payload, 0, 14))
    if weight:
        raise PlainError("weight")
    found = {}
    at = 14
    for place, (name, kind) in enumerate(PROPERTIES[class_id].items()):
        if flags >> (15 - place) & 1:
            found[name], at = _field(kind, payload, at)
    if at != len(payload):
        raise PlainError("octets behind the properties")
    return class_id, size, found


def property_octets(class_id: int, properties: dict[str, Any]) -> bytes:
    """Encode property flags and values."""
    flags = 0
    out = b""
    for place, (name, kind) in enumerate(PROPERTIES[class_id].items()):
        if name in properties:
            flags |= 1 << (15 - place)
            out += _field_octets(kind, properties[name])
    return struct.pack(">H", flags) + out


def header_octets(
    class_id: int, size: int, properties: dict[str, Any] | None = None, weight: int = 0
) -> bytes:
    """Encode the payload of a header frame."""
    octets = property_octets(class_id, properties or {})
    return struct.pack(">HHQ", class_id, weight, size) + octets
