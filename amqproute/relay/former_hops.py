# SPDX-License-Identifier: Apache-2.0
"""Counters of hops that have no destination now.

A destination that is unused goes, and the next message makes another one. Its counters continue
with that, so that they never shrink; of hops unused for very long only the sum is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from amqproute.broker.queue_counters import QueueCounters
from amqproute.relay.relay_terms import DestinationCounters

__all__ = ["MOST_FORMER", "FormerHops", "HopCounters"]

MOST_FORMER: Final = 10_000
"""Hops that are kept apart; senders choose the domains."""


class HopCounters(NamedTuple):
    """The counters of one hop."""

    destination: DestinationCounters
    queue: QueueCounters


class FormerHops:
    """The counters, by the keys of the hops.

    Attributes:
        forgotten: the sum of those that are not kept apart any more.
    """

    def __init__(self) -> None:
        self.forgotten = HopCounters(DestinationCounters(), QueueCounters())
        self._kept: OrderedDict[str, HopCounters] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def items(self) -> list[tuple[str, HopCounters]]:
        """Return the hops that are kept apart, and their counters."""
        return list(self._kept.items())

    def keep(self, key: str, destination: DestinationCounters, queue: QueueCounters) -> None:
        """Keep the counters of a destination that goes."""
        self._kept[key] = HopCounters(destination, queue)
        if len(self._kept) > MOST_FORMER:
            oldest = self._kept.popitem(last=False)[1]
            self.forgotten.destination.add(oldest.destination)
            self.forgotten.queue.add(oldest.queue)

    def take(self, key: str) -> HopCounters | None:
        """Return the counters of a hop, which has a destination again; None if unknown."""
        return self._kept.pop(key, None)
