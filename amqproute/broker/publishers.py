# SPDX-License-Identifier: Apache-2.0
"""The links that send to a queue with a capacity, and how they share its free space (F-02, F-03).

Each may have the same part of what is free, and all together never more than there is. When one
more comes, the others' credit is cut down to their new part, and all credit is when the queue is
full; what they sent before they knew is taken as long as it fits, and refused to its sender
otherwise (Q-15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class IPublisher(Protocol):
    """A link that sends."""

    @property
    def granted(self) -> int:
        """Deliveries that it may still send."""

    def grant(self) -> None:
        """Have its credit brought in line with its part."""


class Publishers:
    """The publishers of one queue.

    Args:
        space: tells how many more messages fit.
        is_bounded: tells whether there is a capacity at all.
    """

    __slots__ = ("_had", "_is_bounded", "_last", "_links", "_space", "_total")

    def __init__(self, space: Callable[[], int], is_bounded: Callable[[], bool]) -> None:
        self._space = space
        self._is_bounded = is_bounded
        self._links: list[IPublisher] = []
        # In a round: what all of them had when the last one was looked at, and what that one had.
        self._total: int | None = None
        self._last: IPublisher | None = None
        self._had = 0

    def __len__(self) -> int:
        return len(self._links)

    def join(self, publisher: IPublisher) -> None:
        """Count one more, and cut the others' credit down."""
        self._links.append(publisher)
        self._share_out(publisher)

    def leave(self, publisher: IPublisher) -> None:
        """Count one less; what it had is the others'."""
        if publisher in self._links:
            self._links.remove(publisher)
            self._share_out(None)

    def changed(self) -> None:
        """The space has changed for another reason than messages: have all credit looked at."""
        with self.round():
            for each in (*self._links, *self._links):  # what some give back is others' then
                each.grant()

    def filled(self) -> None:
        """There is no space any more: have what credit there is taken back."""
        for each in tuple(self._links):
            if each.granted > 0:
                each.grant()

    def _share_out(self, newcomer: IPublisher | None) -> None:
        if self._is_bounded():
            with self.round():
                for each in tuple(self._links):
                    if each is not newcomer:
                        each.grant()

    @contextmanager
    def round(self) -> Iterator[None]:
        """Have many brought in line, one after the other: what all of them have is counted once."""
        if self._total is not None:
            yield
            return
        self._total = sum([each.granted for each in self._links])
        try:
            yield
        finally:
            self._total = self._last = None

    def allowance(self, publisher: IPublisher) -> int:
        """Return how many messages this one may have on the way."""
        space = self._space()
        if not self._is_bounded() or len(self._links) < 2:
            return space
        part = -(-space // len(self._links))
        return max(0, min(part, space - self._granted_to_others(publisher)))

    def _granted_to_others(self, publisher: IPublisher) -> int:
        if self._total is None:
            return sum([each.granted for each in self._links if each is not publisher])
        if self._last is not None:
            self._total += self._last.granted - self._had
        self._last, self._had = publisher, publisher.granted
        return self._total - self._had
