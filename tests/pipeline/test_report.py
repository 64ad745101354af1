# SPDX-License-Identifier: Apache-2.0
"""What the report says first, without Spark's tables."""

from __future__ import annotations

from datetime import date

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.support import MISSING

if not MISSING:
    from pyspark.sql import Row

    from amqproute.pipeline.report import Facts, headline, report_page

DAY = date(2026, 11, 22)


class HeadlineTests(SynchronousTestCase):
    """Sentences above everything else."""

    skip = MISSING

    def facts(self, least: int, p50: int, p99: int) -> Facts:
        at = "2026-11-22 00:00"
        overall = Row(messages=2, octets=10, p50=p50, p99=p99, least=least, most=p99)
        return Facts(
            DAY, DAY, moments=[at], fates={(at, "delivered"): 2}, overall=overall,
            latency={at: Row(p50=p50, p99=p99)},
        )  # fmt: skip

    def test_clocks_that_differ(self) -> None:
        """Where clocks differ by more than a message takes, there is a page, and it says so."""
        said = self.facts(-2_470_000, -2_400_000, 30_000)
        states = {state: words for state, words, _ in headline(said)}
        self.assertIn("up to 2.47 s before they began", states["doubtful"])
        self.assertIn("\u22122.4 s", report_page(said))

    def test_clocks_that_agree(self) -> None:
        """Nothing is said of clocks where nothing shows that they differ."""
        said = self.facts(0, 20_000, 30_000)
        self.assertEqual([state for state, _, _ in headline(said)], ["good"])
