# SPDX-License-Identifier: Apache-2.0
"""Immediate writes where the transport has no backlog, and reads of suitable sizes.

Twisted's transports keep written data for the next turn of the reactor: they register for
writability, are notified, send, and unregister. That joins many small writes, but the pump joins
them already; a single message costs three system calls and a turn of waiting on each hop. A
`DirectWriter` offers the bytes to the socket at once, and leaves the rest to the transport: its
buffer, its producers and its errors work as usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, cast

from twisted.internet.abstract import FileDescriptor

__all__ = ["MUCH_BYTES", "PIECE_BYTES", "DirectWriter", "is_fit", "joined"]

READ_BYTES: Final = 64 * 1024
"""Maximum octets of one read while traffic is low: the allocator provides them without the
kernel."""
FULL_BYTES: Final = 1024 * 1024
"""The same after a read of `MUCH_BYTES`, and the octets of one write. Each read is one batch: in
reads of 64 KiB, bodies of that size would arrive one by one, for 50 % more CPU."""
MUCH_BYTES: Final = 32 * 1024
PIECE_BYTES: Final = 128 * 1024
"""Size of pieces that are joined, encrypted or decrypted, so that they stay in the cache."""


def is_fit(transport: object) -> bool:
    """Return whether a transport can be bypassed for writing: a socket, not a TLS layer."""
    return isinstance(transport, FileDescriptor)


MOST_BUFFERS: Final = 512
"""Buffers of one sendmsg(2); the system's bound is 1,024."""


def joined(parts: Sequence[bytes]) -> Sequence[bytes]:
    """Join small parts into one, or into several of slightly more than `PIECE_BYTES`."""
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
    """A transport with its own `write`; everything else is passed to the transport.

    A TLS layer writes piece by piece: while `gathered` is a list, its writes are added to that.

    Attributes:
        gathered: what is written; None to pass it to the transport.
        reads_much: whether the next read may be a large one.
    """

    __slots__ = ("_transport", "gathered", "reads_much")

    def __init__(self, transport: FileDescriptor) -> None:
        self._transport = transport
        transport.SEND_LIMIT = FULL_BYTES
        self.reads_much = False
        self.gathered: list[bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def read_much(self, much: bool) -> None:
        """Set the size of the next read; it is large after a read of `MUCH_BYTES`."""
        self.reads_much = much
        self._transport.bufferSize = FULL_BYTES if much else READ_BYTES

    def write(self, data: bytes) -> None:
        """Add data to `gathered`, or pass it to the transport."""
        if self.gathered is None:
            self._transport.write(data)
        else:
            self.gathered.append(data)

    def send(self, parts: Sequence[bytes]) -> None:
        """Send data as far as the socket takes it; the transport gets the rest."""
        transport = self._transport
        if (
            transport.connected
            and not transport.disconnecting
            and not transport.dataBuffer
            and not transport._tempDataBuffer  # Twisted has no public name for it
        ):
            # The transport meets and handles a failure again when it tries the same.
            with suppress(OSError):
                sent = cast(Any, transport).socket.sendmsg(parts[:MOST_BUFFERS])
                if sent == sum(map(len, parts)):
                    return
                parts = _unsent(parts, sent)
        for part in parts:
            transport.write(part)


def _unsent(parts: Sequence[bytes], sent: int) -> Sequence[bytes]:
    """Return the rest of parts of which so many octets were sent."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]]
        sent -= len(part)
    return []
