# SPDX-License-Identifier: Apache-2.0
"""The other end of a connection, as its socket shows it."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address
from typing import Any, Final

__all__ = ["unix_credentials", "unmapped"]

_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred of unix(7)


def unmapped(host: str) -> str:
    """Return the IPv4 address that an IPv6 socket shows as ``::ffff:192.0.2.1``, or else `host`."""
    if not host.startswith("::ffff:"):
        return host
    return str(IPv6Address(host).ipv4_mapped or host)


def unix_credentials(transport: object) -> tuple[int, int] | None:
    """Ask the kernel for process and user id at the other end (unix(7), SO_PEERCRED).

    Returns:
        None unless the transport is a unix socket.
    """
    getter = getattr(transport, "getHandle", None)
    handle: Any = None if getter is None else getter()  # Any: a socket, if it is one
    if getattr(handle, "family", None) != socket.AF_UNIX:
        return None
    raw = handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid
