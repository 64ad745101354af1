# SPDX-License-Identifier: Apache-2.0
"""``receive`` and ``send`` report that they wait."""

from __future__ import annotations

import sys
from typing import Any

import click
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.cli.command_error import ClientError
from amqproute.cli.commands import send_receive, waiting
from amqproute.cli.commands.send_receive import NOTICE_SECONDS


class NoticeTests(SynchronousTestCase):
    """The lines on stderr, and their times."""

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
        with send_receive._notice_of_waiting(self.clock, "orders\x1b", timeout) as came:
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
        """With a given time the wait is shown on a terminal only."""
        self.assertEqual(self.wait(10.0), [])
        self.is_terminal = True
        self.assertEqual(len(self.wait(10.0)), 1)

    def test_messages(self) -> None:
        """Nothing is said while they come, and it is when none comes any more."""
        half = NOTICE_SECONDS / 2
        with send_receive._notice_of_waiting(self.clock, "q", None) as came:
            for _ in range(9):
                self.clock.advance(half)
                came()
            self.assertEqual(self.said, [])
        self.assertEqual(self.said, [])
        self.assertEqual(len(self.wait(None, half, half, half)), 1)


class CreditTests(SynchronousTestCase):
    """The words of ``send`` without credit."""

    class Client:
        """A client whose broker answers, or does not."""

        answer_seconds = 30.0
        container_id = "command/1"

    class Sender:
        """A link that waits, or does not."""

        name = "orders\x1b"
        waits_for_credit = True

    def setUp(self) -> None:
        self.clock = Clock()
        self.said: list[str] = []
        self.patch(click, "echo", lambda words, err: self.said.append(words))
        self.rows: dict[str, list[dict[str, Any]]] = {
            "watermark": [
                {"name": "disk", "state": "closed", "reason": "31 MB are free"},
                {"name": "memory", "state": "open", "reason": ""},
            ],
            "connection": [
                {"principal": "user:ann", "container": "command/1"},
                {"principal": "user:bob", "container": "other"},
            ],
            "contract": [
                {"name": "user:ann", "limiter": "spool"},
                {"name": "user:bob", "limiter": "links"},
            ],
        }
        self.queue: dict[str, Any] = {"name": "orders", "depth": 7, "options": {"capacity": 7}}

        async def query(_: Any, kind: str) -> list[dict[str, Any]]:
            if not self.rows:
                raise ClientError(1, "management.403", "you may not")
            return self.rows[kind]

        async def ask(*_: Any) -> dict[str, Any]:
            return self.queue

        self.patch(waiting, "query", query)
        self.patch(waiting, "ask", ask)

    def wait(self, *states: bool) -> list[str]:
        """Wait for as many seconds as there are states of the link; return what is said."""
        client: Any = self.Client()
        sender: Any = self.Sender()
        with waiting.notice_of_no_credit(self.clock, client, sender):
            for state in states:
                sender.waits_for_credit = state
                self.clock.pump([waiting.LOOK_SECONDS] * round(1 / waiting.LOOK_SECONDS))
        self.clock.advance(60)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        return self.said

    def test_said_once(self) -> None:
        """After two seconds, with whatever is known to hold it back, and not again."""
        first, *reasons = self.wait(*[True] * 20)
        self.assertEqual(
            first,
            "waiting for credit: the broker takes no messages for orders\\x1b at present; given up "
            "after 30 s without any",
        )
        self.assertEqual(
            reasons,
            [
                "  disk: 31 MB are free",
                "  contract of user:ann: its bound spool is reached",
                "  queue orders is at its capacity: 7 of 7",
            ],
        )

    def test_unknown(self) -> None:
        """A user without the right to ask hears that it waits all the same."""
        self.rows = {}
        self.assertEqual(len(self.wait(True, True, True)), 1)

    def test_credit_comes(self) -> None:
        """Nothing is said of moments without credit."""
        self.assertEqual(self.wait(*[True, False] * 10), [])

    def test_with_credit(self) -> None:
        """Nor of none."""
        self.assertEqual(self.wait(*[False] * 10), [])
