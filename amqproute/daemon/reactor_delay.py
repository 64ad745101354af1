# SPDX-License-Identifier: Apache-2.0
"""Measures how long the reactor keeps others waiting."""

from __future__ import annotations

from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from amqproute.bucket_counts import SECONDS, BucketCounts

__all__ = ["INTERVAL_SECONDS", "ReactorDelay"]

INTERVAL_SECONDS: Final = 0.25
"""Between two measurements; each costs some microseconds."""


class ReactorDelay:
    """A timer that notes how late it is called.

    Whatever the reactor was busy with, messages and timers of others have waited as long. A stop
    that is shorter than the interval is noticed with the chance of their ratio.

    Args:
        clock: the reactor.

    Attributes:
        counts: the delays, seconds.
        longest: the longest one since the start.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self.counts = BucketCounts(SECONDS)
        self.longest = 0.0
        self._clock = clock
        self._due = 0.0
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Start the measurements."""
        self._due = self._clock.seconds() + INTERVAL_SECONDS
        self._call = self._clock.callLater(INTERVAL_SECONDS, self._measure)

    def stop(self) -> None:
        """Stop the measurements."""
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _measure(self) -> None:
        late = max(0.0, self._clock.seconds() - self._due)
        self.counts.add(late)
        self.longest = max(self.longest, late)
        self.start()
