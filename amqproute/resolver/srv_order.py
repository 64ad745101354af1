# SPDX-License-Identifier: Apache-2.0
"""The order in which the targets of an SRV record set are tried (RFC 2782, "Usage rules").

Pure: the caller supplies the random numbers.

Within one priority, records of weight 0 come first, running sums are formed, and the first record
whose running sum is not below a random number between 0 and the total, inclusive, is next. This
follows the standard exactly: a weight 0 beside others keeps its "very small chance". The records of
one priority are shuffled first, because the standard leaves their arrangement open and the server's
order would favor the records listed first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Protocol, TypeVar

__all__ = ["Uniform", "WeightedTarget", "order"]

Uniform = Callable[[], float]
"""A source of random numbers, 0 <= x < 1: `random.Random.random` is one."""


class WeightedTarget(Protocol):
    """The attributes that determine the order."""

    @property
    def priority(self) -> int:
        """The priority, 0..65535; lower is tried first."""

    @property
    def weight(self) -> int:
        """The share among records of one priority, 0..65535."""


_W = TypeVar("_W", bound=WeightedTarget)


def order(records: Iterable[_W], random: Uniform) -> list[_W]:
    """Return the records in the order in which to try them."""
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
