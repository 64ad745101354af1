# SPDX-License-Identifier: Apache-2.0
"""The number of destinations that strangers can create: bounded, shared, and returned."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import count
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.errors import ResourceLimitExceeded
from amqproute.relay.destination_quota import (
    OURSELVES,
    DestinationHolder,
    DestinationQuota,
    holder_of,
)
from amqproute.relay.relay import UNFOUND_PER_SECOND, UNUSED_SECONDS
from amqproute.relay.relay_terms import RelayBounds, RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin, Principal
from amqproute.wire.amqp10 import spec
from tests.relay.test_memory import Unresolvable
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import ANN, MemoryBroker, Network

BOB = Principal("user", "bob")
MOST = 40
OCTETS = 10_500
"""For each destination that waits, of what brokers and relays make."""
RETRY = RetrySchedule(1.0, 60.0)


class CensusCase(HouseTestCase):
    """A broker to which all the world is unresolvable."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.network.errors = Unresolvable("dns.refused")
        self.names = count()
        self.alpha = self.house()

    def house(self, most: int = MOST, retry: RetrySchedule = RETRY, **options: Any) -> MemoryBroker:
        """Build the broker."""
        terms = RelayTerms(retry, 10, 20.0, bounds=RelayBounds(most_destinations=most))
        return MemoryBroker(self.network, "alpha.example", node("q"), terms=terms, **options)

    def send(self, who: Principal, messages: int, **kind: Any) -> list[Any]:
        """Have a client send to this many new domains; return the outcomes."""
        client = self.alpha.client(who)
        link = client.sender(None, "anonymous", target=spec.Target())
        self.turn()
        for _ in range(messages):
            client.send(link, message(b"x", to=f"o@n{next(self.names)}.example", **kind))
            self.turn()
        self.assertEqual(len(client.updates), messages)
        return [state for _, state, _ in client.updates]

    def turn(self, times: int = 6) -> None:
        """Let what is due happen."""
        for _ in range(times):
            self.clock.advance(0.002)  # and the pace of first contacts

    def taken(self, outcomes: list[Any]) -> int:
        """Return how many were accepted; the others are over the bound, and say so."""
        refused = [each for each in outcomes if not isinstance(each, spec.Accepted)]
        for each in refused:
            self.assertEqual(str(each.error.condition), conditions.RESOURCE_LIMIT_EXCEEDED)
            self.assertIn("relay.max-destinations", each.error.description)
        return len(outcomes) - len(refused)

    @property
    def held(self) -> int:
        """The number of destinations."""
        relay = self.alpha.relay
        self.assertEqual(len(relay.destination_quota), len(relay.destinations))
        internal = [name for name in self.alpha.broker.internal if name.startswith("amqp$out/")]
        self.assertEqual(len(internal), len(relay.destinations))
        return len(relay.destinations)


class ShareTests(CensusCase):
    """Shares of the senders."""

    def test_one_sender(self) -> None:
        """One alone has half; what it sends beyond is refused, message by message."""
        outcomes = self.send(ANN, 30)
        self.assertEqual((self.taken(outcomes), self.held), (20, 20))

    def test_first_contact(self) -> None:
        """Beyond the bound nobody is asked about a name any more."""
        self.send(ANN, 20)
        self.network.lookups.clear()
        self.send(ANN, 5)
        asked = set(self.network.lookups)
        self.assertEqual(asked & {f"n{number}.example" for number in range(20, 25)}, set())

    def test_others(self) -> None:
        """One sender's use leaves places for the next, and for the broker's reports."""
        self.send(ANN, 30)
        self.assertEqual(self.taken(self.send(BOB, 30)), 10)
        self.alpha.relay.take_on_trust(NextHop("back.example", "back.example"))
        self.assertEqual(self.taken(self.send(ANN, 3)), 0)

    def test_known_destinations(self) -> None:
        """Destinations that there are take further messages, from anybody."""
        self.send(ANN, 20)
        client = self.alpha.client(ANN)
        link = client.sender("o@n3.example")
        self.turn()
        client.send(link, message(b"x"))
        self.turn()
        self.assertOutcomes(client, "Accepted")

    def test_links(self) -> None:
        """A link to an address makes no destination before its first message."""
        client = self.alpha.client(ANN)
        for number in range(100):
            client.sender(f"o@n{number}.example", f"l{number}")
            self.turn()
        self.assertEqual((client.detached, self.held), ({}, 0))

    def test_anonymous(self) -> None:
        """Those without a name are divided by address, whatever connections they make."""
        first = Origin(ANONYMOUS_PRINCIPAL, connection="192.0.2.1:4711")
        again = Origin(ANONYMOUS_PRINCIPAL, connection="192.0.2.1:4712")
        other = Origin(ANONYMOUS_PRINCIPAL, connection="[2001:db8::1]:4711")
        self.assertEqual(holder_of(first), holder_of(again))
        self.assertNotEqual(holder_of(first), holder_of(other))
        quota = DestinationQuota(self.clock.seconds, lambda: 40)
        for number in count():
            try:
                quota.check(holder_of(first))
            except ResourceLimitExceeded:
                break
            quota.add(f"n{number}", holder_of(first))
        self.assertEqual(len(quota), 10)
        quota.check(holder_of(other))

    def test_reload(self) -> None:
        """Another bound holds from the next message on."""
        self.send(ANN, 20)
        bounds = RelayBounds(most_destinations=80)
        terms = RelayTerms(RetrySchedule(1.0, 60.0), 10, 20.0, bounds=bounds)
        self.alpha.relay.reload(terms, 0, None)
        self.assertEqual(self.taken(self.send(ANN, 30)), 20)


