# SPDX-License-Identifier: Apache-2.0
"""What goes into the store and what comes out of it: plain values, no behavior."""

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
"""The queue of entries that were found damaged. It has no row of its own in the database."""
TRANSIENT: Final = 1
"""Bit 0 of `StoredEntry.flags`: a non-durable entry that was paged out; `open` deletes it."""

MEBIBYTE: Final = 1024 * 1024

Column: TypeAlias = int | str | bytes | None
"""The value of one column of a row."""


def is_worth_a_try(room: int, before: int) -> bool:
    """Tell whether what has failed for want of room should be tried again at once.

    Where there is twice as much and a mebibyte: so a disk that empties slowly costs few tries.

    Args:
        room: octets that may be written now.
        before: the least that could be since it has failed.
    """
    return room >= 2 * before + MEBIBYTE


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A run of received ids, remembered together: one row, whatever their number.

    Attributes:
        low: the smallest id.
        high: the largest id.
        steps: the differences between neighbors; empty when there are no gaps.
        at_ms: when they were marked.
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
        """The ids again, ascending."""
        if not self.steps:
            return range(self.low, self.high + 1)
        return list(accumulate(self.steps, initial=self.low))

    def without_below(self, below: int) -> StoredReceipt | None:
        """The rest of this receipt once ids under `below` are forgotten; None for no rest."""
        left = [one for one in self.ids() if one >= below]
        return StoredReceipt.of(left, self.at_ms) if left else None


class QueueNumbers(dict[str, int]):
    """Queue names to the small numbers that rows carry; a new name gets the next number.

    Attributes:
        unsaved: numbers whose names the database has not got yet. The reactor's thread adds,
            the writer's thread takes away after the commit that holds them; each single step
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
        """Take over the numbers that the database knows."""
        for number, name in names:
            self[name] = number
            self._last = max(self._last, number)
