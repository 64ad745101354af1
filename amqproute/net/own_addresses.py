# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host's interfaces: `OwnAddresses`.

They are read in ways open to a sandboxed daemon: IPv4 by the ioctl SIOCGIFCONF, IPv6 from
``/proc/self/net/if_inet6``. Both list addresses rather than routes, of which a router has a
million; neither needs a netlink socket, which the unit does not permit.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from twisted.logger import Logger

__all__ = ["OwnAddresses"]

_SIOCGIFCONF: Final = 0x8912
_IF_INET6: Final = Path("/proc/self/net/if_inet6")
_NAME_OCTETS: Final = 16
_ROW_OCTETS: Final = _NAME_OCTETS + (24 if struct.calcsize("P") == 8 else 16)
"""The size of C's ``struct ifreq``."""
_ADDRESS: Final = slice(_NAME_OCTETS + 4, _NAME_OCTETS + 8)
"""The position of ``sin_addr`` in it."""
_FIRST_ROWS: Final = 64
_MOST_ROWS: Final = 1 << 16
FRESH_SECONDS: Final = 1.0
"""Time for which a result is cached."""

Address = IPv4Address | IPv6Address


class OwnAddresses:
    """A callable that returns the present addresses of this host.

    Args:
        seconds: a monotonic clock.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._known: frozenset[Address] = frozenset()
        self._until = float("-inf")
        self._failed = ""

    def __call__(self) -> Collection[Address]:
        """Return the addresses; if they cannot be read, the last known ones, and log that once."""
        now = self._seconds()
        if now >= self._until:
            self._until = now + FRESH_SECONDS
            try:
                self._known = frozenset((*_ipv4_addresses(), *_ipv6_addresses()))
                self._failed = ""
            except (OSError, ValueError) as error:
                if not self._failed:
                    self.log.error(
                        "the addresses of this host cannot be read, so that domains may point at "
                        "it: {error}",
                        error=error,
                    )
                self._failed = str(error)
        return self._known


def _ipv4_addresses() -> list[IPv4Address]:
    rows = _FIRST_ROWS
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        while True:
            buffer = array.array("B", bytes(rows * _ROW_OCTETS))
            asked = struct.pack("@iP", len(buffer), buffer.buffer_info()[0])
            (used, _) = struct.unpack("@iP", fcntl.ioctl(handle.fileno(), _SIOCGIFCONF, asked))
            if used < len(buffer) or rows >= _MOST_ROWS:
                break
            rows *= 4  # the kernel truncates the list silently
    octets = buffer.tobytes()[:used]
    found = (octets[at : at + _ROW_OCTETS] for at in range(0, used, _ROW_OCTETS))
    return [IPv4Address(row[_ADDRESS]) for row in found]


def _ipv6_addresses() -> list[IPv6Address]:
    try:
        text = _IF_INET6.read_text("ascii")
    except FileNotFoundError:
        return []  # a kernel without IPv6
    return [IPv6Address(bytes.fromhex(line.split()[0])) for line in text.splitlines()]
