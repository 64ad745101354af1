# SPDX-License-Identifier: Apache-2.0
"""The report of the yardstick: correct revision, rounds and guarantees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.rabbitmq_shovel import OURS, Measured, report

ABOUT = {"revision": "abc1234", "rabbitmq": "3.10.8", "machine": "2 CPUs", "when": "today"}


def figures(rate: float, cpu: float = 2.0) -> Mapping[str, float]:
    return {"rate": rate, "alpha": cpu, "beta": cpu / 2}


class ReportTests(SynchronousTestCase):
    def text(self, ours: Sequence[float], theirs: Sequence[float], **syncs: int) -> str:
        rounds = {
            "quorum": [figures(rate, 6.0) for rate in theirs],
            OURS: [figures(rate) for rate in ours],
        }
        return report([Measured("live", 65536, 20_000, rounds)], syncs, ABOUT)

    def test_revision_and_rounds(self) -> None:
        text = self.text([100, 300, 200], [90, 100, 110])
        self.assertIn("Revision abc1234, today: medians of 3 rounds, in which rates", text)
        self.assertIn("differ by up to 100%.", text)
        self.assertIn("RabbitMQ 3.10.8; 2 CPUs. Messages of a round: 20,000 of 64 KiB", text)

    def test_one_round_is_no_median(self) -> None:
        text = self.text([100], [50])
        self.assertIn("Revision abc1234, today: one round, not repeated.", text)
        self.assertNotIn("median", text)

    def test_table(self) -> None:
        """Medians, with our ratio to each; CPU of both sides in one row."""
        lines = self.text([100, 300, 200], [90, 100, 110]).splitlines()
        self.assertIn("| size, phase | figure | amqproute | quorum | ratio |", lines)
        self.assertIn("| 64 KiB, live | messages/s | 200 | 100 | 2.00 |", lines)
        both = "| 64 KiB, live | CPU s per 100,000, both sides | 3.00 | 9.00 | 3.00 |"
        self.assertIn(both, lines)

    def test_promises(self) -> None:
        lines = self.text([1], [1], quorum=1003, classic=1).splitlines()
        self.assertIn("| quorum | 1,003 | on the disk, as ours |", lines)
        self.assertIn("| classic | 1 | in memory: less than ours |", lines)
