# SPDX-License-Identifier: Apache-2.0
"""Values to bytes and back (part 1 §1.2, §1.6).

Theory of operation: both directions dispatch through a table, the decoder on the format code,
the encoder on the Python type. A decoder function is called with the position after the format
code, so the same functions read the elements of an array, which share one code.

Limits, because every byte may come from a hostile peer:

* A declared size must fit into the enclosing value, and a declared count into the declared size,
  before anything is allocated.
* Elements of no width (null, true, uint0, list0 ... in an array) cost the sender nothing:
  `MAX_ZERO_WIDTH_ITEMS` bounds their sum within one top-level value.
* Compound values and descriptors nest at most `MAX_DEPTH` deep.
* A dict has at most `MAX_PREDICTABLE_KEYS` keys whose Python hash a stranger can choose.
  Thousands that collide would take minutes to enter. A map with more numeric keys is decoded to a
  `types.WideMap`; one with more UUIDs and described values is refused.

The decoder raises `DecodeError` and nothing else. The encoder raises `LocalProtocolError`: a
value that cannot be encoded is a mistake of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from amqproute.conditions import Condition
from amqproute.errors import DecodeError, LocalProtocolError
from amqproute.wire.amqp10 import types
from amqproute.wire.amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    WideMap,
)

MAX_DEPTH: Final = 32
"""Largest depth of nested compound values and descriptors."""

MAX_ZERO_WIDTH_ITEMS: Final = 4096
"""Largest number of array elements of no width in one top-level value."""

MAX_PREDICTABLE_KEYS: Final = 64
"""Largest number of UUIDs or described values as keys of a map, or of numbers of a dict."""

Buffer: TypeAlias = bytes | bytearray | memoryview

# The rest of the limits while one top-level value is decoded: depth, zero-width items, values.
_Budget: TypeAlias = list[int]
_MANY: Final = 1 << 62
_BOUNDED: Final = 1 << 61
"""The rest of `_MANY` values stays above this; no caller passes so large a bound."""
_Decoder: TypeAlias = Callable[[bytes, int, int, _Budget], tuple[Any, int]]
_Encoder: TypeAlias = Callable[[bytearray, Any], None]

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_S8 = struct.Struct(">b")
_S16 = struct.Struct(">h")
_S32 = struct.Struct(">i")
_S64 = struct.Struct(">q")
_F32 = struct.Struct(">f")
_F64 = struct.Struct(">d")
_SIZE_COUNT_32 = struct.Struct(">II")

_T = TypeVar("_T")
_K = TypeVar("_K")

# --------------------------------------------------------------------------------- decoding


def decode(
    data: Buffer, offset: int = 0, end: int | None = None, most_values: int | None = None
) -> tuple[Any, int]:  # Any: the type is in the octets
    """Decode the value at ``offset``.

    Args:
        data: the bytes; other than ``bytes`` are copied.
        offset: the start of the value's constructor.
        end: the end of the enclosing bytes; the end of ``data`` when omitted.
        most_values: largest number of values within compound ones; a key or value of a map whose
            keys are octets counts as half. If given, maps with many numeric keys are refused. None:
            no bound but the size.

    Returns:
        The value, of any type that `amqproute.wire.amqp10.types` lists, and the offset after it.

    Raises:
        DecodeError: the bytes are no AMQP value, or break a limit of this module.
    """
    if type(data) is not bytes:
        data = bytes(data)
    if end is None or end > len(data):
        end = len(data)
    if offset >= end:
        raise DecodeError("the data end where a value has to start")
    decoder = _DECODERS.get(data[offset])
    if decoder is None:
        raise _unknown(data[offset])
    budget = [MAX_DEPTH, MAX_ZERO_WIDTH_ITEMS, _MANY if most_values is None else most_values]
    return decoder(data, offset + 1, end, budget)


def _unknown(code: int) -> DecodeError:
    return DecodeError(f"format code 0x{code:02x} is not defined")


def _truncated(what: str) -> DecodeError:
    return DecodeError(f"the data end within a value of type {what}")


def _decode_at(
    data: bytes, pos: int, end: int, budget: _Budget
) -> tuple[Any, int]:  # Any: the type is in the octets
    if pos >= end:
        raise DecodeError("the data end where a value has to start")
    decoder = _DECODERS.get(data[pos])
    if decoder is None:
        raise _unknown(data[pos])
    return decoder(data, pos + 1, end, budget)


def _constant(value: Any) -> _Decoder:
    def decode_constant(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        return value, pos

    return decode_constant


def _fixed(name: str, layout: struct.Struct, build: Callable[[Any], Any] | None) -> _Decoder:
    unpack = layout.unpack_from
    width = layout.size

    def decode_plain(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        after = pos + width
        if after > end:
            raise _truncated(name)
        return unpack(data, pos)[0], after

    if build is None:
        return decode_plain
    make = build

    def decode_fixed(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        after = pos + width
        if after > end:
            raise _truncated(name)
        return make(unpack(data, pos)[0]), after

    return decode_fixed


def _octet(name: str, build: Callable[[int], Any]) -> _Decoder:
    def decode_octet(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        if pos >= end:
            raise _truncated(name)
        return build(data[pos]), pos + 1

    return decode_octet


def _octets(name: str, width: int, build: Callable[[bytes], Any]) -> _Decoder:
    def decode_octets(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        after = pos + width
        if after > end:
            raise _truncated(name)
        return build(data[pos:after]), after

    return decode_octets


def _boolean(data: bytes, pos: int, end: int, budget: _Budget) -> tuple[bool, int]:
    if pos >= end:
        raise _truncated("boolean")
    octet = data[pos]
    if octet > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {octet}")
    return octet == 1, pos + 1


def _char(octets: bytes) -> Char:
    code_point = _U32.unpack(octets)[0]
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise DecodeError(f"0x{code_point:x} is not a Unicode character")
    return Char(chr(code_point))


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a string is not valid UTF-8: {error.reason}") from None


def _symbol(octets: bytes) -> Symbol:
    try:
        return Symbol(octets, "ascii")
    except UnicodeDecodeError:
        raise DecodeError("a symbol has characters outside ASCII") from None


def _variable(name: str, wide: bool, build: Callable[[bytes], Any] | None) -> _Decoder:
    width = 4 if wide else 1
    size_at = _U32.unpack_from

    def decode_variable(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        start = pos + width
        if start > end:
            raise _truncated(name)
        after = start + (size_at(data, pos)[0] if wide else data[pos])
        if after > end:
            raise _truncated(name)
        octets = data[start:after]
        return (octets if build is None else build(octets)), after

    return decode_variable


def _extent(name: str, wide: bool, data: bytes, pos: int, end: int) -> tuple[int, int, int]:
    """Read size and count of a compound value: the count, its first item, its end."""
    if wide:
        start = pos + 8
        if start > end:
            raise _truncated(name)
        size, count = _SIZE_COUNT_32.unpack_from(data, pos)
        after = pos + 4 + size
    else:
        start = pos + 2
        if start > end:
            raise _truncated(name)
        size = data[pos]
        count = data[pos + 1]
        after = pos + 1 + size
    if after > end:
        raise _truncated(name)
    if start > after:
        raise DecodeError(f"the size of a {name} has no room for its count")
    return count, start, after


def _descend(budget: _Budget, values: int = 0) -> None:
    """Enter a compound value with this number of items."""
    budget[0] -= 1
    if budget[0] < 0:
        raise DecodeError(f"values nest deeper than {MAX_DEPTH}")
    budget[2] -= values
    if budget[2] < 0:
        raise DecodeError("more values than there may be here")


def _list(wide: bool) -> _Decoder:
    def decode_list(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        count, pos, after = _extent("list", wide, data, pos, end)
        if count > after - pos:
            raise DecodeError(f"a list of {count} items cannot have {after - pos} bytes")
        _descend(budget, count)
        decoders = _DECODERS
        items = []
        for _ in range(count):
            if pos >= after:
                raise _truncated("list")
            decoder = decoders.get(data[pos])
            if decoder is None:
                raise _unknown(data[pos])
            item, pos = decoder(data, pos + 1, after, budget)
            items.append(item)
        budget[0] += 1
        if pos != after:
            raise DecodeError("a list has bytes after its last item")
        return items, after

    return decode_list


def _list_0(
    data: bytes, pos: int, end: int, budget: _Budget
) -> tuple[Any, int]:  # Any: the type is in the octets
    return [], pos


def _map(wide: bool) -> _Decoder:
    def decode_map(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        count, pos, after = _extent("map", wide, data, pos, end)
        if count & 1:
            raise DecodeError("a map has a key without a value")
        if count > after - pos:
            raise DecodeError(f"a map of {count} items cannot have {after - pos} bytes")
        # The unsettled map of a link is the one large map in use.
        is_of_octets = pos < after and data[pos] in _OCTETS
        _descend(budget, count >> 1 if is_of_octets else count)
        result: dict[Any, Any] = {}
        predictable = 0
        for done in range(count >> 1):
            key, pos = _decode_at(data, pos, after, budget)
            value, pos = _decode_at(data, pos, after, budget)
            if not isinstance(key, _SALTED):
                predictable += 1
                if predictable > MAX_PREDICTABLE_KEYS:
                    if budget[2] < _BOUNDED:
                        raise DecodeError(
                            f"a map with more than {MAX_PREDICTABLE_KEYS} numeric keys has no "
                            "place here"
                        )
                    pairs = [*result.items(), (key, value)]
                    large = _wide_map(pairs, data, pos, after, count >> 1, budget)
                    budget[0] += 1
                    return large, after
            try:
                result[key] = value
            except TypeError:
                raise DecodeError(f"a {type(key).__name__} cannot be a map key") from None
            if len(result) == done:
                raise DecodeError(f"a map has the key {key!r:.64} twice")
        budget[0] += 1
        if pos != after:
            raise DecodeError("a map has bytes after its last value")
        return result, after

    return decode_map


_OCTETS: Final = (types.BINARY_8, types.BINARY_32)
_SALTED: Final = (str, bytes)
"""Types of keys whose hash cannot be predicted outside this process."""


def _wide_map(
    pairs: list[tuple[Any, Any]], data: bytes, pos: int, after: int, count: int, budget: _Budget
) -> WideMap:
    """Go on with a map that has many predictable keys, until it has `count` pairs."""
    while len(pairs) < count:
        key, pos = _decode_at(data, pos, after, budget)
        value, pos = _decode_at(data, pos, after, budget)
        pairs.append((key, value))
    if pos != after:
        raise DecodeError("a map has bytes after its last value")
    costly = 0
    for key, _ in pairs:
        kind = type(key)
        if kind is UUID or kind is Described:
            costly += 1
        elif kind.__hash__ is None:
            raise DecodeError(f"a {kind.__name__} cannot be a map key")
    if costly > MAX_PREDICTABLE_KEYS:
        raise DecodeError(f"a map has more than {MAX_PREDICTABLE_KEYS} uuid keys")
    try:
        return WideMap(pairs)
    except ValueError as error:
        raise DecodeError(f"a map has a key twice: {error}") from None


def _described(
    data: bytes, pos: int, end: int, budget: _Budget
) -> tuple[Any, int]:  # Any: the type is in the octets
    _descend(budget)
    descriptor, pos = _decode_at(data, pos, end, budget)
    value, pos = _decode_at(data, pos, end, budget)
    budget[0] += 1
    return Described(descriptor, value), pos


def _array(wide: bool) -> _Decoder:
    def decode_array(
        data: bytes, pos: int, end: int, budget: _Budget
    ) -> tuple[Any, int]:  # Any: the type is in the octets
        count, pos, after = _extent("array", wide, data, pos, end)
        _descend(budget, count)
        depth = budget[0]
        descriptors = []
        while pos < after and data[pos] == types.DESCRIBED:
            _descend(budget)
            descriptor, pos = _decode_at(data, pos + 1, after, budget)
            descriptors.append(descriptor)
        if pos >= after:
            raise _truncated("array")
        code = data[pos]
        decoder = _DECODERS.get(code)
        if decoder is None:
            raise _unknown(code)
        pos += 1
        width = WIDTHS[code]
        if width == 0:
            budget[1] -= count
            if budget[1] < 0:
                raise DecodeError(f"more than {MAX_ZERO_WIDTH_ITEMS} array elements of no width")
        elif count * abs(width) > after - pos:
            raise DecodeError(f"an array of {count} elements cannot have {after - pos} bytes")
        items = []
        for _ in range(count):
            item, pos = decoder(data, pos, after, budget)
            items.append(item)
        budget[0] = depth + 1
        if pos != after:
            raise DecodeError("an array has bytes after its last element")
        return Array(code, items, descriptors), after

    return decode_array


_DECODERS: dict[int, _Decoder] = {
    types.DESCRIBED: _described,
    types.NULL: _constant(None),
    types.BOOLEAN: _boolean,
    types.TRUE: _constant(True),
    types.FALSE: _constant(False),
    types.UBYTE: _octet("ubyte", UByte),
    types.USHORT: _fixed("ushort", _U16, UShort),
    types.UINT: _fixed("uint", _U32, UInt),
    types.SMALL_UINT: _octet("uint", UInt),
    types.UINT_0: _constant(UInt(0)),
    types.ULONG: _fixed("ulong", _U64, ULong),
    types.SMALL_ULONG: _octet("ulong", ULong),
    types.ULONG_0: _constant(ULong(0)),
    types.BYTE: _fixed("byte", _S8, Byte),
    types.SHORT: _fixed("short", _S16, Short),
    types.INT: _fixed("int", _S32, Int),
    types.SMALL_INT: _fixed("int", _S8, Int),
    types.LONG: _fixed("long", _S64, None),
    types.SMALL_LONG: _fixed("long", _S8, None),
    types.FLOAT: _fixed("float", _F32, Float),
    types.DOUBLE: _fixed("double", _F64, None),
    types.DECIMAL_32: _octets("decimal32", 4, Decimal32),
    types.DECIMAL_64: _octets("decimal64", 8, Decimal64),
    types.DECIMAL_128: _octets("decimal128", 16, Decimal128),
    types.CHAR: _octets("char", 4, _char),
    types.TIMESTAMP: _fixed("timestamp", _S64, Timestamp),
    types.UUID_CODE: _octets("uuid", 16, lambda octets: UUID(bytes=octets)),
    types.BINARY_8: _variable("binary", False, None),
    types.BINARY_32: _variable("binary", True, None),
    types.STRING_8: _variable("string", False, _text),
    types.STRING_32: _variable("string", True, _text),
    types.SYMBOL_8: _variable("symbol", False, _symbol),
    types.SYMBOL_32: _variable("symbol", True, _symbol),
    types.LIST_0: _list_0,
    types.LIST_8: _list(False),
    types.LIST_32: _list(True),
    types.MAP_8: _map(False),
    types.MAP_32: _map(True),
    types.ARRAY_8: _array(False),
    types.ARRAY_32: _array(True),
}

# Octets after the format code, by the code's high nibble (§1.2). Negative: the octets of the
# size that stands there. None: not a code of the standard, or the descriptor's.
_WIDTH_BY_CATEGORY: Final = {
    0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16,
    0xA: -1, 0xB: -4, 0xC: -1, 0xD: -4, 0xE: -1, 0xF: -4,
}  # fmt: skip
WIDTHS: Final[dict[int, int]] = {
    code: _WIDTH_BY_CATEGORY[code >> 4] for code in _DECODERS if code != types.DESCRIBED
}
"""Format code to the octets after it; negative: to the octets of the size that follows."""

# --------------------------------------------------------------------------------- encoding


def encode(value: object) -> bytes:
    """Encode a value in its smallest encoding.

    Raises:
        LocalProtocolError: no AMQP type holds the value.
    """
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: object) -> None:
    """Append the smallest encoding of ``value`` to ``out``.

    Raises:
        LocalProtocolError: no AMQP type holds the value; ``out`` may have a part of it.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = _inherited(type(value))
    encoder(out, value)


