# SPDX-License-Identifier: Apache-2.0
"""Days as text."""

from __future__ import annotations

from datetime import date, timedelta

from twisted.trial.unittest import SynchronousTestCase

from amqproute.pipeline.days import between, spans

DAY = date(2026, 2, 27)


class DayTests(SynchronousTestCase):
    """Ranges, and what is written of them."""

    def test_between(self) -> None:
        """Both ends belong to a range; one that is none has no days."""
        self.assertEqual(between(DAY, DAY), [DAY])
        self.assertEqual(between(DAY, date(2026, 3, 1))[1:], [date(2026, 2, 28), date(2026, 3, 1)])
        self.assertEqual(between(DAY, DAY - timedelta(1)), [])

    def test_spans(self) -> None:
        """Days that follow each other are one span, in whatever order they come; very many are
        counted."""
        days = [date(2026, 3, 1), DAY, date(2026, 2, 28), date(2026, 3, 4), DAY]
        self.assertEqual(spans(days), "2026-02-27 to 2026-03-01, 2026-03-04")
        self.assertEqual(spans([]), "")
        many = spans(DAY + timedelta(2 * n) for n in range(20))
        self.assertEqual(many.count("2026"), 7)
        self.assertTrue(many.endswith("2026-04-06 and 13 spans between"), many)
