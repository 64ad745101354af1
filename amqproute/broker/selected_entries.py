# SPDX-License-Identifier: Apache-2.0
"""Entries that an operator picks out of a queue, for something to be done with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.entry_removal import EntryRemoval
from amqproute.broker.retry_delay import RetryDelay
from amqproute.broker.settlement import QueueSettlement
from amqproute.entry import Entry
from amqproute.wire.amqp10 import spec


class SelectedEntries:
    """What is picked out of one queue: entries that a `broker.queue_iterator` has shown.

    Args:
        consumers: of the queue; they take entries off the lines.
        deferral: its deferred entries.
        removal: takes entries off for good.
        settlement: puts them back.
        stays: called with entries that are held after all: the store did not let them go.
    """

    __slots__ = ("_consumers", "_deferral", "_removal", "_settlement", "_stays")

    def __init__(
        self,
        consumers: ConsumerSet,
        deferral: RetryDelay,
        removal: EntryRemoval,
        settlement: QueueSettlement,
        stays: Callable[[Sequence[Entry]], None],
    ) -> None:
        self._consumers = consumers
        self._deferral = deferral
        self._removal = removal
        self._settlement = settlement
        self._stays = stays

    def take(self, entries: Sequence[Entry]) -> None:
        """Take entries off the lines, for one of the following to be done with them."""
        deferred = self._deferral.take(entries)
        for entry in entries:
            if entry not in deferred:
                self._consumers.pluck(entry)

    def purge(self, entries: list[Entry], batch: Batch) -> None:
        """Archive them as `Queue.purge` does."""
        self._removal.purge(entries, batch)

    def expire(self, entries: list[Entry], error: spec.Error, batch: Batch) -> None:
        """End their lives as `Queue.expire` does."""
        self._removal.expire(entries, batch, error)

    def moved(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Archive entries that stand on another node within the same batch.

        If the store does not take it, they are available again.
        """
        self._removal.moved(entries, batch)
        batch.when_failed(partial(self._not_moved, entries))

    def _not_moved(self, entries: Sequence[Entry]) -> None:
        self._stays(entries)
        self._settlement.back(entries)

    def recall(self, entries: Sequence[Entry]) -> int:
        """Make those of these entries available that are deferred; return how many."""
        recalled = sorted(self._deferral.take(entries))
        if recalled:
            self._settlement.back(recalled)
        return len(recalled)
