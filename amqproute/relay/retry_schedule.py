# SPDX-License-Identifier: Apache-2.0
"""When to try again (T-28): pure, with the random number passed in."""

from __future__ import annotations

from dataclasses import dataclass

DOUBLINGS = 60
"""Beyond this many doublings the delay is the longest one anyway."""


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
        """Return the seconds to wait after so many failures in a row.

        Args:
            failures: one or more.
            random: from 0 to 1. It stretches the delay to 0.8 to 1.2 of itself, so that peers
                which failed together do not come back together.
        """
        doublings = min(max(failures, 1) - 1, DOUBLINGS)
        delay = min(self.last_seconds, self.first_seconds * 2.0**doublings)
        return delay * (0.8 + 0.4 * random)

    def asked(self, seconds: float, random: float) -> float:
        """Return the seconds to wait where the peer has said how long.

        Not less than after a first failure, nor longer than after many, whatever it says; and
        never earlier than it says within that.

        Args:
            seconds: what it said.
            random: from 0 to 1; see `delay`.
        """
        bounded = min(self.last_seconds, max(self.first_seconds, seconds))
        return bounded * (1.0 + 0.2 * random)
