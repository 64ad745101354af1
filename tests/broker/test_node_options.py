# SPDX-License-Identifier: Apache-2.0
"""Options of a queue: durability, duplicates, consumers, lifetime."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.broker import duplicate_filter as once_module
from amqproute.broker import entry_list
from amqproute.broker.message_id_index import MessageIdIndex, identity_of
from amqproute.broker.node_declaration import NodeDeclaration
from amqproute.broker.node_limits import QueueLimits
from amqproute.broker.node_options import (
    Duplicates,
    Durability,
    Excess,
    NonTransactional,
    QueueOptions,
)
from amqproute.errors import (
    NotAllowed,
    PreconditionFailed,
    ResourceLimitExceeded,
    ResourceLocked,
)
from amqproute.journal.record import RecordKind
from amqproute.message import Message
from amqproute.outcomes import Acceptance, Rejection, Release
from amqproute.wire.amqp10 import codec, sections, spec
from amqproute.wire.amqp10.types import ULong
from tests.support.fakes import ORIGIN, KeptStore, Taker, body_of, make_broker, message, put
from tests.support.fakes import settle_down as turn

ACCEPTED = Acceptance()
RELEASED = Release()


def identified(
    message_id: Any, body: bytes = b"x", durable: bool = True, priority: int = 4
) -> Message:
    """Return a message with an id."""
    parts = [
        sections.encode_header(spec.Header(durable=durable, priority=priority)),
        codec.encode(spec.Properties(message_id=message_id)),
        sections.encode_section(spec.SECTION_DATA, body),
    ]
    return Message(b"".join(parts))


def padded(message_id: int) -> Message:
    """Return a message whose id is a ulong of eight octets, however small it is."""
    properties = b"\x00\x53\x73\xc0\x0a\x01\x80" + message_id.to_bytes(8, "big")
    return Message(properties + sections.encode_section(spec.SECTION_DATA, b"x"))


class OptionCase(SynchronousTestCase):
    """A queue with options, over a store that is kept."""

    limits = QueueLimits()

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = KeptStore(self.clock)

    def boot(self, limits: QueueLimits | None = None, **options: Any) -> None:
        """Build a broker over what the store has."""
        node = NodeDeclaration("q", limits or self.limits, "dead", QueueOptions(**options))
        dead = NodeDeclaration("dead", QueueLimits())
        self.broker = make_broker(self.clock, self.store, node, dead)
        self.queue = self.broker.nodes["q"]
        turn(self.clock)

    def put(self, *messages: Message) -> None:
        """Put messages, each in a batch of its own."""
        for each in messages:
            self.successResultOf(self._putting(each))

    def _putting(self, *messages: Message) -> Any:
        done = put(self.broker, self.queue, *messages)
        turn(self.clock)
        return done

    def taker(self, room: int = 0, **kind: Any) -> Taker:
        """Attach a consumer."""
        taker = Taker(self.queue, room, **kind)
        self.queue.dispatch()
        turn(self.clock)
        return taker

    def settle(self, taker: Taker, entries: list[Any], outcome: Any) -> None:
        """Give entries back."""
        taker.settle(self.broker, list(entries), outcome)
        turn(self.clock)


class DurabilityTests(OptionCase):
    """message-durability-mode (Q-17, Q-18, K-15)."""

    def test_message(self) -> None:
        """Q-17: usually the message says whether it is stored."""
        self.boot()
        self.put(message(b"1"), message(b"2", durable=False))
        self.assertEqual(len(self.store.rows("q")), 1)
        self.boot()
        self.assertEqual(self.taker(9).seen, [b"1"])

    def test_collects_with_nobody_there(self) -> None:
        """Q-24, Q-08: without a consumer it goes on collecting, a mix of both, over restarts."""
        self.boot()
        for number in range(3):
            self.put(message(b"d%d" % number), message(b"n%d" % number, durable=False))
        self.assertEqual((self.queue.consumers, self.queue.depth), (0, 6))
        self.boot()
        self.put(message(b"d3"), message(b"n3", durable=False))
        first, second = self.taker(2), self.taker(9)
        self.assertEqual(first.seen + second.seen, [b"d0", b"d1", b"d2", b"d3", b"n3"])

    def test_held_by_a_link(self) -> None:
        """Q-27: what is acquired is known by the link that has it, and goes back with it alone."""
        self.boot()
        self.put(*[message(b"%d" % number) for number in range(4)])
        first, second = self.taker(2), self.taker(2)
        self.assertEqual([entry.id for entry in first.holds()], [1, 2])
        held = [entry.id for entry in self.queue.held_by_consumers()]
        self.assertEqual(sorted(held), [1, 2, 3, 4])
        self.queue.detach(first)
        self.assertEqual([entry.id for entry in self.queue.held_by_consumers()], [3, 4])
        self.queue.release(first.holds())
        second.take(9)
        self.assertEqual(second.seen, [b"2", b"3", b"0", b"1"])
        self.assertEqual((self.queue.acquired, self.queue.available), (4, 0))

    def test_forced(self) -> None:
        """Q-17: force-durable stores every entry, and finds it after a restart."""
        self.boot(durability=Durability.FORCED)
        self.put(message(b"1"), message(b"2", durable=False))
        self.boot(durability=Durability.FORCED)
        self.assertEqual(self.taker(9).seen, [b"1", b"2"])

    def test_transient(self) -> None:
        """Q-17: force-transient finds nothing after a restart, of what it paged neither."""
        limits = QueueLimits(resident_messages=2)
        self.boot(limits, durability=Durability.TRANSIENT)
        self.put(*[message(b"%d" % number) for number in range(6)])
        self.assertEqual(self.taker(3).seen, [b"0", b"1", b"2"])
        self.boot(limits, durability=Durability.TRANSIENT)
        self.assertEqual(self.queue.depth, 0)

    def test_durable_on_transient(self) -> None:
        """K-15: durable-on-transient=reject refuses what would not be kept."""
        self.boot(durability=Durability.TRANSIENT, takes_durable=False)
        self.put(message(b"1", durable=False))
        self.assertRaises(
            PreconditionFailed, self.queue.put, message(b"2"), self.broker.begin(), ORIGIN
        )


class TransactionalTests(OptionCase):
    """non-transactional-support (Q-19)."""

    def refused(self, made: Message, *, in_transaction: bool) -> bool:
        """Tell whether a message is refused."""
        batch = self.broker.begin()
        batch.is_transactional = in_transaction
        try:
            self.queue.put(made, batch, ORIGIN)
        except NotAllowed:
            return True
        batch.abandon()
        return False

    def test_all(self) -> None:
        """Q-19: all, unsupported and only, with each kind of message."""
        flagged = message(annotations={"x-opt-non-transacted": True})
        table = {
            NonTransactional.ALL: (False, False, False),
            NonTransactional.UNSUPPORTED: (True, False, False),
            NonTransactional.ONLY: (False, True, False),
        }
        for mode, expected in table.items():
            self.boot(non_transactional=mode)
            found = (
                self.refused(flagged, in_transaction=True),
                self.refused(message(), in_transaction=True),
                self.refused(message(), in_transaction=False),
            )
            self.assertEqual(found, expected, mode)


class DuplicateTests(OptionCase):
    """No two entries with one message-id (Q-09, Q-28, M-07, K-06)."""

    def test_policies(self) -> None:
        """M-07: global-ids leaves numbers out, all does not, off takes everything."""
        ids = [uuid.uuid4(), "id", b"id", ULong(1), None]
        for policy, kept in (("global-ids", 7), ("all", 6), ("off", 10)):
            self.setUp()
            self.boot(duplicates=Duplicates(policy))
            self.put(*[identified(each) for each in ids for _ in range(2)])
            self.assertEqual(self.queue.depth, kept, policy)
            self.assertEqual(self.queue.tally.duplicates, 10 - kept, policy)

    def test_held_only(self) -> None:
        """Q-09: what is acquired is held; what has gone may come again."""
        self.boot(duplicates=Duplicates.GLOBAL_IDS)
        self.put(identified("a"))
        taker = self.taker(9)
        self.put(identified("a"))
        self.assertEqual(self.queue.depth, 1)
        self.settle(taker, taker.held, RELEASED)
        self.put(identified("a"))
        self.assertEqual(self.queue.depth, 1)
        self.settle(taker, taker.held, ACCEPTED)
        self.put(identified("a"))
        self.assertEqual((self.queue.depth, self.queue.tally.duplicates), (1, 2))

    def test_in_the_journal(self) -> None:
        """Each arrival is a record, kept or not; one that is not kept has no number."""
        self.boot(duplicates=Duplicates.ALL)
        self.put(identified("a"), identified("b"), identified("a"), identified("a"))
        runs = self.broker.journal.runs
        self.assertEqual(
            [(run.kind, run.count) for run in runs],
            [(RecordKind.RECEIVED, 1)] * 2 + [(RecordKind.DUPLICATE, 1)] * 2,
        )
        for run in runs[2:]:
            told = json.loads(run.shared) | json.loads(run.columns)
            self.assertEqual((told["node"], told["message_id"]), ("q", "a"))
            self.assertNotIn("entry", told)

    def test_paged_and_restarted(self) -> None:
        """Q-09: where an entry stands makes no difference, nor does a restart."""
        for _ in range(2):
            self.boot(QueueLimits(resident_messages=2), duplicates=Duplicates.GLOBAL_IDS)
            self.put(*[identified(f"id {number}") for number in range(9)])
            self.assertEqual(self.queue.depth, 9)
        self.assertEqual(self.queue.tally.duplicates, 9)
        taker = self.taker(20)
        turn(self.clock)
        self.settle(taker, taker.held, ACCEPTED)
        self.assertEqual((self.queue.depth, len(self.queue.state.duplicates or ())), (0, 0))
        self.put(identified("id 1"))
        self.assertEqual(self.queue.depth, 1)

    def test_restarted_with_priorities(self) -> None:
        """Q-09: however many lines the backlog has, all of it is read."""
        self.patch(entry_list, "LOAD_MESSAGES", 2)
        everything = [
            identified(f"{priority} {number}", priority=priority)
            for priority in (1, 4, 6, 9)
            for number in range(7)
        ]
        for _ in range(2):
            self.boot(duplicates=Duplicates.GLOBAL_IDS)
            self.put(*everything)
            self.assertEqual(self.queue.depth, 28)
        self.assertEqual(self.queue.tally.duplicates, 28)

    def test_not_wanted_any_more(self) -> None:
        """Waiters for the reading of the backlog wait no longer when that is abandoned."""
        told = []

        class Sender:
            def tell(self) -> None:
                told.append(True)

        self.boot(duplicates=Duplicates.GLOBAL_IDS)
        self.put(identified("a"))
        node = NodeDeclaration("q", QueueLimits(), None, QueueOptions(duplicates=Duplicates.ALL))
        broker = make_broker(self.clock, self.store, node)
        queue = broker.nodes["q"]
        self.assertEqual(queue.space(), 0)
        sender = Sender()
        queue.when_space(sender.tell)
        queue.options = QueueOptions()
        self.assertGreater(queue.space(), 0)
        self.assertEqual(told, [True])

    def test_while_the_backlog_is_read(self) -> None:
        """No credit is given meanwhile, and what leaves then is forgotten as well."""
        self.patch(entry_list, "LOAD_MESSAGES", 2)
        self.boot(duplicates=Duplicates.GLOBAL_IDS)
        self.put(*[identified(f"id {number}") for number in range(9)])
        node = NodeDeclaration("q", QueueLimits(), None, QueueOptions(duplicates=Duplicates.ALL))
        self.broker = make_broker(self.clock, self.store, node)
        self.queue = self.broker.nodes["q"]
        self.assertEqual(self.queue.space(), 0)
        taker = Taker(self.queue, 9)
        self.queue.dispatch()
        self.clock.advance(0)
        self.settle(taker, taker.held[-3:], ACCEPTED)
        self.assertGreater(self.queue.space(), 0)
        self.put(*[identified(f"id {number}") for number in range(9)])
        self.assertEqual((self.queue.depth, self.queue.tally.duplicates), (9, 6))
        self.settle(taker, list(taker.held), ACCEPTED)
        self.settle(self.taker(9), [], ACCEPTED)

    def test_failed_commit(self) -> None:
        """A message that could not be stored is not held; nor does it hide a repetition."""
        self.boot(duplicates=Duplicates.GLOBAL_IDS)
        first = self.broker.begin()
        self.queue.put(identified("a"), first, ORIGIN)
        second = self.broker.begin()
        self.queue.put(identified("a"), second, ORIGIN)
        first.abandon()
        second.commit()
        turn(self.clock)
        self.assertEqual(self.queue.depth, 1)
        self.put(identified("a"))
        self.assertEqual(self.queue.depth, 1)

    def test_on_the_way(self) -> None:
        """Of two copies in one batch, or in two at one time, the first stays."""
        self.boot(duplicates=Duplicates.GLOBAL_IDS)
        batches = [self.broker.begin() for _ in range(2)]
        for batch in batches:
            for number in range(2):
                self.queue.put(identified("a", b"%d" % number), batch, ORIGIN)
        for batch in batches:
            batch.commit()
        turn(self.clock)
        self.assertEqual(self.taker(9).seen, [b"0"])
        self.assertEqual(len(self.store.rows("q")), 1)

    def test_purged(self) -> None:
        """A purge forgets the ids."""
        self.boot(QueueLimits(resident_messages=2), duplicates=Duplicates.GLOBAL_IDS)
        self.put(*[identified(f"id {number}") for number in range(9)])
        self.queue.purge()
        turn(self.clock)
        self.assertEqual((self.queue.depth, len(self.queue.state.duplicates or ())), (0, 0))

    def test_shown_and_gone(self) -> None:
        """Entries that only a browser still has do not count as duplicates."""
        self.boot()
        browser = Taker(self.queue, 9, copies=True)
        self.put(identified("a", durable=False))
        self.queue.purge()
        self.put(identified("b"))
        self.assertEqual(len(browser.held), 2)
        self.assertEqual(list(self.queue.held_by_consumers()), [])
        self.queue.options = replace(self.queue.options, duplicates=Duplicates.GLOBAL_IDS)
        turn(self.clock)
        self.put(identified("a"), identified("b"))
        self.assertEqual(self.queue.depth, 2)

    def test_full(self) -> None:
        """A repetition is accepted even where there is no room."""
        self.boot(QueueLimits(capacity=1), duplicates=Duplicates.GLOBAL_IDS)
        self.put(identified("a"), identified("a"))
        self.assertRaises(
            ResourceLimitExceeded, self.queue.put, identified("b"), self.broker.begin(), ORIGIN
        )

    def test_bound(self) -> None:
        """Beyond a number of ids no further ones are compared, and the log says so."""
        self.patch(once_module, "MOST", 2)
        self.boot(duplicates=Duplicates.GLOBAL_IDS)
        self.put(*[identified(each) for each in ("a", "b", "c", "c", "a")])
        self.assertEqual(self.queue.depth, 4)

    @given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=200))
    def test_identities(self, steps: list[tuple[bool, int]]) -> None:
        """The table is a multiset."""
        table, model = MessageIdIndex(), Counter[int]()
        for adds, number in steps:
            value = number << 58 | number
            if adds:
                table.add(value)
                model[value] += 1
            else:
                table.discard(value)
                if model[value]:
                    model[value] -= 1
            self.assertEqual(value in table, model[value] > 0)
        self.assertEqual(len(table), model.total())

    def test_growth(self) -> None:
        """Many of them."""
        table = MessageIdIndex()
        values = [hash(b"%d" % number) & (1 << 64) - 1 for number in range(5000)]
        for value in values:
            table.add(value)
        self.assertTrue(all(value in table for value in values))
        for value in values[::2]:
            table.discard(value)
        self.assertEqual([value in table for value in values], [False, True] * 2500)

    def test_encodings(self) -> None:
        """An id is the same one however it is encoded; type and value both count (M-07)."""
        long = "x" * 300
        short = identified("ab")
        head = sections.encode_header(spec.Header(durable=True))
        wide = Message(
            head
            + b"\x00\x53\x73\xd0\x00\x00\x00\x0b\x00\x00\x00\x01\xb1\x00\x00\x00\x02ab"
            + sections.encode_section(spec.SECTION_DATA, b"x")
        )
        self.assertEqual(identity_of(short, False), identity_of(wide, False))
        self.assertNotEqual(identity_of(short, False), identity_of(identified(b"ab"), False))
        self.assertNotEqual(identity_of(identified(long), False), 0)
        for number in (0, 7, 255, 256, 1 << 40):
            one = identified(ULong(number))
            self.assertEqual(identity_of(one, False), 0)
            self.assertEqual(identity_of(one, True), identity_of(padded(number), True))
            self.assertNotEqual(identity_of(one, True), identity_of(identified(str(number)), True))
        self.assertEqual(identity_of(message(to="q"), True), 0)
        self.assertEqual(identity_of(message(), True), 0)


class ConsumerTests(OptionCase):
    """maximum-destructive-links and its policy (Q-20, Q-21)."""

    def test_fail(self) -> None:
        """Q-21: one more is refused; the condition tells a limit of one from another."""
        self.boot(destructive_links=1)
        self.taker()
        self.assertRaises(ResourceLocked, self.queue.check_source, False)
        self.queue.check_source(True)
        self.queue.check_source(False, leaving=1)
        self.boot(destructive_links=2)
        self.taker()
        self.queue.check_source(False)
        self.taker(copies=True)
        self.taker()
        self.assertRaises(ResourceLimitExceeded, self.queue.check_source, False)

    def test_none(self) -> None:
        """Q-20: with 0 the queue can be browsed only."""
        self.boot(destructive_links=0)
        self.assertRaises(NotAllowed, self.queue.check_source, False)
        self.put(message(b"1"))
        self.assertEqual(self.taker(9, copies=True).seen, [b"1"])

    def test_wait(self) -> None:
        """Q-21: the one that waits longest is promoted; drains are answered meanwhile."""
        self.boot(destructive_links=1, excess=Excess.WAIT)
        self.queue.check_source(False)
        first, second, third = (self.taker() for _ in range(3))
        self.put(message(b"1"), message(b"2"))
        second.take(9)
        self.assertEqual(second.seen, [])
        self.assertGreater(second.exhaustions, 0)
        first.take(1)
        self.assertEqual((first.seen, self.queue.consumers), ([b"1"], 3))
        self.queue.detach(first)
        self.settle(first, list(first.held), RELEASED)
        self.assertEqual((second.seen, third.seen), ([b"1", b"2"], []))
        self.queue.detach(third)
        self.assertEqual(self.queue.consumers, 1)

    def test_raised(self) -> None:
        """A higher limit promotes those who wait."""
        self.boot(destructive_links=1, excess=Excess.WAIT)
        self.taker()
        waiting = self.taker(9)
        self.put(message(b"1"))
        self.queue.options = QueueOptions()
        turn(self.clock)
        self.assertEqual(waiting.seen, [b"1"])


class LifeTests(OptionCase):
    """archive-expired, ttl 0, archive-currently-unreachable (Q-22, Q-23, D-11, K-12)."""

    def test_not_archived(self) -> None:
        """Q-22, K-12: with archive-expired false nothing ends here."""
        self.boot(archive_expired=False)
        self.put(message(b"1", ttl=100))
        self.clock.advance(60)
        self.assertEqual(self.taker(1).seen, [b"1"])

    def test_archived(self) -> None:
        """Q-22: the usual thing: it goes, and is dead-lettered."""
        self.boot()
        self.put(message(b"1", ttl=100))
        self.clock.advance(1)
        turn(self.clock)
        self.assertEqual((self.queue.depth, self.broker.nodes["dead"].depth), (0, 1))

    def test_ttl_zero(self) -> None:
        """D-11: a ttl of 0 is delivered if there is a consumer ready, else never."""
        self.boot()
        self.put(message(b"1", ttl=0))
        turn(self.clock)
        self.assertEqual((self.queue.depth, self.broker.nodes["dead"].depth), (0, 1))
        taker = self.taker(1)
        self.put(message(b"2", ttl=0), message(b"3", ttl=0))
        self.assertEqual(taker.seen, [b"2"])
        self.settle(taker, list(taker.held), RELEASED)
        taker.take(9)
        turn(self.clock)
        self.assertEqual(taker.seen, [b"2"])
        self.assertEqual((self.queue.depth, self.queue.tally.expired), (0, 3))

    def test_nobody_there(self) -> None:
        """Q-23: with no link attached everything is archived at once."""
        self.boot(archive_unreachable=True)
        self.put(message(b"1"))
        self.assertEqual((self.queue.depth, self.queue.tally.unreachable), (0, 1))
        self.assertEqual(self.store.rows("q"), [])

    def test_each_has_seen_it(self) -> None:
        """Q-23, L-27: it goes when the last browser that wants it has confirmed it."""
        self.boot(archive_unreachable=True, destructive_links=0)
        first = self.taker(9, copies=True)
        second = self.taker(9, copies=True, selects=lambda entry: body_of(entry) != b"2")
        self.put(message(b"1"), message(b"2"))
        self.assertEqual(self.queue.depth, 2)
        self.settle(first, list(first.held), ACCEPTED)
        self.assertEqual(self.queue.depth, 1)
        self.settle(second, list(second.held), RELEASED)
        self.assertEqual(self.queue.depth, 1)
        self.settle(second, list(second.held), Rejection())
        self.assertEqual((self.queue.depth, self.queue.tally.unreachable), (0, 2))

    def test_a_link_goes(self) -> None:
        """Q-23: what only the one that goes has wanted goes with it."""
        self.boot(archive_unreachable=True)
        browser = self.taker(9, copies=True, selects=lambda entry: body_of(entry) == b"1")
        mover = self.taker(0)
        self.put(message(b"1"), message(b"2"))
        self.assertEqual(self.queue.depth, 2)
        self.queue.detach(mover)
        turn(self.clock)
        self.assertEqual(self.queue.depth, 1)
        self.queue.detach(browser)
        turn(self.clock)
        self.assertEqual(self.queue.depth, 0)

    def test_paged(self) -> None:
        """Q-23: a backlog goes as well."""
        self.boot(QueueLimits(resident_messages=2), archive_unreachable=True)
        browsers = [self.taker(99, copies=True) for _ in range(2)]
        self.put(*[message(b"%d" % number) for number in range(8)])
        for browser in browsers:
            self.assertEqual(len(browser.seen), 8)
            self.settle(browser, list(browser.held), ACCEPTED)
        turn(self.clock)
        self.assertEqual((self.queue.depth, self.store.rows("q")), (0, []))

    def test_restarted(self) -> None:
        """Q-23: after a restart no link is attached."""
        self.boot()
        self.put(message(b"1"))
        self.boot(archive_unreachable=True)
        self.assertEqual((self.queue.depth, self.store.rows("q")), (0, []))
