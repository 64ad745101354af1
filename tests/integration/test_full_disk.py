# SPDX-License-Identifier: Apache-2.0
"""A full disk: no accepted message is lost, nobody is refused, and work resumes by itself.

The state directory is a small file system of its own, which takes the right to mount one; without
it the same is tried with a small `RLIMIT_FSIZE`, where each file is bounded and none can grow.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from amqproute.journal import reader
from amqproute.journal.record import RecordKind
from amqproute.store.body_files import SPARES
from amqproute.store.fsck import check
from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from amqproute.wire.amqp10.link import Link
from tests.integration.support import Daemon, Wire, body_of, message, new_directory
from tests.support.patience import PATIENCE, until
from tests.support.program import run

MEBIBYTE = 2**20
CLOSED = "no credit for publishers"
OPENED = "publishers have credit again"


def mounted(megabytes: int, clean_up: Callable[..., Any]) -> Path:
    """Return a file system of this size.

    Raises:
        SkipTest: there may be none.
    """
    where = new_directory("disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(where)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        raise SkipTest("needs the right to mount a file system")
    clean_up(subprocess.run, ["umount", "-l", str(where)], check=False)
    return where


class Publisher:
    """Sends numbered messages for as long as it has credit.

    Attributes:
        accepted: the numbers of those that were.
        sent: how many were sent.
    """

    def __init__(self, daemon: Daemon, node: str, size: int = 1000, first: int = 0) -> None:
        self.wire = Wire(daemon.plain)
        self.link: Link = self.wire.attach("sender", node)
        self.accepted: set[int] = set()
        self.size = size
        self.sent = first

    def send(self, most: int = 100) -> None:
        """Send what the credit is good for."""
        for _ in range(min(self.link.sendable, most)):
            body = b"%09d" % self.sent + b"." * (self.size - 9)
            self.link.send((message(body),), self.sent.to_bytes(4, "big"))
            self.sent += 1
        self.wire.flush()

    def hear(self, seconds: float) -> bool:
        """Take what comes; False if nothing does. Whatever is no acceptance is a failure."""
        try:
            events = self.wire.read(seconds)
        except TimeoutError:
            return False
        for event in events:
            if type(event) is ev.DeliveriesUpdated:
                assert type(event.state) is spec.Accepted, event
                self.accepted.update(int.from_bytes(each.tag, "big") for each in event.deliveries)
            else:
                kinds = (ev.LinkDetached, ev.SessionEnded, ev.ConnectionClosed)
                assert type(event) not in kinds, event
        return True

    def until_braked(self) -> None:
        """Send until there is no credit for two seconds, or nothing is read any more.

        The latter is how a daemon brakes that holds as many octets as it may; or one that has not
        come to it yet.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                self.send()
            except TimeoutError:
                return
            if not self.hear(0.05 if self.link.sendable else 2.0) and not self.link.sendable:
                return
        raise AssertionError(f"still credit after {self.sent} messages")

    def until_heard(self) -> None:
        """Wait for the outcome of all that were sent."""
        end = time.monotonic() + PATIENCE
        while len(self.link.unsettled) and time.monotonic() < end:
            self.hear(1.0)
        assert not self.link.unsettled, (len(self.link.unsettled), self.sent)


class FullDiskCase(SynchronousTestCase):
    """A daemon on a small file system of its own."""

    def start(self, megabytes: int, **store: Any) -> Daemon:
        self.disk = mounted(megabytes, self.addCleanup)
        daemon = Daemon(
            "alpha.example",
            changes={
                "nodes": [{"name": "q"}, {"name": "p"}],
                "state-directory": str(self.disk / "state"),
                "store": store,
                "journal": {"on-full": "count"},  # it is the store that is looked at
            },
        )
        self.addCleanup(daemon.kill)
        return daemon.start()

    def free(self) -> int:
        room = os.statvfs(self.disk)
        return room.f_bavail * room.f_frsize

    def fill(self) -> None:
        """Have somebody else take all there is."""
        with (self.disk / "junk").open("ab", buffering=0) as junk:
            for size in (MEBIBYTE, 4096):
                with contextlib.suppress(OSError):
                    while junk.write(b"j" * size) == size:
                        pass

    def brake(self, daemon: Daemon, publisher: Publisher) -> None:
        """Send until the daemon has taken all credit away."""
        until(lambda: publisher.until_braked() or CLOSED in daemon.log(), CLOSED)

    def make_room(self) -> None:
        (self.disk / "junk").unlink()

    def take(self, daemon: Daemon, count: int, node: str = "q") -> list[int]:
        with Wire(daemon.plain) as wire:
            return [int(body_of(each)[:9]) for each in wire.consume(node, count)]

    def store(self) -> str:
        return str(self.disk / "state" / "store.db")


