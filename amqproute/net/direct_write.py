# SPDX-License-Identifier: Apache-2.0
"""Sends what is written at once, where the transport holds nothing back; reads in fit sizes.

Twisted's transports keep what is written for the next turn of the reactor: they ask the kernel to
be told when the socket can take something, are told, send, and ask not to be told any more. That
joins many small writes, but the pump joins them already; for a lone message it is three system
calls and a turn of waiting on each of its legs. A `DirectWriter` offers the bytes to the socket
where
they are written, and leaves to the transport what the socket does not take: its buffer, its
producers and its errors work as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.internet.abstract import FileDescriptor

__all__ = ["PIECE_BYTES", "DirectWriter", "is_fit", "joined"]

READ_BYTES: Final = 64 * 1024
"""Octets of one read at most, while little comes: so much the allocator has without the kernel."""
FULL_BYTES: Final = 1024 * 1024
"""The same behind a read of `MUCH_BYTES`, and octets of one write. Each read is one batch: in reads
of 64 KiB bodies of that size would come one by one, for half as much CPU again."""
MUCH_BYTES: Final = 32 * 1024
PIECE_BYTES: Final = 128 * 1024
"""What is joined, encrypted or decrypted in one go: it stays in the processor's cache meanwhile."""


def is_fit(transport: object) -> bool:
    """Whether a transport can be written to without its buffer: a socket, not a TLS layer."""
    return isinstance(transport, FileDescriptor)


MOST_BUFFERS: Final = 512
"""Of one sendmsg(2); the system's bound is 1,024."""


def joined(parts: Sequence[bytes]) -> Sequence[bytes]:
    """Join small parts: to one, or to some of `PIECE_BYTES` and a little more."""
    if len(parts) == 1:
        return parts
    if sum(map(len, parts)) <= PIECE_BYTES:
        return [b"".join(parts)]
    pieces = []
    start = size = 0
    for index, part in enumerate(parts, 1):
        size += len(part)
        if size >= PIECE_BYTES or index == len(parts):
            pieces.append(b"".join(parts[start:index]))
            start, size = index, 0
    return pieces


class DirectWriter:
    """A transport to write to; everything but writing goes to the transport itself.

    Between `gather` and `send` all writes become one: a TLS layer writes piece by piece.
    """

    __slots__ = ("_is_gathering", "_is_much", "_parts", "_transport")

    def __init__(self, transport: FileDescriptor) -> None:
        self._transport = transport
        transport.SEND_LIMIT = FULL_BYTES
        self._is_much = False
        self._parts: list[bytes] = []
        self._is_gathering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def came(self, size: int) -> None:
        """Learn what a read has brought: the next one is for as much."""
        if (size >= MUCH_BYTES) is not self._is_much:
            self._is_much = not self._is_much
            self._transport.bufferSize = FULL_BYTES if self._is_much else READ_BYTES

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
        transport = self._transport
        if (
            transport.connected
            and not transport.disconnecting
            and not transport.dataBuffer
            and not transport._tempDataBuffer  # Twisted has no public word for it
        ):
            parts = _sent(transport, parts)
        for part in parts:
            transport.write(part)


def _sent(transport: Any, parts: list[bytes]) -> list[bytes]:
    """Offer these to the socket; return what it has not taken.

    A failure is met again, and handled, when the transport tries the same.
    """
    try:
        sent = transport.socket.sendmsg(parts[:MOST_BUFFERS])
    except OSError:
        return parts
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
