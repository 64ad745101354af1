# SPDX-License-Identifier: Apache-2.0
"""Credit for the publishers of a queue with a capacity: shares of its free space (F-02, F-03).

Each may have the same part of what is free, and all together never more than there is; what the
division leaves over goes to those who are looked at first, and takes nobody's part. When one more
comes, the others' credit is cut down to their new part, and all credit is when the queue is
full; what they sent before they knew is taken as long as it fits, and refused to its sender
otherwise (Q-15).

Up to `STEP` links are brought in line at once. Of more, so many are every `PAUSE_SECONDS`, and
whatever happens meanwhile adds one round at most: links that come and go cost everybody else no
more than that, however many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from twisted.internet.interfaces import IReactorTime

STEP: Final = 64
"""Links whose credit is looked at in one turn of the reactor: about half a millisecond."""
PAUSE_SECONDS: Final = 0.02
"""Between two such turns: what all of them have is counted in each."""
STEPS: Final = 32
"""Turns that one round may take: of very many links more are looked at in each."""


class IPublisher(Protocol):
    """A link that sends."""

    @property
    def granted(self) -> int:
        """Deliveries that it may still send."""

    def grant(self) -> None:
        """Have its credit brought in line with its part."""


class IBoundedNode(Protocol):
    """A node with a capacity, or without."""

    @property
    def is_bounded(self) -> bool:
        """There is a capacity."""

    def space(self) -> int:
        """Return how many more messages fit."""


class Publishers:
    """The publishers of one node.

    Args:
        node: whose space they share.
        clock: for the turns of the reactor.
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
        self._links: dict[IPublisher, None] = {}  # in the order in which they came
        # While there are many: those to be brought in line in this round, and rounds after it.
        self._rest: deque[IPublisher] = deque()
        self._rounds = 0
        self._is_scheduled = False
        # In a round: what all of them had when the last one was looked at, and what that one had.
        # What is reserved is as much, but for each link its part at least, had or not.
        self._total: int | None = None
        self._reserved = self._floor = 0
        self._last: IPublisher | None = None
        self._had = 0

    def __len__(self) -> int:
        return len(self._links)

    def join(self, publisher: IPublisher) -> None:
        """Count one more, and cut the others' credit down."""
        self._links[publisher] = None
        self._share_out(publisher)

    def leave(self, publisher: IPublisher) -> None:
        """Count one less; what it had is the others'."""
        if publisher in self._links:
            del self._links[publisher]
            self._share_out(None)

    def changed(self) -> None:
        """The space has changed for another reason than messages: have all credit looked at."""
        # Twice: what some give back is others' then.
        if len(self._links) > STEP:
            self._bring_in_line(2)
            return
        with self.round():
            for each in (*self._links, *self._links):
                each.grant()

    def filled(self) -> None:
        """There is no space any more: have what credit there is taken back."""
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
            self._bring_in_line(1)  # the newcomer is the last of the round, and gets its part then
            return
        with self.round():
            for each in tuple(self._links):
                if each is not newcomer:
                    each.grant()

    def _bring_in_line(self, rounds: int) -> None:
        """Have all credit looked at, so many times, in later turns of the reactor."""
        self._rounds = max(self._rounds, rounds)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._clock.callLater(PAUSE_SECONDS, self._go_on)

    def _go_on(self) -> None:
        """Bring the next `STEP` links in line."""
        self._is_scheduled = False
        rest, links = self._rest, self._links
        if not rest:
            self._rounds -= 1
            rest.extend(links)
        # What all of them have is counted each time: so rather few times than many.
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
        """Have many brought in line, one after the other: what all of them have is counted once."""
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
        """Return how many messages this one may have on the way."""
        space = self._node.space()
        if not self._node.is_bounded or len(self._links) < 2:
            return space
        granted, reserved = self._of_others(publisher)
        part, left_over = divmod(space, len(self._links))
        # Up to its part as soon as that is free; more only out of what is nobody's part.
        room = max(space - reserved, min(part, space - granted))
        return max(0, min(part + (left_over > 0), room))

    def _of_others(self, publisher: IPublisher) -> tuple[int, int]:
        """Return what the others have, and what is reserved for them."""
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
