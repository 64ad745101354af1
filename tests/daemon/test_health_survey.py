# SPDX-License-Identifier: Apache-2.0
"""The survey of a broker: its findings, and the work in one turn of the reactor."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import deferLater

from amqproute.broker.queue import Queue
from amqproute.daemon.health_survey import TURN_WORK, HealthSurvey, recent_facts
from amqproute.relay.destination_row import row_of
from amqproute.relay.relay_terms import RelayTerms
from amqproute.relay.retry_schedule import RetrySchedule
from amqproute.services.health_rules import BrokerFacts, HealthLimits
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from amqproute.wire.amqp10 import spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network

BETA = "beta.example"
MANY = 10_000
LIMITS = HealthLimits(oldest=900, no_consumer=300, no_credit=300, dns=120)


class SurveyCase(HouseTestCase):
    """A broker with some nodes, and beta when a test wants it."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.terms = RelayTerms(RetrySchedule(1.0, 60.0), 10, 20.0)
        self.alpha = self.house("alpha.example", node("q"), node("dead"))
        self.pauses = 0
        self.survey = HealthSurvey(
            self.pause,
            self.alpha.broker._now_ms,
            self.alpha.broker,
            self.alpha.relay,
            lambda: LIMITS,
            lambda: BrokerFacts(recent=recent_facts(self.alpha.broker)),
        )

    async def pause(self) -> None:
        """Go on in the next turn."""
        self.pauses += 1
        await deferLater(self.clock, 0)

    def house(self, domain: str, *nodes: Any) -> MemoryBroker:
        """Build a broker with quick terms."""
        return MemoryBroker(self.network, domain, *nodes, terms=self.terms)

    def found(self) -> dict[str, Any]:
        """Survey, and return the answer."""
        answer = self.survey.status(None)
        while not answer.called:
            self.clock.advance(0)
        return dict(self.successResultOf(answer).body)

    def codes(self) -> list[tuple[str, str]]:
        """Survey, and return codes and subjects."""
        return [(each["code"], each["subject"]) for each in self.found()["verdicts"]]

    def put(self, name: str = "q", *, to: str = f"orders@{BETA}") -> None:
        """Put a message on a node, or on its way."""
        queue = self.alpha.broker.nodes.get(name)
        if queue is None:
            queue = self.alpha.relay.take_on_trust(NextHop(name, name))
        batch = self.alpha.broker.begin()
        queue.put(message(b"x", to=to), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()
        self.run_now()


class FindingTests(SurveyCase):
    """The findings of a survey."""

    def test_nothing(self) -> None:
        """A fresh broker is well, and one with a message that has just come."""
        self.assertEqual(self.found()["verdicts"], [])
        self.put()
        found = self.found()
        self.assertEqual((found["verdicts"], found["messages"]["here"]), ([], 1))

    def test_nobody_receives(self) -> None:
        """First nobody receives, then it is old as well, in whoever's hands."""
        self.put()
        self.run_for(301)
        self.assertEqual(self.codes(), [("node.no-consumer", "q")])
        client = self.alpha.client()
        client.receiver("q", 10)
        self.run_now()
        self.assertEqual(self.codes(), [])
        self.run_for(600, 50)
        self.assertEqual(self.alpha.broker.nodes["q"].acquired, 1)
        self.assertEqual(self.codes(), [("node.oldest", "q")])
        client.settle(client.deliveries, spec.Accepted())
        self.run_now()
        self.assertEqual(self.codes(), [])

    def test_no_credit(self) -> None:
        """A peer that is connected and gives no credit; and gives some again."""
        beta = self.house(BETA, node("orders"))
        self.put(BETA)
        self.run_for(5)
        beta.broker.gate.close("disk", "full")
        self.run_now()
        self.put(BETA)
        self.run_for(290, 10)
        self.assertEqual((self.codes(), self.alpha.depth(BETA)), ([], 1))
        self.run_for(20, 10)
        self.assertEqual(self.codes(), [("peer.no-credit", BETA)])
        beta.broker.gate.open("disk")
        self.run_for(5)
        self.assertEqual((self.codes(), self.alpha.depth(BETA)), ([], 0))

    def test_rejections(self) -> None:
        """By a peer, with their kind; by a consumer here; and what becomes a dead letter."""
        self.house(BETA, node("orders", capacity=1))
        self.alpha.broker.nodes["q"].dead_letter_name = "dead"
        self.put(BETA, to=f"nobody@{BETA}")
        self.put(BETA)
        self.put(BETA)
        self.put("q")
        client = self.alpha.client()
        client.receiver("q", 10)
        self.run_now()
        error = spec.Error(condition="x:not-mine")
        client.settle(client.deliveries, spec.Rejected(error=error))
        self.run_for(1, 0.1)
        found = {each["code"]: each["description"] for each in self.found()["verdicts"]}
        self.assertEqual(set(found), {"peer.rejects", "node.rejects", "node.dead-letters"})
        self.assertIn("no node (amqp:not-found): 1", found["peer.rejects"])
        self.assertIn("full (amqp:resource-limit-exceeded): ", found["peer.rejects"])
        self.assertIn("by a consumer (x:not-mine): 1", found["node.rejects"])
        kinds = row_of(self.alpha.relay.destinations[BETA])["rejections"]
        self.assertEqual(kinds["no node"], 1)
        self.run_for(3700, 50)
        self.assertNotIn("node.rejects", dict(self.codes()))


class CostTests(SurveyCase):
    """The work of a survey in one turn."""

    def test_many_queues(self) -> None:
        """Ten thousand nodes: this many are looked at in a turn and no more, and no message is."""
        self.alpha.broker.declare([node(f"n{number}") for number in range(MANY)], {})
        looks = [0]
        depth = Queue.depth.fget
        assert depth is not None

        def counting(queue: Queue) -> int:
            looks[0] += 1
            return int(depth(queue))

        self.patch(Queue, "depth", property(counting))
        answer = self.survey.status(None)
        second = self.survey.status(None)
        worst = turns = 0
        while not answer.called:
            turns += 1
            worst = max(worst, looks[0])
            looks[0] = 0
            self.step()
        self.assertLessEqual(worst, 2 * (TURN_WORK + 1))
        self.assertGreaterEqual(turns, MANY // TURN_WORK)
        self.assertGreaterEqual(self.pauses, MANY // TURN_WORK - 1)
        reply = self.successResultOf(answer)
        self.assertEqual(reply.body["verdicts"], [])
        self.assertIs(self.successResultOf(second), reply)
