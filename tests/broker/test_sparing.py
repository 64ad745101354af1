# SPDX-License-Identifier: Apache-2.0
"""Lines in the log about what a flood does: the first, then now and then."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.sparing import EVERY_SECONDS, MOST_KEYS, Sparing


class SparingTests(SynchronousTestCase):
    """When a line is due."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.sparing = Sparing(self.clock.seconds)

    def test_now_and_then(self) -> None:
        """The first at once, others together; each subject for itself."""
        self.assertEqual([self.sparing.due("a", 2) for _ in range(4)], [2, 0, 0, 0])
        self.assertEqual(self.sparing.due("b"), 1)
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual([self.sparing.due("a"), self.sparing.due("a")], [7, 0])
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual(self.sparing.due("a"), 2)

    def test_bounded(self) -> None:
        """Subjects without end take no memory without end."""
        for number in range(3 * MOST_KEYS):
            self.assertEqual(self.sparing.due(number), 1)
        self.assertLessEqual(len(self.sparing._counted), MOST_KEYS)
