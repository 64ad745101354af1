# SPDX-License-Identifier: Apache-2.0
"""Holding, releasing, waking and purging relay queues through the management node."""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.broker.node_limits import QueueLimits
from amqproute.message import Message
from amqproute.relay.connect_agent import PlacesUnreachable
from amqproute.relay.failure_verdict import FailureAction, FailureScope, FailureVerdict
from amqproute.relay.relay import Relay
from amqproute.relay.relay_context import RelayEnvironment
from amqproute.relay.relay_terms import RelayTerms
from amqproute.services import relay_commands
from amqproute.services.management_node import ManagementReply, ManagementRequest, ManagementService
from amqproute.store.memory import MemoryStore
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from amqproute.wire.amqp10 import codec, spec

GONE = FailureVerdict(FailureScope.HOST, FailureAction.NEXT_HOST, "connect.refused", "nobody there")
MESSAGE = codec.encode(spec.Header(durable=True)) + b"\x00\x53\x75\xa0\x01x"


class _DeadAgent:
    """An agent to which every peer is silent for ever."""

    def __init__(self) -> None:
        self.asked = 0

    async def open(self, hop: NextHop, told: Any) -> Any:
        self.asked += 1
        raise PlacesUnreachable(GONE, ["nobody there"])


class _Routes:
    """The routes of a test, by its method `way`."""

    def __init__(self, test: RelayOperationTests) -> None:
        self._test = test

    def hop_of_key(self, key: str) -> NextHop:
        """See `RelayRoutes.hop_of_key`."""
        return NextHop(key, key, via=f"amqps://{key}:5671")

    def hop(self, domain: str) -> NextHop:
        """See `RelayRoutes.hop`."""
        return NextHop(self._test.way(domain), domain)


class RelayOperationTests(SynchronousTestCase):
    """The operations act on the destination that is named."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.recovery = self.result_of(self.store.open())
        self.agent = _DeadAgent()
        self.allowed = True
        self.relay = self.house()
        self.hop = NextHop("beta.example", "beta.example", via="amqps://beta.example:5671")

    def result_of(self, deferred: Any) -> Any:
        """The result of a Deferred of the store's, which fires on the next turn."""
        self.clock.advance(0)
        return self.successResultOf(deferred)

    def house(self) -> Relay:
        """A broker with a relay over the store, and its management node."""
        self.broker = Broker(self.store, self.clock, lambda: 0, lambda: "dynamic")
        self.broker.recovered_nodes.recovered(self.recovery.queues)
        relay = Relay(
            self.broker,
            self.agent,  # type: ignore[arg-type]
            _Routes(self),
            RelayEnvironment(self.clock, lambda: 0, lambda: 0.5),
            RelayTerms(),
            QueueLimits(),
        )
        self.service = ManagementService(self.broker, lambda *_: True, lambda: 0)
        relay_commands.register(self.service, relay, lambda *_: self.allowed)
        self.addCleanup(relay.stop)
        return relay

    def way(self, domain: str) -> str:
        """Return the key of the next hop for a domain."""
        return domain

    def put(self, count: int) -> None:
        """Put durable messages on the relay queue."""
        batch = self.broker.begin()
        for _ in range(count):
            self.relay.take_on_trust(self.hop).put(
                Message(MESSAGE), batch, Origin(ANONYMOUS_PRINCIPAL)
            )
        self.result_of(batch.commit())

    def ask(
        self, operation: str, name: str | None = "beta.example", **body: Any
    ) -> ManagementReply:
        """Ask the management node."""
        properties = {} if name is None else {"name": name}
        request = ManagementRequest(operation, properties, body, ANONYMOUS_PRINCIPAL)
        reply = self.service.answer(request)
        assert isinstance(reply, ManagementReply)
        return reply

    def test_hold(self) -> None:
        """A held destination takes messages and asks for no connection; RELEASE ends that."""
        self.relay.take_on_trust(self.hop)
        reply = self.ask("HOLD", reason="their disk is full")
        self.assertEqual((reply.status, reply.body["held"]), (200, "their disk is full"))
        self.put(2)
        self.clock.advance(0)
        self.assertEqual(self.agent.asked, 0)
        self.assertEqual(self.ask("RELEASE", "amqp$out/beta.example").status, 200)
        self.clock.advance(0)
        self.assertEqual(self.agent.asked, 1)

    def test_hold_outlives_a_restart(self) -> None:
        """A hold is kept in the store, even of a queue that is not there any more."""
        self.relay.take_on_trust(self.hop)
        self.ask("HOLD", reason="audit")
        self.clock.advance(0)
        (hold,) = self.relay.holds
        again = self.house()
        again.recovered({}, {hold.id: hold.encode()})
        again.take_on_trust(self.hop)
        self.assertEqual(again.destinations["beta.example"].held, "audit")

    def test_retry_now(self) -> None:
        """RETRY-NOW ends the back-off."""
        self.put(1)
        self.clock.advance(0)
        self.assertEqual(self.agent.asked, 1)
        self.clock.advance(0)
        self.assertEqual(self.agent.asked, 1)
        self.assertEqual(self.ask("RETRY-NOW").status, 200)
        self.clock.advance(0.1)
        self.assertEqual(self.agent.asked, 2)

    def test_purge(self) -> None:
        """PURGE deletes what waits and says how much that was."""
        self.put(3)
        reply = self.ask("PURGE")
        self.assertEqual((reply.status, reply.body["messages"]), (200, 3))
        self.clock.advance(0)
        self.assertEqual(self.relay.destinations["beta.example"].queue.depth, 0)
        self.assertEqual(self.result_of(self.store.load("amqp$out/beta.example", 0, 9, 999)), [])

    def test_expire(self) -> None:
        """EXPIRE ends the life of what waits, as time would have."""
        queue = self.relay.take_on_trust(self.hop)
        self.put(3)
        reply = self.ask("EXPIRE", reason="beta has closed down")
        self.assertEqual((reply.status, reply.body["messages"]), (200, 3))
        self.clock.advance(0)
        self.assertEqual((queue.depth, queue.tally.expired, queue.tally.dead_lettered), (0, 3, 3))
        self.assertEqual(self.ask("EXPIRE", reason=7).status, 400)
        self.assertEqual(self.result_of(self.store.load("amqp$out/beta.example", 0, 9, 999)), [])

    def test_no_right(self) -> None:
        """A request without the right to manage the relay queue changes nothing."""
        self.relay.take_on_trust(self.hop)
        self.allowed = False
        for operation in ("HOLD", "RELEASE", "RETRY-NOW", "EXPIRE", "PURGE"):
            self.assertEqual(self.ask(operation).status, 403, operation)
        self.assertEqual(len(self.relay.holds), 0)

    def test_refusals(self) -> None:
        """No name, an unknown name and a foul reason are answered, not obeyed."""
        self.assertEqual(self.ask("HOLD", None).status, 400)
        self.assertEqual(self.ask("HOLD", "gamma.example").status, 404)
        self.relay.take_on_trust(self.hop)
        self.assertEqual(self.ask("HOLD", reason=7).status, 400)
        self.assertIsNone(self.relay.destinations["beta.example"].held)
