# SPDX-License-Identifier: Apache-2.0
"""SqliteStore: the contract, its life cycle, its failures."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
import threading
import time
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute.errors import LocalProtocolError, StoreError, StoreForeign, StoreUnavailable
from amqproute.interfaces import IStore, IStoreTransaction
from amqproute.store import database_schema
from amqproute.store.ballast import Ballast
from amqproute.store.db_writer import WriterCall
from amqproute.store.fsck import check
from amqproute.store.model import TRANSIENT, QueueSummary, StoredEntry
from amqproute.store.sqlite import ID_BLOCK, SqliteStore
from amqproute.store.store_sizes import sizes_for
from tests.store.rig import StoreFixture
from tests.support.patience import PATIENCE


class StoreCase(SynchronousTestCase):
    """A store in a directory of its own, closed at the end."""

    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp(), "state", "queues.db")
        self.houses: list[StoreFixture] = []
        self.patch(Faulty, "faults", {})

    def house(self, **options: Any) -> StoreFixture:
        house = StoreFixture(self.path, **options)
        self.houses.append(house)
        return house

    def opened(self, **options: Any) -> StoreFixture:
        house = self.house(**options)
        house.open()
        return house

    def commit(self, house: StoreFixture, *calls: tuple[Any, ...]) -> Deferred[None]:
        transaction = house.store.begin()
        for name, *args in calls:
            getattr(transaction, name)(*args)
        return transaction.commit()

    def hold(self, house: StoreFixture) -> Any:
        """Keep the writer busy, so that what is committed next becomes one group."""
        gate = threading.Event()
        house.store._writer.submit(WriterCall(lambda: gate.wait(PATIENCE), Deferred()))
        house.reactor.next_call()()

        def release() -> None:
            house.reactor.next_call()()  # hands over what has been committed meanwhile
            gate.set()

        return release

    def tearDown(self) -> None:
        for house in self.houses:
            house.close()


class LifeTests(StoreCase):
    """Opening, closing, who may open."""

    def test_interface(self) -> None:
        """The store and its transactions provide their interfaces."""
        house = self.opened()
        verifyObject(IStore, house.store)
        verifyObject(IStoreTransaction, house.store.begin())

    def test_private(self) -> None:
        """Directory and files are the owner's alone."""
        house = self.opened(file_bytes=100)
        house.put("q", b"x" * 1000)
        state = os.path.dirname(self.path)
        there = [state]
        for folder, folders, names in os.walk(state):
            there += [os.path.join(folder, name) for name in (*folders, *names)]
        self.assertGreater(len(there), 5)
        for path in there:
            status = os.stat(path)
            wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
            self.assertEqual(stat.S_IMODE(status.st_mode), wanted, path)

    def test_second_daemon(self) -> None:
        """A second store on the same file is refused in words and does not hurt the first."""
        first = self.opened()
        error = self.assertRaises(StoreError, self.house().open)
        self.assertIn(f"in use by process {os.getpid()}", str(error))
        first.put("q", b"x")

    def test_newer_schema(self) -> None:
        """A database of a newer release is left alone."""
        self.opened().close()
        with sqlite3.connect(self.path) as connection:
            connection.execute("PRAGMA user_version=99")
        connection.close()
        self.assertIn("newer release", str(self.assertRaises(StoreError, self.house().open)))
        self.assertIn("newer release", str(self.assertRaises(StoreForeign, check, self.path)))

    def test_foreign(self) -> None:
        """Another program's database is left alone."""
        os.makedirs(os.path.dirname(self.path))
        connection = sqlite3.connect(self.path)
        connection.execute("CREATE TABLE bookmarks (url)")
        connection.commit()
        connection.close()
        self.assertIn("another program", str(self.assertRaises(StoreError, self.house().open)))

    def test_not_a_database(self) -> None:
        """A file that is no database is refused with the next step."""
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "wb") as file:
            file.write(b"this is not a database" * 1000)
        self.assertIn(".recover", str(self.assertRaises(StoreError, self.house().open)))

    def test_damaged(self) -> None:
        """A damaged page is found when the store is opened."""
        house = self.opened(page_size=4096)
        house.put("q", *[os.urandom(1000) for _ in range(500)])
        house.close()
        with open(self.path, "r+b") as file:
            for page in range(20, 100):
                file.seek(page * 4096)
                file.write(b"\xff" * 64)
        self.assertIn("damaged", str(self.assertRaises(StoreError, self.house().open)))

    def test_fsck(self) -> None:
        """The offline check is content with a sound store and names what is wrong."""
        house = self.opened()
        (first, _) = house.put("q", b"one", b"two")
        house.close()
        self.assertEqual(check(self.path), [])
        connection = sqlite3.connect(self.path)
        connection.execute("UPDATE entry SET size = 99 WHERE id = ?", (first,))
        connection.execute("DELETE FROM queue")
        connection.commit()
        connection.close()
        self.assertEqual(
            check(self.path),
            [
                f"entry {first}: 99 bytes noted, 3 bytes there",
                "queue 1 has entries and no name",
            ],
        )
        self.assertIn("has no name", str(self.assertRaises(StoreError, self.house().open)))
        self.assertRaises(StoreError, check, self.path + ".nowhere")

    def test_unwritable(self) -> None:
        """A path that cannot be is an error in words."""
        os.makedirs(self.path)
        self.assertIn("cannot open", str(self.assertRaises(StoreError, self.house().open)))

    def test_upgrade(self) -> None:
        """A database of an older release gets the steps that are missing, once."""
        house = self.opened()
        (kept,) = house.put("q", b"kept")
        house.close()
        extra = ("CREATE TABLE later (x)",)
        self.patch(database_schema, "UPGRADES", (*database_schema.UPGRADES, extra))
        for _ in range(2):
            house = self.opened()
            self.assertEqual([entry.id for entry in house.load("q")], [kept])
            house.close()

    def test_close_waits(self) -> None:
        """Closing comes after everything that waits; later work is refused."""
        house = self.opened()
        transaction = house.store.begin()
        transaction.enqueue("q", house.store.next_id(), b"last", 1, 0, 0)
        committed = transaction.commit()
        closed = house.store.close()
        late = house.store.begin().commit()
        house.reactor.wait(closed)
        self.assertIsNone(self.successResultOf(committed))
        self.assertRaises(StoreError, house.reactor.wait, late)
        self.assertFalse(os.path.exists(self.path + "-wal"))
        self.assertEqual(self.house().open().queues["q"].count, 1)

    def test_misuse(self) -> None:
        """Opening twice, working before opening, and using a committed transaction are bugs."""
        house = self.house()
        self.assertRaises(LocalProtocolError, house.store.load, "q", 0, 1, 1)
        self.assertRaises(LocalProtocolError, house.store.begin().commit)
        house.open()
        self.assertRaises(LocalProtocolError, house.store.open)
        transaction = house.store.begin()
        transaction.commit()
        for late in (
            transaction.commit,
            lambda: transaction.enqueue("q", 1, b"", 0, 0, 0),
            lambda: transaction.dequeue([1]),
            lambda: transaction.update(1, 1),
            lambda: transaction.note("a", "b", b""),
        ):
            self.assertRaises(LocalProtocolError, late)


