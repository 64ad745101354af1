# SPDX-License-Identifier: Apache-2.0
"""Kill the daemon while a publisher sends exactly once: each message is stored once (P-16, K-23).

The publisher has a stable link name. When its connection breaks it attaches again with its
unsettled map: what the daemon has taken it settles, what it has not it sends again.
"""

from __future__ import annotations

import os
import random
import time
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.values import EXACTLY_ONCE_CAPABILITY
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.types import Symbol
from tests.integration.support import Daemon, Wire, body_of, message, until

ROUNDS = 40 if os.environ.get("AMQPROUTE_CRASH") == "long" else 6
EACH = 60
"""Messages in one round."""
PROPERTIES = {Symbol("delivery-mode"): Symbol("exactly-once")}


class Publisher:
    """A publisher that confirms what it hears, some of it."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes] = {}
        self.resumed = 0

    def connect(self, port: int) -> None:
        """Come back, and bring what was in doubt to its end."""
        self.wire = Wire(port, container="publisher")
        self.link = self.wire.attach(
            "sender",
            "q",
            "the-link",
            properties=PROPERTIES,
            desired_capabilities=(EXACTLY_ONCE_CAPABILITY,),
            unsettled=dict.fromkeys(self.waiting) or None,
        )
        attach = self.link.remote_attach
        assert attach is not None
        assert attach.target.durable == spec.DURABLE_UNSETTLED_STATE
        assert attach.rcv_settle_mode == spec.RECEIVER_SECOND
        theirs = attach.unsettled or {}
        for tag, payload in list(self.waiting.items()):
            self.room()
            if tag in theirs:
                assert isinstance(theirs[tag], spec.Accepted), theirs[tag]
                self.link.send((b"",), tag, settled=True, resume=True, state=theirs[tag])
                del self.waiting[tag]
                self.resumed += 1
            else:
                self.link.send((payload,), tag)

    def room(self) -> None:
        """Wait for credit."""
        while self.link.sendable <= 0:
            self.hear(self.wire.read())

    def send(self, tag: bytes, payload: bytes) -> None:
        """Send one."""
        self.room()
        self.waiting[tag] = payload
        self.link.send((payload,), tag)

    def hear(self, events: list[Any]) -> None:
        """Settle what has an outcome."""
        for event in events:
            if type(event) is ev.DeliveriesUpdated:
                assert isinstance(event.state, spec.Accepted), event.state
                self.wire.session.settle(event.deliveries, event.state, True)
                for each in event.deliveries:
                    self.waiting.pop(each.tag, None)

    def hear_for(self, seconds: float) -> None:
        """Listen for a while."""
        end = time.monotonic() + seconds
        self.wire.flush()
        while (left := end - time.monotonic()) > 0 and self.waiting:
            try:
                self.hear(self.wire.read(max(0.001, left)))
            except TimeoutError:
                break
        self.wire.flush()


class ExactlyOnceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.daemon = Daemon("once.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(self.daemon.kill)

    def held(self) -> list[bytes]:
        """Take everything from the queue."""
        with Wire(self.daemon.plain) as wire:
            link = wire.attach("receiver", "q")
            link.flow(10_000, drain=True)
            wire.flush()
            found: list[bytes] = []

            def drained() -> bool:
                for event in wire.read():
                    if type(event) is ev.DeliveriesReceived:
                        found.extend(body_of(each.payload) for each in event.deliveries)
                        wire.session.settle(event.deliveries, spec.Accepted(), True)
                wire.flush()
                return link.credit == 0

            until(drained, "a drained link")
            return found

    def test_kill(self) -> None:
        """Killed at any moment and sent again under resumption: once, each of them."""
        seed = int(os.environ.get("AMQPROUTE_CRASH_SEED", "0")) or random.randrange(1, 1 << 30)
        chance = random.Random(seed)
        publisher = Publisher()
        sent = []
        for number in range(ROUNDS):
            publisher.connect(self.daemon.plain)
            for step in range(EACH):
                body = b"%d/%d" % (number, step)
                publisher.send(body, message(body, durable=True))
                sent.append(body)
            is_last = number == ROUNDS - 1
            if is_last:
                # An outcome at least comes, and is not confirmed.
                publisher.wire.wait(lambda event: type(event) is ev.DeliveriesUpdated)
            else:
                publisher.hear_for(chance.choice((0.0, 0.0, 0.002, 0.005, 0.02)))
            if is_last or chance.random() < 0.7:
                self.daemon.kill()
                publisher.wire.socket.close()
                self.daemon.start()
            else:
                publisher.wire.socket.close()
        publisher.connect(self.daemon.plain)
        publisher.hear_for(20)
        self.assertEqual(publisher.waiting, {}, f"seed {seed}")
        self.assertGreater(publisher.resumed, 0, f"seed {seed}")
        self.assertEqual(sorted(self.held()), sorted(sent), f"seed {seed}")
        self.daemon.check()
        self.assertEqual(self.daemon.stop(), 0)
