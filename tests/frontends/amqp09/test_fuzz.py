# SPDX-License-Identifier: Apache-2.0
"""A few broken streams in each run; `tests.frontends.amqp09.fuzz` sends 20,000 of them."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.frontends.amqp09.fuzz import StreamFuzz


class FuzzTests(SynchronousTestCase):
    def test_streams(self) -> None:
        """Broken streams leave nothing behind, and hold no more than their bound."""
        fuzz = StreamFuzz(9)
        fuzz.run(150)
        self.assertEqual((fuzz.streams, fuzz.faults), (150, []))
