# SPDX-License-Identifier: Apache-2.0
"""Staged contents on the disk: what a crash, a damage and a full disk leave of them."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from amqproute.errors import LocalProtocolError, MessageDamaged, StoreError, StoreUnavailable
from amqproute.store.staging import StagingDirectory
from tests.store.rig import QueueReactor
from tests.store.staging_child import EXPECTED, octets
from tests.support.power import Power

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KILLS = int(os.environ.get("AMQPROUTE_STORE_KILLS", "3"))


class StagingCase(SynchronousTestCase):
    """A directory of staged contents."""

    def setUp(self) -> None:
        self.path = os.path.abspath(self.mktemp())
        self.reactor = QueueReactor()
        self.now_ms = 1_000_000
        self.staging = self.open(self.path)

    def open(self, path: str) -> StagingDirectory:
        staging = StagingDirectory(path, self.reactor, lambda: self.now_ms)
        self.reactor.wait(staging.open())
        self.addCleanup(lambda: self.reactor.wait(staging.close()))
        return staging

    def begin(self, name: str | None, size: int = 0, staging: Any = None) -> Any:
        begun = (staging or self.staging).begin("ann", name, size, lambda _: None)
        return self.reactor.wait(begun)

    def read(self, content: Any) -> bytes:
        reader = content.reader()
        parts = []
        while reader.left:
            parts.append(self.reactor.wait(reader.read(1 << 16)))
        reader.close()
        return b"".join(parts)

    def settle(self, staging: Any = None) -> None:
        """Wait until everything that was left to the thread is done."""
        self.reactor.wait((staging or self.staging).run(lambda: None))

    def names(self) -> list[str]:
        self.settle()
        return sorted(os.listdir(self.path))


class CutTests(StagingCase):
    """Files of which only a part is there, or a part is wrong."""

    def changed(self, name: str, octets: bytes) -> StagingDirectory:
        """Open a directory in which one file has other octets."""
        path = os.path.abspath(self.mktemp())
        os.mkdir(path)
        Path(path, name).write_bytes(octets)
        return self.open(path)

    def test_cut(self) -> None:
        """Wherever a file is cut off, its content is as of a whole part."""
        content = self.begin("a", 9)
        for part in (b"one", b"two", b"six"):
            content.append([part])
        content.release()
        (name,) = self.names()
        whole = Path(self.path, name).read_bytes()
        found = set()
        for at in range(len(whole) + 1):
            staging = self.changed(name, whole[:at])
            again = self.begin("a", 9, staging)
            self.assertEqual(self.read(again), b"onetwosix"[: again.size])
            found.add(again.size)
            again.append([b"onetwosix"[again.size :]])
            self.reactor.wait(again.save())
            again.release()
            self.assertEqual(self.read(self.begin("a", 9, staging)), b"onetwosix")
        self.assertEqual(found, {0, 3, 6, 9})

    def test_cut_after_save(self) -> None:
        """Content counted by saves is as of a save, or does not exist."""
        content = self.begin(None)
        for part in (b"one", b"two", b"six"):
            content.append([part])
            self.reactor.wait(content.save("x"))
        content.append([b"ten"])
        self.settle()
        (name,) = self.names()
        whole = Path(self.path, name).read_bytes()
        found = set()
        for at in range(len(whole) + 1):
            staging = self.changed(name, whole[:at])
            again = self.reactor.wait(staging.resume("ann", "x", lambda _: None))
            size = 0 if again is None else again.size
            if again is not None:
                self.assertEqual(self.read(again), b"onetwosix"[:size])
            found.add(size)
        self.assertEqual(found, {0, 3, 6, 9})

    def test_wrong(self) -> None:
        """No octet that is not as it was written is ever read, wherever one is wrong."""
        content = self.begin("a", 6)
        content.append([b"one"])
        content.append([b"two"])
        content.release()
        (name,) = self.names()
        whole = Path(self.path, name).read_bytes()
        for at in range(len(whole)):
            wrong = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
            again = self.begin("a", 6, self.changed(name, wrong))
            self.assertEqual(self.read(again), b"onetwo"[: again.size])
            self.assertLess(again.size, 6)

    def test_damaged_while_held(self) -> None:
        """A reader finds what has changed below it."""
        content = self.begin("a", 6)
        content.append([b"onetwo"])
        self.reactor.wait(content.save())
        (name,) = self.names()
        whole = Path(self.path, name).read_bytes()
        Path(self.path, name).write_bytes(whole.replace(b"onetwo", b"onetwa"))
        self.assertRaises(MessageDamaged, self.read, content)

    def test_strange_names(self) -> None:
        """Files of others are left alone; files without a name are removed."""
        for name in ("README", "f" + 63 * "0", "t" + 12 * "0", "f" + 64 * "0"):
            Path(self.path, name).write_bytes(b"x")
        self.open(self.path)
        self.assertEqual(self.names(), sorted(("README", "f" + 63 * "0")))


class DiskTests(StagingCase):
    """The disk's behavior."""

    def full(self, *_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def test_full(self) -> None:
        """A full disk is reported by the next save; what was whole before is there after."""
        content = self.begin("a", 6)
        content.append([b"one"])
        self.reactor.wait(content.save())
        with self.restoring(os, "pwrite"):
            os.pwrite = self.full
            content.append([b"two"])
            with self.assertRaisesRegex(StoreUnavailable, "no room"):
                self.reactor.wait(content.save())
            with self.assertRaisesRegex(StoreUnavailable, "no room"):
                self.reactor.wait(content.reader().read(3))
            with self.assertRaisesRegex(StoreUnavailable, "no room"):
                self.begin("b", 6)
        self.assertEqual(self.staging.use("ann")[0], 1)
        content = self.begin("a", 6)
        self.assertEqual(self.read(content), b"one")
        content.append([b"two"])
        self.assertEqual(self.reactor.wait(content.save()), 6)

    def test_saved_when_let_go(self) -> None:
        """What is let go of while it is being saved counts with all that is on the disk."""
        content = self.begin(None)
        content.append([b"x" * 1000])
        saved = content.save("a")
        content.release()
        self.assertGreaterEqual(self.staging.use("ann")[1], 1000)
        self.assertEqual([row[2] for row in self.staging.rows()], [1000])
        self.assertEqual(self.reactor.wait(saved), 1000)
        self.assertGreaterEqual(self.staging.use("ann")[1], 1000)

    def test_names_on_a_full_disk(self) -> None:
        """A save that fails leaves every name as it was."""
        first, second = self.begin(None), self.begin(None)
        for content, name in ((first, "x"), (second, "y")):
            content.append([name.encode()])
            self.reactor.wait(content.save(name))
        third = self.begin(None)
        with self.restoring(os, "fdatasync"):
            os.fdatasync = self.full
            for content in (second, third):
                with self.assertRaises(StoreUnavailable):
                    self.reactor.wait(content.save("x"))
                content.release()
        self.assertEqual(self.staging.use("ann")[0], 2)
        self.assertEqual(len(self.names()), 2)
        for name in ("x", "y"):
            again = self.reactor.wait(self.staging.resume("ann", name, lambda _: None))
            self.assertEqual(self.read(again), name.encode())

    def test_append_on_a_full_disk(self) -> None:
        """Whoever goes on to add to what could not be written is told so."""
        content = self.begin("a", 9)
        with self.restoring(os, "pwrite"):
            os.pwrite = self.full
            content.append([b"one"])
            self.settle()
            with self.assertRaisesRegex(StoreUnavailable, "no room"):
                content.check()
            with self.assertRaisesRegex(StoreUnavailable, "no room"):
                content.append([b"two"])
        content.release()
        self.assertEqual(self.begin("a", 9).size, 0)

    def restoring(self, module: Any, name: str) -> Any:
        class Restore:
            def __enter__(self) -> None:
                self.before = getattr(module, name)

            def __exit__(self, *_: object) -> None:
                setattr(module, name, self.before)

        return Restore()

    def test_power(self) -> None:
        """After a power failure everything is there that was saved, by its name of then."""
        power = Power(self, Path(self.path))
        one, two = self.begin("a", 9), self.begin(None)
        for number, part in enumerate((b"one", b"two", b"six")):
            for content, name in ((one, None), (two, f"x{number}")):
                content.append([part])
                size = self.reactor.wait(content.save(name))
            copy = Path(self.mktemp())
            power.leave(copy)
            staging = self.open(os.path.abspath(copy))
            again = self.reactor.wait(staging.resume("ann", f"x{number}", lambda _: None))
            for content in (self.begin("a", 9, staging), again):
                self.assertEqual(self.read(content), b"onetwosix"[:size])
        two.append([b"ten"])
        self.settle()

    def test_nothing_left(self) -> None:
        """Removed, replaced, expired and unnamed contents leave no file."""
        self.begin(None).release()
        self.begin("a", 1).remove()
        self.begin("b", 1)
        self.begin("b", 2).remove()
        for _ in range(2):
            content = self.begin(None)
            self.reactor.wait(content.save("x"))
        self.assertEqual(len(self.names()), 1)
        self.now_ms += self.staging.terms.lifetime_ms
        self.assertEqual(self.staging.expire(), 1)
        self.assertEqual(self.names(), [])
        self.assertEqual(self.staging.use(), (0, 0))

    def test_age(self) -> None:
        """A content ages over restarts, from when something was added to it."""
        for name, ms in (("a", 0), ("b", 60_000)):
            self.now_ms += ms
            self.begin(name, 5).append([b"x"])
            self.settle()
        self.reactor.wait(self.staging.close())
        self.now_ms += self.staging.terms.lifetime_ms - 30_000
        again = self.open(self.path)
        self.assertEqual([row[1] for row in again.rows()], ["b"])

    def test_states(self) -> None:
        """Before it is open, and when it is closed, it says so."""
        closed = StagingDirectory(os.path.abspath(self.mktemp()), self.reactor, int)
        self.assertRaises(LocalProtocolError, closed.begin, "ann", "a", 0, int)
        self.reactor.wait(closed.open())
        content = self.begin("a", 5, closed)
        self.reactor.wait(closed.close())
        self.assertTrue(content.is_lost)
        with self.assertRaisesRegex(StoreError, "closed"):
            self.begin("a", 5, closed)

    def test_taken_while_loading(self) -> None:
        """Of two who ask at one time the second one has it."""
        first: Deferred[Any] = self.staging.begin("ann", "a", 5, int)
        second: Deferred[Any] = self.staging.begin("ann", "a", 5, int)
        content = self.reactor.wait(second)
        self.assertTrue(self.reactor.wait(first).is_lost)
        content.append([b"x"])
        self.assertEqual(self.reactor.wait(content.save()), 1)

    def test_not_a_directory(self) -> None:
        """Without a directory the store says so."""
        path = os.path.abspath(self.mktemp())
        Path(path).write_bytes(b"")
        staging = StagingDirectory(path, self.reactor, int)
        self.assertRaises(StoreError, self.reactor.wait, staging.open())
        self.reactor.wait(staging.close())


class KillTests(StagingCase):
    """SIGKILL of a process that stages."""

    def test_kill(self) -> None:
        """All that was reported as saved is there, and nothing else than what was sent."""
        database = os.path.abspath(os.path.join(self.mktemp(), "queues.db"))
        chance = random.Random(7)
        for _ in range(KILLS):
            shutil.rmtree(os.path.dirname(database), ignore_errors=True)
            saved = self.run_child(database, chance.randrange(20, 200))
            staging = self.open(database[:-3] + ".staged")
            self.assertLessEqual({"ann"}, {row[0] for row in staging.rows()})
            for name, size in saved.items():
                if name[0] == "f":
                    content = self.begin(name, EXPECTED, staging)
                else:
                    content = self.reactor.wait(staging.resume("ann", name, int))
                self.assertIsNotNone(content, name)
                self.assertGreaterEqual(content.size, size)
                self.assertEqual(self.read(content), octets(name, content.size))

    def run_child(self, path: str, reports: int) -> dict[str, int]:
        """Start the child, kill it after so many reports; return the last one of each content."""
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.store.staging_child", path],
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert child.stdout is not None
        saved: dict[str, int] = {}
        for number, line in enumerate(child.stdout):
            name, size = line.decode().split()
            saved[name] = int(size)
            if number == reports:
                child.kill()
        child.stdout.close()
        child.wait()
        self.assertGreater(len(saved), 1, "the child ended by itself")
        return saved
