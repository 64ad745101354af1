# SPDX-License-Identifier: Apache-2.0
"""A short run of kills for `make test-campaigns`, and a long one.

``make test-crash`` (``AMQPROUTE_CRASH=long``) has the long one, from a new seed, which a failure
names; ``AMQPROUTE_CRASH_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random

IS_LONG = os.environ.get("AMQPROUTE_CRASH") == "long"


class KillingRuns:
    """The interface to tests of a case that can `crash` daemons.

    Attributes:
        seed: of the short run.
        messages: in the short run.
    """

    seed: int
    messages: int

    def crash(self, seed: int, messages: int, kills: int) -> None:
        """Publish, kill so often meanwhile, and look what became of it.

        Args:
            seed: of when and whom.
            messages: how many.
            kills: rounds of kills of the one, the other, or both sides.
        """
        raise NotImplementedError

    def test_short(self) -> None:
        """A thousand messages and some, three rounds of kills, always the same."""
        self.crash(self.seed, self.messages, kills=3)

    def test_long(self) -> None:
        """10,000 messages, two dozen rounds, a new seed each time."""
        seed = int(os.environ.get("AMQPROUTE_CRASH_SEED") or random.SystemRandom().randrange(10**6))
        self.crash(seed, messages=10_000, kills=24)

    test_long.timeout = 900  # type: ignore[attr-defined]
    if not IS_LONG:
        test_long.skip = "long: make test-crash"  # type: ignore[attr-defined]
