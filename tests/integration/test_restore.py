# SPDX-License-Identifier: Apache-2.0
"""A store restored from a backup: no new message is mistaken for an old one."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.journal import reader
from amqproute.journal.record import JournalRecord, RecordKind
from amqproute.store.fsck import check
from tests.integration.support import Daemon, Wire, Zone, body_of, message, until
from tests.support.program import run

BACKUP = """
import sqlite3, sys
source, target = sqlite3.connect(sys.argv[1]), sqlite3.connect(sys.argv[2])
source.backup(target)
target.close()
"""


class RestoreTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.zone.point("alpha.example", 1)
        self.beta = Daemon(
            "beta.example", nameserver=self.zone.port, changes={"nodes": [{"name": "q"}]}
        ).start()
        self.addCleanup(self.beta.kill)
        self.zone.point("beta.example", self.beta.tls)
        self.alpha = Daemon(
            "alpha.example", nameserver=self.zone.port, changes={"nodes": [{"name": "local"}]}
        ).start()
        self.addCleanup(self.alpha.kill)
        self.state = self.alpha.directory / "state"

    def publish(self, *bodies: bytes) -> None:
        with Wire(self.alpha.plain) as wire:
            wire.publish("q@beta.example", [message(body) for body in bodies])

    def taken(self, count: int) -> list[bytes]:
        with Wire(self.beta.plain) as wire:
            return [body_of(each) for each in wire.consume("q", count)]

    def forgotten(self) -> None:
        """Wait until alpha's store has let go of what beta took: a backup has it otherwise."""

        def is_empty() -> bool:
            connection = sqlite3.connect(self.state / "store.db")
            (count,) = connection.execute("SELECT count(*) FROM entry").fetchone()
            connection.close()
            return not count

        until(is_empty, "an empty store")

    def put_back(self, backup: Path) -> None:
        """Restore as the README says."""
        for end in ("-wal", "-shm", ".mark"):
            Path(f"{self.state / 'store.db'}{end}").unlink(missing_ok=True)
        shutil.copy(backup, self.state / "store.db")
        shutil.rmtree(self.state / "store.bodies")
        shutil.copytree(f"{backup}.bodies", self.state / "store.bodies")

    def test_offline(self) -> None:
        """A copy of the stopped store; its ids would come again, and beta has receipts of them."""
        self.publish(b"one")
        self.assertEqual(self.taken(1), [b"one"])
        self.forgotten()
        self.alpha.stop()
        backup = self.alpha.directory / "backup.db"
        shutil.copy(self.state / "store.db", backup)
        shutil.copytree(self.state / "store.bodies", f"{backup}.bodies")
        self.alpha.start()
        self.publish(b"two", b"three")
        self.assertEqual(self.taken(2), [b"two", b"three"])
        self.alpha.kill()  # before it has told beta that these receipts may go
        self.put_back(backup)
        mark = self.alpha.mark()
        self.alpha.start()
        self.alpha.wait_log("restored from a backup", mark)
        self.publish(b"four", b"five", b"six")
        self.assertEqual(self.taken(3), [b"four", b"five", b"six"])
        mark = self.alpha.mark()
        self.alpha.stop()
        self.alpha.start()
        self.assertNotIn("restored from a backup", self.alpha.log()[mark:])

    def said(self) -> list[JournalRecord]:
        return list(reader.records(self.state / "journal"))

    def test_everything(self) -> None:
        """A file backup of the whole state directory, mark and journal among it: neither entries
        nor records are named like those that came after the backup."""
        self.publish(b"one")
        self.assertEqual(self.taken(1), [b"one"])
        self.alpha.stop()
        backup = self.alpha.directory / "backup"
        shutil.copytree(self.state, backup)
        self.alpha.start()
        self.publish(b"two", b"three")
        self.assertEqual(self.taken(2), [b"two", b"three"])
        self.alpha.stop()
        before = self.said()
        shutil.rmtree(self.state)
        shutil.copytree(backup, self.state)
        for name, pattern in (
            ("store.db.mark", r"(?<= at )\d+"),
            ("journal/head", r'(?<="written_us": )\d+'),
        ):  # it was some time ago
            text, count = re.subn(pattern, "1234567890", (self.state / name).read_text())
            self.assertEqual(count, 1, name)
            (self.state / name).write_text(text)
        mark = self.alpha.mark()
        self.alpha.start()
        self.alpha.wait_log("restored from a backup", mark)
        self.alpha.wait_log("the head is a copy", mark)
        self.publish(b"four", b"five", b"six")
        self.assertEqual(self.taken(3), [b"four", b"five", b"six"])
        self.alpha.stop()
        (verdict,) = reader.verify(self.state / "journal")
        self.assertIsNone(verdict.flaw)
        there = {each.event_id for each in reader.records(backup / "journal")}
        fresh = [each for each in self.said() if each.event_id not in there]
        self.assertEqual(
            {each.event_id for each in fresh} & {each.event_id for each in before}, set()
        )
        taken = {(each.stream, each.entry) for each in before if each.kind == RecordKind.RECEIVED}
        again = {(each.stream, each.entry) for each in fresh if each.kind == RecordKind.RECEIVED}
        self.assertEqual((len(taken), len(again), taken & again), (3, 3, set()))
        told = {each.code: each.detail for each in fresh if each.kind == RecordKind.RECOVERY}
        (former,) = {stream for stream, _ in taken}
        self.assertEqual(told, {"journal.restored": None, "store.restored": former, None: None})

    def test_commands(self) -> None:
        """`store backup` beside the running daemon, `store restore` into an empty directory."""
        large = message(b"l" * 100_000)
        with Wire(self.alpha.plain) as wire:
            wire.publish("local", [large, message(b"small")])
        backup = self.alpha.directory / "backup"
        config = ["--config", str(self.alpha.file)]
        done = run("store", "backup", str(backup), *config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 messages", done.stdout)
        self.assertEqual(run("store", "backup", str(backup), *config).returncode, 1)
        done = run("store", "restore", str(backup), *config)  # beside the daemon
        self.assertEqual(done.returncode, 1)
        self.assertIn("store.in-use", done.stderr)
        self.publish(b"one")
        self.assertEqual(self.taken(1), [b"one"])
        self.alpha.kill()
        done = run("store", "restore", str(backup), *config)
        self.assertEqual(done.returncode, 1)
        self.assertIn("already exists", done.stderr)
        for each in self.state.glob("store.*"):
            each.unlink() if each.is_file() else shutil.rmtree(each)
        done = run("store", "restore", str(backup), *config)
        self.assertEqual(done.returncode, 0, done.stderr)
        mark = self.alpha.mark()
        self.alpha.start()
        self.alpha.wait_log("restored from a backup", mark)
        self.publish(b"two", b"three")
        self.assertEqual(self.taken(2), [b"two", b"three"])
        with Wire(self.alpha.plain) as wire:
            got = [body_of(each) for each in wire.consume("local", 2)]
        self.assertEqual(got, [body_of(large), b"small"])
        self.alpha.stop()
        codes = {each.code for each in self.said() if each.kind == RecordKind.RECOVERY}
        self.assertIn("store.restored", codes)
        self.assertEqual(check(str(self.state / "store.db")), [])

    def test_online(self) -> None:
        """A backup of the running store, as the README says; restored after a crash."""
        self.publish(b"one")
        self.assertEqual(self.taken(1), [b"one"])
        self.forgotten()
        large = message(b"l" * 100_000)
        with Wire(self.alpha.plain) as wire:
            wire.publish("local", [large])
        backup = self.alpha.directory / "backup.db"
        bodies = [str(self.state / "store.bodies") + "/.", f"{backup}.bodies"]
        Path(f"{backup}.bodies").mkdir()
        subprocess.run(["cp", "-al", *bodies], check=True)
        store = str(self.state / "store.db")
        subprocess.run([sys.executable, "-c", BACKUP, store, str(backup)], check=True)
        subprocess.run(["cp", "-alf", *bodies], check=True)
        self.publish(b"two", b"three")
        self.assertEqual(self.taken(2), [b"two", b"three"])
        self.alpha.kill()
        self.put_back(backup)
        self.alpha.start()
        self.publish(b"four", b"five", b"six")
        self.assertEqual(self.taken(3), [b"four", b"five", b"six"])
        with Wire(self.alpha.plain) as wire:
            (got,) = wire.consume("local", 1)
        self.assertEqual(body_of(got), body_of(large))
        self.alpha.stop()
        self.assertEqual(check(store), [])
