# SPDX-License-Identifier: Apache-2.0
"""Rejections by partners: counted, and logged once for each kind."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.broker.recent_counts import RecentCounts, RecentEvent
from amqproute.relay.rejection_counts import (
    MOST_REMEMBERED,
    QUIET_SECONDS,
    RejectionCounts,
    kind_of,
)


class RejectionTests(SynchronousTestCase):
    """One line for each partner and kind in an hour, and none is not counted."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.recent = RecentCounts(self.clock.seconds)
        self.rejections = RejectionCounts(self.clock.seconds, self.recent)
        self.lines: list[str] = []

        def observe(event: LogEvent) -> None:
            if event.get("log_namespace") == "amqproute.relay.rejection_counts.RejectionCounts":
                self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)

    def note(self, condition: Any, count: int = 1, partner: str = "beta.example") -> str:
        """Have a partner reject."""
        return self.rejections.note(partner, count, condition, "its words")

    def test_kinds(self) -> None:
        """Each kind has a line of its own, with the condition; many of one kind have one."""
        for condition, kind in (
            (conditions.LINK_MESSAGE_SIZE_EXCEEDED, "too big"),
            (conditions.NOT_FOUND, "no node"),
            (conditions.RESOURCE_LIMIT_EXCEEDED, "full"),
            ("x:y", "other"),
            (None, "other"),
        ):
            self.assertEqual(kind_of(condition), kind)
            for _ in range(50):
                self.assertEqual(self.note(condition), kind)
        self.assertEqual(len(self.lines), 4)
        self.assertIn(
            "beta.example rejected 1 message: amqp:link:message-size-exceeded: its words (too big",
            self.lines[0],
        )
        counts = self.recent.totals()
        self.assertEqual(sum(counts.values()), 250)
        key = RecentEvent(
            "rejected", "beta.example", "full", str(conditions.RESOURCE_LIMIT_EXCEEDED)
        )
        self.assertEqual(counts[key], 50)

    def test_again(self) -> None:
        """After an hour the log hears of it again, with what has come since."""
        self.note(conditions.NOT_FOUND, 3)
        self.note(conditions.NOT_FOUND, 4)
        self.note(conditions.NOT_FOUND, partner="gamma.example")
        self.assertEqual(len(self.lines), 2)
        self.clock.advance(QUIET_SECONDS)
        self.note(conditions.NOT_FOUND, 2)
        self.assertIn("rejected 6 messages", self.lines[2])

    def test_bounded(self) -> None:
        """It is remembered of this many partners and no more."""
        for number in range(MOST_REMEMBERED + 10):
            self.note(conditions.NOT_FOUND, partner=f"n{number}.example")
        self.assertEqual(len(self.rejections), MOST_REMEMBERED)
