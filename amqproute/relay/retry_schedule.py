# SPDX-License-Identifier: Apache-2.0
"""The times of retries (T-28): pure, with the random number passed in."""

from __future__ import annotations

from dataclasses import dataclass

DOUBLINGS = 60
"""Beyond this many doublings the delay has reached its maximum anyway."""


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """Exponential back-off with jitter.

    Attributes:
        first_seconds: the delay after the first failure.
        last_seconds: the longest delay.
    """

    first_seconds: float = 1.0
    last_seconds: float = 300.0

    def delay(self, failures: int, random: float) -> float:
        """Return the seconds to wait after this many consecutive failures.

        Args:
            failures: one or more.
            random: 0.0 to 1.0. It scales the delay by 0.8 to 1.2, so that peers that failed
                together are not retried together.
        """
        doublings = min(max(failures, 1) - 1, DOUBLINGS)
        delay = min(self.last_seconds, self.first_seconds * 2.0**doublings)
        return delay * (0.8 + 0.4 * random)

    def asked(self, seconds: float, random: float) -> float:
        """Return the seconds to wait if the peer has given a delay.

        The result is at least the delay after a first failure and at most the longest one; within
        these limits it is never shorter than the peer's.

        Args:
            seconds: the peer's delay.
            random: a number from 0 to 1; see `delay`.
        """
        bounded = min(self.last_seconds, max(self.first_seconds, seconds))
        return bounded * (1.0 + 0.2 * random)
