# SPDX-License-Identifier: Apache-2.0
"""Bodies in files: segments, body files, their removal, and reports to operators."""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch
from weakref import ref

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreError
from amqproute.store import body_files, db_writer
from amqproute.store.fsck import check
from amqproute.store.large_bodies import StoredBody
from tests.store.rig import StoreFixture
from tests.support.open_files import open_files
from tests.support.power import Power

KIB = 1024


class FilesCase(SynchronousTestCase):
    """A store that puts messages of 1,000 octets and more into files."""

    def setUp(self) -> None:
        super().setUp()
        self.path = os.path.abspath(os.path.join(self.mktemp(), "queues.db"))
        self.house = self.open()

    def open(self, **options: Any) -> StoreFixture:
        house = StoreFixture(self.path, **{"file_bytes": 1000, "segment_bytes": 10_000, **options})
        house.open()
        self.addCleanup(house.close)
        return house

    def names(self) -> list[int]:
        """Return the numbers of the files, once what was to be removed is."""
        self.house.load("nothing")  # the writer is done with what came before
        bodies = self.house.store._files.bodies
        for thread in (
            bodies.reading,
            bodies.writing,
        ):  # a reader that closes has its body till then
            self.house.reactor.wait(thread.run(lambda: None))
        return sorted(map(int, os.listdir(self.path[:-3] + ".bodies")))

    def dequeue(self, *ids: int) -> None:
        transaction = self.house.store.begin()
        transaction.dequeue(ids)
        self.house.reactor.wait(transaction.commit())

    def body(self, *parts: bytes) -> StoredBody:
        draft = self.house.store.draft(lambda _: None)
        for part in parts:
            draft.append([part])
        return self.house.reactor.wait(draft.finish())

    def enqueue(self, queue: str, head: bytes, rest: Any) -> int:
        transaction = self.house.store.begin()
        entry_id = self.house.store.next_id()
        transaction.enqueue(queue, entry_id, head, 1, 0, 0, rest)
        self.house.reactor.wait(transaction.commit())
        return entry_id

    def read(self, body: Any) -> bytes:
        reader = body.reader()
        octets = b""
        while reader.left:
            octets += self.house.reactor.wait(reader.read(7))
        reader.close()
        return octets


