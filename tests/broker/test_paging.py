# SPDX-License-Identifier: Apache-2.0
"""Backlogs in the store: bounded memory, one order, no loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amqproute.broker import entry_list as line_module
from amqproute.broker.commit_retry import retry_settle
from amqproute.broker.priority_queues import USUAL_PRIORITY
from amqproute.broker.publish_gate import DISK, STORE
from amqproute.broker.queue_iterator import BUSY_SECONDS
from amqproute.errors import StoreError, StoreUnavailable
from amqproute.outcomes import Modification
from amqproute.store.model import DamagedEntry
from amqproute.values import QUARANTINE
from tests.broker.test_queue import ACCEPTED, RELEASED, QueueCase
from tests.support.fakes import Taker, message, put


class PagingTests(QueueCase):
    """A queue that keeps three entries in memory."""

    def setUp(self) -> None:
        super().setUp()
        self.make(resident_messages=3)

    def numbered(self, *numbers: int) -> list[bytes]:
        """Return bodies."""
        return [b"%d" % number for number in numbers]

    def test_memory_is_bounded(self) -> None:
        """Beyond the limit entries are counted and forgotten, durable or not."""
        self.put(*self.numbered(*range(10)), durable=False)
        self.put(*self.numbered(*range(10, 2000)))
        self.assertEqual((self.queue.resident, self.queue.depth), (3, 2000))
        self.assertEqual(len(self.store.rows("q")), 1997)
        size = sum(len(row.encoded) for row in self.store.rows("q"))
        self.assertEqual(self.queue.paged_bytes, size)

    def test_order_through_pages(self) -> None:
        """A consumer sees one line, whatever its room."""
        everything = self.numbered(*range(1300))
        self.put(*everything)
        taker = Taker(self.queue)
        while len(taker.seen) < 1300:
            taker.take(70)
            self.turn()
            self.settle(taker, list(taker.held), ACCEPTED)
            self.assertLess(self.queue.resident, 800)
        self.assertEqual(taker.seen, everything)
        self.assertEmpty(self.queue)
        self.queue.detach(taker)
        self.put(b"after")
        self.assertEqual((self.queue.resident, self.queue.paged_bytes), (1, 0))

    def test_arrivals_while_loading(self) -> None:
        """Messages that arrive during the read of a page come after it."""
        self.put(*self.numbered(*range(6)))
        taker = Taker(self.queue)
        taker.take(100)
        put(self.broker, self.queue, message(b"6"), message(b"7"))
        put(self.broker, self.queue, message(b"8"))
        self.turn()
        self.put(b"9")
        self.assertEqual(taker.seen, self.numbered(*range(10)))

    def test_released_while_paged(self) -> None:
        """A released entry comes before the pages."""
        self.put(*self.numbered(*range(6)))
        taker = Taker(self.queue)
        taker.take(2)
        self.settle(taker, list(taker.held), RELEASED)
        taker.take(6)
        self.turn()
        self.assertEqual(taker.seen[2:], self.numbered(0, 1, 2, 3, 4, 5))

    def test_barred_entries_do_not_fill_the_memory(self) -> None:
        """A consumer that bars itself from everything cannot pull the backlog into memory."""
        self.put(*self.numbered(*range(2000)))
        taker = Taker(self.queue)
        for _ in range(100):
            taker.take(100)
            self.turn()
            outcome = Modification(undeliverable_here=True)
            self.settle(taker, list(taker.held), outcome)
        self.assertLess(self.queue.resident, 3 + 2 * line_module.LOAD_MESSAGES)
        self.queue.detach(taker)
        other = Taker(self.queue)
        other.take(2000)
        self.turn()
        self.assertEqual(other.seen, self.numbered(*range(2000)))

    def test_restart(self) -> None:
        """Durable entries are there again, in order; acquired ones too; transient ones not."""
        self.put(b"0", b"1", durable=False)
        self.put(*self.numbered(*range(2, 8)))
        self.put(b"8", durable=False)
        taker = Taker(self.queue)
        taker.take(4)
        self.make(resident_messages=3)
        self.assertEqual((self.queue.depth, self.queue.resident), (6, 0))
        self.put(b"9")
        self.assertEqual(self.bodies(self.queue), self.numbered(*range(2, 8), 9))
        self.assertEmpty(self.queue)

    def test_damaged_in_pages(self) -> None:
        """The remains of a damaged entry may be anything: the queue goes on without it."""
        self.put(*self.numbered(*range(8)))
        *rows, unreadable = self.store.rows("q")[4:]  # behind those in memory
        # Described values without end, nothing at all, and what could be a message.
        lefts = [bytes(200), b"", rows[2].encoded]
        damages = [
            DamagedEntry(row.id, "rotten", replace(row, encoded=left), len(row.encoded))
            for row, left in zip(rows, lefts, strict=True)
        ]
        self.queue.quarantined(USUAL_PRIORITY, [*damages, DamagedEntry(unreadable.id, "gone")])
        self.assertEqual((self.queue.depth, self.queue.tally.damaged), (4, 4))

    def test_no_message(self) -> None:
        """Rows whose octets are no message, though their checksums fit, are set aside and named,
        also where a whole page is of them; the others are delivered."""
        self.patch(line_module, "LOAD_MESSAGES", 2)
        self.put(*self.numbered(*range(10)))
        lefts = [bytes(200), b"", b"\x00Sp", b"\x00Sp\xc0", b"\xff" * 40]
        bad = dict(zip([row.id for row in self.store.rows("q")[4:9]], lefts, strict=True))
        load = self.store.load

        def spoilt(*arguments: Any) -> Any:
            def spoil(rows: Any) -> Any:
                return [replace(row, encoded=bad.get(row.id, row.encoded)) for row in rows]

            return load(*arguments).addCallback(spoil)

        self.patch(self.store, "load", spoilt)
        self.assertEqual(self.bodies(self.queue), self.numbered(0, 1, 2, 3, 9))
        self.assertEmpty(self.queue)
        self.assertEqual(self.queue.tally.damaged, 5)
        self.assertEqual([row.id for row in self.store.rows(QUARANTINE)], sorted(bad))

    def test_load_by_bytes(self) -> None:
        """A page is bounded in bytes as well."""
        self.put(*[bytes(1024 * 1024)] * 12)
        taker = Taker(self.queue)
        taker.take(1)
        self.turn()
        self.assertLess(self.queue.resident_bytes, line_module.LOAD_BYTES + 4 * 1024 * 1024)
        taker.take(11)
        self.turn()
        self.assertEqual(len(taker.seen), 12)

    def test_purge(self) -> None:
        """Everything that waits goes, in memory and in the store; what is acquired stays."""
        self.put(*self.numbered(*range(1200)))
        taker = Taker(self.queue)
        taker.take(2)
        self.assertTrue(any(line.is_busy for line in self.queue.state.levels.lines))
        purged = self.queue.purge()
        self.turn()
        self.assertEqual(self.successResultOf(purged), 1198)  # with the page that was being loaded
        self.assertEqual((self.queue.depth, len(self.store.rows("q"))), (2, 2))
        self.put(b"new")
        taker.take(5)
        self.assertEqual(taker.seen, [b"0", b"1", b"new"])
        self.settle(taker, list(taker.held), ACCEPTED)
        self.assertEmpty(self.queue)

    def test_purge_of_a_slow_store(self) -> None:
        """A page that takes long to load is waited for; what arrives meanwhile stays."""
        self.put(*self.numbered(*range(10)))
        (line,) = self.queue.state.levels.lines
        line.is_busy = True
        purged = self.queue.purge()
        self.turn()
        self.put(b"new")
        self.assertNoResult(purged)
        line.is_busy = False
        self.clock.advance(BUSY_SECONDS)
        self.turn()
        self.assertEqual(self.successResultOf(purged), 10)
        taker = Taker(self.queue)
        taker.take(5)
        self.turn()
        self.assertEqual(taker.seen, [b"new"])


class LittleRoomTests(QueueCase):
    """A disk that was full, and is nearly so."""

    def test_removals_go_on(self) -> None:
        """Steps that free room do not wait for room: otherwise both would wait for ever."""
        self.make(resident_messages=1)
        self.put(b"0", b"1", b"2")
        taker = Taker(self.queue)
        taker.take(1)
        gate = self.broker.gate
        gate.close(DISK, "too little room for messages")

        def full(transaction: object) -> None:
            raise StoreUnavailable("no room")

        patched = self.patch(self.store, "_apply", full)
        batch = self.broker.begin()
        self.queue.settle(list(taker.held), ACCEPTED, batch, taker)
        taken = batch.commit().addErrback(retry_settle, batch, self.broker.begin)
        purged = self.queue.purge()
        self.turn()
        self.assertNoResult(taken)
        self.assertNoResult(purged)
        self.assertEqual(len(self.store.rows("q")), 3)
        self.assertEqual(set(gate.reasons), {DISK, STORE})
        patched.restore()
        gate.open(STORE)
        self.turn()
        self.assertIsNone(self.successResultOf(taken))
        self.assertEqual(self.successResultOf(purged), 2)
        self.assertEqual(self.store.rows("q"), [])
        self.assertFalse(gate.is_open)


class FailingPagesTests(QueueCase):
    """A store that fails in between."""

    def test_load_again(self) -> None:
        """A page that could not be read is asked for again."""
        self.make(resident_messages=1)
        self.put(b"0", b"1", b"2")
        load = self.store._load
        self.store._load = self.fails  # type: ignore[method-assign]
        taker = Taker(self.queue)
        taker.take(5)
        self.turn()
        self.assertEqual(len(self.flushLoggedErrors()), 1)
        self.store._load = load  # type: ignore[method-assign]
        self.clock.advance(5)
        self.turn()
        self.assertEqual(taker.seen, [b"0", b"1", b"2"])

    @staticmethod
    def fails(*_: object) -> list[object]:
        """Fail as a store does."""
        raise StoreError("unreadable")
