# SPDX-License-Identifier: Apache-2.0
"""The number of messages in flight to one destination, and when it counts as dead.

The window is the capacity of a destination as a consumer of its relay queue; the credit granted by
the peer limits it further. It starts small and doubles with each round trip (slow start), so that
the backlog of an outage does not flood a peer that has just returned; after a failure it is halved,
and after a lost link it grows from about there by one for each window full of outcomes.

Only failed *attempts* count: no host reached, or a link lost with messages in doubt. Outcomes of
single messages never do. A failed attempt counts as the share of the window that it affected, so a
link lost with a tenth of the window in doubt is a tenth of a *cohort*; after `dead_after` cohorts
without an outcome in between, the destination is dead.

A link that is lost with messages in doubt and has brought no outcome at all is *barren*. After
`BARREN_LINKS` of them the window is one message: if one of several messages in flight ends the link
before the others have their outcome, as at brokers that end it for a full queue, nothing would get
through otherwise.

Why the window does not grow while unused: untested growth has no value, and the failure that would
undo it would come too late.
"""

from __future__ import annotations

BARREN_LINKS = 3
"""Consecutive links lost without an outcome, after which messages go one at a time."""


class SendWindow:
    """The window of one destination; pure.

    Args:
        first: the initial size, also after a death.
        limit: the maximum size.
        dead_after: cohorts of failed attempts after which the destination counts as dead.

    Attributes:
        cohorts: failed attempts since the last outcome, as shares of the window.
    """

    __slots__ = ("_barren", "_first", "_limit", "_size", "_threshold", "cohorts", "dead_after")

    def __init__(self, first: int, limit: int, dead_after: float = 3.0) -> None:
        self._first = min(first, limit)
        self._limit = limit
        self.dead_after = dead_after
        self._size = float(self._first)
        self._threshold = float(limit)
        self.cohorts = 0.0
        self._barren = 0

    def __repr__(self) -> str:
        return f"<SendWindow {self.size} of {self._limit}, cohorts={self.cohorts:.2f}>"

    @property
    def size(self) -> int:
        """The number of messages that may be without an outcome."""
        return int(self._size)

    @property
    def is_dead(self) -> bool:
        """Whether the peer counts as dead after its failed attempts."""
        return self.cohorts >= self.dead_after

    def adopt(self, first: int, limit: int, dead_after: float) -> None:
        """Apply other bounds."""
        self._first = min(first, limit)
        self._limit = limit
        self.dead_after = dead_after
        self._size = max(1.0, min(self._size, float(limit)))
        self._threshold = max(1.0, min(self._threshold, float(limit)))

    def succeeded(self, count: int, in_flight: int) -> None:
        """Handle outcomes: the peer is up.

        Args:
            count: number of outcomes.
            in_flight: number of messages without an outcome before them.
        """
        self.cohorts = 0.0
        self._barren = 0
        size = self._size
        if size >= self._limit or in_flight + self._first < size:
            return
        size += count if size < self._threshold else count / size
        self._size = min(size, float(self._limit))

    def failed(self, concerned: int | None = None) -> None:
        """Handle a failed attempt.

        Args:
            concerned: messages in doubt after it; None if no host was reached.
        """
        # Relative to the window before messages went one at a time.
        usual = max(self._size, float(self._first))
        share = 1.0 if concerned is None else min(1.0, max(1, concerned) / usual)
        self.cohorts += share
        if concerned:
            self._barren += 1
        if self._barren >= BARREN_LINKS:
            self._size = 1.0
            return
        if self.is_dead:
            self._size = float(self._first)
            self._threshold = float(self._limit)
            return
        least = min(float(self._first), self._size)
        self._size = max(1.0, least, self._size * (1.0 - share / 2))
        if concerned is not None:
            # An unreachable host says nothing about the right size; a lost link may.
            self._threshold = min(float(self._limit), max(self._size, 4.0 * self._first))
