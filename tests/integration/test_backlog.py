# SPDX-License-Identifier: Apache-2.0
"""More messages than memory: the queue stays on disk, the daemon stays small (Q-08).

``AMQPROUTE_LONG=1`` adds a million messages of 1 KiB within 300 MiB.
"""

from __future__ import annotations

import os
import time

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.integration.support import Daemon, Wire, body_of, message

MEBIBYTE = 2**20
KIBIBYTE = 1024


def payload(number: int) -> bytes:
    """Return a message of 1 KiB that knows its number."""
    return message(b"%09d" % number + b"." * (KIBIBYTE - 9))


class BacklogTests(SynchronousTestCase):
    def grow(self, count: int, growth: int, start_seconds: float) -> None:
        """Publish, restart, consume; watch the memory of the process all the while."""
        daemon = Daemon(
            "alpha.example",
            changes={"nodes": [{"name": "q"}], "limits": {"queue-memory-bytes": 2 * MEBIBYTE}},
        ).start()
        self.addCleanup(daemon.stop)
        before = daemon.resident()
        for begin in range(0, count, 10000):
            with Wire(daemon.plain) as wire:
                wire.publish("q", [payload(n) for n in range(begin, min(begin + 10000, count))])
            self.assertLess(daemon.resident() - before, growth, begin)
        mark = daemon.mark()
        daemon.stop()
        begun = time.monotonic()
        daemon.start()
        self.assertLess(time.monotonic() - begun, start_seconds)
        daemon.wait_log(f"q recovered {count} messages", mark)
        before = min(before, daemon.resident())
        done = 0
        while done < count:
            some = min(10000, count - done)
            with Wire(daemon.plain) as wire:
                for got in wire.consume("q", some):
                    self.assertEqual(int(body_of(got)[:9]), done)
                    done += 1
            self.assertLess(daemon.resident() - before, growth, done)
        daemon.check()

    def test_twenty_thousand(self) -> None:
        """20 MiB through 2 MiB, in order, with a restart in the middle."""
        self.grow(20_000, 40 * MEBIBYTE, 10.0)

    def test_a_million(self) -> None:
        """The long form."""
        if not os.environ.get("AMQPROUTE_LONG"):
            raise SkipTest("takes minutes and 2 GiB of disk; set AMQPROUTE_LONG=1 to run it")
        self.grow(1_000_000, 240 * MEBIBYTE, 15.0)

    test_a_million.timeout = 1800  # type: ignore[attr-defined]
