# SPDX-License-Identifier: Apache-2.0
"""Memory left by failed attempts, and by refused links and messages."""

from __future__ import annotations

from itertools import count
from typing import Any

from amqproute.auth.policy import Rule, Verb
from amqproute.errors import ResolveError
from amqproute.relay.relay_terms import RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network
from tests.support.objects import PART, left_by

BETA = "beta.example"
MEBIBYTE = 1024 * 1024


class Unresolvable(dict[str, ResolveError]):
    """Every domain fails, each time with an error of its own."""

    def __init__(self, code: str, *, permanent: bool = False) -> None:
        super().__init__()
        self._code = code
        self._permanent = permanent

    def __contains__(self, domain: object) -> bool:
        return True

    def __getitem__(self, domain: str) -> ResolveError:
        return ResolveError(self._code, f"{domain}: {self._code}", permanent=self._permanent)


class MemoryCase(HouseTestCase):
    """A broker, and nobody to talk to."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        terms = RelayTerms(RetrySchedule(1.0, 60.0), 10, 20.0)
        self.alpha = MemoryBroker(self.network, "alpha.example", node("q"), terms=terms)

    def turn(self, times: int = 6) -> None:
        """Let what is due happen."""
        for _ in range(times):
            self.clock.advance(0)


class AttemptTests(MemoryCase):
    """A destination whose attempts fail, again and again."""

    def put(self) -> Any:
        """Have a message wait for beta; return the destination."""
        queue = self.alpha.relay.take_on_trust(NextHop(BETA, BETA))
        batch = self.alpha.broker.begin()
        queue.put(message(b"1", to=f"o@{BETA}"), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()
        self.turn()
        return self.alpha.relay.destinations[BETA]

    def attempt(self) -> None:
        """Let the next attempt come, and fail."""
        self.clock.advance(100)
        self.turn(3)
        self.network.tried.clear()
        self.network.lookups.clear()

    def check(self, times: int, warm_up: int = 20) -> None:
        """Attempts leave nothing behind."""
        destination = self.put()
        left = left_by(self.attempt, times, warm_up=warm_up)
        self.assertGreaterEqual(destination.failures, times // 2)
        self.assertEqual(left.cyclic, 0, left.kinds)
        # Each commit of the back-off is remembered by the store double.
        self.assertLess(left.kept, 5 * times + 200)
        self.assertLess(left.octets, 16 * MEBIBYTE)

    def test_refused(self) -> None:
        """There is no listener."""
        self.network.dead.add(BETA)
        self.check(300)

    def test_unresolvable(self) -> None:
        """Its name servers refuse."""
        self.network.errors = Unresolvable("dns.refused")
        self.check(300)

    def test_silence(self) -> None:
        """Nothing comes back."""
        self.network.holes.add(BETA)
        self.check(100)

    def test_no_such_node(self) -> None:
        """The peer refuses the link."""
        MemoryBroker(self.network, BETA, rules=[Rule.of(who="*", node="*", deny=list(Verb))])

        tried = []

        def attempt() -> None:
            self.put()
            for _ in range(8):
                self.clock.advance(20)
                self.turn(1)
            tried.extend(self.network.tried)
            self.network.tried.clear()
            self.network.wires.clear()

        left = left_by(attempt, 40)
        self.assertGreaterEqual(len(tried), 60)
        self.assertLess(left.cyclic, 40 * 300, left.kinds)
        self.assertNotIn("traceback", dict(left.kinds))


class RefusalTests(MemoryCase):
    """A client that is refused what it asks for."""

    def setUp(self) -> None:
        super().setUp()
        self.names = count()
        self.client = self.alpha.client()
        self.anonymous = self.client.sender(None, "anonymous", target=spec.Target())
        self.turn()

    def attach(self) -> None:
        """Attach to a node that there is not, on 20 links."""
        for _ in range(20):
            self.client.sender("nowhere", f"l{next(self.names)}")
        self.turn(4)
        self.assertEqual(len(self.client.detached), 20)
        self.client.detached.clear()
        self.client.events_seen.clear()

    def test_many_failed_attaches(self) -> None:
        """Objects and memory stay flat over thousands of failed attaches."""
        left = left_by(self.attach, 1_000 // PART)
        self.assertEqual(left.cyclic, 0, left.kinds)
        self.assertLess(left.kept, 1000 // PART)
        self.assertLess(left.octets, 16 * MEBIBYTE)

    def refused(self, to: str) -> None:
        """Send one message that is refused."""
        self.clock.advance(0.01)  # the pace of first contacts
        self.client.send(self.anonymous, message(b"x", to=to))
        self.turn(6)
        self.assertEqual(len(self.client.updates), 1)
        self.client.updates.clear()
        self.client.events_seen.clear()
        self.network.lookups.clear()

    def test_no_node(self) -> None:
        """Messages to nodes that there are not."""
        left = left_by(lambda: self.refused(f"n{next(self.names)}@alpha.example"), 300)
        self.assertEqual(left.cyclic, 0, left.kinds)

    def test_no_domain(self) -> None:
        """Messages to domains that there are not."""
        self.network.errors = Unresolvable("dns.nxdomain", permanent=True)
        left = left_by(lambda: self.refused(f"o@n{next(self.names)}.example"), 300)
        self.assertEqual(left.cyclic, 0, left.kinds)
