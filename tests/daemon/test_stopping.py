# SPDX-License-Identifier: Apache-2.0
"""The end of a daemon: nobody writes to a store that is closed."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase

from amqproute.config import loads
from amqproute.daemon.assembly import House as Daemon
from amqproute.daemon.resting import MOST_ROUNDS, flush
from amqproute.store.memory import MemoryStore
from amqproute.values import ANONYMOUS_PRINCIPAL, NextHop, Origin
from tests.support.asserts import HouseTestCase
from tests.support.fakes import message, node
from tests.support.house import House, Network

ALPHA = "alpha.example"
BETA = "beta.example"


class RelayTests(HouseTestCase):
    """Ways out that end."""

    def setUp(self) -> None:
        super().setUp()
        self.network = Network(self.clock)
        self.alpha = House(self.network, ALPHA, node("q"))
        self.beta = House(self.network, BETA, node("orders"))

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
        """What comes to lead out during the stop waits for the next start."""
        self.alpha.relay.stop_sending()
        self.put()
        self.run_now()
        self.assertEqual((self.network.connects, self.alpha.depth(BETA)), (0, 1))


class FlushTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.store.open()
        self.commits = 0

    def commit(self, times: int) -> None:
        """Commit, and once it is durable do so again, so many times in all."""
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
        """What is written because of what was written is waited for."""
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
