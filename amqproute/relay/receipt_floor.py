# SPDX-License-Identifier: Apache-2.0
"""Ids that the peer has accepted while our store still has them: they hold the floor down.

The peer may drop the receipt of an id once we can never send it again. An accepted entry leaves
memory at once, but the disk only with the next commit: if we crash before that, it is sent again,
and only the receipt prevents a duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class ReceiptFloor:
    """The removals of one destination that are not yet durable.

    Attributes:
        count: entries settled since the peer last got the floor.
    """

    __slots__ = ("_commits", "_failed", "_in_progress", "count")

    def __init__(self) -> None:
        self.count = 0
        self._commits = 0
        self._in_progress: dict[int, list[int]] = {}
        self._failed: list[int] = []

    def __bool__(self) -> bool:
        """Whether removals are being written to the store."""
        return bool(self._in_progress)

    def add(self, ids: Sequence[int]) -> None:
        """Add entries settled by the current batch."""
        self._in_progress.setdefault(self._commits, []).append(min(ids))
        self.count += len(ids)

    def commit(self) -> int:
        """Close the current batch; return its mark, for `done` or `failed`."""
        mark = self._commits
        self._commits += 1
        return mark

    def done(self, mark: int) -> None:
        """Handle a durable batch."""
        self._in_progress.pop(mark, None)

    def failed(self, mark: int) -> None:
        """Handle a failed batch: its entries remain in the store until it is opened again.

        Only the lowest id counts, because the floor is below all later ones.
        """
        lows = [*self._failed, *self._in_progress.pop(mark, ())]
        self._failed = [min(lows)] if lows else []

    def floor(self, others: Iterable[int]) -> int:
        """Return the lowest of the ids here and of the given ones; there must be at least one."""
        lows = [low for lows in self._in_progress.values() for low in lows]
        return min([*others, *self._failed, *lows])
