# SPDX-License-Identifier: Apache-2.0
"""Credit for the publishers of a queue with a capacity: shares of its free space (F-02, F-03).

Each publisher may have the same part of the free space, and all together never more than there is;
the remainder of the division goes to the first ones, and takes no other part away. When another
publisher comes, the others' credit is reduced to their new part, and to nothing when the queue is
full; messages sent before are taken as long as they fit, and refused otherwise (Q-15).

Up to `STEP` links are adjusted at once. Of more, so many are every `PAUSE_SECONDS`, and events
meanwhile add one round at most: links that come and go cost the others no more than that, however
many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime

STEP: Final = 64
"""Links whose credit is adjusted in one turn of the reactor: about half a millisecond."""
PAUSE_SECONDS: Final = 0.02
"""Pause between two such turns: each counts the credit of all of them."""
STEPS: Final = 32
"""Most turns of one round: with very many links each turn adjusts more of them."""


class IPublisher(Protocol):
    """A publisher's link."""

    @property
    def granted(self) -> int:
        """Deliveries that it may still send."""

    def grant(self) -> None:
        """Adjust its credit to its part."""


class IBoundedNode(Protocol):
    """A node with a capacity, or without."""

    @property
    def is_bounded(self) -> bool:
        """Whether there is a capacity."""

    def space(self) -> int:
        """Return how many more messages fit."""


class Publishers:
    """The publishers of one node.

    Args:
        node: its space is shared.
        clock: the clock for the turns of the reactor.
    """

    __slots__ = (
        "_clock",
        "_floor",
        "_had",
        "_is_scheduled",
        "_last",
        "_links",
        "_node",
        "_reserved",
        "_rest",
        "_rounds",
        "_total",
    )

    def __init__(self, node: IBoundedNode, clock: IReactorTime) -> None:
        self._node = node
        self._clock = clock
        self._links: dict[IPublisher, None] = {}  # in order of arrival
        # While there are many: those to be adjusted in this round, and further rounds.
        self._rest: deque[IPublisher] = deque()
        self._rounds = 0
        self._is_scheduled = False
        # In a round: the credit of all of them at the last adjustment, and that of the last one.
        # The reserve is the same, but at least its part for each link.
        self._total: int | None = None
        self._reserved = self._floor = 0
        self._last: IPublisher | None = None
        self._had = 0

    def __len__(self) -> int:
        return len(self._links)

    def join(self, publisher: IPublisher) -> None:
        """Add a publisher, and reduce the others' credit."""
        self._links[publisher] = None
        self._share_out(publisher)

    def leave(self, publisher: IPublisher) -> None:
        """Remove a publisher; the others get its part."""
        if publisher in self._links:
            del self._links[publisher]
            self._share_out(None)

    def changed(self) -> None:
        """Adjust all credit: the space has changed for other reasons than messages."""
        # Twice: the others get the credit that some return.
        if len(self._links) > STEP:
            self._bring_in_line(2)
            return
        with self.round():
            for each in (*self._links, *self._links):
                each.grant()

    def filled(self) -> None:
        """Revoke all credit: there is no space any more."""
        if len(self._links) > STEP:
            self._bring_in_line(1)
            return
        for each in tuple(self._links):
            if each.granted > 0:
                each.grant()

    def _share_out(self, newcomer: IPublisher | None) -> None:
        if not self._node.is_bounded:
            return
        if len(self._links) > STEP:
            self._bring_in_line(1)  # the last of the round is the new publisher
            return
        with self.round():
            for each in tuple(self._links):
                if each is not newcomer:
                    each.grant()

    def _bring_in_line(self, rounds: int) -> None:
        """Adjust all credit, so many times, in later turns of the reactor."""
        self._rounds = max(self._rounds, rounds)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._clock.callLater(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        """Adjust the next `STEP` links."""
        self._is_scheduled = False
        rest, links = self._rest, self._links
        if not rest:
            self._rounds -= 1
            rest.extend(links)
        # Each time the credit of all of them is counted: so rather few times than many.
        step = max(STEP, len(links) // STEPS)
        with self.round():
            for _ in range(min(step, len(rest))):
                each = rest.popleft()
                if each in links:  # it has not gone meanwhile
                    each.grant()
        if rest or self._rounds:
            self._bring_in_line(self._rounds)

    @contextmanager
    def round(self) -> Iterator[None]:
        """Adjust many, one after the other, counting the credit of all of them once."""
        if self._total is not None:
            yield
            return
        granted = [each.granted for each in self._links]
        self._floor = self._node.space() // max(1, len(granted))
        self._total = sum(granted)
        self._reserved = sum([max(each, self._floor) for each in granted])
        try:
            yield
        finally:
            self._total = self._last = None

    def allowance(self, publisher: IPublisher) -> int:
        """Return the number of messages that this publisher may have on the way."""
        space = self._node.space()
        if len(self._links) < 2 or not self._node.is_bounded:
            return space
        granted, reserved = self._of_others(publisher)
        part, left_over = divmod(space, len(self._links))
        # Up to its part as soon as that is free; more only out of space that is in no part.
        room = max(space - reserved, min(part, space - granted))
        return max(0, min(part + (left_over > 0), room))

    def _of_others(self, publisher: IPublisher) -> tuple[int, int]:
        """Return the credit of the others, and the reserve for them."""
        if self._total is None:
            floor = self._node.space() // len(self._links)
            granted = [each.granted for each in self._links if each is not publisher]
            return sum(granted), sum([max(each, floor) for each in granted])
        floor = self._floor
        if self._last is not None:
            now = self._last.granted
            self._total += now - self._had
            self._reserved += max(now, floor) - max(self._had, floor)
        self._last, self._had = publisher, publisher.granted
        return self._total - self._had, self._reserved - max(self._had, floor)