class FullDiskTests(FullDiskCase):
    """A disk that others fill, or the floor."""

    def test_floor(self) -> None:
        """Credit closes at the floor and opens when consumers have made room in the database."""
        daemon = self.start(420, **{"min-free": "150MiB"})
        publisher = Publisher(daemon, "q", 8000)
        self.brake(daemon, publisher)
        publisher.until_heard()
        self.assertEqual(publisher.accepted, set(range(publisher.sent)))
        self.assertGreater(self.free(), 80 * MEBIBYTE)
        line = daemon.wait_log(rf".*{CLOSED}.*")[0]
        self.assertIn("q (", line)
        self.assertIn("store.min-free is 150 MiB", line)
        with Wire(daemon.plain) as other:  # somebody new has none either
            link = other.attach("sender", "p")
            self.assertEqual(link.sendable, 0)
        taken = self.take(daemon, publisher.sent)
        self.assertEqual(taken, list(range(publisher.sent)))
        daemon.wait_log(OPENED)
        until(lambda: publisher.hear(5) and publisher.link.sendable, "credit")
        daemon.check()

    def test_full(self) -> None:
        """Somebody fills the disk to the last octet in the middle of commits."""
        daemon = self.start(224, **{"min-free": 0})
        publisher = Publisher(daemon, "q", 4000)
        while publisher.sent < 3000:
            publisher.send()
            publisher.hear(1.0)
        self.fill()
        self.brake(daemon, publisher)
        self.fill()  # the ballast as well, if it was given up
        self.assertLess(self.free(), 64 * 1024)
        daemon.wait_log(CLOSED)
        waiting = publisher.sent - len(publisher.accepted)
        self.assertGreater(waiting, 0)
        accepted = set(publisher.accepted)
        # Consumers take all that is there, while the disk is full.
        self.assertEqual(self.take(daemon, 2500), list(range(2500)))
        self.make_room()
        publisher.until_heard()
        self.assertEqual(publisher.accepted, set(range(publisher.sent)))
        self.assertLessEqual(accepted, publisher.accepted)
        left = self.take(daemon, publisher.sent - 2500)
        self.assertEqual(left, list(range(2500, publisher.sent)))
        self.assertNotIn("Traceback", daemon.log())
        self.assertLess(daemon.log().count(CLOSED), 12)
        daemon.stop()
        self.assertEqual(check(self.store()), [])

    def killed(self, size: int, kill: bool) -> None:
        """End a daemon on a full disk and start it there again; it can be emptied."""
        daemon = self.start(224, **{"min-free": 0})
        publisher = Publisher(daemon, "q", size)
        while publisher.sent * size < 40 * MEBIBYTE:
            publisher.send(20)
            publisher.hear(1.0)
        self.fill()
        self.brake(daemon, publisher)
        if kill:
            daemon.kill()
        else:
            daemon.stop()
        self.fill()
        daemon.start()
        with Wire(daemon.plain) as wire:
            link = wire.attach("receiver", "q")
            link.flow(5000)
            seen: set[int] = set()
            while not publisher.accepted <= seen:
                for event in wire.read():
                    if type(event) is ev.DeliveriesReceived:
                        seen.update(int(body_of(each.payload)[:9]) for each in event.deliveries)
                        wire.session.settle(event.deliveries, spec.Accepted(), True)
                if link.credit < 2500:
                    link.flow(5000)
        self.make_room()
        with Wire(daemon.plain) as wire:
            wire.publish("p", [message(b"%09d" % 7)])
        self.assertEqual(self.take(daemon, 1, "p"), [7])
        self.assertNotIn("Traceback", daemon.log())
        daemon.stop()
        self.assertEqual(check(self.store()), [])

    def test_killed(self) -> None:
        """Killed on a full disk."""
        self.killed(4000, True)

    def test_stopped(self) -> None:
        """Stopped on a full disk, which somebody then fills entirely."""
        self.killed(4000, False)

    def test_killed_with_files(self) -> None:
        """The same with messages that are in files."""
        self.killed(100_000, True)

    def test_journal_of_a_stop(self) -> None:
        """Facts that a stop on a full disk could not write are reported by the next start."""
        daemon = self.start(224, **{"min-free": 0})
        with Wire(daemon.plain) as wire:
            wire.publish("q", [message(b"%09d" % number) for number in range(3)])
        self.fill()
        for number in range(1, 41):  # each is a record; the last page has room for a few
            daemon.signal(signal.SIGHUP)
            until(lambda wanted=number: daemon.log().count(" reloaded ") == wanted, "a reload")
        daemon.wait_log("the journal cannot be written")
        daemon.stop()
        (words,) = re.findall(r"the journal ends without its last \d+ records", daemon.log())
        self.make_room()
        daemon.start()
        self.assertEqual(self.take(daemon, 3), [0, 1, 2])
        daemon.stop()
        journal = self.disk / "state" / "journal"
        (verdict,) = reader.verify(journal)
        self.assertIsNone(verdict.flaw)
        records = list(reader.records(journal))
        (gap,) = [each for each in records if each.kind == RecordKind.GAP]
        self.assertIn(f" {gap.count} ", words)
        there = sum(each.kind == RecordKind.CONFIGURED for each in records)
        # The reloads and two starts, one stock of each node and of all, and one stop.
        self.assertGreaterEqual(there + gap.count, 42)
        self.assertEqual((journal / "lost").read_text().strip("0\n"), "")
        self.assertNotIn("Traceback", daemon.log())

    def test_very_large(self) -> None:
        """A message larger than the disk goes back to its sender, and leaves nothing behind."""
        daemon = self.start(192, **{"min-free": 0})
        with Wire(daemon.plain) as wire:
            link = wire.attach("sender", "q")
            whole = message(b"x" * (160 * MEBIBYTE))
            link.send((whole,), b"large")
            event = wire.wait(lambda each: type(each) is ev.DeliveriesUpdated)
            self.assertIsInstance(event.state, spec.Released)
        until(lambda: self.free() > 64 * MEBIBYTE, "room")
        daemon.wait_log(OPENED)
        with Wire(daemon.plain) as wire:
            wire.publish("q", [message(b"%09d" % 1)])
        self.assertEqual(self.take(daemon, 1), [1])
        self.assertNotIn("Traceback", daemon.log())


