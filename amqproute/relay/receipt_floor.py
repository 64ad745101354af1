# SPDX-License-Identifier: Apache-2.0
"""Which ids the peer has taken while our store still has them: what holds the floor down.

The peer may forget the receipt of an id once we can never send it again. An entry that the peer
has accepted is gone from memory at once, but from the disk only with the next commit: if we crash
before that, it is sent again, and only the receipt keeps it from being there twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class ReceiptFloor:
    """The removals of one destination that are not durable.

    Attributes:
        count: entries settled since the peer was last told the floor.
    """

    __slots__ = ("_commits", "_failed", "_in_progress", "count")

    def __init__(self) -> None:
        self.count = 0
        self._commits = 0
        self._in_progress: dict[int, list[int]] = {}
        self._failed: list[int] = []

    def __bool__(self) -> bool:
        """Some are on their way to the store."""
        return bool(self._in_progress)

    def add(self, ids: Sequence[int]) -> None:
        """Note entries that are settled with the commit that is being gathered."""
        self._in_progress.setdefault(self._commits, []).append(min(ids))
        self.count += len(ids)

    def commit(self) -> int:
        """Close what has been gathered; return its mark, for `done` or `failed`."""
        mark = self._commits
        self._commits += 1
        return mark

    def done(self, mark: int) -> None:
        """These are durable."""
        self._in_progress.pop(mark, None)

    def failed(self, mark: int) -> None:
        """These stand in the store still, and will until it is opened again.

        Only the lowest counts, since the floor is below all that come after it.
        """
        lows = [*self._failed, *self._in_progress.pop(mark, ())]
        self._failed = [min(lows)] if lows else []

    def floor(self, others: Iterable[int]) -> int:
        """Return the lowest of the ids here and of those given, which are at least one."""
        lows = [low for lows in self._in_progress.values() for low in lows]
        return min([*others, *self._failed, *lows])
