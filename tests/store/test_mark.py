# SPDX-License-Identifier: Apache-2.0
"""A restored database is detected, and a crash is not taken for one."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from amqproute.store.mark import Mark
from amqproute.store.seal import Seal
from amqproute.store.start_evidence import entry_totals_of, read_only
from tests.store.rig import StoreFixture


class MarkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.directory = self.mktemp()
        os.mkdir(self.directory)
        self.path = os.path.join(self.directory, "store.db")
        self.backup = os.path.join(self.directory, "backup.db")

    def run_once(self, *bodies: bytes) -> bool:
        """Open, put, close; return whether it was taken for a restored store."""
        house = StoreFixture(self.path)
        recovery = house.open()
        house.put("q", *bodies)
        house.close()
        return recovery.is_restored

    def is_restored_after_crash(self) -> bool:
        """Open a copy of what is there now; return whether that is taken for a restored one."""
        crashed = os.path.join(self.directory, "crashed.db")
        for end in ("", "-wal", ".mark", ".seal"):
            shutil.copy(self.path + end, crashed + end)
        other = StoreFixture(crashed)
        recovery = other.open()
        other.close()
        return recovery.is_restored

    def put_back(self) -> None:
        """Restore as the README says: the mark goes, and with it what knows better."""
        shutil.copy(self.backup, self.path)
        os.remove(f"{self.path}.mark")

    def test_continues(self) -> None:
        """A new store, and one that was closed, are what they are."""
        self.assertEqual([self.run_once(b"x") for _ in range(4)], [False] * 4)

    def test_upgrade(self) -> None:
        """A store of a release without marks is taken as it is."""
        self.run_once(b"x")
        with sqlite3.connect(self.path) as connection:
            connection.execute("DELETE FROM meta WHERE key = 'mark'")
        os.remove(f"{self.path}.mark")
        os.remove(f"{self.path}.seal")
        self.assertFalse(self.run_once(b"y"))
        self.assertFalse(self.run_once(b"z"))

    def test_restored(self) -> None:
        """A copy of the closed store, put back after it was used on; noticed once."""
        self.run_once(b"x")
        shutil.copy(self.path, self.backup)
        self.run_once(b"y")
        self.put_back()
        self.assertTrue(self.run_once(b"z"))
        self.assertFalse(self.run_once(b"z"))

    def test_put_back_at_once(self) -> None:
        """A copy that nothing has happened after is no other."""
        self.run_once(b"x")
        shutil.copy(self.path, self.backup)
        shutil.copy(self.backup, self.path)
        self.assertFalse(self.run_once(b"z"))

    def test_put_back_with_its_mark(self) -> None:
        """The mark out of the same backup agrees with it; but it is a copy, and says so."""
        self.run_once(b"x")
        mark = Path(f"{self.path}.mark")
        shutil.copy(self.path, self.backup)
        told = mark.read_text()
        self.run_once(b"y")
        shutil.copy(self.backup, self.path)
        (written,) = re.findall(r" at (\d+) end", told)
        hour_ago = int(written) - 3_600_000_000_000
        mark.write_text(told.replace(written, str(hour_ago)))
        self.assertTrue(self.run_once(b"z"))
        self.assertFalse(self.run_once(b"z"))

    def test_touched_while_it_runs(self) -> None:
        """Links to the files, or a change of their owner, beside a running daemon, do not make
        a crash that follows a restore."""
        house = StoreFixture(self.path)
        house.open()
        house.put("q", b"x")
        mark = Path(f"{self.path}.mark")
        told = mark.read_text()
        (written,) = re.findall(r" at (\d+) end", told)
        hour_ago = str(int(written) - 3_600_000_000_000)
        for harm in (lambda: mark.write_text(told.replace(written, hour_ago)), mark.unlink):
            harm()
            house.reactor.wait(house.store.room())
            self.assertFalse(self.is_restored_after_crash())
        house.close()

    def test_early_mark(self) -> None:
        """A mark of a release that did not say when it was written is taken as it is."""
        self.run_once(b"x")
        mark = Path(f"{self.path}.mark")
        mark.write_text(re.sub(r" at \d+ end", " end", mark.read_text()))
        self.assertFalse(self.run_once(b"y"))

    def test_removed(self) -> None:
        """Without the mark nobody knows: it is taken for restored. So is one with a bad mark."""
        self.run_once(b"x")
        os.remove(f"{self.path}.mark")
        self.assertTrue(self.run_once(b"y"))
        with open(f"{self.path}.mark", "w") as file:
            file.write("nonsense")
        self.assertTrue(self.run_once(b"y"))

    def test_seal_removed(self) -> None:
        """A missing seal is reported where there was one, and nowhere else."""
        said: list[str] = []

        def observe(event: LogEvent) -> None:
            said.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)
        self.addCleanup(globalLogPublisher.removeObserver, observe)
        for _ in range(3):
            self.run_once(b"x")
        self.assertNotIn("seal is missing", " ".join(said))
        os.remove(f"{self.path}.seal")
        self.run_once(b"x")
        self.assertIn(
            f"{self.path}.seal is missing: cannot verify that the store holds", " ".join(said)
        )
        self.assertTrue(os.path.exists(f"{self.path}.seal"))

    def test_census(self) -> None:
        """A seal counts the entries, until one ends of which nobody knows whether it was there."""
        house = StoreFixture(self.path)
        house.open()
        house.put("q", b"x", b"y")
        (one,) = house.put("q", b"z")
        house.reactor.wait(_dequeued(house, one))
        house.close()
        sealed = Seal(f"{self.path}.seal")
        with read_only(self.path) as connection:
            entry_totals = entry_totals_of(connection)
        self.assertEqual(entry_totals[0], 2)
        self.assertEqual(house.store._writer.entry_totals, entry_totals)
        state = sealed.read()
        assert state is not None
        self.assertEqual(state.entry_totals, entry_totals)
        house = StoreFixture(self.path)
        house.open()
        house.reactor.wait(_dequeued(house, one))
        self.assertIsNone(house.store._writer.entry_totals)
        house.close()

    def copied_while_open(self) -> tuple[StoreFixture, int]:
        """Take an online backup; return the broker, and the highest id given out after it."""
        house = StoreFixture(self.path)
        house.open()
        house.put("q", b"x")
        source, target = sqlite3.connect(self.path), sqlite3.connect(self.backup)
        source.backup(target)
        source.close()
        target.close()
        return house, max(house.put("q", *(b"y" for _ in range(50))))

    def test_online(self) -> None:
        """An online backup of the same run gives no id out again, whether noticed or not."""
        house, last = self.copied_while_open()
        house.close()
        self.put_back()
        other = StoreFixture(self.path)
        recovery = other.open()
        self.assertTrue(recovery.is_restored or other.store.next_id() > last)
        other.close()

    def test_crash(self) -> None:
        """Between the two writes of the mark either state of the database is right."""
        mark = Mark(f"{self.path}.mark")
        mark.write([(1, 10), (2, 20)])
        self.assertEqual(mark.read(), [(1, 10), (2, 20)])
        mark.write([(2, 20)])
        self.assertEqual(mark.read(), [(2, 20)])

    def test_killed(self) -> None:
        """A copy of all files while it is open is what a crash leaves: no restored store."""
        house = StoreFixture(self.path)
        house.open()
        house.put("q", b"x")
        self.assertFalse(self.is_restored_after_crash())
        house.close()


def _dequeued(house: StoreFixture, entry: int) -> Deferred[None]:
    transaction = house.store.begin()
    transaction.dequeue([entry])
    return transaction.commit()
