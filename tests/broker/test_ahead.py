# SPDX-License-Identifier: Apache-2.0
"""What is handed out while its commit is under way, and what becomes of it if that fails."""

from __future__ import annotations

from typing import Any

from amqproute.broker.floodgate import DISK
from amqproute.broker.receipts import Receipts
from amqproute.errors import StoreError
from amqproute.values import Principal
from amqproute.wire.amqp10 import spec
from tests.broker.test_queue import QueueCase
from tests.support.fakes import ORIGIN, Taker, message, put

ACCEPTED = spec.Accepted()
RELEASED = spec.Released()


class AheadTests(QueueCase):
    """A queue with one consumer, and commits that take until the next turn."""

    def setUp(self) -> None:
        super().setUp()
        self.taker = Taker(self.queue, 3)

    def send(self, *bodies: bytes, **kind: Any) -> Any:
        """Put messages that may go ahead; return the Deferred of their commit."""
        made = [message(body, **kind) for body in bodies]
        return put(self.broker, self.queue, *made, ahead=True)

    def assertSeen(self, *bodies: bytes) -> None:
        """What the consumer was given, in order."""
        self.assertEqual(self.taker.seen, list(bodies))

    def test_before_the_commit(self) -> None:
        """It is in the consumer's hands at once, and its sender hears of it after the commit."""
        done = self.send(b"1", b"2")
        self.assertSeen(b"1", b"2")
        self.assertNoResult(done)
        self.assertEqual(self.store.rows("q"), [])
        self.turn()
        self.successResultOf(done)
        self.assertEqual(len(self.store.rows("q")), 2)
        self.assertEqual((self.queue.acquired, self.queue.depth), (2, 2))
        self.settle(self.taker, list(self.taker.held), ACCEPTED)
        self.assertEqual(self.store.rows("q"), [])
        self.assertEqual((self.queue.depth, self.broker.budget.used_bytes), (0, 0))

    def test_settled_before_the_commit(self) -> None:
        """An outcome that is faster than the disk leaves nothing behind."""
        done = self.send(b"1")
        settled = self.taker.settle(self.broker, list(self.taker.held), ACCEPTED)
        self.turn()
        self.successResultOf(done)
        self.successResultOf(settled)
        self.assertEqual((self.store.rows("q"), self.queue.depth), ([], 0))

    def test_released_before_the_commit(self) -> None:
        """It goes to the next who has room, and is there once."""
        done = self.send(b"1")
        self.taker.settle(self.broker, list(self.taker.held), RELEASED)
        self.assertSeen(b"1", b"1")
        self.turn()
        self.successResultOf(done)
        self.assertEqual((self.queue.acquired, self.queue.available), (1, 0))

    def test_room(self) -> None:
        """What there is no room for waits for the commit, and what comes behind it as well."""
        self.send(b"1", b"2", b"3", b"4")
        self.assertSeen(b"1", b"2", b"3")
        self.taker.room = 5
        self.send(b"5")
        self.assertSeen(b"1", b"2", b"3")
        self.turn()
        self.assertSeen(b"1", b"2", b"3", b"4", b"5")

    def test_behind_others(self) -> None:
        """Nothing overtakes what waits, on the line or in a batch that does not go ahead."""
        put(self.broker, self.queue, message(b"1"))
        self.send(b"2")
        self.assertSeen()
        self.turn()
        self.assertSeen(b"1", b"2")
        self.taker.room = 0
        self.put(b"3")
        self.taker.room = 2  # nobody has told the queue
        self.send(b"4")
        self.assertSeen(b"1", b"2")
        self.turn()
        self.assertSeen(b"1", b"2", b"3", b"4")

    def test_shares(self) -> None:
        """Several consumers get fair shares, going on where the last batch ended."""
        other = Taker(self.queue, 3)
        self.send(b"1", b"2", b"3")
        self.send(b"4")
        self.assertEqual((self.taker.seen, other.seen), ([b"1", b"3"], [b"2", b"4"]))

    def test_not_for_everybody(self) -> None:
        """Browsers, filters, and consumers that do not want it see what is safe only."""
        for make in (
            lambda: Taker(self.queue, 1, copies=True),
            lambda: Taker(self.queue, 1, selects=lambda entry: True),
        ):
            other = make()
            self.taker.seen.clear()
            self.send(b"1")
            self.assertSeen()
            self.queue.detach(other)
            self.turn()
            self.bodies(self.queue)
            self.taker.room = 3
        self.taker.seen.clear()
        self.taker.takes_ahead = False  # type: ignore[misc]
        self.send(b"1")
        self.assertSeen()

    def test_closed_gate(self) -> None:
        """Where the disk runs full nothing goes ahead of it."""
        self.broker.gate.close(DISK, "full")
        self.send(b"1")
        self.assertSeen()

    def test_receipts(self) -> None:
        """What a peer's receipt protects is relayed when it is safe; consumers here may have it."""
        peer = Principal("peer", "a.example", frozenset({"a.example"}))
        stream = Receipts().stream(peer, "s", lambda key: None)
        for number, is_relay in ((1, True), (2, False)):
            self.queue.is_relay = is_relay
            self.taker.seen.clear()
            batch = self.broker.begin()
            batch.goes_ahead = True
            self.queue.put(message(b"1"), batch, ORIGIN)
            batch.mark(stream, number)
            batch.commit()
            self.assertSeen(*([] if is_relay else [b"1"]))
            self.turn()
            self.assertSeen(b"1")

    def test_failure(self) -> None:
        """Its sender is told of the failure; it lives on in memory until it is settled."""
        for outcome in (ACCEPTED, RELEASED):
            self.taker.room = 1
            self.taker.seen.clear()
            self.store.is_failing = True
            done = self.send(b"1", b"2")
            self.turn()
            self.failureResultOf(done, StoreError)
            self.store.is_failing = False
            self.assertSeen(b"1")
            self.assertEqual((self.queue.acquired, self.queue.depth), (1, 1))
            self.assertEqual(self.store.rows("q"), [])
            self.taker.room = 1
            self.settle(self.taker, list(self.taker.held), outcome)
            self.assertSeen(*([b"1"] if outcome is ACCEPTED else [b"1", b"1"]))
        self.assertFalse(self.taker.held[0].durable)
        self.settle(self.taker, list(self.taker.held), ACCEPTED)
        self.assertEqual((self.queue.depth, self.broker.budget.used_bytes), (0, 0))
        self.put(b"3")
        self.assertSeen(b"1", b"1")  # no room left
        self.assertEqual(self.bodies(self.queue), [b"3"])