class WorkTests(StoreCase):
    """Entries, receipts, notes, and what a restart leaves of them."""

    def test_round_trip(self) -> None:
        """Bodies come back byte for byte, whatever is in them, in the order of their ids."""
        bodies = [b"", b"\0", b"a\0b", bytes(range(256)), "é\0ü".encode("latin-1"), b"x" * 300_000]
        house = self.opened()
        ids = house.put("q", *bodies, expires_ms=5, flags=6)
        expected = [
            StoredEntry(one, body, house.now_ms, 5, 0, 6)
            for one, body in zip(ids, bodies, strict=True)
        ]
        self.assertEqual(house.load("q"), expected)
        house.close()
        house = self.house()
        size = sum(map(len, bodies))
        summary = QueueSummary(len(bodies), size, ids[0], ids[-1], house.now_ms)
        self.assertEqual(house.open().queues, {"q": summary})
        self.assertEqual(house.load("q"), expected)

    def test_pages(self) -> None:
        """A page ends at its number of entries or of bytes, whichever comes first."""
        house = self.opened()
        ids = house.put("q", *[b"x" * 100] * 10)
        house.put("other", b"y")
        self.assertEqual([e.id for e in house.load("q", ids[2], 3)], ids[3:6])
        self.assertEqual([e.id for e in house.load("q", 0, 10, 250)], ids[:3])
        self.assertEqual([e.id for e in house.load("q", 0, 10, 1)], ids[:1])
        self.assertEqual(house.load("q", ids[-1]), [])
        self.assertEqual(house.load("nowhere"), [])

    def test_expired(self) -> None:
        """Only what has an expiry, and has reached it, in id order."""
        house = self.opened()
        house.put("q", b"never")
        (late,) = house.put("q", b"late", expires_ms=50)
        (early,) = house.put("q", b"early", expires_ms=10)
        house.put("other", b"x", expires_ms=10)

        def expired(now: int, after: int = 0, limit: int = 10) -> list[int]:
            found = house.reactor.wait(house.store.expired("q", now, after, limit))
            return [entry.id for entry in found]

        self.assertEqual(expired(9), [])
        self.assertEqual(expired(10), [early])
        self.assertEqual(expired(50), [late, early])
        self.assertEqual(expired(50, after=late), [early])
        self.assertEqual(expired(50, limit=1), [late])

    def test_load_between_commits(self) -> None:
        """A load sees what was committed before it and nothing that was committed after."""
        house = self.opened()
        order: list[Any] = []
        for step in range(3):
            transaction = house.store.begin()
            transaction.enqueue("q", house.store.next_id(), b"x", 1, 0, 0)
            transaction.commit().addCallback(lambda _, step=step: order.append(step))
            loaded = house.store.load("q", 0, 10, 1000)
            loaded.addCallback(lambda found: order.append(f"saw {len(found)}"))
        house.reactor.wait(loaded)
        self.assertEqual(order, [0, "saw 1", 1, "saw 2", 2, "saw 3"])

    def test_never_at_once(self) -> None:
        """Deferreds fire in commit order, empty transactions too, and never inside the call."""
        house = self.opened()
        order: list[int] = []
        last: Deferred[None] | None = None
        for step in range(20):
            transaction = house.store.begin()
            if step % 3:
                transaction.enqueue("q", house.store.next_id(), b"x", 1, 0, 0)
            last = transaction.commit()
            self.assertFalse(last.called)
            last.addCallback(lambda _, step=step: order.append(step))
        assert last is not None
        house.reactor.wait(last)
        self.assertEqual(order, list(range(20)))

    def test_empty_writes_nothing(self) -> None:
        """An empty transaction leaves the log as it is."""
        house = self.opened()
        size = os.path.getsize(self.path + "-wal")
        house.reactor.wait(house.store.begin().commit())
        self.assertEqual(os.path.getsize(self.path + "-wal"), size)

    def test_transient(self) -> None:
        """Transient entries are there until the store is opened again."""
        house = self.opened()
        house.put("q", *[b"t"] * 30, flags=TRANSIENT)
        (kept,) = house.put("q", b"k", flags=2)
        self.assertEqual(len(house.load("q")), 31)
        house.close()
        house = self.house()
        self.assertEqual(house.open().queues, {"q": QueueSummary(1, 1, kept, kept, house.now_ms)})

    def test_many_rows(self) -> None:
        """Every number of rows finds its statements, contiguous ids or not."""
        house = self.opened()
        for count in (1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 700):
            ids = house.put("q", *[b"%d" % n for n in range(count)])
            transaction = house.store.begin()
            for one in ids:
                transaction.update(one, 7)
            transaction.dequeue(ids[::2])
            house.reactor.wait(transaction.commit())
            left = house.load("q")
            self.assertEqual([e.id for e in left], ids[1::2])
            self.assertEqual({e.delivery_count for e in left}, {7} if left else set())
            transaction = house.store.begin()
            moved = [house.store.next_id() for _ in left]
            for entry, new_id in zip(left, moved, strict=True):
                transaction.move(entry.id, "dead", new_id)
            house.reactor.wait(transaction.commit())
            self.assertEqual([e.id for e in house.load("dead")], moved)
            transaction = house.store.begin()
            transaction.dequeue(moved)
            house.reactor.wait(transaction.commit())
        self.assertEqual(house.load("q") + house.load("dead"), [])

    def test_receipts(self) -> None:
        """Receipts are forgotten exactly: by id, by stream, by time."""
        house = self.opened()

        def do(name: str, *args: Any) -> None:
            transaction = house.store.begin()
            getattr(transaction, name)(*args)
            house.reactor.wait(transaction.commit())

        do("mark_received", "s", [1, 2, 3, 10, 7])
        do("mark_received", "s", range(20, 30))
        do("mark_received", "gone", [5])
        do("mark_received", "old", [8])
        do("forget_received", "s", 3)
        do("forget_received", "s", 25)
        do("mark_received", "s", [1])
        do("forget_stream", "gone")
        house.now_ms += 10
        do("mark_received", "new", [9])
        do("forget_received_before", house.now_ms - 5)
        house.close()
        self.assertEqual(self.house().open().received, {"new": [9]})

    def test_modes(self) -> None:
        """Nobody but the owner gets at any of its files, large bodies included."""
        house = self.house(file_bytes=1000)
        house.open()
        house.put("q", b"small", b"x" * 5000)
        directory = os.path.dirname(self.path)
        found = [directory]
        for path, folders, files in os.walk(directory):
            found += [os.path.join(path, name) for name in [*folders, *files]]
        self.assertGreater(len(found), 5)
        for path in found:
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)

    def test_clock_set_ahead(self) -> None:
        """Entries age from this much later on; what never expires does not, nor do receipts."""
        house = self.opened()
        transaction = house.store.begin()
        first, second = house.store.next_id(), house.store.next_id()
        transaction.enqueue("q", first, b"1", 1000, 5000, 0)
        transaction.enqueue("q", second, b"2", 1000, 0, 0)
        # Of a time when the clock was right, and ahead.
        transaction.enqueue("q", house.store.next_id(), b"3", 1500, 5000, 0)
        transaction.enqueue("q", house.store.next_id(), b"4", 9000, 9500, 0)
        transaction.mark_received("s", [1])
        house.reactor.wait(transaction.commit())
        marked_ms = house.now_ms
        transaction = house.store.begin()
        transaction.postpone(700, 1900)
        house.reactor.wait(transaction.commit())
        rows = house.reactor.wait(house.store.load("q", 0, 10, 1000))
        self.assertEqual(
            [(row.arrived_ms, row.expires_ms) for row in rows],
            [(1700, 5700), (1700, 0), (1900, 5400), (9000, 9500)],
        )
        house.close()
        self.assertEqual(self.house().open().received_ms, marked_ms)

    def test_one_row_for_a_call(self) -> None:
        """However many ids are marked, one row is written."""
        house = self.opened()
        transaction = house.store.begin()
        transaction.mark_received("s", range(0, 1000, 3))
        house.reactor.wait(transaction.commit())
        house.close()
        connection = sqlite3.connect(self.path)
        rows = connection.execute("SELECT count(*) FROM receipt").fetchone()
        connection.close()
        self.assertEqual(rows, (1,))
        self.assertEqual(self.house().open().received, {"s": list(range(0, 1000, 3))})

    def test_ids_grow(self) -> None:
        """Ids grow over restarts; a clean close wastes none."""
        house = self.opened()
        (first,) = house.put("q", b"x")
        transaction = house.store.begin()
        transaction.dequeue([first])
        house.reactor.wait(transaction.commit())
        house.close()
        house = self.opened()
        self.assertEqual(house.store.next_id(), first + 1)

    def test_ids_are_reserved_ahead(self) -> None:
        """The durable bound moves on before it is reached, so ids that were never committed
        are not used again after a crash either."""
        house = self.opened()
        store: Any = house.store
        store._next = store._reserve_at
        used = store.next_id()
        house.reactor.wait(store.begin().commit())
        self.assertGreaterEqual(store._reserved, used + ID_BLOCK)
        store._next = store._reserved
        self.assertRaises(StoreError, store.next_id)
        house.reactor.wait(store.begin().commit())
        store._next = used + 1

    def test_statistics(self) -> None:
        """The counters say what was done."""
        house = self.opened()
        house.put("q", b"x", b"y")
        figures = house.store.statistics()
        self.assertEqual(figures["entries"], 2)
        self.assertEqual(figures["commits"], 1)
        self.assertEqual(figures["entries_per_commit"], 2)
        self.assertGreater(figures["wal_bytes"], 0)
        self.assertGreater(figures["db_bytes"], 0)
        self.assertGreater(figures["free_bytes"], 0)
        self.assertGreater(figures["max_commit_seconds"], 0)
        counted = house.store.figures
        for histogram in (counted.seconds, counted.sizes, counted.waits):
            self.assertEqual(histogram.cumulative()[-1], 1)
        self.assertEqual(counted.sizes.total, 1)
        self.assertGreaterEqual(counted.waits.total, counted.seconds.total)

    def test_used(self) -> None:
        """The space of messages is counted, in database and files; free space is not."""
        house = self.opened(file_bytes=100_000)
        ids = house.put("q", *[b"x" * 30_000] * 40, *[b"y" * 200_000] * 3)
        room = house.reactor.wait(house.store.room())
        self.assertGreater(room.used, 40 * 30_000 + 3 * 200_000)
        self.assertLess(room.used, 2 * (40 * 30_000 + 3 * 200_000))
        house.reactor.wait(self.commit(house, ("dequeue", ids[:40])))
        emptied = house.reactor.wait(house.store.room())
        self.assertGreater(emptied.reusable, 40 * 30_000)
        self.assertLess(emptied.used, room.used - 40 * 30_000)
        self.assertGreater(emptied.used, 3 * 200_000)

    def test_log_stays_bounded(self) -> None:
        """The log starts over under a load that never pauses, however slow the disk is."""
        house = self.opened(checkpoint_bytes=1 << 20, remainder_bytes=1 << 18)
        waiting: list[tuple[Deferred[None], list[int]]] = []
        written = 0
        end = time.monotonic() + PATIENCE
        # How long it gets depends on how fast the checkpointer copies; it has to stop growing.
        while written < 4 * house.store.statistics()["wal_bytes"]:
            self.assertLess(time.monotonic(), end, house.store.statistics())
            written += 50 * 1000
            ids = [house.store.next_id() for _ in range(50)]
            transaction = house.store.begin()
            for one in ids:
                transaction.enqueue("q", one, b"z" * 1000, 1, 0, 0)
            waiting.append((transaction.commit(), ids))
            if len(waiting) > 8:
                committed, ids = waiting.pop(0)
                house.reactor.wait(committed)
                self.commit(house, ("dequeue", ids))
        house.reactor.wait(waiting[-1][0])
        figures = house.store.statistics()
        self.assertGreater(figures["log_restarts"], 0)
        self.assertLess(figures["wal_bytes"], written)


