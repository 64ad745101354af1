# SPDX-License-Identifier: Apache-2.0
"""The scheduler of destinations among whole brokers: fairness, death, waking, rates, moves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from twisted.internet.task import Clock

from amqproute import conditions
from amqproute.broker.entry_list import LOAD_MESSAGES
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.priority_queues import line_key
from amqproute.broker.queue import Queue
from amqproute.broker.token_bucket import Rate
from amqproute.errors import ResolveError, ResourceLimitExceeded
from amqproute.frontends.amqp10.receiver_link import ReceiverLink
from amqproute.message import Message
from amqproute.relay import send_budget
from amqproute.relay.destination_note import NOTE, DestinationNote
from amqproute.relay.destination_row import row_of
from amqproute.relay.lifecycle import CONTACT_SECONDS, DestinationState
from amqproute.relay.relay_terms import RelayBounds, RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.relay.session_monitor import SHORTEST_TTL
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    Candidate,
    NextHop,
    Origin,
    Principal,
    Resolution,
    TransportSecurity,
)
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network

BETA = "beta.example"


def peer(domain: str) -> Principal:
    """Return the principal of a peer."""
    return Principal("peer", domain, frozenset({domain}))


class SchedulerCase(HouseTestCase):
    """Alpha, and others when a test wants them."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = self.house("alpha.example", node("dead"))

    def house(self, domain: str, *nodes: Any, **options: Any) -> MemoryBroker:
        """Build a broker."""
        terms = RelayTerms(RetrySchedule(1.0, 60.0), 100, 20.0, settle_seconds=40.0)
        for name in ("rate", "window", "window_bytes", "bounds", "settle_seconds"):
            if name in options:
                setattr(terms, name, options.pop(name))
        house = MemoryBroker(self.network, domain, *nodes, terms=terms, **options)
        house.relay.dead_letter_name = "dead"
        return house

    def beta(self, domain: str = BETA, **options: Any) -> MemoryBroker:
        """Put a peer on the network."""
        return self.house(domain, node("orders", capacity=options.pop("capacity", 0)), **options)

    def put(self, *bodies: bytes, to: str = BETA, node: str = "orders", **kind: Any) -> None:
        """Put messages on the way to a peer."""
        queue = self.alpha.relay.take_on_trust(NextHop(to, to))
        batch = self.alpha.broker.begin()
        for body in bodies:
            queue.put(message(body, to=f"{node}@{to}", **kind), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()

    def to(self, domain: str = BETA) -> Any:
        """The destination of a peer."""
        return self.alpha.relay.destinations[domain]

    def restart(self, **options: Any) -> None:
        """Crash alpha and build it again over its store."""
        self.alpha.crash()
        self.alpha = self.house("alpha.example", node("dead"), store=self.alpha.store, **options)


class RetryAfterTests(SchedulerCase):
    """A peer that says when to come back; its word counts if it has proved who it is."""

    def refusing(self, retry_after: Any, level: str = "authenticated") -> MemoryBroker:
        """Put a peer on the network that takes no link."""
        beta = self.beta()
        self.network.levels[BETA] = level

        def refuse(*_: Any) -> Any:
            raise ResourceLimitExceeded("enough", info={"retry-after": retry_after})

        beta.amqp10.termini.target = refuse  # type: ignore[method-assign]
        return beta

    def attempts_in(self, seconds: int) -> int:
        before = self.network.connects
        self.run_for(seconds)
        return self.network.connects - before

    def test_destination(self) -> None:
        """The destination waits as long, and not longer, though it has failed before."""
        self.refusing(20)
        self.put(b"1")
        self.assertEqual(self.attempts_in(19), 1)
        self.assertEqual(self.attempts_in(5), 1)
        self.assertIn("enough", self.to().last_error)
        for _ in range(5):
            self.assertEqual(self.attempts_in(24), 1)

    def test_bounds(self) -> None:
        """No sooner than after a first failure, no later than after many; junk does not count."""
        for value, most, fewest in ((0.001, 20, 10), (10**6, 1, 1), (-5, 6, 4), ("20", 6, 4),
                                    (float("nan"), 6, 4), (True, 6, 4)):  # fmt: skip
            self.clock = Clock()
            self.network = Network(self.clock)
            self.alpha = self.house("alpha.example", node("dead"))
            self.refusing(value)
            self.put(b"1")
            attempts = self.attempts_in(20)
            self.assertTrue(fewest <= attempts <= most, (value, attempts))
            self.run_for(72)
            if value == 10**6:
                self.assertEqual(self.network.connects, 2)

    def test_unproved(self) -> None:
        """A client that has not proved to be the peer does not slow its destination down."""
        self.refusing(60, "tls")
        self.put(b"1")
        self.assertGreater(self.attempts_in(30), 3)

    def test_message(self) -> None:
        """A message that is refused for now waits as long; the others pass."""
        beta = self.beta()
        self.network.levels[BETA] = "authenticated"
        seen: list[float] = []
        queue = beta.broker.nodes["orders"]
        put = Queue.put

        def taking(node: Queue, message: Message, batch: Any, origin: Any) -> None:
            if node is queue and message.body_values()[0] == b"late":
                seen.append(self.clock.seconds())
                if len(seen) < 3:
                    raise ResourceLimitExceeded("not now", info={"retry-after": 20})
            put(node, message, batch, origin)

        self.patch(Queue, "put", taking)
        self.put(b"late", b"1", b"2")
        self.run_for(60)
        self.assertEqual(beta.bodies("orders"), [b"1", b"2", b"late"])
        for before, after in pairwise(seen):
            self.assertTrue(20 <= after - before <= 25, seen)


class DeathTests(SchedulerCase):
    """Attempts kill a destination, messages never do."""

    def test_dies_and_comes_back(self) -> None:
        """After some failed attempts it is dead; with the first message taken it is not."""
        self.put(*[b"%d" % number for number in range(200)])
        self.run_for(2)
        self.assertFalse(self.to().is_dead)
        self.run_for(10)
        self.assertTrue(self.to().is_dead)
        self.assertTrue(row_of(self.to())["dead"])
        beta = self.beta()
        self.run_for(70)
        self.assertEqual(len(beta.bodies("orders")), 200)
        self.assertFalse(self.alpha.relay.destinations and self.to().is_dead)

    def test_backlog_of_the_dead_is_on_the_disk(self) -> None:
        """Messages for a dead destination stay out of memory, and are sent in order later."""
        self.put(b"000")
        self.run_for(20)
        self.assertTrue(self.to().is_dead)
        bodies = [b"%04d" % number for number in range(1, 3000)]
        for body in bodies:
            self.put(body)
        self.run_now()
        self.assertLessEqual(self.to().queue.resident, 100 + LOAD_MESSAGES)
        self.assertEqual(self.to().queue.depth, 3000)
        beta = self.beta()
        self.run_for(100)
        self.assertEqual(beta.bodies("orders"), [b"000", *bodies])

    def test_rejections_do_not_count(self) -> None:
        """However many messages a peer rejects, the destination is as well as before."""
        beta = self.beta()
        self.put(*[b"%d" % number for number in range(300)], node="nowhere")
        self.put(b"good")
        self.run_for(5)
        self.assertEqual((self.to().failures, self.to().window.cohorts), (0, 0.0))
        self.assertEqual(self.to().tally.rejected, 300)
        self.assertEqual(beta.bodies("orders"), [b"good"])

    def test_log(self) -> None:
        """The log is told what changes, not every attempt."""
        told: list[str] = []
        self.put(b"1")
        backoff = self.to().backoff

        class Log:
            def info(self, text: str, **fields: Any) -> None:
                told.append(f"info {fields['what']} {fields['error'].partition(':')[0]}")

            def warn(self, text: str, **fields: Any) -> None:
                told.append(f"warn {fields['what']} {fields['error'].partition(':')[0]}")

        backoff.log = Log()
        self.run_for(600)
        self.assertGreater(backoff.failures, 10)
        self.network.errors[BETA] = ResolveError("dns.timeout", "silence", permanent=False)
        self.run_for(600)
        self.assertEqual(
            told,
            [
                "info cannot be reached connect.refused",
                "warn is dead connect.refused",
                "info is dead dns.timeout",
            ],
        )


class WakeTests(SchedulerCase):
    """A peer that calls in is up (T-37)."""

    def dead(self) -> None:
        """Let beta be dead for long."""
        self.put(b"1")
        self.run_for(300)
        self.assertEqual(self.to().state, DestinationState.WAITING)

    def test_at_once(self) -> None:
        """The first message is there within seconds; the DNS is asked again."""
        self.dead()
        beta = self.beta()
        self.alpha.client(peer(BETA))
        self.run_for(5)
        self.assertEqual(beta.depth("orders"), 1)
        self.assertEqual(self.network.forgotten, [BETA])

    def test_hanging_attempt(self) -> None:
        """An attempt that hangs is given up for it."""
        self.network.silent.add(BETA)
        self.put(b"1")
        self.run_for(10)
        self.assertEqual(self.to().state, DestinationState.CONNECTING)
        self.network.silent.clear()
        beta = self.beta()
        self.alpha.client(peer(BETA))
        self.run_for(5)
        self.assertEqual(beta.depth("orders"), 1)

    def test_costs_nothing(self) -> None:
        """A peer that connects often and cannot be reached is neither flooded nor punished."""
        self.dead()
        while self.to().life.retry_at - self.clock.seconds() < 30:
            self.run_for(1)
        due, failures = self.to().backoff.next_attempt_ms, self.to().failures
        before = self.network.connects
        for _ in range(100):
            self.alpha.client(peer(BETA))
            self.run_for(0.1, 0.1)
        self.assertLessEqual(self.network.connects - before, 1 + 10 / CONTACT_SECONDS)
        self.assertGreater(self.network.connects - before, 3)
        self.assertEqual(self.to().failures, failures)
        self.assertLess(abs(self.to().backoff.next_attempt_ms - due), 100)
        self.assertEqual(self.to().state, DestinationState.WAITING)
        self.run_for(70)
        self.assertEqual(self.to().failures, failures + 1)

    def test_every_way_to_it(self) -> None:
        """A static route, and a link to one node, are ways to the same peer."""
        hops = [
            NextHop("gate.example:5671", BETA, f"amqps://{BETA}"),
            NextHop(f"{BETA}/q@{BETA}", BETA, None, f"q@{BETA}"),
            NextHop("other.example", "other.example", f"amqps://{BETA}", names=(BETA,)),
            NextHop("third.example", "third.example"),
        ]
        for hop in hops:
            queue = self.alpha.relay.take_on_trust(hop)
            batch = self.alpha.broker.begin()
            queue.put(message(b"1", to=f"orders@{BETA}"), batch, Origin(ANONYMOUS_PRINCIPAL))
            batch.commit()
        self.run_for(300)
        self.beta()
        self.alpha.client(peer(BETA))
        self.run_for(1)
        found = [self.to(hop.key).tally.connections for hop in hops]
        self.assertEqual(found[0:1] + found[2:], [1, 1, 0])
        self.assertEqual(self.network.forgotten.count("third.example"), 0)

    def test_held_stays_held(self) -> None:
        """An operator's word counts more."""
        self.dead()
        self.to().hold("no")
        self.beta()
        self.alpha.client(peer(BETA))
        self.run_for(300)
        self.assertEqual(self.alpha.depth(BETA), 1)

    def test_restart_is_no_storm(self) -> None:
        """Destinations with a backlog begin one after the other, in any second only this many."""
        for number in range(60):
            self.put(b"1", to=f"d{number}.example")
        self.run_now()
        self.restart(bounds=RelayBounds(connects_per_second=10.0))
        times = []
        before = self.network.connects
        for _ in range(200):
            self.run_for(0.05, 0.05)
            times += [self.clock.seconds()] * (self.network.connects - before - len(times))
        self.assertGreaterEqual(len(set(times)), 60)
        for index, when in enumerate(times):
            within = [each for each in times[index:] if each < when + 0.999]
            self.assertLessEqual(len(within), 11)


class RateTests(SchedulerCase):
    """No faster than an operator allows."""

    def deliver(self, rate: Rate, count: int, size: int, seconds: int) -> list[int]:
        """Send messages; return how many are there after each second."""
        self.alpha.crash()
        self.alpha = self.house(
            "alpha.example", node("dead"), rate=lambda hop: rate if hop.key == BETA else Rate()
        )
        beta = self.beta()
        self.put(*[b"%05d" % number + bytes(size) for number in range(count)])
        found = []
        for _ in range(seconds):
            self.run_for(1, 0.05)
            found.append(beta.depth("orders"))
        return found

    def test_messages(self) -> None:
        """Messages in a second."""
        found = self.deliver(Rate(messages=20), 100, 10, 6)
        for second, count in enumerate(found, 1):
            self.assertTrue(min(100, 20 * second) <= count <= min(100, 20 * second + 21), found)
        self.assertEqual(row_of(self.to())["limiter"], "")

    def test_octets(self) -> None:
        """Octets in a second."""
        found = self.deliver(Rate(octets=10_000), 60, 1000, 8)
        for second, count in enumerate(found, 1):
            self.assertLessEqual(count, min(60, 10 * second + 11), found)
        self.assertEqual(found[-1], 60)

    def test_reload(self) -> None:
        """A changed rate holds from then on; others are not slowed down."""
        self.deliver(Rate(messages=1), 30, 10, 2)
        self.assertEqual(row_of(self.to())["limiter"], "messages-per-second")
        terms = RelayTerms(RetrySchedule(1.0, 60.0), 100, 20.0)
        self.alpha.relay.reload(terms, 0, "dead")
        self.run_for(3)
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_reload_keeps_the_part(self) -> None:
        """A reload does not give a destination more memory than there is for it now."""
        relay = self.alpha.relay
        relay.allow_part(4096)
        relay.reload(RelayTerms(window=7), 0, "dead")
        self.assertEqual((relay._terms.window, relay._terms.part_bytes), (7, 4096))


class FairnessTests(SchedulerCase):
    """One backlog never delays another destination."""

    def test_turns(self) -> None:
        """A destination gives the reactor back after this many messages."""
        self.patch(send_budget, "TURN_MESSAGES", 10)
        self.beta()
        self.put(*[b"%d" % number for number in range(500)])
        most = 0
        before = 0
        for _ in range(3000):
            self.step()
            link = self.to().session.link if self.to().session is not None else None
            now = link.deliveries if link is not None else 0
            most = max(most, now - before)
            before = now
        self.run_now()
        self.assertEqual((most, self.alpha.depth(BETA)), (10, 0))

    def test_in_between(self) -> None:
        """A lone message to one peer passes a backlog to another."""
        self.patch(send_budget, "TURN_MESSAGES", 10)
        self.beta()
        gamma = self.beta("gamma.example")
        self.put(b"warm", to="gamma.example")
        self.put(*[b"%d" % number for number in range(2000)])
        self.run_now()
        self.put(*[b"%d" % number for number in range(2000)])
        self.put(b"lone", to="gamma.example")
        for _ in range(1000):
            if gamma.depth("orders") == 2:
                break
            self.step()
        self.assertEqual(gamma.depth("orders"), 2)
        self.assertGreater(self.alpha.depth(BETA), 1000)

    def test_window_of_octets(self) -> None:
        """Large messages without an outcome are bounded by their octets, and one always goes."""
        self.alpha.crash()
        self.alpha = self.house("alpha.example", node("dead"), window_bytes=100_000)
        beta = self.beta()
        self.put(*[bytes([number]) * 30_000 for number in range(30)])
        self.put(bytes(150_000))
        worst = 0
        for _ in range(4000):
            self.step()
            worst = max(worst, self.to()._share.octets)
        self.run_now()
        self.assertLess(worst, 100_000 + 151_000)
        self.assertEqual(len(beta.bodies("orders")), 31)
        self.assertEqual(self.to()._share.octets, 0)

    def test_priority(self) -> None:
        """Urgent messages overtake in the relay queue, and keep their order."""
        beta = self.beta(capacity=0)
        self.alpha.relay.take_on_trust(NextHop(BETA, BETA))
        self.to().hold("wait")
        self.put(b"1", b"2", b"3")
        self.put(b"high 1", b"high 2", priority=9)
        self.put(b"low", priority=0)
        self.run_now()
        self.to().unhold()
        self.run_now()
        rows = [row for level in (0, 4, 9) for row in beta.store.rows(line_key("orders", level))]
        rows.sort(key=lambda row: int(row.id))
        self.assertEqual(
            [Message(row.encoded).body_values()[0] for row in rows],
            [b"high 1", b"high 2", b"1", b"2", b"3", b"low"],
        )


class NeighborTests(SchedulerCase):
    """Dead, silent and slow peers cost the others nothing."""

    COUNT = 20

    def latencies(self, are_ill: bool) -> list[float]:
        """Send to many for a while; return how long each message to the healthy ones took."""
        self.clock = Clock()
        self.network = Network(self.clock)
        self.alpha = self.house("alpha.example", node("dead"))
        names = [f"d{number:02}.example" for number in range(self.COUNT)]
        houses = {name: self.beta(name) for name in names}
        if are_ill:
            self.network.dead.add(names[0])
            self.network.holes.add(names[1])
            houses[names[2]].broker.nodes["orders"].limits = QueueLimits(capacity=3)
        healthy = [houses[name] for name in names[3:]]
        seen = dict.fromkeys(names, 0)
        begun: list[float] = []
        took = []
        for _ in range(120):
            begun.append(self.clock.seconds())
            for name in names:
                self.put(*[b"x"] * (20 if name in names[:3] else 1), to=name)
            for _ in range(10):
                self.clock.advance(0.05)
                for house in healthy:
                    there = house.depth("orders")
                    for number in range(seen[house.domain], there):
                        took.append(self.clock.seconds() - begun[number])
                    seen[house.domain] = there
        self.assertEqual(len(took), 120 * len(healthy))
        return sorted(took)

    def test_neighbors(self) -> None:
        """One dead, one black hole and one slow: the others notice nothing."""
        well = self.latencies(False)
        ill = self.latencies(True)
        at = int(0.99 * len(well))
        self.assertLessEqual(ill[at], well[at] * 1.1)
        dead = self.alpha.relay.destinations["d00.example"]
        self.assertEqual(self.network.tried.count("d00.example"), dead.failures)
        self.assertLess(dead.failures, 9)
        self.assertGreater(dead.queue.depth, 2000)
        self.assertLess(self.network.tried.count("d01.example"), 3)


class StuckTests(SchedulerCase):
    """A peer that takes messages and says nothing."""

    def test_made_again(self) -> None:
        """The connection is made again, and the receipts keep each message single."""
        beta = self.beta()
        committed = ReceiverLink.committed
        silent = [True]

        def mute(inbound: Any, deliveries: Any) -> None:
            if not silent[0]:
                committed(inbound, deliveries)

        self.patch(ReceiverLink, "committed", mute)
        self.put(b"1", b"2", b"3")
        self.run_for(30)
        self.assertEqual((beta.depth("orders"), self.to().in_flight), (3, 3))
        self.run_for(30)
        self.assertEqual((self.to().tally.stuck, len(self.network.wires)), (1, 2))
        silent[0] = False
        self.run_for(120)
        self.assertEqual(beta.bodies("orders"), [b"1", b"2", b"3"])
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_slow_is_not_stuck(self) -> None:
        """Outcomes that come late but come keep the connection."""
        beta = self.beta(capacity=5)
        self.put(*[b"%d" % number for number in range(50)])
        taker = beta.client()
        taker.receiver("orders", 1000)
        for _ in range(60):
            self.run_for(5)
            waiting = [each for each in taker.deliveries if not each.settled]
            if waiting:
                taker.settle(waiting[:1], spec.Accepted())
        self.assertEqual((self.to().tally.stuck, len(self.network.wires)), (0, 1))


class MoveTests(SchedulerCase):
    """Connections follow the DNS."""

    def setUp(self) -> None:
        super().setUp()
        self.hosts = {"one.example": ("192.0.2.1",)}
        self.network.resolve = self.resolve  # type: ignore[method-assign]
        self.asked = 0

    async def resolve(self, domain: str) -> Resolution:
        """Name the hosts as they are now."""
        self.asked += 1
        if not self.hosts:
            raise ResolveError("dns.servfail", "broken", permanent=False)
        candidates = tuple(
            Candidate(host, 5671, TransportSecurity.IMPLICIT, addresses, 0, 0, "srv")
            for host, addresses in self.hosts.items()
        )
        return Resolution(domain, candidates, ("asked",), 10.0, False, False)

    def keep_busy(self, seconds: float, house: Callable[[], MemoryBroker]) -> None:
        """Send a message now and then."""
        for number in range(int(seconds / 5)):
            batch = self.alpha.broker.begin()
            queue = self.alpha.relay.take_on_trust(NextHop(BETA, BETA))
            queue.put(
                message(b"%d" % number, to=f"orders@{house().domain}"),
                batch,
                Origin(ANONYMOUS_PRINCIPAL),
            )
            batch.commit()
            self.run_for(5)

    def test_other_host(self) -> None:
        """When the records name another host the link goes there; it costs no failure."""
        one, two = self.beta("one.example"), self.beta("two.example")
        self.keep_busy(60, lambda: one)
        self.assertEqual(len(self.network.wires), 1)
        self.hosts = {"two.example": ("192.0.2.2",)}
        self.keep_busy(SHORTEST_TTL + 5, lambda: one)
        self.assertEqual(self.to().remote_id, "ct-two.example")
        self.keep_busy(20, lambda: two)
        self.assertEqual((self.to().tally.moves, self.to().failures), (1, 0))
        self.assertEqual(two.depth("orders"), 4)
        self.assertEqual(len(one.shared.connections), 0)

    def test_other_address(self) -> None:
        """The same host elsewhere is another place."""
        one = self.beta("one.example")
        self.keep_busy(40, lambda: one)
        self.hosts = {"one.example": ("192.0.2.99",)}
        self.keep_busy(40, lambda: one)
        self.assertEqual((self.to().tally.moves, len(self.network.wires)), (1, 2))

    def test_waits_for_outcomes(self) -> None:
        """Deliveries in flight are finished first; no new ones are sent there."""
        one = self.beta("one.example")
        self.beta("two.example")
        committed = ReceiverLink.committed
        held: list[tuple[Any, Any]] = []
        self.patch(ReceiverLink, "committed", lambda inbound, given: held.append((inbound, given)))
        self.keep_busy(20, lambda: one)
        self.hosts = {"two.example": ("192.0.2.2",)}
        self.keep_busy(20, lambda: one)
        count = self.to().in_flight
        self.assertEqual(self.to().remote_id, "ct-one.example")
        self.assertGreater(count, 4)
        self.assertGreater(self.to().queue.available, 0)
        for inbound, given in held:
            committed(inbound, given)
            inbound._connection.flush()
        self.run_for(1)
        self.assertEqual(self.to().remote_id, "ct-two.example")
        self.assertEqual(one.depth("orders"), count)

    def test_more_hosts(self) -> None:
        """As long as the place is among those named, nothing happens; nor when the DNS fails."""
        one = self.beta("one.example")
        self.keep_busy(40, lambda: one)
        self.hosts = {"zero.example": ("192.0.2.3",), "one.example": ("192.0.2.1", "192.0.2.9")}
        self.keep_busy(40, lambda: one)
        asked = self.asked
        self.hosts = {}
        self.keep_busy(100, lambda: one)
        self.assertGreater(self.asked, asked + 1)
        self.assertEqual((len(self.network.wires), self.to().failures), (1, 0))

    def test_lost_host_is_tried_last(self) -> None:
        """After a lost connection the other hosts come first."""
        self.hosts["two.example"] = ("192.0.2.2",)
        one, two = self.beta("one.example"), self.beta("two.example")
        self.patch(ReceiverLink, "committed", lambda inbound, given: None)
        self.keep_busy(5, lambda: one)
        self.network.wires[0].cut()
        self.run_for(3)
        self.assertEqual(self.to().remote_id, "ct-two.example")
        self.assertEqual(two.domain, "two.example")


class NoteTests(SchedulerCase):
    """Persisted state."""

    def test_round_trip(self) -> None:
        """A note is read as it was written."""
        for note in (DestinationNote(), DestinationNote(7, 123, "dns.timeout: x", ("a", "b"))):
            self.assertEqual(DestinationNote.decode(note.encode()), note)

    def test_death_survives(self) -> None:
        """A restart knows who is dead, and for how long nobody tries."""
        self.put(b"1")
        self.run_for(100)
        failures, connects = self.to().failures, self.network.connects
        self.restart()
        self.run_for(3)
        self.assertTrue(self.to().is_dead)
        self.assertEqual(self.to().failures, failures)
        self.assertEqual(self.network.connects, connects)
        self.assertLessEqual(self.to().queue.limits.resident_messages, 100)
        self.assertIn(BETA, self.alpha.store.notes[NOTE])
        self.alpha.relay.reload(RelayTerms(RetrySchedule(1.0, 60.0), 50, dead_after=100), 0, None)
        self.assertEqual(self.to().queue.limits, QueueLimits())


class ForeignPeer:
    """A broker of another make that keeps what is unsettled on a lost link (part 2 §2.6.13).

    Attributes:
        taken: bodies, each time one is accepted.
        kept: tag to what it thinks of it.
    """

    def __init__(self, house: MemoryBroker) -> None:
        self.house = house
        self.taken: list[bytes] = []
        self.kept: dict[bytes, Any] = {}
        self.offered: list[Any] = []
        self.resumed: list[tuple[bytes, Any, bool]] = []
        self.is_mute = True
        self.is_incomplete = False
        self.refuses: str | None = None
        accept = house.accept

        def intercept(principal: Principal, **changes: Any) -> Any:
            engine, frontend = accept(principal, **changes)
            frontend.events = lambda given: self.events(engine, given)
            return engine, frontend

        house.accept = intercept  # type: ignore[method-assign]

    def events(self, engine: Any, events: Any) -> None:
        """Act."""
        for event in events:
            kind = type(event).__name__
            if kind == "OpenReceived":
                engine.open()
            elif kind == "SessionBegun":
                event.session.accept()
            elif kind == "LinkAttached":
                offered = event.attach.unsettled or {}
                self.offered.append((event.attach.target, dict(offered)))
                if offered and self.refuses == "session":
                    event.link.session.end(
                        spec.Error(
                            condition=conditions.NOT_IMPLEMENTED,
                            description="Link recovery not supported",
                        )
                    )
                    continue
                if offered and self.refuses == "link":
                    event.link.refuse(conditions.NOT_IMPLEMENTED, "no maps here")
                    continue
                kept = {tag: state for tag, state in self.kept.items() if tag in offered}
                incomplete, self.is_incomplete = self.is_incomplete, False
                event.link.accept(unsettled=kept or None, incomplete_unsettled=incomplete)
                event.link.flow(100)
            elif kind == "DeliveriesReceived":
                for delivery in event.deliveries:
                    self.received(event.link, delivery)

    def received(self, link: Any, delivery: Any) -> None:
        """Take one."""
        if delivery.resumed:
            self.resumed.append((delivery.tag, delivery.state, delivery.settled))
        if delivery.settled:
            self.kept.pop(delivery.tag, None)
            return
        if not (delivery.resumed and isinstance(self.kept.get(delivery.tag), spec.Accepted)):
            self.taken.append(Message(delivery.payload).body_values()[0])
        if self.is_mute:
            self.kept[delivery.tag] = spec.Accepted()
        else:
            self.kept.pop(delivery.tag, None)
            link.session.settle([delivery], spec.Accepted(), True)


class ResumeTests(SchedulerCase):
    """A peer without receipts that keeps the state of a link (T-36)."""

    def setUp(self) -> None:
        super().setUp()
        self.peer = ForeignPeer(self.beta(capabilities=()))

    def lose(self) -> None:
        """Lose the connection, and let it be made again."""
        self.network.wires[-1].cut()
        self.run_for(5)

    def test_outcome_that_was_not_heard(self) -> None:
        """It is not sent again: its outcome is in the peer's map."""
        self.put(b"1", b"2", b"3")
        self.run_now()
        self.assertEqual(self.alpha.depth(BETA), 3)
        self.peer.is_mute = False
        self.lose()
        self.assertEqual(self.peer.taken, [b"1", b"2", b"3"])
        self.assertEqual(self.alpha.depth(BETA), 0)
        self.assertEqual([settled for _, _, settled in self.peer.resumed], [True] * 3)
        self.assertEqual(self.peer.kept, {})
        target, offered = self.peer.offered[1]
        self.assertEqual((len(offered), target.expiry_policy), (3, "connection-close"))
        self.assertEqual(self.to().tally.relayed, 3)

    def test_rejection_that_was_not_heard(self) -> None:
        """Any outcome counts."""
        self.put(b"1", b"2")
        self.run_now()
        tags = list(self.peer.kept)
        error = spec.Error(condition=conditions.NOT_ALLOWED, description="no")
        self.peer.kept[tags[0]] = spec.Rejected(error=error)
        self.peer.is_mute = False
        self.lose()
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))

    def test_undecided(self) -> None:
        """Undecided deliveries that the peer has are resumed; those that it has not are sent."""
        self.put(b"1", b"2")
        self.run_now()
        tags = list(self.peer.kept)
        self.peer.kept = {tags[0]: None}
        self.peer.is_mute = False
        self.lose()
        self.assertEqual([tag for tag, _, _ in self.peer.resumed], tags[:1])
        self.assertEqual(self.peer.taken, [b"1", b"2", b"1", b"2"])
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_knows_nothing(self) -> None:
        """A peer that keeps nothing gets everything again."""
        self.put(b"1")
        self.run_now()
        self.peer.kept.clear()
        self.peer.is_mute = False
        self.lose()
        self.assertEqual(self.peer.taken, [b"1", b"1"])
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_incomplete(self) -> None:
        """A map that was cut is no use: the link is made without it."""
        self.put(b"1")
        self.run_now()
        self.peer.is_mute = False
        self.peer.is_incomplete = True
        self.peer.kept.clear()
        self.lose()
        self.run_for(10)
        self.assertEqual(self.alpha.depth(BETA), 0)
        self.assertEqual(self.peer.offered[-1][1], {})

    def test_words(self) -> None:
        """A connection that is lost is told as that, and not as a link that the peer ended."""
        self.put(b"1")
        self.run_now()
        self.network.dead.add(BETA)
        self.network.wires[-1].cut()
        self.run_now()
        self.assertIn("peer.lost: the connection was lost", self.to().last_error)

    def test_refused(self) -> None:
        """A peer that cannot resume ends the session or link for it: made again without the map.

        RabbitMQ 3 ends the session.
        """
        for refusal in ("session", "link"):
            self.put(b"1")
            self.peer.is_mute = True
            self.run_now()
            self.peer.is_mute = False
            self.peer.refuses = refusal
            self.peer.kept.clear()
            self.lose()
            self.run_for(10)
            self.assertEqual(self.alpha.depth(BETA), 0, refusal)
        # The first time was enough: it is not tried with each connection.
        self.assertEqual([bool(offered) for _, offered in self.peer.offered].count(True), 1)

    def test_expired_meanwhile(self) -> None:
        """An entry that is gone when the link comes back is not missed."""
        self.put(b"1", ttl=2000)
        self.put(b"2")
        self.run_now()
        self.peer.is_mute = False
        self.network.dead.add(BETA)
        self.network.wires[-1].cut()
        self.run_for(20)
        self.network.dead.clear()
        self.run_for(60)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))
