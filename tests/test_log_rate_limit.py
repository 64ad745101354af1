# SPDX-License-Identifier: Apache-2.0
"""Rate-limited log lines: the first of a flood, then now and then."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.log_rate_limit import EVERY_SECONDS, MOST_KEYS, RateLimitedLog, and_more, source_of


class SparingTests(SynchronousTestCase):
    """When a line is due."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.rate_limited_log = RateLimitedLog(self.clock.seconds)

    def test_now_and_then(self) -> None:
        """The first at once, others together; each subject for itself."""
        self.assertEqual([self.rate_limited_log.due("a", 2) for _ in range(4)], [2, 0, 0, 0])
        self.assertEqual(self.rate_limited_log.due("b"), 1)
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual([self.rate_limited_log.due("a"), self.rate_limited_log.due("a")], [7, 0])
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual(self.rate_limited_log.due("a"), 2)

    def test_some_at_once(self) -> None:
        """A handful one by one, where each is worth a line; then counted."""
        rate_limited_log = RateLimitedLog(self.clock.seconds, at_once=3)
        self.assertEqual([rate_limited_log.due("a") for _ in range(6)], [1, 1, 1, 0, 0, 0])
        self.clock.advance(EVERY_SECONDS)
        self.assertEqual([rate_limited_log.due("a") for _ in range(4)], [4, 1, 1, 0])

    def test_words(self) -> None:
        """The line counts the events that had no line of their own."""
        self.assertEqual(and_more(1), "")
        self.assertIn("3 more", and_more(4))

    def test_bounded(self) -> None:
        """Subjects without end take no memory without end."""
        for number in range(3 * MOST_KEYS):
            self.assertEqual(self.rate_limited_log.due(number), 1)
        self.assertLessEqual(len(self.rate_limited_log._counted), MOST_KEYS)


class SourceTests(SynchronousTestCase):
    def test_of(self) -> None:
        """An address, or what somebody who has one of IPv6 has."""
        for host, source in (
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::/64"),
            ("2001:db8::ffff:0:0:1", "2001:db8::/64"),
            ("fe80::1%eth0", "fe80::/64"),
            ("beta.example", ""),
            ("", ""),
        ):
            with self.subTest(host):
                self.assertEqual(source_of(host), source)
