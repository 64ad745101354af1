# SPDX-License-Identifier: Apache-2.0
"""Kill either side, at any moment, again and again: nothing is lost, nothing comes twice.

Two daemons relay while one of them, or both, are killed (SIGKILL) and started again; what is
published and how it is counted is in `tests.network.course`.

The ordinary suite has a short run. ``make test-crash`` (``AMQPROUTE_CRASH=long``) has a long one
from a new seed, which a failure names; ``AMQPROUTE_CRASH_SEED`` repeats it.
"""

from __future__ import annotations

import os
import random

from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.pair import Pair
from tests.network.course import Course, Tally

IS_LONG = os.environ.get("AMQPROUTE_CRASH") == "long"


class CrashTests(SynchronousTestCase):
    def crash(self, seed: int, messages: int, kills: int) -> None:
        with Pair() as pair:
            course = Course(pair, messages, random.Random(seed))
            try:
                course.run(kills)
                arrivals = course.count()
            except Exception as error:
                logs = [f"{each.name}: {line}" for each in pair.daemons for line in each.last_lines]
                raise self.failureException(
                    "\n".join([f"seed {seed}: {error!r}", *logs])
                ) from error
            logs = [f"{each.name}: {line}" for each in pair.daemons for line in each.last_lines]
        tally = Tally(course, arrivals)
        story = "\n".join([f"seed {seed}, kills {' '.join(course.kills)}", *logs])
        self.assertEqual(tally.wrong, {}, story)  # type: ignore[no-untyped-call]
        self.assertEqual(set(course.refused) - {"released"}, set(), story)  # type: ignore[no-untyped-call]
        print(
            f"\nseed {seed}: {len(course.kills)} kills, {tally.total} messages came: 0 lost, "
            f"0 twice, {tally.copies} copies of the publisher's own making (it sent "
            f"{course.sent_again.total()} again)"
        )

    def test_short(self) -> None:
        """1500 messages, three rounds of kills of the one, the other, or both sides."""
        self.crash(seed=7, messages=1500, kills=3)

    def test_long(self) -> None:
        """10,000 messages, two dozen rounds, a new seed each time."""
        seed = int(os.environ.get("AMQPROUTE_CRASH_SEED") or random.SystemRandom().randrange(10**6))
        self.crash(seed, messages=10_000, kills=24)

    test_long.timeout = 900  # type: ignore[attr-defined]
    if not IS_LONG:
        test_long.skip = "long: make test-crash"  # type: ignore[attr-defined]
