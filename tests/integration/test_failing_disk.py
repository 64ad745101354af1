# SPDX-License-Identifier: Apache-2.0
"""A failing disk: EIO from fsync, with the octets lost, and from writes.

What was accepted is there afterwards, whatever was lost; what could not be synced is not accepted;
the daemon continues by itself when the disk does, and says in one line what is the matter.
"""

from __future__ import annotations

import contextlib
import signal
import time

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from amqproute.store.fsck import check
from tests.integration.support import RUN, Daemon, Wire, body_of
from tests.integration.test_full_disk import CLOSED, OPENED, Publisher
from tests.support.failing_disk import FailingDisk, is_possible
from tests.support.patience import until

TROUBLE = "cannot accept transactions"


class FailingDiskTests(SynchronousTestCase):
    def setUp(self) -> None:
        if not is_possible():
            raise SkipTest("needs seccomp with user notification")
        self.daemon = Daemon(
            "alpha.example", changes={"nodes": [{"name": "q"}], "shutdown-timeout": 2}
        )
        self.disk = FailingDisk(str(self.daemon.directory / "state"))
        self.addCleanup(self.disk.stop)
        self.addCleanup(self.daemon.kill)
        serve = [*RUN, str(self.daemon.file)]
        self.daemon._spawn(self.disk.command(serve), {}, (self.disk.descriptor,))
        self.disk.serve()
        self.daemon.wait_ready()

    def check_all(self, publisher: Publisher) -> set[int]:
        """Kill the daemon; all that was accepted is there after a start. Return what is."""
        with contextlib.suppress(OSError):
            publisher.wire.close()
        self.daemon.kill()
        self.disk.stop()
        self.assertEqual(check(str(self.daemon.directory / "state" / "store.db")), [])
        self.daemon.start()
        with Wire(self.daemon.plain) as wire:
            got = [int(body_of(each)[:9]) for each in wire.consume("q", len(publisher.accepted))]
        self.assertEqual(len(got), len(set(got)))
        self.assertLessEqual(publisher.accepted, set(got))
        return set(got)

    def lose(self, size: int) -> None:
        publisher = Publisher(self.daemon, "q", size)
        self.disk.failing = "store."  # not the journal, which syncs as well
        times = 0

        def has_failed() -> bool:
            publisher.send(20)
            publisher.hear(0.1)
            return not self.disk.failing_syncs

        while times < 2 or not self.disk.lost:  # a sync of nothing loses nothing
            times += 1
            for _ in range(10):
                publisher.send(20)
                publisher.hear(0.02)
            self.disk.failing_syncs = 1
            until(has_failed, "a sync that fails")
            until(lambda: publisher.link.sendable or publisher.hear(0.2), "credit")
        publisher.until_heard()
        self.assertEqual(self.disk.failed["fsync"] + self.disk.failed["fdatasync"], times)
        self.assertEqual(publisher.accepted, set(range(publisher.sent)))
        self.daemon.check()
        self.check_all(publisher)

    def test_lost_commits(self) -> None:
        """Syncs of the log fail, and what was written is gone: no commit is built on it."""
        self.lose(600)
        self.assertIn("the disk failed under", self.daemon.log())

    def test_lost_files(self) -> None:
        """The same with bodies that are in files beside the database."""
        self.lose(40_000)

    def test_writes(self) -> None:
        """Nothing can be written for a while: no credit, one line, and it continues by itself."""
        publisher = Publisher(self.daemon, "q")
        publisher.send()
        publisher.until_heard()
        mark = self.daemon.mark()
        self.disk.fails_writes = True
        publisher.send()
        self.daemon.wait_log(CLOSED, mark)
        before = len(publisher.accepted)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            publisher.hear(0.5)
        self.assertEqual(len(publisher.accepted), before)
        lines = self.daemon.log().splitlines()
        self.assertEqual(len([line for line in lines if TROUBLE in line]), 1)
        self.assertEqual(len([line for line in lines if OPENED in line]), 0)
        self.disk.fails_writes = False
        self.daemon.wait_log(OPENED, mark)
        publisher.until_heard()
        self.assertEqual(publisher.accepted, set(range(publisher.sent)))
        self.daemon.check()
        self.check_all(publisher)

    def test_stop(self) -> None:
        """A daemon whose disk has died stops within its time, and loses nothing."""
        publisher = Publisher(self.daemon, "q")
        publisher.send()
        publisher.until_heard()
        mark = self.daemon.mark()
        self.disk.fails_writes = True
        publisher.send()
        self.daemon.wait_log(CLOSED, mark)
        self.daemon.signal(signal.SIGTERM)
        until(lambda: self.daemon.process is None or self.daemon.process.poll() is not None,
              "the end")  # fmt: skip
        self.assertNotIn("Traceback", self.daemon.log())
        publisher.accepted = {each for each in publisher.accepted if each < 100}
        self.check_all(publisher)
