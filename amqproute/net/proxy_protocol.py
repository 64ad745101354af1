# SPDX-License-Identifier: Apache-2.0
"""The PROXY protocol, version 2: the client's address in a header from a load balancer.

The balancer connects in its own name and sends, before the client's first octet (and before TLS),
sixteen fixed octets, the addresses, and extensions (type, length, value), which are skipped. The
specification is HAProxy's ``proxy-protocol.txt``, section 2.2. Version 1, a text protocol, is not
supported; nor are commands and families without addresses: a client without an address could not be
accounted for.

Pure: octets in, a header or an error out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

__all__ = ["MOST_OCTETS", "ProxyHeader", "ProxyHeaderError", "read_proxy_header"]

SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"

MOST_OCTETS: Final = 4096
"""The longest header accepted, including extensions; the specification has senders keep the usual
ones below 536."""

_FIXED: Final = 16
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
            (command LOCAL).
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
    if data[: len(SIGNATURE)] != SIGNATURE[: len(data)]:
        if data.startswith(b"PROXY "):
            raise ProxyHeaderError("version 1 of the PROXY protocol; version 2 is read here")
        raise ProxyHeaderError("no header of the PROXY protocol")
    if len(data) < _FIXED:
        return None
    version_command, family, length = struct.unpack_from("!BBH", data, len(SIGNATURE))
    version, command = version_command >> 4, version_command & 0x0F
    if version != 2:
        raise ProxyHeaderError(f"version {version} of the PROXY protocol; version 2 is read here")
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
