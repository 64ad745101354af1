# SPDX-License-Identifier: Apache-2.0
"""The memory that HTTP connections hold: bodies of requests, and answers that nobody reads.

A connection has at most one of each, but there are many connections, and strangers can make them.
So their sum has a bound. Beyond it the party that holds the most lets go of its oldest: a client
that does not read its answers ends its own connections, and nobody else's.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

__all__ = ["MOST_HELD", "ClientMemory", "Holder"]

MOST_HELD: Final = 128 * 1024 * 1024
"""Octets that all connections together hold."""


class Holder(Protocol):
    """A connection that can be dropped."""

    def let_go(self) -> None:
        """Drop the connection: it holds too much."""


class ClientMemory:
    """Octets by connection and source.

    Args:
        most: bound on their sum.

    Attributes:
        most: as given.
        dropped: connections that had to let go, since the start.
    """

    def __init__(self, most: int = MOST_HELD) -> None:
        self.dropped = 0
        self.most = most
        self._total = 0
        self._source_of: dict[Holder, str] = {}
        self._by_source: dict[str, OrderedDict[Holder, int]] = {}

    def __repr__(self) -> str:
        return f"<ClientMemory {self._total} of {self.most}>"

    @property
    def total(self) -> int:
        """The octets that are held."""
        return self._total

    def hold(self, holder: Holder, source: str, octets: int) -> Holder | None:
        """Set the number of octets that a connection holds.

        Args:
            holder: the connection.
            source: whose it is; always the same for one connection.
            octets: the number.

        Returns:
            A connection to drop, to stay within the bound; None if no other holds anything.
        """
        held = self._by_source.setdefault(source, OrderedDict())
        self._total += octets - held.get(holder, 0)
        held[holder] = octets
        self._source_of[holder] = source
        if self._total <= self.most or len(self._source_of) == 1:
            return None
        most = max(self._by_source.values(), key=lambda each: sum(each.values()))
        victim = next(iter(most))
        self.free(victim)
        self.dropped += 1
        return victim

    def free(self, holder: Holder) -> None:
        """Take note that a connection holds nothing any more."""
        source = self._source_of.pop(holder, None)
        if source is None:
            return
        held = self._by_source[source]
        self._total -= held.pop(holder)
        if not held:
            del self._by_source[source]
