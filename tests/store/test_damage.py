# SPDX-License-Identifier: Apache-2.0
"""A damaged store is refused with an explanation, nothing is deleted; crashes are not damage."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreContradiction, StoreError
from amqproute.store import start_evidence
from amqproute.store.mark import Mark
from amqproute.store.seal import Seal
from tests.store.rig import StoreFixture

MESSAGES = 141
ORIGINALS: dict[type, Any] = {Seal: Seal.write, Mark: Mark.write}
FRAME = 24 + 8192


def body(number: int) -> bytes:
    """Every third message goes into a file."""
    return b"%d:" % number * (900 if number % 3 == 0 else 20)


class Rig(SynchronousTestCase):
    """A store with `MESSAGES`, and copies of its files as they are after a crash and a stop."""

    def setUp(self) -> None:
        self.base = Path(os.path.abspath(self.mktemp()))
        self.path = self.base / "live" / "store.db"
        self.house = self.begin(self.path)
        self.ids = [self.house.put("q", body(number))[0] for number in range(MESSAGES - 20)]
        self.older = self.copy("older")
        self.ids += self.house.put("q", *map(body, range(MESSAGES - 20, MESSAGES)))
        self.killed = self.copy("killed")

    def tearDown(self) -> None:
        self.house.close()

    def begin(self, path: Path) -> StoreFixture:
        house = StoreFixture(str(path), checkpoint_bytes=8 << 20, file_bytes=2000)
        house.open()
        return house

    def copy(self, name: str, of: Path | None = None) -> Path:
        """Copy all files, as a crash of the process would leave them; return the database."""
        folder = self.base / name
        shutil.copytree((of or self.path).parent, folder)
        return folder / "store.db"

    def stopped(self) -> Path:
        """Close the store, and return a copy of what is left."""
        self.house.close()
        return self.copy("stopped")

    def held(self, path: Path) -> list[int]:
        """Open, return the ids, look at every body, close."""
        house = self.begin(path)
        try:
            entries = house.load("q")
            for entry in entries:
                self.assertEqual(entry.encoded, body(self.ids.index(entry.id)))
            return [entry.id for entry in entries]
        finally:
            house.close()

    def refused(
        self, path: Path, code: str, witness: start_evidence.Witness | None = None
    ) -> StoreContradiction:
        """Have the store refused, by this code, and everything left as it was."""
        before = self.files(path)
        house = StoreFixture(str(path), checkpoint_bytes=8 << 20, file_bytes=2000, witness=witness)
        error = self.assertRaises(StoreContradiction, house.open)
        self.assertEqual(error.finding.rpartition("-")[0], code)
        for words in ("store check", "store salvage", f"store accept-loss {error.finding}"):
            self.assertIn(words, str(error))
        self.assertEqual(self.files(path), before)
        return error

    def files(self, path: Path) -> dict[str, bytes]:
        return {
            str(each.relative_to(path.parent)): each.read_bytes()
            for each in path.parent.rglob("*")
            if each.is_file() and not each.name.endswith(("-shm", ".lock"))
        }


class KilledTests(Rig):
    """Damage that comes together with a crash."""

    def test_nothing(self) -> None:
        self.assertEqual(self.held(self.killed), self.ids)

    def test_database(self) -> None:
        """Missing, or empty: SQLite would begin a new one and remove the log."""
        other = self.copy("other", self.killed)
        self.killed.unlink()
        self.refused(self.killed, "database-missing")
        other.write_bytes(b"")
        self.refused(other, "database-missing")

    def test_log(self) -> None:
        """Missing, its header zeroed, rotten in the middle, zeros for a tail, cut."""
        harm: dict[str, tuple[str, Callable[[bytearray], object]]] = {
            "header": ("log-missing", lambda log: log.__setitem__(slice(32), bytes(32))),
            "zeros": ("log-missing", lambda log: log.__setitem__(slice(None), bytes(len(log)))),
            "bit": ("log-short", lambda log: log.__setitem__(32 + 60 * FRAME + 500, 1 ^ log[32])),
            "tail": (
                "log-short",
                lambda log: log.__setitem__(slice(32 + 80 * FRAME, None), bytes(len(log))),
            ),
            "cut": ("log-short", lambda log: log.__delitem__(slice(32 + 30 * FRAME, None))),
            "empty": ("log-missing", lambda log: log.clear()),
        }
        for name, (code, change) in harm.items():
            path = self.copy(name, self.killed)
            log = Path(f"{path}-wal")
            octets = bytearray(log.read_bytes())
            change(octets)
            log.write_bytes(octets)
            self.refused(path, code)
        Path(f"{self.killed}-wal").unlink()
        self.refused(self.killed, "log-missing")

    def test_older_log(self) -> None:
        """A copy of the log that was taken earlier, and one of another store."""
        shutil.copy(f"{self.older}-wal", f"{self.killed}-wal")
        self.refused(self.killed, "log-short")
        other = self.begin(self.base / "foreign" / "store.db")
        other.put("q", b"x")
        shutil.copy(f"{other.store.path}-wal", f"{self.killed}-wal")
        other.close()
        self.refused(self.killed, "log-other")

    def test_older_database(self) -> None:
        """Beneath a log that was begun for a later one."""
        stopped = self.stopped()
        self.begin(stopped).close()
        house = self.begin(stopped)
        self.addCleanup(house.close)
        killed = self.copy("again", stopped)
        shutil.copy(self.killed, killed)
        self.refused(killed, "database-older")

    def test_seal(self) -> None:
        """Missing, torn, or an older copy: nothing is lost, and nothing is removed."""
        for name, harm in {
            "missing": Path.unlink,
            "torn": lambda file: file.write_bytes(file.read_bytes()[:60]),
            "rotten": lambda file: file.write_bytes(b"x" * 4096),
            "stale": lambda file: shutil.copy(f"{self.older}.seal", file),
        }.items():
            path = self.copy(name, self.killed)
            nobody = path.parent / "store.bodies" / "000000000999"
            nobody.write_bytes(b"x")
            harm(Path(f"{path}.seal"))
            self.assertEqual(self.held(path), self.ids, name)
            self.assertEqual(self.held(path), self.ids, name)
            kept = list(path.parent.glob("store.quarantine/*/000000000999"))
            self.assertEqual(len(kept), name != "stale", name)

    def test_one_slot(self) -> None:
        """Each slot of the seal by itself is enough to notice."""
        for at in (0, 512):
            path = self.copy(f"slot{at}", self.killed)
            with open(f"{path}.seal", "r+b") as file:
                file.seek(at)
                file.write(bytes(100))
            self.assertEqual(self.held(self.copy(f"whole{at}", path)), self.ids)
            os.truncate(f"{path}-wal", 32 + 30 * FRAME)
            self.refused(path, "log-short")

    def test_mark(self) -> None:
        """Missing or an older copy: all is there, under a new name."""
        Path(f"{self.killed}.mark").unlink()
        self.assertEqual(self.held(self.killed), self.ids)

    def test_closed_by_another_program(self) -> None:
        """It takes the log into the database, and removes it: nothing is lost by that."""
        connection = sqlite3.connect(self.killed)
        self.assertEqual(connection.execute("SELECT count(*) FROM entry").fetchone(), (141,))
        connection.close()
        self.assertFalse(os.path.exists(f"{self.killed}-wal"))
        self.assertEqual(self.held(self.killed), self.ids)

    def test_torn_header(self) -> None:
        """The log was about to start over: its header is torn, and the database has all of it."""
        log = Path(f"{self.killed}-wal")
        octets = log.read_bytes()
        connection = sqlite3.connect(self.killed)
        connection.execute("SELECT count(*) FROM entry").fetchone()
        connection.close()
        log.write_bytes(octets[:14] + b"torn" + octets[18:])
        self.assertEqual(self.held(self.killed), self.ids)

    def test_accepted(self) -> None:
        """The very finding, once; what contradicts is kept, and so are the bodies of nobody."""
        os.truncate(f"{self.killed}-wal", 32 + 80 * FRAME)
        error = self.refused(self.killed, "log-short")
        path = str(self.killed)
        self.assertRaises(StoreError, start_evidence.accept, path, "log-short-00000000")
        start_evidence.accept(path, error.finding, tells_senders=True)
        house = StoreFixture(path, file_bytes=2000)
        recovery = house.open()
        self.assertEqual((recovery.accepted, recovery.tells_senders), (error.finding, True))
        self.assertTrue(recovery.is_restored)
        left = recovery.queues["q"].count
        self.assertTrue(0 < left < MESSAGES)
        house.store.settle_loss()
        house.close()
        (folder,) = self.killed.parent.glob("store.quarantine/*")
        told = json.loads((folder / "report.json").read_text())
        self.assertIn(error.finding, told["why"])
        names = {item["name"] for item in told["files"]}
        self.assertEqual(names | {"report.json", "report.txt"}, set(os.listdir(folder)))
        self.assertIn("store.db-wal", names)
        again = StoreFixture(path, file_bytes=2000)
        recovery = again.open()
        self.assertEqual((recovery.accepted, recovery.queues["q"].count), ("", left))
        self.assertFalse(recovery.is_restored)
        again.close()

    def test_accepted_without_database(self) -> None:
        """All bodies are of nobody then: none is deleted."""
        bodies = sorted(os.listdir(self.killed.parent / "store.bodies"))
        self.assertTrue(bodies)
        self.killed.unlink()
        error = self.refused(self.killed, "database-missing")
        start_evidence.accept(str(self.killed), error.finding)
        house = self.begin(self.killed)
        self.assertEqual(house.load("q"), [])
        house.close()
        (folder,) = self.killed.parent.glob("store.quarantine/*")
        self.assertEqual(sorted(each for each in os.listdir(folder) if each.isdigit()), bodies)

    def test_accepted_for_another(self) -> None:
        """An acceptance holds for what it names, and not for what happens afterwards."""
        other = self.copy("other", self.killed)
        os.truncate(f"{self.killed}-wal", 32 + 80 * FRAME)
        error = self.refused(self.killed, "log-short")
        start_evidence.accept(str(self.killed), error.finding)
        shutil.copy(f"{self.killed}.accepted", f"{other}.accepted")
        os.truncate(f"{other}-wal", 32 + 60 * FRAME)
        self.refused(other, "log-short")


class WitnessTests(Rig):
    """Without the seal the journal is asked; it cannot refuse an honest start."""

    def setUp(self) -> None:
        super().setUp()
        self.expected = set(self.ids)
        self.is_whole = True
        self.asked = 0

    def witness(
        self, there: set[int], outbox: start_evidence.Outbox
    ) -> start_evidence.JournalTestimony:
        self.asked += 1
        return start_evidence.JournalTestimony(
            "the journal", tuple(sorted(self.expected - there)), self.is_whole
        )

    def begin(self, path: Path) -> StoreFixture:
        witness = self.witness if hasattr(self, "asked") else None
        house = StoreFixture(str(path), checkpoint_bytes=8 << 20, file_bytes=2000, witness=witness)
        house.open()
        return house

    def empty(self, name: str, *files: str) -> Path:
        """Return a store of which some files are there and have no octets."""
        path = self.base / name / "store.db"
        path.parent.mkdir()
        for file in files:
            (path.parent / file).touch()
        return path

    def test_nothing_is_left(self) -> None:
        """No file, and only empty ones: refused, once accepted it starts, and starts again."""
        for name, files in {
            "nothing": (),
            "database": ("store.db",),
            "all": ("store.db", "store.db-wal", "store.db.seal"),
        }.items():
            path = self.empty(name, *files)
            (path.parent / "store.bodies").mkdir()
            error = self.refused(path, "database-missing", self.witness)
            self.assertIn("the journal says that 141 messages", str(error))
            self.assertRaises(StoreError, start_evidence.accept, str(path), error.finding)
            start_evidence.accept(str(path), error.finding, witness=self.witness)
            house = self.begin(path)
            house.store.settle_loss()
            house.close()
            self.assertEqual(self.held(path), [])

    def test_young_store_without_log(self) -> None:
        """Log and seal are gone: the file has no tables, as a new one."""
        for end in ("-wal", ".seal"):
            os.unlink(f"{self.killed}{end}")
        error = self.refused(self.killed, "database-missing", self.witness)
        start_evidence.accept(str(self.killed), error.finding, witness=self.witness)
        house = self.begin(self.killed)
        self.assertEqual(house.load("q"), [])
        house.close()
        # Accepted, and killed before that start was through: it continues.
        self.begin(self.killed).close()

    def test_new(self) -> None:
        """No journal, or one that says that nothing is held."""
        house = StoreFixture(str(self.empty("first")))
        house.open()
        house.close()
        self.expected = set()
        self.assertEqual(self.held(self.empty("second")), [])
        self.assertEqual(self.asked, 1)

    def test_seal_is_not_asked_twice(self) -> None:
        """A seal that holds needs no witness."""
        self.expected.add(1 << 40)
        self.assertEqual(self.held(self.killed), self.ids)
        self.assertEqual(self.asked, 0)

    def test_rows(self) -> None:
        """Without a seal an older database is noticed; not if the journal is damaged as well."""
        path = self.stopped()
        shutil.copy(self.older, path)
        shutil.copy(f"{self.older}-wal", f"{path}-wal")
        os.unlink(f"{path}.seal")
        again = self.copy("again", path)
        error = self.refused(path, "rows-missing", self.witness)
        self.assertIn("20 messages", str(error))
        start_evidence.accept(str(path), error.finding, witness=self.witness)
        self.assertEqual(len(self.held(path)), MESSAGES - 20)
        self.is_whole = False
        self.assertEqual(len(self.held(again)), MESSAGES - 20)

    def test_older_with_its_seal(self) -> None:
        """They agree with each other; the mark does not, and the journal knows more."""
        self.house.close()
        first = self.copy("first")
        house = self.begin(self.path)
        self.ids += house.put("q", body(len(self.ids)))
        house.close()
        self.expected = set(self.ids)
        for end in ("", ".seal"):
            shutil.copy(f"{first}{end}", f"{self.path}{end}")
        again = self.copy("again")
        error = self.refused(self.path, "rows-missing", self.witness)
        self.assertIn(".mark is of another one", str(error))
        os.unlink(f"{again}.mark")
        self.assertEqual(len(self.held(again)), MESSAGES)

    def test_restore(self) -> None:
        """Without mark and log it is meant."""
        path = self.stopped()
        backup = self.base / "backup.db"
        source, target = sqlite3.connect(self.older), sqlite3.connect(backup)
        source.backup(target)
        target.close()
        source.close()
        shutil.copy(backup, path)
        for end in (".mark", ".seal"):
            os.unlink(f"{path}{end}")
        self.assertEqual(len(self.held(path)), MESSAGES - 20)

    def killed_at_start(self, path: Path, name: str) -> list[Path]:
        """Start, and return copies as a kill would leave the store before each write of seal and
        mark, and before the first one of all."""
        copies: list[Path] = []

        def watch(kind: type[Seal] | type[Mark]) -> None:
            write = kind.write

            def written(file: Any, what: Any) -> None:
                copies.append(self.copy(f"{name}-{len(copies)}", path))
                write(file, what)
                copies.append(self.copy(f"{name}-{len(copies)}", path))

            self.patch(kind, "write", written)

        watch(Seal)
        watch(Mark)
        house = self.begin(path)
        found = list(copies)
        house.close()
        for kind in (Seal, Mark):
            self.patch(kind, "write", ORIGINALS[kind])
        self.assertGreater(len(found), 4)
        return found

    def test_accepted_start_is_killed(self) -> None:
        """An acceptance holds until a start that uses it is through."""
        path = self.empty("gone")
        error = self.refused(path, "database-missing", self.witness)
        start_evidence.accept(str(path), error.finding, witness=self.witness)
        for copy in self.killed_at_start(path, "gone-killed"):
            self.assertEqual(self.held(copy), [])

    def test_restore_is_killed(self) -> None:
        """A restore is one, too, if its first start was killed."""
        path = self.stopped()
        backup = self.base / "backup.db"
        source, target = sqlite3.connect(self.older), sqlite3.connect(backup)
        with closing(source), closing(target):
            source.backup(target)
        for end in (".mark", ".seal"):
            shutil.copy(backup, path)
            Path(f"{path}{end}").unlink()
            for copy in self.killed_at_start(self.copy(f"start{end}", path), f"restore{end}"):
                self.assertEqual(len(self.held(copy)), MESSAGES - 20)

    def test_ranges(self) -> None:
        self.assertEqual(start_evidence.ranges([1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10")
        self.assertEqual(start_evidence.ranges([4]), "4")
        self.assertEqual(start_evidence.ranges(range(0, 900, 2), 10), "0, 2, 4, 6, ...")


class StoppedTests(Rig):
    """Damage of a store that was stopped in good order."""

    def test_nothing(self) -> None:
        path = self.stopped()
        self.assertFalse(os.path.exists(f"{path}-wal"))
        self.assertEqual(self.held(path), self.ids)

    def test_database(self) -> None:
        """Missing, empty, an older copy, that with its log."""
        for name, harm in {
            "missing": Path.unlink,
            "empty": lambda path: path.write_bytes(b""),
        }.items():
            path = self.copy(name, self.path if name == "empty" else self.stopped())
            harm(path)
            self.refused(path, "database-missing")
        path = self.copy("older-1", self.path)
        shutil.copy(self.older, path)
        self.refused(path, "database-older")
        path = self.copy("older-2", self.path)
        for end in ("", "-wal"):
            shutil.copy(f"{self.older}{end}", f"{path}{end}")
        self.refused(path, "database-older")

    def test_restored(self) -> None:
        """As documented, without the mark: it starts, and says that it was restored."""
        path = self.stopped()
        backup = self.base / "backup.db"
        source, target = sqlite3.connect(self.older), sqlite3.connect(backup)
        source.backup(target)
        target.close()
        source.close()
        shutil.copy(backup, path)
        Path(f"{path}.mark").unlink()
        house = StoreFixture(str(path), file_bytes=2000)
        recovery = house.open()
        self.assertTrue(recovery.is_restored)
        self.assertEqual(recovery.queues["q"].count, MESSAGES - 20)
        house.close()
        self.assertEqual(len(self.held(path)), MESSAGES - 20)

    def test_something_else(self) -> None:
        """A file or a folder in the place of another is named, and not called a failing disk."""
        for name in ("store.bodies", "store.db.lock"):
            path = self.copy(f"other-{name}")
            place = path.parent / name
            shutil.rmtree(place) if place.is_dir() else place.unlink()
            place.touch() if name == "store.bodies" else place.mkdir()
            error = self.assertRaises(StoreError, self.begin, path)
            self.assertIn(f"{place}: ", str(error))
            self.assertNotIn("the disk failed", str(error))

    def test_log_of_before(self) -> None:
        """A log that comes back would be applied to a database that has gone on."""
        path = self.stopped()
        shutil.copy(f"{self.killed}-wal", f"{path}-wal")
        self.refused(path, "database-older")


class Between(sqlite3.Connection):
    """A connection that waits with each statement, a checkpoint too, while files are copied."""

    statements = threading.RLock()

    def execute(self, *args: Any) -> sqlite3.Cursor:
        with self.statements:
            return super().execute(*args)

    @classmethod
    def connect(cls, path: str) -> sqlite3.Connection:
        """Connect as the store does."""
        return sqlite3.connect(path, isolation_level=None, cached_statements=512, factory=cls)


class PowerTests(SynchronousTestCase):
    """The state after a power failure: all that was synced, and any part of the rest."""

    def copy(self, live: Path, folder: Path) -> None:
        """Copy all files at one instant: between two statements of all connections."""
        with Between.statements:
            shutil.copytree(live, folder)

    def test_never_refused(self) -> None:
        """Any earlier seal, a log of which any part of the last commit is there or not."""
        chance = random.Random(3)
        base = Path(os.path.abspath(self.mktemp()))
        house = StoreFixture(
            str(base / "live" / "store.db"),
            checkpoint_bytes=200_000,
            remainder_bytes=50_000,
            connect=Between.connect,
        )
        house.open()
        states: list[tuple[Path, int]] = []
        ids: list[int] = []
        count = 0
        for number in range(60):
            ids += house.put("q", *(b"%d" % number * 700 for _ in range(1 + number % 4)))
            count = len(ids)
            if number % 5 == 0:
                transaction = house.store.begin()
                transaction.dequeue(ids[:2])
                house.reactor.wait(transaction.commit())
                del ids[:2]
            count = len(ids)
            folder = base / f"{number}"
            self.copy(base / "live", folder)
            states.append((folder, count))
        self.assertGreater(house.store.statistics()["log_restarts"], 2)
        house.close()
        refused = torn = 0
        for number in range(1, 60):
            before, least = states[number - 1]
            after, most = states[number]
            there = base / "there"
            shutil.copytree(after, there)
            log = bytearray((before / "store.db-wal").read_bytes())
            fresh = (after / "store.db-wal").read_bytes()
            is_same_round = log[16:24] == fresh[16:24]
            # What a checkpoint has copied was synced before: nothing of that is lost.
            databases = [(each / "store.db").read_bytes() for each in (before, after)]
            if is_same_round and databases[0] == databases[1]:
                torn += 1
                log.extend(bytes(max(0, len(fresh) - len(log))))
                for at in range(32, len(fresh), 512):
                    if chance.random() < 0.5:
                        log[at : at + 512] = fresh[at : at + 512]
                (there / "store.db-wal").write_bytes(log)
            earlier = states[chance.randrange(max(0, number - 9), number)][0]
            shutil.copy(earlier / "store.db.seal", there / "store.db.seal")
            if chance.random() < 0.3:  # torn, too
                with open(there / "store.db.seal", "r+b") as file:
                    file.seek(512 * chance.randrange(2))
                    file.write(bytes(chance.randrange(100)))
            other = StoreFixture(str(there / "store.db"))
            recovery = other.open()
            there_are = recovery.queues["q"].count if "q" in recovery.queues else 0
            self.assertIn(there_are, range(min(least, most), max(least, most) + 1))
            other.close()
            shutil.rmtree(there)
            # The other way round: with the seal as it was, less is not taken for all.
            if is_same_round and number > 2:
                shutil.copytree(after, there)
                shutil.copy(states[number - 2][0] / "store.db-wal", there / "store.db-wal")
                try:
                    one = StoreFixture(str(there / "store.db"))
                    self.assertEqual(one.open().queues["q"].count, most)
                    one.close()
                except StoreContradiction:
                    refused += 1
                shutil.rmtree(there)
        self.assertGreater(torn, 30)
        self.assertGreater(refused, 40)


class CensusTests(SynchronousTestCase):
    def test_counts(self) -> None:
        """The seal matches the contents after work of every kind."""
        path = os.path.abspath(os.path.join(self.mktemp(), "store.db"))
        house = StoreFixture(path, file_bytes=2000)
        house.open()
        first = house.put("q", b"a", b"b", b"c" * 3000, b"d")
        transaction = house.store.begin()
        payload = house.store.next_id()
        shared = [house.store.next_id() for _ in range(3)]
        transaction.share(payload, b"shared")
        transaction.enqueue_shared_many(["q", "r", "q"], shared, payload, 6, 1, 0, 0)
        transaction.move(first[0], "r", house.store.next_id())
        transaction.dequeue([first[1], shared[0]])
        transaction.update(first[3], 2)
        house.reactor.wait(transaction.commit())
        with sqlite3.connect(path) as connection:
            there = start_evidence.entry_totals_of(connection)
        connection.close()
        sealed = Seal(f"{path}.seal").read()
        assert sealed is not None
        self.assertEqual((sealed.entry_totals, there[0]), (there, 5))
        transaction = house.store.begin()
        transaction.dequeue([first[1], first[3]])  # one of them is gone
        house.reactor.wait(transaction.commit())
        sealed = Seal(f"{path}.seal").read()
        assert sealed is not None
        self.assertIsNone(sealed.entry_totals)
        house.close()
        sealed = Seal(f"{path}.seal").read()
        assert sealed is not None
        assert sealed.entry_totals is not None
        self.assertEqual((sealed.is_copied, sealed.entry_totals[0]), (True, 4))