class FailureTests(StoreCase):
    """A failure is told in words, and concerns its transaction alone."""

    def test_poison(self) -> None:
        """A transaction that cannot be written costs its group nothing."""
        house = self.opened()
        (taken,) = house.put("q", b"first")
        release = self.hold(house)
        ids = [house.store.next_id() for _ in range(3)]
        good = self.commit(house, ("enqueue", "q", ids[0], b"good", 1, 0, 0))
        bad = self.commit(
            house,
            ("enqueue", "q", ids[1], b"half", 1, 0, 0),
            ("enqueue", "new", taken, b"bad", 1, 0, 0),
        )
        typed = self.commit(house, ("enqueue", "q", ids[1], "no bytes", object(), 0, 0))
        last = self.commit(house, ("enqueue", "q", ids[2], b"too", 1, 0, 0))
        release()
        house.reactor.wait(last)
        self.assertIsNone(self.successResultOf(good))
        self.failureResultOf(bad, StoreError)
        self.failureResultOf(typed, StoreError)
        self.assertEqual([e.encoded for e in house.load("q")], [b"first", b"good", b"too"])
        self.assertEqual(house.store.statistics()["failed_transactions"], 2)
        house.put("new", b"the name is saved all the same")
        house.close()
        self.assertEqual(self.house().open().queues["new"].count, 1)

    def test_full(self) -> None:
        """On a full store what needs room fails in words, what makes room does not."""
        house = self.opened(max_bytes=1 << 20)
        ids: list[int] = []
        error: Any = None
        while error is None:
            try:
                ids += house.put("q", *[b"f" * 1000] * 100)
            except StoreError as caught:
                error = caught
        self.assertIn("no room", str(error))
        release = self.hold(house)
        extra = [house.store.next_id() for _ in range(400)]
        big = self.commit(house, *[("enqueue", "q", one, b"g" * 1000, 1, 0, 0) for one in extra])
        drain = self.commit(house, ("dequeue", ids[:-1]))
        release()
        house.reactor.wait(drain)
        self.failureResultOf(big, StoreError)
        self.assertEqual([e.id for e in house.load("q")], ids[-1:])
        house.put("q", *[b"f" * 1000] * 100)

    def test_commit_fails(self) -> None:
        """When the disk fails at the commit the whole group fails, and the next one is fine."""
        house = self.opened(connect=faulty)
        first = house.put("q", b"before")
        release = self.hold(house)
        faults = Faulty.faults = {"COMMIT": 2}
        gone = house.store.next_id()  # so that it is more than one statement
        failed = [
            self.commit(
                house,
                ("enqueue", "q", house.store.next_id(), b"lost", 1, 0, 0),
                ("dequeue", [gone]),
            )
            for _ in range(3)
        ]
        with capturedLogs() as events:
            release()
            self.assertRaises(StoreError, house.reactor.wait, failed[-1])
        for one in failed[:-1]:
            self.failureResultOf(one, StoreError)
        self.assertEqual(faults, {"COMMIT": 0})
        texts = [formatEvent(each) for each in events]
        self.assertEqual([each for each in texts if "second attempt" in each], [])
        after = house.put("q", b"after")
        self.assertEqual([e.id for e in house.load("q")], first + after)

    def test_commit_repeated(self) -> None:
        """A commit that succeeds at the second attempt is reported, several in a row once."""
        house = self.opened(connect=faulty)
        warnings = []
        with capturedLogs() as events:
            for fails in (1, 1, 0, 1):
                release = self.hold(house)
                gone = house.store.next_id()
                waits = [
                    self.commit(
                        house,
                        ("enqueue", "q", house.store.next_id(), b"x", 1, 0, 0),
                        ("dequeue", [gone]),
                    )
                    for _ in range(2)
                ]
                faults = Faulty.faults = {"COMMIT": fails}
                release()
                house.reactor.wait(waits[-1])
                self.successResultOf(waits[0])
                self.assertEqual(faults, {"COMMIT": 0})
                texts = [formatEvent(each) for each in events]
                warnings.append(len([each for each in texts if "disk I/O error" in each]))
        self.assertEqual(warnings, [1, 1, 1, 2])
        self.assertEqual(len(house.load("q")), 8)

    def test_lone_statement_fails(self) -> None:
        """A group of new entries is one statement; when it fails each is tried alone."""
        house = self.opened(connect=faulty)
        before = house.put("q", b"before")
        release = self.hold(house)
        Faulty.faults = {"INSERT": 2}
        ids = [house.store.next_id() for _ in range(3)]
        waits = [self.commit(house, ("enqueue", "q", one, b"x", 1, 0, 0)) for one in ids]
        release()
        house.reactor.wait(waits[-1])
        self.failureResultOf(waits[0], StoreError)
        self.assertEqual([e.id for e in house.load("q")], before + ids[1:])

    def test_nothing_overtakes_what_found_no_room(self) -> None:
        """D-12: also where SQLite gives up the whole transaction for want of room."""
        house = self.opened(connect=filling)
        release = self.hold(house)
        ids = [house.store.next_id() for _ in range(4)]
        waits = [
            self.commit(house, ("enqueue", "q", one, body, 1, 0, 0))
            for one, body in zip(ids, (b"1", Filling.BIG, b"3", b"4"), strict=True)
        ]
        release()
        self.assertRaises(StoreUnavailable, house.reactor.wait, waits[-1])
        self.successResultOf(waits[0])
        for one in waits[1:3]:
            self.failureResultOf(one, StoreUnavailable)
        self.assertEqual([e.id for e in house.load("q")], ids[:1])
        house.put("q", b"5")

    def test_nothing_overtakes_what_is_not_yet_told(self) -> None:
        """D-12: nor does what was sent off in the turn in which the failure is heard of."""
        house = self.opened(connect=filling)
        ids = [house.store.next_id() for _ in range(2)]
        big = self.commit(house, ("enqueue", "q", ids[0], Filling.BIG, 1, 0, 0))
        house.reactor.next_call()()  # the turn ends, and the thread has it
        hear = house.reactor.next_call()
        small = self.commit(house, ("enqueue", "q", ids[1], b"small", 1, 0, 0))
        self.assertNoResult(big)
        hear()
        self.failureResultOf(big, StoreUnavailable)
        self.assertRaises(StoreUnavailable, house.reactor.wait, small)
        self.assertEqual(house.load("q"), [])
        house.put("q", b"later")

    def test_load_fails(self) -> None:
        """A page that cannot be read fails its own Deferred, nothing else."""
        house = self.opened(connect=faulty)
        house.put("q", b"x")
        Faulty.faults = {"SELECT": 1}
        self.assertRaises(StoreError, house.load, "q")
        self.assertEqual(len(house.load("q")), 1)

    def test_dead_writer(self) -> None:
        """A writer that dies says so: to everybody who waits, to who comes later, to the log."""
        told: list[StoreError] = []
        house = self.opened(on_death=told.append, connect=faulty)
        release = self.hold(house)
        Faulty.faults = {"COMMIT": 9, "ROLLBACK": 9}
        waiting = [
            self.commit(house, ("enqueue", "q", house.store.next_id(), b"lost", 1, 0, 0))
            for _ in range(2)
        ]
        release()
        self.assertRaises(StoreError, house.reactor.wait, waiting[1])
        self.failureResultOf(waiting[0], StoreError)
        later = self.commit(house, ("note", "a", "b", b"c"))
        error = self.assertRaises(StoreError, house.reactor.wait, later)
        self.assertIn("died", str(error))
        self.assertEqual(len(told), 1)
        self.assertEqual(len(self.flushLoggedErrors(sqlite3.OperationalError)), 1)
        Faulty.faults = {}
        house.close()
        self.assertEqual(self.house().open().queues, {})


