# SPDX-License-Identifier: Apache-2.0
"""Destinations: from a relay queue to a peer's broker, with all failures on the way."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from zope.interface.verify import verifyObject

from amqproute import conditions
from amqproute.broker.commit_batch import Batch
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.publish_gate import STORE
from amqproute.broker.queue import Queue
from amqproute.errors import (
    NotFound,
    ResolveError,
    ResourceLimitExceeded,
    StoreUnavailable,
    Unresolved,
)
from amqproute.frontends.amqp10.connection_frontend import Frontend
from amqproute.interfaces import IConnectionUser, IConsumer, IHops
from amqproute.message import Message
from amqproute.outcomes import UNREADABLE as UNREADABLE_BODY
from amqproute.relay import outcome_processor, peer_session
from amqproute.relay.backoff import BackOff
from amqproute.relay.destination_note import NOTE
from amqproute.relay.destination_row import row_of
from amqproute.relay.diagnosis import why
from amqproute.relay.failure_verdict import for_code
from amqproute.relay.lifecycle import DestinationState
from amqproute.relay.relay import MANY_RETURNS
from amqproute.relay.relay_terms import RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.routing.trail import TRACE
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    DEAD_LETTER_REASON,
    DEAD_LETTER_WORDS,
    ORIGIN,
    RETURN_TO,
    NextHop,
    Origin,
    Principal,
    RouteRule,
)
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network

BETA = "beta.example"
HOP = NextHop(BETA, BETA)
KEEP = object()
"""Of a rule of `decide`: the message gets no outcome."""
UNREADABLE = bytes.fromhex("0000000d 02000000 0053 15c0ff")
"""A disposition whose list is longer than its frame."""


class DestinationCase(HouseTestCase):
    """Alpha, and beta when a test wants it."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = self.house("alpha.example", node("q"), node("dead"))

    def house(self, domain: str, *nodes: Any, **options: Any) -> MemoryBroker:
        """Build a broker with quick terms."""
        options.setdefault("terms", RelayTerms(RetrySchedule(1.0, 60.0), 10, 20.0))
        house = MemoryBroker(self.network, domain, *nodes, **options)
        house.relay.dead_letter_name = "dead"
        return house

    def beta(self, **options: Any) -> MemoryBroker:
        """Put beta on the network."""
        return self.house(BETA, node("orders", capacity=options.pop("capacity", 0)), **options)

    def put(self, *bodies: bytes, to: str = f"orders@{BETA}", **kind: Any) -> None:
        """Put messages on the way to beta, as if it had been admitted."""
        queue = self.alpha.relay.take_on_trust(HOP)
        batch = self.alpha.broker.begin()
        for body in bodies:
            queue.put(message(body, to=to, **kind), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()

    @property
    def destination(self) -> Any:
        """The way to beta."""
        return self.alpha.relay.destinations[BETA]


class OpenTests(DestinationCase):
    """A connection that works."""

    def test_interfaces(self) -> None:
        """The classes keep the contracts."""
        self.put(b"1")
        self.beta()
        self.run_now()
        verifyObject(IConsumer, self.destination)
        verifyObject(IHops, self.alpha.relay)
        verifyObject(IConnectionUser, self.destination._session)
        for frontend in self.network.houses[BETA].shared.connections:
            self.assertIsInstance(frontend, Frontend)
            verifyObject(IConnectionUser, frontend)

    def test_there(self) -> None:
        """Messages cross in order, once, and nothing is left here."""
        beta = self.beta()
        self.put(*[b"%d" % number for number in range(25)])
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"%d" % number for number in range(25)])
        self.assertEqual(self.alpha.depth(BETA), 0)
        self.assertEqual(self.alpha.store.rows(f"amqp$out/{BETA}"), [])
        self.assertEqual(self.destination.tally.relayed, 25)
        self.assertEqual(len(self.network.wires), 1)
        row = row_of(self.destination)
        self.assertEqual((row["state"], row["container"]), ("open", f"ct-{BETA}"))

    def test_window(self) -> None:
        """No more than the window is ever without an outcome (T-29)."""
        self.beta()
        worst = 0
        self.put(*[b"%d" % number for number in range(40)])
        for _ in range(400):
            self.step()
            worst = max(worst, self.destination.in_flight)
        self.assertEqual((worst, self.alpha.depth(BETA)), (10, 0))

    def test_credit(self) -> None:
        """Nor more than the peer grants: a full node is waited for."""
        beta = self.beta(capacity=4)
        self.put(*[b"%d" % number for number in range(12)])
        self.run_now()
        self.assertEqual(beta.depth("orders"), 4)
        taker = beta.client()
        taker.receiver("orders", 100)
        for _ in range(60):
            self.run_for(5)
            if taker.deliveries and not taker.deliveries[-1].settled:
                taker.settle([d for d in taker.deliveries if not d.settled], spec.Accepted())
        self.assertEqual(sorted(taker.bodies()), sorted(b"%d" % number for number in range(12)))
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_trace_and_header(self) -> None:
        """The next hop gets a fresh header and a longer trace; ttl shrinks by the wait (T-30)."""
        self.network.dead.add(BETA)
        self.put(b"1", ttl=60_000, count=3, annotations={TRACE: ["first"], "x-opt-a": 1})
        self.run_now()
        beta = self.beta()
        self.run_for(10)
        self.network.dead.clear()
        self.run_for(10)
        got = Message(beta.store.rows("orders")[0].encoded)
        marks = {TRACE: ["first", "ct-alpha.example"], ORIGIN: "alpha.example", "x-opt-a": 1}
        self.assertEqual(got.annotations, marks)
        self.assertEqual((got.header.delivery_count, got.header.durable), (3, True))
        self.assertTrue(40_000 <= got.header.ttl < 50_100, got.header.ttl)

    def test_non_durable(self) -> None:
        """Messages that are not durable go the same way."""
        beta = self.beta()
        self.put(b"1", durable=False)
        self.run_now()
        self.assertEqual(beta.depth("orders"), 1)

    def test_receipts_are_forgotten(self) -> None:
        """The peer learns how far it may forget."""
        beta = self.beta()
        self.put(*[b"%d" % number for number in range(30)])
        self.run_now()
        self.assertEqual(len(beta.receipts), 30)
        self.run_for(60)
        self.assertEqual(len(beta.receipts), 0)
        self.assertEqual(sum(map(len, beta.store.received.values())), 0)

    def test_idle(self) -> None:
        """A connection with nothing to do is closed, and the destination forgotten."""
        beta = self.beta()
        self.put(b"1")
        self.run_now()
        self.assertEqual(self.destination.state, DestinationState.OPEN)
        self.run_for(60)
        self.assertEqual((self.alpha.relay.destinations, self.alpha.broker.internal), ({}, {}))
        self.assertEqual(len(beta.shared.connections), 0)
        self.put(b"2")
        self.run_now()
        self.assertEqual(beta.depth("orders"), 2)

    def test_peer_closes_an_idle_connection(self) -> None:
        """It is no failure."""
        beta = self.beta()
        self.put(b"1")
        self.run_now()
        for frontend in list(beta.shared.connections):
            frontend.connection.close()
            frontend.flush()
        self.run_now()
        self.assertEqual(
            (self.destination.state, self.destination.failures), (DestinationState.IDLE, 0)
        )
        self.put(b"2")
        self.run_for(1)
        self.assertEqual(beta.depth("orders"), 2)

    def test_fallback(self) -> None:
        """A peer without the service that routes by `to` is served by its anonymous node (T-34)."""
        beta = self.beta(capabilities=("ANONYMOUS-RELAY",))
        del beta.broker.services["amqp$transfer"]
        found = beta.shared.nodes.target

        def refuse(text: str, principal: Principal) -> Any:
            if text == "amqp$transfer":
                text = "nobody"
            return found(text, principal)

        beta.shared.nodes.target = refuse  # type: ignore[method-assign]
        self.put(b"1", b"2")
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"1", b"2"])
        self.assertEqual(len(self.network.wires), 1)

    def test_route_target(self) -> None:
        """A route says where to attach to (T-34)."""
        self.alpha.crash()
        rule = RouteRule(BETA, f"amqps://{BETA}", "/queues/{node}")
        self.alpha = self.house("alpha.example", node("q"), routes=[rule])
        beta = self.beta()
        client = self.alpha.client()
        client.send_to = client.sender(f"orders@{BETA}")  # type: ignore[attr-defined]
        self.run_now()
        client.send(client.send_to, message(b"1"))  # type: ignore[attr-defined]
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"1"])


