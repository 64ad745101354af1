# SPDX-License-Identifier: Apache-2.0
"""How many more messages a queue takes, and who is told when that changes (Q-15)."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.consumer_set import UNBOUNDED, ConsumerSet
from amqproute.broker.early_delivery import EarlyDelivery
from amqproute.broker.priority_queues import PriorityQueues
from amqproute.broker.publisher_credit import STEP, Publishers
from amqproute.broker.retry_delay import RetryDelay
from amqproute.broker.space_waiters import SpaceWaiters
from amqproute.broker.xa_queue_holds import BranchHolds


class QueueCapacity:
    """The places of one queue, taken and free.

    Args:
        levels: the queue's lines.
        consumers: what they hold takes places as well.
        deferral: so does what is deferred.
        ahead: what has gone ahead of its commit takes none but those of consumers.
        holds: what prepared branches keep of the queue.
        clock: for what is told when what is going on now is over.

    Attributes:
        publishers: the links that send to the queue, which share what is free.
    """

    __slots__ = (
        "_ahead",
        "_capacity",
        "_clock",
        "_consumers",
        "_deferral",
        "_holds",
        "_is_closed",
        "_is_scheduled",
        "_levels",
        "_untold",
        "_waiters",
        "publishers",
    )

    def __init__(
        self,
        levels: PriorityQueues,
        consumers: ConsumerSet,
        deferral: RetryDelay,
        ahead: EarlyDelivery,
        holds: BranchHolds,
        clock: IReactorTime,
    ) -> None:
        self._levels = levels
        self._consumers = consumers
        self._deferral = deferral
        self._ahead = ahead
        self._holds = holds
        self._clock = clock
        self._capacity = 0
        self._is_closed = False
        self._waiters = SpaceWaiters()
        self._untold = 0  # of those who waited when there was space last
        self._is_scheduled = False
        self.publishers = Publishers(self.left, lambda: self._capacity > 0, clock)

    # -- how many ------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """Messages held: available, acquired and deferred (Q-15)."""
        return self._levels.available + self._consumers.acquired + len(self._deferral)

    @property
    def taken(self) -> int:
        """Places that are not free: by what is held, what is on its way, and what is promised."""
        # What has gone ahead of its commit is in a consumer's hands already, or has left.
        on_their_way = self._levels.pending - len(self._ahead.entries)
        return self.depth + on_their_way + self._holds.places

    @property
    def is_used(self) -> bool:
        """Something is held, or on its way."""
        return bool(self.depth or self._levels.pending)

    def left(self) -> int:
        """Return how many more messages fit."""
        if self._is_closed:
            return 0
        if not self._capacity:
            return UNBOUNDED
        return max(0, self._capacity - self.taken)

    @property
    def _is_full(self) -> bool:
        """Senders may still have credit, where what took the room came without.

        It came in a transaction or from a node, or it will come: it is promised to a branch.
        """
        return self._capacity > 0 and self.left() <= 0

    # -- who is told ---------------------------------------------------------------------------

    def when_left(self, notify: Callable[[], None]) -> None:
        """Have ``notify``, a method, called once when there is space again; it is held weakly."""
        self._waiters.add(notify)

    def resize(self, capacity: int) -> None:
        """Hold so many messages from now on, 0 for any number; what is there stays."""
        if capacity != self._capacity:
            self._capacity = capacity
            self._changed()

    def close(self) -> None:
        """Have no space until `open`, whatever the capacity."""
        self._is_closed = True

    def open(self) -> None:
        """Have as much as there is."""
        self._is_closed = False
        self._changed()

    def _changed(self) -> None:
        self._notify()
        self.publishers.changed()

    def filled(self) -> None:
        """Messages have come: take back what credit there is for which nothing is left."""
        if self._is_full:
            self.publishers.filled()

    def freed(self) -> None:
        """Messages have gone: tell those who wait, when what is going on now is over."""
        self._untold = len(self._waiters)
        self._schedule_notify()

    def look(self) -> None:
        """Prepared branches keep more places, or fewer."""
        if self._is_full:
            self.publishers.filled()
        else:
            self._notify()

    def _notify(self) -> None:
        """Tell those who wait now: some at once, the others in later turns of the reactor."""
        self._untold = len(self._waiters)
        self._notify_waiters()

    def _schedule_notify(self) -> None:
        if self._untold and not self._is_scheduled:
            self._is_scheduled = True
            self._clock.callLater(0, self._notify_batch)

    def _notify_batch(self) -> None:
        self._is_scheduled = False
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        # Who finds nothing left waits again, behind the others, until the next time.
        if self._untold and self.left() > 0:
            first = self._waiters.leave(min(STEP, self._untold))
            self._untold = max(0, self._untold - STEP)
            with self.publishers.round():
                for notify in first:
                    notify()
            self._schedule_notify()
