# SPDX-License-Identifier: Apache-2.0
"""Assertions about brokers and clients."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10.link import Link
from tests.support.memory_broker import Client


class HouseTestCase(SynchronousTestCase):
    """A test of whole brokers on one clock.

    Attributes:
        clock: the clock of all of them.
    """

    def setUp(self) -> None:
        self.clock = Clock()

    def run_now(self) -> None:
        """Run everything due at this instant."""
        self.clock.advance(0)

    def step(self, calls: int = 1) -> None:
        """Run only this number of calls due at this instant."""
        for _ in range(calls):
            due = [call for call in self.clock.calls if call.getTime() <= self.clock.seconds()]
            if not due:
                return
            self.clock.calls.remove(due[0])
            due[0].called = 1
            due[0].func(*due[0].args, **due[0].kw)

    def run_for(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass, and run everything due."""
        until = self.clock.seconds() + seconds
        while self.clock.seconds() < until:
            self.clock.advance(min(step, until - self.clock.seconds()))
            self.run_now()

    def assertDetached(self, client: Client, link: Link, condition: str) -> Any:
        """The broker has detached or refused a link, with this condition; return the error."""
        self.assertIn(link.name, client.detached)
        error = client.detached[link.name]
        self.assertIsNotNone(error)
        self.assertEqual(str(error.condition), condition)
        return error

    def assertOutcomes(self, client: Client, *names: str) -> None:
        """The client's sent messages have these outcomes, by class name."""
        self.assertEqual(client.outcomes(), list(names))
