# SPDX-License-Identifier: Apache-2.0
"""A destination under random events, against a few invariants."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute import conditions
from amqproute.broker.token_bucket import Rate
from amqproute.errors import ResolveError
from amqproute.message import Message
from amqproute.relay.relay_terms import RelayBounds, RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin, Principal
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network

BETA = "beta.example"
HOP = NextHop(BETA, BETA)
WINDOW = 8


class DestinationMachine(RuleBasedStateMachine):
    """Alpha sends numbered messages to beta; everything that can happen happens.

    What holds at any time: never more than the window without an outcome; the back-off grows
    until something succeeds; on one link messages go in order, each at most once. And in the end,
    when peace returns, everything is there exactly once.
    """

    @initialize(rate=st.sampled_from([None, 4.0]))
    def build(self, rate: float | None) -> None:
        """Begin."""
        self.clock = Clock()
        self.network = Network(self.clock)
        self.terms = RelayTerms(
            RetrySchedule(1.0, 16.0),
            WINDOW,
            30.0,
            settle_seconds=20.0,
            bounds=RelayBounds(connects_per_second=10.0),
        )
        if rate is not None:
            self.terms.rate = lambda _: Rate(messages=rate)
        self.network.dead.add(BETA)
        self.alpha = self.make_alpha(None)
        self.beta = MemoryBroker(self.network, BETA, node("orders"))
        self.count = 0
        self.delays: list[float] = []
        self.last = (0, 0)
        self.sent: dict[int, list[int]] = {}
        self.links: list[Any] = []

    def make_alpha(self, store: Any) -> MemoryBroker:
        """Build alpha over its store."""
        house = MemoryBroker(
            self.network, "alpha.example", node("dead"), terms=self.terms, store=store
        )
        house.relay.dead_letter_name = "dead"
        return house

    def run_for(self, seconds: float) -> None:
        """Let time pass in small steps, watching."""
        until = self.clock.seconds() + seconds
        while self.clock.seconds() < until - 1e-9:
            self.clock.advance(min(0.25, until - self.clock.seconds()))
            self.clock.advance(0)
            self.watch()

    @property
    def destination(self) -> Any:
        """The way to beta, if there is one at present."""
        return self.alpha.relay.destinations.get(BETA)

    def watch(self) -> None:
        """Look at what must hold at any moment."""
        destination = self.destination
        if destination is None:
            return
        assert destination.in_flight <= WINDOW, destination
        assert destination.in_flight <= max(destination.window.size, WINDOW)
        session = destination.session
        if session is not None and session.link is not None:
            if session.link not in self.links:
                self.links.append(session.link)
            ids = [entry.id for entry in session.holds()]
            assert ids == sorted(ids), ids
            assert len(ids) == len(set(ids))
        failures = destination.failures
        if failures != self.last[1] and destination.state.value == "waiting":
            if failures > self.last[1] > 0:
                wait = destination.life.retry_at - self.clock.seconds()
                # Looked at up to a step late.
                assert wait + 0.3 >= self.last[0] or wait >= 12.0, (wait, self.last)
                self.last = (wait, failures)
            else:
                wait = destination.life.retry_at - self.clock.seconds()
                self.last = (wait, failures)
        elif failures == 0:
            self.last = (0, 0)

    # -- what happens ----------------------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def put(self, count: int) -> None:
        """Messages come."""
        queue = self.alpha.relay.take_on_trust(HOP)
        batch = self.alpha.broker.begin()
        for _ in range(count):
            body = message(b"%04d" % self.count, to=f"orders@{BETA}")
            queue.put(body, batch, Origin(ANONYMOUS_PRINCIPAL))
            self.count += 1
        batch.commit()
        self.run_for(0.25)

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 20.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.run_for(seconds)

    @rule()
    def die(self) -> None:
        """Beta cannot be reached any more; connections that stand continue."""
        self.network.dead.add(BETA)

    @rule()
    def live(self) -> None:
        """It can again."""
        self.network.dead.clear()
        self.network.errors.clear()

    @rule()
    def confuse(self) -> None:
        """The DNS is in trouble."""
        self.network.errors[BETA] = ResolveError("dns.servfail", "broken", permanent=False)

    @rule(turns=st.integers(0, 12))
    def cut(self, turns: int) -> None:
        """The connection is lost, after this many steps."""
        for _ in range(turns):
            due = [call for call in self.clock.calls if call.getTime() <= self.clock.seconds()]
            if not due:
                break
            self.clock.calls.remove(due[0])
            due[0].called = 1
            due[0].func(*due[0].args, **due[0].kw)
        if self.network.wires:
            self.network.wires[-1].cut()
        self.run_for(0.25)

    @rule()
    def call_in(self) -> None:
        """Beta calls alpha."""
        self.alpha.client(Principal("peer", BETA, frozenset({BETA})))
        self.run_for(0.25)

    @rule()
    def close(self) -> None:
        """Beta ends its connections."""
        for frontend in tuple(self.beta.shared.connections):
            frontend.close(conditions.CONNECTION_FORCED, "stopping")
        self.run_for(0.25)

    @rule()
    def restart(self) -> None:
        """Alpha crashes and comes back."""
        failures = self.destination.failures if self.destination is not None else 0
        self.alpha.crash()
        self.alpha = self.make_alpha(self.alpha.store)
        self.last = (0, 0)
        if self.destination is not None:
            assert self.destination.failures == failures
        self.run_for(0.25)

    @precondition(lambda self: self.destination is not None)
    @rule()
    def hold_and_release(self) -> None:
        """An operator holds it for a while."""
        self.destination.hold("test")
        self.run_for(2)
        if self.destination is not None:
            self.destination.unhold()
        self.run_for(0.25)

    # -- what holds ------------------------------------------------------------------------------

    @invariant()
    def nothing_twice(self) -> None:
        """Each message is there once at most, whatever was sent again."""
        if not hasattr(self, "beta"):
            return
        bodies = self.beta.bodies("orders")
        assert len(bodies) == len(set(bodies)), bodies

    def teardown(self) -> None:
        """Peace returns: everything is there, and nothing stays behind."""
        if not hasattr(self, "beta"):
            return
        self.live()
        self.put(1)  # so that there is a connection once more, to tell the floor on
        for _ in range(40):
            if len(self.beta.bodies("orders")) == self.count:
                break
            self.run_for(10)
        assert sorted(self.beta.bodies("orders")) == [b"%04d" % each for each in range(self.count)]
        assert self.alpha.depth("dead") == 0
        self.run_for(80)
        assert not self.alpha.store.rows(f"amqp$out/{BETA}")
        assert len(self.beta.receipts) == 0
        for row in self.beta.store.rows("orders"):
            assert Message(row.encoded).to == f"orders@{BETA}"


class DestinationTests(SynchronousTestCase):
    """Runs the machine."""

    def test_machine(self) -> None:
        """Any events in any order."""
        run_state_machine_as_test(
            DestinationMachine,
            settings=settings(
                max_examples=settings().max_examples // 2, stateful_step_count=25, deadline=None
            ),
        )
