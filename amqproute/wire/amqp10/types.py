# SPDX-License-Identifier: Apache-2.0
"""The AMQP 1.0 types that Python lacks (part 1 §1.6).

Every decoded value re-encodes without loss, because its Python type names its AMQP type:

====================  =========================  ====================================
AMQP                  Python                     remark
====================  =========================  ====================================
null, boolean         ``None``, ``bool``
ubyte ... ulong       `UByte` ... `ULong`        ``int`` subclasses
byte, short, int      `Byte`, `Short`, `Int`
long                  ``int``                    `Long` is accepted for encoding
float, double         `Float`, ``float``
decimal32/64/128      `Decimal32` ...            the raw octets; no arithmetic
char                  `Char`                     one code point
timestamp             `Timestamp`                milliseconds since the Unix epoch
uuid                  ``uuid.UUID``
binary                ``bytes``
string, symbol        ``str``, `Symbol`
list, map             ``list``, ``dict``         the dict keeps the order of the wire;
                                                 `WideMap` for many numeric keys
array                 `Array`
described             `Described`
====================  =========================  ====================================

A `Symbol` compares equal to the ``str`` of the same text, a `UInt` to the ``int`` of the same
value: code that looks up ``properties["product"]`` need not care. The price is in maps: ``1``,
``True`` and ``UInt(1)`` are three keys for AMQP and one for a dict. A map with such a pair is
refused by the decoder, never quietly shortened. Keys that Python cannot hash (lists, maps, arrays)
are refused as well; nobody needs them, and the bytes of a message's body are carried without being
decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

_FLOAT = struct.Struct(">f")


class Symbol(str):
    """A symbol: ASCII text from a constrained domain (§1.6.21)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str.__repr__(self)})"


class _Integer(int):
    """An integer that remembers its width."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int.__repr__(self)})"

    __str__ = int.__repr__


class UByte(_Integer):
    """0 to 2**8 - 1 (§1.6.3)."""

    __slots__ = ()


class UShort(_Integer):
    """0 to 2**16 - 1 (§1.6.4)."""

    __slots__ = ()


class UInt(_Integer):
    """0 to 2**32 - 1 (§1.6.5)."""

    __slots__ = ()


class ULong(_Integer):
    """0 to 2**64 - 1 (§1.6.6)."""

    __slots__ = ()


class Byte(_Integer):
    """-2**7 to 2**7 - 1 (§1.6.7)."""

    __slots__ = ()


class Short(_Integer):
    """-2**15 to 2**15 - 1 (§1.6.8)."""

    __slots__ = ()


class Int(_Integer):
    """-2**31 to 2**31 - 1 (§1.6.9)."""

    __slots__ = ()


class Long(_Integer):
    """-2**63 to 2**63 - 1 (§1.6.10); encodes as a plain ``int`` does, and decodes to one."""

    __slots__ = ()


class Timestamp(_Integer):
    """Milliseconds since the Unix epoch, signed 64 bit (§1.6.17)."""

    __slots__ = ()


class Float(float):
    """An IEEE 754 binary32 (§1.6.11).

    The value is rounded to single precision when it is made, so that what is held is what the
    wire carries.

    Raises:
        OverflowError: the value is too large for single precision.
    """

    __slots__ = ()

    def __new__(cls, value: float = 0.0) -> Float:
        """Round a number to single precision."""
        return super().__new__(cls, _FLOAT.unpack(_FLOAT.pack(value))[0])

    def __repr__(self) -> str:
        return f"Float({float.__repr__(self)})"


class Char(str):
    """One Unicode character (§1.6.16).

    Raises:
        ValueError: not exactly one character.
    """

    __slots__ = ()

    def __new__(cls, value: str) -> Char:
        """Check the length."""
        if len(value) != 1:
            raise ValueError("a char is exactly one character")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"Char({str.__repr__(self)})"


class _Octets(bytes):
    """A number carried as its octets."""

    width = 0

    def __new__(cls, value: bytes) -> _Octets:
        if len(value) != cls.width:
            raise ValueError(f"{cls.__name__} has {cls.width} octets, not {len(value)}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({bytes.__repr__(self)})"


class Decimal32(_Octets):
    """IEEE 754-2008 decimal32 in binary integer decimal encoding, as octets (§1.6.13)."""

    width = 4


class Decimal64(_Octets):
    """IEEE 754-2008 decimal64, as octets (§1.6.14)."""

    width = 8


class Decimal128(_Octets):
    """IEEE 754-2008 decimal128, as octets (§1.6.15)."""

    width = 16


class Described:
    """A value with a descriptor that says what it means (§1.2).

    Attributes:
        descriptor: usually a `ULong` or a `Symbol`.
        value: the underlying value.
    """

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: object, value: object) -> None:
        self.descriptor: Any = descriptor
        self.value: Any = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Described):
            return NotImplemented
        return bool(self.descriptor == other.descriptor and self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array:
    """A sequence of values that share one constructor (§1.6.24).

    Attributes:
        code: the format code of all the elements, kept so that the array re-encodes to the
            same bytes.
        items: the elements, without their descriptors.
        descriptors: the descriptors of the shared constructor, outermost first; empty for
            elements that are not described.
    """

    __slots__ = ("code", "descriptors", "items")

    def __init__(
        self, code: int, items: Iterable[object], descriptors: Iterable[object] = ()
    ) -> None:
        self.code = code
        self.items: tuple[Any, ...] = tuple(items)
        self.descriptors: tuple[Any, ...] = tuple(descriptors)

    @classmethod
    def of_symbols(cls, symbols: Iterable[str]) -> Array:
        """Make an array of symbols in the narrowest encoding that holds them all."""
        items = tuple(Symbol(symbol) for symbol in symbols)
        return cls(SYMBOL_8 if all(len(item) < 256 for item in items) else SYMBOL_32, items)

    def __iter__(self) -> Iterator[Any]:  # of the type that the code means
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        return (self.code, self.items, self.descriptors) == (
            other.code,
            other.items,
            other.descriptors,
        )

    # An array is no map key: see the module's docstring.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        described = f", {self.descriptors!r}" if self.descriptors else ""
        return f"Array(0x{self.code:02x}, {self.items!r}{described})"


class WideMap(Mapping[Any, Any]):
    """A map with many keys whose Python hash its sender can choose: numbers (§1.6.23).

    A dict of such keys can be made to take time by the square of its size. Here a key is found by
    its type and its text, whose hash is salted. So ``1`` and ``UInt(1)`` are two keys, as they
    are for AMQP.

    Raises:
        ValueError: two of the pairs have the same key.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[tuple[object, object]]) -> None:
        self._pairs: dict[object, tuple[Any, Any]] = {}
        for done, pair in enumerate(pairs):
            self._pairs[_place(pair[0])] = pair
            if len(self._pairs) == done:
                raise ValueError(f"the key {pair[0]!r:.64} occurs twice")

    def __getitem__(self, key: object) -> Any:  # a value of any AMQP type
        return self._pairs[_place(key)][1]

    def __contains__(self, key: object) -> bool:
        return _place(key) in self._pairs

    def __iter__(self) -> Iterator[Any]:  # numbers of any AMQP type
        return (key for key, _ in self._pairs.values())

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WideMap):
            return NotImplemented
        return self._pairs == other._pairs

    # No map is a map key: see the module's docstring.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"WideMap({list(islice(self._pairs.values(), 3))!r:.200}, {len(self)} pairs)"


