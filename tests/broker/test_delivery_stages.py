# SPDX-License-Identifier: Apache-2.0
"""Durations of the stages of messages."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.delivery_stages import StageTimes
from amqproute.entry import Entry
from tests.support.fakes import message

ARRIVED_MS = 1_700_000_000_000


def entry(sent_ms: int) -> Entry:
    """Return an entry that was handed to a consumer so long after its arrival; 0 for never."""
    made = Entry(1, message(b"x"), True, True, ARRIVED_MS, 0)
    made.sent_us = 1000 * (ARRIVED_MS + sent_ms) if sent_ms else 0
    return made


class StageTests(SynchronousTestCase):
    """The observations of a run of entries."""

    def setUp(self) -> None:
        self.times = StageTimes()

    def observe(self, *sent_ms: int, after_ms: int) -> None:
        """Observe entries that were accepted so long after their arrival."""
        entries = [entry(each) for each in sent_ms]
        self.times.observe(entries, 1000 * (ARRIVED_MS + after_ms))

    def test_one(self) -> None:
        """Waiting ends with the hand-over, answering with the outcome."""
        self.observe(200, after_ms=1200)
        self.assertAlmostEqual(self.times.waiting.total, 0.2)
        self.assertAlmostEqual(self.times.answering.total, 1.0)

    def test_run(self) -> None:
        """Each entry of a run counts once, in its own bucket."""
        self.observe(1, 20, 3000, after_ms=3000)
        self.assertEqual(self.times.waiting.cumulative()[-1], 3)
        self.assertAlmostEqual(self.times.waiting.total, 3.021)
        self.assertEqual(self.times.answering.cumulative()[0], 1)

    def test_run_in_one_bucket(self) -> None:
        """A run whose ends share a bucket counts there."""
        self.observe(11, 15, 19, after_ms=419)
        self.assertEqual(self.times.waiting.cumulative()[3:5], [0, 3])
        self.assertAlmostEqual(self.times.waiting.total, 0.045)
        self.assertAlmostEqual(self.times.answering.total, 1.212)

    def test_without_times(self) -> None:
        """Without a journal entries have no times, and nothing is observed."""
        self.observe(0, after_ms=5)
        self.observe(0, 0, after_ms=5)
        self.assertEqual(self.times.waiting.cumulative()[-1], 0)

    def test_none(self) -> None:
        """A consumer that settles nothing adds nothing."""
        self.observe(after_ms=5)
        self.assertEqual(self.times.waiting.cumulative()[-1], 0)

    def test_clock_set_back(self) -> None:
        """A clock that was set back makes no sum shrink."""
        self.observe(-500, after_ms=-900)
        self.observe(-500, -600, after_ms=-900)
        self.assertEqual(self.times.waiting.cumulative()[0], 3)
        self.assertEqual((self.times.waiting.total, self.times.answering.total), (0.0, 0.0))
