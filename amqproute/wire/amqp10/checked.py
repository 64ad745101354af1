# SPDX-License-Identifier: Apache-2.0
"""Check of properties and application-properties, mostly without decoding them.

A broker forwards these sections and seldom reads them; but a later reader, here or at another hop,
can no longer reject the message to its sender. So each message is checked on arrival (part 3
§3.2.4, §3.2.5). The usual encodings are recognized by a walk over the format codes, a fraction of
the work of decoding; `sections.decode_section` decides about all others. So a section passes if and
only if that function decodes it, with one exception: strings of application-properties may hold
octets that are not UTF-8, as those of a broker in wide use do, and a reader gets the error.
"""

from __future__ import annotations

import struct
from typing import Final

from amqproute.wire.amqp10.codec import WIDTHS
from amqproute.wire.amqp10.sections import SectionOffsets, decode_section

__all__ = ["check_sections"]

_U32 = struct.Struct(">I").unpack_from
_VBIN_8: Final = 0xA0
_STR_8: Final = 0xA1
_BOOLEAN: Final = 0x56
_LONG: Final = frozenset((0xB0, 0xB1))
_SYM_8: Final = 0xA3
_VARIABLE: Final = frozenset((0xA0, 0xA1, 0xA3))
# Octets of a value with its code, where any octets are a value: of all but list0, boolean and char.
_FIXED: Final = {
    code: 1 + width
    for code, width in WIDTHS.items()
    if width >= 0 and code not in (0x45, _BOOLEAN, 0x73)
}
_BINARY: Final = (0xA0,)
_STRING: Final = (0xA1,)
_SYMBOL: Final = (0xA3,)
_MESSAGE_ID: Final = (0x44, 0x53, 0x80, 0x98, 0xA0, 0xA1)
_TIMESTAMP: Final = (0x83,)
# For each field of the properties: its usual format codes, with the number of octets of code and
# value together; 0 where a length octet follows.
_FIELDS: Final = tuple(
    {code: _FIXED.get(code, 0) for code in (0x40, *codes)}
    for codes in (
        _MESSAGE_ID, _BINARY, _STRING, _STRING, _STRING, _MESSAGE_ID, _SYMBOL, _SYMBOL,
        _TIMESTAMP, _TIMESTAMP, _STRING, (0x43, 0x52, 0x70), _STRING,
    )
)  # fmt: skip


def check_sections(encoded: bytes, offsets: SectionOffsets) -> None:
    """Check that properties and application-properties can be decoded.

    Args:
        encoded: the message, or the part of a very large one before its body.
        offsets: the offsets of its sections.

    Raises:
        DecodeError: one of them cannot.
    """
    start, end = offsets.properties_start, offsets.properties_end
    if start != end and not _are_usual_properties(encoded, start, end):
        decode_section(encoded, start, end)
    start, end = offsets.application_properties_start, offsets.application_properties_end
    if start != end and not _are_usual_application_properties(encoded, start, end):
        decode_section(encoded, start, end)


def _are_usual_properties(encoded: bytes, start: int, end: int) -> bool:
    try:
        if encoded[start : start + 4] == b"\x00\x53\x73\xc0":
            count, pos = encoded[start + 5], start + 6
        elif encoded[start : start + 4] == b"\x00\x53\x73\xd0":
            (count,), pos = _U32(encoded, start + 8), start + 12
        else:
            return False
        if count > len(_FIELDS):
            return False
        for octets in _FIELDS[:count]:
            code = encoded[pos]
            fixed = octets[code]
            if fixed:
                pos += fixed
                continue
            after = pos + 2 + encoded[pos + 1]
            if code != _VBIN_8 and not encoded[pos + 2 : after].isascii():
                if code != _STR_8:
                    return False
                encoded[pos + 2 : after].decode()
            pos = after
    except (IndexError, KeyError, UnicodeDecodeError, struct.error):
        return False
    return pos == end


def _are_usual_application_properties(encoded: bytes, start: int, end: int) -> bool:
    # RabbitMQ 3 sends the binary headers of AMQP 0-9-1, those that it has made of our own
    # annotations among them, as strings. To refuse them is to take nothing of its shovels: so
    # strings may hold any octets here.
    try:
        if encoded[start : start + 4] == b"\x00\x53\x74\xc1":
            count, pos = encoded[start + 5], start + 6
        elif encoded[start : start + 4] == b"\x00\x53\x74\xd1":
            (count,), pos = _U32(encoded, start + 8), start + 12
        else:
            return False
        keys = set()
        while pos < end:
            after = pos + 2 + encoded[pos + 1]
            key = encoded[pos:after]
            if key[0] != _STR_8:
                return False
            keys.add(key)
            code = encoded[after]
            if code in _VARIABLE:
                pos = after + 2 + encoded[after + 1]
                if code == _SYM_8 and not encoded[after + 2 : pos].isascii():
                    return False
            elif code == _BOOLEAN:
                if encoded[after + 1] > 1:
                    return False
                pos = after + 2
            elif code in _LONG:
                pos = after + 5 + _U32(encoded, after + 1)[0]
            else:
                pos = after + _FIXED[code]
    except (IndexError, KeyError, struct.error):
        return False
    return pos == end and count == 2 * len(keys)
