# SPDX-License-Identifier: Apache-2.0
"""Token buckets for rates of destinations and senders; the time is passed in.

A bucket holds a second's worth and is filled evenly. Where messages are counted a token is a
message, where octets are counted an octet. A batch may take the bucket below nothing, by less
than one message: what was borrowed is waited for, so that the average holds for messages of any
size, also for those larger than the bucket.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rate:
    """The most that goes to a destination in a second; None is without a bound."""

    messages: float | None = None
    octets: float | None = None

    def __bool__(self) -> bool:
        return self.messages is not None or self.octets is not None


class TokenBucket:
    """Tokens of one kind.

    Args:
        rate: tokens for each second.
        now: seconds.
    """

    __slots__ = ("_burst", "_level", "_rate", "_then")

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, rate)
        self._level = self._burst
        self._then = now

    def level(self, now: float) -> float:
        """Return the tokens there are; below zero what is owed."""
        if now > self._then:
            self._level = min(self._burst, self._level + (now - self._then) * self._rate)
            self._then = now
        return self._level

    def take(self, tokens: float, now: float) -> None:
        """Take tokens, whether they are there or not; less than none gives some back."""
        self._level = min(self._burst, self.level(now) - tokens)

    def wait(self, now: float) -> float:
        """Return the seconds until there is a token."""
        return max(0.0, (1.0 - self.level(now)) / self._rate)


class RateLimiter:
    """The bounds of one destination.

    Args:
        rate: the bounds.
        now: seconds.
    """

    __slots__ = ("_messages", "_octets", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._messages = None if rate.messages is None else TokenBucket(rate.messages, now)
        self._octets = None if rate.octets is None else TokenBucket(rate.octets, now)

    def room(self, mean: float, now: float) -> int:
        """Return how many messages may go now.

        Args:
            mean: octets of a message, on average.
            now: seconds.
        """
        room = 1 << 31
        if self._messages is not None:
            room = int(self._messages.level(now) + 1e-9)
        if self._octets is not None and room > 0:
            level = self._octets.level(now)
            # The last one may borrow: there is no other way for one larger than the bucket.
            room = min(room, 1 + int((level - 1) / max(1.0, mean))) if level + 1e-6 >= 1 else 0
        return max(0, room)

    def spend(self, count: int, octets: int, now: float) -> None:
        """Note what has gone."""
        if self._messages is not None:
            self._messages.take(count, now)
        if self._octets is not None:
            self._octets.take(octets, now)

    def wait(self, now: float) -> float:
        """Return the seconds until one more message may go."""
        buckets = (self._messages, self._octets)
        return max(bucket.wait(now) for bucket in buckets if bucket is not None)

    def denying(self, now: float) -> str:
        """Name the bound that holds messages back now; empty if none does."""
        if self._messages is not None and self._messages.wait(now) > 0:
            return "messages-per-second"
        if self._octets is not None and self._octets.wait(now) > 0:
            return "bytes-per-second"
        return ""
