# SPDX-License-Identifier: Apache-2.0
"""The PROXY protocol, versions 1 and 2: the client's address in a header from a load balancer.

The balancer connects in its own name and sends the header before the client's first octet (and
before TLS). Version 2 is sixteen fixed octets, the addresses, and extensions (type, length, value),
which are skipped; version 1, which nginx sends, is one line of text. The specification is HAProxy's
``proxy-protocol.txt``, sections 2.1 and 2.2. Of version 2, commands and families without addresses
are not supported: a client without an address could not be accounted for. A line of version 1 with
``UNKNOWN`` is what the command LOCAL is in version 2.

Pure: octets in, a header or an error out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

__all__ = [
    "MOST_LINE_OCTETS",
    "MOST_OCTETS",
    "ProxyHeader",
    "ProxyHeaderError",
    "read_proxy_header",
]

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"

MOST_OCTETS: Final = 4096
"""The longest header accepted, including extensions; the specification has senders keep the usual
ones below 536."""

MOST_LINE_OCTETS: Final = 107
"""The longest line of version 1, with its end (section 2.1)."""

_FIXED: Final = 16
_LINE: Final = b"PROXY "
_LOCAL: Final = 0
_PROXY: Final = 1
_TCP4: Final = 0x11
_TCP6: Final = 0x21


class ProxyHeaderError(ValueError):
    """The octets are not a usable header; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """A parsed header.

    Attributes:
        size: its octets; the octets after it belong to the client.
        host: the client's IP address; None for the balancer's own connections, such as its checks
            (command LOCAL, family UNKNOWN).
        port: the client's TCP port.
    """

    size: int
    host: str | None
    port: int


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Parse the header at the beginning of received data; return None while it is incomplete.

    Raises:
        ProxyHeaderError: the data cannot become a valid header.
    """
    if data and data[: len(_LINE)] == _LINE[: len(data)]:
        return _read_line(data)
    if data[: len(SIGNATURE)] != SIGNATURE[: len(data)]:
        raise ProxyHeaderError("no header of the PROXY protocol")
    if len(data) < _FIXED:
        return None
    version_command, family, length = struct.unpack_from("!BBH", data, len(SIGNATURE))
    version, command = version_command >> 4, version_command & 0x0F
    if version != 2:
        raise ProxyHeaderError(f"version {version} in a PROXY header of version 2")
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"unknown command {command} in a PROXY header")
    size = _FIXED + length
    if size > MOST_OCTETS:
        raise ProxyHeaderError(f"a PROXY header of {size} octets; the most is {MOST_OCTETS}")
    if len(data) < size:
        return None
    if command == _LOCAL:
        return ProxyHeader(size, None, 0)  # addresses must be ignored
    return _proxied(data, family, length, size)


def _read_line(data: bytes) -> ProxyHeader | None:
    """Parse a header of version 1; return None while its line has no end."""
    end = data.find(b"\r\n", 0, MOST_LINE_OCTETS)
    if end < 0:
        if len(data) >= MOST_LINE_OCTETS:
            raise ProxyHeaderError(f"a PROXY line of more than {MOST_LINE_OCTETS} octets")
        return None
    family, *fields = data[len(_LINE) : end].split(b" ")
    if family == b"UNKNOWN":
        return ProxyHeader(end + 2, None, 0)  # whatever follows must be ignored
    of_family = _ADDRESS_OF_LINE.get(family)
    if of_family is None:
        raise ProxyHeaderError("a PROXY line of a family that is not TCP4, TCP6 or UNKNOWN")
    if len(fields) != 4:
        raise ProxyHeaderError("a PROXY line without two addresses and two ports")
    source, destination, port, destination_port = fields
    of_family(_text(destination))
    _port(destination_port)
    return ProxyHeader(end + 2, of_family(_text(source)), _port(port))


def _text(field: bytes) -> str:
    return field.decode("ascii", "replace")


def _ipv4_of(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except ValueError:
        raise ProxyHeaderError("a PROXY line with an address that is not IPv4") from None


def _ipv6_of(text: str) -> str:
    try:
        address = IPv6Address(text)
    except ValueError:
        raise ProxyHeaderError("a PROXY line with an address that is not IPv6") from None
    if address.scope_id is not None:
        raise ProxyHeaderError("a PROXY line with an address that has a scope")
    return str(address.ipv4_mapped or address)


_ADDRESS_OF_LINE: Final = {b"TCP4": _ipv4_of, b"TCP6": _ipv6_of}


def _port(field: bytes) -> int:
    if not field.isdigit() or len(field) > 5 or str(int(field)).encode() != field:
        raise ProxyHeaderError("a PROXY line with a port that is not a number")
    port = int(field)
    if port > 65535:
        raise ProxyHeaderError("a PROXY line with a port beyond 65535")
    return port


def _proxied(data: bytes, family: int, length: int, size: int) -> ProxyHeader:
    octets = {_TCP4: 4, _TCP6: 16}.get(family)
    if octets is None:
        raise ProxyHeaderError(f"a PROXY header of family {family:#04x}, which is not TCP over IP")
    addresses = 2 * octets + 4
    if length < addresses:
        raise ProxyHeaderError("a PROXY header that is too short for its addresses")
    source = data[_FIXED : _FIXED + octets]
    port = int.from_bytes(data[_FIXED + 2 * octets : _FIXED + 2 * octets + 2], "big")
    _skip_extensions(data[_FIXED + addresses : size])
    if octets == 4:
        return ProxyHeader(size, str(IPv4Address(source)), port)
    address = IPv6Address(source)
    return ProxyHeader(size, str(address.ipv4_mapped or address), port)


def _skip_extensions(data: bytes) -> None:
    position = 0
    while position < len(data):
        if position + 3 > len(data):
            raise ProxyHeaderError("a PROXY header that ends within an extension")
        position += 3 + int.from_bytes(data[position + 1 : position + 3], "big")
    if position != len(data):
        raise ProxyHeaderError("a PROXY header that ends within an extension")