class OutcomeTests(DestinationCase):
    """Outcomes of the peer (T-23)."""

    def test_rejected(self) -> None:
        """A message that the peer will never take is a dead letter, with the peer's words."""
        self.beta()
        self.put(b"1", to=f"nowhere@{BETA}")
        self.put(b"2")
        self.run_now()
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))
        letter = Message(self.alpha.store.rows("dead")[0].encoded)
        self.assertEqual(letter.annotations[DEAD_LETTER_REASON], "rejected")
        self.assertIn(f"{BETA}: no node is named 'nowhere'", letter.annotations[DEAD_LETTER_WORDS])
        self.assertEqual((self.destination.failures, self.destination.tally.rejected), (0, 1))

    def test_returned(self) -> None:
        """Or goes back to where its sender asked for it."""
        self.alpha.broker.return_to = self.alpha.broker.target
        self.beta()
        self.put(b"1", to=f"nowhere@{BETA}", annotations={RETURN_TO: "q"})
        self.run_now()
        self.assertEqual((self.alpha.depth("q"), self.alpha.depth("dead")), (1, 0))

    def test_released_waits_alone(self) -> None:
        """A message that is not taken now waits, longer each time, and lets others pass."""
        beta = self.beta()
        release = self.decide(beta, lambda given: spec.Released() if given == b"slow" else None)
        self.put(b"slow", b"quick")
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"quick"])
        self.assertEqual(self.destination.queue.deferred, 1)
        self.run_for(20)
        self.assertEqual(self.destination.state, DestinationState.OPEN)
        self.assertTrue(4 <= release.count(b"slow") <= 6, release)
        beta.decide = None  # type: ignore[attr-defined]
        self.run_for(40)
        self.assertEqual(beta.bodies("orders"), [b"quick", b"slow"])

    def test_count(self) -> None:
        """A failed delivery counts; a release does not."""
        beta = self.beta()
        self.decide(beta, lambda _: spec.Modified(delivery_failed=True))
        self.put(b"1")
        self.run_for(8)
        beta.decide = None  # type: ignore[attr-defined]
        self.run_for(30)
        row = beta.store.rows("orders")[0]
        self.assertGreater(Message(row.encoded).delivery_count, 1)

    def test_tries(self) -> None:
        """A message that was never sent has no tries; each return of it is one."""
        self.put(b"1")
        self.run_now()  # nobody is there
        (entry,) = self.destination.queue.state.in_memory()
        self.assertEqual(self.destination.outcomes.tries(entry), 0)
        self.decide(self.beta(), lambda _: spec.Released())
        delays: list[float] = []
        defer = Queue.defer

        def spied(queue: Queue, entries: Any, seconds: float) -> None:
            delays.append(seconds)
            defer(queue, entries, seconds)

        self.patch(Queue, "defer", spied)
        self.patch(self.destination.outcomes, "_random", lambda: 0.5)
        self.run_for(60)
        self.assertEqual(self.destination.outcomes.tries(entry), len(delays))
        schedule = RetrySchedule(1.0, 60.0)
        wanted = [schedule.delay(tries, 0.5) for tries in range(1, len(delays) + 1)]
        self.assertEqual(delays, wanted)
        self.assertGreater(len(delays), 1)

    def test_patience(self) -> None:
        """A commit that the peer waits for is not put off for others; any other may be."""
        beta, patient = self.beta(), []
        commit = Batch.commit

        def spied(batch: Batch, *given: Any, **named: Any) -> Any:
            patient.extend(given)
            return commit(batch, *given, **named)

        self.patch(Batch, "commit", spied)
        self.put(b"1")
        self.run_now()
        self.assertEqual(set(patient), {True})
        self.patch(type(self.destination._session), "has_answers", True)
        self.put(b"2")
        self.run_now()
        self.assertEqual(patient[-1], False)
        self.assertEqual(beta.bodies("orders"), [b"1", b"2"])

    def test_unreadable(self) -> None:
        """An entry that proves damaged on the way leaves its queue; others go on."""
        beta = self.beta()
        self.decide(beta, lambda given: KEEP if given == b"1" else None)
        self.put(b"1", b"2")
        self.run_now()
        (entry,) = self.destination.holds()
        verdict = for_code("peer.full", "not looked at")
        self.destination.outcomes.outcome([entry], verdict, UNREADABLE_BODY)
        self.destination.outcomes.commit()
        self.run_now()
        self.assertEqual(self.destination.queue.depth, 0)
        self.assertEqual(beta.bodies("orders"), [b"2"])

    def test_places_aside(self) -> None:
        """So many messages are set aside for others to go first, and no more."""
        self.patch(outcome_processor, "MOST_RECORDS", 2)
        self.decide(self.beta(), lambda _: spec.Released())
        self.put(b"1", b"2")
        self.run_now()
        outcomes = self.destination.outcomes
        first, second = self.destination.queue.deferred_entries
        self.assertTrue(outcomes.has_capacity)
        outcomes._aside = {first.id: first}
        self.assertTrue(outcomes.has_capacity)
        outcomes._aside = {first.id: first, second.id: second}
        self.assertFalse(outcomes.has_capacity)

    def test_undeliverable_here(self) -> None:
        """Modified with undeliverable-here, and no other next hop: a dead letter, sent once."""
        beta = self.beta()
        seen = self.decide(beta, lambda _: spec.Modified(undeliverable_here=True))
        self.put(b"1")
        self.run_for(60)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))
        self.assertEqual(seen, [b"1"])

    def test_congestion(self) -> None:
        """When a whole window comes back the destination backs off, more each time."""
        beta = self.beta()
        seen = self.decide(beta, lambda _: spec.Released())
        self.put(*[b"%d" % number for number in range(30)])
        self.run_for(120)
        self.assertEqual(self.alpha.depth(BETA), 30)
        self.assertLess(len(seen), 400)
        self.assertGreater(self.destination.failures, 2)
        self.assertLess(len(self.network.wires), 15)
        beta.decide = None  # type: ignore[attr-defined]
        self.run_for(200)
        self.assertEqual(len(beta.bodies("orders")), 30)
        self.assertEqual(self.destination.failures if self.alpha.relay.destinations else 0, 0)

    def decide(self, house: MemoryBroker, rule: Any) -> list[bytes]:
        """Make a broker answer transfers by a rule of the test; return their bodies."""
        seen: list[bytes] = []
        house.decide = rule  # type: ignore[attr-defined]
        accept = house.accept

        def intercept(principal: Principal, **changes: Any) -> Any:
            engine, frontend = accept(principal, **changes)
            events = frontend.events

            def filtered(given: Any) -> None:
                for event in given:
                    rule = house.decide  # type: ignore[attr-defined]
                    if rule is None or type(event).__name__ != "DeliveriesReceived":
                        continue
                    left = []
                    for delivery in event.deliveries:
                        body = Message(delivery.payload).body_values()[0]
                        state = rule(body)
                        if state is None:
                            left.append(delivery)
                            continue
                        if state is KEEP:
                            continue
                        seen.append(body)
                        delivery.link.session.settle([delivery], state, True)
                        delivery.link.flow(100)
                    event.deliveries[:] = left
                events(given)

            frontend.events = filtered
            return engine, frontend

        house.accept = intercept  # type: ignore[method-assign]
        return seen

    def test_poison(self) -> None:
        """One message that ends the connection each time does not hold up the others for ever."""
        beta = self.beta()

        def rule(given: bytes) -> Any:
            if given == b"poison":
                for frontend in tuple(beta.shared.connections):
                    frontend.close(conditions.DECODE_ERROR, "what is this")
            return None

        self.decide(beta, rule)
        self.put(b"1", b"poison", b"2", b"3")
        self.run_for(120)
        self.assertEqual(sorted(beta.bodies("orders")), [b"1", b"2", b"3"])
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))
        letter = Message(self.alpha.store.rows("dead")[0].encoded)
        self.assertEqual(letter.annotations[DEAD_LETTER_REASON], "undeliverable")
        self.put(*(b"%d" % number for number in range(4, 20)))
        self.run_now()
        self.assertEqual(self.alpha.depth(BETA), 0)

    def breaks(self, beta: MemoryBroker, bad: Any) -> None:
        """Have beta write a disposition that cannot be read for each message that is bad."""

        def rule(given: bytes) -> Any:
            if not bad(given):
                return None
            for wire in self.network.wires:
                if not wire.right.is_lost:
                    wire.right.engine._sink.append(UNREADABLE)
            return KEEP

        self.decide(beta, rule)

    def test_peer_that_breaks_the_protocol(self) -> None:
        """It costs no message, however often it does so, and is said (`peer_session.broken`)."""
        beta = self.beta()
        logs: list[str] = []

        def observe(event: LogEvent) -> None:
            logs.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        self.breaks(beta, lambda _: True)
        self.put(*(b"%d" % number for number in range(40)))
        self.run_for(600)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (40, 0))
        self.assertEqual(self.destination.tally.rejected, 0)
        self.assertLess(len(self.network.wires), 40)
        row = row_of(self.destination)
        self.assertEqual((row["state"], row["last-code"]), ("waiting", "peer.broken"))
        self.assertIn("amqp:decode-error", row["last-error"])
        self.assertTrue(any("breaks the protocol" in line for line in logs), logs)
        beta.decide = None  # type: ignore[attr-defined]
        self.run_for(300)
        numbers = sorted(map(int, beta.bodies("orders")))
        self.assertEqual((numbers, self.alpha.depth(BETA)), (list(range(40)), 0))

    def test_one_message_that_breaks_it(self) -> None:
        """The others pass; it waits alone, is not given up, and comes again."""
        beta = self.beta()
        self.breaks(beta, lambda body: body == b"poison")
        self.put(b"1", b"poison", b"2", b"3")
        self.run_for(30)
        self.assertEqual(sorted(beta.bodies("orders")), [b"1", b"2", b"3"])
        for number in range(20):
            self.put(b"more %d" % number)
            self.run_for(60)
        self.assertEqual(len(beta.bodies("orders")), 23)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (1, 0))
        beta.decide = None  # type: ignore[attr-defined]
        self.run_for(300)
        self.assertEqual(self.alpha.depth(BETA), 0)
        self.assertIn(b"poison", beta.bodies("orders"))

    def test_set_aside(self) -> None:
        """Messages set aside hold the floor down, and `why` has the reason of their wait."""
        beta = self.beta()
        self.breaks(beta, lambda body: body == b"poison")
        self.put(b"poison", b"1", b"2")
        outcomes = self.destination.outcomes
        for _ in range(2000):
            self.run_for(0.1)
            if outcomes.aside() and self.destination.session is not None:
                break
        ((entry_id, entry),) = outcomes.aside().items()
        self.assertEqual(outcomes.running_floor(), entry_id)
        found = why(self.destination, entry, self.alpha.relay.holds, 0)
        self.assertEqual(found["cause"], "set-aside")
        self.assertIn(f"amqproute retry {entry_id}", found["next"])

    def test_crash_without_a_word(self) -> None:
        """A message at which the peer dies each time does not hold up the others."""
        beta = self.beta()

        def rule(given: bytes) -> Any:
            if given == b"poison":
                for wire in self.network.wires:
                    wire.cut()
                return KEEP
            return None

        self.decide(beta, rule)
        self.put(b"1", b"poison", b"2", b"3")
        self.run_for(60)
        self.assertEqual(sorted(set(beta.bodies("orders"))), [b"1", b"2", b"3"])
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (1, 0))

    def test_many_at_which_it_dies(self) -> None:
        """However many these are the others pass, and what they cost has a bound."""
        beta = self.beta()

        def rule(given: bytes) -> Any:
            if given.startswith(b"poison"):
                for wire in self.network.wires:
                    wire.cut()
                return KEEP
            return None

        self.decide(beta, rule)
        for number in range(80):
            self.put(b"good %d" % number, b"poison %d" % number)
        self.run_for(900)
        self.assertEqual(len(set(beta.bodies("orders"))), 80)
        before = len(self.network.wires)
        for number in range(10):
            self.put(b"more %d" % number)
            self.run_for(60)
        self.assertEqual(len(set(beta.bodies("orders"))), 90)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (80, 0))
        self.assertLess(len(self.network.wires) - before, 100)

    def test_many_aside_and_the_peer_is_well_again(self) -> None:
        """They follow each other as soon as one of them is taken."""
        beta = self.beta()
        is_broken = True

        def rule(given: bytes) -> Any:
            if is_broken:
                for wire in self.network.wires:
                    wire.cut()
                return KEEP
            return None

        self.decide(beta, rule)
        self.put(*(b"%d" % number for number in range(40)))
        self.run_for(900)
        self.assertGreater(len(self.destination.outcomes.aside()), 10)
        is_broken = False
        self.run_for(120)
        self.assertEqual(len(set(beta.bodies("orders"))), 40)

    def overdue(self) -> None:
        """Have messages that were overdue at the start of the daemon, or after a sleep."""
        queue = self.alpha.relay.take_on_trust(HOP)
        self.destination.adopt(QueueLimits(ttl_ms=5000))
        self.destination.hold("as if it did not run")
        self.alpha.relay.spare()
        self.put(b"1", b"2", b"3")
        self.put(b"short", ttl=1000)
        self.run_for(700)
        self.assertEqual((queue.depth, queue.tally.expired), (4, 0))
        self.destination.unhold()

    def test_overdue_and_there(self) -> None:
        """Overdue messages are tried after a restart: the peer takes them when it is there."""
        beta = self.beta()
        self.overdue()
        self.run_for(5)
        self.assertEqual(beta.bodies("orders"), [b"1", b"2", b"3"])
        self.assertEqual(self.destination.queue.tally.expired, 1)

    def test_overdue_and_away(self) -> None:
        """After one attempt in vain it expires."""
        self.network.dead.add(BETA)
        self.overdue()
        destination = self.destination
        self.run_for(5)
        self.assertEqual(destination.queue.tally.expired, 4)
        self.assertEqual((destination.failures > 0, self.alpha.depth(BETA)), (True, 0))
        self.assertNotIn(BETA, self.alpha.relay.destinations)

    def test_fault_of_ours(self) -> None:
        """A message at which this broker itself stumbles does not hold up the others either."""
        beta = self.beta()
        make = peer_session.prefix_maker

        def stumbling(*arguments: Any) -> Any:
            prefix = make(*arguments)

            def stumble(entry: Any, now_ms: int) -> Any:
                if entry.message.encoded.endswith(b"poison"):
                    raise ZeroDivisionError("a bug")
                return prefix(entry, now_ms)

            return stumble

        self.patch(peer_session, "prefix_maker", stumbling)
        self.put(b"1", b"poison", b"2", b"3")
        self.run_for(120)
        self.assertGreater(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(sorted(beta.bodies("orders")), [b"1", b"2", b"3"])
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))

    def test_unsettled_outcomes(self) -> None:
        """A peer that leaves the settling to us is answered, and the outcome counts once."""
        beta = self.beta()
        accept = beta.accept
        frontends: list[Any] = []

        def intercept(principal: Principal, **changes: Any) -> Any:
            engine, frontend = accept(principal, **changes)
            frontends.append(frontend)
            frontend.events = lambda given: self.answer(engine, given)
            return engine, frontend

        beta.accept = intercept  # type: ignore[method-assign]
        self.told: list[str] = []
        self.put(b"accepted", b"rejected", b"released")
        self.run_now()
        self.assertEqual(self.alpha.depth("dead"), 1)
        self.assertEqual(self.destination.in_flight, 0)
        self.assertEqual((self.destination.queue.acquired, self.destination.queue.deferred), (0, 1))
        self.assertEqual(self.told.count("settled"), 3)
        self.network.wires[0].cut()
        self.run_now()
        self.assertEqual(self.alpha.depth(BETA), 1)
        self.assertEqual(len(self.alpha.store.rows(f"amqp$out/{BETA}")), 1)

    def answer(self, engine: Any, events: Any) -> None:
        """Be a peer that tells outcomes twice and never settles first."""
        states = {
            b"accepted": spec.Accepted(),
            b"rejected": spec.Rejected(),
            b"released": spec.Released(),
        }
        for event in events:
            kind = type(event).__name__
            if kind == "OpenReceived":
                engine.open()
            elif kind == "SessionBegun":
                event.session.accept()
            elif kind == "LinkAttached":
                event.link.accept()
                event.link.flow(100)
            elif kind == "DeliveriesReceived":
                for delivery in event.deliveries:
                    state = states[Message(delivery.payload).body_values()[0]]
                    for _ in range(2):
                        event.link.session.settle([delivery], state, False)
            elif kind == "DeliveriesUpdated":
                self.told.extend("settled" for _ in event.deliveries if event.settled)

    def test_too_large(self) -> None:
        """A message that the peer can never take is a dead letter; the others pass."""
        beta = self.beta(max_message_size=500)
        self.put(b"1", bytes(600), b"2")
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"1", b"2"])
        letter = Message(self.alpha.store.rows("dead")[0].encoded)
        self.assertIn("message-size-exceeded", letter.annotations[DEAD_LETTER_WORDS])

    def test_unreadable_trace(self) -> None:
        """An entry that cannot be sent on, however it came here, harms nobody else."""
        beta = self.beta()
        self.put(b"bad", annotations={TRACE: 7})
        self.put(b"good")
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"good"])
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))


