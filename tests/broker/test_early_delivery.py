# SPDX-License-Identifier: Apache-2.0
"""Delivery ahead of the commit, and a failure of that commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.task import Clock

from amqproute.broker.commit_retry import retry_settle
from amqproute.broker.dynamic_node_terms import DynamicTerms
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import Duplicates, Lifetime, QueueOptions
from amqproute.broker.publish_gate import DISK, STORE
from amqproute.broker.receipts import Receipts
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.journal.event import ArrivalEvent
from amqproute.outcomes import Acceptance, Modification, Rejection, Release
from amqproute.values import ANONYMOUS_PRINCIPAL, Origin, Principal
from amqproute.wire.amqp10.types import Symbol
from tests.broker.test_node_options import identified
from tests.broker.test_queue import QueueCase
from tests.support.fakes import ORIGIN, Taker, body_of, message, put, settle_down

ACCEPTED = Acceptance()
RELEASED = Release()
REJECTED = Rejection()


class Diary:
    """A journal that keeps what came outside of commits."""

    is_kept = True
    domain = "alpha.example"

    def __init__(self) -> None:
        self.came: list[Any] = []

    def now_us(self) -> int:
        """See `IJournal.now_us`."""
        return 1

    def arrivals(self, came: Any) -> ArrivalEvent:
        """See `IJournal.arrivals`."""
        return ArrivalEvent(1, came, self.domain)

    def note(self, event: Any) -> None:
        """See `IJournal.note`."""
        self.came.append(event._came)


class Picky(Taker):
    """Gives back at once what it is handed first, for others."""

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        super().deliver(entries)
        if len(self.seen) == len(entries):
            self.held.remove(entries[0])
            barred = Modification(undeliverable_here=True)
            self.queue.settle(entries[:1], barred, None, self)  # type: ignore[arg-type]


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
        """The bodies given to the consumer, in order."""
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
        """Entries beyond the capacity wait for the commit, and so do those behind them."""
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
        """On a full disk nothing goes ahead of it."""
        self.broker.gate.close(DISK, "full")
        self.send(b"1")
        self.assertSeen()

    def test_receipts(self) -> None:
        """A message with a receipt is relayed when it is safe; local consumers get it early."""
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
            self.broker.gate.has_failed = False
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

    def test_capacity(self) -> None:
        """A delivered entry takes one place, committed or not, and none when it has left."""
        self.make(capacity=4)
        taker = Taker(self.queue, 4)
        self.send(b"1", b"2")
        self.assertEqual((taker.seen, self.queue.space()), ([b"1", b"2"], 2))
        self.send(b"3", b"4")
        self.assertEqual((len(taker.held), self.queue.space()), (4, 0))
        taker.settle(self.broker, taker.held[:1], ACCEPTED)
        self.assertEqual(self.queue.space(), 1)
        self.turn()
        self.assertEqual((self.queue.depth, self.queue.space()), (3, 1))

    def test_given_back_at_once(self) -> None:
        """Entries that one consumer releases go to others as far as these have room."""
        self.queue.detach(self.taker)
        picky, other = Picky(self.queue, 3), Taker(self.queue, 1)
        self.send(b"1", b"2", b"3")
        self.assertEqual((picky.seen, other.seen), ([b"1", b"3"], [b"2"]))
        self.turn()
        self.assertEqual((other.room, self.queue.available), (0, 1))
        other.take(1)
        self.assertEqual(other.seen, [b"2", b"1"])

    def test_fleeting(self) -> None:
        """A fleeting entry does not stay when it is released."""
        self.send(b"1", ttl=0)
        self.turn()
        self.assertSeen(b"1")
        self.settle(self.taker, list(self.taker.held), RELEASED)
        self.assertSeen(b"1")
        self.assertEqual((self.queue.depth, self.store.rows("q")), (0, []))

    def test_changed_before_the_commit(self) -> None:
        """A consumer that makes it longer meanwhile costs no memory but its own."""
        for fails in (False, True):
            self.taker.room = 1
            self.store.is_failing = fails
            done = self.send(b"1")
            annotated = Modification(annotations={Symbol("x-opt-seen"): "x" * 500})
            self.taker.settle(self.broker, list(self.taker.held), annotated).addErrback(str)
            self.turn()
            done.addErrback(lambda failure: failure.trap(StoreError))
            self.store.is_failing = False
            self.assertEqual(self.queue.state.levels.usual._pending_bytes, 0)
            self.assertEqual(len(self.bodies(self.queue)), 1)
        self.assertEqual(self.broker.budget.used_bytes, 0)

    def test_deleted_before_the_commit(self) -> None:
        """A node that is deleted meanwhile leaves nothing on anybody's account."""
        for outcome in (None, ACCEPTED):
            account = self.broker.accounts.of("a")
            queue = self.broker.create_dynamic(DynamicTerms(options=QueueOptions()))
            taker = Taker(queue, 1)
            batch = self.broker.begin()
            batch.goes_ahead = True
            for body in (b"1", b"2"):
                queue.put(message(body), batch, Origin(ANONYMOUS_PRINCIPAL, account=account))
            done = batch.commit()
            self.assertEqual((taker.seen, account.messages), ([b"1"], 2))
            if outcome is not None:
                taker.settle(self.broker, list(taker.held), outcome)
            self.broker.delete(queue)
            self.turn()
            self.successResultOf(done)
            self.assertEqual((account.messages, account.octets), (0, 0))

    def test_dead_letters(self) -> None:
        """A message that a full disk would have put again is not delivered early."""
        self.put(b"1")
        self.assertSeen(b"1")
        buried = Taker(self.dead, 5)
        self.store.is_full = True
        batch = self.broker.begin()
        batch.goes_ahead = True
        self.queue.settle(self.taker.held, REJECTED, batch, self.taker)
        done = batch.commit()
        self.assertEqual(buried.seen, [])
        done.addErrback(retry_settle, batch, self.broker.begin)
        self.turn()
        self.store.is_full = False
        self.broker.gate.open(STORE)
        self.turn()
        self.assertEqual(buried.seen, [b"1"])

    def test_journal(self) -> None:
        """Entries that live on without a commit have begun, wherever they are; no others have."""
        journal = self.broker.journal = Diary()
        self.store.is_failing = True
        self.taker.room = 2
        batch = self.broker.begin()
        batch.goes_ahead = True
        for body in (b"1", b"2", b"3"):
            self.queue.put(message(body), batch, ORIGIN)
        self.dead.put(message(b"4", durable=False), batch, ORIGIN)
        done = batch.commit()
        self.taker.settle(self.broker, self.taker.held[:1], RELEASED).addErrback(str)
        self.turn()
        self.failureResultOf(done, StoreError)
        (came,) = journal.came
        self.assertEqual([body_of(each[1]) for each in came], [b"1", b"2"])


