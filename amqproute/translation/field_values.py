# SPDX-License-Identifier: Apache-2.0
"""Values of field tables as values of AMQP 1.0, and back (09: part 5.2).

=========  ==================  =============================================================
tag        AMQP 1.0            back
=========  ==================  =============================================================
S          string              S; a text with NUL or no UTF-8 is binary and comes back as x
c C k      string              S; these are of old Qpid clients
I i        int, uint           same tag
b B s u    byte ... ushort     same tag; U comes back as s
l L        long                l
\\          ulong               l; above 2**63 - 1 as S of the decimal text
f d        float, double       same tag
t          boolean             t
T          timestamp           T; seconds and milliseconds
D          decimal64           D where it fits, else S
x          binary              x
F A V      map, list, null     F A V
\\          symbol, uuid, char  S; a uuid as ``urn:uuid:`` text
\\          array, described    A, and the value without its descriptor
=========  ==================  =============================================================

Values that would change on the way back (rows that begin with ``\\``, and cases such as a timestamp
with milliseconds) are stored beside the translation: see `amqproute.translation.message_snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from amqproute.translation.decimal_numbers import decimal64_octets, decimal_number
from amqproute.wire.amqp09.field_tables import (
    EpochSeconds,
    FieldValue,
    Float32,
    ForeignValue,
    Int8,
    Int16,
    Int16U,
    Int64,
    LongString,
    TableDecimal,
    TaggedInt,
    UInt8,
    UInt16,
    UInt32,
)
from amqproute.wire.amqp10.types import (
    Array,
    Byte,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

URN_UUID: Final = "urn:uuid:"
_LONG_LIMIT: Final = 1 << 63
_INT_LIMIT: Final = 1 << 31

_TO_1_0: Final[Mapping[type, type]] = {
    Int8: Byte, UInt8: UByte, Int16: Short, Int16U: Short, UInt16: UShort, UInt32: UInt,
}  # fmt: skip
_TO_0_9: Final[Mapping[type, type[TaggedInt]]] = {
    Byte: Int8, UByte: UInt8, Short: Int16, UShort: UInt16, UInt: UInt32,
}  # fmt: skip


def to_amqp10(value: FieldValue) -> object:
    """Convert a value of a table to one of AMQP 1.0."""
    kind = type(value)
    if kind is str:
        assert isinstance(value, str)
        return value.encode() if "\0" in value else value
    if value is None or kind is bool or kind is bytes or kind is float:
        return value
    narrow = _TO_1_0.get(kind)
    if narrow is not None:
        return narrow(value)
    if isinstance(value, EpochSeconds):
        return Timestamp(value * 1000) if value * 1000 < _LONG_LIMIT else ULong(value)
    if isinstance(value, int):
        is_long = isinstance(value, TaggedInt) or not -_INT_LIMIT <= value < _INT_LIMIT
        return Long(value) if is_long else Int(value)
    if isinstance(value, Float32):
        return Float(value)
    if isinstance(value, LongString):
        return bytes(value)
    if isinstance(value, TableDecimal):
        return Decimal64(decimal64_octets(value.scale, value.value))
    if isinstance(value, ForeignValue):
        return _text_or_octets(value.octets)
    if isinstance(value, Mapping):
        return {name: to_amqp10(each) for name, each in value.items()}
    assert isinstance(value, Sequence)
    return [to_amqp10(each) for each in value]


def _text_or_octets(octets: bytes) -> str | bytes:
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return octets
    return octets if "\0" in text else text


def to_amqp09(value: object) -> FieldValue:
    """Convert a value of AMQP 1.0 to one of a table."""
    if isinstance(value, Decimal32 | Decimal64 | Decimal128):
        return _table_decimal(value)  # first, since they are octets
    if value is None or isinstance(value, bool | bytes):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return _table_integer(value)
    if isinstance(value, float):
        return Float32(value) if isinstance(value, Float) else float(value)
    if isinstance(value, UUID):
        return f"{URN_UUID}{value}"
    if isinstance(value, Described):
        return to_amqp09(value.value)
    if isinstance(value, Mapping):
        return {str(name): to_amqp09(each) for name, each in value.items()}
    if isinstance(value, Array | list | tuple):
        return [to_amqp09(each) for each in value]
    raise TypeError(f"not a value of AMQP 1.0: {type(value).__name__}")


def _table_integer(value: int) -> FieldValue:
    kind = _TO_0_9.get(type(value))
    if kind is not None:
        return kind(value)
    if isinstance(value, Int):
        return int(value)
    if isinstance(value, Timestamp):
        return EpochSeconds(value // 1000) if value >= 0 else Int64(value)
    if -_LONG_LIMIT <= value < _LONG_LIMIT:
        return Int64(value)
    return str(int(value))


def _table_decimal(value: Decimal32 | Decimal64 | Decimal128) -> FieldValue:
    number = decimal_number(value)
    if not isinstance(number, Decimal):
        return number
    sign, digits, exponent = number.as_tuple()
    if isinstance(exponent, int) and -255 <= exponent <= 9:
        whole = int("".join(map(str, digits))) * (-1 if sign else 1) * 10 ** max(0, exponent)
        if -_INT_LIMIT <= whole < _INT_LIMIT:
            return TableDecimal(max(0, -exponent), whole)
    return str(number)


def is_same(one: object, other: object) -> bool:
    """Return whether two values of tables are the same to a client that passes them on.

    Clients write numbers with other tags than those they have read, and octets as text.
    """
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, TableDecimal) or isinstance(other, TableDecimal):
        return (
            isinstance(one, TableDecimal)
            and isinstance(other, TableDecimal)
            and one.number() == other.number()
        )
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other or (one != one and other != other)
    if isinstance(one, str | bytes) and isinstance(other, str | bytes):
        return _octets(one) == _octets(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(is_same(one[n], other[n]) for n in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        if isinstance(one, ForeignValue) != isinstance(other, ForeignValue):
            return False
        return len(one) == len(other) and all(map(is_same, one, other))
    return one is None and other is None


def is_fragile(value: FieldValue) -> bool:
    """Return whether clients that pass a value on may write it with another tag.

    Their libraries read numbers of all widths as one type, and some treat octets as text.
    """
    if value is None or isinstance(value, bool | str | EpochSeconds):
        return False
    if isinstance(value, TaggedInt):
        return not isinstance(value, Int64) or -_INT_LIMIT <= value < _INT_LIMIT
    if isinstance(value, int):
        return False
    if isinstance(value, float):
        return isinstance(value, Float32)
    if isinstance(value, Mapping):
        return any(map(is_fragile, value.values()))
    if isinstance(value, tuple | list) and not isinstance(value, TableDecimal | ForeignValue):
        return any(map(is_fragile, value))
    return True


def _octets(value: str | bytes) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value


__all__ = ["URN_UUID", "is_fragile", "is_same", "to_amqp09", "to_amqp10"]