class ReturnTests(CensusCase):
    """When destinations are given back."""

    def test_purged(self) -> None:
        """With its messages a destination goes: queue, timers, back-off."""
        self.send(ANN, 20)
        self.run_for(5)
        for destination in list(self.alpha.relay.destinations.values()):
            destination.purge()
        self.run_for(5)
        self.assertEqual((self.held, len(self.alpha.relay.destination_quota)), (0, 0))
        self.assertEqual(self.alpha.store.recovery().notes.get("destination", {}), {})
        self.assertEqual(self.taken(self.send(ANN, 20)), 20)

    def test_expired(self) -> None:
        """The same where messages end by themselves."""
        self.send(ANN, 20, ttl=3000)
        self.run_for(90)
        self.assertEqual(self.held, 0)

    def test_proved_absent(self) -> None:
        """With proof that the domain does not exist its messages end at once."""
        self.send(ANN, 20)
        self.network.errors = Unresolvable("dns.nxdomain", permanent=True)
        self.run_for(120)
        self.assertEqual(self.held, 0)

    def test_never_used(self) -> None:
        """A destination whose message was not kept is given back."""
        hop = NextHop("beta.example", "beta.example")
        self.successResultOf(self.alpha.relay.admit(hop))
        self.alpha.relay.target(hop, Origin(ANN))
        self.assertEqual(self.held, 1)
        self.run_for(UNUSED_SECONDS + 1)
        self.assertEqual(self.held, 0)

    def test_restart(self) -> None:
        """Holders of places outlast the process, and release them in the next one."""
        self.send(ANN, 20)
        self.run_for(10)
        self.alpha.crash()
        self.alpha = self.house(store=self.alpha.store)
        self.turn()
        self.assertEqual((self.held, self.taken(self.send(ANN, 5))), (20, 0))
        holders = {
            self.alpha.relay.destination_quota.holder(key) for key in self.alpha.relay.destinations
        }
        self.assertEqual(holders, {DestinationHolder(str(ANN))})
        for destination in list(self.alpha.relay.destinations.values()):
            destination.purge()
        self.run_for(5)
        self.assertEqual((self.held, self.taken(self.send(ANN, 5))), (0, 5))

    def test_restart_before_the_first_failure(self) -> None:
        """The holder is known even if nobody has been tried yet."""
        self.alpha.relay.stop_sending()
        self.send(ANN, 20)
        self.alpha.crash()
        self.alpha = self.house(store=self.alpha.store)
        holders = {
            self.alpha.relay.destination_quota.holder(key) for key in self.alpha.relay.destinations
        }
        self.assertEqual((self.held, holders), (20, {DestinationHolder(str(ANN))}))

    def test_notes(self) -> None:
        """With a destination its note in the store goes, or at the next start."""

        def notes() -> dict[str, bytes]:
            return self.alpha.store.recovery().notes.get("destination", {})

        hop = NextHop("beta.example", "beta.example")
        self.successResultOf(self.alpha.relay.admit(hop))
        self.alpha.relay.target(hop, Origin(ANN))
        self.turn()
        self.assertEqual(list(notes()), ["beta.example"])
        self.run_for(UNUSED_SECONDS + 1)
        self.assertEqual(notes(), {})
        self.successResultOf(self.alpha.relay.admit(hop))
        self.alpha.relay.target(hop, Origin(ANN))
        self.turn()
        self.alpha.crash()
        self.alpha = self.house(store=self.alpha.store)
        self.turn()
        self.assertEqual((self.held, notes()), (0, {}))


class IdleTests(CensusCase):
    """The cost of waiting destinations."""

    def test_memory(self) -> None:
        """A destination takes few kB with its queue, its timers and its message."""
        self.alpha.crash()
        self.alpha = self.house(1000)
        self.send(ANN, 10)
        self.run_for(20)
        destinations = 100
        gc.collect()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.send(ANN, destinations)
        self.run_for(30, step=0.2)
        gc.collect()
        taken = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, f"*/amqproute/{layer}/*") for layer in ("broker", "relay")]
        )
        octets = sum(each.size for each in taken.statistics("filename"))
        self.assertLess(octets / destinations, OCTETS)

    def test_attempts(self) -> None:
        """The more there are that the DNS does not know, the more seldom each is tried."""
        self.alpha.crash()
        self.alpha = self.house(600, retry=RetrySchedule(1.0, 10.0))
        self.send(ANN, 300)
        self.run_for(60, step=0.02)
        self.network.lookups.clear()
        self.run_for(60, step=0.02)
        attempts = len(self.network.lookups)
        self.assertLess(attempts, 1.3 * UNFOUND_PER_SECOND * 60)
        self.assertGreater(attempts, 0.5 * UNFOUND_PER_SECOND * 60)


class TellTests(SynchronousTestCase):
    """Rows for operators."""

    def test_row(self) -> None:
        """A sender at its share is among the watermarks, until it has places again."""
        clock = Clock()
        quota = DestinationQuota(clock.seconds, lambda: 2)
        ann = DestinationHolder("user:ann")
        quota.check(ann)
        quota.add("a", ann)
        self.assertEqual((quota.row()["state"], quota.row()["reason"]), ("open", ""))
        for _ in range(3):
            self.assertRaises(ResourceLimitExceeded, quota.check, ann)
        row = quota.row()
        self.assertEqual((row["state"], row["level"], row["limit"]), ("closed", 1, 2))
        self.assertEqual(row["reason"], "no further destinations for user:ann")
        self.assertEqual(row["refused"], 3)
        quota.check(OURSELVES)
        quota.remove("a")
        quota.check(ann)
        self.assertEqual(quota.row()["state"], "open")
