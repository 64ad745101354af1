# SPDX-License-Identifier: Apache-2.0
"""Connection tests for the dashboard: who may start one, and how many run."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from amqproute.config.schema import Config
from amqproute.daemon import peer_tester
from amqproute.daemon.peer_tester import MOST_TESTS, DaemonPeerTester
from amqproute.dashboard.dashboard_site import PeerTestResult
from amqproute.dashboard.management_source import Answer
from tests.dashboard.samples import SampleSource


class WaitingTest:
    """A `PeerTest` that waits."""

    waiting: list[Deferred[None]] = []

    def __init__(self, *_: object, **more: object) -> None:
        self.steps: list[object] = []
        self.is_good = True

    async def run(self) -> None:
        """Wait."""
        waiting: Deferred[None] = Deferred()
        self.waiting.append(waiting)
        await waiting


class TesterTests(SynchronousTestCase):
    """The bounds."""

    def setUp(self) -> None:
        self.patch(peer_tester, "PeerTest", WaitingTest)
        self.patch(WaitingTest, "waiting", [])
        self.addCleanup(self.finish)
        self.source = self.asked(Answer(200, "forgotten", {}))
        config = Config.model_construct()
        # The reactor and the configuration are for tests that really run.
        clock: object = Clock()
        self.tester = DaemonPeerTester(lambda: config, clock, tuple)  # type: ignore[arg-type]

    def finish(self) -> None:
        """End the tests that run."""
        for each in WaitingTest.waiting:
            if not each.called:
                each.callback(None)

    def asked(self, answer: Answer) -> SampleSource:
        answers: Mapping[str, Answer] = {"FORGET": answer}
        return SampleSource({}, answers)

    def start(self, to: str) -> Deferred[PeerTestResult]:
        return Deferred.fromCoroutine(self.tester.test(self.source, to))

    def test_right(self) -> None:
        """The right on the relay queue is asked for; without it nothing is connected."""
        self.source = self.asked(Answer(403, "user:ann may not manage 'amqp$out/x.example'", {}))
        found = self.successResultOf(self.start("x.example"))
        self.assertEqual((found.is_good, WaitingTest.waiting), (False, []))
        self.assertIn("may not manage", found.words)

    def test_bounds(self) -> None:
        """One runs for a domain at a time, and few in all; a place is free again at the end."""
        running = [self.start(f"x{n}.example") for n in range(MOST_TESTS)]
        for to in ("x0.example", "orders@x0.example", "y.example"):
            found = self.successResultOf(self.start(to))
            self.assertIn("Other tests are running", found.words, to)
        WaitingTest.waiting[0].callback(None)
        self.assertTrue(self.successResultOf(running[0]).is_good)
        self.assertNoResult(self.start("y.example"))

    def test_invalid(self) -> None:
        """What is no address of another broker is told, and nothing is asked."""
        for to in ("", "orders@", "x" * 300):
            found = self.successResultOf(self.start(to))
            self.assertFalse(found.is_good, to)
        self.assertEqual(WaitingTest.waiting, [])
