# SPDX-License-Identifier: Apache-2.0
"""Values that go into the store and come out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import Final, TypeAlias

from amqproute.stored import DamagedEntry, QueueSummary, StoredEntry, StoreRecovery, StoreRoom
from amqproute.values import QUARANTINE

__all__ = [
    "QUARANTINE_NUMBER",
    "TRANSIENT",
    "Column",
    "DamagedEntry",
    "QueueNumbers",
    "QueueSummary",
    "StoreRecovery",
    "StoreRoom",
    "StoredEntry",
    "StoredReceipt",
    "is_worth_a_try",
]

QUARANTINE_NUMBER: Final = -1
"""Queue number of damaged entries. It has no row in the table of queues."""
TRANSIENT: Final = 1
"""Bit 0 of `StoredEntry.flags`: a non-durable entry that was paged out; `open` deletes it."""

MEBIBYTE: Final = 1024 * 1024

Column: TypeAlias = int | str | bytes | None
"""The value of one column of a row."""


def is_worth_a_try(room: int, before: int) -> bool:
    """Tell whether to retry at once what has failed because the disk was full.

    It is worth it where there is twice as much room and another mebibyte: a disk that empties
    slowly then costs few tries.

    Args:
        room: octets that may be written now.
        before: the smallest room since the failure.
    """
    return room >= 2 * before + MEBIBYTE


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A set of received ids, stored as one row.

    Attributes:
        low: the smallest id.
        high: the largest id.
        steps: the differences between neighbors; empty if there are no gaps.
        at_ms: when they were received.
    """

    low: int
    high: int
    steps: tuple[int, ...]
    at_ms: int

    @classmethod
    def of(cls, ids: Iterable[int], at_ms: int) -> StoredReceipt:
        """Pack `ids`, which are not empty, in any order, with repetitions or without."""
        ordered = sorted(set(ids))
        low, high = ordered[0], ordered[-1]
        if high - low == len(ordered) - 1:
            return cls(low, high, (), at_ms)
        return cls(low, high, tuple(map(sub, ordered[1:], ordered)), at_ms)

    def ids(self) -> Sequence[int]:
        """Return the ids, ascending."""
        if not self.steps:
            return range(self.low, self.high + 1)
        return list(accumulate(self.steps, initial=self.low))

    def without_below(self, below: int) -> StoredReceipt | None:
        """Return this receipt without the ids under `below`; None if nothing remains."""
        left = [one for one in self.ids() if one >= below]
        return StoredReceipt.of(left, self.at_ms) if left else None


class QueueNumbers(dict[str, int]):
    """Map queue names to the numbers that rows contain; a new name gets the next number.

    Attributes:
        unsaved: numbers whose names are not in the database yet. The reactor's thread adds,
            the writer's thread removes after the commit that holds them; each single step
            is one dict operation, so no lock is needed.
    """

    def __init__(self) -> None:
        super().__init__({QUARANTINE: QUARANTINE_NUMBER})
        self.unsaved: dict[int, str] = {}
        self._last = 0

    def __missing__(self, name: str) -> int:
        self._last += 1
        # First the promise to save the name, then the number: a row can never reach the
        # writer before the name of its queue does.
        self.unsaved[self._last] = name
        self[name] = self._last
        return self._last

    def restore(self, names: Iterator[tuple[int, str]]) -> None:
        """Adopt the numbers in the database."""
        for number, name in names:
            self[name] = number
            self._last = max(self._last, number)
