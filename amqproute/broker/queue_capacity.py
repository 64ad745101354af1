# SPDX-License-Identifier: Apache-2.0
"""Notification of publishers about changes of a queue's free space (Q-15)."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from amqproute.broker.publisher_credit import STEP, Publishers
from amqproute.broker.queue_state import QueueState
from amqproute.broker.space_waiters import SpaceWaiters


class QueueCapacity:
    """The free places of one queue, and those waiting for them.

    Args:
        state: the state of the queue; it has the number of free places.
        clock: the clock for notices in a later turn.

    Attributes:
        publishers: the links that send to the queue, which share the free places.
        waiters: callables that wait for a free place.
    """

    __slots__ = ("_clock", "_is_scheduled", "_state", "_untold", "publishers", "waiters")

    def __init__(self, state: QueueState, clock: IReactorTime) -> None:
        self._state = state
        self._clock = clock
        self.waiters = SpaceWaiters()
        self._untold = 0  # of the waiters when there was space last
        self._is_scheduled = False
        self.publishers = Publishers(state, clock)

    def changed(self) -> None:
        """Handle a change of the number of places for other reasons than messages."""
        self._notify()
        self.publishers.changed()

    def filled(self) -> None:
        """Messages have arrived: revoke credit for which no place is left."""
        if self._state.is_full:
            self.publishers.filled()

    def freed(self) -> None:
        """Messages have left: notify the waiters, later in this turn."""
        self._untold = len(self.waiters)
        self._schedule_notify()

    def look(self) -> None:
        """Handle a change of the places reserved by prepared branches."""
        if self._state.is_full:
            self.publishers.filled()
        else:
            self._notify()

    def _notify(self) -> None:
        """Notify the present waiters: some at once, the others in later turns of the reactor."""
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
        # A waiter that finds no place waits again, behind the others.
        if self._untold and self._state.space() > 0:
            first = self.waiters.leave(min(STEP, self._untold))
            self._untold = max(0, self._untold - STEP)
            with self.publishers.round():
                for notify in first:
                    notify()
            self._schedule_notify()
