# SPDX-License-Identifier: Apache-2.0
"""Window and rate of streams that are sent ahead of their client (stream.qos).

Nobody acknowledges a stream, so what the client has consumed is reckoned: octets of bodies at the
rate that it has asked for. With a rate and no window, one message at a time is ahead. Without a
rate what the transport has taken counts as consumed, so the window bounds what is sent in one go.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["UNBOUNDED", "StreamWindow"]

UNBOUNDED: Final = 1 << 30
MOST_AHEAD: Final = 1000
"""Messages that are reckoned with one by one; a larger window in messages counts as this one."""


class StreamWindow:
    """One window, of a channel or a connection.

    Attributes:
        size: octets of bodies that may be ahead; 0 for no bound.
        count: messages that may be; 0 for no bound.
        rate: octets per second that the client consumes; 0 for as fast as possible.
    """

    __slots__ = ("_ahead", "_octets", "count", "rate", "size")

    def __init__(self) -> None:
        self.size = 0
        self.count = 0
        self.rate = 0
        # When each message will have been consumed, and its octets; the oldest first.
        self._ahead: deque[tuple[float, int]] = deque()
        self._octets = 0

    def __repr__(self) -> str:
        return f"<StreamWindow {len(self._ahead)} of {self.count} ahead, {self.rate} octets/s>"

    @property
    def is_open(self) -> bool:
        """Whether nothing is bounded."""
        return not (self.size or self.count or self.rate)

    @property
    def most(self) -> int:
        """The most messages that may be ahead."""
        if not self.count:
            return MOST_AHEAD if self.size else 1
        return min(self.count, MOST_AHEAD)

    def set(self, size: int, count: int, rate: int) -> None:
        """Set the bounds. What is ahead counts on, at the rate that was in force."""
        self.size, self.count, self.rate = size, count, rate

    def room(self, now: float) -> int:
        """Return how many messages may be asked for."""
        if self.is_open:
            return UNBOUNDED
        self._pass(now)
        free = self.most - len(self._ahead)
        if self.size and self._ahead:
            if self._octets >= self.size:
                return 0
            return min(free, 1)  # how large the next one is shows when it is there
        return max(0, free)

    def fits(self, octets: int, now: float) -> bool:
        """Whether a message may be sent. With nothing ahead any message may."""
        if self.is_open:
            return True
        self._pass(now)
        if not self._ahead:
            return True
        if len(self._ahead) >= self.most:
            return False
        return not self.size or self._octets + octets <= self.size

    def take(self, octets: int, now: float) -> None:
        """A message is sent."""
        if self.is_open:
            return
        last = self._ahead[-1][0] if self._ahead else now
        done = max(last, now) + octets / self.rate if self.rate else now
        self._ahead.append((done, octets))
        self._octets += octets

    def next_at(self, octets: int, now: float) -> float:
        """Return when a message fits that does not fit now."""
        self._pass(now)
        count, left = len(self._ahead), self._octets
        for at, size in self._ahead:
            count -= 1
            left -= size
            if not count or (count < self.most and (not self.size or left + octets <= self.size)):
                return at
        return now

    def drained(self, now: float) -> None:
        """The transport has taken what was sent: without a rate that is all there is to it."""
        if not self.rate:
            while self._ahead and self._ahead[0][0] <= now:
                self._octets -= self._ahead.popleft()[1]

    def _pass(self, now: float) -> None:
        """Forget what has been consumed by now."""
        if not self.rate:
            return
        ahead = self._ahead
        while ahead and ahead[0][0] <= now:
            self._octets -= ahead.popleft()[1]
