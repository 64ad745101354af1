# SPDX-License-Identifier: Apache-2.0
"""Numbers of the protocol: allocation of channels and handles; serial numbers, which wrap."""

from __future__ import annotations

import heapq
from typing import Final

SERIAL_MASK: Final = 0xFFFFFFFF
SERIAL_HALF: Final = 0x80000000
"""Serial numbers wrap at 2**32; the nearer half is ahead (RFC 1982, part 2 §2.8.10)."""


class SerialNumbers:
    """Allocates the lowest free number: channels, handles."""

    __slots__ = ("_free", "_next", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free: list[int] = []
        self._next = 0

    def acquire(self) -> int | None:
        """Return a number up to ``limit``, or None when all are taken."""
        if self._free and self._free[0] <= self.limit:
            return heapq.heappop(self._free)
        if self._next > self.limit:
            return None
        self._next += 1
        return self._next - 1

    def release(self, number: int) -> None:
        """Free a number."""
        heapq.heappush(self._free, number)


__all__ = ["SERIAL_HALF", "SERIAL_MASK", "SerialNumbers"]
