# SPDX-License-Identifier: Apache-2.0
"""Which message makes a peer end the connection: it must not hold up the others for ever.

A connection that a peer ends for a fault says nothing about whose fault it was. From the second
such end on, the entries that were in doubt go one at a time; one that ends the connection alone
for `LONE_FAULTS` times is given up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONE_FAULTS = 3
"""How often a message may end the connection while it is the only one in flight."""


class Suspects:
    """The suspects of one destination, by entry id."""

    __slots__ = ("_alone", "_faults")

    def __init__(self) -> None:
        self._faults = 0
        self._alone: dict[int, int] = {}

    def __bool__(self) -> bool:
        """There are some: messages go one at a time."""
        return bool(self._alone)

    @property
    def is_searching(self) -> bool:
        """There has been a fault that nobody is acquitted of."""
        return self._faults > 0

    def fault(self, ids: Sequence[int]) -> int | None:
        """The peer has ended the connection for a fault while these were in doubt.

        Returns:
            The one that is guilty, if it is known; it is no suspect any more.
        """
        self._faults += 1
        if self._faults < 2:
            return None
        for entry_id in ids:
            self._alone.setdefault(entry_id, 0)
        if len(ids) != 1:
            return None
        entry_id = ids[0]
        self._alone[entry_id] += 1
        if self._alone[entry_id] < LONE_FAULTS:
            return None
        self.acquit(ids)
        return entry_id

    def acquit(self, ids: Iterable[int]) -> None:
        """These have an outcome, or are given up."""
        for entry_id in ids:
            self._alone.pop(entry_id, None)
        if not self._alone:
            self._faults = 0
