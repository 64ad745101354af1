# SPDX-License-Identifier: Apache-2.0
"""Data of a finished commit is on disk, with SQLite's own files, and survives a power failure."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.store.rig import StoreFixture
from tests.support.failing_disk import FailingDisk, is_possible

ROOT = Path(__file__).parents[2]


class PowerTests(SynchronousTestCase):
    """A process that commits, below which every write and sync is seen."""

    def test_commits(self) -> None:
        """With all gone that was not synced, whatever was answered is there, commit by commit."""
        if not is_possible():
            raise SkipTest("needs seccomp with user notification")
        path = os.path.realpath(os.path.join(self.mktemp(), "queues.db"))
        # It is made first: of what is in it from the start nothing can be lost.
        house = StoreFixture(path)
        house.open()
        house.close()
        answered: list[int] = []
        for count in (1, 7):
            disk = FailingDisk(os.path.dirname(path))
            child = subprocess.Popen(
                disk.command([sys.executable, "-m", "tests.store.commit_child", path]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                pass_fds=(disk.descriptor,),
            )
            self.addCleanup(disk.stop)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            disk.serve()
            assert child.stdin is not None
            assert child.stdout is not None
            for number in range(count):
                child.stdin.write(b"%d\n" % number)
                child.stdin.flush()
                answered.append(int(child.stdout.readline()))
            child.kill()
            child.wait()
            disk.stop()
            child.stdin.close()
            child.stdout.close()
            self.assertGreater(disk.writes["queues.db-wal"], count - 1)
            disk.lose()
            house = StoreFixture(path)
            house.open()
            self.assertEqual([each.id for each in house.load("q")], answered)
            house.close()


class SettingTests(SynchronousTestCase):
    """SQLite's settings at each statement that changes something."""

    def test_synchronous(self) -> None:
        """On both threads it syncs at each commit, and the log before a checkpoint."""
        house = StoreFixture(os.path.join(self.mktemp(), "queues.db"), connect=Asking.connect)
        Asking.answers = {}
        house.open()
        for number in range(100):
            house.put("q", b"%d" % number * 4000)
        transaction = house.store.begin()
        transaction.note("kind", "key", b"value")
        house.reactor.wait(transaction.commit())
        house.close()
        self.assertLessEqual({"INSERT", "COMMIT", "PASSIVE"}, set(Asking.answers))
        self.assertEqual(set().union(*Asking.answers.values()), {FULL})


FULL = 2


class Asking(sqlite3.Connection):
    """A connection that asks itself, at each commit and checkpoint, how it syncs."""

    answers: dict[str, set[int]] = {}

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        _, _, how = sql.partition("wal_checkpoint(")
        word = how.rstrip(")") or sql.split()[0]
        if how or word in ("INSERT", "COMMIT"):
            (answer,) = super().execute("PRAGMA synchronous").fetchone()
            self.answers.setdefault(word, set()).add(answer)
        return super().execute(sql, *args)

    @classmethod
    def connect(cls, path: str) -> sqlite3.Connection:
        """Connect as the store does."""
        return sqlite3.connect(path, isolation_level=None, cached_statements=512, factory=cls)
