# SPDX-License-Identifier: Apache-2.0
"""Shared payloads: one body, however many entries; the same facts for both stores."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from amqproute.errors import LocalProtocolError, StoreError
from amqproute.interfaces import IStore, IStoreTransaction
from amqproute.store import body_files
from amqproute.store import sqlite as sqlite_store
from amqproute.store.fsck import check
from amqproute.store.memory import MemoryStore
from amqproute.store.model import TRANSIENT, QueueSummary, StoredEntry
from amqproute.store.sqlite import SqliteStore
from tests.store.rig import StoreFixture

VERSION_1 = """
PRAGMA application_id=1634562418;
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE queue (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE entry (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, arrived INTEGER NOT NULL,
 expires INTEGER NOT NULL, flags INTEGER NOT NULL, count INTEGER NOT NULL,
 size INTEGER NOT NULL, encoded BLOB NOT NULL);
CREATE INDEX entry_queue ON entry (queue, id, size);
CREATE INDEX entry_expires ON entry (queue, expires) WHERE expires > 0;
CREATE INDEX entry_transient ON entry (id) WHERE flags & 1;
CREATE TABLE receipt (number INTEGER PRIMARY KEY, stream TEXT NOT NULL, low INTEGER NOT NULL,
 high INTEGER NOT NULL, at INTEGER NOT NULL, steps TEXT);
CREATE INDEX receipt_stream ON receipt (stream, high, low);
CREATE INDEX receipt_at ON receipt (at);
CREATE TABLE note (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
 PRIMARY KEY (kind, key)) WITHOUT ROWID;
PRAGMA user_version=1;
INSERT INTO queue VALUES (4, 'q');
INSERT INTO entry VALUES (11, 4, 5, 0, 2, 3, 3, x'6f6c64'), (12, 4, 5, 9, 1, 0, 1, x'74'),
 (13, 4, 5, 9, 0, 0, 40000, zeroblob(40000));
INSERT INTO meta VALUES ('next_id', 14);
INSERT INTO receipt VALUES (1, 's', 1, 4, 7, '[1,2]');
INSERT INTO note VALUES ('k', 'key', x'00');
"""
"""The layout of the first version and a little of everything in it. Never changed."""


class SharedFacts:
    """The contract of every store."""

    store: Any

    def wait(self, deferred: Deferred[Any]) -> Any:
        raise NotImplementedError

    def payloads(self) -> set[int]:
        """The payloads the store keeps."""
        raise NotImplementedError

    def do(self: Any, *calls: tuple[Any, ...]) -> None:
        transaction = self.store.begin()
        for name, *args in calls:
            getattr(transaction, name)(*args)
        self.wait(transaction.commit())

    def publish(
        self: Any, body: bytes, *queues: str, expires: int = 0, flags: int = 0
    ) -> tuple[int, list[int]]:
        payload = self.store.next_id()
        ids = [self.store.next_id() for _ in queues]
        self.do(
            ("share", payload, body),
            ("enqueue_shared_many", queues, ids, payload, len(body), 1, expires, flags),
        )
        return payload, ids

    def load(self: Any, queue: str) -> list[StoredEntry]:
        return self.wait(self.store.load(queue, 0, 5000, 1 << 30))  # type: ignore[no-any-return]

    def test_interfaces(self: Any) -> None:
        """The store and its transactions provide their interfaces."""
        verifyObject(IStore, self.store)
        verifyObject(IStoreTransaction, self.store.begin())

    def test_one_body(self: Any) -> None:
        """Many entries, one payload; it goes with the last of them, wherever that is."""
        queues = [f"q{n}" for n in range(1000)]
        payload, ids = self.publish(b"shared\0body", *queues)
        self.assertEqual(self.payloads(), {payload})
        for queue, one in zip(queues[::200], ids[::200], strict=True):
            expected = StoredEntry(one, b"shared\0body", 1, 0, 0, 0, payload)
            self.assertEqual(self.load(queue), [expected])
        self.do(("dequeue", ids[:500]))
        self.do(("dequeue", ids[501:]))
        self.assertEqual(self.payloads(), {payload})
        self.assertEqual(len(self.load("q500")), 1)
        self.do(("dequeue", ids[500:501]))
        self.assertEqual(self.payloads(), set())

    def test_not_delivered_yet(self: Any) -> None:
        """No new entry counts a delivery, wherever its body stands."""
        alone, filed = self.store.next_id(), self.store.next_id()
        draft = self.store.draft(lambda _: None)
        draft.append([b"rest"])
        rest = self.wait(draft.finish())
        self.do(
            ("enqueue", "q", alone, b"alone", 1, 0, 0),
            ("enqueue", "q", filed, b"head", 1, 0, 0, rest),
        )
        self.publish(b"shared", "q")
        self.assertEqual([each.delivery_count for each in self.load("q")], [0, 0, 0])

    def test_one_object(self: Any) -> None:
        """Entries of a page with the same payload have the same bytes object."""
        first, _ = self.publish(b"x" * 300, "q", "q")
        own = self.store.next_id()
        self.do(("enqueue", "q", own, b"own", 1, 0, 0))
        second, _ = self.publish(b"", "q", "q", expires=3)
        page = self.load("q")
        self.assertEqual([e.payload_id for e in page], [first, first, 0, second, second])
        self.assertEqual([len(e.encoded) for e in page], [300, 300, 3, 0, 0])
        self.assertIs(page[0].encoded, page[1].encoded)
        expired = self.wait(self.store.expired("q", 3, 0, 10))
        self.assertEqual([e.payload_id for e in expired], [second, second])

    def test_later_entry(self: Any) -> None:
        """An entry may refer to the payload of an earlier transaction while that lives."""
        payload, (first,) = self.publish(b"body", "a")
        second = self.store.next_id()
        self.do(("enqueue_shared", "b", second, payload, 4, 1, 0, 0))
        self.do(("dequeue", [first]))
        self.assertEqual([e.encoded for e in self.load("b")], [b"body"])
        third = self.store.next_id()
        self.do(("dequeue", [second]), ("enqueue_shared", "c", third, payload, 4, 1, 0, 0))
        self.assertEqual([e.encoded for e in self.load("c")], [b"body"])
        self.do(("dequeue", [third]))
        late = ("enqueue_shared", "d", self.store.next_id(), payload, 4, 1, 0, 0)
        error = self.assertRaises(StoreError, self.do, late)
        self.assertIn("deleted payload", str(error))
        self.assertEqual(self.load("d"), [])

    def test_nobody(self: Any) -> None:
        """A payload to which nothing refers at commit is not kept."""
        payload, _ = self.publish(b"for nobody")
        self.assertEqual(self.payloads(), set())
        late = ("enqueue_shared", "q", self.store.next_id(), payload, 10, 1, 0, 0)
        self.assertRaises(StoreError, self.do, late)
        payload, one = self.store.next_id(), self.store.next_id()
        self.do(
            ("share", payload, b"x"),
            ("enqueue_shared", "q", one, payload, 1, 1, 0, 0),
            ("dequeue", [one]),
        )
        self.assertEqual((self.payloads(), self.load("q")), (set(), []))

    def test_copy_on_write(self: Any) -> None:
        """A changed body is the entry's own; a changed count leaves it shared."""
        payload, (a, b, c) = self.publish(b"body", "a", "b", "c")
        plain = self.store.next_id()
        self.do(("enqueue", "a", plain, b"plain", 1, 0, 0))
        self.do(("update", a, 2), ("update", b, 3, b"changed"), ("update", plain, 1, b"also"))
        self.assertEqual(
            self.load("a"),
            [
                StoredEntry(a, b"body", 1, 0, 2, 0, payload),
                StoredEntry(plain, b"also", 1, 0, 1, 0),
            ],
        )
        self.assertEqual(self.load("b"), [StoredEntry(b, b"changed", 1, 0, 3, 0)])
        self.do(("dequeue", [a]), ("update", c, 0, b""))
        self.assertEqual(self.load("c"), [StoredEntry(c, b"", 1, 0, 0, 0)])
        self.assertEqual(self.payloads(), set())

    def test_move(self: Any) -> None:
        """A moved entry keeps the payload, unless it gets another body."""
        payload, (a, b) = self.publish(b"body", "a", "b")
        first, second = self.store.next_id(), self.store.next_id()
        self.do(("dequeue", [b]), ("move", a, "dead", first))
        self.assertEqual(self.load("dead"), [StoredEntry(first, b"body", 1, 0, 0, 0, payload)])
        self.do(("move", first, "dead", second, b"annotated"))
        self.assertEqual(self.load("dead"), [StoredEntry(second, b"annotated", 1, 0, 0, 0)])
        self.assertEqual(self.payloads(), set())

    def test_many(self: Any) -> None:
        """Every number of rows finds its statements, in one transaction with plain entries."""
        for count in (1, 2, 63, 65, 129, 257, 700):
            _, ids = self.publish(b"z" * count, *["q"] * count)
            plain = [self.store.next_id() for _ in range(3)]
            self.do(*[("enqueue", "q", one, b"p", 1, 0, 0) for one in plain])
            self.do(("dequeue", [*ids[::2], plain[1]]))
            self.assertEqual([e.id for e in self.load("q")], [*ids[1::2], plain[0], plain[2]])
            self.do(*[("update", one, 1, b"own") for one in ids[: count // 2]])
            self.do(("dequeue", [*ids, *plain]))
            self.assertEqual((self.load("q"), self.payloads()), ([], set()))

    def test_misuse(self: Any) -> None:
        """Bugs of the caller are told at once."""
        transaction = self.store.begin()
        transaction.share(1, b"four")
        for wrong in (
            lambda: transaction.share(1, b"again"),
            lambda: transaction.enqueue_shared("q", 2, 1, 5, 1, 0, 0),
            lambda: transaction.enqueue_shared_many(["q", "r"], [2], 1, 4, 1, 0, 0),
        ):
            self.assertRaises(LocalProtocolError, wrong)
        self.wait(transaction.commit())
        for late in (
            lambda: transaction.share(3, b""),
            lambda: transaction.enqueue_shared("q", 4, 3, 0, 1, 0, 0),
            lambda: transaction.enqueue_shared_many(["q"], [4], 3, 0, 1, 0, 0),
        ):
            self.assertRaises(LocalProtocolError, late)
        payload, (one,) = self.publish(b"x", "q")
        other = self.store.next_id()
        for twice in (
            [("share", payload, b"x"), ("enqueue_shared", "q", other, payload, 1, 1, 0, 0)],
            [("enqueue_shared", "q", one, payload, 1, 1, 0, 0)],
        ):
            self.assertRaises(StoreError, self.do, *twice)
        self.assertEqual([e.id for e in self.load("q")], [one])


class MemoryTests(SharedFacts, SynchronousTestCase):
    """MemoryStore."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock)
        self.wait(self.store.open())

    def wait(self, deferred: Deferred[Any]) -> Any:
        self.clock.advance(0)
        if deferred.result is not None and hasattr(deferred.result, "raiseException"):
            self.failureResultOf(deferred).raiseException()
        return self.successResultOf(deferred)

    def payloads(self) -> set[int]:
        return set(self.store._payloads)


class SqliteTests(SharedFacts, SynchronousTestCase):
    """SqliteStore, and what becomes of payloads on its disk."""

    OPTIONS: Mapping[str, Any] = {}

    def setUp(self) -> None:
        self.path = os.path.join(self.mktemp(), "queues.db")
        self.begin()

    def begin(self) -> Any:
        self.house = StoreFixture(self.path, **self.OPTIONS)
        recovery = self.house.open()
        self.store: SqliteStore = self.house.store
        return recovery

    def tearDown(self) -> None:
        self.house.close()
        self.assertEqual(check(self.path), [])

    def wait(self, deferred: Deferred[Any]) -> Any:
        return self.house.reactor.wait(deferred)

    def payloads(self) -> set[int]:
        with sqlite3.connect(self.path) as connection:
            found = {one for (one,) in connection.execute("SELECT id FROM payload")}
        connection.close()
        return found

    def in_files(self) -> int:
        """Octets of the files of bodies."""
        directory = self.path[:-3] + ".bodies"
        return sum(os.stat(f"{directory}/{name}").st_size for name in os.listdir(directory))

    def edit(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    def test_room(self) -> None:
        """A large body on many queues takes its room once."""
        self.publish(os.urandom(100_000), *[f"q{n}" for n in range(500)])
        self.house.close()
        self.assertLess(os.path.getsize(self.path) + self.in_files(), 400_000)
        self.assertEqual(self.begin().queues["q7"].bytes, 100_000)

    def test_restart(self) -> None:
        """Entries and payloads are there again; transient ones go, with what only they held."""
        self.patch(sqlite_store, "PURGE", 3)
        gone, _ = self.publish(b"gone", *"abcdefgh", flags=TRANSIENT)
        kept, (one,) = self.publish(b"kept", "a")
        both = [self.store.next_id() for _ in range(5)]
        self.do(("enqueue_shared_many", "bcdef", both, kept, 4, 1, 0, TRANSIENT))
        self.do(("enqueue", "a", self.store.next_id(), b"plain", 1, 0, TRANSIENT))
        self.assertEqual(self.payloads(), {gone, kept})
        self.house.close()
        self.assertEqual(self.begin().queues, {"a": QueueSummary(1, 4, one, one, 1)})
        self.assertEqual(self.payloads(), {kept})
        self.assertEqual(self.load("a"), [StoredEntry(one, b"kept", 1, 0, 0, 0, kept)])

    def test_group(self) -> None:
        """Work that is written as one group comes out as if each were alone."""
        payload, first, second, third = (self.store.next_id() for _ in range(4))
        calls = [
            [("share", payload, b"x"), ("enqueue_shared", "a", first, payload, 1, 1, 0, 0)],
            [("enqueue_shared", "b", second, payload, 1, 1, 0, 0), ("dequeue", [first])],
            [("enqueue_shared", "c", third, payload + 99, 1, 1, 0, 0)],
            [("update", second, 4, b"own")],
        ]
        deferreds = []
        for work in calls:
            transaction = self.store.begin()
            for name, *args in work:
                getattr(transaction, name)(*args)
            deferreds.append(transaction.commit())
        self.wait(deferreds[3])
        self.failureResultOf(deferreds.pop(2), StoreError)
        for deferred in deferreds:
            self.assertIsNone(self.successResultOf(deferred))
        self.assertEqual(self.load("b"), [StoredEntry(second, b"own", 1, 0, 4, 0)])
        self.assertEqual((self.load("a"), self.load("c"), self.payloads()), ([], [], set()))

    def test_fsck(self) -> None:
        """The offline check tells of payloads and entries that have lost each other."""
        payload, (one, two) = self.publish(b"body", "a", "b")
        self.house.close()
        self.edit(
            "INSERT INTO payload (id, encoded) VALUES (77, x'0000')", "UPDATE entry SET size = 9"
        )
        self.assertEqual(
            check(self.path),
            [
                f"entry {one}: 9 bytes noted, 4 bytes in payload {payload}",
                f"entry {two}: 9 bytes noted, 4 bytes in payload {payload}",
                "payload 77 (2 bytes) belongs to no entry",
            ],
        )
        restored = "UPDATE entry SET size = 4"
        self.edit(restored, "DELETE FROM payload", f"DELETE FROM entry WHERE id = {two}")
        self.assertEqual(
            check(self.path),
            [f"entry {one} has its body in payload {payload}, which is not there"],
        )
        self.begin()
        self.assertEqual(self.load("a"), [])
        self.assertEqual(self.house.store.quarantined, 1)
        self.do(("dequeue", [one]))

    def test_at_the_bound(self) -> None:
        """A body of just as many octets as are wanted in files is in one, beside a larger."""
        bound = 1000
        self.house.close()
        self.house = StoreFixture(self.path, file_bytes=bound)
        self.house.open()
        self.store = self.house.store
        sizes = (bound - 1, bound, bound + 1)
        payloads = [self.store.next_id() for _ in sizes]
        ids = [self.store.next_id() for _ in sizes]
        self.do(
            *[("share", one, b"x" * size) for one, size in zip(payloads, sizes, strict=True)],
            *[
                ("enqueue_shared", "q", one, payload, size, 1, 0, 0)
                for one, payload, size in zip(ids, payloads, sizes, strict=True)
            ],
        )
        self.assertEqual([len(each.encoded) for each in self.load("q")], list(sizes))
        with closing(sqlite3.connect(self.path)) as connection:
            rows = connection.execute("SELECT segment IS NOT NULL FROM payload ORDER BY id")
            self.assertEqual([filed for (filed,) in rows], [0, 1, 1])

    def test_upgrade(self) -> None:
        """A database of the first version keeps everything and shares from then on."""
        self.house.close()
        os.remove(self.path)
        os.remove(f"{self.path}.seal")
        connection = sqlite3.connect(self.path)
        connection.executescript(VERSION_1)
        connection.close()
        self.assertEqual(check(self.path), [])
        recovery = self.begin()
        self.assertEqual(recovery.queues, {"q": QueueSummary(2, 40003, 11, 13, 5)})
        self.assertEqual(recovery.received, {"s": [1, 2, 4]})
        self.assertEqual(recovery.notes, {"k": {"key": b"\0"}})
        kept = [
            StoredEntry(11, b"old", 5, 0, 3, 2),
            StoredEntry(13, bytes(40000), 5, 9, 0, 0),
        ]
        self.assertEqual(self.load("q"), kept)
        payload, (shared,) = self.publish(b"new", "q")
        self.assertGreater(payload, 13)
        self.do(("dequeue", [11, shared]))
        self.house.close()
        self.begin()
        self.assertEqual(self.load("q"), kept[1:])
        self.assertEqual(self.payloads(), set())


class FiledTests(SqliteTests):
    """The same where every shared payload is in a file."""

    OPTIONS = {"file_bytes": 0, "segment_bytes": 5_000}

    def setUp(self) -> None:
        self.patch(body_files, "SPARES", 0)
        super().setUp()

    def test_upgrade(self) -> None:
        """A database of the first version holds no files; what is shared from then on does."""
        super().test_upgrade()
        self.publish(b"x" * 1000, "q", "r")
        self.assertGreaterEqual(self.in_files(), 1000)

    def test_fsck(self) -> None:
        """The offline check tells of payloads that have lost their file, or part of it."""
        payload, (one, two) = self.publish(b"body" * 10, "a", "b")
        self.house.close()
        self.edit("UPDATE entry SET size = 9")
        self.assertEqual(
            check(self.path),
            [
                f"entry {one}: 9 bytes noted, 40 bytes in payload {payload}",
                f"entry {two}: 9 bytes noted, 40 bytes in payload {payload}",
            ],
        )
        self.edit("UPDATE entry SET size = 40", "UPDATE payload SET body_start = 3")
        (finding,) = check(self.path)
        self.assertIn("has 40 bytes, entries need 43", finding)
        self.edit("UPDATE payload SET body_start = 0")
        self.begin()

    def test_missing(self) -> None:
        """Without its file the store does not open; what it tells to do gives the messages up."""
        self.publish(b"x" * 1000, "a", "b")
        self.house.close()
        (name,) = os.listdir(self.path[:-3] + ".bodies")
        os.remove(f"{self.path[:-3]}.bodies/{name}")
        error = self.assertRaises(StoreError, StoreFixture(self.path).open)
        self.assertIn("is missing", str(error))
        command = str(error).split("'")[1]
        self.edit(*command.split(";"))
        self.assertEqual(check(self.path), [])
        self.assertEqual(self.begin().queues, {})

    def test_file_goes_with_the_last(self) -> None:
        """A segment stays while one entry of many refers to it, and goes with it."""
        payload, ids = self.publish(b"x" * 4000, *"abc")
        self.publish(b"y" * 4000, "d")  # in the next segment, so that the first is full
        self.assertEqual(self.in_files(), 8000)
        self.do(("dequeue", ids[:2]))
        self.assertEqual([each.encoded for each in self.load("c")], [b"x" * 4000])
        self.assertEqual((self.payloads() >= {payload}, self.in_files()), (True, 8000))
        self.do(("dequeue", ids[2:]))
        self.settle()
        self.assertEqual((payload in self.payloads(), self.in_files()), (False, 4000))

    def test_moved_and_changed(self) -> None:
        """One that moves still shares; one that gets another body leaves the file to the rest."""
        payload, (a, b, c) = self.publish(b"x" * 4000, *"abc")
        self.publish(b"y" * 4000, "d")
        moved = self.store.next_id()
        self.do(("move", a, "dead", moved), ("update", b, 1, b"own"))
        self.do(("dequeue", [c]))
        self.assertEqual(self.load("dead"), [StoredEntry(moved, b"x" * 4000, 1, 0, 0, 0, payload)])
        self.assertEqual([each.encoded for each in self.load("b")], [b"own"])
        self.do(("dequeue", [moved]))
        self.settle()
        self.assertEqual(self.payloads() & {payload}, set())

    def test_tidy(self) -> None:
        """A body that stays for long is written again, still shared, to free others' space."""
        self.patch(body_files, "WASTE", 20_000)
        kept = []
        for number in range(20):
            payload, ids = self.publish(bytes([number]) * 1500, "a", "b")
            kept.append((payload, ids))
            _, gone = self.publish(b"x" * 3000, "a", "b")
            self.do(("dequeue", gone))
        self.settle()
        self.assertLess(self.in_files(), 2 * 20 * 1500 + 20_000 + 5_000)
        for place, queue in enumerate("ab"):
            expected = [
                StoredEntry(ids[place], bytes([n]) * 1500, 1, 0, 0, 0, payload)
                for n, (payload, ids) in enumerate(kept)
            ]
            self.assertEqual(self.load(queue), expected)
        self.house.close()
        self.begin()
        self.assertEqual(len(self.load("a")), 20)

    def test_no_room(self) -> None:
        """A full disk fails what needs room, and what makes room goes through."""
        _, ids = self.publish(b"x" * 2000, "a", "b")
        write = os.pwritev

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(os, "pwritev", full)
        error = self.assertRaises(StoreError, self.publish, b"y" * 2000, "a", "b")
        self.assertIn("no room", str(error))
        self.do(("dequeue", ids))
        self.patch(os, "pwritev", write)
        self.publish(b"z" * 2000, "a", "b")
        self.assertEqual([each.encoded for each in self.load("b")], [b"z" * 2000])

    def settle(self) -> None:
        """Let files go that are to be removed."""
        self.load("nothing")
        self.wait(self.store._files.bodies.writing.run(lambda: None))