class SegmentTests(FilesCase):
    """Messages of middle size, many in a file."""

    def setUp(self) -> None:
        self.patch(body_files, "SPARES", 0)
        super().setUp()

    def test_where_they_are(self) -> None:
        """From the bound on they are in a file, and come back as they were."""
        small, large = b"s" * 999, b"l" * 1000
        self.house.put("q", small, large)
        self.assertEqual(len(self.names()), 1)
        self.assertEqual([one.encoded for one in self.house.load("q")], [small, large])
        self.assertEqual(self.house.store.statistics()["segment_bytes"], 1000)

    def test_full_segments_go(self) -> None:
        """A segment goes with its last message, the current one stays until it is full."""
        ids = self.house.put("q", *[bytes([one]) * 3000 for one in range(7)])
        self.assertEqual(self.names(), [1, 2, 3])
        self.dequeue(*ids[:3])
        self.assertEqual(self.names(), [2, 3])
        self.dequeue(*ids[3:])
        self.assertEqual(self.names(), [3])
        self.house.put("q", *[b"x" * 3000] * 3)
        self.assertEqual(self.names(), [3, 4])
        self.dequeue(*[entry.id for entry in self.house.load("q")])
        self.house.close()
        self.assertEqual(os.listdir(self.path[:-3] + ".bodies"), [])

    def test_comes_and_goes_at_once(self) -> None:
        """A body that comes and goes in one group is not written."""
        transaction = self.house.store.begin()
        transaction.enqueue("q", 5, b"x" * 2000, 1, 0, 0)
        transaction.dequeue([5])
        self.house.reactor.wait(transaction.commit())
        self.assertEqual(self.house.load("q"), [])
        self.assertEqual(self.house.store.statistics()["segment_bytes"], 0)

    def test_readers_are_closed(self) -> None:
        """A segment that was read and is removed leaves its room to the file system."""
        ids = self.house.put("q", *[bytes([one]) * 3000 for one in range(7)])
        self.house.load("q")
        self.assertEqual(len(self.opened()), 3)
        self.dequeue(*ids[:3])
        self.assertEqual(self.names(), [2, 3])
        self.assertEqual(len(self.opened()), 2)
        self.house.close()
        self.assertEqual(self.opened(), set())

    def opened(self) -> set[str]:
        """Return which files of bodies, removed ones too, this process has open."""
        return open_files(self.path[:-3] + ".bodies")

    def test_tidying_fails(self) -> None:
        """Tidying that fails is undone, and is in nobody's way: commits last as before."""
        self.patch(body_files, "WASTE", 20_000)
        tidy, attempts = db_writer.tidy, 0

        def failing(connection: sqlite3.Connection, at_work: body_files.BodyFiles) -> None:
            nonlocal attempts
            attempts += 1
            full = OSError(errno.ENOSPC, "No space left on device")
            with patch.object(body_files.BodyFiles, "look", side_effect=full):
                tidy(connection, at_work)

        self.patch(db_writer, "tidy", failing)
        kept = []
        for number in range(20):
            ids = self.house.put("q", *[bytes([number]) * 3000] * 3)
            kept.append(ids[0])
            self.dequeue(*ids[1:])
        self.assertEqual([entry.id for entry in self.house.load("q")], kept)
        self.assertGreater(attempts, 0)
        self.assertFalse(self.house.store._writer.connection.in_transaction)
        untidy = self.house.store.statistics()["segment_bytes"]
        self.patch(db_writer, "tidy", tidy)
        for _ in range(40):
            self.dequeue(*self.house.put("q", b"small"))
        self.assertLess(self.house.store.statistics()["segment_bytes"], untidy)
        self.house.close()
        self.assertEqual(check(self.path), [])
        self.house = self.open()
        self.assertEqual([entry.id for entry in self.house.load("q")], kept)

    def test_changed(self) -> None:
        """An entry that gets another body has it for itself, and leaves its place."""
        (one, other) = self.house.put("q", b"x" * 6000, b"y" * 6000)
        transaction = self.house.store.begin()
        transaction.update(one, 3, b"new")
        self.house.reactor.wait(transaction.commit())
        self.assertEqual([each.encoded for each in self.house.load("q")], [b"new", b"y" * 6000])
        self.assertEqual(self.names(), [2])
        transaction = self.house.store.begin()
        transaction.move(other, "dead", self.house.store.next_id())
        self.house.reactor.wait(transaction.commit())
        self.assertEqual([each.encoded for each in self.house.load("dead")], [b"y" * 6000])

    def test_tidy(self) -> None:
        """A body that stays for long does not keep others' space: it is written again."""
        self.patch(body_files, "WASTE", 20_000)
        kept = []
        for number in range(20):
            ids = self.house.put("q", *[bytes([number]) * 3000] * 3)
            kept.append(ids[0])
            self.dequeue(*ids[1:])
        segments = self.house.store.statistics()["segment_bytes"]
        self.assertLess(segments, 2 * 20 * 3000 + 20_000 + 10_000)
        held = self.house.load("q")
        self.assertEqual([entry.id for entry in held], kept)
        self.assertEqual([entry.encoded for entry in held], [bytes([n]) * 3000 for n in range(20)])
        self.house.close()
        self.assertEqual(check(self.path), [])

    def test_no_room(self) -> None:
        """A full disk fails what needs room, in words; what makes room goes through."""
        (one,) = self.house.put("q", b"x" * 2000)
        write = os.pwritev

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(os, "pwritev", full)
        transaction = self.house.store.begin()
        transaction.enqueue("q", self.house.store.next_id(), b"y" * 2000, 1, 0, 0)
        failed = transaction.commit()
        with self.assertRaisesRegex(StoreError, "no room"):
            self.house.reactor.wait(failed)
        self.dequeue(one)
        self.patch(os, "pwritev", write)
        self.house.put("q", b"z" * 2000)
        self.assertEqual([entry.encoded for entry in self.house.load("q")], [b"z" * 2000])

    def test_no_room_for_a_file(self) -> None:
        """If no segment can be begun, the current one stays in use, and one is begun later."""
        self.house.put("q", b"x" * 6000)
        create = body_files.BodyDirectory.create

        def full(_: Any) -> tuple[int, int]:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(body_files.BodyDirectory, "create", full)
        transaction = self.house.store.begin()
        transaction.enqueue("q", self.house.store.next_id(), b"y" * 6000, 1, 0, 0)
        with self.assertRaisesRegex(StoreError, "no room"):
            self.house.reactor.wait(transaction.commit())
        self.house.put("q", b"z" * 2000)
        self.patch(body_files.BodyDirectory, "create", create)
        self.house.put("q", b"y" * 6000)
        self.assertEqual(
            [entry.encoded for entry in self.house.load("q")],
            [b"x" * 6000, b"z" * 2000, b"y" * 6000],
        )

    def test_undone_beside_others(self) -> None:
        """A transaction of a group that did not commit does not count: no file goes for it."""
        (one,) = self.house.put("q", b"x" * 2000)
        real = db_writer.write_facts

        def write_facts(connection: Any, facts: Any, now_ms: int) -> None:
            if ("bad", "note") in facts.notes:
                raise StoreError("this one not")
            real(connection, facts, now_ms)

        self.patch(db_writer, "write_facts", write_facts)
        goes_on = threading.Event()
        self.house.store._writer.submit(db_writer.WriterCall(goes_on.wait, Deferred()))
        bad = self.house.store.begin()
        bad.dequeue([one])
        bad.note("bad", "note", b"")
        failed = bad.commit()
        good = self.house.store.begin()
        good.note("good", "note", b"")
        done = good.commit()
        goes_on.set()
        with self.assertRaisesRegex(StoreError, "this one not"):
            self.house.reactor.wait(failed)
        self.house.reactor.wait(done)
        self.house.close()
        self.house = self.open()
        self.assertEqual([entry.encoded for entry in self.house.load("q")], [b"x" * 2000])

    def test_missing(self) -> None:
        """Without its file a store does not open, and says what to do."""
        self.house.put("q", b"x" * 2000)
        self.house.close()
        (name,) = os.listdir(self.path[:-3] + ".bodies")
        os.rename(f"{self.path[:-3]}.bodies/{name}", f"{self.path}.aside")
        self.assertIn("is missing", check(self.path)[0])
        broken = StoreFixture(self.path)
        with self.assertRaisesRegex(StoreError, "put it back"):
            broken.open()
        with open(f"{self.path[:-3]}.bodies/{name}", "wb") as file:
            file.write(b"x" * 1999)
        self.assertIn("has 1999 bytes", check(self.path)[0])

    def test_orphans(self) -> None:
        """Files of nobody are found, and removed at the next start."""
        self.house.close()
        name = f"{self.path[:-3]}.bodies/000000000007"
        with open(name, "wb") as file:
            file.write(b"x")
        self.assertIn("belongs to no entry", check(self.path)[0])
        self.house = self.open()
        self.assertFalse(os.path.exists(name))
        # And the number is not given out again.
        self.house.put("q", b"x" * 2000)
        self.assertEqual(self.names(), [8])

    def test_transient(self) -> None:
        """Paged messages that need not survive leave no file behind."""
        self.house.put("q", b"x" * 6000, flags=1)
        self.house.close()
        self.house = self.open()
        self.assertEqual(self.house.load("q"), [])
        self.assertEqual(self.names(), [])


