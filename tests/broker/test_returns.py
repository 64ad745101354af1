# SPDX-License-Identifier: Apache-2.0
"""A returned message reveals nothing about this broker."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.broker import Broker
from amqproute.broker.disposal import CONSUMER, Disposal
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.recent_counts import RecentEvent
from amqproute.message import Message
from amqproute.outcomes import ErrorDetails
from amqproute.store.memory import MemoryStore
from amqproute.values import (
    ANONYMOUS_PRINCIPAL,
    DEAD_LETTER_REASON,
    DEAD_LETTER_SOURCE,
    DEAD_LETTER_WORDS,
    RELAY_PREFIX,
    RETURN_TO,
    DeadLetterReason,
    Origin,
)
from amqproute.wire.amqp10.types import Symbol
from tests.support.fakes import message

GATEWAY = "10.1.2.3:5671"
ERROR = ErrorDetails(
    condition="amqp:not-found",
    description=f"{GATEWAY}: no such node",
    info={Symbol("text"): "no such node"},
)


class Way:
    """The way back, by a relay queue or to a node here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: list[Message] = []

    def put(self, given: Message, batch: Any, origin: Origin) -> None:
        self.messages.append(given)


class ReturnTests(SynchronousTestCase):
    """A message that a partner has rejected goes back."""

    def back(self, name: str, to: str | None) -> dict[Any, Any]:
        """Return the annotations of what goes back by a way."""
        clock = Clock()
        store = MemoryStore(clock)
        store.open()
        clock.advance(0)
        broker = Broker(store, clock, lambda: 1_700_000_000_000, lambda: "x")
        way = Way(name)
        broker.return_to = lambda _: way
        queue = broker.make_internal(f"{RELAY_PREFIX}{GATEWAY}", QueueLimits())
        queue.is_relay = True
        batch = broker.begin()
        sent = message(b"1", **({"to": to} if to else {})).with_annotations(
            {RETURN_TO: "q@beta.example"}
        )
        queue.put(sent, batch, Origin(ANONYMOUS_PRINCIPAL))
        done: Deferred[Any] = batch.commit()
        clock.advance(0)
        self.successResultOf(done)
        queue.expire(ERROR)
        clock.advance(0)
        (given,) = way.messages
        return dict(given.annotations)

    def test_leaving(self) -> None:
        """The address that was written, and the words of the partner."""
        found = self.back(f"{RELAY_PREFIX}beta.example", "orders@gamma.example")
        self.assertEqual(found[DEAD_LETTER_SOURCE], "orders@gamma.example")
        self.assertEqual(found[DEAD_LETTER_WORDS], "amqp:not-found: no such node")
        self.assertEqual(found[DEAD_LETTER_REASON], DeadLetterReason.EXPIRED.value)
        self.assertNotIn("amqp$", str(found))
        self.assertNotIn(GATEWAY, str(found))
        self.assertNotIn(DEAD_LETTER_SOURCE, self.back(f"{RELAY_PREFIX}beta.example", None))

    def test_here(self) -> None:
        """A node here is told the queue, as dead letters are."""
        found = self.back("q", "orders@gamma.example")
        self.assertEqual(found[DEAD_LETTER_SOURCE], f"{RELAY_PREFIX}{GATEWAY}")


class CountTests(SynchronousTestCase):
    """Events of the last hour."""

    def test_by_a_consumer(self) -> None:
        """A rejection here is counted with its condition; one by a peer is counted elsewhere. A
        message that has only had its time counts where dead letters of it are kept."""
        clock = Clock()
        store = MemoryStore(clock)
        store.open()
        clock.advance(0)
        broker = Broker(store, clock, lambda: 1_700_000_000_000, lambda: "x")
        here = broker.make_internal("orders", QueueLimits())
        leaving = broker.make_internal(f"{RELAY_PREFIX}beta.example", QueueLimits())
        leaving.is_relay = True
        disposal = Disposal(
            lambda _: None, lambda: None, broker.rate_limited_log, broker.recent, broker.topology_of
        )
        for queue in (here, leaving):
            disposal.counted(queue, 2, DeadLetterReason.REJECTED, ERROR)
            disposal.counted(queue, 3, DeadLetterReason.EXPIRED, None)
        self.assertEqual(
            broker.recent.totals(),
            {
                RecentEvent("rejected", "orders", CONSUMER, "amqp:not-found"): 2,
                RecentEvent("dead-lettered", leaving.name, DeadLetterReason.EXPIRED.value): 3,
            },
        )
