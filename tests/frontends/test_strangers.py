# SPDX-License-Identifier: Apache-2.0
"""Refused clients: their errors, and bounded log lines."""

from __future__ import annotations

from typing import Any

from twisted.logger import globalLogPublisher

from amqproute.frontends.common.client_connection import MOST_LOGGED
from amqproute.log_rate_limit import EVERY_SECONDS
from amqproute.values import ANONYMOUS_PRINCIPAL
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.memory_broker import MemoryBroker, Network

NO_SASL = ev.AuthenticationRejected(None, "the client skipped SASL, which is required here")
NO_OPEN = ev.ConnectionClosed(
    error=spec.Error(condition="amqp:connection:framing-error", description="no open"),
    by_fault=True,
    clean=False,
)


class StrangerTests(HouseTestCase):
    """Connections that end before they are open."""

    def setUp(self) -> None:
        super().setUp()
        self.house = MemoryBroker(Network(self.clock), "alpha.example")
        self.told: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def observe(self, event: Any) -> None:
        self.told.append(event["log_format"].format(**event))

    def come(self, count: int, *events: Any) -> list[str]:
        """Have so many connections end that way; return what the log says of them."""
        self.told.clear()
        for _ in range(count):
            _, frontend = self.house.accept(ANONYMOUS_PRINCIPAL)
            frontend.events(events)
        return self.told

    def test_flood(self) -> None:
        """A few are told one by one, then how many there were."""
        for event, words in ((NO_SASL, "skipped SASL"), (NO_OPEN, "for its fault")):
            lines = self.come(1000, event)
            self.assertEqual(len(lines), MOST_LOGGED)
            self.assertIn(words, lines[0])
            self.clock.advance(EVERY_SECONDS)
            self.assertIn(f"{1000 - MOST_LOGGED} more", self.come(1, event)[0])
