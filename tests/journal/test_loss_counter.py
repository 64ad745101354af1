# SPDX-License-Identifier: Apache-2.0
"""The number of dropped records, on disk."""

from __future__ import annotations

from pathlib import Path

from twisted.logger import LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal.loss_counter import LossCounter


class TallyTests(SynchronousTestCase):
    """A number that is written where it can be."""

    def test_written(self) -> None:
        """It is what was written last, by whoever reads it."""
        directory = Path(self.mktemp())
        directory.mkdir()
        self.assertEqual(LossCounter(directory).read(), 0)
        for count in (5, 123_456, 7):
            LossCounter(directory).write(count)
            self.assertEqual(LossCounter(directory).read(), count)

    def test_failures(self) -> None:
        """A disk that takes nothing is said once each time that it begins."""
        said: list[LogEvent] = []
        globalLogPublisher.addObserver(said.append)
        self.addCleanup(globalLogPublisher.removeObserver, said.append)
        directory = Path(self.mktemp())
        tally = LossCounter(directory)
        for count in (1, 2, 3):
            tally.write(count)
        self.assertEqual(len(said), 1)
        directory.mkdir()
        tally.write(3)
        self.assertEqual((len(said), tally.read()), (1, 3))
        directory.rename(f"{directory}.away")
        for count in (4, 5):
            tally.write(count)
        self.assertEqual(len(said), 2)
