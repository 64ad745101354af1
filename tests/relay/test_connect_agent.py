# SPDX-License-Identifier: Apache-2.0
"""Attempts: the order of candidates, the effect of each failure, and its report."""

from __future__ import annotations

from typing import Any

from amqproute import conditions
from amqproute.errors import ResolveError
from amqproute.relay.connect_agent import static_candidate
from amqproute.relay.lifecycle import DestinationState
from amqproute.relay.relay_terms import RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    Candidate,
    NextHop,
    Origin,
    Resolution,
    TransportSecurity,
)
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network

BETA = "beta.example"


class CandidateTests(HouseTestCase):
    """Beta has three hosts."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.hosts = ["one.example", "two.example", "three.example"]
        self.network.resolve = self.resolve  # type: ignore[method-assign]
        terms = RelayTerms(RetrySchedule(10.0, 60.0))
        self.alpha = MemoryBroker(self.network, "alpha.example", terms=terms)

    async def resolve(self, domain: str) -> Resolution:
        """Name the hosts in their order."""
        candidates = tuple(
            Candidate(host, 5671, TransportSecurity.IMPLICIT, ("192.0.2.1",), 0, 0, "srv")
            for host in self.hosts
        )
        return Resolution(domain, candidates, ("asked",), 60.0, False, False)

    def host(self, name: str) -> MemoryBroker:
        """Put a host of beta's on the network."""
        return MemoryBroker(self.network, name, node("orders"))

    def put(self) -> Any:
        """Send a message to beta; return its destination."""
        queue = self.alpha.relay.take_on_trust(NextHop(BETA, BETA))
        batch = self.alpha.broker.begin()
        body = message(to="orders@two.example")
        queue.put(body, batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()
        self.run_now()
        return self.alpha.relay.destinations[BETA]

    def test_next_host(self) -> None:
        """A host that is dead is passed over, at once (T-35)."""
        self.host("two.example")
        destination = self.put()
        self.assertEqual((destination.state, destination.failures), (DestinationState.OPEN, 0))
        self.assertEqual((self.network.connects, destination.remote_id), (2, "ct-two.example"))
        self.assertEqual(self.network.houses["two.example"].depth("orders"), 1)

    def test_every_attempt_is_told(self) -> None:
        """When nobody answers the operator learns of each place and what it said."""
        destination = self.put()
        self.assertEqual((destination.state, self.network.connects), (DestinationState.WAITING, 3))
        self.assertEqual(
            destination.backoff.last_attempts,
            tuple(f"{host}: connection refused" for host in self.hosts),
        )

    def test_host_that_refuses(self) -> None:
        """A host that closes with an error is left for the next one."""
        for condition in (conditions.CONNECTION_FORCED, conditions.NOT_FOUND):
            house = self.host("one.example")
            accept = house.accept

            def refuse(principal: Any, accept: Any = accept, condition: Any = condition) -> Any:
                engine, frontend = accept(principal)

                def events(given: Any) -> None:
                    engine.open()
                    engine.close(spec.Error(condition=condition, description="not here"))

                frontend.events = events
                return engine, frontend

            house.accept = refuse  # type: ignore[method-assign]
            two = self.host("two.example")
            destination = self.put()
            self.assertEqual(destination.remote_id, "ct-two.example")
            self.assertEqual(two.depth("orders"), 1)
            for wire in self.network.wires:
                wire.cut()
            self.run_for(30)
            self.run_now()
            self.network.houses.clear()
            self.network.houses["alpha.example"] = self.alpha
            for wire in self.network.wires:
                wire.cut()
            self.run_for(120)

    def test_whole_destination(self) -> None:
        """A refusal that is about everybody there is not taken to the next host."""
        house = self.host("one.example")
        accept = house.accept

        def full(principal: Any) -> Any:
            engine, frontend = accept(principal)

            def events(given: Any) -> None:
                engine.open()
                engine.close(
                    spec.Error(condition=conditions.RESOURCE_LIMIT_EXCEEDED, description="full")
                )

            frontend.events = events
            return engine, frontend

        house.accept = full  # type: ignore[method-assign]
        self.host("two.example")
        destination = self.put()
        self.assertEqual((destination.state, self.network.connects), (DestinationState.WAITING, 1))
        self.assertIn("full", destination.last_error)

    def test_no_resolution(self) -> None:
        """DNS errors are reported as well."""

        async def fails(domain: str) -> Resolution:
            raise ResolveError("dns.servfail", "broken", permanent=False, attempts=("SRV: broken",))

        self.network.resolve = fails  # type: ignore[method-assign]
        destination = self.put()
        self.assertEqual(destination.backoff.last_attempts, ("SRV: broken",))
        self.assertEqual(destination.state, DestinationState.WAITING)

    def test_bug_on_the_way(self) -> None:
        """An exception that nobody expected is logged, and the destination tries again."""

        async def fails(domain: str) -> Resolution:
            raise KeyError(domain)

        self.network.resolve = fails  # type: ignore[method-assign]
        destination = self.put()
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.assertEqual(destination.state, DestinationState.WAITING)

    def test_static(self) -> None:
        """A gateway is asked without the DNS."""
        for via, port, security in (
            ("amqps://gw.example", 5671, TransportSecurity.IMPLICIT),
            ("amqp://gw.example", 5672, TransportSecurity.UPGRADE),
            ("amqps://gw.example:99", 99, TransportSecurity.IMPLICIT),
        ):
            found = static_candidate(via)
            self.assertEqual(
                (found.host, found.port, found.security), ("gw.example", port, security)
            )