class Faulty(sqlite3.Connection):
    """A connection that fails statements by their first word, a number of times."""

    faults: dict[str, int] = {}

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        word = sql.split()[0]
        if self.faults.get(word, 0) > 0 and "PRAGMA" not in sql:
            self.faults[word] -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *args)


def faulty(path: str) -> sqlite3.Connection:
    """Connect as the store does, with faults. The checkpointer does, too, at any moment."""
    return sqlite3.connect(path, isolation_level=None, cached_statements=512, factory=Faulty)


class Filling(sqlite3.Connection):
    """A connection on a disk that has no room for one body, and then no transaction either."""

    BIG = b"big"

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if args and self.BIG in args[0]:
            super().execute("ROLLBACK")
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error
        return super().execute(sql, *args)


def filling(path: str) -> sqlite3.Connection:
    """Connect as the store does, with one body that finds no room."""
    return sqlite3.connect(path, isolation_level=None, cached_statements=512, factory=Filling)


class LogFileTests(SynchronousTestCase):
    """The write-ahead log's file, which has its length before the first commit."""

    def test_length(self) -> None:
        """The file is as long as it will come to, and commits do not make it longer."""
        house = StoreFixture(self.mktemp())
        house.open()
        self.addCleanup(house.close)
        before = os.stat(house.store.path + "-wal").st_size
        self.assertGreater(before, 256 * 1024)
        house.put("q", *[b"x" * 1000] * 30)
        self.assertEqual(os.stat(house.store.path + "-wal").st_size, before)

    def test_no_room(self) -> None:
        """Without room for it the store opens all the same."""

        def full(descriptor: int, data: bytes, offset: int) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(os, "pwrite", full)
        path = self.mktemp()
        house = StoreFixture(path)
        house.open()
        self.assertLess(os.stat(house.store.path + "-wal").st_size, 256 * 1024)
        house.put("q", b"1")
        house.close()
        house = StoreFixture(path)
        self.assertEqual(list(house.open().queues), ["q"])
        house.close()


