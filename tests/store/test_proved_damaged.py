# SPDX-License-Identifier: Apache-2.0
"""A database found damaged while open accepts nothing more; its messages are delivered."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import (
    StoreDamaged,
    StoreError,
    StoreIntakeClosed,
    StoreUnavailable,
)
from amqproute.store import database_schema
from tests.store.rig import StoreFixture

PAGE = 8192
LEAF = 0x0D


def failing(name: str) -> sqlite3.Error:
    """Return an error as SQLite would raise it."""
    kind = sqlite3.OperationalError if name != "SQLITE_CORRUPT" else sqlite3.DatabaseError
    error = kind("made for a test")
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error


class Failing(sqlite3.Connection):
    """A connection that fails where a test says so."""

    fails: Callable[[str], str | None] = staticmethod(lambda statement: None)

    def execute(self, statement: str, *more: Any) -> Any:
        name = type(self).fails(statement)
        if name is not None:
            raise failing(name)
        return super().execute(statement, *more)


class MeaningTests(SynchronousTestCase):
    """One table says what a failure means."""

    def test_table(self) -> None:
        for name, kind in {
            "SQLITE_CORRUPT": StoreDamaged,
            "SQLITE_NOTADB": StoreDamaged,
            "SQLITE_FULL": StoreUnavailable,
            "SQLITE_IOERR": StoreUnavailable,
            "SQLITE_CONSTRAINT": StoreError,
            "SQLITE_READONLY": StoreError,
            "SQLITE_BUSY": StoreError,
        }.items():
            self.assertIs(database_schema.meaning_of(failing(name)), kind, name)
            self.assertIs(
                type(database_schema.in_words(failing(name), "/there/store.db")), kind, name
            )


class ProvedDamagedTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.path = os.path.abspath(Path(self.mktemp()) / "store.db")
        self.told: list[StoreError] = []
        self.addCleanup(setattr, Failing, "fails", Failing.fails)

    def begin(self, **options: Any) -> StoreFixture:
        def connect(path: str) -> sqlite3.Connection:
            return sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, factory=Failing
            )

        more = {"connect": connect, "on_corrupt": self.told.append, **options}
        house = StoreFixture(self.path, **more)
        house.open()
        self.addCleanup(house.close)
        return house

    def fail(self, *names: str, of: str = "COMMIT") -> None:
        """Have the next statements of a kind fail, one after the other."""
        left = list(names)

        def fails(statement: str) -> str | None:
            return left.pop(0) if left and statement.startswith(of) else None

        Failing.fails = staticmethod(fails)

    def take(self, house: StoreFixture, queue: str, *ids: int) -> None:
        transaction = house.store.begin()
        transaction.dequeue(ids)
        house.reactor.wait(transaction.commit())

    def test_commit(self) -> None:
        """Nothing is taken after it, whatever the next commits come to; what ends continues."""
        house = self.begin()
        ids = house.put("q", b"1", b"2", b"3")
        self.fail("SQLITE_CORRUPT", of="INSERT")
        error = self.assertRaises(StoreIntakeClosed, house.put, "q", b"4")
        self.assertIn("amqproute store check", str(error))
        self.assertIn("amqproute store salvage", str(error))
        self.assertEqual([type(each) for each in self.told], [StoreIntakeClosed])
        for _ in range(3):
            self.take(house, "q", ids.pop(0))
            self.assertRaises(StoreIntakeClosed, house.put, "q", b"5")
        self.assertEqual(house.load("q"), [])
        self.assertEqual(len(self.told), 1)
        # Only a restart opens it, which has nothing against this one.
        house.close()
        again = self.begin()
        self.assertFalse(os.path.exists(f"{self.path}.suspect"))
        self.assertEqual(len(again.put("q", b"6")), 1)

    def test_notadb(self) -> None:
        """A file that is no database any more means the same."""
        house = self.begin()
        self.fail("SQLITE_NOTADB", of="INSERT")
        self.assertRaises(StoreIntakeClosed, house.put, "q", b"1")
        self.assertRaises(StoreIntakeClosed, house.put, "q", b"1")

    def test_full(self) -> None:
        """A full disk means something else: it opens again."""
        house = self.begin()
        self.fail("SQLITE_FULL", "SQLITE_FULL", of="INSERT")
        error = self.assertRaises(StoreUnavailable, house.put, "q", b"1")
        self.assertNotIsInstance(error, StoreIntakeClosed)
        self.fail()
        while not house.reactor.calls.empty():
            house.reactor.calls.get()()
        self.assertEqual(len(house.put("q", b"1")), 1)
        self.assertEqual(self.told, [])

    def test_in_a_group(self) -> None:
        """Contents of one commit with the damage, before or behind it, are not taken."""
        house = self.begin()
        (old,) = house.put("q", b"old")
        results: list[Any] = []
        self.fail("SQLITE_CORRUPT", of="COMMIT")
        for number in range(4):
            transaction = house.store.begin()
            if number == 2:
                transaction.dequeue([old])
            else:
                transaction.enqueue("q", house.store.next_id(), b"new", 1, 0, 0)
                transaction.note("kind", str(number), b"x")
            transaction.commit().addBoth(results.append)
        while len(results) < 4:
            house.reactor.next_call()()
        kinds = [type(each.value) if each is not None else None for each in results]
        self.assertEqual(kinds, [StoreIntakeClosed, StoreIntakeClosed, None, StoreIntakeClosed])
        self.assertEqual(house.load("q"), [])

    def test_damage_while_one_is_looked_for(self) -> None:
        """If a group is tried one by one, those before the damage are undone too."""
        house = self.begin()
        results: list[Any] = []
        count = 0

        def fails(statement: str) -> str | None:
            nonlocal count
            if statement.startswith("SAVEPOINT"):
                count += 1
            if statement.startswith("COMMIT") and not count:
                return "SQLITE_CONSTRAINT"
            return "SQLITE_CORRUPT" if count == 2 and statement.startswith("INSERT") else None

        Failing.fails = staticmethod(fails)
        for number in range(3):
            transaction = house.store.begin()
            transaction.enqueue("q", house.store.next_id(), b"new", 1, 0, 0)
            transaction.note("kind", str(number), b"x")
            transaction.commit().addBoth(results.append)
        while len(results) < 3:
            house.reactor.next_call()()
        self.assertEqual([type(each.value) for each in results], [StoreIntakeClosed] * 3)
        self.assertEqual(house.load("q"), [])

    def test_flipped_pages(self) -> None:
        """Pages of the file are overwritten under it: what is whole is delivered, no more comes,
        and the next start looks at all of the file, however large it is."""
        house = self.begin(check_bytes=0)
        bodies = [b"%d" % number * 1500 for number in range(400)]
        house.put("q", *bodies)
        house.close()
        house = self.begin(check_bytes=0)
        with open(self.path, "r+b") as file:
            pages = os.fstat(file.fileno()).st_size // PAGE
            leaves = []
            for number in range(1, pages):
                file.seek(number * PAGE)
                octets = file.read(PAGE)
                if octets[0] == LEAF and octets.count(b"3939") > 100:
                    leaves.append(number)
            self.assertGreater(len(leaves), 0)
            for number in leaves:
                file.seek(number * PAGE)
                file.write(b"\xff" * PAGE)
        there = []
        after = 0
        while rows := house.load("q", after, 50):
            there += rows
            after = rows[-1].id
        self.assertGreater(len(there), 300)
        self.assertLess(len(there), 400)
        self.assertEqual({each.encoded for each in there} - set(bodies), set())
        self.assertRaises(StoreIntakeClosed, house.put, "q", b"more")
        self.assertEqual(len(self.told), 1)
        self.take(house, "q", there[0].id)
        house.close()
        self.assertTrue(os.path.exists(f"{self.path}.suspect"))
        error = self.assertRaises(StoreDamaged, self.begin, check_bytes=0)
        self.assertIn("salvage", str(error))
        self.assertTrue(os.path.exists(f"{self.path}.suspect"))
