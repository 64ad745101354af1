# SPDX-License-Identifier: Apache-2.0
"""Time limit for unsettled deliveries at receivers (O-04, `limits.lock-timeout`).

A receiver may leave a message unsettled and decide later: no other consumer gets it meanwhile. A
hanging consumer would keep its messages as long as its connection lives, so an operator can set a
bound. The deliveries of one link are checked eight times in that time, and only while there are
any; there is no work when a message is sent. So a delivery may last a quarter longer than the
bound, and never shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.wire.amqp10.link import Delivery, Link

__all__ = ["LockMonitor"]

LOOKS: Final = 8
"""Number of checks of a delivery before its time is over."""


class LockTerms(Protocol):
    """The terms of all links.

    Attributes:
        lock_seconds: the longest time without an outcome; 0 for no limit. It may change.
    """

    lock_seconds: float


class LockMonitor:
    """Watches the unsettled deliveries of one sending link.

    Args:
        clock: the clock for its timer.
        terms: the longest time without an outcome.
        link: the link.
        is_sent: returns whether all of a delivery has been sent, so that its time runs.
        overdue: called with the deliveries whose time is over, oldest first, and that time.
    """

    __slots__ = ("_clock", "_is_sent", "_link", "_overdue", "_since", "_terms", "_timer")

    def __init__(
        self,
        clock: IReactorTime,
        terms: LockTerms,
        link: Link,
        is_sent: Callable[[Delivery], bool],
        overdue: Callable[[Sequence[Delivery], float], None],
    ) -> None:
        self._clock = clock
        self._terms = terms
        self._link = link
        self._is_sent = is_sent
        self._overdue = overdue
        self._since: dict[Delivery, float] = {}
        self._timer: IDelayedCall | None = None

    def watch(self) -> None:
        """Check the link's deliveries from now on, if there is a bound."""
        if self._timer is None and self._terms.lock_seconds > 0:
            self._look()

    def stop(self) -> None:
        """End: the link is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._since = {}

    def _look(self) -> None:
        self._timer = None
        seconds, now = self._terms.lock_seconds, self._clock.seconds()
        since: dict[Delivery, float] = {}
        overdue = []
        if seconds > 0:
            for delivery in self._link.unsettled.values():
                if delivery.context is None:
                    continue  # it has an outcome, which waits for the disk or a discharge
                begun = self._since.get(delivery, now) if self._is_sent(delivery) else now
                if now - begun >= seconds:
                    overdue.append(delivery)
                else:
                    since[delivery] = begun
            if self._link.unsettled:
                self._timer = self._clock.callLater(seconds / LOOKS, self._look)
        self._since = since
        if overdue:
            self._overdue(overdue, seconds)
