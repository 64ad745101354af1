# SPDX-License-Identifier: Apache-2.0
"""Entries of a queue that no attached link needs any more (Q-23, archive-currently-unreachable)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.entry import Entry


class UnmatchedEntries:
    """Finds what nobody needs and lets it go.

    Args:
        levels: the queue's lines.
        consumers: its consumers; browsers among them note what they need.
        archive: called with entries that are off the lines already.
        look_soon: has `look` called when what is going on now is over.
        purge: lets everything go: nobody is attached.
    """

    __slots__ = ("_archive", "_consumers", "_levels", "_look_soon", "_purge")

    def __init__(
        self,
        levels: PriorityQueues,
        consumers: ConsumerSet,
        archive: Callable[[Sequence[Entry]], None],
        look_soon: Callable[[], None],
        purge: Callable[[], None],
    ) -> None:
        self._levels = levels
        self._consumers = consumers
        self._archive = archive
        self._look_soon = look_soon
        self._purge = purge

    def look(self) -> None:
        """Look at everything: a link has gone, or none has come yet."""
        if self._consumers.has_standby:
            return
        if self._consumers.active:
            self.look_at(list(self._levels.entries()))
        else:
            self._purge()

    def look_at(self, entries: Sequence[Entry]) -> None:
        """Look at these available entries."""
        if not self._consumers.active:
            if not self._consumers.has_standby:
                self._look_soon()
            return
        feeds = []
        for consumer in self._consumers:
            feed = self._consumers.feeds.get(consumer)
            if feed is None:
                return  # somebody takes whatever there is
            feeds.append(feed)
        unneeded = []
        for entry in entries:
            if not (entry.taken or any(feed.needs(entry) for feed in feeds)):
                entry.line.pluck(entry)
                unneeded.append(entry)
        if unneeded:
            self._archive(unneeded)