def _place(key: object) -> object:
    """Return the surrogate of a key: itself if its hash is salted, else its type and text."""
    if isinstance(key, str | bytes):
        return key
    return (f"{type(key).__name__} {key!r}",)


# Format codes (§1.6), in the order of the type table of the standard.
DESCRIBED: Final = 0x00
NULL: Final = 0x40
BOOLEAN: Final = 0x56
TRUE: Final = 0x41
FALSE: Final = 0x42
UBYTE: Final = 0x50
USHORT: Final = 0x60
UINT: Final = 0x70
SMALL_UINT: Final = 0x52
UINT_0: Final = 0x43
ULONG: Final = 0x80
SMALL_ULONG: Final = 0x53
ULONG_0: Final = 0x44
BYTE: Final = 0x51
SHORT: Final = 0x61
INT: Final = 0x71
SMALL_INT: Final = 0x54
LONG: Final = 0x81
SMALL_LONG: Final = 0x55
FLOAT: Final = 0x72
DOUBLE: Final = 0x82
DECIMAL_32: Final = 0x74
DECIMAL_64: Final = 0x84
DECIMAL_128: Final = 0x94
CHAR: Final = 0x73
TIMESTAMP: Final = 0x83
UUID_CODE: Final = 0x98
BINARY_8: Final = 0xA0
BINARY_32: Final = 0xB0
STRING_8: Final = 0xA1
STRING_32: Final = 0xB1
SYMBOL_8: Final = 0xA3
SYMBOL_32: Final = 0xB3
LIST_0: Final = 0x45
LIST_8: Final = 0xC0
LIST_32: Final = 0xD0
MAP_8: Final = 0xC1
MAP_32: Final = 0xD1
ARRAY_8: Final = 0xE0
ARRAY_32: Final = 0xF0