def register(python_type: type[_T], encoder: Callable[[bytearray, _T], None]) -> None:
    """Have `encode` use ``encoder`` for values of ``python_type``, for the composite types."""
    _ENCODERS[python_type] = encoder


def _inherited(python_type: type) -> _Encoder:
    for ancestor in python_type.__mro__[1:]:
        encoder = _ENCODERS.get(ancestor)
        if encoder is not None:
            return encoder
    raise LocalProtocolError(f"no AMQP type for a {python_type.__name__}")


def put_null(out: bytearray, value: None) -> None:
    """Append null."""
    out.append(0x40)


def put_boolean(out: bytearray, value: bool) -> None:
    """Append a boolean."""
    out.append(0x41 if value else 0x42)


def put_ubyte(out: bytearray, value: int) -> None:
    """Append a ubyte."""
    if not 0 <= value <= 0xFF:
        raise _out_of_range("ubyte", value)
    out.append(0x50)
    out.append(value)


def put_ushort(out: bytearray, value: int) -> None:
    """Append a ushort."""
    if not 0 <= value <= 0xFFFF:
        raise _out_of_range("ushort", value)
    out.append(0x60)
    out += _U16.pack(value)


def put_uint(out: bytearray, value: int) -> None:
    """Append a uint."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise _out_of_range("uint", value)
    if value == 0:
        out.append(0x43)
    elif value <= 0xFF:
        out.append(0x52)
        out.append(value)
    else:
        out.append(0x70)
        out += _U32.pack(value)


def put_ulong(out: bytearray, value: int) -> None:
    """Append a ulong."""
    if not 0 <= value <= 0xFFFFFFFFFFFFFFFF:
        raise _out_of_range("ulong", value)
    if value == 0:
        out.append(0x44)
    elif value <= 0xFF:
        out.append(0x53)
        out.append(value)
    else:
        out.append(0x80)
        out += _U64.pack(value)


def _out_of_range(name: str, value: object) -> LocalProtocolError:
    return LocalProtocolError(f"{value!r:.64} is out of the range of {name}")


def _signed(
    name: str, code: int, layout: struct.Struct, small: int | None
) -> Callable[[bytearray, int], None]:
    bound = 1 << (8 * layout.size - 1)

    def put_signed(out: bytearray, value: int) -> None:
        if not -bound <= value < bound:
            raise _out_of_range(name, value)
        if small is not None and -128 <= value < 128:
            out.append(small)
            out.append(value & 0xFF)
        else:
            out.append(code)
            out += layout.pack(value)

    return put_signed


put_long = _signed("long", 0x81, _S64, 0x55)
put_timestamp = _signed("timestamp", 0x83, _S64, None)


def _put_float(out: bytearray, value: float) -> None:
    out.append(0x72)
    out += _F32.pack(value)


def _put_double(out: bytearray, value: float) -> None:
    out.append(0x82)
    out += _F64.pack(value)


def _put_octets(code: int) -> _Encoder:
    def put_octets(out: bytearray, value: bytes) -> None:
        out.append(code)
        out += value

    return put_octets


def _put_char(out: bytearray, value: str) -> None:
    out.append(0x73)
    out += _char_octets(value)


def _char_octets(value: str) -> bytes:
    if len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise _out_of_range("char", value)
    return _U32.pack(ord(value))


def _put_uuid(out: bytearray, value: UUID) -> None:
    out.append(0x98)
    out += value.bytes


def put_binary(out: bytearray, value: Buffer) -> None:
    """Append a binary."""
    _put_sized(out, 0xA0, value)


def put_string(out: bytearray, value: str) -> None:
    """Append a string."""
    _put_sized(out, 0xA1, _utf8(value))


def put_symbol(out: bytearray, value: str) -> None:
    """Append a symbol; any ``str`` of ASCII will do."""
    _put_sized(out, 0xA3, _ascii(value))


def _utf8(value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"a string has no UTF-8 form: {error.reason}") from None


def _ascii(value: str) -> bytes:
    try:
        return value.encode("ascii")
    except UnicodeEncodeError:
        raise LocalProtocolError(f"{value!r:.64} has no place in a symbol") from None


def _put_sized(out: bytearray, code: int, octets: Buffer) -> None:
    size = len(octets)
    if size <= 0xFF:
        out.append(code)
        out.append(size)
    elif size <= 0xFFFFFFFF:
        out.append(code | 0x10)
        out += _U32.pack(size)
    else:
        raise LocalProtocolError("a value is longer than 4 GiB")
    out += octets


def put_list_body(out: bytearray, count: int, body: Buffer) -> None:
    """Append a list whose ``count`` items are encoded in ``body`` already."""
    if count == 0:
        out.append(0x45)
    else:
        _put_compound(out, 0xC0, count, body)


def _put_compound(out: bytearray, code: int, count: int, body: Buffer) -> None:
    size = len(body) + 1
    if size <= 0xFF and count <= 0xFF:
        out.append(code)
        out.append(size)
        out.append(count)
    elif size + 3 <= 0xFFFFFFFF:
        out.append(code | 0x10)
        out += _SIZE_COUNT_32.pack(size + 3, count)
    else:
        raise LocalProtocolError("a value is longer than 4 GiB")
    out += body


def _put_list(out: bytearray, value: list[Any] | tuple[Any, ...]) -> None:
    put_list_body(out, len(value), _items(value))


def _items(value: list[Any] | tuple[Any, ...]) -> bytearray:
    body = bytearray()
    for item in value:
        encode_into(body, item)
    return body


def put_map(out: bytearray, value: Mapping[_K, object]) -> None:
    """Append a map."""
    _put_compound(out, 0xC1, 2 * len(value), _pairs(value))


def _pairs(value: Mapping[_K, object]) -> bytearray:
    body = bytearray()
    for key, item in value.items():
        encode_into(body, key)
        encode_into(body, item)
    return body


def put_fields(out: bytearray, value: Mapping[_K, object]) -> None:
    """Append a map whose ``str`` keys are meant as symbols (part 2 §2.8.13, part 3 §3.2.10)."""
    body = bytearray()
    for key, item in value.items():
        if isinstance(key, str):
            put_symbol(body, key)
        else:
            encode_into(body, key)
        encode_into(body, item)
    _put_compound(out, 0xC1, 2 * len(value), body)


def _put_described(out: bytearray, value: Described) -> None:
    out.append(0x00)
    encode_into(out, value.descriptor)
    encode_into(out, value.value)


def put_array(out: bytearray, value: Array) -> None:
    """Append an array; the elements keep the format code that the array names."""
    _put_compound(out, 0xE0, len(value.items), _array_body(value))


def _array_body(value: Array) -> bytearray:
    put = _ELEMENTS.get(value.code)
    if put is None:
        raise LocalProtocolError(f"0x{value.code:02x} is no format code of array elements")
    body = bytearray()
    for descriptor in value.descriptors:
        body.append(0x00)
        encode_into(body, descriptor)
    body.append(value.code)
    for item in value.items:
        try:
            put(body, item)
        except (struct.error, ValueError, TypeError, AttributeError, OverflowError):
            raise LocalProtocolError(
                f"{item!r:.64} does not fit into an array of 0x{value.code:02x}"
            ) from None
    return body


_ENCODERS: dict[type, _Encoder] = {
    type(None): put_null,
    bool: put_boolean,
    UByte: put_ubyte,
    UShort: put_ushort,
    UInt: put_uint,
    ULong: put_ulong,
    Byte: _signed("byte", 0x51, _S8, None),
    Short: _signed("short", 0x61, _S16, None),
    Int: _signed("int", 0x71, _S32, 0x54),
    Long: put_long,
    int: put_long,
    Float: _put_float,
    float: _put_double,
    Decimal32: _put_octets(0x74),
    Decimal64: _put_octets(0x84),
    Decimal128: _put_octets(0x94),
    Char: _put_char,
    Timestamp: put_timestamp,
    UUID: _put_uuid,
    bytes: put_binary,
    bytearray: put_binary,
    memoryview: put_binary,
    str: put_string,
    Symbol: put_symbol,
    Condition: put_symbol,
    list: _put_list,
    tuple: _put_list,
    dict: put_map,
    WideMap: put_map,
    Array: put_array,
    Described: _put_described,
}

# ------------------------------------------------------------------ the elements of an array


def _packed(layout: struct.Struct) -> _Encoder:
    def put(out: bytearray, value: Any) -> None:
        out += layout.pack(value)

    return put


def _nothing(*allowed: Any) -> _Encoder:
    """An element of no width: the format code says it all, so the value must agree."""

    def put(out: bytearray, value: Any) -> None:
        if value not in allowed:
            raise ValueError

    return put


def _raw(width: int) -> _Encoder:
    def put(out: bytearray, value: bytes) -> None:
        if len(value) != width:
            raise ValueError
        out += value

    return put


def _sized(wide: bool, octets_of: Callable[[Any], Buffer]) -> _Encoder:
    layout = _U32 if wide else struct.Struct(">B")

    def put(out: bytearray, value: Any) -> None:
        octets = octets_of(value)
        out += layout.pack(len(octets))
        out += octets

    return put


def _compound(wide: bool, body_of: Callable[[Any], bytearray], per_item: int) -> _Encoder:
    layout = _SIZE_COUNT_32 if wide else struct.Struct(">BB")
    count_width = 4 if wide else 1

    def put(out: bytearray, value: Any) -> None:
        body = body_of(value)
        out += layout.pack(len(body) + count_width, len(value) * per_item)
        out += body

    return put


def _put_boolean_octet(out: bytearray, value: Any) -> None:
    if type(value) is not bool:
        raise ValueError
    out.append(value)


def _put_char_element(out: bytearray, value: Any) -> None:
    out += _char_octets(value)


def _put_uuid_element(out: bytearray, value: Any) -> None:
    out += value.bytes


_U8 = struct.Struct(">B")
_ELEMENTS: dict[int, _Encoder] = {
    types.NULL: _nothing(None),
    types.BOOLEAN: _put_boolean_octet,
    types.TRUE: _nothing(True),
    types.FALSE: _nothing(False),
    types.UBYTE: _packed(_U8),
    types.USHORT: _packed(_U16),
    types.UINT: _packed(_U32),
    types.SMALL_UINT: _packed(_U8),
    types.UINT_0: _nothing(0),
    types.ULONG: _packed(_U64),
    types.SMALL_ULONG: _packed(_U8),
    types.ULONG_0: _nothing(0),
    types.BYTE: _packed(_S8),
    types.SHORT: _packed(_S16),
    types.INT: _packed(_S32),
    types.SMALL_INT: _packed(_S8),
    types.LONG: _packed(_S64),
    types.SMALL_LONG: _packed(_S8),
    types.FLOAT: _packed(_F32),
    types.DOUBLE: _packed(_F64),
    types.DECIMAL_32: _raw(4),
    types.DECIMAL_64: _raw(8),
    types.DECIMAL_128: _raw(16),
    types.CHAR: _put_char_element,
    types.TIMESTAMP: _packed(_S64),
    types.UUID_CODE: _put_uuid_element,
    types.BINARY_8: _sized(False, bytes),
    types.BINARY_32: _sized(True, bytes),
    types.STRING_8: _sized(False, _utf8),
    types.STRING_32: _sized(True, _utf8),
    types.SYMBOL_8: _sized(False, _ascii),
    types.SYMBOL_32: _sized(True, _ascii),
    types.LIST_0: _nothing([]),
    types.LIST_8: _compound(False, _items, 1),
    types.LIST_32: _compound(True, _items, 1),
    types.MAP_8: _compound(False, _pairs, 2),
    types.MAP_32: _compound(True, _pairs, 2),
    types.ARRAY_8: _compound(False, _array_body, 1),
    types.ARRAY_32: _compound(True, _array_body, 1),
}
