# SPDX-License-Identifier: Apache-2.0
"""Look-ups of new domains at a limited rate, with turns for each sender."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.relay.destination_quota import DestinationHolder
from amqproute.relay.lookup_scheduler import BURST, PER_SECOND, LookupScheduler
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from tests.support.asserts import HouseTestCase
from tests.support.memory_broker import ANN, MemoryBroker, Network

STRANGER = DestinationHolder("anonymous", "192.0.2.1")
OTHER = DestinationHolder("anonymous", "198.51.100.1")
USER = DestinationHolder("user:ann")


class LineTests(SynchronousTestCase):
    """The line alone."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.contacts = LookupScheduler(self.clock)
        self.begun: list[str] = []

    def begin(self, name: str, *, is_new: bool = True) -> Callable[[], bool]:
        """Return what notes that it was called."""

        def begin() -> bool:
            self.begun.append(name)
            return is_new

        return begin

    def fill(self, holder: DestinationHolder = STRANGER, count: int = 1000) -> None:
        """Have somebody ask about many domains; forget what began at once."""
        for number in range(count):
            self.contacts.ask(holder, self.begin(f"{holder.member}{number}"))
        self.begun.clear()

    def test_lone(self) -> None:
        """An occasional look-up does not wait."""
        for number in range(50):
            self.contacts.ask(USER, self.begin(str(number)))
            self.assertEqual(len(self.begun), number + 1)
            self.clock.advance(1 / PER_SECOND)

    def test_pace(self) -> None:
        """So many at once, this many a second."""
        for number in range(1000):
            self.contacts.ask(STRANGER, self.begin(str(number)))
        self.assertLessEqual(len(self.begun), BURST + 1)
        before = len(self.begun)
        self.clock.pump([0.001] * 2000)
        self.assertAlmostEqual(len(self.begun) - before, 2 * PER_SECOND, delta=2)
        self.clock.pump([0.01] * 2000)
        self.assertEqual(self.begun, [str(number) for number in range(1000)])
        self.assertEqual((len(self.contacts), self.clock.getDelayedCalls()), (0, []))

    def test_turns(self) -> None:
        """However many one asks about, the next sender is the next."""
        self.fill()
        self.contacts.ask(USER, self.begin("user"))
        self.contacts.ask(OTHER, self.begin("other"))
        self.clock.pump([1 / PER_SECOND] * 4)
        self.assertIn("user", self.begun)
        self.assertIn("other", self.begun)

    def test_begun_meanwhile(self) -> None:
        """A look-up in progress takes no turn."""
        self.fill()
        for _ in range(100):
            self.contacts.ask(USER, self.begin("again", is_new=False))
        self.contacts.ask(USER, self.begin("new"))
        self.clock.pump([1 / PER_SECOND] * 4)
        self.assertIn("new", self.begun)

    def test_stop(self) -> None:
        self.fill()
        self.contacts.stop()
        self.clock.advance(60)
        self.assertEqual((self.begun, len(self.contacts)), ([], 0))


class AdmissionTests(HouseTestCase):
    """The line in the relay."""

    def test_the_same_domain(self) -> None:
        """A domain that stands far behind in a stranger's line comes in a user's turn."""
        network = Network(self.clock)
        relay = MemoryBroker(network, "alpha.example").relay
        stranger = Origin(ANONYMOUS_PRINCIPAL, connection="192.0.2.1:4711")
        domains = [f"n{number}.example" for number in range(1000)]
        for domain in domains:
            relay.admit(NextHop(domain, domain), stranger)
        last = NextHop(domains[-1], domains[-1])
        admitted = relay.admit(last, Origin(ANN))
        self.run_for(0.1, step=0.01)
        self.successResultOf(admitted)
        self.assertEqual(network.lookups.count(domains[-1]), 1)
        self.assertLess(len(network.lookups), BURST + 0.2 * PER_SECOND)