class FullTests(SynchronousTestCase):
    """Operations on a file system without room."""

    def test_log_folded(self) -> None:
        """Without room for the log's index the log goes into the database, and nothing is lost."""
        path = self.mktemp()
        house = StoreFixture(path)
        house.open()
        house.put("q", b"1", b"2")
        copy = self.mktemp()
        shutil.copyfile(house.store.path, copy)
        shutil.copyfile(f"{house.store.path}-wal", f"{copy}-wal")
        house.close()
        again = StoreFixture(copy)
        self.assertTrue(again.store._fold_log())
        self.assertFalse(os.path.exists(f"{again.store.path}-wal"))
        self.assertEqual(again.open().queues["q"].count, 2)
        again.close()

    def test_made_smaller_as_soon_as_there_is_room(self) -> None:
        """An attempt that failed is made again where there is more room, and not before its time.

        A purge comes first, and what else is on the disk is moved away after it.
        """
        mebibyte = 1 << 20
        house = StoreFixture(self.mktemp(), ballast_bytes=mebibyte, connect=faulty)
        house.open()
        self.addCleanup(house.close)
        entries = house.put("q", *[b"x" * 30_000] * 200)
        transaction = house.store.begin()
        transaction.dequeue(entries)
        house.reactor.wait(transaction.commit())
        free = [mebibyte // 4]
        self.patch(SqliteStore, "_free", lambda store: free[0])
        self.patch(Faulty, "faults", {"VACUUM": 1})
        for _ in range(3):
            self.assertGreater(house.reactor.wait(house.store.room()).reusable, 5 * mebibyte)
        self.assertEqual(Faulty.faults["VACUUM"], 0)
        free[0] = 3 * mebibyte // 2  # still less than what is plenty
        self.assertLess(house.reactor.wait(house.store.room()).reusable, mebibyte)

    def test_grows_again(self) -> None:
        """The file grows again as soon as there is room, and not before."""
        mebibyte = 1 << 20
        house = StoreFixture(self.mktemp(), ballast_bytes=mebibyte)
        house.open()
        self.addCleanup(house.close)
        free = [0]
        self.patch(SqliteStore, "_free", lambda store: free[0])
        self.patch(Ballast, "load", lambda ballast, spare=2: False)
        done: Deferred[bool] = Deferred()
        at_work = house.store._writer
        at_work.submit(WriterCall(lambda: at_work.yield_turn("test"), done))
        house.reactor.wait(done)
        for octets in (0, 2 * mebibyte - 1):
            free[0] = octets
            self.assertTrue(house.reactor.wait(house.store.room()).is_short)
            self.assertRaises(StoreUnavailable, house.put, "q", *[b"x" * 30_000] * 20)
        free[0] = 2 * mebibyte
        self.assertFalse(house.reactor.wait(house.store.room()).is_short)
        house.put("q", *[b"x" * 30_000] * 20)
        free[0] = 0  # it is not full until a write says so
        self.assertFalse(house.reactor.wait(house.store.room()).is_short)
        self.assertEqual(len(house.load("q")), 20)

    def test_words(self) -> None:
        """An error of any of SQLite's files means a full disk where the disk is full."""
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
        path = os.path.abspath(self.mktemp())
        self.assertIn("the disk failed", str(database_schema.in_words(error, path)))
        self.patch(database_schema, "is_full", lambda _: True)
        words = database_schema.in_words(error, path)
        self.assertIsInstance(words, StoreUnavailable)
        self.assertIn("the disk is full", str(words))
        self.assertIn("free 1 MiB there", str(words))

    def test_sizes(self) -> None:
        """Log and ballast are parts of a small file system, and usual on a large one."""
        mebibyte = 1 << 20
        for total in (16, 60, 100, 200, 395):
            sizes = sizes_for(total * mebibyte)
            self.assertEqual(sizes.checkpoint_bytes + sizes.remainder_bytes, sizes.ballast_bytes)
            self.assertLess(sizes.at_start, total * mebibyte // 3)
        for total in (400, 10_000):
            self.assertEqual(sizes_for(total * mebibyte).ballast_bytes, 33 * mebibyte)
