# SPDX-License-Identifier: Apache-2.0
"""The order in which the targets of an SRV record set are tried (RFC 2782, "Usage rules").

Pure: records in, records out, the random numbers come from the caller.

Within one priority the records of weight 0 are put first, running sums are made, and the first
record whose running sum is not below a random number between 0 and the total, inclusive, is next.
That is the standard's own arithmetic, kept to the letter: a weight 0 beside others keeps its "very
small chance". The records of one priority are shuffled first, since the standard leaves their
arrangement open and an order taken from the server would favor whom it lists first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Protocol, TypeVar

__all__ = ["Uniform", "WeightedTarget", "order"]

Uniform = Callable[[], float]
"""A source of random numbers, 0 <= x < 1: `random.Random.random` is one."""


class WeightedTarget(Protocol):
    """What the order depends on."""

    @property
    def priority(self) -> int:
        """Lower is tried first, 0..65535."""

    @property
    def weight(self) -> int:
        """The share among records of one priority, 0..65535."""


_W = TypeVar("_W", bound=WeightedTarget)


def order(records: Iterable[_W], random: Uniform) -> list[_W]:
    """Bring records into the order in which to try them."""
    ordered: list[_W] = []
    by_priority = sorted(records, key=lambda record: record.priority)
    for _, group in groupby(by_priority, key=lambda record: record.priority):
        ordered.extend(_by_weight(list(group), random))
    return ordered


def _by_weight(group: list[_W], random: Uniform) -> list[_W]:
    _shuffle(group, random)
    unordered = sorted(group, key=lambda record: record.weight != 0)  # stable: zero weights first
    ordered: list[_W] = []
    while unordered:
        total = sum(record.weight for record in unordered)
        chosen = int(random() * (total + 1))  # 0..total inclusive
        running = 0
        for index, record in enumerate(unordered):
            running += record.weight
            if running >= chosen:
                ordered.append(unordered.pop(index))
                break
    return ordered


def _shuffle(group: list[_W], random: Uniform) -> None:
    for last in range(len(group) - 1, 0, -1):  # Fisher and Yates
        other = int(random() * (last + 1))
        group[last], group[other] = group[other], group[last]
