# SPDX-License-Identifier: Apache-2.0
"""Sends what is written at once, where the transport holds nothing back.

Twisted's transports keep what is written for the next turn of the reactor: they ask the kernel to
be told when the socket can take something, are told, send, and ask not to be told any more. That
joins many small writes, but the pump joins them already; for a lone message it is three system
calls and a turn of waiting on each of its legs. An `Outlet` offers the bytes to the socket where
they are written, and leaves to the transport what the socket does not take: its buffer, its
producers and its errors work as ever.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.abstract import FileDescriptor

__all__ = ["Outlet", "is_fit"]


def is_fit(transport: object) -> bool:
    """Whether a transport can be written to without its buffer: a socket, not a TLS layer."""
    return isinstance(transport, FileDescriptor)


class Outlet:
    """A transport to write to; everything but writing goes to the transport itself.

    Between `gather` and `send` all writes become one: a TLS layer writes record by record.
    """

    __slots__ = ("_is_gathering", "_parts", "_transport")

    def __init__(self, transport: FileDescriptor) -> None:
        self._transport = transport
        self._parts: list[bytes] = []
        self._is_gathering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def gather(self) -> None:
        """Keep what is written from here on until `send`."""
        self._is_gathering = True

    def write(self, data: bytes) -> None:
        """Keep `data` while gathering; else leave it to the transport."""
        if self._is_gathering:
            self._parts.append(data)
        else:
            self._transport.write(data)

    def send(self) -> None:
        """Send what was gathered, as much of it as the socket takes; the transport has the rest."""
        self._is_gathering = False
        parts = self._parts
        if not parts:
            return
        self._parts = []
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        transport = self._transport
        if (
            transport.connected
            and not transport.disconnecting
            and not transport.dataBuffer
            and not transport._tempDataBuffer  # Twisted has no public word for it
        ):
            sent = transport.writeSomeData(data)
            # A failure is met again, and handled, when the transport tries the same.
            if isinstance(sent, int) and sent > 0:
                data = data[sent:]
        if data:
            transport.write(data)
