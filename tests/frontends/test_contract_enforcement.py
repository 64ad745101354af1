# SPDX-License-Identifier: Apache-2.0
"""An operator's view of a contract that limits its holder."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.sender_quotas import SenderQuotas
from amqproute.frontends.common.contract_enforcement import (
    QUIET_SECONDS,
    ActiveContract,
    ContractTerms,
)

KEY = "user:ann"


class IdleLink:
    """A link of the holder that sends nothing."""

    waiting_octets = 0

    def grant(self) -> None:
        """Do nothing: the tests ask for the allowance."""


class BoundTests(SynchronousTestCase):
    """The bound that is shown, and for how long."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.accounts = SenderQuotas()
        self.contract = ActiveContract(
            KEY, ContractTerms(messages_per_second=5, spool=1000), self.clock, self.accounts
        )
        inbound: Any = IdleLink()
        self.part = self.contract.join(inbound)
        self.addCleanup(self.contract.stop)
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.observe)
        self.addCleanup(globalLogPublisher.removeObserver, self.observe)

    def observe(self, event: LogEvent) -> None:
        if str(event.get("log_namespace", "")).startswith(
            "amqproute.frontends.common.contract_enforcement"
        ):
            self.lines.append(formatEvent(event))

    def allowance(self) -> int:
        return self.contract.allowance(self.part, 0, 100)

    def shown(self) -> tuple[str, str, dict[str, int]]:
        row = self.contract.row()
        return row["state"], row["limiter"], row["at-bound-seconds"]

    def test_latest(self) -> None:
        """The bound that holds back now is shown, whatever was told of before."""
        self.contract.pay(10)
        self.allowance()
        self.assertEqual(self.contract.limiter, "messages-per-second")
        self.clock.advance(5)
        self.accounts.of(KEY).came(1000)
        self.assertEqual(self.allowance(), 0)
        self.clock.advance(3)
        self.assertEqual(self.shown(), ("held back", "spool", {"spool": 3}))

    def test_full(self) -> None:
        """A share of the store that is used up is a bound reached for as long as it is."""
        self.accounts.of(KEY).came(1000)
        self.assertEqual(self.allowance(), 0)
        for _ in range(5):
            self.clock.advance(QUIET_SECONDS)
            self.assertEqual(self.shown()[:2], ("held back", "spool"))
        self.assertEqual(self.shown()[2], {"spool": 5 * QUIET_SECONDS})
        self.assertEqual(len(self.lines), 1)
        self.accounts.of(KEY).gone(1000)
        self.clock.advance(QUIET_SECONDS)
        self.assertEqual(self.shown(), ("open", "", {}))
        self.assertIn("within its contract again (spool, after 300 s)", self.lines[1])

    def test_told_seldom(self) -> None:
        """Bounds that take turns are told of once in a while, and shown each time."""
        for _ in range(10):
            self.accounts.of(KEY).came(1000)
            self.allowance()
            self.assertEqual(self.contract.limiter, "spool")
            self.accounts.of(KEY).gone(1000)
            self.contract.pay(10)
            self.allowance()
            self.assertEqual(self.contract.limiter, "messages-per-second")
        self.assertEqual(len(self.lines), 1)

    def test_absent(self) -> None:
        """The use of the store by a holder is shown even before it has connected."""
        self.accounts.of(KEY).came(700)
        row = self.contract.terms.row(KEY, self.accounts.find(KEY))
        self.assertEqual((row["state"], row["spool"], row["spool-messages"]), ("unused", 700, 1))
        self.assertEqual(self.contract.terms.row(KEY, None)["spool"], 0)
