# SPDX-License-Identifier: Apache-2.0
"""A fault of this program at one node or consumer does not affect the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amqproute.broker.commit_batch import Batch
from amqproute.broker.dispatch import BROKEN_SECONDS
from amqproute.broker.entry_removal import EntryRemoval
from amqproute.broker.queue import Queue
from amqproute.broker.subscription import Subscription
from amqproute.entry import Entry
from amqproute.errors import StoreError
from amqproute.filters.registry import NO_FILTERS
from tests.broker.test_queue import ACCEPTED, QueueCase
from tests.support.fakes import ORIGIN, Taker, body_of, message, topic


class Fault(Exception):
    """Faults of the program."""


class Broken(Taker):
    """Breaks at messages of one body; what it has taken before, in the same call, it holds."""

    def deliver(self, entries: Sequence[Entry]) -> None:
        """See `IConsumer.deliver`."""
        for entry in entries:
            if body_of(entry) == b"bad":
                raise Fault
            super().deliver([entry])


class FaultTests(QueueCase):
    """Two nodes in one batch, and consumers of which one breaks."""

    def begin(self, *bodies: bytes, ahead: bool = False) -> Batch:
        """Begin a batch with the same messages for ``q`` and for ``dead``."""
        batch = self.broker.begin()
        batch.goes_ahead = ahead
        for queue in (self.queue, self.dead):
            for body in bodies:
                queue.put(message(body), batch, ORIGIN)
        return batch

    def break_down(self) -> None:
        """Stand for whatever waits for a commit."""
        raise Fault

    def break_method(self, name: str) -> None:
        """Have a method of one of the queues break."""
        whole = getattr(Queue, name)

        def broken(queue: Queue, entries: list[Entry]) -> None:
            if queue is self.queue:
                raise Fault
            whole(queue, entries)

        self.patch(Queue, name, broken)

    def assertLogged(self, count: int) -> None:
        """So many faults are in the log."""
        self.assertEqual(len(self.flushLoggedErrors(Fault)), count)

    def test_a_queue_breaks_at_what_arrives(self) -> None:
        """The others of the batch have their messages, and the sender its answer."""
        done = self.begin(b"1").commit()
        self.break_method("arrived")
        self.turn()
        self.assertIsNone(self.successResultOf(done))
        self.assertEqual(self.bodies(self.dead), [b"1"])
        self.assertLogged(1)

    def test_a_queue_breaks_at_what_does_not_arrive(self) -> None:
        """The others of the batch forget theirs, and the sender hears what the store said."""
        done = self.begin(b"1").commit()
        self.break_method("not_arrived")
        self.store.is_failing = True
        self.turn()
        self.failureResultOf(done, StoreError)
        self.assertTrue(self.dead.is_settled)
        self.assertLogged(1)

    def test_what_waits_for_the_commit_breaks(self) -> None:
        """The messages arrive all the same."""
        batch = self.begin(b"1")
        batch.when_committed(lambda: self.break_down())
        done = batch.commit()
        self.turn()
        self.assertIsNone(self.successResultOf(done))
        self.assertEqual((self.queue.depth, self.dead.depth), (1, 1))
        self.assertLogged(1)

    def test_a_consumer_breaks(self) -> None:
        """Others have their shares, and the sender its answer; what it does not hold comes back."""
        broken, sound = Broken(self.queue, 9), Taker(self.queue, 9)
        done = self.begin(b"1", b"2", b"bad", b"4").commit()
        self.turn()
        self.assertIsNone(self.successResultOf(done))
        self.assertEqual((broken.seen, sound.seen), ([b"1"], [b"2", b"4"]))
        self.assertEqual((self.queue.acquired, self.queue.deferred, self.dead.depth), (3, 1, 4))
        self.assertLogged(1)
        broken.room = 0
        self.clock.advance(BROKEN_SECONDS)
        self.assertEqual(sound.seen, [b"2", b"4", b"bad"])
        self.settle(broken, list(broken.held), ACCEPTED)
        self.settle(sound, list(sound.held), ACCEPTED)
        self.assertEmpty(self.queue)

    def test_ahead(self) -> None:
        """It is no other where the commit is still under way."""
        broken = Broken(self.queue, 9)
        sound = Taker(self.dead, 9)
        done = self.begin(b"1", b"bad", ahead=True).commit()
        self.assertEqual((broken.seen, sound.seen), ([b"1"], [b"1", b"bad"]))
        self.turn()
        self.assertIsNone(self.successResultOf(done))
        self.assertEqual((self.queue.acquired, self.queue.deferred), (1, 1))
        self.assertLogged(1)
        self.settle(broken, list(broken.held), ACCEPTED)
        self.queue.detach(broken)
        self.clock.advance(BROKEN_SECONDS)
        self.assertEqual(self.bodies(self.queue), [b"bad"])
        self.settle(sound, list(sound.held), ACCEPTED)
        self.assertEmpty(self.queue, self.dead)

    def test_a_browser_breaks(self) -> None:
        """An entry shown to it is not held by it: it is available to others at once."""
        Broken(self.queue, 9, copies=True)
        self.put(b"bad")
        self.assertLogged(1)
        self.assertEqual(self.bodies(self.queue), [b"bad"])

    def test_expiry_breaks(self) -> None:
        """Entries dealt in the same moment are delivered all the same."""
        self.put(b"old", ttl=1000)
        self.put(b"new")
        self.patch(EntryRemoval, "expire", lambda *_: self.break_down())
        self.clock.rightNow += 2  # no timer is called: the dispatch finds what has expired
        taker = Taker(self.queue)
        self.assertRaises(Fault, taker.take, 9)
        self.assertEqual(taker.seen, [b"new"])
        self.settle(taker, list(taker.held), ACCEPTED)

    def test_settled_before_it_breaks(self) -> None:
        """Entries settled by a consumer are not delivered a second time."""

        broker = self.broker

        class Hasty(Taker):
            def deliver(self, entries: Sequence[Entry]) -> None:
                super().deliver(entries)
                self.settle(broker, entries, ACCEPTED)
                raise Fault

        Hasty(self.queue, 9)
        self.put(b"1")
        self.assertLogged(1)
        self.assertEmpty(self.queue)

    def test_a_subscriber_breaks(self) -> None:
        """The other subscribers of the topic have the message."""
        self.broker.add(topic("news"))
        news: Any = self.broker.topics["news"]
        Broken(Subscription(news, NO_FILTERS), 9)  # type: ignore[arg-type]
        sound = Taker(Subscription(news, NO_FILTERS), 9)  # type: ignore[arg-type]
        self.put(b"bad", queue=news)
        self.assertEqual(sound.seen, [b"bad"])
        self.assertLogged(1)
