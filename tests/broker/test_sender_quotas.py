# SPDX-License-Identifier: Apache-2.0
"""Quotas of senders are exact, on any path of a message, and over a restart."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker.queue import Queue
from amqproute.broker.sender_quotas import NOTES, SenderQuota, SenderQuotas
from amqproute.outcomes import Acceptance, Rejection
from amqproute.values import Origin, Principal
from tests.broker.test_queue import QueueCase
from tests.store.rig import StoreFixture as Store
from tests.support.fakes import Taker, message


class CountingTests(QueueCase):
    """Charged from the put until the entry is gone for good."""

    def setUp(self) -> None:
        super().setUp()
        self.account = self.broker.accounts.of("peer:b.example")
        self.origin: Origin = Origin(Principal("peer", "b.example"), account=self.account)
        self.turn()

    def send(self, *bodies: bytes, queue: Queue | None = None) -> int:
        """Put messages in the sender's name; return their octets."""
        batch = self.broker.begin()
        found = [message(body, durable=True) for body in bodies]
        for each in found:
            (queue or self.queue).put(each, batch, self.origin)
        batch.commit()
        return sum(each.size for each in found)

    @property
    def held(self) -> tuple[int, int]:
        return self.account.messages, self.account.octets

    def test_put_and_accepted(self) -> None:
        """A message is charged to its sender until a consumer has accepted it."""
        size = self.send(b"one", b"two")
        self.assertEqual(self.held, (2, size))
        self.turn()
        taker = Taker(self.queue)
        taker.take(2)
        self.assertEqual(self.held, (2, size))
        self.settle(taker, list(taker.held), Acceptance())
        self.assertEqual(self.held, (0, 0))
        self.assertEmpty(self.queue)

    def test_a_dead_letter_is_the_senders(self) -> None:
        """A rejected message counts on the dead-letter node, until it is purged there."""
        self.send(b"one")
        self.turn()
        taker = Taker(self.queue)
        taker.take(1)
        self.settle(taker, list(taker.held), Rejection())
        self.assertEqual((self.dead.depth, self.account.messages), (1, 1))
        self.dead.purge()
        self.turn()
        self.assertEqual(self.held, (0, 0))

    def test_number_is_kept(self) -> None:
        """The store has the number of an account, which rows will have, from the first."""
        other = self.broker.accounts.of("peer:c.example")
        self.turn()
        numbers = {"peer:b.example": self.account.number, "peer:c.example": other.number}
        expected = {key: b"%d" % number for key, number in numbers.items()}
        self.assertEqual(self.store.notes[NOTES], expected)

    def test_a_batch_that_was_given_up(self) -> None:
        """Nothing is charged for what never was."""
        batch = self.broker.begin()
        self.queue.put(message(b"one"), batch, self.origin)
        self.assertEqual(self.account.messages, 1)
        batch.abandon()
        self.assertEqual(self.held, (0, 0))

    def test_a_batch_that_failed(self) -> None:
        """Messages that were not stored are not charged; those that were not removed are."""
        self.send(b"kept")
        self.turn()
        before = self.held
        taker = Taker(self.queue)
        taker.take(1)
        self.store.is_failing = True
        batch = self.broker.begin()
        self.queue.put(message(b"lost", durable=True), batch, self.origin)
        entries = list(taker.held)
        self.queue.settle(entries, Acceptance(), batch, taker)
        done = batch.commit()
        self.turn()
        self.failureResultOf(done)
        self.queue.retake(entries)
        self.assertEqual(self.held, before)

    def test_a_node_that_is_deleted(self) -> None:
        """Messages that end with their node are not charged, even those held by consumers."""
        node = self.broker.create_dynamic()
        self.send(b"one", b"two", queue=node)
        self.turn()
        taker = Taker(node)
        taker.take(1)
        self.assertEqual(self.account.messages, 2)
        self.broker.delete(node)
        self.turn()
        self.assertEqual(self.held, (0, 0))

    def test_what_was_paged_out(self) -> None:
        """Entries that stand in the store only count on, and are known when they are read."""
        self.make(resident_messages=1)
        self.account = self.broker.accounts.of("peer:b.example")
        self.origin.account = self.account
        size = self.send(*[b"%d" % number for number in range(5)])
        self.turn()
        self.assertEqual(self.held, (5, size))
        self.assertEqual(self.bodies(self.queue), [b"0", b"1", b"2", b"3", b"4"])
        self.assertEqual(self.held, (0, 0))

    def test_others_leave_no_trace(self) -> None:
        """A sender without an account is not counted, in memory or in the store."""
        self.put(b"one", durable=True)
        self.assertEqual(self.held, (0, 0))
        self.assertEqual([row.flags for row in self.store.rows("q")], [0])

    def test_told_once(self) -> None:
        """A waiter for room is notified once."""
        told: list[int] = []
        account = SenderQuota("x", 1)
        account.came(10)
        account.came(10)
        account.when_below(10, lambda: told.append(account.octets))
        account.gone(10)
        account.gone(10)
        self.assertEqual(told, [10])


class RestartTests(SynchronousTestCase):
    """Against the store on the disk."""

    def test_counted_again(self) -> None:
        """A restart finds what each account holds, large ones with their files; no other goes."""
        path = self.mktemp()
        store = Store(path)
        store.open()
        accounts = SenderQuotas()
        account, idle = accounts.of("peer:b.example"), accounts.of("peer:idle.example")
        transaction = store.store.begin()
        for each in (account, idle):
            transaction.note(NOTES, each.key, b"%d" % each.number)
        transaction.commit()
        store.put("q", b"x" * 5, b"x" * 100, b"x" * 50_000, flags=account.flags)
        store.put("q", b"nobody's")
        store.put("q", b"transient", flags=account.flags | 1)
        store.close()
        store = Store(path)
        recovery = store.open()
        store.close()
        self.assertEqual(recovery.accounts, {account.number: (3, 50_105)})
        again = SenderQuotas()
        empty = again.recovered(recovery.notes[NOTES], recovery.accounts)
        self.assertEqual(empty, ["peer:idle.example"])
        found = again.of("peer:b.example")
        self.assertEqual((found.number, found.messages, found.octets), (1, 3, 50_105))
        self.assertEqual(again.of("peer:new.example").number, 2)
