# SPDX-License-Identifier: Apache-2.0
"""Field tables: names to tagged values, as octets and as Python values (09-W-30 to 09-W-36).

A `FieldTable` from the wire keeps its octets and is sent again unchanged, whatever its tags. Its
values are read as follows, and a value put into a new table is written with its former tag:

=====  ===================  ====================================================================
tag    Python               meaning
=====  ===================  ====================================================================
t      `bool`               boolean
b B    `Int8`, `UInt8`      8 bits
s U    `Int16`, `Int16U`    16 bits with a sign; ``s`` is what clients send, ``U`` 0-9-1's letter
u      `UInt16`             16 bits
I      `int`                32 bits with a sign
i      `UInt32`             32 bits
l L    `Int64`, `Int64L`    64 bits with a sign; ``L`` is py-amqp's letter
f d    `Float32`, `float`   IEEE 754
D      `TableDecimal`       a scale and 32 bits with a sign
S      `str`                text; `LongString` if it is not UTF-8
x      `bytes`              octets
T      `EpochSeconds`       64 bits of seconds since 1970 UTC
F      `FieldTable`         a table
A      `tuple`              values
V      `None`               nothing
c C k  `ForeignValue`       old Qpid's strings and character, kept as octets
=====  ===================  ====================================================================

Tags ``s``, ``l`` and ``L`` are read as all clients write them, not as in the text of 0-9-1
(09-W-30). A plain `int` is written as ``I`` if it fits, else as ``l``. A repeated name has its last
value (09-W-35).

Bounds: `DEEPEST` nested tables and arrays, `MOST_VALUES` values. Each inner length is checked
against the outer one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import ClassVar, Final, NamedTuple, TypeAlias, Union

from amqproute.errors import AmqprouteError

DEEPEST: Final = 16
"""Depth of nested tables and arrays, including the outermost. x-death, the deepest common one, has
three."""
MOST_VALUES: Final = 16_384
"""Most values of a table with all nested ones, give or take those of one nested table."""

_SHORT = struct.Struct(">H")
_LONG = struct.Struct(">I")
_INT = struct.Struct(">i")
_LONGLONG = struct.Struct(">q")
_ULONGLONG = struct.Struct(">Q")
_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")
_DECIMAL = struct.Struct(">Bi")

_INT_LIMIT: Final = 0x80000000
_LONG_LIMIT: Final = 0x8000000000000000


class FieldValueError(AmqprouteError):
    """Octets that are not a value of their type, or a value that does not fit its type."""


class TaggedInt(int):
    """An integer with the tag it is written with.

    Attributes:
        tag: the letter.
        layout: its packed form.
    """

    __slots__ = ()

    tag: ClassVar[bytes]
    layout: ClassVar[struct.Struct]


class Int8(TaggedInt):
    """Tag ``b``."""

    __slots__ = ()

    tag = b"b"
    layout = struct.Struct(">b")


class UInt8(TaggedInt):
    """Tag ``B``."""

    __slots__ = ()

    tag = b"B"
    layout = struct.Struct(">B")


class Int16(TaggedInt):
    """Tag ``s``: what clients send for 16 bits with a sign."""

    __slots__ = ()

    tag = b"s"
    layout = struct.Struct(">h")


class Int16U(TaggedInt):
    """Tag ``U``: 16 bits with a sign by the letter of 0-9-1."""

    __slots__ = ()

    tag = b"U"
    layout = struct.Struct(">h")


class UInt16(TaggedInt):
    """Tag ``u``."""

    __slots__ = ()

    tag = b"u"
    layout = struct.Struct(">H")


class UInt32(TaggedInt):
    """Tag ``i``."""

    __slots__ = ()

    tag = b"i"
    layout = _LONG


class Int64(TaggedInt):
    """Tag ``l``: what clients send for 64 bits with a sign."""

    __slots__ = ()

    tag = b"l"
    layout = _LONGLONG


class Int64L(TaggedInt):
    """Tag ``L``: 64 bits with a sign as py-amqp writes them."""

    __slots__ = ()

    tag = b"L"
    layout = _LONGLONG


class EpochSeconds(TaggedInt):
    """Tag ``T``: seconds since 1970 UTC."""

    __slots__ = ()

    tag = b"T"
    layout = _ULONGLONG


class Float32(float):
    """Tag ``f``."""

    __slots__ = ()


class LongString(bytes):
    """Tag ``S`` with octets that are not UTF-8."""

    __slots__ = ()


class TableDecimal(NamedTuple):
    """Tag ``D``: ``value`` divided by ten to the power of ``scale``."""

    scale: int
    value: int

    def number(self) -> Decimal:
        """Return it as a number."""
        return Decimal(self.value).scaleb(-self.scale)


class ForeignValue(NamedTuple):
    """Tags ``c``, ``C`` and ``k``, of old Qpid clients: the tag and the octets after it."""

    tag: bytes
    octets: bytes


FieldValue: TypeAlias = Union[  # noqa: UP007 - recursive, by name
    bool,
    int,
    float,
    str,
    bytes,
    TableDecimal,
    ForeignValue,
    Sequence["FieldValue"],
    Mapping[str, "FieldValue"],
    None,
]
"""A value of a table. A table or array that was read is a `FieldTable` or a tuple."""


class FieldTable(Mapping[str, FieldValue]):
    """A table: immutable, with its octets on the wire.

    Two tables are equal if their names and values are, whatever their tags.

    Args:
        values: its values.

    Raises:
        FieldValueError: a name is longer than 255 octets, or a value has no tag.
    """

    __slots__ = ("_octets", "_values")

    def __init__(self, values: Mapping[str, FieldValue] | None = None) -> None:
        if isinstance(values, FieldTable):
            self._values: dict[str, FieldValue] = values._values
            self._octets: bytes = values._octets
        else:
            out: list[bytes] = []
            if values:
                _write_pairs(out, values, 1)
            self._values = {name: _frozen(value) for name, value in (values or {}).items()}
            self._octets = b"".join(out)

    @classmethod
    def from_octets(cls, octets: bytes) -> FieldTable:
        """Read the pairs of a table, without its length.

        Raises:
            FieldValueError: an unknown tag, a length that does not fit, or a bound.
        """
        return _made(_read_pairs(octets, 0, len(octets), 1, [MOST_VALUES]), octets)

    @property
    def octets(self) -> bytes:
        """The pairs on the wire, without the length before them."""
        return self._octets

    def __getitem__(self, name: str) -> FieldValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FieldTable):
            return self._values == other._values
        if isinstance(other, Mapping):
            return self._values == other
        return NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __repr__(self) -> str:
        return f"FieldTable({self._values!r})"

    def plain(self) -> FieldTable:
        """Return the same values with tags that every client reads (09-W-31).

        These are S I D T F t l d x A V. Integers become ``I`` if they fit, else ``l``; ``l`` stays
        ``l``; ``f`` becomes ``d``; old Qpid's strings become ``S``.
        """
        return FieldTable({name: _plain(value) for name, value in self._values.items()})


def _made(values: dict[str, FieldValue], octets: bytes) -> FieldTable:
    table = FieldTable.__new__(FieldTable)
    table._values = values
    table._octets = octets
    return table


EMPTY_TABLE: Final = _made({}, b"")
"""A table without fields."""


def read_table(data: bytes, pos: int, end: int) -> tuple[FieldTable, int]:
    """Read a table with its length.

    Args:
        data: the octets.
        pos: offset of the length.
        end: end of the available octets.

    Returns:
        The table, and the offset of its end.

    Raises:
        FieldValueError: it is not a table.
    """
    if end - pos < 4:
        raise FieldValueError("a table ends within its length")
    size = _LONG.unpack_from(data, pos)[0]
    pos += 4
    if size == 0:
        return EMPTY_TABLE, pos
    after = pos + size
    if after > end:
        raise FieldValueError(f"a table of {size} octets where {end - pos} are left")
    octets = data[pos:after]
    return _made(_read_pairs(octets, 0, size, 1, [MOST_VALUES]), octets), after


def table_octets(table: Mapping[str, FieldValue]) -> bytes:
    """Return a table's octets with its length.

    Raises:
        FieldValueError: a name is longer than 255 octets, or a value has no tag.
    """
    octets = (table if isinstance(table, FieldTable) else FieldTable(table)).octets
    return _LONG.pack(len(octets)) + octets


def _read_pairs(
    data: bytes, pos: int, end: int, depth: int, left: list[int]
) -> dict[str, FieldValue]:
    values: dict[str, FieldValue] = {}
    count = 0
    limit = left[0]
    while pos < end:
        after = pos + 1 + data[pos]
        if after >= end:
            raise FieldValueError("a name reaches beyond its table")
        try:
            name = data[pos + 1 : after].decode()
        except UnicodeDecodeError:
            raise FieldValueError("a name that is no UTF-8") from None
        count += 1
        if count > limit:
            raise FieldValueError(f"a table of more than {MOST_VALUES} values")
        tag = data[after]
        pos = after + 1
        if tag == 0x53:  # S
            if end - pos < 4:
                raise _beyond()
            after = pos + 4 + _LONG.unpack_from(data, pos)[0]
            if after > end:
                raise _beyond()
            octets = data[pos + 4 : after]
            try:
                values[name] = octets.decode()
            except UnicodeDecodeError:
                values[name] = LongString(octets)
            pos = after
        elif tag == 0x49:  # I
            if end - pos < 4:
                raise _beyond()
            values[name] = _INT.unpack_from(data, pos)[0]
            pos += 4
        else:
            values[name], pos = _read_value(tag, data, pos, end, depth, left)
    left[0] -= count
    return values


def _read_value(
    tag: int, data: bytes, pos: int, end: int, depth: int, left: list[int]
) -> tuple[FieldValue, int]:
    if tag == 0x74:  # t
        if pos >= end:
            raise _beyond()
        return data[pos] != 0, pos + 1
    if tag == 0x56:  # V
        return None, pos
    kind = _INTEGERS.get(tag)
    if kind is not None:
        after = pos + kind.layout.size
        if after > end:
            raise _beyond()
        return kind(kind.layout.unpack_from(data, pos)[0]), after
    if tag in _WITH_LENGTH:
        if end - pos < 4:
            raise _beyond()
        after = pos + 4 + _LONG.unpack_from(data, pos)[0]
        if after > end:
            raise _beyond()
        octets = data[pos + 4 : after]
        if tag == 0x53:  # S
            try:
                return octets.decode(), after
            except UnicodeDecodeError:
                return LongString(octets), after
        if tag == 0x78:  # x
            return octets, after
        if tag == 0x63 or tag == 0x43:  # c, C
            return ForeignValue(bytes((tag,)), octets), after
        if depth >= DEEPEST:
            raise FieldValueError(f"more than {DEEPEST} tables and arrays within each other")
        if tag == 0x46:  # F
            return _made(_read_pairs(octets, 0, len(octets), depth + 1, left), octets), after
        return _read_items(octets, depth + 1, left), after
    fixed = _FIXED.get(tag)
    if fixed is None:
        raise FieldValueError(f"a value with the unknown tag {bytes((tag,))!r}")
    after = pos + fixed
    if after > end:
        raise _beyond()
    if tag == 0x49:  # I
        return int(_INT.unpack_from(data, pos)[0]), after
    if tag == 0x64:  # d
        return float(_DOUBLE.unpack_from(data, pos)[0]), after
    if tag == 0x66:  # f
        return Float32(_FLOAT.unpack_from(data, pos)[0]), after
    if tag == 0x44:  # D
        return TableDecimal._make(_DECIMAL.unpack_from(data, pos)), after
    return ForeignValue(b"k", data[pos:after]), after


def _read_items(octets: bytes, depth: int, left: list[int]) -> tuple[FieldValue, ...]:
    items: list[FieldValue] = []
    pos = 0
    end = len(octets)
    limit = left[0]
    while pos < end:
        if len(items) >= limit:
            raise FieldValueError(f"a table of more than {MOST_VALUES} values")
        item, pos = _read_value(octets[pos], octets, pos + 1, end, depth, left)
        items.append(item)
    left[0] -= len(items)
    return tuple(items)


def _beyond() -> FieldValueError:
    return FieldValueError("a value reaches beyond its table")


_INTEGERS: Final[dict[int, type[TaggedInt]]] = {
    kind.tag[0]: kind
    for kind in (Int8, UInt8, Int16, Int16U, UInt16, UInt32, Int64, Int64L, EpochSeconds)
}
_WITH_LENGTH: Final = frozenset(b"SxcCFA")
_FIXED: Final = {0x49: 4, 0x64: 8, 0x66: 4, 0x44: 5, 0x6B: 1}


def _write_pairs(out: list[bytes], values: Mapping[str, FieldValue], depth: int) -> None:
    for name, value in values.items():
        octets = _utf8(name)
        if len(octets) > 255:
            raise FieldValueError(f"a name of {len(octets)} octets")
        out.append(bytes((len(octets),)))
        out.append(octets)
        _write_value(out, value, depth)


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise FieldValueError("a text with half a surrogate pair has no UTF-8") from None


def _write_value(out: list[bytes], value: FieldValue, depth: int) -> None:
    if isinstance(value, str):
        octets = _utf8(value)
        out += (b"S", _LONG.pack(len(octets)), octets)
    elif value is None:
        out.append(b"V")
    elif isinstance(value, bool):
        out.append(b"t\x01" if value else b"t\x00")
    elif isinstance(value, TaggedInt):
        try:
            out.append(value.tag + value.layout.pack(value))
        except struct.error:
            raise FieldValueError(f"{int(value)} does not fit tag {value.tag!r}") from None
    elif isinstance(value, int):
        if -_INT_LIMIT <= value < _INT_LIMIT:
            out.append(b"I" + _INT.pack(value))
        elif -_LONG_LIMIT <= value < _LONG_LIMIT:
            out.append(b"l" + _LONGLONG.pack(value))
        else:
            raise FieldValueError(f"{value} has more than 64 bits")
    elif isinstance(value, float):
        if isinstance(value, Float32):
            try:
                out.append(b"f" + _FLOAT.pack(value))
            except OverflowError:
                raise FieldValueError(f"{value!r} does not fit 32 bits") from None
        else:
            out.append(b"d" + _DOUBLE.pack(value))
    elif isinstance(value, bytes):
        tag = b"S" if isinstance(value, LongString) else b"x"
        out += (tag, _LONG.pack(len(value)), value)
    elif isinstance(value, TableDecimal):
        try:
            out.append(b"D" + _DECIMAL.pack(*value))
        except struct.error:
            raise FieldValueError(f"{value} does not fit tag D") from None
    elif isinstance(value, ForeignValue):
        size = b"" if value.tag == b"k" else _LONG.pack(len(value.octets))
        out += (value.tag, size, value.octets)
    else:
        _write_nested(out, value, depth)


def _write_nested(
    out: list[bytes], value: Mapping[str, FieldValue] | Sequence[FieldValue], depth: int
) -> None:
    if isinstance(value, FieldTable):
        out += (b"F", _LONG.pack(len(value.octets)), value.octets)
        return
    if depth >= DEEPEST:
        raise FieldValueError(f"more than {DEEPEST} tables and arrays within each other")
    inner: list[bytes] = []
    if isinstance(value, Mapping):
        tag = b"F"
        _write_pairs(inner, value, depth + 1)
    elif isinstance(value, list | tuple):
        tag = b"A"
        for item in value:
            _write_value(inner, item, depth + 1)
    else:
        raise FieldValueError(f"no tag for a {type(value).__name__}")
    octets = b"".join(inner)
    out += (tag, _LONG.pack(len(octets)), octets)


def _frozen(value: FieldValue) -> FieldValue:
    """Return a value in the form in which it would be read: a `FieldTable` or a tuple if nested."""
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, Mapping):
        return FieldTable(value)
    return value


def _plain(value: FieldValue) -> FieldValue:
    if isinstance(value, EpochSeconds | Int64 | bool):
        return value
    if isinstance(value, Int64L):
        return Int64(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Float32):
        return float(value)
    if isinstance(value, ForeignValue):
        try:
            return value.octets.decode()
        except UnicodeDecodeError:
            return LongString(value.octets)
    if isinstance(value, FieldTable):
        return value.plain()
    if isinstance(value, tuple) and not isinstance(value, TableDecimal):
        return tuple(_plain(item) for item in value)
    return value


__all__ = [
    "DEEPEST",
    "EMPTY_TABLE",
    "MOST_VALUES",
    "EpochSeconds",
    "FieldTable",
    "FieldValue",
    "FieldValueError",
    "Float32",
    "ForeignValue",
    "Int8",
    "Int16",
    "Int16U",
    "Int64",
    "Int64L",
    "LongString",
    "TableDecimal",
    "TaggedInt",
    "UInt8",
    "UInt16",
    "UInt32",
    "read_table",
    "table_octets",
]
