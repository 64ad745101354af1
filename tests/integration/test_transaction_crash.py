# SPDX-License-Identifier: Apache-2.0
"""Kill the daemon while it commits transactions: each takes effect as a whole, or not at all.

Messages move from one queue to another, a few in each transaction. The daemon is killed (SIGKILL)
at some moment around a discharge and started again. No message may be lost, none may be in both
queues, and a transaction whose discharge was answered with accepted has happened.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import codec, spec
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10.types import Described, ULong
from tests.integration.support import Daemon, Wire, body_of, message, until

ROUNDS = 40 if os.environ.get("AMQPROUTE_CRASH") == "long" else 6
TOGETHER = 5
"""Messages that move in one transaction."""


class Mover:
    """A client that moves messages from ``here`` to ``there`` in transactions."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(port)
        self.control = self.wire.attach("sender", None, target=spec.Coordinator())
        self.source = self.wire.attach("receiver", "here")
        self.target = self.wire.attach("sender", "there")
        self.tags = 0

    def tag(self) -> bytes:
        """Return a fresh delivery-tag."""
        self.tags += 1
        return b"%d" % self.tags

    def command(self, body: Any) -> Any:
        """Send a message to the coordinator; return the delivery."""
        encoded = codec.encode(Described(ULong(spec.SECTION_AMQP_VALUE), body))
        delivery = self.control.send((encoded,), self.tag())
        self.wire.flush()
        return delivery

    def begin(self) -> tuple[bytes, set[bytes]]:
        """Take some messages and send them on; return the transaction and their bodies."""
        declare = self.command(spec.Declare())
        self.wire.wait(lambda _: isinstance(declare.state, spec.Declared))
        txn_id = declare.state.txn_id
        self.source.flow(TOGETHER)
        taken: list[Any] = []
        while len(taken) < TOGETHER:
            for event in self.wire.read():
                if type(event) is ev.DeliveriesReceived:
                    taken.extend(event.deliveries)
        for delivery in taken:
            state = spec.TransactionalState(txn_id=txn_id)
            self.target.send((delivery.payload,), self.tag(), state=state)
        state = spec.TransactionalState(txn_id=txn_id, outcome=spec.Accepted())
        self.wire.session.settle(taken, state, False)
        self.wire.flush()
        return txn_id, {body_of(delivery.payload) for delivery in taken}

    def answered(self, discharge: Any, seconds: float) -> bool:
        """Wait a while for the answer; tell whether it has come, and that it is accepted."""
        end = time.monotonic() + seconds
        while not discharge.settled and time.monotonic() < end:
            try:
                self.wire.read(max(0.001, end - time.monotonic()))
            except TimeoutError:
                break
        if discharge.settled:
            assert isinstance(discharge.state, spec.Accepted), discharge.state
        return bool(discharge.settled)


class TransactionCrashTests(SynchronousTestCase):
    def setUp(self) -> None:
        queues = [{"name": "here"}, {"name": "there"}]
        self.daemon = Daemon("crash.example", changes={"nodes": queues}).start()
        self.addCleanup(self.daemon.kill)

    def held(self, node: str) -> list[bytes]:
        """Look at all that a queue has, and leave it there."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", node)
            link.flow(10_000, drain=True)
            wire.flush()
            found: list[bytes] = []

            def drained() -> bool:
                for event in wire.read():
                    if type(event) is ev.DeliveriesReceived:
                        found.extend(body_of(each.payload) for each in event.deliveries)
                return link.credit == 0

            until(drained, "a drained link")
            return found

    def test_kill(self) -> None:
        seed = int(os.environ.get("AMQPROUTE_CRASH_SEED", "0")) or random.randrange(1, 1 << 30)
        chance = random.Random(seed)
        everything = [b"%04d" % number for number in range(ROUNDS * TOGETHER * 3)]
        with Wire(self.daemon.plain) as wire:
            wire.publish("here", [message(each, durable=True) for each in everything])
        moved: set[bytes] = set()
        for number in range(ROUNDS):
            mover = Mover(self.daemon.plain)
            for _ in range(chance.randrange(2)):
                txn_id, bodies = mover.begin()
                discharge = mover.command(spec.Discharge(txn_id=txn_id))
                self.assertTrue(mover.answered(discharge, 20))
                moved |= bodies
            txn_id, bodies = mover.begin()
            discharge = mover.command(spec.Discharge(txn_id=txn_id))
            # Killed at once, while it is being written, or after the answer.
            is_told = mover.answered(discharge, chance.choice((0.0, 0.0, 0.002, 0.005, 20.0)))
            self.daemon.kill()
            mover.wire.socket.close()
            self.daemon.start()
            here, there = self.held("here"), self.held("there")
            words = f"round {number}, seed {seed}"
            self.assertEqual(sorted(here + there), everything, words)
            self.assertTrue(moved <= set(there), words)
            if is_told:
                self.assertTrue(bodies <= set(there), words)
            self.assertIn(bodies & set(there), (set(), bodies), words)
            moved |= bodies & set(there)
            self.assertEqual(moved, set(there), words)
        self.daemon.check()
        self.assertEqual(self.daemon.stop(), 0)