class OnceTests(QueueCase):
    """Queues that take each message once."""

    def setUp(self) -> None:
        super().setUp()
        self.queue = self.broker.create_dynamic(DynamicTerms())
        self.taker = Taker(self.queue, 9)
        self.turn()

    def send(self, *ids: str) -> Any:
        """Put messages with these ids, which may go ahead; return the Deferred of the commit."""
        made = [identified(each, each.encode()) for each in ids]
        return put(self.broker, self.queue, *made, ahead=True)

    def assertSeen(self, *bodies: bytes) -> None:
        """The bodies given to the consumer, in order."""
        self.assertEqual(self.taker.seen, list(bodies))

    def test_in_memory(self) -> None:
        """A dynamic queue, which writes nothing, hands out ahead; repetitions come from nowhere."""
        self.send("a", "b")
        self.assertSeen(b"a", b"b")
        self.send("a", "c")
        self.assertSeen(b"a", b"b")  # one of them is in doubt
        self.turn()
        self.assertSeen(b"a", b"b", b"c")
        self.send("b", "d")
        self.assertSeen(b"a", b"b", b"c", b"d")
        self.turn()
        self.assertEqual((self.queue.tally.duplicates, self.queue.depth), (2, 4))

    def test_twice_in_one_batch(self) -> None:
        """Two of one id on their way: nothing of it goes ahead."""
        self.send("a", "b", "a")
        self.assertSeen()
        self.turn()
        self.assertSeen(b"a", b"b")

    def test_gone_before_the_commit(self) -> None:
        """An entry that has left the queue does not make the next one of its id a duplicate."""
        self.send("a")
        self.taker.settle(self.broker, list(self.taker.held), ACCEPTED)
        self.send("a")
        self.turn()
        self.assertSeen(b"a", b"a")
        self.send("a")
        self.turn()
        self.assertEqual((self.queue.tally.duplicates, self.queue.depth), (1, 1))

    def test_failure(self) -> None:
        """Entries that live on are held; those not delivered early are not."""
        self.taker.room = 1
        self.store.is_failing = True
        done = self.send("a", "b")
        self.turn()
        self.failureResultOf(done, StoreError)
        self.store.is_failing = False
        self.taker.room = 9
        self.send("a", "b")
        self.turn()
        self.assertSeen(b"a", b"b")
        self.settle(self.taker, list(self.taker.held), ACCEPTED)
        self.send("a", "b")
        self.turn()
        self.assertSeen(b"a", b"b", b"a", b"b")

    def test_on_the_disk(self) -> None:
        """An entry that lives on after a failure is not safe: a repetition is taken, and held."""
        once = NodeDeclaration("once", QueueLimits(), None, QueueOptions(duplicates=Duplicates.ALL))
        self.broker.declare([once], {})
        self.queue = self.broker.nodes["once"]
        self.taker = Taker(self.queue, 9)
        self.turn()
        self.store.is_failing = True
        done = self.send("a")
        self.assertSeen(b"a")
        self.turn()
        self.failureResultOf(done, StoreError)
        self.store.is_failing = False
        self.send("a")
        self.turn()
        self.assertSeen(b"a", b"a")
        (first, second) = self.taker.held
        self.assertFalse(first.stored)
        self.assertTrue(second.stored)
        self.settle(self.taker, [first], ACCEPTED)
        self.send("a")
        self.turn()
        self.assertEqual(self.queue.tally.duplicates, 1)
        self.settle(self.taker, [second], ACCEPTED)
        self.send("a")
        self.turn()
        self.assertSeen(b"a", b"a", b"a")

    def test_on_the_disk_other_policy(self) -> None:
        """Nor is it a reason after the ids have been read anew."""
        options = QueueOptions(duplicates=Duplicates.ALL)
        self.broker.declare([NodeDeclaration("once", QueueLimits(), None, options)], {})
        self.queue = self.broker.nodes["once"]
        self.taker = Taker(self.queue, 9)
        self.turn()
        self.store.is_failing = True
        self.send("a").addErrback(lambda _: None)
        self.turn()
        self.store.is_failing = False
        for policy in (Duplicates.OFF, Duplicates.ALL):
            self.queue.options = QueueOptions(duplicates=policy)
            self.turn()
        self.taker.settle(self.broker, list(self.taker.held), RELEASED)
        self.turn()
        self.send("a")
        self.turn()
        self.assertEqual((self.queue.tally.duplicates, self.queue.depth), (0, 2))

    def test_life(self) -> None:
        """A queue that goes with its last message does so where that was ahead of its commit."""
        for fails in (False, True):
            unused: list[bool] = []
            disk = Clock()
            self.patch(self.store, "_reactor", disk)
            self.queue = self.broker.create_dynamic(DynamicTerms(lifetime=Lifetime.NO_MESSAGES))
            self.queue.life.when_over = lambda unused=unused: unused.append(True)
            self.taker = Taker(self.queue, 9)
            self.store.is_failing = fails
            self.send("a").addErrback(lambda _: None)
            self.assertSeen(b"a")
            self.queue.life.creator_gone()
            self.taker.settle(self.broker, list(self.taker.held), ACCEPTED).addErrback(str)
            self.turn()
            self.assertEqual(unused, [])
            settle_down(disk)
            self.turn()
            self.store.is_failing = False
            self.assertEqual(unused, [True])
