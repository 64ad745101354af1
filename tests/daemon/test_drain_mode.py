# SPDX-License-Identifier: Apache-2.0
"""A drain: the gate, its end, and its reversal."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import SynchronousTestCase

from amqproute.auth.policy import Verb
from amqproute.broker.broker import Broker
from amqproute.broker.publish_gate import DISK
from amqproute.daemon import drain_mode
from amqproute.daemon.drain_mode import LOOK_SECONDS, DrainMode
from amqproute.services.health_rules import BrokerFacts, HealthLimits, judge_broker
from amqproute.services.management_node import (
    MANAGEMENT,
    ManagementReply,
    ManagementRequest,
    ManagementService,
)
from amqproute.store.memory import MemoryStore
from amqproute.values import ANONYMOUS_PRINCIPAL, Principal


def queue(name: str, depth: int = 0, consumers: int = 0, acquired: int = 0) -> Any:
    """Return what is looked at of a queue."""
    return SimpleNamespace(name=name, depth=depth, consumers=consumers, acquired=acquired)


def hop(key: str, depth: int = 0, **more: Any) -> Any:
    """Return what is looked at of a next hop."""
    facts = {
        "hop": SimpleNamespace(key=key),
        "queue": queue(key, depth),
        "held": None,
        "failures": 0,
        "state": SimpleNamespace(value="open"),
        "last_error": "",
        "dns_since_ms": None,
        "is_quiet": True,
    }
    return SimpleNamespace(**{**facts, **more})


class DrainingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        store = MemoryStore(self.clock)
        store.open()
        self.clock.advance(0)
        self.broker = Broker(store, self.clock, lambda: 0, lambda: "dynamic")
        self.relay = SimpleNamespace(destinations={})
        self.frontends: list[Any] = []
        self.draining = DrainMode(
            self.clock,
            self.broker,
            self.relay,
            lambda: self.frontends,  # type: ignore[arg-type]
            partial(deferLater, self.clock, 0),
        )
        self.addCleanup(self.draining.stop)
        self.may = True
        self.asked: list[tuple[Any, str]] = []
        self.service = ManagementService(self.broker, self.allows, lambda: 0)
        self.draining.register(self.service)

    def allows(self, principal: Principal, verb: Verb, node: str) -> bool:
        self.asked.append((verb, node))
        return self.may

    def ask(self, operation: str) -> Any:
        """Ask the management node; return the body of the answer."""
        reply = self.service.answer(ManagementRequest(operation, {}, {}, ANONYMOUS_PRINCIPAL))
        assert isinstance(reply, ManagementReply)
        self.status = reply.status
        return reply.body

    def nodes(self, *found: Any) -> None:
        self.patch(self.broker, "nodes", {each.name: each for each in found})

    def hops(self, *found: Any) -> None:
        self.relay.destinations = {each.hop.key: each for each in found}

    def look(self) -> Any:
        """Wait for the next look; return how far it has come."""
        self.clock.pump([LOOK_SECONDS, 0, 0, 0])
        return self.ask("DRAIN-STATUS")

    def test_gate(self) -> None:
        """The gate is closed, opens again at the end, and only for this reason."""
        self.assertFalse(self.ask("DRAIN-STATUS")["draining"])
        self.assertTrue(self.ask("DRAIN")["draining"])
        self.assertFalse(self.broker.gate.is_open)
        self.ask("DRAIN")
        self.assertEqual(self.broker.gate.closed, 1)
        self.broker.gate.close(DISK, "full")
        self.assertFalse(self.ask("DRAIN-END")["draining"])
        self.assertEqual(list(self.broker.gate.reasons), [DISK])
        self.broker.gate.open(DISK)
        self.assertTrue(self.broker.gate.is_open)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_rights(self) -> None:
        """It takes the right to manage the management node; nothing happens without."""
        self.may = False
        for operation in ("DRAIN", "DRAIN-END", "DRAIN-STATUS"):
            self.ask(operation)
            self.assertEqual(self.status, 403, operation)
        self.assertTrue(self.broker.gate.is_open)
        self.assertEqual(set(self.asked), {(Verb.MANAGE, MANAGEMENT)})

    def test_done(self) -> None:
        """Messages that can leave delay the end; those that cannot are named and do not."""
        for nodes, hops, writing, moving, staying in (
            ((), (), 0, 0, 0),
            ((queue("q", 3),), (), 0, 0, 3),
            ((queue("q", 3, consumers=1),), (), 0, 3, 0),
            ((queue("q", 3, acquired=2),), (), 0, 2, 1),
            ((), (hop("b", 4),), 0, 4, 0),
            ((), (hop("b", 4, failures=1),), 0, 0, 4),
            ((), (hop("b", 4, held="audit"),), 0, 0, 4),
            ((), (hop("b", 4, state=SimpleNamespace(value="refused")),), 0, 0, 4),
            ((), (hop("b", 4, dns_since_ms=1),), 0, 0, 4),
            ((), (hop("b", 4, failures=1, is_quiet=False),), 0, 4, 0),
            ((), (hop("b", 0, is_quiet=False),), 0, 1, 0),
            ((), (), 2, 0, 0),
        ):
            self.nodes(*nodes)
            self.hops(*hops)
            self.frontends[:] = [SimpleNamespace(is_idle=False)] * writing
            self.ask("DRAIN")
            facts = self.look()
            found = (facts["moving"], facts["staying"], facts["writing"], facts["done"])
            expected = (moving, staying, writing, not moving and not writing)
            self.assertEqual(found, expected, (nodes, hops, writing))
            self.assertEqual(len(facts["stuck"]), bool(staying))
            self.ask("DRAIN-END")

    def test_goes_on(self) -> None:
        """Done is said when it is so, and taken back when it is not so any more."""
        self.nodes(queue("q", 3, consumers=1))
        self.ask("DRAIN")
        self.assertFalse(self.look()["done"])
        self.nodes(queue("q", 3))
        self.assertTrue(self.look()["done"])
        self.assertIn("3 messages cannot go now", self.draining.status())
        self.nodes(queue("q", 3, consumers=1))
        self.assertFalse(self.look()["done"])

    def test_turns(self) -> None:
        """Many queues are looked at in several turns; an end in between is an end."""
        self.nodes(*(queue(f"q{number}", 1) for number in range(3 * drain_mode.TURN_QUEUES)))
        self.ask("DRAIN")
        self.assertIsNone(self.draining.progress)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.ask("DRAIN-END")
        self.clock.pump([0] * 10)
        self.assertIsNone(self.draining.progress)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.ask("DRAIN")
        self.clock.pump([0] * 10)
        facts = self.look()
        self.assertEqual((facts["staying"], len(facts["stuck"])), (1500, drain_mode.MOST_NAMED))

    def test_status(self) -> None:
        """It is a verdict of `status`, with the command that tells more."""
        self.ask("DRAIN")
        self.look()
        facts = BrokerFacts(draining=self.draining.status())
        (verdict,) = judge_broker(facts, HealthLimits())
        self.assertEqual(
            (verdict.code, verdict.command), ("daemon.draining", "amqproute drain --status")
        )
