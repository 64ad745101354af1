# SPDX-License-Identifier: Apache-2.0
"""The end of a daemon: nobody writes to a closed store."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase, TestCase

from amqproute.broker.xa_states import Xa
from amqproute.config import loads
from amqproute.daemon import assembly
from amqproute.daemon.assembly import Application as Daemon
from amqproute.daemon.shutdown import MOST_ROUNDS, drain_connections, flush
from amqproute.errors import StoreError
from amqproute.message import Message
from amqproute.services import xa_node
from amqproute.services.management_node import MANAGEMENT, ManagementReply, ManagementService
from amqproute.store.memory import MemoryStore
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from amqproute.wire.amqp10 import codec, sections, spec
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.memory_broker import MemoryBroker, Network

ALPHA = "alpha.example"
BETA = "beta.example"


def request(body: Any, reply_to: str, **terms: Any) -> Message:
    """Return a request to a service."""
    return Message(
        codec.encode(spec.Properties(message_id="m1", reply_to=reply_to))
        + sections.encode_section(spec.SECTION_APPLICATION_PROPERTIES, terms)
        + sections.encode_section(spec.SECTION_AMQP_VALUE, body)
    )


class RelayTests(HouseTestCase):
    """Ways out that end."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = MemoryBroker(self.network, ALPHA, node("q"))
        self.beta = MemoryBroker(self.network, BETA, node("orders"))

    def put(self, to: str = BETA) -> None:
        queue = self.alpha.relay.take_on_trust(NextHop(to, to))
        batch = self.alpha.broker.begin()
        queue.put(message(to=f"orders@{to}"), batch, Origin(ANONYMOUS_PRINCIPAL))
        batch.commit()

    def test_goodbye_answered_late(self) -> None:
        """A peer may answer our close when the store is closed: nothing is written then."""
        self.put()
        self.run_now()
        self.assertEqual(self.alpha.depth(BETA), 0)
        self.alpha.relay.stop_sending()
        self.alpha.relay.close()
        self.assertFalse(self.alpha.relay.is_closed)
        self.alpha.store.close()
        self.run_now()
        self.assertTrue(self.alpha.relay.is_closed)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_connection_lost_late(self) -> None:
        """The connection may be lost instead, with messages in doubt."""
        self.put()
        while not self.beta.depth("orders"):
            self.step()
        self.alpha.relay.stop_sending()
        self.alpha.store.close()
        self.network.wires[0].cut()
        self.run_now()
        self.assertTrue(self.alpha.relay.is_closed)
        self.assertEqual(len(self.alpha.store.rows(f"amqp$out/{BETA}")), 1)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_new_way_out(self) -> None:
        """Messages routed to peers during the stop wait for the next start."""
        self.alpha.relay.stop_sending()
        self.put()
        self.run_now()
        self.assertEqual((self.network.connects, self.alpha.depth(BETA)), (0, 1))


class ReplyTests(HouseTestCase):
    """Requests to services, the commands of a transaction manager among them."""

    def setUp(self) -> None:
        super().setUp()
        self.house = MemoryBroker(Network(self.clock), ALPHA, node("q"))
        self.working: Deferred[Any] = Deferred()
        broker = self.house.broker

        def allows(*_: Any) -> bool:
            return True

        management = ManagementService(broker, allows, lambda: 0)
        management.operations["SLOW"] = lambda request: self.working.addCallback(
            lambda _: ManagementReply.of(200, "done")
        )
        broker.services[MANAGEMENT] = management
        broker.services[xa_node.DTX_COORDINATOR] = xa_node.XaNode(broker, self, allows)  # type: ignore[arg-type]

    async def prepare(self, owner: str, xid: Any) -> Xa:
        """Stand in for the branches."""
        await self.working
        return Xa.OK

    def is_told(self, service: str, operation: str, patience: float = 10.0) -> list[Any]:
        """Ask, begin to stop, end the work after 5 s; return what the client has got."""
        house = self.house
        client = house.client()
        replies = client.receiver(None, 10, source=spec.Source(dynamic=True))
        asking = client.sender(service)
        self.run_now()
        reply_to = replies.remote_attach.source.address
        client.send(asking, request({"xid": [1, b"g", b"b"]}, reply_to, operation=operation))
        self.run_now()
        house.shared.is_stopping = True
        for frontend in house.shared.connections:
            frontend.stop_taking()
        rested = Deferred.fromCoroutine(
            drain_connections(self.clock, house.shared, house.relay, patience)
        )
        self.run_for(5, 0.1)
        if patience > 5:
            self.assertNoResult(rested)
        self.working.callback(None)
        self.run_for(6, 0.1)
        self.successResultOf(rested)
        return client.deliveries

    def test_management(self) -> None:
        self.assertEqual(len(self.is_told(MANAGEMENT, "SLOW")), 1)

    def test_branch(self) -> None:
        """A client whose prepare was pending hears the result."""
        (reply,) = self.is_told(xa_node.DTX_COORDINATOR, "prepare")
        self.assertEqual(Message(reply.payload).application_properties["xaCode"], 0)

    def test_patience(self) -> None:
        """It is not waited for for ever."""
        self.is_told(MANAGEMENT, "SLOW", patience=3.0)


class FlushTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.store.open()
        self.commits = 0

    def commit(self, times: int) -> None:
        """Commit, and once it is durable do so again, this many times in all."""
        done: Deferred[Any] = self.store.begin().commit()
        self.commits += 1
        if times > 1:
            done.addCallback(lambda _: self.commit(times - 1))

    def flush(self) -> int:
        """Flush; return how many commits there had been when that was over."""
        flushed = Deferred.fromCoroutine(flush(self.store)).addCallback(lambda _: self.commits)
        self.assertNoResult(flushed)
        self.clock.advance(0)
        return self.successResultOf(flushed)

    def test_idle(self) -> None:
        """Once is enough when nobody writes."""
        self.flush()
        self.assertEqual(self.store.statistics()["submitted"], 1)

    def test_what_follows(self) -> None:
        """Writes caused by other writes are waited for."""
        self.commit(7)
        self.assertEqual(self.flush(), 7)
        self.store.close()
        self.clock.advance(0)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_never_ends(self) -> None:
        """Somebody who writes for ever does not keep the daemon from stopping."""
        self.commit(10 * MOST_ROUNDS)
        self.assertLess(self.flush(), 3 * MOST_ROUNDS)


class DaemonTests(TestCase):
    """A whole daemon, on the reactor."""

    def test_order(self) -> None:
        """Connections end first, then timers, then what is written is waited for, then the store.

        A commit that has another follow it finds the store open; timers that are left are what
        the test runner looks for.
        """
        state = self.mktemp()
        words = f"state-directory: {state}\nlisten: []\nnodes: [{{name: q}}]\n"
        daemon = Daemon(loads(words, "f"), reactor)
        return Deferred.fromCoroutine(self.stops(daemon))  # type: ignore[return-value]

    async def stops(self, daemon: Daemon) -> None:
        await daemon.start()
        assert daemon.relay is not None
        queue = daemon.relay.take_on_trust(NextHop(BETA, BETA))
        late: list[str] = []

        def once_more(_: object) -> None:
            batch = daemon.broker.begin()
            queue.put(message(ttl=1), batch, Origin(ANONYMOUS_PRINCIPAL))
            batch.commit().addBoth(lambda result: late.append(repr(result)))

        daemon.store.begin().commit().addCallback(once_more)
        closing = daemon.store.close

        def close() -> Any:
            late.append("close")
            return closing()

        self.patch(daemon.store, "close", close)
        await daemon.stop()
        self.assertEqual(late, ["None", "close"])
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_store_that_fails_last(self) -> None:
        """A store that does not write any more is closed all the same, and the log says why."""
        words = f"state-directory: {self.mktemp()}\nlisten: []\n"
        daemon = Daemon(loads(words, "f"), reactor)

        async def stops() -> None:
            await daemon.start()

            async def failing(store: object) -> None:
                raise StoreError("broken")

            self.patch(assembly, "flush", failing)
            closed: list[object] = []
            closing = daemon.store.close
            self.patch(daemon.store, "close", lambda: closing().addCallback(closed.append))
            seen: list[str] = []
            observer = lambda event: seen.append(event.get("error", ""))  # noqa: E731
            globalLogPublisher.addObserver(observer)
            try:
                await daemon.stop()
            finally:
                globalLogPublisher.removeObserver(observer)
            self.assertEqual(closed, [None])
            self.assertIn("broken", seen)

        return Deferred.fromCoroutine(stops())  # type: ignore[return-value]
