# SPDX-License-Identifier: Apache-2.0
"""Memory of messages that receivers have not settled, and its bound.

`HeldMemory` (`broker.publish_gate`) is about those who send, and what it does against too much is
to take their credit. That helps nothing here: what a consumer has been given does not get less when
nobody publishes, and a single consumer that never settles would stop everybody. So the brake is
put on those who hold. Each consumer's link and each next hop has a bound of its own in any case;
many of them together may come to more than the daemon has. From half of the limit on each holder
gets its part of the limit, and nothing more is handed to whoever holds more than that until it has
settled.

It costs nothing for each message: every holder knows how much it holds, and they are added up when
the watermarks are looked at, about once a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amqproute.broker.publish_gate import LEAST_PART

__all__ = ["UNBOUNDED", "OutgoingMemory"]

UNBOUNDED: Final = 1 << 62
FIRST: Final = 8
"""Messages for somebody who holds none, of whom it is not known how large they are."""


class OutgoingMemory:
    """Memory of unsettled messages at receivers, and the share of each.

    Args:
        limit_bytes: the bound for all of them; 0 for none.

    Attributes:
        limit_bytes: the argument.
        part_bytes: who holds so much, or more, gets nothing more now.
        by: octets, by who holds them, when that was last counted.
        holders: how many there were that held anything.
        is_pressed: holders get their part only.
    """

    __slots__ = ("by", "holders", "is_pressed", "limit_bytes", "part_bytes")

    def __init__(self, limit_bytes: int = 0) -> None:
        self.limit_bytes = limit_bytes
        self.part_bytes = UNBOUNDED
        self.is_pressed = False
        self.by: Mapping[str, int] = {}
        self.holders = 0

    def __repr__(self) -> str:
        return f"<OutgoingMemory {self.used_bytes} of {self.limit_bytes} by {self.holders}>"

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return sum(self.by.values())

    def room(self, octets: int, messages: int) -> int:
        """Return how many more messages somebody gets who holds so many, of so many octets."""
        left = self.part_bytes - octets
        if left <= 0:
            return 0
        return 1 + int(left * messages / octets) if octets else FIRST

    def counted(self, by: Mapping[str, int], holders: int) -> bool:
        """Take a new count.

        Args:
            by: octets, by who holds them: ``consumers``, ``relay``.
            holders: how many links and next hops that is.

        Returns:
            Whether holders may have more than before: they should be looked at again.
        """
        before = self.part_bytes
        self.by = by
        self.holders = holders
        if not self.limit_bytes or self.used_bytes * 2 < self.limit_bytes:
            self.part_bytes = UNBOUNDED
        else:
            # One more than there are: whoever comes next begins before the next count.
            self.part_bytes = max(LEAST_PART, self.limit_bytes // (holders + 1))
        self.is_pressed = self.part_bytes != UNBOUNDED
        return self.part_bytes > before