class SmallDiskTests(FullDiskCase):
    """File systems of some dozens of MiB, filled by publishers: the advice helps."""

    def command(self, daemon: Daemon, *words: str) -> str:
        done = run(*words, "--config", str(daemon.file))
        return done.stdout + done.stderr

    def is_closed(self, daemon: Daemon) -> bool:
        return "closed" in self.command(daemon, "status")

    def fill_up(self, daemon: Daemon, size: int) -> None:
        """Publish until the broker takes no more, with some publishers one after the other."""
        for _ in range(60):
            publisher = Publisher(daemon, "q", size)
            with contextlib.suppress(TimeoutError):
                publisher.until_braked()
            publisher.wire.close()
            if self.is_closed(daemon):
                return
        raise AssertionError(self.command(daemon, "status"))

    def emptied(self, megabytes: int, size: int) -> Daemon:
        """Fill a disk, do what `status` says, and have messages taken again."""
        daemon = self.start(megabytes)
        self.fill_up(daemon, size)
        self.assertIn("have messages consumed or purged", self.command(daemon, "status"))
        self.command(daemon, "queue", "purge", "q")
        until(
            lambda: not self.is_closed(daemon),
            "credit",
            detail=lambda: self.command(daemon, "status"),
        )
        with Wire(daemon.plain) as wire:
            wire.publish("p", [message(b"%09d" % number) for number in range(5)])
        self.assertEqual(self.take(daemon, 5, "p"), list(range(5)))
        self.assertNotIn("Traceback", daemon.log())
        return daemon

    def test_small_messages(self) -> None:
        """They are in the database, which never shrinks."""
        self.emptied(100, 20_000)

    def test_messages_in_files(self) -> None:
        """They are in segments: spare ones are kept where there is room, and else none at all."""
        daemon = self.emptied(100, 60_000)
        bodies = self.disk / "state" / "store.bodies"

        def segments() -> int:
            # What publishers had sent before they ended may have come after the first purge.
            self.command(daemon, "queue", "purge", "q")
            return len(list(bodies.iterdir()))

        until(lambda: segments() <= SPARES + 1, "segments of nobody removed")
        self.fill()
        until(lambda: not segments(), "spare segments removed", detail=daemon.log)

    def test_small_disk(self) -> None:
        """60 MiB are enough to begin with, and to start over."""
        daemon = self.emptied(60, 8000)
        self.assertNotIn("was full", daemon.log().partition(CLOSED)[0])

    def killed_without_ballast(self, size: int) -> Daemon:
        """Kill a daemon on a disk without an octet left, not even for the index of the log."""
        daemon = self.start(100)
        self.fill_up(daemon, size)
        daemon.kill()
        for name in ("ballast", "shm"):
            dash = "." if name == "ballast" else "-"
            (self.disk / "state" / f"store.db{dash}{name}").unlink(missing_ok=True)
        self.fill()
        daemon.spawn()
        return daemon

    def then_well(self, daemon: Daemon) -> None:
        """Do what `status` says, and have messages taken again."""
        self.command(daemon, "queue", "purge", "q")
        self.make_room()
        until(
            lambda: not self.is_closed(daemon),
            "credit",
            detail=lambda: f"{self.command(daemon, 'status')}\n{daemon.log()}",
        )
        with Wire(daemon.plain) as wire:
            wire.publish("p", [message(b"%09d" % 1)])
        self.assertEqual(self.take(daemon, 1, "p"), [1])
        self.assertNotIn("the disk failed", daemon.log())
        daemon.stop()
        self.assertEqual(check(self.store()), [])

    def test_killed_without_ballast(self) -> None:
        """It says that the disk is full, and how much is needed; with that it starts."""
        for size in (20_000, 60_000):
            daemon = self.killed_without_ballast(size)
            try:
                daemon.wait_ready()  # where the log fits into the database as it is
            except AssertionError:
                self.assertEqual(daemon.wait(), 1)
                (said,) = re.findall(r"cannot start: .*", daemon.log())
                self.assertIn("the disk is full under", said)
                wanted = re.search(r"free (\d+) MiB there", said)
                assert wanted is not None, said
                junk = self.disk / "junk"
                os.truncate(junk, max(0, junk.stat().st_size - int(wanted[1]) * MEBIBYTE))
                daemon.start()
            self.then_well(daemon)


class FileSizeTests(SynchronousTestCase):
    """Without rights: the process may not make its files larger."""

    def test_limit(self) -> None:
        """The store takes nothing for a while; what came meanwhile is there in the end."""
        daemon = Daemon("alpha.example", changes={"nodes": [{"name": "q"}]}).start()
        self.addCleanup(daemon.kill)
        hard = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)[1]
        publisher = Publisher(daemon, "q", 4000)
        publisher.send(50)
        publisher.until_heard()
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (4096, hard))
        publisher.send(50)
        daemon.wait_log(CLOSED)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))
        publisher.until_heard()
        self.assertEqual(publisher.accepted, set(range(100)))
        daemon.wait_log(OPENED)
        with Wire(daemon.plain) as wire:
            found = [int(body_of(each)[:9]) for each in wire.consume("q", 100)]
        self.assertEqual(found, list(range(100)))
        self.assertNotIn("Traceback", daemon.log())
        daemon.stop()
