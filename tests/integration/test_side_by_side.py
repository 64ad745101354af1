# SPDX-License-Identifier: Apache-2.0
"""`docs/interoperation.md` lists each difference between the daemon's answers and RabbitMQ's."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.method_player import play_all
from tests.integration.rabbitmq import MISSING
from tests.integration.side_by_side import (
    SEQUENCES,
    differences,
    listed,
    our_daemon,
    record_of_rabbitmq,
)


class SideBySideTests(SynchronousTestCase):
    """Sequences of methods, to both brokers."""

    def test_page(self) -> None:
        """The page lists sequences that there are, each once."""
        names = listed()
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(set(names) - set(SEQUENCES), set())
        self.assertGreaterEqual(len(SEQUENCES), 150)

    def test_differences(self) -> None:
        """The differences found are those listed."""
        if MISSING:
            self.skipTest(MISSING)
        daemon, broker = our_daemon()
        self.addCleanup(daemon.stop)
        ours = play_all(broker, SEQUENCES)
        daemon.check()
        theirs = record_of_rabbitmq(SEQUENCES)
        for records in (ours, theirs):
            broken = {name: lines for name, lines in records.items() if "broken off" in str(lines)}
            self.assertEqual(broken, {})
        found = differences(ours, theirs)
        unlisted = {name: "\n".join(found[name]) for name in found if name not in listed()}
        self.assertEqual(unlisted, {})
        self.assertEqual(set(listed()) - set(found), set())
