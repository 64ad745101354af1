# SPDX-License-Identifier: Apache-2.0
"""The present daemons open the state of revision 5b54e44, and deliver all of it, once."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from amqproute.wire.amqp10 import engine_events as ev
from amqproute.wire.amqp10 import spec
from tests.golden.course import XID
from tests.golden.upgrade import (
    HUGE,
    LARGE,
    PUBLISHED,
    SETTINGS,
    SUBSCRIBERS,
    unpack,
)
from tests.integration.support import Daemon, Wire, Zone, body_of, until
from tests.integration.test_distributed_crash import Manager
from tests.support.program import run


class UpgradeTests(SynchronousTestCase):
    """Alpha was killed, beta was stopped."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        unpack(self.folder, "alpha", "beta")
        self.zone = Zone()
        self.addCleanup(self.zone.close)
        self.alpha = self.daemon("alpha")
        self.beta = self.daemon("beta", "gone.example")
        self.zone.point("alpha.example", self.alpha.tls)

    def daemon(self, name: str, *domains: str) -> Daemon:
        """Make a daemon over unpacked state."""
        state = self.folder / name / "state"
        # As if these were the very files: one that is known for a copy may be an old one.
        for mark in (state / "store.db.mark", state / "journal" / "head"):
            restamp(mark)
        changes = {**SETTINGS, "state-directory": str(state)}
        made = Daemon(
            f"{name}.example", domains=domains, nameserver=self.zone.port, changes=changes
        )
        self.addCleanup(made.kill)
        return made

    def taken(self, daemon: Daemon, node: str, count: int) -> list[bytes]:
        """Consume this many messages; return the bodies."""
        with Wire(daemon.plain) as wire:
            bodies = [body_of(each) for each in wire.consume(node, count)]
            wire.close()
        return bodies

    def told(self, daemon: Daemon, kind: str) -> int:
        """Count the records of a kind in a daemon's journal."""
        paths = Path(daemon.settings["state-directory"]).glob("journal/*/*.jsonl")
        lines = [json.loads(line) for path in paths for line in path.read_bytes().splitlines()]
        return sum(line["n"] for line in lines if line["kind"] == kind)

    def test_everything_is_delivered(self) -> None:
        """Queues, bodies, subscriptions, a branch, what waits for others, and no message twice."""
        alpha, beta = self.alpha, self.beta
        beta.start()
        for domain in ("beta.example", "gone.example"):
            self.zone.point(domain, beta.tls)
        alpha.start()
        far = self.taken(beta, "orders", 6)
        self.assertEqual(Counter(far), Counter([b"1", b"2", b"3", b"twice", b"0", b"1"]))
        until(lambda: self.told(beta, "duplicate") == 1, "the message whose outcome was lost")
        archived = [b"plain", b"plain", b"L" * LARGE, b"H" * HUGE]
        self.assertEqual(Counter(self.taken(alpha, "archive", 4)), Counter(archived))
        self.assertEqual(self.taken(alpha, "work", 1), [b"1"])
        for name in SUBSCRIBERS:
            self.assertEqual(self.subscribed(name), list(PUBLISHED))
        manager = Manager(alpha.plain)
        self.assertEqual(manager.recover(), [XID[1]])
        self.assertEqual(manager.ask("commit", XID)[0], 0)
        manager.wire.close()
        self.assertEqual(self.taken(alpha, "archive", 1), [b"prepared"])
        for daemon in (alpha, beta):
            self.empty(daemon)
            daemon.stop()
            for command in (("journal", "verify"), ("store", "check")):
                done = run(*command, "--config", str(daemon.file))
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            daemon.check()
        self.assertNotIn("restored", alpha.log() + beta.log())

    def subscribed(self, container: str) -> list[bytes]:
        """Take what waits for a durable subscription."""
        source = spec.Source(address="news", durable=2, expiry_policy="never")
        bodies: list[bytes] = []
        with Wire(self.alpha.plain, container=container) as wire:
            link = wire.attach("receiver", "news", "kept", source=source)
            link.flow(10)
            while len(bodies) < len(PUBLISHED):
                event = wire.wait(lambda event: type(event) is ev.DeliveriesReceived)
                bodies += [body_of(each.payload) for each in event.deliveries]
                wire.session.settle(event.deliveries, spec.Accepted(), True)
            wire.close()
        return bodies

    def empty(self, daemon: Daemon) -> None:
        """Assert that nothing is left on any queue, here or for others."""

        def left() -> dict[str, int]:
            done = run("queue", "ls", "--json", "--config", str(daemon.file))
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(done.stdout)["queues"]
            return {row["name"]: row["depth"] for row in rows if row["depth"]}

        until(lambda: not left(), f"empty queues at {daemon.name}", detail=lambda: str(left()))


def restamp(path: Path) -> None:
    """Have a file that says when it was written say that it was now
    (`amqproute.restore_detection`)."""
    text = path.read_text()
    path.write_text(text)
    now = path.stat().st_ctime_ns
    text, marked = re.subn(r" at \d{19} ", f" at {now} ", text)
    text, headed = re.subn(r'("written_us": )\d{16}', rf"\g<1>{now // 1000}", text)
    assert marked + headed == 1, path
    path.write_text(text)
