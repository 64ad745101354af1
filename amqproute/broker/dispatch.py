# SPDX-License-Identifier: Apache-2.0
"""Hands out what is available on a queue to those who have room, in fair shares (Q-29, Q-30).

What happens meanwhile, an entry given back at once or a message that arrives, does not hand out
anything within: it has this done once more, when everybody has what was dealt to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from twisted.logger import Logger

from amqproute.broker.commit_batch import Batch
from amqproute.broker.consumer_set import ConsumerSet
from amqproute.broker.early_delivery import EarlyDelivery
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.broker.settlement import QueueSettlement
from amqproute.broker.stored_backlog import StoredBacklog
from amqproute.entry import Entry

BROKEN_SECONDS: Final = 60.0
"""When entries are tried again at which a consumer has broken."""


class Dispatch:
    """The handing out of one queue.

    Args:
        levels: the queue's lines.
        consumers: who takes.
        ahead: what is handed out before it is committed.
        backlog: read where little is left in memory.
        settlement: takes back what a consumer could not take.
        journal: whether entries note when they were handed out, an `IJournal`.
        log: for what breaks.

    Attributes:
        limits: how much of the backlog may be in memory.
    """

    __slots__ = (
        "_again",
        "_ahead",
        "_backlog",
        "_consumers",
        "_is_busy",
        "_journal",
        "_levels",
        "_log",
        "_settlement",
        "limits",
    )

    def __init__(
        self,
        levels: PriorityQueues,
        consumers: ConsumerSet,
        ahead: EarlyDelivery,
        backlog: StoredBacklog,
        settlement: QueueSettlement,
        journal: Any,
        log: Logger,
    ) -> None:
        self._levels = levels
        self._consumers = consumers
        self._ahead = ahead
        self._backlog = backlog
        self._settlement = settlement
        self._journal = journal
        self._log = log
        self.limits = QueueLimits()
        self._is_busy = False
        self._again = False

    def run(self) -> None:
        """Hand out what there is."""
        if self._is_busy:
            self._again = True
            return
        self._is_busy = True
        try:
            self._again = True
            while self._again:
                self._again = False
                self._run_once()
        finally:
            self._is_busy = False

    def deliver_early(self, entries: Sequence[Entry], batch: Batch) -> None:
        """Hand out entries whose commit is under way, as far as that may be."""
        if self._is_busy or not self._consumers.active:
            return
        dealt = self._ahead.deal(entries, batch.now_ms)
        for _, share in dealt:
            batch.ahead += share
        self._is_busy = True
        self._again = False
        try:
            self._hand_out(dealt)
        finally:
            self._is_busy = False
        if self._again:
            self.run()

    def _run_once(self) -> None:
        consumers = self._consumers
        consumers.notify_standby()
        if not consumers.active:
            return
        if not self._levels.available:
            if consumers.feeds:
                self._backlog.scan()  # who is behind has to know that nothing is there any more
            consumers.notify_exhausted()
            return
        self._hand_out(consumers.deal())
        is_loading = self._backlog.refill(self.limits)
        if consumers.feeds:
            is_loading = self._backlog.scan() or is_loading
        if not is_loading:
            # What is left, if anything is, is not for those who still have room: they are barred
            # from it, or it is not what they select.
            consumers.notify_exhausted(with_room_only=self._levels.in_memory > 0)

    def _hand_out(self, dealt: Sequence[tuple[Any, list[Entry]]]) -> None:
        """Give consumers what was dealt to them, and note when that was."""
        now_us = self._journal.now_us()
        for consumer, entries in dealt:
            if now_us:
                for entry in entries:
                    entry.sent_us = now_us
                    entry.tries += 1
            acquired = self._consumers.acquired
            try:
                consumer.deliver(entries)
            except Exception:  # a fault of this program; the others are to have their shares
                self._log.failure("{consumer} could not take what it was handed", consumer=consumer)
                if self._consumers.acquired == acquired:  # it has settled nothing of it
                    self._take_back(consumer, entries)

    def _take_back(self, consumer: Any, entries: Sequence[Entry]) -> None:
        """Try entries again later that a consumer was handed and does not hold."""
        feed = self._consumers.feeds.get(consumer)
        if feed is None or not feed.copies:
            held = set(consumer.holds())
            rest = [each for each in entries if each not in held]
            self._settlement.defer(rest, BROKEN_SECONDS)