class FailureTests(DestinationCase):
    """Peers that are not there (T-28)."""

    def test_lost_before_it_opens(self) -> None:
        """A host that refuses our certificate after the handshake cannot say so: we say it."""
        beta = self.beta()
        accept = beta.accept

        def refusing(*args: Any, **changes: Any) -> Any:
            self.clock.callLater(0, lambda: self.network.wires[-1].cut())
            return accept(*args, **changes)

        beta.accept = refusing  # type: ignore[method-assign]
        for level, begin, words in (
            ("authenticated", "the connection was lost", "does not take our certificate"),
            ("none", "the peer has closed the connection", "that port speaks TLS"),
        ):
            self.network.levels[BETA] = level
            self.put(b"1")
            self.run_for(30)
            error = self.destination.last_error
            self.assertTrue(error.startswith(f"peer.lost: {begin}"), error)
            self.assertIn(words, error)
            self.assertEqual("certificate" in error, level != "none", error)

    def test_step_that_raises(self) -> None:
        """A mistake while one deadline is acted on does not lose the others."""
        self.put(b"1")
        self.run_now()
        destination = self.destination
        self.assertEqual(destination.state, DestinationState.WAITING)
        retry_at = destination.life.retry_at
        destination.life.probe_at = probe_at = retry_at + 5

        def stumble(_: Queue) -> None:
            raise ZeroDivisionError

        patcher = self.patch(Queue, "dispatch", stumble)
        with self.assertRaises(ZeroDivisionError):
            self.clock.advance(retry_at - self.clock.seconds())
        patcher.restore()
        self.assertIn(probe_at, [call.getTime() for call in self.clock.calls])
        self.beta()
        self.run_for(6)
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_back_off(self) -> None:
        """Attempts become rarer, and the first message after the last failure waits with them."""
        self.network.dead.add(BETA)
        self.beta()
        self.put(b"1")
        self.run_for(200)
        self.assertTrue(6 <= self.network.connects <= 10, self.network.connects)
        self.assertEqual(self.destination.state, DestinationState.WAITING)
        self.assertEqual(self.destination.failures, self.network.connects)
        self.assertIn("connect.refused", self.destination.last_error)
        self.assertEqual(row_of(self.destination)["attempts"], [f"{BETA}: connection refused"])

    def test_persisted(self) -> None:
        """A restart does not forget the back-off, and does not hit a dead peer at once."""
        self.network.dead.add(BETA)
        self.put(b"1")
        self.run_for(20)
        failures, connects = self.destination.failures, self.network.connects
        noted = json.loads(self.alpha.store.notes[NOTE][BETA])
        self.assertEqual(noted["failures"], failures)
        self.alpha.crash()
        self.alpha = self.house("alpha.example", node("dead"), store=self.alpha.store)
        self.run_now()
        self.assertEqual(
            (self.destination.failures, self.destination.state),
            (failures, DestinationState.WAITING),
        )
        self.assertEqual(self.network.connects, connects)
        beta = self.beta()
        self.network.dead.clear()
        self.run_for(60)
        self.assertEqual(beta.bodies("orders"), [b"1"])
        self.assertEqual(self.alpha.store.notes[NOTE], {})

    def test_clock_set_back(self) -> None:
        """A next attempt far in the future is not believed."""
        self.put(b"1")
        destination = self.destination
        destination.stop()
        noted = {"failures": 3, "next": 1 << 60, "error": "x", "attempts": []}
        destination.restore(json.dumps(noted).encode())
        self.beta()
        self.run_for(80)
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_told_again(self) -> None:
        """Of a peer that has been dead for two days the log of today tells, too."""
        told: list[str] = []
        self.patch(
            BackOff,
            "log",
            SimpleNamespace(
                info=lambda text, **of: None,
                warn=lambda text, **of: told.append(f"{of['what']}{of['since']}"),
            ),
        )
        self.network.dead.add(BETA)
        self.put(b"1")
        self.run_for(25 * 3600, 60)
        self.assertEqual(told[:2], ["is dead", "is dead in 6 h"])
        self.assertEqual(len(told), 5)

    def test_disk_fails_while_it_is_dead(self) -> None:
        """Notes of the back-off on a full disk do not fill the log with faults."""

        def full(_: Any) -> None:
            raise StoreUnavailable("no room")

        self.network.dead.add(BETA)
        self.put(b"1")
        self.run_now()
        self.patch(self.alpha.store, "_apply", full)
        self.run_for(300, 5)
        self.assertGreater(self.destination.failures, 3)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_wake(self) -> None:
        """A peer that calls in is up: what waits goes at once."""
        self.network.dead.add(BETA)
        self.put(b"1")
        self.run_for(60)
        self.network.dead.clear()
        beta = self.beta()
        self.alpha.client(Principal("peer", BETA, frozenset({BETA})))
        self.run_now()
        self.assertEqual(beta.depth("orders"), 1)

    def test_lost_in_flight(self) -> None:
        """Deliveries without an outcome are sent again, and kept once (T-22, T-36)."""
        beta = self.beta()
        for turns in range(1, 25):
            self.put(b"%02d" % turns)
            self.step(turns)
            self.network.wires[-1].cut() if self.network.wires else None
            self.run_for(6)
        self.assertEqual(sorted(beta.bodies("orders")), [b"%02d" % each for each in range(1, 25)])
        self.assertEqual(self.alpha.depth(BETA), 0)

    def test_nxdomain(self) -> None:
        """Proof that there is nobody: what waits is returned, new messages are refused (T-25)."""
        self.network.dead.add(BETA)
        self.put(b"1", b"2")
        self.run_now()
        self.network.errors[BETA] = ResolveError("dns.nxdomain", "no such domain", permanent=True)
        self.run_for(5)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 2))
        letter = Message(self.alpha.store.rows("dead")[0].encoded)
        self.assertEqual(letter.annotations[DEAD_LETTER_REASON], "undeliverable")
        client = self.alpha.client()
        link = client.sender(f"orders@{BETA}")
        self.run_now()
        self.assertDetached(client, link, conditions.NOT_FOUND)
        del self.network.errors[BETA]
        self.network.dead.clear()
        beta = self.beta()
        self.run_for(40)
        link = client.sender(f"orders@{BETA}", "again")
        self.run_now()
        client.send(link, message(b"3"))
        self.run_now()
        self.assertEqual(beta.bodies("orders"), [b"3"])

    def test_time_of_a_proof(self) -> None:
        """It is believed for its time to live, of a waiting destination and at admission."""
        asked = NextHop("asked.example", "asked.example")
        for ttl, lasts in ((5.0, 5), (0.0, 1), (900.0, 30), (None, 30)):
            gone = ResolveError("dns.nxdomain", "no such domain", permanent=True, ttl=ttl)
            self.network.errors.update({BETA: gone, "asked.example": gone})
            self.put(b"1")
            self.alpha.relay.admit(asked)
            self.clock.advance(0)
            self.clock.pump([0.1] * (10 * lasts - 2))
            for each in (HOP, asked):
                self.assertRaises(NotFound, self.alpha.relay.check, each)
            self.clock.pump([0.1] * 4)
            for each in (HOP, asked):
                self.assertRaises(Unresolved, self.alpha.relay.check, each)
            self.assertEqual(self.alpha.depth(BETA), 0)

    def test_forget(self) -> None:
        """An operator has a refusal forgotten, and that there may be a way."""
        gone = ResolveError("dns.nxdomain", "no such domain", permanent=True)
        self.network.errors[BETA] = gone
        relay = self.alpha.relay
        relay.admit(HOP)
        self.run_now()
        self.assertRaises(NotFound, relay.check, HOP)
        relay.forget(HOP)
        self.assertRaises(Unresolved, relay.check, HOP)
        self.assertEqual(self.network.forgotten, [BETA])
        self.put(b"1")
        self.clock.advance(0)
        self.assertRaises(NotFound, relay.check, HOP)
        del self.network.errors[BETA]
        beta = self.beta()
        relay.forget(HOP)
        self.put(b"2")
        self.run_for(2)
        self.assertEqual(beta.bodies("orders"), [b"2"])
        other = NextHop("other.example", "other.example")
        relay.admit(other)
        self.run_now()
        relay.check(other)
        relay.forget(other)
        self.assertRaises(Unresolved, relay.check, other)

    def test_resolver_in_trouble(self) -> None:
        """No answer is no proof: it waits."""
        self.network.errors[BETA] = ResolveError("dns.timeout", "silence", permanent=False)
        self.put(b"1")
        self.run_for(5)
        self.assertEqual(
            (self.alpha.depth(BETA), self.destination.state), (1, DestinationState.WAITING)
        )

    def test_silent_peer(self) -> None:
        """A peer that never attaches costs one deadline, and the attempt leaves nothing behind."""
        beta = self.beta()
        accept = beta.accept

        def deaf(principal: Principal, **changes: Any) -> Any:
            engine, frontend = accept(principal, **changes)
            frontend.events = lambda _: None
            return engine, frontend

        beta.accept = deaf  # type: ignore[method-assign]
        self.put(b"1")
        self.run_for(25, 5)
        self.assertEqual(self.destination.state, DestinationState.CONNECTING)
        self.run_for(10, 5)
        self.assertIn("peer.timeout", self.destination.last_error)
        self.assertTrue(self.network.wires[0].left.is_lost)

    def test_stopped_while_connecting(self) -> None:
        """An attempt that is called off leaves no connection behind."""
        self.beta()
        self.put(b"1")
        for turns in range(1, 12):
            self.step(turns)
            self.alpha.relay.stop_sending()
            self.run_now()
            for wire in self.network.wires:
                if self.destination._session is None:
                    self.assertTrue(wire.left.is_lost, turns)
            self.alpha.relay.close()
            self.run_now()
            self.destination.life.is_stopping = False
            self.alpha.relay.start()

    def test_store_fails(self) -> None:
        """Outcomes that cannot be written keep their receipts with the peer."""
        beta = self.beta()
        self.put(b"1")
        while not beta.depth("orders"):
            self.step()
        self.alpha.store.is_failing = True
        self.run_now()
        self.assertGreaterEqual(len(self.flushLoggedErrors()), 1)
        self.alpha.store.is_failing = False
        self.assertTrue(self.destination.is_quiet)
        row = self.alpha.store.rows(f"amqp$out/{BETA}")[0]
        self.assertLessEqual(self.destination.outcomes.floor(), row.id)
        self.assertLessEqual(self.destination.outcomes.running_floor(), row.id)
        self.alpha.crash()
        self.alpha = self.house("alpha.example", node("dead"), store=self.alpha.store)
        self.run_for(10)
        self.assertEqual((self.alpha.depth(BETA), beta.bodies("orders")), (0, [b"1"]))

    def test_full_disk(self) -> None:
        """Accepted messages are removed at once, the dead letter when there is room."""
        beta = self.beta()
        self.put(b"yes")
        self.put(b"no", to=f"nobody@{BETA}")
        while len(self.alpha.store.rows(f"amqp$out/{BETA}")) < 2:
            self.step()
        self.alpha.store.is_full = True
        self.run_now()
        (row,) = self.alpha.store.rows(f"amqp$out/{BETA}")
        self.assertEqual(Message(row.encoded).body_values(), [b"no"])
        self.assertEqual(list(self.alpha.broker.gate.reasons), [STORE])
        outcomes = self.destination.outcomes
        self.assertLessEqual(outcomes.floor(), row.id)
        self.alpha.store.is_full = False
        self.alpha.broker.gate.open(STORE)
        self.run_now()
        self.assertEqual(self.alpha.store.rows(f"amqp$out/{BETA}"), [])
        self.assertEqual((beta.bodies("orders"), self.alpha.bodies("dead")), ([b"yes"], [b"no"]))
        self.assertTrue(outcomes.is_settled)
        self.assertGreater(outcomes.floor(), row.id)

    def test_expired_here(self) -> None:
        """A message that waits longer than it lives is not sent (T-28, T-30)."""
        self.network.dead.add(BETA)
        self.put(b"1", ttl=5000)
        self.run_for(10)
        self.assertEqual((self.alpha.depth(BETA), self.alpha.depth("dead")), (0, 1))

    def test_names_are_cheap(self) -> None:
        """Asking about a name makes no destination, nor does a link to it; used ones stay."""
        self.put(b"1")
        for number in range(3000):
            domain = f"d{number}.example"
            admitted = self.alpha.relay.admit(NextHop(domain, domain))
            self.clock.advance(0.01)
            self.successResultOf(admitted)
            self.alpha.relay.check(NextHop(domain, domain))
        self.assertEqual(list(self.alpha.relay.destinations), [BETA])

    def test_ways_back_are_bounded(self) -> None:
        """Return addresses are cheap to invent too: only this many of a domain at a time."""
        self.network.dead.add(BETA)

        def back(number: int, domain: str = BETA) -> NextHop:
            address = f"a{number}@{domain}"
            return NextHop(f"{domain}/{address}", domain, None, address)

        for number in range(3 * MANY_RETURNS):
            self.alpha.relay.take_on_trust(back(number))
        self.assertLessEqual(len(self.alpha.relay.destinations), MANY_RETURNS)
        for number in range(MANY_RETURNS):
            hop = back(1000 + number, "gamma.example")
            queue = self.alpha.relay.take_on_trust(hop)
            batch = self.alpha.broker.begin()
            queue.put(message(b"1"), batch, Origin(ANONYMOUS_PRINCIPAL))
            batch.commit()
        self.run_now()
        self.assertRaises(
            ResourceLimitExceeded, self.alpha.relay.take_on_trust, back(1, "gamma.example")
        )
        self.alpha.relay.take_on_trust(back(1000, "gamma.example"))
        self.alpha.relay.take_on_trust(NextHop("gamma.example", "gamma.example"))
