# SPDX-License-Identifier: Apache-2.0
"""Kill either side, at any moment, repeatedly: no loss, no duplicates.

Two daemons relay while one of them, or both, are killed (SIGKILL) and started again; what is
published and how it is counted is in `tests.network.course`, how often it is done in
`tests.integration.killing`.
"""

from __future__ import annotations

import random

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.killing import KillingRuns
from tests.network.course import Course, Tally
from tests.support.pairs import Pair


class CrashTests(KillingRuns, SynchronousTestCase):
    seed, messages = 7, 1500

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
