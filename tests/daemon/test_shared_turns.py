# SPDX-License-Identifier: Apache-2.0
"""Long work of the daemon takes its turns where HTTP requests and handshakes take theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import gatherResults

from amqproute.broker.exchanges.binding_tables import BindingTarget, ExchangeBinding, TargetKind
from amqproute.broker.exchanges.exchange_graph import ExchangeDefinition, ExchangeType
from amqproute.daemon import drain_mode, health_survey
from amqproute.metrics import snapshot
from amqproute.metrics.families import FAMILIES
from amqproute.metrics.snapshot import MetricsScope
from tests.http.doors import DoorsCase


class SharedTurnTests(DoorsCase):
    """A daemon in this process; its steps that wait are noted by their kinds."""

    async def setUp(self) -> None:
        await super().setUp()
        self.kinds: list[str] = []
        turns = self.app._turns
        put_off = turns.put_off

        def noting(kind: str, source: str, step: Callable[[], None]) -> None:
            self.kinds.append(kind)
            put_off(kind, source, step)

        self.patch(turns, "put_off", noting)

    async def test_survey(self) -> None:
        """STATUS goes on in turns that are shared."""
        self.patch(health_survey, "TURN_WORK", 1)
        reply = await self.by_http("GET", "/api/v1/status")
        self.assertEqual(reply.status, 200)
        self.assertGreaterEqual(self.kinds.count("monitoring"), 2)

    async def test_scrapes(self) -> None:
        """So do several scrapes at one time."""
        self.patch(snapshot, "SLICE_SECONDS", 0.0)
        metrics = self.app.metrics
        assert metrics is not None
        scopes = [MetricsScope(True, frozenset({name})) for name in sorted(FAMILIES)[:3]]
        answers = await gatherResults([metrics.scrape(each) for each in scopes])
        self.assertEqual(len(answers), 3)
        self.assertGreater(self.kinds.count("monitoring"), 3)

    async def test_end_of_an_exchange(self) -> None:
        """So does the end of an exchange with many bindings."""
        topology = self.app.broker.topology
        self.patch(topology.graph, "most_at_once", 2)
        await topology.declare(ExchangeDefinition("e", ExchangeType.TOPIC), "user:root")
        for number in range(9):
            target = BindingTarget(TargetKind.QUEUE, "orders")
            await topology.bind(ExchangeBinding("e", target, f"k{number}"), "user:root")
        await topology.delete("e")
        ended = topology.when_ended(BindingTarget(TargetKind.EXCHANGE, "e"))
        if ended is not None:
            await ended
        self.assertEqual(topology.graph.binding_count, 0)
        self.assertGreaterEqual(self.kinds.count("nodes"), 4)

    async def test_walk_over_a_queue(self) -> None:
        """So does an operator's walk over the messages of a queue."""
        reply = await self.by_http("POST", "/api/v1/queues/orders/move", MOVE)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertIn("nodes", self.kinds)

    async def test_drain(self) -> None:
        """So does a drain's look at all queues."""
        self.patch(drain_mode, "TURN_QUEUES", 1)
        draining = self.app.draining
        assert draining is not None
        draining.begin("user:root")
        while draining.progress is None:
            await self.turn()
        draining.end("user:root")
        self.assertGreaterEqual(self.kinds.count("monitoring"), 3)


MOVE: dict[str, Any] = {"target": "other", "dry-run": True}
