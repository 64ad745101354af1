# SPDX-License-Identifier: Apache-2.0
"""Backups of stores, and restoring them."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import StoreError
from amqproute.store import backup
from amqproute.store.backup import MANIFEST, RESTORING, back_up, restore
from amqproute.store.fsck import check
from tests.store.rig import StoreFixture

MESSAGES = 40


def body(number: int) -> bytes:
    """Return a message; every third one is so large that it goes into a file."""
    return b"%d:" % number * (900 if number % 3 == 0 else 20)


KILLED = """
import os, shutil, signal, sqlite3, sys
from amqproute.store import backup
path, target, is_running, step = sys.argv[1:]
def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
class Connection(sqlite3.Connection):
    backup = killed
def connect(*given, real=sqlite3.connect, **others):
    return real(*given, **{**others, "factory": Connection})
if step == "copyfile":
    shutil.copyfile = killed
elif step == "rename":
    os.rename = killed
elif step == "backup":
    sqlite3.connect = connect
else:
    setattr(backup, step, killed)
backup.back_up(path, target, is_running == "1")
"""
"""Makes a backup, and kills itself at a step."""


class BackupTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.state = self.folder / "state"
        self.state.mkdir(parents=True)
        self.path = str(self.state / "store.db")
        self.house: StoreFixture | None = self.begin()
        self.ids = self.house.put("q", *map(body, range(MESSAGES)))
        self.target = str(self.folder / "backup")
        self.fresh = self.folder / "fresh"
        self.fresh.mkdir()

    def begin(self, path: str = "") -> StoreFixture:
        """Open a store."""
        house = StoreFixture(path or self.path, file_bytes=1500)
        house.open()
        return house

    def tearDown(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the store."""
        if self.house is not None:
            self.house.close()
            self.house = None

    def messages(self) -> list[bytes]:
        """Return what a store that was restored has, as the daemon reads it."""
        house = self.begin(str(self.fresh / "store.db"))
        try:
            return [each.encoded for each in house.load("q")]
        finally:
            house.close()

    def contents(self, folder: Path) -> dict[str, bytes]:
        """Return the files of a folder."""
        return {
            str(each.relative_to(folder)): each.read_bytes()
            for each in folder.rglob("*")
            if each.is_file()
        }

    def test_whole(self) -> None:
        """A restored store is sound, with the same messages and bodies."""
        self.close()
        made = back_up(self.path, self.target, is_running=False)
        self.assertGreater(made.messages, 0)
        self.assertEqual(made.problems, ())
        self.assertFalse(Path(f"{self.target}.partial").exists())
        again = restore(self.target, str(self.fresh / "store.db"))
        self.assertEqual(again, made)
        self.assertEqual(check(str(self.fresh / "store.db")), [])
        self.assertEqual(
            sorted(os.listdir(self.fresh)), ["store.bodies", "store.db"], "no mark, no seal"
        )
        self.assertEqual(
            self.contents(self.fresh / "store.bodies"),
            self.contents(Path(self.target) / "store.bodies"),
        )

    def test_running(self) -> None:
        """A backup of a store that is open has all that was committed, and is of one moment."""
        back_up(self.path, self.target, is_running=True)
        assert self.house is not None
        self.house.put("q", b"later")
        restore(self.target, str(self.fresh / "store.db"))
        self.assertEqual(check(str(self.fresh / "store.db")), [])
        self.assertEqual(self.messages(), [body(number) for number in range(MESSAGES)])

    def test_gone(self) -> None:
        """Bodies that go away before they are copied: all is tried again, and then given up."""
        house = self.house
        assert house is not None
        copy = backup._copy_database
        rounds = 0

        def meanwhile(*args: Any) -> None:
            nonlocal rounds
            rounds += 1
            house.put("q", b"%d new " % rounds * 500)
            copy(*args)
            named = backup._named(args[1])
            (self.state / "store.bodies" / max(named)).unlink(missing_ok=True)
            (Path(args[1]).parent / "store.bodies" / max(named)).unlink(missing_ok=True)

        self.patch(backup, "_copy_database", meanwhile)
        self.assertRaises(StoreError, back_up, self.path, self.target, True)
        self.assertEqual(rounds, backup.TRIES)
        self.assertFalse(os.path.exists(self.target))
        self.assertFalse(os.path.exists(f"{self.target}.partial"))

    def test_again(self) -> None:
        """If the files did not fit the database once, the next try counts."""
        copy = backup._copy
        answers = [["a body"]]

        def once(*args: Any) -> list[str]:
            return answers.pop() if answers else copy(*args)

        self.patch(backup, "_copy", once)
        self.assertEqual(back_up(self.path, self.target, is_running=True).problems, ())
        restore(self.target, str(self.fresh / "store.db"))

    def test_grown(self) -> None:
        """Messages between the two copies of the files are there, too."""
        house = self.house
        assert house is not None
        copy = backup._copy_database
        fresh = b"new " * 1000

        def meanwhile(*args: Any) -> None:
            house.put("q", fresh)
            copy(*args)

        self.patch(backup, "_copy_database", meanwhile)
        self.assertEqual(back_up(self.path, self.target, is_running=True).problems, ())
        restore(self.target, str(self.fresh / "store.db"))
        self.assertEqual(self.messages()[-1], fresh)

    def test_original(self) -> None:
        """A backup of a stopped store changes nothing of it."""
        self.close()
        before = self.contents(self.state)
        back_up(self.path, self.target, is_running=False)
        self.assertEqual(self.contents(self.state), before)

    def test_killed(self) -> None:
        """Wherever it ends, nothing has the name of a backup; and the next one is made."""
        self.close()
        steps = ("_copy_database", "_named", "_digest", "sync_path")
        for step in steps:
            real = getattr(backup, step)

            def end(*args: Any) -> Any:
                raise KeyboardInterrupt

            setattr(backup, step, end)
            try:
                self.assertRaises(KeyboardInterrupt, back_up, self.path, self.target, False)
            finally:
                setattr(backup, step, real)
            self.assertFalse(os.path.exists(self.target), step)
            self.assertTrue(os.path.exists(f"{self.target}.partial"), step)
            words = "not a complete backup"
            error = self.assertRaises(
                StoreError, restore, f"{self.target}.partial", str(self.fresh / "store.db")
            )
            self.assertIn(words, str(error))
        back_up(self.path, self.target, is_running=False)
        restore(self.target, str(self.fresh / "store.db"))

    def test_killed_by_a_signal(self) -> None:
        """SIGKILL at any step, of a store in use and of one that is not: the same holds."""
        steps = (("copyfile", True), ("backup", True), ("rename", True), ("_digest", False))
        for number, (step, is_running) in enumerate(steps):
            if not is_running:
                self.close()
            target = f"{self.target}{number}"
            child = subprocess.run(
                [sys.executable, "-c", KILLED, self.path, target, str(int(is_running)), step],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual(child.returncode, -signal.SIGKILL, (step, child.stderr))
            self.assertFalse(os.path.exists(target), step)
            fresh = self.folder / f"fresh{number}"
            fresh.mkdir()
            path = str(fresh / "store.db")
            if step != "rename":  # at that it was whole, and is not called a backup yet
                error = self.assertRaises(StoreError, restore, f"{target}.partial", path)
                self.assertIn("not a complete backup", str(error))
                self.assertEqual(list(fresh.iterdir()), [])
            made = back_up(self.path, target, is_running=is_running)
            self.assertEqual((made.messages, made.problems), (MESSAGES, ()))
            self.assertFalse(os.path.exists(f"{target}.partial"))
            restore(target, path)
            self.assertEqual(check(path), [])

    def test_restore_killed(self) -> None:
        """A restore that was killed leaves no database, and can be begun again."""
        self.close()
        back_up(self.path, self.target, is_running=False)

        def end(*args: Any) -> Any:
            raise KeyboardInterrupt

        rename = os.rename
        os.rename = end
        try:
            self.assertRaises(KeyboardInterrupt, restore, self.target, str(self.fresh / "store.db"))
        finally:
            os.rename = rename
        self.assertTrue((self.fresh / RESTORING).exists())
        self.assertFalse((self.fresh / "store.db").exists())
        restore(self.target, str(self.fresh / "store.db"))
        self.assertEqual(check(str(self.fresh / "store.db")), [])
        self.assertFalse((self.fresh / RESTORING).exists())

    def test_refused(self) -> None:
        """A folder that is there, a store that is there, a store that is not there."""
        self.close()
        back_up(self.path, self.target, is_running=False)
        error = self.assertRaises(StoreError, back_up, self.path, self.target, False)
        self.assertIn("already exists", str(error))
        error = self.assertRaises(StoreError, restore, self.target, self.path)
        self.assertIn("already exists, and a restore replaces nothing", str(error))
        error = self.assertRaises(StoreError, back_up, str(self.fresh / "store.db"), "x", False)
        self.assertIn("there is no store", str(error))

    def test_own_folders(self) -> None:
        """No backup goes where the daemon moves or deletes what it does not know."""
        for own in ("store.bodies", "store.quarantine", "journal"):
            for name in (f"{own}/x", f"{own}/deep/x"):
                error = self.assertRaises(
                    StoreError, back_up, self.path, str(self.state / name), True
                )
                self.assertIn("belongs to the daemon", str(error))
                self.assertFalse((self.state / name).exists())

    def test_failed(self) -> None:
        """A file that could not be written is named, and nothing of it stays."""
        (self.folder / "file").touch()
        target = str(self.folder / "file" / "backup")
        error = self.assertRaises(StoreError, back_up, self.path, target, True)
        self.assertNotIn("Errno", str(error))
        self.assertIn(f"{target}.partial: Not a directory", str(error))
        full = OSError(errno.ENOSPC, "No space left on device")
        self.patch(backup, "_complete", lambda *_: self._raise(full))
        error = self.assertRaises(StoreError, back_up, self.path, self.target, True)
        self.assertEqual(str(error), f"no backup was made: no room is left for {self.target}")
        self.assertFalse(Path(f"{self.target}.partial").exists())

    def _raise(self, error: Exception) -> None:
        raise error

    def test_changed(self) -> None:
        """A backup of which anything was changed or taken away is not restored."""
        self.close()
        back_up(self.path, self.target, is_running=False)
        files = json.loads((Path(self.target) / MANIFEST).read_text())["files"]
        self.assertGreater(len(files), 2)
        for name in files:
            copy = self.folder / "copy"
            shutil.copytree(self.target, copy)
            octets = bytearray((copy / name).read_bytes())
            octets[len(octets) // 2] ^= 1
            (copy / name).write_bytes(octets)
            error = self.assertRaises(StoreError, restore, str(copy), str(self.fresh / "store.db"))
            self.assertIn(name, str(error))
            (copy / name).unlink()
            self.assertRaises(StoreError, restore, str(copy), str(self.fresh / "store.db"))
            shutil.rmtree(copy)
        self.assertEqual(os.listdir(self.fresh), [])

    def test_body_missing(self) -> None:
        """No backup is made of a store whose bodies are not all there."""
        self.close()
        bodies = self.state / "store.bodies"
        for each in bodies.iterdir():
            each.unlink()
        error = self.assertRaises(StoreError, back_up, self.path, self.target, False)
        self.assertIn("missing", str(error))
        self.assertFalse(os.path.exists(self.target))
