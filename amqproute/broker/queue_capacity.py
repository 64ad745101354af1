# SPDX-License-Identifier: Apache-2.0
"""Notification of publishers about changes of a queue's free space (Q-15)."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.publisher_credit import STEP, Publishers
from amqproute.broker.queue_state import QueueState
from amqproute.broker.space_waiters import SpaceWaiters


class QueueCapacity:
    """The free places of one queue, and who waits for them.

    Args:
        state: of the queue; it says how many places are free.
        clock: for who is told when what is going on now is over.

    Attributes:
        publishers: the links that send to the queue, which share what is free.
        waiters: who waits for a free place.
    """

    __slots__ = ("_clock", "_is_scheduled", "_state", "_untold", "publishers", "waiters")

    def __init__(self, state: QueueState, clock: IReactorTime) -> None:
        self._state = state
        self._clock = clock
        self.waiters = SpaceWaiters()
        self._untold = 0  # of those who waited when there was space last
        self._is_scheduled = False
        self.publishers = Publishers(state, clock)

    def changed(self) -> None:
        """There are more places, or fewer, for another reason than messages."""
        self._notify()
        self.publishers.changed()

    def filled(self) -> None:
        """Messages have come: take back what credit there is for which nothing is left."""
        if self._state.is_full:
            self.publishers.filled()

    def freed(self) -> None:
        """Messages have gone: tell those who wait, when what is going on now is over."""
        self._untold = len(self.waiters)
        self._schedule_notify()

    def look(self) -> None:
        """Prepared branches keep more places, or fewer."""
        if self._state.is_full:
            self.publishers.filled()
        else:
            self._notify()

    def _notify(self) -> None:
        """Tell those who wait now: some at once, the others in later turns of the reactor."""
        self._untold = len(self.waiters)
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
        if self._untold and self._state.space() > 0:
            first = self.waiters.leave(min(STEP, self._untold))
            self._untold = max(0, self._untold - STEP)
            with self.publishers.round():
                for notify in first:
                    notify()
            self._schedule_notify()