class SpareTests(FilesCase):
    """Segments that nobody needs any more are written again."""

    def fill(self, count: int) -> list[int]:
        """Put this many messages, three to a segment."""
        return self.house.put("q", *[bytes([one]) * 3000 for one in range(count)])

    def inode(self, number: int) -> int:
        return os.stat(f"{self.path[:-3]}.bodies/{number:012d}").st_ino

    def test_written_again(self) -> None:
        """It gets a new number, and holds what is new."""
        ids = self.fill(4)
        spare = self.inode(1)
        self.dequeue(*ids[:3])
        self.assertEqual(self.names(), [1, 2])
        self.assertEqual(self.house.store.statistics()["segment_bytes"], 3000)
        new = self.house.put("q", *[bytes([9]) * 2500] * 4)
        self.assertEqual(self.names(), [2, 3])
        self.assertEqual(self.inode(3), spare)
        found = {entry.id: entry.encoded for entry in self.house.load("q")}
        self.assertEqual(
            found, {ids[3]: bytes([3]) * 3000, **dict.fromkeys(new, bytes([9]) * 2500)}
        )
        self.house.close()
        self.house = self.open()
        self.assertEqual({one.id: one.encoded for one in self.house.load("q")}, found)

    def test_only_some(self) -> None:
        """More than a few are not kept, and none when the store is closed."""
        ids = self.fill(13)
        self.dequeue(*ids)
        self.assertEqual(self.names(), [1, 2, 5])
        self.house.close()
        self.assertEqual(os.listdir(self.path[:-3] + ".bodies"), [])

    def test_after_a_crash(self) -> None:
        """Spare bodies are those that no row names."""
        ids = self.fill(4)
        self.dequeue(*ids[:3])
        self.assertEqual(self.names(), [1, 2])
        other = os.path.join(self.mktemp(), "queues.db")
        shutil.copytree(os.path.dirname(self.path), os.path.dirname(other))
        house = StoreFixture(other)
        self.addCleanup(house.close)
        house.open()
        self.assertEqual([entry.encoded for entry in house.load("q")], [bytes([3]) * 3000])
        self.assertEqual(os.listdir(other[:-3] + ".bodies"), ["000000000002"])

    def test_a_row_of_an_older_database(self) -> None:
        """A database that is put back finds no file, rather than the messages of others."""
        ids = self.fill(4)
        backup = os.path.join(self.mktemp(), "queues.db")
        os.mkdir(os.path.dirname(backup))
        with contextlib.closing(sqlite3.connect(self.path)) as source:
            source.execute("VACUUM INTO ?", (backup,))
        self.dequeue(*ids[:3])
        self.fill(4)
        shutil.copytree(self.path[:-3] + ".bodies", backup[:-3] + ".bodies")
        house = StoreFixture(backup)
        with self.assertRaisesRegex(StoreError, "000000000001, .* is missing"):
            house.open()

    def test_that_cannot_be_had(self) -> None:
        """If a spare segment cannot be taken, a new one is made."""
        ids = self.fill(4)
        self.dequeue(*ids[:3])
        self.names()

        def fails(*_: Any) -> None:
            raise OSError(errno.EIO, "Input/output error")

        self.patch(os, "rename", fails)
        self.fill(4)
        self.assertEqual(len(self.house.load("q")), 5)
        self.assertNotIn(1, self.names())

    def test_given_up(self) -> None:
        """They are room on a full disk."""
        ids = self.fill(4)
        self.dequeue(*ids[:3])
        self.assertEqual(self.names(), [1, 2])
        at_work = self.house.store._writer
        done: Deferred[Any] = Deferred()
        at_work.submit(db_writer.WriterCall(lambda: at_work.yield_turn("test"), done))
        self.house.reactor.wait(done)
        self.assertEqual(self.names(), [2])

    def test_limit(self) -> None:
        """They count as files do, but for the one that is to be written."""
        self.house.close()
        self.house = self.open(max_bytes=1 << 20, segment_bytes=400_000)
        ids = self.house.put("q", *[bytes(200_000)] * 4)
        self.dequeue(*ids)
        self.assertEqual(len(self.names()), 2)
        self.house.put("q", *[bytes(200_000)] * 2)
        self.assertEqual(len(self.house.load("q")), 2)


