# SPDX-License-Identifier: Apache-2.0
"""``receive`` says that it waits."""

from __future__ import annotations

import sys

import click
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.commands import messages
from amqproute.cli.commands.messages import NOTICE_SECONDS


class NoticeTests(SynchronousTestCase):
    """What stands on stderr, and when."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.patch(click, "echo", lambda words, err: self.said.append(words))
        self.is_terminal = False
        self.patch(sys, "stderr", self)

    def isatty(self) -> bool:
        return self.is_terminal

    def wait(self, timeout: float | None, *messages_at: float) -> list[str]:
        """Receive for some seconds, with messages at some moments."""
        self.said.clear()
        with messages._notice_of_waiting(self.clock, "orders\x1b", timeout) as came:
            for each in messages_at:
                self.clock.advance(each)
                came()
            self.clock.advance(NOTICE_SECONDS)
            self.clock.advance(5 * NOTICE_SECONDS)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return self.said

    def test_without_end(self) -> None:
        """It is said once, with how it ends, in a pipe as well."""
        (words,) = self.wait(None)
        self.assertEqual(
            words,
            "waiting for messages on orders\\x1b; Ctrl-C ends it, as --timeout or --count would",
        )

    def test_with_a_time(self) -> None:
        """Who gave a time sees it on a terminal only."""
        self.assertEqual(self.wait(10.0), [])
        self.is_terminal = True
        self.assertEqual(len(self.wait(10.0)), 1)

    def test_messages(self) -> None:
        """Nothing is said while they come, and it is when none comes any more."""
        half = NOTICE_SECONDS / 2
        with messages._notice_of_waiting(self.clock, "q", None) as came:
            for _ in range(9):
                self.clock.advance(half)
                came()
            self.assertEqual(self.said, [])
        self.assertEqual(self.said, [])
        self.assertEqual(len(self.wait(None, half, half, half)), 1)
