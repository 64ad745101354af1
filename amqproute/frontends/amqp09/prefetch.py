# SPDX-License-Identifier: Apache-2.0
"""Window of deliveries sent ahead of acknowledgements (basic.qos)."""

from __future__ import annotations

from typing import Final

__all__ = ["PrefetchWindow"]

UNBOUNDED: Final = 1 << 30


class PrefetchWindow:
    """One window, of a consumer, a channel or a connection.

    Attributes:
        count: messages that may be unacknowledged; 0 for no bound.
        size: octets of their bodies; 0 for no bound (09-BASIC-15).
        held: messages that are.
        octets: theirs.
    """

    __slots__ = ("count", "held", "octets", "size")

    def __init__(self, count: int = 0, size: int = 0) -> None:
        self.count = count
        self.size = size
        self.held = 0
        self.octets = 0

    def __repr__(self) -> str:
        return f"<PrefetchWindow {self.held} of {self.count}, {self.octets} of {self.size} octets>"

    @property
    def room(self) -> int:
        """Number of further messages that may be requested."""
        room = max(0, self.count - self.held) if self.count else UNBOUNDED
        if not self.size:
            return room
        if self.held and self.octets >= self.size:
            return 0
        return min(room, 1)  # how large the next one is shows when it is there

    def fits(self, octets: int) -> bool:
        """Tell whether a message may be sent.

        The bound in octets is for what is sent ahead: with nothing unacknowledged any message may
        (09-X-56).
        """
        if self.count and self.held >= self.count:
            return False
        return not self.size or not self.held or self.octets + octets <= self.size

    def take(self, octets: int, messages: int = 1) -> None:
        """Messages are sent, with so many octets together."""
        self.held += messages
        self.octets += octets

    def give_back(self, octets: int, messages: int = 1) -> None:
        """Messages are acknowledged, or back on their queue."""
        self.held -= messages
        self.octets -= octets