class SyncTests(FilesCase):
    """Bodies of a commit are in their file, and the file under its name, after a power failure."""

    def setUp(self) -> None:
        super().setUp()
        self.house.close()
        directory = Path(self.path).parent
        self.power = Power(self, directory)
        self.house = self.open()

    def left(self) -> dict[str, bytes]:
        """Return the files that a power failure would leave."""
        copy = Path(self.mktemp())
        self.power.leave(copy)
        return {each.name: each.read_bytes() for each in (copy / "queues.bodies").iterdir()}

    def put(self, *counts: int) -> list[int]:
        """Put this many messages in one commit, then in the next; all are safe when it is done."""
        ids = []
        for count in counts:
            bodies = [os.urandom(3000) for _ in range(count)]
            ids += self.house.put("q", *bodies)
            left = self.left().values()
            for body in bodies:
                self.assertEqual(sum(body in octets for octets in left), 1)
        return ids

    def test_segments(self) -> None:
        """In a segment that is new, that is there, and that has the octets of an old one."""
        ids = self.put(1, 1, 1, 1, 3)  # the last of these are in two segments
        self.assertEqual(self.names(), [1, 2, 3])
        self.dequeue(*ids)
        before = self.names()
        self.put(1, 1, 1, 1, 1, 1)
        self.assertEqual(self.names()[-1], 5)
        self.assertTrue(set(before) - set(self.names()), "a spare was written again")

    def test_bodies(self) -> None:
        """A large body, from when it is handed out."""
        rest = os.urandom(5000)
        body = self.body(rest[:2000], rest[2000:])
        self.assertIn(rest, [octets[: len(rest)] for octets in self.left().values()])
        self.enqueue("q", b"head", body)

    def test_sync_fails(self) -> None:
        """A segment that could not be synced stays as it was at the last commit.

        What was written is gone, and the system takes it for written: nothing comes behind it.
        """
        before = os.urandom(2000)
        self.house.put("q", before)
        segment = os.path.join(os.path.realpath(self.path[:-3] + ".bodies"), f"{1:012d}")
        sync, failed = os.fdatasync, []

        def fails(descriptor: int) -> None:
            is_it = os.readlink(f"/proc/self/fd/{descriptor}") == segment
            if is_it and not failed:  # it is said once
                failed.append(os.stat(segment).st_size)
                os.truncate(segment, 2000)
                raise OSError(errno.EIO, "Input/output error")
            sync(descriptor)

        self.patch(os, "fdatasync", fails)
        after = [os.urandom(2000) for _ in range(3)]
        transaction = self.house.store.begin()
        transaction.enqueue("q", self.house.store.next_id(), after[0], 1, 0, 0)
        try:
            self.house.reactor.wait(transaction.commit())
        except StoreError:
            self.house.put("q", after[0])
        self.house.put("q", *after[1:])
        self.assertEqual(failed, [4000])
        with open(segment, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual([each.encoded for each in self.house.load("q")], [before, *after])
        self.assertEqual(check(self.path), [])


class BodyTests(FilesCase):
    """Very large messages, each in a file of its own."""

    def test_there_and_back(self) -> None:
        """Head and rest come back; the file goes with the entry."""
        one = self.enqueue("q", b"head", self.body(b"a" * 10, b"b" * 10))
        (entry,) = self.house.load("q")
        self.assertEqual((entry.encoded, entry.rest.size), (b"head", 20))
        self.assertEqual(self.read(entry.rest), b"a" * 10 + b"b" * 10)
        self.house.close()
        self.assertEqual(check(self.path), [])
        self.house = self.open()
        (entry,) = self.house.load("q")
        self.assertEqual(self.read(entry.rest), b"a" * 10 + b"b" * 10)
        del entry
        self.dequeue(one)
        self.assertEqual(self.names(), [])

    def test_note(self) -> None:
        """Facts of the bare message are known after a restart, of these octets alone."""
        draft = self.house.store.draft(lambda _: None, b"properties")
        draft.append([b"body", b"footer"], [b"body"])
        body = self.house.reactor.wait(draft.finish())
        known = (hashlib.sha256(b"propertiesbody").hexdigest(), 14)
        self.assertEqual(body.digest_of(b"properties"), known)
        self.enqueue("q", b"head", body)
        del body
        for ask in (
            lambda rest, before: rest.digest_of(before),
            lambda rest, before: self.house.reactor.wait(rest.recall(before)),
        ):
            self.house.close()
            self.assertEqual(check(self.path), [])
            self.house = self.open()
            (entry,) = self.house.load("q")
            self.assertEqual(ask(entry.rest, b"others"), None)
            self.assertEqual(ask(entry.rest, b"properties"), known)
            self.assertEqual(self.house.reactor.wait(entry.rest.recall(b"properties")), known)
            self.assertEqual(self.read(entry.rest), b"bodyfooter")
            del entry

    def test_no_note(self) -> None:
        """Of what an earlier release has stored, or what cannot be read, nothing is known."""
        for what in ("", "x" * 80, "x" * 200, None):
            body = self.body(b"rest")
            name = f"{self.path[:-3]}.bodies/{body.number:012d}"
            one = self.enqueue("q", b"head", body)
            del body
            self.house.close()
            with open(name, "a") as file:
                file.write(what or "")
            self.house = self.open()
            (entry,) = self.house.load("q")
            if what is None:
                os.unlink(name)
            self.assertIsNone(entry.rest.digest_of(b""))
            self.assertEqual(len(self.flushLoggedErrors()), 0)
            del entry
            self.dequeue(one)

    def test_note_has_no_room(self) -> None:
        """A disk that is full just then is told, and leaves nothing."""
        draft = self.house.store.draft(lambda _: None, b"")
        draft.append([b"body"], [b"body"])
        self.names()

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.patch(os, "pwrite", full)
        with self.assertRaisesRegex(StoreError, "no room"):
            self.house.reactor.wait(draft.finish())
        self.assertEqual(self.names(), [])

    def test_nobody_wants_it(self) -> None:
        """One that no commit has named goes with the last who has it."""
        body = self.body(b"x")
        self.assertEqual(len(self.names()), 1)
        del body
        self.assertEqual(self.names(), [])

    def test_many_parts(self) -> None:
        """A message in frames of 512 octets has more parts at a time than one write takes."""
        parts = [bytes([number % 251]) * 450 for number in range(3000)]
        draft = self.house.store.draft(lambda _: None)
        draft.append(parts)
        body = self.house.reactor.wait(draft.finish())
        reader = body.reader()
        self.assertEqual(self.house.reactor.wait(reader.read(1_350_000)), b"".join(parts))
        reader.close()

    def test_abandoned(self) -> None:
        """A draft that is given up leaves nothing, also if nothing was written."""
        draft = self.house.store.draft(lambda _: None)
        draft.append([b"x"])
        draft.abandon()
        self.house.store.draft(lambda _: None).abandon()
        self.assertEqual(self.names(), [])

    def test_abandoned_unused(self) -> None:
        """One that is given up before anything was written is not kept for the thread."""
        draft = self.house.store.draft(lambda _: None)
        kept = ref(draft)
        draft.abandon()
        del draft
        self.assertIsNone(kept())

    def test_shared(self) -> None:
        """Entries of several queues have one file, and heads of their own."""
        body = self.body(b"rest")
        ids = [self.enqueue("a", b"one", body), self.enqueue("b", b"two", body)]
        del body
        self.dequeue(ids[0])
        self.assertEqual(len(self.names()), 1)
        (entry,) = self.house.load("b")
        self.assertEqual((entry.encoded, self.read(entry.rest)), (b"two", b"rest"))

    def test_still_read(self) -> None:
        """A reader at the removal of the last entry can read to the end."""
        one = self.enqueue("q", b"head", self.body(b"rest"))
        (entry,) = self.house.load("q")
        self.dequeue(one)
        self.assertEqual(len(self.names()), 1)
        self.assertEqual(self.read(entry.rest), b"rest")
        del entry
        self.assertEqual(self.names(), [])

    def test_back_again(self) -> None:
        """One that nobody named any more is kept by the next commit that names it."""
        one = self.enqueue("q", b"head", self.body(b"rest"))
        (entry,) = self.house.load("q")
        self.dequeue(one)
        self.enqueue("dead", b"other", entry.rest)
        del entry
        (entry,) = self.house.load("dead")
        self.assertEqual(self.read(entry.rest), b"rest")

    def test_changed(self) -> None:
        """A change concerns the head."""
        one = self.enqueue("q", b"head", self.body(b"rest"))
        transaction = self.house.store.begin()
        transaction.update(one, 1, b"longer head")
        transaction.move(one, "dead", self.house.store.next_id())
        self.house.reactor.wait(transaction.commit())
        (entry,) = self.house.load("dead")
        self.assertEqual((entry.encoded, self.read(entry.rest)), (b"longer head", b"rest"))
        self.house.close()
        self.assertEqual(check(self.path), [])

    def test_comes_and_goes_at_once(self) -> None:
        """A body that comes and goes in one group leaves no file."""
        transaction = self.house.store.begin()
        transaction.enqueue("q", 5, b"head", 1, 0, 0, self.body(b"rest"))
        transaction.dequeue([5])
        self.house.reactor.wait(transaction.commit())
        del transaction
        self.assertEqual(self.names(), [])

    def test_commit_fails(self) -> None:
        """A commit that fails names nothing."""
        (one,) = self.house.put("q", b"x")
        transaction = self.house.store.begin()
        transaction.enqueue("q", one, b"head", 1, 0, 0, self.body(b"rest"))
        failed = transaction.commit()
        with self.assertRaises(StoreError):
            self.house.reactor.wait(failed)
        del transaction, failed
        gc.collect()  # an error keeps the frames it came through
        self.assertEqual(self.names(), [])

    def test_no_room(self) -> None:
        """A draft that cannot be written fails in the end, and what there is of it goes at once."""
        written: list[int] = []
        draft = self.house.store.draft(written.append)
        draft.append([b"x" * 10])

        def full(*_: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        self.names()
        self.patch(os, "pwritev", full)
        draft.append([b"y" * 10])
        draft.append([b"z" * 10])
        with self.assertRaisesRegex(StoreError, "no room"):
            self.house.reactor.wait(draft.finish())
        self.assertEqual(written, [10, 10, 10])
        self.assertEqual(self.names(), [])

    def test_limit(self) -> None:
        """The configured bound holds for files, too."""
        self.house.close()
        self.house = self.open(max_bytes=1 << 20)
        draft = self.house.store.draft(lambda _: None)
        draft.append([bytes(1 << 20), b"x"])
        with self.assertRaisesRegex(StoreError, "limit"):
            self.house.reactor.wait(draft.finish())

    def test_closed(self) -> None:
        """Closing removes what no entry refers to."""
        body = self.body(b"x")
        self.house.close()
        self.assertEqual(os.listdir(self.path[:-3] + ".bodies"), [])
        del body
